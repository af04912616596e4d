//! `nodeprofd`: reads its configuration, calls the service, tells systemd and the journal.

use std::{
    io::IsTerminal as _,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use nodeprof_profile::Recording;
use nodeprofd::service::{Happening, config::Config, serve};
use sd_notify::NotifyState;
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

/// Records every start of Node.js on this host: calls between JavaScript and C++, package.json lookups, files, compilations
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Signals: SIGHUP reads FILE again, SIGTERM and SIGINT end the service. Needs root, or the capabilities of systemd/nodeprofd.service."
)]
struct Arguments {
    /// Configuration; without one the defaults hold
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check FILE, and do nothing else
    #[arg(long, requires = "config")]
    check: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log();
    let config = match arguments.config.as_deref().map(Config::read).transpose() {
        Ok(config) => config.unwrap_or_default(),
        Err(error) => {
            eprintln!("nodeprofd: {error}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.check {
        return ExitCode::SUCCESS;
    }
    let mut supervisor = Supervisor::new();
    match serve(config, arguments.config, &mut |happening| {
        supervisor.hear(&happening)
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            error!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Lines to standard error; the journal has times of its own.
fn start_log() {
    let filter =
        EnvFilter::try_from_env("NODEPROFD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    if std::env::var_os("JOURNAL_STREAM").is_some() {
        log.without_time().init();
    } else {
        log.init();
    }
}

/// Who started us, usually systemd.
struct Supervisor {
    /// How often it wants to hear of us.
    interval: Option<Duration>,
    told: Instant,
}

impl Supervisor {
    fn new() -> Supervisor {
        let mut microseconds = 0;
        let watched = sd_notify::watchdog_enabled(false, &mut microseconds);
        Supervisor {
            interval: watched.then(|| Duration::from_micros(microseconds) / 3),
            told: Instant::now(),
        }
    }

    fn notify(&self, states: &[NotifyState<'_>]) {
        // Nobody listens where there is no systemd.
        let _ = sd_notify::notify(false, states);
    }

    fn hear(&mut self, happening: &Happening<'_>) {
        match happening {
            Happening::Ready(Ok(())) => {
                info!("every start of node is held until its probes exist, and recorded");
                self.notify(&[NotifyState::Ready]);
            }
            Happening::Ready(Err(why)) => {
                warn!(
                    "starts cannot be held ({why}): probes come after the exec, and the beginning of a start may be missing"
                );
                self.notify(&[NotifyState::Ready]);
            }
            Happening::Alive => {
                if self
                    .interval
                    .is_some_and(|interval| self.told.elapsed() >= interval)
                {
                    self.told = Instant::now();
                    self.notify(&[NotifyState::Watchdog]);
                }
            }
            Happening::Reloading => {
                let at = NotifyState::monotonic_usec_now();
                self.notify(&[NotifyState::Reloading]);
                if let Ok(at) = at {
                    self.notify(&[NotifyState::Reloading, at]);
                }
            }
            Happening::Reloaded(outcome) => {
                match outcome {
                    Ok(()) => info!("the configuration was read again"),
                    Err(why) => error!("the configuration stays as it was: {why}"),
                }
                self.notify(&[NotifyState::Ready]);
            }
            Happening::Recorded {
                pid,
                file,
                recording,
            } => {
                let (crossings, lookups) = counts(recording);
                info!(pid, crossings, lookups, file = %file.display(), "recorded");
            }
            Happening::Lost { pid, why } => warn!(pid, "not recorded: {why}"),
            Happening::Unusable { path, why } => {
                warn!(path = %path.display(), "cannot be probed: {why}")
            }
            Happening::HolderRestarted => warn!("the holder process ended, and was started anew"),
            Happening::Stopping => self.notify(&[NotifyState::Stopping]),
        }
    }
}

/// Crossings to C++ and package.json lookups of a start.
fn counts(recording: &Recording) -> (u64, usize) {
    use nodeprof_profile::recording::CrossingKind::ToJs;
    let sums = recording
        .crossing_sums
        .iter()
        .filter(|sum| sum.kind != ToJs);
    (sums.map(|sum| sum.calls).sum(), recording.lookups.len())
}
