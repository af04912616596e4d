'use strict';

// Starts worker threads, hands each a structured clone and a transferred buffer, and adds up what they answer.
// Every worker is an isolate of its own with its own bootstrap: a trace shows each of them.
//
//   node main.js [WORKERS]      WORKERS: how many, 2 unless said

const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const WORDS_PER_WORKER = 1000;

if (isMainThread) {
  main(Number(process.argv[2] || 2)).catch((error) => {
    console.error(error);
    process.exitCode = 1;
  });
} else {
  parentPort.once('message', (buffer) => {
    const sum = new Uint32Array(buffer).reduce((total, word) => total + word, 0);
    parentPort.postMessage({ id: workerData.id, sum });
  });
}

async function main(workers) {
  const answers = await Promise.all(Array.from({ length: workers }, (_, id) => ask(id)));
  const total = answers.reduce((sum, answer) => sum + answer.sum, 0);
  console.log(`${workers} workers, total ${total}`);
}

/** Starts one worker, gives it an array filled with id + 1, and resolves with its answer once it has ended. */
function ask(id) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: { id } });
    const words = new Uint32Array(WORDS_PER_WORKER).fill(id + 1);
    let answer;
    worker.once('message', (message) => { answer = message; });
    worker.once('error', reject);
    worker.once('exit', (code) => {
      if (code === 0 && answer) resolve(answer);
      else reject(new Error(`worker ${id} ended with ${code} and ${answer ? 'an' : 'no'} answer`));
    });
    worker.postMessage(words.buffer, [words.buffer]);
  });
}
