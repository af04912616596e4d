//! What a bundle is made of: a script that a bundler (esbuild, webpack, Rollup …) made of many files is one module to Node. Its source map tells of which
//! file each function is, and so of which package.
//!
//! An event is of the file of the innermost function of the program on its stack, or where the request was made that led to it, as in
//! [`Module::caused`](super::Module::caused). How long each file's body ran is not known, for nothing was loaded: CPU samples tell what it took.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

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

/// The parts of all bundles of a run: those that took most CPU time first, then those with most crossings.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// By file, as the source map names it.
    pub files: Vec<Part<NameId>>,
    /// By package, as its folder below a `node_modules`: that of the file or, where it lies in none, that of the bundle; `None`: the program's own.
    pub packages: Vec<Part<Option<Vec<u8>>>>,
}

/// What a frame says of where it is in a bundle.
#[derive(Clone, Copy)]
enum Stands {
    /// Nothing: it is no JavaScript of the program, and is of who calls it.
    NoWhere,
    /// In what the bundler added to this bundle, which is of who calls it from the same one.
    Added(ScriptId),
    /// In a file of a bundle.
    In(Place),
    /// Not in a bundle.
    Outside,
}

/// Which file of which bundle, and which package that is of.
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
    /// Those of each run, of the processes that are `told`. `followed`: what asynchronous requests led to, without a function of the program on its own stack, by
    /// where they were made.
    pub(super) fn of_runs(
        recording: &Recording,
        scripts: &Scripts,
        told: &dyn Fn(ProcessId) -> bool,
        followed: Vec<(ProcessId, StackId, Costs)>,
    ) -> Vec<Sources> {
        let mut runs = vec![Sources::default(); recording.runs.len()];
        let run_of = |process: ProcessId| {
            let process = recording.processes.get(process.0 as usize);
            process.map_or(usize::MAX, |process| process.run.0 as usize)
        };
        let bundles = bundles(recording, scripts, &run_of);
        if bundles.is_empty() {
            return runs;
        }
        // Bundles of any run. What is in one is told of those runs alone that see it as one.
        let of_any: BTreeSet<ScriptId> = bundles.iter().map(|(_, script)| *script).collect();
        let mut files = Numbers::new();
        let mut packages = Numbers::new();
        // By bundle and file.
        let mut places: Map<(ScriptId, NameId), Option<Place>> = Map::default();
        let of_frame: Vec<Stands> = { recording.frames.iter() }
            .map(|frame| {
                let script = frame.file.and_then(|file| scripts.known(file));
                let script = script.filter(|_| frame.kind == FrameKind::JavaScript);
                let Some(script) = script.filter(|script| !scripts.get(*script).is_builtin())
                else {
                    return Stands::NoWhere;
                };
                if !of_any.contains(&script) {
                    return Stands::Outside;
                }
                let place = frame.original.and_then(|original| {
                    *places.entry((script, original.file)).or_insert_with(|| {
                        let path = recording.name(original.file);
                        let directory = installed_directory(path)
                            .or_else(|| installed_directory(&scripts.get(script).path));
                        (!is_of_bundler(path)).then(|| Place {
                            file: files.number(script, original.file),
                            package: packages.number(script, directory.map(<[u8]>::to_vec)),
                        })
                    })
                });
                place.map_or(Stands::Added(script), Stands::In)
            })
            .collect();
        let of_frame = |stack: StackId| {
            let stack = recording.stacks.get(stack.0 as usize);
            let frame = stack.and_then(|stack| of_frame.get(stack.frame.0 as usize));
            frame.copied().unwrap_or(Stands::NoWhere)
        };
        // Of the innermost function of the program. A caller has a lower index.
        let mut of_stack: Vec<Option<Place>> = Vec::with_capacity(recording.stacks.len());
        for (index, stack) in recording.stacks.iter().enumerate() {
            let around = { stack.caller }.and_then(|caller| of_stack.get(caller.0 as usize));
            let around = around.copied().flatten();
            let of_bundle = |place: &Place, bundle: ScriptId| {
                let file = files.list.get(place.file as usize);
                file.is_some_and(|(of, _)| *of == bundle)
            };
            of_stack.push(match of_frame(StackId(index as u32)) {
                Stands::NoWhere => around,
                Stands::Added(bundle) => around.filter(|place| of_bundle(place, bundle)),
                Stands::In(place) => Some(place),
                Stands::Outside => None,
            });
        }
        let is_told = |process: ProcessId, place: Place| {
            let file = files.list.get(place.file as usize);
            file.is_some_and(|(bundle, _)| bundles.contains(&(run_of(process), *bundle)))
        };
        let mut of_files = Sums::default();
        let mut of_packages = Sums::default();
        let mut give = |process: ProcessId, stack: Option<StackId>, costs: Costs| {
            let place = stack.and_then(|stack| of_stack.get(stack.0 as usize).copied().flatten());
            if let Some(place) = place.filter(|place| told(process) && is_told(process, *place)) {
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
        for (process, stack, costs) in followed {
            give(process, Some(stack), costs);
            count(weights.entry((process, stack)).or_default(), costs.cpu_ns);
        }
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
        // Which of them were on the stack that is looked at.
        let mut seen_files = vec![0u32; files.list.len()];
        let mut seen_packages = vec![0u32; packages.list.len()];
        for (look, ((process, stack), weight)) in (1..).zip(weights) {
            let mut at = Some(stack);
            while let Some(id) = at {
                if let Stands::In(place) = of_frame(id)
                    && is_told(process, place)
                {
                    for (seen, sums, number) in [
                        (&mut seen_files, &mut of_files, place.file),
                        (&mut seen_packages, &mut of_packages, place.package),
                    ] {
                        let seen = &mut seen[number as usize];
                        if *seen != look {
                            *seen = look;
                            let sum = sums.entry((process, number)).or_default();
                            count(&mut sum.cpu_total_ns, weight);
                        }
                    }
                }
                let caller = { recording.stacks.get(id.0 as usize) }.and_then(|s| s.caller);
                at = caller.filter(|caller| *caller < id);
            }
        }
        // Files of each package, in each process.
        let package_of: Map<u32, u32> = { places.values().flatten() }
            .map(|place| (place.file, place.package))
            .collect();
        let mut files_of: Map<(ProcessId, u32), u64> = Map::default();
        for (process, file) in of_files.keys() {
            if let Some(package) = package_of.get(file) {
                count(files_of.entry((*process, *package)).or_default(), 1);
            }
        }
        for part in parts(of_files, &files.list, |_| 1) {
            if let Some(run) = runs.get_mut(run_of(part.process)) {
                run.files.push(part);
            }
        }
        for part in parts(of_packages, &packages.list, |key| {
            files_of.get(&key).copied().unwrap_or_default()
        }) {
            if let Some(run) = runs.get_mut(run_of(part.process)) {
                run.packages.push(part);
            }
        }
        runs
    }
}

/// By run: scripts whose functions are of several files, or of one of another package (what a bundler splits off of a bundle may be a single file), as far as
/// events of that run show: what other runs of the recording saw changes nothing.
fn bundles(
    recording: &Recording,
    scripts: &Scripts,
    run_of: &dyn Fn(ProcessId) -> usize,
) -> BTreeSet<(usize, ScriptId)> {
    let has_maps = { recording.frames.iter() }.any(|frame| frame.original.is_some());
    let mut bundles = BTreeSet::new();
    if !has_maps {
        return bundles;
    }
    let mut first: Map<(usize, ScriptId), NameId> = Map::default();
    let mut reached: Map<(usize, StackId), ()> = Map::default();
    let mut see = |process: ProcessId, stack: Option<StackId>| {
        let run = run_of(process);
        let mut at = stack;
        while let Some(id) = at
            && reached.insert((run, id), ()).is_none()
            && let Some(stack) = recording.stacks.get(id.0 as usize)
        {
            at = stack.caller.filter(|caller| *caller < id);
            let frame = recording.frames.get(stack.frame.0 as usize);
            let Some(frame) = frame.filter(|frame| frame.kind == FrameKind::JavaScript) else {
                continue;
            };
            if let Some(original) = frame.original
                && let Some(script) = frame.file.and_then(|file| scripts.known(file))
            {
                let is_one_of_several =
                    *first.entry((run, script)).or_insert(original.file) != original.file;
                let path = &scripts.get(script).path;
                if is_one_of_several || is_of_another_package(recording.name(original.file), path) {
                    bundles.insert((run, script));
                }
            }
        }
    };
    macro_rules! look {
        ($($events:ident),*) => {$(
            for event in &recording.$events {
                see(event.process, event.stack);
            }
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
        waits,
        continuations
    );
    bundles
}

/// Whether a file that a script was made of is of a package that the script itself is not of.
pub fn is_of_another_package(original: &[u8], script: &[u8]) -> bool {
    let package = installed_directory(original);
    package.is_some() && package != installed_directory(script)
}

/// Whether a source map names by this what a bundler itself added: webpack's own code, and its modules that only `require` one of Node's.
pub fn is_of_bundler(original: &[u8]) -> bool {
    let has = |part: &[u8]| original.windows(part.len()).any(|window| window == part);
    original.ends_with(b"/webpack/bootstrap") || has(b"/webpack/runtime/") || has(b"/external ")
}

fn parts<T: Clone + Ord>(
    sums: Sums,
    list: &[(ScriptId, T)],
    files: impl Fn((ProcessId, u32)) -> u64,
) -> Vec<Part<T>> {
    let mut parts: Vec<Part<T>> = { sums.into_iter() }
        .filter_map(|((process, number), sum)| {
            let (bundle, part) = list.get(number as usize)?.clone();
            Some(Part {
                process,
                bundle,
                part,
                files: files((process, number)),
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
