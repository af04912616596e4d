//! Execs of known files wait for an answer: fanotify.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

/// Above all links of a trace with some hundred processes, below the usual limit of 1,024.
const HIGH_DESCRIPTOR: libc::c_int = 1_000;

/// A group of inode marks whose execs wait for an answer.
pub(super) struct Fanotify(OwnedFd);

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
            if highest < 0 {
                return Ok(Fanotify(OwnedFd::from_raw_fd(fd)));
            }
            libc::close(fd);
            Ok(Fanotify(OwnedFd::from_raw_fd(highest)))
        }
    }

    /// Holds execs of one file. A file that cannot be marked is not held; its processes are then caught at exec.
    pub(super) fn watch(&self, path: &Path) {
        let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
            return;
        };
        // SAFETY: the path is NUL-terminated and lives through the call.
        unsafe {
            libc::fanotify_mark(
                self.0.as_raw_fd(),
                libc::FAN_MARK_ADD,
                libc::FAN_OPEN_EXEC_PERM,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
    }

    /// Descriptor to poll: readable when an exec waits.
    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// All execs that wait now.
    pub(super) fn read(&self) -> Vec<Held> {
        let mut buffer = [0u8; 4096];
        // SAFETY: the buffer has the length given.
        let got =
            unsafe { libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
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
                let file = unsafe { File::from_raw_fd(event.fd) };
                all.push(Held {
                    file,
                    pid: event.pid as u32,
                    group: self.0.as_raw_fd(),
                });
            }
            rest = rest
                .get((event.event_len as usize).max(SIZE)..)
                .unwrap_or_default();
        }
        all
    }
}

/// An exec that waits. Dropping lets it go: whatever fails in between, the program is never blocked.
pub(super) struct Held {
    pub(super) file: File,
    pub(super) pid: u32,
    group: RawFd,
}

impl Drop for Held {
    fn drop(&mut self) {
        let answer = libc::fanotify_response {
            fd: self.file.as_raw_fd(),
            response: libc::FAN_ALLOW,
        };
        // SAFETY: a plain struct of the size given.
        unsafe { libc::write(self.group, (&raw const answer).cast(), size_of_val(&answer)) };
    }
}
