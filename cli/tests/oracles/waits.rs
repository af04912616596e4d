//! Times off the CPU, against programs that wait for a known time and reason.

use nodeprof_profile::{
    Profile, Recording,
    modules::Bucket,
    recording::{Wait, WaitReason},
};

use crate::support::{
    Node, Trace, Traced, copy_program, folder, has_tool, number, on_each_node, trace, write,
};

on_each_node!(undisturbed:
    a_timer_is_waited_for_idly,
    a_pipe_is_waited_for_as_a_file,
    another_thread_is_waited_for_as_a_lock,
    a_child_is_waited_for_as_one,
    threads_that_share_a_cpu_preempt_each_other,
    who_waits_for_a_cpu_does_so_in_the_function_that_ran,
    running_and_waiting_make_up_the_life_of_a_thread,
    of_many_short_waits_those_beyond_the_limit_are_counted,
);

fn recording(traced: &Traced) -> Recording {
    Recording::load(&traced.recording).expect("a recording")
}

/// Waits of the main thread.
fn of_main(recording: &Recording) -> Vec<&Wait> {
    let pid = recording.processes[0].pid;
    let main = |w: &&Wait| w.process.0 == 0 && w.thread.0 == pid;
    recording.waits.iter().filter(main).collect()
}

fn ms(of: u64) -> f64 {
    of as f64 / 1e6
}

/// The longest wait of this reason in the main thread must last as long as the script makes it, less what passes before it
/// begins to wait, and what it then waits for the CPU.
fn longest_wait(
    node: &Node,
    script: &str,
    reason: WaitReason,
    expected_ms: f64,
) -> (Recording, Wait) {
    let folder = folder();
    let script = write(folder.path(), "wait.js", script);
    let traced = trace(&[], node.command([&script]));
    let recording = recording(&traced);
    let waits = of_main(&recording);
    let longest = waits
        .iter()
        .filter(|w| w.reason == reason)
        .max_by_key(|w| w.duration);
    let longest = **longest.unwrap_or_else(|| panic!("no wait of this reason: {waits:#?}"));
    let lasted = ms(longest.duration.0 - longest.runnable.0);
    assert!(
        lasted > expected_ms * 0.8 && lasted < expected_ms + 10.0,
        "{lasted:.1} ms, expected {expected_ms} ms: {longest:?}"
    );
    (recording, longest)
}

fn a_timer_is_waited_for_idly(node: &Node) {
    let script = "setTimeout(() => {}, 200);";
    let (recording, wait) = longest_wait(node, script, WaitReason::Idle, 200.0);
    // And it is the event loop that waits, whatever of its stack is known.
    let profile = Profile::from_recording(&recording);
    let spent = |wanted: Bucket| {
        let outside = profile.runs[0].outside.iter();
        let of_it = outside.filter(|o| o.bucket == wanted);
        ms(of_it.map(|o| o.time_ns).sum())
    };
    let (idle, unknown) = (spent(Bucket::EventLoop), spent(Bucket::NoStack));
    assert!(idle > 160.0 && unknown < 20.0, "{idle} ms, {unknown} ms");
    let epoll = [232, 281, 441]; // epoll_wait, epoll_pwait, epoll_pwait2
    assert!(wait.syscall.is_some_and(|s| epoll.contains(&s)));
}

fn a_pipe_is_waited_for_as_a_file(node: &Node) {
    let script = "
const { spawn, execFileSync } = require('child_process');
const fs = require('fs');
const fifo = __dirname + '/fifo';
execFileSync('mkfifo', [fifo]);
// Open for both ends, so that the open does not wait and the read does.
const both = fs.openSync(fifo, 'r+');
spawn('sh', ['-c', 'echo ready > ' + fifo + '; sleep 0.25; echo x > ' + fifo]);
const read = (n) => fs.readSync(both, Buffer.alloc(n), 0, n, null);
read(6);
read(2);
";
    let (recording, wait) = longest_wait(node, script, WaitReason::File, 250.0);
    assert_eq!(wait.syscall, Some(0), "read");
    let frames = recording.frames_of(wait.stack.expect("a stack"));
    let files: Vec<_> = frames
        .filter_map(|f| f.file)
        .map(|n| String::from_utf8_lossy(recording.name(n)).into_owned())
        .collect();
    assert!(files.iter().any(|n| n.ends_with("/wait.js")), "{files:?}");
}

fn another_thread_is_waited_for_as_a_lock(node: &Node) {
    let script = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);";
    longest_wait(node, script, WaitReason::Lock, 200.0);
}

fn a_child_is_waited_for_as_one(node: &Node) {
    let script = "require('child_process').spawnSync('sleep', ['0.25']);";
    longest_wait(node, script, WaitReason::Child, 250.0);
}

fn threads_that_share_a_cpu_preempt_each_other(node: &Node) {
    if !has_tool("taskset") {
        return;
    }
    let folder = folder();
    let script = write(
        folder.path(),
        "compete.js",
        "
const { Worker, isMainThread } = require('worker_threads');
if (isMainThread) require('child_process').execFileSync('taskset', ['-a', '-p', '-c', '0', process.pid]);
const cell = new Int32Array(isMainThread ? new SharedArrayBuffer(4) : require('worker_threads').workerData);
const busy = (ms) => {
  const end = Date.now() + ms;
  while (Date.now() < end);
};
if (isMainThread) {
  new Worker(__filename, { workerData: cell.buffer });
  Atomics.wait(cell, 0, 0);
  busy(400);
} else {
  Atomics.store(cell, 0, 1);
  Atomics.notify(cell, 0);
  busy(400);
}
",
    );
    let traced = trace(&[], node.command([&script]));
    let recording = recording(&traced);
    // While both are busy on one CPU one of them waits for it.
    let preempted: u64 = recording
        .waits
        .iter()
        .filter(|w| w.reason == WaitReason::Preempted)
        .map(|w| {
            assert_eq!(w.runnable, w.duration);
            w.duration.0
        })
        .sum();
    assert!(ms(preempted) > 300.0, "{:.1} ms", ms(preempted));
}

/// Modules have been loaded, and calls that are seen at their entry only have returned, before a function runs that calls nothing.
fn who_waits_for_a_cpu_does_so_in_the_function_that_ran(node: &Node) {
    if !has_tool("taskset") {
        return;
    }
    let folder = folder();
    write(
        folder.path(),
        "over.js",
        "require('fs').statSync('/'); process.hrtime();",
    );
    let script = write(
        folder.path(),
        "spins.js",
        "
require('child_process').execFileSync('taskset', ['-a', '-p', '-c', '0', process.pid]);
const { Worker } = require('worker_threads');
const cell = new Int32Array(new SharedArrayBuffer(4));
const rival = `
const { workerData } = require('worker_threads');
Atomics.store(workerData, 0, 1);
Atomics.notify(workerData, 0);
while (Atomics.load(workerData, 0) === 1);
`;
new Worker(rival, { eval: true, workerData: cell });
Atomics.wait(cell, 0, 0);
require('./over.js');
function spin() {
  let x = 0;
  for (let i = 0; i < 3e8; i++) x = (x + i) | 0;
  return x;
}
spin();
Atomics.store(cell, 0, 2);
",
    );
    let traced = trace(&[], node.command([&script]));
    let recording = recording(&traced);
    let waits: Vec<(bool, u64)> = of_main(&recording)
        .into_iter()
        .filter(|wait| wait.reason == WaitReason::Preempted && wait.syscall.is_none())
        .map(|wait| {
            let mut frames = wait.stack.into_iter().flat_map(|s| recording.frames_of(s));
            let spins = frames.any(|frame| recording.name(frame.function) == b"spin");
            (spins, wait.duration.0)
        })
        .collect();
    let spins = |(spins, _): &(bool, u64)| *spins;
    let (Some(first), Some(last)) = (waits.iter().position(spins), waits.iter().rposition(spins))
    else {
        panic!("none of {} waits is in it", waits.len());
    };
    // From the first to the last of them nothing else runs.
    let meanwhile = &waits[first..=last];
    let all: u64 = meanwhile.iter().map(|(_, time)| time).sum();
    let inside = meanwhile.iter().filter(|wait| spins(wait));
    let inside: u64 = inside.map(|(_, time)| time).sum();
    let shown = format!(
        "{all} ns, {inside} in it; {} waits, {first} before",
        waits.len()
    );
    assert!(ms(inside) > 50.0 && inside > all - all / 20, "{shown}");
}

fn running_and_waiting_make_up_the_life_of_a_thread(node: &Node) {
    let folder = folder();
    let script = write(
        folder.path(),
        "mixed.js",
        "
const fs = require('fs');
const busy = (ms) => { const end = Date.now() + ms; while (Date.now() < end); };
const cell = new Int32Array(new SharedArrayBuffer(4));
for (let i = 0; i < 10; i++) {
  busy(20);
  Atomics.wait(cell, 0, 0, 10);
  fs.readFileSync(process.execPath).length;
}
setTimeout(() => busy(30), 50);
",
    );
    let traced = trace(&["--freq", "4000"], node.command([&script]));
    let recording = recording(&traced);
    let main = &recording.processes[0];
    let begin = main.execs[0].at.0;
    let life = main.exited.expect("it has ended").0 - begin;
    let waited: u64 = of_main(&recording).iter().map(|w| w.duration.0).sum();
    let ran: u64 = recording
        .samples
        .iter()
        .filter(|s| s.thread.0 == main.pid)
        .map(|s| s.weight.0)
        .sum();
    let sum = ms(waited + ran);
    assert!(
        (sum - ms(life)).abs() < 0.03 * ms(life) + 5.0,
        "waited {:.1} ms, ran {:.1} ms, lived {:.1} ms",
        ms(waited),
        ms(ran),
        ms(life)
    );
}

#[test]
#[ignore = "needs root"]
fn a_page_that_must_be_read_from_the_disk_is_told() {
    let Some(node) = Node::find("24.21.0") else {
        return;
    };
    if !has_tool("dd") {
        return;
    }
    let folder = folder();
    let copy = folder.path().join("node");
    copy_program(&node.path, &copy);
    let of = format!("of={}", copy.display());
    let evicted = std::process::Command::new("dd")
        .args([
            "if=/dev/null",
            &of,
            "oflag=nocache",
            "conv=notrunc,fdatasync",
            "count=0",
            "status=none",
        ])
        .status();
    assert!(evicted.expect("dd").success());
    let traced = trace(&[], [copy.to_str().expect("UTF-8"), "-e", "0"]);
    let recording = recording(&traced);
    let faults: Vec<&Wait> = recording
        .waits
        .iter()
        .filter(|w| w.reason == WaitReason::PageFault)
        .collect();
    if on_memory(folder.path()) {
        println!("skipped: temporary files are kept in memory here");
        return;
    }
    assert!(!faults.is_empty());
    assert!(faults.iter().all(|w| w.syscall.is_none()));
}

/// Two threads hand a token to and fro until the main one has waited so often: how often one comes too late to wait depends on the processors.
const HANDS_OVER: &str = "const { Worker, isMainThread, workerData } = require('worker_threads');\n\
     const times = Number(process.argv[2]);\n\
     const cell = isMainThread ? new Int32Array(new SharedArrayBuffer(8)) : workerData;\n\
     if (isMainThread) new Worker(__filename, { workerData: cell });\n\
     const mine = isMainThread ? 0 : 1;\n\
     for (let waits = 0, last = false; !last; ) {\n\
       while (Atomics.load(cell, 0) !== mine) if (Atomics.wait(cell, 0, 1 - mine) === 'ok') waits++;\n\
       if (isMainThread && waits >= times) Atomics.store(cell, 1, 1);\n\
       last = Atomics.load(cell, 1) === 1;\n\
       Atomics.store(cell, 0, 1 - mine);\n\
       Atomics.notify(cell, 0);\n\
     }";

fn of_many_short_waits_those_beyond_the_limit_are_counted(node: &Node) {
    let folder = folder();
    let script = write(folder.path(), "hands-over.js", HANDS_OVER);
    // As many as a start comes to where its threads want one lock; twice as many where they come too early.
    let traced = trace(&[], node.command([&script, "3500"]));
    let few = of_main(&recording(&traced)).len();
    assert!(few > 2_500, "{few} waits");

    let traced = Trace::new::<&str, _>([], node.command([&script, "40000"])).run();
    traced.succeeded();
    traced.lost_nothing_but(&["waits"]);
    let lost = number(&traced.run["losses"]["waits"]);
    let recording = recording(&traced);
    let main = of_main(&recording);
    let short = main.iter().filter(|w| w.duration.0 < 1_000_000).count() as u64;
    // `WAITS_AT_ONCE` of waits.bpf.h, and 2,000 for each second that has begun since.
    let seconds = number(&traced.run["time"]["wall_ns"]) / 1_000_000_000 + 1;
    let most = 10_000 + 2_000 * seconds;
    let total = main.len() as u64;
    assert!(total >= 10_000, "{total} waits");
    assert!(short <= most, "{short} short waits, {most} at most");
    let all = recording.waits.len() as u64 + lost;
    assert!(all > 60_000, "{all} waits, {lost} of them left out");
}

/// Whether a folder is on a file system that has no disk.
fn on_memory(folder: &std::path::Path) -> bool {
    let output = std::process::Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(folder)
        .output()
        .expect("stat");
    let kind = String::from_utf8_lossy(&output.stdout).into_owned();
    ["tmpfs", "ramfs", "overlayfs"].contains(&kind.trim())
}
