//! What part of a run to show: its processes, its threads, a span of time.

use std::str::FromStr;

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::{PhaseId, Timeline};
use nodeprof_profile::recording::{Nanoseconds, ProcessId, RunId, Sample, ThreadId};
use nodeprof_profile::typed;

use crate::fold::Metric;
use crate::text::words::phase_name;
use crate::units::time;

/// Which threads of the selected processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The main thread of each.
    Main,
    /// All.
    All,
    /// The one that the kernel gave this number.
    One(ThreadId),
}

/// Not a choice of threads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found {0:?}; needed: main, all, or the number of a thread")]
pub struct NotThreads(String);

impl FromStr for Threads {
    type Err = NotThreads;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "main" => Ok(Threads::Main),
            "all" => Ok(Threads::All),
            number => match number.parse() {
                Ok(number) => Ok(Threads::One(ThreadId(number))),
                Err(_) => Err(NotThreads(text.to_owned())),
            },
        }
    }
}

/// A point in time: a milestone or phase by name, or a time since the exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// `loop_start`, `bootstrap`. Of a phase, its start or its end, as it fits.
    Named(String),
    /// Since the exec.
    After(Nanoseconds),
}

/// Not a point in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "found {0}; needed: a milestone or phase such as loop_start, or since the exec {TIME}; type for example 12ms",
    TIME = typed::TIME
)]
pub struct NotAPoint(String);

impl FromStr for Point {
    type Err = NotAPoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotAPoint(format!("{text:?}"));
        if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            let named = text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_+- ".contains(c));
            // As a report prints it, too: `event loop`, `platform + V8`.
            let name = text.to_ascii_lowercase().replace(" + ", "+");
            let name = name.trim().replace(['-', ' '], "_");
            let parts: Vec<&str> = name
                .split('+')
                .map(|part| match part {
                    "event_loop" => "loop",
                    // Alone, it is the instant.
                    "exec" if name.contains('+') => "process",
                    part => part,
                })
                .collect();
            return match named && text.starts_with(|c: char| c.is_ascii_alphabetic()) {
                true => Ok(Point::Named(parts.join("+"))),
                false => Err(wrong()),
            };
        }
        match typed::time(text) {
            // No run lasts 104 days.
            Ok(ns) if ns < 9e15 => Ok(Point::After(Nanoseconds(ns.round() as u64))),
            Ok(_) => Err(NotAPoint(format!("{text:?}, which is too long"))),
            Err(found) => Err(NotAPoint(found.to_string())),
        }
    }
}

/// What part of a run to show. The default is all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Which threads. `None`: the main ones for times off the CPU, where those of a thread pool would drown all
    /// else; all threads for every other metric.
    pub threads: Option<Threads>,
    /// The only process to show, by its pid.
    pub process: Option<u32>,
    /// What comes before is left out.
    pub from: Option<Point>,
    /// What comes at this instant and after is left out.
    pub until: Option<Point>,
}

/// Why there is no such part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No process with that pid.
    #[error("found: no process {pid} in this run; needed: one of {known}")]
    NoSuchProcess {
        /// Asked for.
        pid: u32,
        /// Those that there are.
        known: String,
    },
    /// A milestone or phase that is not of the process.
    #[error(
        "found: no milestone or phase {name} in this run; needed: one of {known}, or a time since the exec such as 12ms"
    )]
    NoSuchPoint {
        /// Asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// It ends before it begins.
    #[error(
        "found: a span that ends {until} after the exec, but begins {from} after it; needed: an end after the beginning (--from, --until)"
    )]
    Empty {
        /// Its beginning.
        from: String,
        /// Its end.
        until: String,
    },
}

/// A selection with names looked up: what is in it can be asked for each event.
pub(crate) struct Selected {
    pub(crate) run: RunId,
    processes: Vec<bool>,
    pids: Vec<u32>,
    pub(crate) threads: Threads,
    /// First instant that is shown.
    pub(crate) from: Nanoseconds,
    /// First instant after `from` that is not shown.
    pub(crate) until: Nanoseconds,
    /// Which threads and which span, for a title.
    pub(crate) words: String,
}

impl Selected {
    pub(crate) fn new(
        selection: &Selection,
        metric: Metric,
        recording: &Recording,
        timeline: &Timeline,
        run: RunId,
    ) -> Result<Selected, SelectError> {
        let mut processes = Vec::with_capacity(recording.processes.len());
        let mut chosen = None;
        for (index, process) in recording.processes.iter().enumerate() {
            let of_run = process.run == run;
            let fits = of_run && selection.process.is_none_or(|pid| pid == process.pid);
            processes.push(fits);
            if fits && chosen.is_none() && selection.process.is_some() {
                chosen = Some(ProcessId(index as u32));
            }
        }
        if let (Some(pid), None) = (selection.process, chosen) {
            let of_run = recording
                .processes
                .iter()
                .filter(|process| process.run == run);
            let known: Vec<String> = of_run.map(|process| process.pid.to_string()).collect();
            let known = known.join(", ");
            return Err(SelectError::NoSuchProcess { pid, known });
        }
        let points = Points::new(
            recording,
            timeline,
            run,
            chosen.or(timeline.main_process(run)),
        );
        // The phase that a report calls so, where the name of the instant says nothing.
        let exec = Point::Named("exec".to_owned());
        let process = Point::Named("process".to_owned());
        let is_phase =
            [&selection.from, &selection.until].map(|point| point.as_ref() == Some(&exec));
        let (from, until) = match is_phase {
            [true, true] => (Some(&process), Some(&process)),
            _ => (selection.from.as_ref(), selection.until.as_ref()),
        };
        let from = points.resolve(from, false)?;
        let until = points.resolve(until, true)?;
        let threads = selection.threads.unwrap_or(match metric {
            Metric::OffCpu | Metric::Wall => Threads::Main,
            _ => Threads::All,
        });
        if let (Some(from), Some(until)) = (from, until)
            && until <= from
        {
            let shown = |at| time(points.after(at));
            return Err(SelectError::Empty {
                from: shown(from),
                until: shown(until),
            });
        }
        let mut words = match threads {
            Threads::Main => "main thread".to_owned(),
            Threads::All => "all threads".to_owned(),
            Threads::One(thread) => format!("thread {}", thread.0),
        };
        if let Some(pid) = selection.process {
            words.push_str(&format!(" of process {pid}"));
        }
        let side = |point: &Point| match point {
            Point::Named(name) => name.clone(),
            Point::After(ns) => time(ns.0),
        };
        words.push_str(&match (&selection.from, &selection.until) {
            (None, None) => String::new(),
            (Some(from), Some(until)) if from == until => format!(" · {}", side(from)),
            (Some(from), None) => format!(" · from {} on", side(from)),
            (None, Some(until)) => format!(" · until {}", side(until)),
            (Some(from), Some(until)) => format!(" · from {} until {}", side(from), side(until)),
        });
        Ok(Selected {
            run,
            processes,
            pids: recording
                .processes
                .iter()
                .map(|process| process.pid)
                .collect(),
            threads,
            from: from.unwrap_or_default(),
            until: until.unwrap_or(Nanoseconds(u64::MAX)),
            words,
        })
    }

    pub(crate) fn has_thread(&self, process: ProcessId, thread: ThreadId) -> bool {
        let index = process.0 as usize;
        self.processes.get(index).copied().unwrap_or_default()
            && match self.threads {
                Threads::All => true,
                Threads::Main => self.pids[index] == thread.0,
                Threads::One(one) => one == thread,
            }
    }

    pub(crate) fn has(&self, process: ProcessId, thread: ThreadId, at: Nanoseconds) -> bool {
        (self.from..self.until).contains(&at) && self.has_thread(process, thread)
    }

    /// Whether a sum over a phase is in it: it has no thread, and so counts as the main one's; and it cannot be cut.
    pub(crate) fn has_sum(
        &self,
        timeline: &Timeline,
        process: ProcessId,
        phase: PhaseId,
    ) -> SumFit {
        let Some(&pid) = self.pids.get(process.0 as usize) else {
            return SumFit::Out;
        };
        if !self.has_thread(process, ThreadId(pid)) {
            return SumFit::Out;
        }
        let Some(span) = timeline.phases(process).get(phase.0 as usize) else {
            return SumFit::Out;
        };
        if span.end <= self.from || span.start >= self.until {
            SumFit::Out
        } else if span.start < self.from || span.end > self.until {
            SumFit::Cut
        } else {
            SumFit::In
        }
    }
}

/// When the time began that a sample stands for: it is taken at its end.
pub(crate) fn start_of(sample: &Sample) -> Nanoseconds {
    Nanoseconds(sample.at.0.saturating_sub(sample.weight.0))
}

/// Whether what was only summed over a phase is part of a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumFit {
    In,
    Out,
    /// In part; which part is not known.
    Cut,
}

/// The points in time that can be named.
struct Points {
    origin: Nanoseconds,
    milestones: Vec<(String, Nanoseconds)>,
    phases: Vec<(String, Nanoseconds, Nanoseconds)>,
}

impl Points {
    fn new(
        recording: &Recording,
        timeline: &Timeline,
        run: RunId,
        of: Option<ProcessId>,
    ) -> Points {
        let description = recording.runs.get(run.0 as usize);
        let started = description.map(|run| run.started).unwrap_or_default();
        let mut points = Points {
            origin: started,
            milestones: Vec::new(),
            phases: Vec::new(),
        };
        let mut ended = description.map(|run| run.ended);
        if let Some(process) = of {
            points.origin = timeline.exec(process).unwrap_or(started);
            for name in [
                "node_start",
                "v8_start",
                "environment",
                "bootstrap_complete",
                "loop_start",
                "loop_exit",
            ] {
                if let Some(at) = timeline.milestone(process, name) {
                    points.milestones.push((name.to_owned(), at));
                }
            }
            for phase in timeline.phases(process) {
                points
                    .phases
                    .push((phase.name.to_string(), phase.start, phase.end));
            }
            let exited = recording
                .processes
                .get(process.0 as usize)
                .and_then(|process| process.exited);
            ended = exited.or(ended);
        }
        points
            .milestones
            .insert(0, ("exec".to_owned(), points.origin));
        if let Some(ended) = ended {
            points.milestones.push(("exit".to_owned(), ended));
        }
        points
    }

    fn after(&self, at: Nanoseconds) -> u64 {
        at.0.saturating_sub(self.origin.0)
    }

    /// A phase as the JSON calls it, and as a report prints it where that is another name.
    fn named(&self, phase: &str) -> String {
        let printed = phase_name(phase);
        let is_same = printed.to_ascii_lowercase().replace(' ', "_") == phase
            || self.milestones.iter().any(|(known, _)| *known == printed);
        match is_same {
            true => phase.to_owned(),
            false => format!("{phase} (or '{printed}')"),
        }
    }

    fn resolve(
        &self,
        point: Option<&Point>,
        end: bool,
    ) -> Result<Option<Nanoseconds>, SelectError> {
        let name = match point {
            None => return Ok(None),
            Some(Point::After(ns)) => {
                return Ok(Some(Nanoseconds(self.origin.0.saturating_add(ns.0))));
            }
            Some(Point::Named(name)) => name,
        };
        let milestone = self.milestones.iter().find(|(known, _)| known == name);
        let phase = self.phases.iter().find(|(known, ..)| known == name);
        match (milestone, phase) {
            (Some(&(_, at)), _) => Ok(Some(at)),
            (None, Some(&(_, from, until))) => Ok(Some(if end { until } else { from })),
            (None, None) => Err(SelectError::NoSuchPoint {
                name: name.clone(),
                known: (self.milestones.iter().map(|(name, _)| name.clone()))
                    .chain(self.phases.iter().map(|(name, ..)| self.named(name)))
                    .collect::<Vec<_>>()
                    .join(", "),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_names_or_times() {
        let after = |ns| Ok(Point::After(Nanoseconds(ns)));
        assert_eq!("12ms".parse(), after(12_000_000));
        assert_eq!("1.5s".parse(), after(1_500_000_000));
        assert_eq!("7us".parse(), after(7_000));
        assert_eq!("0ns".parse(), after(0));
        assert_eq!("1h".parse(), after(3_600_000_000_000));
        assert_eq!("loop-start".parse(), Ok(Point::Named("loop_start".into())));
        assert_eq!(
            "platform+v8".parse(),
            Ok(Point::Named("platform+v8".into()))
        );
        for (printed, name) in [
            ("event loop", "loop"),
            ("platform + V8", "platform+v8"),
            ("V8 + bootstrap", "v8+bootstrap"),
            ("main script", "main_script"),
            ("main script + event loop", "main_script+loop"),
            ("exec + platform", "process+platform"),
            ("exec", "exec"),
        ] {
            assert_eq!(printed.parse(), Ok(Point::Named(name.into())), "{printed}");
        }
        for wrong in ["", "12", "1y", "-1ms", "1e400s", "a.b", "_x", "1..2ms"] {
            assert!(wrong.parse::<Point>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_point_that_is_not_there_names_those_that_are_as_a_report_prints_them_too() {
        let phase = |name: &str| (name.to_owned(), Nanoseconds(0), Nanoseconds(1));
        let points = Points {
            origin: Nanoseconds(0),
            milestones: vec![("exec".to_owned(), Nanoseconds(0))],
            phases: ["process", "v8", "main_script", "loop"].map(phase).into(),
        };
        let error = points.resolve(Some(&Point::Named("lop".into())), true);
        let known = "exec, process, v8, main_script, loop (or 'event loop')".to_owned();
        let name = "lop".to_owned();
        assert_eq!(error, Err(SelectError::NoSuchPoint { name, known }));
    }

    #[test]
    fn threads_are_words_or_numbers() {
        assert_eq!("main".parse(), Ok(Threads::Main));
        assert_eq!("all".parse(), Ok(Threads::All));
        assert_eq!("17".parse(), Ok(Threads::One(ThreadId(17))));
        assert!("some".parse::<Threads>().is_err());
    }
}
