//! Where V8 calls a callback: the instructions just before and just after the call.
//!
//! A return probe on a callback crashes node (V8 reads the return address that it replaces), so a call is timed with
//! two plain probes inside its caller. Both stand on instructions that the kernel emulates: `jne`, not the `call` itself,
//! which would be single-stepped at thirty times the price.
//!
//! The sites are found by what they mean, not by a pattern of bytes: the *enter* site is the last emulated instruction that
//! every path to the call passes, at which a register, or else the stack, already holds the callback; the *exit* site is the first emulated
//! instruction that every path from the call to the function's end passes, and nothing else does. So the branch that
//! V8 takes under `--cpu-prof`, where a thunk calls the callback, is counted as well.

mod at_entry;

use std::collections::BTreeMap;

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register as Iced,
};

pub(crate) use at_entry::{EntryValue, value_at_entry};

use crate::decode;
use crate::plan::Register;

/// The largest function with a call site has some 700 instructions.
const MOST_INSTRUCTIONS: usize = 2048;

/// A value with more origins than this is one of unknown origin.
const MOST_ORIGINS: usize = 8;

/// How often an instruction is looked at on average for what can be held where; in official builds 5 times.
const MOST_LOOKS: usize = 32;

/// So many instructions are tried for a place before a call, and after it.
const MOST_TRIED: usize = 256;

/// Stands for any origin.
const UNKNOWN: u32 = u32::MAX;

/// How to know the call of the callback from other calls through a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callee {
    /// In a builtin: its address came as an argument or from an object; helpers are loaded from the isolate (`r13`).
    NotFromIsolate,
    /// In C++: it is held in a callee-saved register; virtual calls of the tracing controller go through others. Where none is, its first
    /// argument is an object on the stack; that of virtual calls is not.
    Cpp,
}

/// Enter and exit of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSites {
    /// Before the call.
    pub(crate) enter: u64,
    /// Holds the callback's address at `enter`.
    pub(crate) callback: Holder,
    /// After the call.
    pub(crate) exit: u64,
}

/// What holds a value at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) register: Register,
    /// Not the register itself, but the word this many bytes from where it points to.
    pub(crate) slot: Option<i32>,
}

impl From<Register> for Holder {
    fn from(register: Register) -> Self {
        Self {
            register,
            slot: None,
        }
    }
}

/// Why no sites were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSites {
    /// No call through a register that can be the callback's.
    NoCall,
    /// Several calls could be the callback's.
    Ambiguous,
    /// No emulated instruction stands on every path to the call.
    NoEnter,
    /// No emulated instruction stands on every path from the call.
    NoExit,
    /// The function is larger than any of V8's with such a call.
    TooLarge,
}

impl NoSites {
    /// For the plan's `reason`.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NoCall => "no call through a register in this function",
            Self::Ambiguous => "several calls in this function could be the callback's",
            Self::NoEnter => "no cheap instruction stands on every path to the call",
            Self::NoExit => "no cheap instruction stands on every path from the call",
            Self::TooLarge => "the function is larger than expected",
        }
    }
}

/// Finds the sites in the function whose `code` lies at `address`; `never_returns` knows functions such as `abort`. Takes from `looks` how often
/// it looked at an instruction, and gives up where none is left.
pub(crate) fn find(
    code: &[u8],
    address: u64,
    callee: Callee,
    looks: &mut usize,
    never_returns: &dyn Fn(u64) -> bool,
) -> Result<CallSites, NoSites> {
    let graph = Graph::new(code, address, never_returns)?;
    let states = graph.values(looks)?;
    let (call, origin) = graph.callback_call(&states, callee)?;

    // The thunk that V8 calls instead while it profiles returns to the same place.
    let after = graph.after(call).ok_or(NoSites::NoExit)?;
    let mut calls = vec![call];
    for other in graph.register_calls() {
        if other != call
            && let Some(back) = graph.after(other)
            && graph.reach(&[back], &[call, other])[after]
        {
            calls.push(other);
        }
    }
    let backs: Vec<usize> = calls.iter().filter_map(|c| graph.after(*c)).collect();

    let enter = graph
        .enter(&states, &calls, &origin)
        .ok_or(NoSites::NoEnter)?;
    let exit = graph.exit(&calls, &backs).ok_or(NoSites::NoExit)?;
    Ok(CallSites {
        enter: graph.nodes[enter.0].instruction.ip(),
        callback: enter.1,
        exit: graph.nodes[exit].instruction.ip(),
    })
}

struct Node {
    instruction: Instruction,
    emulated: bool,
    next: Vec<usize>,
    /// Leaves the function: a return or a jump elsewhere.
    leaves: bool,
}

struct Graph {
    nodes: Vec<Node>,
}

/// Where a value can come from: 0–15 a register at function entry, else 16 + the index of the instruction that made it.
type Origins = Vec<u32>;

/// What the registers, and the stack slots addressed by `rbp`, hold before an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Values {
    registers: [Origins; 16],
    slots: BTreeMap<i64, Origins>,
}

/// Bytes of a slot.
const SLOT: i64 = 8;

/// So many slots are known at a place at most.
const MOST_SLOTS: usize = 64;

/// The deepest slot that is looked for, in bytes: frames of V8 are smaller.
const DEEPEST_SLOT: i64 = 1 << 20;

impl Values {
    /// Joins what another path brings; tells whether that changed anything.
    fn join(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            changed |= union(mine, theirs);
        }
        let before = self.slots.len();
        self.slots.retain(|slot, _| other.slots.contains_key(slot));
        changed |= before != self.slots.len();
        for (slot, mine) in &mut self.slots {
            if let Some(theirs) = other.slots.get(slot) {
                changed |= union(mine, theirs);
            }
        }
        changed
    }
}

impl Values {
    /// A register that holds the value with these origins.
    fn register_with(&self, origin: &Origins) -> Option<Holder> {
        Register::ALL
            .into_iter()
            .find(|register| self.registers[*register as usize] == *origin)
            .map(Holder::from)
    }

    /// A word of the frame that does.
    fn slot_with(&self, origin: &Origins) -> Option<Holder> {
        let (slot, _) = self.slots.iter().find(|(slot, held)| {
            *held == origin && (-DEEPEST_SLOT..0).contains(*slot) && **slot % SLOT == 0
        })?;
        Some(Holder {
            register: Register::Rbp,
            slot: Some(i32::try_from(*slot).ok()?),
        })
    }

    /// A slot holds what the register does, if there are not too many of them.
    fn store(&mut self, slot: i64, from: Register) {
        self.forget(slot, SLOT);
        if self.slots.len() < MOST_SLOTS {
            self.slots
                .insert(slot, self.registers[from as usize].clone());
        }
    }

    /// What lies in these bytes is not known any more.
    fn forget(&mut self, start: i64, bytes: i64) {
        self.slots
            .retain(|slot, _| *slot + SLOT <= start || start + bytes <= *slot);
    }
}

fn union(mine: &mut Origins, theirs: &Origins) -> bool {
    let mut changed = false;
    if mine.as_slice() == [UNKNOWN] {
        return false;
    }
    for origin in theirs {
        if let Err(place) = mine.binary_search(origin) {
            mine.insert(place, *origin);
            changed = true;
        }
    }
    if mine.len() > MOST_ORIGINS || mine.last() == Some(&UNKNOWN) {
        *mine = vec![UNKNOWN];
    }
    changed
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// A call leaves these as the System V ABI has it.
const CALLER_SAVED: [Register; 9] = [
    Register::Rax,
    Register::Rcx,
    Register::Rdx,
    Register::Rsi,
    Register::Rdi,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// Those that hold a value over a call; `rbp` is the frame pointer.
const CALLEE_SAVED: [Register; 5] = [
    Register::Rbx,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

impl Graph {
    fn new(
        code: &[u8],
        address: u64,
        never_returns: &dyn Fn(u64) -> bool,
    ) -> Result<Self, NoSites> {
        let instructions: Vec<Instruction> = decode::decode(code, address)
            .take(MOST_INSTRUCTIONS + 1)
            .collect();
        if instructions.len() > MOST_INSTRUCTIONS {
            return Err(NoSites::TooLarge);
        }
        let place = |ip: u64| instructions.binary_search_by_key(&ip, Instruction::ip).ok();
        let nodes = instructions
            .iter()
            .enumerate()
            .map(|(index, instruction)| {
                let mut next = Vec::with_capacity(2);
                let mut leaves = matches!(
                    instruction.flow_control(),
                    FlowControl::Return | FlowControl::IndirectBranch
                );
                let ends = instruction.flow_control() == FlowControl::Call
                    && instruction.is_call_near()
                    && never_returns(instruction.near_branch_target());
                if decode::falls_through(instruction) && !ends && index + 1 < instructions.len() {
                    next.push(index + 1);
                }
                if let Some(target) = decode::jump_target(instruction) {
                    match place(target) {
                        Some(target) => next.push(target),
                        None => leaves = true,
                    }
                }
                let start = usize::try_from(instruction.ip() - address).unwrap_or(usize::MAX);
                Node {
                    emulated: decode::is_emulated(
                        instruction,
                        code.get(start..).unwrap_or_default(),
                    ),
                    instruction: *instruction,
                    next,
                    leaves,
                }
            })
            .collect();
        Ok(Self { nodes })
    }

    /// Index of the instruction that a call returns to.
    fn after(&self, call: usize) -> Option<usize> {
        self.nodes.get(call)?.next.first().copied()
    }

    fn register_calls(&self) -> impl Iterator<Item = usize> + '_ {
        self.nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.instruction.code() == Code::Call_rm64)
            .filter(|(_, node)| node.instruction.op0_kind() == OpKind::Register)
            .map(|(index, _)| index)
    }

    /// Which instructions are reached from `from` (themselves included) without passing one of `barred`.
    fn reach(&self, from: &[usize], barred: &[usize]) -> Vec<bool> {
        let mut is_barred = vec![false; self.nodes.len()];
        barred.iter().for_each(|index| is_barred[*index] = true);
        let mut seen = vec![false; self.nodes.len()];
        let mut stack: Vec<usize> = from.to_vec();
        while let Some(index) = stack.pop() {
            if is_barred[index] || std::mem::replace(&mut seen[index], true) {
                continue;
            }
            stack.extend(&self.nodes[index].next);
        }
        seen
    }

    fn leaves_among(&self, reached: &[bool]) -> bool {
        self.nodes
            .iter()
            .zip(reached)
            .any(|(node, reached)| *reached && node.leaves)
    }

    /// What each register can hold before each instruction; `None` for unreachable ones.
    fn values(&self, looks: &mut usize) -> Result<Vec<Option<Values>>, NoSites> {
        let mut states: Vec<Option<Values>> = vec![None; self.nodes.len()];
        if self.nodes.is_empty() {
            return Ok(states);
        }
        states[0] = Some(Values {
            registers: std::array::from_fn(|register| vec![register as u32]),
            slots: BTreeMap::new(),
        });
        let mut factory = InstructionInfoFactory::new();
        let mut work = vec![0];
        let mut left = MOST_LOOKS * self.nodes.len();
        while let Some(index) = work.pop() {
            left = left.checked_sub(1).ok_or(NoSites::TooLarge)?;
            *looks = looks.checked_sub(1).ok_or(NoSites::TooLarge)?;
            let Some(state) = states[index].clone() else {
                continue;
            };
            let out = self.step(index, state, &mut factory);
            for next in &self.nodes[index].next {
                let changed = match &mut states[*next] {
                    Some(known) => known.join(&out),
                    unknown => {
                        *unknown = Some(out.clone());
                        true
                    }
                };
                if changed {
                    work.push(*next);
                }
            }
        }
        Ok(states)
    }

    fn step(
        &self,
        index: usize,
        mut state: Values,
        factory: &mut InstructionInfoFactory,
    ) -> Values {
        let instruction = &self.nodes[index].instruction;
        let made = 16 + index as u32;
        if matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        ) {
            for register in CALLER_SAVED {
                state.registers[register as usize] = vec![made];
            }
            return state;
        }
        if let Some((to, from)) = decode::register_copy(instruction) {
            state.registers[to as usize] = state.registers[from as usize].clone();
            if to == Register::Rbp {
                state.slots.clear();
            }
            return state;
        }
        let slot = (instruction.memory_base() == Iced::RBP
            && instruction.memory_index() == Iced::None)
            .then(|| instruction.memory_displacement64() as i64);
        if let Some(slot) = slot {
            match instruction.code() {
                Code::Mov_r64_rm64 => {
                    if let Some(to) = decode::register(instruction.op0_register())
                        && to != Register::Rbp
                    {
                        let value = state.slots.get(&slot).cloned();
                        state.registers[to as usize] = value.unwrap_or_else(|| vec![made]);
                        return state;
                    }
                }
                Code::Mov_rm64_r64 => {
                    if let Some(from) = decode::register(instruction.op1_register()) {
                        state.store(slot, from);
                        return state;
                    }
                }
                _ => {}
            }
        }
        let used = factory.info(instruction);
        for memory in used.used_memory() {
            if memory.base() != Iced::RBP || !writes(memory.access()) {
                continue;
            }
            match memory.memory_size().size() {
                // Of a width or at a place that is not told.
                0 => state.slots.clear(),
                _ if memory.index() != Iced::None => state.slots.clear(),
                bytes => state.forget(memory.displacement() as i64, bytes as i64),
            }
        }
        for used in used.used_registers() {
            if writes(used.access())
                && let Some(register) = decode::register(used.register().full_register())
            {
                state.registers[register as usize] = vec![made];
                if register == Register::Rbp {
                    state.slots.clear();
                }
            }
        }
        state
    }

    /// The call of the callback and where its address comes from.
    fn callback_call(
        &self,
        states: &[Option<Values>],
        callee: Callee,
    ) -> Result<(usize, Origins), NoSites> {
        let mut found: Vec<(usize, Origins, bool)> = Vec::new();
        let given_the_stack = |call: &usize| {
            states[*call]
                .as_ref()
                .is_some_and(|state| self.is_on_stack(&state.registers[Register::Rdi as usize]))
        };
        for call in self.register_calls() {
            let (Some(state), Some(register)) = (
                &states[call],
                decode::register(self.nodes[call].instruction.op0_register()),
            ) else {
                continue;
            };
            let mut origin = state.registers[register as usize].clone();
            if callee == Callee::NotFromIsolate {
                origin.retain(|origin| !self.is_isolate_load(*origin));
            }
            if !origin.is_empty() && !origin.contains(&UNKNOWN) {
                found.push((call, origin, CALLEE_SAVED.contains(&register)));
            }
        }
        if callee == Callee::Cpp {
            if found.iter().any(|(.., saved)| *saved) {
                found.retain(|(.., saved)| *saved);
            } else if found.len() > 1 {
                found.retain(|(call, ..)| given_the_stack(call));
            }
        }
        match found.len() {
            0 => Err(NoSites::NoCall),
            1 => found
                .pop()
                .map(|(call, origin, _)| (call, origin))
                .ok_or(NoSites::NoCall),
            _ => Err(NoSites::Ambiguous),
        }
    }

    /// Whether the value was loaded from the isolate, as the addresses of V8's own helpers are.
    fn is_isolate_load(&self, origin: u32) -> bool {
        let Some(index) = (origin as usize).checked_sub(16) else {
            return false;
        };
        self.nodes.get(index).is_some_and(|node| {
            node.instruction.code() == Code::Mov_r64_rm64
                && node.instruction.memory_base() == Iced::R13
        })
    }

    /// Whether the value is an address within the function's frame.
    fn is_on_stack(&self, origins: &Origins) -> bool {
        let is_address = |origin: &u32| {
            let made = (*origin as usize).checked_sub(16);
            made.and_then(|index| self.nodes.get(index))
                .is_some_and(|node| {
                    node.instruction.code() == Code::Lea_r64_m
                        && matches!(node.instruction.memory_base(), Iced::RBP | Iced::RSP)
                })
        };
        !origins.is_empty() && origins.iter().all(is_address)
    }

    fn enter(
        &self,
        states: &[Option<Values>],
        calls: &[usize],
        origin: &Origins,
    ) -> Option<(usize, Holder)> {
        self.last_holding(states, calls, |state| state.register_with(origin))
            .or_else(|| self.last_holding(states, calls, |state| state.slot_with(origin)))
    }

    /// The last instruction on every path to the calls, and only on these, at which there is a holder.
    fn last_holding(
        &self,
        states: &[Option<Values>],
        calls: &[usize],
        holder: impl Fn(&Values) -> Option<Holder>,
    ) -> Option<(usize, Holder)> {
        let mut candidates = Vec::new();
        let mut left = MOST_TRIED;
        for (index, node) in self.nodes.iter().enumerate() {
            if !node.emulated || calls.contains(&index) {
                continue;
            }
            let Some(holder) = states[index].as_ref().and_then(&holder) else {
                continue;
            };
            left = left.checked_sub(1)?;
            let around = self.reach(&[0], &[index]);
            let on_every_path = calls.iter().all(|call| !around[*call]);
            let leads_to_call = !self.leaves_among(&self.reach(&node.next, calls));
            if on_every_path && leads_to_call {
                // Of two that stand on every path, the later one is not reached around the earlier one.
                candidates.push((index, holder, around));
            }
        }
        let indices: Vec<usize> = candidates.iter().map(|(index, ..)| *index).collect();
        candidates
            .into_iter()
            .max_by_key(|(_, _, around)| indices.iter().filter(|other| around[**other]).count())
            .map(|(index, holder, _)| (index, holder))
    }

    fn exit(&self, calls: &[usize], backs: &[usize]) -> Option<usize> {
        let without_call = self.reach(&[0], calls);
        let after_call = self.reach(backs, &[]);
        let mut candidates = Vec::new();
        let mut left = MOST_TRIED;
        for (index, node) in self.nodes.iter().enumerate() {
            let only_after = after_call[index] && !without_call[index];
            if !node.emulated || !only_after || calls.contains(&index) {
                continue;
            }
            left = left.checked_sub(1)?;
            let around = self.reach(backs, &[index]);
            if !self.leaves_among(&around) {
                candidates.push((index, around));
            }
        }
        let indices: Vec<usize> = candidates.iter().map(|(index, _)| *index).collect();
        candidates
            .into_iter()
            .min_by_key(|(_, around)| indices.iter().filter(|other| around[**other]).count())
            .map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_on_the_stack_is_known_until_something_is_written_over_it() {
        let sites = |between: &[u8]| {
            let code = [
                // push rbp; mov rbp, rsp; sub rsp, 32
                &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20][..],
                // mov rax, [rdi]; mov [rbp-16], rax; xor eax, eax
                &[0x48, 0x8b, 0x07, 0x48, 0x89, 0x45, 0xf0, 0x31, 0xc0],
                between,
                // jne; mov rax, [rbp-16]; lea rdi, [rbp-8]; call rax
                &[0x75, 0x00, 0x48, 0x8b, 0x45, 0xf0, 0x48, 0x8d, 0x7d, 0xf8],
                // je; leave; ret
                &[0xff, 0xd0, 0x74, 0x00, 0xc9, 0xc3],
            ]
            .concat();
            find(&code, 0x1000, Callee::Cpp, &mut 1000, &|_| false)
        };
        let untouched: [(&str, &[u8]); 7] = [
            ("nothing", &[]),
            ("mov [rbp-8], ecx", &[0x89, 0x4d, 0xf8]),
            ("mov [rbp-20], ecx", &[0x89, 0x4d, 0xec]),
            ("movaps [rbp-32], xmm0", &[0x0f, 0x29, 0x45, 0xe0]),
            ("mov ecx, [rbp-16]", &[0x8b, 0x4d, 0xf0]),
            ("cmp [rbp-16], rcx", &[0x48, 0x39, 0x4d, 0xf0]),
            // A virtual call: its object is not on the stack.
            ("mov rdi, rax; call rdx", &[0x48, 0x89, 0xc7, 0xff, 0xd2]),
        ];
        for (what, code) in untouched {
            let enter = 0x1011 + code.len() as u64;
            let expected = CallSites {
                enter,
                callback: Holder {
                    register: Register::Rbp,
                    slot: Some(-16),
                },
                exit: enter + 12,
            };
            assert_eq!(sites(code), Ok(expected), "{what}");
        }
        let overwritten: [(&str, &[u8]); 6] = [
            ("mov [rbp-12], ecx", &[0x89, 0x4d, 0xf4]),
            ("mov [rbp-20], rcx", &[0x48, 0x89, 0x4d, 0xec]),
            ("movups [rbp-24], xmm0", &[0x0f, 0x11, 0x45, 0xe8]),
            ("or dword [rbp-16], 1", &[0x83, 0x4d, 0xf0, 0x01]),
            ("mov [rbp+rcx*8-16], rcx", &[0x48, 0x89, 0x4c, 0xcd, 0xf0]),
            ("mov rbp, rcx", &[0x48, 0x89, 0xcd]),
        ];
        for (what, code) in overwritten {
            assert_eq!(sites(code), Err(NoSites::NoEnter), "{what}");
        }
    }

    /// Each round of the loop moves one more origin from slot to slot.
    #[test]
    fn a_function_made_to_be_looked_at_for_long_is_too_large() {
        let at = |displacement: usize| (-(8 * displacement as i32)).to_le_bytes();
        let code = |slots: usize| {
            // push rbp; mov rbp, rsp
            let mut code = vec![0x55, 0x48, 0x89, 0xe5];
            for slot in 1..=slots + 1 {
                // mov [rbp-8*slot], rbx
                code.extend([0x48, 0x89, 0x9d]);
                code.extend(at(slot));
            }
            let start = code.len();
            // mov [rbp-8], rax
            code.extend([0x48, 0x89, 0x85]);
            code.extend(at(1));
            for slot in (1..=slots).rev() {
                // mov rcx, [rbp-8*slot]; mov [rbp-8*slot-8], rcx
                code.extend([0x48, 0x8b, 0x8d]);
                code.extend(at(slot));
                code.extend([0x48, 0x89, 0x8d]);
                code.extend(at(slot + 1));
            }
            // jne to the start; call rdx; jne; leave; ret
            let back = start as i32 - (code.len() as i32 + 6);
            code.extend([0x0f, 0x85]);
            code.extend(back.to_le_bytes());
            code.extend([0xff, 0xd2, 0x75, 0x00, 0xc9, 0xc3]);
            code
        };
        let sites = |slots: usize, looks: &mut usize| {
            find(&code(slots), 0x1000, Callee::NotFromIsolate, looks, &|_| {
                false
            })
        };
        assert!(sites(10, &mut 10_000).is_ok());
        assert_eq!(sites(60, &mut 100_000), Err(NoSites::TooLarge));
        let mut looks = 10;
        assert_eq!(sites(10, &mut looks), Err(NoSites::TooLarge));
        assert_eq!(looks, 0);
        // More places before the call than are tried: jne to the next, again and again; call rdx; jne; leave; ret.
        let places = |count: usize| {
            let mut code = vec![0x55, 0x48, 0x89, 0xe5];
            code.extend([0x75, 0x00].repeat(count));
            code.extend([0xff, 0xd2, 0x75, 0x00, 0xc9, 0xc3]);
            find(&code, 0, Callee::NotFromIsolate, &mut 10_000, &|_| false)
        };
        assert!(places(200).is_ok());
        assert_eq!(places(300), Err(NoSites::NoEnter));
        // More slots than are known at once, and no loop.
        let mut straight = code(300);
        straight.truncate(4 + 301 * 7);
        let Ok(graph) = Graph::new(&straight, 0x1000, &|_| false) else {
            panic!("it is not large");
        };
        let states = graph.values(&mut 1_000).unwrap();
        let most = states.iter().flatten().map(|state| state.slots.len()).max();
        assert_eq!(most, Some(MOST_SLOTS));
    }

    #[test]
    fn code_of_any_bytes_gives_sites_inside_of_it_or_a_reason() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        // Random bytes with many of the instructions that matter: jumps, calls through registers, pushes.
        const COMMON: [&[u8]; 8] = [
            &[0xff, 0xd2],
            &[0x41, 0xff, 0xd7],
            &[0x75, 0x04],
            &[0xeb, 0x02],
            &[0x55],
            &[0x74, 0xf0],
            &[0xc3],
            &[0x90],
        ];
        let (mut found, mut told) = (0, 0);
        for _ in 0..20_000 {
            let mut code = Vec::new();
            for _ in 0..next() % 40 {
                match next() % 3 {
                    0 => code.push(next() as u8),
                    _ => code.extend_from_slice(COMMON[(next() % 8) as usize]),
                }
            }
            let address = next() >> (next() % 40);
            for callee in [Callee::NotFromIsolate, Callee::Cpp] {
                if let Ok(sites) = find(&code, address, callee, &mut 10_000, &|_| false) {
                    found += 1;
                    let inside = |site: u64| site.wrapping_sub(address) < code.len() as u64;
                    assert!(inside(sites.enter) && inside(sites.exit));
                    let value =
                        value_at_entry(&code, address, sites.enter, sites.callback, &|_| false);
                    told += usize::from(value.is_some());
                }
            }
        }
        assert!(
            found > 0 && told > 0,
            "the generator never makes a function with a call"
        );
    }
}
