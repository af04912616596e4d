//! The tree of stacks: each stack of the recording walked once, its frames as they are to be shown.

use std::collections::BTreeSet;

use nodeprof_profile::Recording;
use nodeprof_profile::modules::sources::is_of_bundler;
use nodeprof_profile::recording::{self, NameId, RunId, StackId};

use super::StackNode;
use super::labels::{Labels, Originals, Shown};
use super::modules::{PackageOf, Packages, is_built_in, is_path, short};
use crate::drawn::Drawn;
use crate::fold::{By, Frame, FrameKind, frame_name};
use crate::hash::IdMap;

/// No node: above the outermost frame.
const NONE: u32 = u32::MAX;

pub(super) struct Nodes<'a> {
    recording: &'a Recording,
    by: By,
    directory: String,
    labels: Labels,
    frames: Vec<Frame>,
    /// Frames made here, by kind and name.
    made: IdMap<(FrameKind, String), u32>,
    nodes: Vec<StackNode>,
    children: IdMap<(u32, u32, u32, u32), u32>,
    /// By stack id.
    stacks: Vec<Option<Walk>>,
    /// By frame id: what it is of, by module or package.
    groups: Vec<Group>,
    /// The same frames as [`Labels::frames`] where they collect garbage, or compile.
    recoloured: IdMap<(u32, FrameKind), u32>,
}

/// What is known of a stack.
#[derive(Clone, Copy)]
struct Walk {
    /// Its innermost frame that is shown.
    node: u32,
    /// By module or package: Node's own JavaScript on top, if it is that which runs.
    built_in: Option<u32>,
    /// From some frame on, garbage is collected, JavaScript compiled, or a probe run.
    work: Option<FrameKind>,
    /// JavaScript is on it.
    javascript: bool,
}

/// Of what a frame is, by module or package.
#[derive(Clone, Copy)]
enum Group {
    /// Not JavaScript.
    None,
    /// Node's own JavaScript.
    BuiltIn(u32),
    /// JavaScript of the program or a package.
    Program(u32),
    /// JavaScript of what called it (see [`is_of_caller`]); of this if that is not known.
    Caller(u32),
}

impl<'a> Nodes<'a> {
    pub(super) fn new(drawn: &Drawn<'a>, run: RunId, by: By, source_maps: bool) -> Nodes<'a> {
        let recording = drawn.recording;
        let directory = recording.runs.get(run.0 as usize);
        let directory = directory
            .map(|run| run.directory.as_slice())
            .unwrap_or_default();
        let directory = String::from_utf8_lossy(directory)
            .trim_end_matches('/')
            .to_owned();
        let originals = match by {
            By::Stack if source_maps => Originals::Shown,
            By::Module | By::Package if source_maps => Originals::OfBundles,
            _ => Originals::Hidden,
        };
        let mut labels = drawn.labels(run, &directory, originals);
        let frames = match by {
            By::Stack | By::Phase => std::mem::take(&mut labels.frames),
            By::Module | By::Package => Vec::new(),
        };
        let mut nodes = Nodes {
            recording,
            by,
            directory,
            labels,
            frames,
            made: IdMap::default(),
            nodes: Vec::new(),
            children: IdMap::default(),
            stacks: vec![None; recording.stacks.len()],
            groups: Vec::new(),
            recoloured: IdMap::default(),
        };
        if matches!(by, By::Module | By::Package) {
            let frames = std::mem::take(&mut nodes.labels.frames);
            let packages = Packages::new(recording, run, drawn.versions());
            let bundles = source_maps.then(|| drawn.bundles());
            nodes.group(&frames, &packages, bundles);
            nodes.labels.frames = frames;
        }
        nodes
    }

    /// The run's working directory.
    pub(super) fn directory(&self) -> &str {
        &self.directory
    }

    /// By frame: the script that Node loaded, wherever its source map leads, but of one of these bundles the file that the map tells; empty if it has none,
    /// `None` if it is neither JavaScript nor WebAssembly.
    pub(super) fn scripts(&self, bundles: &BTreeSet<NameId>) -> Vec<Option<String>> {
        let mut scripts = vec![None; self.frames.len()];
        for (frame, shown) in self.recording.frames.iter().zip(&self.labels.shown) {
            let script = shown.and_then(|shown| scripts.get_mut(shown.frame as usize));
            if let Some(script @ None) = script
                && matches!(
                    frame.kind,
                    recording::FrameKind::JavaScript | recording::FrameKind::WebAssembly
                )
            {
                let is_of_bundle = frame.file.is_some_and(|file| bundles.contains(&file));
                let file = match (is_of_bundle, frame.original) {
                    (false, _) => frame.file,
                    (true, Some(original)) if !self.is_added(original.file) => Some(original.file),
                    // What the bundler added is of who calls it.
                    (true, _) => None,
                };
                let name = file.map_or(&b""[..], |file| self.recording.name(file));
                *script = Some(String::from_utf8_lossy(name).into_owned());
            }
        }
        scripts
    }

    /// By frame: which of these bundles it is in.
    pub(super) fn bundles(&self, bundles: &BTreeSet<NameId>) -> Vec<Option<String>> {
        let mut of_frames = vec![None; self.frames.len()];
        for (frame, shown) in self.recording.frames.iter().zip(&self.labels.shown) {
            let bundle = frame.file.filter(|file| bundles.contains(file));
            let of_frame = shown.and_then(|shown| of_frames.get_mut(shown.frame as usize));
            if let (Some(of_frame @ None), Some(bundle)) = (of_frame, bundle) {
                let name = self.recording.name(bundle);
                *of_frame = Some(String::from_utf8_lossy(name).into_owned());
            }
        }
        of_frames
    }

    /// Whether a bundler added a file that a source map names.
    fn is_added(&self, file: NameId) -> bool {
        is_of_bundler(self.recording.name(file))
    }

    pub(super) fn finish(self) -> (Vec<Frame>, Vec<StackNode>) {
        (self.frames, self.nodes)
    }

    /// Knows for each frame of the recording of which module or package it is. What a bundler added to one of these bundles is in none of the files that this
    /// was made of: it is of who calls it.
    fn group(
        &mut self,
        frames: &[Frame],
        packages: &Packages<'_>,
        bundles: Option<&BTreeSet<NameId>>,
    ) {
        let mut known: IdMap<(u32, bool, Option<NameId>), Group> = IdMap::default();
        let recording = self.recording;
        for index in 0..recording.frames.len() {
            let Some(Some(shown)) = self.labels.shown.get(index).copied() else {
                self.groups.push(Group::None);
                continue;
            };
            let frame = &recording.frames[index];
            let bundle = frame
                .file
                .filter(|file| bundles.is_some_and(|bundles| bundles.contains(file)));
            let is_added = bundle.is_some()
                && (frame.original).is_none_or(|original| self.is_added(original.file));
            let key = (shown.frame, is_added, bundle);
            if let Some(group) = known.get(&key) {
                self.groups.push(*group);
                continue;
            }
            let shown_as = &frames[shown.frame as usize];
            let group = match script_of(shown_as) {
                None => Group::None,
                Some(file) => {
                    let bundle = bundle.map(|file| String::from_utf8_lossy(recording.name(file)));
                    self.group_of(shown_as.kind, file, packages, bundle.as_deref(), is_added)
                }
            };
            known.insert(key, group);
            self.groups.push(group);
        }
    }

    /// Of what a file is, which may be one that this bundle was made of.
    fn group_of(
        &mut self,
        kind: FrameKind,
        file: &str,
        packages: &Packages<'_>,
        bundle: Option<&str>,
        is_added: bool,
    ) -> Group {
        let (made, is_built_in) = match self.by {
            By::Package => {
                // Own files of a bundle in a package are the package's.
                let of = match (packages.of(file), bundle) {
                    (PackageOf::Program, Some(bundle)) => packages.of(bundle),
                    (of, _) => of,
                };
                let (kind, name) = match of {
                    PackageOf::Node => (FrameKind::NodeJavaScript, "node".to_owned()),
                    PackageOf::Named(name) => (FrameKind::Package, name),
                    PackageOf::Program => (FrameKind::JavaScript, PROGRAM.to_owned()),
                };
                let made = self.make(Frame::named(kind, &name));
                (made, kind == FrameKind::NodeJavaScript)
            }
            _ => (self.module(kind, file), is_built_in(file)),
        };
        match (is_built_in, bundle) {
            (true, _) => Group::BuiltIn(made),
            (false, Some(_)) if is_added => Group::Caller(made),
            // Wherever a source map says that it lies, it is a file.
            (false, Some(_)) => Group::Program(made),
            (false, None) if is_of_caller(file, self.by) => Group::Caller(made),
            (false, None) => Group::Program(made),
        }
    }

    /// The frame of a module; a longer name than usual where two would have the same.
    fn module(&mut self, kind: FrameKind, file: &str) -> u32 {
        let name = match short(file, &self.directory) {
            name if name.is_empty() => "(no file)".to_owned(),
            name => name,
        };
        let source = crate::fold::Source {
            function: String::new(),
            file: Some(file.to_owned()),
            ..Default::default()
        };
        for name in [name, file.to_owned()] {
            let frame = Frame {
                name: frame_name(&name),
                kind,
                source: Some(Box::new(source.clone())),
                rank: 0,
            };
            let index = self.make(frame);
            if self.frames[index as usize].source.as_deref() == Some(&source) {
                return index;
            }
        }
        // A file has but one full name.
        self.make(Frame::named(kind, file))
    }

    /// The index of a frame, which is kept if there is none of its kind and name yet.
    pub(super) fn make(&mut self, frame: Frame) -> u32 {
        let next = self.frames.len() as u32;
        let key = (frame.kind, frame.name.clone());
        let index = *self.made.entry(key).or_insert(next);
        if index == next {
            self.frames.push(frame);
        }
        index
    }

    fn child(&mut self, parent: u32, shown: Shown) -> u32 {
        let next = self.nodes.len() as u32;
        let place = (
            shown.line.unwrap_or_default(),
            shown.column.unwrap_or_default(),
        );
        let key = (parent, shown.frame, place.0, place.1);
        let node = *self.children.entry(key).or_insert(next);
        if node == next {
            self.nodes.push(StackNode {
                parent: (parent != NONE).then_some(parent),
                frame: shown.frame,
                line: shown.line,
                column: shown.column,
            });
        }
        node
    }

    /// A frame that is no function, on top of a stack.
    pub(super) fn leaf(&mut self, caller: u32, frame: u32) -> u32 {
        self.child(caller, plain(frame))
    }

    /// The same for a frame that is known not to be on top of that stack yet.
    pub(super) fn new_leaf(&mut self, caller: u32, frame: u32) -> u32 {
        self.nodes.push(StackNode {
            parent: (caller != NONE).then_some(caller),
            frame,
            line: None,
            column: None,
        });
        self.nodes.len() as u32 - 1
    }

    fn named(&mut self, caller: u32, kind: FrameKind, name: &str) -> u32 {
        let frame = self.make(Frame::named(kind, name));
        self.leaf(caller, frame)
    }

    /// The node of a stack.
    pub(super) fn of_stack(&mut self, stack: Option<StackId>) -> u32 {
        let mut missing = Vec::new();
        let mut at = stack;
        let mut walk = None;
        // A caller has a lower index, so this ends even if the recording was not checked.
        while let Some(id) = at {
            let Some(known) = self.stacks.get(id.0 as usize) else {
                break;
            };
            if let Some(known) = known {
                walk = Some(*known);
                break;
            }
            missing.push(id);
            at = self.recording.stacks[id.0 as usize]
                .caller
                .filter(|caller| *caller < id);
        }
        for id in missing.into_iter().rev() {
            let of = self.recording.stacks[id.0 as usize];
            let caller = walk.unwrap_or_else(|| self.outermost(of.truncated));
            let next = self.step(caller, of);
            self.stacks[id.0 as usize] = Some(next);
            walk = Some(next);
        }
        match walk {
            Some(walk) => self.top(walk),
            None => self.named(NONE, FrameKind::Unknown, NO_STACK),
        }
    }

    fn outermost(&mut self, truncated: bool) -> Walk {
        let node = match (truncated, self.by) {
            (true, By::Stack) => self.named(NONE, FrameKind::Unknown, TRUNCATED),
            _ => NONE,
        };
        Walk {
            node,
            built_in: None,
            work: None,
            javascript: false,
        }
    }

    /// The stack with one more frame.
    fn step(&mut self, caller: Walk, stack: recording::Stack) -> Walk {
        let id = stack.frame.0 as usize;
        let Some(&Some(shown)) = self.labels.shown.get(id) else {
            return caller;
        };
        let of = match self.by {
            By::Module | By::Package => self.labels.frames[shown.frame as usize].kind,
            _ => self.frames[shown.frame as usize].kind,
        };
        let mut next = caller;
        match of {
            FrameKind::GarbageCollection | FrameKind::Tracing => next.work = Some(of),
            FrameKind::Compilation if caller.work.is_none() => next.work = Some(of),
            // It calls back: a finalizer, a loader hook.
            FrameKind::JavaScript | FrameKind::NodeJavaScript | FrameKind::WebAssembly => {
                next.work = None;
                next.javascript = true;
            }
            _ => {}
        }
        match self.by {
            By::Module | By::Package => match self.groups[id] {
                Group::None => {}
                Group::BuiltIn(frame) => next.built_in = Some(frame),
                Group::Program(frame) => {
                    next.built_in = None;
                    let same =
                        caller.node != NONE && self.nodes[caller.node as usize].frame == frame;
                    if !same {
                        next.node = self.child(caller.node, plain(frame));
                    }
                }
                Group::Caller(frame) => {
                    next.built_in = None;
                    if caller.node == NONE {
                        next.node = self.child(NONE, plain(frame));
                    }
                }
            },
            _ => {
                // Ten frames of which nothing is known say no more than one.
                if of == FrameKind::Unknown
                    && caller.node != NONE
                    && self.nodes[caller.node as usize].frame == shown.frame
                {
                    return next;
                }
                let frame = self.coloured(shown.frame, next.work);
                next.node = self.child(caller.node, Shown { frame, ..shown });
            }
        }
        next
    }

    /// What C++ and libraries do to collect garbage or to compile looks like that, and what the kernel does for probes.
    fn coloured(&mut self, frame: u32, work: Option<FrameKind>) -> u32 {
        let own = self.frames[frame as usize].kind;
        let Some(work) = work else { return frame };
        let is_part = match work {
            FrameKind::Tracing => own == FrameKind::Kernel,
            _ => matches!(
                own,
                FrameKind::Native
                    | FrameKind::Compilation
                    | FrameKind::Library
                    | FrameKind::V8Builtin
            ),
        };
        if own == work || !is_part {
            return frame;
        }
        if let Some(&known) = self.recoloured.get(&(frame, work)) {
            return known;
        }
        let copy = Frame {
            kind: work,
            ..self.frames[frame as usize].clone()
        };
        self.frames.push(copy);
        let index = self.frames.len() as u32 - 1;
        self.recoloured.insert((frame, work), index);
        index
    }

    /// The node that a stack ends at: by module and package, with what runs beside JavaScript of the program.
    fn top(&mut self, walk: Walk) -> u32 {
        if !matches!(self.by, By::Module | By::Package) {
            return walk.node;
        }
        let mut node = walk.node;
        if let Some(frame) = walk.built_in {
            node = self.child(node, plain(frame));
        }
        if let Some(work) = walk.work {
            let name = match work {
                FrameKind::GarbageCollection => "(garbage collection)",
                FrameKind::Tracing => "(tracing)",
                _ => "(compilation)",
            };
            node = self.named(node, work, name);
        } else if !walk.javascript {
            node = self.named(node, FrameKind::Native, NO_JAVASCRIPT);
        }
        node
    }
}

/// The script of a frame of JavaScript or WebAssembly; empty if it has none.
fn script_of(frame: &Frame) -> Option<&str> {
    let has_script = matches!(
        frame.kind,
        FrameKind::JavaScript | FrameKind::NodeJavaScript | FrameKind::WebAssembly
    );
    let source = frame.source.as_deref().filter(|_| has_script)?;
    Some(source.file.as_deref().unwrap_or_default())
}

/// Whether the JavaScript of a script is of the module or package that called it: it has no file (`eval`, `new Function`, WebAssembly), or,
/// as packages are folders, a name that is no path (`vm`).
fn is_of_caller(script: &str, by: By) -> bool {
    script.is_empty() || script.starts_with("wasm://") || by == By::Package && !is_path(script)
}

fn plain(frame: u32) -> Shown {
    Shown {
        frame,
        line: None,
        column: None,
    }
}

/// Where the outer frames of a stack are missing.
const TRUNCATED: &str = "(outer frames are missing)";
/// Where an event has no stack at all.
const NO_STACK: &str = "(no stack)";
/// By module: before JavaScript runs, after it, and on threads that run none.
const NO_JAVASCRIPT: &str = "(no JavaScript)";
/// By package: what is of none.
const PROGRAM: &str = "(program)";
