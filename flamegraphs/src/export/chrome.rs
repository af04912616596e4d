//! Chrome's trace event format (JSON), for Perfetto and `chrome://tracing`: a timeline of everything that was recorded.
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>
//!
//! A process is a process. Its threads have a track each with their calls, file operations, serializations and
//! compilations, one inside the other; beside it tracks of modules, CPU samples, garbage collections and waits. Times are
//! microseconds since the start of the run.

mod calls;
mod charts;
mod modules;
mod sink;
mod slices;

use std::borrow::Cow;
use std::io::Write;

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::modules::Modules;
use nodeprof_profile::recording::{Nanoseconds, ProcessId, ThreadId};

use super::ExportError;
use crate::drawn::Drawn;
use crate::fold::{self, By, FoldError, Metric, Request};
use crate::select::{Selected, SumFit};
use crate::stacks;
use sink::Sink;
use slices::{Slice, Told, What, into_lanes, nested};

/// Why a trace was not written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There is nothing to write.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// It could not be written.
    #[error(transparent)]
    Export(#[from] ExportError),
}

/// Writes the selected part of a run: everything if `all`, else phases, modules and what `request.metric` counts. Says
/// what was left out.
pub fn write(
    recording: &Recording,
    request: &Request,
    all: bool,
    to: impl Write,
) -> Result<Vec<String>, TraceError> {
    let timeline = Timeline::new(recording);
    let selected = fold::select(recording, &timeline, request)?;
    let drawn = Drawn::new(recording, &timeline, [request.run]);
    let run = recording.runs.get(request.run.0 as usize);
    let mut file = Tracks {
        recording,
        timeline: &timeline,
        selected: &selected,
        started: run.map(|run| run.started).unwrap_or_default(),
        drawn: &drawn,
        tracks: Vec::new(),
        notes: Vec::new(),
    };
    file.phases();
    file.modules();
    for metric in [Metric::Cpu, Metric::OffCpu] {
        if all || metric == request.metric || request.metric == Metric::Wall {
            file.stacks(request, metric);
        }
    }
    file.calls(if all { None } else { Some(request.metric) });
    if file.tracks.is_empty() {
        return Err(fold::nothing(&drawn, request).into());
    }
    file.write(to)?;
    Ok(file.notes)
}

/// What a track shows of a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shows {
    Phases,
    /// Those that overlap others have further tracks.
    Modules(u32),
    Calls,
    Samples,
    Collections,
    Waits,
}

struct Track {
    process: ProcessId,
    thread: ThreadId,
    shows: Shows,
    slices: Vec<Slice>,
}

struct Tracks<'a> {
    recording: &'a Recording,
    timeline: &'a Timeline,
    selected: &'a Selected,
    /// The start of the run.
    started: Nanoseconds,
    drawn: &'a Drawn<'a>,
    tracks: Vec<Track>,
    notes: Vec<String>,
}

impl Tracks<'_> {
    /// Adds a track, from the start of the run on: the first sample stands for time before it.
    fn push(&mut self, of: (ProcessId, ThreadId), shows: Shows, mut slices: Vec<Slice>) {
        let started = self.started.0;
        slices.retain_mut(|slice| slice.clip(started));
        if !slices.is_empty() {
            self.tracks.push(Track {
                process: of.0,
                thread: of.1,
                shows,
                slices,
            });
        }
    }

    /// The selected part of a span of time.
    fn clip(&self, start: Nanoseconds, end: Nanoseconds) -> Option<(u64, u64)> {
        let (from, until) = (self.selected.from, self.selected.until);
        let outside = start >= until || (end <= from && start < from);
        (!outside).then(|| (start.max(from).0, end.min(until).max(start).0))
    }

    fn pid(&self, process: ProcessId) -> u32 {
        let process = self.recording.processes.get(process.0 as usize);
        process.map(|process| process.pid).unwrap_or_default()
    }

    fn phases(&mut self) {
        for (index, process) in self.recording.processes.iter().enumerate() {
            let id = ProcessId(index as u32);
            let main = ThreadId(process.pid);
            if !self.selected.has_thread(id, main) {
                continue;
            }
            let phases = self.timeline.phases(id).iter().filter_map(|phase| {
                let (start, end) = self.clip(phase.start, phase.end)?;
                Some(Slice::new(start, end, Told::new(&*phase.name, "phase")))
            });
            let milestones = self.recording.milestones.iter().filter_map(|milestone| {
                let of_main = milestone.process == id && milestone.thread == main;
                let (at, _) = self.clip(milestone.at, milestone.at).filter(|_| of_main)?;
                let told = Told::new(milestone.name.as_str(), "milestone");
                Some(Slice::instant(at, told))
            });
            let slices = phases.chain(milestones).collect();
            self.push((id, main), Shows::Phases, nested(slices));
        }
    }

    fn modules(&mut self) {
        let modules = Modules::new(self.recording, self.timeline);
        for (unit, slices) in modules::slices(self, &modules) {
            for (lane, slices) in (0..).zip(into_lanes(slices)) {
                self.push(modules.threads[unit], Shows::Modules(lane), slices);
            }
        }
    }

    /// Samples or waits.
    fn stacks(&mut self, request: &Request, metric: Metric) {
        let request = Request {
            metric,
            ..request.clone()
        };
        let mut stacks = stacks::collect(self.drawn, self.selected, &request, By::Stack);
        stacks.in_order_of_time();
        for thread in &stacks.threads {
            let of = (thread.process, thread.tid);
            if metric == Metric::OffCpu {
                self.push(of, Shows::Waits, charts::waits(&stacks, thread));
            } else {
                self.push(of, Shows::Samples, charts::samples(&stacks, thread));
                self.push(of, Shows::Collections, charts::collections(&stacks, thread));
            }
        }
    }

    /// Everything that has a beginning and an end on a thread.
    fn calls(&mut self, metric: Option<Metric>) {
        for (of, slices) in calls::collect(self, metric) {
            self.push(of, Shows::Calls, nested(slices));
        }
        let wanted = |metrics: &[Metric]| metric.is_none_or(|metric| metrics.contains(&metric));
        // Those that the selected span cuts may be of it.
        let calls = |process, passed, calls| {
            let phase = self.timeline.phase_after(process, passed);
            match self.selected.has_sum(self.timeline, process, phase) {
                SumFit::Out => 0,
                SumFit::In | SumFit::Cut => calls,
            }
        };
        let mut summed = 0u64;
        if wanted(&[Metric::Crossings, Metric::CrossingTime]) {
            for sum in &self.recording.crossing_sums {
                summed = summed.saturating_add(calls(sum.process, sum.phase, sum.calls));
            }
        }
        if wanted(&[Metric::Serialization]) {
            for sum in &self.recording.serialization_sums {
                summed = summed.saturating_add(calls(sum.process, sum.phase, sum.calls));
            }
        }
        if summed > 0 {
            self.notes.push(nodeprof_profile::wording::counted(
                summed,
                "Left out: # [call that was|calls that were] only counted, so that it is not known when [it was|they were].",
            ));
        }
    }

    fn name(&self, track: &Track) -> String {
        let class = self.drawn.classes().class(track.process, track.thread);
        let thread = stacks::thread_name(class, self.pid(track.process), track.thread);
        match track.shows {
            Shows::Phases => "phases".to_owned(),
            Shows::Modules(0) => format!("{thread}: modules"),
            Shows::Modules(lane) => format!("{thread}: modules ({})", lane + 1),
            Shows::Calls => format!("{thread}: calls"),
            Shows::Samples => format!("{thread}: CPU samples"),
            Shows::Collections => format!("{thread}: garbage collection, by samples"),
            Shows::Waits => format!("{thread}: off the CPU"),
        }
    }

    /// Microseconds since the start of the run.
    fn us(&self, at: u64) -> f64 {
        at.saturating_sub(self.started.0) as f64 / 1e3
    }

    fn write(&self, to: impl Write) -> Result<(), ExportError> {
        // Processes as they began; in each, phases first, then the main thread.
        let order = |track: &&Track| {
            let main = track.thread.0 == self.pid(track.process);
            let phases = track.shows == Shows::Phases;
            (track.process, !phases, !main, track.thread, track.shows)
        };
        let mut tracks: Vec<&Track> = self.tracks.iter().collect();
        tracks.sort_by_key(order);
        let mut sink = Sink::new(to, &self.selected.words)?;
        let mut described = None;
        for (position, track) in (0..).zip(tracks) {
            // The calls of a thread have its number; what is beside them, one that no thread has.
            let tid = match track.shows {
                Shows::Calls => track.thread.0,
                _ => MADE_UP + position,
            };
            let id = (self.pid(track.process), tid);
            if described != Some(track.process) {
                described = Some(track.process);
                let process = self.recording.processes.get(track.process.0 as usize);
                let name = process.map(fold::command_of).unwrap_or_default();
                sink.describe("process_name", id, "name", name.into())?;
                let sort = track.process.0.into();
                sink.describe("process_sort_index", id, "sort_index", sort)?;
            }
            sink.describe("thread_name", id, "name", self.name(track).into())?;
            sink.describe("thread_sort_index", id, "sort_index", position.into())?;
            for slice in &track.slices {
                let told = match &slice.what {
                    What::Told(told) => Some(Cow::Borrowed(&**told)),
                    What::Call(call) => call.told(self.recording).map(Cow::Owned),
                };
                let us = |ns: u64| ns as f64 / 1e3;
                let duration = slice.end.map(|end| us(end.saturating_sub(slice.start)));
                if let Some(told) = told {
                    sink.slice(id, self.us(slice.start), duration, &told)?;
                }
            }
        }
        sink.finish()
    }
}

/// Numbers of threads, which are process ids, end at 2^22.
const MADE_UP: u32 = 1 << 24;
