//! `nodeprof compare`, `diff` and `check` on programs with a planted cause, and the commands of docs/ci.md.

#![allow(clippy::expect_used, reason = "a test that fails says where")]

#[allow(unused, reason = "other tests need the rest of it")]
mod support;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use nodeprof_profile::{Recording, SaveOptions, store::database::Database};
use serde_json::Value;
use support::{NODEPROF, Node, undisturbed};

/// A package of `modules` small modules.
fn package(folder: &Path, name: &str, modules: usize) {
    let folder = folder.join("node_modules").join(name);
    fs::create_dir_all(&folder).expect("a folder");
    let manifest = format!("{{\"name\":\"{name}\",\"version\":\"1.0.0\"}}");
    fs::write(folder.join("package.json"), manifest).expect("a file");
    let requires: String = (0..modules)
        .map(|m| format!("require('./m{m}');\n"))
        .collect();
    fs::write(folder.join("index.js"), requires).expect("a file");
    for module in 0..modules {
        let functions: String = (0..30)
            .map(|f| format!("exports.f{f} = function (a, b) {{ return a * {f} + b; }};\n"))
            .collect();
        fs::write(folder.join(format!("m{module}.js")), functions).expect("a file");
    }
}

/// A program with three packages in `root/app`.
fn program(root: &Path, more: &str) {
    let app = root.join("app");
    fs::create_dir_all(&app).expect("a folder");
    for name in ["alpha", "beta", "gamma"] {
        package(root, name, 6);
    }
    fs::write(
        app.join("package.json"),
        "{\"name\":\"the-app\",\"version\":\"1.0.0\"}",
    )
    .expect("a file");
    fs::write(app.join("slow.js"), "exports.x = 1;\n").expect("a file");
    let text = format!(
        "require('./slow');\nrequire('alpha');\nrequire('beta');\nrequire('gamma');\n{more}"
    );
    fs::write(app.join("app.js"), text).expect("a file");
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(NODEPROF)
        .args(arguments)
        .current_dir(folder)
        .env_remove("NODE_EXTRA_CA_CERTS")
        .env_remove("COLUMNS")
        .output()
        .expect("nodeprof starts")
}

fn succeeds(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

/// The difference of both programs, from some pairs with probes in each.
fn difference(node: &Node, folder: &Path, base: &str, head: &str) -> Value {
    difference_of(node, folder, base, head, &[])
}

fn difference_of(node: &Node, folder: &Path, base: &str, head: &str, options: &[&str]) -> Value {
    let node = node.path.display();
    let [base, head] = [base, head].map(|script| format!("{node} {script}"));
    let command = [
        "compare",
        "-n",
        "1",
        "--probed-runs",
        "8",
        "--warmup",
        "1",
        "--quiet",
        "--force",
        "-o",
        "both.nodeprof",
        "--base",
        &base,
        "--head",
        &head,
    ];
    let output = run(folder, &[&command[..], options].concat());
    succeeds(&output);
    let output = run(folder, &["diff", "both.nodeprof", "--format", "json"]);
    succeeds(&output);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The first cause that is found for a cause that is planted; measured again, at most twice, while that is another one: what else
/// the machine does may have disturbed the runs of one side.
fn first_of(node: &Node, folder: &Path, base: &str, head: &str, expected: (&str, &str)) -> Value {
    let mut diff = Value::Null;
    for _ in 0..3 {
        diff = difference(node, folder, base, head);
        let cause = &diff["causes"][0];
        if cause["kind"] == expected.0 && (expected.1.is_empty() || cause["name"] == expected.1) {
            return cause.clone();
        }
        println!("not the first: {}", cause["sentence"]);
    }
    panic!("{expected:?} is not the first cause: {:#}", diff["causes"]);
}

/// Plants a cause in head and gives it, if it is the first one that is found: its kind, and its name if there is one.
fn first_cause(expected: (&str, &str), plant: impl FnOnce(&Path) -> &'static str) -> Option<Value> {
    let node = Node::find("20.20.2")?;
    let folder = tempfile::tempdir().expect("a folder");
    program(&folder.path().join("base"), "");
    let head = plant(&folder.path().join("head"));
    let base = "base/app/app.js";
    Some(first_of(&node, folder.path(), base, head, expected))
}

#[test]
#[ignore = "needs root"]
fn an_added_package_is_the_first_cause() {
    undisturbed(|| {
        let found = first_cause(("package", "delta"), |head| {
            program(head, "require('delta');\n");
            package(head, "delta", 12);
            "head/app/app.js"
        });
        let Some(cause) = found else { return };
        assert_eq!(cause["presence"], "added");
        let sentence = cause["sentence"].as_str().expect("a sentence");
        assert!(
            sentence.contains("package delta (added) costs") && sentence.contains("13 modules"),
            "{sentence}"
        );
    });
}

#[test]
#[ignore = "needs root"]
fn a_busy_loop_in_one_module_is_the_first_cause() {
    undisturbed(|| {
        let found = first_cause(("module", "./app/slow.js"), |head| {
            program(head, "");
            let text = "const end = process.hrtime.bigint() + 5000000n;\nwhile (process.hrtime.bigint() < end);\n";
            fs::write(head.join("app/slow.js"), text).expect("a file");
            "head/app/app.js"
        });
        let Some(cause) = found else { return };
        let change = cause["change_ns"].as_f64().expect("a time");
        assert!((4e6..9e6).contains(&change), "{change}");
    });
}

#[test]
#[ignore = "needs root"]
fn a_large_package_json_is_the_first_cause() {
    undisturbed(|| {
        let found = first_cause(("package_json", ""), |head| {
            program(head, "");
            let fields: Vec<String> = (0..40_000)
                .map(|n| format!("\"k{n}\":\"{}\"", "v".repeat(40)))
                .collect();
            let text = format!("{{\"name\":\"the-app\",\"x\":{{{}}}}}", fields.join(","));
            fs::write(head.join("app/package.json"), text).expect("a file");
            "head/app/app.js"
        });
        let Some(cause) = found else { return };
        let sentence = cause["sentence"].as_str().expect("a sentence");
        assert!(sentence.contains("./app/package.json"), "{sentence}");
    });
}

#[test]
#[ignore = "needs root"]
fn deeper_folders_are_the_first_cause() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let names: Vec<String> = (0..60).map(|n| format!("small-{n}")).collect();
        let requires: String = (names.iter())
            .map(|name| format!("require('{name}');\n"))
            .collect();
        for side in ["base", "head"] {
            let root = folder.path().join(side);
            program(&root, &requires);
            for name in &names {
                package(&root, name, 0);
            }
        }
        // Node asks each folder on the way up for each package.
        let head = folder.path().join("head");
        let deep = head.join("a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t");
        fs::create_dir_all(&deep).expect("a folder");
        fs::rename(head.join("app"), deep.join("app")).expect("a rename");
        let script = "head/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/app/app.js";
        let base = "base/app/app.js";
        let cause = first_of(&node, folder.path(), base, script, ("resolution", ""));
        let sentence = cause["sentence"].as_str().expect("a sentence");
        assert!(sentence.contains("stats more"), "{sentence}");
    });
}

#[test]
#[ignore = "needs root"]
fn stats_of_the_program_s_own_are_no_search_for_modules() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let script = "const { statSync } = require('fs');
            for (let i = 0; i < Number(process.argv[2]); i++) statSync('/nowhere', { throwIfNoEntry: false });";
        fs::write(folder.path().join("asks.js"), script).expect("a file");
        for mode in ["full", "count"] {
            let [base, head] = ["asks.js 0", "asks.js 50"];
            let diff = difference_of(&node, folder.path(), base, head, &["--mode", mode]);
            let causes = diff["causes"].as_array().expect("causes");
            assert!(
                causes.iter().all(|cause| cause["kind"] != "resolution"),
                "{mode}: {causes:#?}"
            );
            let stats = |of: &Value| of["name"] == "files.stat.calls" && of["difference"] == 50.0;
            let counts = diff["counts"].as_array().expect("counts");
            assert!(counts.iter().any(stats), "{mode}: {counts:#?}");
        }
    });
}

#[test]
#[ignore = "needs root"]
fn a_dropped_compile_cache_is_the_first_cause() {
    undisturbed(|| {
        // From 22.1 on, Node keeps one where this names a folder.
        let Some(node) = Node::find("24.21.0") else {
            return;
        };
        let folder = tempfile::tempdir().expect("a folder");
        // Many, so that no module alone is to blame.
        let parts: String = (0..40)
            .map(|part| format!("require('./part-{part}');\n"))
            .collect();
        // Called at once: only functions that were compiled are cached.
        let functions: String = (0..400)
            .map(|f| format!("exports.f{f} = (function (a) {{ return a + {f}; }})({f});\n"))
            .collect();
        for side in ["base", "head"] {
            program(&folder.path().join(side), &parts);
            for part in 0..40 {
                let file = folder.path().join(side).join(format!("app/part-{part}.js"));
                fs::write(file, &functions).expect("a file");
            }
        }
        let cached = "const m = require('module');\nm.enableCompileCache(__dirname + '/cache');\n";
        let app = folder.path().join("base/app/app.js");
        let text = fs::read_to_string(&app).expect("a file");
        fs::write(&app, format!("{cached}{text}")).expect("a file");
        let diff = difference(&node, folder.path(), "base/app/app.js", "head/app/app.js");
        let counts = diff["counts"].as_array().expect("counts");
        let cached = counts
            .iter()
            .find(|change| change["figure"] == "compile.cached");
        let cached =
            cached.unwrap_or_else(|| panic!("no change of what is cached: {:#}", diff["causes"]));
        assert!(
            cached["difference"].as_f64().expect("a number") < 0.0,
            "{cached:#}"
        );
        let (base, head) = ("base/app/app.js", "head/app/app.js");
        first_of(&node, folder.path(), base, head, ("compilation", ""));
    });
}

/// The commands of a block of docs/ci.md, in order.
fn commands(heading: &str) -> String {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ci.md"))
        .expect("the document");
    let (_, section) = text.split_once(heading).expect("a section");
    let (_, block) = section.split_once("```yaml\n").expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    let is_command = |line: &&str| {
        let command = line.trim_start().trim_start_matches("- ");
        ["sudo ", "npm ", "nodeprof "]
            .iter()
            .any(|word| command.starts_with(word))
    };
    let commands = block.lines().filter(is_command);
    commands
        .map(|line| line.trim_start().trim_start_matches("- "))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A folder with programs that a CI machine has, as far as the commands need them.
fn path_of_a_runner(folder: &Path, node: &Node) -> String {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).expect("a folder");
    let script = |name: &str, text: &str| {
        let path = bin.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    };
    script("sudo", "case $1 in apt-get) ;; *) exec \"$@\" ;; esac");
    script("npm", "exit 0");
    for (name, target) in [
        ("node", node.path.as_path()),
        ("nodeprof", Path::new(NODEPROF)),
    ] {
        std::os::unix::fs::symlink(target, bin.join(name)).expect("a link");
    }
    format!("{}:/usr/bin:/bin", bin.display())
}

/// Runs the commands of docs/ci.md with a head that is like base, and with one that is not.
fn example(heading: &str) {
    let Some(node) = Node::find("24.21.0") else {
        return;
    };
    let commands = commands(heading);
    assert!(
        commands.contains("nodeprof check") && commands.contains("nodeprof compare"),
        "{commands}"
    );
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ci.md"))
        .expect("the document");
    let (_, rest) = document.split_once("```toml\n").expect("budgets");
    let (budgets, _) = rest.split_once("```").expect("their end");
    for (more, status) in [("", 0), ("require('fs').statSync('.');\n", 1)] {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let path = path_of_a_runner(root, &node);
        for (side, more) in [("base", ""), ("head", more)] {
            let side = root.join(side);
            fs::create_dir_all(&side).expect("a folder");
            fs::write(side.join("app.js"), format!("require('os');\n{more}")).expect("a file");
        }
        fs::write(root.join("head").join("nodeprof.toml"), budgets).expect("a file");
        // As a runner's shell does: the first command that fails ends it.
        let output = Command::new("bash")
            .args(["-e", "-c", &commands])
            .current_dir(root)
            .env("PATH", path)
            .env("GITHUB_STEP_SUMMARY", root.join("summary.md"))
            .env_remove("NODE_EXTRA_CA_CERTS")
            .output()
            .expect("bash starts");
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let failed = root.join("startup.xml");
        let report = fs::read_to_string(&failed).unwrap_or_default();
        assert_eq!(output.status.code(), Some(status), "{said}{report}");
        assert!(root.join("diff.svg").exists());
    }
}

#[test]
#[ignore = "needs root"]
fn the_example_for_github_actions_passes_and_fails_as_it_should() {
    undisturbed(|| {
        example("## GitHub Actions");
    });
}

#[test]
#[ignore = "needs root"]
fn the_example_for_gitlab_passes_and_fails_as_it_should() {
    undisturbed(|| {
        example("## GitLab");
    });
}

/// Labels are from the environment of any user's program: who reads the store, or gets a recording, is often root.
#[test]
fn nothing_of_a_store_or_a_recording_is_a_command_to_the_terminal() {
    const EVIL: &str = "\u{1b}[2J\u{9b}2J\u{7}\n";
    let folder = tempfile::tempdir().expect("a folder");
    let mut recording = Recording::synthetic(40);
    for label in ["job", "commit", "name"] {
        let value = format!("a1b2{EVIL}");
        recording.runs[0].labels.push((label.into(), value));
    }
    let mut other = Recording::synthetic(40);
    other.runs[0].labels.push(("name".into(), EVIL.into()));
    recording.append(other);
    let file = folder.path().join("both.nodeprof");
    recording
        .save(&file, SaveOptions::default())
        .expect("a recording");
    let mut one = Recording::synthetic(40);
    let value = format!("j{EVIL}");
    one.runs[0].labels.push(("job".into(), value));
    let mut store = Database::open(&folder.path().join("s.db")).expect("a database");
    store.keep(one, None).expect("a run");
    drop(store);
    let of_store = |words: &[&'static str]| -> Vec<&'static str> {
        [words, &["--store", "--store-path", "s.db"]].concat()
    };
    let cases: [(Vec<&str>, bool); 8] = [
        (of_store(&["diff", "job=x", "job=y"]), false),
        (of_store(&["report", "job=x"]), false),
        (vec!["diff", "both.nodeprof@0", "both.nodeprof@1"], false),
        (vec!["check", "both.nodeprof", "--budget", "b.toml"], false),
        (vec!["diff", "both.nodeprof"], true),
        (vec!["report", "both.nodeprof"], true),
        (
            vec![
                "flame",
                "both.nodeprof",
                "--of",
                "crossings",
                "--format",
                "folded",
            ],
            true,
        ),
        (
            vec!["budget", "init", "both.nodeprof@job=none", "-o", "-"],
            false,
        ),
    ];
    fs::write(
        folder.path().join("b.toml"),
        "[[budget]]\nfigure = \"modules.count\"\nmax = 1\n",
    )
    .expect("a file");
    for (arguments, succeeds) in cases {
        let output = run(folder.path(), &arguments);
        assert_eq!(
            output.status.success(),
            succeeds,
            "{arguments:?}: {output:?}"
        );
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8(said).expect("a text");
        let is_command = |c: char| c.is_control() && c != '\n';
        assert!(!said.contains(is_command), "{arguments:?}: {said:?}");
        // An error is one line: no label begins another.
        let lines = output.stderr.iter().filter(|byte| **byte == b'\n').count();
        assert!(succeeds || lines == 1, "{arguments:?}: {said:?}");
    }
}
