//! Clients' readers of the store, and the one who writes it.
//!
//! What is written goes to a log, and from there into the database; the log begins anew when nobody reads. While readers overlap it would grow without end: so now and
//! then they wait for a moment in which there are none.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Readers wait no longer than this for a moment without any: one that is under way has ended by then (`STORE_PATIENCE` of control.rs).
const WAIT: Duration = Duration::from_secs(12);
/// And once in this time.
const PAUSE: Duration = Duration::from_secs(60);

/// What is read. One at a time of each, for it takes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// A recording.
    Recording = 0,
    /// A list of runs or labels.
    List = 1,
}

#[derive(Debug, Default)]
struct State {
    reads: [bool; 2],
    /// Users whose turn comes, each once, with the one who reads first: of a user with many connections one waits with the others, the rest behind it.
    turns: [VecDeque<u32>; 2],
    /// Since when the one who writes waits for a moment without readers, or has waited.
    asked: Option<Instant>,
}

impl State {
    fn is_asked(&self) -> bool {
        self.asked.is_some_and(|at| at.elapsed() < WAIT)
    }
}

/// Who reads at this moment.
#[derive(Debug, Default)]
pub(super) struct Readers {
    state: Mutex<State>,
    changed: Condvar,
}

/// One of them.
pub(super) struct Reader<'r> {
    all: &'r Readers,
    reading: Reading,
}

/// Nobody reads as long as this is there.
pub(super) struct Alone<'r> {
    state: MutexGuard<'r, State>,
    changed: &'r Condvar,
}

impl Readers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is this user's turn.
    pub(super) fn enter(&self, reading: Reading, uid: u32) -> Reader<'_> {
        let mut state = self.state();
        let mut is_in_line = false;
        loop {
            let is_asked = state.is_asked();
            let turns = &mut state.turns[reading as usize];
            if !is_in_line && !turns.contains(&uid) {
                turns.push_back(uid);
                is_in_line = true;
            }
            let is_first = is_in_line && turns.front() == Some(&uid);
            if is_first && !is_asked {
                state.reads[reading as usize] = true;
                return Reader { all: self, reading };
            }
            // A time limit, for nobody tells when `WAIT` is over.
            let waited = self.changed.wait_timeout(state, Duration::from_millis(100));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Nobody reads now, or as soon as all have ended who do: to be asked again then.
    pub(super) fn alone(&self) -> Option<Alone<'_>> {
        let mut state = self.state();
        if state.asked.is_none_or(|at| at.elapsed() >= PAUSE) {
            state.asked = Some(Instant::now());
        }
        (state.reads == [false; 2]).then(|| Alone {
            state,
            changed: &self.changed,
        })
    }

    /// Whether readers wait for the one who writes.
    pub(super) fn are_asked(&self) -> bool {
        self.state().is_asked()
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut state = self.all.state();
        state.reads[self.reading as usize] = false;
        state.turns[self.reading as usize].pop_front();
        drop(state);
        self.all.changed.notify_all();
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.state.asked = None;
        self.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn who_writes_is_alone_soon_although_readers_overlap() {
        let readers = Readers::default();
        let end = Instant::now() + Duration::from_secs(5);
        let done = AtomicBool::new(false);
        let got = std::thread::scope(|scope| {
            for (n, reading) in [Reading::Recording, Reading::List].into_iter().enumerate() {
                let (readers, done) = (&readers, &done);
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(25 * n as u64));
                    while !done.load(Ordering::Relaxed) {
                        let reader = readers.enter(reading, 0);
                        std::thread::sleep(Duration::from_millis(50));
                        drop(reader);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(100));
            let mut got = 0;
            while got < 5 && Instant::now() < end {
                got += usize::from(readers.alone().is_some());
                std::thread::sleep(Duration::from_millis(1));
            }
            done.store(true, Ordering::Relaxed);
            got
        });
        assert_eq!(got, 5);
        assert!(!readers.are_asked());
    }

    #[test]
    fn many_readers_of_a_user_keep_no_other_user_out() {
        let readers = Readers::default();
        let turns = || readers.state().turns[Reading::List as usize].clone();
        let order = Mutex::new(Vec::new());
        let read = |uid: u32| {
            let _reader = readers.enter(Reading::List, uid);
            order.lock().unwrap().push(uid);
        };
        std::thread::scope(|scope| {
            let first = readers.enter(Reading::List, 1);
            for _ in 0..3 {
                scope.spawn(|| read(1));
            }
            scope.spawn(|| read(2));
            while turns() != [1, 2] {
                std::thread::yield_now();
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [2, 1, 1, 1]);
        assert!(turns().is_empty());
    }
}
