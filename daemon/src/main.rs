//! `nodeprofd`: reads its configuration, calls the service, tells systemd and the journal.

use std::{
    io::IsTerminal as _,
    os::{fd::FromRawFd as _, unix::net::UnixListener},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::{CommandFactory as _, Parser};
use nodeprof_profile::wording::{counted, printable_lines};
use nodeprofd::{
    log_files::LogFiles,
    service::{Happening, config::Config, lane, serve, store::Outcome, tracer},
};
use sd_notify::NotifyState;
use tracing::{error, info, level_filters::LevelFilter, warn};
use tracing_subscriber::{
    EnvFilter, fmt::format::debug_fn, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

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
    /// Where a nodeprof-holder listens, which may hold the exec of programs; else nodeprofd does so itself, and needs CAP_SYS_ADMIN
    #[arg(long, value_name = "SOCKET")]
    holder: Option<PathBuf>,
    /// Check FILE, and do nothing else
    #[arg(long, requires = "config")]
    check: bool,
    /// Be a tracer of the service itself, which says on standard input what it is to do
    #[arg(long, hide = true)]
    tracer: bool,
    /// What the process of full mode is to do
    #[arg(long, hide = true)]
    lane: Option<String>,
    /// Print the manual page
    #[arg(long, hide = true)]
    manual: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.manual {
        let page = clap_mangen::Man::new(Arguments::command()).section("8");
        return match page.render(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    start_log();
    if let Err(error) = nodeprofd::file_limit::make_it_an_error() {
        warn!("a file that becomes too large will end nodeprofd: {error}");
    }
    let own = |outcome: Result<(), String>| match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            error!("{why}");
            ExitCode::FAILURE
        }
    };
    if arguments.tracer {
        return own(tracer::main());
    }
    if let Some(job) = &arguments.lane {
        let mut supervisor = Supervisor::none();
        return own(lane::main(job, &mut |happening| {
            supervisor.hear(&happening)
        }));
    }
    let config = match arguments.config.as_deref().map(Config::read).transpose() {
        Ok(config) => config.unwrap_or_default(),
        Err(error) => {
            eprintln!("nodeprofd: {}", printable_lines(&error.to_string()));
            return ExitCode::FAILURE;
        }
    };
    if arguments.check {
        return ExitCode::SUCCESS;
    }
    if let Some(warning) = nodeprof_bpf::preflight::filters_warning() {
        warn!("{warning}");
    }
    let mut supervisor = Supervisor::new();
    let served = serve(
        config,
        arguments.config,
        control_socket(),
        arguments.holder,
        &mut |happening| supervisor.hear(&happening),
    );
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            error!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// The control socket, where systemd has opened it for us (`nodeprofd.socket`).
fn control_socket() -> Option<UnixListener> {
    let mut handed = sd_notify::listen_fds_with_names(true).ok()?;
    let (descriptor, _) = handed.find(|(_, name)| name == "control")?;
    // SAFETY: handed to this process, and told of once: the variables are unset now.
    Some(unsafe { UnixListener::from_raw_fd(descriptor) })
}

/// To the journal, each value as a field of its own (`journalctl NODEPROF_PID=4711`), elsewhere lines to standard error; and, where systemd
/// gives us a folder for it, to a file a day with a JSON object a line: at once, for a thread that did so would be there before signals are
/// blocked and the holder is forked.
fn start_log() {
    let wanted = std::env::var_os(LOG).map(|wanted| wanted.to_string_lossy().into_owned());
    let (filter, fault) = match wanted.as_deref().map(log_filter) {
        None => (EnvFilter::new("info"), None),
        Some(Ok(filter)) => (filter, None),
        Some(Err(fault)) => (EnvFilter::new("info"), Some(fault)),
    };
    let (files, no_files) = log_files();
    let files = files.map(|files| {
        tracing_subscriber::fmt::layer()
            .json()
            .log_internal_errors(false)
            .with_writer(files)
    });
    let journal = std::env::var_os("JOURNAL_STREAM").and_then(|_| tracing_journald::layer().ok());
    let journal = journal.map(|journal| {
        journal
            .with_field_prefix(Some("NODEPROF".into()))
            .with_syslog_identifier("nodeprofd".into())
    });
    let lines = journal.is_none().then(|| {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            .fmt_fields(debug_fn(write_field))
    });
    tracing_subscriber::registry()
        .with(filter)
        .with(journal)
        .with(lines)
        .with(files)
        .init();
    for fault in fault.into_iter().chain(no_files) {
        warn!("{fault}");
    }
}

/// The message has the values in it. Paths among them are as any user chose them: none looks like a line of another message, or is a command to
/// a terminal.
fn write_field(
    writer: &mut tracing_subscriber::fmt::format::Writer<'_>,
    field: &tracing::field::Field,
    value: &dyn std::fmt::Debug,
) -> std::fmt::Result {
    match field.name() {
        "message" => {
            let text = format!("{value:?}");
            write!(writer, "{}", printable_lines(&text).replace('\n', "\n    "))
        }
        _ => Ok(()),
    }
}

/// What is logged.
const LOG: &str = "NODEPROFD_LOG";

/// A word alone is a level: as the name of a part, which is what [`EnvFilter`] takes any other word for, it would silence all else.
fn log_filter(wanted: &str) -> Result<EnvFilter, String> {
    let fault = |found: &str| {
        format!(
            "{LOG}: found {found:?}; needed: off, error, warn, info, debug or trace, or PART=LEVEL, several with commas between; info is logged"
        )
    };
    let mut words = wanted.split(',').map(str::trim);
    let unknown = words.find(|word| !word.contains('=') && word.parse::<LevelFilter>().is_err());
    match unknown {
        Some(word) => Err(fault(word)),
        None => EnvFilter::try_new(wanted).map_err(|_| fault(wanted)),
    }
}

/// Days whose log files are kept.
const DAYS: &str = "NODEPROFD_LOG_DAYS";
/// So many unless that says otherwise.
const LOG_DAYS: usize = 7;

/// How many days that is.
fn log_days(wanted: &str) -> Result<usize, String> {
    wanted.trim().parse().map_err(|_| {
        format!("{DAYS}: found {wanted:?}; needed: a number of days, or 0 for no files; files of {LOG_DAYS} days are kept")
    })
}

/// Files in the folder of `LogsDirectory=`, and what is wrong with what was asked for. Without such a folder, where it cannot be written to, or for zero days there
/// are none.
fn log_files() -> (Option<LogFiles>, Vec<String>) {
    let Some(folder) = std::env::var_os("LOGS_DIRECTORY").map(PathBuf::from) else {
        return (None, Vec::new());
    };
    let wanted = std::env::var_os(DAYS).map(|wanted| log_days(&wanted.to_string_lossy()));
    let (days, fault) = match wanted {
        None => (LOG_DAYS, None),
        Some(Ok(days)) => (days, None),
        Some(Err(fault)) => (LOG_DAYS, Some(fault)),
    };
    let mut faults = Vec::from_iter(fault);
    let files = (days > 0).then(|| LogFiles::new(&folder, days));
    let files = files.and_then(|files| {
        let told = |error| faults.push(format!("no log files in {}: {error}", folder.display()));
        files.map_err(told).ok()
    });
    (files, faults)
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

    /// Of a process that nobody supervises but the service itself.
    fn none() -> Supervisor {
        Supervisor {
            interval: None,
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
            Happening::Stored(outcome) => stored(outcome),
            Happening::Lost { pid, why } => warn!(pid, "not recorded pid={pid}: {why}"),
            Happening::Unusable { path, why } => {
                let path = path.display();
                warn!(%path, "cannot be probed: {path}: {why}");
            }
            Happening::Silent { path } => {
                let path = path.display();
                warn!(
                    %path,
                    "left out: {path}: found a file system that does not answer; needed: one that does; if this is node, none of its starts is recorded until then"
                );
            }
            Happening::Answers { path } => {
                let path = path.display();
                info!(
                    %path,
                    "answers: {path}: its starts are recorded, from the second one on from their beginning"
                );
            }
            Happening::Stepped(stepped) => {
                let (cpu, events) = (stepped.load.cpu_percent, stepped.load.events);
                let (one_in, passed_over) = (stepped.one_in, stepped.passed_over);
                let now = match one_in {
                    0 => "no start is recorded".into(),
                    1 => "every start is recorded".into(),
                    n => format!("one start in {n} is recorded"),
                };
                let why = if stepped.is_down {
                    "above the ceiling"
                } else {
                    "below the ceiling again"
                };
                warn!(
                    one_in,
                    passed_over,
                    "{why}: {now} from now on cpu={cpu:.0}% events={events:.0}/s not-recorded={passed_over}"
                );
            }
            Happening::FullMode(Ok(())) => {
                info!("starts are recorded in full mode, too, by the rules")
            }
            Happening::FullMode(Err(why)) => warn!(
                "starts are recorded in full mode, too, and cannot be held ({why}): the beginning of a start may be missing"
            ),
            Happening::NoFullMode => {
                warn!("the process of full mode ended, and is started anew")
            }
            Happening::NotInFullMode(why) => {
                warn!(
                    "the process of full mode cannot be started, which is tried each second: {why}"
                )
            }
            Happening::HolderLate => {
                warn!("the holder process does not answer: starts go on without waiting for it")
            }
            Happening::GuardRestarted(Ok(())) => {
                warn!("the guard of the holder process ended, and was started anew")
            }
            Happening::GuardRestarted(Err(why)) => {
                warn!("the guard of the holder process ended: starts are held no longer ({why})")
            }
            Happening::HolderRestarted => warn!("the holder process ended, and was started anew"),
            Happening::NoControl(why) => {
                warn!("nobody can ask the service (nodeprof service): {why}")
            }
            Happening::Paused(true) => warn!("paused by command: nothing is recorded"),
            Happening::Paused(false) => info!("recording goes on by command"),
            Happening::Tracing(Ok(())) => info!("file operations of starts are recorded again"),
            Happening::Tracing(Err(why)) => {
                warn!("file operations of starts are not recorded until it works again: {why}")
            }
            Happening::Stopping => self.notify(&[NotifyState::Stopping]),
        }
    }
}

/// What became of a start, or of the store.
fn stored(outcome: &Outcome) {
    match outcome {
        Outcome::Kept {
            pid,
            run,
            crossings,
            lookups,
        } => info!(
            pid,
            run,
            crossings,
            lookups,
            "recorded pid={pid} run={run} crossings={crossings} lookups={lookups}"
        ),
        Outcome::Lost { pid, why } => warn!(pid, "not recorded pid={pid}: {why}"),
        Outcome::SetAside { at, why } => error!(
            "the store was damaged, and a new one was begun; the old one is kept as {}: {why}",
            at.display()
        ),
        Outcome::Removed { at } => error!(
            "the store {} was removed or replaced while the service ran: what was in it is not there any more; what lies there now is the store, or a new one that was begun",
            at.display()
        ),
        Outcome::Full => error!(
            "the disk of the store is full: nothing is recorded until there is space; needed: 16 MB"
        ),
        Outcome::Space => info!("there is space for the store again: recording goes on"),
        Outcome::Imported(files) => {
            info!(
                files,
                "{}",
                counted(
                    *files as u64,
                    "# [recording of an older version is|recordings of an older version are] in the store now"
                )
            )
        }
        Outcome::NotImported { file, why } => warn!(
            "{} is not in the store, and stays where it is: {why}",
            file.display()
        ),
        Outcome::NotRemoved { file, error } => warn!(
            "{} is in the store now, and cannot be removed ({error}): it is taken in again when nodeprofd starts; needed: remove it",
            file.display()
        ),
        Outcome::Unreadable(runs) => warn!(
            runs,
            "{}",
            counted(
                *runs as u64,
                "# run[|s] in the store cannot be read: [it stays as it is until it is|they stay as they are until they are] old enough to be removed"
            )
        ),
        Outcome::NotTidied(why) => warn!("old starts stay in the store: {why}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_level_does_not_silence_the_log() {
        for (wanted, filter) in [
            ("debug", "debug"),
            ("WARN", "warn"),
            (
                "nodeprofd::service=debug,info",
                "nodeprofd::service=debug,info",
            ),
        ] {
            assert_eq!(log_filter(wanted).unwrap().to_string(), filter);
        }
        for (wanted, found) in [
            ("warning", "found \"warning\"; needed: off, error, warn"),
            ("info,nodeprofd", "found \"nodeprofd\""),
            ("nodeprofd=loud", "found \"nodeprofd=loud\""),
        ] {
            let fault = log_filter(wanted).unwrap_err();
            assert!(fault.contains(found), "{fault}");
        }
    }

    #[test]
    fn nothing_in_a_message_is_a_line_of_its_own_or_a_command_to_the_terminal() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let writer = file.reopen().unwrap();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(move || writer.try_clone().unwrap())
            .fmt_fields(debug_fn(write_field));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            let path = "/tmp/a\u{1b}[2J\n2026-01-01 INFO forged\u{9b}2J";
            warn!(path, "cannot be probed: {path}");
        });
        let text = std::fs::read_to_string(file.path()).unwrap();
        let said = "cannot be probed: /tmp/a\\u{1b}[2J\n    2026-01-01 INFO forged\\u{9b}2J";
        assert!(text.trim_end().ends_with(said), "{text:?}");
    }

    #[test]
    fn what_is_no_number_of_days_is_told() {
        assert_eq!(log_days("30"), Ok(30));
        assert_eq!(log_days(" 0 "), Ok(0));
        for wanted in ["30d", "-1", ""] {
            let fault = log_days(wanted).unwrap_err();
            assert!(
                fault.contains(&format!("found {wanted:?}; needed: a number")),
                "{fault}"
            );
        }
    }
}
