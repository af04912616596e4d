//! V8's tables of source positions, of bytecode and of machine code.

use std::cell::OnceCell;

use nodeprof_bpf::Piece;

/// Adds a piece to a text. Behind one that was lost nothing is added.
pub fn extend(text: &mut Vec<u8>, piece: &Piece) {
    if piece.offset == text.len() as u64 {
        text.extend_from_slice(&piece.bytes);
    }
}

/// A place that a table names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// Characters from the start of the script; `None`: not known.
    pub offset: Option<u32>,
    /// In optimised code: the index of the inlined function it lies in; `None`: in none.
    pub inlined: Option<u32>,
}

impl SourcePosition {
    /// Reads V8's own: a bit that says whether it is of another world (WebAssembly), 30 bits of the offset plus one, 16 bits of the
    /// index plus one.
    pub fn read(word: u64) -> Option<SourcePosition> {
        if word & 1 != 0 {
            return None;
        }
        Some(SourcePosition {
            offset: ((word >> 1 & 0x3fff_ffff) as u32).checked_sub(1),
            inlined: ((word >> 31 & 0xffff) as u32).checked_sub(1),
        })
    }
}

/// Entries of a table from one mark to the next: so many are read for a place that is asked for, and a mark takes a quarter of what they do at least.
const STRIDE: usize = 64;

/// A table, as V8 wrote it.
#[derive(Debug, Default)]
pub struct Table {
    bytes: Vec<u8>,
    /// Bytes that V8 wrote.
    whole: u64,
    /// Where to begin to read, without flags and with them. A generated script has a table of 100,000 entries and as many calls, each of which is
    /// asked for: to read from the start each time would take minutes.
    marks: [OnceCell<Box<[Mark]>>; 2],
}

/// A place between two entries of a table.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Where the next entry begins.
    next: usize,
    /// Of the entry before: its place in the code and in the source.
    at: i64,
    source: i64,
    /// The largest place in the code of all entries before: they rise, unless the table is damaged.
    largest: i64,
}

impl Table {
    /// Adds a piece of it.
    pub fn extend(&mut self, piece: &Piece) {
        self.whole = piece.whole;
        self.marks = Default::default();
        extend(&mut self.bytes, piece);
    }

    /// Where in the source the last entry at or before this offset into the code is.
    ///
    /// The table is a row of pairs of variable-length numbers: distance in the code, with a bit that tells whether a
    /// statement begins there, and distance in the source. Up to V8 13 that bit is the sign (of the distance's complement);
    /// later (`flags`) there are two, the lowest ones.
    pub fn at(&self, offset: i64, flags: bool) -> Option<SourcePosition> {
        let marks = self.marks[usize::from(flags)].get_or_init(|| self.marks(flags));
        // The first entry behind the offset is behind all marks whose entries are not.
        let behind = marks.partition_point(|mark| mark.largest <= offset);
        let mark = behind.checked_sub(1).and_then(|last| marks.get(last));
        let entries = match mark {
            Some(mark) => Entries::from(mark, &self.bytes, flags),
            None => Entries::new(&self.bytes, flags),
        };
        let mut found = mark.and_then(|mark| SourcePosition::read(mark.source as u64));
        for (at, source) in entries {
            if at > offset {
                return found;
            }
            found = SourcePosition::read(source as u64);
        }
        // What lies behind the end of a table that was cut is not known.
        found.filter(|_| self.bytes.len() as u64 >= self.whole)
    }

    fn marks(&self, flags: bool) -> Box<[Mark]> {
        let mut marks = Vec::new();
        let mut entries = Entries::new(&self.bytes, flags);
        let (mut count, mut largest) = (0usize, i64::MIN);
        while let Some((at, source)) = entries.next() {
            count += 1;
            largest = largest.max(at);
            if count.is_multiple_of(STRIDE) {
                marks.push(Mark {
                    next: self.bytes.len() - entries.bytes.len(),
                    at,
                    source,
                    largest,
                });
            }
        }
        marks.into()
    }
}

/// The entries of a table: places in the code and in the source.
struct Entries<'a> {
    bytes: std::iter::Copied<std::slice::Iter<'a, u8>>,
    flags: bool,
    at: i64,
    source: i64,
}

impl<'a> Entries<'a> {
    fn new(bytes: &'a [u8], flags: bool) -> Entries<'a> {
        Entries {
            bytes: bytes.iter().copied(),
            flags,
            // The first entry of bytecode is the function's entry, before its first bytecode.
            at: -1,
            source: 0,
        }
    }

    fn from(mark: &Mark, bytes: &'a [u8], flags: bool) -> Entries<'a> {
        Entries {
            bytes: bytes.get(mark.next..).unwrap_or_default().iter().copied(),
            flags,
            at: mark.at,
            source: mark.source,
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = (i64, i64);

    fn next(&mut self) -> Option<(i64, i64)> {
        let step = number(&mut self.bytes)? as i64;
        let distance = signed(number(&mut self.bytes)?);
        // Without flags: the complement of a complement, or the number itself.
        self.at = self
            .at
            .saturating_add(step >> if self.flags { 2 } else { 1 });
        self.source = self.source.wrapping_add(distance);
        Some((self.at, self.source))
    }
}

/// A number whose lowest bit is its sign.
pub fn signed(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// One number: seven bits a byte, the lowest first.
pub fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the start to the first entry behind the offset.
    fn by_reading_all(table: &Table, offset: i64, flags: bool) -> Option<SourcePosition> {
        let mut bytes = table.bytes.iter().copied();
        let (mut at, mut source) = (-1i64, 0i64);
        let mut found = None;
        loop {
            let (Some(step), Some(distance)) = (number(&mut bytes), number(&mut bytes)) else {
                return found.filter(|_| table.bytes.len() as u64 >= table.whole);
            };
            let (step, distance) = (step as i64, signed(distance));
            at = at.saturating_add(step >> if flags { 2 } else { 1 });
            source = source.wrapping_add(distance);
            if at > offset {
                return found;
            }
            found = SourcePosition::read(source as u64);
        }
    }

    fn table(bytes: Vec<u8>, missing: u64) -> Table {
        let mut table = Table::default();
        table.extend(&Piece {
            offset: 0,
            whole: bytes.len() as u64 + missing,
            bytes,
        });
        table
    }

    /// Numbers that look random, the same each time.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    fn put(bytes: &mut Vec<u8>, mut number: u64) {
        while number > 0x7f {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    }

    #[test]
    fn a_place_is_that_which_reading_all_of_the_table_finds() {
        let mut random = Random(1);
        let mut found = 0;
        for round in 0..300 {
            let mut bytes = Vec::new();
            for _ in 0..random.below(700) {
                match round % 3 {
                    // As V8 writes them, up and down in the source.
                    0 => {
                        put(&mut bytes, random.below(64));
                        put(&mut bytes, random.below(400));
                    }
                    // Some lead back in the code, some are of another world.
                    1 => {
                        let step = match random.below(20) {
                            0 => (-(random.below(2_000) as i64)) as u64,
                            _ => random.below(64),
                        };
                        put(&mut bytes, step);
                        put(&mut bytes, random.below(1 << 30));
                    }
                    // Anything.
                    _ => bytes.extend([random.below(256) as u8, random.below(256) as u8]),
                }
            }
            let table = table(bytes, random.below(2));
            for flags in [false, true] {
                let places = (-3..40).chain((0..300).map(|_| random.below(30_000) as i64));
                for place in places.chain([i64::MIN, i64::MAX, i64::MAX - 1]) {
                    let expected = by_reading_all(&table, place, flags);
                    assert_eq!(table.at(place, flags), expected, "{round}: {place}");
                    found += u32::from(expected.is_some());
                }
            }
        }
        assert!(found > 10_000, "{found}");
    }

    #[test]
    fn a_piece_that_comes_later_counts() {
        let mut table = table(vec![4, 4], 0);
        assert_eq!(table.at(9, false), by_reading_all(&table, 9, false));
        let bytes = [4, 4].repeat(200);
        table.extend(&Piece {
            offset: 2,
            whole: 2 + bytes.len() as u64,
            bytes,
        });
        for place in 0..500 {
            let expected = by_reading_all(&table, place, false);
            assert_eq!(table.at(place, false), expected, "{place}");
        }
    }

    #[test]
    fn each_of_many_calls_is_found_without_reading_all_of_the_table() {
        let entries = 130_000;
        let table = table([4, 4].repeat(entries), 0);
        for place in 0..entries as i64 {
            assert!(table.at(2 * place + 1, false).is_some());
        }
        // So far it is read from one mark to the next, and not from its start.
        let marks = table.marks[0].get().map(|marks| marks.len());
        assert_eq!(marks, Some(entries / STRIDE));
    }
}
