'use strict';

// The witness: each call of `site` notes the stack that V8 itself tells, and makes one system call of which nodeprof
// records the stack too, on a path that joins the two: /nowhere/site-THREAD-NUMBER.

const fs = require('fs');
const { threadId } = require('worker_threads');

const noted = [];
let calls = 0;
const quiet = { throwIfNoEntry: false };
let armed = true;

Error.stackTraceLimit = 1000;
Error.prepareStackTrace = (error, callSites) => callSites;

/** Takes the stack, if armed. Returns its argument, so that a call may stand wherever an expression may. */
function site(value) {
  if (armed) note();
  return value;
}

function note() {
  const { stack } = new Error();
  const path = `/nowhere/site-${threadId}-${calls++}`;
  fs.statSync(path, quiet);
  noted.push({ path, stack });
}

/** In hot loops: calls pass without a trace, until one shall leave it. */
site.arm = (on) => { armed = on; };

/** What was noted, in the order of the calls: the frames outside of this file, the innermost first. */
site.take = () => {
  const taken = noted.map(({ path, stack }) => ({
    path,
    frames: stack.filter((callSite) => callSite.getFileName() !== __filename).map(describe),
  }));
  noted.length = 0;
  return taken;
};

function describe(callSite) {
  return {
    function: callSite.getFunctionName(),
    // The property of the receiver that has the function: of one whose name V8 has forgotten.
    method: callSite.getMethodName(),
    file: callSite.getFileName() || null,
    line: callSite.getLineNumber(),
    column: callSite.getColumnNumber(),
    // Not on the machine's stack: the caller of an await, as promises remember it.
    async: callSite.isAsync(),
    // V8's own code has no place in a source.
    builtin: callSite.getLineNumber() === null,
  };
}

module.exports = site;
