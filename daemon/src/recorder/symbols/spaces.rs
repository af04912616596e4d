//! Address spaces: which file was mapped where, at any instant of the trace.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use super::{files::FileId, history::History};

/// A range of addresses and what lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Behind the last address.
    pub end: u64,
    /// Offset in the file of what lies at `start`.
    pub offset: u64,
    /// The file.
    pub file: FileId,
}

/// From an exec or fork on.
#[derive(Clone, Debug, Default)]
struct Space {
    since: u64,
    /// `None`: nothing that is known lies there any more.
    history: History<Option<Mapping>>,
    /// Where something lies after the last change, from and up to which address.
    mapped: Rc<BTreeMap<u64, u64>>,
}

impl Space {
    fn change(&mut self, at: u64, (start, end): (u64, u64), to: Option<Mapping>) {
        if start >= end {
            return;
        }
        self.history.change(at, (start, end), to);
        let mapped = Rc::make_mut(&mut self.mapped);
        // None of them lies in another, so the one with the last address has the last end, too.
        while let Some((&from, &up_to)) = mapped.range(..end).next_back()
            && up_to > start
        {
            mapped.remove(&from);
            if up_to > end {
                mapped.insert(end, up_to);
            }
            if from < start {
                mapped.insert(from, start);
            }
        }
        if to.is_some() {
            mapped.insert(start, end);
        }
    }

    fn is_mapped(&self, (start, end): (u64, u64)) -> bool {
        let last = self.mapped.range(..end).next_back();
        last.is_some_and(|(_, &up_to)| up_to > start)
    }
}

/// Where files were mapped in each process.
#[derive(Default)]
pub struct Spaces {
    /// By process id; one that was used again, or that executed, has several.
    spaces: HashMap<u32, Vec<Space>>,
}

impl Spaces {
    /// A process executed something: nothing of before is mapped any more.
    pub fn exec(&mut self, pid: u32, at: u64) {
        self.begin(pid, at, Space::default());
    }

    /// A process was forked: it has what its parent has.
    pub fn fork(&mut self, parent: u32, child: u32, at: u64) {
        let space = self.space_at(parent, at).cloned().unwrap_or_default();
        self.begin(child, at, space);
    }

    fn begin(&mut self, pid: u32, at: u64, space: Space) {
        let spaces = self.spaces.entry(pid).or_default();
        let since = spaces.last().map_or(at, |last| at.max(last.since));
        spaces.push(Space { since, ..space });
    }

    /// A file was mapped.
    pub fn map(&mut self, pid: u32, mapping: Mapping, at: u64) {
        let spaces = self.spaces.entry(pid).or_default();
        if spaces.is_empty() {
            spaces.push(Space::default());
        }
        if let Some(space) = spaces.last_mut() {
            space.change(at, (mapping.start, mapping.end), Some(mapping));
        }
    }

    /// What lay in a range lies there no more, but in another (from and up to which address; empty: nowhere).
    pub fn unmap(&mut self, pid: u32, range: (u64, u64), to: (u64, u64), at: u64) {
        let Some(space) = self.spaces.get_mut(&pid).and_then(|s| s.last_mut()) else {
            return;
        };
        if !space.is_mapped(range) {
            return;
        }
        let moved = space.history.find(range.0, at).flatten();
        space.change(at, range, None);
        if let Some(old) = moved.filter(|_| to.0 < to.1) {
            let mapping = Mapping {
                start: to.0,
                end: to.1,
                offset: (range.0 - old.start).saturating_add(old.offset),
                file: old.file,
            };
            space.change(at, to, Some(mapping));
        }
    }

    fn space_at(&self, pid: u32, at: u64) -> Option<&Space> {
        let spaces = self.spaces.get(&pid)?;
        let behind = spaces.partition_point(|space| space.since <= at);
        spaces.get(behind.checked_sub(1)?)
    }

    /// The file that lay at an address, and the offset in it.
    pub fn find(&self, pid: u32, address: u64, at: u64) -> Option<(FileId, u64)> {
        let space = self.space_at(pid, at)?;
        let mapping = space.history.find(address, at)??;
        let offset = (address - mapping.start).checked_add(mapping.offset)?;
        Some((mapping.file, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, offset: u64, file: FileId) -> Mapping {
        Mapping {
            start,
            end,
            offset,
            file,
        }
    }

    #[test]
    fn an_address_is_what_was_mapped_there_at_that_time() {
        let mut spaces = Spaces::default();
        let (node, addon) = (FileId(0), FileId(1));
        spaces.exec(7, 100);
        spaces.map(7, mapping(0x1000, 0x3000, 0x500, node), 100);
        spaces.map(7, mapping(0x2000, 0x4000, 0, addon), 200);
        spaces.unmap(7, (0x2000, 0x4000), (0, 0), 300);
        let find = |pid, address, at| spaces.find(pid, address, at);
        assert_eq!(find(7, 0x2010, 99), None);
        assert_eq!(find(7, 0x2010, 150), Some((node, 0x1510)));
        assert_eq!(find(7, 0x2010, 250), Some((addon, 0x10)));
        assert_eq!(find(7, 0x2010, 350), None);
        assert_eq!(find(7, 0x1010, 350), Some((node, 0x510)));
        assert_eq!(find(7, 0x4000, 250), None);
        assert_eq!(find(8, 0x1010, 350), None);
    }

    #[test]
    fn what_is_unmapped_again_and_again_changes_nothing() {
        let mut spaces = Spaces::default();
        let addon = FileId(1);
        spaces.map(1, mapping(0x1000, 0x4000, 0, addon), 10);
        for time in 20..1_000_000 {
            spaces.unmap(1, (0x2000, 0x3000), (0, 0), time);
        }
        let space = spaces.spaces[&1].last().expect("one");
        assert_eq!(space.mapped.len(), 2);
        let find = |address, at| spaces.find(1, address, at);
        assert_eq!(find(0x2010, 15), Some((addon, 0x1010)));
        assert_eq!(find(0x2010, 999_999), None);
        for address in 0..1_000_000 {
            assert_eq!(
                find(0x3000 + address % 0x1000, 2_000_000).map(|f| f.0),
                Some(addon)
            );
        }
    }

    #[test]
    fn what_is_mapped_and_unmapped_in_turn_is_found_fast() {
        let mut spaces = Spaces::default();
        for time in 0..100_000 {
            let at = time * 0x1000 % 0x100_0000;
            spaces.map(1, mapping(at, at + 0x1000, 0, FileId(time as u32)), time);
            spaces.unmap(1, (at, at + 0x1000), (0, 0), time + 1);
            spaces.fork(1, 2, time);
        }
        for time in 0..100_000 {
            let at = time * 0x1000 % 0x100_0000;
            let file = FileId(time as u32);
            assert_eq!(spaces.find(1, at, time), Some((file, 0)));
            assert_eq!(spaces.find(1, at, time + 1), None);
        }
    }

    #[test]
    fn what_is_moved_is_found_at_its_new_place() {
        let mut spaces = Spaces::default();
        let node = FileId(0);
        spaces.map(1, mapping(0x1000, 0x4000, 0x100, node), 10);
        // The middle page, and something that was never known.
        spaces.unmap(1, (0x2000, 0x3000), (0x9000, 0xa000), 20);
        spaces.unmap(1, (0x6000, 0x7000), (0xb000, 0xc000), 20);
        let find = |address| spaces.find(1, address, 30);
        assert_eq!(find(0x2010), None);
        assert_eq!(find(0x9010), Some((node, 0x1110)));
        assert_eq!(find(0x3010), Some((node, 0x2110)));
        assert_eq!(find(0xb010), None);
    }

    #[test]
    fn a_child_has_what_its_parent_had_when_it_was_forked_until_it_executes() {
        let mut spaces = Spaces::default();
        let (node, git) = (FileId(0), FileId(1));
        spaces.exec(1, 0);
        spaces.map(1, mapping(0x1000, 0x2000, 0, node), 10);
        spaces.fork(1, 2, 20);
        spaces.unmap(1, (0x1000, 0x2000), (0, 0), 30);
        spaces.exec(2, 40);
        spaces.map(2, mapping(0x1000, 0x2000, 0, git), 40);
        let file = |pid, at| spaces.find(pid, 0x1800, at).map(|(file, _)| file);
        assert_eq!(file(2, 15), None);
        assert_eq!(file(2, 35), Some(node));
        assert_eq!(file(1, 35), None);
        assert_eq!(file(2, 45), Some(git));
        // The process id is used again.
        spaces.fork(1, 2, 50);
        assert_eq!(spaces.find(2, 0x1800, 55), None);
    }
}
