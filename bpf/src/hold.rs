//! The holder: a small process that attaches probes, and holds the exec of child processes until theirs exist.
//!
//! It is a process of its own, in a session of its own, for three reasons:
//! - detaching a link takes the kernel 30 to 40 ms; nobody waits for it when another process holds the link;
//! - a stop of the tracer (Ctrl-Z) must not stop who answers for held execs;
//! - if the tracer is killed, its end of the socket closes, the holder leaves, and every probe goes with it.
//!   If the holder is killed, the kernel releases what it holds.
//!
//! An exec is held by fanotify (`FAN_OPEN_EXEC_PERM`) on the inodes of node binaries only: nothing else on
//! the host ever waits for nodeprof, and an exec of node outside of the traced tree is let go at once.

use std::{
    collections::{HashMap, VecDeque},
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use libbpf_rs::libbpf_sys;
use nodeprof_probes::plan::{AttachPlan, Family};

use crate::{AttachPoints, Link, Programs, attach, attach::detach_all};

/// How the holder gets at plans: given by the caller, so that this crate needs no policy on caches.
pub type PlanSource = Box<dyn Fn(&Path) -> Result<AttachPlan, String> + Send + Sync>;

/// What the holder reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Probes are attached to a process that is about to execute (or executes) this node binary.
    Attached {
        /// Process.
        pid: u32,
        /// Index that records of this binary carry.
        binary: u8,
        /// Time the attaching took.
        took: Duration,
        /// Number of breakpoints.
        points: u32,
        /// The binary.
        path: PathBuf,
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
    /// The holder answers a [`Holder::ping`].
    Alive,
    /// The holder is gone: no probe is attached any more.
    Gone,
    /// Execs of child processes are held from now on, or why not.
    Holding(Result<(), String>),
}

/// What the tracer asks for.
enum Request {
    Attach { pid: u32, path: PathBuf },
    Watch(PathBuf),
    Ping,
}

/// The tracer's end of the holder.
pub struct Holder {
    socket: OwnedFd,
    pid: libc::pid_t,
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
}

impl Holder {
    /// Forks the holder. To be called while the process has a single thread that uses the allocator.
    ///
    /// # Errors
    /// If the socket or the process cannot be made.
    pub fn start(programs: &Programs, options: HolderOptions) -> io::Result<Holder> {
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
        // SAFETY: the child only uses what it has copies of, and leaves by _exit.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                leave_terminal();
                let state = Arc::new(State::new(programs, options, theirs));
                let outcome =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| state.run()));
                state.detach();
                // SAFETY: ends this process; the kernel detaches all it holds.
                unsafe { libc::_exit(i32::from(outcome.is_err())) }
            }
            pid => Ok(Holder { socket: ours, pid }),
        }
    }

    /// Process id of the holder.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Asks for probes in a process; the answer comes as an [`Event`].
    ///
    /// # Errors
    /// If the holder is gone.
    pub fn attach(&self, pid: u32, path: &Path) -> io::Result<()> {
        send(&self.socket, b'A', pid, path.as_os_str().as_bytes())
    }

    /// Holds future execs of this binary too.
    ///
    /// # Errors
    /// If the holder is gone.
    pub fn watch(&self, path: &Path) -> io::Result<()> {
        send(&self.socket, b'W', 0, path.as_os_str().as_bytes())
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
        // SAFETY: our own child, which nobody else reaps.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
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
        let path = |at: usize| PathBuf::from(OsStr::from_bytes(body.get(at..).unwrap_or_default()));
        match kind {
            b'a' => {
                let packed = word(8)?;
                Some(Event::Attached {
                    pid,
                    binary: packed as u8,
                    took: Duration::from_nanos(word(0)?),
                    points: (packed >> 8) as u32,
                    path: path(16),
                })
            }
            b'f' => {
                let split = word(0)? as usize;
                let reason = String::from_utf8_lossy(body.get(8..8 + split)?).into_owned();
                Some(Event::Failed {
                    pid,
                    path: path(8 + split),
                    reason,
                })
            }
            b'p' => Some(Event::Alive),
            b'h' => Some(Event::Holding(match body.is_empty() {
                true => Ok(()),
                false => Err(String::from_utf8_lossy(&body).into_owned()),
            })),
            _ => None,
        }
    }
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

/// Takes the holder out of the tracer's session, away from the terminal and the standard streams.
fn leave_terminal() {
    // SAFETY: plain system calls on constants; failures leave the holder where it was, which is harmless.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"nodeprof-holder".as_ptr());
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for stream in 0..3 {
            libc::dup2(null, stream);
        }
    }
}

/// A binary that probes were made for.
struct Known {
    binary: u8,
    points: Arc<AttachPoints>,
}

struct State {
    socket: OwnedFd,
    entry: RawFd,
    exit: RawFd,
    threads: RawFd,
    images: RawFd,
    options: HolderOptions,
    known: Mutex<HashMap<(u64, u64), Known>>,
    /// Messages for which the socket had no room: the tracer may be stopped, and must not stop us.
    unsent: Mutex<VecDeque<Vec<u8>>>,
    /// Milliseconds (of `clock`) since when the loop is at work; 0 while it waits.
    busy_since: AtomicU64,
    clock: Instant,
    /// What each process has, by pid, its start time (pids come again), and the binary.
    links: Mutex<HashMap<(u32, u64, u8), Link>>,
    spare: Mutex<Option<Link>>,
}

impl State {
    fn new(programs: &Programs, mut options: HolderOptions, socket: OwnedFd) -> State {
        State {
            spare: Mutex::new(options.spare.take()),
            socket,
            entry: programs.entry(),
            exit: programs.exit(),
            threads: programs.threads(),
            images: programs.images(),
            options,
            known: Mutex::default(),
            links: Mutex::default(),
            unsent: Mutex::default(),
            busy_since: AtomicU64::new(0),
            clock: Instant::now(),
        }
    }

    fn detach(&self) {
        detach_all(std::mem::take(&mut *lock(&self.links)).into_values());
    }

    /// Sends to the tracer, at once or as soon as it reads.
    fn tell(&self, kind: u8, pid: u32, body: &[u8]) {
        lock(&self.unsent).push_back(message(kind, pid, body));
        self.flush();
    }

    fn flush(&self) {
        let mut unsent = lock(&self.unsent);
        while let Some(first) = unsent.front() {
            match transmit(&self.socket, first, libc::MSG_DONTWAIT) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                _ => unsent.pop_front(),
            };
        }
    }

    /// A hung holder would block every exec of node on this host. If a turn of the loop takes longer than
    /// any turn may, the holder ends instead: the kernel lets all execs go.
    fn watch_over(self: &Arc<Self>) {
        let state = Arc::clone(self);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(LONGEST_TURN / 4);
                let since = state.busy_since.load(Ordering::Relaxed);
                let now = state.clock.elapsed().as_millis() as u64;
                if since != 0 && now.saturating_sub(since) > LONGEST_TURN.as_millis() as u64 {
                    // SAFETY: ends this process.
                    unsafe { libc::_exit(1) };
                }
            }
        });
    }

    fn run(self: &Arc<Self>) {
        self.watch_over();
        let fanotify = Fanotify::open();
        if let Ok(f) = &fanotify {
            self.options
                .candidates
                .iter()
                .for_each(|path| f.watch(path));
        }
        let answer = fanotify
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default();
        self.tell(b'h', 0, answer.as_bytes());
        loop {
            let wants = if lock(&self.unsent).is_empty() {
                0
            } else {
                libc::POLLOUT
            };
            self.busy_since.store(0, Ordering::Relaxed);
            let mut fds = [
                libc::pollfd {
                    fd: self.socket.as_raw_fd(),
                    events: libc::POLLIN | wants,
                    revents: 0,
                },
                libc::pollfd {
                    fd: fanotify.as_ref().map_or(-1, |f| f.0.as_raw_fd()),
                    events: libc::POLLIN,
                    revents: 0,
                },
            ];
            // SAFETY: two pollfds.
            if unsafe { libc::poll(fds.as_mut_ptr(), 2, LOOK_IN) } < 0 {
                continue;
            }
            self.busy_since.store(
                (self.clock.elapsed().as_millis() as u64).max(1),
                Ordering::Relaxed,
            );
            if fds[0].revents & libc::POLLOUT != 0 {
                self.flush();
            }
            // Who is held comes first.
            if fds[1].revents & libc::POLLIN != 0
                && let Ok(f) = &fanotify
            {
                for held in f.read() {
                    self.answer(held);
                }
            }
            if fds[0].revents & libc::POLLIN != 0 {
                match receive(&self.socket).and_then(Request::parse) {
                    Some(Request::Attach { pid, path }) => self.attach(pid, &path, &path),
                    Some(Request::Watch(path)) => {
                        if let Ok(f) = &fanotify {
                            f.watch(&path);
                        }
                    }
                    Some(Request::Ping) => self.tell(b'p', 0, b""),
                    None => return, // dropping the fanotify group first: it lets every held exec go
                }
            } else if fds[0].revents & (libc::POLLHUP | libc::POLLERR) != 0 {
                return; // the tracer is gone: so are its probes
            }
        }
    }

    /// Attaches to a held process if it is ours, then lets it go.
    fn answer(self: &Arc<Self>, held: Held) {
        if !is_followed(self.threads, held.pid) {
            return; // dropping lets it go
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{}", held.file.as_raw_fd()))
            .unwrap_or_default();
        if self.is_known(&held.file) {
            self.attach_held(&held, &path);
            return;
        }
        // Resolving a new binary can take a while: others must not wait for it.
        let state = Arc::clone(self);
        std::thread::spawn(move || state.attach_held(&held, &path));
    }

    fn attach_held(&self, held: &Held, path: &Path) {
        // Through the open file: right also when the path is of another mount namespace.
        let open = PathBuf::from(format!("/proc/self/fd/{}", held.file.as_raw_fd()));
        self.attach(held.pid, &open, path);
    }

    fn is_known(&self, file: &File) -> bool {
        file.metadata()
            .is_ok_and(|m| lock(&self.known).contains_key(&(m.dev(), m.ino())))
    }

    fn attach(&self, pid: u32, open: &Path, path: &Path) {
        let started = Instant::now();
        match self.try_attach(pid, open, path) {
            Ok((binary, points)) => {
                let mut body = (started.elapsed().as_nanos() as u64).to_le_bytes().to_vec();
                body.extend((u64::from(binary) | (points as u64) << 8).to_le_bytes());
                body.extend(path.as_os_str().as_bytes());
                self.tell(b'a', pid, &body);
            }
            Err(reason) => {
                let mut body = (reason.len() as u64).to_le_bytes().to_vec();
                body.extend(reason.as_bytes());
                body.extend(path.as_os_str().as_bytes());
                self.tell(b'f', pid, &body);
            }
        }
    }

    fn try_attach(&self, pid: u32, open: &Path, path: &Path) -> Result<(u8, usize), String> {
        let meta = std::fs::metadata(open).map_err(|e| format!("{}: {e}", path.display()))?;
        let key = (meta.dev(), meta.ino());
        let ready = lock(&self.known)
            .get(&key)
            .map(|k| (k.binary, Arc::clone(&k.points)));
        let (binary, points) = match ready {
            Some(found) => found,
            None => {
                let plan = (self.options.plans)(path)?;
                let mut known = lock(&self.known);
                let binary = u8::try_from(known.len())
                    .ok()
                    .filter(|&b| u32::from(b) < crate::wire::MAX_IMAGES);
                let binary = binary.ok_or("more than 64 different node binaries in one trace")?;
                let points = Arc::new(AttachPoints::new(&plan, binary, |f| {
                    self.options.families.contains(&f)
                }));
                self.set_image(binary, &plan).map_err(|e| e.to_string())?;
                known.insert(
                    key,
                    Known {
                        binary,
                        points: Arc::clone(&points),
                    },
                );
                (binary, points)
            }
        };
        // A link follows its process through further execs: a second one would count everything twice.
        let owner = (pid, start_time(pid), binary);
        if !points.is_empty() && !lock(&self.links).contains_key(&owner) {
            let link = attach(self.entry, self.exit, open, pid, &points)
                .map_err(|e| format!("attaching probes: {e}"))?;
            lock(&self.links).insert(owner, link);
            // It has done its work: gone before the end, when only what must be detached shall be.
            if let Some(spare) = lock(&self.spare).take() {
                std::thread::spawn(move || drop(spare));
            }
        }
        Ok((binary, points.len()))
    }

    fn set_image(&self, binary: u8, plan: &AttachPlan) -> io::Result<()> {
        let key = u32::from(binary);
        let value = [
            plan.text.start.0,
            plan.text.end.0,
            plan.builtins.start.0,
            plan.builtins.end.0,
            plan.first_nonstring_type.map_or(0, u64::from),
        ];
        // SAFETY: key and value have the sizes of the map's (u32, struct image of five words).
        let outcome = unsafe {
            libbpf_sys::bpf_map_update_elem(
                self.images,
                (&raw const key).cast(),
                value.as_ptr().cast(),
                0,
            )
        };
        if outcome < 0 {
            Err(io::Error::from_raw_os_error(-outcome))
        } else {
            Ok(())
        }
    }
}

/// Field 22 of `/proc/PID/stat`, in clock ticks; 0 if the process is gone.
fn start_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, field 2, may hold anything: count from its closing parenthesis.
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after
        .split_whitespace()
        .nth(19)
        .and_then(|f| f.parse().ok())
        .unwrap_or(0)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Request {
    fn parse((kind, pid, body): (u8, u32, Vec<u8>)) -> Option<Request> {
        let path = PathBuf::from(OsStr::from_bytes(&body));
        match kind {
            b'A' => Some(Request::Attach { pid, path }),
            b'W' => Some(Request::Watch(path)),
            b'P' => Some(Request::Ping),
            _ => None,
        }
    }
}

/// Above all links of a trace with some hundred processes, below the usual limit of 1,024.
const HIGH_DESCRIPTOR: libc::c_int = 1_000;
/// Interval in ms in which the loop looks for what its threads could not send.
const LOOK_IN: i32 = 500;
/// No turn of the loop takes this long: attaching takes some 20 ms; a new binary is resolved by a thread.
const LONGEST_TURN: Duration = Duration::from_secs(2);
/// Longest message: a reason and a path.
const MESSAGE_LIMIT: usize = 16 << 10;

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

/// A group of inode marks whose execs wait for an answer.
struct Fanotify(OwnedFd);

impl Fanotify {
    fn open() -> io::Result<Fanotify> {
        let flags = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: takes two integers.
        let fd = unsafe {
            libc::fanotify_init(
                flags,
                (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE) as u32,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // As the highest descriptor: when the holder is killed, the kernel queues its descriptors' ends in
        // ascending order and works the queue off from the newest (task_work), and held execs must not wait
        // until the links are detached.
        // SAFETY: a descriptor of ours.
        unsafe {
            let highest = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
            if highest < 0 {
                return Ok(Fanotify(OwnedFd::from_raw_fd(fd)));
            }
            libc::close(fd);
            Ok(Fanotify(OwnedFd::from_raw_fd(highest)))
        }
    }

    /// Holds execs of one file. A file that cannot be marked is not held; its processes are then caught at exec.
    fn watch(&self, path: &Path) {
        let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
            return;
        };
        // SAFETY: the path is NUL-terminated and lives through the call.
        unsafe {
            libc::fanotify_mark(
                self.0.as_raw_fd(),
                libc::FAN_MARK_ADD,
                libc::FAN_OPEN_EXEC_PERM,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
    }

    /// All execs that wait now.
    fn read(&self) -> Vec<Held> {
        let mut buffer = [0u8; 4096];
        // SAFETY: the buffer has the length given.
        let got =
            unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        let mut rest = &buffer[..usize::try_from(got).unwrap_or(0)];
        let mut all = Vec::new();
        const SIZE: usize = size_of::<libc::fanotify_event_metadata>();
        while rest.len() >= SIZE {
            // SAFETY: enough bytes; the struct consists of integers; alignment is not assumed.
            let event = unsafe {
                rest.as_ptr()
                    .cast::<libc::fanotify_event_metadata>()
                    .read_unaligned()
            };
            if event.fd >= 0 {
                // SAFETY: the kernel opened it for us.
                let file = unsafe { File::from_raw_fd(event.fd) };
                all.push(Held {
                    file,
                    pid: event.pid as u32,
                    group: self.0.as_raw_fd(),
                });
            }
            rest = rest
                .get((event.event_len as usize).max(SIZE)..)
                .unwrap_or_default();
        }
        all
    }
}

/// An exec that waits. Dropping lets it go: whatever fails in between, the program is never blocked.
struct Held {
    file: File,
    pid: u32,
    group: RawFd,
}

impl Drop for Held {
    fn drop(&mut self) {
        let answer = libc::fanotify_response {
            fd: self.file.as_raw_fd(),
            response: libc::FAN_ALLOW,
        };
        // SAFETY: a plain struct of the size given.
        unsafe { libc::write(self.group, (&raw const answer).cast(), size_of_val(&answer)) };
    }
}
