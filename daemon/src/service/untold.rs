//! Starts of which somebody must tell, and has not yet: so that none is neither recorded nor lost.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// What is known of such a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Count mode has left it to full mode.
    LeftToFull,
    /// One mode came too late to ask whether it is to be recorded; the other one may have it.
    Unasked,
    /// Count mode could not record it, for this reason, at a time when full mode may have it as well.
    Failed(String),
    /// The holder was killed, or did not answer, while it waited for its probes; the next one may meet it.
    OfHolder,
}

impl Why {
    /// Whoever has it has told by then, or knows that it is recorded. Full mode that does not answer is ended after 10 s; what was left to it nobody else can have.
    const fn patience(&self) -> Duration {
        match self {
            Why::LeftToFull => Duration::from_secs(30),
            Why::Unasked | Why::Failed(_) => Duration::from_secs(10),
            Why::OfHolder => Duration::from_secs(5),
        }
    }

    /// Why it is lost, if nobody does.
    pub(super) fn words(&self) -> &str {
        match self {
            Why::Failed(why) => why,
            Why::LeftToFull => "count mode has left it to full mode, which has not told of it",
            Why::Unasked => {
                "node: it had ended before its probes came, or anybody could ask whether it is to be recorded"
            }
            Why::OfHolder => "the holder process ended before its probes came",
        }
    }
}

/// By process.
#[derive(Default)]
pub(super) struct Untold(HashMap<u32, (Why, Instant)>);

impl Untold {
    pub(super) fn add(&mut self, pid: u32, why: Why, now: Instant) {
        self.0.insert(pid, (why, now));
    }

    /// Somebody tells of it; why that was waited for.
    pub(super) fn take(&mut self, pid: u32) -> Option<Why> {
        self.0.remove(&pid).map(|(why, _)| why)
    }

    /// Those of which nobody has told in time.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<(u32, Why)> {
        self.extract(|why, since| now.duration_since(since) > why.patience())
    }

    /// Those of which full mode alone could have told.
    pub(super) fn of_full(&mut self) -> Vec<u32> {
        let all = self.extract(|why, _| *why != Why::OfHolder).into_iter();
        all.map(|(pid, _)| pid).collect()
    }

    fn extract(&mut self, which: impl Fn(&Why, Instant) -> bool) -> Vec<(u32, Why)> {
        let all = self.0.extract_if(|_, (why, since)| which(why, *since));
        all.map(|(pid, (why, _))| (pid, why)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_of_once_by_whoever_has_it_or_when_it_is_overdue() {
        let mut untold = Untold::default();
        let begun = Instant::now();
        untold.add(1, Why::LeftToFull, begun);
        untold.add(2, Why::OfHolder, begun);
        untold.add(3, Why::Unasked, begun);
        assert_eq!(untold.take(1), Some(Why::LeftToFull));
        assert_eq!(untold.take(1), None);
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(untold.overdue(after(4)), []);
        assert_eq!(untold.overdue(after(6)), [(2, Why::OfHolder)]);
        assert_eq!(untold.overdue(after(9)), []);
        assert_eq!(untold.overdue(after(11)), [(3, Why::Unasked)]);
        assert_eq!(untold.overdue(after(99)), []);
    }

    #[test]
    fn what_the_next_holder_may_meet_does_not_end_with_full_mode() {
        let mut untold = Untold::default();
        let now = Instant::now();
        untold.add(1, Why::LeftToFull, now);
        untold.add(2, Why::OfHolder, now);
        untold.add(3, Why::Unasked, now);
        let mut of_full = untold.of_full();
        of_full.sort_unstable();
        assert_eq!((of_full, untold.take(2)), (vec![1, 3], Some(Why::OfHolder)));
    }
}
