//! What lay in ranges of addresses, at any instant: found as fast after a million changes as after ten, for a program that is traced may make as many.

use std::rc::Rc;

/// So many changes are looked through one by one.
const FEW: usize = 64;

/// A change of a range of addresses.
#[derive(Clone, Copy, Debug)]
struct Change<T> {
    at: u64,
    start: u64,
    end: u64,
    to: T,
}

/// All changes, in the order of time. Its copies share what they have in common.
#[derive(Clone, Debug)]
pub struct History<T> {
    /// The last ones.
    last: Vec<Change<T>>,
    /// Those before, each block with fewer changes than the one before it.
    blocks: Vec<Rc<Block<T>>>,
    /// When the last one was.
    at: u64,
}

impl<T> Default for History<T> {
    fn default() -> History<T> {
        History {
            last: Vec::new(),
            blocks: Vec::new(),
            at: 0,
        }
    }
}

impl<T: Copy> History<T> {
    /// From `at` on this lies in the range. What is told late is taken for what is told then.
    pub fn change(&mut self, at: u64, (start, end): (u64, u64), to: T) {
        if start >= end {
            return;
        }
        self.at = self.at.max(at);
        let at = self.at;
        self.last.push(Change { at, start, end, to });
        if self.last.len() < FEW {
            return;
        }
        // Each change is in as many blocks in its life as a number of its size has bits.
        let mut changes = std::mem::take(&mut self.last);
        while let Some(block) = self.blocks.pop_if(|b| b.changes.len() <= changes.len()) {
            changes = [&*block.changes, &*changes].concat();
        }
        self.blocks.push(Rc::new(Block::new(changes)));
    }

    /// What was told last of an address up to this instant.
    pub fn find(&self, address: u64, at: u64) -> Option<T> {
        let told = |c: &&Change<T>| c.at <= at && (c.start..c.end).contains(&address);
        let blocks = || self.blocks.iter().rev();
        (self.last.iter().rev().find(told))
            .or_else(|| blocks().find_map(|block| block.find(address, at)))
            .map(|change| change.to)
    }
}

/// Changes with a tree over the ranges that their ends divide the addresses into. Each change is at the few nodes that its own range is made of.
#[derive(Debug)]
struct Block<T> {
    changes: Vec<Change<T>>,
    /// Where ranges begin, and where the last one ends.
    ends: Vec<u64>,
    /// The root is at 1, the nodes below one are at twice its place; the last half are the ranges. Each has changes, in the order of time.
    nodes: Vec<Vec<u32>>,
}

impl<T> Block<T> {
    fn new(changes: Vec<Change<T>>) -> Block<T> {
        let mut ends: Vec<u64> = changes.iter().flat_map(|c| [c.start, c.end]).collect();
        ends.sort_unstable();
        ends.dedup();
        let leaves = ends.len().next_power_of_two();
        let mut nodes = vec![Vec::new(); 2 * leaves];
        for (index, change) in (0..).zip(&changes) {
            let leaf = |address| leaves + ends.partition_point(|end| *end < address);
            let (mut from, mut to) = (leaf(change.start), leaf(change.end));
            while from < to {
                if from % 2 == 1 {
                    nodes[from].push(index);
                    from += 1;
                }
                if to % 2 == 1 {
                    to -= 1;
                    nodes[to].push(index);
                }
                (from, to) = (from / 2, to / 2);
            }
        }
        Block {
            changes,
            ends,
            nodes,
        }
    }

    fn find(&self, address: u64, at: u64) -> Option<&Change<T>> {
        let range = self.ends.partition_point(|end| *end <= address);
        let mut node = self.nodes.len() / 2 + range.checked_sub(1)?;
        let mut found = None;
        while node > 0 {
            let all = self.nodes.get(node)?;
            let told = |index: &u32| {
                self.changes
                    .get(*index as usize)
                    .is_some_and(|c| c.at <= at)
            };
            let last = all.partition_point(told).checked_sub(1);
            found = found.max(last.and_then(|last| all.get(last)).copied());
            node /= 2;
        }
        self.changes.get(found? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_what_was_told_last() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut history = History::default();
        let mut all = Vec::new();
        let mut copy = None;
        for number in 0..2_000u64 {
            let (start, at) = (next(500), number / 3);
            let end = start + next(60);
            history.change(at, (start, end), number);
            all.push((at, start, end, number));
            if number == 700 {
                copy = Some(history.clone());
            }
        }
        let expected = |all: &[(u64, u64, u64, u64)], address, at| {
            let mut all = all.iter().rev();
            let told = all.find(|c| c.0 <= at && (c.1..c.2).contains(&address));
            told.map(|change| change.3)
        };
        let copy = copy.expect("made");
        for _ in 0..20_000 {
            let (address, at) = (next(600), next(700));
            assert_eq!(history.find(address, at), expected(&all, address, at));
            assert_eq!(copy.find(address, at), expected(&all[..=700], address, at));
        }
    }
}
