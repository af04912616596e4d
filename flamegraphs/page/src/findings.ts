// What a person should know first: where the start went, in sentences, the largest part first.
import type { Module, Package, Run } from "./data";
import { bucketName, commandLine, count, counted, percent, phaseName, shortPath, time } from "./format";

export interface Finding {
  kind: string;
  /** Short, for the list's left side. */
  figure: string;
  sentence: string;
  /** What to do about it, if that is known. */
  advice?: string;
  /** Where it is shown. */
  view: Record<string, string>;
  /** Share of the start that it explains, 0 to 1. */
  share: number;
  /** By which it is ordered, where that is not its share. */
  rank?: number;
}

/** From the command to the event loop, or to the end where that was never reached. */
export function startup(run: Run): { ns: number; reached: boolean } {
  const loop = run.milestones.loop_start;
  if (loop !== null && loop !== undefined) return { ns: loop + (run.start_to_exec_ns ?? 0), reached: true };
  return { ns: run.time.wall_ns, reached: false };
}

/** How it ended, and when. */
export function verdict(run: Run): string {
  const command = commandLine(run.command);
  const wall = time(run.time.wall_ns);
  const { ns, reached } = startup(run);
  const ready = reached ? `was ready for its event loop ${time(ns)} after the command began` : "";
  const end =
    run.signal !== null
      ? `was killed by signal ${run.signal} after ${wall}`
      : run.exit_status === 0
        ? `ended after ${wall}`
        : run.exit_status !== null
          ? `failed with exit status ${run.exit_status} after ${wall}`
          : `was traced for ${wall}`;
  return `${command || "The command"} ${[ready, end].filter(Boolean).join(" and ")}.`;
}

export function packageName(of: { name: string | null; version?: string | null; directory: string | null; kind: string }): string {
  if (of.kind === "node") return "node";
  if (of.name === null) return of.directory ?? "(program)";
  return of.version ? `${of.name} ${of.version}` : of.name;
}

function isCode(module: Module): boolean {
  return module.kind !== "builtin" && !module.internal;
}

/** Folders below a package.json that was found, which were asked for one in vain. */
export function walks(run: Run): { root: string; vain: number; lookups: number; deepest: number }[] {
  const files = run.package_json.files;
  const folder = (path: string) => path.slice(0, Math.max(0, path.lastIndexOf("/")));
  const found = new Set(files.filter((file) => file.found === true).map((file) => folder(file.path)));
  const roots = new Map<string, { root: string; vain: number; lookups: number; deepest: number }>();
  for (const file of files) {
    if (file.found !== false) continue;
    let at = folder(file.path);
    let depth = 0;
    while (at !== "" && !found.has(at)) {
      at = folder(at);
      depth++;
    }
    const root = roots.get(at) ?? { root: at, vain: 0, lookups: 0, deepest: 0 };
    root.vain++;
    root.lookups += Math.max(file.lookups ?? 0, file.opens ?? 0);
    root.deepest = Math.max(root.deepest, depth);
    roots.set(at, root);
  }
  return [...roots.values()].sort((a, b) => b.vain - a.vain || a.root.localeCompare(b.root));
}

interface Span {
  ns: number;
  name: string;
}

/** What the times of modules are a share of, which of them count, and with how much. */
function ofModules(run: Run): { span: Span; counts: (module: Module) => boolean; own: (module: Module) => number } {
  const main = run.processes.find((process) => process.main);
  const loop = run.milestones.loop_start ?? null;
  // Only the main thread's: others take their time beside it.
  const ofMain = (module: Module) => !main || (module.pid === main.pid && module.thread === main.pid);
  const script = run.modules.find((module) => module.main_script && ofMain(module));
  // Node may begin its event loop before an ES module runs: then the program itself comes after the start.
  if (loop !== null && script?.kind === "esm" && (script.end_latest_ns ?? Infinity) > loop) {
    return { span: { ns: run.time.wall_ns, name: "run" }, counts: ofMain, own: (module) => module.self_ns };
  }
  return {
    span: { ns: startup(run).ns, name: "start" },
    counts: (module) => ofMain(module) && (loop === null || module.start_ns === null || module.start_ns < loop),
    own: (module) => Math.max(0, module.self_ns - module.callback_ns),
  };
}

/** What figures of the whole run and of all its processes are a share of: the start, if there is little else. */
function ofAll(run: Run): Span {
  const { ns, reached } = startup(run);
  const others = run.processes.some((process) => !process.main && process.node);
  if (others || (reached && run.time.wall_ns > 1.5 * ns)) return { ns: run.time.wall_ns, name: "run" };
  return { ns, name: "start" };
}

/** What is worth a sentence: at least this share of the start. */
const LEAST = 0.04;
const MOST = 6;

export function findings(run: Run): Finding[] {
  const { ns: whole } = startup(run);
  if (!(whole > 0)) return [];
  const list: Finding[] = [];
  const add = (finding: Finding) => {
    if (Number.isFinite(finding.share)) list.push(finding);
  };
  const share = (ns: number, span: Span) => `${percent(Math.min(ns, span.ns), span.ns)} of the ${span.name}`;
  const all = ofAll(run);

  const { span, counts, own } = ofModules(run);
  const ofPackage = (one: Package) => run.modules.filter((module) => module.package_directory === one.directory && isCode(module) && counts(module));
  const sum = (modules: Module[], of: (module: Module) => number) => modules.reduce((sum, module) => sum + of(module), 0);
  const packages = run.packages.filter((one: Package) => one.kind !== "node").map((one) => {
    const modules = ofPackage(one);
    return { one, modules, ns: sum(modules, own) };
  });
  const most = packages.reduce<(typeof packages)[0] | null>((best, one) => (best === null || one.ns > best.ns ? one : best), null);
  if (most && most.ns > 0) {
    const { one: top, modules, ns } = most;
    const name = packageName(top);
    const slowest = modules.reduce<Module | null>((best, one) => (best === null || own(one) > own(best) ? one : best), null);
    const mostly =
      slowest && modules.length > 1 && own(slowest) > ns / 2
        ? `, most of it in ${shortPath(slowest.path, run.directory)}`
        : "";
    const brought = top.total_ns > top.self_ns * 1.3 && top.self_ns <= ns * 1.1 && top.kind === "installed" ? ` With all that it requires it takes ${time(top.total_ns)}.` : "";
    const later = top.self_ns > ns * 1.1 ? ` In all, after the start and in other threads and processes, too, it takes ${time(top.self_ns)}.` : "";
    const parts: [string, number][] = [
      ["running it", sum(modules, (module) => own(module) - module.resolve_ns - module.read_ns - module.compile_ns)],
      ["finding its files", sum(modules, (module) => module.resolve_ns)],
      ["reading them", sum(modules, (module) => module.read_ns)],
      ["compiling them", sum(modules, (module) => module.compile_ns)],
    ];
    const [step, longest] = parts.reduce((best, part) => (part[1] > best[1] ? part : best));
    const mainly = longest > ns * 0.6 ? `, mainly ${step}` : "";
    add({
      kind: "package",
      figure: time(ns),
      sentence: `${top.kind === "application" ? `The program itself${top.name === null ? "" : ` (${name})`}` : `The package ${name}`} takes ${time(ns)}${top.kind === "application" ? "" : " itself"} (${share(ns, span)}, ${counted(modules.length, "module")})${mainly}${mostly}.${brought}${later}`,
      advice: slowest?.requirer ? `It is first asked for by ${shortPath(modules[0]?.requirer ?? slowest.requirer, run.directory)}.` : "",
      view: { view: "modules", show: "packages", filter: top.name ?? "" },
      share: ns / span.ns,
      // What a step takes in all packages is told by its own sentence.
      rank: (ns - 0.6 * (parts[1]![1] + parts[3]![1])) / span.ns,
    });
  }

  const resolve = sum(run.modules.filter(counts), (module) => module.resolve_ns);
  const lookups = run.package_json.lookups ?? 0;
  // Where lookups are not seen, what was opened.
  const asked = lookups > 0 ? lookups : (run.package_json.opens ?? 0);
  // Those that the program asks for itself find no module.
  const stats = run.modules.filter(counts).reduce<number | null>((sum, module) => (module.loading.stats === null ? sum : (sum ?? 0) + module.loading.stats), null);
  if (resolve > 0 || asked > 0) {
    const vain = walks(run);
    const worst = vain[0];
    const missing = run.package_json.files.filter((file) => file.found === false).length;
    const repeated = (lookups > 0 ? run.package_json.repeated_lookups : run.package_json.repeated_opens) ?? 0;
    const deep = worst && worst.vain > 3 && worst.vain > missing / 4 && worst.deepest > 1
      ? ` ${count(worst.vain)} of them lie below ${shortPath(worst.root, run.directory) || "/"}, up to ${counted(worst.deepest, "folder")} deep.`
      : "";
    const inVain = missing > 0 ? ` In ${counted(missing, "folder")} there is none.` : "";
    const again = repeated > asked / 10 ? ` ${count(repeated)} of them are repeated.` : "";
    add({
      kind: "resolution",
      figure: resolve > 0 ? time(resolve) : counted(asked, "lookup"),
      sentence: `Finding the files of modules takes ${resolve > 0 ? `${time(resolve)} (${share(resolve, span)})` : "time"}: ${counted(asked, lookups > 0 ? "lookup" : "open")} of package.json${stats === null ? "" : ` and ${counted(stats, "stat")}`}.${again}${inVain}${deep}`,
      advice: asked > 1000 || resolve > span.ns * 0.25 ? "Bundling the program, or importing deep paths less, saves most of it." : "",
      view: { view: "tables", table: "package-json" },
      // Thousands cost more than what is seen of them here: on other disks, with a cold cache.
      share: Math.max(resolve / span.ns, asked > 1000 ? Math.min(0.9, asked / 5000) : 0),
    });
  }

  const scripts = run.compile.scripts.filter((script) => script.unit !== "builtin");
  const compiled = scripts.reduce((sum, script) => sum + (script.self_ns ?? script.total_ns ?? 0), 0);
  const compilations = scripts.reduce((sum, script) => sum + (script.compilations ?? 0), 0);
  const cached = scripts.reduce((sum, script) => sum + (script.cached ? (script.compilations ?? 0) : 0), 0);
  if (compiled > 0) {
    const from = cached === 0 ? "none of them from a compile cache" : `${count(cached)} of them from a compile cache`;
    const slowest = scripts.reduce((best, script) => ((script.total_ns ?? 0) > (best.total_ns ?? 0) ? script : best));
    const large = (slowest.total_ns ?? 0) > compiled / 2 && compilations > 1 ? ` ${shortPath(slowest.path, run.directory)} alone takes ${time(slowest.total_ns ?? 0)}.` : "";
    add({
      kind: "compilation",
      figure: time(compiled),
      sentence: `Compiling JavaScript takes ${time(compiled)} (${share(compiled, all)}): ${counted(compilations, "script")}, ${from}.${large}`,
      advice:
        cached < compilations / 2
          ? versionAtLeast(run.node?.version ?? "", 22, 1)
            ? "A compile cache (NODE_COMPILE_CACHE or module.enableCompileCache()) saves most of it from the second start on."
            : "Node.js 22.1 and newer can keep compiled code (NODE_COMPILE_CACHE); with older ones, a bundle with a V8 code cache does."
          : "",
      view: { view: "tables", table: "compilation" },
      share: compiled / all.ns,
    });
  }

  const nodes = ["process", "platform", "v8", "bootstrap"];
  // Phases whose border was not seen are joined: with what the program did, they are not Node's alone.
  const startupPhases = run.phases.filter((phase) => phase.name.split("+").every((part) => nodes.includes(part)));
  const before = startupPhases.reduce((sum, phase) => sum + phase.end_ns - phase.start_ns, 0);
  if (before > 0) {
    const longest = startupPhases.reduce((best, phase) => (phase.end_ns - phase.start_ns > best.end_ns - best.start_ns ? phase : best));
    add({
      kind: "node",
      figure: time(before),
      sentence: `Node itself takes ${time(before)} (${share(before, { ns: whole, name: "start" })}) before the first line of the program runs, the longest part being ${phaseName(longest.name)} with ${time(longest.end_ns - longest.start_ns)}.`,
      view: { view: "timeline" },
      share: before / whole,
    });
  }

  const others = run.processes.filter((process) => !process.main);
  if (others.length > 0) {
    const longest = others.reduce((best, process) => (length(process, run) > length(best, run) ? process : best));
    add({
      kind: "processes",
      figure: counted(others.length, "process", "processes"),
      sentence: `${counted(others.length, "other process runs", "other processes run")}; the longest, ${commandLine(longest.command) || `process ${longest.pid}`}, for ${time(length(longest, run))}.`,
      view: { view: "timeline" },
      share: length(longest, run) / run.time.wall_ns,
    });
  }

  for (const outside of run.outside) {
    if (!["gc", "async"].includes(outside.bucket)) continue;
    add({
      kind: `outside-${outside.bucket}`,
      figure: time(outside.time_ns),
      sentence: `${bucketName(outside.bucket)} takes ${time(outside.time_ns)} (${share(outside.time_ns, all)}), for which no module is to blame.`,
      view: { view: "timeline" },
      share: outside.time_ns / all.ns,
    });
  }
  return list.filter((finding) => finding.share >= LEAST).sort((a, b) => weight(b) - weight(a)).slice(0, MOST);
}

/** What nobody can change comes after what takes half as long and can be. */
function weight(finding: Finding): number {
  return finding.kind === "node" ? finding.share / 2 : (finding.rank ?? finding.share);
}

/** Of one that outlasts the run: as much as is in it. */
function length(process: { start_ns: number; end_ns: number | null }, run: Run): number {
  return Math.max(0, (process.end_ns ?? run.time.wall_ns) - Math.max(0, process.start_ns));
}

export function versionAtLeast(version: string, major: number, minor: number): boolean {
  const match = /^v?(\d+)\.(\d+)/.exec(version);
  if (!match) return false;
  const [have, part] = [Number(match[1]), Number(match[2])];
  return have > major || (have === major && part >= minor);
}

/** What is missing, in sentences. */
export function gaps(run: Run, losses: string[]): string[] {
  const list = [...losses];
  for (const family of run.families) {
    if (family.state === "on" || (family.state === "off" && !family.reason)) continue;
    list.push(`${family.name}: ${family.state}${family.reason ? ` — ${family.reason}` : ""}`);
  }
  for (const process of run.processes) {
    if (process.incomplete) list.push(`Process ${process.pid} (${commandLine(process.command)}): ${process.incomplete}`);
  }
  return list;
}
