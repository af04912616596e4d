//! Grace periods of the kernel, made short while probes come and go.
//!
//! The first uprobe after a pause waits for a grace period of RCU: 10 to 25 ms, in which the traced program waits, too. With
//! `/sys/kernel/rcu_expedited` set the kernel asks all processors at once instead: 1 to 2 ms for all probes of a node binary (measured, Linux 6.18).
//!
//! The setting is the host's. Processes that want it agree by two files: each holds a shared lock of one for as long as it does, and what that
//! file says tells whether it was us who set it. So the last one puts it back, whoever set it; and if one was killed before it
//! could, the next one does.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

const SETTING: &str = "/sys/kernel/rcu_expedited";
/// Where only root may write. Beside it lies `….lock`, whose owner may look at it and change it.
const AGREEMENT: &str = "/run/nodeprof-expedited";

/// How often, and how long in between, the lock of the agreement is asked for.
const ATTEMPTS: u32 = 20;
const BETWEEN_ATTEMPTS: Duration = Duration::from_micros(100);

/// How many in this process want it, and its files: a service that attaches for each start on the host does not open them each time.
static WANTED: Mutex<(usize, Option<Agreement>)> = Mutex::new((0, None));

/// Keeps it set for as long as this lives, if it may be.
#[derive(Debug)]
pub(crate) struct Expedited(());

impl Expedited {
    pub(crate) fn new() -> Expedited {
        let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.0 == 0 {
            // Without it all goes on, but more slowly.
            let agreement = match wanted.1.take().filter(Agreement::is_ours) {
                Some(agreement) => Ok(agreement),
                None => Agreement::open(Path::new(SETTING), Path::new(AGREEMENT)),
            };
            wanted.1 = agreement.and_then(Agreement::take).ok();
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
            && let Some(agreement) = &wanted.1
            // It could be set, so it can be put back.
            && agreement.give_back().is_err()
        {
            wanted.1 = None;
        }
    }
}

/// Puts it back, whoever of this process wants it still: it ends.
pub(crate) fn give_up() {
    let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
    if wanted.0 > 0
        && let Some(agreement) = wanted.1.take()
    {
        let _ = agreement.give_back();
    }
}

/// Puts back what a process of ours that was killed has left set, unless others want it.
pub fn restore_grace_periods() {
    drop(Expedited::new());
}

/// One process's part in the agreement.
#[derive(Debug)]
struct Agreement {
    setting: File,
    /// Its owner alone looks and changes.
    mutex: File,
    /// Shared by all who want it.
    users: File,
    /// A fork has the same open files, and a lock is the open file's: it needs its own.
    process: u32,
}

/// What the file of the users says, of one length: it is changed by one write.
const OURS: &[u8; 3] = b"set";
const NOT_OURS: &[u8; 3] = b"---";

impl Agreement {
    fn open(setting: &Path, agreement: &Path) -> io::Result<Agreement> {
        let mut lock = agreement.as_os_str().to_owned();
        lock.push(".lock");
        Ok(Agreement {
            // Only who may set it takes part.
            setting: OpenOptions::new().read(true).write(true).open(setting)?,
            mutex: open(lock.as_ref())?,
            users: open(agreement)?,
            process: std::process::id(),
        })
    }

    /// Whether the files are this process's own, and those that others would open now.
    fn is_ours(&self) -> bool {
        let is_there = |file: &File| file.metadata().is_ok_and(|meta| meta.nlink() > 0);
        self.process == std::process::id() && is_there(&self.mutex) && is_there(&self.users)
    }

    fn take(self) -> io::Result<Agreement> {
        lock_soon(&self.mutex)?;
        let is_set = !self.reads(&self.setting, b"0")?;
        if self.users.try_lock().is_ok() {
            // Nobody else: what the file says was written by one that was killed.
            let ours = !is_set || self.says_ours()?;
            self.say(ours)?;
        }
        if !is_set {
            self.setting.write_all_at(b"1", 0)?;
        }
        self.users.lock_shared()?;
        self.mutex.unlock()?;
        Ok(self)
    }

    fn give_back(&self) -> io::Result<()> {
        lock_soon(&self.mutex)?;
        if self.users.try_lock().is_ok() && self.says_ours()? {
            self.setting.write_all_at(b"0", 0)?;
            self.say(false)?;
        }
        // A child that was forked meanwhile has the same locks: to close the files would not do.
        self.users.unlock()?;
        self.mutex.unlock()
    }

    /// Whether it was us who set it.
    fn says_ours(&self) -> io::Result<bool> {
        self.reads(&self.users, OURS)
    }

    fn say(&self, ours: bool) -> io::Result<()> {
        let text = if ours { OURS } else { NOT_OURS };
        self.users.write_all_at(text, 0)
    }

    /// Whether the file begins so.
    fn reads(&self, file: &File, text: &[u8]) -> io::Result<bool> {
        let mut found = [0; OURS.len()];
        let length = file.read_at(&mut found, 0)?;
        Ok(found[..length].starts_with(text))
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
    use std::{fs, path::PathBuf};

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

        fn lease(&self) -> Agreement {
            self.taken().unwrap()
        }

        fn taken(&self) -> io::Result<Agreement> {
            Agreement::open(&self.setting(), &self.folder.path().join("agreement"))?.take()
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
        let refused = host.taken().map(drop);
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
