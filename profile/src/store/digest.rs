//! A checksum over every value of a recording, in the order of tables, rows and columns.
//!
//! SQLite finds a damaged page structure, not a flipped bit in a number: that would be read as another figure.
//! Against accidents only. One multiplication per word, so that a million crossings take about 20 ms.

use std::fmt;

use rusqlite::types::ValueRef;

/// The state; each step is a bijection of it for a given word, so that one changed value always changes the result.
pub(super) struct Digest(u64);

/// 2^64 / golden ratio, odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Stand for a NULL and for the kinds of value that are not integers.
const NULL: u64 = 0xa076_1d64_78bd_642f;
const REAL: u64 = 0xe703_7ed1_a0b4_28db;
const TEXT: u64 = 0x8ebc_6af0_9c88_c6e3;
const BLOB: u64 = 0x5899_65cc_7537_4cc3;

impl Digest {
    pub(super) fn new() -> Digest {
        Digest(SPREAD)
    }

    pub(super) fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(SPREAD);
    }

    fn bytes(&mut self, kind: u64, bytes: &[u8]) {
        self.word(kind ^ bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    /// Begins a table: rows cannot move from one to the next unnoticed.
    pub(super) fn table(&mut self, name: &str) {
        self.bytes(TEXT, name.as_bytes());
    }

    pub(super) fn value(&mut self, value: ValueRef<'_>) {
        match value {
            ValueRef::Integer(integer) => self.word(integer as u64),
            ValueRef::Null => self.word(NULL),
            ValueRef::Real(real) => {
                self.word(REAL);
                self.word(real.to_bits());
            }
            ValueRef::Text(text) => self.bytes(TEXT, text),
            ValueRef::Blob(blob) => self.bytes(BLOB, blob),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}
