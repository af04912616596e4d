//! What a trace is asked to do.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use nodeprof_probes::plan::Family;

use super::{Streams, Wanted};

/// When to stop tracing. The program itself always goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The command's own process ends.
    Exit,
    /// The main node process enters its event loop.
    LoopStart,
    /// Nothing was recorded or counted for a while after the loop started.
    Idle,
    /// This long after the exec.
    After(Duration),
}

/// Without any record or hit of a probe for this long after the start of the loop, a program counts as idle.
pub const IDLE: Duration = Duration::from_millis(200);

/// What is kept of each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every call by itself, with its time (hot callbacks are summed beyond a limit).
    Full,
    /// Counts only: no return probes on serialization, nothing written one by one.
    Count,
}

/// Settings of a trace.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// When to stop.
    pub until: Until,
    /// What to keep.
    pub mode: Mode,
    /// Families to record, by the names of [`FAMILIES`]; none: those of the mode (count mode leaves
    /// serialization and the samples out).
    pub families: Vec<String>,
    /// CPU samples per second and CPU; `None`: [`DEFAULT_HZ`] in full mode, none in count mode; `Some(0)`: none.
    pub sample_hz: Option<u32>,
    /// Also count the entries of every binding callback, as a check of the crossings.
    pub verify: bool,
    /// Folder of resolved plans; `None`: no cache.
    pub cache: Option<PathBuf>,
    /// Further node binaries that children may execute.
    pub nodes: Vec<PathBuf>,
    /// Tell positions in transpiled scripts by their source maps, too.
    pub source_maps: bool,
    /// Standard streams of the program.
    pub streams: Streams,
    /// Socket of a service that does for its users what takes privilege; `None`: nobody is asked.
    pub service: Option<PathBuf>,
}

/// All families, in the order of the report.
pub const FAMILIES: [&str; 9] = [
    "phases",
    "crossings",
    "package-json",
    "files",
    "serialization",
    "compile",
    "cpu",
    "off-cpu",
    "processes",
];

/// Serialization has more calls than all others together; the scheduler's families cost others something.
const NOT_IN_COUNT_MODE: [&str; 4] = ["serialization", "stacks", "cpu", "off-cpu"];

/// CPU samples per second where nothing else is asked for: a prime, so that nothing periodic keeps step with it.
pub const DEFAULT_HZ: u32 = 997;
/// More CPU samples per second would slow the program down by tens of percent.
pub const HIGHEST_HZ: u32 = 10_000;

impl TraceOptions {
    /// Everything, until the program ends.
    pub fn new(command: Vec<OsString>) -> TraceOptions {
        TraceOptions {
            command,
            until: Until::Exit,
            mode: Mode::Full,
            families: Vec::new(),
            sample_hz: None,
            verify: false,
            cache: nodeprof_probes::default_cache_folder(),
            nodes: Vec::new(),
            source_maps: true,
            streams: Streams::default(),
            service: Some(crate::control::DEFAULT_SOCKET.into()),
        }
    }

    /// For the kernel side.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            count: self.mode == Mode::Count,
            verify: self.verify,
            files: self.wants("files") || self.wants("package-json"),
            stacks: self.wants("stacks"),
            sample_hz: self.hz(),
            waits: self.wants("off-cpu"),
            mappings: ["cpu", "off-cpu", "stacks"].iter().any(|f| self.wants(f)),
            families: self.probe_families(),
        }
    }

    pub(super) fn wants(&self, family: &str) -> bool {
        match (family, self.sample_hz) {
            ("cpu", Some(hz)) => hz > 0,
            // Samples without a stack say nothing, nor waits; in count mode these have none but those of samples.
            ("stacks", _)
                if self.wants("cpu") || self.wants("off-cpu") && self.mode == Mode::Full =>
            {
                true
            }
            _ if self.families.is_empty() => {
                self.mode == Mode::Full || !NOT_IN_COUNT_MODE.contains(&family)
            }
            _ => self.families.iter().any(|f| f == family),
        }
    }

    /// CPU samples per second; 0: none.
    pub(super) fn hz(&self) -> u32 {
        match self.wants("cpu") {
            true => self.sample_hz.unwrap_or(DEFAULT_HZ).min(HIGHEST_HZ),
            false => 0,
        }
    }

    pub(super) fn probe_families(&self) -> Vec<Family> {
        let all = [
            ("phases", Family::Phases),
            ("crossings", Family::Crossings),
            ("package-json", Family::PackageJson),
            ("serialization", Family::Serialization),
            ("compile", Family::Compile),
            ("stacks", Family::Stacks),
        ];
        let mut wanted: Vec<Family> = all
            .iter()
            .filter(|(name, _)| self.wants(name))
            .map(|f| f.1)
            .collect();
        if self.verify {
            wanted.push(Family::Verify);
        }
        wanted
    }
}
