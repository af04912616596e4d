'use strict';

// Some seconds of work in functions of many kinds, none so small that it is inlined into its caller.
//
//   node main.js [ROUNDS]
//
// At the end it prints what each took by its own clock.

function matrix(n) {
  const a = new Float64Array(n * n).fill(1.5), b = new Float64Array(n * n).fill(0.5), c = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
  }
  return c[n];
}

function sieve(n) {
  const marks = new Uint8Array(n);
  let primes = 0;
  for (let i = 2; i < n; i++) {
    if (marks[i]) continue;
    primes++;
    for (let j = 2 * i; j < n; j += i) marks[j] = 1;
  }
  return primes;
}

function fibonacci(n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

function words(n) {
  let text = '';
  for (let i = 0; i < n; i++) text += String.fromCharCode(97 + (i * 7) % 26) + (i % 5 ? '' : ' ');
  let letters = 0;
  for (const word of text.split(' ')) letters += word.length;
  return letters;
}

function objects(n) {
  const all = [];
  for (let i = 0; i < n; i++) all.push({ id: i, name: `name ${i}`, nested: { value: i * 2 } });
  let sum = 0;
  for (const one of all) sum += one.nested.value + one.name.length;
  return sum;
}

function maps(n) {
  const map = new Map();
  for (let i = 0; i < n; i++) map.set(`key ${i % 5000}`, i);
  let sum = 0;
  for (const [key, value] of map) sum += value + key.length;
  return sum;
}

function json(n) {
  const text = JSON.stringify(Array.from({ length: 500 }, (_, i) => ({ i, text: `${i}`, list: [i, i + 1] })));
  let length = 0;
  for (let i = 0; i < n; i++) length += JSON.stringify(JSON.parse(text)).length;
  return length;
}

function expressions(n) {
  const text = 'the quick brown fox jumps over the lazy dog '.repeat(50);
  let found = 0;
  for (let i = 0; i < n; i++) found += text.match(/\b[a-z]+o[a-z]*\b/g).length;
  return found;
}

function sorts(n) {
  const list = new Float64Array(n);
  for (let i = 0; i < n; i++) list[i] = (i * 7919) % 30011;
  for (let gap = n >> 1; gap > 0; gap >>= 1) {
    for (let i = gap; i < n; i++) {
      const value = list[i];
      let j = i;
      for (; j >= gap && list[j - gap] > value; j -= gap) list[j] = list[j - gap];
      list[j] = value;
    }
  }
  return list[0];
}

class Machine {
  constructor() { this.registers = new Int32Array(8); this.steps = 0; }
  run(steps) {
    const { registers } = this;
    for (let i = 0; i < steps; i++) {
      switch (i % 5) {
        case 0: registers[i & 7] += i; break;
        case 1: registers[(i + 3) & 7] ^= registers[i & 7]; break;
        case 2: registers[i & 7] = registers[i & 7] << 3 | registers[(i + 1) & 7] >>> 29; break;
        case 3: registers[(i + 5) & 7] -= registers[i & 7]; break;
        default: this.steps++;
      }
    }
    return registers[0];
  }
}

function* counter(n) { for (let i = 0; i < n; i++) yield i * 2; }

function iterates(n) {
  let sum = 0;
  for (const value of counter(n)) sum += value;
  return sum;
}

const machine = new Machine();

const clock = {};

/** Notes what it takes by the program's own clock, microseconds of CPU time. */
function timed(name, work) {
  const begin = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(begin);
  clock[name] = (clock[name] || 0) + user + system;
}

for (let left = Number(process.argv[2] || 200); left > 0; left--) {
  timed('matrix', () => matrix(110));
  timed('sieve', () => sieve(400_000));
  timed('fibonacci', () => fibonacci(23));
  timed('words', () => words(20_000));
  timed('objects', () => objects(8_000));
  timed('maps', () => maps(20_000));
  timed('json', () => json(8));
  timed('expressions', () => expressions(40));
  timed('sorts', () => sorts(30_000));
  timed('run', () => machine.run(500_000));
  timed('iterates', () => iterates(200_000));
}
console.log(JSON.stringify(clock));
