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
        outline.names_have_node_start(usize::MAX);
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

/// A section of a file that lies: kind, offset, size, linked section, size of an entry.
type Lie = (u32, u64, u64, u32, u64);

const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const DYNSYM: u32 = 11;
/// More than so many bytes are searched for the name of node's own function.
const LARGE: u64 = 21 << 20;

/// Writes a file of so many bytes that is the small node with these sections alone, behind the one that is none. What is not written has no
/// blocks on the disk.
fn with_sections(length: u64, sections: &[Lie]) -> tempfile::NamedTempFile {
    let mut bytes = small_node();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let at = bytes.len() as u64;
    bytes[40..48].copy_from_slice(&at.to_le_bytes());
    // So many that the first section tells how many.
    bytes[60..62].fill(0);
    let mut section = |(kind, at, size, link, entry): Lie| {
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend([0; 16]);
        bytes.extend(at.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(link.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(8u64.to_le_bytes());
        bytes.extend(entry.to_le_bytes());
    };
    section((0, 0, sections.len() as u64 + 1, 0, 0));
    sections.iter().for_each(|lie| section(*lie));
    bytes[62..64].copy_from_slice(&1u16.to_le_bytes());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file.as_file().set_len(length).unwrap();
    file
}

/// Where the symbols of the small node and their names are.
fn tables() -> (Lie, Lie) {
    let bytes = small_node();
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let headers = u64_at(40) as usize;
    let lie = |kind, index: usize, link, entry| {
        let header = headers + index * 64;
        (kind, u64_at(header + 24), u64_at(header + 32), link, entry)
    };
    (lie(SYMTAB, 1, 2, 24), lie(STRTAB, 2, 0, 0))
}

#[test]
fn only_names_of_symbols_tell_that_a_file_is_node() {
    let (symbols, names) = tables();
    let is_node = |sections: &[Lie]| {
        let file = with_sections(LARGE, sections);
        crate::is_node_binary(file.path())
    };
    assert!(is_node(&[symbols, names]));
    let dynamic = (DYNSYM, symbols.1, symbols.2, symbols.3, symbols.4);
    assert!(is_node(&[dynamic, names]));
    // Names that no symbols have.
    assert!(!is_node(&[names, names]));
    let others = (SYMTAB, symbols.1, symbols.2, 3, 24);
    assert!(!is_node(&[others, names, (STRTAB, 0, 64, 0, 0)]));
    let of_another_kind = (1, names.1, names.2, 0, 0);
    assert!(!is_node(&[symbols, of_another_kind]));
}

#[test]
fn what_takes_long_to_tell_is_not_told_at_a_glance() {
    let (symbols, names) = tables();
    let at_a_glance = |length: u64, bytes_of_names: u64| {
        let names = (STRTAB, names.1, bytes_of_names, 0, 0);
        let file = with_sections(length, &[symbols, names]);
        crate::is_node_binary_at_a_glance(file.path())
    };
    assert_eq!(at_a_glance(LARGE, names.2), Some(true));
    assert_eq!(at_a_glance(LARGE, 1 << 20), None);
    assert_eq!(at_a_glance(1 << 20, 512 << 10), Some(false));
    for version in common::VERSIONS {
        if let Some(path) = common::node_build(version) {
            assert_eq!(crate::is_node_binary_at_a_glance(&path), Some(true));
        }
    }
    let other = std::env::current_exe().unwrap();
    assert_eq!(crate::is_node_binary_at_a_glance(&other), Some(false));
}

/// Anybody can execute such a file; it is looked at ahead of all ordinary programs.
#[test]
fn a_file_that_would_be_searched_for_hours_is_no_node() {
    let (symbols, names) = tables();
    let mut sections = vec![symbols, names];
    sections.resize(20, (STRTAB, 0, LARGE, 0, 0));
    let is_node = |length, sections: &[Lie]| {
        let file = with_sections(length, sections);
        let started = std::time::Instant::now();
        let is_node = crate::is_node_binary(file.path());
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
        is_node
    };
    assert!(is_node(LARGE, &sections), "no table but the symbols' own");
    sections.resize(60_000, (STRTAB, 0, LARGE, 0, 0));
    assert!(!is_node(LARGE, &sections), "more sections than any");
    let to_the_end = |length: u64| {
        let names = (STRTAB, names.1, length - names.1, 0, 0);
        is_node(length, &[symbols, names])
    };
    assert!(to_the_end(200 << 20));
    assert!(!to_the_end(300 << 20), "longer names than any");
}

/// A plan of the small node with these symbols and names instead of its own.
fn plan_with(symbols: &[u8], names: &[u8]) -> Result<AttachPlan, crate::PlanError> {
    plan_of(small_node(), symbols, names)
}

fn plan_of(
    mut bytes: Vec<u8>,
    symbols: &[u8],
    names: &[u8],
) -> Result<AttachPlan, crate::PlanError> {
    let (symbols_at, names_at) = (bytes.len(), bytes.len() + symbols.len());
    bytes.extend(symbols);
    bytes.extend(names);
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    for (index, at, size) in [(1, symbols_at, symbols.len()), (2, names_at, names.len())] {
        let place = headers + index * 64 + 24;
        bytes[place..place + 8].copy_from_slice(&(at as u64).to_le_bytes());
        bytes[place + 8..place + 16].copy_from_slice(&(size as u64).to_le_bytes());
    }
    resolve::resolve(Path::new("node"), &bytes, true)
}

/// Symbols and names of the small node.
fn own_tables() -> (Vec<u8>, Vec<u8>) {
    let bytes = small_node();
    let (symbols, names) = tables();
    let of = |lie: Lie| bytes[lie.1 as usize..(lie.1 + lie.2) as usize].to_vec();
    (of(symbols), of(names))
}

#[test]
fn a_file_whose_symbols_would_take_all_memory_has_no_plan() {
    let refusal = |symbols: &[u8], names: &[u8]| {
        let error = plan_with(symbols, names).unwrap_err();
        assert!(
            matches!(error, crate::PlanError::Malformed { .. }),
            "{error}"
        );
        error.to_string()
    };
    let (own, names) = own_tables();
    assert!(plan_with(&own, &names).is_ok());
    // Symbols of nothing.
    let mut symbols = own.clone();
    symbols.resize(24 * 3_000_000, 0);
    let error = refusal(&symbols, &names);
    assert!(error.contains("3000000 symbols"), "{error}");
    // Functions that share a long name.
    let mut symbols = own.clone();
    let mut shared = names.clone();
    shared.resize(shared.len() + 6_000, b'a');
    shared.push(0);
    let first = own[24..48].to_vec();
    for index in 0..100_000_u32 {
        symbols.extend((names.len() as u32 + index % 1000).to_le_bytes());
        symbols.extend(&first[4..]);
    }
    let error = refusal(&symbols, &shared);
    assert!(error.contains("longer names"), "{error}");
}

/// What `strip -x` leaves: no builtins, which are local.
#[test]
fn a_node_without_local_symbols_is_stripped() {
    let (mut symbols, names) = own_tables();
    symbols.drain(48..72);
    let error = plan_with(&symbols, &names).unwrap_err();
    assert!(
        matches!(error, crate::PlanError::Stripped { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("without local symbols"),
        "{error}"
    );
}

#[test]
fn functions_whose_names_would_take_all_memory_have_no_plan() {
    let (mut symbols, mut names) = own_tables();
    let function = "a".repeat(8_000);
    let name = format!("_ZN4node8000{function}ERKN2v820FunctionCallbackInfoINS1_5ValueEEE");
    let first = symbols[24..48].to_vec();
    let at = names.len() as u32;
    names.extend(name.bytes());
    names.push(0);
    for _ in 0..6_000 {
        symbols.extend(at.to_le_bytes());
        symbols.extend(&first[4..]);
    }
    let error = plan_with(&symbols, &names).unwrap_err();
    assert!(
        matches!(error, crate::PlanError::Malformed { .. }),
        "{error}"
    );
}

#[test]
fn functions_whose_names_would_take_long_to_read_have_no_plan() {
    let refusal = |count: usize| {
        let (mut symbols, mut names) = own_tables();
        // Ambiguous, and too deep: the parser gives up at once.
        let name = format!("_Z1Av{}7FastApi{}", "SaI".repeat(11), "iP".repeat(200));
        let first = symbols[24..48].to_vec();
        let at = names.len() as u32;
        names.extend(name.bytes());
        names.push(0);
        for _ in 0..count {
            symbols.extend(at.to_le_bytes());
            symbols.extend(&first[4..]);
        }
        plan_with(&symbols, &names).err().map(|e| e.to_string())
    };
    assert_eq!(refusal(10), None);
    let error = refusal(1_000).unwrap();
    assert!(error.contains("take longer to read"), "{error}");
}

#[test]
fn code_that_many_functions_claim_is_not_looked_at_again_and_again() {
    let moved = |count: u64| {
        let (mut symbols, mut names) = own_tables();
        let mut bytes = small_node();
        let code = BASE + bytes.len() as u64;
        // cwde; nop: the second is the cheaper place for a probe.
        bytes.extend([0x98, 0x90].repeat((1 << 19) + 100));
        let length = (bytes.len() - PAGE) as u64;
        for size in [64 + 32, 64 + 40] {
            bytes[size..size + 8].copy_from_slice(&length.to_le_bytes());
        }
        let name = names.len() as u32;
        names.extend(b"_ZN4node2fs4ReadERKN2v820FunctionCallbackInfoINS1_5ValueEEE\0");
        for index in 0..count {
            symbols.extend(name.to_le_bytes());
            symbols.extend([0x12, 0, 1, 0]);
            symbols.extend((code + 2 * index).to_le_bytes());
            symbols.extend((1u64 << 20).to_le_bytes());
        }
        let plan = plan_of(bytes, &symbols, &names).unwrap();
        let probes = plan.probes.iter();
        probes
            .filter(|p| p.symbol.contains("fs::Read") && p.state == crate::ProbeState::Resolved)
            .count()
    };
    assert_eq!(moved(10), 10);
    // 64 MB in all: 40 for the jumps of callbacks, the rest for their probes.
    assert_eq!(moved(40), 23);
}

#[test]
fn headers_and_notes_that_go_on_for_ever_are_not_read() {
    let honest = small_node();
    let build_id = |bytes: &[u8]| read_all(bytes).unwrap().binary.build_id;
    assert!(build_id(&honest).is_some());
    let note = 64 + 56;
    let u64_at = |at: usize| u64::from_le_bytes(honest[at..at + 8].try_into().unwrap());
    let start = u64_at(note + 8) as usize;
    // The note's segment, 1 MB of the file.
    let mut bytes = honest.clone();
    bytes.resize(2 << 20, 0);
    bytes[note + 32..note + 40].copy_from_slice(&(1u64 << 20).to_le_bytes());
    assert_eq!(build_id(&bytes), None);
    // And a build-id of 1,000 bytes, behind all.
    let mut bytes = honest.clone();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let at = bytes.len() as u64;
    bytes.extend_from_within(start..start + 16);
    bytes[at as usize + 4..at as usize + 8].copy_from_slice(&1_000u32.to_le_bytes());
    bytes.extend([7; 1_000]);
    bytes[note + 8..note + 16].copy_from_slice(&at.to_le_bytes());
    bytes[note + 32..note + 40].copy_from_slice(&1_016u64.to_le_bytes());
    assert_eq!(build_id(&bytes), None);
    // All of the file again and again.
    let mut bytes = honest.clone();
    bytes.resize(4 << 20, 0);
    bytes[56..58].copy_from_slice(&200u16.to_le_bytes());
    for program in bytes[64..][..56 * 200].chunks_exact_mut(56) {
        program[..8].copy_from_slice(&[1, 0, 0, 0, 4, 0, 0, 0]);
        program[8..32].fill(0);
        program[32..40].copy_from_slice(&(4u64 << 20).to_le_bytes());
    }
    let outline = elf::Outline::parse(Path::new("node"), &bytes).unwrap();
    let searched: usize = outline.read_only_data().map(<[u8]>::len).sum();
    assert_eq!(searched, 512 << 20);
    // More program headers than any program has.
    let mut bytes = honest.clone();
    bytes[56..58].copy_from_slice(&2_000u16.to_le_bytes());
    bytes.resize(64 + 56 * 2_000, 0);
    let error = resolve::resolve(Path::new("node"), &bytes, true).unwrap_err();
    assert!(
        error.to_string().contains("2000 program headers"),
        "{error}"
    );
}

#[test]
fn nothing_of_a_binary_is_a_command_to_a_terminal() {
    let (mut symbols, mut names) = own_tables();
    let first = symbols[24..48].to_vec();
    let evil = [
        "_ZN4node2fs6\x1b[2Jh1ERKN2v820FunctionCallbackInfoINS1_5ValueEEE".as_bytes(),
        "_ZN4node2fs4\u{9b}2JERKN2v820FunctionCallbackInfoINS1_5ValueEEE".as_bytes(),
        b"Builtins_CallApiCallback\x1b[2J",
    ];
    for name in evil {
        symbols.extend((names.len() as u32).to_le_bytes());
        symbols.extend(&first[4..]);
        names.extend(name);
        names.push(0);
    }
    let plan = plan_with(&symbols, &names).unwrap();
    let all = serde_json::to_string(&plan).unwrap();
    let is_command = |text: &str| text.contains("\\u00") || text.contains(char::is_control);
    assert!(!is_command(&all), "{all}");
    // Nor of a file that is none.
    let script = b"#!/bin/sh \x1b[2J\x07\n";
    let error = resolve::resolve(Path::new("node"), script, true).unwrap_err();
    assert!(!error.to_string().contains(char::is_control), "{error:?}");
}
