//! What a bundle is made of: a script that a bundler (esbuild, webpack, Rollup …) made of many files is one module to Node. Its source map tells of which
//! file each function is, and so of which package.
//!
//! An event is of the file of the innermost function of the program on its stack, or where the request was made that led to it, as in
//! [`Module::caused`](super::Module::caused). How long each file's body ran is not known, for nothing was loaded: CPU samples tell what it took.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::costs::Costs;
use super::package::installed_directory;
use super::script::{Script, ScriptId, Scripts};
use super::{run_of, stacks_of_events};
use crate::breakdown::count;
use crate::fast::Map;
use crate::recording::{Frame, FrameKind, NameId, ProcessId, Recording, StackId};

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

/// Finds the scripts that are bundles, each known by a key: their functions are of several files, or of one of another package. What a bundler splits off of a
/// bundle may be a single file; what was made of one file of its own (TypeScript) is none. So are scripts that evaluate files (webpack's `eval`, Vite's module runner).
#[derive(Clone, Debug, Default)]
pub struct Bundles<K> {
    first: BTreeMap<K, NameId>,
    found: BTreeSet<K>,
}

impl<K: Copy + Ord> Bundles<K> {
    /// Looks at a frame of the script with this key, which has this path.
    pub fn see(&mut self, recording: &Recording, key: K, frame: &Frame, path: &[u8]) {
        let Some(original) = frame.original else {
            return;
        };
        let first = *self.first.entry(key).or_insert(original.file);
        let name = recording.name(original.file);
        if first != original.file
            || is_of_another_package(name, path)
            || frame.is_evaluated() && name.contains(&b'/')
        {
            self.found.insert(key);
        }
    }

    /// Their keys.
    pub fn found(self) -> BTreeSet<K> {
        self.found
    }
}

/// Whether a file that a script was made of is of a package that the script itself is not of.
fn is_of_another_package(original: &[u8], script: &[u8]) -> bool {
    let package = installed_directory(original);
    package.is_some() && package != installed_directory(script)
}

/// Whether a source map names by this what a bundler itself added: webpack's own code (`webpack://app/webpack/runtime/ensure chunk`, no file has such a name), and
/// its modules that only `require` one of Node's (`webpack://app/external node-commonjs "fs"`).
pub fn is_of_bundler(original: &[u8]) -> bool {
    let end = original.iter().position(|&byte| byte == b'?');
    let name = &original[..end.unwrap_or(original.len())];
    let behind = |mark: &[u8]| {
        let at = name.windows(mark.len()).rposition(|part| part == mark)?;
        Some(&name[at + mark.len()..])
    };
    name.ends_with(b"/webpack/bootstrap")
        || behind(b"/webpack/runtime/").is_some_and(|rest| !rest.contains(&b'.'))
        || behind(b"/external ").is_some_and(|rest| rest.ends_with(b"\""))
}

/// By run: the bundles, as far as events of that run show them. What other runs of the recording saw changes nothing.
fn bundles_of_runs(recording: &Recording, scripts: &Scripts) -> BTreeSet<(usize, ScriptId)> {
    let mut bundles = Bundles::default();
    if { recording.frames.iter() }.all(|frame| frame.original.is_none()) {
        return bundles.found();
    }
    let mut reached: Map<(usize, StackId), ()> = Map::default();
    let mut see = |process: ProcessId, stack: Option<StackId>| {
        let run = run_of(recording, process);
        let mut at = stack;
        while let Some(id) = at
            && reached.insert((run, id), ()).is_none()
            && let Some(stack) = recording.stacks.get(id.0 as usize)
        {
            at = stack.caller.filter(|caller| *caller < id);
            let frame = recording.frames.get(stack.frame.0 as usize);
            if let Some(frame) = frame.filter(|frame| frame.kind == FrameKind::JavaScript)
                && let Some(script) = frame.file.and_then(|file| scripts.known(file))
            {
                bundles.see(recording, (run, script), frame, &scripts.get(script).path);
            }
        }
    };
    stacks_of_events(recording, &mut see);
    for continuation in &recording.continuations {
        see(continuation.process, continuation.stack);
    }
    bundles.found()
}

/// A file of a bundle, by its number in [`Places`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct File(u32);

/// A package in a bundle, likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Package(u32);

/// What a frame says of where it is in a bundle.
#[derive(Clone, Copy)]
enum Stands {
    /// Nothing: it is no JavaScript of the program, and is of who calls it.
    NoWhere,
    /// In what the bundler added to this bundle, which is of who calls it from the same one.
    Added(ScriptId),
    /// In a file of a bundle.
    In(File),
    /// Not in a bundle.
    Outside,
}

/// The files and packages of all bundles, and where each frame stands.
struct Places<'a> {
    recording: &'a Recording,
    files: Vec<(ScriptId, NameId)>,
    /// By file.
    package_of: Vec<Package>,
    packages: Vec<(ScriptId, Option<Vec<u8>>)>,
    of_frame: Vec<Stands>,
}

impl<'a> Places<'a> {
    fn new(recording: &'a Recording, scripts: &Scripts, bundles: &BTreeSet<ScriptId>) -> Self {
        let mut places = Places {
            recording,
            files: Vec::new(),
            package_of: Vec::new(),
            packages: Vec::new(),
            of_frame: Vec::with_capacity(recording.frames.len()),
        };
        // `None`: a bundler added it.
        let mut files: Map<(ScriptId, NameId), Option<File>> = Map::default();
        let mut packages: BTreeMap<(ScriptId, Option<Vec<u8>>), Package> = BTreeMap::new();
        for frame in &recording.frames {
            let script = frame.file.and_then(|file| scripts.known(file));
            let script = script.filter(|_| frame.kind == FrameKind::JavaScript);
            let script = script.map(|script| (script, scripts.get(script)));
            let stands = match script.filter(|(_, script)| !script.is_builtin()) {
                None => Stands::NoWhere,
                Some((bundle, _)) if !bundles.contains(&bundle) => Stands::Outside,
                Some((bundle, script)) => {
                    let file = frame.original.and_then(|original| {
                        let key = (bundle, original.file);
                        let add = || places.add(key, script, frame, &mut packages);
                        *files.entry(key).or_insert_with(add)
                    });
                    file.map_or(Stands::Added(bundle), Stands::In)
                }
            };
            places.of_frame.push(stands);
        }
        places
    }

    /// Gives a file its number, if it is one that the bundle was made of.
    fn add(
        &mut self,
        file: (ScriptId, NameId),
        bundle: &Script,
        frame: &Frame,
        known: &mut BTreeMap<(ScriptId, Option<Vec<u8>>), Package>,
    ) -> Option<File> {
        let path = self.recording.name(file.1);
        if is_of_bundler(path) {
            return None;
        }
        // What a bundle in a package was made of is of that package, wherever it lay once; but not the program's files that it evaluates.
        let is_elsewhere = frame.is_evaluated() && path.starts_with(b"/");
        let around = || installed_directory(&bundle.path).filter(|_| !is_elsewhere);
        let directory = installed_directory(path).or_else(around);
        let packages = &mut self.packages;
        let package = (file.0, directory.map(<[u8]>::to_vec));
        let package = *known.entry(package).or_insert_with_key(|package| {
            packages.push(package.clone());
            Package(packages.len() as u32 - 1)
        });
        self.files.push(file);
        self.package_of.push(package);
        Some(File(self.files.len() as u32 - 1))
    }

    fn bundle(&self, file: File) -> ScriptId {
        self.files[file.0 as usize].0
    }

    fn package(&self, file: File) -> Package {
        self.package_of[file.0 as usize]
    }

    /// Where the innermost frame of a stack stands.
    fn of(&self, stack: StackId) -> Stands {
        let stack = self.recording.stacks.get(stack.0 as usize);
        let frame = stack.and_then(|stack| self.of_frame.get(stack.frame.0 as usize));
        frame.copied().unwrap_or(Stands::NoWhere)
    }

    /// By stack: the file of the innermost function of the program, if that is in a bundle.
    fn of_stacks(&self) -> Vec<Option<File>> {
        let stacks = &self.recording.stacks;
        let mut files: Vec<Option<File>> = Vec::with_capacity(stacks.len());
        for (index, stack) in stacks.iter().enumerate() {
            // A caller has a lower index.
            let around = stack.caller.and_then(|caller| files.get(caller.0 as usize));
            let around = around.copied().flatten();
            files.push(match self.of(StackId(index as u32)) {
                Stands::NoWhere => around,
                Stands::Added(bundle) => around.filter(|file| self.bundle(*file) == bundle),
                Stands::In(file) => Some(file),
                Stands::Outside => None,
            });
        }
        files
    }
}

/// What is summed up for a part.
#[derive(Default)]
struct Sum {
    caused: Costs,
    cpu_total_ns: u64,
}

/// What the parts of all bundles did.
struct Adding<'a> {
    recording: &'a Recording,
    places: &'a Places<'a>,
    bundles: &'a BTreeSet<(usize, ScriptId)>,
    told: &'a dyn Fn(ProcessId) -> bool,
    of_files: Map<(ProcessId, File), Sum>,
    of_packages: Map<(ProcessId, Package), Sum>,
    /// CPU time of samples by their stacks, of which many are the same.
    weights: Map<(ProcessId, StackId), u64>,
}

impl Adding<'_> {
    /// Whether a file is told of in a process: what one run sees as a bundle may be none to another.
    fn is_told(&self, process: ProcessId, file: File) -> bool {
        let key = (run_of(self.recording, process), self.places.bundle(file));
        (self.told)(process) && self.bundles.contains(&key)
    }

    /// Gives costs to a file, and to its package.
    fn give(&mut self, process: ProcessId, file: Option<File>, costs: &Costs) {
        if let Some(file) = file.filter(|file| self.is_told(process, *file)) {
            let package = self.places.package(file);
            let of_file = self.of_files.entry((process, file)).or_default();
            of_file.caused.add(costs);
            let of_package = self.of_packages.entry((process, package)).or_default();
            of_package.caused.add(costs);
        }
    }

    /// All events, and what asynchronous requests led to without a function of the program on its own stack, by where they were made.
    fn events(&mut self, followed: Vec<(ProcessId, StackId, Costs)>) {
        let recording = self.recording;
        let of_stacks = self.places.of_stacks();
        let file_of = |stack: Option<StackId>| of_stacks.get(stack?.0 as usize).copied().flatten();
        macro_rules! take {
            ($($events:ident),*) => {$(
                for event in &recording.$events {
                    self.give(event.process, file_of(event.stack), &Costs::from(event));
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
            self.give(access.process, file_of(access.stack), &costs);
        }
        let one = Costs {
            lookups: 1,
            ..Costs::default()
        };
        for lookup in &recording.lookups {
            self.give(lookup.process, file_of(lookup.stack), &one);
        }
        for sample in &recording.samples {
            if let Some(stack) = sample.stack {
                self.weigh(sample.process, stack, sample.weight.0);
            }
        }
        for (process, stack, costs) in followed {
            self.give(process, file_of(Some(stack)), &costs);
            self.weigh(process, stack, costs.cpu_ns);
        }
    }

    fn weigh(&mut self, process: ProcessId, stack: StackId, cpu_ns: u64) {
        if cpu_ns > 0 {
            count(self.weights.entry((process, stack)).or_default(), cpu_ns);
        }
    }

    /// CPU time to all files and packages that have a function on a stack, once each.
    fn totals(&mut self) {
        let mut last_of_file = vec![0u32; self.places.files.len()];
        let mut last_of_package = vec![0u32; self.places.packages.len()];
        let weights = std::mem::take(&mut self.weights);
        for (number, ((process, stack), weight)) in (1..).zip(weights) {
            let is_first = |last: &mut u32| std::mem::replace(last, number) != number;
            let mut at = Some(stack);
            while let Some(id) = at {
                if let Stands::In(file) = self.places.of(id)
                    && self.is_told(process, file)
                {
                    let package = self.places.package(file);
                    if is_first(&mut last_of_file[file.0 as usize]) {
                        let sum = self.of_files.entry((process, file)).or_default();
                        count(&mut sum.cpu_total_ns, weight);
                    }
                    if is_first(&mut last_of_package[package.0 as usize]) {
                        let sum = self.of_packages.entry((process, package)).or_default();
                        count(&mut sum.cpu_total_ns, weight);
                    }
                }
                let stack = self.recording.stacks.get(id.0 as usize);
                let caller = stack.and_then(|stack| stack.caller);
                at = caller.filter(|caller| *caller < id);
            }
        }
    }
}

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
        let bundles = bundles_of_runs(recording, scripts);
        if bundles.is_empty() {
            return runs;
        }
        let of_any_run = bundles.iter().map(|(_, script)| *script).collect();
        let places = Places::new(recording, scripts, &of_any_run);
        let mut adding = Adding {
            recording,
            places: &places,
            bundles: &bundles,
            told,
            of_files: Map::default(),
            of_packages: Map::default(),
            weights: Map::default(),
        };
        adding.events(followed);
        adding.totals();
        let Adding {
            of_files,
            of_packages,
            ..
        } = adding;
        let mut files_of: Map<(ProcessId, Package), u64> = Map::default();
        for (process, file) in of_files.keys() {
            let key = (*process, places.package(*file));
            count(files_of.entry(key).or_default(), 1);
        }
        let files = of_files.into_iter().map(|((process, file), sum)| {
            let (bundle, name) = places.files[file.0 as usize];
            Part::new(process, bundle, name, 1, sum)
        });
        for part in in_order(files) {
            if let Some(run) = runs.get_mut(run_of(recording, part.process)) {
                run.files.push(part);
            }
        }
        let packages = of_packages.into_iter().map(|(key, sum)| {
            let (bundle, directory) = places.packages[key.1.0 as usize].clone();
            let files = files_of.get(&key).copied().unwrap_or_default();
            Part::new(key.0, bundle, directory, files, sum)
        });
        for part in in_order(packages) {
            if let Some(run) = runs.get_mut(run_of(recording, part.process)) {
                run.packages.push(part);
            }
        }
        runs
    }
}

impl<T> Part<T> {
    fn new(process: ProcessId, bundle: ScriptId, part: T, files: u64, sum: Sum) -> Part<T> {
        Part {
            process,
            bundle,
            part,
            files,
            caused: sum.caused,
            cpu_total_ns: sum.cpu_total_ns,
        }
    }
}

/// What took most CPU time first, then what called C++ most often.
fn in_order<T: Ord>(parts: impl Iterator<Item = Part<T>>) -> Vec<Part<T>> {
    let mut parts: Vec<Part<T>> = parts.collect();
    parts.sort_by(|a, b| {
        let figures = |of: &Part<T>| Reverse((of.caused.cpu_ns, of.caused.crossings));
        (figures(a).cmp(&figures(b)))
            .then_with(|| (a.process, a.bundle, &a.part).cmp(&(b.process, b.bundle, &b.part)))
    });
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_bundler_adds_has_names_that_no_file_has() {
        for added in [
            "webpack://app/webpack/bootstrap",
            "/app/dist/webpack/bootstrap",
            "webpack:///webpack/bootstrap?1a2b",
            "webpack://app/webpack/runtime/define property getters",
            "webpack://app/external node-commonjs \"fs\"",
            "webpack://app/external \"fs/promises\"?35ab",
        ] {
            assert!(is_of_bundler(added.as_bytes()), "{added}");
        }
        for file in [
            "/media/external drive/app/src/a.js",
            "/media/external \"drive\"/app/src/a.js?x",
            "/app/src/webpack/runtime/index.ts",
            "/app/src/webpack/bootstrap.js",
            "webpack://app/./src/external.js",
            "/app/node_modules/webpack/lib/bootstrap",
        ] {
            assert!(!is_of_bundler(file.as_bytes()), "{file}");
        }
    }
}
