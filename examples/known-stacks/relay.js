'use strict';

// Functions of another package that call back: stacks pass through its files, and hot ones are inlined across them.

const call = (f, ...values) => f(...values);
const twice = (f) => { f(); return f(); };
const each = (list, f) => { for (const item of list) f(item); };
const mapped = (list, f) => list.map((item) => f(item));
const nested = (depth, f) => (depth > 0 ? nested(depth - 1, f) : f());
class Relay {
  constructor(f) { this.f = f; }
  run() { return this.f(); }
  get ran() { return this.run(); }
}

module.exports = { call, twice, each, mapped, nested, Relay };
