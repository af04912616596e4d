//! Views of a profile: what a person looks at.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`mod@text`] | a [`Profile`](nodeprof_profile::Profile) | the report for a terminal |
//! | [`mod@fold`] | a [`Recording`](nodeprof_profile::Recording) | folded stacks: phases, processes, bindings, callbacks, directories |
//! | [`mod@svg`] | folded stacks | an interactive flame graph |
//!
//! Everything here is a pure function: no kernel, no terminal, no environment variables. The caller says how wide the
//! terminal is and whether it shows colours.
//!
//! ```
//! use nodeprof_flamegraphs::{fold, svg, text};
//! use nodeprof_profile::{Profile, Recording, recording::{Run, RunId}};
//!
//! let recording = Recording { runs: vec![Run { command: vec![b"node".to_vec()], ..Run::default() }], ..Recording::default() };
//! let report = text::render(&Profile::from_recording(&recording), &text::Style { width: 100, color: false });
//! assert!(report.starts_with("node"));
//! // This recording holds no crossings: the error says so, and what to do.
//! let error = fold::fold(&recording, RunId(0), fold::Metric::Crossings).unwrap_err();
//! assert!(error.to_string().contains("no crossings"));
//! # fn picture(folded: &fold::Folded) -> Result<(), svg::SvgError> {
//! svg::write(folded, &svg::SvgOptions::default(), std::io::stdout())
//! # }
//! ```
#![warn(missing_docs)]
pub mod fold;
mod hash;
mod paths;
pub mod svg;
mod table;
pub mod text;
mod units;

pub use fold::{FoldError, Folded, Metric, fold};
pub use svg::{SvgError, SvgOptions};
pub use text::{Style, render};
