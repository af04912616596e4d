//! The formats of other programs: that each holds every figure once, in the shape that the format asks for.
// clippy knows only test functions as tests, not their helpers.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::io::Read as _;

use common::stacked::{stacked, stackless};
use nodeprof_flamegraphs::export::{ExportError, chrome, cpuprofile, firefox, pprof, speedscope};
use nodeprof_flamegraphs::fold::{By, Metric, Order, Request, Unit, fold, stacks};
use nodeprof_flamegraphs::select::{Selection, Threads};
use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::recording::{Process, ProcessId, RunId, SerializationSum, ThreadId};
use prost::Message as _;
use serde_json::Value;

/// Values by innermost frame, which every format keeps.
fn leaves(recording: &Recording, request: &Request) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    fold(recording, request)
        .unwrap()
        .for_each_stack(|stack, value| {
            *found.entry(stack.last().unwrap().name.clone()).or_default() += value;
            Ok::<(), ()>(())
        })
        .unwrap();
    found
}

/// The same without what was only summed.
fn single(recording: &Recording) -> Recording {
    let mut recording = recording.clone();
    recording.crossing_sums.clear();
    recording
}

fn forms() -> impl Iterator<Item = Request> {
    let forms = [By::Stack, By::Module, By::Package];
    Metric::ALL.into_iter().flat_map(move |metric| {
        forms.map(|by| Request {
            by: Some(by),
            ..Request::new(metric)
        })
    })
}

fn indices(value: &Value) -> Vec<u64> {
    let list = value.as_array().unwrap();
    list.iter().map(|value| value.as_u64().unwrap()).collect()
}

#[test]
fn speedscope_has_every_stack_in_order_of_time() {
    let recording = stacked();
    for request in forms() {
        let mut file = Vec::new();
        speedscope::write(stacks(&recording, &request).unwrap(), &mut file).unwrap();
        let file: Value = serde_json::from_slice(&file).unwrap();
        let frames = file["shared"]["frames"].as_array().unwrap();
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for profile in file["profiles"].as_array().unwrap() {
            let unit = match request.metric.unit() {
                Unit::Time => "nanoseconds",
                Unit::Count(_) => "none",
            };
            assert_eq!(
                (&profile["type"], &profile["unit"]),
                (&"evented".into(), &unit.into())
            );
            let mut open: Vec<u64> = Vec::new();
            let mut before = profile["startValue"].as_u64().unwrap();
            for event in profile["events"].as_array().unwrap() {
                let at = event["at"].as_u64().unwrap();
                assert!(at >= before);
                if at > before {
                    let frame = &frames[*open.last().unwrap() as usize];
                    let name = frame["name"].as_str().unwrap().to_owned();
                    *found.entry(name).or_default() += at - before;
                }
                before = at;
                let frame = event["frame"].as_u64().unwrap();
                match event["type"].as_str().unwrap() {
                    "O" => open.push(frame),
                    "C" => assert_eq!(open.pop(), Some(frame)),
                    other => panic!("{other}"),
                }
            }
            assert!(open.is_empty());
            assert_eq!(profile["endValue"].as_u64(), Some(before));
        }
        assert_eq!(found, leaves(&recording, &request), "{request:?}");
    }
}

fn decoded(recording: &Recording, request: &Request) -> pprof::Profile {
    let mut packed = Vec::new();
    let stacks = stacks(recording, request).unwrap();
    pprof::write(&stacks, recording, RunId(0), &mut packed).unwrap();
    unpacked(&packed)
}

fn unpacked(packed: &[u8]) -> pprof::Profile {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_end(&mut bytes)
        .unwrap();
    pprof::Profile::decode(bytes.as_slice()).unwrap()
}

#[test]
fn pprof_has_every_stack_with_its_count_and_value() {
    let recording = stacked();
    for request in forms() {
        let profile = decoded(&recording, &request);
        let text = |index: i64| profile.string_table[index as usize].as_str();
        assert_eq!(text(0), "");
        let types: Vec<(&str, &str)> = profile
            .sample_type
            .iter()
            .map(|of| (text(of.kind), text(of.unit)))
            .collect();
        let last = types.last().unwrap().0;
        assert_eq!(text(profile.default_sample_type), last);
        match request.metric.unit() {
            Unit::Time => assert_eq!(types[1], (request.metric.name(), "nanoseconds")),
            Unit::Count(_) => assert_eq!(types, [(request.metric.name(), "count")]),
        }
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for sample in &profile.sample {
            assert_eq!(sample.value.len(), types.len());
            assert!(sample.value.iter().all(|value| *value > 0));
            let innermost = &profile.location[sample.location_id[0] as usize - 1];
            assert_eq!(innermost.id, sample.location_id[0]);
            let function = &profile.function[innermost.line[0].function_id as usize - 1];
            let value = *sample.value.last().unwrap() as u64;
            *found.entry(text(function.name).to_owned()).or_default() += value;
        }
        assert_eq!(found, leaves(&recording, &request), "{request:?}");
    }
}

#[test]
fn a_profile_of_several_runs_is_of_all_of_them() {
    let mut recording = stacked();
    let mut other = stacked();
    other.runs[0].command = vec![b"npm".into(), b"ci".into()];
    recording.append(stacked());
    recording.append(other);
    let request = Request::new(Metric::Crossings);
    let one = decoded(&recording, &request);
    let value =
        |profile: &pprof::Profile| -> i64 { profile.sample.iter().map(|s| s.value[0]).sum() };
    let mut packed = Vec::new();
    pprof::write_runs(&recording, &request, (0..3).map(RunId), &mut packed).unwrap();
    let all = unpacked(&packed);
    assert_eq!(value(&all), 3 * value(&one));
    let comments = |profile: &pprof::Profile| -> Vec<String> {
        let of = profile.comment.iter();
        of.map(|text| profile.string_table[*text as usize].clone())
            .collect()
    };
    let (of_one, of_all) = (comments(&one), comments(&all));
    assert_eq!(of_all.len(), of_one.len());
    assert!(
        of_all[1].contains("3 runs of 2 commands · node"),
        "{of_all:?}"
    );
    assert!(
        of_all[1].ends_with(&format!("{} calls", value(&all))),
        "{of_all:?}"
    );
    assert!(!of_one[1].contains("runs of"), "{of_one:?}");
}

#[test]
fn a_profile_of_several_runs_has_one_form() {
    let mut recording = stacked();
    recording.append(stackless());
    let request = Request::new(Metric::Crossings);
    let mut packed = Vec::new();
    pprof::write_runs(&recording, &request, (0..2).map(RunId), &mut packed).unwrap();
    let found = unpacked(&packed).string_table;
    let in_stacks = |name: &String| name.contains("express.js");
    assert!(
        decoded(&recording, &request)
            .string_table
            .iter()
            .any(in_stacks)
    );
    assert!(!found.iter().any(in_stacks), "{found:?}");
}

#[test]
fn pprof_tells_lines_binaries_threads_and_the_period() {
    let profile = decoded(&stacked(), &Request::new(Metric::Cpu));
    let text = |index: i64| profile.string_table[index as usize].as_str();
    let express = profile
        .function
        .iter()
        .find(|function| text(function.name) == "express/lib/express.js")
        .unwrap();
    assert_eq!(
        text(express.filename),
        "/srv/site/node_modules/express/lib/express.js"
    );
    let lines = profile.location.iter().flat_map(|place| &place.line);
    let lines: Vec<i64> = lines
        .filter(|line| line.function_id == express.id)
        .map(|line| line.line)
        .collect();
    assert_eq!(lines, [15]);
    assert_eq!(text(profile.mapping[0].filename), "/usr/bin/node");
    assert_eq!(text(profile.mapping[0].build_id), "00ff");
    assert_eq!(profile.period, 1_000_000);
    assert_eq!(profile.duration_nanos, 50_000_000);
    let counts: i64 = profile.sample.iter().map(|sample| sample.value[0]).sum();
    assert_eq!(counts, 14);
    let labels = profile.sample.iter().flat_map(|sample| &sample.label);
    let threads = labels.filter(|label| text(label.key) == "thread");
    let threads: std::collections::BTreeSet<&str> = threads.map(|label| text(label.str)).collect();
    assert_eq!(
        threads.into_iter().collect::<Vec<_>>(),
        ["main thread", "thread 107", "worker 1"]
    );
}

/// What consumers make of a cpuprofile: each sample lasts until the next one.
fn read_cpuprofile(file: &Value) -> BTreeMap<String, u64> {
    let nodes = file["nodes"].as_array().unwrap();
    let mut parents: BTreeMap<u64, u64> = BTreeMap::new();
    let mut hits = 0;
    for (index, node) in nodes.iter().enumerate() {
        assert_eq!(node["id"].as_u64(), Some(index as u64 + 1));
        hits += node["hitCount"].as_u64().unwrap();
        for child in node.get("children").map(indices).unwrap_or_default() {
            assert!(parents.insert(child, index as u64 + 1).is_none());
        }
    }
    assert_eq!(
        parents.len() + 1,
        nodes.len(),
        "all but the root have a parent"
    );
    let samples = indices(&file["samples"]);
    let deltas = indices(&file["timeDeltas"]);
    assert_eq!(samples.len(), deltas.len());
    assert_eq!(hits, samples.len() as u64);
    let mut at = file["startTime"].as_u64().unwrap();
    let mut starts: Vec<u64> = Vec::new();
    for delta in deltas {
        at += delta;
        starts.push(at);
    }
    starts.push(file["endTime"].as_u64().unwrap());
    let mut found = BTreeMap::new();
    for (index, sample) in samples.iter().enumerate() {
        let frame = &nodes[*sample as usize - 1]["callFrame"];
        let name = frame["functionName"].as_str().unwrap();
        let url = frame["url"].as_str().unwrap();
        let key = format!("{name} {url}").trim().to_owned();
        *found.entry(key).or_default() += starts[index + 1] - starts[index];
    }
    found
}

fn cpuprofile_of(recording: &Recording, request: &Request) -> (Value, Vec<String>) {
    let mut file = Vec::new();
    let notes = cpuprofile::write(stacks(recording, request).unwrap(), &mut file).unwrap();
    (serde_json::from_slice(&file).unwrap(), notes)
}

#[test]
fn a_cpuprofile_has_the_main_thread_with_its_pauses() {
    let (file, notes) = cpuprofile_of(&stacked(), &Request::new(Metric::Cpu));
    assert!(notes[0].contains("main thread of process 100"), "{notes:?}");
    let found = read_cpuprofile(&file);
    assert_eq!(
        found["file:///srv/site/node_modules/express/lib/express.js"],
        2_000
    );
    assert_eq!(
        found["next file:///srv/site/node_modules/express/lib/router/index.js"],
        1_000
    );
    assert_eq!(found["page_fault [kernel]"], 1_000);
    // From 4 to 11 ms and from 19 to 40.5 ms it did not run.
    assert_eq!(found["(idle)"], 7_000 + 21_500);
    let frames = file["nodes"].as_array().unwrap();
    let router = frames
        .iter()
        .find(|node| node["callFrame"]["functionName"] == "next")
        .unwrap();
    // Lines count from 0 there, and from 1 in the ticks.
    assert_eq!(router["callFrame"]["lineNumber"], 45);
    assert_eq!(router["callFrame"]["columnNumber"], 9);
    let ticks: Vec<&Value> = frames
        .iter()
        .filter_map(|node| node.get("positionTicks"))
        .collect();
    assert!(
        ticks.contains(&&serde_json::json!([{"line": 60, "ticks": 1}])),
        "{ticks:?}"
    );
    let mine = Request {
        selection: Selection {
            threads: Some(Threads::One(ThreadId(105))),
            ..Selection::default()
        },
        ..Request::new(Metric::Cpu)
    };
    let (file, notes) = cpuprofile_of(&stacked(), &mine);
    assert_eq!((read_cpuprofile(&file).len(), notes.len()), (2, 0));
}

#[test]
fn a_cpuprofile_of_a_wrapped_program_has_node_and_not_its_shell() {
    let mut recording = stacked();
    let node = ProcessId(0);
    let main = recording.processes[0].clone();
    assert!(main.node.is_some());
    // A shell before it, with a sample of its own.
    let shell = Process {
        pid: 99,
        node: None,
        execs: Vec::new(),
        ..main.clone()
    };
    recording.processes.push(main);
    recording.processes[0] = shell;
    let moved = ProcessId(recording.processes.len() as u32 - 1);
    recording.processes[moved.0 as usize].parent = Some(node);
    let mut of_shell = recording.samples[0];
    for sample in &mut recording.samples {
        if sample.process == node {
            sample.process = moved;
        }
    }
    for milestone in &mut recording.milestones {
        if milestone.process == node {
            milestone.process = moved;
        }
    }
    of_shell.thread = ThreadId(99);
    recording.samples.push(of_shell);
    let (file, notes) = cpuprofile_of(&recording, &Request::new(Metric::Cpu));
    assert!(notes[0].contains("main thread of process 100"), "{notes:?}");
    let found = read_cpuprofile(&file);
    assert_eq!(
        found["file:///srv/site/node_modules/express/lib/express.js"],
        2_000
    );
}

#[test]
fn a_cpuprofile_of_calls_has_their_self_times() {
    let recording = single(&stacked());
    let main = Request {
        selection: Selection {
            threads: Some(Threads::Main),
            process: Some(100),
            ..Selection::default()
        },
        ..Request::new(Metric::CrossingTime)
    };
    let (file, notes) = cpuprofile_of(&recording, &main);
    assert_eq!(notes, [""; 0]);
    let expected = leaves(&recording, &main);
    let expected = expected.into_iter().map(|(name, ns)| (name, ns / 1_000));
    let mut found = read_cpuprofile(&file);
    assert_eq!(found.remove("(idle)"), Some(0), "the end");
    assert_eq!(found, expected.collect());
}

#[test]
fn a_cpuprofile_has_a_wait_within_a_sample_as_long_as_it_was() {
    let mut recording = stacked();
    let main = |process: ProcessId, thread: ThreadId| (process.0, thread.0) == (0, 100);
    recording
        .samples
        .retain(|sample| main(sample.process, sample.thread));
    recording.samples.truncate(1);
    let sample = recording.samples[0];
    recording
        .waits
        .retain(|wait| main(wait.process, wait.thread));
    recording.waits.truncate(1);
    let wait = &mut recording.waits[0];
    wait.start.0 = sample.at.0 - 900_000;
    (wait.duration.0, wait.runnable.0) = (50_000, 0);
    let (file, _) = cpuprofile_of(&recording, &Request::new(Metric::Wall));
    let found = read_cpuprofile(&file);
    assert_eq!(found["[waits for a file]"], 50);
    assert_eq!(found.values().sum::<u64>(), 1_000, "{found:?}");
}

fn firefox_of(recording: &Recording, request: &Request) -> Value {
    let mut file = Vec::new();
    let timeline = Timeline::new(recording);
    let stacks = stacks(recording, request).unwrap();
    firefox::write(stacks, recording, &timeline, RunId(0), &mut file).unwrap();
    serde_json::from_slice(&file).unwrap()
}

#[test]
fn the_firefox_profile_has_whole_tables_and_every_value() {
    let recording = single(&stacked());
    for request in forms() {
        let file = firefox_of(&recording, &request);
        let shared = &file["shared"];
        for (name, table) in shared.as_object().unwrap() {
            let Some(length) = table.get("length") else {
                continue;
            };
            for (column, values) in table.as_object().unwrap() {
                if let Some(values) = values.as_array() {
                    assert_eq!(length, values.len(), "{name}.{column}");
                }
            }
        }
        let strings = shared["stringArray"].as_array().unwrap();
        let frame_of_stack = indices(&shared["stackTable"]["frame"]);
        for (index, prefix) in shared["stackTable"]["prefix"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
        {
            assert!(prefix.is_null() || prefix.as_u64().unwrap() < index as u64);
        }
        let func_of_frame = indices(&shared["frameTable"]["func"]);
        let name_of_func = indices(&shared["funcTable"]["name"]);
        let categories = file["meta"]["categories"].as_array().unwrap().len() as u64;
        assert!(
            indices(&shared["frameTable"]["category"])
                .iter()
                .all(|category| *category < categories)
        );
        let mut total = 0.0;
        for thread in file["threads"].as_array().unwrap() {
            let samples = &thread["samples"];
            let mut before = f64::MIN;
            let times = samples["time"].as_array().unwrap();
            let weights = samples["weight"].as_array().unwrap();
            let stacks = samples["stack"].as_array().unwrap();
            for ((time, weight), stack) in times.iter().zip(weights).zip(stacks) {
                assert!(time.as_f64().unwrap() >= before);
                before = time.as_f64().unwrap();
                let weight = weight.as_f64().unwrap();
                total += weight;
                match stack.as_u64() {
                    None => assert_eq!(weight, 0.0),
                    Some(stack) => {
                        let func = func_of_frame[frame_of_stack[stack as usize] as usize];
                        assert!(strings[name_of_func[func as usize] as usize].is_string());
                    }
                }
            }
        }
        let (scale, kind) = match request.metric.unit() {
            Unit::Time => (1e6, "tracing-ms"),
            Unit::Count(_) => (1.0, "samples"),
        };
        assert_eq!(file["threads"][0]["samples"]["weightType"], kind);
        let expected = fold(&recording, &request).unwrap().total();
        assert!((total * scale - expected as f64).abs() < 1.0, "{request:?}");
    }
}

#[test]
fn the_firefox_profile_has_phases_and_where_functions_begin_and_stood() {
    let file = firefox_of(&stacked(), &Request::new(Metric::Cpu));
    let strings = file["shared"]["stringArray"].as_array().unwrap();
    let main = file["threads"]
        .as_array()
        .unwrap()
        .iter()
        .find(|thread| thread["tid"] == 100)
        .unwrap();
    let names: Vec<&str> = indices(&main["markers"]["name"])
        .iter()
        .map(|name| strings[*name as usize].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "process",
            "platform",
            "v8",
            "bootstrap",
            "main_script",
            "loop",
            "teardown"
        ]
    );
    let funcs = &file["shared"]["funcTable"];
    let next = strings.iter().position(|name| name == "next").unwrap() as u64;
    let func = indices(&funcs["name"])
        .iter()
        .position(|name| *name == next)
        .unwrap();
    assert_eq!(
        (&funcs["lineNumber"][func], &funcs["isJS"][func]),
        (&46.into(), &true.into())
    );
    let frame = indices(&file["shared"]["frameTable"]["func"])
        .iter()
        .position(|of| *of == func as u64)
        .unwrap();
    assert_eq!(file["shared"]["frameTable"]["line"][frame], 60);
}

fn chrome_of(recording: &Recording, request: &Request, all: bool) -> Vec<Value> {
    let mut file = Vec::new();
    chrome::write(recording, request, all, &mut file).unwrap();
    let mut file: Value = serde_json::from_slice(&file).unwrap();
    match file["traceEvents"].take() {
        Value::Array(events) => events,
        other => panic!("{other}"),
    }
}

#[test]
fn slices_of_a_chrome_trace_lie_one_inside_the_other() {
    // The first sample begins before the run, the next one at once after it; another one ended before the run.
    let mut early = stacked();
    let started = early.runs[0].started.0;
    for (index, at) in [
        (0, started - 1),
        (2, started + 300_000),
        (3, started + 1_300_000),
    ] {
        early.samples[index].at.0 = at;
        early.samples[index].process = early.samples[0].process;
        early.samples[index].thread = early.samples[0].thread;
    }
    assert!(early.samples[2].weight.0 > 300_000);
    assert_ne!(early.samples[2].stack, early.samples[3].stack);
    for recording in [
        stacked(),
        common::small(),
        Recording::synthetic(5_000),
        early,
    ] {
        let events = chrome_of(&recording, &Request::new(Metric::Cpu), true);
        let mut tracks: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
        let mut named = std::collections::BTreeSet::new();
        for event in &events {
            let track = (
                event["pid"].as_u64().unwrap(),
                event["tid"].as_u64().unwrap(),
            );
            let ns = |key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
            match event["ph"].as_str().unwrap() {
                "M" if event["name"] == "thread_name" => assert!(named.insert(track)),
                "M" => {}
                "i" => assert_eq!(event["s"], "t"),
                "X" => tracks
                    .entry(track)
                    .or_default()
                    .push((ns("ts"), ns("ts") + ns("dur"))),
                other => panic!("{other}"),
            }
        }
        assert!(tracks.len() >= 2);
        for (track, slices) in tracks {
            assert!(named.contains(&track));
            let mut open: Vec<u64> = Vec::new();
            let mut before = 0;
            for (start, end) in slices {
                assert!(start >= before, "sorted");
                before = start;
                open.retain(|outer| *outer > start);
                assert!(open.last().is_none_or(|outer| end <= *outer), "{track:?}");
                open.push(end);
            }
        }
    }
}

#[test]
fn a_chrome_trace_has_every_event_or_those_of_a_metric() {
    let recording = stacked();
    let of =
        |events: &[Value], cat: &str| events.iter().filter(|event| event["cat"] == cat).count();
    let all = chrome_of(&recording, &Request::new(Metric::Cpu), true);
    let tracks: Vec<&str> = all
        .iter()
        .filter(|event| event["name"] == "thread_name" && event["pid"] == 100)
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        tracks,
        [
            "phases",
            "main thread: modules",
            "main thread: calls",
            "main thread: CPU samples",
            "main thread: garbage collection, by samples",
            "main thread: off the CPU",
            "worker 1: modules",
            "worker 1: calls",
            "worker 1: CPU samples",
            "thread 107: CPU samples",
            "thread 107: off the CPU",
        ]
    );
    assert_eq!(of(&all, "JavaScript to C++"), 7);
    assert_eq!(of(&all, "C++ to JavaScript"), 1);
    assert_eq!(of(&all, "file"), recording.files.len());
    assert_eq!(of(&all, "package.json"), 1);
    assert_eq!(of(&all, "compile"), 1);
    assert_eq!(of(&all, "phase"), 7 + 3);
    assert_eq!(of(&all, "milestone"), 6 + 2);
    let main = all
        .iter()
        .find(|event| event["name"] == "main_script")
        .unwrap();
    assert_eq!(
        (main["ts"].as_f64(), main["dur"].as_f64()),
        (Some(10_000.0), Some(30_000.0))
    );
    let files = chrome_of(&recording, &Request::new(Metric::Files), false);
    assert_eq!(
        (
            of(&files, "file"),
            of(&files, "JavaScript to C++"),
            of(&files, "compile")
        ),
        (2, 0, 0)
    );
    let loop_only = Request {
        selection: Selection {
            from: Some("loop_start".parse().unwrap()),
            ..Selection::default()
        },
        ..Request::new(Metric::Cpu)
    };
    let late = chrome_of(&recording, &loop_only, true);
    assert!(
        late.iter()
            .all(|event| event["ts"].as_f64().is_none_or(|ts| ts >= 40_000.0))
    );
    assert_eq!(of(&late, "phase"), 2 + 1);
}

#[test]
fn a_chrome_trace_says_which_calls_of_the_selected_span_were_only_counted() {
    let mut recording = stacked();
    let sum = recording.crossing_sums[0];
    let function = recording.serializations[0].function;
    recording.serialization_sums.push(SerializationSum {
        process: sum.process,
        function,
        callback: None,
        phase: sum.phase,
        calls: 7,
        bytes: 0,
        total: sum.total,
        self_time: sum.self_time,
        stack: None,
    });
    let notes = |metric, all, from: Option<&str>, until: Option<&str>| {
        let point = |text: Option<&str>| text.map(|text| text.parse().unwrap());
        let request = Request {
            selection: Selection {
                from: point(from),
                until: point(until),
                ..Selection::default()
            },
            ..Request::new(metric)
        };
        chrome::write(&recording, &request, all, Vec::new()).unwrap()
    };
    let script = Some("main_script");
    for (from, until) in [(None, None), (script, script), (Some("12ms"), None)] {
        let found = notes(Metric::Cpu, true, from, until);
        assert!(found[0].contains("107 calls that were"), "{found:?}");
    }
    let found = notes(Metric::Serialization, false, None, None);
    assert!(found[0].contains(" 7 calls that were"), "{found:?}");
    let found = notes(Metric::Crossings, false, None, None);
    assert!(found[0].contains(" 100 calls that were"), "{found:?}");
    assert!(notes(Metric::Files, false, None, None).is_empty());
    // They were of the main script.
    assert!(notes(Metric::Cpu, true, Some("loop_start"), None).is_empty());
    assert!(notes(Metric::Cpu, true, None, Some("environment")).is_empty());
}

#[test]
fn what_a_format_cannot_hold_is_an_error_that_names_another() {
    let recording = stacked();
    let request = Request::new(Metric::Crossings);
    let error = cpuprofile::write(stacks(&recording, &request).unwrap(), Vec::new()).unwrap_err();
    assert!(matches!(error, ExportError::NotATime { .. }));
    assert!(error.to_string().contains("another format"));
    let phases = Request {
        by: Some(By::Phase),
        ..Request::new(Metric::CrossingTime)
    };
    let timeline = Timeline::new(&recording);
    let by_phase = || stacks(&recording, &phases).unwrap();
    let error =
        firefox::write(by_phase(), &recording, &timeline, RunId(0), Vec::new()).unwrap_err();
    assert!(matches!(error, ExportError::NoInstants { .. }));
    assert!(cpuprofile::write(by_phase(), Vec::new()).is_err());
    // These need no instants.
    speedscope::write(by_phase(), Vec::new()).unwrap();
    let profile = decoded(&recording, &phases);
    let sum: i64 = profile.sample.iter().map(|sample| sample.value[1]).sum();
    assert_eq!(sum as u64, fold(&recording, &phases).unwrap().total());
    let mut counted = recording.clone();
    counted.crossings.clear();
    let only_sums = stacks(&counted, &Request::new(Metric::CrossingTime)).unwrap();
    let error = cpuprofile::write(only_sums, Vec::new()).unwrap_err();
    assert!(error.to_string().contains("--mode full"), "{error}");
    let order = Request {
        order: Order::Time,
        ..Request::new(Metric::Crossings)
    };
    assert!(
        fold(&counted, &order).is_err(),
        "nothing is left in order of time"
    );
}
