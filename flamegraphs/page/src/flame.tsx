// Flame graphs by metric: merged, in order of time, inverted, and callers and callees of a function.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { FONT, fitted, prepare, useWidth } from "./canvas";
import { byName, KIND } from "./colours";
import type { Shown } from "./context";
import type { Run } from "./data";
import { FlameCanvas, ROW, Tooltip, type Look } from "./flamecanvas";
import { counted, inUnit, percent, shortPath } from "./format";
import { forEach, leftOut, METRICS, metricOf, offers, valuesOf, type Events, type Metric, type Values } from "./model";
import { placeOfPackage } from "./modules";
import { STEP, useSliced } from "./slices";
import { moved, regroup, type Grouped, type Stacks } from "./regroup";
import { dark, get, link, number, set, span } from "./state";
import { Table, type Column } from "./table";
import { Tabs } from "./tabs";
import { follow, inverted, matching, merged, sandwich, shareOf, type TreeNode } from "./tree";

const LAYOUTS = [
  ["merged", "Merged"],
  ["time", "In order of time"],
  ["inverted", "Inverted"],
  ["sandwich", "Callers and callees"],
] as const;

const COLOURS = [
  ["kind", "kind"],
  ["package", "package"],
  ["module", "module"],
] as const;

export function colourOf(events: Stacks, by: string): (frame: number) => string {
  const { kinds, packages, files, names } = events.frames;
  const cache: (string | undefined)[] = [];
  return (frame) =>
    (cache[frame] ??= (() => {
      const script = kinds[frame] === "javascript" || kinds[frame] === "node" || kinds[frame] === "package";
      if (by === "package" && script) return kinds[frame] === "node" ? KIND["node"]! : byName(packages[frame] ?? "(program)");
      if (by === "module" && script) return byName(files[frame] ?? names[frame]!);
      if (by !== "kind") return "#d8d8da";
      return KIND[kinds[frame]!] ?? KIND["unknown"]!;
    })());
}

function pathFrom(text: string): number[] {
  return text === "" ? [] : text.split(".").map((part) => parseInt(part, 36)).filter(Number.isFinite);
}

export function pathText(path: number[]): string {
  return path.map((frame) => frame.toString(36)).join(".");
}

/** Where a function is, for people. */
export function place(events: Stacks, frame: number, directory: string): string {
  const { files, lines, columns } = events.frames;
  const file = files[frame];
  if (!file) return "";
  const line = lines[frame]! > 0 ? `:${lines[frame]}${columns[frame]! > 0 ? `:${columns[frame]}` : ""}` : "";
  return `${shortPath(file, directory)}${line}`;
}

export function Flame({ shown }: { shown: Shown }) {
  const { events, run } = shown;
  const offered = useMemo(() => (events ? METRICS.filter((metric) => offers(events, metric)) : []), [events]);
  if (!events || offered.length === 0) {
    return <p class="empty">Nothing was recorded in this run that a flame graph could show: no samples, no calls, no system calls.</p>;
  }
  const wanted = get("metric");
  const metric = offered.find((one) => one.name === wanted) ?? offered[0]!;
  return <Graph key={metric.name} shown={shown} events={events} metric={metric} offered={offered} directory={run.directory} />;
}

const BY = [
  ["function", "function"],
  ["module", "module"],
  ["package", "package"],
] as const;

function Graph({ shown, events: recorded, metric, offered, directory }: { shown: Shown; events: Events; metric: Metric; offered: Metric[]; directory: string }) {
  const layout = get("layout", "merged");
  const by = get("colour", "kind");
  const query = get("q");
  const during = span.value;
  const hasStacks = useMemo(() => recorded.frames.kinds.some((kind) => kind === "javascript" || kind === "node"), [recorded]);
  const frames = hasStacks ? get("by", "function") : "function";
  const byGroup = frames === "module" || frames === "package" ? frames : null;
  const added = useSliced(() => addedUp(recorded, metric, during, byGroup), [recorded, metric, during, byGroup]);
  const { grouped = null, values = null } = added ?? {};
  const events: Stacks = grouped?.stacks ?? recorded;
  const found = useMemo(() => matching(events, query), [events, query]);
  const share = useMemo(() => (found && values ? shareOf(events, values, found) : null), [events, values, found]);
  const colour = useMemo(() => colourOf(events, by), [events, by]);
  const look: Look = useMemo(() => ({ name: (frame) => events.frames.names[frame] ?? "", colour: (node) => colour(node.frame) }), [events, colour]);
  const focus = useMemo(() => pathFrom(get("at")), [get("at")]);
  const chosen = useMemo(() => (get("sel") === "" ? null : pathFrom(get("sel"))), [get("sel")]);
  const frame = number("frame");
  const reset = { at: null, sel: null, range: null };
  const tooltip = (node: TreeNode): string[] => {
    const { names, kinds, kindNames, packages } = events.frames;
    const value = inUnit(node.value, metric.unit);
    return [
      names[node.frame] ?? "",
      `${value}${metric.things ? ` ${metric.things}` : ""} · ${percent(node.value, values?.sum ?? 0)}${node.own > 0 && node.own < node.value ? ` · itself ${inUnit(node.own, metric.unit)}` : ""}`,
      [kindNames.get(kinds[node.frame] ?? "") ?? "", packages[node.frame] ?? "", place(events, node.frame, directory)].filter(Boolean).join(" · "),
    ];
  };
  const tree = useSliced(
    values && (layout === "inverted" || layout === "merged") ? () => (layout === "inverted" ? inverted(events, values) : atOnce(merged(events, values))) : null,
    [events, values, layout],
  );
  const onFocus = (path: number[]) => set({ at: pathText(path), sel: null });
  const onSelect = (path: number[]) => set({ sel: pathText(path) }, false);
  const current = tree && chosen ? follow(tree, chosen) : null;
  const missing = values && leftOut(values, during, layout);
  const summed = missing && `${counted(missing.calls, "call")} only summed, left out of ${missing.of}`;
  return (
    <>
      <div class="bar wrap">
        <label class="choice">
          Of
          <select value={metric.name} onChange={(event) => set({ metric: event.currentTarget.value, ...reset })}>
            {offered.map((one) => <option key={one.name} value={one.name}>{one.title}</option>)}
          </select>
        </label>
        <Tabs label="Order of frames" name="layout" tabs={LAYOUTS} chosen={layout} reset={reset} />
        {hasStacks && <label class="choice">
          By
          <select value={frames} onChange={(event) => set({ by: event.currentTarget.value === "function" ? null : event.currentTarget.value, frame: null, ...reset })}>
            {BY.map(([key, title]) => <option key={key} value={key}>{title}</option>)}
          </select>
        </label>}
        <label class="choice">
          Colour by
          <select value={by} onChange={(event) => set({ colour: event.currentTarget.value }, false)}>
            {COLOURS.map(([key, title]) => <option key={key} value={key}>{title}</option>)}
          </select>
        </label>
        <input type="search" placeholder="Search, or /regex/" aria-label="Search frames" value={query} onInput={(event) => set({ q: event.currentTarget.value }, false)} />
        {share !== null && values && <output class="found" data-value={share}>{percent(share, values.sum) || "0%"} found · {inUnit(share, metric.unit)}</output>}
      </div>
      {!values ? <p class="empty" aria-live="polite">Adding up …</p> : values.sum === 0 ? <p class="empty">Nothing of this metric {during ? "in the selected span" : "was recorded"}{during && summed && `: ${summed}`}.</p> : (
        <section class="card tight">
          <p class="note">
            {metric.title}{metric.javascript ? " of main threads" : ""}: <b data-figure="total" data-value={values.sum}>{inUnit(values.sum, metric.unit)}{metric.things ? ` ${metric.things}` : ""}</b>
            {summed && <> · {summed}</>}
            {" · click a frame for details, double-click to zoom"}
          </p>
          {by === "kind" && <Legend events={events} kinds={added!.kinds} />}
          {layout !== "time" && layout !== "sandwich" && !tree && <p class="empty" aria-live="polite">Adding up …</p>}
          {tree && <FlameCanvas tree={tree} look={look} label={`${metric.title}, ${layout}`} found={found} focus={focus} selected={chosen} onFocus={onFocus} onSelect={onSelect} tooltip={tooltip} />}
          {layout === "time" && <TimeOrdered recorded={recorded} places={grouped?.place ?? null} events={events} metric={metric} during={during} colour={colour} found={found} directory={directory} values={values} />}
          {layout === "sandwich" && (frame === null ? <p class="empty">Choose a function in the table below.</p> : <Sandwich events={events} values={values} frame={frame} look={look} tooltip={tooltip} metric={metric} found={found} />)}
          {current && current.frame >= 0 && <Details node={current} run={shown.run} events={events} metric={metric} values={values} directory={directory} onFocus={() => onFocus(chosen!)} />}
        </section>
      )}
      {values && values.sum > 0 && <Functions events={events} metric={metric} values={values} directory={directory} found={found} />}
    </>
  );
}

function* atOnce<T>(result: T): Generator<void, T> {
  return result;
}

interface AddedUp {
  grouped: Grouped | null;
  values: Values;
  /** Kinds of frames that are there, the largest first. */
  kinds: string[];
}

/** Of whole runs: what was added up stays. */
const known = new WeakMap<Events, Map<string, AddedUp>>();

function* addedUp(recorded: Events, metric: Metric, during: [number, number] | null, by: "module" | "package" | null): Generator<void, AddedUp> {
  const of = known.get(recorded) ?? new Map<string, AddedUp>();
  known.set(recorded, of);
  const key = `${metric.name} ${by}`;
  const before = during === null ? of.get(key) : undefined;
  if (before) return before;
  const groups = [...of.values()].find((one) => one.grouped?.by === by)?.grouped;
  const grouped = by === null ? null : (groups ?? (yield* regroup(recorded, by)));
  const plain = yield* valuesOf(recorded, metric, during);
  const values = grouped ? yield* moved(plain, grouped) : plain;
  const added = { grouped, values, kinds: yield* kindsOf(grouped?.stacks ?? recorded, values) };
  if (during === null) of.set(key, added);
  return added;
}

function* kindsOf(events: Stacks, values: Values): Generator<void, string[]> {
  const own = new Float64Array(events.frames.names.length);
  const there = new Uint8Array(own.length);
  for (let node = 0; node < values.own.length; node++) {
    if (node % STEP === 0) yield;
    if (values.total[node]! > 0) {
      own[events.frame[node]!]! += values.own[node]!;
      there[events.frame[node]!] = 1;
    }
  }
  const sums = new Map<string, number>();
  there.forEach((is, frame) => {
    const kind = events.frames.kinds[frame]!;
    if (is === 1) sums.set(kind, (sums.get(kind) ?? 0) + own[frame]!);
  });
  return [...sums].sort((a, b) => b[1] - a[1]).map(([kind]) => kind);
}

function Legend({ events, kinds }: { events: Stacks; kinds: string[] }) {
  return (
    <ul class="legend" aria-label="Colours">
      {kinds.map((kind) => <li key={kind}><i style={{ background: KIND[kind] ?? KIND["unknown"]! }} />{events.frames.kindNames.get(kind) || kind}</li>)}
    </ul>
  );
}

function Details({ node, run, events, metric, values, directory, onFocus }: { node: TreeNode; run: Run; events: Stacks; metric: Metric; values: Values; directory: string; onFocus: () => void }) {
  const { names, kinds, kindNames, packages, files, lines } = events.frames;
  const frame = node.frame;
  const file = files[frame];
  return (
    <div class="details" aria-label="Selected frame">
      <h3>{names[frame]}</h3>
      <dl>
        <div><dt>With callees</dt><dd>{inUnit(node.value, metric.unit)} · {percent(node.value, values.sum)}</dd></div>
        <div><dt>Itself</dt><dd>{inUnit(node.own, metric.unit)}</dd></div>
        <div><dt>Kind</dt><dd>{kindNames.get(kinds[frame] ?? "") ?? kinds[frame]}</dd></div>
        {packages[frame] && <div><dt>Package</dt><dd><a href={link(placeOfPackage(run, packages[frame]!))}>{packages[frame]}</a></dd></div>}
        {file && <div><dt>Where</dt><dd title={file}>{place(events, frame, directory)}{lines[frame]! > 0 && file.startsWith("/") ? "" : ""}</dd></div>}
      </dl>
      <p>
        <button type="button" onClick={onFocus}>Zoom in</button>{" "}
        <a class="button" href={link({ layout: "sandwich", frame, at: null, sel: null })}>Callers and callees</a>
      </p>
    </div>
  );
}

interface FunctionRow {
  frame: number;
  name: string;
  own: number;
  total: number;
}

/** By frame, each stack counting once, however often the function is on it. */
export function* functionsOf(events: Stacks, values: Values): Generator<void, FunctionRow[]> {
  const size = events.frames.names.length;
  const own = new Float64Array(size);
  const total = new Float64Array(size);
  const { parent, frame } = events;
  // How often each frame is on the way from the root to where we are.
  const on = new Int32Array(size);
  const { first, list } = events.children;
  const top = parent.length;
  const stack: number[] = [];
  for (let at = first[top]!; at < first[top + 1]!; at++) stack.push(list[at]!);
  let steps = 0;
  while (stack.length > 0) {
    if (++steps % STEP === 0) yield;
    const node = stack.pop()!;
    if (node < 0) {
      on[frame[~node]!]!--;
      continue;
    }
    const value = values.total[node]!;
    if (value <= 0) continue;
    const of = frame[node]!;
    own[of]! += values.own[node]!;
    if (on[of] === 0) total[of]! += value;
    on[of]!++;
    stack.push(~node);
    for (let at = first[node]!; at < first[node + 1]!; at++) stack.push(list[at]!);
  }
  const rows: FunctionRow[] = [];
  for (let index = 0; index < size; index++) {
    if (total[index]! > 0) rows.push({ frame: index, name: events.frames.names[index]!, own: own[index]!, total: total[index]! });
  }
  return rows;
}

function Functions({ events, metric, values, directory, found }: { events: Stacks; metric: Metric; values: Values; directory: string; found: Uint8Array | null }) {
  const all = useSliced(() => functionsOf(events, values), [events, values]);
  const rows = useMemo(() => (found ? (all ?? []).filter((row) => found[row.frame] === 1) : (all ?? [])), [all, found]);
  const columns: Column<FunctionRow>[] = [
    {
      key: "name", title: "Function", unit: "text", value: (row) => row.name,
      show: (row) => <a href={link({ layout: "sandwich", frame: row.frame, at: null, sel: null })} title="Callers and callees">{row.name}</a>,
    },
    { key: "kind", title: "Kind", unit: "text", value: (row) => events.frames.kindNames.get(events.frames.kinds[row.frame]!) ?? "" },
    { key: "package", title: "Package", unit: "text", value: (row) => events.frames.packages[row.frame] ?? null },
    { key: "own", title: "Self", unit: metric.unit, value: (row) => row.own, bar: true },
    { key: "total", title: "Total", unit: metric.unit, value: (row) => row.total, bar: true, help: "With all that it called" },
    { key: "share", title: "Share", unit: "percent", value: (row) => (row.total / values.sum) * 100 },
    { key: "place", title: "Where", unit: "text", value: (row) => place(events, row.frame, directory) },
  ];
  if (!all) return <p class="empty">Adding up functions …</p>;
  return <Table name="functions" caption="The same as a table" rows={rows} columns={columns} sort="-own" first={20} empty="The search finds none." />;
}

function Sandwich({ events, values, frame, look, tooltip, metric, found }: { events: Stacks; values: Values; frame: number; look: Look; tooltip: (node: TreeNode) => string[]; metric: Metric; found: Uint8Array | null }) {
  const both = useSliced(() => sandwich(events, values, frame), [events, values, frame]);
  const [focus, setFocus] = useState<{ callers: number[]; callees: number[] }>({ callers: [], callees: [] });
  const [selected, setSelected] = useState<{ side: string; path: number[] } | null>(null);
  useEffect(() => setFocus({ callers: [], callees: [] }), [both]);
  if (!both) return <p class="empty" aria-live="polite">Adding up …</p>;
  if (both.value === 0) return <p class="empty">This function is on no stack of this metric.</p>;
  return (
    <>
      <h3 class="sandwich">{events.frames.names[frame]}: {inUnit(both.value, metric.unit)} with callees, {inUnit(both.own, metric.unit)} itself, {percent(both.value, values.sum)}</h3>
      {(["callers", "callees"] as const).map((side) => (
        <div key={side}>
          <h4 class="side">{side === "callers" ? "Who called it: each row called the one above" : "What it called"}</h4>
          <FlameCanvas
            tree={both[side]}
            look={look}
            label={`${side} of ${events.frames.names[frame]}`}
            found={found}
            focus={focus[side]}
            selected={selected?.side === side ? selected.path : null}
            onFocus={(path) => setFocus({ ...focus, [side]: path })}
            onSelect={(path) => setSelected({ side, path })}
            tooltip={tooltip}
          />
        </div>
      ))}
    </>
  );
}

/** Events by time, with the sum of all values before each. */
interface Ordered {
  nodes: Int32Array;
  starts: Float64Array;
  at: Float64Array;
  sum: number;
}

function* ordered(events: Events, metric: Metric, during: [number, number] | null): Generator<void, Ordered> {
  // Each family is in order; of two, the second comes after the first.
  const length = metric.families.reduce((sum, name) => sum + events.family(name).length, 0);
  const nodes = new Int32Array(length);
  const values = new Float64Array(length);
  const at = new Float64Array(length);
  const threads = new Int32Array(length);
  let size = 0;
  yield* forEach(events, metric, during, (node, value, start, thread) => {
    nodes[size] = node;
    values[size] = value;
    at[size] = start;
    threads[size] = thread;
    size++;
  });
  const before = (a: number, b: number) => threads[a]! < threads[b]! || (threads[a] === threads[b] && at[a]! <= at[b]!);
  let second = 1;
  while (second < size && before(second - 1, second)) {
    second++;
    if (second % STEP === 0) yield;
  }
  const order: Ordered = { nodes: new Int32Array(size), starts: new Float64Array(size), at: new Float64Array(size), sum: 0 };
  let [left, right] = [0, second];
  for (let index = 0; index < size; index++) {
    if (index % STEP === 0) yield;
    const next = right >= size || (left < second && before(left, right)) ? left++ : right++;
    order.nodes[index] = nodes[next]!;
    order.starts[index] = order.sum;
    order.at[index] = at[next]!;
    order.sum += values[next]!;
  }
  return order;
}

interface TimeOrderedProperties {
  recorded: Events;
  places: Int32Array | null;
  events: Stacks;
  metric: Metric;
  during: [number, number] | null;
  colour: (frame: number) => string;
  found: Uint8Array | null;
  directory: string;
  values: Values;
}

function TimeOrdered(properties: TimeOrderedProperties) {
  const { recorded, metric, during } = properties;
  const order = useSliced(() => ordered(recorded, metric, during), [recorded, metric, during]);
  if (!order) return <p class="empty" aria-live="polite">Adding up …</p>;
  if (order.sum === 0) return <p class="empty">Calls were only summed here: there is no order of time. Choose another layout.</p>;
  return <InOrder {...properties} order={order} />;
}

/** Of all events that fall into a pixel the one in its middle is drawn: as quick for a million as for a hundred. */
function InOrder({ order, places, events, metric, colour, found, directory, values }: TimeOrderedProperties & { order: Ordered }) {
  const [holder, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const range = useMemo((): [number, number] => {
    const [from, until] = get("range").split("..").map(Number);
    return from !== undefined && until !== undefined && until > from && from < order.sum ? [Math.max(0, from), Math.min(until, order.sum)] : [0, order.sum];
  }, [get("range"), order]);
  const [hover, setHover] = useState<{ node: number; x: number; y: number } | null>(null);
  const drawn = useRef<{ row: number; x: number; width: number; node: number }[]>([]);
  const isDark = dark.value;
  useEffect(() => {
    if (!canvas.current || width === 0) return;
    const list: { row: number; x: number; width: number; node: number }[] = [];
    let open: { node: number; x: number }[] = [];
    const scale = (range[1] - range[0]) / width;
    let index = 0;
    for (let x = 0; x <= width; x++) {
      let path: number[] = [];
      if (x < width) {
        const value = range[0] + (x + 0.5) * scale;
        let [low, high] = [index, order.starts.length - 1];
        while (low < high) {
          const middle = (low + high + 1) >> 1;
          if (order.starts[middle]! <= value) low = middle;
          else high = middle - 1;
        }
        index = low;
        const node = order.nodes[low] ?? -1;
        for (let at = node >= 0 && places ? places[node]! : node; at >= 0; at = events.parent[at]!) path.push(at);
        path.reverse();
      }
      let same = 0;
      while (same < open.length && same < path.length && open[same]!.node === path[same]) same++;
      for (let row = same; row < open.length; row++) list.push({ row, x: open[row]!.x, width: x - open[row]!.x, node: open[row]!.node });
      open = open.slice(0, same);
      for (let row = same; row < path.length; row++) open.push({ node: path[row]!, x });
    }
    drawn.current = list;
    const rows = list.reduce((most, box) => Math.max(most, box.row + 1), 1);
    const context = prepare(canvas.current, width, rows * ROW + 1);
    if (!context) return;
    context.font = FONT;
    for (const box of list) {
      const frame = events.frame[box.node]!;
      const matches = found?.[frame] === 1;
      context.globalAlpha = found && !matches ? 0.35 : isDark ? 0.88 : 1;
      context.fillStyle = colour(frame);
      context.fillRect(box.x, box.row * ROW, box.width > 3 ? box.width - 1 : box.width, ROW - 1);
      if (box.width > 24) {
        context.globalAlpha = 1;
        context.fillStyle = "#1b1b1f";
        context.fillText(fitted(context, events.frames.names[frame]!, box.width - 8), box.x + 4, box.row * ROW + ROW / 2);
      }
    }
    context.globalAlpha = 1;
  }, [order, range, width, colour, found, isDark, events, places]);
  const hit = (event: MouseEvent) => {
    const frame = canvas.current!.getBoundingClientRect();
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const row = Math.floor(y / ROW);
    return drawn.current.find((box) => box.row === row && x >= box.x && x < box.x + box.width) ?? null;
  };
  const zoom = (factor: number, share = 0.5) => {
    const size = Math.max((range[1] - range[0]) * factor, metric.unit === "count" ? 1 : 100);
    const middle = range[0] + (range[1] - range[0]) * share;
    const from = Math.max(0, Math.min(order.sum - size, middle - size * share));
    if (size >= order.sum) set({ range: null }, false);
    // Outwards by a whole one at least: of counts a rounded range would stay what it is.
    else if (factor > 1) set({ range: `${Math.floor(from)}..${Math.ceil(from + size)}` }, false);
    else set({ range: `${Math.round(from)}..${Math.round(from + size)}` }, false);
  };
  const move = (share: number) => {
    const size = range[1] - range[0];
    const from = Math.max(0, Math.min(order.sum - size, range[0] + size * share));
    set({ range: `${Math.round(from)}..${Math.round(from + size)}` }, false);
  };
  return (
    <div class="flame" ref={holder}>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-roledescription="flame chart"
        aria-label={`${metric.title} in order of time, thread after thread. Plus and minus zoom, arrow keys move. The table below has the same figures.`}
        onMouseMove={(event) => {
          const box = hit(event);
          setHover(box ? { node: box.node, x: event.clientX, y: event.clientY } : null);
        }}
        onMouseLeave={() => setHover(null)}
        onDblClick={(event) => {
          const box = hit(event);
          if (!box) return;
          const scale = (range[1] - range[0]) / width;
          set({ range: `${Math.round(range[0] + box.x * scale)}..${Math.round(range[0] + (box.x + box.width) * scale)}` });
        }}
        onWheel={(event) => {
          if (!event.ctrlKey && !event.metaKey) return;
          event.preventDefault();
          const frame = canvas.current!.getBoundingClientRect();
          zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - frame.left) / width);
        }}
        onKeyDown={(event) => {
          const actions: Record<string, () => void> = {
            "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), Escape: () => set({ range: null }, false),
          };
          const action = actions[event.key];
          if (action) {
            action();
            event.preventDefault();
          }
        }}
      />
      {range[1] - range[0] < order.sum && <p class="note"><button type="button" class="quiet" onClick={() => set({ range: null })}>All of it</button></p>}
      {hover && (
        <Tooltip
          x={hover.x}
          y={hover.y}
          lines={[
            events.frames.names[events.frame[hover.node]!]!,
            `in all ${inUnit(values.total[hover.node]!, metric.unit)} · ${percent(values.total[hover.node]!, values.sum)}`,
            place(events, events.frame[hover.node]!, directory),
          ]}
        />
      )}
    </div>
  );
}

export { metricOf };
