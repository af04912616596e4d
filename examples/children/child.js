'use strict';

// The child of main.js: doubles its argument.
console.log(2 * Number(process.argv[2]));
