// How long a page takes to open, and the longest frame of what people do on it, in headless Chromium: JSON on standard output.
//
//   node measure.mjs PAGE.html [RUNS]
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { launch } from "./drive.mjs";

const [file, times = "5"] = process.argv.slice(2);
const address = pathToFileURL(resolve(file)).href;
const browser = await launch();
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

async function open(hash) {
  const page = await browser.newPage();
  await page.setViewport({ width: 1440, height: 900 });
  await page.goto(`${address}#${hash}`);
  await page.waitForSelector("[data-ready]", { timeout: 120_000 });
  const ms = await page.evaluate(() => performance.getEntriesByName("nodeprof-shown")[0].startTime);
  return { page, ms };
}

/** Longest time between two frames, from an action to half a second after it. */
async function longestFrame(page, action) {
  return page.evaluate(async (action) => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    await frame();
    let last = await frame();
    let longest = 0;
    const canvas = [...document.querySelectorAll("canvas")].at(-1);
    const key = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    const type = (text) => {
      const input = document.querySelector('main input[type="search"]');
      input.value = text;
      input.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const [kind, value] = action;
    if (kind === "key") key(value);
    else if (kind === "type") type(value);
    else location.hash = value;
    const until = last + 500;
    do {
      const now = await frame();
      longest = Math.max(longest, now - last);
      last = now;
    } while (last < until);
    return longest;
  }, action);
}

const ACTIONS = {
  "view=flame": [
    ["zoom into a frame", ["hash", "view=flame&at=ZOOM"]],
    ["zoom out", ["hash", "view=flame"]],
    ["search", ["type", "require"]],
    ["another metric", ["hash", "view=flame&metric=crossings"]],
    ["back to the first metric", ["hash", "view=flame"]],
    ["inverted", ["hash", "view=flame&layout=inverted"]],
    ["in order of time", ["hash", "view=flame&layout=time"]],
    ["by package", ["hash", "view=flame&by=package"]],
    ["callers and callees", ["hash", "view=flame&layout=sandwich&frame=0"]],
  ],
  "view=timeline": [
    ["timeline: zoom in", ["key", "+"]],
    ["timeline: zoom in again", ["key", "+"]],
    ["timeline: move", ["key", "ArrowRight"]],
    ["timeline: whole run", ["key", "0"]],
    ["select a span", ["hash", "view=timeline&time=1000000..50000000"]],
    ["timeline to overview", ["hash", "view=overview"]],
  ],
};

const result = { open: {}, frames: {} };
for (const hash of ["", "view=flame", "view=timeline"]) {
  const found = [];
  for (let run = 0; run < Number(times); run++) {
    const { page, ms } = await open(hash);
    found.push(ms);
    await page.close();
  }
  result.open[hash || "view=overview"] = median(found);
}
for (const [hash, actions] of Object.entries(ACTIONS)) {
  const all = new Map(actions.map(([name]) => [name, []]));
  for (let run = 0; run < Number(times); run++) {
    const { page } = await open(hash);
    for (const [name, [kind, value]] of actions) {
      all.get(name).push(await longestFrame(page, [kind, value.replace("ZOOM", (0).toString(36))]));
    }
    await page.close();
  }
  for (const [name, list] of all) result.frames[name] = median(list);
}
const size = await (async () => {
  const { page } = await open("view=timeline");
  const text = await page.evaluate(() => document.querySelector(".lead")?.textContent ?? "");
  await page.close();
  return text;
})();
result.events = Number(/[\d,]+/.exec(size)?.[0].replaceAll(",", "") ?? 0);
await browser.close();
console.log(JSON.stringify(result));
