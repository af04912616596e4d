//! Which functions V8 inlined at a call in optimised code; and where code lay when, optimised or not.

use rustc_hash::FxHashMap as HashMap;
use std::{collections::BTreeMap, ops::Range};

use nodeprof_bpf::{CodeRecord, InlinedRecord, Piece, TranslationsPart};

use super::{
    positions::{SourcePosition, Table},
    translations::Translations,
};

/// More functions one inside of the other than V8 ever inlines: a chain that is longer is damaged.
const DEEPEST: usize = 64;

/// Code, and what belongs to it.
struct Code {
    record: CodeRecord,
    inlined: HashMap<u32, (u32, u64)>,
    positions: Table,
    translations: Translations,
}

/// A function at a call: its number, where in its script it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of its `Record::Function`.
    pub function: u32,
    /// Characters from the start of its script; `None`: V8 does not tell.
    pub offset: Option<u32>,
    /// Where in its bytecode it calls, where V8 tells that instead.
    pub bytecode: Option<u32>,
    /// Nothing else was inlined outside of it, with certainty.
    pub is_all: bool,
}

impl Call {
    fn at(function: u32, position: SourcePosition) -> Call {
        Call {
            function,
            offset: position.offset,
            bytecode: None,
            is_all: position.offset.is_some(),
        }
    }
}

/// Code that came to lie somewhere.
#[derive(Clone, Copy)]
struct Placed {
    /// 0: other code than optimised one, such as baseline code. It is followed all the same: where it lies, none does that lay there before, and
    /// it is not what is moved from there.
    number: u32,
    /// Number of baseline code that was seen on a stack; 0: it is none, or was not seen.
    baseline: u32,
    size: u32,
    /// When it was made, or moved there.
    since: u64,
    /// When it was moved elsewhere, or other code came to lie there.
    until: u64,
}

/// All optimised code that was made, and where any code lies.
#[derive(Default)]
pub struct OptimizedCode {
    codes: HashMap<u32, Code>,
    /// By process and address: what came to lie there. Where code was collected, other code comes to lie, which need not
    /// begin at the same address.
    places: HashMap<u32, BTreeMap<u64, Vec<Placed>>>,
    /// Size of the largest.
    largest: u32,
}

impl OptimizedCode {
    /// New code of a process.
    pub fn add(&mut self, pid: u32, made: u64, record: CodeRecord) {
        let placed = Placed {
            number: record.number,
            baseline: 0,
            size: record.size,
            since: made,
            until: u64::MAX,
        };
        self.place(pid, record.start, placed);
        if record.number == 0 {
            return;
        }
        let code = Code {
            record,
            inlined: HashMap::default(),
            positions: Table::default(),
            translations: Translations::default(),
        };
        self.codes.insert(record.number, code);
    }

    /// Code lies there from now on, and nothing else.
    fn place(&mut self, pid: u32, start: u64, placed: Placed) {
        let range = start..start.saturating_add(placed.size.into());
        self.clear(pid, placed.since, range);
        self.largest = self.largest.max(placed.size);
        let at = self.places.entry(pid).or_default();
        at.entry(start).or_default().push(placed);
    }

    /// What lay there has gone.
    fn clear(&mut self, pid: u32, at: u64, range: Range<u64>) {
        let lowest = range.start.saturating_sub(self.largest.into());
        let Some(places) = self.places.get_mut(&pid) else {
            return;
        };
        for (start, all) in places.range_mut(lowest..range.end) {
            for placed in all.iter_mut().filter(|placed| placed.until > at) {
                if start.saturating_add(placed.size.into()) > range.start {
                    placed.until = at;
                }
            }
        }
    }

    /// Code that the garbage collector has moved.
    pub fn move_to(&mut self, pid: u32, at: u64, (from, to): (u64, u64)) {
        let places = self.places.get_mut(&pid);
        let there = places.and_then(|places| places.get_mut(&from));
        let mut placed = there.into_iter().flatten();
        let Some(last) = placed.find(|placed| placed.since < at && at < placed.until) else {
            // Made before the process was looked at: how much there is of it nobody knows.
            self.clear(pid, at, to..to.saturating_add(1));
            return;
        };
        let moved = Placed { since: at, ..*last };
        last.until = at;
        self.place(pid, to, moved);
    }

    /// What lies there is baseline code that was seen on a stack.
    pub fn name_baseline(&mut self, pid: u32, at: u64, start: u64, number: u32) {
        let places = self.places.get_mut(&pid);
        let there = places.and_then(|places| places.get_mut(&start));
        let lies = |placed: &&mut Placed| placed.since <= at && at < placed.until;
        if let Some(placed) = there.into_iter().flatten().find(lies) {
            placed.baseline = number;
        }
    }

    /// The baseline code at this address and how far behind its first instruction that is; `None`: what lies there is not known. A number of 0: it was
    /// not seen on a stack since it was made.
    pub fn baseline(&self, pid: u32, address: u64, at: u64) -> Option<(u32, u64)> {
        let (start, placed) = self.lying(pid, address, at)?;
        Some((placed.baseline, address - start))
    }

    /// What lies at an address, and where it begins.
    fn lying(&self, pid: u32, address: u64, at: u64) -> Option<(u64, &Placed)> {
        let lowest = address.saturating_sub(self.largest.into());
        (self.places.get(&pid)?.range(lowest..=address))
            .flat_map(|(start, placed)| placed.iter().map(|placed| (*start, placed)))
            .filter(|(_, placed)| placed.since <= at && at < placed.until)
            .filter(|(start, placed)| address - start < placed.size.into())
            .max_by_key(|(_, placed)| (placed.since, placed.number))
    }

    /// A function that is inlined in it.
    pub fn inline(&mut self, inlined: InlinedRecord) {
        if let Some(code) = self.codes.get_mut(&inlined.code) {
            code.inlined
                .insert(inlined.index, (inlined.function, inlined.position));
        }
    }

    /// A piece of its table of positions.
    pub fn position(&mut self, code: u32, table: &Piece) {
        if let Some(code) = self.codes.get_mut(&code) {
            code.positions.extend(table);
        }
    }

    /// A piece of what V8 keeps to leave it.
    pub fn translate(&mut self, code: u32, part: TranslationsPart, piece: &Piece) {
        if let Some(code) = self.codes.get_mut(&code) {
            code.translations.extend(part, piece);
        }
    }

    /// The functions at the call at this address, from the one that was compiled inwards to the innermost that was inlined; `None` if it is not
    /// known. `is_same` tells whether the function that was compiled is the one that is expected.
    pub fn calls(
        &self,
        (pid, address, at): (u32, u64, u64),
        flags: bool,
        is_same: impl Fn(u32) -> bool,
    ) -> Option<Vec<Call>> {
        let (start, placed) = self.lying(pid, address, at)?;
        let code = self.codes.get(&placed.number)?;
        let offset = address - start;
        // While functions that it called run, V8 has found that the code must not go on: they return to such an exit. Where what V8 keeps to
        // leave the code is known, the exit tells the call.
        let is_exit = offset + 1 >= code.record.exits.into();
        if is_exit && code.record.opcodes == 0 || !is_same(code.record.function) {
            return None;
        }
        if code.record.opcodes > 0 {
            return code.translated(u32::try_from(offset).ok()? + 1);
        }
        let mut position = code.positions.at(offset as i64, flags)?;
        let mut calls = Vec::new();
        while let Some(index) = position.inlined {
            let &(function, called) = code.inlined.get(&index)?;
            if function == 0 || calls.len() >= DEEPEST {
                return None;
            }
            calls.push(Call::at(function, position));
            position = SourcePosition::read(called)?;
        }
        calls.push(Call::at(code.record.function, position));
        calls.reverse();
        Some(calls)
    }
}

impl Code {
    /// The same by its translations, at the call that returns here.
    fn translated(&self, returns: u32) -> Option<Vec<Call>> {
        let call = |function, bytecode| Call {
            function,
            offset: None,
            bytecode,
            is_all: true,
        };
        let frames = self.translations.frames(returns, self.record.opcodes);
        if self.record.inlined == 0 {
            let own = frames.as_deref().and_then(<[_]>::first);
            let bytecode = own.and_then(|frame| frame.bytecode);
            return Some(vec![call(self.record.function, bytecode)]);
        }
        let mut frames = frames?.into_iter();
        let outermost = frames.next()?;
        let mut calls = vec![call(self.record.function, outermost.bytecode)];
        for frame in frames {
            let &(function, _) = self.inlined.get(&frame.literal)?;
            if function == 0 || calls.len() > DEEPEST {
                return None;
            }
            calls.push(call(function, frame.bytecode));
        }
        Some(calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variable-length number with a sign bit, as V8 writes it.
    fn put(bytes: &mut Vec<u8>, value: i64) {
        let mut left = ((value << 1) ^ (value >> 63)) as u64;
        while left > 0x7f {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
    }

    /// V8's position of a character, in an inlined function or in none.
    fn position(offset: i64, inlined: Option<i64>) -> i64 {
        (offset + 1) << 1 | inlined.map_or(0, |index| index + 1) << 31
    }

    fn code(number: u32, start: u64, size: u32) -> CodeRecord {
        CodeRecord {
            number,
            function: 100 + number,
            start,
            size,
            exits: size,
            opcodes: 0,
            inlined: 0,
        }
    }

    /// A table with an entry for each distance from the start of the code.
    fn table(entries: &[(i64, i64)]) -> Piece {
        let (mut bytes, mut at, mut source) = (Vec::new(), -1, 0);
        for (distance, position) in entries {
            // No statement begins there: the complement.
            put(&mut bytes, -(distance - at) - 1);
            put(&mut bytes, position - source);
            (at, source) = (*distance, *position);
        }
        Piece {
            offset: 0,
            whole: bytes.len() as u64,
            bytes,
        }
    }

    #[test]
    fn a_call_tells_all_functions_from_the_outermost_inwards() {
        let mut all = OptimizedCode::default();
        all.add(1, 10, code(1, 0x1000, 0x100));
        all.position(
            1,
            &table(&[(4, position(7, None)), (16, position(90, Some(1)))]),
        );
        for (index, function, called) in
            [(0, 21, position(30, None)), (1, 22, position(60, Some(0)))]
        {
            all.inline(InlinedRecord {
                code: 1,
                index,
                function,
                position: called as u64,
            });
        }
        let at = |address| all.calls((1, address, 11), false, |function| function == 101);
        let call = |function, offset| Call {
            function,
            offset: Some(offset),
            bytecode: None,
            is_all: true,
        };
        assert_eq!(at(0x1008), Some(vec![call(101, 7)]));
        assert_eq!(
            at(0x1020),
            Some(vec![call(101, 30), call(21, 60), call(22, 90)])
        );
        assert_eq!(at(0x1002), None, "before the first call");
        assert_eq!(at(0x1100), None, "behind its end");
        let mut left = code(1, 0x1000, 0x100);
        left.exits = 0x20;
        all.codes.get_mut(&1).expect("known").record = left;
        let at = |address| all.calls((1, address, 11), false, |_| true);
        assert!(at(0x101e).is_some());
        assert_eq!(at(0x101f), None, "an exit follows");
        assert_eq!(
            all.calls((2, 0x1008, 11), false, |_| true),
            None,
            "another process"
        );
        assert_eq!(
            all.calls((1, 0x1008, 9), false, |_| true),
            None,
            "not made yet"
        );
        assert_eq!(
            all.calls((1, 0x1008, 11), false, |_| false),
            None,
            "another function's"
        );
    }

    #[test]
    fn code_that_lies_where_others_lay_is_told_by_when_it_was_made() {
        let mut all = OptimizedCode::default();
        for (number, made, start, size) in [
            (1, 10, 0x1000, 0x400),
            (2, 20, 0x1200, 0x40),
            (3, 30, 0x1100, 0x300),
        ] {
            all.add(1, made, code(number, start, size));
            all.position(number, &table(&[(0, position(number.into(), None))]));
        }
        let at = |address, time| {
            let calls = all.calls((1, address, time), false, |_| true);
            calls.map(|calls| calls[0].function)
        };
        assert_eq!(at(0x1210, 15), Some(101));
        assert_eq!(at(0x1210, 25), Some(102));
        assert_eq!(at(0x1210, 35), Some(103));
        assert_eq!(
            at(0x1300, 35),
            Some(103),
            "behind the end of one that begins later"
        );
        assert_eq!(at(0x1050, 15), Some(101));
        assert_eq!(at(0x1050, 35), None, "its end has been overwritten");
    }

    #[test]
    fn code_that_was_moved_is_found_where_it_lies() {
        let mut all = OptimizedCode::default();
        for (number, start) in [(1, 0x1040), (2, 0x1140)] {
            all.add(1, 10, code(number, start, 0xc0));
            all.position(number, &table(&[(0, position(number.into(), None))]));
        }
        let at = |all: &OptimizedCode, address, time| {
            let calls = all.calls((1, address, time), false, |_| true);
            calls.map(|calls| calls[0].function)
        };
        all.move_to(1, 20, (0x1140, 0x5040));
        all.move_to(1, 20, (0x1040, 0x4f40));
        all.move_to(1, 21, (0x9000, 0xa000)); // code of which nothing is known
        all.move_to(2, 21, (0x1040, 0x4040)); // of another process
        assert_eq!(at(&all, 0x1150, 15), Some(102));
        assert_eq!(at(&all, 0x5050, 15), None);
        assert_eq!(at(&all, 0x5050, 25), Some(102));
        assert_eq!(at(&all, 0x4f50, 25), Some(101));
        assert_eq!(at(&all, 0x1050, 25), None, "it lies there no more");
        // And again.
        all.move_to(1, 30, (0x5040, 0x1040));
        assert_eq!(at(&all, 0x1050, 19), Some(101));
        assert_eq!(at(&all, 0x1050, 31), Some(102));
        // Other code came to lie where the first one was collected, and was moved itself.
        all.add(1, 40, code(0, 0x4f40, 0x20));
        assert_eq!(at(&all, 0x4f50, 41), None);
        all.move_to(1, 50, (0x4f40, 0x6040));
        assert_eq!(at(&all, 0x6050, 51), None, "another's");
    }

    #[test]
    fn code_beside_is_not_lost_to_what_was_moved_from_where_other_code_had_lain() {
        let mut all = OptimizedCode::default();
        all.add(1, 10, code(1, 0x1000, 0x800));
        all.add(1, 10, code(2, 0x9100, 0x80));
        all.position(2, &table(&[(0, position(2, None))]));
        let at = |all: &OptimizedCode, address, time| {
            let calls = all.calls((1, address, time), false, |_| true);
            calls.map(|calls| calls[0].function)
        };
        // Baseline code, which is smaller, is moved to where the first one was collected, and from there to before the second one.
        all.add(1, 20, code(0, 0x5000, 0x80));
        all.move_to(1, 30, (0x5000, 0x1000));
        all.move_to(1, 40, (0x1000, 0x9000));
        assert_eq!(at(&all, 0x9110, 50), Some(102));
        assert_eq!(at(&all, 0x9010, 50), None);
        // The same of code that was made before anything was known of it.
        all.add(1, 60, code(3, 0x2000, 0x800));
        all.move_to(1, 70, (0xf000, 0x2000));
        all.move_to(1, 80, (0x2000, 0x9080));
        assert_eq!(at(&all, 0x9110, 90), Some(102));
        assert_eq!(at(&all, 0x2010, 75), None);
    }

    #[test]
    fn baseline_code_is_followed_from_where_it_was_seen() {
        let mut all = OptimizedCode::default();
        all.add(1, 10, code(0, 0x1000, 0x200));
        assert_eq!(all.baseline(1, 0x1010, 11), Some((0, 0x10)), "not seen");
        all.name_baseline(1, 15, 0x1000, 7);
        // To a place that the old one reaches into, and back.
        all.move_to(1, 20, (0x1000, 0x1100));
        all.move_to(1, 30, (0x1100, 0x1000));
        for (at, address, offset) in [(16, 0x1110, 0x110), (25, 0x1110, 0x10), (35, 0x1110, 0x110)]
        {
            assert_eq!(all.baseline(1, address, at), Some((7, offset)), "at {at}");
        }
        assert_eq!(all.baseline(1, 0x1210, 35), None);
        assert_eq!(all.baseline(2, 0x1010, 16), None, "another process");
        // Other code lies there now.
        all.add(1, 40, code(0, 0x1000, 0x80));
        assert_eq!(all.baseline(1, 0x1010, 41), Some((0, 0x10)));
        assert_eq!(all.baseline(1, 0x1090, 41), None);
    }

    #[test]
    fn a_chain_that_is_damaged_is_not_followed() {
        let mut all = OptimizedCode::default();
        all.add(1, 10, code(1, 0x1000, 0x100));
        all.position(1, &table(&[(0, position(90, Some(0)))]));
        assert_eq!(all.calls((1, 0x1008, 11), false, |_| true), None, "lost");
        all.inline(InlinedRecord {
            code: 1,
            index: 0,
            function: 21,
            position: position(1, Some(0)) as u64,
        });
        assert_eq!(
            all.calls((1, 0x1008, 11), false, |_| true),
            None,
            "in itself"
        );
    }
}
