//! Callbacks that are no functions of the node binary: of a native add-on, or unknown.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead as _, BufReader},
    ops::Range,
};

/// So often the mappings of one process are read: a program may have 65,530 of them and any number of callbacks, and an add-on is found by the first of
/// its own.
const MOST_READS: usize = 256;

/// Where add-ons lie, as far as that was asked.
#[derive(Default)]
pub(super) struct Outside {
    of: HashMap<u32, Mapped>,
}

#[derive(Default)]
struct Mapped {
    found: Vec<(Range<u64>, String)>,
    reads: usize,
}

impl Outside {
    /// Names of an add-on and of its function at this address.
    pub(super) fn callback(&mut self, pid: u32, address: u64) -> (String, String) {
        let mapped = self.of.entry(pid).or_default();
        let is_there = |(range, _): &&(Range<u64>, String)| range.contains(&address);
        let known = mapped.found.iter().find(is_there).cloned();
        let found = known.or_else(|| {
            if mapped.reads >= MOST_READS {
                return None;
            }
            mapped.reads += 1;
            let found = file_at(pid, address);
            mapped.found.extend(found.clone());
            found
        });
        match found {
            Some((range, name)) => (
                format!("(add-on) {name}"),
                format!("{:#x}", address - range.start),
            ),
            None => ("(unknown)".into(), format!("{address:#x}")),
        }
    }

    /// The process has ended, or executes something else.
    pub(super) fn forget(&mut self, pid: u32) {
        self.of.remove(&pid);
    }
}

/// The mapping of a file in which an address lies, and the file's name.
fn file_at(pid: u32, address: u64) -> Option<(Range<u64>, String)> {
    let maps = BufReader::new(File::open(format!("/proc/{pid}/maps")).ok()?);
    maps.split(b'\n').map_while(Result::ok).find_map(|line| {
        let line = String::from_utf8_lossy(&line);
        let mut fields = line.split_whitespace();
        let (range, file) = fields.next().zip(fields.nth(4))?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let range = number(start)?..number(end)?;
        let name = file.rsplit('/').next().unwrap_or(file);
        range.contains(&address).then(|| (range, name.to_owned()))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn functions_of_files_have_their_names_and_others_are_looked_for_a_limited_number_of_times() {
        let me = std::process::id();
        let mut outside = Outside::default();
        // A function of this test's own binary.
        let own = file_at as fn(u32, u64) -> _ as usize as u64;
        let (binding, function) = outside.callback(me, own);
        assert!(binding.starts_with("(add-on) nodeprofd"), "{binding}");
        let offset = u64::from_str_radix(function.trim_start_matches("0x"), 16).unwrap();
        assert!(offset < own, "{function}");
        for address in 1..=1_000 {
            let unknown = ("(unknown)".to_owned(), format!("{address:#x}"));
            assert_eq!(outside.callback(me, address), unknown);
        }
        assert_eq!(outside.of[&me].reads, MOST_READS);
        // What is known stays known.
        assert_eq!(outside.callback(me, own), (binding, function));
        outside.forget(me);
        assert!(outside.of.is_empty());
    }
}
