// The first screen: where the start went, in sentences, then pictures.
import { scaleLinear } from "d3-scale";
import type { Shown } from "./context";
import type { Measured, Package, Run } from "./data";
import { findings, gaps, packageName, startup, verdict } from "./findings";
import { bytes, count, counted, inUnit, percent, phaseName, tickLabels, time } from "./format";
import { phaseColour } from "./colours";
import { During } from "./during";
import { link, OF_A_VIEW, span } from "./state";
import { CopyButton, Name, Table } from "./table";

export function Overview({ shown }: { shown: Shown }) {
  const { run, side } = shown;
  const missing = gaps(run, side.losses);
  const during = span.value;
  if (during) {
    return (
      <>
        <During shown={shown} during={during} />
        <Phases run={run} />
      </>
    );
  }
  return (
    <>
      <section class="verdict">
        <h2>{verdict(run)}</h2>
        <Findings run={run} />
        {missing.length > 0 && (
          <div class="warning" role="note">
            <strong>What is missing from these figures</strong>
            <ul>
              {missing.slice(0, 12).map((gap, index) => <li key={index}>{gap}</li>)}
              {missing.length > 12 && <li>and {missing.length - 12} more</li>}
            </ul>
          </div>
        )}
      </section>
      <Phases run={run} />
      <Figures run={run} other={otherSide(shown)} />
      <div class="columns">
        <TopPackages run={run} />
        <BoxPlots measured={side.measured} />
      </div>
      <About shown={shown} />
    </>
  );
}

function Findings({ run }: { run: Run }) {
  const list = findings(run);
  if (list.length === 0) {
    return <p class="empty">Nothing of this start is known that takes a share worth a sentence.</p>;
  }
  return (
    <ol class="findings">
      {list.map((finding) => (
        <li key={finding.kind} data-finding={finding.kind}>
          <span class="figure">{finding.figure}</span>
          <span class="meter" aria-hidden="true">
            <i style={{ width: `${Math.min(100, finding.share * 100)}%` }} />
          </span>
          <span class="sentence">
            {finding.sentence}
            {finding.advice && <em> {finding.advice}</em>}{" "}
            <a href={link({ ...OF_A_VIEW, ...finding.view })} aria-label={`Show: ${finding.sentence}`}>Show</a>
          </span>
        </li>
      ))}
    </ol>
  );
}

/** From exec to the end, to scale. */
export function Phases({ run, of = "", scale = 0 }: { run: Run; of?: string; scale?: number }) {
  const id = `phases-${of}`;
  const phases = run.phases;
  if (phases.length === 0) return null;
  const from = Math.min(0, phases[0]!.start_ns);
  const until = Math.max(phases.at(-1)!.end_ns, from + 1);
  const end = Math.max(until, from + scale);
  const width = 1000;
  const x = scaleLinear([from, end], [0, width]);
  const loop = run.milestones.loop_start;
  return (
    <section class="card" aria-labelledby={id}>
      <h3 id={id}>{of === "" ? "From exec to exit" : `${of}, from exec to exit`}</h3>
      <nav class="phasebar" aria-label={`Phases ${of} to scale: each selects its span on the timeline`} style={{ width: `${((until - from) / (end - from)) * 100}%` }}>
        {phases.map((phase) => {
          const share = (phase.end_ns - phase.start_ns) / (until - from);
          return (
            <a
              key={phase.name}
              class="phase"
              href={link({ ...OF_A_VIEW, view: "timeline", time: `${Math.round(phase.start_ns)}..${Math.round(phase.end_ns)}` })}
              style={{ flexGrow: Math.max(share, 0.002), background: phaseColour(phase.name) }}
              title={`${phaseName(phase.name)}: ${time(phase.end_ns - phase.start_ns)}, ${percent(phase.end_ns - phase.start_ns, until - from)}`}
            >
              <b class={share > 0.09 ? "" : "hidden"}>{phaseName(phase.name)} </b>
              <span class={share > 0.05 ? "" : "hidden"}>{time(phase.end_ns - phase.start_ns)}</span>
            </a>
          );
        })}
      </nav>
      <svg class="axis" viewBox={`0 0 ${width} 22`} preserveAspectRatio="none" aria-hidden="true">
        {x.ticks(10).map((tick) => <line key={tick} x1={x(tick)} x2={x(tick)} y1="0" y2="5" />)}
        {loop !== null && loop !== undefined && <line class="mark" x1={x(loop)} x2={x(loop)} y1="0" y2="22" />}
      </svg>
      <div class="ticks" aria-hidden="true">
        {x.ticks(10).filter((_, index) => index % 2 === 0).map((tick) => {
          const at = x(tick) / width;
          if (at > 0.97) return null;
          return <span key={tick} style={{ left: `${at * 100}%` }}>{time(tick)}</span>;
        })}
      </div>
      <details>
        <summary>What happened in each phase</summary>
        <PhaseTable run={run} of={of} />
      </details>
    </section>
  );
}

function PhaseTable({ run, of }: { run: Run; of: string }) {
  return (
    <Table
      name={of === "" ? "phases" : `phases-${of}`}
      caption={`Phases of the main node process${of === "" ? "" : `, ${of}`}`}
      rows={run.phases}
      columns={[
        { key: "name", title: "Phase", unit: "text", value: (phase) => phase.name, show: (phase) => phaseName(phase.name) },
        { key: "start_ns", title: "Start", unit: "ns", value: (phase) => phase.start_ns },
        { key: "time_ns", title: "Time", unit: "ns", value: (phase) => phase.end_ns - phase.start_ns, bar: true },
        { key: "crossings", title: "Crossings", unit: "count", value: (phase) => phase.crossings },
        { key: "crossings_self_ns", title: "In C++", unit: "ns", value: (phase) => phase.crossings_self_ns },
        { key: "lookups", title: "Lookups", unit: "count", value: (phase) => phase.lookups, help: "Of package.json" },
        { key: "stats", title: "Stats", unit: "count", value: (phase) => phase.stats },
        { key: "opens", title: "Opens", unit: "count", value: (phase) => phase.opens },
        { key: "files_ns", title: "In files", unit: "ns", value: (phase) => phase.files_ns },
        { key: "compilations", title: "Compiled", unit: "count", value: (phase) => phase.compilations },
        { key: "compile_ns", title: "Compiling", unit: "ns", value: (phase) => phase.compile_ns },
      ]}
    />
  );
}

/** The shown run of the other side of a diff. */
function otherSide({ data, side }: Shown): { name: string; run: Run } | null {
  const other = data.kind === "diff" ? data.sides?.find((one) => one !== side) : undefined;
  const run = other?.profile.runs[other.shown];
  return other && run ? { name: other.name, run } : null;
}

type Tile = [key: string, name: string, value: number | null, unit: string, view: string];

function tilesOf(run: Run): Tile[] {
  const { ns, reached } = startup(run);
  const cpu = run.time.user_ns !== null && run.time.system_ns !== null ? run.time.user_ns + run.time.system_ns : null;
  // Count mode does not know.
  const modules = run.mode === "count" && run.modules.length === 0 ? null : run.modules.filter((module) => module.kind !== "builtin").length;
  return [
    ["startup", reached ? "to the event loop" : "to the end", ns, "ns", "timeline"],
    ["wall", "to the exit", run.time.wall_ns, "ns", "timeline"],
    ["cpu", "CPU time", cpu, "ns", "flame"],
    ["crossings", "calls to C++", run.crossings.total, "count", "tables"],
    ["modules", modules === 1 ? "module loaded" : "modules loaded", modules, "count", "modules"],
    ["lookups", "package.json lookups", (run.package_json.lookups || run.package_json.opens) ?? run.package_json.lookups, "count", "tables"],
    ["stats", "stats", run.files.stat.calls, "count", "tables"],
    ["compile", "compiling", run.compile.total_ns, "ns", "tables"],
    ["memory", "peak memory", run.time.max_rss_bytes, "bytes", "overview"],
  ];
}

function Figures({ run, other }: { run: Run; other: { name: string; run: Run } | null }) {
  const others = other ? tilesOf(other.run) : [];
  return (
    <section class="tiles" aria-label={other ? `Figures of this run, and of one of ${other.name}` : "Figures"}>
      {tilesOf(run).map(([key, name, value, unit, view], index) => (
        <a key={key} href={link({ ...OF_A_VIEW, view })} data-figure={key} {...(value === null ? {} : { "data-value": String(value) })}>
          <b>{value === null ? "–" : inUnit(value, unit)}</b>
          <span>{name}</span>
          {other && others[index]?.[2] != null && <small>{other.name}: {inUnit(others[index]![2]!, unit)}</small>}
        </a>
      ))}
    </section>
  );
}

function TopPackages({ run }: { run: Run }) {
  const list = run.packages.slice(0, 10);
  if (list.length === 0) {
    return (
      <section class="card">
        <h3>Packages</h3>
        <p class="empty">No stacks were recorded, so no package can be blamed.</p>
      </section>
    );
  }
  const most = Math.max(1, ...list.map((one) => one.self_ns));
  return (
    <section class="card" aria-labelledby="packages">
      <h3 id="packages">Packages by their own time</h3>
      <ol class="bars">
        {list.map((one: Package) => (
          <li key={`${one.kind}${one.directory}`}>
            <a href={link({ ...OF_A_VIEW, view: "modules", show: "packages", filter: one.name ?? "" })}>{packageName(one)}</a>
            <span class="track" aria-hidden="true"><i style={{ width: `${(one.self_ns / most) * 100}%` }} class={one.kind} /></span>
            <span class="value" data-value={String(one.self_ns)}>{time(one.self_ns)}</span>
          </li>
        ))}
      </ol>
      <p class="note">
        To find, read, compile and run its files, without what it requires. In all {time(run.packages.reduce((sum, one) => sum + one.self_ns, 0))}.
      </p>
    </section>
  );
}

function quantile(sorted: number[], q: number): number {
  const at = (sorted.length - 1) * q;
  const low = sorted[Math.floor(at)] ?? 0;
  return low + ((sorted[Math.ceil(at)] ?? low) - low) * (at - Math.floor(at));
}

/** Least, quarters and most; whiskers end at the last value within one and a half times the middle half. */
export function boxOf(values: number[]) {
  const sorted = [...values].sort((a, b) => a - b);
  const [q1, median, q3] = [quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)];
  const reach = 1.5 * (q3 - q1);
  const inside = sorted.filter((value) => value >= q1 - reach && value <= q3 + reach);
  return { q1, median, q3, low: inside[0] ?? median, high: inside.at(-1) ?? median, sorted };
}

export function vegaLite(measured: Measured[]) {
  return {
    $schema: "https://vega.github.io/schema/vega-lite/v5.json",
    description: "Wall times of runs, by nodeprof",
    data: { values: measured.flatMap((one) => one.wall.map((wall) => ({ command: one.name, wall_ms: wall * 1e3 }))) },
    layer: [
      { mark: { type: "boxplot", extent: 1.5 } },
      { mark: { type: "point", opacity: 0.4 }, encoding: { yOffset: { field: "jitter", type: "quantitative" } }, transform: [{ calculate: "random()", as: "jitter" }] },
    ],
    encoding: {
      y: { field: "command", type: "nominal", title: null, sort: null },
      x: { field: "wall_ms", type: "quantitative", title: "wall time (ms)", scale: { zero: false } },
    },
  };
}

const MEASURES = [
  ["wall", "Wall time", 1e9, "ns"],
  ["user", "CPU time in user mode", 1e9, "ns"],
  ["system", "CPU time in the kernel", 1e9, "ns"],
  ["max_rss", "Peak memory", 1, "bytes"],
] as const;

export function BoxPlots({ measured }: { measured: Measured[] }) {
  const there = measured.filter((one) => one.wall.length >= 3);
  if (there.length === 0) return null;
  const bare = there.every((one) => one.bare);
  return (
    <section class="card" aria-labelledby="boxes">
      <div class="bar">
        <h3 id="boxes">Runs {bare ? "without probes" : "with probes"}</h3>
        <CopyButton label="Copy Vega-Lite" text={() => JSON.stringify(vegaLite(there), null, 2)} />
      </div>
      {MEASURES.map(([key, name, scale, unit]) => {
        const rows = there.map((one) => ({ name: one.name, values: one[key].map((value) => value * scale) })).filter((row) => row.values.length >= 3);
        return rows.length > 0 ? <Boxes key={key} name={name} unit={unit} rows={rows} /> : null;
      })}
      <p class="note">Box: the middle half, with the median. Whiskers: up to one and a half times its width. Each dot is a run.</p>
    </section>
  );
}

/** A label that would reach over an edge goes inwards. */
export function anchorOf(at: number, label: string): "start" | "middle" | "end" {
  const half = label.length * 3.2;
  if (at < half) return "start";
  return at > 520 - half ? "end" : "middle";
}

function Boxes({ name, unit, rows }: { name: string; unit: "ns" | "bytes"; rows: { name: string; values: number[] }[] }) {
  const all = rows.flatMap((row) => row.values);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const room = (high - low || high || 1) * 0.06;
  const x = scaleLinear([low - room, high + room], [0, 520]);
  const height = 34;
  const ticks = x.ticks(4);
  const label = tickLabels(ticks, unit);
  return (
    <figure class="boxes">
      <figcaption>{name}</figcaption>
      {rows.map((row) => {
        const box = boxOf(row.values);
        const words = `${row.name}: median ${inUnit(box.median, unit)}, middle half ${inUnit(box.q1, unit)} to ${inUnit(box.q3, unit)}, ${counted(row.values.length, "run")}`;
        return (
          <div class="boxrow" key={row.name}>
            <span class="name" title={row.name}><Name text={row.name} /></span>
            <svg viewBox={`0 0 520 ${height}`} role="img" aria-label={words}>
              <title>{words}</title>
              {box.sorted.map((value, index) => (
                <circle key={index} cx={x(value)} cy={height / 2 + (((index * 7) % 11) - 5) * 1.4} r="2.2" class="dot" />
              ))}
              <line x1={x(box.low)} x2={x(box.q1)} y1={height / 2} y2={height / 2} />
              <line x1={x(box.q3)} x2={x(box.high)} y1={height / 2} y2={height / 2} />
              <rect x={x(box.q1)} width={Math.max(1, x(box.q3) - x(box.q1))} y="8" height={height - 16} rx="2" />
              <line class="median" x1={x(box.median)} x2={x(box.median)} y1="6" y2={height - 6} />
            </svg>
            <span class="value">{inUnit(box.median, unit)}</span>
          </div>
        );
      })}
      <div class="boxrow">
        <span class="name" />
        <svg viewBox="0 0 520 16" aria-hidden="true">
          {ticks.map((tick) => (
            <g key={tick}>
              <line x1={x(tick)} x2={x(tick)} y1="0" y2="4" />
              <text x={x(tick)} y="14" text-anchor={anchorOf(x(tick), label(tick))}>{label(tick)}</text>
            </g>
          ))}
        </svg>
        <span class="value" />
      </div>
    </figure>
  );
}

function About({ shown }: { shown: Shown }) {
  const { run, side } = shown;
  const started = run.started_unix_ns > 0 ? new Date(run.started_unix_ns / 1e6).toISOString().replace("T", " ").slice(0, 19) : "";
  const items: [string, string][] = [
    ["Command", run.command.join(" ")],
    ["Folder", run.directory],
    ["Node.js", run.node ? `${run.node.version ?? "unknown version"}, V8 ${run.node.v8 ?? "?"}, ${run.node.path}` : "none"],
    ["Recorded", `${started} UTC, mode ${run.mode}, ended by ${run.ended_by || "exit"}`],
    ["Run", `${side.number} of ${side.runs} in ${side.file}`],
    ["Tracing itself", `${counted(run.overhead.probe_hits, "probe hit")}${run.overhead.ns_per_hit > 0 ? ` of ${run.overhead.ns_per_hit.toFixed(0)} ns, about ${time(run.overhead.estimated_ns)} of the probes alone over all threads` : ", whose time was not measured"}`],
    ["CPU samples", (run.samples.count ?? 0) > 0 ? `${count(run.samples.count)}, for ${time(run.samples.cpu_ns)}` : "none"],
    ["Memory", run.time.max_rss_bytes !== null ? `peak ${bytes(run.time.max_rss_bytes)}` : ""],
    ...Object.entries(run.labels).map(([key, value]): [string, string] => [`Label ${key}`, value]),
  ];
  return (
    <section class="card" aria-labelledby="about">
      <h3 id="about">This recording</h3>
      <dl class="about">
        {items.filter(([, value]) => value !== "").map(([key, value]) => (
          <div key={key}>
            <dt>{key}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
