//! Milestones, against what the process itself says; and what a hit costs, against itself.

use std::process::{Child, Command};

use nodeprof_profile::Recording;
use serde_json::Value;

use crate::support::{Node, Trace, list, number, on_each_node, text, trace, undisturbed};

on_each_node!(undisturbed: milestones_are_those_of_node_timing);
on_each_node!(calls_of_a_worker_are_in_the_phase_of_their_time);
on_each_node!(calls_before_the_first_milestone_are_in_the_phase_of_their_time);
on_each_node!(what_never_returns_is_no_step_of_node_unless_it_is_one);

/// Node hands its clock's nanoseconds to both; only `nodeTiming`'s arithmetic in milliseconds rounds.
const TOLERANCE_NS: f64 = 2_000.0;

pub(crate) fn milestones_are_those_of_node_timing(node: &Node) {
    let script = "setTimeout(() => {}, 5); process.on('exit', () => \
        console.log(JSON.stringify(require('perf_hooks').performance.nodeTiming)))";
    let traced = trace(&[], node.command(["-e", script]));
    let timing: Value = serde_json::from_str(&traced.stdout()).expect("nodeTiming");
    let milestones = &traced.run["milestones"];
    let ours = |name: &str| milestones[name].as_f64().unwrap_or(f64::NAN);
    // Node counts from its process's start, nodeprof from the exec: only differences compare.
    let theirs = |name: &str| timing[name].as_f64().unwrap_or(f64::NAN) * 1e6;
    for (name, node_name) in [
        ("v8_start", "v8Start"),
        ("environment", "environment"),
        ("bootstrap_complete", "bootstrapComplete"),
        ("loop_start", "loopStart"),
        ("loop_exit", "loopExit"),
    ] {
        let ours = ours(name) - ours("node_start");
        let theirs = theirs(node_name) - theirs("nodeStart");
        assert!(
            (ours - theirs).abs() < TOLERANCE_NS,
            "{name}: {ours} and {theirs}; {milestones} and {timing}"
        );
        assert!(ours > 0.0, "{name}: {ours}");
    }
    assert_eq!(milestones["exec"], 0);
    let order = [
        "exec",
        "node_start",
        "v8_start",
        "environment",
        "bootstrap_complete",
        "loop_start",
        "loop_exit",
        "exit",
    ];
    assert!(
        order.is_sorted_by_key(|name| milestones[name].as_u64()),
        "{milestones}"
    );
}

/// A worker counts its calls in the phase in which it makes them, not in that in which it was created.
fn calls_of_a_worker_are_in_the_phase_of_their_time(node: &Node) {
    let script = "const { Worker } = require('worker_threads');
        new Worker(`setTimeout(() => {
          const fs = require('fs');
          for (let i = 0; i < 5000; i++) fs.statSync('/');
        }, 300)`, { eval: true });";
    for mode in ["count", "full"] {
        let traced = trace(&["--mode", mode], node.command(["-e", script]));
        let calls = |name: &str| {
            let phase = list(&traced.run["phases"])
                .iter()
                .find(|phase| text(&phase["name"]) == name);
            phase.map_or(0, |phase| number(&phase["crossings"]))
        };
        // The worker was created in the main script, and that is before the loop in both modes.
        assert!(calls("loop") >= 5000, "{mode}: {}", calls("loop"));
        assert!(
            calls("main_script") < 5000,
            "{mode}: {}",
            calls("main_script")
        );
    }
}

/// Node marks the first milestone when its environment is there, with the instant at which it was begun: without a snapshot its
/// own JavaScript has made hundreds of calls by then.
fn calls_before_the_first_milestone_are_in_the_phase_of_their_time(node: &Node) {
    let calls = |mode: &str, arguments: &[&str]| -> Vec<(String, u64)> {
        let traced = trace(&["--mode", mode, "--freq", "0"], node.command(arguments));
        let phases = list(&traced.run["phases"]).iter();
        phases
            .map(|phase| (text(&phase["name"]).to_owned(), number(&phase["crossings"])))
            .collect()
    };
    for arguments in [&["-e", "0"][..], &["--no-node-snapshot", "-e", "0"]] {
        assert_eq!(
            calls("count", arguments),
            calls("full", arguments),
            "{arguments:?}"
        );
    }
}

/// `process.exit()` where node looks to promises and ticks: what nodeprof itself times there, and node's callback scopes, never return.
fn what_never_returns_is_no_step_of_node_unless_it_is_one(node: &Node) {
    for script in [
        "process.nextTick(() => process.exit())",
        "Promise.resolve().then(() => process.exit())",
        "setTimeout(() => process.exit(), 1)",
        "require('fs').readFile('/', () => process.nextTick(() => process.exit()))",
        "import('fs').then(() => process.exit())",
    ] {
        let traced = trace(&["--mode", "full"], node.command(["-e", script]));
        let recording = Recording::load(&traced.recording).expect("a recording");
        let names: Vec<_> = (recording.spans.iter())
            .map(|span| String::from_utf8_lossy(recording.name(span.name)))
            .collect();
        assert!(
            names.iter().any(|name| name == "node"),
            "{script}: {names:?}"
        );
        assert!(
            names.iter().all(|name| name != "(unknown)"),
            "{script}: {names:?}"
        );
    }
}

/// Programs that never rest; ended with this, or by themselves should nobody be there for that.
struct Busy(Vec<Child>);

impl Busy {
    fn new(count: usize) -> Busy {
        let one = || {
            let script = "ulimit -t 30; while :; do :; done";
            Command::new("sh").args(["-c", script]).spawn()
        };
        Busy((0..count).map(|_| one().expect("sh")).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// It is measured at the first trace of a machine, and kept: a CI host is busy then.
#[test]
#[ignore = "needs root"]
fn what_a_hit_costs_is_not_what_other_programs_take() {
    let Some(node) = Node::find("24.21.0") else {
        return;
    };
    undisturbed(|| {
        let cost = || {
            let cache = tempfile::tempdir().expect("a folder");
            let mut trace = Trace::new::<&str, _>([], node.command(["-e", "0"]));
            trace.command().env("XDG_CACHE_HOME", cache.path());
            let traced = trace.run();
            traced.succeeded();
            traced.run["overhead"]["ns_per_hit"]
                .as_f64()
                .expect("a cost")
        };
        let alone = cost();
        let busy = Busy::new(16);
        let beside = cost();
        drop(busy);
        println!("a hit: {alone:.0} ns alone, {beside:.0} ns beside 16 busy programs");
        // The slowest machine seen takes 1,400; more than 7,000 was a walk through all of nodeprof's own stack.
        assert!((100.0..4_000.0).contains(&alone), "{alone} ns");
        // What lies in the processor's caches is theirs, too, and a processor may have two threads.
        assert!(beside < alone * 3.0, "{alone} and {beside} ns");
    });
}
