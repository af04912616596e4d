// Pictures of pages, for the documentation and for looking at them.
//
//   node pictures.mjs FOLDER NAME=PAGE.html[#ADDRESS] …  [--width 1280] [--height 800] [--dark]
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { pathToFileURL } from "node:url";
import { launch } from "./drive.mjs";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { width: { type: "string", default: "1280" }, height: { type: "string", default: "800" }, dark: { type: "boolean" }, png: { type: "boolean" } },
});
const [folder, ...pictures] = positionals;
const browser = await launch();
const page = await browser.newPage();
await page.setViewport({ width: Number(values.width), height: Number(values.height), deviceScaleFactor: 1 });
await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: values.dark ? "dark" : "light" }]);
for (const picture of pictures) {
  const at = picture.indexOf("=");
  const [file, address = ""] = picture.slice(at + 1).split(/#(.*)/s);
  await page.goto("about:blank");
  await page.goto(`${pathToFileURL(resolve(file)).href}#${address}`);
  await page.waitForSelector("[data-ready]");
  await new Promise((done) => setTimeout(done, 300));
  const type = values.png ? "png" : "webp";
  await page.screenshot({ path: join(folder, `${picture.slice(0, at)}.${type}`), type, ...(values.png ? {} : { quality: 82 }) });
}
await browser.close();
