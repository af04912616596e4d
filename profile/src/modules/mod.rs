//! Who caused what: the modules that each thread loaded, who required them, and what each cost.
//!
//! Everything follows from stacks. Two questions are answered, and never mixed:
//!
//! - **as requirer**: what a module's own functions did, and all that Node did because they asked for it. The module of the
//!   innermost function of the program on the stack is to blame; for what an ES module imports, that module
//!   ([`Module::caused`]).
//! - **as loaded**: what it took to load that very file: to find, read and compile it and to run its body
//!   ([`Module::loading`] and the times of its steps).
//!
//! `require('./b')` in `a.js` makes the stats of `b.js` a cost of `a.js` as requirer, and of `b.js` as loaded.
//!
//! | module | its job |
//! |---|---|
//! | [`script`] | what the names of scripts mean |
//! | `context` | what each stack says, once per stack |
//! | `events` | the events of each thread in order |
//! | `discover` | which modules there are, and who required each |
//! | `attribute` | whose each event and each moment is |
//! | [`package`] | which package a file belongs to |
//! | `costs` | what is counted |
//! | [`sources`] | the files and packages that a bundle was made of |

mod attribute;
mod context;
mod continuations;
mod costs;
mod discover;
mod events;
mod hooks;
pub mod package;
pub mod script;
pub mod sources;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::breakdown::{Timeline, count};
use crate::fast::Map;
use crate::groups::COUNT_MODE;
use crate::main_script::Asked;
use crate::recording::{NameId, Nanoseconds, ProcessId, Recording, RunId, StackId, ThreadId};
use attribute::{Image, Pass, Phases};
use context::{Context, Contexts, Inside};
use continuations::Continuations;
use discover::{AddOns, Discovered, Finder};
use events::{Threads, What};
use hooks::found_by_hooks;
use package::{Folders, Identity, PackageKey, PackageKind};
use script::{Script, ScriptId, Scripts};
use sources::Sources;

pub use costs::Costs;
pub(crate) use costs::is_package_json;

/// Index into [`Modules::list`]; a requirer has a lower one than what it required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleId(pub u32);

/// How a module is loaded.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ModuleKind {
    /// CommonJS.
    #[serde(rename = "cjs")]
    CommonJs,
    /// ES module.
    #[serde(rename = "esm")]
    EsModule,
    /// JSON.
    Json,
    /// One of Node's own.
    Builtin,
    /// A native add-on (`*.node`).
    #[serde(rename = "addon")]
    AddOn,
    /// WebAssembly, imported as an ES module.
    Wasm,
    /// Code that was compiled without a loader: `node -e`, `vm`.
    Script,
    /// Code that ran, but whose loading was not seen.
    #[default]
    Unknown,
}

/// Where events and time go that no module is to blame for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bucket {
    /// Before `node::Start`: the dynamic linker, static constructors.
    BeforeMain,
    /// Node's own start, until its bootstrap is complete.
    Bootstrap,
    /// Node's loaders, for nobody of the program: they load the main script and preloaded modules, and manage the loading
    /// of ES modules.
    Loader,
    /// Node's own JavaScript, called by the event loop or by a promise, without a function of the program.
    Async,
    /// What Node does about an exception that nobody caught, without a function of the program.
    UncaughtException,
    /// C++ without any JavaScript: the event loop, the platform; not the collection of garbage.
    EventLoop,
    /// Garbage collection without any JavaScript: between calls of the event loop, or for the platform. Else it is of whoever runs.
    Gc,
    /// After the event loop.
    Teardown,
    /// Threads without JavaScript: V8's workers, the thread pool, the inspector.
    HelperThreads,
    /// Processes that do not run node, or no longer.
    OtherPrograms,
    /// JavaScript in which nothing was seen at all; of time only.
    Unseen,
    /// The stack is not known, or its outer end is missing.
    NoStack,
}

/// What no module is to blame for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unattributed {
    /// Events by bucket.
    pub costs: BTreeMap<Bucket, Costs>,
    /// Time of the threads that run JavaScript, by bucket, ns.
    pub time_ns: BTreeMap<Bucket, u64>,
}

impl Unattributed {
    fn at(&mut self, bucket: Bucket) -> &mut Costs {
        self.costs.entry(bucket).or_default()
    }

    fn time(&mut self, bucket: Bucket, spent: u64) {
        count(self.time_ns.entry(bucket).or_default(), spent);
    }
}

/// A module that a thread loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Index into [`Modules::threads`].
    pub unit: usize,
    /// Its file, or the name of its code.
    pub script: ScriptId,
    /// How it is loaded.
    pub kind: ModuleKind,
    /// Index into [`Modules::packages`].
    pub package: usize,
    /// The module whose function or `import` asked for it first; `None`: Node itself did.
    pub requirer: Option<ModuleId>,
    /// The main script of its process.
    pub main_script: bool,
    /// How often it was loaded; 0 if that was not seen.
    pub loads: u32,
    /// First thing done to load it.
    pub start: Option<Nanoseconds>,
    /// Its body begins to run: the first time that this is seen.
    pub execute_start: Option<Nanoseconds>,
    /// Its body ran until this instant at least.
    pub end_earliest: Option<Nanoseconds>,
    /// Its body did not run any more at this instant; `None`: it ran until the end of the trace.
    pub end_latest: Option<Nanoseconds>,
    /// Time to find its file, ns.
    pub resolve_ns: u64,
    /// Time to read it.
    pub read_ns: u64,
    /// Time to compile it.
    pub compile_ns: u64,
    /// Time in its own code: its body, and its functions whenever they ran.
    pub execute_ns: u64,
    /// Of `execute_ns`: while no module's body ran, as in callbacks from the event loop.
    pub callback_ns: u64,
    /// Of `execute_ns`: its calls of `require` and `require.resolve` that loaded nothing.
    pub vain_ns: u64,
    /// By how much its own time (the sum of the four) can be wrong either way.
    pub uncertain_ns: u64,
    /// Its own time and that of all modules below it in the tree of requirers.
    pub total_ns: u64,
    /// As requirer.
    pub caused: Costs,
    /// As loaded.
    pub loading: Costs,
    /// Of `caused`: what its own functions did while it loaded nothing.
    pub own: Costs,
}

impl Module {
    fn new(unit: usize, script: ScriptId) -> Module {
        Module {
            unit,
            script,
            ..Module::default()
        }
    }

    /// Its own time: to find, read, compile and run it, without what it required.
    pub fn self_ns(&self) -> u64 {
        [self.resolve_ns, self.read_ns, self.compile_ns]
            .into_iter()
            .fold(self.execute_ns, u64::saturating_add)
    }
}

/// A package that modules of a run belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Of which run.
    pub run: RunId,
    /// Where it lies.
    pub key: PackageKey,
    /// What it is called.
    pub identity: Identity,
}

/// The modules of all threads of all runs.
#[derive(Debug, Default)]
pub struct Modules {
    /// In the order of threads, then of loading.
    pub list: Vec<Module>,
    /// Process and thread of each [`Module::unit`].
    pub threads: Vec<(ProcessId, ThreadId)>,
    /// Packages, in the order in which their first module was loaded.
    pub packages: Vec<Package>,
    /// Per run: what no module is to blame for.
    pub outside: Vec<Unattributed>,
    /// Per run: all events.
    pub all: Vec<Costs>,
    /// Names.
    pub scripts: Scripts,
    /// Per run: what bundles are made of.
    pub sources: Vec<Sources>,
}

impl Modules {
    /// Finds modules and their costs. In a run without stacks there is nothing to find.
    pub fn new(recording: &Recording, timeline: &Timeline) -> Modules {
        let mut modules = Modules {
            outside: vec![Unattributed::default(); recording.runs.len()],
            all: vec![Costs::default(); recording.runs.len()],
            scripts: Scripts::new(recording),
            ..Modules::default()
        };
        let stacked = runs_with_stacks(recording);
        if !stacked.contains(&true) {
            return modules;
        }
        let told = |process| stacked.get(run_of(recording, process)) == Some(&true);
        let contexts = Contexts::new(recording, &mut modules.scripts);
        let threads = Threads::new(recording, timeline, &contexts);
        modules.threads = threads
            .list
            .iter()
            .map(|thread| (thread.process, thread.thread))
            .collect();
        let mut phases = phases(recording, timeline, &threads);
        let imports = by_thread(&recording.imports, |import| (import.process, import.thread));
        let continuations = by_thread(&recording.continuations, |c| (c.process, c.thread));
        let by_hooks = found_by_hooks(recording, &contexts, &threads);
        let add_ons = AddOns::new(recording);
        let mut found: Vec<Discovered> = Vec::with_capacity(threads.list.len());
        for (unit, thread) in threads.list.iter().enumerate() {
            let mut finder = Finder {
                recording,
                contexts: &contexts,
                scripts: &mut modules.scripts,
                imports: &imports,
                by_hooks: &by_hooks,
                add_ons: &add_ons,
            };
            found.push(match thread.javascript && told(thread.process) {
                true => finder.find(unit, thread, &mut modules.list),
                false => Discovered::default(),
            });
        }
        let mut followed: Vec<(ProcessId, StackId, Costs)> = Vec::new();
        for (unit, thread) in threads.list.iter().enumerate() {
            let run = run_of(recording, thread.process);
            let Some(outside) = modules.outside.get_mut(run) else {
                continue;
            };
            if thread.javascript && told(thread.process) {
                let pass = Pass::new(
                    recording,
                    &contexts,
                    &modules.scripts,
                    unit,
                    std::mem::take(&mut phases[unit]),
                    Continuations::new(
                        &contexts,
                        of_thread(&continuations, (thread.process, thread.thread)),
                    ),
                    &mut found[unit],
                    &mut modules.list,
                    outside,
                );
                let led_to = pass.run(thread).into_iter();
                followed.extend(led_to.map(|(stack, costs)| (thread.process, stack, costs)));
            }
        }
        modules.helpers(recording, &threads, &found, &told);
        modules.sums(recording, timeline, &contexts, &threads, &mut found, &told);
        modules.sum_up(recording, timeline);
        modules.sources = Sources::of_runs(recording, &modules.scripts, &told, followed);
        modules
    }

    /// Events of threads without JavaScript, and of programs that processes executed in node's place. Files that are read to load a module are its.
    fn helpers(
        &mut self,
        recording: &Recording,
        threads: &Threads,
        found: &[Discovered],
        told: &dyn Fn(ProcessId) -> bool,
    ) {
        // By process and file: its modules, and until when others may read it.
        let mut fetched: Map<(ProcessId, NameId), Vec<(Nanoseconds, ModuleId)>> = Map::default();
        for thread in threads.list.iter().filter(|thread| told(thread.process)) {
            let Some(process) = recording.processes.get(thread.process.0 as usize) else {
                continue;
            };
            let run = process.run.0 as usize;
            let bucket = match process.node {
                Some(_) => Bucket::HelperThreads,
                None => Bucket::OtherPrograms,
            };
            if let Some(outside) = self.outside.get_mut(run) {
                for costs in thread.replaced.iter().filter_map(|p| p.costs(recording)) {
                    outside.at(Bucket::OtherPrograms).add(&costs);
                }
            }
            if thread.javascript {
                continue;
            }
            let of_process = threads.of_process(thread.process);
            for point in &thread.points {
                let index = point.index as usize;
                let Some(costs) = point.costs(recording) else {
                    continue;
                };
                let read_for = (point.what == What::File)
                    .then(|| recording.files[index].path)
                    .and_then(|path| {
                        let fetched = fetched.entry((thread.process, path)).or_insert_with(|| {
                            let scripts = self.scripts.of_file(recording.name(path));
                            let mut all: Vec<(Nanoseconds, ModuleId)> = { of_process.iter() }
                                .flat_map(|&unit| scripts.iter().map(move |script| (unit, *script)))
                                .filter_map(|(unit, script)| found[unit].fetched(script))
                                .collect();
                            all.sort_unstable();
                            all
                        });
                        // Of several the next one. Once it is compiled, somebody else reads its file.
                        let next = fetched.partition_point(|(until, _)| until.0 <= point.at);
                        fetched.get(next).map(|(_, module)| *module)
                    });
                let Some(outside) = self.outside.get_mut(run) else {
                    continue;
                };
                match read_for {
                    Some(module) => {
                        let module = &mut self.list[module.0 as usize];
                        module.loading.add(&costs);
                        match module.requirer {
                            Some(requirer) => self.list[requirer.0 as usize].caused.add(&costs),
                            None => outside.at(Bucket::Loader).add(&costs),
                        }
                    }
                    None => outside.at(bucket).add(&costs),
                }
            }
        }
    }

    /// Events that are known only as sums: without instants, their stacks alone tell.
    fn sums(
        &mut self,
        recording: &Recording,
        timeline: &Timeline,
        contexts: &Contexts,
        threads: &Threads,
        found: &mut [Discovered],
        told: &dyn Fn(ProcessId) -> bool,
    ) {
        let crossings = recording.crossing_sums.iter();
        let crossings = crossings.map(|sum| (sum.process, sum.phase, sum.stack, Costs::from(sum)));
        let serializations = recording.serialization_sums.iter();
        let serializations =
            serializations.map(|sum| (sum.process, sum.phase, sum.stack, Costs::from(sum)));
        for (process_id, phase, stack, costs) in crossings.chain(serializations) {
            let process = recording.processes.get(process_id.0 as usize);
            let Some(process) = process.filter(|_| told(process_id)) else {
                continue;
            };
            let context = stack.and_then(|stack| contexts.get(stack));
            // A sum has no thread: where its script is known, the main thread first.
            let main = threads.find(process_id, ThreadId(process.pid));
            let all = threads.of_process(process_id).iter().copied();
            let units: Vec<usize> = main.into_iter().chain(all).collect();
            let find = |script: ScriptId| {
                let mut units = units.iter();
                units.find_map(|&unit| found[unit].modules.get(&script).copied())
            };
            let owner = context.and_then(|context| context.owner);
            let cause = owner.and_then(find);
            let loaded = context.and_then(|context| match context.inside {
                Inside::Builtin(script) => find(script),
                Inside::Loading => {
                    let mut units = units.iter();
                    units.find_map(|&unit| *found[unit].by_call.get(&context.call?)?)
                }
                Inside::Own | Inside::Fetching => None,
            });
            if let Some(module) = loaded {
                self.list[module.0 as usize].loading.add(&costs);
            }
            let cause = cause.or_else(|| {
                let unit = *units.first()?;
                let module = found[unit].module(unit, owner?, &mut self.list);
                Some(module)
            });
            // The body of one of Node's own modules is who required it, as of single events.
            let cause = cause.or_else(|| of_program(&self.list, loaded?));
            match cause {
                Some(module) => self.list[module.0 as usize].caused.add(&costs),
                None => {
                    let name =
                        timeline.phase_name(process_id, timeline.phase_after(process_id, phase));
                    let bucket = bucket_of_phase(name, context);
                    if let Some(outside) = self.outside.get_mut(process.run.0 as usize) {
                        outside.at(bucket).add(&costs);
                    }
                }
            }
        }
    }

    /// Totals, packages, and the sum of all events.
    fn sum_up(&mut self, recording: &Recording, timeline: &Timeline) {
        for module in &mut self.list {
            module.total_ns = module.self_ns();
        }
        for index in (0..self.list.len()).rev() {
            let Module {
                requirer,
                total_ns,
                caused,
                unit,
                ..
            } = self.list[index];
            if let Some(requirer) = requirer {
                count(&mut self.list[requirer.0 as usize].total_ns, total_ns);
            }
            let run = run_of(recording, self.threads[unit].0);
            if let Some(all) = self.all.get_mut(run) {
                all.add(&caused);
            }
        }
        for (all, outside) in self.all.iter_mut().zip(&self.outside) {
            for costs in outside.costs.values() {
                all.add(costs);
            }
        }
        let folders: Vec<Folders<'_>> = (0..recording.runs.len())
            .map(|run| Folders::new(recording, RunId(run as u32)))
            .collect();
        self.find_main_scripts(recording, timeline);
        let applications = self.applications(recording, timeline, &folders);
        let mut known: BTreeMap<(RunId, PackageKey), usize> = BTreeMap::new();
        for index in 0..self.list.len() {
            let module = &self.list[index];
            let run = run_of(recording, self.threads[module.unit].0);
            let Some(folders) = folders.get(run) else {
                continue;
            };
            let script = self.scripts.get(module.script);
            let mut key = if script.is_builtin() {
                PackageKey {
                    kind: PackageKind::Node,
                    directory: Vec::new(),
                }
            } else if script.path.starts_with(b"/") {
                folders.package_of(&script.path)
            } else {
                // Code without a file is its requirer's.
                module
                    .requirer
                    .map_or_else(PackageKey::default, |requirer| {
                        let package = self.list[requirer.0 as usize].package;
                        self.packages[package].key.clone()
                    })
            };
            if applications[run].as_ref() == Some(&key) {
                key.kind = PackageKind::Application;
            }
            let run = RunId(run as u32);
            let packages = &mut self.packages;
            let package = *known.entry((run, key)).or_insert_with_key(|(run, key)| {
                let identity = match key.kind {
                    PackageKind::Node => node_identity(recording, *run),
                    _ => folders.identity(key),
                };
                packages.push(Package {
                    run: *run,
                    key: key.clone(),
                    identity,
                });
                packages.len() - 1
            });
            self.list[index].package = package;
        }
    }

    /// Of the modules that Node itself loaded in a process's main thread, the one that the command line names.
    fn find_main_scripts(&mut self, recording: &Recording, timeline: &Timeline) {
        let mut roots: Vec<Vec<usize>> = vec![Vec::new(); self.threads.len()];
        for (index, module) in self.list.iter().enumerate() {
            if module.requirer.is_none() && !self.script(module).is_builtin() {
                roots[module.unit].push(index);
            }
        }
        for ((id, thread), roots) in self.threads.iter().zip(roots) {
            let Some(process) = recording.processes.get(id.0 as usize) else {
                continue;
            };
            if thread.0 != process.pid {
                continue;
            }
            let run = recording.runs.get(process.run.0 as usize);
            let is_main = timeline.main_process(process.run) == Some(*id);
            let arguments = match timeline.node_arguments(run, process, *id) {
                Some(arguments) => arguments,
                None => run.filter(|_| is_main).map_or(&[][..], |run| &run.command),
            };
            let directory = run.map(|run| String::from_utf8_lossy(&run.directory));
            let paths = roots.iter().map(|&root| self.list[root].script);
            let paths: Vec<&[u8]> = paths
                .map(|script| self.scripts.get(script).path.as_slice())
                .collect();
            let found = Asked::of(arguments).find(&paths, &directory.unwrap_or_default());
            if let Some(found) = found {
                self.list[roots[found]].main_script = true;
            }
        }
    }

    /// Per run, the package of the main script: of the main process's, or else of the first process whose main script is not installed.
    fn applications(
        &self,
        recording: &Recording,
        timeline: &Timeline,
        folders: &[Folders<'_>],
    ) -> Vec<Option<PackageKey>> {
        let mut applications = vec![None; folders.len()];
        let scripts = self.list.iter().filter(|module| module.main_script);
        let mut scripts: Vec<(ProcessId, &Script)> = scripts
            .map(|module| (self.threads[module.unit].0, self.script(module)))
            .filter(|(_, script)| script.path.starts_with(b"/"))
            .collect();
        let is_main = |process: ProcessId| {
            let run = RunId(run_of(recording, process) as u32);
            timeline.main_process(run) == Some(process)
        };
        scripts.sort_by_key(|(process, _)| !is_main(*process));
        for (process, script) in scripts {
            let run = run_of(recording, process);
            if let Some(application) = applications.get_mut(run)
                && application.is_none()
            {
                let key = folders[run].package_of(&script.path);
                *application = (key.kind != PackageKind::Installed).then_some(key);
            }
        }
        applications
    }

    /// The script of a module.
    pub fn script(&self, module: &Module) -> &Script {
        self.scripts.get(module.script)
    }
}

fn node_identity(recording: &Recording, run: RunId) -> Identity {
    let of_run = recording.processes.iter().filter(|p| p.run == run);
    let mut binaries = of_run.filter_map(|p| recording.binaries.get(p.node?.0 as usize));
    let version = binaries.find_map(|binary| binary.node_version.clone());
    Identity {
        name: Some("node".to_owned()),
        version: version.map(|version| version.trim_start_matches('v').to_owned()),
    }
}

/// Per run, whether any of its events has a stack. In count mode calls have none, whatever else has: nobody's calls are known.
fn runs_with_stacks(recording: &Recording) -> Vec<bool> {
    let mut stacked = vec![false; recording.runs.len()];
    stacks_of_events(recording, &mut |process, stack| {
        if stack.is_some()
            && let Some(stacked) = stacked.get_mut(run_of(recording, process))
        {
            *stacked = true;
        }
    });
    for (stacked, run) in stacked.iter_mut().zip(&recording.runs) {
        *stacked &= run.mode != COUNT_MODE;
    }
    stacked
}

/// The stack of each event, and of which process it is.
fn stacks_of_events(recording: &Recording, see: &mut dyn FnMut(ProcessId, Option<StackId>)) {
    macro_rules! look {
        ($($events:ident),*) => {$(
            recording.$events.iter().for_each(|event| see(event.process, event.stack));
        )*};
    }
    look!(
        crossings,
        crossing_sums,
        lookups,
        files,
        serializations,
        serialization_sums,
        compilations,
        samples,
        waits
    );
}

fn run_of(recording: &Recording, process: ProcessId) -> usize {
    let process = recording.processes.get(process.0 as usize);
    process.map_or(usize::MAX, |process| process.run.0 as usize)
}

/// The nearest module of the program that a module was required by, or is.
fn of_program(modules: &[Module], module: ModuleId) -> Option<ModuleId> {
    let mut at = Some(module);
    while let Some(id) = at {
        let module = modules.get(id.0 as usize)?;
        if module.kind != ModuleKind::Builtin {
            return Some(id);
        }
        at = module.requirer;
    }
    None
}

/// Rows of a table by the thread that they are of.
type ByThread<'a, T> = Map<(ProcessId, ThreadId), Vec<&'a T>>;

fn by_thread<T>(table: &[T], thread: impl Fn(&T) -> (ProcessId, ThreadId)) -> ByThread<'_, T> {
    let mut rows = ByThread::default();
    for row in table {
        rows.entry(thread(row)).or_default().push(row);
    }
    rows
}

fn of_thread<'r, 'a, T>(rows: &'r ByThread<'a, T>, thread: (ProcessId, ThreadId)) -> &'r [&'a T] {
    rows.get(&thread).map_or(&[], Vec::as_slice)
}

fn bucket_of_phase(name: &str, context: Option<&Context>) -> Bucket {
    match (name, context) {
        ("process" | "before_exec", _) => Bucket::BeforeMain,
        ("platform" | "v8" | "bootstrap", _) => Bucket::Bootstrap,
        ("teardown", _) => Bucket::Teardown,
        (_, None) => Bucket::NoStack,
        (_, Some(context)) if context.truncated => Bucket::NoStack,
        (_, Some(context)) if context.uncaught => Bucket::UncaughtException,
        (_, Some(context)) if context.loader => Bucket::Loader,
        (_, Some(context)) if context.javascript => Bucket::Async,
        (_, Some(context)) if context.collects => Bucket::Gc,
        _ => Bucket::EventLoop,
    }
}

/// When each thread's environments were ready, by their milestones.
fn phases(recording: &Recording, timeline: &Timeline, threads: &Threads) -> Vec<Phases> {
    let mut first: Map<ProcessId, Nanoseconds> = Map::default();
    for milestone in &recording.milestones {
        let at = first.entry(milestone.process).or_insert(milestone.at);
        *at = milestone.at.min(*at);
    }
    let of_thread = threads.list.iter().map(|thread| {
        let process = recording.processes.get(thread.process.0 as usize);
        let exited = process.and_then(|process| process.exited).map(|at| at.0);
        let replaced = timeline.replaced(thread.process).map(|at| at.0);
        let mut images = vec![Image::default()];
        if let Some(process) = process
            && replaced.is_none()
            && thread.is_main(recording)
            && let Some(first) = first.get(&thread.process)
        {
            let later = process.execs.iter().filter(|exec| exec.at > *first);
            images.extend(later.map(|exec| Image {
                from: exec.at.0,
                ..Image::default()
            }));
            images.sort_by_key(|image| image.from);
        }
        Phases {
            images,
            exited: replaced.or(exited),
            other_exited: exited.filter(|_| replaced.is_some()),
        }
    });
    let mut phases: Vec<Phases> = of_thread.collect();
    for milestone in &recording.milestones {
        let Some(unit) = threads.find(milestone.process, milestone.thread) else {
            continue;
        };
        let mut images = phases[unit].images.iter_mut().rev();
        let Some(image) = images.find(|image| image.from <= milestone.at.0) else {
            continue;
        };
        let slot = match milestone.name.as_str() {
            "node_start" => &mut image.start,
            "bootstrap_complete" => &mut image.bootstrap_complete,
            "loop_exit" => &mut image.loop_exit,
            _ => continue,
        };
        slot.get_or_insert(milestone.at.0);
    }
    phases
}
