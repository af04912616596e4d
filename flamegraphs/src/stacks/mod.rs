//! Weighted stacks of one metric: what flame graphs by stack, module and package, and the formats of other programs,
//! are made of.
//!
//! Thread by thread, each event with its instant, its value in the metric's unit, and its place in a tree of stacks.
//! The recording's stacks are walked once each, however many events share them.

mod events;
mod everything;
mod folding;
mod labels;
mod modules;
mod native;
mod nodes;

use nodeprof_profile::recording::{Nanoseconds, ProcessId, ThreadId};

use crate::drawn::Drawn;
use crate::fold::{self, About, By, Frame, Request, ThreadClass};
use crate::select::Selected;

pub(crate) use events::parts_of_wait;
pub(crate) use everything::{Event, Everything, SumOf, everything};
pub(crate) use labels::{Labels, Originals, bundles, label};
pub(crate) use modules::Versions;

/// Weighted stacks of one run and metric.
#[derive(Clone, Debug)]
pub struct Stacks {
    pub(crate) about: About,
    /// Frames, shared by all stacks in which they appear.
    pub(crate) frames: Vec<Frame>,
    /// Stacks: callers before callees.
    pub(crate) nodes: Vec<StackNode>,
    pub(crate) threads: Vec<Thread>,
    /// The main node process of the run.
    pub(crate) main: Option<ProcessId>,
    /// Values are laid end to end: the instants are not those of the events.
    pub(crate) timeless: bool,
}

/// A stack is its innermost frame and the stack of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// The caller, a lower index; `None` for the outermost frame.
    pub parent: Option<u32>,
    /// Index into the frames.
    pub frame: u32,
    /// Line where it stood, from 1.
    pub line: Option<u32>,
    /// Column where it stood, from 1.
    pub column: Option<u32>,
}

/// A thread with its events.
#[derive(Clone, Debug)]
pub struct Thread {
    pub(crate) process: ProcessId,
    pub(crate) class: ThreadClass,
    /// As the kernel numbers its process and it.
    pub(crate) pid: u32,
    pub(crate) tid: ThreadId,
    /// The process's command line, in short.
    pub(crate) command: String,
    pub(crate) entries: Vec<Entry>,
    /// What was only summed over a phase, and so has no instant.
    pub(crate) sums: Vec<Sum>,
}

impl Thread {
    /// As people know it.
    pub(crate) fn name(&self) -> String {
        thread_name(self.class, self.pid, self.tid)
    }

    /// In order of time; of two at once, the longer first.
    pub(crate) fn sort(&mut self) {
        self.entries
            .sort_by_key(|entry| (entry.at, u64::MAX - entry.duration.0));
    }
}

/// `main thread`, `worker 1`, `thread 4711`.
pub(crate) fn thread_name(class: ThreadClass, pid: u32, tid: ThreadId) -> String {
    match class {
        ThreadClass::Main if tid.0 == pid => "main thread".to_owned(),
        ThreadClass::Worker(number) => format!("worker {number}"),
        ThreadClass::Main | ThreadClass::Pool => format!("thread {}", tid.0),
    }
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it began. A sample begins when the CPU time that it stands for does.
    pub(crate) at: Nanoseconds,
    /// How long it lasted, nested events included; 0 if that is not known.
    pub(crate) duration: Nanoseconds,
    /// In the metric's unit.
    pub(crate) value: u64,
    /// Index into the stacks.
    pub(crate) node: u32,
}

/// Events that were only summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    pub(crate) value: u64,
    /// How many.
    pub(crate) count: u64,
    pub(crate) node: u32,
}

impl Stacks {
    /// What they are of.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Sum of all values.
    pub fn total(&self) -> u64 {
        let entries = self.threads.iter().flat_map(|thread| &thread.entries);
        let sums = self.threads.iter().flat_map(|thread| &thread.sums);
        (entries.map(|entry| entry.value))
            .chain(sums.map(|sum| sum.value))
            .fold(0, u64::saturating_add)
    }

    /// Sorts every thread's events by time, for what tells a story. Sums have no place in it: says how many are left out.
    pub(crate) fn in_order_of_time(&mut self) {
        let mut lost = 0u64;
        for thread in &mut self.threads {
            thread.sort();
            lost = (thread.sums.drain(..)).fold(lost, |lost, sum| lost.saturating_add(sum.count));
        }
        if lost > 0 {
            self.about.notes.push(nodeprof_profile::wording::counted(
                lost,
                "Left out: # [call that was|calls that were] only counted, so that it is not known when [it was|they were]. [It is|They are] in graphs that are not in order of time.",
            ));
        }
        self.threads.retain(|thread| !thread.entries.is_empty());
    }
}

/// The stacks of a metric's events, as far as they are selected.
pub(crate) fn collect(drawn: &Drawn<'_>, selected: &Selected, request: &Request, by: By) -> Stacks {
    let (recording, timeline) = (drawn.recording, drawn.timeline);
    let mut about = fold::about(recording, timeline, selected, request.metric, by);
    let nodes = nodes::Nodes::new(drawn, selected.run, by, request.source_maps);
    let mut collector = events::Collector::new(drawn, selected, nodes);
    collector.collect(request.metric);
    about.notes.extend(fold::note_on_sums(collector.cut));
    let events::Collector { nodes, threads, .. } = collector;
    let (frames, nodes) = nodes.finish();
    Stacks {
        about,
        frames,
        nodes,
        threads,
        main: timeline.main_process(selected.run),
        timeless: false,
    }
}
