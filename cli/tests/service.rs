//! `nodeprofd`: every start of node on this host, from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that fails says where"
)]

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "not every test file uses all of it"
)]
mod support;

#[path = "support/copies.rs"]
mod copies;

#[path = "support/file_system.rs"]
mod file_system;

#[allow(dead_code, reason = "not every test file uses all of it")]
#[path = "support/service.rs"]
mod own_service;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use copies::{COPIES_TWICE, assert_shared_again};
use file_system::FileSystem;
use nodeprof_profile::{Profile, Recording, recording::CrossingKind, store::database::Database};
use nodeprofd::control::{Client, Find};
use own_service::Service;
use support::{
    EXECUTES_FROM_A_THREAD, NODEPROF, Node, copy_program, folder, has_tool, plain, project,
    undisturbed, write,
};

const VERSIONS: [&str; 8] = [
    "16.20.0", "18.20.8", "20.0.0", "20.20.2", "21.1.0", "22.23.3", "24.21.0", "26.10.0",
];

/// Calls to C++ by what a trace in count mode calls them.
fn calls(recording: &Recording) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for sum in recording
        .crossing_sums
        .iter()
        .filter(|s| s.kind != CrossingKind::ToJs)
    {
        let callback = &recording.callbacks[sum.callback.0 as usize];
        let name = format!("{}.{} {:?}", callback.binding, callback.function, sum.kind);
        *calls.entry(name).or_default() += sum.calls;
    }
    calls
}

/// For a failure: how a process came to its end.
fn recording_end(recording: &Recording) -> String {
    format!("{:?}, {:?}", recording.processes[0], recording.milestones)
}

fn version(recording: &Recording) -> String {
    let version = recording.binaries[0].node_version.clone().unwrap();
    version.trim_start_matches('v').to_owned()
}

/// Counts breakpoints in its own code when asked: once at its start, once a second after.
const COUNT_TWICE: &str = r#"
const fs = require('fs');
function breakpoints() {
  const memory = fs.openSync('/proc/self/mem'), file = fs.openSync(process.execPath);
  let different = 0;
  for (const line of fs.readFileSync('/proc/self/maps', 'utf8').split('\n')) {
    const found = /^([0-9a-f]+)-([0-9a-f]+) r-xp ([0-9a-f]+) /.exec(line);
    if (!found || !line.endsWith(process.execPath)) continue;
    const [begin, end, offset] = found.slice(1).map((digits) => parseInt(digits, 16));
    const mapped = Buffer.alloc(end - begin), stored = Buffer.alloc(end - begin);
    fs.readSync(memory, mapped, 0, mapped.length, begin);
    fs.readSync(file, stored, 0, stored.length, offset);
    for (let i = 0; i < mapped.length; i++) if (mapped[i] !== stored[i]) different++;
  }
  return different;
}
console.log(breakpoints());
if (process.argv[2] === 'later') setTimeout(() => console.log(breakpoints()), 1500);
"#;

/// A copy of a build that the service has not met.
fn unknown(service: &Service, node: &Node) -> Node {
    let path = service.folder.path().join("javascript");
    copy_program(&node.path, &path);
    Node {
        version: node.version,
        path,
    }
}

#[test]
#[ignore = "needs root"]
fn starts_of_all_versions_are_recorded_whole_and_counted_as_a_trace_counts_them() {
    undisturbed(|| {
        const STARTS: usize = 25;
        let nodes: Vec<Node> = VERSIONS.into_iter().filter_map(Node::find).collect();
        if nodes.is_empty() {
            return;
        }
        let paths: Vec<_> = nodes.iter().map(|node| &node.path).collect();
        let mut service = Service::start(&format!("nodes = {paths:?}\nsettle = '20s'"));
        let script = write(
            service.folder.path(),
            "work/start.js",
            "require('zlib'); require('./package-a'); console.log(300)",
        );
        write(
            service.folder.path(),
            "work/package-a/package.json",
            "{\"main\":\"b.js\"}",
        );
        write(
            service.folder.path(),
            "work/package-a/b.js",
            "module.exports = 1",
        );
        let starts: Vec<&Node> = (0..STARTS).flat_map(|_| &nodes).collect();
        for crowd in starts.chunks(20) {
            let children: Vec<Child> = crowd
                .iter()
                .map(|node| service.node(node, &[&script]).spawn().unwrap())
                .collect();
            for child in children {
                let output = child.wait_with_output().unwrap();
                assert!(output.status.success());
                assert_eq!(output.stdout, b"300\n");
            }
        }
        // So late that it had ended: said, and counted.
        let told: Vec<String> = starts
            .iter()
            .map(|_| service.says("recorded pid="))
            .collect();
        let missed = told
            .iter()
            .filter(|line| line.contains("not recorded"))
            .count();
        service.end();
        let recordings = service.recordings();
        assert_eq!(recordings.len() + missed, starts.len());
        let mut late = missed;
        for node in &nodes {
            let expected = service.traced(node, &script);
            let of_version = recordings.iter().filter(|r| version(r) == node.version);
            let found = of_version.clone().count();
            assert!(
                (STARTS - missed..=STARTS).contains(&found),
                "{} of {}",
                found,
                node.version
            );
            for recording in of_version {
                // No exec waits longer than 40 ms, whatever else the machine does: then the recording says what it lacks.
                if recording.processes[0].incomplete.is_some() {
                    late += 1;
                    continue;
                }
                assert_eq!(calls(recording), calls(&expected), "{}", node.version);
                assert_eq!(recording.lookups.len(), expected.lookups.len());
                assert_eq!(recording.compilations.len(), expected.compilations.len());
                assert_eq!(recording.runs[0].ended_by, "exit");
                let run = &recording.runs[0];
                assert_eq!(
                    run.exit_status,
                    Some(0),
                    "{}: {run:?}",
                    recording_end(recording)
                );
                let lost: u64 = recording.losses.iter().map(|loss| loss.count).sum();
                assert_eq!(lost, 0, "{:?}", recording.losses);
                let milestones: Vec<&str> = recording
                    .milestones
                    .iter()
                    .map(|m| m.name.as_str())
                    .collect();
                assert!(milestones.contains(&"loop_start"), "{milestones:?}");
            }
        }
        assert!(
            late * 100 <= starts.len(),
            "{late} of {} were late",
            starts.len()
        );
    });
}

#[test]
#[ignore = "needs root"]
fn a_server_has_its_probes_until_its_loop_has_started_and_no_longer() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let service = Service::knowing(&node, "settle = '100ms'");
        let script = write(service.folder.path(), "work/count.js", COUNT_TWICE);
        let output = service.node(&node, &[&script, "later"]).output().unwrap();
        let counts = String::from_utf8(output.stdout).unwrap();
        let counts: Vec<u64> = counts.lines().map(|line| line.parse().unwrap()).collect();
        assert!(counts[0] > 50, "it was not probed at its start: {counts:?}");
        assert_eq!(counts[1], 0, "breakpoints are left");
        let recordings = service.recordings();
        let run = &recordings.last().unwrap().runs[0];
        assert_eq!(run.ended_by, "loop-start");
        assert_eq!(run.exit_status, None);
    });
}

/// The kernel copies each page of code that it writes a breakpoint into, and left half of the copies behind.
#[test]
#[ignore = "needs root"]
fn a_server_shares_its_code_with_others_again_when_its_probes_are_gone() {
    undisturbed(|| {
        for version in ["20.20.2", "24.21.0"] {
            let Some(node) = Node::find(version) else {
                continue;
            };
            let service = Service::knowing(&node, "settle = '100ms'");
            let script = write(service.folder.path(), "work/copies.js", COPIES_TWICE);
            let output = service.node(&node, &[&script]).output().unwrap();
            assert_shared_again(&String::from_utf8(output.stdout).unwrap());
        }
    });
}

/// What its main thread has counted lies in the thread's own memory until then.
#[test]
#[ignore = "needs root"]
fn a_start_that_reaches_its_limit_while_it_waits_has_all_its_calls() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let service = Service::knowing(&node, "limit = '700ms'");
        let calls_of = |script: &str| -> u64 {
            service.succeeds(&node, &["-e", script]);
            service.says("recorded pid=");
            let recording = service.recordings().pop().unwrap();
            assert_eq!(recording.runs[0].ended_by, "duration");
            let calls = calls(&recording).into_iter();
            let proxies = calls.filter(|(name, _)| name.contains("IsProxy"));
            proxies.map(|(_, calls)| calls).sum()
        };
        let wait = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500)";
        let base = calls_of(wait);
        let loops = "for (let i = 0; i < 3000; i++) require('util').types.isProxy(i);";
        assert_eq!(calls_of(&format!("{loops} {wait}")), base + 3000);
    });
}

/// Who wants to know why a start does not come to its end looks at just that one.
#[test]
#[ignore = "needs root"]
fn a_start_in_full_mode_that_reaches_its_limit_tells_what_it_hangs_in() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let rule = "limit = '900ms'\n[[rule]]\nmode = 'full'\ncommand = '*hangs.mjs*'\n";
        let service = Service::knowing(&node, rule);
        service.says("starts are recorded in full mode, too");
        let script = write(
            &service.work(),
            "hangs.mjs",
            "import { execFileSync } from 'child_process'; execFileSync('sleep', ['2.5']);",
        );
        let mut program = service.node(&node, &[&script]).spawn().unwrap();
        service.says(&format!("recorded pid={} ", program.id()));
        // It is told while the program hangs.
        assert_eq!(program.try_wait().unwrap(), None);
        let recording = service.recordings().pop().unwrap();
        let run = &recording.runs[0];
        let ended = (run.mode.as_str(), run.ended_by.as_str());
        assert_eq!(ended, ("full", "duration"));
        let profile = Profile::from_recording(&recording);
        let callbacks = &profile.runs[0].crossings.callbacks;
        let of = |function: &str| {
            let found = callbacks.iter().find(|c| c.function == function);
            found.unwrap_or_else(|| panic!("no call of {function}: {callbacks:?}"))
        };
        let spawn = of("Spawn");
        assert_eq!((spawn.calls, spawn.unfinished), (1, 1));
        // The start takes some 100 ms of the limit.
        let hung = spawn.self_ns.unwrap();
        assert!((400_000_000..2_000_000_000).contains(&hung), "{hung}");
        assert_eq!(of("ModuleWrap::Evaluate").unfinished, 1);
        assert!(program.wait().unwrap().success());
    });
}

#[test]
#[ignore = "needs root"]
fn a_binary_that_nobody_knew_is_recorded_whole_from_its_second_start_on() {
    undisturbed(|| {
        let Some(node) = Node::find("22.23.3") else {
            return;
        };
        let service = Service::start("");
        let unknown = unknown(&service, &node);
        // Long enough for its plan to be made, and too late for its beginning.
        let wait = "setTimeout(() => console.log(1), 1500)";
        assert_eq!(
            service
                .node(&unknown, &["-e", wait])
                .output()
                .unwrap()
                .stdout,
            b"1\n"
        );
        service.says("recorded pid=");
        assert_eq!(
            service
                .node(&unknown, &["-p", "2"])
                .output()
                .unwrap()
                .stdout,
            b"2\n"
        );
        service.says("recorded pid=");
        let recordings = service.recordings();
        let incomplete: Vec<bool> = recordings
            .iter()
            .map(|r| r.processes[0].incomplete.is_some())
            .collect();
        assert_eq!(incomplete, [true, false]);
        assert!(calls(&recordings[1]).len() > 10);
    });
}

#[test]
#[ignore = "needs root"]
fn who_executes_a_known_binary_from_one_that_nobody_knew_is_told_to_be_incomplete() {
    undisturbed(|| {
        let Some(known) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&known, "");
        // Neither has a plan yet. The second program is over before the first one's is made, or not.
        for (version, wait) in [("24.21.0", 0), ("26.10.0", 1500)] {
            let Some(node) = Node::find(version) else {
                return;
            };
            let script = write(service.folder.path(), "work/timer.js", COUNT_TWICE);
            let unknown = unknown(&service, &node);
            let before = service.recordings().len();
            let second = format!(
                "process.argv[1] = {script:?}; require({script:?}); setTimeout(() => {{}}, {wait})"
            );
            let path = known.path.to_str().unwrap();
            let arguments = serde_json::to_string(&[path, "-e", &second]).unwrap();
            let first = format!("process.execve({path:?}, {arguments}, process.env)");
            assert!(
                service
                    .node(&unknown, &["-e", &first])
                    .status()
                    .unwrap()
                    .success()
            );
            service.says("recorded pid=");
            let recordings = service.recordings();
            assert_eq!(recordings.len(), before + 1, "one start is one run");
            let recording = recordings.last().unwrap();
            let why = recording.processes[0]
                .incomplete
                .clone()
                .unwrap_or_default();
            assert!(why.contains("another node binary"), "{wait}: {why:?}");
            let alone = service.traced(&known, &script);
            let timers = |r: &Recording| calls(r).values().sum::<u64>();
            assert!(
                timers(recording) >= timers(&alone) / 2,
                "{wait}: {:?}, alone {:?}",
                calls(recording),
                calls(&alone)
            );
            let said: Vec<String> = service.lines.try_iter().collect();
            assert!(
                !said.iter().any(|line| line.contains("not recorded")),
                "{said:#?}"
            );
        }
    });
}

/// The event loop of the first node is no end of the second one's start.
#[test]
#[ignore = "needs root"]
fn who_executes_node_again_in_the_event_loop_is_recorded_to_the_second_loop() {
    let Some(node) = Node::find("24.21.0") else {
        return;
    };
    let service = Service::knowing(&node, "");
    // Longer than the recording goes on after the first loop has started.
    let second = write(
        service.folder.path(),
        "work/second.js",
        "const fs = require('fs');
         for (const begun = Date.now(); Date.now() - begun < 400; );
         for (let i = 0; i < 300; i++) fs.statSync('/');
         setTimeout(() => {}, 2000);",
    );
    let path = node.path.to_str().unwrap();
    let first = format!(
        "setTimeout(() => process.execve({path:?}, ['node', {second:?}], process.env), 100)"
    );
    service.succeeds(&node, &["-e", &first]);
    let line = service.says("recorded pid=");
    let recording = service.recordings().pop().unwrap();
    assert_eq!(recording.processes[0].execs.len(), 2, "{line}");
    assert_eq!(recording.processes[0].incomplete, None);
    assert!(calls(&recording).values().sum::<u64>() > 300, "{line}");
    let loops = recording.milestones.iter();
    assert_eq!(loops.filter(|m| m.name == "loop_start").count(), 2);
    let run = &Profile::from_recording(&recording).runs[0];
    let phases: Vec<_> = run.phases.iter().map(|p| (&*p.name, p.crossings)).collect();
    let Some(("after_exec", crossings)) = phases.last() else {
        panic!("{phases:?}");
    };
    assert!(*crossings > 300, "{phases:?}");
}

/// The kernel ends the main thread of a process when another one executes: probes that came before would go with it.
#[test]
#[ignore = "needs root"]
fn what_another_thread_than_the_main_one_executes_is_recorded_from_then_on() {
    undisturbed(|| {
        let Some(known) = Node::find("20.20.2") else {
            return;
        };
        if !has_tool("python3") {
            return;
        }
        let service = Service::knowing(&known, "");
        service.succeeds(&known, &["-e", "0"]);
        service.says("recorded pid=");
        let wait = "setTimeout(() => console.log(1), 1000)";
        let python = Node {
            path: "python3".into(),
            version: known.version,
        };
        let path = known.path.to_str().unwrap();
        let started = service
            .node(&python, &["-c", EXECUTES_FROM_A_THREAD, path, "-e", wait])
            .output()
            .unwrap();
        assert_eq!(started.stdout, b"1\n");
        service.says("recorded pid=");
        let recording = service.recordings().pop().unwrap();
        let command = &recording.runs[0].command;
        assert!(command.contains(&wait.into()), "{command:?}");
        // Its probes come after the exec: before its main, or it is told how much is missing.
        let (late, whole) = (calls(&recording), calls(&service.recordings()[0]));
        match &recording.processes[0].incomplete {
            None => assert!(late.len() >= whole.len(), "{late:?}, {whole:?}"),
            Some(why) => assert!(why.contains("came after"), "{why}: {late:?}"),
        }
    });
}

/// The tracepoints of system calls slow all programs of the host down.
#[test]
#[ignore = "needs root"]
fn a_large_program_that_is_not_node_is_not_recorded_for_good() {
    undisturbed(|| {
        let Some(known) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&known, "");
        service.succeeds(&known, &["-e", "0"]);
        service.says("recorded pid=");
        // As large as node, and it goes on.
        let large = service.folder.path().join("large");
        copy_program(Path::new(NODEPROF), &large);
        assert!(fs::metadata(&large).unwrap().len() > 20 << 20);
        let mut command = Command::new(&large);
        plain(&mut command).args(["view", "--help"]);
        assert!(command.output().unwrap().status.success());
        let traces_syscalls = || {
            links(&service)
                .iter()
                .any(|link| link.contains("tp_name:\tsys_exit"))
        };
        let until = Instant::now() + Duration::from_secs(10);
        while traces_syscalls() {
            assert!(Instant::now() < until, "{:#?}", links(&service));
            std::thread::sleep(Duration::from_millis(50));
        }
        // They are there while node starts, so this can be seen.
        let mut sleeping = service
            .node(&known, &["-e", "setTimeout(() => {}, 1000)"])
            .spawn()
            .unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while !traces_syscalls() {
            assert!(Instant::now() < until, "{:#?}", links(&service));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(sleeping.wait().unwrap().success());
        service.says("recorded pid=");
        assert_eq!(service.recordings().len(), 2);
    });
}

/// The holder's links, as the kernel tells of them.
fn links(service: &Service) -> Vec<String> {
    let infos = fs::read_dir(format!("/proc/{}/fdinfo", service.holder())).unwrap();
    let infos = infos.filter_map(|info| fs::read_to_string(info.unwrap().path()).ok());
    infos.filter(|info| info.contains("link_type")).collect()
}

/// What root does after its program was executed by another user's, in the same process, that user must not read; here the other way round.
#[test]
#[ignore = "needs root"]
fn who_executes_node_as_another_user_begins_a_start_of_that_user() {
    const TIMES: usize = 10;
    undisturbed(|| {
        let (Some(first), Some(second)) = (Node::find("24.21.0"), Node::find("20.20.2")) else {
            return;
        };
        let service = Service::knowing(&first, "");
        open(service.folder.path());
        // Where an ordinary user may execute it; known from its first start on.
        let second = unknown(&service, &second);
        service.succeeds(&second, &["-e", "setTimeout(() => 0, 2000)"]);
        service.says("recorded pid=");
        let script = "require('fs').existsSync('/theirs-alone')";
        let words = [
            "setpriv",
            "--reuid=nobody",
            "--regid=nogroup",
            "--clear-groups",
            second.path.to_str().unwrap(),
            "-e",
            script,
        ];
        let words = serde_json::to_string(&words).unwrap();
        let execute = format!(
            "require('fs').existsSync('/ours'); process.execve('/usr/bin/setpriv', {words}, process.env)"
        );
        for _ in 0..TIMES {
            service.succeeds(&first, &["-e", &execute]);
            service.says("recorded pid=");
            service.says("recorded pid=");
        }
        let recordings = service.recordings();
        assert_eq!(recordings.len(), 1 + 2 * TIMES);
        let has_file = |recording: &Recording, path: &str| {
            let mut names = recording.names.iter();
            names.any(|name| *name == path.as_bytes())
        };
        for both in recordings[1..].chunks(2) {
            let users = both.iter().map(|r| r.runs[0].label("user"));
            assert_eq!(users.collect::<Vec<_>>(), [Some("0"), Some("65534")]);
            let files = both.iter().map(|r| has_file(r, "/theirs-alone"));
            assert_eq!(files.collect::<Vec<_>>(), [false, true]);
            let execs = both.iter().map(|r| r.processes[0].execs.len());
            assert_eq!(execs.collect::<Vec<_>>(), [1, 1]);
            assert!(calls(&both[0]).values().sum::<u64>() > 100);
            assert_eq!(both[1].runs[0].command[2], script.as_bytes());
            assert_eq!(both[1].processes[0].incomplete, None);
            assert_eq!(version(&both[0]), "24.21.0");
            assert_eq!(version(&both[1]), "20.20.2");
        }
        let alone = service.traced(&second, &write(service.folder.path(), "work/b.js", script));
        let theirs = calls(&recordings[2]).values().sum::<u64>() as f64;
        let alone = calls(&alone).values().sum::<u64>() as f64;
        assert!(
            (theirs / alone - 1.0).abs() < 0.3,
            "{theirs}, alone {alone}"
        );
    });
}

/// Of a binary that nobody knew, whose plan the service can read only by the file system of the process.
#[test]
#[ignore = "needs root"]
fn a_start_that_is_over_before_the_service_looks_is_recorded() {
    let Some(node) = Node::find("22.23.3") else {
        return;
    };
    let service = Service::start("");
    let unknown = unknown(&service, &node);
    service.signal(libc::SIGSTOP);
    // Long enough for the holder, which is not stopped, to make its plan.
    let wait = "setTimeout(() => console.log(1), 1500)";
    let output = service.node(&unknown, &["-e", wait]).output().unwrap();
    service.signal(libc::SIGCONT);
    assert_eq!(output.stdout, b"1\n");
    service.says("recorded pid=");
    let recordings = service.recordings();
    assert_eq!(recordings.len(), 1);
    let version = recordings[0].binaries[0].node_version.as_deref();
    assert!(
        version.is_some_and(|v| v.ends_with(node.version)),
        "{version:?}"
    );
}

#[test]
#[ignore = "needs root"]
fn other_starts_are_left_alone() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let service = Service::knowing(&node, "");
        let script = write(service.folder.path(), "work/count.js", COUNT_TWICE);
        let elsewhere = folder();
        for _ in 0..3 {
            let mut command = service.node(&node, &[&script]);
            let output = command.current_dir(elsewhere.path()).output().unwrap();
            assert_eq!(output.stdout, b"0\n");
        }
        assert!(service.recordings().is_empty());
    });
}

#[test]
#[ignore = "needs root"]
fn a_service_that_is_killed_leaves_no_probe_and_blocks_nobody() {
    undisturbed(|| {
        let Some(node) = Node::find("22.23.3") else {
            return;
        };
        let mut service = Service::knowing(&node, "");
        let script = write(service.folder.path(), "work/count.js", COUNT_TWICE);
        service.node(&node, &["-e", "0"]).status().unwrap();
        service.says("recorded pid=");
        for round in 0..10 {
            let crowd: Vec<Child> = (0..4)
                .map(|_| service.node(&node, &[&script]).spawn().unwrap())
                .collect();
            std::thread::sleep(Duration::from_millis(5 * round));
            service.signal(libc::SIGKILL);
            service.child.wait().unwrap();
            for child in crowd {
                let output = child.wait_with_output().unwrap();
                assert!(
                    output.status.success(),
                    "round {round}: {:?}",
                    output.status
                );
                assert!(!output.stdout.is_empty());
            }
            // The kernel takes them away within a moment.
            let until = Instant::now() + Duration::from_secs(5);
            loop {
                let output = service.node(&node, &[&script]).output().unwrap();
                if output.stdout == b"0\n" {
                    break;
                }
                assert!(Instant::now() < until, "breakpoints are left");
            }
            service.begin();
        }
        // What was kept before is whole, and more comes to it.
        service.node(&node, &["-e", "0"]).status().unwrap();
        service.says("recorded pid=");
        assert!(service.recordings().len() >= 2);
    });
}

#[test]
#[ignore = "needs root"]
fn a_holder_that_is_killed_or_stopped_is_replaced() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "");
        for signal in [libc::SIGKILL, libc::SIGSTOP] {
            let before = service.holder();
            // SAFETY: the holder of our own service.
            unsafe { libc::kill(before as i32, signal) };
            service.says("the holder process ended, and was started anew");
            assert_ne!(service.holder(), before);
            // Known from before: its first start is recorded whole.
            let output = service.node(&node, &["-p", "1"]).output().unwrap();
            assert_eq!(output.stdout, b"1\n");
            service.says("recorded pid=");
        }
        let last = service.recordings().pop().unwrap();
        assert_eq!(last.processes[0].incomplete, None);
    });
}

/// What a process has open, by where its links in /proc lead.
fn opened_by(pid: u32) -> Vec<String> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let targets = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
    targets
        .map(|to| to.to_string_lossy().into_owned())
        .collect()
}

/// The holder was forked while the database was open.
#[test]
#[ignore = "needs root"]
fn a_store_that_is_removed_while_there_is_a_holder_is_begun_anew() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "");
        let file = service.folder.path().join("starts/starts.db");
        let start = || {
            service.succeeds(&node, &["-e", "0"]);
            service.says("recorded pid=");
            service.recordings().len()
        };
        assert_eq!([start(), start()], [1, 2]);
        fs::remove_file(&file).unwrap();
        assert_eq!([start(), start()], [1, 2]);
    });
}

#[test]
#[ignore = "needs root"]
fn a_holder_has_no_files_of_the_store_nor_connections_of_clients() {
    // As many as a user may have.
    const CLIENTS: usize = 8;
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "");
        let socket = service.folder.path().join("control.sock");
        let clients = [(); CLIENTS].map(|()| UnixStream::connect(&socket).unwrap());
        let before = service.holder();
        // SAFETY: the holder of our own service.
        unsafe { libc::kill(before as i32, libc::SIGKILL) };
        service.says("the holder process ended, and was started anew");
        assert_ne!(service.holder(), before);
        let count = |opened: &[String], what: &str| {
            let found = opened.iter().filter(|to| to.starts_with(what));
            found.count()
        };
        let opened = opened_by(service.child.id());
        assert!(count(&opened, "socket:") >= CLIENTS, "{opened:?}");
        let opened = opened_by(service.holder());
        assert!(count(&opened, "socket:") < CLIENTS, "{opened:?}");
        let starts = service.folder.path().join("starts");
        let starts = starts.to_str().unwrap();
        assert_eq!(count(&opened, starts), 0, "{opened:?}");
        drop(clients);
        service.succeeds(&node, &["-e", "0"]);
        service.says("recorded pid=");
        let last = service.recordings().pop().unwrap();
        assert_eq!(last.processes[0].incomplete, None);
    });
}

#[test]
#[ignore = "needs root"]
fn a_clock_that_is_stepped_costs_no_start() {
    let library = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ]
    .map(|folder| format!("{folder}/faketime/libfaketime.so.1"))
    .into_iter()
    .find(|path| Path::new(path).exists());
    let Some(library) = library else {
        println!("skipped: no libfaketime; type: make test, or apt-get install libfaketime");
        return;
    };
    let Some(node) = Node::find("20.20.2") else {
        return;
    };
    // The service's own clock of the day is stepped, this machine's stays; what measures durations goes on.
    let settings = format!("nodes = [{:?}]", node.path);
    let service = Service::start_with(&settings, |folder| {
        fs::write(folder.join("clock"), "+0").unwrap();
        let clock = folder.join("clock").display().to_string();
        [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", &clock),
            ("FAKETIME_NO_CACHE", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec()
    });
    let steps = ["+0", "+20d", "-400d", "+0", "-1h"];
    for step in steps {
        fs::write(service.folder.path().join("clock"), step).unwrap();
        let output = service.node(&node, &["-p", "1"]).output().unwrap();
        assert_eq!(output.stdout, b"1\n", "{step}");
        service.says("recorded pid=");
    }
    let recordings = service.recordings();
    let kept: Vec<_> = (recordings.iter().map(|r| r.runs[0].started_unix_ns)).collect();
    assert_eq!(recordings.len(), steps.len(), "{kept:?}");
    for (index, recording) in recordings.iter().enumerate() {
        let (run, process) = (&recording.runs[0], &recording.processes[0]);
        assert_eq!(process.incomplete, None, "{index}");
        assert_eq!(run.exit_status, Some(0), "{index}");
        assert_eq!(calls(recording), calls(&recordings[0]), "{index}");
        let lasted = run.ended.0.saturating_sub(run.started.0);
        assert!(
            (1_000_000..60_000_000_000).contains(&lasted),
            "{index}: {lasted} ns"
        );
    }
    // By their time of the day, which is what they say.
    let at = |recording: &Recording| recording.runs[0].started_unix_ns as i64;
    let now = at(&recordings[2]);
    let days: Vec<i64> = (recordings.iter())
        .map(|recording| (at(recording) - now) / 86_000_000_000_000)
        .collect();
    assert_eq!(days, [-401, 0, 0, 0, 20]);
}

#[test]
#[ignore = "needs root"]
fn what_finds_no_room_is_counted_in_the_recording_it_is_missing_from() {
    let Some(node) = Node::find("20.20.2") else {
        return;
    };
    let service = Service::knowing(&node, "buffer-kilobytes = 64\nsettle = '20s'");
    let script = write(
        service.folder.path(),
        "work/many.js",
        "const fs = require('fs');\n\
         fs.writeSync(1, 'x');\n\
         fs.readSync(0, Buffer.alloc(1));\n\
         for (let i = 0; i < 5000; i++) fs.statSync('.');\n\
         console.log('done');\n",
    );
    let mut child = service
        .node(&node, &[&script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut byte = [0];
    stdout.read_exact(&mut byte).unwrap();
    // Nobody reads the buffer for a while that the program does not need.
    service.signal(libc::SIGSTOP);
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    let mut said = String::new();
    stdout.read_to_string(&mut said).unwrap();
    service.signal(libc::SIGCONT);
    assert_eq!(said, "done\n");
    assert!(child.wait().unwrap().success());
    service.says("recorded pid=");
    // The next one has room.
    service.succeeds(&node, &["-p", "1"]);
    service.says("recorded pid=");
    let recordings = service.recordings();
    let lost = |recording: &Recording| -> u64 {
        let of_buffer = recording
            .losses
            .iter()
            .filter(|loss| loss.kind == "records");
        of_buffer.map(|loss| loss.count).sum()
    };
    let [full, next] = &recordings[..] else {
        panic!("{} recordings", recordings.len());
    };
    assert!(lost(full) >= 4_000, "{:?}", full.losses);
    // Calls are summed where they are made: none is missing.
    let stats: u64 = (calls(full).iter())
        .filter(|(call, _)| call.contains("fs.Stat"))
        .map(|(_, calls)| calls)
        .sum();
    assert!(stats >= 5_000, "{:?}", calls(full));
    assert_eq!(lost(next), 0);
    assert_eq!(next.processes[0].incomplete, None);
}

/// Waits until it has said of so many starts that they were recorded, or that they were not; returns both.
fn said_of(service: &Service, starts: usize) -> (usize, usize) {
    let until = Instant::now() + Duration::from_secs(20);
    let (mut recorded, mut told) = (0, 0);
    while recorded + told < starts {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(line) = service.lines.recv_timeout(left) else {
            panic!("{recorded} were recorded and {told} told as lost, of {starts}");
        };
        match line.contains("not recorded") {
            true => {
                told += 1;
                println!("{line}");
            }
            false => recorded += usize::from(line.contains("recorded pid=")),
        }
    }
    (recorded, told)
}

/// Nobody reads the buffer while the service is stopped: of most starts there is room for nothing at all.
#[test]
#[ignore = "needs root"]
fn starts_of_which_nothing_found_room_are_told() {
    const STARTS: usize = 60;
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let service = Service::knowing(&node, "buffer-kilobytes = 64");
        service.succeeds(&node, &["--version"]);
        service.says("recorded pid=");
        service.signal(libc::SIGSTOP);
        for _ in 0..STARTS {
            service.succeeds(&node, &["--version"]);
        }
        service.signal(libc::SIGCONT);
        let (recorded, told) = said_of(&service, STARTS);
        assert!(recorded > 0 && told > 0, "{recorded} recorded, {told} told");
        let status = Client::new(&service.folder.path().join("control.sock")).status();
        assert_eq!(status.unwrap().lost, told as u64);
        // What has room again is whole.
        service.succeeds(&node, &["-p", "1"]);
        service.says("recorded pid=");
        let recordings = service.recordings();
        assert_eq!(recordings.last().unwrap().processes[0].incomplete, None);
    });
}

#[test]
#[ignore = "needs root"]
fn a_start_that_asks_for_files_without_end_costs_neither_the_service_nor_other_starts() {
    let Some(node) = Node::find("20.20.2") else {
        return;
    };
    let service = Service::knowing(&node, "");
    let script = "const fs = require('fs');\n\
         for (let i = 0; i < 600000; i++) fs.statSync('/missing/' + i, { throwIfNoEntry: false });\n";
    write(&service.work(), "endless.js", script);
    service.succeeds(&node, &["-e", "0"]);
    service.says("recorded pid=");
    let mut endless = service.node(&node, &["endless.js"]).spawn().unwrap();
    let mut others = 0;
    while endless.try_wait().unwrap().is_none() {
        service.succeeds(&node, &["-e", "0"]);
        others += 1;
    }
    let mut kept = 1;
    for _ in 0..others + 1 {
        let line = service.says("recorded pid=");
        // On a busy machine a start is not held for ever.
        let is_let_go = line.contains("before its probes were there");
        assert!(is_let_go || !line.contains("not recorded"), "{line}");
        kept += usize::from(!is_let_go);
    }
    assert!(others > 5 && kept > others / 2, "{kept} of {others}");
    let recordings = service.recordings();
    assert_eq!(recordings.len(), kept);
    let heavy = recordings.iter().max_by_key(|start| start.files.len());
    let heavy = heavy.unwrap();
    let lost = |kind: &str| -> u64 {
        let losses = heavy.losses.iter().filter(|loss| loss.kind == kind);
        losses.map(|loss| loss.count).sum()
    };
    let kept = heavy.files.len() as u64;
    assert!((50_000..300_000).contains(&kept), "{kept}");
    let all = kept + lost("events_beyond_limit") + lost("records");
    assert!((600_000..630_000).contains(&all), "{all}");
    let output = Command::new(NODEPROF)
        .args(["report", "--store", "--store-path"])
        .arg(service.folder.path().join("starts/starts.db"))
        .arg(heavy.runs[0].label("run").unwrap())
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        report.contains("events (file operations, lookups"),
        "{report}"
    );
    // What it took at most.
    let status = fs::read_to_string(format!("/proc/{}/status", service.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.trim().parse().ok());
    let peak: u64 = peak.unwrap();
    assert!(peak < 320 << 10, "{peak} KiB");
}

#[test]
#[ignore = "needs root"]
fn an_exec_waits_for_nobody_who_hangs() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "");
        let send = |pid: u32, signal| {
            // SAFETY: a process of our own service.
            unsafe { libc::kill(pid as i32, signal) };
        };
        let one = || service.node(&node, &["-p", "1"]).output().unwrap().stdout;
        let (holder, guard) = (service.holder(), service.process("nodeprof-guard"));
        // The guard hangs: the holder does without. It is replaced, and so is the holder, whose group was its.
        send(guard, libc::SIGSTOP);
        assert_eq!(one(), b"1\n");
        service.says("recorded pid=");
        service.says("the guard of the holder process ended, and was started anew");
        assert_ne!(service.process("nodeprof-guard"), guard);
        assert_ne!(service.holder(), holder);
        let holder = service.holder();
        assert_eq!(one(), b"1\n");
        service.says("recorded pid=");
        // All but the guard hang.
        send(holder, libc::SIGSTOP);
        send(service.child.id(), libc::SIGSTOP);
        for _ in 0..3 {
            assert_eq!(one(), b"1\n");
        }
        // The service runs again, finds its holder late, and takes another one.
        send(service.child.id(), libc::SIGCONT);
        service.says("the holder process does not answer: starts go on without waiting for it");
        service.says("the holder process ended, and was started anew");
        assert_eq!(one(), b"1\n");
        service.says("recorded pid=");
        let last = service.recordings().pop().unwrap();
        assert_eq!(last.processes[0].incomplete, None);
    });
}

#[test]
#[ignore = "needs root"]
fn the_store_leaves_the_processors_to_others_and_writes_where_there_is_none_to_spare() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "");
        let tasks = fs::read_dir(format!("/proc/{}/task", service.child.id())).unwrap();
        let mut stats = tasks.map(|task| task.unwrap().path().join("stat"));
        let is_store = |stat: &PathBuf| fs::read_to_string(stat).unwrap().contains("(store)");
        let store = stats.find(is_store).expect("a thread named store");
        let policy = || {
            let line = fs::read_to_string(&store).unwrap();
            let fields = line.rsplit(')').next().unwrap();
            let field_41 = fields.split_whitespace().nth(41 - 3).unwrap();
            field_41.parse::<i32>().unwrap()
        };
        // Only while it writes.
        let rests = || {
            (0..100).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                policy() == libc::SCHED_BATCH
            })
        };
        assert!(rests(), "{}", policy());
        let until = Instant::now() + Duration::from_secs(20);
        let mut seen = false;
        while !seen && Instant::now() < until {
            service.succeeds(&node, &["-e", "0"]);
            let soon = Instant::now() + Duration::from_millis(300);
            while !seen && Instant::now() < soon {
                seen = policy() == libc::SCHED_IDLE;
            }
            service.says("recorded pid=");
        }
        assert!(seen, "it writes as others work");
        let before = service.recordings().len();
        let over = AtomicBool::new(false);
        let threads = 4 * std::thread::available_parallelism().unwrap().get();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let recorded = catch_unwind(AssertUnwindSafe(|| {
                for _ in 0..5 {
                    service.succeeds(&node, &["-e", "0"]);
                    service.says("recorded pid=");
                }
            }));
            over.store(true, Ordering::Relaxed);
            recorded.unwrap_or_else(|panic| resume_unwind(panic));
        });
        let recordings = service.recordings();
        assert_eq!(recordings.len(), before + 5);
        assert!(
            recordings
                .iter()
                .all(|r| r.processes[0].incomplete.is_none())
        );
        assert!(rests(), "{}", policy());
    });
}

#[test]
#[ignore = "needs root"]
fn above_its_ceiling_it_records_less_and_says_so() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let ceiling = "ceiling = { cpu-percent = 0, events = 50, recovery = '1s' }";
        let service = Service::knowing(&node, ceiling);
        let until = Instant::now() + Duration::from_secs(60);
        while !service
            .lines
            .try_iter()
            .any(|line| line.contains("above the ceiling: one start in 10 is"))
        {
            service.node(&node, &["-e", "0"]).status().unwrap();
            assert!(Instant::now() < until, "it takes no step");
        }
        service.says("every start is recorded from now on");
        service.node(&node, &["-e", "0"]).status().unwrap();
        service.says("recorded pid=");
    });
}

/// Else any member of the group could have starts go unrecorded.
#[test]
#[ignore = "needs root"]
fn what_clients_ask_for_is_no_reason_to_record_less() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "ceiling = { cpu-percent = 25, events = 0 }");
        for _ in 0..10 {
            service.succeeds(&node, &["-e", "0"]);
            service.says("recorded pid=");
        }
        let cpu_time = || {
            let client = Client::new(&service.folder.path().join("control.sock"));
            Duration::from_nanos(client.status().unwrap().cpu_ns)
        };
        let (before, begun) = (cpu_time(), Instant::now());
        let asking: Vec<_> = (0..6)
            .map(|n| {
                let client = Client::new(&service.folder.path().join("control.sock"));
                std::thread::spawn(move || {
                    while begun.elapsed() < Duration::from_secs(4) {
                        let _ = match n % 3 {
                            0 => client.status().map(drop),
                            _ => client.find(Find::default()).map(drop),
                        };
                    }
                })
            })
            .collect();
        asking.into_iter().for_each(|thread| thread.join().unwrap());
        let part = (cpu_time() - before).as_secs_f64() / begun.elapsed().as_secs_f64();
        assert!(part > 0.3, "they took {part} of a core: too little to tell");
        let stepped: Vec<String> = (service.lines.try_iter())
            .filter(|line| line.contains("the ceiling"))
            .collect();
        assert!(stepped.is_empty(), "{stepped:?}");
        service.succeeds(&node, &["-e", "0"]);
        service.says("recorded pid=");
    });
}

/// Nor that the loop wakes up for it.
#[test]
#[ignore = "needs root"]
fn to_be_woken_by_clients_is_no_reason_to_record_less() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "ceiling = { cpu-percent = 3, events = 0 }");
        let begun = Instant::now();
        let asking: Vec<_> = (0..4)
            .map(|_| {
                let client = Client::new(&service.folder.path().join("control.sock"));
                std::thread::spawn(move || {
                    let mut answers = 0;
                    while begun.elapsed() < Duration::from_secs(4) {
                        answers += usize::from(client.status().is_ok());
                    }
                    answers
                })
            })
            .collect();
        let answers = asking.into_iter().map(|thread| thread.join().unwrap());
        let answers: usize = answers.sum();
        assert!(answers > 4000, "{answers}: too few to tell");
        let stepped: Vec<String> = (service.lines.try_iter())
            .filter(|line| line.contains("the ceiling"))
            .collect();
        assert!(stepped.is_empty(), "{answers} answers: {stepped:?}");
        service.succeeds(&node, &["-e", "0"]);
        service.says("recorded pid=");
    });
}

#[test]
#[ignore = "needs root"]
fn to_read_the_configuration_again_is_no_reason_to_record_less() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "ceiling = { cpu-percent = 20, events = 0 }");
        for _ in 0..4 {
            service.signal(libc::SIGHUP);
            service.says("the configuration was read again");
        }
        // Two rounds of measuring.
        std::thread::sleep(Duration::from_millis(2200));
        service.node(&node, &["-e", "0"]).status().unwrap();
        service.says("recorded pid=");
        service.configure("buffer-kilobytes = 4096");
        service.signal(libc::SIGHUP);
        let said = service.says("the configuration stays as it was");
        assert!(
            said.contains("`buffer-kilobytes` is read at the start only"),
            "{said}"
        );
    });
}

#[test]
#[ignore = "needs root"]
fn labels_come_from_the_allowed_variables_and_secrets_are_not_kept() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "labels = { team = 'TEAM' }");
        let script = write(service.folder.path(), "work/a.js", "0");
        {
            let mut command = service.node(
                &node,
                &[&script, "--token=hunter2", "https://ada:hunter2@host/"],
            );
            command
                .env("GITHUB_ACTIONS", "true")
                .env("GITHUB_SHA", "0123abcd")
                .env("GITHUB_TOKEN", "hunter2")
                .env("AWS_SECRET_ACCESS_KEY", "hunter2")
                .env("TEAM", "tools");
            assert!(command.status().unwrap().success());
            service.says("recorded pid=");
        }
        let recording = service.recordings().pop().unwrap();
        let run = &recording.runs[0];
        for (key, value) in [
            ("ci", "github"),
            ("commit", "0123abcd"),
            ("team", "tools"),
            ("user", "0"),
        ] {
            assert_eq!(run.label(key), Some(value), "{:?}", run.labels);
        }
        assert!(!String::from_utf8_lossy(&recording.to_bytes().unwrap()).contains("hunter2"));
        let command: Vec<String> = run
            .command
            .iter()
            .map(|a| String::from_utf8_lossy(a).into_owned())
            .collect();
        assert_eq!(
            command[2..],
            ["--token=[redacted]", "https://[redacted]@host/"]
        );
    });
}

/// The kernel side tells the first 2,047 bytes of a command line; what is missing is asked of the process, which may have ended by then.
#[test]
#[ignore = "needs root"]
fn a_secret_at_the_cut_of_a_long_command_line_is_not_kept() {
    const TOLD: usize = 2047;
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let service = Service::knowing(&node, "labels = { team = 'TEAM' }");
        let registry = "--registry=https://ada:hunter2-hunter2-hunter2@host/";
        for script in ["0", "setTimeout(() => 0, 300)"] {
            let script = write(service.folder.path(), "work/a.js", script);
            let before = format!("{} {script} ", node.path.display()).len();
            // The cut is in the password.
            let padding = "p".repeat(TOLD - before - 1 - registry.find("-hunter2@").unwrap());
            let mut command = service.node(&node, &[&script, &padding, registry, "last"]);
            command.env(
                "TEAM",
                format!("{}https://ada:hunter2@host/", "x ".repeat(118)),
            );
            assert!(command.status().unwrap().success());
            service.says("recorded pid=");
        }
        let recordings = service.recordings();
        for recording in &recordings {
            assert!(!String::from_utf8_lossy(&recording.to_bytes().unwrap()).contains("hunter2"));
            let told = recording.processes[0].execs[0].arguments.last().unwrap();
            assert_eq!(String::from_utf8_lossy(told), "…");
        }
        let command = recordings[1].runs[0].command.iter();
        let command: Vec<_> = command.map(|a| String::from_utf8_lossy(a)).collect();
        let kept = ["--registry=https://[redacted]@host/", "last"];
        assert_eq!(command[command.len() - 2..], kept);
    });
}

/// `node --version` takes 5 ms. A long environment is read of the process, which must run for that.
#[test]
#[ignore = "needs root"]
fn a_large_store_is_read_and_swept_where_nothing_else_may_be_written_to() {
    let Some(node) = Node::find("20.20.2") else {
        return;
    };
    let mut service = Service::knowing(&node, "");
    service.end();
    // More labels to sort, and more names that no run needs any more, than fit into the memory that SQLite has for them.
    let file = service.folder.path().join("starts/starts.db");
    let mut database = Database::open(&file).unwrap();
    let of_run = |n: usize| {
        let mut recording = Recording::synthetic(50);
        let labels = (0..200).map(|key| (format!("k{key}"), format!("{n:02000}")));
        recording.runs[0].labels = labels.collect();
        recording
    };
    let mut first = of_run(0);
    let names = (0..400_000).map(|n| format!("/unique/{n}").into_bytes());
    first.names.extend(names);
    database.keep(first, None).unwrap();
    for n in 1..30 {
        database.keep(of_run(n), None).unwrap();
    }
    // A sweep comes once in 256 runs.
    for _ in 30..600 {
        database.keep(Recording::synthetic(1), None).unwrap();
    }
    drop(database);
    service.begin_in_sandbox();
    let client = Client::new(&service.folder.path().join("control.sock"));
    assert!(client.status().unwrap().store_bytes > 32 << 20);
    let labels = client.labels().unwrap();
    assert!(labels.left_out + labels.labels.len() as u64 >= 30 * 200);
    service.end();

    service.configure(&format!("nodes = [{:?}]", node.path));
    let config = service.folder.path().join("c.toml");
    let few = fs::read_to_string(&config).unwrap();
    fs::write(&config, few.replace("[store]", "[store]\ncount = 10")).unwrap();
    service.begin_in_sandbox();
    let until = Instant::now() + Duration::from_secs(60);
    let bytes = || client.status().unwrap().store_bytes;
    while bytes() > 4 << 20 {
        let told: Vec<String> = service.lines.try_iter().collect();
        let failed = told.iter().any(|line| line.contains("old starts stay"));
        assert!(!failed && Instant::now() < until, "{told:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
#[ignore = "needs root"]
fn starts_have_their_labels_however_short_they_are_or_long_their_environment() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let service = Service::knowing(&node, "");
        let start = |commit: &str, padding: usize, arguments: &[&str]| {
            let mut command = service.node(&node, arguments);
            command
                .env("GITHUB_ACTIONS", "true")
                .env("GITHUB_SHA", commit)
                .env("PADDING", "x".repeat(padding));
            assert!(command.status().unwrap().success());
            service.says("recorded pid=");
        };
        let wait = ["-e", "setTimeout(() => 0, 300)"];
        for padding in [0, 4_000, 12_000] {
            for _ in 0..10 {
                start(&format!("{padding}"), padding, &["--version"]);
            }
        }
        for padding in [16_000, 50_000, 120_000] {
            start(&format!("{padding}"), padding, &wait);
        }
        let recordings = service.recordings();
        let of = |padding: &'static str, times| std::iter::repeat_n(padding, times);
        let expected: Vec<&str> = (of("0", 10).chain(of("4000", 10)).chain(of("12000", 10)))
            .chain(["16000", "50000", "120000"])
            .collect();
        assert_eq!(recordings.len(), expected.len());
        let mut late = Vec::new();
        for (recording, expected) in recordings.iter().zip(expected) {
            let commit = recording.runs[0].label("commit");
            for label in ["user", "parent", "cgroup"] {
                assert!(recording.runs[0].label(label).is_some(), "no {label}");
            }
            // No exec is held for longer than 40 ms, whatever else the machine does: then the recording says what it lacks.
            match &recording.processes[0].incomplete {
                Some(why) if commit.is_none() => late.push(why),
                _ => assert_eq!(commit, Some(expected)),
            }
        }
        assert!(late.len() <= 1, "{late:?}");
    });
}

#[test]
#[ignore = "needs root"]
fn the_log_has_no_secrets_of_paths() {
    undisturbed(|| {
        let (Some(node), Some(other)) = (Node::find("24.21.0"), Node::find("22.23.3")) else {
            return;
        };
        let service = Service::knowing(&node, "");
        // One that is no node binary, and one that nobody knows, whose first start is over before its plan is made.
        let folder = service
            .work()
            .join("password=hunter2hunter2\nnot recorded pid=1");
        fs::create_dir(&folder).unwrap();
        let (useless, new) = (folder.join("useless"), folder.join("new"));
        fs::write(&useless, "text").unwrap();
        copy_program(&other.path, &new);
        service.configure(&format!("nodes = [{useless:?}]"));
        service.signal(libc::SIGHUP);
        let said = service.says("cannot be probed");
        assert!(!said.contains("hunter2"), "{said}");
        assert!(said.contains("password=[redacted]"), "{said}");
        service.says("the configuration was read again");
        let new = Node {
            version: other.version,
            path: new,
        };
        service.succeeds(&new, &["-v"]);
        let said = service.says("recorded pid=");
        assert!(said.contains("not recorded pid="), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
        assert!(!said.contains("pid=1:"), "{said}");
        assert!(said.contains("password=[redacted]"), "{said}");
    });
}

/// What the holder tells of a start has its bounds: a folder with a name so long and strange goes another way, and is recorded all the same.
#[test]
#[ignore = "needs root"]
fn a_start_in_a_folder_with_a_monstrous_name_is_recorded() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let service = Service::knowing(
            &node,
            "[[rule]]\nmode = 'count'\ndirectory = '{top}/work/**'\n",
        );
        let mut folder = service.work();
        for _ in 0..14 {
            // Each of these takes six bytes where it must be escaped.
            folder.push("\u{1}".repeat(250));
            fs::create_dir(&folder).unwrap();
        }
        let mut command = service.node(&node, &["-e", "setTimeout(() => 0, 300)"]);
        assert!(command.current_dir(&folder).status().unwrap().success());
        assert!(!service.says("recorded pid=").contains("not recorded"));
        let run = &service.recordings()[0].runs[0];
        assert_eq!(run.directory, folder.as_os_str().as_encoded_bytes());
        assert!(run.label("user").is_some());
    });
}

#[test]
#[ignore = "needs root"]
fn a_configuration_is_read_again_and_one_with_a_fault_changes_nothing() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "");
        service.configure("moed = 'off'");
        service.signal(libc::SIGHUP);
        assert!(
            service
                .says("the configuration stays as it was")
                .contains("unknown field `moed`")
        );
        service.node(&node, &["-e", "0"]).status().unwrap();
        service.says("recorded pid=");
        let recorded = service.recordings().len();
        service.configure("[[rule]]\nmode = 'off'\nuser = 0\n");
        service.signal(libc::SIGHUP);
        service.says("the configuration was read again");
        service.node(&node, &["-e", "0"]).status().unwrap();
        service.configure("");
        service.signal(libc::SIGHUP);
        service.says("the configuration was read again");
        service.node(&node, &["-e", "0"]).status().unwrap();
        service.says("recorded pid=");
        assert_eq!(service.recordings().len(), recorded + 1);
    });
}

/// Starts one after another in two threads while `change` makes the service read its configuration again; how many there were.
fn starts_during(service: &Service, node: &Node, mut change: impl FnMut(usize)) -> usize {
    const CHANGES: usize = 4;
    let is_over = AtomicBool::new(false);
    let (path, work) = (&node.path, &service.work());
    std::thread::scope(|scope| {
        let start = || {
            let mut command = Command::new(path);
            plain(&mut command).arg("--version").current_dir(work);
            command.stdout(Stdio::null());
            let mut starts = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert!(command.status().unwrap().success());
                starts += 1;
            }
            starts
        };
        let threads = [scope.spawn(start), scope.spawn(start)];
        for number in 0..CHANGES {
            std::thread::sleep(Duration::from_millis(500));
            change(number);
        }
        std::thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    })
}

/// Kills a process of it, if that is there at this moment.
fn kill_process(service: &Service, name: &str) -> bool {
    let found = service.find_process(name);
    if let Some(pid) = found {
        // SAFETY: of this test's service.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    }
    found.is_some()
}

/// Of one that was about to attach, nobody is told by it.
#[test]
#[ignore = "needs root"]
fn no_start_vanishes_while_the_holder_is_killed() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let service = Service::knowing(&node, "");
        let killed = AtomicUsize::new(0);
        let started = starts_during(&service, &node, |_| {
            let found = kill_process(&service, "nodeprof-holder");
            killed.fetch_add(usize::from(found), Ordering::Relaxed);
        });
        assert!(killed.into_inner() > 0);
        let (recorded, told) = said_of(&service, started);
        println!("{started} starts: {recorded} recorded, {told} told as lost");
        assert!(recorded > started / 2);
        let status = Client::new(&service.folder.path().join("control.sock")).status();
        assert_eq!(status.unwrap().lost, told as u64);
    });
}

/// The holder is replaced, which has more binaries to watch: who begins then is recorded, late perhaps, or told as not recorded.
#[test]
#[ignore = "needs root"]
fn no_start_vanishes_while_the_holder_is_replaced() {
    undisturbed(|| {
        let (Some(node), Some(other)) = (Node::find("24.21.0"), Node::find("22.23.3")) else {
            return;
        };
        let service = Service::knowing(&node, "");
        let started = starts_during(&service, &node, |number| {
            let both = [&node.path, &other.path];
            service.configure(&format!("nodes = {:?}", &both[..1 + (number + 1) % 2]));
            service.signal(libc::SIGHUP);
        });
        let (recorded, told) = said_of(&service, started);
        println!("{started} starts: {recorded} recorded, {told} told as lost");
        assert!(recorded > started / 2);
        let status = Client::new(&service.folder.path().join("control.sock")).status();
        assert_eq!(status.unwrap().lost, told as u64);
    });
}

/// Other rules, or the same again: the holder takes them over, and nobody's recording has a hole.
#[test]
#[ignore = "needs root"]
fn starts_are_recorded_whole_while_the_configuration_is_read_again() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let nodes = format!("nodes = [{:?}]", node.path);
        let service = Service::start(&format!("{nodes}\nsettle = '4s'"));
        // Recorded before the first one and until after the last one.
        let mut server = service.node(&node, &["-e", "setTimeout(() => 0, 3000)"]);
        let mut server = server.spawn().unwrap();
        let started = starts_during(&service, &node, |number| {
            let rule = format!("[[rule]]\nmode = 'off'\ndirectory = '/nowhere-{number}/**'\n");
            service.configure(&format!("{nodes}\n{rule}"));
            service.signal(libc::SIGHUP);
        });
        assert!(server.wait().unwrap().success());
        let (recorded, told) = said_of(&service, started + 1);
        println!("{started} starts: {recorded} recorded");
        assert_eq!((recorded, told), (started + 1, 0));
        let recordings = service.recordings();
        assert_eq!(recordings.len(), recorded);
        for recording in &recordings {
            assert_eq!(recording.processes[0].incomplete, None);
        }
        // And the last rules are those that hold.
        service.configure(&format!("{nodes}\n[[rule]]\nmode = 'off'\nuser = 'root'\n"));
        service.signal(libc::SIGHUP);
        service.says("the configuration was read again");
        service.succeeds(&node, &["--version"]);
        service.configure(&nodes);
        service.signal(libc::SIGHUP);
        service.says("the configuration was read again");
        service.succeeds(&node, &["--version"]);
        service.says("recorded pid=");
        assert_eq!(service.recordings().len(), recorded + 1);
    });
}

#[test]
#[ignore = "needs root"]
fn a_rule_on_the_command_is_kept() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let service = Service::knowing(&node, "[[rule]]\nmode = 'off'\ncommand = '*quiet*'\n");
        let script = write(
            service.folder.path(),
            "work/a.js",
            "setTimeout(() => 0, 100)",
        );
        // The second ones have ended before anybody could ask them for their command.
        let (slow, quick) = (script.as_str(), "--version");
        for start in [slow, quick] {
            for word in ["quiet", "loud", "quiet", "loud"] {
                service.succeeds(&node, &[start, word]);
            }
        }
        for _ in 0..4 {
            service.says("recorded pid=");
        }
        let recordings = service.recordings();
        let words = recordings.iter().map(|r| r.runs[0].command[2].clone());
        assert_eq!(words.collect::<Vec<_>>(), [b"loud"; 4]);
    });
}

/// Of starts that nobody holds the kernel tells no exec.
#[test]
#[ignore = "needs root"]
fn a_rule_on_the_command_is_kept_where_starts_are_not_held() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let rule = "hold = false\n[[rule]]\nmode = 'off'\ncommand = '*quiet*'\n";
        let service = Service::knowing(&node, rule);
        let script = write(
            service.folder.path(),
            "work/a.js",
            "setTimeout(() => 0, 500)",
        );
        for word in ["quiet", "loud", "quiet", "loud"] {
            service.succeeds(&node, &[script.as_str(), word]);
        }
        for _ in 0..2 {
            service.says("recorded pid=");
        }
        let recordings = service.recordings();
        let words = recordings.iter().map(|r| r.runs[0].command[2].clone());
        assert_eq!(words.collect::<Vec<_>>(), [b"loud"; 2]);
    });
}

#[test]
fn a_configuration_is_checked_without_root() {
    let folder = folder();
    let program = Path::new(NODEPROF).with_file_name("nodeprofd");
    if !program.is_file() {
        println!(
            "skipped: there is no {}; type: cargo build -p nodeprofd",
            program.display()
        );
        return;
    }
    let check = |text: &str| {
        write(folder.path(), "c.toml", text);
        let mut command = Command::new(&program);
        command
            .args(["--check", "-c", "c.toml"])
            .current_dir(folder.path());
        let output = command.output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(check("mode = 'count'"), (true, String::new()));
    let shipped = fs::read_to_string(support::project("systemd/nodeprofd.toml")).unwrap();
    assert_eq!(check(&shipped), (true, String::new()));
    // All settings are in it, as comments with their defaults.
    let uncommented: String = shipped
        .lines()
        .map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n")
        .collect();
    assert_eq!(check(&uncommented), (true, String::new()));
    let (ok, why) = check("settle = 'soon'");
    assert!(
        !ok && why.contains("c.toml: settle: found \"soon\""),
        "{why}"
    );
}

/// `nodeprof service` with these arguments, as the user `nobody` of this group, or as root.
fn ask(service: &Service, group: Option<&str>, arguments: &[&str]) -> (bool, String) {
    let program = service.folder.path().join("nodeprof");
    if !program.exists() {
        // Where an ordinary user may execute it.
        copy_program(NODEPROF, &program);
        open(service.folder.path());
    }
    let mut command = match group {
        Some(group) => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "nobody", "--regid", group, "--clear-groups"]);
            command.arg(&program);
            command
        }
        None => Command::new(&program),
    };
    command.arg("service").args(arguments).arg("--socket");
    command.arg(service.folder.path().join("control.sock"));
    let output = plain(&mut command).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// Lets others pass through a folder.
fn open(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
#[ignore = "needs root"]
fn users_ask_the_service_and_read_their_own_runs_only() {
    const COMMIT: &str = "abc0123456789abc0123456789abc0123456789a";
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let mut service = Service::knowing(&node, "");
        open(service.folder.path());
        open(&service.work());
        // A copy that the other user may execute, known before its start.
        let copy = service.folder.path().join("node");
        copy_program(&node.path, &copy);
        let node = Node {
            version: node.version,
            path: copy,
        };
        service.end();
        service.configure(&format!("nodes = [{:?}]", node.path));
        service.begin();
        let package = service.work().join("node_modules/@some/thing");
        fs::create_dir_all(&package).unwrap();
        fs::write(package.join("index.js"), "").unwrap();
        service.succeeds(&node, &["-e", "require('@some/thing')"]);
        service.says("recorded pid=");
        let mut as_nobody = Command::new("setpriv");
        as_nobody
            .args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"])
            .arg(&node.path)
            .args(["-e", "1"])
            .env("GITLAB_CI", "1")
            .env("CI_COMMIT_SHA", COMMIT)
            .current_dir(service.work());
        assert!(plain(&mut as_nobody).status().unwrap().success());
        service.says("recorded pid=");
        let asked = |group, arguments: &[&str]| ask(&service, group, arguments);
        let user = Some("nogroup");

        let (ok, text) = asked(None, &["status"]);
        assert!(ok && text.contains("2 recorded, 0 lost"), "{text}");
        assert!(
            text.contains("read all runs; reload, pause, resume"),
            "{text}"
        );
        let (ok, text) = asked(user, &["status", "--format", "json"]);
        assert!(ok && text.contains("\"may_read\": \"own\""), "{text}");
        assert!(text.contains("\"may_administer\": false"), "{text}");
        let runs = |group, more: &[&str]| {
            let (ok, text) = asked(group, &[&["runs", "--format", "json"], more].concat());
            assert!(ok, "{text}");
            let count = text.matches("\"id\":").count();
            (count, text)
        };
        assert_eq!(runs(None, &[]).0, 2);
        let (count, text) = runs(user, &[]);
        assert_eq!(count, 1, "{text}");
        assert!(text.contains(COMMIT), "{text}");
        assert_eq!(runs(user, &["--user", "0"]).0, 0);
        assert_eq!(
            runs(None, &["commit=abc0", "--since", "1h", "--command", "-e 1"]).0,
            1
        );
        assert_eq!(runs(None, &["commit=abd"]).0, 0);
        // By its first digits, as the list has them.
        let (ok, list) = asked(None, &["runs"]);
        assert!(ok && list.contains("commit=abc012345678 "), "{list}");
        assert_eq!(runs(user, &["commit=abc012345678"]).0, 1);
        assert_eq!(runs(None, &["--package", "@some/thing"]).0, 1);
        assert_eq!(runs(None, &["--failed"]).0, 0);
        let (ok, text) = asked(user, &["show", "2"]);
        assert!(ok && text.contains("crossings"), "{text}");
        let (ok, text) = asked(user, &["show", "1"]);
        assert!(!ok && text.contains("no run 1 that you may read"), "{text}");
        let (ok, text) = asked(user, &["diff", "1", "2"]);
        assert!(!ok && text.contains("no run 1"), "{text}");
        let (ok, text) = asked(None, &["diff", "1", "2"]);
        assert!(ok && text.contains("not run in turn"), "{text}");
        let (ok, same) = asked(None, &["diff", "2", "2"]);
        assert!(ok && !same.contains("no run"), "{same}");
        // What it proposes to type is about the same runs.
        let proposed =
            (text.lines().map(str::trim)).find(|line| line.starts_with("nodeprof diff "));
        let proposed = proposed.unwrap_or_else(|| panic!("no command in: {text}"));
        assert!(proposed.contains("1 2 --store"), "{proposed}");
        for order in ["reload", "pause", "resume"] {
            let (ok, text) = asked(user, &[order]);
            assert!(!ok && text.contains("needed: root"), "{text}");
        }
        let (ok, text) = asked(Some("daemon"), &["status"]);
        assert!(
            !ok && text.contains("may not be used by this user"),
            "{text}"
        );

        let (ok, text) = asked(None, &["pause"]);
        assert!(ok, "{text}");
        service.says("paused by command");
        assert!(
            asked(user, &["status"])
                .1
                .contains("paused: nothing is recorded")
        );
        service.succeeds(&node, &["-e", "2"]);
        assert!(asked(None, &["resume"]).0);
        service.succeeds(&node, &["-e", "3"]);
        service.says("recorded pid=");
        assert_eq!(runs(None, &[]).0, 3);
        let (ok, text) = asked(None, &["reload"]);
        assert!(ok && text.contains("was read again"), "{text}");
        service.configure("settle = 'soon'");
        let (ok, text) = asked(None, &["reload"]);
        assert!(!ok && text.contains("settle: found"), "{text}");
        service.end();
        let (ok, text) = ask(&service, user, &["status"]);
        assert!(!ok && text.contains("systemctl start nodeprofd"), "{text}");
    });
}

/// Asks a server on this machine; status line and body.
fn get(port: u16, path: &str, token: Option<&str>) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n{}Connection: close\r\n\r\n",
        token.unwrap_or_default()
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_owned(), body.to_owned()))
}

/// A program that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs root"]
fn prometheus_gets_the_sums_of_all_starts() {
    undisturbed(|| {
        const STARTS: usize = 5;
        const TOKEN: &str = "0123456789abcdef0123456789abcdef";
        let Some(node) = Node::find("22.23.3") else {
            return;
        };
        let service = Service::knowing(&node, "");
        for _ in 0..STARTS {
            service.succeeds(&node, &["-e", "0"]);
            service.says(" recorded pid=");
        }
        let recordings = service.recordings();
        let crossings: u64 = recordings
            .iter()
            .flat_map(calls)
            .map(|(_, calls)| calls)
            .sum();
        let socket = service.folder.path().join("control.sock");
        let command = || {
            let mut command = Command::new(NODEPROF);
            command
                .args(["service", "metrics", "--socket"])
                .arg(&socket);
            command
        };
        let text = String::from_utf8(command().output().unwrap().stdout).unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let line = line.unwrap_or_else(|| panic!("no {name} in:\n{text}"));
            line.trim().parse().unwrap()
        };
        assert_eq!(
            value("nodeprof_starts_total{node=\"22\",complete=\"true\"}"),
            STARTS as f64
        );
        assert_eq!(
            value("nodeprof_startup_seconds_count{node=\"22\"}"),
            STARTS as f64
        );
        let seconds = value("nodeprof_startup_seconds_sum{node=\"22\"}") / STARTS as f64;
        assert!((0.005..2.0).contains(&seconds), "{seconds}");
        assert_eq!(
            value("nodeprof_crossings_total{node=\"22\"}"),
            crossings as f64
        );
        assert!(value("nodeprof_cpu_seconds_total") > 0.0);
        assert!(value("nodeprof_resident_memory_bytes") > 1e6);

        // Over HTTP, only for who has the token.
        let token = write(service.folder.path(), "token", TOKEN);
        let mut serving = command();
        serving.args(["--listen", "127.0.0.1:0", "--token-file", &token]);
        let mut serving = Ends(serving.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        let output = serving.0.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let port = line.trim().trim_end_matches("/metrics").rsplit(':').next();
        let port: u16 = port.unwrap().parse().unwrap();
        assert!(get(port, "/metrics", None).unwrap().0.contains("401"));
        assert!(get(port, "/metrics", Some("x")).unwrap().0.contains("401"));
        assert!(get(port, "/", Some(TOKEN)).unwrap().0.contains("404"));
        let (status, body) = get(port, "/metrics", Some(TOKEN)).unwrap();
        assert!(
            status.contains("200") && body.ends_with("# EOF\n"),
            "{status} {body}"
        );

        let path = Command::new(project("scripts/fetch-prometheus"))
            .arg("--path")
            .output();
        let path = String::from_utf8(path.unwrap().stdout).unwrap();
        let path = Path::new(path.trim());
        if !path.is_file() {
            println!("skipped: prometheus is not there; run scripts/fetch-prometheus");
            return;
        }
        // The parser of the older text format, which the textfile collector of node_exporter has, too. It finds fault with names as well (3), but reads them.
        let mut checker = Command::new(path.with_file_name("promtool"))
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = checker.stdin.take().unwrap();
        input.write_all(body.as_bytes()).unwrap();
        drop(input);
        let checked = checker.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(
            [Some(0), Some(3)].contains(&checked.status.code()),
            "{said}"
        );
        assert!(!said.contains("parsing"), "{said}");
        let config = format!(
            "scrape_configs:\n- job_name: nodeprof\n  scrape_interval: 500ms\n  authorization: {{credentials_file: {token:?}}}\n  \
             static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
        );
        let config = write(service.folder.path(), "prometheus.yml", &config);
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let prometheus = Command::new(path)
            .args(["--config.file", &config, "--log.level=error"])
            .arg(format!("--web.listen-address=127.0.0.1:{free}"))
            .arg(format!(
                "--storage.tsdb.path={}/prometheus",
                service.folder.path().display()
            ))
            .stderr(Stdio::null())
            .spawn();
        let _prometheus = Ends(prometheus.unwrap());
        let until = Instant::now() + Duration::from_secs(30);
        let query = "/api/v1/query?query=nodeprof_starts_total";
        let mut said = None;
        while Instant::now() < until {
            said = get(free, query, None).filter(|(_, body)| body.contains("__name__"));
            if said.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let (_, body) = said.expect("prometheus has scraped");
        let from = body.find('{').unwrap();
        let to = body.rfind('}').unwrap();
        let answer: serde_json::Value = serde_json::from_str(&body[from..=to]).unwrap();
        let result = &answer["data"]["result"][0];
        assert_eq!(result["metric"]["node"], "22", "{answer}");
        assert_eq!(result["metric"]["complete"], "true", "{answer}");
        assert_eq!(result["value"][1], STARTS.to_string(), "{answer}");
    });
}

/// Calls to C++ by callback, however they were recorded.
fn all_calls(recording: &Recording) -> BTreeMap<String, u64> {
    let profile = Profile::from_recording(recording);
    let callbacks = profile.runs[0].crossings.callbacks.iter();
    let mut calls = BTreeMap::new();
    for callback in callbacks {
        let name = format!(
            "{}.{} {:?}",
            callback.binding, callback.function, callback.kind
        );
        *calls.entry(name).or_default() += callback.calls;
    }
    calls
}

#[test]
#[ignore = "needs root"]
fn starts_that_a_rule_names_are_recorded_in_full() {
    undisturbed(|| {
        let Some(node) = Node::find("22.23.3") else {
            return;
        };
        const RULE: &str =
            "[[rule]]\nmode = 'full'\ncommand = '*in-full.js*'\ndirectory = '{top}/work'\n";
        let mut service = Service::knowing(&node, &format!("settle = '20s'\n{RULE}"));
        service.says("starts are recorded in full mode, too");
        let work = service.work();
        let open = || fs::Permissions::from_mode(0o755);
        fs::set_permissions(service.folder.path(), open()).unwrap();
        let script = write(&work, "in-full.js", "require('dep'); process.uptime();");
        write(&work, "other.js", "require('dep'); process.uptime();");
        write(&work, "node_modules/dep/index.js", "module.exports = 1;");
        write(
            &work,
            "node_modules/dep/package.json",
            r#"{"name":"dep","version":"1.2.3"}"#,
        );
        let one = |service: &Service, script: &str| -> Recording {
            let mut command = service.node(&node, &[script]);
            command
                .env("GITHUB_ACTIONS", "true")
                .env("GITHUB_SHA", "3f1c2a");
            assert!(command.status().unwrap().success());
            let line = service.says("recorded pid=");
            assert!(!line.contains("not recorded"), "{line}");
            let recording = service.recordings().pop().unwrap();
            assert_eq!(recording.processes[0].incomplete, None);
            recording
        };
        let full = one(&service, &script);
        let run = &full.runs[0];
        assert_eq!((run.mode.as_str(), run.ended_by.as_str()), ("full", "exit"));
        assert_eq!(run.label("commit"), Some("3f1c2a"));
        assert!(full.crossings.iter().all(|c| c.stack.is_some()));
        let mut slow = full
            .crossings
            .iter()
            .filter(|c| c.kind == CrossingKind::Slow);
        assert!(slow.all(|c| c.duration.is_some()));
        let traced = service.folder.path().join("full.nodeprof");
        let mut trace = Command::new(NODEPROF);
        plain(&mut trace)
            .env("UV_USE_IO_URING", "0")
            .args(["trace", "--quiet", "-o"])
            .arg(&traced)
            .arg("--")
            .arg(&node.path)
            .arg(&script)
            .current_dir(&work)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        assert!(trace.output().unwrap().status.success());
        // That one is recorded, too: by the rule.
        service.says("recorded pid=");
        assert_eq!(
            all_calls(&full),
            all_calls(&Recording::load(traced).unwrap())
        );
        let profile = Profile::from_recording(&full);
        let package = |profile: &Profile| {
            let all = profile.runs[0].packages.iter();
            let mut found = all.filter(|p| p.name.as_deref() == Some("dep"));
            let package = found.next().expect("the package").clone();
            (package.modules, package.version)
        };
        assert_eq!(package(&profile), (1, Some("1.2.3".into())));
        assert!(profile.runs[0].serialization.total_ns > 0);

        // Another start is counted, as ever.
        let counted = one(&service, "other.js");
        assert_eq!(counted.runs[0].mode, "count");
        assert!(counted.stacks.is_empty());

        // What anybody may not read, is not read for anybody.
        fs::set_permissions(
            work.join("node_modules/dep/package.json"),
            fs::Permissions::from_mode(0o600),
        )
        .unwrap();
        let private = one(&service, &script);
        assert_eq!(package(&Profile::from_recording(&private)), (1, None));

        // Its process is killed: it comes back.
        let lane = service.process("nodeprof-lane") as i32;
        // SAFETY: of this test's service.
        unsafe { libc::kill(lane, libc::SIGKILL) };
        service.says("the process of full mode ended");
        service.says("starts are recorded in full mode, too");
        assert_eq!(one(&service, &script).runs[0].mode, "full");

        // The rule is gone, and so is it.
        service.configure(&format!("nodes = [{:?}]\nsettle = '20s'\n", node.path));
        service.signal(libc::SIGHUP);
        service.says("the configuration was read again");
        assert_eq!(one(&service, &script).runs[0].mode, "count");
        // It has seen through what it had begun with.
        let until = Instant::now() + Duration::from_secs(5);
        while service.find_process("nodeprof-lane").is_some() {
            assert!(Instant::now() < until, "it is there still");
            std::thread::sleep(Duration::from_millis(20));
        }
        service.end();
    });
}

/// Of one that lies in a folder of somebody's own the lane opens the file itself, which anybody may read; it is read once, for the starts that come later.
#[test]
#[ignore = "needs root"]
fn native_functions_have_names_also_of_a_node_binary_in_a_private_folder() {
    undisturbed(|| {
        let Some(node) = Node::find("22.23.3") else {
            return;
        };
        let private = folder();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(private.path(), 0o700);
        let [open, closed] = ["open", "closed"].map(|name| {
            let path = private.path().join(name);
            copy_program(&node.path, &path);
            Node {
                version: node.version,
                path,
            }
        });
        mode(&open.path, 0o755);
        mode(&closed.path, 0o711);
        let nodes = [&open.path, &closed.path];
        let rule = "settle = '20s'\n[[rule]]\nmode = 'full'\ndirectory = '{top}/work'\n";
        let mut service = Service::start(&format!("nodes = {nodes:?}\n{rule}"));
        service.says("starts are recorded in full mode, too");
        let has_names = |node: &Node| {
            service.succeeds(node, &["-e", "0"]);
            let line = service.says("recorded pid=");
            assert!(!line.contains("not recorded"), "{line}");
            let recording = service.recordings().pop().unwrap();
            assert_eq!(recording.runs[0].mode, "full");
            let names = recording.frames.iter().map(|f| recording.name(f.function));
            let names: BTreeSet<String> = names
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
            names.contains("node::Start")
        };
        let until = Instant::now() + Duration::from_secs(20);
        while !has_names(&open) {
            assert!(Instant::now() < until, "native functions have no names");
        }
        // By now it is known, and the other one would be, too.
        assert!(has_names(&open));
        for _ in 0..5 {
            assert!(!has_names(&closed), "nobody but its owner may read it");
        }
        assert!(has_names(&open), "for good");
        service.end();
    });
}

/// Count mode stands in for full mode while nobody records in that: right after the start, and until another process of full mode is ready.
#[test]
#[ignore = "needs root"]
fn starts_that_a_rule_wants_in_full_are_counted_while_nobody_records_so() {
    undisturbed(|| {
        let Some(node) = Node::find("22.23.3") else {
            return;
        };
        for fits in ["", "command = '*in-full*'\n"] {
            let rule = format!("[[rule]]\nmode = 'full'\ndirectory = '{{top}}/work'\n{fits}");
            let service = Service::knowing(&node, &rule);
            let is_instead = |recording: &Recording| {
                let process = &recording.processes[0];
                let why = process.incomplete.as_deref().unwrap_or_default();
                let is = why.contains("a rule wants it in full mode");
                assert_eq!((is, recording.runs[0].mode == "count"), (is, is), "{why}");
                is
            };
            // Which one of the two it becomes is chance.
            service.succeeds(&node, &["-e", "0", "in-full"]);
            let mut waits_for = vec!["recorded pid=", "starts are recorded in full mode, too"];
            while !waits_for.is_empty() {
                let line = service.says("recorded ");
                assert!(!line.contains("not recorded"), "{line}");
                waits_for.retain(|what| !line.contains(what));
            }
            is_instead(&service.recordings()[0]);

            let lane = service.process("nodeprof-lane") as i32;
            // SAFETY: of this test's service.
            unsafe { libc::kill(lane, libc::SIGKILL) };
            service.says("the process of full mode ended");
            service.succeeds(&node, &["-e", "0", "in-full"]);
            let line = service.says("recorded pid=");
            assert!(!line.contains("not recorded"), "{line}");
            assert!(is_instead(&service.recordings()[1]));

            service.says("starts are recorded in full mode, too");
            service.succeeds(&node, &["-e", "0", "in-full"]);
            service.says("recorded pid=");
            let recordings = service.recordings();
            assert_eq!(recordings.len(), 3);
            assert!(!is_instead(&recordings[2]));
            assert_eq!(recordings[2].processes[0].incomplete, None);
            let status = Client::new(&service.folder.path().join("control.sock")).status();
            assert_eq!(status.unwrap().lost, 0);
        }
    });
}

/// Node binaries begin, two at a time, while something is done to full mode, which wants them all, or has to look at their commands for that; each is told of once.
/// Returns how many there were, and how many of them were told as not recorded.
fn starts_in_full_mode_during(change: impl Fn(&Service)) -> Option<Vec<(usize, usize)>> {
    let node = Node::find("24.21.0")?;
    let told = ["", "command = '*version*'\n"].map(|fits| {
        let rule = format!("[[rule]]\nmode = 'full'\ndirectory = '{{top}}/work'\n{fits}");
        let service = Service::knowing(&node, &rule);
        let started = starts_during(&service, &node, |_| change(&service));
        let (recorded, told) = said_of(&service, started);
        // None comes twice, either.
        std::thread::sleep(Duration::from_secs(1));
        let more = service.lines.try_iter();
        let more: Vec<String> = more.filter(|line| line.contains("recorded pid=")).collect();
        println!("{started} starts: {recorded} recorded, {told} told as lost");
        assert!(more.is_empty(), "{more:#?}");
        let status = Client::new(&service.folder.path().join("control.sock")).status();
        assert_eq!(status.unwrap().lost, told as u64);
        (started, told)
    });
    Some(told.to_vec())
}

/// Its process is begun anew with each reading of the configuration: it sees through what it has begun with, and count mode has the rest.
#[test]
#[ignore = "needs root"]
fn no_start_vanishes_while_full_mode_is_begun_anew() {
    undisturbed(|| {
        let all = starts_in_full_mode_during(|service| service.signal(libc::SIGHUP));
        for (started, told) in all.into_iter().flatten() {
            assert!(told <= started / 10, "{told} of {started}");
        }
    });
}

/// Kills a process of the service again and again while node binaries begin in full mode.
fn kills_in_full_mode(name: &str) {
    undisturbed(|| {
        let is_there = AtomicBool::new(false);
        let all = starts_in_full_mode_during(|service| {
            is_there.fetch_or(kill_process(service, name), Ordering::Relaxed);
        });
        assert!(all.is_none() || is_there.into_inner());
    });
}

/// What it has not handed over goes with it, and is told.
#[test]
#[ignore = "needs root"]
fn no_start_vanishes_while_full_mode_is_killed() {
    kills_in_full_mode("nodeprof-lane");
}

/// That of count mode, which cannot ask about what begins meanwhile: full mode has it.
#[test]
#[ignore = "needs root"]
fn what_full_mode_records_is_not_told_as_lost_while_the_holder_of_count_mode_is_killed() {
    kills_in_full_mode("nodeprof-holder");
}

/// What begins while the guard of count mode is replaced its holder meets after the exec, and leaves to full mode, which is killed before it has told of it.
#[test]
#[ignore = "needs root"]
fn no_start_vanishes_while_a_guard_and_then_full_mode_are_killed() {
    /// A guard, and the holder with it, is replaced within 60 ms.
    const REPLACED: Duration = Duration::from_millis(100);
    undisturbed(|| {
        let are_there = AtomicBool::new(false);
        let all = starts_in_full_mode_during(|service| {
            let has_guard = kill_process(service, "nodeprof-guard");
            std::thread::sleep(REPLACED);
            let has_lane = kill_process(service, "nodeprof-lane");
            are_there.fetch_or(has_guard && has_lane, Ordering::Relaxed);
        });
        assert!(all.is_none() || are_there.into_inner());
    });
}

/// Full mode hears of it later than count mode, which leaves its starts to it.
#[test]
#[ignore = "needs root"]
fn no_start_vanishes_where_recording_goes_on_after_a_pause() {
    const ROUNDS: usize = 20;
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let rule = "[[rule]]\nmode = 'full'\ndirectory = '{top}/work'\n";
        let service = Service::knowing(&node, rule);
        service.says("starts are recorded in full mode, too");
        for _ in 0..ROUNDS {
            for order in ["pause", "resume"] {
                let (ok, text) = ask(&service, None, &[order]);
                assert!(ok, "{text}");
            }
            service.succeeds(&node, &["--version"]);
        }
        assert_eq!(said_of(&service, ROUNDS), (ROUNDS, 0));
    });
}

/// Inodes of the files whose execs the holder holds.
fn held_files(service: &Service) -> Vec<u64> {
    let infos = fs::read_dir(format!("/proc/{}/fdinfo", service.holder())).unwrap();
    let infos = infos.filter_map(|info| fs::read_to_string(info.unwrap().path()).ok());
    let lines: Vec<String> = infos
        .flat_map(|info| info.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.starts_with("fanotify ino:"))
        .collect();
    let inode = |line: &String| {
        let digits = line.strip_prefix("fanotify ino:")?.split(' ').next()?;
        u64::from_str_radix(digits, 16).ok()
    };
    lines.iter().filter_map(inode).collect()
}

/// Else a user could have the execs of any program of the host held.
#[test]
#[ignore = "needs root"]
fn a_link_in_place_of_a_known_node_binary_has_no_other_program_held() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let folder = folder();
        let users = Node {
            version: node.version,
            path: folder.path().join("bin/node"),
        };
        fs::create_dir(folder.path().join("bin")).unwrap();
        copy_program(&node.path, &users.path);
        let other = folder.path().join("other");
        copy_program(Path::new("/bin/true"), &other);
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let mut service = Service::knowing(&users, "");
        assert!(held_files(&service).contains(&inode(&users.path)));
        service.succeeds(&users, &["-p", "1"]);
        service.says("recorded pid=");
        let known = service.folder.path().join("cache/known-nodes");
        let is_known = || {
            let list = fs::read(&known).unwrap_or_default();
            let path = users.path.as_os_str().as_encoded_bytes();
            list.split(|byte| *byte == 0).any(|line| line == path)
        };
        assert!(is_known());
        // The file itself is a link, or the folder in which it lies.
        for is_folder in [false, true] {
            service.end();
            match is_folder {
                false => {
                    fs::remove_file(&users.path).unwrap();
                    std::os::unix::fs::symlink(&other, &users.path).unwrap();
                }
                true => {
                    fs::remove_dir_all(folder.path().join("bin")).unwrap();
                    fs::create_dir(folder.path().join("elsewhere")).unwrap();
                    fs::rename(&other, folder.path().join("elsewhere/node")).unwrap();
                    std::os::unix::fs::symlink("elsewhere", folder.path().join("bin")).unwrap();
                }
            }
            service.configure("");
            service.begin();
            assert!(is_known());
            let held = held_files(&service);
            assert!(!held.contains(&inode(&users.path)), "{is_folder}");
        }
        // A binary that an administrator names may be a link.
        service.end();
        let named = folder.path().join("named");
        std::os::unix::fs::symlink(&node.path, &named).unwrap();
        service.configure(&format!("nodes = [{named:?}]"));
        service.begin();
        assert!(held_files(&service).contains(&inode(&node.path)));
        service.end();
    });
}

/// More versions of binaries than the records of probes can tell apart: each change of the file's time makes one. One of the first runs all the while.
#[test]
#[ignore = "needs root"]
fn a_service_meets_any_number_of_node_binaries() {
    const MOST: usize = 256; // MAX_IMAGES of records.h
    undisturbed(|| {
        let (Some(first), Some(last)) = (Node::find("22.23.3"), Node::find("24.21.0")) else {
            return;
        };
        let folder = folder();
        let path = folder.path().join("node");
        copy_program(&first.path, &path);
        let node = Node {
            version: first.version,
            path: path.clone(),
        };
        let mut service = Service::knowing(&node, "settle = '600s'\nlimit = '600s'");
        let mut long = service.node(&node, &["-e", "setTimeout(() => process.exit(3), 600000)"]);
        let mut long = Ends(long.spawn().unwrap());
        let mut missed = 0;
        for number in 0..MOST + 8 {
            let later = std::time::SystemTime::now() + Duration::from_secs(number as u64);
            let file = fs::File::open(&path).unwrap();
            file.set_modified(later).unwrap();
            drop(file);
            service.succeeds(&node, &["-p", "1"]);
            let line = service.says("recorded pid=");
            // A plan that is not read in time costs a start, and says so.
            missed += usize::from(line.contains("not recorded"));
            assert!(
                !line.contains("different node binaries"),
                "{number}: {line}"
            );
        }
        assert!(missed <= 16, "{missed} starts were not recorded");
        // And one of another kind has what is said of it from its own plan.
        let other = Node {
            version: last.version,
            path: folder.path().join("other"),
        };
        copy_program(&last.path, &other.path);
        let script = write(&service.work(), "start.js", "require('zlib')");
        let until = Instant::now() + Duration::from_secs(20);
        let recording = loop {
            service.succeeds(&other, &[&script]);
            let line = service.says("recorded pid=");
            let recording = service.recordings().pop().unwrap();
            let is_whole = recording.processes[0].incomplete.is_none();
            if !line.contains("not recorded") && is_whole {
                break recording;
            }
            assert!(Instant::now() < until, "{line}");
        };
        assert_eq!(version(&recording), other.version);
        assert_eq!(calls(&recording), calls(&service.traced(&other, &script)));
        service.says("recorded pid="); // that one, too
        long.0.kill().unwrap();
        long.0.wait().unwrap();
        service.says("recorded pid=");
        service.end();
        let recordings = service.recordings();
        let long = recordings.iter().find(|r| r.runs[0].signal == Some(9));
        assert_eq!(version(long.unwrap()), node.version);
    });
}

/// As many containers have them, each a file of its own. All are recorded, and what the service needs for them stays small.
#[test]
#[ignore = "needs root"]
fn a_service_meets_many_node_binaries_at_the_same_moment() {
    const AT_ONCE: usize = 80;
    /// From what it takes at rest to the limit of docs/service.md.
    const MEMORY: u64 = 22 << 20;
    undisturbed(|| {
        let Some(build) = Node::find("22.23.3") else {
            return;
        };
        let folder = folder();
        let node = Node {
            version: build.version,
            path: folder.path().join("node"),
        };
        copy_program(&build.path, &node.path);
        let mut service = Service::knowing(&node, "settle = '600s'\nlimit = '600s'");
        let control = service.folder.path().join("control.sock");
        // It listens a moment after it has said that it records.
        let until = Instant::now() + Duration::from_secs(10);
        while Client::new(&control).status().is_err() {
            assert!(Instant::now() < until, "nobody answers");
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = || Client::new(&control).status().unwrap();
        let at_rest = status().memory_bytes;
        let mut all: Vec<Ends> = (0..AT_ONCE as u64)
            .map(|number| {
                let later = std::time::SystemTime::now() + Duration::from_secs(number);
                let file = fs::File::open(&node.path).unwrap();
                file.set_modified(later).unwrap();
                drop(file);
                let script = "setTimeout(() => process.exit(3), 600000); console.log('up')";
                let mut child = Ends(service.node(&node, &["-e", script]).spawn().unwrap());
                let mut said = [0; 3];
                let stdout = child.0.stdout.as_mut().unwrap();
                stdout.read_exact(&mut said).unwrap();
                assert_eq!(&said, b"up\n");
                child
            })
            .collect();
        let status = status();
        assert_eq!((status.running, status.lost), (AT_ONCE, 0));
        let grown = status.memory_bytes.saturating_sub(at_rest);
        assert!(grown < MEMORY, "{at_rest} bytes, and {grown} more");
        for child in &mut all {
            child.0.kill().unwrap();
            child.0.wait().unwrap();
            let line = service.says("recorded pid=");
            assert!(!line.contains("not recorded"), "{line}");
        }
        service.end();
    });
}

#[test]
#[ignore = "needs root"]
fn a_node_binary_that_is_replaced_is_read_anew() {
    undisturbed(|| {
        let versions = ["20.20.2", "22.23.3", "24.21.0"];
        let nodes: Vec<Node> = versions.into_iter().filter_map(Node::find).collect();
        let [first, second, third] = nodes.as_slice() else {
            return;
        };
        let folder = folder();
        let path = folder.path().join("node");
        copy_program(&first.path, &path);
        let here = |version| Node {
            version,
            path: path.clone(),
        };
        let mut service = Service::knowing(&here(first.version), "settle = '20s'");
        let script = write(
            &service.work(),
            "start.js",
            "process.uptime(); require('zlib')",
        );
        // Nobody knows a new binary: its first start gets its probes late, or has ended before, and so may those that follow while its plan is
        // made; they run as ever.
        let meets = |service: &Service, node: &Node| {
            let until = Instant::now() + Duration::from_secs(20);
            loop {
                service.succeeds(node, &[&script]);
                let line = service.says("recorded pid=");
                let last = || service.recordings().pop().unwrap();
                let is_whole = |r: &Recording| r.processes[0].incomplete.is_none();
                if !line.contains("not recorded") && is_whole(&last()) {
                    return;
                }
                assert!(Instant::now() < until, "{} stays unknown", node.version);
                std::thread::sleep(Duration::from_millis(200));
            }
        };
        let records = |service: &Service, node: &Node| {
            service.succeeds(node, &[&script]);
            let line = service.says("recorded pid=");
            assert!(!line.contains("not recorded"), "{line}");
            let recording = service.recordings().pop().unwrap();
            assert_eq!(version(&recording), node.version);
            assert_eq!(recording.processes[0].incomplete, None, "{}", node.version);
            let expected = service.traced(node, &script);
            service.says("recorded pid="); // that one, too
            assert_eq!(calls(&recording), calls(&expected), "{}", node.version);
        };
        records(&service, &here(first.version));
        // By rename, while a process of the old one runs.
        let mut old = service
            .node(&here(first.version), &["-e", "setTimeout(() => {}, 60000)"])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let new = folder.path().join("new");
        copy_program(&second.path, &new);
        fs::rename(&new, &path).unwrap();
        meets(&service, &here(second.version));
        records(&service, &here(second.version));
        old.kill().unwrap();
        old.wait().unwrap();
        service.says("recorded pid=");
        // The same inode with another content, as one that a file system gives to a new file may have it.
        let inode = || fs::metadata(&path).unwrap().ino();
        let before = inode();
        fs::write(&path, fs::read(&third.path).unwrap()).unwrap();
        assert_eq!(inode(), before);
        meets(&service, &here(third.version));
        records(&service, &here(third.version));
        // And none: what was there is recorded no more, and nothing else minds.
        fs::remove_file(&path).unwrap();
        service.end();
    });
}

/// A start of this node is recorded from its beginning.
fn records(service: &Service, node: &Node) {
    service.succeeds(node, &["-e", "0"]);
    let line = service.says("recorded pid=");
    assert!(!line.contains("not recorded"), "{line}");
    let last = service.recordings().pop().unwrap();
    assert_eq!(last.processes[0].incomplete, None);
}

/// In one that hears what is asked of it, who asks cannot be killed.
#[test]
#[ignore = "needs root"]
fn a_file_system_that_does_not_answer_keeps_nobody_waiting() {
    const SILENT: &str = "found a file system that does not answer";
    const RULE: &str =
        "[[rule]]\nmode = 'full'\ncommand = '*in-full.js*'\ndirectory = '{top}/work'\n";
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        for reads in [false, true] {
            let Some(dead) = FileSystem::mount(&node.path, reads) else {
                return;
            };
            let nodes = |names: &[PathBuf]| format!("nodes = {names:?}\n{RULE}");
            // It is ready all the same, and has said so.
            let mut service = Service::start(&nodes(&[dead.file(), node.path.clone()]));
            let status = || ask(&service, None, &["status"]);
            let (ok, text) = status();
            let file = dead.file().display().to_string();
            assert!(
                ok && text.contains(&file) && text.contains("1 file"),
                "{text}"
            );
            let (_, json) = ask(&service, None, &["status", "--format", "json"]);
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(json["not_answering"], 1, "{json}");
            assert_eq!(json["not_answering_files"][0], file.as_str(), "{json}");
            let (_, json) = ask(&service, Some("nogroup"), &["status", "--format", "json"]);
            assert!(!json.contains(&file), "{json}");
            service.says("starts are recorded in full mode, too");
            records(&service, &node);
            // A new holder.
            // SAFETY: the holder of our own service.
            unsafe { libc::kill(service.holder() as i32, libc::SIGKILL) };
            service.says("the holder process ended, and was started anew");
            records(&service, &node);
            // It is known not to answer, so nobody waits for it again, nor is it told again.
            let since = Instant::now();
            let (ok, text) = ask(&service, None, &["reload"]);
            let took = since.elapsed();
            assert!(ok && took < Duration::from_secs(3), "{took:?}: {text}");
            let said: Vec<String> = service.lines.try_iter().collect();
            assert!(!said.iter().any(|line| line.contains(SILENT)), "{said:#?}");
            records(&service, &node);
            // Another one there, which is new.
            let other = dead.file().with_file_name("other");
            service.configure(&nodes(&[other.clone(), dead.file(), node.path.clone()]));
            let (ok, text) = ask(&service, None, &["reload"]);
            assert!(ok, "{text}");
            let line = service.says(SILENT);
            assert!(line.contains(&other.display().to_string()), "{line}");
            records(&service, &node);
            let since = Instant::now();
            service.end();
            let took = since.elapsed();
            assert!(took < Duration::from_secs(3), "{took:?}");
            // Processes of the last one may be there still, which nobody can end.
            service.begin();
            service.end();
        }
    });
}

#[test]
#[ignore = "needs root"]
fn a_file_that_answers_late_is_met_then() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let Some(late) = FileSystem::mount(&node.path, true) else {
            return;
        };
        let service = Service::start(&format!("nodes = [{:?}]", late.file()));
        late.answers(true);
        service.says("its starts are recorded, from the second one on");
        let (_, json) = ask(&service, None, &["status", "--format", "json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["not_answering"], 0, "{json}");
        let node = Node {
            version: node.version,
            path: late.file(),
        };
        service.succeeds(&node, &["-e", "0"]);
        service.says("recorded pid=");
        records(&service, &node);
    });
}

/// A frozen group of processes (control groups, version 1), which no signal ends, as none does who waits for some file systems.
struct Frozen {
    at: tempfile::TempDir,
    group: PathBuf,
}

impl Frozen {
    /// `None`: it says that a test was skipped.
    fn mount() -> Option<Frozen> {
        let at = folder();
        let mut mount = Command::new("mount");
        mount.args(["-t", "cgroup", "-o", "freezer", "none"]);
        let group = at.path().join("nodeprof-test");
        let mounted = mount.arg(at.path()).stderr(Stdio::null()).status();
        let frozen = Frozen { at, group };
        if !mounted.unwrap().success() || fs::create_dir(&frozen.group).is_err() {
            println!("skipped: no processes can be frozen here (freezer of control groups v1)");
            return None;
        }
        Some(frozen)
    }

    fn freeze(&self, pid: u32) {
        fs::write(self.group.join("cgroup.procs"), pid.to_string()).unwrap();
        fs::write(self.group.join("freezer.state"), "FROZEN").unwrap();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = fs::write(self.group.join("freezer.state"), "THAWED");
        let since = Instant::now();
        // They were killed, and end now.
        while fs::remove_dir(&self.group).is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
            && since.elapsed() < Duration::from_secs(5)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = Command::new("umount").arg(self.at.path()).status();
    }
}

#[test]
#[ignore = "needs root"]
fn full_mode_is_begun_anew_where_its_process_cannot_be_ended() {
    const RULE: &str = "[[rule]]\nmode = 'full'\ndirectory = '{top}/work'\n";
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let Some(frozen) = Frozen::mount() else {
            return;
        };
        let mut service = Service::knowing(&node, RULE);
        service.says("starts are recorded in full mode, too");
        frozen.freeze(service.process("nodeprof-lane"));
        service.says("the process of full mode ended");
        service.says("starts are recorded in full mode, too");
        records(&service, &node);
        assert_eq!(service.recordings().pop().unwrap().runs[0].mode, "full");
        // The first one is there still; nobody waits for it.
        let (ok, text) = ask(&service, None, &["reload"]);
        assert!(ok, "{text}");
        service.end();
    });
}
