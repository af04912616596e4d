//! Signals to the service, as events: to end, or to read its configuration again.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    End,
    Reload,
}

/// A descriptor that is readable when a signal has come.
pub(super) struct Signals(OwnedFd);

impl Signals {
    /// Blocks SIGTERM, SIGINT and SIGHUP from now on.
    pub(super) fn block() -> io::Result<Signals> {
        // SAFETY: plain system calls on a live set; the descriptor is new.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Signals(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    /// What was asked since the last call; to end goes before all else.
    pub(super) fn asked(&self) -> Option<Asked> {
        let mut asked = None;
        loop {
            // SAFETY: a struct of integers.
            let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
            let size = size_of_val(&info);
            // SAFETY: room for one struct.
            let got = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut info).cast(), size) };
            if got != size as isize {
                return asked;
            }
            asked = match (info.ssi_signo as i32, asked) {
                (libc::SIGHUP, None | Some(Asked::Reload)) => Some(Asked::Reload),
                _ => Some(Asked::End),
            };
        }
    }
}

impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
