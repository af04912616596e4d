//! Callbacks that go on in another one: `EnvDefiner` ends with a jump to `EnvSetter`, so one call from JavaScript enters both.

use std::collections::HashSet;

use iced_x86::Instruction;

use crate::decode;
use crate::plan::{Callback, CallbackSort};

/// Instructions that are looked at, of all callbacks together; the official builds have some 120,000.
const MOST_DECODED: usize = 1 << 20;

/// Of each callback, whether the next entry of another one can be a part of the same call. `code`: a function's, by its address.
///
/// Of functions only those that the compiler made a single jump: two of the same code are one. V8 calls all functions from one place, so
/// whether another one did jump could not be told from the next call.
pub(crate) fn go_on<'d>(callbacks: &[Callback], code: impl Fn(u64) -> &'d [u8]) -> Vec<bool> {
    let entries = |sort: CallbackSort| -> HashSet<u64> {
        let of_sort = callbacks.iter().filter(|callback| callback.sort == sort);
        of_sort.map(|callback| callback.address.0).collect()
    };
    let (functions, properties) = (
        entries(CallbackSort::Function),
        entries(CallbackSort::Property),
    );
    let mut left = MOST_DECODED;
    let mut goes_on = |callback: &Callback| {
        let address = callback.address.0;
        let (others, looked_at) = match callback.sort {
            CallbackSort::Property => (&properties, left),
            CallbackSort::Function => (&functions, left.min(1)),
            CallbackSort::Fast => return false,
        };
        let instructions = decode::decode(code(address), address).take(looked_at);
        instructions.into_iter().any(|instruction| {
            left -= 1;
            let target = goes_to(&instruction, callback.sort);
            target.is_some_and(|target| target != address && others.contains(&target))
        })
    };
    callbacks.iter().map(&mut goes_on).collect()
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
        let mut code = vec![0x90; 0x60];
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
        let expected = [true, true, false, false, true, false, false];
        assert_eq!(go_on(&callbacks, code), expected);
    }
}
