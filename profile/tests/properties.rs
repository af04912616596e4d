//! What holds for every recording, and for every damaged file.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Fuel, saved, small};
use nodeprof_profile::breakdown::{self, Timeline};
use nodeprof_profile::modules::{Costs, Modules};
use nodeprof_profile::recording::{CrossingKind, FileOperation, ProcessId, RunId};
use nodeprof_profile::{Profile, Recording};
use proptest::prelude::*;

fn recordings() -> impl Strategy<Value = Recording> {
    proptest::collection::vec(any::<u8>(), 0..3000).prop_map(|bytes| Fuel(&bytes).recording())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_recording_is_loaded_as_it_was_saved(recording in recordings()) {
        let loaded = Recording::from_bytes(&saved(&recording)).unwrap();
        prop_assert_eq!(loaded, recording);
    }

    #[test]
    fn kinds_and_callbacks_sum_to_the_total(recording in recordings()) {
        let profile = Profile::from_recording(&recording);
        prop_assert_eq!(profile.runs.len(), recording.runs.len());
        let total = |calls: &mut dyn Iterator<Item = u64>| calls.fold(0, u64::saturating_add);
        for run in &profile.runs {
            let crossings = &run.crossings;
            let kinds = crossings.by_kind;
            let mut by_kind = [kinds.slow, kinds.fast, kinds.getter, kinds.construct].into_iter();
            prop_assert_eq!(crossings.total, total(&mut by_kind));
            let mut calls = crossings.callbacks.iter().map(|callback| callback.calls);
            prop_assert_eq!(crossings.total, total(&mut calls));
            let mut to_js = crossings.to_js.iter().map(|callback| callback.calls);
            prop_assert_eq!(kinds.to_js, total(&mut to_js));
            let mut of_processes = run.processes.iter().map(|process| process.crossings);
            prop_assert_eq!(crossings.total, total(&mut of_processes));
            for callback in &crossings.callbacks {
                prop_assert_eq!(callback.total_ns.is_some(), callback.timed_calls > 0);
                prop_assert!(callback.total_corrected_ns <= callback.total_ns);
            }
            let serialization = &run.serialization;
            let mut functions = serialization.functions.iter().map(|function| function.total_ns);
            prop_assert_eq!(serialization.total_ns, total(&mut functions));
            let mut callbacks = serialization.callbacks.iter().map(|callback| callback.total_ns);
            prop_assert_eq!(serialization.total_ns, total(&mut callbacks));
            let package_json = &run.package_json;
            let mut lookups = package_json.files.iter().map(|file| file.lookups);
            prop_assert_eq!(package_json.lookups, total(&mut lookups));
            let mut opens = package_json.files.iter().map(|file| file.opens);
            prop_assert_eq!(package_json.opens, total(&mut opens));
        }
        let json = serde_json::to_string(&profile).unwrap();
        prop_assert_eq!(serde_json::from_str::<Profile>(&json).unwrap().runs.len(), profile.runs.len());
    }

    #[test]
    fn phases_follow_each_other_without_gaps(recording in recordings()) {
        let timeline = Timeline::new(&recording);
        for index in 0..recording.processes.len() {
            let process = nodeprof_profile::recording::ProcessId(index as u32);
            let phases = timeline.phases(process);
            prop_assert!(!phases.is_empty());
            for pair in phases.windows(2) {
                prop_assert!(pair[0].start <= pair[1].start);
                prop_assert_eq!(pair[0].end, pair[1].start);
            }
            prop_assert!(phases.iter().all(|phase| phase.start <= phase.end));
        }
        for cell in breakdown::crossings(&recording, &timeline) {
            prop_assert_ne!(timeline.phase_name(cell.process, cell.phase), "");
        }
    }

    #[test]
    fn every_event_is_somebodys(recording in recordings()) {
        let modules = Modules::new(&recording, &Timeline::new(&recording));
        for (index, module) in modules.list.iter().enumerate() {
            prop_assert!(module.requirer.is_none_or(|requirer| (requirer.0 as usize) < index));
            prop_assert!(module.self_ns() <= module.total_ns);
        }
        // Of each run; one without a single stack has nothing to find modules by.
        for (run, all) in modules.all.iter().enumerate() {
            let run = RunId(run as u32);
            let mine = |process: &ProcessId| recording.processes[process.0 as usize].run == run;
            macro_rules! events {
                ($events:ident) => {
                    recording.$events.iter().filter(|event| mine(&event.process))
                };
            }
            macro_rules! any_stack {
                ($($events:ident),*) => { false $(|| events!($events).any(|event| event.stack.is_some()))* };
            }
            if !any_stack!(
                crossings, crossing_sums, lookups, files, serializations, serialization_sums, compilations, samples, waits
            ) {
                prop_assert_eq!(all, &Costs::default());
                continue;
            }
            let single = events!(crossings).filter(|c| c.kind != CrossingKind::ToJs).count();
            let summed = events!(crossing_sums).filter(|c| c.kind != CrossingKind::ToJs);
            let calls = summed.fold(single as u64, |sum, c| sum.saturating_add(c.calls));
            prop_assert_eq!(all.crossings, calls);
            prop_assert_eq!(all.lookups, events!(lookups).count() as u64);
            prop_assert_eq!(all.samples, events!(samples).count() as u64);
            let reads = events!(files).filter(|f| f.operation == FileOperation::Read).count();
            prop_assert_eq!(all.reads, reads as u64);
        }
    }

    #[test]
    fn references_to_nothing_are_left_out_of_figures(recording in recordings(), kept in 0usize..3) {
        let mut recording = recording;
        recording.processes.truncate(kept);
        recording.callbacks.truncate(kept);
        recording.names.truncate(kept);
        recording.frames.truncate(kept);
        recording.stacks.truncate(kept);
        recording.binaries.truncate(kept);
        Profile::from_recording(&recording);
    }

    #[test]
    fn a_damaged_file_is_an_error_or_reads_the_same(
        damages in proptest::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4)
    ) {
        let original = small();
        let mut bytes = small_file().to_vec();
        for (index, change) in damages {
            let at = index.index(bytes.len());
            bytes[at] ^= change;
        }
        if let Ok(loaded) = Recording::from_bytes(&bytes) {
            prop_assert_eq!(loaded, original);
        }
    }

    #[test]
    fn arbitrary_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        prop_assert!(Recording::from_bytes(&bytes).is_err());
    }

    #[test]
    fn arbitrary_bytes_behind_a_good_header_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 4096..20_000)
    ) {
        let mut file = small_file()[..100].to_vec();
        file.extend(bytes);
        prop_assert!(Recording::from_bytes(&file).is_err());
    }
}

fn small_file() -> &'static [u8] {
    static FILE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    FILE.get_or_init(|| saved(&small()))
}

/// Random positions mostly hit pages that hold nothing: this hits every byte that means something.
#[test]
fn any_one_changed_byte_is_an_error_or_reads_the_same() {
    let (original, file) = (small(), small_file());
    let mut refused = 0;
    // Free bytes are 0; SQLite never looks at them.
    let used = (0..file.len()).filter(|&at| file[at] != 0 || at < 100);
    for at in used {
        let mut bytes = file.to_vec();
        bytes[at] ^= 1 << (at % 8);
        match Recording::from_bytes(&bytes) {
            Ok(loaded) => assert_eq!(loaded, original, "byte {at}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 1000, "only {refused} changes were noticed");
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let file = small_file();
    for length in (0..file.len()).step_by(997).chain(0..200) {
        assert!(
            Recording::from_bytes(&file[..length]).is_err(),
            "{length} bytes were taken for a recording"
        );
    }
}
