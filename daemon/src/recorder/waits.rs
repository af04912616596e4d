//! Why a thread did not run.

use nodeprof_bpf::WaitRecord;
use nodeprof_profile::recording::{CrossingKind, Recording, RunId, WaitReason};

/// System calls in which a thread waits for something that is no file, by their x86-64 numbers (asm/unistd_64.h).
fn reason_of_syscall(number: u16) -> Option<WaitReason> {
    Some(match number {
        // poll, select, pause, nanosleep, rt_sigtimedwait, rt_sigsuspend, clock_nanosleep, epoll_wait, pselect6,
        // ppoll, epoll_pwait, epoll_pwait2
        7 | 23 | 34 | 35 | 128 | 130 | 230 | 232 | 270 | 271 | 281 | 441 => WaitReason::Idle,
        // futex, futex_waitv, futex_wait
        202 | 449 | 455 => WaitReason::Lock,
        // clone, fork, vfork, wait4, waitid, clone3
        56 | 57 | 58 | 61 | 247 | 435 => WaitReason::Child,
        _ => return None,
    })
}

/// System calls that read, write, look up or map files (or pipes and sockets), by their x86-64 numbers.
fn is_of_files(number: u16) -> bool {
    matches!(number,
        // read … poll is not; lseek, mmap, mprotect, munmap, pread64 … access, pipe
        0..=6 | 8..=9 | 11 | 17..=22
        // sendfile … recvmsg, execve
        | 40 | 43..=48 | 59
        // fcntl, flock, fsync … chown, lchown, umask is not
        | 72..=94
        // getdents64, openat … splice, sync_file_range, preadv … renameat2, statx, execveat, openat2, faccessat2
        | 217 | 257..=269 | 275..=278 | 285 | 288 | 295..=296 | 299 | 306 | 316 | 322 | 326..=328
        | 332 | 437 | 439
        // io_uring_enter: libuv's file operations
        | 426)
}

/// The reason of a wait, by what the kernel tells of it.
pub fn reason(wait: &WaitRecord) -> WaitReason {
    if wait.preempted {
        return WaitReason::Preempted;
    }
    if wait.fault {
        // Without the disk it waits for the address space, which another thread changes.
        return if wait.disk {
            WaitReason::PageFault
        } else {
            WaitReason::Lock
        };
    }
    match wait.syscall {
        Some(number) => match reason_of_syscall(number) {
            Some(reason) => reason,
            None if wait.disk || is_of_files(number) => WaitReason::File,
            None => WaitReason::Other,
        },
        None => WaitReason::Other,
    }
}

/// The binding of `child_process.spawnSync` and its like.
const SPAWN_SYNC: &str = "sync_process_runner";

/// `spawnSync` waits for its child in an event loop of its own: by the system call alone that looks idle.
pub fn tell_children(recording: &mut Recording, run: RunId) {
    let spawns: Vec<_> = recording
        .crossings
        .iter()
        .filter(|c| c.kind != CrossingKind::ToJs)
        .filter(|c| {
            let callback = recording.callbacks.get(c.callback.0 as usize);
            callback.is_some_and(|c| c.binding == SPAWN_SYNC)
        })
        .map(|c| {
            let end = c
                .duration
                .map_or(u64::MAX, |d| c.start.0.saturating_add(d.0));
            (c.process, c.thread, c.start.0..end)
        })
        .collect();
    for wait in &mut recording.waits {
        let of_run = recording.processes.get(wait.process.0 as usize);
        let inside = spawns.iter().any(|(process, thread, span)| {
            (*process, *thread) == (wait.process, wait.thread) && span.contains(&wait.start.0)
        });
        if inside && wait.reason == WaitReason::Idle && of_run.is_some_and(|p| p.run == run) {
            wait.reason = WaitReason::Child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(syscall: Option<u16>) -> WaitRecord {
        WaitRecord {
            duration: 10,
            runnable: 0,
            syscall,
            preempted: false,
            fault: false,
            disk: false,
            ip: 0,
        }
    }

    #[test]
    fn a_wait_is_told_by_the_system_call_it_is_in() {
        for (number, expected) in [
            (libc::SYS_read, WaitReason::File),
            (libc::SYS_openat, WaitReason::File),
            (libc::SYS_statx, WaitReason::File),
            (libc::SYS_execve, WaitReason::File),
            (libc::SYS_mmap, WaitReason::File),
            (libc::SYS_epoll_wait, WaitReason::Idle),
            (libc::SYS_epoll_pwait, WaitReason::Idle),
            (libc::SYS_clock_nanosleep, WaitReason::Idle),
            (libc::SYS_futex, WaitReason::Lock),
            (libc::SYS_wait4, WaitReason::Child),
            (libc::SYS_vfork, WaitReason::Child),
            (libc::SYS_exit_group, WaitReason::Other),
            (libc::SYS_madvise, WaitReason::Other),
        ] {
            assert_eq!(reason(&wait(Some(number as u16))), expected, "{number}");
        }
    }

    #[test]
    fn a_fault_and_a_preemption_are_told_apart_from_system_calls() {
        let mut fault = wait(None);
        assert_eq!(reason(&fault), WaitReason::Other);
        fault.fault = true;
        assert_eq!(reason(&fault), WaitReason::Lock);
        fault.disk = true;
        assert_eq!(reason(&fault), WaitReason::PageFault);
        fault.preempted = true;
        assert_eq!(reason(&fault), WaitReason::Preempted);
    }
}
