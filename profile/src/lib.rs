//! What was seen while a Node.js program started, and what follows from it.
//!
//! **Job.** Keep observations and derive figures from them. No kernel, no root, no node.
//!
//! **Input.** A [`Recording`]: what the recorder saw, or [`Recording::load`] of a file.
//!
//! **Output.** A file ([`Recording::save`]; SQLite, `docs/recording.md`), a [`Profile`] (the figures of
//! `nodeprof report`, `docs/json.md`), and the cells that flame graphs are drawn from ([`breakdown`]).
//!
//! ```
//! use nodeprof_profile::{Profile, Recording, SaveOptions, recording::Run};
//!
//! let recording = Recording {
//!     runs: vec![Run { command: vec![b"node".to_vec(), b"app.js".to_vec()], ..Run::default() }],
//!     ..Recording::default()
//! };
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("app.nodeprof");
//! recording.save(&path, SaveOptions { overwrite: false })?;
//! let profile = Profile::from_recording(&Recording::load(&path)?);
//! assert_eq!(profile.runs[0].command, ["node", "app.js"]);
//! println!("{}", serde_json::to_string_pretty(&profile)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | its job |
//! |---|---|
//! | [`recording`] | the observations, as the recorder hands them over |
//! | [`store`] | the file: written whole, refused by name if it is not what was written |
//! | [`breakdown`] | phases of each process; events counted by process and phase |
//! | [`profile`] | from observations to figures |
//! | [`report`] | the figures, in the shape of the JSON |
#![warn(missing_docs)]
pub mod breakdown;
mod fast;
mod probe_cost;
pub mod profile;
pub mod recording;
pub mod report;
pub mod store;
#[doc(hidden)]
pub mod synthetic;

pub use recording::Recording;
pub use report::{Profile, RunProfile};
pub use store::{Malformed, SaveOptions, StoreError};
