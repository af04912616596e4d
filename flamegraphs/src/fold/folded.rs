//! Folded stacks as a tree in order: its text, and what pictures need of it.

use std::fmt;
use std::io;

use super::{By, Metric, Order};
use crate::hash::IdMap;
use crate::units::time;

/// What a frame stands for: decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// A process.
    Process,
    /// A phase of a process.
    Phase,
    /// A thread other than the main one.
    Thread,
    /// JavaScript of the program.
    JavaScript,
    /// JavaScript that is built into node.
    NodeJavaScript,
    /// A builtin of V8.
    V8Builtin,
    /// C++ of the node binary.
    Native,
    /// C++ that parses or compiles JavaScript.
    Compilation,
    /// C++ that collects garbage.
    GarbageCollection,
    /// WebAssembly.
    WebAssembly,
    /// A native add-on.
    AddOn,
    /// A shared library.
    Library,
    /// The kernel.
    Kernel,
    /// The kernel, running probes: what tracing itself costs.
    Tracing,
    /// Why a thread did not run.
    Wait,
    /// Code of unknown origin, or a stack that is not known.
    Unknown,
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
    /// An npm package.
    Package,
    /// A file.
    File,
    /// A built-in module of node.
    Builtin,
    /// No frame of its own: the part of the frame above that lies between two of its callees, in order of time.
    Between,
}

/// A frame, shared by all stacks in which it appears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Without `;` and control characters.
    pub name: String,
    /// What it stands for.
    pub kind: FrameKind,
    /// Where it is in the code, if it is a function.
    pub source: Option<Box<Source>>,
    /// Siblings are ordered by this first, then by name.
    pub(crate) rank: u32,
}

impl Frame {
    pub(crate) fn named(kind: FrameKind, text: &str) -> Frame {
        Frame {
            name: super::tree::frame_name(text),
            kind,
            source: None,
            rank: 0,
        }
    }
}

/// Where a function is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Its name in full.
    pub function: String,
    /// Script or binary: path, `node:…`, or as V8 names it.
    pub file: Option<String>,
    /// Line where it begins, from 1.
    pub line: Option<u32>,
    /// Column where it begins, from 1.
    pub column: Option<u32>,
    /// Some of its code was optimised, and what was inlined into it is not known.
    pub inlining_possible: bool,
}

/// A frame in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Index into the frames.
    pub(crate) frame: u32,
    /// Number of frames below it in its stack.
    pub(crate) depth: u32,
    /// Without its children's.
    pub(crate) own: u64,
}

/// What stacks are of, for titles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// What is counted.
    pub metric: Metric,
    /// What the frames are.
    pub by: By,
    /// The run's command line, in short.
    pub command: String,
    /// Version of the run's node.
    pub node: Option<String>,
    /// Which threads and which span of time.
    pub part: String,
    /// What is left out of it, in whole sentences.
    pub notes: Vec<String>,
}

impl About {
    /// What is shown.
    pub fn title(&self) -> String {
        let what = match (self.metric, self.by) {
            // Calls of JavaScript by C++ have their callee on the stack, not their caller.
            (Metric::Crossings, By::Stack | By::Module | By::Package) => {
                "Calls from JavaScript to C++"
            }
            (Metric::CrossingTime, By::Stack | By::Module | By::Package) => {
                "Time in calls from JavaScript to C++"
            }
            _ => self.metric.title(),
        };
        match self.by {
            By::Stack | By::Phase => what.to_owned(),
            By::Module => format!("{what}, by module"),
            By::Package => format!("{what}, by package"),
        }
    }

    /// Of what, and how much of it.
    pub fn subtitle(&self, total: u64) -> String {
        let node = self.node.as_ref();
        let node = node.map(|version| format!(" · node {version}"));
        let sum = match self.metric.unit() {
            super::Unit::Count(things) => crate::units::things(total, things),
            super::Unit::Time => time(total),
        };
        format!(
            "{}{} · {} · {sum}",
            self.command,
            node.unwrap_or_default(),
            self.part
        )
    }
}

/// Folded stacks of one run and metric. [`fmt::Display`] gives the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    pub(crate) about: About,
    pub(crate) order: Order,
    pub(crate) frames: Vec<Frame>,
    /// Each before its children, siblings in order.
    pub(crate) nodes: Vec<Node>,
}

impl Folded {
    /// What it is of.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// What is counted.
    pub fn metric(&self) -> Metric {
        self.about.metric
    }

    /// What left and right mean.
    pub fn order(&self) -> Order {
        self.order
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
    ///
    /// In order of time a stack comes once for every time that it was there.
    pub fn for_each_stack<E>(
        &self,
        mut each: impl FnMut(&[&Frame], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut stack: Vec<&Frame> = Vec::new();
        for node in &self.nodes {
            stack.truncate(node.depth as usize);
            let frame = &self.frames[node.frame as usize];
            if frame.kind != FrameKind::Between {
                stack.push(frame);
            }
            if node.own > 0 {
                each(&stack, node.own)?;
            }
        }
        Ok(())
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
            about: self.about.clone(),
            order: self.order,
            frames,
            nodes,
        }
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
