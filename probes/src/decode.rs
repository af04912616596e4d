//! Questions about single x86-64 instructions.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, Register as Iced};

use crate::plan::Register;

/// Decodes `code`, which lies at `address`; stops at the first byte that is no instruction.
pub(crate) fn decode(code: &[u8], address: u64) -> impl Iterator<Item = Instruction> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    std::iter::from_fn(move || {
        if !decoder.can_decode() {
            return None;
        }
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    })
}

/// Whether the kernel emulates the instruction under a uprobe (0.5 µs) or single-steps it (15 µs).
///
/// `arch/x86/kernel/uprobes.c`, `branch_setup_xol_ops` and `push_setup_xol_ops`: relative jumps and calls without
/// operand-size prefix, conditional jumps, the one-byte nop (longer ones only in new kernels, so not here), `push` of a
/// register.
pub(crate) fn is_emulated(instruction: &Instruction, code: &[u8]) -> bool {
    let Some(bytes) = code.get(..instruction.len()) else {
        return false;
    };
    let nop_or_push = matches!(bytes, [0x90] | [0x50..=0x57] | [0x41, 0x50..=0x57]);
    let branch = matches!(
        bytes,
        [0xeb | 0xe9 | 0xe8, ..] | [0x70..=0x7f, _] | [0x0f, 0x80..=0x8f, ..]
    );
    nop_or_push || branch
}

/// The 64-bit general-purpose register, if the operand is exactly that.
pub(crate) fn register(register: Iced) -> Option<Register> {
    Some(match register {
        Iced::RAX => Register::Rax,
        Iced::RCX => Register::Rcx,
        Iced::RDX => Register::Rdx,
        Iced::RBX => Register::Rbx,
        Iced::RSP => Register::Rsp,
        Iced::RBP => Register::Rbp,
        Iced::RSI => Register::Rsi,
        Iced::RDI => Register::Rdi,
        Iced::R8 => Register::R8,
        Iced::R9 => Register::R9,
        Iced::R10 => Register::R10,
        Iced::R11 => Register::R11,
        Iced::R12 => Register::R12,
        Iced::R13 => Register::R13,
        Iced::R14 => Register::R14,
        Iced::R15 => Register::R15,
        _ => return None,
    })
}

/// Whether the instruction moves one 64-bit register into another.
pub(crate) fn register_copy(instruction: &Instruction) -> Option<(Register, Register)> {
    matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64).then_some(())?;
    if instruction.op1_register() == Iced::None || instruction.op0_register() == Iced::None {
        return None;
    }
    Some((
        register(instruction.op0_register())?,
        register(instruction.op1_register())?,
    ))
}

/// Whether execution can go on behind the instruction.
pub(crate) fn falls_through(instruction: &Instruction) -> bool {
    use iced_x86::FlowControl;
    !matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
            | FlowControl::Interrupt
    ) && instruction.mnemonic() != Mnemonic::Hlt
}

/// Target of a direct jump, conditional or not.
pub(crate) fn jump_target(instruction: &Instruction) -> Option<u64> {
    (instruction.is_jmp_short_or_near() || instruction.is_jcc_short_or_near())
        .then(|| instruction.near_branch_target())
}
