//! The holder: a small process that attaches probes, and holds the exec of child processes until theirs exist.
//!
//! It is a process of its own, in a session of its own, for three reasons:
//! - detaching a link takes the kernel 30 to 40 ms; another process that holds the link does so while the recording is written;
//! - a stop of the tracer (Ctrl-Z) must not stop who answers for held execs;
//! - if the tracer is killed, its end of the socket closes, the holder leaves, and every probe goes with it.
//!   If the holder is killed, the kernel releases what it holds.
//!
//! An exec is held by fanotify (`FAN_OPEN_EXEC_PERM`) on the inodes of node binaries only: nothing else on
//! the host ever waits for nodeprof, and an exec of node outside of the traced tree is let go at once.
//!
//! What nobody knew to be node is caught after its exec: the kernel side tells each execution of a large program, and the
//! holder stops it by ptrace before the dynamic linker has reached its main, until it has its probes.

mod fanotify;
pub mod guard;
mod host;
mod images;
mod keeper;
mod large_pages;
mod mounts;
mod table;
mod tracee;
mod turn;
mod worker;

pub use large_pages::first_line_asks as first_line_asks_for_large_pages;

use std::{
    ffi::OsStr,
    fs::File,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use libbpf_rs::libbpf_sys;
use nodeprof_probes::plan::{AttachPlan, Family};

use self::{guard::Guarded, keeper::Keeper};
use crate::{Link, Programs, expedite::Expedited};

/// How the holder gets at plans: given by the caller, so that this crate needs no policy on caches. The first path is the name of the
/// binary, where something else may be by now; the second leads to the very file that was opened.
pub type PlanSource = Box<dyn Fn(&Path, &Path) -> Result<AttachPlan, String> + Send + Sync>;

/// Whether a process that executes this program is to be recorded: asked by the holder of a service while the exec waits, so
/// the answer takes microseconds; or after an exec that was not held.
pub type Admission = Box<dyn FnMut(u32, &Path, Met) -> bool>;

/// How the holder of a service has met a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It waits in its exec of a node binary.
    Held,
    /// It has executed a node binary that is known.
    Running,
    /// It has executed a large program, which may be node.
    Unknown,
}

/// What is to be known of a process that got its probes: asked by the holder right after its exec went on, when it is there for certain. The
/// answer is handed on as it is ([`Event::Attached`]), or left out if it is longer than [`DESCRIPTION_LIMIT`].
pub type Description = Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>;

/// Bytes of a [`Description`].
pub const DESCRIPTION_LIMIT: usize = 8 << 10;

/// What the holder reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Probes are attached to a process that is about to execute (or executes) this node binary.
    Attached {
        /// Process.
        pid: u32,
        /// Index that records of this binary carry.
        binary: u8,
        /// Another one: the holder of a service has given the index to another binary.
        serial: u32,
        /// Time the attaching took.
        took: Duration,
        /// Number of breakpoints.
        points: u32,
        /// The binary, as the process sees it.
        path: PathBuf,
        /// Its device and inode, if known: by its path there may be another one here.
        file: Option<(u64, u64)>,
        /// Where the holder of a trace has it open until it ends: the process may have ended, and its file system with it.
        open: Option<PathBuf>,
        /// After the exec: complete only if the beginning of its main is seen from now on.
        after_exec: bool,
        /// Time since its exec was met, or held: no more of its beginning than this can be missing.
        since: Duration,
        /// See [`HolderOptions::description`]; empty without one, or if it was too long.
        description: Vec<u8>,
    },
    /// A process was kept stopped after its exec, until its probes existed.
    Stopped {
        /// Process.
        pid: u32,
        /// When it stopped: CLOCK_MONOTONIC, ns.
        from: u64,
        /// When it went on.
        to: u64,
    },
    /// A process could not be stopped after its exec: it may have run before its probes existed.
    NotStopped {
        /// Process.
        pid: u32,
        /// Why.
        reason: String,
    },
    /// Probes could not be attached.
    Failed {
        /// Process.
        pid: u32,
        /// The binary.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A process of a service had executed a known node binary, and ended, before anybody could ask whether it is to be recorded.
    Unasked {
        /// Process.
        pid: u32,
    },
    /// The holder answers a [`Holder::ping`].
    Alive,
    /// The holder is gone: no probe is attached any more.
    Gone,
    /// Execs of child processes are held from now on, or why not.
    Holding(Result<(), String>),
    /// System calls of whom a service records from now on cannot be traced, and why; or are traced again.
    Tracing(Result<(), String>),
}

impl Event {
    /// The process whose start it tells of, and no other event does.
    #[must_use]
    pub fn start(&self) -> Option<u32> {
        match self {
            Event::Attached { pid, .. } | Event::Failed { pid, .. } | Event::Unasked { pid } => {
                Some(*pid)
            }
            _ => None,
        }
    }
}

/// What the tracer asks for.
enum Request {
    Attach { pid: u32, path: PathBuf },
    Release { pid: u32 },
    Ping,
}

/// The tracer's end of the holder.
pub struct Holder {
    socket: OwnedFd,
    /// Of our own child; `None`: it is that of a service, which looks after it.
    pid: Option<libc::pid_t>,
}

/// Whom a holder obeys.
pub enum Obeys {
    /// Who has the other end of its socket.
    Socket,
    /// Nobody: that end is in the hands of somebody who may not have everything traced. It gives this process its probes, which executes this
    /// file, then those that the followed tree executes.
    Nobody(Option<(u32, File)>),
}

/// How execs are held.
pub enum Execs {
    /// By the holder alone: it needs CAP_SYS_ADMIN.
    Alone,
    /// With a guard.
    Guarded(Rc<Guarded>),
    /// Not at all, for this reason.
    Not(String),
}

/// Settings of a holder.
pub struct HolderOptions {
    /// Families to attach.
    pub families: Vec<Family>,
    /// Where plans come from.
    pub plans: PlanSource,
    /// Node binaries that children may execute: their execs are held.
    pub candidates: Vec<PathBuf>,
    /// A link that is only to be detached, where nobody waits for it.
    pub spare: Option<Link>,
    /// For a service: follow whom this admits, whoever started it; else the traced tree only. The programs must be loaded with
    /// [`Options::host`](crate::Options).
    pub admission: Option<Admission>,
    /// For a service: what it wants to know of each process.
    pub description: Option<Description>,
    /// How execs are held.
    pub execs: Execs,
    /// For a service: trace syscalls while there is a process to be recorded.
    pub syscalls: bool,
    /// Whom it obeys.
    pub obeys: Obeys,
}

impl Holder {
    /// Forks the holder. To be called while the process has a single thread that uses the allocator.
    ///
    /// # Errors
    /// If the socket or the process cannot be made.
    pub fn start(programs: &Programs, mut options: HolderOptions) -> io::Result<Holder> {
        for path in &mut options.candidates {
            // It is in another folder than we.
            *path = std::path::absolute(&path)?;
        }
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors.
        if unsafe {
            libc::socketpair(
                libc::AF_UNIX,
                libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
                0,
                ends.as_mut_ptr(),
            )
        } < 0
        {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: two new descriptors that nobody else owns.
        let (ours, theirs) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        let is_next = programs.has_next_holder();
        // SAFETY: the child only uses what it has copies of, and leaves by _exit.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                leave_terminal();
                if options.admission.is_some() || matches!(options.obeys, Obeys::Nobody(_)) {
                    let mut used = vec![theirs.as_raw_fd()];
                    if let Execs::Guarded(guarded) = &options.execs {
                        used.extend([guarded.descriptor(), guarded.memory().as_raw_fd()]);
                    }
                    if let Obeys::Nobody(Some((_, binary))) = &options.obeys {
                        used.push(binary.as_raw_fd());
                    }
                    let_go_of_others(&used);
                }
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    Keeper::new(programs, options, theirs, is_next)
                        .map(|keeper| keeper.run(programs))
                }));
                // SAFETY: ends this process; the kernel detaches all it holds.
                unsafe { libc::_exit(i32::from(!matches!(outcome, Ok(Ok(()))))) }
            }
            pid => Ok(Holder {
                socket: ours,
                pid: Some(pid),
            }),
        }
    }

    /// That of a service, which has handed over this end of its socket.
    pub fn lent(socket: OwnedFd) -> Holder {
        Holder { socket, pid: None }
    }

    /// Process id of the holder; 0: unknown.
    pub fn pid(&self) -> u32 {
        self.pid.map_or(0, |pid| pid as u32)
    }

    /// This end of its socket, to be handed over.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Asks for probes in a process; the answer comes as an [`Event`].
    ///
    /// # Errors
    /// If the holder is gone.
    pub fn attach(&self, pid: u32, path: &Path) -> io::Result<()> {
        let path = std::path::absolute(path)?;
        send(&self.socket, b'A', pid, path.as_os_str().as_bytes())
    }

    /// Takes the probes of a process away, which is followed no longer.
    ///
    /// # Errors
    /// If the holder is gone.
    pub fn release(&self, pid: u32) -> io::Result<()> {
        send(&self.socket, b'R', pid, b"")
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// If the holder is gone.
    pub fn ping(&self) -> io::Result<()> {
        transmit(&self.socket, &message(b'P', 0, b""), libc::MSG_DONTWAIT)
    }

    /// Ends a holder that gives no sign of life: a hung one blocks every exec of node on this host.
    pub fn kill(&self) {
        if let Some(pid) = self.pid {
            // SAFETY: our own child, which nobody else reaps.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }

    /// Asks it to detach all and to end, and waits for that; one that has not in this time is killed.
    pub fn end(&self, limit: Duration) {
        // SAFETY: our own descriptor. To the holder it looks as if we were gone.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
        let until = std::time::Instant::now() + limit;
        while !self.has_ended() {
            if std::time::Instant::now() > until {
                self.kill();
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(pid) = self.pid {
            reap_soon(pid);
        }
    }

    /// As [`end`](Holder::end), but hears what it still has to tell. Later events are of another one.
    pub fn end_and_hear(&self, limit: Duration, mut hear: impl FnMut(Event)) {
        const PATIENCE: Duration = Duration::from_millis(5);
        // SAFETY: our own descriptor. The holder finds nobody who asks, and somebody who reads.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_WR) };
        let until = std::time::Instant::now() + limit;
        loop {
            // Before it is heard: what it told at its end is there by then.
            let is_over = self.has_ended() || std::time::Instant::now() > until;
            match self.next(if is_over { Duration::ZERO } else { PATIENCE }) {
                Some(Event::Gone) => break,
                Some(event) => hear(event),
                None if is_over => break,
                None => {}
            }
        }
        self.end(until.saturating_duration_since(std::time::Instant::now()));
    }

    /// Whether it has ended, or is about to: with its probes it may take a while.
    pub fn is_ending(&self) -> bool {
        self.pid.is_some_and(is_exiting) || self.has_ended()
    }

    /// Whether it has ended. Its socket may tell so later: helpers of it have that, too.
    pub fn has_ended(&self) -> bool {
        let Some(pid) = self.pid else {
            return false;
        };
        let mut about = MaybeUninit::<libc::siginfo_t>::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: our own child; `about` is large enough and zeroed, so that it can be read in any case.
        unsafe {
            libc::waitid(libc::P_PID, pid as libc::id_t, about.as_mut_ptr(), options) == 0
                && about.assume_init().si_pid() == pid
        }
    }

    /// Closes our copy of its socket, which somebody else has by now.
    pub fn hand_over(self) -> HandedOver {
        HandedOver(self.pid)
    }

    /// Descriptor to poll for events.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The next event; waits up to `timeout`. `None`: nothing came, or the holder is gone.
    pub fn next(&self, timeout: Duration) -> Option<Event> {
        let mut fds = libc::pollfd {
            fd: self.socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd.
        if unsafe {
            libc::poll(
                &mut fds,
                1,
                timeout.as_millis().min(i32::MAX as u128) as i32,
            )
        } <= 0
        {
            return None;
        }
        let Some((kind, pid, body)) = receive(&self.socket) else {
            return Some(Event::Gone);
        };
        let word = |at: usize| {
            body.get(at..at + 8)
                .and_then(|b| b.try_into().ok())
                .map(u64::from_le_bytes)
        };
        let half_word = |at: usize| {
            body.get(at..at + 4)
                .and_then(|b| b.try_into().ok())
                .map(u32::from_le_bytes)
        };
        let path = |at: usize| PathBuf::from(OsStr::from_bytes(body.get(at..).unwrap_or_default()));
        match kind {
            b'a' => Some(Event::Attached {
                pid,
                took: Duration::from_nanos(word(0)?),
                points: half_word(8)?,
                binary: *body.get(12)?,
                after_exec: *body.get(13)? != 0,
                since: Duration::from_nanos(word(14)?),
                file: Some((word(22)?, word(30)?)).filter(|file| *file != (0, 0)),
                serial: half_word(38)?,
                open: (self.pid.zip(half_word(42)))
                    .filter(|(_, descriptor)| *descriptor != NOT_OPEN)
                    .map(|(pid, descriptor)| format!("/proc/{pid}/fd/{descriptor}").into()),
                description: body.get(50..50 + half_word(46)? as usize)?.to_vec(),
                path: path(50 + half_word(46)? as usize),
            }),
            b'f' => {
                let split = 4 + half_word(0)? as usize;
                Some(Event::Failed {
                    pid,
                    reason: String::from_utf8_lossy(body.get(4..split)?).into_owned(),
                    path: path(split),
                })
            }
            b'u' => Some(Event::Unasked { pid }),
            b's' => Some(Event::Stopped {
                pid,
                from: word(0)?,
                to: word(8)?,
            }),
            b'l' => Some(Event::NotStopped {
                pid,
                reason: String::from_utf8_lossy(&body).into_owned(),
            }),
            b'p' => Some(Event::Alive),
            b'h' => Some(Event::Holding(outcome(&body))),
            b'y' => Some(Event::Tracing(outcome(&body))),
            _ => None,
        }
    }
}

/// Nothing, or what went wrong.
fn outcome(body: &[u8]) -> Result<(), String> {
    match body.is_empty() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(body).into_owned()),
    }
}

/// A holder that leaves when somebody else closes its socket.
pub struct HandedOver(Option<libc::pid_t>);

impl HandedOver {
    /// Waits for its end; one that has not ended in this time is killed.
    pub fn end(self, limit: Duration) {
        let Some(pid) = self.0 else { return };
        let until = std::time::Instant::now() + limit;
        // SAFETY: our own child, which nobody else reaps; its status is of no interest.
        while unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) } == 0 {
            if std::time::Instant::now() > until {
                // SAFETY: as above; not reaped yet.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                return reap_soon(pid);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How long a child that was killed is waited for.
const REAPING: Duration = Duration::from_millis(200);

/// Waits for a child that has ended or was killed. One that cannot end yet, because the kernel does not take its probes away (see
/// [`closing`](crate::closing)), is left to who reaps what we leave.
fn reap_soon(pid: libc::pid_t) {
    let until = std::time::Instant::now() + REAPING;
    // SAFETY: our own child, which nobody else reaps; its status is of no interest.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) } == 0
        && std::time::Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the kernel is about to end a process, or has.
fn is_exiting(pid: libc::pid_t) -> bool {
    /// Number of the field `flags` in proc(5).
    const FLAGS: usize = 9;
    /// `PF_EXITING` of linux/sched.h.
    const EXITING: u32 = 4;
    let flags = crate::stat_field(pid as u32, FLAGS).and_then(|f| f.parse().ok());
    flags.is_some_and(|flags: u32| flags & EXITING != 0)
}

/// Whether a thread is its process's main one; also if nothing can be said.
fn is_main_thread(thread: u32) -> bool {
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, thread, 0) } as RawFd;
    if fd < 0 {
        // Of a thread that is no process the kernel says EINVAL, newer ones ENOENT.
        let why = io::Error::last_os_error().raw_os_error();
        return !matches!(why, Some(libc::EINVAL | libc::ENOENT));
    }
    // SAFETY: a new descriptor that nobody else owns.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    true
}

/// Whether the process is part of the followed tree. `threads` is [`Programs::threads`].
pub fn is_followed(threads: RawFd, pid: u32) -> bool {
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as RawFd;
    if fd < 0 {
        return false;
    }
    // SAFETY: a new descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let key = fd.as_raw_fd();
    let mut value = [0u8; 4096];
    // SAFETY: the key is a descriptor, the value has more room than `struct thread` (asserted in the BPF program to fit 4 KiB).
    unsafe {
        libbpf_sys::bpf_map_lookup_elem(threads, (&raw const key).cast(), value.as_mut_ptr().cast())
            == 0
    }
}

/// Takes the holder out of the tracer's session, away from the terminal, the standard streams, and the folder, whose file system could not be
/// unmounted while it is there.
pub(crate) fn leave_terminal() {
    // SAFETY: plain system calls on constants; failures leave the holder where it was, which is harmless.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"nodeprof-holder".as_ptr());
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        // A process that is recorded takes some: without one for the next exec the kernel would refuse that.
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for stream in 0..3 {
            libc::dup2(null, stream);
        }
    }
}

/// Lets go of the files, sockets and pipes that the holder of a service or a tracer has by its fork, and does not use: a database that is removed would keep its space, a client's
/// connection would have no end while the holder lives. What is the kernel's own (BPF, fanotify, events) stays. Each number stays taken, by nothing: its owner may still close it.
fn let_go_of_others(used: &[RawFd]) {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let all: Vec<RawFd> = numbers.collect();
    // SAFETY: a constant with its NUL.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    for descriptor in all {
        let is_stream = descriptor <= libc::STDERR_FILENO;
        if is_stream || descriptor == null || used.contains(&descriptor) {
            continue;
        }
        let leads_to = std::fs::read_link(format!("/proc/self/fd/{descriptor}"));
        let is_others = |to: PathBuf| !to.as_os_str().as_bytes().starts_with(b"anon_inode:");
        if leads_to.is_ok_and(is_others) {
            // SAFETY: who owns it does not use it in this process.
            unsafe { libc::dup3(null, descriptor, libc::O_CLOEXEC) };
        }
    }
    // SAFETY: opened above.
    unsafe { libc::close(null) };
}

/// Ahead of all ordinary programs: what was executed shall be stopped before its main, 1 to 3 ms later, on a busy
/// machine, too. Without the right to it (CAP_SYS_NICE) the holder takes its turn.
fn act_first() {
    set_scheduling(libc::SCHED_FIFO, 1);
}

/// Ahead of those, too.
fn act_first_of_all() {
    set_scheduling(libc::SCHED_FIFO, 2);
}

/// CLOCK_MONOTONIC, ns: the clock of the records.
fn now() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live struct.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// For what takes long, and nobody's start depends on within milliseconds.
fn act_in_turn() {
    set_scheduling(libc::SCHED_OTHER, 0);
}

/// For what nobody waits for: this thread does not take the CPU from a program that runs when it wakes up, and has its share of a busy machine still.
pub fn act_behind() {
    set_scheduling(libc::SCHED_BATCH, 0);
}

/// Takes links away, for which the kernel takes a while. As far ahead of all programs as the thread that asks for it: it holds locks of the kernel
/// that an attach may wait for, and an exec for that.
fn aside(detach: impl FnOnce() + Send + 'static) {
    let dropping = Dropping::begin();
    let work = move || {
        let _dropping = dropping; // until grace periods are what they were
        let _expedited = Expedited::new();
        detach();
    };
    // Where no further thread is to be had they go here.
    let _ = std::thread::Builder::new().spawn(work);
}

/// How many take links away now.
static DROPPING: AtomicUsize = AtomicUsize::new(0);

/// Whether some do.
fn is_dropping() -> bool {
    DROPPING.load(Ordering::Acquire) > 0
}

/// One that does, or is about to.
struct Dropping(());

impl Dropping {
    fn begin() -> Dropping {
        DROPPING.fetch_add(1, Ordering::Relaxed);
        Dropping(())
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        DROPPING.fetch_sub(1, Ordering::Release);
    }
}

/// Of niceness.
const HIGHEST: libc::c_int = -20;

fn set_scheduling(policy: libc::c_int, priority: libc::c_int) {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: a live struct; the calling thread.
    let refused = unsafe { libc::sched_setscheduler(0, policy, &parameters) < 0 };
    // SAFETY: takes integers; the calling thread.
    unsafe {
        if refused {
            // A kernel with CONFIG_RT_GROUP_SCHED has no real-time priority for most control groups: then the highest of the others.
            libc::setpriority(libc::PRIO_PROCESS, 0, HIGHEST);
        } else if priority == 0 && libc::getpriority(libc::PRIO_PROCESS, 0) == HIGHEST {
            libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        }
    }
}

impl Request {
    fn parse((kind, pid, body): (u8, u32, Vec<u8>)) -> Option<Request> {
        let path = PathBuf::from(OsStr::from_bytes(&body));
        match kind {
            b'A' => Some(Request::Attach { pid, path }),
            b'R' => Some(Request::Release { pid }),
            b'P' => Some(Request::Ping),
            _ => None,
        }
    }
}

/// In place of a descriptor.
const NOT_OPEN: u32 = u32::MAX;

/// Longest message: a reason or a description, and a path.
const MESSAGE_LIMIT: usize = 16 << 10;
// A message with a description has a path, too, and a few numbers.
const _: () = assert!(DESCRIPTION_LIMIT + libc::PATH_MAX as usize + 64 <= MESSAGE_LIMIT);

fn message(kind: u8, pid: u32, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend(pid.to_le_bytes());
    message.extend(&body[..body.len().min(MESSAGE_LIMIT - 5)]);
    message
}

fn send(socket: &OwnedFd, kind: u8, pid: u32, body: &[u8]) -> io::Result<()> {
    transmit(socket, &message(kind, pid, body), 0)
}

fn transmit(socket: &OwnedFd, message: &[u8], flags: i32) -> io::Result<()> {
    // SAFETY: the buffer lives through the call.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            libc::MSG_NOSIGNAL | flags,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn receive(socket: &OwnedFd) -> Option<(u8, u32, Vec<u8>)> {
    let mut buffer = vec![0u8; MESSAGE_LIMIT];
    // SAFETY: the buffer has the length given.
    let got = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
        )
    };
    buffer.truncate(usize::try_from(got).ok()?);
    let pid = u32::from_le_bytes(buffer.get(1..5)?.try_into().ok()?);
    Some((buffer[0], pid, buffer.split_off(5)))
}
