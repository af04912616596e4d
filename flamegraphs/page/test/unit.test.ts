import assert from "node:assert/strict";
import { test } from "node:test";
import { criticalChain } from "../src/chain";
import { Columns, shortenNames, type Data, type Module, type Run } from "../src/data";
import { findings, versionAtLeast, walks } from "../src/findings";
import { bytes, capital, commandLine, percent, shortCommits, shortPath, tickLabels, time, uncertainTime } from "../src/format";
import { anchorOf } from "../src/overview";
import { childrenOf, leftOut, METRICS, nestedIn, totals, valuesOf, type Events, type Values } from "../src/model";
import { moved, regroup } from "../src/regroup";
import { whole } from "../src/slices";
import { brief, labelsOf, named, startTime, tooFew, warnings } from "../src/starts";
import { asText, filtered, sorted, type Column } from "../src/table";
import { serializationsDuring } from "../src/tables";
import { besides, moduleEnd } from "../src/timeline";
import { follow, inverted, matching, merged, pathOf, sandwich, shareOf } from "../src/tree";

test("columns are read as they are written", () => {
  // 0, -1, 1, 300 as integers; 5, 6 as differences; 0.5 as a float.
  const bytes = Uint8Array.of(0, 1, 2, 0xd8, 4, 10, 2, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f);
  const columns = new Columns(bytes);
  assert.deepEqual([...columns.numbers({ at: 0, count: 4, form: "integers" })], [0, -1, 1, 300]);
  assert.deepEqual([...columns.numbers({ at: 5, count: 2, form: "differences" })], [5, 6]);
  assert.deepEqual([...columns.numbers({ at: 7, count: 1, form: "floats" })], [0.5]);
});

test("large numbers keep every digit that a double has", () => {
  const value = 2 ** 53 - 2;
  let rest = BigInt(value) << 1n;
  const bytes: number[] = [];
  while (rest >= 0x80n) {
    bytes.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  bytes.push(Number(rest));
  assert.deepEqual([...new Columns(Uint8Array.from(bytes)).numbers({ at: 0, count: 1, form: "integers" })], [value]);
});

test("numbers have units and three digits", () => {
  assert.deepEqual([0, 999, 1234, 999_600, 12_345_678, 2.5e9].map(time), ["0", "999 ns", "1.23 µs", "1.00 ms", "12.3 ms", "2.50 s"]);
  assert.deepEqual([999, 1500, 70_600_000].map(bytes), ["999 B", "1.50 kB", "70.6 MB"]);
  assert.deepEqual([percent(1, 3), percent(1, 1e6), percent(5, 0), percent(1, 1)], ["33.3%", "<0.1%", "", "100%"]);
});

test("times that are not certain say by how much", () => {
  assert.deepEqual([uncertainTime(1_234_567, 89_000), uncertainTime(1_234_567, 0)], ["1.23 ms ± 89.0 µs", "1.23 ms"]);
});

test("a module whose body was not seen running ends where it took its own time", () => {
  const module = { start_ns: 100, end_earliest_ns: null, end_latest_ns: null, self_ns: 30 };
  assert.deepEqual([moduleEnd(module), moduleEnd({ ...module, end_latest_ns: 150 }), moduleEnd({ ...module, end_earliest_ns: 90 })], [130, 150, 100]);
});

test("the time of a server is that until its event loop began", () => {
  assert.deepEqual([startTime({ duration_ns: 250, loop_start_ns: 50 }), startTime({ duration_ns: 250, loop_start_ns: null })], [50, 250]);
});

test("commits are short, and labels keep their names", () => {
  const [one, other] = ["e5e5e5e500001111222233334444555566667777", "d4".repeat(20)];
  assert.equal(shortCommits(`commit=${one},job=test against ${other}.`), "commit=e5e5e5e50000,job=test against d4d4d4d4d4d4.");
  // Other digits are not those of a commit.
  for (const text of ["e5e5e5e50000", `x${one}`, `${one}0`, "deadbeef".repeat(4)]) assert.equal(shortCommits(text), text);
  assert.equal(capital(`commit=${one} is slower`), `commit=${one} is slower`);
  assert.equal(capital("base is slower than job=a"), "Base is slower than job=a");
  const side = (name: string) => ({ name, measured: [{ name }] });
  const diff = { base: { name: one }, head: { name: other }, verdict: { sentence: `${one} is slower` }, causes: [{ sentence: one }], statements: [{ text: one }] };
  const data = { sides: [side(one), side(other)], diff, differentials: [{ notes: [one] }], missing: [one] };
  shortenNames(data as unknown as Data);
  assert.doesNotMatch(JSON.stringify(data), /[0-9a-f]{13}/);
});

test("labels begin with what tells runs apart", () => {
  const labels = { branch: "main", cgroup: "/x", ci: "github", commit: "e5e5", job: "test", team: "core" };
  assert.equal(labelsOf(labels, ["commit", "job"]), "branch=main team=core ci=github");
  assert.equal(labelsOf(labels), "commit=e5e5 job=test branch=main team=core ci=github");
});

test("names of an axis do not overlap", () => {
  const values = Array.from({ length: 30 }, (_, index) => String(index).padStart(2, "0").repeat(20));
  assert.equal(brief(values[1]!), "010101010101");
  assert.equal(brief("a-branch-of-mine"), "a-branch-of…");
  assert.deepEqual(named(values, 40), Array.from({ length: 10 }, (_, index) => index * 3));
  assert.deepEqual(named(["1", "2", "3"], 40), [0, 1, 2]);
});

test("paths and commands are short", () => {
  assert.equal(shortPath("/a/node_modules/y/i.js", "/a"), "y/i.js");
  assert.equal(shortPath("/a/node_modules/x/lib/node_modules/y/i.js", "/a"), "x/…/y/i.js");
  assert.equal(shortPath("/a/node_modules/.pnpm/y@1/node_modules/y/i.js", "/a"), "y/i.js");
  assert.equal(shortPath("/a/b.js", "/a"), "b.js");
  assert.equal(shortPath("file:///a/b.js", "/a"), "b.js");
  assert.equal(commandLine(["/usr/bin/node", "/x/app.js", "a b"]), "node app.js 'a b'");
});

/** main → a → b, main → b; a is also recursive: main → a → b → a. */
function stacks(): { events: Events; values: Values } {
  const parent = Int32Array.of(-1, 0, 1, 0, 2);
  const frame = Int32Array.of(0, 1, 2, 2, 1);
  const own = Float64Array.of(1, 2, 4, 8, 16);
  const events = {
    parent,
    frame,
    children: childrenOf(parent),
    frames: { names: ["main", "a", "b"], files: [null, "/x/a.js", null], packages: [null, "p", null] },
  } as unknown as Events;
  return { events, values: { own, ...totals(own, parent), summed: 0 } as unknown as Values };
}

test("a merged tree has the sums of its callees, largest first", () => {
  const { events, values } = stacks();
  const tree = merged(events, values);
  assert.equal(tree.root.value, 31);
  const [main] = tree.children(tree.root);
  assert.deepEqual(tree.children(main!).map(({ frame, value, own }) => [frame, value, own]), [[1, 22, 2], [2, 8, 8]]);
  const a = follow(tree, [0, 1]);
  assert.deepEqual(pathOf(a), [0, 1]);
  assert.equal(follow(tree, [0, 7]), main);
});

test("an inverted tree begins with what ran, and loses nothing", () => {
  const { events, values } = stacks();
  const tree = whole(inverted(events, values));
  const top = tree.children(tree.root);
  assert.deepEqual(top.map(({ frame, value }) => [frame, value]), [[1, 18], [2, 12], [0, 1]]);
  const callers = tree.children(top[1]!);
  assert.deepEqual(callers.map(({ frame, value }) => [frame, value]), [[0, 8], [1, 4]]);
  assert.equal(top.reduce((sum, node) => sum + node.value, 0), 31);
});

test("callers and callees count a recursive call once", () => {
  const { events, values } = stacks();
  const both = whole(sandwich(events, values, 1));
  assert.deepEqual([both.value, both.own], [22, 18]);
  assert.deepEqual(both.callers.children(both.callers.root).map((node) => [node.frame, node.value]), [[1, 22]]);
  const [a] = both.callees.children(both.callees.root);
  assert.deepEqual(both.callees.children(a!).map((node) => [node.frame, node.value]), [[2, 20]]);
});

test("by package, Node's own frames show only where they run, and nothing is lost", () => {
  // native → node → p → native → node → callback; native alone.
  const parent = Int32Array.of(-1, 0, 1, 2, 3, 4, -1);
  const frame = Int32Array.of(0, 1, 2, 0, 1, 3, 0);
  const own = Float64Array.of(0, 1, 2, 4, 8, 16, 32);
  const events = {
    parent, frame,
    frames: { names: ["C++", "load", "f", "fs.stat"], kinds: ["native", "node", "javascript", "callback"], files: [null, "node:x", "/p.js", null], scripts: [null, "node:x", "/p.js", null], packages: [null, "node", "p", null], kindNames: new Map() },
  } as unknown as Events;
  const grouped = whole(regroup(events, "package"));
  const values = whole(moved({ own, ...totals(own, parent), summed: 0 } as unknown as Values, grouped));
  const { stacks } = grouped;
  const name = (node: number): string => (node < 0 ? "" : `${name(stacks.parent[node]!)}/${stacks.frames.names[stacks.frame[node]!]}`);
  const found = Object.fromEntries([...values.own].map((value, node) => [name(node), value]).filter(([, value]) => value !== 0));
  assert.deepEqual(found, { "/node": 1, "/p": 6, "/p/node": 8, "/p/node/fs.stat": 16, "/(no JavaScript)": 32 });
  assert.equal(values.sum, 63);
});

/** What each stack has of its own by module or package, by the names of its frames. */
function ownOf(events: Events, own: Float64Array, by: "module" | "package"): Record<string, number> {
  const grouped = whole(regroup(events, by));
  const values = whole(moved({ own, ...totals(own, events.parent), summed: 0 } as unknown as Values, grouped));
  const { stacks } = grouped;
  const name = (node: number): string => (node < 0 ? "" : `${name(stacks.parent[node]!)} ${stacks.frames.names[stacks.frame[node]!]}`);
  return Object.fromEntries([...values.own].map((value, node) => [name(node), value] as const).filter(([, value]) => value !== 0));
}

test("code without a file is of the module or package that called it", () => {
  // p → vm → without a file → vm script; without a file alone.
  const parent = Int32Array.of(-1, 0, 1, 2, -1);
  const frame = Int32Array.of(0, 1, 2, 3, 2);
  const own = Float64Array.of(1, 2, 4, 8, 16);
  const events = {
    parent, frame,
    frames: { names: ["f", "run", "(anonymous)", "g"], kinds: ["javascript", "node", "javascript", "javascript"], files: ["src/p.ts", "node:vm", null, "evalmachine.<anonymous>"], scripts: ["/p.js", "node:vm", null, "evalmachine.<anonymous>"], packages: ["p", "node", null, null], kindNames: new Map() },
  } as unknown as Events;
  const sums = (by: "module" | "package") => ownOf(events, own, by);
  assert.deepEqual(sums("package"), { " p": 13, " p node": 2, " (program)": 16 });
  assert.deepEqual(sums("module"), { " /p.js": 5, " /p.js node:vm": 2, " /p.js evalmachine.<anonymous>": 8, " (no file)": 16 });
});

test("a search finds words, expressions and packages, and counts a stack once", () => {
  const { events, values } = stacks();
  const found = (text: string) => [...matching(events, text)!];
  assert.deepEqual([found("A.JS"), found("/^b/"), found("p a"), found("/(/")], [[0, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0]]);
  assert.equal(matching(events, " "), null);
  assert.equal(shareOf(events, values, matching(events, "a.js")!), 22);
});

/** Of functions a, b and c on two threads: a from 0 to 100 with b in it, which has c in it; c, untimed, and b. On the other one b, during a. */
function serializations(): Events {
  const calls = [[0, 0, 100, 60, 0], [0, 10, 40, 30, 1], [0, 10, 10, 10, 2], [0, 100, 5, 5, 2], [0, 110, -1, -1, 0], [0, 111, 7, 7, 1], [1, 20, 30, 30, 1]];
  const column = (index: number) => calls.map((call) => call[index]!);
  const family = {
    length: calls.length, thread: Int32Array.from(column(0)), at: Float64Array.from(column(1)), duration: Float64Array.from(column(2)),
    own: Float64Array.from(column(3)), detail: new Float64Array(calls.length).fill(8), node: Int32Array.from(column(4)),
  };
  return { frame: Int32Array.of(0, 1, 2), frames: { names: ["a", "b", "c"] }, family: () => family } as unknown as Events;
}

test("of a span each moment is in one outermost serialization, also where that began before", () => {
  const events = serializations();
  assert.deepEqual([...nestedIn(events.family("serializations"))], [0, 1, 1, 0, 0, 0, 0]);
  const during = (from: number, until: number) => serializationsDuring(events, [from, until]).map((row) => [row.function, row.calls, row.total_ns, row.self_ns]);
  assert.deepEqual(during(0, 1000), [["a", 2, 100, 60], ["b", 3, 37, 67], ["c", 2, 5, 15]]);
  assert.deepEqual(during(5, 50), [["b", 2, 30, 60], ["c", 1, 0, 10]]);
});

test("calls that were only summed are told where a span or an order of time leaves them out", () => {
  const none = { length: 0, at: [], own: [], node: [], thread: [] };
  const sums = { thread: Int32Array.of(0, 0), calls: Float64Array.of(3, 4), own: Float64Array.of(30, 40), node: Int32Array.of(0, 1) };
  const events = { parent: Int32Array.of(-1, 0), threads: [], family: () => none, crossingSums: sums, serializationSums: { ...sums, node: new Int32Array() } } as unknown as Events;
  const of = (name: string, span: [number, number] | null, layout: string) => {
    const values = whole(valuesOf(events, METRICS.find((metric) => metric.name === name)!, span));
    return [values.sum, leftOut(values, span, layout)];
  };
  assert.deepEqual(of("crossings", null, "merged"), [7, null]);
  assert.deepEqual(of("crossings", null, "time"), [7, { calls: 7, of: "the order of time" }]);
  assert.deepEqual(of("crossing-time", null, "time"), [70, { calls: 7, of: "the order of time" }]);
  assert.deepEqual(of("crossing-time", [0, 9], "time"), [0, { calls: 7, of: "the span" }]);
  assert.deepEqual(of("serialization", null, "time"), [0, null]);
});

test("waits are cut at the ends of a span, all else counts where it begins", () => {
  // A wait that begins before the span, one over its end, one after it; samples at the same times. Then a worker's.
  const family = {
    length: 4, thread: Int32Array.of(0, 0, 0, 1), at: Float64Array.of(0, 40, 90, 40), duration: Float64Array.of(30, 45, 5, 45), own: Float64Array.of(30, 45, 5, 45),
    detail: new Float64Array(4), node: Int32Array.of(0, 1, 0, 0),
  };
  const none = { thread: new Int32Array(), calls: new Float64Array(), own: new Float64Array(), node: new Int32Array() };
  const threads = [{ pid: 7, tid: 7 }, { pid: 7, tid: 8 }];
  const events = { parent: Int32Array.of(-1, -1), threads, family: () => family, crossingSums: none, serializationSums: none } as unknown as Events;
  const of = (name: string, span: [number, number] | null) => [...whole(valuesOf(events, METRICS.find((metric) => metric.name === name)!, span)).own];
  assert.deepEqual(of("off-cpu", null), [35, 45]);
  assert.deepEqual(of("off-cpu", [10, 50]), [20, 10]);
  assert.deepEqual(of("off-cpu", [50, 60]), [0, 10]);
  assert.deepEqual(of("off-cpu", [85, 90]), [0, 0]);
  assert.deepEqual(of("cpu", [10, 50]), [45, 45]);
});

test("by package, what has no stack is not said to be without JavaScript", () => {
  // (no stack) → callback; callback alone would be of C++.
  const parent = Int32Array.of(-1, 0, -1);
  const frame = Int32Array.of(0, 1, 2);
  const own = Float64Array.of(1, 2, 4);
  const events = {
    parent, frame,
    frames: { names: ["(no stack)", "fs.stat", "main"], kinds: ["unknown", "callback", "native"], files: [null, null, null], scripts: [null, null, null], packages: [null, null, null], kindNames: new Map() },
  } as unknown as Events;
  for (const by of ["module", "package"] as const) {
    const grouped = whole(regroup(events, by));
    const values = whole(moved({ own, ...totals(own, parent), summed: 0 } as unknown as Values, grouped));
    const { stacks } = grouped;
    const name = (node: number): string => (node < 0 ? "" : `${name(stacks.parent[node]!)}/${stacks.frames.names[stacks.frame[node]!]}`);
    const found = Object.fromEntries([...values.own].map((value, node) => [name(node), value]).filter(([, value]) => value !== 0));
    assert.deepEqual(found, { "/(no stack)": 1, "/(no stack)/fs.stat": 2, "/(no JavaScript)": 4 });
  }
});

test("WebAssembly is of the module and the package that called it", () => {
  // /p/a.js → wasm → /q/b.js → wasm; wasm alone
  const parent = Int32Array.of(-1, 0, 1, 2, -1);
  const frame = Int32Array.of(0, 1, 2, 1, 1);
  const own = Float64Array.of(1, 2, 4, 8, 16);
  const files = ["/p/a.js", "wasm://wasm/1", "/q/b.js"];
  const events = {
    parent, frame,
    frames: { names: ["a", "f [wasm]", "b"], kinds: ["javascript", "wasm", "javascript"], files, scripts: files, packages: ["p", null, "q"], kindNames: new Map() },
  } as unknown as Events;
  const found = (by: "module" | "package") => ownOf(events, own, by);
  assert.deepEqual(found("module"), { " /p/a.js": 3, " /p/a.js /q/b.js": 12, " wasm://wasm/1": 16 });
  assert.deepEqual(found("package"), { " p": 3, " p q": 12, " (program)": 16 });
});

test("modules that are loaded together are drawn whole, beside each other, and those without room are counted", () => {
  const lanes = (spans: [number, number][]) => {
    const { lanes, left } = besides({ start: spans.map(([start]) => start), end: (index) => spans[index]![1], from: 0, until: spans.length });
    return [lanes.map((lane) => [...lane.item].map((item, index) => [item, lane.start[index], lane.end[index]])), left];
  };
  // As require does it: each in the one around it.
  assert.deepEqual(lanes([[0, 100], [10, 40], [20, 30], [50, 60]]), [[[[0, 0, 100]], [[1, 10, 40], [3, 50, 60]], [[2, 20, 30]]], 0]);
  // As import does it: none is cut.
  assert.deepEqual(lanes([[0, 50], [1, 60], [2, 70], [50, 80]]), [[[[0, 0, 50], [3, 50, 80]], [[1, 1, 60]], [[2, 2, 70]]], 0]);
  const many = lanes(Array.from({ length: 200 }, (_, index) => [index, 1000 + index]));
  assert.equal((many[0] as unknown[]).length + (many[1] as number), 200);
  assert.equal(many[1], 176);
});

test("ticks of an axis are told apart, however far in they are", () => {
  const labels = (ticks: number[]) => ticks.map(tickLabels(ticks));
  assert.deepEqual(labels([0, 50e6, 100e6]), ["0", "50 ms", "100 ms"]);
  assert.deepEqual(labels([400e6, 400.1e6, 400.2e6]), ["400.0 ms", "400.1 ms", "400.2 ms"]);
  assert.deepEqual(labels([1.230e9, 1.232e9, 1.234e9]), ["1.230 s", "1.232 s", "1.234 s"]);
  assert.deepEqual(labels([0, 0.5e9, 1e9]), ["0", "0.5 s", "1.0 s"]);
  assert.deepEqual(labels([2500, 3000]), ["2.5 µs", "3.0 µs"]);
  assert.deepEqual([39.2e6, 39.25e6].map(tickLabels([39.2e6, 39.25e6], "bytes")), ["39.20 MB", "39.25 MB"]);
  assert.deepEqual([3, 260, 517].map((at) => anchorOf(at, "39.2 MB")), ["start", "middle", "end"]);
});

interface Row {
  name: string;
  size: number | null;
}
const columns: Column<Row>[] = [
  { key: "name", title: "Name", unit: "text", value: (row) => row.name },
  { key: "size", title: "Size", unit: "bytes", value: (row) => row.size },
];

test("tables sort either way, filter by words, and are copied with exact numbers", () => {
  const rows: Row[] = [{ name: "b 10", size: 1234 }, { name: "a\tx", size: null }, { name: "b 9", size: 5 }];
  assert.deepEqual(sorted(rows, columns, "-size").map((row) => row.size), [1234, 5, null]);
  assert.deepEqual(sorted(rows, columns, "name").map((row) => row.name), ["a\tx", "b 9", "b 10"]);
  assert.deepEqual(filtered(rows, columns, "B 1").map((row) => row.name), ["b 10"]);
  assert.equal(asText(rows.slice(0, 2), columns), "Name\tSize (bytes)\nb 10\t1234\na x\t");
});

const module = (id: number, requirer: number | null, self: number): Module =>
  ({ id, requirer_id: requirer, self_ns: self, callback_ns: 0, loading: { stats: 0 }, kind: "cjs", pid: 1, thread: 1, path: `/${id}.js`, main_script: id === 0, start_ns: id, end_latest_ns: null }) as Module;

const links = (run: Run) => {
  const chain = criticalChain(run);
  assert(typeof chain !== "string", String(chain));
  return chain.links;
};

test("the critical chain follows what each module waited longest for", () => {
  const modules = [module(0, null, 1e6), module(1, 0, 2e6), module(2, 0, 1e6), module(3, 2, 5e6)];
  const run = { modules, processes: [{ main: true, pid: 1 }] } as Run;
  assert.deepEqual(links(run).map(({ module, waited, own, others }) => [module.id, waited, own, others]), [[0, 9e6, 1e6, 2e6], [2, 6e6, 1e6, 0], [3, 5e6, 5e6, 0]]);
});

test("the critical chain begins with the main script and leaves out what callbacks loaded", () => {
  const preload = { ...module(0, null, 9e6), main_script: false };
  const main = { ...module(1, null, 1e6), main_script: true, start_ns: 10, end_latest_ns: 50 };
  const helper = { ...module(2, 1, 1e6), start_ns: 20, end_latest_ns: 30 };
  // One that a function of the helper loads while the main module runs, one that a callback loads, and one that that one loads.
  const modules = [preload, main, helper, { ...module(3, 2, 2e6), start_ns: 40, end_latest_ns: 45 }, { ...module(4, 2, 7e6), start_ns: 60, end_latest_ns: 70 }, { ...module(5, 4, 7e6), start_ns: 65 }];
  const run = { modules, processes: [{ main: true, pid: 1 }] } as Run;
  assert.deepEqual(links(run).map(({ module, waited }) => [module.id, waited]), [[1, 4e6], [2, 3e6], [3, 2e6]]);
  assert.equal((criticalChain(run) as { later: number }).later, 2);
});

test("a main module that had not run when the trace ended is not said to have run", () => {
  const hadRun = (main: Partial<Module>, end: number | null, ended_by: string) => {
    const run = { modules: [{ ...module(0, null, 1e6), end_latest_ns: 50, ...main }], processes: [{ main: true, pid: 1, end_ns: end }], ended_by } as Run;
    return (criticalChain(run) as { hadRun: boolean }).hadRun;
  };
  assert.equal(hadRun({}, null, "loop-start"), true);
  assert.equal(hadRun({ end_latest_ns: null }, null, "duration"), false);
  assert.equal(hadRun({ end_latest_ns: null }, 90, "exit"), true);
  assert.equal(hadRun({ kind: "esm" }, null, "loop-start"), false);
  assert.equal(hadRun({ kind: "esm" }, null, "idle"), true);
});

test("the time of the critical chain is the time that passed, and what never ran is not said to have run", () => {
  const chain = (main: Partial<Module>, process: object) => {
    const run = { modules: [{ ...module(0, null, 1e6), start_ns: 10e6, end_earliest_ns: 48e6, end_latest_ns: 52e6, ...main }], processes: [{ main: true, pid: 1, end_ns: 90e6, exit_status: 0, command: ["node", "0.js"], ...process }] } as Run;
    const { hadRun, passed } = criticalChain(run) as { hadRun: boolean; passed: number };
    return [hadRun, passed];
  };
  assert.deepEqual(chain({}, {}), [true, 40e6]);
  assert.deepEqual(chain({ kind: "esm" }, { exit_status: 13 }), [false, 80e6]);
  assert.deepEqual(chain({ end_earliest_ns: null, end_latest_ns: null }, { exit_status: 1 }), [false, 80e6]);
  assert.deepEqual(chain({}, { command: ["node", "--check", "0.js"] }), [false, 80e6]);
  // What an import() without await loads runs later: a fiftieth is what is uncertain.
  const after = (self_ns: number) => {
    const main = { ...module(0, null, 1e6), start_ns: 10e6, end_earliest_ns: 48e6, end_latest_ns: 52e6 };
    const imported = { ...module(1, 0, self_ns), start_ns: 20e6, end_latest_ns: 400e6 };
    const { passed, afterwards } = criticalChain({ modules: [main, imported], processes: [{ main: true, pid: 1, end_ns: 900e6, exit_status: 0, command: ["node", "0.js"] }] } as Run) as { passed: number; afterwards: number };
    return [passed, afterwards];
  };
  assert.deepEqual(after(41.5e6), [42.5e6, 0]);
  assert.deepEqual(after(341e6), [40e6, 300e6]);
});

test("a module that is loaded again later does not hold up who waited for its first load", () => {
  const main = { ...module(0, null, 1e6), main_script: true, start_ns: 10, end_latest_ns: 50 };
  const again = { ...module(1, 0, 1e6), start_ns: 20, end_latest_ns: 400, loads: 2 };
  // What a callback of it loads between its loads.
  const modules = [main, again, { ...module(2, 1, 90e6), start_ns: 100, end_latest_ns: 190 }];
  assert.deepEqual(links({ modules, processes: [{ main: true, pid: 1 }] } as Run).map(({ module, waited }) => [module.id, waited]), [[0, 2e6], [1, 1e6]]);
});

test("where only preloads were loaded there is no main script to begin with", () => {
  const preload = { ...module(0, null, 1e6), main_script: false };
  assert.match(String(criticalChain({ modules: [preload], processes: [{ main: true, pid: 1 }] } as Run)), /^No main script was loaded/);
});

test("without a main script of the main process the critical chain is that of the only other one, or says why there is none", () => {
  const child = { ...module(0, null, 1e6), pid: 2, thread: 2 };
  const processes = [{ main: true, pid: 1 }, { main: false, pid: 2 }, { main: false, pid: 3 }];
  const chain = criticalChain({ modules: [child], processes } as Run);
  assert.equal(typeof chain !== "string" && chain.pid, 2);
  const two = [child, { ...module(1, null, 1e6), main_script: true, pid: 3, thread: 3 }];
  assert.match(String(criticalChain({ modules: two, processes } as Run)), /one of 2, 3/);
  assert.match(String(criticalChain({ modules: [{ ...child, kind: "unknown" }], processes } as Run)), /not that they were loaded/);
});

function run(changes: object): Run {
  return {
    command: ["node", "a.js"], directory: "/a", milestones: { loop_start: 100e6 }, start_to_exec_ns: 0, time: { wall_ns: 120e6 }, phases: [], packages: [], modules: [],
    package_json: { lookups: 0, opens: 0, opens_failed: 0, repeated_lookups: 0, repeated_opens: 0, files: [] }, files: { stat: { calls: 0 } },
    compile: { scripts: [] }, processes: [], outside: [], node: { version: "v22.5.0" }, losses: {}, families: [], ...changes,
  } as unknown as Run;
}

test("a slow package is named with its share and step", () => {
  const slow = { ...module(0, null, 60e6), execute_ns: 58e6, resolve_ns: 1e6, read_ns: 0, compile_ns: 1e6, package_directory: "/a/node_modules/slow", package_kind: "installed" };
  const [first] = findings(run({ modules: [slow], packages: [{ name: "slow", version: "1.2.3", kind: "installed", directory: "/a/node_modules/slow", modules: 1, self_ns: 60e6, total_ns: 60e6 }] }));
  assert.equal(first!.kind, "package");
  assert.match(first!.sentence, /The package slow 1\.2\.3 takes 60\.0 ms itself \(60\.0% of the start, 1 module\), mainly running it/);
});

test("what comes after the start, or in another process, is no share of the start", () => {
  const of = { package_directory: "/a", resolve_ns: 0, read_ns: 0, compile_ns: 0 };
  const main = { ...module(0, null, 500e6), ...of, execute_ns: 500e6, callback_ns: 460e6, start_ns: 50e6 };
  const late = { ...module(1, 0, 100e6), ...of, execute_ns: 100e6, start_ns: 150e6 };
  const child = { ...module(2, null, 70e6), ...of, execute_ns: 70e6, start_ns: 60e6, pid: 2, thread: 2 };
  const app = { name: null, version: null, kind: "application", directory: "/a", modules: 3, self_ns: 670e6, total_ns: 670e6 };
  const changes = { modules: [main, late, child], packages: [app], time: { wall_ns: 700e6 }, processes: [{ main: true, pid: 1, node: "/n" }] };
  const [first] = findings(run(changes));
  assert.match(first!.sentence, /^The program itself takes 40\.0 ms \(40\.0% of the start, 1 module\), mainly running it\. In all, .* it takes 670 ms\.$/);
  assert.equal(first!.share, 0.4);
  // An ES module that the event loop runs is not of the start.
  const [loop] = findings(run({ ...changes, modules: [{ ...main, kind: "esm" }, late, child] }));
  assert.match(loop!.sentence, /^The program itself takes 600 ms \(85\.7% of the run, 2 modules\)/);
  // What is summed over the run is not of the start either.
  const scripts = [{ path: "/a/x.js", unit: "function", cached: false, compilations: 3, total_ns: 70e6, self_ns: 70e6 }];
  const [compiling] = findings(run({ compile: { scripts }, time: { wall_ns: 700e6 } }));
  assert.match(compiling!.sentence, /70\.0 ms \(10\.0% of the run\)/);
});

test("stats that the program asks for itself find no module", () => {
  const of = { resolve_ns: 30e6, read_ns: 0, compile_ns: 0, execute_ns: 0 };
  const found = (stats: number | null) => {
    const one = { ...module(0, null, 30e6), ...of, loading: { stats } };
    return findings(run({ modules: [one], files: { stat: { calls: 5000 } } })).find((finding) => finding.kind === "resolution")!.sentence;
  };
  assert.match(found(3), / opens of package\.json and 3 stats\./);
  // Where none is of a module, or they were not recorded.
  assert.match(found(null), / opens of package\.json\.$/);
});

test("compiling without a cache is named, with what to type", () => {
  const [first] = findings(run({ compile: { scripts: [{ path: "/a/x.js", unit: "function", cached: false, compilations: 3, total_ns: 40e6, self_ns: 40e6 }] } }));
  assert.match(first!.sentence, /40\.0 ms \(40\.0% of the start\): 3 scripts, none of them from a compile cache/);
  assert.match(first!.advice!, /NODE_COMPILE_CACHE/);
  assert.equal(versionAtLeast("v20.20.2", 22, 1), false);
});

test("walks up the folders are told by where they end", () => {
  const file = (path: string, found: boolean) => ({ path, found, lookups: 1, opens: 1 });
  const files = [file("/a/package.json", true), file("/a/b/package.json", false), file("/a/b/c/package.json", false), file("/z/package.json", false)];
  assert.deepEqual(walks(run({ package_json: { files } })), [
    { root: "/a", vain: 2, lookups: 2, deepest: 2 },
    { root: "", vain: 1, lookups: 1, deepest: 1 },
  ]);
});

test("a line says what its runs differ by and which of them it leaves out", () => {
  const point = { value: "a1", runs: 1, median: 1, minimum: 1, maximum: 1, first_unix_ns: 1, change: null };
  const trend = {
    figure: "time.wall_ns", unit: "ns" as const, noise: "machine" as const, by: "commit", left_out: 0, ended_otherwise: 0, all_failed: false,
    programs: [["app.js", 20]] as [string, number][], settings: [{ name: "", runs: 20, points: 20 }], points: Array.from({ length: 20 }, () => point),
  };
  assert.deepEqual(warnings(trend), []);
  assert.equal(tooFew(trend), null);
  const two = [{ name: "mode count", runs: 11, points: 10 }, { name: "mode full", runs: 10, points: 10 }];
  const differ = "This figure depends on how and where it was recorded, and these runs differ by that (11 × mode count, 10 × mode full): ";
  assert.deepEqual(warnings({ ...trend, settings: two, ended_otherwise: 1, left_out: 2 }), [
    `${differ}changes are marked among the runs of one of these only, and any other step can be of that.`,
    "Left out: 1 run that failed or ended otherwise than most.",
    "Left out: 2 runs of which something is missing: counts of such are too low.",
  ]);
  // Twenty points, of which no change can be marked.
  assert.match(tooFew({ ...trend, settings: two })!, /Known are 10, of those recorded alike\./);
  const mixed = warnings({ ...trend, settings: two, programs: [["app.js", 19], ["npm ci", 2]], all_failed: true });
  assert.equal(mixed.length, 3);
  assert.match(mixed[0]!, /2 programs \(19 × app\.js, 2 × npm ci\)/);
  assert.equal(mixed[1], `${differ}a step can be of that.`);
  assert.equal(mixed[2], "All these runs fail: none came to a good end.");
});
