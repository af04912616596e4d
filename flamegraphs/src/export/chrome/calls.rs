//! Calls, file operations, serializations and compilations of each thread, as slices.

use std::collections::BTreeMap;

use nodeprof_profile::Recording;
use nodeprof_profile::recording::{
    Crossing, CrossingKind, NameId, Nanoseconds, ProcessId, ThreadId,
};
use serde::Serialize;
use serde_json::Value;

use super::Tracks;
use super::slices::{Slice, Told, What};
use crate::fold::Metric;
use crate::paths::printable;

type Id = (ProcessId, ThreadId);

/// An event of the recording, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Crossing(u32),
    Compilation(u32),
    Serialization(u32),
    File(u32),
    Lookup(u32),
    Step(u32),
}

/// Of one metric, or of all.
pub(super) fn collect(tracks: &Tracks<'_>, metric: Option<Metric>) -> BTreeMap<Id, Vec<Slice>> {
    let mut calls = Calls {
        tracks,
        by_thread: BTreeMap::new(),
    };
    let wanted = |metrics: &[Metric]| metric.is_none_or(|metric| metrics.contains(&metric));
    let recording = tracks.recording;
    if wanted(&[Metric::Crossings, Metric::CrossingTime]) {
        for (index, event) in (0..).zip(&recording.crossings) {
            let of = (event.process, event.thread);
            calls.add(of, event.start, event.duration, Call::Crossing(index));
        }
    }
    if wanted(&[Metric::Compile]) {
        for (index, event) in (0..).zip(&recording.compilations) {
            let of = (event.process, event.thread);
            calls.add(of, event.start, event.duration, Call::Compilation(index));
        }
    }
    if wanted(&[Metric::Serialization]) {
        for (index, event) in (0..).zip(&recording.serializations) {
            let of = (event.process, event.thread);
            calls.add(of, event.start, event.duration, Call::Serialization(index));
        }
    }
    if wanted(&[Metric::Files, Metric::FileTime]) {
        for (index, event) in (0..).zip(&recording.files) {
            let of = (event.process, event.thread);
            calls.add(of, event.start, Some(event.duration), Call::File(index));
        }
    }
    if wanted(&[Metric::PackageJson]) {
        for (index, event) in (0..).zip(&recording.lookups) {
            let of = (event.process, event.thread);
            calls.add(of, event.at, None, Call::Lookup(index));
        }
    }
    if metric.is_none() {
        // Steps of the start, such as the snapshot.
        for (index, event) in (0..).zip(&recording.spans) {
            let of = (event.process, event.thread);
            calls.add(of, event.start, event.duration, Call::Step(index));
        }
    }
    calls.by_thread
}

struct Calls<'a> {
    tracks: &'a Tracks<'a>,
    by_thread: BTreeMap<Id, Vec<Slice>>,
}

impl Calls<'_> {
    /// Adds what happened in a span of time, or at an instant if there is no duration, if it is selected.
    fn add(&mut self, of: Id, start: Nanoseconds, duration: Option<Nanoseconds>, call: Call) {
        if !self.tracks.selected.has_thread(of.0, of.1) {
            return;
        }
        let end = Nanoseconds(start.0.saturating_add(duration.unwrap_or_default().0));
        if let Some((start, end)) = self.tracks.clip(start, end) {
            self.by_thread.entry(of).or_default().push(Slice {
                start,
                end: duration.map(|_| end),
                what: What::Call(call),
            });
        }
    }
}

impl Call {
    /// Its texts; nothing if there is no such event.
    pub(super) fn told(self, recording: &Recording) -> Option<Told> {
        let name = |id: NameId| {
            let text = String::from_utf8_lossy(recording.name(id));
            printable(&text).into_owned()
        };
        Some(match self {
            Call::Crossing(index) => crossing(recording, recording.crossings.get(index as usize)?),
            Call::Compilation(index) => {
                let event = recording.compilations.get(index as usize)?;
                Told::new(format!("compile {}", name(event.path)), "compile")
                    .set("unit", word(event.unit))
                    .set("from cache", Some(event.cached))
            }
            Call::Serialization(index) => {
                let event = recording.serializations.get(index as usize)?;
                Told::new(name(event.function), "serialization").set("bytes", event.bytes)
            }
            Call::File(index) => {
                let event = recording.files.get(index as usize)?;
                let operation = event.operation.name();
                Told::new(format!("{operation} {}", name(event.path)), "file")
                    .set("result", Some(event.result))
            }
            Call::Lookup(index) => {
                let event = recording.lookups.get(index as usize)?;
                Told::new(format!("look up {}", name(event.path)), "package.json")
            }
            Call::Step(index) => {
                let event = recording.spans.get(index as usize)?;
                Told::new(name(event.name), "step")
            }
        })
    }
}

fn crossing(recording: &Recording, event: &Crossing) -> Told {
    let callback = recording.callbacks.get(event.callback.0 as usize);
    let told = match callback {
        _ if event.kind == CrossingKind::ToJs => Told::new("JavaScript", "C++ to JavaScript"),
        Some(callback) => {
            let name = format!("{}.{}", callback.binding, callback.function);
            Told::new(printable(&name), "JavaScript to C++")
        }
        None => Told::new("(unknown)", "JavaScript to C++"),
    };
    told.set("kind", word(event.kind))
        .set("self_us", event.self_time.map(|own| own.0 as f64 / 1e3))
        .set("never returned", event.unfinished.then_some(true))
}

/// As the recording's file and the JSON call it.
fn word(kind: impl Serialize) -> Option<Value> {
    serde_json::to_value(kind).ok()
}
