'use strict';

// Node's modules for the shapes, which are also compiled where there is no require.

module.exports = {
  events: require('events'),
  fs: require('fs'),
  stream: require('stream'),
  vm: require('vm'),
};
