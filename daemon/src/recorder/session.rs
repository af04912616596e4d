//! A trace under way: what the holder and the kernel tell becomes a recording.

use std::{
    io,
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{Arc, mpsc::Receiver},
    thread::ScopedJoinHandle,
    time::Duration,
};

use nodeprof_bpf::{
    Counters,
    hold::{Event, Holder},
};
use nodeprof_probes::plan::{AttachPlan, Family, Probe, ProbeState};
use nodeprof_profile::{
    groups::COUNT_MODE,
    recording::{FamilyState, Nanoseconds, Overhead, ProbeHits, Recording, Run, RunId},
};

use super::{
    Assembler, Child, FAMILIES, IDLE, Notice, TraceError, TraceOptions, Until, is_file,
    kernel::Kernel, load_plan, memory, now, pump::Pump, remember_node, seen_by, share_plan, system,
    wait_readable,
};

/// A trace under way.
pub(super) struct Session {
    pub(super) assembler: Assembler,
    pub(super) cache: Option<PathBuf>,
    pub(super) count: bool,
    /// Why no probes could be attached to the first process.
    pub(super) families_failed: Option<String>,
    /// Whether execs of children are held.
    pub(super) held: Option<Result<(), String>>,
    pub(super) attach_ns: u64,
    pub(super) root: u32,
    pub(super) loop_started: Option<u64>,
    pub(super) executed: Option<u64>,
    /// When the holder was found to be gone.
    pub(super) holder_gone: Option<u64>,
    /// A ping without an answer yet: when, and whether it could be sent.
    pub(super) pinged: Option<(u64, bool)>,
    pub(super) last_ping: u64,
    /// The last reading of a process's memory: whose, when it began, and its private dirty memory.
    pub(super) memory_read: Option<(u32, u64, Option<u64>)>,
    /// In count mode, whose memory is to be read once it sleeps, and when its loop started.
    pub(super) memory_due: Option<(u32, u64)>,
    /// The kernel side is the service's.
    pub(super) is_lent: bool,
    /// Why no CPU samples could be taken.
    pub(super) no_samples: Option<String>,
    /// Why it is not known what the programs counted.
    pub(super) no_counts: Option<String>,
}

/// A program that goes on for this long after its loop has started, ns, does not end at once.
const SETTLED: u64 = 5_000_000;
/// Ns after its loop by which reading a program's memory must have begun: Node gives its heap back 1 to 3 ms after it, and what is read then is neither what it had nor what
/// it began with.
const LATE: u64 = 1_000_000;

/// A holder that does not answer for this long is ended.
pub(super) const SILENCE: Duration = Duration::from_secs(2);

impl Session {
    /// Of the process that is about to execute the command.
    pub(super) fn new(
        root: u32,
        directory: &Path,
        cache: Option<PathBuf>,
        count: bool,
        is_lent: bool,
    ) -> Session {
        let recording = Recording {
            runs: vec![Run::default()],
            ..Recording::default()
        };
        let mut assembler = Assembler::new(recording, RunId(0), root, directory);
        assembler.symbols.keep_in(cache.as_deref());
        Session {
            assembler,
            cache,
            count,
            is_lent,
            families_failed: None,
            held: None,
            attach_ns: 0,
            root,
            loop_started: None,
            executed: None,
            holder_gone: None,
            pinged: None,
            last_ping: now(),
            memory_read: None,
            memory_due: None,
            no_samples: None,
            no_counts: None,
        }
    }

    pub(super) fn lose_holder(&mut self) {
        if self.holder_gone.is_none() {
            self.holder_gone = Some(now());
            self.assembler.lose("holder_ended", 1);
            if self.executed.is_none() {
                self.families_failed = Some("the holder process ended".into());
            }
        }
    }

    /// Sees to it that the holder answers: one that is stopped or hung would block every exec of node.
    fn check_holder(&mut self, holder: &Holder) {
        let clock = now();
        match self.pinged {
            _ if self.holder_gone.is_some() => {}
            Some((at, true)) if clock.saturating_sub(at) > SILENCE.as_nanos() as u64 => {
                holder.kill();
                self.lose_holder();
            }
            Some(_) => {}
            None if clock.saturating_sub(self.last_ping) > SILENCE.as_nanos() as u64 / 2 => {
                self.last_ping = clock;
                self.pinged = Some((clock, holder.ping().is_ok()));
            }
            None => {}
        }
    }

    pub(super) fn on_holder(&mut self, event: Event) {
        match event {
            Event::Holding(outcome) => self.held = Some(outcome),
            // A service's.
            Event::Tracing(_) | Event::Unasked { .. } => {}
            Event::Alive => self.pinged = None,
            Event::Gone => self.lose_holder(),
            Event::Attached {
                pid,
                binary,
                took,
                path,
                file,
                open,
                after_exec,
                ..
            } => {
                if !self.assembler.has_image(binary) {
                    let load =
                        |path: &Path| load_plan(path, file, self.cache.as_deref(), self.count);
                    // Of a process with other rights what it sees cannot be looked at.
                    let plan = load(&seen_by(&path, file, pid)).or_else(|why| {
                        match (is_file(&path, file), open) {
                            (true, _) => load(&path),
                            (false, Some(open)) => load(&open).map_err(|_| why),
                            (false, None) => Err(why),
                        }
                    });
                    match plan {
                        Ok(mut plan) => {
                            path.clone_into(&mut plan.binary.path);
                            let plan = share_plan(plan, self.assembler.plans());
                            self.assembler.add_image(binary, plan);
                        }
                        Err(why) => {
                            let why = format!(
                                "{}: nothing is known of what it called: {why}",
                                path.display()
                            );
                            self.assembler.incomplete(pid, why);
                        }
                    }
                    remember_node(self.cache.as_deref(), &path);
                }
                self.assembler.attached(pid, binary);
                if after_exec {
                    self.assembler.attached_after_exec(pid);
                }
                self.attach_ns = self.attach_ns.max(took.as_nanos() as u64).max(1);
            }
            Event::Stopped { pid, from, to } => self.assembler.stopped(pid, from, to),
            Event::NotStopped { pid, reason } => {
                let held = match &self.held {
                    Some(Err(e)) => {
                        let forbidden = io::Error::from_raw_os_error(libc::EPERM).to_string();
                        let needed = match *e == forbidden {
                            true => "; needed: CAP_SYS_ADMIN",
                            false => "",
                        };
                        format!("execs cannot be held here ({e}{needed})")
                    }
                    _ => "this node binary was not known before (the next trace knows it)".into(),
                };
                self.assembler.not_stopped(
                    pid,
                    format!("probes came after its exec: {held}, and the process could not be stopped: {reason}"),
                );
            }
            Event::Failed { pid, path, reason } => {
                if pid == self.root && self.executed.is_none() {
                    self.families_failed = Some(reason.clone());
                }
                self.assembler
                    .incomplete(pid, format!("{}: {reason}", path.display()));
            }
        }
    }

    /// Reads records until the trace ends; returns why it did.
    pub(super) fn record(
        &mut self,
        options: &TraceOptions,
        kernel: &Kernel,
        holder: &Holder,
        child: &mut Child,
    ) -> Result<&'static str, TraceError> {
        let (pump, records) = Pump::new().map_err(system("making an eventfd"))?;
        let reader = kernel
            .reader(|record: &[u8]| pump.push(record))
            .map_err(system("mapping the ring buffer"))?;
        std::thread::scope(|scope| {
            let pump = &pump;
            let watching = scope.spawn(|| pump.watch());
            let _stop = pump.stop_later(watching.thread());
            let hurried = [child.descriptor.as_raw_fd(), child.signals.as_raw_fd()];
            let copying = scope.spawn(move || pump.run(&reader, &hurried));
            let _stay = pump.work_in_background();
            let hits = || kernel.hits();
            self.assemble(options, pump, &records, copying, (holder, &hits), child)
        })
    }

    /// Makes records into events until the trace ends; returns why it did.
    fn assemble(
        &mut self,
        options: &TraceOptions,
        pump: &Pump,
        records: &Receiver<Vec<u8>>,
        copying: ScopedJoinHandle<io::Result<()>>,
        (holder, hits): (&Holder, &dyn Fn() -> u64),
        child: &mut Child,
    ) -> Result<&'static str, TraceError> {
        let mut copying = Some(copying);
        let mut ended = None;
        let mut activity = Activity::default();
        loop {
            let descriptors = [
                pump.ready(),
                child.descriptor.as_raw_fd(),
                if self.holder_gone.is_none() {
                    holder.descriptor()
                } else {
                    -1
                },
                child.signals.as_raw_fd(),
            ];
            if ended.is_none() {
                wait_readable(&descriptors, Some(Duration::from_millis(20)))
                    .map_err(system("waiting for records"))?;
            }
            let copying_ended = copying.as_ref().is_none_or(|thread| thread.is_finished());
            if (ended.is_some() || copying_ended)
                && let Some(thread) = copying.take()
            {
                pump.stop();
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    .map_err(system("reading records"))?;
            }
            let taken = pump.take(records);
            // A process's binary is announced before its first record is written: so it is known of all that were read.
            while self.holder_gone.is_none()
                && let Some(event) = holder.next(Duration::ZERO)
            {
                self.on_holder(event);
            }
            self.check_holder(holder);
            for records in taken {
                let mut rest = records.as_slice();
                while let Some((length, tail)) = rest.split_first_chunk::<4>() {
                    let (record, tail) =
                        tail.split_at((u32::from_ne_bytes(*length) as usize).min(tail.len()));
                    self.assembler.take(record);
                    rest = tail;
                }
            }
            self.act();
            if let Some(reason) = ended {
                if child.status().is_none() {
                    self.read_memory_of_sleeper(true);
                }
                if holder.is_ending() {
                    self.lose_holder();
                }
                return Ok(reason);
            }
            self.read_memory_of_sleeper(false);
            self.assembler.prepare();
            child.signals.pass_on(Some(child.pid));
            child.reap().map_err(system("waiting for the program"))?;
            let clock = now();
            let over = match options.until {
                _ if child.status().is_some() => Some("exit"),
                Until::Exit => None,
                Until::LoopStart => self.loop_started.map(|_| "loop-start"),
                Until::Idle => self
                    .loop_started
                    .map(|_| activity.last(self.assembler.last_record(), hits, clock))
                    .filter(|&last| is_past(last, IDLE, clock))
                    .map(|_| "idle"),
                Until::After(limit) => self
                    .executed
                    .filter(|&executed| is_past(executed, limit, clock))
                    .map(|_| "duration"),
            };
            ended = over; // one more round takes what came in between
        }
    }

    /// Acts on what the records told.
    fn act(&mut self) {
        for notice in self.assembler.take_notices() {
            match notice {
                // A service's.
                Notice::Environment { .. } => {}
                Notice::Exec { pid, .. } => {
                    if pid == self.root {
                        self.executed.get_or_insert_with(now);
                    }
                }
                Notice::Milestone { pid, name, at } => {
                    let field = match name.as_str() {
                        "loop_start" => {
                            // A node that the program waits for has a loop of its own, and may be in it long before.
                            let is_main = self.assembler.is_main_process(pid);
                            if is_main {
                                self.loop_started.get_or_insert(at);
                            }
                            if self.count {
                                if is_main {
                                    self.memory_due.get_or_insert((pid, at));
                                }
                                continue;
                            }
                            0
                        }
                        "loop_exit" if self.count => {
                            self.memory_due.take_if(|due| due.0 == pid);
                            continue;
                        }
                        "loop_exit" => 1,
                        _ => continue,
                    };
                    let (begun, uss, is_shared) = match self.memory_read {
                        // Begun after this milestone, too: it stands for both, and the program waits but once.
                        Some((of, begun, uss)) if of == pid && begun >= at => (begun, uss, true),
                        _ => {
                            let begun = now();
                            let uss = memory::private_dirty(pid);
                            self.memory_read = Some((pid, begun, uss));
                            (begun, uss, false)
                        }
                    };
                    let uss = uss.filter(|_| field == 0 || begun.saturating_sub(at) < LATE);
                    if let Some(process) = self.assembler.find_process(pid) {
                        match field {
                            0 => process.uss_loop_start_bytes = uss,
                            _ => process.uss_exit_bytes = uss,
                        }
                        if uss.is_none() && is_shared {
                            process.uss_loop_start_bytes = None;
                        }
                    }
                }
            }
        }
    }

    /// A program waits for whoever reads its memory: 1 to 2 ms, more than all that count mode else costs a short start. So there it is
    /// read of one that sleeps in its loop, or when the trace `is_over`.
    fn read_memory_of_sleeper(&mut self, is_over: bool) {
        let Some((pid, since)) = self.memory_due else {
            return;
        };
        if !is_over && (now().saturating_sub(since) < SETTLED || !memory::is_asleep(pid)) {
            return;
        }
        self.memory_due = None;
        let uss = memory::private_dirty(pid);
        if let Some(process) = self.assembler.find_process(pid) {
            process.uss_loop_start_bytes = uss;
        }
    }

    pub(super) fn run(
        &mut self,
        options: &TraceOptions,
        directory: &Path,
        started_unix_ns: u64,
        ended: u64,
        ended_by: &str,
        status: Option<ExitStatus>,
    ) -> Run {
        // The kernel's word on the end may have been lost with others; the system's own is not.
        if let (Some(status), Some(root)) = (status, self.assembler.find_process(self.root))
            && root.exited.is_none()
        {
            root.exited = Some(Nanoseconds(ended));
            root.exit_status = status.code();
            root.signal = status.signal();
        }
        let root = self.assembler.find_process(self.root);
        let started = root
            .as_ref()
            .and_then(|r| r.execs.first())
            .map_or(Nanoseconds(ended), |e| e.at);
        let exited = root.and_then(|r| r.exited);
        Run {
            command: options
                .command
                .iter()
                .map(|a| a.as_bytes().to_vec())
                .collect(),
            directory: directory.as_os_str().as_bytes().to_vec(),
            started_unix_ns,
            started,
            ended: exited
                .filter(|_| status.is_some())
                .unwrap_or(Nanoseconds(ended)),
            ended_by: ended_by.to_string(),
            mode: if self.count { COUNT_MODE } else { "full" }.into(),
            exit_status: status.and_then(|s| s.code()),
            signal: status.and_then(|s| s.signal()),
            sample_hz: Some(options.hz()).filter(|&hz| hz > 0),
            labels: crate::machine::labels(),
        }
    }

    /// Says of each family whether it was recorded.
    pub(super) fn families(
        &self,
        options: &TraceOptions,
        guess: Option<&Path>,
        guessed: Option<&Result<AttachPlan, String>>,
    ) -> Vec<FamilyState> {
        let plans: Vec<&AttachPlan> = self.assembler.plans().map(Arc::as_ref).collect();
        let mut states = Vec::new();
        for name in FAMILIES {
            let mut state = ("on", None);
            let family = options
                .probe_families()
                .into_iter()
                .find(|f| family_name(*f) == name);
            if !options.wants(name) {
                let why = match options.families.is_empty() {
                    _ if name == "cpu" && options.sample_hz == Some(0) => {
                        "not asked for (--freq 0)"
                    }
                    true if name == "cpu" => "not part of count mode; to have it, type: --freq 997",
                    true => "not part of count mode; to have it, type: --families LIST",
                    false => "not asked for (--families)",
                };
                state = ("off", Some(why.to_string()));
            } else if name == "cpu" {
                state = self.cpu_state();
            } else if let Some(family) = family {
                let refused = self
                    .families_failed
                    .clone()
                    .or_else(|| guessed.and_then(|g| g.as_ref().err().cloned()));
                if let Some(reason) = refused {
                    state = ("failed", Some(reason));
                } else if plans.is_empty() {
                    let what = guess.map_or_else(
                        || "no process of the tree ran node".to_string(),
                        |g| g.display().to_string(),
                    );
                    state = ("failed", Some(format!("no probes attached: {what}")));
                } else {
                    if self.holder_gone.is_some() {
                        state = ("partial", Some("the holder process ended before the trace did: its probes went with it".into()));
                    }
                    let mut missing: Vec<&Probe> = plans
                        .iter()
                        .flat_map(|plan| &plan.probes)
                        .filter(|probe| probe.family == family && probe.state == ProbeState::Unsafe)
                        .collect();
                    missing.dedup_by(|a, b| a.symbol == b.symbol);
                    let any = plans.iter().any(|p| {
                        p.probes
                            .iter()
                            .any(|x| x.family == family && x.is_attachable())
                    });
                    if !any {
                        state = (
                            "failed",
                            Some(
                                "this node binary has none of its functions; see: nodeprof probes"
                                    .into(),
                            ),
                        );
                    } else if let Some(first) = missing.first() {
                        let symbols: Vec<&str> =
                            missing.iter().map(|p| p.symbol.as_str()).collect();
                        let why = first.reason.as_deref().unwrap_or("unsafe to probe");
                        state = ("partial", Some(format!("{}: {why}", symbols.join(", "))));
                    }
                }
            }
            states.push(FamilyState {
                run: RunId(0),
                name: name.into(),
                state: state.0.into(),
                reason: state.1,
            });
        }
        states
    }

    fn cpu_state(&self) -> (&'static str, Option<String>) {
        if let Some(error) = &self.no_samples {
            ("failed", Some(error.clone()))
        } else if self.is_lent {
            let why = "functions of the kernel are not shown: nodeprofd, which traces for you, tells no addresses of the kernel; to see them, type: sudo nodeprof trace …";
            ("partial", Some(why.into()))
        } else if self.assembler.symbols.kernel_hidden() {
            let why = "functions of the kernel have no names: /proc/kallsyms shows no addresses; needed: CAP_SYSLOG, or kernel.kptr_restrict 0; type: sysctl kernel.kptr_restrict=0";
            ("partial", Some(why.into()))
        } else {
            ("on", None)
        }
    }

    pub(super) fn close(
        mut self,
        run: Run,
        families: Vec<FamilyState>,
        counters: &Counters,
        options: &TraceOptions,
        (setup_ns, ns_per_hit): (u64, f64),
    ) -> Recording {
        let losses = self.assembler.losses_with(&[
            ("records", counters.ring_full),
            ("unmatched_exits", counters.unmatched_exits),
            ("abandoned_frames", counters.abandoned),
            ("frames_too_deep", counters.too_deep),
            ("sums_full", counters.sums_full),
            ("stacks", counters.stacks_lost),
            ("threads_not_followed", counters.no_state),
            ("memory_unreadable", counters.unreadable),
            ("waits", counters.waits_beyond_limit),
            ("processes_of_others", counters.foreign),
            ("sources", counters.sources_lost),
            ("sums_unread", counters.sums_unread),
            ("counts_unknown", u64::from(self.no_counts.is_some())),
        ]);
        let mut recording = self.assembler.recording;
        if !options.wants("files") {
            // Syscalls were recorded for package.json alone.
            let names = &recording.names;
            recording.files.retain(|f| {
                names
                    .get(f.path.0 as usize)
                    .is_some_and(|n| n.ends_with(b"/package.json"))
            });
        }
        recording.runs = vec![run];
        recording.families = families;
        recording.losses = losses;
        recording.probe_hits = vec![
            ProbeHits {
                run: RunId(0),
                family: "probes".into(),
                hits: counters.hits,
            },
            ProbeHits {
                run: RunId(0),
                family: "syscalls".into(),
                hits: counters.syscalls,
            },
            ProbeHits {
                run: RunId(0),
                family: "cpu".into(),
                hits: counters.samples,
            },
            ProbeHits {
                run: RunId(0),
                family: "off-cpu".into(),
                hits: counters.switches,
            },
        ];
        recording.overheads = vec![Overhead {
            run: RunId(0),
            probe_hits: counters.hits,
            ns_per_hit,
            setup_ns,
            attach_ns: self.attach_ns,
        }];
        recording
    }
}

/// Whether a time has passed since then.
fn is_past(then: u64, time: Duration, clock: u64) -> bool {
    u128::from(clock.saturating_sub(then)) > time.as_nanos()
}

/// When the program did something last. Calls that are only summed leave no record, but hit probes.
#[derive(Default)]
struct Activity {
    hits: u64,
    hit_at: u64,
    asked_at: Option<u64>,
}

/// Nanoseconds between two looks at the hits: in a trace by the service each is a question to another process.
const BETWEEN_HITS: u64 = 20_000_000;

impl Activity {
    /// To be asked again and again, with the last record and with what tells the hits so far.
    fn last(&mut self, record: u64, hits: impl FnOnce() -> u64, clock: u64) -> u64 {
        let is_due = |asked: u64| clock.saturating_sub(asked) >= BETWEEN_HITS;
        if self.asked_at.is_none_or(is_due) {
            self.asked_at = Some(clock);
            let hits = hits();
            if hits != self.hits {
                self.hits = hits;
                self.hit_at = clock;
            }
        }
        record.max(self.hit_at)
    }
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::Phases => "phases",
        Family::Crossings => "crossings",
        Family::PackageJson => "package-json",
        Family::Files => "files",
        Family::Serialization => "serialization",
        Family::Compile => "compile",
        Family::Processes => "processes",
        Family::Stacks => "stacks",
        Family::Verify => "verify",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_calls_are_only_summed_is_not_idle() {
        let mut activity = Activity::default();
        let ms = |ms: u64| ms * 1_000_000;
        // Its last record is of 100 ms.
        for (clock, hits) in [(100, 1000), (300, 1200), (490, 1201)] {
            let last = activity.last(ms(100), || hits, ms(clock));
            assert_eq!(last, ms(clock));
            assert!(!is_past(last, IDLE, ms(clock)));
        }
        let last = activity.last(ms(100), || 1201, ms(690));
        assert!(!is_past(last, IDLE, ms(690)));
        // Nobody is asked again so soon.
        let last = activity.last(ms(100), || unreachable!(), ms(691));
        assert!(is_past(last, IDLE, ms(691)));
        let last = activity.last(ms(692), || 1201, ms(692));
        assert_eq!(last, ms(692));
    }

    #[test]
    fn a_time_beyond_all_clocks_never_passes() {
        let longest = Duration::from_secs(18_446_744_073 + 1);
        assert!(!is_past(0, longest, 1_000_000_000));
        assert!(!is_past(0, Duration::MAX, u64::MAX));
        assert!(is_past(0, Duration::from_secs(1), 1_000_000_001));
    }
}
