//! Everything of nodeprof that touches the kernel: the BPF programs, loading and attaching them, reading
//! what they write, holding the start of child processes, and asking what this kernel can do.
//!
//! Input: an [`AttachPlan`](nodeprof_probes::plan::AttachPlan) and a process. Output: [`Record`]s.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use nodeprof_bpf::{Options, Programs};
//! let programs = Programs::load(&Options::default())?;
//! programs.attach_tree(true)?;
//! programs.reader(|bytes| println!("{:?}", nodeprof_bpf::Record::decode(bytes)))?.consume()?;
//! # Ok(()) }
//! ```

mod alone;
mod attach;
mod closing;
mod code;
mod copies;
mod expedite;
pub mod hold;
mod kernel_types;
mod leaving;
mod loader;
pub mod looking;
pub mod preflight;
mod process;
mod records;
mod ring;
mod samples;
mod selfprobe;
mod warm;

pub use attach::{AttachPoints, Link, attach};
pub use code::Code;
pub use expedite::restore_grace_periods;
pub use loader::{Counters, LoadError, Options, Owner, Programs, Sum, SumFamily, Taken, Unended};
pub use process::stat_field;
pub use records::{
    BaselinePart, BaselineRecord, Callee, CodeRecord, ContinuationEvent, DecodeError, ExitRecord,
    FrameCode, FunctionRecord, Header, InlinedRecord, MappingKind, MappingRecord, Origin, Piece,
    Record, ScriptRecord, TranslationsPart, WaitRecord, WasmEvent,
};
pub use ring::Reader;
pub use samples::SampleError;
pub use selfprobe::SelfProbe;
pub use warm::{Warmth, empty_program};

/// Constants of `programs/records.h`.
#[allow(missing_docs, dead_code)]
pub(crate) mod wire {
    include!(concat!(env!("OUT_DIR"), "/constants.rs"));
    /// A callback is an index into the plan's callbacks, not an address.
    pub const CALLBACK_BY_INDEX: u64 = 1 << 63;
}

#[allow(
    missing_docs,
    dead_code,
    unused_imports,
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::undocumented_unsafe_blocks,
    non_camel_case_types
)]
mod skeleton {
    pub mod maps {
        include!(concat!(env!("OUT_DIR"), "/maps.skel.rs"));
    }
    pub mod probes {
        include!(concat!(env!("OUT_DIR"), "/probes.skel.rs"));
    }
    pub mod samples {
        include!(concat!(env!("OUT_DIR"), "/samples.skel.rs"));
    }
    pub mod tree {
        include!(concat!(env!("OUT_DIR"), "/tree.skel.rs"));
    }
    pub use maps::types;
}
