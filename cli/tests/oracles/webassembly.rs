//! Functions of WebAssembly against `new Error().stack` in what they call, and their CPU time against the program's own clock.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use nodeprof_profile::{
    Recording,
    recording::{FrameKind, StackId},
};
use serde::Deserialize;

use crate::support::{NODEPROF, Node, Trace, Traced, number, on_each_node, project, report};

on_each_node!(
    stacks_with_webassembly_are_those_of_errors,
    time_in_webassembly_is_that_of_its_own_clock,
);

mod stacks_with_webassembly_are_those_of_errors_between {
    // What V8 is told of new code changes with its signature: 20.0 and 23 are the first of theirs here.
    crate::support::on_each_node! { @versions super::stacks_with_webassembly_are_those_of_errors,
        node_19 "19.8.1", node_20 "20.0.0", node_21 "21.1.0", node_23 "23.11.1", node_25 "25.9.0"
    }
}

/// A frame as V8 itself tells it.
#[derive(Deserialize)]
struct Told {
    name: String,
    /// The script of its module, if it is WebAssembly.
    wasm: Option<String>,
    /// It is Node's own.
    #[serde(default)]
    node: bool,
}

#[derive(Deserialize)]
struct Site {
    /// Of the system call that the program makes there.
    path: String,
    stack: Vec<Told>,
}

#[derive(Deserialize)]
struct Program {
    stacks: Vec<Site>,
    spin_us: u64,
}

/// Functions but those of Node, the innermost first, and the modules of those that are WebAssembly.
type Stack = Vec<(String, Option<String>)>;

fn traced(node: &Node) -> (Traced, Program, Recording) {
    let program = node.command([project("examples/webassembly/main.js")]);
    let mut trace = Trace::new([""; 0], program);
    // Node 21 has one else, which is told as a loss.
    trace.command().env("UV_USE_IO_URING", "0");
    let traced = trace.run();
    traced.succeeded();
    traced.lost_nothing();
    let program = serde_json::from_str(&traced.stdout()).expect("what the program did");
    let recording = Recording::load(&traced.recording).expect("a recording");
    (traced, program, recording)
}

fn told(site: &Site) -> Stack {
    let frames = site.stack.iter().filter(|frame| !frame.node);
    let frames = frames.map(|frame| (frame.name.clone(), frame.wasm.clone()));
    frames.collect()
}

fn found(recording: &Recording, stack: StackId) -> Stack {
    let text = |id| String::from_utf8_lossy(recording.name(id)).into_owned();
    let frames = recording.frames_of(stack).filter_map(|frame| {
        let file = frame.file.map(text).unwrap_or_default();
        let script = match frame.kind {
            FrameKind::JavaScript if !file.starts_with("node:") => None,
            FrameKind::WebAssembly => Some(file),
            _ => return None,
        };
        Some((text(frame.function), script))
    });
    frames.collect()
}

fn stacks_with_webassembly_are_those_of_errors(node: &Node) {
    let (_, program, recording) = traced(node);
    let stacks: BTreeMap<&[u8], Stack> = recording
        .files
        .iter()
        .filter_map(|file| Some((recording.name(file.path), found(&recording, file.stack?))))
        .collect();
    let (mut names, mut modules) = (BTreeSet::new(), BTreeSet::new());
    for site in &program.stacks {
        let told = told(site);
        assert_eq!(
            stacks.get(site.path.as_bytes()),
            Some(&told),
            "{}",
            site.path
        );
        for (name, module) in told {
            if let Some(module) = module {
                names.insert(name);
                modules.insert(module);
            }
        }
    }
    println!(
        "node {}: {} stacks, {names:?} of {modules:?}",
        node.version,
        program.stacks.len()
    );
    // Six kinds of modules, one of them by a stream, which Node 16 cannot compile.
    let kinds = if node.major() > 16 { 6 } else { 5 };
    assert_eq!(program.stacks.len(), 12 * (kinds + 1));
    assert_eq!(modules.len(), kinds);
    assert!(names.contains("wasm-function[1]") && names.contains("the outer one"));
}

/// By module it is the module's that calls it.
fn of_its_caller(traced: &Traced, own: u64) {
    let flame = Command::new(NODEPROF)
        .args([
            "flame", "--of", "cpu", "--by", "module", "--format", "folded",
        ])
        .arg(&traced.recording)
        .output()
        .expect("nodeprof starts");
    let text = String::from_utf8_lossy(&flame.stdout).into_owned();
    let of_module = text.lines().filter_map(|line| {
        let (stack, value) = line.rsplit_once(' ')?;
        let is_its = !stack.contains("worker 1") && stack.ends_with("webassembly/main.js");
        is_its.then(|| value.parse::<u64>().expect("a number"))
    });
    let of_module: u64 = of_module.sum();
    assert!(of_module >= own, "{of_module} of {own} ns: {text}");
}

fn time_in_webassembly_is_that_of_its_own_clock(node: &Node) {
    let mut apart = String::new();
    // The clock runs on in ticks of the kernel and in what else the machine does.
    for _ in 0..3 {
        let (traced, program, recording) = traced(node);
        let own: u64 = (recording.samples.iter())
            .filter_map(|sample| {
                let stack = sample.stack?;
                let runs = found(&recording, stack).into_iter().next()?;
                (runs.0 == "gr\u{fc}n").then_some(sample.weight.0)
            })
            .sum();
        let run = report(&traced.recording);
        let kinds = &run["samples"]["by_kind"];
        let (all, compiling) = (
            number(&kinds["webassembly_ns"]),
            number(&kinds["webassembly_compilation_ns"]),
        );
        let clock = program.spin_us * 1_000;
        apart = format!(
            "{own} ns in its samples, {clock} by its clock; of the kind {all}, {compiling} to compile"
        );
        println!("node {}: {apart}", node.version);
        let share = own as f64 / clock as f64;
        of_its_caller(&traced, own);
        if (0.9..=1.1).contains(&share) && all.abs_diff(own) <= own / 10 {
            return;
        }
    }
    panic!("{apart}");
}
