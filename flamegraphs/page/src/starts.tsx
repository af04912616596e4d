// The store of the service, as nodeprof view serves it: its runs, and a figure from commit to commit.
import { useState } from "preact/hooks";
import { useWidth } from "./canvas";
import type { Data, Start, Trend } from "./data";
import { capital, count, counted, inUnit, shortCommits, time } from "./format";
import { Table, type Column } from "./table";

/** Labels that tell no run from its neighbours; the report of a run has them. */
const OF_THE_MACHINE = ["kernel", "machine", "cgroup", "parent"];
/** Labels that people look for first: each has a column, if any run has it. */
const OWN_COLUMN = ["commit", "job"];
const FIRST = [...OWN_COLUMN, "branch", "pipeline"];
/** And last, behind those that the configuration names. */
const LAST = ["ci", "user", "unit", "container"];
const FIGURES = ["crossings.total", "package_json.lookups", "files.stat.calls", "files.open.calls", "milestones.loop_start", "time.wall_ns", "time.user_ns", "time.max_rss_bytes", "serialization.bytes"];

/** The address with other conditions; empty ones go. */
function asked(change: Record<string, string>): string {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(change)) {
    if (value === "") query.delete(key);
    else query.set(key, value);
  }
  return `?${query}`;
}

function to(path: string, parameters: Record<string, string>): string {
  const query = new URLSearchParams({ ...parameters, token: new URLSearchParams(location.search).get("token") ?? "" });
  return `${path}?${query}`;
}

/** A condition for both sides of a comparison: a comma in the value begins no other. */
const condition = (key: string, value: string) => `${key}=${value.replaceAll(",", "\\,")}`;

/** To a comparison of the runs that fit: what is asked for here holds for both sides. */
function comparison(base: string, head: string): string {
  const query = new URLSearchParams(location.search);
  for (const key of ["figure", "by", "run"]) query.delete(key);
  query.set("base", base);
  query.set("head", head);
  return `diff?${query}`;
}

/** The address without one of its labels, or with one more. */
function labelled(change: { without?: string; and?: string }): string {
  const query = new URLSearchParams(location.search);
  const labels = query.getAll("label").filter((label) => label !== "" && label !== change.without);
  if (change.and && !labels.includes(change.and)) labels.push(change.and);
  query.delete("label");
  for (const label of labels) query.append("label", label);
  return `?${query}`;
}

/** The labels of a run in the order in which they are asked for. */
export function labelsOf(labels: Record<string, string>, without: string[] = []): string {
  const place = (key: string) => (FIRST.includes(key) ? FIRST.indexOf(key) : FIRST.length + 1 + LAST.indexOf(key));
  const keys = Object.keys(labels).filter((key) => !OF_THE_MACHINE.includes(key) && !without.includes(key)).sort();
  return keys.sort((a, b) => place(a) - place(b)).map((key) => `${key}=${labels[key]}`).join(" ");
}

/** How long a start took: what is recorded of a server after its event loop began is no part of it. */
export const startTime = (run: Pick<Start, "duration_ns" | "loop_start_ns">) => run.loop_start_ns ?? run.duration_ns;

const when = (ns: number) => new Date(ns / 1e6).toISOString().replace("T", " ").slice(0, 19);

export function Starts({ data }: { data: Data }) {
  const starts = data.starts!;
  const query = new URLSearchParams(location.search);
  const [marked, setMarked] = useState<number[]>([]);
  const keys = [...new Set(starts.labels.map(([key]) => key))];
  const by = query.get("by") ?? "commit";
  // The newest first.
  const values = [...new Set(starts.runs.flatMap((run) => run.labels[by] ?? []))];
  const [base, setBase] = useState(values[1] ?? "");
  const [head, setHead] = useState(values[0] ?? "");
  const field = (name: string, label: string, placeholder: string, list?: string) => (
    <label class="choice">
      {label}
      <input type="search" name={name} value={query.get(name) ?? ""} placeholder={placeholder} list={list} onKeyDown={(event) => {
        if (event.key === "Enter") location.search = asked({ [name]: event.currentTarget.value });
      }} onChange={(event) => { location.search = asked({ [name]: event.currentTarget.value }); }} />
    </label>
  );
  const mark = (id: number, on: boolean) => setMarked(on ? [...marked, id].slice(-2) : marked.filter((one) => one !== id));
  const listed = starts.runs.length;
  const filtered = ["label", "command", "package", "days", "failed"].some((key) => query.get(key));
  return (
    <>
      <section class="verdict">
        <h2>{starts.total === null ? "Starts" : counted(starts.total, "start")} of Node.js</h2>
        <p class="note">{listed === starts.listed ? `The newest ${count(listed)}` : count(listed)} that fit are listed · {starts.store}</p>
        <div class="bar wrap" role="search">
          <label class="choice">
            Label
            <input type="search" name="label" placeholder="commit=3f1c2a" list="labels" onChange={(event) => {
              if (event.currentTarget.value) location.search = labelled({ and: event.currentTarget.value });
            }} />
          </label>
          {field("command", "Command contains", "app.js")}
          {field("package", "Loads package", "express")}
          {field("days", "Of the last days", "7")}
          <label class="choice">
            <input type="checkbox" name="failed" checked={query.get("failed") === "1"} onChange={(event) => { location.search = asked({ failed: event.currentTarget.checked ? "1" : "" }); }} />
            Failed
          </label>
          {query.getAll("label").filter((label) => label !== "").map((label) => (
            <a key={label} class="button" data-label={label} href={labelled({ without: label })} title="List runs without this label, too" aria-label={`Without the condition ${label}`}>{shortCommits(label)} ×</a>
          ))}
          <datalist id="labels">{starts.labels.map(([key, value]) => <option key={`${key}=${value}`} value={`${key}=${value}`} />)}</datalist>
        </div>
        {starts.labels_left_out > 0 && <p class="note" id="labels-left-out">Suggested are the {count(starts.labels.length)} labels that most runs have; {count(starts.labels_left_out)} others can be typed.</p>}
        {values.length > 1 && (
          <div class="bar wrap">
            <label class="choice">Base<select value={base} onChange={(event) => setBase(event.currentTarget.value)}>{values.map((value) => <option key={value} value={value}>{shortCommits(value)}</option>)}</select></label>
            <label class="choice">Head<select value={head} onChange={(event) => setHead(event.currentTarget.value)}>{values.map((value) => <option key={value} value={value}>{shortCommits(value)}</option>)}</select></label>
            <a class="button" data-compare="label" href={comparison(condition(by, base), condition(by, head))}>Compare {filtered ? "the runs of both that fit" : "all runs of both"}</a>
          </div>
        )}
        {listed > 0 && <p><a class="button" data-profile="all" href={`pprof${asked({ run: "" })}`} title="For go tool pprof: crossings, or of=METRIC in the address">Profile of {listed === 1 ? "this run" : `these ${count(listed)} runs`} (pprof)</a></p>}
        {marked.length === 2 && <p><a class="button" href={to("diff", { base: String(marked[0]), head: String(marked[1]) })}>Compare run {marked[0]} (base) with run {marked[1]} (head)</a></p>}
      </section>
      <section class="card" aria-labelledby="trend">
        <div class="bar wrap">
          <h3 id="trend">A figure from {by} to {by}</h3>
          {field("figure", "Figure", "crossings.total", "figures")}
          <datalist id="figures">{FIGURES.map((name) => <option key={name} value={name} />)}</datalist>
          <label class="choice">
            By label
            <select value={by} onChange={(event) => { location.search = asked({ by: event.currentTarget.value }); }}>
              {[...new Set([by, ...keys])].map((key) => <option key={key} value={key}>{key}</option>)}
            </select>
          </label>
        </div>
        {starts.trend_error && <p class="warning" role="note">{starts.trend_error}</p>}
        {starts.trend && warnings(starts.trend).map((text) => <p key={text} class="warning" role="note">{text}</p>)}
        {starts.trend && tooFew(starts.trend) && <p class="note">{tooFew(starts.trend)}</p>}
        {starts.trend ? <Chart trend={starts.trend} /> : !starts.trend_error && <p class="empty">Name a figure of the JSON, such as crossings.total or packages[express].self_ns, of the runs listed here.</p>}
      </section>
      {starts.trend && <Points trend={starts.trend} />}
      <Table<Start>
        name="starts"
        caption="Runs"
        rows={starts.runs}
        sort="-id"
        empty="No run fits."
        columns={[
          {
            key: "id", title: "Run", unit: "count", value: (run) => run.id,
            show: (run) => (
              <span class="nowrap">
                <input type="checkbox" aria-label={`Compare run ${run.id}`} checked={marked.includes(run.id)} onChange={(event) => mark(run.id, event.currentTarget.checked)} />{" "}
                <a href={to("report", { run: String(run.id) })}>{run.id}</a>
              </span>
            ),
          },
          { key: "command", title: "Command", unit: "text", value: (run) => run.command.join(" "), show: (run) => <span class="brief" title={run.command.join(" ")}>{run.command.join(" ")}</span> },
          { key: "outcome", title: "Ended", unit: "text", value: (run) => run.outcome, help: "Exit status, if it is not 0, or signal; settled, limit, interrupt: it ran on when recording ended" },
          ...OWN_COLUMN.filter((label) => starts.runs.some((run) => run.labels[label] !== undefined)).map((label): Column<Start> => ({
            key: label, title: capital(label), unit: "text", value: (run) => run.labels[label] ?? null, show: (run) => <span class="brief" title={run.labels[label]}>{shortCommits(run.labels[label] ?? "")}</span>,
          })),
          { key: "node_version", title: "Node.js", unit: "text", value: (run) => run.node_version },
          { key: "started", title: "Started (UTC)", unit: "text", value: (run) => when(run.started_unix_ns) },
          { key: "time", title: "Time", unit: "ns", value: startTime, show: (run) => time(startTime(run)), help: "To the exit or the end of recording; of a server to the start of its event loop" },
          { key: "crossings", title: "Crossings", unit: "count", value: (run) => run.crossings },
          { key: "lookups", title: "Lookups", unit: "count", value: (run) => run.lookups },
          { key: "mode", title: "Mode", unit: "text", value: (run) => (run.thinned ? `${run.mode}, thinned` : run.mode) },
          { key: "labels", title: "Labels", unit: "text", value: (run) => labelsOf(run.labels), show: (run) => <span title={labelsOf(run.labels)}>{labelsOf(run.labels, OWN_COLUMN)}</span> },
        ]}
      />
    </>
  );
}

/** The first three, and how many more. */
function most(all: [string, number][]): string {
  const named = all.slice(0, 3).map(([name, runs]) => `${count(runs)} × ${name}`);
  const more = all.length - named.length;
  return (more > 0 ? [...named, `${count(more)} ${more === 1 ? "other" : "others"}`] : named).join(", ");
}

/** What to know before the line. */
export function warnings(trend: Trend): string[] {
  const { programs, settings } = trend;
  const all: string[] = [];
  if (programs.length > 1) all.push(`These runs are of ${count(programs.length)} programs (${most(programs)}): each point mixes them, so no change is marked. Narrow the list to one by its command.`);
  if (settings.length > 1) {
    const of = most(settings.map((one) => [one.name, one.runs]));
    all.push(`This figure depends on how and where it was recorded, and these runs differ by that (${of}): ${programs.length > 1 ? "a step can be of that" : "changes are marked among the runs of one of these only, and any other step can be of that"}.`);
  }
  if (trend.all_failed) all.push("All these runs fail: none came to a good end.");
  if (trend.ended_otherwise > 0) all.push(`Left out: ${counted(trend.ended_otherwise, "run")} that failed or ended otherwise than most.`);
  if (trend.left_out > 0) all.push(`Left out: ${counted(trend.left_out, "run")} of which something is missing: counts of such are too low.`);
  return all;
}

/** With fewer values chance parts them as far as any change can. */
const SIDE = 7;

/** Why no change of what varies with the machine can be marked, if so. */
export function tooFew(trend: Trend): string | null {
  const known = Math.max(0, ...trend.settings.map((one) => one.points));
  // Of several ways of recording each has a part of the chance.
  const side = trend.settings.length > 1 ? SIDE + 1 : SIDE;
  if (trend.noise !== "machine" || trend.programs.length > 1 || known >= 2 * side) return null;
  return `No change is marked yet: this figure varies with the machine from ${trend.by} to ${trend.by}, which takes ${count(side)} values on each side of a change to tell from one. Known ${known === 1 ? "is" : "are"} ${count(known)}${trend.settings.length > 1 ? ", of those recorded alike" : ""}.`;
}

const HEIGHT = 250;
const TOP = 34;
const LEFT = 76;
const RIGHT = 12;
const BOTTOM = 22;

/** Pixels of a character of the axis, about. */
const CHARACTER = 6.7;
const LONGEST = 12;

/** Values in so few characters that names of an axis have room. */
export function brief(value: string): string {
  const short = shortCommits(value);
  return short.length > LONGEST ? `${short.slice(0, LONGEST - 1)}…` : short;
}

/** Which values of an axis have their names there, where so many pixels lie between two: as many as do not overlap. */
export function named(values: string[], step: number): number[] {
  const widest = Math.max(0, ...values.map((value) => brief(value).length)) * CHARACTER + 10;
  const every = Math.max(1, Math.ceil(widest / step));
  return values.map((_, index) => index).filter((index) => index % every === 0);
}

function Chart({ trend }: { trend: Trend }) {
  const [holder, offered] = useWidth<HTMLDivElement>();
  const known = trend.points.filter((point) => point.median !== null);
  if (known.length === 0) return <p class="empty">No run knows this figure.</p>;
  const unit = trend.unit;
  const low = Math.min(...known.map((point) => point.minimum!));
  const high = Math.max(...known.map((point) => point.maximum!));
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  const width = Math.max(offered, LEFT + RIGHT + trend.points.length * 14);
  const x = (index: number) => LEFT + ((index + 0.5) / trend.points.length) * (width - LEFT - RIGHT);
  const y = (value: number) => TOP + (1 - (value - low + room) / (high - low + 2 * room)) * (HEIGHT - BOTTOM - TOP);
  const values = trend.points.map((point) => point.value);
  /** Kept inside of the picture. */
  const inside = (at: number, text: string) => Math.min(Math.max(at, (text.length * CHARACTER) / 2), width - (text.length * CHARACTER) / 2);
  const changes = trend.points.flatMap((point, index) => (point.change ? [{ index, change: point.change }] : []));
  const line = trend.points.flatMap((point, index) => (point.median === null ? [] : [`${x(index)},${y(point.median)}`])).join(" ");
  return (
    <div class="scroll" ref={holder}>
      <svg class="trend" width={width} height={HEIGHT} role="img" aria-label={`${trend.figure} by ${trend.by}: ${trend.points.filter((point) => point.change).length} changes in ${trend.points.length} values. The table below has the same figures.`}>
        {[low, (low + high) / 2, high].filter((value, index, all) => all.indexOf(value) === index).map((value) => (
          <g key={value}>
            <line x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} stroke="var(--line)" />
            <text x={LEFT - 6} y={y(value) + 4} text-anchor="end">{inUnit(value, unit)}</text>
          </g>
        ))}
        {changes.map(({ index, change }, nth) => {
          const said = `${change.after > change.before ? "+" : "−"}${inUnit(Math.abs(change.after - change.before), unit)} from ${brief(values[index]!)} on`;
          return (
            <g key={index}>
              <line x1={x(index - 0.5)} x2={x(index - 0.5)} y1={TOP - 4} y2={HEIGHT - BOTTOM} stroke={change.after > change.before ? "var(--more)" : "var(--less)"} stroke-width="2" stroke-dasharray="4 3" />
              <text data-change={values[index]} x={inside(x(index - 0.5), said)} y={nth % 2 === 0 ? 12 : 26} text-anchor="middle">{said}</text>
            </g>
          );
        })}
        {named(values, (width - LEFT - RIGHT) / values.length).map((index) => (
          <text key={index} data-value={values[index]} x={inside(x(index), brief(values[index]!))} y={HEIGHT - 6} text-anchor="middle">{brief(values[index]!)}</text>
        ))}
        <polyline points={line} fill="none" stroke="var(--accent)" stroke-width="1.5" />
        {trend.points.map((point, index) => point.median !== null && (
          <g key={index}>
            <title>{`${point.value}: ${inUnit(point.median, unit)} (${inUnit(point.minimum!, unit)} to ${inUnit(point.maximum!, unit)}, ${counted(point.runs, "run")})`}</title>
            <line x1={x(index)} x2={x(index)} y1={y(point.minimum!)} y2={y(point.maximum!)} stroke="var(--accent)" stroke-opacity="0.5" />
            <circle cx={x(index)} cy={y(point.median)} r="3.2" fill="var(--accent)" />
          </g>
        ))}
      </svg>
    </div>
  );
}

function Points({ trend }: { trend: Trend }) {
  const unit = trend.unit;
  const shown = (value: number | null) => (value === null ? "" : inUnit(value, unit));
  return (
    <Table name="trend" caption={`${trend.figure} by ${trend.by}`} rows={trend.points} first={20} columns={[
      { key: "value", title: trend.by, unit: "text", value: (point) => point.value },
      { key: "first", title: "First run (UTC)", unit: "text", value: (point) => when(point.first_unix_ns) },
      { key: "runs", title: "Runs", unit: "count", value: (point) => point.runs },
      { key: "median", title: "Median", unit: "count", value: (point) => point.median, show: (point) => shown(point.median) },
      { key: "minimum", title: "Least", unit: "count", value: (point) => point.minimum, show: (point) => shown(point.minimum) },
      { key: "maximum", title: "Most", unit: "count", value: (point) => point.maximum, show: (point) => shown(point.maximum) },
      {
        key: "change", title: "Change", unit: "count", value: (point) => (point.change ? point.change.after - point.change.before : null),
        show: (point) => point.change && (
          <span class={point.change.after > point.change.before ? "loses" : "gains"}>
            {point.change.after > point.change.before ? "+" : "−"}{inUnit(Math.abs(point.change.after - point.change.before), unit)} {point.change.exact ? "(exact)" : `(p ${point.change.p! < 0.0001 ? "<0.0001" : point.change.p!.toFixed(4)})`}
          </span>
        ),
      },
    ]} />
  );
}
