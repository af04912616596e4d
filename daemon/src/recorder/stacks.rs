//! From the kernel's numbered frames to the frames and stacks of a recording.

use rustc_hash::FxHashMap as HashMap;
use std::{
    borrow::Cow,
    collections::{HashSet, hash_map::Entry},
    rc::Rc,
};

use nodeprof_bpf::{FrameCode, FunctionRecord, Record, ScriptRecord, WasmEvent};
use nodeprof_profile::recording::{
    Frame, FrameId, FrameKind, NameId, OriginalPosition, Recording, RunId, Stack, StackId, Tier,
};

use super::{
    baseline::BaselineCode,
    leaves::Leaves,
    optimized::{Call, OptimizedCode},
    positions::{Table, extend},
    source_maps::{Reference, in_text, own_name, shown},
    sources::{Lines, Sources, V8Version, path_of},
    symbols::{Symbol, Symbols},
    wasm::Wasm,
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
    /// Names that scripts without a name give themselves.
    own_names: HashMap<u32, Vec<u8>>,
    /// Bytes of all these texts, and scripts whose text found no room among them.
    text_bytes: usize,
    cut_texts: HashSet<u32>,
    code: OptimizedCode,
    wasm: Wasm,
    baseline: BaselineCode,
    /// Processes whose V8 encodes positions as up to V8 13.
    signed_positions: HashSet<u32>,
    /// Lines of scripts that were looked up while the program ran.
    lines: HashMap<u32, Option<Rc<Lines>>>,
    /// Addresses (process, address, instant) and scripts that came since then.
    new_addresses: Vec<(u32, u64, u64)>,
    new_scripts: Vec<u32>,
}

/// The text of a script that came with the records.
pub struct Source {
    /// As far as it came, in V8's encoding.
    pub bytes: Vec<u8>,
    /// Two bytes a character, else one.
    pub two_byte: bool,
    /// Bytes of the whole.
    whole: u64,
    /// The end of one that is too long to come whole.
    end: Vec<u8>,
}

impl Source {
    /// One of which all came.
    #[cfg(test)]
    pub fn of(bytes: Vec<u8>, two_byte: bool) -> Self {
        Self {
            whole: bytes.len() as u64,
            bytes,
            two_byte,
            end: Vec::new(),
        }
    }

    /// Whether all of it came.
    pub fn is_whole(&self) -> bool {
        self.bytes.len() as u64 == self.whole
    }

    /// Its last characters, no more than so many; of one that did not come whole those that did.
    pub fn tail(&self, characters: usize) -> String {
        let bytes = match self.is_whole() {
            true => &self.bytes,
            false => &self.end,
        };
        let width = if self.two_byte { 2 } else { 1 };
        let from = bytes.len().saturating_sub(characters.saturating_mul(width));
        let bytes = bytes.get(from..).unwrap_or_default();
        if !self.two_byte {
            // Latin-1.
            return bytes.iter().map(|&byte| char::from(byte)).collect();
        }
        let units = bytes.chunks_exact(2);
        let units: Vec<u16> = units.map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
        String::from_utf16_lossy(&units)
    }
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
    /// By the name of a script whose text came with the records: what that says of its source map. A name that was given to scripts with several maps has none.
    pub fn references(&self) -> std::collections::HashMap<Vec<u8>, Reference> {
        let mut references: HashMap<Vec<u8>, Option<Reference>> = HashMap::default();
        for (number, text) in &self.texts {
            let Some(name) = self.file_of(*number) else {
                continue;
            };
            // One that is too long may lie in a file.
            let reference = in_text(text).filter(|_| text.is_whole() || path_of(name).is_none());
            let Some(reference) = reference else {
                continue;
            };
            match references.entry(name.clone()) {
                Entry::Vacant(first) => {
                    first.insert(Some(reference));
                }
                Entry::Occupied(mut other) => {
                    if other.get().as_ref() != Some(&reference) {
                        other.insert(None);
                    }
                }
            }
        }
        (references.into_iter())
            .filter_map(|(name, reference)| Some((name, reference?)))
            .collect()
    }

    /// By script that has only the name that it gives itself: the script of the program that evaluated it. That is the one around its own body; where its body was
    /// never seen, the one around the first of its functions that was.
    fn evaluated_by(&self) -> HashMap<u32, u32> {
        let mut by = HashMap::default();
        if self.own_names.is_empty() {
            return by;
        }
        let function = |numbered: &Numbered| match numbered.code {
            FrameCode::Machine(_) => None,
            FrameCode::Interpreted { function, .. }
            | FrameCode::Baseline { function, .. }
            | FrameCode::Compiled { function, .. } => self.functions.get(&function),
        };
        let evaluated = self.numbered.iter().filter_map(|(number, numbered)| {
            let function = function(numbered)?;
            let is_own = self.own_names.contains_key(&function.script);
            // Of those that are no body the first one.
            is_own.then_some((function.literal != 0, *number, function.script, numbered))
        });
        let mut evaluated: Vec<_> = evaluated.collect();
        evaluated.sort_unstable_by_key(|(is_function, number, ..)| (*is_function, *number));
        for (_, number, script, numbered) in evaluated {
            if by.contains_key(&script) {
                continue;
            }
            let mut inner = number;
            let mut outer = numbered.caller;
            // Numbers of callers are lower, unless the records lie.
            while let Some(caller) = outer.filter(|caller| *caller < inner)
                && let Some(numbered) = self.numbered.get(&caller)
            {
                let around = function(numbered).map(|function| function.script);
                let named = around.filter(|script| {
                    let name = self.scripts.get(script).and_then(|(s, _)| s.name.as_ref());
                    name.is_some_and(|name| !name.starts_with(b"node:"))
                });
                if let Some(around) = named {
                    by.insert(script, around);
                    break;
                }
                (inner, outer) = (caller, numbered.caller);
            }
        }
        by
    }

    /// The name of a script, or if nobody named it the one that it gives itself.
    fn file_of(&self, script: u32) -> Option<&Vec<u8>> {
        let name = self.scripts.get(&script)?.0.name.as_ref();
        name.or_else(|| self.own_names.get(&script))
    }

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
            Record::Wasm {
                header,
                module,
                event,
            } => {
                if let WasmEvent::Names(piece) = &event {
                    if self.text_bytes + piece.bytes.len() > MOST_TEXT {
                        return None;
                    }
                    self.text_bytes += piece.bytes.len();
                }
                let module = (header.pid, module);
                self.wasm.take(module, header.time, event);
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
                    whole: text.whole,
                    end: Vec::new(),
                });
                let before = source.bytes.len() + source.end.len();
                let is_end = text.offset.checked_add(text.bytes.len() as u64) == Some(text.whole);
                if is_end && text.offset > source.bytes.len() as u64 {
                    source.end = text.bytes;
                } else {
                    extend(&mut source.bytes, &text);
                }
                self.text_bytes += source.bytes.len() + source.end.len() - before;
                if is_end
                    && (self.scripts.get(&script)).is_some_and(|(script, _)| script.name.is_none())
                    && let Some(name) = own_name(source)
                {
                    self.own_names.insert(script, shown(&name).into_bytes());
                }
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
            evaluated_by: self.evaluated_by(),
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
    /// See [`Stacks::evaluated_by`].
    evaluated_by: HashMap<u32, u32>,
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
            let mut cut = numbered.cut;
            let mut frames = match caller {
                Some(_) if self.is_hidden(numbered) => Vec::new(),
                _ => self.frames(recording, numbered),
            };
            if let Some((_, entered)) = self.entered(numbered) {
                let mut frame = self.function(recording, entered);
                frame.tier = Some(Tier::Optimized);
                frames.push(self.settle(recording, entered, frame));
            }
            if frames.is_empty() {
                self.known.insert(number, caller?);
                continue;
            }
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

    /// Whether it is code that V8 keeps to itself: no frame of the program, nor of `Error().stack`.
    fn is_hidden(&self, numbered: &Numbered) -> bool {
        let function = match numbered.code {
            FrameCode::Machine(_) => return false,
            FrameCode::Interpreted { function, .. }
            | FrameCode::Baseline { function, .. }
            | FrameCode::Compiled { function, .. } => self.stacks.functions.get(&function),
        };
        function.is_some_and(|f| {
            let is_internal = f.script == 0 && f.flags & NATIVE == 0;
            // The closure by which JavaScript calls a function of WebAssembly, which has a frame of its own.
            is_internal || self.stacks.wasm.is_script(f.script)
        })
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
                frames.push(self.settle(recording, named, frame));
            }
            return frames;
        }
        if let Some((caller, _)) = self.entered(numbered) {
            // Where it called stands beside the frame, in code of which nothing is known.
            let mut frame = self.function(recording, caller);
            frame.inlining_possible = frame.kind == FrameKind::JavaScript;
            return vec![self.settle(recording, caller, frame)];
        }
        vec![self.frame(recording, numbered)]
    }

    /// The function whose frame it is, and the other one whose optimised code ran in it, for that had made no frame yet, or has left its own.
    fn entered(&self, numbered: &Numbered) -> Option<(u32, u32)> {
        let (FrameCode::Compiled {
            function,
            address,
            calling: false,
        }
        | FrameCode::Baseline {
            function,
            address,
            calling: false,
        }) = numbered.code
        else {
            return None;
        };
        let functions = &self.stacks.functions;
        let place = (numbered.pid, address, numbered.at);
        let compiled = self.stacks.code.compiled(place)?;
        let (caller, entered) = (functions.get(&function)?, functions.get(&compiled)?);
        let positions = caller.position.zip(entered.position);
        let is_other = (caller.script == 0) != (entered.script == 0)
            || caller.literal != entered.literal
            || positions.is_some_and(|(caller, entered)| caller != entered);
        is_other.then_some((function, compiled))
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
        let (function, frame) = match numbered.code {
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
                (function, frame)
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
                (function, frame)
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
                (function, frame)
            }
        };
        self.settle(recording, function, frame)
    }

    /// A frame of a function, with its places. Those of a script that only names itself are in another source than its file: they tell where it stood in what it says
    /// that it is.
    fn settle(&mut self, recording: &mut Recording, function: u32, mut frame: Frame) -> FrameId {
        let script = self.stacks.functions.get(&function).map(|f| f.script);
        let name = script.and_then(|script| self.stacks.own_names.get(&script));
        if let Some(name) = name {
            let (line, column) = match frame.line {
                Some(_) => (frame.line, frame.column),
                None => (frame.function_line, frame.function_column),
            };
            let file = self.name(recording, name);
            frame.original = line.map(|line| OriginalPosition {
                file,
                line,
                column: column.unwrap_or(1),
            });
            (frame.line, frame.column) = (None, None);
            (frame.function_line, frame.function_column) = (None, None);
        }
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
        if let Some(function) = self.stacks.wasm.function(pid, address, at) {
            let name = match function.name {
                Some(name) => Cow::Borrowed(name),
                // As V8 calls it.
                None => format!("wasm-function[{}]", function.number)
                    .into_bytes()
                    .into(),
            };
            let name = self.name(recording, &name);
            let file = function
                .script
                .and_then(|script| self.stacks.file_of(script));
            let file = file.map(|file| self.name(recording, file));
            return self.intern(recording, Frame::new(FrameKind::WebAssembly, name, file));
        }
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
        let file = match &script.name {
            Some(name) => Some(name),
            // What it is called itself follows in `settle`.
            None => {
                let by = self.evaluated_by.get(&function.script);
                by.and_then(|by| self.stacks.scripts.get(by)?.0.name.as_ref())
            }
        };
        let file = file.map(|file| self.name(recording, file));
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
    use nodeprof_bpf::{Header, Piece};

    /// A script of 100 characters, as it is told.
    fn script(number: u32, name: Option<&[u8]>) -> (Header, ScriptRecord) {
        let header = Header {
            pid: 1,
            tid: 1,
            phase: 0,
            time: 0,
            stack: 0,
        };
        let script = ScriptRecord {
            number,
            name: name.map(<[u8]>::to_vec),
            wrapped: false,
            source: 0,
            length: 100,
            two_byte: false,
            line_offset: 0,
            column_offset: 0,
        };
        (header, script)
    }

    /// A function of V8's, as it is told.
    fn function(number: u32, script: u32, literal: u32, name: &str) -> FunctionRecord {
        FunctionRecord {
            number,
            script,
            literal,
            flags: NATIVE,
            name: name.as_bytes().to_vec(),
            position: None,
        }
    }

    fn builder<'a>(
        stacks: &'a Stacks,
        machine: &'a mut Symbols,
        sources: &'a mut Sources,
    ) -> Builder<'a> {
        Builder {
            stacks,
            machine,
            sources,
            names: HashMap::default(),
            frames: HashMap::default(),
            known: HashMap::default(),
            same: HashMap::default(),
            lines: HashMap::default(),
            assigned: HashMap::default(),
            evaluated_by: HashMap::default(),
        }
    }

    #[test]
    fn what_runs_in_its_callers_frame_is_called_by_it() {
        let mut stacks = Stacks::default();
        let (header, script) = script(1, Some(b"/a.js"));
        stacks.take(Record::Script { header, script });
        let hidden = FunctionRecord {
            flags: 0,
            ..function(6, 0, 0, "hidden")
        };
        let functions = [
            function(1, 1, 1, "main"),
            function(2, 0, 0, "next"),
            function(3, 1, 2, "counter"),
            function(4, 1, 2, "counter of a closure"),
            FunctionRecord {
                position: Some(50),
                ..function(5, 1, 2, "counter as compiled")
            },
            hidden,
        ];
        for function in functions {
            stacks.take(Record::Function { header, function });
        }
        let code = nodeprof_bpf::CodeRecord {
            number: 7,
            function: 5,
            start: 0x1000,
            size: 0x100,
            exits: 0xf0,
            opcodes: 0,
            inlined: 0,
        };
        stacks.take(Record::Code { header, code });
        let mut number = 1;
        let mut walk = |stacks: &mut Stacks, innermost: FrameCode| {
            let offset = 0;
            let main = FrameCode::Interpreted {
                function: 1,
                offset,
            };
            let header = Header { time: 1, ..header };
            let (first, frames) = (number, vec![main, innermost]);
            number += 2;
            stacks.take(Record::Walk {
                header,
                first,
                base: None,
                frames,
                cut: false,
            });
            first + 1
        };
        let compiled = |function, address, calling| FrameCode::Compiled {
            function,
            address,
            calling,
        };
        let baseline = FrameCode::Baseline {
            function: 1,
            address: 0x1008,
            calling: false,
        };
        let walks = [
            (compiled(2, 0x1008, false), "main next counter as compiled"),
            (compiled(2, 0x1008, true), "main next"),
            (compiled(2, 0x2008, false), "main next"),
            (compiled(3, 0x1008, false), "main counter"),
            (compiled(4, 0x1008, false), "main counter of a closure"),
            (compiled(6, 0x1008, false), "main counter as compiled"),
            (compiled(6, 0x2008, false), "main"),
            (baseline, "main main counter as compiled"),
        ];
        let walks = walks.map(|(code, expected)| (walk(&mut stacks, code), expected));
        let (mut machine, mut sources) = (Symbols::default(), Sources::default());
        let mut builder = builder(&stacks, &mut machine, &mut sources);
        let mut recording = Recording::default();
        for (number, expected) in walks {
            let stack = builder.stack(&mut recording, number).expect("a stack");
            let frames: Vec<&Frame> = recording.frames_of(stack).collect();
            let names = frames.iter().rev();
            let names: Vec<_> = names
                .map(|frame| String::from_utf8_lossy(recording.name(frame.function)))
                .collect();
            assert_eq!(names.join(" "), expected);
            if expected.ends_with("as compiled") {
                let tiers = (frames[0].tier, frames[1].tier);
                assert_eq!(tiers.0, Some(Tier::Optimized), "{expected}");
                assert_ne!(tiers.1, Some(Tier::Optimized), "{expected}");
            }
        }
    }

    #[test]
    fn a_function_whose_script_was_lost_is_no_builtin() {
        let mut stacks = Stacks::default();
        for (number, script) in [(1, 0), (2, 9)] {
            let function = function(number, script, 3, "f");
            stacks.functions.insert(number, function);
        }
        let (mut machine, mut sources) = (Symbols::default(), Sources::default());
        let mut builder = builder(&stacks, &mut machine, &mut sources);
        let mut recording = Recording::default();
        let mut kind = |number| {
            let frame = builder.function(&mut recording, number);
            (frame.kind, frame.file)
        };
        assert_eq!(kind(1), (FrameKind::Builtin, None));
        assert_eq!(kind(2), (FrameKind::JavaScript, None));
    }

    #[test]
    fn the_end_of_a_text_that_is_too_long_tells_what_it_says_that_it_is() {
        let mut stacks = Stacks::default();
        let (header, script) = script(1, None);
        stacks.take(Record::Script { header, script });
        let mut piece = |offset: u64, bytes: &[u8]| {
            let text = Piece {
                offset,
                whole: 100,
                bytes: bytes.to_vec(),
            };
            let (script, two_byte) = (1, false);
            stacks.take(Record::Source {
                header,
                script,
                two_byte,
                text,
            });
            stacks.file_of(1).cloned()
        };
        assert_eq!(piece(0, b"f()\n//# sourceURL=/no.js\n"), None);
        let end = b"\n//# sourceURL=/a/b.js";
        let at = 100 - end.len() as u64;
        assert_eq!(piece(at, end), Some(b"/a/b.js".to_vec()));
        let text = &stacks.texts[&1];
        assert!(!text.is_whole() && text.bytes.starts_with(b"f()"));
        assert_eq!(stacks.references().len(), 0);
    }

    #[test]
    fn a_name_of_texts_with_several_maps_has_none() {
        let mut stacks = Stacks::default();
        let texts = [
            (1, "/a.ts", "a"),
            (2, "/b.ts", "b"),
            (3, "/a.ts", "a"),
            (4, "/b.ts", "other"),
            (5, "/c.ts", ""),
        ];
        for (number, name, map) in texts {
            let (header, script) = script(number, Some(name.as_bytes()));
            stacks.take(Record::Script { header, script });
            let text = match map {
                "" => "f()".to_owned(),
                map => format!("f()\n//# sourceMappingURL={map}.map\n"),
            };
            stacks
                .texts
                .insert(number, Source::of(text.into_bytes(), false));
        }
        let references = stacks.references();
        let expected = Reference::File("a.map".into());
        assert_eq!(references.get(&b"/a.ts"[..]), Some(&expected));
        assert_eq!(references.len(), 1);
    }

    #[test]
    fn what_cannot_be_a_name_is_none() {
        let mut stacks = Stacks::default();
        let mut named = |number: u32, name: &[u8]| {
            let (header, script) = script(number, Some(name));
            stacks.take(Record::Script { header, script });
            stacks.scripts[&number].0.name.clone()
        };
        assert_eq!(named(1, b"/app/x.js"), Some(b"/app/x.js".to_vec()));
        assert_eq!(named(2, b"A\xa6\xd6\x8d\0\0!\x13"), None);
    }
}
