//! `nodeprof bench` and `nodeprof compare`, from outside.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that fails says where"
)]

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "not every test file uses all of it"
)]
mod support;

use std::{fs, os::unix::process::CommandExt as _, path::Path, process::Output};

use nodeprof_profile::{
    Recording,
    groups::Group,
    measured::{Measured, pairs},
};
use serde_json::Value;
use support::{NODEPROF, Node, folder, has_tool, plain, undisturbed, write};

fn nodeprof<S: AsRef<std::ffi::OsStr>>(folder: &Path, arguments: &[S]) -> Output {
    let mut command = std::process::Command::new(NODEPROF);
    plain(&mut command).args(arguments).current_dir(folder);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs it, expects success, and gives what it printed.
fn ok<S: AsRef<std::ffi::OsStr>>(folder: &Path, arguments: &[S]) -> String {
    let output = nodeprof(folder, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn bench_runs_each_combination_as_often_as_asked() {
    let folder = folder();
    let log = folder.path().join("log");
    let script = format!("echo {{a}}{{b}} >> {}", log.display());
    let out = ok(
        folder.path(),
        &[
            "bench",
            "-n",
            "3",
            "-w",
            "1",
            "--probed-runs",
            "0",
            "-o",
            "b.nodeprof",
            "-L",
            "a",
            "1,2",
            "-L",
            "b",
            "x,y",
            "--label",
            "commit=1a2b",
            "--",
            "sh",
            "-c",
            &script,
        ],
    );
    for name in ["1/x", "1/y", "2/x", "2/y"] {
        assert!(out.contains(name), "{out}");
    }
    let mut lines: Vec<String> = fs::read_to_string(log)
        .unwrap()
        .lines()
        .map(Into::into)
        .collect();
    lines.sort();
    let expected: Vec<&str> = ["1x", "1y", "2x", "2y"]
        .iter()
        .flat_map(|l| [*l; 4])
        .collect();
    assert_eq!(lines, expected);
    let recording = Recording::load(folder.path().join("b.nodeprof")).unwrap();
    assert_eq!(recording.runs.len(), 12);
    let labels = &recording.runs[0].labels;
    assert!(
        labels.contains(&("commit".into(), "1a2b".into())),
        "{labels:?}"
    );
    // A warm-up of each was read for its memory, if that is permitted here.
    let all = Measured::of(&recording, &Group::all(&recording, ""));
    assert!([0, 4].contains(&all.uss.len()), "{:?}", all.uss);
    // The report prints the same tables.
    assert!(ok(folder.path(), &["report", "b.nodeprof"]).starts_with(&out));
}

#[test]
fn a_slow_side_is_found_and_the_order_is_tossed() {
    undisturbed(|| {
        let folder = folder();
        let log = folder.path().join("log");
        let command = |name: &str, seconds: &str| {
            format!("sh -c 'echo {name} >> {}; sleep {seconds}'", log.display())
        };
        let out = ok(
            folder.path(),
            &[
                "compare",
                "-w",
                "0",
                "--probed-runs",
                "0",
                "--seed",
                "7",
                "-o",
                "c.nodeprof",
                "--base",
                &command("base", "0.02"),
                "--head",
                // So much longer that the machine cannot turn a single pair round: the first look asks for 15 that agree.
                &command("head", "0.6"),
            ],
        );
        assert!(out.contains("head is slower by "), "{out}");
        assert!(out.contains("after 15 pairs"), "{out}");
        let order = fs::read_to_string(log).unwrap();
        let pairs_run: Vec<&str> = order.lines().collect();
        assert_eq!(pairs_run.len(), 30);
        let base_first = pairs_run.chunks(2).filter(|p| p[0] == "base").count();
        assert!(pairs_run.chunks(2).all(|p| p[0] != p[1]));
        assert!((1..15).contains(&base_first), "{pairs_run:?}");
        let recording = Recording::load(folder.path().join("c.nodeprof")).unwrap();
        let (base, head) = Group::sides(&recording).unwrap();
        let times = pairs(&recording, &base, &head);
        assert_eq!(times.len(), 15);
        // However slow the machine, nobody slept less.
        assert!(
            times
                .iter()
                .all(|(base, head)| *base >= 0.02 && *head >= 0.6)
        );
        // Other commands come to the same verdict from the recording alone.
        let diff = ok(folder.path(), &["diff", "c.nodeprof", "--format", "json"]);
        let verdict = &serde_json::from_str::<Value>(&diff).unwrap()["verdict"];
        assert_eq!(verdict["answer"], "slower");
        assert_eq!(verdict["pairs"]["pairs"], 15);
        assert_eq!(verdict["pairs"]["chance"], 0.002);
        // Hodges and Lehmann's estimate: the middle of all means of two, of logarithms since these are ratios.
        let logs: Vec<f64> = times
            .iter()
            .map(|(base, head)| (head / base).ln())
            .collect();
        let mut means: Vec<f64> = (0..15)
            .flat_map(|i| (i..15).map(move |j| (i, j)))
            .map(|(i, j)| (logs[i] + logs[j]) / 2.0)
            .collect();
        means.sort_by(f64::total_cmp);
        let expected = ((means[59] + means[60]) / 2.0).exp();
        let ratio = verdict["ratio"].as_f64().unwrap();
        assert!(
            (ratio / expected - 1.0).abs() < 1e-9,
            "{ratio}, {expected}: {verdict}"
        );
    });
}

#[test]
fn few_pairs_give_no_verdict_on_time() {
    let folder = folder();
    let arguments = [
        "compare",
        "-n",
        "5",
        "-w",
        "0",
        "--probed-runs",
        "0",
        "-o",
        "c.nodeprof",
    ];
    let sides = ["--base", "sleep 0.01", "--head", "sleep 0.05"];
    let out = ok(folder.path(), &[&arguments[..], &sides].concat());
    assert!(out.contains("after 5 pairs; 10 are the least."), "{out}");
    assert!(out.contains("Welch"), "{out}");
}

#[test]
fn a_command_that_fails_is_told_with_what_it_wrote() {
    let folder = folder();
    let failing = ["--", "sh", "-c", "echo why >&2; exit 3"];
    let bench = ["bench", "-n", "2", "--probed-runs", "0", "-o", "f.nodeprof"];
    let output = nodeprof(folder.path(), &[&bench[..], &failing].concat());
    assert_eq!(output.status.code(), Some(125));
    let error = text(&output.stderr);
    assert!(
        error.contains("exit status 3") && error.ends_with("why\n"),
        "{error}"
    );
    assert!(!folder.path().join("f.nodeprof").exists());
    let ignoring = [&bench[..], &["-i"], &failing].concat();
    assert!(ok(folder.path(), &ignoring).contains("2 of 2 runs failed"));
    // And what is there is not overwritten, unless it is asked for, before anything runs.
    let output = nodeprof(folder.path(), &[&bench[..], &["--", "true"]].concat());
    assert!(text(&output.stderr).contains("f.nodeprof exists already"));
    ok(
        folder.path(),
        &[&bench[..], &["--force", "--", "true"]].concat(),
    );
}

/// What took minutes to measure is not lost because a pager was left, or a disk is full.
#[test]
fn what_was_measured_is_kept_and_judged_whoever_reads_it() {
    let folder = folder();
    let status = |arguments: &[&str], out: std::process::Stdio| {
        let mut command = std::process::Command::new(NODEPROF);
        plain(&mut command)
            .args(arguments)
            .current_dir(folder.path());
        command.stdout(out).stderr(std::process::Stdio::null());
        command.status().unwrap().code()
    };
    let nobody = || std::process::Stdio::from(std::io::pipe().unwrap().1);
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let unprobed = ["-w", "0", "--probed-runs", "0", "--export-csv", "t.csv"];
    for measured in [
        &["bench", "-n", "2", "-o", "t.nodeprof", "--", "true"][..],
        &[
            "compare",
            "-n",
            "2",
            "-o",
            "t.nodeprof",
            "--base",
            "true",
            "--head",
            "true",
        ],
    ] {
        let (command, rest) = measured.split_first().unwrap();
        let arguments = [&[*command][..], &unprobed, rest].concat();
        for (out, expected) in [(nobody(), 0), (full().into(), 125)] {
            assert_eq!(status(&arguments, out), Some(expected), "{measured:?}");
            for file in ["t.nodeprof", "t.csv"] {
                let file = folder.path().join(file);
                assert!(fs::metadata(&file).unwrap().len() > 0, "{file:?}");
                fs::remove_file(file).unwrap();
            }
        }
    }
    ok(
        folder.path(),
        &[
            &["bench", "-o", "t.nodeprof"][..],
            &unprobed,
            &["-n", "12", "--", "true"],
        ]
        .concat(),
    );
    let budget = |max: &str| format!("[[budget]]\nfigure = \"time.wall_ns\"\nmax = \"{max}\"\n");
    for (max, expected) in [("1us", 1), ("100s", 0)] {
        // Even a program that does nothing takes a while to start.
        write(folder.path(), "budget.toml", &budget(max));
        let check = ["check", "t.nodeprof", "--budget", "budget.toml"];
        for format in ["text", "json"] {
            let check = [&check[..], &["--format", format]].concat();
            assert_eq!(status(&check, nobody()), Some(expected), "{max}");
            assert_eq!(status(&check, full().into()), Some(125), "{max}");
        }
    }
    for help in [&["--help"][..], &["--version"], &["bench", "--help"]] {
        assert_eq!(status(help, full().into()), Some(125), "{help:?}");
        assert_eq!(status(help, nobody()), Some(0), "{help:?}");
    }
    // Whether all is well here is told by its status, too.
    let doctor = status(&["doctor"], std::process::Stdio::null());
    assert_eq!(status(&["doctor"], nobody()), doctor);
}

#[test]
fn an_interrupt_keeps_what_has_ended() {
    interrupted_while("echo run >> log; sleep 0.1", None, libc::SIGINT);
}

#[test]
fn a_request_to_end_keeps_what_has_ended() {
    interrupted_while("echo run >> log; sleep 0.1", None, libc::SIGTERM);
}

/// A signal from the keyboard ends the command that prepares a run, too, which is no failure of it then.
#[test]
fn an_interrupt_while_a_run_is_prepared_keeps_what_has_ended() {
    let prepare = Some("echo run >> log; sleep 0.1");
    interrupted_while("true", prepare, libc::SIGINT);
}

/// As by Ctrl-C, or at the end of a service: all processes get the signal.
fn interrupted_while(script: &str, prepare: Option<&str>, signal: i32) {
    let folder = folder();
    let log = folder.path().join("log");
    let mut command = std::process::Command::new(NODEPROF);
    plain(&mut command)
        .args([
            "bench",
            "-n",
            "1000",
            "-w",
            "0",
            "--probed-runs",
            "0",
            "-o",
            "i.nodeprof",
        ])
        .args(prepare.iter().flat_map(|prepare| ["--prepare", prepare]))
        .args(["--", "sh", "-c", script])
        .current_dir(folder.path())
        .process_group(0)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let began = std::time::Instant::now();
    while fs::read_to_string(&log).map_or(0, |l| l.lines().count()) < 4 {
        assert!(began.elapsed().as_secs() < 20);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = child.id() as i32;
    // SAFETY: our own child, not yet waited for.
    unsafe { libc::kill(-pid, signal) };
    assert_eq!(child.wait().unwrap().code(), Some(128 + signal));
    let recording = Recording::load(folder.path().join("i.nodeprof")).unwrap();
    assert!(
        (3..10).contains(&recording.runs.len()),
        "{}",
        recording.runs.len()
    );
    assert!(recording.runs.iter().all(|run| run.exit_status == Some(0)));
}

#[test]
fn what_was_measured_before_a_failure_is_kept() {
    let folder = folder();
    let third_fails = "echo run >> log; test $(wc -l < log) -lt 3";
    let bench = ["bench", "-n", "5", "-w", "0", "--probed-runs", "0"];
    let rest = ["-o", "f.nodeprof", "--", "sh", "-c", third_fails];
    let output = nodeprof(folder.path(), &[&bench[..], &rest].concat());
    assert_eq!(output.status.code(), Some(125));
    let error = text(&output.stderr);
    let part = "the runs before it are in f.partial.nodeprof";
    assert!(error.contains(part), "{error}");
    assert!(error.contains("exit status 1"), "{error}");
    let load = |name| Recording::load(folder.path().join(name)).unwrap();
    assert_eq!(load("f.partial.nodeprof").runs.len(), 2);
    // Its name is free still; and a good recording is not replaced by a part of another one.
    assert!(!folder.path().join("f.nodeprof").exists());
    ok(
        folder.path(),
        &[&bench[..], &["-o", "f.nodeprof", "--", "true"]].concat(),
    );
    fs::remove_file(folder.path().join("log")).unwrap();
    let output = nodeprof(folder.path(), &[&bench[..], &["--force"], &rest].concat());
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(load("f.nodeprof").runs.len(), 5);
}

#[test]
fn recordings_without_probes_have_nobody_to_blame_and_say_so() {
    let folder = folder();
    for runs in ["1", "2"] {
        let file = format!("bare{runs}.nodeprof");
        let bench = ["bench", "-n", runs, "-w", "0", "--probed-runs", "0"];
        ok(
            folder.path(),
            &[&bench[..], &["-o", &file, "--", "true"]].concat(),
        );
        for view in ["blame", "tree", "critical-chain"] {
            let output = nodeprof(folder.path(), &[view, &file]);
            assert_eq!(output.status.code(), Some(125), "{view} {runs}");
            let error = text(&output.stderr);
            assert!(error.contains("only runs without probes"), "{error}");
            assert!(error.contains("--probed-runs 1"), "{error}");
        }
    }
}

#[test]
fn times_are_those_of_hyperfine() {
    undisturbed(|| {
        let Some(node) = Node::find("20.20.2") else {
            return;
        };
        if !has_tool("hyperfine") {
            return;
        }
        let folder = folder();
        let node = node.path.to_str().unwrap();
        // In turn, so that both meet the same machine; medians of the medians.
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            ok(
                folder.path(),
                &[
                    "bench",
                    "-n",
                    "15",
                    "-w",
                    "2",
                    "--probed-runs",
                    "0",
                    "-q",
                    "--force",
                    "-o",
                    "h.nodeprof",
                    "--export-json",
                    "ours.json",
                    "--",
                    node,
                    "-e",
                    "0",
                ],
            );
            ours.push(median(&folder.path().join("ours.json")));
            let mut hyperfine = std::process::Command::new("hyperfine");
            let output = plain(&mut hyperfine)
                .args(["-N", "-r", "15", "-w", "2", "--export-json", "theirs.json"])
                .arg(format!("{node} -e 0"))
                .current_dir(folder.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            theirs.push(median(&folder.path().join("theirs.json")));
        }
        let spread = |times: &[f64]| {
            let most = times.iter().copied().fold(0.0, f64::max);
            most - times.iter().copied().fold(f64::INFINITY, f64::min)
        };
        let noise = spread(&ours).max(spread(&theirs)).max(0.001);
        ours.sort_by(f64::total_cmp);
        theirs.sort_by(f64::total_cmp);
        println!("ours {ours:?}, hyperfine's {theirs:?}");
        assert!((ours[2] - theirs[2]).abs() <= noise, "{ours:?} {theirs:?}");
        // Every field of hyperfine's is there, with the same type.
        let [ours, theirs] = ["ours.json", "theirs.json"].map(|name| {
            let json: Value =
                serde_json::from_slice(&fs::read(folder.path().join(name)).unwrap()).unwrap();
            json["results"][0].as_object().unwrap().clone()
        });
        for (key, value) in theirs {
            let found = ours.get(&key).unwrap_or_else(|| panic!("{key}"));
            assert_eq!(
                std::mem::discriminant(found),
                std::mem::discriminant(&value),
                "{key}"
            );
        }
    });
}

fn median(path: &Path) -> f64 {
    let json: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    json["results"][0]["median"].as_f64().unwrap()
}

/// Counts of the probed runs of a side.
fn counts(
    recording: &Recording,
    side: &Group,
    count: impl Fn(&nodeprof_profile::RunProfile) -> u64,
) -> Vec<u64> {
    let profile = nodeprof_profile::Profile::from_recording(recording);
    let probed = side.probed(recording);
    probed
        .runs
        .iter()
        .map(|id| count(&profile.runs[id.0 as usize]))
        .collect()
}

#[test]
#[ignore = "needs root"]
fn one_more_of_anything_is_counted_with_five_pairs() {
    let Some(node) = Node::find("24.21.0") else {
        return;
    };
    let folder = folder();
    let at = |name: &str, text: &str| write(folder.path(), name, text);
    at(
        "app/node_modules/dep/package.json",
        r#"{"name":"dep","main":"main.js"}"#,
    );
    at("app/node_modules/dep/main.js", "");
    let base = at("app/base.js", "process.uptime(); require('dep');\n");
    type Count = fn(&nodeprof_profile::RunProfile) -> u64;
    let uptime: Count = |run| {
        let calls = run
            .crossings
            .callbacks
            .iter()
            .filter(|c| c.function.contains("Uptime"));
        calls.map(|c| c.calls).sum()
    };
    let modules: Count = |run| {
        run.modules
            .iter()
            .filter(|m| !m.path.starts_with("node:"))
            .count() as u64
    };
    let lookups: Count = |run| run.package_json.lookups;
    at("app/more.js", "");
    let changes: [(&str, &str, Count, &str); 3] = [
        (
            "crossing.js",
            "process.uptime(); process.uptime(); require('dep');\n",
            uptime,
            "Uptime",
        ),
        (
            "require.js",
            "process.uptime(); require('dep'); require('./more');\n",
            modules,
            "more.js",
        ),
        // The same file by another name: to resolve it, the package's package.json is asked for once more.
        (
            "lookup.js",
            "process.uptime(); require('dep'); require('dep/main.js');\n",
            lookups,
            "dep/package.json",
        ),
    ];
    let node = node.path.to_str().unwrap();
    for (name, script, count, names) in changes {
        let head = at(&format!("app/{name}"), script);
        let (base, head) = (format!("{node} {base}"), format!("{node} {head}"));
        ok(
            folder.path(),
            &[
                "compare",
                "-n",
                "5",
                "--force",
                "-o",
                "c.nodeprof",
                "--base",
                &base,
                "--head",
                &head,
            ],
        );
        let recording = Recording::load(folder.path().join("c.nodeprof")).unwrap();
        let (base, head) = Group::sides(&recording).unwrap();
        assert_eq!(pairs(&recording, &base, &head).len(), 5);
        let (base, head) = (
            counts(&recording, &base, count),
            counts(&recording, &head, count),
        );
        assert_eq!((base.len(), head.len()), (10, 10), "{name}");
        assert!(base[0] > 0, "{name}: {base:?}");
        assert_eq!(base, vec![base[0]; 10], "{name}");
        assert_eq!(head, vec![base[0] + 1; 10], "{name}");
        // And the diff names it. How certain it is depends on how many other counts vary, on a busy machine more than else.
        let diff = ok(folder.path(), &["diff", "c.nodeprof", "--format", "json"]);
        let diff: Value = serde_json::from_str(&diff).unwrap();
        let named = diff["counts"].as_array().unwrap().iter().any(|change| {
            let figure = change["figure"].as_str().unwrap();
            let constant = change["base"]["constant"] == true && change["head"]["constant"] == true;
            constant && figure.contains(names) && change["difference"] == 1.0
        });
        let added = diff["modules"]["added"].as_array().unwrap();
        let added = added.iter().any(|m| m.as_str().unwrap().contains(names));
        assert!(named || added, "{name}: {diff}");
    }
}

/// Appends to a file how many bytes of the program's own code are not those of its file: breakpoints of probes.
const COUNT_BREAKPOINTS: &str = r#"
const fs = require('fs');
const page = /^([0-9a-f]+)-([0-9a-f]+) r-xp ([0-9a-f]+) /;
const memory = fs.openSync('/proc/self/mem'), file = fs.openSync(process.execPath);
let different = 0, compared = 0;
for (const line of fs.readFileSync('/proc/self/maps', 'utf8').split('\n')) {
  if (!page.test(line) || !line.endsWith(process.execPath)) continue;
  const [begin, end, offset] = page.exec(line).slice(1).map((digits) => parseInt(digits, 16));
  const mapped = Buffer.alloc(end - begin), stored = Buffer.alloc(end - begin);
  compared += fs.readSync(memory, mapped, 0, mapped.length, begin);
  fs.readSync(file, stored, 0, stored.length, offset);
  for (let i = 0; i < mapped.length; i++) if (mapped[i] !== stored[i]) different++;
}
if (compared < 1 << 20) throw new Error(`compared ${compared} bytes only`);
fs.appendFileSync(process.argv[2], `${different}\n`);
"#;

#[test]
#[ignore = "needs root"]
fn bare_runs_between_probed_ones_meet_no_probe() {
    let Some(node) = Node::find("20.20.2") else {
        return;
    };
    let folder = folder();
    let script = write(folder.path(), "count.js", COUNT_BREAKPOINTS);
    let log = folder.path().join("log");
    ok(
        folder.path(),
        &[
            "bench",
            "-n",
            "8",
            "--warmup",
            "0",
            "--probed-runs",
            "8",
            "-q",
            "-o",
            "p.nodeprof",
            "--",
            node.path.to_str().unwrap(),
            &script,
            log.to_str().unwrap(),
        ],
    );
    let breakpoints: Vec<u64> = fs::read_to_string(&log)
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    let recording = Recording::load(folder.path().join("p.nodeprof")).unwrap();
    let all = Group::all(&recording, "");
    // In the order in which they ran.
    let probed = all.probed(&recording).runs;
    let expected: Vec<bool> = all.runs.iter().map(|run| probed.contains(run)).collect();
    assert_eq!(probed.len(), 8);
    assert_eq!(expected.len(), 16);
    let seen: Vec<bool> = breakpoints.iter().map(|count| *count > 0).collect();
    assert_eq!(seen, expected, "{breakpoints:?}");
    assert!(
        breakpoints.iter().all(|count| *count == 0 || *count > 50),
        "{breakpoints:?}"
    );
}
