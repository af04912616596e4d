//! Views of a profile: what a person looks at.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`mod@text`] | a [`Profile`](nodeprof_profile::Profile) | the report for a terminal |
//! | [`mod@select`] | a [`Recording`](nodeprof_profile::Recording) | which threads and which span of time to show |
//! | [`mod@stacks`] | a recording | weighted stacks of one metric, thread by thread |
//! | [`mod@fold`] | weighted stacks, or a recording without | folded stacks: one tree of functions, modules, packages, or phases and callbacks |
//! | [`mod@differential`] | two groups of runs | their stacks in one tree, with the change of each frame |
//! | [`mod@svg`] | folded stacks | an interactive flame graph |
//! | [`mod@measurements`] | a recording of repeated runs | what hyperfine and Node's benchmark comparison write |
//! | [`mod@tables`] | a recording and its profile | each view's data as CSV and JSON |
//! | [`mod@web`] | a recording and its profile, or two groups of runs | a page for the browser: one file, all views |
//! | [`mod@export`] | weighted stacks | the formats of other programs |
//!
//! Everything here is a pure function: no kernel, no terminal, no environment variables. The caller says how wide the
//! terminal is and whether it shows colours.
//!
//! ```
//! use nodeprof_flamegraphs::{fold, svg, text};
//! use nodeprof_profile::{Profile, Recording, recording::Run};
//!
//! let recording = Recording { runs: vec![Run { command: vec![b"node".to_vec()], ..Run::default() }], ..Recording::default() };
//! let report = text::render(&Profile::from_recording(&recording), &text::Style { width: 100, color: false });
//! assert!(report.starts_with("node"));
//! // This recording holds no crossings: the error says so, and what to do.
//! let error = fold::fold(&recording, &fold::Request::new(fold::Metric::Crossings)).unwrap_err();
//! assert!(error.to_string().contains("no crossings"));
//! # fn picture(folded: &fold::Folded) -> Result<(), svg::SvgError> {
//! svg::write(folded, &svg::SvgOptions::default(), std::io::stdout())
//! # }
//! ```
#![warn(missing_docs)]
pub mod differential;
mod drawn;
pub mod export;
pub mod fold;
mod hash;
pub mod measurements;
mod paths;
pub mod select;
pub mod stacks;
pub mod svg;
mod table;
pub mod tables;
pub mod text;
mod units;
pub mod web;

pub use fold::{FoldError, Folded, Metric, fold};
pub use nodeprof_profile::wording::printable;
pub use svg::{SvgError, SvgOptions};
pub use text::{Style, render};
