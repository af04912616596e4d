//! Recordings for the tests.
#![allow(dead_code, clippy::unwrap_used)]

use nodeprof_profile::recording::*;

const START: u64 = 1_000_000_000;

fn at(ns: u64) -> Nanoseconds {
    Nanoseconds(START + ns)
}

fn ns(ns: u64) -> Option<Nanoseconds> {
    Some(Nanoseconds(ns))
}

/// A shell that starts node, which starts a program that is not node. Every table has a row, every figure can be
/// computed in the head.
pub fn small() -> Recording {
    let (main, shell) = (ProcessId(1), ProcessId(0));
    let thread = ThreadId(101);
    let [stat, read, spawn, emit] = [0, 1, 2, 3].map(CallbackId);
    let [app_json, odd_json, index, new_string, snapshot, stringify] =
        [0, 1, 2, 3, 4, 5].map(NameId);
    let milestone = |name: &str, thread: u32, ns| Milestone {
        process: main,
        thread: ThreadId(thread),
        name: name.into(),
        at: at(ns),
    };
    let crossing =
        |start, duration: Option<u64>, self_time: Option<u64>, callback, kind| Crossing {
            process: main,
            thread,
            start: at(start),
            duration: duration.map(Nanoseconds),
            self_time: self_time.map(Nanoseconds),
            callback,
            kind,
            parent: None,
            unfinished: false,
            stack: None,
        };
    let access = |start, duration, operation, path, result| FileAccess {
        process: main,
        thread,
        start: at(start),
        duration: Nanoseconds(duration),
        operation,
        syscall: 332,
        path,
        result,
        stack: None,
    };
    let lookup = |ns, path| Lookup {
        process: main,
        thread,
        at: at(ns),
        path,
        stack: None,
    };
    let frame = Frame::new;
    let stack = |caller: Option<u32>, frame, truncated| Stack {
        caller: caller.map(StackId),
        frame: FrameId(frame),
        truncated,
    };
    Recording {
        runs: vec![Run {
            command: vec![b"sh".to_vec(), b"-c".to_vec(), b"node \xff.js".to_vec()],
            directory: b"/srv/app".to_vec(),
            started_unix_ns: 1_700_000_000_000_000_000,
            started: at(0),
            ended: at(100_000),
            ended_by: "exit".into(),
            mode: "full".into(),
            exit_status: Some(3),
            signal: None,
            labels: vec![("side".into(), "base".into())],
            sample_hz: Some(997),
        }],
        binaries: vec![Binary {
            path: b"/opt/node/bin/node".to_vec(),
            build_id: Some("abcdef".into()),
            node_version: Some("v24.1.0".into()),
            v8_version: Some("13.6.233.8-node.20".into()),
            arch: "x86_64".into(),
        }],
        processes: vec![
            Process {
                pid: 100,
                forked: Nanoseconds(START - 500),
                execs: vec![Exec {
                    at: at(0),
                    path: b"/bin/sh".to_vec(),
                    arguments: vec![b"sh".to_vec(), b"-c".to_vec(), b"node \xff.js".to_vec()],
                }],
                exited: Some(at(100_000)),
                exit_status: Some(3),
                user: ns(100),
                system: ns(50),
                max_rss_bytes: Some(1 << 20),
                ..Process::default()
            },
            Process {
                pid: 101,
                parent: Some(shell),
                forked: at(1_000),
                execs: vec![Exec {
                    at: at(2_000),
                    path: b"/opt/node/bin/node".to_vec(),
                    arguments: vec![b"node".to_vec(), b"\xff.js".to_vec()],
                }],
                exited: Some(at(92_000)),
                exit_status: Some(3),
                user: ns(40_000),
                system: ns(9_000),
                max_rss_bytes: Some(40 << 20),
                uss_loop_start_bytes: Some(20 << 20),
                uss_exit_bytes: Some(21 << 20),
                node: Some(BinaryId(0)),
                ..Process::default()
            },
            Process {
                pid: 102,
                parent: Some(main),
                forked: at(70_000),
                signal: Some(9),
                exited: Some(at(80_000)),
                incomplete: Some("killed while it was being attached to".into()),
                ..Process::default()
            },
        ],
        callbacks: [
            ("fs", "InternalModuleStat"),
            ("fs", "Read"),
            ("spawn_sync", "Spawn"),
            ("(to js)", "emit"),
        ]
        .map(|(binding, function)| Callback {
            binding: binding.into(),
            function: function.into(),
        })
        .into(),
        names: vec![
            b"/srv/app/package.json".to_vec(),
            b"/srv/\xffodd/package.json".to_vec(),
            b"/srv/app/index.js".to_vec(),
            b"String::NewFromUtf8".to_vec(),
            b"snapshot".to_vec(),
            b"JSON::Stringify".to_vec(),
            b"/srv/app".to_vec(),
            b"start".to_vec(),
            b"/opt/node/bin/node".to_vec(),
            b"/srv/app/src/index.ts".to_vec(),
            b"".to_vec(),
            b"/srv/app/node_modules/lib/index.js".to_vec(),
        ],
        // In the order in which Node notes them; a worker (thread 105) has its own.
        milestones: vec![
            milestone("environment", 101, 12_000),
            milestone("node_start", 101, 4_000),
            milestone("v8_start", 101, 6_000),
            milestone("bootstrap_complete", 101, 22_000),
            milestone("environment", 105, 30_000),
            milestone("loop_start", 101, 62_000),
            milestone("loop_exit", 101, 90_000),
        ],
        spans: vec![Span {
            process: main,
            thread,
            name: snapshot,
            start: at(7_000),
            duration: ns(3_000),
        }],
        crossings: vec![
            // Inside the phase `bootstrap`, one inside the other.
            Crossing {
                parent: Some(read),
                ..crossing(14_100, Some(500), Some(500), stat, CrossingKind::Slow)
            },
            crossing(14_000, Some(1_000), Some(500), read, CrossingKind::Slow),
            // `main_script`.
            Crossing {
                stack: Some(StackId(1)),
                ..crossing(30_000, Some(700), Some(700), stat, CrossingKind::Slow)
            },
            crossing(31_000, None, None, stat, CrossingKind::Fast),
            crossing(32_000, None, None, stat, CrossingKind::Fast),
            crossing(33_000, Some(80), Some(80), read, CrossingKind::Getter),
            crossing(34_000, Some(90), Some(90), read, CrossingKind::Construct),
            // `loop`.
            crossing(65_000, Some(4_000), Some(4_000), emit, CrossingKind::ToJs),
            Crossing {
                unfinished: true,
                ..crossing(66_000, None, None, spawn, CrossingKind::Slow)
            },
        ],
        crossing_sums: vec![CrossingSum {
            process: main,
            callback: stat,
            kind: CrossingKind::Slow,
            // After the fourth milestone: `main_script`.
            phase: 4,
            calls: 1_000,
            total: Nanoseconds(600_000),
            self_time: Nanoseconds(500_000),
            timed: 1_000,
            stack: Some(StackId(2)),
        }],
        lookups: vec![
            lookup(15_000, app_json),
            Lookup {
                stack: Some(StackId(1)),
                ..lookup(35_000, app_json)
            },
            lookup(36_000, odd_json),
        ],
        files: vec![
            access(15_100, 10, FileOperation::Stat, app_json, 0),
            access(15_200, 20, FileOperation::Open, app_json, 17),
            access(15_300, 30, FileOperation::Read, app_json, 400),
            access(15_400, 40, FileOperation::Read, app_json, 0),
            access(15_500, 5, FileOperation::Close, app_json, 0),
            access(35_100, 25, FileOperation::Open, app_json, 17),
            FileAccess {
                stack: Some(StackId(1)),
                ..access(36_100, 15, FileOperation::Open, odd_json, -2)
            },
            access(40_000, 50, FileOperation::Stat, index, 0),
            access(40_100, 60, FileOperation::Readlink, index, -22),
            access(40_200, 70, FileOperation::Access, index, 0),
        ],
        serializations: vec![
            Serialization {
                process: main,
                thread,
                start: at(14_200),
                duration: ns(100),
                self_time: ns(60),
                function: stringify,
                bytes: Some(64),
                callback: Some(read),
                nested: false,
                stack: None,
            },
            Serialization {
                process: main,
                thread,
                start: at(14_220),
                duration: ns(40),
                self_time: ns(40),
                function: new_string,
                bytes: Some(32),
                callback: Some(read),
                nested: true,
                stack: None,
            },
            Serialization {
                process: main,
                thread,
                start: at(50_000),
                duration: ns(10),
                self_time: ns(10),
                function: new_string,
                bytes: None,
                callback: None,
                nested: false,
                stack: Some(StackId(2)),
            },
        ],
        serialization_sums: vec![SerializationSum {
            process: main,
            function: new_string,
            callback: Some(stat),
            phase: 4,
            calls: 20,
            bytes: 2_000,
            total: Nanoseconds(900),
            self_time: Nanoseconds(900),
            stack: Some(StackId(2)),
        }],
        compilations: vec![
            Compilation {
                process: main,
                thread,
                start: at(25_000),
                duration: ns(2_000),
                self_time: ns(1_500),
                path: index,
                unit: CompilationUnit::Function,
                cached: false,
                stack: Some(StackId(0)),
            },
            Compilation {
                process: main,
                thread,
                start: at(25_500),
                duration: ns(500),
                self_time: ns(500),
                path: snapshot,
                unit: CompilationUnit::Builtin,
                cached: true,
                stack: None,
            },
        ],
        packages: vec![Package {
            run: RunId(0),
            directory: NameId(6),
            name: Some("app".into()),
            version: Some("1.2.3".into()),
        }],
        frames: vec![
            frame(FrameKind::Native, NameId(7), Some(NameId(8))),
            Frame {
                line: Some(3),
                column: Some(7),
                function_line: Some(1),
                function_column: Some(1),
                original: Some(OriginalPosition {
                    file: NameId(9),
                    line: 12,
                    column: 4,
                }),
                tier: Some(Tier::Interpreted),
                top_level: true,
                ..frame(FrameKind::JavaScript, NameId(10), Some(index))
            },
            Frame {
                tier: Some(Tier::Optimized),
                inlined: true,
                inlining_possible: true,
                ..frame(FrameKind::JavaScript, NameId(7), None)
            },
            // Of a second file: the script is a bundle.
            Frame {
                original: Some(OriginalPosition {
                    file: NameId(11),
                    line: 1,
                    column: 1,
                }),
                ..frame(FrameKind::JavaScript, NameId(7), Some(index))
            },
        ],
        stacks: vec![
            stack(None, 0, true),
            stack(Some(0), 1, false),
            stack(Some(1), 2, false),
            stack(Some(0), 3, false),
        ],
        samples: vec![
            Sample {
                process: main,
                thread,
                at: at(41_000),
                weight: Nanoseconds(1_000),
                stack: Some(StackId(2)),
            },
            Sample {
                process: main,
                thread: ThreadId(105),
                at: at(42_000),
                weight: Nanoseconds(1_000),
                stack: None,
            },
        ],
        waits: vec![Wait {
            process: main,
            thread,
            start: at(43_000),
            duration: Nanoseconds(900),
            runnable: Nanoseconds(100),
            reason: WaitReason::Child,
            syscall: Some(61),
            stack: Some(StackId(1)),
        }],
        imports: vec![Import {
            process: main,
            thread,
            at: at(44_000),
            requirer: NameId(9),
            loaded: index,
        }],
        continuations: vec![Continuation {
            process: main,
            thread,
            start: at(45_000),
            duration: Some(Nanoseconds(600)),
            requested: at(44_500),
            stack: Some(StackId(3)),
        }],
        families: vec![
            FamilyState {
                run: RunId(0),
                name: "crossings".into(),
                state: "on".into(),
                reason: None,
            },
            FamilyState {
                run: RunId(0),
                name: "compile".into(),
                state: "partial".into(),
                reason: Some("a symbol is missing".into()),
            },
        ],
        losses: vec![Loss {
            run: RunId(0),
            kind: "paths_truncated".into(),
            count: 2,
        }],
        probe_hits: vec![ProbeHits {
            run: RunId(0),
            family: "crossings".into(),
            hits: 17,
        }],
        overheads: vec![Overhead {
            run: RunId(0),
            probe_hits: 40,
            ns_per_hit: 12.5,
            setup_ns: 30_000_000,
            attach_ns: 11_000_000,
        }],
        figures: vec![KeptFigure {
            run: RunId(0),
            name: "a.figure".into(),
            value: 3.0,
        }],
    }
}

/// Turns bytes into a recording, so that proptest can make and shrink one.
pub struct Fuel<'a>(pub &'a [u8]);

impl Fuel<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                self.0 = rest;
                byte
            }
            None => 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit.max(1)
    }

    /// Small, large and extreme numbers.
    fn number(&mut self) -> u64 {
        match self.byte() {
            0 => u64::MAX,
            1 => u64::MAX / 2 + 1,
            2 => u64::MAX / 2,
            small @ 3..128 => u64::from(small),
            _ => (0..6).fold(0, |number, _| number << 8 | u64::from(self.byte())),
        }
    }

    fn ns(&mut self) -> Nanoseconds {
        Nanoseconds(self.number())
    }

    fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| make(self))
    }

    fn some<T>(&mut self, most: usize, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    fn bytes(&mut self) -> Vec<u8> {
        match self.below(6) {
            0 => b"/a/package.json".to_vec(),
            1 => b"package.json".to_vec(),
            2 => "/\u{e9}\u{1f600}".into(),
            _ => self.some(9, Self::byte),
        }
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    fn kind(&mut self) -> CrossingKind {
        use CrossingKind::*;
        [Slow, Fast, Getter, Construct, ToJs][self.below(5)]
    }

    /// Every index points to something; everything else is arbitrary.
    pub fn recording(mut self) -> Recording {
        let fuel = &mut self;
        let runs = fuel.some(3, |fuel| Run {
            command: fuel.some(3, Self::bytes),
            directory: fuel.bytes(),
            started_unix_ns: fuel.number(),
            started: fuel.ns(),
            ended: fuel.ns(),
            ended_by: fuel.text(),
            mode: fuel.text(),
            exit_status: fuel.maybe(|fuel| fuel.number() as i32),
            signal: fuel.maybe(|fuel| fuel.number() as i32),
            labels: fuel.some(2, |fuel| (fuel.text(), fuel.text())),
            sample_hz: fuel.maybe(|fuel| fuel.number() as u32),
        });
        let binaries = fuel.some(2, |fuel| Binary {
            path: fuel.bytes(),
            build_id: fuel.maybe(Self::text),
            node_version: fuel.maybe(Self::text),
            v8_version: fuel.maybe(Self::text),
            arch: fuel.text(),
        });
        let mut recording = Recording {
            runs,
            binaries,
            callbacks: fuel.some(4, |fuel| Callback {
                binding: fuel.text(),
                function: fuel.text(),
            }),
            names: fuel.some(6, Self::bytes),
            ..Recording::default()
        };
        fuel.stacks(&mut recording);
        if recording.runs.is_empty() {
            return recording;
        }
        let runs = recording.runs.len();
        let run = |fuel: &mut Self| RunId(fuel.below(runs) as u32);
        for index in 0..fuel.below(5) {
            let run = run(fuel);
            let parent = fuel.below(index + 1);
            let of_same_run = recording
                .processes
                .get(parent)
                .is_some_and(|p| p.run == run);
            let binary = fuel.below(recording.binaries.len() + 1);
            let process = Process {
                run,
                pid: fuel.below(5) as u32,
                parent: of_same_run.then_some(ProcessId(parent as u32)),
                forked: fuel.ns(),
                execs: fuel.some(3, |fuel| Exec {
                    at: fuel.ns(),
                    path: fuel.bytes(),
                    arguments: fuel.some(3, Self::bytes),
                }),
                exited: fuel.maybe(Self::ns),
                exit_status: fuel.maybe(|fuel| fuel.number() as i32),
                signal: fuel.maybe(|fuel| fuel.number() as i32),
                user: fuel.maybe(Self::ns),
                system: fuel.maybe(Self::ns),
                max_rss_bytes: fuel.maybe(Self::number),
                uss_loop_start_bytes: fuel.maybe(Self::number),
                uss_exit_bytes: fuel.maybe(Self::number),
                node: (binary < recording.binaries.len()).then_some(BinaryId(binary as u32)),
                incomplete: fuel.maybe(Self::text),
            };
            recording.processes.push(process);
        }
        recording.families = fuel.some(2, |fuel| FamilyState {
            run: run(fuel),
            name: fuel.text(),
            state: fuel.text(),
            reason: fuel.maybe(Self::text),
        });
        recording.losses = fuel.some(3, |fuel| Loss {
            run: run(fuel),
            kind: fuel.text(),
            count: fuel.number(),
        });
        recording.probe_hits = fuel.some(3, |fuel| ProbeHits {
            run: run(fuel),
            family: fuel.text(),
            hits: fuel.number(),
        });
        recording.overheads = fuel.some(3, |fuel| Overhead {
            run: run(fuel),
            probe_hits: fuel.number(),
            ns_per_hit: fuel.number() as f64 / 7.0,
            setup_ns: fuel.number(),
            attach_ns: fuel.number(),
        });
        recording.figures = fuel.some(3, |fuel| KeptFigure {
            run: run(fuel),
            name: fuel.text(),
            value: fuel.number() as f64 / 3.0,
        });
        let (processes, callbacks, names) = (
            recording.processes.len(),
            recording.callbacks.len(),
            recording.names.len(),
        );
        if processes == 0 || callbacks == 0 || names == 0 {
            return recording;
        }
        let process = |fuel: &mut Self| ProcessId(fuel.below(processes) as u32);
        let thread = |fuel: &mut Self| ThreadId(fuel.below(5) as u32);
        let callback = |fuel: &mut Self| CallbackId(fuel.below(callbacks) as u32);
        let name = |fuel: &mut Self| NameId(fuel.below(names) as u32);
        let stacks = recording.stacks.len();
        let stack = |fuel: &mut Self| {
            // None of them, as often as each.
            let stack = fuel.below(stacks + 1);
            (stack < stacks).then_some(StackId(stack as u32))
        };
        recording.milestones = fuel.some(8, |fuel| Milestone {
            process: process(fuel),
            thread: thread(fuel),
            name: [
                "environment",
                "node_start",
                "v8_start",
                "bootstrap_complete",
                "loop_start",
                "loop_exit",
                "exec",
                "other",
            ][fuel.below(8)]
            .into(),
            at: fuel.ns(),
        });
        recording.spans = fuel.some(3, |fuel| Span {
            process: process(fuel),
            thread: thread(fuel),
            name: name(fuel),
            start: fuel.ns(),
            duration: fuel.maybe(Self::ns),
        });
        recording.crossings = fuel.some(80, |fuel| Crossing {
            process: process(fuel),
            thread: thread(fuel),
            start: fuel.ns(),
            duration: fuel.maybe(Self::ns),
            self_time: fuel.maybe(Self::ns),
            callback: callback(fuel),
            kind: fuel.kind(),
            parent: fuel.maybe(callback),
            unfinished: fuel.flag(),
            stack: stack(fuel),
        });
        recording.crossing_sums = fuel.some(4, |fuel| CrossingSum {
            process: process(fuel),
            callback: callback(fuel),
            kind: fuel.kind(),
            phase: fuel.byte(),
            calls: fuel.number(),
            total: fuel.ns(),
            self_time: fuel.ns(),
            timed: fuel.number(),
            stack: stack(fuel),
        });
        recording.lookups = fuel.some(5, |fuel| Lookup {
            process: process(fuel),
            thread: thread(fuel),
            at: fuel.ns(),
            path: name(fuel),
            stack: stack(fuel),
        });
        recording.files = fuel.some(8, |fuel| {
            use FileOperation::*;
            FileAccess {
                process: process(fuel),
                thread: thread(fuel),
                start: fuel.ns(),
                duration: fuel.ns(),
                operation: [Stat, Open, Read, Readlink, Close, Access][fuel.below(6)],
                syscall: fuel.number() as u16,
                path: name(fuel),
                result: fuel.number() as i64,
                stack: stack(fuel),
            }
        });
        recording.serializations = fuel.some(5, |fuel| Serialization {
            process: process(fuel),
            thread: thread(fuel),
            start: fuel.ns(),
            duration: fuel.maybe(Self::ns),
            self_time: fuel.maybe(Self::ns),
            function: name(fuel),
            bytes: fuel.maybe(Self::number),
            callback: fuel.maybe(callback),
            nested: fuel.flag(),
            stack: stack(fuel),
        });
        recording.serialization_sums = fuel.some(3, |fuel| SerializationSum {
            process: process(fuel),
            function: name(fuel),
            callback: fuel.maybe(callback),
            phase: fuel.byte(),
            calls: fuel.number(),
            bytes: fuel.number(),
            total: fuel.ns(),
            self_time: fuel.ns(),
            stack: stack(fuel),
        });
        recording.compilations = fuel.some(4, |fuel| {
            use CompilationUnit::*;
            Compilation {
                process: process(fuel),
                thread: thread(fuel),
                start: fuel.ns(),
                duration: fuel.maybe(Self::ns),
                self_time: fuel.maybe(Self::ns),
                path: name(fuel),
                unit: [Builtin, Function, Module, Script][fuel.below(4)],
                cached: fuel.flag(),
                stack: stack(fuel),
            }
        });
        recording.samples = fuel.some(20, |fuel| Sample {
            process: process(fuel),
            thread: thread(fuel),
            at: fuel.ns(),
            weight: fuel.ns(),
            stack: stack(fuel),
        });
        recording.waits = fuel.some(5, |fuel| {
            use WaitReason::*;
            Wait {
                process: process(fuel),
                thread: thread(fuel),
                start: fuel.ns(),
                duration: fuel.ns(),
                runnable: fuel.ns(),
                reason: [File, PageFault, Child, Lock, Idle, Preempted, Other][fuel.below(7)],
                syscall: fuel.maybe(|fuel| fuel.number() as u16),
                stack: stack(fuel),
            }
        });
        recording.imports = fuel.some(4, |fuel| Import {
            process: process(fuel),
            thread: thread(fuel),
            at: fuel.ns(),
            requirer: name(fuel),
            loaded: name(fuel),
        });
        recording.continuations = fuel.some(4, |fuel| Continuation {
            process: process(fuel),
            thread: thread(fuel),
            start: fuel.ns(),
            duration: fuel.maybe(Self::ns),
            requested: fuel.ns(),
            stack: stack(fuel),
        });
        recording.packages = fuel.some(3, |fuel| Package {
            run: run(fuel),
            directory: name(fuel),
            name: fuel.maybe(Self::text),
            version: fuel.maybe(Self::text),
        });
        recording
    }

    /// Frames, and stacks of them.
    fn stacks(&mut self, recording: &mut Recording) {
        use FrameKind::*;
        let names = recording.names.len();
        if names == 0 {
            return;
        }
        let name = |fuel: &mut Self| NameId(fuel.below(names) as u32);
        let position = |fuel: &mut Self| fuel.maybe(|fuel| fuel.number() as u32);
        recording.frames = self.some(10, |fuel| Frame {
            kind: [JavaScript, Builtin, Native, Library, AddOn, Kernel, Unknown][fuel.below(7)],
            function: name(fuel),
            file: fuel.maybe(name),
            line: position(fuel),
            column: position(fuel),
            function_line: position(fuel),
            function_column: position(fuel),
            original: fuel.maybe(|fuel| OriginalPosition {
                file: name(fuel),
                line: fuel.number() as u32,
                column: fuel.number() as u32,
            }),
            tier: fuel
                .maybe(|fuel| [Tier::Interpreted, Tier::Baseline, Tier::Optimized][fuel.below(3)]),
            top_level: fuel.flag(),
            inlined: fuel.flag(),
            inlining_possible: fuel.flag(),
        });
        if recording.frames.is_empty() {
            return;
        }
        for index in 0..self.below(30) {
            let stack = Stack {
                caller: match index {
                    0 => None,
                    _ => self.maybe(|fuel| StackId(fuel.below(index) as u32)),
                },
                frame: FrameId(self.below(recording.frames.len()) as u32),
                truncated: self.flag(),
            };
            recording.stacks.push(stack);
        }
    }
}

/// The recording as schema 1 could have held it.
pub fn without_stacks(mut recording: Recording) -> Recording {
    for run in &mut recording.runs {
        run.sample_hz = None;
    }
    macro_rules! forget {
        ($($events:ident),*) => {
            $(recording.$events.iter_mut().for_each(|event| event.stack = None);)*
        };
    }
    forget!(
        crossings,
        crossing_sums,
        lookups,
        files,
        serializations,
        serialization_sums,
        compilations
    );
    Recording {
        packages: Vec::new(),
        frames: Vec::new(),
        stacks: Vec::new(),
        samples: Vec::new(),
        waits: Vec::new(),
        imports: Vec::new(),
        continuations: Vec::new(),
        figures: Vec::new(),
        ..recording
    }
}

/// The bytes of a recording's file.
pub fn saved(recording: &Recording) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    recording.save(&path, Default::default()).unwrap();
    std::fs::read(path).unwrap()
}

/// A program whose files are in `/app`, as a bundler would have made one script of it: all its functions stand in that, and of those that are mapped a source map
/// tells where they come from.
pub fn bundled(recording: &mut Recording, bundle: &str, is_mapped: impl Fn(&str) -> bool) {
    recording.names.push(bundle.into());
    let script = NameId(recording.names.len() as u32 - 1);
    for index in 0..recording.frames.len() {
        let frame = recording.frames[index];
        let path = frame.file.map(|file| recording.name(file));
        let path = path.map(|path| String::from_utf8(path.to_vec()).unwrap());
        if let (FrameKind::JavaScript, Some(path)) = (frame.kind, path)
            && path.starts_with("/app/")
        {
            let original = OriginalPosition {
                file: frame.file.unwrap(),
                line: 1,
                column: 1,
            };
            recording.frames[index].original = is_mapped(&path).then_some(original);
            recording.frames[index].file = Some(script);
        }
    }
}
