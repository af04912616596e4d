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
    guard::{Guarded, News},
};

/// A guard that does not answer for this long is ended.
const SILENCE: Duration = Duration::from_secs(2);

/// The guard of a service, if there is to be one.
pub(super) struct Guard {
    /// Where one listens; else we fork one.
    listens_at: Option<PathBuf>,
    guarded: Result<Rc<Guarded>, String>,
    /// When it was asked for a sign of life.
    pinged: Option<Instant>,
    last_ping: Instant,
}

impl Guard {
    /// `wanted`: as configured. `listens_at`: where a guard listens that may do what we may not.
    pub(super) fn start(wanted: bool, listens_at: Option<PathBuf>) -> Guard {
        let mut guard = Guard {
            listens_at,
            guarded: Err(String::new()),
            pinged: None,
            last_ping: Instant::now(),
        };
        guard.renew(wanted);
        guard
    }

    /// Takes another guard, or none.
    pub(super) fn renew(&mut self, wanted: bool) {
        self.pinged = None;
        self.guarded = Err("turned off in the configuration: hold = false".into());
        if !wanted {
            return;
        }
        let started = match &self.listens_at {
            Some(path) => {
                Guarded::connect(path).map_err(|error| format!("{}: {error}", path.display()))
            }
            None => Guarded::fork().map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    "fanotify needs CAP_SYS_ADMIN, here or in nodeprof-holder.service".into()
                }
                _ => error.to_string(),
            }),
        };
        self.guarded = started.map(Rc::new);
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
        self.guarded
            .as_ref()
            .ok()
            .map(|guarded| guarded.descriptor())
    }

    /// Nobody holds any more what was held.
    pub(super) fn let_all_go(&self) {
        if let Ok(guarded) = &self.guarded {
            guarded.let_all_go();
        }
    }

    /// What there is to know: that the holder was late, or that the guard has ended.
    pub(super) fn hear(&mut self) -> Option<News> {
        let guarded = self.guarded.as_ref().ok()?;
        let mut heard = None;
        while let Some(news) = guarded.next() {
            match news {
                News::Alive => self.pinged = None,
                News::Late => heard = Some(news),
                News::Gone => return Some(news),
            }
        }
        if self.pinged.is_some_and(|at| at.elapsed() > SILENCE) {
            guarded.kill();
            return Some(News::Gone);
        }
        if self.pinged.is_none() && self.last_ping.elapsed() > SILENCE / 2 {
            guarded.ping();
            self.last_ping = Instant::now();
            self.pinged = Some(self.last_ping);
        }
        heard
    }
}
