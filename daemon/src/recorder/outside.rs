//! Callbacks that are no functions of the node binary: of a native add-on, or unknown.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead as _, BufReader},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

/// So often the mappings of one program are read: again for an address that no mapping had when they were read last, for add-ons are loaded one by one. Where
/// code is in no file at all, each of its addresses is such a one.
const MOST_READS: usize = 256;
/// And for so long in all, of one process: it may have 65,530 mappings, which take 50 ms each time, while the service's loop waits.
const LONGEST: Duration = Duration::from_millis(50);
/// Mappings with code of files that are remembered: node with all its libraries has some ten.
const MOST_MAPPINGS: usize = 4096;
/// Lines after which the clock is looked at.
const LINES: usize = 64;

/// Where add-ons lie, as far as that was asked.
#[derive(Default)]
pub(super) struct Outside {
    of: HashMap<u32, Mapped>,
}

#[derive(Default)]
struct Mapped {
    /// What records have told, at the instant up to which they were taken.
    told: Table,
    /// What was read, which may be later.
    table: Table,
    reads: usize,
    took: Duration,
}

/// Where code of files is mapped, and the files' names: in ascending order, as the kernel tells it.
type Table = Vec<(Range<u64>, Arc<str>)>;

impl Mapped {
    /// Forgets what lay in a range; whether anything did.
    fn clear(&mut self, range: &Range<u64>) -> bool {
        let mut was_known = false;
        for table in [&mut self.told, &mut self.table] {
            let from = table.partition_point(|(old, _)| old.end <= range.start);
            let to = table.partition_point(|(old, _)| old.start < range.end);
            was_known |= from < to;
            table.drain(from..to.max(from));
        }
        was_known
    }

    /// The mapping in which an address lies. It is looked for in what is known, then in what is there now.
    fn find(&mut self, pid: u32, address: u64) -> Option<(Range<u64>, Arc<str>)> {
        let known = find(&self.told, address).or_else(|| find(&self.table, address));
        if known.is_some() || self.reads >= MOST_READS || self.took >= LONGEST {
            return known;
        }
        self.reads += 1;
        let begun = Instant::now();
        let read = read(pid, begun + (LONGEST - self.took));
        self.took += begun.elapsed();
        // Of a process that has ended what is known is the best there is.
        if let Some(table) = read.filter(|table| !table.is_empty()) {
            self.table = table;
        }
        find(&self.table, address)
    }
}

impl Outside {
    /// Names of an add-on and of its function at this address.
    pub(super) fn callback(&mut self, pid: u32, address: u64) -> Option<(String, String)> {
        let (range, name) = self.of.entry(pid).or_default().find(pid, address)?;
        let function = format!("{:#x}", address - range.start);
        Some((format!("(add-on) {name}"), function))
    }

    /// The process has mapped code of a file. Read later it may be something else that lies there.
    pub(super) fn map(&mut self, pid: u32, range: Range<u64>, path: Option<&[u8]>) {
        let mapped = self.of.entry(pid).or_default();
        mapped.clear(&range);
        let name = path.and_then(|path| path.rsplit(|byte| *byte == b'/').next());
        if let Some(name) = name.filter(|_| mapped.told.len() < MOST_MAPPINGS) {
            let at = mapped
                .told
                .partition_point(|(old, _)| old.start < range.start);
            let name = String::from_utf8_lossy(name).into();
            mapped.told.insert(at, (range, name));
        }
    }

    /// The process has nothing any more in a range. Whether anything was known to lie there.
    pub(super) fn unmap(&mut self, pid: u32, range: &Range<u64>) -> bool {
        self.of
            .get_mut(&pid)
            .is_some_and(|mapped| mapped.clear(range))
    }

    /// The process executes something else. What was read of it has taken its time all the same.
    pub(super) fn executes(&mut self, pid: u32) {
        if let Some(mapped) = self.of.get_mut(&pid) {
            *mapped = Mapped {
                took: mapped.took,
                ..Mapped::default()
            };
        }
    }

    /// The process has ended.
    pub(super) fn forget(&mut self, pid: u32) {
        self.of.remove(&pid);
    }
}

fn find(table: &Table, address: u64) -> Option<(Range<u64>, Arc<str>)> {
    let before = table.partition_point(|(range, _)| range.start <= address);
    let (range, name) = table.get(before.checked_sub(1)?)?;
    (range.contains(&address)).then(|| (range.clone(), name.clone()))
}

/// Mappings with code of files, as many of them as can be read until then.
fn read(pid: u32, until: Instant) -> Option<Table> {
    let mut maps = BufReader::new(File::open(format!("/proc/{pid}/maps")).ok()?);
    let mut table = Table::new();
    let mut line = Vec::new();
    for n in 1.. {
        line.clear();
        let is_over = !matches!(maps.read_until(b'\n', &mut line), Ok(1..));
        if is_over || table.len() >= MOST_MAPPINGS || (n % LINES == 0 && Instant::now() >= until) {
            break;
        }
        let Some((range, name)) = code_of_file(&line) else {
            continue;
        };
        let name = match table.last() {
            Some((_, last)) if **last == *name => last.clone(),
            _ => name.into(),
        };
        table.push((range, name));
    }
    Some(table)
}

/// What a line of the mappings says, if code of a file is mapped there.
fn code_of_file(line: &[u8]) -> Option<(Range<u64>, String)> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.split_whitespace();
    let (range, rights) = fields.next().zip(fields.next())?;
    let file = fields.nth(3).filter(|_| rights.contains('x'))?;
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let range = number(start)?..number(end)?;
    let name = file.rsplit('/').next().unwrap_or(file);
    Some((range, name.to_owned()))
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
        let own = find as fn(&Table, u64) -> _ as usize as u64;
        let (binding, function) = outside.callback(me, own).unwrap();
        assert!(binding.starts_with("(add-on) nodeprofd"), "{binding}");
        let offset = u64::from_str_radix(function.trim_start_matches("0x"), 16).unwrap();
        assert!(offset < own, "{function}");
        for address in 1..=1_000 {
            assert_eq!(outside.callback(me, address), None);
        }
        assert!(outside.of[&me].reads <= MOST_READS);
        // What is known stays known.
        assert_eq!(
            outside.callback(me, own),
            Some((binding.clone(), function.clone()))
        );
        // Of another program it is read anew.
        outside.executes(me);
        assert_eq!(outside.of[&me].reads, 0);
        let mapped = &mut outside.of.get_mut(&me).unwrap();
        mapped.took = Duration::ZERO;
        assert_eq!(outside.callback(me, own), Some((binding, function)));
        outside.forget(me);
        assert!(outside.of.is_empty());
    }

    #[test]
    fn what_is_mapped_in_the_place_of_something_else_has_its_own_name() {
        let mut outside = Outside::default();
        // No process has this number.
        let pid = u32::MAX;
        let name = |outside: &mut Outside, address| outside.callback(pid, address).map(|of| of.0);
        let is = |name: &str| Some(format!("(add-on) {name}"));
        outside.map(pid, 0x3000..0x5000, Some(b"/a/first.node"));
        outside.map(pid, 0x1000..0x2000, Some(b"/a/with space.node"));
        assert_eq!(name(&mut outside, 0x1010), is("with space.node"));
        assert_eq!(name(&mut outside, 0x4010), is("first.node"));
        assert!(!outside.unmap(pid, &(0x2000..0x3000)));
        assert!(!outside.unmap(pid - 1, &(0x3000..0x5000)));
        outside.map(pid, 0x4000..0x6000, Some(b"/a/second.node"));
        assert_eq!(name(&mut outside, 0x4010), is("second.node"));
        assert_eq!(name(&mut outside, 0x1010), is("with space.node"));
        assert!(outside.unmap(pid, &(0x5000..0x7000)));
        assert_eq!(name(&mut outside, 0x4010), None);
        // Its path is too long.
        outside.map(pid, 0x1000..0x1800, None);
        assert_eq!(name(&mut outside, 0x1010), None);
        // What was read is no longer right, either.
        let me = std::process::id();
        let own = find as fn(&Table, u64) -> _ as usize as u64;
        assert!(outside.callback(me, own).is_some());
        assert!(outside.unmap(me, &(own..own + 1)));
    }

    #[test]
    fn a_process_with_very_many_mappings_and_callbacks_does_not_take_long() {
        // Other tests of this process need some of the 65,530, too.
        const MAPPINGS: usize = 10_000;
        // SAFETY: a new mapping that takes no one's place.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * MAPPINGS * 4096,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        for page in (0..2 * MAPPINGS).step_by(2) {
            // SAFETY: within what was just mapped; two neighbours with the same rights would be one mapping.
            let done = unsafe { libc::mprotect(at.add(page * 4096), 4096, libc::PROT_READ) };
            assert_eq!(done, 0);
        }
        let mut outside = Outside::default();
        let begun = Instant::now();
        for address in 1..=1_000 {
            // So many programs one after another have no more time, either.
            if address % 100 == 0 {
                outside.executes(std::process::id());
            }
            outside.callback(std::process::id(), address);
        }
        let took = begun.elapsed();
        // SAFETY: our own mapping, of which nothing is used.
        unsafe { libc::munmap(at, 2 * MAPPINGS * 4096) };
        assert!(took < 10 * LONGEST, "{took:?}");
    }
}
