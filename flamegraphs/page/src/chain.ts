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

/** Own time and that of all below it, but for callbacks, which nobody waited for. */
export function waited(modules: Module[], tree: Tree): number[] {
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

export function criticalChain(run: Run): Link[] {
  const modules = run.modules;
  const tree = treeOf(modules);
  const times = waited(modules, tree);
  const main = run.processes.find((process) => process.main);
  const roots = tree.roots.filter((index) => {
    const module = modules[index]!;
    return module.kind !== "builtin" && (!main || (module.pid === main.pid && module.thread === main.pid));
  });
  let at: number | undefined = roots.reduce<number | undefined>(
    (best, index) => (best === undefined || times[index]! >= times[best]! ? index : best),
    undefined,
  );
  const chain: Link[] = [];
  const whole = at === undefined ? 0 : times[at]!;
  while (at !== undefined) {
    const module = modules[at]!;
    const children: number[] = tree.children[at]!;
    const next: number | undefined = children.reduce<number | undefined>(
      (best, index) => (best === undefined || times[index]! > times[best]! ? index : best),
      undefined,
    );
    const followed = next !== undefined && times[next]! > whole / 1000 ? next : undefined;
    const required = children.reduce((sum, index) => sum + times[index]!, 0);
    chain.push({
      module,
      waited: times[at]!,
      own: Math.max(0, module.self_ns - module.callback_ns),
      others: required - (followed === undefined ? 0 : times[followed]!),
    });
    at = followed;
  }
  return chain;
}
