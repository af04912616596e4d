//! Empties the ring buffer while what was in it is still being worked on.
//!
//! Making sense of a record takes longer than writing one: a program that calls C++ in a tight loop would fill the buffer while the
//! reader is busy with what it took before, and lose records. So a thread of its own does nothing but copy, and what it copied may
//! grow with the program: it becomes the recording, which grows as well.
//!
//! Who works on the records does so in the background ([`Background`]), and neither waits for the other: it may not get a processor for long.
//! The copying thread sees that, and whoever else is in a hurry, and takes it out of the background.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::Thread,
    time::Duration,
};

use nodeprof_bpf::Reader;

use super::{now, readable};
use crate::{
    background::{Background, Stay},
    event,
};

/// How long a record waits at most: the programs wake nobody for less than a quarter of the buffer.
const PATIENCE: Duration = Duration::from_millis(20);

/// Who works in the background looks for records 50 times a second. If it did not for this long, ns, and has had less than half of that of a processor's
/// time, others have them all.
const STARVED: u64 = 40_000_000;

/// The copying thread shows that it runs as often as it looks for records. If it did not for this long, the other one may hold what it waits for.
/// (The allocator's lock, or the kernel's of the address space.) The ring buffer lasts 100 ms of a program that calls C++ in a tight loop.
const BLOCKED: Duration = Duration::from_millis(40);

/// No more than so many bytes of records wait for the background.
const MOST_WAITING: usize = 1 << 20;

/// Where the copying thread and who works on the records meet.
pub(super) struct Pump {
    /// Records one after another, each after its length. Nobody but the copying thread takes it.
    copied: Mutex<Vec<u8>>,
    records: Sender<Vec<u8>>,
    /// Bytes that were sent and not taken.
    waiting: AtomicUsize,
    /// When somebody looked for records last, ns, and the CPU time that it had had then.
    looked: AtomicU64,
    cpu_time: AtomicU64,
    /// Counts what was copied since somebody looked.
    ready: OwnedFd,
    over: AtomicBool,
    end: OwnedFd,
    background: Background,
}

impl Pump {
    /// The pump, and where what it copies comes out.
    pub(super) fn new() -> io::Result<(Pump, Receiver<Vec<u8>>)> {
        let (records, taken) = channel();
        let pump = Pump {
            copied: Mutex::default(),
            records,
            waiting: AtomicUsize::new(0),
            looked: AtomicU64::new(now()),
            cpu_time: AtomicU64::new(0),
            ready: event::new()?,
            over: AtomicBool::new(false),
            end: event::new()?,
            background: Background::default(),
        };
        Ok((pump, taken))
    }

    /// Takes a record.
    pub(super) fn push(&self, record: &[u8]) {
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        copied.extend((record.len() as u32).to_ne_bytes());
        copied.extend(record);
    }

    /// Copies until [`Pump::stop`], and then what is left: the copying thread's work. When one of the `hurried` descriptors is readable, who works
    /// on the records leaves the background.
    ///
    /// # Errors
    /// Of poll(2) or libbpf.
    pub(super) fn run<F: FnMut(&[u8])>(
        &self,
        reader: &Reader<F>,
        hurried: &[RawFd],
    ) -> io::Result<()> {
        let all: Vec<RawFd> = [reader.descriptor(), self.end.as_raw_fd()]
            .into_iter()
            .chain(hurried.iter().copied())
            .collect();
        let mut descriptors = all.as_slice();
        loop {
            let over = self.over.load(Ordering::Acquire);
            let mut hurry = false;
            if !over {
                let ready = readable(descriptors, Some(PATIENCE))?;
                hurry = hurried.iter().any(|fd| ready.contains(fd));
            }
            self.background.renew(BLOCKED);
            reader.consume()?;
            self.send();
            if hurry || self.is_starved() {
                self.background.end();
                descriptors = &all[..2];
            }
            if over {
                return Ok(());
            }
        }
    }

    fn send(&self) {
        let mut copied = self.copied.lock().unwrap_or_else(PoisonError::into_inner);
        if copied.is_empty() {
            return;
        }
        let records = std::mem::take(&mut *copied);
        self.waiting.fetch_add(records.len(), Ordering::AcqRel);
        // Nobody takes it any more where the trace failed.
        let _ = self.records.send(records);
        event::signal(&self.ready);
    }

    fn is_starved(&self) -> bool {
        let silent = now().saturating_sub(self.looked.load(Ordering::Acquire));
        let worked = || {
            let before = self.cpu_time.load(Ordering::Acquire);
            self.background.cpu_time().saturating_sub(before)
        };
        self.waiting.load(Ordering::Acquire) > MOST_WAITING
            || silent > STARVED && worked() < silent / 2
    }

    /// Somebody looks for records.
    fn look(&self) {
        self.cpu_time
            .store(self.background.cpu_time(), Ordering::Release);
        self.looked.store(now(), Ordering::Release);
    }

    /// Lets the calling thread, which takes the records, do so in the background, until somebody is in a hurry.
    pub(super) fn work_in_background(&self) -> Option<Stay<'_>> {
        let stay = self.background.begin(BLOCKED);
        self.look();
        stay
    }

    /// Sees to it that neither waits for the other for long: a third thread's work.
    pub(super) fn watch(&self) {
        self.background.watch(&self.over, BLOCKED / 2);
    }

    /// Lets the copying thread end when the buffer is empty. What is still to be done is not in the background.
    pub(super) fn stop(&self) {
        self.background.end();
        self.over.store(true, Ordering::Release);
        event::signal(&self.end);
    }

    /// Stops it when dropped: whoever waits for the copying thread would wait for ever, otherwise.
    pub(super) fn stop_later<'a>(&'a self, watching: &'a Thread) -> StopLater<'a> {
        StopLater(self, watching)
    }

    /// Descriptor to poll: readable when something was copied.
    pub(super) fn ready(&self) -> RawFd {
        self.ready.as_raw_fd()
    }

    /// All that was copied until now. To be asked for every 20 ms at least.
    pub(super) fn take(&self, records: &Receiver<Vec<u8>>) -> Vec<Vec<u8>> {
        event::clear(&self.ready);
        let taken: Vec<Vec<u8>> = records.try_iter().collect();
        self.waiting
            .fetch_sub(taken.iter().map(Vec::len).sum(), Ordering::AcqRel);
        self.look();
        taken
    }
}

/// See [`Pump::stop_later`].
pub(super) struct StopLater<'a>(&'a Pump, &'a Thread);

impl Drop for StopLater<'_> {
    fn drop(&mut self) {
        self.0.stop();
        self.1.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_taken_once_and_in_order() {
        let (pump, records) = Pump::new().unwrap();
        assert!(pump.take(&records).is_empty());
        pump.push(b"one");
        pump.push(b"");
        pump.send();
        pump.push(b"two");
        pump.send();
        let first = [&3u32.to_ne_bytes()[..], b"one", &0u32.to_ne_bytes()].concat();
        let second = [&3u32.to_ne_bytes()[..], b"two"].concat();
        assert_eq!(pump.take(&records), [first, second]);
        assert_eq!(pump.waiting.load(Ordering::Acquire), 0);
        pump.push(b"three");
        pump.send();
        assert_eq!(pump.take(&records)[0][4..], *b"three");
    }

    #[test]
    fn it_is_readable_until_it_is_taken() {
        let (pump, records) = Pump::new().unwrap();
        let is_readable = || {
            !readable(&[pump.ready()], Some(Duration::ZERO))
                .unwrap()
                .is_empty()
        };
        pump.send();
        assert!(!is_readable(), "nothing was copied");
        for _ in 0..2 {
            pump.push(b"one");
            pump.send();
        }
        assert!(is_readable());
        pump.take(&records);
        assert!(!is_readable());
    }

    #[test]
    fn who_does_not_look_or_lags_behind_is_starved() {
        let (pump, records) = Pump::new().unwrap();
        assert!(!pump.is_starved());
        pump.push(&vec![0; MOST_WAITING]);
        pump.send();
        assert!(pump.is_starved(), "too much waits");
        pump.take(&records);
        assert!(!pump.is_starved());
        pump.looked.store(now() - 2 * STARVED, Ordering::Release);
        assert!(pump.is_starved(), "nobody looked");
        let Some(_stay) = pump.work_in_background() else {
            println!("skipped: this user may not come back from the background (RLIMIT_NICE)");
            return;
        };
        assert!(!pump.is_starved());
        pump.background.end(); // so that it gets its time on a busy machine
        let begun = pump.background.cpu_time();
        while pump.background.cpu_time() - begun < STARVED {}
        pump.looked
            .store(now() - 3 * STARVED / 2, Ordering::Release);
        assert!(!pump.is_starved(), "it has worked meanwhile");
        pump.looked.store(now() - 4 * STARVED, Ordering::Release);
        assert!(pump.is_starved(), "it has had a quarter");
    }
}
