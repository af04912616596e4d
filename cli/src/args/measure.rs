//! `nodeprof bench` and `nodeprof compare`.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;
use nodeprof_profile::sequential::{MARGIN, MOST_PAIRS, PAIRS_LIMIT};

use super::{TraceMode, Tracer};

/// How runs are made and where they go.
#[derive(Args)]
pub struct Measuring {
    /// Runs of each command before the measured ones; their times do not count, the private dirty memory comes from them
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, default_value_t = 2, value_parser = super::number::<usize>)]
    pub warmup: usize,
    /// Command given to sh -c before each run, not timed
    #[arg(short, long, value_name = "CMD")]
    pub prepare: Option<OsString>,
    /// Runs of each command with probes, for the counts; 0: times only, which needs no root
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 10, value_parser = super::number::<usize>)]
    pub probed_runs: usize,
    /// Of runs with probes: full: every call with its time; count: exact counts only
    #[arg(long, default_value = "full")]
    pub mode: TraceMode,
    /// CPU samples per second and CPU in runs with probes, up to 10000; 0: none [default: 997; none in count mode]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::frequency)]
    pub freq: Option<u32>,
    /// A node binary that child processes may execute (those on PATH are known)
    #[arg(long = "node", value_name = "PATH")]
    pub nodes: Vec<PathBuf>,
    /// Who is asked
    #[command(flatten)]
    pub tracer: Tracer,
    /// A label of all runs, for example commit=1a2b3c
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Seed of the order of runs [default: from the clock; it is printed]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::number::<u64>)]
    pub seed: Option<u64>,
    /// Go on if a command fails (exit status not 0, or a signal)
    #[arg(short, long)]
    pub ignore_failure: bool,
    /// Leave standard input, output and error to the commands [default: none, discarded, shown if it fails]
    #[arg(long)]
    pub show_output: bool,
    /// Recording to write, with all runs [default: NAME-DATE-TIME.nodeprof in this folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite files that exist
    #[arg(short, long)]
    pub force: bool,
    /// Write the times as hyperfine's --export-json does
    #[arg(long, value_name = "FILE")]
    pub export_json: Option<PathBuf>,
    /// Write the times as Node's benchmark/compare.js does
    #[arg(long, value_name = "FILE")]
    pub export_csv: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// `nodeprof bench`.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  nodeprof bench -- node app.js
  nodeprof bench -n 50 --name before -o before.nodeprof -- node app.js
  nodeprof bench -L version 20.20.2,24.21.0 -- ./node-{version}/bin/node app.js

Wall, user and system time and memory come from runs without probes; crossings, lookups and all else from runs with probes, in \
between. All are in one recording: docs/compare.md.")]
pub struct Bench {
    /// Measured runs of each command [default: 3 s of them, at least 10]
    #[arg(short = 'n', long, value_name = "RUNS", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: Option<u32>,
    /// Name of the runs (label name); {VAR} stands for a parameter
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Run the command with each of these values, separated by commas, in place of {VAR}; several lists: with all combinations
    #[arg(short = 'L', long = "parameter-list", value_names = ["VAR", "VALUES"], num_args = 2)]
    pub parameters: Vec<String>,
    /// How
    #[command(flatten)]
    pub measuring: Measuring,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub program: Vec<OsString>,
}

/// `nodeprof compare`.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  nodeprof compare --base 'node old/app.js' --head 'node new/app.js'
  nodeprof compare --base-node ~/node-20/bin/node --head-node ~/node-24/bin/node -- app.js
  nodeprof compare --max-pairs 100 --margin 0.5 --base 'node a.js' --head 'node b.js'

Commands are split into words as a shell does, and run without one. The order within each pair is tossed. After certain numbers of \
pairs the times are looked at, by a rule that keeps the chance of a false alarm at 0.2 % in all: docs/compare.md.")]
pub struct Compare {
    /// Run exactly this many pairs, and look once; fewer than 10 give counts, but no verdict on time
    #[arg(short = 'n', long, value_name = "PAIRS", allow_negative_numbers = true, conflicts_with = "max_pairs", value_parser = clap::value_parser!(u32).range(1..=PAIRS_LIMIT as i64))]
    pub pairs: Option<u32>,
    /// Stop as soon as the answer is certain, or after this many pairs
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = MOST_PAIRS as u32, value_parser = clap::value_parser!(u32).range(1..=PAIRS_LIMIT as i64))]
    pub max_pairs: u32,
    /// A difference in percent below which both sides count as alike
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true, default_value_t = MARGIN * 100.0, value_parser = percent)]
    pub margin: f64,
    /// The command to compare with
    #[arg(
        long,
        value_name = "CMD",
        requires = "head",
        required_unless_present = "base_node"
    )]
    pub base: Option<String>,
    /// The command to compare
    #[arg(long, value_name = "CMD", requires = "base")]
    pub head: Option<String>,
    /// The node binary to compare with
    #[arg(long, value_name = "PATH", requires = "head_node", requires = "program", conflicts_with_all = ["base", "head"])]
    pub base_node: Option<OsString>,
    /// The node binary to compare
    #[arg(long, value_name = "PATH", requires = "base_node")]
    pub head_node: Option<OsString>,
    /// How
    #[command(flatten)]
    pub measuring: Measuring,
    /// What both node binaries run
    #[arg(
        trailing_var_arg = true,
        value_name = "ARGUMENTS",
        requires = "base_node"
    )]
    pub program: Vec<OsString>,
}

/// `KEY=VALUE`.
pub fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() && !text.contains(',') => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err(format!(
            "found {text:?}; needed: KEY=VALUE without a comma; type for example --label commit=1a2b3c"
        )),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent),
        _ => Err(format!(
            "found {text:?}; needed: percent, above 0 and below 100; type for example --margin 1"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_a_key_and_a_value() {
        assert_eq!(label("a=b=c"), Ok(("a".into(), "b=c".into())));
        for bad in ["", "a", "=b", "a=", "a=b,c=d"] {
            assert!(label(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_margin_is_a_percentage() {
        assert_eq!(percent("0.5"), Ok(0.5));
        for bad in ["", "0", "-1", "100", "nan", "inf", "1%"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }
}
