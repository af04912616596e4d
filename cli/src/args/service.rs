//! `nodeprof service`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand};

use super::Format;

/// `nodeprof service`.
#[derive(Args)]
#[command(after_long_help = super::DOCS)]
pub struct Service {
    /// What to ask for
    #[command(subcommand)]
    pub command: ServiceCommand,
    /// Socket of the service
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = "/run/nodeprof/control.sock"
    )]
    pub socket: PathBuf,
    /// Format; the keys of the JSON are documented in docs/service.md, those of a report and of a diff in docs/json.md
    #[arg(long, global = true, default_value = "text")]
    pub format: Format,
}

/// What the service is asked for.
#[derive(Subcommand)]
pub enum ServiceCommand {
    /// How the service is, and what you may do
    Status,
    /// Which runs there are, the newest first: those that you may read
    Runs(Runs),
    /// Print the report of a run
    Show {
        /// Its number
        #[arg(value_name = "NUMBER", value_parser = run_number)]
        run: u32,
    },
    /// Compare two groups of runs, as nodeprof diff does
    Diff {
        /// What to compare with: numbers of runs, or KEY=VALUE,KEY=VALUE (labels; command=TEXT, package=NAME)
        base: String,
        /// What to compare
        head: String,
    },
    /// Print sums over all starts for a monitoring system (OpenMetrics), or serve them
    Metrics(Metrics),
    /// Read the configuration again
    Reload,
    /// Record nothing until resume
    Pause,
    /// Record again
    Resume,
}

/// `nodeprof service runs`.
#[derive(Args)]
#[command(after_long_help = "\
The column `ended` has the exit status, if it is not 0, or the signal; `settled` and `limit` are of programs that ran on when recording ended \
(settle, limit of the configuration), `interrupt` of those that ran on when the service stopped. A command is cut to the columns of the terminal, \
and to 160 characters where the list goes elsewhere; --format json has all.")]
pub struct Runs {
    /// Only those with these labels; of a commit its first digits are enough
    #[arg(value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Only those whose command has this in it
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub command: Option<String>,
    /// Only those that loaded modules of this package (in count mode: compiled files of node_modules/NAME)
    #[arg(long, value_name = "NAME")]
    pub package: Option<String>,
    /// Only those that ended with another exit status than 0, or by a signal
    #[arg(long)]
    pub failed: bool,
    /// Only those that started so long ago at most: 90s, 30min, 2h, 7d
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = ago)]
    pub since: Option<std::time::Duration>,
    /// Only those of this user
    #[arg(long, value_name = "NAME|UID", value_parser = user)]
    pub user: Option<u32>,
    /// At most so many, up to 1000
    #[arg(short, long, value_name = "N", allow_negative_numbers = true, default_value_t = 20, value_parser = how_many)]
    pub number: usize,
}

/// `nodeprof service metrics`.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  nodeprof service metrics > /var/lib/node_exporter/nodeprof.prom
  nodeprof service metrics --listen 127.0.0.1:9747
  nodeprof service metrics --listen 0.0.0.0:9747 --token-file /etc/nodeprof/metrics-token

Prometheus finds them at /metrics; docs/service.md has its configuration, and what each figure is.")]
pub struct Metrics {
    /// Serve them by HTTP at this address and port, until interrupted; port 0: any free one, which is printed
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Answer only who sends what this file holds as bearer token; needed where others than this machine can connect
    #[arg(long, value_name = "FILE", requires = "listen")]
    pub token_file: Option<PathBuf>,
}

fn user(text: &str) -> Result<u32, String> {
    nodeprofd::control::user_id(text)
        .ok_or_else(|| format!("found {text:?}; needed: the name or the number of a user"))
}

fn how_many(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=1000).contains(number));
    number.ok_or_else(|| format!("found {text:?}; needed: a number from 1 to 1000"))
}

fn run_number(text: &str) -> Result<u32, String> {
    (text.parse().ok()).ok_or_else(|| {
        format!(
            "found {text:?}; needed: the number of a run; they are listed by: nodeprof service runs"
        )
    })
}

fn ago(text: &str) -> Result<std::time::Duration, String> {
    super::duration(text, nodeprof_profile::typed::TIME, "--since 2h")
}
