'use strict';

// Runs all call sites, here and, at the same time, in worker threads; writes what each was told by V8.
//
//   node main.js RESULT [WORKERS]

const fs = require('fs');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const vm = require('vm');

const site = require('witness');
const relay = require('relay');
const nodeModules = require('relay/node-modules');

globalThis.witness = site;

const COMMONJS = [
  'alpha',
  '@scope/beta/lib/crlf.js', '@scope/beta/lib/cr.js', '@scope/beta/lib/bom.js', '@scope/beta/lib/hashbang.js',
  './node_modules/alpha/node_modules/gamma/one-line.js', './node_modules/alpha/node_modules/gamma/long-names.js',
  './node_modules/alpha/node_modules/gamma/日本語.js', './node_modules/alpha/node_modules/gamma/latin-1.js',
  './node_modules/alpha/node_modules/gamma/large.js', './node_modules/alpha/node_modules/gamma/variables.js',
];
const MODULES = ['module', 'crlf', 'märz 25% #1?', 'variables', 'large', 'exports'];

async function main() {
  for (const name of COMMONJS) await run(require(name));
  const folder = new URL(`file://${encodeURI(__dirname)}/node_modules/delta/`);
  for (const name of MODULES) await run(await import(new URL(`${encodeURIComponent(name)}.mjs`, folder)));

  const cycle = require('cycle/a.js');
  cycle.late();
  cycle.lazily();
  relay.nested(300, () => site());
  require('bodies').run();

  const { body } = require('./texts.json');
  const wrapped = `(function text(site, relay, nodeModules) {\n${body}\n})`;
  await run(new Function('site', 'relay', 'nodeModules', body)(site, relay, nodeModules));
  await run((0, eval)(wrapped)(site, relay, nodeModules));
  await run(new vm.Script(wrapped, { filename: 'offset.vm', lineOffset: 10, columnOffset: 3 }).runInThisContext()(site, relay, nodeModules));
  return site.take();
}

async function run({ sync, later }) {
  sync();
  await later();
}

async function inWorker(id) {
  const worker = new Worker(__filename, { workerData: { id } });
  return new Promise((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

async function start() {
  if (!isMainThread) {
    parentPort.postMessage(await main());
    return;
  }
  const [result, workers = '0'] = process.argv.slice(2);
  const others = Array.from({ length: Number(workers) }, (_, id) => inWorker(id));
  const all = [await main(), ...(await Promise.all(others))];
  fs.writeFileSync(result, JSON.stringify(all.flat()));
}

start().catch((error) => {
  console.error([`${error}`, ...error.stack].join('\n    at '));
  process.exitCode = 1;
});
