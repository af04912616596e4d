//! A CPU profile as V8 writes it (`node --cpu-prof`), for Chrome DevTools and VS Code: one thread.
//!
//! V8's own profiles hold JavaScript only; this one holds the whole stack. Consumers let a sample last until the next
//! one begins, so the time between two spans of work is a sample of `(idle)`.

use std::collections::HashMap;
use std::io::Write;

use serde::Serialize;

use super::ExportError;
use super::timeline::steps;
use crate::fold::{Frame, FrameKind, Metric, Unit};
use crate::hash::IdMap;
use crate::stacks::{Entry, Stacks, Thread};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    nodes: Vec<Node<'a>>,
    start_time: u64,
    end_time: u64,
    samples: Vec<u32>,
    time_deltas: Vec<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    id: u32,
    call_frame: CallFrame<'a>,
    hit_count: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    position_ticks: Vec<PositionTick>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallFrame<'a> {
    function_name: &'a str,
    script_id: String,
    url: String,
    /// From 0.
    line_number: i64,
    /// From 0.
    column_number: i64,
}

#[derive(Serialize)]
struct PositionTick {
    /// From 1, unlike all others.
    line: u32,
    ticks: u32,
}

/// Writes the main thread of the main node process, or of the first process if that is not among them, or the thread with most to show. Says what was left out.
pub fn write(mut stacks: Stacks, to: impl Write) -> Result<Vec<String>, ExportError> {
    let metric = stacks.about.metric;
    let format = "cpuprofile";
    if metric.unit() != Unit::Time {
        return Err(ExportError::NotATime { metric, format });
    }
    if stacks.timeless {
        return Err(ExportError::NoInstants { format });
    }
    stacks.in_order_of_time();
    let chosen = (0..stacks.threads.len())
        .min_by_key(|&index| {
            let thread = &stacks.threads[index];
            (
                thread.tid.0 != thread.pid,
                Some(thread.process) != stacks.main,
                thread.process,
                usize::MAX - thread.entries.len(),
            )
        })
        .ok_or(ExportError::OnlySums { format })?;
    let mut notes = std::mem::take(&mut stacks.about.notes);
    let thread = &stacks.threads[chosen];
    if stacks.threads.len() > 1 {
        notes.push(format!(
            "Of {} threads only one is in the file, as the format has it: the {} of process {}. For another, type: --thread TID --process PID",
            stacks.threads.len(),
            thread.name(),
            thread.pid
        ));
    }
    let file = Builder::new(&stacks).build(thread);
    serde_json::to_writer(to, &file)?;
    Ok(notes)
}

const ROOT: u32 = 1;

struct Builder<'a> {
    stacks: &'a Stacks,
    nodes: Vec<Node<'a>>,
    children: IdMap<(u32, u32), u32>,
    /// By stack.
    places: Vec<Option<u32>>,
    scripts: HashMap<&'a str, usize>,
    idle: Option<u32>,
    samples: Vec<(u32, u64)>,
}

impl<'a> Builder<'a> {
    fn new(stacks: &'a Stacks) -> Builder<'a> {
        let mut builder = Builder {
            stacks,
            nodes: Vec::new(),
            children: IdMap::default(),
            places: vec![None; stacks.nodes.len()],
            scripts: HashMap::new(),
            idle: None,
            samples: Vec::new(),
        };
        builder.node(None, CallFrame::named("(root)"));
        builder
    }

    fn build(mut self, thread: &Thread) -> File<'a> {
        let first = thread
            .entries
            .first()
            .map(|entry| entry.at.0)
            .unwrap_or_default();
        let end = match self.stacks.about.metric {
            Metric::Cpu | Metric::OffCpu | Metric::Wall => self.as_it_was(&thread.entries),
            // Their calls lie inside one another: what counts is the time of each without those inside.
            _ => self.end_to_end(&thread.entries, first),
        };
        // Some consumers let a sample last until the next one only, and so want one after the last.
        let idle = self.idle();
        self.sample(idle, end, None);
        let start = first / 1_000;
        let mut before = start;
        let mut file = File {
            nodes: Vec::new(),
            start_time: start,
            end_time: end.div_ceil(1_000),
            samples: Vec::with_capacity(self.samples.len()),
            time_deltas: Vec::with_capacity(self.samples.len()),
        };
        for (node, at) in std::mem::take(&mut self.samples) {
            let at = (at / 1_000).max(before);
            file.samples.push(node);
            file.time_deltas.push(at - before);
            before = at;
        }
        file.nodes = self.nodes;
        file
    }

    fn as_it_was(&mut self, entries: &[Entry]) -> u64 {
        let (steps, end) = steps(self.stacks, entries);
        for step in steps {
            match step.node {
                Some(node) => {
                    let line = self.stacks.nodes[node as usize].line;
                    let node = self.place(node);
                    self.sample(node, step.at, line);
                }
                None => {
                    let idle = self.idle();
                    self.sample(idle, step.at, None);
                }
            }
        }
        end
    }

    fn end_to_end(&mut self, entries: &[Entry], first: u64) -> u64 {
        let mut at = first;
        for entry in entries {
            let node = self.place(entry.node);
            self.sample(node, at, self.stacks.nodes[entry.node as usize].line);
            at = at.saturating_add(entry.value);
        }
        at
    }

    fn sample(&mut self, node: u32, at: u64, line: Option<u32>) {
        self.samples.push((node, at));
        let node = &mut self.nodes[node as usize - 1];
        node.hit_count += 1;
        if let Some(line) = line {
            match node
                .position_ticks
                .iter_mut()
                .find(|tick| tick.line == line)
            {
                Some(tick) => tick.ticks += 1,
                None => node.position_ticks.push(PositionTick { line, ticks: 1 }),
            }
        }
    }

    fn idle(&mut self) -> u32 {
        if let Some(idle) = self.idle {
            return idle;
        }
        let idle = self.node(Some(ROOT), CallFrame::named("(idle)"));
        self.idle = Some(idle);
        idle
    }

    fn node(&mut self, parent: Option<u32>, call_frame: CallFrame<'a>) -> u32 {
        let id = self.nodes.len() as u32 + 1;
        self.nodes.push(Node {
            id,
            call_frame,
            hit_count: 0,
            children: Vec::new(),
            position_ticks: Vec::new(),
        });
        if let Some(parent) = parent {
            self.nodes[parent as usize - 1].children.push(id);
        }
        id
    }

    /// The node of a stack: of functions, whichever lines they stood at.
    fn place(&mut self, stack: u32) -> u32 {
        let stacks = self.stacks;
        let mut missing = Vec::new();
        let mut at = Some(stack);
        let mut above = ROOT;
        while let Some(index) = at {
            if let Some(known) = self.places[index as usize] {
                above = known;
                break;
            }
            missing.push(index);
            at = stacks.nodes[index as usize].parent;
        }
        for index in missing.into_iter().rev() {
            let frame = stacks.nodes[index as usize].frame;
            above = match self.children.get(&(above, frame)) {
                Some(&known) => known,
                None => {
                    let call_frame = self.call_frame(&stacks.frames[frame as usize]);
                    let node = self.node(Some(above), call_frame);
                    self.children.insert((above, frame), node);
                    node
                }
            };
            self.places[index as usize] = Some(above);
        }
        above
    }

    fn call_frame(&mut self, frame: &'a Frame) -> CallFrame<'a> {
        let source = match (frame.kind, frame.source.as_deref()) {
            (
                FrameKind::JavaScript | FrameKind::NodeJavaScript | FrameKind::WebAssembly,
                Some(source),
            ) => source,
            _ => return CallFrame::named(&frame.name),
        };
        let file = source.file.as_deref().unwrap_or_default();
        let next = self.scripts.len() + 1;
        let script = *self.scripts.entry(file).or_insert(next);
        let from_zero = |number: Option<u32>| number.map_or(-1, |number| i64::from(number) - 1);
        CallFrame {
            function_name: &source.function,
            script_id: script.to_string(),
            url: url(file),
            line_number: from_zero(source.line),
            column_number: from_zero(source.column),
        }
    }
}

impl<'a> CallFrame<'a> {
    fn named(name: &'a str) -> CallFrame<'a> {
        CallFrame {
            function_name: name,
            script_id: "0".to_owned(),
            url: String::new(),
            line_number: -1,
            column_number: -1,
        }
    }
}

/// As Node writes paths into its profiles.
fn url(file: &str) -> String {
    if !file.starts_with('/') {
        return file.to_owned();
    }
    let mut url = String::from("file://");
    for byte in file.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => url.push(char::from(byte)),
            b'/' | b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' | b'@' | b'&'
            | b'=' | b'+' | b'$' | b',' | b':' | b';' => {
                url.push(char::from(byte));
            }
            byte => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use super::url;

    #[test]
    fn paths_are_urls_as_node_makes_them() {
        assert_eq!(url("/a b/ü#?%.js"), "file:///a%20b/%C3%BC%23%3F%25.js");
        assert_eq!(
            url("/a/node_modules/@s/b.mjs"),
            "file:///a/node_modules/@s/b.mjs"
        );
        assert_eq!(url("node:fs"), "node:fs");
        assert_eq!(url("file:///x.mjs"), "file:///x.mjs");
        assert_eq!(url(""), "");
    }
}
