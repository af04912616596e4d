//! Runs a command and records it.
//!
//! The order of things, and why:
//! 1. the command is found and its child process forked, held before its exec (while nodeprof is still
//!    single-threaded and small);
//! 2. the BPF programs are loaded while another thread reads the attach plan;
//! 3. the holder process is forked: it attaches the probes to the child and holds the execs of its descendants;
//! 4. the child executes; records are read as they come;
//! 5. when the trace ends, the recording is complete at once: the holder detaches by itself, while the recording is written.

mod assemble;
mod assigned;
mod baseline;
mod calibrate;
mod child;
mod command;
mod continuations;
mod kernel;
mod late;
mod leaves;
mod memory;
mod nearby;
mod optimized;
mod options;
mod outside;
mod packages;
mod positions;
mod pump;
mod room;
mod session;
mod source_maps;
mod sources;
mod stacks;
mod symbols;
mod translations;
mod waits;
mod wasm;

use std::{
    fs,
    io::{self, Write as _},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt as _, PermissionsExt as _},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nodeprof_bpf::{LoadError, restore_grace_periods};
use nodeprof_probes::plan::AttachPlan;
use nodeprof_profile::recording::{Recording, RunId};

use crate::control::AskError;
use child::pidfd;
use kernel::{Begun, Kernel};
use session::{SILENCE, Session};

pub use assemble::{Assembler, Notice};
pub(crate) use calibrate::idle_address;
pub use child::Child;
pub(crate) use child::Signals;
pub use command::{CommandError, Invoker, Streams, find_program, guess_node};
pub(crate) use command::{fork_held, on_path};
pub use kernel::{Counted, Wanted};
pub(crate) use memory::private_dirty;
pub use options::{DEFAULT_HZ, FAMILIES, HIGHEST_HZ, IDLE, Mode, TraceOptions, Until};
pub(crate) use packages::add_packages;
pub use room::{Room, Rooms};
pub use symbols::{Symbol, Symbols, SymbolsOfPrograms};

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

/// Waits until a descriptor is readable or the time is over.
pub(crate) fn wait_readable(descriptors: &[RawFd], timeout: Option<Duration>) -> io::Result<()> {
    readable(descriptors, timeout).map(drop)
}

/// The same; tells which are readable.
pub(crate) fn readable(descriptors: &[RawFd], timeout: Option<Duration>) -> io::Result<Vec<RawFd>> {
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
    match outcome {
        ..0 if error.kind() != io::ErrorKind::Interrupted => Err(error),
        ..0 => Ok(Vec::new()),
        _ => {
            let ready = fds.iter().filter(|fd| fd.revents != 0);
            Ok(ready.map(|fd| fd.fd).collect())
        }
    }
}

/// CLOCK_MONOTONIC, ns: the clock of `bpf_ktime_get_ns`.
pub(crate) fn now() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// One of the clocks that every Linux has, ns.
fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live struct.
    unsafe { libc::clock_gettime(clock, &mut t) };
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
    let mut child = Child::new(pid, signals).map_err(system("opening the new process"))?;

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

    let is_lent = matches!(kernel, Kernel::Lent(_));
    let mut session = Session::new(pid, &directory, cache, wanted.count, is_lent);
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
        return Err(CommandError::of_exec(&program, &error).into());
    }

    let ended_by = session.record(options, &kernel, &holder, &mut child)?;
    let ended = now();
    let Counted {
        counters,
        sums,
        unended,
        ns_per_hit,
    } = kernel
        .end(session.assembler.goes_on())
        .unwrap_or_else(|why| {
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
    session.assembler.add_unended(&unended);
    session.assembler.finish();
    session.assembler.symbols.know(kernel.code());
    let scripts = session.assembler.finish_stacks();
    let verification = options.verify.then(|| session.assembler.verify(&sums));
    let leaving = match kernel.into_connection() {
        Some(connection) => Leaving::Lent(connection),
        None => {
            if session.holder_gone.is_some()
                && let Ok(holder) = pidfd(leaving)
                && ends_within(&holder, Duration::from_millis(200))
            {
                restore_grace_periods(); // it was killed, maybe while it had made them short
            }
            Leaving::Child(leaving)
        }
    };
    let run = session.run(
        options,
        &directory,
        started_unix_ns,
        ended,
        ended_by,
        child.status(),
    );
    session.no_samples = no_samples;
    let families = session.families(options, guess.as_deref(), guessed_plan.as_ref());
    let mut recording = session.close(run, families, &counters, options, (setup_ns, ns_per_hit));
    if options.source_maps {
        source_maps::annotate(&mut recording, RunId(0), scripts(), invoker.clone());
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

/// A plan by path, as count mode needs it or whole. `file`: of that one, by device and inode, and of no other that lies there by now.
pub(crate) fn load_plan(
    path: &Path,
    file: Option<(u64, u64)>,
    cache: Option<&Path>,
    count: bool,
) -> Result<AttachPlan, String> {
    let loaded = AttachPlan::load_or_build_of(path, file, cache);
    let (mut plan, _) = loaded.map_err(|e| e.to_string())?;
    if count {
        plan.keep_counts_only();
    }
    Ok(plan)
}

/// Where a program can be read that a process executes, by its path there, device and inode: the path is that of the process's own file system, but the process may have
/// ended; then ours has the same file there, or nobody can tell.
pub(crate) fn seen_by(path: &Path, file: Option<(u64, u64)>, pid: u32) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let seen = root.join(path.strip_prefix("/").unwrap_or(path));
    let is_gone = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    if fs::metadata(&seen).as_ref().is_err_and(is_gone) && is_file(path, file) {
        return path.to_owned();
    }
    seen
}

/// Whether this file, by device and inode, lies at a path here.
pub(crate) fn is_file(path: &Path, file: Option<(u64, u64)>) -> bool {
    let found = fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    found.ok() == file && file.is_some()
}

/// A plan, or the one among others that says the same: it takes half a megabyte, and containers have the same binary each in a file of its own.
pub(crate) fn share_plan<'p>(
    plan: AttachPlan,
    others: impl IntoIterator<Item = &'p Arc<AttachPlan>>,
) -> Arc<AttachPlan> {
    let same = others.into_iter().find(|other| ***other == plan);
    same.map_or_else(|| Arc::new(plan), Arc::clone)
}

/// Node binaries that earlier traces met, and are there still.
pub(crate) fn known_nodes(cache: Option<&Path>) -> Vec<PathBuf> {
    let met = cache.map(met_nodes).unwrap_or_default();
    met.into_iter().filter(|path| is_met_node(path)).collect()
}

/// Those that were met, by the list in the cache folder, the newest last.
pub(crate) fn met_nodes(cache: &Path) -> Vec<PathBuf> {
    let list = fs::read(cache.join(KNOWN_NODES)).unwrap_or_default();
    let paths = list.split(|&b| b == 0).filter(|l| !l.is_empty());
    let mut met: Vec<PathBuf> = paths
        .map(|l| PathBuf::from(std::ffi::OsStr::from_bytes(l)))
        .collect();
    met.drain(..met.len().saturating_sub(MOST_KNOWN));
    met
}

/// Whether one that was met can be there still. What is a symbolic link was none when it was met: its owner has put it there since, and it leads where its owner
/// wants.
pub(crate) fn is_met_node(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| file.is_file())
}

/// File in the cache folder: NUL-separated paths of node binaries.
const KNOWN_NODES: &str = "known-nodes";
/// Of the service each costs a plan at its start, and users bring any number of them.
const MOST_KNOWN: usize = 256;

/// Adds one to the list, by its real path; the oldest go, and those that are gone.
pub(crate) fn remember_node(cache: Option<&Path>, path: &Path) {
    if let (Some(cache), Ok(path)) = (cache, fs::canonicalize(path)) {
        add_node(cache, known_nodes(Some(cache)), path);
    }
}

/// The same by its real path, without a look at any of them.
pub(crate) fn remember_met_node(cache: &Path, path: PathBuf) {
    add_node(cache, met_nodes(cache), path);
}

/// Takes those that are gone from the list.
pub(crate) fn forget_nodes(cache: &Path, gone: &[PathBuf]) {
    if !gone.is_empty() {
        let mut met = met_nodes(cache);
        met.retain(|path| !gone.contains(path));
        write_nodes(cache, &met);
    }
}

fn add_node(cache: &Path, mut known: Vec<PathBuf>, path: PathBuf) {
    if !known.contains(&path) {
        known.push(path);
        write_nodes(cache, &known);
    }
}

fn write_nodes(cache: &Path, known: &[PathBuf]) {
    let mut list = Vec::new();
    for path in known.iter().rev().take(MOST_KNOWN).rev() {
        list.extend(path.as_os_str().as_bytes());
        list.push(0);
    }
    // At once, for another trace may read it; and under a name that nobody can know: root writes into folders of users.
    let new = tempfile::Builder::new()
        .prefix(".known")
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(cache);
    if let Ok(mut new) = new
        && new.write_all(&list).is_ok()
    {
        let _ = new.persist(cache.join(KNOWN_NODES));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_known_binaries_has_the_newest_and_no_links() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let path = |n: usize| folder.join(format!("{n}"));
        for n in 0..MOST_KNOWN + 20 {
            fs::write(path(n), "").unwrap();
            remember_node(Some(&folder), &path(n));
            remember_node(Some(&folder), &path(n));
        }
        let known = || known_nodes(Some(&folder));
        let newest = (20..MOST_KNOWN + 20).map(path);
        assert_eq!(known(), newest.collect::<Vec<_>>());
        let list = fs::read(folder.join(KNOWN_NODES)).unwrap();
        assert_eq!(list.iter().filter(|byte| **byte == 0).count(), MOST_KNOWN);
        // One that is reached by a link is remembered by what that leads to now.
        std::os::unix::fs::symlink(path(3), folder.join("link")).unwrap();
        remember_node(Some(&folder), &folder.join("link"));
        assert_eq!(known().last(), Some(&path(3)));
        fs::remove_file(path(3)).unwrap();
        std::os::unix::fs::symlink("/bin/sh", path(3)).unwrap();
        assert!(!known().contains(&path(3)));
    }
}
