//! Processes whose probes came after their exec.
//!
//! A node binary that nobody knew of is stopped after its exec, before its main. Two things follow: the record is
//! complete if the beginning of main was seen after all; and the time for which it was stopped is not the program's.
//! It counts as spent before the exec, where the exec of a known binary is held.

use std::collections::HashMap;

use nodeprof_profile::recording::{Nanoseconds, ProcessId, Recording, Wait};

/// A process that was kept stopped.
struct Stop {
    process: ProcessId,
    from: u64,
    to: u64,
}

/// See the module.
#[derive(Default)]
pub struct Late {
    /// Processes whose main has not been seen to begin.
    expected: HashMap<ProcessId, Reason>,
    stops: Vec<Stop>,
}

/// Why a main was not seen.
struct Reason {
    text: String,
    /// It ran meanwhile: even if no probe was ever hit, something was missed.
    ran: bool,
    /// Only its calls are asked for, and before its main environment is made there are none.
    calls_only: bool,
}

impl Late {
    /// Probes were attached after an exec.
    pub fn expect_main(&mut self, process: ProcessId) {
        let why = "probes came after its main had begun: the process could not be stopped in time";
        self.expected.entry(process).or_insert_with(|| Reason {
            text: why.into(),
            ran: false,
            calls_only: false,
        });
    }

    /// It could not be stopped, so it runs while its probes are made.
    pub fn not_stopped(&mut self, process: ProcessId, text: String) {
        self.expect(process, text, false);
    }

    /// As [`not_stopped`](Late::not_stopped), where only calls are asked for.
    pub fn held_too_short(&mut self, process: ProcessId, text: String) {
        self.expect(process, text, true);
    }

    fn expect(&mut self, process: ProcessId, text: String, calls_only: bool) {
        let reason = Reason {
            text,
            ran: true,
            calls_only,
        };
        self.expected.insert(process, reason);
    }

    /// Main begins. Whether that was waited for: then this record is for nobody else.
    pub fn main_begins(&mut self, process: ProcessId) -> bool {
        self.expected.remove(&process).is_some()
    }

    /// Its main environment begins.
    pub fn environment_begins(&mut self, process: ProcessId) {
        if self.expected.get(&process).is_some_and(|r| r.calls_only) {
            self.expected.remove(&process);
        }
    }

    /// It stood still, by CLOCK_MONOTONIC.
    pub fn stopped(&mut self, process: ProcessId, from: u64, to: u64) {
        let to = to.max(from);
        self.stops.push(Stop { process, from, to });
    }

    /// Takes the stops off the recording's times; gives the processes that ran before they had their probes.
    pub fn finish(&mut self, recording: &mut Recording) -> Vec<(ProcessId, String)> {
        for stop in std::mem::take(&mut self.stops) {
            stop.take_off(recording);
        }
        let mut missed: Vec<_> = std::mem::take(&mut self.expected)
            .into_iter()
            .filter(|(process, why)| why.ran || has_hits(recording, *process))
            .map(|(process, why)| (process, why.text))
            .collect();
        missed.sort_by_key(|m| m.0);
        missed
    }
}

/// Whether any probe was hit: one that was not even reached missed nothing.
fn has_hits(recording: &Recording, process: ProcessId) -> bool {
    recording.crossings.iter().any(|x| x.process == process)
        || recording.crossing_sums.iter().any(|x| x.process == process)
        || recording
            .serializations
            .iter()
            .any(|x| x.process == process)
        || recording.milestones.iter().any(|x| x.process == process)
        || recording.spans.iter().any(|x| x.process == process)
        || recording.lookups.iter().any(|x| x.process == process)
        || recording.compilations.iter().any(|x| x.process == process)
}

impl Stop {
    /// Moves what the process did between its exec and the stop to just before it went on.
    fn take_off(&self, recording: &mut Recording) {
        let Some(process) = recording.processes.get_mut(self.process.0 as usize) else {
            return;
        };
        let before = |at: &Nanoseconds| at.0 <= self.from;
        let Some(exec) = process.execs.iter_mut().rev().find(|e| before(&e.at)) else {
            return;
        };
        let begun = exec.at;
        let moved = |at: Nanoseconds| Nanoseconds(at.0 + (self.to - self.from));
        exec.at = moved(exec.at);
        let mine = |process: ProcessId, at: Nanoseconds| {
            process == self.process && at >= begun && before(&at)
        };
        for file in recording
            .files
            .iter_mut()
            .filter(|f| mine(f.process, f.start))
        {
            file.start = moved(file.start);
        }
        for sample in recording
            .samples
            .iter_mut()
            .filter(|s| mine(s.process, s.at))
        {
            sample.at = moved(sample.at);
        }
        recording
            .waits
            .retain_mut(|wait| wait.process != self.process || self.shorten(wait, begun));
    }

    /// Takes the stop out of a wait; tells whether anything is left of it.
    fn shorten(&self, wait: &mut Wait, begun: Nanoseconds) -> bool {
        let (start, end) = (wait.start.0, wait.start.0 + wait.duration.0);
        if wait.start < begun || start > self.to {
            return true;
        }
        let stopped = end.min(self.to).saturating_sub(start.max(self.from));
        wait.duration.0 -= stopped;
        wait.runnable = wait.runnable.min(wait.duration);
        wait.start.0 = start.min(self.from) + (self.to - self.from);
        stopped == 0 || wait.duration.0 > 0
    }
}

#[cfg(test)]
mod tests {
    use nodeprof_profile::recording::{
        Exec, FileAccess, FileOperation, NameId, Process, Span, ThreadId, WaitReason,
    };

    use super::*;

    const FIRST: ProcessId = ProcessId(0);
    const SECOND: ProcessId = ProcessId(1);

    /// Two processes: the second executes at 100 and 1000, and opens a file at 1010 and at 9000.
    fn recording() -> Recording {
        let mut recording = Recording::default();
        for _ in 0..2 {
            recording.processes.push(Process {
                execs: [100, 1000]
                    .map(|at| Exec {
                        at: Nanoseconds(at),
                        ..Exec::default()
                    })
                    .into(),
                ..Process::default()
            });
        }
        for (process, start) in [(FIRST, 1010), (SECOND, 1010), (SECOND, 9000)] {
            recording.files.push(FileAccess {
                process,
                thread: ThreadId(0),
                start: Nanoseconds(start),
                duration: Nanoseconds(1),
                operation: FileOperation::Open,
                syscall: 257,
                path: NameId(0),
                result: 3,
                stack: None,
            });
        }
        recording
    }

    fn wait(start: u64, duration: u64) -> Wait {
        Wait {
            process: SECOND,
            thread: ThreadId(0),
            start: Nanoseconds(start),
            duration: Nanoseconds(duration),
            runnable: Nanoseconds(duration),
            reason: WaitReason::Other,
            syscall: None,
            stack: None,
        }
    }

    #[test]
    fn a_stop_counts_as_spent_before_the_exec() {
        let mut recording = recording();
        recording.waits = vec![
            wait(1005, 5),
            wait(1020, 5000),
            wait(1015, 5010),
            wait(7000, 10),
        ];
        let mut late = Late::default();
        late.stopped(SECOND, 1020, 6020);
        assert_eq!(late.finish(&mut recording), []);
        let execs = |p: usize| -> Vec<u64> {
            recording.processes[p]
                .execs
                .iter()
                .map(|e| e.at.0)
                .collect()
        };
        assert_eq!(execs(0), [100, 1000]);
        assert_eq!(execs(1), [100, 6000]);
        let files: Vec<u64> = recording.files.iter().map(|f| f.start.0).collect();
        assert_eq!(files, [1010, 6010, 9000]);
        let waits: Vec<_> = recording
            .waits
            .iter()
            .map(|w| (w.start.0, w.duration.0))
            .collect();
        assert_eq!(waits, [(6005, 5), (6015, 10), (7000, 10)]);
    }

    #[test]
    fn a_record_is_complete_if_its_main_was_seen_to_begin() {
        let mut late = Late::default();
        late.expect_main(SECOND);
        assert!(late.main_begins(SECOND));
        assert!(!late.main_begins(SECOND), "a later main is an ordinary one");
        assert_eq!(late.finish(&mut recording()), []);
    }

    #[test]
    fn a_record_is_not_complete_if_probes_were_hit_before_main_was_seen() {
        let mut recording = recording();
        let mut late = Late::default();
        late.expect_main(FIRST);
        late.expect_main(SECOND);
        late.not_stopped(SECOND, "it is being debugged".into());
        recording.spans.push(Span {
            process: SECOND,
            thread: ThreadId(0),
            name: NameId(0),
            start: Nanoseconds(2000),
            duration: None,
        });
        let missed = late.finish(&mut recording);
        assert_eq!(missed, [(SECOND, "it is being debugged".to_string())]);
    }

    #[test]
    fn where_calls_alone_are_asked_for_the_main_environment_proves_enough() {
        let mut late = Late::default();
        late.held_too_short(FIRST, "late".into());
        late.not_stopped(SECOND, "late".into());
        late.environment_begins(FIRST);
        late.environment_begins(SECOND);
        let missed = late.finish(&mut Recording::default());
        assert_eq!(missed, [(SECOND, "late".to_owned())]);
    }
}
