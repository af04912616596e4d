//! A small process that starts the programs to be timed and waits for them.
//!
//! nodeprof grows with each recording it keeps, and what it forks begins with a copy of its page tables: the hundredth run would
//! take longer to reach its exec than the first. The launcher is forked while nodeprof is small, and stays small.

use std::{
    ffi::OsString,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::recorder::{Invoker, Signals, Streams, fork_held, now, private_dirty, wait_readable};

/// A program that it can start.
pub(super) struct Job {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
}

/// What became of a program. Instants are CLOCK_MONOTONIC in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) pid: u32,
    /// As wait4 tells it.
    pub(super) status: i32,
    pub(super) started_unix_ns: u64,
    /// Before the fork.
    pub(super) forked: u64,
    /// Before the exec.
    pub(super) started: u64,
    /// After the end.
    pub(super) ended: u64,
    /// CPU time of the process and its children that were waited for.
    pub(super) user_ns: u64,
    pub(super) system_ns: u64,
    pub(super) max_rss_bytes: u64,
    /// If asked for: at its exit.
    pub(super) uss_bytes: Option<u64>,
}

/// What the launcher tells, first word.
const STARTED: u64 = 1;
const ENDED: u64 = 2;
const FAILED: u64 = 3;
/// Words of a message.
const WORDS: usize = 12;
/// Stands for an unknown number of bytes.
const UNKNOWN: u64 = u64::MAX;

pub(super) struct Launcher {
    socket: OwnedFd,
    pid: libc::pid_t,
}

impl Launcher {
    /// Forks it. nodeprof must have one thread only.
    pub(super) fn start(
        jobs: &[Job],
        streams: &Streams,
        invoker: Option<&Invoker>,
        mask: &libc::sigset_t,
    ) -> io::Result<Launcher> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: room for two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: two new descriptors that nobody else owns.
        let (ours, theirs) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: the only thread; the child leaves by _exit.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                let serving = std::panic::AssertUnwindSafe(|| {
                    serve(&theirs, jobs, streams, invoker, mask);
                });
                let outcome = std::panic::catch_unwind(serving);
                // SAFETY: ends this process.
                unsafe { libc::_exit(i32::from(outcome.is_err())) }
            }
            pid => Ok(Launcher { socket: ours, pid }),
        }
    }

    /// Runs a program to its end, passing signals on to it. The outer error: the launcher is gone; the inner one: it could not be
    /// executed. `watch_memory`: stop it at its exit to read its memory, which makes its times useless.
    pub(super) fn run(
        &self,
        job: usize,
        watch_memory: bool,
        signals: &Signals,
    ) -> io::Result<io::Result<Ended>> {
        send(&self.socket, &[job as u64, u64::from(watch_memory)])?;
        let mut running = None;
        loop {
            wait_readable(&[self.socket.as_raw_fd(), signals.as_raw_fd()], None)?;
            // What ended is not sent a signal any more: its number may belong to another.
            match receive(self.socket.as_raw_fd(), libc::MSG_DONTWAIT) {
                Ok([STARTED, pid, ..]) => running = Some(pid as u32),
                Ok([FAILED, errno, ..]) => {
                    return Ok(Err(io::Error::from_raw_os_error(errno as i32)));
                }
                Ok(words) => {
                    signals.pass_on(None);
                    return Ok(Ok(Ended::from_words(words)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    signals.pass_on(running);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Launcher {
    /// Its end of the socket closes: it leaves.
    fn drop(&mut self) {
        // SAFETY: our descriptor and our own child.
        unsafe {
            libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

impl Ended {
    fn words(&self) -> [u64; WORDS] {
        [
            ENDED,
            u64::from(self.pid),
            self.status as u32 as u64,
            self.started_unix_ns,
            self.forked,
            self.started,
            self.ended,
            self.user_ns,
            self.system_ns,
            self.max_rss_bytes,
            self.uss_bytes.unwrap_or(UNKNOWN),
            0,
        ]
    }

    fn from_words(words: [u64; WORDS]) -> Ended {
        let [
            _,
            pid,
            status,
            started_unix_ns,
            forked,
            started,
            ended,
            user_ns,
            system_ns,
            max_rss_bytes,
            uss,
            _,
        ] = words;
        Ended {
            pid: pid as u32,
            status: status as i32,
            started_unix_ns,
            forked,
            started,
            ended,
            user_ns,
            system_ns,
            max_rss_bytes,
            uss_bytes: Some(uss).filter(|&bytes| bytes != UNKNOWN),
        }
    }
}

fn send(socket: &OwnedFd, words: &[u64]) -> io::Result<()> {
    let mut all = [0; WORDS];
    for (word, value) in all.iter_mut().zip(words) {
        *word = *value;
    }
    // SAFETY: as many bytes as the array has.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            all.as_ptr().cast(),
            size_of_val(&all),
            libc::MSG_NOSIGNAL,
        )
    };
    match sent {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn receive(socket: RawFd, flags: libc::c_int) -> io::Result<[u64; WORDS]> {
    let mut words = [0u64; WORDS];
    // SAFETY: as many bytes as the array has.
    let got = unsafe {
        libc::recv(
            socket,
            words.as_mut_ptr().cast(),
            size_of_val(&words),
            flags,
        )
    };
    match got {
        -1 => Err(io::Error::last_os_error()),
        n if n as usize == size_of_val(&words) => Ok(words),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the process that starts the programs has ended",
        )),
    }
}

/// The launcher's life.
fn serve(
    socket: &OwnedFd,
    jobs: &[Job],
    streams: &Streams,
    invoker: Option<&Invoker>,
    mask: &libc::sigset_t,
) {
    // SAFETY: a NUL-terminated name of at most 15 characters.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"nodeprof-runs".as_ptr()) };
    while let Ok([job, watch, ..]) = receive(socket.as_raw_fd(), 0) {
        let Some(job) = jobs.get(job as usize) else {
            return;
        };
        let outcome = match start(socket, job, watch != 0, streams, invoker, mask) {
            Ok(ended) => send(socket, &ended.words()),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
                send(socket, &[FAILED, errno as u64])
            }
        };
        if outcome.is_err() {
            return;
        }
    }
}

fn start(
    socket: &OwnedFd,
    job: &Job,
    watch_memory: bool,
    streams: &Streams,
    invoker: Option<&Invoker>,
    mask: &libc::sigset_t,
) -> io::Result<Ended> {
    let mut ended = Ended {
        forked: now(),
        ..Ended::default()
    };
    let held = fork_held(&job.program, &job.arguments, invoker, mask, streams)?;
    ended.pid = held.pid;
    let watched = watch_memory && watch_exit(held.pid);
    // Before the program runs: nothing of it shall be timed.
    send(socket, &[STARTED, u64::from(held.pid)])?;
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    ended.started_unix_ns = unix.unwrap_or_default().as_nanos() as u64;
    ended.started = now();
    let executed = held.go();
    wait(&mut ended, watched);
    executed.map(|()| ended)
}

/// Asks the kernel to stop the process when it exits. Where that is not permitted, its memory stays unknown.
fn watch_exit(pid: u32) -> bool {
    // SAFETY: our own child; the last argument is a set of flags.
    unsafe {
        libc::ptrace(
            libc::PTRACE_SEIZE,
            pid,
            std::ptr::null_mut::<libc::c_void>(),
            libc::PTRACE_O_TRACEEXIT as usize,
        ) == 0
    }
}

/// Waits for the process's end.
fn wait(ended: &mut Ended, watched: bool) {
    let mut status = 0;
    // SAFETY: a struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: our own child; both structs live through the call.
        let got = unsafe { libc::wait4(ended.pid as i32, &mut status, libc::__WALL, &mut usage) };
        if got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        if got < 0 || !watched || !libc::WIFSTOPPED(status) {
            break;
        }
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        if event == libc::PTRACE_EVENT_EXIT {
            ended.uss_bytes = private_dirty(ended.pid);
        }
        let (request, signal) = match event {
            // A stop of the whole process, as by SIGSTOP: it stays stopped until it is continued.
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => (libc::PTRACE_LISTEN, 0),
            // A signal on its way to the process.
            0 => (libc::PTRACE_CONT, signal),
            _ => (libc::PTRACE_CONT, 0),
        };
        // SAFETY: a stopped process that we trace; the last argument is a number.
        unsafe {
            libc::ptrace(
                request,
                ended.pid,
                std::ptr::null_mut::<libc::c_void>(),
                signal as usize,
            )
        };
    }
    ended.ended = now();
    ended.status = status;
    let nanoseconds =
        |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    ended.user_ns = nanoseconds(usage.ru_utime);
    ended.system_ns = nanoseconds(usage.ru_stime);
    // ru_maxrss counts in KiB.
    ended.max_rss_bytes = usage.ru_maxrss as u64 * 1024;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_holds_all_that_is_known() {
        let ended = Ended {
            pid: 7,
            status: libc::SIGKILL,
            started_unix_ns: 1 << 60,
            forked: 2,
            started: 3,
            ended: 4,
            user_ns: 5,
            system_ns: 6,
            max_rss_bytes: 7,
            uss_bytes: Some(0),
        };
        assert_eq!(Ended::from_words(ended.words()), ended);
        let unknown = Ended {
            uss_bytes: None,
            ..ended
        };
        assert_eq!(Ended::from_words(unknown.words()), unknown);
    }
}
