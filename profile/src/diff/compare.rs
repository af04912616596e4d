//! One figure on two sides: is the difference exact, significant, or noise?

use std::collections::HashSet;

use serde::Serialize;

use super::figures::Unit;
use crate::statistics::{self, RankTest, Welch, stars};

/// What is known of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// A count that is the same in all runs of each side, and differs: no chance is involved.
    Exact,
    /// A figure that varies from run to run; a difference of such a size by chance is unlikely, all tests considered.
    Significant,
    /// It differs in all runs, but there are too few of them to know that it does not vary, or none in which all was seen.
    TooFewRuns,
    /// It differs, as chance can do.
    Noise,
    /// It does not differ.
    Same,
    /// A side does not know it.
    Unknown,
}

impl Certainty {
    /// Whether the difference is a fact.
    pub fn is_known(self) -> bool {
        matches!(self, Certainty::Exact | Certainty::Significant)
    }
}

/// Values of a figure on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Runs that know it.
    pub runs: usize,
    /// Least.
    pub minimum: f64,
    /// Median.
    pub median: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Most.
    pub maximum: f64,
    /// It is the same in all runs, of which there are at least two.
    pub constant: bool,
}

impl Spread {
    /// Of values that are known; `None` without any.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut known: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        known.sort_by(f64::total_cmp);
        let (first, last) = (*known.first()?, *known.last()?);
        Some(Spread {
            runs: known.len(),
            minimum: first,
            median: statistics::median(&known)?,
            mean: known.iter().sum::<f64>() / known.len() as f64,
            maximum: last,
            constant: known.len() > 1 && first == last,
        })
    }
}

/// A figure on two sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What it is called.
    pub figure: String,
    /// The list of the JSON that it is in; empty for figures of the run itself.
    pub list: &'static str,
    /// Its row: a callback, path, module or package.
    pub name: String,
    /// The field of the row.
    pub field: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// On base; `None` if it is not known there.
    pub base: Option<Spread>,
    /// On head.
    pub head: Option<Spread>,
    /// Median of head less median of base.
    pub difference: f64,
    /// What is known of the difference.
    pub certainty: Certainty,
    /// Probability of such a difference by chance; `None` where no test is possible or needed.
    pub p: Option<f64>,
    /// How its values vary from run to run: figures that vary together have the same.
    #[serde(skip)]
    pub pattern: u64,
    /// On base and head: a count that can be more, for in no run all was seen.
    #[serde(skip)]
    pub low: [bool; 2],
    /// `p`, adjusted for the number of tests of times, or of counts (Benjamini–Hochberg).
    pub adjusted_p: Option<f64>,
}

impl Change {
    /// Compares a figure; its certainty is provisional until [`settle`] has seen all of them.
    pub fn new(figure: String, unit: Unit, base: &[f64], head: &[f64]) -> Change {
        let (b, h) = (Spread::of(base), Spread::of(head));
        let mut change = Change {
            figure,
            list: "",
            name: String::new(),
            field: "",
            unit,
            base: b,
            head: h,
            difference: 0.0,
            certainty: Certainty::Unknown,
            p: None,
            pattern: pattern(base, b) ^ pattern(head, h).rotate_left(1),
            low: [false; 2],
            adjusted_p: None,
        };
        let (Some(b), Some(h)) = (b, h) else {
            return change;
        };
        change.difference = h.median - b.median;
        let apart = b.maximum < h.minimum || h.maximum < b.minimum;
        change.certainty = match (b.minimum == b.maximum, h.minimum == h.maximum) {
            (true, true) if !apart => Certainty::Same,
            // A time that is the same in all runs is one that was never spent: no need to test it either.
            (true, true) if b.constant && h.constant => Certainty::Exact,
            (true, true) => Certainty::TooFewRuns,
            _ => {
                change.p = chance(unit, base, head);
                match change.p {
                    // Of one run a side nothing tells chance; what both sides have is no difference all the same.
                    None if apart => Certainty::TooFewRuns,
                    _ => Certainty::Noise,
                }
            }
        };
        change
    }

    /// Whether what it counts came or went: all runs of one side have it, none of the other. Where not all was seen it can be there.
    pub fn presence(&self) -> Option<&'static str> {
        let (base, head) = (self.base?, self.head?);
        match (base.maximum, head.maximum) {
            (0.0, _) if head.minimum > 0.0 && !self.low[0] => Some(super::ADDED),
            (_, 0.0) if base.minimum > 0.0 && !self.low[1] => Some(super::REMOVED),
            _ => None,
        }
    }

    /// `*`, `**`, `***` of the adjusted probability.
    pub fn stars(&self) -> &'static str {
        self.adjusted_p.map_or("", stars)
    }

    /// Relative difference of medians; `None` if base's is 0.
    pub fn relative(&self) -> Option<f64> {
        let base = self.base?.median;
        (base != 0.0).then(|| self.difference / base.abs())
    }
}

/// A hash of how far each value is above the least (FNV-1a).
fn pattern(values: &[f64], spread: Option<Spread>) -> u64 {
    let least = spread.map_or(0.0, |spread| spread.minimum);
    let bytes = values
        .iter()
        .flat_map(|value| (value - least).to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Probability of a difference by chance. Times: Welch's test. Counts take few values, often the same: there the rank test has to agree.
fn chance(unit: Unit, base: &[f64], head: &[f64]) -> Option<f64> {
    let known =
        |values: &[f64]| -> Vec<f64> { values.iter().copied().filter(|v| v.is_finite()).collect() };
    let (base, head) = (known(base), known(head));
    let welch = Welch::test(&base, &head)?.p;
    match unit {
        Unit::Ns => Some(welch),
        _ => Some(RankTest::test(&base, &head)?.p.max(welch)),
    }
}

/// Significance of a figure that varies, all tests considered.
pub const LEVEL: f64 = 0.05;

/// Chance that a figure which varies shows one value in all runs of base and another in all of head, that is still counted as exact. In 50
/// comparisons of the express example with itself, 1 % with five runs a side made one false alarm: glibc's allocator reads
/// `/proc/sys/vm/overcommit_memory` once more in about half of the runs.
pub const EXACT_LEVEL: f64 = 0.001;

/// What was tested, for the reader to judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tests {
    /// Figures of both sides that were looked at.
    pub figures: usize,
    /// Counts among them that are the same in all runs of each side.
    pub constant_counts: usize,
    /// Counts that vary from run to run.
    pub varying_counts: usize,
    /// The same, those that vary together as one: a call that is sometimes made shows in its callback, its module and the sum.
    pub varying_events: usize,
    /// Figures that vary, and so were tested.
    pub tested: usize,
    /// Expected share of false ones among those called significant: [`LEVEL`].
    pub level: f64,
    /// Chance that one of the exact differences is one by luck: one of the counts that vary, with one value in all runs of base and another in
    /// all of head.
    pub exact_by_luck: f64,
}

/// Judges all changes together: adjusts probabilities for the number of tests, of times and of counts, and tells exact differences from luck.
pub fn settle(changes: &mut [Change]) -> Tests {
    let mut tests = Tests {
        figures: changes.len(),
        level: LEVEL,
        ..Tests::default()
    };
    // Counts that vary are few. Among thousands of times no count could be found with ten runs.
    for times in [true, false] {
        adjust(changes.iter_mut().filter_map(|change| {
            let p = change.p.filter(|_| (change.unit == Unit::Ns) == times)?;
            Some((p, &mut change.adjusted_p))
        }));
    }
    let mut patterns = HashSet::new();
    let (mut fewest_base, mut fewest_head) = (usize::MAX, usize::MAX);
    for change in changes.iter_mut() {
        let (Some(base), Some(head)) = (change.base, change.head) else {
            continue;
        };
        if change.p.is_some() {
            tests.tested += 1;
        }
        if change.adjusted_p.is_some_and(|p| p < LEVEL) {
            change.certainty = Certainty::Significant;
        }
        if change.unit != Unit::Ns && base.runs > 1 && head.runs > 1 {
            match base.constant && head.constant {
                true => tests.constant_counts += 1,
                false => {
                    tests.varying_counts += 1;
                    patterns.insert(change.pattern);
                }
            }
            fewest_base = fewest_base.min(base.runs);
            fewest_head = fewest_head.min(head.runs);
        }
    }
    if fewest_base == usize::MAX {
        return tests;
    }
    tests.varying_events = patterns.len();
    tests.exact_by_luck = luck(tests.varying_events, fewest_base, fewest_head);
    for change in changes.iter_mut() {
        let (Some(base), Some(head)) = (change.base, change.head) else {
            continue;
        };
        if change.certainty == Certainty::Exact {
            change.certainty = constant_change(tests.varying_events, base.runs, head.runs);
        }
        if change.certainty.is_known() && change.low != [false; 2] {
            change.certainty = Certainty::TooFewRuns;
        }
    }
    tests
}

/// Chance that a figure with two values, each as often as it likes, has one in all n runs of base and the other in all m of head, for any
/// of `varying` + 1 such figures: 2·B(n + 1, m + 1) each. One more than were seen to vary, since one could have hidden.
pub fn luck(varying: usize, base: usize, head: usize) -> f64 {
    // 1 / B(n + 1, m + 1) = (n + m + 1) · C(n + m, n)
    let (n, m) = (base as f64, head as f64);
    let choose = (1..=base).fold(1.0, |product, k| product * (m + k as f64) / k as f64);
    let one = 2.0 / ((n + m + 1.0) * choose);
    (one * (varying + 1) as f64).min(1.0)
}

/// What is known of a count that is the same in all runs of each side, and differs, where `varying` others vary.
pub fn constant_change(varying: usize, base: usize, head: usize) -> Certainty {
    match base > 1 && head > 1 && luck(varying, base, head) < EXACT_LEVEL {
        true => Certainty::Exact,
        false => Certainty::TooFewRuns,
    }
}

/// Fewest runs a side with which an exact difference is one.
pub fn runs_needed(varying: usize) -> usize {
    (2..1000)
        .find(|runs| luck(varying, *runs, *runs) < EXACT_LEVEL)
        .unwrap_or(1000)
}

/// Benjamini and Hochberg's step-up: the share of false ones among those below a level is at most the level.
pub fn adjust<'a>(tests: impl Iterator<Item = (f64, &'a mut Option<f64>)>) {
    let mut tests: Vec<(f64, &mut Option<f64>)> = tests.collect();
    tests.sort_by(|a, b| b.0.total_cmp(&a.0));
    let count = tests.len();
    let mut least = 1.0f64;
    for (back, (p, adjusted)) in tests.into_iter().enumerate() {
        let rank = count - back;
        least = least.min(p * count as f64 / rank as f64);
        *adjusted = Some(least);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn change(unit: Unit, base: &[f64], head: &[f64]) -> Change {
        Change::new("f".into(), unit, base, head)
    }

    fn certainty(unit: Unit, base: &[f64], head: &[f64]) -> Certainty {
        let mut changes = [change(unit, base, head)];
        settle(&mut changes);
        changes[0].certainty
    }

    #[test]
    fn a_count_that_never_varies_and_differs_is_exact() {
        assert_eq!(
            certainty(Unit::Count, &[31.0; 5], &[32.0; 5]),
            Certainty::Exact
        );
        assert_eq!(
            certainty(Unit::Count, &[31.0; 5], &[31.0; 5]),
            Certainty::Same
        );
        assert_eq!(
            certainty(Unit::Count, &[31.0; 2], &[32.0; 2]),
            Certainty::TooFewRuns
        );
        assert_eq!(
            certainty(Unit::Count, &[31.0], &[32.0]),
            Certainty::TooFewRuns
        );
        assert_eq!(certainty(Unit::Count, &[31.0], &[31.0]), Certainty::Same);
        // One run, whose value others have, too.
        let several = [5.0, 5.0, 5.0, 6.0];
        assert_eq!(certainty(Unit::Count, &[5.0], &several), Certainty::Noise);
        assert_eq!(certainty(Unit::Ns, &several, &[5.0]), Certainty::Noise);
        assert_eq!(
            certainty(Unit::Count, &[4.0], &several),
            Certainty::TooFewRuns
        );
        assert_eq!(
            certainty(Unit::Count, &[f64::NAN; 5], &[32.0; 5]),
            Certainty::Unknown
        );
        assert_eq!(certainty(Unit::Count, &[], &[32.0; 5]), Certainty::Unknown);
    }

    #[test]
    fn a_count_that_varies_is_tested() {
        let base = [7.0, 8.0, 7.0, 7.0, 8.0, 7.0];
        assert_eq!(
            certainty(Unit::Count, &base, &[8.0, 7.0, 8.0, 7.0, 7.0, 8.0]),
            Certainty::Noise
        );
        assert_eq!(
            certainty(Unit::Count, &base, &[17.0, 18.0, 17.0, 19.0, 18.0, 17.0]),
            Certainty::Significant
        );
        // One run more than usual in one run: Welch alone would not see it either.
        assert_eq!(
            certainty(Unit::Count, &[5.0; 5], &[5.0, 5.0, 5.0, 5.0, 50.0]),
            Certainty::Noise
        );
    }

    #[test]
    fn many_counts_that_vary_ask_for_more_runs() {
        let vary = |seed: usize| {
            let value = |run: usize| f64::from((seed >> run) as u32 & 1);
            change(
                Unit::Count,
                &[0, 1, 2, 3, 4].map(value),
                &[5, 6, 7, 8, 9].map(value),
            )
        };
        // Each varies in its own way.
        let mut changes: Vec<Change> = (0..40).map(|seed| vary(0b10001_00001 + 2 * seed)).collect();
        changes.push(change(Unit::Count, &[1.0; 5], &[2.0; 5]));
        let tests = settle(&mut changes);
        assert_eq!((tests.varying_counts, tests.constant_counts), (40, 1));
        assert_eq!(changes[40].certainty, Certainty::TooFewRuns);
        assert_eq!(runs_needed(0), 5);
        assert!(runs_needed(40) > 5 && runs_needed(40) < 10);
    }

    #[test]
    fn counts_that_vary_together_are_one() {
        let mut changes: Vec<Change> = (0..40)
            .map(|more| {
                let more = f64::from(more);
                change(
                    Unit::Count,
                    &[1.0 + more, 2.0 + more, 1.0 + more],
                    &[more, more, 1.0 + more],
                )
            })
            .collect();
        let tests = settle(&mut changes);
        assert_eq!((tests.varying_counts, tests.varying_events), (40, 1));
    }

    #[test]
    fn luck_is_the_integral_over_all_frequencies() {
        // 2·B(6, 6) = 2·5!·5!/11!
        assert!((luck(0, 5, 5) - 2.0 * 120.0 * 120.0 / 39_916_800.0).abs() < 1e-15);
        assert!((luck(2, 1, 1) - 1.0).abs() < 1e-15);
        assert_eq!(luck(usize::MAX - 1, 3, 3), 1.0);
    }

    #[test]
    fn adjusted_probabilities_are_those_of_scipy() {
        // scipy.stats.false_discovery_control([0.01, 0.04, 0.03, 0.5])
        let p = [0.01, 0.04, 0.03, 0.5];
        let mut adjusted = [None; 4];
        adjust(p.into_iter().zip(adjusted.iter_mut()));
        let expected = [0.04, 0.16 / 3.0, 0.16 / 3.0, 0.5];
        for (found, expected) in adjusted.iter().zip(expected) {
            assert!(
                (found.unwrap() - expected).abs() < 1e-12,
                "{found:?} {expected}"
            );
        }
    }
}
