//! The formats, opened by the programs that they are for.
//!
//! `go tool pprof`, the npm package pprof-format, the Firefox Profiler's own importer (its command-line program), and
//! speedscope in a headless browser, which opens the formats of Chrome as well. `make test` installs the npm packages
//! (`tests/consumers/`). Perfetto's parser is not on any package registry.
// clippy knows only test functions as tests, not their helpers.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::stacked::stacked;
use nodeprof_flamegraphs::export::{chrome, cpuprofile, firefox, pprof, speedscope};
use nodeprof_flamegraphs::fold::{Metric, Request, fold, stacks};
use nodeprof_flamegraphs::measurements::node_csv;
use nodeprof_flamegraphs::svg;
use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::random::Random;
use nodeprof_profile::recording::{Nanoseconds, Run, RunId};
use nodeprof_profile::statistics::{Summary, Welch};
use serde_json::Value;

fn packages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consumers/node_modules")
}

fn installed(package: &str) -> Option<PathBuf> {
    let folder = packages().join(package);
    if !folder.join("package.json").exists() {
        println!("skipped: the npm package {package} is not installed; type: make test");
        return None;
    }
    Some(folder)
}

/// A program by its name on PATH.
fn on_path(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    found.into_iter().find(|file| file.is_file())
}

/// A node of one of these major versions: that of PATH, or an official build fetched for the tests.
fn node(majors: impl RangeBounds<u32> + Debug) -> Option<PathBuf> {
    let found = find_node(&majors);
    if found.is_none() {
        println!("skipped: no node of version {majors:?}; type: make node-builds");
    }
    found
}

fn find_node(majors: &impl RangeBounds<u32>) -> Option<PathBuf> {
    let cache = || {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(home)?;
        Some(cache.join("nodeprof/node-builds"))
    };
    let builds = std::env::var_os("NODEPROF_NODE_BUILDS")
        .map(PathBuf::from)
        .or_else(cache);
    let builds = builds.and_then(|folder| folder.read_dir().ok());
    let builds = builds
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin/node"));
    on_path(&["node"]).into_iter().chain(builds).find(|node| {
        let version = Command::new(node).arg("--version").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let major = version.ok().and_then(|text| {
            text.strip_prefix('v')?
                .split('.')
                .next()?
                .parse::<u32>()
                .ok()
        });
        major.is_some_and(|major| majors.contains(&major))
    })
}

fn run(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(
        status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&stderr)
    );
    text
}

/// Values by innermost frame.
fn leaves(recording: &Recording, request: &Request) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let folded = fold(recording, request).unwrap();
    folded
        .for_each_stack(|stack, value| {
            *found.entry(stack.last().unwrap().name.clone()).or_default() += value;
            Ok::<(), ()>(())
        })
        .unwrap();
    found
}

/// A file in each format, of one metric.
struct Files {
    folder: tempfile::TempDir,
    recording: Recording,
    request: Request,
}

impl Files {
    fn of(metric: Metric) -> Files {
        Files {
            folder: tempfile::tempdir().unwrap(),
            recording: stacked(),
            request: Request::new(metric),
        }
    }

    fn write(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        let stacks = || stacks(&self.recording, &self.request).unwrap();
        let timeline = Timeline::new(&self.recording);
        match name {
            "cpu.pb.gz" => pprof::write(&stacks(), &self.recording, RunId(0), &mut file).unwrap(),
            "speedscope.json" => speedscope::write(stacks(), &mut file).unwrap(),
            "firefox.json" => {
                firefox::write(stacks(), &self.recording, &timeline, RunId(0), &mut file)
                    .map(drop)
                    .unwrap()
            }
            "x.cpuprofile" => cpuprofile::write(stacks(), &mut file).map(drop).unwrap(),
            "trace.json" => chrome::write(&self.recording, &self.request, true, &mut file)
                .map(drop)
                .unwrap(),
            other => panic!("{other}"),
        }
        path
    }
}

#[test]
fn go_tool_pprof_lists_the_functions_with_their_times() {
    let Some(go) = on_path(&["go"]) else {
        println!("skipped: go is not installed");
        return;
    };
    let files = Files::of(Metric::Cpu);
    let file = files.write("cpu.pb.gz");
    let pprof = |arguments: &[&str]| {
        let home = files.folder.path();
        let mut command = Command::new(&go);
        // It keeps a cache of its build and of fetched binaries at home.
        command
            .env("PPROF_TMPDIR", home)
            .args(["tool", "pprof"])
            .args(arguments)
            .arg(&file);
        run(&mut command)
    };
    let top = pprof(&["-top", "-nodefraction=0", "-nodecount=100"]);
    assert!(top.contains("File: node\n"), "{top}");
    assert!(top.contains("Type: cpu\n"), "{top}");
    assert!(top.contains("Total samples = 14ms"), "{top}");
    let mut flat: BTreeMap<String, f64> = BTreeMap::new();
    for line in top
        .lines()
        .skip_while(|line| !line.contains("flat%"))
        .skip(1)
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ms = words[0].trim_end_matches("ms").parse::<f64>().unwrap();
        if ms > 0.0 {
            flat.insert(words[5..].join(" "), ms);
        }
    }
    let expected = leaves(&files.recording, &files.request);
    let expected = expected
        .into_iter()
        .map(|(name, ns)| (name, ns as f64 / 1e6));
    assert_eq!(flat, expected.collect());
    let lines = pprof(&["-list", "express"]);
    // The script is not there: it is named with the line all the same.
    assert!(lines.contains("express/lib/express.js"), "{lines}");
    let tags = pprof(&["-tags"]);
    assert!(
        tags.contains("worker 1") && tags.contains("node child.js"),
        "{tags}"
    );
}

#[test]
fn npm_pprof_format_reads_every_value() {
    let (Some(_), Some(node)) = (installed("pprof-format"), node(16..)) else {
        return;
    };
    for metric in [Metric::Cpu, Metric::Crossings, Metric::CrossingTime] {
        let files = Files::of(metric);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consumers/read-pprof.js");
        let read = run(Command::new(&node)
            .arg(script)
            .arg(files.write("cpu.pb.gz")));
        let read: Value = serde_json::from_str(&read).unwrap();
        let last = read["types"].as_array().unwrap().len() - 1;
        let sums = read["sums"].as_object().unwrap().iter();
        let sums = sums.map(|(name, values)| (name.clone(), values[last].as_u64().unwrap()));
        assert_eq!(
            sums.collect::<BTreeMap<_, _>>(),
            leaves(&files.recording, &files.request)
        );
    }
}

/// A session of the Firefox Profiler's command-line program, which keeps a profile in a process of its own.
struct Firefox {
    node: PathBuf,
    program: PathBuf,
    home: tempfile::TempDir,
}

impl Firefox {
    fn open(file: &Path) -> Option<Firefox> {
        let folder = installed("@firefox-devtools/profiler-cli")?;
        let firefox = Firefox {
            node: node(24..)?,
            program: folder.join("dist/profiler-cli.js"),
            home: tempfile::tempdir().unwrap(),
        };
        firefox.load(file);
        Some(firefox)
    }

    /// It gives its own process half a second to start, which a busy machine does not: that goes on all the same.
    fn load(&self, file: &Path) {
        let session = ["--session", "test"];
        let load = self.command().arg("load").arg(file).args(session).output();
        let deadline = Instant::now() + Duration::from_secs(60);
        let is_open = || {
            let info = self
                .command()
                .args(["profile", "info"])
                .args(session)
                .output();
            info.unwrap().status.success()
        };
        while !is_open() {
            assert!(Instant::now() < deadline, "{load:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(&self.program).env("HOME", self.home.path());
        command
    }

    fn ask(&self, question: &[&str]) -> Value {
        let text = run(self
            .command()
            .args(question)
            .args(["--session", "test", "--json"]));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn threads(&self) -> Vec<(String, String)> {
        let list = self.ask(&["thread", "list"]);
        let threads = list["threads"].as_array().unwrap();
        let text = |thread: &Value, key: &str| thread[key].as_str().unwrap().to_owned();
        threads
            .iter()
            .map(|thread| (text(thread, "threadHandle"), text(thread, "name")))
            .collect()
    }

    /// Self times by function, in ms.
    fn self_times(&self, thread: &str) -> BTreeMap<String, f64> {
        let list = self.ask(&["thread", "functions", "--thread", thread, "--include-idle"]);
        let functions = list["functions"].as_array().unwrap();
        let each = functions.iter().map(|function| {
            let name = function["name"].as_str().unwrap().to_owned();
            (name, function["selfSamples"].as_f64().unwrap())
        });
        each.filter(|(_, own)| *own > 0.0).collect()
    }
}

impl Drop for Firefox {
    fn drop(&mut self) {
        let _ = self.command().args(["stop", "test"]).output();
    }
}

#[test]
fn the_firefox_profiler_opens_its_format() {
    let files = Files::of(Metric::Wall);
    let Some(firefox) = Firefox::open(&files.write("firefox.json")) else {
        return;
    };
    let info = firefox.ask(&["profile", "info"]);
    assert_eq!(info["name"], "node v20.20.2");
    assert_eq!(
        (&info["processCount"], &info["threadCount"]),
        (&2.into(), &2.into())
    );
    let (handle, _) = firefox
        .threads()
        .into_iter()
        .find(|(handle, _)| handle == "t-0")
        .unwrap();
    let found = firefox.self_times(&handle);
    for (function, ms) in [
        ("express/lib/express.js", 2.0),
        ("next", 1.0),
        ("node::CreateMainEnvironment", 2.0),
        ("[idle: waits for events]", 2.5),
        ("[waits for a file]", 1.5),
    ] {
        assert!((found[function] - ms).abs() < 1e-6, "{function}: {found:?}");
    }
    assert!(
        (found.values().sum::<f64>() - 15.5).abs() < 1e-6,
        "{found:?}"
    );
    let markers = firefox.ask(&["thread", "markers", "--thread", &handle]);
    let names: Vec<&str> = markers["byType"]
        .as_array()
        .unwrap()
        .iter()
        .map(|marker| marker["markerName"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"bootstrap") && names.contains(&"main_script"),
        "{names:?}"
    );
    let process = &info["processes"][0];
    // The sum of the samples: waits are no CPU time.
    assert_eq!(process["cpuMs"].as_f64().map(f64::round), Some(11.0));
}

#[test]
fn the_firefox_profiler_opens_traces_and_cpuprofiles() {
    let files = Files::of(Metric::Cpu);
    let Some(firefox) = Firefox::open(&files.write("trace.json")) else {
        return;
    };
    let mut names: Vec<String> = firefox
        .threads()
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    names.sort();
    assert!(
        names
            .iter()
            .any(|name| name.starts_with("main thread: calls")),
        "{names:?}"
    );
    assert!(
        names.iter().any(|name| name.starts_with("phases")),
        "{names:?}"
    );
    drop(firefox);
    let Some(firefox) = Firefox::open(&files.write("x.cpuprofile")) else {
        return;
    };
    let functions = firefox.self_times("t-0");
    assert!(
        functions.keys().any(|name| name.ends_with("next")),
        "{functions:?}"
    );
}

/// A page's elements after its scripts ran, if there is a browser.
fn rendered(url: &str) -> Option<String> {
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let Some(browser) = on_path(&names) else {
        println!("skipped: no chromium");
        return None;
    };
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--allow-file-access-from-files", "--window-size=1000,800"])
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(url);
    Some(run(&mut command))
}

/// What speedscope's sandwich view lists of a file: title, and function, total and self as it writes them.
fn speedscope_lists(file: &Path, name: &str) -> Option<String> {
    let folder = installed("speedscope")?;
    let home = tempfile::tempdir().unwrap();
    let loader = home.path().join("load.js");
    let bytes = std::fs::read(file).unwrap();
    let bytes: Vec<String> = bytes.iter().map(u8::to_string).collect();
    // As `speedscope FILE` does it, which opens a window.
    let script = format!(
        "speedscope.loadFileFromBase64({name:?}, btoa(String.fromCharCode(...[{}])))",
        bytes.join(",")
    );
    std::fs::write(&loader, script).unwrap();
    let page = folder.join("dist/release/index.html");
    let url = format!(
        "file://{}#localProfilePath={}&view=sandwich",
        page.display(),
        loader.display()
    );
    // On a busy machine Chromium's virtual time can end before speedscope has drawn the rows below the table's head.
    const ATTEMPTS: u32 = 5;
    let mut text = String::new();
    for _ in 0..ATTEMPTS {
        let dom = rendered(&url)?;
        // The text between the tags.
        let between = (dom.split('<'))
            .filter_map(|part| part.split_once('>'))
            .map(|(_, text)| text);
        text = between.collect::<Vec<_>>().join(" ");
        if text.contains('%') {
            break;
        }
    }
    Some(text.replace("&gt;", ">").replace("&lt;", "<"))
}

#[test]
fn the_picture_zooms_searches_and_marks_in_a_browser() {
    let files = Files::of(Metric::Cpu);
    let folded = fold(&files.recording, &files.request).unwrap();
    let mut picture = Vec::new();
    svg::write(&folded, &svg::SvgOptions::default(), &mut picture).unwrap();
    let picture = String::from_utf8(picture).unwrap();
    // What a person does, and what is seen then.
    let person = r#"<script><![CDATA[
        const frames = [...document.querySelectorAll('.f')];
        const find = (name) => frames.find((frame) => frame.querySelector('title').textContent.startsWith(name));
        const shown = () => frames.filter((frame) => !frame.classList.contains('hidden')).length;
        const click = (element) => element.dispatchEvent(new MouseEvent('click', { bubbles: true }));
        const seen = { all: shown() };
        const wide = find('express/lib/express.js');
        seen.before = wide.getAttribute('width');
        click(wide.querySelector('rect'));
        seen.zoomed = wide.getAttribute('width');
        seen.rest = shown();
        seen.above = find('app.js').classList.contains('above');
        seen.label = wide.querySelector('text').textContent;
        click(document.getElementById('reset'));
        seen.back = [shown(), wide.getAttribute('width')];
        window.prompt = () => 'router/index';
        click(document.getElementById('search'));
        seen.found = document.getElementById('matched').textContent;
        window.prompt = () => '(';
        click(document.getElementById('search'));
        seen.wrong = document.getElementById('matched').textContent;
        click(document.querySelector('.entry:nth-of-type(3) text'));
        seen.marked = document.getElementById('matched').textContent;
        wide.querySelector('rect').dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
        seen.details = document.getElementById('details').textContent;
        document.documentElement.setAttribute('data-seen', JSON.stringify(seen));
    ]]></script></svg>"#;
    let file = files.folder.path().join("picture.svg");
    let whole = picture
        .trim_end()
        .strip_suffix("</svg>")
        .unwrap()
        .to_owned()
        + person;
    std::fs::write(&file, whole).unwrap();
    let Some(dom) = rendered(&format!("file://{}", file.display())) else {
        return;
    };
    let document = roxmltree::Document::parse(&dom).unwrap();
    let seen = document.root_element().attribute("data-seen").unwrap();
    let seen: Value = serde_json::from_str(seen).unwrap();
    // Six of fourteen samples are in express.
    assert_eq!(seen["before"], "42.8571%", "{seen}");
    assert_eq!(
        (&seen["zoomed"], &seen["above"]),
        (&"100%".into(), &true.into()),
        "{seen}"
    );
    assert_eq!(seen["label"], "express/lib/express.js");
    assert!(seen["rest"].as_u64() < seen["all"].as_u64(), "{seen}");
    assert_eq!(
        seen["back"],
        serde_json::json!([seen["all"], seen["before"]])
    );
    // Two frames of it, one inside the other: counted once.
    assert_eq!(seen["found"], "router/index: 7.1% with callees");
    assert!(
        seen["wrong"]
            .as_str()
            .unwrap()
            .contains("Invalid regular expression"),
        "{seen}"
    );
    assert_eq!(seen["marked"], "JavaScript: 71.4% with callees", "{seen}");
    let details = "express/lib/express.js · /srv/site/node_modules/express/lib/express.js:1:10 · 6.00 ms, 42.9%; without callees 2.00 ms, 14.3%";
    assert_eq!(seen["details"], details);
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn speedscope_opens_its_format() {
    let files = Files::of(Metric::Cpu);
    let Some(text) = speedscope_lists(&files.write("speedscope.json"), "speedscope.json") else {
        return;
    };
    let text = squeezed(&text);
    assert!(
        text.contains("CPU time: node app.js · node v20.20.2 · all threads · 14.0 ms"),
        "{text}"
    );
    assert!(
        text.contains("node app.js (100): main thread (1/4)"),
        "{text}"
    );
    // Total and self of the shown thread.
    assert!(
        text.contains("6.00ms (55%) 2.00ms (18%) express/lib/express.js"),
        "{text}"
    );
    assert!(
        text.contains("1.00ms (9.1%) 1.00ms (9.1%) next express/lib/router/index.js:46"),
        "{text}"
    );
}

#[test]
fn speedscope_opens_cpuprofiles_traces_and_pprof() {
    let files = Files::of(Metric::Cpu);
    let Some(text) = speedscope_lists(&files.write("x.cpuprofile"), "x.cpuprofile") else {
        return;
    };
    let text = squeezed(&text);
    assert!(text.contains("node::CreateMainEnvironment"), "{text}");
    assert!(text.contains("1.00ms (9.1%) 1.00ms (9.1%) next"), "{text}");
    let text = speedscope_lists(&files.write("trace.json"), "trace.json").unwrap();
    let text = squeezed(&text);
    assert!(
        text.contains("main thread: modules") && text.contains("worker 1: CPU samples"),
        "{text}"
    );
    let text = speedscope_lists(&files.write("cpu.pb.gz"), "cpu.pb.gz").unwrap();
    let text = squeezed(&text);
    assert!(
        text.contains("2.00ms (14%) node::CreateMainEnvironment"),
        "{text}"
    );
}

/// The shape of a value: keys and types, of lists that of their members.
fn shape(value: &Value, at: &str, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                shape(value, &format!("{at}.{key}"), into);
            }
        }
        Value::Array(list) => {
            for value in list {
                shape(value, &format!("{at}[]"), into);
            }
        }
        Value::Number(_) => drop(into.insert(at.to_owned(), "number".to_owned())),
        Value::String(_) => drop(into.insert(at.to_owned(), "string".to_owned())),
        other => drop(into.insert(at.to_owned(), format!("{other:?}"))),
    }
}

#[test]
fn a_cpuprofile_has_the_shape_of_those_that_node_writes() {
    let files = Files::of(Metric::Cpu);
    let ours: Value =
        serde_json::from_slice(&std::fs::read(files.write("x.cpuprofile")).unwrap()).unwrap();
    let mut mine = BTreeMap::new();
    shape(&ours, "", &mut mine);
    let mut compared = 0;
    for major in [16, 20, 24, 26] {
        let Some(node) = find_node(&(major..=major)) else {
            continue;
        };
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("busy.js");
        std::fs::write(
            &script,
            "const end = Date.now() + 50; while (Date.now() < end) JSON.parse('[1]');",
        )
        .unwrap();
        let mut command = Command::new(node);
        command
            .current_dir(folder.path())
            .args(["--cpu-prof", "--cpu-prof-name=real.cpuprofile"])
            .arg(&script);
        run(&mut command);
        let real: Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("real.cpuprofile")).unwrap())
                .unwrap();
        let mut theirs = BTreeMap::new();
        shape(&real, "", &mut theirs);
        assert_eq!(mine, theirs);
        // Ours has the same names for what has no script, and for paths.
        let frames = real["nodes"].as_array().unwrap();
        let has =
            |key: &str, value: &str| frames.iter().any(|node| node["callFrame"][key] == value);
        assert!(has("functionName", "(root)") && has("url", ""));
        assert!(has("url", &format!("file://{}", script.display())));
        compared += 1;
    }
    if compared == 0 {
        println!("skipped: no node");
    }
}

/// Pairs of runs without probes, with these times in ns.
fn compared(times: &[(u64, u64)]) -> Recording {
    let mut recording = Recording::default();
    for (pair, (base, head)) in times.iter().enumerate() {
        for (name, time) in [("base", base), ("head", head)] {
            let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            recording.runs.push(Run {
                command: vec![
                    format!("/builds/{name}/node").into_bytes(),
                    b"-e".to_vec(),
                    b"f(\"x\", 'y')".to_vec(),
                ],
                started: Nanoseconds(5),
                ended: Nanoseconds(5 + time),
                mode: "bare".into(),
                exit_status: Some(0),
                labels: vec![
                    label("name", name),
                    label("pair", &pair.to_string()),
                    label("size", "10"),
                ],
                ..Run::default()
            });
        }
    }
    recording
}

#[test]
fn the_statistics_are_those_of_node_benchmark_compare() {
    let (Some(_), Some(_), Some(node)) = (installed("ttest"), installed("summary"), node(16..))
    else {
        return;
    };
    let mut random = Random::new(9);
    // From two runs a side to many; with outliers, with hardly any difference and with a clear one.
    for (count, factor) in [(2, 1.1), (5, 1.0), (12, 1.002), (30, 1.05), (200, 0.9)] {
        let mut time = || {
            let outlier = if random.below(20) == 0 { 30e6 } else { 0.0 };
            20e6 + 3e6 * random.fraction() + outlier
        };
        let times: Vec<(u64, u64)> = (0..count)
            .map(|_| (time() as u64, (time() * factor) as u64))
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("compare.csv");
        std::fs::write(&file, node_csv(&compared(&times)).unwrap()).unwrap();
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/consumers/read-comparison.js");
        let read = run(Command::new(&node).arg(script).arg(&file));
        let read: Value = serde_json::from_str(&read).unwrap();
        let header = ["binary", "filename", "configuration", "rate", "time"];
        assert_eq!(read["header"], serde_json::json!(header));
        // One name, so that both sides are compared with each other.
        assert_eq!(read["names"].as_array().unwrap().len(), 1, "{read}");
        assert_eq!(read["runs"], serde_json::json!([count, count]));
        let seconds: Vec<f64> = times
            .iter()
            .flat_map(|(base, head)| [*base as f64 / 1e9, *head as f64 / 1e9])
            .collect();
        let written = read["seconds"].as_array().unwrap();
        for side in 0..2 {
            let mut ours: Vec<f64> = seconds.iter().copied().skip(side).step_by(2).collect();
            let mut theirs: Vec<f64> = written[side * count..(side + 1) * count]
                .iter()
                .map(|s| s.as_f64().unwrap())
                .collect();
            ours.sort_by(f64::total_cmp);
            theirs.sort_by(f64::total_cmp);
            assert_eq!(ours, theirs);
        }
        // The tool tests rates.
        let rates = |side: usize| -> Vec<f64> {
            seconds
                .iter()
                .skip(side)
                .step_by(2)
                .map(|s| 1.0 / s)
                .collect()
        };
        let (base, head) = (rates(0), rates(1));
        let welch = Welch::test(&base, &head).unwrap();
        let mean = Summary::of(&base).unwrap().mean;
        let near = |ours: f64, theirs: &Value, what: &str| {
            let theirs = theirs.as_f64().unwrap();
            assert!(
                (ours - theirs).abs() <= 1e-6 * theirs.abs().max(1e-6),
                "{what} of {count} runs: {ours}, not {theirs}"
            );
        };
        near(welch.p, &read["p"], "p");
        near(
            welch.difference / mean * 100.0,
            &read["improvement"],
            "improvement",
        );
        for (index, confidence) in [0.95, 0.99, 0.999].into_iter().enumerate() {
            let ours = welch.half_width(confidence) / mean * 100.0;
            near(ours, &read["accuracy"][index], "accuracy");
        }
    }
}
