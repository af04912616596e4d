//! The command line.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use nodeprof_flamegraphs::fold::Metric;
use nodeprofd::recorder::{FAMILIES, Until};

/// Tells exactly where the startup of a Node.js program goes, with eBPF, on the unmodified node binary.
#[derive(Parser)]
#[command(
    name = "nodeprof",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Run a program and record its startup, with all its processes and threads
    Trace(Trace),
    /// Print the report of a recording
    Report(Report),
    /// Draw a flame graph of a recording
    Flame(Flame),
    /// List what can be probed in a node binary
    Probes(Probes),
    /// Check whether this machine can trace, and say what to type where it cannot
    Doctor(Doctor),
}

/// Text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// For programs; documented in docs/json.md
    Json,
}

/// `nodeprof trace`.
#[derive(Args)]
#[command(after_long_help = "\
The report goes to standard error as text, or to standard output as JSON; standard input and output are the
program's own. The exit status is the program's own, 128+N if signal N killed it; 125 if nodeprof itself failed,
126 if the program cannot be executed, 127 if it was not found.

Under sudo the program runs as the user who typed it.")]
pub struct Trace {
    /// Recording to write [default: NAME-DATE-TIME.nodeprof in this folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,
    /// Stop tracing at: exit, loop-start, idle (200 ms without an event after the loop started), or after a time such as 1.5s or 800ms; the program goes on
    #[arg(long, value_name = "WHEN", default_value = "exit", value_parser = until)]
    pub until: Until,
    /// full: every call with its time; count: exact counts with the least cost
    #[arg(long, default_value = "full")]
    pub mode: TraceMode,
    /// Families to record, separated by commas [default: all; in count mode all but serialization]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(FAMILIES))]
    pub families: Vec<String>,
    /// Also count the entries of every binding callback (about 1,000 more probes) and compare
    #[arg(long)]
    pub verify: bool,
    /// A node binary that child processes may execute (those on PATH are known)
    #[arg(long = "node", value_name = "PATH")]
    pub nodes: Vec<PathBuf>,
    /// Format of the report
    #[arg(long, default_value = "text")]
    pub format: Format,
    /// Do not print the report
    #[arg(short, long)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub program: Vec<OsString>,
}

/// How much to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceMode {
    /// Every call with its time
    Full,
    /// Counts
    Count,
}

/// `nodeprof report`.
#[derive(Args)]
pub struct Report {
    /// A recording
    pub file: PathBuf,
    /// Format of the report
    #[arg(long, default_value = "text")]
    pub format: Format,
}

/// `nodeprof flame`.
#[derive(Args)]
pub struct Flame {
    /// A recording
    pub file: PathBuf,
    /// What the width of a frame is
    #[arg(long, value_name = "METRIC", value_parser = clap::builder::PossibleValuesParser::new(Metric::NAMES))]
    pub of: String,
    /// svg: interactive, for a browser; folded: one line a stack, for other tools
    #[arg(long, default_value = "svg")]
    pub format: FlameFormat,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,
}

/// Formats of a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlameFormat {
    /// Interactive picture
    Svg,
    /// Folded stacks
    Folded,
}

/// `nodeprof probes`.
#[derive(Args)]
pub struct Probes {
    /// The node binary [default: node of PATH]
    #[arg(long, value_name = "PATH")]
    pub node: Option<PathBuf>,
    /// Format of the list
    #[arg(long, default_value = "text")]
    pub format: Format,
}

/// `nodeprof doctor`.
#[derive(Args)]
pub struct Doctor {
    /// The node binary [default: node of PATH]
    #[arg(long, value_name = "PATH")]
    pub node: Option<PathBuf>,
}

fn until(text: &str) -> Result<Until, String> {
    match text {
        "exit" => return Ok(Until::Exit),
        "loop-start" => return Ok(Until::LoopStart),
        "idle" => return Ok(Until::Idle),
        _ => {}
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => {
            return Err(format!(
                "found {text:?}; needed: exit, loop-start, idle, or a time; type for example --until 1.5s"
            ));
        }
    };
    let number: f64 = digits.parse().map_err(|_| {
        format!(
            "found {digits:?}; needed: a number before the unit; type for example --until 800ms"
        )
    })?;
    match Duration::try_from_secs_f64(number * unit) {
        Ok(time) if time > Duration::ZERO => Ok(Until::After(time)),
        _ => Err(format!(
            "found {text:?}; needed: a time above zero; type for example --until 800ms"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn times_have_units() {
        assert_eq!(until("1.5s"), Ok(Until::After(Duration::from_millis(1500))));
        assert_eq!(until("800ms"), Ok(Until::After(Duration::from_millis(800))));
        assert_eq!(until("2min"), Ok(Until::After(Duration::from_secs(120))));
        for bad in ["", "5", "s", "-1s", "0s", "1h", "nans", "infs", "1e400s"] {
            assert!(until(bad).is_err(), "{bad}");
        }
    }
}
