//! Differential flame graphs: that they say what two folded stacks say, and which changes are more than chance.
// clippy knows only test functions as tests, not their helpers.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;

use common::stacked::{stacked, stackless};
use nodeprof_flamegraphs::differential::{Differential, DifferentialError, Direction, Known, Side};
use nodeprof_flamegraphs::fold::{By, Metric, Order, Request, fold};
use nodeprof_flamegraphs::svg::{SvgOptions, write_difference};
use nodeprof_profile::Recording;
use nodeprof_profile::diff::compare::{Certainty, constant_change};
use nodeprof_profile::groups::{COUNT_MODE, Group};
use nodeprof_profile::recording::{CrossingKind, FamilyState, RunId};

const METRICS: [Metric; 8] = [
    Metric::Cpu,
    Metric::Crossings,
    Metric::CrossingTime,
    Metric::Serialization,
    Metric::Files,
    Metric::FileTime,
    Metric::PackageJson,
    Metric::Compile,
];

fn side<'a>(recording: &'a Recording, name: &str) -> Side<'a> {
    Side {
        recording,
        group: Group::all(recording, name),
    }
}

fn difference(base: &Recording, head: &Recording, request: &Request) -> Differential {
    Differential::new(&side(base, "base"), &side(head, "head"), request, 0).unwrap()
}

fn requests() -> impl Iterator<Item = Request> {
    METRICS.into_iter().flat_map(|metric| {
        [By::Stack, By::Phase, By::Package].map(|by| Request {
            by: Some(by),
            ..Request::new(metric)
        })
    })
}

fn lines(text: &str) -> BTreeSet<&str> {
    text.lines().collect()
}

#[test]
fn folded_stacks_are_those_of_inferno() {
    let (base, head) = (Recording::synthetic(3000), Recording::synthetic(5000));
    for request in requests() {
        let text = |recording| fold(recording, &request).unwrap().to_string();
        let mut expected = Vec::new();
        inferno::differential::from_readers(
            inferno::differential::Options::default(),
            text(&base).as_bytes(),
            text(&head).as_bytes(),
            &mut expected,
        )
        .unwrap();
        let expected = String::from_utf8(expected).unwrap();
        let mut found = Vec::new();
        difference(&base, &head, &request)
            .write_folded(&mut found)
            .unwrap();
        let found = String::from_utf8(found).unwrap();
        assert_eq!(
            found.lines().count(),
            expected.lines().count(),
            "{request:?}"
        );
        assert_eq!(lines(&found), lines(&expected), "{request:?}");
    }
}

/// The sum of the stacks of a recording that are not in another one, by their folded texts.
fn only(of: &Recording, other: &Recording, request: &Request) -> f64 {
    let [of, other] = [of, other].map(|recording| fold(recording, request).unwrap().to_string());
    let stacks = |text: &str| -> Vec<(String, f64)> {
        let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
        lines
            .map(|(stack, value)| (stack.to_owned(), value.parse().unwrap()))
            .collect()
    };
    let others: BTreeSet<String> = stacks(&other)
        .iter()
        .flat_map(|(stack, _)| {
            let ends = stack.match_indices(';').map(|(end, _)| end);
            let outer = ends.map(|end| stack[..end].to_owned());
            outer.chain([stack.clone()]).collect::<Vec<_>>()
        })
        .collect();
    let alone = { stacks(&of).into_iter() }.filter(|(stack, _)| !others.contains(stack));
    alone.map(|(_, value)| value).sum()
}

#[test]
fn elided_and_new_frames_sum_up() {
    let (base, head) = (Recording::synthetic(3000), Recording::synthetic(5000));
    let mut all_new = 0.0;
    for request in requests() {
        let of = difference(&base, &head, &request);
        let (base_total, head_total) = of.totals();
        assert_eq!(base_total, fold(&base, &request).unwrap().total() as f64);
        assert_eq!(head_total, fold(&head, &request).unwrap().total() as f64);
        let sum = |keep: fn(&nodeprof_flamegraphs::differential::Node) -> bool| -> f64 {
            let kept = of.nodes().iter().filter(|node| keep(node));
            kept.map(|node| node.head.own - node.base.own).sum()
        };
        let own = of.nodes().iter().map(|node| node.head.own - node.base.own);
        assert_eq!(own.sum::<f64>(), head_total - base_total);
        // By the texts: stacks that no stack of the other side is, or goes through.
        let (base_only, head_only) = (only(&base, &head, &request), only(&head, &base, &request));
        assert_eq!(sum(|n| n.is_new()), head_only, "{request:?}");
        assert_eq!(sum(|n| n.is_elided()), -base_only, "{request:?}");
        all_new += head_only;
        let mut picture = Vec::new();
        for direction in [Direction::Head, Direction::Base] {
            picture.clear();
            write_difference(&of, direction, &SvgOptions::default(), &mut picture).unwrap();
            let text = std::str::from_utf8(&picture).unwrap();
            roxmltree::Document::parse(text).unwrap();
        }
    }
    assert!(all_new > 0.0);
}

/// The same program in another folder, with another version of a package and other hashes, on a node elsewhere.
fn moved(mut recording: Recording) -> Recording {
    for name in &mut recording.names {
        let text = String::from_utf8(name.clone()).unwrap();
        let text = text.replace("/home/user/project/", "/srv/releases/2/");
        *name = text
            .replace("/usr/bin/node", "/opt/node-v22/bin/node")
            .replace("/module-3.js", "/module-3-ab12cd34.js")
            .replace(
                "/package-7/",
                "/.pnpm/package-7@2.0.1/node_modules/package-7/",
            )
            .into_bytes();
    }
    for run in &mut recording.runs {
        run.directory = b"/srv/releases/2".to_vec();
    }
    recording
}

#[test]
fn frames_are_the_same_in_another_folder_with_other_versions_and_hashes() {
    let base = Recording::synthetic(3000);
    let mut base_hashed = base.clone();
    for name in &mut base_hashed.names {
        let text = String::from_utf8(name.clone()).unwrap();
        *name = text
            .replace("/module-3.js", "/module-3-99ffee00.js")
            .into_bytes();
    }
    let head = moved(base.clone());
    for metric in METRICS {
        let of = difference(&base_hashed, &head, &Request::new(metric));
        let alone = of
            .nodes()
            .iter()
            .filter(|node| node.is_new() || node.is_elided());
        let alone: Vec<&str> = alone.map(|node| of.frame(node).name.as_str()).collect();
        assert!(alone.is_empty(), "{metric}: {alone:?}");
        assert!(
            of.nodes().iter().all(|node| node.change() == 0.0),
            "{metric}"
        );
    }
}

/// The program in `folder`, run from the folder above.
fn inside(mut recording: Recording, folder: &str) -> Recording {
    for name in &mut recording.names {
        let text = String::from_utf8(name.clone()).unwrap();
        *name = text.replace("/home/user/project", folder).into_bytes();
    }
    let command: Vec<Vec<u8>> = ["node".to_owned(), format!("{folder}/app.js")]
        .map(String::into_bytes)
        .into();
    for exec in recording.processes.iter_mut().flat_map(|p| &mut p.execs) {
        exec.arguments.clone_from(&command);
    }
    for run in &mut recording.runs {
        run.directory = b"/builds".to_vec();
        run.command.clone_from(&command);
    }
    recording
}

#[test]
fn folders_by_phase_are_the_same_where_programs_lie_side_by_side() {
    let recording = Recording::synthetic(3000);
    let (base, head) = (
        inside(recording.clone(), "/builds/base"),
        inside(recording, "/builds/head"),
    );
    for metric in [
        Metric::Files,
        Metric::FileTime,
        Metric::PackageJson,
        Metric::Compile,
    ] {
        let request = Request {
            by: Some(By::Phase),
            ..Request::new(metric)
        };
        let of = difference(&base, &head, &request);
        let names: BTreeSet<&str> = of
            .nodes()
            .iter()
            .map(|n| of.frame(n).name.as_str())
            .collect();
        assert!(names.contains("./"), "{metric}: {names:?}");
        for name in ["base/", "head/", "/builds/"] {
            assert!(!names.contains(name), "{metric}: {names:?}");
        }
        let alone = of
            .nodes()
            .iter()
            .filter(|node| node.is_new() || node.is_elided());
        assert_eq!(alone.count(), 0, "{metric}");
    }
}

#[test]
fn frames_are_the_same_where_one_program_is_started_in_two_folders() {
    let base = inside(Recording::synthetic(3000), "/builds/app");
    let mut head = base.clone();
    head.runs[0].directory = b"/builds/app".to_vec();
    for metric in METRICS {
        for by in [By::Stack, By::Phase, By::Module, By::Package] {
            let request = Request {
                by: Some(by),
                ..Request::new(metric)
            };
            for (base, head) in [(&base, &head), (&head, &base)] {
                let of = difference(base, head, &request);
                let alone = of
                    .nodes()
                    .iter()
                    .filter(|node| node.is_new() || node.is_elided());
                let alone: Vec<&str> = alone.map(|node| of.frame(node).name.as_str()).collect();
                assert!(alone.is_empty(), "{metric} {by:?}: {alone:?}");
            }
        }
    }
}

fn runs(count: usize, change: impl Fn(&mut Recording, usize)) -> Recording {
    let mut all = Recording::default();
    for index in 0..count {
        let mut one = Recording::synthetic(400);
        change(&mut one, index);
        all.append(one);
    }
    all
}

#[test]
fn what_is_the_same_in_all_runs_is_exact_and_noise_is_grey() {
    let noisy = |seed: usize| {
        move |recording: &mut Recording, index: usize| {
            for (at, crossing) in recording.crossings.iter_mut().enumerate() {
                if let Some(time) = &mut crossing.self_time {
                    time.0 += ((at * 31 + index * 17 + seed * 7) % 13) as u64;
                }
            }
        }
    };
    let more = |recording: &mut Recording, _: usize| {
        let again = recording.crossings[0];
        recording.crossings.push(again);
    };
    let request = Request::new(Metric::Crossings);
    let of = difference(&runs(5, |_, _| {}), &runs(5, more), &request);
    let changed: Vec<_> = of
        .nodes()
        .iter()
        .filter(|node| node.change() != 0.0)
        .collect();
    assert!(!changed.is_empty());
    assert!(
        changed
            .iter()
            .all(|node| node.change() == 1.0 && node.known == Known::Exact)
    );

    let request = Request::new(Metric::CrossingTime);
    let of = difference(&runs(6, noisy(1)), &runs(6, noisy(2)), &request);
    let known = of
        .nodes()
        .iter()
        .filter(|node| node.known != Known::Noise)
        .count();
    assert_eq!(known, 0);
    // One function takes 20 % of the whole more.
    let slow = |recording: &mut Recording, index: usize| {
        noisy(2)(recording, index);
        let whole: u64 = recording
            .crossings
            .iter()
            .filter_map(|c| Some(c.self_time?.0))
            .sum();
        let time = recording.crossings[0].self_time.as_mut().unwrap();
        time.0 += whole / 5 + index as u64;
    };
    let of = difference(&runs(6, noisy(1)), &runs(6, slow), &request);
    let known = of
        .nodes()
        .iter()
        .filter(|node| node.known == Known::Significant);
    let deepest = known.max_by_key(|node| node.depth).unwrap();
    assert!(deepest.change() > 0.0 && deepest.adjusted_p.unwrap() < 0.05);
    assert!(
        of.nodes()
            .iter()
            .filter(|n| n.known == Known::Noise)
            .count()
            > 50
    );
}

#[test]
fn a_change_is_exact_only_where_a_diff_calls_it_so() {
    let more = |recording: &mut Recording, _: usize| {
        let again = recording.crossings[0];
        recording.crossings.push(again);
    };
    let (base, head) = (runs(5, |_, _| {}), runs(5, more));
    let side = |recording, name| Side {
        recording,
        group: Group::all(recording, name),
    };
    for varying in [0, 1, 2, 50] {
        let of = Differential::new(
            &side(&base, "base"),
            &side(&head, "head"),
            &Request::new(Metric::Crossings),
            varying,
        )
        .unwrap();
        let expected = match constant_change(varying, 5, 5) {
            Certainty::Exact => Known::Exact,
            _ => Known::TooFewRuns,
        };
        let mut changed = of.nodes().iter().filter(|node| node.change() != 0.0);
        assert!(changed.all(|node| node.known == expected), "{varying}");
    }
    assert_eq!(constant_change(50, 5, 5), Certainty::TooFewRuns);
}

#[test]
fn one_run_a_side_is_said_and_order_of_time_refused() {
    let (base, head) = (Recording::synthetic(300), Recording::synthetic(400));
    let of = difference(&base, &head, &Request::new(Metric::Crossings));
    assert!(
        of.notes()
            .iter()
            .any(|note| note.contains("one run a side only"))
    );
    assert!(
        of.nodes()
            .iter()
            .all(|n| n.change() == 0.0 || n.known == Known::TooFewRuns)
    );
    let side = |recording| Side {
        recording,
        group: Group::all(recording, "x"),
    };
    let request = Request {
        order: Order::Time,
        ..Request::new(Metric::Crossings)
    };
    let error = Differential::new(&side(&base), &side(&head), &request, 0).unwrap_err();
    assert_eq!(error, DifferentialError::Order);
    let empty = Side {
        recording: &base,
        group: Group::default(),
    };
    let error = Differential::new(&empty, &side(&head), &Request::new(Metric::Cpu), 0).unwrap_err();
    assert!(matches!(error, DifferentialError::NoRuns { .. }));
}

#[test]
fn speedscope_and_json_hold_the_sums() {
    let (base, head) = (Recording::synthetic(3000), Recording::synthetic(5000));
    let of = difference(&base, &head, &Request::new(Metric::CrossingTime));
    let (base_total, head_total) = of.totals();
    let mut text = Vec::new();
    of.write_speedscope(&mut text).unwrap();
    let file: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let end = |index: usize| file["profiles"][index]["endValue"].as_f64().unwrap();
    assert_eq!((end(0), end(1)), (head_total, base_total));
    assert_eq!(end(2) - end(3), head_total - base_total);
    text.clear();
    of.write_json(&mut text).unwrap();
    let file: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let frames = file["frames"].as_array().unwrap();
    let own: f64 = frames
        .iter()
        .map(|frame| frame["head_own"].as_f64().unwrap())
        .sum();
    assert_eq!(own, head_total);
    let roots = frames.iter().filter(|frame| frame.get("caller").is_none());
    let sum: f64 = roots.map(|frame| frame["base"].as_f64().unwrap()).sum();
    assert_eq!(sum, base_total);
}

#[test]
fn a_run_without_stacks_makes_both_sides_stand_by_phase() {
    let (with, without) = (stacked(), stackless());
    for metric in METRICS {
        let request = Request::new(metric);
        for (base, head) in [(&with, &without), (&without, &with)] {
            let of = difference(base, head, &request);
            assert!(of.title().ends_with(", by phase"), "{}", of.title());
            assert!(of.nodes().iter().all(|node| node.change() == 0.0));
        }
        let of = difference(&with, &with, &request);
        assert!(!of.title().contains("by phase"), "{}", of.title());
        // A run in which there was nothing has no form.
        let nothing = Recording {
            runs: with.runs.clone(),
            processes: with.processes.clone(),
            ..Recording::default()
        };
        let of = difference(&nothing, &with, &request);
        assert!(!of.title().contains("by phase"), "{}", of.title());
    }
}

/// With a state of one family in the first run.
fn with_state(mut recording: Recording, family: &str, state: &str) -> Recording {
    recording.families.retain(|of| of.name != family);
    recording.families.push(FamilyState {
        run: RunId(0),
        name: family.to_owned(),
        state: state.to_owned(),
        reason: Some("as was asked".to_owned()),
    });
    recording
}

#[test]
fn what_one_side_did_not_record_is_not_nothing() {
    let whole = Recording::synthetic(400);
    let refused = |base: &Recording, head: &Recording, metric| {
        let request = Request::new(metric);
        Differential::new(&side(base, "base"), &side(head, "head"), &request, 0)
            .unwrap_err()
            .to_string()
    };
    let mut nothing = whole.clone();
    nothing.files.clear();
    let of = difference(&nothing, &whole, &Request::new(Metric::Files));
    assert!(of.nodes().iter().any(|node| node.is_new()));
    for (state, says) in [
        ("off", "(the family files was off: as was asked)"),
        ("failed", "(the family files: failed, as was asked)"),
        ("thinned", "are not kept any more)"),
    ] {
        let without = with_state(nothing.clone(), "files", state);
        for metric in [Metric::Files, Metric::FileTime] {
            let error = refused(&without, &whole, metric);
            assert!(
                error.starts_with("base: ") && error.contains(says),
                "{error}"
            );
            let error = refused(&whole, &without, metric);
            assert!(
                error.starts_with("head: ") && error.contains(says),
                "{error}"
            );
        }
        difference(&without, &whole, &Request::new(Metric::Crossings));
    }
    // That is known before a run is folded, whether the others can be drawn like that or not.
    let by_stack = Request {
        by: Some(By::Stack),
        ..Request::new(Metric::Files)
    };
    let without = with_state(nothing.clone(), "files", "off");
    let stackless = stackless();
    let sides = [side(&stackless, "base"), side(&without, "head")];
    let error = Differential::new(&sides[0], &sides[1], &by_stack, 0).unwrap_err();
    assert!(error.to_string().starts_with("head: "), "{error}");
    // Half of what a wall graph shows.
    let unsampled = with_state(whole.clone(), "cpu", "off");
    let error = refused(&whole, &unsampled, Metric::Wall);
    assert!(error.contains("the family cpu was off"), "{error}");
    let mut counted = whole.clone();
    counted.runs[0].mode = COUNT_MODE.to_owned();
    counted.serializations.clear();
    counted.serialization_sums.clear();
    let error = refused(&counted, &whole, Metric::Serialization);
    assert!(
        error.contains("(it was made in count mode); needed: times"),
        "{error}"
    );
}

#[test]
fn calls_of_both_modes_stand_side_by_side() {
    let full = Recording::synthetic(2000);
    let mut counted = full.clone();
    counted.runs[0].mode = COUNT_MODE.to_owned();
    counted
        .crossings
        .retain(|crossing| crossing.kind != CrossingKind::ToJs);
    for crossing in &mut counted.crossings {
        (crossing.parent, crossing.duration, crossing.self_time) = (None, None, None);
    }
    let request = Request {
        by: Some(By::Phase),
        ..Request::new(Metric::Crossings)
    };
    let nested = difference(&full, &full, &request);
    let depth = |of: &Differential| of.nodes().iter().map(|node| node.depth).max();
    assert!(
        nested
            .notes()
            .iter()
            .all(|note| !note.contains("side by side"))
    );
    for (base, head) in [(&full, &counted), (&counted, &full)] {
        let of = difference(base, head, &request);
        assert!(of.nodes().iter().all(|node| node.change() == 0.0));
        assert!(depth(&of) < depth(&nested));
        assert!(of.notes().iter().any(|note| note.contains("side by side")));
    }
}
