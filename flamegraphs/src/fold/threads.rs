//! Which thread is which, as far as the same in every run.

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::recording::{ProcessId, ThreadId};

use crate::hash::{IdMap, IdSet};

/// Which thread of a process, as far as the same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ThreadClass {
    Main,
    /// A thread with an environment of its own, counted from 1 in order of appearance.
    Worker(u32),
    /// Of libuv's or V8's pool.
    Pool,
}

/// The workers of every process.
pub(crate) struct ThreadClasses {
    /// By process: its pid, and whether it is node.
    processes: Vec<(u32, bool)>,
    workers: IdMap<(u32, u32), u32>,
    /// Threads of a program that took node's place.
    others: IdSet<(u32, u32)>,
    counts: Vec<u32>,
}

impl ThreadClasses {
    pub(crate) fn new(recording: &Recording, timeline: &Timeline) -> ThreadClasses {
        let processes = recording.processes.iter();
        let mut classes = ThreadClasses {
            processes: processes.map(|of| (of.pid, of.node.is_some())).collect(),
            workers: IdMap::default(),
            others: IdSet::default(),
            counts: vec![0; recording.processes.len()],
        };
        let mut environments: Vec<_> = recording
            .milestones
            .iter()
            .map(|milestone| (milestone.at, milestone.process, milestone.thread))
            .collect();
        environments.sort();
        for (_, process, thread) in environments {
            classes.add(process, thread);
        }
        // A thread that calls C++ from JavaScript runs JavaScript, even if its milestones were not seen.
        let mut calling: Vec<(ProcessId, ThreadId)> = Vec::new();
        for crossing in &recording.crossings {
            let thread = (crossing.process, crossing.thread);
            if calling.last() != Some(&thread) {
                calling.push(thread);
            }
        }
        calling.sort();
        calling.dedup();
        for (process, thread) in calling {
            classes.add(process, thread);
        }
        classes.add_others(recording, timeline);
        classes
    }

    /// Threads but the main one do not live through an exec: those seen after it are the other program's.
    fn add_others(&mut self, recording: &Recording, timeline: &Timeline) {
        let (samples, waits) = (recording.samples.iter(), recording.waits.iter());
        let files = recording.files.iter();
        let seen = samples
            .map(|of| (of.process, of.thread, of.at))
            .chain(waits.map(|of| (of.process, of.thread, of.start)))
            .chain(files.map(|of| (of.process, of.thread, of.start)));
        for (process, thread, at) in seen {
            if timeline.replaced(process).is_some_and(|exec| at >= exec) {
                self.others.insert((process.0, thread.0));
            }
        }
    }

    fn add(&mut self, process: ProcessId, thread: ThreadId) {
        let Some(&(pid, _)) = self.processes.get(process.0 as usize) else {
            return;
        };
        if pid == thread.0 || self.workers.contains_key(&(process.0, thread.0)) {
            return;
        }
        let count = &mut self.counts[process.0 as usize];
        *count += 1;
        self.workers.insert((process.0, thread.0), *count);
    }

    pub(crate) fn class(&self, process: ProcessId, thread: ThreadId) -> ThreadClass {
        match self.processes.get(process.0 as usize) {
            Some(&(pid, is_node)) if pid == thread.0 || !is_node => ThreadClass::Main,
            _ if self.others.contains(&(process.0, thread.0)) => ThreadClass::Main,
            _ => self
                .workers
                .get(&(process.0, thread.0))
                .map_or(ThreadClass::Pool, |&number| ThreadClass::Worker(number)),
        }
    }
}
