// Bundles the page into one file: dist/page.html, with scripts and styles inside, and the licences of what it is made of.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync, existsSync, readdirSync, renameSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const notices = (inputs) => {
  const names = new Set();
  for (const input of inputs) {
    const match = /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(input);
    if (match) names.add(match[1]);
  }
  return [...names].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((file) => /^licen[cs]e(\.(md|txt))?$/i.test(file));
    if (!license || !file) throw new Error(`${name}: no licence found; a bundled package must have one`);
    return { name, version, license, text: readFileSync(join(folder, file), "utf8").trim() };
  });
};

const options = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  write: false,
  metafile: true,
  entryPoints: ["src/main.tsx"],
  loader: { ".css": "text" },
};
// Twice: the first tells what is in it, so that the second can list the licences of just that.
const first = await build({ ...options, define: { NOTICES: "[]" } });
const list = notices(Object.keys(first.metafile.inputs));
const script = (await build({ ...options, define: { NOTICES: JSON.stringify(list) } })).outputFiles[0].text
  // What would end the element that holds it.
  .replaceAll("</script", "<\\/script");
const style = (
  await build({ absWorkingDir: here, entryPoints: ["src/style.css"], bundle: true, minify: true, write: false, charset: "utf8" })
).outputFiles[0].text;

const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  "connect-src @@nodeprof-connect@@",
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join("; ");
const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>nodeprof</title>
<link rel="icon" href="data:,">
<style>${style}</style>
</head>
<body>
<div id="page"><p class="loading">Reading the recording …</p></div>
<noscript><p class="loading">This report draws itself with the script that it contains: allow scripts for this file.</p></noscript>
<script type="application/octet-stream" id="data">@@nodeprof-data@@</script>
<script>${script}</script>
</body>
</html>
`;
mkdirSync(join(here, "dist"), { recursive: true });
const target = join(here, "dist/page.html");
// The same content keeps its time of change, so that cargo builds nothing anew.
if (!existsSync(target) || readFileSync(target, "utf8") !== page) {
  writeFileSync(`${target}.new`, page);
  renameSync(`${target}.new`, target);
}
console.log(`dist/page.html: ${(page.length / 1024).toFixed(0)} kB, ${list.length} packages: ${list.map(({ name }) => name).join(", ")}`);
