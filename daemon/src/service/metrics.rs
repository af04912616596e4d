//! What a monitoring system may know: sums over all starts, in the text format of [OpenMetrics](https://openmetrics.io), which Prometheus reads.
//!
//! The only label of a start is node's major version: however many programs, users and commits there are, there are as many series as
//! versions. Nothing of a command, a path or a user is in it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use nodeprof_profile::{
    Recording,
    breakdown::Timeline,
    recording::{CrossingKind, Loss, Process, ProcessId},
};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::{Registry, Unit},
};

use super::running::OF_HOST;
use crate::control::Status;

/// Names of all metrics begin with this.
const PREFIX: &str = "nodeprof";
/// Upper limits of the classes of startup time, seconds: from an empty program on a fast machine to a build tool on a busy one.
const STARTUP: [f64; 14] = [
    0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0,
];
/// Majors of Node up to this one have a label of their own.
const LAST_MAJOR: u32 = 99;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfNode {
    node: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStart {
    node: String,
    complete: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: String,
}

#[derive(Clone)]
struct Classes;

impl MetricConstructor<Histogram> for Classes {
    fn new_metric(&self) -> Histogram {
        Histogram::new(STARTUP)
    }
}

/// Sums since the service began.
pub(super) struct Metrics {
    registry: Registry,
    starts: Family<OfStart, Counter>,
    startup: Family<OfNode, Histogram, Classes>,
    crossings: Family<OfNode, Counter>,
    lookups: Family<OfNode, Counter>,
    /// Of starts themselves; the others are the host's.
    losses: Mutex<BTreeMap<String, u64>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        let metrics = Metrics {
            registry: Registry::default(),
            starts: Family::default(),
            startup: Family::new_with_constructor(Classes),
            crossings: Family::default(),
            lookups: Family::default(),
            losses: Mutex::default(),
        };
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register(
            "starts",
            "Starts of node that were recorded, by whether nothing is known to be missed of them",
            metrics.starts.clone(),
        );
        registry.register_with_unit(
            "startup",
            "Time from exec to the start of the event loop, or to the exit of a program that ends before; of complete starts",
            Unit::Seconds,
            metrics.startup.clone(),
        );
        registry.register(
            "crossings",
            "Calls from JavaScript to C++ in the recorded starts",
            metrics.crossings.clone(),
        );
        registry.register(
            "package_json_lookups",
            "Lookups of a package.json in the recorded starts",
            metrics.lookups.clone(),
        );
        Metrics {
            registry,
            ..metrics
        }
    }
}

/// `22` for `v22.23.3`.
fn major(recording: &Recording, process: &Process) -> String {
    let binary = process
        .node
        .and_then(|binary| recording.binaries.get(binary.0 as usize));
    let version = binary.and_then(|binary| binary.node_version.as_deref());
    let major = version.and_then(|version| version.trim_start_matches('v').split('.').next());
    match major.and_then(|major| major.parse::<u32>().ok()) {
        Some(major) if major <= LAST_MAJOR => major.to_string(),
        _ => "other".to_owned(),
    }
}

/// From the exec (where it was met too late: from when the process had its probes) to the start of the loop, or to an exit or to another exec before it;
/// seconds.
fn startup(recording: &Recording, process: &Process) -> Option<f64> {
    let timeline = Timeline::new(recording);
    let id = ProcessId(0);
    let begun = timeline
        .exec(id)
        .or(recording.runs.first().map(|run| run.started))?;
    let loop_start = timeline.milestone(id, "loop_start");
    let over = loop_start.or(timeline.followed(id)).or(process.exited)?;
    Some(over.0.checked_sub(begun.0)? as f64 / 1e9)
}

/// What counts of a start.
pub(super) struct Observed {
    node: String,
    complete: bool,
    crossings: u64,
    lookups: usize,
    losses: BTreeMap<String, u64>,
    startup: Option<f64>,
}

/// By kind. Without those of the kernel side, of which all starts of that time have each one.
fn own_losses(recording: &Recording) -> BTreeMap<String, u64> {
    let is_own = |loss: &&Loss| OF_HOST.iter().all(|(kind, _)| loss.kind != *kind);
    let own = recording.losses.iter().filter(is_own);
    let mut by_kind = BTreeMap::new();
    for loss in own.filter(|loss| loss.count > 0) {
        *by_kind.entry(loss.kind.clone()).or_default() += loss.count;
    }
    by_kind
}

impl Observed {
    /// Of a recording with a process.
    pub(super) fn of(recording: &Recording) -> Option<Observed> {
        let process = recording.processes.first()?;
        let (crossings, lookups) = counts(recording);
        Some(Observed {
            node: major(recording, process),
            complete: process.incomplete.is_none() && !recording.losses.iter().any(Loss::is_gap),
            crossings,
            lookups,
            losses: own_losses(recording),
            startup: startup(recording, process),
        })
    }
}

impl Metrics {
    /// A start was recorded.
    pub(super) fn observe(&self, start: Observed) {
        self.starts
            .get_or_create(&OfStart {
                node: start.node.clone(),
                complete: start.complete.to_string(),
            })
            .inc();
        let of = OfNode { node: start.node };
        self.crossings.get_or_create(&of).inc_by(start.crossings);
        self.lookups.get_or_create(&of).inc_by(start.lookups as u64);
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, count) in start.losses {
            // The kinds are the recorder's own, and few.
            *losses.entry(kind).or_default() += count;
        }
        if let (true, Some(seconds)) = (start.complete, start.startup) {
            self.startup.get_or_create(&of).observe(seconds);
        }
    }

    /// All of it, with how the service is now, as text.
    ///
    /// # Errors
    /// Of formatting, which does not happen where the text is in memory.
    pub(super) fn text(&self, status: &Status) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode_registry(&mut text, &self.registry)?;
        let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        let losses = losses.clone();
        text::encode_registry(&mut text, &now(status, losses))?;
        text::encode_eof(&mut text)?;
        Ok(text)
    }
}

/// How the service is now. `losses`: those of starts themselves, by kind.
fn now(status: &Status, losses: BTreeMap<String, u64>) -> Registry {
    let mut registry = Registry::with_prefix(PREFIX);
    // No `info`, which the older text format of the textfile collector does not know.
    let build = Family::<Vec<(&str, String)>, Gauge>::default();
    build
        .get_or_create(&vec![("version", status.version.clone())])
        .set(1);
    registry.register("build_info", "Version of nodeprofd", build);
    let cpu = Counter::<f64, std::sync::atomic::AtomicU64>::default();
    cpu.inc_by(status.cpu_ns as f64 / 1e9);
    registry.register_with_unit(
        "cpu",
        "CPU time of the service and its holder",
        Unit::Seconds,
        cpu,
    );
    let mut counter = |name: &str, help: &str, value: u64| {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    };
    counter(
        "starts_lost",
        "Starts of node that could not be recorded or kept",
        status.lost,
    );
    counter(
        "starts_passed_over",
        "Starts of node that were not recorded because of the ceiling",
        status.passed_over,
    );
    let of_kinds = Family::<OfKind, Counter>::default();
    // A rate needs a beginning.
    for (kind, _) in OF_HOST {
        drop(of_kinds.get_or_create(&OfKind { kind: kind.into() }));
    }
    for (kind, count) in status.losses_by_kind.clone().into_iter().chain(losses) {
        of_kinds.get_or_create(&OfKind { kind }).inc_by(count);
    }
    registry.register(
        "losses",
        "Losses by kind, each counted once however many starts were recorded then",
        of_kinds,
    );
    let mut gauge = |name: &str, help: &str, unit: Option<Unit>, value: u64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        match unit {
            Some(unit) => registry.register_with_unit(name, help, unit, gauge),
            None => registry.register(name, help, gauge),
        }
    };
    gauge(
        "resident_memory",
        "Memory of the service, its holder and the processes of full mode: proportional set sizes",
        Some(Unit::Bytes),
        status.memory_bytes,
    );
    gauge(
        "recording",
        "1: starts are recorded; 0: paused, or the disk is full",
        None,
        u64::from(status.state == "recording"),
    );
    gauge(
        "holding",
        "1: each start is held until its probes exist",
        None,
        u64::from(status.holding),
    );
    gauge(
        "ceiling_one_in",
        "One start in so many is recorded because of the ceiling; 0: none",
        None,
        u64::from(status.one_in),
    );
    gauge(
        "starts_running",
        "Starts that are recorded at this moment",
        None,
        status.running as u64,
    );
    gauge("store_runs", "Runs in the store", None, status.runs as u64);
    gauge(
        "store_size",
        "Size of the store",
        Some(Unit::Bytes),
        status.store_bytes,
    );
    gauge(
        "store_queued",
        "Starts that wait to be written",
        None,
        status.queued as u64,
    );
    registry
}

/// Calls to C++ and package.json lookups.
pub(super) fn counts(recording: &Recording) -> (u64, usize) {
    let sums = (recording.crossing_sums.iter()).filter(|sum| sum.kind != CrossingKind::ToJs);
    let single = (recording.crossings.iter()).filter(|call| call.kind != CrossingKind::ToJs);
    let calls = sums.map(|sum| sum.calls).sum::<u64>() + single.count() as u64;
    (calls, recording.lookups.len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use nodeprof_profile::recording::RunId;

    use super::*;

    #[test]
    fn a_recording_is_in_every_sum() {
        let metrics = Metrics::default();
        let recording = Recording::synthetic(2_000);
        let (crossings, lookups) = counts(&recording);
        metrics.observe(Observed::of(&recording).unwrap());
        let mut late = recording.clone();
        late.processes[0].incomplete = Some("late".into());
        metrics.observe(Observed::of(&late).unwrap());
        let text = metrics
            .text(&Status {
                state: "recording".into(),
                lost: 3,
                cpu_ns: 1_500_000_000,
                memory_bytes: 4096,
                ..Status::default()
            })
            .unwrap();
        let node = major(&recording, &recording.processes[0]);
        let has =
            |line: &str| assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
        has(&format!(
            "nodeprof_starts_total{{node=\"{node}\",complete=\"true\"}} 1"
        ));
        has(&format!(
            "nodeprof_starts_total{{node=\"{node}\",complete=\"false\"}} 1"
        ));
        has(&format!(
            "nodeprof_crossings_total{{node=\"{node}\"}} {}",
            2 * crossings
        ));
        has(&format!(
            "nodeprof_package_json_lookups_total{{node=\"{node}\"}} {}",
            2 * lookups
        ));
        has(&format!(
            "nodeprof_startup_seconds_count{{node=\"{node}\"}} 1"
        ));
        has("nodeprof_starts_lost_total 3");
        has("nodeprof_cpu_seconds_total 1.5");
        has("nodeprof_resident_memory_bytes 4096");
        has("nodeprof_recording 1");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_record_that_was_lost_counts_once_for_all_starts_of_its_time() {
        let metrics = Metrics::default();
        let mut recording = Recording::synthetic(100);
        let loss = |kind: &str, count| Loss {
            run: RunId(0),
            kind: kind.into(),
            count,
        };
        // An exception is no gap.
        recording.losses = vec![loss("abandoned_frames", 7), loss("records", 0)];
        metrics.observe(Observed::of(&recording).unwrap());
        recording.losses = vec![loss("records", 3), loss("events_beyond_limit", 5)];
        for _ in 0..2 {
            metrics.observe(Observed::of(&recording).unwrap());
        }
        let by_kind = [("records", 3), ("stacks", 4)];
        let status = Status {
            losses_by_kind: by_kind.map(|(kind, n)| (kind.to_owned(), n)).into(),
            ..Status::default()
        };
        let text = metrics.text(&status).unwrap();
        let node = major(&recording, &recording.processes[0]);
        for line in [
            "nodeprof_losses_total{kind=\"records\"} 3".to_owned(),
            "nodeprof_losses_total{kind=\"stacks\"} 4".to_owned(),
            "nodeprof_losses_total{kind=\"sums_full\"} 0".to_owned(),
            "nodeprof_losses_total{kind=\"events_beyond_limit\"} 10".to_owned(),
            format!("nodeprof_starts_total{{node=\"{node}\",complete=\"true\"}} 1"),
            format!("nodeprof_starts_total{{node=\"{node}\",complete=\"false\"}} 2"),
            format!("nodeprof_startup_seconds_count{{node=\"{node}\"}} 1"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn a_start_that_was_met_after_its_exec_has_a_time_as_well() {
        let mut recording = Recording::synthetic(100);
        let process = &mut recording.processes[0];
        process.execs.clear();
        process.exited = Some(nodeprof_profile::recording::Nanoseconds(5_000_000_000));
        recording.runs[0].started = nodeprof_profile::recording::Nanoseconds(2_000_000_000);
        recording.milestones.clear();
        assert_eq!(startup(&recording, &recording.processes[0]), Some(3.0));
        recording.processes[0].exited = None;
        assert_eq!(startup(&recording, &recording.processes[0]), None);
    }

    #[test]
    fn versions_are_few_whatever_a_binary_says() {
        let mut recording = Recording::synthetic(100);
        let mut majors = std::collections::BTreeSet::new();
        for version in ["v22.1.0", "v22.9.9", "v4000.0.0", "x", "", "v-1.2", "\"}\n"] {
            recording.binaries[0].node_version = Some(version.into());
            let process = recording.processes[0].clone();
            majors.insert(major(&recording, &process));
        }
        assert_eq!(Vec::from_iter(majors), ["22", "other"]);
    }
}
