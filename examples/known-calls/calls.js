// Flags: --expose-internals
'use strict';

// A program that crosses from JavaScript to C++ a number of times that is known beforehand, so that a count can
// be checked against something not counted by nodeprof: count(N, KIND) - count(N, none) = N, exactly.
//
//   node --expose-internals calls.js N KIND
//
// N may be 0. The README beside this file says what each KIND calls and on which way it enters C++.
// Everything but the N calls is the same for every N and KIND: all operations are made ready, one is repeated.

const { internalBinding } = require('internal/test/binding');
const vm = require('vm');

const [countText, kind] = process.argv.slice(2);
const count = Number(countText);
const operations = makeOperations();

if (!Number.isSafeInteger(count) || count < 0 || !Object.keys(operations).includes(kind)) {
  console.error(`usage: node --expose-internals calls.js N ${Object.keys(operations).join('|')}`);
  process.exit(2);
}
// The sum keeps the optimiser from dropping a call whose result nobody reads, and shows that the calls were made.
console.log(`${count} ${kind}: ${operations[kind](count)}`);

/**
 * Each operation has a loop of its own: in a shared one the call site becomes megamorphic, and optimised code
 * would neither inline the call nor choose the fast API.
 */
function makeOperations() {
  const { byteLengthUtf8 } = internalBinding('buffer');
  const { BlockList } = internalBinding('block_list');
  const stat = bindStat(internalBinding('fs').internalModuleStat);
  const script = new vm.Script('1');
  const { uptime } = process;
  const measured = (parameter) => parameter;

  return {
    none() {
      return 0;
    },
    stat(n) {
      let sum = 0;
      for (let i = 0; i < n; i++) sum += stat(__dirname);
      return sum;
    },
    uptime(n) {
      let sum = 0;
      for (let i = 0; i < n; i++) sum += uptime() > 0;
      return sum;
    },
    'byte-length'(n) {
      let sum = 0;
      for (let i = 0; i < n; i++) sum += byteLengthUtf8('x');
      return sum;
    },
    getter(n) {
      let sum = 0;
      for (let i = 0; i < n; i++) sum += measured.length;
      return sum;
    },
    'getter-runtime'(n) {
      let sum = 0;
      for (let i = 0; i < n; i++) sum += process.debugPort > 0;
      return sum;
    },
    construct(n) {
      let sum = 0;
      for (let i = 0; i < n; i++) sum += typeof new BlockList() === 'object';
      return sum;
    },
    throw(n) {
      let sum = 0;
      for (let i = 0; i < n; i++) {
        try {
          process.chdir('/no/such/folder/for/nodeprof');
        } catch {
          sum++;
        }
      }
      return sum;
    },
    'to-js'(n) {
      let sum = 0;
      for (let i = 0; i < n; i++) sum += script.runInThisContext();
      return sum;
    },
  };
}

/**
 * internalModuleStat takes (path) in most versions and (receiver, path) in some of 22 and 23, and aborts the process
 * when called the other way. Node's own source tells which.
 */
function bindStat(internalModuleStat) {
  const loader = process.binding('natives')['internal/modules/cjs/loader'];
  const takesReceiver = /internalModuleStat\(\s*\w+\s*,/.test(loader);
  const receiver = internalBinding('fs');
  return takesReceiver ? (path) => internalModuleStat(receiver, path) : internalModuleStat;
}
