// Events and stacks, as typed arrays; figures of a metric over a span of time.
import { Columns, FAMILIES, type FamilyColumns, type FamilyName, type RawEvents, type Side, type SumColumns } from "./data";
import { STEP, whole } from "./slices";

export class Family {
  readonly length: number;
  readonly thread: Int32Array;
  readonly at: Float64Array;
  readonly duration: Float64Array;
  readonly own: Float64Array;
  readonly detail: Float64Array;
  readonly node: Int32Array;

  constructor(columns: Columns, raw: FamilyColumns) {
    this.length = raw.at.count;
    this.thread = columns.small(raw.thread);
    this.at = columns.numbers(raw.at);
    this.duration = columns.numbers(raw.duration);
    this.detail = columns.numbers(raw.detail);
    this.node = columns.small(raw.node);
    // It is written as what is nested, which is mostly nothing.
    this.own = columns.numbers(raw.own);
    for (let index = 0; index < this.length; index++) {
      const duration = this.duration[index]!;
      this.own[index] = duration < 0 ? -1 : duration - this.own[index]!;
    }
  }

  /** Of each thread: where its events begin and end. They are sorted by thread, then time. */
  ranges(): Map<number, [number, number]> {
    const ranges = new Map<number, [number, number]>();
    let begin = 0;
    for (let index = 1; index <= this.length; index++) {
      if (index === this.length || this.thread[index] !== this.thread[begin]) {
        if (index > begin) ranges.set(this.thread[begin]!, [begin, index]);
        begin = index;
      }
    }
    return ranges;
  }
}

/** Which events lie within another one of their thread; it may have begun at any time before. An untimed one has nothing in it. */
export function nestedIn({ thread, at, duration, length }: Pick<Family, "thread" | "at" | "duration" | "length">): Uint8Array {
  const nested = new Uint8Array(length);
  // By thread, then time, the longest first: what is around comes before what is in it.
  let end = -Infinity;
  for (let index = 0; index < length; index++) {
    if (index > 0 && thread[index] !== thread[index - 1]) end = -Infinity;
    nested[index] = at[index]! < end ? 1 : 0;
    if (duration[index]! >= 0) end = Math.max(end, at[index]! + duration[index]!);
  }
  return nested;
}

export interface Sums {
  thread: Int32Array;
  calls: Float64Array;
  own: Float64Array;
  node: Int32Array;
}

function sums(columns: Columns, raw: SumColumns): Sums {
  return {
    thread: columns.small(raw.thread),
    calls: columns.numbers(raw.calls),
    own: columns.numbers(raw.own),
    node: columns.small(raw.node),
  };
}

/** Frames: functions, callbacks, files. */
export interface Frames {
  names: string[];
  kinds: string[];
  kindNames: Map<string, string>;
  files: (string | null)[];
  lines: Int32Array;
  columns: Int32Array;
  /** What Node loaded, which is another file where there is a source map; of a bundle the file that it was made of, null for what the bundler added. */
  scripts: (string | null)[];
  packages: (string | null)[];
}

export class Events {
  readonly raw: RawEvents;
  readonly frames: Frames;
  readonly parent: Int32Array;
  readonly frame: Int32Array;
  readonly threads: RawEvents["threads"];
  readonly #columns: Columns;
  readonly #families = new Map<FamilyName, Family>();
  #crossingSums: Sums | null = null;
  #serializationSums: Sums | null = null;
  #children: { first: Int32Array; list: Int32Array } | null = null;
  #collects: Uint8Array | null = null;

  constructor(columns: Columns, raw: RawEvents) {
    this.#columns = columns;
    this.raw = raw;
    this.threads = raw.threads;
    const text = (id: number) => (id < 0 ? null : (raw.strings[id] ?? null));
    this.frames = {
      names: Array.from(columns.small(raw.frames.name), (id) => text(id) ?? ""),
      kinds: Array.from(columns.small(raw.frames.kind), (id) => raw.kinds[id]?.[0] ?? "unknown"),
      kindNames: new Map(raw.kinds),
      files: Array.from(columns.small(raw.frames.file), text),
      lines: columns.small(raw.frames.line),
      columns: columns.small(raw.frames.column),
      scripts: Array.from(columns.small(raw.frames.script), text),
      packages: Array.from(columns.small(raw.frames.package), text),
    };
    this.parent = columns.small(raw.nodes.parent);
    this.frame = columns.small(raw.nodes.frame);
  }

  family(name: FamilyName): Family {
    let family = this.#families.get(name);
    if (!family) {
      family = new Family(this.#columns, this.raw[name]);
      this.#families.set(name, family);
    }
    return family;
  }

  /** What reading a family takes, in pieces, for when there is nothing else to do. */
  pieces(name: FamilyName): (() => void)[] {
    const columns = Object.values(this.raw[name]);
    const unless = (work: () => void) => () => {
      if (!this.#families.has(name)) work();
    };
    return [...columns.map((column) => unless(() => this.#columns.readAhead(column))), unless(() => void this.family(name))];
  }

  has(name: FamilyName): boolean {
    return this.raw[name].at.count > 0;
  }

  get crossingSums(): Sums {
    return (this.#crossingSums ??= sums(this.#columns, this.raw.crossing_sums));
  }

  get serializationSums(): Sums {
    return (this.#serializationSums ??= sums(this.#columns, this.raw.serialization_sums));
  }

  /** Callees of each node, in one list; the outermost ones under the last index. */
  get children(): { first: Int32Array; list: Int32Array } {
    return (this.#children ??= childrenOf(this.parent));
  }

  /** Nodes that have garbage collection on their stack. */
  get collects(): Uint8Array {
    if (!this.#collects) {
      const collects = new Uint8Array(this.parent.length);
      for (let node = 0; node < collects.length; node++) {
        const parent = this.parent[node]!;
        const here = this.frames.kinds[this.frame[node]!] === "gc";
        collects[node] = here || (parent >= 0 && collects[parent] === 1) ? 1 : 0;
      }
      this.#collects = collects;
    }
    return this.#collects;
  }

  /** Frames from the outermost to the innermost. */
  path(node: number): number[] {
    const path: number[] = [];
    for (let at = node; at >= 0; at = this.parent[at]!) path.push(at);
    return path.reverse();
  }
}

export function childrenOf(parent: Int32Array): { first: Int32Array; list: Int32Array } {
  const size = parent.length;
  const first = new Int32Array(size + 2);
  const slot = (node: number) => (parent[node]! < 0 ? size : parent[node]!);
  for (let node = 0; node < size; node++) first[slot(node) + 1]!++;
  for (let index = 1; index < first.length; index++) first[index]! += first[index - 1]!;
  const next = first.slice();
  const list = new Int32Array(size);
  for (let node = 0; node < size; node++) list[next[slot(node)]!++] = node;
  return { first, list };
}

export interface Metric {
  name: string;
  title: string;
  unit: "ns" | "count";
  things: string;
  families: FamilyName[];
  /** Threads that run JavaScript only: the waits of a thread pool would drown all else. */
  javascript?: true;
}

/** As nodeprof flame has them. */
export const METRICS: Metric[] = [
  { name: "cpu", title: "CPU time", unit: "ns", things: "", families: ["samples"] },
  { name: "wall", title: "On and off the CPU", unit: "ns", things: "", families: ["samples", "waits"], javascript: true },
  { name: "off-cpu", title: "Off the CPU", unit: "ns", things: "", families: ["waits"], javascript: true },
  { name: "crossings", title: "Crossings to C++", unit: "count", things: "calls", families: ["crossings"] },
  { name: "crossing-time", title: "Time in crossings", unit: "ns", things: "", families: ["crossings"] },
  { name: "serialization", title: "Serialization", unit: "ns", things: "", families: ["serializations"] },
  { name: "files", title: "File operations", unit: "count", things: "system calls", families: ["files"] },
  { name: "file-time", title: "Time in files", unit: "ns", things: "", families: ["files"] },
  { name: "package-json", title: "package.json lookups", unit: "count", things: "lookups", families: ["lookups"] },
  { name: "compile", title: "Compilation", unit: "ns", things: "", families: ["compilations"] },
];

export function metricOf(name: string): Metric {
  return METRICS.find((metric) => metric.name === name) ?? METRICS[0]!;
}

export function offers(events: Events, metric: Metric): boolean {
  if (metric.families.some((family) => events.has(family))) return true;
  if (metric.families.includes("crossings")) return events.raw.crossing_sums.node.count > 0;
  return metric.families.includes("serializations") && events.raw.serialization_sums.node.count > 0;
}

/** Calls `each` with the value of every event that counts, family by family; those of a family by thread, then time. */
export function* forEach(
  events: Events,
  metric: Metric,
  span: [number, number] | null,
  each: (node: number, value: number, at: number, thread: number) => void,
): Generator<void, void> {
  const threads = events.threads;
  for (const name of metric.families) {
    const family = events.family(name);
    yield;
    const { at, own, node, thread, length } = family;
    for (let from = 0; from < length; from += STEP) {
      const until = Math.min(length, from + STEP);
      for (let index = from; index < until; index++) {
        let value = metric.unit === "count" ? 1 : own[index]!;
        if (value <= 0) continue;
        let start = at[index]!;
        if (span && name === "waits") {
          // They are cut at the ends; all else counts where it begins.
          const stop = Math.min(start + value, span[1]);
          start = Math.max(start, span[0]);
          value = stop - start;
          if (value <= 0) continue;
        } else if (span && (start < span[0] || start >= span[1])) continue;
        if (metric.javascript && !isMain(threads[thread[index]!])) continue;
        each(node[index]!, value, start, thread[index]!);
      }
      yield;
    }
  }
}

function isMain(thread: { pid: number; tid: number } | undefined): boolean {
  return thread !== undefined && thread.pid === thread.tid;
}

/** Values of a metric by node: own, and with callees. */
export interface Values {
  metric: Metric;
  own: Float64Array;
  total: Float64Array;
  sum: number;
  /** Calls without an instant, which a span of time and an order of time leave out. */
  summed: number;
}

export function* valuesOf(events: Events, metric: Metric, span: [number, number] | null): Generator<void, Values> {
  const own = new Float64Array(events.parent.length);
  yield* forEach(events, metric, span, (node, value) => {
    own[node]! += value;
  });
  let summed = 0;
  const add = (sums: Sums) => {
    for (let index = 0; index < sums.node.length; index++) {
      summed += sums.calls[index]!;
      if (!span) own[sums.node[index]!]! += metric.unit === "count" ? sums.calls[index]! : sums.own[index]!;
    }
  };
  if (metric.families.includes("crossings")) add(events.crossingSums);
  if (metric.families.includes("serializations")) add(events.serializationSums);
  yield;
  return { metric, own, ...(yield* totalsIn(own, events.parent)), summed };
}

/** How many calls a graph does not show, and what leaves them out. */
export function leftOut({ summed }: Pick<Values, "summed">, span: [number, number] | null, layout: string): { calls: number; of: string } | null {
  if (summed === 0) return null;
  if (span) return { calls: summed, of: "the span" };
  return layout === "time" ? { calls: summed, of: "the order of time" } : null;
}

export function* totalsIn(own: Float64Array, parent: Int32Array): Generator<void, { total: Float64Array; sum: number }> {
  const total = own.slice();
  let sum = 0;
  // Callers come before callees.
  for (let until = total.length; until > 0; until -= STEP) {
    for (let node = until - 1; node >= Math.max(0, until - STEP); node--) {
      const above = parent[node]!;
      if (above >= 0) total[above]! += total[node]!;
      else sum += total[node]!;
    }
    yield;
  }
  return { total, sum };
}

export function totals(own: Float64Array, parent: Int32Array): { total: Float64Array; sum: number } {
  return whole(totalsIn(own, parent));
}

const known = new WeakMap<Side, Events>();

export function eventsOf(side: Side, columns: Columns): Events | null {
  if (!side.events) return null;
  let events = known.get(side);
  if (!events) {
    events = new Events(columns, side.events);
    known.set(side, events);
  }
  return events;
}

export function anyEvents(events: Events): boolean {
  return FAMILIES.some((name) => events.has(name));
}
