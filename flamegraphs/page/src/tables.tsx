// Callbacks, package.json, files, serialization, compilation, processes: as in the report's JSON, or of a span of time.
import { useMemo } from "preact/hooks";
import type { Shown } from "./context";
import type { Callback, FileOperation, PackageJsonFile, PathRow, Process, Run, Script } from "./data";
import { walks } from "./findings";
import { bytes, commandLine, count, counted, shortPath, time } from "./format";
import { nestedIn, type Events } from "./model";
import { get, link, OF_A_VIEW, set, span } from "./state";
import { Table, type Column } from "./table";
import { Tabs } from "./tabs";

const TABLES = [
  ["callbacks", "Callbacks"],
  ["package-json", "package.json"],
  ["files", "Files"],
  ["serialization", "Serialization"],
  ["compilation", "Compilation"],
  ["processes", "Processes"],
] as const;

export function Tables({ shown }: { shown: Shown }) {
  const table = get("table", "callbacks");
  const { run, events } = shown;
  const during = span.value;
  return (
    <>
      <Tabs label="Tables" name="table" tabs={TABLES} chosen={table} reset={{ filter: null, sort: null, repeated: null }} />
      {during && table !== "processes" && (
        <p class="note">Of the selected span only: counted from single events, so calls that were only summed are not in it.</p>
      )}
      {table === "callbacks" && <Callbacks run={run} events={events} during={during} />}
      {table === "package-json" && <PackageJson run={run} events={events} during={during} />}
      {table === "files" && <Files run={run} events={events} during={during} />}
      {table === "serialization" && <Serialization run={run} events={events} during={during} />}
      {table === "compilation" && <Compilation run={run} events={events} during={during} />}
      {table === "processes" && <Processes run={run} />}
    </>
  );
}

interface Of {
  run: Run;
  events: Events | null;
  during: [number, number] | null;
}

/** Sums the events of a family that begin in a span, by what `key` says of their innermost frame. */
function grouped<Row>(
  events: Events | null,
  family: Parameters<Events["family"]>[0],
  during: [number, number],
  key: (frame: number, node: number) => string,
  make: (frame: number, node: number) => Row,
  add: (row: Row, duration: number, own: number, detail: number, nested: boolean) => void,
): Row[] {
  if (!events) return [];
  const rows = new Map<string, Row>();
  const { at, duration, own, detail, node, length } = events.family(family);
  const nested = nestedIn(events.family(family));
  for (let index = 0; index < length; index++) {
    if (at[index]! < during[0] || at[index]! >= during[1]) continue;
    const place = node[index]!;
    const frame = events.frame[place]!;
    const name = key(frame, place);
    let row = rows.get(name);
    if (!row) {
      row = make(frame, place);
      rows.set(name, row);
    }
    add(row, duration[index]!, own[index]!, detail[index]!, nested[index] === 1);
  }
  return [...rows.values()];
}

const KINDS: Record<string, string> = { callback: "slow", fast: "fast", getter: "getter", construct: "construct" };

function callbacksDuring(events: Events | null, during: [number, number]): Callback[] {
  return grouped<Callback>(
    events,
    "crossings",
    during,
    (frame) => String(frame),
    (frame) => {
      const name = events!.frames.names[frame]!.replace(/ \[(fast|getter|construct)\]$/, "");
      // Add-ons are called by their files, which have dots themselves.
      const dot = name.startsWith("(add-on) ") ? name.lastIndexOf(".") : name.indexOf(".");
      return {
        binding: name.slice(0, Math.max(0, dot)),
        function: name.slice(dot + 1),
        kind: KINDS[events!.frames.kinds[frame]!] ?? "slow",
        calls: 0,
        timed_calls: 0,
        unfinished: 0,
        total_ns: null,
        self_ns: null,
        total_corrected_ns: null,
      };
    },
    (row, duration, own, unfinished) => {
      row.calls++;
      row.unfinished += unfinished;
      if (duration >= 0) {
        row.timed_calls++;
        row.total_ns = (row.total_ns ?? 0) + duration;
        row.self_ns = (row.self_ns ?? 0) + own;
      }
    },
  );
}

function Callbacks({ run, events, during }: Of) {
  const rows = useMemo(() => (during ? callbacksDuring(events, during) : run.crossings.callbacks), [run, events, during]);
  const columns: Column<Callback>[] = [
    { key: "binding", title: "Binding", unit: "text", value: (row) => row.binding },
    { key: "function", title: "Function", unit: "text", value: (row) => row.function },
    { key: "kind", title: "Kind", unit: "text", value: (row) => row.kind },
    { key: "calls", title: "Calls", unit: "count", value: (row) => row.calls, bar: true },
    { key: "total_ns", title: "Total", unit: "ns", value: (row) => row.total_ns },
    { key: "self_ns", title: "Self", unit: "ns", value: (row) => row.self_ns, bar: true },
    { key: "per_call", title: "Per call", unit: "ns", value: (row) => (row.total_ns !== null && row.timed_calls > 0 ? row.total_ns / row.timed_calls : null) },
    { key: "total_corrected_ns", title: "Less probes", unit: "ns", value: (row) => row.total_corrected_ns, help: "Total less the estimated cost of the probes that were hit inside" },
    { key: "unfinished", title: "No return", unit: "count", value: (row) => row.unfinished, help: "Calls that never returned" },
  ];
  const { total, by_kind, self_ns } = run.crossings;
  return (
    <>
      {!during && total !== null && (
        <p class="lead">
          <b data-figure="crossings" data-value={total}>{counted(total, "call")}</b> from JavaScript to C++ ({(["slow", "fast", "getter", "construct"] as const)
            .filter((kind) => (by_kind[kind] ?? 0) > 0)
            .map((kind) => `${count(by_kind[kind] ?? 0)} ${kind}`)
            .join(", ")}){self_ns !== null && `, ${time(self_ns)} in C++ itself`}; {count(by_kind["to_js"] ?? 0)} back to JavaScript.
        </p>
      )}
      <Table name="callbacks" caption="C++ functions that JavaScript called" rows={rows} columns={columns} sort="-self_ns" addressed />
      {!during && run.crossings.to_js.length > 0 && (
        <Table name="to-js" caption="C++ calls JavaScript" rows={run.crossings.to_js} columns={columns.slice(0, 6)} sort="-self_ns" />
      )}
    </>
  );
}

/** Count mode takes no times of system calls. */
const timed = (run: Run) => run.mode !== "count";

/** What is added up of single events is known. */
type CountedFile = PackageJsonFile & Record<"lookups" | "opens" | "opens_failed" | "reads" | "stats" | "bytes", number>;

function packageJsonDuring(run: Run, events: Events | null, during: [number, number]): PackageJsonFile[] {
  if (!events) return [];
  const rows = new Map<string, CountedFile>();
  const of = (path: string) => {
    let row = rows.get(path);
    if (!row) {
      row = { path, lookups: 0, opens: 0, opens_failed: 0, reads: 0, stats: 0, bytes: 0, total_ns: timed(run) ? 0 : null, found: null };
      rows.set(path, row);
    }
    return row;
  };
  const each = (family: "lookups" | "files", add: (path: string, node: number, index: number) => void) => {
    const { at, node, length } = events.family(family);
    for (let index = 0; index < length; index++) {
      if (at[index]! < during[0] || at[index]! >= during[1]) continue;
      add(events.frames.names[events.frame[node[index]!]!]!, node[index]!, index);
    }
  };
  each("lookups", (path) => of(path).lookups++);
  const files = events.family("files");
  each("files", (path, node, index) => {
    if (path !== "package.json" && !path.endsWith("/package.json")) return;
    const row = of(path);
    const operation = operationOf(events, node);
    const result = files.detail[index]!;
    if (row.total_ns !== null) row.total_ns += files.duration[index]!;
    if (operation === "open") {
      row.opens++;
      if (result < 0) row.opens_failed++;
      row.found = row.found === true || result >= 0;
    } else if (operation === "read") {
      row.reads++;
      row.bytes += Math.max(0, result);
    } else if (operation === "stat") {
      row.stats++;
      row.found = row.found === true || result >= 0;
    }
  });
  return [...rows.values()];
}

function PackageJson({ run, events, during }: Of) {
  const repeated = get("repeated") !== "";
  const all = useMemo(() => (during ? packageJsonDuring(run, events, during) : run.package_json.files), [run, events, during]);
  const rows = useMemo(() => (repeated ? all.filter((row) => (row.lookups ?? 0) > 1 || (row.opens ?? 0) > 1) : all), [all, repeated]);
  const columns: Column<PackageJsonFile>[] = [
    { key: "path", title: "Path", unit: "text", value: (row) => row.path, show: (row) => <span title={row.path}>{shortPath(row.path, run.directory)}</span> },
    { key: "lookups", title: "Lookups", unit: "count", value: (row) => row.lookups, bar: true, help: "Asked of Node's reader, answered from its cache or not" },
    { key: "found", title: "Found", unit: "text", value: (row) => (row.found === null ? null : row.found ? "yes" : "no") },
    { key: "opens", title: "Opens", unit: "count", value: (row) => row.opens },
    { key: "opens_failed", title: "Failed", unit: "count", value: (row) => row.opens_failed },
    { key: "stats", title: "Stats", unit: "count", value: (row) => row.stats },
    { key: "reads", title: "Reads", unit: "count", value: (row) => row.reads },
    { key: "bytes", title: "Bytes", unit: "bytes", value: (row) => row.bytes },
    { key: "total_ns", title: "In the kernel", unit: "ns", value: (row) => row.total_ns, bar: true },
  ];
  const figures = run.package_json;
  const vain = useMemo(() => walks(run), [run]);
  return (
    <>
      {!during && (figures.lookups ?? figures.opens) !== null && (
        <p class="lead">
          <b data-figure="lookups" data-value={figures.lookups}>{counted(figures.lookups, "lookup")}</b> ({count(figures.repeated_lookups)} repeated),{" "}
          <b data-figure="opens" data-value={figures.opens}>{counted(figures.opens, "open")}</b> ({count(figures.opens_failed)} failed, {count(figures.repeated_opens)} repeated),{" "}
          {counted(figures.stats, "stat")}, {bytes(figures.bytes)} read{figures.total_ns !== null && `, ${time(figures.total_ns)} in the kernel`}.
        </p>
      )}
      <Table name="package-json" caption="package.json files" rows={rows} columns={columns} sort="-lookups" addressed
        empty={repeated ? "None was looked up or opened more than once." : "No package.json was looked up."}>
        <label class="choice">
          <input type="checkbox" checked={repeated} onChange={(event) => set({ repeated: event.currentTarget.checked ? "1" : null })} /> repeated only
        </label>
      </Table>
      {vain.length > 0 && !during && (
        <Table
          name="walks"
          caption="Walks up the folders: asked in vain until a package.json was found"
          rows={vain}
          sort="-vain"
          columns={[
            { key: "root", title: "Found, or ended, in", unit: "text", value: (row) => row.root || "/", show: (row) => <span title={row.root}>{shortPath(row.root, run.directory) || "/"}</span> },
            { key: "vain", title: "Folders without one", unit: "count", value: (row) => row.vain, bar: true },
            { key: "lookups", title: "Lookups in them", unit: "count", value: (row) => row.lookups },
            { key: "deepest", title: "Deepest", unit: "count", value: (row) => row.deepest, help: "Most folders between the first that was asked and the one that had one" },
          ]}
        />
      )}
    </>
  );
}

function operationOf(events: Events, node: number): string {
  const above = events.parent[node]!;
  return above < 0 ? "" : events.frames.names[events.frame[above]!]!;
}

function pathsDuring(run: Run, events: Events | null, during: [number, number]): PathRow[] {
  if (!events) return [];
  return grouped<PathRow>(
    events,
    "files",
    during,
    (frame, node) => `${operationOf(events, node)}\0${frame}`,
    (frame, node) => ({ path: events.frames.names[frame]!, operation: operationOf(events, node), calls: 0, failed: 0, bytes: 0, total_ns: timed(run) ? 0 : null }),
    (row, duration, _own, result) => {
      row.calls++;
      if (result < 0) row.failed++;
      else if (row.operation === "read") row.bytes += result;
      if (row.total_ns !== null) row.total_ns += duration;
    },
  );
}

function Files({ run, events, during }: Of) {
  const everything: [number, number] = [-Infinity, Infinity];
  const rows = useMemo(() => {
    const rows = pathsDuring(run, events, during ?? everything);
    return rows.length > 0 || during ? rows : run.files.slowest;
  }, [run, events, during]);
  const operations = (["stat", "open", "read", "readlink", "access", "close"] as const).map((name) => ({ name, ...run.files[name] }));
  const own: Column<FileOperation & { name: string }>[] = [
    { key: "operation", title: "Operation", unit: "text", value: (row) => row.name },
    { key: "calls", title: "Calls", unit: "count", value: (row) => row.calls, bar: true },
    { key: "failed", title: "Failed", unit: "count", value: (row) => row.failed },
    { key: "total_ns", title: "Time", unit: "ns", value: (row) => row.total_ns, bar: true },
  ];
  const columns: Column<PathRow>[] = [
    { key: "path", title: "Path", unit: "text", value: (row) => row.path, show: (row) => <span title={row.path}>{shortPath(row.path, run.directory)}</span> },
    { key: "operation", title: "Operation", unit: "text", value: (row) => row.operation },
    { key: "calls", title: "Calls", unit: "count", value: (row) => row.calls, bar: true },
    { key: "failed", title: "Failed", unit: "count", value: (row) => row.failed },
    { key: "bytes", title: "Bytes", unit: "bytes", value: (row) => row.bytes },
    { key: "total_ns", title: "Time", unit: "ns", value: (row) => row.total_ns, bar: true },
  ];
  return (
    <>
      {!during && run.files.stat.calls !== null && (
        <>
          <p class="lead">
            <b data-figure="bytes_read" data-value={run.files.bytes_read}>{bytes(run.files.bytes_read)}</b> read, {counted(run.files.paths, "path")}.
          </p>
          <Table name="operations" caption="File operations, as the kernel saw them" rows={operations} columns={own} sort="-calls" />
        </>
      )}
      <Table name="paths" caption="Paths" rows={rows} columns={columns} sort={timed(run) ? "-total_ns" : "-calls"} addressed />
    </>
  );
}

type Function = Run["serialization"]["functions"][number];

export function serializationsDuring(events: Events | null, during: [number, number]): Function[] {
  return grouped<Function>(
    events,
    "serializations",
    during,
    (frame) => String(frame),
    (frame) => ({ function: events!.frames.names[frame]!, calls: 0, bytes: 0, total_ns: 0, self_ns: 0 }),
    (row, duration, own, size, nested) => {
      row.calls = (row.calls ?? 0) + 1;
      row.bytes = (row.bytes ?? 0) + Math.max(0, size);
      row.total_ns = (row.total_ns ?? 0) + (nested ? 0 : Math.max(0, duration));
      row.self_ns = (row.self_ns ?? 0) + Math.max(0, own);
    },
  );
}

function Serialization({ run, events, during }: Of) {
  const rows = useMemo(() => (during ? serializationsDuring(events, during) : run.serialization.functions), [run, events, during]);
  const columns: Column<Omit<Function, "function">>[] = [
    { key: "calls", title: "Calls", unit: "count", value: (row) => row.calls, bar: true },
    { key: "bytes", title: "Bytes", unit: "bytes", value: (row) => row.bytes },
    { key: "total_ns", title: "Time", unit: "ns", value: (row) => row.total_ns, bar: true, help: "In outermost calls" },
    { key: "self_ns", title: "Self", unit: "ns", value: (row) => row.self_ns },
  ];
  return (
    <>
      {!during && run.serialization.calls !== null && (
        <p class="lead">
          <b data-figure="serializations" data-value={run.serialization.calls}>{counted(run.serialization.calls, "value")}</b> made of native data or the reverse, {bytes(run.serialization.bytes)}{run.serialization.total_ns !== null && `, ${time(run.serialization.total_ns)}`}.
        </p>
      )}
      <Table name="serialization" caption="By C++ function" rows={rows} sort="-total_ns" addressed
        columns={[{ key: "function", title: "Function", unit: "text", value: (row: Function) => row.function }, ...columns]} />
      {!during && (
        <Table name="serialization-callbacks" caption="By the callback in which it happened" rows={run.serialization.callbacks} sort="-total_ns"
          columns={[
            { key: "binding", title: "Binding", unit: "text", value: (row) => row.binding ?? "(outside)" },
            { key: "function", title: "Function", unit: "text", value: (row) => row.function },
            ...columns,
          ]} />
      )}
    </>
  );
}

function Compilation({ run, events, during }: Of) {
  const rows = useMemo(
    () =>
      during
        ? grouped<Script>(
            events,
            "compilations",
            during,
            (frame) => String(frame),
            (frame) => ({ path: events!.frames.names[frame]!, unit: "", cached: false, compilations: 0, total_ns: null, self_ns: null }),
            (row, duration, own, cached) => {
              row.compilations = (row.compilations ?? 0) + 1;
              row.cached ||= cached === 1;
              if (duration >= 0) {
                row.total_ns = (row.total_ns ?? 0) + duration;
                row.self_ns = (row.self_ns ?? 0) + own;
              }
            },
          )
        : run.compile.scripts,
    [run, events, during],
  );
  const units = useMemo(() => {
    const units = new Map<string, { unit: string; compilations: number; cached: number; total_ns: number }>();
    for (const script of run.compile.scripts) {
      const of = units.get(script.unit) ?? { unit: script.unit, compilations: 0, cached: 0, total_ns: 0 };
      of.compilations += script.compilations ?? 0;
      if (script.cached) of.cached += script.compilations ?? 0;
      of.total_ns += script.self_ns ?? script.total_ns ?? 0;
      units.set(script.unit, of);
    }
    return [...units.values()];
  }, [run]);
  const { compilations, cached, total_ns } = run.compile;
  return (
    <>
      {!during && compilations !== null && (
        <>
          <p class="lead">
            <b data-figure="compilations" data-value={compilations}>{counted(compilations, "compilation")}</b>, {count(cached)} with code from a cache or the snapshot, {time(total_ns)}.
          </p>
          <Table name="units" caption="Hits of code caches" rows={units} sort="-total_ns"
            columns={[
              { key: "unit", title: "What", unit: "text", value: (row) => row.unit, show: (row) => UNITS[row.unit] ?? row.unit },
              { key: "compilations", title: "Compilations", unit: "count", value: (row) => row.compilations, bar: true },
              { key: "cached", title: "From a cache", unit: "count", value: (row) => row.cached },
              { key: "share", title: "Hits", unit: "percent", value: (row) => (row.compilations > 0 ? (row.cached / row.compilations) * 100 : null) },
              { key: "total_ns", title: "Time", unit: "ns", value: (row) => row.total_ns, bar: true },
            ]} />
        </>
      )}
      <Table name="compilation" caption="Scripts" rows={rows} sort="-total_ns" addressed
        columns={[
          { key: "path", title: "Path", unit: "text", value: (row) => row.path, show: (row) => <span title={row.path}>{shortPath(row.path, run.directory)}</span> },
          { key: "unit", title: "What", unit: "text", value: (row) => row.unit, show: (row) => UNITS[row.unit] ?? row.unit },
          { key: "cached", title: "From a cache", unit: "text", value: (row) => (row.cached ? "yes" : "no") },
          { key: "compilations", title: "Times", unit: "count", value: (row) => row.compilations },
          { key: "total_ns", title: "Time", unit: "ns", value: (row) => row.total_ns, bar: true },
          { key: "self_ns", title: "Self", unit: "ns", value: (row) => row.self_ns },
        ]} />
    </>
  );
}

const UNITS: Record<string, string> = { builtin: "Node’s own module", function: "CommonJS module", module: "ES module", script: "script" };

function Processes({ run }: { run: Run }) {
  const columns: Column<Process>[] = [
    { key: "pid", title: "Process", unit: "text", value: (row) => String(row.pid), show: (row) => <>{row.pid}{row.main && <b title="What the figures of phases speak of"> main</b>}</> },
    { key: "command", title: "Command", unit: "text", value: (row) => row.command.join(" ") || row.path || "", show: (row) => <span title={row.command.join(" ")}>{commandLine(row.command) || row.path || "(forked)"}</span> },
    { key: "node", title: "Node.js", unit: "text", value: (row) => row.node },
    { key: "parent_pid", title: "Parent", unit: "text", value: (row) => (row.parent_pid === null ? null : String(row.parent_pid)) },
    { key: "start_ns", title: "Start", unit: "ns", value: (row) => row.start_ns },
    { key: "end_ns", title: "End", unit: "ns", value: (row) => row.end_ns },
    { key: "user_ns", title: "User", unit: "ns", value: (row) => row.user_ns },
    { key: "system_ns", title: "Kernel", unit: "ns", value: (row) => row.system_ns },
    { key: "max_rss_bytes", title: "Peak memory", unit: "bytes", value: (row) => row.max_rss_bytes },
    { key: "crossings", title: "Crossings", unit: "count", value: (row) => row.crossings },
    { key: "file_operations", title: "File operations", unit: "count", value: (row) => row.file_operations },
    { key: "exit", title: "Exit", unit: "text", value: (row) => (row.signal !== null ? `signal ${row.signal}` : row.exit_status === null ? "" : String(row.exit_status)) },
  ];
  return (
    <>
      <p class="lead"><a href={link({ ...OF_A_VIEW, view: "timeline" })}>Processes and threads on the timeline</a></p>
      <Table name="processes" caption="Processes" rows={run.processes} columns={columns} addressed />
    </>
  );
}
