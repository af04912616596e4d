//! Where a return probe would crash node.
//!
//! A return probe replaces the return address on the stack. V8 reads exactly that slot of a callback when it walks the
//! stack for a garbage collection or an `Error`. A function that a callback reaches by a *tail jump* inherits the callback's
//! return address, so it is as dangerous. Here both sets are computed from the code of this very binary.

use std::collections::HashMap;

use iced_x86::{Code, OpKind};

use crate::decode;
use crate::elf::Binary;

/// What all functions looked at may have in code, here and for the rest of a plan: some ten times what a real node binary needs.
const MOST_CODE: u64 = 64 << 20;

/// Functions on whose return address V8 relies.
pub(crate) struct ReturnsToV8 {
    /// Function → a function that jumps to it, or itself where V8 calls it.
    reached: HashMap<u64, u64>,
    /// Not all code could be looked at: nothing is proven.
    incomplete: bool,
    /// What is left of [`MOST_CODE`].
    left: u64,
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
            left: budget,
        }
    }

    /// How many bytes of code may still be looked at.
    pub(crate) fn left(&self) -> u64 {
        self.left
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;
    use crate::names;
    use crate::resolve;
    use crate::{common, elf};

    /// Demangled, and marked as `c++filt` marks clones.
    fn shown(mangled: &[u8]) -> String {
        let (name, suffix) = names::split_clone(mangled);
        let Some(name) = names::demangle(name) else {
            return String::from_utf8_lossy(mangled).into_owned();
        };
        // cpp_demangle's form of an empty parameter pack.
        let name = name.replace(", &&)", ")");
        let suffix = String::from_utf8_lossy(suffix).into_owned();
        let mut clones = String::new();
        let mut parts = suffix.split('.').skip(1).peekable();
        while let Some(part) = parts.next() {
            clones += &format!(" [clone .{part}");
            if let Some(number) = parts.next_if(|part| part.parse::<u32>().is_ok()) {
                clones += &format!(".{number}");
            }
            clones.push(']');
        }
        name + &clones
    }

    fn tail_reached(path: &Path) -> HashSet<String> {
        let data = elf::map(path).unwrap();
        let binary = Binary::parse(path, &data).unwrap();
        let reached: HashSet<u64> = resolve::returns_to_v8(&binary).unwrap().iter().collect();
        binary
            .functions
            .iter()
            .filter(|function| reached.contains(&function.address))
            .map(|function| shown(function.name))
            .collect()
    }

    #[test]
    fn every_function_seen_to_inherit_a_builtins_return_address_is_in_the_set() {
        let known = [
            (
                "20.20.2",
                include_str!("../tests/data/tail-jump-targets-20.20.2.json"),
            ),
            (
                "24.21.0",
                include_str!("../tests/data/tail-jump-targets-24.21.0.json"),
            ),
        ];
        for (version, json) in known {
            let Some(path) = common::node_build(version) else {
                continue;
            };
            let known: serde_json::Value = serde_json::from_str(json).unwrap();
            let reached = tail_reached(&path);
            let missing: Vec<_> = known["functions"]
                .as_object()
                .unwrap()
                .keys()
                .filter(|function| !reached.contains(*function))
                .collect();
            assert!(missing.is_empty(), "{version}: {missing:#?}");
        }
    }

    #[test]
    fn functions_that_only_cpp_calls_are_not_in_the_set() {
        for version in common::VERSIONS {
            let Some(path) = common::node_build(version) else {
                continue;
            };
            let reached = tail_reached(&path);
            for function in [
                "v8::String::NewFromUtf8(v8::Isolate*, char const*, v8::NewStringType, int)",
                "node::BufferValue::BufferValue(v8::Isolate*, v8::Local<v8::Value>)",
                "v8::internal::(anonymous namespace)::Invoke(v8::internal::Isolate*, \
                 v8::internal::(anonymous namespace)::InvokeParams const&)",
            ] {
                assert!(!reached.contains(function), "{version} {function}");
            }
        }
    }
}
