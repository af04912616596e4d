//! Two groups of runs side by side, for a terminal: the verdict, why, where to look next.

use nodeprof_profile::diff::causes::CauseKind;
use nodeprof_profile::diff::figures::Unit;
use nodeprof_profile::diff::{
    Answer, Cause, Certainty, Change, Diff, Presence, SideSummary, TimeChange, words,
};
use nodeprof_profile::wording;

use super::Style;
use super::page::{Page, faint, plain, warning};
use super::words::capitalised;
use crate::paths::printable;
use crate::table::{Cell, Column, Paint, Table};

/// Rows of a table of counts.
const ROWS: usize = 14;
/// Names in a list of modules.
const NAMES: usize = 8;

/// The difference as text. `base`, `head`: what to type for them.
pub fn diff(diff: &Diff, base: &str, head: &str, style: &Style) -> String {
    let mut view = View {
        diff,
        page: Page {
            out: String::new(),
            width: style.width.max(Style::LEAST_WIDTH),
            color: style.color,
        },
    };
    view.title();
    view.verdict();
    view.times();
    view.causes();
    view.counts();
    view.presence();
    view.next(base, head);
    view.page.out
}

struct View<'a> {
    diff: &'a Diff,
    page: Page,
}

impl View<'_> {
    fn title(&mut self) {
        let Diff { base, head, .. } = self.diff;
        let title = format!("{} → {}", printable(&base.name), printable(&head.name));
        let mut phrases = Vec::new();
        match (command(base), command(head)) {
            (base, head) if base == head => phrases.push(plain(base)),
            (base, head) => phrases.push(plain(format!("{base} → {head}"))),
        }
        match (&base.node, &head.node) {
            (Some(base), Some(head)) if base == head => phrases.push(plain(format!("node {base}"))),
            (base, head) => {
                let shown = |node: &Option<String>| node.clone().unwrap_or_else(|| "–".to_owned());
                if base.is_some() || head.is_some() {
                    phrases.push(plain(format!("node {} → {}", shown(base), shown(head))));
                }
            }
        }
        phrases.push(faint(runs_of(base, head)));
        self.page.phrases(&title, &phrases, 2);
    }

    fn verdict(&mut self) {
        let verdict = &self.diff.verdict;
        let paint = match verdict.answer {
            Answer::Slower | Answer::Faster if !verdict.in_turn => Paint::Warning,
            Answer::Slower => Paint::Error,
            Answer::Faster => Paint::Good,
            Answer::CannotTell => Paint::Warning,
            Answer::NoDifference | Answer::Alike => Paint::Strong,
        };
        self.page.out.push('\n');
        self.page.sentence(&printable(&verdict.sentence), paint);
        for statement in &self.diff.statements {
            let paint = match statement.kind {
                "probed_times" => Paint::Faint,
                _ => Paint::Warning,
            };
            self.page.sentence(&printable(&statement.text), paint);
        }
    }

    fn times(&mut self) {
        if self.diff.times.is_empty() {
            return;
        }
        let of = match self.diff.verdict.bare {
            true => "means of runs without probes",
            false => "means of runs with probes",
        };
        self.page.section("Times and memory", &[faint(of)]);
        let mut table = Table::new([
            Column::left(""),
            Column::left(""),
            Column::right("base"),
            Column::right("head"),
            Column::right("change"),
            Column::right("± 95 %"),
            Column::right("± 99 %").drop(4),
            Column::right("± 99.9 %").drop(5),
            Column::right("rank p").drop(2),
            Column::right("medians").drop(1),
            Column::left("[95 %]").drop(3),
        ]);
        for time in &self.diff.times {
            table.row(time_row(time));
        }
        self.page.table(&table);
        let tested = self
            .diff
            .times
            .iter()
            .filter(|time| time.welch.is_some())
            .count();
        if tested > 0 {
            self.page.note(&false_positives(tested));
        }
    }

    fn causes(&mut self) {
        let causes = &self.diff.causes;
        if causes.is_empty() {
            if matches!(self.diff.verdict.answer, Answer::Faster | Answer::Slower) {
                let text = match self.diff.base.probed_runs.min(self.diff.head.probed_runs) {
                    0 => "There are no runs with probes on both sides that could tell.",
                    _ if { self.diff.statements.iter() }
                        .any(|of| of.kind == "different_probes") =>
                    {
                        "The runs with probes of both sides differ in what was recorded, and tell no cause."
                    }
                    _ => {
                        "No part of the runs with probes changed by more than chance explains: the change is spread, or the probed runs are too few."
                    }
                };
                self.page.section("Why", &[]);
                self.page.note(text);
            }
            return;
        }
        let order = match self.diff.verdict.answer {
            Answer::Alike | Answer::NoDifference => {
                "what came or went or is done more or less often, then parts whose time changed"
            }
            _ => "largest part first, then what only counts tell; times of runs with probes",
        };
        self.page.section("Why", &[faint(order)]);
        for (index, cause) in causes.iter().enumerate() {
            let text = format!(
                "{}. {}{}",
                index + 1,
                capitalised(&printable(&cause.sentence)),
                doubt(cause)
            );
            let paint = match cause.certainty.is_known() {
                true => Paint::Plain,
                false => Paint::Faint,
            };
            self.page.sentence(&text, paint);
        }
    }

    fn counts(&mut self) {
        let counts = |certainty: Certainty| -> Vec<&Change> {
            let list = self.diff.counts.iter();
            list.filter(|change| change.certainty == certainty && is_telling(change, self.diff))
                .collect()
        };
        let exact = counts(Certainty::Exact);
        let varying = counts(Certainty::Significant);
        let open = counts(Certainty::TooFewRuns);
        self.count_table(
            "Counts that differ in every run",
            &exact,
            "exact: the same in all runs of a side",
        );
        self.count_table(
            "Counts that vary from run to run, and differ",
            &varying,
            "tested",
        );
        let needed = nodeprof_profile::diff::compare::runs_needed(self.diff.tests.varying_events);
        let why = format!("not certain: {needed} probed runs a side are needed");
        self.count_table("Counts that differ in the runs that there are", &open, &why);
        let tests = &self.diff.tests;
        if exact.is_empty() && varying.is_empty() && open.is_empty() && tests.figures > 0 {
            let same = wording::counted(
                tests.constant_counts as u64,
                "# [is|are] the same in all runs",
            );
            self.page.section("Counts", &[]);
            let vary = wording::counted(
                tests.varying_counts as u64,
                "# [varies|vary] from run to run",
            );
            self.page
                .note(&match (tests.constant_counts, tests.varying_counts) {
                    (0, 0) => "No count differs.".to_owned(),
                    (_, 1..) => format!("No difference of a count is certain: {same}, {vary}."),
                    _ => format!("No count differs; {same}."),
                });
        }
    }

    fn count_table(&mut self, title: &str, changes: &[&Change], remark: &str) {
        if changes.is_empty() {
            return;
        }
        self.page.section(title, &[faint(remark)]);
        let mut table = Table::new([
            Column::left("").flexible(24, 90),
            Column::right("base"),
            Column::right("head"),
            Column::right("change"),
        ]);
        // Figures of the whole run first, then what they consist of, the largest first.
        let mut rows = changes.to_vec();
        rows.sort_by(|a, b| {
            (!a.list.is_empty())
                .cmp(&(!b.list.is_empty()))
                .then_with(|| (a.unit == Unit::Bytes).cmp(&(b.unit == Unit::Bytes)))
                .then_with(|| b.difference.abs().total_cmp(&a.difference.abs()))
                .then_with(|| a.figure.cmp(&b.figure))
        });
        for change in rows.iter().take(ROWS) {
            table.row(count_row(change));
        }
        self.page.table(&table);
        self.page.more(ROWS, changes.len(), "in --format json");
    }

    fn presence(&mut self) {
        self.names("Packages", &self.diff.packages);
        if !self.diff.versions.is_empty() {
            let versions = self.diff.versions.iter().take(NAMES).map(|change| {
                plain(format!(
                    "{} {} → {}",
                    printable(&change.package),
                    change.base.join(", "),
                    change.head.join(", ")
                ))
            });
            let mut versions: Vec<_> = versions.collect();
            versions.extend(more(self.diff.versions.len()));
            self.page.section("Versions", &versions);
        }
        self.names("Modules", &self.diff.modules);
        for (title, names) in builtins(self.diff) {
            self.listed(&wording::counted(names.len() as u64, title), names);
        }
        let lookups: Vec<_> = self
            .diff
            .lookups
            .iter()
            .filter(|l| l.base > 1.0 || l.head > 1.0)
            .collect();
        if !lookups.is_empty() {
            let mut phrases: Vec<_> = lookups
                .iter()
                .take(NAMES)
                .map(|lookup| {
                    let text = format!(
                        "{} {} → {}",
                        printable(&lookup.path),
                        words::count(lookup.base),
                        words::count(lookup.head)
                    );
                    match lookup.head > lookup.base {
                        true => warning(text),
                        false => plain(text),
                    }
                })
                .collect();
            phrases.extend(more(lookups.len()));
            self.page.section("Repeated package.json lookups", &phrases);
        }
    }

    fn names(&mut self, title: &str, presence: &Presence) {
        for (what, names) in [("added", &presence.added), ("removed", &presence.removed)] {
            let title = format!("{title} {what} ({})", words::count(names.len() as f64));
            self.listed(&title, names);
        }
    }

    fn listed(&mut self, title: &str, names: &[String]) {
        if names.is_empty() {
            return;
        }
        let shown = names.iter().take(NAMES);
        let mut phrases: Vec<_> = shown.map(|name| plain(printable(name))).collect();
        phrases.extend(more(names.len()));
        self.page.section(title, &phrases);
    }

    fn next(&mut self, base: &str, head: &str) {
        self.page.section("Where to look next", &[]);
        for line in next_commands(self.diff, base, head) {
            // A command that is broken cannot be copied.
            self.page.out.push_str("  ");
            self.page.out.push_str(&printable(&line));
            self.page.out.push('\n');
        }
    }
}

/// What is known of built-in modules that only one side compiles.
pub(super) fn builtins(diff: &Diff) -> [(&'static str, &Vec<String>); 2] {
    [
        (
            "# built-in module[|s] now compiled at start; [it|they] may have been in the snapshot",
            &diff.builtins.now_compiled,
        ),
        (
            "# built-in module[|s] no longer compiled at start; [it|they] may be in the snapshot",
            &diff.builtins.no_longer_compiled,
        ),
    ]
}

fn more(all: usize) -> Option<super::page::Phrase> {
    (all > NAMES).then(|| faint(format!("… and {} more", words::count((all - NAMES) as f64))))
}

/// What to type next.
pub(super) fn next_commands(diff: &Diff, base: &str, head: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let probed = diff.base.probed_runs > 0 && diff.head.probed_runs > 0;
    if probed {
        let metric = match diff.causes.first().map(|cause| cause.kind) {
            Some(CauseKind::Compilation | CauseKind::Script) => "compile",
            // Count mode takes no samples.
            _ if !(diff.base.sampled && diff.head.sampled) => "crossings",
            Some(_) => "wall",
            None if diff.durations.is_empty() => {
                let mut counts = { diff.counts.iter() }.filter(|c| is_telling(c, diff));
                let is_of_samples = |c: &Change| c.figure.starts_with("samples");
                match counts.next() {
                    // Of perf's recordings nothing else is known.
                    Some(first) if is_of_samples(first) && counts.all(is_of_samples) => "cpu",
                    Some(_) => "crossings",
                    None => "wall",
                }
            }
            None => "wall",
        };
        lines.push(format!(
            "nodeprof flame --diff {base} {head} --of {metric} -o diff.svg"
        ));
        lines.push(format!("nodeprof diff {base} {head} --format json"));
    }
    let few = match probed {
        true => diff.base.probed_runs.min(diff.head.probed_runs) < 4,
        false => true,
    };
    if few || diff.verdict.answer == Answer::CannotTell {
        lines.push(
            "nodeprof compare --base COMMAND --head COMMAND    # many runs of both, in pairs"
                .to_owned(),
        );
    }
    lines
}

fn command(side: &SideSummary) -> String {
    if side.programs > 1 {
        return format!("{} programs", side.programs);
    }
    let command = side
        .command
        .iter()
        .enumerate()
        .map(|(index, argument)| match index {
            0 => argument.rsplit('/').next().unwrap_or(argument).to_owned(),
            _ => argument.clone(),
        });
    printable(&command.collect::<Vec<_>>().join(" ")).into_owned()
}

fn runs_of(base: &SideSummary, head: &SideSummary) -> String {
    let shown = |side: &SideSummary| {
        let kinds = [
            (side.probed_runs, "with probes"),
            (side.bare_runs, "without"),
        ];
        let kinds: Vec<String> = kinds
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, kind)| format!("{count} {kind}"))
            .collect();
        match kinds.is_empty() {
            true => "none".to_owned(),
            false => kinds.join(", "),
        }
    };
    match (shown(base), shown(head)) {
        (base, head) if base == head => format!("runs a side: {base}"),
        (of_base, of_head) => format!("runs: {of_base} → {of_head}"),
    }
}

/// Names of times for people.
pub(super) fn time_name(figure: &str) -> &str {
    match figure {
        "milestones.loop_start" => "to event loop",
        "time.wall_ns" => "wall",
        "time.user_ns" => "user",
        "time.system_ns" => "system",
        "time.max_rss_bytes" => "peak memory",
        "time.private_dirty_bytes" => "private dirty",
        other => other,
    }
}

fn time_row(time: &TimeChange) -> Vec<Cell> {
    let value = |summary: Option<nodeprof_profile::statistics::Summary>| {
        summary.map_or(String::new(), |s| words::figure(s.mean, time.unit))
    };
    let plus_minus = |index: usize| {
        time.plus_minus_percent
            .map_or(String::new(), |of| format!("{:.1} %", of[index]))
    };
    let change = time.percent.map_or(String::new(), percent_of);
    let paint = match (time.stars, time.percent) {
        ("", _) | (_, None) => Paint::Plain,
        (_, Some(percent)) if percent > 0.0 => Paint::Error,
        _ => Paint::Good,
    };
    let ratio = time.median_ratio;
    vec![
        Cell::text(time_name(&time.figure)),
        Cell::text(time.stars).paint(paint),
        Cell::text(value(time.base)),
        Cell::text(value(time.head)),
        Cell::text(change).paint(paint),
        Cell::text(plus_minus(0)).paint(Paint::Faint),
        Cell::text(plus_minus(1)).paint(Paint::Faint),
        Cell::text(plus_minus(2)).paint(Paint::Faint),
        Cell::text(time.rank.map_or(String::new(), |rank| probability(rank.p))),
        Cell::text(ratio.map_or(String::new(), |r| format!("× {:.3}", r.ratio))),
        Cell::text(ratio.map_or(String::new(), |r| format!("[{:.3}, {:.3}]", r.low, r.high)))
            .paint(Paint::Faint),
    ]
}

/// No sign of what is rounded to nothing.
pub(super) fn percent_of(percent: f64) -> String {
    match percent.abs() < 0.05 {
        true => "0.0 %".to_owned(),
        false => words::signed(percent, Unit::Percent),
    }
}

/// Three digits after the point, and never 0.
pub(super) fn probability(p: f64) -> String {
    match p {
        p if p < 0.001 => "<0.001".to_owned(),
        p => format!("{p:.3}"),
    }
}

/// The line that Node's benchmark comparison prints.
pub(super) fn false_positives(comparisons: usize) -> String {
    let expected = |risk: f64| format!("{:.2}", comparisons as f64 * risk);
    format!(
        "Welch's t-test; with {} expect by chance {} false positives at 5 % (*, **, ***), {} at 1 % (**, ***), {} at 0.1 % (***).",
        wording::counted(comparisons as u64, "# comparison[|s]"),
        expected(0.05),
        expected(0.01),
        expected(0.001)
    )
}

/// What is not said yet of how sure a cause is.
pub(super) fn doubt(cause: &Cause) -> &'static str {
    match cause.certainty {
        Certainty::TooFewRuns => " (Too few runs to tell it from chance.)",
        _ => "",
    }
}

/// Figures that a person wants to see: not those of modules and packages that came or went, which are listed, nor the same calls once more by
/// another view.
pub(super) fn is_telling(change: &Change, diff: &Diff) -> bool {
    let gone = |presence: &Presence| {
        let compiled = [
            &diff.builtins.now_compiled,
            &diff.builtins.no_longer_compiled,
        ];
        let mut names = [&presence.added, &presence.removed]
            .into_iter()
            .chain(compiled);
        names.any(|names| names.contains(&change.name))
    };
    match change.list {
        "modules" => {
            !gone(&diff.modules)
                && !change.field.starts_with("loading.")
                && change.field != "modules"
        }
        "packages" => !gone(&diff.packages) && !change.field.starts_with("loading."),
        // Packages come and go with what is seen of them: what they did to find and call.
        "bundled_packages" => matches!(
            change.field,
            "crossings" | "package_json_lookups" | "stats" | "opens"
        ),
        "crossings.to_js" | "serialization.callbacks" | "phases" | "outside" => false,
        // In the table of times and memory.
        "" if change.name.starts_with("time.") => false,
        "" if diff.times.iter().any(|time| time.figure == change.name) => false,
        "compile.scripts" => change.field == "cached" && !gone(&diff.modules),
        _ => true,
    }
}

fn count_row(change: &Change) -> Vec<Cell> {
    let value = |spread: Option<nodeprof_profile::diff::compare::Spread>| {
        let Some(spread) = spread else {
            return "–".to_owned();
        };
        match spread.minimum == spread.maximum {
            true => words::figure(spread.median, change.unit),
            false => format!(
                "{}…{}",
                words::figure(spread.minimum, change.unit),
                words::figure(spread.maximum, change.unit)
            ),
        }
    };
    vec![
        Cell::path(printable(&change.figure).into_owned()),
        Cell::text(value(change.base)),
        Cell::text(value(change.head)),
        Cell::text(words::signed(change.difference, change.unit)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_one_kind_of_sign_and_separators() {
        let shown = [0.04, -3.24, 12.0, 12_345.6].map(percent_of);
        assert_eq!(shown, ["0.0 %", "−3.2 %", "+12.0 %", "+12,346 %"]);
    }
}
