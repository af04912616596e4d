//! Old runs without their single events: counts stay, and what was seen one by one goes.
//!
//! Crossings and serializations become sums by callback and phase, as count mode has them. Of the other events the figures of the
//! run are kept by name ([`KeptFigure`]), and put back where the profile is made.

use std::collections::BTreeMap;

use crate::Profile;
use crate::breakdown::{self, Timeline};
use crate::diff::figures::scalars;
use crate::recording::{CrossingSum, FamilyState, KeptFigure, Recording, RunId, SerializationSum};
use crate::relocate::{Places, Relocate as _, Table};
use crate::report::{CpuByKind, FileOperationProfile, RunProfile};

/// State of a family whose events were counted, and are not kept any more.
pub const THINNED: &str = "thinned";

/// Families whose single events go.
const THINNED_FAMILIES: [&str; 5] = ["package-json", "files", "compile", "cpu", "off-cpu"];

impl Recording {
    /// Whether single events of a run are not kept any more.
    pub fn is_thinned(&self, run: RunId) -> bool {
        let families = self.families.iter().filter(|family| family.run == run);
        families.into_iter().any(|family| family.state == THINNED)
    }

    /// The recording without its single events: what is left are sums, milestones, spans, processes and the figures of each run.
    /// `reason` says why, in words, for those who look at it.
    pub fn thin(mut self, reason: &str) -> Recording {
        let timeline = Timeline::new(&self);
        let profile = Profile::from_recording(&self);
        for (index, run) in profile.runs.iter().enumerate() {
            let id = RunId(index as u32);
            if self.is_thinned(id) {
                continue;
            }
            scalars(run, &mut |name, value| {
                // Of what the CPU did most is nothing.
                let is_nothing = value == 0.0 && name.starts_with("samples.by_kind.");
                if value.is_finite() && !is_nothing {
                    self.figures.push(KeptFigure {
                        run: id,
                        name: name.to_owned(),
                        value,
                    });
                }
            });
        }
        self.crossing_sums = breakdown::crossings(&self, &timeline)
            .into_iter()
            .map(|cell| CrossingSum {
                process: cell.process,
                callback: cell.callback,
                kind: cell.kind,
                phase: timeline.passed(cell.process, cell.phase),
                calls: cell.calls,
                total: cell.total,
                self_time: cell.self_time,
                timed: cell.timed,
                stack: None,
            })
            .collect();
        self.serialization_sums = breakdown::serializations(&self, &timeline)
            .into_iter()
            .map(|cell| SerializationSum {
                process: cell.process,
                function: cell.function,
                callback: cell.callback,
                phase: timeline.passed(cell.process, cell.phase),
                calls: cell.calls,
                bytes: cell.bytes,
                total: cell.total,
                self_time: cell.self_time,
                stack: None,
            })
            .collect();
        for family in &mut self.families {
            let FamilyState { name, state, .. } = family;
            if THINNED_FAMILIES.contains(&name.as_str())
                && ["on", "partial"].contains(&state.as_str())
            {
                family.state = THINNED.into();
                family.reason = Some(reason.to_owned());
            }
        }
        let mut thin = Recording {
            crossings: Vec::new(),
            lookups: Vec::new(),
            files: Vec::new(),
            serializations: Vec::new(),
            compilations: Vec::new(),
            packages: Vec::new(),
            frames: Vec::new(),
            stacks: Vec::new(),
            samples: Vec::new(),
            waits: Vec::new(),
            imports: Vec::new(),
            continuations: Vec::new(),
            ..self
        };
        thin.forget_unused();
        thin
    }

    /// Leaves out names and callbacks that nothing refers to.
    fn forget_unused(&mut self) {
        let mut used = Used {
            names: vec![None; self.names.len()],
            callbacks: vec![None; self.callbacks.len()],
            order: [Vec::new(), Vec::new()],
        };
        self.relocate(&mut used);
        let [names, callbacks] = used.order;
        self.names = (names.into_iter())
            .map(|at| std::mem::take(&mut self.names[at]))
            .collect();
        self.callbacks = (callbacks.into_iter())
            .map(|at| std::mem::take(&mut self.callbacks[at]))
            .collect();
    }
}

/// New places for what is used, in order of use.
struct Used {
    names: Vec<Option<u32>>,
    callbacks: Vec<Option<u32>>,
    order: [Vec<usize>; 2],
}

impl Places for Used {
    fn place(&mut self, table: Table, id: u32) -> u32 {
        let (places, order) = match table {
            Table::Name => (&mut self.names, &mut self.order[0]),
            Table::Callback => (&mut self.callbacks, &mut self.order[1]),
            _ => return id,
        };
        let Some(place) = places.get_mut(id as usize) else {
            return id;
        };
        *place.get_or_insert_with(|| {
            order.push(id as usize);
            order.len() as u32 - 1
        })
    }
}

/// Puts kept figures into the profile of a run that was thinned.
pub(crate) fn restore<'a>(run: &mut RunProfile, figures: impl Iterator<Item = &'a KeptFigure>) {
    let kept: BTreeMap<&str, f64> = figures
        .map(|figure| (figure.name.as_str(), figure.value))
        .collect();
    if kept.is_empty() {
        return;
    }
    let put = |name: &str, field: &mut u64| {
        if let Some(value) = kept.get(name) {
            *field = *value as u64;
        }
    };
    macro_rules! put {
        ($of:expr, $prefix:literal: $($field:ident)*) => {$(
            put(concat!($prefix, ".", stringify!($field)), &mut $of.$field);
        )*};
    }
    put!(run.crossings, "crossings": unfinished);
    put!(run.package_json, "package_json": lookups repeated_lookups opens opens_failed repeated_opens reads stats
        stats_failed bytes total_ns);
    put!(run.files, "files": bytes_read paths);
    put!(run.serialization, "serialization": calls bytes total_ns);
    put!(run.compile, "compile": compilations cached total_ns);
    put!(run.samples, "samples": count cpu_ns);
    put!(run.samples.by_kind, "samples.by_kind": javascript_ns node_javascript_ns builtins_ns webassembly_ns
        inline_cache_misses_ns eager_compilation_ns lazy_compilation_ns baseline_compilation_ns optimizing_compilation_ns
        webassembly_compilation_ns deserialization_ns garbage_collection_ns native_ns kernel_ns tracing_ns unknown_ns);
    // Of a run that was thinned before there were kinds.
    if run.samples.by_kind == CpuByKind::default() {
        run.samples.by_kind.unknown_ns = run.samples.cpu_ns;
    }
    let operation = |name: &str, of: &mut FileOperationProfile| {
        put(&format!("files.{name}.calls"), &mut of.calls);
        put(&format!("files.{name}.failed"), &mut of.failed);
        put(&format!("files.{name}.total_ns"), &mut of.total_ns);
    };
    let files = &mut run.files;
    operation("stat", &mut files.stat);
    operation("open", &mut files.open);
    operation("read", &mut files.read);
    operation("readlink", &mut files.readlink);
    operation("access", &mut files.access);
    operation("close", &mut files.close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_run_has_the_counts_that_it_had() {
        let mut whole = Recording::synthetic(5_000);
        whole.families.push(FamilyState {
            run: RunId(0),
            name: "files".into(),
            state: "on".into(),
            reason: None,
        });
        let thin = whole.clone().thin("for a test");
        assert!(thin.is_thinned(RunId(0)) && !whole.is_thinned(RunId(0)));
        assert!(thin.files.is_empty() && thin.crossings.is_empty() && thin.stacks.is_empty());
        assert!(thin.names.len() < whole.names.len());
        assert_eq!(thin.check_references(), Ok(()));
        let figures = |recording: &Recording| {
            let mut all: BTreeMap<String, f64> = BTreeMap::new();
            scalars(
                &Profile::from_recording(recording).runs[0],
                &mut |name, value| {
                    // Modules are told from stacks, the cost of tracing from its events: neither is there any more.
                    // Nor are the stacks of samples.
                    let derived = [
                        "modules.",
                        "packages.",
                        "attribution.",
                        "overhead.",
                        "samples.complete_stacks_percent",
                        "samples.inlining_possible_percent",
                    ];
                    if value.is_finite() && !derived.iter().any(|of| name.starts_with(of)) {
                        all.insert(name.to_owned(), value);
                    }
                },
            );
            all
        };
        assert_eq!(figures(&thin), figures(&whole));
        // Once is as good as twice.
        assert_eq!(thin.clone().thin("again"), thin);
        let (a, b) = (
            Profile::from_recording(&thin),
            Profile::from_recording(&whole),
        );
        let calls = |profile: &Profile| {
            let callbacks = profile.runs[0].crossings.callbacks.iter();
            let mut all: Vec<_> = callbacks
                .map(|c| {
                    (
                        c.binding.clone(),
                        c.function.clone(),
                        c.kind,
                        c.calls,
                        c.total_ns,
                    )
                })
                .collect();
            all.sort();
            all
        };
        assert_eq!(calls(&a), calls(&b));
        let phases = |profile: &Profile| {
            let phases = profile.runs[0].phases.iter();
            phases
                .map(|p| (p.name.clone(), p.crossings))
                .collect::<Vec<_>>()
        };
        assert_eq!(phases(&a), phases(&b));
    }
}
