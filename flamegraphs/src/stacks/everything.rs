//! All events of a run on one tree of stacks, for views that show them side by side.

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::recording::{CrossingKind, Nanoseconds, ProcessId, RunId, StackId, ThreadId};

use super::events::{Collector, Leaf, parts_of_wait};
use super::modules::{PackageOf, Packages};
use super::nodes::Nodes;
use super::{StackNode, thread_name};
use crate::drawn::Drawn;
use crate::fold::{By, Frame, Metric, ThreadClass};
use crate::select::{Selected, Selection, Threads, start_of};

/// A thread of the run.
#[derive(Clone, Debug)]
pub(crate) struct ThreadOf {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) name: String,
    /// The process's command line, in short.
    pub(crate) command: String,
    /// It runs JavaScript of the program: a main thread or a worker.
    pub(crate) javascript: bool,
}

/// An event of any family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Index into the threads.
    pub(crate) thread: u32,
    /// When it began, ns on CLOCK_MONOTONIC.
    pub(crate) at: u64,
    /// Nested events included.
    pub(crate) duration: Option<u64>,
    /// Nested events excluded.
    pub(crate) own: Option<u64>,
    /// What is known besides; the family says what it is.
    pub(crate) detail: i64,
    /// Index into the stacks.
    pub(crate) node: u32,
}

/// Calls that were only summed over a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SumOf {
    pub(crate) thread: u32,
    pub(crate) calls: u64,
    pub(crate) own: u64,
    pub(crate) node: u32,
}

/// A step of the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) thread: u32,
    pub(crate) name: String,
    pub(crate) at: u64,
    pub(crate) duration: Option<u64>,
}

/// All events of a run, family by family, by thread and time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Everything {
    pub(crate) frames: Vec<Frame>,
    /// By frame: the script that Node loaded, wherever its source map leads; empty if it has no file, `None` if it is no JavaScript.
    pub(crate) scripts: Vec<Option<String>>,
    /// By frame: the package that its script is of.
    pub(crate) packages: Vec<Option<String>>,
    pub(crate) nodes: Vec<StackNode>,
    pub(crate) threads: Vec<ThreadOf>,
    /// JavaScript to C++. `detail`: 1 if it never returned.
    pub(crate) crossings: Vec<Event>,
    /// `detail`: the result of the system call.
    pub(crate) files: Vec<Event>,
    /// Of package.json.
    pub(crate) lookups: Vec<Event>,
    /// `detail`: bytes, or -1.
    pub(crate) serializations: Vec<Event>,
    /// `detail`: 1 if the code came from a cache.
    pub(crate) compilations: Vec<Event>,
    /// CPU samples; they begin when the time that they stand for does.
    pub(crate) samples: Vec<Event>,
    /// Spans off the CPU. The innermost frame is the reason.
    pub(crate) waits: Vec<Event>,
    pub(crate) crossing_sums: Vec<SumOf>,
    pub(crate) serialization_sums: Vec<SumOf>,
    pub(crate) steps: Vec<Step>,
}

/// Collects all events of a run; nothing if there is no such run.
pub(crate) fn everything(recording: &Recording, timeline: &Timeline, run: RunId) -> Everything {
    let selection = Selection {
        threads: Some(Threads::All),
        ..Selection::default()
    };
    let selected = Selected::new(&selection, Metric::Cpu, recording, timeline, run);
    let Ok(selected) = selected else {
        return Everything::default();
    };
    let drawn = Drawn::new(recording, timeline, [run]);
    let nodes = Nodes::new(&drawn, run, By::Stack, true);
    let mut all = Gathering {
        drawn: &drawn,
        selected: &selected,
        collector: Collector::new(&drawn, &selected, nodes),
        found: Everything::default(),
    };
    all.gather();
    let Gathering {
        collector,
        mut found,
        ..
    } = all;
    found.threads = (collector.threads.iter())
        .map(|thread| ThreadOf {
            pid: thread.pid,
            tid: thread.tid.0,
            name: thread_name(thread.class, thread.pid, thread.tid),
            command: thread.command.clone(),
            javascript: thread.class != ThreadClass::Pool,
        })
        .collect();
    found.scripts = collector.nodes.scripts(drawn.bundles());
    let bundles = collector.nodes.bundles(drawn.bundles());
    let (frames, nodes) = collector.nodes.finish();
    let packages = Packages::new(recording, run, drawn.versions());
    found.packages = { found.scripts.iter().zip(&bundles) }
        .map(|(script, bundle)| {
            let bundle = bundle.as_deref();
            match (packages.of(script.as_deref()?), bundle) {
                (PackageOf::Program, Some(bundle)) => named(packages.of(bundle)),
                (of, _) => named(of),
            }
        })
        .collect();
    found.frames = frames;
    found.nodes = nodes;
    for family in [
        &mut found.crossings,
        &mut found.files,
        &mut found.lookups,
        &mut found.serializations,
        &mut found.compilations,
        &mut found.samples,
        &mut found.waits,
    ] {
        family.sort_by_key(|event| {
            let longest_first = u64::MAX - event.duration.unwrap_or_default();
            (event.thread, event.at, longest_first)
        });
    }
    found
}

/// What a package is called; the program itself is none.
fn named(package: PackageOf) -> Option<String> {
    match package {
        PackageOf::Node => Some("node".to_owned()),
        PackageOf::Named(name) => Some(name),
        PackageOf::Program => None,
    }
}

struct Gathering<'a> {
    drawn: &'a Drawn<'a>,
    selected: &'a Selected,
    collector: Collector<'a>,
    found: Everything,
}

impl Gathering<'_> {
    fn event(
        &mut self,
        process: ProcessId,
        tid: ThreadId,
        at: Nanoseconds,
        (stack, leaf): (Option<StackId>, Leaf),
    ) -> Option<Event> {
        if !self.selected.has(process, tid, at) {
            return None;
        }
        Some(Event {
            thread: self.collector.thread(process, tid),
            at: at.0,
            node: self.collector.node(stack, leaf),
            ..Event::default()
        })
    }

    fn gather(&mut self) {
        let (drawn, run) = (self.drawn, self.selected.run);
        let recording = drawn.recording;
        // Threads in the order of processes, the main one of each first.
        for (index, process) in recording.processes.iter().enumerate() {
            let id = ProcessId(index as u32);
            if self.selected.has_thread(id, ThreadId(process.pid)) {
                self.collector.thread(id, ThreadId(process.pid));
            }
        }
        for of in drawn.crossings(run) {
            let leaf = Leaf::Call(of.callback, of.kind);
            if of.kind != CrossingKind::ToJs
                && let Some(event) = self.event(of.process, of.thread, of.start, (of.stack, leaf))
            {
                self.found.crossings.push(Event {
                    duration: of.duration.map(|ns| ns.0),
                    own: of.self_time.or(of.duration).map(|ns| ns.0),
                    detail: of.unfinished.into(),
                    ..event
                });
            }
        }
        for of in drawn.files(run) {
            let leaf = Leaf::File(of.operation, of.path);
            if let Some(event) = self.event(of.process, of.thread, of.start, (of.stack, leaf)) {
                self.found.files.push(Event {
                    duration: Some(of.duration.0),
                    own: Some(of.duration.0),
                    detail: of.result,
                    ..event
                });
            }
        }
        for of in drawn.lookups(run) {
            let leaf = Leaf::Path(of.path);
            if let Some(event) = self.event(of.process, of.thread, of.at, (of.stack, leaf)) {
                self.found.lookups.push(event);
            }
        }
        for of in drawn.serializations(run) {
            let leaf = Leaf::Serialization(of.function);
            if let Some(event) = self.event(of.process, of.thread, of.start, (of.stack, leaf)) {
                let bytes = of.bytes.and_then(|bytes| i64::try_from(bytes).ok());
                self.found.serializations.push(Event {
                    duration: of.duration.map(|ns| ns.0),
                    own: of.self_time.or(of.duration).map(|ns| ns.0),
                    detail: bytes.unwrap_or(-1),
                    ..event
                });
            }
        }
        for of in drawn.compilations(run) {
            let leaf = Leaf::Path(of.path);
            if let Some(event) = self.event(of.process, of.thread, of.start, (of.stack, leaf)) {
                self.found.compilations.push(Event {
                    duration: of.duration.map(|ns| ns.0),
                    own: of.self_time.or(of.duration).map(|ns| ns.0),
                    detail: of.cached.into(),
                    ..event
                });
            }
        }
        for of in drawn.samples(run) {
            let at = start_of(of);
            if let Some(event) = self.event(of.process, of.thread, at, (of.stack, Leaf::None)) {
                self.found.samples.push(Event {
                    duration: Some(of.weight.0),
                    own: Some(of.weight.0),
                    ..event
                });
            }
        }
        for of in drawn.waits(run) {
            if !self.selected.has_thread(of.process, of.thread) {
                continue;
            }
            for part in parts_of_wait(self.selected, of) {
                let leaf = Leaf::Wait(part.reason);
                if let Some(event) = self.event(of.process, of.thread, part.at, (of.stack, leaf)) {
                    self.found.waits.push(Event {
                        duration: Some(part.duration.0),
                        own: Some(part.duration.0),
                        ..event
                    });
                }
            }
        }
        self.sums();
        for of in &recording.spans {
            if self.selected.has(of.process, of.thread, of.start) {
                let thread = self.collector.thread(of.process, of.thread);
                self.found.steps.push(Step {
                    thread,
                    name: String::from_utf8_lossy(recording.name(of.name)).into_owned(),
                    at: of.start.0,
                    duration: of.duration.map(|ns| ns.0),
                });
            }
        }
    }

    fn sums(&mut self) {
        let (drawn, run) = (self.drawn, self.selected.run);
        let recording = drawn.recording;
        let main_of = |process: ProcessId| {
            let pid = recording.processes.get(process.0 as usize)?.pid;
            Some(ThreadId(pid))
        };
        for of in drawn.crossing_sums(run) {
            if let Some(tid) = main_of(of.process).filter(|_| of.kind != CrossingKind::ToJs)
                && self.selected.has_thread(of.process, tid)
            {
                let sum = SumOf {
                    thread: self.collector.thread(of.process, tid),
                    calls: of.calls,
                    own: of.self_time.0,
                    node: (self.collector).node(of.stack, Leaf::Call(of.callback, of.kind)),
                };
                self.found.crossing_sums.push(sum);
            }
        }
        for of in drawn.serialization_sums(run) {
            if let Some(tid) = main_of(of.process)
                && self.selected.has_thread(of.process, tid)
            {
                let sum = SumOf {
                    thread: self.collector.thread(of.process, tid),
                    calls: of.calls,
                    own: of.self_time.0,
                    node: (self.collector).node(of.stack, Leaf::Serialization(of.function)),
                };
                self.found.serialization_sums.push(sum);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    /// The same program in another folder.
    fn placed(folder: &str) -> Recording {
        let mut recording = Recording::synthetic(2000);
        for name in &mut recording.names {
            let text = String::from_utf8(name.clone()).unwrap();
            *name = text.replace("/home/user/project", folder).into_bytes();
        }
        recording.runs[0].directory = folder.into();
        recording
    }

    #[test]
    fn events_of_a_run_are_called_as_if_it_had_a_recording_of_its_own() {
        let (base, head) = (placed("/builds/base"), placed("/builds/head"));
        let mut both = base;
        both.append(head.clone());
        let of = |recording: &Recording, run| {
            everything(recording, &Timeline::new(recording), RunId(run))
        };
        let (alone, found) = (of(&head, 0), of(&both, 1));
        let names = |of: &Everything| -> Vec<String> {
            of.frames.iter().map(|frame| frame.name.clone()).collect()
        };
        assert!(names(&alone).iter().any(|name| name.contains("package-")));
        // The numbers of frames and stacks are those of the recording that both are in; what each event is on is not.
        let stacks = |of: &Everything| -> Vec<Vec<String>> {
            let names = names(of);
            let path = |event: &Event| {
                let mut path = Vec::new();
                let mut next = Some(event.node);
                while let Some(node) = next {
                    let node = of.nodes[node as usize];
                    path.push(names[node.frame as usize].clone());
                    next = node.parent;
                }
                path
            };
            let families = [&of.crossings, &of.files, &of.compilations, &of.samples];
            families.into_iter().flatten().map(path).collect()
        };
        assert_eq!(stacks(&found), stacks(&alone));
        let packages = |of: &Everything| {
            let mut packages: Vec<_> = of.packages.iter().flatten().cloned().collect();
            packages.sort_unstable();
            packages
        };
        assert_eq!(packages(&found), packages(&alone));
        assert!(!packages(&alone).is_empty());
    }
}
