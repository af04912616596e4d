//! The socket of the service, the side that answers.
//!
//! A thread for each connection, few at a time, so that a client that is slow or says nothing keeps only itself waiting. Who asks is what the
//! kernel says. Runs are read from the database by a connection of its own, read-only; what changes the service is handed to the loop that records.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read as _, Seek as _, Write as _},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::{
            fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use nodeprof_bpf::Owner;
use nodeprof_profile::store::database::{DatabaseError, Filter, Reader};

use super::{
    config::{Access, Read},
    metrics::Metrics,
    readers::{Readers, Reading},
    store::{FILE, SPACE, free_bytes},
    tracer::{self, Means, Places},
};
use crate::{
    control::{
        Answer, Ask, Find, Incoming, LONGEST_GIVEN, LONGEST_REQUEST, MOST_FETCHED, MOST_FOUND,
        MOST_LABELS, Patience, Request, Status, VERSION, encode, read_message, send_in_time,
        write_message,
    },
    event,
    recorder::Wanted,
};

/// Connections at a time.
const MOST_CONNECTIONS: usize = 48;
/// Of one user.
const MOST_OF_A_USER: usize = 8;
/// For a request to be there, whole.
const PATIENCE: Duration = Duration::from_secs(3);
/// For the loop that records to do something.
const LOOP_PATIENCE: Duration = Duration::from_secs(15);
/// For it to read the configuration again, which may take plans of new binaries and another holder. A client waits for 60 s.
const RELOAD_PATIENCE: Duration = Duration::from_secs(50);
/// For the store to find what is asked for.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// Niceness of a thread that reads the store: of a processor that the loop that records, or a program, wants, too, it has a tenth, which is enough to give
/// back locks.
const NICE: libc::c_int = 10;
/// Stack of a connection's thread.
const STACK: usize = 512 << 10;
/// Bytes of a recording that is handed over: it is built in memory.
const LARGEST: usize = 128 << 20;
/// Bytes that this takes at most, about, with the runs in it: a quarter of what the unit allows (`MemoryMax`), and more than any start is recorded with.
const MOST_LOADED: u64 = 128 << 20;

/// Bytes of runs in an answer: what is around them takes a few. (A byte of a label may take six.)
const LONGEST_LIST: usize = LONGEST_GIVEN - 1024;
/// Bytes of all answers that are on their way to clients, which may take their time.
const MOST_SENT: usize = 8 * LONGEST_GIVEN;
/// Of those to one user.
const MOST_SENT_TO_A_USER: usize = 3 * LONGEST_GIVEN;
/// How much of it.
const SENDING: Patience = Patience {
    progress: PATIENCE,
    whole: Duration::from_secs(30),
};

/// The same of a recording in a file, which is larger.
const HANDING: Patience = Patience {
    progress: PATIENCE,
    whole: Duration::from_secs(120),
};
/// Bytes of a file that are sent at once.
const PIECE: usize = 256 << 10;
/// Bytes of recordings that are on their way to clients in files without a name, because there is no room for them among the answers.
const MOST_SPOOLED: usize = 8 * LARGEST;
/// Of those to one user.
const MOST_SPOOLED_TO_A_USER: usize = 2 * LARGEST;
/// Bytes that such files leave free on the disk of the store.
const LEFT: u64 = 4 * SPACE;

/// Who asks.
#[derive(Clone, Debug)]
struct Peer {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Peer {
    /// As the kernel noted it when the connection was made.
    fn of(stream: &UnixStream) -> io::Result<Peer> {
        // SAFETY: a struct of integers.
        let mut who: libc::ucred = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: room for one `ucred`.
        let got = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut who).cast(),
                &mut length,
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut groups = vec![0u32; 1024];
        let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: room for as many groups as `length` says.
        let got = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut length,
            )
        };
        // Of one with more groups than that, the first alone counts: less may be done, not more.
        groups.truncate(match got {
            0 => length as usize / size_of::<u32>(),
            _ => 0,
        });
        groups.push(who.gid);
        Ok(Peer {
            uid: who.uid,
            gid: who.gid,
            groups,
        })
    }

    fn is_in(&self, group: Option<u32>) -> bool {
        group.is_some_and(|group| self.groups.contains(&group))
    }

    fn may_administer(&self, access: &Access) -> bool {
        self.uid == 0 || self.is_in(access.administrators)
    }

    fn may_read_all(&self, access: &Access) -> bool {
        access.read == Read::All || self.is_in(access.readers) || self.may_administer(access)
    }
}

/// What the loop that records is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Status,
    Reload,
    Pause,
    Resume,
}

impl Order {
    /// For the loop to do it.
    fn patience(self) -> Duration {
        match self {
            Order::Reload => RELOAD_PATIENCE,
            Order::Status | Order::Pause | Order::Resume => LOOP_PATIENCE,
        }
    }
}

/// What it says.
pub(super) type Reply = Result<Box<Status>, String>;

/// The socket, as the loop that records sees it.
pub(super) struct Control {
    orders: Receiver<(Order, Sender<Reply>)>,
    wake: Arc<OwnedFd>,
    shared: Arc<Shared>,
    /// Made by us, and removed by us.
    own: Option<PathBuf>,
}

struct Shared {
    orders: Mutex<Sender<(Order, Sender<Reply>)>>,
    wake: Arc<OwnedFd>,
    access: Mutex<Access>,
    store: Mutex<PathBuf>,
    metrics: Arc<Metrics>,
    /// Connections by user.
    connections: Mutex<HashMap<u32, usize>>,
    /// One recording at a time is built, and one answer with runs or labels, while the one who writes lets them.
    readers: Arc<Readers>,
    sending: Sending,
    /// What is sent from files.
    spooling: Sending,
    /// For users' traces.
    means: Mutex<Means>,
    tracers: Places,
    ending: AtomicBool,
}

/// Bytes of the answers that are being sent, by user.
#[derive(Default)]
struct Sending {
    by_user: Mutex<HashMap<u32, usize>>,
    most: usize,
    most_to_a_user: usize,
}

/// Some of them.
struct Sent<'s> {
    all: &'s Sending,
    uid: u32,
    bytes: usize,
}

impl Sending {
    fn new(most: usize, most_to_a_user: usize) -> Sending {
        Sending {
            by_user: Mutex::default(),
            most,
            most_to_a_user,
        }
    }

    /// What is sent from memory.
    fn answers() -> Sending {
        Sending::new(MOST_SENT, MOST_SENT_TO_A_USER)
    }

    /// If there is room for them. Root has its share also where others have taken all.
    fn enter(&self, uid: u32, bytes: usize) -> Option<Sent<'_>> {
        let mut by_user = locked(&self.by_user);
        let all: usize = by_user.values().sum();
        let own = by_user.get(&uid).copied().unwrap_or(0);
        let fits = own + bytes <= self.most_to_a_user && (all + bytes <= self.most || uid == 0);
        fits.then(|| {
            by_user.insert(uid, own + bytes);
            Sent {
                all: self,
                uid,
                bytes,
            }
        })
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let mut by_user = locked(&self.all.by_user);
        if let Some(own) = by_user.get_mut(&self.uid) {
            *own -= self.bytes;
            if *own == 0 {
                by_user.remove(&self.uid);
            }
        }
    }
}

/// Names of the threads that answer clients.
pub(super) const THREADS: [&str; 2] = ["control", "client"];

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// Begins to listen: on the socket that a supervisor opened, or on one of the configuration.
    ///
    /// # Errors
    /// Why nobody can connect, in words.
    pub(super) fn start(
        given: Option<UnixListener>,
        access: &Access,
        folder: &Path,
        metrics: Arc<Metrics>,
        readers: Arc<Readers>,
        means: Means,
    ) -> Result<Control, String> {
        let (listener, own) = match given {
            Some(listener) => (listener, None),
            None => (listen(access)?, Some(access.socket.clone())),
        };
        // One of a supervisor may not block.
        let _ = listener.set_nonblocking(false);
        let (sender, orders) = channel();
        let wake = Arc::new(event::new().map_err(|error| error.to_string())?);
        let shared = Arc::new(Shared {
            orders: Mutex::new(sender),
            wake: wake.clone(),
            access: Mutex::new(access.clone()),
            store: Mutex::new(folder.join(FILE)),
            metrics,
            connections: Mutex::default(),
            readers,
            sending: Sending::answers(),
            spooling: Sending::new(MOST_SPOOLED, MOST_SPOOLED_TO_A_USER),
            means: Mutex::new(means),
            tracers: Places::default(),
            ending: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        std::thread::Builder::new()
            .name(THREADS[0].into())
            .stack_size(STACK)
            .spawn(move || {
                accept(&listener, &accepting);
            })
            .map_err(|error| error.to_string())?;
        Ok(Control {
            orders,
            wake,
            shared,
            own,
        })
    }

    /// Other rules from now on.
    pub(super) fn configure(&self, access: &Access, folder: &Path, means: Means) {
        *locked(&self.shared.means) = means;
        *locked(&self.shared.access) = access.clone();
        *locked(&self.shared.store) = folder.join(FILE);
    }

    /// What is asked for, and where to say what became of it.
    pub(super) fn next(&self) -> Option<(Order, Sender<Reply>)> {
        event::clear(&self.wake);
        self.orders.try_recv().ok()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        if let Some(path) = &self.own {
            let _ = fs::remove_file(path);
        }
    }
}

impl AsRawFd for Control {
    /// Readable when there is something for [`Control::next`].
    fn as_raw_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }
}

/// A folder that is there while a socket is made in it.
struct Making(PathBuf);

impl Making {
    fn socket(&self) -> PathBuf {
        self.0.join("s")
    }

    fn remove(&self) {
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_dir(&self.0);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Makes the socket; one that a killed service has left is replaced.
fn listen(access: &Access) -> Result<UnixListener, String> {
    let path = &access.socket;
    let shown = path.display();
    let failed = |error: io::Error| format!("{shown}: {error}");
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(folder);
        made.map_err(failed)?;
    }
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(format!("{shown} is there, and is no socket"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(format!("another nodeprofd listens on {shown}"));
        }
        Ok(_) => fs::remove_file(path).map_err(failed)?,
        Err(_) => {}
    }
    // Nobody connects before its rights are set: it is made in a folder that only we may look into, and takes its name when it is ready.
    let mut folder = path.clone().into_os_string();
    folder.push(format!(".{}", std::process::id()));
    let folder = Making(PathBuf::from(folder));
    folder.remove(); // of one that had our number, and was killed
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder.0)
        .map_err(failed)?;
    let hidden = folder.socket();
    let listener = UnixListener::bind(&hidden).map_err(failed)?;
    let mode = match access.group {
        Some(group) => {
            std::os::unix::fs::chown(&hidden, None, Some(group)).map_err(failed)?;
            0o660
        }
        None => 0o600,
    };
    fs::set_permissions(&hidden, fs::Permissions::from_mode(mode)).map_err(failed)?;
    fs::rename(&hidden, path).map_err(failed)?;
    Ok(listener)
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    while !shared.ending.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, say: it gets better by waiting.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let Ok(peer) = Peer::of(&stream) else {
            continue;
        };
        let entered = enter(&mut locked(&shared.connections), peer.uid);
        if let Err(why) = entered {
            refuse_at_once(stream, why);
            continue;
        }
        let (of_thread, uid) = (shared.clone(), peer.uid);
        let thread = std::thread::Builder::new()
            .name(THREADS[1].into())
            .stack_size(STACK);
        let spawned = thread.spawn(move || {
            // A fault in one answer is not the end of the service, nor of this user's connections.
            let answering = std::panic::AssertUnwindSafe(|| serve(stream, &peer, &of_thread));
            let _ = std::panic::catch_unwind(answering);
            leave(&of_thread, peer.uid);
        });
        if spawned.is_err() {
            leave(shared, uid);
        }
    }
}

/// Counts a connection of a user, if there is room for it.
fn enter(connections: &mut HashMap<u32, usize>, uid: u32) -> Result<(), String> {
    let all: usize = connections.values().sum();
    let own = connections.get(&uid).copied().unwrap_or(0);
    let needed = if own >= MOST_OF_A_USER {
        format!("at most {MOST_OF_A_USER} of a user")
    // Root is let in also where others have taken all.
    } else if all >= MOST_CONNECTIONS && uid != 0 {
        format!("fewer than {MOST_CONNECTIONS} of all users")
    } else {
        connections.insert(uid, own + 1);
        return Ok(());
    };
    Err(format!(
        "too many connections at a time; needed: {needed}; type the command again"
    ))
}

fn leave(shared: &Shared, uid: u32) {
    let mut connections = locked(&shared.connections);
    if let Some(own) = connections.get_mut(&uid) {
        *own -= 1;
        if *own == 0 {
            connections.remove(&uid);
        }
    }
}

fn refuse_at_once(mut stream: UnixStream, why: String) {
    // It fits into the buffer of a new socket.
    let _ = stream.set_nonblocking(true);
    let _ = write_message(&mut stream, &Answer::Refused { why });
}

fn serve(mut stream: UnixStream, peer: &Peer, shared: &Shared) {
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let mut incoming = Incoming::new(&stream, Some(Instant::now() + PATIENCE));
    let request = read_message::<Request>(&mut incoming, LONGEST_REQUEST);
    let files = incoming.files;
    let refused = |why: String| (Answer::Refused { why }, None);
    let (answer, file) = match request {
        Ok(request) if request.version != VERSION => refused(format!(
            "found a request of protocol {}; needed: {VERSION}; type: nodeprof --version, which must be that of nodeprofd",
            request.version
        )),
        Ok(Request {
            ask: Ask::Trace(wanted),
            ..
        }) => match trace(&wanted, files, &stream, peer, shared) {
            Ok(()) => return, // the tracer has answered
            Err(why) => refused(why),
        },
        Ok(request) => return give(&mut stream, request.ask, peer, shared),
        Err(error) => refused(format!(
            "found no request ({error}); needed: its length and JSON, as docs/service.md has it"
        )),
    };
    send(&mut stream, &encoded(answer), file, peer, shared);
}

/// Answers a request. One answer of many runs at a time is in memory as more than its bytes.
fn give(stream: &mut UnixStream, ask: Ask, peer: &Peer, shared: &Shared) {
    let is_list = matches!(ask, Ask::Runs(_) | Ask::Labels);
    if is_list || matches!(ask, Ask::Fetch { .. }) {
        // SAFETY: takes integers; the calling thread, which ends with this answer.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    }
    let one_at_a_time = is_list.then(|| shared.readers.enter(Reading::List, peer.uid));
    let refused = |why: String| (Answer::Refused { why }, None);
    let (answer, content) = answer(ask, peer, shared).unwrap_or_else(refused);
    let bytes = encoded(answer);
    drop(one_at_a_time);
    send(stream, &bytes, content, peer, shared);
}

/// A message of a length that is always kept.
fn encoded(answer: Answer) -> Vec<u8> {
    let refused = |why: String| encode(&Answer::Refused { why }).unwrap_or_default();
    match encode(&answer) {
        Ok(bytes) if bytes.len() > LONGEST_GIVEN => refused(format!(
            "found an answer of {} bytes; needed: at most {LONGEST_GIVEN}; ask for less",
            bytes.len()
        )),
        Ok(bytes) => bytes,
        Err(error) => refused(error.to_string()),
    }
}

fn send(
    stream: &mut UnixStream,
    bytes: &[u8],
    content: Option<Content<'_>>,
    peer: &Peer,
    shared: &Shared,
) {
    let sent = shared.sending.enter(peer.uid, bytes.len());
    // One that is gone, or too slow, has no use for it.
    let _ = match &sent {
        Some(_) => send_in_time(stream, bytes, &[], SENDING)
            .and_then(|()| content.map_or(Ok(()), |content| content.send(stream))),
        None => write_message(
            stream,
            &Answer::Refused {
                why: "nodeprofd sends many large answers; needed: some patience; type the command again".into(),
            },
        ),
    };
}

/// Has a program of this user traced, by a process of its own; returns when the trace is over.
fn trace(
    wanted: &Wanted,
    files: Vec<OwnedFd>,
    stream: &UnixStream,
    peer: &Peer,
    shared: &Shared,
) -> Result<(), String> {
    if !locked(&shared.access).trace {
        return Err("nodeprofd traces nobody's programs here (access.trace = false in its configuration); needed: root; type: sudo nodeprof trace …".into());
    }
    let mut files = files.into_iter();
    let process = files
        .next()
        .ok_or("found no process beside the request; needed: its pidfd")?;
    let owner = Owner {
        uid: peer.uid,
        gid: peer.gid,
    };
    let pid = tracer::check(&process, owner)?;
    let _place = shared.tracers.enter(peer.uid)?;
    let means = locked(&shared.means).clone();
    let tracer = tracer::Tracer {
        wanted,
        connection: stream,
        process: &process,
        binary: files.next(),
        pid,
        owner,
    };
    tracer.run(&means)
}

fn answer<'s>(
    ask: Ask,
    peer: &Peer,
    shared: &'s Shared,
) -> Result<(Answer, Option<Content<'s>>), String> {
    let access = locked(&shared.access).clone();
    let owners = match peer.may_read_all(&access) {
        true => None,
        false => Some(vec![peer.uid]),
    };
    let order = match ask {
        Ask::Status => {
            let mut status = order(Order::Status, shared)?;
            status.may_read = if owners.is_none() { "all" } else { "own" }.into();
            if owners.is_some() {
                status.not_answering_files.clear(); // they may be others'
            }
            status.may_administer = peer.may_administer(&access);
            status.may_trace = access.trace;
            return Ok((Answer::Status(status), None));
        }
        // Sums only: whoever may connect may know them.
        Ask::Metrics => {
            let status = order(Order::Status, shared)?;
            let text = shared.metrics.text(&status);
            return Ok((Answer::Metrics(text.map_err(|e| e.to_string())?), None));
        }
        Ask::Runs(find) => {
            let filter = filter(find, owners)?;
            let found = reader(shared)?.find_within(&filter, Some(LONGEST_LIST));
            let found = found.map_err(in_words)?;
            let answer = match found.more || found.unreadable > 0 {
                true => Answer::SomeRuns(found),
                false => Answer::Runs(found.runs),
            };
            return Ok((answer, None));
        }
        Ask::Labels => {
            let labels = reader(shared)?.labels(owners.as_deref(), MOST_FOUND, LONGEST_LIST / 6);
            let labels = labels.map_err(in_words)?;
            let answer = match labels.left_out {
                0 => Answer::Labels(labels.labels),
                _ => Answer::SomeLabels(labels),
            };
            return Ok((answer, None));
        }
        Ask::Fetch { runs } => return fetch(runs, owners, peer, shared),
        Ask::Trace(_) => return Err("a trace has a connection of its own".into()),
        Ask::Reload => Order::Reload,
        Ask::Pause => Order::Pause,
        Ask::Resume => Order::Resume,
    };
    if !peer.may_administer(&access) {
        return Err(format!(
            "found user {}; needed: root, or a member of the group that access.administrators names in the configuration of nodeprofd; type: sudo nodeprof service …",
            peer.uid
        ));
    }
    self::order(order, shared)?;
    Ok((Answer::Done, None))
}

/// Whose runs there are is decided here, whatever was asked for.
fn filter(find: Find, owners: Option<Vec<u32>>) -> Result<Filter, String> {
    if find.labels.len() > MOST_LABELS {
        return Err(format!(
            "found {} labels; needed: at most {MOST_LABELS} to choose runs by",
            find.labels.len()
        ));
    }
    let owners = match (owners, find.user) {
        (None, user) => user.map(|user| vec![user]),
        (Some(own), None) => Some(own),
        (Some(own), Some(user)) => Some(own.into_iter().filter(|uid| *uid == user).collect()),
    };
    Ok(Filter {
        runs: find.runs,
        labels: find.labels,
        command: find.command,
        package: find.package,
        failed: find.failed,
        since_unix_ns: find.since_unix_ns,
        until_unix_ns: find.until_unix_ns,
        owners,
        most: Some(find.most.unwrap_or(MOST_FOUND).min(MOST_FOUND)),
    })
}

fn in_words(error: DatabaseError) -> String {
    error.to_string()
}

fn reader(shared: &Shared) -> Result<Reader, String> {
    let path = locked(&shared.store).clone();
    let mut reader = Reader::open(&path).map_err(in_words)?;
    reader.give_up_after(STORE_PATIENCE).map_err(in_words)?;
    Ok(reader)
}

fn fetch<'s>(
    runs: Vec<u32>,
    owners: Option<Vec<u32>>,
    peer: &Peer,
    shared: &'s Shared,
) -> Result<(Answer, Option<Content<'s>>), String> {
    if runs.is_empty() || runs.len() > MOST_FETCHED {
        return Err(format!(
            "found {} runs; needed: 1 to {MOST_FETCHED} in a request",
            runs.len()
        ));
    }
    let _one_at_a_time = shared.readers.enter(Reading::Recording, peer.uid);
    let reader = reader(shared)?;
    let find = Find {
        runs: Some(runs.clone()),
        ..Find::default()
    };
    let found = reader.find_within(&filter(find, owners)?, Some(LONGEST_LIST));
    let found = found.map_err(in_words)?.runs;
    // What is not there and what may not be read are told alike: nobody learns of others' runs.
    if let Some(missing) = runs
        .iter()
        .find(|run| !found.iter().any(|is| is.id == **run))
    {
        return Err(format!(
            "there is no run {missing} that you may read; needed: one of those that this lists: nodeprof service runs"
        ));
    }
    // In the order that was asked for; one on both sides of a comparison twice, and it counts twice.
    let recording = match reader.load_within(&runs, MOST_LOADED) {
        Err(error @ DatabaseError::TooMuch { .. }) => {
            let why = in_words(error);
            return Ok((Answer::TooMuch { why }, None));
        }
        loaded => loaded.map_err(in_words)?,
    };
    let bytes = recording.to_bytes().map_err(|error| error.to_string())?;
    drop(recording);
    if bytes.len() > LARGEST {
        let why = format!(
            "found {} bytes of runs; needed: at most {LARGEST} at a time; ask for fewer",
            bytes.len()
        );
        return Ok((Answer::TooMuch { why }, None));
    }
    let length = bytes.len() as u64;
    let content = Content::new(bytes, peer.uid, shared)?;
    Ok((Answer::Recording { bytes: length }, Some(content)))
}

/// A recording on its way to a client. It goes over the connection: memory that was handed over would be the service's for as long as whoever has it likes.
struct Content<'s> {
    bytes: Bytes,
    _room: Sent<'s>,
}

enum Bytes {
    InMemory(Vec<u8>),
    /// Without a name, beside the store.
    InFile(File),
}

impl<'s> Content<'s> {
    fn new(bytes: Vec<u8>, uid: u32, shared: &'s Shared) -> Result<Content<'s>, String> {
        if let Some(room) = shared.sending.enter(uid, bytes.len()) {
            return Ok(Content {
                bytes: Bytes::InMemory(bytes),
                _room: room,
            });
        }
        let room = shared.spooling.enter(uid, bytes.len());
        let room = room.ok_or(
            "nodeprofd hands many large recordings over; needed: some patience; type the command again",
        )?;
        let store = locked(&shared.store).clone();
        let folder = store.parent().unwrap_or(Path::new("/"));
        check_space(bytes.len(), free_bytes(folder))?;
        let spool = || -> io::Result<File> {
            let mut file = tempfile::tempfile_in(folder)?;
            file.write_all(&bytes)?;
            file.rewind()?;
            Ok(file)
        };
        let file = spool().map_err(|error| {
            format!(
                "{} bytes of runs cannot be kept until they are handed over ({error}); needed: room beside the store; or ask for fewer",
                bytes.len()
            )
        })?;
        Ok(Content {
            bytes: Bytes::InFile(file),
            _room: room,
        })
    }

    fn send(self, stream: &UnixStream) -> io::Result<()> {
        let mut file = match self.bytes {
            Bytes::InMemory(bytes) => return send_in_time(stream, &bytes, &[], SENDING),
            Bytes::InFile(file) => file,
        };
        let end = Instant::now() + HANDING.whole;
        let mut piece = vec![0; PIECE];
        loop {
            let read = file.read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            let patience = Patience {
                whole: end.saturating_duration_since(Instant::now()),
                ..HANDING
            };
            send_in_time(stream, &piece[..read], &[], patience)?;
        }
    }
}

/// Whether so many bytes may be written beside the store, for a while: who reads it must not fill its disk.
fn check_space(bytes: usize, free: Option<u64>) -> Result<(), String> {
    let needed = bytes as u64 + LEFT;
    match free {
        Some(free) if free < needed => Err(format!(
            "found {free} bytes free on the disk of the store; needed: {needed}, to keep {bytes} bytes of runs until they are handed over; ask for fewer, or type the command again later"
        )),
        _ => Ok(()),
    }
}

/// Hands something to the loop that records, and waits for what it says.
fn order(order: Order, shared: &Shared) -> Result<Box<Status>, String> {
    let (sender, reply) = channel();
    let sent = locked(&shared.orders).send((order, sender));
    event::signal(&shared.wake);
    let late = "nodeprofd is busy; needed: some patience; type the command again".to_owned();
    match sent {
        Ok(()) => reply.recv_timeout(order.patience()).map_err(|_| late)?,
        Err(_) => Err("nodeprofd is ending".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;
    use crate::control::{AskError, Client};
    use nodeprof_profile::{
        Recording,
        random::Random,
        recording::{FileAccess, NameId, RunId},
        store::database::Database,
    };

    fn access(folder: &Path) -> Access {
        Access {
            socket: folder.join("run/control.sock"),
            ..Access::default()
        }
    }

    /// A socket with a store of five runs: of us, and of another user.
    fn service(folder: &Path, access: &Access) -> Control {
        let mut database = Database::open(&folder.join(FILE)).unwrap();
        // SAFETY: asks who we are.
        let own = unsafe { libc::getuid() };
        for n in 0..5u32 {
            let owner = if n % 2 == 0 { own } else { own + 1 };
            let mut recording = Recording::synthetic(50);
            recording.runs[0].labels.push(("n".into(), n.to_string()));
            database.keep(recording, Some(owner)).unwrap();
        }
        Control::start(
            None,
            access,
            folder,
            Arc::default(),
            Arc::default(),
            Means::default(),
        )
        .unwrap()
    }

    fn peer(uid: u32, groups: &[u32]) -> Peer {
        Peer {
            uid,
            gid: uid,
            groups: groups.to_vec(),
        }
    }

    #[test]
    fn own_runs_are_what_a_user_reads_unless_the_configuration_says_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut access = access(folder.path());
        let control = service(folder.path(), &access);
        // SAFETY: asks who we are.
        let own = unsafe { libc::getuid() } + 1;
        let ids = |peer: &Peer, find: Find| -> Vec<u32> {
            match answer(Ask::Runs(find), peer, &control.shared).unwrap().0 {
                Answer::Runs(runs) => runs.iter().map(|run| run.id).collect(),
                other => panic!("{other:?}"),
            }
        };
        let all = |access: &mut Access, peer: &Peer| {
            control.configure(access, folder.path(), Means::default());
            ids(peer, Find::default()).len()
        };
        assert_eq!(all(&mut access, &peer(own, &[7])), 2);
        assert_eq!(all(&mut access, &peer(own + 5, &[7])), 0);
        assert_eq!(all(&mut access, &peer(0, &[])), 5);
        access.readers = Some(7);
        assert_eq!(all(&mut access, &peer(own + 5, &[6, 7])), 5);
        assert_eq!(all(&mut access, &peer(own + 5, &[6])), 0);
        access.readers = None;
        // What is asked for takes nothing away from that.
        control.configure(&access, folder.path(), Means::default());
        let others = Find {
            user: Some(own - 1),
            ..Find::default()
        };
        assert!(ids(&peer(own, &[]), others).is_empty());
        let named = Find {
            runs: Some(vec![1, 2, 3, 4, 5]),
            ..Find::default()
        };
        assert_eq!(ids(&peer(own, &[]), named), [4, 2]);
        let fetch = |runs: Vec<u32>| {
            answer(Ask::Fetch { runs }, &peer(own, &[]), &control.shared).map(|(answer, _)| answer)
        };
        assert!(matches!(fetch(vec![2, 4]), Ok(Answer::Recording { .. })));
        for runs in [vec![1], vec![2, 3], vec![999]] {
            let why = fetch(runs).unwrap_err();
            assert!(why.contains("that you may read"), "{why}");
        }
        assert!(fetch(vec![]).is_err() && fetch(vec![2; 51]).is_err());
        for ask in [Ask::Reload, Ask::Pause, Ask::Resume] {
            let answer = answer(ask, &peer(own, &[7]), &control.shared);
            let why = answer.map(|(answer, _)| answer).unwrap_err();
            assert!(why.contains("needed: root"), "{why}");
        }
    }

    #[test]
    fn who_is_not_let_in_is_told_why_and_not_counted() {
        let others = (1..).map(|uid| (uid, MOST_OF_A_USER));
        let mut connections: HashMap<u32, usize> =
            others.take(MOST_CONNECTIONS / MOST_OF_A_USER).collect();
        let before = connections.clone();
        let why = enter(&mut connections, 1).unwrap_err();
        assert!(why.contains("at most 8 of a user"), "{why}");
        let why = enter(&mut connections, 1000).unwrap_err();
        assert!(why.contains("fewer than 48 of all users"), "{why}");
        assert_eq!(connections, before);
        assert_eq!(enter(&mut connections, 0), Ok(()));
    }

    #[test]
    fn a_reader_does_not_fill_the_disk_of_the_store() {
        for free in [Some(1000 + LEFT), None] {
            assert_eq!(check_space(1000, free), Ok(()));
        }
        let why = check_space(1000, Some(999 + LEFT)).unwrap_err();
        assert!(why.contains("bytes free on the disk of the store"), "{why}");
    }

    #[test]
    fn a_recording_is_handed_over_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let control = service(folder.path(), &access);
        let client = Client::new(&access.socket);
        let runs = client.find(Find::default()).unwrap().runs;
        let ids: Vec<u32> = runs.iter().map(|run| run.id).collect();
        let recording = client.fetch(&ids).unwrap();
        assert_eq!(recording.runs.len(), ids.len());
        assert_eq!(
            recording.runs[0].label("run"),
            Some(ids[0].to_string().as_str())
        );
        let ask = || client.ask(Ask::Fetch { runs: ids.clone() }).unwrap();
        let (answer, mut connection) = ask();
        let mut content = Vec::new();
        connection.read_to_end(&mut content).unwrap();
        let length = content.len() as u64;
        assert_eq!(answer, Answer::Recording { bytes: length });
        // Where no memory is left for it, from a file without a name.
        // SAFETY: asks who we are.
        let own = unsafe { libc::getuid() };
        let sending = &control.shared.sending;
        let until = Instant::now() + PATIENCE;
        let taken = std::iter::repeat_with(|| sending.enter(own, MOST_SENT_TO_A_USER - 1000))
            .find(|sent| sent.is_some() || Instant::now() > until)
            .flatten();
        assert!(taken.is_some() && length > 1000);
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let before = names();
        let (answer, mut connection) = ask();
        assert_eq!(answer, Answer::Recording { bytes: length });
        assert_eq!(names(), before);
        let mut other = Vec::new();
        connection.read_to_end(&mut other).unwrap();
        assert!(other == content);
        let spooling = &control.shared.spooling;
        while !locked(&spooling.by_user).is_empty() {
            assert!(Instant::now() < until);
            std::thread::yield_now();
        }
        let full: Vec<_> = std::iter::from_fn(|| spooling.enter(own, LARGEST)).collect();
        assert_eq!(full.len(), 2);
        let why = client.fetch(&ids).unwrap_err().to_string();
        assert!(why.contains("many large recordings"), "{why}");
        drop((taken, full));
        assert_eq!(client.fetch(&ids).unwrap().runs.len(), ids.len());
        assert!(
            client
                .labels()
                .unwrap()
                .labels
                .iter()
                .any(|(key, _, _)| key == "n")
        );
    }

    #[test]
    fn runs_that_take_much_memory_are_not_read_at_a_time_and_the_client_asks_for_fewer() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let mut database = Database::open(&folder.path().join(FILE)).unwrap();
        // SAFETY: asks who we are.
        let own = unsafe { libc::getuid() };
        let heavy = |rows: usize, names: usize| {
            let mut recording = Recording::synthetic(50);
            let first = recording.files[0];
            recording.files.extend(vec![first; rows]);
            for name in 0..names {
                let path = NameId(recording.names.len() as u32);
                recording.names.push(format!("{name:04000}").into_bytes());
                recording.files.push(FileAccess { path, ..first });
            }
            recording
        };
        // Many rows, which count as often as they are asked for; long texts of several runs, and of one.
        for recording in [heavy(30_000, 0), heavy(0, 3_000), heavy(0, 9_000)] {
            database.keep(recording, Some(own)).unwrap();
        }
        for n in 1..3u32 {
            let mut recording = heavy(0, 3_000);
            (recording.names.iter_mut()).for_each(|name| name.extend(n.to_string().bytes()));
            database.keep(recording, Some(own)).unwrap();
        }
        drop(database);
        let (means, metrics) = (Means::default(), Arc::default());
        let _control =
            Control::start(None, &access, folder.path(), metrics, Arc::default(), means).unwrap();
        let client = Client::new(&access.socket);
        let ask = |runs: &[u32]| {
            let runs = runs.to_vec();
            client.ask(Ask::Fetch { runs }).map(|(answer, _)| answer)
        };
        for runs in [&[1; 50][..], &[2, 4, 5], &[3]] {
            let error = ask(runs).unwrap_err();
            assert!(matches!(error, AskError::TooMuch(_)), "{error}");
            let why = error.to_string();
            assert!(why.contains("take more than 128 MB of memory"), "{why}");
        }
        assert!(matches!(ask(&[1, 2, 1]), Ok(Answer::Recording { .. })));
        let recording = client.fetch(&[2, 1, 4, 5, 1]).unwrap();
        let order = (0..5).map(|run| recording.number(RunId(run)));
        assert_eq!(order.collect::<Vec<_>>(), [2, 1, 4, 5, 1].map(Some));
        // Of all that come one after another, too, not only of each piece.
        assert_eq!(client.fetch_within(&[1, 2], 1 << 30).unwrap().runs.len(), 2);
        let all = client.fetch_within(&[1, 2], 1 << 10).unwrap_err();
        assert!(matches!(all, AskError::TooMuch(_)), "{all}");
        let alone = client.fetch(&[1, 3]).unwrap_err();
        assert!(matches!(alone, AskError::TooMuch(_)), "{alone}");
    }

    #[test]
    fn who_reads_the_store_takes_the_processor_from_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let control = service(folder.path(), &access(folder.path()));
        // SAFETY: takes integers; the calling thread.
        let own = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = own();
        let runs = || Ask::Runs(Find::default());
        let fetch = || Ask::Fetch { runs: vec![1] };
        let asks = [(runs(), NICE), (fetch(), NICE), (Ask::Labels, NICE)];
        for (ask, wanted) in asks.into_iter().chain([(Ask::Metrics, before)]) {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let reads = std::thread::spawn(move || (&theirs).read_to_end(&mut Vec::new()));
            let nice = std::thread::scope(|scope| {
                let answers = scope.spawn(|| {
                    give(&mut ours, ask, &peer(0, &[]), &control.shared);
                    own()
                });
                answers.join().unwrap()
            });
            drop(ours);
            assert!(reads.join().unwrap().unwrap() > 0);
            assert_eq!(nice, wanted.max(before));
        }
        assert_eq!(own(), before);
    }

    #[test]
    fn an_answer_has_so_many_bytes_and_says_that_there_is_more() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let mut database = Database::open(&folder.path().join(FILE)).unwrap();
        // SAFETY: asks who we are.
        let own = unsafe { libc::getuid() };
        // One with all that a program may make long, then many with many labels.
        let mut long = Recording::synthetic(50);
        let words = ["node".to_owned(), "€".repeat(60_000), "x".repeat(100_000)];
        long.runs[0].command = words.map(String::into_bytes).to_vec();
        long.runs[0].directory = vec![b'd'; 4_000];
        database.keep(long, Some(own)).unwrap();
        for n in 0..100u64 {
            let mut recording = Recording::synthetic(50);
            recording.runs[0].started_unix_ns += n + 1;
            let labels = (0..100).map(|n| (format!("k{n}"), "v".repeat(2_000)));
            recording.runs[0].labels.extend(labels);
            database.keep(recording, Some(own)).unwrap();
        }
        drop(database);
        let (means, metrics) = (Means::default(), Arc::default());
        let control =
            Control::start(None, &access, folder.path(), metrics, Arc::default(), means).unwrap();
        let client = Client::new(&access.socket);
        let found = client.find(Find::default()).unwrap();
        assert!(found.more);
        assert!((50..90).contains(&found.runs.len()), "{}", found.runs.len());
        let (answer, _) =
            answer(Ask::Runs(Find::default()), &peer(own, &[]), &control.shared).unwrap();
        let bytes = encode(&answer).unwrap().len();
        assert!(
            (LONGEST_GIVEN / 2..LONGEST_GIVEN).contains(&bytes),
            "{bytes}"
        );
        // A script that asks for so many learns that there are more, too.
        let some = Find {
            most: Some(3),
            ..Find::default()
        };
        let found = client.find(some).unwrap();
        assert_eq!((found.runs.len(), found.more), (3, true));
        let oldest = Find {
            runs: Some(vec![1]),
            ..Find::default()
        };
        let found = client.find(oldest).unwrap();
        let run = &found.runs[0];
        assert!(!found.more);
        assert_eq!(run.command.len(), 3);
        assert_eq!((&*run.command[0], &*run.command[2]), ("node", "…"));
        let bytes: usize = run.command.iter().map(String::len).sum();
        assert!((4_000..4_200).contains(&bytes), "{bytes}");
        assert_eq!(
            (run.directory.len(), run.directory.ends_with('…')),
            (1_027, true)
        );
        // All that is sent at the same time has a limit, too.
        let sending = &control.shared.sending;
        // Who has an answer has it a little sooner than that it counts no more.
        let until = Instant::now() + PATIENCE;
        let sent = std::iter::repeat_with(|| sending.enter(own, MOST_SENT_TO_A_USER - 1))
            .find(|sent| sent.is_some() || Instant::now() > until)
            .flatten();
        assert!(sent.is_some());
        let why = client.find(Find::default()).unwrap_err().to_string();
        assert!(why.contains("many large answers"), "{why}");
        drop(sent);
        assert!(client.find(Find::default()).is_ok());
    }

    #[test]
    fn who_reads_slowly_takes_nothing_from_others() {
        let sending = Sending::answers();
        let mut taken = Vec::new();
        for uid in [1, 2, 3] {
            let large = || sending.enter(uid, LONGEST_GIVEN);
            let own: Vec<_> = std::iter::from_fn(large).collect();
            assert_eq!(own.len(), if uid < 3 { 3 } else { 2 });
            taken.extend(own);
        }
        assert!(sending.enter(4, 1).is_none());
        // Root has its share, and not more.
        let root: Vec<_> = std::iter::from_fn(|| sending.enter(0, LONGEST_GIVEN)).collect();
        assert_eq!(root.len(), 3);
        drop((taken, root));
        assert!(locked(&sending.by_user).is_empty());
    }

    #[test]
    fn an_answer_that_is_read_little_by_little_ends() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let patience = Patience {
            progress: Duration::from_secs(1),
            whole: Duration::from_secs(3),
        };
        let reader = std::thread::spawn(move || {
            let (mut piece, mut read) = (vec![0; 40_000], 0);
            while let Ok(some @ 1..) = theirs.read(&mut piece) {
                read += some;
                std::thread::sleep(Duration::from_millis(100));
            }
            read
        });
        let began = Instant::now();
        let bytes = vec![7; LONGEST_GIVEN];
        let error = send_in_time(&ours, &bytes, &[], patience).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = began.elapsed();
        assert!((3..6).contains(&took.as_secs()), "{took:?}");
        drop(ours);
        assert!(reader.join().unwrap() < LONGEST_GIVEN);
        // Who reads nothing is left sooner; who reads has all.
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let began = Instant::now();
        assert!(send_in_time(&ours, &bytes, &[], patience).is_err());
        assert!(began.elapsed() < patience.whole);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).map(|_| all.len())
        });
        let (second, mut other) = UnixStream::pair().unwrap();
        let whole = std::thread::spawn(move || {
            let mut all = vec![0; LONGEST_GIVEN];
            other.read_exact(&mut all).map(|()| all)
        });
        send_in_time(&second, &bytes, &[], SENDING).unwrap();
        assert_eq!(whole.join().unwrap().unwrap(), bytes);
        drop(ours);
        assert!(reader.join().unwrap().unwrap() < LONGEST_GIVEN);
    }

    #[test]
    fn runs_are_chosen_by_so_many_labels_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let _control = service(folder.path(), &access);
        let client = Client::new(&access.socket);
        let by = |labels: usize| {
            client.find(Find {
                labels: vec![("n".into(), "0".into()); labels],
                ..Find::default()
            })
        };
        assert_eq!(by(MOST_LABELS).unwrap().runs.len(), 1);
        let why = by(MOST_LABELS + 1).unwrap_err().to_string();
        assert!(why.contains("found 17 labels; needed: at most 16"), "{why}");
    }

    #[test]
    fn whatever_is_sent_the_next_client_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let _control = service(folder.path(), &access);
        let client = Client::new(&access.socket);
        let mut random = Random::new(11);
        for round in 0..300 {
            let mut stream = UnixStream::connect(&access.socket).unwrap();
            stream.set_read_timeout(Some(PATIENCE * 2)).unwrap();
            let length = random.below(200);
            let mut bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            match random.below(4) {
                // A length that is not kept, one that is too large, one that is right.
                0 => bytes.splice(0..0, 5_000u32.to_le_bytes()).for_each(drop),
                1 => bytes.splice(0..0, u32::MAX.to_le_bytes()).for_each(drop),
                2 => bytes
                    .splice(0..0, (length as u32).to_le_bytes())
                    .for_each(drop),
                _ => {}
            }
            let _ = stream.write_all(&bytes);
            if round % 3 == 0 {
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                assert!(String::from_utf8_lossy(&answer).contains("refused"));
            }
        }
        // SAFETY: asks who we are.
        let is_root = unsafe { libc::getuid() } == 0;
        let expected = if is_root { 5 } else { 3 };
        assert_eq!(client_patiently(&client), expected);
    }

    /// Runs that there are, once connections of before are gone.
    fn client_patiently(client: &Client) -> usize {
        for _ in 0..100 {
            match client.find(Find::default()) {
                Ok(found) => return found.runs.len(),
                Err(AskError::Refused(_) | AskError::Broken { .. }) => {
                    std::thread::sleep(Duration::from_millis(100))
                }
                Err(other) => panic!("{other}"),
            }
        }
        panic!("nobody answers")
    }

    #[test]
    fn who_says_nothing_or_little_by_little_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let _control = service(folder.path(), &access);
        let began = Instant::now();
        let mut slow: Vec<UnixStream> = (0..MOST_OF_A_USER)
            .map(|_| UnixStream::connect(&access.socket).unwrap())
            .collect();
        // One too many is told so.
        let error = loop {
            match Client::new(&access.socket).find(Find::default()) {
                Err(error) => break error,
                Ok(_) => assert!(began.elapsed() < PATIENCE, "it was never refused"),
            }
        };
        assert!(
            error.to_string().contains("too many connections"),
            "{error}"
        );
        slow[0].write_all(&1000u32.to_le_bytes()).unwrap();
        while began.elapsed() < PATIENCE + Duration::from_secs(1) {
            let _ = slow[0].write_all(b" ");
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(client_patiently(&Client::new(&access.socket)) > 0);
    }

    #[test]
    fn of_many_labels_it_is_told_how_many_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let mut database = Database::open(&folder.path().join(FILE)).unwrap();
        let mut recording = Recording::synthetic(50);
        let labels = (0..MOST_FOUND + 7).map(|n| (format!("key{n}"), "value".to_owned()));
        recording.runs[0].labels = labels.collect();
        // SAFETY: asks who we are.
        let own = unsafe { libc::getuid() };
        database.keep(recording, Some(own)).unwrap();
        let _control = Control::start(
            None,
            &access,
            folder.path(),
            Arc::default(),
            Arc::default(),
            Means::default(),
        );
        let labels = Client::new(&access.socket).labels().unwrap();
        assert_eq!((labels.labels.len(), labels.left_out), (MOST_FOUND, 7));
    }

    #[test]
    fn another_version_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let _control = service(folder.path(), &access);
        let mut stream = UnixStream::connect(&access.socket).unwrap();
        let request = Request {
            version: 9,
            ask: Ask::Status,
        };
        write_message(&mut stream, &request).unwrap();
        let answer: Answer = read_message(&mut stream, 1 << 20).unwrap();
        assert!(
            matches!(answer, Answer::Refused { why } if why.contains(&format!("protocol 9; needed: {VERSION}")))
        );
    }

    #[test]
    fn a_socket_is_only_taken_over_from_a_service_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let control = service(folder.path(), &access);
        let mode = fs::metadata(&access.socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let why = Control::start(
            None,
            &access,
            folder.path(),
            Arc::default(),
            Arc::default(),
            Means::default(),
        )
        .err()
        .unwrap();
        assert!(why.contains("another nodeprofd listens"), "{why}");
        drop(control);
        fs::write(&access.socket, "a file").unwrap();
        let why = Control::start(
            None,
            &access,
            folder.path(),
            Arc::default(),
            Arc::default(),
            Means::default(),
        )
        .err()
        .unwrap();
        assert!(why.contains("is no socket"), "{why}");
        fs::remove_file(&access.socket).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &access.socket).unwrap();
        assert!(
            Control::start(
                None,
                &access,
                folder.path(),
                Arc::default(),
                Arc::default(),
                Means::default()
            )
            .is_err()
        );
        fs::remove_file(&access.socket).unwrap();
        let gone = Client::new(&access.socket).status().unwrap_err();
        assert!(matches!(gone, AskError::NotRunning { .. }), "{gone}");
        // What a killed one has left.
        drop(UnixListener::bind(&access.socket).unwrap());
        assert!(
            Control::start(
                None,
                &access,
                folder.path(),
                Arc::default(),
                Arc::default(),
                Means::default()
            )
            .is_ok()
        );
    }
}
