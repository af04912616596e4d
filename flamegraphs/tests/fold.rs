//! Folded stacks and flame graphs: that every figure of the profile is in them, once.
// clippy knows only test functions as tests, not their helpers.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::stacked::{stacked, stackless};
use nodeprof_flamegraphs::fold::{By, FoldError, Folded, Metric, Order, Request, fold};
use nodeprof_flamegraphs::select::{Selection, Threads};
use nodeprof_flamegraphs::svg::{SvgOptions, write};
use nodeprof_profile::recording::{FamilyState, RunId};
use nodeprof_profile::{Profile, Recording};

/// What a recording without samples has.
const EVENTS: [Metric; 7] = [
    Metric::Crossings,
    Metric::CrossingTime,
    Metric::Serialization,
    Metric::Files,
    Metric::FileTime,
    Metric::PackageJson,
    Metric::Compile,
];

fn by_phase(metric: Metric) -> Request {
    Request {
        by: Some(By::Phase),
        ..Request::new(metric)
    }
}

fn svg(folded: &Folded) -> String {
    let mut picture = Vec::new();
    write(folded, &SvgOptions::default(), &mut picture).unwrap();
    String::from_utf8(picture).unwrap()
}

#[test]
fn the_stacks_of_a_small_recording_are_the_reviewed_ones() {
    let recording = common::small();
    for metric in EVENTS {
        common::golden(
            &format!("small.{metric}.folded"),
            &fold(&recording, &Request::new(metric)).unwrap().to_string(),
        );
    }
}

#[test]
fn sums_equal_the_figures_of_the_profile() {
    for recording in [common::small(), Recording::synthetic(50_000)] {
        let run = &Profile::from_recording(&recording).runs[0];
        let total = |metric| fold(&recording, &by_phase(metric)).unwrap().total();
        let crossings = &run.crossings;
        assert_eq!(total(Metric::Crossings), crossings.total);
        let to_js: u64 = crossings
            .to_js
            .iter()
            .filter_map(|callback| callback.self_ns)
            .sum();
        assert_eq!(total(Metric::CrossingTime), crossings.self_ns + to_js);
        if !recording.stacks.is_empty() {
            // By stack, those of JavaScript only.
            let total = |metric| fold(&recording, &Request::new(metric)).unwrap().total();
            assert_eq!(total(Metric::Crossings), crossings.total);
            assert_eq!(total(Metric::CrossingTime), crossings.self_ns);
        }
        let files = &run.files;
        let operations = [
            files.stat,
            files.open,
            files.read,
            files.readlink,
            files.access,
            files.close,
        ];
        assert_eq!(
            total(Metric::Files),
            operations
                .iter()
                .map(|operation| operation.calls)
                .sum::<u64>()
        );
        assert_eq!(
            total(Metric::FileTime),
            operations
                .iter()
                .map(|operation| operation.total_ns)
                .sum::<u64>()
        );
        assert_eq!(total(Metric::PackageJson), run.package_json.lookups);
        assert_eq!(
            total(Metric::Serialization),
            run.serialization
                .functions
                .iter()
                .map(|function| function.self_ns)
                .sum::<u64>()
        );
        assert_eq!(total(Metric::Compile), run.compile.total_ns);
    }
}

#[test]
fn calls_by_callback_equal_those_of_the_profile() {
    let recording = Recording::synthetic(20_000);
    let run = &Profile::from_recording(&recording).runs[0];
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for callback in &run.crossings.callbacks {
        *expected.entry(callback.function.clone()).or_default() += callback.calls;
    }
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    fold(&recording, &by_phase(Metric::Crossings))
        .unwrap()
        .for_each_stack(|stack, value| {
            let name = stack.last().unwrap().name.as_str();
            let name = name.split(" [").next().unwrap();
            *found.entry(name.to_owned()).or_default() += value;
            Ok::<(), ()>(())
        })
        .unwrap();
    assert_eq!(found, expected);
}

#[test]
fn the_order_of_events_in_a_recording_does_not_matter() {
    let recording = Recording::synthetic(5_000);
    let mut shuffled = recording.clone();
    shuffled.crossings.reverse();
    let mut state = 7u64;
    for index in (1..shuffled.crossings.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        shuffled
            .crossings
            .swap(index, (state >> 33) as usize % (index + 1));
    }
    shuffled.files.reverse();
    shuffled.lookups.reverse();
    for metric in [
        Metric::Crossings,
        Metric::CrossingTime,
        Metric::Files,
        Metric::PackageJson,
    ] {
        let text = |recording| fold(recording, &Request::new(metric)).unwrap().to_string();
        assert_eq!(text(&recording), text(&shuffled), "{metric}");
    }
}

#[test]
fn each_line_is_a_stack_of_its_own_and_a_number() {
    let recording = common::small();
    for metric in EVENTS {
        let text = fold(&recording, &Request::new(metric)).unwrap().to_string();
        let mut seen = std::collections::BTreeSet::new();
        for line in text.lines() {
            let (stack, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<u64>().unwrap() > 0, "{line}");
            assert!(stack.split(';').all(|frame| !frame.is_empty()), "{line}");
            assert!(seen.insert(stack.to_owned()), "{line} twice");
            assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
            // A number before the number would be read as the other half of a difference.
            let word = stack.rsplit(' ').next().unwrap();
            assert!(word == stack || word.parse::<f64>().is_err(), "{line}");
        }
    }
}

/// A frame of a picture, in percent of the whole.
struct Drawn {
    lines: Vec<String>,
    from: f64,
    to: f64,
    row: u32,
    fill: String,
}

fn drawn(picture: &str) -> Vec<Drawn> {
    let document = roxmltree::Document::parse(picture).unwrap();
    let frames = document.descendants().filter(|node| {
        node.attribute("class")
            .is_some_and(|class| class.starts_with("f "))
    });
    frames
        .map(|node| {
            let percent = |name| -> f64 {
                let text = node.attribute(name).unwrap();
                text.strip_suffix('%').unwrap().parse().unwrap()
            };
            let child = |name| {
                node.children()
                    .find(|child| child.has_tag_name(name))
                    .unwrap()
            };
            Drawn {
                lines: child("title")
                    .text()
                    .unwrap()
                    .lines()
                    .map(str::to_owned)
                    .collect(),
                from: percent("x"),
                to: percent("x") + percent("width"),
                row: node.attribute("y").unwrap().parse().unwrap(),
                fill: child("rect").attribute("fill").unwrap().to_owned(),
            }
        })
        .collect()
}

#[test]
fn the_graph_is_well_formed_and_its_sum_exact() {
    for recording in [
        common::small(),
        Recording::synthetic(20_000),
        common::stacked::stacked(),
    ] {
        for metric in EVENTS {
            let folded = fold(&recording, &Request::new(metric)).unwrap();
            let picture = svg(&folded);
            let document = roxmltree::Document::parse(&picture).unwrap();
            let element = |id: &str| {
                let mut all = document.descendants();
                all.find(|node| node.attribute("id") == Some(id)).unwrap()
            };
            let total = element("frames").attribute("data-total").unwrap();
            assert_eq!(total, folded.total().to_string(), "{metric}");
            assert_eq!(
                element("title").text(),
                Some(folded.about().title().as_str())
            );
            let subtitle = folded.about().subtitle(folded.total());
            assert_eq!(element("subtitle").text(), Some(subtitle.as_str()));
            let kinds = element("legend")
                .children()
                .filter(|node| node.is_element());
            let kinds = kinds.map(|node| node.attribute("data-kind").unwrap().to_owned());
            let kinds: std::collections::BTreeSet<String> = kinds.collect();
            let used = document
                .descendants()
                .filter_map(|node| node.attribute("class")?.strip_prefix("f "));
            let used: std::collections::BTreeSet<String> = used.map(str::to_owned).collect();
            // A kind may have frames too narrow to be drawn only.
            assert!(used.is_subset(&kinds), "{metric}");
        }
    }
}

#[test]
fn every_frame_stands_on_its_caller() {
    let stacked = common::stacked::stacked();
    for (recording, order) in [
        (&Recording::synthetic(20_000), Order::Merged),
        (&stacked, Order::Merged),
        (&stacked, Order::Time),
    ] {
        let request = Request {
            order,
            ..Request::new(Metric::Crossings)
        };
        let frames = drawn(&svg(&fold(recording, &request).unwrap()));
        assert_eq!(
            (frames[0].from, frames[0].to, frames[0].row),
            (0.0, 100.0, 0)
        );
        // Callers come before callees: the last on the row above is the caller.
        for (index, frame) in frames.iter().enumerate().skip(1) {
            let caller = frames[..index]
                .iter()
                .rfind(|caller| caller.row < frame.row)
                .unwrap();
            assert_eq!(frame.row - caller.row, frames[1].row, "{:?}", frame.lines);
            let inside = frame.from >= caller.from - 1e-3 && frame.to <= caller.to + 1e-3;
            assert!(inside, "{:?} on {:?}", frame.lines, caller.lines);
            let before = frames[..index]
                .iter()
                .rfind(|before| before.row == frame.row);
            assert!(before.is_none_or(|before| before.to <= frame.from + 1e-3));
        }
    }
}

#[test]
fn frames_of_the_graph_are_as_wide_as_their_stacks_are_worth() {
    let folded = fold(&common::small(), &Request::new(Metric::Files)).unwrap();
    let frames = drawn(&svg(&folded));
    let values = |name: &str| {
        let frames = frames.iter().filter(|frame| frame.lines[0] == name);
        frames
            .map(|frame| {
                let value = frame.lines[1].split(' ').next().unwrap();
                let share = (frame.to - frame.from) * folded.total() as f64 / 100.0;
                assert!(
                    (share - value.parse::<f64>().unwrap()).abs() < 1e-3,
                    "{name}"
                );
                value.to_owned()
            })
            .collect::<Vec<_>>()
    };
    // One open by node, one by the shell.
    assert_eq!(values("ld.so.cache"), ["1", "1"]);
    // Merged across phases of one kind.
    assert_eq!(values("index.js"), ["3"]);
}

#[test]
fn a_call_that_outlasts_its_phase_has_its_self_time_in_each() {
    let mut recording = common::small();
    // All but C++'s calls of JavaScript on the main thread, of which the last began in main_script and ended 1.2 ms
    // before the loop: let it end in the loop instead.
    let long = recording
        .crossings
        .iter()
        .position(|crossing| {
            crossing
                .duration
                .is_some_and(|duration| duration.0 == 42_000_000)
        })
        .unwrap();
    recording.crossings[long].duration = recording.crossings[long]
        .duration
        .map(|duration| nodeprof_profile::recording::Nanoseconds(duration.0 + 2_000_000));
    recording.crossings[long].self_time = recording.crossings[long]
        .self_time
        .map(|own| nodeprof_profile::recording::Nanoseconds(own.0 + 2_000_000));
    let text = fold(&recording, &Request::new(Metric::CrossingTime))
        .unwrap()
        .to_string();
    let value = |stack: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(stack)?.trim().parse::<u64>().ok())
    };
    // 18.0 to 61.2 ms less 1.55 ms of calls inside; and from there to 62.0 ms.
    assert_eq!(
        value("node app.js --port=80;main_script;JavaScript "),
        Some(41_650_000),
        "{text}"
    );
    assert_eq!(
        value("node app.js --port=80;loop;JavaScript "),
        Some(800_000),
        "{text}"
    );
}

#[test]
fn frames_of_two_kinds_with_one_name_have_two_colours() {
    let mut recording = common::small();
    let name = recording
        .names
        .iter()
        .position(|name| name == b"/srv/site/.env")
        .unwrap();
    recording.names[name] = b"/stat".to_vec();
    let operation = recording
        .names
        .iter()
        .position(|name| name == b"/srv/site/package.json")
        .unwrap();
    recording.names[operation] = b"open".to_vec();
    let frames = drawn(&svg(
        &fold(&recording, &Request::new(Metric::Files)).unwrap()
    ));
    let open = frames.iter().filter(|frame| frame.lines[0] == "open");
    let fills: std::collections::BTreeSet<&str> = open.map(|frame| frame.fill.as_str()).collect();
    assert_eq!(fills.len(), 2, "{fills:?}");
}

#[test]
fn nothing_to_show_says_why_and_what_to_do() {
    let mut recording = common::small();
    recording.crossings.clear();
    recording.crossing_sums.clear();
    let message = |recording: &Recording, metric| {
        fold(recording, &Request::new(metric))
            .unwrap_err()
            .to_string()
    };
    assert!(message(&recording, Metric::Crossings).contains("nodeprof report"));
    recording.families[1] = FamilyState {
        run: RunId(0),
        name: "crossings".into(),
        state: "off".into(),
        reason: None,
    };
    let error = message(&recording, Metric::Crossings);
    assert!(
        error.contains("was off") && error.contains("--families crossings"),
        "{error}"
    );
    recording.families[1].state = "failed".into();
    recording.families[1].reason = Some("no symbols".into());
    let error = message(&recording, Metric::Crossings);
    assert!(
        error.contains("no symbols") && error.contains("nodeprof doctor"),
        "{error}"
    );
    assert_eq!(
        fold(
            &recording,
            &Request {
                run: RunId(7),
                ..Request::new(Metric::Files)
            }
        ),
        Err(FoldError::NoSuchRun { run: 7, runs: 1 })
    );
}

#[test]
fn a_million_crossings_are_drawn_in_time() {
    let recording = Recording::synthetic(1_000_000);
    let begin = std::time::Instant::now();
    let picture = svg(&fold(&recording, &Request::new(Metric::Crossings)).unwrap());
    let spent = begin.elapsed();
    assert!(picture.len() > 100_000);
    // 0.27 s when optimised; tests are not, and run beside others.
    assert!(spent.as_secs_f64() < 5.0, "{spent:?}");
}

#[test]
fn processes_in_a_circle_and_ids_of_nothing_are_no_reason_to_panic() {
    use nodeprof_profile::recording::{CallbackId, NameId, ProcessId};
    let mut recording = common::small();
    recording.processes[0].parent = Some(ProcessId(3));
    recording.processes[1].parent = Some(ProcessId(1));
    recording.processes[2].parent = Some(ProcessId(99));
    recording.crossings[0].process = ProcessId(77);
    recording.crossings[1].callback = CallbackId(u32::MAX);
    recording.crossings[2].parent = Some(CallbackId(4_000));
    recording.crossings[3].duration = Some(nodeprof_profile::recording::Nanoseconds(u64::MAX));
    recording.files[0].path = NameId(u32::MAX);
    recording.lookups[0].process = ProcessId(u32::MAX);
    for metric in EVENTS {
        let folded = fold(&recording, &Request::new(metric)).unwrap();
        assert!(drawn(&svg(&folded)).len() > 1);
    }
    let text =
        nodeprof_flamegraphs::render(&Profile::from_recording(&recording), &Default::default());
    assert!(text.contains("Processes"));
}

#[test]
fn the_form_and_the_advice_are_those_of_the_run_that_is_drawn() {
    let mut recording = stacked();
    let mut other = stackless();
    other.samples.clear();
    other.runs[0].sample_hz = None;
    recording.append(other);
    let of_run = |run, request: Request| {
        let run = RunId(run);
        fold(&recording, &Request { run, ..request })
    };
    for metric in EVENTS {
        for (run, by) in [(0, By::Stack), (1, By::Phase)] {
            let folded = of_run(run, Request::new(metric)).unwrap();
            assert_eq!(folded.about().by, by, "{metric}");
        }
        let by_stack = Request {
            by: Some(By::Stack),
            ..Request::new(metric)
        };
        assert!(of_run(0, by_stack.clone()).is_ok());
        let error = of_run(1, by_stack).unwrap_err();
        assert_eq!(error, FoldError::NoStacks(metric));
    }
    let main = Request {
        selection: Selection {
            threads: Some(Threads::Main),
            ..Selection::default()
        },
        ..Request::new(Metric::Cpu)
    };
    let error = of_run(1, main).unwrap_err().to_string();
    assert!(
        error.contains("part of this run (none were taken)"),
        "{error}"
    );
}
