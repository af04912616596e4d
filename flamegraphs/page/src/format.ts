// Numbers and paths for people; null is not recorded. Nothing here is added up again: tables keep the exact figures beside the text.

const digits = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** `1,234` */
export function count(value: number | null): string {
  if (value === null) return "–";
  return Number.isInteger(value) ? digits.format(value) : value.toFixed(value < 10 ? 2 : 1);
}

function significant(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** Nanoseconds as `12.3 ms`. */
export function time(ns: number | null): string {
  if (ns === null) return "–";
  const size = Math.abs(ns);
  if (size < 0.5) return "0";
  if (size < 999.5) return `${Math.round(ns)} ns`;
  if (size < 999_500) return `${significant(ns / 1e3)} µs`;
  if (size < 999.5e6) return `${significant(ns / 1e6)} ms`;
  return `${significant(ns / 1e9)} s`;
}

/** A time and by how much it can be wrong either way. */
export function uncertainTime(ns: number, uncertain: number): string {
  return uncertain > 0 ? `${time(ns)} ± ${time(uncertain)}` : time(ns);
}

/** Of ticks of one axis, in one unit, with as many digits as tell them apart. */
export function tickLabels(ticks: number[], of: "ns" | "bytes" = "ns"): (value: number) => string {
  const step = ticks.length > 1 ? Math.abs(ticks[1]! - ticks[0]!) : Math.abs(ticks[0] ?? 0);
  const size = Math.max(...ticks.map(Math.abs), 0);
  const units = of === "ns" ? ["ns", "µs", "ms", "s"] : ["B", "kB", "MB", "GB"];
  const power = size >= 1e9 ? 3 : size >= 1e6 ? 2 : size >= 1e3 ? 1 : 0;
  const [unit, scale] = [units[power]!, 1e3 ** power];
  const decimals = step > 0 ? Math.min(9, Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9))) : 0;
  return (value) => (value === 0 ? "0" : `${(value / scale).toFixed(decimals)} ${unit}`);
}

export function bytes(value: number | null): string {
  if (value === null) return "–";
  const size = Math.abs(value);
  if (size < 1000) return `${count(value)} B`;
  for (const [unit, scale] of [["kB", 1e3], ["MB", 1e6], ["GB", 1e9]] as const) {
    if (size < scale * 999.5) return `${significant(value / scale)} ${unit}`;
  }
  return `${significant(value / 1e12)} TB`;
}

export function percent(part: number, whole: number): string {
  if (!(whole > 0)) return "";
  const share = (part / whole) * 100;
  if (share > 0 && share < 0.1) return "<0.1%";
  return `${share >= 99.95 ? share.toFixed(0) : share.toFixed(1)}%`;
}

/** `1 lookup`, `2 lookups`. */
export function counted(value: number | null, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export type Unit = "ns" | "bytes" | "count" | "percent" | "text";

export function inUnit(value: number, unit: string): string {
  switch (unit) {
    case "ns":
      return time(value);
    case "s":
      return time(value * 1e9);
    case "bytes":
      return bytes(value);
    case "percent":
      return `${value.toFixed(1)}%`;
    default:
      return count(value);
  }
}

/** A path from the innermost node_modules on, with the outermost package around it, or from the working directory. */
export function shortPath(path: string, directory: string): string {
  const plain = path.startsWith("file://") ? path.slice(7) : path;
  const parts = plain.split("/node_modules/");
  if (parts.length > 1) {
    const last = parts.at(-1)!;
    // Another copy of a package, inside of one: or two would look the same. Package managers' own stores say nothing.
    const outer = parts.length > 2 ? /^(@[^/]+\/)?[^/.][^/]*/.exec(parts[1]!)?.[0] : undefined;
    return outer ? `${outer}/…/${last}` : last;
  }
  if (directory !== "" && plain.startsWith(`${directory}/`)) return plain.slice(directory.length + 1);
  return path;
}

const PHASES: Record<string, string> = {
  before_exec: "before exec",
  process: "exec",
  platform: "platform",
  v8: "V8",
  bootstrap: "bootstrap",
  main_script: "main script",
  loop: "event loop",
  teardown: "teardown",
  after_exec: "after exec",
  program: "program",
  whole: "whole run",
};

export function phaseName(name: string): string {
  return name.split("+").map((part) => PHASES[part] ?? part).join(" + ");
}

/** Program and arguments in short: paths by their last part. */
export function commandLine(words: string[]): string {
  return words
    .map((word, index) => {
      const last = word.split("/").filter(Boolean).at(-1) ?? word;
      if (index === 0 || word.startsWith("/")) return last;
      // A long way to a file says less than the figures beside it.
      return /^[^\s'"]+\/[^\s'"]+$/.test(word) && word.length > 32 && !word.startsWith("-") ? `…/${last}` : word;
    })
    .map((word) => (/^[\w@%+=:,./~…-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`))
    .join(" ");
}

const BUCKETS: Record<string, string> = {
  before_main: "before node::Start",
  bootstrap: "Node’s bootstrap",
  loader: "Node’s loaders, for nobody",
  async: "Node’s own callbacks",
  uncaught_exception: "uncaught exceptions",
  event_loop: "event loop and platform",
  gc: "garbage collection",
  teardown: "teardown",
  helper_threads: "helper threads",
  other_programs: "other programs",
  unseen: "JavaScript in which nothing was seen",
  no_stack: "stack not known",
};

export function bucketName(bucket: string): string {
  return BUCKETS[bucket] ?? bucket;
}

/** With a large first letter, unless that is a label's, which has its name as it is. */
export function capital(text: string): string {
  if (/^[^\s=]+=/.test(text)) return text;
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Whole commits as 12 digits of them, which nodeprof takes, too. */
export function shortCommits(text: string): string {
  return text.replace(/\b([0-9a-f]{12})(?:[0-9a-f]{28}|[0-9a-f]{52})\b/g, "$1");
}
