// What the page reads: see flamegraphs/src/web/mod.rs, which writes it, and docs/json.md for the figures.

import { shortCommits } from "./format";

export const FORMAT = 1;

/** Null: not recorded. */
export type Figure = number | null;

export interface Column {
  at: number;
  count: number;
  form: "integers" | "differences" | "floats";
}

export interface Costs {
  crossings: Figure;
  crossings_self_ns: Figure;
  package_json_lookups: Figure;
  stats: Figure;
  opens: Figure;
  reads: Figure;
  bytes_read: Figure;
  files_ns: Figure;
  serializations: Figure;
  serialization_bytes: Figure;
  serialization_ns: Figure;
  samples: Figure;
  cpu_ns: Figure;
  blocked_ns: Figure;
}

export interface Module extends Costs {
  id: number;
  path: string;
  query: string | null;
  kind: string;
  internal: boolean;
  pid: number;
  thread: number;
  package: string | null;
  package_version: string | null;
  package_directory: string | null;
  package_kind: string;
  requirer: string | null;
  requirer_id: number | null;
  main_script: boolean;
  loads: number;
  start_ns: number | null;
  end_earliest_ns: number | null;
  end_latest_ns: number | null;
  resolve_ns: number;
  read_ns: number;
  compile_ns: number;
  execute_ns: number;
  callback_ns: number;
  vain_ns: number;
  self_ns: number;
  uncertain_ns: number;
  total_ns: number;
  loading: Costs;
}

export interface Package extends Costs {
  name: string | null;
  version: string | null;
  directory: string | null;
  kind: string;
  modules: number;
  resolve_ns: number;
  read_ns: number;
  compile_ns: number;
  execute_ns: number;
  self_ns: number;
  uncertain_ns: number;
  total_ns: number;
  loading: Costs;
}

/** A part of a bundle: of a script that a bundler made of several files, as its source map tells. */
interface Part extends Costs {
  bundle: string;
  pid: number;
  cpu_total_ns: Figure;
}

export interface BundledPackage extends Part {
  name: string | null;
  directory: string | null;
  files: number;
}

export interface Source extends Part {
  path: string;
  package: string | null;
  package_directory: string | null;
}

export interface Phase {
  name: string;
  start_ns: number;
  end_ns: number;
  crossings: Figure;
  crossings_self_ns: Figure;
  lookups: Figure;
  stats: Figure;
  opens: Figure;
  reads: Figure;
  files_ns: Figure;
  serializations: Figure;
  serialization_ns: Figure;
  compilations: Figure;
  compile_ns: number;
}

export interface Callback {
  binding: string;
  function: string;
  kind: string;
  calls: number;
  timed_calls: number;
  unfinished: number;
  total_ns: number | null;
  self_ns: number | null;
  total_corrected_ns: number | null;
}

export interface PackageJsonFile {
  path: string;
  lookups: Figure;
  opens: Figure;
  opens_failed: Figure;
  reads: Figure;
  stats: Figure;
  bytes: Figure;
  total_ns: Figure;
  found: boolean | null;
}

export interface FileOperation {
  calls: Figure;
  failed: Figure;
  total_ns: Figure;
}

export interface PathRow {
  path: string;
  operation: string;
  calls: number;
  failed: number;
  bytes: number;
  total_ns: Figure;
}

export interface Script {
  path: string;
  unit: string;
  cached: boolean;
  compilations: Figure;
  total_ns: number | null;
  self_ns: number | null;
}

export interface Process {
  pid: number;
  parent_pid: number | null;
  main: boolean;
  command: string[];
  path: string | null;
  node: string | null;
  exit_status: number | null;
  signal: number | null;
  user_ns: number | null;
  system_ns: number | null;
  max_rss_bytes: number | null;
  start_ns: number;
  end_ns: number | null;
  crossings: Figure;
  lookups: Figure;
  file_operations: Figure;
  incomplete: string | null;
}

export interface Run {
  command: string[];
  directory: string;
  labels: Record<string, string>;
  started_unix_ns: number;
  ended_by: string;
  mode: string;
  exit_status: number | null;
  signal: number | null;
  node: { path: string; version: string | null; v8: string | null; arch: string } | null;
  milestones: Record<string, number | null>;
  start_to_exec_ns: number | null;
  phases: Phase[];
  time: {
    wall_ns: number;
    user_ns: number | null;
    system_ns: number | null;
    max_rss_bytes: number | null;
    private_dirty_bytes: number | null;
  };
  crossings: {
    total: Figure;
    by_kind: Record<string, Figure>;
    timed_calls: Figure;
    unfinished: Figure;
    self_ns: Figure;
    callbacks: Callback[];
    to_js: Callback[];
  };
  package_json: {
    lookups: Figure;
    repeated_lookups: Figure;
    opens: Figure;
    opens_failed: Figure;
    repeated_opens: Figure;
    reads: Figure;
    stats: Figure;
    stats_failed: Figure;
    bytes: Figure;
    total_ns: Figure;
    files: PackageJsonFile[];
  };
  files: Record<"stat" | "open" | "read" | "readlink" | "access" | "close", FileOperation> & {
    bytes_read: Figure;
    paths: Figure;
    slowest: PathRow[];
    most_repeated: PathRow[];
  };
  serialization: {
    calls: Figure;
    bytes: Figure;
    total_ns: Figure;
    functions: { function: string; calls: Figure; bytes: Figure; total_ns: Figure; self_ns: Figure }[];
    callbacks: {
      binding: string | null;
      function: string | null;
      calls: Figure;
      bytes: Figure;
      total_ns: Figure;
      self_ns: Figure;
    }[];
  };
  compile: { compilations: Figure; cached: Figure; total_ns: Figure; scripts: Script[] };
  modules: Module[];
  packages: Package[];
  bundled_packages: BundledPackage[];
  sources: Source[];
  outside: ({ bucket: string; time_ns: number } & Costs)[];
  attribution: { unattributed_crossings_percent: number | null; unattributed_samples_percent: number | null };
  samples: { count: Figure; frequency_hz: number | null; cpu_ns: Figure; complete_stacks_percent: number | null };
  processes: Process[];
  families: { name: string; state: string; reason: string | null }[];
  losses: Record<string, number>;
  overhead: { probe_hits: number; ns_per_hit: number; estimated_ns: number; setup_ns: number; attach_ns: number };
}

export interface FamilyColumns {
  thread: Column;
  at: Column;
  duration: Column;
  own: Column;
  detail: Column;
  node: Column;
}

export interface SumColumns {
  thread: Column;
  calls: Column;
  own: Column;
  node: Column;
}

export const FAMILIES = [
  "crossings",
  "files",
  "lookups",
  "serializations",
  "compilations",
  "samples",
  "waits",
] as const;
export type FamilyName = (typeof FAMILIES)[number];

export interface RawEvents extends Record<FamilyName, FamilyColumns> {
  threads: { pid: number; tid: number; name: string; command: string; javascript: boolean }[];
  kinds: [string, string][];
  strings: string[];
  frames: Record<"name" | "kind" | "file" | "line" | "column" | "script" | "package", Column>;
  nodes: { parent: Column; frame: Column };
  crossing_sums: SumColumns;
  serialization_sums: SumColumns;
  steps: { thread: number; name: string; at: number; duration: number | null }[];
  start_to_origin_ns: number;
}

/** A run of the store. */
export interface Start {
  id: number;
  command: string[];
  started_unix_ns: number;
  duration_ns: number;
  /** From the exec to the start of the event loop, of programs that ran on. */
  loop_start_ns: number | null;
  mode: string;
  node_version: string | null;
  thinned: boolean;
  crossings: number;
  lookups: number;
  labels: Record<string, string>;
  /** How it ended, if not as expected. */
  outcome: string;
}

/** A figure along the values of a label. */
export interface Trend {
  figure: string;
  unit: "ns" | "bytes" | "percent" | "count";
  /** What a change must exceed: chance of single runs, or the machine, which differs from point to point. */
  noise: "runs" | "machine";
  by: string;
  /** Each with its runs, the most frequent first. */
  programs: [string, number][];
  /** Runs with gaps, whose counts are too low. */
  left_out: number;
  /** Runs that failed, or ended otherwise than most that did not. */
  ended_otherwise: number;
  /** No run came to a good end. */
  all_failed: boolean;
  /** Of what depends on it: how and where the runs were recorded, the most frequent first. */
  settings: { name: string; runs: number; points: number }[];
  points: {
    value: string;
    runs: number;
    median: number | null;
    minimum: number | null;
    maximum: number | null;
    first_unix_ns: number;
    change: { before: number; after: number; exact: boolean; p: number | null } | null;
  }[];
}

export interface Measured {
  name: string;
  command: string;
  bare: boolean;
  wall: number[];
  user: number[];
  system: number[];
  max_rss: number[];
  uss: number[];
}

export interface Side {
  name: string;
  file: string;
  profile: { schema: number; runs: Run[] };
  shown: number;
  number: number;
  runs: number;
  /** What the shown run lacks, in whole sentences. */
  losses: string[];
  measured: Measured[];
  events?: RawEvents;
}

export interface Spread {
  runs: number;
  minimum: number;
  median: number;
  mean: number;
  maximum: number;
  constant: boolean;
}

export interface Change {
  figure: string;
  list: string;
  name: string;
  field: string;
  unit: string;
  base: Spread | null;
  head: Spread | null;
  difference: number;
  certainty: string;
  p: number | null;
  adjusted_p: number | null;
}

export interface Cause {
  kind: string;
  name: string;
  presence: string | null;
  base_ns: number;
  head_ns: number;
  change_ns: number;
  share: number | null;
  certainty: string;
  adjusted_p: number | null;
  sentence: string;
}

export interface Diff {
  base: SideSummary;
  head: SideSummary;
  statements: { kind: string; text: string }[];
  verdict: { answer: string; sentence: string; rule: string; bare: boolean };
  times: {
    figure: string;
    unit: string;
    base: { mean: number; median: number } | null;
    head: { mean: number; median: number } | null;
    percent: number | null;
    stars: string;
    welch: { p: number } | null;
  }[];
  causes: Cause[];
  counts: Change[];
  durations: Change[];
  modules: { added: string[]; removed: string[] };
  builtins: { now_compiled: string[]; no_longer_compiled: string[] };
  packages: { added: string[]; removed: string[] };
  versions: { package: string; base: string[]; head: string[] }[];
  lookups: { path: string; base: number; head: number; certainty: string }[];
}

export interface SideSummary {
  name: string;
  command: string[];
  programs: number;
  node: string | null;
  probed_runs: number;
  bare_runs: number;
  failed_runs: number;
}

export interface RawDifferential {
  metric: string;
  title: string;
  unit: string;
  runs: [number, number];
  notes: string[];
  kinds: [string, string][];
  names: string[];
  files: (string | null)[];
  lines: (number | null)[];
  frame_kinds: number[];
  frame: Column;
  depth: Column;
  base_own: Column;
  head_own: Column;
  known: Column;
  adjusted_p: Column;
}

export interface Listed {
  name: string;
  command: string;
  node: string | null;
  runs: number;
  bytes: number;
  changed_unix_ms: number;
  time_ns: number | null;
  error: string | null;
}

export interface Data {
  format: number;
  generator: string;
  kind: "report" | "diff" | "list" | "starts";
  sides?: Side[];
  diff?: Diff;
  differentials?: RawDifferential[];
  missing?: string[];
  list?: { folder: string; recordings: Listed[] };
  starts?: {
    store: string;
    /** Null: it may not be known. */
    total: number | null;
    listed: number;
    runs: Start[];
    /** The most frequent first. */
    labels: [key: string, value: string, runs: number][];
    /** So many rarer ones are not among them. */
    labels_left_out: number;
    trend: Trend | null;
    trend_error: string | null;
  };
}

export class Columns {
  readonly #bytes: Uint8Array;
  /** Read ahead, by where they begin. */
  readonly #ahead = new Map<number, Float64Array>();

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** Reads a column that will be asked for. */
  readAhead(column: Column): void {
    if (column.count > 0) this.#ahead.set(column.at, this.numbers(column));
  }

  /** The caller may change what it gets. */
  numbers(column: Column): Float64Array {
    const { at, count, form } = column;
    const ahead = this.#ahead.get(at);
    if (ahead && count > 0) {
      this.#ahead.delete(at);
      return ahead;
    }
    const bytes = this.#bytes;
    if (form === "floats") return new Float64Array(bytes.slice(at, at + 8 * count).buffer);
    const numbers = new Float64Array(count);
    let position = at;
    let last = 0;
    for (let index = 0; index < count; index++) {
      let byte = bytes[position++]!;
      let raw = byte & 0x7f;
      let scale = 128;
      while (byte >= 0x80) {
        byte = bytes[position++]!;
        // Not by shifts: these know 32 bits only.
        raw += (byte & 0x7f) * scale;
        scale *= 128;
      }
      let number = raw % 2 === 0 ? raw / 2 : -(raw + 1) / 2;
      if (form === "differences") {
        number += last;
        last = number;
      }
      numbers[index] = number;
    }
    return numbers;
  }

  small(column: Column): Int32Array {
    return Int32Array.from(this.numbers(column));
  }
}

/** Decodes what stands in the page: base64 of gzip of the length of the JSON, the JSON, and columns. */
export async function read(text: string): Promise<{ data: Data; columns: Columns }> {
  const compressed = decode(text.trim());
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const data = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))) as Data;
  if (data.format !== FORMAT) {
    throw new Error(`found: data of format ${data.format}; needed: format ${FORMAT}, of the same nodeprof as this page`);
  }
  shortenNames(data);
  return { data, columns: new Columns(bytes.subarray(4 + length)) };
}

/** Sides that are named by whole commits are called by some digits of them: of 40 in each heading nobody reads more. */
export function shortenNames(data: Pick<Data, "sides" | "diff" | "differentials" | "missing">): void {
  for (const side of data.sides ?? []) {
    for (const named of [side, ...side.measured]) named.name = shortCommits(named.name);
  }
  for (const list of [data.missing ?? [], ...(data.differentials ?? []).map((one) => one.notes)]) list.splice(0, list.length, ...list.map(shortCommits));
  const { diff } = data;
  if (!diff) return;
  for (const side of [diff.base, diff.head]) side.name = shortCommits(side.name);
  for (const said of [diff.verdict, ...diff.causes]) said.sentence = shortCommits(said.sentence);
  for (const statement of diff.statements) statement.text = shortCommits(statement.text);
}

function decode(text: string): Uint8Array<ArrayBuffer> {
  const known = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };
  if (known.fromBase64) return known.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  return bytes;
}
