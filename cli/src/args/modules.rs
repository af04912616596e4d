//! `nodeprof blame`, `critical-chain` and `tree`.

use std::{path::PathBuf, str::FromStr as _};

use clap::{Args, ValueEnum, builder::PossibleValuesParser, builder::TypedValueParser as _};
use nodeprof_flamegraphs::text::Figure;

use super::Format;

/// Which modules of which recording.
#[derive(Args)]
pub struct Source {
    /// A recording
    pub file: PathBuf,
    /// Or runs of the store
    #[command(flatten)]
    pub store: super::store::Store,
    /// A run of it, from 1 [default: all]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub run: Option<u32>,
    /// Modules of this process only [default: all]
    #[arg(long, value_name = "PID", allow_negative_numbers = true)]
    pub process: Option<u32>,
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Modules
    Module,
    /// Packages
    Package,
}

/// Whose counts are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// What its functions did, and Node because they asked for it
    Requirer,
    /// What was done to load it, whoever asked
    Loaded,
}

/// `nodeprof blame`.
#[derive(Args)]
#[command(after_long_help = "\
Times are those of the modules themselves: to find, read, compile and run each. Every moment belongs to one module; \
where the trace does not show when one ended and the next began, each gets half, and ± says how much that is.

Counts are of the requirer: require('./b') in a.js makes the stats of b.js a cost of a.js. --as loaded shows them as a \
cost of b.js instead.

Of a bundle with a source map, a table of its own tells the packages in it (--by module: the files), with exact counts and the CPU time of samples.")]
pub struct Blame {
    /// Which modules
    #[command(flatten)]
    pub source: Source,
    /// What a row is
    #[arg(long, default_value = "package")]
    pub by: By,
    /// Figure to sort by, the highest first
    #[arg(long, value_name = "FIGURE", default_value = "self", hide_default_value = false,
          value_parser = PossibleValuesParser::new(Figure::NAMES).try_map(|name| Figure::from_str(&name)))]
    pub sort: Figure,
    /// Whose counts
    #[arg(long = "as", default_value = "requirer")]
    pub role: Role,
    /// Rows; 0: none, only how many there are and what they take in all [default: all]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, value_parser = super::number::<usize>)]
    pub limit: Option<usize>,
    /// Format of the list; the JSON is documented in docs/json.md
    #[arg(long, default_value = "text")]
    pub format: Format,
}

/// `nodeprof critical-chain`.
#[derive(Args)]
#[command(after_long_help = "\
From the main script on, at each step the module that its requirer waited longest for. Modules are loaded one after the \
other, so the main script's time is that of all of them; the chain is where to look first. What a top-level await \
waited for, and what callbacks load when their modules have run, is not in it. Of several processes it is the main \
one's, or that of --process.")]
pub struct CriticalChain {
    /// Which modules
    #[command(flatten)]
    pub source: Source,
    /// Show also modules that took at most this much less than the slowest beside them, such as 5ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = super::nanoseconds)]
    pub fuzz: Option<u64>,
}

/// `nodeprof tree`.
#[derive(Args)]
#[command(after_long_help = "\
Where --min and --package leave no module of any run, the exit status is 125.")]
pub struct Tree {
    /// Which modules
    #[command(flatten)]
    pub source: Source,
    /// Levels below the main script [default: all]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, value_parser = super::number::<usize>)]
    pub depth: Option<usize>,
    /// Only modules that took at least this long with all that they required, such as 5ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = super::nanoseconds)]
    pub min: Option<u64>,
    /// Only modules of the package NAME, and what required them
    #[arg(long, value_name = "NAME")]
    pub package: Option<String>,
    /// Show Node's own modules, too
    #[arg(long)]
    pub builtins: bool,
}
