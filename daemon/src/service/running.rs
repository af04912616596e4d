//! A start under way, and the recording that it becomes.

use std::{os::unix::ffi::OsStrExt as _, path::Path, sync::Arc, time::Duration};

use nodeprof_bpf::{Counters, Taken};
use nodeprof_probes::plan::AttachPlan;
use nodeprof_profile::{
    groups::COUNT_MODE,
    recording::{FamilyState, Loss, Nanoseconds, Overhead, ProbeHits, Recording, Run, RunId},
};

use super::{
    LATER_LOOK_IN, LOOK_IN,
    config::{Config, Labels, Rules},
    context::Context,
    lane,
};
use crate::recorder::{Assembler, FAMILIES, Mode, add_packages, now};

/// Kind of a loss, and the counter of it.
pub(super) type LossOfHost = (&'static str, fn(&Counters) -> u64);

/// Of which start the sums of calls could not be read is known.
const SUMS_UNREAD: &str = "sums_unread";

/// Losses that the kernel side counts, for all starts of the host in one: each start has those of its own time, but for [`SUMS_UNREAD`].
pub(super) const OF_HOST: [LossOfHost; 10] = [
    ("records", |c| c.ring_full),
    ("sums_full", |c| c.sums_full),
    ("stacks", |c| c.stacks_lost),
    ("threads_not_followed", |c| c.no_state),
    ("memory_unreadable", |c| c.unreadable),
    ("unmatched_exits", |c| c.unmatched_exits),
    ("abandoned_frames", |c| c.abandoned),
    ("frames_too_deep", |c| c.too_deep),
    ("sources", |c| c.sources_lost),
    (SUMS_UNREAD, |c| c.sums_unread),
];

/// How many of each of [`OF_HOST`].
pub(super) type Losses = [u64; OF_HOST.len()];

/// All of [`OF_HOST`], each once.
pub(super) fn losses_of_host(counters: &Counters) -> Losses {
    OF_HOST.map(|(_, of)| of(counters))
}

/// What a process executes.
pub(super) struct Program<'a> {
    pub(super) path: &'a Path,
    /// Device and inode.
    pub(super) file: Option<(u64, u64)>,
    pub(super) context: Context,
}

/// A start under way.
pub(super) struct Running {
    pub(super) assembler: Assembler,
    pub(super) mode: Mode,
    pub(super) context: Context,
    pub(super) started_unix_ns: u64,
    pub(super) attached_at: u64,
    pub(super) attach_ns: u64,
    pub(super) executed: Option<u64>,
    /// Arguments of its first exec, if that was told.
    pub(super) command: Vec<Vec<u8>>,
    /// Its probes came so long after its exec.
    pub(super) late: Option<Duration>,
    /// Of the starts that the rules admitted at its time one in so many was recorded, because of the ceiling.
    pub(super) one_in: u32,
    pub(super) loop_started: Option<u64>,
    pub(super) exited: bool,
    /// It was not there any more in the last round.
    pub(super) gone: bool,
    /// The holder, and its probes with it, ended before it was known to have executed its program: that is told no more.
    pub(super) is_cut: bool,
    /// By its command, which is known since its exec, it is not to be recorded.
    pub(super) unwanted: bool,
    /// Between 0 and 1: decides, once for all that it executes, where a rule on the command takes one in many.
    pub(super) lot: f64,
    /// It was executed with an environment that the kernel side has not told.
    pub(super) awaits_environment: bool,
    /// Why its environment is not known: it was asked for, and could not be read. What the kernel side tells of it may still come.
    pub(super) no_environment: Option<String>,
    /// Why its file operations are not recorded, though they are wanted.
    pub(super) no_files: Option<String>,
    /// Counters when it began.
    pub(super) counters: Counters,
    /// Records that had found no room before its exec.
    pub(super) ring_full: u64,
}

impl Running {
    /// How long it can do without anybody who looks in.
    pub(super) fn patience(&self, config: &Config) -> Duration {
        // Names of code are asked for while there is somebody to ask; whether a rule on the command means it is known from its exec on.
        if self.mode == Mode::Full || self.executed.is_none() || self.gone {
            return LOOK_IN;
        }
        let left = |of: Duration, since: Option<u64>| match since {
            Some(at) => of.saturating_sub(Duration::from_nanos(now().saturating_sub(at))),
            None => of,
        };
        let due = left(config.settle, self.loop_started).min(left(config.limit, self.executed));
        due.clamp(LOOK_IN, LATER_LOOK_IN)
    }

    /// Whether it has executed its program, and is to be recorded, as far as is known.
    pub(super) fn is_start(&self) -> bool {
        self.executed.is_some() && !self.unwanted
    }

    /// It has executed its program, with these arguments.
    pub(super) fn take_command(&mut self, pid: u32, is_whole: bool) {
        let execs = self.assembler.find_process(pid).map(|p| &p.execs);
        let is_first = execs.is_some_and(|execs| execs.len() == 1);
        let told = execs.and_then(|execs| execs.last());
        let told = told.map(|exec| exec.arguments.clone());
        self.context
            .take_command(told.unwrap_or_default(), is_whole);
        if is_first {
            self.command = self.context.kept_command();
        }
        self.awaits_environment = true;
    }

    /// It runs its program, as is seen by what came after the exec: the record of that found no room.
    pub(super) fn miss_exec(&mut self, pid: u32, labels: &Labels) {
        self.executed = Some(now());
        self.read_program(pid, labels);
        self.hole("the record of its exec found no room in the buffer".into());
    }

    /// Asks the rules again, now that its command is known.
    pub(super) fn ask_rules(&mut self, config: &Config) {
        let without_full = self
            .context
            .lacks_full
            .then(|| config.rules.in_count_mode());
        let rules = without_full.as_ref().unwrap_or(&config.rules);
        self.unwanted = rules.ask_command()
            && !rules.wants(
                &self.context.start(),
                self.mode,
                self.lot,
                self.context.one_in,
            );
    }

    /// Whether the rules want it in full mode, and nobody recorded in that when it began.
    pub(super) fn is_instead_of_full(&self, rules: &Rules) -> bool {
        self.context.lacks_full && rules.one_in(&self.context.start(), Mode::Count) == 0
    }

    /// Whether full mode may have it: of a start whose command nobody could read both modes may think that it is theirs.
    pub(super) fn may_be_of_full(&self, rules: &Rules) -> bool {
        let start = self.context.start();
        start.command.is_none() && rules.ask_command() && rules.one_in(&start, Mode::Full) > 0
    }

    pub(super) fn take_environment(&mut self, text: &[u8], labels: &Labels) {
        self.context.take_environment(text, labels);
        self.awaits_environment = false;
        self.no_environment = None;
    }

    /// Its environment is its owner's alone.
    pub(super) fn read_program(&mut self, pid: u32, labels: &Labels) {
        self.awaits_environment = false;
        let read = lane::with_rights(self.mode, || self.context.read_program(pid, labels));
        self.no_environment = read.and_then(|read| read).err().map(|e| e.to_string());
    }

    pub(super) fn add_image(&mut self, binary: u8, plan: Option<&(u32, Arc<AttachPlan>)>) {
        if let (false, Some((_, plan))) = (self.assembler.has_image(binary), plan) {
            self.assembler.add_image(binary, Arc::clone(plan));
        }
    }

    pub(super) fn hole(&mut self, why: String) {
        let pid = self.context.pid;
        self.assembler.incomplete(pid, why);
    }

    /// What was lost while it was recorded: by all that was at the same time, nobody can tell whose it was.
    fn losses(&mut self, counters: &Counters) -> Vec<Loss> {
        let since = |of| since_of(counters, &self.counters, of);
        let of_all = OF_HOST.iter().filter(|(kind, _)| *kind != SUMS_UNREAD);
        let of_all: Vec<_> = of_all.map(|(kind, of)| (*kind, since(*of))).collect();
        self.assembler.losses_with(&of_all)
    }

    /// What was seen, as a recording of one run.
    pub(super) fn close(
        mut self,
        pid: u32,
        ended_by: &str,
        sums: &Taken,
        counters: &Counters,
        config: &Config,
    ) -> Recording {
        let clock = now();
        if let Some(error) = self.no_environment.take() {
            self.hole(format!("its environment could not be read: {error}"));
        }
        self.assembler.add_sums(&sums.sums);
        if sums.is_unread {
            self.assembler.lose(SUMS_UNREAD, 1);
        }
        self.assembler.finish();
        if self.mode == Mode::Full {
            // Source maps are not read here.
            drop(self.assembler.finish_stacks());
        }
        let before = self.counters;
        let since = |of| since_of(counters, &before, of);
        let losses = self.losses(counters);
        let process = self
            .assembler
            .find_process(pid)
            .cloned()
            .unwrap_or_default();
        let exec = process.execs.first();
        let command = match self.command.is_empty() {
            true => self.context.kept_command(),
            false => self.command,
        };
        let started = exec.map_or(Nanoseconds(self.attached_at), |exec| exec.at);
        let mut labels = crate::machine::labels();
        labels.extend(self.context.labels());
        if self.one_in > 1 {
            labels.push(("one-in".into(), self.one_in.to_string()));
        }
        let mut recording = self.assembler.recording;
        if let Some(late) = self.late {
            for why in recording
                .processes
                .iter_mut()
                .filter_map(|p| p.incomplete.as_mut())
            {
                why.push_str(&format!(
                    "; they came {:.1} ms after its exec: at most that much of it is missing",
                    late.as_secs_f64() * 1e3
                ));
            }
        }
        recording.runs = vec![Run {
            command,
            directory: self.context.directory.as_os_str().as_bytes().to_vec(),
            started_unix_ns: self.started_unix_ns,
            started,
            ended: process.exited.unwrap_or(Nanoseconds(clock)),
            ended_by: ended_by.into(),
            mode: match self.mode {
                Mode::Count => COUNT_MODE,
                Mode::Full => "full",
            }
            .into(),
            exit_status: process.exit_status,
            signal: process.signal,
            sample_hz: None,
            labels,
        }];
        recording.families = families(self.mode, config.files, self.no_files.as_deref());
        recording.losses = losses;
        let hits = |family: &str, hits| ProbeHits {
            run: RunId(0),
            family: family.into(),
            hits,
        };
        recording.probe_hits = vec![
            hits("probes", since(|c| c.hits)),
            hits("syscalls", since(|c| c.syscalls)),
        ];
        recording.overheads = vec![Overhead {
            run: RunId(0),
            probe_hits: since(|c| c.hits),
            ns_per_hit: 0.0,
            setup_ns: 0,
            attach_ns: self.attach_ns,
        }];
        if !recording.stacks.is_empty() {
            // The lane reads as anybody, and so do the threads that it starts.
            add_packages(&mut recording, RunId(0), None);
        }
        recording
    }
}

/// Which families are recorded, and why not the others. `files`: whether the configuration wants those; `no_files`: why there are none all the same.
fn families(mode: Mode, files: bool, no_files: Option<&str>) -> Vec<FamilyState> {
    FAMILIES
        .iter()
        .map(|&name| {
            let off = match name {
                "files" if !files => {
                    Some("turned off in the configuration of nodeprofd")
                }
                "serialization" if mode == Mode::Full => None,
                "serialization" => {
                    Some("not part of count mode; to have it, type: nodeprof trace -- COMMAND")
                }
                "cpu" | "off-cpu" => Some(
                    "not recorded by nodeprofd, for it costs every program on the host something; to have it, type: nodeprof trace -- COMMAND",
                ),
                _ => None,
            };
            let failed = no_files.filter(|_| name == "files" && off.is_none());
            let state = match (off, failed) {
                (Some(_), _) => "off",
                (None, Some(_)) => "failed",
                (None, None) => "on",
            };
            FamilyState {
                run: RunId(0),
                name: name.into(),
                state: state.into(),
                reason: off.or(failed).map(str::to_owned),
            }
        })
        .collect()
}

/// What one of them counted from then to now.
fn since_of(now: &Counters, then: &Counters, of: fn(&Counters) -> u64) -> u64 {
    of(now).saturating_sub(of(then))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_could_not_be_recorded_says_why() {
        let of_files = |files, no_files| {
            let families = families(Mode::Count, files, no_files);
            let state = families.into_iter().find(|state| state.name == "files");
            state.map(|state| (state.state, state.reason)).unwrap()
        };
        assert_eq!(of_files(true, None), ("on".into(), None));
        let failed = ("failed".into(), Some("no memory".into()));
        assert_eq!(of_files(true, Some("no memory")), failed);
        assert_eq!(of_files(false, Some("no memory")).0, "off");
    }

    /// A start of this process, of which nothing was told yet.
    fn new(pid: u32) -> Running {
        let recording = Recording {
            runs: vec![Run::default()],
            ..Recording::default()
        };
        Running {
            assembler: Assembler::new(recording, RunId(0), pid, "/".as_ref()),
            mode: Mode::Count,
            context: Context::of(pid),
            started_unix_ns: 0,
            attached_at: 0,
            attach_ns: 0,
            executed: None,
            command: Vec::new(),
            late: None,
            one_in: 1,
            loop_started: None,
            exited: true,
            gone: false,
            is_cut: false,
            unwanted: false,
            lot: 0.0,
            awaits_environment: false,
            no_environment: None,
            no_files: None,
            counters: Counters::default(),
            ring_full: 0,
        }
    }

    #[test]
    fn sums_that_could_not_be_read_are_a_loss_of_their_own_start_alone() {
        let losses = |is_unread, of_all| {
            let taken = Taken {
                is_unread,
                ..Taken::default()
            };
            let counters = Counters {
                sums_unread: of_all,
                sums_full: 1,
                ..Counters::default()
            };
            let pid = std::process::id();
            let recording = new(pid).close(pid, "exit", &taken, &counters, &Config::default());
            ["sums_unread", "sums_full"].map(|kind| {
                let loss = recording.losses.iter().find(|loss| loss.kind == kind);
                loss.map_or(0, |loss| loss.count)
            })
        };
        assert_eq!(losses(false, 3), [0, 1]);
        assert_eq!(losses(true, 3), [1, 1]);
    }

    /// A start whose process has ended before anybody could read of it, as far as that was tried; then what the kernel side told came, or not.
    fn of_ended(told: Option<&[u8]>) -> Recording {
        let mut short = std::process::Command::new("true").spawn().unwrap();
        let pid = short.id();
        short.wait().unwrap();
        let mut run = new(pid);
        let config = Config::default();
        run.read_program(pid, &config.labels);
        if let Some(told) = told {
            run.take_environment(told, &config.labels);
        }
        run.close(
            pid,
            "exit",
            &Taken::default(),
            &Counters::default(),
            &config,
        )
    }

    #[test]
    fn who_runs_without_a_word_on_its_exec_is_recorded_as_incomplete() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .env("GITHUB_ACTIONS", "true")
            .spawn()
            .unwrap();
        let config = Config::default();
        let mut run = new(child.id());
        run.miss_exec(child.id(), &config.labels);
        assert!(run.executed.is_some());
        let recording = run.close(
            child.id(),
            "exit",
            &Taken::default(),
            &Counters::default(),
            &config,
        );
        child.kill().unwrap();
        child.wait().unwrap();
        let run = &recording.runs[0];
        assert_eq!(run.command, ["sleep", "100"].map(Vec::from));
        assert_eq!(run.label("ci"), Some("github"));
        let why = recording.processes[0].incomplete.as_ref().unwrap();
        assert!(why.contains("exec found no room"), "{why}");
    }

    #[test]
    fn an_environment_that_the_kernel_side_has_told_need_not_be_read() {
        let of_environment = |recording: Recording| {
            let incomplete = recording.processes[0].incomplete.as_ref();
            incomplete.is_some_and(|why| why.contains("environment could not be read"))
        };
        assert!(of_environment(of_ended(None)));
        assert!(!of_environment(of_ended(Some(b"HOME=/\0"))));
    }
}
