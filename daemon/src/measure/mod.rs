//! Runs programs again and again: *bare*, for their times and memory, and *probed*, for what they did.
//!
//! A bare run has no probe, no tracepoint and no debugger. How its time is taken: from just before the exec until wait4 has returned, in a
//! small process that does nothing else (`launcher`). User and system time and the peak of the resident set are those of wait4: of the
//! process and all its children that were waited for. The private dirty memory is read at the exit, for which the program must be stopped; so
//! this is done in warm-up runs, whose times count for nothing.

mod launcher;

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Seek as _},
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::{ffi::OsStrExt as _, process::ExitStatusExt as _},
    },
    path::PathBuf,
    process::ExitStatus,
    rc::Rc,
    sync::Arc,
};

use nodeprof_profile::{
    Recording,
    groups::BARE,
    recording::{Exec, Nanoseconds, Process, Run, RunId},
};

use crate::recorder::{
    CommandError, Invoker, Signals, Streams, TraceError, TraceOptions, Traced, find_program,
    system, trace_with,
};
use launcher::{Ended, Job, Launcher};

/// A program to run.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Given to `sh -c` before each run.
    pub prepare: Option<OsString>,
    /// What its runs are labelled with.
    pub labels: Vec<(String, String)>,
}

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The programs.
    pub subjects: Vec<Subject>,
    /// Leave the programs' output as it is, instead of discarding what they write to standard output and keeping what they write to standard
    /// error for the case of a failure.
    pub show_output: bool,
    /// How probed runs are traced; its command and streams are not used.
    pub trace: TraceOptions,
}

/// One run that has ended.
#[derive(Debug)]
pub struct Measurement {
    /// The run.
    pub recording: Recording,
    /// How it ended.
    pub status: ExitStatus,
}

/// Why a run could not be made or does not count.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The program could not be executed or traced.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The command of `prepare` failed.
    #[error("the command to prepare a run failed ({status}): {command}{said}")]
    Prepare {
        /// The command.
        command: String,
        /// Exit status or signal, in words.
        status: ExitStatus,
        /// What it wrote to standard error; begins with a line break, or is empty.
        said: String,
    },
    /// The process that starts the programs is gone.
    #[error("starting a program: {0}")]
    Launcher(#[from] io::Error),
}

impl From<CommandError> for MeasureError {
    fn from(error: CommandError) -> Self {
        MeasureError::Trace(error.into())
    }
}

/// Runs the programs, one at a time.
pub struct Runner {
    subjects: Vec<Subject>,
    jobs: Vec<Job>,
    trace: TraceOptions,
    launcher: Launcher,
    signals: Rc<Signals>,
    directory: PathBuf,
    errors: Option<Arc<File>>,
    /// Unique set sizes from warm-up runs that no bare run has yet, by subject.
    memory: Vec<VecDeque<u64>>,
}

/// Of what a program writes to standard error this much is shown, from its end.
const SHOWN: u64 = 2000;

impl Runner {
    /// Finds the programs. Call it while nodeprof has one thread and little memory: it forks. From then on signals that would end
    /// nodeprof are only noted.
    ///
    /// # Errors
    /// [`TraceError`]: a program is not found; nothing has run.
    pub fn start(settings: Settings) -> Result<Runner, TraceError> {
        let mut jobs = Vec::new();
        for subject in &settings.subjects {
            let name = subject.command.first().cloned().unwrap_or_default();
            jobs.push(Job {
                program: find_program(&name)?,
                arguments: subject.command.clone(),
            });
            jobs.push(Job {
                program: PathBuf::from("/bin/sh"),
                arguments: vec![
                    "sh".into(),
                    "-c".into(),
                    subject.prepare.clone().unwrap_or_default(),
                ],
            });
        }
        let mut streams = Streams::default();
        let mut errors = None;
        if !settings.show_output {
            let open = |write: bool| File::options().read(!write).write(write).open("/dev/null");
            let null = |write| {
                open(write)
                    .map(Arc::new)
                    .map_err(system("opening /dev/null"))
            };
            let kept = memory_file().map(Arc::new);
            let kept = kept.map_err(system("making a file in memory"))?;
            streams = Streams {
                input: Some(null(false)?),
                output: Some(null(true)?),
                error: Some(Arc::clone(&kept)),
            };
            errors = Some(kept);
        }
        let signals = Signals::block().map_err(system("blocking signals"))?;
        let invoker = Invoker::behind_sudo();
        let launcher = Launcher::start(&jobs, &streams, invoker.as_ref(), signals.mask())
            .map_err(system("starting a process"))?;
        Ok(Runner {
            memory: vec![VecDeque::new(); settings.subjects.len()],
            jobs,
            trace: TraceOptions {
                streams,
                ..settings.trace
            },
            subjects: settings.subjects,
            launcher,
            signals: Rc::new(signals),
            directory: std::env::current_dir().unwrap_or_default(),
            errors,
        })
    }

    /// The programs.
    pub fn subjects(&self) -> &[Subject] {
        &self.subjects
    }

    /// Whether the user wants it to end: the run during which that happened does not count.
    pub fn interrupted(&self) -> bool {
        self.signals.pass_on(None);
        self.ended_by().is_some()
    }

    /// The signal by which the user told it to end.
    pub fn ended_by(&self) -> Option<i32> {
        self.signals.asked_to_end()
    }

    /// Runs a program without timing it, and reads its private dirty memory at its exit; the next bare run of the program gets that.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn warm_up(&mut self, subject: usize) -> Result<ExitStatus, MeasureError> {
        let ended = self.launch(subject, true)?;
        if let Some((memory, bytes)) = self.memory.get_mut(subject).zip(ended.uss_bytes) {
            memory.push_back(bytes);
        }
        Ok(ExitStatus::from_raw(ended.status))
    }

    /// Runs a program without probes.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn bare(
        &mut self,
        subject: usize,
        labels: &[(String, String)],
    ) -> Result<Measurement, MeasureError> {
        let mut ended = self.launch(subject, false)?;
        let memory = self.memory.get_mut(subject);
        ended.uss_bytes = memory.and_then(VecDeque::pop_front);
        Ok(Measurement {
            recording: self.recording(subject, &ended, labels),
            status: ExitStatus::from_raw(ended.status),
        })
    }

    /// Runs a program with probes, and waits until they are gone.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn probed(
        &mut self,
        subject: usize,
        labels: &[(String, String)],
    ) -> Result<Measurement, MeasureError> {
        self.prepare(subject)?;
        let options = TraceOptions {
            command: self.command(subject),
            ..self.trace.clone()
        };
        let Traced {
            mut recording,
            child,
            leaving,
            ..
        } = trace_with(&options, Rc::clone(&self.signals))?;
        for run in &mut recording.runs {
            run.labels = self.labels(subject, labels);
        }
        let status = child.wait()?;
        leaving.wait();
        Ok(Measurement { recording, status })
    }

    /// The end of what the last run wrote to standard error, from the beginning of a line; empty if that was not kept.
    pub fn said(&self) -> String {
        let Some(file) = &self.errors else {
            return String::new();
        };
        let mut file: &File = file;
        let mut bytes = Vec::new();
        let length = file.metadata().map_or(0, |m| m.len());
        let read = file
            .seek(io::SeekFrom::Start(length.saturating_sub(SHOWN)))
            .and_then(|_| file.read_to_end(&mut bytes));
        if read.is_err() {
            return String::new();
        }
        end_of(&bytes, length > SHOWN)
    }

    fn command(&self, subject: usize) -> Vec<OsString> {
        let subject = self.subjects.get(subject);
        subject.map(|s| s.command.clone()).unwrap_or_default()
    }

    fn labels(&self, subject: usize, more: &[(String, String)]) -> Vec<(String, String)> {
        let own = self.subjects.get(subject).map(|s| s.labels.clone());
        let mut labels = own.unwrap_or_default();
        labels.extend_from_slice(more);
        labels.extend(crate::machine::labels());
        labels
    }

    /// Empties the file for standard error, and runs the command that prepares a run.
    fn prepare(&self, subject: usize) -> Result<(), MeasureError> {
        self.forget_errors()?;
        let command = self.subjects.get(subject).and_then(|s| s.prepare.as_ref());
        let Some(command) = command else {
            return Ok(());
        };
        let ended = self
            .launcher
            .run(2 * subject + 1, false, &self.signals)?
            .map_err(|error| CommandError::of_exec("/bin/sh".as_ref(), &error))?;
        let status = ExitStatus::from_raw(ended.status);
        if !status.success() {
            let said = self.said();
            return Err(MeasureError::Prepare {
                command: command.to_string_lossy().into_owned(),
                status,
                said: match said.is_empty() {
                    true => said,
                    false => format!("\n{said}"),
                },
            });
        }
        self.forget_errors()?;
        Ok(())
    }

    fn forget_errors(&self) -> io::Result<()> {
        if let Some(file) = &self.errors {
            file.set_len(0)?;
            (&**file).rewind()?;
        }
        Ok(())
    }

    fn launch(&self, subject: usize, watch_memory: bool) -> Result<Ended, MeasureError> {
        self.prepare(subject)?;
        let program = self.jobs.get(2 * subject).map(|job| job.program.clone());
        let outcome = self
            .launcher
            .run(2 * subject, watch_memory, &self.signals)?;
        Ok(outcome.map_err(|error| CommandError::of_exec(&program.unwrap_or_default(), &error))?)
    }

    /// A recording of a run without probes: times and memory of its process.
    fn recording(&self, subject: usize, ended: &Ended, labels: &[(String, String)]) -> Recording {
        let status = ExitStatus::from_raw(ended.status);
        let arguments: Vec<Vec<u8>> = self
            .command(subject)
            .iter()
            .map(|a| a.as_bytes().to_vec())
            .collect();
        let program = self.jobs.get(2 * subject).map(|job| &job.program);
        let path = program.map(|p| p.as_os_str().as_bytes().to_vec());
        Recording {
            runs: vec![Run {
                command: arguments.clone(),
                directory: self.directory.as_os_str().as_bytes().to_vec(),
                started_unix_ns: ended.started_unix_ns,
                started: Nanoseconds(ended.started),
                ended: Nanoseconds(ended.ended),
                ended_by: "exit".into(),
                mode: BARE.into(),
                exit_status: status.code(),
                signal: status.signal(),
                sample_hz: None,
                labels: self.labels(subject, labels),
            }],
            processes: vec![Process {
                run: RunId(0),
                pid: ended.pid,
                forked: Nanoseconds(ended.forked),
                execs: vec![Exec {
                    at: Nanoseconds(ended.started),
                    path: path.unwrap_or_default(),
                    arguments,
                }],
                exited: Some(Nanoseconds(ended.ended)),
                exit_status: status.code(),
                signal: status.signal(),
                user: Some(Nanoseconds(ended.user_ns)),
                system: Some(Nanoseconds(ended.system_ns)),
                max_rss_bytes: Some(ended.max_rss_bytes),
                uss_exit_bytes: ended.uss_bytes,
                ..Process::default()
            }],
            ..Recording::default()
        }
    }
}

fn memory_file() -> io::Result<File> {
    // SAFETY: a NUL-terminated name.
    let descriptor = unsafe { libc::memfd_create(c"standard error".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// The last lines of what was written, of which `bytes` are the end; `is_cut`: there was more before them.
fn end_of(bytes: &[u8], is_cut: bool) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end();
    match text.split_once('\n') {
        Some((_, whole)) if is_cut && !whole.trim().is_empty() => whole.to_owned(),
        // One line that is longer than what is shown.
        _ if is_cut && !text.is_empty() => format!("…{}", text.trim_start_matches('\u{fffd}')),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_said_last_is_shown_from_the_beginning_of_a_line_if_it_has_one() {
        assert_eq!(end_of(b"first\nsecond\n\n", false), "first\nsecond");
        assert_eq!(end_of(b"of a line\nsecond\nthird\n", true), "second\nthird");
        // Of a line without an end, and of one whose end is all that follows: what there is of it.
        assert_eq!(end_of(b"{\"error\":1}", true), "…{\"error\":1}");
        assert_eq!(end_of(b"{\"error\":1}\n\n", true), "…{\"error\":1}");
        // The last byte of a character that was cut.
        assert_eq!(end_of(b"\xa9 error", true), "… error");
        assert_eq!(end_of(b"", false), "");
    }
}
