//! From a recording's events to entries of threads.

use nodeprof_profile::Recording;
use nodeprof_profile::recording::{
    Callback, CallbackId, CrossingKind, FileOperation, NameId, Nanoseconds, ProcessId, StackId,
    ThreadId, Wait, WaitReason,
};

use super::nodes::Nodes;
use super::{Entry, Sum, Thread};
use crate::drawn::Drawn;
use crate::fold::{self, Frame, FrameKind, Metric};
use crate::hash::IdMap;
use crate::paths::seen_from;
use crate::select::{Selected, SumFit, start_of};

pub(super) struct Collector<'a> {
    drawn: &'a Drawn<'a>,
    recording: &'a Recording,
    selected: &'a Selected,
    pub(super) nodes: Nodes<'a>,
    pub(super) threads: Vec<Thread>,
    by_id: IdMap<(u32, u32), u32>,
    last: Option<((ProcessId, ThreadId), u32)>,
    /// Nodes of what happened on top of a stack.
    leaves: IdMap<(u32, Leaf), u32>,
    /// The frames for that: the last one stands for it.
    leaf_frames: IdMap<Leaf, (Option<u32>, u32)>,
    /// Calls that were only summed, over a span that the selection cuts.
    pub(super) cut: u64,
}

/// What is on top of a stack: the thing that happened there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Leaf {
    None,
    Wait(WaitReason),
    Call(CallbackId, CrossingKind),
    Serialization(NameId),
    File(FileOperation, NameId),
    Path(NameId),
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        drawn: &'a Drawn<'a>,
        selected: &'a Selected,
        nodes: Nodes<'a>,
    ) -> Collector<'a> {
        Collector {
            drawn,
            recording: drawn.recording,
            selected,
            nodes,
            threads: Vec::new(),
            by_id: IdMap::default(),
            last: None,
            leaves: IdMap::default(),
            leaf_frames: IdMap::default(),
            cut: 0,
        }
    }

    pub(super) fn collect(&mut self, metric: Metric) {
        match metric {
            Metric::Cpu => self.samples(),
            Metric::OffCpu => self.waits(),
            Metric::Wall => {
                self.samples();
                self.waits();
            }
            Metric::Crossings => self.crossings(false),
            Metric::CrossingTime => self.crossings(true),
            Metric::Serialization => self.serializations(),
            Metric::Files => self.files(false),
            Metric::FileTime => self.files(true),
            Metric::PackageJson => self.lookups(),
            Metric::Compile => self.compilations(),
        }
    }

    fn samples(&mut self) {
        for sample in self.drawn.samples(self.selected.run) {
            let entry = Entry {
                at: start_of(sample),
                duration: sample.weight,
                value: sample.weight.0,
                node: 0,
            };
            if self.selected.has(sample.process, sample.thread, entry.at) {
                let thread = (sample.process, sample.thread);
                self.add(thread, sample.stack, Leaf::None, entry);
            }
        }
    }

    fn waits(&mut self) {
        for wait in self.drawn.waits(self.selected.run) {
            if !self.selected.has_thread(wait.process, wait.thread) {
                continue;
            }
            for part in parts_of_wait(self.selected, wait) {
                let entry = Entry {
                    at: part.at,
                    duration: part.duration,
                    value: part.duration.0,
                    node: 0,
                };
                let thread = (wait.process, wait.thread);
                self.add(thread, wait.stack, Leaf::Wait(part.reason), entry);
            }
        }
    }

    /// Of JavaScript to C++: a call back has its callee above it, not its caller.
    fn crossings(&mut self, time: bool) {
        for crossing in self.drawn.crossings(self.selected.run) {
            if crossing.kind == CrossingKind::ToJs
                || !self
                    .selected
                    .has(crossing.process, crossing.thread, crossing.start)
            {
                continue;
            }
            let own = crossing
                .duration
                .map(|duration| crossing.self_time.unwrap_or(duration));
            let value = match (time, own) {
                (false, _) => 1,
                (true, Some(own)) => own.0,
                (true, None) => continue,
            };
            let entry = Entry {
                at: crossing.start,
                duration: crossing.duration.unwrap_or_default(),
                value,
                node: 0,
            };
            let leaf = Leaf::Call(crossing.callback, crossing.kind);
            let thread = (crossing.process, crossing.thread);
            self.add(thread, crossing.stack, leaf, entry);
        }
        for sum in self.drawn.crossing_sums(self.selected.run) {
            if sum.kind == CrossingKind::ToJs || !self.has_sum(sum.process, sum.phase, sum.calls) {
                continue;
            }
            let leaf = Leaf::Call(sum.callback, sum.kind);
            let (value, count) = match time {
                true => (sum.self_time.0, sum.timed),
                false => (sum.calls, sum.calls),
            };
            self.add_sum(sum.process, sum.stack, leaf, value, count);
        }
    }

    fn serializations(&mut self) {
        for event in self.drawn.serializations(self.selected.run) {
            let leaf = Leaf::Serialization(event.function);
            let thread = (event.process, event.thread);
            let times = (event.start, event.duration, event.self_time);
            self.add_timed(thread, event.stack, leaf, times);
        }
        for sum in self.drawn.serialization_sums(self.selected.run) {
            if self.has_sum(sum.process, sum.phase, sum.calls) {
                let leaf = Leaf::Serialization(sum.function);
                self.add_sum(sum.process, sum.stack, leaf, sum.self_time.0, sum.calls);
            }
        }
    }

    fn files(&mut self, time: bool) {
        for access in self.drawn.files(self.selected.run) {
            if self
                .selected
                .has(access.process, access.thread, access.start)
            {
                let entry = Entry {
                    at: access.start,
                    duration: access.duration,
                    value: if time { access.duration.0 } else { 1 },
                    node: 0,
                };
                let leaf = Leaf::File(access.operation, access.path);
                self.add((access.process, access.thread), access.stack, leaf, entry);
            }
        }
    }

    fn lookups(&mut self) {
        for lookup in self.drawn.lookups(self.selected.run) {
            if self.selected.has(lookup.process, lookup.thread, lookup.at) {
                let entry = Entry {
                    at: lookup.at,
                    duration: Nanoseconds(0),
                    value: 1,
                    node: 0,
                };
                let leaf = Leaf::Path(lookup.path);
                self.add((lookup.process, lookup.thread), lookup.stack, leaf, entry);
            }
        }
    }

    fn compilations(&mut self) {
        for event in self.drawn.compilations(self.selected.run) {
            let leaf = Leaf::Path(event.path);
            let thread = (event.process, event.thread);
            let times = (event.start, event.duration, event.self_time);
            self.add_timed(thread, event.stack, leaf, times);
        }
    }

    /// An event by its own time, if it ended and is selected: when it began, how long it took, and how long by itself.
    fn add_timed(
        &mut self,
        thread: (ProcessId, ThreadId),
        stack: Option<StackId>,
        leaf: Leaf,
        (at, duration, own): (Nanoseconds, Option<Nanoseconds>, Option<Nanoseconds>),
    ) {
        if let Some(duration) = duration
            && self.selected.has(thread.0, thread.1, at)
        {
            let entry = Entry {
                at,
                duration,
                value: own.unwrap_or(duration).0,
                node: 0,
            };
            self.add(thread, stack, leaf, entry);
        }
    }

    fn has_sum(&mut self, process: ProcessId, passed: u8, calls: u64) -> bool {
        let phase = self.drawn.timeline.phase_after(process, passed);
        let fit = self.selected.has_sum(self.drawn.timeline, process, phase);
        if fit == SumFit::Cut {
            self.cut = self.cut.saturating_add(calls);
        }
        fit == SumFit::In
    }

    fn add(
        &mut self,
        thread: (ProcessId, ThreadId),
        stack: Option<StackId>,
        leaf: Leaf,
        entry: Entry,
    ) {
        if entry.value == 0 {
            return;
        }
        let node = self.node(stack, leaf);
        let thread = self.thread(thread.0, thread.1);
        self.threads[thread as usize]
            .entries
            .push(Entry { node, ..entry });
    }

    fn add_sum(
        &mut self,
        process: ProcessId,
        stack: Option<StackId>,
        leaf: Leaf,
        value: u64,
        count: u64,
    ) {
        let Some(of) = self.recording.processes.get(process.0 as usize) else {
            return;
        };
        if value == 0 {
            return;
        }
        let node = self.node(stack, leaf);
        let thread = self.thread(process, ThreadId(of.pid));
        self.threads[thread as usize]
            .sums
            .push(Sum { value, count, node });
    }

    /// The index of a thread of the recording.
    pub(super) fn thread(&mut self, process: ProcessId, tid: ThreadId) -> u32 {
        if let Some((id, index)) = self.last
            && id == (process, tid)
        {
            return index;
        }
        let next = self.threads.len() as u32;
        let index = *self.by_id.entry((process.0, tid.0)).or_insert(next);
        if index == next {
            let of = self.recording.processes.get(process.0 as usize);
            self.threads.push(Thread {
                process,
                class: self.drawn.classes().class(process, tid),
                pid: of.map(|of| of.pid).unwrap_or_default(),
                tid,
                command: of.map(fold::command_of).unwrap_or_default(),
                entries: Vec::new(),
                sums: Vec::new(),
            });
        }
        self.last = Some(((process, tid), index));
        index
    }

    pub(super) fn node(&mut self, stack: Option<StackId>, leaf: Leaf) -> u32 {
        let caller = self.nodes.of_stack(stack);
        if leaf == Leaf::None {
            return caller;
        }
        if let Some(&node) = self.leaves.get(&(caller, leaf)) {
            return node;
        }
        let (above, frame) = match self.leaf_frames.get(&leaf) {
            Some(&frames) => frames,
            None => {
                let (above, frame) = self.describe(leaf);
                let above = above.map(|frame| self.nodes.make(frame));
                let frames = (above, self.nodes.make(frame));
                self.leaf_frames.insert(leaf, frames);
                frames
            }
        };
        let above = match above {
            Some(above) => self.nodes.leaf(caller, above),
            None => caller,
        };
        let node = self.nodes.new_leaf(above, frame);
        self.leaves.insert((caller, leaf), node);
        node
    }

    /// Its frame, and the one below that if there are two.
    fn describe(&self, leaf: Leaf) -> (Option<Frame>, Frame) {
        let name = |id| String::from_utf8_lossy(self.recording.name(id));
        let path = |id| {
            let text = seen_from(&name(id), self.nodes.directory());
            Frame::named(FrameKind::File, &text)
        };
        match leaf {
            Leaf::None => (None, Frame::named(FrameKind::Unknown, "")),
            Leaf::Wait(reason) => (None, Frame::named(FrameKind::Wait, wait_label(reason))),
            Leaf::Call(callback, kind) => (None, self.call(callback, kind)),
            Leaf::Serialization(function) => (
                None,
                Frame::named(FrameKind::Serialization, &name(function)),
            ),
            Leaf::File(operation, file) => {
                let operation = operation.name();
                (
                    Some(Frame::named(FrameKind::Operation, operation)),
                    path(file),
                )
            }
            Leaf::Path(file) => (None, path(file)),
        }
    }

    fn call(&self, callback: CallbackId, kind: CrossingKind) -> Frame {
        let named = self.recording.callbacks.get(callback.0 as usize);
        let name = match named {
            Some(Callback { binding, function }) => format!("{binding}.{function}"),
            None => format!("(unknown).#{}", callback.0),
        };
        let (kind, mark) = match kind {
            CrossingKind::Slow | CrossingKind::ToJs => (FrameKind::Callback, ""),
            CrossingKind::Fast => (FrameKind::FastCallback, " [fast]"),
            CrossingKind::Getter => (FrameKind::Getter, " [getter]"),
            CrossingKind::Construct => (FrameKind::Constructor, " [construct]"),
        };
        Frame::named(kind, &format!("{name}{mark}"))
    }
}

/// A part of a wait, with one reason.
pub(crate) struct WaitPart {
    pub(crate) at: Nanoseconds,
    pub(crate) duration: Nanoseconds,
    pub(super) reason: WaitReason,
    pub(crate) label: &'static str,
}

/// The selected parts of a wait: until something woke the thread, and until it had a CPU.
pub(crate) fn parts_of_wait(selected: &Selected, wait: &Wait) -> impl Iterator<Item = WaitPart> {
    let end = wait.start.0.saturating_add(wait.duration.0);
    let woken = end.saturating_sub(wait.runnable.0.min(wait.duration.0));
    let (from, until) = (selected.from.0, selected.until.0);
    [
        (wait.start.0, woken, wait.reason),
        (woken, end, WaitReason::Preempted),
    ]
    .into_iter()
    .filter_map(move |(start, end, reason)| {
        let (start, end) = (start.max(from), end.min(until));
        (start < end).then(|| WaitPart {
            at: Nanoseconds(start),
            duration: Nanoseconds(end - start),
            reason,
            label: wait_label(reason),
        })
    })
}

/// Why a thread does not run, as a frame.
fn wait_label(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::File => "[waits for a file]",
        WaitReason::PageFault => "[waits for a page of memory]",
        WaitReason::Child => "[waits for a child process]",
        WaitReason::Lock => "[waits for another thread]",
        WaitReason::Idle => "[idle: waits for events]",
        WaitReason::Preempted => "[waits for a CPU]",
        WaitReason::Other => "[waits]",
    }
}
