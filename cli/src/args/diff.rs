//! `nodeprof diff`, `check` and `budget`.

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Args, Subcommand, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser, ValueParser},
};
use nodeprof_profile::groups::Selector;

/// `FILE`, `FILE@value`, `FILE@key=value,…`.
pub fn selector() -> ValueParser {
    ValueParser::new(OsStringValueParser::new().try_map(|text: OsString| Selector::parse(&text)))
}

/// `nodeprof diff`.
#[derive(Args)]
#[command(after_long_help = "\
BASE and HEAD are recordings, or runs of one: FILE@NAME or FILE@KEY=VALUE,KEY=VALUE selects those with these labels (of a commit, its first digits). With one FILE \
only, its runs called base and head are compared, or the two names that there are.

Times are compared on runs without probes, if both sides have some. Counts that are the same in all runs of a side are exact; what \
varies is tested.

Examples:
  nodeprof compare --base 'node v1/app.js' --head 'node v2/app.js' -o both.nodeprof
  nodeprof diff both.nodeprof
  nodeprof diff monday.nodeprof today.nodeprof --format markdown
  nodeprof diff bench.nodeprof@node=20 bench.nodeprof@node=24
  nodeprof diff both.nodeprof --format html -o both.html
  nodeprof diff --store commit=3f1c2a commit=9b40de,job=test

Runs of the store were not run in turn: what else the machine did is in their times, too, and the verdict says so. Counts do not mind.")]
pub struct Diff {
    /// What to compare with: a recording, or runs of one: FILE@NAME, FILE@KEY=VALUE
    #[arg(value_parser = selector())]
    pub base: Selector,
    /// What to compare [default: the runs of BASE called head, with those called base]
    #[arg(value_parser = selector())]
    pub head: Option<Selector>,
    /// Or runs of the store
    #[command(flatten)]
    pub store: super::store::Store,
    /// Format
    #[arg(long, default_value = "text")]
    pub format: DiffFormat,
    /// File to write; `-` is standard output [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,
}

/// Formats of a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// For people
    Text,
    /// For programs; documented in docs/json.md
    Json,
    /// For a comment on a pull request
    Markdown,
    /// All views of both sides in one file for a browser; works offline; docs/html-report.md
    Html,
}

/// `nodeprof check`.
#[derive(Args)]
#[command(after_long_help = "\
A file of budgets says what figures of the JSON may be at most, or grow by at most compared with BASE; docs/ci.md tells how. nodeprof budget \
init writes one.

Exit status: 0 all limits are kept, 1 one at least is not, 125 it could not be told.

Examples:
  nodeprof budget init base.nodeprof
  nodeprof check head.nodeprof --against base.nodeprof
  nodeprof check both.nodeprof@head --against both.nodeprof@base --format github
  nodeprof check --store commit=9b40de --against commit=3f1c2a")]
pub struct Check {
    /// What to check: a recording, or runs of one: FILE@NAME, FILE@KEY=VALUE
    #[arg(value_parser = selector())]
    pub head: Selector,
    /// What to compare with: a recording, or runs of one
    #[arg(long, value_name = "BASE", value_parser = selector())]
    pub against: Option<Selector>,
    /// Or runs of the store
    #[command(flatten)]
    pub store: super::store::Store,
    /// Judge how much times grew also where BASE and HEAD were not run in turn, as if the machine could not have changed
    #[arg(long, requires = "against")]
    pub allow_drift: bool,
    /// File of budgets
    #[arg(long, value_name = "FILE", default_value = "nodeprof.toml")]
    pub budget: PathBuf,
    /// Format
    #[arg(long, default_value = "text")]
    pub format: CheckFormat,
    /// File to write; `-` is standard output [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,
}

/// Formats of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// For people
    Text,
    /// For programs; documented in docs/json.md
    Json,
    /// For CI systems that show test results
    Junit,
    /// For a comment on a pull request
    Markdown,
    /// Annotations of GitHub Actions
    Github,
}

/// `nodeprof budget`.
#[derive(Args)]
pub struct Budget {
    /// What to do
    #[command(subcommand)]
    pub command: BudgetCommand,
}

/// What to do with budgets.
#[derive(Subcommand)]
pub enum BudgetCommand {
    /// Write a file of budgets that a baseline keeps
    Init(BudgetInit),
}

/// `nodeprof budget init`.
#[derive(Args)]
pub struct BudgetInit {
    /// The baseline: a recording, or runs of one: FILE@NAME, FILE@KEY=VALUE
    #[arg(value_parser = selector())]
    pub base: Selector,
    /// Or runs of the store
    #[command(flatten)]
    pub store: super::store::Store,
    /// File to write; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "nodeprof.toml")]
    pub output: PathBuf,
    /// Overwrite FILE if it exists
    #[arg(short, long)]
    pub force: bool,
}
