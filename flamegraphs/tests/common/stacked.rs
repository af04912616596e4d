//! A small recording with stacks, written by hand: an application with packages installed by npm and by pnpm.

use std::collections::HashMap;

use nodeprof_profile::Recording;
use nodeprof_profile::recording::*;

const START: u64 = 2_000_000_000;

/// Microseconds since the exec.
pub fn at(microseconds: u64) -> Nanoseconds {
    Nanoseconds(START + microseconds * 1_000)
}

pub fn us(microseconds: u64) -> Nanoseconds {
    Nanoseconds(microseconds * 1_000)
}

pub const MAIN: (ProcessId, ThreadId) = (ProcessId(0), ThreadId(100));
pub const WORKER: (ProcessId, ThreadId) = (ProcessId(0), ThreadId(105));
pub const POOL: (ProcessId, ThreadId) = (ProcessId(0), ThreadId(107));
pub const CHILD: (ProcessId, ThreadId) = (ProcessId(1), ThreadId(110));

/// A recording under construction.
#[derive(Default)]
pub struct Stacked {
    pub recording: Recording,
    names: HashMap<Vec<u8>, NameId>,
    frames: HashMap<Frame, FrameId>,
    stacks: HashMap<(Option<StackId>, FrameId, bool), StackId>,
}

impl Stacked {
    pub fn name(&mut self, text: &str) -> NameId {
        let next = NameId(self.names.len() as u32);
        let id = *self.names.entry(text.into()).or_insert(next);
        if id == next {
            self.recording.names.push(text.into());
        }
        id
    }

    pub fn frame(&mut self, frame: Frame) -> FrameId {
        let next = FrameId(self.frames.len() as u32);
        let id = *self.frames.entry(frame).or_insert(next);
        if id == next {
            self.recording.frames.push(frame);
        }
        id
    }

    pub fn code(&mut self, kind: FrameKind, function: &str, file: Option<&str>) -> Frame {
        let function = self.name(function);
        let file = file.map(|file| self.name(file));
        Frame::new(kind, function, file)
    }

    /// From `c:name`, `l:name`, `k:name`, `b:name`, `top:FILE@LINE`, `js:NAME:FILE:BEGIN@LINE`.
    pub fn parse(&mut self, text: &str) -> FrameId {
        let (kind, rest) = text.split_once(' ').unwrap();
        let node = "/usr/bin/node";
        let frame = match kind {
            "c" => self.code(FrameKind::Native, rest, Some(node)),
            "l" => self.code(
                FrameKind::Library,
                rest,
                Some("/lib/x86_64-linux-gnu/libc.so.6"),
            ),
            "k" => self.code(FrameKind::Kernel, rest, None),
            "b" => self.code(FrameKind::Builtin, rest, None),
            "top" | "js" => {
                let (place, line) = rest.rsplit_once('@').unwrap();
                let (function, place) = match kind {
                    "top" => ("", place),
                    _ => place.split_once(' ').unwrap(),
                };
                let (file, begin) = match kind {
                    "top" => (place, 1),
                    _ => {
                        let (file, begin) = place.rsplit_once(':').unwrap();
                        (file, begin.parse().unwrap())
                    }
                };
                Frame {
                    line: line.parse().ok(),
                    column: Some(5),
                    function_line: Some(begin),
                    function_column: Some(10),
                    tier: Some(Tier::Interpreted),
                    top_level: kind == "top",
                    ..self.code(FrameKind::JavaScript, function, Some(file))
                }
            }
            _ => panic!("{text}"),
        };
        self.frame(frame)
    }

    /// The stack of frames as [`Stacked::parse`] takes them, outermost first.
    pub fn stack(&mut self, frames: &[&str]) -> Option<StackId> {
        frames.iter().fold(None, |caller, frame| {
            let frame = self.parse(frame);
            Some(self.on(caller, frame))
        })
    }

    pub fn on(&mut self, caller: Option<StackId>, frame: FrameId) -> StackId {
        let next = StackId(self.stacks.len() as u32);
        let id = *self.stacks.entry((caller, frame, false)).or_insert(next);
        if id == next {
            self.recording.stacks.push(Stack {
                caller,
                frame,
                truncated: false,
            });
        }
        id
    }

    pub fn sample(&mut self, of: (ProcessId, ThreadId), when: u64, stack: Option<StackId>) {
        self.recording.samples.push(Sample {
            process: of.0,
            thread: of.1,
            at: at(when),
            weight: us(1_000),
            stack,
        });
    }

    pub fn wait(
        &mut self,
        of: (ProcessId, ThreadId),
        start: u64,
        duration: (u64, u64),
        reason: WaitReason,
        stack: Option<StackId>,
    ) {
        self.recording.waits.push(Wait {
            process: of.0,
            thread: of.1,
            start: at(start),
            duration: us(duration.0),
            runnable: us(duration.1),
            reason,
            syscall: Some(0),
            stack,
        });
    }

    pub fn crossing(
        &mut self,
        of: (ProcessId, ThreadId),
        start: u64,
        duration: Option<u64>,
        callback: u32,
        kind: CrossingKind,
        stack: Option<StackId>,
    ) {
        self.recording.crossings.push(Crossing {
            process: of.0,
            thread: of.1,
            start: at(start),
            duration: duration.map(us),
            self_time: duration.map(us),
            callback: CallbackId(callback),
            kind,
            parent: None,
            unfinished: false,
            stack,
        });
    }
}

const LOADER: &str = "js Module._load node:internal/modules/cjs/loader:950@1021";

/// `node app.js`, which requires express (npm) and debug (pnpm), in a main thread with a worker, a pool thread, and a child.
pub fn stacked() -> Recording {
    let mut s = Stacked::default();
    let process = |pid, parent, start, end, script: &str| Process {
        run: RunId(0),
        pid,
        parent,
        forked: at(start),
        execs: vec![Exec {
            at: at(start),
            path: b"/usr/bin/node".to_vec(),
            arguments: vec![b"node".to_vec(), script.into()],
        }],
        exited: Some(at(end)),
        exit_status: Some(0),
        node: Some(BinaryId(0)),
        ..Process::default()
    };
    s.recording.runs.push(Run {
        command: vec![b"node".to_vec(), b"app.js".to_vec()],
        directory: b"/srv/site".to_vec(),
        started_unix_ns: 1_750_000_000_000_000_000,
        started: at(0),
        ended: at(50_000),
        ended_by: "exit".into(),
        mode: "full".into(),
        exit_status: Some(0),
        sample_hz: Some(1_000),
        ..Run::default()
    });
    s.recording.binaries.push(Binary {
        path: b"/usr/bin/node".to_vec(),
        build_id: Some("00ff".into()),
        node_version: Some("v20.20.2".into()),
        v8_version: None,
        arch: "x86_64".into(),
    });
    s.recording.processes = vec![
        process(100, None, 0, 50_000, "app.js"),
        process(110, Some(ProcessId(0)), 30_000, 45_000, "child.js"),
    ];
    for (of, list) in [
        (
            MAIN,
            &[
                ("node_start", 1_000),
                ("v8_start", 2_000),
                ("environment", 5_000),
                ("bootstrap_complete", 10_000),
                ("loop_start", 40_000),
                ("loop_exit", 48_000),
            ][..],
        ),
        (WORKER, &[("environment", 20_000)][..]),
        (
            CHILD,
            &[("node_start", 31_000), ("environment", 33_000)][..],
        ),
    ] {
        for (name, when) in list {
            s.recording.milestones.push(Milestone {
                process: of.0,
                thread: of.1,
                name: (*name).into(),
                at: at(*when),
            });
        }
    }
    for (binding, function) in [
        ("fs", "InternalModuleStat"),
        ("contextify", "CompileFunction"),
        ("buffer", "ByteLength"),
        ("(javascript)", "Execution::Invoke"),
    ] {
        s.recording.callbacks.push(Callback {
            binding: binding.into(),
            function: function.into(),
        });
    }
    let main = "c main";
    let start = "c node::Start(int, char**)";
    let invoke = "c v8::internal::(anonymous namespace)::Invoke(v8::internal::Isolate*, v8::internal::(anonymous namespace)::InvokeParams const&)";
    let app = "top /srv/site/app.js@3";
    let express = "top /srv/site/node_modules/express/lib/express.js@15";
    let router = "js next /srv/site/node_modules/express/lib/router/index.js:46@60";
    let debug = "top /srv/site/node_modules/.pnpm/debug@4.3.4/node_modules/debug/src/index.js@7";
    let read = "l read";
    let vfs = "k vfs_read";
    let base = [main, start, invoke, "b JSEntry"];
    let with = |more: &[&'static str]| -> Vec<&str> {
        base.iter().copied().chain(more.iter().copied()).collect()
    };

    let bootstrap = s.stack(&[main, start, "c node::CreateMainEnvironment(node::Isolate*)"]);
    let in_app = s.stack(&with(&[app]));
    let in_express = s.stack(&with(&[app, LOADER, express]));
    let in_debug = s.stack(&with(&[app, LOADER, express, LOADER, debug]));
    let resolving = s.stack(&with(&[app, LOADER, express, LOADER]));
    let routing = s.stack(&with(&[app, LOADER, express, router, "b ArrayMap", router]));
    let reading = s.stack(&with(&[app, LOADER, express, LOADER, read, vfs]));
    let compiling = s.stack(&with(&[
        app,
        LOADER,
        "c v8::internal::Compiler::GetFunctionFromEval(int)",
        "c v8::internal::Factory::New()",
    ]));
    let collecting = s.stack(&with(&[
        app,
        LOADER,
        express,
        "c v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace)",
        "c v8::internal::ScavengerCollector::CollectGarbage()",
        "l memcpy",
        "k page_fault",
    ]));

    s.sample(MAIN, 3_000, bootstrap);
    s.sample(MAIN, 4_000, bootstrap);
    s.sample(MAIN, 12_000, in_app);
    s.sample(MAIN, 13_000, in_express);
    s.sample(MAIN, 14_000, resolving);
    s.sample(MAIN, 15_000, in_debug);
    s.sample(MAIN, 16_000, in_express);
    s.sample(MAIN, 17_000, routing);
    s.sample(MAIN, 18_000, compiling);
    s.sample(MAIN, 19_000, collecting);
    s.sample(MAIN, 41_500, None);
    s.sample(WORKER, 22_000, in_debug);
    let on_the_pool = s.stack(&["l start_thread", "c uv__fs_work(uv__work*)", read, vfs]);
    s.sample(POOL, 23_000, on_the_pool);
    s.sample(CHILD, 35_000, in_app);
    s.wait(MAIN, 20_000, (2_000, 500), WaitReason::File, reading);
    // It lasts from one phase into the next.
    s.wait(MAIN, 39_000, (2_500, 0), WaitReason::Idle, bootstrap);
    s.wait(POOL, 24_000, (20_000, 0), WaitReason::Lock, None);

    use CrossingKind::{Construct, Fast, Getter, Slow, ToJs};
    s.crossing(MAIN, 12_100, Some(30), 0, Slow, resolving);
    s.crossing(MAIN, 12_200, Some(20), 0, Slow, resolving);
    s.crossing(MAIN, 12_300, Some(900), 1, Construct, in_app);
    s.crossing(MAIN, 13_300, None, 2, Fast, routing);
    s.crossing(MAIN, 13_400, Some(5), 2, Getter, routing);
    s.crossing(MAIN, 11_000, Some(8_000), 3, ToJs, bootstrap);
    s.crossing(WORKER, 22_000, Some(7), 0, Slow, in_debug);
    s.crossing(MAIN, 6_000, Some(4), 0, Slow, None);
    s.recording.crossing_sums.push(CrossingSum {
        process: ProcessId(0),
        callback: CallbackId(2),
        kind: Slow,
        phase: 4,
        calls: 100,
        total: us(200),
        self_time: us(200),
        timed: 100,
        stack: routing,
    });
    let manifest = s.name("/srv/site/node_modules/express/package.json");
    let script = s.name("/srv/site/node_modules/express/lib/express.js");
    for (operation, start) in [(FileOperation::Stat, 12_110), (FileOperation::Open, 12_500)] {
        s.recording.files.push(FileAccess {
            process: MAIN.0,
            thread: MAIN.1,
            start: at(start),
            duration: us(10),
            operation,
            syscall: 0,
            path: manifest,
            result: 0,
            stack: resolving,
        });
    }
    s.recording.lookups.push(Lookup {
        process: MAIN.0,
        thread: MAIN.1,
        at: at(12_500),
        path: manifest,
        stack: resolving,
    });
    let function = s.name("String::NewFromUtf8");
    s.recording.serializations.push(Serialization {
        process: MAIN.0,
        thread: MAIN.1,
        start: at(12_120),
        duration: Some(us(3)),
        self_time: Some(us(3)),
        function,
        bytes: Some(30),
        callback: Some(CallbackId(0)),
        nested: false,
        stack: resolving,
    });
    s.recording.compilations.push(Compilation {
        process: MAIN.0,
        thread: MAIN.1,
        start: at(12_300),
        duration: Some(us(800)),
        self_time: Some(us(800)),
        path: script,
        unit: CompilationUnit::Function,
        cached: false,
        stack: in_app,
    });
    s.recording
}

/// The same as without stacks: a run in count mode, or one that was thinned.
pub fn stackless() -> Recording {
    let mut recording = stacked();
    macro_rules! forget {
        ($($family:ident),*) => {
            $(for event in &mut recording.$family {
                event.stack = None;
            })*
        };
    }
    forget!(
        samples,
        waits,
        crossings,
        crossing_sums,
        files,
        lookups,
        serializations
    );
    forget!(serialization_sums, compilations);
    recording
}
