//! Full mode: starts that the rules want recorded with times, stacks and modules.
//!
//! The programs of count mode have neither, and are for every start of the host; to make sense of a start with stacks takes longer than to record ten without.
//! So full mode is a process of its own, the *lane*, which runs while the rules name that mode at all: the same loop with other programs,
//! another holder and another guard. It has no store and no socket for users; it hands its recordings to the service, which tells it when to
//! record less or nothing. The service starts it anew when it ends or does not answer.
//!
//! What a recording with stacks needs of files (lines of scripts, names of packages, symbols of add-ons) is named by other users' programs, and the
//! lane reads it with no more rights than anybody has ([`read_as_anybody`]).

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::{self, Read as _, Seek as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use nodeprof_profile::Recording;
use serde::{Deserialize, Serialize};

use super::{
    Happening, Service, ServiceError,
    config::Config,
    nodes::Nodes,
    running::Losses,
    tracer::{LONGEST_JOB, MOST_NODES},
};
use crate::{
    control::{Incoming, read_message, write_message, write_with_files},
    event,
    recorder::Mode,
};

/// A lane that does not answer for this long is ended: looking for names may take a second.
const SILENCE: Duration = Duration::from_secs(10);
/// How often it is asked.
const PING: Duration = Duration::from_secs(1);
/// One that has ended is started anew after this time.
const REST: Duration = Duration::from_secs(1);
/// For it to hand over what it has when it shall end.
const ENDING: Duration = Duration::from_secs(3);
/// So long count mode still stands in for a lane that has begun, and one that shall end still records. The kernel asks both holders about an exec, in any order, one
/// after the other, and each may hold it for 40 ms; without that time each of them could leave the same start to the other one.
pub(super) const HANDOVER: Duration = Duration::from_millis(200);
/// What it has begun with by then it sees through, but not for longer than this: the service waits for [`ENDING`].
pub(super) const LONGEST_FAREWELL: Duration = Duration::from_secs(2);
/// Lanes that were killed and cannot end: with so many no other one is started.
const MOST_LEFT: usize = 4;
/// How long one that was killed is waited for.
const REAPING: Duration = Duration::from_millis(200);
/// Bytes of a message, without the file beside it.
const LONGEST: usize = 64 << 10;
/// Of what it is told first: so many paths as a tracer, and the configuration.
const LONGEST_FIRST: usize = LONGEST_JOB + (16 << 20);
/// Bytes of a recording. One start of a large application has 20 MB.
const LARGEST: u64 = 128 << 20;

/// What the lane says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// Starts are recorded from now on; its holder, and why starts are not held, if so.
    Ready {
        holder: u32,
        not_holding_because: Option<String>,
    },
    /// A start has begun, and is recorded.
    Begun { pid: u32 },
    /// A start was recorded: beside this.
    Recorded { pid: u32, owner: Option<u32> },
    /// A start was not.
    Lost { pid: u32, why: String },
    /// Nothing has started: the exec failed.
    Nothing { pid: u32 },
    /// By its command, as far as that is known, a start is not full mode's.
    Unwanted { pid: u32 },
    /// One was over before anybody could ask whether it is to be recorded.
    Unasked { pid: u32 },
    /// It goes round.
    Alive(Figures),
    /// It records nothing from now on, for its holder has ended: it hands over what it has, and ends.
    Fails,
}

/// How the lane is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// What its kernel side has done so far.
    pub(super) events: u64,
    /// What that has lost so far.
    pub(super) losses: Losses,
    /// Starts that were not recorded because of the ceiling.
    pub(super) passed_over: u64,
    /// Processes whose starts are recorded at this moment.
    pub(super) running: Vec<u32>,
}

/// What the lanes have counted, each after the one before.
#[derive(Default)]
pub(super) struct Counts {
    losses: [Losses; 2],
    passed_over: [u64; 2],
}

impl Counts {
    /// A lane begins at nothing.
    pub(super) fn begin(&mut self) {
        self.losses = [self.losses(), Losses::default()];
        self.passed_over = [self.passed_over(), 0];
    }

    /// The lane that there is has counted so much.
    pub(super) fn see(&mut self, losses: Losses, passed_over: u64) {
        self.losses[1] = losses;
        self.passed_over[1] = passed_over;
    }

    pub(super) fn losses(&self) -> Losses {
        let [before, now] = &self.losses;
        std::array::from_fn(|kind| before[kind] + now[kind])
    }

    pub(super) fn passed_over(&self) -> u64 {
        self.passed_over.iter().sum()
    }
}

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    /// Whether starts are recorded, and one in how many of those that the rules admit; 0: none.
    Record { closed: bool, one_in: u32 },
    /// Say that you go round.
    Ping,
}

/// What has come of the lane.
pub(super) enum News {
    /// It records; why starts are not held, if so.
    Ready { not_holding_because: Option<String> },
    /// A start is recorded, of which it will tell.
    Begun,
    /// A start to be kept.
    Recorded {
        pid: u32,
        owner: Option<u32>,
        recording: Box<Recording>,
    },
    /// One that is lost.
    Lost { pid: u32, why: String },
    /// None, after all.
    Nothing { pid: u32 },
    /// One that it takes for count mode's.
    Unwanted { pid: u32 },
    /// One that it could not ask about.
    Unasked { pid: u32 },
    /// It has counted so much.
    Counted { losses: Losses, passed_over: u64 },
    /// It records nothing from now on, and is about to end.
    Fails,
    /// It has ended.
    Gone,
    /// The same, as it was asked to. Another one has begun, if that was wanted.
    Ended,
    /// None can be started, and why: told once, however often that is tried.
    NotStarted { why: String },
}

/// The lane, as the service sees it.
pub(super) struct Lane {
    /// What it is started with, and where a guard listens.
    told_first: ToldFirst,
    guard: Option<PathBuf>,
    running: Option<Running>,
    /// When the last one ended.
    ended: Option<Instant>,
    /// It shall end.
    ending: Option<Ending>,
    /// What it was told last.
    told: (bool, u32),
    /// Why the last one could not be started.
    refused: Option<String>,
    /// Whether the service knows.
    is_refusal_told: bool,
    /// That were killed and cannot end.
    left: Vec<Child>,
}

/// See [`Lane::ending`].
struct Ending {
    since: Instant,
    /// And another one begins.
    is_followed: bool,
}

struct Running {
    child: Child,
    stream: UnixStream,
    news: Receiver<Option<Message>>,
    wake: Arc<OwnedFd>,
    heard: Instant,
    pinged: Instant,
    /// It has said that it records.
    is_ready: bool,
    holder: u32,
    events: u64,
    /// Processes whose starts it records: who is told of neither as recorded nor as lost is lost with it.
    starts: BTreeSet<u32>,
    /// It says nothing more.
    is_over: bool,
}

/// A message, and the recording beside it.
type Message = (Said, Option<Box<Recording>>);

impl Lane {
    /// Starts one.
    pub(super) fn start(config: &Config, guard: Option<&Path>, nodes: &[PathBuf]) -> Lane {
        let mut lane = Lane {
            told_first: ToldFirst::of(config, nodes),
            guard: guard.map(Path::to_owned),
            running: None,
            ended: None,
            ending: None,
            told: (false, 1),
            refused: None,
            is_refusal_told: false,
            left: Vec::new(),
        };
        lane.begin();
        lane
    }

    /// Ends it, and begins another one with this. Does not wait for that.
    pub(super) fn renew(&mut self, config: &Config, guard: Option<&Path>, nodes: &[PathBuf]) {
        self.told_first = ToldFirst::of(config, nodes);
        self.guard = guard.map(Path::to_owned);
        self.end_soon(true);
        if self.running.is_none() {
            self.ending = None;
            self.begin();
        }
    }

    /// Ends it. Does not wait for that.
    pub(super) fn retire(&mut self) {
        self.end_soon(false);
    }

    fn end_soon(&mut self, is_followed: bool) {
        if let Some(running) = &self.running {
            let _ = running.stream.shutdown(std::net::Shutdown::Write);
        }
        let since = self.ending.take().map(|ending| ending.since);
        self.ending = Some(Ending {
            since: since.unwrap_or_else(Instant::now),
            is_followed,
        });
    }

    /// Whether it is to end.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether there is one of which it is not known yet whether it records.
    pub(super) fn is_beginning(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| !running.is_ready)
    }

    /// Whether it has ended for good.
    pub(super) fn is_retired(&self) -> bool {
        let is_last = (self.ending.as_ref()).is_some_and(|ending| !ending.is_followed);
        is_last && self.running.is_none()
    }

    fn begin(&mut self) {
        self.left
            .retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.take(match self.left.len() < MOST_LEFT {
            true => spawn(&self.told_first, self.guard.as_deref()),
            false => Err(io::Error::other(format!(
                "found {MOST_LEFT} earlier ones that wait for a file system which does not answer; needed: one that does"
            ))),
        });
    }

    fn take(&mut self, spawned: io::Result<Running>) {
        let refused = spawned.as_ref().err().map(ToString::to_string);
        self.is_refusal_told &= self.refused == refused;
        self.refused = refused;
        self.running = spawned.ok();
        self.ended = self.running.is_none().then(Instant::now);
        self.told = (false, 1);
    }

    fn untold_refusal(&mut self) -> Option<News> {
        let why = self.refused.clone().filter(|_| !self.is_refusal_told)?;
        self.is_refusal_told = true;
        Some(News::NotStarted { why })
    }

    /// To poll.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.running
            .as_ref()
            .map(|running| running.wake.as_raw_fd())
    }

    /// Its processes.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        let running = self.running.iter();
        running.flat_map(|running| [running.child.id(), running.holder])
    }

    /// Hits of probes and traced system calls of this one.
    pub(super) fn events(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.events)
    }

    /// Starts that it records at this moment.
    pub(super) fn starts(&self) -> usize {
        let running = self.running.as_ref();
        running.map_or(0, |running| running.starts.len())
    }

    /// Whether it records this process at this moment.
    pub(super) fn records(&self, pid: u32) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.starts.contains(&pid))
    }

    /// What has come of it. Sees to it that it runs and answers.
    pub(super) fn next(&mut self) -> Option<News> {
        if self.is_retired() {
            return Some(News::Ended);
        }
        let Some(running) = &mut self.running else {
            if self.ended.is_some_and(|at| at.elapsed() > REST) {
                self.begin();
            }
            return self.untold_refusal();
        };
        event::clear(&running.wake);
        if running.is_over {
            let lost = running.starts.pop_first().map(lost_with);
            return lost.or_else(|| {
                self.end_now();
                let Some(ending) = &self.ending else {
                    return Some(News::Gone);
                };
                if ending.is_followed {
                    self.ending = None;
                    self.begin();
                }
                Some(News::Ended)
            });
        }
        let said = match running.news.try_recv() {
            Ok(Some(said)) => said,
            Err(std::sync::mpsc::TryRecvError::Empty) => {
                let ending = self.ending.as_ref();
                let is_late = ending.is_some_and(|ending| ending.since.elapsed() > ENDING);
                if is_late || running.heard.elapsed() > SILENCE + REAPING {
                    running.is_over = true;
                    return self.next();
                } else if running.heard.elapsed() > SILENCE {
                    let _ = running.child.kill();
                } else if ending.is_none() && running.pinged.elapsed() > PING {
                    running.pinged = Instant::now();
                    let _ = write_message(&mut running.stream, &Told::Ping);
                }
                return None;
            }
            _ => {
                running.is_over = true;
                return self.next();
            }
        };
        running.heard = Instant::now();
        if let Said::Recorded { pid, .. } | Said::Lost { pid, .. } | Said::Unwanted { pid } =
            &said.0
        {
            running.starts.remove(pid);
        }
        match said {
            (Said::Begun { pid }, _) => {
                running.starts.insert(pid);
                Some(News::Begun)
            }
            (
                Said::Ready {
                    holder,
                    not_holding_because,
                },
                _,
            ) => {
                running.holder = holder;
                running.is_ready = true;
                Some(News::Ready {
                    not_holding_because,
                })
            }
            (Said::Recorded { pid, owner }, Some(recording)) => Some(News::Recorded {
                pid,
                owner,
                recording,
            }),
            (Said::Recorded { pid, .. }, None) => Some(News::Lost {
                pid,
                why: "its recording cannot be read".into(),
            }),
            (Said::Lost { pid, why }, _) => Some(News::Lost { pid, why }),
            (Said::Nothing { pid }, _) => Some(News::Nothing { pid }),
            (Said::Fails, _) => Some(News::Fails),
            (Said::Unwanted { pid }, _) => Some(News::Unwanted { pid }),
            (Said::Unasked { pid }, _) => Some(News::Unasked { pid }),
            (Said::Alive(figures), _) => {
                running.events = figures.events;
                running.starts = figures.running.into_iter().collect();
                Some(News::Counted {
                    losses: figures.losses,
                    passed_over: figures.passed_over,
                })
            }
        }
    }

    /// Tells it what holds now.
    pub(super) fn tell(&mut self, closed: bool, one_in: u32) {
        if let (Some(running), None) = (&mut self.running, &self.ending)
            && self.told != (closed, one_in)
        {
            self.told = (closed, one_in);
            let _ = write_message(&mut running.stream, &Told::Record { closed, one_in });
        }
    }

    /// Ends it, and waits until it has handed over what it has.
    pub(super) fn end(mut self) -> Vec<News> {
        self.retire();
        let mut news = Vec::new();
        loop {
            match self.next() {
                Some(News::Ended) => return news,
                Some(one) => news.push(one),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn end_now(&mut self) {
        let Some(mut running) = self.running.take() else {
            return;
        };
        self.ended = Some(Instant::now());
        let _ = running.child.kill();
        let until = Instant::now() + REAPING;
        while Instant::now() < until {
            if !matches!(running.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // It waits for a file system that does not answer, from which no signal takes it. Its holder, which would not hear of its end, has none to obey;
        // it cannot be reaped before its parent has ended, so it is still this one.
        if running.holder > 0 {
            // SAFETY: takes integers.
            unsafe { libc::kill(running.holder as libc::pid_t, libc::SIGKILL) };
        }
        self.left.push(running.child);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.end_now();
    }
}

fn lost_with(pid: u32) -> News {
    News::Lost {
        pid,
        why: "full mode ended while it was recorded".into(),
    }
}

/// What the lane is told on its standard input: command lines are everybody's to read.
#[derive(Default, Serialize, Deserialize)]
struct ToldFirst {
    /// Of the configuration.
    text: String,
    /// Node binaries that are known. Paths that need be no text: users choose them.
    nodes: Vec<OsString>,
}

impl ToldFirst {
    fn of(config: &Config, nodes: &[PathBuf]) -> ToldFirst {
        ToldFirst {
            text: config.text.clone(),
            nodes: nodes.iter().take(MOST_NODES).map(OsString::from).collect(),
        }
    }
}

/// What the lane is told by its command line.
#[derive(Serialize, Deserialize)]
struct Job {
    guard: Option<PathBuf>,
    socket: RawFd,
}

fn spawn(told_first: &ToldFirst, guard: Option<&Path>) -> io::Result<Running> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = super::tracer::high(theirs.as_raw_fd())?;
    let job = Job {
        guard: guard.map(Path::to_owned),
        socket: theirs.as_raw_fd(),
    };
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--lane", &serde_json::to_string(&job)?])
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    super::tracer::leave_open(&mut command, vec![job.socket]);
    let mut child = command.spawn()?;
    drop(theirs);
    let stdin = child.stdin.take();
    let told = stdin.map_or(Ok(()), |mut stdin| write_message(&mut stdin, told_first));
    match told.and_then(|()| hear(&ours)) {
        Ok((news, wake)) => Ok(Running::new(child, ours, news, wake)),
        Err(error) => {
            // Nobody else waits for it, and another one is tried each second.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Hears what a lane says; the second part tells that it has said something.
fn hear(ours: &UnixStream) -> io::Result<(Receiver<Option<Message>>, Arc<OwnedFd>)> {
    let (sender, news) = channel();
    let wake = Arc::new(event::new()?);
    let (stream, of_thread) = (ours.try_clone()?, wake.clone());
    // Reading a recording takes a while; the loop has other things to do.
    std::thread::Builder::new()
        .name("lane".into())
        .spawn(move || {
            loop {
                let said = receive(&stream);
                let is_over = said.is_none() || sender.send(said).is_err();
                if is_over {
                    let _ = sender.send(None);
                }
                event::signal(&of_thread);
                if is_over {
                    return;
                }
            }
        })?;
    Ok((news, wake))
}

impl Running {
    fn new(
        child: Child,
        stream: UnixStream,
        news: Receiver<Option<Message>>,
        wake: Arc<OwnedFd>,
    ) -> Running {
        Running {
            child,
            stream,
            news,
            wake,
            heard: Instant::now(),
            pinged: Instant::now(),
            is_ready: false,
            holder: 0,
            events: 0,
            starts: BTreeSet::new(),
            is_over: false,
        }
    }
}

fn receive(stream: &UnixStream) -> Option<Message> {
    let mut incoming = Incoming::new(stream, None);
    let said: Said = read_message(&mut incoming, LONGEST).ok()?;
    let recording = incoming.files.pop().and_then(|file| {
        let mut file = fs::File::from(file);
        let mut bytes = Vec::new();
        file.rewind().ok()?;
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        Recording::from_bytes(&bytes).ok().map(Box::new)
    });
    Some((said, recording))
}

/// The service, as the lane sees it.
pub(super) struct Link {
    stream: UnixStream,
}

impl Link {
    /// To poll.
    pub(super) fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Says something. An error: the service is gone, or does not read.
    pub(super) fn say(&self, said: &Said) -> io::Result<()> {
        write_message(&mut &self.stream, said)
    }

    /// Hands a recording over.
    ///
    /// # Errors
    /// Why it is lost, in words.
    pub(super) fn keep(
        &self,
        pid: u32,
        owner: Option<u32>,
        recording: &Recording,
    ) -> Result<(), String> {
        let bytes = recording.to_bytes().map_err(|error| error.to_string())?;
        if bytes.len() as u64 > LARGEST {
            return Err(format!("{} bytes are too many", bytes.len()));
        }
        let file = sealed(&bytes).map_err(|error| error.to_string())?;
        let mut stream = self.stream.try_clone().map_err(|error| error.to_string())?;
        write_with_files(&mut stream, &Said::Recorded { pid, owner }, &[file.as_fd()])
            .map_err(|error| error.to_string())
    }

    /// What the service says, which does so seldom; to be called when there is something. `None`: it wants us to end, or is gone.
    pub(super) fn hear(&self) -> Option<Told> {
        read_message(&mut &self.stream, LONGEST).ok()
    }
}

/// The lane's process: `nodeprofd --lane JOB`.
///
/// # Errors
/// What is wrong, in words.
pub fn main(job: &str, tell: &mut dyn FnMut(Happening<'_>)) -> Result<(), String> {
    let job: Job = serde_json::from_str(job)
        .map_err(|error| format!("--lane is for nodeprofd's own use: {error}"))?;
    // SAFETY: a constant with its NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"nodeprof-lane".as_ptr()) };
    // SAFETY: the service has left it to us, and names it once.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(job.socket) });
    let told: ToldFirst = read_message(&mut io::stdin().lock(), LONGEST_FIRST)
        .map_err(|error| format!("--lane is for nodeprofd's own use: {error}"))?;
    let nodes = Nodes::found_by_another(told.nodes.into_iter().map(PathBuf::from).collect());
    let config =
        Config::parse(&told.text, Path::new("the configuration")).map_err(|e| e.to_string())?;
    // A service that does not read is none.
    let patience = stream
        .set_write_timeout(Some(SILENCE))
        .and_then(|()| stream.set_read_timeout(Some(SILENCE)));
    patience.map_err(|error| error.to_string())?;
    Service::serve_lane(config, Link { stream }, job.guard, nodes, tell)
        .map_err(|error: ServiceError| error.to_string())
}

/// From now on this thread, and those that it starts, read files with no more rights than anybody has; or with those of the service
/// again. The holder, a process of its own, keeps them: what programs execute must be read, whoever they belong to.
///
/// # Errors
/// The system's; then the lane must not go on.
pub(super) fn read_as_anybody(is_so: bool) -> io::Result<()> {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    const NOBODY: libc::uid_t = 65_534;
    let rights = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE;
    // SAFETY: take integers. Root owns what others may not read; as nobody one owns nothing.
    let set_user = |id| unsafe {
        if libc::geteuid() == 0 {
            libc::setfsgid(id);
            libc::setfsuid(id);
        }
    };
    // The kernel takes and gives rights over files with the user: so that comes first.
    set_user(if is_so { NOBODY } else { 0 });
    let mut own = capabilities(None)?;
    own.effective.set(rights & own.permitted, !is_so);
    Ok(set_capabilities(None, own)?)
}

/// Does something with all rights of the service, in the lane, too: what it reads must be chosen by the kernel, not by other users' programs.
///
/// # Errors
/// As [`read_as_anybody`].
pub(super) fn with_rights<T>(mode: Mode, act: impl FnOnce() -> T) -> io::Result<T> {
    if mode == Mode::Count {
        return Ok(act());
    }
    read_as_anybody(false)?;
    let done = act();
    read_as_anybody(true)?;
    Ok(done)
}

/// A file in memory that nobody can change any more.
fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a name with its NUL.
    let fd = unsafe { libc::memfd_create(c"recording".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    let file = fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    io::Write::write_all(&mut &file, bytes)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: a descriptor of ours.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(file.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    /// systemd's default is to stop the service and all of its processes.
    #[test]
    fn the_service_stays_where_the_kernel_ends_the_lane_alone_for_want_of_memory() {
        let unit = include_str!("../../../systemd/nodeprofd.service");
        assert!(unit.lines().any(|line| line == "OOMPolicy=continue"));
    }

    /// A lane at whose other end nobody is, but who has the stream.
    fn with(stream: UnixStream) -> Lane {
        let child = Command::new("sleep").arg("100").spawn().unwrap();
        let (news, wake) = hear(&stream).unwrap();
        Lane {
            told_first: ToldFirst::default(),
            guard: None,
            running: Some(Running::new(child, stream, news, wake)),
            ended: None,
            ending: None,
            told: (false, 1),
            refused: None,
            is_refusal_told: false,
            left: Vec::new(),
        }
    }

    #[test]
    fn why_none_can_be_started_is_told_once() {
        let mut lane = Lane {
            told_first: ToldFirst::default(),
            guard: None,
            running: None,
            ended: None,
            ending: None,
            told: (false, 1),
            refused: None,
            is_refusal_told: false,
            left: Vec::new(),
        };
        let mut told_of = |number: i32| {
            lane.take(Err(io::Error::from_raw_os_error(number)));
            match lane.next() {
                Some(News::NotStarted { why }) => Some(why),
                _ => None,
            }
        };
        let in_words = |number| Some(io::Error::from_raw_os_error(number).to_string());
        assert_eq!(told_of(libc::ENOMEM), in_words(libc::ENOMEM));
        assert_eq!(told_of(libc::ENOMEM), None);
        assert_eq!(told_of(libc::EMFILE), in_words(libc::EMFILE));
        assert_eq!(told_of(libc::EMFILE), None);
    }

    fn alive(passed_over: u64, running: &[u32]) -> Said {
        Said::Alive(Figures {
            events: 7,
            losses: std::array::from_fn(|kind| kind as u64 * passed_over),
            passed_over,
            running: running.to_vec(),
        })
    }

    /// What becomes of all that it says until it is gone; those that are lost, and how many it recorded before each piece of news.
    fn until_gone(lane: &mut Lane, counts: &mut Counts) -> (Vec<u32>, Vec<usize>) {
        let (mut lost, mut running) = (Vec::new(), Vec::new());
        for _ in 0..2_000 {
            match lane.next() {
                Some(News::Gone | News::Ended) => return (lost, running),
                Some(News::Lost { pid, .. }) => lost.push(pid),
                Some(News::NotStarted { why }) => panic!("{why}"),
                Some(News::Ready { .. }) => counts.begin(),
                Some(News::Counted {
                    losses,
                    passed_over,
                }) => {
                    counts.see(losses, passed_over);
                    running.push(lane.starts());
                }
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        panic!("it is not gone");
    }

    #[test]
    fn starts_of_a_lane_that_is_gone_are_lost_and_what_was_passed_over_is_added_up() {
        let mut counts = Counts::default();
        let begin = |says: &[Said]| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            for said in says {
                write_message(&mut &theirs, said).unwrap();
            }
            with(ours)
        };
        let ready = || Said::Ready {
            holder: 0,
            not_holding_because: None,
        };
        let told = |pid| Said::Lost {
            pid,
            why: "no".into(),
        };
        // It goes without a word on 3 and 5.
        let mut lane = begin(&[ready(), alive(1, &[3, 4]), alive(2, &[3, 4, 5]), told(4)]);
        let (lost, running) = until_gone(&mut lane, &mut counts);
        assert_eq!((lost, running), (vec![4, 3, 5], vec![2, 3]));
        let of_each = |n: u64| std::array::from_fn(|kind| kind as u64 * n);
        assert_eq!((counts.losses(), counts.passed_over()), (of_each(2), 2));
        assert_eq!(lane.starts(), 0);
        // The next one counts from the beginning; it says farewell.
        let mut lane = begin(&[ready(), alive(3, &[8]), alive(4, &[])]);
        let (lost, _) = until_gone(&mut lane, &mut counts);
        assert!(lost.is_empty(), "{lost:?}");
        assert_eq!((counts.losses(), counts.passed_over()), (of_each(6), 6));
    }

    #[test]
    fn of_a_lane_that_could_not_be_told_anything_nothing_is_left() {
        // More than a pipe takes of one who does not read: this program takes no lane's options, and ends.
        let told_first = ToldFirst {
            text: "x".repeat(1 << 20),
            ..ToldFirst::default()
        };
        assert!(spawn(&told_first, None).is_err());
        let children = fs::read_to_string("/proc/thread-self/children").unwrap();
        assert_eq!(children, "");
    }

    #[test]
    fn a_lane_that_is_to_end_is_waited_for_by_nobody() {
        let next = |lane: &mut Lane| {
            let until = Instant::now() + Duration::from_secs(10);
            while Instant::now() < until {
                if let Some(news) = lane.next() {
                    return news;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            panic!("no news");
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut lane = with(ours);
        lane.retire();
        assert!(lane.is_ending() && !lane.is_retired());
        assert!(lane.next().is_none());
        // It hears of that, and what it says is heard.
        let mut told = Vec::new();
        (&theirs).read_to_end(&mut told).unwrap();
        write_message(&mut &theirs, &Said::Nothing { pid: 3 }).unwrap();
        assert!(matches!(next(&mut lane), News::Nothing { pid: 3 }));
        drop(theirs);
        assert!(matches!(next(&mut lane), News::Ended) && lane.is_retired());
        // One that is to be followed is, when it has ended and not before: here by one that cannot be started, for this program takes no lane's options.
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut lane = with(ours);
        lane.renew(&Config::default(), None, &[]);
        let first = lane.pids().next().unwrap();
        assert!(lane.next().is_none() && lane.pids().next() == Some(first));
        drop(theirs);
        assert!(matches!(next(&mut lane), News::Ended));
        assert!(!lane.is_ending() && !lane.is_retired());
        assert_ne!(lane.pids().next(), Some(first));
    }

    #[test]
    fn starts_that_a_lane_does_not_hand_over_when_it_ends_are_lost() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        write_message(&mut &theirs, &alive(0, &[3, 4])).unwrap();
        let news = with(ours).end();
        let lost = news.iter().filter_map(|news| match news {
            News::Lost { pid, .. } => Some(*pid),
            _ => None,
        });
        assert_eq!(lost.collect::<Vec<_>>(), [3, 4]);
        drop(theirs);
        // Also those that have begun since it was asked how it is, and by its word have not come to an end.
        let (ours, theirs) = UnixStream::pair().unwrap();
        for said in [
            alive(0, &[3]),
            Said::Begun { pid: 4 },
            Said::Begun { pid: 5 },
            Said::Unwanted { pid: 4 },
        ] {
            write_message(&mut &theirs, &said).unwrap();
        }
        drop(theirs);
        let (lost, _) = until_gone(&mut with(ours), &mut Counts::default());
        assert_eq!(lost, [3, 5]);
    }
}
