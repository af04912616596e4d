//! Pages of code that the kernel has copied to write breakpoints into them.
//!
//! When the last breakpoint of such a page goes, the kernel drops the copy, and the process has the file's own page again, which it shares with all
//! others. But not while anybody else holds the copy, and the taking away itself may: the kernel looks a page up for each breakpoint that it writes
//! or takes away, notes that it is in use, and at the second time puts it into a batch of pages to be moved to the active list
//! (`folio_mark_accessed`), which holds it until the batch is full. So of 56 pages that had breakpoints, 27 stayed copies: those with a
//! single one. They are moved before, then, and the batches are emptied.

use std::{
    ffi::c_void,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    ops::Range,
    os::unix::fs::FileExt as _,
    ptr,
};

use rustix::{
    mm::{self, Advice, MapFlags, ProtFlags},
    param::page_size,
};

/// Of an entry of `/proc/PID/pagemap`: the page is in memory; it is one of a file, or is shared.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
/// Of an entry, bytes.
const ENTRY: u64 = 8;
/// So many entries are read at once: what a process maps has any length, beyond the end of its file, too.
const AT_ONCE: u64 = 4096;
/// Bytes of a list of mappings that are read: 100,000 of usual ones. Whoever has so many with long names has copies left.
const LONGEST_MAPS: u64 = 16 << 20;
/// Beyond so much code pages stay copies: no program has that, but one may map it.
const MOST_CODE: u64 = 4 << 30;

/// To be called before probes are taken away from a process that goes on: then none of its code stays copied. Returns how many pages were.
///
/// # Errors
/// The kernel's: the process is gone, or its memory may not be read. Then some pages stay copies, which harms nobody.
pub(crate) fn let_copies_go(pid: u32) -> io::Result<usize> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let copies = copies(pid)?;
    let batches = Batches::new()?;
    for &page in &copies {
        // What is read does not matter: the kernel looks the page up.
        let _ = memory.read_at(&mut [0], page);
        // Each time, for the next page may be looked up on another processor.
        batches.empty()?;
    }
    Ok(copies.len())
}

/// Pages of a process's code that are copies of a file's.
fn copies(pid: u32) -> io::Result<Vec<u64>> {
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let maps = File::open(format!("/proc/{pid}/maps"))?.take(LONGEST_MAPS);
    let size = page_size() as u64;
    let mut copies = Vec::new();
    let mut left = MOST_CODE;
    // Names of files are any bytes.
    for line in BufReader::new(maps).split(b'\n') {
        let Some(code) = code_of_file(&String::from_utf8_lossy(&line?)) else {
            continue;
        };
        let end = code.end.min(code.start.saturating_add(left));
        left -= end - code.start;
        for start in (code.start..end).step_by((AT_ONCE * size) as usize) {
            let pages = AT_ONCE.min((end - start) / size);
            let mut entries = vec![0; (pages * ENTRY) as usize];
            pagemap.read_exact_at(&mut entries, start / size * ENTRY)?;
            let (entries, _) = entries.as_chunks();
            for (page, &entry) in (start..).step_by(size as usize).zip(entries) {
                if u64::from_ne_bytes(entry) & (PRESENT | OF_FILE) == PRESENT {
                    copies.push(page);
                }
            }
        }
    }
    Ok(copies)
}

/// Where a line of `/proc/PID/maps` has code of a file.
fn code_of_file(line: &str) -> Option<Range<u64>> {
    let mut fields = line.split_ascii_whitespace();
    let (range, may, inode) = (fields.next()?, fields.next()?, fields.nth(2)?);
    if !may.contains('x') || inode == "0" {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    (start < end).then_some(start..end)
}

/// What the kernel has in its batches of pages, a page of this process to reach them by.
struct Batches(*mut c_void);

impl Batches {
    fn new() -> io::Result<Batches> {
        let (may, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a page that nobody has.
        let page = unsafe { mm::mmap_anonymous(ptr::null_mut(), page_size(), may, flags)? };
        Ok(Batches(page))
    }

    /// Moves what waits in those of this processor to its lists: `MADV_COLD` begins with that.
    fn empty(&self) -> io::Result<()> {
        // SAFETY: the page is mapped while this lives, and this advice leaves what memory holds.
        unsafe { mm::madvise(self.0, page_size(), Advice::LinuxCold)? };
        Ok(())
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and used here alone.
        let _ = unsafe { mm::munmap(self.0, page_size()) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use rustix::mm::MprotectFlags;

    use super::*;

    #[test]
    fn lines_with_code_of_a_file_are_told_from_others() {
        let line = "00bbb000-0258f000 r-xp 007bb000 fe:00 1234  /usr/bin/node with a space";
        assert_eq!(code_of_file(line), Some(0xbb_b000..0x258_f000));
        for other in [
            "00400000-00bbb000 r--p 00000000 fe:00 1234  /usr/bin/node",
            "7f00-7f10 r-xp 00000000 00:00 0  [vdso]",
            "7f10-7f00 r-xp 00000000 fe:00 1234  /usr/bin/node",
            "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]",
            "",
        ] {
            assert_eq!(code_of_file(other), None, "{other}");
        }
    }

    #[test]
    fn a_page_of_code_that_was_written_to_is_found_and_a_long_mapping_takes_no_memory() {
        let binary = std::env::current_exe().unwrap();
        let file = File::open(binary).unwrap();
        let size = page_size();
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping; nobody else knows of it.
        let page = unsafe {
            mm::mmap(ptr::null_mut(), size, writable, MapFlags::PRIVATE, &file, 0).unwrap()
        };
        let protect = |may| {
            // SAFETY: as above.
            unsafe { mm::mprotect(page, size, MprotectFlags::READ | may).unwrap() };
        };
        let me = std::process::id();
        let is_copy = || copies(me).unwrap().contains(&(page as u64));
        // SAFETY: mapped, and readable.
        let byte = unsafe { ptr::read_volatile(page.cast::<u8>()) };
        protect(MprotectFlags::EXEC);
        assert!(!is_copy());
        protect(MprotectFlags::WRITE);
        // SAFETY: mapped, and writable.
        unsafe { ptr::write_volatile(page.cast::<u8>(), byte) };
        protect(MprotectFlags::EXEC);
        assert!(is_copy());
        assert!(let_copies_go(me).unwrap() > 0);
        // SAFETY: nobody uses it.
        unsafe { mm::munmap(page, size).unwrap() };

        // 16 TiB, which is 32 GiB of entries.
        let long = 1 << 44;
        // SAFETY: as above.
        let pages = unsafe {
            let may = ProtFlags::READ | ProtFlags::EXEC;
            mm::mmap(ptr::null_mut(), long, may, MapFlags::PRIVATE, &file, 0).unwrap()
        };
        assert!(copies(me).is_ok());
        // SAFETY: nobody uses them.
        unsafe { mm::munmap(pages, long).unwrap() };
    }
}
