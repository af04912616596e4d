//! The watch over the holder's loop.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{act_first, table::HeldExecs};

/// No turn of the loop takes this long, by far.
pub(super) const LONGEST_TURN: Duration = Duration::from_secs(2);

/// A hung holder would block every exec of node on this host. If a turn of the loop takes longer than an exec may wait, another
/// thread lets all execs go; if it takes longer than any turn may, that thread ends the holder.
pub(super) struct Turn {
    timer: OwnedFd,
    longest: Duration,
}

impl Turn {
    /// `longest`: how long an exec waits for us.
    pub(super) fn watched(longest: Duration, held: Option<Arc<HeldExecs>>) -> io::Result<Turn> {
        // SAFETY: takes integers; the descriptor is new.
        let timer = unsafe {
            match libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        let watch = timer.try_clone()?;
        std::thread::spawn(move || {
            act_first();
            loop {
                let mut times = 0u64;
                // SAFETY: eight bytes. Each time the timer runs off, this returns how often it has since the turn began.
                let got = unsafe {
                    libc::read(watch.as_raw_fd(), (&raw mut times).cast(), size_of::<u64>())
                };
                if got < 0 {
                    continue;
                }
                if let Some(held) = &held {
                    held.let_all_go();
                }
                if LATE.fetch_add(times, Ordering::Relaxed) + times
                    >= (LONGEST_TURN.as_millis() / longest.as_millis()) as u64
                {
                    // SAFETY: ends this process.
                    unsafe { libc::_exit(1) };
                }
            }
        });
        Ok(Turn { timer, longest })
    }

    pub(super) fn begins(&self) {
        LATE.store(0, Ordering::Relaxed);
        self.set_timer(self.longest);
    }

    pub(super) fn ends(&self) {
        self.set_timer(Duration::ZERO);
    }

    /// Runs off after each such time; zero: not any more.
    fn set_timer(&self, each: Duration) {
        let time = libc::timespec {
            tv_sec: each.as_secs() as libc::time_t,
            tv_nsec: each.subsec_nanos().into(),
        };
        let timer = libc::itimerspec {
            it_interval: time,
            it_value: time,
        };
        // SAFETY: a live struct.
        unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), 0, &timer, std::ptr::null_mut()) };
    }
}

impl Drop for Turn {
    /// What comes after the loop takes as long as it takes: an end in the middle of a detach would leave breakpoints behind.
    fn drop(&mut self) {
        self.ends();
    }
}

/// How often the timer has run off since the turn began.
static LATE: AtomicU64 = AtomicU64::new(0);
