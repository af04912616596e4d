//! Statistics of repeated runs: is one side faster, by how much, and how sure is that?
//!
//! Times of a start are not normally distributed (they have a long right tail and sometimes two peaks), so three answers stand
//! side by side: Welch's t-test of the means, as Node's own benchmark comparison does it; the Mann–Whitney rank test, which
//! no outlier moves; and a bootstrap interval of the ratio of medians. Distributions come from `statrs`; the tests compare with
//! SciPy's values.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::random::Random;

/// Figures of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (n − 1); 0 for one value.
    pub standard_deviation: f64,
    /// Median.
    pub median: f64,
    /// Lower quartile (by linear interpolation, as NumPy and R's type 7).
    pub lower_quartile: f64,
    /// Upper quartile.
    pub upper_quartile: f64,
    /// Smallest value.
    pub minimum: f64,
    /// Largest value.
    pub maximum: f64,
    /// Values further from the median than 14.826 median absolute deviations: ten standard deviations of a normal
    /// distribution (hyperfine's rule).
    pub outliers: usize,
}

/// Ten standard deviations: 1.4826 times the median absolute deviation estimates one.
const OUTLIER_DEVIATIONS: f64 = 14.826;

impl Summary {
    /// `None` if there are no values, or one is not a finite number.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let sorted = sorted(values)?;
        let count = sorted.len();
        let mean = mean(&sorted);
        let median = quantile(&sorted, 0.5);
        let mut distances: Vec<f64> = sorted.iter().map(|v| (v - median).abs()).collect();
        distances.sort_by(f64::total_cmp);
        let deviation = quantile(&distances, 0.5);
        Some(Summary {
            count,
            mean,
            standard_deviation: variance(&sorted, mean).sqrt(),
            median,
            lower_quartile: quantile(&sorted, 0.25),
            upper_quartile: quantile(&sorted, 0.75),
            minimum: *sorted.first()?,
            maximum: *sorted.last()?,
            outliers: distances
                .iter()
                .filter(|d| deviation > 0.0 && **d > OUTLIER_DEVIATIONS * deviation)
                .count(),
        })
    }
}

/// Finite values in ascending order.
fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Of the sample (n − 1); 0 for one value.
fn variance(values: &[f64], mean: f64) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

/// The median of values that are numbers; `None` without any.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    let (low, high) = (*sorted.get(low)?, *sorted.get(high)?);
    Some(low.midpoint(high))
}

/// A quantile of ascending values, between two of them by linear interpolation.
fn quantile(sorted: &[f64], at: f64) -> f64 {
    let place = at * (sorted.len().saturating_sub(1)) as f64;
    let below = sorted.get(place.floor() as usize).copied();
    let above = sorted.get(place.ceil() as usize).copied();
    match (below, above) {
        (Some(below), Some(above)) => below + (above - below) * place.fract(),
        _ => f64::NAN,
    }
}

/// What Welch's test needs to know of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// Number of values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Variance of the sample (n − 1).
    pub variance: f64,
}

/// Welch's t-test of the difference of two means, head − base. The variances may differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Welch {
    /// Mean of head less mean of base.
    pub difference: f64,
    /// Standard error of the difference.
    pub standard_error: f64,
    /// Degrees of freedom (Welch–Satterthwaite).
    pub degrees: f64,
    /// Probability of such a difference or a larger one, either way, if there were none.
    pub p: f64,
}

impl Welch {
    /// `None` if a side has fewer than two values or one that is not finite, or if neither side varies: then there is no
    /// measure of chance, and no test.
    pub fn test(base: &[f64], head: &[f64]) -> Option<Welch> {
        let (base, head) = (sorted(base)?, sorted(head)?);
        if base.len() < 2 || head.len() < 2 {
            return None;
        }
        let moments = |values: &[f64]| {
            let mean = mean(values);
            Moments {
                count: values.len(),
                mean,
                variance: variance(values, mean),
            }
        };
        Welch::of_moments(moments(&base), moments(&head))
    }

    /// The same of two samples of which only these are kept.
    pub fn of_moments(base: Moments, head: Moments) -> Option<Welch> {
        if base.count < 2 || head.count < 2 {
            return None;
        }
        let base_error = base.variance / base.count as f64;
        let head_error = head.variance / head.count as f64;
        let squared = base_error + head_error;
        if squared <= 0.0 {
            return None;
        }
        let degrees = squared.powi(2)
            / (base_error.powi(2) / (base.count - 1) as f64
                + head_error.powi(2) / (head.count - 1) as f64);
        let difference = head.mean - base.mean;
        let standard_error = squared.sqrt();
        Some(Welch {
            difference,
            standard_error,
            degrees,
            p: two_sided(difference / standard_error, degrees)?,
        })
    }

    /// Half the width of the interval that holds the difference with this confidence (0 to 1).
    pub fn half_width(&self, confidence: f64) -> f64 {
        match StudentsT::new(0.0, 1.0, self.degrees) {
            Ok(t) => t.inverse_cdf(0.5 + confidence / 2.0) * self.standard_error,
            Err(_) => f64::INFINITY,
        }
    }
}

/// Probability that Student's t is at least so far from 0.
fn two_sided(t: f64, degrees: f64) -> Option<f64> {
    let distribution = StudentsT::new(0.0, 1.0, degrees).ok()?;
    Some((2.0 * distribution.cdf(-t.abs())).clamp(0.0, 1.0))
}

/// Confidence as Node's benchmark comparison writes it: `***` below 0.001, `**` below 0.01, `*` below 0.05, else nothing.
pub fn stars(p: f64) -> &'static str {
    match p {
        p if p < 0.001 => "***",
        p if p < 0.01 => "**",
        p if p < 0.05 => "*",
        _ => "",
    }
}

/// Mann–Whitney's rank test, two-sided: does one side tend to be larger?
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankTest {
    /// Pairs in which head is larger than base; ties count a half.
    pub u: f64,
    /// Probability of such ranks or more uneven ones, if both sides were alike. Exact without ties if the smaller side has at most
    /// eight values and there are at most 10,000 pairs of one value of each side, else by the normal approximation with corrections for
    /// ties and continuity (as SciPy).
    pub p: f64,
}

/// Up to this many values on the smaller side all arrangements are counted,
const EXACT_RANKS: usize = 8;
/// unless there are more pairs of one value of each side: counting takes time that grows with their square.
const EXACT_PAIRS: usize = 10_000;

impl RankTest {
    /// `None` if a side has no values or one that is not finite.
    pub fn test(base: &[f64], head: &[f64]) -> Option<RankTest> {
        let (base, head) = (sorted(base)?, sorted(head)?);
        let (n, m) = (base.len(), head.len());
        let mut all: Vec<(f64, bool)> = base.iter().map(|v| (*v, false)).collect();
        all.extend(head.iter().map(|v| (*v, true)));
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut rank_sum, mut ties) = (0.0, 0.0);
        let mut at = 0;
        for group in all.chunk_by(|a, b| a.0 == b.0) {
            let size = group.len() as f64;
            // The ranks from `at` + 1 on, which they share.
            let rank = at as f64 + (size + 1.0) / 2.0;
            rank_sum += rank * group.iter().filter(|(_, head)| *head).count() as f64;
            ties += size.powi(3) - size;
            at += group.len();
        }
        let u = rank_sum - (m * (m + 1)) as f64 / 2.0;
        let product = (n * m) as f64;
        let larger = u.max(product - u);
        let is_counted = n.min(m) <= EXACT_RANKS && n.saturating_mul(m) <= EXACT_PAIRS;
        let p = if ties == 0.0 && is_counted {
            // The same either way round; memory grows with the second.
            2.0 * exact_tail(n.max(m), n.min(m), larger as usize)
        } else {
            let total = (n + m) as f64;
            let spread = product / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
            if spread <= 0.0 {
                1.0 // all values are the same
            } else {
                let z = (larger - product / 2.0 - 0.5) / spread.sqrt();
                2.0 * Normal::standard().cdf(-z)
            }
        };
        Some(RankTest {
            u,
            p: p.clamp(0.0, 1.0),
        })
    }
}

/// Share of all arrangements of n and m values whose U is at least `least`.
fn exact_tail(n: usize, m: usize, least: usize) -> f64 {
    // ways[j][u]: arrangements of i values of one side and j of the other with this U.
    let width = n * m + 1;
    let mut ways = vec![vec![0.0f64; width]; m + 1];
    for row in &mut ways {
        if let Some(first) = row.first_mut() {
            *first = 1.0; // no value of the other side
        }
    }
    for _ in 0..n {
        let mut next = vec![vec![0.0f64; width]; m + 1];
        for j in 0..=m {
            for u in 0..width {
                // The largest value is of the first side: it is larger than all j; or of the second.
                let first = if u >= j { ways[j][u - j] } else { 0.0 };
                let second = if j > 0 { next[j - 1][u] } else { 0.0 };
                next[j][u] = first + second;
            }
        }
        ways = next;
    }
    let total: f64 = ways[m].iter().sum();
    ways[m].iter().skip(least).sum::<f64>() / total
}

/// A percentile bootstrap interval of the ratio of medians, head / base.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MedianRatio {
    /// Median of head over median of base.
    pub ratio: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Confidence of the interval, 0 to 1.
    pub confidence: f64,
}

/// Resamples: the ends of a 99 % interval then rest on 50 each.
const RESAMPLES: usize = 10_000;
/// Of a side with more values it is not drawn value by value.
const DRAWN: usize = 2_000;

impl MedianRatio {
    /// `None` if a side has no values, one that is not finite, or base's median is not above 0. The same values always
    /// give the same interval: the random numbers have a fixed seed.
    pub fn bootstrap(base: &[f64], head: &[f64], confidence: f64) -> Option<MedianRatio> {
        let (base, head) = (sorted(base)?, sorted(head)?);
        let of = quantile(&base, 0.5);
        if of <= 0.0 {
            return None;
        }
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        let mut buffer = Vec::new();
        let mut resampled = |values: &[f64], random: &mut Random| {
            if values.len() > DRAWN {
                return quantile(values, middle(values.len(), random));
            }
            buffer.clear();
            for _ in 0..values.len() {
                buffer.push(values[random.below(values.len())]);
            }
            buffer.sort_by(f64::total_cmp);
            quantile(&buffer, 0.5)
        };
        let mut ratios: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let base = resampled(&base, &mut random);
                resampled(&head, &mut random) / base
            })
            .filter(|ratio| ratio.is_finite())
            .collect();
        ratios.sort_by(f64::total_cmp);
        let tail = (1.0 - confidence) / 2.0;
        Some(MedianRatio {
            ratio: quantile(&head, 0.5) / of,
            low: quantile(&ratios, tail),
            high: quantile(&ratios, 1.0 - tail),
            confidence,
        })
    }
}

/// Where the median of so many draws, with replacement, from so many sorted values lies among these, 0 to 1: normally distributed, but for a part that
/// shrinks with their number. So the work does not grow with it.
fn middle(count: usize, random: &mut Random) -> f64 {
    // Box and Muller's; not of 0, which has no logarithm.
    let distance = (-2.0 * (1.0 - random.fraction()).ln()).sqrt();
    let normal = distance * (std::f64::consts::TAU * random.fraction()).cos();
    (0.5 + normal * 0.5 / (count as f64 + 2.0).sqrt()).clamp(0.0, 1.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let infinite = f64::INFINITY;
        for (values, expected) in [
            (&[][..], None),
            (&[f64::NAN], None),
            (&[3.0], Some(3.0)),
            (&[4.0, 1.0, f64::NAN], Some(2.5)),
            (&[9.0, 1.0, 5.0], Some(5.0)),
            (&[1.0, infinite, infinite], Some(infinite)),
            (&[1.0, infinite], Some(infinite)),
        ] {
            assert_eq!(median(values), expected, "{values:?}");
        }
    }

    fn near(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() <= 1e-9 * expected.abs().max(1e-3),
            "{found} instead of {expected}"
        );
    }

    // Two samples of some start, in ms, each with an outlier; the expected values are SciPy's.
    const BASE: [f64; 10] = [
        19.61, 19.9, 20.4, 19.7, 21.3, 19.8, 20.05, 22.9, 19.65, 20.2,
    ];
    const HEAD: [f64; 10] = [
        20.9, 21.2, 20.7, 21.9, 20.95, 24.4, 21.05, 20.85, 21.6, 21.15,
    ];

    /// Resamples of a million values would take hours.
    #[test]
    fn a_bootstrap_of_many_values_is_that_of_draws_without_their_work() {
        let values = |count: usize, factor: f64| -> Vec<f64> {
            let share = |at: usize| at as f64 / count as f64;
            (0..count).map(|at| (100.0 + share(at)) * factor).collect()
        };
        // Just below the limit each is drawn, just above none is.
        let width = |count: usize| {
            let found = MedianRatio::bootstrap(&values(count, 1.0), &values(count, 1.05), 0.95);
            let found = found.unwrap();
            assert!(found.low < 1.05 && 1.05 < found.high, "{found:?}");
            (found.high - found.low) * (count as f64).sqrt()
        };
        let (drawn, not_drawn) = (width(DRAWN), width(DRAWN + 1));
        assert!(
            (drawn / not_drawn - 1.0).abs() < 0.1,
            "{drawn}, {not_drawn}"
        );
        let many = width(1_000_000);
        assert!((many / not_drawn - 1.0).abs() < 0.1, "{many}, {not_drawn}");
    }

    #[test]
    fn a_summary_is_that_of_numpy() {
        let summary = Summary::of(&BASE).unwrap();
        near(summary.mean, 20.351);
        near(summary.standard_deviation, 1.0265957767733553);
        near(summary.median, 19.975);
        near(summary.lower_quartile, 19.725);
        near(summary.upper_quartile, 20.35);
        assert_eq!(
            (summary.minimum, summary.maximum, summary.count),
            (19.61, 22.9, 10)
        );
        assert_eq!(summary.outliers, 0);
        let mut far = BASE.to_vec();
        far.push(90.0);
        assert_eq!(Summary::of(&far).unwrap().outliers, 1);
        assert_eq!(Summary::of(&[3.0]).unwrap().standard_deviation, 0.0);
    }

    #[test]
    fn welch_is_that_of_scipy() {
        let welch = Welch::test(&BASE, &HEAD).unwrap();
        near(welch.difference / welch.standard_error, 2.36220558812602);
        near(welch.degrees, 17.93392185332528);
        near(welch.p, 0.029678390938046147);
        near(welch.half_width(0.95), 0.9954903259692389);
        near(welch.half_width(0.99), 1.3641294321116093);
        near(welch.half_width(0.999), 1.859001352143414);
        assert_eq!(stars(welch.p), "*");
    }

    #[test]
    fn the_rank_test_is_that_of_scipy() {
        // Ten values a side, no ties: the approximation.
        let test = RankTest::test(&BASE, &HEAD).unwrap();
        assert_eq!(test.u, 84.0);
        near(test.p, 0.011329696684474665);
        // Ties: the approximation, though the sides are small.
        let test = RankTest::test(&[1.0, 2.0, 2.0, 3.0, 5.0], &[2.0, 2.0, 4.0, 5.0, 5.0, 9.0]);
        let test = test.unwrap();
        assert_eq!(test.u, 22.0);
        near(test.p, 0.2200499729299179);
        // Small and without ties: exact.
        let test = RankTest::test(
            &[1.1, 2.2, 3.3, 4.4, 5.5, 6.6],
            &[2.5, 3.5, 7.5, 8.5, 9.5, 10.5, 11.5],
        );
        let test = test.unwrap();
        assert_eq!(test.u, 35.0);
        near(test.p, 0.05128205128205128);
        assert_eq!(RankTest::test(&[1.0, 1.0], &[1.0]).unwrap().p, 1.0);
    }

    #[test]
    fn ranks_of_a_few_values_among_thousands_are_not_counted_one_by_one() {
        // Eight values that all lie below all others: u = 0, so z = (n·m / 2 − 0.5) / √(n·m·(n + m + 1) / 12).
        let few: Vec<f64> = (0..8).map(f64::from).collect();
        for (others, is_exact) in [(1_250u32, true), (1_251, false), (10_000, false)] {
            let many: Vec<f64> = (0..others).map(|value| 100.0 + f64::from(value)).collect();
            let pairs = 8.0 * f64::from(others);
            let spread = (pairs * f64::from(others + 9) / 12.0).sqrt();
            let about = 2.0 * Normal::standard().cdf(-(pairs / 2.0 - 0.5) / spread);
            // One of all choices of eight places, either way.
            let choices = (1..=8).fold(1.0, |product, k| {
                product * f64::from(others + k) / f64::from(k)
            });
            let expected = if is_exact { 2.0 / choices } else { about };
            for (base, head) in [(&few, &many), (&many, &few)] {
                let p = RankTest::test(base, head).unwrap().p;
                assert!(
                    (p / expected - 1.0).abs() < 1e-6,
                    "{others}: {p} {expected}"
                );
            }
        }
    }

    #[test]
    fn what_no_test_can_answer_is_none() {
        for (base, head) in [
            (&[][..], &[1.0, 2.0][..]),
            (&[1.0], &[1.0, 2.0]),
            (&[1.0, 1.0], &[1.0, 1.0]),
            (&[1.0, f64::NAN], &[1.0, 2.0]),
            (&[1.0, f64::INFINITY], &[1.0, 2.0]),
        ] {
            assert_eq!(Welch::test(base, head), None);
        }
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
        assert_eq!(RankTest::test(&[], &[1.0]), None);
        assert_eq!(MedianRatio::bootstrap(&[0.0], &[1.0], 0.95), None);
        assert_eq!(MedianRatio::bootstrap(&[], &[1.0], 0.95), None);
    }

    #[test]
    fn the_bootstrap_holds_the_ratio_and_repeats() {
        let ratio = MedianRatio::bootstrap(&BASE, &HEAD, 0.95).unwrap();
        near(ratio.ratio, 21.1 / 19.975);
        assert!(ratio.low > 1.0 && ratio.low < ratio.ratio && ratio.ratio < ratio.high);
        assert_eq!(MedianRatio::bootstrap(&BASE, &HEAD, 0.95), Some(ratio));
    }
}
