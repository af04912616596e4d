//! A program that is not run but told, step by step, with what each step costs whom.
//!
//! Every step writes the events that a trace of it would have, with their stacks, and enters the same cost into a ledger
//! that knows nothing of stacks. What is derived from the events can so be compared with what was done.

use std::collections::{BTreeMap, HashMap};

use crate::modules::Costs;
use crate::recording::{
    Binary, BinaryId, Callback, CallbackId, Compilation, CompilationUnit, Crossing, CrossingKind,
    Exec, FamilyState, FileAccess, FileOperation, Frame, FrameId, FrameKind, Import, Lookup,
    Milestone, NameId, Nanoseconds, Package, Process, ProcessId, Recording, Run, RunId, Sample,
    Serialization, Stack, StackId, ThreadId, Tier, Wait, WaitReason,
};
use crate::v8::is_garbage_collection;

/// What one module cost, as it was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// As requirer.
    pub caused: Costs,
    /// As loaded.
    pub loading: Costs,
    /// Time to find its file, ns.
    pub resolve_ns: u64,
    /// To read it.
    pub read_ns: u64,
    /// To compile it.
    pub compile_ns: u64,
    /// In its own code.
    pub execute_ns: u64,
}

/// The steps of loading that time is told for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Resolve,
    Read,
    Compile,
    Execute,
}

/// Who pays for what happens now.
#[derive(Clone, Debug, Default)]
struct Payer {
    requirer: Option<String>,
    loaded: Option<(String, Option<Step>)>,
}

/// A program under way.
pub struct Program {
    /// What a trace of it holds so far.
    pub recording: Recording,
    /// Each module's costs by its path.
    pub ledger: BTreeMap<String, Told>,
    /// Requirers by path.
    pub requirers: BTreeMap<String, Option<String>>,
    process: ProcessId,
    thread: ThreadId,
    now: u64,
    stack: Option<StackId>,
    /// The garbage collector is on it.
    collects: bool,
    /// Of the innermost crossing.
    crossing_stack: Option<StackId>,
    payers: Vec<Payer>,
    /// Instant of the next CPU sample.
    tick: Option<u64>,
    /// The package.json that the loader looks at for each module; whether it was read.
    package_json: Option<(String, bool)>,
    frames: HashMap<Frame, FrameId>,
    stacks: HashMap<Stack, StackId>,
    names: HashMap<Vec<u8>, NameId>,
    callbacks: HashMap<Callback, CallbackId>,
}

/// The exec of the program; instants count from here.
pub const START: u64 = 1_000_000_000_000;
/// Time between two CPU samples.
pub const TICK: u64 = 1_000_000;
/// Time between two events of one step: what no event tells.
const GAP: u64 = 100;
/// Process id of the program.
pub const PID: u32 = 500;

/// Paths of Node's own modules, as version 20 has them.
const LOADER: &str = "node:internal/modules/cjs/loader";
const HELPERS: &str = "node:internal/modules/helpers";
const ESM_LOADER: &str = "node:internal/modules/esm/loader";
const ESM_UTILS: &str = "node:internal/modules/esm/utils";
const TRANSLATORS: &str = "node:internal/modules/esm/translators";
const ESM_RESOLVE: &str = "node:internal/modules/esm/resolve";
const PACKAGE_READER: &str = "node:internal/modules/package_json_reader";
const REALM: &str = "node:internal/bootstrap/realm";

impl Program {
    /// Node 20 with `main`, bootstrapped; samples if `sampled`.
    pub fn new(main: &str, sampled: bool) -> Program {
        let mut program = Program {
            recording: Recording::default(),
            ledger: BTreeMap::new(),
            requirers: BTreeMap::new(),
            process: ProcessId(0),
            thread: ThreadId(PID),
            now: START + 20_000_000,
            stack: None,
            collects: false,
            crossing_stack: None,
            payers: vec![Payer::default()],
            tick: sampled.then_some(START),
            package_json: None,
            frames: HashMap::new(),
            stacks: HashMap::new(),
            names: HashMap::new(),
            callbacks: HashMap::new(),
        };
        let recording = &mut program.recording;
        recording.runs.push(Run {
            command: vec![b"node".to_vec(), main.into()],
            directory: b"/app".to_vec(),
            started: Nanoseconds(START),
            ended_by: "exit".into(),
            mode: "full".into(),
            exit_status: Some(0),
            sample_hz: sampled.then_some(1_000),
            ..Run::default()
        });
        recording.binaries.push(Binary {
            path: b"/usr/bin/node".to_vec(),
            node_version: Some("v20.20.2".into()),
            arch: "x86_64".into(),
            ..Binary::default()
        });
        recording.processes.push(Process {
            pid: PID,
            forked: Nanoseconds(START),
            execs: vec![Exec {
                at: Nanoseconds(START),
                path: b"/usr/bin/node".to_vec(),
                arguments: vec![b"node".to_vec(), main.into()],
            }],
            exit_status: Some(0),
            node: Some(BinaryId(0)),
            ..Process::default()
        });
        for name in ["crossings", "files", "compile"] {
            recording.families.push(FamilyState {
                run: RunId(0),
                name: name.into(),
                state: "on".into(),
                reason: None,
            });
        }
        for (name, after) in [
            ("node_start", 3_000_000),
            ("v8_start", 5_000_000),
            ("environment", 14_000_000),
            ("bootstrap_complete", 20_000_000),
        ] {
            program.milestone(name, START + after);
        }
        program
    }

    /// The recording, ended.
    pub fn end(mut self) -> (Recording, BTreeMap<String, Told>) {
        self.milestone("loop_exit", self.now);
        let ended = Nanoseconds(self.now + 1_000_000);
        self.recording.runs[0].ended = ended;
        self.recording.processes[0].exited = Some(ended);
        (self.recording, self.ledger)
    }

    fn milestone(&mut self, name: &str, at: u64) {
        self.recording.milestones.push(Milestone {
            process: self.process,
            thread: self.thread,
            name: name.into(),
            at: Nanoseconds(at),
        });
    }

    /// Node executes itself in its place: `linking` until the new one's `node::Start`, and `bootstrap` from there on.
    pub fn execute_node(&mut self, linking: u64, bootstrap: u64) {
        self.recording.processes[0].execs.push(Exec {
            at: Nanoseconds(self.now),
            path: b"/usr/bin/node".to_vec(),
            arguments: vec![b"node".to_vec()],
        });
        self.native("_dl_start", |program| {
            program.file(FileOperation::Open, "/lib/libc.so.6", 3, 5_000);
            program.busy(linking.saturating_sub(5_000));
        });
        self.milestone("node_start", self.now);
        self.native("node::Start", |program| {
            program.file(FileOperation::Open, "/etc/ssl/openssl.cnf", 3, 5_000);
            program.busy(bootstrap.saturating_sub(5_000));
        });
        self.milestone("bootstrap_complete", self.now);
    }

    /// Does what follows on another thread, from now on.
    pub fn on_thread<T>(&mut self, thread: u32, steps: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.thread, ThreadId(thread));
        let stack = self.stack.take();
        let done = steps(self);
        self.thread = before;
        self.stack = stack;
        done
    }

    /// The present instant.
    pub fn now(&self) -> u64 {
        self.now
    }

    fn name(&mut self, text: impl AsRef<[u8]>) -> NameId {
        let text = text.as_ref();
        if let Some(&id) = self.names.get(text) {
            return id;
        }
        let id = NameId(self.recording.names.len() as u32);
        self.recording.names.push(text.to_vec());
        self.names.insert(text.to_vec(), id);
        id
    }

    fn callback(&mut self, binding: &str, function: &str) -> CallbackId {
        let callback = Callback {
            binding: binding.into(),
            function: function.into(),
        };
        let callbacks = &mut self.recording.callbacks;
        *self.callbacks.entry(callback).or_insert_with_key(|key| {
            callbacks.push(key.clone());
            CallbackId((callbacks.len() - 1) as u32)
        })
    }

    fn push(&mut self, frame: Frame) {
        let frames = &mut self.recording.frames;
        let id = *self.frames.entry(frame).or_insert_with(|| {
            frames.push(frame);
            FrameId((frames.len() - 1) as u32)
        });
        let stack = Stack {
            caller: self.stack,
            frame: id,
            truncated: false,
        };
        let stacks = &mut self.recording.stacks;
        let id = *self.stacks.entry(stack).or_insert_with(|| {
            stacks.push(stack);
            StackId((stacks.len() - 1) as u32)
        });
        self.stack = Some(id);
    }

    /// Does what follows inside a JavaScript function.
    pub fn inside<T>(
        &mut self,
        function: &str,
        file: &str,
        line: u32,
        top_level: bool,
        steps: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let outer = self.stack;
        let frame = Frame {
            kind: FrameKind::JavaScript,
            function: self.name(function),
            file: (!file.is_empty()).then(|| self.name(file)),
            line: Some(line),
            column: Some(1),
            function_line: None,
            function_column: None,
            original: None,
            tier: Some(Tier::Interpreted),
            top_level,
            inlined: false,
            inlining_possible: false,
        };
        self.push(frame);
        let done = steps(self);
        self.stack = outer;
        done
    }

    /// Does what follows inside a C++ function of node.
    pub fn native<T>(&mut self, function: &str, steps: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.stack;
        let name = self.name(function);
        let file = self.name("/usr/bin/node");
        self.push(Frame::new(FrameKind::Native, name, Some(file)));
        let collected = self.collects;
        self.collects |= is_garbage_collection(function);
        let done = steps(self);
        self.collects = collected;
        self.stack = outer;
        done
    }

    /// Does what follows in a function of a module.
    pub fn function<T>(
        &mut self,
        function: &str,
        path: &str,
        line: u32,
        steps: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.payers.push(Payer {
            requirer: Some(path.into()),
            loaded: None,
        });
        let done = self.inside(function, path, line, false, steps);
        self.payers.pop();
        done
    }

    fn payer(&mut self) -> &mut Payer {
        let last = self.payers.len() - 1;
        &mut self.payers[last]
    }

    fn pay(&mut self, costs: &Costs) {
        let Payer { requirer, loaded } = self.payer().clone();
        if let Some(requirer) = requirer {
            self.ledger.entry(requirer).or_default().caused.add(costs);
        }
        if let Some((loaded, _)) = loaded {
            self.ledger.entry(loaded).or_default().loading.add(costs);
        }
    }

    /// Lets time pass.
    pub fn busy(&mut self, spent: u64) {
        let Payer { requirer, loaded } = self.payer().clone();
        let (who, step) = match (loaded, requirer) {
            (Some((loaded, step)), _) => (loaded, step.unwrap_or(Step::Resolve)),
            (None, Some(requirer)) => (requirer, Step::Execute),
            (None, None) => (String::new(), Step::Execute),
        };
        if !who.is_empty() {
            let told = self.ledger.entry(who).or_default();
            *match step {
                Step::Resolve => &mut told.resolve_ns,
                Step::Read => &mut told.read_ns,
                Step::Compile => &mut told.compile_ns,
                Step::Execute => &mut told.execute_ns,
            } += spent;
        }
        self.now += spent;
        while let Some(tick) = self.tick.filter(|&tick| tick < self.now) {
            if tick >= self.now - spent {
                let sample = Sample {
                    process: self.process,
                    thread: self.thread,
                    at: Nanoseconds(tick),
                    weight: Nanoseconds(TICK),
                    stack: self.stack,
                };
                self.recording.samples.push(sample);
                self.pay(&Costs::of_sample(&sample, self.collects));
            }
            self.tick = Some(tick + TICK);
        }
    }

    /// Another program has the CPU for a while; what is known of where this one was is its innermost crossing.
    pub fn preempted(&mut self, spent: u64) {
        let start = Nanoseconds(self.now);
        let ticks = self.tick.take();
        self.busy(spent);
        self.tick = ticks;
        let wait = Wait {
            process: self.process,
            thread: self.thread,
            start,
            duration: Nanoseconds(spent),
            runnable: Nanoseconds(spent),
            reason: WaitReason::Preempted,
            syscall: None,
            stack: self.crossing_stack,
        };
        self.recording.waits.push(wait);
        self.pay(&Costs::from(&wait));
    }

    /// A crossing of a duration.
    pub fn cross(&mut self, binding: &str, function: &str, spent: u64) {
        self.cross_into(binding, function, |program| program.busy(spent));
    }

    /// A crossing, and what happens inside.
    pub fn cross_into(&mut self, binding: &str, function: &str, steps: impl FnOnce(&mut Self)) {
        self.busy(GAP);
        let start = self.now;
        let stack = self.stack;
        let outer = std::mem::replace(&mut self.crossing_stack, stack);
        steps(self);
        self.crossing_stack = outer;
        let spent = Nanoseconds(self.now - start);
        let crossing = Crossing {
            process: self.process,
            thread: self.thread,
            start: Nanoseconds(start),
            duration: Some(spent),
            self_time: Some(spent),
            callback: self.callback(binding, function),
            kind: CrossingKind::Slow,
            parent: None,
            unfinished: false,
            stack,
        };
        self.recording.crossings.push(crossing);
        self.pay(&Costs::from(&crossing));
        self.busy(GAP);
    }

    /// C++ calls JavaScript.
    pub fn call_javascript(&mut self, steps: impl FnOnce(&mut Self)) {
        let start = self.now;
        let stack = self.stack;
        let outer = std::mem::replace(&mut self.crossing_stack, stack);
        steps(self);
        self.crossing_stack = outer;
        let spent = Nanoseconds(self.now - start);
        let callback = self.callback("(javascript)", "Execution::Invoke");
        self.recording.crossings.push(Crossing {
            process: self.process,
            thread: self.thread,
            start: Nanoseconds(start),
            duration: Some(spent),
            self_time: Some(spent),
            callback,
            kind: CrossingKind::ToJs,
            parent: None,
            unfinished: false,
            stack,
        });
    }

    /// A system call on a file.
    pub fn file(&mut self, operation: FileOperation, path: &str, result: i64, spent: u64) {
        self.busy(GAP);
        let start = self.now;
        self.busy(spent);
        let access = FileAccess {
            process: self.process,
            thread: self.thread,
            start: Nanoseconds(start),
            duration: Nanoseconds(spent),
            operation,
            syscall: 0,
            path: self.name(path),
            result,
            stack: self.stack,
        };
        self.recording.files.push(access);
        self.pay(&Costs::of_file(&access, path.as_bytes()));
        self.busy(GAP);
    }

    /// Node asks for a package.json.
    pub fn lookup(&mut self, path: &str) {
        self.busy(GAP);
        let lookup = Lookup {
            process: self.process,
            thread: self.thread,
            at: Nanoseconds(self.now),
            path: self.name(path),
            stack: self.stack,
        };
        self.recording.lookups.push(lookup);
        self.pay(&Costs {
            lookups: 1,
            ..Costs::default()
        });
        self.busy(GAP);
    }

    /// C++ makes a string of some bytes.
    pub fn serialize(&mut self, bytes: u64, spent: u64) {
        self.busy(GAP);
        let start = self.now;
        self.busy(spent);
        let function = self.name("String::NewFromUtf8");
        let event = Serialization {
            process: self.process,
            thread: self.thread,
            start: Nanoseconds(start),
            duration: Some(Nanoseconds(spent)),
            self_time: Some(Nanoseconds(spent)),
            function,
            bytes: Some(bytes),
            callback: None,
            nested: false,
            stack: self.stack,
        };
        self.recording.serializations.push(event);
        self.pay(&Costs::from(&event));
        self.busy(GAP);
    }

    fn compile(&mut self, path: &str, unit: CompilationUnit, spent: u64) {
        let step = self.step(path, Step::Compile);
        let start = self.now;
        self.busy(spent);
        let compilation = Compilation {
            process: self.process,
            thread: self.thread,
            start: Nanoseconds(start),
            duration: Some(Nanoseconds(spent)),
            self_time: Some(Nanoseconds(spent)),
            path: self.name(path),
            unit,
            cached: false,
            stack: self.stack,
        };
        self.recording.compilations.push(compilation);
        self.payer().loaded = step;
    }

    /// From now on the payer pays for this step of a load; gives what it paid for.
    fn step(&mut self, path: &str, step: Step) -> Option<(String, Option<Step>)> {
        let path = path.strip_prefix("file://").unwrap_or(path).to_owned();
        self.payer().loaded.replace((path, Some(step)))
    }

    fn requirer(&mut self) -> Option<String> {
        self.payers.iter().rev().find_map(|p| p.requirer.clone())
    }

    /// The frames that `require` puts on the stack down to `Module._load`.
    fn in_loader<T>(&mut self, line: Option<u32>, steps: impl FnOnce(&mut Self) -> T) -> T {
        let load = |program: &mut Self| program.inside("Module._load", LOADER, 1091, false, steps);
        match line {
            None => self.inside(
                "executeUserEntryPoint",
                "node:internal/modules/run_main",
                164,
                false,
                load,
            ),
            Some(_) => self.inside("require", HELPERS, 182, false, |program| {
                program.inside("Module.require", LOADER, 1289, false, load)
            }),
        }
    }

    /// `require` from the function that runs, at a line of it; `None`: Node loads the main script.
    ///
    /// `asked` are paths that are looked for in vain before.
    pub fn require(
        &mut self,
        path: &str,
        asked: &[&str],
        compile_ns: u64,
        body: impl FnOnce(&mut Self),
    ) {
        let requirer = self.requirer();
        self.requirers.insert(path.into(), requirer.clone());
        self.payers.push(Payer {
            requirer: requirer.clone(),
            loaded: Some((path.into(), Some(Step::Resolve))),
        });
        self.in_loader(requirer.is_some().then_some(1), |program| {
            program.inside("Module._resolveFilename", LOADER, 1048, false, |program| {
                for path in asked {
                    program.file(FileOperation::Stat, path, -2, 3_000);
                }
                program.file(FileOperation::Stat, path, 0, 4_000);
            });
            program.look_at_package_json();
            program.inside("Module.load", LOADER, 1266, false, |program| {
                program.inside("Module._extensions..js", LOADER, 1600, false, |program| {
                    program.read(path, 2_000);
                });
                program.inside("Module._extensions..js", LOADER, 1623, false, |program| {
                    program.inside("wrapSafe", LOADER, 1469, false, |program| {
                        program.compile(path, CompilationUnit::Function, compile_ns);
                    });
                    program.inside("Module._compile", LOADER, 1521, false, |program| {
                        program.body(path, body);
                    });
                });
            });
        });
        self.payers.pop();
    }

    /// From now on the loader looks at this package.json for each module that is required, as Node 22 does.
    pub fn look_at(&mut self, package_json: &str) {
        self.package_json = Some((package_json.to_owned(), false));
    }

    fn look_at_package_json(&mut self) {
        let Some((path, was_read)) = self.package_json.clone() else {
            return;
        };
        self.inside("findParentPackageJSON", PACKAGE_READER, 90, false, |p| {
            // 26 does that by what helps all loaders.
            p.inside("internalModuleStat", HELPERS, 40, false, |p| {
                p.file(FileOperation::Stat, &path, 0, 4_000);
            });
            p.busy(20_000);
        });
        if !was_read {
            self.package_json = Some((path.clone(), true));
            self.inside("read", PACKAGE_READER, 50, false, |p| {
                p.file(FileOperation::Open, &path, 17, 5_000);
                p.file(FileOperation::Read, &path, 300, 6_000);
                p.file(FileOperation::Close, &path, 0, 1_000);
                p.busy(20_000);
            });
        }
    }

    /// Reads a file as `fs.readFileSync` does.
    fn read(&mut self, path: &str, bytes: i64) {
        let before = self.payer().loaded.is_some();
        let step = match before {
            true => self.step(path, Step::Read),
            false => None,
        };
        self.inside("readFileSync", "node:fs", 450, false, |program| {
            program.file(FileOperation::Open, path, 17, 5_000);
            program.file(FileOperation::Read, path, bytes, 6_000);
            program.file(FileOperation::Close, path, 0, 1_000);
        });
        if before {
            self.payer().loaded = step;
        }
    }

    fn body(&mut self, path: &str, steps: impl FnOnce(&mut Self)) {
        let file = path.strip_prefix("file://").unwrap_or(path).to_owned();
        self.payers.push(Payer {
            requirer: Some(file),
            loaded: None,
        });
        self.inside("", path, 1, true, steps);
        self.payers.pop();
    }

    /// `require` of a module that is there already; looks for its file all the same.
    pub fn require_again(&mut self, path: &str) {
        let requirer = self.requirer();
        self.payers.push(Payer {
            requirer,
            loaded: Some((path.into(), Some(Step::Resolve))),
        });
        self.in_loader(Some(1), |program| {
            program.file(FileOperation::Stat, path, 0, 4_000);
        });
        self.payers.pop();
    }

    /// `require` of something that is not there.
    pub fn require_in_vain(&mut self, asked: &[&str]) {
        let requirer = self.requirer();
        self.payers.push(Payer {
            requirer,
            loaded: None,
        });
        self.in_loader(Some(1), |program| {
            for path in asked {
                program.file(FileOperation::Stat, path, -2, 3_000);
            }
        });
        self.payers.pop();
    }

    /// `fs.readFileSync` of the function that runs.
    pub fn read_file(&mut self, path: &str) {
        self.read(path, 900);
    }

    /// `require` of a module that a function of `hook` compiles in place of the loader.
    pub fn require_through(
        &mut self,
        hook: &str,
        path: &str,
        compile_ns: u64,
        body: impl FnOnce(&mut Self),
    ) {
        self.in_loader(Some(1), |program| {
            program.file(FileOperation::Stat, path, 0, 4_000);
            program.inside("Module.load", LOADER, 1266, false, |program| {
                program.inside("compile", hook, 40, false, |program| {
                    program.read(path, 2_000);
                    program.inside("Module._compile", LOADER, 1521, false, |program| {
                        program.compile(path, CompilationUnit::Function, compile_ns);
                        program.body(path, body);
                    });
                });
            });
        });
    }

    /// Does what follows as if the loader had called it for a `require` of the function that runs.
    pub fn called_by_loader(&mut self, steps: impl FnOnce(&mut Self)) {
        self.in_loader(Some(1), steps);
    }

    /// Node compiles a file to see whether it is CommonJS, and does not run it.
    pub fn check_syntax(&mut self, path: &str, compile_ns: u64) {
        let reader = "node:internal/modules/esm/get_format";
        self.inside("detectModuleFormat", reader, 60, false, |program| {
            program.compile(path, CompilationUnit::Function, compile_ns);
        });
    }

    /// `require` of a file that is neither CommonJS nor an ES module: it is compiled as both.
    pub fn require_broken(&mut self, path: &str) {
        self.in_loader(Some(1), |program| {
            program.file(FileOperation::Stat, path, 0, 4_000);
            program.inside("Module._extensions..js", LOADER, 1600, false, |program| {
                program.read(path, 2_000);
                program.inside("wrapSafe", LOADER, 1469, false, |program| {
                    program.compile(path, CompilationUnit::Function, 10_000);
                    program.compile(&format!("file://{path}"), CompilationUnit::Module, 5_000);
                });
            });
        });
    }

    /// Node compiles and runs a main script that it has in itself (a single executable application), or makes a start-up snapshot of: by
    /// `function` of `builtin`.
    pub fn run_embedded(
        &mut self,
        name: &str,
        (function, builtin): (&str, &str),
        compile_ns: u64,
        body: impl FnOnce(&mut Self),
    ) {
        self.requirers.insert(name.into(), None);
        self.payers.push(Payer {
            requirer: None,
            loaded: None,
        });
        self.inside(function, builtin, 110, false, |program| {
            program.busy(GAP);
            program.compile(name, CompilationUnit::Function, compile_ns);
            program.body(name, body);
        });
        self.payers.pop();
    }

    /// Compiles and runs code without a loader, as `vm` does.
    pub fn run_script(&mut self, name: &str, compile_ns: u64, body: impl FnOnce(&mut Self)) {
        let requirer = self.requirer();
        self.requirers.insert(name.into(), requirer.clone());
        self.payers.push(Payer {
            requirer,
            loaded: None,
        });
        self.inside("Script", "node:vm", 117, false, |program| {
            program.busy(GAP);
            program.compile(name, CompilationUnit::Script, compile_ns);
        });
        self.inside("runInContext", "node:vm", 150, false, |program| {
            program.body(name, body);
        });
        self.payers.pop();
    }

    /// What the recorder read in a package.json.
    pub fn package(&mut self, directory: &str, name: Option<&str>, version: Option<&str>) {
        let directory = self.name(directory);
        self.recording.packages.push(Package {
            run: RunId(0),
            directory,
            name: name.map(str::to_owned),
            version: version.map(str::to_owned),
        });
    }

    /// `require` of a JSON file.
    pub fn require_json(&mut self, path: &str) {
        let requirer = self.requirer();
        self.requirers.insert(path.into(), requirer.clone());
        self.payers.push(Payer {
            requirer,
            loaded: Some((path.into(), Some(Step::Resolve))),
        });
        self.in_loader(Some(1), |program| {
            program.file(FileOperation::Stat, path, 0, 4_000);
            program.inside("Module._extensions..json", LOADER, 1640, false, |program| {
                program.read(path, 300);
            });
        });
        self.payers.pop();
    }

    /// `require` of a native add-on that takes a while to start.
    pub fn require_add_on(&mut self, path: &str, spent: u64) {
        self.load_add_on(path, spent, 1);
    }

    /// The same of one whose library the process has already (0), or that opens its own file besides.
    pub fn load_add_on(&mut self, path: &str, spent: u64, opens: usize) {
        let requirer = self.requirer();
        self.requirers.insert(path.into(), requirer.clone());
        self.payers.push(Payer {
            requirer,
            loaded: Some((path.into(), Some(Step::Resolve))),
        });
        self.in_loader(Some(1), |program| {
            program.file(FileOperation::Stat, path, 0, 4_000);
            program.inside("Module._extensions..node", LOADER, 1660, false, |program| {
                program.busy(GAP);
                let step = program.step(path, Step::Execute);
                program.cross_into("process", "DLOpen", |program| {
                    for _ in 0..opens {
                        program.file(FileOperation::Open, path, 19, 5_000);
                    }
                    program.busy(spent);
                });
                program.payer().loaded = step;
            });
        });
        self.payers.pop();
    }

    /// `require` of one of Node's own modules.
    pub fn require_builtin(&mut self, name: &str, compile_ns: u64, body: impl FnOnce(&mut Self)) {
        let requirer = self.requirer();
        let path = format!("node:{name}");
        // Inside another one's body, that one asked for it; the program's function pays all the same.
        let inner = self.payer().loaded.clone();
        let asked = match inner {
            Some((builtin, Some(Step::Execute))) if builtin.starts_with("node:") => Some(builtin),
            _ => requirer.clone(),
        };
        self.requirers.insert(path.clone(), asked);
        self.payers.push(Payer {
            requirer,
            loaded: Some((path.clone(), Some(Step::Resolve))),
        });
        self.inside("compileForPublicLoader", REALM, 1, false, |program| {
            program.busy(GAP);
            program.compile(&path, CompilationUnit::Builtin, compile_ns);
            program.step(&path, Step::Execute);
            program.inside("", &path, 1, true, body);
        });
        self.payers.pop();
    }

    /// The loader of ES modules finds, reads and compiles a module; it runs later ([`Program::evaluate`]).
    pub fn load_esm(&mut self, url: &str, imported_by: Option<&str>, compile_ns: u64) {
        let stack = self.stack.take();
        self.fetch_esm(url, imported_by, imported_by.map(path_of), compile_ns);
        self.stack = stack;
    }

    /// The same for a `require` of the function that runs; for itself, or along with that for the import of another
    /// module.
    pub fn load_esm_at_once(&mut self, url: &str, imported_by: Option<&str>, compile_ns: u64) {
        let requirer = imported_by.map(path_of).or_else(|| self.requirer());
        self.inside("getModuleJob", ESM_LOADER, 400, false, |program| {
            program.fetch_esm(url, imported_by, requirer, compile_ns);
        });
    }

    fn fetch_esm(
        &mut self,
        url: &str,
        imported_by: Option<&str>,
        requirer: Option<String>,
        compile_ns: u64,
    ) {
        let key = path_of(url);
        let file = key.split(['?', '#']).next().unwrap_or_default();
        let file = file.replace("%20", " ");
        self.requirers.insert(key.clone(), requirer.clone());
        self.payers.push(Payer {
            requirer,
            loaded: Some((key, Some(Step::Resolve))),
        });
        self.inside("defaultResolve", ESM_RESOLVE, 300, false, |program| {
            program.lookup("/app/package.json");
            program.file(FileOperation::Stat, &file, 0, 4_000);
        });
        self.inside(
            "getSource",
            "node:internal/modules/esm/load",
            40,
            false,
            |program| {
                program.read(&file, 500);
            },
        );
        if let Some(imported_by) = imported_by {
            self.link(imported_by, url, Nanoseconds(self.now));
        }
        self.inside("translators", ESM_LOADER, 500, false, |program| {
            program.compile(url, CompilationUnit::Module, compile_ns);
        });
        self.payers.pop();
    }

    /// A module is linked to what one imports, or with an empty requirer is made.
    fn link(&mut self, requirer: &str, loaded: &str, at: Nanoseconds) {
        let import = Import {
            process: self.process,
            thread: self.thread,
            at,
            requirer: self.name(requirer),
            loaded: self.name(loaded),
        };
        self.recording.imports.push(import);
    }

    /// The same of JSON that the thread pool has read: it is parsed later, by a promise.
    pub fn import_json(&mut self, url: &str, imported_by: &str, parse_ns: u64) {
        let stack = self.stack.take();
        let (key, requirer) = (path_of(url), path_of(imported_by));
        self.requirers.insert(key.clone(), Some(requirer.clone()));
        self.payers.push(Payer {
            requirer: Some(requirer),
            loaded: Some((key.clone(), Some(Step::Resolve))),
        });
        self.inside("defaultResolve", ESM_RESOLVE, 300, false, |program| {
            program.file(FileOperation::Stat, &key, 0, 4_000);
        });
        self.step(&key, Step::Execute);
        self.inside("loadAndTranslate", ESM_LOADER, 500, false, |program| {
            program.inside("jsonStrategy", TRANSLATORS, 400, false, |program| {
                program.cross("encoding_binding", "DecodeUTF8", parse_ns / 4);
                program.busy(parse_ns);
                let made = Nanoseconds(program.now + GAP + 1_000);
                program.cross("loader", "ModuleWrap::New", 30_000);
                program.link("", url, made);
                program.link(imported_by, url, Nanoseconds(program.now));
            });
        });
        self.payers.pop();
        self.stack = stack;
    }

    /// The loader of ES modules takes the types out of a module, which it loads for the first time, and compiles it.
    pub fn load_typescript(&mut self, url: &str, imported_by: Option<&str>, strip_ns: u64) {
        let stack = self.stack.take();
        let (key, requirer) = (path_of(url), imported_by.map(path_of));
        self.requirers.insert(key.clone(), requirer.clone());
        self.payers.push(Payer {
            requirer,
            loaded: Some((key.clone(), Some(Step::Resolve))),
        });
        self.inside("defaultResolve", ESM_RESOLVE, 300, false, |program| {
            program.file(FileOperation::Stat, &key, 0, 4_000);
        });
        if let Some(imported_by) = imported_by {
            self.link(imported_by, url, Nanoseconds(self.now));
        }
        self.inside("loadAndTranslate", ESM_LOADER, 500, false, |program| {
            program.inside(
                "getSourceSync",
                "node:internal/modules/esm/load",
                40,
                false,
                |program| program.read(&key, 500),
            );
            program.step(&key, Step::Read);
            program.inside("moduleTranslator", TRANSLATORS, 600, false, |program| {
                let typescript = "node:internal/modules/typescript";
                program.inside("stripTypeScriptTypes", typescript, 100, false, |program| {
                    program.cross("encoding_binding", "EncodeInto", 3_000);
                    program.busy(strip_ns);
                    program.cross("encoding_binding", "DecodeUTF8", 3_000);
                });
                program.inside(
                    "compileSourceTextModule",
                    ESM_UTILS,
                    300,
                    false,
                    |program| {
                        program.compile(url, CompilationUnit::Module, 20_000);
                    },
                );
            });
        });
        self.payers.pop();
        self.stack = stack;
    }

    /// The loader of ES modules looks for a file, as `import()` of the function that runs does at once; through a
    /// function of `hook`, if there is one.
    pub fn find_esm(&mut self, path: &str, hook: Option<&str>) {
        let find = |program: &mut Self| {
            program.inside("defaultResolve", ESM_RESOLVE, 300, false, |program| {
                program.file(FileOperation::Stat, path, 0, 4_000);
            });
        };
        self.inside("resolve", ESM_LOADER, 600, false, |program| match hook {
            Some(hook) => program.inside("resolve", hook, 3, false, |program| {
                program.inside("nextStep", ESM_LOADER, 80, false, find);
            }),
            None => find(program),
        });
    }

    /// The body of an ES module runs.
    pub fn evaluate(&mut self, url: &str, body: impl FnOnce(&mut Self)) {
        let stack = self.stack.take();
        self.inside(
            "run",
            "node:internal/modules/esm/module_job",
            193,
            false,
            |program| {
                program.body(url, body);
            },
        );
        self.stack = stack;
    }
}

/// The path in a file's URL, as it is written.
fn path_of(url: &str) -> String {
    url.strip_prefix("file://").unwrap_or(url).to_owned()
}
