//! Work that leaves the processors to the traced program.
//!
//! Node begins threads of its own for collections and compilations, which its main thread waits for. Whoever has the processor when one is woken
//! lengthens the start: making sense of the records beside it took 7 % of `npm --version` on two processors (docs/benchmarks.md).

use std::sync::atomic::{AtomicI32, Ordering};

use rustix::thread::{CapabilitySet, capabilities, gettid};

/// A thread that runs only where nobody else wants to, until somebody is in a hurry for what it does.
#[derive(Default)]
pub(super) struct Background {
    /// 0: none.
    thread: AtomicI32,
}

impl Background {
    /// Makes the calling thread such a one. Only with the right to take that back (`CAP_SYS_NICE`), and if nobody has given it another policy
    /// than the default.
    pub(super) fn begin(&self) {
        let permitted =
            capabilities(None).is_ok_and(|of| of.effective.contains(CapabilitySet::SYS_NICE));
        let me = gettid().as_raw_nonzero().get();
        if permitted && policy_of(me) == libc::SCHED_OTHER && set_policy(me, libc::SCHED_IDLE) {
            self.thread.store(me, Ordering::Release);
        }
    }

    /// Lets it run as others do, from now on.
    pub(super) fn end(&self) {
        let thread = self.thread.swap(0, Ordering::AcqRel);
        if thread != 0 && policy_of(thread) == libc::SCHED_IDLE {
            set_policy(thread, libc::SCHED_OTHER);
        }
    }
}

fn policy_of(thread: i32) -> i32 {
    // SAFETY: a plain system call; a failure is no policy.
    unsafe { libc::sched_getscheduler(thread) }
}

fn set_policy(thread: i32, policy: i32) -> bool {
    // SAFETY: a live, zeroed struct of plain numbers; a failure changes nothing.
    unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(thread, policy, &parameters) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_in_the_background_is_taken_out_of_it_by_another() {
        let background = Background::default();
        background.end();
        let me = gettid().as_raw_nonzero().get();
        let before = policy_of(me);
        background.begin();
        let may = background.thread.load(Ordering::Acquire) != 0;
        let expected = if may { libc::SCHED_IDLE } else { before };
        assert_eq!(policy_of(me), expected);
        std::thread::scope(|scope| {
            scope.spawn(|| background.end());
        });
        assert_eq!(policy_of(me), before);
    }

    #[test]
    fn who_runs_in_the_background_already_stays_there() {
        let background = Background::default();
        let me = gettid().as_raw_nonzero().get();
        assert!(set_policy(me, libc::SCHED_IDLE));
        background.begin();
        background.end();
        assert_eq!(policy_of(me), libc::SCHED_IDLE);
    }
}
