//! Which functions V8 inlined at a call in optimised code; and where code lay when, optimised or not.

use rustc_hash::FxHashMap as HashMap;
use std::{collections::BTreeMap, ops::Range};

use nodeprof_bpf::{CodeRecord, InlinedRecord, Piece, TranslationsPart};

use super::{
    positions::{SourcePosition, Table},
    symbols::History,
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
    start: u64,
    size: u32,
    /// When it was made, or moved there.
    since: u64,
    /// When it was moved elsewhere, or other code came to lie there.
    until: u64,
}

impl Placed {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.size.into())
    }

    fn lies(&self, at: u64) -> bool {
        self.since <= at && at < self.until
    }
}

/// What came to lie where in a process. Where code was collected, other code comes to lie, which need not begin at the same address.
#[derive(Default)]
struct Places {
    /// In the order in which it came.
    all: Vec<Placed>,
    /// By index in `all`: what came to lie at an address last.
    history: History<usize>,
    /// What lies there now, by where it begins. None of it lies in another.
    now: BTreeMap<u64, usize>,
}

impl Places {
    /// Code lies there from now on, and nothing else.
    fn place(&mut self, placed: Placed) {
        let range = placed.start..placed.end();
        self.clear(placed.since, range.clone());
        let index = self.all.len();
        self.history
            .change(placed.since, (range.start, range.end), index);
        self.now.insert(placed.start, index);
        self.all.push(placed);
    }

    /// What lay there has gone.
    fn clear(&mut self, at: u64, range: Range<u64>) {
        while let Some((&start, &index)) = self.now.range(..range.end).next_back() {
            let Some(placed) = self.all.get_mut(index) else {
                return;
            };
            if placed.end() <= range.start {
                return;
            }
            placed.until = placed.until.min(at);
            self.now.remove(&start);
        }
    }

    /// What lies at an address, by its index.
    fn lying(&self, address: u64, at: u64) -> Option<usize> {
        let index = self.history.find(address, at)?;
        self.all.get(index)?.lies(at).then_some(index)
    }
}

/// All optimised code that was made, and where any code lies.
#[derive(Default)]
pub struct OptimizedCode {
    codes: HashMap<u32, Code>,
    /// By process.
    places: HashMap<u32, Places>,
}

impl OptimizedCode {
    /// New code of a process.
    pub fn add(&mut self, pid: u32, made: u64, record: CodeRecord) {
        let placed = Placed {
            number: record.number,
            baseline: 0,
            start: record.start,
            size: record.size,
            since: made,
            until: u64::MAX,
        };
        self.places.entry(pid).or_default().place(placed);
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

    /// Code that the garbage collector has moved.
    pub fn move_to(&mut self, pid: u32, at: u64, (from, to): (u64, u64)) {
        let Some(places) = self.places.get_mut(&pid) else {
            return;
        };
        let there = places.now.get(&from).copied();
        let there = there.and_then(|index| places.all.get_mut(index));
        let Some(last) = there.filter(|placed| placed.since < at) else {
            // Made before the process was looked at: how much there is of it nobody knows.
            places.clear(at, to..to.saturating_add(1));
            return;
        };
        last.until = at;
        let moved = Placed {
            start: to,
            since: at,
            until: u64::MAX,
            ..*last
        };
        places.now.remove(&from);
        places.place(moved);
    }

    /// What lies there is baseline code that was seen on a stack.
    pub fn name_baseline(&mut self, pid: u32, at: u64, start: u64, number: u32) {
        let Some(places) = self.places.get_mut(&pid) else {
            return;
        };
        let there = places.lying(start, at);
        let there = there.and_then(|index| places.all.get_mut(index));
        if let Some(placed) = there.filter(|placed| placed.start == start) {
            placed.baseline = number;
        }
    }

    /// The baseline code at this address and how far behind its first instruction that is; `None`: what lies there is not known. A number of 0: it was
    /// not seen on a stack since it was made.
    pub fn baseline(&self, pid: u32, address: u64, at: u64) -> Option<(u32, u64)> {
        let placed = self.lying(pid, address, at)?;
        Some((placed.baseline, address - placed.start))
    }

    /// The function that was compiled to the optimised code at this address.
    pub fn compiled(&self, (pid, address, at): (u32, u64, u64)) -> Option<u32> {
        let placed = self.lying(pid, address, at)?;
        Some(self.codes.get(&placed.number)?.record.function)
    }

    fn lying(&self, pid: u32, address: u64, at: u64) -> Option<&Placed> {
        let places = self.places.get(&pid)?;
        places.all.get(places.lying(address, at)?)
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
        let placed = self.lying(pid, address, at)?;
        let code = self.codes.get(&placed.number)?;
        let offset = address - placed.start;
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
    fn code_that_is_made_and_moved_without_end_is_found_fast() {
        let mut all = OptimizedCode::default();
        // As large as none, elsewhere.
        all.add(1, 1, code(1, 1 << 40, u32::MAX));
        let place = |time: u64| time * 64 % 0x100_0000;
        for time in 10..300_000 {
            all.add(1, time, code(0, place(time), 64));
            all.move_to(1, time + 1, (place(time), (1 << 33) + place(time)));
        }
        for time in 10..300_000 {
            let (made, moved) = (place(time), (1 << 33) + place(time));
            assert_eq!(all.baseline(1, made + 9, time), Some((0, 9)));
            assert_eq!(all.baseline(1, made + 9, time + 1), None);
            assert_eq!(all.baseline(1, moved + 9, time + 1), Some((0, 9)));
        }
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
