//! Processes that are stopped for a moment, unseen by their parents: ptrace.
//!
//! A stop by ptrace is told to who asked for it alone: the parent's `waitpid(WUNTRACED)` does not return, no SIGCHLD is
//! sent to it, no shell reports a stopped job. `PTRACE_SEIZE` sends no signal either. If the thread that stopped the
//! process ends, for whatever reason, the kernel lets the process go on.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// Begins to stop a process's main thread before its next instruction. A [`Change`] tells when it has stopped.
///
/// # Errors
/// The kernel's: `EPERM` without the right to it, or if the process is being debugged already; `ESRCH` if it has ended.
pub(super) fn stop(pid: u32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, pid, 0)?;
    // If it has ended in between, a change tells so.
    let _ = request(libc::PTRACE_INTERRUPT, pid, 0);
    Ok(())
}

/// Lets a stopped process go on, with the signal of its [`Change::Stopped`]. To be called by the thread that stopped it.
///
/// # Errors
/// `ESRCH` if it was killed: then a change will tell its end, and its parent is told of it after that.
pub(super) fn release(pid: u32, signal: libc::c_int) -> io::Result<()> {
    request(libc::PTRACE_DETACH, pid, signal)
}

/// What happened to a process that this thread stops.
pub(super) enum Change {
    /// It has stopped: as asked, by job control, or (then the signal is not 0) at a signal that came first.
    Stopped(libc::c_int),
    /// It has ended.
    Ended,
}

/// The next change among all processes that this thread stops; `None`: nothing changed.
pub(super) fn next_change() -> Option<(u32, Change)> {
    let mut status = 0;
    // SAFETY: `status` lives through the call.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG | libc::__WALL) };
    if pid <= 0 {
        return None;
    }
    let change = if libc::WIFSTOPPED(status) {
        let asked = status >> 16 == libc::PTRACE_EVENT_STOP;
        Change::Stopped(if asked { 0 } else { libc::WSTOPSIG(status) })
    } else {
        Change::Ended
    };
    Some((pid as u32, change))
}

/// Readable when there may be a change.
pub(super) struct Changes(OwnedFd);

impl Changes {
    /// To be called before other threads are made: it blocks SIGCHLD for all of them.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn open() -> io::Result<Changes> {
        // SAFETY: plain system calls on a live set.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Changes(OwnedFd::from_raw_fd(fd)))
        }
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it unreadable until there is another change.
    pub(super) fn clear(&self) {
        let mut buffer = [0u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: the buffer has the length given.
        while unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) }
            > 0
        {}
    }
}

fn request(what: libc::c_uint, pid: u32, data: libc::c_int) -> io::Result<()> {
    // SAFETY: these requests take no pointers.
    let outcome = unsafe { libc::ptrace(what, pid as libc::pid_t, 0usize, data as usize) };
    if outcome < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
