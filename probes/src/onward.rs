//! Callbacks that go on in another one: `EnvDefiner` ends with a jump to `EnvSetter`, so one call from JavaScript enters both.

use std::collections::HashMap;

use iced_x86::{Instruction, Mnemonic};

use crate::decode;
use crate::plan::{Callback, CallbackSort};

/// Instructions that are looked at, of all callbacks together; the official builds have some 120,000.
const MOST_DECODED: usize = 1 << 20;

/// What one callback has to do with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Onward {
    /// Callbacks that go on in one another, from 1; 0: it is none of them.
    pub(crate) group: u8,
    /// The next entry of another one of its group can be a part of the same call.
    pub(crate) goes_on: bool,
}

/// Of each callback. `code`: a function's, by its address.
///
/// Of functions only those that the compiler made a single jump: two of the same code are one. V8 calls all functions from one place, so
/// whether another one did jump could not be told from the next call.
pub(crate) fn go_on<'d>(callbacks: &[Callback], code: impl Fn(u64) -> &'d [u8]) -> Vec<Onward> {
    let entries = |sort: CallbackSort| -> HashMap<u64, usize> {
        let all = callbacks.iter().enumerate();
        let of_sort = all.filter(|(_, callback)| callback.sort == sort);
        of_sort
            .map(|(at, callback)| (callback.address.0, at))
            .collect()
    };
    let (functions, properties) = (
        entries(CallbackSort::Function),
        entries(CallbackSort::Property),
    );
    let mut left = MOST_DECODED;
    let mut onward = vec![Onward::default(); callbacks.len()];
    let mut groups = 0u8;
    for (at, callback) in callbacks.iter().enumerate() {
        let address = callback.address.0;
        let (others, looked_at) = match callback.sort {
            CallbackSort::Property => (&properties, usize::MAX),
            CallbackSort::Function => (&functions, 1),
            CallbackSort::Fast => continue,
        };
        let instructions = decode::decode(code(address), address);
        // Where a jump from elsewhere may land, there is this mark of no effect.
        let mut instructions = instructions
            .skip_while(|i| i.mnemonic() == Mnemonic::Endbr64)
            .take(looked_at);
        while left > 0
            && let Some(instruction) = instructions.next()
        {
            left -= 1;
            let target = goes_to(&instruction, callback.sort);
            let Some(&other) = target.and_then(|target| others.get(&target)) else {
                continue;
            };
            if other == at {
                continue;
            }
            let (one, two) = (onward[at].group, onward[other].group);
            let group = match (one, two) {
                // There is no number left: it counts as if it did not go on.
                (0, 0) if groups == u8::MAX => continue,
                (0, 0) => {
                    groups += 1;
                    groups
                }
                (0, group) | (group, _) => group,
            };
            let joined = onward.iter_mut().filter(|o| o.group != 0 && o.group == two);
            joined.for_each(|o| o.group = group);
            onward[at] = Onward {
                group,
                goes_on: true,
            };
            onward[other].group = group;
        }
    }
    onward
}

/// Where an instruction goes that need not come back.
fn goes_to(instruction: &Instruction, sort: CallbackSort) -> Option<u64> {
    match sort {
        CallbackSort::Function => instruction
            .is_jmp_short_or_near()
            .then(|| instruction.near_branch_target()),
        _ if instruction.is_call_near() => Some(instruction.near_branch_target()),
        _ => decode::jump_target(instruction),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Address;

    #[test]
    fn who_jumps_to_or_calls_another_of_its_sort_goes_on() {
        // 0x1000: push rbp; je 0x1020. 0x1010: call 0x1020; ret. 0x1020: jmp 0x1021; ret (its own code).
        // 0x1030: jmp 0x1020, a function. 0x1040: jmp 0x1030. 0x1050: push rbp; jmp 0x1030, functions both.
        let mut code = [0x90; 0x60];
        code[0x00..0x07].copy_from_slice(&[0x55, 0x0f, 0x84, 0x19, 0, 0, 0]);
        code[0x10..0x16].copy_from_slice(&[0xe8, 0x0b, 0, 0, 0, 0xc3]);
        code[0x20..0x23].copy_from_slice(&[0xeb, 0xff, 0xc3]);
        code[0x30..0x32].copy_from_slice(&[0xeb, 0xee]);
        code[0x40..0x42].copy_from_slice(&[0xeb, 0xee]);
        code[0x50..0x53].copy_from_slice(&[0x55, 0xeb, 0xdd]);
        let callbacks: Vec<Callback> = [
            (0x1000, CallbackSort::Property),
            (0x1010, CallbackSort::Property),
            (0x1020, CallbackSort::Property),
            (0x1030, CallbackSort::Function),
            (0x1040, CallbackSort::Function),
            (0x1050, CallbackSort::Function),
            (0x1000, CallbackSort::Fast),
        ]
        .map(|(address, sort)| Callback {
            address: Address(address),
            binding: String::new(),
            function: String::new(),
            sort,
        })
        .to_vec();
        let code = |address: u64| {
            let at = (address - 0x1000) as usize;
            &code[at..at + 0x10]
        };
        let found = go_on(&callbacks, code);
        let goes_on: Vec<bool> = found.iter().map(|onward| onward.goes_on).collect();
        assert_eq!(goes_on, [true, true, false, false, true, false, false]);
        let groups: Vec<u8> = found.iter().map(|onward| onward.group).collect();
        assert_eq!(groups, [1, 1, 1, 2, 2, 0, 0]);
    }
}
