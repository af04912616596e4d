//! A large recording without a trace: for benchmarks, and for tests that need many events.

pub mod program;
mod stacks;

use crate::recording::{
    Binary, BinaryId, Callback, CallbackId, Compilation, CompilationUnit, Crossing, CrossingKind,
    Exec, FamilyState, FileAccess, FileOperation, Lookup, Loss, Milestone, NameId, Nanoseconds,
    Overhead, ProbeHits, Process, ProcessId, Recording, Run, RunId, Sample, Serialization, Span,
    ThreadId, Wait, WaitReason,
};
use stacks::Stacks;

/// Distinct callbacks; `npm --version` crosses over 64, a large program over some hundred.
const CALLBACKS: u64 = 400;
/// Distinct paths.
const PATHS: u64 = 2000;
/// CPU samples per second.
const SAMPLE_HZ: u32 = 997;
/// A read now and then waits for the disk.
const SAMPLES_PER_WAIT: usize = 8;
/// Distinct C++ functions that serialize.
const FUNCTIONS: u64 = 24;

/// Numbers that look random and are the same each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % limit
    }

    /// Small numbers are far more frequent than large ones, as callbacks and paths are.
    fn skewed(&mut self, limit: u64) -> u64 {
        let bound = self.below(limit) + 1;
        self.below(bound)
    }
}

impl Recording {
    /// One run of `npm` with a shell and a second node, and `crossings` crossings; other events in proportion.
    ///
    /// Deterministic. Instants nest and follow each other as in a real trace, so that every figure is consistent.
    pub fn synthetic(crossings: usize) -> Recording {
        let mut recording = Recording::default();
        describe(&mut recording);
        // Every eighth path is a package.json.
        let modules = (0..PATHS).filter(|index| index % 8 != 0);
        let modules = modules.map(|index| NameId(index as u32)).collect();
        let mut stacks = Stacks::new(&mut recording, modules);
        let mut numbers = Numbers(1);
        let started = recording.runs[0].started.0;
        // The main process makes three quarters of the crossings, its child the rest.
        let child = crossings / 4;
        let shares = [(ProcessId(0), crossings - child), (ProcessId(2), child)];
        let mut ended = started;
        for (process, share) in shares {
            let start = recording.processes[process.0 as usize].execs[0].at.0;
            let thread = ThreadId(recording.processes[process.0 as usize].pid);
            stacks.begin(&mut recording, thread);
            let end = events(
                &mut recording,
                &mut numbers,
                &mut stacks,
                process,
                share,
                start,
            );
            let of = &mut recording.processes[process.0 as usize];
            of.exited = Some(Nanoseconds(end));
            of.exit_status = Some(0);
            ended = ended.max(end);
        }
        recording.processes[1].exited = Some(Nanoseconds(ended));
        recording.processes[1].exit_status = Some(0);
        recording.runs[0].ended = Nanoseconds(ended);
        count_hits(&mut recording);
        recording
    }
}

fn describe(recording: &mut Recording) {
    const START: u64 = 5_000_000_000_000;
    recording.runs.push(Run {
        command: vec![b"npm".to_vec(), b"run".to_vec(), b"build".to_vec()],
        directory: b"/home/user/project".to_vec(),
        started_unix_ns: 1_750_000_000_000_000_000,
        started: Nanoseconds(START),
        ended_by: "exit".into(),
        mode: "full".into(),
        exit_status: Some(0),
        sample_hz: Some(SAMPLE_HZ),
        labels: vec![("synthetic".into(), "yes".into())],
        ..Run::default()
    });
    recording.binaries.push(Binary {
        path: b"/usr/bin/node".to_vec(),
        build_id: Some("0123456789abcdef0123456789abcdef01234567".into()),
        node_version: Some("v20.20.2".into()),
        v8_version: Some("11.3.244.8-node.33".into()),
        arch: "x86_64".into(),
    });
    let process = |pid: u32, parent, at: u64, path: &str, arguments: &[&str], node| Process {
        run: RunId(0),
        pid,
        parent,
        forked: Nanoseconds(START + at),
        execs: vec![Exec {
            at: Nanoseconds(START + at + if pid == 1000 { 0 } else { 400_000 }),
            path: path.into(),
            arguments: arguments.iter().map(|&text| text.into()).collect(),
        }],
        user: Some(Nanoseconds(60_000_000)),
        system: Some(Nanoseconds(20_000_000)),
        max_rss_bytes: Some(60 << 20),
        uss_exit_bytes: Some(30 << 20),
        node,
        ..Process::default()
    };
    let node = Some(BinaryId(0));
    recording.processes = vec![
        process(
            1000,
            None,
            0,
            "/usr/bin/node",
            &["node", "/usr/bin/npm", "run", "build"],
            node,
        ),
        process(
            1010,
            Some(ProcessId(0)),
            90_000_000,
            "/usr/bin/sh",
            &["sh", "-c", "node build.js"],
            None,
        ),
        process(
            1011,
            Some(ProcessId(1)),
            92_000_000,
            "/usr/bin/node",
            &["node", "build.js"],
            node,
        ),
    ];
    const BINDINGS: [&str; 10] = [
        "fs",
        "module_wrap",
        "contextify",
        "util",
        "buffer",
        "config",
        "errors",
        "modules",
        "timers",
        "url",
    ];
    recording.callbacks = (0..CALLBACKS)
        .map(|index| Callback {
            binding: BINDINGS[index as usize % BINDINGS.len()].into(),
            function: format!("Function{index}"),
        })
        .collect();
    recording.names = (0..PATHS)
        .map(|index| {
            let package = index / 8;
            let file = match index % 8 {
                0 => "package.json".to_owned(),
                module => format!("lib/module-{module}.js"),
            };
            format!("/home/user/project/node_modules/package-{package}/{file}").into_bytes()
        })
        .chain((0..FUNCTIONS).map(|index| format!("String::New{index}").into_bytes()))
        .chain(["snapshot".into()])
        .collect();
    for name in [
        "phases",
        "crossings",
        "package-json",
        "files",
        "serialization",
        "compile",
        "processes",
    ] {
        recording.families.push(FamilyState {
            run: RunId(0),
            name: name.into(),
            state: "on".into(),
            reason: None,
        });
    }
    recording.losses.push(Loss {
        run: RunId(0),
        kind: "records".into(),
        count: 0,
    });
}

/// The events of one process; returns when it ended.
fn events(
    recording: &mut Recording,
    numbers: &mut Numbers,
    stacks: &mut Stacks,
    process: ProcessId,
    crossings: usize,
    exec: u64,
) -> u64 {
    let thread = ThreadId(recording.processes[process.0 as usize].pid);
    let mut milestone = |name: &str, at: u64| {
        recording.milestones.push(Milestone {
            process,
            thread,
            name: name.into(),
            at: Nanoseconds(at),
        });
    };
    milestone("environment", exec + 13_000_000);
    milestone("node_start", exec + 2_800_000);
    milestone("v8_start", exec + 4_500_000);
    recording.spans.push(Span {
        process,
        thread,
        name: NameId((PATHS + FUNCTIONS) as u32),
        start: Nanoseconds(exec + 6_000_000),
        duration: Some(Nanoseconds(4_000_000)),
    });

    let mut now = exec + 16_000_000;
    let mut tick = now;
    let mut made = 0;
    let mut due = [
        (crossings / 20, "bootstrap_complete"),
        (crossings / 10 * 9, "loop_start"),
    ]
    .into_iter()
    .peekable();
    while made < crossings {
        if let Some((_, name)) = due.next_if(|&(after, _)| made >= after) {
            recording.milestones.push(Milestone {
                process,
                thread,
                name: name.into(),
                at: Nanoseconds(now),
            });
        }
        now += 200 + numbers.below(2000);
        let nested = (numbers.below(4) as usize).min(crossings - made - 1);
        outer_crossing(
            recording, numbers, stacks, process, thread, &mut now, nested,
        );
        made += 1 + nested;
        stacks.step();
        while tick < now {
            let sample = Sample {
                process,
                thread,
                at: Nanoseconds(tick),
                weight: Nanoseconds(1_000_000_000 / u64::from(SAMPLE_HZ)),
                stack: stacks.sample(recording),
            };
            recording.samples.push(sample);
            tick += sample.weight.0;
            if recording.samples.len().is_multiple_of(SAMPLES_PER_WAIT) {
                recording.waits.push(Wait {
                    process,
                    thread,
                    start: Nanoseconds(now),
                    duration: Nanoseconds(40_000),
                    runnable: Nanoseconds(5_000),
                    reason: WaitReason::File,
                    syscall: Some(0),
                    stack: sample.stack,
                });
            }
        }
    }
    recording.milestones.push(Milestone {
        process,
        thread,
        name: "loop_exit".into(),
        at: Nanoseconds(now + 1_000_000),
    });
    now + 2_000_000
}

/// A crossing with `nested` crossings in it, one after the other; written at their ends, as a recorder does.
fn outer_crossing(
    recording: &mut Recording,
    numbers: &mut Numbers,
    stacks: &mut Stacks,
    process: ProcessId,
    thread: ThreadId,
    now: &mut u64,
    nested: usize,
) {
    let start = *now;
    let callback = CallbackId(numbers.skewed(CALLBACKS) as u32);
    let stack = stacks.function(recording);
    let mut inside = 0;
    *now += 100;
    for _ in 0..nested {
        let kind = match numbers.below(16) {
            0 => CrossingKind::Getter,
            1 => CrossingKind::Construct,
            2 => CrossingKind::ToJs,
            3 => CrossingKind::Fast,
            _ => CrossingKind::Slow,
        };
        let duration = 300 + numbers.skewed(20_000);
        let timed = kind != CrossingKind::Fast;
        let at = *now;
        let inner = CallbackId(numbers.skewed(CALLBACKS) as u32);
        if numbers.below(8) == 0 {
            recording.serializations.push(Serialization {
                process,
                thread,
                start: Nanoseconds(at + 50),
                duration: Some(Nanoseconds(duration / 4)),
                self_time: Some(Nanoseconds(duration / 4)),
                function: NameId((PATHS + numbers.skewed(FUNCTIONS)) as u32),
                bytes: Some(numbers.skewed(4096)),
                callback: Some(inner),
                nested: false,
                stack,
            });
        }
        recording.crossings.push(Crossing {
            process,
            thread,
            start: Nanoseconds(at),
            duration: timed.then_some(Nanoseconds(duration)),
            self_time: timed.then_some(Nanoseconds(duration)),
            callback: inner,
            kind,
            parent: Some(callback),
            unfinished: false,
            stack,
        });
        if timed {
            inside += duration;
        }
        *now += duration + 50;
    }
    let path = NameId(numbers.skewed(PATHS) as u32);
    if numbers.below(4) == 0 {
        let operation = match numbers.below(8) {
            0 => FileOperation::Open,
            1 => FileOperation::Read,
            2 => FileOperation::Readlink,
            3 => FileOperation::Close,
            _ => FileOperation::Stat,
        };
        let duration = 500 + numbers.skewed(5000);
        let failed = numbers.below(4) == 0;
        let stack = stacks.loader(recording);
        recording.files.push(FileAccess {
            process,
            thread,
            start: Nanoseconds(*now),
            duration: Nanoseconds(duration),
            operation,
            // statx; the number matters to nothing here.
            syscall: 332,
            path,
            result: if failed {
                -2
            } else {
                numbers.skewed(8192) as i64
            },
            stack,
        });
        *now += duration + 50;
    }
    if numbers.below(40) == 0 {
        let stack = stacks.loader(recording);
        recording.lookups.push(Lookup {
            process,
            thread,
            at: Nanoseconds(*now),
            // Every eighth path is a package.json.
            path: NameId(path.0 / 8 * 8),
            stack,
        });
    }
    if numbers.below(200) == 0 {
        let duration = 20_000 + numbers.skewed(400_000);
        let other = path;
        let (stack, path) = stacks.compile(recording).unzip();
        recording.compilations.push(Compilation {
            process,
            thread,
            start: Nanoseconds(*now),
            duration: Some(Nanoseconds(duration)),
            self_time: Some(Nanoseconds(duration)),
            path: path.unwrap_or(other),
            unit: CompilationUnit::Function,
            cached: numbers.below(4) == 0,
            stack,
        });
        *now += duration + 50;
    }
    *now += 200;
    let duration = *now - start;
    recording.crossings.push(Crossing {
        process,
        thread,
        start: Nanoseconds(start),
        duration: Some(Nanoseconds(duration)),
        self_time: Some(Nanoseconds(duration - inside)),
        callback,
        kind: CrossingKind::Slow,
        parent: None,
        unfinished: false,
        stack,
    });
}

fn count_hits(recording: &mut Recording) {
    let families = [
        ("crossings", 2 * recording.crossings.len()),
        ("package-json", recording.lookups.len()),
        ("files", 2 * recording.files.len()),
        ("serialization", 2 * recording.serializations.len()),
        ("compile", 2 * recording.compilations.len()),
    ];
    let mut overhead = Overhead {
        run: RunId(0),
        ns_per_hit: 450.0,
        setup_ns: 40_000_000,
        attach_ns: 12_000_000,
        ..Overhead::default()
    };
    for (family, hits) in families {
        overhead.probe_hits += hits as u64;
        recording.probe_hits.push(ProbeHits {
            run: RunId(0),
            family: family.into(),
            hits: hits as u64,
        });
    }
    recording.overheads.push(overhead);
}
