//! The figures of a profile, in the shape of `nodeprof report --format json`, which has null for what was not recorded ([`Document`]).
//!
//! `docs/json.md` documents every field. Instants within a run are nanoseconds since the exec of the main node
//! process's image unless said otherwise, durations are nanoseconds, sizes bytes. Nothing is rounded here:
//! percentages and units belong to views.
//!
//! Fields are only added within one [`SCHEMA`]; a field that changes its meaning or goes away raises it.

mod document;
mod modules;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::recording::{CompilationUnit, CrossingKind, FileOperation};

pub use document::{Document, row};
pub use modules::{
    Attribution, BundledPackageProfile, CpuByKind, ModuleProfile, OutsideProfile, PackageProfile,
    SamplesProfile, SourceProfile,
};

/// Version of the JSON.
pub const SCHEMA: u32 = 2;

/// Figures derived from a recording: one [`RunProfile`] per run, in the recording's order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`SCHEMA`].
    pub schema: u32,
    /// One per run.
    pub runs: Vec<RunProfile>,
}

/// Figures of one traced execution, over its whole process tree unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunProfile {
    /// Program and arguments; bytes that are not UTF-8 are shown as U+FFFD.
    pub command: Vec<String>,
    /// Working directory.
    pub directory: String,
    /// Free labels; the last wins where a recording repeats one.
    pub labels: BTreeMap<String, String>,
    /// Wall clock at the start, ns since the Unix epoch.
    pub started_unix_ns: u64,
    /// Why the trace ended: `exit`, `loop-start`, `idle`, `duration`, `interrupt`.
    pub ended_by: String,
    /// `full` or `count`.
    pub mode: String,
    /// Exit status of the command; `None` if killed by a signal or still running.
    pub exit_status: Option<i32>,
    /// Signal that killed it.
    pub signal: Option<i32>,
    /// The main node process's binary; `None` if no process of the tree ran node.
    pub node: Option<NodeBinary>,
    /// Of the main node process's main thread.
    pub milestones: Milestones,
    /// From the start of the run to that exec: 0 if the command itself is node.
    pub start_to_exec_ns: Option<u64>,
    /// Spans between milestones, in order of time.
    pub phases: Vec<Phase>,
    /// Wall and CPU time, memory.
    pub time: Time,
    /// Calls over the JavaScript–C++ border.
    pub crossings: Crossings,
    /// package.json: asked for, opened, read.
    pub package_json: PackageJson,
    /// File operations as the kernel saw them.
    pub files: Files,
    /// V8 values made of native data, or the reverse.
    pub serialization: Serializations,
    /// Compilations.
    pub compile: Compile,
    /// Modules by process, thread and order of loading. Empty if the recording holds no stacks.
    #[serde(default)]
    pub modules: Vec<ModuleProfile>,
    /// Packages, longest `self_ns` first.
    #[serde(default)]
    pub packages: Vec<PackageProfile>,
    /// Packages in bundles: what took most CPU time first, then what called C++ most often.
    #[serde(default)]
    pub bundled_packages: Vec<BundledPackageProfile>,
    /// Files in bundles, in the same order.
    #[serde(default)]
    pub sources: Vec<SourceProfile>,
    /// What no module is to blame for.
    #[serde(default)]
    pub outside: Vec<OutsideProfile>,
    /// How much is known to be somebody's.
    #[serde(default)]
    pub attribution: Attribution,
    /// CPU samples.
    #[serde(default)]
    pub samples: SamplesProfile,
    /// Every process of the tree, in order of appearance.
    pub processes: Vec<ProcessProfile>,
    /// What was recorded and what was not.
    pub families: Vec<Family>,
    /// What is missing, by kind; `records` is always there.
    pub losses: BTreeMap<String, u64>,
    /// What tracing itself cost.
    pub overhead: OverheadProfile,
}

/// A node executable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeBinary {
    /// Path.
    pub path: String,
    /// The path's bytes in hexadecimal, only if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// For example `v20.20.2`.
    pub version: Option<String>,
    /// V8's version.
    pub v8: Option<String>,
    /// GNU build-id, hexadecimal.
    pub build_id: Option<String>,
    /// For example `x86_64`.
    pub arch: String,
}

/// Instants of the main node process, ns since its exec; `None` where not reached or not seen.
///
/// Without a record of the exec (`exec` is `None`), they count from the first that is known of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Milestones {
    /// 0 by definition.
    pub exec: Option<i64>,
    /// Node's environment was created.
    pub environment: Option<i64>,
    /// `node::Start`.
    pub node_start: Option<i64>,
    /// V8 was initialised.
    pub v8_start: Option<i64>,
    /// Node's own bootstrap is done, the main script comes next.
    pub bootstrap_complete: Option<i64>,
    /// The event loop begins.
    pub loop_start: Option<i64>,
    /// The event loop ended.
    pub loop_exit: Option<i64>,
    /// The process exited.
    pub exit: Option<i64>,
}

/// A span between two milestones of the main node process, and what that process (all its threads) did in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// As [`crate::breakdown::Timeline`] names it.
    pub name: String,
    /// ns since exec; negative only for `before_exec`.
    pub start_ns: i64,
    /// ns since exec.
    pub end_ns: i64,
    /// JavaScript → C++ calls begun in it.
    pub crossings: u64,
    /// Self time of the measured ones.
    pub crossings_self_ns: u64,
    /// package.json lookups.
    pub lookups: u64,
    /// stat-type system calls.
    pub stats: u64,
    /// open-type system calls.
    pub opens: u64,
    /// read-type system calls.
    pub reads: u64,
    /// Time within all file operations, all threads.
    pub files_ns: u64,
    /// Serializations.
    pub serializations: u64,
    /// Time in outermost serializations.
    pub serialization_ns: u64,
    /// Compilations.
    pub compilations: u64,
    /// Time in outermost compilations.
    pub compile_ns: u64,
}

/// Wall and CPU time, memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// First exec of the command to its end, or to the end of the trace.
    pub wall_ns: u64,
    /// CPU time in user mode, summed over the tree; `None` if known of no process.
    pub user_ns: Option<u64>,
    /// CPU time in the kernel, summed over the tree.
    pub system_ns: Option<u64>,
    /// Largest peak resident set of one process.
    pub max_rss_bytes: Option<u64>,
    /// Private dirty memory of the main node process: at exit if known, else at loop start.
    pub private_dirty_bytes: Option<u64>,
    /// At loop start.
    pub private_dirty_loop_start_bytes: Option<u64>,
    /// At loop exit or exit.
    pub private_dirty_exit_bytes: Option<u64>,
}

/// Calls over the border.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crossings {
    /// JavaScript → C++ calls: slow + fast + getter + construct.
    pub total: u64,
    /// Calls by kind.
    pub by_kind: CallsByKind,
    /// Calls with a measured time.
    pub timed_calls: u64,
    /// Calls that were entered and never returned.
    pub unfinished: u64,
    /// Sum of self times of JavaScript → C++ calls: time in C++ on behalf of JavaScript.
    pub self_ns: u64,
    /// JavaScript → C++ by callback and kind; longest `total_ns` first, then most calls. Their calls sum to `total`.
    pub callbacks: Vec<CallbackProfile>,
    /// C++ → JavaScript calls, in the same order. Their calls sum to `by_kind.to_js`.
    pub to_js: Vec<CallbackProfile>,
}

/// Calls by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallsByKind {
    /// Ordinary calls.
    pub slow: u64,
    /// V8 Fast API calls.
    pub fast: u64,
    /// Property accesses.
    pub getter: u64,
    /// `new` of C++ classes.
    pub construct: u64,
    /// C++ calls JavaScript.
    pub to_js: u64,
}

/// One callback and kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackProfile {
    /// For example `fs`.
    pub binding: String,
    /// For example `InternalModuleStat`.
    pub function: String,
    /// Kind.
    pub kind: CrossingKind,
    /// Calls.
    pub calls: u64,
    /// Calls with a measured time.
    pub timed_calls: u64,
    /// Calls that never returned; they are not timed.
    pub unfinished: u64,
    /// Sum of enter to exit; recursive calls count at each level. `None` where no call was timed.
    pub total_ns: Option<u64>,
    /// `total_ns` less nested crossings.
    pub self_ns: Option<u64>,
    /// `total_ns` less the estimated cost of the probes hit inside; `None` where it cannot be told (summed calls).
    pub total_corrected_ns: Option<u64>,
}

/// package.json: what Node asked its reader for, and what the kernel saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageJson {
    /// Asked of Node's reader, answered from its cache or not.
    pub lookups: u64,
    /// Lookups of one path by one process beyond the first.
    pub repeated_lookups: u64,
    /// open-type system calls, failed ones included.
    pub opens: u64,
    /// Those that failed.
    pub opens_failed: u64,
    /// open-type system calls of one path by one process beyond the first.
    pub repeated_opens: u64,
    /// read-type system calls.
    pub reads: u64,
    /// stat-type system calls, failed ones included.
    pub stats: u64,
    /// Those that failed.
    pub stats_failed: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Time within all system calls on these paths.
    pub total_ns: u64,
    /// By path; most lookups + opens + stats first, then by path.
    pub files: Vec<PackageJsonFile>,
}

/// One package.json path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageJsonFile {
    /// Path.
    pub path: String,
    /// The path's bytes in hexadecimal, only if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Asked of Node's reader.
    pub lookups: u64,
    /// open-type system calls, failed ones included.
    pub opens: u64,
    /// Those that failed.
    pub opens_failed: u64,
    /// read-type system calls.
    pub reads: u64,
    /// stat-type system calls, failed ones included.
    pub stats: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Time within all system calls on this path.
    pub total_ns: u64,
    /// Whether the file is there: a system call on it succeeded. `None` if the kernel was not asked.
    pub found: Option<bool>,
}

/// File operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// stat, lstat, fstat, newfstatat, statx.
    pub stat: FileOperationProfile,
    /// open, openat, openat2, creat.
    pub open: FileOperationProfile,
    /// read, pread64, readv, preadv.
    pub read: FileOperationProfile,
    /// readlink, readlinkat.
    pub readlink: FileOperationProfile,
    /// access, faccessat, faccessat2.
    pub access: FileOperationProfile,
    /// close.
    pub close: FileOperationProfile,
    /// Bytes read.
    pub bytes_read: u64,
    /// Different paths.
    pub paths: u64,
    /// Paths and operations with the longest sum of times, at most [`TOP_PATHS`].
    pub slowest: Vec<PathProfile>,
    /// Paths and operations with the most calls, at most [`TOP_PATHS`], only those called more than once.
    pub most_repeated: Vec<PathProfile>,
}

/// Length of the lists `slowest` and `most_repeated`.
pub const TOP_PATHS: usize = 20;

/// One operation over all paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOperationProfile {
    /// System calls, failed ones included.
    pub calls: u64,
    /// Those with a negative result.
    pub failed: u64,
    /// Sum of entry to exit.
    pub total_ns: u64,
}

/// One operation on one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathProfile {
    /// Path, or `fd:N`.
    pub path: String,
    /// The path's bytes in hexadecimal, only if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Operation.
    pub operation: FileOperation,
    /// System calls, failed ones included.
    pub calls: u64,
    /// Those with a negative result.
    pub failed: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Sum of entry to exit.
    pub total_ns: u64,
}

/// Serializations. `total_ns` counts calls that are not nested in another serialization: it sums without overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serializations {
    /// Calls, nested ones included.
    pub calls: u64,
    /// Bytes, where known, nested calls included.
    pub bytes: u64,
    /// Time in outermost calls.
    pub total_ns: u64,
    /// By C++ function; longest `total_ns` first.
    pub functions: Vec<SerializationFunction>,
    /// By the callback inside which it happened; longest `total_ns` first.
    pub callbacks: Vec<SerializationCallback>,
}

/// Serializations of one C++ function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SerializationFunction {
    /// For example `String::NewFromUtf8`.
    pub function: String,
    /// Calls, nested ones included.
    pub calls: u64,
    /// Bytes, where known.
    pub bytes: u64,
    /// Time in outermost calls: the functions' sum is the whole.
    pub total_ns: u64,
    /// Time in this function less nested serializations, in nested calls too.
    pub self_ns: u64,
}

/// Serializations inside one callback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SerializationCallback {
    /// `None` outside of any crossing.
    pub binding: Option<String>,
    /// `None` outside of any crossing.
    pub function: Option<String>,
    /// Calls, nested ones included.
    pub calls: u64,
    /// Bytes, where known.
    pub bytes: u64,
    /// Time in outermost calls.
    pub total_ns: u64,
    /// Time less nested serializations, in nested calls too.
    pub self_ns: u64,
}

/// Compilations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compile {
    /// Compilations.
    pub compilations: u64,
    /// Those for which V8 took the code from a code cache or the snapshot.
    pub cached: u64,
    /// Time in outermost compilations.
    pub total_ns: u64,
    /// By path, unit and cached; longest `total_ns` first.
    pub scripts: Vec<Script>,
}

/// Compilations of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Path; `node:…` for a built-in module.
    pub path: String,
    /// The path's bytes in hexadecimal, only if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// What was compiled.
    pub unit: CompilationUnit,
    /// V8 took the code from a code cache or the snapshot.
    pub cached: bool,
    /// How often.
    pub compilations: u64,
    /// Sum of entry to return; `None` where no return was seen.
    pub total_ns: Option<u64>,
    /// `total_ns` less nested compilations.
    pub self_ns: Option<u64>,
}

/// One process of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessProfile {
    /// Process id.
    pub pid: u32,
    /// Who forked it, if that is in the tree.
    pub parent_pid: Option<u32>,
    /// The process that `node`, `milestones` and `phases` speak of.
    pub main: bool,
    /// Arguments of its last exec; empty if it never called exec (it runs its parent's image).
    pub command: Vec<String>,
    /// Path of its last exec.
    pub path: Option<String>,
    /// The path's bytes in hexadecimal, only if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Version of its node, if it is one.
    pub node: Option<String>,
    /// `None` if killed by a signal or still running.
    pub exit_status: Option<i32>,
    /// Signal that killed it.
    pub signal: Option<i32>,
    /// CPU time in user mode.
    pub user_ns: Option<u64>,
    /// CPU time in the kernel.
    pub system_ns: Option<u64>,
    /// Peak resident set.
    pub max_rss_bytes: Option<u64>,
    /// Private dirty memory: at exit if known, else at loop start.
    pub private_dirty_bytes: Option<u64>,
    /// Fork, ns since the run's start (negative for the command itself: it is forked before its first exec).
    pub start_ns: i64,
    /// Exit, ns since the run's start; `None` if it still ran when the trace ended.
    pub end_ns: Option<i64>,
    /// JavaScript → C++ calls.
    pub crossings: u64,
    /// package.json lookups.
    pub lookups: u64,
    /// File operations.
    pub file_operations: u64,
    /// Why the record of this process is not complete.
    pub incomplete: Option<String>,
}

/// Whether a family was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// For example `crossings`.
    pub name: String,
    /// `on`, `off`, `partial`, `failed`.
    pub state: String,
    /// Why, and what to type.
    pub reason: Option<String>,
}

/// What tracing itself cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverheadProfile {
    /// Probe and tracepoint hits within the tree.
    pub probe_hits: u64,
    /// Calibrated cost of one.
    pub ns_per_hit: f64,
    /// `probe_hits` × `ns_per_hit`, over all threads.
    pub estimated_ns: u64,
    /// Command start to first exec.
    pub setup_ns: u64,
    /// Attaching alone.
    pub attach_ns: u64,
    /// Hits by family.
    pub by_family: BTreeMap<String, u64>,
}
