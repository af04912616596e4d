//! The file format of speedscope: one evented profile a thread.
//!
//! Evented, not sampled: from one stack to the next only the frames that change are written, a tenth of the size.
//! Events stand end to end: a frame's width is its value, as in every flame graph, not the time that it was open.
//! <https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources>

use std::io::Write;

use serde::Serialize;

use super::{EXPORTER, ExportError};
use crate::fold::{Frame, Unit};
use crate::stacks::{StackNode, Stacks};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: String,
    active_profile_index: usize,
    shared: Shared<'a>,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<SharedFrame<'a>>,
}

#[derive(Serialize)]
struct SharedFrame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    col: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    events: Vec<Event>,
}

#[derive(Serialize)]
struct Event {
    #[serde(rename = "type")]
    kind: char,
    frame: u32,
    at: u64,
}

/// Writes them. What was only summed has a profile of its own.
pub fn write(mut stacks: Stacks, to: impl Write) -> Result<(), ExportError> {
    let total = stacks.total();
    let unit = match stacks.about.metric.unit() {
        Unit::Count(_) => "none",
        Unit::Time => "nanoseconds",
    };
    let mut profiles = Vec::new();
    for thread in &mut stacks.threads {
        thread.sort();
        let name = match stacks.timeless {
            // Of all processes and threads that were asked for.
            true => thread.command.clone(),
            false => format!("{} ({}): {}", thread.command, thread.pid, thread.name()),
        };
        let entries = thread.entries.iter().map(|entry| (entry.node, entry.value));
        let sums = thread.sums.iter().map(|sum| (sum.node, sum.value));
        for (name, events) in [
            (name.clone(), Events::of(&stacks.nodes, entries)),
            (
                format!("{name}, calls that were only counted"),
                Events::of(&stacks.nodes, sums),
            ),
        ] {
            if events.at > 0 {
                profiles.push(Profile {
                    kind: "evented",
                    name,
                    unit,
                    start_value: 0,
                    end_value: events.at,
                    events: events.list,
                });
            }
        }
    }
    // What a person looks for first.
    let largest = (0..profiles.len()).max_by_key(|&index| profiles[index].end_value);
    let about = &stacks.about;
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: EXPORTER,
        name: format!("{}: {}", about.title(), about.subtitle(total)),
        active_profile_index: largest.unwrap_or_default(),
        shared: Shared {
            frames: stacks.frames.iter().map(shared).collect(),
        },
        profiles,
    };
    serde_json::to_writer(to, &file)?;
    Ok(())
}

fn shared(frame: &Frame) -> SharedFrame<'_> {
    let source = frame.source.as_deref();
    SharedFrame {
        name: &frame.name,
        file: source.and_then(|source| source.file.as_deref()),
        line: source.and_then(|source| source.line),
        col: source.and_then(|source| source.column),
    }
}

/// Frames that open and close.
#[derive(Default)]
struct Events {
    list: Vec<Event>,
    at: u64,
}

impl Events {
    fn of(nodes: &[StackNode], values: impl Iterator<Item = (u32, u64)>) -> Events {
        let mut events = Events::default();
        let mut open: Vec<u32> = Vec::new();
        let mut path: Vec<u32> = Vec::new();
        let mut last = None;
        for (node, value) in values {
            if last != Some(node) {
                last = Some(node);
                path.clear();
                let callers =
                    std::iter::successors(Some(node), |&node| nodes[node as usize].parent);
                path.extend(callers.map(|node| nodes[node as usize].frame));
                path.reverse();
                let same = open.iter().zip(&path).take_while(|(a, b)| a == b).count();
                events.close(&mut open, same);
                for &frame in &path[same..] {
                    events.push('O', frame);
                    open.push(frame);
                }
            }
            events.at = events.at.saturating_add(value);
        }
        events.close(&mut open, 0);
        events
    }

    fn close(&mut self, open: &mut Vec<u32>, down_to: usize) {
        while open.len() > down_to {
            if let Some(frame) = open.pop() {
                self.push('C', frame);
            }
        }
    }

    fn push(&mut self, kind: char, frame: u32) {
        let at = self.at;
        self.list.push(Event { kind, frame, at });
    }
}
