//! What was seen: observations of one or more runs, before anything is derived from them.
//!
//! All instants are CLOCK_MONOTONIC in nanoseconds, all durations nanoseconds.

use serde::{Deserialize, Serialize};

/// Name of a path that could not be read from the program's memory. Two of that name need not be one path.
pub const UNREADABLE: &[u8] = b"(unreadable)";

/// Loss: names, callbacks, binaries, frames and stacks in a store of many runs that cannot be read. In their place is [`UNREADABLE`].
pub const ROWS_UNREADABLE: &str = "rows_unreadable";
/// Why a trace ended ([`Run::ended_by`]): the event loop had started; of a start that the service recorded some time before.
pub const LOOP_START: &str = "loop-start";
/// Kind of [`Loss`]: events that came when a start had as many as are kept of one.
pub const EVENTS_BEYOND_LIMIT: &str = "events_beyond_limit";
/// Kind of [`Loss`]: calls that found no room in the tables of sums. Crossings and serializations are too low by it, nothing else is.
pub(crate) const SUMS_FULL: &str = "sums_full";
/// Kinds of [`Loss`] with which counts are too low.
const GAPS: [&str; 9] = [
    "records",
    "undecodable_records",
    SUMS_FULL,
    "sums_unread",
    "threads_not_followed",
    "beginnings_missed",
    "counts_unknown",
    "holder_ended",
    EVENTS_BEYOND_LIMIT,
];

/// An instant on CLOCK_MONOTONIC or a duration, in nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanoseconds(pub u64);

macro_rules! index {
    ($(#[$doc:meta] $name:ident),* $(,)?) => {$(
        #[$doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);
    )*};
}
index! {
    /// Index into [`Recording::runs`].
    RunId,
    /// Index into [`Recording::processes`].
    ProcessId,
    /// Index into [`Recording::binaries`].
    BinaryId,
    /// Index into [`Recording::callbacks`].
    CallbackId,
    /// Index into [`Recording::names`]: paths, serialization functions, span names.
    NameId,
    /// Index into [`Recording::frames`].
    FrameId,
    /// Index into [`Recording::stacks`]: the innermost frame of a stack.
    StackId,
    /// A thread as the kernel numbers it (tid in the pid namespace of nodeprof).
    ThreadId,
}

/// One traced execution of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Program and arguments; bytes that are not UTF-8 are kept.
    pub command: Vec<Vec<u8>>,
    /// Working directory.
    pub directory: Vec<u8>,
    /// Wall clock at the start, ns since the Unix epoch.
    pub started_unix_ns: u64,
    /// First exec of the command.
    pub started: Nanoseconds,
    /// Exit of the command, or the moment the trace ended before it.
    pub ended: Nanoseconds,
    /// Why the trace ended: `exit`, `loop-start`, `idle`, `duration`, `interrupt`; `import`: made of another tool's output.
    pub ended_by: String,
    /// `full`, `count`, or `bare`: run without probes, for its times and memory.
    pub mode: String,
    /// Exit status of the command; `None` if killed by a signal or still running.
    pub exit_status: Option<i32>,
    /// Signal that killed it.
    pub signal: Option<i32>,
    /// CPU samples asked for per second and CPU; `None` if none were.
    pub sample_hz: Option<u32>,
    /// Free labels (`k=v`), for comparisons.
    pub labels: Vec<(String, String)>,
}

/// An executable seen, with what was probed in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Binary {
    /// Path.
    pub path: Vec<u8>,
    /// GNU build-id, hexadecimal.
    pub build_id: Option<String>,
    /// For example `v20.20.2`; `None` if it is not node.
    pub node_version: Option<String>,
    /// V8's version.
    pub v8_version: Option<String>,
    /// For example `x86_64`.
    pub arch: String,
}

/// One process of the traced tree, from fork to exit; the last exec counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Of which run.
    pub run: RunId,
    /// Process id in the pid namespace of nodeprof.
    pub pid: u32,
    /// Who forked it, if that is in the tree.
    pub parent: Option<ProcessId>,
    /// Fork (or clone, vfork).
    pub forked: Nanoseconds,
    /// Every exec: instant, path, arguments (may be cut: then the last is `…`).
    pub execs: Vec<Exec>,
    /// `None` if it still ran when the trace ended.
    pub exited: Option<Nanoseconds>,
    /// Exit status, if it exited.
    pub exit_status: Option<i32>,
    /// Signal that killed it.
    pub signal: Option<i32>,
    /// CPU time in user mode.
    pub user: Option<Nanoseconds>,
    /// CPU time in the kernel.
    pub system: Option<Nanoseconds>,
    /// Peak resident set, bytes.
    pub max_rss_bytes: Option<u64>,
    /// Private dirty memory at loop start, bytes; the name is the column's, which held the unique set size once.
    pub uss_loop_start_bytes: Option<u64>,
    /// The same at loop exit or exit.
    pub uss_exit_bytes: Option<u64>,
    /// Node binary whose probes were attached, if any.
    pub node: Option<BinaryId>,
    /// Why the record of this process is not complete, in words; `None` if complete.
    pub incomplete: Option<String>,
}

/// One exec of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exec {
    /// When the new image began.
    pub at: Nanoseconds,
    /// What was executed.
    pub path: Vec<u8>,
    /// Its arguments.
    pub arguments: Vec<Vec<u8>>,
}

/// A C++ function called from JavaScript (or the pseudo-callback of C++ → JavaScript calls).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Callback {
    /// For example `fs`; `(add-on)` or `(unknown)` with the address as function name where it has no symbol.
    pub binding: String,
    /// For example `InternalModuleStat`.
    pub function: String,
}

/// Kind of a crossing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum CrossingKind {
    /// Ordinary call of a binding function.
    Slow = 0,
    /// V8 Fast API call from optimised code: counted; its time is not measured.
    Fast = 1,
    /// Property access: accessor or interceptor.
    Getter = 2,
    /// `new` of a C++ class.
    Construct = 3,
    /// C++ calls JavaScript.
    ToJs = 4,
}

/// One crossing. Nesting on a thread follows from `start` and `duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// Enter.
    pub start: Nanoseconds,
    /// Enter to exit; `None` where only the entry is seen (Fast API, interceptors) or its end was not seen.
    pub duration: Option<Nanoseconds>,
    /// `duration` less nested crossings.
    pub self_time: Option<Nanoseconds>,
    /// Which function.
    pub callback: CallbackId,
    /// Kind.
    pub kind: CrossingKind,
    /// Crossing (JS → C++) inside which it happened, directly.
    pub parent: Option<CallbackId>,
    /// It was entered and never returned (`process.reallyExit`, an abort, a kill): `duration` is up to the end of the process.
    pub unfinished: bool,
    /// Where it was called from; the innermost frame is the caller. `None`: stacks were not recorded, or there was none.
    pub stack: Option<StackId>,
}

/// Bit of [`CrossingSum::phase`]: what counts is a node that the process has executed in the place of one that had passed milestones.
pub const LATER_IMAGE: u8 = 0x80;

/// Crossings that were only summed (count mode, or beyond the limit of single events for a hot callback).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossingSum {
    /// In which process.
    pub process: ProcessId,
    /// Which function.
    pub callback: CallbackId,
    /// Kind.
    pub kind: CrossingKind,
    /// The phase in which they happened: number of milestones the process had passed (0 = before the first); from [`LATER_IMAGE`] on those of
    /// a node that it executed in the first one's place.
    pub phase: u8,
    /// Number of calls.
    pub calls: u64,
    /// Sum of durations; 0 where times are not measured.
    pub total: Nanoseconds,
    /// Sum of self times.
    pub self_time: Nanoseconds,
    /// How many of the calls have a measured time.
    pub timed: u64,
    /// Where they were called from. `None`: stacks were not recorded, or there was none.
    pub stack: Option<StackId>,
}

/// A milestone of a Node environment (the main one, or a worker's).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// `environment`, `node_start`, `v8_start`, `loop_start`, `loop_exit`, `bootstrap_complete`.
    pub name: String,
    /// The instant Node itself notes.
    pub at: Nanoseconds,
}

/// A step of the start with a beginning and an end, such as `snapshot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// Its name.
    pub name: NameId,
    /// Entry.
    pub start: Nanoseconds,
    /// `None` if only the entry is probed.
    pub duration: Option<Nanoseconds>,
}

/// Node asked its package.json reader for a file (answered from its cache or not).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// When.
    pub at: Nanoseconds,
    /// Path asked for.
    pub path: NameId,
    /// Where it was asked for. `None`: stacks were not recorded, or there was none.
    pub stack: Option<StackId>,
}

/// Kind of a file operation, by what it does (several syscalls each).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FileOperation {
    /// stat, lstat, fstat, newfstatat, statx.
    Stat = 0,
    /// open, openat, openat2, creat.
    Open = 1,
    /// read, pread64, readv, preadv.
    Read = 2,
    /// readlink, readlinkat.
    Readlink = 3,
    /// close.
    Close = 4,
    /// access, faccessat, faccessat2: apart from `Stat`, so that its count equals strace's.
    Access = 5,
}

impl FileOperation {
    /// As in the tables and the JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Open => "open",
            Self::Read => "read",
            Self::Readlink => "readlink",
            Self::Close => "close",
            Self::Access => "access",
        }
    }
}

/// One file operation as the kernel saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAccess {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// Syscall entry; its exit in count mode, which does not trace the entry.
    pub start: Nanoseconds,
    /// Entry to exit; 0 in count mode.
    pub duration: Nanoseconds,
    /// What.
    pub operation: FileOperation,
    /// x86-64 number of the syscall.
    pub syscall: u16,
    /// Absolute path where it could be told; for a descriptor of unknown origin `fd:N`.
    pub path: NameId,
    /// The syscall's result: bytes or a descriptor, negative errno on failure.
    pub result: i64,
    /// Where it was done. `None`: stacks were not recorded, or there was none.
    pub stack: Option<StackId>,
}

/// One value made or read by C++.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serialization {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// Entry.
    pub start: Nanoseconds,
    /// Entry to return; `None` where a return probe would be unsafe.
    pub duration: Option<Nanoseconds>,
    /// `duration` less nested serializations.
    pub self_time: Option<Nanoseconds>,
    /// C++ function, for example `String::NewFromUtf8`.
    pub function: NameId,
    /// Bytes (characters for strings whose byte length is not known); `None` if not known.
    pub bytes: Option<u64>,
    /// Crossing inside which it happened, directly; `None` outside of any.
    pub callback: Option<CallbackId>,
    /// It happened inside another serialization call (its time is contained in that one's).
    pub nested: bool,
    /// Where it was done. `None`: stacks were not recorded, or there was none.
    pub stack: Option<StackId>,
}

/// Serializations that were only summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SerializationSum {
    /// In which process.
    pub process: ProcessId,
    /// C++ function.
    pub function: NameId,
    /// Crossing inside which they happened.
    pub callback: Option<CallbackId>,
    /// As [`CrossingSum::phase`].
    pub phase: u8,
    /// Number of calls.
    pub calls: u64,
    /// Bytes, where known.
    pub bytes: u64,
    /// Time of calls that are not nested in another serialization.
    pub total: Nanoseconds,
    /// Self time.
    pub self_time: Nanoseconds,
    /// Where they were done. `None`: stacks were not recorded, or there was none.
    pub stack: Option<StackId>,
}

/// One compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compilation {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// Entry.
    pub start: Nanoseconds,
    /// Entry to return.
    pub duration: Option<Nanoseconds>,
    /// `duration` less nested compilations.
    pub self_time: Option<Nanoseconds>,
    /// Path, `node:…` for a built-in module.
    pub path: NameId,
    /// What was compiled.
    pub unit: CompilationUnit,
    /// V8 took the code from a code cache or the snapshot.
    pub cached: bool,
    /// Who asked for it. `None`: stacks were not recorded, or there was none.
    pub stack: Option<StackId>,
}

/// What was compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum CompilationUnit {
    /// One of Node's own modules.
    Builtin = 0,
    /// Function around a CommonJS module.
    Function = 1,
    /// ES module.
    Module = 2,
    /// Script.
    Script = 3,
}

/// What the code of a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FrameKind {
    /// A JavaScript function, of the application or of Node itself (`node:…`).
    #[serde(rename = "javascript")]
    JavaScript = 0,
    /// A builtin of V8 (`Array.prototype.map`, an inline cache, the interpreter).
    Builtin = 1,
    /// C++ of the node binary.
    Native = 2,
    /// A shared library, libc among them.
    Library = 3,
    /// A native add-on (`*.node`).
    AddOn = 4,
    /// The kernel.
    Kernel = 5,
    /// Machine code that belongs to none of them, for example another program's.
    Unknown = 6,
    /// A function of WebAssembly.
    #[serde(rename = "webassembly")]
    WebAssembly = 7,
}

/// Which of V8's compilers made the code of a JavaScript frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Tier {
    /// Ignition's bytecode.
    Interpreted = 0,
    /// Sparkplug.
    Baseline = 1,
    /// Maglev or TurboFan; which of them is not told apart.
    Optimized = 2,
}

/// A place in code that stacks pass through: a function, and where it stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What code it is.
    pub kind: FrameKind,
    /// Name of the function, demangled; empty for an anonymous one.
    pub function: NameId,
    /// Script as V8 names it (path, `file:///…`, `node:…`, `evalmachine.<anonymous>`), or path of the binary.
    pub file: Option<NameId>,
    /// Line where it stood (the call), from 1.
    pub line: Option<u32>,
    /// Column where it stood, from 1.
    pub column: Option<u32>,
    /// Line where the function begins, from 1.
    pub function_line: Option<u32>,
    /// Column where the function begins, from 1.
    pub function_column: Option<u32>,
    /// Where that place is in the source from which the script was made, by its source map. If `line` is not known, where
    /// the function begins in it. Of [evaluated](Frame::is_evaluated) code without a map: in its own text, by the name that it gives itself.
    pub original: Option<OriginalPosition>,
    /// Compiler of its code; JavaScript only.
    pub tier: Option<Tier>,
    /// The body of a script or module itself, not a function in it.
    pub top_level: bool,
    /// The frame was not on the machine's stack: its function was inlined into the next outer one, and V8's
    /// deoptimisation data tell so.
    pub inlined: bool,
    /// Optimised code whose inlining is not known: callers or callees that were inlined here are missing.
    pub inlining_possible: bool,
}

impl Frame {
    /// A frame of which no more is known.
    pub const fn new(kind: FrameKind, function: NameId, file: Option<NameId>) -> Self {
        Self {
            kind,
            function,
            file,
            line: None,
            column: None,
            function_line: None,
            function_column: None,
            original: None,
            tier: None,
            top_level: false,
            inlined: false,
            inlining_possible: false,
        }
    }

    /// Whether it is of code that was evaluated (`eval`, `new Function`) and names itself (`//# sourceURL=…`): its `file` is the script that evaluated it, and all that is
    /// known of places is the `original` one.
    pub const fn is_evaluated(&self) -> bool {
        self.original.is_some() && self.line.is_none() && self.function_line.is_none()
    }
}

/// A place in an original source (TypeScript, say), by a source map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OriginalPosition {
    /// Path or URL of the source.
    pub file: NameId,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// A stack is its innermost frame and the stack of the caller. A caller has a lower index than its callees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// The caller; `None` at the outermost frame.
    pub caller: Option<StackId>,
    /// The frame.
    pub frame: FrameId,
    /// Frames outside of this one are missing: the stack was deeper than what is walked, or its memory could not be read.
    pub truncated: bool,
}

/// A CPU sample: a thread was running at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// When.
    pub at: Nanoseconds,
    /// CPU time it stands for.
    pub weight: Nanoseconds,
    /// Kernel frames (if the sample fell there) on top of the user's. `None` if no frame could be told.
    pub stack: Option<StackId>,
}

/// Why a thread did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum WaitReason {
    /// In a system call on files, pipes or sockets.
    File = 0,
    /// A page fault that had to read from the disk.
    PageFault = 1,
    /// In wait4, waitid or while a vfork child has not executed yet.
    Child = 2,
    /// In futex: another thread. Also in a page fault while another thread changes the address space.
    Lock = 3,
    /// In epoll_wait, poll, select, pause: nothing to do, or a timer.
    Idle = 4,
    /// It could have run, and another thread had the CPU.
    Preempted = 5,
    /// Any other.
    Other = 6,
}

/// A span in which a thread did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// When it left the CPU.
    pub start: Nanoseconds,
    /// Until it ran again.
    pub duration: Nanoseconds,
    /// Of `duration`: from wake-up until it ran (another thread had the CPU).
    pub runnable: Nanoseconds,
    /// Why.
    pub reason: WaitReason,
    /// x86-64 number of the system call it was in.
    pub syscall: Option<u16>,
    /// Where.
    pub stack: Option<StackId>,
}

/// An import of one ES module that was linked to another one; or what Node makes a module of for its loader, or asks the dynamic linker
/// for, whoever requires it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// When.
    pub at: Nanoseconds,
    /// URL of the module with the import statement; empty: there is none, `loaded` was made or asked for.
    pub requirer: NameId,
    /// URL of the module that it got; path of an add-on that was asked for.
    pub loaded: NameId,
}

/// A span in which node called back for an asynchronous request, with all promises that this settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// In which process.
    pub process: ProcessId,
    /// On which thread.
    pub thread: ThreadId,
    /// When it began.
    pub start: Nanoseconds,
    /// Until it ended; `None`: with the process.
    pub duration: Option<Nanoseconds>,
    /// When the request was made, on the same thread.
    pub requested: Nanoseconds,
    /// Where it was made.
    pub stack: Option<StackId>,
}

/// A folder that is a package of its own, with what its package.json said when the trace ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Of which run.
    pub run: RunId,
    /// The folder, absolute, without a slash at its end.
    pub directory: NameId,
    /// Its name; `None` if its package.json has none or could not be read.
    pub name: Option<String>,
    /// Its version; likewise.
    pub version: Option<String>,
}

/// Whether a family was recorded, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyState {
    /// Of which run.
    pub run: RunId,
    /// `phases`, `crossings`, `package-json`, `files`, `serialization`, `compile`, `cpu`, `off-cpu`, `processes`.
    pub name: String,
    /// `on`, `off` (not asked for), `partial`, `failed`, `thinned` (its events were counted, and are not kept any more).
    pub state: String,
    /// Why, and what to type.
    pub reason: Option<String>,
}

/// Something that is missing from the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Of which run.
    pub run: RunId,
    /// Stable key, for example `records`, `paths_truncated`, `beginnings_missed`, `unmatched_exits`.
    pub kind: String,
    /// How many.
    pub count: u64,
}

impl Loss {
    /// Whether counts of the run are too low by it.
    pub fn is_gap(&self) -> bool {
        is_gap(&self.kind, self.count)
    }
}

/// Whether counts are too low by so many losses of a kind.
pub(crate) fn is_gap(kind: &str, count: u64) -> bool {
    count > 0 && GAPS.contains(&kind)
}

/// A probe and how often it was hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeHits {
    /// Of which run.
    pub run: RunId,
    /// Family it belongs to.
    pub family: String,
    /// Hits (entries and returns).
    pub hits: u64,
}

/// What tracing itself cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overhead {
    /// Of which run.
    pub run: RunId,
    /// Probe hits and tracepoint hits within the tree.
    pub probe_hits: u64,
    /// Calibrated on this machine just before or at some earlier run, ns.
    pub ns_per_hit: f64,
    /// Command start to first exec (load, attach), ns.
    pub setup_ns: u64,
    /// Attaching alone, ns.
    pub attach_ns: u64,
}

/// A figure of a run whose single events are not kept any more.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptFigure {
    /// Of which run.
    pub run: RunId,
    /// As in the JSON: `package_json.lookups`.
    pub name: String,
    /// Its value; a number, never NaN.
    pub value: f64,
}

/// Everything seen.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Recording {
    pub runs: Vec<Run>,
    pub binaries: Vec<Binary>,
    pub processes: Vec<Process>,
    pub callbacks: Vec<Callback>,
    /// Interned byte strings: paths and names. Index 0.. by [`NameId`].
    pub names: Vec<Vec<u8>>,
    pub milestones: Vec<Milestone>,
    pub spans: Vec<Span>,
    pub crossings: Vec<Crossing>,
    pub crossing_sums: Vec<CrossingSum>,
    pub lookups: Vec<Lookup>,
    pub files: Vec<FileAccess>,
    pub serializations: Vec<Serialization>,
    pub serialization_sums: Vec<SerializationSum>,
    pub compilations: Vec<Compilation>,
    /// Of the modules that were loaded.
    pub packages: Vec<Package>,
    pub frames: Vec<Frame>,
    pub stacks: Vec<Stack>,
    pub samples: Vec<Sample>,
    pub waits: Vec<Wait>,
    pub imports: Vec<Import>,
    pub continuations: Vec<Continuation>,
    pub families: Vec<FamilyState>,
    pub losses: Vec<Loss>,
    pub probe_hits: Vec<ProbeHits>,
    pub overheads: Vec<Overhead>,
    /// Of runs that were thinned (see [`Recording::thin`]).
    pub figures: Vec<KeptFigure>,
}

impl Recording {
    /// The bytes of a name; empty if the id is not of this recording.
    pub fn name(&self, id: NameId) -> &[u8] {
        self.names
            .get(id.0 as usize)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// The frames of a stack from the innermost to the outermost; nothing for an id that is not of this recording.
    pub fn frames_of(&self, stack: StackId) -> impl Iterator<Item = &Frame> {
        let node = |id: StackId| self.stacks.get(id.0 as usize);
        // A caller has a lower index, so this ends even if the recording was not checked.
        let caller = move |id: &StackId| node(*id)?.caller.filter(|caller| caller < id);
        std::iter::successors(Some(stack), caller)
            .filter_map(move |id| self.frames.get(node(id)?.frame.0 as usize))
    }

    /// Whether a stack is known to its outermost frame.
    pub fn is_whole(&self, stack: StackId) -> bool {
        let mut next = Some(stack);
        while let Some(id) = next {
            let Some(node) = self.stacks.get(id.0 as usize) else {
                return false;
            };
            if node.truncated {
                return false;
            }
            next = node.caller.filter(|caller| *caller < id);
        }
        true
    }
}
