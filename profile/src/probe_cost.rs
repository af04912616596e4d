//! How much of a measured time is the probes' own.
//!
//! A probe that is hit inside a crossing lengthens it. The estimate of this share is the number of hits on the
//! crossing's thread between its enter and its exit, plus one for its own pair (half of the enter and half of the exit
//! lie inside), times the calibrated cost of a hit.

use crate::fast::Map;
use crate::recording::{CallbackId, CrossingKind, Nanoseconds, ProcessId, Recording, ThreadId};

/// Probe hits inside the timed crossings of each process, callback and kind.
pub(crate) type HitsInside = Map<(ProcessId, CallbackId, CrossingKind), u64>;

/// Instants of hits by thread.
#[derive(Default)]
struct Threads {
    index: Map<(ProcessId, ThreadId), usize>,
    last: Option<((ProcessId, ThreadId), usize)>,
    hits: Vec<Vec<u64>>,
}

impl Threads {
    fn index(&mut self, process: ProcessId, thread: ThreadId) -> usize {
        let key = (process, thread);
        match self.last {
            Some((last, index)) if last == key => index,
            _ => {
                let next = self.hits.len();
                let index = *self.index.entry(key).or_insert(next);
                if index == next {
                    self.hits.push(Vec::new());
                }
                self.last = Some((key, index));
                index
            }
        }
    }

    fn hit(
        &mut self,
        process: ProcessId,
        thread: ThreadId,
        start: Nanoseconds,
        duration: Option<Nanoseconds>,
    ) {
        let index = self.index(process, thread);
        self.hits[index].push(start.0);
        if let Some(duration) = duration {
            self.hits[index].push(start.0.saturating_add(duration.0));
        }
    }
}

/// Counts, for every timed crossing, the hits of its thread that fall into it.
pub(crate) fn hits_inside_crossings(recording: &Recording) -> HitsInside {
    let mut threads = Threads::default();
    for event in &recording.crossings {
        threads.hit(event.process, event.thread, event.start, event.duration);
    }
    for event in &recording.lookups {
        threads.hit(event.process, event.thread, event.at, None);
    }
    for event in &recording.files {
        let duration = Some(event.duration);
        threads.hit(event.process, event.thread, event.start, duration);
    }
    for event in &recording.serializations {
        threads.hit(event.process, event.thread, event.start, event.duration);
    }
    for event in &recording.compilations {
        threads.hit(event.process, event.thread, event.start, event.duration);
    }
    for event in &recording.spans {
        threads.hit(event.process, event.thread, event.start, event.duration);
    }
    for hits in &mut threads.hits {
        hits.sort_unstable();
    }

    let mut inside = HitsInside::default();
    let mut positions = vec![0; threads.hits.len()];
    for crossing in &recording.crossings {
        let Some(duration) = crossing.duration else {
            continue;
        };
        let thread = threads.index(crossing.process, crossing.thread);
        let hits = &threads.hits[thread];
        let end = crossing.start.0.saturating_add(duration.0);
        // Events come nearly in order of time, so the next crossing begins close to the last one.
        let from = partition_near(hits, positions[thread], |&at| at <= crossing.start.0);
        let to = partition_near(hits, from, |&at| at < end);
        positions[thread] = from;
        let own = 1;
        let hits = inside
            .entry((crossing.process, crossing.callback, crossing.kind))
            .or_default();
        *hits = hits.saturating_add(to.saturating_sub(from) as u64 + own);
    }
    inside
}

/// `partition_point`, searching outwards from `near`: constant time if the answer is near.
fn partition_near(sorted: &[u64], near: usize, before: impl Fn(&u64) -> bool) -> usize {
    let mut step = 1;
    if sorted.get(near).is_some_and(&before) {
        let mut low = near + 1;
        while sorted.get(low + step).is_some_and(&before) {
            low += step + 1;
            step *= 2;
        }
        let high = (low + step).min(sorted.len());
        low + sorted[low.min(high)..high].partition_point(before)
    } else {
        let mut high = near.min(sorted.len());
        while high > step && !before(&sorted[high - step]) {
            high -= step;
            step *= 2;
        }
        let low = high.saturating_sub(step);
        low + sorted[low..high].partition_point(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searching_near_any_position_finds_the_partition_point() {
        for length in 0..40u64 {
            let sorted: Vec<u64> = (0..length).map(|at| at / 2 * 3).collect();
            for limit in 0..=length * 2 {
                let expected = sorted.partition_point(|&at| at < limit);
                for near in 0..=sorted.len() {
                    let found = partition_near(&sorted, near, |&at| at < limit);
                    assert_eq!(found, expected, "{sorted:?} < {limit} from {near}");
                }
            }
        }
    }
}
