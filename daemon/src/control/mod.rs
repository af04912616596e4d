//! How others talk with the service: what is said on its socket, and the side that asks.
//!
//! A message is its length (u32, little-endian) and so many bytes of JSON. A connection has one request and one answer; behind an answer with a
//! recording follow its bytes, so that nobody opens a path for anybody else. Who asks is what the kernel says of the socket, never what the message says.
//!
//! Bounds: [`LONGEST_REQUEST`], [`LONGEST_GIVEN`], [`MOST_FETCHED`].

use std::{
    collections::BTreeMap,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nodeprof_profile::{
    Recording,
    store::database::{Filter, Found, Labels, RunNumber, Summary},
};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::recorder::{Counted, Wanted};

/// Number of a user, by its name or its number.
pub fn user_id(text: &str) -> Option<u32> {
    crate::machine::user_id(text)
}

/// Version of what is said. A request with another one is answered by an error that names both.
pub const VERSION: u32 = 3;
/// Bytes of a request.
pub const LONGEST_REQUEST: usize = 64 << 10;
/// Bytes of an answer that is read, without the recording behind it.
pub const LONGEST_ANSWER: usize = 32 << 20;
/// Bytes of one that is given.
pub const LONGEST_GIVEN: usize = 8 << 20;
/// Bytes of a step of a trace.
pub const LONGEST_STEP: usize = 64;
/// Runs of one answer.
pub const MOST_FOUND: usize = 1000;
/// Labels that one request chooses runs by. Each is a search of its own: 900 took the store 12 s.
pub const MOST_LABELS: usize = 16;
/// Bytes of memory, about, for one of a recording that is handed over: it is there as it came, too, while it is read.
const OF_A_BYTE: u64 = 2;
/// Runs of one recording that is handed over.
pub const MOST_FETCHED: usize = 50;
/// Where the service listens by default.
pub const DEFAULT_SOCKET: &str = "/run/nodeprof/control.sock";

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// What it asks for.
    pub ask: Ask,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// How the service is.
    Status,
    /// Which runs there are.
    Runs(Find),
    /// Runs, as a recording.
    Fetch {
        /// Their numbers.
        runs: Vec<RunNumber>,
    },
    /// Labels that runs have.
    Labels,
    /// Sums over all starts, for a monitoring system.
    Metrics,
    /// Trace a program of one's own. Beside this are a pidfd of its process, which waits for its exec, and perhaps the node binary that it will
    /// execute. The answer is [`Answer::Tracing`]; then the connection takes one [`Step`] after the other.
    Trace(Wanted),
    /// Read the configuration again.
    Reload,
    /// Record nothing until `Resume`.
    Pause,
    /// Record again.
    Resume,
}

/// What is said on the connection of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Its probes exist: begin to take CPU samples, if any are wanted. Answered by [`Answer::Started`].
    Start,
    /// Tell how often probes were hit so far. Answered by [`Answer::Hits`].
    Hits,
    /// It is over. Answered by [`Answer::Counted`].
    End,
}

/// Which runs; each condition must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Find {
    /// These numbers only.
    pub runs: Option<Vec<RunNumber>>,
    /// Labels that a run must have.
    pub labels: Vec<(String, String)>,
    /// A part of the command.
    pub command: Option<String>,
    /// A package that it loaded modules of.
    pub package: Option<String>,
    /// Only those that ended with another exit status than 0, or by a signal.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Started at this instant or later, ns since the Unix epoch.
    pub since_unix_ns: Option<u64>,
    /// Started before it.
    pub until_unix_ns: Option<u64>,
    /// Of this user only.
    pub user: Option<u32>,
    /// At most so many, the newest; never more than [`MOST_FOUND`].
    pub most: Option<usize>,
}

impl From<&Filter> for Find {
    fn from(filter: &Filter) -> Find {
        Find {
            runs: filter.runs.clone(),
            labels: filter.labels.clone(),
            command: filter.command.clone(),
            package: filter.package.clone(),
            failed: filter.failed,
            since_unix_ns: filter.since_unix_ns,
            until_unix_ns: filter.until_unix_ns,
            user: filter
                .owners
                .as_ref()
                .and_then(|owners| owners.first().copied()),
            most: filter.most,
        }
    }
}

/// What the service says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To [`Ask::Status`].
    Status(Box<Status>),
    /// To [`Ask::Runs`], the newest first.
    Runs(Vec<Summary>),
    /// To [`Ask::Runs`], where there are more than so many, or than so many bytes, or some that cannot be read.
    SomeRuns(Found),
    /// To [`Ask::Fetch`]: it follows on the connection.
    Recording {
        /// Its size.
        bytes: u64,
    },
    /// To [`Ask::Labels`]: key, value and number of runs, the most frequent first.
    Labels(Vec<(String, String, u64)>),
    /// The same where there are more than so many, or than so many bytes.
    SomeLabels(Labels),
    /// To [`Ask::Metrics`]: text in the format of OpenMetrics 1.0.
    Metrics(String),
    /// To [`Ask::Trace`]: beside this are the ring buffer of the records, and the holder's socket. The connection closes when the probes are
    /// gone.
    Tracing,
    /// To [`Step::Start`].
    Started {
        /// Why there are no CPU samples.
        no_samples: Option<String>,
    },
    /// To [`Step::Hits`].
    Hits(u64),
    /// To [`Step::End`].
    Counted(Box<Counted>),
    /// To [`Ask::Fetch`]: these runs take too much memory; fewer at a time may be had.
    TooMuch {
        /// What was found, what is needed.
        why: String,
    },
    /// It is done.
    Done,
    /// It is not.
    Refused {
        /// What was found, what is needed, what to type.
        why: String,
    },
}

/// How the service is. The keys are those of `nodeprof service status --format json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Of nodeprofd.
    pub version: String,
    /// [`VERSION`].
    pub protocol: u32,
    /// Its process.
    pub pid: u32,
    /// Since when it runs, ns since the Unix epoch.
    pub started_unix_ns: u64,
    /// `recording`, `paused` (by command), or `full` (the disk of the store).
    pub state: String,
    /// Starts are held until their probes exist.
    pub holding: bool,
    /// Why not.
    pub not_holding_because: Option<String>,
    /// Starts that are recorded at this moment.
    pub running: usize,
    /// Starts that were recorded since the service began.
    pub recorded: u64,
    /// Starts that could not be recorded or kept since then.
    pub lost: u64,
    /// The database.
    pub store: PathBuf,
    /// Runs in it.
    pub runs: usize,
    /// Bytes of it.
    pub store_bytes: u64,
    /// Starts that wait to be written.
    pub queued: usize,
    /// Where a damaged database was set aside since the service began.
    pub set_aside: Option<PathBuf>,
    /// Files that may be node binaries and are left out, because their file systems do not answer.
    #[serde(default)]
    pub not_answering: usize,
    /// Some of them, for who may read all runs.
    #[serde(default)]
    pub not_answering_files: Vec<String>,
    /// Of the starts that the rules admit one in so many is recorded, because of the ceiling; 0: none.
    pub one_in: u32,
    /// Starts that were not recorded because of the ceiling, since the service began.
    pub passed_over: u64,
    /// Records and calls that the kernel side lost since then, each once, whatever starts were recorded at that time.
    #[serde(default)]
    pub losses: u64,
    /// The same by kind, without kinds of which there is none.
    #[serde(default)]
    pub losses_by_kind: BTreeMap<String, u64>,
    /// CPU time of the service and its holder.
    pub cpu_ns: u64,
    /// Memory of the service, its holder and the processes of full mode, bytes: the sum of their proportional set sizes.
    pub memory_bytes: u64,
    /// Whose runs you may read: `all` or `own`.
    pub may_read: String,
    /// You may reload, pause and resume.
    pub may_administer: bool,
    /// You may have your own programs traced.
    pub may_trace: bool,
}

/// Why the service gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("nodeprofd does not run (no socket {}); needed: the service; type: sudo systemctl start nodeprofd, or where there is no systemd: sudo nodeprofd --config FILE", socket.display())]
    NotRunning {
        /// The socket.
        socket: PathBuf,
    },
    /// The socket is not for this user.
    #[error("{} may not be used by this user; needed: a member of its group (ls -l names it); type: sudo usermod --append --groups nodeprof $USER, and log in again", socket.display())]
    NotPermitted {
        /// The socket.
        socket: PathBuf,
    },
    /// The connection broke.
    #[error(
        "nodeprofd did not answer ({error}); needed: a service that is well; type: systemctl status nodeprofd"
    )]
    Broken {
        /// What the system said.
        #[from]
        error: io::Error,
    },
    /// It said no.
    #[error("{0}")]
    Refused(String),
    /// It said no, for that much at a time.
    #[error("{0}")]
    TooMuch(String),
    /// It said something else than what was asked for.
    #[error(
        "nodeprofd answered something else than what was asked; needed: nodeprof and nodeprofd of one version; type: nodeprof --version"
    )]
    Unexpected,
}

/// The side that asks.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// Of a socket.
    pub fn new(socket: &Path) -> Client {
        Client {
            socket: socket.to_owned(),
        }
    }

    /// Asks; returns the answer, and the connection, on which a recording follows.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn ask(&self, ask: Ask) -> Result<(Answer, UnixStream), AskError> {
        let (answer, stream, _) = self.talk(ask, &[])?;
        Ok((answer, stream))
    }

    /// Asks, and hands files over; returns the connection, too.
    fn talk(
        &self,
        ask: Ask,
        files: &[BorrowedFd<'_>],
    ) -> Result<(Answer, UnixStream, Vec<OwnedFd>), AskError> {
        let socket = self.socket.clone();
        let mut stream = UnixStream::connect(&socket).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                AskError::NotRunning { socket }
            }
            io::ErrorKind::PermissionDenied => AskError::NotPermitted { socket },
            _ => AskError::Broken { error },
        })?;
        // Loading some hundred runs, behind others who do the same.
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        let request = Request {
            version: VERSION,
            ask,
        };
        // Who is refused at once is told so, and cannot write any more.
        let written = write_with_files(&mut stream, &request, files);
        let mut incoming = Incoming::new(&stream, None);
        let answer = match read_message(&mut incoming, LONGEST_ANSWER) {
            Ok(answer) => answer,
            Err(error) => {
                written?;
                return Err(error.into());
            }
        };
        let files = incoming.files;
        match answer {
            Answer::Refused { why } => Err(AskError::Refused(why)),
            Answer::TooMuch { why } => Err(AskError::TooMuch(why)),
            answer => Ok((answer, stream, files)),
        }
    }

    /// Has a program traced: `files` are a pidfd of its process, and perhaps the node binary that it will execute. Returns the connection, the
    /// ring buffer of the records, and the holder's socket.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn trace(
        &self,
        wanted: Wanted,
        files: &[BorrowedFd<'_>],
    ) -> Result<(UnixStream, OwnedFd, OwnedFd), AskError> {
        let (answer, connection, files) = self.talk(Ask::Trace(wanted), files)?;
        match (answer, <[OwnedFd; 2]>::try_from(files)) {
            (Answer::Tracing, Ok([ring, holder])) => Ok((connection, ring, holder)),
            _ => Err(AskError::Unexpected),
        }
    }

    /// How the service is.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn status(&self) -> Result<Status, AskError> {
        match self.ask(Ask::Status)? {
            (Answer::Status(status), _) => Ok(*status),
            _ => Err(AskError::Unexpected),
        }
    }

    /// Runs that there are.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn find(&self, find: Find) -> Result<Found, AskError> {
        match self.ask(Ask::Runs(find))? {
            (Answer::Runs(runs), _) => Ok(Found {
                runs,
                ..Found::default()
            }),
            (Answer::SomeRuns(found), _) => Ok(found),
            _ => Err(AskError::Unexpected),
        }
    }

    /// Labels that runs have.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn labels(&self) -> Result<Labels, AskError> {
        match self.ask(Ask::Labels)? {
            (Answer::Labels(labels), _) => Ok(Labels {
                labels,
                left_out: 0,
            }),
            (Answer::SomeLabels(labels), _) => Ok(labels),
            _ => Err(AskError::Unexpected),
        }
    }

    /// Sums over all starts, as text in the format of OpenMetrics 1.0.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn metrics(&self) -> Result<String, AskError> {
        match self.ask(Ask::Metrics)? {
            (Answer::Metrics(text), _) => Ok(text),
            _ => Err(AskError::Unexpected),
        }
    }

    /// Runs, as one recording.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn fetch(&self, runs: &[RunNumber]) -> Result<Recording, AskError> {
        self.fetch_within(runs, u64::MAX)
    }

    /// The same of runs that take no more than so many bytes of memory, about.
    ///
    /// # Errors
    /// [`AskError`]; [`AskError::TooMuch`] if they take more.
    pub fn fetch_within(&self, runs: &[RunNumber], most: u64) -> Result<Recording, AskError> {
        let mut all = Recording::default();
        let mut bytes_left = most / OF_A_BYTE;
        // What is to be fetched yet, the next last; in halves where it is too much.
        let mut left: Vec<&[RunNumber]> = runs.chunks(MOST_FETCHED).rev().collect();
        while let Some(some) = left.pop() {
            let ask = Ask::Fetch {
                runs: some.to_vec(),
            };
            let answer = match self.ask(ask) {
                Err(AskError::TooMuch(_)) if some.len() > 1 => {
                    let (first, second) = some.split_at(some.len() / 2);
                    left.extend([second, first]);
                    continue;
                }
                answer => answer?,
            };
            let (Answer::Recording { bytes }, connection) = answer else {
                return Err(AskError::Unexpected);
            };
            bytes_left = bytes_left.checked_sub(bytes).ok_or_else(|| {
                AskError::TooMuch(format!(
                    "found runs that take more than {} MB of memory; needed: fewer or smaller ones at a time",
                    most >> 20
                ))
            })?;
            let mut content = Vec::new();
            connection.take(bytes).read_to_end(&mut content)?;
            if content.len() as u64 != bytes {
                let error = bad(
                    "nodeprofd has ended, or this host was too slow for it: a part of the runs is missing",
                );
                return Err(AskError::Broken { error });
            }
            let recording = Recording::from_bytes(&content)
                .map_err(|error| AskError::Refused(error.to_string()))?;
            all.append(recording);
        }
        Ok(all)
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn order(&self, ask: Ask) -> Result<(), AskError> {
        match self.ask(ask)? {
            (Answer::Done, _) => Ok(()),
            _ => Err(AskError::Unexpected),
        }
    }
}

fn bad(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

/// Writes a message.
///
/// # Errors
/// The system's.
pub fn write_message(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(message)?)
}

pub(crate) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message).map_err(bad)?;
    let length = u32::try_from(body.len()).map_err(bad)?;
    let mut bytes = Vec::with_capacity(4 + body.len());
    bytes.extend(length.to_le_bytes());
    bytes.extend(body);
    Ok(bytes)
}

/// Reads a message of at most `longest` bytes.
///
/// # Errors
/// The system's; `InvalidData` for what is no message, before more than its length was read.
pub fn read_message<T: DeserializeOwned>(from: &mut impl Read, longest: usize) -> io::Result<T> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head) as usize;
    if length > longest {
        return Err(bad(format!(
            "found a message of {length} bytes; needed: at most {longest}"
        )));
    }
    let mut body = Vec::new();
    // No more is taken from memory than what has come.
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&body).map_err(bad)
}

/// Says the next step of a trace, and waits for what comes of it.
pub(crate) fn step(mut connection: &UnixStream, step: Step) -> io::Result<Answer> {
    write_message(&mut connection, &step)?;
    let asks_hits = matches!(step, Step::Hits);
    loop {
        match read_message(&mut connection, LONGEST_ANSWER)? {
            // One that came too late for who had asked.
            Answer::Hits(_) if !asks_hits => {}
            answer => return Ok(answer),
        }
    }
}

/// Descriptors beside a message, at most.
pub const MOST_FILES: usize = 2;

/// Sends a message with descriptors beside its first byte.
///
/// # Errors
/// The system's.
pub fn write_with_files(
    stream: &mut UnixStream,
    message: &impl Serialize,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_with_files(stream, &encode(message)?, files)
}

/// How long is waited for the other side of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// To read anything.
    pub(crate) progress: Duration,
    /// To read all.
    pub(crate) whole: Duration,
}

/// The same of a message that is encoded, and no longer than that: a timeout of the socket begins anew with whatever is read.
pub(crate) fn send_in_time(
    stream: &UnixStream,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
    patience: Patience,
) -> io::Result<()> {
    let end = Instant::now() + patience.whole;
    let (mut rest, mut files) = (bytes, files);
    while !rest.is_empty() {
        match send_some(stream, rest, files, SendFlags::DONTWAIT) {
            Ok(sent) => {
                rest = &rest[sent..];
                files = &[];
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() && !rest.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut asked = libc::pollfd {
            fd: stream.as_raw_fd(),
            events: libc::POLLOUT,
            revents: 0,
        };
        let wait = left.min(patience.progress).as_millis() as libc::c_int + 1;
        // SAFETY: one pollfd.
        if !rest.is_empty() && unsafe { libc::poll(&mut asked, 1, wait) } == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(())
}

/// Writes a message that is encoded, with descriptors beside it.
fn send_with_files(
    stream: &mut UnixStream,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let sent = send_some(stream, bytes, files, SendFlags::empty())?;
    stream.write_all(&bytes[sent..])
}

/// Sends as much as there is room for.
fn send_some(
    stream: &UnixStream,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(bad(format!(
            "{} descriptors; needed: at most {MOST_FILES}",
            files.len()
        )));
    }
    let flags = flags | SendFlags::NOSIGNAL;
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut beside, flags)?)
}

/// What comes on a connection, and the descriptors beside it.
pub struct Incoming<'s> {
    stream: &'s UnixStream,
    /// Read until this instant, however slowly something comes.
    end: Option<Instant>,
    /// Descriptors that have come.
    pub files: Vec<OwnedFd>,
}

impl<'s> Incoming<'s> {
    /// Of a connection.
    pub fn new(stream: &'s UnixStream, end: Option<Instant>) -> Incoming<'s> {
        Incoming {
            stream,
            end,
            files: Vec::new(),
        }
    }
}

impl Read for Incoming<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(end) = self.end {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(
            self.stream,
            &mut [IoSliceMut::new(into)],
            &mut beside,
            flags,
        )?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                // More than that are closed.
                let room = MOST_FILES.saturating_sub(self.files.len());
                self.files.extend(files.take(room));
            }
        }
        Ok(got.bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;
    use nodeprof_profile::random::Random;
    use std::os::fd::AsFd as _;

    #[test]
    fn messages_come_as_they_were_sent() {
        let asks = [
            Ask::Status,
            Ask::Reload,
            Ask::Labels,
            Ask::Metrics,
            Ask::Fetch { runs: vec![1, 2] },
            Ask::Runs(Find {
                labels: vec![("a".into(), "b\0\u{1f600}".into())],
                most: Some(3),
                ..Find::default()
            }),
        ];
        for ask in asks {
            let request = Request {
                version: VERSION,
                ask,
            };
            let bytes = encode(&request).unwrap();
            let read: Request = read_message(&mut bytes.as_slice(), LONGEST_REQUEST).unwrap();
            assert_eq!(read, request);
        }
    }

    #[test]
    fn what_is_no_message_is_an_error_whatever_it_is() {
        let mut random = Random::new(3);
        let request = Request {
            version: VERSION,
            ask: Ask::Runs(Find::default()),
        };
        let whole = encode(&request).unwrap();
        let mut understood = 0;
        for _ in 0..20_000 {
            let mut bytes = match random.below(3) {
                0 => (0..random.below(64))
                    .map(|_| random.below(256) as u8)
                    .collect(),
                _ => whole.clone(),
            };
            for _ in 0..random.below(4) {
                if !bytes.is_empty() {
                    let at = random.below(bytes.len());
                    bytes[at] = random.below(256) as u8;
                }
            }
            bytes.truncate(bytes.len() - random.below(bytes.len() + 1) / 2);
            let read = read_message::<Request>(&mut bytes.as_slice(), LONGEST_REQUEST);
            understood += usize::from(read.is_ok());
        }
        assert!((1..15_000).contains(&understood), "{understood}");
    }

    #[test]
    fn a_message_that_is_too_long_is_not_read() {
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        bytes.extend([b' '; 100]);
        let mut rest = bytes.as_slice();
        let error = read_message::<Request>(&mut rest, LONGEST_REQUEST).unwrap_err();
        assert!(error.to_string().contains("at most 65536"), "{error}");
        assert_eq!(rest.len(), 100);
        // Deeper than anybody needs.
        let deep = format!("{}{}", "[".repeat(60_000), "]".repeat(4));
        let mut bytes = (deep.len() as u32).to_le_bytes().to_vec();
        bytes.extend(deep.bytes());
        assert!(read_message::<Request>(&mut bytes.as_slice(), LONGEST_REQUEST).is_err());
    }

    #[test]
    fn a_file_goes_beside_an_answer() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        (&file).write_all(b"content").unwrap();
        let answer = Answer::Recording { bytes: 7 };
        write_with_files(&mut a, &answer, &[file.as_fd()]).unwrap();
        let mut incoming = Incoming::new(&b, None);
        let read: Answer = read_message(&mut incoming, LONGEST_ANSWER).unwrap();
        assert_eq!(read, answer);
        assert_eq!(incoming.files.len(), 1);
        let mut file = std::fs::File::from(incoming.files.pop().unwrap());
        let mut text = String::new();
        io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
    }
}
