//! Pairs of runs: when to stop measuring, and what they then say.
//!
//! Looking again and again until a difference is significant finds one in the end, also where there is none. So a rule is made
//! before the first run: after which numbers of pairs to look, and which part of the permitted chance of a false alarm
//! each look may spend.
//!
//! - *Test*: Wilcoxon's signed ranks on ln(head / base) of each pair. The order within a pair is tossed, so if both sides are
//!   alike each sign is as likely as the other, whatever the distribution of times, and the probability is exact. Drift of the machine
//!   meets both of a pair. Outliers count by their rank.
//! - *Spending*: Kim and DeMets' power family, chance · (pairs / most)³, "Design and analysis of group sequential tests based on the
//!   type I error spending rate function", Biometrika 74 (1987). A look gets what has been added since the one before. Parts add up to the
//!   whole by the union bound, which holds whatever the looks have in common. With the third power early looks cost little: 40 pairs
//!   find what one look after 40 finds, but for 3 % of the comparisons at most, and a large difference still ends after 15.
//! - *Looks*: after 15, 25, 40, 60, 80, 120, 160 … pairs and after the last. One at which even pairs that all agree could not be
//!   significant is left out; its part goes to the next.

use serde::Serialize;

use crate::measured;
use crate::signed_ranks::{SignedRanks, outside, shift};

/// A look that is planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedLook {
    /// After this many pairs.
    pub pairs: usize,
    /// Chance of a false alarm at this look.
    pub chance: f64,
    /// Of [`shift`].
    outside: usize,
}

impl PlannedLook {
    fn new(pairs: usize, chance: f64) -> PlannedLook {
        let pairs = pairs.min(PAIRS_LIMIT);
        PlannedLook {
            pairs,
            chance,
            outside: outside(pairs, chance),
        }
    }
}

/// When to look, and how sure to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequential {
    looks: Vec<PlannedLook>,
    most: usize,
    chance: f64,
}

/// What the pairs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Too early, or no answer yet.
    GoOn,
    /// The sides differ.
    Differ,
    /// If there is a difference, it is smaller than what matters.
    Alike,
    /// All pairs are used up, without an answer.
    Undecided,
}

/// The answer of the last look, and what it saw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What it says.
    pub answer: Answer,
    /// Pairs that it is based on.
    pub pairs: usize,
    /// Time of head divided by that of base: the middle of the pairs' ratios (Hodges and Lehmann's estimate).
    pub ratio: f64,
    /// Lower end of the interval that holds the true ratio; `None`: too few pairs for any.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Chance that the intervals of all looks together miss the true ratio, at most.
    pub chance: f64,
    /// Probability of such signed ranks or more uneven ones, if the sides were alike, at this look alone.
    pub p: f64,
}

/// Chance of a false alarm that `nodeprof compare` permits, all looks together. One in 500, because a rule with one in 100 shows more than
/// one in 100 as often as not; `tests/power.rs` has what it costs.
pub const FALSE_ALARMS: f64 = 0.002;
/// Most pairs, if nothing else is asked for.
pub const MOST_PAIRS: usize = 40;
/// Looks are not planned for more pairs, whatever is asked for or a recording says: the memory of one grows with the square of its pairs.
pub const PAIRS_LIMIT: usize = 10_000;
/// A relative difference that does not matter, if nothing else is said.
pub const MARGIN: f64 = 0.01;

impl Sequential {
    /// Looks now and then until `most` pairs, [`PAIRS_LIMIT`] at most; `chance` is that of a false alarm in all.
    pub fn new(most: usize, chance: f64) -> Sequential {
        let most = most.min(PAIRS_LIMIT);
        let mut at = vec![15, 25];
        let mut next = 40;
        while next < most {
            at.extend([next, next / 2 * 3]);
            next *= 2;
        }
        at.retain(|pairs| *pairs < most);
        let mut spent = 0.0;
        let mut looks: Vec<PlannedLook> = at
            .into_iter()
            .filter_map(|pairs| {
                let part = chance * (pairs as f64 / most as f64).powi(3) - spent;
                // If all pairs agree, p is this.
                (0.5f64.powi(pairs as i32 - 1) <= part).then(|| {
                    spent += part;
                    PlannedLook::new(pairs, part)
                })
            })
            .collect();
        looks.push(PlannedLook::new(most, chance - spent));
        Sequential {
            looks,
            most,
            chance,
        }
    }

    /// One look, after all pairs or the first [`PAIRS_LIMIT`] of them.
    pub fn fixed(pairs: usize, chance: f64) -> Sequential {
        let pairs = pairs.min(PAIRS_LIMIT);
        Sequential {
            looks: vec![PlannedLook::new(pairs, chance)],
            most: pairs,
            chance,
        }
    }

    /// Chance of a false alarm in all.
    pub fn chance(&self) -> f64 {
        self.chance
    }

    /// Most pairs.
    pub fn most(&self) -> usize {
        self.most
    }

    /// The looks, in order.
    pub fn looks(&self) -> &[PlannedLook] {
        &self.looks
    }

    /// The fewest pairs with which two sides can be told apart with this chance of a false alarm.
    pub fn least_pairs(chance: f64) -> usize {
        (1 - chance.log2().floor() as i32).max(1) as usize
    }

    /// Goes through the pairs (base, head) as they came and gives the first answer, or that of the last look; `None` before the
    /// first look, or if a time is not above 0. `margin`: a relative difference below which both count as alike.
    ///
    /// Pairs beyond the look that answered are not looked at: that would be one look more.
    pub fn verdict(&self, pairs: &[(f64, f64)], margin: f64) -> Option<Verdict> {
        let differences: Vec<f64> = pairs
            .iter()
            .map(|(base, head)| (head / base).ln())
            .collect();
        if differences.iter().any(|d| !d.is_finite()) {
            return None;
        }
        let mut verdict = None;
        for look in &self.looks {
            let Some(seen) = differences.get(..look.pairs).filter(|s| !s.is_empty()) else {
                break;
            };
            let found = self.look(seen, look, margin);
            verdict = Some(found);
            if found.answer != Answer::GoOn {
                break;
            }
        }
        verdict
    }

    fn look(&self, differences: &[f64], look: &PlannedLook, margin: f64) -> Verdict {
        let p = SignedRanks::of(differences).p;
        let (middle, interval) = shift(differences, look.outside);
        let answer = match interval {
            _ if p <= look.chance => Answer::Differ,
            Some((low, high)) if low > -margin.ln_1p() && high < margin.ln_1p() => Answer::Alike,
            _ if look.pairs == self.most => Answer::Undecided,
            _ => Answer::GoOn,
        };
        Verdict {
            answer,
            pairs: look.pairs,
            ratio: middle.exp(),
            low: interval.map(|i| i.0.exp()),
            high: interval.map(|i| i.1.exp()),
            chance: self.chance,
            p,
        }
    }
}

/// The rule under which pairs were run, and the relative difference that does not matter, as the labels of their runs say:
/// [`measured::MOST_PAIRS`] up to [`PAIRS_LIMIT`], else one look after `pairs`; [`measured::CHANCE`] and [`measured::MARGIN`], else those
/// of today.
pub fn rule_of(label: impl Fn(&str) -> Option<String>, pairs: usize) -> (Sequential, f64) {
    let share = |key, otherwise| {
        let said = label(key).and_then(|text| text.parse::<f64>().ok());
        said.filter(|share| *share > 0.0 && *share < 1.0)
            .unwrap_or(otherwise)
    };
    let chance = share(measured::CHANCE, FALSE_ALARMS);
    let most = label(measured::MOST_PAIRS).and_then(|most| most.parse().ok());
    let rule = match most.filter(|most: &usize| (1..=PAIRS_LIMIT).contains(most)) {
        Some(most) => Sequential::new(most, chance),
        None => Sequential::fixed(pairs, chance),
    };
    (rule, share(measured::MARGIN, MARGIN))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_chances_of_all_looks_add_up() {
        for most in [1, 5, 8, 12, 13, 25, 40, 41, 100, 1000] {
            let rule = Sequential::new(most, 0.01);
            let sum: f64 = rule.looks().iter().map(|look| look.chance).sum();
            assert!((sum - 0.01).abs() < 1e-15, "{most}: {sum}");
            assert!(rule.looks().is_sorted_by(|a, b| a.pairs < b.pairs));
            assert_eq!(rule.looks().last().unwrap().pairs, most);
        }
        let at = |most| -> Vec<usize> {
            let rule = Sequential::new(most, 0.01);
            rule.looks().iter().map(|look| look.pairs).collect()
        };
        assert_eq!(at(40), [15, 25, 40]);
        assert_eq!(at(100), [25, 40, 60, 80, 100]);
        assert_eq!(at(200), [25, 40, 60, 80, 120, 160, 200]);
    }

    #[test]
    fn fewer_than_eight_pairs_cannot_tell() {
        assert_eq!(Sequential::least_pairs(0.01), 8);
        for (pairs, answer) in [(7, Answer::Undecided), (8, Answer::Differ)] {
            let rule = Sequential::fixed(pairs, 0.01);
            let twice: Vec<(f64, f64)> = (0..pairs).map(|i| (1.0, 2.0 + i as f64)).collect();
            assert_eq!(rule.verdict(&twice, 0.01).unwrap().answer, answer);
            assert_eq!(rule.verdict(&twice[1..], 0.01), None);
        }
    }

    #[test]
    fn what_is_equal_is_alike_and_what_is_no_time_has_no_verdict() {
        let rule = Sequential::new(40, 0.01);
        let verdict = rule.verdict(&[(3.0, 3.0); 15], 0.01).unwrap();
        assert_eq!((verdict.answer, verdict.pairs), (Answer::Alike, 15));
        assert_eq!(verdict.ratio, 1.0);
        for bad in [0.0, f64::NAN, f64::INFINITY] {
            let mut pairs = [(1.0, 2.0); 15];
            pairs[3].1 = bad;
            assert_eq!(rule.verdict(&pairs, 0.01), None);
        }
    }

    #[test]
    fn a_recording_is_judged_by_the_rule_that_it_was_made_with() {
        let labels = |list: &'static [(&str, &str)]| {
            move |key: &str| {
                let found = list.iter().find(|(k, _)| *k == key)?;
                Some(found.1.to_owned())
            }
        };
        let rule = labels(&[("most-pairs", "60"), ("chance", "0.05"), ("margin", "0.02")]);
        assert_eq!(rule_of(rule, 12), (Sequential::new(60, 0.05), 0.02));
        let today = (Sequential::fixed(12, FALSE_ALARMS), MARGIN);
        assert_eq!(rule_of(labels(&[]), 12), today);
        let wrong = labels(&[("most-pairs", "0"), ("chance", "2"), ("margin", "NaN")]);
        assert_eq!(rule_of(wrong, 12), today);
    }

    #[test]
    fn a_recording_cannot_ask_for_more_looks_than_can_be_planned() {
        let most = |pairs: String| {
            let label = move |key: &str| (key == measured::MOST_PAIRS).then(|| pairs.clone());
            rule_of(label, 12).0
        };
        let today = Sequential::fixed(12, FALSE_ALARMS);
        for pairs in [PAIRS_LIMIT as u64 + 1, 1_000_000_000_000, u64::MAX] {
            assert_eq!(most(pairs.to_string()), today, "{pairs}");
        }
        assert_eq!(most(PAIRS_LIMIT.to_string()).most(), PAIRS_LIMIT);
        // Nor do pairs without a rule make one.
        for pairs in [PAIRS_LIMIT + 1, 25_000, usize::MAX] {
            for rule in [
                rule_of(|_| None, pairs).0,
                Sequential::new(pairs, FALSE_ALARMS),
            ] {
                assert_eq!(rule.most(), PAIRS_LIMIT);
                assert_eq!(rule.looks().last().unwrap().pairs, PAIRS_LIMIT);
            }
        }
    }

    /// Normally distributed, by the sum of twelve.
    fn normal(random: &mut Random) -> f64 {
        (0..12).map(|_| random.fraction()).sum::<f64>() - 6.0
    }

    /// Two runs of a program that takes 100 ms: a time for whichever runs first, and one for the other.
    type Noise = fn(&mut Random, pair: usize) -> (f64, f64);

    const NOISES: [(&str, Noise); 5] = [
        ("3 % of noise", |random, _| {
            (3.0 * normal(random), 3.0 * normal(random))
        }),
        ("a drift of 20 %", |random, pair| {
            let drift = 20.0 * (pair as f64 / 10.0).sin();
            (drift + normal(random), drift + normal(random))
        }),
        (
            "one run in ten takes up to ten times as long",
            |random, _| {
                let mut one = || match random.below(10) {
                    0 => 900.0 * random.fraction(),
                    _ => normal(random),
                };
                (one(), one())
            },
        ),
        ("two peaks", |random, _| {
            let mut one = || normal(random) / 10.0 + if random.coin() { 15.0 } else { 0.0 };
            (one(), one())
        }),
        // No noise to speak of, but the second profits from the first.
        ("the first of a pair takes 5 % longer", |random, _| {
            (5.0 + normal(random) / 100.0, normal(random) / 100.0)
        }),
    ];

    fn pairs(random: &mut Random, noise: Noise, factor: f64, count: usize) -> Vec<(f64, f64)> {
        let one = |pair| {
            let (first, second) = noise(random, pair);
            let (base, head) = match random.coin() {
                true => (first, second),
                false => (second, first),
            };
            (100.0 + base, (100.0 + head) * factor)
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn looking_again_and_again_keeps_the_rate_of_false_alarms() {
        const TIMES: usize = 4000;
        for (name, noise) in NOISES {
            let mut random = Random::new(1);
            let rule = Sequential::new(40, 0.01);
            let alarms = (0..TIMES)
                .filter(|_| {
                    let pairs = pairs(&mut random, noise, 1.0, 40);
                    rule.verdict(&pairs, 0.01).unwrap().answer == Answer::Differ
                })
                .count();
            // 1 % of 4,000 is 40; the chance of more than 60 by luck alone is below 1 in 1,000.
            assert!(alarms <= 60, "{name}: {alarms} of {TIMES}");
            // The rule is not so strict that it would find nothing.
            assert!(alarms >= 5, "{name}: {alarms} of {TIMES}");
        }
    }

    #[test]
    fn the_interval_holds_the_truth() {
        for (name, noise) in NOISES {
            let mut random = Random::new(2);
            let rule = Sequential::new(40, 0.01);
            let missed = (0..1000)
                .filter(|_| {
                    let verdict = rule
                        .verdict(&pairs(&mut random, noise, 1.05, 40), 0.01)
                        .unwrap();
                    // Within rounding: some noises give nearly the same ratio each time.
                    !(verdict.low.unwrap() < 1.05 + 1e-3 && verdict.high.unwrap() > 1.05 - 1e-3)
                })
                .count();
            // 1 % of 1,000 is 10; more than 25 by luck: below 1 in 10,000.
            assert!(missed <= 25, "{name}: {missed}");
        }
    }

    #[test]
    fn a_real_difference_is_found_early() {
        let rule = Sequential::new(40, 0.01);
        let mut random = Random::new(3);
        let verdicts: Vec<Verdict> = (0..300)
            .map(|_| {
                let pairs = pairs(&mut random, NOISES[0].1, 1.10, 40);
                rule.verdict(&pairs, 0.01).unwrap()
            })
            .collect();
        assert!(verdicts.iter().all(|v| v.answer == Answer::Differ));
        let mean = verdicts.iter().map(|v| v.pairs).sum::<usize>() / verdicts.len();
        assert!(mean <= 20, "{mean} pairs");
    }
}
