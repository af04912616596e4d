// Looks at every view of a page in a headless browser.
//
//   node drive.mjs PAGE.html [--json REPORT.json] [--expect KIND] [--axe]
//
// Fails on an error in the console, on a request, on what axe finds, and on a figure that is not that of the JSON. Exit status 77: there is
// no browser.
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

/** Notes every error and every request but that for the page itself. */
export function watch(page, address, onProblem = wrong) {
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
    if (!url.startsWith("data:") && url.split("#")[0] !== address) onProblem(`request: ${url}`);
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

async function compareWithJson(page, report) {
  const bare = (run) => run.mode === "bare";
  const run = report.runs.find((run) => !bare(run)) ?? report.runs[0];
  if (!run) return;
  await show(page, "view=overview");
  await sameFigure(page, "wall", run.time.wall_ns);
  await sameFigure(page, "crossings", run.crossings.total);
  await sameFigure(page, "stats", run.files.stat.calls);
  await sameFigure(page, "compile", run.compile.total_ns);
  await sameFigure(page, "memory", run.time.max_rss_bytes);
  await sameFigure(page, "modules", run.modules.filter((module) => module.kind !== "builtin").length);
  if (run.phases.length > 0) {
    await page.evaluate(() => document.querySelector("details")?.setAttribute("open", ""));
    await sameRows(page, "view=overview", "phases", run.phases, ["start_ns", "crossings", "crossings_self_ns", "lookups", "stats", "opens", "files_ns", "compilations", "compile_ns"]);
  }
  const lists = [
    ["view=tables&table=callbacks", "callbacks", run.crossings.callbacks, ["binding", "function", "kind", "calls", "total_ns", "self_ns", "total_corrected_ns", "unfinished"]],
    ["view=tables&table=callbacks", "to-js", run.crossings.to_js, ["kind", "calls", "total_ns", "self_ns"]],
    ["view=tables&table=package-json", "package-json", run.package_json.files, ["lookups", "found", "opens", "opens_failed", "stats", "reads", "bytes", "total_ns"]],
    ["view=tables&table=files", "operations", ["stat", "open", "read", "readlink", "access", "close"].map((operation) => ({ operation, ...run.files[operation] })), ["operation", "calls", "failed", "total_ns"]],
    ["view=tables&table=serialization", "serialization", run.serialization.functions, ["function", "calls", "bytes", "total_ns", "self_ns"]],
    ["view=tables&table=serialization", "serialization-callbacks", run.serialization.callbacks.map((one) => ({ ...one, binding: one.binding ?? "(outside)" })), ["binding", "function", "calls", "bytes", "total_ns", "self_ns"]],
    ["view=tables&table=compilation", "compilation", run.compile.scripts, ["cached", "compilations", "total_ns", "self_ns"]],
    ["view=tables&table=processes", "processes", run.processes, ["start_ns", "end_ns", "user_ns", "system_ns", "max_rss_bytes", "crossings", "file_operations"]],
    ["view=modules&show=packages", "packages", run.packages, ["self_ns", "total_ns", "uncertain_ns", "modules", ...COSTS]],
    ["view=modules&show=modules", "modules", run.modules, ["kind", "start_ns", "self_ns", "total_ns", "resolve_ns", "read_ns", "compile_ns", "execute_ns", ...COSTS]],
  ];
  for (const [hash, table, list, fields] of lists) {
    if (list.length > 0) await sameRows(page, hash, table, list, fields);
  }
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
      await show(page, `view=flame&metric=${metric}`);
      await sameFigure(page, "total", total);
      // The same stacks by module and by package lose nothing.
      await show(page, `view=flame&metric=${metric}&by=package`);
      await sameFigure(page, "total", total);
    }
  }
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { json: { type: "string" }, axe: { type: "boolean" }, contains: { type: "string", multiple: true }, first: { type: "string", multiple: true }, leads: { type: "string" } },
  });
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
  const axe = values.axe ? readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8") : null;
  if (axe) await page.evaluate(axe);
  for (const view of views) {
    await show(page, view);
    const text = await page.evaluate(() => document.querySelector("main")?.innerText ?? "");
    if (text.trim() === "") wrong(`${view}: nothing is shown`);
    if (await page.$('[role="alert"]')) wrong(`${view}: ${text}`);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (wide > 1) wrong(`${view}: it is ${wide} pixels wider than the window`);
    if (axe) {
      for (const scheme of ["light", "dark"]) {
        await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
        await settle(page);
        const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.any.concat(node.all, node.none).map((check) => check.message).join("; ")}`).join(" | ")}`)));
        for (const line of found) wrong(`axe, ${view}, ${scheme}: ${line}`);
      }
    }
  }
  // As on a telephone: nothing sticks out.
  await page.setViewport({ width: 420, height: 900 });
  for (const view of views) {
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
  if (values.json) await compareWithJson(page, JSON.parse(readFileSync(values.json, "utf8")));
  // What a traced program is called must not have run.
  if (await page.evaluate(() => globalThis.injected !== undefined || document.querySelector("main img, main script, main iframe") !== null)) wrong("a string of the recording became markup");
  await browser.close();
  if (problems.length > 0) {
    console.log([...new Set(problems)].join("\n"));
    process.exitCode = 1;
  } else {
    console.log(`${kind}: ${views.length} views, no problem`);
  }
}

if (process.argv[1] && pathToFileURL(process.argv[1]).href === import.meta.url) await main();
