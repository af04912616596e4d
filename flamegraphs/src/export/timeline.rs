//! A thread's time, one stack after the other.

use crate::{
    fold::FrameKind,
    stacks::{Entry, Stacks},
};

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
pub(super) fn steps(stacks: &Stacks, entries: &[Entry]) -> (Vec<Step>, u64) {
    steps_of(entries, |entry| {
        let node = &stacks.nodes[entry.node as usize];
        stacks.frames[node.frame as usize].kind == FrameKind::Wait
    })
}

fn steps_of(entries: &[Entry], is_wait: impl Fn(&Entry) -> bool) -> (Vec<Step>, u64) {
    let mut steps = Vec::with_capacity(entries.len());
    let mut end = 0u64;
    // How much later than the last entry's end the next one is still taken to follow at once.
    let mut tremble = 0u64;
    for entry in entries {
        // Samples come by a clock that trembles: a short pause between two is none. Waits begin and end when they say.
        let own = match is_wait(entry) {
            true => 0,
            false => entry.duration.0 / 2,
        };
        if end > 0 && entry.at.0 > end.saturating_add(own.min(tremble)) {
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
        tremble = own;
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
        let seen = |entries: &[Entry], is_wait: &dyn Fn(&Entry) -> bool| {
            let (steps, end) = steps_of(entries, is_wait);
            let steps: Vec<_> = steps.iter().map(|step| (step.at, step.node)).collect();
            (steps, end)
        };
        let entries = [entry(100, 10, 1), entry(112, 10, 2), entry(200, 5, 3)];
        let steps = vec![(100, Some(1)), (112, Some(2)), (122, None), (200, Some(3))];
        assert_eq!(seen(&entries, &|_| false), (steps, 205));
        // A long wait does not make the pause before it short, nor a long one before a short one.
        let entries = [entry(0, 1, 1), entry(41, 100, 2), entry(150, 1, 3)];
        let steps = vec![
            (0, Some(1)),
            (1, None),
            (41, Some(2)),
            (141, None),
            (150, Some(3)),
        ];
        assert_eq!(seen(&entries, &|_| true), (steps.clone(), 151));
        assert_eq!(seen(&entries, &|entry| entry.node == 2), (steps, 151));
    }
}
