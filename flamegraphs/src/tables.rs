//! The data of each view as a table: CSV for spreadsheets and statistics programs, JSON for scripts.
//!
//! A row has the fields that `docs/json.md` names for the view, and the number of its run. In CSV, fields of fields are columns with a point
//! in their name (`loading.crossings`), null is an empty cell, and lists are JSON.

use std::collections::{BTreeMap, HashMap};

use nodeprof_profile::{
    Profile, Recording, RunProfile,
    diff::figures::List,
    profile,
    report::{self, Time},
};
use serde::Serialize;
use serde_json::Value;

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A run: its labels, times, memory and sums of counts.
    Runs,
    /// A phase of the main node process.
    Phases,
    /// A callback that JavaScript called, by kind.
    Callbacks,
    /// A JavaScript entry that C++ called.
    ToJs,
    /// A package.json path.
    PackageJson,
    /// A path and an operation on it; all of them, not only the slowest.
    Files,
    /// A C++ function that serializes.
    Serialization,
    /// A callback inside which was serialized.
    SerializationCallbacks,
    /// A script that was compiled.
    Compile,
    /// A module.
    Modules,
    /// A package.
    Packages,
    /// A package in a bundle.
    BundledPackages,
    /// A file in a bundle.
    Sources,
    /// What no module is to blame for.
    Outside,
    /// A process.
    Processes,
}

impl View {
    /// Every view by its name.
    pub const ALL: [(&str, View); 15] = [
        ("runs", View::Runs),
        ("phases", View::Phases),
        ("callbacks", View::Callbacks),
        ("to-js", View::ToJs),
        ("package-json", View::PackageJson),
        ("files", View::Files),
        ("serialization", View::Serialization),
        ("serialization-callbacks", View::SerializationCallbacks),
        ("compile", View::Compile),
        ("modules", View::Modules),
        ("packages", View::Packages),
        ("bundled-packages", View::BundledPackages),
        ("sources", View::Sources),
        ("outside", View::Outside),
        ("processes", View::Processes),
    ];
}

impl View {
    /// The list of the JSON that the fields are of, or the run.
    fn list(self) -> List {
        match self {
            View::Runs | View::Files | View::Processes => List::Run,
            View::Phases => List::Phases,
            View::Callbacks => List::Callbacks,
            View::ToJs => List::ToJs,
            View::PackageJson => List::PackageJson,
            View::Serialization => List::SerializationFunctions,
            View::SerializationCallbacks => List::SerializationCallbacks,
            View::Compile => List::Scripts,
            View::Modules => List::Modules,
            View::Packages => List::Packages,
            View::BundledPackages | View::Sources => List::BundledPackages,
            View::Outside => List::Outside,
        }
    }
}

/// A row of [`View::Runs`].
#[derive(Serialize)]
struct RunRow<'a> {
    command: &'a [String],
    directory: &'a str,
    labels: &'a BTreeMap<String, String>,
    started_unix_ns: u64,
    mode: &'a str,
    ended_by: &'a str,
    exit_status: Option<i32>,
    signal: Option<i32>,
    node_version: Option<&'a str>,
    time: Time,
    crossings: u64,
    crossings_self_ns: u64,
    lookups: u64,
    repeated_lookups: u64,
    stats: u64,
    opens: u64,
    reads: u64,
    bytes_read: u64,
    serializations: u64,
    serialization_ns: u64,
    compilations: u64,
    cached_compilations: u64,
    compile_ns: u64,
    modules: u64,
    packages: u64,
    processes: u64,
}

impl<'a> RunRow<'a> {
    fn of(run: &'a RunProfile) -> RunRow<'a> {
        RunRow {
            command: &run.command,
            directory: &run.directory,
            labels: &run.labels,
            started_unix_ns: run.started_unix_ns,
            mode: &run.mode,
            ended_by: &run.ended_by,
            exit_status: run.exit_status,
            signal: run.signal,
            node_version: run.node.as_ref().and_then(|node| node.version.as_deref()),
            time: run.time,
            crossings: run.crossings.total,
            crossings_self_ns: run.crossings.self_ns,
            lookups: run.package_json.lookups,
            repeated_lookups: run.package_json.repeated_lookups,
            stats: run.files.stat.calls,
            opens: run.files.open.calls,
            reads: run.files.read.calls,
            bytes_read: run.files.bytes_read,
            serializations: run.serialization.calls,
            serialization_ns: run.serialization.total_ns,
            compilations: run.compile.compilations,
            cached_compilations: run.compile.cached,
            compile_ns: run.compile.total_ns,
            modules: run.modules.len() as u64,
            packages: run.packages.len() as u64,
            processes: run.processes.len() as u64,
        }
    }
}

/// Rows of one view.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows(Vec<Row>);

/// Fields in the order in which they are documented.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    run: usize,
    #[serde(flatten)]
    of: Value,
}

impl Rows {
    /// Of a recording and its profile; `run`: of this run only, from 1.
    ///
    /// # Errors
    /// None that a recording can cause.
    pub fn of(
        recording: &Recording,
        profile: &Profile,
        view: View,
        run: Option<usize>,
    ) -> serde_json::Result<Rows> {
        let files = match view {
            View::Files => profile::paths(recording),
            _ => Vec::new(),
        };
        let mut rows = Rows(Vec::new());
        for (index, profile) in profile.runs.iter().enumerate() {
            let number = index + 1;
            if run.is_some_and(|wanted| wanted != number) {
                continue;
            }
            let list = view.list();
            match view {
                View::Runs => rows.add(number, profile, list, &[RunRow::of(profile)]),
                View::Phases => rows.add(number, profile, list, &profile.phases),
                View::Callbacks => rows.add(number, profile, list, &profile.crossings.callbacks),
                View::ToJs => rows.add(number, profile, list, &profile.crossings.to_js),
                View::PackageJson => rows.add(number, profile, list, &profile.package_json.files),
                View::Files => rows.add(
                    number,
                    profile,
                    list,
                    files.get(index).map_or(&[], Vec::as_slice),
                ),
                View::Serialization => {
                    rows.add(number, profile, list, &profile.serialization.functions)
                }
                View::SerializationCallbacks => {
                    rows.add(number, profile, list, &profile.serialization.callbacks)
                }
                View::Compile => rows.add(number, profile, list, &profile.compile.scripts),
                View::Modules => rows.add(number, profile, list, &profile.modules),
                View::Packages => rows.add(number, profile, list, &profile.packages),
                View::BundledPackages => rows.add(number, profile, list, &profile.bundled_packages),
                View::Sources => rows.add(number, profile, list, &profile.sources),
                View::Outside => rows.add(number, profile, list, &profile.outside),
                View::Processes => rows.add(number, profile, list, &profile.processes),
            }?;
        }
        Ok(rows)
    }

    fn add<T: Serialize>(
        &mut self,
        run: usize,
        profile: &RunProfile,
        list: List,
        rows: &[T],
    ) -> serde_json::Result<()> {
        for row in rows {
            let of = report::row(profile, list, row)?;
            self.0.push(Row { run, of });
        }
        Ok(())
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A list of objects.
    ///
    /// # Errors
    /// None that a recording can cause.
    pub fn json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(&self.0)? + "\n")
    }

    /// A header, and a line a row. Without rows: nothing.
    ///
    /// # Errors
    /// None that a recording can cause.
    pub fn csv(&self) -> Result<String, csv::Error> {
        let flat: Vec<Vec<(String, String)>> = self
            .0
            .iter()
            .map(|row| {
                let mut cells = vec![("run".to_owned(), row.run.to_string())];
                flatten(&row.of, "", &mut cells);
                cells
            })
            .collect();
        // Rows may lack fields that others have (labels, paths that are not UTF-8): a new one stands behind the one before it.
        let columns = columns(&flat);
        let mut writer = csv::Writer::from_writer(Vec::new());
        if !columns.is_empty() {
            writer.write_record(&columns)?;
        }
        for row in &flat {
            let mut of: HashMap<&str, &str> = HashMap::with_capacity(row.len());
            for (name, text) in row {
                of.entry(name).or_insert(text);
            }
            writer.write_record(columns.iter().map(|c| of.get(c).copied().unwrap_or("")))?;
        }
        let bytes = writer.into_inner().map_err(|e| e.into_error())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The names of all cells: one that no row before had stands behind the one that is before it in its row.
fn columns(rows: &[Vec<(String, String)>]) -> Vec<&str> {
    // A recording may have any number of labels: each name has the one behind it, and none is looked for, or moved.
    let mut names: Vec<&str> = Vec::new();
    let mut next: Vec<Option<usize>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut first = None;
    for row in rows {
        let mut before: Option<usize> = None;
        for (name, _) in row {
            let place = *places.entry(name).or_insert_with(|| {
                let place = names.len();
                names.push(name);
                let link = match before {
                    Some(before) => &mut next[before],
                    None => &mut first,
                };
                let behind = link.replace(place);
                next.push(behind);
                place
            });
            before = Some(place);
        }
    }
    std::iter::successors(first, |place| next[*place])
        .map(|place| names[place])
        .collect()
}

/// The cells of an object, by name: those of objects in it as `outer.inner`.
fn flatten(object: &Value, prefix: &str, cells: &mut Vec<(String, String)>) {
    for (name, value) in object.as_object().into_iter().flatten() {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(_) => flatten(value, &format!("{name}."), cells),
            Value::Null => cells.push((name, String::new())),
            Value::String(text) => cells.push((name, text.clone())),
            value => cells.push((name, value.to_string())),
        }
    }
}
