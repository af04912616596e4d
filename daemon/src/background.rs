//! Work that leaves the processors to the programs that are recorded.
//!
//! Node begins threads of its own for collections and compilations, which its main thread waits for. Whoever has the processor when one is woken
//! lengthens the start: making sense of the records beside it took 7 % of `npm --version` on two processors (docs/benchmarks.md).
//!
//! On a busy host a thread in the background may get no processor for seconds. If it holds a lock then (the allocator's is one) another thread that wants it
//! waits as long. So it stays there for a while only, which somebody has to renew, and a third thread, which takes no lock, sees to that.

use std::{
    fs,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::thread::{CapabilitySet, capabilities, gettid};

use crate::recorder::now;

/// A thread that runs only where nobody else wants to, until somebody is in a hurry for what it does.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// 0: none.
    thread: AtomicI32,
    /// What it had before.
    policy: AtomicI32,
    /// Until when it may stay there, ns.
    until: AtomicU64,
}

impl Background {
    /// Makes the calling thread such a one until what this returns is dropped, and for as long as this unless that is renewed. Only if that can be taken back,
    /// and nobody has given it a policy of real time or `SCHED_IDLE`: else it stays as it is.
    pub(crate) fn begin(&self, limit: Duration) -> Option<Stay<'_>> {
        static MAY_RETURN: OnceLock<bool> = OnceLock::new();
        if !*MAY_RETURN.get_or_init(may_return) {
            return None;
        }
        let thread = gettid().as_raw_nonzero().get();
        let policy = policy_of(thread);
        if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&policy) {
            return None;
        }
        self.renew(limit);
        self.policy.store(policy, Ordering::Release);
        // First: once it is there it may not come to say so.
        self.thread.store(thread, Ordering::Release);
        set_policy(thread, libc::SCHED_IDLE);
        Some(Stay {
            background: self,
            thread,
            policy,
        })
    }

    /// It may stay for as long as this from now on.
    pub(crate) fn renew(&self, limit: Duration) {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let until = now().saturating_add(limit);
        self.until.store(until, Ordering::Release);
    }

    /// Lets it run as before, from now on. Said while it is about to begin, this has no effect: who wants it says it again.
    pub(crate) fn end(&self) {
        let thread = self.thread.load(Ordering::Acquire);
        // It may have left, and begun again, meanwhile: then it is in a hurry the next time.
        if thread != 0 && policy_of(thread) == libc::SCHED_IDLE {
            set_policy(thread, self.policy.load(Ordering::Acquire));
        }
    }

    /// CPU time that the thread which began has had so far, ns; 0 if none has.
    pub(crate) fn cpu_time(&self) -> u64 {
        let thread = self.thread.load(Ordering::Acquire);
        // Of a thread: its number inverted, in bits 3 and up; 4 for a thread, 2 for the scheduler's time (MAKE_THREAD_CPUCLOCK of linux/posix-timers.h).
        let clock = !thread << 3 | 4 | 2;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: a live struct; of a thread that is gone there is none.
        let is_known = thread != 0 && unsafe { libc::clock_gettime(clock, &mut time) } == 0;
        match is_known {
            true => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
            false => 0,
        }
    }

    /// Ends it where its time is up, until it is `over` and this thread unparked: the work of a thread of its own.
    pub(crate) fn watch(&self, over: &AtomicBool, every: Duration) {
        while !over.load(Ordering::Acquire) {
            std::thread::park_timeout(every);
            if now() > self.until.load(Ordering::Acquire) {
                self.end();
            }
        }
    }
}

/// See [`Background::begin`]. Of the thread that has begun.
#[derive(Debug)]
pub(crate) struct Stay<'b> {
    background: &'b Background,
    thread: i32,
    policy: i32,
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        // Nobody else knows for sure whether it is there.
        set_policy(self.thread, self.policy);
        self.background.thread.store(0, Ordering::Release);
    }
}

/// Whether a thread of this process may leave `SCHED_IDLE` again: with `CAP_SYS_NICE`, or where the limit for niceness allows its own. (From proc(5): the
/// system call that tells limits also sets them, which the service may not.)
fn may_return() -> bool {
    let permitted =
        capabilities(None).is_ok_and(|of| of.effective.contains(CapabilitySet::SYS_NICE));
    permitted
        || fs::read_to_string("/proc/self/limits").is_ok_and(|limits| allows_niceness_0(&limits))
}

/// Limits of niceness count from 40, for -20, down to 1, for 19.
fn allows_niceness_0(limits: &str) -> bool {
    let mut lines = limits.lines();
    let soft = lines.find_map(|line| {
        line.strip_prefix("Max nice priority")?
            .split_whitespace()
            .next()
    });
    soft.is_some_and(|soft| soft == "unlimited" || soft.parse().is_ok_and(|soft: u64| soft >= 20))
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

    fn not_permitted() {
        println!("skipped: this user may not come back from the background (RLIMIT_NICE)");
    }

    #[test]
    fn a_thread_in_the_background_is_taken_out_of_it_by_another() {
        let background = Background::default();
        background.end();
        let me = gettid().as_raw_nonzero().get();
        for before in [libc::SCHED_OTHER, libc::SCHED_BATCH] {
            assert!(set_policy(me, before));
            let stay = background.begin(Duration::MAX);
            let expected = if may_return() {
                libc::SCHED_IDLE
            } else {
                before
            };
            assert_eq!(policy_of(me), expected);
            std::thread::scope(|scope| {
                scope.spawn(|| background.end());
            });
            assert_eq!(policy_of(me), before);
            drop(stay);
            let stay = background.begin(Duration::MAX);
            assert_eq!(policy_of(me), expected);
            drop(stay);
            assert_eq!(policy_of(me), before);
            background.end();
            assert_eq!(policy_of(me), before);
        }
    }

    /// Whoever is slow to end a stay does not leave the thread in the next one.
    #[test]
    fn whenever_others_end_it_the_thread_is_as_before_when_it_leaves() {
        let (background, over) = (Background::default(), AtomicBool::new(false));
        let me = gettid().as_raw_nonzero().get();
        let before = policy_of(me);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(Ordering::Acquire) {
                        background.end();
                    }
                });
            }
            let left = (0..5_000).all(|_| {
                drop(background.begin(Duration::ZERO));
                policy_of(me) == before
            });
            over.store(true, Ordering::Release);
            assert!(left);
        });
    }

    #[test]
    fn its_cpu_time_grows_while_it_works_and_not_while_it_sleeps() {
        let background = Background::default();
        assert_eq!(background.cpu_time(), 0);
        let Some(_stay) = background.begin(Duration::MAX) else {
            return not_permitted();
        };
        background.end();
        let before = background.cpu_time();
        std::thread::sleep(Duration::from_millis(50));
        let slept = background.cpu_time();
        assert!(slept - before < 25_000_000, "{before} {slept}");
        while background.cpu_time() - slept < 10_000_000 {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn limits_are_those_of_the_kernel_s_text() {
        let text = |soft| {
            format!(
                "Limit        Soft Limit  Hard Limit  Units\nMax nice priority  {soft}  40 \nMax realtime priority 0 0\n"
            )
        };
        assert!(allows_niceness_0(&text("20")) && allows_niceness_0(&text("unlimited")));
        assert!(!allows_niceness_0(&text("19")) && !allows_niceness_0(&text("0")));
        assert!(!allows_niceness_0(""));
    }

    #[test]
    fn who_runs_in_the_background_already_stays_there() {
        if !may_return() {
            // Then none ever begins.
            return not_permitted();
        }
        let background = Background::default();
        let me = gettid().as_raw_nonzero().get();
        assert!(set_policy(me, libc::SCHED_IDLE));
        assert!(background.begin(Duration::MAX).is_none());
        background.end();
        assert_eq!(policy_of(me), libc::SCHED_IDLE);
    }

    #[test]
    fn its_time_is_up_unless_it_is_renewed() {
        const LONG: Duration = Duration::from_secs(3600);
        const EVERY: Duration = Duration::from_millis(10);
        let me = gettid().as_raw_nonzero().get();
        let before = policy_of(me);
        let (background, over) = (Background::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| background.watch(&over, EVERY));
            let _stay = background.begin(LONG);
            background.renew(LONG);
            std::thread::sleep(EVERY * 10);
            let meanwhile = policy_of(me);
            background.renew(Duration::ZERO);
            let is_out = (0..1000).any(|_| {
                std::thread::sleep(EVERY);
                policy_of(me) == before
            });
            over.store(true, Ordering::Release);
            watching.thread().unpark();
            if may_return() {
                assert_eq!(meanwhile, libc::SCHED_IDLE);
            } else {
                not_permitted();
            }
            assert!(is_out);
        });
    }
}
