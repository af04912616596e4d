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
mod calls;
mod components;
mod folded;
mod folder;
mod metric;
mod tree;

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::recording::RunId;

pub use folded::{Folded, Frame, FrameKind};
pub use metric::{Metric, Unit, UnknownMetric};

use crate::paths::{columns, cut, printable};
use folder::Folder;

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
/// Name of the binding that stands for JavaScript called by C++.
pub(crate) const JAVASCRIPT: &str = "(javascript)";
