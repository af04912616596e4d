//! Runs a command and records it.
//!
//! The order of things, and why:
//! 1. the command is found and its child process forked, held before its exec (while nodeprof is still
//!    single-threaded and small);
//! 2. the BPF programs are loaded while another thread reads the attach plan;
//! 3. the holder process is forked: it attaches the probes to the child and holds the execs of its descendants;
//! 4. the child executes; records are read as they come;
//! 5. when the trace ends, the recording is complete at once: the holder detaches by itself, nobody waits.

mod assemble;
mod calibrate;
mod command;
mod continuations;
mod kernel;
mod late;
mod leaves;
mod memory;
mod optimized;
mod packages;
mod positions;
mod pump;
mod source_maps;
mod sources;
mod stacks;
mod symbols;
mod waits;

use std::{
    cell::Cell,
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, net::UnixStream, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::ExitStatus,
    rc::Rc,
    sync::Arc,
    thread::ScopedJoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nodeprof_bpf::{
    Counters, LoadError, Sum, SumFamily,
    hold::{Event, Holder},
};
use nodeprof_probes::plan::{AttachPlan, Family, Probe, ProbeState};
use nodeprof_profile::recording::{
    CallbackId, CrossingKind, FamilyState, Loss, Nanoseconds, Overhead, ProbeHits, Recording, Run,
    RunId,
};

use crate::control::AskError;
use kernel::{Begun, Kernel};
use pump::Pump;

pub use assemble::{Assembler, Notice};
pub(crate) use calibrate::idle_address;
pub(crate) use command::fork_held;
pub use command::{CommandError, Invoker, Streams, find_program, guess_node};
pub use kernel::{Counted, Wanted};
pub(crate) use memory::unique_set_size;
pub(crate) use packages::add_packages;
pub use symbols::{Symbol, Symbols};

/// When to stop tracing. The program itself always goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The command's own process ends.
    Exit,
    /// The main node process enters its event loop.
    LoopStart,
    /// Nothing was recorded for a while after the loop started.
    Idle,
    /// This long after the exec.
    After(Duration),
}

/// Without any record for this long after the start of the loop, a program counts as idle.
pub const IDLE: Duration = Duration::from_millis(200);

/// What is kept of each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every call by itself, with its time (hot callbacks are summed beyond a limit).
    Full,
    /// Counts only: no return probes on serialization, nothing written one by one.
    Count,
}

/// Settings of a trace.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// When to stop.
    pub until: Until,
    /// What to keep.
    pub mode: Mode,
    /// Families to record, by the names of [`FAMILIES`]; none: those of the mode (count mode leaves
    /// serialization and the samples out).
    pub families: Vec<String>,
    /// CPU samples per second and CPU; `None`: [`DEFAULT_HZ`] in full mode, none in count mode; `Some(0)`: none.
    pub sample_hz: Option<u32>,
    /// Also count the entries of every binding callback, as a check of the crossings.
    pub verify: bool,
    /// Folder of resolved plans; `None`: no cache.
    pub cache: Option<PathBuf>,
    /// Further node binaries that children may execute.
    pub nodes: Vec<PathBuf>,
    /// Tell positions in transpiled scripts by their source maps, too.
    pub source_maps: bool,
    /// Standard streams of the program.
    pub streams: Streams,
    /// Socket of a service that does for its users what takes privilege; `None`: nobody is asked.
    pub service: Option<PathBuf>,
}

/// All families, in the order of the report.
pub const FAMILIES: [&str; 9] = [
    "phases",
    "crossings",
    "package-json",
    "files",
    "serialization",
    "compile",
    "cpu",
    "off-cpu",
    "processes",
];

/// Serialization has more calls than all others together; the scheduler's families cost others something.
const NOT_IN_COUNT_MODE: [&str; 4] = ["serialization", "stacks", "cpu", "off-cpu"];

/// CPU samples per second where nothing else is asked for: a prime, so that nothing periodic keeps step with it.
pub const DEFAULT_HZ: u32 = 997;
/// More CPU samples per second would slow the program down by tens of percent.
pub const HIGHEST_HZ: u32 = 10_000;

impl TraceOptions {
    /// Everything, until the program ends.
    pub fn new(command: Vec<OsString>) -> TraceOptions {
        TraceOptions {
            command,
            until: Until::Exit,
            mode: Mode::Full,
            families: Vec::new(),
            sample_hz: None,
            verify: false,
            cache: nodeprof_probes::default_cache_folder(),
            nodes: Vec::new(),
            source_maps: true,
            streams: Streams::default(),
            service: Some(crate::control::DEFAULT_SOCKET.into()),
        }
    }

    /// For the kernel side.
    fn wanted(&self) -> Wanted {
        Wanted {
            count: self.mode == Mode::Count,
            verify: self.verify,
            files: self.wants("files") || self.wants("package-json"),
            stacks: self.wants("stacks"),
            sample_hz: self.hz(),
            waits: self.wants("off-cpu"),
            mappings: ["cpu", "off-cpu", "stacks"].iter().any(|f| self.wants(f)),
            families: self.probe_families(),
        }
    }

    fn wants(&self, family: &str) -> bool {
        match (family, self.sample_hz) {
            ("cpu", Some(hz)) => hz > 0,
            // Samples and waits without a stack say nothing; counting is for those who want no stacks.
            ("stacks", _)
                if self.mode == Mode::Full
                    && self.families.iter().any(|f| f == "cpu" || f == "off-cpu") =>
            {
                true
            }
            _ if self.families.is_empty() => {
                self.mode == Mode::Full || !NOT_IN_COUNT_MODE.contains(&family)
            }
            _ => self.families.iter().any(|f| f == family),
        }
    }

    /// CPU samples per second; 0: none.
    fn hz(&self) -> u32 {
        match self.wants("cpu") {
            true => self.sample_hz.unwrap_or(DEFAULT_HZ).min(HIGHEST_HZ),
            false => 0,
        }
    }

    fn probe_families(&self) -> Vec<Family> {
        let all = [
            ("phases", Family::Phases),
            ("crossings", Family::Crossings),
            ("package-json", Family::PackageJson),
            ("serialization", Family::Serialization),
            ("compile", Family::Compile),
            ("stacks", Family::Stacks),
        ];
        let mut wanted: Vec<Family> = all
            .iter()
            .filter(|(name, _)| self.wants(name))
            .map(|f| f.1)
            .collect();
        if self.verify {
            wanted.push(Family::Verify);
        }
        wanted
    }
}

/// Why a trace could not begin. The traced program has not run.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The command cannot be executed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The kernel side.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// This user may not, and the service does not do it.
    #[error(
        "{}; nor does nodeprofd, which traces for users: {why}",
        LoadError::NotPermitted
    )]
    NotPermitted {
        /// What became of asking it.
        why: AskError,
    },
    /// Something else of the system.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> TraceError {
    move |error| TraceError::System { what, error }
}

/// Entries of one callback against its crossings, from a verified trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Hits of entry probes on all binding callbacks.
    pub entries: u64,
    /// Slow calls and constructions seen at V8's call sites.
    pub crossings: u64,
    /// Callbacks whose two counts differ: (binding, function, entries, crossings). C++ that calls a callback
    /// itself enters it without a crossing; a crossing into an add-on has no entry probe.
    pub differences: Vec<(String, String, u64, u64)>,
}

/// A finished trace.
pub struct Traced {
    /// What was seen.
    pub recording: Recording,
    /// If the program still runs (`until`), wait for it with this.
    pub child: Child,
    /// If asked for.
    pub verification: Option<Verification>,
    /// The probes, which go by themselves.
    pub leaving: Leaving,
}

/// The holder process of a finished trace, which takes the probes away and ends.
#[derive(Debug)]
pub enum Leaving {
    /// Our own child.
    Child(u32),
    /// That of the service, which then closes this.
    Lent(UnixStream),
}

impl Leaving {
    /// Waits until the probes are gone (40 ms), so that the next program runs as if there had been none. One that
    /// does not end in time is killed: the kernel takes its probes away.
    pub fn wait(self) {
        let pid = match self {
            Leaving::Child(pid) => pid,
            Leaving::Lent(connection) => {
                // Nothing more is said: it becomes readable when it is closed.
                let _ = wait_readable(&[connection.as_raw_fd()], Some(SILENCE));
                return;
            }
        };
        if let Ok(descriptor) = pidfd(pid)
            && !ends_within(&descriptor, SILENCE)
        {
            // SAFETY: our own child, not yet reaped.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        // SAFETY: our own child; its status is of no interest.
        unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), 0) };
    }
}

/// Whether the process of a pidfd ends within this time.
fn ends_within(descriptor: &OwnedFd, limit: Duration) -> bool {
    let mut fd = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd.
    unsafe { libc::poll(&mut fd, 1, limit.as_millis() as i32) > 0 }
}

/// The traced command's process.
pub struct Child {
    pid: u32,
    descriptor: OwnedFd,
    status: Option<ExitStatus>,
    signals: Rc<Signals>,
}

impl Child {
    /// Its exit status, if it has ended.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Waits for its end, passing signals on.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.status {
                return Ok(status);
            }
            wait_readable(
                &[self.descriptor.as_raw_fd(), self.signals.as_raw_fd()],
                None,
            )?;
            self.signals.pass_on(Some(self.pid));
            self.reap()?;
        }
    }

    fn reap(&mut self) -> io::Result<()> {
        let mut status = 0;
        // SAFETY: our own child; `status` lives through the call.
        match unsafe { libc::waitpid(self.pid as i32, &mut status, libc::WNOHANG) } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(()),
            _ => {
                self.status = Some(ExitStatus::from_raw(status));
                Ok(())
            }
        }
    }
}

/// Signals that are taken as events instead of ending nodeprof.
pub(crate) struct Signals {
    descriptor: OwnedFd,
    /// What was blocked before: programs that are started inherit this.
    mask: libc::sigset_t,
    asked_to_end: Cell<bool>,
}

const SIGNALS: [i32; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl Signals {
    /// Blocks them, for as long as nodeprof runs.
    pub(crate) fn block() -> io::Result<Signals> {
        // SAFETY: plain system calls on live sets.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut old: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in SIGNALS {
                libc::sigaddset(&mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &set, &mut old) < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Signals {
                descriptor: OwnedFd::from_raw_fd(fd),
                mask: old,
                asked_to_end: Cell::new(false),
            })
        }
    }

    /// What was blocked before.
    pub(crate) fn mask(&self) -> &libc::sigset_t {
        &self.mask
    }

    /// Whether an interrupt or a request to end has come.
    pub(crate) fn asked_to_end(&self) -> bool {
        self.asked_to_end.get()
    }

    /// Passes on what another process sent to nodeprof; what the terminal sends reaches the program by itself.
    /// Without a program there is nobody to pass it on to.
    pub(crate) fn pass_on(&self, pid: Option<u32>) {
        loop {
            // SAFETY: a struct of integers.
            let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
            // SAFETY: room for one struct.
            let got = unsafe {
                libc::read(
                    self.descriptor.as_raw_fd(),
                    (&raw mut info).cast(),
                    size_of_val(&info),
                )
            };
            if got < 0 || got as usize != size_of_val(&info) {
                return;
            }
            let signal = info.ssi_signo as i32;
            if [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal) {
                self.asked_to_end.set(true);
            }
            if let Some(pid) = pid
                && info.ssi_code <= 0
                && info.ssi_pid != pid
            {
                // SAFETY: our own child, not yet reaped.
                unsafe { libc::kill(pid as i32, signal) };
            }
        }
    }
}

/// Waits until a descriptor is readable or the time is over.
pub(crate) fn wait_readable(descriptors: &[RawFd], timeout: Option<Duration>) -> io::Result<()> {
    let mut fds: Vec<libc::pollfd> = descriptors
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let timeout = timeout.map_or(-1, |t| t.as_millis().min(i32::MAX as u128) as i32);
    // SAFETY: as many pollfds as given.
    let outcome = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
    let error = io::Error::last_os_error();
    if outcome < 0 && error.kind() != io::ErrorKind::Interrupted {
        Err(error)
    } else {
        Ok(())
    }
}

/// CLOCK_MONOTONIC, ns: the clock of `bpf_ktime_get_ns`.
pub(crate) fn now() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live struct.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Runs the command of `options` and records it.
///
/// # Errors
/// [`TraceError`]; then the command has not run.
pub fn trace(options: &TraceOptions) -> Result<Traced, TraceError> {
    let signals = Signals::block().map_err(system("blocking signals"))?;
    trace_with(options, Rc::new(signals))
}

/// The same for one of many runs, between which signals stay blocked.
pub(crate) fn trace_with(
    options: &TraceOptions,
    signals: Rc<Signals>,
) -> Result<Traced, TraceError> {
    let begun = Instant::now();
    let name = options.command.first().cloned().unwrap_or_default();
    let program = find_program(&name)?;
    let guess = guess_node(&program);
    let directory = std::env::current_dir().unwrap_or_default();
    let invoker = Invoker::behind_sudo();

    let held = command::fork_held(
        &program,
        &options.command,
        invoker.as_ref(),
        signals.mask(),
        &options.streams,
    )
    .map_err(system("starting a process"))?;
    let pid = held.pid;
    let descriptor = pidfd(pid).map_err(system("opening the new process"))?;
    let mut child = Child {
        pid,
        descriptor,
        status: None,
        signals,
    };

    let wanted = options.wanted();
    let cache = options.cache.clone();
    let candidates = {
        let mut all = command::candidates(guess.as_deref(), &options.command);
        all.extend(options.nodes.iter().cloned());
        all.extend(known_nodes(cache.as_deref()));
        all
    };
    let first = kernel::First {
        pid,
        descriptor: &child.descriptor,
        guess: guess.as_deref(),
    };
    let privileged = match Kernel::own(&wanted, &first, candidates, cache.as_deref()) {
        Err(TraceError::Load(LoadError::NotPermitted)) => {
            let socket = options.service.as_deref();
            let asked = socket.map(|socket| Kernel::lent(socket, &wanted, &first));
            asked
                .ok_or(LoadError::NotPermitted)?
                .map_err(|why| TraceError::NotPermitted { why })?
        }
        own => own?,
    };
    let Begun {
        kernel,
        holder,
        plan: guessed_plan,
    } = privileged;

    let mut session = Session {
        assembler: Assembler::new(
            Recording {
                runs: vec![Run::default()],
                ..Recording::default()
            },
            RunId(0),
            pid,
            &directory,
        ),
        cache,
        count: wanted.count,
        is_lent: matches!(kernel, Kernel::Lent(_)),
        families_failed: None,
        held: None,
        attach_ns: 0,
        root: pid,
        loop_started: None,
        executed: None,
        holder_gone: None,
        pinged: None,
        last_ping: now(),
        memory_read: None,
        no_samples: None,
        no_counts: None,
    };
    session.assembler.symbols.keep_in(session.cache.as_deref());
    // Only when its probes exist, and the execs of its children are seen, may the program start.
    while session.families_failed.is_none()
        && (session.held.is_none() || guess.is_some() && session.attach_ns == 0)
    {
        match holder.next(Duration::from_secs(10)) {
            Some(event) => session.on_holder(event),
            None => session.families_failed = Some("the holder process does not answer".into()),
        }
    }
    // After the probes: meanwhile the kernel would forget that it is ready to register them (see Warmth). Without samples
    // there is still a trace: the family says why it has none.
    let no_samples = kernel.sample(wanted.sample_hz);
    let started_unix_ns = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos() as u64;
    let setup_ns = begun.elapsed().as_nanos() as u64;
    if let Err(error) = held.go() {
        let path = program.to_string_lossy().into_owned();
        return Err(CommandError::NotExecutable {
            path,
            reason: error.to_string(),
        }
        .into());
    }

    let ended_by = session.record(options, &kernel, &holder, &mut child)?;
    let ended = now();
    let Counted {
        counters,
        sums,
        ns_per_hit,
    } = kernel.end().unwrap_or_else(|why| {
        // Of the service, which has ended: what was written one by one is there.
        session.lose_holder();
        session.no_counts = Some(why);
        Counted::default()
    });
    // Before the holder detaches: the kernel interrupts all processors while it does.
    let ns_per_hit = ns_per_hit
        .or_else(|| kernel.ns_per_hit(session.cache.as_deref()))
        .unwrap_or(0.0);
    let leaving = holder.pid();
    drop(holder); // its socket closes: it detaches and leaves
    session.assembler.add_sums(&sums);
    session.assembler.finish();
    session.assembler.symbols.know(kernel.code());
    let mapped = session.assembler.finish_stacks();
    let verification = options.verify.then(|| session.verify(&sums));
    let leaving = match kernel.into_connection() {
        Some(connection) => Leaving::Lent(connection),
        None => Leaving::Child(leaving),
    };
    let run = session.run(
        options,
        &directory,
        started_unix_ns,
        ended,
        ended_by,
        child.status,
    );
    session.no_samples = no_samples;
    let families = session.families(options, guess.as_deref(), guessed_plan.as_ref());
    let mut recording = session.close(run, families, &counters, options, (setup_ns, ns_per_hit));
    if options.source_maps {
        source_maps::annotate(&mut recording, RunId(0), &mapped, invoker.clone());
    }
    // Only stacks lead to modules.
    if !recording.stacks.is_empty() {
        packages::add_packages(&mut recording, RunId(0), invoker);
    }
    Ok(Traced {
        recording,
        child,
        verification,
        leaving,
    })
}

/// A plan by path, as count mode needs it or whole.
pub(crate) fn load_plan(
    path: &Path,
    cache: Option<&Path>,
    count: bool,
) -> Result<AttachPlan, String> {
    let (mut plan, _) = AttachPlan::load_or_build(path, cache).map_err(|e| e.to_string())?;
    if count {
        plan.keep_counts_only();
    }
    Ok(plan)
}

/// Node binaries that earlier traces met, by the list in the cache folder.
pub(crate) fn known_nodes(cache: Option<&Path>) -> Vec<PathBuf> {
    let Some(list) = cache.map(|c| c.join(KNOWN_NODES)) else {
        return Vec::new();
    };
    let lines = fs::read(list).unwrap_or_default();
    let paths = lines.split(|&b| b == 0).filter(|l| !l.is_empty());
    paths
        .map(|l| PathBuf::from(std::ffi::OsStr::from_bytes(l)))
        .filter(|p| p.exists())
        .collect()
}

/// File in the cache folder: NUL-separated paths of node binaries.
const KNOWN_NODES: &str = "known-nodes";

pub(crate) fn remember_node(cache: Option<&Path>, path: &Path) {
    let Some(cache) = cache else { return };
    if known_nodes(Some(cache)).iter().any(|p| p == path) {
        return;
    }
    let mut line = path.as_os_str().as_bytes().to_vec();
    line.push(0);
    let file = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(cache.join(KNOWN_NODES));
    let _ = file.and_then(|mut f| io::Write::write_all(&mut f, &line));
}

fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// A trace under way.
struct Session {
    assembler: Assembler,
    cache: Option<PathBuf>,
    count: bool,
    /// Why no probes could be attached to the first process.
    families_failed: Option<String>,
    /// Whether execs of children are held.
    held: Option<Result<(), String>>,
    attach_ns: u64,
    root: u32,
    loop_started: Option<u64>,
    executed: Option<u64>,
    /// When the holder was found to be gone.
    holder_gone: Option<u64>,
    /// A ping without an answer yet: when, and whether it could be sent.
    pinged: Option<(u64, bool)>,
    last_ping: u64,
    /// The last reading of a process's memory: whose, when it began, and its unique set size.
    memory_read: Option<(u32, u64, Option<u64>)>,
    /// The kernel side is the service's.
    is_lent: bool,
    /// Why no CPU samples could be taken.
    no_samples: Option<String>,
    /// Why it is not known what the programs counted.
    no_counts: Option<String>,
}

/// A holder that does not answer for this long is ended.
const SILENCE: Duration = Duration::from_secs(2);

impl Session {
    fn lose_holder(&mut self) {
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

    fn on_holder(&mut self, event: Event) {
        match event {
            Event::Holding(outcome) => self.held = Some(outcome),
            Event::Alive => self.pinged = None,
            Event::Gone => self.lose_holder(),
            Event::Attached {
                pid,
                binary,
                took,
                path,
                after_exec,
                ..
            } => {
                if !self.assembler.has_image(binary) {
                    if let Ok(plan) = load_plan(&path, self.cache.as_deref(), self.count) {
                        self.assembler.add_image(binary, Arc::new(plan));
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
                        format!("execs cannot be held here ({e}; needed: CAP_SYS_ADMIN)")
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
    fn record(
        &mut self,
        options: &TraceOptions,
        kernel: &Kernel,
        holder: &Holder,
        child: &mut Child,
    ) -> Result<&'static str, TraceError> {
        let pump = Pump::new().map_err(system("making an eventfd"))?;
        let reader = kernel
            .reader(|record: &[u8]| pump.push(record))
            .map_err(system("mapping the ring buffer"))?;
        std::thread::scope(|scope| {
            let pump = &pump;
            let _stop = pump.stop_later();
            let copying = scope.spawn(move || pump.run(&reader));
            self.assemble(options, pump, copying, holder, child)
        })
    }

    /// Makes records into events until the trace ends; returns why it did.
    fn assemble(
        &mut self,
        options: &TraceOptions,
        pump: &Pump,
        copying: ScopedJoinHandle<io::Result<()>>,
        holder: &Holder,
        child: &mut Child,
    ) -> Result<&'static str, TraceError> {
        let mut copying = Some(copying);
        let mut taken = Vec::new();
        let mut ended = None;
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
            pump.take(&mut taken);
            // A process's binary is announced before its first record is written: so it is known of all that were read.
            while self.holder_gone.is_none()
                && let Some(event) = holder.next(Duration::ZERO)
            {
                self.on_holder(event);
            }
            self.check_holder(holder);
            let mut rest = taken.as_slice();
            while let Some((length, tail)) = rest.split_first_chunk::<4>() {
                let (record, tail) =
                    tail.split_at((u32::from_ne_bytes(*length) as usize).min(tail.len()));
                self.assembler.take(record);
                rest = tail;
            }
            taken.clear();
            self.act();
            if let Some(reason) = ended {
                if holder.has_ended() {
                    self.lose_holder();
                }
                return Ok(reason);
            }
            self.assembler.prepare();
            child.signals.pass_on(Some(child.pid));
            child.reap().map_err(system("waiting for the program"))?;
            let clock = now();
            let over = match options.until {
                _ if child.status.is_some() => Some("exit"),
                Until::Exit => None,
                Until::LoopStart => self.loop_started.map(|_| "loop-start"),
                Until::Idle => self
                    .loop_started
                    .filter(|_| {
                        clock.saturating_sub(self.assembler.last_record()) > IDLE.as_nanos() as u64
                    })
                    .map(|_| "idle"),
                Until::After(limit) => self
                    .executed
                    .filter(|&e| clock.saturating_sub(e) > limit.as_nanos() as u64)
                    .map(|_| "duration"),
            };
            ended = over; // one more round takes what came in between
        }
    }

    /// Acts on what the records told.
    fn act(&mut self) {
        for notice in self.assembler.take_notices() {
            match notice {
                Notice::Exec { pid } => {
                    if pid == self.root {
                        self.executed.get_or_insert_with(now);
                    }
                }
                Notice::Milestone { pid, name, at } => {
                    let field = match name.as_str() {
                        "loop_start" => {
                            self.loop_started.get_or_insert(at);
                            0
                        }
                        // One reading is enough for a count: the program waits for each.
                        "loop_exit" if !self.count => 1,
                        _ => continue,
                    };
                    let uss = match self.memory_read {
                        // Begun after this milestone, too: it stands for both, and the program waits but once.
                        Some((of, begun, uss)) if of == pid && begun >= at => uss,
                        _ => {
                            let begun = now();
                            let uss = memory::unique_set_size(pid);
                            self.memory_read = Some((pid, begun, uss));
                            uss
                        }
                    };
                    if let Some(process) = self.assembler.find_process(pid) {
                        match field {
                            0 => process.uss_loop_start_bytes = uss,
                            _ => process.uss_exit_bytes = uss,
                        }
                    }
                }
            }
        }
    }

    /// Compares the entries of callbacks with the crossings into them, callback by callback.
    fn verify(&mut self, sums: &[Sum]) -> Verification {
        let mut counts: BTreeMap<CallbackId, (u64, u64)> = BTreeMap::new();
        for sum in sums
            .iter()
            .filter(|s| s.family == SumFamily::CallbackEntries)
        {
            let id = self
                .assembler
                .callback(sum.pid, CrossingKind::Slow, sum.callee);
            counts.entry(id).or_default().0 += sum.calls;
        }
        let recording = &self.assembler.recording;
        let counted = |kind| matches!(kind, CrossingKind::Slow | CrossingKind::Construct);
        for crossing in recording.crossings.iter().filter(|c| counted(c.kind)) {
            counts.entry(crossing.callback).or_default().1 += 1;
        }
        for sum in recording.crossing_sums.iter().filter(|c| counted(c.kind)) {
            counts.entry(sum.callback).or_default().1 += sum.calls;
        }
        let names = &recording.callbacks;
        let differences = counts
            .iter()
            .filter(|(_, (entries, crossings))| entries != crossings)
            .filter_map(|(id, n)| {
                let callback = names.get(id.0 as usize)?;
                Some((
                    callback.binding.clone(),
                    callback.function.clone(),
                    n.0,
                    n.1,
                ))
            });
        Verification {
            entries: counts.values().map(|n| n.0).sum(),
            crossings: counts.values().map(|n| n.1).sum(),
            differences: differences.collect(),
        }
    }

    fn run(
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
            mode: if self.count { "count" } else { "full" }.into(),
            exit_status: status.and_then(|s| s.code()),
            signal: status.and_then(|s| s.signal()),
            sample_hz: Some(options.hz()).filter(|&hz| hz > 0),
            labels: crate::machine::labels(),
        }
    }

    /// Says of each family whether it was recorded.
    fn families(
        &self,
        options: &TraceOptions,
        guess: Option<&Path>,
        guessed: Option<&Result<AttachPlan, String>>,
    ) -> Vec<FamilyState> {
        let plans: Vec<&AttachPlan> = self.assembler.plans().collect();
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

    fn close(
        mut self,
        run: Run,
        families: Vec<FamilyState>,
        counters: &Counters,
        options: &TraceOptions,
        (setup_ns, ns_per_hit): (u64, f64),
    ) -> Recording {
        for (kind, n) in [
            ("records", counters.ring_full),
            ("unmatched_exits", counters.unmatched_exits),
            ("abandoned_frames", counters.abandoned),
            ("frames_too_deep", counters.too_deep),
            ("sums_full", counters.sums_full),
            ("threads_not_followed", counters.no_state),
            ("memory_unreadable", counters.unreadable),
            ("waits", counters.waits_beyond_limit),
            ("processes_of_others", counters.foreign),
            ("counts_unknown", u64::from(self.no_counts.is_some())),
        ] {
            if n > 0 || kind == "records" {
                self.assembler.lose(kind, n);
            }
        }
        let mut losses: Vec<Loss> = self
            .assembler
            .losses()
            .map(|(kind, count)| Loss {
                run: RunId(0),
                kind: kind.into(),
                count,
            })
            .collect();
        losses.sort_by(|a, b| a.kind.cmp(&b.kind));
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
