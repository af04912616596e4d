//! The text report: what it says, and that it fits.

mod common;

use nodeprof_flamegraphs::text::{self, Style, render};
use nodeprof_profile::budget::{self, Budgets, Drift};
use nodeprof_profile::diff::{Diff, Side, Sides};
use nodeprof_profile::groups::Group;
use nodeprof_profile::recording::{Loss, RunId};
use nodeprof_profile::synthetic::program::Program;
use nodeprof_profile::{Profile, Recording};
use unicode_width::UnicodeWidthStr;

fn report(recording: &Recording, width: usize, color: bool) -> String {
    render(&Profile::from_recording(recording), &Style { width, color })
}

#[test]
fn the_report_of_a_small_recording_is_the_reviewed_one() {
    common::golden("small.100.txt", &report(&common::small(), 100, false));
    common::golden("small.60.txt", &report(&common::small(), 60, false));
    common::golden("small.160.txt", &report(&common::small(), 160, false));
}

#[test]
fn no_line_is_wider_than_the_terminal_nor_ends_in_spaces() {
    let mut awkward = common::small();
    awkward.runs[0].command = vec![
        b"node".to_vec(),
        "宽".repeat(5_000).into_bytes(),
        b"a b\tc".to_vec(),
    ];
    awkward.processes[2].execs[0].arguments[1] = vec![b'x'; 10_000];
    for name in &mut awkward.names {
        if name.starts_with(b"/srv/site/node_modules") {
            name.splice(..0, "/很长的/目录".repeat(20).into_bytes());
        }
    }
    awkward.families[6].reason = Some("w".repeat(500));
    awkward.callbacks[0].function = "F".repeat(300);
    for recording in [common::small(), awkward, Recording::synthetic(3_000)] {
        let profile = Profile::from_recording(&recording);
        for width in 60..=200 {
            let text = render(
                &profile,
                &Style {
                    width,
                    color: false,
                },
            );
            for line in text.lines() {
                assert!(
                    line.width() <= width,
                    "{} columns for {width}: {line}",
                    line.width()
                );
                assert_eq!(line, line.trim_end(), "{width}");
                assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
            }
        }
    }
}

#[test]
fn lookups_that_were_not_recorded_are_not_none() {
    let mut recording = common::small();
    recording.lookups.clear();
    let state = (recording.families.iter_mut()).find(|state| state.name == "package-json");
    state.unwrap().state = "off".into();
    let text = report(&recording, 160, false);
    let line = text.lines().find(|line| line.starts_with("package.json"));
    let line = line.unwrap();
    assert!(line.contains("lookups not recorded"), "{line}");
    assert!(!line.contains("0 lookups"), "{line}");
}

#[test]
fn every_loss_is_told_in_a_sentence() {
    let kinds = [
        "records",
        "undecodable_records",
        "unmatched_exits",
        "abandoned_frames",
        "frames_too_deep",
        "sums_full",
        "sums_unread",
        "stacks",
        "sources",
        "threads_not_followed",
        "processes_of_others",
        "counts_unknown",
        "memory_unreadable",
        "paths_unreadable",
        "rows_unreadable",
        "paths_truncated",
        "beginnings_missed",
        "compilations_unmatched",
        "io_uring_setups",
        "waits",
        "holder_ended",
        "source_maps_broken",
        "source_maps_skipped",
        "samples",
        "samples_of_other_events",
        "samples_cut",
        "samples_without_time",
    ];
    let mut recording = common::small();
    for count in [1, 7_000] {
        let losses = kinds.map(|kind| Loss {
            run: RunId(0),
            kind: kind.into(),
            count,
        });
        recording.losses = losses.to_vec();
        let text = report(&recording, 200, false);
        let (_, missing) = text.split_once("\nMissing").unwrap();
        let (missing, _) = missing.split_once("\n\n").unwrap();
        // A loss without words is written like this.
        assert!(!missing.contains('×'), "{missing}");
        assert!(!missing.contains(['[', '#']), "{missing}");
        assert_eq!(missing.lines().count(), kinds.len() + 1, "{missing}");
    }
}

#[test]
fn colours_change_nothing_but_colours() {
    for recording in [common::small(), Recording::synthetic(2_000)] {
        for width in [60, 100, 160] {
            let plain = report(&recording, width, false);
            let colored = report(&recording, width, true);
            assert!(!plain.contains('\x1b'));
            assert!(colored.contains('\x1b'));
            assert_eq!(common::without_escapes(&colored), plain);
        }
    }
}

#[test]
fn an_empty_recording_gives_a_report_without_sections() {
    assert_eq!(
        report(&Recording::default(), 100, false),
        "This recording holds no run.\n"
    );
    let mut bare = Recording::default();
    bare.runs.push(Default::default());
    let text = report(&bare, 100, false);
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_family_that_is_off_says_so_in_one_line() {
    let mut recording = common::small();
    recording.crossings.clear();
    recording.crossing_sums.clear();
    recording.families[1].state = "off".into();
    let text = report(&recording, 100, false);
    assert!(
        text.contains("Crossings  not recorded: the family was not asked for"),
        "{text}"
    );
}

#[test]
fn an_end_by_signal_or_status_is_in_the_verdict() {
    let mut recording = common::small();
    recording.runs[0].exit_status = Some(3);
    assert!(
        report(&recording, 100, false)
            .starts_with("node v20.20.2 app.js --port=80: exit status 3 after 78.4 ms")
    );
    recording.runs[0].exit_status = None;
    recording.runs[0].signal = Some(9);
    assert!(report(&recording, 100, false).contains("killed by SIGKILL after 78.4 ms"));
    recording.runs[0].signal = None;
    recording.runs[0].ended_by = "loop-start".into();
    let text = report(&recording, 100, false);
    let settled = "traced for 78.4 ms, until 17.2 ms after the event loop began\n";
    assert!(text.contains(settled), "{text}");
    recording.milestones.retain(|one| one.name != "loop_start");
    assert!(report(&recording, 100, false).contains("until the event loop began"));
}

#[test]
fn counts_of_a_family_that_was_not_recorded_are_dashes_with_the_reason() {
    let mut recording = common::small();
    for family in &mut recording.families {
        if family.name == "crossings" {
            family.state = "failed".into();
            family.reason = Some("the binary is stripped".into());
        }
    }
    let profile = Profile::from_recording(&recording);
    let style = Style {
        width: 120,
        color: false,
    };
    let text = nodeprof_flamegraphs::text::measurements(&recording, &profile, &style);
    let (_, counts) = text.split_once("Counts").unwrap();
    let row = counts.lines().nth(2).unwrap();
    assert!(row.contains(" – "), "{text}");
    assert!(
        counts.contains("not recorded: crossings: the binary is stripped"),
        "{text}"
    );
}

#[test]
fn samples_have_a_line_with_what_to_type_and_count_mode_has_no_column_of_dashes() {
    let mut recording = Recording::synthetic(2000);
    let text = report(&recording, 100, false);
    let line = text
        .lines()
        .find(|line| line.starts_with("CPU samples"))
        .unwrap();
    assert!(
        line.contains(" samples") || line.contains("1 sample"),
        "{line}"
    );
    assert!(text.contains("nodeprof flame FILE --of wall"), "{text}");
    assert!(text.contains("calls   total     self"), "{text}");
    recording.runs[0].mode = "count".into();
    for crossing in &mut recording.crossings {
        (crossing.duration, crossing.self_time) = (None, None);
    }
    for sum in &mut recording.crossing_sums {
        (sum.total.0, sum.timed) = (0, 0);
    }
    let text = report(&recording, 100, false);
    let (_, crossings) = text.split_once("\nCrossings").unwrap();
    let title = crossings
        .lines()
        .find(|line| line.ends_with("callback"))
        .unwrap();
    assert!(!title.contains("total"), "{crossings}");
}

#[test]
fn a_family_that_was_off_is_told_once_and_flame_graphs_that_there_are_are_named() {
    let mut recording = Recording::synthetic(2000);
    recording
        .families
        .retain(|family| !["cpu", "off-cpu"].contains(&family.name.as_str()));
    for name in ["cpu", "off-cpu"] {
        recording
            .families
            .push(nodeprof_profile::recording::FamilyState {
                run: nodeprof_profile::recording::RunId(0),
                name: name.into(),
                state: "off".into(),
                reason: Some(format!("no {name} here")),
            });
    }
    let text = report(&recording, 100, false);
    assert!(text.contains("nodeprof flame FILE --of cpu"), "{text}");
    assert!(
        text.contains("\nTimes off the CPU  not recorded: no off-cpu here"),
        "{text}"
    );
    recording.samples.clear();
    let text = report(&recording, 100, false);
    assert_eq!(text.matches("no cpu here").count(), 1, "{text}");
}

#[test]
fn waits_of_helper_threads_are_not_told_as_those_of_javascript() {
    let recording = Recording::synthetic(2000);
    let mut profile = Profile::from_recording(&recording);
    let run = &mut profile.runs[0];
    run.modules
        .iter_mut()
        .for_each(|module| module.caused.blocked_ns = 0);
    run.outside
        .iter_mut()
        .for_each(|outside| outside.costs.blocked_ns = 0);
    let mut outside = run.outside[0].clone();
    outside.bucket = nodeprof_profile::modules::Bucket::HelperThreads;
    outside.costs.blocked_ns = 970_000_000;
    run.outside.push(outside);
    run.modules[0].caused.blocked_ns = 2_000_000;
    let style = Style {
        width: 160,
        color: false,
    };
    let text = render(&profile, &style);
    assert!(
        text.contains("2.00 ms of JavaScript threads off it"),
        "{text}"
    );
}

/// A start of a program of which every name, version and word is a command to the terminal.
fn hostile(version: &str) -> Recording {
    const EVIL: &str = "\u{1b}[2J\n\u{9b}2J\u{202e}";
    let evil = |text: &str| format!("{text}{EVIL}");
    let module = evil("/srv/node_modules/x/index.js");
    let mut program = Program::new("/srv/main.js", true);
    program.package(
        "/srv/node_modules/x",
        Some(&evil("x")),
        Some(&evil(version)),
    );
    program.require("/srv/main.js", &[], 90_000, |p| {
        p.busy(30_000);
        p.lookup(&evil("/srv/package.json"));
        p.require(&module, &[], 50_000, |p| {
            p.cross("fs", &evil("open"), 9_000)
        });
    });
    let mut recording = program.end().0;
    for binary in &mut recording.binaries {
        binary.node_version = Some(evil(version));
        binary.v8_version = Some(evil(version));
    }
    for family in &mut recording.families {
        family.reason = Some(evil("why"));
    }
    let run = &mut recording.runs[0];
    run.command = vec![evil("node").into(), evil(version).into()];
    run.labels = vec![("name".into(), evil(version)), (evil("key"), evil("value"))];
    recording
}

#[test]
fn nothing_that_a_recording_names_is_a_command_to_the_terminal() {
    let (base, head) = (hostile("1.0.0"), hostile("2.0.0"));
    let profiles = [&base, &head].map(Profile::from_recording);
    let side = |of: usize| Side {
        recording: [&base, &head][of],
        profile: &profiles[of],
        group: Group::by_name([&base, &head][of]).remove(0),
    };
    let diff = Diff::new(&side(0), &side(1));
    assert_eq!(diff.versions.len(), 1, "{:?}", diff.versions);
    let style = Style {
        width: 200,
        color: false,
    };
    let (run, typed) = (&profiles[0].runs[0], "a@\u{1b}[2J\u{9b}2J\n");
    let budgets = "[[budget]]\nfigure = \"packages[*].self_ns\"\nmax = \"1ns\"\n";
    let budgets = Budgets::parse(budgets).unwrap();
    let sides = Sides::new(&side(0), &side(1));
    let checked = budget::check(&sides, &budgets, Drift::Forbidden, typed).unwrap();
    for (what, text) in [
        ("report", render(&profiles[0], &style)),
        ("blame", text::blame(run, &Default::default(), &style)),
        ("tree", text::tree(run, &Default::default(), &style)),
        (
            "chain",
            text::critical_chain(run, &Default::default(), &style),
        ),
        ("diff", text::diff(&diff, typed, typed, &style)),
        ("markdown", text::diff_markdown(&diff, typed, typed)),
        ("check", text::check(&checked, &style)),
        ("check of GitHub", text::check_github(&checked)),
        ("check in Markdown", text::check_markdown(&checked)),
    ] {
        assert!(text.len() > 20, "{what}: {text}");
        for line in text.lines() {
            let is_command = |c: char| c.is_control() || c == '\u{202e}';
            assert!(!line.contains(is_command), "{what}: {line:?}");
        }
    }
    let text = text::diff(&diff, typed, typed, &style);
    assert!(text.contains("1.0.0\\u{1b}[2J"), "{text}");
}
