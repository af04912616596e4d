'use strict';

// Writes a program with some thousand call sites, in modules of many kinds, of which each tells its own stack.
//
//   node generate.js FOLDER && node FOLDER/main.js RESULT
//
// The shapes of code are the texts in shapes/. Here they are put into files: CommonJS and ES modules of several packages,
// with line ends, alphabets, names and surroundings of all sorts.

const fs = require('fs');
const path = require('path');

const [target] = process.argv.slice(2);
if (!target) {
  console.error('usage: node generate.js FOLDER');
  process.exit(2);
}

/** Node before 16.11 does not know such blocks. */
const staticBlock = /static \{ site\(\); \}/g;
const knowsStaticBlocks = (() => {
  try {
    return Boolean(new Function('class C { static {} }'));
  } catch {
    return false;
  }
})();
const shape = (name) => {
  const text = fs.readFileSync(path.join(__dirname, 'shapes', name), 'utf8');
  return knowsStaticBlocks ? text : text.replace(staticBlock, '');
};
const calls = shape('calls.js');
const later = shape('later.js');
const sloppy = shape('sloppy.js');

// Every module exports what to run at once and what to run later.
const cjs = (body, before = '') => `${before}const site = require('witness');
const relay = require('relay');
const nodeModules = require('relay/node-modules');
${body}
module.exports = { sync, later };
`;
const esm = (body, before = '') => `${before}import site from 'witness';
import relay from 'relay';
import nodeModules from 'relay/node-modules.js';
${body}
export { sync, later };
`;

const everything = `${calls}\n${later}`;

/** Every function's name, and every use of it, with this before it. */
function renamed(body, prefix) {
  const names = new Set([...body.matchAll(/function\*? (\w+)\(|class (\w+) /g)].map(([, f, c]) => f || c));
  for (const kept of ['sync', 'later', 'sloppy', 'replacer']) names.delete(kept);
  return body.replace(/(?<![.'\w#])(\w+)(?!['\w])/g, (word) => (names.has(word) ? prefix + word : word));
}

/** On one line; the shapes have no line comments. */
const onOneLine = (body) => body.replace(/\n\s*/g, ' ');

/** A function's variables move into a context if a closure uses them; from 75 on V8 keeps their names in a table. */
function amongVariables(count, body) {
  const names = Array.from({ length: count }, (_, i) => `variable${i}`);
  return `${names.map((name, i) => `let ${name} = ${i};`).join('\n')}
function useThem() { return ${names.join(' + ')}; }
${body}
useThem();`;
}

/** Bodies so large that their tables of positions do not fit into 4 KB, with sites at the start, in the middle, and at the end. */
function large(statements) {
  const filler = Array.from({ length: statements }, (_, i) => `sum = add(sum, ${i}) - add(${i}, sum);`);
  const sites = (from, to) => filler.slice(from, to).join('\n');
  return `
function add(a, b) { return a + b; }
function largeFunction() {
  let sum = site(0);
${sites(0, statements / 2)}
  site(sum); [1].map((x) => site(x));
${sites(statements / 2)}
  return site(sum);
}
function contextual() {
${amongVariables(100, '  const nested = () => useThem() + site(1);\n  nested(); site();')}
  return [1].map(function mapped(x) { return site(x + variable99); });
}
const ${'veryLongName'.repeat(30)} = () => site();
function ${'ὀνοματοποιία'.repeat(30)}() { return site(); }
function ${'n'.repeat(127)}() { return site(); }
function ${'n'.repeat(128)}() { return site(); }
function ${'n'.repeat(129)}() { return site(); }
function ${'ü'.repeat(200)}() { return site(); }
function sync() {
  largeFunction();
  contextual();
  ${'veryLongName'.repeat(30)}();
  ${'ὀνοματοποιία'.repeat(30)}();
  ${'n'.repeat(127)}(); ${'n'.repeat(128)}(); ${'n'.repeat(129)}(); ${'ü'.repeat(200)}();
}
async function later() {
  await null;
  largeFunction();
}
`;
}

const files = {
  'node_modules/alpha/index.js': cjs(`${everything}\n${sloppy}\nconst runAll = sync; module.exports.sloppy = sloppy;`)
    .replace('module.exports = { sync, later };', 'module.exports = { sync() { sync(); sloppy(); }, later };'),
  'node_modules/@scope/beta/lib/crlf.js': cjs(everything, "'use strict';\n").replace(/\n/g, '\r\n'),
  'node_modules/@scope/beta/lib/cr.js': cjs(everything).replace(/\n/g, '\r'),
  'node_modules/@scope/beta/lib/bom.js': `\ufeff${cjs(everything)}`,
  'node_modules/@scope/beta/lib/hashbang.js': cjs(everything, '#!/usr/bin/env node\n'),
  'node_modules/alpha/node_modules/gamma/one-line.js': cjs(`/*${' a long line'.repeat(3000)}*/ ${onOneLine(everything)}`),
  'node_modules/alpha/node_modules/gamma/long-names.js': cjs(renamed(everything, 'aNameOfSuchALengthThatItWantsMoreThanOneRecordOfSmallSize_'.repeat(4))),
  'node_modules/alpha/node_modules/gamma/日本語.js': cjs(renamed(everything, '関数_'), "/* \u2028 ends a line, \u{1f600} is two units */ 'use strict';\n"),
  'node_modules/alpha/node_modules/gamma/latin-1.js': cjs(renamed(everything, 'größe_'), '/* ÄÖÜ */\n'),
  'node_modules/alpha/node_modules/gamma/large.js': cjs(large(3000)),
  'node_modules/alpha/node_modules/gamma/variables.js': cjs(amongVariables(120, everything)),
  'node_modules/delta/module.mjs': esm(everything),
  'node_modules/delta/crlf.mjs': esm(everything).replace(/\n/g, '\r\n'),
  'node_modules/delta/märz 25% #1?.mjs': esm(renamed(everything, 'ж')),
  'node_modules/delta/variables.mjs': esm(amongVariables(120, everything)),
  'node_modules/delta/large.mjs': esm(large(2000)),
  'node_modules/delta/exports.mjs': `import * as self from 'delta/exports.mjs';\n${esm(everything)}
export const awaited = await (async () => { site(); await null; return site(1); })();
site(self);
export default site(await import('delta/empty.mjs'));
`,
  'node_modules/delta/empty.mjs': '',
  // Cycles, JSON, and a require in the middle of a function.
  'node_modules/cycle/a.js': `const site = require('witness');
exports.early = site(1);
const b = require('./b');
site();
exports.late = () => b.call(() => site());
exports.lazily = function lazily() { require('./data.json'); return require('./lazy')(); };
`,
  'node_modules/cycle/b.js': `const site = require('witness');
const a = require('./a.js');
site(a.early);
exports.call = (f) => { site(); return f(); };
`,
  'node_modules/cycle/data.json': '{"a": 1}\n',
  'node_modules/cycle/lazy.js': `require('witness')();
module.exports = () => require('witness')();
`,
  // Bodies of modules where others were, called by the same functions from elsewhere.
  'node_modules/bodies/index.js': `const { vm } = require('relay/node-modules');
const names = ['exports', 'require', 'module', '__filename', '__dirname'];
const body = vm.compileFunction('witness(); return [1].map(() => witness());', names, { filename: 'body.js' });
function load() { delete require.cache[require.resolve('./body')]; return require('./body'); }
function call() { const own = {}; return body.call(own, own, require, module, __filename, __dirname); }
function callWithout() { return body(exports, require, module, __filename, __dirname); }
exports.run = () => {
  load(); load();
  load();
  call(); call();
  call();
  callWithout(); callWithout();
  callWithout();
};
`,
  'node_modules/bodies/body.js': `const site = require('witness');
exports.first = site(1);
(() => site(2))(); site(3);
(() => site(4))();
exports = module.exports = () => site(5);
exports();
if (!this.again) {
  this.again = true;
  arguments.callee.apply(this, arguments);
}
require('./inner');
site(6); require('./inner');
`,
  'node_modules/bodies/inner.js': `require('witness')();
this.run = () => require('witness')(); exports.run();
`,
  // Texts that never were files of their own.
  'texts.json': JSON.stringify({ body: `${everything}\nreturn { sync, later };` }),
};

for (const [name, text] of Object.entries(files)) {
  const file = path.join(target, name);
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, text);
}
const copies = {
  'main.js': 'main.js',
  'given-up.js': 'given-up.js',
  'hot.js': 'hot.js',
  'witness.js': 'node_modules/witness/index.js',
  'relay.js': 'node_modules/relay/index.js',
  'node-modules.js': 'node_modules/relay/node-modules.js',
};
for (const [from, to] of Object.entries(copies)) {
  const file = path.join(__dirname, from);
  fs.mkdirSync(path.dirname(path.join(target, to)), { recursive: true });
  fs.copyFileSync(file, path.join(target, to));
}
