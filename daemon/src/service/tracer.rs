//! Traces of users who may not load programs into the kernel: `nodeprof trace` without root.
//!
//! nodeprof asks the service on the control socket, and hands over a pidfd of the process that it has forked and that waits for its exec. If that is the
//! user's own, a process of its own, the tracer, loads the programs, starts a holder, and hands back two descriptors: the ring buffer, into
//! which the kernel writes nothing but records of this trace, and the holder's socket, on which it tells of attached processes and obeys nobody.
//! All that reads files, makes sense of records or writes a recording happens in nodeprof, with the user's own rights.
//!
//! What keeps others' programs out: the kernel side follows a process only as long as user and group ids are all the owner's and its memory may be
//! looked at by the owner ([`Options::owner`](nodeprof_bpf::Options)), and it has no capability, which is what the kernel asks for before it lets one attach a debugger.
//! A program that is set-user-ID, has capabilities, of its file or of a service's, or may not be read is not followed.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    io::{self, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::{fs::MetadataExt as _, net::UnixStream, process::CommandExt as _},
    },
    path::PathBuf,
    process::{Command, Stdio},
    rc::Rc,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use nodeprof_bpf::{
    Owner, Programs, Warmth,
    hold::{
        Execs, Holder, HolderOptions, Obeys,
        guard::{Asked, Guarded},
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    control::{Answer, LONGEST_STEP, Step, encode, read_message, write_message, write_with_files},
    recorder::{Counted, Wanted, idle_address, load_plan},
};

/// Traces at a time: each has a ring buffer of 8 MB and some more in the kernel.
const MOST: usize = 4;
/// Of one user.
const MOST_OF_A_USER: usize = 2;
/// CAP_WAKE_ALARM, which systemd gives to whoever sits before the machine: so in processes.bpf.h.
const CAPABILITIES_OF_ALL: u64 = 1 << 35;
/// Of linux/nsfs.h.
const NS_GET_OWNER_UID: libc::Ioctl = 0xb704;
/// For the probes to go when a trace is over.
const LEAVING: Duration = Duration::from_secs(2);
/// For a client to read what is said.
const PATIENCE: Duration = Duration::from_secs(10);

/// Node binaries that it knows of from the beginning: those of the configuration, 256 that were met, and those that run, of which users start as many as they like.
/// A child that executes another one is treated as any whose binary nobody knew of.
pub(super) const MOST_NODES: usize = 1024;
/// Bytes of what it is told: so many paths of 4,096 bytes, each of which takes up to four as JSON.
pub(super) const LONGEST_JOB: usize = MOST_NODES * 4096 * 4 + (64 << 10);

/// What a tracer gets of the service.
#[derive(Clone, Debug, Default)]
pub(super) struct Means {
    /// Folder of plans.
    pub(super) cache: Option<PathBuf>,
    /// Where a guard listens; else it forks one.
    pub(super) guard: Option<PathBuf>,
    /// Whether execs of children may be held.
    pub(super) hold: bool,
    /// Node binaries that children may execute.
    pub(super) nodes: Vec<PathBuf>,
}

/// Traces under way, by user.
#[derive(Default)]
pub(super) struct Places(Mutex<HashMap<u32, usize>>);

/// One of them.
pub(super) struct Place<'p> {
    places: &'p Places,
    uid: u32,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one.
    pub(super) fn enter(&self, uid: u32) -> Result<Place<'_>, String> {
        let mut all = self.lock();
        let taken: usize = all.values().sum();
        let own = all.get(&uid).copied().unwrap_or(0);
        if own >= MOST_OF_A_USER || taken >= MOST {
            return Err(format!(
                "found {own} traces of yours and {} of others under way; needed: fewer than {MOST_OF_A_USER} of a user, {MOST} of all; wait for one to end, or type: sudo nodeprof trace …",
                taken - own
            ));
        }
        all.insert(uid, own + 1);
        Ok(Place { places: self, uid })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut all = self.places.lock();
        if let Some(own) = all.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                all.remove(&self.uid);
            }
        }
    }
}

/// Number of the process of a pidfd, if it is one that this user may trace: not merely started by the user, but with no rights besides the user's.
pub(super) fn check(process: &OwnedFd, asks: Owner) -> Result<u32, String> {
    let refused = |found: String| {
        format!(
            "found {found}; needed: a process of yours that waits for its exec, as nodeprof trace has it"
        )
    };
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()));
    let about = about.unwrap_or_default();
    let pid = about.lines().find_map(|line| line.strip_prefix("Pid:"));
    let pid: u32 = pid
        .and_then(|pid| pid.trim().parse().ok())
        .filter(|&pid| pid > 0)
        .ok_or_else(|| refused("no pidfd of a living process that nodeprofd can see".into()))?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = |name: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let words = line.unwrap_or_default().split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let (users, groups) = (ids("Uid:"), ids("Gid:"));
    // The files of a process in /proc are the owner's only where the owner may look into it (its folder always is).
    let owner = fs::metadata(format!("/proc/{pid}/status")).map(|meta| meta.uid());
    let is_own = users == [asks.uid; 4]
        && groups == [asks.gid; 4]
        && owner.is_ok_and(|owner| owner == asks.uid);
    if !is_own {
        return Err(refused(format!("process {pid}, which is not yours alone")));
    }
    let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    let permitted = permitted.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    let is_unprivileged = permitted.is_some_and(|permitted| permitted & !CAPABILITIES_OF_ALL == 0)
        || namespace_owner(pid).is_some_and(|owner| owner == asks.uid);
    if !is_unprivileged {
        return Err(refused(format!(
            "process {pid}, which has capabilities besides your rights"
        )));
    }
    let mut ended = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd.
    if unsafe { libc::poll(&mut ended, 1, 0) } != 0 {
        return Err(refused(format!("process {pid}, which has ended")));
    }
    Ok(pid)
}

/// Who has made the user namespace of a process, and has all rights in it; of the initial one, root.
fn namespace_owner(pid: u32) -> Option<u32> {
    let namespace = fs::File::open(format!("/proc/{pid}/ns/user")).ok()?;
    let mut owner: libc::uid_t = 0;
    // SAFETY: room for the one number that it writes.
    let got = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &mut owner) };
    (got == 0).then_some(owner)
}

/// What the tracer is told on its standard input: command lines are everybody's to read, and these paths are not; nor does one hold as many as there may be.
#[derive(Serialize, Deserialize)]
struct Job {
    wanted: Wanted,
    pid: u32,
    owner: Owner,
    cache: Option<PathBuf>,
    guard: Option<PathBuf>,
    hold: bool,
    /// Paths that need be no text: users choose them.
    nodes: Vec<OsString>,
    connection: RawFd,
    process: RawFd,
    binary: Option<RawFd>,
}

/// A trace that was asked for, and may be.
pub(super) struct Tracer<'a> {
    pub(super) wanted: &'a Wanted,
    pub(super) connection: &'a UnixStream,
    pub(super) process: &'a OwnedFd,
    pub(super) binary: Option<OwnedFd>,
    pub(super) pid: u32,
    pub(super) owner: Owner,
}

impl Tracer<'_> {
    /// Runs the tracer to its end. An error: it could not be started, and the client has no answer yet.
    pub(super) fn run(self, means: &Means) -> Result<(), String> {
        if let Some(binary) = &self.binary {
            check_readable(binary)?;
        }
        let copy = |fd: RawFd| high(fd).map_err(|error| error.to_string());
        let connection = copy(self.connection.as_raw_fd())?;
        let process = copy(self.process.as_raw_fd())?;
        let binary = self.binary.as_ref().map(|file| copy(file.as_raw_fd()));
        let binary = binary.transpose()?;
        let nodes = means.nodes.iter().take(MOST_NODES);
        let job = Job {
            wanted: self.wanted.clone(),
            pid: self.pid,
            owner: self.owner,
            cache: means.cache.clone(),
            guard: means.guard.clone(),
            hold: means.hold,
            nodes: nodes.map(OsString::from).collect(),
            connection: connection.as_raw_fd(),
            process: process.as_raw_fd(),
            binary: binary.as_ref().map(|file| file.as_raw_fd()),
        };
        let job_text = encode(&job).map_err(|error| error.to_string())?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("--tracer")
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let kept = [Some(job.connection), Some(job.process), job.binary];
        leave_open(&mut command, kept.into_iter().flatten().collect());
        let failed = |error| format!("nodeprofd cannot start a tracer: {error}");
        let mut child = command.spawn().map_err(failed)?;
        drop((connection, process, binary));
        let stdin = child.stdin.take();
        if let Some(Err(error)) = stdin.map(|mut stdin| stdin.write_all(&job_text)) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(error));
        }
        // The client sees the end of the connection when the tracer and its holder are gone: this is the last copy of it.
        let _ = child.wait();
        Ok(())
    }
}

/// A copy with a number that is nobody else's in a child, either.
pub(super) fn high(fd: RawFd) -> io::Result<OwnedFd> {
    const FROM: libc::c_int = 64;
    // SAFETY: takes integers; the descriptor is new.
    match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, FROM) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: as above.
        new => Ok(unsafe { OwnedFd::from_raw_fd(new) }),
    }
}

/// Lets these descriptors be open in what a command executes, which ends with the service.
pub(super) fn leave_open(command: &mut Command, descriptors: Vec<RawFd>) {
    // SAFETY: calls only what may be called after a fork.
    unsafe {
        command.pre_exec(move || {
            for &fd in &descriptors {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

/// Whether a descriptor is one that its owner could read: the service may open more than its users.
fn check_readable(binary: &OwnedFd) -> Result<(), String> {
    // SAFETY: takes integers.
    let flags = unsafe { libc::fcntl(binary.as_raw_fd(), libc::F_GETFL) };
    let reads =
        flags >= 0 && flags & libc::O_PATH == 0 && flags & libc::O_ACCMODE != libc::O_WRONLY;
    match reads {
        true => Ok(()),
        false => {
            Err("found a binary that is not open for reading; needed: one that you may read".into())
        }
    }
}

/// The tracer's process: `nodeprofd --tracer`, with its job on standard input.
///
/// # Errors
/// What is wrong with the job. What goes wrong with the trace is told to the client.
pub fn main() -> Result<(), String> {
    // By its length: who was forked meanwhile may have the other end of the pipe, too.
    let job: Job = read_message(&mut io::stdin().lock(), LONGEST_JOB)
        .map_err(|error| format!("--tracer is for nodeprofd's own use: {error}"))?;
    // SAFETY: a constant with its NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"nodeprof-tracer".as_ptr()) };
    // SAFETY: the service has left these to us, and names each once.
    let own = |fd: RawFd| unsafe { OwnedFd::from_raw_fd(fd) };
    let mut connection = UnixStream::from(own(job.connection));
    let process = own(job.process);
    let binary = job.binary.map(|fd| fs::File::from(own(fd)));
    let timeouts = connection
        .set_read_timeout(None)
        .and_then(|()| connection.set_write_timeout(Some(PATIENCE)));
    timeouts.map_err(|error| error.to_string())?;
    if let Err(why) = trace(&job, &mut connection, &process, binary) {
        let _ = write_message(&mut connection, &Answer::Refused { why });
    }
    Ok(())
}

fn trace(
    job: &Job,
    connection: &mut UnixStream,
    process: &OwnedFd,
    binary: Option<fs::File>,
) -> Result<(), String> {
    let in_words = |error: io::Error| format!("nodeprofd cannot trace: {error}");
    // Before there are threads.
    let guarded = match (job.hold, &job.guard) {
        (false, _) => Err("turned off in the configuration of nodeprofd: hold = false".to_owned()),
        (true, Some(path)) => Guarded::connect(path).map_err(|error| error.to_string()),
        (true, None) => Guarded::fork()
            .and_then(Asked::wait)
            .map_err(|error| error.to_string()),
    };
    // It stays until the trace is over.
    let guarded = guarded.map(Rc::new);
    let execs = match &guarded {
        Ok(guarded) => Execs::Guarded(Rc::clone(guarded)),
        Err(why) => Execs::Not(why.clone()),
    };
    let warmth = Warmth::start(idle_address());
    let options = job.wanted.options(job.cache.as_deref(), Some(job.owner));
    let programs = Programs::load(&options).map_err(|error| error.to_string())?;
    programs.follow(job.pid).map_err(in_words)?;
    // Still the same: so that is what is followed.
    check(process, job.owner)?;
    let (cache, count) = (job.cache.clone(), job.wanted.count);
    let holder = Holder::start(
        &programs,
        HolderOptions {
            families: job.wanted.families.clone(),
            plans: Box::new(move |_, open| load_plan(open, None, cache.as_deref(), count)),
            candidates: job.nodes.iter().map(PathBuf::from).collect(),
            spare: warmth.stop(),
            admission: None,
            description: None,
            execs,
            syscalls: false,
            obeys: Obeys::Nobody(binary.map(|binary| (job.pid, binary))),
        },
    )
    .map_err(in_words)?;
    job.wanted
        .attach(&programs)
        .map_err(|error| error.to_string())?;
    let handed = [programs.ring(), holder.socket()];
    write_with_files(connection, &Answer::Tracing, &handed).map_err(in_words)?;
    // The holder leaves when nobody has the other end of its socket: so the client alone may have it.
    let holder = holder.hand_over();
    while let Ok(step) = read_message::<Step>(connection, LONGEST_STEP) {
        let answer = match step {
            Step::Start => {
                let outcome = programs.attach_samples(options.sample_hz);
                Answer::Started {
                    no_samples: outcome.err().map(|error| error.to_string()),
                }
            }
            Step::Hits => Answer::Hits(programs.hits()),
            Step::End => {
                programs.detach_tree();
                Answer::Counted(Box::new(Counted::of(&programs, job.cache.as_deref())))
            }
        };
        if write_message(connection, &answer).is_err() {
            break;
        }
        if step == Step::End {
            break;
        }
    }
    holder.end(LEAVING);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    fn pidfd(pid: u32) -> OwnedFd {
        // SAFETY: takes integers; the descriptor is new.
        unsafe { OwnedFd::from_raw_fd(libc::syscall(libc::SYS_pidfd_open, pid, 0) as RawFd) }
    }

    fn us() -> Owner {
        // SAFETY: asks who we are.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        Owner { uid, gid }
    }

    #[test]
    fn a_process_of_ones_own_is_accepted_and_no_other() {
        let own = pidfd(std::process::id());
        let us = us();
        assert_eq!(check(&own, us), Ok(std::process::id()));
        let (uid, gid) = (us.uid + 1, us.gid + 1);
        // One of the same user with the rights of a group that the user is not in has files that the user may not read.
        for other in [Owner { uid, ..us }, Owner { gid, ..us }] {
            let why = check(&own, other).unwrap_err();
            assert!(why.contains("not yours alone"), "{why}");
        }
        let file = OwnedFd::from(fs::File::open("/dev/null").unwrap());
        let why = check(&file, us).unwrap_err();
        assert!(why.contains("no pidfd"), "{why}");
        let mut child = Command::new("true").spawn().unwrap();
        let ended = pidfd(child.id());
        child.wait().unwrap();
        assert!(check(&ended, us).is_err());
    }

    /// As a service that has `AmbientCapabilities=`: its user may not look into it.
    #[test]
    #[ignore = "needs root"]
    fn a_process_with_capabilities_is_not_its_users_alone() {
        let nobody = Owner {
            uid: 65534,
            gid: 65534,
        };
        for (ambient, refused) in [("", false), ("+net_raw", true), ("+wake_alarm", false)] {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            if !ambient.is_empty() {
                command.args(["--inh-caps", ambient, "--ambient-caps", ambient]);
            }
            let mut child = command
                .args(["sh", "-c", "echo && exec cat"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = [0];
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            let checked = check(&pidfd(child.id()), nobody);
            drop(child.stdin.take());
            child.wait().unwrap();
            let is_refused = checked
                .as_ref()
                .is_err_and(|why| why.contains("has capabilities"));
            assert_eq!(is_refused, refused, "{ambient:?}: {checked:?}");
            assert!(refused || checked.is_ok(), "{ambient:?}: {checked:?}");
        }
    }

    #[test]
    fn a_descriptor_that_reads_nothing_is_no_way_to_have_a_file_read() {
        use std::os::unix::fs::OpenOptionsExt as _;
        let open = |flags: i32, write: bool| {
            let mut options = fs::File::options();
            options.read(!write).write(write).custom_flags(flags);
            OwnedFd::from(options.open("/dev/null").unwrap())
        };
        assert!(check_readable(&open(0, false)).is_ok());
        assert!(check_readable(&open(libc::O_PATH, false)).is_err());
        assert!(check_readable(&open(0, true)).is_err());
    }

    #[test]
    fn so_many_trace_at_a_time() {
        let places = Places::default();
        let first = [places.enter(1), places.enter(1)];
        assert!(first.iter().all(Result::is_ok));
        let why = places.enter(1).err().unwrap();
        assert!(why.contains("2 traces of yours and 0 of others"), "{why}");
        let others = [places.enter(2), places.enter(3)];
        assert!(others.iter().all(Result::is_ok));
        assert!(places.enter(4).is_err());
        drop(first);
        assert!(places.enter(4).is_ok());
        assert!(places.lock().keys().all(|uid| [2, 3].contains(uid)));
    }
}
