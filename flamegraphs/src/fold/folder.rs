//! One pass over a family's events into the tree: process, phase, thread, and what is below.

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::{PhaseId, Timeline, serializations};
use nodeprof_profile::recording::{
    CrossingKind, FileOperation, NameId, Nanoseconds, ProcessId, RunId, ThreadId,
};

use super::command_line;
use super::components::{components, operation_name};
use super::folded::FrameKind;
use super::tree::{ROOT, Tree};
use crate::hash::IdMap;

/// Which thread of a process, as far as the same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ThreadClass {
    Main,
    /// A thread with an environment of its own, counted from 1 in order of appearance.
    Worker(u32),
    /// Of libuv's or V8's pool.
    Pool,
}

/// Where events of a process stand while one phase lasts.
#[derive(Clone, Copy)]
pub(super) struct Place {
    process: ProcessId,
    thread: ThreadId,
    from: Nanoseconds,
    pub(super) to: Nanoseconds,
    node: u32,
}

pub(super) struct Folder<'a> {
    pub(super) recording: &'a Recording,
    /// The run's working directory.
    directory: String,
    pub(super) timeline: &'a Timeline,
    pub(super) tree: Tree,
    /// Node of each process; `None` if it is not of this run.
    processes: Vec<Option<u32>>,
    threads: IdMap<(u32, u32), ThreadClass>,
    workers: Vec<u32>,
    places: IdMap<(u32, u8, u32), u32>,
    pub(super) last: Option<Place>,
    pub(super) callbacks: IdMap<(u32, u32, u8), u32>,
    /// Frames of the binding, if it has one, and of the callback itself.
    pub(super) callback_frames: IdMap<(u32, u8), (Option<u32>, u32)>,
    files: IdMap<(u32, u32), u32>,
}

impl<'a> Folder<'a> {
    pub(super) fn new(recording: &'a Recording, timeline: &'a Timeline, run: RunId) -> Folder<'a> {
        let directory = recording
            .runs
            .get(run.0 as usize)
            .map(|run| run.directory.as_slice())
            .unwrap_or_default();
        let mut folder = Folder {
            recording,
            directory: String::from_utf8_lossy(directory)
                .trim_end_matches('/')
                .to_owned(),
            timeline,
            tree: Tree::new(),
            processes: vec![None; recording.processes.len()],
            threads: IdMap::default(),
            workers: vec![0; recording.processes.len()],
            places: IdMap::default(),
            last: None,
            callbacks: IdMap::default(),
            callback_frames: IdMap::default(),
            files: IdMap::default(),
        };
        folder.add_processes(run);
        folder.add_workers();
        folder
    }

    /// A node for each process of the run, children inside their parents.
    fn add_processes(&mut self, run: RunId) {
        let recording = self.recording;
        let mut of_run: Vec<usize> = (0..recording.processes.len())
            .filter(|&index| recording.processes[index].run == run)
            .collect();
        of_run.sort_by_key(|&index| (recording.processes[index].forked, index));
        let mut seen: IdMap<(u32, u32), u32> = IdMap::default();
        // A parent may come after its child if clocks tie: passes until nothing is left, at most one per generation.
        while !of_run.is_empty() {
            let before = of_run.len();
            let stuck = !of_run
                .iter()
                .any(|&index| self.parent_node(index, run).is_some());
            of_run.retain(|&index| {
                let parent = match self.parent_node(index, run) {
                    Some(parent) => parent,
                    // A cycle of parents is no tree: its members stand at the top.
                    None if stuck => ROOT,
                    None => return true,
                };
                let process = &recording.processes[index];
                let exec = process.execs.iter().max_by_key(|exec| exec.at);
                let name = match exec {
                    Some(exec) if !exec.arguments.is_empty() => command_line(&exec.arguments),
                    Some(exec) => command_line(std::slice::from_ref(&exec.path)),
                    None if parent == ROOT => command_line(&recording.runs[run.0 as usize].command),
                    None => "(forked)".to_owned(),
                };
                // After the phases of the parent, in order of appearance.
                let frame = self.tree.frame(FrameKind::Process, &name, LAST_RANK);
                let count = seen.entry((parent, frame)).or_default();
                *count += 1;
                let frame = match *count {
                    1 => frame,
                    count => {
                        self.tree
                            .frame(FrameKind::Process, &format!("{name} #{count}"), LAST_RANK)
                    }
                };
                self.processes[index] = Some(self.tree.child(parent, frame));
                false
            });
            debug_assert!(of_run.len() < before);
        }
    }

    fn parent_node(&self, index: usize, run: RunId) -> Option<u32> {
        let parent = self.recording.processes[index]
            .parent
            .map(|parent| parent.0 as usize);
        match parent.and_then(|parent| Some((parent, self.recording.processes.get(parent)?))) {
            Some((parent, process)) if process.run == run => self.processes[parent],
            _ => Some(ROOT),
        }
    }

    fn add_workers(&mut self) {
        let recording = self.recording;
        let mut environments: Vec<_> = recording
            .milestones
            .iter()
            .map(|milestone| (milestone.at, milestone.process, milestone.thread))
            .collect();
        environments.sort();
        for (_, process, thread) in environments {
            self.worker(process, thread);
        }
    }

    /// Knows a thread as one that runs JavaScript.
    pub(super) fn worker(&mut self, process: ProcessId, thread: ThreadId) {
        let Some(pid) = self
            .recording
            .processes
            .get(process.0 as usize)
            .map(|process| process.pid)
        else {
            return;
        };
        if pid == thread.0 || self.threads.contains_key(&(process.0, thread.0)) {
            return;
        }
        let count = &mut self.workers[process.0 as usize];
        *count += 1;
        self.threads
            .insert((process.0, thread.0), ThreadClass::Worker(*count));
    }

    pub(super) fn class(&self, process: ProcessId, thread: ThreadId) -> ThreadClass {
        let of = self.recording.processes.get(process.0 as usize);
        match of {
            Some(of) if of.pid == thread.0 || of.node.is_none() => ThreadClass::Main,
            _ => self
                .threads
                .get(&(process.0, thread.0))
                .copied()
                .unwrap_or(ThreadClass::Pool),
        }
    }

    /// The node of a process, phase and thread; `None` if the process is not of this run.
    pub(super) fn phase_node(
        &mut self,
        process: ProcessId,
        phase: PhaseId,
        thread: ThreadClass,
    ) -> Option<u32> {
        let parent = self.processes.get(process.0 as usize).copied().flatten()?;
        let thread_key = match thread {
            ThreadClass::Main => 0,
            ThreadClass::Pool => u32::MAX,
            ThreadClass::Worker(number) => number,
        };
        if let Some(&node) = self.places.get(&(process.0, phase.0, thread_key)) {
            return Some(node);
        }
        let name = self.timeline.phase_name(process, phase);
        let mut node = match name {
            // What is not node has one phase only, which says nothing.
            "" | "program" => parent,
            name => self
                .tree
                .named(parent, FrameKind::Phase, name, phase_rank(name)),
        };
        match thread {
            ThreadClass::Main => {}
            ThreadClass::Worker(number) => {
                node = self.tree.named(
                    node,
                    FrameKind::Thread,
                    &format!("worker {number}"),
                    LAST_RANK,
                )
            }
            ThreadClass::Pool => {
                node = self
                    .tree
                    .named(node, FrameKind::Thread, "thread pool", LAST_RANK)
            }
        }
        self.places.insert((process.0, phase.0, thread_key), node);
        Some(node)
    }

    /// The node of an instant on a thread.
    pub(super) fn place(
        &mut self,
        process: ProcessId,
        thread: ThreadId,
        at: Nanoseconds,
    ) -> Option<u32> {
        if let Some(last) = &self.last
            && last.process == process
            && last.thread == thread
            && (last.from..last.to).contains(&at)
        {
            return Some(last.node);
        }
        let phase = self.timeline.phase_of(process, at);
        let node = self.phase_node(process, phase, self.class(process, thread))?;
        if let Some(span) = self.timeline.phases(process).get(phase.0 as usize) {
            self.last = Some(Place {
                process,
                thread,
                from: span.start,
                to: span.end,
                node,
            });
        }
        Some(node)
    }

    pub(super) fn serializations(&mut self) {
        for cell in serializations(self.recording, self.timeline) {
            let Some(base) = self.phase_node(cell.process, cell.phase, ThreadClass::Main) else {
                continue;
            };
            let above = match cell.callback {
                Some(callback) => self.callback(base, callback, CrossingKind::Slow),
                None => self
                    .tree
                    .named(base, FrameKind::Binding, "(outside of any callback)", 0),
            };
            let name = String::from_utf8_lossy(self.recording.name(cell.function));
            let node = self.tree.named(above, FrameKind::Serialization, &name, 0);
            self.tree.add(node, cell.self_time.0);
        }
    }

    pub(super) fn files(&mut self, time: bool) {
        for access in &self.recording.files {
            let Some(base) = self.place(access.process, access.thread, access.start) else {
                continue;
            };
            let node = self.file(base, Some(access.operation), access.path);
            self.tree
                .add(node, if time { access.duration.0 } else { 1 });
        }
    }

    pub(super) fn lookups(&mut self) {
        for lookup in &self.recording.lookups {
            if let Some(base) = self.place(lookup.process, lookup.thread, lookup.at) {
                let node = self.file(base, None, lookup.path);
                self.tree.add(node, 1);
            }
        }
    }

    pub(super) fn compilations(&mut self) {
        for compilation in &self.recording.compilations {
            if let Some(base) =
                self.place(compilation.process, compilation.thread, compilation.start)
            {
                let node = self.file(base, None, compilation.path);
                let own = compilation
                    .duration
                    .map(|duration| compilation.self_time.unwrap_or(duration));
                self.tree.add(node, own.unwrap_or_default().0);
            }
        }
    }

    /// The node of a path below `base`.
    fn file(&mut self, base: u32, operation: Option<FileOperation>, path: NameId) -> u32 {
        let base = match operation {
            Some(operation) => {
                self.tree
                    .named(base, FrameKind::Operation, operation_name(operation), 0)
            }
            None => base,
        };
        if let Some(&node) = self.files.get(&(base, path.0)) {
            return node;
        }
        let text = String::from_utf8_lossy(self.recording.name(path));
        let mut node = base;
        for (kind, name) in components(&text, &self.directory) {
            node = self.tree.named(node, kind, &name, 0);
        }
        self.files.insert((base, path.0), node);
        node
    }
}

const LAST_RANK: u32 = 1000;

/// Phases stand in order of time.
fn phase_rank(name: &str) -> u32 {
    const ORDER: [&str; 9] = [
        "whole",
        "before_exec",
        "process",
        "platform",
        "v8",
        "bootstrap",
        "main_script",
        "loop",
        "teardown",
    ];
    let first = name.split('+').next().unwrap_or(name);
    ORDER
        .iter()
        .position(|known| *known == first)
        .map_or(LAST_RANK - 1, |rank| rank as u32 + 1)
}
