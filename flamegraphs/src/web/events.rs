//! What the page draws beyond the figures: events, their threads, and the tree of their stacks.

use std::collections::HashMap;

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::recording::RunId;
use serde::Serialize;

use super::columns::{Column, Columns};
use crate::fold::FrameKind;
use crate::hash::IdMap;
use crate::stacks::{Event, Everything, SumOf, everything};
use crate::svg::legend_name;

/// Events of a run. Times are ns since the exec of its main node process, as in the profile.
#[derive(Debug, Serialize)]
pub(super) struct Events {
    threads: Vec<Thread>,
    /// Kinds of frames: key and name.
    kinds: Vec<(&'static str, &'static str)>,
    strings: Vec<String>,
    frames: Frames,
    nodes: Nodes,
    crossings: Family,
    files: Family,
    lookups: Family,
    serializations: Family,
    compilations: Family,
    samples: Family,
    waits: Family,
    crossing_sums: Sums,
    serialization_sums: Sums,
    steps: Vec<Step>,
    /// From the run's start to the instant that times count from.
    start_to_origin_ns: i64,
}

#[derive(Debug, Serialize)]
struct Thread {
    pid: u32,
    tid: u32,
    name: String,
    command: String,
    javascript: bool,
}

/// Functions, callbacks, files. Texts are indexes into the strings; -1 where there is none.
#[derive(Debug, Serialize)]
struct Frames {
    name: Column,
    kind: Column,
    file: Column,
    line: Column,
    column: Column,
    /// What Node loaded, where a source map says that the file is another; of a bundle the file that it was made of, nothing for what the bundler added.
    script: Column,
    package: Column,
}

/// Stacks: the caller's index, -1 for an outermost one, and the frame.
#[derive(Debug, Serialize)]
struct Nodes {
    parent: Column,
    frame: Column,
}

/// Events by thread and time. Durations are -1 where they are not known.
#[derive(Debug, Serialize)]
struct Family {
    thread: Column,
    at: Column,
    duration: Column,
    own: Column,
    detail: Column,
    node: Column,
}

#[derive(Debug, Serialize)]
struct Sums {
    thread: Column,
    calls: Column,
    own: Column,
    node: Column,
}

#[derive(Debug, Serialize)]
struct Step {
    thread: u32,
    name: String,
    at: i64,
    duration: Option<u64>,
}

/// Strings, each once.
#[derive(Default)]
struct Strings {
    list: Vec<String>,
    known: HashMap<String, i64>,
}

impl Strings {
    fn id(&mut self, text: &str) -> i64 {
        if let Some(&id) = self.known.get(text) {
            return id;
        }
        let id = self.list.len() as i64;
        self.list.push(text.to_owned());
        self.known.insert(text.to_owned(), id);
        id
    }

    fn maybe(&mut self, text: Option<&str>) -> i64 {
        text.map_or(-1, |text| self.id(text))
    }
}

/// Collects a run's events.
pub(super) fn collect(
    recording: &Recording,
    timeline: &Timeline,
    run: RunId,
    columns: &mut Columns,
) -> Events {
    let all = everything(recording, timeline, run);
    let started = recording.runs.get(run.0 as usize).map(|run| run.started);
    let started = started.unwrap_or_default().0;
    let main = timeline.main_process(run);
    let first_phase = || Some(timeline.phases(main?).first()?.start);
    let origin = main.and_then(|main| timeline.exec(main));
    let origin = origin.or_else(first_phase).map_or(started, |at| at.0);
    let mut strings = Strings::default();
    let mut kinds = Kinds::default();
    let frames = frames(&all, &mut strings, &mut kinds, columns);
    let (nodes, places) = nodes(&all, columns);
    let mut family = |events: &[Event]| family(events, origin, &places, columns);
    let crossings = family(&all.crossings);
    let files = family(&all.files);
    let lookups = family(&all.lookups);
    let serializations = family(&all.serializations);
    let compilations = family(&all.compilations);
    let samples = family(&all.samples);
    let waits = family(&all.waits);
    let crossing_sums = sums(&all.crossing_sums, &places, columns);
    let serialization_sums = sums(&all.serialization_sums, &places, columns);
    Events {
        threads: (all.threads.into_iter())
            .map(|thread| Thread {
                pid: thread.pid,
                tid: thread.tid,
                name: thread.name,
                command: thread.command,
                javascript: thread.javascript,
            })
            .collect(),
        kinds: kinds
            .list
            .iter()
            .map(|kind| (key(*kind), legend_name(*kind)))
            .collect(),
        strings: strings.list,
        frames,
        nodes,
        crossings,
        files,
        lookups,
        serializations,
        compilations,
        samples,
        waits,
        crossing_sums,
        serialization_sums,
        steps: (all.steps.into_iter())
            .map(|step| Step {
                thread: step.thread,
                name: step.name,
                at: since(step.at, origin),
                duration: step.duration,
            })
            .collect(),
        start_to_origin_ns: since(origin, started),
    }
}

#[derive(Default)]
struct Kinds {
    list: Vec<FrameKind>,
}

impl Kinds {
    fn id(&mut self, kind: FrameKind) -> i64 {
        let known = self.list.iter().position(|known| *known == kind);
        known.unwrap_or_else(|| {
            self.list.push(kind);
            self.list.len() - 1
        }) as i64
    }
}

/// A kind's name for programs.
pub(super) fn key(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Process => "process",
        FrameKind::Phase => "phase",
        FrameKind::Thread => "thread",
        FrameKind::JavaScript => "javascript",
        FrameKind::NodeJavaScript => "node",
        FrameKind::V8Builtin => "builtin",
        FrameKind::Native => "native",
        FrameKind::Compilation => "compilation",
        FrameKind::GarbageCollection => "gc",
        FrameKind::WebAssembly => "wasm",
        FrameKind::AddOn => "addon",
        FrameKind::Library => "library",
        FrameKind::Kernel => "kernel",
        FrameKind::Tracing => "tracing",
        FrameKind::Wait => "wait",
        FrameKind::Unknown => "unknown",
        FrameKind::Binding => "binding",
        FrameKind::Callback => "callback",
        FrameKind::FastCallback => "fast",
        FrameKind::Getter => "getter",
        FrameKind::Constructor => "construct",
        FrameKind::Serialization => "serialization",
        FrameKind::Operation => "operation",
        FrameKind::Folder => "folder",
        FrameKind::Package => "package",
        FrameKind::File => "file",
        FrameKind::Builtin => "module",
        FrameKind::Between => "between",
    }
}

fn frames(
    all: &Everything,
    strings: &mut Strings,
    kinds: &mut Kinds,
    columns: &mut Columns,
) -> Frames {
    let frames = &all.frames;
    let source = |index: usize| frames[index].source.as_deref();
    let number = |number: Option<u32>| number.map_or(-1, i64::from);
    let count = 0..frames.len();
    Frames {
        name: columns.integers(frames.iter().map(|frame| strings.id(&frame.name))),
        kind: columns.integers(frames.iter().map(|frame| kinds.id(frame.kind))),
        file: columns.integers(
            (count.clone()).map(|at| strings.maybe(source(at).and_then(|s| s.file.as_deref()))),
        ),
        line: columns.integers(
            count
                .clone()
                .map(|at| number(source(at).and_then(|s| s.line))),
        ),
        column: columns.integers(count.map(|at| number(source(at).and_then(|s| s.column)))),
        script: columns
            .integers((all.scripts.iter()).map(|script| {
                strings.maybe(script.as_deref().filter(|script| !script.is_empty()))
            })),
        package: columns
            .integers((all.packages.iter()).map(|package| strings.maybe(package.as_deref()))),
    }
}

/// Stacks that differ in lines only are one; says for each which.
fn nodes(all: &Everything, columns: &mut Columns) -> (Nodes, Vec<u32>) {
    let mut places: Vec<u32> = Vec::with_capacity(all.nodes.len());
    let mut known: IdMap<(u32, u32), u32> = IdMap::default();
    let mut parents: Vec<i64> = Vec::new();
    let mut frames: Vec<i64> = Vec::new();
    for node in &all.nodes {
        // Callers come before callees.
        let parent = node
            .parent
            .and_then(|parent| places.get(parent as usize).copied());
        let next = parents.len() as u32;
        let place = *known
            .entry((parent.unwrap_or(u32::MAX), node.frame))
            .or_insert(next);
        if place == next {
            parents.push(parent.map_or(-1, i64::from));
            frames.push(node.frame.into());
        }
        places.push(place);
    }
    let nodes = Nodes {
        parent: columns.differences(parents.into_iter()),
        frame: columns.integers(frames.into_iter()),
    };
    (nodes, places)
}

fn since(at: u64, origin: u64) -> i64 {
    let distance = i128::from(at) - i128::from(origin);
    distance.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

fn place(places: &[u32], node: u32) -> i64 {
    places
        .get(node as usize)
        .map_or(-1, |place| i64::from(*place))
}

fn duration(ns: Option<u64>) -> i64 {
    ns.map_or(-1, |ns| i64::try_from(ns).unwrap_or(i64::MAX))
}

fn family(events: &[Event], origin: u64, places: &[u32], columns: &mut Columns) -> Family {
    Family {
        thread: columns.differences(events.iter().map(|event| event.thread.into())),
        at: columns.differences(events.iter().map(|event| since(event.at, origin))),
        duration: columns.integers(events.iter().map(|event| duration(event.duration))),
        // Most often there is nothing nested: then the difference is nothing.
        own: columns.integers(
            events
                .iter()
                .map(|event| match (event.duration, event.own) {
                    (Some(all), Some(own)) => since(all, own),
                    _ => 0,
                }),
        ),
        detail: columns.integers(events.iter().map(|event| event.detail)),
        node: columns.differences(events.iter().map(|event| place(places, event.node))),
    }
}

fn sums(sums: &[SumOf], places: &[u32], columns: &mut Columns) -> Sums {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Sums {
        thread: columns.integers(sums.iter().map(|sum| sum.thread.into())),
        calls: columns.integers(sums.iter().map(|sum| number(sum.calls))),
        own: columns.integers(sums.iter().map(|sum| number(sum.own))),
        node: columns.integers(sums.iter().map(|sum| place(places, sum.node))),
    }
}
