//! `--format html`: pages looked at in a headless browser, view by view, their figures compared with the JSON.

#![allow(clippy::expect_used, reason = "a test that fails says where")]

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "what tests share is more than this one needs"
)]
mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use nodeprof_flamegraphs::web;
use nodeprof_profile::{
    Recording, SaveOptions,
    groups::{BARE, COUNT_MODE},
    recording::{CrossingSum, FamilyState, Loss, Nanoseconds, Run, RunId},
    synthetic::program::Program,
};
use support::{NODEPROF, has_packages, project};

/// The page's own tests and its types; packages of npm are needed for both.
fn has_page() -> bool {
    if !Path::new(&project("flamegraphs/page/node_modules")).is_dir() {
        println!("skipped: flamegraphs/page has no node_modules; run make test");
        return false;
    }
    if !web::is_built() {
        println!("skipped: nodeprof was built without its page; run make test");
        return false;
    }
    true
}

fn nodeprof(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(NODEPROF);
    command.args(arguments).current_dir(folder);
    command.output().expect("nodeprof starts")
}

fn succeeds(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = nodeprof(folder, arguments);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {complaint}");
    output.stdout
}

/// Opens the page of a recording in a browser and looks at all its views.
fn look_at(folder: &Path, recording: &str, options: &[&str]) {
    let name = format!("{recording}.html");
    succeeds(
        folder,
        &["report", recording, "--format", "html", "-o", &name],
    );
    let json = folder.join(format!("{recording}.json"));
    let report = succeeds(folder, &["report", recording, "--format", "json"]);
    fs::write(&json, report).expect("a file");
    let json = json.to_str().expect("UTF-8");
    drive(&folder.join(name), &[&["--json", json], options].concat());
}

fn drive(page: &Path, options: &[&str]) {
    let mut command = Command::new("node");
    command
        .arg(project("flamegraphs/page/test/drive.mjs"))
        .arg(page)
        .args(options)
        .env_remove("LD_LIBRARY_PATH");
    let output = command.output().expect("node starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    println!("{said}");
    // 77: it said why it was skipped.
    let fine = output.status.success() || output.status.code() == Some(77);
    assert!(fine, "{}: {said}{complaint}", page.display());
}

fn save(folder: &Path, name: &str, recording: &Recording) -> PathBuf {
    let path = folder.join(name);
    let options = SaveOptions { overwrite: true };
    recording.save(&path, options).expect("a recording");
    path
}

/// A main module that requires a slow package, and looks for files in vain.
fn program(slow: u64) -> Recording {
    let mut program = Program::new("/app/main.js", true);
    program.require("/app/main.js", &[], 50_000, |p| {
        p.cross("fs", "InternalModuleStat", 4_000);
        p.require(
            "/app/node_modules/slow/index.js",
            &["/app/slow.js"],
            900_000,
            |p| {
                p.cross("fs", "InternalModuleStat", 4_000);
                p.busy(slow);
                p.serialize(1_000, 2_000);
            },
        );
        p.require("/app/node_modules/quick/index.js", &[], 90_000, |p| {
            p.lookup("/app/node_modules/quick/package.json");
            p.lookup("/app/node_modules/quick/package.json");
        });
    });
    program.package("/app/node_modules/slow", Some("slow"), Some("1.2.3"));
    program.package("/app/node_modules/quick", Some("quick"), Some("0.0.1"));
    program.end().0
}

#[test]
fn the_pages_own_tests_pass() {
    if !has_page() {
        return;
    }
    for script in ["check", "test"] {
        let mut command = Command::new("npm");
        command
            .args(["run", "--silent", script])
            .current_dir(project("flamegraphs/page"))
            .env_remove("LD_LIBRARY_PATH");
        let output = command.output().expect("npm starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "npm run {script}: {said}");
    }
}

#[test]
fn every_view_of_a_program_has_the_figures_of_the_json() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    save(folder.path(), "a.nodeprof", &program(40_000_000));
    look_at(
        folder.path(),
        "a.nodeprof",
        &[
            "--axe",
            "--first",
            "The package slow 1.2.3",
            "--leads",
            "The package slow",
        ],
    );
}

/// In count mode neither calls nor system calls are timed.
#[test]
fn a_page_has_no_times_where_count_mode_takes_none() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    let mut recording = program(40_000_000);
    recording.runs[0].mode = COUNT_MODE.into();
    for access in &mut recording.files {
        access.duration = Nanoseconds(0);
    }
    for call in &mut recording.crossings {
        (call.duration, call.self_time) = (None, None);
    }
    recording.serializations.clear();
    recording.samples.clear();
    for name in ["serialization", "cpu"] {
        recording.families.push(FamilyState {
            run: RunId(0),
            name: name.into(),
            state: "off".into(),
            reason: None,
        });
    }
    save(folder.path(), "count.nodeprof", &recording);
    look_at(folder.path(), "count.nodeprof", &[]);
}

/// They have no instant: an order of time says how many it leaves out, or that there is none.
#[test]
fn a_page_tells_of_calls_that_were_only_summed() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    let mut some = program(40_000_000);
    let call = some.crossings[0];
    some.crossing_sums.push(CrossingSum {
        process: call.process,
        callback: call.callback,
        kind: call.kind,
        phase: 0,
        calls: 250_000,
        total: Nanoseconds(30_000_000),
        self_time: Nanoseconds(30_000_000),
        timed: 250_000,
        stack: call.stack,
    });
    let mut all = some.clone();
    all.crossings.clear();
    for (name, recording) in [("some.nodeprof", some), ("all.nodeprof", all)] {
        save(folder.path(), name, &recording);
        look_at(folder.path(), name, &["--brief"]);
    }
}

fn first_screen_says(recording: &Recording, expected: &str) {
    let folder = support::folder();
    save(folder.path(), "a.nodeprof", recording);
    look_at(
        folder.path(),
        "a.nodeprof",
        &["--first", expected, "--leads", expected],
    );
}

#[test]
fn the_first_screen_names_thousands_of_lookups_in_a_deep_tree() {
    if !has_page() {
        return;
    }
    let mut program = Program::new("/app/main.js", true);
    program.require("/app/main.js", &[], 50_000, |p| {
        for index in 0..60 {
            let folder = format!("/app/src/a/b/c/d/e/f/g/h{index}");
            let asked: Vec<String> = (0..40).map(|n| format!("{folder}/{n}.js")).collect();
            let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
            p.require(&format!("{folder}/index.js"), &asked, 20_000, |p| {
                for depth in 1..=50 {
                    p.lookup(&format!("{folder}/{}/package.json", depth % 9));
                }
            });
        }
    });
    program.package("/app", Some("app"), None);
    first_screen_says(
        &program.end().0,
        r"Finding the files of modules takes .* 3,\d\d\d lookups of package.json",
    );
}

#[test]
fn the_first_screen_names_a_compile_cache_that_is_not_used() {
    if !has_page() {
        return;
    }
    let mut program = Program::new("/app/main.js", true);
    program.require("/app/main.js", &[], 40_000_000, |p| {
        for index in 0..10 {
            p.require(&format!("/app/lib/{index}.js"), &[], 9_000_000, |_| {});
        }
    });
    first_screen_says(
        &program.end().0,
        "Compiling JavaScript takes .* none of them from a compile cache",
    );
}

#[test]
fn every_view_of_many_events_has_the_figures_of_the_json() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    save(folder.path(), "a.nodeprof", &Recording::synthetic(20_000));
    look_at(folder.path(), "a.nodeprof", &[]);
}

#[test]
fn an_empty_run_and_an_empty_recording_are_shown_as_such() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    let run = Run {
        command: vec![b"node".to_vec()],
        mode: "full".into(),
        ..Run::default()
    };
    let empty = Recording {
        runs: vec![run],
        ..Recording::default()
    };
    save(folder.path(), "run.nodeprof", &empty);
    look_at(folder.path(), "run.nodeprof", &["--axe"]);
}

#[test]
fn what_is_missing_is_said_on_the_first_screen() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    let mut recording = program(1_000_000);
    recording.losses.push(Loss {
        run: RunId(0),
        kind: "records".into(),
        count: 12_345,
    });
    recording.families.push(FamilyState {
        run: RunId(0),
        name: "serialization".into(),
        state: "failed".into(),
        reason: Some("no such functions".into()),
    });
    save(folder.path(), "lossy.nodeprof", &recording);
    let expected = "12,345 records were dropped because the buffer was full";
    look_at(folder.path(), "lossy.nodeprof", &["--contains", expected]);
}

/// What breaks pages that take names for markup, and files that take data for a place to fill.
const HOSTILE: [&[u8]; 12] = [
    b"</script><script>globalThis.injected=1</script>",
    b"<img src=x onerror=globalThis.injected=1>",
    b"\"><svg onload=globalThis.injected=1>",
    b"' onmouseover='globalThis.injected=1",
    b"javascript:globalThis.injected=1",
    b"<!--<script>",
    b"${globalThis.injected=1}{{injected=1}}",
    b"@@nodeprof-data@@ @@nodeprof-connect@@",
    b"__proto__",
    b"constructor",
    b"\xff\xfe\x80 not UTF-8",
    "\u{202e}gnp.exe \u{0} \u{1b}[31m \u{2028} \u{feff}".as_bytes(),
];

#[test]
fn nothing_that_a_program_is_called_can_run_or_inject() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    let mut recording = program(1_000_000);
    for (index, name) in recording.names.iter_mut().enumerate() {
        let hostile = HOSTILE[index % HOSTILE.len()];
        // Still below the same folders: modules and packages are to be found in it.
        *name = [name, b"/".as_slice(), hostile].concat();
    }
    let text = |index: usize| String::from_utf8_lossy(HOSTILE[index]).into_owned();
    for run in &mut recording.runs {
        run.command = HOSTILE.iter().map(|word| word.to_vec()).collect();
        run.directory = HOSTILE[0].to_vec();
        run.labels = (0..6).map(|n| (text(n), text(n + 1))).collect();
    }
    for (index, callback) in recording.callbacks.iter_mut().enumerate() {
        callback.binding = text(index % 10);
        callback.function = text((index + 1) % 10);
    }
    for (index, package) in recording.packages.iter_mut().enumerate() {
        package.name = Some(text(index));
        package.version = Some(text(index + 1));
    }
    for process in &mut recording.processes {
        process.incomplete = Some(text(0));
        for exec in &mut process.execs {
            exec.arguments = HOSTILE.iter().map(|word| word.to_vec()).collect();
        }
    }
    recording.families.push(FamilyState {
        run: RunId(0),
        name: text(1),
        state: text(0),
        reason: Some(text(2)),
    });
    save(folder.path(), "hostile.nodeprof", &recording);
    look_at(folder.path(), "hostile.nodeprof", &["--axe"]);
    let page = fs::read_to_string(folder.path().join("hostile.nodeprof.html")).expect("a page");
    assert!(!page.contains("onerror=globalThis"), "{page}");
}

#[test]
fn a_page_allows_its_own_script_only_and_asks_for_nothing() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    save(folder.path(), "a.nodeprof", &program(1_000));
    let page = succeeds(folder.path(), &["report", "a.nodeprof", "--format", "html"]);
    let page = String::from_utf8(page).expect("UTF-8");
    assert!(page.len() < 1_500_000, "{} bytes", page.len());
    let policy = page.split("Content-Security-Policy\" content=\"").nth(1);
    let policy = policy.and_then(|rest| rest.split('"').next());
    let policy = policy.expect("a policy");
    for part in [
        "default-src 'none'",
        "connect-src 'none'",
        "require-trusted-types-for 'script'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
}

/// Opens the page of a comparison and looks at its views: every figure is that of the JSON, of both sides and of the difference.
fn look_at_both(folder: &Path, sides: &[&str], options: &[&str]) {
    let write = |arguments: &[&str], name: &str| -> String {
        let path = folder.join(name);
        fs::write(&path, succeeds(folder, arguments)).expect("a file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let html = [&["diff"], sides, &["--format", "html", "-o", "diff.html"]].concat();
    succeeds(folder, &html);
    let json = [&["diff"], sides, &["--format", "json"]].concat();
    let mut compared = vec!["--diff".to_owned(), write(&json, "diff.json")];
    // One file with both has one JSON.
    for side in [sides[0], sides[sides.len() - 1]] {
        let report = ["report", side, "--format", "json"];
        compared.extend(["--json".to_owned(), write(&report, &format!("{side}.json"))]);
    }
    for metric in ["crossings", "cpu", "files"] {
        let flame = [
            &["flame", "--diff"],
            sides,
            &["--of", metric, "--format", "json"],
        ]
        .concat();
        let path = write(&flame, &format!("{metric}.json"));
        compared.extend(["--flame".to_owned(), format!("{metric}={path}")]);
    }
    let compared: Vec<&str> = compared.iter().map(String::as_str).collect();
    drive(
        &folder.join("diff.html"),
        &[&compared[..], options].concat(),
    );
}

#[test]
fn a_comparison_has_the_figures_of_the_json_on_both_sides() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    save(folder.path(), "base.nodeprof", &program(1_000_000));
    save(folder.path(), "head.nodeprof", &program(90_000_000));
    look_at_both(
        folder.path(),
        &["base.nodeprof", "head.nodeprof"],
        &["--axe"],
    );
}

/// Runs that ended otherwise than most are left out of it, and runs without probes that only one side has.
#[test]
fn a_comparison_draws_the_runs_that_it_compares() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    let runs = |slow: u64, kinds: &[&str]| {
        let mut all = Recording::default();
        for (number, kind) in (0u64..).zip(kinds) {
            let mut one = program(slow + 70_000 * number);
            let run = &mut one.runs[0];
            match *kind {
                "failed" => run.exit_status = Some(1),
                "bare" => run.mode = BARE.into(),
                _ => {}
            }
            all.append(one);
        }
        all
    };
    let base = runs(2_000_000, &["", "", "failed", "", ""]);
    let head = runs(9_000_000, &["", "bare", "", "bare", "bare", ""]);
    save(folder.path(), "base.nodeprof", &base);
    save(folder.path(), "head.nodeprof", &head);
    look_at_both(folder.path(), &["base.nodeprof", "head.nodeprof"], &[]);
}

/// Two versions of Node, several runs of each with and without probes.
#[test]
#[ignore = "needs root"]
fn the_page_of_two_versions_of_node() {
    let both = support::Node::find("20.20.2").zip(support::Node::find("22.23.3"));
    let Some((base, head)) = both.filter(|_| has_page() && has_packages("examples/express")) else {
        return;
    };
    let folder = support::folder();
    let app = project("examples/express/app.js");
    let path = |node: &support::Node| node.command::<&str>([]).remove(0);
    let (base, head) = (path(&base), path(&head));
    succeeds(
        folder.path(),
        &[
            "compare",
            "--max-pairs",
            "15",
            "-o",
            "both.nodeprof",
            "--base-node",
            &base,
            "--head-node",
            &head,
            "--",
            &app,
        ],
    );
    look_at_both(folder.path(), &["both.nodeprof"], &[]);
}

#[test]
fn a_file_is_not_overwritten_unasked() {
    if !has_page() {
        return;
    }
    let folder = support::folder();
    save(folder.path(), "a.nodeprof", &program(1_000));
    let arguments = ["report", "a.nodeprof", "--format", "html", "-o", "a.html"];
    succeeds(folder.path(), &arguments);
    let output = nodeprof(folder.path(), &arguments);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(complaint.contains("exists already"), "{complaint}");
    succeeds(folder.path(), &[&arguments[..], &["--force"]].concat());
}

#[test]
fn a_line_instead_of_a_file_is_standard_output() {
    let folder = support::folder();
    save(folder.path(), "a.nodeprof", &program(1_000));
    let of = |arguments: &[&str]| succeeds(folder.path(), arguments);
    for command in [
        &[
            "flame",
            "a.nodeprof",
            "--of",
            "crossings",
            "--format",
            "folded",
        ][..],
        &["report", "a.nodeprof", "--format", "json"],
        &["export", "a.nodeprof", "--of", "callbacks"],
    ] {
        let printed = of(command);
        assert!(!printed.is_empty());
        assert_eq!(printed, of(&[command, &["-o", "-"]].concat()));
    }
    assert!(!folder.path().join("-").exists());
}

/// Traces a program and looks at its page.
fn traced(program: &[String]) {
    if !has_page() {
        return;
    }
    let traced = support::trace(&[], program);
    let folder = support::folder();
    fs::copy(&traced.recording, folder.path().join("a.nodeprof")).expect("a copy");
    look_at(folder.path(), "a.nodeprof", &["--axe"]);
}

#[test]
#[ignore = "needs root"]
fn the_page_of_express() {
    if let Some(node) = support::Node::find("20.20.2").filter(|_| has_packages("examples/express"))
    {
        traced(&node.command([project("examples/express/app.js")]));
    }
}

#[test]
#[ignore = "needs root"]
fn the_page_of_eslint() {
    if let Some(node) = support::Node::find("24.21.0").filter(|_| has_packages("bench/subjects")) {
        let eslint = project("bench/subjects/node_modules/eslint/bin/eslint.js");
        traced(&node.command([eslint, "--version".to_owned()]));
    }
}

#[test]
#[ignore = "needs root"]
fn the_page_of_vite() {
    if let Some(node) = support::Node::find("22.23.3").filter(|_| has_packages("bench/subjects")) {
        let vite = project("bench/subjects/node_modules/vite/bin/vite.js");
        traced(&node.command([vite, "--version".to_owned()]));
    }
}

/// Traces a program with a planted cause, in a folder that is filled first: the page names it before anything is scrolled, and first.
fn planted(version: &'static str, fill: impl FnOnce(&Path), expected: &str) {
    let Some(node) = support::Node::find(version).filter(|_| has_page()) else {
        return;
    };
    let folder = support::folder();
    fill(folder.path());
    let program = node.command([folder.path().join("main.js")]);
    let traced = support::trace(&[], program);
    fs::copy(&traced.recording, folder.path().join("a.nodeprof")).expect("a copy");
    let options = ["--brief", "--first", expected, "--leads", expected];
    look_at(folder.path(), "a.nodeprof", &options);
}

fn fill(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

#[test]
#[ignore = "needs root"]
fn the_first_screen_names_a_slow_package_of_a_real_program() {
    let slow = |folder: &Path| {
        let manifest = r#"{ "name": "slow-one", "version": "3.2.1", "main": "index.js" }"#;
        fill(folder, "node_modules/slow-one/package.json", manifest);
        let busy = "const until = Date.now() + 120; while (Date.now() < until);\n";
        fill(folder, "node_modules/slow-one/index.js", busy);
        let quick = r#"{ "name": "quick-one", "version": "1.0.0" }"#;
        fill(folder, "node_modules/quick-one/package.json", quick);
        fill(
            folder,
            "node_modules/quick-one/index.js",
            "module.exports = 1;\n",
        );
        let main = "require('quick-one');\nrequire('slow-one');\n";
        fill(folder, "main.js", main);
    };
    planted("20.20.2", slow, r"The package slow-one 3\.2\.1");
}

#[test]
#[ignore = "needs root"]
fn the_first_screen_names_thousands_of_lookups_in_a_real_deep_tree() {
    let deep = |folder: &Path| {
        let mut main = String::new();
        for index in 0..600 {
            let module = format!("src/a/b/c/d/e/f/g/h/i/j{index}/k/l/m/index.js");
            fill(folder, &module, "module.exports = 1;\n");
            main.push_str(&format!("require('./{module}');\n"));
        }
        fill(folder, "main.js", &main);
    };
    let expected = r"Finding the files of modules takes .* \d,\d\d\d lookups of package.json";
    planted("20.20.2", deep, expected);
}

/// The same scripts with and without what V8 had kept of them: the difference is laid to compilation.
#[test]
#[ignore = "needs root"]
fn the_first_screen_names_a_compile_cache_that_was_dropped() {
    let Some(node) = support::Node::find("22.23.3").filter(|_| has_page()) else {
        return;
    };
    let folder = support::folder();
    let at = folder.path();
    let mut main = String::new();
    for script in 0..8 {
        // In a function that nobody calls: V8 reads all of it, and running the script makes none of them.
        let mut text = "exports.uncalled = function (exports) {\n".to_owned();
        for function in 0..2_000 {
            let steps = (0..6).map(|step| {
                format!("const c{step} = a * {function} + b * {step}; if (c{step} > {script}) return [c{step}, a, {{ a, b, c{step} }}];")
            });
            let steps: String = steps.collect();
            text.push_str(&format!(
                "exports.f{function} = function (a, b) {{ {steps} return a; }};\n"
            ));
        }
        text.push_str("};\n");
        fill(at, &format!("lib/{script}.js"), &text);
        main.push_str(&format!("require('./lib/{script}.js');\n"));
    }
    fill(at, "main.js", &main);
    let [node, main] = [
        node.command::<&str>([]).remove(0),
        at.join("main.js").display().to_string(),
    ];
    let cached = format!(
        "env NODE_COMPILE_CACHE={} {node} {main}",
        at.join("cache").display()
    );
    let bare = format!("{node} {main}");
    // The first one writes it.
    let status = Command::new(&node)
        .arg(&main)
        .env("NODE_COMPILE_CACHE", at.join("cache"))
        .status();
    assert!(status.expect("node starts").success());
    let compare = [
        "compare",
        "--max-pairs",
        "15",
        "-o",
        "both.nodeprof",
        "--base",
        &cached,
        "--head",
        &bare,
    ];
    succeeds(at, &compare);
    let leads = "Compil.* cache";
    look_at_both(
        at,
        &["both.nodeprof"],
        &["--brief", "--first", leads, "--leads", leads],
    );
    let head = support::trace(&[], [&node, &main]);
    fs::copy(&head.recording, at.join("a.nodeprof")).expect("a copy");
    let alone = "Compiling JavaScript takes .* none of them from a compile cache";
    let options = ["--brief", "--first", alone, "--leads", alone];
    look_at(at, "a.nodeprof", &options);
}
