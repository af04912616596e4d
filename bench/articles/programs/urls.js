'use strict';

// Parses so many URLs: node urls.js COUNT. What the process takes and does beyond COUNT 0 is their parsing. Two of ten are not
// written as their href is.

const inputs = [
  'https://www.example.com/',
  'https://user:secret@example.com:8080/a/path/of/several/parts?query=1&other=two#fragment',
  'http://localhost:3000/api/v1/items/a b',
  'https://example.org/search?q=string+serialization&page=2',
  'https://cdn.example.net/assets/index-5f3a9c.js#map',
  'file:///usr/share/doc/readme.txt',
  'HTTPS://Sub.Domain.Example.co.uk:443/one/../index.html',
  'wss://stream.example.com/socket?token=abcdef',
  'https://example.com:8443/path%20with%20spaces/',
  'ftp://ftp.example.com/pub/file.tar.gz',
];

const count = Number(process.argv[2]);
let length = 0;
for (let index = 0; index < count; index += 1) {
  length += new URL(inputs[index % inputs.length]).href.length;
}
if (count > 0 && length === 0) {
  throw new Error('no URL was parsed');
}
