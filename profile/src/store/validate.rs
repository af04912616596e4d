//! That every index of a recording points to something.

use crate::Recording;
use crate::recording::{BinaryId, CallbackId, FrameId, NameId, ProcessId, RunId, StackId};

/// An index of a recording that points nowhere, or a value that no clock and no counter gives.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{table} {row}: {problem}")]
pub struct Inconsistency {
    /// As in the file.
    pub table: &'static str,
    /// Index of the row, from 0.
    pub row: usize,
    /// What is wrong.
    pub problem: String,
}

/// The lengths that indices must stay below.
struct Limits {
    runs: usize,
    processes: usize,
    binaries: usize,
    callbacks: usize,
    names: usize,
    frames: usize,
    stacks: usize,
}

trait Reference {
    const WHAT: &'static str;
    fn index(self) -> Option<u32>;
    fn limit(limits: &Limits) -> usize;
}

macro_rules! reference {
    ($($type:ident: $what:literal, $limit:ident;)*) => {$(
        impl Reference for $type {
            const WHAT: &'static str = $what;
            fn index(self) -> Option<u32> {
                Some(self.0)
            }
            fn limit(limits: &Limits) -> usize {
                limits.$limit
            }
        }
    )*};
}
reference! {
    RunId: "run", runs;
    ProcessId: "process", processes;
    BinaryId: "binary", binaries;
    CallbackId: "callback", callbacks;
    NameId: "name", names;
    FrameId: "frame", frames;
    StackId: "stack", stacks;
}

impl<R: Reference> Reference for Option<R> {
    const WHAT: &'static str = R::WHAT;
    fn index(self) -> Option<u32> {
        self.and_then(R::index)
    }
    fn limit(limits: &Limits) -> usize {
        R::limit(limits)
    }
}

fn check<R: Reference>(reference: R, limits: &Limits) -> Result<(), String> {
    let limit = R::limit(limits);
    match reference.index() {
        Some(index) if index as usize >= limit => {
            Err(format!("{} {index} is not there ({limit} are)", R::WHAT))
        }
        _ => Ok(()),
    }
}

macro_rules! check_all {
    ($limits:expr, $($table:literal: $rows:expr => $($field:ident),+;)*) => {$(
        for (row, item) in $rows.iter().enumerate() {
            $(check(item.$field, $limits).map_err(|problem| Inconsistency { table: $table, row, problem })?;)+
        }
    )*};
}

impl Recording {
    /// Checks that every index points to something of this recording, that no process is its own ancestor and that
    /// the calibrated cost is a number.
    ///
    /// # Errors
    ///
    /// The first thing that is not so.
    pub fn check_references(&self) -> Result<(), Inconsistency> {
        let limits = &Limits {
            runs: self.runs.len(),
            processes: self.processes.len(),
            binaries: self.binaries.len(),
            callbacks: self.callbacks.len(),
            names: self.names.len(),
            frames: self.frames.len(),
            stacks: self.stacks.len(),
        };
        check_all! { limits,
            "process": self.processes => run, parent, node;
            "milestone": self.milestones => process;
            "span": self.spans => process, name;
            "crossing": self.crossings => process, callback, parent, stack;
            "crossing_sum": self.crossing_sums => process, callback, stack;
            "lookup": self.lookups => process, path, stack;
            "file_access": self.files => process, path, stack;
            "serialization": self.serializations => process, function, callback, stack;
            "serialization_sum": self.serialization_sums => process, function, callback, stack;
            "compilation": self.compilations => process, path, stack;
            "package": self.packages => run, directory;
            "frame": self.frames => function, file;
            "stack": self.stacks => caller, frame;
            "sample": self.samples => process, stack;
            "wait": self.waits => process, stack;
            "import": self.imports => process, requirer, loaded;
            "continuation": self.continuations => process, stack;
            "family": self.families => run;
            "loss": self.losses => run;
            "probe_hits": self.probe_hits => run;
            "overhead": self.overheads => run;
            "figure": self.figures => run;
        }
        self.check_stacks(limits)?;
        self.check_ancestry()?;
        for (row, figure) in self.figures.iter().enumerate() {
            if !figure.value.is_finite() {
                return Err(Inconsistency {
                    table: "figure",
                    row,
                    problem: format!("a value of {}", figure.value),
                });
            }
        }
        for (row, overhead) in self.overheads.iter().enumerate() {
            // NaN and infinity have no place in SQL, nor in JSON.
            if !(overhead.ns_per_hit.is_finite() && overhead.ns_per_hit >= 0.0) {
                return Err(Inconsistency {
                    table: "overhead",
                    row,
                    problem: format!("a cost of {} ns per hit", overhead.ns_per_hit),
                });
            }
        }
        Ok(())
    }

    /// A caller comes before its callees, so that a walk along them ends.
    fn check_stacks(&self, limits: &Limits) -> Result<(), Inconsistency> {
        for (row, stack) in self.stacks.iter().enumerate() {
            if let Some(caller) = stack.caller
                && caller.0 as usize >= row
            {
                return Err(Inconsistency {
                    table: "stack",
                    row,
                    problem: format!("its caller {} does not come before it", caller.0),
                });
            }
        }
        for (row, frame) in self.frames.iter().enumerate() {
            let original = frame.original.map(|original| original.file);
            check(original, limits).map_err(|problem| Inconsistency {
                table: "frame",
                row,
                problem,
            })?;
        }
        Ok(())
    }

    /// Views walk from a process to its ancestors: that must end, within the run.
    fn check_ancestry(&self) -> Result<(), Inconsistency> {
        let inconsistent = |row, problem: &str| Inconsistency {
            table: "process",
            row,
            problem: problem.to_owned(),
        };
        // Number of the walk that came by, 0 for none.
        let mut visited = vec![0; self.processes.len()];
        for start in 0..self.processes.len() {
            let walk = start + 1;
            let mut at = start;
            while visited[at] == 0 {
                visited[at] = walk;
                let Some(parent) = self.processes[at].parent else {
                    break;
                };
                let parent = parent.0 as usize;
                if self.processes[parent].run != self.processes[at].run {
                    return Err(inconsistent(at, "its parent is of another run"));
                }
                if visited[parent] == walk {
                    return Err(inconsistent(at, "it is its own ancestor"));
                }
                at = parent;
            }
        }
        Ok(())
    }
}
