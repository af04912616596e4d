// Everything that happened, to scale: a track for each kind of event of each thread. Of events narrower than a pixel one is
// drawn and the others are skipped by bisection, so that a million of them cost no more than a screenful.
import { scaleLinear } from "d3-scale";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { FONT, fitted, prepare, useWidth } from "./canvas";
import { byName, KIND, phaseColour } from "./colours";
import type { Shown } from "./context";
import type { FamilyName, Module, Run } from "./data";
import { Tooltip } from "./flamecanvas";
import { bytes, commandLine, count, counted, phaseName, shortPath, tickLabels, time, uncertainTime } from "./format";
import type { Events, Family } from "./model";
import { dark, get, link, number, OF_A_VIEW, select, set, span } from "./state";

/** Events of a track that do not overlap, in order of time. */
interface Lane {
  start: Float64Array;
  end: Float64Array;
  /** What the track knows them by. */
  item: Int32Array;
}

interface Track {
  key: string;
  label: string;
  /** First track of a thread: its name. */
  group?: string;
  lanes: Lane[];
  items: number;
  /** Of these, how many overlap with too many others to be drawn. */
  left?: number;
  colour: (item: number) => string;
  text: (item: number) => string;
  tooltip: (item: number) => string[];
  node?: (item: number) => number;
}

const ROW = 17;
const GAP = 5;
const GROUP = 22;
const AXIS = 24;
const MOST_LANES = 10;
/** Of what overlaps without lying in one another: processes, modules that are loaded together. */
const MOST_BESIDE = 24;
const POOL = 8;
/** Threads that run JavaScript, or programs that are not node. */
const MOST_THREADS = 32;

interface Spans {
  start: ArrayLike<number>;
  end: (index: number) => number;
  from: number;
  until: number;
}

/** Puts what overlaps below what it lies in. */
function lanesOf({ start, end, from, until }: Spans, order?: number[]): Lane[] {
  const lanes: { start: number[]; end: number[]; item: number[] }[] = [];
  const ends: number[] = [];
  const add = (item: number) => {
    const begin = start[item]!;
    let stop = end(item);
    let depth = 0;
    while (depth < ends.length && ends[depth]! > begin) depth++;
    // What outlasts the one around it by a little is cut there: it would cover what comes next.
    if (depth > 0) stop = Math.min(stop, ends[depth - 1]!);
    ends.length = depth;
    ends[depth] = stop;
    if (depth >= MOST_LANES) return;
    const lane = (lanes[depth] ??= { start: [], end: [], item: [] });
    lane.start.push(begin);
    lane.end.push(stop);
    lane.item.push(item);
  };
  if (order) order.forEach(add);
  else for (let item = from; item < until; item++) add(item);
  return lanes.map((lane) => ({ start: Float64Array.from(lane.start), end: Float64Array.from(lane.end), item: Int32Array.from(lane.item) }));
}

/** Puts what overlaps below, whether it lies in what is above or not: nothing is cut. `left`: how much found no room. */
export function besides({ start, end, from, until }: Spans, order?: number[]): { lanes: Lane[]; left: number } {
  const lanes: { start: number[]; end: number[]; item: number[] }[] = [];
  let left = 0;
  const add = (item: number) => {
    const begin = start[item]!;
    const free = lanes.findIndex((lane) => lane.end.at(-1)! <= begin);
    if (free < 0 && lanes.length >= MOST_BESIDE) {
      left++;
      return;
    }
    const lane = free < 0 ? (lanes[lanes.length] = { start: [], end: [], item: [] }) : lanes[free]!;
    lane.start.push(begin);
    lane.end.push(Math.max(begin, end(item)));
    lane.item.push(item);
  };
  if (order) order.forEach(add);
  else for (let item = from; item < until; item++) add(item);
  return { lanes: lanes.map((lane) => ({ start: Float64Array.from(lane.start), end: Float64Array.from(lane.end), item: Int32Array.from(lane.item) })), left };
}

/** One lane of what follows one another, but for a clock that trembles. */
function laneOf({ start, end, from, until }: Spans): Lane[] {
  const size = until - from;
  const lane: Lane = { start: new Float64Array(size), end: new Float64Array(size), item: new Int32Array(size) };
  for (let item = from; item < until; item++) {
    lane.start[item - from] = start[item]!;
    lane.end[item - from] = item + 1 < until ? Math.min(end(item), start[item + 1]!) : end(item);
    lane.item[item - from] = item;
  }
  return [lane];
}

/** First index whose value is above. */
function after(values: Float64Array, value: number): number {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

const TITLES: Record<FamilyName, string> = {
  crossings: "Crossings to C++",
  files: "Files",
  lookups: "package.json",
  serializations: "Serialization",
  compilations: "Compilation",
  samples: "CPU samples",
  waits: "Off the CPU",
};

function familyTrack(events: Events, name: FamilyName, family: Family, range: [number, number], run: Run): Track {
  const { names, kinds, kindNames } = events.frames;
  const frame = (item: number) => events.frame[family.node[item]!]!;
  const above = (item: number) => {
    const parent = events.parent[family.node[item]!]!;
    return parent < 0 ? "" : names[events.frame[parent]!]!;
  };
  const length = (item: number) => Math.max(0, family.duration[item]!);
  const text = (item: number) => {
    const own = names[frame(item)] ?? "";
    if (name === "files") return `${above(item)} ${shortPath(own, run.directory)}`;
    if (name === "lookups" || name === "compilations") return shortPath(own, run.directory);
    return own;
  };
  const detail = (item: number): string => {
    const value = family.detail[item]!;
    switch (name) {
      case "files":
        return value < 0 ? `failed: error ${-value}` : above(item) === "read" ? `${bytes(value)} read` : "";
      case "serializations":
        return value >= 0 ? bytes(value) : "";
      case "compilations":
        return value === 1 ? "code from a cache" : "";
      case "crossings":
        return value === 1 ? "never returned" : "";
      default:
        return "";
    }
  };
  return {
    key: name,
    label: TITLES[name],
    lanes: (name === "samples" || name === "waits" ? laneOf : lanesOf)({ start: family.at, end: (item) => family.at[item]! + length(item), from: range[0], until: range[1] }),
    items: range[1] - range[0],
    colour: (item) => {
      const kind = kinds[frame(item)]!;
      if (name === "files") return { stat: "#77aadd", open: "#bbcc33", read: "#ee8866" }[above(item)] ?? "#d5d5d5";
      if (name === "compilations") return family.detail[item] === 1 ? "#44bb99" : "#99ddff";
      if (name === "lookups") return "#ee8866";
      if (name === "waits") return /idle/.test(names[frame(item)]!) ? "#e3e3e3" : /CPU/.test(names[frame(item)]!) ? "#ffaabb" : "#c3c9d6";
      return KIND[kind] ?? "#d5d5d5";
    },
    text,
    tooltip: (item) => [
      text(item),
      `${TITLES[name]} · at ${time(family.at[item]!)}${family.duration[item]! >= 0 && name !== "lookups" ? ` · ${time(family.duration[item]!)}${family.own[item]! < family.duration[item]! ? `, itself ${time(family.own[item]!)}` : ""}` : ""}`,
      [kindNames.get(kinds[frame(item)]!) ?? "", detail(item)].filter(Boolean).join(" · "),
    ],
    node: (item) => family.node[item]!,
  };
}

function collections(events: Events, family: Family, range: [number, number]): Track | null {
  const start: number[] = [];
  const end: number[] = [];
  for (let item = range[0]; item < range[1]; item++) {
    if (events.collects[family.node[item]!] !== 1) continue;
    const [from, until] = [family.at[item]!, family.at[item]! + family.duration[item]!];
    // Samples come by a clock that trembles.
    if (end.length > 0 && from <= end.at(-1)! + family.duration[item]! / 2) end[end.length - 1] = until;
    else {
      start.push(from);
      end.push(until);
    }
  }
  if (start.length === 0) return null;
  return {
    key: "gc",
    label: "GC, by samples",
    lanes: [{ start: Float64Array.from(start), end: Float64Array.from(end), item: Int32Array.from(start, (_, index) => index) }],
    items: start.length,
    colour: () => KIND["gc"]!,
    text: () => "garbage collection",
    tooltip: (item) => ["Garbage collection", `every sample from ${time(start[item]!)} for ${time(end[item]! - start[item]!)}`],
  };
}

/** The last moment in which a module's body is known to have run; if that was never seen, its start and what it took itself, which all came after. */
export function moduleEnd(module: Pick<Module, "start_ns" | "end_earliest_ns" | "end_latest_ns" | "self_ns">): number {
  const start = module.start_ns ?? 0;
  return Math.max(start, module.end_earliest_ns ?? module.end_latest_ns ?? start + module.self_ns);
}

function modulesTrack(run: Run, pid: number, tid: number): Track | null {
  const list = run.modules.filter((module) => module.pid === pid && module.thread === tid && module.start_ns !== null);
  if (list.length === 0) return null;
  const start = list.map((module) => module.start_ns!);
  const end = list.map(moduleEnd);
  const order = list.map((_, index) => index).sort((a, b) => start[a]! - start[b]! || end[b]! - end[a]!);
  // Modules of require end within their requirers; those of import are all read before the first one runs.
  const { lanes, left } = besides({ start, end: (index) => end[index]!, from: 0, until: 0 }, order);
  return {
    key: "modules",
    label: "Modules loaded",
    lanes,
    items: list.length,
    left,
    colour: (index) => (list[index]!.package_kind === "node" ? "#bbcc33" : byName(list[index]!.package ?? "(program)")),
    text: (index) => shortPath(list[index]!.path, run.directory),
    tooltip: (index) => {
      const module = list[index]!;
      return [
        shortPath(module.path, run.directory),
        `${[module.package, module.package_version].filter(Boolean).join(" ")} · at ${time(start[index]!)} · ${time(end[index]! - start[index]!)}`,
        `itself ${uncertainTime(module.self_ns, module.uncertain_ns)}: resolve ${time(module.resolve_ns)}, read ${time(module.read_ns)}, compile ${time(module.compile_ns)}, execute ${time(module.execute_ns)}`,
        module.requirer ? `required by ${shortPath(module.requirer, run.directory)}` : "",
      ];
    },
  };
}

function simple(key: string, label: string, list: { name: string; start: number; end: number; colour: string; lines: string[] }[], apart = false): Track {
  const spans: Spans = { start: list.map((one) => one.start), end: (index) => list[index]!.end, from: 0, until: list.length };
  // A lane each, as far as there is room: their names tell more than their overlap.
  const own = list.map((one, index) => ({ start: Float64Array.of(one.start), end: Float64Array.of(one.end), item: Int32Array.of(index) }));
  const order = list.map((_, index) => index).sort((a, b) => list[a]!.start - list[b]!.start);
  const { lanes, left } = !apart ? { lanes: lanesOf(spans), left: 0 } : list.length <= MOST_BESIDE ? { lanes: own, left: 0 } : besides(spans, order);
  return {
    key,
    label,
    lanes,
    items: list.length,
    left,
    colour: (index) => list[index]!.colour,
    text: (index) => list[index]!.name,
    tooltip: (index) => list[index]!.lines,
  };
}

export function tracksOf(run: Run, events: Events | null, allThreads: boolean): { tracks: Track[]; hidden: number } {
  const tracks: Track[] = [];
  const origin = events?.raw.start_to_origin_ns ?? run.start_to_exec_ns ?? 0;
  if (run.phases.length > 0) {
    tracks.push(simple("phases", "Phases", run.phases.map((phase) => ({
      name: phaseName(phase.name), start: phase.start_ns, end: phase.end_ns, colour: phaseColour(phase.name),
      lines: [phaseName(phase.name), `at ${time(phase.start_ns)} · ${time(phase.end_ns - phase.start_ns)}`, `${counted(phase.crossings, "crossing")}, ${counted(phase.lookups, "lookup")}, ${counted(phase.stats, "stat")}`],
    }))));
  }
  if (run.processes.length > 1) {
    const list = run.processes.map((process) => ({
      name: commandLine(process.command) || process.path || `process ${process.pid}`,
      start: process.start_ns - origin,
      end: (process.end_ns ?? run.time.wall_ns) - origin,
      colour: process.main ? "#44bb99" : process.node ? "#bbcc33" : "#d5d5d5",
      lines: [process.command.join(" ") || process.path || "(forked)", `process ${process.pid}${process.main ? ", main" : ""} · at ${time(process.start_ns - origin)} · ${process.end_ns === null ? "still running" : time(process.end_ns - process.start_ns)}`, process.incomplete ?? ""],
    }));
    tracks.push(simple("processes", "Processes", list, true));
  }
  if (!events) return { tracks, hidden: 0 };
  const names: FamilyName[] = ["crossings", "files", "lookups", "serializations", "compilations", "samples", "waits"];
  const ranges = new Map(names.map((name) => [name, events.has(name) ? events.family(name).ranges() : new Map<number, [number, number]>()]));
  let [pool, others] = [0, 0];
  let hidden = 0;
  const several = new Set(events.threads.map((thread) => thread.pid)).size > 1;
  events.threads.forEach((thread, index) => {
    const own: Track[] = [];
    const steps = events.raw.steps.filter((step) => step.thread === index);
    if (steps.length > 0) {
      const list = steps.sort((a, b) => a.at - b.at || (b.duration ?? 0) - (a.duration ?? 0)).map((step) => ({
        name: step.name, start: step.at, end: step.at + (step.duration ?? 0), colour: "#d9cfae",
        lines: [step.name, `step of the start · at ${time(step.at)}${step.duration !== null ? ` · ${time(step.duration)}` : ""}`],
      }));
      own.push(simple("steps", "Steps of Node", list));
    }
    const modules = modulesTrack(run, thread.pid, thread.tid);
    if (modules) own.push(modules);
    for (const name of names) {
      const range = ranges.get(name)!.get(index);
      if (!range) continue;
      own.push(familyTrack(events, name, events.family(name), range, run));
      if (name === "samples") {
        const gc = collections(events, events.family(name), range);
        if (gc) own.push(gc);
      }
    }
    if (own.length === 0) return;
    if ((thread.javascript ? ++others > MOST_THREADS : ++pool > POOL) && !allThreads) {
      hidden++;
      return;
    }
    own[0]!.group = `${thread.name}${several ? ` of ${thread.command || thread.pid}` : ""}`;
    own.forEach((track) => (track.key = `${index}-${track.key}`));
    tracks.push(...own);
  });
  return { tracks, hidden };
}

export function Timeline({ shown }: { shown: Shown }) {
  const { run, events } = shown;
  const allThreads = get("threads") === "all";
  const { tracks, hidden } = useMemo(() => tracksOf(run, events, allThreads), [run, events, allThreads]);
  const whole = useMemo((): [number, number] => {
    let [from, until] = [0, 1];
    for (const track of tracks) {
      for (const lane of track.lanes) {
        from = Math.min(from, lane.start[0] ?? 0);
        until = Math.max(until, lane.end.at(-1) ?? 0);
      }
    }
    const room = (until - from) * 0.005;
    return [from - room, until + room];
  }, [tracks]);
  const [holder, width] = useWidth<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [hover, setHover] = useState<{ track: Track; item: number; x: number; y: number } | null>(null);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const isDark = dark.value;
  const during = span.value;
  const view = useMemo((): [number, number] => {
    const [from, until] = [number("from"), number("until")];
    return from !== null && until !== null && until > from ? [from, until] : whole;
  }, [get("from"), get("until"), whole]);
  const gutter = width < 700 ? 92 : 150;
  const places = useMemo(() => {
    let y = AXIS;
    return tracks.map((track) => {
      if (track.group) y += GROUP;
      const top = y;
      y += track.lanes.length * ROW + GAP;
      return top;
    });
  }, [tracks]);
  const last = tracks.length - 1;
  const height = last < 0 ? 60 : places[last]! + tracks[last]!.lanes.length * ROW + 12;
  const inner = Math.max(1, width - gutter);
  const selected = get("ev");
  const find = (text: string) => {
    const at = text.lastIndexOf(".");
    const track = tracks.find((track) => track.key === text.slice(0, at));
    return track ? { track, item: Number(text.slice(at + 1)) } : null;
  };
  const chosen = selected === "" ? null : find(selected);

  useEffect(() => {
    if (!canvas.current || width === 0) return;
    const context = prepare(canvas.current, width, height);
    if (!context) return;
    const [ink, soft, line, stripe] = isDark ? ["#e8e8ea", "#a9adb8", "#32353d", "#23262d"] : ["#1d1e22", "#585b64", "#e2e2de", "#f7f7f5"];
    const x = scaleLinear(view, [gutter, width]);
    const scale = inner / (view[1] - view[0]);
    context.font = FONT;
    const ticks = x.ticks(Math.max(3, Math.floor(inner / 110)));
    const label = tickLabels(ticks);
    for (const tick of ticks) {
      const at = Math.round(x(tick)) + 0.5;
      context.strokeStyle = line;
      context.beginPath();
      context.moveTo(at, AXIS - 6);
      context.lineTo(at, height);
      context.stroke();
      context.fillStyle = soft;
      context.textAlign = at > width - 34 ? "right" : "center";
      context.fillText(label(tick), at > width - 34 ? width - 2 : at, 9);
    }
    context.textAlign = "left";
    tracks.forEach((track, index) => {
      const top = places[index]!;
      if (track.group) {
        context.font = `600 ${FONT}`;
        context.fillStyle = ink;
        context.fillText(track.group, 2, top - GROUP / 2 + 1);
        context.font = FONT;
      }
      context.fillStyle = stripe;
      context.fillRect(gutter, top, inner, track.lanes.length * ROW);
      context.fillStyle = soft;
      context.fillText(fitted(context, track.label, gutter - 14), 10, top + ROW / 2);
      track.lanes.forEach((lane, depth) => {
        const y = top + depth * ROW;
        let at = after(lane.end, view[0]);
        // An instant at the left edge ends where it begins.
        while (at > 0 && lane.end[at - 1]! >= view[0] && lane.start[at - 1]! >= view[0]) at--;
        while (at < lane.start.length && lane.start[at]! < view[1]) {
          const begin = Math.max(0, (lane.start[at]! - view[0]) * scale);
          const stop = Math.min(inner, (lane.end[at]! - view[0]) * scale);
          const item = lane.item[at]!;
          const size = stop - begin;
          context.globalAlpha = isDark ? 0.88 : 1;
          context.fillStyle = track.colour(item);
          if (size < 1.5) {
            context.fillRect(gutter + begin, y + 1, 1.2, ROW - 3);
            const next = after(lane.start, view[0] + (Math.floor(begin) + 1) / scale);
            at = Math.max(at + 1, next);
            continue;
          }
          context.fillRect(gutter + begin, y + 1, size - (size > 4 ? 0.8 : 0.2), ROW - 3);
          if (size > 26) {
            context.globalAlpha = 1;
            context.fillStyle = "#1b1b1f";
            context.fillText(fitted(context, track.text(item), size - 7), gutter + begin + 3.5, y + ROW / 2);
          }
          at++;
        }
        context.globalAlpha = 1;
        if (chosen && chosen.track === track) {
          const place = lane.item.indexOf(chosen.item);
          if (place >= 0) {
            context.strokeStyle = ink;
            context.lineWidth = 2;
            const begin = (lane.start[place]! - view[0]) * scale;
            context.strokeRect(gutter + begin, y, Math.max(3, (lane.end[place]! - lane.start[place]!) * scale), ROW - 1);
            context.lineWidth = 1;
          }
        }
      });
    });
    const loop = run.milestones["loop_start"];
    if (loop !== null && loop !== undefined && loop > view[0] && loop < view[1]) {
      const at = Math.round(x(loop)) + 0.5;
      context.strokeStyle = isDark ? "#f5a26b" : "#c04a0a";
      context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(at, AXIS - 4);
      context.lineTo(at, height);
      context.stroke();
      context.setLineDash([]);
    }
    const shade = drag ? [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)] as const : during;
    if (shade) {
      const [from, until] = [Math.max(gutter, x(shade[0])), Math.min(width, x(shade[1]))];
      if (until > from) {
        context.fillStyle = isDark ? "rgba(232,163,61,.18)" : "rgba(232,163,61,.2)";
        context.fillRect(from, AXIS - 6, until - from, height);
        context.strokeStyle = "#e8a33d";
        context.strokeRect(from + 0.5, AXIS - 5.5, until - from - 1, height);
      }
    }
  }, [tracks, places, view, width, height, isDark, during, drag, selected, run]);

  const instant = (event: MouseEvent) => {
    const frame = canvas.current!.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - frame.left - gutter) / inner));
    return view[0] + share * (view[1] - view[0]);
  };
  const hit = (event: MouseEvent) => {
    const frame = canvas.current!.getBoundingClientRect();
    const y = event.clientY - frame.top;
    const index = places.findLastIndex((top) => top <= y);
    const track = tracks[index];
    const lane = track?.lanes[Math.floor((y - places[index]!) / ROW)];
    if (!track || !lane || event.clientX - frame.left < gutter) return null;
    const at = instant(event);
    const pixel = (view[1] - view[0]) / inner;
    const place = Math.min(lane.start.length - 1, after(lane.end, at - 2 * pixel));
    if (place < 0 || lane.start[place]! > at + 2 * pixel) return null;
    return { track, item: lane.item[place]! };
  };
  const look = (from: number, until: number) => {
    const size = Math.max(1000, Math.min(until - from, whole[1] - whole[0]));
    const begin = Math.max(whole[0], Math.min(from, whole[1] - size));
    if (size >= (whole[1] - whole[0]) * 0.999) set({ from: null, until: null }, false);
    else set({ from: Math.round(begin), until: Math.round(begin + size) }, false);
  };
  const zoom = (factor: number, at = (view[0] + view[1]) / 2) => look(at - (at - view[0]) * factor, at + (view[1] - at) * factor);
  const move = (share: number) => look(view[0] + (view[1] - view[0]) * share, view[1] + (view[1] - view[0]) * share);
  const total = tracks.reduce((sum, track) => sum + track.items, 0);
  const left = tracks.filter((track) => (track.left ?? 0) > 0).map((track) => `${count(track.left!)} of ${track.label.toLowerCase()}`);
  return (
    <>
      <div class="bar wrap">
        <span class="lead">{counted(total, "event")}. Drag to select a span, which all other views then show alone.</span>
        <span class="zoom" role="group" aria-label="Zoom">
          <button type="button" onClick={() => zoom(0.5)} aria-label="Zoom in">+</button>
          <button type="button" onClick={() => zoom(2)} aria-label="Zoom out">−</button>
          <button type="button" onClick={() => set({ from: null, until: null })}>Whole run</button>
          {during && <button type="button" onClick={() => look(during[0], during[1])}>Zoom to the span</button>}
        </span>
        <span class="spans" role="group" aria-label="Select a phase">
          <label class="choice">
            Select
            <select value="" onChange={(event) => {
              const phase = run.phases.find((phase) => phase.name === event.currentTarget.value);
              if (phase) select(phase.start_ns, phase.end_ns);
              event.currentTarget.value = "";
            }}>
              <option value="">a phase …</option>
              {run.phases.map((phase) => <option key={phase.name} value={phase.name}>{phaseName(phase.name)}</option>)}
            </select>
          </label>
        </span>
        {(hidden > 0 || allThreads) && <button type="button" class="quiet" onClick={() => set({ threads: allThreads ? null : "all" })}>{allThreads ? "Fewer threads" : `${count(hidden)} more threads`}</button>}
      </div>
      <section class="card tight">
        {tracks.length === 0 ? <p class="empty">Nothing was recorded that has a time.</p> : (
          <div class="timeline" ref={holder}>
            <canvas
              ref={canvas}
              tabIndex={0}
              role="application"
              aria-roledescription="timeline"
              aria-label={`Timeline from ${time(whole[0])} to ${time(whole[1])} with ${tracks.length} tracks: ${tracks.slice(0, 6).map((track) => `${track.label} (${track.items})`).join(", ")}. Plus and minus zoom, arrow keys move, Enter zooms to the selected span, Escape ends the selection.`}
              onMouseDown={(event) => {
                if (event.button !== 0) return;
                const from = instant(event);
                setDrag({ from, to: from });
                setHover(null);
                const moved = (event: MouseEvent) => setDrag({ from, to: instant(event) });
                const released = (end: MouseEvent) => {
                  removeEventListener("mousemove", moved);
                  removeEventListener("mouseup", released);
                  setDrag(null);
                  const to = instant(end);
                  if (Math.abs(end.clientX - event.clientX) > 4) select(Math.min(from, to), Math.max(from, to));
                  else {
                    const found = hit(end);
                    set({ ev: found ? `${found.track.key}.${found.item}` : null }, false);
                  }
                };
                addEventListener("mousemove", moved);
                addEventListener("mouseup", released);
              }}
              onMouseMove={(event) => {
                if (drag) return;
                const found = hit(event);
                setHover(found ? { ...found, x: event.clientX, y: event.clientY } : null);
              }}
              onMouseLeave={() => setHover(null)}
              onWheel={(event) => {
                if (event.ctrlKey || event.metaKey) {
                  event.preventDefault();
                  zoom(event.deltaY > 0 ? 1.25 : 0.8, instant(event));
                } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
                  event.preventDefault();
                  move(((event.deltaX || event.deltaY) / inner) * 0.8);
                }
              }}
              onKeyDown={(event) => {
                const actions: Record<string, () => void> = {
                  "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6), "0": () => set({ from: null, until: null }, false),
                  ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15),
                  Enter: () => during && look(during[0], during[1]), Escape: () => set({ time: null, ev: null }),
                };
                const action = actions[event.key];
                if (action) {
                  action();
                  event.preventDefault();
                }
              }}
            />
            {hover && !drag && <Tooltip x={hover.x} y={hover.y} lines={hover.track.tooltip(hover.item).filter(Boolean)} />}
          </div>
        )}
        <p class="note">Ctrl and the wheel zoom, shift and the wheel move. The dashed line is where the event loop begins.{left.length > 0 && ` Not drawn, for they overlap with ${MOST_BESIDE} others: ${left.join(", ")}.`}</p>
      </section>
      {chosen && chosen.item < Number.MAX_SAFE_INTEGER && <EventDetails track={chosen.track} item={chosen.item} events={events} />}
    </>
  );
}

function EventDetails({ track, item, events }: { track: Track; item: number; events: Events | null }) {
  let lines: string[];
  try {
    if (!(item < track.items)) return null;
    lines = track.tooltip(item).filter(Boolean);
  } catch {
    // The address names an event that this recording does not have.
    return null;
  }
  const node = track.node?.(item);
  const stack = node === undefined || !events ? [] : events.path(node).reverse();
  return (
    <section class="card" aria-label="Selected event" aria-live="polite">
      <h3>{lines[0]}</h3>
      {lines.slice(1).map((line, index) => <p class="lead" key={index}>{line}</p>)}
      {stack.length > 0 && (
        <>
          <h4 class="side">Stack, innermost first</h4>
          <ol class="stack">
            {stack.slice(0, 80).map((at) => <li key={at}><a href={link({ ...OF_A_VIEW, ev: null, view: "flame", layout: "sandwich", frame: events!.frame[at]! })}>{events!.frames.names[events!.frame[at]!]}</a></li>)}
          </ol>
        </>
      )}
    </section>
  );
}
