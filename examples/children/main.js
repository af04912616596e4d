'use strict';

// A small process tree: a child that is node, a child that is not, and one that a shell starts.
// A trace follows them all.

const { execFileSync, spawnSync } = require('child_process');
const path = require('path');

const output = (file, args) => execFileSync(file, args, { encoding: 'utf8' }).trim();

const node = output(process.execPath, [path.join(__dirname, 'child.js'), '21']);
const notNode = output('uname', ['-s']);
const { status } = spawnSync('sh', ['-c', 'exit 7']);

console.log(`node child: ${node}, other child: ${notNode}, shell's status: ${status}`);
