// Tests of what the page reckons with, without a browser. `npm test` bundles and runs them.
import { build } from "esbuild";
import { mkdtempSync, rmSync } from "node:fs";
import { spawnSync } from "node:child_process";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "nodeprof-page-"));
try {
  await build({ absWorkingDir: here, entryPoints: ["unit.test.ts"], bundle: true, platform: "node", format: "esm", outfile: join(folder, "unit.test.mjs"), logLevel: "error",
    // What the page's state asks of a browser when it is loaded; no test here looks at it.
    banner: { js: 'Object.assign(globalThis, { location: { hash: "" }, addEventListener() {}, matchMedia: () => ({ matches: false, addEventListener() {} }) });' },
  });
  process.exitCode = spawnSync(process.execPath, ["--test", join(folder, "unit.test.mjs")], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
