//! Where links are closed: in threads that have no other descriptors.
//!
//! The kernel makes whoever closes the last descriptor of a link wait until no thread is inside a call that some return probe of the host waits for,
//! unless that thread has hit no return probe for 0.1 s (`ri_timer` of kernel/events/uprobes.c, which each such hit puts off; measured, Linux 6.18). So a
//! program that never rests can make it wait for minutes; and who waits there cannot be killed, and keeps what its process has open: execs that are held
//! by it, the connection that tells of its end. Such threads therefore have a table of descriptors of their own, with nothing but links in it.

use std::{
    collections::HashSet,
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc},
};

/// Descriptors from here on are links of return probes.
pub(crate) const OF_RETURNS: libc::c_int = 512;
/// Above all links of a trace with some hundred processes, below the usual limit of 1,024.
pub(crate) const HIGHEST: libc::c_int = 1_000;

/// The same descriptor under a number of at least so much, if there is a free one. When a process is killed, the kernel queues its descriptors' ends in
/// ascending order and works the queue off from the newest (task_work). So neither held execs nor the tracer wait until links are detached; and probes of
/// returns go before others, whose end may wait for a program that hits them again and again.
pub(crate) fn as_high(descriptor: OwnedFd, least: libc::c_int) -> OwnedFd {
    // SAFETY: a descriptor of ours; the one it gives is new.
    unsafe {
        match libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) {
            ..0 => descriptor,
            highest => OwnedFd::from_raw_fd(highest),
        }
    }
}

/// Descriptors in a message; the kernel permits 253 (`SCM_MAX_FD`).
const MOST: usize = 128;

/// Closes descriptors and waits for that, which may take long.
pub(crate) fn close_apart(mut descriptors: Vec<OwnedFd>) {
    while !descriptors.is_empty() {
        let rest = descriptors.split_off(descriptors.len().min(MOST));
        if let Some(closers) = Closers::of_this_process() {
            match closers.send(&descriptors) {
                Ok(job) => {
                    drop(descriptors); // not the last ones: the message has them, too
                    closers.wait(job);
                }
                Err(_) => drop(descriptors),
            }
        }
        descriptors = rest;
    }
}

/// The threads, seen from the others.
struct Closers {
    /// A fork has none of them.
    process: u32,
    socket: OwnedFd,
    jobs: Arc<Jobs>,
}

static CLOSERS: Mutex<Option<Arc<Closers>>> = Mutex::new(None);

impl Closers {
    /// `None`: there can be none here.
    fn of_this_process() -> Option<Arc<Closers>> {
        let mut closers = CLOSERS.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if closers.as_ref().is_none_or(|c| c.process != process) {
            *closers = Closers::start(process).map(Arc::new).ok();
        }
        closers.clone()
    }

    fn start(process: u32) -> io::Result<Closers> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: `ends` has room for two descriptors.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: two new descriptors that nobody else owns.
        let (socket, theirs) =
            unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        let jobs = Arc::new(Jobs::default());
        let (began, begun) = mpsc::channel();
        let (of_threads, source) = (Arc::clone(&jobs), theirs.as_raw_fd());
        std::thread::Builder::new().spawn(move || {
            let own = own_table(source);
            let is_apart = own.is_ok();
            let _ = began.send(own);
            if is_apart {
                take_jobs(source, &of_threads);
            }
        })?;
        // Theirs is closed here when they have their own.
        begun.recv().map_err(io::Error::other)??;
        Ok(Closers {
            process,
            socket,
            jobs,
        })
    }

    fn send(&self, descriptors: &[OwnedFd]) -> io::Result<u64> {
        let job = self.jobs.begin();
        let mut message = Message::new(job);
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let sent = message.send(&self.socket, &raw);
        if sent.is_err() {
            self.jobs.end(job);
        }
        sent.map(|()| job)
    }

    fn wait(&self, job: u64) {
        self.jobs.wait(job);
    }
}

/// What is not closed yet.
#[derive(Default)]
struct Jobs {
    /// Those under way, and the number of the last one.
    open: Mutex<(HashSet<u64>, u64)>,
    changed: Condvar,
}

impl Jobs {
    fn begin(&self) -> u64 {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.1 += 1;
        let job = open.1;
        open.0.insert(job);
        job
    }

    fn end(&self, job: u64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.0.remove(&job);
        self.changed.notify_all();
    }

    fn wait(&self, job: u64) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let _open = self
            .changed
            .wait_while(open, |open| open.0.contains(&job))
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// Gives the calling thread, and those that it makes, a table of descriptors of their own, with this one in it.
fn own_table(only: RawFd) -> io::Result<()> {
    let only = only as libc::c_uint;
    // SAFETY: takes integers. This thread has nothing open that it could use afterwards but `only`.
    unsafe {
        if libc::unshare(libc::CLONE_FILES) < 0
            || (only > 0 && libc::syscall(libc::SYS_close_range, 0, only - 1, 0) < 0)
            || libc::syscall(libc::SYS_close_range, only + 1, libc::c_uint::MAX, 0) < 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Closes what comes, each message in a thread of its own, until the process closes the other end. Nothing here may use a descriptor of the
/// process: in this table its number is nobody's, or another link's.
fn take_jobs(source: RawFd, jobs: &Arc<Jobs>) {
    let mut message = Message::new(0);
    while let Some(descriptors) = message.receive(source) {
        let (job, of_thread) = (message.job, Arc::clone(jobs));
        let close = move || {
            drop(descriptors);
            of_thread.end(job);
        };
        if std::thread::Builder::new().spawn(close).is_err() {
            jobs.end(job); // no further thread is to be had: they were closed in here
        }
    }
}

/// A number with descriptors.
struct Message {
    job: u64,
    /// Room for a header and [`MOST`] descriptors, in words for the alignment of `cmsghdr`.
    control: [u64; 2 + MOST / 2],
}

impl Message {
    fn new(job: u64) -> Message {
        Message {
            job,
            control: [0; 2 + MOST / 2],
        }
    }

    fn header(&mut self, part: &mut libc::iovec, room: usize) -> libc::msghdr {
        *part = libc::iovec {
            iov_base: (&raw mut self.job).cast(),
            iov_len: size_of::<u64>(),
        };
        // SAFETY: zeros are a valid msghdr.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_iov = part;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        header.msg_controllen = room;
        header
    }

    fn send(&mut self, socket: &OwnedFd, descriptors: &[RawFd]) -> io::Result<()> {
        let bytes = size_of_val(descriptors) as libc::c_uint;
        let mut part = MaybeUninit::<libc::iovec>::zeroed();
        // SAFETY: zeros are a valid iovec; the sizes are those of the kernel's own macros, and at most those of `control`.
        unsafe {
            let room = libc::CMSG_SPACE(bytes) as usize;
            assert!(room <= size_of_val(&self.control), "too many at once");
            let header = self.header(part.assume_init_mut(), room);
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(bytes) as _;
            let data = libc::CMSG_DATA(first).cast::<RawFd>();
            std::ptr::copy_nonoverlapping(descriptors.as_ptr(), data, descriptors.len());
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            if libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// `None`: the other end is closed.
    fn receive(&mut self, socket: RawFd) -> Option<Vec<OwnedFd>> {
        let mut part = MaybeUninit::<libc::iovec>::zeroed();
        let room = size_of_val(&self.control);
        // SAFETY: as above; what the kernel has put there is read within the length that it tells.
        unsafe {
            let mut header = self.header(part.assume_init_mut(), room);
            loop {
                match libc::recvmsg(socket, &raw mut header, libc::MSG_CMSG_CLOEXEC) {
                    1.. => break,
                    -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                    _ => return None,
                }
            }
            let mut descriptors = Vec::new();
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            if !first.is_null() && (*first).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*first).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(first).cast::<RawFd>();
                let given = std::slice::from_raw_parts(data, bytes / size_of::<RawFd>());
                descriptors.extend(given.iter().map(|&fd| OwnedFd::from_raw_fd(fd)));
            }
            Some(descriptors)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::{io::Read as _, os::unix::net::UnixStream};

    use super::*;

    #[test]
    fn what_is_given_is_closed_and_nothing_else() {
        let (mut kept, other) = UnixStream::pair().unwrap();
        let mut readers = Vec::new();
        let mut given: Vec<OwnedFd> = Vec::new();
        for _ in 0..MOST + 3 {
            let (reader, writer) = UnixStream::pair().unwrap();
            readers.push(reader);
            given.push(writer.into());
        }
        close_apart(given);
        for mut reader in readers {
            reader.set_nonblocking(true).unwrap();
            assert_eq!(reader.read(&mut [0]).unwrap(), 0, "still open");
        }
        kept.set_nonblocking(true).unwrap();
        let still_open = kept.read(&mut [0]).unwrap_err();
        assert_eq!(still_open.kind(), io::ErrorKind::WouldBlock);
        drop(other);
        assert_eq!(kept.read(&mut [0]).unwrap(), 0, "the threads have it, too");
    }
}
