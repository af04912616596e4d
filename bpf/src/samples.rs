//! The clocks of CPU samples: one perf event on each CPU.

use std::{
    fs, io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

/// Why no CPU samples can be taken.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The kernel refused a clock.
    #[error(
        "perf_event_open of the software clock of CPU {cpu} failed ({error}); needed: CAP_PERFMON; type: sudo nodeprof …"
    )]
    Open {
        /// Its number.
        cpu: u32,
        /// What the kernel said.
        error: io::Error,
    },
    /// The kernel refused the program on a clock.
    #[error(
        "the kernel refused to run nodeprof's program at the ticks of a clock ({0}); see: nodeprof doctor"
    )]
    Attach(String),
}

/// Time between two ticks; 0 for no ticks.
pub(crate) fn period_ns(hz: u32) -> u64 {
    1_000_000_000u64.checked_div(u64::from(hz)).unwrap_or(0)
}

/// A running clock on each CPU that is online.
pub(crate) fn clocks(hz: u32) -> Result<Vec<OwnedFd>, SampleError> {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let mut clocks = Vec::new();
    for cpu in parse_list(&online) {
        match clock(cpu, hz) {
            Ok(clock) => clocks.push(clock),
            // It went offline meanwhile.
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(SampleError::Open { cpu, error }),
        }
    }
    Ok(clocks)
}

/// `struct perf_event_attr` of linux/perf_event.h, as far as its first version (64 bytes) goes.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK.
const SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
/// PERF_FLAG_FD_CLOEXEC.
const CLOSE_ON_EXEC: u64 = 8;

fn clock(cpu: u32, hz: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: CPU_CLOCK,
        sample_period: period_ns(hz),
        sample_type: 0,
        read_format: 0,
        flags: 0,
        wakeup_events: 0,
        breakpoint_type: 0,
        config1: 0,
    };
    // SAFETY: a live struct of the size that it states; the other arguments are integers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            -1, // any process
            cpu,
            -1, // no group
            CLOSE_ON_EXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// The numbers of `0-3,5`.
fn parse_list(text: &str) -> Vec<u32> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_list("0\n"), [0]);
        assert_eq!(parse_list("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse_list(""), [0u32; 0]);
    }

    #[test]
    fn a_rate_is_a_period() {
        assert_eq!(period_ns(1000), 1_000_000);
        assert_eq!(period_ns(0), 0);
        assert_eq!(size_of::<Attributes>(), 64);
    }
}
