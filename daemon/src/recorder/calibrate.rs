//! What one probe hit costs on this machine: measured once for each kernel, processor and kind of trace, then kept in the cache folder.

use std::{arch::global_asm, fs, path::Path, time::Instant};

use nodeprof_bpf::{Programs, SelfProbe};

use crate::machine::labels;

// Two sites of the kind that V8's call sites are: an instruction that the kernel emulates (`nop`).
global_asm!(
    ".globl nodeprof_calibration_enter",
    ".globl nodeprof_calibration_exit",
    "nodeprof_calibration_enter:",
    "nop",
    "nodeprof_calibration_exit:",
    "nop",
    "ret",
);

unsafe extern "C" {
    fn nodeprof_calibration_enter();
    fn nodeprof_calibration_exit();
}

/// An address of this program that only a calibration executes.
pub fn idle_address() -> u64 {
    nodeprof_calibration_enter as *const () as u64
}

/// Calls in one round. At some 0.5 µs a hit a round takes about 2 ms.
const CALLS: u32 = 2_000;
/// Rounds; the median counts.
const ROUNDS: usize = 7;

/// Nanoseconds of one hit of an entry probe, record included; `None` if it cannot be measured here.
pub fn ns_per_hit(cache: Option<&Path>, programs: &Programs) -> Option<f64> {
    let of: Vec<String> = labels().into_iter().map(|(_, value)| value).collect();
    let of = of.join(", ");
    let file = cache.map(|c| c.join(format!("ns-per-hit-{}", programs.at_hit())));
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
    let bare = median_round();
    let sites = [
        nodeprof_calibration_enter as *const () as u64,
        nodeprof_calibration_exit as *const () as u64,
    ];
    let probe = SelfProbe::attach(programs, sites).ok()?;
    let probed = median_round();
    drop(probe);
    // Two probes in each call.
    Some(((probed - bare) / f64::from(CALLS) / 2.0).max(1.0))
}

/// Median nanoseconds of a round.
fn median_round() -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..CALLS {
                // SAFETY: two nops and a return.
                unsafe { nodeprof_calibration_enter() };
            }
            begun.elapsed().as_nanos() as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
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
