//! Faster, slower, or no difference found: by how much, and how sure.

use serde::Serialize;

use super::figures::{List, Unit};
use super::sides::Sides;
use super::words;
use crate::recording::LOOP_START;
use crate::sequential::{self, Sequential};
use crate::statistics::{MedianRatio, RankTest, Summary, Welch, median, stars};
use crate::wording;

/// What can be said of the time of head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Head takes less time.
    Faster,
    /// Head takes more time.
    Slower,
    /// If there is a difference, it is smaller than what matters.
    Alike,
    /// None was found; there can be one, within the interval.
    NoDifference,
    /// The runs do not allow to tell.
    CannotTell,
}

/// By which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Signed ranks of runs made in pairs, in a random order ([`crate::sequential`]).
    Pairs,
    /// Welch's test below 1 %, and the rank test agrees.
    Groups,
    /// None.
    None,
}

/// Values a side from which on a figure has stars. Of fewer, two that happen to be alike make any difference look certain (memory of two warm-up runs), which
/// no test by ranks bears out: with four a side its p is never below 0.029.
pub const LEAST_FOR_STARS: usize = 5;

/// A time or size of whole runs on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeChange {
    /// Name of the figure, such as `time.wall_ns`.
    pub figure: String,
    /// What it counts.
    pub unit: Unit,
    /// Base.
    pub base: Option<Summary>,
    /// Head.
    pub head: Option<Summary>,
    /// Difference of the means, in percent of base's.
    pub percent: Option<f64>,
    /// Welch's t-test of the means.
    pub welch: Option<Welch>,
    /// `*` below 5 %, `**` below 1 %, `***` below 0.1 %; none with fewer than [`LEAST_FOR_STARS`] values on a side.
    pub stars: &'static str,
    /// Half the width of the 95 %, 99 % and 99.9 % intervals of the difference, in percent of base's mean.
    pub plus_minus_percent: Option<[f64; 3]>,
    /// Mann and Whitney's rank test.
    pub rank: Option<RankTest>,
    /// Ratio of the medians, with a 95 % bootstrap interval.
    pub median_ratio: Option<MedianRatio>,
}

impl TimeChange {
    /// Compares a figure's values.
    pub fn new(figure: &str, base: &[f64], head: &[f64]) -> TimeChange {
        let known = |values: &[f64]| -> Vec<f64> {
            values.iter().copied().filter(|v| v.is_finite()).collect()
        };
        let (base, head) = (known(base), known(head));
        let (of_base, of_head) = (Summary::of(&base), Summary::of(&head));
        let welch = Welch::test(&base, &head);
        let mean = of_base.map(|base| base.mean).filter(|mean| *mean > 0.0);
        let percent = |difference: f64| Some(difference / mean? * 100.0);
        TimeChange {
            figure: figure.to_owned(),
            unit: Unit::of(figure),
            percent: of_base
                .zip(of_head)
                .and_then(|(base, head)| percent(head.mean - base.mean)),
            plus_minus_percent: welch.and_then(|welch| {
                let half = |confidence| percent(welch.half_width(confidence));
                Some([half(0.95)?, half(0.99)?, half(0.999)?])
            }),
            stars: welch
                .filter(|_| base.len().min(head.len()) >= LEAST_FOR_STARS)
                .map_or("", |welch| stars(welch.p)),
            welch,
            rank: RankTest::test(&base, &head).filter(|_| base.len() > 1 && head.len() > 1),
            // With fewer there is nothing to draw from.
            median_ratio: (base.len() > 2 && head.len() > 2)
                .then(|| MedianRatio::bootstrap(&base, &head, 0.95))
                .flatten(),
            base: of_base,
            head: of_head,
        }
    }
}

/// What can be said of the time of head, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// In a word.
    pub answer: Answer,
    /// In a sentence.
    pub sentence: String,
    /// By which rule.
    pub rule: Rule,
    /// Times are of runs without probes.
    pub bare: bool,
    /// The sides were run in turn. If not, the answer is not controlled for drift: what changed on the machine between them is in it, too.
    pub in_turn: bool,
    /// Head's time divided by base's: the middle of the pairs, or the ratio of the medians.
    pub ratio: Option<f64>,
    /// Interval of that ratio.
    pub interval: Option<[f64; 2]>,
    /// Confidence of the interval, 0 to 1.
    pub confidence: Option<f64>,
    /// What the pairs say.
    pub pairs: Option<sequential::Verdict>,
}

/// Figures of whole runs, in the order in which they are shown.
pub const TIMES: [&str; 5] = [
    "time.wall_ns",
    "time.user_ns",
    "time.system_ns",
    "time.max_rss_bytes",
    "time.private_dirty_bytes",
];

/// Times and sizes of whole runs that both sides know.
pub fn times(sides: &Sides<'_>) -> Vec<TimeChange> {
    let table = sides.figures.table(List::Run);
    // Of a server that the service recorded the whole time has what it waited after that.
    let are_settled = sides.runs.iter().all(|run| run.ended_by == LOOP_START);
    let to_loop = are_settled.then_some(&"milestones.loop_start");
    (to_loop.into_iter().chain(&TIMES))
        .filter_map(|name| {
            let (base, head) = sides.values(List::Run, table.find(name)?, 0);
            Some(TimeChange::new(name, &base, &head))
        })
        .filter(|change| change.base.is_some() && change.head.is_some())
        .collect()
}

/// Starts per second of the runs without probes, which Node's `benchmark/compare.R` and node-benchmark-compare test instead of times. Their mean is not the
/// inverse of the mean time, so neither is the difference in percent.
pub fn rate(sides: &Sides<'_>) -> Option<TimeChange> {
    if !sides.bare() {
        return None;
    }
    let row = sides.figures.table(List::Run).find("time.wall_ns")?;
    let (base, head) = sides.values(List::Run, row, 0);
    let rates = |times: Vec<f64>| -> Vec<f64> {
        let seconds = times.into_iter().map(|ns| ns / 1e9);
        seconds.filter(|s| *s > 0.0).map(|s| 1.0 / s).collect()
    };
    let change = TimeChange::new("rate", &rates(base), &rates(head));
    (change.base.is_some() && change.head.is_some()).then_some(change)
}

/// Highest probability at which two groups are said to differ.
const CLAIM: f64 = 0.01;
/// The same for the rank test, which only has to agree.
const AGREES: f64 = 0.05;

impl Verdict {
    /// The verdict; `obstacle`: why there can be none.
    pub fn new(sides: &Sides<'_>, wall: Option<&TimeChange>, obstacle: Option<String>) -> Verdict {
        let mut verdict = Verdict {
            answer: Answer::CannotTell,
            sentence: String::new(),
            rule: Rule::None,
            bare: sides.bare(),
            in_turn: sides.in_turn(false),
            ratio: None,
            interval: None,
            confidence: None,
            pairs: None,
        };
        let Some((wall, base, head)) =
            wall.and_then(|wall| Some((wall, wall.base.as_ref()?, wall.head.as_ref()?)))
        else {
            verdict.sentence = obstacle.unwrap_or_else(|| "No times are known.".to_owned());
            return verdict;
        };
        verdict.ratio = (base.median > 0.0).then(|| head.median / base.median);
        if let Some(obstacle) = obstacle {
            verdict.sentence = obstacle;
            return verdict;
        }
        let name = &sides.head.name;
        if base.count < 2 || head.count < 2 {
            let which = match (base.count, head.count) {
                (1, 1) => "one run a side only".to_owned(),
                (1, _) => format!("one run of {} only", sides.base.name),
                _ => format!("one run of {name} only"),
            };
            verdict.sentence = format!(
                "No verdict on time: {which} ({} and {}), and how much a time varies by itself is not known.",
                words::time(base.median),
                words::time(head.median)
            );
            return verdict;
        }
        if sides.pairs.len() > 1 && verdict.of_pairs(sides) {
            return verdict;
        }
        let Some(welch) = wall.welch else {
            verdict.sentence = format!(
                "No verdict on time: all runs of each side took exactly as long ({} and {}), so nothing measures chance.",
                words::time(base.median),
                words::time(head.median)
            );
            return verdict;
        };
        verdict.rule = Rule::Groups;
        verdict.interval = wall.median_ratio.map(|ratio| [ratio.low, ratio.high]);
        verdict.confidence = wall.median_ratio.map(|ratio| ratio.confidence);
        let rank = wall.rank.map_or(1.0, |rank| rank.p);
        let same_direction = (welch.difference > 0.0) == (head.median > base.median);
        let percent = wall.percent.unwrap_or_default();
        let plus_minus = wall.plus_minus_percent.map_or(0.0, |of| of[0]);
        if welch.p < CLAIM && rank < AGREES && same_direction {
            verdict.answer = direction(welch.difference);
            let is = match verdict.in_turn {
                true => "is",
                false => "was",
            };
            let at_another_time = match verdict.in_turn {
                true => "",
                false => {
                    ", not controlled for drift: the sides were run at different times, and the machine can have changed"
                }
            };
            verdict.sentence = format!(
                "{name} {is} {} by {}, {:.1} % ± {plus_minus:.1} {}{at_another_time}.",
                word(verdict.answer),
                words::time(welch.difference.abs()),
                percent.abs(),
                wall.stars
            );
        } else {
            verdict.answer = Answer::NoDifference;
            let change = words::signed(percent, Unit::Percent);
            verdict.sentence = match welch.p < AGREES || rank < AGREES {
                true => format!(
                    "No difference found for sure: {change} ± {plus_minus:.1}; the mean's test says p {}, the ranks' p {}. More runs would tell.",
                    probability(welch.p),
                    probability(rank)
                ),
                false => format!(
                    "No difference found: {change} ± {plus_minus:.1}, which chance explains."
                ),
            };
        }
        verdict
    }

    /// By the rule with which pairs were measured; false if it has no answer.
    fn of_pairs(&mut self, sides: &Sides<'_>) -> bool {
        let label = |key: &str| {
            let first = sides.timed().0.first().and_then(|run| sides.runs.get(*run));
            first.and_then(|run| run.labels.get(key).cloned())
        };
        let (rule, margin) = sequential::rule_of(label, sides.pairs.len());
        // Interrupted before its first look: what there is counts as one look.
        let found = rule.verdict(&sides.pairs, margin).or_else(|| {
            Sequential::fixed(sides.pairs.len(), rule.chance()).verdict(&sides.pairs, margin)
        });
        let Some(found) = found else {
            return false;
        };
        self.rule = Rule::Pairs;
        self.pairs = Some(found);
        self.ratio = Some(found.ratio);
        self.interval = found.low.zip(found.high).map(|(low, high)| [low, high]);
        self.confidence = Some(1.0 - found.chance);
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let change = |ratio: f64| words::signed(percent(ratio), Unit::Percent);
        let interval = match self.interval {
            Some([low, high]) => format!(" [{}, {}]", change(low), change(high)),
            None => String::new(),
        };
        let base = {
            let times = sides.pairs.iter().take(found.pairs).map(|pair| pair.0);
            let times: Vec<f64> = times.collect();
            median(&times).unwrap_or_default() * 1e9
        };
        let name = &sides.head.name;
        let (few, pairs) = (
            found.pairs,
            wording::counted(found.pairs as u64, "# pair[|s]"),
        );
        (self.answer, self.sentence) = match found.answer {
            sequential::Answer::Differ => {
                let answer = direction(found.ratio - 1.0);
                let by = words::time((base * (found.ratio - 1.0)).abs());
                let sentence = format!(
                    "{name} is {} by {by}, {:.1} %{interval}, after {pairs}.",
                    word(answer),
                    percent(found.ratio).abs()
                );
                (answer, sentence)
            }
            sequential::Answer::Alike => (
                Answer::Alike,
                format!(
                    "No difference that matters: {}{interval} after {pairs}, within ± {:.1} %.",
                    change(found.ratio),
                    margin * 100.0
                ),
            ),
            _ => (
                Answer::NoDifference,
                match few < Sequential::least_pairs(found.chance) {
                    true => format!(
                        "Too few pairs to tell: {}{interval} after {pairs}; {} are the least.",
                        change(found.ratio),
                        Sequential::least_pairs(found.chance)
                    ),
                    false => format!(
                        "No difference found: {}{interval} after {pairs}.",
                        change(found.ratio)
                    ),
                },
            ),
        };
        true
    }
}

fn direction(difference: f64) -> Answer {
    match difference > 0.0 {
        true => Answer::Slower,
        false => Answer::Faster,
    }
}

fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Faster => "faster",
        Answer::Slower => "slower",
        Answer::Alike | Answer::NoDifference | Answer::CannotTell => "not different",
    }
}
/// Behind `p`: none is 0.
fn probability(p: f64) -> String {
    match p < 0.001 {
        true => "< 0.001".to_owned(),
        false => format!("= {p:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_values_that_happen_to_be_alike_have_no_stars() {
        let of = |n: usize| {
            let base: Vec<f64> = (0..n).map(|i| 100.0 + i as f64 * 0.01).collect();
            let head: Vec<f64> = base.iter().map(|value| value + 5.0).collect();
            TimeChange::new("time.private_dirty_bytes", &base, &head)
        };
        let two = of(2);
        assert!(two.welch.is_some_and(|welch| welch.p < 0.001), "{two:?}");
        assert_eq!((two.stars, of(4).stars, of(5).stars), ("", "", "***"));
        let one_side = TimeChange::new("time.wall_ns", &[1.0, 1.1], &[9.0, 9.1, 9.2, 9.3, 9.1]);
        assert_eq!(one_side.stars, "");
    }
}
