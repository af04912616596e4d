// Prints what node-benchmark-compare says of a CSV of Node's benchmark/compare.js, as JSON, by the packages that it reckons with: the tool
// itself is not on the registry.
'use strict';
const { readFileSync } = require('node:fs');
const Summary = require('summary');
const ttest = require('ttest');

const [header, ...lines] = readFileSync(process.argv[2], 'utf8').trim().split('\n').map((line) =>
  [...line.matchAll(/"((?:[^"]|"")*)"|([^",]+)/g)].map(([, text, number]) => text ?? Number(number)));
const rows = lines.map((line) => Object.fromEntries(header.map((name, index) => [name, line[index]])));
const rates = (binary) => new Summary(rows.filter((row) => row.binary === binary).map((row) => row.rate));
const [base, head] = [rates('old'), rates('new')];
const test = (alpha) => ttest(base, head, { varEqual: false, alpha });
const halfWidth = (alpha) => {
  const [low, high] = test(alpha).confidence();
  return (high - low) / 2 / base.mean() * 100;
};
console.log(JSON.stringify({
  header,
  names: [...new Set(rows.map((row) => `${row.filename} ${row.configuration}`))],
  runs: [base.size(), head.size()],
  improvement: (head.mean() - base.mean()) / base.mean() * 100,
  p: test(0.05).pValue(),
  accuracy: [0.05, 0.01, 0.001].map(halfWidth),
  seconds: rows.map((row) => row.time),
}));
