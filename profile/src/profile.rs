//! From observations to figures: [`Profile::from_recording`].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use crate::breakdown::{
    self, CompilationCell, CrossingCell, FileCell, LookupCell, SerializationCell, Timeline, add,
    count,
};
use crate::fast::Map;
use crate::modules::package::{installed_directory, name_of_directory};
use crate::modules::script::ScriptId;
use crate::modules::{Bucket, Costs, Module, Modules, is_package_json, script};
use crate::probe_cost::{HitsInside, hits_inside_crossings};
use crate::recording::{
    Binary, CallbackId, CrossingKind, FamilyState, FileOperation, FrameKind, KeptFigure, Loss,
    NameId, Nanoseconds, Overhead, ProbeHits, Process, ProcessId, Recording, RunId, Sample,
    StackId, UNREADABLE,
};
use crate::report::{
    Attribution, BundledPackageProfile, CallbackProfile, CallsByKind, Compile, Crossings, Family,
    FileOperationProfile, Files, Milestones, ModuleProfile, NodeBinary, OutsideProfile,
    OverheadProfile, PackageJson, PackageJsonFile, PackageProfile, PathProfile, Phase,
    ProcessProfile, Profile, RunProfile, SCHEMA, SamplesProfile, Script, SerializationCallback,
    SerializationFunction, Serializations, SourceProfile, TOP_PATHS, Time,
};
use crate::thin;
use crate::v8::Work;

impl Profile {
    /// Derives the figures of every run. Events that refer to nothing in the recording are left out.
    pub fn from_recording(recording: &Recording) -> Profile {
        Profile::with_timeline(recording, &Timeline::new(recording))
    }

    /// The same with a timeline that the caller has for other views.
    pub fn with_timeline(recording: &Recording, timeline: &Timeline) -> Profile {
        let hits = hits_inside_crossings(recording);
        let modules = Modules::new(recording, timeline);
        let cells = ByRun::new(recording, timeline, &modules);
        let runs = cells
            .runs
            .iter()
            .enumerate()
            .map(|(index, cells)| {
                let context = RunContext {
                    recording,
                    timeline,
                    run: RunId(index as u32),
                    main: timeline.main_process(RunId(index as u32)),
                    hits: &hits,
                    modules: &modules,
                    cells,
                };
                context.profile()
            })
            .collect();
        Profile {
            schema: SCHEMA,
            runs,
        }
    }
}

/// The cells of one run, and what else of the recording is its own.
#[derive(Default)]
struct RunCells<'a> {
    samples: Vec<&'a Sample>,
    /// By index in [`Modules::list`].
    modules: Vec<usize>,
    figures: Vec<&'a KeptFigure>,
    families: Vec<&'a FamilyState>,
    losses: Vec<&'a Loss>,
    overheads: Vec<&'a Overhead>,
    probe_hits: Vec<&'a ProbeHits>,
    processes: Vec<ProcessId>,
    crossings: Vec<CrossingCell>,
    lookups: Vec<LookupCell>,
    files: Vec<FileCell>,
    serializations: Vec<SerializationCell>,
    compilations: Vec<CompilationCell>,
}

/// Cells dealt out to their runs: a recording of many runs is read once, not once per run.
struct ByRun<'a> {
    runs: Vec<RunCells<'a>>,
}

impl<'a> ByRun<'a> {
    fn new(recording: &'a Recording, timeline: &Timeline, modules: &Modules) -> ByRun<'a> {
        let mut runs: Vec<RunCells> = recording.runs.iter().map(|_| RunCells::default()).collect();
        let run_of = |process: ProcessId| {
            let process = recording.processes.get(process.0 as usize)?;
            Some(process.run.0 as usize)
        };
        macro_rules! deal {
            ($cells:expr, $field:ident) => {
                for cell in $cells {
                    let run = run_of(cell.process);
                    if let Some(run) = run.and_then(|run| runs.get_mut(run)) {
                        run.$field.push(cell);
                    }
                }
            };
        }
        deal!(breakdown::crossings(recording, timeline), crossings);
        deal!(breakdown::lookups(recording, timeline), lookups);
        deal!(breakdown::file_accesses(recording, timeline), files);
        deal!(
            breakdown::serializations(recording, timeline),
            serializations
        );
        deal!(breakdown::compilations(recording, timeline), compilations);
        for (index, process) in recording.processes.iter().enumerate() {
            if let Some(run) = runs.get_mut(process.run.0 as usize) {
                run.processes.push(ProcessId(index as u32));
            }
        }
        for sample in &recording.samples {
            if let Some(run) = run_of(sample.process).and_then(|run| runs.get_mut(run)) {
                run.samples.push(sample);
            }
        }
        for (index, module) in modules.list.iter().enumerate() {
            let run = run_of(modules.threads[module.unit].0);
            if let Some(run) = run.and_then(|run| runs.get_mut(run)) {
                run.modules.push(index);
            }
        }
        macro_rules! own {
            ($($field:ident),*) => {$(
                for row in &recording.$field {
                    if let Some(run) = runs.get_mut(row.run.0 as usize) {
                        run.$field.push(row);
                    }
                }
            )*};
        }
        own!(figures, families, losses, overheads, probe_hits);
        ByRun { runs }
    }
}

/// Every path and operation of each run, the slowest first: all of which [`Files::slowest`] has the first.
pub fn paths(recording: &Recording) -> Vec<Vec<PathProfile>> {
    let timeline = Timeline::new(recording);
    let mut runs: Vec<Vec<FileCell>> = recording.runs.iter().map(|_| Vec::new()).collect();
    for cell in breakdown::file_accesses(recording, &timeline) {
        let process = recording.processes.get(cell.process.0 as usize);
        if let Some(run) = process.and_then(|process| runs.get_mut(process.run.0 as usize)) {
            run.push(cell);
        }
    }
    let runs = runs.iter().map(|cells| by_path(cells));
    runs.map(|paths| ranked(recording, paths.iter(), SLOWEST, usize::MAX))
        .collect()
}

/// What is done with each path, over all processes and phases.
fn by_path(cells: &[FileCell]) -> Vec<FileCell> {
    let mut paths: Map<(NameId, u8), FileCell> = Map::default();
    for cell in cells {
        let empty = FileCell {
            calls: 0,
            failed: 0,
            bytes: 0,
            total: Nanoseconds(0),
            ..*cell
        };
        let path = paths
            .entry((cell.path, cell.operation as u8))
            .or_insert(empty);
        count(&mut path.calls, cell.calls);
        count(&mut path.failed, cell.failed);
        count(&mut path.bytes, cell.bytes);
        add(&mut path.total, cell.total);
    }
    paths.into_values().collect()
}

/// By what paths are sorted, the highest first.
type Rank = fn(&FileCell) -> (u64, u64);

const SLOWEST: Rank = |cell| (cell.total.0, cell.calls);

/// The first of these paths.
fn ranked<'c>(
    recording: &Recording,
    paths: impl Iterator<Item = &'c FileCell>,
    rank: Rank,
    most: usize,
) -> Vec<PathProfile> {
    let name = |cell: &FileCell| recording.name(cell.path);
    let mut paths: Vec<&FileCell> = paths.collect();
    paths.sort_by(|a, b| {
        (rank(b).cmp(&rank(a)))
            .then_with(|| name(a).cmp(name(b)))
            .then(a.operation.cmp(&b.operation))
    });
    let first = paths.into_iter().take(most);
    first
        .map(|cell| {
            let (path, path_bytes) = text(name(cell));
            PathProfile {
                path,
                path_bytes,
                operation: cell.operation,
                calls: cell.calls,
                failed: cell.failed,
                bytes: cell.bytes,
                total_ns: cell.total.0,
            }
        })
        .collect()
}

/// Text of bytes, and the bytes in hexadecimal where the text does not tell them.
fn text(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => {
            let hexadecimal = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let text = String::from_utf8_lossy(bytes).into_owned();
            (text, Some(hexadecimal))
        }
    }
}

fn texts(list: &[Vec<u8>]) -> Vec<String> {
    list.iter().map(|bytes| text(bytes).0).collect()
}

/// `at` as seen from `origin`.
fn since(at: Nanoseconds, origin: Nanoseconds) -> i64 {
    let distance = i128::from(at.0) - i128::from(origin.0);
    distance.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Sum of what is known; `None` if nothing is.
fn sum_known(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.flatten().reduce(u64::saturating_add)
}

/// What every figure of a run is derived from.
struct RunContext<'a> {
    recording: &'a Recording,
    timeline: &'a Timeline,
    run: RunId,
    main: Option<ProcessId>,
    hits: &'a HitsInside,
    modules: &'a Modules,
    cells: &'a RunCells<'a>,
}

impl RunContext<'_> {
    fn profile(&self) -> RunProfile {
        let cells = self.cells;
        let run = &self.recording.runs[self.run.0 as usize];
        let exec = self.main.and_then(|main| self.timeline.exec(main));
        let overhead = self.overhead();
        let modules = self.modules();
        let mut profile = RunProfile {
            command: texts(&run.command),
            directory: text(&run.directory).0,
            labels: run.labels.iter().cloned().collect(),
            started_unix_ns: run.started_unix_ns,
            ended_by: run.ended_by.clone(),
            mode: run.mode.clone(),
            exit_status: run.exit_status,
            signal: run.signal,
            node: self.node(),
            milestones: self.milestones(),
            start_to_exec_ns: exec.map(|exec| exec.0.saturating_sub(run.started.0)),
            phases: self.phases(cells),
            time: self.time(cells),
            crossings: self.crossings(cells, &overhead),
            package_json: self.package_json(cells),
            files: self.files(cells),
            serialization: self.serialization(cells),
            compile: self.compile(cells),
            packages: PackageProfile::of_modules(&modules),
            modules,
            bundled_packages: self.bundled_packages(),
            sources: self.sources(),
            outside: self.outside(),
            attribution: self.attribution(),
            samples: self.samples(),
            processes: self.processes(cells),
            families: self.families(),
            losses: self.losses(),
            overhead: overhead.unwrap_or_default(),
        };
        thin::restore(&mut profile, cells.figures.iter().copied());
        profile
    }

    fn process(&self, id: ProcessId) -> Option<&Process> {
        self.recording.processes.get(id.0 as usize)
    }

    fn main_process(&self) -> Option<&Process> {
        self.process(self.main?)
    }

    fn binary(&self, process: &Process) -> Option<&Binary> {
        self.recording.binaries.get(process.node?.0 as usize)
    }

    fn name(&self, id: NameId) -> (String, Option<String>) {
        text(self.recording.name(id))
    }

    fn callback(&self, id: CallbackId) -> (String, String) {
        match self.recording.callbacks.get(id.0 as usize) {
            Some(callback) => (callback.binding.clone(), callback.function.clone()),
            None => ("(unknown)".into(), id.0.to_string()),
        }
    }

    fn node(&self) -> Option<NodeBinary> {
        let binary = self.binary(self.main_process()?)?;
        let (path, path_bytes) = text(&binary.path);
        Some(NodeBinary {
            path,
            path_bytes,
            version: binary.node_version.clone(),
            v8: binary.v8_version.clone(),
            build_id: binary.build_id.clone(),
            arch: binary.arch.clone(),
        })
    }

    /// Where the main process's milestones count from: its exec, or what is first known of it.
    fn origin(&self) -> Option<Nanoseconds> {
        let main = self.main?;
        let first_phase = || self.timeline.phases(main).first().map(|phase| phase.start);
        self.timeline.exec(main).or_else(first_phase)
    }

    fn milestones(&self) -> Milestones {
        let (Some(main), Some(origin)) = (self.main, self.origin()) else {
            return Milestones::default();
        };
        let at = |name| {
            let instant = self.timeline.milestone(main, name)?;
            Some(since(instant, origin))
        };
        Milestones {
            exec: self.timeline.exec(main).map(|_| 0),
            environment: at("environment"),
            node_start: at("node_start"),
            v8_start: at("v8_start"),
            bootstrap_complete: at("bootstrap_complete"),
            loop_start: at("loop_start"),
            loop_exit: at("loop_exit"),
            exit: self
                .main_process()
                .and_then(|process| Some(since(process.exited?, origin))),
        }
    }

    fn phases(&self, cells: &RunCells) -> Vec<Phase> {
        let (Some(main), Some(origin)) = (self.main, self.origin()) else {
            return Vec::new();
        };
        let mut phases: Vec<Phase> = self
            .timeline
            .phases(main)
            .iter()
            .map(|phase| Phase {
                name: phase.name.to_string(),
                start_ns: since(phase.start, origin),
                end_ns: since(phase.end, origin),
                ..Phase::default()
            })
            .collect();
        macro_rules! of_main {
            ($cells:expr, |$cell:ident, $phase:ident| $body:block) => {
                for $cell in $cells.iter().filter(|cell| cell.process == main) {
                    if let Some($phase) = phases.get_mut($cell.phase.0 as usize) {
                        $body
                    }
                }
            };
        }
        of_main!(cells.crossings, |cell, phase| {
            if cell.kind != CrossingKind::ToJs {
                count(&mut phase.crossings, cell.calls);
                count(&mut phase.crossings_self_ns, cell.self_time.0);
            }
        });
        of_main!(cells.lookups, |cell, phase| {
            count(&mut phase.lookups, cell.calls)
        });
        of_main!(cells.files, |cell, phase| {
            match cell.operation {
                FileOperation::Stat => count(&mut phase.stats, cell.calls),
                FileOperation::Open => count(&mut phase.opens, cell.calls),
                FileOperation::Read => count(&mut phase.reads, cell.calls),
                FileOperation::Readlink | FileOperation::Close | FileOperation::Access => {}
            }
            count(&mut phase.files_ns, cell.total.0);
        });
        of_main!(cells.serializations, |cell, phase| {
            count(&mut phase.serializations, cell.calls);
            count(&mut phase.serialization_ns, cell.total.0);
        });
        of_main!(cells.compilations, |cell, phase| {
            count(&mut phase.compilations, cell.calls);
            count(&mut phase.compile_ns, cell.self_time.0);
        });
        phases
    }

    fn time(&self, cells: &RunCells) -> Time {
        let run = &self.recording.runs[self.run.0 as usize];
        let tree = || cells.processes.iter().filter_map(|&id| self.process(id));
        // Without probes it is not known which process is node: the command's own was read.
        let command = || tree().next().filter(|_| run.is_bare());
        let main = self.main_process().or_else(command);
        Time {
            wall_ns: run.ended.0.saturating_sub(run.started.0),
            user_ns: sum_known(tree().map(|process| Some(process.user?.0))),
            system_ns: sum_known(tree().map(|process| Some(process.system?.0))),
            max_rss_bytes: tree().filter_map(|process| process.max_rss_bytes).max(),
            private_dirty_bytes: main.and_then(private_dirty),
            private_dirty_loop_start_bytes: main.and_then(|main| main.uss_loop_start_bytes),
            private_dirty_exit_bytes: main.and_then(|main| main.uss_exit_bytes),
        }
    }

    fn crossings(&self, cells: &RunCells, overhead: &Option<OverheadProfile>) -> Crossings {
        struct Merged {
            cell: CrossingCell,
            hits: u64,
        }
        let mut merged: BTreeMap<(CallbackId, CrossingKind), Merged> = BTreeMap::new();
        let mut counted: Map<(ProcessId, CallbackId, CrossingKind), ()> = Map::default();
        for cell in &cells.crossings {
            let key = (cell.process, cell.callback, cell.kind);
            // Hits are known by process, cells by process and phase: count them with the first.
            let hits = match counted.insert(key, ()) {
                None => self.hits.get(&key).copied().unwrap_or_default(),
                Some(()) => 0,
            };
            match merged.entry((cell.callback, cell.kind)) {
                Entry::Vacant(slot) => {
                    slot.insert(Merged { cell: *cell, hits });
                }
                Entry::Occupied(slot) => {
                    let Merged { cell: sum, hits: h } = slot.into_mut();
                    count(&mut sum.calls, cell.calls);
                    count(&mut sum.timed, cell.timed);
                    count(&mut sum.unfinished, cell.unfinished);
                    count(&mut sum.summed, cell.summed);
                    add(&mut sum.total, cell.total);
                    add(&mut sum.self_time, cell.self_time);
                    count(h, hits);
                }
            }
        }

        let mut crossings = Crossings::default();
        let mut by_kind = CallsByKind::default();
        for ((callback, kind), Merged { cell, hits }) in merged {
            let (binding, function) = self.callback(callback);
            let timed = cell.timed > 0;
            let corrected = |overhead: &OverheadProfile| {
                let cost = (hits as f64 * overhead.ns_per_hit).round() as u64;
                (timed && cell.summed == 0).then(|| cell.total.0.saturating_sub(cost))
            };
            let profile = CallbackProfile {
                binding,
                function,
                kind,
                calls: cell.calls,
                timed_calls: cell.timed,
                unfinished: cell.unfinished,
                total_ns: timed.then_some(cell.total.0),
                self_ns: timed.then_some(cell.self_time.0),
                total_corrected_ns: overhead.as_ref().and_then(corrected),
            };
            let calls = match kind {
                CrossingKind::Slow => &mut by_kind.slow,
                CrossingKind::Fast => &mut by_kind.fast,
                CrossingKind::Getter => &mut by_kind.getter,
                CrossingKind::Construct => &mut by_kind.construct,
                CrossingKind::ToJs => &mut by_kind.to_js,
            };
            count(calls, cell.calls);
            if kind == CrossingKind::ToJs {
                crossings.to_js.push(profile);
            } else {
                count(&mut crossings.total, cell.calls);
                count(&mut crossings.timed_calls, cell.timed);
                count(&mut crossings.unfinished, cell.unfinished);
                count(&mut crossings.self_ns, cell.self_time.0);
                crossings.callbacks.push(profile);
            }
        }
        crossings.by_kind = by_kind;
        for callbacks in [&mut crossings.callbacks, &mut crossings.to_js] {
            callbacks.sort_by(|a, b| {
                (b.total_ns.cmp(&a.total_ns))
                    .then(b.calls.cmp(&a.calls))
                    .then_with(|| a.binding.cmp(&b.binding))
                    .then_with(|| a.function.cmp(&b.function))
                    .then(a.kind.cmp(&b.kind))
            });
        }
        crossings
    }

    fn package_json(&self, cells: &RunCells) -> PackageJson {
        let mut result = PackageJson::default();
        let mut files: BTreeMap<&[u8], PackageJsonFile> = BTreeMap::new();
        let file = |path| {
            let (path, path_bytes) = text(path);
            PackageJsonFile {
                path,
                path_bytes,
                ..PackageJsonFile::default()
            }
        };

        let mut askers: Map<(ProcessId, NameId), ()> = Map::default();
        let mut unreadable = 0;
        for cell in &cells.lookups {
            let path = self.recording.name(cell.path);
            count(&mut result.lookups, cell.calls);
            if path == UNREADABLE {
                // Each may be of another path.
                count(&mut unreadable, cell.calls);
                continue;
            }
            askers.insert((cell.process, cell.path), ());
            count(
                &mut files.entry(path).or_insert_with(|| file(path)).lookups,
                cell.calls,
            );
        }
        result.repeated_lookups =
            (result.lookups.saturating_sub(unreadable)).saturating_sub(askers.len() as u64);

        let mut openers: Map<(ProcessId, NameId), ()> = Map::default();
        for cell in &cells.files {
            let path = self.recording.name(cell.path);
            if !is_package_json(path) {
                continue;
            }
            let file = files.entry(path).or_insert_with(|| file(path));
            match cell.operation {
                FileOperation::Open => {
                    openers.insert((cell.process, cell.path), ());
                    count(&mut result.opens, cell.calls);
                    count(&mut result.opens_failed, cell.failed);
                    count(&mut file.opens, cell.calls);
                    count(&mut file.opens_failed, cell.failed);
                }
                FileOperation::Stat => {
                    count(&mut result.stats, cell.calls);
                    count(&mut result.stats_failed, cell.failed);
                    count(&mut file.stats, cell.calls);
                }
                FileOperation::Read => {
                    count(&mut result.reads, cell.calls);
                    count(&mut file.reads, cell.calls);
                }
                FileOperation::Readlink | FileOperation::Close | FileOperation::Access => {}
            }
            count(&mut result.bytes, cell.bytes);
            count(&mut file.bytes, cell.bytes);
            count(&mut result.total_ns, cell.total.0);
            count(&mut file.total_ns, cell.total.0);
            // readlink fails on a file that is there but is no link: it says nothing.
            if cell.operation != FileOperation::Readlink {
                let found = cell.calls > cell.failed;
                file.found = Some(file.found.unwrap_or_default() || found);
            }
        }
        result.repeated_opens = result.opens.saturating_sub(openers.len() as u64);

        result.files = files.into_values().collect();
        // Stable: files with equal counts stay in order of path.
        result.files.sort_by_key(|file| {
            std::cmp::Reverse(
                u128::from(file.lookups) + u128::from(file.opens) + u128::from(file.stats),
            )
        });
        result
    }

    fn files(&self, cells: &RunCells) -> Files {
        let mut result = Files::default();
        let mut distinct: Map<NameId, ()> = Map::default();
        for cell in &cells.files {
            let operation = match cell.operation {
                FileOperation::Stat => &mut result.stat,
                FileOperation::Open => &mut result.open,
                FileOperation::Read => &mut result.read,
                FileOperation::Readlink => &mut result.readlink,
                FileOperation::Close => &mut result.close,
                FileOperation::Access => &mut result.access,
            };
            let FileOperationProfile {
                calls,
                failed,
                total_ns,
            } = operation;
            count(calls, cell.calls);
            count(failed, cell.failed);
            count(total_ns, cell.total.0);
            count(&mut result.bytes_read, cell.bytes);
            distinct.insert(cell.path, ());
        }
        result.paths = distinct.len() as u64;

        let paths = by_path(&cells.files);
        let top = |keep: fn(&FileCell) -> bool, rank: Rank| {
            let kept = paths.iter().filter(|cell| keep(cell));
            ranked(self.recording, kept, rank, TOP_PATHS)
        };
        result.slowest = top(|_| true, SLOWEST);
        result.most_repeated = top(|cell| cell.calls > 1, |cell| (cell.calls, cell.total.0));
        result
    }

    fn serialization(&self, cells: &RunCells) -> Serializations {
        let mut result = Serializations::default();
        let mut functions: BTreeMap<NameId, SerializationFunction> = BTreeMap::new();
        let mut callbacks: BTreeMap<Option<CallbackId>, SerializationCallback> = BTreeMap::new();
        for cell in &cells.serializations {
            let function =
                functions
                    .entry(cell.function)
                    .or_insert_with(|| SerializationFunction {
                        function: self.name(cell.function).0,
                        ..Default::default()
                    });
            let callback = callbacks.entry(cell.callback).or_insert_with(|| {
                let (binding, function) = cell.callback.map(|id| self.callback(id)).unzip();
                SerializationCallback {
                    binding,
                    function,
                    ..Default::default()
                }
            });
            macro_rules! sum {
                ($($to:expr),*) => {$(
                    count(&mut $to.calls, cell.calls);
                    count(&mut $to.bytes, cell.bytes);
                    count(&mut $to.total_ns, cell.total.0);
                )*};
            }
            sum!(result, function, callback);
            count(&mut function.self_ns, cell.self_time.0);
            count(&mut callback.self_ns, cell.self_time.0);
        }
        result.functions = functions.into_values().collect();
        result.functions.sort_by(|a, b| {
            (b.total_ns.cmp(&a.total_ns))
                .then(b.self_ns.cmp(&a.self_ns))
                .then(b.calls.cmp(&a.calls))
                .then_with(|| a.function.cmp(&b.function))
        });
        result.callbacks = callbacks.into_values().collect();
        result.callbacks.sort_by(|a, b| {
            (b.total_ns.cmp(&a.total_ns))
                .then(b.self_ns.cmp(&a.self_ns))
                .then(b.calls.cmp(&a.calls))
                .then_with(|| (&a.binding, &a.function).cmp(&(&b.binding, &b.function)))
        });
        result
    }

    fn compile(&self, cells: &RunCells) -> Compile {
        let mut result = Compile::default();
        let mut scripts: BTreeMap<_, CompilationCell> = BTreeMap::new();
        for cell in &cells.compilations {
            count(&mut result.compilations, cell.calls);
            if cell.cached {
                count(&mut result.cached, cell.calls);
            }
            count(&mut result.total_ns, cell.self_time.0);
            match scripts.entry((cell.path, cell.unit, cell.cached)) {
                Entry::Vacant(slot) => {
                    slot.insert(*cell);
                }
                Entry::Occupied(slot) => {
                    let sum = slot.into_mut();
                    count(&mut sum.calls, cell.calls);
                    count(&mut sum.timed, cell.timed);
                    add(&mut sum.total, cell.total);
                    add(&mut sum.self_time, cell.self_time);
                }
            }
        }
        let script = |cell: CompilationCell| {
            let (path, path_bytes) = self.name(cell.path);
            let timed = cell.timed > 0;
            Script {
                path,
                path_bytes,
                unit: cell.unit,
                cached: cell.cached,
                compilations: cell.calls,
                total_ns: timed.then_some(cell.total.0),
                self_ns: timed.then_some(cell.self_time.0),
            }
        };
        result.scripts = scripts.into_values().map(script).collect();
        result.scripts.sort_by(|a, b| {
            (b.total_ns.cmp(&a.total_ns))
                .then_with(|| a.path.cmp(&b.path))
                .then(a.unit.cmp(&b.unit))
                .then(a.cached.cmp(&b.cached))
        });
        result
    }

    /// Modules of the run with their index in [`Modules::list`].
    fn own_modules(&self) -> impl Iterator<Item = (usize, &Module)> {
        let list = &self.modules.list;
        self.cells
            .modules
            .iter()
            .map(|&index| (index, &list[index]))
    }

    fn modules(&self) -> Vec<ModuleProfile> {
        let origin = self.origin().unwrap_or_default();
        let run = self.recording.runs.get(self.run.0 as usize);
        let origin = match (self.main, run) {
            (None, Some(run)) => run.started,
            _ => origin,
        };
        let at = |instant: Option<Nanoseconds>| Some(since(instant?, origin));
        let ids: Map<usize, u32> = self
            .own_modules()
            .enumerate()
            .map(|(id, (index, _))| (index, id as u32))
            .collect();
        self.own_modules()
            .map(|(index, module)| {
                let script = self.modules.script(module);
                let (path, path_bytes) = text(&script.path);
                let (process, thread) = self.modules.threads[module.unit];
                let package = self.modules.packages.get(module.package);
                let requirer = module.requirer.map(|requirer| requirer.0 as usize);
                let directory = package.map(|package| text(&package.key.directory).0);
                let identity = package.map(|package| package.identity.clone());
                let identity = identity.unwrap_or_default();
                ModuleProfile {
                    id: ids.get(&index).copied().unwrap_or_default(),
                    path,
                    path_bytes,
                    query: (!script.suffix.is_empty()).then(|| text(&script.suffix).0),
                    kind: module.kind,
                    internal: script.is_internal(),
                    pid: self.pid(process),
                    thread: thread.0,
                    package_kind: package.map(|package| package.key.kind).unwrap_or_default(),
                    package: identity.name,
                    package_version: identity.version,
                    package_directory: directory.filter(|directory| !directory.is_empty()),
                    requirer: requirer.and_then(|requirer| {
                        let requirer = self.modules.list.get(requirer)?;
                        Some(text(&self.modules.script(requirer).path).0)
                    }),
                    requirer_id: requirer.and_then(|requirer| ids.get(&requirer).copied()),
                    main_script: module.main_script,
                    loads: module.loads,
                    start_ns: at(module.start),
                    end_earliest_ns: at(module.end_earliest),
                    end_latest_ns: at(module.end_latest),
                    resolve_ns: module.resolve_ns,
                    read_ns: module.read_ns,
                    compile_ns: module.compile_ns,
                    execute_ns: module.execute_ns,
                    callback_ns: module.callback_ns,
                    vain_ns: module.vain_ns,
                    self_ns: module.self_ns(),
                    uncertain_ns: module.uncertain_ns,
                    total_ns: module.total_ns,
                    caused: module.caused,
                    loading: module.loading,
                    own: module.own,
                }
            })
            .collect()
    }

    fn pid(&self, process: ProcessId) -> u32 {
        self.process(process).map_or(0, |process| process.pid)
    }

    fn bundle(&self, bundle: ScriptId) -> String {
        text(&self.modules.scripts.get(bundle).path).0
    }

    fn bundled_packages(&self) -> Vec<BundledPackageProfile> {
        let own = self.modules.sources.get(self.run.0 as usize);
        let own = own.map_or(&[][..], |sources| &sources.packages).iter();
        own.map(|part| {
            let directory = part.part.as_deref();
            BundledPackageProfile {
                bundle: self.bundle(part.bundle),
                pid: self.pid(part.process),
                name: directory.map(name_of_directory),
                directory: directory.map(|directory| text(directory).0),
                files: part.files,
                cpu_total_ns: part.cpu_total_ns,
                caused: part.caused,
            }
        })
        .collect()
    }

    fn sources(&self) -> Vec<SourceProfile> {
        let own = self.modules.sources.get(self.run.0 as usize);
        let own = own.map_or(&[][..], |sources| &sources.files).iter();
        own.map(|part| {
            let bundle = &self.modules.scripts.get(part.bundle).path;
            let directory = installed_directory(self.recording.name(part.part))
                .or_else(|| installed_directory(bundle));
            let (path, path_bytes) = self.name(part.part);
            SourceProfile {
                bundle: self.bundle(part.bundle),
                pid: self.pid(part.process),
                path,
                path_bytes,
                package: directory.map(name_of_directory),
                package_directory: directory.map(|directory| text(directory).0),
                cpu_total_ns: part.cpu_total_ns,
                caused: part.caused,
            }
        })
        .collect()
    }

    fn outside(&self) -> Vec<OutsideProfile> {
        let Some(outside) = self.modules.outside.get(self.run.0 as usize) else {
            return Vec::new();
        };
        let buckets: BTreeSet<Bucket> =
            (outside.costs.keys().chain(outside.time_ns.keys()).copied()).collect();
        buckets
            .into_iter()
            .map(|bucket| OutsideProfile {
                bucket,
                time_ns: outside.time_ns.get(&bucket).copied().unwrap_or_default(),
                costs: outside.costs.get(&bucket).copied().unwrap_or_default(),
            })
            .collect()
    }

    fn attribution(&self) -> Attribution {
        let run = self.run.0 as usize;
        let (Some(all), Some(outside)) = (self.modules.all.get(run), self.modules.outside.get(run))
        else {
            return Attribution::default();
        };
        let share = |count: fn(&Costs) -> u64| {
            let whole = count(all);
            let costs = [Bucket::NoStack, Bucket::Async].map(|bucket| outside.costs.get(&bucket));
            let counts = costs.into_iter().flatten().map(count);
            let part = counts.fold(0u64, u64::saturating_add);
            (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
        };
        Attribution {
            unattributed_crossings_percent: share(|costs| costs.crossings),
            unattributed_samples_percent: share(|costs| costs.samples),
        }
    }

    fn samples(&self) -> SamplesProfile {
        let mut samples = SamplesProfile {
            frequency_hz: self.recording.runs[self.run.0 as usize].sample_hz,
            ..SamplesProfile::default()
        };
        // Many samples have the same stack.
        let mut known: Map<StackId, (bool, bool, Work)> = Map::default();
        let (mut complete, mut inlining) = (0u64, 0u64);
        for sample in &self.cells.samples {
            samples.count += 1;
            samples.cpu_ns = samples.cpu_ns.saturating_add(sample.weight.0);
            let (whole, inlined, work) = match sample.stack {
                Some(stack) => *known.entry(stack).or_insert_with(|| self.known_of(stack)),
                None => (false, false, Work::Unknown),
            };
            let spent = samples.by_kind.of(work);
            *spent = spent.saturating_add(sample.weight.0);
            complete += u64::from(whole);
            inlining += u64::from(inlined);
        }
        let percent =
            |part: u64| (samples.count > 0).then(|| part as f64 * 100.0 / samples.count as f64);
        samples.complete_stacks_percent = percent(complete);
        samples.inlining_possible_percent = percent(inlining);
        samples
    }

    /// Whether a stack is whole, whether functions may be missing in it, and what it was at.
    fn known_of(&self, stack: StackId) -> (bool, bool, Work) {
        let frames = || self.recording.frames_of(stack);
        let name = |id| str::from_utf8(self.recording.name(id)).unwrap_or_default();
        let described = frames().map(|frame| {
            let script = frame.file.filter(|_| frame.kind == FrameKind::JavaScript);
            let script = script.map(|script| script::Script::of(self.recording.name(script)));
            let built_in = script.is_some_and(|script| script.is_builtin());
            (frame.kind, name(frame.function), built_in)
        });
        let inlined = frames().any(|frame| frame.inlining_possible);
        (self.recording.is_whole(stack), inlined, Work::of(described))
    }

    fn processes(&self, cells: &RunCells) -> Vec<ProcessProfile> {
        let started = self.recording.runs[self.run.0 as usize].started;
        let mut index: Map<ProcessId, usize> = Map::default();
        let mut list: Vec<ProcessProfile> = Vec::with_capacity(cells.processes.len());
        for &id in &cells.processes {
            let Some(process) = self.process(id) else {
                continue;
            };
            index.insert(id, list.len());
            let last_exec = process.execs.iter().max_by_key(|exec| exec.at);
            let (path, path_bytes) = match last_exec {
                Some(exec) => {
                    let (path, bytes) = text(&exec.path);
                    (Some(path), bytes)
                }
                None => (None, None),
            };
            let binary = self.binary(process);
            list.push(ProcessProfile {
                pid: process.pid,
                parent_pid: process
                    .parent
                    .and_then(|parent| self.process(parent))
                    .map(|parent| parent.pid),
                main: self.main == Some(id),
                command: last_exec
                    .map(|exec| texts(&exec.arguments))
                    .unwrap_or_default(),
                path,
                path_bytes,
                node: binary.and_then(|binary| binary.node_version.clone()),
                exit_status: process.exit_status,
                signal: process.signal,
                user_ns: process.user.map(|time| time.0),
                system_ns: process.system.map(|time| time.0),
                max_rss_bytes: process.max_rss_bytes,
                private_dirty_bytes: private_dirty(process),
                start_ns: since(process.forked, started),
                end_ns: process.exited.map(|exited| since(exited, started)),
                crossings: 0,
                lookups: 0,
                file_operations: 0,
                incomplete: process.incomplete.clone(),
            });
        }
        for cell in &cells.crossings {
            if let Some(&at) = index.get(&cell.process)
                && cell.kind != CrossingKind::ToJs
            {
                count(&mut list[at].crossings, cell.calls);
            }
        }
        for cell in &cells.lookups {
            if let Some(&at) = index.get(&cell.process) {
                count(&mut list[at].lookups, cell.calls);
            }
        }
        for cell in &cells.files {
            if let Some(&at) = index.get(&cell.process) {
                count(&mut list[at].file_operations, cell.calls);
            }
        }
        list
    }

    fn families(&self) -> Vec<Family> {
        let families = self.cells.families.iter();
        families
            .map(|family| Family {
                name: family.name.clone(),
                state: family.state.clone(),
                reason: family.reason.clone(),
            })
            .collect()
    }

    fn losses(&self) -> BTreeMap<String, u64> {
        let mut losses = BTreeMap::from([("records".to_owned(), 0u64)]);
        for loss in &self.cells.losses {
            let lost = losses.entry(loss.kind.clone()).or_default();
            count(lost, loss.count);
        }
        losses
    }

    /// `None` if the recording does not tell.
    fn overhead(&self) -> Option<OverheadProfile> {
        let of_run = self.cells.overheads.first()?;
        let mut by_family: BTreeMap<String, u64> = BTreeMap::new();
        for probe in &self.cells.probe_hits {
            let hits = by_family.entry(probe.family.clone()).or_default();
            count(hits, probe.hits);
        }
        Some(OverheadProfile {
            probe_hits: of_run.probe_hits,
            ns_per_hit: of_run.ns_per_hit,
            estimated_ns: (of_run.probe_hits as f64 * of_run.ns_per_hit).round() as u64,
            setup_ns: of_run.setup_ns,
            attach_ns: of_run.attach_ns,
            by_family,
        })
    }
}

fn private_dirty(process: &Process) -> Option<u64> {
    process.uss_exit_bytes.or(process.uss_loop_start_bytes)
}
