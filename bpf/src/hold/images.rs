//! Which node binaries have which index: the records of a probe carry one of few.

use std::{collections::HashMap, hash::Hash, sync::Arc};

/// Indexes that there are: all that an `u8` tells apart.
pub(super) const MOST: usize = crate::wire::MAX_IMAGES as usize;
const _: () = assert!(MOST == 1 + u8::MAX as usize);

/// What an index is kept for: as long as anybody has this, no other binary gets it.
#[derive(Clone, Debug)]
pub(super) struct Use(#[allow(dead_code, reason = "it counts")] Arc<()>);

/// A binary that has an index.
#[derive(Clone, Debug)]
pub(super) struct Image<V> {
    pub(super) index: u8,
    /// How many there were before it, so that two with the same index can be told apart.
    pub(super) serial: u32,
    pub(super) value: V,
    pub(super) used: Use,
}

impl<V> Image<V> {
    /// Its index alone.
    pub(super) fn bare(self) -> Image<()> {
        Image {
            index: self.index,
            serial: self.serial,
            value: (),
            used: self.used,
        }
    }
}

/// All that have one, by the version of their file.
pub(super) struct Images<K, V> {
    all: HashMap<K, (Image<V>, u64)>,
    /// How often one was asked for.
    clock: u64,
    serial: u32,
    /// An index may be given to another binary when nobody uses the first one any more. Not in a trace, which names by it what it saw long ago.
    gives_anew: bool,
}

impl<K: Eq + Hash + Copy, V: Clone> Images<K, V> {
    pub(super) fn new(gives_anew: bool) -> Images<K, V> {
        Images {
            all: HashMap::new(),
            clock: 0,
            serial: 0,
            gives_anew,
        }
    }

    pub(super) fn has(&self, version: &K) -> bool {
        self.all.contains_key(version)
    }

    /// The binary of this version, to be used.
    pub(super) fn get(&mut self, version: &K) -> Option<Image<V>> {
        let (image, used) = self.all.get_mut(version)?;
        self.clock += 1;
        *used = self.clock;
        Some(image.clone())
    }

    /// A free index; else that of the binary whose last use is longest ago, which is forgotten. `None`: all are in use.
    pub(super) fn free_index(&mut self) -> Option<u8> {
        let mut is_taken = [false; MOST];
        for (image, _) in self.all.values() {
            is_taken[usize::from(image.index)] = true;
        }
        let free = is_taken.iter().position(|taken| !taken);
        if let Some(index) = free.and_then(|index| u8::try_from(index).ok()) {
            return Some(index);
        }
        let unused = self
            .all
            .iter()
            .filter(|(_, (image, _))| self.gives_anew && Arc::strong_count(&image.used.0) == 1);
        let (&version, _) = unused.min_by_key(|(_, (_, used))| *used)?;
        self.all.remove(&version).map(|(image, _)| image.index)
    }

    /// Gives a binary a free index.
    pub(super) fn add(&mut self, version: K, index: u8, value: V) -> Image<V> {
        self.clock += 1;
        let image = Image {
            index,
            serial: self.serial,
            value,
            used: Use(Arc::default()),
        };
        self.serial = self.serial.wrapping_add(1);
        self.all.insert(version, (image.clone(), self.clock));
        image
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    /// As many as there are indexes; each is used once.
    fn full(gives_anew: bool) -> (Images<usize, ()>, Vec<Use>) {
        let mut images = Images::new(gives_anew);
        let uses = (0..MOST).map(|version| {
            let index = images.free_index().unwrap();
            assert_eq!(usize::from(index), version);
            images.add(version, index, ()).used
        });
        let uses = uses.collect();
        (images, uses)
    }

    #[test]
    fn the_index_of_the_binary_that_nobody_has_used_for_longest_is_given_anew() {
        let (mut images, mut uses) = full(true);
        assert_eq!(images.free_index(), None, "all are in use");
        // Those of 5 and 7 end; 5 is used once more in between.
        drop(uses.split_off(5));
        drop(images.get(&5).unwrap());
        let index = images.free_index().unwrap();
        assert_eq!((index, images.has(&6)), (6, false));
        let new = images.add(1000, index, ());
        assert_eq!((new.index, new.serial), (6, MOST as u32));
        assert_eq!(images.get(&1000).unwrap().serial, MOST as u32);
        // And so on, but for what is in use.
        let held = new.used;
        let mut given = Vec::new();
        while let Some(index) = images.free_index() {
            given.push(index);
            uses.push(images.add(2000 + given.len(), index, ()).used);
        }
        let rest = (7..=u8::MAX).chain([5]);
        assert_eq!(given, rest.collect::<Vec<_>>());
        drop(held);
        assert_eq!(images.free_index(), Some(6));
    }

    #[test]
    fn a_trace_gives_no_index_twice() {
        let (mut images, uses) = full(false);
        drop(uses);
        assert_eq!(images.free_index(), None);
    }

    #[test]
    fn an_index_that_was_not_given_after_all_is_free_still() {
        let (mut images, uses) = full(true);
        drop(uses);
        assert_eq!(images.free_index(), Some(0));
        assert_eq!(images.free_index(), Some(0));
    }
}
