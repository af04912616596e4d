//! Starts of which was told a moment ago.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use crate::recorder::Mode;

/// Starts of which one of the two modes has told, each of which may have it: before the exec where a rule asks for the command, and while count mode begins or ceases to
/// stand in for full mode.
pub(super) struct Told {
    by_process: HashMap<u32, (Mode, Instant)>,
    /// With so many those of long ago are forgotten.
    sweep_at: usize,
}

impl Default for Told {
    fn default() -> Told {
        Told {
            by_process: HashMap::new(),
            sweep_at: Told::FEW,
        }
    }
}

impl Told {
    /// The other mode has told by then.
    const MOMENT: Duration = Duration::from_secs(10);
    /// That are remembered in any case.
    const FEW: usize = 1 << 10;
    /// That are remembered at most: of more than 6,500 starts a second some may be told of twice.
    const MOST: usize = 1 << 16;

    /// Whether one of them has told of it.
    pub(super) fn has(&self, pid: u32, now: Instant) -> bool {
        let told = self.by_process.get(&pid);
        told.is_some_and(|(_, at)| is_recent(*at, now))
    }

    /// A mode tells of a start: whether the other one has told of it.
    pub(super) fn is_known(&mut self, pid: u32, mode: Mode, now: Instant) -> bool {
        if let Some((by, at)) = self.by_process.remove(&pid)
            && by != mode
            && is_recent(at, now)
        {
            return true;
        }
        self.note(pid, mode, now);
        false
    }

    /// The same where it does not matter whether the other one has told.
    pub(super) fn note(&mut self, pid: u32, mode: Mode, now: Instant) {
        if self.by_process.len() >= self.sweep_at {
            self.by_process.retain(|_, (_, at)| is_recent(*at, now));
            self.sweep_at = (self.by_process.len() * 2).clamp(Told::FEW, Told::MOST);
        }
        if self.by_process.len() < Told::MOST {
            self.by_process.insert(pid, (mode, now));
        }
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.duration_since(at) < Told::MOMENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_of_which_both_modes_tell_is_known_at_the_second_time() {
        let mut told = Told::default();
        let begun = Instant::now();
        let mut is_known =
            |pid, mode, seconds| told.is_known(pid, mode, begun + Duration::from_secs(seconds));
        assert!(!is_known(1, Mode::Count, 0) && is_known(1, Mode::Full, 1));
        // The number has come again.
        assert!(!is_known(1, Mode::Full, 2) && !is_known(1, Mode::Count, 20));
        assert!(!is_known(2, Mode::Full, 20) && !is_known(2, Mode::Full, 21));
        let has = |pid, seconds| told.has(pid, begun + Duration::from_secs(seconds));
        assert!(has(2, 25) && !has(2, 35) && !has(3, 25));
    }

    #[test]
    fn those_of_a_moment_are_remembered_and_not_more() {
        let mut told = Told::default();
        let begun = Instant::now();
        let mut note = |pids: std::ops::Range<usize>, seconds| {
            for pid in pids {
                told.note(
                    pid as u32,
                    Mode::Count,
                    begun + Duration::from_secs(seconds),
                );
            }
            told.by_process.len()
        };
        // All at once, then few a second.
        assert_eq!(note(0..Told::MOST + 5_000, 0), Told::MOST);
        assert_eq!(note(0..1, 20), 1);
        for seconds in 21..400 {
            let first = seconds as usize * 100;
            assert!(note(first..first + 100, seconds) <= 2_200, "{seconds}");
        }
        assert!(told.has(39_999, begun + Duration::from_secs(400)));
        assert!(told.has(39_150, begun + Duration::from_secs(400)));
    }
}
