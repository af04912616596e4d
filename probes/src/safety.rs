//! Where a return probe would crash node.
//!
//! A return probe replaces the return address on the stack. V8 reads exactly that slot of a callback when it walks the
//! stack for a garbage collection or an `Error`. A function that a callback reaches by a *tail jump* inherits the callback's
//! return address, so it is as dangerous. Here both sets are computed from the code of this very binary.

use std::collections::HashMap;

use iced_x86::{Code, OpKind};

use crate::decode;
use crate::elf::Binary;

/// What all functions looked at may have in code: some ten times what a real node binary needs.
const MOST_CODE: u64 = 64 << 20;

/// Functions on whose return address V8 relies.
pub(crate) struct ReturnsToV8 {
    /// Function → a function that jumps to it, or itself where V8 calls it.
    reached: HashMap<u64, u64>,
    /// Not all code could be looked at: nothing is proven.
    incomplete: bool,
}

impl ReturnsToV8 {
    /// Follows the tail jumps from `roots`, the functions that V8 itself calls.
    pub(crate) fn new(binary: &Binary<'_>, roots: impl Iterator<Item = u64>) -> Self {
        let mut reached: HashMap<u64, u64> = roots.map(|root| (root, root)).collect();
        let mut work: Vec<u64> = reached.keys().copied().collect();
        let mut budget = MOST_CODE;
        let mut incomplete = false;
        while let Some(start) = work.pop() {
            let code = binary.code(start);
            let Some(left) = budget.checked_sub(code.len() as u64) else {
                incomplete = true;
                break;
            };
            budget = left;
            let end = start + code.len() as u64;
            for instruction in decode::decode(code, start) {
                let Some(target) = decode::jump_target(&instruction) else {
                    continue;
                };
                if (start..end).contains(&target) {
                    continue;
                }
                // Into the middle of a function: a `.cold` part that goes back. Its function has the same frame.
                let function = match binary.function_around(target) {
                    Some(function) => function.address,
                    None => target,
                };
                reached.entry(function).or_insert_with(|| {
                    work.push(function);
                    start
                });
            }
        }
        Self {
            reached,
            incomplete,
        }
    }

    /// The function whose tail jump makes a return probe on `address` unsafe (`address` itself if V8 calls it).
    pub(crate) fn reached_from(&self, address: u64) -> Option<u64> {
        self.reached.get(&address).copied()
    }

    /// Whether a proof was not possible.
    pub(crate) fn incomplete(&self) -> bool {
        self.incomplete
    }

    /// Every function in the set.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.reached.keys().copied()
    }
}

/// Calls of `callee` within `code` and the constant that the caller puts in `esi` before each.
pub(crate) fn second_arguments(code: &[u8], address: u64, callee: u64) -> Vec<u32> {
    let mut second = None;
    let mut found = Vec::new();
    for instruction in decode::decode(code, address) {
        match instruction.code() {
            Code::Mov_r32_imm32 if instruction.op0_register() == iced_x86::Register::ESI => {
                second = Some(instruction.immediate32());
            }
            Code::Xor_r32_rm32 | Code::Xor_rm32_r32
                if instruction.op0_register() == iced_x86::Register::ESI
                    && instruction.op1_kind() == OpKind::Register
                    && instruction.op1_register() == iced_x86::Register::ESI =>
            {
                second = Some(0);
            }
            Code::Call_rel32_64 => {
                if instruction.near_branch_target() == callee {
                    found.extend(second);
                }
                second = None;
            }
            _ => {}
        }
    }
    found
}
