//! With what power a difference of 2 % is found, and how often one is seen where there is none, by simulation.
//!
//! `data/noise-100ms.txt` has the ratios of pairs of runs of one and the same program of about 100 ms, as
//! `bench/false-alarms --planted --realtime --noise FILE` wrote them.
#![allow(clippy::unwrap_used)]

use nodeprof_profile::random::Random;
use nodeprof_profile::sequential::{Answer, FALSE_ALARMS, MARGIN, MOST_PAIRS, Sequential, Verdict};

const TIMES: usize = 5000;

fn noise() -> Vec<f64> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/noise-100ms.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let ratios: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(ratios.len(), 200);
    ratios
}

/// Normally distributed, by the sum of twelve.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.fraction()).sum::<f64>() - 6.0
}

/// Verdicts on pairs with these ratios, head so many times as long, by the rule that `compare` has by itself.
fn verdicts(factor: f64, mut ratio: impl FnMut(&mut Random) -> f64) -> Vec<Verdict> {
    let rule = Sequential::new(MOST_PAIRS, FALSE_ALARMS);
    let mut random = Random::new(4);
    (0..TIMES)
        .map(|_| {
            let pairs: Vec<(f64, f64)> = (0..MOST_PAIRS)
                .map(|_| (0.1, 0.1 * ratio(&mut random) * factor))
                .collect();
            rule.verdict(&pairs, MARGIN).unwrap()
        })
        .collect()
}

/// Drawn from the measured ratios. Which of both was called head in the measured pair is nothing to go by.
fn measured() -> impl FnMut(&mut Random) -> f64 {
    let noise = noise();
    move |random| {
        let ratio = noise[random.below(noise.len())];
        if random.coin() { ratio } else { 1.0 / ratio }
    }
}

/// Shares of verdicts that say slower, and that say what is wrong.
fn slower(verdicts: &[Verdict]) -> (f64, f64) {
    let share = |is: fn(&Verdict) -> bool| {
        verdicts.iter().filter(|v| is(v)).count() as f64 / verdicts.len() as f64
    };
    (
        share(|v| v.answer == Answer::Differ && v.ratio > 1.0),
        share(|v| (v.answer == Answer::Differ && v.ratio < 1.0) || v.answer == Answer::Alike),
    )
}

#[test]
fn two_percent_are_found_with_the_stated_power() {
    // docs/compare.md has this table: standard deviation of one run in percent, and the power.
    for (noise, stated) in [
        (1.0, 1.00),
        (1.5, 0.99),
        (2.0, 0.82),
        (2.5, 0.54),
        (3.0, 0.33),
    ] {
        let sigma = noise / 100.0;
        let ratio = |random: &mut Random| (sigma * (normal(random) - normal(random))).exp();
        let (power, wrong) = slower(&verdicts(1.02, ratio));
        println!("noise {noise} %: power {power:.3}, wrong {wrong:.4}");
        assert!((power - stated).abs() < 0.02, "{noise} %: {power}");
        assert!(wrong < 0.01, "{noise} %: {wrong}");
    }
    let (power, wrong) = slower(&verdicts(1.02, measured()));
    println!("measured noise: power {power:.3}, wrong {wrong:.4}");
    assert!((power - 0.35).abs() < 0.02, "{power}");
    assert!(wrong < 0.01, "{wrong}");
    let (power, _) = slower(&verdicts(1.05, measured()));
    println!("measured noise, 5 %: power {power:.3}");
    assert!(power > 0.99, "{power}");
}

#[test]
fn without_a_difference_false_alarms_are_well_below_one_in_a_hundred() {
    let alarms = verdicts(1.0, measured())
        .iter()
        .filter(|v| v.answer == Answer::Differ)
        .count();
    println!("{alarms} false alarms of {TIMES}");
    // 0.2 % are 10; the chance of more than 22 by luck alone is below 1 in 2,000.
    assert!(alarms <= 22, "{alarms}");
}

#[test]
fn pairs_in_their_order_of_time_are_no_worse() {
    // Noise that comes and goes, as it did while the pairs were measured: 40 pairs from anywhere on. Only which side is which is tossed.
    let noise = noise();
    let (mut at, mut drawn) = (0, 0);
    let in_order = move |random: &mut Random| {
        if drawn % MOST_PAIRS == 0 {
            at = random.below(noise.len());
        }
        drawn += 1;
        at = (at + 1) % noise.len();
        if random.coin() {
            noise[at]
        } else {
            1.0 / noise[at]
        }
    };
    let alarms = verdicts(1.0, in_order)
        .iter()
        .filter(|v| v.answer == Answer::Differ)
        .count();
    println!("{alarms} false alarms of {TIMES}");
    assert!(alarms <= 22, "{alarms}");
}
