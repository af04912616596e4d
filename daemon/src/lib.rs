//! The recorder: runs a command, follows its whole process tree, and gives back a
//! [`Recording`](nodeprof_profile::recording::Recording) of it. The [`service`] records every Node
//! start on a host.
//!
//! ```no_run
//! use nodeprofd::recorder::{TraceOptions, trace};
//! let traced = trace(&TraceOptions::new(vec!["node".into(), "app.js".into()]))?;
//! println!("{} crossings", traced.recording.crossings.len());
//! # Ok::<(), nodeprofd::recorder::TraceError>(())
//! ```
//!
//! [`measure`] runs programs again and again, with probes and without, for their times and memory.
mod background;
pub mod control;
mod event;
pub mod file_limit;
pub mod log_files;
pub mod machine;
pub mod measure;
pub mod recorder;
pub mod service;
