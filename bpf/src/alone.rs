//! One change of probes at a time.
//!
//! The kernel adds the probes of a link one by one, and takes them away one by one. For each it takes a lock of the whole host, and those of the memory of
//! all who execute the file (`dup_mmap_sem` and `register_for_each_vma` of kernel/events/uprobes.c). Two threads that do so hand that lock to each other for every single probe,
//! and whoever waits for it sleeps: 0.1 ms each time (measured, Linux 6.18, two processors). An attach that takes 1 to 2 ms alone took 20 to 80 ms so,
//! and an exec waits for it. Therefore they take turns, those that attach first.
//!
//! The turn of a detach is over when its probes are gone. After that the kernel waits for a grace period, 20 to 40 ms, before the detach returns.

use std::{
    fs,
    sync::{Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// No attach waits longer for its turn, whatever another thread hangs in: an exec of a service waits for 40 ms at most.
const PATIENCE_TO_ATTACH: Duration = Duration::from_millis(10);
/// No detach waits longer, if one attach comes after another.
pub(crate) const PATIENCE_TO_DETACH: Duration = Duration::from_secs(1);
/// How often somebody who attaches looks whether the probes of a detach are gone, of which nobody tells.
const LOOK: Duration = Duration::from_micros(100);
/// The same for somebody who detaches.
const RARE_LOOK: Duration = Duration::from_millis(1);
/// In this time a thread of the kernel has taken the probes of most links away (on Linux 6.18; one that begins with it later is not waited for).
const SHORT_CHANGE: Duration = Duration::from_millis(2);
/// Where the kernel does not say what a thread waits for, the probes of a detach are taken to be gone after this time. (For a thousand it takes 2 ms.)
const LONGEST_CHANGE: Duration = Duration::from_millis(5);

/// Waits until nobody else in this process changes probes. Others wait until what this returns is dropped.
#[must_use]
pub(crate) fn to_attach() -> Option<Turn<'static>> {
    Turn::take(&TURNS, Kind::Attach, PATIENCE_TO_ATTACH)
}

/// Closes a link, as soon as nobody else in this process changes probes, or wants to attach.
pub(crate) fn detaching<T>(detach: impl FnOnce() -> T) -> T {
    // SAFETY: takes nothing.
    let thread = unsafe { libc::gettid() };
    let _turn = Turn::take(&TURNS, Kind::Detach { thread }, PATIENCE_TO_DETACH);
    detach()
}

/// Leaves links to a thread of the kernel, which then takes their probes away, as soon as nobody else in this process changes probes, or wants to attach.
pub(crate) fn leaving<T>(leave: impl FnOnce() -> T) -> T {
    // Of that thread nobody says what it waits for.
    let _turn = Turn::take(&TURNS, Kind::Detach { thread: 0 }, PATIENCE_TO_DETACH);
    let left = leave();
    thread::sleep(SHORT_CHANGE);
    left
}

static TURNS: Turns = Turns::new();

/// Whose turn it is.
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// A fork has none of these threads.
    process: u32,
    /// How many wait to attach.
    waiting: usize,
    current: Option<Change>,
    /// Of the last change.
    number: u64,
}

/// A change that is under way.
struct Change {
    number: u64,
    kind: Kind,
    begun: Instant,
}

#[derive(Clone, Copy)]
enum Kind {
    Attach,
    /// In this thread.
    Detach {
        thread: libc::pid_t,
    },
}

/// Until it is dropped others wait.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Turns {
    const fn new() -> Turns {
        Turns {
            state: Mutex::new(State {
                process: 0,
                waiting: 0,
                current: None,
                number: 0,
            }),
            changed: Condvar::new(),
        }
    }
}

impl State {
    /// Whether somebody may begin who attaches, or detaches.
    fn permits(&self, attaches: bool) -> bool {
        self.current.as_ref().is_none_or(Change::is_over) && (attaches || self.waiting == 0)
    }
}

impl Turn<'_> {
    /// `None`: who has the turn has had it for too long, or others come first for too long; who asks goes on all the same.
    fn take(turns: &Turns, kind: Kind, patience: Duration) -> Option<Turn<'_>> {
        let (attaches, look) = match kind {
            Kind::Attach => (true, LOOK),
            Kind::Detach { .. } => (false, RARE_LOOK),
        };
        let asked = Instant::now();
        let mut state = turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if state.process != process {
            (state.process, state.waiting, state.current) = (process, 0, None);
        }
        state.waiting += usize::from(attaches);
        let number = loop {
            if state.permits(attaches) {
                state.number += 1;
                let number = state.number;
                state.current = Some(Change {
                    number,
                    kind,
                    begun: Instant::now(),
                });
                break Some(number);
            }
            let left = patience.saturating_sub(asked.elapsed());
            if left.is_zero() {
                break None;
            }
            let pause = match &state.current {
                Some(change) if matches!(change.kind, Kind::Detach { .. }) => left.min(look),
                _ => left,
            };
            let waited = turns.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        if attaches {
            state.waiting -= 1;
            if number.is_none() {
                turns.changed.notify_all();
            }
        }
        number.map(|number| Turn { turns, number })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let state = self.turns.state.lock();
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if (state.current.as_ref()).is_some_and(|change| change.number == self.number) {
            state.current = None;
            self.turns.changed.notify_all();
        }
    }
}

impl Change {
    /// Whether others may go on: of an attach its end tells, of a detach what its thread waits for.
    fn is_over(&self) -> bool {
        match self.kind {
            Kind::Attach => false,
            Kind::Detach { thread } => {
                self.begun.elapsed() > LONGEST_CHANGE || awaits_grace_period(thread)
            }
        }
    }
}

/// Whether a thread of this process sleeps until a grace period is over: it has called `synchronize_rcu_tasks_trace` or `synchronize_srcu`. (Not
/// `synchronize_rcu_expedited`: for that a thread waits between two probes, too.)
fn awaits_grace_period(thread: libc::pid_t) -> bool {
    let place = fs::read(format!("/proc/self/task/{thread}/wchan")).unwrap_or_default();
    let place = String::from_utf8_lossy(&place);
    ["wait_rcu_gp", "synchronize_srcu"]
        .iter()
        .any(|function| place.contains(function))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::attach::tests::{link, programs};

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(60);
    /// No thread of this process waits for anything under this number.
    const NOBODY: Kind = Kind::Detach { thread: 0 };

    fn waiting(turns: &Turns) -> usize {
        turns.state.lock().unwrap().waiting
    }

    #[test]
    fn who_attaches_comes_before_who_detaches() {
        let turns = Turns::new();
        let permits = |attaches| turns.state.lock().unwrap().permits(attaches);
        assert!(permits(true) && permits(false));
        let first = Turn::take(&turns, Kind::Attach, LONG).unwrap();
        assert!(!permits(true) && !permits(false));
        let begun = Instant::now();
        thread::scope(|scope| {
            let second = scope.spawn(|| Turn::take(&turns, Kind::Attach, LONG).is_some());
            while waiting(&turns) == 0 {
                assert!(begun.elapsed() < LONG);
                thread::sleep(LOOK);
            }
            {
                // As if the first one had ended, and nobody had woken up.
                let mut state = turns.state.lock().unwrap();
                let current = state.current.take();
                assert!(state.permits(true) && !state.permits(false));
                state.current = current;
            }
            drop(first);
            assert!(second.join().unwrap());
        });
        // It was woken, and has ended, too.
        assert!(begun.elapsed() < LONG);
        assert!(permits(true) && permits(false));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let turns = Turns::new();
        let hangs = Turn::take(&turns, Kind::Attach, LONG).unwrap();
        let begun = Instant::now();
        assert!(Turn::take(&turns, Kind::Attach, RARE_LOOK).is_none());
        assert!(Turn::take(&turns, NOBODY, RARE_LOOK).is_none());
        assert!(begun.elapsed() >= 2 * RARE_LOOK);
        assert_eq!(waiting(&turns), 0);
        drop(hangs);
        assert!(Turn::take(&turns, NOBODY, LONG).is_some());
    }

    #[test]
    fn a_detach_has_its_turn_until_its_probes_must_be_gone() {
        let turns = Turns::new();
        let detach = Turn::take(&turns, NOBODY, LONG).unwrap();
        let begun = turns.state.lock().unwrap().current.as_ref().unwrap().begun;
        let attach = Turn::take(&turns, Kind::Attach, LONG).unwrap();
        assert!(begun.elapsed() > LONGEST_CHANGE);
        // The end of the one is not the end of the other.
        drop(detach);
        assert!(turns.state.lock().unwrap().current.is_some());
        drop(attach);
        assert!(turns.state.lock().unwrap().current.is_none());
    }

    #[test]
    fn the_turns_of_the_process_before_a_fork_are_not_those_of_this_one() {
        let turns = Turns::new();
        let before = Turn::take(&turns, Kind::Attach, LONG).unwrap();
        {
            let mut state = turns.state.lock().unwrap();
            (state.process, state.waiting) = (0, 3);
        }
        assert!(Turn::take(&turns, NOBODY, LONG).is_some());
        drop(before);
    }

    /// Who detaches is known to wait for a grace period, when its probes are gone: else each attach beside it would wait for longer.
    #[test]
    #[ignore = "needs root"]
    fn a_detach_whose_probes_are_gone_is_known() {
        let programs = programs();
        let is_known = |_| {
            let link = link(&programs);
            let (say, said) = mpsc::channel();
            let closer = thread::spawn(move || {
                // SAFETY: takes nothing.
                say.send(unsafe { libc::gettid() }).unwrap();
                // The kernel waits between two probes in a place of its own then.
                let _expedited = crate::expedite::Expedited::new();
                drop(link);
            });
            let closing = said.recv().unwrap();
            let mut known = false;
            while !closer.is_finished() {
                known |= awaits_grace_period(closing);
                thread::sleep(LOOK);
            }
            closer.join().unwrap();
            known
        };
        if !(0..10).any(is_known) {
            // Before Linux 6.12 who detaches waits for nothing: it is over when it returns.
            let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
            let mut numbers = release.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
            let release = [numbers.next(), numbers.next()].map(Option::unwrap_or_default);
            assert!(release < [6, 12], "{release:?}");
            println!("skipped: this kernel does not wait for a grace period when probes are gone");
        }
        // SAFETY: takes nothing. This thread is awake.
        assert!(!awaits_grace_period(unsafe { libc::gettid() }));
    }
}
