//! Address spaces: which file was mapped where, at any instant of the trace.

use std::collections::HashMap;

use super::files::FileId;

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

/// A change of an address space.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: u64,
    start: u64,
    end: u64,
    /// `None`: nothing that is known lies there any more.
    to: Option<Mapping>,
}

/// From an exec or fork on.
#[derive(Clone, Debug, Default)]
struct Space {
    since: u64,
    /// In the order of time.
    changes: Vec<Change>,
}

impl Space {
    fn find(&self, address: u64, at: u64) -> Option<Mapping> {
        self.changes
            .iter()
            .rev()
            .find(|c| c.at <= at && (c.start..c.end).contains(&address))?
            .to
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
        self.spaces.entry(pid).or_default().push(Space {
            since: at,
            changes: Vec::new(),
        });
    }

    /// A process was forked: it has what its parent has.
    pub fn fork(&mut self, parent: u32, child: u32, at: u64) {
        let mut space = self.space_at(parent, at).cloned().unwrap_or_default();
        space.since = at;
        self.spaces.entry(child).or_default().push(space);
    }

    /// A file was mapped.
    pub fn map(&mut self, pid: u32, mapping: Mapping, at: u64) {
        self.change(pid, mapping.start, mapping.end, Some(mapping), at);
    }

    /// What lay in a range lies there no more, but in another (from and up to which address; empty: nowhere).
    pub fn unmap(&mut self, pid: u32, range: (u64, u64), to: (u64, u64), at: u64) {
        let Some(space) = self.spaces.get(&pid).and_then(|s| s.last()) else {
            return;
        };
        let touches = |c: &Change| c.to.is_some() && c.start < range.1 && range.0 < c.end;
        if !space.changes.iter().any(touches) {
            return;
        }
        let moved = space.find(range.0, at).filter(|_| to.0 < to.1);
        self.change(pid, range.0, range.1, None, at);
        if let Some(old) = moved {
            let mapping = Mapping {
                start: to.0,
                end: to.1,
                offset: range.0 - old.start + old.offset,
                file: old.file,
            };
            self.map(pid, mapping, at);
        }
    }

    fn change(&mut self, pid: u32, start: u64, end: u64, to: Option<Mapping>, at: u64) {
        let spaces = self.spaces.entry(pid).or_default();
        if spaces.is_empty() {
            spaces.push(Space::default());
        }
        if let Some(space) = spaces.last_mut() {
            space.changes.push(Change { at, start, end, to });
        }
    }

    fn space_at(&self, pid: u32, at: u64) -> Option<&Space> {
        self.spaces.get(&pid)?.iter().rev().find(|s| s.since <= at)
    }

    /// The file that lay at an address, and the offset in it.
    pub fn find(&self, pid: u32, address: u64, at: u64) -> Option<(FileId, u64)> {
        let mapping = self.space_at(pid, at)?.find(address, at)?;
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
