//! One pass over the events of a thread in order of time: whose each event is, and how the time between events is
//! divided among the modules.
//!
//! At each event it is known what the thread did: it ran a module's code, loaded a module for some call of `require`, or
//! did neither. Between two events that agree, nothing else is assumed. Where they differ, the change lay somewhere
//! between them: each gets half, and the half is noted as uncertain. Exceptions are known better: a CommonJS module runs
//! right after it was compiled, and JavaScript that C++ calls begins and ends with that call.
//!
//! What is loaded is not known when loading begins. The time and events of a call are kept until the file of a known
//! module is found, opened or compiled for it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::context::{BodyId, Context, Contexts, Inside, Key, Task};
use super::continuations::{Behind, Continuations};
use super::costs::Costs;
use super::discover::Discovered;
use super::events::{Point, SHORT_NS, Thread, What};
use super::script::{ScriptId, Scripts};
use super::{Bucket, Module, ModuleId, ModuleKind, Unattributed, of_program};
use crate::breakdown::count;
use crate::fast::Map;
use crate::recording::{
    CompilationUnit, CrossingKind, FileOperation, NameId, Nanoseconds, Process, Recording, StackId,
};

/// What a thread does at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// JavaScript that was called at this moment; what it is the next event tells, or the last one before its end.
    Next,
    /// Code of a module, or what it called.
    Module(ModuleId),
    /// Loading.
    Loading(Key),
    /// None of these.
    Outside(Bucket),
}

/// The steps of loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Read,
    Compile,
    Execute,
}

/// The loader of ES modules, called by no function of the program, makes a module of what it has read.
const TRANSLATION: Key = Key {
    call: None,
    task: Task::Translating,
};

/// A call of `require` under way, or a run of the loader of ES modules.
struct Call {
    key: Key,
    owner: Option<ModuleId>,
    /// First event of it.
    first: u64,
    /// Time and events since then, or since the last module was told.
    spent: u64,
    /// Whose that time was found to be: index into [`Doubts::portions`].
    portion: usize,
    costs: Costs,
    /// Of these costs: those that nobody was blamed for so far.
    owed: Costs,
    target: Option<(ModuleId, Stage)>,
}

/// Who has a part of the time between two events.
#[derive(Clone, Copy, Debug)]
enum Share {
    /// For what it did then.
    Module(ModuleId, Option<Stage>),
    /// Whoever this portion of a call is found to be for.
    Portion(usize),
    /// No module.
    Nobody,
}

/// Times between two events of which each had half.
#[derive(Default)]
struct Doubts {
    list: Vec<[(Share, u64); 2]>,
    /// Who has the time of each portion of a call, once that is known.
    portions: Vec<Option<(ModuleId, Option<Stage>)>>,
}

impl Doubts {
    fn new_portion(&mut self) -> usize {
        self.portions.push(None);
        self.portions.len() - 1
    }

    /// What is uncertain of each module. Where both halves have come to one module for the same, nothing is: who asks for modules that
    /// are there already runs before and after.
    fn settle(&self, mut of: impl FnMut(ModuleId, u64)) {
        let found = |share| match share {
            Share::Module(module, stage) => Some((module, stage)),
            Share::Portion(portion) => self.portions[portion],
            Share::Nobody => None,
        };
        for halves in &self.list {
            let [before, now] = halves.map(|(share, _)| found(share));
            if before == now {
                continue;
            }
            for (found, (_, amount)) in [before, now].into_iter().zip(halves) {
                if let Some((module, _)) = found {
                    of(module, *amount);
                }
            }
        }
    }
}

/// The modules of one file, in the order of loading.
struct Instances {
    all: Vec<ModuleId>,
    /// The first that was not compiled yet.
    next: usize,
}

/// When phases of a thread's environments begin.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    /// The node that was started, and those that it executed in its place (`process.execve`).
    pub(super) images: Vec<Image>,
    /// The process has ended: from here on the kernel only takes down what it had. Or it is another program's from here on.
    pub(super) exited: Option<u64>,
    /// It is the latter: when it has ended.
    pub(super) other_exited: Option<u64>,
}

/// What one exec began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Image {
    /// When; 0 for the first one.
    pub(super) from: u64,
    /// `node::Start`, or the environment of a worker.
    pub(super) start: Option<u64>,
    pub(super) bootstrap_complete: Option<u64>,
    pub(super) loop_exit: Option<u64>,
}

impl Phases {
    fn at(&self, at: u64) -> Image {
        let images = self.images.iter().rev();
        let mut begun = images.filter(|image| image.from <= at);
        begun.next().copied().unwrap_or_default()
    }
}

pub(super) struct Pass<'a> {
    recording: &'a Recording,
    contexts: &'a Contexts,
    scripts: &'a Scripts,
    unit: usize,
    found: &'a mut Discovered,
    modules: &'a mut Vec<Module>,
    outside: &'a mut Unattributed,
    phases: Phases,
    continuations: Continuations,
    /// Start of the process, until its main thread is first seen.
    begun: Option<u64>,
    /// When Node last was seen to deal with an exception that nobody caught.
    uncaught: Option<u64>,
    calls: Vec<Call>,
    /// Since when the loader of ES modules, called by no function of the program, is at one of its tasks without a break: such a
    /// [`Call`] does not end, but is for one module after the other.
    loader_since: [Option<u64>; Task::ALL.len()],
    doubts: Doubts,
    /// Compilations and loads of add-ons under way: all time is theirs.
    busy: Vec<(ModuleId, Stage)>,
    last: Option<(u64, State)>,
    /// A call, and a stack that it was found on: the next event is often on the same one.
    not_left: Cell<Option<(StackId, StackId)>>,
    /// Ends and kinds of the crossings that last.
    open: Vec<(u64, CrossingKind)>,
    /// Calls into JavaScript are among them.
    enters: bool,
    bodies: Bodies,
    /// Modules whose compilation was seen, or whose JSON was read.
    compiled: Map<ModuleId, ()>,
    /// Modules that are there: who asks for them from now on is not who imported them first.
    loaded: Map<ModuleId, ()>,
    files: Map<NameId, Instances>,
    /// By where a request was made: what it led to.
    followed: Map<StackId, Costs>,
}

/// The module bodies that ran at the last event.
#[derive(Default)]
struct Bodies {
    at: u64,
    now: Option<BodyId>,
    /// Compiled just now: begins to run although no event shows it yet.
    begun: Option<ModuleId>,
}

impl<'a> Pass<'a> {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        recording: &'a Recording,
        contexts: &'a Contexts,
        scripts: &'a Scripts,
        unit: usize,
        phases: Phases,
        continuations: Continuations,
        found: &'a mut Discovered,
        modules: &'a mut Vec<Module>,
        outside: &'a mut Unattributed,
    ) -> Pass<'a> {
        Pass {
            recording,
            contexts,
            scripts,
            unit,
            found,
            modules,
            outside,
            phases,
            continuations,
            begun: None,
            uncaught: None,
            calls: Vec::new(),
            loader_since: [None; Task::ALL.len()],
            doubts: Doubts::default(),
            busy: Vec::new(),
            last: None,
            not_left: Cell::new(None),
            open: Vec::new(),
            enters: false,
            bodies: Bodies::default(),
            compiled: Map::default(),
            loaded: Map::default(),
            files: Map::default(),
            followed: Map::default(),
        }
    }

    /// Takes all events of the thread. Gives what asynchronous requests led to, without a function of the program, by where they were made.
    pub(super) fn run(mut self, thread: &Thread) -> Map<StackId, Costs> {
        let process = self.recording.processes.get(thread.process.0 as usize);
        let main = process.filter(|_| thread.is_main(self.recording));
        self.begun = main.map(|process| process.forked.0);
        let execs: Vec<u64> = { self.phases.images.iter().skip(1) }
            .map(|image| image.from)
            .collect();
        let mut execs = execs.into_iter().peekable();
        for point in &thread.points {
            while let Some(at) = execs.next_if(|&at| at <= point.at) {
                self.take_exec(at);
            }
            match point.what {
                What::Crossing => self.crossing(point),
                What::CrossingEnd => self.crossing_end(point),
                What::Lookup => {
                    let lookup = &self.recording.lookups[point.index as usize];
                    let costs = Costs {
                        lookups: 1,
                        ..Costs::default()
                    };
                    self.event(point.at, lookup.stack, &costs);
                }
                What::File => self.file(point),
                What::FileEnd => self.file_end(point),
                What::Serialization => {
                    let event = &self.recording.serializations[point.index as usize];
                    self.event(point.at, event.stack, &event.into());
                }
                What::Compilation => self.compilation(point),
                What::CompilationEnd => self.compilation_end(point),
                What::Sample => {
                    let sample = &self.recording.samples[point.index as usize];
                    let context = sample.stack.and_then(|stack| self.contexts.get(stack));
                    let collects = context.is_some_and(|context| context.collects);
                    let costs = Costs::of_sample(sample, collects);
                    self.event(point.at, sample.stack, &costs);
                }
                What::Wait => self.wait(point),
                What::WaitEnd => {
                    let wait = &self.recording.waits[point.index as usize];
                    match self.alone(point.at, wait.stack) {
                        Some(state) => self.see(point.at, wait.stack, state),
                        None if self.in_javascript(point.at) => {}
                        None => {
                            self.seen(point.at, wait.stack);
                        }
                    }
                }
            }
        }
        if let Some(process) = main {
            self.take_end(process);
        }
        for call in std::mem::take(&mut self.calls) {
            self.retire(call);
        }
        let modules = &mut *self.modules;
        self.doubts.settle(|module, amount| {
            count(&mut modules[module.0 as usize].uncertain_ns, amount);
        });
        // They run until the end of the trace.
        let mut body = self.bodies.now;
        while let Some(id) = body {
            let of = self.contexts.body(id);
            if let Some(module) = self.found.modules.get(&of.script) {
                self.modules[module.0 as usize].see_running(self.bodies.at);
            }
            body = of.outer;
        }
        self.end_those_that_only_import();
        self.followed
    }

    /// The body of an ES module that does nothing but import others is never seen: it runs when the last of them has. Where there was an
    /// exception since that nobody caught, it may not have run.
    fn end_those_that_only_import(&mut self) {
        let imported = &self.found.imported;
        let mut ends: BTreeMap<ModuleId, Option<End>> = BTreeMap::new();
        for &module in imported.keys() {
            if is_unseen(&self.modules[module.0 as usize]) {
                end_by_imports(module, imported, self.modules, &mut ends);
            }
        }
        for (module, end) in ends {
            if let Some((earliest, Some(latest))) = end
                && self.uncaught.is_none_or(|at| at < earliest.0)
            {
                let module = &mut self.modules[module.0 as usize];
                module.end_earliest = Some(earliest);
                module.end_latest = Some(latest);
            }
        }
    }

    /// A thread that leaves the CPU is taken for where its innermost crossing was: that is where it is while it is in C++. While it is in
    /// JavaScript (another program has its turn, memory is brought in, the collector waits) that was long before; then nothing is learnt of
    /// where the thread is, and the wait is of whoever ran.
    fn wait(&mut self, point: &Point) {
        let wait = &self.recording.waits[point.index as usize];
        let costs = wait.into();
        if let Some(state) = self.alone(point.at, wait.stack) {
            self.see(point.at, wait.stack, state);
            self.give_costs(point.at, wait.stack, Some(state), &costs);
            return;
        }
        let before = self.last.map(|(_, state)| state);
        match before.filter(|_| self.in_javascript(point.at)) {
            Some(State::Module(module)) => {
                self.modules[module.0 as usize].own.add(&costs);
                self.cause(self.of_program(module), None, point.at, &costs);
            }
            Some(state) => self.give_costs(point.at, wait.stack, Some(state), &costs),
            None => {
                self.event(point.at, wait.stack, &costs);
            }
        }
    }

    /// Node executed a node in its place: all that ran is over, as far as is known only then.
    fn take_exec(&mut self, at: u64) {
        if let Some((last, state)) = self.last {
            self.spend_until(at, state);
            if self.busy.is_empty() {
                let share = self.share(state, last);
                self.doubt((share, at.saturating_sub(last)), (Share::Nobody, 0));
            }
            self.last = Some((at, State::Outside(Bucket::BeforeMain)));
        }
        for call in std::mem::take(&mut self.calls) {
            self.retire(call);
        }
        let Bodies { at: seen, now, .. } = std::mem::take(&mut self.bodies);
        let mut body = now;
        while let Some(id) = body {
            let of = self.contexts.body(id);
            if let Some(module) = self.found.modules.get(&of.script) {
                let module = &mut self.modules[module.0 as usize];
                module.see_running(seen);
                module.end_latest = Some(Nanoseconds(at));
            }
            body = of.outer;
        }
        self.busy.clear();
        self.open.clear();
        self.compiled.clear();
        self.loaded.clear();
        self.files.clear();
    }

    /// The last that a process does makes no events.
    fn take_end(&mut self, process: &Process) {
        let (Some((last, state)), Some(exited)) = (self.last, self.phases.exited) else {
            return;
        };
        // Without the end of the event loop: by `process.exit()`, or an error.
        let is_replaced = self.phases.other_exited.is_some();
        let by_itself = process.exit_status.is_some() && process.signal.is_none() && !is_replaced;
        match self
            .phases
            .at(exited)
            .loop_exit
            .or(by_itself.then_some(last))
        {
            Some(left) => {
                let spent = exited.saturating_sub(last.max(left));
                self.outside.time(Bucket::Teardown, spent);
            }
            // What a signal killed, or another program replaced, was still at what it did last, as far as is known.
            None => {
                self.spend_until(exited, state);
                let share = self.share(state, last);
                self.doubt((share, exited.saturating_sub(last)), (Share::Nobody, 0));
            }
        }
        if let Some(ended) = self.phases.other_exited {
            self.outside
                .time(Bucket::OtherPrograms, ended.saturating_sub(exited));
        }
    }

    /// The innermost crossing that lasts.
    fn lasting(&mut self, at: u64) -> Option<CrossingKind> {
        while self.open.pop_if(|(end, _)| *end < at).is_some() {}
        self.open.last().map(|&(_, kind)| kind)
    }

    /// Whether that is one into JavaScript.
    fn in_javascript(&mut self, at: u64) -> bool {
        self.lasting(at) == Some(CrossingKind::ToJs)
    }

    /// What a thread does that is off the CPU while no call into JavaScript or out of it lasts: C++ alone, whatever is missing of its stack.
    fn alone(&mut self, at: u64, stack: Option<StackId>) -> Option<State> {
        let context = stack.and_then(|stack| self.contexts.get(stack));
        let unknown = context.is_none_or(|context| context.truncated && !context.javascript);
        (self.enters && unknown && self.lasting(at).is_none())
            .then(|| State::Outside(self.bucket(Some(&Context::default()), at)))
    }

    fn crossing(&mut self, point: &Point) {
        let crossing = &self.recording.crossings[point.index as usize];
        let end = crossing
            .duration
            .map(|duration| point.at.saturating_add(duration.0));
        // A call into C++ that is not timed may have ended; others without an end go on until the process ends.
        let is_endless = crossing.unfinished || crossing.kind == CrossingKind::ToJs;
        if let Some(end) = end.or(is_endless.then_some(u64::MAX)) {
            while self.open.pop_if(|(end, _)| *end <= point.at).is_some() {}
            self.open.push((end, crossing.kind));
            self.enters |= crossing.kind == CrossingKind::ToJs;
        }
        let state = self.event(point.at, crossing.stack, &crossing.into());
        if let Some(&module) = self.found.made.get(&point.index)
            && state == Some(State::Loading(TRANSLATION))
        {
            self.tell(state, module, point.at, Some(Stage::Execute));
            self.loaded.insert(module, ());
            self.compiled.insert(module, ());
            // Its end is not noted.
            if crossing.duration.is_none_or(|time| time.0 < SHORT_NS) {
                self.end_call(state, module);
            }
        }
        if crossing.kind == CrossingKind::ToJs && crossing.duration.is_some() && state.is_some() {
            self.last = Some((point.at, State::Next));
        }
        if let Some(&module) = self.found.add_ons.get(&point.index)
            && crossing.duration.is_some_and(|time| time.0 >= SHORT_NS)
        {
            self.tell(state, module, point.at, None);
            self.busy.push((module, Stage::Execute));
        }
    }

    fn crossing_end(&mut self, point: &Point) {
        let crossing = &self.recording.crossings[point.index as usize];
        if crossing.kind == CrossingKind::ToJs {
            let Some(state) = self.state(crossing.stack, point.at) else {
                return;
            };
            match self.last {
                // Nothing was seen inside: it ran on behalf of whoever was called back for.
                Some((since, State::Next)) if self.busy.is_empty() => {
                    let spent = point.at.saturating_sub(since);
                    if let State::Outside(_) = state {
                        self.outside.time(Bucket::Unseen, spent);
                    } else {
                        self.give(state, spent, since);
                        let share = self.share(state, since);
                        self.doubt((share, spent), (Share::Nobody, 0));
                    }
                }
                // What ran inside ran until now.
                _ => self.spend_until(point.at, State::Next),
            }
            self.last = Some((point.at, state));
            self.see_loader(point.at, state);
            self.see_bodies(point.at, crossing.stack);
            self.close_calls(state, crossing.stack);
            return;
        }
        let state = self.seen(point.at, crossing.stack);
        if let Some(&module) = self.found.made.get(&point.index)
            && state == Some(State::Loading(TRANSLATION))
        {
            self.end_call(state, module);
        }
        if self.found.add_ons.contains_key(&point.index) {
            // An end that is noted is one of a call that is long enough.
            self.busy.pop();
        }
    }

    fn file(&mut self, point: &Point) {
        let access = &self.recording.files[point.index as usize];
        let costs = Costs::of_file(access, self.recording.name(access.path));
        let context = access.stack.and_then(|stack| self.contexts.get(stack));
        let target = self.module_of_file(access.path);
        let told = target.filter(|_| {
            access.result >= 0
                && !context.is_some_and(Context::reads_package)
                && matches!(
                    access.operation,
                    FileOperation::Stat | FileOperation::Open | FileOperation::Read
                )
        });
        let Some(module) = told else {
            self.event(point.at, access.stack, &costs);
            return;
        };
        let state = self.seen(point.at, access.stack);
        if context.is_some_and(|context| context.inside == Inside::Fetching || context.translating)
        {
            // Whatever else the loader does, this is done for that module.
            self.modules[module.0 as usize].loading.add(&costs);
            self.cause(None, Some(module), point.at, &costs);
            self.busy.push((module, Stage::Read));
            return;
        }
        // A stat is part of looking for the file: what is looked for is known when it ends.
        if access.operation != FileOperation::Stat
            && self.target(state) != Some((module, Stage::Read))
        {
            self.tell(state, module, point.at, Some(Stage::Read));
        }
        match state {
            Some(State::Loading(key)) => {
                self.modules[module.0 as usize].loading.add(&costs);
                let owner = self.owner(context);
                let owner = self.asker(context, owner, module);
                self.cause(
                    owner,
                    key.call.is_none().then_some(module),
                    point.at,
                    &costs,
                );
            }
            _ => self.give_costs(point.at, access.stack, state, &costs),
        }
    }

    fn file_end(&mut self, point: &Point) {
        let access = &self.recording.files[point.index as usize];
        let state = self.seen(point.at, access.stack);
        if self
            .busy
            .last()
            .is_some_and(|&(_, stage)| stage == Stage::Read)
        {
            self.busy.pop();
        }
        let Some(State::Loading(key)) = state else {
            return;
        };
        let context = access.stack.and_then(|stack| self.contexts.get(stack));
        if context.is_some_and(|context| context.reads_package() || context.translating) {
            return;
        }
        match access.operation {
            FileOperation::Stat if access.result >= 0 => {
                if let Some(module) = self.module_of_file(access.path) {
                    self.tell(state, module, point.at, None);
                }
            }
            // JSON is parsed after its file was read; nothing else tells of that.
            FileOperation::Close => {
                if let Some(module) = self.module_of_file(access.path)
                    && self.modules[module.0 as usize].kind == ModuleKind::Json
                {
                    self.loaded.insert(module, ());
                    // It is as good as compiled: the file is read once for each module of it (with queries).
                    self.compiled.insert(module, ());
                    if let Some(call) = self.calls.iter_mut().rev().find(|call| call.key == key)
                        && call.target == Some((module, Stage::Read))
                    {
                        call.target = Some((module, Stage::Execute));
                    }
                }
            }
            _ => {}
        }
    }

    fn compilation(&mut self, point: &Point) {
        let compilation = &self.recording.compilations[point.index as usize];
        let state = self.seen(point.at, compilation.stack);
        let Some(module) = self.module_compiled(compilation.path) else {
            return;
        };
        self.compiled.insert(module, ());
        self.tell(state, module, point.at, Some(Stage::Compile));
        if compilation.duration.is_some() {
            self.busy.push((module, Stage::Compile));
        } else {
            self.compiled_at_last(point.index, module);
            self.end_call(state, module);
        }
    }

    fn compiled_at_last(&mut self, compilation: u32, module: ModuleId) {
        if !self.found.tried.contains_key(&compilation) {
            self.loaded.insert(module, ());
        }
    }

    /// A module is loaded: what comes next is another's.
    fn end_call(&mut self, state: Option<State>, module: ModuleId) {
        self.calls.retain(|call| {
            let of_module = call.target.is_some_and(|(target, _)| target == module);
            !of_module && state != Some(State::Loading(call.key))
        });
    }

    fn compilation_end(&mut self, point: &Point) {
        let compilation = &self.recording.compilations[point.index as usize];
        let state = self.seen(point.at, compilation.stack);
        let Some(module) = self.module_compiled(compilation.path) else {
            return;
        };
        self.busy.pop();
        self.compiled_at_last(point.index, module);
        self.end_call(state, module);
        let runs_now = match self.modules[module.0 as usize].kind {
            ModuleKind::CommonJs => {
                compilation.unit != CompilationUnit::Module
                    && !self.found.tried.contains_key(&point.index)
            }
            ModuleKind::Builtin => true,
            _ => false,
        };
        if runs_now && state.is_some() {
            self.last = Some((point.at, State::Module(module)));
            self.bodies.begun = Some(module);
            let module = &mut self.modules[module.0 as usize];
            module.see_running(point.at);
        }
    }

    fn module_compiled(&self, path: NameId) -> Option<ModuleId> {
        let script = self.scripts.known(path)?;
        self.found.modules.get(&script).copied()
    }

    /// The module that a file is read for. Of several (an ES module with different queries), the next one that was not
    /// compiled yet.
    fn module_of_file(&mut self, path: NameId) -> Option<ModuleId> {
        let of_file = self.files.entry(path).or_insert_with(|| {
            let scripts = self.scripts.of_file(self.recording.name(path));
            let modules = scripts.iter();
            let mut all: Vec<ModuleId> = modules
                .filter_map(|script| self.found.modules.get(script).copied())
                .collect();
            all.sort();
            Instances { all, next: 0 }
        });
        // What was compiled stays so: with thousands of queries of one file nobody looks at the first ones again.
        let left = of_file.all.get(of_file.next..).unwrap_or_default();
        let compiled = { left.iter() }.take_while(|module| self.compiled.contains_key(module));
        of_file.next += compiled.count();
        { of_file.all.get(of_file.next) }
            .or(of_file.all.last())
            .copied()
    }

    /// The module of a script that was seen running here.
    fn module(&mut self, script: ScriptId) -> ModuleId {
        self.found.module(self.unit, script, self.modules)
    }

    fn owner(&mut self, context: Option<&Context>) -> Option<ModuleId> {
        Some(self.module(context?.owner?))
    }

    /// What the thread does where this stack was taken; `None` if that is not known.
    fn state(&mut self, stack: Option<StackId>, at: u64) -> Option<State> {
        let context = self.contexts.get(stack?)?;
        let outside = |pass: &Self| State::Outside(pass.bucket(Some(context), at));
        Some(match context.inside {
            // Which call it is cannot be told.
            Inside::Loading if context.truncated && context.call.is_none() => outside(self),
            Inside::Loading => State::Loading(self.known_key(context.key())),
            Inside::Fetching => outside(self),
            Inside::Builtin(script) => match self.found.modules.get(&script) {
                Some(&module) => State::Module(module),
                // It was there before the trace saw anything: whoever uses it.
                None => match self.owner_at(Some(context), at) {
                    Some(owner) => State::Module(owner),
                    None => outside(self),
                },
            },
            Inside::Own => match self.owner_at(Some(context), at) {
                Some(owner) => State::Module(owner),
                None => outside(self),
            },
        })
    }

    fn bucket(&self, context: Option<&Context>, at: u64) -> Bucket {
        let exited = self.phases.exited;
        let Image {
            from,
            start,
            bootstrap_complete,
            loop_exit,
        } = self.phases.at(at);
        let before = |instant: Option<u64>| instant.is_some_and(|instant| at < instant);
        let after = |instant: Option<u64>| instant.is_some_and(|instant| at >= instant);
        if from > 0 && start.is_none() {
            // Another program, which executed a node in its turn.
            Bucket::OtherPrograms
        } else if before(start) {
            Bucket::BeforeMain
        } else if before(bootstrap_complete) {
            Bucket::Bootstrap
        } else if after(loop_exit) || after(exited) {
            Bucket::Teardown
        } else {
            match context {
                None => Bucket::NoStack,
                Some(context) if context.truncated && context.owner.is_none() => Bucket::NoStack,
                Some(context) if context.uncaught => Bucket::UncaughtException,
                Some(context) if context.loader => Bucket::Loader,
                Some(context) if context.javascript => match self.continuations.at(at) {
                    Some(Behind::Loader) => Bucket::Loader,
                    _ => Bucket::Async,
                },
                Some(context) if context.collects => Bucket::Gc,
                Some(_) => Bucket::EventLoop,
            }
        }
    }

    /// The module on whose behalf something runs: its function is on the stack, or it made the request that led to it.
    fn owner_at(&mut self, context: Option<&Context>, at: u64) -> Option<ModuleId> {
        if let Some(owner) = self.owner(context) {
            return Some(owner);
        }
        match self.continuations.at(at)? {
            Behind::Script(script, _) if self.bucket(context, at) == Bucket::Async => {
                Some(self.module(script))
            }
            _ => None,
        }
    }

    /// Where the request was made on behalf of which something runs: no function of the program is on its stack.
    fn request(&self, context: Option<&Context>, at: u64) -> Option<StackId> {
        if context.is_some_and(|context| context.owner.is_some()) {
            return None;
        }
        match self.continuations.at(at)? {
            Behind::Script(_, stack) => Some(stack),
            Behind::Loader => None,
        }
    }

    /// Blames who made the request on behalf of which something runs, or whose function is on its stack.
    fn blame(&mut self, owner: ModuleId, request: Option<StackId>, costs: &Costs) {
        self.modules[owner.0 as usize].caused.add(costs);
        if let Some(stack) = request {
            self.followed.entry(stack).or_default().add(costs);
        }
    }

    /// Takes an event that costs something.
    fn event(&mut self, at: u64, stack: Option<StackId>, costs: &Costs) -> Option<State> {
        let state = self.seen(at, stack);
        self.give_costs(at, stack, state, costs);
        state
    }

    fn give_costs(&mut self, at: u64, stack: Option<StackId>, state: Option<State>, costs: &Costs) {
        let context = stack.and_then(|stack| self.contexts.get(stack));
        let owner = self.owner_at(context, at);
        let request = self.request(context, at);
        match state {
            Some(State::Loading(key)) => {
                let call = self.call(key, owner, at);
                match call.target {
                    Some((module, _)) => {
                        self.modules[module.0 as usize].loading.add(costs);
                        let owner = self.asker(context, owner, module);
                        self.cause(owner, key.call.is_none().then_some(module), at, costs);
                    }
                    None => {
                        call.costs.add(costs);
                        // Without an owner, or where it may be for another module's import: when it is known what was
                        // loaded.
                        if owner.is_none() || context.is_some_and(Context::may_be_for_another) {
                            call.owed.add(costs);
                        } else {
                            self.cause(owner, None, at, costs);
                        }
                    }
                }
            }
            Some(State::Module(module)) => {
                let of_module = &mut self.modules[module.0 as usize];
                match owner == Some(module) {
                    true => of_module.own.add(costs),
                    false => of_module.loading.add(costs),
                }
                // The body of one of Node's own modules, by promises: who imported it.
                match owner.or_else(|| self.of_program(module)) {
                    Some(by) => self.blame(by, request.filter(|_| owner.is_some()), costs),
                    None => {
                        let bucket = self.bucket(context, at);
                        self.outside.at(bucket).add(costs);
                    }
                }
            }
            Some(State::Outside(bucket)) => self.outside.at(bucket).add(costs),
            Some(State::Next) | None => match owner {
                Some(owner) => self.blame(owner, request, costs),
                None => {
                    let bucket = self.bucket(context, at);
                    self.outside.at(bucket).add(costs);
                }
            },
        }
    }

    /// The nearest module of the program that a module was required by.
    fn of_program(&self, module: ModuleId) -> Option<ModuleId> {
        of_program(self.modules, module)
    }

    /// Who asked for what was done to load a module: the module that imports it, if it was loaded along with what the
    /// owner asked for, else the owner.
    fn asker(
        &self,
        context: Option<&Context>,
        owner: Option<ModuleId>,
        loaded: ModuleId,
    ) -> Option<ModuleId> {
        match context.is_some_and(Context::may_be_for_another) && self.is_imported(loaded) {
            true => {
                let requirer = self.modules[loaded.0 as usize].requirer;
                requirer.and_then(|requirer| self.of_program(requirer))
            }
            false => owner,
        }
    }

    /// Whether what is done to load a module is for the module that imports it: until it is loaded.
    fn is_imported(&self, module: ModuleId) -> bool {
        self.found.linked.contains_key(&module) && !self.loaded.contains_key(&module)
    }

    /// Blames the owner of an event; without one, who imported the module that it loaded.
    fn cause(&mut self, owner: Option<ModuleId>, loaded: Option<ModuleId>, at: u64, costs: &Costs) {
        let importer = || {
            let requirer = self.modules[loaded?.0 as usize].requirer?;
            self.of_program(requirer)
        };
        match owner.or_else(importer) {
            Some(module) => self.modules[module.0 as usize].caused.add(costs),
            None => {
                let image = self.phases.at(at);
                let early = image.bootstrap_complete.is_some_and(|end| at < end);
                let bucket = match (loaded, early) {
                    (None, true) => Bucket::Bootstrap,
                    _ => Bucket::Loader,
                };
                self.outside.at(bucket).add(costs);
            }
        }
    }

    /// Notes what the thread does at an instant, and divides the time since the last one.
    fn seen(&mut self, at: u64, stack: Option<StackId>) -> Option<State> {
        let state = self.state(stack, at)?;
        self.see(at, stack, state);
        Some(state)
    }

    /// The same where it is known what it does.
    fn see(&mut self, at: u64, stack: Option<StackId>, state: State) {
        // The kernel may go on taking the process apart: its CPU time counts, but no time of a life that is over.
        let at = self.phases.exited.map_or(at, |exited| at.min(exited));
        // From the fork to the first event whose stack could be read.
        if let Some(begun) = self.begun.take()
            && self.phases.at(0).start.is_some_and(|start| at <= start)
        {
            self.outside
                .time(Bucket::BeforeMain, at.saturating_sub(begun));
        }
        self.spend_until(at, state);
        self.last = Some((at, state));
        self.see_loader(at, state);
        self.see_bodies(at, stack);
        self.close_calls(state, stack);
    }

    /// Notes whether the loader of ES modules goes on with what it did.
    fn see_loader(&mut self, at: u64, state: State) {
        // What it needs of Node's own for the first time is loaded meanwhile.
        if let State::Module(module) = state
            && self.modules[module.0 as usize].kind == ModuleKind::Builtin
        {
            return;
        }
        for (since, task) in self.loader_since.iter_mut().zip(Task::ALL) {
            let key = Key { call: None, task };
            *since = (state == State::Loading(key)).then(|| since.unwrap_or(at));
        }
    }

    /// The time since the last event.
    fn spend_until(&mut self, at: u64, now: State) {
        let Some((since, before)) = self.last else {
            return;
        };
        let spent = at.saturating_sub(since);
        if spent == 0 {
            return;
        }
        if let Some(&(module, stage)) = self.busy.last() {
            self.modules[module.0 as usize].spend(Some(stage), spent);
            return;
        }
        match (before, now) {
            (State::Next, State::Next) => {
                self.outside.time(Bucket::Unseen, spent);
            }
            (State::Next, known) | (known, State::Next) => self.give(known, spent, since),
            _ if before == now => self.give(now, spent, since),
            _ => {
                let half = spent / 2;
                self.give(before, half, since);
                self.give(now, spent - half, at - (spent - half));
                let shares = [self.share(before, since), self.share(now, at)];
                self.doubt((shares[0], half), (shares[1], spent - half));
            }
        }
    }

    fn give(&mut self, state: State, spent: u64, since: u64) {
        match state {
            State::Module(module) => {
                let in_body = self.bodies.now.map(|body| self.contexts.body(body));
                let module = &mut self.modules[module.0 as usize];
                module.spend(Some(Stage::Execute), spent);
                if self.bodies.begun.is_none() && !in_body.is_some_and(|body| body.program) {
                    count(&mut module.callback_ns, spent);
                }
            }
            State::Loading(key) => {
                let context = key.call.and_then(|stack| self.contexts.get(stack));
                let owner = self.owner(context);
                let call = self.call(key, owner, since);
                match call.target {
                    Some((module, stage)) => {
                        self.modules[module.0 as usize].spend(Some(stage), spent);
                    }
                    None => count(&mut call.spent, spent),
                }
            }
            State::Outside(bucket) => self.outside.time(bucket, spent),
            State::Next => self.outside.time(Bucket::Unseen, spent),
        }
    }

    /// Who has the time that was given to a state.
    fn share(&mut self, state: State, at: u64) -> Share {
        match state {
            State::Module(module) => Share::Module(module, Some(Stage::Execute)),
            State::Loading(key) => {
                let context = key.call.and_then(|stack| self.contexts.get(stack));
                let owner = self.owner(context);
                let call = self.call(key, owner, at);
                match call.target {
                    Some((module, stage)) => Share::Module(module, Some(stage)),
                    None => Share::Portion(call.portion),
                }
            }
            State::Outside(_) | State::Next => Share::Nobody,
        }
    }

    fn doubt(&mut self, before: (Share, u64), now: (Share, u64)) {
        self.doubts.list.push([before, now]);
    }

    fn target(&self, state: Option<State>) -> Option<(ModuleId, Stage)> {
        let Some(State::Loading(key)) = state else {
            return None;
        };
        let call = self.calls.iter().rev().find(|call| call.key == key)?;
        call.target
    }

    /// The key of the call under way that this is: while it lasts, the frames around it may come to be known less well, or better.
    fn known_key(&self, key: Key) -> Key {
        let mut keys = self.calls.iter().rev().map(|call| call.key);
        if keys.clone().any(|known| known == key) {
            return key;
        }
        let owner = |key: &Key| self.contexts.get(key.call?)?.owner;
        let own = owner(&key);
        keys.find(|known| owner(known) == own && known.is_same_call(&key, self.recording))
            .unwrap_or(key)
    }

    fn call(&mut self, key: Key, owner: Option<ModuleId>, at: u64) -> &mut Call {
        let known = self.calls.iter().rposition(|call| call.key == key);
        let index = known.unwrap_or_else(|| {
            self.calls.push(Call {
                key,
                owner,
                first: at,
                spent: 0,
                portion: self.doubts.new_portion(),
                costs: Costs::default(),
                owed: Costs::default(),
                target: None,
            });
            self.calls.len() - 1
        });
        &mut self.calls[index]
    }

    /// What a call loads is known: this module. `stage` is what it does from now on, `None` if it still looks for files.
    fn tell(&mut self, state: Option<State>, module: ModuleId, at: u64, stage: Option<Stage>) {
        let Some(State::Loading(key)) = state else {
            return;
        };
        let context = key.call.and_then(|stack| self.contexts.get(stack));
        let owner = self.owner(context);
        let portion = self.doubts.new_portion();
        let call = self.call(key, owner, at);
        let (mut first, spent) = (call.first, std::mem::take(&mut call.spent));
        let told = std::mem::replace(&mut call.portion, portion);
        let costs = std::mem::take(&mut call.costs);
        let owed = std::mem::take(&mut call.owed);
        call.target = stage.map(|stage| (module, stage));
        call.first = at;
        // What was made of the file that was read, before it was compiled or its JSON there.
        let step = match (key == TRANSLATION, stage) {
            (true, Some(Stage::Compile)) => Some(Stage::Read),
            (true, stage) => stage,
            _ => None,
        };
        self.doubts.portions[told] = Some((module, step));
        if key.call.is_none()
            && let Some(since) = &mut self.loader_since[key.task as usize]
        {
            let since = std::mem::replace(since, at);
            // What it did before something else was for another module. For a main script in CommonJS it all was.
            let of_module = &self.modules[module.0 as usize];
            if of_module.requirer.is_some() || of_module.kind == ModuleKind::EsModule {
                first = since;
            }
        }
        let of_module = &mut self.modules[module.0 as usize];
        of_module.spend(step, spent);
        of_module.loading.add(&costs);
        let start = of_module.start.get_or_insert(Nanoseconds(first));
        start.0 = start.0.min(first);
        let owner = owner.filter(|_| !self.is_imported(module));
        self.cause(owner, Some(module), at, &owed);
    }

    /// The loader of ES modules makes a module of what it has read without a break: where it does something else, whatever it made is not
    /// known.
    fn end_translation(&mut self, state: State) {
        let goes_on = match state {
            State::Next => true,
            State::Loading(key) => key.call.is_none() && key.task != Task::Finding,
            State::Module(module) => self.modules[module.0 as usize].kind == ModuleKind::Builtin,
            State::Outside(_) => false,
        };
        if !goes_on && let Some(call) = self.calls.iter().rposition(|call| call.key == TRANSLATION)
        {
            let call = self.calls.remove(call);
            self.retire(call);
        }
    }

    /// A module's own code runs again: what it called for has ended. And so has what others called for, where nothing of that is on the stack any more.
    fn close_calls(&mut self, state: State, stack: Option<StackId>) {
        self.end_translation(state);
        let State::Module(module) = state else {
            return;
        };
        let Some((stack, context)) =
            stack.and_then(|stack| Some((stack, self.contexts.get(stack)?)))
        else {
            return;
        };
        let (is_program, is_own) = (context.is_program(), context.is_own());
        while self.calls.last().is_some_and(|call| {
            (is_program && call.owner == Some(module)) || (is_own && self.is_left(call, stack))
        }) {
            if let Some(call) = self.calls.pop() {
                self.retire(call);
            }
        }
    }

    /// Whether a call that loads something has ended, by the stack of what the program does at a later instant.
    fn is_left(&self, call: &Call, stack: StackId) -> bool {
        let key = call.key;
        let Some(call) = key.call else {
            return false;
        };
        let is_whole = |stack| self.contexts.get(stack).is_some_and(|c| !c.truncated);
        if self.not_left.get() == Some((call, stack)) || !is_whole(call) || !is_whole(stack) {
            return false;
        }
        let caller = |at: &StackId| self.recording.stacks.get(at.0 as usize)?.caller;
        let mut frames = std::iter::successors(Some(stack), caller);
        let is_there = frames.any(|at| {
            let at = Key {
                call: Some(at),
                task: key.task,
            };
            at == key || at.is_same_call(&key, self.recording)
        });
        self.not_left.set(is_there.then_some((call, stack)));
        !is_there
    }

    /// A call that loaded nothing more: the module was there already, or was not found.
    fn retire(&mut self, call: Call) {
        match call.owner {
            Some(owner) => {
                self.doubts.portions[call.portion] = Some((owner, Some(Stage::Execute)));
                let owner = &mut self.modules[owner.0 as usize];
                owner.spend(Some(Stage::Execute), call.spent);
                count(&mut owner.vain_ns, call.spent);
                owner.caused.add(&call.owed);
            }
            None => {
                let bucket = match self.phases.at(call.first).bootstrap_complete {
                    Some(end) if call.first < end => Bucket::Bootstrap,
                    _ => Bucket::Loader,
                };
                self.outside.time(bucket, call.spent);
                self.outside.at(bucket).add(&call.owed);
            }
        }
    }

    /// Which bodies run at an instant, and so which have ended since the last one.
    fn see_bodies(&mut self, at: u64, stack: Option<StackId>) {
        let Some(context) = stack.and_then(|stack| self.contexts.get(stack)) else {
            return;
        };
        if context.uncaught {
            self.uncaught = Some(at);
        }
        // The outer ones are not known: what is not there may run nevertheless.
        if context.truncated {
            return;
        }
        let (before, now) = (self.bodies.now, context.body);
        if let Some(module) = self.bodies.begun.take() {
            let script = self.modules[module.0 as usize].script;
            if !self.runs(now, script) {
                let module = &mut self.modules[module.0 as usize];
                module.end_latest = Some(Nanoseconds(at));
            }
        }
        if before != now {
            let (mut a, mut b) = (before, now);
            let last = self.bodies.at;
            // Up to the bodies that both share.
            while a != b {
                let depth = |body: Option<BodyId>| body.map(|body| self.contexts.body(body).depth);
                if depth(a) >= depth(b)
                    && let Some(ended) = a
                {
                    let body = self.contexts.body(ended);
                    a = body.outer;
                    if let Some(module) = self.found.modules.get(&body.script) {
                        let module = &mut self.modules[module.0 as usize];
                        module.see_running(last);
                        module.end_latest = Some(Nanoseconds(at));
                    }
                } else if let Some(begun) = b {
                    let body = self.contexts.body(begun);
                    b = body.outer;
                    if let Some(module) = self.found.modules.get(&body.script) {
                        self.modules[module.0 as usize].see_running(at);
                    }
                }
            }
            self.bodies.now = now;
        }
        self.bodies.at = at;
        if let Some(body) = now {
            // The others are noted when they end.
            let script = self.contexts.body(body).script;
            if let Some(module) = self.found.modules.get(&script) {
                self.modules[module.0 as usize].see_running(at);
            }
        }
    }

    fn runs(&self, mut body: Option<BodyId>, script: ScriptId) -> bool {
        while let Some(id) = body {
            let of = self.contexts.body(id);
            if of.script == script {
                return true;
            }
            body = of.outer;
        }
        false
    }
}

/// The last that was seen of a body, and the first instant without it: `None` if it runs until the end.
type End = (Nanoseconds, Option<Nanoseconds>);

/// Whether it is an ES module of whose body nothing was seen.
fn is_unseen(module: &Module) -> bool {
    module.kind == ModuleKind::EsModule && module.execute_start.is_none()
}

/// Adds when what a module imports has ended, through those that are not seen themselves; `None` where nothing of it was seen. The ways are too
/// long for recursion in some programs, and may lead in circles.
fn end_by_imports(
    module: ModuleId,
    imported: &BTreeMap<ModuleId, Vec<ModuleId>>,
    modules: &[Module],
    ends: &mut BTreeMap<ModuleId, Option<End>>,
) {
    let of = |module: ModuleId| imported.get(&module).map_or(&[][..], Vec::as_slice);
    let mut open = vec![(module, false)];
    while let Some((module, imports_are_known)) = open.pop() {
        if !imports_are_known {
            if let Entry::Vacant(entry) = ends.entry(module) {
                entry.insert(None);
                open.push((module, true));
                let unseen = of(module).iter().copied();
                let unseen = unseen.filter(|import| {
                    is_unseen(&modules[import.0 as usize]) && !ends.contains_key(import)
                });
                open.extend(unseen.map(|import| (import, false)));
            }
            continue;
        }
        let end = of(module).iter().filter_map(|import| {
            let of_import = &modules[import.0 as usize];
            let seen = of_import.end_earliest.map(|at| (at, of_import.end_latest));
            seen.or_else(|| *ends.get(import)?)
        });
        let end = end.reduce(|a, b| (a.0.max(b.0), a.1.zip(b.1).map(|(a, b)| a.max(b))));
        ends.insert(module, end);
    }
}

impl Module {
    /// `None`: looking for its file.
    fn spend(&mut self, stage: Option<Stage>, spent: u64) {
        let time = match stage {
            None => &mut self.resolve_ns,
            Some(Stage::Read) => &mut self.read_ns,
            Some(Stage::Compile) => &mut self.compile_ns,
            Some(Stage::Execute) => &mut self.execute_ns,
        };
        count(time, spent);
    }

    fn see_running(&mut self, at: u64) {
        self.execute_start.get_or_insert(Nanoseconds(at));
        let last = self.end_earliest.get_or_insert(Nanoseconds(at));
        last.0 = last.0.max(at);
        // It had stopped (`await`) and goes on.
        if self.end_latest.is_some_and(|end| end.0 < at) {
            self.end_latest = None;
        }
    }
}
