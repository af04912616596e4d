//! What one probe hit costs on this machine: measured once for each kernel, processor and kind of trace, then kept in the cache folder.

use std::{arch::global_asm, fs, path::Path};

use nodeprof_bpf::{Programs, SelfProbe};

use crate::machine::labels;

// Two sites of the kind that V8's call sites are: an instruction that the kernel emulates (`nop`). They lie in as many calls (the second argument) as a
// walk on a start of express looks at, each with a frame; the outermost frame of all is the first argument.
global_asm!(
    ".globl nodeprof_calibration",
    ".globl nodeprof_calibration_enter",
    ".globl nodeprof_calibration_exit",
    "nodeprof_calibration:",
    "push rbp",
    "mov rbp, rdi",
    "call 2f",
    "pop rbp",
    "ret",
    "2:",
    "push rbp",
    "mov rbp, rsp",
    "dec esi",
    "jz nodeprof_calibration_enter",
    "call 2b",
    "pop rbp",
    "ret",
    "nodeprof_calibration_enter:",
    "nop",
    "nodeprof_calibration_exit:",
    "nop",
    "pop rbp",
    "ret",
);

unsafe extern "C" {
    fn nodeprof_calibration(outermost: *const Outermost, frames: u32);
    fn nodeprof_calibration_enter();
    fn nodeprof_calibration_exit();
}

/// The frame of a function that was called with an empty frame pointer, and where the stack begins. Without it a walk would look for one in all of nodeprof's
/// stack, which takes 15 times as long as a walk in node.
#[repr(C, align(16))]
struct Outermost {
    saved: u64,
    caller: u64,
    stack_start: u64,
}

/// Frames of a call, with the outermost one 9: so many most walks of a start of express look at (docs/benchmarks.md). None is node's, so each walk finds
/// them anew, as one does that meets other functions than the one before.
const FRAMES: u32 = 8;

/// An address of this program that only a calibration executes.
pub fn idle_address() -> u64 {
    nodeprof_calibration_enter as *const () as u64
}

/// Calls in one round. At some 0.5 µs a hit a round takes about 0.3 ms: less than what the scheduler gives a thread at a time.
const CALLS: u32 = 300;
/// Rounds; the median counts.
const ROUNDS: usize = 31;

/// Nanoseconds of one hit of an entry probe, record included; `None` if it cannot be measured here.
pub fn ns_per_hit(cache: Option<&Path>, programs: &Programs) -> Option<f64> {
    let of: Vec<String> = labels().into_iter().map(|(_, value)| value).collect();
    let of = of.join(", ");
    let file = cache.map(|c| c.join(format!("cost-of-a-hit-{}", programs.at_hit())));
    if let Some(known) = file
        .as_ref()
        .and_then(|f| read(&fs::read_to_string(f).ok()?, &of))
    {
        return Some(known);
    }
    let measured = measure(programs)?;
    if let Some(file) = file {
        let _ = fs::write(file, format!("{measured}\n{of}"));
    }
    Some(measured)
}

/// The kept figure, if it was measured on this machine.
fn read(text: &str, machine: &str) -> Option<f64> {
    let (figure, of) = text.split_once('\n')?;
    let figure: f64 = figure.parse().ok()?;
    (of == machine && figure.is_finite() && figure > 0.0).then_some(figure)
}

fn measure(programs: &Programs) -> Option<f64> {
    let outermost = Outermost {
        saved: 0,
        caller: nodeprof_calibration as *const () as u64,
        stack_start: 0,
    };
    let bare = median_round(&outermost);
    let sites = [
        nodeprof_calibration_enter as *const () as u64,
        nodeprof_calibration_exit as *const () as u64,
    ];
    let stack_start = &raw const outermost.stack_start as u64;
    let probe = SelfProbe::attach(programs, sites, stack_start).ok()?;
    let probed = median_round(&outermost);
    drop(probe);
    // Two probes in each call.
    Some(((probed - bare) / f64::from(CALLS) / 2.0).max(1.0))
}

/// Median of the processor time of a round, in nanoseconds. By a wall clock what other programs ran meanwhile would be in it, and the figure is kept.
fn median_round(outermost: &Outermost) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = processor_time();
            for _ in 0..CALLS {
                // SAFETY: calls of its own, two nops and returns; it reads nothing of the frame.
                unsafe { nodeprof_calibration(outermost, FRAMES) };
            }
            processor_time() - begun
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// What this thread has run so far, in nanoseconds.
fn processor_time() -> f64 {
    super::read_clock(libc::CLOCK_THREAD_CPUTIME_ID) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_of_another_machine_or_a_damaged_one_is_not_used() {
        assert_eq!(read("512.5\nLinux A", "Linux A"), Some(512.5));
        assert_eq!(read("512.5\nLinux A", "Linux B"), None);
        assert_eq!(read("NaN\nLinux A", "Linux A"), None);
        assert_eq!(read("-1\nLinux A", "Linux A"), None);
        assert_eq!(read("", "Linux A"), None);
    }
}
