//! Files mapped into memory, which their owners may cut off meanwhile.
//!
//! Reading behind the new end of a file is a bus error, which ends the process: any user whose binary is looked at could end the service so.
//! As systemd's journal does, the rest of such a mapping becomes zeros instead, and whoever reads it is told afterwards.

use std::fs::{self, File, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memmap2::Mmap;

/// Files that may be mapped at a time; one for each node binary that is looked at or keeps sources.
const MOST: usize = 1024;

/// Where a mapping lies. A handler of signals may only read what needs no lock.
struct Place {
    taken: AtomicBool,
    start: AtomicUsize,
    /// Behind its last byte; 0: nothing is mapped here.
    end: AtomicUsize,
    cut: AtomicBool,
}

static PLACES: [Place; MOST] = [const {
    Place {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        cut: AtomicBool::new(false),
    }
}; MOST];

/// What was done about bus errors before; the error's number if we cannot do more.
static BEFORE: OnceLock<Result<libc::sigaction, i32>> = OnceLock::new();

/// A file in memory, for reading.
pub(crate) struct Mapping {
    data: Mmap,
    place: &'static Place,
    /// As stat(2) tells it of the very file that is mapped: what lies at its path may be another one by now.
    about: Metadata,
}

impl Mapping {
    /// Maps a whole file, which is not empty.
    pub(crate) fn new(file: &File) -> io::Result<Mapping> {
        if let Err(number) = BEFORE.get_or_init(handle_bus_errors) {
            return Err(io::Error::from_raw_os_error(*number));
        }
        let about = file.metadata()?;
        // A shared mapping: into private ones the kernel writes the breakpoints of others.
        // SAFETY: it is only read; what a file loses meanwhile becomes zeros (`on_bus_error`).
        let data = unsafe { Mmap::map(file) }?;
        let free = PLACES
            .iter()
            .find(|place| !place.taken.swap(true, Ordering::AcqRel));
        let place = free.ok_or_else(|| io::Error::other(format!("{MOST} files are mapped")))?;
        place.cut.store(false, Ordering::Release);
        let start = data.as_ptr() as usize;
        place.start.store(start, Ordering::Release);
        place.end.store(start + data.len(), Ordering::Release);
        Ok(Mapping { data, place, about })
    }

    /// Owner, mode, device and inode of what is mapped.
    pub(crate) fn about(&self) -> &Metadata {
        &self.about
    }

    /// Whether a program that executes this file can map it a second time by what its own list of mappings says of it: if everybody may read it, and
    /// the device there is that of stat(2). On btrfs it never is, on overlayfs not where a file is of a layer in another file system.
    pub(crate) fn can_be_mapped_again(&self) -> bool {
        const READ_BY_OTHERS: u32 = 0o004;
        let about = &self.about;
        let (device, inode, mode) = (about.dev(), about.ino(), about.mode());
        let (major, minor) = (libc::major(device), libc::minor(device));
        let told = fs::read("/proc/self/maps").ok().and_then(|maps| {
            let address = self.data.as_ptr() as u64;
            let mut lines = maps.split(|byte| *byte == b'\n');
            lines.find_map(|line| file_at(std::str::from_utf8(line).ok()?, address))
        });
        told == Some((major, minor, inode)) && mode & READ_BY_OTHERS != 0
    }

    /// Whether the file was cut off since, and zeros have been read in place of what it had.
    pub(crate) fn was_cut(&self) -> bool {
        self.place.cut.load(Ordering::Acquire)
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.place.end.store(0, Ordering::Release);
        self.place.taken.store(false, Ordering::Release);
    }
}

/// Device and inode that a line of `/proc/PID/maps` has, if this address lies in its range.
fn file_at(line: &str, address: u64) -> Option<(u32, u32, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = fields.next()?.split_once('-')?;
    if !(number(start)?..number(end)?).contains(&address) {
        return None;
    }
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let device = |text| u32::from_str_radix(text, 16).ok();
    let inode = fields.next()?.parse().ok()?;
    Some((device(major)?, device(minor)?, inode))
}

fn handle_bus_errors() -> Result<libc::sigaction, i32> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeros is a valid sigaction; the handler below has the signature that SA_SIGINFO asks for, and both live on.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &raw const action, before.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EINVAL));
        }
        Ok(before.assume_init())
    }
}

/// Puts zeros where a file of ours has ended; anything else goes its way as if this were not here.
extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives it to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    for place in &PLACES {
        let end = place.end.load(Ordering::Acquire);
        let start = place.start.load(Ordering::Acquire);
        if address < start || address >= end {
            continue;
        }
        // A page begins there: pages of 4 KB are all that x86-64 has for files.
        let page = address & !4095;
        // SAFETY: from the page to the end is of our own mapping, whose reader has come here and waits.
        let zeros = unsafe {
            libc::mmap(
                page as *mut libc::c_void,
                end - page,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if zeros != libc::MAP_FAILED {
            place.cut.store(true, Ordering::Release);
            return;
        }
    }
    // It happens again when this returns, and then what was there before sees it.
    if let Some(Ok(before)) = BEFORE.get() {
        // SAFETY: it came from the same call.
        unsafe { libc::sigaction(libc::SIGBUS, before, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails says where")]

    use std::io::Write as _;

    use super::*;

    fn file(length: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; length]).unwrap();
        file
    }

    #[test]
    fn a_file_that_is_cut_off_reads_as_zeros_and_says_so() {
        let (cut, whole) = (file(40_000), file(40_000));
        let (first, second) = (Mapping::new(&cut).unwrap(), Mapping::new(&whole).unwrap());
        assert!(first.iter().chain(second.iter()).all(|byte| *byte == 7));
        assert!(!first.was_cut());
        cut.set_len(10_000).unwrap();
        let (kept, lost) = first.split_at(4096);
        assert!(kept.iter().all(|byte| *byte == 7));
        assert!(lost[12_288 - 4096..].iter().all(|byte| *byte == 0));
        assert!(first.was_cut());
        assert!(second.iter().all(|byte| *byte == 7) && !second.was_cut());
    }

    #[test]
    fn no_plan_comes_of_a_file_that_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let length = std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let data = crate::elf::map(&path).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(length / 2)
            .unwrap();
        let error = crate::resolve::of_whole(&path, &data).unwrap_err();
        assert!(
            error.to_string().contains("cut off while it was read"),
            "{error}"
        );
    }

    #[test]
    fn places_are_used_again() {
        let file = file(1);
        for _ in 0..3 * MOST {
            assert_eq!(Mapping::new(&file).unwrap().len(), 1);
        }
    }

    /// A bus error that is not ours ends the process as ever.
    #[test]
    fn other_bus_errors_are_not_hidden() {
        let _ours = Mapping::new(&file(1)).unwrap();
        let other = file(4096);
        // SAFETY: it is not read before the child does.
        let data = unsafe { Mmap::map(&other) }.unwrap();
        other.set_len(0).unwrap();
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: nothing but a fault comes of it.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                ptr::read_volatile(data.as_ptr());
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: it is our child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(libc::WIFSIGNALED(status), "{status}");
        assert_eq!(libc::WTERMSIG(status), libc::SIGBUS);
    }
}
