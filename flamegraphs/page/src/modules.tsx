// Who is to blame: packages and modules as tables, a tree, a treemap, and the chain that the start waited for.
import { hierarchy, treemap, treemapSquarify } from "d3-hierarchy";
import { useMemo, useState } from "preact/hooks";
import type { Shown } from "./context";
import type { BundledPackage, Costs, Module, Package, Run, Source } from "./data";
import { byName } from "./colours";
import { criticalChain, treeOf, type Tree } from "./chain";
import { packageName } from "./findings";
import { count, counted, inUnit, percent, shortPath, time, type Unit, uncertainTime } from "./format";
import { get, link, number, OF_A_VIEW, set, span } from "./state";
import { Table, type Column } from "./table";
import { Tabs } from "./tabs";

const SHOWS = [
  ["packages", "Packages"],
  ["modules", "Modules"],
  ["tree", "Tree"],
  ["treemap", "Treemap"],
  ["chain", "Critical chain"],
] as const;

/** Only where there is one. */
const BUNDLES = ["bundles", "In bundles"] as const;

export function Modules({ shown }: { shown: Shown }) {
  const { run } = shown;
  const wanted = get("show", "packages");
  // The other side may have none.
  const show = wanted === "bundles" && run.bundled_packages.length === 0 ? "packages" : wanted;
  const during = span.value;
  const selected = useMemo(() => restrict(run, during), [run, during]);
  if (run.modules.length === 0) {
    return <p class="empty">No stacks were recorded in this run, so it is not known which modules were loaded.</p>;
  }
  return (
    <>
      <Tabs label="Modules and packages" name="show" tabs={run.bundled_packages.length > 0 ? [...SHOWS, BUNDLES] : SHOWS} chosen={show} reset={{ filter: null, sort: null, module: null }} />
      {during && show !== "bundles" && (
        <p class="note">
          Modules that were being loaded in the selected span, with the costs of their whole loading: {count(selected.modules.length)} of {count(run.modules.length)}.
        </p>
      )}
      {show === "packages" && <Packages run={selected} />}
      {show === "modules" && <ModuleTable run={selected} />}
      {show === "tree" && <ModuleTree run={run} shown={during ? new Set(selected.modules.map((module) => module.id)) : null} />}
      {show === "treemap" && <Treemap run={selected} />}
      {show === "chain" && <Chain run={run} />}
      {show === "bundles" && <Bundles run={run} />}
    </>
  );
}

/** Where a package is told of that a frame names, with its version: in the table of those that were loaded, or of those in bundles. */
export function placeOfPackage(run: Run, name: string): Record<string, string> {
  const filter = name.startsWith("(") ? "" : name.replace(/(.)@.*$/, "$1");
  const is = (one: { name: string | null }) => one.name === filter;
  const inBundles = !run.packages.some(is) && run.bundled_packages.some(is);
  return { view: "modules", show: inBundles ? "bundles" : "packages", filter };
}

/** Modules that were loaded in a span of time, and their packages. */
function restrict(run: Run, during: [number, number] | null): Run {
  if (!during) return run;
  const modules = run.modules.filter((module) => {
    const start = module.start_ns;
    if (start === null) return false;
    const end = module.end_latest_ns ?? module.end_earliest_ns ?? start;
    return start < during[1] && Math.max(end, start) >= during[0];
  });
  const wanted = new Set(modules.map((module) => `${module.package_kind}\0${module.package_directory}`));
  return { ...run, modules, packages: run.packages.filter((one) => wanted.has(`${one.kind}\0${one.directory}`)) };
}

function costs<Row extends Costs & { loading: Costs }>(loaded: boolean): Column<Row>[] {
  return figures((row) => (loaded ? row.loading : row));
}

function figures<Row>(of: (row: Row) => Costs): Column<Row>[] {
  return [
    { key: "crossings", title: "Crossings", unit: "count", value: (row) => of(row).crossings },
    { key: "crossings_self_ns", title: "In C++", unit: "ns", value: (row) => of(row).crossings_self_ns },
    { key: "package_json_lookups", title: "Lookups", unit: "count", value: (row) => of(row).package_json_lookups, help: "Of package.json" },
    { key: "stats", title: "Stats", unit: "count", value: (row) => of(row).stats },
    { key: "opens", title: "Opens", unit: "count", value: (row) => of(row).opens },
    { key: "bytes_read", title: "Bytes", unit: "bytes", value: (row) => of(row).bytes_read, help: "Bytes read" },
    { key: "files_ns", title: "In files", unit: "ns", value: (row) => of(row).files_ns },
    { key: "cpu_ns", title: "CPU", unit: "ns", value: (row) => of(row).cpu_ns, help: "By samples" },
    { key: "blocked_ns", title: "Blocked", unit: "ns", value: (row) => of(row).blocked_ns, help: "Off the CPU with something to do" },
  ];
}

function Role() {
  const loaded = get("role") === "loaded";
  return (
    <label class="choice">
      Counts
      <select value={loaded ? "loaded" : "requirer"} onChange={(event) => set({ role: event.currentTarget.value === "loaded" ? "loaded" : null })}>
        <option value="requirer">of what it did and asked for</option>
        <option value="loaded">of loading it</option>
      </select>
    </label>
  );
}

function Packages({ run }: { run: Run }) {
  const loaded = get("role") === "loaded";
  const columns: Column<Package>[] = useMemo(
    () => [
      {
        key: "name",
        title: "Package",
        unit: "text",
        value: packageName,
        show: (one) => <a href={link({ ...OF_A_VIEW, view: "modules", show: "modules", filter: one.name ?? "" })} title={one.directory ?? ""}>{packageName(one)}</a>,
      },
      { key: "self_ns", title: "Self", unit: "ns", value: (one) => one.self_ns, bar: true, help: "To find, read, compile and run its files" },
      { key: "total_ns", title: "Total", unit: "ns", value: (one) => one.total_ns, help: "With all that it requires" },
      { key: "uncertain_ns", title: "±", unit: "ns", value: (one) => one.uncertain_ns, help: "By how much self can be wrong either way" },
      { key: "modules", title: "Modules", unit: "count", value: (one) => one.modules },
      ...costs<Package>(loaded),
    ],
    [loaded],
  );
  return (
    <Table name="packages" caption="Packages, the most expensive first" rows={run.packages} columns={columns} sort="-self_ns" addressed>
      <Role />
    </Table>
  );
}

function ModuleTable({ run }: { run: Run }) {
  const loaded = get("role") === "loaded";
  const chosen = number("module");
  const columns: Column<Module>[] = useMemo(
    () => [
      {
        key: "path",
        title: "Module",
        unit: "text",
        value: (module) => module.path + (module.query ?? ""),
        show: (module) => (
          <a href={link({ module: module.id })} title={module.path}>{shortPath(module.path, run.directory)}{module.query ?? ""}</a>
        ),
      },
      { key: "package", title: "Package", unit: "text", value: (module) => module.package },
      { key: "requirer", title: "Required by", unit: "text", value: (module) => module.requirer, show: (module) => (module.requirer ? shortPath(module.requirer, run.directory) : "") },
      { key: "kind", title: "Kind", unit: "text", value: (module) => module.kind },
      { key: "start_ns", title: "Start", unit: "ns", value: (module) => module.start_ns },
      { key: "self_ns", title: "Self", unit: "ns", value: (module) => module.self_ns, bar: true },
      { key: "total_ns", title: "Total", unit: "ns", value: (module) => module.total_ns },
      { key: "uncertain_ns", title: "±", unit: "ns", value: (module) => module.uncertain_ns, help: "By how much self can be wrong either way" },
      { key: "resolve_ns", title: "Resolve", unit: "ns", value: (module) => module.resolve_ns },
      { key: "read_ns", title: "Read", unit: "ns", value: (module) => module.read_ns },
      { key: "compile_ns", title: "Compile", unit: "ns", value: (module) => module.compile_ns },
      { key: "execute_ns", title: "Execute", unit: "ns", value: (module) => module.execute_ns },
      ...costs<Module>(loaded),
    ],
    [loaded, run],
  );
  return (
    <Table
      name="modules"
      caption="Modules, the most expensive first"
      rows={run.modules}
      columns={columns}
      sort="-self_ns"
      addressed
      selected={(module) => module.id === chosen}
    >
      <Role />
    </Table>
  );
}

/** Of a package in a package's node_modules with that one: there are often several of one name. */
function bundledName(one: BundledPackage): string {
  if (one.name === null) return "(the program's own)";
  const around = one.directory?.split("/node_modules/").slice(1, -1) ?? [];
  const outer = around.filter((part) => !part.startsWith(".pnpm/")).pop();
  return outer === undefined ? one.name : `${one.name} in ${outer}`;
}

/** What bundles are made of. Their files were not loaded one by one, so they have no times of loading. */
function Bundles({ run }: { run: Run }) {
  const several = new Set(run.bundled_packages.map((one) => `${one.pid}\0${one.bundle}`)).size > 1;
  const bundles = new Set(run.bundled_packages.map((one) => one.bundle)).size;
  const columns = useMemo(() => {
    const bundle = <Row extends BundledPackage | Source>(): Column<Row>[] =>
      several
        ? [
            { key: "bundle", title: "Bundle", unit: "text", value: (one) => one.bundle, show: (one) => <span title={one.bundle}>{shortPath(one.bundle, run.directory)}</span> },
            { key: "pid", title: "Process", unit: "text", value: (one) => String(one.pid) },
          ]
        : [];
    const of = <Row extends BundledPackage | Source>(): Column<Row>[] => [
      { key: "cpu_ns", title: "CPU", unit: "ns", value: (one) => one.cpu_ns, bar: true, help: "In its own functions, by samples" },
      { key: "cpu_total_ns", title: "Total", unit: "ns", value: (one) => one.cpu_total_ns, help: "CPU time with what they called" },
      ...figures<Row>((one) => one).filter((column) => column.key !== "cpu_ns"),
      ...bundle<Row>(),
    ];
    const packages: Column<BundledPackage>[] = [
      { key: "name", title: "Package", unit: "text", value: bundledName, show: (one) => <span title={one.directory ?? ""}>{bundledName(one)}</span> },
      { key: "files", title: "Files", unit: "count", value: (one) => one.files, help: "Of which functions were seen" },
      ...of<BundledPackage>(),
    ];
    const files: Column<Source>[] = [
      { key: "path", title: "File", unit: "text", value: (one) => one.path, show: (one) => <span title={one.path}>{shortPath(one.path, run.directory)}</span> },
      { key: "package", title: "Package", unit: "text", value: (one) => one.package },
      ...of<Source>(),
    ];
    return { packages, files };
  }, [run, several]);
  const bundle = bundles > 1 ? "bundles" : shortPath(run.bundled_packages[0]?.bundle ?? "", run.directory);
  return (
    <>
      <Table name="bundled" caption={`Packages in ${bundle}, as source maps tell`} rows={run.bundled_packages} columns={columns.packages} sort="-cpu_ns" addressed />
      <Table name="sources" caption={`Files in ${bundle}`} rows={run.sources} columns={columns.files} sort="-cpu_ns" />
    </>
  );
}

function ModuleTree({ run, shown }: { run: Run; shown: Set<number> | null }) {
  const tree = useMemo(() => treeOf(run.modules), [run]);
  const roots = tree.roots.filter((index) => run.modules[index]!.total_ns > 0);
  const whole = roots.reduce((sum, index) => sum + run.modules[index]!.total_ns, 0);
  return (
    <section class="card" aria-labelledby="tree">
      <h3 id="tree">Modules below those that required them</h3>
      <div class="treehead" aria-hidden="true">
        <span>Module</span><span>Total</span><span>Self</span><span>Crossings</span><span>Lookups</span>
      </div>
      <ul class="tree">
        {byTotal(run, roots).slice(0, 40).map((index, position) => (
          <Branch key={index} run={run} tree={tree} index={index} depth={0} open={position === 0} whole={whole} shown={shown} />
        ))}
      </ul>
    </section>
  );
}

function byTotal(run: Run, list: number[]): number[] {
  return [...list].sort((a, b) => run.modules[b]!.total_ns - run.modules[a]!.total_ns);
}

function Branch(properties: { run: Run; tree: Tree; index: number; depth: number; open: boolean; whole: number; shown: Set<number> | null }) {
  const { run, tree, index, depth, whole, shown } = properties;
  const module = run.modules[index]!;
  const children = useMemo(() => byTotal(run, tree.children[index]!), [run, tree, index]);
  const [open, setOpen] = useState(properties.open);
  const [all, setAll] = useState(false);
  const visible = all ? children : children.slice(0, 30);
  return (
    <li>
      <div class={`branch${shown && !shown.has(module.id) ? " faint" : ""}`}>
        <span class="name" style={{ paddingLeft: `${depth * 1.1}rem` }}>
          {children.length > 0 ? (
            <button type="button" class="fold" aria-expanded={open} aria-label={`${open ? "Fold" : "Unfold"} ${module.path}`} onClick={() => setOpen(!open)}>
              {open ? "▾" : "▸"}
            </button>
          ) : (
            <span class="fold" />
          )}
          <a href={link({ ...OF_A_VIEW, view: "modules", show: "modules", module: module.id })} title={module.path}>{shortPath(module.path, run.directory)}</a>
          <span class="share" aria-hidden="true"><i style={{ width: `${(module.total_ns / Math.max(1, whole)) * 100}%` }} /></span>
        </span>
        <span class="value" title="Total">{time(module.total_ns)}</span>
        <span class="value" title={`Self: ${uncertainTime(module.self_ns, module.uncertain_ns)}`}>{time(module.self_ns)}</span>
        <span class="value" title="Crossings">{(module.crossings ?? 0) > 0 ? count(module.crossings) : ""}</span>
        <span class="value" title="Lookups of package.json">{(module.package_json_lookups ?? 0) > 0 ? count(module.package_json_lookups) : ""}</span>
      </div>
      {open && children.length > 0 && (
        <ul>
          {visible.map((child, position) => (
            <Branch key={child} {...properties} index={child} depth={depth + 1} open={position === 0 && depth < 4} />
          ))}
          {children.length > visible.length && (
            <li><button type="button" class="quiet" onClick={() => setAll(true)}>{count(children.length - visible.length)} more</button></li>
          )}
        </ul>
      )}
    </li>
  );
}

const AREAS: [string, string, Unit, (module: Module) => number | null][] = [
  ["self_ns", "own time", "ns", (module) => module.self_ns],
  ["crossings", "crossings", "count", (module) => module.crossings],
  ["lookups", "package.json lookups", "count", (module) => module.package_json_lookups],
  ["stats", "stats", "count", (module) => module.stats],
  ["bytes", "bytes read", "bytes", (module) => module.loading.bytes_read],
  ["compile_ns", "time to compile", "ns", (module) => module.compile_ns],
];

interface Area {
  name: string;
  module: Module | null;
  value: number;
  children?: Area[];
}

function Treemap({ run }: { run: Run }) {
  const key = get("figure", "self_ns");
  const [, title, unit, of] = AREAS.find(([name]) => name === key) ?? AREAS[0]!;
  const root = useMemo(() => {
    const packages = new Map<string, Area>();
    for (const module of run.modules) {
      const value = of(module) ?? 0;
      if (value <= 0) continue;
      const name = module.package_kind === "node" ? "node" : (module.package ?? "(program)");
      const area = packages.get(name) ?? { name, module: null, value: 0, children: [] };
      area.children!.push({ name: shortPath(module.path, run.directory), module, value });
      packages.set(name, area);
    }
    const top: Area = { name: "", module: null, value: 0, children: [...packages.values()] };
    const root = hierarchy(top).sum((area) => area.value).sort((a, b) => (b.value ?? 0) - (a.value ?? 0));
    return treemap<Area>().tile(treemapSquarify).size([1200, 640]).paddingInner(1).paddingTop((node) => (node.depth === 1 ? 17 : 0)).round(true)(root);
  }, [run, key]);
  const whole = root.value ?? 0;
  return (
    <section class="card" aria-labelledby="treemap">
      <div class="bar">
        <h3 id="treemap">Modules by package</h3>
        <label class="choice">
          Area
          <select value={key} onChange={(event) => set({ figure: event.currentTarget.value })}>
            {AREAS.map(([name, title]) => <option key={name} value={name}>{title}</option>)}
          </select>
        </label>
      </div>
      {whole === 0 ? <p class="empty">No module has any.</p> : (
        <svg class="treemap" viewBox="0 0 1200 640" role="img" aria-label={`Treemap of ${title}: ${root.children?.slice(0, 5).map((node) => `${node.data.name} ${percent(node.value ?? 0, whole)}`).join(", ")}`}>
          {root.children?.map((node) => (
            <g key={node.data.name}>
              <rect x={node.x0} y={node.y0} width={node.x1 - node.x0} height={node.y1 - node.y0} fill={byName(node.data.name)} class="group">
                <title>{`${node.data.name}: ${inUnit(node.value ?? 0, unit)}, ${percent(node.value ?? 0, whole)}`}</title>
              </rect>
              {node.x1 - node.x0 > 46 && <text x={node.x0 + 4} y={node.y0 + 12.5} class="title">{fit(`${node.data.name}  ${inUnit(node.value ?? 0, unit)}`, node.x1 - node.x0)}</text>}
              {node.children?.map((leaf) => leaf.x1 - leaf.x0 > 0 && leaf.y1 - leaf.y0 > 0 && (
                <g key={leaf.data.module?.id} class="leaf" onClick={() => set({ ...OF_A_VIEW, view: "modules", show: "modules", module: leaf.data.module?.id ?? null })}>
                  <rect x={leaf.x0} y={leaf.y0} width={leaf.x1 - leaf.x0} height={leaf.y1 - leaf.y0} fill={byName(node.data.name)}>
                    <title>{`${leaf.data.module?.path}: ${inUnit(leaf.value ?? 0, unit)}, ${percent(leaf.value ?? 0, whole)}`}</title>
                  </rect>
                  {leaf.x1 - leaf.x0 > 40 && leaf.y1 - leaf.y0 > 14 && <text x={leaf.x0 + 3} y={leaf.y0 + 12} aria-hidden="true">{fit(leaf.data.name.split("/").slice(-2).join("/"), leaf.x1 - leaf.x0)}</text>}
                </g>
              ))}
            </g>
          ))}
        </svg>
      )}
      <p class="note">In all {inUnit(whole, unit)} of {title}. The same figures are in the tables of packages and modules.</p>
    </section>
  );
}

function fit(text: string, width: number): string {
  const most = Math.floor((width - 6) / 6.2);
  return text.length <= most ? text : most > 2 ? `${text.slice(0, most - 1)}…` : "";
}

function Chain({ run }: { run: Run }) {
  const chain = useMemo(() => criticalChain(run), [run]);
  if (typeof chain === "string") return <p class="empty">{chain}</p>;
  const { links, pid, later, hadRun, passed, afterwards } = chain;
  const rest = passed - links[0]!.waited;
  const from = links[0]!.module.start_ns ?? 0;
  const whole = Math.max(1, ...links.map((link) => (link.module.start_ns ?? from) - from + link.waited));
  return (
    <section class="card" aria-labelledby="chain">
      <h3 id="chain">{time(passed)} until {hadRun ? `the main module${pid !== null ? ` of process ${pid}` : ""} had run` : run.processes.some((process) => process.pid === links[0]!.module.pid && process.end_ns !== null) ? "the process ended; the main module did not run to its end" : "the trace ended"}</h3>
      {afterwards > 0 && <p>{time(afterwards)} of the chain after that, in what import() loads and it did not wait for.</p>}
      {rest > passed / 50 && <p>{time(rest)} of it in no module of the chain or what these required: hooks, preloaded modules, Node's own, or waiting.</p>}
      <p class="note">At each step, the module that its requirer waited longest for. Dark: its own time; light: what it waited for.{run.modules.some((module) => module.kind === "esm") && " Without what a top-level await waited for."}{later > 0 && ` Without ${counted(later, "module")} that ${later === 1 ? "was" : "were"} loaded after it had run.`}</p>
      <ol class="chain">
        {links.map(({ module, waited, own }, depth) => {
          const start = (module.start_ns ?? from) - from;
          return (
            <li key={module.id} data-module={module.id} data-waited={waited}>
              <span class="name" style={{ paddingLeft: `${depth * 0.6}rem` }}>
                <a href={link({ ...OF_A_VIEW, view: "modules", show: "modules", module: module.id })} title={module.path}>{shortPath(module.path, run.directory)}</a>
              </span>
              <span class="track" aria-hidden="true">
                <i class="wait" style={{ left: `${(start / whole) * 100}%`, width: `${Math.min(1 - start / whole, waited / whole) * 100}%` }}>
                  <b style={{ width: `${(own / Math.max(1, waited)) * 100}%` }} />
                </i>
              </span>
              <span class="value" title="Of it and of all that it required">{time(waited)}</span>
              <span class="value faint" title={`Itself: ${uncertainTime(own, module.uncertain_ns)}`}>{time(own)}</span>
            </li>
          );
        })}
      </ol>
    </section>
  );
}
