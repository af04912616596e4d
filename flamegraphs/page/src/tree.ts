// Trees that flame graphs are drawn from. A node stands for stacks of the recording; its children are made when they are
// first looked at, so that only what is wide enough to be seen costs anything.
import type { Values } from "./model";
import type { Stacks } from "./regroup";
import { STEP, whole } from "./slices";

export interface TreeNode {
  /** Index into the frames; -1: above all. */
  frame: number;
  value: number;
  /** Without children: what ends here. */
  own: number;
  depth: number;
  parent: TreeNode | null;
  children: TreeNode[] | null;
}

interface Lazy extends TreeNode {
  /** Stacks that it stands for. */
  bases: Int32Array | number[];
  /** Backwards: how much of each. */
  weights?: Float64Array | number[];
}

export interface FlameTree {
  root: TreeNode;
  children(node: TreeNode): TreeNode[];
}

function largestFirst(list: TreeNode[]): TreeNode[] {
  return list.sort((a, b) => b.value - a.value || a.frame - b.frame);
}

/** From callers to callees. Children of all bases with the same frame are one. */
class Forward implements FlameTree {
  readonly root: Lazy;
  readonly #events: Stacks;
  readonly #values: Values;

  constructor(events: Stacks, values: Values, root: Lazy) {
    this.#events = events;
    this.#values = values;
    this.root = root;
  }

  children(node: TreeNode): TreeNode[] {
    if (node.children) return node.children;
    const { first, list } = this.#events.children;
    const frames = this.#events.frame;
    const { own, total } = this.#values;
    const found = new Map<number, Lazy>();
    for (const base of (node as Lazy).bases) {
      for (let at = first[base]!; at < first[base + 1]!; at++) {
        const child = list[at]!;
        const value = total[child]!;
        if (value <= 0) continue;
        const frame = frames[child]!;
        const known = found.get(frame);
        if (known) {
          known.value += value;
          known.own += own[child]!;
          (known.bases as number[]).push(child);
        } else {
          found.set(frame, { frame, value, own: own[child]!, depth: node.depth + 1, parent: node, children: null, bases: [child] });
        }
      }
    }
    node.children = largestFirst([...found.values()]);
    return node.children;
  }
}

/** From callees to callers. */
class Backward implements FlameTree {
  readonly root: Lazy;
  readonly #events: Stacks;
  #known: Int32Array | null = null;

  constructor(events: Stacks, root: Lazy) {
    this.#events = events;
    this.root = root;
  }

  children(node: TreeNode): TreeNode[] {
    return node.children ?? whole(this.expand(node));
  }

  /** The same, in slices: for a root that stands for all there is. */
  *expand(node: TreeNode): Generator<void, TreeNode[]> {
    if (node.children) return node.children;
    const { bases, weights } = node as Lazy;
    const { parent, frame: frames } = this.#events;
    // By frame: its place in the list, from 1. Quicker than a map, and cleared by what was found. The root's is its own: nothing that
    // is done between its slices is mixed up with it.
    const size = this.#events.frames.names.length;
    const known = node.frame < 0 ? new Int32Array(size) : (this.#known ??= new Int32Array(size));
    const list: Lazy[] = [];
    let ended = 0;
    for (let index = 0; index < bases.length; index++) {
      if (node.frame < 0 && index % STEP === 0) yield;
      const base = bases[index]!;
      const weight = weights![index]!;
      // The root stands for the stacks themselves, others for what called them.
      const above = node.frame < 0 ? base : parent[base]!;
      if (above < 0) {
        ended += weight;
        continue;
      }
      const frame = frames[above]!;
      if (known[frame] === 0) {
        list.push({ frame, value: 0, own: 0, depth: node.depth + 1, parent: node, children: null, bases: [], weights: [] });
        known[frame] = list.length;
      }
      const of = list[known[frame]! - 1]!;
      of.value += weight;
      (of.bases as number[]).push(above);
      (of.weights as number[]).push(weight);
    }
    for (const { frame } of list) known[frame] = 0;
    node.own = ended;
    node.children = largestFirst(list);
    return node.children;
  }
}

function lazy(value: number, bases: Lazy["bases"], weights?: Lazy["weights"]): Lazy {
  return { frame: -1, value, own: 0, depth: -1, parent: null, children: null, bases, ...(weights ? { weights } : {}) };
}

export function merged(events: Stacks, values: Values): FlameTree {
  // The outermost ones are the children of the index after the last node.
  return new Forward(events, values, lazy(values.sum, [events.parent.length]));
}

export function* inverted(events: Stacks, values: Values): Generator<void, FlameTree> {
  const bases: number[] = [];
  const weights: number[] = [];
  for (let node = 0; node < values.own.length; node++) {
    if (node % STEP === 0) yield;
    if (values.own[node]! > 0) {
      bases.push(node);
      weights.push(values.own[node]!);
    }
  }
  const tree = new Backward(events, lazy(values.sum, bases, weights));
  yield* tree.expand(tree.root);
  return tree;
}

/** Callers and callees of a function, wherever it is called. Recursive calls count once: where it was called first. */
export function* sandwich(events: Stacks, values: Values, frame: number): Generator<void, { callers: FlameTree; callees: FlameTree; value: number; own: number }> {
  const places: number[] = [];
  const weights: number[] = [];
  let value = 0;
  let own = 0;
  const inside = new Uint8Array(events.parent.length);
  for (let node = 0; node < inside.length; node++) {
    if (node % STEP === 0) yield;
    const above = events.parent[node]!;
    const within = above >= 0 && inside[above] === 1;
    const here = events.frame[node] === frame;
    inside[node] = within || here ? 1 : 0;
    if (here) own += values.own[node]!;
    if (here && !within && values.total[node]! > 0) {
      places.push(node);
      weights.push(values.total[node]!);
      value += values.total[node]!;
    }
  }
  const callers = new Backward(events, lazy(value, places, weights));
  yield* callers.expand(callers.root);
  // As a root of its own, with its frame below all.
  const callees = new Forward(events, values, lazy(value, []));
  callees.root.children = value > 0 ? [{ frame, value, own, depth: 0, parent: callees.root, children: null, bases: places } as Lazy] : [];
  return { callers, callees, value, own };
}

/** Frames from below the root to a node: what the address keeps. */
export function pathOf(node: TreeNode): number[] {
  const path: number[] = [];
  for (let at: TreeNode | null = node; at && at.frame >= 0; at = at.parent) path.push(at.frame);
  return path.reverse();
}

export function follow(tree: FlameTree, path: number[]): TreeNode {
  let at = tree.root;
  for (const frame of path) {
    const next = tree.children(at).find((child) => child.frame === frame);
    if (!next) return at;
    at = next;
  }
  return at;
}

/** Which frames a search finds: words that all are in the name or file, or a regular expression between slashes. */
export function matching(events: Stacks, text: string): Uint8Array | null {
  const query = text.trim();
  if (query === "") return null;
  const { names, files, packages } = events.frames;
  let test: (line: string) => boolean;
  const expression = /^\/(.+)\/$/.exec(query);
  if (expression) {
    try {
      const pattern = new RegExp(expression[1]!, "i");
      test = (line) => pattern.test(line);
    } catch {
      test = () => false;
    }
  } else {
    const words = query.toLowerCase().split(/\s+/);
    test = (line) => words.every((word) => line.includes(word));
  }
  const found = new Uint8Array(names.length);
  for (let frame = 0; frame < found.length; frame++) {
    const line = `${names[frame]} ${files[frame] ?? ""} ${packages[frame] ?? ""}`;
    found[frame] = test(expression ? line : line.toLowerCase()) ? 1 : 0;
  }
  return found;
}

/** Sum of all stacks that have a frame that matches, each once. */
export function shareOf(events: Stacks, values: Values, found: Uint8Array): number {
  const inside = new Uint8Array(events.parent.length);
  let sum = 0;
  for (let node = 0; node < inside.length; node++) {
    const above = events.parent[node]!;
    inside[node] = found[events.frame[node]!] === 1 || (above >= 0 && inside[above] === 1) ? 1 : 0;
    if (inside[node] === 1) sum += values.own[node]!;
  }
  return sum;
}
