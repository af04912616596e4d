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
const PATIENCE_TO_DETACH: Duration = Duration::from_secs(1);
/// How often somebody who attaches looks whether the probes of a detach are gone, of which nobody tells.
const LOOK: Duration = Duration::from_micros(100);
/// The same for somebody who detaches.
const RARE_LOOK: Duration = Duration::from_millis(1);
/// In this time a thread of the kernel has taken the probes of most links away.
const SHORT_CHANGE: Duration = Duration::from_millis(2);
/// Where the kernel does not say what a thread waits for, the probes of a detach are taken to be gone after this time. (For a thousand it takes 2 ms.)
const LONGEST_CHANGE: Duration = Duration::from_millis(5);

/// Attaches, as soon as nobody else in this process changes probes.
pub(crate) fn attaching<T>(attach: impl FnOnce() -> T) -> T {
    let _turn = Turn::take(&TURNS, Kind::Attach);
    attach()
}

/// Closes a link, as soon as nobody else in this process changes probes, or wants to attach.
pub(crate) fn detaching<T>(detach: impl FnOnce() -> T) -> T {
    // SAFETY: takes nothing.
    let thread = unsafe { libc::gettid() };
    let _turn = Turn::take(&TURNS, Kind::Detach { thread });
    detach()
}

/// Leaves a link to the kernel, which then takes its probes away, as soon as nobody else in this process changes probes, or wants to attach.
pub(crate) fn leaving<T>(leave: impl FnOnce() -> T) -> T {
    // Of a thread of the kernel nobody says what it waits for.
    let _turn = Turn::take(&TURNS, Kind::Detach { thread: 0 });
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
struct Turn<'a> {
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

impl Turn<'_> {
    /// `None`: who has the turn has had it for too long, or others come first for too long; who asks goes on all the same.
    fn take(turns: &Turns, kind: Kind) -> Option<Turn<'_>> {
        let attaches = matches!(kind, Kind::Attach);
        let (patience, look) = match kind {
            Kind::Attach => (PATIENCE_TO_ATTACH, LOOK),
            Kind::Detach { .. } => (PATIENCE_TO_DETACH, RARE_LOOK),
        };
        let asked = Instant::now();
        let mut state = turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if state.process != process {
            (state.process, state.waiting, state.current) = (process, 0, None);
        }
        state.waiting += usize::from(attaches);
        let number = loop {
            let is_free = state.current.as_ref().is_none_or(Change::is_over);
            if is_free && (attaches || state.waiting == 0) {
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

    /// A thread that says its name when its turn has come, and has it until the other end is dropped.
    fn begin(
        name: &'static str,
        kind: Kind,
        turns: &'static Turns,
        said: &mpsc::Sender<&'static str>,
    ) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
        let (end, ended) = mpsc::channel();
        let said = said.clone();
        let thread = thread::spawn(move || {
            let turn = Turn::take(turns, kind);
            said.send(name).unwrap();
            let _ = ended.recv();
            drop(turn);
        });
        (end, thread)
    }

    fn until(condition: impl Fn(&State) -> bool, turns: &Turns) {
        let begun = Instant::now();
        while !condition(&turns.state.lock().unwrap()) {
            assert!(begun.elapsed() < Duration::from_secs(10));
            thread::sleep(LOOK);
        }
    }

    fn turns() -> &'static Turns {
        Box::leak(Box::new(Turns::new()))
    }

    fn none() -> Kind {
        // No thread of this process waits for anything under this number.
        Kind::Detach { thread: 0 }
    }

    #[test]
    fn who_attaches_comes_before_who_detaches() {
        let turns = turns();
        let (say, said) = mpsc::channel();
        let (end_first, first) = begin("first", Kind::Attach, turns, &say);
        assert_eq!(said.recv().unwrap(), "first");
        let (end_detach, detach) = begin("detach", none(), turns, &say);
        let (end_attach, attach) = begin("attach", Kind::Attach, turns, &say);
        until(|state| state.waiting == 1 || state.number > 1, turns);
        drop(end_first);
        assert_eq!(said.recv().unwrap(), "attach");
        drop(end_attach);
        assert_eq!(said.recv().unwrap(), "detach");
        drop(end_detach);
        for thread in [first, detach, attach] {
            thread.join().unwrap();
        }
        assert!(turns.state.lock().unwrap().current.is_none());
    }

    #[test]
    fn nobody_waits_for_ever() {
        let turns = turns();
        let hangs = Turn::take(turns, Kind::Attach).unwrap();
        let begun = Instant::now();
        assert!(Turn::take(turns, Kind::Attach).is_none());
        assert!(begun.elapsed() >= PATIENCE_TO_ATTACH);
        assert_eq!(turns.state.lock().unwrap().waiting, 0);
        drop(hangs);
        assert!(Turn::take(turns, none()).is_some());
    }

    #[test]
    fn a_detach_has_its_turn_until_its_probes_must_be_gone() {
        let turns = turns();
        let detach = Turn::take(turns, none()).unwrap();
        let begun = turns.state.lock().unwrap().current.as_ref().unwrap().begun;
        let attach = Turn::take(turns, Kind::Attach).unwrap();
        assert!(begun.elapsed() > LONGEST_CHANGE);
        // The end of the one is not the end of the other.
        drop(detach);
        assert!(turns.state.lock().unwrap().current.is_some());
        drop(attach);
        assert!(turns.state.lock().unwrap().current.is_none());
    }

    #[test]
    fn the_turns_of_the_process_before_a_fork_are_not_those_of_this_one() {
        let turns = turns();
        let before = Turn::take(turns, Kind::Attach).unwrap();
        turns.state.lock().unwrap().process = 0;
        turns.state.lock().unwrap().waiting = 3;
        assert!(Turn::take(turns, none()).is_some());
        drop(before);
    }

    /// Who detaches is known to wait for a grace period, when its probes are gone: else each attach beside it would wait for longer.
    #[test]
    #[ignore = "needs root"]
    fn a_detach_whose_probes_are_gone_is_known() {
        let options = crate::Options {
            count_only: true,
            ring_bytes: 1 << 20,
            ..crate::Options::default()
        };
        let programs = crate::Programs::load(&options).unwrap();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let address = awaits_grace_period as fn(libc::pid_t) -> bool as usize as u64;
        let (path, offset) = crate::selfprobe::file_offset(&maps, address).unwrap();
        let points = crate::AttachPoints::entries([(offset, 0)].into_iter());
        let is_known = |_| {
            let (entry, exit) = (programs.entry(), programs.exit());
            let link =
                crate::attach::attach(entry, exit, &path, std::process::id(), &points).unwrap();
            let (say, said) = mpsc::channel();
            let closer = thread::spawn(move || {
                // SAFETY: takes nothing.
                say.send(unsafe { libc::gettid() }).unwrap();
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
        assert!((0..10).any(is_known));
        // SAFETY: takes nothing. This thread is awake.
        assert!(!awaits_grace_period(unsafe { libc::gettid() }));
    }
}
