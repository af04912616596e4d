//! What the reader must know before the figures: runs that are missing, sides that cannot be compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::names::generic;
use super::sides::{Ending, Member, Sides, ending_of};
use super::verdict::TimeChange;
use super::words;
use crate::RunProfile;
use crate::recording::{EVENTS_BEYOND_LIMIT, SUMS_FULL, is_gap};
use crate::sequential::PAIRS_LIMIT;
use crate::wording;

/// The kind of what is said of sides with runs of several programs.
pub(crate) const SEVERAL_PROGRAMS: &str = "several_programs";

/// A sentence about the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statement {
    /// Stable key, such as `failed_runs`.
    pub kind: &'static str,
    /// The sentence.
    pub text: String,
}

/// Statements, and what forbids a verdict on time.
#[derive(Clone, Debug, Default)]
pub struct Statements {
    /// In the order in which to read them.
    pub list: Vec<Statement>,
    /// Why there can be no verdict on time.
    pub obstacle: Option<String>,
    /// Why no figure can be trusted.
    pub unusable: Option<String>,
    /// Why no figure of base, and of head, is that of a program: its runs are of several.
    pub mixed: [Option<String>; 2],
}

impl Statements {
    fn say(&mut self, kind: &'static str, text: String) {
        self.list.push(Statement { kind, text });
    }

    /// That no run has what an optional budget names, which may be a slip.
    pub(crate) fn say_absent(&mut self, figure: &str) {
        let text = format!("No run has {figure}, which is optional: it was not checked.");
        self.say("absent", text);
    }

    fn forbid(&mut self, reason: String) {
        self.obstacle
            .get_or_insert(format!("No verdict on time: {reason}."));
    }

    /// Looks at both sides.
    pub fn of(sides: &Sides<'_>, wall: Option<&TimeChange>) -> Statements {
        let mut statements = Statements::default();
        statements.failed(sides);
        statements.programs(sides);
        statements.settings(sides);
        statements.losses(sides);
        if let Some(wall) = wall {
            statements.outliers(sides, wall);
        }
        statements.order(sides);
        if sides.pairs_left_out > 0 {
            let text = format!(
                "The verdict is of the first {} pairs: {} more {} left out.",
                words::count(PAIRS_LIMIT as f64),
                words::count(sides.pairs_left_out as f64),
                wording::counted(sides.pairs_left_out as u64, "[is|are]"),
            );
            statements.say("pairs_left_out", text);
        }
        statements
    }

    /// Looks at head alone.
    pub fn of_one(sides: &Sides<'_>) -> Statements {
        let mut statements = Statements::default();
        statements.failed(sides);
        statements.programs_of_one(sides);
        statements.settings_of_one(sides);
        statements.losses(sides);
        let name = &sides.head.name;
        let first = sides
            .head
            .all()
            .first()
            .and_then(|run| sides.runs.get(*run))
            .copied();
        match first.map(|run| (run, ending_of(run))) {
            None => statements.unusable = Some(format!("{name} has no run")),
            Some((run, (status, signal, _))) => {
                let failed = status.is_some_and(|status| status != 0);
                if failed || signal.is_some() || run.ended_by == "interrupt" {
                    statements.say(
                        "failed",
                        format!(
                            "{} runs of {name} {}{}.",
                            if sides.head.failed.is_empty() {
                                "All"
                            } else {
                                "Most"
                            },
                            if signal.is_some() || run.ended_by == "interrupt" {
                                "were "
                            } else {
                                ""
                            },
                            ending_words(run)
                        ),
                    );
                }
                statements.unusable = failure(&ending_of(run))
                    .map(|reason| format!("the runs of {name} {reason}: {}", ending_words(run)));
            }
        }
        statements
    }

    fn failed(&mut self, sides: &Sides<'_>) {
        for member in [&sides.base, &sides.head] {
            let (left_out, all) = (
                member.failed.len(),
                member.failed.len() + member.all().len(),
            );
            if left_out > 0 {
                let ways: BTreeSet<String> = (member.failed.iter())
                    .map(|run| ending_words(sides.runs[*run]))
                    .collect();
                let ways: Vec<String> = ways.into_iter().collect();
                self.say(
                    "failed_runs",
                    format!(
                        "{left_out} of {} of {} {} left out: {}, unlike the others.",
                        wording::counted(all as u64, "# run[|s]"),
                        member.name,
                        wording::counted(left_out as u64, "[is|are]"),
                        words::list(&ways)
                    ),
                );
            }
        }
        let usual = |member: &Member| {
            let run = member
                .all()
                .first()
                .and_then(|run| sides.runs.get(*run))
                .copied();
            run.map(|run| (ending_of(run), ending_words(run)))
        };
        if let (Some((base, base_words)), Some((head, head_words))) =
            (usual(&sides.base), usual(&sides.head))
        {
            if base != head {
                self.say(
                    "different_endings",
                    format!(
                        "The sides end differently: {} {base_words}, {} {head_words}.",
                        sides.base.name, sides.head.name
                    ),
                );
                self.forbid("the sides end differently, so they did not do the same".into());
                self.unusable =
                    Some("the sides end differently, so they did not do the same".into());
            } else {
                if base.1.is_some() || base.0.is_some_and(|status| status != 0) {
                    self.say(
                        "failed",
                        format!("All runs of both sides fail alike: {base_words}."),
                    );
                }
                self.unusable = failure(&base)
                    .map(|reason| format!("the runs of both sides {reason}: {base_words}"));
            }
        }
    }

    /// Whether head ran one program.
    fn programs_of_one(&mut self, sides: &Sides<'_>) {
        let programs = sides.head.programs(&sides.runs);
        if programs.len() > 1 {
            let name = &sides.head.name;
            self.mixed[1] = Some(mixed(name, &programs));
            let text = format!(
                "The runs of {name} are of {} programs: {}. Each figure mixes them: narrow them to one.",
                programs.len(),
                programs_words(&programs)
            );
            self.say(SEVERAL_PROGRAMS, text);
        }
    }

    /// Whether the runs of head were made and recorded alike.
    fn settings_of_one(&mut self, sides: &Sides<'_>) {
        type Value = fn(&RunProfile) -> Option<String>;
        let (all, probed, name) = (sides.head.all(), &sides.head.probed, &sides.head.name);
        let of: [(&'static str, &[usize], &str, Value); 4] = [
            (
                "different_nodes",
                &all,
                "are of several versions of node",
                |run| run.node.as_ref()?.version.clone(),
            ),
            ("different_kernels", &all, "are of several kernels", |run| {
                run.labels.get(crate::groups::KERNEL).cloned()
            }),
            (
                "different_machines",
                &all,
                "are of several machines",
                |run| run.labels.get(crate::groups::MACHINE).cloned(),
            ),
            (
                "different_probes",
                probed,
                "were recorded in several ways",
                |run| Some(recording_words(run)),
            ),
        ];
        for (kind, runs, are, value) in of {
            let mut values: BTreeMap<String, usize> = BTreeMap::new();
            for value in runs.iter().filter_map(|run| value(sides.runs[*run])) {
                *values.entry(value).or_default() += 1;
            }
            if values.len() > 1 {
                let values = values
                    .iter()
                    .map(|(value, runs)| format!("{runs} × {value}"));
                let values = words::list(&values.collect::<Vec<_>>());
                // Runs of several programs are not judged at all.
                let judged = match self.mixed[1].is_some() {
                    true => "",
                    false => " Limits that depend on that are judged for each of them separately.",
                };
                self.say(kind, format!("The runs of {name} {are}: {values}.{judged}"));
            }
        }
    }

    /// Whether both sides ran the same.
    fn programs(&mut self, sides: &Sides<'_>) {
        let first = |member: &Member| {
            let all = member.all();
            all.first().and_then(|run| sides.runs.get(*run)).copied()
        };
        let (Some(base), Some(head)) = (first(&sides.base), first(&sides.head)) else {
            return;
        };
        let programs = [&sides.base, &sides.head].map(|member| member.programs(&sides.runs));
        for (side, member) in [&sides.base, &sides.head].into_iter().enumerate() {
            let of = &programs[side];
            self.mixed[side] = (of.len() > 1).then(|| mixed(&member.name, of));
        }
        if programs.iter().any(|programs| programs.len() > 1) {
            let all: BTreeSet<&String> = programs.iter().flat_map(BTreeMap::keys).collect();
            let text = format!(
                "The runs are of {} programs: {} has {}, {} has {}. Each figure mixes them: narrow both sides to one.",
                all.len(),
                sides.base.name,
                programs_words(&programs[0]),
                sides.head.name,
                programs_words(&programs[1])
            );
            self.say(SEVERAL_PROGRAMS, text);
            self.forbid("the runs are of several programs".into());
        } else if command(base) != command(head) {
            let text = format!(
                "The commands differ: {} ran `{}`, {} ran `{}`.",
                sides.base.name,
                base.command.join(" "),
                sides.head.name,
                head.command.join(" ")
            );
            self.say("different_commands", text);
        }
        let mut differ =
            |kind: &'static str, of: &str, value: fn(&RunProfile) -> Option<String>| {
                let values = |member: &Member| -> BTreeSet<String> {
                    let runs = member.all();
                    runs.iter()
                        .filter_map(|run| value(sides.runs[*run]))
                        .collect()
                };
                let (base, head) = (values(&sides.base), values(&sides.head));
                let several = base.len() > 1 || head.len() > 1;
                if (base != head || several) && !base.is_empty() && !head.is_empty() {
                    let shown = |values: &BTreeSet<String>| {
                        words::list(&values.iter().cloned().collect::<Vec<_>>())
                    };
                    let text = match base == head {
                        true => format!("Both sides have runs of several {of}: {}.", shown(&base)),
                        false => format!(
                            "The {of} differ: {} on {}, {} on {}.",
                            sides.base.name,
                            shown(&base),
                            sides.head.name,
                            shown(&head)
                        ),
                    };
                    self.say(kind, text);
                    return true;
                }
                false
            };
        differ("different_nodes", "versions of node", |run| {
            run.node.as_ref()?.version.clone()
        });
        let mut other_machine = differ("different_kernels", "kernels", |run| {
            run.labels.get(crate::groups::KERNEL).cloned()
        });
        other_machine |= differ("different_machines", "machines", |run| {
            run.labels.get(crate::groups::MACHINE).cloned()
        });
        if other_machine {
            self.forbid("the runs are of several machines or kernels".into());
        }
    }

    /// Whether both sides were recorded in the same way.
    fn settings(&mut self, sides: &Sides<'_>) {
        let names = [sides.base.name.clone(), sides.head.name.clone()];
        let members = [&sides.base, &sides.head];
        if members.iter().any(|member| member.all().is_empty()) {
            let empty = members.iter().find(|member| member.all().is_empty());
            let name = empty.map_or("", |member| member.name.as_str());
            self.say(
                "no_runs",
                format!("{name} has no run that can be compared."),
            );
            self.forbid(format!("{name} has no run that can be compared"));
            self.unusable = Some(format!("{name} has no run that can be compared"));
            return;
        }
        let bare = members.map(|member| !member.bare.is_empty());
        let probed = members.map(|member| !member.probed.is_empty());
        for (side, name) in names.iter().enumerate() {
            if !probed[side] && probed[1 - side] {
                self.say(
                    "no_probed_runs",
                    format!("{name} has no run with probes: counts and causes cannot be compared."),
                );
            }
        }
        if !sides.bare() && bare != [false, false] && (!probed[0] || !probed[1]) {
            self.forbid("one side has runs without probes only, the other none of these".into());
            return;
        }
        if !sides.bare() {
            self.say(
                "probed_times",
                "Times are of runs with probes: they contain what tracing costs.".into(),
            );
        }
        let [base, head] = members.map(|member| ways(sides, member));
        if base.is_empty() || head.is_empty() {
            return;
        }
        self.ways(sides, &base, &head);
        self.partly(sides);
    }

    /// Whether the probed runs of both sides were recorded in one way.
    fn ways(&mut self, sides: &Sides<'_>, base: &Ways, head: &Ways) {
        let keys = |ways: &Ways| ways.keys().cloned().collect::<Vec<_>>();
        let (of_base, of_head) = (keys(base), keys(head));
        let alike = of_base == of_head;
        if alike && base.len() == 1 {
            return;
        }
        let mut text = match alike {
            true => format!(
                "The runs of both sides were recorded in several ways: {}.",
                of_base.join(" and ")
            ),
            false => format!(
                "What was recorded differs: {} with {}, {} with {}. Figures that a side lacks are left out.",
                sides.base.name,
                of_base.join(" and "),
                sides.head.name,
                of_head.join(" and ")
            ),
        };
        if !modes_alike(sides) {
            text += " Times of their parts contain what the probes cost, and tell no cause.";
        }
        self.say("different_probes", text);
        if !sides.bare() {
            let whose = match alike {
                true => "runs of each side",
                false => "sides",
            };
            self.forbid(format!(
                "the {whose} were traced with different probes, which cost different times"
            ));
        }
    }

    /// What was recorded in part, or not kept.
    fn partly(&mut self, sides: &Sides<'_>) {
        let probed = || {
            let members = [&sides.base, &sides.head].into_iter();
            let runs = members.flat_map(|member| &member.probed);
            runs.map(|run| sides.runs[*run])
        };
        let partial: BTreeSet<String> = probed()
            .flat_map(|run| &run.families)
            .filter(|family| family.state == "partial")
            .map(|family| family.name.clone())
            .collect();
        let is_thinned = |run: &&RunProfile| {
            let mut families = run.families.iter();
            families.any(|family| family.state == crate::thin::THINNED)
        };
        let thinned = probed().filter(is_thinned).count();
        if thinned > 0 {
            self.say(
                "thinned",
                wording::counted(
                    thinned as u64,
                    "# of the runs compared [was|were] thinned to [its|their] counts: single files, lookups, compilations and modules of [it|them] are not known any more.",
                ),
            );
        }
        if !partial.is_empty() {
            let partial: Vec<String> = partial.into_iter().collect();
            let text = format!("Recorded in part only: {}.", words::list(&partial));
            self.say("partial", text);
        }
    }

    /// Whether the machine had time to change between the sides.
    fn order(&mut self, sides: &Sides<'_>) {
        if !sides.in_turn(false) {
            self.say(
                "not_interleaved",
                "The sides were not run in turn: if the machine was busier with one, that is in the times, too. nodeprof compare alternates.".into(),
            );
        }
    }

    fn losses(&mut self, sides: &Sides<'_>) {
        for member in [&sides.base, &sides.head] {
            let runs = || member.probed.iter().map(|run| sides.runs[*run]);
            let lost = (runs()
                .flat_map(|run| RECORDS.map(|kind| run.losses.get(kind)))
                .flatten())
            .fold(0, |sum: u64, count| sum.saturating_add(*count));
            if lost > 0 {
                self.say(
                    "lost_records",
                    format!(
                        "{} of {} {} lost: its counts are too low.",
                        wording::counted(lost, "# record[|s]"),
                        member.name,
                        wording::counted(lost, "[was|were]"),
                    ),
                );
            }
            let gaps: Vec<BTreeSet<&str>> = runs().map(gaps).filter(|of| !of.is_empty()).collect();
            if !gaps.is_empty() {
                let reasons: BTreeSet<&str> = gaps.iter().flatten().copied().collect();
                let reasons: Vec<String> = reasons.into_iter().map(str::to_owned).collect();
                self.say(
                    "gaps",
                    format!(
                        "{} of {} of {} {} gaps, for {}: {} counts are too low.",
                        gaps.len(),
                        wording::counted(member.probed.len() as u64, "# run[|s] with probes"),
                        member.name,
                        wording::counted(gaps.len() as u64, "[has|have]"),
                        words::list(&reasons),
                        wording::counted(gaps.len() as u64, "[its|their]"),
                    ),
                );
            }
        }
    }

    fn outliers(&mut self, sides: &Sides<'_>, wall: &TimeChange) {
        for (name, summary) in [(&sides.base.name, wall.base), (&sides.head.name, wall.head)] {
            if let Some(summary) = summary.filter(|summary| summary.outliers > 0) {
                self.say(
                    "outliers",
                    format!(
                        "{} of {} of {name} {}, the largest {}: trust medians and ranks more than means.",
                        summary.outliers,
                        wording::counted(summary.count as u64, "# time[|s]"),
                        wording::counted(summary.outliers as u64, "[is an outlier|are outliers]"),
                        words::time(summary.maximum)
                    ),
                );
            }
        }
    }
}

/// Why no figure of these runs is that of a program.
fn mixed(name: &str, programs: &BTreeMap<String, usize>) -> String {
    format!(
        "the runs of {name} are of {} programs, {}, and a figure of all of them is of none; needed: runs of one, chosen by a label or, of the store, by command=TEXT",
        programs.len(),
        programs_words(programs)
    )
}

/// Kinds of losses that are records.
const RECORDS: [&str; 3] = ["records", "undecodable_records", EVENTS_BEYOND_LIMIT];

/// Why counts of a run are too low, other than by records that were lost.
fn gaps(run: &RunProfile) -> BTreeSet<&'static str> {
    const LATE: &str = "processes were seen only after their start, or could not be probed";
    let of_processes = run.processes.iter().filter(|p| p.incomplete.is_some());
    let lost = (run.losses.iter())
        .filter(|(kind, count)| is_gap(kind, **count) && !RECORDS.contains(&kind.as_str()))
        .map(|(kind, _)| match kind.as_str() {
            SUMS_FULL => "calls found no room in the tables of sums",
            "sums_unread" => "the sums of calls could not be read at one moment",
            "threads_not_followed" => "threads could not be followed",
            "beginnings_missed" => LATE,
            "counts_unknown" => "nodeprofd ended before the trace did",
            "holder_ended" => "the process that holds the probes ended before the trace did",
            _ => "something was not seen",
        });
    lost.chain(of_processes.map(|_| LATE)).collect()
}

/// The most frequent programs, with their runs.
pub(crate) fn programs_words(programs: &BTreeMap<String, usize>) -> String {
    const NAMED: usize = 3;
    let mut frequent: Vec<_> = programs.iter().collect();
    frequent.sort_by_key(|(_, runs)| std::cmp::Reverse(**runs));
    let named = frequent.iter().take(NAMED);
    let mut named: Vec<String> = named
        .map(|(name, runs)| format!("{runs} × `{name}`"))
        .collect();
    if frequent.len() > NAMED {
        let more: usize = frequent[NAMED..].iter().map(|(_, runs)| **runs).sum();
        named.push(format!("{more} of others"));
    }
    words::list(&named)
}

/// The command without what differs from build to build: folders and versions.
fn command(run: &RunProfile) -> Vec<String> {
    let last = |text: &String| {
        let generic = generic(text);
        generic.rsplit('/').next().unwrap_or_default().to_owned()
    };
    run.command.iter().map(last).collect()
}

/// What runs did that ended like this instead of coming to a good end: no figure of them keeps a limit.
pub(crate) fn failure((status, signal, ended_by): &Ending) -> Option<&'static str> {
    if signal.is_some() || ended_by == "interrupt" {
        return Some("did not come to their end");
    }
    // What fails at once is fast, and keeps each limit.
    (status.is_some_and(|status| status != 0)).then_some("failed")
}

fn ending_words(run: &RunProfile) -> String {
    match (run.ended_by.as_str(), run.exit_status, run.signal) {
        ("exit", Some(status), _) => format!("ended with status {status}"),
        (_, _, Some(signal)) => format!("killed by signal {signal}"),
        ("interrupt", ..) => "interrupted".to_owned(),
        ("import", ..) => "imported".to_owned(),
        (by, ..) => format!("traced until {by}"),
    }
}

/// Whether the runs with probes of both sides were traced in the same modes.
pub(super) fn modes_alike(sides: &Sides<'_>) -> bool {
    let [base, head] = [&sides.base, &sides.head].map(|member| {
        let modes = member.probed.iter().map(|run| &sides.runs[*run].mode);
        modes.collect::<BTreeSet<_>>()
    });
    base == head
}

/// How many runs were recorded in which way.
type Ways = BTreeMap<String, usize>;

/// Of a side's probed runs.
fn ways(sides: &Sides<'_>, member: &Member) -> Ways {
    let mut ways = Ways::new();
    for run in &member.probed {
        *ways.entry(recording_words(sides.runs[*run])).or_default() += 1;
    }
    ways
}

/// How a run was recorded.
pub(super) fn recording_words(run: &RunProfile) -> String {
    let mut missing: Vec<&str> = (run.families.iter())
        .filter(|family| matches!(family.state.as_str(), "off" | "failed"))
        .map(|family| family.name.as_str())
        .collect();
    missing.sort_unstable();
    let mut words = format!("mode {}", run.mode);
    if !missing.is_empty() {
        words += &format!(" without {}", missing.join(", "));
    }
    if let Some(hz) = run.samples.frequency_hz {
        words += &format!(
            " ({})",
            wording::counted(u64::from(hz), "# sample[|s] a second")
        );
    }
    words
}
