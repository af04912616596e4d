// An isolate that the main thread and one of a pool take turns in. Between its turns the other one collects garbage, so that other functions come
// to lie where the main thread has seen some. Prints how often each has called.
const { Isolate, Reference } = require('isolated-vm');
const FUNCTIONS = 40;
const CLOSURES = 2000;
const ROUNDS = 40;

const source = `
const makers = [${[...Array(FUNCTIONS).keys()].map((i) => `() => function moved_${i}() { host.applyIgnored(undefined, [1]) }`)}];
const calls = {};
let round = 0;
function go() {
  const all = [];
  for (let i = 0; i < ${CLOSURES}; i++) all.push(makers[(i + round) % ${FUNCTIONS}]());
  for (let i = 0; i < all.length; i += 10) {
    all[i]();
    calls[all[i].name] = (calls[all[i].name] ?? 0) + 1;
  }
  round++;
}
function collect() {
  let made;
  for (let i = 0; i < 200000; i++) made = { i };
  return made.i;
}`;

(async () => {
  const isolate = new Isolate({ memoryLimit: 16 });
  const context = isolate.createContextSync();
  context.global.setSync('host', new Reference(() => {}));
  isolate.compileScriptSync(source, { filename: 'file:///moved.js' }).runSync(context);
  const go = isolate.compileScriptSync('go()');
  const collect = isolate.compileScriptSync('collect()');
  for (let round = 0; round < ROUNDS; round++) {
    go.runSync(context);
    await collect.run(context);
  }
  console.log(isolate.compileScriptSync('JSON.stringify(calls)').runSync(context));
})();
