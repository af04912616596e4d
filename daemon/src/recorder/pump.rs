//! Empties the ring buffer while what was in it is still being worked on.
//!
//! Making sense of a record takes longer than writing one: a program that calls C++ in a tight loop would fill the buffer while the
//! reader is busy with what it took before, and lose records. So a thread of its own does nothing but copy, and what it copied may
//! grow with the program: it becomes the recording, which grows as well.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nodeprof_bpf::Reader;

use super::wait_readable;
use crate::event;

/// How long a record waits at most: the programs wake nobody for less than a quarter of the buffer.
const PATIENCE: Duration = Duration::from_millis(20);

/// Where the copying thread and who works on the records meet.
pub(super) struct Pump {
    /// Records one after another, each after its length.
    copied: Mutex<Vec<u8>>,
    /// Counts what was copied since somebody looked.
    ready: OwnedFd,
    over: AtomicBool,
    end: OwnedFd,
}

impl Pump {
    pub(super) fn new() -> io::Result<Pump> {
        Ok(Pump {
            copied: Mutex::default(),
            ready: event::new()?,
            over: AtomicBool::new(false),
            end: event::new()?,
        })
    }

    /// Takes a record.
    pub(super) fn push(&self, record: &[u8]) {
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        copied.extend((record.len() as u32).to_ne_bytes());
        copied.extend(record);
    }

    /// Copies until [`Pump::stop`], and then what is left: the copying thread's work.
    ///
    /// # Errors
    /// Of poll(2) or libbpf.
    pub(super) fn run<F: FnMut(&[u8])>(&self, reader: &Reader<F>) -> io::Result<()> {
        loop {
            let over = self.over.load(Ordering::Acquire);
            if !over {
                wait_readable(&[reader.descriptor(), self.end.as_raw_fd()], Some(PATIENCE))?;
            }
            reader.consume()?;
            let copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
            if !copied.is_empty() {
                event::signal(&self.ready);
            }
            if over {
                return Ok(());
            }
        }
    }

    /// Lets the copying thread end when the buffer is empty.
    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Release);
        event::signal(&self.end);
    }

    /// Stops it when dropped: whoever waits for the copying thread would wait for ever, otherwise.
    pub(super) fn stop_later(&self) -> StopLater<'_> {
        StopLater(self)
    }

    /// Descriptor to poll: readable when something was copied.
    pub(super) fn ready(&self) -> RawFd {
        self.ready.as_raw_fd()
    }

    /// Exchanges an empty vector for what was copied.
    pub(super) fn take(&self, empty: &mut Vec<u8>) {
        event::clear(&self.ready);
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *copied, empty);
    }
}

/// See [`Pump::stop_later`].
pub(super) struct StopLater<'a>(&'a Pump);

impl Drop for StopLater<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_taken_once_and_in_order() {
        let pump = Pump::new().unwrap();
        let mut taken = Vec::new();
        pump.take(&mut taken);
        assert!(taken.is_empty());
        pump.push(b"one");
        pump.push(b"");
        pump.take(&mut taken);
        let expected = [&3u32.to_ne_bytes()[..], b"one", &0u32.to_ne_bytes()].concat();
        assert_eq!(taken, expected);
        taken.clear();
        pump.push(b"two");
        pump.take(&mut taken);
        assert_eq!(taken[4..], *b"two");
    }

    #[test]
    fn it_is_readable_until_it_is_taken() {
        let pump = Pump::new().unwrap();
        let readable = || {
            let mut fd = libc::pollfd {
                fd: pump.ready(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one live pollfd.
            unsafe { libc::poll(&mut fd, 1, 0) == 1 }
        };
        assert!(!readable());
        event::signal(&pump.ready);
        event::signal(&pump.ready);
        assert!(readable());
        pump.take(&mut Vec::new());
        assert!(!readable());
    }
}
