//! The guard: a process that makes the fanotify group, and lets held execs go when the holder does not.
//!
//! A program whose exec waits for a process that hangs, hangs with it. So two processes have the group, and both would have to
//! hang: the holder, which reads the events and answers them, and the guard, which sleeps until an exec waits and then looks
//! every few milliseconds whether the holder does its work. If not, the guard answers, takes the marks away (so that no further exec
//! waits), and tells the service. The holder puts them back when it runs again.
//!
//! The guard alone needs `CAP_SYS_ADMIN`, to make the group; to mark files by it, to read and to answer need no privilege. So the
//! guard can be a small process of its own that does nothing else (`nodeprof-holder`), which hands the group over a Unix socket.

use std::{
    ffi::CStr,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt as _,
    },
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with, socketpair,
};

use super::{act_first_of_all, fanotify::new_group, leave_terminal, table::HeldExecs};

/// How often the guard looks while an exec waits.
const LOOK_IN: Duration = Duration::from_millis(4);
/// An exec that the holder has not read for this long is let go, and all others: the holder hangs.
const UNREAD: Duration = Duration::from_millis(36);
/// An exec that the holder keeps for this long is let go. It does so itself after 40 ms.
const KEPT: Duration = Duration::from_millis(41);
/// How long to wait for a guard that is to begin.
const BEGINNING: Duration = Duration::from_secs(5);

/// What a guard says: one byte a message.
const HERE: u8 = b'h';
const CANNOT: u8 = b'e';
const ALIVE: u8 = b'p';
const LATE: u8 = b'l';

/// News of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It answers a [`Guarded::ping`].
    Alive,
    /// The holder did not look for execs that waited: they were let go.
    Late,
    /// The guard has ended.
    Gone,
}

/// The service's end of a guard.
pub struct Guarded {
    socket: OwnedFd,
    group: OwnedFd,
    memory: OwnedFd,
    pid: libc::pid_t,
    /// Of a guard that was forked.
    _child: Option<Child>,
}

impl Guarded {
    /// Forks a guard; its answer is `EPERM` without CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// If there can be no socket or process.
    pub fn fork() -> io::Result<Asked> {
        let (socket, pid) = fork_apart(c"nodeprof-guard", |socket| guard(&socket))?;
        Ok(Asked {
            socket,
            since: Instant::now(),
            child: Some(Child(pid)),
        })
    }

    /// Asks the guard that listens at this path.
    ///
    /// # Errors
    /// If nobody listens, or it cannot make a group.
    pub fn connect(path: &Path) -> io::Result<Guarded> {
        Guarded::ask(path)?.wait()
    }

    /// The same without waiting for its answer.
    ///
    /// # Errors
    /// If nobody listens, or too many others ask.
    pub fn ask(path: &Path) -> io::Result<Asked> {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        connect(&socket, &SocketAddrUnix::new(path.as_os_str().as_bytes())?)?;
        Ok(Asked {
            socket,
            since: Instant::now(),
            child: None,
        })
    }

    /// Waits for its first message.
    fn of(socket: OwnedFd) -> io::Result<Guarded> {
        if !is_readable(socket.as_raw_fd(), BEGINNING) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut bytes = [0u8; 5];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(
            &socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let number = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        match (got.bytes, bytes[0]) {
            (5, HERE) => {}
            (5, CANNOT) => return Err(io::Error::from_raw_os_error(number)),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        let mut handed = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        match (handed.next(), handed.next()) {
            (Some(group), Some(memory)) => Ok(Guarded {
                socket,
                group,
                memory,
                pid: number,
                _child: None,
            }),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(super) fn group(&self) -> io::Result<OwnedFd> {
        self.group.try_clone()
    }

    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Process id of the guard.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Descriptor to poll for news.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The next piece of news; does not wait.
    pub fn next(&self) -> Option<News> {
        let mut kind = [0u8];
        match rustix::net::recv(&self.socket, &mut kind, RecvFlags::DONTWAIT) {
            Err(rustix::io::Errno::AGAIN) => None,
            Ok((_, 1)) if kind[0] == ALIVE => Some(News::Alive),
            Ok((_, 1)) if kind[0] == LATE => Some(News::Late),
            _ => Some(News::Gone),
        }
    }

    /// Asks for a sign of life.
    pub fn ping(&self) {
        let _ = rustix::net::send(
            &self.socket,
            &[ALIVE],
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        );
    }

    /// Lets all execs go that wait: their holder is no more.
    pub fn let_all_go(&self) {
        if let Ok(held) = self
            .group()
            .and_then(|group| HeldExecs::of(group, self.memory()))
        {
            held.let_all_go();
            held.let_lost_go();
        }
    }

    /// Ends a guard that gives no sign of life. Another one can take its place.
    pub fn kill(&self) {
        // SAFETY: takes integers.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }
}

/// A guard that was asked or forked, and is yet to answer. Who drops one that was forked ends it.
pub struct Asked {
    socket: OwnedFd,
    since: Instant,
    child: Option<Child>,
}

impl Asked {
    /// Descriptor to poll for the answer.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Waits for the answer, up to 5 s.
    ///
    /// # Errors
    /// If there is none, or it cannot make a group: for one that was forked `EPERM` without CAP_SYS_ADMIN.
    pub fn wait(self) -> io::Result<Guarded> {
        self.answer(BEGINNING)
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The answer, waiting for it no longer than this; itself, if there is none. A guard that has not answered in 5 s is an error.
    pub fn answer(self, patience: Duration) -> Result<io::Result<Guarded>, Asked> {
        if is_readable(self.socket.as_raw_fd(), patience) {
            Ok(Guarded::of(self.socket).map(|guarded| Guarded {
                _child: self.child,
                ..guarded
            }))
        } else if self.since.elapsed() > BEGINNING {
            Ok(Err(io::ErrorKind::TimedOut.into()))
        } else {
            Err(self)
        }
    }
}

/// A guard that was forked; it ends when this is dropped, also one that hangs or is stopped.
struct Child(libc::pid_t);

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: our own child, which nobody else reaps, and whose end is sure.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Forks a process that has nothing but a socket, does this, and ends. Our end of the socket, and its number.
pub(crate) fn fork_apart(
    name: &CStr,
    act: impl FnOnce(OwnedFd),
) -> io::Result<(OwnedFd, libc::pid_t)> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: the child only uses what it has copies of, and leaves by _exit.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            leave_terminal();
            let theirs = keep_only(theirs);
            // SAFETY: a string with its end.
            unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
            let outcome = catch_unwind(AssertUnwindSafe(|| act(theirs)));
            // SAFETY: ends this process, with its threads.
            unsafe { libc::_exit(i32::from(outcome.is_err())) }
        }
        pid => Ok((ours, pid)),
    }
}

/// Closes all else that a fork has brought along: the other end of a socket among it, whose end others wait for.
fn keep_only(socket: OwnedFd) -> OwnedFd {
    const KEPT: RawFd = 3;
    // SAFETY: this process goes on to use the socket and the standard streams alone; the new descriptor is nobody else's.
    unsafe {
        if socket.as_raw_fd() == KEPT {
            libc::close_range(KEPT as u32 + 1, u32::MAX, 0);
            return socket;
        }
        libc::dup2(socket.into_raw_fd(), KEPT);
        libc::close_range(KEPT as u32 + 1, u32::MAX, 0);
        OwnedFd::from_raw_fd(KEPT)
    }
}

/// Makes a group, hands it to who is at the other end of this socket (of type `SOCK_SEQPACKET`), and guards it until that is gone.
pub fn guard(socket: &OwnedFd) {
    act_first_of_all();
    let made = new_group().and_then(|group| Ok((group, HeldExecs::memory()?)));
    let (group, memory) = match made {
        Ok(made) => made,
        Err(why) => {
            let _ = hand(socket, CANNOT, why.raw_os_error().unwrap_or(0), &[]);
            return;
        }
    };
    let handed = hand(
        socket,
        HERE,
        std::process::id() as i32,
        &[group.as_fd(), memory.as_fd()],
    );
    let (Ok(()), Ok(held)) = (handed, HeldExecs::of(group, memory.as_fd())) else {
        return;
    };
    loop {
        let [is_asked, one_waits] = wait([socket.as_raw_fd(), held.group()], None);
        if is_asked && answer(socket).is_err() {
            break;
        }
        // It may be the holder's by now, and the ping have come first.
        if one_waits || held.is_holding() {
            watch(socket, &held);
        }
    }
    held.unmark();
    held.let_all_go();
}

/// Looks after the holder as long as an exec waits.
fn watch(socket: &OwnedFd, held: &HeldExecs) {
    let (mut looks, mut unread_since) = (held.looks(), Instant::now());
    loop {
        if let [true] = wait([socket.as_raw_fd()], Some(LOOK_IN)) {
            return; // may be the end of the service: first of all
        }
        let are_held = held.let_go_after(KEPT);
        let [is_unread] = wait([held.group()], Some(Duration::ZERO));
        if !is_unread && !are_held {
            return;
        }
        if !is_unread || held.looks() != looks {
            (looks, unread_since) = (held.looks(), Instant::now());
        } else if unread_since.elapsed() > UNREAD {
            held.unmark();
            held.let_all_go();
            let _ = rustix::net::send(socket, &[LATE], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// Answers a ping. An error: the service is gone.
fn answer(socket: &OwnedFd) -> io::Result<()> {
    let mut asked = [0u8];
    match rustix::net::recv(socket, &mut asked, RecvFlags::DONTWAIT)? {
        (_, 0) => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(socket, &[ALIVE], flags);
            Ok(())
        }
    }
}

fn hand(socket: &OwnedFd, kind: u8, number: i32, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut bytes = vec![kind];
    bytes.extend(number.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

pub(crate) fn is_readable(descriptor: RawFd, limit: Duration) -> bool {
    wait([descriptor], Some(limit)) == [true]
}

/// Which of these are readable, or at their end; waits for the first.
fn wait<const N: usize>(descriptors: [RawFd; N], limit: Option<Duration>) -> [bool; N] {
    let mut asked = descriptors.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    let limit = limit.map_or(-1, |limit| limit.as_millis() as libc::c_int);
    // SAFETY: as many as given.
    unsafe { libc::poll(asked.as_mut_ptr(), N as libc::nfds_t, limit) };
    asked.map(|fd| fd.revents != 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    #[allow(
        clippy::zombie_processes,
        reason = "who drops what was asked waits for it"
    )]
    fn a_forked_guard_that_does_not_answer_is_ended_and_nobody_waits_for_it_longer() {
        let silent = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let pid = silent.id() as libc::pid_t;
        // SAFETY: our own child. It is stopped: of itself it will never end.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        let kind = SocketType::SEQPACKET;
        let (ours, _theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let begun = Instant::now();
        let asked = Asked {
            socket: ours,
            since: begun,
            child: Some(Child(pid)),
        };
        let Err(mut asked) = asked.answer(Duration::from_millis(10)) else {
            panic!("it has answered");
        };
        asked.since = begun.checked_sub(2 * BEGINNING).unwrap();
        let Ok(Err(error)) = asked.answer(Duration::ZERO) else {
            panic!("it is waited for");
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < BEGINNING);
        // SAFETY: takes integers; signal 0 is none.
        assert_eq!(unsafe { libc::kill(pid, 0) }, -1, "it is still there");
    }
}
