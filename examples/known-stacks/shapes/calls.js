/* Every `site()` is a call site. The generator puts this text into modules of many kinds; so there are no line comments,
   each statement ends with a semicolon, and nothing depends on strict or sloppy mode. */

site();

function plain() { site(); }
function outer() { return middle(1); }
function middle(n) { return inner(n + 1); }
function inner(n) { return site(n); }
function expressions(a, b) {
  const sum = site(a) + site(b);
  const list = [site(1), ...[site(2)], site(3)];
  const record = { a: site(1), ['b' + site(2)]: 1, c() { return site(3); } };
  const text = `${site('a')} and ${site('b')}`;
  return site(sum) ? site(list)[site(0)] : record.c() + text;
}
function conditions(a) {
  if (site(a)) { site(); } else { site(); }
  switch (site(2)) { case site(1): break; case 2: site(); break; default: site(); }
  let found = site(null) ?? site(a);
  found = site(false) || site(true) && site(found);
  found ||= site(1);
  return a?.b?.[site('c')] ?? site(found);
}
function loops() {
  for (let i = site(0); i < site(2); i += site(1)) { site(i); }
  let n = 2;
  while (site(n) > 0) { n--; if (site(n) === 1) continue; site(); }
  do { site(); } while (site(false));
  for (const key in site({ a: 1, b: 2 })) { site(key); }
  for (const item of site([1, 2])) { site(item); }
  label: for (;;) { for (;;) { site(); break label; } }
}
function throwing() {
  try { site(); throw site(new Error('thrown')); }
  catch (error) { site(error); }
  finally { site(); }
  try { unwinding(3); } catch { site(); }
  return closing();
}
function unwinding(n) { site(); try { if (n) return unwinding(n - 1); throw site(new Error('deep')); } finally { site(); } }
function closing() { try { return site(1); } finally { site(); } }
function recursion(n) { if (n === 0) return site(0); return recursion(n - 1); }
function even(n) { return n === 0 ? site(true) : odd(n - 1); }
function odd(n) { return n === 0 ? site(false) : even(n - 1); }
function fibonacci(n) { return n < 2 ? site(n) : fibonacci(n - 1) + fibonacci(n - 2); }
const arrow = () => site();
const arrowOfArrow = () => () => () => site();
const named = function itsOwnName() { return site(); };
const inferred = { member: function () { return site(); }, deep: { er: () => site() } };
inferred.later = function () { return site(); };
inferred['with-dash'] = () => site();
function closures() {
  const made = [];
  for (let i = 0; i < 3; i++) made.push(() => site(i));
  made.forEach((f) => f());
  return (function () { return (() => site())(); })();
}
function defaults(a = site(1), { b = site(2), ...rest } = {}, [c = site(3)] = []) { return [a, b, c, rest, site()]; }
function destructuring() {
  const source = { get a() { return site(1); }, get b() { return site(); } };
  const { a, b = site(2), ['c']: c = site(3) } = source;
  let x, y;
  [x, y = site(4)] = [a];
  ({ x, y = site(5) } = { x: site(6) });
  return [b, c, x, y];
}
function passedOn() {
  relay.call(() => site());
  relay.call(function () { return site(); }, 1, 2);
  relay.twice(() => site());
  relay.each([1, 2], (item) => site(item));
  relay.mapped([1], (item) => site(item));
  relay.nested(3, () => site());
  return new relay.Relay(() => site()).ran;
}
function many(a, b, c, d, e, f, g, h, i, j) { return site(arguments.length + a + j); }
function tagged() {
  const tag = (strings, ...values) => site(strings.length + values.length);
  return tag`a${site(1)}b${site(2)}c`;
}

class Base {
  field = site('field');
  #hidden = site('hidden');
  static shared = site('static field');
  ['computed' + 1] = site('computed field');
  arrow = () => site(this.#hidden);
  constructor(value) { this.value = site(value); }
  method() { return site(this.#secret()); }
  #secret() { return site(this.#hidden); }
  get #inside() { return site(1); }
  get property() { return site(this.#inside); }
  set property(value) { site(value); }
  static make(value) { return new this(site(value)); }
  static get shape() { return site('shape'); }
  *items() { yield site(1); yield site(2); }
  [Symbol.iterator]() { return site([1, 2])[Symbol.iterator](); }
  toString() { return site('text'); }
}
class Derived extends Base {
  own = site('own');
  constructor(value) { super(site(value)); this.target = site(new.target); }
  method() { return site(super.method()); }
  get property() { return site(super.property); }
  set property(value) { super.property = site(value); }
}
class StaticFirst { static first = site(1); second = site(2); static third = site(3); static { site(); } static ['computed' + site(4)]() { return site(5); } }
class Implicit extends Derived { more = site('more'); }
function classes() {
  for (const Class of [Base, Derived, Implicit]) {
    const object = new Class(1);
    object.method();
    object.property;
    object.property = 2;
    object.arrow();
    [...object.items()];
    [...object];
    `${object}`;
    Class.make(3);
    Class.shape;
  }
  new StaticFirst();
  StaticFirst.computed4();
  const anonymous = new (class { constructor() { site(); } m() { return site(); } })();
  anonymous.m();
  Reflect.construct(Base, [1], Derived);
  function Old() { if (new.target) site(); this.x = 1; }
  Old.prototype.method = function () { return site(); };
  new Old().method();
  return (class Inner extends (site(), Base) { static { site(); } });
}
function builtins() {
  [3, 1, 2].map((x) => site(x)).forEach(function each(x) { site(x); });
  [1, 2].filter((x) => site(x)).some((x) => !site(x));
  [2, 1].sort((a, b) => site(a - b));
  [1, 2, 3].reduce((sum, x) => site(sum + x), 0);
  [1, 2].reduceRight(function fromTheRight(sum, x) { return site(sum + x); });
  [[1], [2]].flatMap((x) => site(x));
  [1, 2].find((x) => site(x > 1));
  [1].findIndex((x) => site(x > 1));
  [1, 2].every((x) => site(x));
  Array.from([1], (x) => site(x));
  Array.from({ length: 1 }, () => site());
  new Map([[1, 2]]).forEach((value) => site(value));
  new Set([1]).forEach((value) => site(value));
  new Uint8Array([2, 1]).map((x) => site(x)).sort((a, b) => site(a - b));
  'abc'.replace(/b/, () => site('x'));
  'abc'.replace('b', function replacer() { return site('x'); });
  'abab'.replaceAll('b', () => site('x'));
  'abab'.replace(/[ab]/g, (match) => site(match));
  JSON.parse('{"a":[1]}', function reviver(key, value) { return site(value); });
  JSON.stringify({ a: 1, toJSON() { return site({ a: 1 }); } });
  JSON.stringify({ a: 1 }, (key, value) => site(value));
  Reflect.apply(function applied() { site(); }, null, []);
  (function called() { site(); }).call(null);
  (function appliedTo() { site(); }).apply(null, [1, 2]);
  (function bound() { site(); }).bind(null, 1)();
  Object.fromEntries({ *[Symbol.iterator]() { yield site(['a', 1]); } });
  Object.assign({}, { get a() { return site(1); } });
  Object.entries({ get a() { return site(1); } });
  new Proxy({}, { get() { return site(1); } }).anything;
  new Proxy({}, { set() { return site(true); } }).anything = 1;
  'a' in new Proxy({}, { has() { return site(true); } });
  Object.keys(new Proxy({}, { ownKeys() { return site([]); } }));
  delete new Proxy({}, { deleteProperty() { return site(true); } }).a;
  new Proxy(function () {}, { apply() { return site(1); } })();
  new (new Proxy(function () {}, { construct() { return site({}); } }))();
  +{ [Symbol.toPrimitive]() { return site(1); } };
  `${{ toString() { return site('a'); } }}`;
  ({ valueOf() { return site(1); } }) + 1;
  Object.defineProperty({}, 'a', { get: function getter() { return site(1); } }).a;
  1 instanceof { [Symbol.hasInstance]() { return site(true); } };
  'abc'.split({ [Symbol.split]() { return site([]); } });
  Array.from({ *[Symbol.iterator]() { yield site(1); } });
  new Map({ *[Symbol.iterator]() { yield site([1, 2]); } });
  new Promise((resolve) => { site(); resolve(); });
  Array.prototype.map.call('ab', (x) => site(x));
  [[1]].map(Reflect.apply.bind(Reflect, (x) => site(x), null, [2]));
  [[1]].map((list) => Reflect.apply((x) => site(x), null, list));
  [[1, () => site()]].map(([, f]) => f());
}
function* generator() { const got = site(yield site(1)); yield* delegate(); return site(got); }
function* delegate() { try { yield site(2); } finally { site(); } }
function generators() {
  const running = generator();
  running.next();
  (function resumedElsewhere() { running.next(1); })();
  [0].forEach(() => running.next());
  running.return();
  for (const item of generator()) { if (item === 2) break; }
  try { const thrown = generator(); thrown.next(); thrown.throw(new Error('into it')); } catch { site(); }
  const [first] = generator();
  return first;
}
function evaluated() {
  eval('site()');
  (0, eval)('globalThis.witness()');
  eval('(function inEval() { return site(); })()');
  eval('function inner() {\n  return (() => site())();\n}\n inner()');
  new Function('site', 'return site()')(site);
  new Function('site', 'relay', 'function made() {\n\n return relay.call(() => site()); }\nreturn made();')(site, relay);
}
function blocks() {
  { let a = 1; { const b = 2; const f = () => a + b; site(f()); { let c = f; site(c); } } }
  for (let i = 0; i < 1; i++) { const g = () => i; site(g()); }
  try { throw 1; } catch (e) { const h = () => e; site(h()); }
}
const object = {
  method() { return site(); },
  get accessor() { return site(1); },
  set accessor(value) { site(value); },
  *items() { yield site(); },
  async asynchronous() { return site(); },
  'quoted name'() { return site(); },
  12() { return site(); },
};
const computed = (key) => ({ [key]() { return site(); }, [Symbol(key)]: () => site(), get [key + 'Get']() { return site(1); } });
function renamedLater() { return site(); }
Object.defineProperty(renamedLater, 'name', { value: 'after it was made' });
function objects() {
  for (const key of ['one', 'two', 'größer', '三']) {
    const made = computed(key);
    made[key]();
    made[key + 'Get'];
    for (const symbol of Object.getOwnPropertySymbols(made)) made[symbol]();
  }
  renamedLater();
  object.method();
  object.accessor;
  object.accessor = 1;
  [...object.items()];
  object['quoted name']();
  object[12]();
  object.asynchronous();
  inferred.member();
  inferred.deep.er();
  inferred.later();
  inferred['with-dash']();
}

function sync() {
  plain();
  outer();
  expressions(1, 2);
  conditions({ b: {} });
  conditions(0);
  loops();
  throwing();
  recursion(5);
  recursion(40);
  even(6);
  odd(6);
  fibonacci(4);
  arrow();
  arrowOfArrow()()();
  named();
  closures();
  defaults();
  destructuring();
  passedOn();
  many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
  many(1);
  many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
  tagged();
  classes();
  builtins();
  generators();
  evaluated();
  blocks();
  objects();
}
