//! Where recorded starts are kept: one database, each start a run in it.
//!
//! One thread writes, off the way of what is recorded: starts come to it by a queue of limited length and size, and what does not
//! fit is counted and told. It never logs nor prints: what happens is handed back, so that no lock of it can be held while a holder is
//! forked. A damaged database is set aside and a new one begun; a full disk stops recording until there is space.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{
            Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
        },
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

use nodeprof_profile::{
    Recording,
    store::database::{Database, DatabaseError, Limits, RunNumber},
};

use crate::{background::Background, event};

use super::{
    config::StoreLimits,
    metrics::{Metrics, Observed, counts},
    readers::Readers,
};

/// Name of the database in its folder.
pub const FILE: &str = "starts.db";
/// Starts that wait to be written.
const MOST_QUEUED: usize = 512;
/// And bytes of them, about.
const MOST_QUEUED_BYTES: u64 = 64 << 20;
/// A recording of so many bytes, about, is there twice while it is written, for the case that the database turns out damaged just then.
const MOST_COPIED_BYTES: u64 = 4 << 20;
/// The thread that writes leaves the processors to others. Not while more starts wait than so many, nor where one was not written for so long.
const MOST_BEHIND: usize = 16;
const BEHIND: Duration = Duration::from_millis(500);
/// After that it takes its turn for so long.
const CROWDED: Duration = Duration::from_secs(10);
/// Bytes that must be free on the disk for recording to go on after it was full.
pub(super) const SPACE: u64 = 16 << 20;
/// How often a full disk is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How often runs are looked through that became too old.
const TIDY: Duration = Duration::from_secs(60);
/// Bytes of SQLite's log. While readers overlap it grows; above this they wait for a moment in which it is emptied.
const LARGEST_LOG: u64 = 64 << 20;
/// The same while nothing is to be written, or on a full disk. SQLite itself leaves 8 MB (`journal_size_limit` of write.rs).
const LARGEST_LOG_AT_REST: u64 = 1 << 20;
/// How often that moment is looked for while readers wait.
const LOOK_FOR_IT: Duration = Duration::from_millis(20);
/// Readers that are no clients of the service do not wait: then it is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// And for so long each time.
const PATIENCE: Duration = Duration::from_millis(200);
/// A database of up to this size is checked page by page when it is opened: that takes half a second at most.
const CHECKED_BYTES: u64 = 256 << 20;
/// Recordings of older versions of nodeprofd, one in a file.
const ENDING: &str = ".nodeprof";

/// Why there can be no store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder cannot be used.
    #[error("the folder {} cannot be used ({error}); needed: one that nodeprofd may write to", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The database cannot.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Nobody can write to it.
    #[error("starting the thread that writes: {0}")]
    Thread(io::Error),
}

/// What became of a start, or of the store.
#[derive(Debug)]
pub enum Outcome {
    /// A start is in the database.
    Kept {
        /// Process.
        pid: u32,
        /// Its number.
        run: RunNumber,
        /// Calls to C++.
        crossings: u64,
        /// package.json lookups.
        lookups: usize,
    },
    /// It is not.
    Lost {
        /// Process.
        pid: u32,
        /// Why.
        why: String,
    },
    /// The database was damaged; a new one is there.
    SetAside {
        /// Where the damaged one is.
        at: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The database was removed, or another file put in its place; a new one is there.
    Removed {
        /// Where.
        at: PathBuf,
    },
    /// There is no space: nothing is recorded until there is.
    Full,
    /// There is space again.
    Space,
    /// Recordings of an older version are in the database now.
    Imported(usize),
    /// One of them cannot be read, and stays where it is.
    NotImported {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// One of them is in the database, and its file cannot be removed: it is taken in again when the service begins.
    NotRemoved {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// So many old runs cannot be read: they stay as they are until they are to be removed.
    Unreadable(usize),
    /// Old runs could not be removed.
    NotTidied(String),
}

/// What the store is like now.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct State {
    /// The file.
    pub file: PathBuf,
    /// Runs in it.
    pub runs: usize,
    /// Bytes in use.
    pub bytes: u64,
    /// Starts that wait to be written.
    pub queued: usize,
    /// Starts that were written since the service began.
    pub kept: u64,
    /// Starts that could not be, since then.
    pub lost: u64,
    /// There is no space.
    pub full: bool,
    /// Where a damaged database was set aside, the last time.
    pub set_aside: Option<PathBuf>,
}

enum Job {
    Keep {
        pid: u32,
        owner: Option<u32>,
        recording: Box<Recording>,
        weight: u64,
    },
    Limits(StoreLimits),
    End,
}

/// What both threads look at.
#[derive(Debug, Default)]
struct Shared {
    state: State,
    queued_bytes: u64,
    /// Since when something waits, or what waited before it was written; `None` if nothing does.
    since: Option<Instant>,
    /// The thread that writes is waited for.
    is_ending: bool,
}

impl Shared {
    /// Something is written, or is not to be.
    fn take_off(&mut self, weight: u64) {
        self.queued_bytes -= weight;
        self.state.queued -= 1;
        self.since = (self.state.queued > 0).then(Instant::now);
    }

    /// Whether the writing thread has not got the processor that it needs.
    fn is_behind(&self) -> bool {
        self.state.queued > MOST_BEHIND || self.since.is_some_and(|since| since.elapsed() > BEHIND)
    }
}

/// The store, as the service sees it.
#[derive(Debug)]
pub struct Store {
    jobs: SyncSender<Job>,
    outcomes: Receiver<Outcome>,
    wake: Arc<OwnedFd>,
    shared: Arc<Mutex<Shared>>,
    metrics: Arc<Metrics>,
    readers: Arc<Readers>,
    background: Arc<Background>,
    over: Arc<AtomicBool>,
    watching: Option<JoinHandle<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the database, or begins one, and starts the thread that writes to it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(limits: &StoreLimits) -> Result<Store, StoreError> {
        Store::open_with(limits, LARGEST_LOG)
    }

    fn open_with(limits: &StoreLimits, largest_log: u64) -> Result<Store, StoreError> {
        let folder = &limits.directory;
        fs::create_dir_all(folder).map_err(|error| StoreError::Folder {
            folder: folder.clone(),
            error,
        })?;
        let (jobs, to_do) = sync_channel(MOST_QUEUED);
        let (writer, outcomes) = Writer::new(limits, largest_log)?;
        let (wake, shared) = (writer.wake.clone(), writer.shared.clone());
        let (metrics, readers) = (writer.metrics.clone(), writer.readers.clone());
        let background = writer.background.clone();
        let thread = std::thread::Builder::new().name("store".into());
        let thread = thread.spawn(move || writer.run(&to_do));
        let (over, watched) = (Arc::new(AtomicBool::new(false)), background.clone());
        let watching = std::thread::Builder::new().name("store-watch".into());
        let watching = watching.spawn({
            let over = over.clone();
            move || watched.watch(&over, BEHIND)
        });
        Ok(Store {
            jobs,
            outcomes,
            wake,
            shared,
            metrics,
            readers,
            background,
            over,
            watching: Some(watching.map_err(StoreError::Thread)?),
            thread: Some(thread.map_err(StoreError::Thread)?),
        })
    }

    /// Hands a recording of one start over, of this user. What becomes of it comes back by [`next`](Store::next).
    ///
    /// # Errors
    /// Why it is lost at once.
    pub fn keep(&self, pid: u32, owner: Option<u32>, recording: Recording) -> Result<(), String> {
        let weight = weight(&recording);
        {
            let mut shared = lock(&self.shared);
            if shared.queued_bytes + weight > MOST_QUEUED_BYTES {
                shared.state.lost += 1;
                // It would keep all others out while it is written.
                return Err(match weight > MOST_QUEUED_BYTES {
                    true => format!(
                        "its recording has {} MB in memory; needed: at most {}",
                        weight >> 20,
                        MOST_QUEUED_BYTES >> 20
                    ),
                    false => behind(),
                });
            }
            shared.queued_bytes += weight;
            shared.state.queued += 1;
            shared.since.get_or_insert_with(Instant::now);
        }
        let job = Job::Keep {
            pid,
            owner,
            recording: Box::new(recording),
            weight,
        };
        let why = match self.jobs.try_send(job) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(_)) => behind(),
            Err(TrySendError::Disconnected(_)) => "the thread that writes has ended".to_owned(),
        };
        let mut shared = lock(&self.shared);
        shared.take_off(weight);
        shared.state.lost += 1;
        Err(why)
    }

    /// Other limits from now on.
    pub fn limits(&self, limits: &StoreLimits) {
        // A full queue is a reason to wait here: the limits must not be lost.
        self.background.end();
        let _ = self.jobs.send(Job::Limits(limits.clone()));
    }

    /// What happened, if anything did. To be asked for often: it sees to it that the thread that writes has a processor, too.
    pub fn next(&self) -> Option<Outcome> {
        if lock(&self.shared).is_behind() {
            self.background.end();
        }
        event::clear(&self.wake);
        self.outcomes.try_recv().ok()
    }

    /// What the store is like.
    pub fn state(&self) -> State {
        lock(&self.shared).state.clone()
    }

    /// Sums over all starts that were kept.
    pub(super) fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Who reads it.
    pub(super) fn readers(&self) -> Arc<Readers> {
        self.readers.clone()
    }

    /// Writes what waits, and closes the database; returns what happened meanwhile.
    pub fn end(&mut self) -> Vec<Outcome> {
        lock(&self.shared).is_ending = true;
        self.background.end();
        let _ = self.jobs.send(Job::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.over.store(true, Ordering::Release);
        if let Some(watching) = self.watching.take() {
            watching.thread().unpark();
            let _ = watching.join();
        }
        self.outcomes.try_iter().collect()
    }
}

impl AsRawFd for Store {
    /// Readable when there is something for [`Store::next`].
    fn as_raw_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }
}

fn behind() -> String {
    "the store is too slow: too many starts wait to be written".to_owned()
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of a recording in memory, about.
fn weight(recording: &Recording) -> u64 {
    let rows = recording.crossings.len()
        + recording.crossing_sums.len()
        + recording.lookups.len()
        + recording.files.len()
        + recording.serializations.len()
        + recording.serialization_sums.len()
        + recording.compilations.len()
        + recording.samples.len()
        + recording.waits.len()
        + recording.frames.len()
        + recording.stacks.len()
        + recording.imports.len()
        + recording.continuations.len();
    let names: usize = recording.names.iter().map(|name| name.len() + 24).sum();
    4096 + 80 * rows as u64 + names as u64
}

/// Files of an older version, which kept each start by itself: oldest first.
fn old_recordings(folder: &Path) -> Vec<PathBuf> {
    let folders = [folder.to_owned(), folder.join("starts")];
    let mut files: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_start(path) && path.symlink_metadata().is_ok_and(|m| m.is_file()))
        .collect();
    // By name, which begins with the time; taken from the end.
    files.sort_by(|a, b| b.file_name().cmp(&a.file_name()));
    files
}

/// What SQLite keeps beside the database: its log, and an index of that.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// One of these files, by its ending.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Device and inode.
fn file_id(file: &Path) -> Option<(u64, u64)> {
    let meta = fs::metadata(file).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// `TIME-PID.nodeprof`.
fn is_start(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let parts = name.and_then(|name| name.strip_suffix(ENDING)?.split_once('-'));
    parts.is_some_and(|(time, pid)| time.parse::<u64>().is_ok() && pid.parse::<u32>().is_ok())
}

/// Bytes that are free on the disk of a folder.
pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: a struct of integers.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path with its NUL, and a live struct.
    let done = unsafe { libc::statvfs(path.as_ptr(), &mut stat) };
    (done == 0).then(|| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The thread that writes.
struct Writer {
    /// Device and inode of the database that is open.
    file_id: Option<(u64, u64)>,
    /// The same of the files [`BESIDE`] it.
    beside: [Option<(u64, u64)>; BESIDE.len()],
    /// `None` only between a damaged database and the next one.
    database: Option<Database>,
    limits: StoreLimits,
    tell: Sender<Outcome>,
    wake: Arc<OwnedFd>,
    shared: Arc<Mutex<Shared>>,
    metrics: Arc<Metrics>,
    readers: Arc<Readers>,
    largest_log: u64,
    /// When the log was to be emptied last, in vain.
    tried: Option<Instant>,
    /// Somebody has removed the database, and no other one could be begun yet.
    is_removed: bool,
    background: Arc<Background>,
    /// When something took long in the background.
    crowded: Option<Instant>,
    to_import: Vec<PathBuf>,
    imported: usize,
    tidied: Instant,
    /// There is more to remove or to thin.
    more: bool,
}

impl Writer {
    /// With a database; what happens comes by the channel.
    fn new(
        limits: &StoreLimits,
        largest_log: u64,
    ) -> Result<(Writer, Receiver<Outcome>), StoreError> {
        let (tell, outcomes) = channel();
        let mut writer = Writer {
            file_id: None,
            beside: [None; BESIDE.len()],
            database: None,
            limits: limits.clone(),
            tell,
            wake: Arc::new(event::new().map_err(StoreError::Thread)?),
            shared: Arc::default(),
            metrics: Arc::default(),
            readers: Arc::default(),
            largest_log,
            tried: None,
            is_removed: false,
            background: Arc::default(),
            crowded: None,
            to_import: old_recordings(&limits.directory),
            imported: 0,
            tidied: Instant::now(),
            more: true,
        };
        writer.database = Some(writer.begin()?);
        writer.note();
        Ok((writer, outcomes))
    }

    fn file(&self) -> PathBuf {
        self.limits.directory.join(FILE)
    }

    /// Opens the database; one that is damaged is set aside.
    fn begin(&mut self) -> Result<Database, StoreError> {
        let file = self.file();
        self.file_id = None;
        let opened = Database::open(&file).and_then(|database| {
            // Nobody else tells damage that lies where nothing is read for now.
            if database.bytes()? <= CHECKED_BYTES {
                database.check()?;
            }
            Ok(database)
        });
        let database = match opened {
            Err(error) if error.is_damage() => {
                self.set_aside(&error.to_string())?;
                Database::open(&file)?
            }
            other => other?,
        };
        self.file_id = file_id(&file);
        self.beside = BESIDE.map(|suffix| file_id(&beside(&file, suffix)));
        Ok(database)
    }

    /// Begins a new database if somebody has removed this one, or put another one in its place: what is written to a file without a name is lost.
    fn begin_where_removed(&mut self) -> Result<(), StoreError> {
        let file = self.file();
        if self.database.is_some() && !self.is_replaced() {
            return Ok(());
        }
        self.take_log_away()?;
        // One that was set aside, and could not be begun anew then, has been told.
        let is_removed = self.database.take().is_some() || self.is_removed;
        self.is_removed = is_removed;
        fs::create_dir_all(&self.limits.directory).map_err(|error| StoreError::Folder {
            folder: self.limits.directory.clone(),
            error,
        })?;
        self.database = Some(self.begin()?);
        self.is_removed = false;
        if is_removed {
            self.tell(Outcome::Removed { at: file });
        }
        Ok(())
    }

    /// Whether the database is not at its path any more.
    fn is_replaced(&self) -> bool {
        file_id(&self.file()) != self.file_id
    }

    /// Takes the log away of a database that is not at its path any more: SQLite leaves it there, and would write what is in it into the file that has taken the
    /// place. It goes into the old file, which may have another name by now; what does not is kept beside. A log that somebody has brought with another file stays.
    fn take_log_away(&self) -> Result<(), StoreError> {
        let Some(database) = &self.database else {
            return Ok(());
        };
        let is_emptied = matches!(database.empty_log(PATIENCE), Ok(true));
        let file = self.file();
        for (suffix, id) in BESIDE.iter().zip(self.beside) {
            let path = beside(&file, suffix);
            if id.is_none() || file_id(&path) != id {
                continue;
            }
            // The index is made anew from the log.
            let taken = match is_emptied || *suffix == "-shm" {
                true => fs::remove_file(&path),
                false => fs::rename(&path, self.unused_name("removed", suffix)),
            };
            taken.map_err(|error| self.of_folder(error))?;
        }
        Ok(())
    }

    fn of_folder(&self, error: io::Error) -> StoreError {
        StoreError::Folder {
            folder: self.limits.directory.clone(),
            error,
        }
    }

    /// A name for a file that is put out of the way, with the time: `starts.db.WHY-TIME`; with this ending, if it is one that lies beside the database.
    fn unused_name(&self, why: &str, suffix: &str) -> PathBuf {
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let time = time.replace([':', '-'], "");
        let name = |n: usize| {
            let again = if n > 0 {
                format!(".{n}")
            } else {
                String::new()
            };
            let name = format!("{FILE}.{why}-{time}{again}");
            self.limits.directory.join(name)
        };
        let is_free = |n: &usize| !beside(&name(*n), suffix).exists();
        beside(&name((0..).find(is_free).unwrap_or(0)), suffix)
    }

    /// Renames the database and the two files beside it: nothing is deleted.
    fn set_aside(&mut self, why: &str) -> Result<(), StoreError> {
        let file = self.file();
        let at = self.unused_name("damaged", "");
        fs::rename(&file, &at).map_err(|error| self.of_folder(error))?;
        for suffix in BESIDE {
            match fs::rename(beside(&file, suffix), beside(&at, suffix)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.of_folder(error));
                }
                _ => {}
            }
        }
        lock(&self.shared).state.set_aside = Some(at.clone());
        self.tell(Outcome::SetAside {
            at,
            why: why.to_owned(),
        });
        Ok(())
    }

    fn tell(&self, outcome: Outcome) {
        let _ = self.tell.send(outcome);
        event::signal(&self.wake);
    }

    /// Puts down what the store is like.
    fn note(&self) {
        let (runs, bytes) = match &self.database {
            // With the log: the limit is for the file alone, for removing runs makes the log no smaller.
            Some(database) => (
                database.runs(),
                database.bytes().unwrap_or_default() + database.log_bytes(),
            ),
            None => (0, 0),
        };
        let mut shared = lock(&self.shared);
        shared.state.file = self.file();
        shared.state.runs = runs;
        shared.state.bytes = bytes;
    }

    fn is_full(&self) -> bool {
        lock(&self.shared).state.full
    }

    fn run(mut self, jobs: &Receiver<Job>) {
        nodeprof_bpf::hold::act_behind();
        loop {
            let patience = match (self.more, self.is_full(), self.to_import.is_empty()) {
                (true, ..) => Duration::ZERO,
                (false, true, _) => LOOK_AGAIN,
                (false, false, false) => Duration::ZERO,
                (false, false, true) => TIDY,
            };
            let readers_wait = self.readers.are_asked();
            let patience = match readers_wait {
                true => patience.min(LOOK_FOR_IT),
                false => patience,
            };
            match jobs.recv_timeout(patience) {
                Ok(Job::Keep {
                    pid,
                    owner,
                    recording,
                    weight,
                }) => {
                    self.keep(pid, owner, *recording);
                    lock(&self.shared).take_off(weight);
                }
                Ok(Job::Limits(limits)) => {
                    self.limits = limits;
                    self.more = true;
                }
                Ok(Job::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if readers_wait => {
                    self.empty_log(LARGEST_LOG_AT_REST);
                }
                Err(RecvTimeoutError::Timeout) => self.idle(),
            }
            if self.tidied.elapsed() >= TIDY {
                self.tidy();
            }
            self.note();
        }
        if self.is_replaced() {
            let _ = self.take_log_away();
        } else if let Some(database) = &self.database {
            // What is in the log is safe; in the file itself it can be copied.
            let _ = database.checkpoint();
        }
    }

    /// Nothing waits to be written.
    fn idle(&mut self) {
        if self.is_full() {
            // Space may be had from the store itself, where its limits are others now.
            if self.more {
                self.tidy();
            }
            self.empty_log(LARGEST_LOG_AT_REST);
            let free = free_bytes(&self.limits.directory);
            if free.is_none_or(|free| free >= SPACE) {
                lock(&self.shared).state.full = false;
                self.tell(Outcome::Space);
            }
        } else if let Some(file) = self.to_import.pop() {
            self.import(&file);
        } else {
            self.tidy();
            if !self.more {
                self.empty_log(LARGEST_LOG_AT_REST);
            }
        }
    }

    fn keep(&mut self, pid: u32, owner: Option<u32>, recording: Recording) {
        let (crossings, lookups) = counts(&recording);
        let observed = Observed::of(&recording);
        match self.write(owner, recording) {
            Ok(run) => {
                if let Some(observed) = observed {
                    self.metrics.observe(observed);
                }
                lock(&self.shared).state.kept += 1;
                self.tell(Outcome::Kept {
                    pid,
                    run,
                    crossings,
                    lookups,
                });
                self.more = true;
                self.tidy();
            }
            Err(why) => {
                lock(&self.shared).state.lost += 1;
                self.tell(Outcome::Lost { pid, why });
            }
        }
    }

    /// Writes a run; where the database turns out damaged, into a new one, unless the run is a large one.
    fn write(&mut self, owner: Option<u32>, recording: Recording) -> Result<RunNumber, String> {
        self.begin_where_removed()
            .map_err(|error| self.hear_opening(error))?;
        let copy = (weight(&recording) <= MOST_COPIED_BYTES).then(|| recording.clone());
        match self.on_database(|database| database.keep(recording, owner)) {
            Err(error) if error.is_damage() => {
                self.renew(&error)?;
                let copy = copy.ok_or_else(|| error.to_string())?;
                let kept = self.on_database(|database| database.keep(copy, owner));
                kept.map_err(|error| error.to_string())
            }
            Err(error) => {
                self.hear(&error);
                Err(error.to_string())
            }
            Ok(run) => Ok(run),
        }
    }

    fn on_database<T>(
        &mut self,
        work: impl FnOnce(&mut Database) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        match &mut self.database {
            Some(database) => {
                let hurry = {
                    let shared = lock(&self.shared);
                    shared.is_ending || shared.is_behind()
                };
                let begun = Instant::now();
                let is_crowded = self.crowded.is_some_and(|since| begun - since < CROWDED);
                // It takes no lock meanwhile that the service waits for.
                let stay = match hurry || is_crowded {
                    true => None,
                    false => self.background.begin(BEHIND),
                };
                let result = work(database);
                if stay.is_some() && begun.elapsed() >= BEHIND {
                    self.crowded = Some(begun);
                }
                result
            }
            None => Err(DatabaseError::NotFound { path: self.file() }),
        }
    }

    /// Sets a damaged database aside, and begins a new one.
    fn renew(&mut self, why: &DatabaseError) -> Result<(), String> {
        self.database = None;
        let renewed = self.set_aside(&why.to_string()).and_then(|()| self.begin());
        self.database = Some(renewed.map_err(|error| self.hear_opening(error))?);
        Ok(())
    }

    /// A database could not be begun: why.
    fn hear_opening(&mut self, error: StoreError) -> String {
        match &error {
            StoreError::Database(error) => self.hear(error),
            StoreError::Folder { error, .. }
                if matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                self.stop_for_space();
            }
            _ => {}
        }
        error.to_string()
    }

    /// A full disk stops all until there is space. What a full disk makes of SQLite's third file is an error of its own.
    fn hear(&mut self, error: &DatabaseError) {
        let is_full = match error {
            DatabaseError::Full { .. } => true,
            DatabaseError::Sqlite { .. } => {
                free_bytes(&self.limits.directory).is_some_and(|free| free < SPACE / 16)
            }
            _ => false,
        };
        if is_full {
            self.stop_for_space();
        }
    }

    fn stop_for_space(&mut self) {
        if !std::mem::replace(&mut lock(&self.shared).state.full, true) {
            self.tell(Outcome::Full);
        }
    }

    /// Empties the log if it is larger than this, in a moment without readers: if there is none now, they wait for it from now on.
    fn empty_log(&mut self, largest: u64) {
        let largest = largest.min(self.largest_log);
        let is_large = |database: &Database| database.log_bytes() > largest;
        if !self.database.as_ref().is_some_and(is_large)
            || self.tried.is_some_and(|at| at.elapsed() < TRY_AGAIN)
        {
            return;
        }
        let readers = self.readers.clone();
        let Some(_alone) = readers.alone() else {
            return;
        };
        let emptied = self.on_database(|database| database.empty_log(PATIENCE));
        self.tried = (!matches!(emptied, Ok(true))).then(Instant::now);
        if let Err(error) = emptied {
            self.hear(&error);
        }
    }

    /// Removes and thins what is beyond the limits: a part of it.
    fn tidy(&mut self) {
        self.tidied = Instant::now();
        self.empty_log(LARGEST_LOG);
        let limits = Limits {
            age: self.limits.age,
            count: self.limits.count,
            bytes: self.limits.bytes,
            thin: self.limits.thin,
        };
        match self.on_database(|database| database.retain(&limits)) {
            Ok(retained) => {
                self.more = retained.more;
                if retained.unreadable > 0 {
                    self.tell(Outcome::Unreadable(retained.unreadable));
                }
            }
            Err(error) => {
                self.more = false;
                if error.is_damage() {
                    if let Err(why) = self.renew(&error) {
                        self.tell(Outcome::NotTidied(why));
                    }
                } else {
                    self.hear(&error);
                    self.tell(Outcome::NotTidied(error.to_string()));
                }
            }
        }
    }

    /// Takes a recording of an older version into the database, and then removes its file.
    fn import(&mut self, file: &Path) {
        let loaded = Recording::load(file).map_err(|error| error.to_string());
        let kept = loaded.and_then(|recording| {
            let user = recording.runs.first().and_then(|run| run.label("user"));
            let owner = user.and_then(|user| user.parse().ok());
            self.write(owner, recording)
        });
        match kept {
            Ok(_) => {
                self.imported += 1;
                if let Err(error) = fs::remove_file(file) {
                    self.tell(Outcome::NotRemoved {
                        file: file.to_owned(),
                        error,
                    });
                }
            }
            Err(why) => self.tell(Outcome::NotImported {
                file: file.to_owned(),
                why,
            }),
        }
        if self.to_import.is_empty() && self.imported > 0 {
            let files = std::mem::take(&mut self.imported);
            self.tell(Outcome::Imported(files));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;
    use crate::service::readers::Reading;
    use nodeprof_profile::{
        SaveOptions,
        store::database::{Filter, Reader},
    };

    fn limits(directory: &Path) -> StoreLimits {
        StoreLimits {
            directory: directory.to_owned(),
            age: Duration::from_secs(3600),
            count: 3,
            bytes: 1 << 30,
            thin: Duration::from_secs(3600),
        }
    }

    fn start(n: u32) -> Recording {
        let mut recording = Recording::synthetic(50);
        recording.runs[0].labels = vec![("n".into(), n.to_string()), ("user".into(), "12".into())];
        recording
    }

    fn kept(store: &Store) -> Vec<String> {
        let reader = Reader::open(&store.state().file).unwrap();
        let runs = reader.find(&Filter::default()).unwrap();
        runs.iter()
            .rev()
            .map(|run| run.labels["n"].clone())
            .collect()
    }

    fn next(store: &Store) -> Outcome {
        for _ in 0..1000 {
            if let Some(outcome) = store.next() {
                return outcome;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("nothing happens");
    }

    #[test]
    fn a_store_that_is_removed_is_begun_anew_and_that_is_told() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("starts");
        let mut store = Store::open(&limits(&folder)).unwrap();
        store.keep(1, None, start(1)).unwrap();
        assert!(matches!(next(&store), Outcome::Kept { .. }));
        for remove in [
            |folder: &Path| fs::remove_dir_all(folder).unwrap(),
            |folder: &Path| fs::remove_file(folder.join(FILE)).unwrap(),
        ] {
            remove(&folder);
            store.keep(2, None, start(2)).unwrap();
            let told = next(&store);
            assert!(matches!(told, Outcome::Removed { .. }), "{told:?}");
            let told = next(&store);
            assert!(matches!(told, Outcome::Kept { pid: 2, .. }), "{told:?}");
            assert_eq!(kept(&store), ["2"]);
        }
        assert!(store.end().is_empty());
        assert_eq!(kept(&store), ["2"]);
    }

    /// A sound database of two starts in a folder of its own, closed.
    fn another() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut database = Database::open(&folder.path().join(FILE)).unwrap();
        for n in [10, 11] {
            database.keep(start(n), None).unwrap();
        }
        folder
    }

    fn names_in(folder: &Path) -> Vec<String> {
        let files = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn kept_in(file: &Path) -> Vec<String> {
        let reader = Reader::open(file).unwrap();
        let runs = reader.find(&Filter::default()).unwrap();
        let all: Vec<u32> = runs.iter().map(|run| run.id).collect();
        assert_eq!(reader.load(&all).unwrap().runs.len(), all.len());
        (runs.iter().rev())
            .map(|run| run.labels["n"].clone())
            .collect()
    }

    #[test]
    fn another_database_that_is_put_in_the_place_of_the_store_stays_whole_and_goes_on() {
        let (folder, other) = (tempfile::tempdir().unwrap(), another());
        let (file, moved) = (folder.path().join(FILE), folder.path().join("moved"));
        let mut store = Store::open(&limits(folder.path())).unwrap();
        for n in 1..=3 {
            store.keep(n, None, start(n)).unwrap();
            assert!(matches!(next(&store), Outcome::Kept { .. }));
        }
        let log = fs::metadata(beside(&file, "-wal")).unwrap().len();
        assert!(log > 0, "nothing is in the log");
        fs::rename(&file, &moved).unwrap();
        fs::rename(other.path().join(FILE), &file).unwrap();
        store.keep(4, None, start(4)).unwrap();
        let told = next(&store);
        assert!(matches!(told, Outcome::Removed { .. }), "{told:?}");
        let told = next(&store);
        assert!(matches!(told, Outcome::Kept { pid: 4, .. }), "{told:?}");
        store.end();
        assert_eq!(kept_in(&file), ["10", "11", "4"]);
        // What was moved away has all that it had, without its log.
        assert_eq!(kept_in(&moved), ["1", "2", "3"]);
        let names = names_in(folder.path());
        let strange = |name: &&String| name.contains(".damaged-") || name.contains(".removed-");
        assert_eq!(names.iter().find(strange), None, "{names:?}");
    }

    #[test]
    fn a_log_that_is_put_in_the_place_of_the_store_with_its_database_stays() {
        let (folder, other) = (tempfile::tempdir().unwrap(), another());
        let file = folder.path().join(FILE);
        let mut store = Store::open(&limits(folder.path())).unwrap();
        store.keep(1, None, start(1)).unwrap();
        assert!(matches!(next(&store), Outcome::Kept { .. }));
        let their = other.path().join(FILE);
        let mut open = Database::open(&their).unwrap();
        open.keep(start(12), None).unwrap();
        for suffix in ["", "-wal"] {
            let copy = folder.path().join(format!("copy{suffix}"));
            fs::copy(beside(&their, suffix), &copy).unwrap();
            fs::rename(copy, beside(&file, suffix)).unwrap();
        }
        store.keep(4, None, start(4)).unwrap();
        assert!(matches!(next(&store), Outcome::Removed { .. }));
        assert!(matches!(next(&store), Outcome::Kept { pid: 4, .. }));
        store.end();
        // Three at most are kept.
        assert_eq!(kept_in(&file), ["11", "12", "4"]);
    }

    /// Somebody reads it all the while.
    #[test]
    fn a_log_that_cannot_be_emptied_is_put_aside_also_when_the_service_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (file, moved) = (folder.path().join(FILE), folder.path().join("moved"));
        let mut store = Store::open(&limits(folder.path())).unwrap();
        store.keep(1, None, start(1)).unwrap();
        assert!(matches!(next(&store), Outcome::Kept { .. }));
        let reader = rusqlite::Connection::open(&file).unwrap();
        let read = "BEGIN; SELECT count(*) FROM run";
        reader.execute_batch(read).unwrap();
        store.keep(2, None, start(2)).unwrap();
        assert!(matches!(next(&store), Outcome::Kept { .. }));
        fs::rename(&file, &moved).unwrap();
        store.end();
        drop(reader);
        let names = names_in(folder.path());
        let log = names.iter().find(|name| name.contains(".removed-"));
        let log = log.unwrap_or_else(|| panic!("{names:?}"));
        assert!(!beside(&file, "-wal").exists(), "{names:?}");
        // It is whole: with it the old file has all.
        fs::rename(folder.path().join(log), beside(&moved, "-wal")).unwrap();
        assert_eq!(kept_in(&moved), ["1", "2"]);
    }

    #[test]
    fn starts_are_written_in_order_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&limits(folder.path())).unwrap();
        for n in 1..=5 {
            store.keep(n, Some(12), start(n)).unwrap();
        }
        let ended = store.end();
        let runs: Vec<(u32, u32)> = ended
            .iter()
            .map(|outcome| match outcome {
                Outcome::Kept { pid, run, .. } => (*pid, *run),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(runs, [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
        assert_eq!(kept(&store), ["3", "4", "5"]);
        let state = store.state();
        assert_eq!(
            (state.runs, state.kept, state.queued, state.lost),
            (3, 5, 0, 0)
        );
    }

    #[test]
    fn the_thread_that_writes_is_behind_if_one_waits_long_or_many_do() {
        let mut shared = Shared::default();
        assert!(!shared.is_behind());
        shared.state.queued = MOST_BEHIND;
        shared.queued_bytes = 7;
        shared.since = Some(Instant::now());
        assert!(!shared.is_behind());
        shared.state.queued += 1;
        assert!(shared.is_behind(), "many wait");
        shared.take_off(7);
        assert!(!shared.is_behind());
        shared.since = Instant::now().checked_sub(2 * BEHIND);
        assert!(shared.is_behind(), "one waits long");
        shared.take_off(0);
        assert!(!shared.is_behind(), "another one was written");
        shared.state.queued = 1;
        shared.take_off(0);
        assert_eq!(shared.since, None);
    }

    #[test]
    fn more_than_the_queue_holds_is_counted_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&limits(folder.path())).unwrap();
        let large = Recording::synthetic(400_000);
        let told: Vec<_> = (0..6).map(|n| store.keep(n, None, large.clone())).collect();
        let lost = told.iter().filter(|told| told.is_err()).count() as u64;
        assert!(lost > 0 && told[0].is_ok());
        assert_eq!(store.state().lost, lost);
    }

    #[test]
    fn a_recording_that_no_other_one_would_find_room_beside_is_lost_also_if_none_waits() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&limits(folder.path())).unwrap();
        let mut huge = start(1);
        huge.names = vec![vec![b'x'; 1 << 20]; 65];
        let why = store.keep(1, None, huge).unwrap_err();
        assert!(why.contains("65 MB in memory; needed: at most 64"), "{why}");
        store.keep(2, None, start(2)).unwrap();
        assert!(matches!(next(&store), Outcome::Kept { pid: 2, .. }));
        assert_eq!(store.state().lost, 1);
    }

    #[test]
    fn recordings_of_an_older_version_are_taken_in_once_and_other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("starts")).unwrap();
        for n in [2u32, 1] {
            let file = format!("starts/0000000000000000000{n}-{n}.nodeprof");
            let file = folder.path().join(file);
            start(n).save(file, SaveOptions::default()).unwrap();
        }
        fs::write(folder.path().join("starts/3-3.nodeprof"), "damaged").unwrap();
        fs::write(folder.path().join("starts/mine.nodeprof"), "x").unwrap();
        let mut store = Store::open(&limits(folder.path())).unwrap();
        let mut outcomes = [next(&store), next(&store)];
        outcomes.sort_by_key(|outcome| matches!(outcome, Outcome::Imported(_)));
        assert!(
            matches!(&outcomes[0], Outcome::NotImported { file, .. } if file.ends_with("3-3.nodeprof"))
        );
        assert!(matches!(&outcomes[1], Outcome::Imported(2)));
        store.end();
        assert_eq!(kept(&store), ["1", "2"]);
        let reader = Reader::open(&store.state().file).unwrap();
        assert_eq!(reader.find(&Filter::default()).unwrap()[0].owner, Some(12));
        let left = fs::read_dir(folder.path().join("starts")).unwrap();
        let mut left: Vec<_> = left.map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["3-3.nodeprof", "mine.nodeprof"]);
    }

    #[test]
    fn a_damaged_database_is_set_aside_and_a_new_one_begun() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        fs::write(&file, vec![1; 20_000]).unwrap();
        let mut store = Store::open(&limits(folder.path())).unwrap();
        let Outcome::SetAside { at, .. } = next(&store) else {
            panic!("it was not set aside")
        };
        assert_eq!(fs::read(&at).unwrap(), vec![1; 20_000]);
        store.keep(1, None, start(1)).unwrap();
        store.end();
        assert_eq!(kept(&store), ["1"]);
        // One that is damaged while it is open, and one in the middle.
        let mut bytes = fs::read(&file).unwrap();
        for byte in &mut bytes[4096..] {
            *byte = 0xa5;
        }
        fs::write(&file, bytes).unwrap();
        let mut store = Store::open(&limits(folder.path())).unwrap();
        assert!(matches!(next(&store), Outcome::SetAside { .. }));
        store.keep(2, None, start(2)).unwrap();
        store.end();
        assert_eq!(kept(&store), ["2"]);
        let aside = fs::read_dir(folder.path()).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            let name = name.to_string_lossy().into_owned();
            name.contains(".damaged-") && !name.ends_with("-wal") && !name.ends_with("-shm")
        });
        assert_eq!(aside.count(), 2);
    }

    #[test]
    fn a_run_that_cannot_be_read_is_told_and_the_store_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let mut store = Store::open(&limits(folder.path())).unwrap();
        for n in 1..=3 {
            store.keep(n, None, start(n)).unwrap();
        }
        store.end();
        let change = |sql: &str| {
            rusqlite::Connection::open(&file)
                .unwrap()
                .execute_batch(sql)
        };
        change("UPDATE run SET command = 'no list' WHERE id = 2").unwrap();
        let limits = StoreLimits {
            thin: Duration::ZERO,
            ..limits(folder.path())
        };
        let mut store = Store::open(&limits).unwrap();
        let told = next(&store);
        assert!(matches!(told, Outcome::Unreadable(1)), "{told:?}");
        store.keep(4, None, start(4)).unwrap();
        let told = store.end();
        assert!(
            matches!(told[..], [Outcome::Kept { pid: 4, .. }]),
            "{told:?}"
        );
        assert_eq!(kept(&store), ["3", "4"]);
        assert_eq!(store.state().set_aside, None);
    }

    /// The log begins anew only in a moment without readers, and there is none by itself.
    #[test]
    fn the_log_stays_small_while_readers_overlap() {
        const LARGEST: u64 = 2 << 20;
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open_with(&limits(folder.path()), LARGEST).unwrap();
        store.keep(0, None, start(0)).unwrap();
        assert!(matches!(next(&store), Outcome::Kept { .. }));
        let (readers, file) = (store.readers(), store.state().file);
        let is_over = AtomicBool::new(false);
        let mut largest = 0;
        let read = |reading: Reading, later: u64| {
            std::thread::sleep(Duration::from_millis(later));
            while !is_over.load(Ordering::Relaxed) {
                let _reader = readers.enter(reading, 0);
                let connection = rusqlite::Connection::open(&file).unwrap();
                let one = "BEGIN; SELECT count(*) FROM run";
                connection.execute_batch(one).unwrap();
                std::thread::sleep(Duration::from_millis(100));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| read(Reading::Recording, 0));
            scope.spawn(|| read(Reading::List, 50));
            for n in 1..150_u32 {
                let mut recording = start(n);
                let names = (0..200).map(|name| format!("/start/{n}/{name}").into_bytes());
                recording.names.extend(names);
                store.keep(n, None, recording).unwrap();
                while !matches!(next(&store), Outcome::Kept { .. }) {}
                let log = fs::metadata(folder.path().join(format!("{FILE}-wal")));
                largest = largest.max(log.unwrap().len());
                std::thread::sleep(Duration::from_millis(5));
            }
            // Whatever is in the log counts.
            assert!(store.state().bytes > store.state().runs as u64 * 4096);
            is_over.store(true, Ordering::Relaxed);
        });
        store.end();
        // What is written while the last readers end comes on top.
        assert!(largest > LARGEST, "{largest}: too little was written");
        assert!(largest < 10 * LARGEST, "{largest}");
    }

    #[test]
    fn lower_limits_are_kept_to_while_the_disk_is_full_too() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _outcomes) = Writer::new(&limits(folder.path()), LARGEST_LOG).unwrap();
        for n in 1..=3 {
            writer.keep(n, None, start(n));
        }
        lock(&writer.shared).state.full = true;
        writer.limits.count = 1;
        writer.more = true;
        writer.idle();
        assert_eq!(writer.database.unwrap().runs(), 1);
    }

    #[test]
    fn a_file_that_is_imported_and_cannot_be_removed_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, outcomes) = Writer::new(&limits(folder.path()), LARGEST_LOG).unwrap();
        let old = folder.path().join("old");
        start(1).save(&old, SaveOptions::default()).unwrap();
        let open = fs::File::open(&old).unwrap();
        // A name that nobody removes.
        let name = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        writer.import(&name);
        let told: Vec<Outcome> = outcomes.try_iter().collect();
        assert!(
            matches!(&told[..], [Outcome::NotRemoved { file, .. }, Outcome::Imported(1)] if *file == name),
            "{told:?}"
        );
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("starts"), "a file").unwrap();
        let error = Store::open(&limits(&folder.path().join("starts")));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("starts cannot be used"), "{error}");
    }

    struct Disk {
        at: PathBuf,
        _folder: tempfile::TempDir,
    }

    impl Disk {
        fn of_24_megabytes() -> Option<Disk> {
            let folder = tempfile::tempdir().unwrap();
            let at = folder.path().join("disk");
            fs::create_dir(&at).unwrap();
            let mut mount = std::process::Command::new("mount");
            mount
                .args(["-t", "tmpfs", "-o", "size=24m", "none"])
                .arg(&at);
            if !mount.status().is_ok_and(|status| status.success()) {
                println!("skipped: no file system can be mounted here");
                return None;
            }
            let _folder = folder;
            Some(Disk { at, _folder })
        }

        fn fill(&self) -> (PathBuf, fs::File) {
            let ballast = self.at.join("ballast");
            let mut file = fs::File::create(&ballast).unwrap();
            while io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
            (ballast, file)
        }
    }

    impl Drop for Disk {
        fn drop(&mut self) {
            let mut unmount = std::process::Command::new("umount");
            let _ = unmount.arg("-l").arg(&self.at).status();
        }
    }

    #[test]
    #[ignore = "needs root"]
    fn a_full_disk_on_which_no_database_can_be_begun_stops_the_store_too() {
        let Some(disk) = Disk::of_24_megabytes() else {
            return;
        };
        let store = Store::open(&limits(&disk.at)).unwrap();
        store.keep(0, None, start(0)).unwrap();
        assert!(matches!(next(&store), Outcome::Kept { .. }));
        let files = fs::read_dir(&disk.at)
            .unwrap()
            .map(|file| file.unwrap().path());
        // What somebody has open still takes its space.
        let open: Vec<fs::File> = files
            .map(|path| {
                let file = fs::File::open(&path).unwrap();
                fs::remove_file(&path).unwrap();
                file
            })
            .collect();
        assert!(!open.is_empty());
        let (ballast, file) = disk.fill();
        store.keep(1, None, start(1)).unwrap();
        let told = next(&store);
        assert!(matches!(told, Outcome::Full), "{told:?}");
        let told = next(&store);
        assert!(matches!(told, Outcome::Lost { pid: 1, .. }), "{told:?}");
        drop((file, open));
        fs::remove_file(&ballast).unwrap();
        let told = next(&store);
        assert!(matches!(told, Outcome::Space), "{told:?}");
        store.keep(2, None, start(2)).unwrap();
        let told = next(&store);
        assert!(matches!(told, Outcome::Removed { .. }), "{told:?}");
        let told = next(&store);
        assert!(matches!(told, Outcome::Kept { pid: 2, .. }), "{told:?}");
    }

    #[test]
    #[ignore = "needs root"]
    fn a_full_disk_stops_the_store_until_there_is_space() {
        let Some(disk) = Disk::of_24_megabytes() else {
            return;
        };
        let limits = StoreLimits {
            count: usize::MAX,
            ..limits(&disk.at)
        };
        let mut store = Store::open(&limits).unwrap();
        store.keep(0, None, start(0)).unwrap();
        assert!(matches!(next(&store), Outcome::Kept { .. }));
        // Something else fills it.
        let (ballast, file) = disk.fill();
        let mut full = false;
        for n in 1..2000 {
            store.keep(n, None, Recording::synthetic(2_000)).unwrap();
            match next(&store) {
                Outcome::Kept { .. } => continue,
                Outcome::Full => {
                    full = true;
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(full && store.state().full);
        assert!(matches!(next(&store), Outcome::Lost { .. }));
        drop(file);
        fs::remove_file(&ballast).unwrap();
        assert!(matches!(next(&store), Outcome::Space));
        assert!(!store.state().full);
        store.keep(3000, None, start(3)).unwrap();
        loop {
            match next(&store) {
                Outcome::Kept { pid: 3000, .. } => break,
                Outcome::Kept { .. } | Outcome::NotTidied(_) => {}
                other => panic!("{other:?}"),
            }
        }
        store.end();
        let reader = Reader::open(&store.state().file).unwrap();
        let runs = reader.find(&Filter::default()).unwrap();
        assert_eq!(
            runs.first()
                .map(|run| run.labels["n"].as_str())
                .or(Some("3")),
            Some("3")
        );
        let all: Vec<u32> = runs.iter().map(|run| run.id).collect();
        assert_eq!(reader.load(&all).unwrap().runs.len(), all.len());
    }

    #[test]
    fn only_whole_names_are_those_of_starts() {
        for (name, is) in [
            ("12-3.nodeprof", true),
            ("12-x.nodeprof", false),
            ("a", false),
        ] {
            assert_eq!(is_start(Path::new(name)), is, "{name}");
        }
    }
}
