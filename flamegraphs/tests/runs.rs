//! Several runs in one recording: each is drawn as if it had a recording of its own.
// clippy knows only test functions as tests, not their helpers.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::io::Read;

use common::stacked::stacked;
use nodeprof_flamegraphs::differential::{Differential, Side};
use nodeprof_flamegraphs::export::pprof;
use nodeprof_flamegraphs::fold::{By, Metric, Order, Request, fold};
use nodeprof_profile::Recording;
use nodeprof_profile::groups::Group;
use nodeprof_profile::recording::{NameId, Package, RunId};
use prost::Message;

/// The program of [`stacked`] in another folder, with what its packages said.
fn placed(folder: &str) -> Recording {
    let mut recording = stacked();
    for name in &mut recording.names {
        let text = String::from_utf8(name.clone()).unwrap();
        *name = text.replace("/srv/site", folder).into_bytes();
    }
    recording.runs[0].directory = folder.into();
    for (directory, name, version) in [
        ("", "my-app", "1.0.0"),
        ("/node_modules/express", "express", "4.18.2"),
        (
            "/node_modules/.pnpm/debug@4.3.4/node_modules/debug",
            "debug",
            "4.3.4",
        ),
    ] {
        let id = NameId(recording.names.len() as u32);
        recording.names.push(format!("{folder}{directory}").into());
        recording.packages.push(Package {
            run: RunId(0),
            directory: id,
            name: Some(name.into()),
            version: Some(version.into()),
        });
    }
    recording
}

fn joined(recordings: &[&Recording]) -> Recording {
    let mut all = Recording::default();
    for recording in recordings {
        all.append((*recording).clone());
    }
    all
}

/// Every event of one run after one of another, in the order that each had in its run.
fn interleaved(mut recording: Recording) -> Recording {
    macro_rules! interleave {
        ($($family:ident)*) => {$(
            let processes = &recording.processes;
            let of_run = |run: u32| {
                let events = recording.$family.iter().copied();
                let of_run = events.filter(|event| processes[event.process.0 as usize].run.0 == run);
                of_run.enumerate().collect::<Vec<_>>()
            };
            let mut events: Vec<_> = [of_run(1), of_run(0)].concat();
            events.sort_by_key(|(index, _)| *index);
            recording.$family = events.into_iter().map(|(_, event)| event).collect();
        )*};
    }
    interleave!(samples waits crossings crossing_sums files lookups serializations serialization_sums compilations);
    recording
}

const FORMS: [By; 4] = [By::Stack, By::Module, By::Package, By::Phase];

fn requests() -> impl Iterator<Item = Request> {
    let forms = FORMS.into_iter().flat_map(|by| {
        Metric::ALL.into_iter().map(move |metric| Request {
            by: Some(by),
            ..Request::new(metric)
        })
    });
    forms.flat_map(|request| {
        let in_time = Request {
            order: Order::Time,
            ..request.clone()
        };
        let may = request.by != Some(By::Phase);
        [Some(request), Some(in_time).filter(|_| may)]
            .into_iter()
            .flatten()
    })
}

#[test]
fn a_run_is_drawn_as_if_it_had_a_recording_of_its_own() {
    let alone = [placed("/srv/base"), placed("/srv/head")];
    let both = joined(&[&alone[0], &alone[1]]);
    for both in [both.clone(), interleaved(both.clone())] {
        for (run, alone) in alone.iter().enumerate() {
            for request in requests() {
                let expected = fold(alone, &request).unwrap().to_string();
                let request = Request {
                    run: RunId(run as u32),
                    ..request
                };
                let found = fold(&both, &request).unwrap().to_string();
                assert_eq!(found, expected, "{request:?}");
            }
        }
    }
    // Of that all are short, and no package says its version.
    let of = |by| Request {
        by: Some(by),
        run: RunId(1),
        ..Request::new(Metric::Cpu)
    };
    let text = fold(&both, &of(By::Stack)).unwrap().to_string();
    assert!(
        text.contains("next express/lib/router/index.js:46"),
        "{text}"
    );
    let text = fold(&both, &of(By::Package)).unwrap().to_string();
    assert!(text.contains(";my-app;express;debug"), "{text}");
}

#[test]
fn sides_of_one_recording_are_compared_as_those_of_two() {
    let (base, head) = (placed("/srv/base"), placed("/srv/head"));
    let both = joined(&[&base, &base, &head]);
    let of_runs = |runs: &[u32]| Group {
        runs: runs.iter().map(|run| RunId(*run)).collect(),
        ..Group::all(&both, "side")
    };
    let folded = |base: Side<'_>, head: Side<'_>, request: &Request| {
        let mut text = Vec::new();
        let of = Differential::new(&base, &head, request, 0).unwrap();
        of.write_folded(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    };
    for request in requests().filter(|request| request.order == Order::Merged) {
        let side = |recording| Side {
            recording,
            group: Group::all(recording, "side"),
        };
        let expected = folded(side(&base), side(&head), &request);
        let side = |runs: &[u32]| Side {
            recording: &both,
            group: of_runs(runs),
        };
        let found = folded(side(&[0, 1]), side(&[2]), &request);
        assert_eq!(found, expected, "{request:?}");
        assert!(!found.contains("/srv/"), "{found}");
    }
}

fn names(recording: &Recording, runs: u32, by: By) -> BTreeSet<String> {
    let request = Request {
        by: Some(by),
        ..Request::new(Metric::Cpu)
    };
    let mut packed = Vec::new();
    pprof::write_runs(recording, &request, (0..runs).map(RunId), &mut packed).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_end(&mut bytes)
        .unwrap();
    let profile = pprof::Profile::decode(&bytes[..]).unwrap();
    let functions = profile.function.iter();
    functions
        .map(|function| profile.string_table[function.name as usize].clone())
        .collect()
}

#[test]
fn runs_that_are_drawn_together_tell_apart_what_they_reach() {
    let (base, head) = (placed("/srv/base"), placed("/srv/head"));
    let all = joined(&[&base, &base, &head]);
    // Of two runs of base the third says nothing.
    assert_eq!(names(&all, 2, By::Stack), names(&base, 1, By::Stack));
    let together = names(&all, 3, By::Stack);
    for folder in ["/srv/base", "/srv/head"] {
        let router = format!("next {folder}/node_modules/express/lib/router/index.js:46:10");
        assert!(together.contains(&router), "{together:?}");
    }
    // Each knows its own packages: all are of one version.
    assert_eq!(names(&all, 3, By::Package), names(&base, 1, By::Package));
    let mut newer = head.clone();
    newer.packages[1].version = Some("5.0.0".into());
    let together = names(&joined(&[&base, &newer]), 2, By::Package);
    for name in ["express@4.18.2", "express@5.0.0", "debug"] {
        assert!(together.contains(name), "{together:?}");
    }
}
