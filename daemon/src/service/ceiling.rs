//! A ceiling on what the service itself costs the host: above it, it records less, in steps, until it is below.
//!
//! The holder decides who is recorded, in a process of its own; so the step that holds now lies in memory that both see.

use std::{
    fs, io,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nodeprof_bpf::stat_field;

use super::config::CeilingLimits;

/// What is recorded, of the starts that the rules admit: one in so many; 0: none. One step to the next.
const STEPS: [u32; 4] = [1, 10, 100, 0];
/// Figures are means over at least this time.
const INTERVAL: Duration = Duration::from_secs(1);

/// Figures of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// CPU time of the service and its holder, percent of one core.
    pub cpu_percent: f64,
    /// Probe hits and traced system calls per second.
    pub events: f64,
}

/// It records less than before, or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepped {
    /// Of the starts that the rules admit one in so many is recorded from now on; 0: none.
    pub one_in: u32,
    /// Whether that is less than before.
    pub is_down: bool,
    /// Why.
    pub load: Load,
    /// Starts that were not recorded because of the ceiling, so far.
    pub passed_over: u64,
}

/// What the holder sees, too.
#[derive(Default)]
#[repr(C)]
struct Table {
    step: AtomicU32,
    passed_over: AtomicU64,
}

/// [`Table`] in memory that a fork shares.
pub(super) struct Shared(NonNull<Table>);

// SAFETY: all that it points to is atomic, and stays mapped as long as this lives.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> io::Result<Shared> {
        // SAFETY: a new mapping where nothing is.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Table>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED) {
            Some(at) => Ok(Shared(at)),
            None => Err(io::Error::last_os_error()),
        }
    }

    fn table(&self) -> &Table {
        // SAFETY: mapped with this size, and zeros are a table.
        unsafe { self.0.as_ref() }
    }

    /// Of the starts that the rules admit one in so many is recorded now; 0: none.
    pub(super) fn one_in(&self) -> u32 {
        let step = self.table().step.load(Ordering::Relaxed) as usize;
        STEPS[step.min(STEPS.len() - 1)]
    }

    /// One was not.
    pub(super) fn pass_over(&self) {
        self.table().passed_over.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; no reference outlives this.
        unsafe { libc::munmap(self.0.as_ptr().cast(), size_of::<Table>()) };
    }
}

/// The ceiling, and where the service is below it.
pub(super) struct Ceiling {
    limits: CeilingLimits,
    shared: Arc<Shared>,
    /// When it was measured last; CPU time and events until then.
    measured: Instant,
    cpu: Duration,
    events: u64,
    /// Since when both are below half of their limits.
    low_since: Option<Instant>,
}

impl Ceiling {
    pub(super) fn new(limits: CeilingLimits, events: u64) -> io::Result<Ceiling> {
        Ok(Ceiling {
            limits,
            shared: Arc::new(Shared::new()?),
            measured: Instant::now(),
            cpu: Duration::ZERO,
            events,
            low_since: None,
        })
    }

    /// For the holder.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// One that another process measures: of the starts that the rules admit one in so many is recorded; 0: none.
    pub(super) fn set_one_in(&self, one_in: u32) {
        let step = STEPS.iter().position(|step| *step == one_in);
        let step = step.unwrap_or(STEPS.len() - 1) as u32;
        self.shared.table().step.store(step, Ordering::Relaxed);
    }

    /// Other limits from now on; without any all is recorded again.
    pub(super) fn limits(&mut self, limits: CeilingLimits) {
        if limits.cpu_percent.is_none() && limits.events.is_none() {
            self.shared.table().step.store(0, Ordering::Relaxed);
        }
        self.limits = limits;
        self.low_since = None;
    }

    /// Starts that were not recorded because of it.
    pub(super) fn passed_over(&self) -> u64 {
        self.shared.table().passed_over.load(Ordering::Relaxed)
    }

    /// Of the starts that the rules admit one in so many is recorded now; 0: none.
    pub(super) fn one_in(&self) -> u32 {
        self.shared.one_in()
    }

    /// Counts from here on: what a process took to begin is no load that records less would make smaller.
    pub(super) fn begin_at(&mut self, cpu: Duration, events: u64) {
        (self.measured, self.cpu, self.events) = (Instant::now(), cpu, events);
    }

    /// Whether it is time to measure.
    pub(super) fn is_due(&self) -> bool {
        self.measured.elapsed() >= INTERVAL
    }

    /// Measures, and takes a step if need be. `cpu`: of this service since its beginning, `events` as well.
    pub(super) fn measure(&mut self, now: Instant, cpu: Duration, events: u64) -> Option<Stepped> {
        let seconds = now.duration_since(self.measured).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        let load = Load {
            cpu_percent: cpu.saturating_sub(self.cpu).as_secs_f64() / seconds * 100.0,
            events: events.saturating_sub(self.events) as f64 / seconds,
        };
        (self.measured, self.cpu, self.events) = (now, cpu, events);
        let step = self.shared.table().step.load(Ordering::Relaxed);
        let last = STEPS.len() as u32 - 1;
        let next = if self.exceeds(load, 1.0) {
            self.low_since = None;
            (step + 1).min(last)
        } else if self.exceeds(load, 0.5) {
            self.low_since = None;
            step
        } else {
            let since = *self.low_since.get_or_insert(now);
            match now.duration_since(since) >= self.limits.recovery {
                true => {
                    self.low_since = None;
                    step.saturating_sub(1)
                }
                false => step,
            }
        };
        self.shared.table().step.store(next, Ordering::Relaxed);
        (next != step).then(|| Stepped {
            one_in: self.one_in(),
            is_down: next > step,
            load,
            passed_over: self.passed_over(),
        })
    }

    /// Whether the load is above this part of a limit.
    fn exceeds(&self, load: Load, part: f64) -> bool {
        let above =
            |value: f64, limit: Option<u64>| limit.is_some_and(|limit| value > limit as f64 * part);
        above(load.cpu_percent, self.limits.cpu_percent) || above(load.events, self.limits.events)
    }
}

/// CPU time of a thread of this process; none once it has ended.
pub(super) fn cpu_time_of(thread: libc::pid_t) -> Duration {
    /// The clock of a thread, by the scheduler (linux/posix-timers.h): `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`.
    const OF_THREAD: libc::clockid_t = 4 | 2;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live struct.
    unsafe { libc::clock_gettime((!thread << 3) | OF_THREAD, &mut time) };
    time_of(time)
}

/// None of one that is negative: what stands between us and the kernel (libfaketime) may step this clock with that of the day.
fn time_of(time: libc::timespec) -> Duration {
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanoseconds)) if nanoseconds < 1_000_000_000 => {
            Duration::new(seconds, nanoseconds)
        }
        _ => Duration::ZERO,
    }
}

/// CPU time of the calling thread.
pub(super) fn own_cpu_time() -> Duration {
    // SAFETY: asks who we are.
    cpu_time_of(unsafe { libc::gettid() })
}

/// CPU time of this process and of others of ours, since their beginnings.
pub(super) fn cpu_time(others: &[u32]) -> Duration {
    // SAFETY: the struct consists of integers, and is written by the kernel.
    let own = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        let time = |t: libc::timeval| {
            Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64)
        };
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    own + cpu_time_of_processes(others)
}

/// The same without that of threads of these names: what such a one takes to begin and to end is not in its own clock, so they are left out, not subtracted.
pub(super) fn cpu_time_besides(names: &[&str], others: &[u32]) -> Duration {
    let times = threads_besides(names).into_iter().map(cpu_time_of);
    times.fold(cpu_time_of_processes(others), Duration::saturating_add)
}

fn threads_besides(names: &[&str]) -> Vec<libc::pid_t> {
    let threads = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter(|thread| {
            let name = fs::read_to_string(thread.path().join("comm"));
            name.is_ok_and(|name| !names.contains(&name.trim_end()))
        })
        .filter_map(|thread| thread.file_name().to_str()?.parse().ok())
        .collect()
}

fn cpu_time_of_processes(pids: &[u32]) -> Duration {
    let ticks_of = |pid: &u32| -> u64 {
        const USER_AND_SYSTEM: [usize; 2] = [14, 15];
        let fields = USER_AND_SYSTEM.map(|number| stat_field(*pid, number));
        let ticks = fields.into_iter().flatten().map(|f| f.parse::<u64>());
        ticks.flatten().sum()
    };
    let ticks: u64 = pids.iter().map(ticks_of).sum();
    // SAFETY: takes an integer.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    Duration::from_secs_f64(ticks as f64 / per_second)
}

/// Memory of this process and of others of ours, bytes. Of a page that several processes have, each has its part: our own have most of theirs of each other.
pub(super) fn memory(others: &[u32]) -> u64 {
    let others = others.iter().map(|pid| memory_of(&pid.to_string()));
    memory_of("self") + others.sum::<u64>()
}

/// The proportional set size of a process (proc_pid_smaps(5)); its resident one, with all of what it shares, where the kernel does not tell that.
fn memory_of(pid: &str) -> u64 {
    let field = |file: &str, name: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let kilobytes = field("smaps_rollup", "Pss:").or_else(|| field("status", "VmRSS:"));
    kilobytes.unwrap_or(0) * 1024
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn it_steps_down_at_once_and_up_again_after_a_while() {
        let limits = CeilingLimits {
            cpu_percent: Some(50),
            events: Some(1_000),
            recovery: Duration::from_secs(3),
        };
        let mut ceiling = Ceiling::new(limits, 0).unwrap();
        let begin = ceiling.measured;
        let (mut cpu, mut events, mut seconds) = (Duration::ZERO, 0, 0);
        let mut second = |ceiling: &mut Ceiling, percent: u64, hits: u64| {
            seconds += 1;
            cpu += Duration::from_millis(percent * 10);
            events += hits;
            let stepped = ceiling.measure(begin + Duration::from_secs(seconds), cpu, events);
            (stepped.map(|s| s.is_down), ceiling.one_in())
        };
        assert_eq!(second(&mut ceiling, 40, 900), (None, 1));
        assert_eq!(second(&mut ceiling, 60, 900), (Some(true), 10));
        assert_eq!(second(&mut ceiling, 10, 1_100), (Some(true), 100));
        assert_eq!(second(&mut ceiling, 60, 0), (Some(true), 0));
        assert_eq!(second(&mut ceiling, 60, 0), (None, 0));
        for _ in 0..3 {
            assert_eq!(second(&mut ceiling, 1, 1), (None, 0));
        }
        assert_eq!(second(&mut ceiling, 1, 1), (Some(false), 100));
        // Neither low nor too much: as it is.
        for _ in 0..5 {
            assert_eq!(second(&mut ceiling, 30, 1), (None, 100));
        }
        for expected in [(None, 100), (None, 100), (None, 100), (Some(false), 10)] {
            assert_eq!(second(&mut ceiling, 1, 1), expected);
        }
    }

    #[test]
    fn without_limits_all_is_recorded() {
        let mut ceiling = Ceiling::new(CeilingLimits::default(), 0).unwrap();
        let later = ceiling.measured + Duration::from_secs(1);
        assert_eq!(
            ceiling.measure(later, Duration::from_secs(9), 1 << 40),
            None
        );
        assert_eq!(ceiling.one_in(), 1);
    }

    #[test]
    fn what_it_took_to_begin_is_no_load() {
        let mut ceiling = Ceiling::new(
            CeilingLimits {
                cpu_percent: Some(50),
                events: None,
                recovery: Duration::from_secs(30),
            },
            0,
        )
        .unwrap();
        let second = |n| Instant::now() + Duration::from_secs(n);
        ceiling.begin_at(Duration::from_secs(7), 0);
        assert_eq!(
            ceiling.measure(second(1), Duration::from_millis(7100), 0),
            None
        );
        assert!(
            ceiling
                .measure(second(2), Duration::from_millis(7900), 0)
                .is_some()
        );
    }

    #[test]
    fn threads_are_told_by_their_names() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
        let start = |name: &str| {
            let (tell, told) = std::sync::mpsc::channel();
            let ended = ended.clone();
            let run = move || {
                // SAFETY: asks who we are.
                tell.send(unsafe { libc::gettid() }).unwrap();
                let _ = ended.lock().unwrap().recv();
            };
            std::thread::Builder::new()
                .name(name.into())
                .spawn(run)
                .unwrap();
            told.recv().unwrap()
        };
        let (answers, works) = (start("answers"), start("works"));
        let found = threads_besides(&["answers"]);
        assert!(
            found.contains(&works) && !found.contains(&answers),
            "{found:?}"
        );
        drop(end);
    }

    #[test]
    fn the_cpu_time_of_two_processes_is_known() {
        assert!(cpu_time(&[std::process::id()]) > Duration::ZERO);
        assert!(cpu_time(&[0]) > Duration::ZERO);
        let of = |tv_sec, tv_nsec| time_of(libc::timespec { tv_sec, tv_nsec });
        assert_eq!(of(-34_560_000, 5), Duration::ZERO);
        assert_eq!(of(1, -5), Duration::ZERO);
        assert_eq!(of(1, 5), Duration::new(1, 5));
    }

    #[test]
    fn a_page_that_two_processes_have_counts_once() {
        const SHARED: usize = 128 << 20;
        let pages = vec![1u8; SHARED];
        let before = memory(&[]);
        // SAFETY: the child calls nothing but what may be called after a fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: takes nothing.
                unsafe { libc::pause() };
            }
        }
        let both = memory(&[child as u32]);
        // SAFETY: our own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(before >= std::hint::black_box(&pages).len() as u64);
        assert!(both < before + SHARED as u64 * 3 / 4, "{before}, {both}");
        assert_eq!(memory_of("none"), 0);
    }
}
