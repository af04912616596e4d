//! Pages of code that the kernel has copied to write breakpoints into them.
//!
//! When the last breakpoint of such a page goes, the kernel drops the copy, and the process has the file's own page again, which it shares with all
//! others. But not while anybody else holds the copy, and the taking away itself may: the kernel looks a page up for each breakpoint that it writes
//! or takes away, notes that it is in use, and at the second time puts it into a batch of pages to be moved to the active list
//! (`folio_mark_accessed`), which holds it until the batch is full. So of 56 pages that had breakpoints, 27 stayed copies: those with a
//! single one. They are moved before, then, and the batch is emptied.

use std::{fs, fs::File, io, ops::Range, os::unix::fs::FileExt as _, ptr};

use rustix::{
    mm::{Advice, MapFlags, ProtFlags},
    param::page_size,
};

/// Of an entry of `/proc/PID/pagemap`: the page is in memory; it is one of a file, or is shared.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
/// Of an entry, bytes.
const ENTRY: u64 = 8;

/// To be called before probes are taken away from a process that goes on: then none of its code stays copied. Returns how many pages were.
///
/// # Errors
/// The kernel's: the process is gone, or its memory may not be read. Then some pages stay copies, which harms nobody.
pub(crate) fn let_copies_go(pid: u32) -> io::Result<usize> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let copies = copies(pid)?;
    for &page in &copies {
        // What is read does not matter: the kernel looks the page up.
        let _ = memory.read_at(&mut [0], page);
    }
    if !copies.is_empty() {
        empty_batches()?;
    }
    Ok(copies.len())
}

/// Pages of a process's code that are copies of a file's.
fn copies(pid: u32) -> io::Result<Vec<u64>> {
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let size = page_size() as u64;
    let mut copies = Vec::new();
    for code in maps.lines().filter_map(code_of_file) {
        let pages = (code.end - code.start) / size;
        let mut entries = vec![0; (pages * ENTRY) as usize];
        pagemap.read_exact_at(&mut entries, code.start / size * ENTRY)?;
        let (entries, _) = entries.as_chunks();
        for (page, &entry) in (code.start..).step_by(size as usize).zip(entries) {
            if u64::from_ne_bytes(entry) & (PRESENT | OF_FILE) == PRESENT {
                copies.push(page);
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

/// Moves what waits in this processor's batches to its lists: `MADV_COLD` begins with that.
fn empty_batches() -> io::Result<()> {
    let size = page_size();
    let (may, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a page that nobody has.
    let page = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), size, may, flags)? };
    // SAFETY: it was mapped above, and nobody uses it; this advice leaves what memory holds.
    let done = unsafe { rustix::mm::madvise(page, size, Advice::LinuxCold) };
    // SAFETY: nobody uses it.
    unsafe { rustix::mm::munmap(page, size)? };
    Ok(done?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
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
    fn a_page_of_code_that_was_written_to_is_found() {
        let binary = std::env::current_exe().unwrap();
        let file = File::open(binary).unwrap();
        let size = page_size();
        let (may, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping; nobody else knows of it.
        let page = unsafe {
            let page = rustix::mm::mmap(ptr::null_mut(), size, may, flags, &file, 0).unwrap();
            rustix::mm::mprotect(
                page,
                size,
                rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::EXEC,
            )
            .unwrap();
            page
        };
        let me = std::process::id();
        let is_copy = || copies(me).unwrap().contains(&(page as u64));
        // SAFETY: as above; the bytes that are written are those that lie there.
        unsafe {
            ptr::read_volatile(page.cast::<u8>());
            assert!(!is_copy());
            rustix::mm::mprotect(
                page,
                size,
                rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE,
            )
            .unwrap();
            let byte = ptr::read_volatile(page.cast::<u8>());
            ptr::write_volatile(page.cast::<u8>(), byte);
            rustix::mm::mprotect(
                page,
                size,
                rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::EXEC,
            )
            .unwrap();
        }
        assert!(is_copy());
        assert!(let_copies_go(me).unwrap() > 0);
        // SAFETY: nobody uses it.
        unsafe { rustix::mm::munmap(page, size).unwrap() };
    }
}
