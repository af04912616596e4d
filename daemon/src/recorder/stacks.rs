//! From the kernel's numbered frames to the frames and stacks of a recording.

use rustc_hash::FxHashMap as HashMap;
use std::{borrow::Cow, collections::HashSet, rc::Rc};

use nodeprof_bpf::{FrameCode, FunctionRecord, Record, ScriptRecord};
use nodeprof_profile::recording::{
    Frame, FrameId, FrameKind, NameId, Recording, RunId, Stack, StackId, Tier,
};

use super::{
    baseline::BaselineCode,
    leaves::Leaves,
    optimized::{Call, OptimizedCode},
    positions::{Table, extend},
    sources::{Lines, Sources, V8Version},
    symbols::{Symbol, Symbols},
};

/// A numbered stack, as it came.
struct Numbered {
    code: FrameCode,
    caller: Option<u32>,
    cut: bool,
    pid: u32,
    at: u64,
}

/// Everything the kernel said about stacks.
#[derive(Default)]
pub struct Stacks {
    numbered: HashMap<u32, Numbered>,
    functions: HashMap<u32, FunctionRecord>,
    scripts: HashMap<u32, (ScriptRecord, u32)>,
    positions: HashMap<u32, Positions>,
    texts: HashMap<u32, Source>,
    /// Bytes of all these texts, and scripts whose text found no room among them.
    text_bytes: usize,
    cut_texts: HashSet<u32>,
    code: OptimizedCode,
    baseline: BaselineCode,
    /// Processes whose V8 encodes positions as up to V8 13.
    signed_positions: HashSet<u32>,
    /// Lines of scripts that were looked up while the program ran.
    lines: HashMap<u32, Option<Rc<Lines>>>,
    /// Addresses (process, address, instant) and scripts that came since then.
    new_addresses: Vec<(u32, u64, u64)>,
    new_scripts: Vec<u32>,
}

/// The text of a script that is in no file.
pub struct Source {
    /// As far as it came, in V8's encoding.
    pub bytes: Vec<u8>,
    /// Two bytes a character, else one.
    pub two_byte: bool,
}

/// A function's table of source positions.
#[derive(Default)]
struct Positions {
    bytecode_at: u32,
    table: Table,
    pid: u32,
}

impl Positions {
    /// Offset into the bytecode, of one into the array around it.
    fn bytecode(&self, offset: u32) -> i64 {
        // The interpreter keeps the offset from the tagged pointer, which is one more than the array's first byte.
        i64::from(offset) + 1 - i64::from(self.bytecode_at)
    }
}

/// Bits of a `SharedFunctionInfo`'s flags: the kind of function. The last kinds are functions that give a class or its instances
/// their fields.
const KIND: u32 = 31;
const FIRST_INITIALIZER: u32 = 24;
/// A builtin that programs may see in a stack. Others are V8's own closures around an await, an import and so on.
const NATIVE: u32 = 1 << 5;

/// Bytes of all texts of scripts that are in no file: a program may make them without end.
const MOST_TEXT: usize = 64 << 20;

impl Stacks {
    /// Scripts in no file whose text is missing or cut because there were too many, and those `beyond` what lines are kept of.
    pub fn sources_lost(&self, beyond: &HashSet<u32>) -> u64 {
        self.cut_texts.union(beyond).count() as u64
    }

    /// Notes that there was no room for a script's text.
    pub fn cut_text(&mut self, script: u32) {
        self.cut_texts.insert(script);
    }

    /// Source position (characters from the script's start) of a call at this offset into a function's bytecode.
    fn offset(&self, function: u32, bytecode: i64) -> Option<u32> {
        let positions = self.positions.get(&function)?;
        let signed = self.signed_positions.contains(&positions.pid);
        positions.table.at(bytecode, !signed)?.offset
    }

    /// Takes a record about stacks; hands any other back.
    pub fn take(&mut self, record: Record) -> Option<Record> {
        match record {
            Record::Walk {
                header,
                first,
                base,
                frames,
                cut,
            } => {
                for (number, code) in (first..).zip(frames) {
                    if let FrameCode::Machine(address) | FrameCode::Compiled { address, .. } = code
                    {
                        self.new_addresses.push((header.pid, address, header.time));
                    }
                    let outermost = number == first;
                    let numbered = Numbered {
                        code,
                        caller: if outermost { base } else { Some(number - 1) },
                        cut: cut && outermost && base.is_none(),
                        pid: header.pid,
                        at: header.time,
                    };
                    self.numbered.insert(number, numbered);
                }
            }
            Record::Function { function, .. } => {
                self.functions.insert(function.number, function);
            }
            Record::FunctionName { function, name, .. } => {
                if let Some((function, name)) = self.functions.get_mut(&function).zip(name) {
                    function.name = name;
                }
            }
            Record::Script { header, mut script } => {
                // One that a CPU sample meets in the middle of a garbage collection may have anything in the place of its name.
                script.name = script.name.filter(|name| !name.contains(&0));
                self.new_scripts.push(script.number);
                self.scripts.insert(script.number, (script, header.pid));
            }
            Record::Positions {
                function,
                bytecode_at,
                table,
                header,
            } => {
                // Of a function's entry, in the encoding with signs: no step has these bits in the other.
                if table.offset == 0 && table.bytes.first() == Some(&1) {
                    self.signed_positions.insert(header.pid);
                }
                let positions = self.positions.entry(function).or_default();
                positions.bytecode_at = bytecode_at;
                positions.pid = header.pid;
                positions.table.extend(&table);
            }
            Record::Code { header, code } => self.code.add(header.pid, header.time, code),
            Record::CodeMoved { header, from, to } => {
                self.code.move_to(header.pid, header.time, (from, to));
            }
            Record::Inlined { inlined, .. } => self.code.inline(inlined),
            Record::CodePositions { code, table, .. } => self.code.position(code, &table),
            Record::CodeTranslations {
                code, part, piece, ..
            } => self.code.translate(code, part, &piece),
            Record::Baseline { header, code } => {
                (self.code).name_baseline(header.pid, header.time, code.start, code.number);
                self.baseline.add(header.time, code);
            }
            Record::BaselineOffsets {
                code, part, piece, ..
            } => self.baseline.extend(code, part, &piece),
            Record::Source {
                script,
                two_byte,
                text,
                ..
            } => {
                if self.text_bytes + text.bytes.len() > MOST_TEXT {
                    self.cut_texts.insert(script);
                    return None;
                }
                let source = self.texts.entry(script).or_insert(Source {
                    bytes: Vec::new(),
                    two_byte,
                });
                let before = source.bytes.len();
                extend(&mut source.bytes, &text);
                self.text_bytes += source.bytes.len() - before;
            }
            other => return Some(other),
        }
        None
    }

    /// Looks up what [`finish`](Stacks::finish) will ask for, as far as it is known. While the program under trace runs nobody waits for it.
    pub fn prepare(&mut self, machine: &mut Symbols, sources: &mut Sources) {
        for (pid, address, at) in self.new_addresses.drain(..) {
            machine.frame(pid, address, at);
        }
        let (scripts, lines) = (&self.scripts, &mut self.lines);
        self.new_scripts.retain(|number| {
            let Some((script, pid)) = scripts.get(number) else {
                return false;
            };
            // Not yet told which binary the process runs.
            if !sources.knows(*pid) {
                return true;
            }
            lines.insert(*number, sources.lines(script, None, *pid));
            false
        });
    }

    /// Gives the events of a run, whose stacks are still the kernel's numbers, the recording's stacks. Returns how many
    /// events name a stack whose record was lost.
    pub fn finish(
        &self,
        recording: &mut Recording,
        run: RunId,
        machine: &mut Symbols,
        sources: &mut Sources,
        leaves: Leaves,
    ) -> u64 {
        let mut builder = Builder {
            stacks: self,
            machine,
            sources,
            names: HashMap::default(),
            frames: HashMap::default(),
            known: HashMap::default(),
            same: HashMap::default(),
            // A text that came with the records comes before all else.
            lines: (self.lines.iter())
                .filter(|(script, _)| !self.texts.contains_key(script))
                .map(|(script, lines)| (*script, lines.clone()))
                .collect(),
            assigned: HashMap::default(),
        };
        builder.learn(recording);
        let of_run: Vec<bool> = recording.processes.iter().map(|p| p.run == run).collect();
        let mut imports = std::mem::take(&mut recording.imports);
        imports.retain_mut(|import| {
            if of_run.get(import.process.0 as usize) != Some(&true) {
                return true;
            }
            let name = |number: NameId| self.scripts.get(&number.0)?.0.name.clone();
            let Some((requirer, loaded)) = name(import.requirer).zip(name(import.loaded)) else {
                return false;
            };
            import.requirer = builder.name(recording, &requirer);
            import.loaded = builder.name(recording, &loaded);
            true
        });
        recording.imports = imports;
        let mut lost = 0;
        macro_rules! resolve {
            ($($events:ident),*) => {$(
                // Taken out, because the builder adds to the same recording.
                let mut events = std::mem::take(&mut recording.$events);
                for event in &mut events {
                    if let Some(number) = event.stack
                        && of_run.get(event.process.0 as usize) == Some(&true)
                    {
                        event.stack = builder.stack(recording, number.0);
                        lost += u64::from(event.stack.is_none());
                    }
                }
                recording.$events = events;
            )*};
        }
        resolve!(
            crossings,
            crossing_sums,
            lookups,
            files,
            serializations,
            serialization_sums,
            compilations,
            samples,
            waits,
            continuations
        );
        leaves.finish(recording, &mut builder);
        lost
    }
}

/// What V8 calls a function that gives a class or its instances their fields; `None` for another function.
///
/// Behind V8 14.1 there are two kinds for each, depending on which comes first in the class.
fn initializer(function: &FunctionRecord, v8: Option<V8Version>) -> Option<&'static [u8]> {
    let kinds = if v8? > V8Version(14, 1) { 2 } else { 1 };
    let which = (function.flags & KIND).checked_sub(FIRST_INITIALIZER)?;
    match which / kinds {
        0 => Some(b"<instance_members_initializer>"),
        1 => Some(b"<static_initializer>"),
        _ => None,
    }
}

/// Makes the recording's frames and stacks.
pub struct Builder<'a> {
    stacks: &'a Stacks,
    machine: &'a mut Symbols,
    sources: &'a mut Sources,
    names: HashMap<Vec<u8>, NameId>,
    frames: HashMap<Frame, FrameId>,
    /// By the kernel's number.
    known: HashMap<u32, StackId>,
    same: HashMap<Stack, StackId>,
    lines: HashMap<u32, Option<Rc<Lines>>>,
    /// Names of functions without one, by number.
    assigned: HashMap<u32, Vec<u8>>,
}

impl Builder<'_> {
    /// What the recording has already is used again.
    fn learn(&mut self, recording: &Recording) {
        for (index, name) in recording.names.iter().enumerate() {
            self.names.insert(name.clone(), NameId(index as u32));
        }
        for (index, frame) in recording.frames.iter().enumerate() {
            self.frames.insert(*frame, FrameId(index as u32));
        }
        for (index, stack) in recording.stacks.iter().enumerate() {
            self.same.insert(*stack, StackId(index as u32));
        }
    }

    fn name(&mut self, recording: &mut Recording, bytes: &[u8]) -> NameId {
        if let Some(&id) = self.names.get(bytes) {
            return id;
        }
        let id = NameId(recording.names.len() as u32);
        recording.names.push(bytes.to_vec());
        self.names.insert(bytes.to_vec(), id);
        id
    }

    /// The recording's stack for the kernel's number; `None` if a record is missing.
    fn stack(&mut self, recording: &mut Recording, number: u32) -> Option<StackId> {
        // From the innermost outwards to one that is known, then back.
        let mut path = Vec::new();
        let mut at = Some(number);
        let mut caller = None;
        while let Some(number) = at {
            if let Some(&known) = self.known.get(&number) {
                caller = Some(known);
                break;
            }
            let numbered = self.stacks.numbered.get(&number)?;
            path.push(number);
            // Numbers of callers are lower, unless the records lie.
            at = numbered.caller.filter(|caller| *caller != number);
            if path.len() > self.stacks.numbered.len() {
                return None;
            }
        }
        for number in path.into_iter().rev() {
            let numbered = self.stacks.numbered.get(&number)?;
            if self.is_hidden(numbered)
                && let Some(caller) = caller
            {
                self.known.insert(number, caller);
                continue;
            }
            let mut cut = numbered.cut;
            let frames = self.frames(recording, numbered);
            if let Some(number) = self.beyond_what_is_left(recording, numbered, &frames) {
                caller = number.and_then(|number| self.known.get(&number).copied());
                cut |= number.is_none();
            }
            for frame in frames {
                caller = Some(self.push(recording, caller, frame, cut));
                cut = false;
            }
            self.known.insert(number, caller?);
        }
        caller
    }

    /// The number of the caller of an add-on's function, if it is not the next frame outwards. Where functions of an add-on keep no frame pointer, words of the stack were
    /// searched for who called them, and some are left from calls of node's that are over. An add-on's functions are called by their address in a register
    /// or in memory: who names the function that it calls, of node itself, did not call them.
    fn beyond_what_is_left(
        &mut self,
        recording: &Recording,
        of: &Numbered,
        frames: &[FrameId],
    ) -> Option<Option<u32>> {
        let is_add_on = |frame: &FrameId| {
            let frame = recording.frames.get(frame.0 as usize);
            frame.is_some_and(|frame| frame.kind == FrameKind::AddOn)
        };
        if !frames.iter().any(is_add_on) {
            return None;
        }
        let mut outer = of.caller;
        while let Some(numbered) = outer.and_then(|number| self.stacks.numbered.get(&number)) {
            let FrameCode::Machine(address) = numbered.code else {
                break;
            };
            let place = (numbered.pid, address, numbered.at);
            let is_native = self.machine.frame(place.0, place.1, place.2).kind == FrameKind::Native;
            if !is_native || !self.machine.calls_its_own(place.0, place.1, place.2) {
                break;
            }
            // Numbers of callers are lower, unless the records lie.
            outer = numbered.caller.filter(|caller| Some(*caller) < outer);
        }
        (outer != of.caller).then_some(outer)
    }

    /// Whether it is a builtin that V8 keeps to itself: no frame of the program, nor of `Error().stack`.
    fn is_hidden(&self, numbered: &Numbered) -> bool {
        let function = match numbered.code {
            FrameCode::Machine(_) => return false,
            FrameCode::Interpreted { function, .. }
            | FrameCode::Baseline { function, .. }
            | FrameCode::Compiled { function, .. } => self.stacks.functions.get(&function),
        };
        function.is_some_and(|f| f.script == 0 && f.flags & NATIVE == 0)
    }

    /// The frames that one frame of the machine stands for, from the outermost inwards: several where functions are inlined.
    fn frames(&mut self, recording: &mut Recording, numbered: &Numbered) -> Vec<FrameId> {
        if let FrameCode::Compiled {
            function,
            address,
            calling: true,
        }
        | FrameCode::Baseline {
            function,
            address,
            calling: true,
        } = numbered.code
            && let Some(calls) = self.calls(numbered, function, address)
        {
            let mut frames = Vec::with_capacity(calls.len());
            for (index, call) in calls.iter().enumerate() {
                // A closure may have a name of its own, which its code does not tell.
                let named = if index == 0 { function } else { call.function };
                let mut frame = self.function(recording, named);
                frame.tier = Some(Tier::Optimized);
                frame.inlined = index > 0;
                frame.inlining_possible = !call.is_all;
                let offset = call
                    .offset
                    .or_else(|| self.stacks.offset(named, call.bytecode?.into()));
                self.place(named, offset, &mut frame.line, &mut frame.column);
                frames.push(self.intern(recording, frame));
            }
            return frames;
        }
        vec![self.frame(recording, numbered)]
    }

    /// The functions at a call in optimised code of a function.
    fn calls(&self, numbered: &Numbered, function: u32, address: u64) -> Option<Vec<Call>> {
        let functions = &self.stacks.functions;
        let expected = functions.get(&function)?;
        let flags = !self.stacks.signed_positions.contains(&numbered.pid);
        let place = (numbered.pid, address, numbered.at);
        self.stacks.code.calls(place, flags, |compiled| {
            functions.get(&compiled).is_some_and(|compiled| {
                compiled.literal == expected.literal && compiled.position == expected.position
            })
        })
    }

    fn frame(&mut self, recording: &mut Recording, numbered: &Numbered) -> FrameId {
        let frame = match numbered.code {
            FrameCode::Machine(address) => {
                return self.machine(recording, numbered.pid, address, numbered.at);
            }
            FrameCode::Interpreted { function, offset } => {
                let mut frame = self.function(recording, function);
                if frame.kind == FrameKind::JavaScript {
                    frame.tier = Some(Tier::Interpreted);
                    let positions = self.stacks.positions.get(&function);
                    let bytecode = positions.map(|positions| positions.bytecode(offset));
                    let position = bytecode.and_then(|at| self.stacks.offset(function, at));
                    self.place(function, position, &mut frame.line, &mut frame.column);
                }
                frame
            }
            FrameCode::Baseline {
                function, address, ..
            } => {
                let mut frame = self.function(recording, function);
                if frame.kind == FrameKind::JavaScript {
                    frame.tier = Some(Tier::Baseline);
                    let sizes = self.sources.bytecode_sizes(numbered.pid);
                    let place = sizes.and_then(|sizes| {
                        let Stacks { code, baseline, .. } = &self.stacks;
                        match code.baseline(numbered.pid, address, numbered.at) {
                            Some((number, offset)) if number > 0 => {
                                baseline.offset(number, offset, &sizes)
                            }
                            _ => baseline.place(function, (address, numbered.at), &sizes),
                        }
                    });
                    let offset = place.and_then(|place| self.stacks.offset(function, place));
                    self.place(function, offset, &mut frame.line, &mut frame.column);
                }
                frame
            }
            FrameCode::Compiled {
                function, address, ..
            } => {
                let mut frame = self.function(recording, function);
                let kind = self.machine.frame(numbered.pid, address, numbered.at).kind;
                if frame.kind == FrameKind::JavaScript {
                    // In a builtin that has no frame of its own: whose caller is optimised, unless the function's code is still
                    // a builtin (to compile it lazily, say).
                    frame.tier = (kind != FrameKind::Builtin).then_some(Tier::Optimized);
                    frame.inlining_possible = true;
                }
                frame
            }
        };
        self.intern(recording, frame)
    }

    /// A frame of the machine code at an address of a process.
    pub fn machine(
        &mut self,
        recording: &mut Recording,
        pid: u32,
        address: u64,
        at: u64,
    ) -> FrameId {
        let symbol = self.machine.frame(pid, address, at);
        self.symbol(recording, &symbol)
    }

    /// A frame of the kernel's code at an address.
    pub fn kernel(&mut self, recording: &mut Recording, address: u64) -> FrameId {
        let symbol = self.machine.kernel_frame(address);
        self.symbol(recording, &symbol)
    }

    fn symbol(&mut self, recording: &mut Recording, symbol: &Symbol) -> FrameId {
        let function = self.name(recording, symbol.function.as_bytes());
        let file = symbol.file.as_ref().map(|file| self.name(recording, file));
        self.intern(recording, Frame::new(symbol.kind, function, file))
    }

    fn intern(&mut self, recording: &mut Recording, frame: Frame) -> FrameId {
        *self.frames.entry(frame).or_insert_with(|| {
            recording.frames.push(frame);
            FrameId(recording.frames.len() as u32 - 1)
        })
    }

    /// The stack of a frame that was called from another stack; `truncated`: by one that is not known.
    pub fn push(
        &mut self,
        recording: &mut Recording,
        caller: Option<StackId>,
        frame: FrameId,
        truncated: bool,
    ) -> StackId {
        let stack = Stack {
            caller,
            frame,
            truncated,
        };
        *self.same.entry(stack).or_insert_with(|| {
            recording.stacks.push(stack);
            StackId(recording.stacks.len() as u32 - 1)
        })
    }

    /// A frame of the function, without a place in it.
    fn function(&mut self, recording: &mut Recording, number: u32) -> Frame {
        let Some(function) = self.stacks.functions.get(&number) else {
            let lost = self.name(recording, b"(lost)");
            return Frame::new(FrameKind::JavaScript, lost, None);
        };
        let Some((script, pid)) = self.stacks.scripts.get(&function.script) else {
            let name = self.name(recording, &function.name);
            let kind = match function.script {
                0 => FrameKind::Builtin,
                // The record of its script was lost.
                _ => FrameKind::JavaScript,
            };
            return Frame::new(kind, name, None);
        };
        let top_level = function.literal == 0 || function.literal == 1 && script.wrapped;
        let name = match initializer(function, self.sources.v8(*pid)) {
            Some(name) => Cow::Borrowed(name),
            // Only what eval compiled has no script name. So calls it Error().stack, too.
            None if function.name.is_empty() && script.name.is_none() => {
                Cow::Borrowed(&b"eval"[..])
            }
            None if function.name.is_empty() && !top_level => {
                let sources = &mut *self.sources;
                let assigned = self.assigned.entry(number).or_insert_with(|| {
                    let name = (function.position)
                        .and_then(|position| sources.assigned_name(script, *pid, position));
                    name.unwrap_or_default().into_bytes()
                });
                Cow::Owned(assigned.clone())
            }
            None => Cow::Borrowed(function.name.as_slice()),
        };
        let name = self.name(recording, &name);
        let file = script.name.as_ref().map(|file| self.name(recording, file));
        let mut frame = Frame::new(FrameKind::JavaScript, name, file);
        frame.top_level = top_level;
        // Where the whole begins need not be asked.
        let position = if frame.top_level {
            Some(0)
        } else {
            function.position
        };
        self.place(
            number,
            position,
            &mut frame.function_line,
            &mut frame.function_column,
        );
        frame
    }

    /// Line and column of a position in a function's script.
    fn place(
        &mut self,
        function: u32,
        position: Option<u32>,
        line: &mut Option<u32>,
        column: &mut Option<u32>,
    ) {
        let script = self.stacks.functions.get(&function).map(|f| f.script);
        let Some((position, number)) = position.zip(script) else {
            return;
        };
        let Some((script, pid)) = self.stacks.scripts.get(&number) else {
            return;
        };
        let sources = &mut *self.sources;
        let text = self.stacks.texts.get(&number);
        let lines = self
            .lines
            .entry(number)
            .or_insert_with(|| sources.lines(script, text, *pid));
        let Some((l, c)) = lines.as_ref().and_then(|lines| lines.place(position)) else {
            return;
        };
        let first = if l == 1 { script.column_offset } else { 0 };
        *line = l.checked_add_signed(script.line_offset);
        *column = c.checked_add_signed(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeprof_bpf::Header;

    #[test]
    fn a_function_whose_script_was_lost_is_no_builtin() {
        let mut stacks = Stacks::default();
        for (number, script) in [(1, 0), (2, 9)] {
            let function = FunctionRecord {
                number,
                script,
                literal: 3,
                flags: NATIVE,
                name: b"f".to_vec(),
                position: None,
            };
            stacks.functions.insert(number, function);
        }
        let mut builder = Builder {
            stacks: &stacks,
            machine: &mut Symbols::default(),
            sources: &mut Sources::default(),
            names: HashMap::default(),
            frames: HashMap::default(),
            known: HashMap::default(),
            same: HashMap::default(),
            lines: HashMap::default(),
            assigned: HashMap::default(),
        };
        let mut recording = Recording::default();
        let mut kind = |number| {
            let frame = builder.function(&mut recording, number);
            (frame.kind, frame.file)
        };
        assert_eq!(kind(1), (FrameKind::Builtin, None));
        assert_eq!(kind(2), (FrameKind::JavaScript, None));
    }

    #[test]
    fn what_cannot_be_a_name_is_none() {
        let mut stacks = Stacks::default();
        let mut named = |number: u32, name: &[u8]| {
            let header = Header {
                pid: 1,
                tid: 1,
                phase: 0,
                time: 0,
                stack: 0,
            };
            let script = ScriptRecord {
                number,
                name: Some(name.to_vec()),
                wrapped: true,
                source: 0,
                length: 0,
                two_byte: false,
                line_offset: 0,
                column_offset: 0,
            };
            stacks.take(Record::Script { header, script });
            stacks.scripts[&number].0.name.clone()
        };
        assert_eq!(named(1, b"/app/x.js"), Some(b"/app/x.js".to_vec()));
        assert_eq!(named(2, b"A\xa6\xd6\x8d\0\0!\x13"), None);
    }
}
