//! A hash map for small integer keys.
//!
//! A million events are counted into a few thousand cells: with the standard library's SipHash this is most of the
//! time of a report. Keys are indices of the recording itself, so nobody gains by making them collide.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// Multiplies and rotates each word into the state.
#[derive(Clone, Copy, Default)]
pub(crate) struct WordHasher(u64);

/// 2^64 / golden ratio, odd: spreads neighbouring indices over the upper bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl WordHasher {
    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(SPREAD);
    }
}

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.word(u64::from(byte));
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.word(u64::from(value));
    }
    fn write_u16(&mut self, value: u16) {
        self.word(u64::from(value));
    }
    fn write_u32(&mut self, value: u32) {
        self.word(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.word(value);
    }
    fn write_usize(&mut self, value: usize) {
        self.word(value as u64);
    }
    fn finish(&self) -> u64 {
        // hashbrown takes its bucket from the low bits, which a multiplication mixes least.
        self.0 ^ (self.0 >> 32)
    }
}
