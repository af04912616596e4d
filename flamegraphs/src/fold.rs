//! Folded stacks: what a recording counted, from the process and its phase down to a callback or a file.
//!
//! ```text
//! npm --version;bootstrap;JavaScript;fs;internalModuleStat 42
//! ```
//!
//! | metric | unit | frames below the phase | sum |
//! |---|---|---|---|
//! | `crossings` | calls | binding, callback; nested calls in nested frames | crossings + calls back to JavaScript |
//! | `crossing-time` | ns | the same | their self times |
//! | `serialization` | ns | binding, callback, C++ function | self times of serializations |
//! | `files` | system calls | operation, folders, file | file operations |
//! | `file-time` | ns | operation, folders, file | time in them |
//! | `package-json` | lookups | folders, file | lookups |
//! | `compile` | ns | folders, file | self times of compilations |
//!
//! The first frame is the command's process; a process that another one started is a frame inside it. Worker threads
//! have a frame after the phase. Two processes of one parent with the same command line are told apart by `#2`: pids
//! would make every run differ from the one before. Order and names depend on what was seen only, so that the folded
//! stacks of two runs can be compared line by line.
//!
//! A call is counted in the phase in which it began; the self time of one that lasts beyond it is divided among the
//! phases. System calls and serializations stand in the phase in which they began.
//!
//! Frames carry a [`FrameKind`], for colours; frames of a mixed JavaScript and C++ stack will be further kinds.

use std::fmt;
use std::io;
use std::str::FromStr;

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::{PhaseId, Timeline, serializations};
use nodeprof_profile::recording::{
    Callback, CallbackId, Crossing, CrossingKind, FileOperation, NameId, Nanoseconds, ProcessId,
    RunId, ThreadId,
};

use crate::hash::IdMap;
use crate::paths::{columns, cut, printable};

/// What is counted in a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Calls between JavaScript and C++.
    Crossings,
    /// Self time of these calls.
    CrossingTime,
    /// Self time of serializations.
    Serialization,
    /// System calls on files.
    Files,
    /// Time in system calls on files.
    FileTime,
    /// Lookups of package.json files.
    PackageJson,
    /// Self time of compilations.
    Compile,
}

/// What a value of a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things; with their name in the plural.
    Count(&'static str),
    /// Nanoseconds.
    Time,
}

impl Unit {
    /// The unit of the numbers in folded stacks.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Count(things) => things,
            Unit::Time => "ns",
        }
    }
}

impl Metric {
    /// All, in the order in which to offer them.
    pub const ALL: [Metric; 7] = [
        Metric::Crossings,
        Metric::CrossingTime,
        Metric::Serialization,
        Metric::Files,
        Metric::FileTime,
        Metric::PackageJson,
        Metric::Compile,
    ];

    /// Their names, for a command line's list of possible values.
    pub const NAMES: [&'static str; 7] = {
        let mut names = [""; 7];
        let mut index = 0;
        while index < names.len() {
            names[index] = Metric::ALL[index].name();
            index += 1;
        }
        names
    };

    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Crossings => "crossings",
            Metric::CrossingTime => "crossing-time",
            Metric::Serialization => "serialization",
            Metric::Files => "files",
            Metric::FileTime => "file-time",
            Metric::PackageJson => "package-json",
            Metric::Compile => "compile",
        }
    }

    /// A heading.
    pub const fn title(self) -> &'static str {
        match self {
            Metric::Crossings => "Calls between JavaScript and C++",
            Metric::CrossingTime => "Time in calls between JavaScript and C++",
            Metric::Serialization => "Time to make and read JavaScript values in C++",
            Metric::Files => "System calls on files",
            Metric::FileTime => "Time in system calls on files",
            Metric::PackageJson => "Lookups of package.json",
            Metric::Compile => "Time to compile JavaScript",
        }
    }

    /// Unit of the values.
    pub const fn unit(self) -> Unit {
        match self {
            Metric::Crossings => Unit::Count("calls"),
            Metric::Files => Unit::Count("system calls"),
            Metric::PackageJson => Unit::Count("lookups"),
            Metric::CrossingTime | Metric::Serialization | Metric::FileTime | Metric::Compile => {
                Unit::Time
            }
        }
    }

    /// The family of probes that records it.
    const fn family(self) -> &'static str {
        match self {
            Metric::Crossings | Metric::CrossingTime => "crossings",
            Metric::Serialization => "serialization",
            Metric::Files | Metric::FileTime => "files",
            Metric::PackageJson => "package-json",
            Metric::Compile => "compile",
        }
    }

    /// What is missing when there is nothing.
    const fn things(self) -> &'static str {
        match self {
            Metric::Crossings => "crossings",
            Metric::CrossingTime => "crossings with a measured time",
            Metric::Serialization => "serializations with a measured time",
            Metric::Files => "file operations",
            Metric::FileTime => "file operations with a measured time",
            Metric::PackageJson => "package.json lookups",
            Metric::Compile => "compilations with a measured time",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A metric that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found: no metric {found:?}; needed: one of {}", Metric::NAMES.join(", "))]
pub struct UnknownMetric {
    /// What was asked for.
    pub found: String,
}

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Metric::ALL.into_iter().find(|metric| metric.name() == name);
        found.ok_or_else(|| UnknownMetric {
            found: name.to_owned(),
        })
    }
}

/// Why there are no folded stacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// The recording has no such run.
    #[error("found: {runs} run(s) in the recording; needed: run {run}, counted from 0")]
    NoSuchRun {
        /// Asked for.
        run: u32,
        /// How many there are.
        runs: usize,
    },
    /// The run has nothing of this metric.
    #[error("found: no {things} in this recording{reason}; {remedy}")]
    NothingToShow {
        /// Asked for.
        metric: Metric,
        /// What is missing.
        things: &'static str,
        /// Why, if the recording says so; begins with a space.
        reason: String,
        /// What to do.
        remedy: String,
    },
}

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
    rank: u32,
}

/// A frame in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    /// Index into the frames.
    frame: u32,
    /// Number of frames below it in its stack.
    depth: u32,
    /// Without its children's.
    own: u64,
}

/// Folded stacks of one run and metric. [`fmt::Display`] gives the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    metric: Metric,
    command: String,
    node: Option<String>,
    frames: Vec<Frame>,
    /// Each before its children, siblings in order.
    nodes: Vec<Node>,
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

/// Folds one run of a recording, counted from 0.
///
/// Single events and sums count alike; a sum has no thread and no caller, and so stands directly in its phase.
pub fn fold(
    recording: &Recording,
    run: impl IntoRunId,
    metric: Metric,
) -> Result<Folded, FoldError> {
    fold_with_timeline(recording, &Timeline::new(recording), run, metric)
}

/// The same with a timeline that the caller has for other views.
pub fn fold_with_timeline(
    recording: &Recording,
    timeline: &Timeline,
    run: impl IntoRunId,
    metric: Metric,
) -> Result<Folded, FoldError> {
    let run = run.into_run_id();
    let Some(description) = recording.runs.get(run.0 as usize) else {
        return Err(FoldError::NoSuchRun {
            run: run.0,
            runs: recording.runs.len(),
        });
    };
    let mut folder = Folder::new(recording, timeline, run);
    match metric {
        Metric::Crossings | Metric::CrossingTime => {
            folder.crossings(metric == Metric::CrossingTime)
        }
        Metric::Serialization => folder.serializations(),
        Metric::Files | Metric::FileTime => folder.files(metric == Metric::FileTime),
        Metric::PackageJson => folder.lookups(),
        Metric::Compile => folder.compilations(),
    }
    let (frames, nodes) = folder.tree.in_order();
    let main = timeline
        .main_process(run)
        .and_then(|main| recording.processes.get(main.0 as usize));
    let binary = main.and_then(|main| recording.binaries.get(main.node?.0 as usize));
    let folded = Folded {
        metric,
        command: command_line(&description.command),
        node: binary.and_then(|binary| binary.node_version.clone()),
        frames,
        nodes,
    };
    if folded.total() == 0 {
        return Err(nothing(recording, run, metric));
    }
    Ok(folded)
}

fn nothing(recording: &Recording, run: RunId, metric: Metric) -> FoldError {
    let family = metric.family();
    let state = recording
        .families
        .iter()
        .find(|state| state.run == run && state.name == family);
    let (reason, remedy) = match state {
        Some(state) if state.state == "off" => (
            format!(" (the family {family} was off{})", state.reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default()),
            format!("needed: a trace with it; type: nodeprof trace --families {family} -- COMMAND"),
        ),
        Some(state) if state.state != "on" => (
            format!(" (the family {family}: {}{})", state.state, state.reason.as_deref().map(|why| format!(", {why}")).unwrap_or_default()),
            "needed: a node binary and a kernel that can be probed for it; type: nodeprof doctor".to_owned(),
        ),
        _ if metric.unit() == Unit::Time && recording.runs.get(run.0 as usize).is_some_and(|run| run.mode == "count") => (
            " (it was made in count mode)".to_owned(),
            "needed: times; type: nodeprof trace --mode full -- COMMAND".to_owned(),
        ),
        _ => (
            String::new(),
            "needed: a run in which there are some; to see what this one holds, type: nodeprof report FILE".to_owned(),
        ),
    };
    FoldError::NothingToShow {
        metric,
        things: metric.things(),
        reason,
        remedy,
    }
}

/// A run by its id or index.
pub trait IntoRunId {
    /// The id.
    fn into_run_id(self) -> RunId;
}

impl IntoRunId for RunId {
    fn into_run_id(self) -> RunId {
        self
    }
}

impl IntoRunId for usize {
    fn into_run_id(self) -> RunId {
        RunId(u32::try_from(self).unwrap_or(u32::MAX))
    }
}

/// Columns of a command line in a frame or title.
const COMMAND: usize = 60;

fn command_line(words: &[Vec<u8>]) -> String {
    let mut line = String::new();
    for (index, word) in words.iter().enumerate() {
        let word = String::from_utf8_lossy(word);
        // Paths of a machine say less than file names, and make two machines' graphs differ.
        let word = match word.rsplit('/').find(|part| !part.is_empty()) {
            Some(last) if index == 0 || word.starts_with('/') => last,
            _ => &word,
        };
        if index > 0 {
            line.push(' ');
        }
        line.push_str(&printable(word));
        // No need to look at the rest of 10,000 arguments.
        if columns(&line) > COMMAND {
            break;
        }
    }
    cut(&line, COMMAND).into_owned()
}

/// A name that cannot be taken for two frames, or for a frame and a number.
fn frame_name(text: &str) -> String {
    let mut name = printable(text).replace(';', ":");
    // `file 2 17` would be read as the stack `file` with the counts 2 and 17: a space that is none for parsers.
    if let Some(space) = name.rfind(' ')
        && name[space + 1..].parse::<f64>().is_ok()
    {
        name.replace_range(space..=space, "\u{a0}");
    }
    // inferno and flamegraph.pl skip lines that look like comments, and trim them.
    let trimmed = name.trim();
    match trimmed {
        "" => "(empty)".to_owned(),
        _ if trimmed.starts_with("# ") => trimmed.replacen("# ", "#\u{a0}", 1),
        _ => trimmed.to_owned(),
    }
}

const ROOT: u32 = 0;

/// A tree of frames under construction. Node 0 is above all.
struct Tree {
    frames: Vec<Frame>,
    frame_ids: IdMap<(FrameKind, String), u32>,
    /// Frame and parent of each node.
    nodes: Vec<(u32, u32)>,
    own: Vec<u64>,
    /// By parent and frame.
    children: IdMap<(u32, u32), u32>,
}

impl Tree {
    fn new() -> Tree {
        Tree {
            frames: Vec::new(),
            frame_ids: IdMap::default(),
            nodes: vec![(u32::MAX, ROOT)],
            own: vec![0],
            children: IdMap::default(),
        }
    }

    fn frame(&mut self, kind: FrameKind, text: &str, rank: u32) -> u32 {
        let key = (kind, frame_name(text));
        if let Some(&id) = self.frame_ids.get(&key) {
            return id;
        }
        let id = self.frames.len() as u32;
        self.frames.push(Frame {
            name: key.1.clone(),
            kind,
            rank,
        });
        self.frame_ids.insert(key, id);
        id
    }

    fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let next = self.nodes.len() as u32;
        let node = *self.children.entry((parent, frame)).or_insert(next);
        if node == next {
            self.nodes.push((frame, parent));
            self.own.push(0);
        }
        node
    }

    fn named(&mut self, parent: u32, kind: FrameKind, text: &str, rank: u32) -> u32 {
        let frame = self.frame(kind, text, rank);
        self.child(parent, frame)
    }

    fn add(&mut self, node: u32, value: u64) {
        let own = &mut self.own[node as usize];
        *own = own.saturating_add(value);
    }

    /// Parents before children, siblings in order, without those that stand for nothing.
    fn in_order(self) -> (Vec<Frame>, Vec<Node>) {
        let Tree {
            frames, nodes, own, ..
        } = self;
        // A child is made after its parent: from the end, every child has been seen before its parent.
        let mut alive: Vec<bool> = own.iter().map(|own| *own > 0).collect();
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        for (index, &(_, parent)) in nodes.iter().enumerate().skip(1).rev() {
            if alive[index] {
                alive[parent as usize] = true;
                children[parent as usize].push(index as u32);
            }
        }
        let mut position: Vec<u32> = (0..frames.len() as u32).collect();
        position.sort_by(|&a, &b| {
            let (a, b) = (&frames[a as usize], &frames[b as usize]);
            (a.rank, &a.name, a.kind).cmp(&(b.rank, &b.name, b.kind))
        });
        let mut order = vec![0u32; frames.len()];
        for (place, &frame) in position.iter().enumerate() {
            order[frame as usize] = place as u32;
        }
        for list in &mut children {
            list.sort_by_key(|&child| std::cmp::Reverse(order[nodes[child as usize].0 as usize]));
        }
        let mut result = Vec::with_capacity(nodes.len());
        let mut stack: Vec<(u32, u32)> = children[0].iter().map(|&child| (child, 0)).collect();
        while let Some((node, depth)) = stack.pop() {
            result.push(Node {
                frame: nodes[node as usize].0,
                depth,
                own: own[node as usize],
            });
            stack.extend(
                children[node as usize]
                    .iter()
                    .map(|&child| (child, depth + 1)),
            );
        }
        (frames, result)
    }
}

/// Which thread of a process, as far as the same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ThreadClass {
    Main,
    /// A thread with an environment of its own, counted from 1 in order of appearance.
    Worker(u32),
    /// Of libuv's or V8's pool.
    Pool,
}

/// Where events of a process stand while one phase lasts.
#[derive(Clone, Copy)]
struct Place {
    process: ProcessId,
    thread: ThreadId,
    from: Nanoseconds,
    to: Nanoseconds,
    node: u32,
}

struct Folder<'a> {
    recording: &'a Recording,
    /// The run's working directory.
    directory: String,
    timeline: &'a Timeline,
    tree: Tree,
    /// Node of each process; `None` if it is not of this run.
    processes: Vec<Option<u32>>,
    threads: IdMap<(u32, u32), ThreadClass>,
    workers: Vec<u32>,
    places: IdMap<(u32, u8, u32), u32>,
    last: Option<Place>,
    callbacks: IdMap<(u32, u32, u8), u32>,
    /// Frames of the binding, if it has one, and of the callback itself.
    callback_frames: IdMap<(u32, u8), (Option<u32>, u32)>,
    files: IdMap<(u32, u32), u32>,
}

impl<'a> Folder<'a> {
    fn new(recording: &'a Recording, timeline: &'a Timeline, run: RunId) -> Folder<'a> {
        let directory = recording
            .runs
            .get(run.0 as usize)
            .map(|run| run.directory.as_slice())
            .unwrap_or_default();
        let mut folder = Folder {
            recording,
            directory: String::from_utf8_lossy(directory)
                .trim_end_matches('/')
                .to_owned(),
            timeline,
            tree: Tree::new(),
            processes: vec![None; recording.processes.len()],
            threads: IdMap::default(),
            workers: vec![0; recording.processes.len()],
            places: IdMap::default(),
            last: None,
            callbacks: IdMap::default(),
            callback_frames: IdMap::default(),
            files: IdMap::default(),
        };
        folder.add_processes(run);
        folder.add_workers();
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
                let exec = process.execs.iter().max_by_key(|exec| exec.at);
                let name = match exec {
                    Some(exec) if !exec.arguments.is_empty() => command_line(&exec.arguments),
                    Some(exec) => command_line(std::slice::from_ref(&exec.path)),
                    None if parent == ROOT => command_line(&recording.runs[run.0 as usize].command),
                    None => "(forked)".to_owned(),
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

    fn add_workers(&mut self) {
        let recording = self.recording;
        let mut environments: Vec<_> = recording
            .milestones
            .iter()
            .map(|milestone| (milestone.at, milestone.process, milestone.thread))
            .collect();
        environments.sort();
        for (_, process, thread) in environments {
            self.worker(process, thread);
        }
    }

    /// Knows a thread as one that runs JavaScript.
    fn worker(&mut self, process: ProcessId, thread: ThreadId) {
        let Some(pid) = self
            .recording
            .processes
            .get(process.0 as usize)
            .map(|process| process.pid)
        else {
            return;
        };
        if pid == thread.0 || self.threads.contains_key(&(process.0, thread.0)) {
            return;
        }
        let count = &mut self.workers[process.0 as usize];
        *count += 1;
        self.threads
            .insert((process.0, thread.0), ThreadClass::Worker(*count));
    }

    fn class(&self, process: ProcessId, thread: ThreadId) -> ThreadClass {
        let of = self.recording.processes.get(process.0 as usize);
        match of {
            Some(of) if of.pid == thread.0 || of.node.is_none() => ThreadClass::Main,
            _ => self
                .threads
                .get(&(process.0, thread.0))
                .copied()
                .unwrap_or(ThreadClass::Pool),
        }
    }

    /// The node of a process, phase and thread; `None` if the process is not of this run.
    fn phase_node(
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
        let mut node = match name {
            // What is not node has one phase only, which says nothing.
            "" | "program" => parent,
            name => self
                .tree
                .named(parent, FrameKind::Phase, name, phase_rank(name)),
        };
        match thread {
            ThreadClass::Main => {}
            ThreadClass::Worker(number) => {
                node = self.tree.named(
                    node,
                    FrameKind::Thread,
                    &format!("worker {number}"),
                    LAST_RANK,
                )
            }
            ThreadClass::Pool => {
                node = self
                    .tree
                    .named(node, FrameKind::Thread, "thread pool", LAST_RANK)
            }
        }
        self.places.insert((process.0, phase.0, thread_key), node);
        Some(node)
    }

    /// The node of an instant on a thread.
    fn place(&mut self, process: ProcessId, thread: ThreadId, at: Nanoseconds) -> Option<u32> {
        if let Some(last) = &self.last
            && last.process == process
            && last.thread == thread
            && (last.from..last.to).contains(&at)
        {
            return Some(last.node);
        }
        let phase = self.timeline.phase_of(process, at);
        let node = self.phase_node(process, phase, self.class(process, thread))?;
        if let Some(span) = self.timeline.phases(process).get(phase.0 as usize) {
            self.last = Some(Place {
                process,
                thread,
                from: span.start,
                to: span.end,
                node,
            });
        }
        Some(node)
    }

    /// The node of a callback called from `parent`.
    fn callback(&mut self, parent: u32, callback: CallbackId, kind: CrossingKind) -> u32 {
        if let Some(&node) = self.callbacks.get(&(parent, callback.0, kind as u8)) {
            return node;
        }
        let (binding, frame) = self.callback_frames(callback, kind);
        let above = binding.map_or(parent, |binding| self.tree.child(parent, binding));
        let node = self.tree.child(above, frame);
        self.callbacks
            .insert((parent, callback.0, kind as u8), node);
        node
    }

    fn callback_frames(&mut self, callback: CallbackId, kind: CrossingKind) -> (Option<u32>, u32) {
        if let Some(&frames) = self.callback_frames.get(&(callback.0, kind as u8)) {
            return frames;
        }
        let unknown = Callback {
            binding: "(unknown)".to_owned(),
            function: format!("#{}", callback.0),
        };
        let named = self
            .recording
            .callbacks
            .get(callback.0 as usize)
            .unwrap_or(&unknown);
        let frames = if kind == CrossingKind::ToJs || named.binding == JAVASCRIPT {
            (
                None,
                self.tree.frame(FrameKind::JavaScript, "JavaScript", 0),
            )
        } else {
            let binding = self.tree.frame(FrameKind::Binding, &named.binding, 0);
            let (kind, name) = match kind {
                CrossingKind::Slow | CrossingKind::ToJs => {
                    (FrameKind::Callback, named.function.clone())
                }
                CrossingKind::Fast => (
                    FrameKind::FastCallback,
                    format!("{} [fast]", named.function),
                ),
                CrossingKind::Getter => (FrameKind::Getter, format!("{} [getter]", named.function)),
                CrossingKind::Construct => (
                    FrameKind::Constructor,
                    format!("{} [construct]", named.function),
                ),
            };
            (Some(binding), self.tree.frame(kind, &name, 0))
        };
        self.callback_frames
            .insert((callback.0, kind as u8), frames);
        frames
    }

    fn crossings(&mut self, time: bool) {
        let recording = self.recording;
        let order = by_thread(&recording.crossings);
        let mut open: Vec<Open> = Vec::new();
        let mut current = None;
        for index in order {
            let crossing = &recording.crossings[index as usize];
            let thread = (crossing.process, crossing.thread);
            if current != Some(thread) {
                current = Some(thread);
                self.leave(&mut open, 0);
                // A thread that calls C++ from JavaScript runs JavaScript, even if its milestones were not seen.
                self.worker(crossing.process, crossing.thread);
            }
            let Some(base) = self.place(crossing.process, crossing.thread, crossing.start) else {
                continue;
            };
            while open.last().is_some_and(|last| last.is_over(crossing)) {
                let depth = open.len() - 1;
                self.leave(&mut open, depth);
            }
            let inside = match crossing.parent {
                None => {
                    // It says that it is inside of none: what has not returned was left by an exception or a jump.
                    if let Some(at) = open.iter().position(|outer| outer.end.is_none()) {
                        self.leave(&mut open, at);
                    }
                    open.last().map(|outer| (outer.node, outer.base))
                }
                Some(parent) => {
                    if let Some(at) = open.iter().position(|outer| outer.end.is_none())
                        && !open[at..].iter().any(|outer| outer.callback == parent)
                    {
                        self.leave(&mut open, at);
                    }
                    match open.last() {
                        Some(outer) if open.iter().any(|outer| outer.callback == parent) => {
                            Some((outer.node, outer.base))
                        }
                        // Its caller was only summed, and so has no place of its own.
                        outer => {
                            let above = outer.map_or(base, |outer| outer.node);
                            Some((self.callback(above, parent, CrossingKind::Slow), base))
                        }
                    }
                }
            };
            // What begins in another phase than its caller stands there: phases tell when, and come first.
            let above = match inside {
                Some((node, at)) if at == base => node,
                Some(_) => self.replant(&mut open, base),
                None => base,
            };
            let node = self.callback(above, crossing.callback, crossing.kind);
            let end = crossing
                .duration
                .map(|duration| Nanoseconds(crossing.start.0.saturating_add(duration.0)));
            let mut spread = None;
            match (time, crossing.duration, end) {
                (false, ..) => self.tree.add(node, 1),
                (true, Some(duration), Some(end)) => {
                    let own = crossing.self_time.unwrap_or(duration);
                    if let Some(caller) = open.last_mut().and_then(|outer| outer.spread.as_mut()) {
                        caller.inside.push((crossing.start, end));
                    }
                    if self.last.is_some_and(|place| end > place.to) {
                        // It is known only at its end when its self time was.
                        spread = Some(Spread {
                            crossing: index,
                            own,
                            inside: Vec::new(),
                        });
                    } else {
                        self.tree.add(node, own.0);
                    }
                }
                (true, ..) => {}
            }
            if end.is_some() || crossing.unfinished {
                open.push(Open {
                    callback: crossing.callback,
                    kind: crossing.kind,
                    end,
                    node,
                    base,
                    spread,
                });
            }
        }
        self.leave(&mut open, 0);
        for sum in &recording.crossing_sums {
            let phase = self.timeline.phase_after(sum.process, sum.phase);
            if let Some(base) = self.phase_node(sum.process, phase, ThreadClass::Main) {
                let node = self.callback(base, sum.callback, sum.kind);
                self.tree
                    .add(node, if time { sum.self_time.0 } else { sum.calls });
            }
        }
    }

    /// Closes the open calls from a depth on.
    fn leave(&mut self, open: &mut Vec<Open>, depth: usize) {
        while open.len() > depth {
            if let Some(call) = open.pop()
                && let Some(spread) = &call.spread
            {
                self.spread(open, &call, spread);
            }
        }
    }

    /// Deals the self time of a call that lasted longer than its phase out to the phases.
    ///
    /// Node's main script runs inside a call that began in the bootstrap: without this, the bootstrap would seem to
    /// last to the end of it.
    fn spread(&mut self, outer: &[Open], call: &Open, spread: &Spread) {
        let crossing = &self.recording.crossings[spread.crossing as usize];
        let (start, end) = (crossing.start, call.end.unwrap_or(crossing.start));
        let first = self.timeline.phase_of(crossing.process, start);
        let last = self.timeline.phase_of(crossing.process, end);
        let phases = self.timeline.phases(crossing.process);
        let mut parts: Vec<(PhaseId, u64)> = (first.0..=last.0)
            .map(|phase| {
                // Before the first phase and after the last is in them.
                let from = if phase == first.0 {
                    start
                } else {
                    phases
                        .get(phase as usize)
                        .map_or(start, |phase| phase.start)
                };
                let to = if phase == last.0 {
                    end
                } else {
                    phases.get(phase as usize).map_or(end, |phase| phase.end)
                };
                let shared =
                    |(a, b): (Nanoseconds, Nanoseconds)| b.min(to).0.saturating_sub(a.max(from).0);
                let inside = spread
                    .inside
                    .iter()
                    .fold(0u64, |sum, &span| sum.saturating_add(shared(span)));
                (PhaseId(phase), shared((start, end)).saturating_sub(inside))
            })
            .collect();
        // Calls inside that were only summed have no place in time: they shorten every part alike.
        let own = u128::from(spread.own.0);
        let sum: u128 = parts.iter().map(|part| u128::from(part.1)).sum();
        let mut seen = 0u128;
        let mut given = 0u64;
        for part in &mut parts {
            seen += u128::from(part.1);
            let until = if sum == 0 { own } else { own * seen / sum } as u64;
            part.1 = until - given;
            given = until;
        }
        let class = self.class(crossing.process, crossing.thread);
        for (phase, value) in parts.into_iter().filter(|part| part.1 > 0) {
            let Some(base) = self.phase_node(crossing.process, phase, class) else {
                continue;
            };
            let mut node = base;
            for call in outer.iter().chain([call]) {
                node = self.callback(node, call.callback, call.kind);
            }
            self.tree.add(node, value);
        }
    }

    /// Rebuilds the open calls below another phase; gives the innermost.
    fn replant(&mut self, open: &mut [Open], base: u32) -> u32 {
        let mut node = base;
        for outer in open {
            node = self.callback(node, outer.callback, outer.kind);
            outer.node = node;
            outer.base = base;
        }
        node
    }

    fn serializations(&mut self) {
        for cell in serializations(self.recording, self.timeline) {
            let Some(base) = self.phase_node(cell.process, cell.phase, ThreadClass::Main) else {
                continue;
            };
            let above = match cell.callback {
                Some(callback) => self.callback(base, callback, CrossingKind::Slow),
                None => self
                    .tree
                    .named(base, FrameKind::Binding, "(outside of any callback)", 0),
            };
            let name = String::from_utf8_lossy(self.recording.name(cell.function));
            let node = self.tree.named(above, FrameKind::Serialization, &name, 0);
            self.tree.add(node, cell.self_time.0);
        }
    }

    fn files(&mut self, time: bool) {
        for access in &self.recording.files {
            let Some(base) = self.place(access.process, access.thread, access.start) else {
                continue;
            };
            let node = self.file(base, Some(access.operation), access.path);
            self.tree
                .add(node, if time { access.duration.0 } else { 1 });
        }
    }

    fn lookups(&mut self) {
        for lookup in &self.recording.lookups {
            if let Some(base) = self.place(lookup.process, lookup.thread, lookup.at) {
                let node = self.file(base, None, lookup.path);
                self.tree.add(node, 1);
            }
        }
    }

    fn compilations(&mut self) {
        for compilation in &self.recording.compilations {
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
            Some(operation) => {
                self.tree
                    .named(base, FrameKind::Operation, operation_name(operation), 0)
            }
            None => base,
        };
        if let Some(&node) = self.files.get(&(base, path.0)) {
            return node;
        }
        let text = String::from_utf8_lossy(self.recording.name(path));
        let mut node = base;
        for (kind, name) in components(&text, &self.directory) {
            node = self.tree.named(node, kind, &name, 0);
        }
        self.files.insert((base, path.0), node);
        node
    }
}

/// Name of the binding that stands for JavaScript called by C++.
pub(crate) const JAVASCRIPT: &str = "(javascript)";

/// A crossing that others may be inside of.
struct Open {
    callback: CallbackId,
    kind: CrossingKind,
    /// `None` if it never returned.
    end: Option<Nanoseconds>,
    node: u32,
    base: u32,
    /// If times are folded and it lasted beyond the phase in which it began.
    spread: Option<Spread>,
}

struct Spread {
    /// Index of the crossing.
    crossing: u32,
    own: Nanoseconds,
    /// Calls directly inside it.
    inside: Vec<(Nanoseconds, Nanoseconds)>,
}

impl Open {
    fn is_over(&self, next: &Crossing) -> bool {
        let Some(end) = self.end else { return false };
        match next.duration {
            Some(duration) => end.0 < next.start.0.saturating_add(duration.0) || end <= next.start,
            None => end < next.start,
        }
    }
}

/// Indices of crossings: thread by thread, in order of entry, callers before callees.
fn by_thread(crossings: &[Crossing]) -> Vec<u32> {
    struct Key {
        thread: u64,
        start: u64,
        // Longest first: of two that begin at once, it is the caller.
        remaining: u64,
        // Of two alike, the one written last returned last.
        index: u32,
    }
    let mut keys: Vec<Key> = crossings
        .iter()
        .enumerate()
        .map(|(index, crossing)| Key {
            thread: (u64::from(crossing.process.0) << 32) | u64::from(crossing.thread.0),
            start: crossing.start.0,
            remaining: crossing
                .duration
                .map_or(u64::from(!crossing.unfinished) * u64::MAX, |duration| {
                    u64::MAX - duration.0
                }),
            index: u32::MAX - index as u32,
        })
        .collect();
    let key = |key: &Key| (key.thread, key.start, key.remaining, key.index);
    // Recordings are nearly in order, which a stable sort makes use of.
    keys.sort_by_key(key);
    keys.into_iter().map(|key| u32::MAX - key.index).collect()
}

const LAST_RANK: u32 = 1000;

/// Phases stand in order of time.
fn phase_rank(name: &str) -> u32 {
    const ORDER: [&str; 9] = [
        "whole",
        "before_exec",
        "process",
        "platform",
        "v8",
        "bootstrap",
        "main_script",
        "loop",
        "teardown",
    ];
    let first = name.split('+').next().unwrap_or(name);
    ORDER
        .iter()
        .position(|known| *known == first)
        .map_or(LAST_RANK - 1, |rank| rank as u32 + 1)
}

fn operation_name(operation: FileOperation) -> &'static str {
    match operation {
        FileOperation::Stat => "stat",
        FileOperation::Open => "open",
        FileOperation::Read => "read",
        FileOperation::Readlink => "readlink",
        FileOperation::Close => "close",
        FileOperation::Access => "access",
    }
}

/// Folders with a slash at their end, then the file; a package with its node_modules folder is one frame, and so is
/// the working directory, `./`: where it lies differs from machine to machine.
fn components(path: &str, directory: &str) -> Vec<(FrameKind, String)> {
    if let Some(module) = path.strip_prefix("node:") {
        let mut parts = vec![(FrameKind::Builtin, "built-in modules".to_owned())];
        parts.extend(
            folders(module)
                .into_iter()
                .map(|(_, name)| (FrameKind::Builtin, name)),
        );
        return parts;
    }
    // Numbers of descriptors say nothing, and differ from run to run.
    if path
        .strip_prefix("fd:")
        .is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
    {
        return vec![(FrameKind::File, "(descriptor of unknown origin)".to_owned())];
    }
    let path = path
        .strip_prefix("file://")
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(path);
    if !directory.is_empty()
        && let Some(inside) = path.strip_prefix(directory)
    {
        if inside.is_empty() {
            return vec![(FrameKind::File, ".".to_owned())];
        }
        if let Some(inside) = inside.strip_prefix('/') {
            let mut parts = vec![(FrameKind::Folder, "./".to_owned())];
            parts.extend(folders(inside));
            return parts;
        }
    }
    folders(path)
}

fn folders(path: &str) -> Vec<(FrameKind, String)> {
    let (root, rest) = match path.strip_prefix('/') {
        Some(rest) => ("/", rest),
        None => ("", path),
    };
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    let mut result: Vec<(FrameKind, String)> = Vec::with_capacity(parts.len());
    let mut index = 0;
    while index < parts.len() {
        let package = match (parts[index], parts.get(index + 1), parts.get(index + 2)) {
            ("node_modules", Some(scope), Some(_)) if scope.starts_with('@') => 3,
            ("node_modules", Some(_), _) => 2,
            _ => 1,
        };
        let end = index + package;
        let mut name = parts[index..end].join("/");
        if index == 0 {
            name.insert_str(0, root);
        }
        let kind = match (package > 1, end == parts.len()) {
            // What lies in node_modules itself may be a file, such as .package-lock.json.
            (true, true) => FrameKind::File,
            (true, false) => FrameKind::Package,
            (false, true) => FrameKind::File,
            (false, false) => FrameKind::Folder,
        };
        if end < parts.len() {
            name.push('/');
        }
        result.push((kind, name));
        index = end;
    }
    if result.is_empty() {
        result.push((
            FrameKind::File,
            if root.is_empty() {
                "(no path)".to_owned()
            } else {
                root.to_owned()
            },
        ));
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_one_frame() {
        let names = |path: &str| {
            components(path, "/home/me")
                .into_iter()
                .map(|(_, name)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names("/work/node_modules/@scope/name/lib/a.js"),
            ["/work/", "node_modules/@scope/name/", "lib/", "a.js"]
        );
        assert_eq!(
            names("/node_modules/x/package.json"),
            ["/node_modules/x/", "package.json"]
        );
        assert_eq!(names("/work/node_modules"), ["/work/", "node_modules"]);
        assert_eq!(
            names("node:internal/util"),
            ["built-in modules", "internal/", "util"]
        );
        assert_eq!(names("fd:7"), ["(descriptor of unknown origin)"]);
        assert_eq!(
            names("/home/me/node_modules/x/a.js"),
            ["./", "node_modules/x/", "a.js"]
        );
        assert_eq!(names("/home/me"), ["."]);
        assert_eq!(names("/home/meals/a"), ["/home/", "meals/", "a"]);
        assert_eq!(names("/"), ["/"]);
        assert_eq!(names(""), ["(no path)"]);
    }

    #[test]
    fn a_frame_cannot_pass_for_something_else() {
        assert_eq!(frame_name("a;b\nc"), "a:b\\nc");
        assert_eq!(frame_name("file 2"), "file\u{a0}2");
        assert_eq!(frame_name("  "), "(empty)");
        assert_eq!(frame_name("# a"), "#\u{a0}a");
    }

    #[test]
    fn every_metric_is_found_by_its_name() {
        for metric in Metric::ALL {
            assert_eq!(metric.name().parse(), Ok(metric));
        }
        let error = "cpu".parse::<Metric>().unwrap_err().to_string();
        assert!(
            error.contains("\"cpu\"") && error.contains("package-json"),
            "{error}"
        );
    }
}
