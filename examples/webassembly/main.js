'use strict';

// WebAssembly of several modules, made here byte by byte: with names, without any, compiled at once, by promise and while it is read, on the main
// thread and in a worker. Functions of it call JavaScript, which notes what `new Error().stack` says there, and asks for a file whose name tells
// which call it is.
//
//   node main.js
//
// At the end it prints the stacks, and the CPU time that `spin` took by its own clock.

const fs = require('fs');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const number = (value) => {
  const bytes = [];
  for (; value > 127; value >>>= 7) bytes.push(value & 127 | 128);
  return [...bytes, value];
};
const text = (value) => [...number(Buffer.byteLength(value)), ...Buffer.from(value)];
const list = (items) => [...number(items.length), ...items.flat()];
const section = (id, content) => [id, ...number(content.length), ...content];
const body = (locals, code) => [...number(locals.length + code.length + 1), ...locals, ...code, 0x0b];

// One parameter, one result, both i32.
const ONE = [0x60, 1, 0x7f, 1, 0x7f];
const CALL = 0x10, LOCAL_GET = 0x20, LOCAL_SET = 0x21, LOCAL_TEE = 0x22, CONST = 0x41;

/** A module whose function `outer` calls `again`, which calls itself some times and then JavaScript; `spin` goes round. */
function assemble(names) {
  const again = [
    LOCAL_GET, 0, CONST, 8, 0x71, 0x04, 0x7f, // if (n & 8)
    LOCAL_GET, 0, CALL, 0, // hit(n)
    0x05, // else
    LOCAL_GET, 0, CONST, 1, 0x6a, CALL, 2, // again(n + 1)
    0x0b, CONST, 1, 0x6a,
  ];
  const spin = [
    0x03, 0x40, // loop
    LOCAL_GET, 1, LOCAL_GET, 0, 0x6a, LOCAL_SET, 1,
    LOCAL_GET, 0, CONST, 1, 0x6b, LOCAL_TEE, 0, 0x0d, 0,
    0x0b, LOCAL_GET, 1,
  ];
  const named = names.map((name, index) => [...number(index), ...text(name)]);
  // A section before it that only tools read, one behind it, and names of the module and of locals.
  const about = [...text('name'), ...section(0, text('m')), ...section(1, list(named)), ...section(2, list([[2, ...list([[0, ...text('n')]])]]))];
  return new Uint8Array([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(0, [...text('producers'), ...list([])]),
    ...section(1, list([ONE])),
    ...section(2, list([[...text('env'), ...text('hit'), 0, 0]])),
    ...section(3, list([[0], [0], [0]])),
    ...section(7, list([[...text('outer'), 0, 1], [...text('spin'), 0, 3]])),
    ...section(10, list([
      body([0], [LOCAL_GET, 0, CALL, 2, CONST, 2, 0x6c]),
      body([0], again),
      body([1, 1, 0x7f], spin),
    ])),
    ...names.length ? section(0, about) : [],
    ...section(0, [...text('last'), 1, 2, 3]),
  ]);
}

const stacks = [];
let site = isMainThread ? 0 : 1000;

/** Notes the functions of its callers, and makes a system call whose path is their number. */
function hit(n) {
  const before = Error.prepareStackTrace;
  Error.stackTraceLimit = 100;
  Error.prepareStackTrace = (_, sites) => sites.map((site) => {
    const place = /(wasm:\/\/wasm\/[^:]*):wasm-function\[(\d+)\]/.exec(`${site}`);
    if (place) return { wasm: place[1], name: site.getFunctionName() || `wasm-function[${place[2]}]` };
    return { name: site.getFunctionName() || '', node: (site.getFileName() || '').startsWith('node:') };
  });
  const path = `/nowhere/wasm-${site++}`;
  const { stack } = new Error();
  fs.existsSync(path);
  Error.prepareStackTrace = before;
  stacks.push({ path, stack });
  return n;
}

function call(instance, n) { return instance.exports.outer(n); }

function calls(instance) {
  for (let n = 0; n < 12; n++) call(instance, n);
}

const instantiate = (module) => new WebAssembly.Instance(module, { env: { hit } });
// No name of the fourth function, and names of several bytes a length, and that are no ASCII.
const NAMES = ['hit', 'the outer one', `again_${'x'.repeat(200)}`, 'grün'];

if (isMainThread) {
  const named = new WebAssembly.Module(assemble(NAMES));
  calls(instantiate(named));
  calls(instantiate(new WebAssembly.Module(assemble([]))));
  calls(instantiate(new WebAssembly.Module(assemble(['hit', '', 'second']))));

  const clock = process.cpuUsage();
  const { spin } = instantiate(named).exports;
  for (let i = 0; i < 300; i++) spin(1_000_000);
  const { user, system } = process.cpuUsage(clock);

  const later = async () => {
    calls(instantiate(await WebAssembly.compile(assemble(['hit', 'by promise', 'again by promise']))));
    if (WebAssembly.compileStreaming && typeof Response === 'function') {
      const headers = { 'content-type': 'application/wasm' };
      const response = new Response(assemble(['hit', 'streamed', 'again streamed']), { headers });
      calls(instantiate(await WebAssembly.compileStreaming(response)));
    }
    const worker = new Worker(__filename, { workerData: named });
    worker.on('message', (of) => stacks.push(...of));
    worker.on('exit', () => console.log(JSON.stringify({ stacks, spin_us: user + system })));
  };
  later();
} else {
  // The same module, in another isolate.
  calls(instantiate(workerData));
  calls(instantiate(new WebAssembly.Module(assemble(['hit', 'of the worker', 'again of the worker']))));
  parentPort.postMessage(stacks);
}
