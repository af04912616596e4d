//! The data of each view as CSV and JSON.
#![allow(clippy::unwrap_used)]

use nodeprof_flamegraphs::tables::{Rows, View};
use nodeprof_profile::{Profile, Recording, synthetic::program::Program};
use serde_json::Value;

fn recording() -> (Recording, Profile) {
    let mut recording = Recording::synthetic(2000);
    let mut again = Recording::synthetic(2000);
    again.runs[0].labels = vec![("name".into(), "a, \"b\"".into())];
    recording.append(again);
    // What is outside of all modules: a call before the main script.
    let mut program = Program::new("/srv/main.js", true);
    program.cross("util", "GetProxyDetails", 4_000);
    program.require("/srv/main.js", &[], 90_000, |p| p.busy(30_000));
    recording.append(program.end().0);
    let profile = Profile::from_recording(&recording);
    (recording, profile)
}

fn lists(profile: &Profile, pointer: &str) -> Vec<Value> {
    let runs = serde_json::to_value(profile).unwrap();
    let mut rows = Vec::new();
    for (index, run) in runs["runs"].as_array().unwrap().iter().enumerate() {
        for row in run.pointer(pointer).unwrap().as_array().unwrap() {
            let mut row = row.clone();
            row["run"] = (index + 1).into();
            rows.push(row);
        }
    }
    rows
}

#[test]
fn a_view_has_the_rows_and_fields_of_the_documented_json() {
    let (recording, profile) = recording();
    for (view, pointer) in [
        (View::Phases, "/phases"),
        (View::Callbacks, "/crossings/callbacks"),
        (View::ToJs, "/crossings/to_js"),
        (View::PackageJson, "/package_json/files"),
        (View::Serialization, "/serialization/functions"),
        (View::SerializationCallbacks, "/serialization/callbacks"),
        (View::Compile, "/compile/scripts"),
        (View::Modules, "/modules"),
        (View::Packages, "/packages"),
        (View::Outside, "/outside"),
        (View::Processes, "/processes"),
    ] {
        let rows = Rows::of(&recording, &profile, view, None).unwrap();
        let found: Vec<Value> = serde_json::from_str(&rows.json().unwrap()).unwrap();
        let expected = lists(&profile, pointer);
        assert!(!expected.is_empty(), "{pointer}");
        assert_eq!(found, expected, "{pointer}");
        // As many lines in the CSV, each with as many cells as the header.
        let csv = rows.csv().unwrap();
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        assert_eq!(reader.records().map(Result::unwrap).count(), rows.len());
    }
    // Of the second run only.
    let modules = |run| {
        Rows::of(&recording, &profile, View::Modules, run)
            .unwrap()
            .len()
    };
    assert_eq!(modules(Some(2)), modules(Some(1)));
    assert!(modules(Some(3)) < modules(Some(2)));
    assert_eq!(
        modules(None),
        (1..=3).map(|run| modules(Some(run))).sum::<usize>()
    );
}

#[test]
fn cells_are_in_order_and_hold_exact_figures() {
    let (recording, profile) = recording();
    let csv = |view| {
        Rows::of(&recording, &profile, view, None)
            .unwrap()
            .csv()
            .unwrap()
    };
    let callbacks = csv(View::Callbacks);
    assert!(
        callbacks.starts_with("run,binding,function,kind,calls,timed_calls,unfinished,total_ns,"),
        "{callbacks}"
    );
    let mut reader = csv::Reader::from_reader(callbacks.as_bytes());
    let calls: u64 = reader
        .records()
        .map(|row| row.unwrap()[4].parse::<u64>().unwrap())
        .sum();
    let total: u64 = profile.runs.iter().map(|run| run.crossings.total).sum();
    assert_eq!(calls, total);

    // A label that only one run has, with a comma and quotes in it.
    let runs = csv(View::Runs);
    let mut reader = csv::Reader::from_reader(runs.as_bytes());
    let header = reader.headers().unwrap().clone();
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    let name = column("labels.name");
    assert_eq!([&rows[0][name], &rows[1][name]], ["", "a, \"b\""]);
    let wall = column("time.wall_ns");
    assert_eq!(rows[0][wall], profile.runs[0].time.wall_ns.to_string());
    assert!((column("directory")..column("started_unix_ns")).contains(&name));

    // Paths of modules: fields of fields.
    let modules = csv(View::Modules);
    assert!(
        modules
            .lines()
            .next()
            .unwrap()
            .contains(",loading.crossings"),
        "{modules}"
    );
}

#[test]
fn all_files_are_there_not_only_the_slowest() {
    let (recording, profile) = recording();
    let rows = Rows::of(&recording, &profile, View::Files, None).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&rows.json().unwrap()).unwrap();
    let sum = |field: &str| -> u64 { rows.iter().map(|row| row[field].as_u64().unwrap()).sum() };
    assert_eq!(sum("calls"), recording.files.len() as u64);
    let failed = recording.files.iter().filter(|f| f.result < 0).count();
    assert_eq!(sum("failed"), failed as u64);
    for (number, run) in (1..).zip(&profile.runs) {
        // They begin with the slowest, in that order.
        let of_run = rows.iter().filter(|row| row["run"] == number);
        assert!(of_run.clone().count() >= run.files.slowest.len());
        for (path, row) in run.files.slowest.iter().zip(of_run) {
            let path = serde_json::to_value(path).unwrap();
            let same = path.as_object().unwrap().iter().all(|(k, v)| &row[k] == v);
            assert!(same, "{path}: {row}");
        }
    }
}

#[test]
fn what_was_not_recorded_is_an_empty_cell() {
    let mut recording = Recording::synthetic(200);
    recording.compilations.clear();
    recording.families.retain(|family| family.name != "compile");
    recording
        .families
        .push(nodeprof_profile::recording::FamilyState {
            run: nodeprof_profile::recording::RunId(0),
            name: "compile".into(),
            state: "off".into(),
            reason: None,
        });
    let profile = Profile::from_recording(&recording);
    let csv = Rows::of(&recording, &profile, View::Runs, None)
        .unwrap()
        .csv()
        .unwrap();
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let cell = |name: &str| {
        let at = lines[0].iter().position(|column| *column == name).unwrap();
        // The command is the only cell with commas.
        lines[1][lines[1].len() - (lines[0].len() - at)]
    };
    for name in ["compilations", "cached_compilations", "compile_ns"] {
        assert_eq!(cell(name), "", "{csv}");
    }
    assert_ne!(cell("crossings"), "");
}

/// Each name was looked for among all before it, and moved all behind it: some 50 s.
#[test]
fn a_run_of_many_labels_is_written_in_time() {
    const LABELS: usize = 100_000;
    let mut recording = Recording::synthetic(10);
    let label = |index: usize| (format!("k{index:06}"), index.to_string());
    recording.runs[0].labels = (0..LABELS).map(label).collect();
    let profile = Profile::from_recording(&recording);
    let begun = std::time::Instant::now();
    let rows = Rows::of(&recording, &profile, View::Runs, None).unwrap();
    let text = rows.csv().unwrap();
    let took = begun.elapsed();
    let header = text.lines().next().unwrap();
    let place = |name: &str| header.split(',').position(|column| column == name).unwrap();
    assert_eq!(
        place("labels.k099999"),
        place("labels.k000000") + LABELS - 1
    );
    assert_eq!(place("started_unix_ns"), place("labels.k099999") + 1);
    assert!(took.as_secs() < 10, "{took:?}");
}
