//! Probes on nodeprof itself, to measure what a hit costs.

use std::{fs, io, path::PathBuf};

use crate::{AttachPoints, Link, Programs, attach, wire};

/// Two probed addresses of this process, working as the enter and exit of a crossing.
pub struct SelfProbe(#[allow(dead_code)] Link);

impl SelfProbe {
    /// Attaches to two addresses of this program's own code, for its main thread; records go to the ring buffer of `programs`. Walks end at a frame
    /// less than 320 bytes (`OUTERMOST_BYTES` of stack.bpf.h) below `stack_start`.
    ///
    /// # Errors
    /// The kernel's, or if the addresses are not of this program's file.
    pub fn attach(programs: &Programs, sites: [u64; 2], stack_start: u64) -> io::Result<SelfProbe> {
        programs.follow_self(stack_start)?;
        let maps = fs::read_to_string("/proc/self/maps")?;
        let (path, offsets) = file_offsets(&maps, sites)
            .ok_or_else(|| io::Error::other("code of this program not found in its maps"))?;
        let actions = [wire::ACTION_CALL_ENTER, wire::ACTION_CALL_EXIT];
        let points = AttachPoints::entries(offsets.into_iter().zip(actions.map(u64::from)));
        attach(
            programs.entry(),
            programs.exit(),
            &path,
            std::process::id(),
            &points,
        )
        .map(SelfProbe)
    }
}

/// File and offset of an address, from the text of `/proc/PID/maps`.
pub(crate) fn file_offset(maps: &str, address: u64) -> Option<(PathBuf, u64)> {
    file_offsets(maps, [address; 2]).map(|(path, offsets)| (path, offsets[0]))
}

/// File and offset of two addresses, from the text of `/proc/PID/maps`.
fn file_offsets(maps: &str, addresses: [u64; 2]) -> Option<(PathBuf, [u64; 2])> {
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (
            u64::from_str_radix(start, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        );
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        if addresses.iter().all(|a| (start..end).contains(a)) {
            return Some((
                PathBuf::from(fields.nth(2)?),
                addresses.map(|a| a - start + offset),
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_offsets_of_their_file() {
        let maps = "1000-2000 r--p 00000000 00:00 1 /a\n2000-4000 r-xp 00001000 00:00 1 /a\n";
        assert_eq!(
            file_offsets(maps, [0x2010, 0x2020]),
            Some((PathBuf::from("/a"), [0x1010, 0x1020]))
        );
        assert_eq!(file_offsets(maps, [0x9000, 0x9001]), None);
        assert_eq!(file_offsets("nonsense", [1, 2]), None);
    }
}
