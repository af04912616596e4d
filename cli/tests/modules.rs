//! `nodeprof blame`, `tree`, `critical-chain`, `flame` and `check` as their user meets them.

#![allow(clippy::expect_used, reason = "a test that fails says where")]

use std::{
    fs,
    io::Read as _,
    os::{fd::FromRawFd as _, unix::fs::PermissionsExt as _},
    process::{Command, Output, Stdio},
};

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
    assert_eq!(modules["schema"], 2);
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
        (&["--run", "2"][..], "has no run 2; needed: 1, its only run"),
        (
            &["--process", "7"],
            "has no modules of process 7; needed: one of 500",
        ),
        (&["--run", "0"], "0 is not in 1"),
        (&["--min", "5"], "which has no unit; needed: a time"),
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
fn hints_name_the_file_that_was_given() {
    let folder = folder();
    let (from, to) = (
        folder.path().join("a.nodeprof"),
        folder.path().join("my app.nodeprof"),
    );
    fs::copy(from, to).expect("a copy");
    for (arguments, hint) in [
        (&["report"][..], "nodeprof flame FILE --of"),
        (&["tree", "--package", "x"], "type: nodeprof blame FILE"),
        (&["flame", "--of", "off-cpu"], "type: nodeprof report FILE"),
        (
            &["flame", "--of", "cpu", "--format", "json"],
            "nodeprof report FILE --format json has",
        ),
        (
            &["tree", "--process", "7"],
            "type: nodeprof report FILE, which lists",
        ),
        (&["import"], "type: nodeprof report FILE"),
    ] {
        for (file, typed) in [
            ("a.nodeprof", "a.nodeprof"),
            ("my app.nodeprof", "'my app.nodeprof'"),
        ] {
            let output = nodeprof(
                &folder,
                &[&arguments[..1], &[file], &arguments[1..]].concat(),
            );
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &stderr(&output);
            assert!(
                said.contains(&hint.replace("FILE", typed)),
                "{arguments:?}: {said}"
            );
            assert!(!said.contains("FILE"), "{arguments:?}: {said}");
        }
    }
}

/// As with `flame` and `export`: what was asked for and is not there is an error.
#[test]
fn a_tree_without_a_row_is_an_error() {
    let folder = folder();
    let tree =
        |arguments: &[&str]| nodeprof(&folder, &[&["tree", "a.nodeprof"], arguments].concat());
    for (arguments, said) in [
        (
            &["--package", "fast"][..],
            "a.nodeprof: No module of a package \"fast\" was loaded",
        ),
        (
            &["--min", "1min"],
            "a.nodeprof: No module is as slow as that; type a smaller --min",
        ),
        (
            &["--package", "slow", "--min", "1min"],
            "No module of the package \"slow\" is as slow as that",
        ),
    ] {
        let output = tree(arguments);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
    let text = stdout(&tree(&["--package", "slow"]));
    assert!(text.contains("slow/index.js"), "{text}");
    // That a run had no modules is an answer.
    let mut recording = Program::new("/app/main.js", true).end().0;
    for process in &mut recording.processes {
        process.node = None;
    }
    let folder = save(&recording);
    let without = nodeprof(&folder, &["tree", "a.nodeprof"]);
    assert!(without.status.success(), "{}", stderr(&without));
    let text = String::from_utf8_lossy(&without.stdout).into_owned();
    assert!(text.contains("No process of this run ran node"), "{text}");
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
    let mut counted = recording.clone();
    counted.runs[0].mode = "count".into();
    for (recording, said) in [
        (recording, "record again: nodeprof trace"),
        (counted, "record again without it: nodeprof trace"),
    ] {
        let folder = save(&recording);
        for command in ["blame", "tree", "critical-chain"] {
            let output = nodeprof(&folder, &[command, "a.nodeprof"]);
            assert_eq!(output.status.code(), Some(125), "{command}");
            assert!(output.stdout.is_empty(), "{command}");
            assert!(stderr(&output).contains(said), "{}", stderr(&output));
        }
        let output = nodeprof(&folder, &["blame", "a.nodeprof", "--format", "json"]);
        assert_eq!(output.status.code(), Some(125));
    }
}

/// A folder with `a.nodeprof` of three runs: one without probes, one with 1 crossing and one with 3.
fn several_runs() -> tempfile::TempDir {
    let mut all = Recording::default();
    for (name, crossings) in [("base", 0), ("base", 1), ("head", 3)] {
        let mut program = Program::new("/app/main.js", true);
        program.require("/app/main.js", &[], 50_000, |p| {
            for _ in 0..crossings {
                p.cross("fs", "InternalModuleStat", 4_000);
            }
        });
        let mut one = program.end().0;
        one.runs[0].labels = vec![("name".into(), name.into())];
        if crossings == 0 {
            one = Recording {
                runs: one.runs,
                ..Recording::default()
            };
            one.runs[0].mode = "bare".into();
        }
        all.append(one);
    }
    save(&all)
}

#[test]
fn a_flame_graph_is_of_the_run_that_is_asked_for_and_says_which_one_it_is() {
    let folder = several_runs();
    let flame = |file: &str, more: &[&str]| {
        let arguments = ["flame", file, "--of", "crossings", "--format", "folded"];
        nodeprof(&folder, &[&arguments[..], more].concat())
    };
    let sum = |output: &Output| -> u64 {
        let text = stdout(output);
        let counts = text.lines().filter_map(|line| line.rsplit(' ').next());
        counts.map(|count| count.parse().unwrap_or(0)).sum()
    };
    for (file, more, crossings, said) in [
        (
            "a.nodeprof",
            &[][..],
            1,
            "Run 2 of 3 (base); another: --run N.",
        ),
        (
            "a.nodeprof@head",
            &[],
            3,
            "Run 3 of 3 (head); another: --run N.",
        ),
        ("a.nodeprof", &["--run", "2"], 1, ""),
        ("a.nodeprof", &["--run", "3"], 3, ""),
    ] {
        let output = flame(file, more);
        assert_eq!(sum(&output), crossings, "{file} {more:?}");
        assert_eq!(stderr(&output).trim_end(), said);
    }
    for (file, more, said) in [
        ("a.nodeprof", &["--run", "1"][..], "the run had no probes"),
        (
            "a.nodeprof",
            &["--run", "4"],
            "has no run 4; needed: a number from 1 to 3",
        ),
        (
            "a.nodeprof@head",
            &["--run", "2"],
            "has no run 2; needed: one of 3",
        ),
        ("a.nodeprof@none", &[], "selects no run"),
    ] {
        let output = flame(file, more);
        assert_eq!(output.status.code(), Some(125), "{file} {more:?}");
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn packages_are_sorted_by_each_step_of_loading() {
    let mut program = Program::new("/app/main.js", true);
    program.require("/app/main.js", &[], 10_000, |p| {
        p.require("/app/node_modules/large/index.js", &[], 900_000, |_| {});
        p.require("/app/node_modules/busy/index.js", &[], 20_000, |p| {
            p.busy(3_000_000);
        });
        let asked = ["/app/x", "/app/y", "/app/z"];
        p.require("/app/node_modules/far/index.js", &asked, 30_000, |_| {});
    });
    for name in ["large", "busy", "far"] {
        program.package(&format!("/app/node_modules/{name}"), Some(name), None);
    }
    let folder = save(&program.end().0);
    let first = |figure: &str| -> (String, u64) {
        let arguments = ["blame", "a.nodeprof", "--format", "json", "--sort", figure];
        let json: serde_json::Value =
            serde_json::from_str(&stdout(&nodeprof(&folder, &arguments))).expect("JSON");
        let packages = json["runs"][0]["packages"].as_array().expect("packages");
        let values: Vec<u64> = packages
            .iter()
            .map(|one| one[format!("{figure}_ns")].as_u64().expect("a figure"))
            .collect();
        assert!(values.is_sorted_by(|a, b| a >= b), "{figure}: {values:?}");
        let name = packages[0]["name"].as_str().expect("a name");
        (name.to_owned(), values[0])
    };
    let (name, time) = first("compile");
    assert!(name == "large" && time >= 900_000, "{name} {time}");
    let (name, time) = first("execute");
    assert!(name == "busy" && time >= 2_000_000, "{name} {time}");
    assert_eq!(first("resolve").0, "far");
    let text = stdout(&nodeprof(
        &folder,
        &["blame", "a.nodeprof", "--sort", "compile", "-n", "1"],
    ));
    let mut lines = text.lines();
    assert!(
        lines.any(|line| line.trim_start().starts_with("compile ")),
        "{text}"
    );
    assert!(text.contains("large"), "{text}");
}

#[test]
fn a_file_is_replaced_whole_or_stays_as_it_was() {
    let folder = folder();
    let path = folder.path().join("a.svg");
    let flame = ["flame", "a.nodeprof", "--of", "crossings", "-f", "-o"];
    fs::write(&path, "the earlier one").expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("rights");
    let read = |path: &std::path::Path| fs::read_to_string(path).expect("a file");
    let files = || fs::read_dir(folder.path()).expect("a folder").count();
    // No file may have more than 512 bytes, whether that is a signal that kills or an error.
    for before in ["", "trap '' XFSZ; "] {
        let script = format!("{before}ulimit -f 1; exec \"$@\"");
        let limited = |arguments: &[&str], to: Stdio| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &script, "sh", NODEPROF]).args(arguments);
            let output = shell.stdout(to).current_dir(folder.path()).output();
            let output = output.expect("sh starts");
            assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
            stderr(&output)
        };
        let said = limited(&[&flame[..], &["a.svg"]].concat(), Stdio::piped());
        let words = "a file may have 512 here (ulimit -f); type: ulimit -f unlimited";
        assert!(
            said.contains("writing a.svg: ") && said.contains(words),
            "{said}"
        );
        assert_eq!(read(&path), "the earlier one");
        assert_eq!(files(), 2, "something was left behind");
        let to = tempfile::tempfile().expect("a file");
        let said = limited(&flame[..4], to.into());
        assert!(
            said.contains("writing to standard output: ") && said.contains(words),
            "{said}"
        );
    }
    // By way of a link; the file keeps its rights.
    let link = folder.path().join("link.svg");
    std::os::unix::fs::symlink("a.svg", &link).expect("a link");
    stdout(&nodeprof(&folder, &[&flame[..], &["link.svg"]].concat()));
    assert!(link.is_symlink() && read(&path).ends_with("</svg>\n"));
    let rights = path.metadata().expect("a file").permissions().mode();
    assert_eq!((rights & 0o777, files()), (0o600, 3));
    // Neither a device nor what standard output leads to is replaced.
    let output = nodeprof(&folder, &[&flame[..], &["/dev/full"]].concat());
    assert!(
        stderr(&output).contains("writing /dev/full: no space left ("),
        "{}",
        stderr(&output)
    );
    let redirected = fs::File::create(folder.path().join("b.svg")).expect("a file");
    let status = Command::new(NODEPROF)
        .args(&flame[..4])
        .args(["-o", "/dev/stdout"])
        .current_dir(folder.path())
        .stdout(redirected)
        .status()
        .expect("nodeprof starts");
    assert!(status.success());
    assert_eq!(read(&folder.path().join("b.svg")), read(&path));
}

#[test]
fn what_is_no_text_is_not_written_to_a_terminal() {
    let folder = folder();
    for (format, file) in [
        ("svg", Some("flame.svg")),
        ("pprof", Some("flame.pb.gz")),
        ("chrome", Some("trace.json")),
        ("folded", None),
    ] {
        let mut ends = [0; 2];
        let [ours, theirs] = &mut ends;
        let (name, terminal) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: room for two descriptors; no name, the default terminal.
        let made = unsafe { libc::openpty(ours, theirs, name, terminal, std::ptr::null()) };
        assert_eq!(made, 0);
        // SAFETY: new descriptors that nobody else owns.
        let [mut ours, theirs] = ends.map(|end| unsafe { fs::File::from_raw_fd(end) });
        let output = Command::new(NODEPROF)
            .args(["flame", "a.nodeprof", "--of", "crossings", "--format"])
            .arg(format)
            .current_dir(folder.path())
            .stdout(theirs)
            .stderr(std::process::Stdio::piped())
            .output()
            .expect("nodeprof starts");
        let said = stderr(&output);
        let mut shown = [0; 4096];
        let shown = ours.read(&mut shown).unwrap_or_default();
        match file {
            Some(file) => {
                assert_eq!((output.status.code(), shown), (Some(125), 0), "{said}");
                assert!(said.contains(&format!("type: -o {file}")), "{said}");
            }
            None => assert!(output.status.success() && shown > 0, "{said}"),
        }
    }
}

#[test]
fn colours_are_as_color_says_wherever_the_text_goes() {
    let folder = folder();
    let escape = |text: &str| text.contains('\u{1b}');
    for words in [
        &["report", "a.nodeprof"][..],
        &["diff", "a.nodeprof", "a.nodeprof"],
    ] {
        for output in [&[][..], &["-o", "-"], &["-o", "/dev/stdout"]] {
            let of = |color| nodeprof(&folder, &[words, output, &["--color", color]].concat());
            assert!(escape(&stdout(&of("always"))), "{words:?} {output:?}");
            assert!(!escape(&stdout(&of("never"))), "{words:?} {output:?}");
        }
        let file = [words, &["--color", "always", "-o", "a.txt", "-f"]].concat();
        stdout(&nodeprof(&folder, &file));
        let text = fs::read_to_string(folder.path().join("a.txt")).expect("a file");
        assert!(!escape(&text), "{words:?}");
    }
    // A command line that is not understood, too.
    for words in [
        &["flame", "--color=always"][..],
        &["--color", "always", "report"],
    ] {
        let output = nodeprof(&folder, words);
        assert!(escape(&stderr(&output)), "{}", stderr(&output));
        let program = nodeprof(
            &folder,
            &["trace", "--no-option", "--", "x", "--color", "always"],
        );
        assert!(!escape(&stderr(&program)), "{}", stderr(&program));
    }
    let help = nodeprof(&folder, &["report", "--help", "--color", "always"]);
    assert!(escape(&stdout(&help)));
}

#[test]
fn a_budget_that_compares_needs_a_base_and_is_named() {
    let folder = folder();
    let write = |text: &str| fs::write(folder.path().join("nodeprof.toml"), text).expect("a file");
    write(
        "[[budget]]\nfigure = \"crossings.total\"\nmax = 1000\n\
         [[budget]]\nfigure = \"files.stat.calls\"\nmax-increase = 0\n",
    );
    let output = nodeprof(&folder, &["check", "a.nodeprof"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    for said in [
        "nodeprof.toml: budget files.stat.calls",
        "type: nodeprof check a.nodeprof --against BASE",
    ] {
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
    }
}

#[test]
fn a_check_shows_names_and_figures_whole_and_says_what_to_type_of_this_recording() {
    let long = format!("/app/node_modules/{}/index.js", ["long-name"; 12].join("/"));
    let mut program = Program::new("/app/main.js", true);
    program.require("/app/main.js", &[], 50_000, |p| {
        p.require(&long, &[], 10_000, |p| {
            p.cross("fs", "InternalModuleStat", 9)
        });
    });
    let mut recording = program.end().0;
    recording
        .families
        .retain(|family| family.name != "serialization");
    recording
        .families
        .push(nodeprof_profile::recording::FamilyState {
            run: nodeprof_profile::recording::RunId(0),
            name: "serialization".into(),
            state: "off".into(),
            reason: None,
        });
    let folder = save(&recording);
    let budgets = "[[budget]]\nfigure = \"modules[*].crossings\"\nmax = 0\n\
                   [[budget]]\nfigure = \"serialization.calls\"\nmax = 0\n";
    fs::write(folder.path().join("nodeprof.toml"), budgets).expect("a file");
    let output = nodeprof(&folder, &["check", "a.nodeprof"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let joined: String = text.split_whitespace().collect();
    assert!(
        joined.contains(&format!(
            "modules[.{}].crossings:1isover0",
            &long["/app".len()..]
        )),
        "{text}"
    );
    assert!(!text.contains('…'), "{text}");
    assert!(joined.contains("type:nodeprofreporta.nodeprof"), "{text}");
}

#[test]
fn an_export_of_times_says_what_has_none() {
    let folder = several_runs();
    let export = |more: &[&str]| {
        let arguments = ["export", "a.nodeprof", "--of", "times"];
        nodeprof(&folder, &[&arguments[..], more].concat())
    };
    let output = export(&[]);
    assert_eq!(stdout(&output).lines().count(), 2);
    let said = "Left out, for want of a run without probes: head.";
    assert_eq!(stderr(&output).trim_end(), said);
    let output = export(&["--run", "2"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).contains("--run with --of times"),
        "{}",
        stderr(&output)
    );
    let folder = self::folder();
    for format in ["csv", "json"] {
        let arguments = ["export", "a.nodeprof", "--of", "times", "--format", format];
        let output = nodeprof(&folder, &arguments);
        assert_eq!(output.status.code(), Some(125));
        let text = stderr(&output);
        assert!(
            output.stdout.is_empty() && text.contains("no run without probes"),
            "{text}"
        );
    }
}

#[test]
fn help_is_wrapped_once() {
    let folder = folder();
    for (command, begins) in [
        ("trace", "The report goes"),
        ("diff", "BASE and HEAD"),
        ("bench", "Wall, user"),
    ] {
        let text = stdout(&nodeprof(&folder, &[command, "--help"]));
        let lines = text.lines().skip_while(|line| !line.starts_with(begins));
        let paragraph: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
        let (_, wrapped) = paragraph.split_last().expect("a paragraph");
        assert!(!wrapped.is_empty(), "{text}");
        assert!(wrapped.iter().all(|line| line.len() > 75), "{paragraph:#?}");
    }
}
