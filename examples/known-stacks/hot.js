'use strict';

// Runs call sites until the optimising compilers have had time for them, across modules, and lets each tell its stack then.
//
//   node hot.js RESULT [MILLISECONDS of CPU time to warm up each module]

const fs = require('fs');

const site = require('witness');

globalThis.witness = site;

const [result, warm = '400'] = process.argv.slice(2);
const COMMONJS = [
  'alpha', '@scope/beta/lib/crlf.js',
  './node_modules/alpha/node_modules/gamma/one-line.js', './node_modules/alpha/node_modules/gamma/variables.js',
];
const MODULES = ['module', 'märz 25% #1?'];

/** Calls that leave no trace, but the stacks of their errors are taken no less, which would be slow. */
function warmUp(sync) {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 0;
  site.arm(false);
  const end = process.cpuUsage().user + Number(warm) * 1000;
  while (process.cpuUsage().user < end) sync();
  site.arm(true);
  Error.stackTraceLimit = limit;
}

async function run({ sync, later }) {
  // First with a trace: what was never called would not be compiled.
  sync();
  site.take();
  warmUp(sync);
  for (let round = 0; round < 3; round++) sync();
  await later();
  return site.take();
}

async function start() {
  const all = [];
  for (const name of COMMONJS) all.push(await run(require(name)));
  const folder = new URL(`file://${encodeURI(__dirname)}/node_modules/delta/`);
  for (const name of MODULES) all.push(await run(await import(new URL(`${encodeURIComponent(name)}.mjs`, folder))));
  fs.writeFileSync(result, JSON.stringify(all.flat()));
}

start().catch((error) => {
  console.error([`${error}`, ...error.stack].join('\n    at '));
  process.exitCode = 1;
});
