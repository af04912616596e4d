//! Children that run a node binary nobody knew of: not on PATH, in no list, seen by no earlier trace.

use std::{collections::BTreeSet, fs, path::Path};

use nodeprof_profile::{
    Recording,
    recording::{Process, ProcessId},
};
use tempfile::TempDir;

use crate::processes::of_another_version;
use crate::support::{
    Node, Trace, Traced, copy_program, folder, has_tool, list, number, on_each_node, text, write,
};

on_each_node!(undisturbed:
    a_node_binary_that_nobody_knew_of_is_recorded_whole,
    many_processes_of_an_unknown_binary_are_recorded_whole,
    its_main_waits_for_who_stops_it,
);

/// As many versions of binaries as records tell apart: each change of the file's time makes one. Those beyond are told.
#[test]
#[ignore = "needs root"]
fn a_trace_meets_as_many_node_binaries_as_records_tell_apart_and_tells_of_others() {
    const MOST: usize = 256; // MAX_IMAGES of records.h
    const BEYOND: usize = 3;
    let Some(node) = Node::find("22.23.3") else {
        return;
    };
    let unknown = Unknown::new(&node);
    let all = MOST + BEYOND;
    let shell = format!(
        "i=0; while [ $i -lt {all} ]; do touch -d \"@$((1700000000 + i))\" \"$UNKNOWN\"; \"$UNKNOWN\" \"$SCRIPT\"; i=$((i + 1)); done"
    );
    let traced = unknown.trace_with(["--mode", "count"], ["sh", "-c", &shell].map(str::to_owned));
    assert_eq!(traced.stdout(), "300\n".repeat(all));
    let processes = list(&traced.run["processes"]);
    let whole = processes.iter().filter(|p| unknown.is_run_by(p));
    assert_eq!(whole.filter(|p| p["incomplete"].is_null()).count(), MOST);
    let told = "more than 256 different node binaries at a time";
    let of_others = |p: &&serde_json::Value| {
        p["incomplete"]
            .as_str()
            .is_some_and(|why| why.contains(told))
    };
    assert_eq!(processes.iter().filter(of_others).count(), BEYOND);
}

/// Its path leads to another version here.
#[test]
#[ignore = "needs root"]
fn a_node_of_another_mount_namespace_has_the_names_of_its_own_version() {
    assert_names_of_another_mount_namespace("");
}

/// The tracer does not come to look at it before it has ended, and its mount namespace with it.
#[test]
#[ignore = "needs root"]
fn a_node_that_has_ended_with_its_mount_namespace_has_its_names() {
    assert_names_of_another_mount_namespace(
        "tracer=$PPID; (sleep 1; kill -CONT $tracer) & kill -STOP $tracer; ",
    );
}

/// `first`: what the shell does before.
fn assert_names_of_another_mount_namespace(first: &str) {
    let (Some(inside), Some(here)) = (Node::find("20.20.2"), Node::find("24.21.0")) else {
        return;
    };
    if !has_tool("unshare") {
        return;
    }
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    copy_program(&inside.path, path("inside"));
    copy_program(&here.path, path("node"));
    let [inside, node] = ["inside", "node"].map(|name| path(name).display().to_string());
    let shell = format!(
        "{first}mount --bind '{inside}' '{node}' && exec '{node}' -p 'process.version + [1, 2, 3].map(() => process.uptime()).length'"
    );
    let program = ["unshare", "-m", "sh", "-c", &shell].map(str::to_owned);
    let traced = Trace::new::<&str, _>([], program).run();
    traced.succeeded();
    assert_eq!(traced.stdout(), "v20.20.23\n");
    assert_eq!(
        traced.run["node"]["version"], "v20.20.2",
        "{}",
        traced.run["node"]
    );
    let callbacks = list(&traced.run["crossings"]["callbacks"]);
    let uptime = callbacks
        .iter()
        .find(|c| text(&c["function"]).ends_with("Uptime"));
    assert_eq!(
        uptime.map(|c| number(&c["calls"])),
        Some(3),
        "{callbacks:?}"
    );
}

/// A copy of a build where no trace looks for one, with the program that it shall run.
struct Unknown {
    folder: TempDir,
    node: Node,
    script: String,
}

impl Unknown {
    fn new(node: &Node) -> Unknown {
        let folder = folder();
        let path = folder.path().join("tools/of its own/javascript");
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        copy_program(&node.path, &path);
        let script = write(
            folder.path(),
            "child.js",
            "let sum = 0; for (let i = 0; i < 300; i++) sum += process.uptime() > 0; console.log(sum);",
        );
        Unknown {
            folder,
            node: Node {
                version: node.version,
                path,
            },
            script,
        }
    }

    /// Traces a program. The cache is a new one: it knows no binary, and no plan.
    fn trace(&self, program: impl IntoIterator<Item = String>) -> Traced {
        self.trace_with([], program)
    }

    fn trace_with<const N: usize>(
        &self,
        options: [&str; N],
        program: impl IntoIterator<Item = String>,
    ) -> Traced {
        let cache = tempfile::tempdir_in(self.folder.path()).expect("a folder");
        let mut trace = Trace::new(options, program);
        trace
            .command()
            .env("XDG_CACHE_HOME", cache.path())
            .env("NODEPROF_NODE_BUILDS", "/nonexistent")
            .env("UNKNOWN", &self.node.path)
            .env("SCRIPT", &self.script);
        let traced = trace.run();
        traced.succeeded();
        traced
    }

    /// Crossings of the copy with a script when it is traced itself: its command line names it, so it is known.
    fn alone(&self, script: &str) -> u64 {
        let traced = self.trace(self.node.command([script]));
        assert_eq!(traced.stdout(), "300\n");
        number(&traced.run["crossings"]["total"])
    }

    fn is_run_by(&self, process: &serde_json::Value) -> bool {
        !process["node"].is_null() && process["command"][1] == self.script.as_str()
    }
}

/// The process in the recording, which has more than the report.
fn recorded<'r>(recording: &'r Recording, process: &serde_json::Value) -> (ProcessId, &'r Process) {
    let pid = number(&process["pid"]) as u32;
    let found = recording.processes.iter().position(|p| p.pid == pid);
    let index = found.expect("a process of the report");
    (ProcessId(index as u32), &recording.processes[index])
}

/// Milestones of a process, by name.
fn milestones(recording: &Recording, process: ProcessId) -> BTreeSet<&str> {
    let mine = recording.milestones.iter().filter(|m| m.process == process);
    mine.map(|m| m.name.as_str()).collect()
}

fn a_node_binary_that_nobody_knew_of_is_recorded_whole(node: &Node) {
    let unknown = Unknown::new(node);
    let alone = unknown.alone(&unknown.script);
    // The kernel splits a `#!` line at a space: through a link without one.
    let link = unknown.folder.path().join("link");
    std::os::unix::fs::symlink(&unknown.node.path, &link).expect("a link");
    let body = fs::read_to_string(&unknown.script).expect("the script");
    let shebang = write(
        unknown.folder.path(),
        "with a shebang line",
        &format!("#!{}\n{body}", link.display()),
    );

    let parent = |source: &str| {
        let spawn = "const { spawnSync } = require('child_process');
             const { UNKNOWN, SCRIPT } = process.env;
             const run = (...words) => process.stdout.write(spawnSync(words[0], words.slice(1)).stdout);";
        // Another line of Node is the parent: nothing of it is known of the child's.
        of_another_version(node).map(|other| other.command(["-e", &format!("{spawn} {source}")]))
    };
    let shell = |script: &str| Some(["sh", "-c", script].map(str::to_owned).to_vec());
    let posix_spawn = || {
        let script = "import os, sys\n\
             pid = os.posix_spawn(os.environ['UNKNOWN'], [os.environ['UNKNOWN'], os.environ['SCRIPT']], os.environ)\n\
             sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";
        has_tool("python3").then(|| ["python3", "-c", script].map(str::to_owned).to_vec())
    };
    let ways = [
        ("spawnSync", parent("run(UNKNOWN, SCRIPT);")),
        (
            "a shell",
            parent("run('sh', '-c', '\"$UNKNOWN\" \"$SCRIPT\"; true');"),
        ),
        ("exec of a shell", shell("exec \"$UNKNOWN\" \"$SCRIPT\"")),
        ("env", parent("run('env', 'A=B', UNKNOWN, SCRIPT);")),
        (
            "a relative path",
            shell("cd \"${UNKNOWN%/*}\"; ./javascript \"$SCRIPT\"; true"),
        ),
        (
            "a link",
            shell(&format!("'{}' \"$SCRIPT\"; true", link.display())),
        ),
        ("posix_spawn", posix_spawn()),
    ];
    for (way, program) in ways {
        let Some(program) = program else { continue };
        let traced = unknown.trace(program);
        assert_eq!(traced.stdout(), "300\n", "{way}: {}", traced.stderr());
        traced.lost_nothing();
        let child = traced.process(way, |p| unknown.is_run_by(p));
        assert_eq!(text(&child["node"]), format!("v{}", node.version), "{way}");
        assert_eq!(number(&child["crossings"]), alone, "{way}");
        let recording = Recording::load(&traced.recording).expect("a recording");
        let (id, process) = recorded(&recording, child);
        let seen = milestones(&recording, id);
        for name in [
            "environment",
            "node_start",
            "v8_start",
            "bootstrap_complete",
            "loop_start",
        ] {
            assert!(seen.contains(name), "{way}: {name} is missing in {seen:?}");
        }
        // Its plan took more than 50 ms to make: spent before the exec, not in the program's time.
        let exec = process.execs.last().expect("an exec").at.0;
        let first = recording.milestones.iter().filter(|m| m.process == id);
        let first = first.map(|m| m.at.0).min().expect("a milestone");
        assert!(exec < first, "{way}");
        let begun = process.execs.first().map_or(process.forked.0, |e| {
            // Without a fork of its own the wait lies behind the exec of the shell.
            if process.execs.len() > 1 {
                e.at.0
            } else {
                process.forked.0
            }
        });
        assert!(
            exec - begun > 20_000_000,
            "{way}: {} ns from fork to exec",
            exec - begun
        );
    }

    // The script's own `#!` line: the program that is executed is the interpreter.
    let traced = unknown.trace(["sh", "-c", &format!("'{shebang}'; true")].map(str::to_owned));
    assert_eq!(traced.stdout(), "300\n", "{}", traced.stderr());
    traced.lost_nothing();
    let child = traced.process("a shebang line", |p| !p["node"].is_null());
    let alone = unknown.alone(&shebang);
    assert_eq!(number(&child["crossings"]), alone, "a shebang line");
}

fn many_processes_of_an_unknown_binary_are_recorded_whole(node: &Node) {
    let unknown = Unknown::new(node);
    let alone = unknown.alone(&unknown.script);
    // At once, and half of them through a second file of the same content.
    let second = unknown.folder.path().join("another");
    copy_program(&unknown.node.path, &second);
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do \"$UNKNOWN\" \"$SCRIPT\" & '{}' \"$SCRIPT\" & done; wait",
        second.display()
    );
    let traced = unknown.trace(["sh", "-c", &script].map(str::to_owned));
    assert_eq!(traced.stdout(), "300\n".repeat(20), "{}", traced.stderr());
    // 20 processes on few processors take turns more often than the limit of waits permits.
    traced.lost_nothing_but(&["waits"]);
    let runs: Vec<u64> = list(&traced.run["processes"])
        .iter()
        .filter(|p| unknown.is_run_by(p))
        .map(|p| number(&p["crossings"]))
        .collect();
    assert_eq!(runs, [alone; 20]);
}

/// Stops the holder, and lets it go on 8 ms after the copy was executed. Ahead of all others, and on another processor: what else runs here must not make that longer.
const WITHOUT_HOLDER: &str = "import os, signal, sys, time
copy, script = os.path.realpath(os.environ['UNKNOWN']), os.environ['SCRIPT']
def is_holder(pid):
    try:
        with open(f'/proc/{pid}/stat') as stat:
            return stat.read().split(' ')[1:4:2] == ['(nodeprof-holder)', str(os.getppid())]
    except OSError:
        return False # it has ended
holder = next(int(pid) for pid in os.listdir('/proc') if pid.isdigit() and is_holder(pid))
here, there = sorted(os.sched_getaffinity(0))[:2]
come, go = os.pipe()
child = os.fork()
if child == 0:
    os.sched_setaffinity(0, {there})
    os.read(come, 1)
    os.execv(copy, [copy, script])
os.sched_setaffinity(0, {here})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
os.kill(holder, signal.SIGSTOP)
os.write(go, b'.')
while os.readlink(f'/proc/{child}/exe') != copy:
    pass
time.sleep(0.008)
os.kill(holder, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";

/// As long as a main is awaited, the host of a virtual machine may take the holder's CPU away.
fn its_main_waits_for_who_stops_it(node: &Node) {
    if !has_tool("python3") {
        return;
    }
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        println!("skipped: there is one processor");
        return;
    }
    let unknown = Unknown::new(node);
    for _ in 0..3 {
        let program = ["python3", "-c", WITHOUT_HOLDER].map(str::to_owned);
        let traced = unknown.trace_with(["--mode", "count"], program);
        assert_eq!(traced.stdout(), "300\n", "{}", traced.stderr());
        traced.lost_nothing();
        traced.process("the copy", |p| unknown.is_run_by(p));
    }
}

#[test]
#[ignore = "needs root"]
fn a_program_that_had_ended_before_anybody_could_look_at_it_is_told() {
    let Some(node) = Node::find("22.23.3") else {
        return;
    };
    let unknown = Unknown::new(&node);
    if !["pgrep", "sleep"].iter().all(|tool| has_tool(tool)) {
        return;
    }
    // The shell stops the holder, which could stop nothing meanwhile.
    let shell = "holder=$(pgrep -P $PPID -x nodeprof-holder) || exit; (sleep 1; kill -CONT $holder) & kill -STOP $holder; \"$UNKNOWN\" \"$SCRIPT\"; sleep 2";
    let traced = unknown.trace_with(["--mode", "count"], ["sh", "-c", shell].map(str::to_owned));
    assert_eq!(traced.stdout(), "300\n", "{}", traced.stderr());
    let told = traced.process("the copy", |p| {
        p["command"][1] == unknown.script.as_str() && p["command"][0] != "sh"
    });
    assert!(
        text(&told["incomplete"])
            .ends_with("it had ended before anybody could look whether it is node"),
        "{told}"
    );
    assert_eq!(number(&traced.run["losses"]["beginnings_missed"]), 1);
}

#[test]
#[ignore = "needs root"]
fn a_large_program_that_is_no_node_is_left_alone() {
    let Some(node) = Node::find("22.23.3") else {
        return;
    };
    let folder = folder();
    // Larger than any shell, and an ELF program: /bin/echo with nothing behind it.
    let program = folder.path().join("large");
    let echo = ["/bin/echo", "/usr/bin/echo"].into_iter().map(Path::new);
    let Some(echo) = echo.into_iter().find(|p| p.is_file()) else {
        println!("skipped: there is no /bin/echo");
        return;
    };
    copy_program(echo, &program);
    let file = fs::OpenOptions::new()
        .append(true)
        .open(&program)
        .expect("the copy");
    file.set_len(64 << 20).expect("room");
    drop(file);
    let script = format!(
        "for i in 1 2 3; do '{large}' $i; done; exec '{node}' -e 'console.log(process.argv.length)'",
        large = program.display(),
        node = node.path.display()
    );
    let traced = Trace::new::<&str, _>([], ["sh", "-c", &script]).run();
    traced.succeeded();
    traced.lost_nothing();
    assert_eq!(traced.stdout(), "1\n2\n3\n1\n");
    let large = list(&traced.run["processes"]).iter();
    let large = large.filter(|p| p["command"][0] == program.to_str().expect("UTF-8"));
    assert_eq!(
        large.map(|p| p["node"].is_null()).collect::<Vec<_>>(),
        [true; 3]
    );
}
