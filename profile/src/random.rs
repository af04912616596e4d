//! Random numbers that repeat: the order of pairs, resampling, simulations.

/// Steele, Lea and Flood's generator (SplitMix64): small, fast, and good enough to draw from a sample or to toss a coin.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`. The bias of the multiplication is 2⁻⁴⁰ for a million values.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }

    /// Heads or tails.
    pub fn coin(&mut self) -> bool {
        self.bits() >> 63 == 1
    }

    /// Between 0 and 1.
    pub fn fraction(&mut self) -> f64 {
        // 53 bits: what a double holds exactly.
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Brings values into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_paper() {
        // Values of the reference implementation for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let numbers = [random.bits(), random.bits(), random.bits()];
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn every_order_comes_about_as_often() {
        let mut random = Random::new(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut order = [0, 1, 2];
            random.shuffle(&mut order);
            *seen.entry(order).or_insert(0u32) += 1;
        }
        assert_eq!(seen.len(), 6);
        // 1,000 each; 5 standard deviations are 145.
        assert!(seen.values().all(|n| n.abs_diff(1000) < 145), "{seen:?}");
    }
}
