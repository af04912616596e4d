//! Where in its bytecode baseline code calls: by V8's table of how many bytes each instruction of the bytecode became, and by how long
//! these instructions are.

use rustc_hash::FxHashMap as HashMap;

use nodeprof_bpf::{BaselinePart, BaselineRecord, Piece};

use super::{positions::number, translations::Bytes};

/// Baseline code, and what belongs to it.
struct Code {
    record: BaselineRecord,
    seen: u64,
    offsets: Bytes,
    bytecode: Bytes,
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
        };
        self.codes.insert(record.number, code);
        (self.of_functions.entry(record.function).or_default()).push(record.number);
    }

    /// A piece of what belongs to it.
    pub fn extend(&mut self, code: u32, part: BaselinePart, piece: &Piece) {
        if let Some(code) = self.codes.get_mut(&code) {
            match part {
                BaselinePart::Offsets => code.offsets.extend(piece),
                BaselinePart::Bytecode => code.bytecode.extend(piece),
            }
        }
    }

    /// Where in its bytecode this code is at this distance from its first instruction; -1: before the first instruction. `sizes`: of V8's bytecodes, as a
    /// plan has them.
    pub fn offset(&self, code: u32, offset: u64, sizes: &[u8]) -> Option<i64> {
        let code = self.codes.get(&code)?;
        bytecode_at(offset, code.offsets.whole()?, code.bytecode.whole()?, sizes)
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
        let offset = address - code.record.start;
        bytecode_at(offset, code.offsets.whole()?, code.bytecode.whole()?, sizes)
    }
}

/// The offset into the bytecode of what became the byte at `offset` of the code.
fn bytecode_at(offset: u64, offsets: &[u8], bytecode: &[u8], sizes: &[u8]) -> Option<i64> {
    let mut offsets = offsets.iter().copied();
    // What enters the function comes first.
    let (mut end, mut found, mut next) = (number(&mut offsets)?, -1, 0);
    while end <= offset {
        end = end.checked_add(number(&mut offsets)?)?;
        found = i64::try_from(next).ok()?;
        next += instruction_bytes(bytecode.get(next..)?, sizes)?;
    }
    Some(found)
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
        let at = |offset| bytecode_at(offset, &offsets, &bytecode, &SIZES);
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
    fn what_is_damaged_tells_nothing() {
        for (bytecode, sizes) in [
            (&[4][..], &[][..]),
            (&[], &SIZES),
            (&[0], &SIZES),
            (&[6], &SIZES),
            (&[4], &[0; 18]),
        ] {
            assert_eq!(
                bytecode_at(5, &[4, 4], bytecode, sizes),
                None,
                "{bytecode:?}"
            );
        }
        assert_eq!(bytecode_at(5, &[4, 0x80], &[4, 4], &SIZES), None);
        assert_eq!(bytecode_at(5, &[], &[4, 4], &SIZES), None);
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
