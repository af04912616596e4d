//! A recording of what `perf script` prints.
//!
//! ```sh
//! perf record -F 997 -g -- node --perf-basic-prof app.js
//! perf script -F +pid | nodeprof import -
//! ```
//!
//! What becomes of it: processes and threads; each sample with its stack, the event's period as weight. What code a frame
//! is, its object tells: the kernel, an add-on, a library, node. Frames in a perf map are V8's (`--perf-basic-prof`,
//! `--interpreted-frames-native-stack`): their names hold function, script, position and tier.
//!
//! perf knows nothing of crossings, lookups and the like: those families are `off`. What the text leaves out (process ids,
//! instants, periods) is said in the reason of the family that suffers.

mod builder;
pub mod jit;
pub mod line;

use std::io::{self, BufRead, Read as _};

use super::shown;
use crate::Recording;
use crate::store::APPLICATION_ID;
use builder::Builder;
use line::{Line, Unclear};

/// Longer lines than this are no text of perf's: the longest names of node's C++ have 2,300 bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// What to type to have all that an import can use.
const COMMAND: &str = "perf script -F comm,pid,tid,time,period,event,ip,sym,dso";

/// How to import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The event whose samples to take, with or without its modifiers (`cpu-clock`, `cycles:u`). `None`: a clock if there is one,
    /// else cycles, else the event with the most samples.
    pub event: Option<String>,
}

/// Why a text could not be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The input cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// perf's own format.
    #[error(
        "is perf's data, not text; needed: what `perf script` prints of it; type: {COMMAND} -i FILE | nodeprof import -"
    )]
    PerfData,
    /// A recording.
    #[error(
        "is a recording already; needed: what `perf script` prints; type: nodeprof report FILE"
    )]
    Recording,
    /// A database, but no recording.
    #[error(
        "is an SQLite database of another program, not text; needed: what `perf script` prints; type: {COMMAND} | nodeprof import -"
    )]
    Database,
    /// A compressed text.
    #[error("is compressed; needed: the text itself; type: gzip -dc FILE | nodeprof import -")]
    Compressed,
    /// A line that perf does not print.
    #[error("line {number}: found \"{found}\"; needed: {needed}; type: {COMMAND}")]
    Line {
        /// From 1.
        number: u64,
        /// Its beginning.
        found: String,
        /// What should stand there.
        needed: &'static str,
    },
    /// A line of a megabyte or more.
    #[error(
        "line {number}: is longer than {LONGEST_LINE} bytes; needed: what `perf script` prints; type: {COMMAND}"
    )]
    TooLong {
        /// From 1.
        number: u64,
    },
    /// More names, stacks or samples than a recording can number.
    #[error(
        "line {number}: more than 4,294,967,295 {what}; needed: a shorter recording; type: perf script --time START,END"
    )]
    TooMany {
        /// From 1.
        number: u64,
        /// Of what.
        what: &'static str,
    },
    /// No sample at all.
    #[error(
        "holds no sample; needed: what `perf script` prints of a recording with samples; type: perf record -F 997 -g -- node app.js"
    )]
    Empty,
    /// Times between lines instead of instants.
    #[error(
        "holds times between samples, not instants; needed: `perf script` without --deltatime; type: {COMMAND}"
    )]
    Differences,
    /// None of the event asked for.
    #[error("holds no sample of {asked}; needed: one of its events; type: --event {}", .found.join(" or --event "))]
    NoSuchEvent {
        /// By the options.
        asked: String,
        /// Events that the text has samples of.
        found: Vec<String>,
    },
}

/// Whether an SQLite database, of which this is read already, is a recording, by its `application_id`.
fn is_recording(begun: &[u8], rest: impl BufRead) -> io::Result<bool> {
    const AT: usize = 68;
    let mut header = begun.to_vec();
    rest.take((AT + 4) as u64).read_to_end(&mut header)?;
    Ok(header.get(AT..AT + 4) == Some(&APPLICATION_ID.to_be_bytes()))
}

/// Reads what `perf script` printed.
///
/// A text that ends within a line was cut off: its last sample is left out and counted as a loss.
///
/// # Errors
/// [`ImportError`]; for a line that is none of perf's with its number.
pub fn read(mut input: impl BufRead, options: &Options) -> Result<Recording, ImportError> {
    let mut builder = Builder::default();
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        number += 1;
        let length = (&mut input)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        if number == 1 && (line.starts_with(b"PERFILE2") || line.starts_with(b"2ELIFREP")) {
            return Err(ImportError::PerfData);
        }
        if number == 1 && line.starts_with(b"SQLite format 3\0") {
            return Err(match is_recording(&line, input)? {
                true => ImportError::Recording,
                false => ImportError::Database,
            });
        }
        if number == 1 && line.starts_with(b"\x1f\x8b") {
            return Err(ImportError::Compressed);
        }
        if line.last() != Some(&b'\n') {
            if length as u64 == LONGEST_LINE {
                return Err(ImportError::TooLong { number });
            }
            // perf ends every line: this one is cut, wherever it seems whole.
            builder.cut();
            break;
        }
        while let Some(b'\n' | b'\r') = line.last() {
            line.pop();
        }
        take(&mut builder, &line).map_err(|problem| match problem {
            Problem::Needed(needed) => ImportError::Line {
                number,
                found: shown(&line),
                needed,
            },
            Problem::TooMany(what) => ImportError::TooMany { number, what },
        })?;
    }
    let too_many = |what| ImportError::TooMany { number, what };
    builder.end_of_sample().map_err(too_many)?;
    builder.finish(options)
}

/// What is wrong with a line.
enum Problem {
    Needed(&'static str),
    TooMany(&'static str),
}

fn take(builder: &mut Builder, line: &[u8]) -> Result<(), Problem> {
    let understood = line::parse(line).map_err(|unclear| {
        Problem::Needed(match unclear {
            Unclear::Event => {
                "behind the time the period, a whole number, and the event, as `15441.787023: 1001001 cpu-clock:`"
            }
            Unclear::Line if builder.in_sample() => {
                "a frame, as `ffffffff81000c82 asm_exc_page_fault+0x22 ([kernel.kallsyms])`, or a blank line"
            }
            Unclear::Line => "a sample, as `node 28277/28284 15441.787023: 1001001 cpu-clock:`",
        })
    })?;
    match understood {
        Line::Comment(text) => {
            builder.header(text);
            Ok(())
        }
        Line::Blank => builder.end_of_sample().map_err(Problem::TooMany),
        Line::Event(event) => {
            builder.end_of_sample().map_err(Problem::TooMany)?;
            builder.event(&event).map_err(Problem::TooMany)
        }
        Line::Frame(frame) if builder.in_sample() => {
            builder.frame(&frame).map_err(Problem::TooMany)
        }
        Line::Source if builder.in_sample() => Ok(()),
        Line::Frame(_) | Line::Source => Err(Problem::Needed("a sample before its frames")),
    }
}
