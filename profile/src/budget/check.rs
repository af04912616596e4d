//! Whether runs keep their budgets.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Budget, BudgetError, Budgets, Increase, matches};
use crate::diff::compare::{self, Spread};
use crate::diff::figures::{List, Table, Unit, varies_with_machine};
use crate::diff::settings::Setting;
use crate::diff::statements::Statements;
use crate::diff::verdict::{self, Rule, Verdict};
use crate::diff::{Sides, Statement, words};
use crate::recording::ROWS_UNREADABLE;
use crate::statistics::{Moments, Welch};

/// What became of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The figure is over its limit, and chance does not explain it.
    Over,
    /// The runs do not allow to tell.
    CannotTell,
    /// It is over its limit, as chance can do.
    Unsure,
    /// It is within its limit.
    Within,
}

/// One figure and one limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The budget, as written.
    pub budget: String,
    /// The figure.
    pub figure: String,
    /// What it counts.
    pub unit: Unit,
    /// `max` or `max-increase`.
    pub limit: &'static str,
    /// Most that it may be, in its unit; what the increase permits.
    pub most: f64,
    /// Base's median; null without base.
    pub base: Option<f64>,
    /// Head's.
    pub head: Option<f64>,
    /// What became of it.
    pub status: Status,
    /// All that in a sentence.
    pub sentence: String,
}

/// What became of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All are within, or over only as chance can do.
    Within,
    /// One at least is over.
    Over,
    /// None is over for certain, and of one at least it cannot be told.
    CannotTell,
}

/// Budgets and what became of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// 1.
    pub schema: u32,
    /// What became of all.
    pub outcome: Outcome,
    /// What to know before the figures.
    pub statements: Vec<Statement>,
    /// Figure by figure; what is over first.
    pub rows: Vec<Row>,
}

/// Chance of a false alarm over all figures of one budget.
pub const FALSE_ALARMS: f64 = 0.01;

/// A figure that a budget names.
struct Figure {
    name: String,
    list: List,
    row: usize,
    field: usize,
    unit: Unit,
    base: Vec<f64>,
    head: Vec<f64>,
    /// It is of runs with probes.
    probed: bool,
    /// On base and head: a count that is too low in a run at least, for something was not seen.
    low: [bool; 2],
    /// Of base and head: runs in which something was not seen, whose values are not among these.
    left_out: [usize; 2],
    /// The least that the median of base can be, and the most that head's can be, with these.
    bounds: [f64; 2],
}

impl Figure {
    /// Of those runs of both sides that are kept.
    fn of(
        sides: &Sides<'_>,
        table: &Table,
        (row, field): (usize, usize),
        keep: &dyn Fn(usize) -> bool,
    ) -> Figure {
        let [base, head] = sides.judged_values_of(table.list, row, field, keep);
        Figure {
            list: table.list,
            row,
            field,
            probed: !sides.is_of_timed(table.list, row),
            low: [base.low, head.low],
            left_out: [base.left_out, head.left_out],
            bounds: [base.bounds[0], head.bounds[1]],
            unit: table.unit(row, field),
            name: table.figure(row, field),
            base: base.values,
            head: head.values,
        }
    }

    fn is_of_machine(&self) -> bool {
        varies_with_machine(&self.name, self.unit)
    }

    /// It cannot vary by itself: a count that is the same in all runs that there are.
    fn is_constant(&self, values: &[f64]) -> bool {
        let spread = Spread::of(values);
        !self.is_of_machine() && spread.is_some_and(|spread| spread.minimum == spread.maximum)
    }

    /// What a sentence on it ends with, if it is on these sides.
    fn left_out(sides: &[usize]) -> String {
        match sides.iter().sum::<usize>() {
            0 => String::new(),
            runs => format!(
                ", without {} in which something was not seen",
                crate::wording::counted(runs as u64, "# run[|s]")
            ),
        }
    }

    /// That it is over its limit is so although runs have gaps: without them it would be more still.
    fn is_more_without_gaps(&self) -> bool {
        self.unit != Unit::Percent
    }
}

/// What to do with times of sides that were not run in turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drift {
    /// How much they grew cannot be told: the machine can have changed.
    #[default]
    Forbidden,
    /// Judge them as if nothing but the program had changed.
    Allowed,
}

/// Checks the budgets; base may be empty if none of them compares with it. `report`: what to type for a report of head.
pub fn check(
    sides: &Sides<'_>,
    budgets: &Budgets,
    drift: Drift,
    report: &str,
) -> Result<Checked, BudgetError> {
    let unreadable = (sides.runs.iter()).find_map(|run| run.losses.get(ROWS_UNREADABLE));
    if let Some(values) = unreadable {
        return Err(BudgetError::Unreadable(*values));
    }
    let has_base = !sides.base.all().is_empty();
    let times = verdict::times(sides);
    let wall = times.iter().find(|time| time.figure == "time.wall_ns");
    let (mut statements, verdict) = match has_base {
        true => {
            let statements = Statements::of(sides, wall);
            let verdict = Verdict::new(sides, wall, statements.obstacle.clone());
            (statements, Some(verdict))
        }
        false => (Statements::of_one(sides), None),
    };
    let increases = budgets.list.iter().any(|b| b.max_increase.is_some());
    let varying = match has_base && increases {
        true => crate::diff::tests(sides).varying_events,
        false => 0,
    };
    let in_turn = [sides.in_turn(false), sides.in_turn(true)];
    let mut rows = Vec::new();
    for budget in &budgets.list {
        let figures = named(sides, budget)?;
        if figures.is_empty() {
            statements.say_absent(&budget.figure);
        }
        let level = FALSE_ALARMS / figures.len().max(1) as f64;
        for figure in &figures {
            if let Some(most) = budget.max {
                let of = |figure: &Figure, level| {
                    of_max(budget, figure, most, level, &statements, report)
                };
                let of_parts = match parts(sides, figure, false) {
                    Parts::Each(parts) => of_worst(&parts, level, of),
                    Parts::One | Parts::Unlike(_) => None,
                };
                rows.push(of_parts.unwrap_or_else(|| of(figure, level)));
            }
            if let Some(increase) = budget.max_increase {
                let verdict = verdict.as_ref().filter(|_| figure.name == "time.wall_ns");
                let controlled = drift == Drift::Allowed || in_turn[usize::from(figure.probed)];
                let of = |figure: &Figure, level, unlike: Option<String>, verdict| {
                    let obstacle = (obstacle(figure, &statements, controlled))
                        .or(unlike)
                        .or_else(|| base_is_low(figure))
                        .or_else(|| too_few(figure, increase, varying));
                    of_increase(
                        budget,
                        figure,
                        increase,
                        level,
                        obstacle.as_deref(),
                        verdict,
                        has_base,
                        report,
                    )
                };
                let (of_parts, unlike) = match parts(sides, figure, true) {
                    Parts::One => (None, None),
                    Parts::Unlike(reason) => (None, Some(reason)),
                    Parts::Each(parts) => {
                        // Pairs are of all runs.
                        let part = |figure: &Figure, level| of(figure, level, None, None);
                        (of_worst(&parts, level, part), None)
                    }
                };
                rows.push(of_parts.unwrap_or_else(|| of(figure, level, unlike, verdict)));
            }
        }
    }
    rows.sort_by_key(|row| row.status);
    let outcome = match rows.first().map(|row| row.status) {
        Some(Status::Over) => Outcome::Over,
        Some(Status::CannotTell) => Outcome::CannotTell,
        // Optional budgets only, of which none is there.
        None | Some(Status::Unsure | Status::Within) => Outcome::Within,
    };
    Ok(Checked {
        schema: 1,
        outcome,
        statements: statements.list,
        rows,
    })
}

/// How to judge a figure of runs that were not all made and recorded alike.
enum Parts {
    /// They were, as far as it matters.
    One,
    /// Each part of them apart: the name of its setting, and the figure.
    Each(Vec<(String, Figure)>),
    /// Why the sides cannot be compared: theirs are not the same.
    Unlike(String),
}

/// The parts of the runs of head, and if `both` those of base, that a figure can differ by: versions of node, and where it varies with the
/// machine also ways of recording, kernels and machines. The median of all would be that of the largest part, whatever became of the others.
fn parts(sides: &Sides<'_>, figure: &Figure, both: bool) -> Parts {
    let table = sides.figures.table(figure.list);
    let of_machine = figure.is_of_machine() || figure.name.starts_with("overhead.");
    let [base, head] = sides.runs_of(figure.list, figure.row);
    let settings = |of: &[usize]| -> BTreeMap<usize, Setting> {
        let is_known = |run: &&usize| !table.value(figure.row, **run, figure.field).is_nan();
        let setting = |run: &usize| (*run, Setting::of(sides.runs[*run], true, of_machine));
        let mut known: BTreeMap<_, _> = of.iter().filter(is_known).map(setting).collect();
        Setting::fill(known.values_mut());
        known
    };
    let mut of_run = settings(head);
    let of_head: BTreeSet<Setting> = of_run.values().cloned().collect();
    if both {
        let known = settings(base);
        let of_base: BTreeSet<Setting> = known.values().cloned().collect();
        of_run.extend(known);
        if of_base.len() < 2 && of_head.len() < 2 {
            return Parts::One;
        }
        if of_base != of_head {
            let all: BTreeSet<Setting> = of_base.union(&of_head).cloned().collect();
            let names: BTreeMap<_, _> = all.iter().zip(Setting::names(&all)).collect();
            let shown = |of: &BTreeSet<Setting>| {
                let names = of.iter().filter_map(|setting| names.get(setting).cloned());
                names.collect::<Vec<_>>().join(" and of ")
            };
            return Parts::Unlike(format!(
                "the runs of {} are of {}, those of {} of {}; needed: runs of the same on both sides",
                sides.base.name,
                shown(&of_base),
                sides.head.name,
                shown(&of_head)
            ));
        }
    } else if of_head.len() < 2 {
        return Parts::One;
    }
    let of = |setting: &Setting| of_run.values().filter(|other| *other == setting).count();
    let all: usize = of_head.iter().map(of).sum();
    let named = of_head.iter().zip(Setting::names(&of_head));
    let each = named.map(|(setting, name)| {
        let keep = |run: usize| of_run.get(&run) == Some(setting);
        let part = Figure::of(sides, table, (figure.row, figure.field), &keep);
        (format!("{name} ({} of {all} runs)", of(setting)), part)
    });
    Parts::Each(each.collect())
}

/// What became of the part of which a limit is kept least.
fn of_worst(
    parts: &[(String, Figure)],
    level: f64,
    judge: impl Fn(&Figure, f64) -> Row,
) -> Option<Row> {
    let level = level / parts.len().max(1) as f64;
    let rows = parts.iter().map(|(name, figure)| {
        let mut row = judge(figure, level);
        row.sentence = format!("{name}: {}", row.sentence);
        row
    });
    let beyond = |row: &Row| row.head.map_or(f64::INFINITY, |head| head - row.most);
    let worse = |a: &Row, b: &Row| (a.status.cmp(&b.status)).then(beyond(b).total_cmp(&beyond(a)));
    rows.min_by(worse)
}

/// Figures that a budget names.
fn named(sides: &Sides<'_>, budget: &Budget) -> Result<Vec<Figure>, BudgetError> {
    let mut found = Vec::new();
    // Of a list that is longer than most, the most similar name.
    let mut example = ("crossings.total".to_owned(), usize::MAX);
    for table in &sides.figures.tables {
        for row in 0..table.names.len() {
            for field in 0..table.list.fields().len() {
                let name = table.figure(row, field);
                if !matches(&budget.figure, &name) {
                    let distance = distance(&budget.figure, &name);
                    if distance < example.1 {
                        example = (name, distance);
                    }
                    continue;
                }
                found.push(Figure::of(sides, table, (row, field), &|_| true));
            }
        }
    }
    if found.is_empty() && !budget.optional {
        return Err(BudgetError::Unknown {
            figure: budget.figure.clone(),
            example: example.0,
        });
    }
    if let Some(limit) = budget.unit
        && let Some(other) = found.iter().find(|figure| figure.unit != limit)
    {
        let fitting = found.iter().find(|figure| figure.unit == limit);
        let narrower = fitting.unwrap_or(other);
        return Err(BudgetError::Unit {
            pattern: budget.figure.clone(),
            figure: other.name.clone(),
            unit: other.unit,
            limit,
            narrower: narrowed(&budget.figure, &narrower.name),
            narrower_unit: narrower.unit,
        });
    }
    // A wildcard over lists finds rows that only base has, too: there is nothing to limit.
    let list = |name: &str| {
        List::ALL
            .iter()
            .any(|list| !list.name().is_empty() && name.starts_with(list.name()))
    };
    let only_base = |figure: &Figure| {
        let head = &figure.head;
        list(&figure.name) && !head.is_empty() && head.iter().all(|value| *value == 0.0)
    };
    if found.len() > 1 {
        found.retain(|figure| !only_base(figure));
    }
    Ok(found)
}

/// The pattern with the field of a figure that it names.
fn narrowed(pattern: &str, figure: &str) -> String {
    match (pattern.rsplit_once("]."), figure.rsplit_once("].")) {
        (Some((rows, _)), Some((_, field))) => format!("{rows}].{field}"),
        _ => figure.to_owned(),
    }
}

/// How different two names are: characters that are not in a common beginning or end.
fn distance(a: &str, b: &str) -> usize {
    let begin = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let end = (a.bytes().rev().zip(b.bytes().rev()))
        .take_while(|(a, b)| a == b)
        .count();
    let shorter = a.len().min(b.len());
    a.len().max(b.len()) - (begin + end).min(shorter)
}

fn row(budget: &Budget, figure: &Figure, limit: &'static str, most: f64) -> Row {
    let median = |values: &[f64]| Spread::of(values).map(|spread| spread.median);
    Row {
        budget: budget.figure.clone(),
        figure: figure.name.clone(),
        unit: figure.unit,
        limit,
        most,
        base: median(&figure.base),
        head: median(&figure.head),
        status: Status::CannotTell,
        sentence: String::new(),
    }
}

fn moments(values: &[f64]) -> Moments {
    let known: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let count = known.len();
    let mean = known.iter().sum::<f64>() / count.max(1) as f64;
    let squares: f64 = known.iter().map(|value| (value - mean).powi(2)).sum();
    Moments {
        count,
        mean,
        variance: squares / count.saturating_sub(1).max(1) as f64,
    }
}

fn of_max(
    budget: &Budget,
    figure: &Figure,
    most: f64,
    level: f64,
    statements: &Statements,
    report: &str,
) -> Row {
    let mut row = row(budget, figure, "max", most);
    let unit = figure.unit;
    let limit = words::figure(most, unit);
    let Some(head) = row.head else {
        row.sentence = not_known(&figure.name, report);
        return row;
    };
    let shown = words::figure(head, unit);
    let head_moments = moments(&figure.head);
    let unusable = statements
        .unusable
        .as_ref()
        .or(statements.mixed[1].as_ref());
    // The mean against a number: Welch's test with a side that does not vary.
    let exactly = Moments {
        count: usize::MAX / 2,
        mean: most,
        variance: 0.0,
    };
    row.status = match Welch::of_moments(exactly, head_moments) {
        _ if unusable.is_some() => Status::CannotTell,
        _ if head <= most => Status::Within,
        _ if figure.is_constant(&figure.head) => Status::Over,
        Some(welch) if welch.difference > 0.0 && welch.p / 2.0 < level => Status::Over,
        Some(_) => Status::Unsure,
        None => Status::CannotTell,
    };
    let hidden = figure.left_out[1] > 0 && figure.bounds[1] > most;
    if let Some(reason) =
        head_is_low(figure, row.status, hidden, report).filter(|_| unusable.is_none())
    {
        row.status = Status::CannotTell;
        row.sentence = format!("{shown}, at most {limit}: {reason}");
        return row;
    }
    row.sentence = match row.status {
        Status::Within => format!(
            "{shown}, at most {limit}{}",
            Figure::left_out(&figure.left_out[1..])
        ),
        Status::Over => format!(
            "{shown} is over {limit}{}",
            Figure::left_out(&figure.left_out[1..])
        ),
        Status::Unsure => format!(
            "{shown} is over {limit}, but {}{}",
            unsure(head_moments.count),
            Figure::left_out(&figure.left_out[1..])
        ),
        Status::CannotTell => match unusable {
            Some(reason) => reason.clone(),
            None => format!(
                "{shown} is over {limit} in {}, and how much it varies is not known; needed: more runs",
                match head_moments.count {
                    1 => "one run".to_owned(),
                    runs => format!("all of {runs} runs"),
                }
            ),
        },
    };
    row
}

/// Why it cannot be told how much a figure grew.
fn obstacle(figure: &Figure, statements: &Statements, controlled: bool) -> Option<String> {
    let of_machine = (statements.obstacle.as_ref()).filter(|_| figure.is_of_machine());
    let mixed = statements.mixed.iter().flatten().next();
    let reason = (statements.unusable.as_ref())
        .or(mixed)
        .or(of_machine)
        .cloned();
    let drift = || {
        (figure.unit == Unit::Ns && !controlled).then(|| {
            "base and head were not run in turn, and the machine can have changed; needed: runs of nodeprof compare; to judge times all the same, type: --allow-drift".to_owned()
        })
    };
    reason.or_else(drift)
}

/// Why it cannot be told how much a count grew from what base did not see.
fn base_is_low(figure: &Figure) -> Option<String> {
    figure.low[0].then(|| {
        "something of base was not seen, so its count is too low; needed: a base without gaps"
            .to_owned()
    })
}

/// Why a limit may be exceeded although what was seen is not over it for certain. `hidden`: with the runs that are left out it can be.
fn head_is_low(figure: &Figure, status: Status, hidden: bool, report: &str) -> Option<String> {
    let is_sure = status == Status::Over && figure.is_more_without_gaps();
    let is_low = figure.low[1] || hidden;
    (is_low && !is_sure).then(|| {
        format!(
            "something of the runs was not seen, so the count is too low; needed: runs without gaps; to see what is missing, type: {report}"
        )
    })
}

/// Why a count that is larger on head may be so by luck: one that varies can show one value in all runs of base and another in all of head.
fn too_few(figure: &Figure, increase: Increase, varying: usize) -> Option<String> {
    let (base, head) = (Spread::of(&figure.base)?, Spread::of(&figure.head)?);
    let permitted = match increase {
        Increase::By(by) => by,
        Increase::Share(share) => base.median * share,
    };
    let larger = head.median - base.median > permitted;
    let same = figure.is_constant(&figure.base) && figure.is_constant(&figure.head);
    let known = compare::constant_change(varying, base.runs, head.runs).is_known();
    (larger && same && !known).then(|| {
        format!(
            "{} → {}, in {} and {}: too few to know that it does not vary; needed: {} runs with probes a side",
            words::figure(base.median, figure.unit),
            words::figure(head.median, figure.unit),
            base.runs,
            crate::wording::counted(head.runs as u64, "# run[|s]"),
            compare::runs_needed(varying)
        )
    })
}

#[allow(clippy::too_many_arguments, reason = "each is of another kind")]
fn of_increase(
    budget: &Budget,
    figure: &Figure,
    increase: Increase,
    level: f64,
    obstacle: Option<&str>,
    verdict: Option<&Verdict>,
    has_base: bool,
    report: &str,
) -> Row {
    let mut row = row(budget, figure, "max-increase", 0.0);
    let unit = figure.unit;
    if !has_base {
        row.sentence = "needs a base to compare with; type: --against BASE".to_owned();
        return row;
    }
    let (Some(base), Some(head)) = (row.base, row.head) else {
        row.sentence = not_known(&figure.name, report);
        return row;
    };
    let permitted = match increase {
        Increase::By(by) => by,
        Increase::Share(share) => base * share,
    };
    row.most = base + permitted;
    let allowed = match increase {
        Increase::By(by) => words::figure(by, unit),
        Increase::Share(share) => words::percent(share),
    };
    let shown = format!(
        "{} → {} ({})",
        words::figure(base, unit),
        words::figure(head, unit),
        words::signed(head - base, unit)
    );
    let (of_base, of_head) = (moments(&figure.base), moments(&figure.head));
    let shifted = Moments {
        mean: of_base.mean + permitted,
        ..of_base
    };
    row.status = match Welch::of_moments(shifted, of_head) {
        _ if obstacle.is_some() => Status::CannotTell,
        _ if head - base <= permitted => Status::Within,
        _ if figure.is_constant(&figure.base) && figure.is_constant(&figure.head) => Status::Over,
        // Pairs tell more than two groups.
        _ if verdict.is_some_and(|verdict| verdict.rule == Rule::Pairs) => {
            match verdict.and_then(|verdict| verdict.interval) {
                Some([low, _]) if (low - 1.0) * base > permitted => Status::Over,
                Some(_) => Status::Unsure,
                // So few pairs have no interval that is sure enough.
                None => Status::CannotTell,
            }
        }
        Some(welch) if welch.difference > 0.0 && welch.p / 2.0 < level => Status::Over,
        Some(_) => Status::Unsure,
        None => Status::CannotTell,
    };
    let hidden = figure.left_out != [0, 0] && figure.bounds[1] - figure.bounds[0] > permitted;
    if let Some(reason) =
        head_is_low(figure, row.status, hidden, report).filter(|_| obstacle.is_none())
    {
        row.status = Status::CannotTell;
        row.sentence = format!("{shown}, at most {allowed} more: {reason}");
        return row;
    }
    row.sentence = match row.status {
        Status::Within => format!(
            "{shown}, at most {allowed} more{}",
            Figure::left_out(&figure.left_out)
        ),
        Status::Over => format!(
            "{shown} is more than {allowed} more{}",
            Figure::left_out(&figure.left_out)
        ),
        Status::Unsure => format!(
            "{shown} is more than {allowed} more, but {}{}",
            unsure(of_base.count.min(of_head.count)),
            Figure::left_out(&figure.left_out)
        ),
        Status::CannotTell => match obstacle {
            Some(reason) => reason.to_owned(),
            None => format!(
                "{shown} is more than {allowed} more, and how much it varies is not known; needed: more runs"
            ),
        },
    };
    row
}

/// Why a limit that the median exceeds is not said to be exceeded.
fn unsure(runs: usize) -> String {
    format!("{runs} runs that vary so much are too few to be certain")
}

fn not_known(figure: &str, report: &str) -> String {
    format!(
        "{figure} was not recorded; needed: runs with probes of its family; to see why it was not, type: {report}"
    )
}
