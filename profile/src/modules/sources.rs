//! What a bundle is made of: a script that a bundler (esbuild, webpack, Rollup …) made of many files is one module to Node. Its source map tells of which
//! file each function is, and so of which package.
//!
//! Whose an event is, is told by stacks alone: of the file of the innermost function of the program on it, as in
//! [`Module::caused`](super::Module::caused). How long each file's body ran is not known, for nothing was loaded: CPU samples tell what it took.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::costs::Costs;
use super::package::installed_directory;
use super::script::{ScriptId, Scripts};
use crate::breakdown::count;
use crate::fast::Map;
use crate::recording::{FrameKind, NameId, ProcessId, Recording, StackId};

/// A part of a bundle, and what its functions did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<T> {
    /// In which process.
    pub process: ProcessId,
    /// The bundle.
    pub bundle: ScriptId,
    /// What part.
    pub part: T,
    /// Files of it of which functions were seen.
    pub files: u64,
    /// What its functions did, and Node because they asked for it.
    pub caused: Costs,
    /// CPU time with a function of it on the stack, its own and what it called, ns.
    pub cpu_total_ns: u64,
}

/// The parts of all bundles: those that took most CPU time first, then those with most crossings.
#[derive(Debug, Default)]
pub struct Sources {
    /// By file, as the source map names it.
    pub files: Vec<Part<NameId>>,
    /// By package, as its folder below a `node_modules`; `None`: files that lie in none, the program's own.
    pub packages: Vec<Part<Option<Vec<u8>>>>,
}

/// Where a frame stood: which file of which bundle, and which package that is of.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    file: u32,
    package: u32,
}

/// Numbers for what is in a bundle.
struct Numbers<T> {
    of: BTreeMap<(ScriptId, T), u32>,
    list: Vec<(ScriptId, T)>,
}

impl<T: Clone + Ord> Numbers<T> {
    fn new() -> Numbers<T> {
        Numbers {
            of: BTreeMap::new(),
            list: Vec::new(),
        }
    }

    fn number(&mut self, bundle: ScriptId, part: T) -> u32 {
        let list = &mut self.list;
        *self.of.entry((bundle, part)).or_insert_with_key(|key| {
            list.push(key.clone());
            list.len() as u32 - 1
        })
    }
}

/// What is summed up for a part.
#[derive(Default)]
struct Sum {
    caused: Costs,
    cpu_total_ns: u64,
}

/// Sums by process and number of a part.
type Sums = Map<(ProcessId, u32), Sum>;

impl Sources {
    /// Those of the processes that are `told`. A script of which all functions are of one file is no bundle.
    pub(super) fn new(
        recording: &Recording,
        scripts: &Scripts,
        told: &dyn Fn(ProcessId) -> bool,
    ) -> Sources {
        let bundles = bundles(recording, scripts);
        if bundles.is_empty() {
            return Sources::default();
        }
        let mut files = Numbers::new();
        let mut packages = Numbers::new();
        // Of JavaScript of the program: `Some`, and the place if it is known. What the bundler added is in none of the files: it is of who calls it, as
        // what is no JavaScript is.
        let of_frame: Vec<Option<Option<Place>>> = { recording.frames.iter() }
            .map(|frame| {
                if frame.kind != FrameKind::JavaScript {
                    return None;
                }
                let script = scripts.known(frame.file?)?;
                if scripts.get(script).is_builtin() {
                    return None;
                }
                if !bundles.contains_key(&script) {
                    return Some(None);
                }
                frame.original.map(|original| {
                    let path = recording.name(original.file);
                    let directory = installed_directory(path).map(<[u8]>::to_vec);
                    Some(Place {
                        file: files.number(script, original.file),
                        package: packages.number(script, directory),
                    })
                })
            })
            .collect();
        let of_frame = |stack: StackId| {
            let stack = recording.stacks.get(stack.0 as usize)?;
            of_frame.get(stack.frame.0 as usize).copied().flatten()
        };
        // Of the innermost function of the program. A caller has a lower index.
        let mut of_stack: Vec<Option<Place>> = Vec::with_capacity(recording.stacks.len());
        for (index, stack) in recording.stacks.iter().enumerate() {
            let around = stack
                .caller
                .and_then(|caller| of_stack.get(caller.0 as usize));
            let place = match of_frame(StackId(index as u32)) {
                Some(own) => own,
                None => around.copied().flatten(),
            };
            of_stack.push(place);
        }
        let mut of_files = Sums::default();
        let mut of_packages = Sums::default();
        let mut give = |process: ProcessId, stack: Option<StackId>, costs: Costs| {
            let place = stack.and_then(|stack| of_stack.get(stack.0 as usize).copied().flatten());
            if let Some(place) = place.filter(|_| told(process)) {
                let file = of_files.entry((process, place.file)).or_default();
                file.caused.add(&costs);
                let package = of_packages.entry((process, place.package)).or_default();
                package.caused.add(&costs);
            }
        };
        macro_rules! take {
            ($($events:ident),*) => {$(
                for event in &recording.$events {
                    give(event.process, event.stack, Costs::from(event));
                }
            )*};
        }
        take!(
            crossings,
            crossing_sums,
            serializations,
            serialization_sums,
            samples,
            waits
        );
        for access in &recording.files {
            let costs = Costs::of_file(access, recording.name(access.path));
            give(access.process, access.stack, costs);
        }
        for lookup in &recording.lookups {
            let costs = Costs {
                lookups: 1,
                ..Costs::default()
            };
            give(lookup.process, lookup.stack, costs);
        }
        // Many samples have the same stack.
        let mut weights: Map<(ProcessId, StackId), u64> = Map::default();
        for sample in recording
            .samples
            .iter()
            .filter(|sample| told(sample.process))
        {
            if let Some(stack) = sample.stack {
                count(
                    weights.entry((sample.process, stack)).or_default(),
                    sample.weight.0,
                );
            }
        }
        let (mut seen_files, mut seen_packages) = (Vec::new(), Vec::new());
        for ((process, stack), weight) in weights {
            seen_files.clear();
            seen_packages.clear();
            let mut at = Some(stack);
            while let Some(id) = at {
                if let Some(Some(place)) = of_frame(id) {
                    for (seen, sums, number) in [
                        (&mut seen_files, &mut of_files, place.file),
                        (&mut seen_packages, &mut of_packages, place.package),
                    ] {
                        if !seen.contains(&number) {
                            seen.push(number);
                            let sum = sums.entry((process, number)).or_default();
                            count(&mut sum.cpu_total_ns, weight);
                        }
                    }
                }
                let caller = recording.stacks.get(id.0 as usize).and_then(|s| s.caller);
                at = caller.filter(|caller| *caller < id);
            }
        }
        let mut files_of: Map<u32, u64> = Map::default();
        for (bundle, file) in &files.list {
            let directory = installed_directory(recording.name(*file)).map(<[u8]>::to_vec);
            count(
                files_of
                    .entry(packages.number(*bundle, directory))
                    .or_default(),
                1,
            );
        }
        Sources {
            files: parts(of_files, &files.list, |_| 1),
            packages: parts(of_packages, &packages.list, |package| {
                files_of.get(&package).copied().unwrap_or_default()
            }),
        }
    }
}

/// Scripts whose functions are of several files.
fn bundles(recording: &Recording, scripts: &Scripts) -> Map<ScriptId, ()> {
    let mut first: Map<ScriptId, NameId> = Map::default();
    let mut bundles = Map::default();
    let frames = { recording.frames.iter() }.filter(|frame| frame.kind == FrameKind::JavaScript);
    for frame in frames {
        if let Some(original) = frame.original
            && let Some(script) = frame.file.and_then(|file| scripts.known(file))
            && *first.entry(script).or_insert(original.file) != original.file
        {
            bundles.insert(script, ());
        }
    }
    bundles
}

fn parts<T: Clone + Ord>(
    sums: Sums,
    list: &[(ScriptId, T)],
    files: impl Fn(u32) -> u64,
) -> Vec<Part<T>> {
    let mut parts: Vec<Part<T>> = { sums.into_iter() }
        .filter_map(|((process, number), sum)| {
            let (bundle, part) = list.get(number as usize)?.clone();
            Some(Part {
                process,
                bundle,
                part,
                files: files(number),
                caused: sum.caused,
                cpu_total_ns: sum.cpu_total_ns,
            })
        })
        .collect();
    parts.sort_by(|a, b| {
        let figures = |of: &Part<T>| Reverse((of.caused.cpu_ns, of.caused.crossings));
        (figures(a).cmp(&figures(b)))
            .then_with(|| (a.process, a.bundle, &a.part).cmp(&(b.process, b.bundle, &b.part)))
    });
    parts
}
