'use strict';

// Calls in optimised code that V8 gives up while they last: the code takes a global for a constant, and what it calls
// changes that. From then on the calls return to where the interpreter goes on, and each tells its stack then.
//
//   node --allow-natives-syntax given-up.js RESULT maglev|turbofan

const fs = require('fs');
const path = require('path');
const vm = require('vm');

const site = require('witness');

globalThis.witness = site;

const [result, compiler] = process.argv.slice(2);
const TIMES = 60;
const OPTIMIZE = { maglev: '%OptimizeMaglevOnNextCall', turbofan: '%OptimizeFunctionOnNextCall' }[compiler];

// `change()` is the call that changes the constant; the functions called between are inlined.
const SHAPES = {
  directly: `
    function outer(change) { return constant + change(); }`,
  inlined: `
    function inner(change) { let sum = 1;
        sum += change(sum); return sum; }
    function outer(change) {
      const before = constant;
      return before + inner(change, before);
    }`,
  twice: `
    const innermost = (change, value) => [value, change(value)];
    function inner(change) { return innermost(change, 1).concat(innermost(change, 2)); }
    function outer(change) {
      let all = [];
      for (let i = 0; i < 3; i++) all = all.concat(inner(change), constant);
      return all;
    }`,
  constructed: `
    class Inner { constructor(change) { this.value = change(); } get late() { return this.value; } }
    function outer(change) { return new Inner(change).late + constant; }`,
  caught: `
    function inner(change) { try { return change(); } catch { return 0; } finally { constant; } }
    function outer(change) { return inner(change) + inner(change) + constant; }`,
};

function run(shape, number) {
  const name = `constant_${shape}_${number}`;
  globalThis[name] = 1;
  const text = `(function () {${SHAPES[shape].replaceAll('constant', name)}
    let next;
    function change() { if (next) globalThis.${name} = next; return witness(1); }
    const changed = () => change();
    %NeverOptimizeFunction(change); %NeverOptimizeFunction(changed);
    return { outer, inner: typeof inner === 'undefined' ? outer : inner, changed, set(to) { next = to; },
      prepare(f) { %PrepareFunctionForOptimization(f); }, optimize(f) { ${OPTIMIZE}(f); } };
  })()`;
  const filename = path.join(__dirname, 'given-up', `${shape}-${number}.js`);
  const { outer, inner, changed, set, prepare, optimize } = vm.runInThisContext(text, { filename });
  site.arm(false);
  prepare(outer);
  prepare(inner);
  for (let i = 0; i < 10; i++) outer(changed);
  optimize(outer);
  outer(changed);
  site.arm(true);
  set({});
  outer(changed);
}

for (let number = 0; number < TIMES; number++) {
  for (const shape of Object.keys(SHAPES)) run(shape, number);
}
fs.writeFileSync(result, JSON.stringify(site.take()));
