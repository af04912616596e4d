//! `nodeprof blame`, `tree` and `critical-chain` as their user meets them.

#![allow(clippy::expect_used, reason = "a test that fails says where")]

use std::process::{Command, Output};

use nodeprof_profile::{Recording, SaveOptions, synthetic::program::Program};

const NODEPROF: &str = env!("CARGO_BIN_EXE_nodeprof");

/// A folder with `a.nodeprof`: a main module and one of a package, in process 500.
fn folder() -> tempfile::TempDir {
    let mut program = Program::new("/app/main.js", true);
    program.require("/app/main.js", &[], 50_000, |p| {
        p.cross("fs", "InternalModuleStat", 4_000);
        p.require("/app/node_modules/slow/index.js", &[], 900_000, |p| {
            p.cross("fs", "InternalModuleStat", 4_000);
        });
    });
    program.package("/app/node_modules/slow", Some("slow"), Some("1.2.3"));
    save(&program.end().0)
}

fn save(recording: &Recording) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.nodeprof");
    recording
        .save(path, SaveOptions::default())
        .expect("a recording");
    folder
}

fn nodeprof(folder: &tempfile::TempDir, arguments: &[&str]) -> Output {
    Command::new(NODEPROF)
        .args(arguments)
        .current_dir(folder.path())
        .env_remove("COLUMNS")
        .output()
        .expect("nodeprof starts")
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn each_command_prints_its_view() {
    let folder = folder();
    let text = stdout(&nodeprof(&folder, &["blame", "a.nodeprof"]));
    assert!(text.contains("slow 1.2.3"), "{text}");
    let text = stdout(&nodeprof(
        &folder,
        &[
            "blame",
            "a.nodeprof",
            "--by",
            "module",
            "--sort",
            "compile",
            "-n",
            "1",
        ],
    ));
    assert!(
        text.contains("slow/index.js") && !text.contains("main.js"),
        "{text}"
    );
    let text = stdout(&nodeprof(&folder, &["tree", "a.nodeprof", "--depth", "0"]));
    assert!(text.contains("main.js … 1 below"), "{text}");
    let text = stdout(&nodeprof(
        &folder,
        &["critical-chain", "a.nodeprof", "--fuzz", "1ms"],
    ));
    assert!(text.contains("└─ slow/index.js"), "{text}");
}

#[test]
fn blame_as_json_has_the_rows_of_the_report() {
    let folder = folder();
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&stdout(&nodeprof(&folder, arguments))).expect("JSON")
    };
    let report = json(&["report", "--format", "json", "a.nodeprof"]);
    let modules = json(&[
        "blame",
        "a.nodeprof",
        "--by",
        "module",
        "--sort",
        "total",
        "--format",
        "json",
    ]);
    assert_eq!(modules["schema"], 1);
    assert_eq!(modules["runs"][0]["modules"], report["runs"][0]["modules"]);
    let packages = json(&["blame", "a.nodeprof", "--format", "json", "--limit", "1"]);
    let rows = &packages["runs"][0]["packages"];
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
    assert_eq!(rows[0], report["runs"][0]["packages"][0]);
}

#[test]
fn runs_and_processes_are_chosen_by_number() {
    let folder = folder();
    let text = stdout(&nodeprof(
        &folder,
        &["tree", "a.nodeprof", "--run", "1", "--process", "500"],
    ));
    assert!(text.contains("main.js"), "{text}");
    for (arguments, needed) in [
        (
            &["--run", "2"][..],
            "has no run 2; needed: a number from 1 to 1",
        ),
        (
            &["--process", "7"],
            "has no modules of process 7; needed: one of 500",
        ),
        (&["--run", "0"], "0 is not in 1"),
        (&["--min", "5"], "needed: a time, for example 1.5ms"),
    ] {
        let output = nodeprof(&folder, &[&["tree", "a.nodeprof"], arguments].concat());
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(stderr(&output).contains(needed), "{}", stderr(&output));
    }
    let output = nodeprof(&folder, &["blame", "a.nodeprof", "--sort", "speed"]);
    assert!(
        stderr(&output).contains("possible values: self, total"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_recording_without_stacks_is_told_what_to_type() {
    let mut recording = Recording::synthetic(200);
    recording.stacks.clear();
    recording.samples.clear();
    recording.crossings.clear();
    recording.files.clear();
    recording.lookups.clear();
    recording.compilations.clear();
    recording.serializations.clear();
    let folder = save(&recording);
    for command in ["blame", "tree", "critical-chain"] {
        let text = stdout(&nodeprof(&folder, &[command, "a.nodeprof"]));
        assert!(text.contains("record again: nodeprof trace"), "{text}");
    }
}
