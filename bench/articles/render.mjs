// Reads a Vega-Lite specification on standard input, writes its SVG to standard output.

import { text } from 'node:stream/consumers';

import * as vega from 'vega';
import * as vegaLite from 'vega-lite';

const { spec } = vegaLite.compile(JSON.parse(await text(process.stdin)));
const view = new vega.View(vega.parse(spec), { renderer: 'none', logLevel: vega.Error });
process.stdout.write(`${await view.toSVG()}\n`);
