//! Execs of known files wait for an answer: fanotify.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    ffi::CString,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::fs::OpenOptionsExt as _,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use nodeprof_probes::is_node_binary;

use super::{guard::Guarded, table::HeldExecs, worker::Version};
use crate::{
    closing::{HIGHEST, as_high},
    looking::{Looking, News},
};

/// A new group, without marks. Needs CAP_SYS_ADMIN; to use it needs nothing.
pub(super) fn new_group() -> io::Result<OwnedFd> {
    // Of which thread an exec is, not only of which process: see `hold` of the keeper.
    let flags =
        libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_REPORT_TID;
    // Of a file under a write lease the kernel waits for its owner, up to 45 s, before it tells anybody of an exec; so no user may make the others wait. Like this
    // it refuses the exec of such a file.
    let opened = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE | libc::O_NONBLOCK;
    // SAFETY: takes two integers; the descriptor is new.
    unsafe {
        match libc::fanotify_init(flags, opened as u32) {
            ..0 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// A group of inode marks whose execs wait for an answer.
pub(super) struct Fanotify {
    held: Arc<HeldExecs>,
    /// What is marked, should the guard take the marks away.
    marked: RefCell<HashMap<PathBuf, Version>>,
}

/// How long to look whether files are node binaries before anything is held. They have been looked at a moment ago.
const EXAMINING: Duration = Duration::from_secs(2);

/// Files that are marked again at most.
const MOST_MARKED: usize = 1024;

/// The node binaries at these paths, as places. Of nothing else execs are held: users decide what lies at the paths of theirs, and a link there may lead to any
/// program of the host. What is left out is then caught at exec.
pub(super) fn node_binaries(paths: &[PathBuf]) -> Vec<(File, PathBuf)> {
    let since = Instant::now();
    // Files of users may take their time to be read.
    let examined = paths.iter().filter(|_| since.elapsed() < EXAMINING);
    let examined = examined.filter_map(|path| Some((node_binary(path)?, path.clone())));
    // Collected: what is marked is so when all are examined, for who executes one of them waits until somebody reads of that.
    examined.collect()
}

/// The same for who must not hang with a file system that does not answer any more.
pub(super) fn node_binaries_that_answer(paths: &[PathBuf]) -> Vec<(File, PathBuf)> {
    let of_child = paths.to_vec();
    let look = move |number: usize| {
        let file = of_child.get(number).and_then(|path| node_binary(path));
        (Vec::new(), file.map(OwnedFd::from))
    };
    let Ok(looking) = Looking::start(paths.len(), EXAMINING, look) else {
        return Vec::new();
    };
    let until = Instant::now() + EXAMINING;
    let mut found = BTreeMap::new();
    // Who is silent is left out, and its process ended, if it can be.
    while let Some(news) = looking.next(until.saturating_duration_since(Instant::now())) {
        match news {
            News::Seen(number, (_, Some(file))) => drop(found.insert(number, File::from(file))),
            News::Seen(..) | News::Silent(_) | News::Behind(_) => {}
            News::AllTold | News::Gone => break,
        }
    }
    let found = found.into_iter();
    found
        .filter_map(|(number, file)| Some((file, paths.get(number)?.clone())))
        .collect()
}

fn node_binary(path: &Path) -> Option<File> {
    open(path)
        .ok()
        .filter(|file| is_node_binary(&through(file)))
}

impl Fanotify {
    /// A group that nobody else knows.
    pub(super) fn open() -> io::Result<Fanotify> {
        let memory = HeldExecs::memory()?;
        Fanotify::of(new_group()?, memory.as_fd())
    }

    /// One that a guard watches, too.
    pub(super) fn guarded(guarded: &Guarded) -> io::Result<Fanotify> {
        let fanotify = Fanotify::of(guarded.group()?, guarded.memory())?;
        let _ = fanotify.held.was_unmarked(); // while the last holder was late
        Ok(fanotify)
    }

    fn of(group: OwnedFd, memory: std::os::fd::BorrowedFd<'_>) -> io::Result<Fanotify> {
        let group = as_high(group, HIGHEST);
        Ok(Fanotify {
            held: Arc::new(HeldExecs::of(group, memory)?),
            marked: RefCell::default(),
        })
    }

    /// For a thread that lets them go if need be.
    pub(super) fn held(&self) -> Arc<HeldExecs> {
        Arc::clone(&self.held)
    }

    /// Holds execs of an open file that is known to be a node binary.
    pub(super) fn watch_file(&self, file: &File, path: &Path) {
        self.mark(file);
        let mut marked = self.marked.borrow_mut();
        if let Ok(version) = Version::of_file(file)
            && (marked.len() < MOST_MARKED || marked.contains_key(path))
        {
            marked.insert(path.to_owned(), version);
        }
    }

    /// Holds execs again of what was marked and is still the same.
    fn mark_again(&self) {
        for (path, version) in self.marked.borrow().iter() {
            if let Ok(file) = open(path)
                && Version::of_file(&file).as_ref() == Ok(version)
            {
                self.mark(&file);
            }
        }
    }

    fn mark(&self, file: &File) {
        let Ok(path) = CString::new(through(file).into_os_string().into_encoded_bytes()) else {
            return;
        };
        // SAFETY: the path is NUL-terminated and lives through the call.
        unsafe {
            libc::fanotify_mark(
                self.held.group(),
                libc::FAN_MARK_ADD,
                libc::FAN_OPEN_EXEC_PERM,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
    }

    /// Nothing is held any more. Whoever closes the group waits for a grace period.
    pub(super) fn close(&self) {
        let _ = self.held.close(); // or when this process ends
    }

    /// Descriptor to poll: readable when an exec waits.
    pub(super) fn descriptor(&self) -> RawFd {
        self.held.group()
    }

    /// All execs that wait now.
    pub(super) fn read(&self) -> Vec<Held> {
        if self.held.was_unmarked() {
            self.mark_again();
        }
        let taken = self.held.take().into_iter();
        taken
            .map(|(file, pid, place)| Held {
                file: Arc::new(file),
                pid,
                place,
                held: self.held(),
            })
            .collect()
    }
}

/// What lies at a path, without opening it for anything: that could wait, or have an effect. Links are followed on the way to it; that no other one has come
/// in its place since, the kernel sees to.
fn open(path: &Path) -> io::Result<File> {
    let is_process = path.starts_with("/proc") && path.ends_with("exe");
    let (real, no_link) = match is_process {
        // The kernel's own link, into whatever file system the process sees.
        true => (path.to_owned(), 0),
        false => (fs::canonicalize(path)?, libc::O_NOFOLLOW),
    };
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_PATH | no_link);
    options.open(real)
}

/// A path that leads to the very file that is open.
fn through(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// An exec that waits. Dropping lets it go: whatever fails in between, the program is never blocked.
pub(super) struct Held {
    /// Its descriptor is the exec's name. While anybody has it, no other exec can get that.
    pub(super) file: Arc<File>,
    /// The thread that executes: the process, if it is its main thread.
    pub(super) pid: u32,
    place: usize,
    held: Arc<HeldExecs>,
}

impl Held {
    /// Whether it waits still: else it was let go because we were late.
    pub(super) fn waits(&self) -> bool {
        self.held.waits(self.place, self.file.as_raw_fd())
    }

    /// Where the file lies.
    pub(super) fn path(&self) -> PathBuf {
        fs::read_link(through(&self.file)).unwrap_or_default()
    }

    /// For another thread.
    pub(super) fn answer(&self) -> Answer {
        Answer {
            file: Arc::clone(&self.file),
            place: self.place,
            held: Arc::clone(&self.held),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.answer().give();
    }
}

/// The answer that an exec waits for.
pub(super) struct Answer {
    file: Arc<File>,
    place: usize,
    held: Arc<HeldExecs>,
}

impl Answer {
    /// Lets the exec go; false if somebody has already.
    pub(super) fn give(&self) -> bool {
        self.held.let_this_go(self.place, self.file.as_raw_fd())
    }
}
