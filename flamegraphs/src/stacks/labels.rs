//! How a recording's frames are shown: a label that fits into a box and tells functions apart, and the full detail.

use std::collections::{BTreeSet, HashMap};

use nodeprof_profile::Recording;
use nodeprof_profile::modules::script::Script;
use nodeprof_profile::modules::sources::Bundles;
use nodeprof_profile::recording::{self, FrameKind as Recorded, NameId};
use nodeprof_profile::v8::{is_compilation, is_garbage_collection, is_tracing};

use super::modules::{is_built_in, short};
use super::native;
use crate::fold::{Frame, FrameKind, Source, frame_name};

/// What makes two frames one function.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    kind: Recorded,
    function: NameId,
    file: Option<NameId>,
    begins: Option<(u32, u32)>,
    top_level: bool,
    inlined: bool,
}

/// Where a frame of the recording is shown.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    /// Index into the shown frames.
    pub(super) frame: u32,
    pub(super) line: Option<u32>,
    pub(super) column: Option<u32>,
}

/// The frames of some runs, as they are shown.
pub(crate) struct Labels {
    pub(super) frames: Vec<Frame>,
    /// By the recording's frame ids; `None` if it is not reached.
    pub(super) shown: Vec<Option<Shown>>,
}

impl Labels {
    /// Only those of these frames of the recording, which are called so beside the others.
    pub(crate) fn of(&self, reached: &[bool]) -> Labels {
        const UNUSED: u32 = u32::MAX;
        let is_shown = |(shown, reached): (&Option<Shown>, &bool)| shown.filter(|_| *reached);
        let shown = || self.shown.iter().zip(reached).map(is_shown);
        let mut places = vec![UNUSED; self.frames.len()];
        for shown in shown().flatten() {
            places[shown.frame as usize] = 0;
        }
        let mut frames = Vec::new();
        for (frame, place) in self.frames.iter().zip(&mut places) {
            if *place != UNUSED {
                *place = frames.len() as u32;
                frames.push(frame.clone());
            }
        }
        let moved = |shown: Shown| Shown {
            frame: places[shown.frame as usize],
            ..shown
        };
        let shown = shown().map(|shown| shown.map(moved)).collect();
        Labels { frames, shown }
    }
}

/// Which functions are shown where a source map says that they stand.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Originals {
    /// None.
    Hidden,
    /// Those of scripts that were made of several files: modules and packages are what Node loaded, but of a bundle that would be one.
    OfBundles,
    /// All that a source map tells.
    Shown,
}

/// Scripts that are bundles, as far as these frames show.
pub(crate) fn bundles(recording: &Recording, reached: [&[bool]; 2]) -> BTreeSet<NameId> {
    let mut bundles = Bundles::default();
    for (index, frame) in recording.frames.iter().enumerate() {
        let is_reached = |reached: &&[bool]| reached.get(index) == Some(&true);
        if let (Recorded::JavaScript, Some(file)) = (frame.kind, frame.file)
            && reached.iter().any(is_reached)
        {
            let path = Script::of(recording.name(file)).path;
            bundles.see(recording, file, frame, &path);
        }
    }
    bundles.found()
}

/// What is told of a frame: which function it is of, whether that is a source map's word, and where it stood.
fn of_frame(
    frame: &recording::Frame,
    originals: Originals,
    bundles: &BTreeSet<NameId>,
) -> (Identity, bool, (Option<u32>, Option<u32>)) {
    let original = frame.original.filter(|_| match originals {
        Originals::Hidden => false,
        Originals::OfBundles => frame.file.is_some_and(|file| bundles.contains(&file)),
        Originals::Shown => true,
    });
    let (file, line, column) = match original {
        Some(original) => (
            Some(original.file),
            Some(original.line),
            Some(original.column),
        ),
        None => (frame.file, frame.line, frame.column),
    };
    let begins = frame
        .function_line
        .map(|line| (line, frame.function_column.unwrap_or_default()));
    let identity = Identity {
        kind: frame.kind,
        function: frame.function,
        file,
        begins,
        top_level: frame.top_level,
        inlined: frame.inlined,
    };
    (identity, original.is_some(), (line, column))
}

/// The frames that are reached: one for each function, whichever lines of it were seen, in these stacks or in those beside them.
pub(crate) fn label(
    recording: &Recording,
    directory: &str,
    (originals, bundles): (Originals, &BTreeSet<NameId>),
    reached: &[bool],
    beside: &[bool],
) -> Labels {
    let mut functions: Vec<Function> = Vec::new();
    let mut known: HashMap<Identity, u32> = HashMap::new();
    let mut shown = Vec::with_capacity(recording.frames.len());
    for (frame, reached) in recording.frames.iter().zip(reached) {
        if !reached {
            shown.push(None);
            continue;
        }
        let (identity, is_original, (line, column)) = of_frame(frame, originals, bundles);
        let next = functions.len() as u32;
        let index = *known.entry(identity).or_insert(next);
        if index == next {
            let file = identity.file;
            functions.push(Function::new(recording, frame, file, !is_original));
        }
        let function = &mut functions[index as usize];
        function.source.inlining_possible |= frame.inlining_possible;
        if is_original {
            function.stood(line, column);
        }
        shown.push(Some(Shown {
            frame: index,
            line,
            column,
        }));
    }
    for (frame, _) in (recording.frames.iter().zip(beside)).filter(|(_, beside)| **beside) {
        if let (identity, true, (line, column)) = of_frame(frame, originals, bundles)
            && let Some(&index) = known.get(&identity)
        {
            functions[index as usize].stood(line, column);
        }
    }
    let frames = unique(&functions, directory);
    Labels { frames, shown }
}

struct Function {
    kind: FrameKind,
    top_level: bool,
    inlined: bool,
    source: Source,
}

impl Function {
    fn new(
        recording: &Recording,
        frame: &recording::Frame,
        file: Option<NameId>,
        compiled: bool,
    ) -> Function {
        let text = |id| String::from_utf8_lossy(recording.name(id)).into_owned();
        let function = text(frame.function);
        let file = file.map(text);
        Function {
            kind: kind(frame.kind, &function, file.as_deref()),
            top_level: frame.top_level,
            inlined: frame.inlined,
            source: Source {
                line: frame.function_line.filter(|_| compiled),
                column: frame.function_column.filter(|_| compiled),
                function,
                file,
                inlining_possible: false,
            },
        }
    }

    /// Source maps tell where it stood, not where the function begins: the first line seen in it is near.
    fn stood(&mut self, line: Option<u32>, column: Option<u32>) {
        let source = &mut self.source;
        if source.line.is_none() || (line, column) < (source.line, source.column) {
            (source.line, source.column) = (line, column);
        }
    }

    /// A label; the higher the level, the more it tells.
    fn label(&self, directory: &str, level: u8) -> String {
        let source = &self.source;
        let function = source.function.as_str();
        let file = source.file.as_deref().unwrap_or_default();
        let last = file.rsplit('/').next().unwrap_or(file);
        let mut label = match self.kind {
            FrameKind::JavaScript | FrameKind::NodeJavaScript => {
                let mut place = match level {
                    0 | 1 => short(file, directory),
                    _ => file.to_owned(),
                };
                // A module's body begins at its first line, which says nothing.
                if let Some(line) = source.line.filter(|_| !self.top_level || level > 0) {
                    place.push_str(&format!(":{line}"));
                    if let Some(column) = source.column.filter(|_| level > 0) {
                        place.push_str(&format!(":{column}"));
                    }
                }
                match (self.top_level, function) {
                    (true, "") if !place.is_empty() => place,
                    (true, _) if !place.is_empty() && level == 0 => place,
                    (_, "") => format!("(anonymous) {place}"),
                    (_, function) => format!("{function} {place}"),
                }
            }
            // Its script has no name but a number, which tells modules apart.
            FrameKind::WebAssembly if level == 0 || file.is_empty() => {
                format!("{function} [wasm]")
            }
            FrameKind::WebAssembly => format!("{function} {file}"),
            FrameKind::Kernel | FrameKind::Tracing if function.is_empty() => "[kernel]".to_owned(),
            FrameKind::Kernel | FrameKind::Tracing => format!("{function} [kernel]"),
            FrameKind::Library | FrameKind::AddOn => {
                let name = if level == 0 {
                    native::short(function)
                } else {
                    function.to_owned()
                };
                let file = if level > 1 { file } else { last };
                match name.is_empty() {
                    true => format!("[{file}]"),
                    false => format!("{name} [{file}]"),
                }
            }
            FrameKind::Unknown if function.is_empty() && file.is_empty() => "(unknown)".to_owned(),
            FrameKind::V8Builtin => function.to_owned(),
            _ if function.is_empty() => format!("[{last}]"),
            _ if level == 0 => native::short(function),
            _ => function.to_owned(),
        };
        if self.inlined {
            label.truncate(label.trim_end().len());
            label.push_str(" [inlined]");
        }
        frame_name(&label)
    }
}

/// Frames with labels that no two share: what would looks the same says more.
fn unique(functions: &[Function], directory: &str) -> Vec<Frame> {
    let mut labels: Vec<String> = vec![String::new(); functions.len()];
    let mut open: Vec<usize> = (0..functions.len()).collect();
    for level in 0..=2 {
        let mut count: HashMap<String, u32> = HashMap::new();
        for &index in &open {
            labels[index] = functions[index].label(directory, level);
            *count.entry(labels[index].clone()).or_default() += 1;
        }
        open.retain(|&index| count.get(&labels[index]).is_some_and(|&count| count > 1));
    }
    let mut taken: HashMap<&str, u32> = HashMap::new();
    let mut frames = Vec::with_capacity(functions.len());
    for (function, label) in functions.iter().zip(&labels) {
        let count = taken.entry(label.as_str()).or_default();
        *count += 1;
        let name = match *count {
            1 => label.clone(),
            count => format!("{label} #{count}"),
        };
        frames.push(Frame {
            name,
            kind: function.kind,
            source: Some(Box::new(function.source.clone())),
            rank: 0,
        });
    }
    frames
}

fn kind(kind: Recorded, function: &str, file: Option<&str>) -> FrameKind {
    match kind {
        Recorded::JavaScript if file.is_some_and(is_built_in) => FrameKind::NodeJavaScript,
        Recorded::JavaScript => FrameKind::JavaScript,
        Recorded::Builtin => FrameKind::V8Builtin,
        Recorded::Native if is_garbage_collection(function) => FrameKind::GarbageCollection,
        Recorded::Native if is_compilation(function) => FrameKind::Compilation,
        Recorded::Native => FrameKind::Native,
        Recorded::Library => FrameKind::Library,
        Recorded::AddOn => FrameKind::AddOn,
        Recorded::Kernel if is_tracing(function) => FrameKind::Tracing,
        Recorded::Kernel => FrameKind::Kernel,
        Recorded::Unknown => FrameKind::Unknown,
        Recorded::WebAssembly => FrameKind::WebAssembly,
    }
}
