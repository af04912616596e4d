//! Observations counted by process and phase: what flame graphs and the report are made of.
//!
//! A [`Timeline`] says which phase of a process an instant belongs to. The functions fold a recording's events into
//! cells by (process, phase, what), single events and sums alike, each in one pass:
//!
//! ```
//! use nodeprof_profile::{Recording, breakdown::{Timeline, crossings}};
//! let recording = Recording::default();
//! let timeline = Timeline::new(&recording);
//! for cell in crossings(&recording, &timeline) {
//!     let phase = timeline.phase_name(cell.process, cell.phase);
//!     let callback = &recording.callbacks[cell.callback.0 as usize];
//!     println!("{phase};{}.{} {}", callback.binding, callback.function, cell.calls);
//! }
//! ```

use std::borrow::Cow;

use crate::fast::Map;
use crate::recording::{
    CallbackId, CompilationUnit, CrossingKind, Exec, FileOperation, LATER_IMAGE, Milestone, NameId,
    Nanoseconds, Process, ProcessId, Recording, Run, RunId,
};

/// Milestones in the order in which a start passes them, each with the name of the phase that it begins.
///
/// The first phase begins with the exec. Instants are Node's own, so `node_start` and `v8_start` come before
/// `environment` although Node notes them after it.
const MILESTONES: [(&str, &str); 7] = [
    ("exec", "process"),
    ("node_start", "platform"),
    ("v8_start", "v8"),
    ("environment", "bootstrap"),
    ("bootstrap_complete", "main_script"),
    ("loop_start", "loop"),
    ("loop_exit", "teardown"),
];

/// Phase of a process that is not node.
const PROGRAM: &str = "program";
/// Phase of a node process whose milestones were not seen.
const WHOLE: &str = "whole";
/// From the fork to the exec of node: a shell, `env`, or the rest of the parent's image.
const BEFORE_EXEC: &str = "before_exec";
/// What the process executed in node's place (`process.execve`): another program, or node again.
const AFTER_EXEC: &str = "after_exec";

/// Index into the phases of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhaseId(pub u8);

/// A phase of a process: from `start` to before `end`.
///
/// Names: `before_exec`, `process` (exec to `node::Start`), `platform` (to V8's start), `v8` (isolate, snapshot; to the
/// environment), `bootstrap` (Node's own JavaScript), `main_script` (the program until the event loop), `loop`,
/// `teardown`, `after_exec` (what the process executed in node's place: another program, or node again). Where a milestone between two
/// others was not seen, the names are joined by `+`. `program` for a process that is not node, `whole` for a node process without milestones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelinePhase {
    /// Name.
    pub name: Cow<'static, str>,
    /// Begin.
    pub start: Nanoseconds,
    /// End.
    pub end: Nanoseconds,
}

/// The phases of every process of a recording.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    processes: Vec<ProcessTimeline>,
    /// Per run: the main node process.
    main: Vec<Option<ProcessId>>,
    /// Per run: the first process of the recording that is its own.
    first: Vec<Option<ProcessId>>,
}

#[derive(Clone, Debug, Default)]
struct ProcessTimeline {
    phases: Vec<TimelinePhase>,
    /// Phase before the first milestone: 1 if there is a `before_exec`.
    first: u8,
    exec: Option<Nanoseconds>,
    replaced: Option<Nanoseconds>,
    /// By [`MILESTONES`], without `exec`.
    milestones: [Option<Nanoseconds>; MILESTONES.len()],
}

impl Timeline {
    /// Orders the milestones of each process's main thread.
    pub fn new(recording: &Recording) -> Timeline {
        let mut milestones: Vec<Vec<&Milestone>> = vec![Vec::new(); recording.processes.len()];
        for milestone in &recording.milestones {
            let at = milestone.process.0 as usize;
            // Workers have environments, and so milestones, of their own.
            if let Some(process) = recording.processes.get(at)
                && milestone.thread.0 == process.pid
            {
                milestones[at].push(milestone);
            }
        }
        let processes = recording
            .processes
            .iter()
            .zip(milestones)
            .map(|(process, milestones)| ProcessTimeline::new(recording, process, milestones))
            .collect();
        let mut first = vec![None; recording.runs.len()];
        for (process, id) in recording.processes.iter().zip(0..) {
            if let Some(first) = first.get_mut(process.run.0 as usize) {
                first.get_or_insert(ProcessId(id));
            }
        }
        Timeline {
            processes,
            main: main_processes(recording),
            first,
        }
    }

    /// The node process that a run is about: its root, or the nearest descendant that runs node.
    pub fn main_process(&self, run: RunId) -> Option<ProcessId> {
        self.main.get(run.0 as usize).copied().flatten()
    }

    /// The same; of a run without node its first process.
    pub fn main_or_first_process(&self, run: RunId) -> Option<ProcessId> {
        let first = || self.first.get(run.0 as usize).copied().flatten();
        self.main_process(run).or_else(first)
    }

    /// The phases of a process, in order of time, without gaps; never empty for a process of the recording.
    pub fn phases(&self, process: ProcessId) -> &[TimelinePhase] {
        self.processes
            .get(process.0 as usize)
            .map(|p| p.phases.as_slice())
            .unwrap_or_default()
    }

    /// The phase in which an instant lies; the first or last for instants outside of all.
    pub fn phase_of(&self, process: ProcessId, instant: Nanoseconds) -> PhaseId {
        let begun = self
            .phases(process)
            .partition_point(|phase| phase.start <= instant);
        PhaseId(begun.saturating_sub(1) as u8)
    }

    /// The phase after `passed` milestones, as sums count them (see [`crate::recording::CrossingSum::phase`]).
    pub fn phase_after(&self, process: ProcessId, passed: u8) -> PhaseId {
        let Some(timeline) = self.processes.get(process.0 as usize) else {
            return PhaseId(0);
        };
        let after_exec = timeline.is_followed();
        let last = (timeline.phases.len() as u8).saturating_sub(1);
        if after_exec && passed & LATER_IMAGE != 0 {
            return PhaseId(last);
        }
        let last = last.saturating_sub(u8::from(after_exec));
        let passed = passed & !LATER_IMAGE;
        PhaseId(timeline.first.saturating_add(passed).min(last))
    }

    /// Milestones passed before a phase: the reverse of [`phase_after`](Timeline::phase_after).
    pub fn passed(&self, process: ProcessId, phase: PhaseId) -> u8 {
        let Some(timeline) = self.processes.get(process.0 as usize) else {
            return phase.0;
        };
        let last = timeline.phases.len().saturating_sub(1);
        if timeline.is_followed() && usize::from(phase.0) == last {
            return LATER_IMAGE;
        }
        phase.0.saturating_sub(timeline.first)
    }

    /// Name of a phase; empty if it is not of this timeline.
    pub fn phase_name(&self, process: ProcessId, phase: PhaseId) -> &str {
        self.phases(process)
            .get(phase.0 as usize)
            .map(|phase| phase.name.as_ref())
            .unwrap_or_default()
    }

    /// The exec of the node image that the process's milestones belong to, or its last exec without milestones.
    pub fn exec(&self, process: ProcessId) -> Option<Nanoseconds> {
        self.processes.get(process.0 as usize)?.exec
    }

    /// What [`exec`](Timeline::exec) tells the instant of: the command line that node was given. Else the last exec of the process.
    pub fn node_exec<'a>(&self, process: &'a Process, id: ProcessId) -> Option<&'a Exec> {
        let of_node = self.exec(id);
        let mut execs = process.execs.iter();
        execs
            .find(|exec| Some(exec.at) == of_node)
            .or_else(|| process.execs.iter().max_by_key(|exec| exec.at))
    }

    /// The command line that node was given, if its process is known to have executed it. perf tells a program's name alone: of the main
    /// process of what it recorded, the run's command has the rest.
    pub(crate) fn node_arguments<'a>(
        &self,
        run: Option<&'a Run>,
        process: &'a Process,
        id: ProcessId,
    ) -> Option<&'a [Vec<u8>]> {
        let arguments = self.node_exec(process, id)?.arguments.as_slice();
        let whole = run.filter(|run| {
            let program = run
                .command
                .first()
                .map(|program| program.rsplit(|&b| b == b'/'));
            let program = program.and_then(|mut parts| parts.next());
            run.ended_by == "import"
                && arguments.len() < 2
                && matches!(program, Some(b"node" | b"nodejs"))
                && self.main_process(process.run) == Some(id)
        });
        Some(whole.map_or(arguments, |run| &run.command))
    }

    /// When the process executed something in node's place: another program, or node again.
    pub fn followed(&self, process: ProcessId) -> Option<Nanoseconds> {
        let timeline = self.processes.get(process.0 as usize)?;
        let last = timeline.phases.last()?;
        timeline.is_followed().then_some(last.start)
    }

    /// When the process executed a program in node's place that is not node: from here on it is that one's process.
    pub fn replaced(&self, process: ProcessId) -> Option<Nanoseconds> {
        self.processes.get(process.0 as usize)?.replaced
    }

    /// A milestone of the process's main thread, by the recording's name for it.
    pub fn milestone(&self, process: ProcessId, name: &str) -> Option<Nanoseconds> {
        let timeline = self.processes.get(process.0 as usize)?;
        timeline.milestones[milestone_rank(name)?]
    }
}

fn milestone_rank(name: &str) -> Option<usize> {
    MILESTONES.iter().position(|(known, _)| *known == name)
}

impl ProcessTimeline {
    fn new(recording: &Recording, process: &Process, mut seen: Vec<&Milestone>) -> ProcessTimeline {
        let run = recording.runs.get(process.run.0 as usize);
        let run_started = run.map(|run| run.started).unwrap_or_default();
        let ended = process
            .exited
            .or(run.map(|run| run.ended))
            .unwrap_or_default();

        seen.sort_by_key(|milestone| milestone.at);
        let first_milestone = seen.first().map(|milestone| milestone.at);
        let mut execs: Vec<Nanoseconds> = process.execs.iter().map(|exec| exec.at).collect();
        execs.sort();
        let exec = match first_milestone {
            Some(first) => execs.iter().rev().find(|&&at| at <= first).copied(),
            None => execs.last().copied(),
        };
        // An image that replaces node (process.execve) has milestones of its own: the first image is the start.
        let mut replaced = exec.and_then(|exec| execs.iter().find(|&&at| at > exec).copied());

        let mut milestones = [None; MILESTONES.len()];
        let ends = replaced;
        for milestone in seen {
            if ends.is_some_and(|at| milestone.at >= at) {
                replaced = None; // by node
                continue;
            }
            if let Some(rank) = milestone_rank(&milestone.name) {
                milestones[rank].get_or_insert(milestone.at);
            }
        }

        let forked = process.forked.max(run_started);
        // Without an exec, milestones may lie before the fork that we know: phases must still begin in order.
        let origin = exec.unwrap_or(first_milestone.map_or(forked, |first| first.min(forked)));
        let mut timeline = ProcessTimeline {
            phases: Vec::new(),
            first: 0,
            exec,
            replaced,
            milestones,
        };
        if process.node.is_none() && first_milestone.is_none() {
            timeline.push(Cow::Borrowed(PROGRAM), forked);
        } else {
            if forked < origin {
                timeline.push(Cow::Borrowed(BEFORE_EXEC), forked);
                timeline.first = 1;
            }
            let mut passed: Vec<(Nanoseconds, usize)> = milestones
                .iter()
                .enumerate()
                .filter_map(|(rank, at)| Some(((*at)?, rank)))
                .collect();
            passed.sort();
            passed.insert(0, (origin, 0));
            for (position, &(at, rank)) in passed.iter().enumerate() {
                let next = passed.get(position + 1).map(|&(_, rank)| rank);
                timeline.push(phase_between(rank, next, passed.len() == 1), at);
            }
            if let Some(ends) = ends {
                timeline.push(Cow::Borrowed(AFTER_EXEC), ends);
            }
        }
        timeline.close(ended);
        timeline
    }

    /// Whether its node executed something in its place.
    fn is_followed(&self) -> bool {
        self.phases
            .last()
            .is_some_and(|last| last.name == AFTER_EXEC)
    }

    fn push(&mut self, name: Cow<'static, str>, start: Nanoseconds) {
        self.phases.push(TimelinePhase {
            name,
            start,
            end: start,
        });
    }

    fn close(&mut self, ended: Nanoseconds) {
        let starts: Vec<Nanoseconds> = self.phases.iter().skip(1).map(|p| p.start).collect();
        for (position, phase) in self.phases.iter_mut().enumerate() {
            phase.end = starts
                .get(position)
                .copied()
                .unwrap_or(ended.max(phase.start));
        }
    }
}

/// Name of the phase from one milestone to the next seen.
fn phase_between(rank: usize, next: Option<usize>, only: bool) -> Cow<'static, str> {
    match next {
        // Never noted a milestone: to say `process` would claim that it did not get to `node::Start`.
        None if only => Cow::Borrowed(WHOLE),
        Some(next) if next > rank + 1 => Cow::Owned(
            MILESTONES[rank..next]
                .iter()
                .map(|(_, phase)| *phase)
                .collect::<Vec<_>>()
                .join("+"),
        ),
        // Out of order, or the last: a program that calls process.exit() never comes to its event loop.
        _ => Cow::Borrowed(MILESTONES[rank].1),
    }
}

/// Per run, the process with node that has the fewest ancestors; the earliest of several.
pub fn main_processes(recording: &Recording) -> Vec<Option<ProcessId>> {
    let processes = &recording.processes;
    let depth_of = |mut index: usize| {
        let mut depth = 0;
        // A recording that is read has no cycle; the bound is for one that somebody makes.
        while depth <= processes.len() {
            match processes[index].parent {
                Some(parent) if (parent.0 as usize) < processes.len() => {
                    index = parent.0 as usize;
                    depth += 1;
                }
                _ => break,
            }
        }
        depth
    };
    let mut best: Vec<Option<(usize, Nanoseconds, ProcessId)>> = vec![None; recording.runs.len()];
    for (index, process) in processes.iter().enumerate() {
        let Some(slot) = best.get_mut(process.run.0 as usize) else {
            continue;
        };
        if process.node.is_none() {
            continue;
        }
        let candidate = (depth_of(index), process.forked, ProcessId(index as u32));
        if slot.is_none_or(|current| candidate < current) {
            *slot = Some(candidate);
        }
    }
    best.into_iter()
        .map(|slot| slot.map(|(_, _, process)| process))
        .collect()
}

/// Crossings of one callback and kind in one phase of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossingCell {
    /// In which process.
    pub process: ProcessId,
    /// In which of its phases.
    pub phase: PhaseId,
    /// Which function.
    pub callback: CallbackId,
    /// Kind.
    pub kind: CrossingKind,
    /// Calls.
    pub calls: u64,
    /// Calls with a measured time.
    pub timed: u64,
    /// Calls that never returned.
    pub unfinished: u64,
    /// Sum of durations of the timed calls.
    pub total: Nanoseconds,
    /// Sum of their self times.
    pub self_time: Nanoseconds,
    /// Calls of these that are known only as a sum.
    pub summed: u64,
}

/// package.json lookups of one path in one phase of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupCell {
    /// In which process.
    pub process: ProcessId,
    /// In which of its phases.
    pub phase: PhaseId,
    /// Path asked for.
    pub path: NameId,
    /// Lookups.
    pub calls: u64,
}

/// One operation on one path in one phase of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCell {
    /// In which process.
    pub process: ProcessId,
    /// In which of its phases.
    pub phase: PhaseId,
    /// Path.
    pub path: NameId,
    /// Operation.
    pub operation: FileOperation,
    /// System calls, failed ones included.
    pub calls: u64,
    /// Those with a negative result.
    pub failed: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Sum of durations.
    pub total: Nanoseconds,
}

/// Serializations of one C++ function inside one callback, in one phase of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerializationCell {
    /// In which process.
    pub process: ProcessId,
    /// In which of its phases.
    pub phase: PhaseId,
    /// C++ function.
    pub function: NameId,
    /// Inside which crossing; `None` outside of any.
    pub callback: Option<CallbackId>,
    /// Calls, nested ones included.
    pub calls: u64,
    /// Bytes, where known.
    pub bytes: u64,
    /// Time in calls not nested in another serialization.
    pub total: Nanoseconds,
    /// Sum of self times.
    pub self_time: Nanoseconds,
}

/// Compilations of one path in one phase of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompilationCell {
    /// In which process.
    pub process: ProcessId,
    /// In which of its phases.
    pub phase: PhaseId,
    /// Path.
    pub path: NameId,
    /// What was compiled.
    pub unit: CompilationUnit,
    /// From a code cache or the snapshot.
    pub cached: bool,
    /// Compilations.
    pub calls: u64,
    /// Compilations with a measured time.
    pub timed: u64,
    /// Sum of durations.
    pub total: Nanoseconds,
    /// Sum of self times: does not overlap.
    pub self_time: Nanoseconds,
}

/// Cells in the order in which their first event was recorded.
struct Cells<Key, Cell> {
    index: Map<Key, u32>,
    cells: Vec<Cell>,
    last: Option<(Key, u32)>,
}

impl<Key: Copy + Eq + std::hash::Hash, Cell> Cells<Key, Cell> {
    fn new() -> Self {
        Cells {
            index: Map::default(),
            cells: Vec::new(),
            last: None,
        }
    }

    fn at(&mut self, key: Key, new: impl FnOnce() -> Cell) -> &mut Cell {
        // Hot callbacks repeat: the cell before is the cell again.
        let index = match self.last {
            Some((last, index)) if last == key => index,
            _ => {
                let cells = &mut self.cells;
                *self.index.entry(key).or_insert_with(|| {
                    cells.push(new());
                    (cells.len() - 1) as u32
                })
            }
        };
        self.last = Some((key, index));
        &mut self.cells[index as usize]
    }
}

pub(crate) fn add(sum: &mut Nanoseconds, more: Nanoseconds) {
    sum.0 = sum.0.saturating_add(more.0);
}

pub(crate) fn count(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Crossings by process, phase, callback and kind; single events and sums together.
pub fn crossings(recording: &Recording, timeline: &Timeline) -> Vec<CrossingCell> {
    let mut cells = Cells::new();
    let new = |process, phase, callback, kind| CrossingCell {
        process,
        phase,
        callback,
        kind,
        calls: 0,
        timed: 0,
        unfinished: 0,
        total: Nanoseconds(0),
        self_time: Nanoseconds(0),
        summed: 0,
    };
    for crossing in &recording.crossings {
        let phase = timeline.phase_of(crossing.process, crossing.start);
        let (process, callback, kind) = (crossing.process, crossing.callback, crossing.kind);
        let cell = cells.at((process, callback, kind as u8, phase), || {
            new(process, phase, callback, kind)
        });
        count(&mut cell.calls, 1);
        count(&mut cell.unfinished, u64::from(crossing.unfinished));
        if let Some(duration) = crossing.duration {
            count(&mut cell.timed, 1);
            add(&mut cell.total, duration);
            add(&mut cell.self_time, crossing.self_time.unwrap_or(duration));
        }
    }
    for sum in &recording.crossing_sums {
        let phase = timeline.phase_after(sum.process, sum.phase);
        let (process, callback, kind) = (sum.process, sum.callback, sum.kind);
        let cell = cells.at((process, callback, kind as u8, phase), || {
            new(process, phase, callback, kind)
        });
        count(&mut cell.calls, sum.calls);
        count(&mut cell.summed, sum.calls);
        count(&mut cell.timed, sum.timed);
        add(&mut cell.total, sum.total);
        add(&mut cell.self_time, sum.self_time);
    }
    cells.cells
}

/// package.json lookups by process, phase and path.
pub fn lookups(recording: &Recording, timeline: &Timeline) -> Vec<LookupCell> {
    let mut cells = Cells::new();
    for lookup in &recording.lookups {
        let phase = timeline.phase_of(lookup.process, lookup.at);
        let (process, path) = (lookup.process, lookup.path);
        let cell = cells.at((process, path, phase), || LookupCell {
            process,
            phase,
            path,
            calls: 0,
        });
        count(&mut cell.calls, 1);
    }
    cells.cells
}

/// File operations by process, phase, path and operation.
pub fn file_accesses(recording: &Recording, timeline: &Timeline) -> Vec<FileCell> {
    let mut cells = Cells::new();
    for access in &recording.files {
        let phase = timeline.phase_of(access.process, access.start);
        let (process, path, operation) = (access.process, access.path, access.operation);
        let cell = cells.at((process, path, operation as u8, phase), || FileCell {
            process,
            phase,
            path,
            operation,
            calls: 0,
            failed: 0,
            bytes: 0,
            total: Nanoseconds(0),
        });
        count(&mut cell.calls, 1);
        count(&mut cell.failed, u64::from(access.result < 0));
        if operation == FileOperation::Read {
            count(&mut cell.bytes, access.result.max(0) as u64);
        }
        add(&mut cell.total, access.duration);
    }
    cells.cells
}

/// Serializations by process, phase, function and callback; single events and sums together.
pub fn serializations(recording: &Recording, timeline: &Timeline) -> Vec<SerializationCell> {
    let mut cells = Cells::new();
    let new = |process, phase, function, callback| SerializationCell {
        process,
        phase,
        function,
        callback,
        calls: 0,
        bytes: 0,
        total: Nanoseconds(0),
        self_time: Nanoseconds(0),
    };
    for event in &recording.serializations {
        let phase = timeline.phase_of(event.process, event.start);
        let (process, function, callback) = (event.process, event.function, event.callback);
        let cell = cells.at((process, function, callback, phase), || {
            new(process, phase, function, callback)
        });
        count(&mut cell.calls, 1);
        count(&mut cell.bytes, event.bytes.unwrap_or_default());
        if let Some(duration) = event.duration {
            if !event.nested {
                add(&mut cell.total, duration);
            }
            add(&mut cell.self_time, event.self_time.unwrap_or(duration));
        }
    }
    for sum in &recording.serialization_sums {
        let phase = timeline.phase_after(sum.process, sum.phase);
        let (process, function, callback) = (sum.process, sum.function, sum.callback);
        let cell = cells.at((process, function, callback, phase), || {
            new(process, phase, function, callback)
        });
        count(&mut cell.calls, sum.calls);
        count(&mut cell.bytes, sum.bytes);
        add(&mut cell.total, sum.total);
        add(&mut cell.self_time, sum.self_time);
    }
    cells.cells
}

/// Compilations by process, phase, path, unit and whether cached.
pub fn compilations(recording: &Recording, timeline: &Timeline) -> Vec<CompilationCell> {
    let mut cells = Cells::new();
    for event in &recording.compilations {
        let phase = timeline.phase_of(event.process, event.start);
        let (process, path, unit, cached) = (event.process, event.path, event.unit, event.cached);
        let key = (process, path, unit as u8, u8::from(cached), phase);
        let cell = cells.at(key, || CompilationCell {
            process,
            phase,
            path,
            unit,
            cached,
            calls: 0,
            timed: 0,
            total: Nanoseconds(0),
            self_time: Nanoseconds(0),
        });
        count(&mut cell.calls, 1);
        if let Some(duration) = event.duration {
            count(&mut cell.timed, 1);
            add(&mut cell.total, duration);
            add(&mut cell.self_time, event.self_time.unwrap_or(duration));
        }
    }
    cells.cells
}
