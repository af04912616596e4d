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

pub mod bpftrace;
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
mod mapping;
mod names;
mod onward;
pub mod plan;
mod resolve;
mod safety;
mod v8;
mod versions;

use std::path::Path;

pub use cache::{CacheOutcome, default_cache_folder};
pub use error::PlanError;
pub use names::demangle_with;
pub use plan::*;
pub use v8::{CodeLayout, HAS_STACK_SLOTS, OwnNames, TRANSLATIONS, V8Layout};

/// Whether the file is a node binary: an x86-64 ELF program that defines `node::Start`.
///
/// Takes some microseconds: the answer is in a hash table of the file. Where it is not, some milliseconds, and 0.2 s for a file that was made to
/// take long.
pub fn is_node_binary(path: &Path) -> bool {
    recognised(path, usize::MAX).unwrap_or(false)
}

/// As [`is_node_binary`], if that takes no longer than some microseconds; else `None`.
pub fn is_node_binary_at_a_glance(path: &Path) -> Option<bool> {
    /// Bytes of names, which are searched in less than 0.1 ms.
    const MOST_NAMES: usize = 512 << 10;
    recognised(path, MOST_NAMES)
}

/// `None`: to tell, more than so many bytes of names would have to be searched.
fn recognised(path: &Path, most_names: usize) -> Option<bool> {
    /// Smaller files are not searched name by name: node has over 50 MB.
    const SMALLEST_NODE: usize = 20 << 20;
    let Ok(data) = elf::map(path) else {
        return Some(false);
    };
    let Ok(outline) = elf::Outline::parse(path, &data) else {
        return Some(false);
    };
    if outline.exports(elf::NODE_START) {
        return Some(true);
    }
    if data.len() <= SMALLEST_NODE {
        return Some(false);
    }
    outline.names_have_node_start(most_names)
}

/// The GNU build-id of an ELF file; `None` if the linker wrote none.
///
/// # Errors
/// If the file cannot be read or is no x86-64 ELF file.
pub fn build_id(path: &Path) -> Result<Option<BuildId>, PlanError> {
    let data = elf::map(path)?;
    Ok(elf::Outline::parse(path, &data)?.build_id())
}

/// A binary's contents by link-time address: what is mapped from the file when it runs.
pub struct BinaryFile {
    data: mapping::Mapping,
    path: std::path::PathBuf,
}

impl BinaryFile {
    /// Maps the file.
    ///
    /// # Errors
    /// If it cannot be read or is no x86-64 ELF file.
    pub fn open(path: &Path) -> Result<BinaryFile, PlanError> {
        let data = elf::map(path)?;
        elf::Outline::parse(path, &data)?;
        Ok(BinaryFile {
            data,
            path: path.to_owned(),
        })
    }

    /// As [`build_id`], of what was mapped.
    pub fn build_id(&self) -> Option<BuildId> {
        let outline = elf::Outline::parse(&self.path, &self.data).ok()?;
        outline.build_id()
    }

    /// `length` bytes from `address` on; `None` if the file does not hold all of them.
    pub fn bytes(&self, address: u64, length: u64) -> Option<&[u8]> {
        let outline = elf::Outline::parse(&self.path, &self.data).ok()?;
        outline.bytes_at(address, length)
    }

    /// Source of one of Node's own modules (`node:internal/…`), as an array of the binary. Where the snapshot keeps sources
    /// in V8's heap (Node 18), this is where to read them.
    pub fn builtin_source(&self, script: &[u8]) -> Option<&[u8]> {
        let id = std::str::from_utf8(script.strip_prefix(b"node:")?).ok()?;
        let name = format!("{}_raw", id.replace(['/', '-', '.'], "_"));
        let outline = elf::Outline::parse(&self.path, &self.data).ok()?;
        // The first from 18 on and again in 16, the second in 17.
        let (address, size) = ["8builtins", "13native_module"].iter().find_map(|of| {
            outline.object(format!("_ZN4node{of}L{}{name}E", name.len()).as_bytes())
        })?;
        outline.bytes_at(address, size)
    }
}
