//! The Firefox Profiler's processed profile format, version 64: the first with original positions. The Profiler upgrades
//! older versions by itself.
//! <https://github.com/firefox-devtools/profiler/blob/main/docs-developer/CHANGELOG-formats.md>
//!
//! Tables are columns of equal length; rows refer to each other by index.

use std::collections::HashMap;
use std::io::Write;

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::recording::{Nanoseconds, RunId};
use serde::Serialize;

use super::timeline::{Step, steps};
use super::{EXPORTER, ExportError};
use crate::fold::{Frame, FrameKind, Metric, Unit};
use crate::hash::IdMap;
use crate::stacks::{Stacks, Thread};
use crate::svg::legend_name;

const VERSION: u32 = 64;
/// Of the format of Firefox's own, unprocessed profiles, which the first upgraders ask for.
const GECKO_VERSION: u32 = 29;

#[derive(Serialize)]
struct File {
    meta: Meta,
    libs: [(); 0],
    pages: [(); 0],
    shared: Shared,
    threads: Vec<ThreadTable>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    interval: f64,
    start_time: f64,
    start_time_as_clock_monotonic_nanoseconds_since_boot: u64,
    profiling_start_time: f64,
    profiling_end_time: f64,
    process_type: u32,
    categories: Vec<Category>,
    product: String,
    stackwalk: u32,
    debug: bool,
    version: u32,
    preprocessed_profile_version: u32,
    abi: &'static str,
    platform: &'static str,
    arguments: String,
    symbolicated: bool,
    marker_schema: Vec<MarkerSchema>,
    sample_units: SampleUnits,
    imported_from: &'static str,
    uses_only_one_stack_type: bool,
    source_code_is_not_on_searchfox: bool,
    initial_visible_threads: Vec<usize>,
    initial_selected_threads: Vec<usize>,
    keep_profile_thread_order: bool,
    extra: Vec<Extra>,
}

#[derive(Serialize)]
struct Category {
    name: &'static str,
    color: &'static str,
    subcategories: [&'static str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampleUnits {
    time: &'static str,
    event_delay: &'static str,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MarkerSchema {
    name: &'static str,
    tooltip_label: &'static str,
    table_label: &'static str,
    chart_label: &'static str,
    display: [&'static str; 3],
    fields: Vec<Field>,
    description: &'static str,
}

#[derive(Serialize)]
struct Field {
    key: &'static str,
    label: &'static str,
    format: &'static str,
}

#[derive(Serialize)]
struct Extra {
    label: &'static str,
    entries: Vec<ExtraEntry>,
}

#[derive(Serialize)]
struct ExtraEntry {
    label: &'static str,
    format: &'static str,
    value: String,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shared {
    stack_table: StackTable,
    frame_table: FrameTable,
    func_table: FuncTable,
    resource_table: ResourceTable,
    native_symbols: NativeSymbols,
    string_array: Vec<String>,
    sources: Sources,
    source_location_table: SourceLocations,
}

#[derive(Default, Serialize)]
struct StackTable {
    length: usize,
    prefix: Vec<Option<u32>>,
    frame: Vec<u32>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FrameTable {
    length: usize,
    address: Vec<i64>,
    inline_depth: Vec<u32>,
    category: Vec<usize>,
    subcategory: Vec<u32>,
    func: Vec<u32>,
    native_symbol: Vec<Option<u32>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<u32>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
    original_location: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FuncTable {
    length: usize,
    name: Vec<usize>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<i64>,
    source: Vec<Option<usize>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
    original_location: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
struct ResourceTable {
    length: usize,
    name: Vec<usize>,
    host: Vec<Option<usize>>,
    lib: Vec<Option<u32>>,
    #[serde(rename = "type")]
    kind: Vec<u32>,
}

/// Addresses are not kept: every name is known.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NativeSymbols {
    length: usize,
    lib_index: [u32; 0],
    address: [u32; 0],
    name: [u32; 0],
    function_size: [u32; 0],
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sources {
    length: usize,
    id: Vec<Option<u32>>,
    filename: Vec<usize>,
    start_line: Vec<u32>,
    start_column: Vec<u32>,
    #[serde(rename = "sourceMapURL")]
    source_map_url: Vec<Option<u32>>,
    content: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
struct SourceLocations {
    length: usize,
    source: [u32; 0],
    line: [u32; 0],
    column: [u32; 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThreadTable {
    process_type: &'static str,
    process_startup_time: f64,
    process_shutdown_time: Option<f64>,
    register_time: f64,
    unregister_time: Option<f64>,
    paused_ranges: [(); 0],
    show_markers_in_timeline: bool,
    name: String,
    is_main_thread: bool,
    process_name: String,
    pid: String,
    tid: u32,
    samples: Samples,
    markers: Markers,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    length: usize,
    stack: Vec<Option<u32>>,
    time: Vec<f64>,
    weight: Vec<f64>,
    weight_type: &'static str,
    /// Nanoseconds on a CPU since the sample before.
    #[serde(rename = "threadCPUDelta", skip_serializing_if = "Option::is_none")]
    thread_cpu_delta: Option<Vec<u64>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Markers {
    length: usize,
    data: Vec<MarkerData>,
    name: Vec<usize>,
    start_time: Vec<f64>,
    end_time: Vec<Option<f64>>,
    phase: Vec<u32>,
    category: Vec<usize>,
}

#[derive(Serialize)]
struct MarkerData {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
}

/// Writes them. What was only summed is left out; says so.
pub fn write(
    mut stacks: Stacks,
    recording: &Recording,
    timeline: &Timeline,
    run: RunId,
    to: impl Write,
) -> Result<Vec<String>, ExportError> {
    let format = "firefox";
    if stacks.timeless {
        return Err(ExportError::NoInstants { format });
    }
    stacks.in_order_of_time();
    if stacks.threads.is_empty() {
        return Err(ExportError::OnlySums { format });
    }
    let notes = stacks.about.notes.clone();
    let builder = Builder {
        started: recording
            .runs
            .get(run.0 as usize)
            .map(|run| run.started)
            .unwrap_or_default(),
        stacks: &stacks,
        recording,
        timeline,
        shared: Shared::default(),
        strings: HashMap::new(),
    };
    serde_json::to_writer(to, &builder.build(run))?;
    Ok(notes)
}

struct Builder<'a> {
    started: Nanoseconds,
    stacks: &'a Stacks,
    recording: &'a Recording,
    timeline: &'a Timeline,
    shared: Shared,
    strings: HashMap<String, usize>,
}

/// The category of whatever has none; the profiler wants a grey one.
const OTHER: usize = 0;

impl Builder<'_> {
    fn build(mut self, run: RunId) -> File {
        let categories = categories();
        self.functions();
        self.frames_and_stacks(&categories);
        let threads: Vec<ThreadTable> = (self.stacks.threads.iter())
            .map(|thread| self.thread(thread))
            .collect();
        let main: Vec<usize> = (0..threads.len())
            .filter(|&index| threads[index].is_main_thread)
            .collect();
        let selected = main.first().copied().unwrap_or_default();
        let about = &self.stacks.about;
        let description = self.recording.runs.get(run.0 as usize);
        let ended = description.map(|run| run.ended).unwrap_or_default();
        let unix = description
            .map(|run| run.started_unix_ns)
            .unwrap_or_default();
        let hz = description
            .and_then(|run| run.sample_hz)
            .filter(|hz| *hz > 0);
        let node = about
            .node
            .as_deref()
            .map(|version| format!("node {version}"));
        let total = self.stacks.total();
        let meta = Meta {
            interval: hz.map_or(1.0, |hz| 1e3 / f64::from(hz)),
            start_time: unix as f64 / 1e6,
            start_time_as_clock_monotonic_nanoseconds_since_boot: self.started.0,
            profiling_start_time: 0.0,
            profiling_end_time: self.ms(ended),
            process_type: 0,
            categories: categories
                .iter()
                .map(|(_, category)| Category { ..*category })
                .collect(),
            product: node.unwrap_or_else(|| "node".to_owned()),
            stackwalk: 1,
            debug: false,
            version: GECKO_VERSION,
            preprocessed_profile_version: VERSION,
            abi: "x86_64",
            platform: "Linux",
            arguments: about.command.clone(),
            symbolicated: true,
            marker_schema: marker_schema(),
            sample_units: SampleUnits {
                time: "ms",
                event_delay: "ms",
                thread_cpu_delta: "ns",
            },
            imported_from: EXPORTER,
            uses_only_one_stack_type: false,
            source_code_is_not_on_searchfox: true,
            initial_visible_threads: if main.is_empty() {
                vec![selected]
            } else {
                main
            },
            initial_selected_threads: vec![selected],
            keep_profile_thread_order: true,
            extra: vec![Extra {
                label: "nodeprof",
                entries: vec![ExtraEntry {
                    label: "Shown",
                    format: "string",
                    value: format!("{}: {}", about.title(), about.subtitle(total)),
                }],
            }],
        };
        File {
            meta,
            libs: [],
            pages: [],
            shared: self.shared,
            threads,
        }
    }

    fn string(&mut self, text: &str) -> usize {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        let index = self.shared.string_array.len();
        self.shared.string_array.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    /// Milliseconds since the start of the run.
    fn ms(&self, at: Nanoseconds) -> f64 {
        (at.0 as f64 - self.started.0 as f64) / 1e6
    }

    fn functions(&mut self) {
        let mut resources: HashMap<usize, i64> = HashMap::new();
        let mut sources: HashMap<usize, usize> = HashMap::new();
        for frame in &self.stacks.frames {
            let javascript = is_javascript(frame.kind);
            let source = frame.source.as_deref();
            let name = match source {
                // The file is shown beside the name.
                Some(source) if javascript && !source.function.is_empty() => {
                    self.string(&source.function)
                }
                _ => self.string(&frame.name),
            };
            let file = source.and_then(|source| source.file.as_deref());
            let (mut resource, mut script) = (-1, None);
            if let Some(file) = file {
                if javascript {
                    let filename = self.string(file);
                    let table = &mut self.shared.sources;
                    script = Some(*sources.entry(filename).or_insert_with(|| {
                        table.length += 1;
                        table.id.push(None);
                        table.filename.push(filename);
                        table.start_line.push(1);
                        table.start_column.push(1);
                        table.source_map_url.push(None);
                        table.content.push(None);
                        table.length - 1
                    }));
                } else {
                    let name = self.string(file.rsplit('/').next().unwrap_or(file));
                    let table = &mut self.shared.resource_table;
                    resource = *resources.entry(name).or_insert_with(|| {
                        table.length += 1;
                        table.name.push(name);
                        table.host.push(None);
                        table.lib.push(None);
                        table.kind.push(LIBRARY);
                        table.length as i64 - 1
                    });
                }
            }
            let table = &mut self.shared.func_table;
            table.length += 1;
            table.name.push(name);
            table.is_js.push(javascript);
            table.relevant_for_js.push(is_relevant(frame.kind));
            table.resource.push(resource);
            table.source.push(script);
            let begin = source.filter(|_| javascript);
            table.line_number.push(begin.and_then(|source| source.line));
            table
                .column_number
                .push(begin.and_then(|source| source.column));
            table.original_location.push(None);
        }
    }

    fn frames_and_stacks(&mut self, categories: &[(FrameKind, Category)]) {
        let category = |frame: &Frame| {
            let found = categories.iter().position(|(kind, _)| *kind == frame.kind);
            found.unwrap_or(OTHER)
        };
        let mut known: IdMap<(u32, u32, u32), u32> = IdMap::default();
        for node in &self.stacks.nodes {
            let place = (
                node.line.unwrap_or_default(),
                node.column.unwrap_or_default(),
            );
            let table = &mut self.shared.frame_table;
            let index = *known
                .entry((node.frame, place.0, place.1))
                .or_insert_with(|| {
                    table.length += 1;
                    table.address.push(-1);
                    table.inline_depth.push(0);
                    table
                        .category
                        .push(category(&self.stacks.frames[node.frame as usize]));
                    table.subcategory.push(0);
                    table.func.push(node.frame);
                    table.native_symbol.push(None);
                    table.inner_window_id.push(0);
                    table.line.push(node.line);
                    table.column.push(node.column);
                    table.original_location.push(None);
                    table.length as u32 - 1
                });
            let table = &mut self.shared.stack_table;
            table.length += 1;
            table.prefix.push(node.parent);
            table.frame.push(index);
        }
    }

    fn thread(&mut self, thread: &Thread) -> ThreadTable {
        let metric = self.stacks.about.metric;
        let has_cpu_time = matches!(metric, Metric::Cpu | Metric::Wall);
        let (mut steps, end) = match metric {
            Metric::Cpu | Metric::OffCpu | Metric::Wall => steps(self.stacks, &thread.entries),
            _ => {
                let each = thread.entries.iter().map(|entry| Step {
                    at: entry.at.0,
                    node: Some(entry.node),
                    value: entry.value,
                });
                let ends = (thread.entries.iter())
                    .map(|entry| entry.at.0.saturating_add(entry.duration.0));
                (each.collect(), ends.max().unwrap_or_default())
            }
        };
        if has_cpu_time {
            // The CPU time of a sample is told by the one after it.
            steps.push(Step {
                at: end,
                node: None,
                value: 0,
            });
        }
        let timed = metric.unit() == Unit::Time;
        let mut samples = Samples {
            length: steps.len(),
            weight_type: if timed { "tracing-ms" } else { "samples" },
            thread_cpu_delta: has_cpu_time.then(|| self.cpu_deltas(&steps)),
            ..Samples::default()
        };
        for step in &steps {
            samples.stack.push(step.node);
            samples.time.push(self.ms(Nanoseconds(step.at)));
            samples.weight.push(match timed {
                true => step.value as f64 / 1e6,
                false => step.value as f64,
            });
        }
        let process = self.recording.processes.get(thread.process.0 as usize);
        let forked = process.map(|process| process.forked).unwrap_or_default();
        let exited = process.and_then(|process| process.exited);
        let is_main = thread.tid.0 == thread.pid;
        let begun = match is_main {
            true => forked,
            false => thread
                .entries
                .first()
                .map(|entry| entry.at)
                .unwrap_or_default(),
        };
        ThreadTable {
            process_type: "default",
            process_startup_time: self.ms(forked),
            process_shutdown_time: exited.map(|at| self.ms(at)),
            register_time: self.ms(begun),
            unregister_time: if is_main {
                exited.map(|at| self.ms(at))
            } else {
                Some(self.ms(Nanoseconds(end)))
            },
            paused_ranges: [],
            show_markers_in_timeline: true,
            name: thread.name(),
            is_main_thread: is_main,
            process_name: thread.command.clone(),
            pid: thread.pid.to_string(),
            tid: thread.tid.0,
            samples,
            markers: if is_main {
                self.markers(thread)
            } else {
                Markers::default()
            },
        }
    }

    /// For each step, the CPU time of the one before.
    fn cpu_deltas(&self, steps: &[Step]) -> Vec<u64> {
        let on_cpu = |step: &Step| {
            let frame = self.stacks.nodes[step.node? as usize].frame;
            let waits = self.stacks.frames[frame as usize].kind == FrameKind::Wait;
            (!waits).then_some(step.value)
        };
        let spent = steps.iter().map(|step| on_cpu(step).unwrap_or_default());
        std::iter::once(0).chain(spent).take(steps.len()).collect()
    }

    /// The phases of a process.
    fn markers(&mut self, thread: &Thread) -> Markers {
        let mut markers = Markers::default();
        for phase in self.timeline.phases(thread.process) {
            markers.length += 1;
            markers.data.push(MarkerData {
                kind: PHASE,
                name: phase.name.to_string(),
            });
            let name = self.string(&phase.name);
            markers.name.push(name);
            markers.start_time.push(self.ms(phase.start));
            markers.end_time.push(Some(self.ms(phase.end)));
            markers.phase.push(INTERVAL);
            markers.category.push(OTHER);
        }
        markers
    }
}

/// Type of the markers.
const PHASE: &str = "nodeprof phase";
/// A marker with a beginning and an end.
const INTERVAL: u32 = 1;
/// A resource that is a shared library or an executable.
const LIBRARY: u32 = 1;

fn marker_schema() -> Vec<MarkerSchema> {
    vec![MarkerSchema {
        name: PHASE,
        tooltip_label: "Phase {marker.data.name}",
        table_label: "{marker.data.name}",
        chart_label: "{marker.data.name}",
        display: ["marker-chart", "marker-table", "timeline-overview"],
        fields: vec![Field {
            key: "name",
            label: "Phase",
            format: "string",
        }],
        description: "A phase of the start, between two milestones",
    }]
}

fn is_javascript(kind: FrameKind) -> bool {
    matches!(
        kind,
        FrameKind::JavaScript | FrameKind::NodeJavaScript | FrameKind::WebAssembly
    )
}

/// What JavaScript calls directly is part of the picture of JavaScript alone.
fn is_relevant(kind: FrameKind) -> bool {
    matches!(
        kind,
        FrameKind::V8Builtin
            | FrameKind::Callback
            | FrameKind::FastCallback
            | FrameKind::Getter
            | FrameKind::Constructor
            | FrameKind::Wait
            | FrameKind::GarbageCollection
    )
}

/// The kinds of frames in the profiler's own colours.
fn categories() -> Vec<(FrameKind, Category)> {
    const KINDS: [(FrameKind, &str); 24] = [
        (FrameKind::JavaScript, "yellow"),
        (FrameKind::NodeJavaScript, "green"),
        (FrameKind::V8Builtin, "lightblue"),
        (FrameKind::Native, "blue"),
        (FrameKind::Compilation, "purple"),
        (FrameKind::GarbageCollection, "magenta"),
        (FrameKind::WebAssembly, "yellow"),
        (FrameKind::AddOn, "magenta"),
        (FrameKind::Library, "darkgrey"),
        (FrameKind::Kernel, "orange"),
        (FrameKind::Tracing, "brown"),
        (FrameKind::Wait, "transparent"),
        (FrameKind::Unknown, "grey"),
        (FrameKind::Callback, "lightblue"),
        (FrameKind::FastCallback, "green"),
        (FrameKind::Getter, "purple"),
        (FrameKind::Constructor, "magenta"),
        (FrameKind::Serialization, "lightred"),
        (FrameKind::Operation, "blue"),
        (FrameKind::File, "green"),
        (FrameKind::Package, "purple"),
        (FrameKind::Process, "grey"),
        (FrameKind::Phase, "grey"),
        (FrameKind::Thread, "grey"),
    ];
    let category = |name, color| Category {
        name,
        color,
        subcategories: ["Other"],
    };
    let other = (FrameKind::Between, category("Other", "grey"));
    let kinds = KINDS.map(|(kind, color)| (kind, category(legend_name(kind), color)));
    std::iter::once(other).chain(kinds).collect()
}
