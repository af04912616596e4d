//! That runs keep their figures when they come together in one recording.

#![allow(clippy::unwrap_used)]

mod common;

use nodeprof_profile::{Profile, Recording};
use proptest::prelude::*;

/// Figures of each run, as JSON: whatever a run is, it is there.
fn figures(recording: &Recording) -> Vec<serde_json::Value> {
    let runs = Profile::from_recording(recording).runs;
    runs.iter()
        .map(|run| serde_json::to_value(run).unwrap())
        .collect()
}

#[test]
fn the_figures_of_runs_stay_what_they_were() {
    let (a, b) = (Recording::synthetic(3_000), common::small());
    let mut all = a.clone();
    all.append(b.clone());
    all.append(a.clone());
    all.check_references().unwrap();
    let apart: Vec<_> = [&a, &b, &a].into_iter().flat_map(figures).collect();
    assert_eq!(figures(&all), apart);
}

#[test]
fn a_run_without_stacks_blames_nobody_whatever_is_beside_it() {
    let with = Recording::synthetic(3_000);
    let mut without = with.clone();
    macro_rules! strip {
        ($($events:ident),*) => {$(
            for event in &mut without.$events {
                event.stack = None;
            }
        )*};
    }
    strip!(
        crossings,
        crossing_sums,
        lookups,
        files,
        serializations,
        serialization_sums,
        compilations,
        samples,
        waits
    );
    let mut all = without.clone();
    all.append(with.clone());
    all.append(without);
    let found = figures(&all);
    assert!(found[1]["attribution"]["unattributed_crossings_percent"].is_number());
    assert_eq!(found[1], figures(&with)[0]);
    for alone in [&found[0], &found[2]] {
        let attribution = &alone["attribution"];
        assert!(attribution["unattributed_crossings_percent"].is_null());
        assert!(attribution["unattributed_samples_percent"].is_null());
        for list in ["modules", "packages", "outside"] {
            assert_eq!(alone[list], serde_json::json!([]), "{list}");
        }
    }
}

#[test]
fn what_runs_share_is_kept_once() {
    let one = Recording::synthetic(3_000);
    let mut two = one.clone();
    two.append(one.clone());
    assert_eq!(two.crossings.len(), 2 * one.crossings.len());
    assert_eq!(two.runs.len(), 2 * one.runs.len());
    assert!(!one.stacks.is_empty() && !one.names.is_empty());
    for (shared, of_one) in [
        (two.names.len(), one.names.len()),
        (two.callbacks.len(), one.callbacks.len()),
        (two.frames.len(), one.frames.len()),
        (two.stacks.len(), one.stacks.len()),
        (two.binaries.len(), one.binaries.len()),
    ] {
        assert_eq!(shared, of_one);
    }
}

fn alone(recording: Recording) -> Recording {
    let mut alone = Recording::default();
    alone.append(recording);
    alone
}

fn recordings() -> impl Strategy<Value = Recording> {
    proptest::collection::vec(any::<u8>(), 0..3000)
        .prop_map(|bytes| common::Fuel(&bytes).recording())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn any_two_recordings_come_together(a in recordings(), b in recordings()) {
        // Whether modules can be told is a matter of the whole recording.
        prop_assume!(a.stacks.is_empty() == b.stacks.is_empty());
        // A name that is there twice becomes one.
        let (a, b) = (alone(a), alone(b));
        let apart: Vec<_> = [&a, &b].into_iter().flat_map(figures).collect();
        let mut all = a;
        all.append(b);
        prop_assert!(all.check_references().is_ok());
        for (found, expected) in figures(&all).into_iter().zip(apart) {
            let (found, expected) = (found.as_object().unwrap(), expected.as_object().unwrap());
            for (name, value) in expected {
                prop_assert_eq!(found.get(name), Some(value), "{}", name);
            }
        }
    }
}
