//! What each stack says about modules, once per stack: who runs, on whose behalf, inside which modules' bodies.
//!
//! Stacks share their outer frames. Each is told from its caller's context in one step, so a recording of a million events
//! costs no more here than its few thousand stacks.

use super::script::{BuiltinClass, ScriptClass, ScriptId, Scripts};
use crate::recording::{Frame, FrameKind, Recording, StackId};
use crate::v8::{is_garbage_collection, is_uncaught_exception};

/// Index into [`Contexts::bodies`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BodyId(pub(super) u32);

/// A module whose body (its top-level code) is running, and those around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Body {
    pub(super) script: ScriptId,
    pub(super) outer: Option<BodyId>,
    /// Number of bodies around it.
    pub(super) depth: u32,
    /// It or one around it is the program's, not Node's own.
    pub(super) program: bool,
}

/// What Node does inside of the innermost function of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Inside {
    /// The function itself runs, or something that it called.
    #[default]
    Own,
    /// A module is being found, read and compiled for it.
    Loading,
    /// The loader of ES modules works, for no one module that could be told.
    Fetching,
    /// The body of one of Node's own modules runs.
    Builtin(ScriptId),
}

/// A load under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// [`Context::call`]; `None` for what Node loads by itself.
    pub(super) call: Option<StackId>,
    pub(super) task: Task,
}

/// What the loader of ES modules, called by no function of the program, is at: one does not follow the other where promises lie between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Task {
    /// Finding a file.
    Finding,
    /// Making a module of what was read.
    Translating,
    /// All else, and whatever is loaded for a call.
    #[default]
    Other,
}

impl Task {
    /// All of them.
    pub(super) const ALL: [Task; 3] = [Task::Finding, Task::Translating, Task::Other];
}

impl Key {
    /// Whether both are of one call: their stacks are of the same functions, and the places in these that are known of
    /// both are the same. Of a function that goes on in other code (V8 optimised it, or found that its code must not
    /// go on), other things may be known than before: the place, or what is inlined.
    pub(super) fn is_same_call(&self, other: &Key, recording: &Recording) -> bool {
        let (Some(mut a), Some(mut b)) = (self.call, other.call) else {
            return false;
        };
        let function = |at: StackId| {
            let stack = recording.stacks.get(at.0 as usize)?;
            recording
                .frames
                .get(stack.frame.0 as usize)
                .map(function_of)
        };
        if self.task != other.task || function(a) != function(b) {
            return false;
        }
        while a != b {
            let (Some((inner, caller)), Some((other, other_caller))) =
                (machine_frame(recording, a), machine_frame(recording, b))
            else {
                return false;
            };
            if !is_same_place(inner, other) {
                return false;
            }
            match (caller, other_caller) {
                (Some(caller), Some(other)) => (a, b) = (caller, other),
                (None, None) => break,
                _ => return false,
            }
        }
        true
    }
}

/// The next frame that was on the machine's stack, and its caller.
fn machine_frame(recording: &Recording, mut at: StackId) -> Option<(&Frame, Option<StackId>)> {
    loop {
        let stack = recording.stacks.get(at.0 as usize)?;
        let frame = recording.frames.get(stack.frame.0 as usize)?;
        match stack.caller {
            Some(caller) if frame.inlined => at = caller,
            caller => return Some((frame, caller)),
        }
    }
}

/// What tells a function from the others.
fn function_of(frame: &Frame) -> impl PartialEq + use<> {
    let begins = (frame.function_line, frame.function_column);
    (
        frame.kind,
        frame.function,
        frame.file,
        begins,
        frame.top_level,
    )
}

fn is_same_place(a: &Frame, b: &Frame) -> bool {
    let place = |frame: &Frame| frame.line.zip(frame.column);
    let places = place(a).zip(place(b));
    function_of(a) == function_of(b) && places.is_none_or(|(a, b)| a == b)
}

/// What one stack says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Context {
    /// Script of the innermost function of the program: the requirer, the one to blame.
    pub(super) owner: Option<ScriptId>,
    /// That function's frame, with all around it: the same for everything that one call from there does.
    pub(super) call: Option<StackId>,
    pub(super) inside: Inside,
    /// Class of the innermost JavaScript function; `None` if there is none, or it is the program's.
    pub(super) innermost: Option<BuiltinClass>,
    /// The same, but for `fs` and what it uses: who wanted a file.
    pub(super) wanted_by: Option<BuiltinClass>,
    /// A loader is on it, inside of that function.
    pub(super) loader: bool,
    /// The reader of package.json is on it, and no other loader inside of that; but for what helps them all (26 reads by that).
    pub(super) package: bool,
    /// It is the loader of ES modules, which looks for a file.
    pub(super) finding: bool,
    /// That loader makes a module of what it has read. Only where nothing that called it is loading, too: as where it does so by promises.
    pub(super) translating: bool,
    /// The loader of ES modules is on it, inside of that function: it loads what others import along with what that
    /// function asked for.
    pub(super) importing: bool,
    /// What is done is that function's own all the same: a loader called it (a hook), or it asks only where a file is.
    pub(super) own: bool,
    /// Innermost module body.
    pub(super) body: Option<BodyId>,
    /// There is JavaScript on it.
    pub(super) javascript: bool,
    /// Garbage is collected.
    pub(super) collects: bool,
    /// Node deals with an exception that nobody caught, inside of that function.
    pub(super) uncaught: bool,
    /// Frames are missing at the outer end.
    pub(super) truncated: bool,
}

impl Context {
    /// What tells one load under way from the others.
    pub(super) fn key(&self) -> Key {
        let task = match self.call {
            Some(_) => Task::Other,
            None if self.translating => Task::Translating,
            None if self.finding => Task::Finding,
            None => Task::Other,
        };
        Key {
            call: self.call,
            task,
        }
    }

    /// Whether package.json is looked for or read, which tells nothing of the module that is being loaded: a package.json that is a module,
    /// too, is read once more for that.
    pub(super) fn reads_package(&self) -> bool {
        self.package
    }

    /// Whether the loader of ES modules looks for a module's file.
    pub(super) fn finds_module(&self) -> bool {
        self.finding && !self.package
    }

    /// Whether what is done for a function's call may be for what another module imports. Hooks pay for what they do.
    pub(super) fn may_be_for_another(&self) -> bool {
        self.owner.is_some() && self.importing && !self.own
    }

    /// Whether a function of the program runs, or what it called to do something else than to load a module.
    pub(super) fn is_own(&self) -> bool {
        self.owner.is_some() && self.inside == Inside::Own && !self.loader
    }

    /// Whether the code that runs is the program's itself, not Node's on its behalf.
    pub(super) fn is_program(&self) -> bool {
        self.owner.is_some() && self.innermost.is_none()
    }
}

/// The contexts of all stacks of a recording.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    of_stack: Vec<Context>,
    bodies: Vec<Body>,
}

impl Contexts {
    pub(super) fn new(recording: &Recording, scripts: &mut Scripts) -> Contexts {
        let mut contexts = Contexts {
            of_stack: Vec::with_capacity(recording.stacks.len()),
            bodies: Vec::new(),
        };
        let mut known = crate::fast::Map::default();
        let natives = |is_one: fn(&str) -> bool| -> Vec<bool> {
            let is_native = |frame: &Frame| {
                let name = || String::from_utf8_lossy(recording.name(frame.function));
                frame.kind == FrameKind::Native && is_one(&name())
            };
            recording.frames.iter().map(is_native).collect()
        };
        let collects = natives(is_garbage_collection);
        let uncaught = natives(is_uncaught_exception);
        for (index, stack) in recording.stacks.iter().enumerate() {
            let around = stack.caller.and_then(|caller| contexts.get(caller));
            let mut context = around.copied().unwrap_or_default();
            context.truncated |= stack.truncated;
            let frame = recording.frames.get(stack.frame.0 as usize);
            let script = frame
                .filter(|frame| frame.kind == FrameKind::JavaScript)
                .and_then(|frame| scripts.named(recording, frame.file?));
            let is_in = |natives: &[bool]| natives.get(stack.frame.0 as usize) == Some(&true);
            context.collects |= is_in(&collects);
            context.uncaught |= is_in(&uncaught);
            context.javascript |= frame.is_some_and(|frame| frame.kind == FrameKind::JavaScript);
            if let (Some(frame), Some(script)) = (frame, script) {
                context.enter(
                    script,
                    scripts.get(script).class,
                    frame.top_level,
                    StackId(index as u32),
                );
                if frame.top_level {
                    let outer = context.body;
                    let body = *known
                        .entry((script.0, outer.map(|b| b.0)))
                        .or_insert_with(|| {
                            let around = outer.map(|outer| contexts.body(outer));
                            let body = Body {
                                script,
                                outer,
                                depth: around.map_or(0, |around| around.depth + 1),
                                program: around.is_some_and(|around| around.program)
                                    || !scripts.get(script).is_builtin(),
                            };
                            contexts.bodies.push(body);
                            BodyId((contexts.bodies.len() - 1) as u32)
                        });
                    context.body = Some(body);
                }
            }
            contexts.of_stack.push(context);
        }
        contexts
    }

    pub(super) fn get(&self, stack: StackId) -> Option<&Context> {
        self.of_stack.get(stack.0 as usize)
    }

    pub(super) fn body(&self, id: BodyId) -> Body {
        self.bodies[id.0 as usize]
    }
}

impl Context {
    /// Adds the next inner JavaScript function.
    fn enter(&mut self, script: ScriptId, class: ScriptClass, top_level: bool, stack: StackId) {
        let ScriptClass::Builtin(class) = class else {
            self.owner = Some(script);
            self.call = Some(stack);
            self.inside = Inside::Own;
            self.innermost = None;
            self.wanted_by = None;
            self.own = !top_level && (self.loader || self.own);
            self.loader = false;
            self.package = false;
            self.finding = false;
            self.translating = false;
            self.importing = false;
            self.uncaught = false;
            return;
        };
        self.innermost = Some(class);
        if class != BuiltinClass::FileSystem {
            self.wanted_by = Some(class);
        }
        if top_level {
            self.inside = Inside::Builtin(script);
            return;
        }
        self.loader |= class.is_loader();
        self.package = match class {
            BuiltinClass::PackageReader => true,
            BuiltinClass::RequireFunction => self.package,
            _ => self.package && !class.is_loader(),
        };
        self.importing |= matches!(
            class,
            BuiltinClass::EsModuleLoader | BuiltinClass::EsModuleTranslator
        );
        self.own |= class == BuiltinClass::EsModuleMeta;
        self.finding |= class == BuiltinClass::EsModuleFinder;
        self.translating = match class {
            BuiltinClass::EsModuleTranslator => {
                self.translating || (self.owner.is_none() && self.inside != Inside::Loading)
            }
            // Others are loaded meanwhile: Node's own modules, and what a CommonJS module requires.
            BuiltinClass::BuiltinLoader
            | BuiltinClass::CommonJsLoader
            | BuiltinClass::EsModuleFinder
            | BuiltinClass::EsModuleReader => false,
            _ => self.translating,
        };
        self.inside = match class {
            // What imports ask for is fetched by promises: the program's functions are not on the stack.
            BuiltinClass::EsModuleLoader | BuiltinClass::EsModuleMeta if self.owner.is_none() => {
                match self.inside {
                    Inside::Loading => Inside::Loading,
                    _ => Inside::Fetching,
                }
            }
            BuiltinClass::EsModuleTranslator => Inside::Loading,
            BuiltinClass::BuiltinLoader if self.inside == Inside::Own => Inside::Loading,
            _ if class.is_loader() => Inside::Loading,
            _ => self.inside,
        };
    }
}
