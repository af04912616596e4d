// Base and head side by side: what changed, how sure that is, and why.
import { useMemo } from "preact/hooks";
import { change } from "./colours";
import type { Shown } from "./context";
import type { Cause, Change, Columns, Diff, RawDifferential, SideSummary } from "./data";
import { FlameCanvas, type Look } from "./flamecanvas";
import { pathText } from "./flame";
import { capital, commandLine, count, counted, inUnit, percent, shortPath, time } from "./format";
import { childrenOf, totals } from "./model";
import { BoxPlots, Phases } from "./overview";
import { get, link, OF_A_VIEW, set } from "./state";
import { Table, type Column } from "./table";
import type { FlameTree, TreeNode } from "./tree";

const CERTAINTY: Record<string, string> = {
  exact: "exact",
  significant: "significant",
  too_few_runs: "too few runs to know",
  noise: "as chance can do",
  same: "same",
  unknown: "not known",
};

/** Characters of a program in a sentence. */
const LONGEST = 100;

function ran(side: SideSummary): string {
  if (side.programs > 1) return `${count(side.programs)} programs`;
  const line = commandLine(side.command);
  return line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line;
}

export function Comparison({ shown }: { shown: Shown }) {
  const { data, columns } = shown;
  const diff = data.diff!;
  const sides = data.sides!;
  // Both to one scale: the shorter bar is the shorter run.
  const longest = Math.max(0, ...sides.map((side) => {
    const phases = side.profile.runs[side.shown]?.phases ?? [];
    return phases.length > 0 ? phases.at(-1)!.end_ns - Math.min(0, phases[0]!.start_ns) : 0;
  }));
  return (
    <>
      <section class="verdict">
        <h2 data-answer={diff.verdict.answer}>{capital(diff.verdict.sentence)}</h2>
        <p class="note">
          {diff.base.name}: {ran(diff.base)}, {diff.base.node ?? "no node"}, {counted(diff.base.bare_runs, "run")} without probes, {count(diff.base.probed_runs)} with.{" "}
          {diff.head.name}: {ran(diff.head)}, {diff.head.node ?? "no node"}, {count(diff.head.bare_runs)} without, {count(diff.head.probed_runs)} with.
        </p>
        {diff.statements.length > 0 && (
          <div class="warning" role="note">
            <strong>Know before you read on</strong>
            <ul>{diff.statements.map((statement, index) => <li key={index}>{statement.text}</li>)}</ul>
          </div>
        )}
      </section>
      <Causes diff={diff} />
      <div class="columns">
        <Times diff={diff} />
        <BoxPlots measured={sides.flatMap((side) => side.measured)} />
      </div>
      <section class="pair">
        {sides.map((side, index) => {
          const run = side.profile.runs[side.shown];
          return run ? <Phases key={index} run={run} of={side.name} scale={longest} /> : null;
        })}
      </section>
      <Differential list={data.differentials ?? []} columns={columns} missing={data.missing ?? []} names={[diff.base.name, diff.head.name]} />
      <Changes diff={diff} />
      <Presence diff={diff} />
    </>
  );
}

/** Where a cause is shown. */
function placeOf(cause: Cause): Record<string, string> {
  const side = ["removed", "base", "no_longer_compiled"].includes(cause.presence ?? "") ? "0" : "1";
  switch (cause.kind) {
    case "package":
      return { view: "modules", show: "packages", filter: cause.name.replace(/(.)@[^@/]*$/, "$1"), side };
    case "module":
      return { view: "modules", show: "modules", filter: cause.name.split("/").at(-1) ?? "", side };
    case "resolution":
    case "package_json":
      return { view: "tables", table: "package-json", side };
    case "reading":
      return { view: "tables", table: "files", side };
    case "compilation":
    case "script":
      return { view: "tables", table: "compilation", side };
    case "callback":
      return { view: "tables", table: "callbacks", side };
    default:
      return { view: "timeline", side };
  }
}

/** A change with its sign; none where nothing changed. */
function signed(ns: number): string {
  const size = time(Math.abs(ns));
  return size === time(0) ? size : `${ns > 0 ? "+" : "−"}${size}`;
}

function Causes({ diff }: { diff: Diff }) {
  if (diff.causes.length === 0) {
    return <section class="card"><h3>Causes</h3><p class="empty">No part of the run explains a difference.</p></section>;
  }
  const most = Math.max(1, ...diff.causes.map((cause) => Math.abs(cause.change_ns)));
  // As the report says it.
  const title = ["alike", "no_difference"].includes(diff.verdict.answer)
    ? "What differs: what came or went or is done more or less often, then parts whose time changed"
    : "What explains the difference: the largest part first, then what only counts tell";
  return (
    <section class="card" aria-labelledby="causes">
      <h3 id="causes">{title}</h3>
      <ol class="findings">
        {diff.causes.map((cause, index) => (
          <li key={index} data-cause={cause.kind}>
            <span class={`figure ${signed(cause.change_ns) === time(0) ? "" : cause.change_ns > 0 ? "loses" : "gains"}`}>{signed(cause.change_ns) === time(0) ? "" : signed(cause.change_ns)}</span>
            <span class="meter" aria-hidden="true"><i style={{ width: `${(Math.abs(cause.change_ns) / most) * 100}%`, background: cause.change_ns > 0 ? "var(--more)" : "var(--less)" }} /></span>
            <span class="sentence">
              {capital(cause.sentence)} <em>({CERTAINTY[cause.certainty] ?? cause.certainty})</em>{" "}
              <a href={link({ ...OF_A_VIEW, ...placeOf(cause) })} aria-label={`Show: ${cause.sentence}`}>Show</a>
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

const FIGURES: Record<string, string> = {
  "milestones.loop_start": "To the event loop",
  "time.wall_ns": "Wall time",
  "time.user_ns": "CPU, user",
  "time.system_ns": "CPU, kernel",
  "time.max_rss_bytes": "Peak memory",
  "time.private_dirty_bytes": "Private dirty memory",
};

function Times({ diff }: { diff: Diff }) {
  return (
    <Table
      name="times"
      caption="Times and memory of whole runs"
      rows={diff.times}
      empty="No times of whole runs are known."
      columns={[
        { key: "figure", title: "Figure", unit: "text", value: (row) => row.figure, show: (row) => FIGURES[row.figure] ?? row.figure },
        { key: "base", title: diff.base.name, named: true, unit: "count", value: (row) => row.base?.mean ?? null, show: (row) => (row.base ? inUnit(row.base.mean, row.unit) : "") },
        { key: "head", title: diff.head.name, named: true, unit: "count", value: (row) => row.head?.mean ?? null, show: (row) => (row.head ? inUnit(row.head.mean, row.unit) : "") },
        { key: "percent", title: "Change", unit: "percent", value: (row) => row.percent, show: (row) => (row.percent === null ? "" : <span class={row.stars === "" ? "" : row.percent > 0 ? "loses" : "gains"}>{row.percent > 0 ? "+" : "−"}{Math.abs(row.percent).toFixed(1)}% {row.stars}</span>) },
        { key: "p", title: "p", unit: "count", value: (row) => row.welch?.p ?? null, show: (row) => (row.welch ? (row.welch.p < 0.001 ? "<0.001" : row.welch.p.toFixed(3)) : "") },
      ]}
    />
  );
}

function changeColumns(diff: Diff): Column<Change>[] {
  return [
    { key: "figure", title: "Figure", unit: "text", value: (row) => row.figure },
    { key: "base", title: diff.base.name, named: true, unit: "count", value: (row) => row.base?.median ?? null, show: (row) => (row.base ? inUnit(row.base.median, row.unit) : "") },
    { key: "head", title: diff.head.name, named: true, unit: "count", value: (row) => row.head?.median ?? null, show: (row) => (row.head ? inUnit(row.head.median, row.unit) : "") },
    { key: "difference", title: "Difference", unit: "count", value: (row) => row.difference, show: (row) => <span class={row.difference > 0 ? "loses" : "gains"}>{row.difference > 0 ? "+" : "−"}{inUnit(Math.abs(row.difference), row.unit)}</span> },
    { key: "certainty", title: "Certainty", unit: "text", value: (row) => row.certainty, show: (row) => CERTAINTY[row.certainty] ?? row.certainty },
  ];
}

function Changes({ diff }: { diff: Diff }) {
  const columns = useMemo(() => changeColumns(diff), [diff]);
  return (
    <>
      <Table name="counts" caption="Counts and sizes that differ" rows={diff.counts} columns={columns} first={15} empty="No count differs." />
      {diff.durations.length > 0 && <Table name="durations" caption="Times within the run that differ significantly" rows={diff.durations} columns={columns} first={15} />}
      {diff.lookups.length > 0 && (
        <Table name="lookup-changes" caption="package.json lookups gained or lost" rows={diff.lookups} first={15}
          columns={[
            { key: "path", title: "Path", unit: "text", value: (row) => row.path },
            { key: "base", title: diff.base.name, named: true, unit: "count", value: (row) => row.base },
            { key: "head", title: diff.head.name, named: true, unit: "count", value: (row) => row.head },
            { key: "certainty", title: "Certainty", unit: "text", value: (row) => row.certainty, show: (row) => CERTAINTY[row.certainty] ?? row.certainty },
          ]} />
      )}
    </>
  );
}

function Presence({ diff }: { diff: Diff }) {
  const rows = [
    ...diff.packages.added.map((name) => ({ what: "package", name, change: `only in ${diff.head.name}` })),
    ...diff.packages.removed.map((name) => ({ what: "package", name, change: `only in ${diff.base.name}` })),
    ...diff.versions.map((one) => ({ what: "package", name: one.package, change: `${one.base.join(", ")} → ${one.head.join(", ")}` })),
    ...diff.modules.added.map((name) => ({ what: "module", name, change: `only in ${diff.head.name}` })),
    ...diff.modules.removed.map((name) => ({ what: "module", name, change: `only in ${diff.base.name}` })),
    ...diff.builtins.now_compiled.map((name) => ({ what: "built-in", name, change: `compiled at start in ${diff.head.name} only` })),
    ...diff.builtins.no_longer_compiled.map((name) => ({ what: "built-in", name, change: `compiled at start in ${diff.base.name} only` })),
  ];
  if (rows.length === 0) return null;
  return (
    <Table name="presence" caption="Packages and modules that came, went or changed" rows={rows} first={15}
      columns={[
        { key: "what", title: "What", unit: "text", value: (row) => row.what },
        { key: "name", title: "Name", unit: "text", value: (row) => row.name, show: (row) => shortPath(row.name, "") },
        { key: "change", title: "Change", unit: "text", value: (row) => row.change },
      ]} />
  );
}

const KNOWN = ["exact", "significant", "noise", "too_few_runs"] as const;

interface DiffTree extends FlameTree {
  nodeOf: (node: TreeNode) => number;
}

interface Both {
  raw: RawDifferential;
  frame: Int32Array;
  parent: Int32Array;
  base: { own: Float64Array; total: Float64Array; sum: number };
  head: { own: Float64Array; total: Float64Array; sum: number };
  known: Int32Array;
  p: Float64Array;
}

function decode(raw: RawDifferential, columns: Columns): Both {
  const depth = columns.small(raw.depth);
  const parent = new Int32Array(depth.length);
  const path: number[] = [];
  for (let node = 0; node < depth.length; node++) {
    path.length = depth[node]!;
    parent[node] = path.at(-1) ?? -1;
    path.push(node);
  }
  const side = (own: Float64Array) => ({ own, ...totals(own, parent) });
  return {
    raw,
    frame: columns.small(raw.frame),
    parent,
    base: side(columns.numbers(raw.base_own)),
    head: side(columns.numbers(raw.head_own)),
    known: columns.small(raw.known),
    p: columns.numbers(raw.adjusted_p),
  };
}

function treeOf(both: Both, direction: string): DiffTree {
  const [wide, other] = direction === "base" ? [both.base, both.head] : [both.head, both.base];
  // What only the other side has is kept in view with the other's width.
  const own = wide.own.map((value, node) => (wide.total[node]! > 0 ? value : other.own[node]!));
  const { total, sum } = totals(own, both.parent);
  const { first, list } = childrenOf(both.parent);
  const nodes = new WeakMap<TreeNode, number>();
  const root: TreeNode = { frame: -1, value: sum, own: 0, depth: -1, parent: null, children: null };
  nodes.set(root, both.parent.length);
  return {
    root,
    nodeOf: (node) => nodes.get(node) ?? -1,
    children(node) {
      if (!node.children) {
        const at = nodes.get(node)!;
        node.children = Array.from(list.subarray(first[at]!, first[at + 1]!))
          .filter((child) => total[child]! > 0)
          .map((child) => {
            const made: TreeNode = { frame: both.frame[child]!, value: total[child]!, own: own[child]!, depth: node.depth + 1, parent: node, children: null };
            nodes.set(made, child);
            return made;
          })
          .sort((a, b) => b.value - a.value);
      }
      return node.children;
    },
  };
}

function Differential({ list, columns, missing, names }: { list: RawDifferential[]; columns: Columns; missing: string[]; names: [string, string] }) {
  const raw = list.find((one) => one.metric === get("metric")) ?? list.find((one) => one.metric === "cpu") ?? list[0];
  if (!raw) return <section class="card"><h3>Differential flame graph</h3><p class="empty">{missing[0] ?? "There is no run with probes on both sides."}</p></section>;
  return <DiffGraph key={raw.metric} raw={raw} list={list} columns={columns} names={names} />;
}

function DiffGraph({ raw, list, columns, names }: { raw: RawDifferential; list: RawDifferential[]; columns: Columns; names: [string, string] }) {
  const direction = get("direction", "head");
  const both = useMemo(() => decode(raw, columns), [raw, columns]);
  const tree = useMemo(() => treeOf(both, direction), [both, direction]);
  const query = get("q").toLowerCase();
  const found = useMemo(() => (query === "" ? null : Uint8Array.from(raw.names, (name, index) => (`${name} ${raw.files[index] ?? ""}`.toLowerCase().includes(query) ? 1 : 0))), [raw, query]);
  const most = useMemo(() => {
    let most = 0;
    for (let node = 0; node < both.parent.length; node++) most = Math.max(most, Math.abs(both.head.total[node]! - both.base.total[node]!));
    return most || 1;
  }, [both]);
  const unit = raw.unit === "ns" ? "ns" : "count";
  const look: Look = useMemo(() => ({
    name: (frame) => raw.names[frame] ?? "",
    colour: (node) => {
      const at = tree.nodeOf(node);
      const difference = both.head.total[at]! - both.base.total[at]!;
      if (difference === 0 || KNOWN[both.known[at]!] === "noise") return "#dcdcdc";
      return change(Math.sign(difference) * Math.sqrt(Math.abs(difference) / most));
    },
    mark: (node) => {
      const at = tree.nodeOf(node);
      return both.base.total[at] === 0 ? "new" : both.head.total[at] === 0 ? "gone" : "";
    },
  }), [tree, both, raw, most]);
  const words = (at: number): string => {
    const [base, head] = [both.base.total[at]!, both.head.total[at]!];
    const state = base === 0 ? `new in ${names[1]}` : head === 0 ? `gone in ${names[1]}` : "";
    const p = both.p[at]!;
    const known = KNOWN[both.known[at]!]!;
    const sure = head === base ? "no change" : `${CERTAINTY[known]}${Number.isFinite(p) ? ` (p ${p < 0.001 ? "<0.001" : p.toFixed(3)})` : ""}`;
    return [state, sure].filter(Boolean).join(" · ");
  };
  const tooltip = (node: TreeNode): string[] => {
    const at = tree.nodeOf(node);
    const [base, head] = [both.base.total[at]!, both.head.total[at]!];
    const difference = head - base;
    return [
      raw.names[node.frame] ?? "",
      `${names[0]} ${inUnit(base, unit)} → ${names[1]} ${inUnit(head, unit)} (${difference >= 0 ? "+" : "−"}${inUnit(Math.abs(difference), unit)}${base > 0 ? `, ${difference >= 0 ? "+" : "−"}${percent(Math.abs(difference), base) || "0%"}` : ""})`,
      words(at),
      raw.files[node.frame] ? `${raw.files[node.frame]}${raw.lines[node.frame] ? `:${raw.lines[node.frame]}` : ""}` : "",
    ].filter(Boolean);
  };
  const pathFrom = (text: string) => (text === "" ? [] : text.split(".").map((part) => parseInt(part, 36)));
  const rows = useMemo(() => {
    const own = new Map<number, { frame: number; base: number; head: number }>();
    for (let node = 0; node < both.frame.length; node++) {
      const frame = both.frame[node]!;
      const row = own.get(frame) ?? { frame, base: 0, head: 0 };
      row.base += both.base.own[node]!;
      row.head += both.head.own[node]!;
      own.set(frame, row);
    }
    return [...own.values()].filter((row) => row.base !== row.head);
  }, [both]);
  return (
    <>
      <section class="card" aria-labelledby="differential">
        <div class="bar wrap">
          <h3 id="differential">Differential flame graph</h3>
          <label class="choice">
            Of
            <select value={raw.metric} onChange={(event) => set({ metric: event.currentTarget.value, at: null, sel: null })}>
              {list.map((one) => <option key={one.metric} value={one.metric}>{one.title}</option>)}
            </select>
          </label>
          <label class="choice">
            Widths of
            <select value={direction} onChange={(event) => set({ direction: event.currentTarget.value, at: null, sel: null })}>
              <option value="head">{names[1]}</option>
              <option value="base">{names[0]}</option>
            </select>
          </label>
          <input type="search" placeholder="Search" aria-label="Search frames" value={get("q")} onInput={(event) => set({ q: event.currentTarget.value }, false)} />
        </div>
        <p class="note">
          {raw.title}, means per run: {names[0]} <b data-figure="base-total" data-value={both.base.sum}>{inUnit(both.base.sum, unit)}</b> → {names[1]} <b data-figure="head-total" data-value={both.head.sum}>{inUnit(both.head.sum, unit)}</b>
        </p>
        <ul class="legend" aria-label="Colours">
          <li><i style={{ background: change(1) }} />more in {names[1]}</li>
          <li><i style={{ background: change(-1) }} />less</li>
          <li><i style={{ background: "#dcdcdc" }} />no change, or as chance can do</li>
          <li><i class="new" />new</li>
          <li><i class="gone" />gone</li>
        </ul>
        {raw.notes.map((note, index) => <p class="note" key={index}>{note}</p>)}
        <FlameCanvas tree={tree} look={look} label={`Differences of ${raw.title}`} found={found} focus={pathFrom(get("at"))} selected={get("sel") === "" ? null : pathFrom(get("sel"))}
          onFocus={(path) => set({ at: pathText(path), sel: null })} onSelect={(path) => set({ sel: pathText(path) }, false)} tooltip={tooltip} />
      </section>
      <Table name="differences" caption="Functions whose own value changed" rows={rows} sort="-size" first={15}
        columns={[
          { key: "name", title: "Function", unit: "text", value: (row) => raw.names[row.frame] ?? "" },
          { key: "base", title: names[0], named: true, unit, value: (row) => row.base },
          { key: "head", title: names[1], named: true, unit, value: (row) => row.head },
          { key: "size", title: "Difference", unit, value: (row) => Math.abs(row.head - row.base), show: (row) => <span class={row.head > row.base ? "loses" : "gains"}>{row.head > row.base ? "+" : "−"}{inUnit(Math.abs(row.head - row.base), unit)}</span> },
        ]} />
    </>
  );
}
