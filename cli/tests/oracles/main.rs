//! The figures of a trace against things not written here: programs with a known number of calls, strace, bpftrace,
//! `performance.nodeTiming`, `require.cache`.
//!
//! Traces need root, so these tests are ignored unless asked for (`docs/development.md`).

#![allow(clippy::expect_used, reason = "a test that fails says where")]

#[path = "../support/mod.rs"]
mod support;

mod alpine;
mod bpftrace_program;
mod commands;
mod compilation;
mod crossings;
mod files;
mod isolates;
mod milestones;
mod modules;
mod processes;
mod samples;
mod serialization;
mod single_executables;
mod source_maps;
mod stacks;
mod unknown_nodes;
mod waits;
mod webassembly;

pub(crate) use support::on_each_node;
