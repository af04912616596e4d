//! Who holds execs together with the holder: a guard of our own, or the one that systemd starts for us.

use std::{
    io,
    os::fd::RawFd,
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use nodeprof_bpf::hold::{
    Execs,
    guard::{Asked, Guarded, News},
};

/// A guard that does not answer for this long is ended.
const SILENCE: Duration = Duration::from_secs(2);
/// For one that was forked: it answers in 1 ms, unless the machine has no time for it. If it does not within 5 s it is ended, and another one is tried as
/// where none can be had.
const FIRST_WORD: Duration = Duration::from_millis(100);

/// Where none can be had, the next attempt is made after this time, then after twice as long each.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// The guard of a service, if there is to be one.
pub(super) struct Guard {
    /// Where one listens; else we fork one.
    listens_at: Option<PathBuf>,
    wanted: bool,
    guarded: Result<Rc<Guarded>, String>,
    /// One that has not answered yet.
    asked: Option<Asked>,
    /// When to try again, and how long to wait after that.
    retry: Option<(Instant, Duration)>,
    /// The holder is still there which held together with one that has ended.
    is_lost: bool,
    /// When it was asked for a sign of life.
    pinged: Option<Instant>,
    last_ping: Instant,
}

/// What there is to know of the guard.
pub(super) enum Heard {
    /// It found the holder late.
    Late,
    /// There is another one, or none in the place of the last: the holder needs to be replaced.
    Changed,
}

impl Guard {
    /// `wanted`: as configured. `listens_at`: where a guard listens that may do what we may not. Waits for it: nobody is recorded yet.
    pub(super) fn start(wanted: bool, listens_at: Option<PathBuf>) -> Guard {
        let mut guard = Guard {
            listens_at,
            wanted,
            guarded: Err(String::new()),
            asked: None,
            retry: None,
            is_lost: false,
            pinged: None,
            last_ping: Instant::now(),
        };
        guard.renew(wanted);
        while guard.asked.is_some() {
            guard.take_answer(SILENCE);
        }
        guard
    }

    /// Takes another guard, or none. It is taken as soon as it answers.
    pub(super) fn renew(&mut self, wanted: bool) {
        self.wanted = wanted;
        self.retry = None;
        self.is_lost = false;
        self.ask();
    }

    fn ask(&mut self) {
        self.pinged = None;
        self.asked = None;
        self.guarded = Err("turned off in the configuration: hold = false".into());
        if !self.wanted {
            return;
        }
        let started = match &self.listens_at {
            Some(path) => match Guarded::ask(path) {
                Ok(asked) => {
                    self.guarded = Err(format!("{}: it has not answered yet", path.display()));
                    self.asked = Some(asked);
                    return;
                }
                Err(error) => Err(format!("{}: {error}", path.display())),
            },
            None => match Guarded::fork() {
                Ok(asked) => {
                    self.guarded = Err("its guard has not answered yet".into());
                    self.asked = Some(asked);
                    self.take_answer(FIRST_WORD);
                    return;
                }
                Err(error) => Err(error.to_string()),
            },
        };
        self.take(started);
    }

    fn take(&mut self, started: Result<Guarded, String>) {
        let delay = self.retry.map_or(RETRY, |(_, delay)| delay);
        self.retry = match &started {
            Ok(_) => None,
            Err(_) => Some((Instant::now() + delay, (2 * delay).min(LONGEST_RETRY))),
        };
        self.last_ping = Instant::now();
        self.guarded = started.map(Rc::new);
    }

    /// Takes the answer of one that was asked, if it comes in this time.
    fn take_answer(&mut self, patience: Duration) {
        match self.asked.take().map(|asked| asked.answer(patience)) {
            Some(Ok(answer)) => match (&self.listens_at, answer) {
                (None, Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                    // That stays so.
                    self.guarded = Err(
                        "fanotify needs CAP_SYS_ADMIN, here or in nodeprof-holder.service".into(),
                    );
                    self.retry = None;
                }
                (Some(path), Err(error)) => {
                    let why = format!("{}: {error}", path.display());
                    self.take(Err(why));
                }
                (None, Err(error)) => self.take(Err(format!("its guard: {error}"))),
                (_, Ok(guarded)) => self.take(Ok(guarded)),
            },
            Some(Err(asked)) => self.asked = Some(asked),
            None => {}
        }
    }

    /// Sees to it that there is one; whether that has changed.
    fn look_after(&mut self) -> bool {
        if self.guarded.is_ok() {
            return false;
        }
        if self.asked.is_some() {
            self.take_answer(Duration::ZERO);
        } else if self.retry.is_some_and(|(at, _)| Instant::now() >= at) {
            self.ask();
        }
        // Until it is known that there is none the holder goes on without.
        let is_decided = self.asked.is_none() && std::mem::take(&mut self.is_lost);
        self.guarded.is_ok() || is_decided
    }

    /// Whether there is to be one other than now.
    pub(super) fn differs(&self, wanted: bool) -> bool {
        wanted != self.guarded.is_ok()
    }

    /// For the holder.
    pub(super) fn execs(&self) -> Execs {
        match &self.guarded {
            Ok(guarded) => Execs::Guarded(Rc::clone(guarded)),
            Err(why) => Execs::Not(why.clone()),
        }
    }

    /// Where a guard listens that is not our own.
    pub(super) fn listens_at(&self) -> Option<&Path> {
        self.listens_at.as_deref()
    }

    /// To poll.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        let asked = self.asked.as_ref().map(Asked::descriptor);
        let guarded = self.guarded.as_ref().ok();
        asked.or(guarded.map(|guarded| guarded.descriptor()))
    }

    /// Nobody holds any more what was held.
    pub(super) fn let_all_go(&self) {
        if let Ok(guarded) = &self.guarded {
            guarded.let_all_go();
        }
    }

    /// What there is to know. Waits for no guard but for [`FIRST_WORD`] of one that is forked.
    pub(super) fn hear(&mut self) -> Option<Heard> {
        if self.look_after() {
            return Some(Heard::Changed);
        }
        let guarded = self.guarded.as_ref().ok()?;
        let mut is_late = false;
        let mut is_gone = false;
        while let Some(news) = guarded.next() {
            match news {
                News::Alive => self.pinged = None,
                News::Late => is_late = true,
                News::Gone => {
                    is_gone = true;
                    break;
                }
            }
        }
        if self.pinged.is_some_and(|at| at.elapsed() > SILENCE) {
            guarded.kill();
            is_gone = true;
        }
        if is_gone {
            self.ask();
            self.is_lost = true;
            return self.look_after_lost();
        }
        if self.pinged.is_none() && self.last_ping.elapsed() > SILENCE / 2 {
            guarded.ping();
            self.last_ping = Instant::now();
            self.pinged = Some(self.last_ping);
        }
        is_late.then_some(Heard::Late)
    }

    /// Right after the last one has ended: whether it is known already what comes in its place.
    fn look_after_lost(&mut self) -> Option<Heard> {
        let is_decided = self.asked.is_none();
        self.is_lost &= !is_decided;
        is_decided.then_some(Heard::Changed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::{
        io::IoSlice,
        mem::MaybeUninit,
        os::{
            fd::{AsFd as _, OwnedFd},
            unix::ffi::OsStrExt as _,
        },
    };

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
        SocketType, accept, bind, listen, sendmsg, socket,
    };

    use super::*;

    fn listener(path: &Path) -> OwnedFd {
        let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        bind(
            &listener,
            &SocketAddrUnix::new(path.as_os_str().as_bytes()).unwrap(),
        )
        .unwrap();
        listen(&listener, 8).unwrap();
        listener
    }

    /// What a guard says when it has a group: here two other files.
    fn answer(connection: &OwnedFd) {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd(), file.as_fd()];
        assert!(beside.push(SendAncillaryMessage::ScmRights(&files)));
        let message = [b'h', 1, 0, 0, 0];
        let sent = sendmsg(
            connection,
            &[IoSlice::new(&message)],
            &mut beside,
            SendFlags::NOSIGNAL,
        );
        assert_eq!(sent.unwrap(), message.len());
    }

    fn hears_until(guard: &mut Guard, what: impl Fn(&Guard) -> bool) -> usize {
        let begun = Instant::now();
        let mut heard = 0;
        while !what(guard) {
            assert!(
                begun.elapsed() < Duration::from_secs(8),
                "it stays as it is"
            );
            heard += usize::from(guard.hear().is_some());
            std::thread::sleep(Duration::from_millis(5));
        }
        heard
    }

    #[test]
    fn a_guard_that_does_not_answer_keeps_nobody_waiting_and_is_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("holder.sock");
        let mut guard = Guard::start(true, Some(path.clone()));
        assert!(matches!(guard.execs(), Execs::Not(_)), "nobody listens");
        let silent = listener(&path);
        let begun = Instant::now();
        guard.renew(true);
        assert!(guard.hear().is_none());
        assert!(begun.elapsed() < Duration::from_secs(1), "it waits for it");
        answer(&accept(&silent).unwrap());
        let is_held = |guard: &Guard| matches!(guard.execs(), Execs::Guarded(_));
        assert_eq!(hears_until(&mut guard, is_held), 1);
        // It ends, and another one comes only after a while.
        drop(silent);
        std::fs::remove_file(&path).unwrap();
        let is_lost = |guard: &Guard| matches!(guard.execs(), Execs::Not(_));
        guard.renew(true);
        hears_until(&mut guard, is_lost);
        let next = listener(&path);
        let answering = std::thread::spawn(move || {
            let connection = accept(&next).unwrap();
            answer(&connection);
            connection
        });
        assert_eq!(hears_until(&mut guard, is_held), 1);
        answering.join().unwrap();
        guard.renew(false);
        assert!(is_lost(&guard) && guard.hear().is_none());
    }
}
