//! Budgets: over, within, and what cannot be told.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use nodeprof_profile::budget::{
    BudgetError, Budgets, Checked, Drift, Outcome, Status, check, init,
};
use nodeprof_profile::diff::{Side, Sides};
use nodeprof_profile::groups::Group;
use nodeprof_profile::recording::{Loss, Nanoseconds, RunId};
use nodeprof_profile::synthetic::program::Program;
use nodeprof_profile::{Profile, Recording};

const NOISE: [u64; 8] = [10, 250, 90, 400, 170, 320, 60, 230];

fn runs(name: &str, micros: &[u64], change: impl Fn(&mut Recording)) -> Recording {
    let mut all = Recording::default();
    for (index, micros) in (0..).zip(micros) {
        let mut one = Recording::synthetic(400);
        // In turn with those of the other side.
        one.runs[0].started_unix_ns +=
            index * 2_000_000_000 + u64::from(name == "head") * 1_000_000_000;
        one.runs[0].ended = Nanoseconds(one.runs[0].started.0 + 100_000_000 + micros * 1000);
        one.runs[0].labels.push(("name".into(), name.into()));
        change(&mut one);
        all.append(one);
    }
    all
}

/// The budgets checked on head, with base unless that is empty.
fn checked(base: Recording, head: Recording, budgets: &str) -> Result<Checked, BudgetError> {
    checked_with(base, head, budgets, Drift::Forbidden)
}

fn checked_with(
    base: Recording,
    head: Recording,
    budgets: &str,
    drift: Drift,
) -> Result<Checked, BudgetError> {
    let (base_profile, head_profile) = (
        Profile::from_recording(&base),
        Profile::from_recording(&head),
    );
    let base = Side {
        recording: &base,
        profile: &base_profile,
        group: Group::all(&base, "base"),
    };
    let head = Side {
        recording: &head,
        profile: &head_profile,
        group: Group::all(&head, "head"),
    };
    check(
        &Sides::new(&base, &head),
        &Budgets::parse(budgets)?,
        drift,
        "nodeprof report head.nodeprof",
    )
}

fn alone(head: Recording, budgets: &str) -> Result<Checked, BudgetError> {
    checked(Recording::default(), head, budgets)
}

fn more(micros: u64) -> Vec<u64> {
    NOISE.iter().map(|noise| noise + micros).collect()
}

const WALL: &str = "[[budget]]\nfigure = \"time.wall_ns\"\n";

#[test]
fn a_count_over_its_limit_is_over_and_at_its_limit_within() {
    let total = Profile::from_recording(&Recording::synthetic(400)).runs[0]
        .crossings
        .total;
    for (most, outcome) in [(total, Outcome::Within), (total - 1, Outcome::Over)] {
        let text = format!("[[budget]]\nfigure = \"crossings.total\"\nmax = {most}");
        let found = alone(runs("head", &NOISE[..1], |_| {}), &text).unwrap();
        assert_eq!(found.outcome, outcome, "{:?}", found.rows);
    }
}

#[test]
fn a_time_is_over_only_beyond_chance() {
    // Means are 100.19 ms, and vary by 0.14.
    for (max, status) in [
        ("101ms", Status::Within),
        ("100.1ms", Status::Unsure),
        ("99.8ms", Status::Over),
    ] {
        let found = alone(
            runs("head", &NOISE, |_| {}),
            &format!("{WALL}max = \"{max}\""),
        )
        .unwrap();
        assert_eq!(
            found.rows[0].status, status,
            "{max}: {}",
            found.rows[0].sentence
        );
    }
    // One run cannot be over; it can be within.
    for (max, outcome) in [("99ms", Outcome::CannotTell), ("101ms", Outcome::Within)] {
        let found = alone(
            runs("head", &NOISE[..1], |_| {}),
            &format!("{WALL}max = \"{max}\""),
        )
        .unwrap();
        assert_eq!(found.outcome, outcome);
    }
}

#[test]
fn an_increase_is_compared_with_base() {
    for (micros, limit, status) in [
        (0, "\"5%\"", Status::Within),
        (4_000, "\"5%\"", Status::Within),
        (6_000, "\"5%\"", Status::Over),
        (5_060, "\"5%\"", Status::Unsure),
        (6_000, "\"7ms\"", Status::Within),
        (6_000, "0", Status::Over),
    ] {
        let base = runs("base", &NOISE, |_| {});
        let found = checked(
            base,
            runs("head", &more(micros), |_| {}),
            &format!("{WALL}max-increase = {limit}"),
        );
        let found = found.unwrap();
        assert_eq!(
            found.rows[0].status, status,
            "{micros} {limit}: {}",
            found.rows[0].sentence
        );
    }
    let one_more = |recording: &mut Recording| {
        let again = recording.crossings[0];
        recording.crossings.push(again);
    };
    let text = "[[budget]]\nfigure = \"crossings.total\"\nmax-increase = 0";
    for (count, outcome) in [
        (1, Outcome::CannotTell),
        (4, Outcome::CannotTell),
        (5, Outcome::Over),
    ] {
        let found = checked(
            runs("base", &NOISE[..count], |_| {}),
            runs("head", &NOISE[..count], one_more),
            text,
        )
        .unwrap();
        assert_eq!(found.outcome, outcome, "{count}");
        let says = match outcome {
            Outcome::Over => "is more than 0 more",
            _ => "too few to know that it does not vary; needed: 5 runs with probes a side",
        };
        assert!(found.rows[0].sentence.contains(says), "{:?}", found.rows);
    }
}

#[test]
fn a_budget_names_the_files_of_base_where_head_was_started_in_another_folder() {
    let started = |directory: &'static str, script: &'static str| {
        move |recording: &mut Recording| {
            recording.runs[0].directory = directory.into();
            let arguments = &mut recording.processes[0].execs[0].arguments;
            *arguments = vec![b"node".to_vec(), script.into()];
        }
    };
    let text =
        "[[budget]]\nfigure = \"package_json.files[./node_modules/*].lookups\"\nmax-increase = 0";
    let base = || runs("base", &NOISE, started("/home/user/project", "app.js"));
    let kept = |checked: Checked| -> Vec<(String, Option<f64>, Option<f64>)> {
        let rows = checked.rows.into_iter();
        rows.map(|row| (row.figure, row.base, row.head)).collect()
    };
    let same = kept(checked(base(), base(), text).unwrap());
    assert!(!same.is_empty());
    let head = runs("head", &NOISE, started("/home/user", "project/app.js"));
    assert_eq!(kept(checked(base(), head, text).unwrap()), same);
}

#[test]
fn times_of_sides_that_were_not_run_in_turn_cannot_be_told() {
    let later = |recording: &mut Recording| recording.runs[0].started_unix_ns += 3_600_000_000_000;
    let text = format!(
        "{WALL}max-increase = \"5%\"\n[[budget]]\nfigure = \"packages[*].self_ns\"\nmax-increase = \"5%\"\n\
         [[budget]]\nfigure = \"crossings.total\"\nmax-increase = 0\n{WALL}max = \"1s\""
    );
    let found = |drift| {
        let (base, head) = (runs("base", &NOISE, |_| {}), runs("head", &NOISE, later));
        checked_with(base, head, &text, drift).unwrap()
    };
    let strict = found(Drift::Forbidden);
    assert_eq!(strict.outcome, Outcome::CannotTell);
    for row in &strict.rows {
        // Counts, and limits on head alone, are as good as ever.
        let of_time = row.limit == "max-increase" && row.figure.ends_with("_ns");
        let status = match of_time {
            true => Status::CannotTell,
            false => Status::Within,
        };
        assert_eq!(row.status, status, "{row:?}");
        assert_eq!(row.sentence.contains("--allow-drift"), of_time, "{row:?}");
    }
    assert_eq!(found(Drift::Allowed).outcome, Outcome::Within);
}

#[test]
fn wildcards_reach_every_row() {
    let profile = Profile::from_recording(&Recording::synthetic(400));
    let text = "[[budget]]\nfigure = \"package_json.files[*].lookups\"\nmax = 0";
    let found = alone(runs("head", &NOISE[..2], |_| {}), text).unwrap();
    let over = found
        .rows
        .iter()
        .filter(|row| row.status == Status::Over)
        .count();
    let asked = profile.runs[0]
        .package_json
        .files
        .iter()
        .filter(|file| file.lookups > 0)
        .count();
    assert!(asked > 0);
    assert_eq!(over, asked);
}

/// A bare 50 is not 50 ns for the times among the figures that a pattern names.
#[test]
fn a_pattern_that_names_figures_of_several_units_is_refused() {
    let judged = |figure: &str, max: &str| {
        let text = format!("[[budget]]\nfigure = \"{figure}\"\nmax = {max}");
        alone(runs("head", &NOISE[..2], |_| {}), &text)
    };
    for (figure, max, offending, narrower) in [
        (
            "packages[*].*",
            "50",
            "_ns, which is a time",
            "packages[*].",
        ),
        (
            "packages[*].*",
            "\"9s\"",
            "which is a number",
            "_ns, with a limit in it: \"20ms\"",
        ),
        ("time.*", "50", "which is a", "such as time."),
        (
            "time.*",
            "\"400ms\"",
            "time.max_rss_bytes, which is a size",
            "_ns, with",
        ),
        (
            "*",
            "\"400ms\"",
            "which is a size, and a limit that is a time",
            "such as milestones.",
        ),
    ] {
        let error = judged(figure, max).unwrap_err();
        assert!(
            matches!(error, BudgetError::Unit { .. }),
            "{figure}: {error}"
        );
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("budget {figure}: found")),
            "{text}"
        );
        assert!(
            text.contains(offending) && text.contains(narrower),
            "{text}"
        );
    }
    // All of them are times; 0 is 0 in any unit; and what the message says to type is taken.
    for (figure, max) in [
        ("time.w*", "\"400ms\""),
        ("time.*_ns", "\"400ms\""),
        ("packages[*].*", "0"),
        ("packages[*].self_ns", "\"9s\""),
    ] {
        let found = judged(figure, max).unwrap();
        assert!(!found.rows.is_empty(), "{figure}");
        for row in &found.rows {
            assert!(max == "0" || row.unit == nodeprof_profile::diff::figures::Unit::Ns);
        }
    }
}

#[test]
fn a_budget_that_names_nothing_says_so() {
    for figure in [
        "crossings.totl",
        "packages[no-such-*].self_ns",
        "modules[*].no_such",
    ] {
        let text = format!("[[budget]]\nfigure = \"{figure}\"\nmax = 1");
        let error = alone(
            runs("head", &NOISE[..1], |_| {}),
            &text.replace("1", "\"1ms\""),
        );
        let error = match error {
            Err(BudgetError::Value { .. }) => {
                alone(runs("head", &NOISE[..1], |_| {}), &text).unwrap_err()
            }
            other => other.unwrap_err(),
        };
        assert!(matches!(error, BudgetError::Unknown { .. }), "{error}");
        assert!(error.to_string().contains(figure), "{error}");
    }
    let text = "[[budget]]\nfigure = \"packages[no-such].modules\"\nmax = 1\noptional = true";
    let found = alone(runs("head", &NOISE[..1], |_| {}), text).unwrap();
    assert_eq!(found.outcome, Outcome::Within);
    let said = found.statements.iter().find(|of| of.kind == "absent");
    assert!(said.unwrap().text.contains("packages[no-such].modules"));
}

#[test]
fn times_that_count_mode_does_not_take_cannot_be_told() {
    let status = |mode: &str, figure: &str| {
        let counted = |recording: &mut Recording| recording.runs[0].mode = mode.into();
        let text = format!("[[budget]]\nfigure = \"{figure}\"\nmax = \"3600s\"");
        alone(runs("head", &NOISE[..1], counted), &text)
            .unwrap()
            .outcome
    };
    for figure in [
        "files.stat.total_ns",
        "package_json.total_ns",
        "package_json.files[*].total_ns",
        "phases[*].files_ns",
        "phases[*].crossings_self_ns",
    ] {
        assert_eq!(status("full", figure), Outcome::Within, "{figure}");
        assert_eq!(status("count", figure), Outcome::CannotTell, "{figure}");
    }
    for figure in ["compile.total_ns", "phases[*].duration_ns", "time.wall_ns"] {
        assert_eq!(status("count", figure), Outcome::Within, "{figure}");
    }
}

#[test]
fn what_was_not_recorded_or_failed_cannot_be_told() {
    let off = |recording: &mut Recording| {
        recording.lookups.clear();
        for family in &mut recording.families {
            if family.name == "package-json" {
                family.state = "off".into();
            }
        }
    };
    let text = "[[budget]]\nfigure = \"package_json.lookups\"\nmax = 1";
    let found = alone(runs("head", &NOISE[..2], off), text).unwrap();
    assert_eq!(found.outcome, Outcome::CannotTell);
    let killed = |recording: &mut Recording| {
        recording.runs[0].exit_status = None;
        recording.runs[0].signal = Some(9);
    };
    let text = "[[budget]]\nfigure = \"crossings.total\"\nmax = 1000000";
    assert_eq!(
        alone(runs("head", &NOISE[..2], killed), text)
            .unwrap()
            .outcome,
        Outcome::CannotTell
    );
    let failing = |recording: &mut Recording| recording.runs[0].exit_status = Some(1);
    let found = checked(
        runs("base", &NOISE, |_| {}),
        runs("head", &NOISE, failing),
        text,
    )
    .unwrap();
    assert_eq!(found.outcome, Outcome::CannotTell);
}

/// A start that fails at once is the fastest, on both sides.
#[test]
fn both_sides_that_fail_alike_keep_no_limit() {
    let failed = |recording: &mut Recording| recording.runs[0].exit_status = Some(1);
    let killed = |recording: &mut Recording| {
        recording.runs[0].exit_status = None;
        recording.runs[0].signal = Some(9);
    };
    let interrupted = |recording: &mut Recording| {
        recording.runs[0].exit_status = None;
        recording.runs[0].ended_by = "interrupt".into();
    };
    let text = format!("{WALL}max = \"10s\"\n{WALL}max-increase = \"50%\"");
    for (change, says) in [
        (
            &failed as &dyn Fn(&mut Recording),
            "the runs of both sides failed: ended with status 1",
        ),
        (
            &killed,
            "the runs of both sides did not come to their end: killed by signal 9",
        ),
        (
            &interrupted,
            "the runs of both sides did not come to their end: interrupted",
        ),
    ] {
        let side = |name| runs(name, &NOISE, change);
        let found = checked(side("base"), side("head"), &text).unwrap();
        assert_eq!(found.outcome, Outcome::CannotTell, "{says}");
        for row in &found.rows {
            assert_eq!(
                (row.status, row.sentence.as_str()),
                (Status::CannotTell, says)
            );
        }
    }
}

#[test]
fn the_baseline_keeps_the_budgets_written_from_it() {
    let baseline = || runs("base", &NOISE, |_| {});
    let recording = baseline();
    let profile = Profile::from_recording(&recording);
    let nothing = Recording::default();
    let none = Profile::from_recording(&nothing);
    let base = Side {
        recording: &nothing,
        profile: &none,
        group: Group::default(),
    };
    let head = Side {
        recording: &recording,
        profile: &profile,
        group: Group::all(&recording, "base"),
    };
    let text = init(&Sides::new(&base, &head), "base.nodeprof");
    let found = checked(baseline(), baseline(), &text).unwrap();
    assert_eq!(found.outcome, Outcome::Within, "{text}\n{:#?}", found.rows);
    assert!(found.rows.len() > 8);
}

/// TOML has no control characters in a comment: the file could not be read.
#[test]
fn budgets_are_written_whatever_the_largest_package_is_called() {
    let mut program = Program::new("/srv/main.js", true);
    let name = "x\u{1b}[31m\u{7}\r\n[[budget]]\u{7f}y";
    program.package("/srv/node_modules/x", Some(name), Some("1.0.0"));
    program.require("/srv/main.js", &[], 90_000, |p| {
        p.require("/srv/node_modules/x/index.js", &[], 50_000, |p| {
            p.busy(900_000_000)
        });
    });
    let recording = program.end().0;
    let profile = Profile::from_recording(&recording);
    let of = |group| Side {
        recording: &recording,
        profile: &profile,
        group,
    };
    let all = Group::all(&recording, "base");
    let text = init(
        &Sides::new(&of(Group::default()), &of(all)),
        "a\u{1b}[2J\nb.nodeprof",
    );
    let largest = "# the largest is x\\u{1b}[31m\\u{7}\\r\\n[[budget]]\\u{7f}y\n";
    assert!(text.contains(largest), "{text:?}");
    assert!(text.contains("from a\\u{1b}[2J\\nb.nodeprof;"), "{text:?}");
    Budgets::parse(&text).unwrap();
}

/// What a gate does not know it must not let pass.
#[test]
fn what_is_not_known_is_not_kept() {
    let few = "[[budget]]\nfigure = \"samples.count\"\nmax = 1000000\n";
    let off = runs("head", &NOISE, |one| {
        one.families.push(nodeprof_profile::recording::FamilyState {
            run: nodeprof_profile::recording::RunId(0),
            name: "cpu".into(),
            state: "off".into(),
            reason: None,
        });
    });
    let checked_off = alone(off, few).unwrap();
    assert_eq!(checked_off.outcome, Outcome::CannotTell, "{checked_off:?}");
    // A crash is fast.
    let failed = runs("head", &NOISE, |one| one.runs[0].exit_status = Some(1));
    let wall = "[[budget]]\nfigure = \"time.wall_ns\"\nmax = \"10s\"\n";
    let checked_failed = alone(failed, wall).unwrap();
    assert_eq!(checked_failed.outcome, Outcome::CannotTell);
    assert!(checked_failed.rows[0].sentence.contains("status 1"));
    // Five pairs, far apart: no interval is sure enough, so chance does not explain it either.
    let side = |name: &'static str, micros: &[u64]| {
        let mut all = runs(name, micros, |one| one.runs[0].mode = "bare".into());
        for (pair, run) in all.runs.iter_mut().enumerate() {
            run.labels.push(("pair".into(), pair.to_string()));
        }
        all
    };
    let mut both = side("base", &NOISE[..5]);
    both.append(side(
        "head",
        &NOISE[..5].iter().map(|m| m + 60_000).collect::<Vec<_>>(),
    ));
    let profile = Profile::from_recording(&both);
    let (base, head) = Group::sides(&both).unwrap();
    let of = |group| Side {
        recording: &both,
        profile: &profile,
        group,
    };
    let budgets = Budgets::parse("[[budget]]\nfigure = \"time.wall_ns\"\nmax-increase = \"5%\"\n");
    let sides = Sides::new(&of(base), &of(head));
    let of_pairs = check(&sides, &budgets.unwrap(), Drift::Forbidden, "").unwrap();
    assert_eq!(of_pairs.outcome, Outcome::CannotTell, "{of_pairs:?}");
}

fn lose(recording: &mut Recording, kind: &str) {
    recording.losses.push(Loss {
        run: RunId(0),
        kind: kind.into(),
        count: 3,
    });
}

/// A few runs with gaps say nothing against the others, unless they show more than these.
#[test]
fn a_few_runs_in_which_not_all_was_seen_are_left_out() {
    let crossings = |all: &Recording| {
        let profile = Profile::from_recording(all);
        profile.runs.iter().map(|run| run.crossings.total).max()
    };
    let status = |gaps: usize, more: bool| {
        let index = std::cell::Cell::new(0);
        let change = |one: &mut Recording| {
            if index.replace(index.get() + 1) < gaps {
                one.processes[0].incomplete = Some("it was met too late".into());
                let last = *one.crossings.last().unwrap();
                match more {
                    true => one.crossings.push(last),
                    false => drop(one.crossings.pop()),
                }
            }
        };
        let head = runs("head", &NOISE, change);
        let base = runs("base", &NOISE, |_| {});
        let most = crossings(&base).unwrap();
        let limits = format!(
            "[[budget]]\nfigure = \"crossings.total\"\nmax = {most}\n[[budget]]\nfigure = \"crossings.total\"\nmax-increase = 0"
        );
        let found = checked(base, head, &limits).unwrap();
        let said = |row: &nodeprof_profile::budget::check::Row| (row.status, row.sentence.clone());
        found.rows.iter().map(said).collect::<Vec<_>>()
    };
    let all = |rows: &[(Status, String)], status| {
        rows.len() == 2 && rows.iter().all(|row| row.0 == status)
    };
    let few = status(3, false);
    assert!(all(&few, Status::Within), "{few:?}");
    assert!(
        few[0]
            .1
            .ends_with(", without 3 runs in which something was not seen"),
        "{few:?}"
    );
    // What base has left out says nothing of a limit that it has no part in.
    let index = std::cell::Cell::new(0);
    let base = runs("base", &NOISE, |one| {
        if index.replace(index.get() + 1) == 0 {
            one.processes[0].incomplete = Some("it was met too late".into());
        }
    });
    let most = crossings(&base).unwrap();
    let limits =
        format!("[[budget]]\nfigure = \"crossings.total\"\nmax = {most}\nmax-increase = 0");
    let found = checked(base, runs("head", &NOISE, |_| {}), &limits).unwrap();
    let without = |row: &nodeprof_profile::budget::check::Row| {
        (
            row.limit,
            row.status,
            row.sentence.contains("without 1 run"),
        )
    };
    let mut of_limits: Vec<_> = found.rows.iter().map(without).collect();
    of_limits.sort_unstable_by_key(|row| row.0);
    assert_eq!(
        of_limits,
        [
            ("max", Status::Within, false),
            ("max-increase", Status::Within, true)
        ]
    );
    // With what was not seen the median of all can be more than the limit.
    let spread = |gaps: usize| {
        let index = std::cell::Cell::new(0);
        let head = runs("head", &NOISE[..5], |one| {
            let number = index.replace(index.get() + 1);
            let last = *one.crossings.last().unwrap();
            one.crossings.extend(vec![last; 10 * number]);
            if number < gaps {
                one.processes[0].incomplete = Some("it was met too late".into());
            }
        });
        let whole = Profile::from_recording(&head).runs[3].crossings.total;
        let most = format!("[[budget]]\nfigure = \"crossings.total\"\nmax = {whole}");
        alone(head, &most).unwrap().rows[0].status
    };
    assert_eq!(
        [0, 1, 2].map(spread),
        [Status::Within, Status::Within, Status::CannotTell]
    );
    // At least as many as of the others must be whole.
    let many = status(4, false);
    assert!(all(&many, Status::CannotTell), "{many:?}");
    // What was seen is more than the others have: who knows how much more it is.
    let larger = status(1, true);
    assert!(all(&larger, Status::CannotTell), "{larger:?}");
}

/// Of a run in which not all was seen a count is the least that it can be.
#[test]
fn a_count_that_is_known_to_be_too_low_is_not_within() {
    let total = Profile::from_recording(&Recording::synthetic(400)).runs[0]
        .crossings
        .total;
    let status = |gap: &str, text: &str| {
        let head = runs("head", &NOISE, |one| match gap {
            "" => {}
            "incomplete" => one.processes[0].incomplete = Some("it was met too late".into()),
            kind => lose(one, kind),
        });
        let found = alone(head, text).unwrap();
        let row = found.rows.into_iter().next().unwrap();
        let said = found
            .statements
            .iter()
            .map(|of| of.kind)
            .collect::<Vec<_>>();
        (row.status, row.sentence, said)
    };
    let most =
        |figure: &str, most: &str| format!("[[budget]]\nfigure = \"{figure}\"\nmax = {most}");
    let kept = most("crossings.total", &total.to_string());
    let over = most("crossings.total", &(total - 1).to_string());
    assert_eq!(status("", &kept).0, Status::Within);
    for gap in [
        "records",
        "undecodable_records",
        "events_beyond_limit",
        "sums_full",
        "sums_unread",
        "threads_not_followed",
        "beginnings_missed",
        "counts_unknown",
        "holder_ended",
        "incomplete",
    ] {
        let (found, sentence, said) = status(gap, &kept);
        assert_eq!(found, Status::CannotTell, "{gap}");
        assert!(sentence.contains("needed: runs without gaps"), "{sentence}");
        assert!(sentence.ends_with("type: nodeprof report head.nodeprof"));
        let of_records = gap.ends_with("records") || gap == "events_beyond_limit";
        let kind = if of_records { "lost_records" } else { "gaps" };
        assert_eq!(said, [kind], "{gap}");
        // It would be more still.
        assert_eq!(status(gap, &over).0, Status::Over, "{gap}");
        // What the kernel tells of the whole run, and times, are what they are.
        for (figure, limit) in [
            ("time.wall_ns", "\"10s\""),
            ("time.max_rss_bytes", "\"10GB\""),
            ("compile.total_ns", "\"10s\""),
        ] {
            let found = status(gap, &most(figure, limit));
            assert_eq!(found.0, Status::Within, "{gap} {figure}: {}", found.1);
        }
    }
    // Names and stacks that are missing make no count too low, nor does a full table of sums one that is not summed.
    for gap in ["stacks", "paths_truncated", "memory_unreadable", "waits"] {
        let (found, _, said) = status(gap, &kept);
        assert_eq!((found, said.len()), (Status::Within, 0), "{gap}");
    }
    let stats = most("files.stat.calls", "1000000");
    assert_eq!(status("sums_full", &stats).0, Status::Within);
    assert_eq!(status("records", &stats).0, Status::CannotTell);
    let calls = most("crossings.callbacks[*].calls", "1000000");
    assert_eq!(status("sums_full", &calls).0, Status::CannotTell);
}

#[test]
fn how_much_a_count_grew_is_known_of_a_whole_base_only() {
    let one_more = |recording: &mut Recording| {
        let again = recording.crossings[0];
        recording.crossings.push(again);
    };
    let status = |base_gap: bool, head_gap: bool, more: bool, permitted: u32| {
        let base = runs("base", &NOISE, |one| {
            if base_gap {
                lose(one, "records");
            }
        });
        let head = runs("head", &NOISE, |one| {
            if more {
                one_more(one);
            }
            if head_gap {
                lose(one, "records");
            }
        });
        let text = format!("[[budget]]\nfigure = \"crossings.total\"\nmax-increase = {permitted}");
        checked(base, head, &text).unwrap().rows[0].status
    };
    for (base_gap, head_gap, more, permitted, expected) in [
        (false, false, false, 0, Status::Within),
        (false, false, true, 0, Status::Over),
        (false, true, false, 0, Status::CannotTell),
        (false, true, true, 1, Status::CannotTell),
        // Head would be more still.
        (false, true, true, 0, Status::Over),
        (true, false, false, 0, Status::CannotTell),
        (true, false, true, 0, Status::CannotTell),
        (true, true, true, 0, Status::CannotTell),
    ] {
        assert_eq!(
            status(base_gap, head_gap, more, permitted),
            expected,
            "{base_gap} {head_gap} {more} {permitted}"
        );
    }
}

/// Memory and CPU samples are not the same twice: one run says nothing of the next.
#[test]
fn memory_and_samples_of_one_run_are_never_over() {
    let measured = |bytes: &[u64]| {
        let mut all = Recording::default();
        for bytes in bytes {
            all.append(runs("head", &NOISE[..1], |one| {
                let process = &mut one.processes[0];
                process.max_rss_bytes = Some(*bytes);
                process.uss_loop_start_bytes = Some(*bytes);
                process.uss_exit_bytes = Some(*bytes);
            }));
        }
        all
    };
    let several: Vec<u64> = NOISE.iter().map(|noise| 90_000_000 + noise).collect();
    for figure in [
        "time.max_rss_bytes",
        "time.private_dirty_bytes",
        "time.private_dirty_loop_start_bytes",
        "time.private_dirty_exit_bytes",
    ] {
        let text = format!("[[budget]]\nfigure = \"{figure}\"\nmax = \"80MB\"");
        let one = alone(measured(&[90_000_000]), &text).unwrap();
        assert_eq!(one.outcome, Outcome::CannotTell, "{:?}", one.rows);
        assert!(
            one.rows[0].sentence.contains("in one run"),
            "{:?}",
            one.rows
        );
        let many = alone(measured(&several), &text).unwrap();
        assert_eq!(many.outcome, Outcome::Over, "{:?}", many.rows);
    }
    for figure in ["samples.count", "modules[*].samples"] {
        let text = format!("[[budget]]\nfigure = \"{figure}\"\nmax = 0");
        let one = alone(runs("head", &NOISE[..1], |_| {}), &text).unwrap();
        assert_eq!(one.outcome, Outcome::CannotTell, "{:?}", one.rows);
    }
}

/// Of three starts of a small program and two of a large one the median is the small one's, whatever the large one takes.
#[test]
fn a_limit_of_runs_of_several_programs_cannot_be_told() {
    let program = |name: &'static str| {
        move |recording: &mut Recording| {
            recording.runs[0].command = vec![b"node".into(), name.into()];
        }
    };
    let mixture = |side: &'static str, large: u64| {
        let mut all = runs(side, &NOISE[..3], program("small.js"));
        all.append(runs(side, &[large; 2], program("big.js")));
        all
    };
    let max = format!("{WALL}max = \"200ms\"");
    let says = "the runs of head are of 2 programs, 3 × `small.js` and 2 × `big.js`, and a figure of all of them is of none; needed: runs of one, chosen by a label or, of the store, by command=TEXT";
    let kinds = |found: &Checked| -> Vec<&str> {
        let kinds = found.statements.iter().map(|of| of.kind);
        kinds.filter(|kind| *kind == "several_programs").collect()
    };
    let found = alone(mixture("head", 400_000), &max).unwrap();
    assert_eq!(found.outcome, Outcome::CannotTell);
    assert_eq!(found.rows[0].sentence, says);
    assert_eq!(kinds(&found), ["several_programs"]);
    // With a base likewise, and of counts, too.
    let both = format!("{max}\n[[budget]]\nfigure = \"crossings.total\"\nmax-increase = 0");
    let found = checked(mixture("base", 1), mixture("head", 400_000), &both).unwrap();
    assert_eq!(kinds(&found), ["several_programs"]);
    assert!(
        found
            .rows
            .iter()
            .all(|row| row.status == Status::CannotTell),
        "{:#?}",
        found.rows
    );
    // A limit of head alone is not of what base ran; how much head's program grew from base's is.
    let head = runs("head", &NOISE[..3], program("small.js"));
    let found = checked(mixture("base", 1), head, &both).unwrap();
    let of = |limit| found.rows.iter().find(|row| row.limit == limit).unwrap();
    assert_eq!(of("max").status, Status::Within);
    assert_eq!(of("max-increase").status, Status::CannotTell);
    assert!(
        of("max-increase")
            .sentence
            .starts_with("the runs of base are of 2 programs")
    );
    // One program: as ever.
    let found = alone(runs("head", &NOISE, program("small.js")), &max).unwrap();
    assert_eq!(
        (found.outcome, found.statements.len()),
        (Outcome::Within, 0)
    );
}

/// What most runs are hides what became of the others.
#[test]
fn limits_of_runs_of_several_settings_are_judged_of_each_apart() {
    type Change = fn(&mut Recording);
    let label = |recording: &mut Recording, key: &str, value: &str| {
        recording.runs[0].labels.retain(|(k, _)| k != key);
        recording.runs[0].labels.push((key.into(), value.into()));
    };
    let kernel = |recording: &mut Recording| {
        recording.runs[0].labels.retain(|(k, _)| k != "kernel");
        recording.runs[0]
            .labels
            .push(("kernel".into(), "6.9".into()));
    };
    let count = |recording: &mut Recording| recording.runs[0].mode = "count".into();
    let node =
        |recording: &mut Recording| recording.binaries[0].node_version = Some("v99.0.0".into());
    let max = format!("{WALL}max = \"200ms\"");
    for (kind, name, change) in [
        (
            "different_kernels",
            "kernel 6.9 (3 of 11 runs)",
            kernel as Change,
        ),
        ("different_probes", "mode count", count),
        ("different_nodes", "node v99.0.0", node),
    ] {
        let with = |micros: &[u64]| {
            let mut all = runs("head", &NOISE, |recording| {
                label(recording, "kernel", "6.8")
            });
            all.append(runs("head", micros, |recording| {
                label(recording, "kernel", "6.8");
                change(recording);
            }));
            alone(all, &max).unwrap()
        };
        let over = with(&[400_000, 401_000, 402_000]);
        assert_eq!(over.outcome, Outcome::Over, "{kind}: {:#?}", over.rows);
        assert!(
            over.rows[0].sentence.starts_with(name),
            "{}",
            over.rows[0].sentence
        );
        let kinds: Vec<&str> = over.statements.iter().map(|of| of.kind).collect();
        assert_eq!(kinds, [kind]);
        // One run of a time is never over.
        assert_eq!(with(&[400_000]).outcome, Outcome::CannotTell, "{kind}");
        assert_eq!(with(&[1, 2, 3]).outcome, Outcome::Within, "{kind}");
    }
    // A count does not depend on the kernel or on how it was recorded; on the version of node it does.
    let total = Profile::from_recording(&Recording::synthetic(400)).runs[0]
        .crossings
        .total;
    let counts = format!(
        "[[budget]]\nfigure = \"crossings.total\"\nmax-increase = 0\n[[budget]]\nfigure = \"crossings.total\"\nmax = {total}"
    );
    let side = |name: &str, other: Change, of_other: Change| {
        let mut all = runs(name, &NOISE, |_| {});
        all.append(runs(name, &NOISE[..6], |recording| {
            of_other(recording);
            other(recording);
        }));
        all
    };
    let nothing: Change = |_| {};
    let more: Change = |recording| *recording = Recording::synthetic(420);
    let status = |found: Checked| {
        let mut all: Vec<_> = found
            .rows
            .iter()
            .map(|row| (row.limit, row.status))
            .collect();
        all.sort_by_key(|(limit, _)| *limit);
        all
    };
    let of = |base: Recording, head: Recording| status(checked(base, head, &counts).unwrap());
    let kept = [("max", Status::Within), ("max-increase", Status::Within)];
    assert_eq!(
        of(side("base", kernel, nothing), side("head", kernel, nothing)),
        kept
    );
    assert_eq!(
        of(side("base", node, nothing), side("head", node, nothing)),
        kept
    );
    // The median of all is that of the others, which did not grow. That counts of all vary makes six runs too few to be certain.
    let not_kept = [("max", Status::Over), ("max-increase", Status::CannotTell)];
    assert_eq!(
        of(side("base", node, nothing), side("head", node, more)),
        not_kept
    );
    // Where it is not known of some runs it is that of the others.
    let unknown: Change = |recording| recording.binaries[0].node_version = None;
    assert_eq!(
        of(
            side("base", unknown, nothing),
            side("head", nothing, nothing)
        ),
        kept
    );
    // Base has no run of that version.
    let unlike = [
        ("max", Status::Within),
        ("max-increase", Status::CannotTell),
    ];
    assert_eq!(
        of(runs("base", &NOISE, |_| {}), side("head", node, nothing)),
        unlike
    );
}
