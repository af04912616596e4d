//! ELF files that lie: no mutation of a binary may panic, hang or eat memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use crate::plan::AttachPlan;
use crate::{common, elf, resolve};

/// xorshift64*, so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Values that break sums: extremes, signs, neighbours of what was there.
    fn lie(&mut self, truth: u64) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => u64::MAX - self.below(4096) as u64,
            3 => 1 << self.below(64),
            4 => truth.wrapping_add(1),
            5 => truth.wrapping_sub(1),
            6 => truth ^ (1 << self.below(64)),
            _ => self.next(),
        }
    }
}

/// Overwrites a few places of `bytes` within `range`, and gives back what was there.
fn mutate(
    random: &mut Random,
    bytes: &mut [u8],
    range: std::ops::Range<usize>,
) -> Vec<(usize, u8)> {
    let mut undo = Vec::new();
    for _ in 0..=random.below(3) {
        let at = range.start + random.below(range.len());
        let width = [1, 2, 4, 8][random.below(4)].min(bytes.len() - at);
        let mut truth = [0; 8];
        truth[..width].copy_from_slice(&bytes[at..at + width]);
        let lie = random.lie(u64::from_le_bytes(truth)).to_le_bytes();
        undo.extend((at..at + width).map(|place| (place, bytes[place])));
        bytes[at..at + width].copy_from_slice(&lie[..width]);
    }
    undo
}

fn restore(bytes: &mut [u8], undo: Vec<(usize, u8)>) {
    for (at, byte) in undo.into_iter().rev() {
        bytes[at] = byte;
    }
}

/// All that this crate reads of a file.
fn read_all(bytes: &[u8]) -> Option<AttachPlan> {
    let path = Path::new("lying");
    if let Ok(outline) = elf::Outline::parse(path, bytes) {
        outline.build_id();
        outline.layout();
        outline.exports(elf::NODE_START);
        outline.symtab_has_node_start();
    }
    let plan = resolve::resolve(path, bytes, true).ok()?;
    for probe in plan.probes.iter().filter(|probe| probe.is_attachable()) {
        let offset = probe.offset.unwrap().0;
        assert!((offset as usize) < bytes.len(), "a probe outside the file");
    }
    Some(plan)
}

const PAGE: usize = 0x1000;
const BASE: u64 = 0x40_0000;

/// A small honest node: header, two segments, a build-id, some functions and their symbols.
fn small_node() -> Vec<u8> {
    // The code of 20.20.2's Builtins_CallApiCallback, from its conditional jump to its end, in short.
    let call_site: &[u8] = &[
        0x55, // push %rbp
        0x48, 0x89, 0xe5, // mov %rsp,%rbp
        0x41, 0x80, 0x7d, 0xc4, 0x00, // cmpb $0,-0x3c(%r13)
        0x75, 0x0b, // jne thunk
        0xff, 0xd2, // call *%rdx
        0x48, 0x39, 0xc3, // back: cmp %rax,%rbx
        0x75, 0x01, // jne 1f
        0xc9, // leave
        0xc3, // 1: ret
        0x90, 0x90, // nop
        0x49, 0x8b, 0x85, 0, 1, 0, 0, // thunk: mov 0x100(%r13),%rax
        0xff, 0xd0, // call *%rax
        0xeb, 0xec, // jmp back
    ];
    let simple: &[u8] = &[0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3];
    // Over `Mark` to `NewFromUtf8`.
    let tail: &[u8] = &[0xe9, 0x06, 0, 0, 0];
    let functions: [(&str, &[u8]); 9] = [
        ("_ZN4node5StartEiPPc", simple),
        ("Builtins_CallApiCallback", call_site),
        (
            "_ZN4node2fs18InternalModuleStatERKN2v820FunctionCallbackInfoINS1_5ValueEEE",
            tail,
        ),
        (
            "_ZN4node11performance16PerformanceState4MarkENS0_20PerformanceMilestoneEm",
            simple,
        ),
        (
            "_ZN2v86String11NewFromUtf8EPNS_7IsolateEPKcNS_13NewStringTypeEi",
            simple,
        ),
        (
            "_ZN4node7process11BindingData10FastHrtimeEN2v85LocalINS2_5ValueEEE",
            simple,
        ),
        (
            "_ZN4node9Utf8ValueC2EPN2v87IsolateENS1_5LocalINS1_5ValueEEE",
            simple,
        ),
        ("_ZN2v815ValueSerializer11WriteHeaderEv", simple),
        ("_ZN4node13SpinEventLoopEPNS_11EnvironmentE", simple),
    ];
    let mut code = Vec::new();
    let mut names = vec![0];
    let mut symbols = vec![0; 24];
    for (name, body) in functions {
        let address = BASE + PAGE as u64 + code.len() as u64;
        symbols.extend((names.len() as u32).to_le_bytes());
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend(address.to_le_bytes());
        symbols.extend((body.len() as u64).to_le_bytes());
        names.extend(name.bytes());
        names.push(0);
        code.extend(body);
    }
    let note: &[u8] = b"\x04\0\0\0\x08\0\0\0\x03\0\0\0GNU\0buildid!";
    let mut file = vec![0; PAGE];
    file.extend(&code);
    let symbols_at = file.len();
    file.extend(&symbols);
    let names_at = file.len();
    file.extend(&names);
    let note_at = file.len();
    file.extend(note);
    let sections_at = file.len();
    let words = |values: &[u64]| {
        values
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let mut section = |kind: u32, at: usize, size: usize, link: u32, entry: u64| {
        file.extend(0u32.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(words(&[0, 0, at as u64, size as u64]));
        file.extend(link.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        file.extend(words(&[8, entry]));
    };
    section(0, 0, 0, 0, 0);
    section(2, symbols_at, symbols.len(), 2, 24);
    section(3, names_at, names.len(), 0, 0);
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    header.extend(words(&[BASE, 64, sections_at as u64]));
    header.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 3, 0, 2, 0]);
    let mut program = |kind: u32, flags: u32, at: usize, size: usize| {
        header.extend(kind.to_le_bytes());
        header.extend(flags.to_le_bytes());
        let address = BASE + at as u64;
        header.extend(words(&[
            at as u64,
            address,
            address,
            size as u64,
            size as u64,
            8,
        ]));
    };
    program(1, 5, PAGE, code.len());
    program(4, 4, note_at, note.len());
    file[..header.len()].copy_from_slice(&header);
    file
}

#[test]
fn a_small_honest_node_has_a_plan() {
    let plan = read_all(&small_node()).unwrap();
    let attached = plan.probes.iter().filter(|p| p.is_attachable());
    let found: Vec<_> = attached
        .map(|p| (p.address.unwrap().0 - BASE, p.with_return))
        .collect();
    // Mark, Start, SpinEventLoop; enter and exit of the call site; NewFromUtf8, Utf8Value, WriteHeader; three callbacks.
    assert_eq!(found.len(), 10, "{found:x?}");
    assert!(plan.binary.build_id.is_some());
    assert_eq!(plan.callbacks.len(), 2);
    let site = |enter| {
        plan.probes.iter().find_map(|p| match p.role {
            crate::Role::CallEnter { .. } if enter => p.address,
            crate::Role::CallExit { .. } if !enter => p.address,
            _ => None,
        })
    };
    let builtin = plan.builtins.start.0;
    assert_eq!(site(true).unwrap().0 - builtin, 9);
    assert_eq!(site(false).unwrap().0 - builtin, 16);
}

#[test]
fn a_function_that_a_callback_jumps_to_gets_no_return_probe() {
    let plan = read_all(&small_node()).unwrap();
    let probe = |name: &str| {
        plan.probes
            .iter()
            .find(|p| p.symbol.contains(name))
            .unwrap()
    };
    let reached = probe("v8::String::NewFromUtf8(");
    assert!(reached.is_attachable() && !reached.with_return);
    let reason = reached.reason.as_deref().unwrap();
    assert!(
        reason.contains("node::fs::InternalModuleStat jumps here"),
        "{reason}"
    );
    assert!(probe("node::Utf8Value::Utf8Value(").with_return);
}

#[test]
fn a_small_node_that_lies_is_no_reason_to_panic() {
    let mut bytes = small_node();
    let mut random = Random(0x5eed);
    let everything = 0..bytes.len();
    for round in 0..6_000 {
        // Every other lie is told in the headers, where one byte changes all.
        let range = if round % 2 == 0 {
            0..176
        } else {
            everything.clone()
        };
        let undo = mutate(&mut random, &mut bytes, range);
        read_all(&bytes);
        restore(&mut bytes, undo);
    }
    assert!(bytes == small_node());
    for length in 0..bytes.len() {
        read_all(&bytes[..length]);
    }
}

#[test]
fn a_real_node_that_lies_is_no_reason_to_panic() {
    let Some(path) = common::node_build("16.20.0") else {
        return;
    };
    let mut bytes = std::fs::read(path).unwrap();
    let mut random = Random(0x16_20_00);
    let sections_at = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let headers = 0..64 + 10 * 56;
    let sections = sections_at..bytes.len();
    let ranges = [headers, sections, 0..bytes.len()];
    for round in 0..60 {
        let undo = mutate(&mut random, &mut bytes, ranges[round % 3].clone());
        read_all(&bytes);
        restore(&mut bytes, undo);
    }
    for _ in 0..6 {
        let length = random.below(bytes.len());
        read_all(&bytes[..length]);
    }
}

#[test]
fn a_stripped_node_is_told_from_another_program() {
    let Some(path) = common::node_build("16.20.0") else {
        return;
    };
    let mut bytes = std::fs::read(path).unwrap();
    let sections_at = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let kinds = (sections_at..bytes.len())
        .step_by(64)
        .map(|section| section + 4);
    let symtab = kinds
        .into_iter()
        .find(|at| bytes[*at..*at + 4] == [2, 0, 0, 0])
        .unwrap();
    bytes[symtab] = 0;
    let error = resolve::resolve(Path::new("node"), &bytes, true).unwrap_err();
    assert!(
        matches!(error, crate::PlanError::Stripped { .. }),
        "{error}"
    );
}
