//! Stacks in the formats of other programs, one file for each.
//!
//! | module | opened by | keeps |
//! |---|---|---|
//! | [`speedscope`] | speedscope | order, values |
//! | [`pprof`] | `go tool pprof`, Pyroscope, Polar Signals … | values, lines |
//! | [`firefox`] | the Firefox Profiler | instants, values, lines, phases |
//! | [`cpuprofile`] | Chrome DevTools, VS Code | instants, lines; one thread, times only |
//! | [`chrome`] | Perfetto, `chrome://tracing` | instants and durations of every event; no metric of its own |

pub mod chrome;
pub mod cpuprofile;
pub mod firefox;
pub mod pprof;
pub mod speedscope;
mod timeline;

use std::io;

use crate::fold::{FoldError, Metric};

/// Why stacks were not written in a format.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The format holds times only.
    #[error(
        "found: --of {metric} with --format {format}, which holds times; needed: a metric that is a time (cpu, wall, off-cpu, crossing-time, serialization, file-time, compile) or another format"
    )]
    NotATime {
        /// Asked for.
        metric: Metric,
        /// Asked for.
        format: &'static str,
    },
    /// The format wants to know when things were.
    #[error(
        "found: --by phase with --format {format}, which tells when each thing was; needed: a recording with stacks and --by stack, or another format (svg, folded, speedscope, pprof)"
    )]
    NoInstants {
        /// Asked for.
        format: &'static str,
    },
    /// All that there is was only summed.
    #[error(
        "found: calls that were only counted; needed: single calls for --format {format}; type: nodeprof trace --mode full -- COMMAND"
    )]
    OnlySums {
        /// Asked for.
        format: &'static str,
    },
    /// There is nothing to write.
    #[error(transparent)]
    Nothing(#[from] FoldError),
    /// The file could not be written.
    #[error("the file could not be written")]
    Write(#[from] io::Error),
    /// The file could not be written.
    #[error("the file could not be written")]
    Json(#[from] serde_json::Error),
}

/// Who wrote a file, for formats that say so.
pub(crate) const EXPORTER: &str = concat!("nodeprof ", env!("CARGO_PKG_VERSION"));
