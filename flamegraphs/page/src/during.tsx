// The overview of a selected span: what happened in it, added up from single events.
import type { Shown } from "./context";
import type { FamilyName } from "./data";
import { byName } from "./colours";
import { bytes, count, inUnit, percent, time } from "./format";
import type { Events } from "./model";
import { placeOfPackage } from "./modules";
import { isOfCaller } from "./regroup";
import { link, OF_A_VIEW } from "./state";

interface Sum {
  events: number;
  own: number;
  detail: number;
}

function sum(events: Events, name: FamilyName, [from, until]: [number, number], keep: (node: number) => boolean = () => true): Sum {
  const { at, own, detail, node, length } = events.family(name);
  const result = { events: 0, own: 0, detail: 0 };
  for (let index = 0; index < length; index++) {
    if (at[index]! < from || at[index]! >= until || !keep(node[index]!)) continue;
    result.events++;
    result.own += Math.max(0, own[index]!);
    result.detail += Math.max(0, detail[index]!);
  }
  return result;
}

/** CPU time by the innermost package: Node's own code counts for the package that called it. */
function packagesOf(events: Events, [from, until]: [number, number]): [string, number][] {
  const { at, own, node, length } = events.family("samples");
  const sums = new Map<string, number>();
  for (let index = 0; index < length; index++) {
    if (at[index]! < from || at[index]! >= until) continue;
    let name = "(no JavaScript)";
    for (let place = node[index]!; place >= 0; place = events.parent[place]!) {
      const frame = events.frame[place]!;
      const kind = events.frames.kinds[frame];
      if (kind === "javascript" && isOfCaller(events.frames.scripts[frame] ?? null, "package")) name = "(program)";
      else if (kind === "javascript") {
        name = events.frames.packages[frame] ?? "(program)";
        break;
      }
      if (kind === "node" && name !== "(program)") name = "node";
    }
    sums.set(name, (sums.get(name) ?? 0) + own[index]!);
  }
  return [...sums].sort((a, b) => b[1] - a[1]).slice(0, 12);
}

export function During({ shown, during }: { shown: Shown; during: [number, number] }) {
  const { events, run } = shown;
  if (!events) return <p class="empty">No events were recorded.</p>;
  const operation = (node: number) => {
    const above = events.parent[node]!;
    return above < 0 ? "" : events.frames.names[events.frame[above]!]!;
  };
  const crossings = sum(events, "crossings", during);
  const stats = sum(events, "files", during, (node) => operation(node) === "stat");
  const files = sum(events, "files", during);
  const read = sum(events, "files", during, (node) => operation(node) === "read");
  const lookups = sum(events, "lookups", during);
  const values = sum(events, "serializations", during);
  const compiled = sum(events, "compilations", during);
  const cpu = sum(events, "samples", during);
  const packages = packagesOf(events, during);
  const most = Math.max(1, ...packages.map(([, ns]) => ns));
  const modules = run.modules.filter((module) => module.start_ns !== null && module.start_ns >= during[0] && module.start_ns < during[1] && module.kind !== "builtin");
  const tiles: [string, string, string, Record<string, string>][] = [
    [time(cpu.own), "CPU time, by samples", "cpu", { view: "flame", metric: "cpu" }],
    [count(crossings.events), `calls to C++, ${time(crossings.own)} in them`, "crossings", { view: "tables", table: "callbacks" }],
    [count(modules.length), "modules begun", "modules", { view: "modules", show: "modules" }],
    [count(lookups.events), "package.json lookups", "lookups", { view: "tables", table: "package-json" }],
    [count(stats.events), "stats", "stats", { view: "tables", table: "files" }],
    [count(files.events), `file operations, ${time(files.own)} in them`, "files", { view: "tables", table: "files" }],
    [bytes(read.detail), "read", "bytes", { view: "tables", table: "files" }],
    [count(compiled.events), `compilations, ${time(compiled.own)} in them`, "compilations", { view: "tables", table: "compilation" }],
    [count(values.events), `values converted, ${time(values.own)} in them`, "values", { view: "tables", table: "serialization" }],
  ];
  return (
    <>
      <section class="verdict">
        <h2>The {time(during[1] - during[0])} from {time(during[0])} to {time(during[1])}</h2>
        <p class="lead">{percent(during[1] - during[0], run.time.wall_ns)} of the run. Added up from single events; calls that were only summed are not in it.</p>
      </section>
      <section class="tiles" aria-label="Figures of the span">
        {tiles.map(([value, name, key, view]) => (
          <a key={key} href={link({ ...OF_A_VIEW, ...view })} data-figure={`during-${key}`}>
            <b>{value}</b>
            <span>{name}</span>
          </a>
        ))}
      </section>
      {packages.length > 0 && (
        <section class="card" aria-labelledby="during-packages">
          <h3 id="during-packages">CPU time by package</h3>
          <ol class="bars">
            {packages.map(([name, ns]) => (
              <li key={name}>
                <a href={link({ ...OF_A_VIEW, ...placeOfPackage(run, name) })}>{name}</a>
                <span class="track" aria-hidden="true"><i style={{ width: `${(ns / most) * 100}%`, background: byName(name) }} /></span>
                <span class="value">{inUnit(ns, "ns")}</span>
              </li>
            ))}
          </ol>
          <p class="note">Of the innermost package on each sample’s stack: Node’s own code counts for the package that called it.</p>
        </section>
      )}
    </>
  );
}
