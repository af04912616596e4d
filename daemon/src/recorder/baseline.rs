//! Where in its bytecode baseline code calls: by V8's table of how many bytes each instruction of the bytecode became, and by how long
//! these instructions are.

use std::cell::OnceCell;

use rustc_hash::FxHashMap as HashMap;

use nodeprof_bpf::{BaselinePart, BaselineRecord, Piece};

use super::{positions::number, translations::Bytes};

/// Baseline code, and what belongs to it.
struct Code {
    record: BaselineRecord,
    seen: u64,
    offsets: Bytes,
    bytecode: Bytes,
    /// Where to begin to read. The code of a generated function is asked for as many places as it has calls: to read from the start each time would take
    /// minutes.
    marks: OnceCell<Box<[Mark]>>,
}

impl Code {
    /// The offset into the bytecode of what became the byte at this offset of the code. `sizes` are the same each time, those of the code's process.
    fn bytecode_at(&self, offset: u64, sizes: &[u8]) -> Option<i64> {
        let (offsets, bytecode) = (self.offsets.whole()?, self.bytecode.whole()?);
        let marks = (self.marks).get_or_init(|| marks(offsets, bytecode, sizes).collect());
        let behind = marks.partition_point(|mark| mark.end <= offset);
        let mark = behind.checked_sub(1).and_then(|last| marks.get(last));
        bytecode_at(
            offset,
            mark.copied().unwrap_or_default(),
            offsets,
            bytecode,
            sizes,
        )
    }
}

/// All baseline code that was on a stack.
#[derive(Default)]
pub struct BaselineCode {
    codes: HashMap<u32, Code>,
    /// By function, in the order in which they were seen: the garbage collector may have moved its code.
    of_functions: HashMap<u32, Vec<u32>>,
}

impl BaselineCode {
    /// Code that was seen for the first time, where it lies.
    pub fn add(&mut self, seen: u64, record: BaselineRecord) {
        let code = Code {
            record,
            seen,
            offsets: Bytes::default(),
            bytecode: Bytes::default(),
            marks: OnceCell::new(),
        };
        self.codes.insert(record.number, code);
        (self.of_functions.entry(record.function).or_default()).push(record.number);
    }

    /// A piece of what belongs to it.
    pub fn extend(&mut self, code: u32, part: BaselinePart, piece: &Piece) {
        if let Some(code) = self.codes.get_mut(&code) {
            code.marks = OnceCell::new();
            match part {
                BaselinePart::Offsets => code.offsets.extend(piece),
                BaselinePart::Bytecode => code.bytecode.extend(piece),
            }
        }
    }

    /// Where in its bytecode this code is at this distance from its first instruction; -1: before the first instruction. `sizes`: of V8's bytecodes, as a
    /// plan has them.
    pub fn offset(&self, code: u32, offset: u64, sizes: &[u8]) -> Option<i64> {
        self.codes.get(&code)?.bytecode_at(offset, sizes)
    }

    /// The same by the function's code that was last seen to lie at this address, where it is not known what lies there.
    pub fn place(&self, function: u32, (address, at): (u64, u64), sizes: &[u8]) -> Option<i64> {
        let codes = self.of_functions.get(&function)?.iter().rev();
        let mut codes = codes.filter_map(|number| self.codes.get(number));
        let code = codes.find(|code| {
            code.seen <= at
                && address
                    .checked_sub(code.record.start)
                    .is_some_and(|offset| offset < code.record.size.into())
        })?;
        code.bytecode_at(address - code.record.start, sizes)
    }
}

/// Instructions from one mark to the next.
const STRIDE: usize = 64;

/// A place between two instructions; that before the first one is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Where in the code that ends which is read.
    end: u64,
    /// Bytes of the table that are read.
    read: usize,
    /// The instruction that stands there, in the bytecode; `None`: what enters the function comes first.
    next: Option<usize>,
}

impl Mark {
    /// The place behind the instruction that stands here.
    fn step(self, offsets: &[u8], bytecode: &[u8], sizes: &[u8]) -> Option<Mark> {
        let mut left = offsets.get(self.read..)?.iter().copied();
        let end = self.end.checked_add(number(&mut left)?)?;
        let next = match self.next {
            None => 0,
            Some(next) => next + instruction_bytes(bytecode.get(next..)?, sizes)?,
        };
        Some(Mark {
            end,
            read: offsets.len() - left.len(),
            next: Some(next),
        })
    }
}

fn marks(offsets: &[u8], bytecode: &[u8], sizes: &[u8]) -> impl Iterator<Item = Mark> {
    let step = |mark: &Mark| mark.step(offsets, bytecode, sizes);
    std::iter::successors(Some(Mark::default()), step).step_by(STRIDE)
}

/// The offset into the bytecode of what became the byte at `offset` of the code; -1: what enters the function. Begins to read at `mark`.
fn bytecode_at(
    offset: u64,
    mut mark: Mark,
    offsets: &[u8],
    bytecode: &[u8],
    sizes: &[u8],
) -> Option<i64> {
    loop {
        let behind = mark.step(offsets, bytecode, sizes)?;
        if behind.end > offset {
            return match mark.next {
                None => Some(-1),
                Some(next) => i64::try_from(next).ok(),
            };
        }
        mark = behind;
    }
}

/// The length of the instruction that stands first.
fn instruction_bytes(bytecode: &[u8], sizes: &[u8]) -> Option<usize> {
    let opcodes = sizes.len() / 3;
    let opcode = *bytecode.first()?;
    // Of the first four opcodes two say that the operands of the next one have two bytes, two that they have four (the latter ones are a debugger's).
    let (prefix, wide) = match opcode {
        0 | 2 => (1, 1),
        1 | 3 => (1, 2),
        _ => (0, 0),
    };
    let opcode = usize::from(*bytecode.get(prefix)?);
    let size = *sizes.get(wide * opcodes..)?.get(..opcodes)?.get(opcode)?;
    (size > 0).then_some(prefix + usize::from(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a V8 with six opcodes: four prefixes, one without an operand, one with one.
    const SIZES: [u8; 18] = [1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 5];

    fn piece(bytes: &[u8]) -> Piece {
        Piece {
            offset: 0,
            whole: bytes.len() as u64,
            bytes: bytes.to_vec(),
        }
    }

    fn code(number: u32, start: u64) -> BaselineRecord {
        BaselineRecord {
            number,
            function: 7,
            start,
            size: 0x200,
        }
    }

    #[test]
    fn calls_are_told_by_the_instructions_of_the_bytecode_that_they_came_from() {
        // 4; 5 n; wide 5 nn; extra wide 5 nnnn; 4.
        let bytecode = [4, 5, 9, 0, 5, 9, 9, 1, 5, 9, 9, 9, 9, 4];
        // The entry is 16 bytes, then 8, 200 (two bytes of seven bits), none, 4, 2.
        let offsets = [16, 8, 200 & 0x7f | 0x80, 200 >> 7, 0, 4, 2];
        let at = |offset| bytecode_at(offset, Mark::default(), &offsets, &bytecode, &SIZES);
        for (offset, found) in [
            (0, Some(-1)),
            (15, Some(-1)),
            (16, Some(0)),
            (23, Some(0)),
            (24, Some(1)),
            (223, Some(1)),
            // What became nothing is nowhere.
            (224, Some(7)),
            (227, Some(7)),
            (228, Some(13)),
            (229, Some(13)),
            // Behind the end.
            (230, None),
        ] {
            assert_eq!(at(offset), found, "{offset}");
        }
    }

    #[test]
    fn all_places_of_long_code_are_told_without_reading_it_all_for_each() {
        const COUNT: usize = 200_000;
        let mut all = BaselineCode::default();
        all.add(10, code(1, 0));
        let pieces = [
            (BaselinePart::Offsets, vec![4; COUNT + 1]),
            (BaselinePart::Bytecode, vec![4; COUNT]),
        ];
        for (part, bytes) in pieces {
            all.extend(1, part, &piece(&bytes));
        }
        for offset in 0..4 * (COUNT as u64 + 1) {
            let found = all.offset(1, offset, &SIZES);
            assert_eq!(found, Some(offset as i64 / 4 - 1));
        }
        assert_eq!(all.offset(1, 4 * (COUNT as u64 + 1), &SIZES), None);
    }

    #[test]
    fn what_is_damaged_tells_nothing() {
        for (bytecode, sizes) in [
            (&[4][..], &[][..]),
            (&[], &SIZES),
            (&[0], &SIZES),
            (&[6], &SIZES),
            (&[4], &[0; 18]),
        ] {
            assert_eq!(
                bytecode_at(5, Mark::default(), &[4, 4], bytecode, sizes),
                None,
                "{bytecode:?}"
            );
        }
        assert_eq!(
            bytecode_at(5, Mark::default(), &[4, 0x80], &[4, 4], &SIZES),
            None
        );
        assert_eq!(bytecode_at(5, Mark::default(), &[], &[4, 4], &SIZES), None);
    }

    #[test]
    fn code_that_was_moved_is_found_where_it_lay_then() {
        let mut all = BaselineCode::default();
        for (number, seen, start) in [(1, 10, 0x1000), (2, 20, 0x1100)] {
            all.add(seen, code(number, start));
            all.extend(
                number,
                BaselinePart::Offsets,
                &piece(&[0x40, 0x40, 0x40, 0x40, 0x40]),
            );
            all.extend(number, BaselinePart::Bytecode, &piece(&[4, 4, 4, 4, 4, 4]));
        }
        let at = |place| all.place(7, place, &SIZES);
        assert_eq!(at((0x1110, 15)), Some(3));
        assert_eq!(at((0x1110, 25)), Some(-1));
        assert_eq!(at((0x1050, 25)), Some(0), "where it lay before");
        assert_eq!(at((0x1050, 5)), None, "not yet seen");
        assert_eq!(at((0x1301, 25)), None, "behind its end");
        assert_eq!(all.place(8, (0x1110, 25), &SIZES), None, "another function");
        let mut cut = BaselineCode::default();
        cut.add(10, code(1, 0x1000));
        cut.extend(1, BaselinePart::Offsets, &piece(&[0x40, 0x40]));
        assert_eq!(cut.place(7, (0x1050, 15), &SIZES), None, "no bytecode");
    }
}
