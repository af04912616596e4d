// Functions in isolates that share threads: their scripts have the same ids, and many the same length. Prints how often each has called.
const { Isolate, Reference } = require('isolated-vm');
const ISOLATES = 4;
const FUNCTIONS = 40;
const ROUNDS = 20;

function source(k) {
  return `let keep;
const make = (i) => new Function('host', 'return function outer_${k}_' + i + '(n) { return inner(n).length }; '
  + 'function inner(n) { return inner_${k}_' + i + '(n) } '
  + 'function inner_${k}_' + i + '(n) { const made = []; for (let j = 0; j < n; j++) made.push({ j }); '
  + 'host.applyIgnored(undefined, [1]); return made }')(host);
const some = () => [...Array(${FUNCTIONS}).keys()].map(make);
let all = some(), round = 0;
function go() {
  if (round++ % 2) all = some();
  for (const f of all) f(1500);
}
function back() { return host.applySync(undefined, [1], { result: { copy: true } }) }`;
}

function host_called() {
  return process.uptime();
}

(async () => {
  const isolates = [];
  const calls = {};
  for (let k = 0; k < ISOLATES; k++) {
    const isolate = new Isolate({ memoryLimit: 16 });
    const context = isolate.createContextSync();
    context.global.setSync('host', new Reference(host_called));
    isolate.compileScriptSync('\n'.repeat(k) + source(k), { filename: `file:///isolate-${k}.js` }).runSync(context);
    isolates.push([isolate.compileScriptSync('go()'), isolate.compileScriptSync(`back() // ${k}`), context]);
    for (let i = 0; i < FUNCTIONS; i++) calls[`inner_${k}_${i}`] = ROUNDS;
  }
  for (let round = 0; round < ROUNDS; round++) {
    // In the main thread and back into its own isolate, then in threads of a pool.
    for (const [, back, context] of isolates) back.runSync(context);
    await Promise.all(isolates.map(([go, , context]) => go.run(context)));
  }
  console.log(JSON.stringify({ rounds: ROUNDS, isolates: ISOLATES, calls }));
})();
