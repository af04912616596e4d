//! Grace periods of the kernel, made short while probes come and go.
//!
//! The first uprobe after a pause waits for a grace period of RCU: 10 to 25 ms, in which the traced program waits, too. With
//! `/sys/kernel/rcu_expedited` set the kernel asks all processors at once instead: 1 to 2 ms for all probes of a node binary (measured, Linux 6.18).
//!
//! The setting is the host's. Processes that want it agree by two files: each holds a shared lock of one for as long as it does, and what that
//! file says tells whether it was us who set it. So the last one puts it back, whoever set it; and if one was killed before it
//! could, the next one does.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

const SETTING: &str = "/sys/kernel/rcu_expedited";
/// Where only root may write. Beside it lies `….lock`, whose owner may look at it and change it.
const AGREEMENT: &str = "/run/nodeprof-expedited";

/// How often, and how long in between, the lock of the agreement is asked for.
const ATTEMPTS: u32 = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_micros(100);

/// How many in this process want it, and what they have for it.
static WANTED: Mutex<(usize, Option<Lease>)> = Mutex::new((0, None));

/// Keeps it set for as long as this lives, if it may be.
#[derive(Debug)]
pub(crate) struct Expedited(());

impl Expedited {
    pub(crate) fn new() -> Expedited {
        let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.0 == 0 {
            // Without it all goes on, but more slowly.
            wanted.1 = Lease::take(Path::new(SETTING), Path::new(AGREEMENT)).ok();
        }
        wanted.0 += 1;
        Expedited(())
    }
}

impl Drop for Expedited {
    fn drop(&mut self) {
        let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.0 -= 1;
        if wanted.0 == 0
            && let Some(lease) = wanted.1.take()
        {
            // It could be set, so it can be put back.
            let _ = lease.give_back();
        }
    }
}

/// One process's part in the agreement.
#[derive(Debug)]
struct Lease {
    setting: PathBuf,
    /// Its owner alone looks and changes.
    mutex: File,
    /// Shared by all who want it.
    users: File,
}

impl Lease {
    fn take(setting: &Path, agreement: &Path) -> io::Result<Lease> {
        // Only who may set it takes part.
        OpenOptions::new().write(true).open(setting)?;
        let mut lock = agreement.as_os_str().to_owned();
        lock.push(".lock");
        let mut lease = Lease {
            setting: setting.to_owned(),
            mutex: open(lock.as_ref())?,
            users: open(agreement)?,
        };
        lock_soon(&lease.mutex)?;
        let is_set = !fs::read(setting)?.starts_with(b"0");
        if lease.users.try_lock().is_ok() {
            // Nobody else: what the file says was written by one that was killed.
            let ours = !is_set || lease.says_ours()?;
            lease.say(ours)?;
        }
        if !is_set {
            fs::write(setting, b"1")?;
        }
        lease.users.lock_shared()?;
        lease.mutex.unlock()?;
        Ok(lease)
    }

    fn give_back(mut self) -> io::Result<()> {
        lock_soon(&self.mutex)?;
        if self.users.try_lock().is_ok() && self.says_ours()? {
            fs::write(&self.setting, b"0")?;
            self.say(false)?;
        }
        // A child that was forked meanwhile has the same locks: to close the files would not do.
        self.users.unlock()?;
        self.mutex.unlock()
    }

    /// Whether it was us who set it.
    fn says_ours(&mut self) -> io::Result<bool> {
        let mut said = String::new();
        self.users.rewind()?;
        self.users.read_to_string(&mut said)?;
        Ok(said == "set")
    }

    fn say(&mut self, ours: bool) -> io::Result<()> {
        self.users.set_len(0)?;
        self.users.rewind()?;
        self.users.write_all(if ours { b"set" } else { b"" })
    }
}

/// Who has it needs it for microseconds; but it may be stopped, and nobody shall wait for that.
fn lock_soon(mutex: &File) -> io::Result<()> {
    for _ in 0..ATTEMPTS {
        match mutex.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN_ATTEMPTS),
            Err(TryLockError::Error(e)) => return Err(e),
            Ok(()) => return Ok(()),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    struct Host {
        folder: tempfile::TempDir,
    }

    impl Host {
        fn with(setting: &str) -> Host {
            let host = Host {
                folder: tempfile::tempdir().unwrap(),
            };
            fs::write(host.setting(), setting).unwrap();
            host
        }

        fn setting(&self) -> PathBuf {
            self.folder.path().join("rcu_expedited")
        }

        fn lease(&self) -> Lease {
            Lease::take(&self.setting(), &self.folder.path().join("agreement")).unwrap()
        }

        fn is(&self) -> u8 {
            fs::read(self.setting()).unwrap()[0]
        }
    }

    #[test]
    fn the_last_one_puts_it_back() {
        let host = Host::with("0\n");
        let (first, second) = (host.lease(), host.lease());
        assert_eq!(host.is(), b'1');
        first.give_back().unwrap();
        assert_eq!(host.is(), b'1');
        second.give_back().unwrap();
        assert_eq!(host.is(), b'0');
    }

    #[test]
    fn nobody_waits_for_one_that_is_stopped() {
        let host = Host::with("0\n");
        let stopped = host.lease();
        stopped.mutex.lock().unwrap();
        let agreement = host.folder.path().join("agreement");
        let refused = Lease::take(&host.setting(), &agreement).map(drop);
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_was_set_before_stays_set() {
        let host = Host::with("1\n");
        host.lease().give_back().unwrap();
        assert_eq!(host.is(), b'1');
    }

    #[test]
    fn what_a_killed_one_left_set_is_put_back_by_the_next() {
        let host = Host::with("0\n");
        drop(host.lease()); // closes its files, as the kernel does for a killed one
        assert_eq!(host.is(), b'1');
        let (next, another) = (host.lease(), host.lease());
        next.give_back().unwrap();
        assert_eq!(host.is(), b'1');
        another.give_back().unwrap();
        assert_eq!(host.is(), b'0');
    }
}
