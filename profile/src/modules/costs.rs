//! What is counted and timed for each module.

use serde::{Deserialize, Serialize};

use crate::breakdown::count;
use crate::recording::{
    Crossing, CrossingKind, CrossingSum, FileAccess, FileOperation, Sample, Serialization,
    SerializationSum, Wait, WaitReason,
};

/// Events, counted and timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// JavaScript → C++ calls.
    pub crossings: u64,
    /// Their self times, where measured, ns.
    pub crossings_self_ns: u64,
    /// package.json lookups.
    #[serde(rename = "package_json_lookups")]
    pub lookups: u64,
    /// stat-type system calls.
    pub stats: u64,
    /// open-type system calls.
    pub opens: u64,
    /// read-type system calls.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Time in file operations of all kinds, ns.
    pub files_ns: u64,
    /// Serializations, nested ones included.
    pub serializations: u64,
    /// Their bytes, where known.
    pub serialization_bytes: u64,
    /// Time in those not nested in another, ns.
    pub serialization_ns: u64,
    /// CPU samples.
    pub samples: u64,
    /// CPU time that they stand for, ns.
    pub cpu_ns: u64,
    /// Time off the CPU with something to do (waits that are not idle), ns.
    pub blocked_ns: u64,
    /// Of `stats`: those of package.json files. Not in the JSON, as what follows: causes of a difference are told by it.
    #[serde(skip)]
    pub package_json_stats: u64,
    /// Of `opens`: the same.
    #[serde(skip)]
    pub package_json_opens: u64,
    /// Of `cpu_ns`: in the garbage collector, of threads that run JavaScript.
    #[serde(skip)]
    pub collections_ns: u64,
}

impl Costs {
    /// Does something with each figure and the same of another's.
    fn each(&mut self, other: &Costs, change: impl Fn(&mut u64, u64)) {
        macro_rules! change {
            ($($field:ident),*) => {$(change(&mut self.$field, other.$field);)*};
        }
        change!(
            crossings,
            crossings_self_ns,
            lookups,
            stats,
            opens,
            reads,
            bytes_read,
            files_ns,
            serializations,
            serialization_bytes,
            serialization_ns,
            samples,
            cpu_ns,
            blocked_ns,
            package_json_stats,
            package_json_opens,
            collections_ns
        );
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Costs) {
        self.each(other, count);
    }

    /// Takes another's off, of each figure as much as there is.
    pub fn take_off(&mut self, other: &Costs) {
        self.each(other, |figure, less| *figure = figure.saturating_sub(less));
    }

    /// Those of a system call on the file at this path.
    pub(crate) fn of_file(access: &FileAccess, path: &[u8]) -> Costs {
        let mut costs = Costs::from(access);
        if is_package_json(path) {
            costs.package_json_stats = costs.stats;
            costs.package_json_opens = costs.opens;
        }
        costs
    }

    /// Those of a sample that was taken in the garbage collector, or not.
    pub(crate) fn of_sample(sample: &Sample, collects: bool) -> Costs {
        let mut costs = Costs::from(sample);
        if collects {
            costs.collections_ns = costs.cpu_ns;
        }
        costs
    }
}

/// Whether a path is one of a package.json file.
pub(crate) fn is_package_json(path: &[u8]) -> bool {
    const NAME: &[u8] = b"package.json";
    path.strip_suffix(NAME)
        .is_some_and(|folder| folder.is_empty() || folder.ends_with(b"/"))
}

impl From<&Crossing> for Costs {
    fn from(crossing: &Crossing) -> Costs {
        if crossing.kind == CrossingKind::ToJs {
            return Costs::default();
        }
        Costs {
            crossings: 1,
            crossings_self_ns: crossing.self_time.or(crossing.duration).map_or(0, |t| t.0),
            ..Costs::default()
        }
    }
}

impl From<&CrossingSum> for Costs {
    fn from(sum: &CrossingSum) -> Costs {
        if sum.kind == CrossingKind::ToJs {
            return Costs::default();
        }
        Costs {
            crossings: sum.calls,
            crossings_self_ns: sum.self_time.0,
            ..Costs::default()
        }
    }
}

impl From<&FileAccess> for Costs {
    fn from(access: &FileAccess) -> Costs {
        let mut costs = Costs {
            files_ns: access.duration.0,
            ..Costs::default()
        };
        match access.operation {
            FileOperation::Stat => costs.stats = 1,
            FileOperation::Open => costs.opens = 1,
            FileOperation::Read => {
                costs.reads = 1;
                costs.bytes_read = access.result.max(0) as u64;
            }
            FileOperation::Readlink | FileOperation::Close | FileOperation::Access => {}
        }
        costs
    }
}

impl From<&Serialization> for Costs {
    fn from(serialization: &Serialization) -> Costs {
        let outermost = serialization.duration.filter(|_| !serialization.nested);
        Costs {
            serializations: 1,
            serialization_bytes: serialization.bytes.unwrap_or_default(),
            serialization_ns: outermost.map_or(0, |time| time.0),
            ..Costs::default()
        }
    }
}

impl From<&SerializationSum> for Costs {
    fn from(sum: &SerializationSum) -> Costs {
        Costs {
            serializations: sum.calls,
            serialization_bytes: sum.bytes,
            serialization_ns: sum.total.0,
            ..Costs::default()
        }
    }
}

impl From<&Sample> for Costs {
    fn from(sample: &Sample) -> Costs {
        Costs {
            samples: 1,
            cpu_ns: sample.weight.0,
            ..Costs::default()
        }
    }
}

impl From<&Wait> for Costs {
    fn from(wait: &Wait) -> Costs {
        Costs {
            blocked_ns: match wait.reason {
                WaitReason::Idle => 0,
                _ => wait.duration.0,
            },
            ..Costs::default()
        }
    }
}
