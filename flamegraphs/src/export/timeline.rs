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
/// A wait can lie within the time that a sample stands for: after it there is a step back to the sample, of no value.
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
    let mut sample: Option<&Entry> = None;
    for (index, entry) in entries.iter().enumerate() {
        // Samples come by a clock that trembles: a short pause between two is none. Waits begin and end when they say.
        let waits = is_wait(entry);
        let own = match waits {
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
        let ends = end_of(entry);
        end = ends.max(end);
        if !waits {
            sample = Some(entry);
        } else if let Some(around) = sample
            && ends < end_of(around)
            && (entries.get(index + 1)).is_none_or(|next| ends < next.at.0)
        {
            steps.push(Step {
                at: ends,
                node: Some(around.node),
                value: 0,
            });
            tremble = around.duration.0 / 2;
        }
    }
    (steps, end)
}

fn end_of(entry: &Entry) -> u64 {
    entry.at.0.saturating_add(entry.duration.0)
}

#[cfg(test)]
mod tests {
    use nodeprof_profile::recording::Nanoseconds;

    use super::*;

    fn entry(at: u64, duration: u64, node: u32) -> Entry {
        Entry {
            at: Nanoseconds(at),
            duration: Nanoseconds(duration),
            value: duration,
            node,
        }
    }

    #[test]
    fn after_a_wait_within_a_sample_there_is_a_step_back_to_it() {
        // Two waits within a sample, of which the second follows the first at once, and one that outlasts the next sample.
        let entries = [
            entry(1_000, 1_000, 1),
            entry(1_100, 50, 7),
            entry(1_300, 50, 8),
            entry(1_350, 50, 7),
            entry(2_100, 1_000, 2),
            entry(2_900, 300, 8),
            entry(4_000, 10, 3),
        ];
        let (steps, end) = steps_of(&entries, |entry| entry.node >= 7);
        let step = |at, node, value| Step { at, node, value };
        assert_eq!(
            steps,
            [
                step(1_000, Some(1), 1_000),
                step(1_100, Some(7), 50),
                step(1_150, Some(1), 0),
                step(1_300, Some(8), 50),
                step(1_350, Some(7), 50),
                step(1_400, Some(1), 0),
                // From 2,000 on it is a tremble of samples.
                step(2_100, Some(2), 1_000),
                step(2_900, Some(8), 300),
                step(3_200, None, 0),
                step(4_000, Some(3), 10),
            ]
        );
        assert_eq!(end, 4_010);
    }

    #[test]
    fn a_pause_is_a_step_to_nothing_and_a_tremble_is_none() {
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
