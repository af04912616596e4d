// Stacks of modules or packages instead of functions, by the rules of nodeprof flame --by.
import { STEP } from "./slices";
import { childrenOf, totalsIn, type Events, type Values } from "./model";

/** As much of the events as trees are made of. */
export type Stacks = Pick<Events, "frames" | "parent" | "frame" | "children">;

export interface Grouped {
  by: "module" | "package";
  stacks: Stacks;
  /** By node of the events: the node that stands for it. */
  place: Int32Array;
}

const WORK: Record<string, string> = {
  gc: "(garbage collection)",
  tracing: "(tracing)",
  compilation: "(compilation)",
};

/** Kinds of frames that a module or package has, or its caller. */
const HAS_SCRIPT = new Set(["javascript", "node", "wasm"]);

/** As nodeprof flame calls it. */
const NO_STACK = "(no stack)";

/** What happened on top of a stack, such as a call or a file: kept as it is. */
const HAPPENED = new Set(["callback", "fast", "getter", "construct", "serialization", "operation", "file", "wait"]);

/** A path, or as webpack names the files of a bundle (webpack://app/./src/index.js). */
const PATH = /^(\/|file:\/\/(localhost)?\/|webpack:\/\/)/;

/** Whether the JavaScript of a script, or WebAssembly, is of the module or package that called it: it has no file, or, by package, a name that is no path. */
export function isOfCaller(script: string | null, by: "module" | "package"): boolean {
  return script === null || script.startsWith("wasm://") || (by === "package" && !PATH.test(script));
}

export function* regroup(events: Events, by: "module" | "package"): Generator<void, Grouped> {
  const old = events.frames;
  const names: string[] = [];
  const kinds: string[] = [];
  const files: (string | null)[] = [];
  const packages: (string | null)[] = [];
  const made = new Map<string, number>();
  const make = (name: string, kind: string, file: string | null, of: string | null): number => {
    const key = `${kind}\0${name}`;
    let frame = made.get(key);
    if (frame === undefined) {
      frame = names.length;
      made.set(key, frame);
      names.push(name);
      kinds.push(kind);
      files.push(file);
      packages.push(of);
    }
    return frame;
  };
  const parent: number[] = [];
  const frame: number[] = [];
  const children = new Map<number, number>();
  const child = (above: number, of: number): number => {
    if (above >= 0 && frame[above] === of) return above;
    const key = (above + 1) * 4_194_304 + of;
    let node = children.get(key);
    if (node === undefined) {
      node = parent.length;
      children.set(key, node);
      parent.push(above);
      frame.push(of);
    }
    return node;
  };
  // By frame of the events: the group, or -1.
  const groups = old.names.map((_, index) => {
    const kind = old.kinds[index]!;
    if (!HAS_SCRIPT.has(kind)) return -1;
    const script = old.scripts[index] ?? null;
    if (by === "module") return make(script ?? old.files[index] ?? "(no file)", kind, script, old.packages[index] ?? null);
    const of = kind === "node" ? "node" : (old.packages[index] ?? "(program)");
    return make(of, kind === "node" ? "node" : "package", null, of);
  });
  const ofCaller = old.kinds.map((kind, index) => kind !== "node" && HAS_SCRIPT.has(kind) && isOfCaller(old.scripts[index] ?? null, by));
  const native = make("(no JavaScript)", "native", null, null);
  // An event without a stack may well be of JavaScript.
  const nothing = old.names.findIndex((name, index) => name === NO_STACK && old.kinds[index] === "unknown");
  const unknown = nothing < 0 ? -1 : make(NO_STACK, "unknown", null, null);
  const works = new Map(Object.entries(WORK).map(([kind, name]) => [kind, make(name, kind, null, null)]));
  const kept = old.names.map((name, index) => (HAPPENED.has(old.kinds[index]!) ? make(name, old.kinds[index]!, old.files[index] ?? null, null) : -1));
  const size = events.parent.length;
  // Of each stack: the innermost module of the program, Node's own on top of it, and what work began above that.
  const base = new Int32Array(size).fill(-1);
  const built = new Int32Array(size).fill(-1);
  const work: (string | undefined)[] = new Array(size);
  const place = new Int32Array(size);
  const script = new Uint8Array(size);
  for (let node = 0; node < size; node++) {
    if (node % STEP === 0) yield;
    const above = events.parent[node]!;
    const of = events.frame[node]!;
    const kind = old.kinds[of]!;
    const group = groups[of]!;
    base[node] = above < 0 ? -1 : base[above]!;
    built[node] = above < 0 ? -1 : built[above]!;
    work[node] = above < 0 ? undefined : work[above];
    script[node] = above < 0 ? 0 : script[above]!;
    if (of === nothing) {
      place[node] = child(-1, unknown);
      continue;
    }
    if (kept[of]! >= 0) {
      place[node] = child(above < 0 ? child(-1, native) : place[above]!, kept[of]!);
      continue;
    }
    if (group >= 0) {
      script[node] = 1;
      work[node] = undefined;
      if (kind === "node") built[node] = group;
      else {
        built[node] = -1;
        if (!ofCaller[of] || base[node]! < 0) base[node] = child(base[node]!, group);
      }
    } else if (WORK[kind] && (kind !== "compilation" || work[node] === undefined)) work[node] = kind;
    let top = base[node]!;
    if (built[node]! >= 0) top = child(top, built[node]!);
    if (work[node] !== undefined) top = child(top, works.get(work[node]!)!);
    else if (script[node] === 0) top = child(top, native);
    place[node] = top;
  }
  const parents = Int32Array.from(parent);
  const none = new Int32Array(names.length).fill(-1);
  return {
    by,
    place,
    stacks: {
      parent: parents,
      frame: Int32Array.from(frame),
      children: childrenOf(parents),
      frames: { names, kinds, kindNames: old.kindNames, files, lines: none, columns: none, scripts: files, packages },
    },
  };
}

/** The same values on other stacks. */
export function* moved(values: Values, grouped: Grouped): Generator<void, Values> {
  const own = new Float64Array(grouped.stacks.parent.length);
  for (let from = 0; from < values.own.length; from += STEP) {
    const until = Math.min(values.own.length, from + STEP);
    for (let node = from; node < until; node++) own[grouped.place[node]!]! += values.own[node]!;
    yield;
  }
  return { ...values, own, ...(yield* totalsIn(own, grouped.stacks.parent)) };
}
