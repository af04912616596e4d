//! pprof's protocol buffer, gzipped: merged stacks with values, labelled with process and thread.
//!
//! The messages are those of <https://github.com/google/pprof/blob/main/proto/profile.proto>, as far as they are used.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::recording::RunId;
use prost::Message;

use super::{EXPORTER, ExportError};
use crate::drawn::Drawn;
use crate::fold::{self, About, Frame, FrameKind, Metric, Request, Unit};
use crate::hash::IdMap;
use crate::stacks::{StackNode, Stacks};

/// The whole file.
#[derive(Clone, PartialEq, Message)]
#[allow(missing_docs)]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// What a value is, by indices of strings.
#[derive(Clone, Copy, PartialEq, Message)]
#[allow(missing_docs)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub kind: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A stack, innermost location first, with a value for each type.
#[derive(Clone, PartialEq, Message)]
#[allow(missing_docs)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// A key with a text or a number.
#[derive(Clone, Copy, PartialEq, Message)]
#[allow(missing_docs)]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub str: i64,
    #[prost(int64, tag = "3")]
    pub num: i64,
}

/// A binary.
#[derive(Clone, PartialEq, Message)]
#[allow(missing_docs)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// A place in a function.
#[derive(Clone, PartialEq, Message)]
#[allow(missing_docs)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// Its function and line.
#[derive(Clone, Copy, PartialEq, Message)]
#[allow(missing_docs)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
    #[prost(int64, tag = "3")]
    pub column: i64,
}

/// A function, by indices of strings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
#[allow(missing_docs)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}

/// Writes them.
pub fn write(
    stacks: &Stacks,
    recording: &Recording,
    run: RunId,
    to: impl Write,
) -> Result<(), ExportError> {
    pack(&profile(stacks, recording, run), to)
}

/// Writes one profile of several runs: what they have in common is summed.
///
/// # Errors
/// If none of them has anything of this metric.
pub fn write_runs(
    recording: &Recording,
    request: &Request,
    runs: impl IntoIterator<Item = RunId>,
    to: impl Write,
) -> Result<(), ExportError> {
    let runs: Vec<RunId> = runs.into_iter().collect();
    let mut builder = Builder::new(runs.len() > 1);
    let mut missing = None;
    let timeline = Timeline::new(recording);
    let drawn = Drawn::new(recording, &timeline, runs.iter().copied());
    let form = fold::form_of_all(runs.iter().map(|run| (&drawn, *run)), request.metric);
    for run in runs {
        let request = Request {
            run,
            by: request.by.or(Some(form)),
            ..request.clone()
        };
        match fold::stacks_drawn(&drawn, &request) {
            Ok(stacks) => builder.add(&stacks, recording, run),
            Err(error) => missing = Some(error),
        }
    }
    match (missing, builder.runs) {
        (Some(error), 0) => Err(error.into()),
        _ => pack(&builder.finish(), to),
    }
}

fn pack(profile: &Profile, to: impl Write) -> Result<(), ExportError> {
    let mut packed = GzEncoder::new(to, Compression::fast());
    packed.write_all(&profile.encode_to_vec())?;
    packed.finish()?.flush()?;
    Ok(())
}

/// The file's content.
pub fn profile(stacks: &Stacks, recording: &Recording, run: RunId) -> Profile {
    let mut builder = Builder::new(false);
    builder.add(stacks, recording, run);
    builder.finish()
}

/// What tells one sample from another: its stack, its process, its thread, and their numbers.
type SampleKey = (Vec<u64>, [i64; 2], u32);

struct Builder {
    profile: Profile,
    strings: HashMap<String, i64>,
    mappings: HashMap<i64, u64>,
    functions: HashMap<Function, u64>,
    locations: IdMap<(u64, u32, u32), u64>,
    samples: HashMap<SampleKey, (i64, i64)>,
    /// In the order in which they came.
    order: Vec<SampleKey>,
    /// There may be more than one run: numbers of their processes say nothing.
    several: bool,
    runs: usize,
    /// Of the first run: its values are times, its stacks know how many they stand for.
    timed: bool,
    timeless: bool,
    about: Option<About>,
    total: u64,
    /// Of all runs, each once.
    commands: BTreeSet<String>,
    nodes: BTreeSet<String>,
    notes: Vec<String>,
}

impl Builder {
    fn new(several: bool) -> Builder {
        let mut builder = Builder {
            profile: Profile::default(),
            strings: HashMap::new(),
            mappings: HashMap::new(),
            functions: HashMap::new(),
            locations: IdMap::default(),
            samples: HashMap::new(),
            order: Vec::new(),
            several,
            runs: 0,
            timed: false,
            timeless: false,
            about: None,
            total: 0,
            commands: BTreeSet::new(),
            nodes: BTreeSet::new(),
            notes: Vec::new(),
        };
        builder.string("");
        builder
    }

    /// Adds a run.
    fn add(&mut self, stacks: &Stacks, recording: &Recording, run: RunId) {
        match self.runs {
            0 => self.describe(stacks, recording, run),
            _ => {
                let more = recording.runs.get(run.0 as usize);
                let lasted = more.map_or(0, |run| run.ended.0.saturating_sub(run.started.0));
                let lasted = i64::try_from(lasted).unwrap_or(i64::MAX);
                self.profile.duration_nanos = self.profile.duration_nanos.saturating_add(lasted);
            }
        }
        self.runs += 1;
        let about = &stacks.about;
        self.total = self.total.saturating_add(stacks.total());
        self.commands.insert(about.command.clone());
        self.nodes.extend(about.node.clone());
        for note in &about.notes {
            if !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
        self.about.get_or_insert_with(|| about.clone());
        self.binaries(recording, run);
        let functions = self.functions(&stacks.frames);
        self.samples(stacks, &functions);
    }

    /// The profile, when all runs are in it.
    fn finish(mut self) -> Profile {
        let keys = ["process", "thread", "pid"].map(|key| self.string(key));
        for text in self.comments() {
            let text = self.string(&text);
            self.profile.comment.push(text);
        }
        for key in self.order {
            let (count, value) = self.samples.get(&key).copied().unwrap_or_default();
            let (location_id, names, pid) = key;
            let label = |key, str, num| Label { key, str, num };
            // What is folded by phase is of all processes and threads that were asked for.
            let mut labels = Vec::new();
            if !self.timeless {
                labels = vec![label(keys[0], names[0], 0), label(keys[1], names[1], 0)];
            }
            if !self.several && !self.timeless {
                labels.push(label(keys[2], 0, i64::from(pid)));
            }
            self.profile.sample.push(Sample {
                location_id,
                value: match self.timed {
                    // Folded stacks no longer know how many there were.
                    true if self.timeless => vec![0, value],
                    true => vec![count, value],
                    false => vec![value],
                },
                label: labels,
            });
        }
        self.profile
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType {
            kind: self.string(kind),
            unit: self.string(unit),
        }
    }

    fn describe(&mut self, stacks: &Stacks, recording: &Recording, run: RunId) {
        let metric = stacks.about.metric;
        self.timed = metric.unit() == Unit::Time;
        self.timeless = stacks.timeless;
        let count = self.value_type(counted(metric), "count");
        self.profile.sample_type.push(count);
        if self.timed {
            let time = self.value_type(metric.name(), "nanoseconds");
            self.profile.sample_type.push(time);
        }
        let shown = self.profile.sample_type.last().map(|kind| kind.kind);
        self.profile.default_sample_type = shown.unwrap_or_default();
        if let Some(run) = recording.runs.get(run.0 as usize) {
            self.profile.time_nanos = run.started_unix_ns as i64;
            let lasted = run.ended.0.saturating_sub(run.started.0);
            self.profile.duration_nanos = i64::try_from(lasted).unwrap_or(i64::MAX);
            if let (Metric::Cpu, Some(hz)) = (metric, run.sample_hz.filter(|hz| *hz > 0)) {
                self.profile.period_type = Some(self.value_type("cpu", "nanoseconds"));
                self.profile.period = 1_000_000_000 / i64::from(hz);
            }
        }
    }

    /// Who made it, of what it is, and what it lacks.
    fn comments(&self) -> Vec<String> {
        let Some(about) = &self.about else {
            return Vec::new();
        };
        let several = |of: &BTreeSet<String>, things| match (of.first(), of.len()) {
            (Some(only), 1) => only.clone(),
            (_, number) => format!("{number} {things}"),
        };
        let of_all = About {
            command: match self.runs {
                1 => about.command.clone(),
                runs => format!("{runs} runs of {}", several(&self.commands, "commands")),
            },
            node: (!self.nodes.is_empty()).then(|| several(&self.nodes, "versions")),
            ..about.clone()
        };
        let title = format!("{}: {}", of_all.title(), of_all.subtitle(self.total));
        let notes = self.notes.iter().cloned();
        [EXPORTER.to_owned(), title]
            .into_iter()
            .chain(notes)
            .collect()
    }

    /// The run's node binaries: the first is what pprof says the profile is of.
    fn binaries(&mut self, recording: &Recording, run: RunId) {
        let nodes = recording
            .processes
            .iter()
            .filter(|process| process.run == run);
        for binary in nodes.filter_map(|process| recording.binaries.get(process.node?.0 as usize)) {
            let build_id = self.string(binary.build_id.as_deref().unwrap_or_default());
            let path = String::from_utf8_lossy(&binary.path);
            self.mapping(&path, build_id);
        }
    }

    fn mapping(&mut self, path: &str, build_id: i64) -> u64 {
        let filename = self.string(path);
        if let Some(&id) = self.mappings.get(&filename) {
            return id;
        }
        let id = self.profile.mapping.len() as u64 + 1;
        self.profile.mapping.push(Mapping {
            id,
            filename,
            build_id,
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        });
        self.mappings.insert(filename, id);
        id
    }

    /// The number of each frame's function.
    fn functions(&mut self, frames: &[Frame]) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(frames.len());
        for frame in frames {
            let source = frame.source.as_deref();
            let file = source.and_then(|source| source.file.as_deref());
            let mut function = Function {
                id: 0,
                // pprof takes functions of one name for one function, wherever they are.
                name: self.string(&frame.name),
                system_name: self.string(match source {
                    Some(source) if !source.function.is_empty() => &source.function,
                    _ => &frame.name,
                }),
                filename: self.string(file.unwrap_or_default()),
                start_line: source.and_then(|source| source.line).map_or(0, i64::from),
            };
            let next = self.profile.function.len() as u64 + 1;
            let number = *self.functions.entry(function).or_insert(next);
            if number == next {
                function.id = number;
                self.profile.function.push(function);
            }
            numbers.push(number);
        }
        numbers
    }

    fn location(&mut self, frames: &[Frame], functions: &[u64], node: &StackNode) -> u64 {
        let place = (
            node.line.unwrap_or_default(),
            node.column.unwrap_or_default(),
        );
        let next = self.profile.location.len() as u64 + 1;
        let id = *self
            .locations
            .entry((functions[node.frame as usize], place.0, place.1))
            .or_insert(next);
        if id == next {
            let frame = &frames[node.frame as usize];
            let file = frame
                .source
                .as_deref()
                .and_then(|source| source.file.clone());
            let mapping_id = match (frame.kind, file) {
                (FrameKind::JavaScript | FrameKind::NodeJavaScript | FrameKind::WebAssembly, _)
                | (_, None) => 0,
                (_, Some(file)) => self.mapping(&file, 0),
            };
            let start = frame.source.as_deref().and_then(|source| source.line);
            self.profile.location.push(Location {
                id,
                mapping_id,
                line: vec![Line {
                    function_id: functions[node.frame as usize],
                    line: i64::from(node.line.or(start).unwrap_or_default()),
                    column: i64::from(place.1),
                }],
            });
        }
        id
    }

    fn samples(&mut self, stacks: &Stacks, functions: &[u64]) {
        let mut locations: Vec<u64> = Vec::with_capacity(stacks.nodes.len());
        for node in &stacks.nodes {
            locations.push(self.location(&stacks.frames, functions, node));
        }
        for thread in &stacks.threads {
            let names = [self.string(&thread.command), self.string(&thread.name())];
            let mut sums: IdMap<u32, (i64, i64)> = IdMap::default();
            let entries = thread
                .entries
                .iter()
                .map(|entry| (entry.node, 1, entry.value));
            let summed = thread
                .sums
                .iter()
                .map(|sum| (sum.node, sum.count, sum.value));
            for (node, count, value) in entries.chain(summed) {
                let sum = sums.entry(node).or_default();
                sum.0 = sum.0.saturating_add_unsigned(count);
                sum.1 = sum.1.saturating_add_unsigned(value);
            }
            let mut sums: Vec<(u32, (i64, i64))> = sums.into_iter().collect();
            sums.sort();
            for (node, (count, value)) in sums {
                let stack =
                    std::iter::successors(Some(node), |&node| stacks.nodes[node as usize].parent);
                let stack = stack.map(|node| locations[node as usize]).collect();
                let pid = if self.several { 0 } else { thread.pid };
                let key = (stack, names, pid);
                let sum = self.samples.entry(key.clone()).or_insert_with(|| {
                    self.order.push(key);
                    (0, 0)
                });
                sum.0 = sum.0.saturating_add(count);
                sum.1 = sum.1.saturating_add(value);
            }
        }
    }
}

/// What is counted, of a metric.
fn counted(metric: Metric) -> &'static str {
    match metric {
        Metric::Cpu => "samples",
        Metric::OffCpu => "waits",
        Metric::Wall => "samples_and_waits",
        Metric::Crossings | Metric::CrossingTime => "crossings",
        Metric::Serialization => "serializations",
        Metric::Files | Metric::FileTime => "files",
        Metric::PackageJson => "package-json",
        Metric::Compile => "compilations",
    }
}
