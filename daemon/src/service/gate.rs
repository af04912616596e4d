//! What the service tells its holder at any time: memory that both share, since before the holder was forked.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
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

/// Starts that are remembered until the service looks, some milliseconds later.
const MOST_STARTS: usize = 1024;

/// Bytes of rules that there is room for; what is not used takes no memory.
const MOST_RULES: usize = 256 << 10;

#[repr(C)]
struct Page {
    /// Starts that the rules wanted, and that were not recorded because the disk is full.
    turned_away: AtomicU64,
    /// Not 0: nobody records in full mode.
    lacks_full: AtomicU32,
    /// Bits of [`Closed`].
    closed: AtomicU32,
    /// That wait for their probes.
    admitted: Starts,
    /// That count mode has left to full mode.
    left: Starts,
    /// How often rules were posted, twice; odd while they are written.
    edition: AtomicU32,
    length: AtomicU32,
    rules: [AtomicU8; MOST_RULES],
}

/// Processes of which the service must be told: how many there were, and the last of them.
#[repr(C)]
struct Starts {
    written: AtomicU64,
    last: [AtomicU32; MOST_STARTS],
}

impl Starts {
    /// For one thread.
    fn write(&self, pid: u32) {
        let written = self.written.load(Ordering::Relaxed);
        if let Some(place) = self.last.get(written as usize % MOST_STARTS) {
            place.store(pid, Ordering::Relaxed);
        }
        self.written.store(written + 1, Ordering::Release);
    }

    /// Those after `read` of them, which becomes how many they are; of more than there is room for the last ones.
    fn read(&self, read: &mut u64) -> impl Iterator<Item = u32> {
        let written = self.written.load(Ordering::Acquire);
        let first = (*read).max(written.saturating_sub(MOST_STARTS as u64));
        *read = written;
        (first..written).filter_map(move |index| {
            let place = self.last.get(index as usize % MOST_STARTS)?;
            Some(place.load(Ordering::Relaxed))
        })
    }
}

/// Whether starts are recorded, and by which rules.
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

    /// Whether nobody records in full mode at the moment: then what the rules want so is recorded in count mode.
    pub(super) fn set_lacks_full(&self, lacks: bool) {
        self.page()
            .lacks_full
            .store(u32::from(lacks), Ordering::Relaxed);
    }

    /// Whether nobody does.
    pub(super) fn lacks_full(&self) -> bool {
        self.page().lacks_full.load(Ordering::Relaxed) != 0
    }

    /// This process waits in its exec for probes from now on. For one thread.
    pub(super) fn admit(&self, pid: u32) {
        self.page().admitted.write(pid);
    }

    /// Those that did after `read` of them, which becomes how many they are.
    pub(super) fn admitted(&self, read: &mut u64) -> impl Iterator<Item = u32> {
        self.page().admitted.read(read)
    }

    /// Count mode leaves this start to full mode. For one thread.
    pub(super) fn leave_to_full(&self, pid: u32) {
        self.page().left.write(pid);
    }

    /// Those that it has left so, as [`admitted`](Gate::admitted).
    pub(super) fn left_to_full(&self, read: &mut u64) -> impl Iterator<Item = u32> {
        self.page().left.read(read)
    }

    /// A start that the rules want is not recorded because the disk is full.
    pub(super) fn turn_away(&self) {
        self.page().turned_away.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were not.
    pub(super) fn turned_away(&self) -> u64 {
        self.page().turned_away.load(Ordering::Relaxed)
    }

    /// Tells other rules than there were when the holder was started, or since; false: there is no room for so many. For one thread.
    pub(super) fn post(&self, rules: &str) -> bool {
        let page = self.page();
        if rules.len() > MOST_RULES {
            return false;
        }
        let edition = page.edition.load(Ordering::Relaxed);
        page.edition
            .store(edition.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        page.length.store(rules.len() as u32, Ordering::Relaxed);
        for (place, byte) in page.rules.iter().zip(rules.bytes()) {
            place.store(byte, Ordering::Relaxed);
        }
        page.edition
            .store(edition.wrapping_add(2), Ordering::Release);
        true
    }

    /// The edition of the rules that were posted last, even if none ever were.
    pub(super) fn edition(&self) -> u32 {
        self.page().edition.load(Ordering::Acquire)
    }

    /// The rules posted last, if there are others than this edition; `None` also while they are being written.
    pub(super) fn posted(&self, known: u32) -> Option<(u32, String)> {
        let page = self.page();
        let edition = page.edition.load(Ordering::Acquire);
        if edition == known || edition % 2 == 1 {
            return None;
        }
        let length = page.length.load(Ordering::Relaxed) as usize;
        let bytes = page.rules.iter().take(length);
        let bytes = bytes.map(|byte| byte.load(Ordering::Relaxed)).collect();
        fence(Ordering::Acquire);
        let is_whole = page.edition.load(Ordering::Relaxed) == edition;
        Some((edition, String::from_utf8(bytes).ok()?)).filter(|_| is_whole)
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

    #[test]
    fn starts_of_which_the_service_must_be_told_are_read_once() {
        let gate = Gate::new().unwrap();
        let mut read = 0;
        let mut next = |gate: &Gate| gate.left_to_full(&mut read).collect::<Vec<_>>();
        assert!(next(&gate).is_empty());
        (1..4).for_each(|pid| gate.leave_to_full(pid));
        gate.admit(9);
        assert_eq!(next(&gate), [1, 2, 3]);
        assert_eq!(gate.admitted(&mut 0).collect::<Vec<_>>(), [9]);
        assert!(next(&gate).is_empty());
        (0..2_000).for_each(|pid| gate.leave_to_full(pid));
        let last: Vec<u32> = (2_000 - MOST_STARTS as u32..2_000).collect();
        assert_eq!(next(&gate), last);
    }

    #[test]
    fn rules_are_read_whole_or_not_at_all() {
        let gate = Gate::new().unwrap();
        let first = gate.edition();
        assert_eq!(gate.posted(first), None);
        let reader = gate.clone();
        let reading = std::thread::spawn(move || {
            let (mut known, mut seen) = (first, 0);
            loop {
                let Some((edition, rules)) = reader.posted(known) else {
                    continue;
                };
                let of = rules.bytes().next().unwrap();
                assert!(rules.bytes().all(|byte| byte == of), "two at once");
                assert_ne!(edition, known);
                known = edition;
                seen += 1;
                if of == b'z' {
                    return seen;
                }
            }
        });
        for round in 0..2_000 {
            assert!(gate.post(&"ab"[round % 2..][..1].repeat(1_000 + round)));
        }
        assert!(gate.post("z"));
        assert!(reading.join().unwrap() > 0);
        assert!(!gate.post(&"x".repeat(MOST_RULES + 1)));
        assert_eq!(gate.posted(first).unwrap().1, "z", "as it was before");
    }
}
