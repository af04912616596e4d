//! Runs that are drawn together: their events, and what the stacks of these reach.
//!
//! A recording may hold many runs. What is known of a run is found here without a look at the others, and other runs change nothing in
//! the picture of one: neither how functions nor how packages are called.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::modules::package::Folders;
use nodeprof_profile::recording::{
    Compilation, Crossing, CrossingSum, FileAccess, FrameKind, Lookup, NameId, ProcessId, RunId,
    Sample, Serialization, SerializationSum, StackId, Wait,
};

use crate::fold::ThreadClasses;
use crate::stacks::{Labels, Originals, Versions, bundles, label};

/// Runs of one recording.
pub(crate) struct Drawn<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) timeline: &'a Timeline,
    runs: Vec<RunId>,
    /// Further runs of the recording that are drawn beside these.
    beside: Vec<RunId>,
    /// By process: its run.
    run_of: Vec<RunId>,
    samples: OnceCell<Rows>,
    waits: OnceCell<Rows>,
    crossings: OnceCell<Rows>,
    crossing_sums: OnceCell<Rows>,
    lookups: OnceCell<Rows>,
    files: OnceCell<Rows>,
    serializations: OnceCell<Rows>,
    serialization_sums: OnceCell<Rows>,
    compilations: OnceCell<Rows>,
    classes: OnceCell<ThreadClasses>,
    /// By frame: whether these runs reach it, and whether those beside them do.
    reached: OnceCell<[Vec<bool>; 2]>,
    /// By working directory, and which original positions are shown.
    labels: RefCell<HashMap<(String, Originals), Labels>>,
    bundles: OnceCell<BTreeSet<NameId>>,
    versions: OnceCell<Versions>,
}

/// Which of a family's events are of which run.
struct Rows {
    /// By run: where its events begin; at the end those of no run.
    starts: Vec<u32>,
    /// The events, run by run, each run's in their order; `None` if they stand like that.
    order: Option<Vec<u32>>,
}

impl Rows {
    fn new(runs: usize, of: impl Iterator<Item = RunId> + Clone) -> Rows {
        let place = |run: RunId| (run.0 as usize).min(runs);
        let mut starts = vec![0u32; runs + 2];
        let (mut is_sorted, mut last) = (true, 0);
        for run in of.clone().map(place) {
            starts[run + 1] += 1;
            is_sorted &= last <= run;
            last = run;
        }
        for run in 1..starts.len() {
            starts[run] += starts[run - 1];
        }
        if is_sorted {
            // As recordings are put together.
            let order = None;
            return Rows { starts, order };
        }
        let mut ends = starts.clone();
        let mut order = vec![0u32; starts[runs + 1] as usize];
        for (index, run) in of.map(place).enumerate() {
            order[ends[run] as usize] = index as u32;
            ends[run] += 1;
        }
        let order = Some(order);
        Rows { starts, order }
    }

    /// Indices of a run's events.
    fn of(&self, run: RunId) -> impl Iterator<Item = usize> + '_ {
        let at = run.0 as usize;
        let last = self.starts.len().saturating_sub(2);
        let span: Range<usize> = match at < last {
            true => self.starts[at] as usize..self.starts[at + 1] as usize,
            false => 0..0,
        };
        span.map(|at| self.order.as_ref().map_or(at, |order| order[at] as usize))
    }
}

macro_rules! families {
    ($($(#[$doc:meta])* $family:ident $rows:ident $type:ident),* $(,)?) => {$(
        $(#[$doc])*
        pub(crate) fn $family(&self, run: RunId) -> impl Iterator<Item = &'a $type> + '_ {
            let events = &self.recording.$family;
            self.$rows().of(run).map(|index| &events[index])
        }

        fn $rows(&self) -> &Rows {
            self.$family.get_or_init(|| {
                let of = self.recording.$family.iter().map(|event| self.run_of(event.process));
                Rows::new(self.recording.runs.len(), of)
            })
        }
    )*};
}

impl<'a> Drawn<'a> {
    pub(crate) fn new(
        recording: &'a Recording,
        timeline: &'a Timeline,
        runs: impl IntoIterator<Item = RunId>,
    ) -> Drawn<'a> {
        Drawn {
            recording,
            timeline,
            runs: runs.into_iter().collect(),
            beside: Vec::new(),
            run_of: recording.processes.iter().map(|of| of.run).collect(),
            samples: OnceCell::new(),
            waits: OnceCell::new(),
            crossings: OnceCell::new(),
            crossing_sums: OnceCell::new(),
            lookups: OnceCell::new(),
            files: OnceCell::new(),
            serializations: OnceCell::new(),
            serialization_sums: OnceCell::new(),
            compilations: OnceCell::new(),
            classes: OnceCell::new(),
            reached: OnceCell::new(),
            labels: RefCell::default(),
            bundles: OnceCell::new(),
            versions: OnceCell::new(),
        }
    }

    /// The same beside further runs of the recording, which have names of their own: both sides of a comparison see a function of an
    /// original source in the same line.
    pub(crate) fn beside(self, runs: impl IntoIterator<Item = RunId>) -> Drawn<'a> {
        Drawn {
            beside: runs.into_iter().collect(),
            ..self
        }
    }

    families! {
        samples rows_of_samples Sample,
        waits rows_of_waits Wait,
        crossings rows_of_crossings Crossing,
        crossing_sums rows_of_crossing_sums CrossingSum,
        lookups rows_of_lookups Lookup,
        files rows_of_files FileAccess,
        serializations rows_of_serializations Serialization,
        serialization_sums rows_of_serialization_sums SerializationSum,
        compilations rows_of_compilations Compilation,
    }

    /// Indices of a run's crossings.
    pub(crate) fn indices_of_crossings(&self, run: RunId) -> impl Iterator<Item = usize> + '_ {
        self.rows_of_crossings().of(run)
    }

    /// The run of a process; of one that the recording does not have, none that it has.
    fn run_of(&self, process: ProcessId) -> RunId {
        let known = self.run_of.get(process.0 as usize);
        known.copied().unwrap_or(RunId(u32::MAX))
    }

    pub(crate) fn classes(&self) -> &ThreadClasses {
        self.classes
            .get_or_init(|| ThreadClasses::new(self.recording, self.timeline))
    }

    /// The frames that one of these runs reaches, where paths are seen from this folder: called so that all that these runs reach is
    /// told apart.
    pub(crate) fn labels(&self, run: RunId, directory: &str, originals: Originals) -> Labels {
        let [reached, beside] = self.reached();
        let new = || {
            label(
                self.recording,
                directory,
                (originals, self.bundles()),
                reached,
                beside,
            )
        };
        if self.runs == [run] {
            return new();
        }
        let key = (directory.to_owned(), originals);
        let mut known = self.labels.borrow_mut();
        known.entry(key).or_insert_with(new).of(&self.reach([&run]))
    }

    /// Scripts that these runs, and those beside them, show to be made of several files.
    pub(crate) fn bundles(&self) -> &BTreeSet<NameId> {
        self.bundles.get_or_init(|| {
            let [reached, beside] = self.reached();
            bundles(self.recording, [reached, beside])
        })
    }

    /// By frame: whether these runs reach it, and whether those beside them do.
    fn reached(&self) -> &[Vec<bool>; 2] {
        self.reached
            .get_or_init(|| [&self.runs, &self.beside].map(|runs| self.reach(runs)))
    }

    /// The versions of packages that these runs reach.
    pub(crate) fn versions(&self) -> &Versions {
        self.versions.get_or_init(|| {
            let mut versions = Versions::default();
            for run in &self.runs {
                let reached = self.reach([run]);
                let frames = self.recording.frames.iter().zip(&reached);
                let files = frames
                    .filter(|(frame, reached)| **reached && frame.kind == FrameKind::JavaScript)
                    .filter_map(|(frame, _)| frame.file);
                let mut files: Vec<_> = files.collect();
                files.sort_unstable();
                files.dedup();
                let scripts = files.into_iter().map(|file| self.recording.name(file));
                versions.add(&Folders::new(self.recording, *run), scripts);
            }
            versions
        })
    }

    /// By frame: whether a stack of an event of these runs has it. Each stack is looked at once, however many events have it.
    fn reach<'r>(&self, runs: impl IntoIterator<Item = &'r RunId>) -> Vec<bool> {
        let recording = self.recording;
        let mut seen = vec![false; recording.stacks.len()];
        let mut reached = vec![false; recording.frames.len()];
        let mut see = |stack: Option<StackId>| {
            let mut next = stack;
            while let Some(id) = next
                && let Some(seen @ false) = seen.get_mut(id.0 as usize)
            {
                *seen = true;
                let stack = recording.stacks[id.0 as usize];
                if let Some(reached) = reached.get_mut(stack.frame.0 as usize) {
                    *reached = true;
                }
                // As stacks are walked: a caller has a lower index.
                next = stack.caller.filter(|caller| *caller < id);
            }
        };
        for &run in runs {
            self.samples(run).for_each(|of| see(of.stack));
            self.waits(run).for_each(|of| see(of.stack));
            self.crossings(run).for_each(|of| see(of.stack));
            self.crossing_sums(run).for_each(|of| see(of.stack));
            self.lookups(run).for_each(|of| see(of.stack));
            self.files(run).for_each(|of| see(of.stack));
            self.serializations(run).for_each(|of| see(of.stack));
            self.serialization_sums(run).for_each(|of| see(of.stack));
            self.compilations(run).for_each(|of| see(of.stack));
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_run_are_found_wherever_they_stand() {
        for of in [
            &[0, 0, 1, 3, 3][..],
            &[3, 1, 0, 3, 0],
            &[9, 0, 2, 9, 1, 0],
            &[0, 9],
            &[],
        ] {
            let rows = Rows::new(4, of.iter().map(|run| RunId(*run)));
            assert_eq!(rows.order.is_none(), of.is_sorted(), "{of:?}");
            for run in 0..4 {
                let found: Vec<usize> = rows.of(RunId(run)).collect();
                let expected: Vec<usize> = (0..of.len()).filter(|at| of[*at] == run).collect();
                assert_eq!(found, expected, "{of:?}: {run}");
            }
            // What is of no run is no run's.
            for run in [4, 9, u32::MAX] {
                assert_eq!(rows.of(RunId(run)).count(), 0, "{of:?}");
            }
        }
    }
}
