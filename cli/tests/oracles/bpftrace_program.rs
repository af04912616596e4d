//! What `nodeprof probes --bpftrace` prints, run by bpftrace: counts equal those of a trace.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::{
    NODEPROF, Node, Traced, copy_program, folder, has_packages, has_tool, list, number,
    on_each_node, plain, project, seen_and_traced, text, trace, write,
};

on_each_node!(
    few_probes_count_what_a_trace_counts,
    phases_are_printed_in_order
);

/// A copy of a build that nobody else executes meanwhile: bpftrace counts every process that does.
fn own_copy(node: &Node, folder: &tempfile::TempDir) -> Node {
    let path = folder.path().join("node");
    copy_program(&node.path, &path);
    Node {
        version: node.version,
        path,
    }
}

/// What bpftrace printed: results by map, and lines. `None` if it cannot run here.
struct Counted {
    maps: BTreeMap<String, Value>,
    lines: Vec<String>,
    names: BTreeMap<String, String>,
}

fn counted(node: &Node, families: &[&str], arguments: &[&str]) -> Option<Counted> {
    if !has_tool("bpftrace") {
        return None;
    }
    let printed = Command::new(NODEPROF)
        .args(["probes", "--bpftrace", "--node"])
        .arg(&node.path)
        .arg("--families")
        .arg(families.join(","))
        .output()
        .expect("nodeprof starts");
    let program = String::from_utf8(printed.stdout).expect("UTF-8");
    assert!(printed.status.success(), "{:?}", printed.status);
    let folder = folder();
    let file = write(folder.path(), "node.bt", &program);
    let output = plain(&mut Command::new("bpftrace"))
        .env("BPFTRACE_STRLEN", "200")
        .env("BPFTRACE_MAX_PROBES", "1000")
        .args([
            "-f",
            "json",
            &file,
            "-c",
            &node.command(arguments).join(" "),
        ])
        // As the traced program has it: with a pipe Node makes one more object.
        .stdin(Stdio::piped())
        .output()
        .expect("bpftrace starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("compiled without") || stderr.contains("BPF syscall") {
        println!("skipped: this bpftrace or kernel cannot: {}", stderr.trim());
        return None;
    }
    assert!(output.status.success(), "{stderr}");
    let mut counted = Counted {
        maps: BTreeMap::new(),
        lines: Vec::new(),
        names: program
            .lines()
            .filter_map(|line| line.strip_prefix("//= ")?.split_once(' '))
            .map(|(address, name)| (address.to_owned(), name.to_owned()))
            .collect(),
    };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(mut value) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        match value["type"].as_str() {
            Some("map") => {
                for (map, data) in value["data"].as_object_mut().expect("maps") {
                    counted.maps.insert(map.clone(), data.take());
                }
            }
            Some("printf") => counted.lines.push(text(&value["data"]).to_owned()),
            _ => {}
        }
    }
    Some(counted)
}

impl Counted {
    fn total(&self, kind: &str) -> u64 {
        let crossings = self.maps.get("@crossings");
        crossings.and_then(|map| map[kind].as_u64()).unwrap_or(0)
    }

    /// Calls by the name of the callback, through the table of names.
    fn by_name(&self, map: &str) -> BTreeMap<String, u64> {
        let mut calls = BTreeMap::new();
        for (address, count) in self
            .maps
            .get(map)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let name = self.names.get(address).unwrap_or(address);
            *calls.entry(name.clone()).or_default() += number(count);
        }
        calls
    }
}

/// Calls of one kind by callback, as the table of names writes them.
fn traced_by_name(traced: &Traced, kind: &str) -> BTreeMap<String, u64> {
    list(&traced.run["crossings"]["callbacks"])
        .iter()
        .filter(|c| c["kind"] == kind)
        .map(|c| {
            let function: String = text(&c["function"]).split_whitespace().collect();
            (
                format!("{}.{function}", text(&c["binding"])),
                number(&c["calls"]),
            )
        })
        .collect()
}

const CALLS: &str = "examples/known-calls/calls.js";

fn few_probes_count_what_a_trace_counts(node: &Node) {
    let folder = folder();
    let node = own_copy(node, &folder);
    let calls = project(CALLS);
    let known = |kind| ["--no-warnings", "--expose-internals", &calls, "1000", kind];
    let mut programs: Vec<Vec<&str>> = vec![
        vec!["-e", "0"],
        known("construct").to_vec(),
        known("to-js").to_vec(),
    ];
    let express = project("examples/express/app.js");
    if has_packages("examples/express") {
        programs.push(vec![&express]);
    }
    for arguments in programs {
        let to_js = |traced: &Traced| number(&traced.run["crossings"]["by_kind"]["to_js"]);
        let both = seen_and_traced(
            &node.command(&arguments),
            || counted(&node, &["crossings", "package-json"], &arguments),
            |counted, traced| to_js(traced) == counted.total("to_js"),
        );
        let Some((counted, traced)) = both else {
            return;
        };
        let what = format!("{arguments:?} on {}", node.version);
        let by_kind = |kind: &str| number(&traced.run["crossings"]["by_kind"][kind]);
        assert_eq!(counted.total("to_js"), by_kind("to_js"), "{what}");
        assert_eq!(counted.total("construct"), by_kind("construct"), "{what}");
        let constructed = counted.by_name("@construct");
        assert_eq!(constructed, traced_by_name(&traced, "construct"), "{what}");
        if node.major() == 18 {
            // Builtins of V8 10.2 must not be probed: calls from optimised code are counted at the callbacks.
            assert!(counted.total("slow") <= by_kind("slow"), "{what}");
        } else {
            assert_eq!(counted.total("slow"), by_kind("slow"), "{what}");
            assert_eq!(
                counted.by_name("@slow"),
                traced_by_name(&traced, "slow"),
                "{what}"
            );
        }

        let asked = &traced.run["package_json"];
        assert_eq!(
            counted.maps["@package_json_lookups"], asked["lookups"],
            "{what}"
        );
        // Up to 21.4 the path is a string of V8, which the program cannot read.
        if node.major() >= 22 {
            let paths: BTreeMap<String, u64> = list(&asked["files"])
                .iter()
                .filter(|file| number(&file["lookups"]) > 0)
                .map(|file| (text(&file["path"]).to_owned(), number(&file["lookups"])))
                .collect();
            let read: BTreeMap<String, u64> = counted
                .maps
                .get("@package_json")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(path, count)| (path.clone(), number(count)))
                .collect();
            assert_eq!(read, paths, "{what}");
        }
    }
}

fn phases_are_printed_in_order(node: &Node) {
    let folder = folder();
    let node = own_copy(node, &folder);
    let Some(counted) = counted(&node, &["phases"], &["-e", "0"]) else {
        return;
    };
    let named = |name: &str| {
        let line = counted.lines.iter().find(|line| line.contains(name));
        line.unwrap_or_else(|| panic!("no {name}: {:?}", counted.lines))
    };
    // `PID/TID  loopStart  +12.345 ms after environment`
    let milliseconds = |name: &str| -> f64 {
        let at = named(name).split_whitespace().nth(2).expect("a time");
        at.parse().expect("a number")
    };
    assert!(milliseconds("nodeStart") < milliseconds("v8Start"));
    assert!(milliseconds("v8Start") < 0.0);
    assert!(milliseconds("loopStart") > 0.0);
    assert!(milliseconds("loopExit") >= milliseconds("loopStart"));
    assert!(milliseconds("bootstrapComplete") > 0.0);
    // Spans have ended; the outer one is longer.
    let long = |name: &str| -> f64 {
        let words: Vec<&str> = named(name).split_whitespace().collect();
        words[words.len() - 3].parse().expect("a number")
    };
    assert!(long("node   ") > long("event loop"));
    assert!(long("node   ") > long("isolate snapshot"));
}

/// 20,000 calls, most of them fast, and accessors that come to C++ on two ways.
#[test]
#[ignore = "needs root"]
fn fast_calls_and_accessors_are_counted_as_a_trace_counts_them() {
    let Some(node) = Node::find("24.21.0") else {
        return;
    };
    let folder = folder();
    let node = own_copy(&node, &folder);
    let calls = project(CALLS);
    for (n, kind) in [("300000", "byte-length"), ("1000", "getter")] {
        let arguments = ["--no-warnings", "--expose-internals", &calls, n, kind];
        let Some(counted) = counted(&node, &["crossings", "fast-calls", "accessors"], &arguments)
        else {
            return;
        };
        let traced = trace(&[], node.command(arguments));
        let by_kind = &traced.run["crossings"]["by_kind"];
        assert_eq!(
            counted.total("getter"),
            number(&by_kind["getter"]),
            "{kind}"
        );
        let getters = counted.by_name("@getter");
        assert_eq!(getters, traced_by_name(&traced, "getter"), "{kind}");
        // How many are fast depends on when the optimiser is done.
        let slow_and_fast = number(&by_kind["slow"]) + number(&by_kind["fast"]);
        assert_eq!(
            counted.total("slow") + counted.total("fast"),
            slow_and_fast,
            "{kind}"
        );
        assert_eq!(counted.total("fast") > 100_000, kind == "byte-length");
    }
}

#[test]
#[ignore = "needs root"]
fn serializations_and_compilations_are_counted_as_a_trace_counts_them() {
    let Some(node) = Node::find("22.23.3") else {
        return;
    };
    let folder = folder();
    let node = own_copy(&node, &folder);
    let arguments = ["-e", "require('zlib');new(URL)('https://a.test/b?c')"];
    let Some(counted) = counted(&node, &["serialization", "compile"], &arguments) else {
        return;
    };
    let traced = trace(&[], node.command(arguments));
    let functions: BTreeMap<String, u64> = list(&traced.run["serialization"]["functions"])
        .iter()
        .map(|f| (text(&f["function"]).to_owned(), number(&f["calls"])))
        .collect();
    assert!(functions.len() > 3, "{functions:?}");
    let seen: BTreeMap<String, u64> = counted.maps["@serialization"]
        .as_object()
        .expect("counts")
        .iter()
        .map(|(function, count)| (function.clone(), number(count)))
        .collect();
    assert_eq!(seen, functions);
    // The id of a built-in module, as the trace has it behind `node:`.
    let built_in: Vec<String> = list(&traced.run["compile"]["scripts"])
        .iter()
        .filter(|script| script["unit"] == "builtin")
        .map(|script| text(&script["path"]).trim_start_matches("node:").to_owned())
        .collect();
    assert!(!built_in.is_empty());
    for id in built_in {
        assert!(
            counted.maps["@compiled"][&id].as_u64().is_some(),
            "{id}: {}",
            counted.maps["@compiled"]
        );
    }
}
