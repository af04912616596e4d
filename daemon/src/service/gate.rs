//! What the service tells its holder at any time: memory that both share, since before the holder was forked.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// Why no start is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// The disk of the store is full.
    Full = 1,
    /// By command.
    Paused = 2,
}

#[repr(C)]
struct Page {
    /// Bits of [`Closed`].
    closed: AtomicU32,
}

/// Whether starts are recorded.
#[derive(Clone)]
pub(super) struct Gate(Arc<Mapping>);

struct Mapping(*mut Page);

// SAFETY: the page lives as long as the mapping, and has atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Gate::new`, and nobody uses it any more.
        unsafe { libc::munmap(self.0.cast(), size_of::<Page>()) };
    }
}

impl Gate {
    /// An open one.
    pub(super) fn new() -> io::Result<Gate> {
        // SAFETY: a new mapping, which takes no one's place. It is zeroed: an open gate.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Page>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match page {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            page => Ok(Gate(Arc::new(Mapping(page.cast())))),
        }
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped, aligned to a page, zeroed, and atomics have no other invariant.
        unsafe { &*self.0.0 }
    }

    /// From now on nothing is recorded, for this reason.
    pub(super) fn close(&self, why: Closed) {
        self.page().closed.fetch_or(why as u32, Ordering::Relaxed);
    }

    /// This reason is none any more.
    pub(super) fn open(&self, why: Closed) {
        self.page()
            .closed
            .fetch_and(!(why as u32), Ordering::Relaxed);
    }

    /// Whether nothing is recorded for this reason.
    pub(super) fn is_closed_for(&self, why: Closed) -> bool {
        self.page().closed.load(Ordering::Relaxed) & why as u32 != 0
    }

    /// Whether nothing is recorded.
    pub(super) fn is_closed(&self) -> bool {
        self.page().closed.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn a_process_forked_before_sees_what_changes() {
        let gate = Gate::new().unwrap();
        // SAFETY: the child calls nothing but what may be called after a fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            while !gate.is_closed() {
                std::hint::spin_loop();
            }
            gate.open(Closed::Full);
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        gate.close(Closed::Full);
        let mut status = 1;
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!((status, gate.is_closed()), (0, false));
    }
}
