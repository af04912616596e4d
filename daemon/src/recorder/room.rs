//! How much of a start is kept while it is recorded, where programs that nobody chose are recorded: anybody may do without end what is written down one by one.

use std::{cell::Cell, rc::Rc};

/// Bytes of an event, about: its row, and what is remembered of a file that it opens. Tables grow by doubling, so some of that is not in use.
pub(crate) const EVENT: u64 = 128;
/// Bytes of a name besides its text, which is there twice: in the recording, and to be found again.
const NAME: u64 = 160;
/// A start may always have so many bytes, however much others have: a thousand file operations and more.
const LEAST: u64 = 1 << 20;

/// For all starts under way.
#[derive(Clone, Debug)]
pub struct Rooms {
    /// Bytes of one start.
    one: u64,
    /// Bytes of all of them.
    all: u64,
    used: Rc<Cell<u64>>,
}

impl Rooms {
    /// So many bytes, about, of one start and of all.
    pub fn new(one: u64, all: u64) -> Rooms {
        Rooms {
            one,
            all,
            used: Rc::default(),
        }
    }

    /// For another start.
    pub fn enter(&self) -> Room {
        Room {
            rooms: self.clone(),
            used: 0,
        }
    }
}

/// For a start. What it has is given back when it is over.
#[derive(Debug)]
pub struct Room {
    rooms: Rooms,
    used: u64,
}

impl Room {
    /// Another one for the same start, of so many bytes.
    pub(crate) fn beside(&self, one: u64) -> Room {
        let rooms = Rooms {
            one,
            ..self.rooms.clone()
        };
        rooms.enter()
    }

    /// How many bytes may still be taken.
    pub(crate) fn left(&self) -> u64 {
        let of_all = self.rooms.all.saturating_sub(self.rooms.used.get());
        let of_all = of_all.max(LEAST.saturating_sub(self.used));
        self.rooms.one.saturating_sub(self.used).min(of_all)
    }

    /// Takes so many bytes, unless there are not as many left; returns whether it did.
    pub(crate) fn take_within(&mut self, bytes: u64) -> bool {
        let is_there = bytes <= self.left();
        if is_there {
            self.take(bytes);
        }
        is_there
    }

    /// Nothing more is to be taken.
    pub(crate) fn is_full(&self) -> bool {
        let is_crowded = self.rooms.used.get() >= self.rooms.all;
        self.used >= self.rooms.one || (is_crowded && self.used >= LEAST)
    }

    /// Takes so many bytes, unless there is no room; returns whether it did.
    pub(crate) fn take_if_there(&mut self, bytes: u64) -> bool {
        let is_there = !self.is_full();
        if is_there {
            self.take(bytes);
        }
        is_there
    }

    /// Takes so many bytes.
    fn take(&mut self, bytes: u64) {
        self.used += bytes;
        self.rooms.used.set(self.rooms.used.get() + bytes);
    }

    /// For a name.
    pub(crate) fn take_name(&mut self, name: &[u8]) {
        self.take(NAME + 2 * name.len() as u64);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let used = self.rooms.used.get();
        self.rooms.used.set(used.saturating_sub(self.used));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_has_so_much_and_all_together_but_each_a_little() {
        let rooms = Rooms::new(4 << 20, 6 << 20);
        let (mut first, mut second, mut third) = (rooms.enter(), rooms.enter(), rooms.enter());
        first.take((4 << 20) - 1);
        assert!(!first.is_full());
        first.take(1);
        assert!(first.is_full() && !second.is_full());
        second.take(2 << 20);
        assert!(second.is_full() && !third.is_full(), "both have all");
        third.take(LEAST);
        assert!(third.is_full());
        drop(first);
        assert!(!second.is_full() && !third.is_full());
        drop((second, third));
        assert_eq!(rooms.used.get(), 0);
    }

    #[test]
    fn what_is_taken_within_a_room_is_never_more_than_it_has() {
        let rooms = Rooms::new(4 << 20, 6 << 20);
        let mut events = rooms.enter();
        let mut sources = events.beside(3 << 20);
        assert_eq!(sources.left(), 3 << 20);
        assert!(!sources.take_within((3 << 20) + 1) && sources.take_within(2 << 20));
        assert_eq!((sources.left(), events.left()), (1 << 20, 4 << 20));
        events.take(4 << 20);
        assert_eq!(sources.left(), 0, "all is taken");
        let other = rooms.enter().beside(3 << 20);
        assert_eq!(other.left(), LEAST);
        drop((events, sources));
        assert_eq!(other.left(), 3 << 20);
    }
}
