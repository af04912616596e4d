//! Files that are no node binaries: each refusal says what was found, what is needed and what to do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use nodeprof_probes::{AttachPlan, PlanError, is_node_binary};

fn refusal(bytes: &[u8]) -> PlanError {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    assert!(!is_node_binary(file.path()));
    let error = AttachPlan::for_binary(file.path()).unwrap_err();
    let text = error.to_string();
    for part in ["found: ", "; needed: ", "; to do: "] {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.contains(&file.path().display().to_string()), "{text}");
    error
}

/// An ELF header, then nothing.
fn header(class: u8, order: u8, machine: u16) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..4].copy_from_slice(b"\x7fELF");
    (bytes[4], bytes[5], bytes[6]) = (class, order, 1);
    bytes[16] = 2;
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes[20] = 1;
    bytes[52] = 64;
    bytes
}

const X86_64: u16 = 62;
const AARCH64: u16 = 183;

#[test]
fn a_missing_file_is_named() {
    let error = AttachPlan::for_binary(Path::new("/no/such/node")).unwrap_err();
    assert!(matches!(error, PlanError::NotFound { .. }));
    assert!(error.to_string().contains("/no/such/node"));
}

#[test]
fn a_script_is_told_from_a_program() {
    let error = refusal(b"#!/bin/sh\nexec node \"$@\"\n");
    assert!(matches!(error, PlanError::NotElf { .. }));
    assert!(error.to_string().contains("#!/bin/sh"));
    assert!(matches!(
        refusal(b"MZ for windows"),
        PlanError::NotElf { .. }
    ));
    assert!(matches!(refusal(b""), PlanError::NotElf { .. }));
    let folder = AttachPlan::for_binary(Path::new("/")).unwrap_err();
    assert!(matches!(folder, PlanError::NotElf { .. }));
}

#[test]
fn another_processor_is_named() {
    let error = refusal(&header(2, 1, AARCH64));
    assert!(matches!(error, PlanError::WrongArchitecture { .. }));
    assert!(error.to_string().contains("arm64"));
    assert!(matches!(
        refusal(&header(1, 1, 3)),
        PlanError::WrongArchitecture { .. }
    ));
    assert!(matches!(
        refusal(&header(2, 2, X86_64)),
        PlanError::WrongArchitecture { .. }
    ));
}

#[test]
fn a_file_that_is_cut_off_is_damaged() {
    assert!(matches!(
        refusal(&header(2, 1, X86_64)[..30]),
        PlanError::Malformed { .. }
    ));
    assert!(matches!(
        refusal(&header(2, 1, X86_64)),
        PlanError::Malformed { .. }
    ));
}

#[test]
fn another_program_is_not_node() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(matches!(refusal(&program), PlanError::NotNode { .. }));
}
