//! Every figure of the JSON by name, run by run: `crossings.total`, `packages[express].self_ns`,
//! `modules[./lib/a.js].crossings`.
//!
//! A [`Table`] holds the rows of one list (all packages, say) over all runs of both sides. What a run does not have counts as 0; what
//! it does not know as NaN.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::modules::package::PackageKind;
use crate::recording::{SUMS_FULL, is_gap};
use crate::report::{FileOperationProfile, ModuleProfile, RunProfile};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// Percent.
    Percent,
    /// Things.
    Count,
}

impl Unit {
    /// By the name of a field.
    pub fn of(field: &str) -> Unit {
        match field {
            _ if field.ends_with("_ns") || field.starts_with("milestones.") => Unit::Ns,
            _ if field.ends_with("_percent") => Unit::Percent,
            _ if field.contains("bytes") => Unit::Bytes,
            _ => Unit::Count,
        }
    }
}

/// A list of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum List {
    /// Figures of the run itself; their names are fields.
    Run,
    /// `phases`, by name.
    Phases,
    /// `crossings.callbacks`, by binding, function and kind.
    Callbacks,
    /// `crossings.to_js`.
    ToJs,
    /// `package_json.files`, by path.
    PackageJson,
    /// `serialization.functions`.
    SerializationFunctions,
    /// `serialization.callbacks`.
    SerializationCallbacks,
    /// `compile.scripts`, by path.
    Scripts,
    /// `modules`, by path.
    Modules,
    /// `packages`, by name, or folder where two have one name.
    Packages,
    /// `bundled_packages`, by name, or folder where two have one name; those of all bundles of a run together.
    BundledPackages,
    /// `outside`, by bucket.
    Outside,
    /// `losses`, by kind.
    Losses,
}

impl List {
    /// All.
    pub const ALL: [List; 13] = [
        List::Run,
        List::Phases,
        List::Callbacks,
        List::ToJs,
        List::PackageJson,
        List::SerializationFunctions,
        List::SerializationCallbacks,
        List::Scripts,
        List::Modules,
        List::Packages,
        List::BundledPackages,
        List::Outside,
        List::Losses,
    ];

    /// As in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            List::Run => "",
            List::Phases => "phases",
            List::Callbacks => "crossings.callbacks",
            List::ToJs => "crossings.to_js",
            List::PackageJson => "package_json.files",
            List::SerializationFunctions => "serialization.functions",
            List::SerializationCallbacks => "serialization.callbacks",
            List::Scripts => "compile.scripts",
            List::Modules => "modules",
            List::Packages => "packages",
            List::BundledPackages => "bundled_packages",
            List::Outside => "outside",
            List::Losses => "losses",
        }
    }

    /// The family of probes without which there is nothing of it.
    pub fn family(self) -> Option<&'static str> {
        match self {
            List::Run | List::Losses => None,
            List::Phases => Some("phases"),
            List::Callbacks | List::ToJs => Some("crossings"),
            List::PackageJson => Some("package-json"),
            List::SerializationFunctions | List::SerializationCallbacks => Some("serialization"),
            List::Scripts => Some("compile"),
            List::Modules | List::Packages | List::BundledPackages | List::Outside => None,
        }
    }

    /// Its fields, in the order of the values.
    pub fn fields(self) -> &'static [&'static str] {
        match self {
            List::Run => &[""],
            List::Phases => PHASE_FIELDS,
            List::Callbacks | List::ToJs => CALLBACK_FIELDS,
            List::PackageJson => PACKAGE_JSON_FIELDS,
            List::SerializationFunctions | List::SerializationCallbacks => SERIALIZATION_FIELDS,
            List::Scripts => SCRIPT_FIELDS,
            List::Modules => MODULE_FIELDS,
            List::Packages => PACKAGE_FIELDS,
            List::BundledPackages => BUNDLED_PACKAGE_FIELDS,
            List::Outside => OUTSIDE_FIELDS,
            List::Losses => &["count"],
        }
    }

    /// Index of a field.
    pub fn field(self, name: &str) -> Option<usize> {
        self.fields().iter().position(|field| *field == name)
    }
}

/// Fields of a struct: their names, and a function that gives their values.
macro_rules! fields {
    ($names:ident, $values:ident, $type:ty, $row:ident: $($field:literal => $value:expr),* $(,)?) => {
        const $names: &[&str] = &[$($field),*];
        fn $values($row: &$type) -> [f64; $names.len()] {
            [$($value as f64),*]
        }
    };
}

fn known(value: Option<u64>) -> f64 {
    value.map_or(f64::NAN, |value| value as f64)
}

fn instant(value: Option<i64>) -> f64 {
    value.map_or(f64::NAN, |value| value as f64)
}

fields!(PHASE_FIELDS, phase, crate::report::Phase, p:
    "duration_ns" => p.end_ns.saturating_sub(p.start_ns),
    "crossings" => p.crossings,
    "crossings_self_ns" => p.crossings_self_ns,
    "lookups" => p.lookups,
    "stats" => p.stats,
    "opens" => p.opens,
    "reads" => p.reads,
    "files_ns" => p.files_ns,
    "serializations" => p.serializations,
    "serialization_ns" => p.serialization_ns,
    "compilations" => p.compilations,
    "compile_ns" => p.compile_ns,
);
fields!(CALLBACK_FIELDS, callback, crate::report::CallbackProfile, c:
    "calls" => c.calls,
    "timed_calls" => c.timed_calls,
    "unfinished" => c.unfinished,
    "total_ns" => known(c.total_ns),
    "self_ns" => known(c.self_ns),
    "total_corrected_ns" => known(c.total_corrected_ns),
);
fields!(PACKAGE_JSON_FIELDS, package_json, crate::report::PackageJsonFile, f:
    "lookups" => f.lookups,
    "opens" => f.opens,
    "opens_failed" => f.opens_failed,
    "reads" => f.reads,
    "stats" => f.stats,
    "bytes" => f.bytes,
    "total_ns" => f.total_ns,
);
fields!(SERIALIZATION_FIELDS, serialization_function, crate::report::SerializationFunction, s:
    "calls" => s.calls,
    "bytes" => s.bytes,
    "total_ns" => s.total_ns,
    "self_ns" => s.self_ns,
);
fields!(SCRIPT_FIELDS, script, crate::report::Script, s:
    "compilations" => s.compilations,
    "cached" => if s.cached { s.compilations } else { 0 },
    "total_ns" => known(s.total_ns),
    "self_ns" => known(s.self_ns),
);

/// The same fields of events for modules, packages and what is outside.
macro_rules! with_costs {
    ($names:ident, $values:ident, $type:ty, $row:ident: [$($field:literal => $value:expr),*] $of:expr) => {
        fields!($names, $values, $type, $row: $($field => $value,)*
            "crossings" => $of.crossings,
            "crossings_self_ns" => $of.crossings_self_ns,
            "package_json_lookups" => $of.lookups,
            "stats" => $of.stats,
            "opens" => $of.opens,
            "reads" => $of.reads,
            "bytes_read" => $of.bytes_read,
            "files_ns" => $of.files_ns,
            "serializations" => $of.serializations,
            "serialization_bytes" => $of.serialization_bytes,
            "serialization_ns" => $of.serialization_ns,
            "samples" => $of.samples,
            "cpu_ns" => $of.cpu_ns,
            "blocked_ns" => $of.blocked_ns,
        );
    };
    ($names:ident, $values:ident, $type:ty, $row:ident: [$($field:literal => $value:expr),*] $of:expr, $loading:expr) => {
        with_costs!($names, $values, $type, $row: [$($field => $value,)*
            "loading.crossings" => $loading.crossings,
            "loading.crossings_self_ns" => $loading.crossings_self_ns,
            "loading.package_json_lookups" => $loading.lookups,
            "loading.stats" => $loading.stats,
            "loading.opens" => $loading.opens,
            "loading.reads" => $loading.reads,
            "loading.bytes_read" => $loading.bytes_read,
            "loading.files_ns" => $loading.files_ns,
            "loading.serializations" => $loading.serializations,
            "loading.serialization_bytes" => $loading.serialization_bytes,
            "loading.serialization_ns" => $loading.serialization_ns,
            "loading.samples" => $loading.samples,
            "loading.cpu_ns" => $loading.cpu_ns,
            "loading.blocked_ns" => $loading.blocked_ns] $of);
    };
}
with_costs!(MODULE_FIELDS, module, crate::report::ModuleProfile, m: [
    "modules" => 1u64,
    "loads" => m.loads,
    "resolve_ns" => m.resolve_ns,
    "read_ns" => m.read_ns,
    "compile_ns" => m.compile_ns,
    "execute_ns" => m.execute_ns,
    "callback_ns" => m.callback_ns,
    "vain_ns" => m.vain_ns,
    "self_ns" => m.self_ns,
    "uncertain_ns" => m.uncertain_ns,
    "total_ns" => m.total_ns
] m.caused, m.loading);
with_costs!(PACKAGE_FIELDS, package, crate::report::PackageProfile, p: [
    "modules" => p.modules,
    "resolve_ns" => p.resolve_ns,
    "read_ns" => p.read_ns,
    "compile_ns" => p.compile_ns,
    "execute_ns" => p.execute_ns,
    "self_ns" => p.self_ns,
    "uncertain_ns" => p.uncertain_ns,
    "total_ns" => p.total_ns
] p.caused, p.loading);
with_costs!(BUNDLED_PACKAGE_FIELDS, bundled_package, crate::report::BundledPackageProfile, p: [
    "cpu_total_ns" => p.cpu_total_ns
] p.caused);
with_costs!(OUTSIDE_FIELDS, outside, crate::report::OutsideProfile, o: [
    "time_ns" => o.time_ns
] o.costs);

/// The family of probes that a field is of, where that is not its list's.
fn family_of(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix("loading.").unwrap_or(name);
    let kernel = [
        "stats",
        "opens",
        "reads",
        "bytes",
        "total_ns",
        "repeated_opens",
    ];
    let family = match name.split_once('.') {
        Some(("milestones", _)) => "phases",
        Some(("crossings", _)) => "crossings",
        // What Node asked for, and what the kernel saw.
        Some(("package_json", field)) if kernel.iter().any(|word| field.starts_with(word)) => {
            "files"
        }
        Some(("package_json", _)) => "package-json",
        Some(("files", _)) => "files",
        Some(("serialization", _)) => "serialization",
        Some(("compile", _)) => "compile",
        Some(("samples", _)) => "cpu",
        Some(_) => return None,
        None => match name {
            "crossings" | "crossings_self_ns" => "crossings",
            "package_json_lookups" | "lookups" => "package-json",
            "stats" | "opens" | "opens_failed" | "reads" | "bytes_read" | "files_ns"
            | "file_operations" => "files",
            "serializations" | "serialization_bytes" | "serialization_ns" => "serialization",
            "compilations" | "compile_ns" => "compile",
            "samples" | "cpu_ns" | "cpu_total_ns" => "cpu",
            "blocked_ns" => "off-cpu",
            _ => return None,
        },
    };
    Some(family)
}

/// Whether a figure varies with the machine, whatever the program does: times, memory, and CPU samples, which are times.
pub(crate) fn varies_with_machine(figure: &str, unit: Unit) -> bool {
    // Behind the name of a row, which can be any.
    let field = figure.rsplit(']').next().unwrap_or_default();
    let is_of_samples = field.starts_with("samples.")
        || field.ends_with(".samples")
        || field.ends_with("samples_percent");
    unit == Unit::Ns || figure.starts_with("time.") || is_of_samples
}

/// The families of probes that a field needs.
fn families(list: List, name: &str) -> [Option<&'static str>; 2] {
    match list {
        List::Run => [family_of(name), None],
        list => [list.family(), family_of(name)],
    }
}

/// What a run recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// It was probed.
    probed: bool,
    /// Calls and system calls were counted, not timed.
    counts: bool,
    /// It has modules.
    modules: bool,
    /// Families that were off, or failed.
    missing: Vec<String>,
    /// Families of which only the figures of the run are left.
    thinned: Vec<String>,
    /// Something was not seen: each count can be too low.
    gaps: bool,
    /// Calls were not summed: counts of crossings and serializations can be too low.
    sums_full: bool,
}

impl Recorded {
    pub(crate) fn of(run: &RunProfile) -> Recorded {
        let with_state = |states: &[&str]| {
            let of = (run.families.iter()).filter(|family| states.contains(&family.state.as_str()));
            of.map(|family| family.name.clone()).collect::<Vec<_>>()
        };
        let lost = || {
            run.losses
                .iter()
                .filter(|(kind, count)| is_gap(kind, **count))
        };
        let is_incomplete = run.processes.iter().any(|p| p.incomplete.is_some());
        Recorded {
            gaps: is_incomplete || lost().any(|(kind, _)| kind != SUMS_FULL),
            sums_full: lost().any(|(kind, _)| kind == SUMS_FULL),
            probed: run.mode != crate::groups::BARE,
            counts: run.mode == crate::groups::COUNT_MODE,
            modules: !run.modules.is_empty(),
            missing: with_state(&["off", "failed"]),
            thinned: with_state(&[crate::thin::THINNED]),
        }
    }

    /// Whether 0 in a field of the JSON is a figure: else there were no probes for it, it went when the run was thinned, or it is a time that
    /// count mode does not take. `of_process`: the field is of a process, not of the run.
    pub(crate) fn knows(&self, list: List, name: &str, of_process: bool) -> bool {
        // A path and operation has the time of a system call.
        let of_path = (list == List::Run && name == "total_ns").then_some("files");
        let families = [list.family(), family_of(name), of_path];
        if { families.into_iter().flatten() }.any(|family| self.untimed(family, name))
            || self.lacks_in_thinned(list, name)
        {
            return false;
        }
        let of_run = match (list, name) {
            (List::Run, "repeated_lookups") => Some("package-json"),
            (List::Run, "cached_compilations") => Some("compile"),
            // Known by their stacks.
            (List::Run, "modules" | "packages") if self.probed => return self.modules,
            _ => family_of(name),
        };
        // The figures of the run itself are kept.
        let is_thinned = |family: &str| {
            (of_process || list != List::Run)
                && self.thinned.iter().any(|thinned| thinned == family)
        };
        let is_missing = |family: &str| self.missing.iter().any(|missing| missing == family);
        match of_run {
            Some(family) => self.probed && !is_missing(family) && !is_thinned(family),
            None => self.probed || !matches!(name, "modules" | "packages"),
        }
    }

    /// Whether a count can be more than what was seen. What the kernel tells of whole runs, and what says that something is missing, is so
    /// all the same.
    fn is_low(&self, list: List, name: &str) -> bool {
        if !self.probed || !self.gaps && !self.sums_full {
            return false;
        }
        let is_seen = list == List::Losses || list == List::Run && name.starts_with("time.");
        let summed = ["crossings", "serialization"];
        let of_sums = { families(list, name).into_iter().flatten() }.any(|of| summed.contains(&of));
        !is_seen && (self.gaps || of_sums)
    }

    fn has(&self, list: List, name: &str) -> bool {
        if self.lacks_in_thinned(list, name) {
            return false;
        }
        let families = families(list, name);
        let missing = |family: &str| {
            let thinned = list != List::Run && self.thinned.iter().any(|thinned| thinned == family);
            thinned || self.missing.iter().any(|missing| missing == family)
        };
        let of_modules = matches!(
            list,
            List::Modules | List::Packages | List::BundledPackages | List::Outside
        ) || matches!(name, "modules.count" | "packages.count");
        (self.probed || list == List::Run)
            && (self.modules || !of_modules)
            && !(families.into_iter().flatten())
                .any(|family| missing(family) || self.untimed(family, name))
    }

    /// A figure of single calls, of which a run that was thinned has the sums.
    fn lacks_in_thinned(&self, list: List, name: &str) -> bool {
        let of_callbacks = matches!(list, List::Callbacks | List::ToJs);
        of_callbacks && name == "unfinished" && !self.thinned.is_empty()
    }

    /// A time that count mode does not take.
    fn untimed(&self, family: &str, name: &str) -> bool {
        let timed_in_full = ["crossings", "files", "package-json", "serialization"];
        self.counts && name.ends_with("_ns") && timed_in_full.contains(&family)
    }
}

/// Rows of one list over all runs.
#[derive(Clone, Debug)]
pub struct Table {
    /// Of which list.
    pub list: List,
    /// Names of the rows.
    pub names: Vec<String>,
    index: HashMap<String, usize>,
    /// By run: where its values are in a row. A bare run has figures of the run, and nothing in any other list.
    places: Vec<Option<usize>>,
    /// How many runs have a place.
    placed: usize,
    /// By row: place by place, field by field.
    values: Vec<Vec<f64>>,
    /// What a run has that does not have the row.
    absent: f64,
    /// By run: what was recorded.
    recorded: Vec<Recorded>,
}

impl Table {
    fn new(list: List, recorded: &[Recorded]) -> Table {
        let mut placed = 0;
        let mut place = |recorded: &Recorded| {
            let has_rows = list == List::Run || recorded.probed;
            has_rows.then(|| {
                placed += 1;
                placed - 1
            })
        };
        let places = recorded.iter().map(&mut place).collect();
        Table {
            recorded: recorded.to_vec(),
            list,
            names: Vec::new(),
            index: HashMap::new(),
            places,
            placed,
            values: Vec::new(),
            absent: if list == List::Run { f64::NAN } else { 0.0 },
        }
    }

    fn row(&mut self, name: &str) -> usize {
        if let Some(row) = self.index.get(name) {
            return *row;
        }
        let row = self.names.len();
        self.names.push(name.to_owned());
        self.index.insert(name.to_owned(), row);
        let fields = self.list.fields().len();
        self.values.push(vec![self.absent; self.placed * fields]);
        row
    }

    /// Adds to the row's values: several rows of the JSON can have one name. Gives the row.
    fn add(&mut self, name: &str, run: usize, values: &[f64]) -> usize {
        let row = self.row(name);
        let Some(place) = self.places.get(run).copied().flatten() else {
            return row;
        };
        let begin = place * values.len();
        for (sum, value) in self.values[row][begin..].iter_mut().zip(values) {
            // What is not known of a row makes it unknown, unless something is known of another one of its name.
            let told = |of: f64| !of.is_nan() && (of != 0.0 || self.absent.is_nan());
            *sum = match (told(*sum), value.is_nan()) {
                (true, true) => *sum,
                (true, false) => *sum + value,
                (false, _) if sum.is_nan() && *value == 0.0 && !self.absent.is_nan() => *sum,
                (false, _) => *value,
            };
        }
        row
    }

    /// The row of a name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// What a field is called within its list.
    fn field(&self, row: usize, field: usize) -> &str {
        match self.list {
            List::Run => self.names.get(row).map_or("", String::as_str),
            list => list.fields().get(field).copied().unwrap_or_default(),
        }
    }

    /// A value; NaN if it is not known.
    pub fn value(&self, row: usize, run: usize, field: usize) -> f64 {
        let fields = self.list.fields().len();
        let name = self.field(row, field);
        let recorded = self.recorded.get(run);
        if !recorded.is_some_and(|recorded| recorded.has(self.list, name)) {
            return f64::NAN;
        }
        let place = self.places.get(run).copied().flatten();
        let value = (place.zip(self.values.get(row)))
            .and_then(|(place, values)| values.get(place * fields + field));
        value.copied().unwrap_or(f64::NAN)
    }

    /// Whether a value is a count that can be too low: something of the run was not seen.
    pub fn is_low(&self, row: usize, run: usize, field: usize) -> bool {
        let recorded = self.recorded.get(run);
        recorded.is_some_and(|run| run.is_low(self.list, self.field(row, field)))
            && self.unit(row, field) != Unit::Ns
    }

    /// The values of several runs.
    pub fn values(&self, row: usize, field: usize, runs: &[usize]) -> Vec<f64> {
        runs.iter()
            .map(|run| self.value(row, *run, field))
            .collect()
    }

    /// What a figure is called.
    pub fn figure(&self, row: usize, field: usize) -> String {
        let name = self.names.get(row).map_or("", String::as_str);
        let field = self.list.fields().get(field).copied().unwrap_or_default();
        match self.list {
            List::Run => name.to_owned(),
            // A list of numbers.
            List::Losses => format!("losses[{name}]"),
            list => format!("{}[{name}].{field}", list.name()),
        }
    }

    /// What a figure counts.
    pub fn unit(&self, row: usize, field: usize) -> Unit {
        match self.list {
            List::Run => Unit::of(self.names.get(row).map_or("", String::as_str)),
            list => Unit::of(list.fields().get(field).copied().unwrap_or_default()),
        }
    }
}

/// Parts of the figures of a module that the JSON does not tell: causes are told by them, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Of `loading.stats`: those of package.json files.
    LoadingStats,
    /// Of `loading.opens`.
    LoadingOpens,
    /// Of `stats`.
    CausedStats,
    /// Of `opens`.
    CausedOpens,
    /// Of `self_ns`: CPU time in the garbage collector, ns.
    Collections,
    /// Of `self_ns`: time off the CPU with something to do, ns.
    Blocked,
}

impl Part {
    const COUNT: usize = Part::Blocked as usize + 1;

    /// The field that it is a part of, or that is recorded where it is.
    fn field(self) -> &'static str {
        match self {
            Part::LoadingStats => "loading.stats",
            Part::LoadingOpens => "loading.opens",
            Part::CausedStats => "stats",
            Part::CausedOpens => "opens",
            Part::Collections => "cpu_ns",
            Part::Blocked => "blocked_ns",
        }
    }

    /// All of a module, in their order.
    fn values(module: &ModuleProfile) -> [f64; Part::COUNT] {
        let (caused, loading, own) = (&module.caused, &module.loading, &module.own);
        [
            loading.package_json_stats as f64,
            loading.package_json_opens as f64,
            caused.package_json_stats as f64,
            caused.package_json_opens as f64,
            loading.collections_ns as f64 + own.collections_ns as f64,
            loading.blocked_ns as f64 + own.blocked_ns as f64,
        ]
    }
}

/// All figures of some runs.
#[derive(Clone, Debug)]
pub struct Figures {
    /// One for each of [`List::ALL`].
    pub tables: Vec<Table>,
    /// Number of runs.
    pub runs: usize,
    /// By name of a module: name of its package.
    pub package_of: HashMap<String, String>,
    /// Names of modules that are bundles in some run.
    pub bundles: BTreeSet<String>,
    /// By row of a module and run, where one is not 0.
    parts: HashMap<(usize, usize), [f64; Part::COUNT]>,
}

/// How paths and packages are called.
pub trait Naming {
    /// The name of a path, as both sides know it.
    fn path(&self, run: usize, path: &str) -> String;
    /// The name of a package with this name, folder and kind.
    fn package(
        &self,
        run: usize,
        name: Option<&str>,
        folder: Option<&str>,
        kind: PackageKind,
    ) -> String;
    /// The same of one in a bundle, which may be there otherwise, too.
    fn bundled(&self, run: usize, name: Option<&str>, folder: Option<&str>) -> String {
        self.package(run, name, folder, PackageKind::Installed)
    }
}

impl Figures {
    /// Flattens the profiles of runs.
    pub fn of(runs: &[&RunProfile], naming: &impl Naming) -> Figures {
        let recorded: Vec<Recorded> = runs.iter().map(|run| Recorded::of(run)).collect();
        let mut tables: Vec<Table> = List::ALL
            .iter()
            .map(|list| Table::new(*list, &recorded))
            .collect();
        let mut package_of = HashMap::new();
        let mut bundles = BTreeSet::new();
        let mut parts: HashMap<(usize, usize), [f64; Part::COUNT]> = HashMap::new();
        for (index, run) in runs.iter().enumerate() {
            let mut add = |list: List, name: &str, values: &[f64]| -> usize {
                tables[list as usize].add(name, index, values)
            };
            scalars(run, &mut |name, value| {
                add(List::Run, name, &[value]);
            });
            for row in &run.phases {
                add(List::Phases, &row.name, &phase(row));
            }
            for row in &run.crossings.callbacks {
                add(List::Callbacks, &callback_name(row), &callback(row));
            }
            for row in &run.crossings.to_js {
                add(List::ToJs, &callback_name(row), &callback(row));
            }
            for row in &run.package_json.files {
                let name = naming.path(index, &row.path);
                add(List::PackageJson, &name, &package_json(row));
            }
            for row in &run.serialization.functions {
                let values = serialization_function(row);
                add(List::SerializationFunctions, &row.function, &values);
            }
            for row in &run.serialization.callbacks {
                let name = match (&row.binding, &row.function) {
                    (Some(binding), Some(function)) => format!("{binding}.{function}"),
                    _ => "(outside of any callback)".to_owned(),
                };
                let values = [row.calls, row.bytes, row.total_ns, row.self_ns];
                add(
                    List::SerializationCallbacks,
                    &name,
                    &values.map(|v| v as f64),
                );
            }
            for row in &run.compile.scripts {
                let name = naming.path(index, &row.path);
                add(List::Scripts, &name, &script(row));
            }
            for row in &run.modules {
                let mut name = naming.path(index, &row.path);
                name.push_str(row.query.as_deref().unwrap_or_default());
                let place = add(List::Modules, &name, &module(row));
                let values = Part::values(row);
                if values != [0.0; Part::COUNT] {
                    let sums = parts.entry((place, index)).or_default();
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum += value;
                    }
                }
                package_of.entry(name).or_insert_with(|| {
                    let (name, folder) = (row.package.as_deref(), row.package_directory.as_deref());
                    naming.package(index, name, folder, row.package_kind)
                });
            }
            for row in &run.packages {
                let (name, folder) = (row.name.as_deref(), row.directory.as_deref());
                let name = naming.package(index, name, folder, row.kind);
                add(List::Packages, &name, &package(row));
            }
            for row in &run.bundled_packages {
                let (name, folder) = (row.name.as_deref(), row.directory.as_deref());
                let name = match folder {
                    Some(_) => naming.bundled(index, name, folder),
                    None => "(application)".to_owned(),
                };
                add(List::BundledPackages, &name, &bundled_package(row));
                bundles.insert(naming.path(index, &row.bundle));
            }
            for row in &run.outside {
                let name = serde_json::to_value(row.bucket);
                let name = name.ok().and_then(|name| Some(name.as_str()?.to_owned()));
                add(List::Outside, &name.unwrap_or_default(), &outside(row));
            }
            for (kind, count) in &run.losses {
                add(List::Losses, kind, &[*count as f64]);
            }
        }
        Figures {
            tables,
            runs: runs.len(),
            package_of,
            bundles,
            parts,
        }
    }

    /// A part of a module's figures in several runs; NaN where it was not recorded.
    pub(crate) fn part(&self, part: Part, row: usize, runs: &[usize]) -> Vec<f64> {
        let value = |run: &usize| match self.recorded(List::Modules, part.field(), &[*run]) {
            true => (self.parts.get(&(row, *run))).map_or(0.0, |values| values[part as usize]),
            false => f64::NAN,
        };
        runs.iter().map(value).collect()
    }

    /// The table of a list.
    pub fn table(&self, list: List) -> &Table {
        &self.tables[list as usize]
    }

    /// Whether each of these runs recorded what a field of a list is made of.
    pub fn recorded(&self, list: List, field: &str, runs: &[usize]) -> bool {
        let recorded = &self.table(list).recorded;
        (runs.iter()).all(|run| recorded.get(*run).is_some_and(|run| run.has(list, field)))
    }

    /// Values of a figure of the run itself.
    pub fn scalar(&self, name: &str, runs: &[usize]) -> Vec<f64> {
        let table = self.table(List::Run);
        match table.find(name) {
            Some(row) => table.values(row, 0, runs),
            None => vec![f64::NAN; runs.len()],
        }
    }
}

/// `fs.internalModuleStat`, with the kind where it is not an ordinary call.
pub fn callback_name(callback: &crate::report::CallbackProfile) -> String {
    use crate::recording::CrossingKind;
    let name = format!("{}.{}", callback.binding, callback.function);
    match callback.kind {
        CrossingKind::Slow | CrossingKind::ToJs => name,
        CrossingKind::Fast => name + " (fast)",
        CrossingKind::Getter => name + " (getter)",
        CrossingKind::Construct => name + " (construct)",
    }
}

/// Figures of the run itself.
pub(crate) fn scalars(run: &RunProfile, add: &mut impl FnMut(&str, f64)) {
    macro_rules! each {
        ($($name:literal: $value:expr),* $(,)?) => {$(add($name, $value);)*};
    }
    let (m, t) = (&run.milestones, &run.time);
    each! {
        "milestones.environment": instant(m.environment),
        "milestones.node_start": instant(m.node_start),
        "milestones.v8_start": instant(m.v8_start),
        "milestones.bootstrap_complete": instant(m.bootstrap_complete),
        "milestones.loop_start": instant(m.loop_start),
        "milestones.loop_exit": instant(m.loop_exit),
        "milestones.exit": instant(m.exit),
        "start_to_exec_ns": known(run.start_to_exec_ns),
        "time.wall_ns": t.wall_ns as f64,
        "time.user_ns": known(t.user_ns),
        "time.system_ns": known(t.system_ns),
        "time.max_rss_bytes": known(t.max_rss_bytes),
        "time.private_dirty_bytes": known(t.private_dirty_bytes),
        "time.private_dirty_loop_start_bytes": known(t.private_dirty_loop_start_bytes),
        "time.private_dirty_exit_bytes": known(t.private_dirty_exit_bytes),
    }
    if crate::groups::BARE == run.mode {
        return;
    }
    let (c, k) = (&run.crossings, &run.crossings.by_kind);
    let p = &run.package_json;
    each! {
        "crossings.total": c.total as f64,
        "crossings.by_kind.slow": k.slow as f64,
        "crossings.by_kind.fast": k.fast as f64,
        "crossings.by_kind.getter": k.getter as f64,
        "crossings.by_kind.construct": k.construct as f64,
        "crossings.by_kind.to_js": k.to_js as f64,
        "crossings.timed_calls": c.timed_calls as f64,
        "crossings.unfinished": c.unfinished as f64,
        "crossings.self_ns": c.self_ns as f64,
        "package_json.lookups": p.lookups as f64,
        "package_json.repeated_lookups": p.repeated_lookups as f64,
        "package_json.opens": p.opens as f64,
        "package_json.opens_failed": p.opens_failed as f64,
        "package_json.repeated_opens": p.repeated_opens as f64,
        "package_json.reads": p.reads as f64,
        "package_json.stats": p.stats as f64,
        "package_json.stats_failed": p.stats_failed as f64,
        "package_json.bytes": p.bytes as f64,
        "package_json.total_ns": p.total_ns as f64,
    }
    let mut operation = |name: &str, of: &FileOperationProfile| {
        add(&format!("files.{name}.calls"), of.calls as f64);
        add(&format!("files.{name}.failed"), of.failed as f64);
        add(&format!("files.{name}.total_ns"), of.total_ns as f64);
    };
    operation("stat", &run.files.stat);
    operation("open", &run.files.open);
    operation("read", &run.files.read);
    operation("readlink", &run.files.readlink);
    operation("access", &run.files.access);
    operation("close", &run.files.close);
    let (s, o) = (&run.serialization, &run.overhead);
    let cpu = &run.samples.by_kind;
    each! {
        "files.bytes_read": run.files.bytes_read as f64,
        "files.paths": run.files.paths as f64,
        "serialization.calls": s.calls as f64,
        "serialization.bytes": s.bytes as f64,
        "serialization.total_ns": s.total_ns as f64,
        "compile.compilations": run.compile.compilations as f64,
        "compile.cached": run.compile.cached as f64,
        "compile.total_ns": run.compile.total_ns as f64,
        "modules.count": run.modules.len() as f64,
        "packages.count": run.packages.len() as f64,
        "processes.count": run.processes.len() as f64,
        "attribution.unattributed_crossings_percent": run.attribution.unattributed_crossings_percent.unwrap_or(f64::NAN),
        "attribution.unattributed_samples_percent": run.attribution.unattributed_samples_percent.unwrap_or(f64::NAN),
        "samples.count": run.samples.count as f64,
        "samples.cpu_ns": run.samples.cpu_ns as f64,
        "samples.complete_stacks_percent": run.samples.complete_stacks_percent.unwrap_or(f64::NAN),
        "samples.inlining_possible_percent": run.samples.inlining_possible_percent.unwrap_or(f64::NAN),
        "samples.by_kind.javascript_ns": cpu.javascript_ns as f64,
        "samples.by_kind.node_javascript_ns": cpu.node_javascript_ns as f64,
        "samples.by_kind.builtins_ns": cpu.builtins_ns as f64,
        "samples.by_kind.webassembly_ns": cpu.webassembly_ns as f64,
        "samples.by_kind.inline_cache_misses_ns": cpu.inline_cache_misses_ns as f64,
        "samples.by_kind.eager_compilation_ns": cpu.eager_compilation_ns as f64,
        "samples.by_kind.lazy_compilation_ns": cpu.lazy_compilation_ns as f64,
        "samples.by_kind.baseline_compilation_ns": cpu.baseline_compilation_ns as f64,
        "samples.by_kind.optimizing_compilation_ns": cpu.optimizing_compilation_ns as f64,
        "samples.by_kind.webassembly_compilation_ns": cpu.webassembly_compilation_ns as f64,
        "samples.by_kind.deserialization_ns": cpu.deserialization_ns as f64,
        "samples.by_kind.garbage_collection_ns": cpu.garbage_collection_ns as f64,
        "samples.by_kind.native_ns": cpu.native_ns as f64,
        "samples.by_kind.kernel_ns": cpu.kernel_ns as f64,
        "samples.by_kind.tracing_ns": cpu.tracing_ns as f64,
        "samples.by_kind.unknown_ns": cpu.unknown_ns as f64,
        "overhead.probe_hits": o.probe_hits as f64,
        "overhead.estimated_ns": o.estimated_ns as f64,
        "overhead.setup_ns": o.setup_ns as f64,
        "overhead.attach_ns": o.attach_ns as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_run_takes_no_memory_in_lists() {
        let run = |mode: &str| RunProfile {
            mode: mode.into(),
            ..RunProfile::default()
        };
        let recorded: Vec<Recorded> = ["bare", "full", "bare", "full", "bare"]
            .map(|mode| Recorded::of(&run(mode)))
            .to_vec();
        let fields = List::Callbacks.fields().len();
        let values = |first: f64| {
            let mut values = vec![0.0; fields];
            values[0] = first;
            values
        };
        let mut callbacks = Table::new(List::Callbacks, &recorded);
        callbacks.add("fs.open", 1, &values(3.0));
        callbacks.add("fs.open", 3, &values(4.0));
        assert_eq!(callbacks.values[0].len(), 2 * fields);
        let calls = callbacks.values(0, 0, &[0, 1, 2, 3, 4]);
        assert_eq!((calls[1], calls[3]), (3.0, 4.0));
        assert!([0, 2, 4].iter().all(|run: &usize| calls[*run].is_nan()));
        // A time that is not known is not 0; what is known of another row of that name is, in either order.
        let fields = |calls: f64, total: f64| {
            let mut values = values(calls);
            values[List::Callbacks.field("total_ns").unwrap()] = total;
            values
        };
        let untimed = || fields(5.0, f64::NAN);
        let timed = |ns: f64| fields(2.0, ns);
        let total = List::Callbacks.field("total_ns").unwrap();
        for (name, rows, sum) in [
            ("a", vec![untimed()], None),
            ("b", vec![untimed(), timed(7.0)], Some(7.0)),
            ("c", vec![timed(7.0), untimed()], Some(7.0)),
            ("d", vec![timed(0.0), untimed()], None),
            ("e", vec![untimed(), timed(0.0)], None),
            ("f", vec![timed(0.0)], Some(0.0)),
            ("g", vec![timed(3.0), timed(4.0)], Some(7.0)),
        ] {
            for row in &rows {
                callbacks.add(name, 1, row);
            }
            let row = callbacks.find(name).unwrap();
            let found = callbacks.values(row, total, &[1])[0];
            assert_eq!((!found.is_nan()).then_some(found), sum, "{name}");
        }
        // Of itself it has figures.
        let mut of_runs = Table::new(List::Run, &recorded);
        for run in 0..5 {
            of_runs.add("time.wall_ns", run, &[run as f64]);
        }
        assert_eq!(of_runs.values(0, 0, &[4, 2, 1]), [4.0, 2.0, 1.0]);
    }
}
