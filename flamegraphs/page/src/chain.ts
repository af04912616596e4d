// The critical chain, by the rule of nodeprof critical-chain: at each step the module that its requirer waited longest for.
import type { Module, Run } from "./data";

export interface Tree {
  children: number[][];
  roots: number[];
}

export function treeOf(modules: Module[]): Tree {
  const children: number[][] = modules.map(() => []);
  const roots: number[] = [];
  modules.forEach((module, index) => {
    const requirer = module.requirer_id;
    // A requirer comes before what it required: no way leads in a circle.
    if (requirer !== null && requirer < index) children[requirer]!.push(index);
    else roots.push(index);
  });
  return { children, roots };
}

/**
 * Takes out of the tree what was loaded when the body of its requirer had run, and those of all above it: by a callback, for which nobody
 * waited. Returns how many modules of the program below the root are not there any more.
 */
function leaveOutLater(modules: Module[], tree: Tree, root: number): number {
  // When the last of it and those above it had run; null: they ran until the end, as far as is known.
  const ends = modules.map((module) => module.end_latest_ns ?? null);
  const isLater = modules.map(() => false);
  const isBelow = modules.map((_, index) => index === root);
  let later = 0;
  modules.forEach((_, requirer) => {
    tree.children[requirer] = tree.children[requirer]!.filter((child) => {
      const module = modules[child]!;
      const [end, own] = [ends[requirer]!, ends[child]!];
      const hadRun = end !== null && module.start_ns !== null && module.start_ns >= end;
      // One whose end was not seen has run before whoever waited for it.
      // Whoever waited for one that is loaded again later waited for the first of its loads.
      ends[child] = end === null || (own === null && hadRun) ? null : module.loads > 1 && !hadRun ? end : Math.max(end, own ?? end);
      isBelow[child] = isBelow[requirer]!;
      isLater[child] = isLater[requirer]! || hadRun;
      if (isBelow[child] && isLater[child] && module.kind !== "builtin") later++;
      return !hadRun;
    });
  });
  return later;
}

/** Own time and that of all below it, but for callbacks, which nobody waited for. */
function waited(modules: Module[], tree: Tree): number[] {
  const waited = modules.map((module) => Math.max(0, module.self_ns - module.callback_ns));
  for (let index = modules.length - 1; index >= 0; index--) {
    for (const child of tree.children[index]!) waited[index]! += waited[child]!;
  }
  return waited;
}

export interface Link {
  module: Module;
  waited: number;
  own: number;
  /** What the same module required besides. */
  others: number;
}

export interface Chain {
  links: Link[];
  /** Process that it is of, if that is not the main one. */
  pid: number | null;
  /** Modules that were loaded after the main module had run. */
  later: number;
  /** The main module had run when the trace ended, as far as that is known. */
  hadRun: boolean;
  /** Time from the first thing done to load the main module until it had run, or until its process or the trace ended. */
  passed: number;
  /** Time of the chain after the main module had run: of what `import()` loads, and it did not wait for. */
  afterwards: number;
}

/** Exit status of a node whose main module waits at a top-level `await` for what cannot come any more. */
const UNSETTLED = 13;

/** By the rule of nodeprof critical-chain: one whose process had ended had, unless that failed before any of it was seen to run; of an ES module it is not known where the trace ended as the event loop began. */
function hadRunAtTheEnd(run: Run, main: Module): boolean {
  const process = run.processes.find((process) => process.pid === main.pid);
  if (process?.end_ns !== null) {
    const options = process?.command?.slice(1) ?? [];
    const first = options.findIndex((word) => !word.startsWith("-"));
    const checks = (first < 0 ? options : options.slice(0, first)).some((option) => option === "--check" || option === "-c");
    const failed = main.end_earliest_ns === null && process?.exit_status !== 0;
    return !(failed || checks || (main.kind === "esm" && process?.exit_status === UNSETTLED));
  }
  return main.end_latest_ns !== null && !(main.kind === "esm" && run.ended_by === "loop-start");
}

/** When the body of a main module ended, halfway between the last that was seen of it and the first without it; or its process or the trace did. */
function endOf(run: Run, main: Module, hadRun: boolean): number {
  const earliest = main.end_earliest_ns;
  if (hadRun && earliest != null) return (earliest + (main.end_latest_ns ?? earliest)) / 2;
  return run.processes.find((process) => process.pid === main.pid)?.end_ns ?? run.time?.wall_ns ?? 0;
}

/** How much of the time of a main module that had run, and of all that it required, is later than its end; less than a fiftieth is what is uncertain. */
function afterwardsOf(main: Module, waited: number): number {
  if (main.start_ns == null || main.end_earliest_ns == null || main.end_latest_ns == null) return 0;
  const afterwards = waited - (main.end_latest_ns - main.start_ns);
  return afterwards > waited / 50 ? afterwards : 0;
}

/** The main script that the chain begins with: the main process's, or that of the only process that has one; or why there is none. */
function mainScript(run: Run): number | string {
  const modules = run.modules;
  const scripts = modules.map((_, index) => index).filter((index) => modules[index]!.main_script);
  const main = run.processes.find((process) => process.main);
  const ofMain = scripts.find((index) => main && modules[index]!.pid === main.pid);
  if (ofMain === undefined && scripts.length > 1) {
    const pids = scripts.map((index) => modules[index]!.pid).join(", ");
    return `The main node process loaded no module of a program; for the chain of another type: nodeprof critical-chain FILE --process PID, one of ${pids}`;
  }
  const root = ofMain ?? scripts[0];
  if (root === undefined) {
    return modules.some((module) => module.kind !== "builtin")
      ? "No main script was loaded, with which the chain would begin: all modules of the program were loaded before it or without one."
      : "Node loaded no module of a program in this run.";
  }
  const { pid, thread } = modules[root]!;
  const ofThread = modules.filter((module) => module.kind !== "builtin" && module.pid === pid && module.thread === thread);
  if (ofThread.every((module) => module.kind === "unknown")) {
    return "Which modules ran is known, but not that they were loaded and by whom: there is no chain. Their times are in the table of modules.";
  }
  return root;
}

/** Text: why there is none. */
export function criticalChain(run: Run): Chain | string {
  const modules = run.modules;
  const root = mainScript(run);
  if (typeof root === "string") return root;
  const tree = treeOf(modules);
  const later = leaveOutLater(modules, tree, root);
  const times = waited(modules, tree);
  const main = run.processes.find((process) => process.main);
  const pid = modules[root]!.pid;
  const links: Link[] = [];
  const hadRun = hadRunAtTheEnd(run, modules[root]!);
  const passed = endOf(run, modules[root]!, hadRun) - (modules[root]!.start_ns ?? Infinity);
  const whole = Math.max(times[root]!, passed);
  let at: number | undefined = root;
  while (at !== undefined) {
    const module = modules[at]!;
    const children: number[] = tree.children[at]!;
    const next: number | undefined = children.reduce<number | undefined>(
      (best, index) => (best === undefined || times[index]! > times[best]! ? index : best),
      undefined,
    );
    const followed = next !== undefined && times[next]! > whole / 1000 ? next : undefined;
    const required = children.reduce((sum, index) => sum + times[index]!, 0);
    links.push({
      module,
      waited: times[at]!,
      own: Math.max(0, module.self_ns - module.callback_ns),
      others: required - (followed === undefined ? 0 : times[followed]!),
    });
    at = followed;
  }
  const afterwards = hadRun ? afterwardsOf(modules[root]!, times[root]!) : 0;
  return { links, pid: main && main.pid !== pid ? pid : null, later, hadRun, passed: afterwards > 0 ? passed : whole, afterwards };
}
