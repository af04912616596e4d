//! Folded stacks as a tree in order: its text, and what pictures need of it.

use std::fmt;
use std::io;

use super::Metric;
use crate::hash::IdMap;

/// What a frame stands for: decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// A process.
    Process,
    /// A phase of a process.
    Phase,
    /// A thread other than the main one.
    Thread,
    /// JavaScript called by C++.
    JavaScript,
    /// A C++ module of node.
    Binding,
    /// A C++ function called by JavaScript.
    Callback,
    /// A Fast API call.
    FastCallback,
    /// A property read through C++.
    Getter,
    /// `new` of a C++ class.
    Constructor,
    /// A function that makes or reads a JavaScript value.
    Serialization,
    /// A file operation.
    Operation,
    /// A folder.
    Folder,
    /// An npm package in a node_modules folder.
    Package,
    /// A file.
    File,
    /// A built-in module of node.
    Builtin,
}

/// A frame, shared by all stacks in which it appears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Without `;` and control characters.
    pub name: String,
    /// What it stands for.
    pub kind: FrameKind,
    /// Siblings are ordered by this first, then by name.
    pub(super) rank: u32,
}

/// A frame in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Index into the frames.
    pub(super) frame: u32,
    /// Number of frames below it in its stack.
    pub(super) depth: u32,
    /// Without its children's.
    pub(super) own: u64,
}

/// Folded stacks of one run and metric. [`fmt::Display`] gives the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    pub(super) metric: Metric,
    pub(super) command: String,
    pub(super) node: Option<String>,
    pub(super) frames: Vec<Frame>,
    /// Each before its children, siblings in order.
    pub(super) nodes: Vec<Node>,
}

impl Folded {
    /// What is counted.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The run's command line, in short.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Version of the run's node.
    pub fn node_version(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Every frame that appears in a stack.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Sum of all values.
    pub fn total(&self) -> u64 {
        self.nodes
            .iter()
            .fold(0, |sum, node| sum.saturating_add(node.own))
    }

    /// Calls `each` with the frames and the value of every stack that has a value of its own.
    pub fn for_each_stack<E>(
        &self,
        mut each: impl FnMut(&[&Frame], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut stack: Vec<&Frame> = Vec::new();
        for node in &self.nodes {
            stack.truncate(node.depth as usize);
            stack.push(&self.frames[node.frame as usize]);
            if node.own > 0 {
                each(&stack, node.own)?;
            }
        }
        Ok(())
    }

    /// The same with every subtree worth less than `least` added to the frame that it stands on: the sum stays.
    pub(crate) fn without_less_than(&self, least: u64) -> Folded {
        let mut sums: Vec<u64> = self.nodes.iter().map(|node| node.own).collect();
        let mut parents: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut path: Vec<usize> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            path.truncate(node.depth as usize);
            parents.push(path.last().copied().unwrap_or(index));
            path.push(index);
        }
        for index in (0..self.nodes.len()).rev() {
            let parent = parents[index];
            if parent != index {
                sums[parent] = sums[parent].saturating_add(sums[index]);
            }
        }
        let mut nodes: Vec<Node> = Vec::new();
        // Place in `nodes` of each node, or of the one that it was added to.
        let mut places: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for (index, node) in self.nodes.iter().enumerate() {
            // A sum is never more than its parent's, so what stays has a parent that stays.
            if sums[index] >= least || parents[index] == index {
                places.push(nodes.len());
                nodes.push(*node);
            } else {
                let place = places[parents[index]];
                nodes[place].own = nodes[place].own.saturating_add(node.own);
                places.push(place);
            }
        }
        Folded {
            nodes,
            ..self.clone()
        }
    }

    /// The same as a person wants to see it: folders that hold but one folder in one frame with it, packages by name.
    pub(crate) fn for_picture(&self) -> Folded {
        let mut frames = self.frames.clone();
        for frame in frames
            .iter_mut()
            .filter(|frame| frame.kind == FrameKind::Package)
        {
            // Its colour says that it lies in a node_modules.
            let name = frame
                .name
                .strip_prefix("node_modules/")
                .unwrap_or(&frame.name);
            frame.name = name.trim_end_matches('/').to_owned();
        }
        let mut children = vec![0u32; self.nodes.len()];
        let mut path: Vec<usize> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            path.truncate(node.depth as usize);
            if let Some(&parent) = path.last() {
                children[parent] += 1;
            }
            path.push(index);
        }
        let is_folder =
            |index: usize| self.frames[self.nodes[index].frame as usize].kind == FrameKind::Folder;
        let mut merged: IdMap<(u32, u32), u32> = IdMap::default();
        let mut nodes: Vec<Node> = Vec::with_capacity(self.nodes.len());
        // For each frame of the current stack, how many frames of it were merged into others so far.
        let mut lost: Vec<u32> = Vec::new();
        let mut into_last = false;
        for (index, node) in self.nodes.iter().enumerate() {
            lost.truncate(node.depth as usize);
            let before = lost.last().copied().unwrap_or_default();
            match nodes.last_mut().filter(|_| into_last) {
                Some(last) => {
                    let frame = *merged.entry((last.frame, node.frame)).or_insert_with(|| {
                        let (above, below) =
                            (&frames[last.frame as usize], &frames[node.frame as usize]);
                        let frame = Frame {
                            name: format!("{}{}", above.name, below.name),
                            ..above.clone()
                        };
                        frames.push(frame);
                        frames.len() as u32 - 1
                    });
                    *last = Node {
                        frame,
                        own: node.own,
                        depth: last.depth,
                    };
                    lost.push(before + 1);
                }
                None => {
                    nodes.push(Node {
                        depth: node.depth - before,
                        ..*node
                    });
                    lost.push(before);
                }
            }
            // The only child comes next.
            into_last =
                node.own == 0 && children[index] == 1 && is_folder(index) && is_folder(index + 1);
        }
        Folded {
            frames,
            nodes,
            ..self.clone()
        }
    }

    /// Indices of the frames that are in a stack.
    pub(crate) fn used_frames(&self) -> impl Iterator<Item = usize> {
        let mut used = vec![false; self.frames.len()];
        for node in &self.nodes {
            used[node.frame as usize] = true;
        }
        used.into_iter()
            .enumerate()
            .filter_map(|(index, used)| used.then_some(index))
    }

    /// The text with other names for the frames.
    pub(crate) fn text_with(&self, names: &[String]) -> String {
        let mut out = String::new();
        let mut line = String::new();
        let mut ends: Vec<usize> = Vec::new();
        for node in &self.nodes {
            ends.truncate(node.depth as usize);
            line.truncate(ends.last().copied().unwrap_or_default());
            if !line.is_empty() {
                line.push(';');
            }
            line.push_str(
                names
                    .get(node.frame as usize)
                    .map(String::as_str)
                    .unwrap_or_default(),
            );
            ends.push(line.len());
            if node.own > 0 {
                out.push_str(&line);
                out.push(' ');
                out.push_str(&node.own.to_string());
                out.push('\n');
            }
        }
        out
    }

    /// One line per stack.
    pub fn write_to(&self, mut to: impl io::Write) -> io::Result<()> {
        to.write_all(self.to_string().as_bytes())
    }
}

impl fmt::Display for Folded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.for_each_stack(|stack, value| {
            for (index, frame) in stack.iter().enumerate() {
                if index > 0 {
                    f.write_str(";")?;
                }
                f.write_str(&frame.name)?;
            }
            writeln!(f, " {value}")
        })
    }
}
