//! The same as text and for other programs.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use super::{Differential, Known, Node};
use crate::fold::{Frame, Unit};

/// Which value of a node.
type Value = fn(&Node) -> f64;

/// A node of the JSON.
#[derive(Serialize)]
struct Json<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    base: f64,
    head: f64,
    base_own: f64,
    head_own: f64,
    state: &'static str,
    known: Known,
    #[serde(skip_serializing_if = "Option::is_none")]
    adjusted_p: Option<f64>,
    /// Index of the caller in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<usize>,
}

impl Differential {
    /// Calls `each` with the index and the frames of every node.
    fn for_each<'a>(
        &'a self,
        mut each: impl FnMut(&[&'a Frame], &'a Node) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut stack: Vec<&Frame> = Vec::new();
        for node in &self.nodes {
            stack.truncate(node.depth as usize);
            stack.push(self.frame(node));
            each(&stack, node)?;
        }
        Ok(())
    }

    /// One line a stack, with its value in base and in head, as inferno-diff-folded writes them: means per run, rounded.
    pub fn write_folded(&self, mut to: impl Write) -> io::Result<()> {
        let mut text = String::new();
        self.for_each(|stack, node| {
            let (base, head) = (node.base.own.round(), node.head.own.round());
            if base > 0.0 || head > 0.0 {
                let names: Vec<&str> = stack.iter().map(|frame| frame.name.as_str()).collect();
                text.push_str(&format!("{} {base} {head}\n", names.join(";")));
            }
            Ok(())
        })?;
        to.write_all(text.as_bytes())
    }

    /// All that is known, frame by frame.
    pub fn write_json(&self, mut to: impl Write) -> io::Result<()> {
        let mut path: Vec<usize> = Vec::new();
        let nodes: Vec<Json<'_>> = (self.nodes.iter().enumerate())
            .map(|(index, node)| {
                path.truncate(node.depth as usize);
                let caller = path.last().copied();
                path.push(index);
                let frame = self.frame(node);
                let source = frame.source.as_deref();
                Json {
                    name: &frame.name,
                    file: source.and_then(|source| source.file.as_deref()),
                    line: source.and_then(|source| source.line),
                    base: node.base.sum,
                    head: node.head.sum,
                    base_own: node.base.own,
                    head_own: node.head.own,
                    state: match node {
                        node if node.is_new() => "new",
                        node if node.is_elided() => "elided",
                        _ => "both",
                    },
                    known: node.known,
                    adjusted_p: node.adjusted_p,
                    caller,
                }
            })
            .collect();
        let (base, head) = self.totals();
        let document = json!({
            "schema": 1,
            "metric": self.about.metric.name(),
            "unit": self.about.metric.unit().name(),
            "base": { "name": self.names[0], "runs": self.runs[0], "total": base },
            "head": { "name": self.names[1], "runs": self.runs[1], "total": head },
            "notes": self.notes(),
            "frames": nodes,
        });
        serde_json::to_writer(&mut to, &document)?;
        to.write_all(b"\n")
    }

    /// For speedscope: base and head, and what became more and less, as profiles of one file.
    pub fn write_speedscope(&self, mut to: impl Write) -> io::Result<()> {
        let frames: Vec<_> = (self.frames.iter())
            .map(|frame| {
                let source = frame.source.as_deref();
                let mut shared = json!({ "name": frame.name });
                if let Some(file) = source.and_then(|source| source.file.as_deref()) {
                    shared["file"] = json!(file);
                }
                if let Some(line) = source.and_then(|source| source.line) {
                    shared["line"] = json!(line);
                }
                shared
            })
            .collect();
        let unit = match self.about.metric.unit() {
            Unit::Count(_) => "none",
            Unit::Time => "nanoseconds",
        };
        let [base, head] = &self.names;
        let values: [(String, Value); 4] = [
            (head.clone(), |node| node.head.own),
            (base.clone(), |node| node.base.own),
            (format!("more in {head}"), |node| {
                (node.head.own - node.base.own).max(0.0)
            }),
            (format!("less in {head}"), |node| {
                (node.base.own - node.head.own).max(0.0)
            }),
        ];
        let profiles: Vec<_> = values
            .into_iter()
            .map(|(name, value)| {
                let mut stack: Vec<u32> = Vec::new();
                let (mut samples, mut weights, mut total) = (Vec::new(), Vec::new(), 0.0);
                for node in &self.nodes {
                    stack.truncate(node.depth as usize);
                    stack.push(node.frame);
                    let weight = value(node);
                    if weight > 0.0 {
                        samples.push(stack.clone());
                        weights.push(weight);
                        total += weight;
                    }
                }
                json!({
                    "type": "sampled", "name": name, "unit": unit, "startValue": 0, "endValue": total,
                    "samples": samples, "weights": weights,
                })
            })
            .collect();
        let document = json!({
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": crate::export::EXPORTER,
            "name": format!("{}: {base} → {head}", self.title()),
            "activeProfileIndex": 0,
            "shared": { "frames": frames },
            "profiles": profiles,
        });
        serde_json::to_writer(&mut to, &document)?;
        to.write_all(b"\n")
    }
}
