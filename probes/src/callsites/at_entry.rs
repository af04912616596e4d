//! What a register holds at a place inside a function, told from the function's entry.
//!
//! Some tools can probe a function's entry only (bpftrace without a disassembler). There the callback's address is
//! not in a register yet, but the way that the code takes to it is known: `*(rbx + 111)`, say.

use iced_x86::{Code, Mnemonic, OpKind, Register as Iced};

use super::{Graph, Holder, Values};
use crate::decode;
use crate::plan::Register;

/// From an argument to a callback's address: handle, template, call code, foreign, address. Twice that ends a loop.
const MOST_LOADS: usize = 10;

/// A value in terms of what a register holds at a function's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryValue {
    /// At entry.
    pub(crate) register: Register,
    /// Each time: the word that lies this many bytes behind the value so far.
    pub(crate) loads: Vec<i64>,
}

/// What `holder` holds at `site`, in the function whose `code` lies at `address`. `None` if it is not the same on all
/// paths, or not made from an argument by loads alone.
///
/// Memory is taken to hold at entry what the code would load later: true of handles and templates, which do not
/// change while a call is under way.
pub(crate) fn value_at_entry(
    code: &[u8],
    address: u64,
    site: u64,
    holder: Holder,
    never_returns: &dyn Fn(u64) -> bool,
) -> Option<EntryValue> {
    let graph = Graph::new(code, address, never_returns).ok()?;
    let index = graph
        .nodes
        .binary_search_by_key(&site, |node| node.instruction.ip())
        .ok()?;
    // Of a function that a plan has sites in.
    let mut looks = usize::MAX;
    graph.value_at_entry(&graph.values(&mut looks).ok()?, index, holder)
}

impl Graph {
    fn value_at_entry(
        &self,
        states: &[Option<Values>],
        mut index: usize,
        mut holder: Holder,
    ) -> Option<EntryValue> {
        let mut loads = Vec::new();
        while loads.len() <= MOST_LOADS {
            let state = states.get(index)?.as_ref()?;
            let origins = match holder.slot {
                Some(slot) => state.slots.get(&slot.into())?,
                None => &state.registers[holder.register as usize],
            };
            // Where there is no callback the code puts 0 in its place, and does not call it.
            let mut made = origins.iter().filter(|origin| !self.is_zero(**origin));
            let (Some(&origin), None) = (made.next(), made.next()) else {
                return None;
            };
            if let Some(register) = Register::ALL.get(origin as usize) {
                loads.reverse();
                return Some(EntryValue {
                    register: *register,
                    loads,
                });
            }
            index = (origin as usize).checked_sub(16)?;
            let instruction = &self.nodes.get(index)?.instruction;
            let is_load = instruction.code() == Code::Mov_r64_rm64
                && instruction.op1_kind() == OpKind::Memory
                && instruction.memory_index() == Iced::None
                && instruction.segment_prefix() == Iced::None;
            if !is_load {
                return None;
            }
            loads.push(instruction.memory_displacement64() as i64);
            holder = decode::register(instruction.memory_base())?.into();
        }
        None
    }

    /// Whether the value was made by `xor r, r`.
    fn is_zero(&self, origin: u32) -> bool {
        let made = (origin as usize).checked_sub(16);
        made.and_then(|index| self.nodes.get(index))
            .is_some_and(|node| {
                let instruction = &node.instruction;
                instruction.mnemonic() == Mnemonic::Xor
                    && instruction.op1_kind() == OpKind::Register
                    && instruction.op0_register() == instruction.op1_register()
            })
    }
}
