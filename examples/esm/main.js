// ECMAScript modules: static imports of ESM and CommonJS packages, a JSON file read with createRequire,
// an import of this package's own file and a dynamic import. Ends by itself.

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';

import kleur from 'kleur';
import mitt from 'mitt';
import { nanoid } from 'nanoid';

import { describe } from './src/describe.js';

const require = createRequire(import.meta.url);
const { name } = require('./package.json');

const started = mitt();
started.on('ready', (what) => console.log(`${kleur.green('ready')}: ${what}`));

// The CommonJS package comes last and on demand, as a plug-in would.
const { default: ms } = await import('ms');

const source = await readFile(new URL(import.meta.url), 'utf8');
started.emit('ready', describe({ name, bytes: source.length, patience: ms('2 s'), id: nanoid() }));
