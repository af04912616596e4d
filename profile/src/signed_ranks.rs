//! Wilcoxon's signed ranks: is a set of differences symmetric about 0?
//!
//! If the order within each pair was tossed and both sides are alike, each difference is as likely as its negative, whatever
//! the distribution. So the probability is exact: all 2ⁿ choices of signs are counted.

use statrs::distribution::{ContinuousCDF, Normal};

/// Beyond this many differences the normal approximation is used: it is then right to four digits, and counting takes time that grows
/// with the cube.
const EXACT: usize = 200;

/// What the signed ranks say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignedRanks {
    /// Sum of the ranks of the negative or of the positive differences, whichever is less.
    pub least: f64,
    /// Probability of so small a sum or a smaller one, either way, if both signs were equally likely.
    pub p: f64,
}

impl SignedRanks {
    /// Differences of 0 have no sign and are left out. Finite values only; without any other than 0, p is 1.
    pub fn of(differences: &[f64]) -> SignedRanks {
        let mut sizes: Vec<(f64, bool)> = differences
            .iter()
            .filter(|d| **d != 0.0)
            .map(|d| (d.abs(), *d > 0.0))
            .collect();
        sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Twice the ranks, so that shared ones are whole numbers.
        let mut doubled: Vec<usize> = Vec::with_capacity(sizes.len());
        let mut positive = 0;
        for tied in sizes.chunk_by(|a, b| a.0 == b.0) {
            let rank = 2 * doubled.len() + tied.len() + 1;
            positive += rank * tied.iter().filter(|(_, positive)| *positive).count();
            doubled.extend(std::iter::repeat_n(rank, tied.len()));
        }
        let total: usize = doubled.iter().sum();
        let least = positive.min(total - positive);
        let tail = if sizes.len() <= EXACT {
            exact(&doubled, least)
        } else {
            approximate(&doubled, least)
        };
        SignedRanks {
            least: least as f64 / 2.0,
            p: (2.0 * tail).min(1.0),
        }
    }
}

/// Share of all choices of signs whose sum of ranks is at most `least`.
fn exact(ranks: &[usize], least: usize) -> f64 {
    // shares[s]: the choices with sum s among those made so far.
    let mut shares = vec![0.0f64; least + 1];
    shares[0] = 1.0;
    for rank in ranks {
        for sum in (0..=least).rev() {
            let with = sum.checked_sub(*rank).map_or(0.0, |before| shares[before]);
            shares[sum] = (shares[sum] + with) / 2.0;
        }
    }
    shares.iter().sum()
}

fn approximate(doubled: &[usize], least: usize) -> f64 {
    let half: f64 = doubled.iter().map(|r| *r as f64).sum::<f64>() / 2.0;
    let spread: f64 = doubled
        .iter()
        .map(|r| (*r as f64).powi(2))
        .sum::<f64>()
        .sqrt()
        / 2.0;
    // One rank is two here: half a rank for continuity.
    Normal::standard().cdf((least as f64 + 1.0 - half).min(0.0) / spread)
}

/// The middle of all means of two differences (each with itself, too), by Hodges and Lehmann, and the interval between such means
/// without the `outside` least and greatest of them, which holds the true middle; `None` if `outside` is 0.
pub fn shift(differences: &[f64], outside: usize) -> (f64, Option<(f64, f64)>) {
    let mut means = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (index, one) in differences.iter().enumerate() {
        means.extend(differences[index..].iter().map(|other| (one + other) / 2.0));
    }
    // Four of them are asked for: sorting all takes ten times as long, and half of the memory once more.
    let count = means.len();
    let mut at = |index: usize| match index < count {
        true => *means.select_nth_unstable_by(index, f64::total_cmp).1,
        false => f64::NAN,
    };
    let middle = (at((count.max(1) - 1) / 2) + at(count / 2)) / 2.0;
    let interval = outside.checked_sub(1).map(|first| {
        (
            at(first),
            count.checked_sub(outside).map_or(f64::NAN, &mut at),
        )
    });
    (middle, interval)
}

/// How many means to leave out at either end, so that the interval of this many differences misses the middle with at most this
/// chance; 0: no interval is that sure.
pub fn outside(count: usize, chance: f64) -> usize {
    // As many as there are sums, from 0 on, that have this share together.
    let tail = chance / 2.0;
    let doubled: Vec<usize> = (1..=count).map(|rank| 2 * rank).collect();
    let share = |sum: usize| {
        if count <= EXACT {
            exact(&doubled, 2 * sum)
        } else {
            approximate(&doubled, 2 * sum)
        }
    };
    // The smallest sum whose share is above `tail`, by halving.
    let (mut low, mut high) = (0, count * (count + 1) / 2);
    while low < high {
        let middle = (low + high) / 2;
        if share(middle) > tail {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() <= 1e-12 * expected.abs().max(1e-3),
            "{found} instead of {expected}"
        );
    }

    const DIFFERENCES: [f64; 12] = [
        0.031, -0.012, 0.044, 0.027, 0.008, 0.052, -0.003, 0.019, 0.036, 0.041, -0.021, 0.015,
    ];

    #[test]
    fn the_probability_is_that_of_scipy() {
        let test = SignedRanks::of(&DIFFERENCES);
        assert_eq!(test.least, 10.0);
        near(test.p, 0.02099609375);
    }

    #[test]
    fn ties_and_zeros_are_counted_out() {
        // Of 2³ choices of signs of the ranks 1.5, 1.5, 3: sums 0, 1.5, 1.5, 3, 3, 4.5, 4.5, 6.
        near(SignedRanks::of(&[1.0, -1.0, 2.0, 0.0]).p, 0.75);
        near(SignedRanks::of(&[1.0, 1.0, 2.0]).p, 0.25);
        near(SignedRanks::of(&[0.0, 0.0]).p, 1.0);
        near(SignedRanks::of(&[]).p, 1.0);
        // Twenty differences of one sign.
        near(SignedRanks::of(&[0.5; 20]).p, 2f64.powi(-19));
    }

    #[test]
    fn the_approximation_continues_the_exact_values() {
        let differences: Vec<f64> = (1..=EXACT)
            .map(|i| if i % 5 < 2 { -1.0 } else { 1.0 } * i as f64)
            .collect();
        let exactly = SignedRanks::of(&differences).p;
        let doubled: Vec<usize> = (1..=EXACT).map(|r| 2 * r).collect();
        let least = (2.0 * SignedRanks::of(&differences).least) as usize;
        let about = 2.0 * approximate(&doubled, least);
        assert!(
            (about / exactly - 1.0).abs() < 0.02,
            "{about} for {exactly}"
        );
    }

    #[test]
    fn the_interval_is_that_of_r() {
        // R: wilcox.test(d, conf.int = TRUE, conf.level = 0.99): by hand, the 8th of the 78 means from either end
        // (psignrank(7, 12) = 0.0046, psignrank(8, 12) = 0.0061 > 0.005).
        let (middle, interval) = shift(&DIFFERENCES, outside(12, 0.01));
        let mut means: Vec<f64> = Vec::new();
        for (i, one) in DIFFERENCES.iter().enumerate() {
            means.extend(DIFFERENCES[i..].iter().map(|other| (one + other) / 2.0));
        }
        means.sort_by(f64::total_cmp);
        near(middle, (means[38] + means[39]) / 2.0);
        assert_eq!(interval, Some((means[7], means[70])));
        // Five differences cannot be that sure: 2⁻⁵ > 0.005.
        assert_eq!(outside(5, 0.01), 0);
        assert_eq!(shift(&DIFFERENCES[..5], 0).1, None);
    }
}
