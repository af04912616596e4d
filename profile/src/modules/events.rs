//! The events of each thread, in order of time.

use super::{Costs, context::Contexts};
use crate::breakdown::Timeline;
use crate::fast::Map;
use crate::recording::{CrossingKind, ProcessId, Recording, ThreadId};

/// Which table an event lies in, and which end of it is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Crossing,
    CrossingEnd,
    Lookup,
    File,
    FileEnd,
    Serialization,
    Compilation,
    CompilationEnd,
    Sample,
    Wait,
    WaitEnd,
}

/// An instant at which it was seen what a thread did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) at: u64,
    /// Index into the table.
    pub(super) index: u32,
    pub(super) what: What,
}

impl Point {
    /// What began there; `None`: nothing that is counted did.
    pub(super) fn costs(&self, recording: &Recording) -> Option<Costs> {
        let index = self.index as usize;
        match self.what {
            What::Crossing => Some((&recording.crossings[index]).into()),
            What::Lookup => Some(Costs {
                lookups: 1,
                ..Costs::default()
            }),
            What::File => {
                let access = &recording.files[index];
                Some(Costs::of_file(access, recording.name(access.path)))
            }
            What::Serialization => Some((&recording.serializations[index]).into()),
            What::Sample => Some((&recording.samples[index]).into()),
            What::Wait => Some((&recording.waits[index]).into()),
            _ => None,
        }
    }
}

/// A thread, and what was seen of it.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) process: ProcessId,
    pub(super) thread: ThreadId,
    /// It runs JavaScript: it has modules of its own.
    pub(super) javascript: bool,
    pub(super) points: Vec<Point>,
    /// What was seen after its process had executed another program in node's place.
    pub(super) replaced: Vec<Point>,
}

impl Thread {
    /// Whether its process lives until it ends.
    pub(super) fn is_main(&self, recording: &Recording) -> bool {
        let process = recording.processes.get(self.process.0 as usize);
        process.is_some_and(|process| process.pid == self.thread.0)
    }
}

/// Ends of calls shorter than this tell nothing that their beginnings did not: what ran before runs after. Longer ones
/// say for how long it surely ran.
pub(super) const SHORT_NS: u64 = 2_000;

/// The threads of a recording, in order of appearance.
#[derive(Debug, Default)]
pub(super) struct Threads {
    pub(super) list: Vec<Thread>,
    index: Map<(ProcessId, ThreadId), usize>,
    of_process: Map<ProcessId, Vec<usize>>,
}

impl Threads {
    pub(super) fn new(recording: &Recording, timeline: &Timeline, contexts: &Contexts) -> Threads {
        let mut threads = Threads::default();
        for milestone in &recording.milestones {
            let thread = threads.at(milestone.process, milestone.thread);
            threads.list[thread].javascript |= milestone.name == "environment";
        }
        let mut last = None;
        macro_rules! collect {
            ($events:ident, $start:ident, |$event:ident| $more:expr) => {
                for (index, $event) in recording.$events.iter().enumerate() {
                    let key = ($event.process, $event.thread);
                    // Neighbours are of the same thread.
                    let at = match last {
                        Some((of, at)) if of == key => at,
                        _ => threads.at(key.0, key.1),
                    };
                    last = Some((key, at));
                    let thread = &mut threads.list[at];
                    let context = $event.stack.and_then(|stack| contexts.get(stack));
                    thread.javascript |= context.is_some_and(|context| context.javascript);
                    let (what, end): (What, Option<(u64, What)>) = $more;
                    let index = index as u32;
                    let at = $event.$start.0;
                    thread.points.push(Point { at, index, what });
                    if let Some((duration, what)) = end {
                        let at = at.saturating_add(duration);
                        thread.points.push(Point { at, index, what });
                    }
                }
            };
        }
        collect!(crossings, start, |crossing| {
            let end = crossing.duration.map(|duration| duration.0);
            let end =
                end.filter(|&duration| duration >= SHORT_NS || crossing.kind == CrossingKind::ToJs);
            (What::Crossing, end.map(|end| (end, What::CrossingEnd)))
        });
        collect!(lookups, at, |_lookup| (What::Lookup, None));
        collect!(files, start, |file| (
            What::File,
            Some((file.duration.0, What::FileEnd))
        ));
        collect!(serializations, start, |_serialization| (
            What::Serialization,
            None
        ));
        collect!(compilations, start, |compilation| {
            let end = compilation.duration.map(|duration| duration.0);
            (
                What::Compilation,
                end.map(|end| (end, What::CompilationEnd)),
            )
        });
        collect!(samples, at, |_sample| (What::Sample, None));
        collect!(waits, start, |wait| (
            What::Wait,
            Some((wait.duration.0, What::WaitEnd))
        ));
        for compilation in &recording.compilations {
            let thread = threads.at(compilation.process, compilation.thread);
            threads.list[thread].javascript = true;
        }
        for thread in &mut threads.list {
            // Stable: the tables are nearly in order, which this sort makes use of.
            thread.points.sort_by_key(|point| point.at);
            if let Some(replaced) = timeline.replaced(thread.process) {
                let before = thread.points.partition_point(|point| point.at < replaced.0);
                thread.replaced = thread.points.split_off(before);
            }
        }
        threads
    }

    fn at(&mut self, process: ProcessId, thread: ThreadId) -> usize {
        let list = &mut self.list;
        *self.index.entry((process, thread)).or_insert_with(|| {
            list.push(Thread {
                process,
                thread,
                javascript: false,
                points: Vec::new(),
                replaced: Vec::new(),
            });
            let unit = list.len() - 1;
            self.of_process.entry(process).or_default().push(unit);
            unit
        })
    }

    /// The threads of a process, in the order of the list.
    pub(super) fn of_process(&self, process: ProcessId) -> &[usize] {
        self.of_process.get(&process).map_or(&[], Vec::as_slice)
    }

    pub(super) fn find(&self, process: ProcessId, thread: ThreadId) -> Option<usize> {
        self.index.get(&(process, thread)).copied()
    }
}
