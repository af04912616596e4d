//! Where the kernel has put the machine code of nodeprof's own programs.

use std::{ops::Range, os::fd::RawFd};

use libbpf_rs::libbpf_sys;

/// A function of one of the programs, in the kernel's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its addresses.
    pub range: Range<u64>,
    /// The program that it belongs to.
    pub program: &'static str,
}

/// The functions of a loaded program; none if the kernel does not tell addresses.
pub(crate) fn of_program(descriptor: RawFd, program: &'static str) -> Vec<Code> {
    let Some(counts) = info(descriptor, |_| {}) else {
        return Vec::new();
    };
    let mut starts = vec![0u64; counts.nr_jited_ksyms as usize];
    let mut lengths = vec![0u32; counts.nr_jited_func_lens as usize];
    let told = info(descriptor, |info| {
        info.nr_jited_ksyms = starts.len() as u32;
        info.jited_ksyms = starts.as_mut_ptr() as u64;
        info.nr_jited_func_lens = lengths.len() as u32;
        info.jited_func_lens = lengths.as_mut_ptr() as u64;
    });
    if told.is_none() {
        return Vec::new();
    }
    let functions = starts
        .iter()
        .zip(&lengths)
        .filter(|(start, _)| **start != 0);
    functions
        .map(|(&start, &length)| Code {
            range: start..start.saturating_add(u64::from(length)),
            program,
        })
        .collect()
}

fn info(
    descriptor: RawFd,
    ask: impl FnOnce(&mut libbpf_sys::bpf_prog_info),
) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    ask(&mut info);
    let mut size = size_of_val(&info) as u32;
    // SAFETY: a live struct of that size; the arrays in it have the lengths it states.
    let outcome =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(descriptor, &raw mut info, &raw mut size) };
    (outcome == 0).then_some(info)
}
