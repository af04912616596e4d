//! Which modules a thread loaded, and who wanted each.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::context::{Context, Contexts, Inside};
use super::events::{Point, Thread, What};
use super::hooks::FoundByHooks;
use super::script::{BuiltinClass, Script, ScriptClass, ScriptId, Scripts};
use super::{ByThread, Module, ModuleId, ModuleKind, of_thread};
use crate::fast::Map;
use crate::recording::{
    Compilation, CompilationUnit, CrossingKind, FileOperation, FrameKind, Import, NameId,
    Nanoseconds, ProcessId, Recording, StackId,
};

/// The function of `process` that loads a native add-on, as its callback is called.
pub(super) const LOAD_ADD_ON: &str = "DLOpen";

/// What makes an ES module, as its callback is called.
const MAKE_MODULE: &str = "ModuleWrap::New";

/// A call that is not timed is seen by two probes in the same place: in which order, and how soon one after the other (ns), is not known.
const SAME_PLACE_NS: u64 = 100_000;

/// A module being loaded: seen by its compilation, the opening of its file, or its import.
struct Load {
    script: ScriptId,
    at: Nanoseconds,
    seen: Seen,
    stack: Option<StackId>,
    /// It was compiled, but not to run it.
    tried: bool,
}

impl Load {
    fn opened(script: ScriptId, kind: ModuleKind, at: Nanoseconds, stack: Option<StackId>) -> Load {
        Load {
            script,
            at,
            seen: Seen::Opened(kind),
            stack,
            tried: false,
        }
    }
}

/// What Node made an ES module of, or which add-on it asked for.
struct Asked {
    at: Nanoseconds,
    name: NameId,
    /// The call that did.
    crossing: Option<u32>,
}

/// A call of `import()` for which no file was looked for: it asks for one of Node's own modules, or for a URL that holds the module itself.
struct Ask {
    at: Nanoseconds,
    asker: ScriptId,
    /// How many modules it may be about: calls from one place, one right after the other, are one here.
    left: usize,
}

/// The add-ons that processes opened.
#[derive(Debug, Default)]
pub(super) struct AddOns {
    of: Map<ProcessId, OfProcess>,
}

/// Those of a process.
#[derive(Debug)]
struct OfProcess {
    /// The first one, and when.
    first: (Nanoseconds, NameId),
    /// When another one was opened.
    another: Option<Nanoseconds>,
}

impl AddOns {
    pub(super) fn new(recording: &Recording) -> AddOns {
        let opened = recording.files.iter().filter(|access| {
            access.operation == FileOperation::Open
                && access.result >= 0
                && recording.name(access.path).ends_with(b".node")
        });
        let mut opened: Vec<_> = opened
            .map(|access| (access.start, access.process, access.path))
            .collect();
        opened.sort_by_key(|(start, ..)| *start);
        let mut all = AddOns::default();
        for (start, process, path) in opened {
            let of_process = all.of.entry(process).or_insert(OfProcess {
                first: (start, path),
                another: None,
            });
            if path != of_process.first.1 {
                of_process.another.get_or_insert(start);
            }
        }
        all
    }

    /// The one that a process had opened by an instant, if it was one.
    fn only(&self, process: ProcessId, until: Nanoseconds) -> Option<NameId> {
        let OfProcess { first, another } = self.of.get(&process)?;
        let is_only = first.0 < until && another.is_none_or(|at| at >= until);
        is_only.then_some(first.1)
    }
}

/// The file of an add-on that was found last, and for which call.
type FoundAddOn = (Option<StackId>, ScriptId);

/// A call that loads a native add-on.
struct AddOnCall {
    crossing: u32,
    end: u64,
    /// The file that it was asked for.
    asked: Option<ScriptId>,
    /// The file that was found for it.
    found: Option<ScriptId>,
    /// Add-ons that were opened while it lasted.
    opened: Vec<ScriptId>,
    /// One could not be opened.
    failed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Compiled(CompilationUnit),
    Opened(ModuleKind),
    Imported,
}

/// What discovery tells the pass over the events.
#[derive(Debug, Default)]
pub(super) struct Discovered {
    /// The modules of the thread by script.
    pub(super) modules: Map<ScriptId, ModuleId>,
    /// Crossings that load a native add-on, by index.
    pub(super) add_ons: Map<u32, ModuleId>,
    /// Crossings that make a module of JSON that was parsed for it, by index.
    pub(super) made: Map<u32, ModuleId>,
    /// The module that one call of `require` loaded, by [`super::context::Context::call`]; `None` if it loaded several.
    pub(super) by_call: Map<StackId, Option<ModuleId>>,
    /// Compilations only to tell by its syntax what a file is, by index.
    pub(super) tried: Map<u32, ()>,
    /// Modules whose requirer imports them statically.
    pub(super) linked: Map<ModuleId, ()>,
    /// What each ES module imports statically, whoever asked for it first.
    pub(super) imported: BTreeMap<ModuleId, Vec<ModuleId>>,
    /// Modules that were loaded by promises: when it was first seen that their files had been read.
    fetched: Map<ModuleId, Nanoseconds>,
}

impl Discovered {
    /// The module of a script, if other threads may have read its file to load it, and until when.
    pub(super) fn fetched(&self, script: ScriptId) -> Option<(Nanoseconds, ModuleId)> {
        let module = *self.modules.get(&script)?;
        Some((*self.fetched.get(&module)?, module))
    }

    /// The module of a script; a new one, of which no loading was seen, if there is none.
    pub(super) fn module(
        &mut self,
        unit: usize,
        script: ScriptId,
        modules: &mut Vec<Module>,
    ) -> ModuleId {
        *self.modules.entry(script).or_insert_with(|| {
            modules.push(Module::new(unit, script));
            ModuleId((modules.len() - 1) as u32)
        })
    }
}

/// By file: whose functions it was found for, and when.
type Askers<'a> = HashMap<&'a [u8], Vec<(Nanoseconds, ScriptId)>>;

/// What the modules of all threads are found in.
pub(super) struct Finder<'a> {
    pub(super) recording: &'a Recording,
    pub(super) contexts: &'a Contexts,
    pub(super) scripts: &'a mut Scripts,
    pub(super) imports: &'a ByThread<'a, Import>,
    pub(super) by_hooks: &'a FoundByHooks,
    pub(super) add_ons: &'a AddOns,
}

impl<'a> Finder<'a> {
    /// Appends the modules of a thread, in the order in which their loading was seen.
    pub(super) fn find(
        &mut self,
        unit: usize,
        thread: &Thread,
        modules: &mut Vec<Module>,
    ) -> Discovered {
        let mut found = Discovered::default();
        let imports = self.imports(thread);
        let askers = self.askers(thread);
        let asked = self.asked(thread);
        let mut loads = self.compiled(thread, &mut found.tried);
        let made = self.json(thread, &asked, &mut loads);
        let add_on_loads = self.add_ons(thread, &asked, &mut loads);
        self.imported(&imports, &mut loads);
        loads.sort_by_key(|load| load.at);
        let data_askers = self.data_askers(thread, &loads, &imports);

        let mut kinds: BTreeMap<ScriptId, Vec<usize>> = BTreeMap::new();
        for (index, load) in loads.iter().enumerate() {
            kinds.entry(load.script).or_default().push(index);
        }
        for (index, load) in loads.iter().enumerate() {
            let of_script = &kinds[&load.script];
            if of_script.first() != Some(&index) {
                continue;
            }
            let all: Vec<&Load> = of_script.iter().map(|&index| &loads[index]).collect();
            // Another thread loads what hooks tried here.
            if all.iter().all(|load| load.tried) {
                continue;
            }
            let wanted = self.wanted_by(unit, load, &mut found, modules);
            let by_loader = wanted.by_loader || all[1..].iter().any(|load| self.is_by_loader(load));
            let (kind, times) = self.kind(&all, by_loader);
            let imported = importer(&imports, load, &found, modules);
            let is_es = matches!(kind, ModuleKind::EsModule | ModuleKind::Wasm);
            let requirer = match wanted.by_import || is_es {
                true => imported.or(wanted.requirer),
                false => wanted.requirer.or(imported),
            };
            let requirer = requirer.or_else(|| {
                let path = self.scripts.get(load.script).path.as_slice();
                let mut asked = askers.get(path)?.iter().filter(|(at, _)| *at <= load.at);
                // Of a file that is there several times (with queries), it is not known who asked for which.
                let (_, asker) = match self.scripts.of_file(path).len() {
                    1 => asked.next()?,
                    _ => asked.next_back()?,
                };
                (*asker != load.script).then(|| found.module(unit, *asker, modules))
            });
            let requirer = requirer.or_else(|| {
                let asker = data_askers.get(&load.script)?;
                (*asker != load.script).then(|| found.module(unit, *asker, modules))
            });
            let id = found.module(unit, load.script, modules);
            let context = load.stack.and_then(|stack| self.contexts.get(stack));
            // With a function of the program on the stack, it was read at once.
            if (wanted.by_import || is_es || load.seen == Seen::Imported)
                && context.is_none_or(|context| context.owner.is_none())
            {
                found.fetched.insert(id, load.at);
            }
            let module = &mut modules[id.0 as usize];
            module.kind = kind;
            module.loads = times;
            module.start.get_or_insert(load.at);
            // One that was met as a requirer before its own loading was seen: its place in the tree is taken.
            if module.requirer.is_none() && requirer.is_none_or(|requirer| requirer < id) {
                module.requirer = requirer;
                if requirer.is_some() && requirer == imported {
                    found.linked.insert(id, ());
                }
            }
        }
        for load in &loads {
            let context = load.stack.and_then(|stack| self.contexts.get(stack));
            let module = found.modules.get(&load.script).copied();
            if let (Some(call), Some(module)) = (context.and_then(|context| context.call), module) {
                let slot = found.by_call.entry(call).or_insert(Some(module));
                if *slot != Some(module) {
                    *slot = None;
                }
            }
        }
        for (loaded, links) in &imports {
            let Some(&loaded) = found.modules.get(loaded) else {
                continue;
            };
            for (_, requirer) in links {
                if let Some(&requirer) = found.modules.get(requirer) {
                    found.imported.entry(requirer).or_default().push(loaded);
                }
            }
        }
        let of_script = |(crossing, script)| Some((crossing, *found.modules.get(&script)?));
        found.add_ons = add_on_loads.into_iter().filter_map(of_script).collect();
        found.made = made.into_iter().filter_map(of_script).collect();
        found
    }

    /// Links of ES modules by what was loaded, the earliest first.
    fn imports(&mut self, thread: &Thread) -> BTreeMap<ScriptId, Vec<(Nanoseconds, ScriptId)>> {
        let mut imports: BTreeMap<ScriptId, Vec<(Nanoseconds, ScriptId)>> = BTreeMap::new();
        for import in of_thread(self.imports, (thread.process, thread.thread)) {
            // What was made, or asked for: see `asked`.
            if self.recording.name(import.requirer).is_empty() {
                continue;
            }
            let requirer = self.scripts.named(self.recording, import.requirer);
            let loaded = self.scripts.named(self.recording, import.loaded);
            if let (Some(requirer), Some(loaded)) = (requirer, loaded) {
                imports
                    .entry(loaded)
                    .or_default()
                    .push((import.at, requirer));
            }
        }
        for links in imports.values_mut() {
            links.sort();
        }
        imports
    }

    /// For whose functions the loader of ES modules found files: `import()` looks for the file before it waits for
    /// anything, so that its caller is on the stack. Of what hooks on another thread find, that asks them instead.
    fn askers(&mut self, thread: &Thread) -> Askers<'a> {
        let mut asks: Vec<(Nanoseconds, NameId, StackId)> = Vec::new();
        for point in thread.points.iter().filter(|p| p.what == What::File) {
            let access = &self.recording.files[point.index as usize];
            let context = access.stack.and_then(|stack| self.contexts.get(stack));
            if let Some(stack) = access.stack
                && context.is_some_and(Context::finds_module)
                && access.operation == FileOperation::Stat
                && access.result >= 0
            {
                asks.push((access.start, access.path, stack));
            }
        }
        if let Some(found) = self.by_hooks.files.get(&(thread.process, thread.thread)) {
            asks.extend(
                found
                    .iter()
                    .map(|found| (found.at, found.path, found.stack)),
            );
            asks.sort_by_key(|(at, ..)| *at);
        }
        let mut askers: Askers<'a> = HashMap::new();
        for (at, path, stack) in asks {
            if let Some(context) = self.contexts.get(stack)
                && context.inside == Inside::Loading
                && context.owner.is_some()
                && let Requirer {
                    script: Some(asker),
                    called,
                    ..
                } = self.requirer(stack)
                // `import.meta.resolve` loads nothing.
                && called != Some(BuiltinClass::EsModuleMeta)
            {
                let asked = askers.entry(self.recording.name(path));
                asked.or_default().push((at, asker));
            }
        }
        askers
    }

    fn compiled(&mut self, thread: &Thread, tried: &mut Map<u32, ()>) -> Vec<Load> {
        let mut loads = Vec::new();
        // The last function that was compiled, and where.
        let mut function = None;
        for point in &thread.points {
            if point.what != What::Compilation {
                continue;
            }
            let compilation = &self.recording.compilations[point.index as usize];
            // `(unnamed)`, `(unreadable)`: code that nobody gave a name.
            if self.recording.name(compilation.path).starts_with(b"(") {
                continue;
            }
            if let Some(script) = self.scripts.named(self.recording, compilation.path) {
                let place = compilation.stack.map(|stack| (script, stack));
                let is_tried = match compilation.unit {
                    CompilationUnit::Function => {
                        function = place;
                        is_tried(compilation, self.contexts)
                    }
                    // What is no function is compiled by the same call as a module, to see whether that goes.
                    CompilationUnit::Module => place.is_some() && place == function,
                    _ => false,
                };
                if is_tried {
                    tried.insert(point.index, ());
                }
                loads.push(Load {
                    script,
                    at: compilation.start,
                    seen: Seen::Compiled(compilation.unit),
                    stack: compilation.stack,
                    tried: is_tried,
                });
            }
        }
        loads
    }

    /// What Node made ES modules of, and which add-ons it asked for, in the order of time.
    fn asked(&self, thread: &Thread) -> Vec<Asked> {
        let rows = of_thread(self.imports, (thread.process, thread.thread)).iter();
        let rows = rows.filter(|import| self.recording.name(import.requirer).is_empty());
        let mut asked: Vec<Asked> = rows
            .map(|import| Asked {
                at: import.at,
                name: import.loaded,
                crossing: None,
            })
            .collect();
        if asked.is_empty() {
            return asked;
        }
        asked.sort_by_key(|asked| asked.at);
        let crossings = thread.points.iter().filter(|p| p.what == What::Crossing);
        let calls = crossings.map(|point| (point, &self.recording.crossings[point.index as usize]));
        let calls: Vec<(u64, u32, bool)> = calls
            .filter(|(_, crossing)| {
                let callback = self.recording.callbacks.get(crossing.callback.0 as usize);
                callback.is_some_and(|callback| {
                    matches!(callback.function.as_str(), LOAD_ADD_ON | MAKE_MODULE)
                })
            })
            .map(|(point, crossing)| (point.at, point.index, crossing.duration.is_some()))
            .collect();
        for asked in &mut asked {
            let at = asked.at.0;
            let after = calls.partition_point(|(start, ..)| *start <= at);
            let before = calls[..after].last();
            let next = calls.get(after).filter(|(start, _, timed)| {
                let is_nearer = before.is_none_or(|(before, ..)| start - at < at - before);
                !timed && start - at <= SAME_PLACE_NS && is_nearer
            });
            asked.crossing = next.or(before).map(|(_, index, _)| *index);
        }
        asked
    }

    /// JSON modules: nothing is compiled for them, but their files are opened, and the loader of ES modules makes modules of them.
    /// What hooks on a thread of their own read there for another one is a module of that. Gives the crossings that make them.
    fn json(
        &mut self,
        thread: &Thread,
        asked: &[Asked],
        loads: &mut Vec<Load>,
    ) -> Vec<(u32, ScriptId)> {
        let mut made = Vec::new();
        let mut by_es_loader = self.opened(thread, loads);
        for asked in asked {
            let name = self.recording.name(asked.name);
            // `vm` makes modules, too, of whatever name.
            if !name.starts_with(b"file://") && !name.starts_with(b"data:") {
                continue;
            }
            let script = Script::of(name);
            if script.form() != b"json" {
                continue;
            }
            // The files of several are read in the order in which their modules are made.
            let opened = by_es_loader.get_mut(script.path.as_slice());
            let opened = opened.filter(|opened| {
                opened
                    .front()
                    .is_some_and(|&load| loads[load].at <= asked.at)
            });
            let opened = opened.and_then(VecDeque::pop_front);
            let script = self.scripts.add(script);
            made.extend(asked.crossing.map(|crossing| (crossing, script)));
            match opened {
                Some(load) => loads[load].script = script,
                // Read by the thread pool; or there is no file.
                None => {
                    let crossing = asked
                        .crossing
                        .map(|at| &self.recording.crossings[at as usize]);
                    loads.push(Load {
                        script,
                        at: asked.at,
                        seen: Seen::Imported,
                        stack: crossing.and_then(|crossing| crossing.stack),
                        tried: false,
                    });
                }
            }
        }
        let thread = (thread.process, thread.thread);
        if self.by_hooks.threads.contains(&thread) {
            let left: BTreeSet<usize> = by_es_loader.into_values().flatten().collect();
            let mut index = 0..;
            loads.retain(|_| index.next().is_none_or(|at| !left.contains(&at)));
        }
        made
    }

    /// JSON files that are opened to load them. Gives those that the loader of ES modules reads, by path: indices of `loads`.
    fn opened(
        &mut self,
        thread: &Thread,
        loads: &mut Vec<Load>,
    ) -> HashMap<&'a [u8], VecDeque<usize>> {
        let mut by_es_loader: HashMap<&'a [u8], VecDeque<usize>> = HashMap::new();
        for point in thread.points.iter().filter(|p| p.what == What::File) {
            let access = &self.recording.files[point.index as usize];
            let path = self.recording.name(access.path);
            let context = access.stack.and_then(|stack| self.contexts.get(stack));
            let is_module = access.operation == FileOperation::Open
                && access.result >= 0
                && path.ends_with(b".json")
                && context.is_some_and(|context| {
                    context.innermost == Some(BuiltinClass::FileSystem)
                        && context.inside == Inside::Loading
                        && context.wanted_by.is_some_and(BuiltinClass::is_loader)
                });
            if is_module {
                let script = self.scripts.add(Script::of(path));
                // It may read with a function that it shares with the other loader.
                let is_by_es_loader = context.is_some_and(|context| {
                    let by_reader = context.wanted_by.is_some_and(BuiltinClass::is_es_loader);
                    let by_other = context.wanted_by == Some(BuiltinClass::CommonJsLoader);
                    (context.importing || by_reader) && !by_other
                });
                if is_by_es_loader {
                    let of_file = by_es_loader.entry(path).or_default();
                    of_file.push_back(loads.len());
                }
                loads.push(Load::opened(
                    script,
                    ModuleKind::Json,
                    access.start,
                    access.stack,
                ));
            }
        }
        by_es_loader
    }

    /// Who asked by `import()` for modules that are in their URLs, where they are made only when promises are settled: no file tells it.
    fn data_askers(
        &mut self,
        thread: &Thread,
        loads: &[Load],
        imports: &BTreeMap<ScriptId, Vec<(Nanoseconds, ScriptId)>>,
    ) -> Map<ScriptId, ScriptId> {
        let mut known = BTreeSet::new();
        let unasked = loads.iter().filter(|load| {
            let context = load.stack.and_then(|stack| self.contexts.get(stack));
            self.scripts.get(load.script).path.starts_with(b"data:")
                && known.insert(load.script)
                && !imports.contains_key(&load.script)
                && context.is_none_or(|context| context.owner.is_none())
        });
        let unasked: Vec<&Load> = unasked.collect();
        let mut askers = Map::default();
        if unasked.is_empty() {
            return askers;
        }
        let mut asks = self.asks_without_file(thread);
        // Each is about the last call before it that is about no later one.
        for load in unasked.iter().rev() {
            let before = asks.partition_point(|ask| ask.at <= load.at);
            // Loads come backwards: what lies behind this one is of no use to those before it.
            asks.truncate(before);
            while asks.last().is_some_and(|ask| ask.left == 0) {
                asks.pop();
            }
            if let Some(ask) = asks.last_mut() {
                ask.left -= 1;
                askers.insert(load.script, ask.asker);
            }
        }
        askers
    }

    /// The calls of `import()` for which no file was looked for, in the order of time: they parse two URLs, the importer's and the wanted
    /// one.
    fn asks_without_file(&mut self, thread: &Thread) -> Vec<Ask> {
        struct Run {
            call: Option<StackId>,
            at: u64,
            stack: StackId,
            calls: usize,
            file: bool,
        }
        let mut asks = Vec::new();
        let mut run: Option<Run> = None;
        let mut ended = Vec::new();
        for point in &thread.points {
            let index = point.index as usize;
            let (stack, is_call) = match point.what {
                What::Crossing => {
                    let crossing = &self.recording.crossings[index];
                    (crossing.stack, crossing.kind != CrossingKind::ToJs)
                }
                What::File => (self.recording.files[index].stack, false),
                What::Lookup => (self.recording.lookups[index].stack, false),
                _ => continue,
            };
            let is_file = point.what != What::Crossing;
            let Some((stack, context)) =
                stack.and_then(|stack| Some((stack, self.contexts.get(stack)?)))
            else {
                continue;
            };
            let is_ask = context.finding && context.owner.is_some();
            match &mut run {
                Some(run) if is_ask && run.call == context.call => {
                    run.calls += usize::from(is_call);
                    run.file |= is_file;
                }
                _ if is_ask => {
                    ended.extend(run.replace(Run {
                        call: context.call,
                        at: point.at,
                        stack,
                        calls: usize::from(is_call),
                        file: is_file,
                    }));
                }
                _ if is_call => ended.extend(run.take()),
                _ => {}
            }
        }
        ended.extend(run);
        for run in ended.into_iter().filter(|run| !run.file) {
            if let Requirer {
                script: Some(asker),
                called,
                ..
            } = self.requirer(run.stack)
                && called != Some(BuiltinClass::EsModuleMeta)
            {
                asks.push(Ask {
                    at: Nanoseconds(run.at),
                    asker,
                    left: (run.calls / 2).max(1),
                });
            }
        }
        asks
    }

    /// Native add-ons: their files are opened, unless the process has them already. Gives the crossings that load them.
    fn add_ons(
        &mut self,
        thread: &Thread,
        asked: &[Asked],
        loads: &mut Vec<Load>,
    ) -> Vec<(u32, ScriptId)> {
        let asked: Map<u32, NameId> = { asked.iter() }
            .filter_map(|asked| Some((asked.crossing?, asked.name)))
            .collect();
        let mut calls: Vec<AddOnCall> = Vec::new();
        let mut found = None;
        for point in &thread.points {
            match point.what {
                What::Crossing => calls.extend(self.add_on_call(point, &asked, found)),
                What::File => self.add_on_file(point, &mut calls, &mut found, loads),
                _ => {}
            }
        }
        let mut by_crossing = Vec::new();
        for call in &calls {
            let scripts = call.opened.iter();
            by_crossing.extend(scripts.map(|&script| (call.crossing, script)));
            if call.opened.is_empty()
                && !call.failed
                && let Some(script) = self.add_on_at_hand(thread, call, loads)
            {
                by_crossing.push((call.crossing, script));
            }
        }
        by_crossing
    }

    /// The call that a crossing is if it loads an add-on.
    fn add_on_call(
        &mut self,
        point: &Point,
        asked: &Map<u32, NameId>,
        found: Option<FoundAddOn>,
    ) -> Option<AddOnCall> {
        let recording = self.recording;
        let crossing = &recording.crossings[point.index as usize];
        let callback = recording.callbacks.get(crossing.callback.0 as usize)?;
        if callback.function != LOAD_ADD_ON {
            return None;
        }
        let duration = crossing.duration.map_or(u64::MAX, |time| time.0);
        let call = self.call(crossing.stack);
        let found = found.filter(|(of, _)| call.is_some() && *of == call);
        let asked = asked.get(&point.index).map(|&name| recording.name(name));
        // Of a name without a slash the dynamic linker finds the file.
        let asked = asked.filter(|path| path.starts_with(b"/"));
        Some(AddOnCall {
            crossing: point.index,
            end: point.at.saturating_add(duration),
            asked: asked.map(|path| self.scripts.add(Script::of(path))),
            found: found.map(|(_, script)| script),
            opened: Vec::new(),
            failed: false,
        })
    }

    /// A file operation, if it is on an add-on: it finds the file, or loads it.
    fn add_on_file(
        &mut self,
        point: &Point,
        calls: &mut [AddOnCall],
        found: &mut Option<FoundAddOn>,
        loads: &mut Vec<Load>,
    ) {
        let access = &self.recording.files[point.index as usize];
        let path = self.recording.name(access.path);
        if !path.ends_with(b".node") {
            return;
        }
        let inside = calls.last_mut().filter(|call| point.at <= call.end);
        let context = access.stack.and_then(|stack| self.contexts.get(stack));
        match (access.operation, access.result >= 0) {
            (FileOperation::Stat, true) if inside.is_none() => {
                let script = self.scripts.add(Script::of(path));
                *found = Some((context.and_then(|context| context.call), script));
            }
            (FileOperation::Open, false) => {
                if let Some(call) = inside {
                    call.failed = true;
                }
            }
            (FileOperation::Open, true) => {
                let by_loader = context
                    .is_some_and(|context| context.innermost == Some(BuiltinClass::CommonJsLoader));
                let script = self.scripts.add(Script::of(path));
                let is_load = match inside {
                    Some(call) if call.opened.contains(&script) => false,
                    Some(call) => {
                        call.opened.push(script);
                        true
                    }
                    None => by_loader,
                };
                if is_load {
                    let kind = ModuleKind::AddOn;
                    loads.push(Load::opened(script, kind, access.start, access.stack));
                }
            }
            _ => {}
        }
    }

    /// What the process has is not opened again: the add-on that a call asked for, else the one that was looked for, or the only one.
    fn add_on_at_hand(
        &mut self,
        thread: &Thread,
        call: &AddOnCall,
        loads: &mut Vec<Load>,
    ) -> Option<ScriptId> {
        let crossing = &self.recording.crossings[call.crossing as usize];
        let script = match call.asked.or(call.found) {
            Some(known) => known,
            None => {
                let only = self.add_ons.only(thread.process, crossing.start)?;
                self.scripts.add(Script::of(self.recording.name(only)))
            }
        };
        let kind = ModuleKind::AddOn;
        loads.push(Load::opened(script, kind, crossing.start, crossing.stack));
        Some(script)
    }

    fn call(&self, stack: Option<StackId>) -> Option<StackId> {
        self.contexts.get(stack?)?.call
    }

    /// What was linked to an ES module without being compiled: JSON, WebAssembly, add-ons.
    fn imported(
        &self,
        imports: &BTreeMap<ScriptId, Vec<(Nanoseconds, ScriptId)>>,
        loads: &mut Vec<Load>,
    ) {
        let known: BTreeSet<ScriptId> = loads.iter().map(|load| load.script).collect();
        for (&script, links) in imports {
            // Node's own modules that were not compiled were there before.
            if known.contains(&script) || self.scripts.get(script).is_builtin() {
                continue;
            }
            if let Some(&(at, _)) = links.first() {
                loads.push(Load {
                    script,
                    at,
                    seen: Seen::Imported,
                    stack: None,
                    tried: false,
                });
            }
        }
    }

    /// Whether a loader loads it: others run files, too (`vm`), and may have been the first.
    fn is_by_loader(&mut self, load: &Load) -> bool {
        load.stack.map_or(
            load.seen == Seen::Compiled(CompilationUnit::Function),
            |stack| !load.tried && self.requirer(stack).by_loader,
        )
    }

    /// What kind of module it is by all that was seen of it, and how often it was loaded.
    fn kind(&self, all: &[&Load], by_loader: bool) -> (ModuleKind, u32) {
        let count = |seen: Seen| {
            let loads = all.iter().filter(|load| load.seen == seen && !load.tried);
            loads.count() as u32
        };
        let script = self.scripts.get(all[0].script);
        let modules = count(Seen::Compiled(CompilationUnit::Module));
        let functions = count(Seen::Compiled(CompilationUnit::Function));
        let scripts = count(Seen::Compiled(CompilationUnit::Script));
        if script.is_builtin() || count(Seen::Compiled(CompilationUnit::Builtin)) > 0 {
            return (ModuleKind::Builtin, (all.len() as u32).max(1));
        }
        // What the loader cannot compile is compiled once more as a module, for a better message.
        let is_common = matches!(script.form(), b"cjs" | b"cts");
        // A file that could be either is compiled as a function first: then it is one of the modules.
        if modules > 0 && !is_common {
            // WebAssembly gets a module of Node's making around it, of the same name.
            let kind = match script.form() {
                b"wasm" => ModuleKind::Wasm,
                _ => ModuleKind::EsModule,
            };
            return (kind, modules);
        }
        if functions + scripts > 0 {
            let kind = match by_loader {
                true => ModuleKind::CommonJs,
                false => ModuleKind::Script,
            };
            return (kind, functions + scripts);
        }
        for kind in [ModuleKind::AddOn, ModuleKind::Json] {
            let opened = count(Seen::Opened(kind));
            if opened > 0 {
                return (kind, opened);
            }
        }
        let kind = match script.form() {
            b"json" => ModuleKind::Json,
            b"wasm" => ModuleKind::Wasm,
            b"node" => ModuleKind::AddOn,
            b"cjs" | b"cts" => ModuleKind::CommonJs,
            _ => ModuleKind::EsModule,
        };
        (kind, 1)
    }

    fn wanted_by(
        &mut self,
        unit: usize,
        load: &Load,
        found: &mut Discovered,
        modules: &mut Vec<Module>,
    ) -> Wanted {
        let Some(stack) = load.stack else {
            // Without a stack, functions with a path are what the loader makes.
            let function = Seen::Compiled(CompilationUnit::Function);
            return Wanted {
                requirer: None,
                by_loader: load.seen == function,
                by_import: false,
            };
        };
        match self.scripts.get(load.script).is_builtin() {
            true => self.wanted_builtin(stack, load.script, found),
            false => {
                let Requirer {
                    script,
                    by_loader,
                    by_import,
                    ..
                } = self.requirer(stack);
                let requirer = script.filter(|&script| script != load.script);
                Wanted {
                    requirer: requirer.map(|script| found.module(unit, script, modules)),
                    by_loader,
                    by_import,
                }
            }
        }
    }

    /// The innermost function that is not a loader's, if its module is known.
    fn wanted_builtin(&mut self, stack: StackId, loaded: ScriptId, found: &Discovered) -> Wanted {
        let mut wanted = Wanted {
            requirer: None,
            by_loader: true,
            by_import: false,
        };
        for (name, _) in javascript(self.recording, stack) {
            let Some(script) = self.scripts.named(self.recording, name) else {
                continue;
            };
            match self.scripts.get(script).class {
                ScriptClass::Builtin(class)
                    if class.is_loader() || class == BuiltinClass::BuiltinLoader =>
                {
                    wanted.by_import |= class.is_es_loader();
                }
                // It may have come with the snapshot: then whoever called it.
                _ if script != loaded => {
                    wanted.requirer = found.modules.get(&script).copied();
                    if wanted.requirer.is_some() {
                        break;
                    }
                }
                _ => {}
            }
        }
        wanted
    }

    /// The script whose function wanted a module, and whether a loader was between them.
    ///
    /// The innermost function of the program is the requirer, unless it is a hook: a function that a loader calls and
    /// that calls on the loader itself (`pirates`, `require-in-the-middle`, `v8-compile-cache`), instead of the
    /// `require` that its own module got.
    fn requirer(&mut self, stack: StackId) -> Requirer {
        let (mut by_loader, mut by_import) = (false, false);
        let mut callee = None;
        // Innermost script of the functions of the program that call each other, and what it called.
        let mut run: Option<(ScriptId, Option<BuiltinClass>)> = None;
        for (name, top_level) in javascript(self.recording, stack) {
            let Some(script) = self.scripts.named(self.recording, name) else {
                continue;
            };
            match self.scripts.get(script).class {
                ScriptClass::User => {
                    run.get_or_insert((script, callee));
                    if top_level {
                        break;
                    }
                }
                ScriptClass::Builtin(class) => {
                    match run {
                        Some((_, called))
                            if class.is_loader()
                                && called != Some(BuiltinClass::RequireFunction) =>
                        {
                            run = None;
                        }
                        Some(_) => break,
                        None => {}
                    }
                    by_loader |= class.is_loader();
                    by_import |= class.is_es_loader();
                    callee = Some(class);
                }
            }
        }
        Requirer {
            script: run.map(|(script, _)| script),
            called: run.and_then(|(_, called)| called),
            by_loader,
            by_import,
        }
    }
}

/// Whether a function was compiled only to tell by its syntax whether a file or `node -e` is CommonJS: of all functions,
/// the loaders and `vm` compile what is to run.
fn is_tried(compilation: &Compilation, contexts: &Contexts) -> bool {
    let context = compilation.stack.and_then(|stack| contexts.get(stack));
    compilation.unit == CompilationUnit::Function
        && context
            .and_then(|context| context.innermost)
            .is_some_and(|class| {
                !matches!(
                    class,
                    BuiltinClass::CommonJsLoader
                        | BuiltinClass::EsModuleLoader
                        | BuiltinClass::EsModuleTranslator
                        | BuiltinClass::Vm
                )
            })
}

/// Whose function wanted a module, by the stack.
struct Requirer {
    script: Option<ScriptId>,
    /// Node's own module that its function called for that.
    called: Option<BuiltinClass>,
    /// Through a loader.
    by_loader: bool,
    /// Through the loader of ES modules: what links them is not on the stack, which may be another's.
    by_import: bool,
}

/// The same, with its module.
struct Wanted {
    requirer: Option<ModuleId>,
    by_loader: bool,
    by_import: bool,
}

/// The files of the JavaScript frames of a stack from the innermost, and whether each is the body of its script.
fn javascript(
    recording: &Recording,
    stack: StackId,
) -> impl Iterator<Item = (NameId, bool)> + use<'_> {
    recording
        .frames_of(stack)
        .filter(|frame| frame.kind == FrameKind::JavaScript)
        .filter_map(|frame| Some((frame.file?, frame.top_level)))
}

/// The first known module that imports another.
fn importer(
    imports: &BTreeMap<ScriptId, Vec<(Nanoseconds, ScriptId)>>,
    load: &Load,
    found: &Discovered,
    modules: &[Module],
) -> Option<ModuleId> {
    let links = imports.get(&load.script)?;
    let known = links
        .iter()
        .filter(|(_, requirer)| *requirer != load.script)
        .filter_map(|(at, requirer)| Some((*at, *found.modules.get(requirer)?)));
    // Of several at once, the one that was there first.
    let first = known.min_by_key(|&(at, module)| (at, modules[module.0 as usize].start));
    first.map(|(_, module)| module)
}
