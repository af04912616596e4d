//! The traced command's process, and the signals that go to it.

use std::{
    cell::Cell,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::process::ExitStatusExt,
    },
    process::ExitStatus,
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
};

use super::wait_readable;

/// The traced command's process.
pub struct Child {
    pub(super) pid: u32,
    pub(super) descriptor: OwnedFd,
    status: Option<ExitStatus>,
    pub(super) signals: Rc<Signals>,
}

impl Child {
    /// A process that was just forked.
    pub(super) fn new(pid: u32, signals: Rc<Signals>) -> io::Result<Child> {
        Ok(Child {
            pid,
            descriptor: pidfd(pid)?,
            status: None,
            signals,
        })
    }

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

    pub(super) fn reap(&mut self) -> io::Result<()> {
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
    asked_to_end: Cell<Option<i32>>,
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

/// Whether nodeprof was started with SIGCHLD ignored.
static IGNORES_CHILDREN: AtomicBool = AtomicBool::new(false);

/// Gives a forked child the signals that nodeprof was started with, but for SIGPIPE, which Rust ignores: it has the default.
///
/// # Safety
/// Async-signal-safe; of the child alone, before its exec.
pub(super) unsafe fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: plain system calls on a live set.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if IGNORES_CHILDREN.load(Ordering::Relaxed) {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        libc::sigprocmask(libc::SIG_SETMASK, mask, std::ptr::null_mut());
    }
}

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
            // Of who ignores it the kernel reaps the children, and nobody learns how they ended.
            if libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_IGN {
                IGNORES_CHILDREN.store(true, Ordering::Relaxed);
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Signals {
                descriptor: OwnedFd::from_raw_fd(fd),
                mask: old,
                asked_to_end: Cell::new(None),
            })
        }
    }

    /// What was blocked before.
    pub(crate) fn mask(&self) -> &libc::sigset_t {
        &self.mask
    }

    /// The first interrupt or request to end that has come.
    pub(crate) fn asked_to_end(&self) -> Option<i32> {
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
            if [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal)
                && self.asked_to_end.get().is_none()
            {
                self.asked_to_end.set(Some(signal));
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

/// A descriptor of a process, readable when that ends.
pub(super) fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
