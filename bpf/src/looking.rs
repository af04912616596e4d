//! Looking at files that may lie where nobody answers: in a network file system whose server is gone, or in one of FUSE whose program hangs.
//!
//! Who opens such a file, or asks for its size, waits in the kernel, maybe for ever, and there are such waits that no signal ends. So a process of its own
//! looks, which has nothing that anybody would miss: no descriptors but a socket, no probes, no held execs. It has further threads for what comes behind a file that
//! does not answer, and tells of that one as silent after a time; who has asked goes on without it. The process goes on waiting, so each such
//! file costs one thread there, and its answer is told when it comes.

use std::{
    collections::{BTreeMap, HashSet},
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::hold::guard::{fork_apart, is_readable};

/// Threads that look: so many files may be silent before nobody is left for others.
const MOST_THREADS: usize = 16;
/// Where nothing has been answered for this long, and nothing computed, another thread takes the next file.
const HELP: Duration = Duration::from_millis(100);
/// How often that is looked for; and when all have been told of, which may be for ever.
const TURN: Duration = Duration::from_millis(20);
const LATER_TURN: Duration = Duration::from_secs(10);
/// Bytes of an answer.
const LONGEST: usize = 64 << 10;

/// What a message is: the first byte; then, but for the last of these, the number of a file.
const SEEN: u8 = b'a';
const SILENT: u8 = b's';
const BEHIND: u8 = b'b';
const ALL_TOLD: u8 = b'e';

/// What came of a look at a file: for who has asked, as it is, and perhaps the file.
pub type Sight = (Vec<u8>, Option<OwnedFd>);

/// A process that looks at files. It ends when this is dropped, if it can.
pub struct Looking {
    socket: OwnedFd,
    pid: libc::pid_t,
    is_reaped: bool,
}

/// What it tells.
#[derive(Debug)]
pub enum News {
    /// The file of this number was looked at. It may have been silent before.
    Seen(usize, Sight),
    /// This one has not answered in time. It is looked at still.
    Silent(usize),
    /// Nobody has come to this one, for others that do not answer.
    Behind(usize),
    /// All were told of.
    AllTold,
    /// The process has ended.
    Gone,
}

impl Looking {
    /// Begins to look at so many files, each by its number. One that takes longer than `limit` is silent. To be called while no other thread has a lock that
    /// `look` takes: it is called in a fork.
    ///
    /// # Errors
    /// If there can be no socket or process.
    pub fn start(
        count: usize,
        limit: Duration,
        look: impl Fn(usize) -> Sight + Send + Sync + 'static,
    ) -> io::Result<Looking> {
        let (socket, pid) = fork_apart(c"nodeprof-looks", |socket| {
            // SAFETY: constants.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            look_at_all(socket, count, limit, look);
        })?;
        Ok(Looking {
            socket,
            pid,
            is_reaped: false,
        })
    }

    /// To poll.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// What it tells next; `None`: nothing within this time.
    pub fn next(&self, patience: Duration) -> Option<News> {
        if !is_readable(self.descriptor(), patience) {
            return None;
        }
        let mut bytes = vec![0u8; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            flags,
        );
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        bytes.truncate(got.map_or(0, |got| got.bytes));
        let Some((kind, rest)) = bytes.split_first() else {
            return Some(News::Gone);
        };
        let number = rest.first_chunk().map(|number| u64::from_le_bytes(*number));
        Some(match (*kind, number) {
            (SEEN, Some(number)) => News::Seen(number as usize, (bytes.split_off(9), file)),
            (SILENT, Some(number)) => News::Silent(number as usize),
            (BEHIND, Some(number)) => News::Behind(number as usize),
            (ALL_TOLD, _) => News::AllTold,
            _ => News::Gone,
        })
    }

    /// Whether it has ended. One that was killed may be kept by the file system that does not answer.
    pub fn has_ended(&mut self) -> bool {
        if !self.is_reaped {
            // SAFETY: our own child; its status is of no interest.
            let reaped = unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) };
            self.is_reaped = reaped != 0;
        }
        self.is_reaped
    }

    /// Nobody wants to hear of it any more.
    pub fn kill(&mut self) {
        if !self.has_ended() {
            // SAFETY: our own child, which nobody else reaps.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.kill();
        self.has_ended();
    }
}

/// How far they are.
struct State {
    next: usize,
    /// That are looked at now, since when.
    begun: BTreeMap<usize, Instant>,
    /// When something was answered, or somebody began to help; and the CPU time of the process by then.
    last: (Instant, Duration),
}

struct Board<L> {
    state: Mutex<State>,
    changed: Condvar,
    socket: OwnedFd,
    count: usize,
    look: L,
}

impl<L: Fn(usize) -> Sight> Board<L> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at one file after the other.
    fn look(&self) {
        while let Some(number) = self.take() {
            let seen = catch_unwind(AssertUnwindSafe(|| (self.look)(number)));
            let (body, file) = seen.unwrap_or_default();
            self.tell(SEEN, number, &body, file);
            let mut state = self.lock();
            state.begun.remove(&number);
            state.last = (Instant::now(), cpu_time());
            self.changed.notify_one();
        }
    }

    fn take(&self) -> Option<usize> {
        let mut state = self.lock();
        let number = state.next;
        (number < self.count).then(|| {
            state.next += 1;
            state.begun.insert(number, Instant::now());
            number
        })
    }

    /// Without somebody who hears it this process is killed soon.
    fn tell(&self, kind: u8, number: usize, body: &[u8], file: Option<OwnedFd>) {
        let mut bytes = vec![kind];
        bytes.extend((number as u64).to_le_bytes());
        bytes.extend(&body[..body.len().min(LONGEST - bytes.len())]);
        let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        let flags = SendFlags::NOSIGNAL;
        let _ = sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, flags);
    }
}

/// Sees to it that files are looked at, tells of those that are silent, and stays until these have answered.
fn look_at_all(
    socket: OwnedFd,
    count: usize,
    limit: Duration,
    look: impl Fn(usize) -> Sight + Send + Sync + 'static,
) {
    let board = Arc::new(Board {
        state: Mutex::new(State {
            next: 0,
            begun: BTreeMap::new(),
            last: (Instant::now(), cpu_time()),
        }),
        changed: Condvar::new(),
        socket,
        count,
        look,
    });
    let start_one = || {
        let board = Arc::clone(&board);
        std::thread::Builder::new().spawn(move || board.look())
    };
    let mut threads = usize::from(start_one().is_ok());
    let mut most_threads = if threads > 0 { MOST_THREADS } else { 0 };
    let mut told = HashSet::new();
    let mut is_all_told = false;
    loop {
        let mut state = board.lock();
        let (since, computed) = state.last;
        let hangs = since.elapsed() > HELP && cpu_time() - computed < HELP / 2;
        if state.next < count && threads < most_threads && hangs {
            match start_one() {
                Ok(_) => threads += 1,
                Err(_) => most_threads = threads,
            }
            state.last = (Instant::now(), cpu_time());
        }
        let late = |since: &Instant| since.elapsed() > limit;
        let late = state.begun.iter().filter(|(_, since)| late(since));
        let mut news: Vec<(u8, usize)> = late.map(|(number, _)| (SILENT, *number)).collect();
        let are_begun_told = news.len() == state.begun.len();
        // All who look wait for files that are silent: nobody comes to those behind.
        let nobody_comes = news.len() >= most_threads;
        if nobody_comes {
            news.extend((state.next..count).map(|number| (BEHIND, number)));
        }
        news.retain(|one| told.insert(*one));
        let is_over = state.begun.is_empty() && (state.next >= count || threads == 0);
        let are_told = are_begun_told && (state.next >= count || nobody_comes);
        if !is_all_told && are_told {
            is_all_told = true;
            news.push((ALL_TOLD, 0));
        }
        if news.is_empty() && !is_over {
            let turn = if is_all_told { LATER_TURN } else { TURN };
            let waited = board.changed.wait_timeout(state, turn);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            continue;
        }
        drop(state);
        for (kind, number) in news {
            board.tell(kind, number, &[], None);
        }
        if is_over {
            return;
        }
    }
}

/// Of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    /// What is told until all is; the number of each file and whether it was seen.
    fn told(looking: &Looking) -> Vec<(usize, bool)> {
        let mut told = Vec::new();
        loop {
            match looking.next(Duration::from_secs(10)).unwrap() {
                News::Seen(number, (body, _)) => {
                    assert_eq!(body, format!("{number}").as_bytes());
                    told.push((number, true));
                }
                News::Silent(number) | News::Behind(number) => told.push((number, false)),
                News::AllTold => {
                    told.sort_unstable();
                    return told;
                }
                News::Gone => panic!("it has ended: {told:?}"),
            }
        }
    }

    fn wait_for_the_end_of(looking: &mut Looking) {
        let since = Instant::now();
        while !looking.has_ended() {
            assert!(since.elapsed() < Duration::from_secs(5));
            std::thread::sleep(TURN);
        }
    }

    fn sight(number: usize) -> Sight {
        (format!("{number}").into_bytes(), None)
    }

    #[test]
    fn what_is_silent_keeps_nothing_else_and_is_told_when_it_answers() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        let of_child = pipe.clone();
        let look = move |number| {
            // A pipe that nobody writes to keeps who opens it.
            if number % 10 == 3 {
                let _ = std::fs::File::open(&of_child);
            }
            sight(number)
        };
        let mut looking = Looking::start(40, HELP * 5, look).unwrap();
        let expected = (0..40).map(|number| (number, number % 10 != 3));
        assert_eq!(told(&looking), expected.collect::<Vec<_>>());
        assert!(!looking.has_ended());
        let writer = std::fs::File::options().write(true).open(&pipe).unwrap();
        let mut late = Vec::new();
        while let Some(News::Seen(number, _)) = looking.next(Duration::from_secs(5)) {
            late.push(number);
        }
        late.sort_unstable();
        assert_eq!(late, [3, 13, 23, 33]);
        drop(writer);
        wait_for_the_end_of(&mut looking);
    }

    #[test]
    fn where_all_who_look_hang_the_rest_is_silent_and_nobody_stays() {
        let hang = |_| loop {
            std::thread::park();
        };
        let count = MOST_THREADS + 5;
        let mut looking = Looking::start(count, HELP, hang).unwrap();
        let all = (0..count).map(|number| (number, false));
        assert_eq!(told(&looking), all.collect::<Vec<_>>());
        looking.kill();
        wait_for_the_end_of(&mut looking);
    }

    #[test]
    fn files_are_handed_over_and_nothing_to_look_at_is_told_at_once() {
        let look = |_| {
            let file = std::fs::File::open("/dev/null").unwrap();
            (b"0".to_vec(), Some(file.into()))
        };
        let looking = Looking::start(1, HELP, look).unwrap();
        match looking.next(Duration::from_secs(5)) {
            Some(News::Seen(0, (_, Some(file)))) => {
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                assert_eq!(
                    std::fs::read_link(path).unwrap(),
                    std::path::Path::new("/dev/null")
                );
            }
            other => panic!("{other:?}"),
        }
        let looking = Looking::start(0, HELP, sight).unwrap();
        assert!(matches!(
            looking.next(Duration::from_secs(5)),
            Some(News::AllTold)
        ));
    }
}
