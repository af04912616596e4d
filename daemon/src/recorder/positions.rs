//! V8's tables of source positions, of bytecode and of machine code.

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

/// A table, as V8 wrote it.
#[derive(Debug, Default)]
pub struct Table {
    bytes: Vec<u8>,
    /// Bytes that V8 wrote.
    whole: u64,
}

impl Table {
    /// Adds a piece of it.
    pub fn extend(&mut self, piece: &Piece) {
        self.whole = piece.whole;
        extend(&mut self.bytes, piece);
    }

    /// Where in the source the last entry at or before this offset into the code is.
    ///
    /// The table is a row of pairs of variable-length numbers: distance in the code, with a bit that tells whether a
    /// statement begins there, and distance in the source. Up to V8 13 that bit is the sign (of the distance's complement);
    /// later (`flags`) there are two, the lowest ones.
    pub fn at(&self, offset: i64, flags: bool) -> Option<SourcePosition> {
        let mut bytes = self.bytes.iter().copied();
        // The first entry of bytecode is the function's entry, before its first bytecode.
        let (mut at, mut source) = (-1i64, 0i64);
        let mut found = None;
        loop {
            let (Some(step), Some(distance)) = (number(&mut bytes), number(&mut bytes)) else {
                // What lies behind the end of a table that was cut is not known.
                return found.filter(|_| self.bytes.len() as u64 >= self.whole);
            };
            let (step, distance) = (step as i64, signed(distance));
            // Without flags: the complement of a complement, or the number itself.
            at = at.saturating_add(step >> if flags { 2 } else { 1 });
            source = source.wrapping_add(distance);
            if at > offset {
                return found;
            }
            found = SourcePosition::read(source as u64);
        }
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
