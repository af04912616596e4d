//! The service: every start of node on this host, recorded from its exec until its event loop has started.
//!
//! It is the recorder of `nodeprof trace` turned round: nobody starts a program for it. The holder (see
//! [`nodeprof_bpf::hold`]) holds the exec of each known node binary for the moment that attaching takes, and learns new
//! ones from the kernel; here each of these processes becomes a recording of its own, which goes to the [`Store`].
//! Some time after the loop has started its probes are taken away: a server pays nothing from then on.
//!
//! One thread does all of this; another one writes to the store, and takes no lock that a holder forked meanwhile could wait for.

mod admission;
pub mod ceiling;
mod command;
pub mod config;
mod context;
mod control;
mod full_mode;
mod gate;
mod guard;
pub mod lane;
mod metrics;
mod nodes;
mod readers;
mod running;
mod signals;
pub mod store;
mod told;
pub mod tracer;
mod untold;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs, io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
        unix::{
            fs::{MetadataExt as _, OpenOptionsExt as _},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nodeprof_bpf::{
    Counters, LoadError, Options, Programs, Reader, Record, Sum, Taken,
    hold::{Event, Holder, HolderOptions, Obeys, act_behind},
};
use nodeprof_probes::plan::{AttachPlan, Family};
use nodeprof_profile::{
    random::Random,
    recording::{Recording, Run, RunId},
};

use crate::control::Status;
use crate::recorder::{
    Assembler, Mode, Notice, Rooms, SymbolsOfPrograms, load_plan, now, readable, remember_met_node,
    seen_by, share_plan,
};
use admission::Admission;
use ceiling::{Ceiling, Stepped};
use config::{CeilingLimits, Config};
use context::Context;
use control::{Control, Order};
use full_mode::Handover;
use gate::{Closed, Gate};
use guard::{Guard, Heard};
use lane::Lane;
use nodes::{Nodes, PATIENCE, SHORT_PATIENCE, briefly};
use running::{OF_HOST, Program, Running, losses_of_host};
use signals::{Asked, Signals};
use store::{Outcome, Store, StoreError};
use told::Told;
use tracer::Means;
use untold::{Untold, Why};

/// A process whose exec failed after it was held: nothing is heard of it.
const SILENT: Duration = Duration::from_secs(5);
/// Processes whose records are kept before they are announced, and bytes of each.
const MOST_EARLY: usize = 256;
const MOST_EARLY_BYTES: usize = 256 << 10;
/// Plans that are kept: of more only those of binaries whose starts are under way. Others are read again.
const MOST_PLANS: usize = 64;
/// The kernel goes through all pages to add up proportional sizes, 1 ms for each process: whoever asks for the status again and again shall not take that much of the
/// loop.
const MEMORY_ANEW: Duration = Duration::from_secs(1);
/// How often the loop looks in while processes are recorded. Nothing that they do wakes it, which would cost them two interrupts, unless much waits or an environment
/// is too long for the kernel side.
const LOOK_IN: Duration = Duration::from_millis(20);
/// How often where all of them have executed their programs, and nothing is known to be due: each look is an interrupt of one of the processors.
const LATER_LOOK_IN: Duration = Duration::from_millis(80);
/// How often it looks in otherwise: for the watchdog, and to see that the holder lives.
const IDLE_LOOK_IN: Duration = Duration::from_secs(1);
/// A holder that does not answer for this long is ended.
const SILENCE: Duration = Duration::from_secs(2);
/// One whom the guard found late, sooner: it lets starts go without probes.
const SHORT_SILENCE: Duration = Duration::from_millis(200);

/// Bytes of one start that are kept while it is recorded, about: in count mode 100,000 file operations on paths of their own, or twice as many on few paths (a start of
/// express has 4,100); in full mode so many calls on top. More is lost, and counted. What the store lets wait is twice that, so one heavy start does not drive others out.
const MOST_OF_A_START: u64 = 32 << 20;
const MOST_OF_A_START_IN_FULL: u64 = 64 << 20;
/// Of all starts that are recorded at a moment. With as much again for tables that grow by doubling it is less than half of what the unit allows (`MemoryMax`).
const MOST_OF_ALL_STARTS: u64 = 96 << 20;

/// What count mode records: not what only times are good for.
const COUNTED: [Family; 4] = [
    Family::Phases,
    Family::Crossings,
    Family::PackageJson,
    Family::Compile,
];
/// What full mode records. CPU samples and times off the CPU would cost every program on the host something.
const RECORDED: [Family; 6] = [
    Family::Phases,
    Family::Crossings,
    Family::PackageJson,
    Family::Compile,
    Family::Serialization,
    Family::Stacks,
];

/// What ends a start while the service, or what records in full mode, ends.
const INTERRUPT: &str = "interrupt";

/// Why the service could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The kernel side.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something else of the system.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> ServiceError {
    move |error| ServiceError::System { what, error }
}

/// What happens, for who logs it or tells a supervisor.
#[derive(Debug)]
pub enum Happening<'a> {
    /// Starts are recorded from now on; holding them, or why not.
    Ready(&'a Result<(), String>),
    /// The loop goes round.
    Alive,
    /// A configuration is read again.
    Reloading,
    /// It was, and is used from now on; or not, and the old one stays.
    Reloaded(&'a Result<(), String>),
    /// A start was recorded, or something happened to where they are kept.
    Stored(&'a Outcome),
    /// Starts are recorded in full mode, too, from now on; holding them, or why not.
    FullMode(&'a Result<(), String>),
    /// Not any more: its process ended. It is started anew.
    NoFullMode,
    /// Its process cannot be started, and why; it is tried again and again.
    NotInFullMode(&'a str),
    /// A start could not be recorded.
    Lost {
        /// Process.
        pid: u32,
        /// Why.
        why: String,
    },
    /// A node binary that is to be known from the beginning cannot be probed.
    Unusable {
        /// The binary.
        path: &'a Path,
        /// Why.
        why: String,
    },
    /// A file that may be a node binary is left out, because its file system does not answer.
    Silent {
        /// The file.
        path: &'a Path,
    },
    /// One that was left out so is a node binary, and will be met.
    Answers {
        /// The file.
        path: &'a Path,
    },
    /// The holder process ended and was started anew.
    HolderRestarted,
    /// Nobody can connect, and why.
    NoControl(&'a str),
    /// Nothing is recorded from now on, by command; or it is again.
    Paused(bool),
    /// The holder did not answer for an exec that waited: its guard let it go.
    HolderLate,
    /// The guard ended; another one holds execs now, or why not.
    GuardRestarted(&'a Result<(), String>),
    /// It costs too much and records less, or costs little and records more again.
    Stepped(Stepped),
    /// File operations of starts are recorded again, or why they cannot be.
    Tracing(&'a Result<(), String>),
    /// The service ends.
    Stopping,
}

/// Records every start of node on this host until it is asked to end. To be called while the process has one thread.
///
/// `source` is where the configuration is read from again when that is asked for; `control` the control socket that a
/// supervisor has opened already; `guard` where a guard listens that may hold execs for us (see [`nodeprof_bpf::hold::guard`]): without
/// one we fork our own. `tell` hears what happens.
///
/// # Errors
/// [`ServiceError`]; no probe is left behind.
pub fn serve(
    config: Config,
    source: Option<PathBuf>,
    control: Option<UnixListener>,
    guard: Option<PathBuf>,
    tell: &mut dyn FnMut(Happening<'_>),
) -> Result<(), ServiceError> {
    keep_temporary_files_in(&config.store.directory);
    // Before there is a thread that could take them.
    let signals = Signals::block().map_err(system("blocking signals"))?;
    // Before there is much that a fork would copy.
    let guard = Guard::start(config.hold, guard);
    let mut nodes = Nodes::default();
    let begun = nodes.begin(&config, true, PATIENCE);
    let store = Store::open(&config.store)?;
    let programs = Programs::load(&Options {
        count_only: true,
        files: config.files,
        stacks: false,
        ..for_host(&config)
    })?;
    programs.attach_tree(false)?;
    let buffer = RefCell::new(Vec::new());
    let reader = read_into(&buffer, &programs)?;
    nodes.wait(begun, &config, tell);
    let limits = config.ceiling.clone();
    let sink = Sink::Store(store);
    let mode = Mode::Count;
    let mut service = Service::new(config, mode, &programs, guard, limits, sink, nodes)?;
    service.source = source;
    service.holding = service.await_holder();
    service.start_lane();
    service.count_from_here();
    let access = &service.config.access;
    let metrics = service.store.metrics();
    let readers = service.store.readers();
    let means = service.means();
    match Control::start(
        control,
        access,
        &service.config.store.directory,
        metrics,
        readers,
        means,
    ) {
        Ok(control) => service.control = Some(control),
        Err(why) => tell(Happening::NoControl(&why)),
    }
    // Who waits for that may ask at once.
    tell(Happening::Ready(&service.holding));
    // What was recorded until a fault is kept all the same.
    let served = record(&mut service, &reader, &buffer, &signals, tell);
    tell(Happening::Stopping);
    service.end_lane(tell);
    service.finish_all(tell);
    for pid in service.end_holder() {
        service.lose(
            pid,
            Mode::Count,
            "the service ended when it began".into(),
            tell,
        );
    }
    if let Sink::Store(store) = &mut service.store {
        for outcome in store.end() {
            tell(Happening::Stored(&outcome));
        }
    }
    served
}

/// Goes round until the service is asked to end.
fn record(
    service: &mut Service<'_>,
    reader: &Reader<impl FnMut(&[u8])>,
    buffer: &RefCell<Vec<u8>>,
    signals: &Signals,
    tell: &mut dyn FnMut(Happening<'_>),
) -> Result<(), ServiceError> {
    loop {
        let begun = ceiling::own_cpu_time();
        let mut descriptors = vec![
            service.programs.ring().as_fd().as_raw_fd(),
            service.holder.descriptor(),
            signals.as_raw_fd(),
            service.store.as_raw_fd(),
        ];
        descriptors.extend(service.lane.as_ref().and_then(Lane::descriptor));
        descriptors.extend(service.control.as_ref().map(|control| control.as_raw_fd()));
        descriptors.extend(service.guard.descriptor());
        descriptors.extend(service.nodes.descriptors());
        let ready = readable(&descriptors, Some(service.look_in()))
            .map_err(system("waiting for records"))?;
        let turn = Turn::of(service, &ready, begun);
        tell(Happening::Alive);
        let before_starts = ceiling::own_cpu_time();
        reader.consume().map_err(system("reading records"))?;
        // Most starts are announced before their first record is written; what is read earlier waits.
        let heard = (service.hear_guard(tell)).and_then(|()| service.hear_holder(tell));
        let taken = buffer.take();
        service.take(&taken, tell);
        service.look_after(tell);
        heard?;
        let of_starts = match taken.is_empty() && service.running.is_empty() {
            true => Duration::ZERO,
            false => ceiling::own_cpu_time().saturating_sub(before_starts),
        };
        service.nodes.hear(&service.config, tell);
        service.hear_store(tell);
        service.hear_lane(tell);
        service.hear_control(tell)?;
        service.keep_below_ceiling(tell);
        if let Some(turn) = turn {
            service.for_clients = turn.for_clients(of_starts);
        }
        match signals.asked() {
            Some(Asked::End) => return Ok(()),
            Some(Asked::Reload) => drop(service.reload(tell)?),
            None => {}
        }
    }
}

/// Has SQLite put its temporary files beside the store, unless the environment names a folder: in a sandbox no other one may be written to, and without one what
/// is sorted or removed must fit into 4 MB (`PRAGMA cache_size`). They have no names, so nothing is left of them. To be called while the process has one thread.
fn keep_temporary_files_in(folder: &Path) {
    const VARIABLE: &str = "SQLITE_TMPDIR";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: nobody else reads the environment meanwhile.
        unsafe { std::env::set_var(VARIABLE, folder) };
    }
}

/// Where recordings of starts go.
enum Sink {
    /// To the database.
    Store(Store),
    /// To the service: this is its lane.
    Service(lane::Link),
}

impl Sink {
    fn keep(&self, pid: u32, owner: Option<u32>, recording: Recording) -> Result<(), String> {
        match self {
            Sink::Store(store) => store.keep(pid, owner, recording),
            Sink::Service(link) => link.keep(pid, owner, &recording),
        }
    }

    fn next(&self) -> Option<Outcome> {
        match self {
            Sink::Store(store) => store.next(),
            Sink::Service(_) => None,
        }
    }

    fn state(&self) -> store::State {
        match self {
            Sink::Store(store) => store.state(),
            Sink::Service(_) => store::State::default(),
        }
    }

    fn metrics(&self) -> Arc<metrics::Metrics> {
        match self {
            Sink::Store(store) => store.metrics(),
            Sink::Service(_) => Arc::default(),
        }
    }

    fn readers(&self) -> Arc<readers::Readers> {
        match self {
            Sink::Store(store) => store.readers(),
            Sink::Service(_) => Arc::default(),
        }
    }

    fn as_raw_fd(&self) -> RawFd {
        match self {
            Sink::Store(store) => store.as_raw_fd(),
            Sink::Service(link) => link.descriptor(),
        }
    }
}

/// What both modes ask of the kernel side.
fn for_host(config: &Config) -> Options {
    Options {
        host: true,
        looks_in: true,
        cache: Some(config.cache.clone()),
        ring_bytes: config.buffer_bytes,
        ..Options::default()
    }
}

/// Reads records into the buffer, each after its length.
fn read_into(
    buffer: &RefCell<Vec<u8>>,
    programs: &Programs,
) -> Result<Reader<impl FnMut(&[u8])>, ServiceError> {
    let collect = move |bytes: &[u8]| {
        let mut all = buffer.borrow_mut();
        all.extend((bytes.len() as u32).to_ne_bytes());
        all.extend(bytes);
    };
    programs
        .reader(collect)
        .map_err(system("mapping the ring buffer"))
}

struct Service<'p> {
    config: Config,
    source: Option<PathBuf>,
    programs: &'p Programs,
    holder: Holder,
    guard: Guard,
    nodes: Nodes,
    ceiling: Ceiling,
    /// The guard found the holder late, and it has not answered since.
    is_late: bool,
    pinged: Option<Instant>,
    last_ping: Instant,
    /// What was read last of the memory that the service takes, and when.
    memory: Option<(Instant, u64)>,
    /// By the index that records carry; the holder gives it, and gives it anew ([`Event::Attached`]).
    plans: HashMap<u8, (u32, Arc<AttachPlan>)>,
    /// By the same. In full mode only.
    symbols: SymbolsOfPrograms,
    running: HashMap<u32, Running>,
    /// How much of them is kept.
    rooms: Rooms,
    /// Starts of processes that execute a node binary as another user than before: begun when the records come to that exec.
    successors: HashMap<u32, Running>,
    /// Records of processes from their exec on whose probes are not announced yet: the exec goes on as soon as they are up, or when it was held as long as it may be.
    early: HashMap<u32, Early>,
    /// Full: this is the lane.
    mode: Mode,
    store: Sink,
    gate: Gate,
    /// The process of full mode, if the rules name that.
    lane: Option<Lane>,
    /// What all of these have counted.
    of_lanes: lane::Counts,
    /// It has begun, and has not got its starts yet.
    handover: Option<Handover>,
    /// When it got them last.
    handed_over: Option<Instant>,
    /// Starts of which somebody must tell.
    untold: Untold,
    /// How many starts left to full mode the gate has told of.
    left_read: u64,
    /// Processes that the holder lets wait for their probes, since when, and of how many the gate has told.
    awaited: HashMap<u32, Instant>,
    admitted_read: u64,
    control: Option<Control>,
    started_unix_ns: u64,
    cpu: CpuTime,
    /// CPU time that this thread took for clients.
    for_clients: Duration,
    /// Starts are held, or why not.
    holding: Result<(), String>,
    /// Why file operations of starts that begin now are not recorded, though they are wanted.
    no_files: Option<String>,
    room: Room,
    /// Starts that were not recorded, besides those that the store lost.
    lost: u64,
    /// Of which of these is told.
    told_lost: Told,
    /// Which were kept, of those that both modes may have.
    kept: Told,
    /// Which count mode has recorded while there was full mode.
    counted: Told,
}

/// A turn of the loop that a client's request, and nothing else, has caused: all of it is for clients but what is done for starts meanwhile.
struct Turn {
    /// CPU time of this thread when it began, and what of that was for clients.
    begun: Duration,
    for_clients: Duration,
}

impl Turn {
    fn of(service: &Service<'_>, ready: &[RawFd], begun: Duration) -> Option<Turn> {
        let control = service.control.as_ref()?.as_raw_fd();
        (ready == [control]).then_some(Turn {
            begun,
            for_clients: service.for_clients,
        })
    }

    /// What is for clients when it ends.
    fn for_clients(&self, of_starts: Duration) -> Duration {
        let took = ceiling::own_cpu_time().saturating_sub(self.begun);
        self.for_clients + took.saturating_sub(of_starts)
    }
}

/// Records that have found no room, as it was a moment ago: who is announced now had not begun then.
#[derive(Default)]
struct Room {
    /// Before the last time, and then.
    seen: [u64; 2],
    at: Option<Instant>,
}

impl Room {
    /// Longer than an exec is held, or who has let it go takes to announce it.
    const MOMENT: Duration = Duration::from_millis(100);

    fn before(&self) -> u64 {
        self.seen[0]
    }

    /// All who were announced are known.
    fn see(&mut self, now: Instant, ring_full: impl FnOnce() -> u64) {
        if self
            .at
            .is_none_or(|at| now.duration_since(at) > Self::MOMENT)
        {
            self.seen = [self.seen[1], ring_full()];
            self.at = Some(now);
        }
    }
}

/// CPU time that only grows: that of a holder which was replaced is not there any more when it is read again.
#[derive(Default)]
struct CpuTime {
    total: Duration,
    last: Duration,
}

impl CpuTime {
    /// Of the service and the holder that there is now.
    fn add(&mut self, now: Duration) {
        self.total += now.saturating_sub(self.last);
        self.last = now;
    }
}

/// See [`Service::early`].
struct Early {
    since: Instant,
    records: Vec<u8>,
    /// There were more of them: none is kept that came after one that is missing.
    is_cut: bool,
    /// The process had the probes of another user's start.
    is_successor: bool,
}

impl Early {
    fn new() -> Early {
        Early {
            since: Instant::now(),
            records: Vec::new(),
            is_cut: false,
            is_successor: false,
        }
    }

    /// Keeps a record, if it and all before it have room.
    fn add(&mut self, record: &[u8]) {
        self.is_cut |= self.records.len() + record.len() >= MOST_EARLY_BYTES;
        if !self.is_cut {
            self.records.extend((record.len() as u32).to_ne_bytes());
            self.records.extend(record);
        }
    }
}

impl<'p> Service<'p> {
    /// With a holder that has begun, in one of the two modes.
    fn new(
        config: Config,
        mode: Mode,
        programs: &'p Programs,
        guard: Guard,
        limits: CeilingLimits,
        store: Sink,
        nodes: Nodes,
    ) -> Result<Service<'p>, ServiceError> {
        let shared = || system("sharing memory with the holder");
        let gate = Gate::new().map_err(shared())?;
        // The one who records in full mode opens it when it is ready; the service does without until then.
        match mode {
            Mode::Full => gate.close(Closed::Paused),
            Mode::Count => gate.set_lacks_full(true),
        }
        let ceiling = Ceiling::new(limits, events(&programs.counters())).map_err(shared())?;
        let known = nodes.found();
        let holder = start_holder(programs, &config, mode, &gate, &guard, &ceiling, known)?;
        // The holder does what starts wait for.
        act_behind();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Service {
            config,
            source: None,
            programs,
            holder,
            guard,
            nodes,
            ceiling,
            is_late: false,
            pinged: None,
            last_ping: Instant::now(),
            memory: None,
            plans: HashMap::new(),
            symbols: SymbolsOfPrograms::default(),
            running: HashMap::new(),
            rooms: Rooms::new(
                match mode {
                    Mode::Count => MOST_OF_A_START,
                    Mode::Full => MOST_OF_A_START_IN_FULL,
                },
                MOST_OF_ALL_STARTS,
            ),
            successors: HashMap::new(),
            early: HashMap::new(),
            mode,
            store,
            gate,
            lane: None,
            of_lanes: lane::Counts::default(),
            handover: None,
            handed_over: None,
            untold: Untold::default(),
            left_read: 0,
            awaited: HashMap::new(),
            admitted_read: 0,
            control: None,
            started_unix_ns: since_1970.unwrap_or_default().as_nanos() as u64,
            cpu: CpuTime::default(),
            for_clients: Duration::ZERO,
            holding: Ok(()),
            no_files: None,
            room: Room::default(),
            lost: 0,
            told_lost: Told::default(),
            kept: Told::default(),
            counted: Told::default(),
        })
    }

    /// How long the loop waits for news.
    fn look_in(&self) -> Duration {
        if self.is_late || self.handover.is_some() {
            return LOOK_IN;
        }
        let all = self.running.values();
        let first = all.map(|run| run.patience(&self.config)).min();
        first.unwrap_or(IDLE_LOOK_IN)
    }
}

impl Service<'_> {
    fn finish_all(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        let all: Vec<(u32, &str)> = (self.running.keys()).map(|pid| (*pid, INTERRUPT)).collect();
        self.finish(&all, tell);
    }

    /// What the log may have of words that name what users have named.
    fn log_words(&self, words: &str) -> String {
        self.config.redaction.words(words)
    }

    /// Its processes, besides this one.
    fn pids(&self) -> Vec<u32> {
        let lane = self.lane.iter().flat_map(Lane::pids);
        lane.chain([self.holder.pid()]).collect()
    }
}

/// The file that a process executes, as a place, wherever it lies. To read what is in it takes rights of its own.
fn open_place(path: &Path, file: Option<(u64, u64)>, pid: u32) -> Option<OwnedFd> {
    let open = || {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_PATH);
        let opened = options.open(seen_by(path, file, pid)).ok()?;
        let meta = opened.metadata().ok()?;
        (file == Some((meta.dev(), meta.ino()))).then(|| opened.into())
    };
    lane::with_rights(Mode::Full, open).ok()?
}

/// Forks the holder of a service, which knows these node binaries.
fn start_holder(
    programs: &Programs,
    config: &Config,
    mode: Mode,
    gate: &Gate,
    guard: &Guard,
    ceiling: &Ceiling,
    known: &[PathBuf],
) -> Result<Holder, ServiceError> {
    let cache = config.cache.clone();
    let mut admission = Admission::new(config, mode, gate, ceiling.shared());
    let admitted = admission.admitted();
    let is_count = mode == Mode::Count;
    let options = HolderOptions {
        families: match is_count {
            true => COUNTED.to_vec(),
            false => RECORDED.to_vec(),
        },
        plans: Box::new(move |_, open| load_plan(open, None, Some(&cache), is_count)),
        candidates: known.to_vec(),
        spare: None,
        admission: Some(Box::new(move |pid, program, met| {
            admission.admits(pid, program, met)
        })),
        description: Some(Box::new(move |pid| {
            let mut context = Context::of(pid);
            if let Some(known) = admitted.take(pid) {
                context.complete(known);
            }
            context.to_bytes()
        })),
        execs: guard.execs(),
        // Where code is mapped, the names of functions depend on.
        syscalls: config.files || !is_count,
        obeys: Obeys::Socket,
    };
    Holder::start(programs, options).map_err(system("starting the holder process"))
}

impl Service<'_> {
    /// For users' own traces.
    fn means(&self) -> Means {
        Means {
            cache: Some(self.config.cache.clone()),
            guard: self.guard.listens_at().map(Path::to_owned),
            hold: self.config.hold,
            nodes: self.nodes.found().to_vec(),
        }
    }

    /// Waits until the holder has said whether it can hold.
    fn await_holder(&mut self) -> Result<(), String> {
        match self.holder.next(Duration::from_secs(10)) {
            Some(Event::Holding(outcome)) => outcome,
            _ => Err("the holder process does not answer".into()),
        }
    }

    /// Which node binaries there are when a holder is replaced: as many as answer at once.
    fn look_again(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        if self.mode == Mode::Count {
            let begun = self.nodes.begin(&self.config, false, SHORT_PATIENCE);
            self.nodes.wait(begun, &self.config, tell);
        }
    }

    /// Ends the holder, whose probes go with it, and starts another one. One that is silent cannot be asked.
    fn replace_holder(
        &mut self,
        is_silent: bool,
        tell: &mut dyn FnMut(Happening<'_>),
    ) -> Result<(), ServiceError> {
        let patience = match is_silent {
            true => Duration::ZERO,
            false => SILENCE,
        };
        // Count mode stands in for it meanwhile: what there is to hand over may take long.
        self.say_of_full(&lane::Said::Fails);
        // Then it cannot have told of those that waited.
        let is_cut = is_silent || self.holder.is_ending();
        let mut events = Vec::new();
        let hear = |event| events.push(event);
        self.holder.end_and_hear(patience, hear);
        self.guard.let_all_go();
        // Starts that it has announced, or could not have recorded.
        for event in events {
            self.on_event(event, tell);
        }
        self.see_admitted();
        for (pid, _) in std::mem::take(&mut self.awaited)
            .into_iter()
            .filter(|_| is_cut)
        {
            match self.mode {
                Mode::Count => self.await_word_of(pid, Why::OfHolder),
                Mode::Full => self.lose(pid, Mode::Full, Why::OfHolder.words().into(), tell),
            }
        }
        for run in self.running.values_mut() {
            run.hole("the holder process ended: its probes went with it".into());
            run.is_cut |= run.executed.is_none();
        }
        if self.mode == Mode::Full {
            // The service starts another lane, which has the rights that a new holder needs.
            let ended = io::Error::other("it ended, or did not answer");
            return Err(system("the holder process of full mode")(ended));
        }
        self.is_late = false;
        self.holder = start_holder(
            self.programs,
            &self.config,
            self.mode,
            &self.gate,
            &self.guard,
            &self.ceiling,
            self.nodes.found(),
        )?;
        self.pinged = None;
        self.last_ping = Instant::now();
        // It will say so, if it is as it was.
        self.no_files = None;
        // Indexes of binaries are the holder's.
        self.plans.clear();
        self.holding = self.await_holder();
        self.count_from_here();
        Ok(())
    }

    fn hear_holder(&mut self, tell: &mut dyn FnMut(Happening<'_>)) -> Result<(), ServiceError> {
        let mut gone = self.holder.has_ended();
        let mut is_calm = true;
        while let Some(event) = self.holder.next(Duration::ZERO) {
            if event == Event::Gone {
                gone = true;
                break;
            }
            is_calm &= !matches!(event, Event::Attached { .. });
            self.on_event(event, tell);
        }
        if is_calm {
            let full = || self.programs.counters().ring_full;
            self.room.see(Instant::now(), full);
        }
        let patience = if self.is_late { SHORT_SILENCE } else { SILENCE };
        let is_silent = self.pinged.is_some_and(|at| at.elapsed() > patience);
        if gone || is_silent {
            self.look_again(tell);
            self.replace_holder(is_silent, tell)?;
            tell(Happening::HolderRestarted);
        } else if self.pinged.is_none() && (self.is_late || self.last_ping.elapsed() > SILENCE / 2)
        {
            self.last_ping = Instant::now();
            let _ = self.holder.ping();
            self.pinged = Some(self.last_ping);
        }
        Ok(())
    }

    /// Who waits for probes.
    fn see_admitted(&mut self) {
        /// Of an exec that fails nobody tells.
        const MOMENT: Duration = Duration::from_secs(10);
        let now = Instant::now();
        if self
            .awaited
            .values()
            .any(|at| now.duration_since(*at) > MOMENT)
        {
            self.awaited
                .retain(|_, at| now.duration_since(*at) < MOMENT);
        }
        let admitted = self.gate.admitted(&mut self.admitted_read);
        self.awaited.extend(admitted.map(|pid| (pid, now)));
    }

    /// Ends the holder, and its probes; processes whose starts it had still told of.
    fn end_holder(&mut self) -> Vec<u32> {
        let mut unheard = Vec::new();
        let hear = |event: Event| unheard.extend(event.start());
        self.holder.end_and_hear(SILENCE, hear);
        unheard
    }

    /// What the holder tells.
    fn on_event(&mut self, event: Event, tell: &mut dyn FnMut(Happening<'_>)) {
        if let Some(pid) = event.start() {
            self.see_admitted();
            self.awaited.remove(&pid);
        }
        match event {
            Event::Alive => {
                self.pinged = None;
                self.is_late = false;
            }
            Event::Attached {
                pid,
                binary,
                serial,
                took,
                path,
                file,
                after_exec,
                since,
                description,
                ..
            } => {
                let late = after_exec.then_some(since);
                let program = Program {
                    path: &path,
                    file,
                    context: Context::from_bytes(pid, &description),
                };
                self.begin(pid, (binary, serial), took, program, late, tell);
            }
            Event::Failed { pid, path, reason } => {
                let why = self.log_words(&format!("{}: {reason}", path.display()));
                match self.may_both_record() {
                    true => self.await_word_of(pid, Why::Failed(why)),
                    false => self.lose(pid, self.mode, why, tell),
                }
            }
            Event::Unasked { pid } => match (self.mode, &self.lane) {
                (Mode::Full, _) => self.say_of_full(&lane::Said::Unasked { pid }),
                (Mode::Count, Some(lane)) if lane.records(pid) => {}
                (Mode::Count, Some(_)) => self.await_word_of(pid, Why::Unasked),
                (Mode::Count, None) => self.lose(pid, self.mode, Why::Unasked.words().into(), tell),
            },
            Event::NotStopped { pid, reason } => {
                if let Some(run) = self.running.get_mut(&pid) {
                    run.hole(reason);
                }
            }
            // Of a holder that was slow to begin.
            Event::Holding(outcome) => self.holding = outcome,
            Event::Tracing(outcome) => {
                tell(Happening::Tracing(&outcome));
                self.no_files = outcome.err();
            }
            Event::Stopped { .. } | Event::Gone => {}
        }
    }

    fn hear_guard(&mut self, tell: &mut dyn FnMut(Happening<'_>)) -> Result<(), ServiceError> {
        match self.guard.hear() {
            Some(Heard::Late) => {
                // An older ping may be on its way: it has its time from now on.
                self.pinged = self.pinged.map(|_| Instant::now());
                self.is_late = true;
                tell(Happening::HolderLate);
            }
            Some(Heard::Changed) => {
                self.look_again(tell);
                self.replace_holder(false, tell)?;
                tell(Happening::GuardRestarted(&self.holding));
            }
            None => {}
        }
        Ok(())
    }

    /// Hits of probes and traced system calls, by all of its programs.
    fn events(&self) -> u64 {
        let of_lane = self.lane.as_ref().map_or(0, Lane::events);
        events(&self.programs.counters()) + of_lane
    }

    /// Starts that were not recorded because of the ceiling, in both modes.
    fn passed_over(&self) -> u64 {
        self.ceiling.passed_over() + self.of_lanes.passed_over()
    }

    /// What it cost to begin is no reason to record less.
    fn count_from_here(&mut self) {
        self.cpu.add(ceiling::cpu_time(&self.pids()));
        let (cpu, events) = (self.without_clients(), self.events());
        self.ceiling.begin_at(cpu, events);
    }

    /// What clients ask for is no reason to record less: they could have it so, and it would not become less by that.
    fn without_clients(&self) -> Duration {
        let cpu = ceiling::cpu_time_besides(&control::THREADS, &self.pids());
        cpu.saturating_sub(self.for_clients)
    }

    /// Measures what the service costs, and records less if that is too much.
    fn keep_below_ceiling(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        if !self.ceiling.is_due() {
            return;
        }
        self.cpu.add(ceiling::cpu_time(&self.pids()));
        let (cpu, events) = (self.without_clients(), self.events());
        if let Some(mut stepped) = self.ceiling.measure(Instant::now(), cpu, events) {
            stepped.passed_over = self.passed_over();
            tell(Happening::Stepped(stepped));
        }
    }

    /// A process has its probes, and is about to execute.
    fn begin(
        &mut self,
        pid: u32,
        (binary, serial): (u8, u32),
        took: Duration,
        program: Program<'_>,
        late: Option<Duration>,
        tell: &mut dyn FnMut(Happening<'_>),
    ) {
        if self.plans.get(&binary).is_none_or(|(of, _)| *of != serial) {
            let path = program.path;
            let (of_thread, file) = (path.to_owned(), program.file);
            let (cache, is_count) = (self.config.cache.clone(), self.mode == Mode::Count);
            let read = move || {
                let load = |path: &Path| load_plan(path, file, Some(&cache), is_count);
                let seen = seen_by(&of_thread, file, pid);
                let plan = load(&seen).or_else(|why| {
                    // It may have ended in between.
                    let now = seen_by(&of_thread, file, pid);
                    if now == seen { Err(why) } else { load(&now) }
                });
                (plan, fs::canonicalize(&of_thread).ok())
            };
            // Each may take a while.
            tell(Happening::Alive);
            let read = lane::with_rights(self.mode, || briefly(read));
            let (plan, real) = match read {
                Ok(read) => {
                    read.unwrap_or_else(|| (Err("its file system does not answer".into()), None))
                }
                Err(error) => (Err(error.to_string()), None),
            };
            match plan {
                Ok(mut plan) => {
                    plan.binary.path = path.to_owned();
                    if self.plans.len() >= MOST_PLANS {
                        let all = &self.running;
                        let is_used =
                            |index: &u8| all.values().any(|run| run.assembler.has_image(*index));
                        self.plans.retain(|index, _| is_used(index));
                    }
                    let plan = share_plan(plan, self.plans.values().map(|(_, plan)| plan));
                    self.plans.insert(binary, (serial, plan));
                }
                Err(why) => {
                    self.plans.remove(&binary);
                    if !self.running.contains_key(&pid) {
                        // Its probes are of no use, if it is there still.
                        let _ = self.holder.release(pid);
                    }
                    let why = match fs::read_link(format!("/proc/{pid}/exe")) {
                        // Its path was one of its own file system, which ended with it: nothing is wrong with the binary.
                        Err(e) if e.kind() == io::ErrorKind::NotFound => {
                            "it had ended before its binary could be read, as a short first start may"
                                .into()
                        }
                        _ => why,
                    };
                    let why = self.log_words(&why);
                    return self.lose(pid, self.mode, why, tell);
                }
            }
            if let Some(real) = real {
                remember_met_node(&self.config.cache, real);
            }
        }
        let symbols = match self.mode {
            Mode::Count => None,
            Mode::Full => self.symbols.of((binary, serial), || {
                open_place(program.path, program.file, pid)
            }),
        };
        let goes_on = self.running.get_mut(&pid).filter(|run| !run.exited);
        let changes_user = match goes_on {
            Some(run) if !run.context.is_of_another(program.context.owner()) => {
                // It executes another node binary: still the same start.
                run.add_image(binary, self.plans.get(&binary));
                run.assembler.attached(pid, binary);
                symbols
                    .into_iter()
                    .for_each(|known| run.assembler.symbols.share(known));
                return;
            }
            Some(_) => true,
            None => {
                self.finish(&[(pid, "exit")], tell);
                false
            }
        };
        let mut context = program.context;
        context.executable = program.path.to_owned();
        let recording = Recording {
            runs: vec![Run::default()],
            ..Recording::default()
        };
        let mut assembler = Assembler::new(recording, RunId(0), pid, &context.directory);
        assembler.keep_names_in(&self.config.cache);
        assembler.keep_within(self.rooms.enter());
        symbols
            .into_iter()
            .for_each(|known| assembler.symbols.share(known));
        let mut run = Running {
            assembler,
            mode: self.mode,
            context,
            started_unix_ns: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_nanos() as u64,
            attached_at: now(),
            attach_ns: took.as_nanos() as u64,
            executed: late.map(|_| now()),
            command: Vec::new(),
            late,
            one_in: self.ceiling.one_in(),
            loop_started: None,
            exited: false,
            gone: false,
            is_cut: false,
            unwanted: false,
            lot: Random::new(u64::from(pid) ^ now()).fraction(),
            awaits_environment: false,
            no_environment: None,
            no_files: self.no_files.clone(),
            counters: self.programs.counters(),
            ring_full: self.room.before(),
        };
        run.add_image(binary, self.plans.get(&binary));
        run.assembler.attached(pid, binary);
        if late.is_some() {
            run.read_program(pid, &self.config.labels);
            run.ask_rules(&self.config);
            if self.mode == Mode::Full && run.is_start() {
                self.say_of_full(&lane::Said::Begun { pid });
            }
            // Nobody stopped it: it may have ended before its probes came, and one that was never hit is not whole for that.
            let why = "probes came after its main had begun";
            match self.mode {
                Mode::Count => run.assembler.held_too_short(pid, why.into()),
                Mode::Full => run.assembler.not_stopped(pid, why.into()),
            }
        }
        if changes_user {
            // Of one that came late the kernel side tells no exec.
            let is_told = late.is_none();
            self.successors.insert(pid, run);
            if !is_told {
                self.succeed(pid, tell);
            }
            return;
        }
        self.running.insert(pid, run);
        if let Some(early) = self.early.remove(&pid) {
            self.take(&early.records, tell);
            // What is missing came after these: it is of whom they have led to.
            if let Some(run) = self.running.get_mut(&pid).filter(|_| early.is_cut) {
                run.hole(format!(
                    "more than {} KB of records came before its probes were announced, and those beyond are missing",
                    MOST_EARLY_BYTES >> 10
                ));
            }
        }
    }

    /// A process runs as another user from now on, whose start is another one: what it did before is over. Its probes are those of the new one by now.
    fn succeed(&mut self, pid: u32, tell: &mut dyn FnMut(Happening<'_>)) {
        if let Some(run) = self.running.remove(&pid) {
            let is_of = |binary| run.assembler.has_image(binary);
            let sums = self.programs.take_sums_of(pid, is_of);
            self.keep(pid, run, "exit", &sums, tell);
        }
        match self.successors.remove(&pid) {
            Some(run) => drop(self.running.insert(pid, run)),
            // It is told soon.
            None => {
                let early = Early {
                    is_successor: true,
                    ..Early::new()
                };
                self.early.insert(pid, early);
            }
        }
    }

    /// Whether this record of a process, or one before it that was lost, is the first one of another user's start.
    fn changes_user(&self, pid: u32, record: &[u8]) -> bool {
        let Some(run) = self.running.get(&pid) else {
            return false;
        };
        match Record::new_user(record) {
            Some(user) => run.executed.is_some() && run.context.is_of_another(Some(user)),
            None => self.successors.get(&pid).is_some_and(|successor| {
                self.programs.counters().ring_full > successor.counters.ring_full
            }),
        }
    }

    /// Hands records to the starts that they are of. Others are of processes that were released already.
    fn take(&mut self, bytes: &[u8], tell: &mut dyn FnMut(Happening<'_>)) {
        let mut rest = bytes;
        let mut begun = Vec::new();
        while let Some((length, tail)) = rest.split_first_chunk::<4>() {
            let length = (u32::from_ne_bytes(*length) as usize).min(tail.len());
            let (record, tail) = tail.split_at(length);
            rest = tail;
            let pid = Record::process(record).ok();
            if let Some(pid) = pid.filter(|pid| self.changes_user(*pid, record)) {
                self.succeed(pid, tell);
            }
            let run = pid.and_then(|pid| self.running.get_mut(&pid));
            let Some(run) = run else {
                self.keep_early(record);
                continue;
            };
            if let Some(user) = Record::new_user(record) {
                run.context.take_user(user);
            } else if run.executed.is_none() && Record::is_of_program(record) {
                run.miss_exec(run.context.pid, &self.config.labels);
                run.ask_rules(&self.config);
            }
            run.assembler.take(record);
            for notice in run.assembler.take_notices() {
                match notice {
                    Notice::Exec { pid, is_whole } => {
                        // Another node in this one's place starts anew; the limit is for both.
                        match run.executed {
                            Some(_) => run.loop_started = None,
                            None => begun.extend((self.mode == Mode::Full).then_some(pid)),
                        }
                        run.executed.get_or_insert_with(now);
                        run.take_command(pid, is_whole);
                        run.ask_rules(&self.config);
                    }
                    Notice::Milestone { name, at, .. } if name == "loop_start" => {
                        run.loop_started.get_or_insert(at);
                    }
                    Notice::Environment { text } => {
                        run.take_environment(&text, &self.config.labels);
                    }
                    Notice::Milestone { .. } => {}
                }
            }
        }
        for pid in begun {
            if self.running.get(&pid).is_some_and(Running::is_start) {
                self.say_of_full(&lane::Said::Begun { pid });
            }
        }
        // Longer ones are not told; nor is one that found no room.
        for (&pid, run) in &mut self.running {
            if run.awaits_environment {
                run.read_program(pid, &self.config.labels);
            }
        }
    }

    /// Keeps a record of a process that is not known yet.
    fn keep_early(&mut self, record: &[u8]) {
        let Ok(pid) = Record::process(record) else {
            return;
        };
        let is_exec = || matches!(Record::decode(record), Ok(Record::Exec { .. }));
        if !self.early.contains_key(&pid) && (self.early.len() >= MOST_EARLY || !is_exec()) {
            return;
        }
        let early = self.early.entry(pid).or_insert_with(Early::new);
        early.add(record);
    }

    /// Ends what has ended.
    fn look_after(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        let clock = now();
        let since = |at: u64| Duration::from_nanos(clock.saturating_sub(at));
        let (settle, limit) = (self.config.settle, self.config.limit);
        let over: Vec<(u32, &str)> = self
            .running
            .iter_mut()
            .filter_map(|(&pid, run)| {
                run.exited = run
                    .assembler
                    .find_process(pid)
                    .is_some_and(|p| p.exited.is_some());
                // All that it wrote is read by the next round. Without a word on its end that record was lost, or the end
                // came before the probes did.
                let was_gone = run.gone;
                run.gone = !Path::new(&format!("/proc/{pid}")).exists();
                // Its records are about to come to another user's start.
                let successor = self.successors.get(&pid);
                let is_followed = successor.is_some_and(|next| since(next.attached_at) < SILENT);
                let why = if is_followed && !was_gone && !run.exited {
                    return None;
                } else if run.unwanted {
                    "unwanted"
                } else if run.exited {
                    "exit"
                } else if run.loop_started.is_some_and(|at| since(at) > settle) {
                    "loop-start"
                } else if run.executed.is_some_and(|at| since(at) > limit) {
                    "duration"
                } else if was_gone {
                    "exit"
                } else if run.executed.is_none() && since(run.attached_at) > SILENT {
                    "no exec"
                } else {
                    return None;
                };
                Some((pid, why))
            })
            .collect();
        self.finish(&over, tell);
        let is_old = |early: &mut Early| early.since.elapsed() >= SILENT;
        let old: Vec<(u32, Early)> = (self.early).extract_if(|_, early| is_old(early)).collect();
        for (pid, _) in old.iter().filter(|(_, early)| early.is_successor) {
            let _ = self.holder.release(*pid);
            let why = "it ran as another user before, and nobody told of new probes".into();
            self.lose(*pid, self.mode, why, tell);
        }
    }

    /// Starts are over (of which process, and what ended it): their probes go, and what was seen is kept.
    fn finish(&mut self, over: &[(u32, &str)], tell: &mut dyn FnMut(Happening<'_>)) {
        let pids: Vec<u32> = (over.iter().map(|(pid, _)| *pid))
            .filter(|pid| self.running.contains_key(pid))
            .collect();
        if pids.is_empty() {
            return;
        }
        for pid in &pids {
            if let Some(run) = self.running.get_mut(pid)
                && run.mode == Mode::Full
                && !(run.exited || run.gone)
            {
                // What it is in the middle of is in no record.
                let unended = self.programs.unended_of(&[*pid], now);
                run.assembler.add_unended(&unended);
            }
        }
        // First, for one that still runs: what its main thread has not added to its sums goes with its probes.
        let mut sums = self.programs.take_sums(&pids, |pid| {
            !self.running.contains_key(&pid) && !Path::new(&format!("/proc/{pid}")).exists()
        });
        let mut ended = Vec::new();
        for &(pid, ended_by) in over {
            if let Some(run) = self.running.remove(&pid) {
                let _ = self.holder.release(pid);
                let mut sums = sums.remove(&pid).unwrap_or_default();
                // Its exec was not told.
                if let Some(successor) = self.successors.remove(&pid) {
                    let is_theirs = |sum: &mut Sum| !run.assembler.has_image(sum.origin.binary);
                    let theirs = Taken {
                        sums: sums.sums.extract_if(.., is_theirs).collect(),
                        is_unread: sums.is_unread,
                    };
                    ended.push((pid, ended_by, successor, theirs));
                }
                ended.push((pid, ended_by, run, sums));
            }
        }
        for (pid, ended_by, mut run, sums) in ended {
            // Each of them may take a while, and there may be hundreds.
            tell(Happening::Alive);
            if run.executed.is_none() && !sums.sums.is_empty() {
                run.miss_exec(pid, &self.config.labels);
                run.ask_rules(&self.config);
            }
            self.keep(pid, run, ended_by, &sums, tell);
        }
    }

    /// A start is not recorded, as this mode says.
    fn lose(&mut self, pid: u32, by: Mode, why: String, tell: &mut dyn FnMut(Happening<'_>)) {
        self.untold.take(pid);
        if !self.told_lost.is_known(pid, by, Instant::now()) {
            self.lost += 1;
            tell(Happening::Lost { pid, why });
        }
    }

    /// Hands over what was seen of a start.
    fn keep(
        &mut self,
        pid: u32,
        mut run: Running,
        ended_by: &str,
        sums: &Taken,
        tell: &mut dyn FnMut(Happening<'_>),
    ) {
        if run.executed.is_none() && self.programs.counters().ring_full > run.ring_full {
            let why = "its exec failed, or no record of it found room in the buffer".into();
            return self.lose(pid, self.mode, why, tell);
        }
        if run.executed.is_none() && self.mode == Mode::Full && ended_by == INTERRUPT {
            let why = "full mode ended when it began".into();
            return self.lose(pid, self.mode, why, tell);
        }
        if run.executed.is_none() && run.is_cut {
            return self.lose(pid, self.mode, Why::OfHolder.words().into(), tell);
        }
        if run.executed.is_none() {
            // The exec failed: nothing has started.
            return self.say_of_full(&lane::Said::Nothing { pid });
        }
        if run.unwanted {
            let is_of_full = || self.config.rules.one_in(&run.context.start(), Mode::Full) == 1;
            if self.mode == Mode::Count && self.lane.is_some() && is_of_full() {
                self.await_word_of(pid, Why::LeftToFull);
            }
            return self.say_of_full(&lane::Said::Unwanted { pid });
        }
        let rules = &self.config.rules;
        let is_instead = self.mode == Mode::Count && run.is_instead_of_full(rules);
        if is_instead || self.mode == Mode::Count && run.may_be_of_full(rules) {
            let has_it = self.lane.as_ref().is_some_and(|lane| lane.records(pid));
            if has_it || self.kept.is_known(pid, Mode::Count, Instant::now()) {
                return; // it was there after all
            }
        }
        if is_instead {
            run.hole("a rule wants it in full mode, and the process that records so was not there when it began: it has counts only".into());
        }
        self.untold.take(pid);
        if self.lane.is_some() {
            self.counted.note(pid, self.mode, Instant::now());
        }
        let owner = run.context.owner();
        let mut recording = run.close(pid, ended_by, sums, &self.programs.counters(), &self.config);
        self.config.redaction.apply(&mut recording);
        if let Err(why) = self.store.keep(pid, owner, recording) {
            tell(Happening::Lost { pid, why });
        }
    }

    /// What happened to what was handed over. While the disk is full, no start is recorded at all.
    fn hear_store(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        while let Some(outcome) = self.store.next() {
            match outcome {
                Outcome::Full => self.gate.close(Closed::Full),
                Outcome::Space => self.reopen(Closed::Full),
                _ => {}
            }
            tell(Happening::Stored(&outcome));
        }
    }

    /// Does what was asked for on the socket.
    fn hear_control(&mut self, tell: &mut dyn FnMut(Happening<'_>)) -> Result<(), ServiceError> {
        while let Some((order, reply)) = self.control.as_ref().and_then(Control::next) {
            let before = ceiling::own_cpu_time();
            let done = match order {
                Order::Status => Ok(()),
                Order::Reload => self.reload(tell)?,
                Order::Pause | Order::Resume => {
                    match order {
                        Order::Pause => self.gate.close(Closed::Paused),
                        _ => self.reopen(Closed::Paused),
                    }
                    tell(Happening::Paused(order == Order::Pause));
                    Ok(())
                }
            };
            // Who does not wait any more has no use for it.
            let _ = reply.send(done.map(|()| Box::new(self.status())));
            self.for_clients += ceiling::own_cpu_time().saturating_sub(before);
        }
        Ok(())
    }

    /// Bytes, read anew at most once in [`MEMORY_ANEW`].
    fn memory(&mut self) -> u64 {
        let recent = (self.memory).filter(|(read, _)| read.elapsed() < MEMORY_ANEW);
        let (_, bytes) = *self
            .memory
            .insert(recent.unwrap_or_else(|| (Instant::now(), ceiling::memory(&self.pids()))));
        bytes
    }

    /// As many as an answer should have.
    fn silent_files(&self) -> Vec<String> {
        const MOST: usize = 20;
        let files = self.nodes.silent().iter().take(MOST);
        files
            .map(|path| self.log_words(&path.to_string_lossy()))
            .collect()
    }

    /// How the service is.
    fn status(&mut self) -> Status {
        let cpu = ceiling::cpu_time(&self.pids());
        self.cpu.add(cpu);
        let of_lanes = self.of_lanes.losses();
        let losses = losses_of_host(&self.programs.counters()).into_iter();
        let losses = (OF_HOST.iter().zip(losses.zip(of_lanes)))
            .map(|((kind, _), (own, of_lanes))| ((*kind).to_owned(), own + of_lanes))
            .filter(|(_, count)| *count > 0)
            .collect::<BTreeMap<_, _>>();
        let store = self.store.state();
        let state = match (store.full, self.gate.is_closed_for(Closed::Paused)) {
            (true, _) => "full",
            (_, true) => "paused",
            _ => "recording",
        };
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            protocol: crate::control::VERSION,
            pid: std::process::id(),
            started_unix_ns: self.started_unix_ns,
            state: state.into(),
            holding: self.holding.is_ok(),
            not_holding_because: self.holding.clone().err(),
            running: self.running.len() + self.lane.as_ref().map_or(0, Lane::starts),
            recorded: store.kept,
            lost: store.lost + self.lost + self.gate.turned_away(),
            store: store.file,
            runs: store.runs,
            store_bytes: store.bytes,
            queued: store.queued,
            set_aside: store.set_aside,
            not_answering: self.nodes.silent().len(),
            not_answering_files: self.silent_files(),
            one_in: self.ceiling.one_in(),
            passed_over: self.passed_over(),
            losses: losses.values().sum(),
            losses_by_kind: losses,
            cpu_ns: self.cpu.total.as_nanos() as u64,
            memory_bytes: self.memory(),
            ..Status::default()
        }
    }

    /// Reads the configuration again; one with a fault changes nothing.
    fn reload(
        &mut self,
        tell: &mut dyn FnMut(Happening<'_>),
    ) -> Result<Result<(), String>, ServiceError> {
        tell(Happening::Reloading);
        let read = match &self.source {
            Some(path) => Config::read(path).map_err(|e| e.to_string()),
            None => Err("the service was started without a configuration file".into()),
        };
        let read = match read {
            Ok(config) => match config.differs_for_good(&self.config) {
                Some(setting) => Err(format!(
                    "`{setting}` is read at the start only, and has changed; to have it, type: systemctl restart nodeprofd"
                )),
                None => Ok(config),
            },
            Err(why) => Err(why),
        };
        let outcome = match read {
            Ok(config) => {
                // One that cannot hold execs may be able to by now.
                let suits =
                    config.suits_holder_of(&self.config) && (self.holding.is_ok() || !config.hold);
                self.config = config;
                if let Sink::Store(store) = &self.store {
                    store.limits(&self.config.store);
                }
                let begun = self.nodes.begin(&self.config, true, PATIENCE);
                self.nodes.wait(begun, &self.config, tell);
                if let Some(control) = &self.control {
                    let folder = &self.config.store.directory;
                    control.configure(&self.config.access, folder, self.means());
                }
                self.ceiling.limits(self.config.ceiling.clone());
                if self.guard.differs(self.config.hold) {
                    self.guard.renew(self.config.hold);
                }
                // While another holder, and another lane, begin.
                self.renew_lane();
                // The rules are the holder's. One that is replaced takes the probes of all who are recorded with it.
                let rules = self.config.rules.to_text();
                if !(suits && rules.is_some_and(|rules| self.gate.post(&rules))) {
                    self.replace_holder(false, tell)?;
                }
                self.count_from_here();
                Ok(())
            }
            Err(why) => Err(why),
        };
        tell(Happening::Reloaded(&outcome));
        Ok(outcome)
    }
}

/// What the kernel side has done.
fn events(counters: &Counters) -> u64 {
    counters.hits + counters.syscalls
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn what_had_found_no_room_is_known_as_it_was_a_moment_ago() {
        let mut room = Room::default();
        let begun = Instant::now();
        let mut before = |ms: u64, ring_full| {
            room.see(begun + Duration::from_millis(ms), || ring_full);
            room.before()
        };
        assert_eq!([before(0, 1), before(50, 2), before(150, 3)], [0, 0, 1]);
        assert_eq!([before(200, 4), before(1_000, 5)], [1, 3]);
    }

    #[test]
    fn of_records_that_come_too_early_none_is_kept_after_one_that_had_no_room() {
        let mut early = Early::new();
        early.add(&[1; 1000]);
        assert_eq!((early.records.len(), early.is_cut), (1004, false));
        early.add(&vec![2; MOST_EARLY_BYTES]);
        early.add(&[3; 10]);
        assert_eq!((early.records.len(), early.is_cut), (1004, true));
    }

    #[test]
    fn cpu_time_only_grows() {
        let mut cpu = CpuTime::default();
        let totals: Vec<u64> = [5, 9, 2, 4]
            .map(|seconds| {
                cpu.add(Duration::from_secs(seconds));
                cpu.total.as_secs()
            })
            .to_vec();
        // The third is that of a new holder.
        assert_eq!(totals, [5, 9, 9, 11]);
    }
}
