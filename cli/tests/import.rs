//! `nodeprof import`: recordings of what perf saw.

#![allow(clippy::expect_used, reason = "a test that fails says where")]

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "not every test file uses all of it"
)]
mod support;

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use nodeprof_profile::{Recording, recording::FrameKind};
use support::{
    NODEPROF, Node, folder, has_tool, list, number, plain, project, text, undisturbed, write,
};

const TEXT: &str = "profile/tests/data/node-24-interpreted-frames.perf.script";

fn nodeprof(arguments: &[&str], folder: &std::path::Path) -> Output {
    Command::new(NODEPROF)
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("nodeprof starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_imported_recording_can_be_reported() {
    let folder = folder();
    let imported = nodeprof(&["import", &project(TEXT)], folder.path());
    assert!(imported.status.success(), "{}", stderr(&imported));
    let named = "recording: node-24-interpreted-frames.nodeprof";
    assert!(stderr(&imported).contains(named), "{}", stderr(&imported));
    let file = folder.path().join("node-24-interpreted-frames.nodeprof");
    let run = support::report(&file);
    assert_eq!(run["ended_by"], "import");
    assert_eq!(list(&run["processes"]).len(), 2);
    assert_eq!(text(&run["node"]["path"]), "/usr/local/bin/node");
    for family in list(&run["families"]) {
        let of_perf = ["cpu", "processes"].contains(&text(&family["name"]));
        assert_eq!(family["state"] == "on", of_perf, "{family}");
        assert_eq!(family["reason"].is_string(), !of_perf, "{family}");
    }
    for name in nodeprofd::recorder::FAMILIES {
        let stated = |family: &serde_json::Value| family["name"] == name;
        assert!(
            list(&run["families"]).iter().any(stated),
            "{name} has no state"
        );
    }
    let report = nodeprof(&["report", file.to_str().expect("UTF-8")], folder.path());
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("imported"), "{report}");

    // The widths of a flame graph are the weights of the samples.
    let file = file.to_str().expect("UTF-8");
    let flame = ["flame", file, "--of", "cpu", "--format", "folded"];
    let folded = nodeprof(&flame, folder.path());
    assert!(folded.status.success(), "{}", stderr(&folded));
    let folded = String::from_utf8_lossy(&folded.stdout).into_owned();
    let widths = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let total: u64 = widths
        .map(|(_, width)| width.parse::<u64>().expect("a number"))
        .sum();
    let recording = Recording::load(std::path::Path::new(file)).expect("a recording");
    assert_eq!(
        total,
        recording.samples.iter().map(|s| s.weight.0).sum::<u64>()
    );
    assert!(folded.contains("spawnSync"), "{folded}");
}

/// In a timeline each sample lasts for its period, the first one, too.
#[test]
fn the_first_sample_is_whole_in_a_timeline() {
    let folder = folder();
    let sample = |at: &str, function: &str| {
        format!("node 7/7 {at}: 2000000 cpu-clock: \n\t55 {function}+0x1 (/x.so)\n\n")
    };
    let samples = [sample("10.002", "first"), sample("10.004", "second")].concat();
    write(folder.path(), "a.txt", &samples);
    let imported = nodeprof(&["import", "a.txt"], folder.path());
    assert!(imported.status.success(), "{}", stderr(&imported));
    let chart = nodeprof(
        &["flame", "a.nodeprof", "--format", "chrome"],
        folder.path(),
    );
    assert!(chart.status.success(), "{}", stderr(&chart));
    let chart: serde_json::Value = serde_json::from_slice(&chart.stdout).expect("JSON");
    for (function, start) in [("first", 0.0), ("second", 2000.0)] {
        let named = |event: &&serde_json::Value| {
            event["ph"] == "X" && text(&event["name"]).starts_with(function)
        };
        let event = list(&chart["traceEvents"]).iter().find(named);
        let event = event.expect(function);
        assert_eq!(
            (&event["ts"], &event["dur"]),
            (&start.into(), &2000.0.into())
        );
    }
}

#[test]
fn standard_input_is_read_and_no_file_is_overwritten_unasked() {
    let folder = folder();
    let import = |arguments: &[&str]| {
        let mut child = Command::new(NODEPROF)
            .arg("import")
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nodeprof starts");
        let input = std::fs::read(project(TEXT)).expect("the text");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(&input).expect("the input");
        drop(stdin);
        child.wait_with_output().expect("nodeprof ends")
    };
    assert!(import(&["-"]).status.success());
    let again = import(&["-"]);
    assert_eq!(again.status.code(), Some(125));
    assert!(
        stderr(&again).contains("type: --force"),
        "{}",
        stderr(&again)
    );
    assert!(import(&["-", "--force"]).status.success());
    assert!(import(&["-", "-o", "b.nodeprof"]).status.success());
    Recording::load(folder.path().join("b.nodeprof")).expect("a recording");
}

#[test]
fn no_picture_takes_the_place_of_a_recording() {
    let folder = folder();
    let imported = nodeprof(
        &["import", &project(TEXT), "-o", "a.nodeprof"],
        folder.path(),
    );
    assert!(imported.status.success(), "{}", stderr(&imported));
    for arguments in [
        &[
            "flame",
            "a.nodeprof",
            "--of",
            "cpu",
            "-f",
            "-o",
            "a.nodeprof",
        ][..],
        &[
            "report",
            "a.nodeprof",
            "--format",
            "html",
            "-f",
            "-o",
            "a.nodeprof",
        ],
    ] {
        let refused = nodeprof(arguments, folder.path());
        assert_eq!(refused.status.code(), Some(125), "{arguments:?}");
        let said = stderr(&refused);
        assert!(said.contains("a.nodeprof holds a recording"), "{said}");
        Recording::load(folder.path().join("a.nodeprof")).expect("the recording still");
    }
    // What else is there is replaced if that is wanted.
    std::fs::write(folder.path().join("a.svg"), "old").expect("a file");
    let flame = ["flame", "a.nodeprof", "--of", "cpu", "-f", "-o", "a.svg"];
    let flame = nodeprof(&flame, folder.path());
    assert!(flame.status.success(), "{}", stderr(&flame));
}

#[test]
fn what_cannot_be_imported_is_named_with_its_line() {
    let folder = folder();
    let file = write(
        folder.path(),
        "x.txt",
        "node 1 1.0: 1 cpu-clock: \n\n<html>\n",
    );
    let bytes = write(folder.path(), "y.txt", "a\0b\n");
    for (input, said) in [
        (file.as_str(), "x.txt: line 3: found \"<html>\""),
        (bytes.as_str(), "y.txt: line 1: found \"a\\0b\""),
        ("no-such-file", "no-such-file cannot be read"),
        ("/", "/ cannot be read"),
    ] {
        let output = nodeprof(&["import", input], folder.path());
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn other_files_than_texts_are_named_and_the_text_is_not_overwritten() {
    let folder = folder();
    let text = std::fs::read(project(TEXT)).expect("the text");
    std::fs::write(folder.path().join("a.txt"), &text).expect("a file");
    let whole = nodeprof(&["import", "a.txt"], folder.path());
    assert!(!stderr(&whole).contains("cut off"), "{}", stderr(&whole));
    for (input, said) in [
        ("a.nodeprof", "a.nodeprof: is a recording already"),
        ("b.gz", "b.gz: is compressed"),
    ] {
        std::fs::write(folder.path().join("b.gz"), b"\x1f\x8b\x08\0more").expect("a file");
        let output = nodeprof(&["import", input, "-o", "c.nodeprof"], folder.path());
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
    let onto_itself = nodeprof(
        &["import", "a.txt", "-o", "./a.txt", "--force"],
        folder.path(),
    );
    assert_eq!(onto_itself.status.code(), Some(125));
    let kept = std::fs::read(folder.path().join("a.txt")).expect("the text");
    assert_eq!(kept, text, "{}", stderr(&onto_itself));
    std::fs::write(folder.path().join("cut.txt"), &text[..text.len() / 2]).expect("a file");
    let cut = nodeprof(&["import", "cut.txt"], folder.path());
    assert!(
        stderr(&cut).contains("the text was cut off"),
        "{}",
        stderr(&cut)
    );
}

/// perf samples a program whose time goes into one function of known name and place.
#[test]
#[ignore = "needs root"]
fn a_busy_function_is_found_under_its_name() {
    undisturbed(|| {
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        if !has_tool("perf") {
            return;
        }
        let folder = folder();
        let script = "\n  function spin(n) { let s = 0; for (let i = 0; i < n; i++) s += Math.sqrt(i); return s; }\n\
                  for (let i = 0; i < 60; i++) spin(5e6);\n";
        let script = write(folder.path(), "my app.js", script);
        let data = folder.path().join("perf.data");
        let recorded = plain(&mut Command::new("perf"))
            .args(["record", "-q", "-F", "499", "-g", "-e", "cpu-clock", "-o"])
            .arg(&data)
            .arg(&node.path)
            .args([
                "--perf-basic-prof",
                "--interpreted-frames-native-stack",
                &script,
            ])
            .current_dir(folder.path())
            .output()
            .expect("perf starts");
        if !recorded.status.success() {
            println!(
                "skipped: perf cannot record here: {}",
                stderr(&recorded).trim()
            );
            return;
        }
        let printed = Command::new("perf")
            .args([
                "script",
                "-F",
                "+pid",
                "--show-task-events",
                "--header",
                "-i",
            ])
            .arg(&data)
            .output()
            .expect("perf starts");
        let file = folder.path().join("perf.script");
        std::fs::write(&file, &printed.stdout).expect("the text");
        let imported = nodeprof(&["import", "perf.script"], folder.path());
        assert!(imported.status.success(), "{}", stderr(&imported));

        let path = folder.path().join("perf.nodeprof");
        let recording = Recording::load(path.as_path()).expect("a recording");
        assert_eq!(recording.runs[0].sample_hz, Some(499));
        let total: u64 = recording.samples.iter().map(|s| s.weight.0).sum();
        let in_spin: u64 = recording
            .samples
            .iter()
            .filter(|sample| {
                sample
                    .stack
                    .into_iter()
                    .flat_map(|id| recording.frames_of(id))
                    .any(|frame| {
                        frame.kind == FrameKind::JavaScript
                            && recording.name(frame.function) == b"spin"
                            && frame.file.map(|file| recording.name(file))
                                == Some(script.as_bytes())
                            && (frame.function_line, frame.function_column) == (Some(2), Some(16))
                    })
            })
            .map(|sample| sample.weight.0)
            .sum();
        assert!(total > 200_000_000, "{total} ns of samples");
        assert!(in_spin * 10 > total * 7, "{in_spin} of {total} ns");
        // Every thread belongs to the one process.
        let run = support::report(&path);
        assert_eq!(list(&run["processes"]).len(), 1);
        assert!(number(&run["processes"][0]["pid"]) > 0);
    });
}
