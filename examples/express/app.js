'use strict';

// An ordinary web application. It loads its packages, mounts its routes and stops there, so that a
// trace of it is a trace of its start. With --serve it goes on as a server, for `nodeprof trace --until`.

const { EventEmitter } = require('events');
const http = require('http');

require('dotenv').config();

const async_ = require('async');
const bodyParser = require('body-parser');
const chalk = require('chalk');
const { Command } = require('commander');
const compression = require('compression');
const cookieParser = require('cookie-parser');
const cors = require('cors');
const debug = require('debug')('example');
const express = require('express');
const _ = require('lodash');
const morgan = require('morgan');
const semver = require('semver');
const { v5: uuid } = require('uuid');
const YAML = require('yaml');

// Loopback only: an example has no business on the network.
const HOST = '127.0.0.1';

const options = new Command()
  .name('app.js')
  .option('--serve', 'listen on loopback until SIGINT or SIGTERM')
  .option('--port <number>', 'port to listen on; 0 lets the kernel choose', Number, 0)
  .parse()
  .opts();

const settings = YAML.parse(`
name: express example
greetings: [hello, hi, good day]
supports: ">=16"
`);

if (!semver.satisfies(process.version, settings.supports, { includePrerelease: true })) {
  console.error(chalk.red(`node ${settings.supports} is needed, this is ${process.version}`));
  process.exit(1);
}

const app = express();
app.use(morgan('tiny'), compression(), cors(), cookieParser(), bodyParser.json());
app.get('/', (_request, response) => {
  const greeting = _.sample(settings.greetings);
  response.json({ id: uuid(greeting, uuid.URL), greeting });
});

const events = new EventEmitter();
events.on('ready', (what) => console.log(`${chalk.green('ready')}: ${what}`));

async_.series([(done) => setImmediate(done)], () => {
  if (!options.serve) {
    events.emit('ready', `${settings.name}, ${countPackages()} packages loaded`);
    return;
  }
  const server = http.createServer(app);
  server.listen(options.port, HOST, () => {
    events.emit('ready', `http://${HOST}:${server.address().port}/`);
  });
  const stop = (signal) => {
    debug('%s: closing', signal);
    server.close();
  };
  process.once('SIGINT', stop).once('SIGTERM', stop);
});

/** How many packages of node_modules this process has loaded a file of. */
function countPackages() {
  const marker = /.*[\\/]node_modules[\\/]((?:@[^\\/]+[\\/])?[^\\/]+)/;
  return _(Object.keys(require.cache)).map((file) => marker.exec(file)?.[0]).compact().uniq().size();
}
