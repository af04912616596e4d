//! Repeated runs: a table of times and memory, one of counts, and what makes the times doubtful.

use nodeprof_profile::report::Family;
use nodeprof_profile::{Profile, Recording, RunProfile, statistics::Summary};

use super::Style;
use super::page::{Page, faint};
use crate::measurements::{Variant, variants};
use crate::paths::printable;
use crate::table::{Cell, Column, Paint, Table};
use crate::units::{bytes, counted, number, time};
use nodeprof_profile::wording;

/// What each command took and did. `profile` is that of the recording.
pub fn measurements(recording: &Recording, profile: &Profile, style: &Style) -> String {
    let mut page = page(style);
    let variants = variants(recording);
    times(&mut page, &variants);
    counts(&mut page, recording, profile, &variants);
    let doubts = doubts(recording, style);
    if !doubts.is_empty() && !page.out.is_empty() {
        page.out.push('\n');
    }
    page.out + &doubts
}

/// What makes the times doubtful; empty if nothing does.
pub fn doubts(recording: &Recording, style: &Style) -> String {
    let mut page = page(style);
    let variants = variants(recording);
    for variant in &variants {
        remarks(&mut page, variant, variants.len() > 1);
    }
    page.out
}

fn page(style: &Style) -> Page {
    Page {
        out: String::new(),
        width: style.width.max(Style::LEAST_WIDTH),
        color: style.color,
    }
}

fn seconds(value: f64) -> String {
    time((value * 1e9).round().max(0.0) as u64)
}

fn times(page: &mut Page, variants: &[Variant]) {
    let measured = |v: &&Variant| !v.measured.wall.is_empty();
    if !variants.iter().any(|v| measured(&v)) {
        return;
    }
    let mut table = Table::new([
        Column::left("").flexible(8, 40),
        Column::right("runs").drop(3),
        Column::right("median"),
        Column::right("mean"),
        Column::right("± σ"),
        Column::right("fastest").drop(2),
        Column::right("slowest").drop(2),
        Column::right("user").drop(4),
        Column::right("system").drop(4),
        Column::right("peak memory").drop(1),
        Column::right("private dirty").drop(1),
    ]);
    for variant in variants.iter().filter(measured) {
        let Some(wall) = Summary::of(&variant.measured.wall) else {
            continue;
        };
        let median = |values: &[f64], shown: fn(f64) -> String| {
            Summary::of(values).map_or("–".to_owned(), |s| shown(s.median))
        };
        let size = |value: f64| bytes(value.round() as u64);
        table.row([
            Cell::name(&variant.name),
            Cell::text(wall.count.to_string()),
            Cell::text(seconds(wall.median)).paint(Paint::Strong),
            Cell::text(seconds(wall.mean)),
            Cell::text(seconds(wall.standard_deviation)),
            Cell::text(seconds(wall.minimum)),
            Cell::text(seconds(wall.maximum)),
            Cell::text(median(&variant.measured.user, seconds)),
            Cell::text(median(&variant.measured.system, seconds)),
            Cell::text(median(&variant.measured.max_rss, size)),
            Cell::text(median(&variant.measured.uss, size)),
        ]);
    }
    page.phrases(
        "Times",
        &[faint(
            "without probes, from exec to exit; CPU time and memory are medians",
        )],
        2,
    );
    page.table(&table);
}

/// A figure that is counted, its name, and the family of probes that counts it.
type Count = (&'static str, &'static str, fn(&RunProfile) -> u64);

const COUNTS: [Count; 7] = [
    ("crossings", "crossings", |run| run.crossings.total),
    ("lookups", "package-json", |run| run.package_json.lookups),
    ("stats", "files", |run| run.files.stat.calls),
    ("opens", "files", |run| run.files.open.calls),
    ("reads", "files", |run| run.files.read.calls),
    ("serialized", "serialization", |run| run.serialization.calls),
    ("compiled", "compile", |run| run.compile.compilations),
];

/// The family, if the run has nothing of it.
fn not_recorded<'a>(run: &'a RunProfile, name: &str) -> Option<&'a Family> {
    let states = ["off", "failed"];
    (run.families.iter())
        .find(|family| family.name == name && states.contains(&family.state.as_str()))
}

/// The least and the most of the runs that counted it; a dash if none did.
fn range(runs: &[&RunProfile], (_, family, count): Count) -> Cell {
    let counted = (runs.iter()).filter(|run| not_recorded(run, family).is_none());
    let counts: Vec<u64> = counted.map(|run| count(run)).collect();
    match (counts.iter().min(), counts.iter().max()) {
        (Some(least), Some(most)) if least == most => Cell::text(number(*most)),
        (Some(least), Some(most)) => {
            Cell::text(format!("{}–{}", number(*least), number(*most))).paint(Paint::Faint)
        }
        _ => Cell::text("–"),
    }
}

/// Why figures of these runs are dashes: each reason once, with the figures that it is the reason of.
fn unknown(runs: &[&RunProfile]) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, family, _) in COUNTS {
        let missing: Option<Vec<&Family>> =
            runs.iter().map(|run| not_recorded(run, family)).collect();
        let Some(first) = missing.and_then(|missing| missing.first().copied()) else {
            continue;
        };
        let reason = match first.reason.as_deref() {
            Some(reason) => printable(reason).into_owned(),
            None => "the family was not asked for".to_owned(),
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    (reasons.into_iter())
        .map(|(reason, names)| format!("not recorded: {}: {reason}", names.join(", ")))
        .collect()
}

fn counts(page: &mut Page, recording: &Recording, profile: &Profile, variants: &[Variant]) {
    let mut columns = vec![
        Column::left("").flexible(8, 40),
        Column::right("runs").drop(1),
    ];
    columns.extend(COUNTS.map(|(name, ..)| Column::right(name)));
    let mut table = Table::new(columns);
    let mut reasons = Vec::new();
    for variant in variants {
        let probed = variant.runs.probed(recording).runs;
        let runs: Vec<&RunProfile> = probed
            .iter()
            .filter_map(|id| profile.runs.get(id.0 as usize))
            .collect();
        if runs.is_empty() {
            continue;
        }
        let mut row = vec![
            Cell::name(&variant.name),
            Cell::text(runs.len().to_string()),
        ];
        row.extend(COUNTS.map(|count| range(&runs, count)));
        for reason in unknown(&runs) {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        table.row(row);
    }
    if table.rows.is_empty() {
        return;
    }
    if !page.out.is_empty() {
        page.out.push('\n');
    }
    page.phrases(
        "Counts",
        &[faint(
            "of runs with probes; exact, a range where runs differ",
        )],
        2,
    );
    page.table(&table);
    for reason in &reasons {
        page.sentence(reason, Paint::Warning);
    }
}

/// What makes the times doubtful.
fn remarks(page: &mut Page, variant: &Variant, named: bool) {
    let wall = &variant.measured.wall;
    let lead = match named {
        true => format!("{}: ", printable(&variant.name)),
        false => String::new(),
    };
    let mut remark = |text: String| page.sentence(&format!("{lead}{text}"), Paint::Warning);
    let failed = variant.measured.exit_statuses.iter();
    let failed = failed.filter(|status| **status != Some(0)).count();
    if failed > 0 {
        remark(format!(
            "{failed} of {} failed (exit status not 0).",
            counted(wall.len() as u64, "run")
        ));
    }
    let Some(summary) = Summary::of(wall) else {
        return;
    };
    if summary.median < 0.005 {
        remark("it takes less than 5 ms: much of that is the start of the process itself.".into());
    }
    if summary.outliers == 0 {
        return;
    }
    let rest = wall.get(1..).and_then(Summary::of);
    let first_is_slow = wall.first() == Some(&summary.maximum)
        && rest.is_some_and(|rest| rest.outliers < summary.outliers);
    if first_is_slow {
        remark(format!(
            "the first run took {}, much longer than the others: caches were cold. To leave it out, type --warmup 3; to make \
             every run as cold, type --prepare COMMAND.",
            seconds(summary.maximum)
        ));
    }
    let outliers = summary.outliers - usize::from(first_is_slow);
    if outliers > 0 {
        remark(wording::counted(
            outliers as u64,
            "# [run is|runs are] far from the median: something else ran on this machine. Measure while it is quiet, or with more runs.",
        ));
    }
}
