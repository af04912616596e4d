//! Who caused what, in the shape of the JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RunProfile;
use crate::breakdown::count;
use crate::modules::package::PackageKind;
use crate::modules::{Bucket, Costs, ModuleKind};
use crate::v8::Work;

/// A module that one thread of one process loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleProfile {
    /// Its index in the run's list; a requirer has a lower one than what it required.
    pub id: u32,
    /// Its file, or the name of its code where there is no file (`node:fs`, `[eval]`).
    pub path: String,
    /// The path's bytes in hexadecimal, only if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Query and fragment of an ES module's URL, from its `?` or `#` on.
    pub query: Option<String>,
    /// How it is loaded.
    pub kind: ModuleKind,
    /// One of Node's own that programs cannot load by name.
    pub internal: bool,
    /// In which process.
    pub pid: u32,
    /// By which thread; the main thread has the number of its process.
    pub thread: u32,
    /// Name of its package; `None` if it has none, or belongs to no package.
    pub package: Option<String>,
    /// Version of its package, as its package.json said at the end of the trace.
    pub package_version: Option<String>,
    /// Folder of its package; `None` for Node itself and for files that belong to no package.
    pub package_directory: Option<String>,
    /// Where its package lies.
    pub package_kind: PackageKind,
    /// Path of the module whose function or `import` asked for it first; `None`: Node itself did.
    pub requirer: Option<String>,
    /// `id` of that module.
    pub requirer_id: Option<u32>,
    /// The main script of its process.
    #[serde(default)]
    pub main_script: bool,
    /// How often it was loaded; 0 if that was not seen.
    pub loads: u32,
    /// First thing done to load it, since the exec of the main node process.
    pub start_ns: Option<i64>,
    /// Its body ran until this instant at least.
    pub end_earliest_ns: Option<i64>,
    /// Its body did not run any more at this instant; `None`: it ran until the end, or it has none.
    pub end_latest_ns: Option<i64>,
    /// Time to find its file.
    pub resolve_ns: u64,
    /// Time to read it.
    pub read_ns: u64,
    /// Time to compile it.
    pub compile_ns: u64,
    /// Time in its own code: its body, and its functions whenever they ran.
    pub execute_ns: u64,
    /// Of `execute_ns`: while no module's body ran, as in callbacks from the event loop.
    pub callback_ns: u64,
    /// Of `execute_ns`: calls of `require` and `require.resolve` that loaded nothing.
    pub vain_ns: u64,
    /// `resolve_ns` + `read_ns` + `compile_ns` + `execute_ns`.
    pub self_ns: u64,
    /// By how much `self_ns` can be wrong either way.
    pub uncertain_ns: u64,
    /// `self_ns` and that of all modules below it in the tree of requirers.
    pub total_ns: u64,
    /// As requirer: what its functions did, and Node because they asked for it.
    #[serde(flatten)]
    pub caused: Costs,
    /// As loaded: what was done to load this very file, whoever asked for it.
    pub loading: Costs,
    /// Of `caused`: what its own functions did while it loaded nothing. With `loading` that is what happened in its `self_ns`. Not in the JSON.
    #[serde(skip)]
    pub own: Costs,
}

/// A package: its modules, summed over all processes and threads of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageProfile {
    /// Name; `None` for files that belong to no package, or to one without a name.
    pub name: Option<String>,
    /// Version, as its package.json said at the end of the trace.
    pub version: Option<String>,
    /// Folder; `None` for Node itself and for files that belong to no package.
    pub directory: Option<String>,
    /// Where it lies.
    pub kind: PackageKind,
    /// Modules that were loaded, each once per thread.
    pub modules: u64,
    /// Sum of their `resolve_ns`.
    pub resolve_ns: u64,
    /// Sum of their `read_ns`.
    pub read_ns: u64,
    /// Sum of their `compile_ns`.
    pub compile_ns: u64,
    /// Sum of their `execute_ns`.
    pub execute_ns: u64,
    /// Sum of their `self_ns`.
    pub self_ns: u64,
    /// By how much that can be wrong either way.
    pub uncertain_ns: u64,
    /// `self_ns`, and that of all modules below its own in the tree of requirers, each once.
    pub total_ns: u64,
    /// As requirer.
    #[serde(flatten)]
    pub caused: Costs,
    /// As loaded.
    pub loading: Costs,
}

/// A file that a bundle was made of, as the bundle's source map tells: what its functions did in one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceProfile {
    /// `path` of the bundle's module.
    pub bundle: String,
    /// In which process.
    pub pid: u32,
    /// The file, as the source map names it.
    pub path: String,
    /// The path's bytes in hexadecimal, only if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Name of the package it is of, by its folder below a `node_modules`; `None`: it lies in none.
    pub package: Option<String>,
    /// That folder.
    pub package_directory: Option<String>,
    /// CPU time with a function of it on the stack: its own, and what it called.
    pub cpu_total_ns: u64,
    /// What its functions did, and Node because they asked for it.
    #[serde(flatten)]
    pub caused: Costs,
}

/// A package that files of a bundle are of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundledPackageProfile {
    /// `path` of the bundle's module.
    pub bundle: String,
    /// In which process.
    pub pid: u32,
    /// Its name, by its folder below a `node_modules`; `None`: files that lie in none, the program's own.
    pub name: Option<String>,
    /// That folder.
    pub directory: Option<String>,
    /// Files of it of which functions were seen.
    pub files: u64,
    /// CPU time with a function of it on the stack: its own, and what it called.
    pub cpu_total_ns: u64,
    /// What its functions did, and Node because they asked for it.
    #[serde(flatten)]
    pub caused: Costs,
}

/// Events and time that no module is to blame for, by where they went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideProfile {
    /// Where.
    pub bucket: Bucket,
    /// Time of the threads that run JavaScript.
    pub time_ns: u64,
    /// Events.
    #[serde(flatten)]
    pub costs: Costs,
}

/// CPU samples of a run, of all its processes and threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplesProfile {
    /// How many.
    pub count: u64,
    /// CPU samples asked for per second; `None` if none were.
    pub frequency_hz: Option<u32>,
    /// CPU time that they stand for.
    pub cpu_ns: u64,
    /// Of them, those whose stack is known to its outermost frame, 0 to 100. `None` without samples.
    pub complete_stacks_percent: Option<f64>,
    /// Of them, those with optimised code on the stack that may have inlined functions which are not shown, 0 to 100.
    /// `None` without samples.
    pub inlining_possible_percent: Option<f64>,
    /// What the threads did. Sums to `cpu_ns`.
    #[serde(default)]
    pub by_kind: CpuByKind,
}

/// CPU time of samples by what the threads did ([`Work`]). Each sample is of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuByKind {
    /// [`Work::JavaScript`].
    pub javascript_ns: u64,
    /// [`Work::NodeJavaScript`].
    pub node_javascript_ns: u64,
    /// [`Work::Builtins`].
    pub builtins_ns: u64,
    /// [`Work::WebAssembly`].
    #[serde(default)]
    pub webassembly_ns: u64,
    /// [`Work::InlineCacheMisses`].
    pub inline_cache_misses_ns: u64,
    /// [`Work::EagerCompilation`].
    pub eager_compilation_ns: u64,
    /// [`Work::LazyCompilation`].
    pub lazy_compilation_ns: u64,
    /// [`Work::BaselineCompilation`].
    pub baseline_compilation_ns: u64,
    /// [`Work::OptimizingCompilation`].
    pub optimizing_compilation_ns: u64,
    /// [`Work::WebAssemblyCompilation`].
    #[serde(default)]
    pub webassembly_compilation_ns: u64,
    /// [`Work::Deserialization`].
    pub deserialization_ns: u64,
    /// [`Work::GarbageCollection`].
    pub garbage_collection_ns: u64,
    /// [`Work::Native`].
    pub native_ns: u64,
    /// [`Work::Kernel`].
    pub kernel_ns: u64,
    /// [`Work::Tracing`].
    pub tracing_ns: u64,
    /// [`Work::Unknown`].
    pub unknown_ns: u64,
}

impl CpuByKind {
    /// Of one kind.
    pub fn of(&mut self, work: Work) -> &mut u64 {
        match work {
            Work::JavaScript => &mut self.javascript_ns,
            Work::NodeJavaScript => &mut self.node_javascript_ns,
            Work::Builtins => &mut self.builtins_ns,
            Work::WebAssembly => &mut self.webassembly_ns,
            Work::InlineCacheMisses => &mut self.inline_cache_misses_ns,
            Work::EagerCompilation => &mut self.eager_compilation_ns,
            Work::LazyCompilation => &mut self.lazy_compilation_ns,
            Work::BaselineCompilation => &mut self.baseline_compilation_ns,
            Work::OptimizingCompilation => &mut self.optimizing_compilation_ns,
            Work::WebAssemblyCompilation => &mut self.webassembly_compilation_ns,
            Work::Deserialization => &mut self.deserialization_ns,
            Work::GarbageCollection => &mut self.garbage_collection_ns,
            Work::Native => &mut self.native_ns,
            Work::Kernel => &mut self.kernel_ns,
            Work::Tracing => &mut self.tracing_ns,
            Work::Unknown => &mut self.unknown_ns,
        }
    }
}

/// How much of a run is known to be somebody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// Of all crossings: those in [`Bucket::NoStack`] and [`Bucket::Async`]. `None` without crossings or stacks.
    pub unattributed_crossings_percent: Option<f64>,
    /// The same of CPU samples.
    pub unattributed_samples_percent: Option<f64>,
}

impl PackageProfile {
    /// The packages of a list of modules, longest `self_ns` first. A requirer stands before what it required, at the index
    /// that its `id` tells.
    pub fn of_modules(modules: &[ModuleProfile]) -> Vec<PackageProfile> {
        let mut index: BTreeMap<(PackageKind, Option<String>), usize> = BTreeMap::new();
        let mut packages: Vec<PackageProfile> = Vec::new();
        let mut of_module = Vec::with_capacity(modules.len());
        for module in modules {
            let (kind, directory) = (module.package_kind, &module.package_directory);
            let at = *index.entry((kind, directory.clone())).or_insert_with(|| {
                packages.push(PackageProfile {
                    name: module.package.clone(),
                    version: module.package_version.clone(),
                    directory: directory.clone(),
                    kind,
                    ..PackageProfile::default()
                });
                packages.len() - 1
            });
            of_module.push(at);
            let package = &mut packages[at];
            count(&mut package.modules, 1);
            count(&mut package.resolve_ns, module.resolve_ns);
            count(&mut package.read_ns, module.read_ns);
            count(&mut package.compile_ns, module.compile_ns);
            count(&mut package.execute_ns, module.execute_ns);
            count(&mut package.self_ns, module.self_ns);
            count(&mut package.uncertain_ns, module.uncertain_ns);
            package.caused.add(&module.caused);
            package.loading.add(&module.loading);
        }
        let mut on_the_way = Vec::new();
        for (index, module) in modules.iter().enumerate() {
            // Each package on the way to the root once, however often the way comes through it.
            on_the_way.clear();
            let mut at = Some(index);
            while let Some(index) = at {
                let package = of_module[index];
                if !on_the_way.contains(&package) {
                    on_the_way.push(package);
                }
                let requirer = modules[index].requirer_id.map(|id| id as usize);
                at = requirer.filter(|&requirer| requirer < index);
            }
            for &package in &on_the_way {
                count(&mut packages[package].total_ns, module.self_ns);
            }
        }
        packages.sort_by(|a, b| {
            (b.self_ns.cmp(&a.self_ns))
                .then_with(|| a.name.cmp(&b.name))
                .then_with(|| a.directory.cmp(&b.directory))
        });
        packages
    }
}

impl RunProfile {
    /// The same with the modules and packages of one process only. What is nobody's is known of the whole run, not of a process.
    pub fn keep_modules_of(&mut self, pid: u32) {
        if self.processes.iter().any(|process| process.pid != pid) {
            self.outside.clear();
            self.attribution = Attribution::default();
        }
        let mut ids: BTreeMap<u32, u32> = BTreeMap::new();
        self.modules.retain(|module| module.pid == pid);
        for (id, module) in self.modules.iter_mut().enumerate() {
            ids.insert(module.id, id as u32);
            module.id = id as u32;
            module.requirer_id = module.requirer_id.and_then(|id| ids.get(&id).copied());
        }
        self.packages = PackageProfile::of_modules(&self.modules);
        self.sources.retain(|source| source.pid == pid);
        self.bundled_packages.retain(|package| package.pid == pid);
    }
}
