/* What runs from the event loop or a queue of jobs; the same rules as in calls.js. */

async function awaiting() { site(); await null; site(); await innerAwait(); return site(); }
async function innerAwait() { await Promise.resolve(); site(); try { await Promise.reject(new Error('no')); } catch { site(); } finally { site(); } }
const asyncArrow = async () => { site(); await 0; return site(); };
async function* asyncGenerator() { yield site(1); await null; yield site(2); }
async function asyncIteration() {
  for await (const item of asyncGenerator()) site(item);
  for await (const item of [Promise.resolve(1), 2]) site(item);
}
async function promises() {
  await Promise.resolve(1).then((x) => site(x)).then(function named(x) { return site(x); });
  await Promise.reject(new Error('no')).catch(() => site()).finally(() => site());
  await Promise.all([1, 2].map(async (x) => { await null; return site(x); }));
  await { then(resolve) { resolve(site()); } };
  await new Promise((resolve) => queueMicrotask(() => resolve(site())));
  await new Promise((resolve) => process.nextTick(() => resolve(site())));
  await new Promise((resolve) => process.nextTick(function withArguments(a, b) { resolve(site(a + b)); }, 1, 2));
}
async function timers() {
  await new Promise((resolve) => setTimeout(() => resolve(site()), 1));
  await new Promise((resolve) => setTimeout(function timer(a) { resolve(site(a)); }, 0, 1));
  await new Promise((resolve) => setImmediate(() => resolve(site())));
  await new Promise((resolve) => {
    let n = 0;
    const interval = setInterval(() => { site(); if (++n === 2) { clearInterval(interval); resolve(); } }, 1);
  });
}
async function events() {
  const emitter = new nodeModules.events.EventEmitter();
  emitter.on('event', (value) => site(value));
  emitter.once('event', function onceOnly() { site(this); });
  emitter.emit('event', 1);
  emitter.emit('event', 2);
  const target = new EventTarget();
  target.addEventListener('event', () => site());
  target.addEventListener('event', { handleEvent() { site(); } });
  target.dispatchEvent(new Event('event'));
}
async function streams() {
  const { Readable, Transform, Writable } = nodeModules.stream;
  const source = new Readable({ read() { site(); this.push('x'); this.push(null); } });
  const through = new Transform({ transform(chunk, encoding, done) { site(); done(null, chunk); }, flush(done) { site(); done(); } });
  const sink = new Writable({ write(chunk, encoding, done) { site(); done(); } });
  await new Promise((resolve, reject) => nodeModules.stream.pipeline(source, through, sink, (error) => { site(); if (error) reject(error); else resolve(); }));
  for await (const chunk of Readable.from([1, 2])) site(chunk);
}
async function files() {
  await new Promise((resolve) => nodeModules.fs.stat('/', () => { site(); resolve(); }));
  await nodeModules.fs.promises.stat('/');
  site();
}
async function contexts() {
  const { vm } = nodeModules;
  vm.runInThisContext('(site) => site()')(site);
  vm.runInThisContext('(site) => {\n   function virtual() { return site(); }\n   return virtual();\n}', { filename: '/virtual/script.js' })(site);
  vm.runInNewContext('function inContext() { return site(); }\n  inContext()', { site }, { filename: 'relative.vm' });
  const context = vm.createContext({ site, relay });
  new vm.Script('relay.call(() => site()); [1].map((x) => site(x))', { filename: 'shifted.js', lineOffset: 41, columnOffset: 7 }).runInContext(context);
  vm.compileFunction('return [1].map(function compiled(x) { return site(x); })', ['site'], { filename: 'compiled.js' })(site);
}
async function later() {
  await awaiting();
  await asyncArrow();
  await asyncIteration();
  await promises();
  await timers();
  await events();
  await streams();
  await files();
  await contexts();
}
