//! Where links are closed: in threads that have no other descriptors.
//!
//! The kernel makes whoever closes the last descriptor of a link wait until no thread is inside a call that some return probe of the host waits for,
//! unless that thread has hit no return probe for 0.1 s (`ri_timer` of kernel/events/uprobes.c, which each such hit puts off; measured, Linux 6.18). So a
//! program that never rests can make it wait for minutes; and who waits there cannot be killed, and keeps what its process has open: execs that are held
//! by it, the connection that tells of its end. Such threads therefore have a table of descriptors of their own, with nothing but links in it.

use std::{
    collections::HashSet,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::alone::detaching;

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
        let given = Closers::of_this_process().and_then(|closers| {
            let job = closers.send(&descriptors).ok()?;
            Some((closers, job))
        });
        drop(descriptors); // if they were given not the last ones: the message has them, too
        if let Some((closers, job)) = given {
            closers.jobs.wait(job);
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
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let jobs = Arc::new(Jobs::default());
        let (began, begun) = mpsc::channel();
        let (of_threads, source) = (Arc::clone(&jobs), theirs.as_raw_fd());
        std::thread::Builder::new().spawn(move || {
            let (own, begun) = match own_table(source) {
                // SAFETY: in this table nobody else owns it.
                Ok(()) => (Some(unsafe { OwnedFd::from_raw_fd(source) }), Ok(())),
                Err(error) => (None, Err(error)),
            };
            let _ = began.send(begun);
            if let Some(own) = own {
                take_jobs(&own, &of_threads);
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
        let sent = send(&self.socket, job, descriptors);
        if sent.is_err() {
            self.jobs.end(job);
        }
        sent.map(|()| job)
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
fn take_jobs(source: &OwnedFd, jobs: &Arc<Jobs>) {
    while let Some((job, descriptors)) = receive(source) {
        let of_thread = Arc::clone(jobs);
        let close = move || {
            for link in descriptors {
                detaching(|| drop(link));
            }
            of_thread.end(job);
        };
        if std::thread::Builder::new().spawn(close).is_err() {
            jobs.end(job); // no further thread is to be had: they were closed in here
        }
    }
}

/// Sends the number of a job with its descriptors.
fn send(socket: &OwnedFd, job: u64, descriptors: &[OwnedFd]) -> io::Result<()> {
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(
        socket,
        &[IoSlice::new(&job.to_ne_bytes())],
        &mut control,
        flags,
    )?;
    Ok(())
}

/// `None`: the other end is closed.
fn receive(socket: &OwnedFd) -> Option<(u64, Vec<OwnedFd>)> {
    let mut job = [0; size_of::<u64>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::io::retry_on_intr(|| {
        let flags = RecvFlags::CMSG_CLOEXEC;
        recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut job)],
            &mut control,
            flags,
        )
    });
    if got.ok()?.bytes != job.len() {
        return None;
    }
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    Some((u64::from_ne_bytes(job), descriptors.collect()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::{io::Read as _, os::unix::net::UnixStream, time::Duration};

    use super::*;

    /// Waits for the end: a process that another test has forked has the other side, too, until it executes its program.
    fn read_to_end(mut reader: UnixStream) -> usize {
        reader
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        reader.read(&mut [0]).unwrap()
    }

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
        for reader in readers {
            assert_eq!(read_to_end(reader), 0, "still open");
        }
        kept.set_nonblocking(true).unwrap();
        let still_open = kept.read(&mut [0]).unwrap_err();
        assert_eq!(still_open.kind(), io::ErrorKind::WouldBlock);
        drop(other);
        kept.set_nonblocking(false).unwrap();
        assert_eq!(read_to_end(kept), 0, "the threads have it, too");
    }
}
