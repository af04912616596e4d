//! A thread's time, one stack after the other.

use crate::stacks::Entry;

/// From `at` on this stack was there; `None`: nothing was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// ns on CLOCK_MONOTONIC.
    pub(super) at: u64,
    pub(super) node: Option<u32>,
    pub(super) value: u64,
}

/// Samples and waits in order of time, with a step to nothing where there is a pause; and when it all ends.
///
/// Consumers let each step last until the next one.
pub(super) fn steps(entries: &[Entry]) -> (Vec<Step>, u64) {
    let mut steps = Vec::with_capacity(entries.len());
    let mut end = 0u64;
    for entry in entries {
        // Samples come by a clock that trembles: a short pause between two is none.
        if end > 0 && entry.at.0 > end.saturating_add(entry.duration.0 / 2) {
            steps.push(Step {
                at: end,
                node: None,
                value: 0,
            });
        }
        steps.push(Step {
            at: entry
                .at
                .0
                .max(steps.last().map_or(0, |step: &Step| step.at)),
            node: Some(entry.node),
            value: entry.value,
        });
        end = entry.at.0.saturating_add(entry.duration.0).max(end);
    }
    (steps, end)
}

#[cfg(test)]
mod tests {
    use nodeprof_profile::recording::Nanoseconds;

    use super::*;

    #[test]
    fn a_pause_is_a_step_to_nothing_and_a_tremble_is_none() {
        let entry = |at, duration, node| Entry {
            at: Nanoseconds(at),
            duration: Nanoseconds(duration),
            value: duration,
            node,
        };
        let entries = [entry(100, 10, 1), entry(112, 10, 2), entry(200, 5, 3)];
        let (steps, end) = steps(&entries);
        let seen: Vec<_> = steps.iter().map(|step| (step.at, step.node)).collect();
        assert_eq!(
            seen,
            [(100, Some(1)), (112, Some(2)), (122, None), (200, Some(3))]
        );
        assert_eq!(end, 205);
    }
}
