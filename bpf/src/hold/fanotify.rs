//! Execs of known files wait for an answer: fanotify.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

/// Above all links of a trace with some hundred processes, below the usual limit of 1,024.
const HIGH_DESCRIPTOR: libc::c_int = 1_000;

/// Execs that are held at the same time; one more is let go at once.
const MOST_HELD: usize = 256;
/// No exec.
const NONE: i32 = -1;

/// A group of inode marks whose execs wait for an answer.
pub(super) struct Fanotify {
    group: OwnedFd,
    held: Arc<HeldExecs>,
}

/// Which execs wait, so that another thread can let them go when the one that holds them is late. Each is answered once.
pub(super) struct HeldExecs {
    group: RawFd,
    files: [AtomicI32; MOST_HELD],
}

impl HeldExecs {
    fn of(group: RawFd) -> Arc<HeldExecs> {
        Arc::new(HeldExecs {
            group,
            files: [const { AtomicI32::new(NONE) }; MOST_HELD],
        })
    }

    /// Takes a place for an exec.
    fn enter(&self, file: RawFd) -> Option<usize> {
        self.files.iter().position(|place| {
            place
                .compare_exchange(NONE, file, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })
    }

    /// Answers one, if nobody has.
    fn let_go(&self, place: usize) {
        let file = self
            .files
            .get(place)
            .map(|f| f.swap(NONE, Ordering::AcqRel));
        if let Some(file) = file.filter(|f| *f != NONE) {
            allow(self.group, file);
        }
    }

    /// Answers all that wait, also those that nobody has read yet.
    pub(super) fn let_all_go(&self) {
        (0..MOST_HELD).for_each(|place| self.let_go(place));
        for (file, _) in read_events(self.group) {
            allow(self.group, file.as_raw_fd());
        }
    }
}

fn allow(group: RawFd, file: RawFd) {
    let answer = libc::fanotify_response {
        fd: file,
        response: libc::FAN_ALLOW,
    };
    // SAFETY: a plain struct of the size given.
    unsafe { libc::write(group, (&raw const answer).cast(), size_of_val(&answer)) };
}

/// Files and processes of all execs that wait and were not read yet.
fn read_events(group: RawFd) -> Vec<(File, u32)> {
    let mut buffer = [0u8; 4096];
    // SAFETY: the buffer has the length given.
    let got = unsafe { libc::read(group, buffer.as_mut_ptr().cast(), buffer.len()) };
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

impl Fanotify {
    pub(super) fn open() -> io::Result<Fanotify> {
        let flags = libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: takes two integers.
        let fd = unsafe {
            libc::fanotify_init(
                flags,
                (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE) as u32,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // As the highest descriptor: when the holder is killed, the kernel queues its descriptors' ends in
        // ascending order and works the queue off from the newest (task_work), and held execs must not wait
        // until the links are detached.
        // SAFETY: a descriptor of ours.
        unsafe {
            let highest = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
            let group = match highest {
                ..0 => fd,
                _ => {
                    libc::close(fd);
                    highest
                }
            };
            Ok(Fanotify {
                group: OwnedFd::from_raw_fd(group),
                held: HeldExecs::of(group),
            })
        }
    }

    /// For a thread that lets them go if need be. Of no use once this is dropped.
    pub(super) fn held(&self) -> Arc<HeldExecs> {
        Arc::clone(&self.held)
    }

    /// Holds execs of one file. A file that cannot be marked is not held; its processes are then caught at exec.
    pub(super) fn watch(&self, path: &Path) {
        let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
            return;
        };
        // SAFETY: the path is NUL-terminated and lives through the call.
        unsafe {
            libc::fanotify_mark(
                self.group.as_raw_fd(),
                libc::FAN_MARK_ADD,
                libc::FAN_OPEN_EXEC_PERM,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
    }

    /// Descriptor to poll: readable when an exec waits.
    pub(super) fn descriptor(&self) -> RawFd {
        self.group.as_raw_fd()
    }

    /// All execs that wait now.
    pub(super) fn read(&self) -> Vec<Held> {
        read_events(self.group.as_raw_fd())
            .into_iter()
            .filter_map(|(file, pid)| {
                let Some(place) = self.held.enter(file.as_raw_fd()) else {
                    allow(self.group.as_raw_fd(), file.as_raw_fd());
                    return None;
                };
                Some(Held {
                    file,
                    pid,
                    place,
                    held: self.held(),
                })
            })
            .collect()
    }
}

/// An exec that waits. Dropping lets it go: whatever fails in between, the program is never blocked.
pub(super) struct Held {
    pub(super) file: File,
    pub(super) pid: u32,
    place: usize,
    held: Arc<HeldExecs>,
}

impl Held {
    /// Whether it waits still: else it was let go because we were late.
    pub(super) fn waits(&self) -> bool {
        self.held.files[self.place].load(Ordering::Acquire) == self.file.as_raw_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.waits() {
            self.held.let_go(self.place);
        }
    }
}
