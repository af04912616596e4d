//! CPU samples, against the CPU time that the kernel and the program itself tell, and against V8's own profiler.

use std::{collections::BTreeMap, fs, process::Command};

use nodeprof_flamegraphs::fold::{Metric, Request, fold};
use nodeprof_profile::{
    Profile, Recording,
    recording::{Crossing, CrossingKind, Frame, FrameKind, Process, Sample, StackId},
};
use serde_json::Value;

use crate::support::{
    Node, Trace, Traced, folder, has_packages, list, npm_script, on_each_node, project, stolen,
    trace, write,
};

on_each_node!(undisturbed:
    samples_stand_for_the_cpu_time_of_the_process,
    samples_of_each_thread_stand_for_its_own_cpu_time,
    samples_in_the_kernel_have_its_frames,
    a_frequency_is_kept_to,
    samples_of_the_main_thread_reach_main,
    samples_at_the_beginning_of_a_function_have_its_callers,
    times_of_functions_are_those_of_the_cpu_profiler_and_of_their_own_clock,
);
on_each_node!(
    kinds_of_work_are_told_apart,
    without_a_frequency_nothing_is_sampled,
    samples_of_counted_runs_have_stacks,
    what_samples_in_a_collection_meet_has_its_name,
    samples_in_libc_lead_no_later_stack_astray,
    samples_in_an_add_on_without_frame_pointers_have_its_callers,
);

/// Uses the CPU for some 400 ms, then asks for [`ASKED`] and prints what `getrusage` said of the process just before, in microseconds.
const BUSY: &str = "
const { existsSync } = require('fs');
const until = process.cpuUsage().user + 400_000;
let sum = 0;
while (process.cpuUsage().user < until) for (let i = 0; i < 1e5; i++) sum += Math.sqrt(i);
const { user, system } = process.cpuUsage();
existsSync('/no/such/file/asked');
console.log(user + system);
";
const ASKED: &[u8] = b"/no/such/file/asked";

fn recording(traced: &Traced) -> Recording {
    Recording::load(&traced.recording).expect("a recording")
}

fn weight<'s>(samples: impl IntoIterator<Item = &'s Sample>) -> f64 {
    samples.into_iter().map(|s| s.weight.0 as f64 / 1e6).sum()
}

/// CPU time of a process, ms: exact, by the scheduler.
fn cpu_ms(process: &Process) -> f64 {
    let (user, system) = process.user.zip(process.system).expect("it has ended");
    (user.0 + system.0) as f64 / 1e6
}

/// Equal but for a few percent and some ticks at either end. The clock of the samples goes on while the host of this virtual machine has the
/// CPU, the scheduler's (and `getrusage`, which tells that) does not: what was stolen meanwhile, ms, may be in the samples alone.
fn assert_close(found: f64, expected: f64, percent: f64, stolen: f64, what: &str) {
    let room = expected * percent / 100.0 + 6.0;
    assert!(
        (-room..=room + stolen).contains(&(found - expected)),
        "{what}: {found:.1} ms and {expected:.1} ms, {stolen:.0} ms or less stolen"
    );
}

/// A trace, and the CPU time that the host may have taken meanwhile, ms.
fn trace_and_stolen(options: &[&str], command: Vec<String>) -> (Traced, f64) {
    let before = stolen();
    let traced = trace(options, command);
    // Told in ticks of 10 ms, of which one may be about to be full.
    (traced, (stolen() - before) * 1e3 + 10.0)
}

fn samples_stand_for_the_cpu_time_of_the_process(node: &Node) {
    let folder = folder();
    let script = write(folder.path(), "busy.js", BUSY);
    let (traced, stolen) = trace_and_stolen(&[], node.command([&script]));
    let recording = recording(&traced);
    assert_eq!(recording.runs[0].sample_hz, Some(997));
    let sampled = weight(&recording.samples);
    let scheduled = cpu_ms(&recording.processes[0]);
    assert_close(sampled, scheduled, 3.0, stolen, "scheduler");
    // What the program uses before it asks.
    let mut files = recording.files.iter();
    let asked = files.find(|access| recording.name(access.path) == ASKED);
    let asked = asked.expect("the program asks").start;
    let before = weight(recording.samples.iter().filter(|s| s.at <= asked));
    let by_itself: f64 = traced.stdout().trim().parse().expect("microseconds");
    assert_close(before, by_itself / 1e3, 5.0, stolen, "getrusage");
    // In one thread, in the function itself.
    let pid = recording.processes[0].pid;
    let main: Vec<&Sample> = recording
        .samples
        .iter()
        .filter(|s| s.thread.0 == pid)
        .collect();
    assert!(weight(main.iter().copied()) > 380.0);
    let in_script = main.iter().filter(|s| {
        let stack = s.stack.expect("a stack");
        recording.frames_of(stack).any(|f| {
            f.kind == FrameKind::JavaScript
                && f.file
                    .is_some_and(|n| recording.name(n) == script.as_bytes())
        })
    });
    let share = weight(in_script.copied()) / sampled;
    assert!(share > 0.8, "{share:.3} of the samples reach the script");
}

fn samples_of_each_thread_stand_for_its_own_cpu_time(node: &Node) {
    let folder = folder();
    let script = write(
        folder.path(),
        "threads.js",
        "
const { Worker, isMainThread } = require('worker_threads');
const cpu = (ms) => {
  const begin = process.hrtime.bigint();
  let sum = 0;
  while (process.hrtime.bigint() - begin < BigInt(ms) * 1000000n) for (let i = 0; i < 1e4; i++) sum += i;
};
if (isMainThread) new Worker(__filename).on('exit', () => cpu(100));
else cpu(300);
",
    );
    let (traced, stolen) = trace_and_stolen(&[], node.command([&script]));
    let recording = recording(&traced);
    assert_close(
        weight(&recording.samples),
        cpu_ms(&recording.processes[0]),
        4.0,
        stolen,
        "process",
    );
    // Not while the other one runs: the worker's 300 ms may be shared with other programs, but are its own.
    let pid = recording.processes[0].pid;
    let mut by_thread = std::collections::BTreeMap::new();
    for sample in &recording.samples {
        *by_thread.entry(sample.thread.0).or_insert(0.0) += weight([sample]);
    }
    let main = by_thread.remove(&pid).expect("the main thread");
    let worker = by_thread.values().copied().fold(0.0, f64::max);
    assert!(main < worker, "{main:.1} {worker:.1}");
}

fn samples_in_the_kernel_have_its_frames(node: &Node) {
    let folder = folder();
    let script = write(
        folder.path(),
        "kernel.js",
        "
const fs = require('fs');
const file = fs.openSync('/dev/zero', 'r');
const buffer = Buffer.alloc(16 << 20);
while (process.cpuUsage().system < 300_000) fs.readSync(file, buffer, 0, buffer.length, null);
",
    );
    let traced = trace(&[], node.command([&script]));
    let recording = recording(&traced);
    let cpu = list(&traced.run["families"])
        .iter()
        .find(|f| f["name"] == "cpu")
        .expect("a family");
    if cpu["state"] == "partial" {
        println!("skipped: {}", cpu["reason"]);
        return;
    }
    let name = |of| String::from_utf8_lossy(recording.name(of)).into_owned();
    let mut reading = 0.0;
    for sample in &recording.samples {
        let frames: Vec<_> = recording
            .frames_of(sample.stack.expect("a stack"))
            .collect();
        let kernel = frames
            .iter()
            .take_while(|f| f.kind == FrameKind::Kernel)
            .count();
        // The kernel is called: its frames are the innermost.
        assert!(
            frames[kernel..].iter().all(|f| f.kind != FrameKind::Kernel),
            "{frames:?}"
        );
        // Node reads other things at its start.
        let in_kernel: Vec<_> = frames[..kernel].iter().map(|f| name(f.function)).collect();
        let zeros = in_kernel
            .iter()
            .any(|f| f == "read_zero" || f == "read_iter_zero");
        if zeros {
            assert!(in_kernel.iter().any(|f| f == "vfs_read"), "{in_kernel:?}");
            let script = frames
                .iter()
                .any(|f| f.file.is_some_and(|n| name(n) == script));
            assert!(script, "the reads are the script's");
            reading += weight([sample]);
        }
    }
    let system = recording.processes[0].system.expect("it has ended");
    // By ticks, so not exact.
    let system = system.0 as f64 / 1e6;
    assert!(
        reading > 0.7 * system && reading < 1.2 * system,
        "{reading:.1} ms of {system:.1} ms"
    );
}

/// Programs that do one thing for some 300 ms of CPU time, each with its field of `samples.by_kind` and how much of that time is it.
/// `over(f)` calls `f` so long; what it counts up makes each source another one, which no cache of V8's knows.
const WORKS: [(&str, &str, f64); 9] = [
    (
        "javascript_ns",
        "over(() => { let sum = 0; for (let i = 0; i < 1e6; i++) sum = (sum * 31 + i) | 0; return sum; });",
        0.9,
    ),
    (
        "builtins_ns",
        "const list = Array.from({ length: 1e5 }, (_, i) => String(i)); over(() => list.lastIndexOf({}));",
        0.8,
    ),
    (
        "eager_compilation_ns",
        "const vm = require('vm'); const text = 'if (a) { b(1 + c.d); } else { c = [a, { b, c }]; }\\n'.repeat(5e3);
         over((n) => new vm.Script(text + n));",
        0.8,
    ),
    (
        "lazy_compilation_ns",
        "const vm = require('vm'); const body = 'if (a) { b(1 + c.d); } else { c = [a, { b, c }]; }\\n'.repeat(2e3);
         over((n) => vm.runInThisContext(`function f${n}(a) { if (a) return; ${body} } f${n}(1);`));",
        0.45,
    ),
    (
        "optimizing_compilation_ns",
        "require('v8').setFlagsFromString('--allow-natives-syntax');
         const body = 'if (a > b) { b = (a * 3 + b) | 0; } else { a = (b * 7 - a) | 0; }\\n'.repeat(150);
         over((0, eval)(`(function () {
           function f(a, b) { ${body} return a + b; }
           return () => {
             %PrepareFunctionForOptimization(f); f(1, 2); f(2, 1);
             %OptimizeFunctionOnNextCall(f); f(1, 2); %DeoptimizeFunction(f);
           };
         })()`));",
        0.6,
    ),
    (
        "deserialization_ns",
        "const vm = require('vm'); require('v8').setFlagsFromString('--no-compilation-cache');
         const text = 'f.push(function (a) { return [a, { a }]; });\\n'.repeat(3e3);
         const first = new vm.Script('var f = [];' + text); first.runInThisContext(); for (const g of f) g(1);
         const cachedData = first.createCachedData();
         over(() => { if (new vm.Script('var f = [];' + text, { cachedData }).cachedDataRejected) throw 1; });",
        0.5,
    ),
    (
        "garbage_collection_ns",
        "require('v8').setFlagsFromString('--expose-gc'); const gc = require('vm').runInNewContext('gc');
         const kept = Array.from({ length: 1e5 }, (_, i) => ({ i })); over(() => gc()); kept.pop();",
        0.8,
    ),
    (
        "native_ns",
        "const { pbkdf2Sync } = require('crypto'); over(() => pbkdf2Sync('a', 'b', 5000, 64, 'sha512'));",
        0.9,
    ),
    (
        "kernel_ns",
        "const { openSync, readSync } = require('fs'); const zero = openSync('/dev/zero'); const into = Buffer.alloc(1 << 22);
         over(() => readSync(zero, into));",
        0.8,
    ),
];

/// Each of these is most of what its program does, and the kinds are all of the CPU time.
fn kinds_of_work_are_told_apart(node: &Node) {
    let folder = folder();
    for (field, program, least) in WORKS {
        let over = "
const over = (f) => {
  const used = () => { const { user, system } = process.cpuUsage(); return user + system; };
  const begin = used();
  for (let n = 0; used() < begin + 3e5; n++) f(n);
  console.log(used() - begin);
};
";
        let script = write(
            folder.path(),
            &format!("{field}.js"),
            &(over.to_owned() + program),
        );
        let traced = trace(&[], node.command([&script]));
        let spent: f64 = traced.stdout().trim().parse().expect("microseconds");
        let profile = Profile::from_recording(&recording(&traced));
        let samples = &profile.runs[0].samples;
        let kinds = serde_json::to_value(samples.by_kind).expect("JSON");
        let kinds: BTreeMap<String, u64> = serde_json::from_value(kinds).expect("numbers");
        assert_eq!(kinds.values().sum::<u64>(), samples.cpu_ns, "{kinds:?}");
        let share = kinds[field] as f64 / 1e3 / spent;
        assert!(
            share >= least,
            "{field} is {share:.2} of {spent} us: {kinds:?}"
        );
        let most = kinds.iter().max_by_key(|(_, ns)| **ns).expect("kinds");
        assert_eq!(most.0, field, "{kinds:?}");
    }
}

fn without_a_frequency_nothing_is_sampled(node: &Node) {
    let traced = trace(&["--freq", "0"], node.command(["-e", "0"]));
    let recording = recording(&traced);
    assert!(recording.samples.is_empty());
    assert_eq!(recording.runs[0].sample_hz, None);
    let cpu = recording.families.iter().find(|f| f.name == "cpu");
    let cpu = cpu.expect("a family");
    assert_eq!(cpu.state, "off");
    assert!(cpu.reason.as_ref().is_some_and(|r| r.contains("--freq 0")));
    // Count mode has them if they are asked for by name.
    let count = |more: &[&str]| {
        let options = [&["--mode", "count"], more].concat();
        Recording::load(&trace(&options, node.command(["-e", "0"])).recording).expect("a recording")
    };
    let without = count(&[]);
    assert!(without.samples.is_empty() && without.waits.is_empty());
    let with = count(&["--freq", "997"]);
    assert!(!with.samples.is_empty() && with.waits.is_empty());
    assert!(with.losses.iter().all(|loss| loss.count == 0));
}

fn samples_of_counted_runs_have_stacks(node: &Node) {
    let folder = folder();
    let program = "function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) }\nfib(34);";
    let script = write(folder.path(), "busy.js", program);
    let of = |options: &[&str]| {
        let options = [&["--mode", "count"], options].concat();
        recording(&trace(&options, node.command([&script])))
    };
    let (sampled, counted) = (of(&["--freq", "4000"]), of(&[]));
    for recording in [&sampled, &counted] {
        assert!(recording.losses.iter().all(|loss| loss.count == 0));
        // Calls have no stacks, so nobody's are known.
        assert_eq!(Profile::from_recording(recording).runs[0].modules, []);
    }
    let profile = Profile::from_recording(&sampled);
    let samples = &profile.runs[0].samples;
    let (all, javascript) = (samples.cpu_ns, samples.by_kind.javascript_ns);
    assert!(javascript * 2 > all, "{javascript} of {all} ns");
    assert!(samples.by_kind.unknown_ns * 10 < all);
    let request = Request::new(Metric::Cpu);
    let folded = fold(&sampled, &request).expect("samples").to_string();
    let of_busy = folded.lines().filter(|line| line.contains(";fib "));
    let of_busy: u64 = of_busy
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    assert!(of_busy * 2 > all, "{of_busy} of {all} ns: {folded}");
    let calls = |recording: &Recording| Profile::from_recording(recording).runs[0].crossings.total;
    assert_eq!(calls(&sampled), calls(&counted));
}

fn a_frequency_is_kept_to(node: &Node) {
    let folder = folder();
    let script = write(folder.path(), "busy.js", BUSY);
    let (traced, stolen) = trace_and_stolen(&["--freq", "4000"], node.command([&script]));
    let recording = recording(&traced);
    let mut weights: Vec<u64> = recording.samples.iter().map(|s| s.weight.0).collect();
    weights.sort_unstable();
    let median = weights[weights.len() / 2];
    assert!((240_000..=260_000).contains(&median), "{median} ns");
    assert_close(
        weight(&recording.samples),
        cpu_ms(&recording.processes[0]),
        3.0,
        stolen,
        "scheduler",
    );
}

/// A frame's function as text.
fn function(recording: &Recording, frame: &Frame) -> String {
    String::from_utf8_lossy(recording.name(frame.function)).into_owned()
}

/// How many samples of the main thread were taken after the first one in `main`, and how many of them reach it. Without those taken
/// while the kernel takes the process apart: its memory, with the stack, is gone by then.
fn reaching_main(recording: &Recording) -> (usize, usize) {
    let pid = recording.processes[0].pid;
    let mut samples: Vec<&Sample> = recording
        .samples
        .iter()
        .filter(|s| s.thread.0 == pid)
        .collect();
    samples.sort_by_key(|sample| sample.at);
    let frames: Vec<Vec<String>> = samples
        .iter()
        .map(|sample| {
            let stack = sample.stack.map(|stack| recording.frames_of(stack));
            let frames = stack.into_iter().flatten();
            frames.map(|frame| function(recording, frame)).collect()
        })
        .collect();
    let reaches = |frames: &&Vec<String>| frames.iter().any(|f| f == "main" || f == "node::Start");
    let after = frames.iter().skip_while(|frames| !reaches(frames));
    let alive: Vec<&Vec<String>> = after
        .filter(|frames| !frames.iter().any(|f| f == "do_exit"))
        .collect();
    let reaching = alive.iter().copied().filter(reaches).count();
    for frames in &alive {
        let start = frames.iter().position(|frame| frame == "node::Start");
        let outside = start.map_or(&[][..], |start| &frames[start + 1..]);
        assert!(outside.iter().all(|frame| frame == "main"), "{frames:?}");
    }
    (alive.len(), reaching)
}

fn samples_of_the_main_thread_reach_main(node: &Node) {
    // Short programs have few samples at the usual frequency.
    let mut programs = vec![(
        vec![project("examples/busy/main.js"), "20".to_owned()],
        "997",
    )];
    if has_packages("examples/express") {
        programs.push((vec![project("examples/express/app.js")], "4000"));
    }
    if let Some(npm) = npm_script("npm") {
        programs.push((vec![npm, "--version".to_owned()], "4000"));
    }
    for (program, frequency) in programs {
        let (mut samples, mut reaching) = (0, 0);
        for _ in 0..2 {
            let traced = Trace::new(["--freq", frequency], node.command(&program)).run();
            traced.lost_nothing();
            let (all, whole) = reaching_main(&recording(&traced));
            samples += all;
            reaching += whole;
        }
        let share = 100.0 * reaching as f64 / samples as f64;
        println!(
            "node {}, {program:?}: {share:.2}% of {samples} samples reach main",
            node.version
        );
        assert!(samples > 150, "only {samples} samples of {program:?}");
        assert!(share >= 98.0, "{share:.2}% of {program:?}");
    }
}

/// Uses the CPU for some 600 ms, nearly all of it for beginning functions and ending them.
const CALLS: &str = "
function fibonacci(n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
function* counter(n) { for (let i = 0; i < n; i++) yield i; }
let sum = 0;
const until = process.cpuUsage().user + 600_000;
while (process.cpuUsage().user < until) {
  sum += fibonacci(20);
  for (const i of counter(20_000)) sum += i;
}
";

fn samples_at_the_beginning_of_a_function_have_its_callers(node: &Node) {
    let folder = folder();
    let script = write(folder.path(), "calls.js", CALLS);
    let traced = Trace::new(["--freq", "4000"], node.command([&script])).run();
    traced.lost_nothing();
    let recording = recording(&traced);
    let pid = recording.processes[0].pid;
    let (mut samples, mut in_script, mut alone) = (0u32, 0u32, 0u32);
    for sample in recording.samples.iter().filter(|s| s.thread.0 == pid) {
        let Some(stack) = sample.stack else { continue };
        let frames: Vec<_> = recording.frames_of(stack).collect();
        samples += 1;
        in_script += u32::from(frames.iter().any(|f| f.kind == FrameKind::JavaScript));
        alone += u32::from(frames.len() == 1 && frames[0].kind == FrameKind::Unknown);
    }
    assert!(in_script > 1500, "only {in_script} samples in JavaScript");
    // V8's code is of no file, so who finds no caller of it has nothing to show.
    let share = 100.0 * f64::from(alone) / f64::from(samples);
    println!("node {}: {alone} of {samples} alone", node.version);
    assert!(
        share <= 0.1,
        "{alone} of {samples} samples are alone in V8's code"
    );
}

/// Spends half of its time in libc's `getenv`, which has a place in the environment, that is above all frames, in the register of frame pointers.
const VARIABLES: &str = "
let found = 0;
for (let i = 0; i < 3000; i++) {
  if (process.env['NO_SUCH_' + i] !== undefined) found++;
  process.uptime();
}
";

fn samples_in_libc_lead_no_later_stack_astray(node: &Node) {
    let folder = folder();
    let script = write(folder.path(), "variables.js", VARIABLES);
    let mut trace = Trace::new(["--freq", "4000"], node.command([&script]));
    for n in 0..10_000 {
        trace.command().env(format!("VARIABLE_{n}"), "1");
    }
    let traced = trace.run();
    traced.lost_nothing();
    let recording = recording(&traced);
    let frames = |stack: Option<StackId>| -> Vec<String> {
        let frames = stack.into_iter().flat_map(|at| recording.frames_of(at));
        frames.map(|frame| function(&recording, frame)).collect()
    };
    let samples = recording.samples.iter().map(|sample| frames(sample.stack));
    let of_getenv = |frames: &Vec<String>| frames.iter().any(|frame| frame.contains("getenv"));
    let in_getenv = samples.filter(of_getenv).count();
    assert!(in_getenv > 20, "only {in_getenv} samples");
    let calls = recording
        .callbacks
        .iter()
        .position(|c| c.function == "Uptime");
    let calls = calls.expect("calls of process.uptime");
    let (mut all, mut astray) = (0, Vec::new());
    for crossing in &recording.crossings {
        if crossing.callback.0 as usize == calls {
            all += 1;
            let frames = frames(crossing.stack);
            let starts = frames.iter().filter(|frame| *frame == "node::Start");
            if starts.count() != 1 || of_getenv(&frames) {
                astray.push(frames);
            }
        }
    }
    println!(
        "node {}: {in_getenv} samples, {} of {all} stacks astray",
        node.version,
        astray.len()
    );
    assert_eq!(all, 3000);
    assert!(
        astray.is_empty(),
        "{} of {all}: {:?}",
        astray.len(),
        astray[0]
    );
}

/// Calls an add-on's function in six ways, each from a function of its own. It gets a property first, and the getter leaves frames of many functions on the stack.
const SPINS: &str = "
const { spin, later } = require('./spin.node');
const object = { get property() { return deeper(6); } };
function deeper(n) { return n ? deeper(n - 1) : JSON.stringify([process.uptime()]); }
function ways0() { spin(0, 4e7, object); }
function ways1() { spin(1, 4e7, object); }
function ways2() { spin(2, 4e7, object); }
function ways3() { spin(3, 4e7, object); }
function ways4() { spin(4, 4e7, object); }
function ways5() { spin(5, 4e7, object); }
for (const way of [ways0, ways1, ways2, ways3, ways4, ways5]) way();
later(4e7, object);
";

fn samples_in_an_add_on_without_frame_pointers_have_its_callers(node: &Node) {
    let folder = folder();
    let script = write(folder.path(), "spins.js", SPINS);
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-fomit-frame-pointer", "-o"])
        .arg(folder.path().join("spin.node"))
        .arg(project("cli/tests/oracles/without_frame_pointers.c"))
        .status();
    assert!(built.expect("cc").success());
    let traced = Trace::new(["--freq", "4000"], node.command([&script])).run();
    traced.lost_nothing();
    let recording = recording(&traced);
    let frames = |stack: Option<StackId>| -> Vec<&Frame> {
        let frames = stack.into_iter().flat_map(|at| recording.frames_of(at));
        frames
            .skip_while(|frame| frame.kind == FrameKind::Kernel)
            .collect()
    };
    let names = |frames: &[&Frame]| -> Vec<String> {
        let name = |frame: &&Frame| function(&recording, frame);
        frames.iter().map(name).collect()
    };
    let spins = recording.crossings.iter().filter(|crossing| {
        let caller = frames(crossing.stack).into_iter().next();
        caller.is_some_and(|caller| function(&recording, caller).starts_with("ways"))
    });
    let spins: Vec<&Crossing> = spins.filter(|c| c.kind == CrossingKind::Slow).collect();
    assert_eq!(spins.len(), 6);
    for (way, spin) in spins.iter().enumerate() {
        let end = spin.start.0 + spin.duration.expect("it ends").0;
        let is_inside = |at: u64| spin.start.0 <= at && at <= end;
        let callers = frames(spin.stack);
        assert_eq!(names(&callers)[0], format!("ways{way}"));
        let (mut all, mut direct) = (0, 0);
        for sample in &recording.samples {
            let frames = frames(sample.stack);
            if !is_inside(sample.at.0) || names(&frames).first().is_none_or(|f| f != "turning") {
                continue;
            }
            assert_eq!(frames[0].kind, FrameKind::AddOn);
            let is_known = recording.is_whole(sample.stack.expect("frames"));
            assert!(
                is_known && frames.ends_with(&callers),
                "{way}: {:?}",
                names(&frames)
            );
            all += 1;
            direct += usize::from(frames.len() == callers.len() + 1);
        }
        println!("node {}, {way}: {direct} of {all}", node.version);
        assert!(all >= 20, "{way}: only {all} samples");
        // Before and after the loop the register holds node's frame still: then node's functions are known, too.
        assert!(direct * 100 >= all * 95, "{way}: {direct} of {all}");
        // Its getter is called twice (and once JavaScript for `process` itself). Between the call and JavaScript are the add-on's functions
        // and those of node and V8 that call it: none that the first getter's functions have left.
        let calls = recording.crossings.iter();
        let calls = calls.filter(|c| c.kind == CrossingKind::ToJs && is_inside(c.start.0));
        let mut of_getters = 0;
        for call in calls {
            let frames = frames(call.stack);
            assert!(frames.ends_with(&callers), "{way}: {:?}", names(&frames));
            let inner = &frames[..frames.len() - callers.len()];
            let is_getter =
                |frame: &&Frame| function(&recording, frame) == "napi_get_named_property";
            let getter = inner.iter().position(is_getter).expect("the call");
            of_getters += usize::from(!names(inner).iter().any(|f| f == "deeper"));
            for frame in &inner[getter + 1..] {
                let name = function(&recording, frame);
                let calls_it = name.is_empty() || name.contains("Call");
                assert!(
                    frame.kind == FrameKind::AddOn || calls_it,
                    "{way}: {name} of {:?}",
                    names(inner)
                );
            }
        }
        assert_eq!(of_getters, 2, "{way}");
    }
    // What the event loop calls lies in no call from JavaScript.
    let end = spins
        .iter()
        .map(|c| c.start.0 + c.duration.map_or(0, |d| d.0));
    let end = end.max().expect("six");
    let samples = recording.samples.iter().map(|s| (s.at.0, s.stack));
    let calls = recording.crossings.iter();
    let calls = calls.filter(|c| c.kind == CrossingKind::ToJs);
    let (mut in_loop, mut getters) = (0, 0);
    for (at, stack) in samples.chain(calls.map(|c| (c.start.0, c.stack))) {
        let frames = frames(stack);
        let names = names(&frames);
        let is_turning = names.first().is_some_and(|f| f == "turning");
        let getter = names.iter().position(|f| f == "napi_get_named_property");
        if at <= end || !is_turning && getter.is_none() {
            continue;
        }
        in_loop += usize::from(is_turning);
        getters += usize::from(getter.is_some());
        let outside = &frames[getter.map_or(0, |getter| getter + 1)..];
        let is_left = |frame: &&Frame| {
            let in_v8 = function(&recording, frame).starts_with("v8::");
            frame.kind == FrameKind::JavaScript || is_turning && in_v8
        };
        assert!(!outside.iter().any(is_left), "{names:?}");
    }
    assert!(in_loop >= 20 && getters >= 2, "{in_loop}, {getters}");
}

/// Uses the CPU for some second, nearly all of it for garbage collections. Many of them begin in a script that was never seen before, whose name
/// has just been made of several, and copy two megabytes of text before they come to the place in the script that holds it.
const COLLECTED: &str = r"
const vm = require('vm');
const buffer = Buffer.alloc(100_000, 'x');
let n = 0;
function deep(levels) {
  const text = buffer.latin1Slice(0, buffer.length - levels);
  const found = levels ? deep(levels - 1) : run();
  return found + text.length;
}
function run() {
  const filename = ['/a/folder/of/scripts/number'].join() + ++n + '.js';
  filename.lastIndexOf('/'); // flattens it
  const source = `(function met_${n}() {
    let garbage;
    for (let i = 0; i < 10; i++) garbage = new Array(12_000);
    return garbage;
  })`;
  const met = vm.runInThisContext(source, { filename });
  let garbage;
  for (let i = n % 10; i >= 0; i--) garbage = new Array(12_000);
  return met().length + garbage.length;
}
const until = process.cpuUsage().user + 1_000_000;
while (process.cpuUsage().user < until) deep(20);
";

fn what_samples_in_a_collection_meet_has_its_name(node: &Node) {
    let folder = folder();
    let script = write(folder.path(), "collected.js", COLLECTED);
    let program = node.command(["--max-semi-space-size=4", &script]);
    let traced = Trace::new(["--freq", "10000"], program).run();
    traced.succeeded();
    traced.lost_nothing_but(&["waits"]);
    let recording = recording(&traced);
    let pid = recording.processes[0].pid;
    let (mut met, mut collecting, mut called) = (0, 0, 0);
    for sample in recording.samples.iter().filter(|s| s.thread.0 == pid) {
        let Some(stack) = sample.stack else { continue };
        let frames: Vec<(&Frame, String)> = recording
            .frames_of(stack)
            .map(|frame| (frame, function(&recording, frame)))
            .collect();
        if frames
            .iter()
            .any(|(_, name)| name.contains("PerformGarbageCollection"))
        {
            collecting += 1;
            called += u32::from(frames.iter().any(|(_, name)| name == "deep"));
        }
        for (frame, name) in &frames {
            if let Some(number) = name.strip_prefix("met_") {
                met += 1;
                let file = frame.file.map(|file| recording.name(file));
                let expected = format!("/a/folder/of/scripts/number{number}.js");
                assert_eq!(
                    file,
                    Some(expected.as_bytes()),
                    "the script of {name} has another name"
                );
            }
        }
    }
    println!(
        "node {}: {met} samples in the scripts, {collecting} in collections, {called} of these called by the program",
        node.version
    );
    assert!(met > 100 && collecting > 500, "{met} {collecting}");
    // Some begin before the program does.
    let share = 100.0 * f64::from(called) / f64::from(collecting);
    assert!(
        share > 99.0,
        "{share:.1}% of them are called by the program"
    );
}

const COLLECTOR: &str = "(garbage collector)";
const OTHER: &str = "(program)";

/// Own times by function's name, in percent of all.
type Shares = BTreeMap<String, f64>;

fn shares(times: impl IntoIterator<Item = (String, f64)>) -> Shares {
    let mut shares = Shares::new();
    for (name, time) in times {
        *shares.entry(name).or_default() += time;
    }
    let all: f64 = shares.values().sum();
    shares.values_mut().for_each(|time| *time *= 100.0 / all);
    shares
}

/// By line, from 1: what the arrow function there does for `timed`, which is nothing but to call one other.
fn arrows(script: &str) -> BTreeMap<u64, String> {
    let script = fs::read_to_string(script).expect("the program");
    let lines = (1..).zip(script.lines());
    let arrows = lines.filter_map(|(line, text)| {
        let (name, _) = text
            .trim()
            .strip_prefix("timed('")?
            .split_once("', () =>")?;
        Some((line, name.to_owned()))
    });
    arrows.collect()
}

/// What `node --cpu-prof` wrote. A regular expression's own time is its caller's; an arrow function's is that of what it calls, for
/// of code that V8 inlined there its profiler tells some as the arrow function's, up to 16 often.
fn of_the_profiler(profile: &Value, arrows: &BTreeMap<u64, String>) -> Shares {
    let nodes = list(&profile["nodes"]);
    let id = |value: &Value| value.as_u64().expect("an id");
    let by_id: BTreeMap<u64, &Value> = nodes.iter().map(|node| (id(&node["id"]), node)).collect();
    let mut caller = BTreeMap::new();
    for node in nodes {
        for child in node["children"].as_array().into_iter().flatten() {
            caller.insert(id(child), id(&node["id"]));
        }
    }
    let name = |mut node: u64| loop {
        let called = &by_id[&node]["callFrame"];
        let name = called["functionName"].as_str().expect("a name");
        if name.starts_with("RegExp:") {
            node = caller[&node];
            continue;
        }
        let arrow = called["lineNumber"].as_u64().map(|line| line + 1);
        let arrow = arrow.and_then(|line| arrows.get(&line));
        break match (name, arrow) {
            ("", Some(calls)) => calls.clone(),
            _ => name.to_owned(),
        };
    };
    // A sample's time is that until the next.
    let times = list(&profile["timeDeltas"]).iter().skip(1);
    let times = times.map(|time| time.as_f64().expect("a time"));
    let samples = list(&profile["samples"])
        .iter()
        .map(|sample| name(id(sample)));
    shares(samples.zip(times).filter(|(name, _)| name != "(idle)"))
}

/// The functions of a sample that are JavaScript, the innermost first, and whether it fell into the collector. `None` if it
/// fell into nodeprof's own programs: that is not the program's time.
fn functions(
    recording: &Recording,
    sample: &Sample,
    arrows: &BTreeMap<u64, String>,
) -> Option<(Vec<String>, bool)> {
    let frames: Vec<&Frame> = recording.frames_of(sample.stack?).collect();
    let name = |frame: &Frame| {
        let name = function(recording, frame);
        let line = frame.function_line.map(u64::from);
        match line.and_then(|line| arrows.get(&line)) {
            Some(calls) if name.is_empty() => calls.clone(),
            _ => name,
        }
    };
    let names = |kind: fn(&FrameKind) -> bool| -> Vec<String> {
        let frames = frames.iter().filter(|frame| kind(&frame.kind));
        frames.map(|frame| name(frame)).collect()
    };
    let machine = names(|kind| *kind != FrameKind::JavaScript);
    let own = machine.iter().any(|name| name.ends_with("(nodeprof)"));
    let collects = machine.iter().any(|name| name.contains("CollectGarbage"));
    (!own).then(|| (names(|kind| *kind == FrameKind::JavaScript), collects))
}

/// By samples: own times (the innermost JavaScript function), and times with all that was called.
fn of_the_samples(recording: &Recording, arrows: &BTreeMap<u64, String>) -> (Shares, Shares) {
    let pid = recording.processes[0].pid;
    let samples = recording
        .samples
        .iter()
        .filter(|sample| sample.thread.0 == pid);
    let (mut own, mut whole) = (Vec::new(), Vec::new());
    for sample in samples {
        let weight = sample.weight.0 as f64;
        let Some((functions, collects)) = functions(recording, sample, arrows) else {
            continue;
        };
        // Each of them is called by an arrow function that this one calls.
        let timed = functions.iter().position(|name| name == "timed");
        if let Some(called) = timed.and_then(|at| functions.get(at.checked_sub(1)?)) {
            whole.push((called.clone(), weight));
        }
        let innermost = match functions.into_iter().next() {
            _ if collects => COLLECTOR.to_owned(),
            Some(innermost) => innermost,
            None => OTHER.to_owned(),
        };
        own.push((innermost, weight));
    }
    (shares(own), shares(whole))
}

/// The function for which two lists of shares are furthest apart.
fn furthest(found: &Shares, told: &Shares) -> (f64, String) {
    let apart = told.iter().map(|(name, told)| {
        let found = found.get(name).copied().unwrap_or_default();
        let text = format!("{name} has {found:.2}% of the samples, told {told:.2}%");
        ((found - told).abs(), text)
    });
    let furthest = apart.max_by(|a, b| a.0.total_cmp(&b.0));
    furthest.expect("functions")
}

fn times_of_functions_are_those_of_the_cpu_profiler_and_of_their_own_clock(node: &Node) {
    let script = project("examples/busy/main.js");
    let arrows = arrows(&script);
    assert_eq!(arrows.len(), 11, "{arrows:?}");
    let mut untrue = String::new();
    // All look at the same run, but not at the same moments; V8's profiler goes by the clock on the wall, so it takes some runs where
    // other programs want the CPU, too.
    for _ in 0..5 {
        let folder = folder();
        let profiles = folder.path().to_str().expect("UTF-8");
        let profiled = ["--cpu-prof", "--cpu-prof-dir", profiles, &script];
        let traced = trace(&[], node.command(profiled));
        let clock: BTreeMap<String, f64> =
            serde_json::from_str(&traced.stdout()).expect("the program's own times");
        let clock = shares(clock);
        let file = fs::read_dir(folder.path()).expect("a folder").next();
        let file = file.expect("a profile").expect("a file").path();
        let profile = fs::read_to_string(file).expect("a profile");
        let told = of_the_profiler(&serde_json::from_str(&profile).expect("JSON"), &arrows);
        let (own, whole) = of_the_samples(&recording(&traced), &arrows);

        let (by_clock, clock_text) = furthest(&whole, &clock);
        let mut first: Vec<(String, f64)> = told.into_iter().collect();
        first.retain(|(name, _)| name != COLLECTOR && name != OTHER);
        first.sort_by(|a, b| b.1.total_cmp(&a.1));
        first.truncate(20);
        let (by_profiler, profiler_text) = furthest(&own, &first.into_iter().collect());
        let text = format!("by its own clock {clock_text}; by V8's profiler {profiler_text}");
        println!("node {}: furthest apart: {text}", node.version);
        if by_clock <= 3.0 && by_profiler <= 3.0 {
            return;
        }
        untrue = text;
    }
    panic!("{untrue}");
}
