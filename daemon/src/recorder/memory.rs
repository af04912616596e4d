//! The private dirty memory of a process: pages that it has written and nobody shares. They would be free if it ended.

use std::fs;

use nodeprof_bpf::stat_field;

/// Private dirty pages of all mappings, in bytes (`smaps_rollup`, Linux 4.14+); `None` if the process is gone or may not be read.
///
/// Without the clean ones, which are pages of files: those that nobody else maps just then, so that the sum (the unique set size) of one
/// `node -e 0` is 38 MB while it runs alone, and 6 MB beside another one. And without those of files that are not written back to the disk yet, which
/// the kernel calls dirty whoever has written them: 30 MB more for half a minute after the binary was installed, always on a tmpfs. What a process writes of
/// a file of its own (`MAP_PRIVATE`) is anonymous. (So is what it shares with a child that it has forked, which is not private.)
///
/// The kernel holds the process's `mmap_lock` meanwhile (0.4 ms for 40 MB): the process waits at its next mmap or munmap.
pub fn private_dirty(pid: u32) -> Option<u64> {
    undisturbed(|| {
        private_dirty_bytes(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
    })
}

/// Whether the main thread of a process waits for something.
pub fn is_asleep(pid: u32) -> bool {
    const STATE: usize = 3;
    stat_field(pid, STATE).is_some_and(|state| state == "S")
}

/// Does something that the traced program may have to wait for: no other process shall take the processor
/// meanwhile. On a busy machine that lengthened a start of 25 ms by milliseconds. Without the right to it
/// (CAP_SYS_NICE) it is done as it is.
fn undisturbed<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: plain system calls on live structs, about the calling thread; a failure changes nothing.
    unsafe {
        let mut before: libc::sched_param = std::mem::zeroed();
        let policy = libc::sched_getscheduler(0);
        let first = libc::sched_param { sched_priority: 1 };
        let raised = [libc::SCHED_OTHER, libc::SCHED_IDLE].contains(&policy)
            && libc::sched_getparam(0, &mut before) == 0
            && libc::sched_setscheduler(0, libc::SCHED_FIFO, &first) == 0;
        let result = act();
        if raised {
            libc::sched_setscheduler(0, policy, &before);
        }
        result
    }
}

fn private_dirty_bytes(rollup: &str) -> Option<u64> {
    let bytes = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kilobytes * 1024)
    };
    let dirty = bytes("Private_Dirty:")?;
    Some(bytes("Anonymous:").map_or(dirty, |anonymous| dirty.min(anonymous)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn dirty_private_pages_count_and_clean_ones_do_not() {
        let text = "Rss:  9 kB\nShared_Clean:  5 kB\nPrivate_Clean:     2 kB\nPrivate_Dirty:     3 kB\nSwap: 0 kB\n";
        assert_eq!(private_dirty_bytes(text), Some(3 * 1024));
        let with = |anonymous| format!("{text}Anonymous: {anonymous} kB\n");
        assert_eq!(private_dirty_bytes(&with(2)), Some(2 * 1024), "a file's");
        assert_eq!(
            private_dirty_bytes(&with(4)),
            Some(3 * 1024),
            "a child's, too"
        );
        assert_eq!(private_dirty_bytes(""), None);
        assert_eq!(private_dirty_bytes("Private_Dirty: many kB"), None);
    }

    #[test]
    fn one_that_waits_is_asleep_until_it_ends() {
        let mut waits = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let asleep = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_asleep(waits.id())
        });
        waits.kill().unwrap();
        waits.wait().unwrap();
        assert!(asleep);
        assert!(!is_asleep(waits.id()));
    }

    #[test]
    fn a_process_that_is_gone_has_none() {
        assert_eq!(private_dirty(u32::MAX - 1), None);
        assert!(private_dirty(std::process::id()).is_some_and(|b| b > 100_000));
    }
}
