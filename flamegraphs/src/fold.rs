//! Folded stacks: what a recording counted, from the process down to a function, a callback or a file.
//!
//! ```text
//! node app.js;main;node::Start;app.js;require node:internal/modules/helpers:180;fs.internalModuleStat 42
//! ```
//!
//! Where stacks were recorded, frames are functions, or the modules or packages that these are of ([`crate::stacks`]).
//! Else, and on demand, they are phases:
//!
//! | metric | unit | frames below the phase | sum |
//! |---|---|---|---|
//! | `cpu`, `off-cpu`, `wall` | ns | on a CPU, or why not | CPU time of samples, time of waits |
//! | `crossings` | calls | binding, callback; nested calls in nested frames | crossings; calls back to JavaScript are frames, and count nothing |
//! | `crossing-time` | ns | the same | their self times |
//! | `serialization` | ns | binding, callback, C++ function | self times of serializations |
//! | `files` | system calls | operation, folders, file | file operations |
//! | `file-time` | ns | operation, folders, file | time in them |
//! | `package-json` | lookups | folders, file | lookups |
//! | `compile` | ns | folders, file | self times of compilations |
//!
//! The first frame is the command's process; a process that another one started is a frame inside it. Worker threads
//! have a frame of their own. Two processes of one parent with the same command line are told apart by `#2`: pids
//! would make every run differ from the one before. Order and names depend on what was seen only, so that the folded
//! stacks of two runs can be compared line by line.
//!
//! By phase, a call is counted in the phase in which it began; the self time of one that lasts beyond it is divided
//! among the phases. System calls and serializations stand in the phase in which they began.
mod calls;
mod components;
mod folded;
mod folder;
mod metric;
mod threads;
mod tree;

use std::fmt;
use std::str::FromStr;

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::diff::names::Roots;
use nodeprof_profile::groups::COUNT_MODE;
use nodeprof_profile::recording::{Process, Run, RunId};

pub use folded::{About, Folded, Frame, FrameKind, Source};
pub use metric::{Metric, Unit, UnknownMetric};

pub(crate) use folder::Folder;
pub(crate) use threads::{ThreadClass, ThreadClasses};
pub(crate) use tree::{Tree, frame_name};

use crate::drawn::Drawn;
use crate::paths::{columns, cut, printable};
use crate::select::{SelectError, Selected, Selection};
use crate::stacks::{self, Stacks};

/// What the frames of a stack are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// Functions: the whole stack of JavaScript, C++ and kernel.
    Stack,
    /// The JavaScript modules that these functions are of.
    Module,
    /// The npm packages of these modules.
    Package,
    /// Phase, binding and callback, or phase and path: needs no stacks.
    Phase,
}

/// From left to right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// What is alike is one frame; phases in order of time, other frames by name.
    #[default]
    Merged,
    /// In order of time, as a flame chart: what is alike is one frame only where nothing came between.
    Time,
}

macro_rules! words {
    ($type:ident, $($variant:ident $word:literal),*) => {
        impl $type {
            /// All, as they are typed.
            pub const NAMES: &'static [&'static str] = &[$($word),*];
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($type::$variant => $word),* })
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok($type::$variant),)*
                    _ => Err(format!("found: {word:?}; needed: one of {}", Self::NAMES.join(", "))),
                }
            }
        }
    };
}
words!(By, Stack "stack", Module "module", Package "package", Phase "phase");
words!(Order, Merged "merged", Time "time");

/// What to draw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which run of the recording.
    pub run: RunId,
    /// What to count.
    pub metric: Metric,
    /// What the frames are. `None`: [`By::Stack`] if stacks were recorded, of a graph of several runs in all of them, else
    /// [`By::Phase`].
    pub by: Option<By>,
    /// From left to right.
    pub order: Order,
    /// Which threads, which span of time.
    pub selection: Selection,
    /// Show positions in the sources that scripts were made from, where source maps tell them.
    pub source_maps: bool,
}

impl Request {
    /// All of the first run, merged.
    pub fn new(metric: Metric) -> Request {
        Request {
            run: RunId(0),
            metric,
            by: None,
            order: Order::Merged,
            selection: Selection::default(),
            source_maps: true,
        }
    }
}

/// Why there are no folded stacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// The recording has no such run.
    #[error("found: {} in the recording; needed: run {run}, counted from 0", nodeprof_profile::wording::counted(*runs as u64, "# run[|s]"))]
    NoSuchRun {
        /// Asked for.
        run: u32,
        /// How many there are.
        runs: usize,
    },
    /// The run has nothing of this metric.
    #[error("found: no {things} in {place}{reason}; {remedy}")]
    NothingToShow {
        /// Asked for.
        metric: Metric,
        /// What is missing.
        things: &'static str,
        /// Where it is missing.
        place: String,
        /// Why, if the recording says so; begins with a space.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// There are such events, but without stacks.
    #[error(
        "found: {0} without stacks in this run; needed: a trace with stacks, or --by phase, which needs none"
    )]
    NoStacks(Metric),
    /// Folded by phase, there is nothing to put in order of time.
    #[error(
        "found: --order time with --by phase; needed: --by stack, --by module or --by package, or --order merged"
    )]
    NoOrder,
    /// No such part of the run.
    #[error(transparent)]
    Select(#[from] SelectError),
}

/// Folds what a request asks for.
///
/// Single events and sums count alike; a sum has no thread and no instant, and so counts as the main thread's.
pub fn fold(recording: &Recording, request: &Request) -> Result<Folded, FoldError> {
    fold_with_timeline(recording, &Timeline::new(recording), request)
}

/// The same with a timeline that the caller has for other views.
pub fn fold_with_timeline(
    recording: &Recording,
    timeline: &Timeline,
    request: &Request,
) -> Result<Folded, FoldError> {
    fold_drawn(
        &Drawn::new(recording, timeline, [request.run]),
        request,
        None,
    )
}

/// How a graph is drawn that is compared with another one.
#[derive(Clone, Copy)]
pub(crate) struct Compared<'a> {
    /// Folders are seen from there, not from the working directory: those of two programs that lie elsewhere are then alike.
    pub(crate) roots: &'a Roots,
    /// Calls stand side by side by phase, not in one another: how they nest is not known of the other one.
    pub(crate) side_by_side: bool,
}

/// The same of one of the runs that are drawn together.
pub(crate) fn fold_drawn(
    drawn: &Drawn<'_>,
    request: &Request,
    compared: Option<Compared<'_>>,
) -> Result<Folded, FoldError> {
    let selected = select(drawn.recording, drawn.timeline, request)?;
    let folded = match form(drawn, request)? {
        By::Phase if request.order == Order::Time => return Err(FoldError::NoOrder),
        By::Phase => by_phase(drawn, &selected, request.metric, compared),
        by => {
            let stacks = stacks::collect(drawn, &selected, request, by);
            stacks.fold(drawn, &selected, request.order)
        }
    };
    match folded.total() {
        0 => Err(nothing(drawn, request)),
        _ => Ok(folded),
    }
}

/// The stacks that a request asks for, thread by thread with their instants, for formats that tell those.
pub fn stacks(recording: &Recording, request: &Request) -> Result<Stacks, FoldError> {
    let timeline = Timeline::new(recording);
    stacks_drawn(&Drawn::new(recording, &timeline, [request.run]), request)
}

/// The same of one of the runs that are drawn together.
pub(crate) fn stacks_drawn(drawn: &Drawn<'_>, request: &Request) -> Result<Stacks, FoldError> {
    let selected = select(drawn.recording, drawn.timeline, request)?;
    let stacks = match form(drawn, request)? {
        By::Phase => Stacks::from_folded(
            by_phase(drawn, &selected, request.metric, None),
            drawn.recording,
            &selected,
        ),
        by => stacks::collect(drawn, &selected, request, by),
    };
    match stacks.total() {
        0 => Err(nothing(drawn, request)),
        _ => Ok(stacks),
    }
}

pub(crate) fn select(
    recording: &Recording,
    timeline: &Timeline,
    request: &Request,
) -> Result<Selected, FoldError> {
    let (run, runs) = (request.run, recording.runs.len());
    if run.0 as usize >= runs {
        return Err(FoldError::NoSuchRun { run: run.0, runs });
    }
    let selected = Selected::new(&request.selection, request.metric, recording, timeline, run)?;
    Ok(selected)
}

/// What the frames are to be.
fn form(drawn: &Drawn<'_>, request: &Request) -> Result<By, FoldError> {
    let has_stacks = request.metric.has_stacks(drawn, request.run);
    match request.by {
        None if has_stacks => Ok(By::Stack),
        None | Some(By::Phase) => Ok(By::Phase),
        Some(by) if has_stacks => Ok(by),
        Some(_) if !request.metric.has_events(drawn, request.run) => Err(nothing(drawn, request)),
        Some(_) => Err(FoldError::NoStacks(request.metric)),
    }
}

/// The form of a graph of several runs that is drawn by stack or by phase, for all of them: by stack if every run that has
/// something to show has stacks.
pub(crate) fn form_of_all<'d, 'a: 'd>(
    runs: impl IntoIterator<Item = (&'d Drawn<'a>, RunId)>,
    metric: Metric,
) -> By {
    let mut some = false;
    for (drawn, run) in runs {
        if metric.has_stacks(drawn, run) {
            some = true;
        } else if metric.has_events(drawn, run) {
            return By::Phase;
        }
    }
    match some {
        true => By::Stack,
        false => By::Phase,
    }
}

fn by_phase(
    drawn: &Drawn<'_>,
    selected: &Selected,
    metric: Metric,
    compared: Option<Compared<'_>>,
) -> Folded {
    let mut folder = Folder::new(drawn, selected);
    folder.roots = compared.map(|compared| compared.roots);
    folder.side_by_side = compared.is_some_and(|compared| compared.side_by_side);
    match metric {
        Metric::Cpu => folder.samples(),
        Metric::OffCpu => folder.waits(),
        Metric::Wall => {
            folder.samples();
            folder.waits();
        }
        Metric::Crossings | Metric::CrossingTime => {
            folder.crossings(metric == Metric::CrossingTime)
        }
        Metric::Serialization => folder.serializations(),
        Metric::Files | Metric::FileTime => folder.files(metric == Metric::FileTime),
        Metric::PackageJson => folder.lookups(),
        Metric::Compile => folder.compilations(),
    }
    let mut about = about(drawn.recording, drawn.timeline, selected, metric, By::Phase);
    about.notes.extend(note_on_sums(folder.cut));
    let (frames, nodes) = folder.tree.in_order();
    Folded {
        about,
        order: Order::Merged,
        frames,
        nodes,
    }
}

/// That calls without an instant were left out of a span of time.
pub(crate) fn note_on_sums(calls: u64) -> Option<String> {
    const TEXT: &str = "Left out: # [call that was|calls that were] only counted per phase, so that it is not known [whether it|which of them] fell into the selected part of it.";
    (calls > 0).then(|| nodeprof_profile::wording::counted(calls, TEXT))
}

pub(crate) fn about(
    recording: &Recording,
    timeline: &Timeline,
    selected: &Selected,
    metric: Metric,
    by: By,
) -> About {
    let main = timeline
        .main_process(selected.run)
        .and_then(|main| recording.processes.get(main.0 as usize));
    let binary = main.and_then(|main| recording.binaries.get(main.node?.0 as usize));
    let command = recording.runs.get(selected.run.0 as usize);
    About {
        metric,
        by,
        command: command
            .map(|run| command_line(&run.command))
            .unwrap_or_default(),
        node: binary.and_then(|binary| binary.node_version.clone()),
        part: selected.words.clone(),
        notes: Vec::new(),
    }
}

/// Families of a metric of which a run has nothing, for they were not recorded or are not kept. None: what is not there did not happen.
pub(crate) fn unrecorded(drawn: &Drawn<'_>, request: &Request) -> Vec<&'static str> {
    let (run, metric) = (request.run, request.metric);
    let description = drawn.recording.runs.get(run.0 as usize);
    let has_none = description
        .is_some_and(|run| run.is_bare() || metric.is_timed_in_full_mode() && is_counted(run));
    let is_off = |family: &&str| {
        let mut states = drawn.recording.families.iter();
        states.any(|state| {
            state.run == run
                && state.name == *family
                && ["off", "failed", "thinned"].contains(&state.state.as_str())
        })
    };
    let families = metric.families().iter().copied();
    families
        .filter(|family| has_none || is_off(family))
        .collect()
}

/// Whether it was made in count mode.
pub(crate) fn is_counted(run: &Run) -> bool {
    run.mode == COUNT_MODE
}

pub(crate) fn nothing(drawn: &Drawn<'_>, request: &Request) -> FoldError {
    let recording = drawn.recording;
    let Request { run, metric, .. } = *request;
    let of_family = |family: &str| {
        let mut states = recording.families.iter();
        states.find(|state| state.run == run && state.name == family)
    };
    // Of several, one that is missing.
    let states = metric
        .families()
        .iter()
        .filter_map(|family| of_family(family));
    let state = states
        .filter(|state| state.state != "on")
        .min_by_key(|state| state.state == "partial");
    let description = recording.runs.get(run.0 as usize);
    let timed = || {
        (
            " (it was made in count mode)".to_owned(),
            "needed: times; type: nodeprof trace --mode full -- COMMAND".to_owned(),
        )
    };
    let (reason, remedy) = match state {
        Some(state) if state.state == "off" => (
            format!(" (the family {} was off{})", state.name, state.reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default()),
            format!("needed: a trace with it; type: nodeprof trace --families {} -- COMMAND", state.name),
        ),
        Some(state) if state.state == "thinned" => (
            format!(" (the family {}: its events were counted, and are not kept any more)", state.name),
            "needed: runs that are kept whole, which younger ones are; type: nodeprof service runs".to_owned(),
        ),
        _ if metric.is_timed_in_full_mode() && description.is_some_and(is_counted) => timed(),
        Some(state) if state.state != "on" => (
            format!(" (the family {}: {}{})", state.name, state.state, state.reason.as_deref().map(|why| format!(", {why}")).unwrap_or_default()),
            "needed: a node binary and a kernel that can be probed for it; type: nodeprof doctor".to_owned(),
        ),
        _ if description.is_some_and(Run::is_bare) => (
            " (the run had no probes)".to_owned(),
            match recording.runs.iter().all(|run| run.is_bare()) {
                true => "needed: a run with probes; type: nodeprof trace -- COMMAND",
                false => "needed: a run with probes; type: --run N, or leave it out",
            }
            .to_owned(),
        ),
        _ if metric.has_events(drawn, request.run) && request.selection != Selection::default() => (
            String::new(),
            "needed: a part of the run that has some; type it without --thread, --process, --from and --until".to_owned(),
        ),
        _ if metric.unit() == Unit::Time && description.is_some_and(is_counted) => timed(),
        _ if matches!(metric, Metric::Cpu | Metric::Wall) && description.is_some_and(|run| run.sample_hz.is_none()) => (
            " (none were taken)".to_owned(),
            "needed: a trace with samples; type: nodeprof trace -- COMMAND".to_owned(),
        ),
        _ => (
            String::new(),
            "needed: a run in which there are some; to see what this one holds, type: nodeprof report FILE".to_owned(),
        ),
    };
    let whole = match recording.runs.len() {
        0 | 1 => "this recording",
        _ => "this run",
    };
    FoldError::NothingToShow {
        metric,
        things: metric.things(),
        place: match request.selection == Selection::default() {
            true => whole.to_owned(),
            false => format!("the selected part of {whole}"),
        },
        reason,
        remedy,
    }
}

/// Columns of a command line in a frame or title.
const COMMAND: usize = 60;

/// What a process executed last, in short.
pub(crate) fn command_of(process: &Process) -> String {
    match process.execs.iter().max_by_key(|exec| exec.at) {
        Some(exec) if !exec.arguments.is_empty() => command_line(&exec.arguments),
        Some(exec) => command_line(std::slice::from_ref(&exec.path)),
        None => "(forked)".to_owned(),
    }
}

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
