//! Values made or read by C++, against programs that make a known number.

use crate::support::{Node, list, number, on_each_node, trace, write};

on_each_node!(n_values_are_n_serializations);

const SCRIPT: &str = r"
const v8 = require('v8');
const { MessageChannel } = require('worker_threads');
const { port1, port2 } = new MessageChannel();
const three = Buffer.from('abc');
const operations = {
  clone() { structuredClone({ a: 1 }); },
  serialize() { v8.serialize({ a: 1 }); },
  post() { port1.postMessage(1); },
  hex() { three.toString('hex'); },
  parse() { Buffer.from('6162', 'hex'); },
};
const [, , n, kind] = process.argv;
for (let i = 0; i < Number(n); i++) operations[kind]();
port1.close();
";

/// KIND, first version that has it, and what it must call: function, bytes for each call where they are known.
type Known = (&'static str, u32, &'static [(&'static str, Option<u64>)]);
const KNOWN: &[Known] = &[
    (
        "clone",
        18,
        &[
            ("Message::Serialize", None),
            ("Message::Deserialize", None),
            ("ValueSerializer::WriteValue", None),
            ("ValueDeserializer::ReadValue", None),
        ],
    ),
    ("serialize", 16, &[("ValueSerializer::WriteValue", None)]),
    (
        "post",
        16,
        &[
            ("Message::Serialize", None),
            ("ValueSerializer::WriteValue", None),
        ],
    ),
    ("hex", 16, &[("StringBytes::Encode", Some(3))]),
    ("parse", 16, &[("StringBytes::Write", Some(2))]),
];

pub(crate) fn n_values_are_n_serializations(node: &Node) {
    let folder = crate::support::folder();
    let script = write(folder.path(), "values.js", SCRIPT);
    // Arguments become strings, too: those of the base must be as long.
    let run = |n: u64, kind: &str| trace(&[], node.command([&script, &format!("{n:04}"), kind]));
    for &(kind, since, functions) in KNOWN {
        if node.major() < since {
            continue;
        }
        let base = run(0, kind);
        for n in [1, 3_000] {
            let traced = run(n, kind);
            for &(function, bytes_each) in functions {
                let what = format!("{n} × {kind} on {}: {function}", node.version);
                let (calls, bytes) = base.serialized(function);
                let (calls_after, bytes_after) = traced.serialized(function);
                assert_eq!(calls_after, calls + n, "{what}, base {calls}");
                if let Some(each) = bytes_each {
                    assert_eq!(bytes_after, bytes + n * each, "{what}: bytes");
                }
            }
            let serialization = &traced.run["serialization"];
            for by in ["functions", "callbacks"] {
                let sum: u64 = list(&serialization[by])
                    .iter()
                    .map(|one| number(&one["calls"]))
                    .sum();
                assert_eq!(sum, number(&serialization["calls"]), "{kind}: {by}");
            }
        }
    }
}

/// A program that ends while C++ reads a value of it: how long the value is nobody knows.
#[test]
#[ignore = "needs root"]
fn who_ends_inside_a_serialization_has_made_no_bytes() {
    for version in ["18.20.8", "22.23.3", "26.10.0"] {
        let Some(node) = Node::find(version) else {
            continue;
        };
        let script = "process.title = { toString() { process.reallyExit(0); } }";
        let traced = trace(&[], node.command(["-e", script]));
        traced.succeeded();
        let serialization = &traced.run["serialization"];
        let bytes = number(&serialization["bytes"]);
        assert!(bytes < 1 << 24, "{version}: {serialization}");
        // It is there: who ends right before has one less.
        let without = "process.reallyExit(0); process.title = { toString() { } }";
        assert_eq!(script.len(), without.len());
        let without = trace(&[], node.command(["-e", without]));
        without.succeeded();
        let (calls, _) = traced.serialized("Utf8Value");
        let (calls_without, _) = without.serialized("Utf8Value");
        assert_eq!(calls, calls_without + 1, "{version}: {serialization}");
    }
}
