//! Stacks for a large recording: modules that load modules, and functions of them that call each other.

use std::collections::HashMap;

use super::Numbers;
use crate::recording::{
    Frame, FrameId, FrameKind, NameId, Recording, Stack, StackId, ThreadId, Tier,
};

/// Deepest nesting of modules.
const DEPTH: usize = 14;
/// Lines of each module's body that call something.
const LINES: u64 = 6;

/// Names that only stacks need.
struct Names {
    anonymous: NameId,
    node: NameId,
    run_main: NameId,
    loader: NameId,
    helpers: NameId,
    require: NameId,
    load: NameId,
    resolve: NameId,
    handle: NameId,
    map: NameId,
    start: NameId,
    collect: NameId,
    resize: NameId,
    wasm: NameId,
}

/// What runs at the moment.
pub(super) struct Stacks {
    /// Apart from the numbers of the events, which stay what they were.
    numbers: Numbers,
    names: Names,
    frames: HashMap<Frame, FrameId>,
    stacks: HashMap<Stack, StackId>,
    /// Files of modules, in the order in which they are loaded.
    files: Vec<NameId>,
    loaded: usize,
    /// Modules whose bodies run: file, and the stack outside of it.
    bodies: Vec<(NameId, Option<StackId>)>,
}

impl Stacks {
    pub(super) fn new(recording: &mut Recording, files: Vec<NameId>) -> Stacks {
        let mut name = |text: &str| {
            recording.names.push(text.into());
            NameId((recording.names.len() - 1) as u32)
        };
        let names = Names {
            anonymous: name(""),
            node: name("/usr/bin/node"),
            run_main: name("node:internal/main/run_main_module"),
            loader: name("node:internal/modules/cjs/loader"),
            helpers: name("node:internal/modules/helpers"),
            require: name("require"),
            load: name("Module._load"),
            resolve: name("Module._resolveFilename"),
            handle: name("handle"),
            map: name("Array.prototype.map"),
            start: name("node::LoadEnvironment(node::Environment*)"),
            collect: name("v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace)"),
            resize: name("resize"),
            wasm: name("wasm://wasm/5f3c9a1e"),
        };
        Stacks {
            numbers: Numbers(2),
            names,
            frames: HashMap::new(),
            stacks: HashMap::new(),
            files,
            loaded: 0,
            bodies: Vec::new(),
        }
    }

    /// Another process begins: nothing is loaded.
    pub(super) fn begin(&mut self, recording: &mut Recording, thread: ThreadId) {
        self.numbers = Numbers(u64::from(thread.0));
        self.loaded = 0;
        self.bodies.clear();
        let start = self.native(recording, None, self.names.start);
        let (anonymous, file) = (self.names.anonymous, self.names.run_main);
        let main = self.javascript(recording, Some(start), anonymous, file, 28, true);
        if let Some(file) = self.load() {
            self.bodies.push((file, Some(main)));
        }
    }

    /// Bodies end now and then.
    pub(super) fn step(&mut self) {
        if self.bodies.len() > 1 && self.numbers.below(180) == 0 {
            self.bodies.pop();
        }
    }

    /// The function that runs.
    pub(super) fn function(&mut self, recording: &mut Recording) -> Option<StackId> {
        let &(file, outside) = self.bodies.last()?;
        let line = 1 + self.numbers.below(LINES) as u32 * 10;
        let (anonymous, handle) = (self.names.anonymous, self.names.handle);
        let mut stack = self.javascript(recording, outside, anonymous, file, line, true);
        // Functions of modules loaded before, and builtins that call back.
        for _ in 0..self.numbers.skewed(3) {
            let other = self.numbers.skewed(self.loaded.max(1) as u64) as usize;
            let file = self.files[other.min(self.files.len() - 1)];
            if self.numbers.below(3) == 0 {
                let map = self.names.map;
                stack = self.frame(
                    recording,
                    Some(stack),
                    FrameKind::Builtin,
                    map,
                    None,
                    0,
                    false,
                );
            }
            stack = self.javascript(recording, Some(stack), handle, file, 100 + line, false);
        }
        Some(stack)
    }

    /// The loader, at work for the body that runs.
    pub(super) fn loader(&mut self, recording: &mut Recording) -> Option<StackId> {
        let &(file, outside) = self.bodies.last()?;
        let line = 1 + self.numbers.below(LINES) as u32 * 10;
        let Names {
            anonymous,
            loader,
            helpers,
            require,
            load,
            resolve,
            ..
        } = self.names;
        let body = self.javascript(recording, outside, anonymous, file, line, true);
        let stack = self.javascript(recording, Some(body), require, helpers, 182, false);
        let stack = self.javascript(recording, Some(stack), load, loader, 1091, false);
        Some(self.javascript(recording, Some(stack), resolve, loader, 1048, false))
    }

    /// Where the compiler is called from, and the file that it compiles, whose body runs from now on; `None` if all are
    /// loaded.
    pub(super) fn compile(&mut self, recording: &mut Recording) -> Option<(StackId, NameId)> {
        let stack = self.loader(recording)?;
        let file = self.load()?;
        if self.bodies.len() < DEPTH {
            self.bodies.push((file, Some(stack)));
        }
        Some((stack, file))
    }

    /// Where a CPU sample falls.
    pub(super) fn sample(&mut self, recording: &mut Recording) -> Option<StackId> {
        let function = self.function(recording);
        match self.numbers.below(10) {
            0 => {
                let collect = self.names.collect;
                Some(self.native(recording, function, collect))
            }
            // WebAssembly, and what that calls.
            1 => {
                let resize = self.wasm(recording, function);
                let handle = self.names.handle;
                match self.bodies.last() {
                    Some(&(file, _)) if self.numbers.below(2) == 0 => {
                        Some(self.javascript(recording, Some(resize), handle, file, 7, false))
                    }
                    _ => Some(resize),
                }
            }
            _ => function,
        }
    }

    fn load(&mut self) -> Option<NameId> {
        let file = self.files.get(self.loaded).copied()?;
        self.loaded += 1;
        Some(file)
    }

    fn native(
        &mut self,
        recording: &mut Recording,
        caller: Option<StackId>,
        function: NameId,
    ) -> StackId {
        let file = Some(self.names.node);
        self.frame(
            recording,
            caller,
            FrameKind::Native,
            function,
            file,
            0,
            false,
        )
    }

    fn wasm(&mut self, recording: &mut Recording, caller: Option<StackId>) -> StackId {
        let (kind, function) = (FrameKind::WebAssembly, self.names.resize);
        let file = Some(self.names.wasm);
        self.frame(recording, caller, kind, function, file, 0, false)
    }

    fn javascript(
        &mut self,
        recording: &mut Recording,
        caller: Option<StackId>,
        function: NameId,
        file: NameId,
        line: u32,
        top_level: bool,
    ) -> StackId {
        let kind = FrameKind::JavaScript;
        self.frame(
            recording,
            caller,
            kind,
            function,
            Some(file),
            line,
            top_level,
        )
    }

    #[allow(clippy::too_many_arguments)]
    fn frame(
        &mut self,
        recording: &mut Recording,
        caller: Option<StackId>,
        kind: FrameKind,
        function: NameId,
        file: Option<NameId>,
        line: u32,
        top_level: bool,
    ) -> StackId {
        let frame = Frame {
            kind,
            function,
            file,
            line: (line > 0).then_some(line),
            column: (line > 0).then_some(1),
            function_line: (line > 0).then_some(1),
            function_column: (line > 0).then_some(1),
            original: None,
            tier: (kind == FrameKind::JavaScript).then_some(Tier::Interpreted),
            top_level,
            inlined: false,
            inlining_possible: false,
        };
        let frames = &mut recording.frames;
        let frame = *self.frames.entry(frame).or_insert_with(|| {
            frames.push(frame);
            FrameId((frames.len() - 1) as u32)
        });
        let stack = Stack {
            caller,
            frame,
            truncated: false,
        };
        let stacks = &mut recording.stacks;
        *self.stacks.entry(stack).or_insert_with(|| {
            stacks.push(stack);
            StackId((stacks.len() - 1) as u32)
        })
    }
}
