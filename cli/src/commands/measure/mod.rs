//! `nodeprof bench` and `nodeprof compare`: many runs into one recording.

pub mod bench;
pub mod compare;
mod parameters;
mod progress;

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use nodeprof_flamegraphs::{
    measurements::{command_line, hyperfine_json, node_csv},
    text::Style,
};
use nodeprof_profile::{
    Recording,
    measured::{OF_COMPARISONS, wall},
    random::Random,
};
use nodeprofd::{
    measure::{MeasureError, Runner, Settings, Subject},
    recorder::{Invoker, TraceError, TraceOptions},
};

use super::{Example, target::Target};
use crate::{
    args::{Color, measure::Measuring},
    terminal,
};
use progress::Progress;

/// A label of a run.
type Label = (String, String);

/// Runs under way.
struct Session<'a> {
    measuring: &'a Measuring,
    target: Target,
    runner: Runner,
    random: Random,
    seed: u64,
    all: Recording,
    progress: Progress,
}

/// Whether to go on, or the user has asked to end.
type GoOn = bool;

impl<'a> Session<'a> {
    /// Checks all that can be checked before anything runs.
    fn start(measuring: &'a Measuring, subjects: Vec<Subject>) -> anyhow::Result<Session<'a>> {
        let first = subjects.first().map(|s| s.command.clone());
        let target = Target::new(
            measuring.output.as_deref(),
            measuring.force,
            &first.unwrap_or_default(),
        )?;
        for (path, example) in [(&measuring.export_json, JSON), (&measuring.export_csv, CSV)] {
            if let Some(path) = path {
                check_export(path, measuring.force, example)?;
            }
        }
        super::check_nodes(&measuring.nodes)?;
        let targets = [
            Some(target.path().to_owned()),
            measuring.export_json.clone(),
            measuring.export_csv.clone(),
        ];
        let targets: Vec<PathBuf> = targets.into_iter().flatten().collect();
        for (index, path) in targets.iter().enumerate() {
            if targets[..index].contains(path) {
                anyhow::bail!(
                    "found {} twice; needed: a file of its own for the recording and for each export",
                    path.display()
                );
            }
        }
        let seed = measuring.seed.unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            // Short enough to be typed.
            u64::from(now.unwrap_or_default().subsec_nanos())
        });
        let runner = Runner::start(Settings {
            subjects,
            show_output: measuring.show_output,
            trace: TraceOptions {
                mode: measuring.mode.into(),
                sample_hz: measuring.freq,
                nodes: measuring.nodes.clone(),
                service: Some(measuring.tracer.service.clone()),
                ..TraceOptions::new(Vec::new())
            },
        })?;
        Ok(Session {
            measuring,
            target,
            runner,
            random: Random::new(seed),
            seed,
            all: Recording::default(),
            progress: Progress::new(measuring.quiet || measuring.show_output),
        })
    }

    /// All programs in random order.
    fn order(&mut self) -> Vec<usize> {
        let mut order = self.listed();
        self.random.shuffle(&mut order);
        order
    }

    /// All programs as they were given.
    fn listed(&self) -> Vec<usize> {
        (0..self.runner.subjects().len()).collect()
    }

    /// The first time as they were given, for in the order of their first runs they are shown; then in random order.
    fn order_as_shown(&mut self) -> Vec<usize> {
        match self.all.runs.is_empty() {
            true => self.listed(),
            false => self.order(),
        }
    }

    fn warm_up(&mut self) -> anyhow::Result<GoOn> {
        for run in 0..self.measuring.warmup {
            self.progress
                .say(&format!("warm-up {} of {}", run + 1, self.measuring.warmup));
            for subject in self.order() {
                let outcome = self.runner.warm_up(subject);
                // What was interrupted may well have failed for that.
                if self.runner.interrupted() {
                    return Ok(false);
                }
                let status = outcome?;
                self.check(subject, status)?;
            }
        }
        Ok(true)
    }

    /// A run without probes; its wall time in seconds, `None` if the user has asked to end.
    fn bare(&mut self, subject: usize, labels: &[Label]) -> anyhow::Result<Option<f64>> {
        let outcome = self.runner.bare(subject, labels);
        if self.runner.interrupted() {
            return Ok(None);
        }
        let measured = outcome?;
        self.check(subject, measured.status)?;
        let time = measured.recording.runs.first().map(wall);
        self.all.append(measured.recording);
        Ok(time)
    }

    /// A run with probes of each program, the first time in the order in which they were given.
    fn probed(&mut self, labels: &[Label]) -> anyhow::Result<GoOn> {
        for subject in self.order_as_shown() {
            let outcome = self.runner.probed(subject, labels);
            if self.runner.interrupted() {
                return Ok(false);
            }
            let measured = outcome.map_err(|error| {
                let no_root = matches!(error, MeasureError::Trace(TraceError::Load(_)));
                let error = anyhow::Error::from(error);
                match no_root {
                    true => error.context(
                        "runs with probes are not possible; for times alone, type: --probed-runs 0",
                    ),
                    false => error,
                }
            })?;
            self.check(subject, measured.status)?;
            self.all.append(measured.recording);
        }
        Ok(true)
    }

    /// A run that failed measures something else than one that did its work.
    fn check(&self, subject: usize, status: ExitStatus) -> anyhow::Result<()> {
        if status.success() || self.measuring.ignore_failure {
            return Ok(());
        }
        let subject = self.runner.subjects().get(subject);
        let words = subject.map_or(&[][..], |s| s.command.as_slice());
        let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit status {code}"),
            (None, signal) => format!("was killed by signal {}", signal.unwrap_or_default()),
        };
        let said = match self.runner.said() {
            said if said.is_empty() => String::new(),
            said => format!("\nIt wrote:\n{said}"),
        };
        anyhow::bail!(
            "{} {how}; needed: exit status 0; to measure it all the same, type: --ignore-failure{said}",
            command_line(&words)
        )
    }

    /// Keeps what was measured before this error, which is said at the end.
    fn keep_after(&self, error: anyhow::Error) -> anyhow::Error {
        if self.all.runs.is_empty() {
            return error;
        }
        match self.target.save_part(&self.all) {
            Some(path) => error.context(format!(
                "not all was measured; the runs before it are in {}",
                path.display()
            )),
            None => error,
        }
    }

    /// What becomes of the runs when the user has asked to end.
    fn say_interrupted(&self) {
        match self.all.runs.is_empty() {
            true => say!("interrupted before any run had ended; nothing is kept"),
            false => say!("interrupted: the runs that had ended are kept"),
        }
    }

    /// Ends with 0, or as programs do that a signal ended: 130 after SIGINT.
    fn leave(&self, go_on: GoOn) -> ExitCode {
        let signal = self.runner.ended_by().filter(|_| !go_on);
        signal.map_or(ExitCode::SUCCESS, |signal| {
            ExitCode::from(128 + signal as u8)
        })
    }

    /// Writes the recording and the exports; tells where the recording is.
    fn save(&self) -> anyhow::Result<()> {
        if self.all.runs.is_empty() {
            return Ok(());
        }
        let saved = self.target.save(&self.all)?;
        if let Some(path) = saved.filter(|_| !self.measuring.quiet) {
            say!("recording: {} (seed {})", path.display(), self.seed);
        }
        if let Some(path) = &self.measuring.export_json {
            export(
                path,
                self.measuring.force,
                &hyperfine_json(&self.all)?,
                JSON,
            )?;
        }
        if let Some(path) = &self.measuring.export_csv {
            export(path, self.measuring.force, &node_csv(&self.all)?, CSV)?;
        }
        Ok(())
    }
}

/// At which of `rounds` rounds to make the next of `probed` runs with probes: the first before all others, so that an error shows
/// at once, the rest evenly between.
fn is_probed(round: usize, rounds: usize, probed: usize) -> usize {
    let before = |round: usize| match round {
        0 => 0,
        _ => (round * probed).div_ceil(rounds.max(1)).clamp(1, probed),
    };
    match probed > 0 && round < rounds {
        true => before(round + 1) - before(round),
        false => 0,
    }
}

fn label(key: &str, value: impl ToString) -> Label {
    (key.to_owned(), value.to_string())
}

/// Labels that tell the sides of a comparison, and the rule that it is judged by, are nodeprof's. A run has one value of each.
pub fn check_labels<'l>(
    labels: &[Label],
    taken: impl IntoIterator<Item = &'l str>,
) -> anyhow::Result<()> {
    let taken: Vec<&str> = taken.into_iter().chain(OF_COMPARISONS).collect();
    if let Some((key, value)) = labels.iter().find(|(key, _)| taken.contains(&key.as_str())) {
        anyhow::bail!(
            "found --label {key}={value}, which tells something else of these runs; needed: another name; type for example: --label my-{key}={value}"
        );
    }
    for (index, (key, value)) in labels.iter().enumerate() {
        if let Some((_, first)) = labels.iter().take(index).find(|(other, _)| other == key) {
            anyhow::bail!(
                "found --label {key}={first} and --label {key}={value}; needed: one of them"
            );
        }
    }
    Ok(())
}

const JSON: Example = Example {
    option: "--export-json",
    name: "times.json",
};
const CSV: Example = Example {
    option: "--export-csv",
    name: "times.csv",
};

/// Before anything runs: whether it can be written when all has run.
fn check_export(path: &Path, force: bool, example: Example) -> anyhow::Result<()> {
    if super::is_standard_output(path) {
        anyhow::bail!(
            "found: standard output for an export, where the comparison is printed; needed: the name of a file; type: {} {}",
            example.option,
            example.name
        );
    }
    super::check_name(path, force, example)?;
    if super::is_recording(path) {
        anyhow::bail!(
            "{} holds a recording; needed: another name, for this would end it; type: {} {}",
            path.display(),
            example.option,
            example.name
        );
    }
    Ok(())
}

fn export(path: &Path, force: bool, text: &str, example: Example) -> anyhow::Result<()> {
    super::write_file(path, force, text.as_bytes(), example)?;
    if let Some(user) = Invoker::behind_sudo() {
        user.own(path);
    }
    Ok(())
}

fn style(color: Color) -> Style {
    let out = io::stdout();
    Style {
        width: terminal::width(&out),
        color: terminal::colored(color, &out),
    }
}

/// The words of a command.
fn words(text: &str, option: &str) -> anyhow::Result<Vec<OsString>> {
    let words = shell_words::split(text).with_context(|| {
        format!("found {text:?}; needed: a command, quoted as for a shell; type for example: {option} 'node app.js'")
    })?;
    if words.is_empty() {
        anyhow::bail!("found no command; type for example: {option} 'node app.js'");
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_one_value_and_is_none_of_nodeprofs() {
        let check = |labels: &[Label]| check_labels(labels, ["base"]).map_err(|e| e.to_string());
        check(&[label("a", 1), label("b", 1)]).unwrap();
        let error = check(&[label("a", 1), label("b", 1), label("a", 2)]).unwrap_err();
        assert!(error.contains("--label a=1 and --label a=2"), "{error}");
        for taken in ["base", "machine"] {
            let error = check(&[label(taken, 1)]).unwrap_err();
            assert!(error.contains("something else"), "{error}");
        }
    }

    #[test]
    fn probed_runs_come_first_and_then_evenly() {
        let rounds = |rounds, probed| -> Vec<usize> {
            (0..rounds + 2)
                .map(|r| is_probed(r, rounds, probed))
                .collect()
        };
        assert_eq!(rounds(10, 3), [1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(rounds(3, 3), [1, 1, 1, 0, 0]);
        assert_eq!(rounds(2, 5), [3, 2, 0, 0]);
        assert_eq!(rounds(1, 3), [3, 0, 0]);
        assert_eq!(rounds(4, 0), [0; 6]);
        for (r, p) in [(1, 1), (7, 3), (12, 3), (40, 7), (3, 11)] {
            assert_eq!(rounds(r, p).iter().sum::<usize>(), p, "{r} {p}");
            assert!(rounds(r, p)[0] > 0);
        }
    }
}
