// Prints what the npm package pprof-format reads of a pprof file, as JSON: the sum of each value type by innermost function.
'use strict';
const { readFileSync } = require('node:fs');
const { gunzipSync } = require('node:zlib');
const { Profile } = require('pprof-format');

const profile = Profile.decode(gunzipSync(readFileSync(process.argv[2])));
const text = (index) => profile.stringTable.strings[Number(index)];
const functions = new Map(profile.function.map((item) => [item.id, text(item.name)]));
const locations = new Map(profile.location.map((item) => [item.id, functions.get(item.line[0].functionId)]));
const sums = {};
for (const sample of profile.sample) {
  const name = locations.get(sample.locationId[0]);
  sums[name] ??= sample.value.map(() => 0);
  sample.value.forEach((value, index) => { sums[name][index] += Number(value); });
}
console.log(JSON.stringify({
  types: profile.sampleType.map((type) => `${text(type.type)}/${text(type.unit)}`),
  sums,
}));
