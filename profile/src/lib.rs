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
//! use nodeprof_profile::{Profile, Recording, SaveOptions, recording::Run, report::Document};
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
//! println!("{}", serde_json::to_string_pretty(&Document::from(&profile))?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | its job |
//! |---|---|
//! | [`recording`] | the observations, as the recorder hands them over |
//! | [`store`] | the file: written whole, refused by name if it is not what was written |
//! | [`breakdown`] | phases of each process; events counted by process and phase |
//! | [`modules`] | which modules were loaded, by whom, and what each cost |
//! | [`profile`] | from observations to figures |
//! | [`budget`] | what figures may be at most, and whether they are |
//! | [`diff`] | two groups of runs side by side: what changed, how sure that is, and why |
//! | [`groups`] | which runs belong together, by their labels |
//! | [`measured`] | times and memory of the runs of a group, and pairs of them |
//! | [`statistics`] | repeated runs: how sure is a difference |
//! | [`sequential`] | pairs of runs: when to stop measuring, and what they then say |
//! | [`import`] | recordings made of what other tools saw: `perf script` |
//! | [`redact`] | secrets that must not be kept |
//! | [`trend`] | a figure from commit to commit, and where it changed |
//! | [`typed`] | times as people type them |
//! | [`report`] | the figures, in the shape of the JSON |
#![warn(missing_docs)]
mod append;
pub mod breakdown;
pub mod budget;
pub mod diff;
mod fast;
pub mod groups;
pub mod import;
mod main_script;
pub mod measured;
pub mod modules;
mod probe_cost;
pub mod profile;
pub mod random;
pub mod recording;
pub mod redact;
mod relocate;
pub mod report;
pub mod sequential;
mod signed_ranks;
pub mod statistics;
pub mod store;
#[doc(hidden)]
#[cfg(feature = "synthetic")]
pub mod synthetic;
mod thin;
pub mod trend;
pub mod typed;
pub mod v8;
pub mod wording;

pub use main_script::{absolute, script};
pub use recording::Recording;
pub use report::{Profile, RunProfile};
pub use store::{Malformed, SaveOptions, StoreError};
