//! Stacks of threads that leave the CPU outside of system calls.
//!
//! Of such a wait the kernel's side knows the call around it only: to walk the stack there would take microseconds with the run queue locked. The clock's
//! samples are walked anyway, and one is next to most of these waits.

use std::collections::HashMap;

use nodeprof_profile::recording::{Nanoseconds, ProcessId, Recording, StackId, ThreadId, Wait};

/// So many times a sample's weight may lie between it and a wait: with one tick lost.
const NEAR: u64 = 2;

/// What a thread did around its waits.
#[derive(Default)]
struct Around {
    /// Instant, weight and stack.
    samples: Vec<(Nanoseconds, u64, StackId)>,
    /// When its calls began and ended.
    calls: Vec<Nanoseconds>,
}

impl Around {
    /// The stack of the sample next to a wait, with no call begun or ended between both.
    fn next_to(&self, wait: &Wait) -> Option<StackId> {
        let end = Nanoseconds(wait.start.0.saturating_add(wait.duration.0));
        let at = self.samples.partition_point(|(at, ..)| *at <= wait.start);
        let before = at.checked_sub(1).and_then(|index| self.samples.get(index));
        let before = before.map(|sample| (wait.start.0 - sample.0.0, sample, wait.start));
        let at = self.samples.partition_point(|(at, ..)| *at < end);
        let after = self.samples.get(at);
        let after = after.map(|sample| (sample.0.0 - end.0, sample, end));
        let near = [before, after].into_iter().flatten();
        near.filter(|(distance, (at, weight, _), edge)| {
            *distance <= NEAR.saturating_mul(*weight) && !self.calls_between(*at, *edge)
        })
        .min_by_key(|(distance, ..)| *distance)
        .map(|(_, (.., stack), _)| *stack)
    }

    fn calls_between(&self, one: Nanoseconds, other: Nanoseconds) -> bool {
        let (from, to) = (one.min(other), one.max(other));
        let at = self.calls.partition_point(|call| *call < from);
        self.calls.get(at).is_some_and(|call| *call <= to)
    }
}

fn is_outside_calls(wait: &Wait) -> bool {
    wait.syscall.is_none()
}

/// Gives them the stack of the sample next to them, where there is one; the others keep that of the call around them. Stacks are the recording's, and have no
/// frames of the kernel's yet.
pub fn find_stacks(recording: &mut Recording) {
    let mut threads: HashMap<(ProcessId, ThreadId), Around> = HashMap::new();
    for wait in recording.waits.iter().filter(|wait| is_outside_calls(wait)) {
        threads.entry((wait.process, wait.thread)).or_default();
    }
    for sample in &recording.samples {
        if let Some(around) = threads.get_mut(&(sample.process, sample.thread))
            && let Some(stack) = sample.stack
        {
            around.samples.push((sample.at, sample.weight.0, stack));
        }
    }
    for crossing in &recording.crossings {
        if let Some(around) = threads.get_mut(&(crossing.process, crossing.thread)) {
            let end = crossing
                .duration
                .map(|lasted| crossing.start.0.saturating_add(lasted.0));
            around.calls.push(crossing.start);
            around.calls.extend(end.map(Nanoseconds));
        }
    }
    for around in threads.values_mut() {
        around.samples.sort_by_key(|(at, ..)| *at);
        around.calls.sort_unstable();
    }
    for wait in recording
        .waits
        .iter_mut()
        .filter(|wait| is_outside_calls(wait))
    {
        let around = threads.get(&(wait.process, wait.thread));
        if let Some(stack) = around.and_then(|around| around.next_to(wait)) {
            wait.stack = Some(stack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeprof_profile::recording::{CallbackId, Crossing, CrossingKind, Sample, WaitReason};

    const OWN: StackId = StackId(7);
    const THREAD: (ProcessId, ThreadId) = (ProcessId(0), ThreadId(10));

    /// The stack of a wait from 1,000 to 2,000 ns, which was `OWN`, with samples of 100 ns that have their number as stack, and calls from an instant to another.
    fn stack_of(syscall: Option<u16>, samples: &[(u64, u32)], calls: &[(u64, u64)]) -> StackId {
        let mut recording = Recording::default();
        let (process, thread) = THREAD;
        recording.waits.push(Wait {
            process,
            thread,
            start: Nanoseconds(1_000),
            duration: Nanoseconds(1_000),
            runnable: Nanoseconds(1_000),
            reason: WaitReason::Preempted,
            syscall,
            stack: Some(OWN),
        });
        recording
            .samples
            .extend(samples.iter().map(|(at, stack)| Sample {
                process,
                thread,
                at: Nanoseconds(*at),
                weight: Nanoseconds(100),
                stack: Some(StackId(*stack)),
            }));
        recording
            .crossings
            .extend(calls.iter().map(|(start, end)| Crossing {
                process,
                thread,
                start: Nanoseconds(*start),
                duration: Some(Nanoseconds(end - start)),
                self_time: None,
                callback: CallbackId(0),
                parent: None,
                kind: CrossingKind::Slow,
                unfinished: false,
                stack: None,
            }));
        find_stacks(&mut recording);
        recording.waits[0].stack.unwrap()
    }

    #[test]
    fn a_wait_has_the_stack_of_the_sample_next_to_it() {
        let around = [(700, 1), (950, 2), (2_070, 3), (2_900, 4)];
        assert_eq!(stack_of(None, &around, &[]), StackId(2));
        assert_eq!(stack_of(None, &around[2..], &[]), StackId(3));
        // Too far away, or with a call between them.
        assert_eq!(stack_of(None, &[(799, 1), (2_201, 2)], &[]), OWN);
        assert_eq!(stack_of(None, &around, &[(960, 970)]), StackId(3));
        assert_eq!(stack_of(None, &around, &[(900, 970), (2_050, 3_000)]), OWN);
        // A call around both is none between them.
        assert_eq!(stack_of(None, &around, &[(100, 5_000)]), StackId(2));
        // What a system call is in is known.
        assert_eq!(stack_of(Some(202), &around, &[]), OWN);
    }
}
