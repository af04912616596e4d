//! A small recording written by hand, with one of everything.
// Not every test file uses all of it; and clippy knows only test functions as tests, not their helpers.
#![allow(dead_code, clippy::unwrap_used)]

pub mod stacked;

use std::path::Path;

use nodeprof_profile::Recording;
use nodeprof_profile::recording::*;

const START: u64 = 1_000_000_000;

fn at(microseconds: u64) -> Nanoseconds {
    Nanoseconds(START + microseconds * 1_000)
}

fn us(microseconds: u64) -> Nanoseconds {
    Nanoseconds(microseconds * 1_000)
}

struct Builder(Recording);

impl Builder {
    fn name(&mut self, text: &[u8]) -> NameId {
        let known = self.0.names.iter().position(|name| name == text);
        let index = known.unwrap_or_else(|| {
            self.0.names.push(text.to_vec());
            self.0.names.len() - 1
        });
        NameId(index as u32)
    }

    fn callback(&mut self, binding: &str, function: &str) -> CallbackId {
        let callback = Callback {
            binding: binding.into(),
            function: function.into(),
        };
        let known = self.0.callbacks.iter().position(|known| *known == callback);
        let index = known.unwrap_or_else(|| {
            self.0.callbacks.push(callback);
            self.0.callbacks.len() - 1
        });
        CallbackId(index as u32)
    }

    /// Start, duration and nested time in µs.
    #[allow(clippy::too_many_arguments)]
    fn crossing(
        &mut self,
        process: u32,
        thread: u32,
        start: u64,
        duration: Option<(u64, u64)>,
        of: (&str, &str),
        kind: CrossingKind,
        parent: Option<(&str, &str)>,
    ) {
        let callback = self.callback(of.0, of.1);
        let parent = parent.map(|(binding, function)| self.callback(binding, function));
        self.0.crossings.push(Crossing {
            process: ProcessId(process),
            thread: ThreadId(thread),
            start: at(start),
            duration: duration.map(|(total, _)| us(total)),
            self_time: duration.map(|(total, nested)| us(total - nested)),
            callback,
            kind,
            parent,
            unfinished: false,
            stack: None,
        });
    }

    fn file(
        &mut self,
        process: u32,
        start: u64,
        duration: u64,
        operation: FileOperation,
        path: &[u8],
        result: i64,
    ) {
        let path = self.name(path);
        let thread = ThreadId(self.0.processes[process as usize].pid);
        let (process, syscall) = (ProcessId(process), 0);
        self.0.files.push(FileAccess {
            process,
            thread,
            start: at(start),
            duration: us(duration),
            operation,
            syscall,
            path,
            result,
            stack: None,
        });
    }

    fn lookup(&mut self, process: u32, start: u64, path: &[u8]) {
        let path = self.name(path);
        let thread = ThreadId(self.0.processes[process as usize].pid);
        self.0.lookups.push(Lookup {
            process: ProcessId(process),
            thread,
            at: at(start),
            path,
            stack: None,
        });
    }

    #[allow(clippy::too_many_arguments)]
    fn serialization(
        &mut self,
        start: u64,
        duration: (u64, u64),
        function: &str,
        bytes: Option<u64>,
        callback: Option<(&str, &str)>,
        nested: bool,
    ) {
        let function = self.name(function.as_bytes());
        let callback = callback.map(|(binding, function)| self.callback(binding, function));
        self.0.serializations.push(Serialization {
            process: ProcessId(0),
            thread: ThreadId(100),
            start: at(start),
            duration: Some(us(duration.0)),
            self_time: Some(us(duration.0 - duration.1)),
            function,
            bytes,
            callback,
            nested,
            stack: None,
        });
    }

    fn compilation(
        &mut self,
        start: u64,
        duration: (u64, u64),
        path: &[u8],
        unit: CompilationUnit,
        cached: bool,
    ) {
        let path = self.name(path);
        self.0.compilations.push(Compilation {
            process: ProcessId(0),
            thread: ThreadId(100),
            start: at(start),
            duration: Some(us(duration.0)),
            self_time: Some(us(duration.0 - duration.1)),
            path,
            unit,
            cached,
            stack: None,
        });
    }

    fn milestones(&mut self, process: u32, thread: u32, list: &[(&str, u64)]) {
        for (name, microseconds) in list {
            self.0.milestones.push(Milestone {
                process: ProcessId(process),
                thread: ThreadId(thread),
                name: (*name).into(),
                at: at(*microseconds),
            });
        }
    }
}

/// `node app.js` with a worker thread, a shell and a second node that is killed.
pub fn small() -> Recording {
    use CrossingKind::{Construct, Fast, Getter, Slow, ToJs};
    const JS: (&str, &str) = ("(javascript)", "Execution::Invoke");
    let mut b = Builder(Recording::default());
    b.0.runs.push(Run {
        command: [&b"/usr/bin/node"[..], b"/srv/site/app.js", b"--port=80"]
            .map(<[u8]>::to_vec)
            .to_vec(),
        directory: b"/srv/site".to_vec(),
        started_unix_ns: 1_750_000_000_000_000_000,
        started: at(0),
        ended: at(78_400),
        ended_by: "exit".into(),
        mode: "full".into(),
        exit_status: Some(0),
        ..Run::default()
    });
    b.0.binaries.push(Binary {
        path: b"/usr/bin/node".to_vec(),
        build_id: Some("00ff".into()),
        node_version: Some("v20.20.2".into()),
        v8_version: Some("11.3.244.8-node.33".into()),
        arch: "x86_64".into(),
    });
    let process =
        |pid, parent: Option<u32>, forked, exec, arguments: &[&str], node, exited| Process {
            run: RunId(0),
            pid,
            parent: parent.map(ProcessId),
            forked: at(forked),
            execs: vec![Exec {
                at: at(exec),
                path: arguments[0].as_bytes().to_vec(),
                arguments: arguments
                    .iter()
                    .map(|word| word.as_bytes().to_vec())
                    .collect(),
            }],
            exited: Some(at(exited)),
            exit_status: Some(0),
            user: Some(us(40_000)),
            system: Some(us(9_000)),
            max_rss_bytes: Some(48_234_496),
            node,
            ..Process::default()
        };
    b.0.processes = vec![
        process(
            100,
            None,
            0,
            0,
            &["node", "/srv/site/app.js", "--port=80"],
            Some(BinaryId(0)),
            78_400,
        ),
        process(
            110,
            Some(0),
            45_000,
            46_000,
            &["sh", "-c", "node child.js; node child.js"],
            None,
            70_000,
        ),
        process(
            111,
            Some(1),
            47_000,
            48_000,
            &["node", "child.js"],
            Some(BinaryId(0)),
            58_000,
        ),
        process(
            112,
            Some(1),
            59_000,
            59_500,
            &["node", "child.js"],
            Some(BinaryId(0)),
            69_000,
        ),
    ];
    b.0.processes[0].uss_exit_bytes = Some(30_100_000);
    b.0.processes[3].exit_status = None;
    b.0.processes[3].signal = Some(9);
    b.0.processes[3].incomplete = Some("it was killed: calls under way have no end".into());

    b.milestones(
        0,
        100,
        &[
            ("node_start", 1_200),
            ("v8_start", 3_000),
            ("environment", 9_000),
            ("bootstrap_complete", 17_000),
            ("loop_start", 61_200),
            ("loop_exit", 77_000),
        ],
    );
    b.milestones(0, 105, &[("environment", 30_000), ("loop_start", 40_000)]);

    // As they come from the kernel: at their exit, callees before callers.
    b.crossing(
        0,
        100,
        9_500,
        Some((40, 0)),
        ("config", "getOptions"),
        Slow,
        Some(JS),
    );
    b.crossing(0, 100, 9_400, Some((7_000, 40)), JS, ToJs, None);
    b.crossing(
        0,
        100,
        20_100,
        Some((30, 0)),
        ("fs", "InternalModuleStat"),
        Slow,
        Some(JS),
    );
    b.crossing(
        0,
        100,
        20_200,
        Some((20, 0)),
        ("fs", "InternalModuleStat"),
        Slow,
        Some(JS),
    );
    b.crossing(
        0,
        100,
        21_100,
        Some((90, 0)),
        ("module_wrap", "GetStatus"),
        Getter,
        Some(JS),
    );
    b.crossing(
        0,
        100,
        21_300,
        Some((15, 0)),
        ("url", "Parse"),
        Slow,
        Some(JS),
    );
    b.crossing(
        0,
        100,
        21_050,
        Some((400, 105)),
        JS,
        ToJs,
        Some(("contextify", "ContextifyScript::New")),
    );
    b.crossing(
        0,
        100,
        21_000,
        Some((1_500, 400)),
        ("contextify", "ContextifyScript::New"),
        Construct,
        Some(JS),
    );
    b.crossing(
        0,
        100,
        30_000,
        None,
        ("buffer", "ByteLengthUtf8"),
        Fast,
        Some(JS),
    );
    b.crossing(
        0,
        100,
        30_100,
        None,
        ("buffer", "ByteLengthUtf8"),
        Fast,
        Some(JS),
    );
    b.crossing(0, 100, 18_000, Some((42_000, 1_550)), JS, ToJs, None);
    b.crossing(
        0,
        105,
        41_000,
        Some((60, 0)),
        ("fs", "InternalModuleStat"),
        Slow,
        Some(JS),
    );
    b.crossing(0, 105, 40_000, Some((5_000, 60)), JS, ToJs, None);
    b.crossing(2, 111, 50_000, Some((70, 0)), ("fs", "Open"), Slow, None);
    b.crossing(3, 112, 62_000, Some((75, 0)), ("fs", "Open"), Slow, None);
    // Called by a callback that was only summed.
    b.crossing(
        0,
        100,
        62_500,
        Some((12, 0)),
        ("fs", "FStat"),
        Slow,
        Some(("fs", "ReadFileUtf8")),
    );
    b.crossing(0, 100, 77_500, None, ("process", "ReallyExit"), Slow, None);
    b.0.crossings.last_mut().unwrap().unfinished = true;
    let sum = |callback, kind, phase, calls, total: u64, timed| CrossingSum {
        process: ProcessId(0),
        callback,
        kind,
        phase,
        calls,
        total: us(total),
        self_time: us(total),
        timed,
        stack: None,
    };
    let hot = b.callback("process", "Hrtime");
    let read = b.callback("fs", "ReadFileUtf8");
    b.0.crossing_sums
        .push(sum(hot, Slow, 4, 250_000, 25_000, 250_000));
    b.0.crossing_sums.push(sum(hot, Fast, 4, 50_000, 0, 0));
    b.0.crossing_sums
        .push(sum(read, Slow, 5, 1_000, 9_000, 1_000));

    for (start, path) in [
        (20_000, &b"/srv/site/package.json"[..]),
        (20_500, b"/srv/site/node_modules/express/package.json"),
        (20_600, b"/srv/site/node_modules/express/package.json"),
        (20_700, b"/srv/site/node_modules/express/package.json"),
        (
            20_800,
            b"/srv/site/node_modules/@scope/tool/lib/package.json",
        ),
        (
            20_900,
            b"/srv/site/node_modules/@scope/tool/lib/package.json",
        ),
    ] {
        b.lookup(0, start, path);
    }
    b.file(0, 500, 9, FileOperation::Open, b"/etc/ld.so.cache", 3);
    b.file(
        0,
        20_010,
        12,
        FileOperation::Open,
        b"/srv/site/package.json",
        3,
    );
    b.file(
        0,
        20_030,
        8,
        FileOperation::Read,
        b"/srv/site/package.json",
        412,
    );
    b.file(
        0,
        20_050,
        1,
        FileOperation::Close,
        b"/srv/site/package.json",
        0,
    );
    b.file(
        0,
        20_510,
        14,
        FileOperation::Open,
        b"/srv/site/node_modules/express/package.json",
        3,
    );
    b.file(
        0,
        20_530,
        9,
        FileOperation::Read,
        b"/srv/site/node_modules/express/package.json",
        2_708,
    );
    b.file(
        0,
        20_810,
        6,
        FileOperation::Open,
        b"/srv/site/node_modules/@scope/tool/lib/package.json",
        -2,
    );
    for start in [20_100, 20_200, 22_000] {
        b.file(
            0,
            start,
            3,
            FileOperation::Stat,
            b"/srv/site/node_modules/express/index.js",
            0,
        );
    }
    b.file(
        0,
        22_100,
        2,
        FileOperation::Stat,
        b"/srv/site/evil\x1b[31m\nname; 12\xff",
        -2,
    );
    b.file(0, 22_200, 2, FileOperation::Access, b"/srv/site/.env", -2);
    b.file(
        0,
        22_300,
        2,
        FileOperation::Readlink,
        b"/srv/site/node_modules",
        -22,
    );
    b.file(0, 23_000, 4, FileOperation::Read, b"fd:17", 100);
    b.file(1, 46_500, 5, FileOperation::Open, b"/etc/ld.so.cache", 3);

    b.serialization(
        9_510,
        (10, 0),
        "String::NewFromUtf8",
        Some(200),
        Some(("config", "getOptions")),
        false,
    );
    b.serialization(
        21_310,
        (5, 0),
        "String::NewFromUtf8",
        Some(60),
        Some(("url", "Parse")),
        false,
    );
    b.serialization(
        25_000,
        (300, 0),
        "String::NewFromUtf8",
        Some(60_000),
        None,
        true,
    );
    b.serialization(24_900, (900, 300), "JSON::Parse", Some(60_000), None, false);
    let function = b.name(b"String::WriteUtf8");
    b.0.serialization_sums.push(SerializationSum {
        process: ProcessId(0),
        function,
        callback: Some(read),
        phase: 5,
        calls: 1_000,
        bytes: 2_000_000,
        total: us(1_200),
        self_time: us(1_200),
        stack: None,
    });

    b.compilation(
        10_000,
        (200, 0),
        b"node:internal/bootstrap/node",
        CompilationUnit::Builtin,
        true,
    );
    b.compilation(
        18_500,
        (350, 0),
        b"node:fs",
        CompilationUnit::Builtin,
        false,
    );
    b.compilation(
        19_000,
        (2_400, 0),
        b"/srv/site/app.js",
        CompilationUnit::Function,
        false,
    );
    b.compilation(
        24_000,
        (900, 0),
        b"/srv/site/node_modules/express/index.js",
        CompilationUnit::Function,
        false,
    );
    b.compilation(
        26_000,
        (700, 0),
        b"file:///srv/site/lib/module.mjs",
        CompilationUnit::Module,
        false,
    );

    let family = |name: &str, state: &str, reason: Option<&str>| FamilyState {
        run: RunId(0),
        name: name.into(),
        state: state.into(),
        reason: reason.map(Into::into),
    };
    b.0.families = vec![
        family("phases", "on", None),
        family("crossings", "on", None),
        family("package-json", "on", None),
        family("files", "on", None),
        family(
            "serialization",
            "partial",
            Some("3 of 41 functions are not in this binary"),
        ),
        family("compile", "on", None),
        family(
            "processes",
            "partial",
            Some("no memory sizes: /proc/PID/smaps_rollup cannot be read; type: nodeprof doctor"),
        ),
    ];
    b.0.losses = vec![
        Loss {
            run: RunId(0),
            kind: "records".into(),
            count: 12,
        },
        Loss {
            run: RunId(0),
            kind: "unmatched_exits".into(),
            count: 0,
        },
        Loss {
            run: RunId(0),
            kind: "paths_truncated".into(),
            count: 1_500,
        },
        Loss {
            run: RunId(0),
            kind: "a_new_kind".into(),
            count: 3,
        },
    ];
    b.0.probe_hits = vec![
        ProbeHits {
            run: RunId(0),
            family: "crossings".into(),
            hits: 8_000,
        },
        ProbeHits {
            run: RunId(0),
            family: "files".into(),
            hits: 400,
        },
    ];
    b.0.overheads = vec![Overhead {
        run: RunId(0),
        probe_hits: 8_400,
        ns_per_hit: 520.0,
        setup_ns: 31_000_000,
        attach_ns: 18_000_000,
    }];
    b.0
}

/// Compares with a file in tests/data, or writes it if `BLESS=1`.
pub fn golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if expected != actual {
        let line = expected
            .lines()
            .zip(actual.lines())
            .position(|(a, b)| a != b)
            .unwrap_or_else(|| expected.lines().count().min(actual.lines().count()));
        panic!(
            "tests/data/{name} differs from line {} on.\nexpected: {:?}\nactual:   {:?}\nIf the new output is right, type: BLESS=1 cargo test -p nodeprof-flamegraphs, and review the difference",
            line + 1,
            expected.lines().nth(line),
            actual.lines().nth(line),
        );
    }
}

/// The text as it is without colours.
pub fn without_escapes(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out.push_str(before);
        rest = after
            .split_once('m')
            .map(|(_, rest)| rest)
            .unwrap_or_default();
    }
    out + rest
}
