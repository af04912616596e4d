//! What can be probed in a given node binary.
//!
//! In: the path of a node binary. Out: an [`AttachPlan`], the probes of every family with their file offsets, registers and
//! meanings, or why one cannot be had. No kernel is asked and no privilege is needed; the crate reads one file.
//!
//! ```no_run
//! use std::path::Path;
//! use nodeprof_probes::{AttachPlan, Family};
//!
//! let (plan, outcome) = AttachPlan::load_or_build(Path::new("/usr/local/bin/node"), None)?;
//! let crossings = plan.probes.iter().filter(|p| p.family == Family::Crossings && p.is_attachable());
//! println!("{:?}: {} probes ({outcome:?})", plan.binary.node_version, crossings.count());
//! for probe in plan.probes.iter().filter(|p| !p.is_attachable()) {
//!     println!("{}: {}", probe.symbol, probe.reason.as_deref().unwrap_or_default());
//! }
//! # Ok::<(), nodeprof_probes::PlanError>(())
//! ```
//!
//! The wishes are in `catalogue/*.toml`, one file a family. What a binary makes of them is decided here, by its symbols and
//! by its code: call sites are found by disassembly ([field notes in `callsites`]), and a return probe is given only where
//! no tail jump can put V8's eyes on it (`safety`).
//!
//! [field notes in `callsites`]: https://github.com/nodeprof/nodeprof/blob/main/probes/src/callsites.rs

mod cache;
mod callsites;
mod catalogue;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
mod decode;
mod elf;
mod error;
#[cfg(test)]
mod lying;
mod names;
pub mod plan;
mod resolve;
mod safety;
mod versions;

use std::path::Path;

pub use cache::{CacheOutcome, default_cache_folder};
pub use error::PlanError;
pub use plan::*;

/// Whether the file is a node binary: an x86-64 ELF program that defines `node::Start`.
///
/// Takes some microseconds: the answer is in a hash table of the file.
pub fn is_node_binary(path: &Path) -> bool {
    /// Smaller files are not searched name by name: node has over 50 MB.
    const SMALLEST_NODE: usize = 20 << 20;
    let Ok(data) = elf::map(path) else {
        return false;
    };
    let Ok(outline) = elf::Outline::parse(path, &data) else {
        return false;
    };
    outline.exports(elf::NODE_START)
        || data.len() > SMALLEST_NODE && outline.symtab_has_node_start()
}

/// The GNU build-id of an ELF file; `None` if the linker wrote none.
///
/// # Errors
/// If the file cannot be read or is no x86-64 ELF file.
pub fn build_id(path: &Path) -> Result<Option<BuildId>, PlanError> {
    let data = elf::map(path)?;
    Ok(elf::Outline::parse(path, &data)?.build_id())
}
