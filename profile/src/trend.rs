//! A figure from commit to commit, or along any other label: its level, and where that changed.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::diff::Sides;
use crate::diff::compare::constant_change;
use crate::diff::figures::{Figures, List, Table, Unit, varies_with_machine};
use crate::diff::settings::Setting;
use crate::diff::sides::{Side, ending_of, program, usual};
use crate::diff::statements::failure;
use crate::groups::Group;
use crate::random::Random;
use crate::recording::RunId;
use crate::statistics::median;

/// Chance that a series without any change shows one.
pub const FALSE_ALARM: f64 = 0.001;
/// Orders of the points, or runs, that are tried to know how often chance parts them so: of 1 in 1,000 there are 50.
const ORDERS: usize = 49_999;
/// So many runs of a point that are alike show that a count does not vary by itself.
const REPEATS: usize = 5;

/// A figure along the values of a label.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trend {
    /// Name of the figure, as budgets take it.
    pub figure: String,
    /// Its unit.
    pub unit: Unit,
    /// What a change must exceed.
    pub noise: Noise,
    /// Label by which the runs are grouped.
    pub by: String,
    /// The programs that the runs are of, the most frequent first, with the number of runs of each. Of several no change is looked for: a
    /// point differs from its neighbours by which of them it has.
    pub programs: Vec<(String, usize)>,
    /// Runs that are in no point, for something of them is missing: their counts are too low by that. Of times and memory none.
    pub left_out: usize,
    /// Runs that are in no point, for they failed, or ended otherwise than most of those that did not.
    pub ended_otherwise: usize,
    /// No run came to a good end: points are of those that failed as most did.
    pub all_failed: bool,
    /// Where the figure depends on how a run was recorded and where: the modes, probes, kernels and machines of the runs of the points, the most
    /// frequent first. Of several, changes are those of the runs of one among themselves.
    pub settings: Vec<Recorded>,
    /// One for each value of the label, in the order in which they first ran.
    pub points: Vec<Point>,
}

/// Runs that were recorded alike, on one kernel and machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// What these differ by from the others; empty if there are none.
    pub name: String,
    /// How many there are.
    pub runs: usize,
    /// In how many points.
    pub points: usize,
}

/// The runs with one value of the label.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The value.
    pub value: String,
    /// Runs whose figure is known.
    pub runs: usize,
    /// Median; null if it is not known of any run.
    pub median: Option<f64>,
    /// Least.
    pub minimum: Option<f64>,
    /// Largest.
    pub maximum: Option<f64>,
    /// Start of the first run, ns since the Unix epoch.
    pub first_unix_ns: u64,
    /// What this point changed; null if nothing.
    pub change: Option<Change>,
}

/// A new level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Median of the level before: of the points' medians if the figure varies with the machine, else of the runs.
    pub before: f64,
    /// The same of the level from here on.
    pub after: f64,
    /// A count that does not vary by itself differs. If false, `p` tells how likely chance is.
    pub exact: bool,
    /// How often chance parts ranks so far at any of the places where this change was looked for: ranks of the points' medians if the figure
    /// varies with the machine, else of the runs. Null if `exact`.
    pub p: Option<f64>,
}

/// Why there is no trend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrendError {
    /// The figure is in no run.
    #[error(
        "no run has a figure {figure:?}; needed: one of the JSON of a report, such as crossings.total, time.wall_ns or packages[express].self_ns"
    )]
    NoFigure {
        /// What was asked for.
        figure: String,
    },
    /// No run has the label.
    #[error("no run has a label {by:?}; needed: one that runs have, such as commit")]
    NoLabel {
        /// What was asked for.
        by: String,
    },
}

impl Trend {
    /// The figure of these runs, along a label.
    ///
    /// # Errors
    /// [`TrendError`], if no run has the figure or the label.
    pub fn new(side: &Side<'_>, figure: &str, by: &str) -> Result<Trend, TrendError> {
        let nothing = Side {
            recording: side.recording,
            profile: side.profile,
            group: Group::default(),
        };
        let sides = Sides::new(&nothing, side);
        let Some(of) = Found::in_figures(&sides.figures, figure) else {
            let figure = figure.to_owned();
            return Err(TrendError::NoFigure { figure });
        };
        let unit = of.table.unit(of.row, of.field);
        let noise = Noise::of(figure, unit);
        let depends_on_recording = noise == Noise::Machine || figure.starts_with("overhead.");
        let along = Along::new(side, by, |run| of.value(run));
        if along.points.is_empty() {
            return Err(TrendError::NoLabel { by: by.to_owned() });
        }
        let taken = Taken::new(&sides, &of, &along, depends_on_recording);
        let mut points: Vec<Point> = (along.points.iter().zip(&taken.series))
            .map(|((value, first), known)| Point {
                value: (*value).to_owned(),
                runs: known.len(),
                median: median(known),
                minimum: known.iter().copied().reduce(f64::min),
                maximum: known.iter().copied().reduce(f64::max),
                first_unix_ns: *first,
                change: None,
            })
            .collect();
        let recorded = by_setting(taken.recorded);
        if taken.programs.len() < 2 {
            mark_changes(&mut points, &recorded, noise);
        }
        let mut programs: Vec<(String, usize)> = taken.programs.into_iter().collect();
        programs.sort_by_key(|(_, runs)| std::cmp::Reverse(*runs));
        Ok(Trend {
            figure: figure.to_owned(),
            unit,
            noise,
            by: by.to_owned(),
            programs,
            left_out: taken.left_out,
            ended_otherwise: taken.ended_otherwise,
            all_failed: taken.all_failed,
            settings: recorded.into_iter().map(|(of, _)| of).collect(),
            points,
        })
    }
}

/// Where the values of a figure are.
struct Found<'f> {
    table: &'f Table,
    row: usize,
    field: usize,
}

impl<'f> Found<'f> {
    fn in_figures(figures: &'f Figures, figure: &str) -> Option<Found<'f>> {
        figures.tables.iter().find_map(|table| {
            let fields = 0..table.list.fields().len();
            let mut all =
                fields.flat_map(|field| (0..table.names.len()).map(move |row| (row, field)));
            let (row, field) = all.find(|(row, field)| table.figure(*row, *field) == figure)?;
            Some(Found { table, row, field })
        })
    }

    fn value(&self, run: usize) -> f64 {
        self.table.value(self.row, run, self.value_field())
    }

    fn is_low(&self, run: usize) -> bool {
        self.table.is_low(self.row, run, self.value_field())
    }

    /// Of the run itself each figure is a row of one field.
    fn value_field(&self) -> usize {
        match self.table.list {
            List::Run => 0,
            _ => self.field,
        }
    }
}

/// The runs along a label, as they started.
struct Along<'a> {
    /// Values of the label, and when the first run of each started.
    points: Vec<(&'a str, u64)>,
    /// Of runs whose figure is known: place of the point, run, figure.
    values: Vec<(usize, usize, f64)>,
}

impl<'a> Along<'a> {
    fn new(side: &Side<'a>, by: &str, value: impl Fn(usize) -> f64) -> Along<'a> {
        let recording = side.recording;
        let run_of = |id: &RunId| recording.runs.get(id.0 as usize);
        let started = |id: &RunId| run_of(id).map_or(0, |run| run.started_unix_ns);
        let mut runs: Vec<_> = side.group.runs.iter().enumerate().collect();
        runs.sort_by_key(|(_, id)| started(id));
        let mut along = Along {
            points: Vec::new(),
            values: Vec::new(),
        };
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, id) in runs {
            let Some(label) = run_of(id).and_then(|run| run.label(by)) else {
                continue;
            };
            let place = *places.entry(label).or_insert_with(|| {
                along.points.push((label, started(id)));
                along.points.len() - 1
            });
            let known = value(index);
            if known.is_finite() {
                along.values.push((place, index, known));
            }
        }
        along
    }
}

/// The runs that are taken, and why others are not.
struct Taken {
    /// The figures of each point.
    series: Vec<Vec<f64>>,
    /// The same of runs that were recorded alike.
    recorded: BTreeMap<Setting, Vec<Vec<f64>>>,
    /// How many are of each program.
    programs: BTreeMap<String, usize>,
    left_out: usize,
    ended_otherwise: usize,
    all_failed: bool,
}

impl Taken {
    fn new(sides: &Sides<'_>, of: &Found, along: &Along, depends_on_recording: bool) -> Taken {
        let runs = along.values.iter().map(|(_, run, _)| sides.runs[*run]);
        let endings: Vec<_> = runs.map(ending_of).collect();
        let of_good = usual(endings.iter().filter(|of| failure(of).is_none()).cloned());
        let all_failed = of_good.is_none() && !endings.is_empty();
        let expected = of_good.or_else(|| usual(endings.iter().cloned()));
        let nothing = || vec![Vec::new(); along.points.len()];
        let mut taken = Taken {
            series: nothing(),
            recorded: BTreeMap::new(),
            programs: BTreeMap::new(),
            left_out: 0,
            ended_otherwise: 0,
            all_failed,
        };
        for (&(place, run, value), ending) in along.values.iter().zip(endings) {
            if Some(ending) != expected {
                taken.ended_otherwise += 1;
            } else if of.is_low(run) {
                taken.left_out += 1;
            } else {
                let profile = sides.runs[run];
                taken.series[place].push(value);
                let setting = Setting::of(profile, false, depends_on_recording);
                let alike = taken.recorded.entry(setting);
                alike.or_insert_with(nothing)[place].push(value);
                *taken.programs.entry(program(profile)).or_default() += 1;
            }
        }
        taken
    }
}

/// Runs that were recorded alike under a name, the most frequent first.
fn by_setting(recorded: BTreeMap<Setting, Vec<Vec<f64>>>) -> Vec<(Recorded, Vec<Vec<f64>>)> {
    let known: BTreeSet<Setting> = recorded.keys().cloned().collect();
    let mut recorded: Vec<(Recorded, Vec<Vec<f64>>)> = { Setting::names(&known).into_iter() }
        .zip(recorded.into_values())
        .map(|(name, values)| {
            let of = Recorded {
                name,
                runs: values.iter().map(Vec::len).sum(),
                points: values.iter().filter(|point| !point.is_empty()).count(),
            };
            (of, values)
        })
        .collect();
    recorded.sort_by_key(|(of, _)| std::cmp::Reverse(of.runs));
    recorded
}

/// Tells the points at which the level changes, of runs that were recorded alike among themselves.
fn mark_changes(points: &mut [Point], recorded: &[(Recorded, Vec<Vec<f64>>)], noise: Noise) {
    // With a part of the chance it takes one point more on each side: 2 of 12,870 ways to draw eight of sixteen are enough for six ways of recording.
    let more = if recorded.len() > 1 && noise == Noise::Machine {
        2
    } else {
        0
    };
    let can_change = |of: &Recorded| of.points >= noise.least_points() + more;
    let looked = recorded.iter().filter(|(of, _)| can_change(of)).count();
    let level = FALSE_ALARM / looked.max(1) as f64;
    for (of, values) in recorded {
        if !can_change(of) {
            continue;
        }
        for (at, change) in changes_below(values, noise, level) {
            points[at].change.get_or_insert(change);
        }
    }
}

/// What varies in a figure without a change of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Noise {
    /// Each run by itself, if anything: counts.
    Runs,
    /// The machine: times, memory, and CPU samples, which are times. Runs of one point were made in a row, while the machine was as it was
    /// then, and so are alike without being right: only what varies from point to point tells what chance does.
    Machine,
}

impl Noise {
    /// Of a figure.
    pub fn of(figure: &str, unit: Unit) -> Noise {
        match varies_with_machine(figure, unit) {
            true => Noise::Machine,
            false => Noise::Runs,
        }
    }
}

impl Noise {
    /// With fewer points there is no change, whatever they are.
    fn least_points(self) -> usize {
        match self {
            Noise::Runs => 2,
            Noise::Machine => 14,
        }
    }
}

/// Where the level of a series changes: index of the first point of the new level, and the change.
///
/// A count of which no point varies, and of which enough runs of at least half of the points show that, changes wherever one level meets
/// another, if both have so many runs that it is not luck; between such places, and where there are none, it is judged as any other. Anything else is parted as long as
/// chance parts ranks so far less often than [`FALSE_ALARM`], and places that the rest does not bear out are given up again: ranks of the
/// runs, where those before and after differ most; or, of what varies with the machine, of one value of each point, its median, where
/// these lie nearest to two levels.
pub fn changes(points: &[Vec<f64>], noise: Noise) -> Vec<(usize, Change)> {
    changes_below(points, noise, FALSE_ALARM)
}

/// The same with another chance than [`FALSE_ALARM`].
fn changes_below(points: &[Vec<f64>], noise: Noise, level: f64) -> Vec<(usize, Change)> {
    let known: Vec<usize> = (0..points.len())
        .filter(|at| !points[*at].is_empty())
        .collect();
    let steps = match noise {
        Noise::Runs => exact_steps(points, &known, level),
        Noise::Machine => None,
    };
    let Some(mut all) = steps else {
        return parted(points, &known, noise, level);
    };
    // Levels of few runs may hide a change between those around them.
    let starts: Vec<usize> = all.iter().map(|(at, _)| *at).collect();
    let between = known.chunk_by(|_, at| !starts.contains(at));
    let further: Vec<_> = between
        .flat_map(|known| parted(points, known, noise, level))
        .collect();
    all.extend(further);
    all.sort_by_key(|(at, _)| *at);
    all
}

/// The changes between these points, as ranks tell them.
fn parted(points: &[Vec<f64>], known: &[usize], noise: Noise, level: f64) -> Vec<(usize, Change)> {
    let levels = Levels {
        points: match noise {
            Noise::Runs => known.iter().map(|at| points[*at].clone()).collect(),
            Noise::Machine => { known.iter() }
                .map(|at| median(&points[*at]).into_iter().collect())
                .collect(),
        },
        noise,
        level,
    };
    let mut found = levels.part();
    // What parted a whole may not part its halves.
    loop {
        let bounds: Vec<usize> = { [0].into_iter() }
            .chain(found.iter().copied())
            .chain([known.len()])
            .collect();
        let places: Vec<Place> = { bounds.windows(3) }
            .map(|of| Place {
                first: of[0],
                at: of[1],
                end: of[2],
            })
            .collect();
        let chances: Vec<f64> = { places.iter() }
            .map(|place| levels.chance(place.first, place.end))
            .collect();
        let worst = (0..found.len()).max_by(|a, b| chances[*a].total_cmp(&chances[*b]));
        match worst {
            Some(at) if chances[at] >= level => {
                found.remove(at);
            }
            _ => {
                let changes = (places.iter().zip(chances))
                    .filter_map(|(place, p)| Some((known[place.at], levels.change(*place, p)?)));
                return changes.collect();
            }
        }
    }
}

/// The changes of a count of which enough runs show that it does not vary by itself; `None` if they do not.
fn exact_steps(points: &[Vec<f64>], known: &[usize], level: f64) -> Option<Vec<(usize, Change)>> {
    let constant = |values: &[f64]| values.iter().all(|value| *value == values[0]);
    let runs: usize = known.iter().map(|at| points[*at].len()).sum();
    let repeats = runs - known.len();
    let several = |at: usize| points[at].len() > 1;
    // Runs of one commit were made in a row, and say little of the others.
    let shown = known.iter().filter(|at| several(**at)).count();
    let is_constant = repeats >= REPEATS && known.iter().all(|at| constant(&points[*at]));
    if !is_constant || 2 * shown < known.len() {
        return None;
    }
    let value = |at: usize| points[at][0];
    let of_level: Vec<&[usize]> = known.chunk_by(|a, b| value(*a) == value(*b)).collect();
    let runs_of = |level: &[usize]| level.iter().map(|at| points[*at].len()).sum::<usize>();
    let steps: Vec<(usize, Change)> = { of_level.windows(2) }
        .filter_map(|pair| {
            let (before, after) = (runs_of(pair[0]), runs_of(pair[1]));
            let change = Change {
                before: value(pair[0][0]),
                after: value(pair[1][0]),
                exact: true,
                p: None,
            };
            // Two commits that are compared need as many; here several places could show it.
            let is_shown = constant_change(0, before, after).is_known()
                && luck(before.min(after), runs, known.len() - 1) < level;
            is_shown.then_some((pair[1][0], change))
        })
        .collect();
    let is_level = of_level.len() < 2;
    (is_level || !steps.is_empty()).then_some(steps)
}

/// Chance that a count that now and then has another value by itself has it at one of some places in all of so many runs in a row, and in
/// no other run: were it as often as explains that best.
fn luck(other: usize, runs: usize, places: usize) -> f64 {
    let share = other as f64 / runs as f64;
    let same = (runs - other) as f64;
    places as f64 * share.powf(other as f64) * (1.0 - share).powf(same)
}

/// A place between two points, and those around it that it parts.
#[derive(Clone, Copy)]
struct Place {
    first: usize,
    /// First point behind it.
    at: usize,
    end: usize,
}

/// The points of which something is known.
struct Levels {
    points: Vec<Vec<f64>>,
    noise: Noise,
    /// Chance below which two levels are parted.
    level: f64,
}

impl Levels {
    fn values(&self, first: usize, end: usize) -> Vec<f64> {
        self.points[first..end].concat()
    }

    /// Runs of each of these points that count.
    fn sizes(&self, first: usize, end: usize) -> Vec<usize> {
        self.points[first..end].iter().map(Vec::len).collect()
    }

    /// How often chance parts ranks so far at any place between these points: that there is a change between them, wherever it is.
    fn chance(&self, first: usize, end: usize) -> f64 {
        chance_of_orders(&ranks(&self.values(first, end)), &self.sizes(first, end))
    }

    /// Where these points part most.
    fn best(&self, first: usize, end: usize) -> Option<usize> {
        // Of those that are alike the first.
        let least = |a: &(usize, f64), b: &(usize, f64)| a.1.total_cmp(&b.1);
        let places = first + 1..end;
        let (at, _) = match self.noise {
            Noise::Runs => {
                let ranks = ranks(&self.values(first, end));
                let sizes = self.sizes(first, end);
                let near = distances(&ranks, &sizes).map(|distance| -distance);
                places.zip(near).min_by(least)
            }
            // Ranks alone would take the last point before a step for one behind it if it is the largest of those before.
            Noise::Machine => {
                let off = |at: usize| {
                    [self.values(first, at), self.values(at, end)]
                        .iter()
                        .map(|level| off_median(level))
                        .sum()
                };
                places.map(|at| (at, off(at))).min_by(least)
            }
        }?;
        Some(at)
    }

    /// All places where the points part more than by chance, in order.
    fn part(&self) -> Vec<usize> {
        let mut found = Vec::new();
        // Spans that may still be parted.
        let mut open = vec![(0, self.points.len())];
        while let Some((first, end)) = open.pop() {
            if let Some(at) = self.best(first, end)
                && self.chance(first, end) < self.level
            {
                found.push(at);
                open.extend([(first, at), (at, end)]);
            }
        }
        found.sort_unstable();
        found
    }

    fn change(&self, place: Place, p: f64) -> Option<Change> {
        Some(Change {
            before: median(&self.values(place.first, place.at))?,
            after: median(&self.values(place.at, place.end))?,
            exact: false,
            p: Some(p),
        })
    }
}

/// How far values are from their median in all.
fn off_median(values: &[f64]) -> f64 {
    let median = median(values).unwrap_or_default();
    values.iter().map(|value| (value - median).abs()).sum()
}

/// Twice the rank of each value, from 2 on; values that are alike share theirs.
fn ranks(values: &[f64]) -> Vec<i64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0; values.len()];
    let mut below = 0;
    for alike in order.chunk_by(|a, b| values[*a] == values[*b]) {
        for at in alike {
            ranks[*at] = (2 * below + alike.len() + 1) as i64;
        }
        below += alike.len();
    }
    ranks
}

/// For each place between two points, which have so many of these: how far the ranks before it are from what chance expects, as a square,
/// measured by how far they vary. Alike sums are alike to the bit: they are quotients of whole numbers.
fn distances<'r>(ranks: &'r [i64], sizes: &'r [usize]) -> impl Iterator<Item = f64> + 'r {
    let count = ranks.len() as i64;
    let (mut before, mut off) = (0, 0);
    let places = sizes.len().saturating_sub(1);
    sizes.iter().take(places).map(move |size| {
        off += { ranks[before..before + size].iter() }.sum::<i64>() - *size as i64 * (count + 1);
        before += size;
        // The square of many runs is more than an integer holds.
        (off as f64 * off as f64) / (before as i64 * (count - before as i64)) as f64
    })
}

/// How often these ranks in any order are as far from what chance expects, at the place between points where they are farthest, as in this
/// one: right whatever the values and however many are alike. Not more is found out than needed: from [`FALSE_ALARM`] on it is about so.
fn chance_of_orders(ranks: &[i64], sizes: &[usize]) -> f64 {
    let farthest = distances(ranks, sizes).fold(0.0, f64::max);
    // The same figures always have the same changes.
    let mut random = Random::new(0x6a09_e667_f3bc_c908);
    let mut ranks = ranks.to_vec();
    let enough = (FALSE_ALARM * (ORDERS + 1) as f64) as usize;
    let (mut as_far, mut tried) = (0, 0);
    while tried < ORDERS && as_far < enough {
        random.shuffle(&mut ranks);
        tried += 1;
        as_far += usize::from(distances(&ranks, sizes).any(|of| of >= farthest));
    }
    // The order that was seen is one of them.
    (as_far + 1) as f64 / (tried + 1) as f64
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;
    use crate::Profile;
    use crate::Recording;
    use crate::random::Random;

    /// About 100, spread as the sum of twelve dice.
    fn noise(random: &mut Random) -> f64 {
        94.0 + (0..12).map(|_| random.fraction()).sum::<f64>()
    }

    fn series(random: &mut Random, points: usize, runs: usize) -> Vec<Vec<f64>> {
        (0..points)
            .map(|_| (0..runs).map(|_| noise(random)).collect())
            .collect()
    }

    #[test]
    fn noise_has_no_change_more_often_than_stated() {
        let mut random = Random::new(1);
        let alarms = (0..400)
            .filter(|_| !changes(&series(&mut random, 20, 5), Noise::Machine).is_empty())
            .count();
        // 0.4 expected; more than 3 in 1 of 1,000.
        assert!(alarms <= 3, "{alarms}");
    }

    /// Runs that are alike, of a machine that is another one for each point.
    fn drifting(random: &mut Random, points: usize, runs: usize) -> Vec<Vec<f64>> {
        let of_point = |random: &mut Random| {
            let drift = 3.0 * noise(random);
            (0..runs).map(|_| drift + noise(random)).collect()
        };
        (0..points).map(|_| of_point(random)).collect()
    }

    #[test]
    fn a_machine_that_drifts_is_no_change_more_often_than_stated() {
        let mut random = Random::new(3);
        let (mut alarms, mut of_runs) = (0, 0);
        for index in 0..400 {
            let points = drifting(&mut random, 20, 8);
            alarms += usize::from(!changes(&points, Noise::Machine).is_empty());
            if index < 5 {
                of_runs += usize::from(!changes(&points, Noise::Runs).is_empty());
            }
        }
        // 0.4 expected; more than 3 in 1 of 1,000.
        assert!(alarms <= 3, "{alarms}");
        // Taken each for itself, runs would say that most series change.
        assert!(of_runs > 2, "{of_runs}");
        // Eight starts on Monday, and eight of the same program on Tuesday.
        let days: Vec<Vec<f64>> = [100.0, 103.0]
            .map(|day| (0..8).map(|run| day + f64::from(run) / 10.0).collect())
            .into();
        assert_eq!(changes(&days, Noise::Machine), []);
        assert_eq!(changes(&days, Noise::Runs).len(), 1);
    }

    #[test]
    fn a_step_over_enough_points_is_found_whatever_drifts() {
        let mut random = Random::new(4);
        let mut found = 0;
        for _ in 0..50 {
            let mut points = drifting(&mut random, 20, 8);
            points[10..].iter_mut().flatten().for_each(|of| *of += 20.0);
            let places = changes(&points, Noise::Machine);
            found += usize::from(places.iter().map(|(at, _)| *at).eq([10]));
        }
        assert!(found >= 45, "{found} of 50");
    }

    /// A count that is 7, and now and then 8: one series for each number of runs a point, of which there are these in turn.
    fn rarely_varying(
        random: &mut Random,
        points: usize,
        runs: &[usize],
        rate: f64,
    ) -> Vec<Vec<f64>> {
        let mut run = || if random.fraction() < rate { 8.0 } else { 7.0 };
        (0..points)
            .map(|at| (0..runs[at % runs.len()]).map(|_| run()).collect())
            .collect()
    }

    #[test]
    fn a_count_that_rarely_varies_has_no_change_more_often_than_stated() {
        let mut random = Random::new(6);
        for (points, runs, rate) in [
            (20, &[1][..], 0.05),
            (20, &[2], 0.05),
            (30, &[2], 0.03),
            (8, &[3], 0.12),
            (20, &[3], 0.02),
            (20, &[3, 1], 0.05),
            (20, &[2, 1, 3], 0.05),
            (30, &[5], 0.02),
        ] {
            let alarms = (0..1000)
                .filter(|_| {
                    let points = rarely_varying(&mut random, points, runs, rate);
                    !changes(&points, Noise::Runs).is_empty()
                })
                .count();
            // 1 expected; more than 5 in 1 of 1,700.
            assert!(alarms <= 5, "{points} of {runs:?}, {rate}: {alarms}");
        }
    }

    #[test]
    fn a_step_of_a_count_that_rarely_varies_is_found_all_the_same() {
        let mut random = Random::new(7);
        for (points, runs) in [(20, &[1][..]), (20, &[3]), (20, &[2, 1, 3]), (30, &[5])] {
            let mut found = 0;
            for _ in 0..8 {
                let mut series = rarely_varying(&mut random, points, runs, 0.02);
                { series[10..].iter_mut().flatten() }.for_each(|count| *count += 1.0);
                let places = changes(&series, Noise::Runs);
                found += usize::from(places.iter().any(|(at, _)| at.abs_diff(10) < 2));
            }
            assert!(found >= 7, "{found} of 8, {points} of {runs:?}");
        }
    }

    /// As the documentation says.
    #[test]
    fn it_takes_seven_points_on_each_side_or_six_beside_fifteen() {
        let mut random = Random::new(5);
        for (few, many, expected) in [
            (5, 9, false),
            (6, 6, false),
            (6, 7, false),
            (7, 7, true),
            (7, 8, true),
            (9, 9, true),
            (2, 100, false),
            (6, 15, true),
            (6, 40, true),
            (7, 40, true),
        ] {
            for (before, after) in [(few, many), (many, few)] {
                let mut points = series(&mut random, before + after, 1);
                points[before..].iter_mut().for_each(|of| of[0] += 100.0);
                let found = changes(&points, Noise::Machine);
                let places: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
                let step: &[usize] = if expected { &[before] } else { &[] };
                assert_eq!(places, step, "{before}, {after}");
            }
        }
    }

    #[test]
    fn one_point_beside_many_that_are_alike_is_no_change() {
        let mut points = vec![vec![100.0]; 21];
        points[20] = vec![200.0];
        assert_eq!(changes(&points, Noise::Machine), []);
    }

    #[test]
    fn what_varies_with_the_machine_is_told_from_counts() {
        for (figure, noise) in [
            ("time.wall_ns", Noise::Machine),
            ("time.max_rss_bytes", Noise::Machine),
            ("packages[express].self_ns", Noise::Machine),
            ("packages[express].samples", Noise::Machine),
            ("samples.count", Noise::Machine),
            ("attribution.unattributed_samples_percent", Noise::Machine),
            ("crossings.total", Noise::Runs),
            ("packages[samples].crossings", Noise::Runs),
            ("serialization.bytes", Noise::Runs),
        ] {
            assert_eq!(Noise::of(figure, Unit::of(figure)), noise, "{figure}");
        }
    }

    #[test]
    fn planted_steps_are_found_where_they_are() {
        let mut random = Random::new(2);
        let mut exact = 0;
        for _ in 0..50 {
            let mut points = series(&mut random, 30, 5);
            points[10..]
                .iter_mut()
                .flatten()
                .for_each(|value| *value += 4.0);
            points[20..]
                .iter_mut()
                .flatten()
                .for_each(|value| *value -= 8.0);
            let found = changes(&points, Noise::Machine);
            let places: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
            exact += usize::from(places == [10, 20]);
            for (_, change) in found {
                assert!(change.p.unwrap() < FALSE_ALARM && !change.exact);
            }
        }
        assert!(exact >= 45, "{exact} of 50");
    }

    #[test]
    fn a_count_that_does_not_vary_changes_exactly_where_it_differs() {
        let mut points = vec![
            vec![7.0; 3],
            vec![],
            vec![7.0; 6],
            vec![8.0; 5],
            vec![7.0],
            vec![7.0; 6],
        ];
        let found = changes(&points, Noise::Runs);
        let steps: Vec<_> = found
            .iter()
            .map(|(at, c)| (*at, c.before, c.after, c.exact))
            .collect();
        assert_eq!(steps, [(3, 7.0, 8.0, true), (4, 8.0, 7.0, true)]);
        // What may be luck of two runs hides no change around it.
        let mut around = vec![vec![5.0; 5]; 6];
        around.extend(vec![vec![7.0; 5]; 6]);
        around.push(vec![8.0; 2]);
        around.extend(vec![vec![9.0; 5]; 6]);
        let found = changes(&around, Noise::Runs);
        let steps: Vec<_> = { found.iter() }
            .map(|(at, c)| (*at, c.before, c.after, c.exact))
            .collect();
        assert_eq!(steps.first(), Some(&(6, 5.0, 7.0, true)));
        let [_, (place, 7.0, 9.0, false)] = steps[..] else {
            panic!("{steps:?}");
        };
        assert!((12..14).contains(&place), "{place}");
        // Nor does it part what is alike.
        let mut between = vec![vec![5.0; 5]; 6];
        between.push(vec![8.0; 2]);
        between.extend(vec![vec![5.0; 5]; 6]);
        assert_eq!(changes(&between, Noise::Runs), []);
        // Too few runs of each to know that it does not vary; and a time is never exact.
        points[3] = vec![8.0; 2];
        assert_eq!(changes(&points, Noise::Runs), []);
        assert_eq!(changes(&[vec![7.0], vec![8.0], vec![8.0]], Noise::Runs), []);
        assert_eq!(changes(&points, Noise::Machine), []);
        assert_eq!(changes(&[], Noise::Machine), []);
    }

    /// Of a commit with one run nobody knows whether its count varies.
    #[test]
    fn one_commit_with_several_runs_says_nothing_of_the_others() {
        let one_each = |at: usize| vec![7.0 + (at % 2) as f64];
        let mut points: Vec<Vec<f64>> = (0..12).map(one_each).collect();
        points[4] = vec![7.0; 8];
        assert_eq!(changes(&points, Noise::Runs), []);
        // Nor do some others, of two that were run once.
        for at in [0, 2, 6, 8, 9, 10, 11] {
            points[at] = vec![7.0; 3];
        }
        assert_eq!(changes(&points, Noise::Runs), [], "one run against three");
        // Six against three are too few yet; against eight they are not.
        points[3] = vec![8.0; 6];
        let found = changes(&points, Noise::Runs);
        let places: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
        assert_eq!(places, [4]);
        // It varies where that can be seen: then it may anywhere.
        points[9] = vec![7.0, 8.0, 7.0];
        assert!(
            changes(&points, Noise::Runs)
                .iter()
                .all(|(_, change)| !change.exact)
        );
    }

    /// It is looked for at every place: a commit of two runs of a rare value comes up more often than between two commits.
    #[test]
    fn an_exact_change_takes_more_runs_than_luck_has_at_any_place() {
        for (commits, runs, expected) in
            [(30, 2, false), (30, 3, true), (2, 4, false), (2, 5, true)]
        {
            let mut points = vec![vec![7.0; runs]; commits];
            points[commits - 1] = vec![8.0; runs];
            let found = changes(&points, Noise::Runs);
            assert_eq!(found.len(), usize::from(expected), "{commits} of {runs}");
            assert!(
                found
                    .iter()
                    .all(|(at, change)| change.exact && *at == commits - 1)
            );
        }
    }

    #[test]
    fn a_figure_of_runs_is_followed_along_a_label_in_the_order_of_time() {
        let mut recording = Recording::default();
        for (index, (commit, crossings)) in [
            ("b", 20),
            ("a", 20),
            ("b", 20),
            ("a", 20),
            ("c", 30),
            ("c", 30),
            ("c", 30),
            ("a", 20),
            ("c", 30),
            ("c", 30),
            ("c", 30),
            ("c", 30),
        ]
        .into_iter()
        .enumerate()
        {
            let mut one = Recording::synthetic(crossings);
            one.runs[0].labels.push(("commit".into(), commit.into()));
            one.runs[0].started_unix_ns = 1000 + index as u64;
            recording.append(one);
        }
        let profile = Profile::from_recording(&recording);
        let group = Group::all(&recording, "");
        let side = Side {
            recording: &recording,
            profile: &profile,
            group,
        };
        let trend = Trend::new(&side, "crossings.total", "commit").unwrap();
        let points: Vec<_> = trend
            .points
            .iter()
            .map(|p| {
                (
                    p.value.as_str(),
                    p.runs,
                    p.first_unix_ns,
                    p.change.is_some(),
                )
            })
            .collect();
        assert_eq!(
            points,
            [
                ("b", 2, 1000, false),
                ("a", 3, 1001, false),
                ("c", 7, 1004, true)
            ]
        );
        assert_eq!(trend.programs.len(), 1);
        // Another program in the last commit is no change of the first.
        let mut mixed = recording.clone();
        mixed.runs[6].command = vec![b"npm".into(), b"ci".into()];
        let profile = Profile::from_recording(&mixed);
        let group = Group::all(&mixed, "");
        let of_mixed = Side {
            recording: &mixed,
            profile: &profile,
            group,
        };
        let trend_of_mixed = Trend::new(&of_mixed, "crossings.total", "commit").unwrap();
        let programs: Vec<_> = (trend_of_mixed.programs.iter())
            .map(|(name, runs)| (name.as_str(), *runs))
            .collect();
        assert_eq!(programs[1], ("npm ci", 1));
        assert_eq!(programs[0].1, 11);
        assert!(trend_of_mixed.points.iter().all(|p| p.change.is_none()));
        assert_eq!(trend.left_out, 0);
        let of = |figure: &str, by: &str| Trend::new(&side, figure, by).unwrap_err().to_string();
        assert!(of("crossing.total", "commit").contains("such as crossings.total"));
        assert!(of("crossings.total", "branch").contains("such as commit"));
    }

    fn of_all(recording: &Recording, figure: &str) -> Trend {
        let profile = Profile::from_recording(recording);
        let side = Side {
            recording,
            profile: &profile,
            group: Group::all(recording, ""),
        };
        Trend::new(&side, figure, "commit").unwrap()
    }

    /// Who came late, or lost records, has too few of all: that is no change of the program.
    #[test]
    fn a_run_with_gaps_is_no_change_of_a_count() {
        let mut recording = Recording::default();
        for index in 0..12 {
            let is_last = index >= 9;
            let mut one = Recording::synthetic(if is_last { 18 } else { 20 });
            one.runs[0]
                .labels
                .push(("commit".into(), (index / 3).to_string()));
            one.runs[0].started_unix_ns = 1000 + index;
            match index {
                9 => one.processes[0].incomplete = Some("late".into()),
                10 | 11 => one.losses.push(crate::recording::Loss {
                    run: crate::recording::RunId(0),
                    kind: ["records", crate::recording::EVENTS_BEYOND_LIMIT][index as usize - 10]
                        .into(),
                    count: 2,
                }),
                // Such a one is whole.
                _ => one.losses.push(crate::recording::Loss {
                    run: crate::recording::RunId(0),
                    kind: "records".into(),
                    count: 0,
                }),
            }
            recording.append(one);
        }
        let of = |figure: &str| {
            let trend = of_all(&recording, figure);
            let runs: Vec<usize> = trend.points.iter().map(|point| point.runs).collect();
            let changes = trend.points.iter().filter(|point| point.change.is_some());
            (runs, trend.left_out, changes.count())
        };
        assert_eq!(of("crossings.total"), (vec![3, 3, 3, 0], 3, 0));
        assert_eq!(of("time.wall_ns"), (vec![3, 3, 3, 3], 0, 0));
        // The kernel tells it of whole runs.
        assert_eq!(of("time.max_rss_bytes"), (vec![3, 3, 3, 3], 0, 0));
    }

    /// The trend of commits with one run each, made by these.
    fn of_commits(
        figure: &str,
        commits: usize,
        change: impl Fn(usize, &mut Recording, &mut u64),
    ) -> Trend {
        let mut recording = Recording::default();
        for at in 0..commits {
            let mut one = Recording::synthetic(20);
            let mut micros = 60_000 + (at as u64 * 7) % 5;
            one.runs[0].labels.push(("commit".into(), at.to_string()));
            one.runs[0].started_unix_ns = 1000 + at as u64;
            change(at, &mut one, &mut micros);
            one.runs[0].ended.0 = one.runs[0].started.0 + micros * 1000;
            recording.append(one);
        }
        of_all(&recording, figure)
    }

    fn marked(trend: &Trend) -> Vec<usize> {
        let points = trend.points.iter().enumerate();
        { points.filter(|(_, point)| point.change.is_some()) }
            .map(|(at, _)| at)
            .collect()
    }

    #[test]
    fn another_way_of_recording_is_no_change() {
        type Other = fn(&mut Recording);
        let label = |recording: &mut Recording, key: &str| {
            recording.runs[0].labels.push((key.into(), "other".into()));
        };
        let count: Other = |recording| recording.runs[0].mode = "count".into();
        let without: Other = |recording| {
            let mut families = recording.families.iter_mut();
            families.find(|of| of.name == "files").unwrap().state = "off".into();
        };
        let kernel: Other = |recording| recording.runs[0].labels[0] = ("kernel".into(), "6".into());
        for (other, name) in [
            (count, "mode count"),
            (without, "mode full without files"),
            (kernel, "kernel 6"),
        ] {
            let trend = of_commits("time.wall_ns", 20, |at, one, micros| {
                one.runs[0].labels.insert(0, ("kernel".into(), "5".into()));
                if at >= 10 {
                    *micros += 15_000;
                    other(one);
                }
            });
            assert_eq!(marked(&trend), Vec::<usize>::new(), "{name}");
            let settings: Vec<_> = (trend.settings.iter().map(|of| (of.runs, of.points))).collect();
            assert_eq!(settings, [(10, 10), (10, 10)], "{name}");
            let found = trend.settings.iter().any(|of| of.name.starts_with(name));
            assert!(found, "{:?}", trend.settings);
        }
        // What changes within one way is found all the same, and once.
        let trend = of_commits("time.wall_ns", 40, |at, one, micros| {
            if at % 4 == 0 {
                label(one, "machine");
                *micros += 30_000;
            }
            *micros += if at >= 20 { 5_000 } else { 0 };
        });
        assert_eq!(marked(&trend), [21]);
        assert_eq!(trend.settings.len(), 2);
        // A count is what it is, however it was recorded.
        let trend = of_commits("crossings.total", 20, |at, one, _| {
            if at >= 10 {
                let labels = one.runs[0].labels.clone();
                *one = Recording::synthetic(30);
                one.runs[0].labels = labels;
                one.runs[0].started_unix_ns = 1000 + at as u64;
                label(one, "kernel");
            }
        });
        assert_eq!((marked(&trend), trend.settings.len()), (vec![10], 1));
    }

    #[test]
    fn runs_that_fail_are_no_change() {
        let failing = |from: usize, commits: usize| {
            of_commits("time.wall_ns", commits, |at, one, micros| {
                if at >= from {
                    *micros -= 30_000;
                    one.runs[0].exit_status = Some(1);
                }
            })
        };
        // Also where they are the more frequent.
        for commits in [20, 25] {
            let trend = failing(10, commits);
            assert_eq!(marked(&trend), Vec::<usize>::new());
            assert_eq!(
                (trend.ended_otherwise, trend.all_failed),
                (commits - 10, false)
            );
            let runs: Vec<usize> = trend.points.iter().map(|point| point.runs).collect();
            assert_eq!(runs[9..12], [1, 0, 0]);
        }
        // A program that never does anything else.
        let trend = failing(0, 20);
        assert_eq!((trend.ended_otherwise, trend.all_failed), (0, true));
        assert!(trend.points.iter().all(|point| point.runs == 1));
        // Whoever waits for a signal ends otherwise than whoever was recorded to the end.
        let trend = of_commits("time.wall_ns", 20, |at, one, micros| {
            if at >= 14 {
                *micros += 30_000;
                one.runs[0].exit_status = None;
                one.runs[0].ended_by = "loop-start".into();
            }
        });
        assert_eq!(
            (marked(&trend), trend.ended_otherwise),
            (Vec::<usize>::new(), 6)
        );
    }
}
