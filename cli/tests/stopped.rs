//! A program that is stopped for a moment, until its probes exist, is not harmed by it, whoever dies meanwhile, and nobody
//! but nodeprof sees it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that fails says where"
)]

mod faults_support;

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use faults_support::{
    Folder, adopt_orphans, build, children, code, command, copy_program::copy_program, load, reap,
    run, signal, soon, trace, wait,
};

const VERSION: &str = "24.21.0";

/// A node binary that no trace knows of, and an empty cache: it takes 0.1 s and more to make its plan.
struct Unknown {
    folder: Folder,
    node: PathBuf,
}

impl Unknown {
    fn new() -> Option<Unknown> {
        let folder = Folder::new();
        let node = folder.path("javascript");
        copy_program(build(VERSION)?, &node);
        Some(Unknown { folder, node })
    }

    /// Traces a shell that runs the binary with `-e SOURCE`: what the shell does with it is `$RUN`.
    fn trace(&self, script: &str, source: &str) -> Command {
        let cache = self.folder.path("cache");
        let _ = fs::remove_dir_all(&cache);
        let mut traced = trace(&self.folder.path("t.nodeprof"));
        traced
            .env("XDG_CACHE_HOME", cache)
            .env("UNKNOWN", &self.node)
            .env("SOURCE", source)
            .current_dir(&self.folder.0)
            .args(["--", "sh", "-c", script]);
        traced
    }

    /// Starts a trace and waits until the binary's process is stopped; gives the tracer, the holder and that process.
    fn stopped(&self, source: &str) -> (Child, u32, u32) {
        let mut tracer = self
            .trace("\"$UNKNOWN\" -e \"$SOURCE\"; exit $?", source)
            .stdout(fs::File::create(self.folder.path("out")).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut found = None;
        let seen = soon(Duration::from_secs(10), || {
            let of_tracer = children(tracer.id());
            let holder = of_tracer.iter().find(|c| c.1 == "nodeprof-holder");
            let shell = of_tracer.iter().find(|c| c.1 == "sh");
            found = shell.and_then(|shell| {
                let process = children(shell.0).into_iter().find(|c| state(c.0) == 't')?;
                Some((holder?.0, process.0))
            });
            found.is_some()
        });
        if !seen {
            let _ = tracer.kill();
            panic!("the program was not stopped");
        }
        let (holder, process) = found.unwrap();
        (tracer, holder, process)
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.folder.path("out")).unwrap_or_default()
    }
}

/// `R`, `S`, `t` (stopped by ptrace) …; a space if it has ended.
fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let tail = stat.rsplit_once(')').map_or("", |(_, t)| t);
    tail.trim_start().chars().next().unwrap_or(' ')
}

const PROGRAM: &str = "console.log('ran'); process.exitCode = 5";

#[test]
#[ignore = "needs root"]
fn the_program_goes_on_if_the_holder_is_killed_while_it_is_stopped() {
    let Some(unknown) = Unknown::new() else {
        return;
    };
    let (mut tracer, holder, _) = unknown.stopped(PROGRAM);
    signal(holder, libc::SIGKILL);
    assert_eq!(code(wait(&mut tracer).unwrap()), 5);
    assert_eq!(unknown.printed(), "ran\n");
    let recording = load(&unknown.folder.path("t.nodeprof"));
    let told = recording
        .losses
        .iter()
        .any(|l| l.kind == "holder_ended" && l.count == 1);
    assert!(told, "{:?}", recording.losses);
}

#[test]
#[ignore = "needs root"]
fn the_program_goes_on_if_nodeprof_is_killed_while_it_is_stopped() {
    let Some(unknown) = Unknown::new() else {
        return;
    };
    adopt_orphans();
    let (mut tracer, holder, _) = unknown.stopped(PROGRAM);
    let shell = children(tracer.id()).into_iter().find(|c| c.1 == "sh");
    signal(tracer.id(), libc::SIGKILL);
    wait(&mut tracer).unwrap();
    assert!(
        reap(holder, Duration::from_secs(1)).is_some(),
        "the holder hangs around"
    );
    let status = reap(shell.unwrap().0, Duration::from_secs(10));
    assert_eq!(code(status.expect("the program hangs")), 5);
    assert_eq!(unknown.printed(), "ran\n");
}

#[test]
#[ignore = "needs root"]
fn a_program_that_is_killed_while_it_is_stopped_is_gone_at_once() {
    let Some(unknown) = Unknown::new() else {
        return;
    };
    let (mut tracer, _, process) = unknown.stopped(PROGRAM);
    let begun = Instant::now();
    signal(process, libc::SIGKILL);
    assert!(soon(Duration::from_secs(5), || state(process) == ' '));
    // Its parent is told before the plan is made, which takes longer.
    println!("its parent knew after {:?}", begun.elapsed());
    assert_eq!(code(wait(&mut tracer).unwrap()), 137);
    assert_eq!(unknown.printed(), "");
    let recording = load(&unknown.folder.path("t.nodeprof"));
    assert_eq!(recording.processes.len(), 2, "{:?}", recording.processes);
    let killed = recording
        .processes
        .iter()
        .find(|p| p.pid == process)
        .unwrap();
    assert_eq!((killed.signal, &killed.incomplete), (Some(9), &None));
}

#[test]
#[ignore = "needs root"]
fn a_signal_that_comes_while_it_is_stopped_is_delivered_afterwards() {
    let Some(unknown) = Unknown::new() else {
        return;
    };
    let (mut tracer, _, process) = unknown.stopped(PROGRAM);
    signal(process, libc::SIGTERM);
    assert_eq!(code(wait(&mut tracer).unwrap()), 128 + libc::SIGTERM);
    assert_eq!(unknown.printed(), "", "it ends before its main");
}

#[test]
#[ignore = "needs root"]
fn its_parent_sees_nothing_of_the_stop() {
    let Some(unknown) = Unknown::new() else {
        return;
    };
    if !Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success())
    {
        println!("skipped: python3 is not installed");
        return;
    }
    // Asks to be told of stops and continuations, as a shell does, and counts what it is told.
    let parent = unknown.folder.file(
        "parent.py",
        "import os, signal, sys
told = []
signal.signal(signal.SIGCHLD, lambda *_: told.append(1))
pid = os.fork()
if pid == 0:
    os.execv(os.environ['UNKNOWN'], ['javascript', '-e', os.environ['SOURCE']])
seen = []
while True:
    try:
        _, status = os.waitpid(pid, os.WUNTRACED | os.WCONTINUED)
    except InterruptedError:
        continue
    seen.append('stopped' if os.WIFSTOPPED(status) else 'continued' if os.WIFCONTINUED(status) else 'ended')
    if seen[-1] == 'ended':
        break
print(seen, len(told))
sys.exit(os.waitstatus_to_exitcode(status))
",
    );
    let script = format!("exec python3 {}", parent.display());
    let bare = run(command("sh")
        .args(["-c", &script])
        .env("UNKNOWN", &unknown.node)
        .env("SOURCE", PROGRAM));
    assert_eq!(bare.stdout(), "ran\n['ended'] 1\n", "{}", bare.stderr());
    let traced = run(&mut unknown.trace(&script, PROGRAM));
    assert_eq!(traced.stdout(), bare.stdout(), "{}", traced.stderr());
    assert_eq!(traced.code(), 5);
    let recording = load(&unknown.folder.path("t.nodeprof"));
    assert!(recording.processes.iter().all(|p| p.incomplete.is_none()));
    assert!(!recording.crossings.is_empty());
}

#[test]
#[ignore = "needs root"]
fn a_program_that_is_being_debugged_is_left_alone_and_its_record_says_so() {
    let Some(unknown) = Unknown::new() else {
        return;
    };
    if !Command::new("strace")
        .arg("-V")
        .output()
        .is_ok_and(|o| o.status.success())
    {
        println!("skipped: strace is not installed");
        return;
    }
    let script = "strace -f -o log \"$UNKNOWN\" -e \"$SOURCE\"";
    let traced = run(&mut unknown.trace(script, PROGRAM));
    assert_eq!(
        (traced.code(), traced.stdout()),
        (5, "ran\n".into()),
        "{}",
        traced.stderr()
    );
    let log = fs::read_to_string(unknown.folder.path("log")).unwrap();
    assert!(log.contains("exited with 5"), "{log}");
    let recording = load(&unknown.folder.path("t.nodeprof"));
    let incomplete = recording
        .processes
        .iter()
        .filter_map(|p| p.incomplete.as_deref());
    let incomplete: Vec<&str> = incomplete.collect();
    assert_eq!(incomplete.len(), 1, "{incomplete:?}");
    assert!(
        incomplete[0].contains("could not be stopped"),
        "{incomplete:?}"
    );
}
