// Looks at every view of a page in a headless browser.
//
//   node drive.mjs PAGE.html [--json REPORT.json]… [--diff DIFF.json] [--flame METRIC=FLAME.json]… [--axe] [--brief]
//   node drive.mjs http://ADDRESS --axe [--starts CROSSINGS,CROSSINGS]
//
// Fails on an error in the console, on a request, on what axe finds, and on a figure that is not that of the JSON (of a comparison: one JSON
// of each side, and its own). The second form looks at the list of recordings that nodeprof view serves, and at what it leads to. Exit
// status 77: there is no browser.
import { readFileSync, existsSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { pathToFileURL } from "node:url";

export function browserPath() {
  const names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    for (const name of names) if (folder && existsSync(join(folder, name))) return join(folder, name);
  }
  return null;
}

export async function launch() {
  const executablePath = browserPath();
  if (!executablePath) {
    console.log("skipped: no chromium");
    process.exit(77);
  }
  let puppeteer;
  try {
    puppeteer = (await import("puppeteer-core")).default;
  } catch {
    console.log("skipped: npm packages of flamegraphs/page are not installed; type: make test");
    process.exit(77);
  }
  return puppeteer.launch({ executablePath, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
}

const problems = [];
const wrong = (text) => problems.push(text);

/** Notes every error and every request but that for the page itself, or its origin. */
export function watch(page, address, onProblem = wrong, origin = null) {
  page.on("console", (message) => {
    if (["error", "warn", "assert"].includes(message.type())) onProblem(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => onProblem(`error: ${error.message}`));
  page.on("dialog", async (dialog) => {
    onProblem(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on("request", (request) => {
    const url = request.url();
    const own = origin === null ? url.split("#")[0] === address : new URL(url).origin === origin;
    if (!url.startsWith("data:") && !own) onProblem(`request: ${url}`);
  });
}

export const REPORT_VIEWS = [
  "view=overview",
  "view=overview&time=0..100000000",
  "view=timeline",
  "view=modules&show=packages",
  "view=modules&show=modules",
  "view=modules&show=tree",
  "view=modules&show=treemap",
  "view=modules&show=chain",
  "view=tables&table=callbacks",
  "view=tables&table=package-json",
  "view=tables&table=files",
  "view=tables&table=serialization",
  "view=tables&table=compilation",
  "view=tables&table=processes",
  "view=flame&layout=merged",
  "view=flame&layout=time",
  "view=flame&layout=inverted",
  "view=flame&layout=sandwich&frame=0",
  "view=flame&metric=crossings&colour=package&q=require",
  "view=flame&metric=package-json&colour=module",
  "view=flame&by=module&layout=time",
  "view=flame&by=package&metric=crossings&colour=package",
];

async function settle(page) {
  await page.evaluate(async () => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    await frame();
    await frame();
    // What is added up a slice a frame.
    for (let frames = 0; frames < 600 && /Adding up/.test(document.querySelector("main")?.innerText ?? ""); frames++) await frame();
  });
}

export async function show(page, hash) {
  await page.evaluate((hash) => {
    location.hash = hash;
  }, hash);
  await settle(page);
}

/** All rows of a table on the page, as exact values where there are any. */
async function rows(page, name) {
  for (;;) {
    const more = await page.evaluate((name) => {
      const buttons = document.querySelectorAll(`[data-table="${name}"] .more button`);
      const all = [...buttons].find((button) => button.textContent === "all");
      all?.click();
      return Boolean(all);
    }, name);
    if (!more) break;
    await settle(page);
  }
  return page.evaluate((name) => {
    const found = document.querySelectorAll(`[data-table="${name}"] tbody tr`);
    return [...found].map((row) =>
      Object.fromEntries([...row.querySelectorAll("td")].map((cell) => [cell.dataset.key, cell.dataset.value ?? cell.textContent])),
    );
  }, name);
}

/** Every figure of a list in the JSON must be in the table, row by row. */
async function sameRows(page, hash, table, list, fields) {
  await show(page, hash);
  const shown = await rows(page, table);
  if (shown.length !== list.length) {
    wrong(`${table}: ${shown.length} rows are shown, the JSON has ${list.length}`);
    return;
  }
  const key = (row, of) => fields.map((field) => of(row, field)).join("\t");
  const expected = list.map((row) => key(row, (row, field) => String(typeof row[field] === "boolean" ? (row[field] ? "yes" : "no") : (row[field] ?? "")))).sort();
  const found = shown.map((row) => key(row, (row, field) => String(row[field] ?? ""))).sort();
  const differ = expected.findIndex((line, index) => line !== found[index]);
  if (differ >= 0) wrong(`${table}: the page has\n    ${found[differ]}\n  where the JSON has\n    ${expected[differ]}`);
}

async function figure(page, name) {
  return page.evaluate((name) => document.querySelector(`[data-figure="${name}"]`)?.dataset.value ?? null, name);
}

async function sameFigure(page, name, value) {
  const shown = await figure(page, name);
  if (shown === null && (value === null || value === undefined)) return;
  if (shown !== String(value)) wrong(`figure ${name}: the page has ${shown}, the JSON ${value}`);
}

const COSTS = ["crossings", "crossings_self_ns", "package_json_lookups", "stats", "opens", "bytes_read", "files_ns", "cpu_ns", "blocked_ns"];

/** The run of the JSON that the page shows. */
async function shownRun(page, report) {
  const number = await page.evaluate(() => document.querySelector("main")?.dataset.run);
  return number === undefined ? report.runs[0] : report.runs[Number(number) - 1];
}

async function compareWithJson(page, report, side = "") {
  await show(page, `view=overview${side}`);
  const run = await shownRun(page, report);
  if (!run) {
    if (report.runs.length > 0) wrong("the run that is shown is not in the JSON");
    return;
  }
  await sameFigure(page, "wall", run.time.wall_ns);
  await sameFigure(page, "crossings", run.crossings.total);
  await sameFigure(page, "stats", run.files.stat.calls);
  await sameFigure(page, "compile", run.compile.total_ns);
  await sameFigure(page, "memory", run.time.max_rss_bytes);
  // In count mode nobody's calls are known, and so no modules.
  const isKnown = run.mode !== "count" || run.modules.length > 0;
  await sameFigure(page, "modules", isKnown ? run.modules.filter((module) => module.kind !== "builtin").length : null);
  if (run.phases.length > 0) {
    await page.evaluate(() => document.querySelector("details")?.setAttribute("open", ""));
    await sameRows(page, `view=overview${side}`, "phases", run.phases, ["start_ns", "crossings", "crossings_self_ns", "lookups", "stats", "opens", "files_ns", "compilations", "compile_ns"]);
  }
  const lists = [
    ["view=tables&table=callbacks", "callbacks", run.crossings.callbacks, ["binding", "function", "kind", "calls", "total_ns", "self_ns", "total_corrected_ns", "unfinished"]],
    ["view=tables&table=callbacks", "to-js", run.crossings.to_js, ["kind", "calls", "total_ns", "self_ns"]],
    ["view=tables&table=package-json", "package-json", run.package_json.files, ["path", "lookups", "found", "opens", "opens_failed", "stats", "reads", "bytes", "total_ns"]],
    ["view=tables&table=files", "operations", ["stat", "open", "read", "readlink", "access", "close"].map((operation) => ({ operation, ...run.files[operation] })), ["operation", "calls", "failed", "total_ns"]],
    ["view=tables&table=serialization", "serialization", run.serialization.functions, ["function", "calls", "bytes", "total_ns", "self_ns"]],
    ["view=tables&table=serialization", "serialization-callbacks", run.serialization.callbacks.map((one) => ({ ...one, binding: one.binding ?? "(outside)" })), ["binding", "function", "calls", "bytes", "total_ns", "self_ns"]],
    ["view=tables&table=compilation", "compilation", run.compile.scripts, ["path", "cached", "compilations", "total_ns", "self_ns"]],
    ["view=tables&table=processes", "processes", run.processes, ["start_ns", "end_ns", "user_ns", "system_ns", "max_rss_bytes", "crossings", "file_operations"]],
    ["view=modules&show=packages", "packages", run.packages, ["self_ns", "total_ns", "uncertain_ns", "modules", ...COSTS]],
    ["view=modules&show=modules", "modules", run.modules, ["path", "kind", "start_ns", "self_ns", "total_ns", "resolve_ns", "read_ns", "compile_ns", "execute_ns", ...COSTS]],
  ];
  for (const [hash, table, list, fields] of lists) {
    if (list.length > 0) await sameRows(page, `${hash}${side}`, table, list, fields);
  }
  if (side === "") await compareEvents(page, run);
  // What flame graphs add up to.
  const totals = {
    crossings: run.crossings.total,
    "crossing-time": run.crossings.self_ns,
    cpu: run.samples.cpu_ns,
    files: ["stat", "open", "read", "readlink", "access", "close"].reduce((sum, name) => sum + run.files[name].calls, 0),
    "package-json": run.package_json.lookups,
  };
  for (const [metric, total] of Object.entries(totals)) {
    if (total > 0) {
      await show(page, `view=flame&metric=${metric}${side}`);
      await sameFigure(page, "total", total);
      // The same stacks by module and by package lose nothing.
      await show(page, `view=flame&metric=${metric}&by=package${side}`);
      await sameFigure(page, "total", total);
    }
  }
}

const ALL_TIME = "time=-9000000000000..9000000000000";

/** A span that holds all has what single events add up to; an order of time tells of the calls that were only summed. */
async function compareEvents(page, run) {
  const { functions, calls } = run.serialization;
  await show(page, `view=tables&table=serialization&${ALL_TIME}`);
  const single = (await rows(page, "serialization")).reduce((sum, row) => sum + Number(row.calls ?? 0), 0);
  if (calls > 0 && single === calls) await sameRows(page, `view=tables&table=serialization&${ALL_TIME}`, "serialization", functions, ["function", "calls", "bytes", "total_ns", "self_ns"]);
  if (!(run.crossings.total > 0)) return;
  await show(page, `view=overview&${ALL_TIME}`);
  const crossings = await page.evaluate(() => Number(document.querySelector('[data-figure="during-crossings"] b')?.textContent.replaceAll(",", "") ?? 0));
  await show(page, "view=flame&metric=crossings&layout=time");
  const shown = await page.evaluate(() => ({
    summed: Number(/([\d,]+) calls? only summed, left out of the order of time/.exec(document.querySelector("main").innerText)?.[1].replaceAll(",", "") ?? 0),
    drawn: document.querySelector("main canvas") !== null,
    empty: document.querySelector("main .card .empty") !== null,
  }));
  if (shown.summed !== run.crossings.total - crossings) wrong(`in order of time ${shown.summed} calls are left out, not ${run.crossings.total - crossings}`);
  if (shown.drawn !== crossings > 0 || shown.empty !== (crossings === 0)) wrong(`in order of time ${crossings} crossings are ${shown.drawn ? "drawn" : "not drawn"}, ${shown.empty ? "and said" : "not said"} to be none`);
}

function sameText(what, found, expected) {
  if (found !== expected) wrong(`${what}: the page has\n    ${found}\n  where the JSON has\n    ${expected}`);
}

/** The comparison's own view: its sentences, and its tables cell by cell. */
async function compareWithDiff(page, diff) {
  await show(page, "view=comparison");
  const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
  const said = await page.evaluate(() => ({
    verdict: document.querySelector(".verdict h2")?.textContent,
    answer: document.querySelector(".verdict h2")?.dataset.answer,
    statements: [...document.querySelectorAll(".verdict .warning li")].map((line) => line.textContent),
    causes: [...document.querySelectorAll("[data-cause]")].map((line) => ({ kind: line.dataset.cause, sentence: line.querySelector(".sentence").firstChild.textContent })),
    dots: [...(document.querySelector(".boxes")?.querySelectorAll(".boxrow svg[role=img]") ?? [])].map((box) => box.querySelectorAll(".dot").length),
  }));
  sameText("verdict", said.verdict, capital(diff.verdict.sentence));
  sameText("answer", said.answer, diff.verdict.answer);
  sameText("statements", said.statements.join("\n"), diff.statements.map((one) => one.text).join("\n"));
  sameText(
    "causes",
    said.causes.map((one) => `${one.kind}: ${one.sentence}`).join("\n"),
    diff.causes.map((cause) => `${cause.kind}: ${capital(cause.sentence)}`).join("\n"),
  );
  // The first box plot is of wall times: a dot for each run that is compared.
  const compared = [diff.base, diff.head].map((side) => (diff.verdict.bare ? side.bare_runs : side.probed_runs));
  sameText("dots of the box plots", said.dots.join(", "), compared.filter((runs) => runs >= 3).join(", "));
  const changes = (list) => list.map((one) => ({ ...one, base: one.base?.median, head: one.head?.median }));
  const fields = ["figure", "base", "head", "difference", "certainty"];
  const only = (list, what, name) => list.map((one) => ({ what, name: one, change: `only in ${name}` }));
  const compiled = (list, name) => list.map((one) => ({ what: "built-in", name: one, change: `compiled at start in ${name} only` }));
  const tables = [
    ["times", diff.times.map((one) => ({ ...one, base: one.base?.mean, head: one.head?.mean, p: one.welch?.p })), ["figure", "base", "head", "percent", "p"]],
    ["counts", changes(diff.counts), fields],
    ["durations", changes(diff.durations), fields],
    ["lookup-changes", diff.lookups, ["path", "base", "head", "certainty"]],
    ["presence", [
      ...only(diff.packages.added, "package", diff.head.name),
      ...only(diff.packages.removed, "package", diff.base.name),
      ...diff.versions.map((one) => ({ what: "package", name: one.package, change: `${one.base.join(", ")} → ${one.head.join(", ")}` })),
      ...only(diff.modules.added, "module", diff.head.name),
      ...only(diff.modules.removed, "module", diff.base.name),
      ...compiled(diff.builtins.now_compiled, diff.head.name),
      ...compiled(diff.builtins.no_longer_compiled, diff.base.name),
    ], ["what", "name", "change"]],
  ];
  for (const [table, list, fields] of tables) {
    if (list.length > 0) await sameRows(page, "view=comparison", table, list, fields);
    else if ((await rows(page, table)).some((row) => Object.keys(row).length > 1)) wrong(`${table}: there are rows, the JSON has none`);
  }
}

/** A differential flame graph has the values that `flame --diff --format json` has: in all, and by function. */
async function compareWithFlame(page, metric, flame) {
  await show(page, `view=comparison&metric=${metric}`);
  // Means, added up in another order.
  const same = (a, b) => Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b));
  for (const [name, total] of [["base-total", flame.base.total], ["head-total", flame.head.total]]) {
    const shown = Number(await figure(page, name));
    if (!same(shown, total)) wrong(`${metric}, ${name}: the page has ${shown}, the JSON ${total}`);
  }
  const add = (sums, name, difference) => sums.set(name, (sums.get(name) ?? 0) + difference);
  const [expected, found] = [new Map(), new Map()];
  for (const frame of flame.frames) add(expected, frame.name, frame.head_own - frame.base_own);
  // A row is a function; several may have one name.
  for (const row of await rows(page, "differences")) add(found, row.name, Number(row.head) - Number(row.base));
  for (const name of new Set([...expected.keys(), ...found.keys()])) {
    const [page, json] = [found.get(name) ?? 0, expected.get(name) ?? 0];
    if (!(Math.abs(page - json) <= 1e-9 * Math.max(1, flame.base.total, flame.head.total))) wrong(`${metric}, ${name}: the page has a difference of ${page}, the JSON of ${json}`);
  }
}

/** The rules that a scheme of colours can break: the others say the same in either, and are half of what axe takes. */
const ON_COLOUR = ["color-contrast", "link-in-text-block"];

async function axeFinds(page, view) {
  for (const scheme of ["light", "dark"]) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await settle(page);
    const found = await page.evaluate((runOnly) => globalThis.axe.run(document, { resultTypes: ["violations"], ...(runOnly && { runOnly }) }).then(({ violations }) => violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.any.concat(node.all, node.none).map((check) => check.message).join("; ")}`).join(" | ")}`)), scheme === "dark" ? ON_COLOUR : null);
    for (const line of found) wrong(`axe, ${view}, ${scheme}: ${line}`);
  }
}

const axeSource = () => readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** The list that nodeprof view serves: a row for each recording, those that cannot be read told, and links to a report and a comparison. */
async function look(address, { axe, recordings }) {
  const browser = await launch();
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 900 });
  watch(page, address, wrong, new URL(address).origin);
  const ready = () => page.waitForSelector("[data-ready]", { timeout: 30_000 });
  const open = async (action) => {
    await Promise.all([page.waitForNavigation(), action()]);
    await ready();
  };
  await page.goto(address);
  await ready();
  const expected = JSON.parse(readFileSync(recordings, "utf8"));
  await sameRows(page, "", "recordings", expected, ["name", "node", "runs", "time", "bytes"]);
  if (axe) {
    await page.evaluate(axeSource());
    await axeFinds(page, "list");
  }
  for (const width of [420, 1280]) {
    await page.setViewport({ width, height: 900 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 1) wrong(`the list is ${wide} pixels wider than a window of ${width}`);
  }
  const good = expected.filter((one) => one.wall !== null);
  const bad = expected.find((one) => one.wall === null);
  if (bad) {
    const links = await page.$$eval('[data-table="recordings"] tbody a', (links) => links.map((link) => link.textContent));
    if (links.includes(bad.name)) wrong(`${bad.name}, which cannot be read, has a link`);
  }
  // A report, its views, and the way back.
  await open(() => page.click('[data-table="recordings"] tbody a'));
  for (const view of ["view=timeline", "view=flame"]) {
    await show(page, view);
    if (await page.$('[role="alert"]')) wrong(`${view} of a served report could not be drawn`);
  }
  await open(() => page.click('header a[href^="./?"]'));
  // Two that are ticked are compared, base first.
  for (const one of good.slice(0, 2)) await page.click(`input[aria-label="Compare ${one.name}"]`);
  await page.waitForSelector("a.button");
  await open(() => page.click("a.button"));
  const title = await page.title();
  for (const one of good.slice(0, 2)) if (!title.includes(one.name.replace(/\.nodeprof$/, ""))) wrong(`the comparison is called ${title}, without ${one.name}`);
  await browser.close();
  report("list: no problem");
}

/** A store of nine runs of three commits, of which the third has more crossings. */
async function lookAtStarts(address, { axe, starts }) {
  const browser = await launch();
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 900 });
  watch(page, address, wrong, new URL(address).origin);
  const open = async (url) => {
    await page.goto(url);
    await page.waitForSelector("[data-ready]", { timeout: 30_000 });
  };
  await open(address);
  const all = await rows(page, "starts");
  // What each of the first eight made, and each of the last four.
  const [few, many] = starts.split(",").map(Number);
  const commits = Array.from({ length: 12 }, (_, at) => at + 1).map((id) => ({ id: String(id), crossings: String(id > 8 ? many : few) }));
  const shown = all.map(({ id, crossings }) => ({ id, crossings })).sort((a, b) => Number(a.id) - Number(b.id));
  sameText("starts", JSON.stringify(shown), JSON.stringify(commits));
  await open(`${address}&figure=crossings.total`);
  const points = await rows(page, "trend");
  sameText("trend", points.map((point) => `${point.value} ${point.runs} ${point.median} ${point.change ?? ""}`).join("\n"), `a1 4 ${few} \nb2 4 ${few} \nc3 4 ${many} ${many - few}`);
  if ((await page.$$("svg.trend circle")).length !== 3) wrong("the chart has not three points");
  const names = (attribute) => page.$$eval(`svg.trend text[data-${attribute}]`, (all, attribute) => all.map((one) => one.dataset[attribute]).join(), attribute);
  sameText("axis", await names("value"), "a1,b2,c3");
  sameText("changes", await names("change"), "c3");
  // Runs of one program that were recorded alike and came to their end.
  sameText("warnings", (await page.$$eval('section[aria-labelledby="trend"] .warning', (all) => all.map((one) => one.textContent))).join(), "");
  if (axe) {
    await page.evaluate(axeSource());
    await axeFinds(page, "starts");
  }
  for (const width of [420, 1280]) {
    await page.setViewport({ width, height: 900 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 1) wrong(`the store is ${wide} pixels wider than a window of ${width}`);
  }
  // A filter typed into its field, and two commits compared.
  await page.type('input[name="label"]', "commit=b2");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  await page.waitForSelector("[data-ready]");
  sameText("filtered", (await rows(page, "starts")).map((run) => run.id).sort().join(), "5,6,7,8");
  // Another label narrows further; what is asked for holds for a comparison; and a label can be taken away again.
  const job = (await page.$$eval("datalist#labels option", (all) => all.map((one) => one.value))).find((label) => label.startsWith("job="));
  await page.type('input[name="label"]', job);
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  await page.waitForSelector("[data-ready]");
  sameText("labels", (await page.$$eval("a[data-label]", (all) => all.map((one) => one.dataset.label))).sort().join(), `commit=b2,${job}`);
  await Promise.all([page.waitForNavigation(), page.click('a[data-label="commit=b2"]')]);
  await page.waitForSelector("[data-ready]");
  sameText("without one", String((await rows(page, "starts")).length), "12");
  const narrowed = new URL(await page.$eval("a[data-compare]", (link) => link.href)).searchParams;
  sameText("narrowed", [narrowed.get("base"), narrowed.get("head"), ...narrowed.getAll("label")].join(), `commit=b2,commit=c3,${job}`);
  await open(address);
  await Promise.all([page.waitForNavigation(), page.click("a[data-compare]")]);
  await page.waitForSelector("[data-ready]");
  if (!(await page.$('a[href*="view=comparison"]'))) wrong("two commits are not compared");
  if (await page.evaluate(() => globalThis.injected !== undefined)) wrong("a label ran");
  await browser.close();
  report("starts: no problem");
}

function report(line) {
  if (problems.length > 0) {
    console.log([...new Set(problems)].join("\n"));
    process.exitCode = 1;
  } else console.log(line);
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { json: { type: "string", multiple: true }, diff: { type: "string" }, flame: { type: "string", multiple: true }, recordings: { type: "string" }, starts: { type: "string" }, axe: { type: "boolean" }, brief: { type: "boolean" }, contains: { type: "string", multiple: true }, first: { type: "string", multiple: true }, leads: { type: "string" } },
  });
  if (values.starts) return lookAtStarts(positionals[0], values);
  if (positionals[0].startsWith("http:")) return look(positionals[0], values);
  const file = resolve(positionals[0]);
  const address = pathToFileURL(file).href;
  const browser = await launch();
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 900 });
  watch(page, address);
  await page.goto(address);
  await page.waitForSelector("[data-ready]", { timeout: 30_000 });
  const kind = await page.evaluate(() => (document.querySelector('.views a[href*="view=comparison"]') ? "diff" : "report"));
  if (values.leads) {
    const leads = await page.evaluate(() => document.querySelector(".findings .sentence")?.textContent ?? "");
    if (!new RegExp(values.leads, "i").test(leads)) wrong(`the first sentence is not ${values.leads}; it is: ${leads}`);
  }
  // The first screen must say it: without scrolling.
  for (const words of values.first ?? []) {
    const seen = await page.evaluate(() => {
      const lines = [...document.querySelectorAll(".verdict h2, .findings .sentence, .findings .figure")];
      return lines.filter((line) => line.getBoundingClientRect().bottom <= innerHeight).map((line) => line.textContent).join("\n");
    });
    if (!new RegExp(words, "i").test(seen)) wrong(`the first screen does not say ${words}; it says:\n${seen}`);
  }
  for (const words of values.contains ?? []) {
    if (!(await page.evaluate((words) => document.body.innerText.includes(words), words))) wrong(`the first view does not say: ${words}`);
  }
  const views = kind === "diff"
    ? ["view=comparison", "view=comparison&metric=crossings&direction=base", ...REPORT_VIEWS.flatMap((view) => [`${view}&side=0`, `${view}&side=1`])]
    : REPORT_VIEWS;
  if (values.axe) await page.evaluate(axeSource());
  // Where other pages of the kind are looked at whole, what is asked for here is enough.
  for (const view of values.brief ? [] : views) {
    await show(page, view);
    const text = await page.evaluate(() => document.querySelector("main")?.innerText ?? "");
    if (text.trim() === "") wrong(`${view}: nothing is shown`);
    if (await page.$('[role="alert"]')) wrong(`${view}: ${text}`);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 1) wrong(`${view}: it is ${wide} pixels wider than the window`);
    if (values.axe) await axeFinds(page, view);
  }
  // As on a telephone: nothing sticks out.
  await page.setViewport({ width: 420, height: 900 });
  for (const view of values.brief ? [] : views) {
    await show(page, view);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 1) wrong(`${view}: it is ${wide} pixels wider than a narrow window`);
  }
  await page.setViewport({ width: 1280, height: 900 });
  // A span of time filters the other views; the address keeps it.
  if (kind === "report") {
    await show(page, "view=tables&table=callbacks&time=0..1");
    const note = await page.evaluate(() => document.querySelector("main .note")?.textContent ?? "");
    if (!note.includes("span")) wrong("a span of time does not filter the tables");
    // A span that holds all has all events; one before all has none.
    for (const [time, empty] of [["-9000000000000..9000000000000", false], ["-9000000000000..-8000000000000", true]]) {
      await show(page, `view=overview&time=${time}`);
      const calls = await page.evaluate(() => document.querySelector('[data-figure="during-crossings"] b')?.textContent ?? "0");
      await show(page, "view=overview");
      const all = await page.evaluate(() => document.querySelector('[data-figure="crossings"] b')?.textContent ?? "0");
      const expected = empty ? "0" : all;
      // Calls that were only summed are in no span.
      if (calls !== expected && (empty || Number(calls.replaceAll(",", "")) > Number(all.replaceAll(",", "")))) wrong(`the span ${time} has ${calls} crossings, not ${expected}`);
    }
    await show(page, "view=overview");
  }
  const parsed = (file) => JSON.parse(readFileSync(file, "utf8"));
  for (const [at, file] of (values.json ?? []).entries()) await compareWithJson(page, parsed(file), kind === "diff" ? `&side=${at}` : "");
  if (values.diff) await compareWithDiff(page, parsed(values.diff));
  for (const metric of values.flame ?? []) {
    const [name, file] = metric.split("=");
    await compareWithFlame(page, name, parsed(file));
  }
  // What a traced program is called must not have run.
  if (await page.evaluate(() => globalThis.injected !== undefined || document.querySelector("main img, main script, main iframe") !== null)) wrong("a string of the recording became markup");
  await browser.close();
  report(`${kind}: ${values.brief ? "what was asked for" : `${views.length} views`}, no problem`);
}

if (process.argv[1] && pathToFileURL(process.argv[1]).href === import.meta.url) await main();
