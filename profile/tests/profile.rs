//! Figures that can be checked in the head.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::small;
use nodeprof_profile::breakdown::{self, PhaseId, Timeline};
use nodeprof_profile::recording::*;
use nodeprof_profile::report::{CallbackProfile, RunProfile};
use nodeprof_profile::{Profile, Recording};

fn small_profile() -> RunProfile {
    Profile::from_recording(&small()).runs.remove(0)
}

fn callback<'a>(run: &'a RunProfile, function: &str, kind: CrossingKind) -> &'a CallbackProfile {
    let callbacks = run.crossings.callbacks.iter().chain(&run.crossings.to_js);
    let mut found =
        callbacks.filter(|callback| callback.function == function && callback.kind == kind);
    found.next().expect("the callback is in the profile")
}

#[test]
fn the_json_is_as_reviewed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/small.json");
    let json = serde_json::to_string_pretty(&Profile::from_recording(&small())).unwrap() + "\n";
    if std::env::var_os("NODEPROF_BLESS").is_some() {
        std::fs::write(path, &json).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        json == golden,
        "the JSON differs from tests/golden/small.json; if that is meant, run \
         NODEPROF_BLESS=1 cargo test -p nodeprof-profile --test profile, then review the difference. Now:\n{json}"
    );
}

#[test]
fn the_json_has_every_field_that_the_issue_names() {
    let json = serde_json::to_value(Profile::from_recording(&small())).unwrap();
    let run = &json["runs"][0];
    let named = [
        "command",
        "exit_status",
        "signal",
        "node path",
        "node version",
        "node v8",
        "node build_id",
        "node arch",
        "milestones exec",
        "milestones environment",
        "milestones node_start",
        "milestones v8_start",
        "milestones bootstrap_complete",
        "milestones loop_start",
        "milestones loop_exit",
        "milestones exit",
        "time wall_ns",
        "time user_ns",
        "time system_ns",
        "time max_rss_bytes",
        "time private_dirty_bytes",
        "crossings total",
        "crossings by_kind slow",
        "crossings by_kind fast",
        "crossings by_kind getter",
        "crossings by_kind construct",
        "crossings by_kind to_js",
        "crossings callbacks 0 binding",
        "crossings callbacks 0 function",
        "crossings callbacks 0 kind",
        "crossings callbacks 0 calls",
        "crossings callbacks 0 total_ns",
        "crossings callbacks 0 self_ns",
        "package_json lookups",
        "package_json opens",
        "package_json opens_failed",
        "package_json reads",
        "package_json stats",
        "package_json bytes",
        "package_json repeated_opens",
        "package_json files 0 path",
        "package_json files 0 lookups",
        "package_json files 0 opens",
        "package_json files 0 stats",
        "package_json files 0 bytes",
        "package_json files 0 total_ns",
        "package_json files 0 found",
        "files stat calls",
        "files stat failed",
        "files stat total_ns",
        "files open calls",
        "files read calls",
        "files readlink calls",
        "serialization calls",
        "serialization bytes",
        "serialization total_ns",
        "serialization functions 0 function",
        "serialization functions 0 calls",
        "serialization functions 0 bytes",
        "serialization functions 0 total_ns",
        "serialization callbacks",
        "compile total_ns",
        "compile scripts 0 path",
        "compile scripts 0 total_ns",
        "compile scripts 0 cached",
        "processes 0 pid",
        "families 0 name",
        "families 0 state",
        "families 0 reason",
        "losses records",
        "overhead probe_hits",
        "overhead ns_per_hit",
        "overhead estimated_ns",
    ];
    assert_eq!(json["schema"], 2);
    for field in named {
        let pointer = format!("/{}", field.replace(' ', "/"));
        assert!(run.pointer(&pointer).is_some(), "{field} is missing");
    }
}

#[test]
fn milestones_count_from_the_exec_of_node_on_its_main_thread() {
    let run = small_profile();
    assert_eq!(run.start_to_exec_ns, Some(2_000));
    let milestones = run.milestones;
    assert_eq!(milestones.exec, Some(0));
    assert_eq!(milestones.node_start, Some(2_000));
    assert_eq!(milestones.v8_start, Some(4_000));
    // The worker's, at 28,000, is not it.
    assert_eq!(milestones.environment, Some(10_000));
    assert_eq!(milestones.bootstrap_complete, Some(20_000));
    assert_eq!(milestones.loop_start, Some(60_000));
    assert_eq!(milestones.loop_exit, Some(88_000));
    assert_eq!(milestones.exit, Some(90_000));
}

#[test]
fn phases_lie_between_milestones_and_count_what_happened_in_them() {
    let run = small_profile();
    let phases: Vec<_> = run
        .phases
        .iter()
        .map(|phase| (phase.name.as_str(), phase.start_ns, phase.end_ns))
        .collect();
    assert_eq!(
        phases,
        [
            ("before_exec", -1_000, 0),
            ("process", 0, 2_000),
            ("platform", 2_000, 4_000),
            ("v8", 4_000, 10_000),
            ("bootstrap", 10_000, 20_000),
            ("main_script", 20_000, 60_000),
            ("loop", 60_000, 88_000),
            ("teardown", 88_000, 90_000),
        ]
    );
    let crossings: Vec<u64> = run.phases.iter().map(|phase| phase.crossings).collect();
    // The sum's 1,000 calls came after four milestones: in main_script. C++ → JavaScript does not count.
    assert_eq!(crossings, [0, 0, 0, 0, 2, 1_005, 1, 0]);
    let lookups: Vec<u64> = run.phases.iter().map(|phase| phase.lookups).collect();
    assert_eq!(lookups, [0, 0, 0, 0, 1, 2, 0, 0]);
    let opens: Vec<u64> = run.phases.iter().map(|phase| phase.opens).collect();
    assert_eq!(opens, [0, 0, 0, 0, 1, 2, 0, 0]);
}

#[test]
fn a_missing_milestone_joins_the_phases_around_it() {
    let mut recording = small();
    recording
        .milestones
        .retain(|milestone| milestone.name != "v8_start");
    let run = &Profile::from_recording(&recording).runs[0];
    let names: Vec<&str> = run.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "before_exec",
            "process",
            "platform+v8",
            "bootstrap",
            "main_script",
            "loop",
            "teardown"
        ]
    );
    assert_eq!(run.milestones.v8_start, None);
}

#[test]
fn a_program_that_exits_in_its_main_script_has_no_loop() {
    let mut recording = small();
    recording
        .milestones
        .retain(|milestone| !milestone.name.starts_with("loop"));
    let run = &Profile::from_recording(&recording).runs[0];
    let last = run.phases.last().unwrap();
    assert_eq!((last.name.as_str(), last.end_ns), ("main_script", 90_000));
    assert_eq!(run.milestones.loop_start, None);
    assert_eq!(run.milestones.exit, Some(90_000));
}

#[test]
fn processes_without_milestones_are_one_phase() {
    let recording = small();
    let timeline = Timeline::new(&recording);
    assert_eq!(timeline.phase_name(ProcessId(0), PhaseId(0)), "program");
    let mut recording = small();
    recording.milestones.clear();
    let timeline = Timeline::new(&recording);
    let names: Vec<_> = timeline
        .phases(ProcessId(1))
        .iter()
        .map(|phase| &*phase.name)
        .collect();
    assert_eq!(names, ["before_exec", "whole"]);
}

#[test]
fn the_exec_before_the_first_milestone_is_the_start_of_node() {
    let mut recording = small();
    let node = &mut recording.processes[1];
    // A wrapper before (`env node`), and process.execve() after the first image's start.
    let exec = |at: u64| Exec {
        at: Nanoseconds(1_000_000_000 + at),
        ..Exec::default()
    };
    node.execs.insert(0, exec(1_500));
    node.execs.push(exec(70_000));
    let run = &Profile::from_recording(&recording).runs[0];
    assert_eq!(run.start_to_exec_ns, Some(2_000));
    assert_eq!(run.milestones.loop_start, Some(60_000));
    // At 88,000 another image runs already.
    assert_eq!(run.milestones.loop_exit, None);
}

#[test]
fn what_is_executed_in_place_of_node_is_a_phase_of_its_own() {
    let mut recording = small();
    let at = Nanoseconds(1_000_070_000);
    recording.milestones.retain(|milestone| milestone.at < at);
    recording.processes[1].execs.push(Exec {
        at,
        ..Exec::default()
    });
    let timeline = Timeline::new(&recording);
    let [.., last, after] = timeline.phases(ProcessId(1)) else {
        panic!("phases");
    };
    assert_eq!((&*last.name, last.end), ("loop", at));
    assert_eq!((&*after.name, after.start), ("after_exec", at));
    assert_eq!(timeline.replaced(ProcessId(1)), Some(at));
    // What was summed is of node, whatever was passed.
    let phases = timeline.phases(ProcessId(1)).len();
    let summed = timeline.phase_after(ProcessId(1), LATER_IMAGE - 1);
    assert_eq!(usize::from(summed.0), phases - 2);
    // Another image of node is no other program, but a phase of its own, too.
    let mut node = small();
    node.processes[1].execs.push(Exec {
        at,
        ..Exec::default()
    });
    let timeline = Timeline::new(&node);
    assert_eq!(timeline.replaced(ProcessId(1)), None);
    let last = timeline.phases(ProcessId(1)).last().unwrap();
    assert_eq!((&*last.name, last.start), ("after_exec", at));
    for passed in [0, 2, LATER_IMAGE - 1] {
        let of_first = timeline.phase_after(ProcessId(1), passed);
        let of_second = timeline.phase_after(ProcessId(1), passed | LATER_IMAGE);
        assert_eq!(usize::from(of_second.0), phases - 1);
        assert!(of_first < of_second);
        assert_eq!(timeline.passed(ProcessId(1), of_second), LATER_IMAGE);
        let back = timeline.passed(ProcessId(1), of_first);
        assert_eq!(timeline.phase_after(ProcessId(1), back), of_first);
    }
}

#[test]
fn the_main_process_is_the_node_nearest_to_the_root() {
    let mut recording = small();
    recording.processes[2].node = Some(BinaryId(0));
    let main = |recording: &Recording| Timeline::new(recording).main_process(RunId(0));
    assert_eq!(main(&recording), Some(ProcessId(1)));
    recording.processes[0].node = Some(BinaryId(0));
    assert_eq!(main(&recording), Some(ProcessId(0)));
    for process in &mut recording.processes {
        process.node = None;
    }
    assert_eq!(main(&recording), None);
    let run = &Profile::from_recording(&recording).runs[0];
    assert_eq!(run.node, None);
    assert_eq!(run.milestones.exec, None);
    assert_eq!(run.crossings.total, 1_008);
}

#[test]
fn single_crossings_and_sums_are_one_callback() {
    let run = small_profile();
    let stat = callback(&run, "InternalModuleStat", CrossingKind::Slow);
    assert_eq!((stat.calls, stat.timed_calls), (1_002, 1_002));
    assert_eq!(
        (stat.total_ns, stat.self_ns),
        (Some(601_200), Some(501_200))
    );
    // How many probes were hit inside summed calls is not known.
    assert_eq!(stat.total_corrected_ns, None);

    let fast = callback(&run, "InternalModuleStat", CrossingKind::Fast);
    assert_eq!(
        (fast.calls, fast.timed_calls, fast.total_ns, fast.self_ns),
        (2, 0, None, None)
    );
    let spawn = callback(&run, "Spawn", CrossingKind::Slow);
    assert_eq!(
        (spawn.calls, spawn.unfinished, spawn.total_ns),
        (1, 1, None)
    );
    let emit = callback(&run, "emit", CrossingKind::ToJs);
    assert_eq!((emit.calls, emit.total_ns), (1, Some(4_000)));

    let kinds = run.crossings.by_kind;
    assert_eq!(
        (
            kinds.slow,
            kinds.fast,
            kinds.getter,
            kinds.construct,
            kinds.to_js
        ),
        (1_004, 2, 1, 1, 1)
    );
    assert_eq!(run.crossings.total, 1_008);
    assert_eq!(run.crossings.callbacks[0].function, "InternalModuleStat");
}

#[test]
fn the_probes_hit_inside_a_crossing_are_subtracted_from_it() {
    // fs.Read from 14,000 to 15,000 has inside: fs.InternalModuleStat (2 hits), two serializations (4), and its own
    // pair (1): 7 hits of 12.5 ns. The package.json lookup at 15,000 is not inside.
    let run = small_profile();
    let read = callback(&run, "Read", CrossingKind::Slow);
    assert_eq!(read.total_ns, Some(1_000));
    assert_eq!(read.total_corrected_ns, Some(1_000 - 88));

    let mut recording = small();
    recording.overheads.clear();
    let run = &Profile::from_recording(&recording).runs[0];
    assert_eq!(
        callback(run, "Read", CrossingKind::Slow).total_corrected_ns,
        None
    );
}

#[test]
fn package_json_counts_lookups_apart_from_what_the_kernel_saw() {
    let package_json = small_profile().package_json;
    assert_eq!(
        (package_json.lookups, package_json.repeated_lookups),
        (3, 1)
    );
    assert_eq!(
        (
            package_json.opens,
            package_json.opens_failed,
            package_json.repeated_opens
        ),
        (3, 1, 1)
    );
    assert_eq!(
        (package_json.stats, package_json.reads, package_json.bytes),
        (1, 2, 400)
    );
    let [app, odd] = &package_json.files[..] else {
        panic!("two files")
    };
    assert_eq!(
        (app.path.as_str(), &app.path_bytes, app.found),
        ("/srv/app/package.json", &None, Some(true))
    );
    assert_eq!(
        (app.lookups, app.opens, app.stats, app.reads, app.total_ns),
        (2, 2, 1, 2, 130)
    );
    assert_eq!(odd.path, "/srv/\u{fffd}odd/package.json");
    assert_eq!(
        odd.path_bytes.as_deref(),
        Some("2f7372762fff6f64642f7061636b6167652e6a736f6e")
    );
    assert_eq!((odd.opens_failed, odd.found), (1, Some(false)));
}

#[test]
fn a_lookup_answered_without_the_kernel_leaves_open_whether_the_file_is_there() {
    let mut recording = small();
    recording.files.clear();
    let package_json = &Profile::from_recording(&recording).runs[0].package_json;
    assert!(package_json.files.iter().all(|file| file.found.is_none()));
}

#[test]
fn only_the_basename_package_json_is_one() {
    let mut recording = small();
    recording.names[0] = b"/srv/app/not-package.json".to_vec();
    recording.lookups.clear();
    let package_json = &Profile::from_recording(&recording).runs[0].package_json;
    assert_eq!((package_json.opens, package_json.stats), (1, 0));
}

#[test]
fn the_same_path_opened_by_two_processes_is_not_repeated() {
    let mut recording = small();
    recording.files[5].process = ProcessId(2);
    let package_json = &Profile::from_recording(&recording).runs[0].package_json;
    assert_eq!((package_json.opens, package_json.repeated_opens), (3, 0));
}

#[test]
fn nested_serializations_and_compilations_count_their_time_once() {
    let run = small_profile();
    let serialization = &run.serialization;
    assert_eq!(
        (
            serialization.calls,
            serialization.bytes,
            serialization.total_ns
        ),
        (23, 2_096, 1_010)
    );
    let [strings, json] = &serialization.functions[..] else {
        panic!("two functions")
    };
    assert_eq!(
        (
            strings.function.as_str(),
            strings.calls,
            strings.total_ns,
            strings.self_ns
        ),
        ("String::NewFromUtf8", 22, 910, 950)
    );
    assert_eq!(
        (
            json.function.as_str(),
            json.calls,
            json.total_ns,
            json.self_ns
        ),
        ("JSON::Stringify", 1, 100, 60)
    );
    assert_eq!(serialization.callbacks.len(), 3);
    assert_eq!(serialization.callbacks[2].binding, None);

    let compile = &run.compile;
    assert_eq!(
        (compile.compilations, compile.cached, compile.total_ns),
        (2, 1, 2_000)
    );
    assert_eq!(
        (compile.scripts[0].total_ns, compile.scripts[0].self_ns),
        (Some(2_000), Some(1_500))
    );
}

#[test]
fn time_and_memory_are_of_the_tree_or_of_the_main_process() {
    let time = small_profile().time;
    assert_eq!(
        (time.wall_ns, time.user_ns, time.system_ns),
        (100_000, Some(40_100), Some(9_050))
    );
    assert_eq!(
        (time.max_rss_bytes, time.private_dirty_bytes),
        (Some(40 << 20), Some(21 << 20))
    );
}

#[test]
fn two_runs_in_one_recording_are_profiled_apart() {
    let mut recording = small();
    let second = small();
    recording.runs.push(second.runs[0].clone());
    for mut process in second.processes {
        process.run = RunId(1);
        process.parent = process.parent.map(|parent| ProcessId(parent.0 + 3));
        recording.processes.push(process);
    }
    recording
        .milestones
        .extend(second.milestones.into_iter().map(|milestone| Milestone {
            process: ProcessId(milestone.process.0 + 3),
            ..milestone
        }));
    recording.lookups.push(Lookup {
        process: ProcessId(4),
        ..second.lookups[0]
    });
    let profile = Profile::from_recording(&recording);
    let [first, second] = &profile.runs[..] else {
        panic!("two runs")
    };
    assert_eq!(*first, small_profile());
    assert_eq!(second.milestones, first.milestones);
    assert_eq!(
        (second.crossings.total, second.package_json.lookups),
        (0, 1)
    );
    assert_eq!(second.losses["records"], 0);
    let loaded = Recording::from_bytes(&common::saved(&recording)).unwrap();
    assert_eq!(loaded, recording);
}

#[test]
fn an_empty_recording_has_an_empty_profile() {
    let profile = Profile::from_recording(&Recording::default());
    assert_eq!(
        serde_json::to_string(&profile).unwrap(),
        r#"{"schema":2,"runs":[]}"#
    );
    let only_a_run = Recording {
        runs: vec![Run::default()],
        ..Recording::default()
    };
    let run = &Profile::from_recording(&only_a_run).runs[0];
    assert_eq!(
        (run.node.as_ref(), run.time.user_ns, run.phases.len()),
        (None, None, 0)
    );
}

#[test]
fn cells_keep_apart_what_happened_in_different_phases() {
    let recording = small();
    let timeline = Timeline::new(&recording);
    let phases: Vec<(&str, u64)> = breakdown::crossings(&recording, &timeline)
        .iter()
        .filter(|cell| cell.callback == CallbackId(0) && cell.kind == CrossingKind::Slow)
        .map(|cell| (timeline.phase_name(cell.process, cell.phase), cell.calls))
        .collect();
    assert_eq!(phases, [("bootstrap", 1), ("main_script", 1_001)]);
}

#[test]
fn a_synthetic_recording_is_consistent_and_of_the_size_asked_for() {
    for crossings in [0, 1, 5, 1_000] {
        let recording = Recording::synthetic(crossings);
        recording.check_references().unwrap();
        assert_eq!(recording.crossings.len(), crossings);
        assert_eq!(recording, Recording::synthetic(crossings));
    }
    let run = &Profile::from_recording(&Recording::synthetic(20_000)).runs[0];
    let names: Vec<&str> = run.phases.iter().map(|phase| phase.name.as_str()).collect();
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
    assert_eq!(run.crossings.total + run.crossings.by_kind.to_js, 20_000);
    assert!(run.package_json.repeated_lookups > 0);
}

#[test]
fn paths_that_could_not_be_read_are_not_one_path_asked_for_again() {
    let mut recording = small();
    let before = small_profile().package_json;
    let path = NameId(recording.names.len() as u32);
    recording.names.push(b"(unreadable)".to_vec());
    let first = recording.lookups[0];
    for _ in 0..3 {
        recording.lookups.push(Lookup { path, ..first });
    }
    let after = &Profile::from_recording(&recording).runs[0].package_json;
    assert_eq!(after.lookups, before.lookups + 3);
    assert_eq!(after.repeated_lookups, before.repeated_lookups);
}

#[test]
fn figures_of_families_that_were_not_recorded_are_null() {
    let mut recording = small();
    let whole = Profile::from_recording(&recording);
    let as_json = |profile: &Profile| {
        serde_json::to_value(nodeprof_profile::report::Document::from(profile)).unwrap()
    };
    assert_eq!(as_json(&whole), serde_json::to_value(&whole).unwrap());
    recording.crossings.clear();
    recording.crossing_sums.clear();
    recording.files.clear();
    recording.samples.clear();
    let off = ["crossings", "files", "cpu"];
    recording
        .families
        .retain(|family| !off.contains(&family.name.as_str()));
    for (name, state) in off.into_iter().zip(["off", "failed", "off"]) {
        recording
            .families
            .push(nodeprof_profile::recording::FamilyState {
                run: RunId(0),
                name: name.into(),
                state: state.into(),
                reason: None,
            });
    }
    let json = as_json(&Profile::from_recording(&recording));
    let run = &json["runs"][0];
    for field in [
        "crossings total",
        "crossings by_kind slow",
        "crossings self_ns",
        "files stat calls",
        "files bytes_read",
        "package_json stats",
        "package_json total_ns",
        "samples count",
        "phases 0 crossings",
        "phases 0 files_ns",
    ] {
        let pointer = format!("/{}", field.replace(' ', "/"));
        let value = run.pointer(&pointer);
        assert!(
            value.is_some_and(serde_json::Value::is_null),
            "{field}: {value:?}"
        );
    }
    for field in [
        "time wall_ns",
        "package_json lookups",
        "serialization calls",
        "compile compilations",
        "phases 0 end_ns",
        "overhead probe_hits",
    ] {
        let pointer = format!("/{}", field.replace(' ', "/"));
        let value = run.pointer(&pointer);
        assert!(
            value.is_some_and(serde_json::Value::is_number),
            "{field}: {value:?}"
        );
    }
    // A run without probes has times, and no counts.
    recording.families.clear();
    recording.runs[0].mode = "bare".into();
    recording.serializations.clear();
    recording.serialization_sums.clear();
    let json = as_json(&Profile::from_recording(&recording));
    let run = &json["runs"][0];
    assert!(run["crossings"]["total"].is_null() && run["serialization"]["calls"].is_null());
    assert!(run["time"]["wall_ns"].is_number());
}

#[test]
fn times_that_count_mode_does_not_take_are_null() {
    let mut recording = small();
    for access in &mut recording.files {
        access.duration = Nanoseconds(0);
    }
    for call in &mut recording.crossings {
        call.duration = None;
    }
    recording.crossing_sums.clear();
    recording.serializations.clear();
    recording.serialization_sums.clear();
    recording.runs[0].mode = "count".into();
    let profile = Profile::from_recording(&recording);
    let json = serde_json::to_value(nodeprof_profile::report::Document::from(&profile)).unwrap();
    let run = &json["runs"][0];
    for (field, is_known) in [
        ("crossings self_ns", false),
        ("crossings callbacks 0 total_ns", false),
        ("package_json total_ns", false),
        ("package_json files 0 total_ns", false),
        ("files stat total_ns", false),
        ("files slowest 0 total_ns", false),
        ("files most_repeated 0 total_ns", false),
        ("serialization total_ns", false),
        ("phases 0 files_ns", false),
        ("phases 0 crossings_self_ns", false),
        ("phases 0 serialization_ns", false),
        ("phases 0 compile_ns", true),
        ("phases 0 start_ns", true),
        ("crossings total", true),
        ("files stat calls", true),
        ("compile total_ns", true),
        ("time wall_ns", true),
        ("start_to_exec_ns", true),
        ("processes 0 start_ns", true),
        ("overhead setup_ns", true),
    ] {
        let pointer = format!("/{}", field.replace(' ', "/"));
        let value = run.pointer(&pointer);
        assert_eq!(
            value.map(serde_json::Value::is_number),
            Some(is_known),
            "{field}: {value:?}"
        );
    }
}

#[test]
fn figures_that_went_when_a_run_was_thinned_are_null() {
    use nodeprof_profile::diff::figures::List;
    use nodeprof_profile::report::{Document, row};
    let mut whole = small();
    for name in ["package-json", "files", "compile", "crossings", "cpu"] {
        whole.families.retain(|family| family.name != name);
        whole
            .families
            .push(nodeprof_profile::recording::FamilyState {
                run: RunId(0),
                name: name.into(),
                state: "on".into(),
                reason: None,
            });
    }
    // None were asked for: that is a figure.
    whole.lookups.clear();
    let before = Profile::from_recording(&whole);
    let after = Profile::from_recording(&whole.thin("it is old"));
    let as_json = |profile: &Profile| serde_json::to_value(Document::from(profile)).unwrap();
    let (before, json) = (as_json(&before), as_json(&after));
    let (before, run) = (&before["runs"][0], &json["runs"][0]);
    // Of the run all is as it was.
    for field in [
        "package_json lookups",
        "package_json repeated_lookups",
        "package_json stats_failed",
        "package_json total_ns",
        "files stat calls",
        "files stat failed",
        "files readlink calls",
        "files close total_ns",
        "files bytes_read",
        "files paths",
        "compile compilations",
        "compile cached",
        "samples count",
        "crossings total",
        "crossings unfinished",
    ] {
        let pointer = format!("/{}", field.replace(' ', "/"));
        let value = run.pointer(&pointer);
        assert!(value.is_some_and(serde_json::Value::is_number), "{field}");
        assert_eq!(value, before.pointer(&pointer), "{field}");
    }
    assert_eq!(run["package_json"]["lookups"], 0);
    // Of its phases and processes what was seen one by one is not known.
    let phases = run["phases"].as_array().unwrap();
    let processes = run["processes"].as_array().unwrap();
    assert!(!phases.is_empty() && !processes.is_empty());
    for phase in phases {
        for field in [
            "lookups",
            "stats",
            "opens",
            "reads",
            "files_ns",
            "compilations",
            "compile_ns",
        ] {
            assert!(phase[field].is_null(), "{field}: {phase}");
        }
        assert!(phase["crossings"].is_number() && phase["end_ns"].is_number());
    }
    for process in processes {
        for field in ["lookups", "file_operations"] {
            assert!(process[field].is_null(), "{field}: {process}");
        }
        assert!(process["crossings"].is_number() && process["start_ns"].is_number());
    }
    // The same as rows of tables.
    let run = &after.runs[0];
    let of_process = row(run, List::Run, &run.processes[0]).unwrap();
    assert!(of_process["lookups"].is_null());
    let of_phase = row(run, List::Phases, &run.phases[0]).unwrap();
    assert!(of_phase["stats"].is_null());
    let of_run = serde_json::json!({"lookups": 0, "cached_compilations": 0, "reads": 0});
    assert_eq!(row(run, List::Run, &of_run).unwrap(), of_run);
}
