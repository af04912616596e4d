//! One pass over a family's events into the tree: process, phase, thread, and what is below.

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::{PhaseId, Timeline};
use nodeprof_profile::diff::names::Roots;
use nodeprof_profile::recording::{
    CallbackId, CrossingKind, FileOperation, NameId, Nanoseconds, ProcessId, RunId, ThreadId,
};

use super::components::components;
use super::folded::FrameKind;
use super::threads::ThreadClass;
use super::tree::{ROOT, Tree};
use super::{command_line, command_of};
use crate::drawn::Drawn;
use crate::hash::IdMap;
use crate::select::{Selected, SumFit, start_of};

/// Where events of a thread stand while one phase lasts, or the selected part of it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    process: ProcessId,
    thread: ThreadId,
    from: Nanoseconds,
    pub(super) to: Nanoseconds,
    pub(super) node: u32,
    /// Whether this span of time is selected.
    pub(super) shown: bool,
}

pub(crate) struct Folder<'a> {
    pub(super) drawn: &'a Drawn<'a>,
    pub(super) recording: &'a Recording,
    /// The run's working directory.
    directory: String,
    /// What paths are seen from instead.
    pub(super) roots: Option<&'a Roots>,
    /// Calls are not nested in one another.
    pub(super) side_by_side: bool,
    pub(super) timeline: &'a Timeline,
    pub(super) selected: &'a Selected,
    pub(crate) tree: Tree,
    /// Node of each process; `None` if it is not of this run.
    processes: Vec<Option<u32>>,
    places: IdMap<(u32, u8, u32), u32>,
    pub(super) last: Option<Place>,
    pub(super) callbacks: IdMap<(u32, u32, u8), u32>,
    /// Frames of the binding, if it has one, and of the callback itself.
    pub(super) callback_frames: IdMap<(u32, u8), (Option<u32>, u32)>,
    files: IdMap<(u32, u32), u32>,
    /// What was only summed, over a span that the selection cuts.
    pub(super) cut: u64,
}

impl<'a> Folder<'a> {
    pub(crate) fn new(drawn: &'a Drawn<'a>, selected: &'a Selected) -> Folder<'a> {
        let (recording, timeline) = (drawn.recording, drawn.timeline);
        let run = selected.run;
        let directory = recording
            .runs
            .get(run.0 as usize)
            .map(|run| run.directory.as_slice())
            .unwrap_or_default();
        let mut folder = Folder {
            drawn,
            recording,
            directory: String::from_utf8_lossy(directory)
                .trim_end_matches('/')
                .to_owned(),
            roots: None,
            side_by_side: false,
            timeline,
            selected,
            tree: Tree::new(),
            processes: vec![None; recording.processes.len()],
            places: IdMap::default(),
            last: None,
            callbacks: IdMap::default(),
            callback_frames: IdMap::default(),
            files: IdMap::default(),
            cut: 0,
        };
        folder.add_processes(run);
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
                let name = match process.execs.is_empty() && parent == ROOT {
                    true => command_line(&recording.runs[run.0 as usize].command),
                    false => command_of(process),
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

    pub(super) fn class(&self, process: ProcessId, thread: ThreadId) -> ThreadClass {
        self.drawn.classes().class(process, thread)
    }

    /// The node of a process and thread, without phases; `None` if the process is not of this run.
    pub(crate) fn thread_node(&mut self, process: ProcessId, thread: ThreadClass) -> Option<u32> {
        let parent = self.processes.get(process.0 as usize).copied().flatten()?;
        Some(self.inside_thread(parent, thread))
    }

    fn inside_thread(&mut self, parent: u32, thread: ThreadClass) -> u32 {
        let name = match thread {
            ThreadClass::Main => return parent,
            ThreadClass::Worker(number) => format!("worker {number}"),
            ThreadClass::Pool => "thread pool".to_owned(),
        };
        self.tree.named(parent, FrameKind::Thread, &name, LAST_RANK)
    }

    /// The node of what was only summed over a phase; `None` if that is not selected.
    pub(super) fn sum_node(&mut self, process: ProcessId, passed: u8, calls: u64) -> Option<u32> {
        let phase = self.timeline.phase_after(process, passed);
        match self.selected.has_sum(self.timeline, process, phase) {
            SumFit::In => self.phase_node(process, phase, ThreadClass::Main),
            SumFit::Out => None,
            SumFit::Cut => {
                self.cut = self.cut.saturating_add(calls);
                None
            }
        }
    }

    /// The node of a process, phase and thread; `None` if the process is not of this run.
    pub(crate) fn phase_node(
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
        let above = match name {
            // What is not node has one phase only, which says nothing.
            "" | "program" => parent,
            name => self
                .tree
                .named(parent, FrameKind::Phase, name, phase_rank(name)),
        };
        let node = self.inside_thread(above, thread);
        self.places.insert((process.0, phase.0, thread_key), node);
        Some(node)
    }

    /// The node of an instant on a thread; `None` if that is not selected.
    pub(super) fn place(
        &mut self,
        process: ProcessId,
        thread: ThreadId,
        at: Nanoseconds,
    ) -> Option<u32> {
        let place = self.ground(process, thread, at)?;
        place.shown.then_some(place.node)
    }

    /// The same for an instant outside of the selected span of time, too; `None` if the thread is not selected.
    pub(super) fn ground(
        &mut self,
        process: ProcessId,
        thread: ThreadId,
        at: Nanoseconds,
    ) -> Option<Place> {
        if let Some(last) = &self.last
            && last.process == process
            && last.thread == thread
            && (last.from..last.to).contains(&at)
        {
            return Some(*last);
        }
        if !self.selected.has_thread(process, thread) {
            return None;
        }
        let phase = self.timeline.phase_of(process, at);
        let node = self.phase_node(process, phase, self.class(process, thread))?;
        let span = self.timeline.phases(process).get(phase.0 as usize)?;
        let (from, until) = (self.selected.from, self.selected.until);
        let mut place = Place {
            process,
            thread,
            from: span.start,
            to: span.end,
            node,
            shown: (from..until).contains(&at),
        };
        for border in [from, until] {
            if border <= at {
                place.from = place.from.max(border);
            } else {
                place.to = place.to.min(border);
            }
        }
        self.last = Some(place);
        Some(place)
    }

    pub(super) fn serializations(&mut self) {
        for single in self.drawn.serializations(self.selected.run) {
            let Some(base) = self.place(single.process, single.thread, single.start) else {
                continue;
            };
            let node = self.serialization(base, single.callback, single.function);
            let own = single
                .duration
                .map(|duration| single.self_time.unwrap_or(duration));
            self.tree.add(node, own.unwrap_or_default().0);
        }
        for sum in self.drawn.serialization_sums(self.selected.run) {
            if let Some(base) = self.sum_node(sum.process, sum.phase, sum.calls) {
                let node = self.serialization(base, sum.callback, sum.function);
                self.tree.add(node, sum.self_time.0);
            }
        }
    }

    fn serialization(&mut self, base: u32, callback: Option<CallbackId>, function: NameId) -> u32 {
        let above = match callback {
            Some(callback) => self.callback(base, callback, CrossingKind::Slow),
            None => self
                .tree
                .named(base, FrameKind::Binding, "(outside of any callback)", 0),
        };
        if let Some(&node) = self.files.get(&(above, function.0)) {
            return node;
        }
        let name = String::from_utf8_lossy(self.recording.name(function));
        let node = self.tree.named(above, FrameKind::Serialization, &name, 0);
        self.files.insert((above, function.0), node);
        node
    }

    /// CPU time and time off the CPU without stacks: which phase, and why it did not run.
    pub(super) fn samples(&mut self) {
        for sample in self.drawn.samples(self.selected.run) {
            if let Some(base) = self.place(sample.process, sample.thread, start_of(sample)) {
                let node = self.tree.named(base, FrameKind::Native, "on a CPU", 0);
                self.tree.add(node, sample.weight.0);
            }
        }
    }

    pub(super) fn waits(&mut self) {
        for wait in self.drawn.waits(self.selected.run) {
            for part in crate::stacks::parts_of_wait(self.selected, wait) {
                if let Some(base) = self.place(wait.process, wait.thread, part.at) {
                    let node = self.tree.named(base, FrameKind::Wait, part.label, 0);
                    self.tree.add(node, part.duration.0);
                }
            }
        }
    }

    pub(super) fn files(&mut self, time: bool) {
        for access in self.drawn.files(self.selected.run) {
            let Some(base) = self.place(access.process, access.thread, access.start) else {
                continue;
            };
            let node = self.file(base, Some(access.operation), access.path);
            self.tree
                .add(node, if time { access.duration.0 } else { 1 });
        }
    }

    pub(super) fn lookups(&mut self) {
        for lookup in self.drawn.lookups(self.selected.run) {
            if let Some(base) = self.place(lookup.process, lookup.thread, lookup.at) {
                let node = self.file(base, None, lookup.path);
                self.tree.add(node, 1);
            }
        }
    }

    pub(super) fn compilations(&mut self) {
        for compilation in self.drawn.compilations(self.selected.run) {
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
            Some(operation) => self
                .tree
                .named(base, FrameKind::Operation, operation.name(), 0),
            None => base,
        };
        if let Some(&node) = self.files.get(&(base, path.0)) {
            return node;
        }
        let text = String::from_utf8_lossy(self.recording.name(path));
        let mut node = base;
        let parts = match self.roots {
            Some(roots) => components(&roots.rooted(&text), ""),
            None => components(&text, &self.directory),
        };
        for (kind, name) in parts {
            node = self.tree.named(node, kind, &name, 0);
        }
        self.files.insert((base, path.0), node);
        node
    }
}

const LAST_RANK: u32 = 1000;

/// Phases stand in order of time.
fn phase_rank(name: &str) -> u32 {
    const ORDER: [&str; 10] = [
        "whole",
        "before_exec",
        "process",
        "platform",
        "v8",
        "bootstrap",
        "main_script",
        "loop",
        "teardown",
        "after_exec",
    ];
    let first = name.split('+').next().unwrap_or(name);
    ORDER
        .iter()
        .position(|known| *known == first)
        .map_or(LAST_RANK - 1, |rank| rank as u32 + 1)
}
