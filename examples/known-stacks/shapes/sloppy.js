/* What strict mode does not have; the same rules as in calls.js. */

function withStatement() {
  const scope = { a: 1, get b() { return site(2); }, f() { return site(3); } };
  with (scope) { site(a); site(b); f(); const g = () => site(a); g(); }
}
function arguments_(a) { arguments[0] = 2; site(a); return arguments.callee.length + site(a); }
function thisIsGlobal() { return site(this === globalThis); }
function hoisted() { { function inBlock() { return site(); } } return inBlock(); }
function evalDeclares() { eval('var declared = site(1); function made() { return site(declared); }'); return made(); }
function callerOf() { return callerOf.caller && site(); }
function sloppy() {
  withStatement();
  arguments_(1);
  thisIsGlobal();
  hoisted();
  evalDeclares();
  callerOf();
}
