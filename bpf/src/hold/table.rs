//! Which execs wait, in memory that the holder and its guard share, so that each can let them go for the other.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    time::Duration,
};

use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

/// Execs that are held at the same time; one more is let go at once.
const MOST_HELD: usize = 256;
/// Pieces of unread ones, some 170 in each, that are let go in one go.
const MOST_PIECES: u32 = 64;
/// Descriptors that a holder may have of execs: above its standard streams, and below what it has of the service at most.
const FIRST_FILE: RawFd = 3;
const MOST_FILES: RawFd = 16_384;
/// No exec: this descriptor is a standard stream of both.
const NONE: i32 = 0;

/// All zeros at first.
#[repr(C)]
struct Table {
    /// How often the holder has looked for execs.
    looks: AtomicU64,
    /// The guard has taken all marks away, because the holder did not look.
    is_unmarked: AtomicBool,
    /// Descriptors of the holder.
    files: [AtomicI32; MOST_HELD],
    /// Since when, CLOCK_MONOTONIC, ns.
    since: [AtomicU64; MOST_HELD],
}

/// The table, mapped.
struct Mapped(NonNull<Table>);

// SAFETY: all that it points to is atomic, and stays mapped as long as this lives.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn of(memory: BorrowedFd<'_>) -> io::Result<Mapped> {
        // SAFETY: a new mapping where nothing is.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                size_of::<Table>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memory,
                0,
            )?
        };
        NonNull::new(at.cast())
            .map(Mapped)
            .ok_or_else(|| io::Error::other("mapped at 0"))
    }
}

impl std::ops::Deref for Mapped {
    type Target = Table;

    fn deref(&self) -> &Table {
        // SAFETY: mapped with this size, and zeros are a table.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`; no reference outlives this.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<Table>()) };
    }
}

/// Which execs of a fanotify group wait. Each is answered once.
pub(super) struct HeldExecs {
    group: OwnedFd,
    table: Mapped,
}

impl HeldExecs {
    /// Memory for a table, to be shared.
    pub(super) fn memory() -> io::Result<OwnedFd> {
        let memory = memfd_create("nodeprof-held-execs", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, size_of::<Table>() as u64)?;
        Ok(memory)
    }

    /// Of this group, in that memory.
    pub(super) fn of(group: OwnedFd, memory: BorrowedFd<'_>) -> io::Result<HeldExecs> {
        // Beyond its end there would be no memory.
        if rustix::fs::fstat(memory)?.st_size < size_of::<Table>() as i64 {
            return Err(io::Error::other("the shared memory is too short"));
        }
        Ok(HeldExecs {
            group,
            table: Mapped::of(memory)?,
        })
    }

    /// Closes the group, which lets all go that are held still, whoever else has a part in this: nothing is in its place then.
    pub(super) fn close(&self) -> io::Result<()> {
        let nothing = File::options().write(true).open("/dev/null")?;
        // SAFETY: takes integers. What the number meant is closed by the kernel, in one step.
        match unsafe { libc::dup3(nothing.as_raw_fd(), self.group(), libc::O_CLOEXEC) } {
            ..0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// The group.
    pub(super) fn group(&self) -> RawFd {
        self.group.as_raw_fd()
    }

    /// Takes a place for an exec. Only one thread does.
    fn enter(&self, file: RawFd) -> Option<usize> {
        let place = self
            .table
            .files
            .iter()
            .position(|place| place.load(Ordering::Relaxed) == NONE)?;
        self.table.since[place].store(super::now(), Ordering::Relaxed);
        self.table.files[place].store(file, Ordering::Release);
        Some(place)
    }

    /// Whether this exec waits still.
    pub(super) fn waits(&self, place: usize, file: RawFd) -> bool {
        self.table.files[place].load(Ordering::Acquire) == file
    }

    /// Answers one, if nobody has.
    pub(super) fn let_go(&self, place: usize) {
        let file = self.table.files[place].swap(NONE, Ordering::AcqRel);
        if file != NONE {
            self.allow(file);
        }
    }

    /// Answers this one; false if somebody has already.
    pub(super) fn let_this_go(&self, place: usize, file: RawFd) -> bool {
        let was_waiting = self.table.files[place]
            .compare_exchange(file, NONE, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if was_waiting {
            self.allow(file);
        }
        was_waiting
    }

    /// Answers those that have waited for longer than this; whether others wait still.
    pub(super) fn let_go_after(&self, limit: Duration) -> bool {
        let clock = super::now();
        let mut others = false;
        for place in 0..MOST_HELD {
            if self.table.files[place].load(Ordering::Acquire) == NONE {
                continue;
            }
            let since = self.table.since[place].load(Ordering::Relaxed);
            if clock.saturating_sub(since) > limit.as_nanos() as u64 {
                self.let_go(place);
            } else {
                others = true;
            }
        }
        others
    }

    /// Answers all that wait, also those that nobody has read yet.
    pub(super) fn let_all_go(&self) {
        (0..MOST_HELD).for_each(|place| self.let_go(place));
        // As many as come in one piece, and others that have come meanwhile; where they never end somebody else reads them.
        for _ in 0..MOST_PIECES {
            let unread = self.read();
            if unread.is_empty() && !super::guard::is_readable(self.group(), Duration::ZERO) {
                return; // and no error: one exec was refused then, and others wait behind it
            }
            for (file, _) in unread {
                // An answer names a descriptor of who has read it. If one of the same number waits for the other process, the kernel
                // takes that: until none is left.
                while self.allow(file.as_raw_fd()) {}
            }
        }
    }

    /// Answers those that a holder has read, and had no time to enter before it was killed: who waits for them is known by their numbers alone.
    pub(super) fn let_lost_go(&self) {
        (FIRST_FILE..MOST_FILES).for_each(|file| {
            self.allow(file);
        });
    }

    /// Whether any exec is held.
    pub(super) fn is_holding(&self) -> bool {
        let mut files = self.table.files.iter();
        files.any(|file| file.load(Ordering::Acquire) != NONE)
    }

    /// All execs that wait and were not read yet, each with its place; with none if too many wait: then it was let go.
    pub(super) fn take(&self) -> Vec<(File, u32, usize)> {
        self.table.looks.fetch_add(1, Ordering::Relaxed);
        let mut taken = Vec::new();
        for (file, pid) in self.read() {
            match self.enter(file.as_raw_fd()) {
                Some(place) => taken.push((file, pid, place)),
                None => {
                    self.allow(file.as_raw_fd());
                }
            }
        }
        taken
    }

    /// How often the holder has looked.
    pub(super) fn looks(&self) -> u64 {
        self.table.looks.load(Ordering::Relaxed)
    }

    /// Takes all marks away: no exec waits from now on.
    pub(super) fn unmark(&self) {
        // SAFETY: takes no path.
        unsafe {
            libc::fanotify_mark(
                self.group(),
                libc::FAN_MARK_FLUSH,
                0,
                libc::AT_FDCWD,
                std::ptr::null(),
            )
        };
        self.table.is_unmarked.store(true, Ordering::Release);
    }

    /// Whether they were taken away since this was asked last.
    pub(super) fn was_unmarked(&self) -> bool {
        self.table.is_unmarked.swap(false, Ordering::AcqRel)
    }

    /// Whether the kernel knew of such an exec.
    fn allow(&self, file: RawFd) -> bool {
        let answer = libc::fanotify_response {
            fd: file,
            response: libc::FAN_ALLOW,
        };
        // SAFETY: a plain struct of the size given.
        unsafe {
            libc::write(
                self.group(),
                (&raw const answer).cast(),
                size_of_val(&answer),
            ) > 0
        }
    }

    /// Files and processes of all execs that wait and were not read yet.
    fn read(&self) -> Vec<(File, u32)> {
        let mut buffer = [0u8; 4096];
        // SAFETY: the buffer has the length given.
        let got = unsafe { libc::read(self.group(), buffer.as_mut_ptr().cast(), buffer.len()) };
        let mut rest = &buffer[..usize::try_from(got).unwrap_or(0)];
        let mut all = Vec::new();
        const SIZE: usize = size_of::<libc::fanotify_event_metadata>();
        while rest.len() >= SIZE {
            // SAFETY: enough bytes; the struct consists of integers; alignment is not assumed.
            let event = unsafe {
                rest.as_ptr()
                    .cast::<libc::fanotify_event_metadata>()
                    .read_unaligned()
            };
            if event.fd >= 0 {
                // SAFETY: the kernel opened it for us.
                all.push((unsafe { File::from_raw_fd(event.fd) }, event.pid as u32));
            }
            rest = rest
                .get((event.event_len as usize).max(SIZE)..)
                .unwrap_or_default();
        }
        all
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::{
        io::Read as _,
        os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    };

    use super::*;

    /// With a pipe in place of the group: what would be answered can be read from its other end.
    fn table() -> (HeldExecs, std::io::PipeReader) {
        let (answers, group) = std::io::pipe().unwrap();
        let memory = HeldExecs::memory().unwrap();
        (
            HeldExecs::of(group.into(), memory.as_fd()).unwrap(),
            answers,
        )
    }

    /// A permission to open in place of one to execute.
    fn hold_opens(group: &OwnedFd, path: &std::path::Path) {
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        let (add, open) = (libc::FAN_MARK_ADD, libc::FAN_OPEN_PERM);
        // SAFETY: on a path that lives through the call.
        let marked = unsafe {
            libc::fanotify_mark(group.as_raw_fd(), add, open, libc::AT_FDCWD, name.as_ptr())
        };
        assert_eq!(marked, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn an_exec_is_answered_once_whoever_comes_first() {
        let (table, mut answers) = table();
        let (first, second) = (table.enter(70).unwrap(), table.enter(71).unwrap());
        assert!(table.let_this_go(second, 71));
        assert!(!table.let_this_go(second, 71));
        table.let_go(second);
        assert!(table.waits(first, 70));
        table.let_go(first);
        assert!(!table.let_this_go(first, 70));
        drop(table);
        let mut all = Vec::new();
        answers.read_to_end(&mut all).unwrap();
        let answered: Vec<&[u8]> = all
            .chunks(size_of::<libc::fanotify_response>())
            .map(|answer| &answer[..4])
            .collect();
        assert_eq!(answered, [71i32.to_ne_bytes(), 70i32.to_ne_bytes()]);
    }

    /// More than one read of the group returns.
    #[test]
    #[ignore = "needs root"]
    fn all_go_that_nobody_has_read_however_many() {
        const MANY: usize = 400;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        let group = crate::hold::fanotify::new_group().unwrap();
        hold_opens(&group, &path);
        let memory = HeldExecs::memory().unwrap();
        let held = HeldExecs::of(group, memory.as_fd()).unwrap();
        let opened = AtomicU64::new(0);
        let opened_soon = |limit: u64| {
            let until = std::time::Instant::now() + Duration::from_secs(10);
            while opened.load(Ordering::Acquire) < limit && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened.load(Ordering::Acquire)
        };
        let went = std::thread::scope(|scope| {
            for _ in 0..MANY {
                scope.spawn(|| {
                    drop(File::open(&path));
                    opened.fetch_add(1, Ordering::Release);
                });
            }
            std::thread::sleep(Duration::from_millis(300)); // all wait
            let before = opened.load(Ordering::Acquire);
            held.let_all_go();
            let went = opened_soon(MANY as u64);
            held.close().unwrap(); // lets the others go
            (before, went)
        });
        assert_eq!(went, (0, MANY as u64));
    }

    /// The kernel asks who has a lease on a file before it opens it for us, and gives him 45 s; any user can have one on a file of his.
    #[test]
    #[ignore = "needs root"]
    fn nobody_waits_for_who_has_a_lease_on_a_file() {
        const SET_LEASE: i32 = 1024;
        const SET_SIGNAL: i32 = 10;
        let folder = tempfile::tempdir().unwrap();
        let (leased, other) = (folder.path().join("leased"), folder.path().join("other"));
        std::fs::write(&leased, "").unwrap();
        std::fs::write(&other, "").unwrap();
        let group = crate::hold::fanotify::new_group().unwrap();
        let lessee = File::open(&leased).unwrap();
        // SAFETY: plain system calls, on descriptors that are open.
        unsafe {
            libc::fcntl(lessee.as_raw_fd(), SET_SIGNAL, libc::SIGURG); // else SIGIO ends us
            assert_eq!(libc::fcntl(lessee.as_raw_fd(), SET_LEASE, libc::F_WRLCK), 0);
        }
        hold_opens(&group, &leased);
        hold_opens(&group, &other);
        let memory = HeldExecs::memory().unwrap();
        let held = HeldExecs::of(group, memory.as_fd()).unwrap();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| File::open(&leased).map(drop));
            std::thread::sleep(Duration::from_millis(100)); // it waits
            let second = scope.spawn(|| File::open(&other).map(drop));
            std::thread::sleep(Duration::from_millis(100));
            let since = std::time::Instant::now();
            held.let_all_go();
            assert!(since.elapsed() < Duration::from_secs(5), "{since:?}");
            // The one that is leased is refused, and keeps nobody behind it waiting.
            let refused = first.join().unwrap().unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
            second.join().unwrap().unwrap();
        });
        held.close().unwrap();
    }

    /// As of a holder that was killed between reading and entering.
    #[test]
    #[ignore = "needs root"]
    fn what_was_read_and_never_entered_is_let_go_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        let group = crate::hold::fanotify::new_group().unwrap();
        hold_opens(&group, &path);
        let memory = HeldExecs::memory().unwrap();
        let held = HeldExecs::of(group, memory.as_fd()).unwrap();
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| File::open(&path).map(drop));
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(held.read().len(), 1);
            held.let_all_go();
            std::thread::sleep(Duration::from_millis(100));
            assert!(!opening.is_finished());
            held.let_lost_go();
            opening.join().unwrap().unwrap();
        });
        held.close().unwrap();
    }

    #[test]
    fn who_is_late_does_not_answer_for_the_next_exec_in_the_same_place() {
        let (table, _answers) = table();
        let place = table.enter(70).unwrap();
        table.let_go(place);
        assert_eq!(table.enter(71), Some(place));
        assert!(!table.let_this_go(place, 70));
        assert!(table.waits(place, 71));
    }
}
