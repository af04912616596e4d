//! Several isolates that share threads, as isolated-vm makes them: in each V8 counts its scripts from 1.

use std::{collections::BTreeMap, path::Path};

use nodeprof_profile::{Recording, recording::Crossing};
use serde::Deserialize;

use crate::support::{Node, Trace, Traced, project};

/// What the program says that it has done.
#[derive(Deserialize)]
struct Told {
    rounds: u64,
    isolates: u64,
    /// Calls to the add-on, by function.
    calls: BTreeMap<String, u64>,
}

/// Names of a call's functions, the innermost first.
fn functions<'a>(recording: &'a Recording, call: &Crossing) -> impl Iterator<Item = String> + 'a {
    let frames = call.stack.into_iter().flat_map(|s| recording.frames_of(s));
    frames.map(|frame| String::from_utf8_lossy(recording.name(frame.function)).into_owned())
}

fn package() -> Option<String> {
    let package = project("cli/tests/isolates/node_modules/isolated-vm");
    if !Path::new(&package).is_dir() {
        println!("skipped: cli/tests/isolates has no isolated-vm; run make test");
        return None;
    }
    Some(package)
}

/// A trace of a program with isolates; none without the package.
fn trace_of(node: &Node, script: &str) -> Option<(Traced, Recording)> {
    package()?;
    let script = project(&format!("cli/tests/isolates/{script}"));
    let program = node.command(["--no-node-snapshot", &script]);
    let traced = Trace::new(["--freq", "0"], program).run();
    traced.succeeded();
    traced.lost_nothing();
    let recording = Recording::load(&traced.recording).expect("a recording");
    Some((traced, recording))
}

/// The package has binaries for these two.
mod functions_are_those_of_their_isolates {
    crate::support::on_each_node! { @versions super::functions_are_those_of_their_isolates, node_22 "22.23.3", node_24 "24.21.0" }
}

fn functions_are_those_of_their_isolates(node: &Node) {
    let Some((traced, recording)) = trace_of(node, "index.js") else {
        return;
    };
    let told: Told = serde_json::from_str(&traced.stdout()).expect("what the program has done");
    let mut calls = BTreeMap::new();
    let mut back = BTreeMap::new();
    for call in &recording.crossings {
        let callback = &recording.callbacks[call.callback.0 as usize];
        let all: Vec<String> = functions(&recording, call).collect();
        let at = all.iter().position(|name| name.starts_with("inner_"));
        if let Some(at) = at.filter(|_| callback.binding.contains("isolated-vm")) {
            *calls.entry(all[at].clone()).or_insert(0) += 1;
            let outer = all[at].replace("inner", "outer");
            assert_eq!(all[at + 1..at + 3], ["inner".into(), outer], "{all:?}");
        }
        // Of the main thread's isolate, called from another one.
        let has = |name: &str| all.iter().any(|of| of == name);
        if callback.function.contains("Uptime") && has("host_called") && has("back") {
            let scripts = call.stack.into_iter().flat_map(|s| recording.frames_of(s));
            let from = scripts.filter(|frame| recording.name(frame.function) == b"back");
            let files: Vec<_> = (from.filter_map(|frame| frame.file))
                .map(|file| String::from_utf8_lossy(recording.name(file)).into_owned())
                .collect();
            *back.entry(files).or_insert(0) += 1;
        }
    }
    assert_eq!(calls, told.calls);
    let expected = (0..told.isolates)
        .map(|k| (vec![format!("file:///isolate-{k}.js")], told.rounds))
        .collect::<BTreeMap<_, u64>>();
    assert_eq!(back, expected);
}

mod functions_of_an_isolate_that_was_elsewhere_meanwhile_have_their_names {
    crate::support::on_each_node! {
        @versions super::functions_of_an_isolate_that_was_elsewhere_meanwhile_have_their_names, node_22 "22.23.3", node_24 "24.21.0"
    }
}

fn functions_of_an_isolate_that_was_elsewhere_meanwhile_have_their_names(node: &Node) {
    let Some((traced, recording)) = trace_of(node, "moved.js") else {
        return;
    };
    let told: BTreeMap<String, u64> = serde_json::from_str(&traced.stdout()).expect("calls");
    let mut calls = BTreeMap::new();
    for call in &recording.crossings {
        let callback = &recording.callbacks[call.callback.0 as usize];
        let innermost = functions(&recording, call).find(|name| name.starts_with("moved_"));
        if let Some(name) = innermost.filter(|_| callback.binding.contains("isolated-vm")) {
            *calls.entry(name).or_insert(0) += 1;
        }
    }
    assert_eq!(told.values().sum::<u64>(), 8_000);
    assert_eq!(calls, told);
}

/// Entries of an add-on's functions have no probes.
mod calls_of_an_add_on_are_told_as_different_when_verified {
    crate::support::on_each_node! {
        @versions super::calls_of_an_add_on_are_told_as_different_when_verified, node_22 "22.23.3", node_24 "24.21.0"
    }
}

fn calls_of_an_add_on_are_told_as_different_when_verified(node: &Node) {
    let Some(package) = package() else {
        return;
    };
    let script = format!(
        "const {{ Reference }} = require({package:?}); for (let i = 0; i < 7; i++) new Reference(1).copySync()"
    );
    let program = node.command(["--no-node-snapshot", "-e", &script]);
    let traced = Trace::new(["--verify"], program).run();
    traced.succeeded();
    traced.lost_nothing();
    let stderr = traced.stderr();
    let mut lines = (stderr.lines()).skip_while(|line| !line.starts_with("verified: "));
    let verdict = lines.next().unwrap_or_default();
    assert!(
        verdict.ends_with(": different for these callbacks"),
        "{stderr}"
    );
    let differences: Vec<_> = lines.collect();
    let of_add_on = |line: &&str| line.starts_with("  (add-on) ") && line.contains(": 0 entries, ");
    assert!(differences.iter().all(of_add_on), "{differences:?}");
    let seven = differences
        .iter()
        .filter(|line| line.ends_with(" 7 crossings"));
    assert!(seven.count() >= 1, "{differences:?}");
}
