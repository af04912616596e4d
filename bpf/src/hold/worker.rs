//! What takes time: reading a binary, attaching to it. Some threads do it, so that the loop never waits.

use std::{
    collections::{HashMap, VecDeque},
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use libbpf_rs::libbpf_sys;
use nodeprof_probes::{
    is_node_binary, is_node_binary_at_a_glance,
    plan::{AttachPlan, Family},
};

use super::{
    DESCRIPTION_LIMIT, Description, PlanSource, act_first, act_in_turn,
    fanotify::Answer,
    images::{Image, Images, MOST},
    large_pages,
};
use crate::{
    AttachPoints, Link, Programs,
    attach::{Mark, attach},
    skeleton::types::file_key,
    stat_field,
};

/// Threads. The kernel attaches one at a time; the others read binaries.
const WORKERS: usize = 4;

/// Those that hang, for a file system that does not answer, are replaced by others: as long as there are no more than so many in all.
const MOST_WORKERS: usize = 32;

/// Of a process, in clock ticks: pids come again.
pub(super) type StartTime = u64;

/// 0 if the process is gone.
pub(super) fn start_time(pid: u32) -> StartTime {
    const FIELD: usize = 22;
    let field = stat_field(pid, FIELD);
    field.and_then(|f| f.parse().ok()).unwrap_or(0)
}

/// Device and inode of a file.
pub(super) type FileId = (u64, u64);

pub(super) fn file_id(meta: &fs::Metadata) -> FileId {
    (meta.dev(), meta.ino())
}

/// A state of a file: its inode may have been another binary's before, and its content something else.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Version {
    file: FileId,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    pub(super) fn of_file(file: &File) -> Result<Version, String> {
        let meta = file.metadata().map_err(|e| e.to_string())?;
        Ok(Version::of(&meta))
    }

    fn of(meta: &fs::Metadata) -> Version {
        Version {
            file: file_id(meta),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// Something to do.
pub(super) struct Job {
    /// Of the loop.
    pub(super) number: u64,
    pub(super) pid: u32,
    pub(super) binary: Source,
    /// It runs already: a record shall tell the beginning of its main.
    pub(super) after_exec: bool,
    /// Since when its process waits, or runs without probes.
    pub(super) since: Instant,
    /// Given as soon as the probes are up.
    pub(super) answer: Option<Answer>,
}

/// Where to find a binary.
pub(super) enum Source {
    Path(PathBuf),
    /// Open; and its path, if that is known.
    File(Arc<File>, PathBuf),
    /// What the process executes.
    Executable,
}

/// A job that is done.
pub(super) struct Done {
    pub(super) number: u64,
    pub(super) pid: u32,
    /// The binary's path, as the traced process sees it.
    pub(super) path: PathBuf,
    /// The binary.
    pub(super) file: Option<FileId>,
    pub(super) opened: Option<Arc<File>>,
    pub(super) after_exec: bool,
    pub(super) since: Instant,
    /// There is a plan of it.
    pub(super) is_planned: bool,
    pub(super) outcome: Outcome,
    /// The exec was let go: whether it had waited until then.
    pub(super) answered: Option<bool>,
    /// Of the process that has the probes.
    pub(super) started: StartTime,
    /// What a service wants to know of it.
    pub(super) description: Vec<u8>,
}

pub(super) enum Outcome {
    Attached {
        image: Image<()>,
        points: usize,
        took: Duration,
        link: Option<Link>,
    },
    NotNode,
    Failed(String),
}

/// Jobs that nobody has begun.
#[derive(Default)]
struct Queue {
    /// And whether more may come.
    jobs: Mutex<(VecDeque<Job>, bool)>,
    changed: Condvar,
}

impl Queue {
    fn give(&self, job: Job) {
        lock(&self.jobs).0.push_back(job);
        self.changed.notify_one();
    }

    /// Takes one back that nobody has begun; whether there was such a one.
    fn take_back(&self, number: u64) -> bool {
        let mut jobs = lock(&self.jobs);
        let before = jobs.0.len();
        jobs.0.retain(|job| job.number != number);
        jobs.0.len() < before
    }

    /// Waits for one; `None`: no more will come.
    fn take(&self) -> Option<Job> {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = jobs.0.pop_front() {
                return Some(job);
            }
            if jobs.1 {
                return None;
            }
            jobs = self
                .changed
                .wait(jobs)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The threads.
pub(super) struct Workers {
    bench: Arc<Bench>,
    queue: Arc<Queue>,
    finished: mpsc::Sender<Done>,
    done: mpsc::Receiver<Done>,
    woken: Wake,
    /// How many there are, and were.
    started: usize,
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.queue.jobs).1 = true;
        self.queue.changed.notify_all();
    }
}

impl Workers {
    pub(super) fn start(
        programs: &Programs,
        families: Vec<Family>,
        plans: PlanSource,
        description: Option<Description>,
        gives_indexes_anew: bool,
    ) -> io::Result<Workers> {
        let bench = Arc::new(Bench {
            entry: programs.entry(),
            exit: programs.exit(),
            images: programs.images(),
            image_files: programs.image_files(),
            set_image_file: programs.set_image_file(),
            families,
            plans,
            description,
            known: Mutex::new(Images::new(gives_indexes_anew)),
            planning: Mutex::default(),
        });
        let (finished, done) = mpsc::channel();
        let queue = Arc::new(Queue::default());
        let woken = Wake::new()?;
        let mut workers = Workers {
            bench,
            queue,
            finished,
            done,
            woken,
            started: 0,
        };
        for _ in 0..WORKERS {
            workers.start_one();
        }
        Ok(workers)
    }

    fn start_one(&mut self) {
        let (bench, queue) = (Arc::clone(&self.bench), Arc::clone(&self.queue));
        let Ok(wake) = self.woken.try_clone() else {
            return;
        };
        let finished = self.finished.clone();
        let work = move || {
            act_first();
            while let Some(job) = queue.take() {
                let _ = finished.send(bench.work(job));
                wake.wake();
            }
        };
        if std::thread::Builder::new().spawn(work).is_ok() {
            self.started += 1;
        }
    }

    /// Nobody waits for this job any more: whether it was taken back before anybody had begun it. Else it may hang.
    pub(super) fn take_back(&self, number: u64) -> bool {
        self.queue.take_back(number)
    }

    /// One of them hangs: another one does its work from now on.
    pub(super) fn do_without_one(&mut self) {
        if self.started < MOST_WORKERS {
            self.start_one();
        }
    }

    /// Whether a job on this file takes no longer than attaching does: its binary has been read before.
    pub(super) fn knows(&self, file: &File) -> bool {
        let meta = file.metadata();
        meta.is_ok_and(|meta| lock(&self.bench.known).has(&Version::of(&meta)))
    }

    /// Does a job in the thread that asks for it.
    pub(super) fn work(&self, job: Job) -> Done {
        self.bench.work(job)
    }

    pub(super) fn give(&self, job: Job) {
        self.queue.give(job);
    }

    /// Readable when something is done.
    pub(super) fn descriptor(&self) -> RawFd {
        self.woken.0.as_raw_fd()
    }

    pub(super) fn take_done(&self) -> Vec<Done> {
        self.woken.clear();
        self.done.try_iter().collect()
    }
}

/// An eventfd.
struct Wake(OwnedFd);

impl Wake {
    fn new() -> io::Result<Wake> {
        // SAFETY: takes integers; the descriptor is new.
        unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Wake(OwnedFd::from_raw_fd(fd))),
            }
        }
    }

    fn try_clone(&self) -> io::Result<Wake> {
        self.0.try_clone().map(Wake)
    }

    fn wake(&self) {
        let one = 1u64;
        // SAFETY: eight bytes.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// Why a process had ended when its probes came. `is_first`: nobody knew its binary, and a plan had to be made.
fn ended_before(is_first: bool, after_exec: bool) -> &'static str {
    match (is_first, after_exec) {
        (true, _) => {
            "it had ended before its probes were there, as a short first start of a binary does that nobody knew; the next start of it is held"
        }
        (false, false) => {
            "it had ended before its probes were there: it was killed, or this machine was too busy to attach them within the 40 ms that an exec is held"
        }
        (false, true) => {
            "it had ended before its probes were there: its exec was not held, for this machine was too busy, or another thread than its first one executed"
        }
    }
}

/// A binary that probes were made for.
#[derive(Clone)]
struct Known {
    points: Arc<AttachPoints>,
    /// The beginning of its main.
    start: Option<Mark>,
    /// It can move its code to large pages.
    moves_code: bool,
}

/// What the threads share.
struct Bench {
    entry: RawFd,
    exit: RawFd,
    images: RawFd,
    image_files: RawFd,
    set_image_file: RawFd,
    families: Vec<Family>,
    plans: PlanSource,
    description: Option<Description>,
    known: Mutex<Images<Version, Known>>,
    /// One for each binary, held while its plan is made: twenty processes that execute the same new one wait for one plan, and nobody else does.
    planning: Mutex<HashMap<Version, Arc<Mutex<()>>>>,
}

impl Bench {
    fn work(&self, job: Job) -> Done {
        let mut done = Done {
            number: job.number,
            pid: job.pid,
            path: PathBuf::new(),
            file: None,
            opened: None,
            after_exec: job.after_exec,
            since: job.since,
            is_planned: false,
            outcome: Outcome::NotNode,
            answered: None,
            started: 0,
            description: Vec::new(),
        };
        let executable = PathBuf::from(format!("/proc/{}/exe", job.pid));
        let opened = match job.binary {
            Source::File(file, path) => {
                done.path = path;
                Ok(file)
            }
            Source::Path(path) => {
                done.path = path;
                File::open(&done.path).map(Arc::new)
            }
            Source::Executable => File::open(&executable).map(Arc::new),
        };
        let file = match opened {
            Ok(file) => file,
            Err(e) => {
                let has_ended =
                    done.path.as_os_str().is_empty() && e.kind() == io::ErrorKind::NotFound;
                let why = match has_ended {
                    true => {
                        done.path = "node".into();
                        ended_before(false, job.after_exec).to_owned()
                    }
                    false => e.to_string(),
                };
                done.outcome = Outcome::Failed(why);
                return done;
            }
        };
        // Through the open file: right also when the path is of another mount namespace.
        let open = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        done.file = file.metadata().ok().as_ref().map(file_id);
        done.opened = Some(Arc::clone(&file));
        if done.path.as_os_str().is_empty() {
            done.path = fs::read_link(&open).unwrap_or_default();
        }
        if job.after_exec && !self.is_node(&file, &open) {
            return done;
        }
        let started = Instant::now();
        let is_first = !Version::of_file(&file).is_ok_and(|id| lock(&self.known).has(&id));
        done.outcome = match self.prepare(&file, &done.path, &open) {
            Ok(image) => {
                done.is_planned = true;
                if image.value.moves_code
                    && let Some(why) = large_pages::refusal(job.pid, &done.path, job.after_exec)
                {
                    done.outcome = Outcome::Failed(why.into());
                    return done;
                }
                let points = image.value.points(job.after_exec);
                match self.link(job.pid, &open, &points) {
                    Ok(link) => Outcome::Attached {
                        image: image.bare(),
                        points: points.len(),
                        took: started.elapsed(),
                        link,
                    },
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {
                        Outcome::Failed(ended_before(is_first, job.after_exec).into())
                    }
                    Err(e) => Outcome::Failed(format!("attaching probes: {e}")),
                }
            }
            // By the name that everybody knows it by.
            Err(reason) => Outcome::Failed(
                reason.replace(&*open.to_string_lossy(), &done.path.to_string_lossy()),
            ),
        };
        if matches!(done.outcome, Outcome::Attached { .. }) {
            done.answered = job.answer.map(|answer| answer.give());
            // Here and not in the loop, whose thread may take the CPU that the exec goes on with.
            done.started = start_time(job.pid);
            let description = self.description.as_ref().map(|of| of(job.pid));
            done.description = description
                .filter(|bytes| bytes.len() <= DESCRIPTION_LIMIT)
                .unwrap_or_default();
        }
        done
    }

    /// Whether an open file is a node binary. Whose start waits for that is ahead of all: of a binary that is known, and of nearly all others, it takes
    /// microseconds. But anybody can execute a file that takes 0.2 s.
    fn is_node(&self, file: &File, open: &Path) -> bool {
        if Version::of_file(file).is_ok_and(|version| lock(&self.known).has(&version)) {
            return true;
        }
        is_node_binary_at_a_glance(open).unwrap_or_else(|| in_turn(|| is_node_binary(open)))
    }

    /// What to attach for a binary, by its plan. The plan is that of the file that was opened: at its path there may be another one, here or in
    /// the file system that the process sees, and its probes would end programs that execute this one.
    fn prepare(&self, file: &File, path: &Path, open: &Path) -> Result<Image<Known>, String> {
        let id = Version::of_file(file)?;
        let known = || lock(&self.known).get(&id);
        if let Some(known) = known() {
            return Ok(known);
        }
        let of_binary = Arc::clone(lock(&self.planning).entry(id).or_default());
        let _one_at_a_time = lock(&of_binary);
        if let Some(known) = known() {
            return Ok(known);
        }
        let made = self.plan(id, file, path, open);
        lock(&self.planning).remove(&id);
        made
    }

    /// Makes the plan of a binary that has none yet.
    fn plan(
        &self,
        id: Version,
        file: &File,
        path: &Path,
        open: &Path,
    ) -> Result<Image<Known>, String> {
        let mut plan = in_turn(|| (self.plans)(path, open))?; // it takes 0.2 s
        path.clone_into(&mut plan.binary.path);
        if Version::of_file(file)? != id {
            return Err("the file was changed while its plan was made".into());
        }
        let mut all = lock(&self.known);
        if let Some(known) = all.get(&id) {
            // Another thread's, which came when a plan before this one had failed.
            return Ok(known);
        }
        let binary = all
            .free_index()
            .ok_or_else(|| format!("more than {MOST} different node binaries at a time"))?;
        self.set_image(binary, &plan, file)
            .map_err(|e| e.to_string())?;
        let points = AttachPoints::new(&plan, binary, |f| self.families.contains(&f));
        let known = Known {
            start: Mark::start(&plan, binary),
            points: Arc::new(points),
            moves_code: plan.moves_code,
        };
        Ok(all.add(id, binary, known))
    }

    fn link(&self, pid: u32, open: &Path, points: &AttachPoints) -> io::Result<Option<Link>> {
        if points.is_empty() {
            return Ok(None);
        }
        attach(self.entry, self.exit, open, pid, points).map(Some)
    }

    /// Tells the programs about a binary: by its index, and which file has it.
    fn set_image(&self, binary: u8, plan: &AttachPlan, file: &File) -> io::Result<()> {
        let key = u32::from(binary);
        // Files of the binary that had the index before.
        forget(self.image_files, key + 1);
        update(self.images, &key, &crate::attach::image(plan))?;
        run_with(
            self.set_image_file,
            &[file.as_raw_fd() as u64, u64::from(key + 1)],
        )
    }
}

/// Does what takes long as ordinary programs do, which go on beside it.
fn in_turn<T>(work: impl FnOnce() -> T) -> T {
    act_in_turn();
    let done = work();
    act_first();
    done
}

/// Takes out of the map of files those of an image.
fn forget(image_files: RawFd, image: u32) {
    let mut of_image = Vec::new();
    let mut key = file_key::default();
    let mut before: *const file_key = std::ptr::null();
    // SAFETY: the map's key is a `file_key` and its value a number; all live through the calls.
    unsafe {
        while libbpf_sys::bpf_map_get_next_key(image_files, before.cast(), (&raw mut key).cast())
            == 0
        {
            let mut value = 0u32;
            let found = libbpf_sys::bpf_map_lookup_elem(
                image_files,
                (&raw const key).cast(),
                (&raw mut value).cast(),
            );
            if found == 0 && value == image {
                of_image.push(key);
            }
            before = &raw const key;
        }
        for key in &of_image {
            libbpf_sys::bpf_map_delete_elem(image_files, std::ptr::from_ref(key).cast());
        }
    }
}

/// Runs a program of the kind `raw_tp` in this thread, with these arguments. It returns 0 or the number of an error.
pub(super) fn run_with(program: RawFd, arguments: &[u64]) -> io::Result<()> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ctx_in: arguments.as_ptr().cast(),
        ctx_size_in: size_of_val(arguments) as u32,
        ..Default::default()
    };
    // SAFETY: the arguments live through the call, and have the size given.
    match unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &raw mut options) } {
        0.. if options.retval == 0 => Ok(()),
        0.. => Err(io::Error::from_raw_os_error(
            (options.retval as i32).wrapping_neg(),
        )),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Sets an entry of a map whose key and value are these plain C types.
fn update<K, V>(map: RawFd, key: &K, value: &V) -> io::Result<()> {
    // SAFETY: only called with the types that the map was made for; both live through the call.
    let outcome = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map,
            std::ptr::from_ref(key).cast(),
            std::ptr::from_ref(value).cast(),
            0,
        )
    };
    match outcome {
        0.. => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

impl Known {
    fn points(&self, with_start: bool) -> Arc<AttachPoints> {
        match self.start.filter(|_| with_start) {
            Some(start) => {
                let mut points = AttachPoints::clone(&self.points);
                points.mark(start);
                Arc::new(points)
            }
            None => Arc::clone(&self.points),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn a_binary_that_is_known_is_not_told_as_one_that_nobody_knew() {
        let of_unknown = |is_first, after_exec| {
            let why = ended_before(is_first, after_exec);
            assert!(why.starts_with("it had ended before its probes were there"));
            why.contains("nobody knew")
        };
        assert!(of_unknown(true, true) && of_unknown(true, false));
        assert!(!of_unknown(false, true) && !of_unknown(false, false));
    }

    #[test]
    fn what_takes_long_is_not_done_ahead_of_ordinary_programs() {
        // A thread of its own: the next test shall not go first.
        let policies = std::thread::spawn(|| {
            // SAFETY: takes integers; the calling thread.
            let policy = || unsafe { libc::sched_getscheduler(0) };
            act_first();
            [policy(), in_turn(policy), policy()]
        });
        let policies = policies.join().unwrap();
        if policies[0] != libc::SCHED_FIFO {
            println!("skipped: no right to real-time priority");
            return;
        }
        let wanted = [libc::SCHED_FIFO, libc::SCHED_OTHER, libc::SCHED_FIFO];
        assert_eq!(policies, wanted);
    }
}
