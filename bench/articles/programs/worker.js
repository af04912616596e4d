'use strict';

// Starts workers that run a script, one after the other: node worker.js SCRIPT COUNT.

const path = require('path');
const { Worker } = require('worker_threads');

const script = path.resolve(process.argv[2]);
let left = Number(process.argv[3]);

function start() {
  if (left > 0) {
    left -= 1;
    new Worker(script).once('exit', start);
  }
}

start();
