//! Which functions are inlined at a call in optimised code that has no table of positions, as Maglev's in V8 12.4 to 13.6 has none: by what V8
//! keeps to leave the code there for the interpreter.
//!
//! Its safepoint table has, for each call that may be left, the number of an exit; the exit has a place in the translations; there stand the
//! frames that take the place of the code's one: of each its function, a literal of the code, and where in its bytecode it is.

use nodeprof_bpf::{Piece, TranslationsPart};
use nodeprof_probes::{HAS_STACK_SLOTS, TRANSLATIONS};

use super::positions::{extend, number, signed};

/// Bytes, as V8 wrote them.
#[derive(Debug, Default)]
pub struct Bytes {
    bytes: Vec<u8>,
    whole: u64,
}

impl Bytes {
    /// Adds a piece of them.
    pub fn extend(&mut self, piece: &Piece) {
        self.whole = piece.whole;
        extend(&mut self.bytes, piece);
    }

    /// `None` if a part was lost, or never came.
    pub fn whole(&self) -> Option<&[u8]> {
        (self.whole > 0 && self.bytes.len() as u64 == self.whole).then_some(&self.bytes)
    }
}

/// Of one piece of code.
#[derive(Debug, Default)]
pub struct Translations {
    safepoints: Bytes,
    exits: Bytes,
    /// Exits that come before these.
    before: u32,
    translations: Bytes,
}

/// A function's frame in a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Which of the code's literals its function is.
    pub literal: u32,
    /// Where in its bytecode it is.
    pub bytecode: Option<u32>,
}

impl Translations {
    /// Adds a piece of a part.
    pub fn extend(&mut self, part: TranslationsPart, piece: &Piece) {
        match part {
            TranslationsPart::Safepoints => self.safepoints.extend(piece),
            TranslationsPart::Exits { before } => {
                self.before = before;
                self.exits.extend(piece);
            }
            TranslationsPart::Translations => self.translations.extend(piece),
        }
    }

    /// The frames at the call that returns to this offset in the code, the outermost first: behind the call, or to its exit where V8 has given up
    /// the code. `opcodes`: how many V8 has, which tells which they are.
    pub fn frames(&self, returns: u32, opcodes: u16) -> Option<Vec<Frame>> {
        let operands = (TRANSLATIONS.iter()).find(|all| all.len() == usize::from(opcodes))?;
        let has_slots = operands.first() == Some(&HAS_STACK_SLOTS);
        // Bytecode offset, place in the translations, place of the exit: numbers in the upper halves of words.
        let mut exits = self.exits.whole()?.chunks_exact(24);
        let exit = match exits
            .clone()
            .find(|exit| word(exit, 16 + 4) == Some(returns))
        {
            Some(exit) => exit,
            None => {
                let number = exit(self.safepoints.whole()?, returns, has_slots)?;
                exits.nth(usize::try_from(number.checked_sub(self.before)?).ok()?)?
            }
        };
        let place = word(exit, 8 + 4)?;
        let language = Language::of(operands)?;
        language.frames(self.translations.whole()?, usize::try_from(place).ok()?)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

/// The exit that a call's safepoint names. The table: number of entries, sizes of their fields (from V8 13 on behind the number of stack slots), then
/// of each entry where the call returns, one more than the exit, one more than where that lies, and what the collector wants to know.
fn exit(table: &[u8], returns: u32, has_slots: bool) -> Option<u32> {
    const HEAD: usize = 16;
    let head = if has_slots { 4 } else { 0 };
    let (entries, sizes) = (word(table, head)?, word(table, head + 4)?);
    let size = |shift: u32| (sizes >> shift & 7) as usize;
    let (registers, place, exit) = (size(1), size(4), size(7));
    if sizes & 1 == 0 {
        return None; // no call of it is one where it may be left
    }
    let entry = place + exit + place + 1 + registers;
    let little_endian = |bytes: &[u8]| {
        let bytes = bytes.iter().rev();
        bytes.fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let entries = (table.get(HEAD..)?.chunks_exact(entry)).take(usize::try_from(entries).ok()?);
    for fields in entries {
        let (at, rest) = fields.split_at_checked(place)?;
        if little_endian(at) == u64::from(returns) {
            let found = little_endian(rest.get(..exit)?);
            return u32::try_from(found).ok()?.checked_sub(1);
        }
    }
    None
}

/// An instruction of a translation, with the first two of its operands.
type Instruction = (u8, [i64; 2]);

/// V8's opcodes.
struct Language {
    operands: &'static [u8],
    /// The first opcode that begins a translation; the one behind it does, too.
    begin: u8,
    /// Opcodes of frames are below.
    frames: u8,
}

impl Language {
    fn of(operands: &'static [u8]) -> Option<Language> {
        let begin = operands.windows(3).position(|all| all == [0, 3, 3])? + 1;
        let arguments = operands.windows(2).position(|all| all == [1, 0])?;
        Some(Language {
            operands,
            begin: u8::try_from(begin).ok()?,
            frames: u8::try_from(arguments).ok()?,
        })
    }

    fn is_begin(&self, opcode: u8) -> bool {
        opcode == self.begin || opcode == self.begin + 1
    }

    /// One instruction that stands there; `at` is put behind it.
    fn read(&self, bytes: &[u8], at: &mut usize) -> Option<Instruction> {
        let mut left = bytes.get(*at..)?.iter().copied();
        let opcode = left.next()?;
        let mut operands = [0; 2];
        for index in 0..usize::from(*self.operands.get(usize::from(opcode))?) {
            let value = number(&mut left)?;
            if let Some(operand) = operands.get_mut(index) {
                *operand = value as i64;
            }
        }
        *at = bytes.len() - left.len();
        Some((opcode, operands))
    }

    /// The frames of the translation that begins there.
    fn frames(&self, bytes: &[u8], place: usize) -> Option<Vec<Frame>> {
        let mut at = place;
        let (begin, [back, frames]) = self.read(bytes, &mut at)?;
        if !self.is_begin(begin) {
            return None;
        }
        let mut frames_left = signed(frames as u64);
        // What it repeats of the one that begins so far before: from the same place in the row of instructions on.
        let mut other = place.checked_sub(usize::try_from(back).ok()?)?;
        let mut other_index = 0usize;
        let (mut index, mut repeated) = (1usize, 0u64);
        let mut found = Vec::new();
        while frames_left > 0 {
            if repeated == 0 {
                let opcode = *bytes.get(at)?;
                let repeat = self.operands.len() - 1;
                if usize::from(opcode) > repeat {
                    repeated = (usize::from(opcode) - self.operands.len()) as u64;
                    at += 1;
                } else if usize::from(opcode) == repeat {
                    repeated = self.read(bytes, &mut at)?.1[0] as u64;
                }
                if usize::from(opcode) >= repeat && (repeated == 0 || back == 0) {
                    return None;
                }
            }
            let (opcode, operands) = if repeated > 0 {
                repeated -= 1;
                while other_index < index {
                    self.read(bytes, &mut other)?;
                    other_index += 1;
                }
                other_index += 1;
                self.read(bytes, &mut other)?
            } else {
                self.read(bytes, &mut at)?
            };
            index += 1;
            if self.is_begin(opcode) {
                return None;
            }
            if opcode < self.frames {
                frames_left -= 1;
            }
            // Others are V8's own, for builtins and constructors.
            if opcode < 2 {
                let [bytecode, literal] = operands.map(|operand| signed(operand as u64));
                found.push(Frame {
                    literal: u32::try_from(literal).ok()?,
                    bytecode: u32::try_from(bytecode).ok(),
                });
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a function of two lines, with another inlined in it, that Maglev of 22.8.0 compiled.
    const SAFEPOINTS: &str = "06000000a100000001000000000000004200032b02007100042f0200a40005330200f20006370200f10100000001130200000001";
    const TRANSLATIONS: &str = "0c0004040106020221042303230521062020012600062108210a230521062201210c2200200c250202010e02022d22010c300202010302022e\
        0c3904042f000a000600022c202920290c4904042f001e000600022c230a2920290c5a04042f0026000600022c20202029";
    /// Bytecode offset, place in the translations, place of the exit.
    const EXITS: [[i32; 3]; 4] = [[-1, 48, 550], [5, 57, 554], [15, 73, 558], [19, 90, 562]];
    const OPCODES: u16 = 40;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        let bytes = digits.chunks(2).map(|two| (two[0] << 4 | two[1]) as u8);
        bytes.collect()
    }

    fn piece(bytes: Vec<u8>) -> Piece {
        Piece {
            offset: 0,
            whole: bytes.len() as u64,
            bytes,
        }
    }

    fn code(safepoints: Vec<u8>, translations: Vec<u8>) -> Translations {
        let smi = |number: &i32| [[0; 4], number.to_le_bytes()].concat();
        let exits: Vec<u8> = EXITS.iter().flatten().flat_map(smi).collect();
        let mut code = Translations::default();
        code.extend(TranslationsPart::Safepoints, &piece(safepoints));
        code.extend(TranslationsPart::Exits { before: 2 }, &piece(exits));
        code.extend(TranslationsPart::Translations, &piece(translations));
        code
    }

    fn frame(literal: u32, bytecode: u32) -> Frame {
        Frame {
            literal,
            bytecode: Some(bytecode),
        }
    }

    #[test]
    fn a_call_tells_its_frames_from_the_outermost_inwards() {
        let code = code(hex(SAFEPOINTS), hex(TRANSLATIONS));
        let at = |returns| code.frames(returns, OPCODES);
        let nowhere = Frame {
            literal: 1,
            bytecode: None,
        };
        assert_eq!(at(0x42), Some(vec![nowhere]), "before its first bytecode");
        assert_eq!(at(0x71), Some(vec![frame(1, 3), frame(0, 5)]));
        assert_eq!(at(0xa4), Some(vec![frame(1, 3), frame(0, 15)]));
        assert_eq!(at(0xf2), Some(vec![frame(1, 3), frame(0, 19)]));
        for (returns, [_, _, exit]) in [0x42, 0x71, 0xa4, 0xf2].into_iter().zip(EXITS) {
            assert_eq!(at(exit as u32), at(returns), "its exit");
        }
        assert_eq!(at(555), None, "within an exit");
        assert_eq!(at(0x1f1), None, "the code is not left there");
        assert_eq!(at(0x72), None, "no call");
        assert_eq!(code.frames(0x71, 41), None, "a language that nobody knows");
    }

    #[test]
    fn from_v8_13_on_stack_slots_and_bytecode_arrays_stand_between() {
        let safepoints = [vec![7, 0, 0, 0], hex(SAFEPOINTS)].concat();
        let (head, entries) = safepoints.split_at(16);
        let safepoints = [head, entries.split_at(4).1].concat();
        let mut translations = vec![0; 57];
        translations.extend(hex("0e000202 000a020006000226"));
        let code = code(safepoints, translations);
        assert_eq!(code.frames(0x71, 45), Some(vec![frame(1, 5)]));
    }

    #[test]
    fn what_was_lost_or_is_damaged_tells_nothing() {
        let whole = hex(TRANSLATIONS);
        let mut lost = code(hex(SAFEPOINTS), whole.clone());
        lost.translations.whole += 1;
        assert_eq!(lost.frames(0x71, OPCODES), None);
        assert_eq!(Translations::default().frames(0x71, OPCODES), None);
        for cut in 0..whole.len() {
            let code = code(hex(SAFEPOINTS), whole[..cut].to_vec());
            let found = code.frames(0x71, OPCODES);
            assert!(found.is_none() || cut > 57, "{cut}: {found:?}");
        }
        for byte in 0..whole.len() {
            for value in 0..=u8::MAX {
                let mut damaged = whole.clone();
                damaged[byte] = value;
                for [_, place, _] in EXITS {
                    let language = Language::of(nodeprof_probes::TRANSLATIONS[0]).expect("known");
                    language.frames(&damaged, place as usize);
                }
            }
        }
    }
}
