//! What can be counted, and in which unit.

use std::fmt;
use std::str::FromStr;

use nodeprof_profile::recording::{RunId, StackId};

use crate::drawn::Drawn;

/// What is counted in a flame graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// CPU time, by samples.
    Cpu,
    /// Time that threads waited.
    OffCpu,
    /// Both: where a thread's time went.
    Wall,
    /// Calls between JavaScript and C++.
    Crossings,
    /// Self time of these calls.
    CrossingTime,
    /// Self time of serializations.
    Serialization,
    /// System calls on files.
    Files,
    /// Time in system calls on files.
    FileTime,
    /// Lookups of package.json files.
    PackageJson,
    /// Self time of compilations.
    Compile,
}

/// What a value of a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things; with their name in the plural.
    Count(&'static str),
    /// Nanoseconds.
    Time,
}

impl Unit {
    /// The unit of the numbers in folded stacks.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Count(things) => things,
            Unit::Time => "ns",
        }
    }
}

impl Metric {
    /// All, in the order in which to offer them.
    pub const ALL: [Metric; 10] = [
        Metric::Cpu,
        Metric::OffCpu,
        Metric::Wall,
        Metric::Crossings,
        Metric::CrossingTime,
        Metric::Serialization,
        Metric::Files,
        Metric::FileTime,
        Metric::PackageJson,
        Metric::Compile,
    ];

    /// Their names, for a command line's list of possible values.
    pub const NAMES: [&'static str; 10] = {
        let mut names = [""; 10];
        let mut index = 0;
        while index < names.len() {
            names[index] = Metric::ALL[index].name();
            index += 1;
        }
        names
    };

    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Cpu => "cpu",
            Metric::OffCpu => "off-cpu",
            Metric::Wall => "wall",
            Metric::Crossings => "crossings",
            Metric::CrossingTime => "crossing-time",
            Metric::Serialization => "serialization",
            Metric::Files => "files",
            Metric::FileTime => "file-time",
            Metric::PackageJson => "package-json",
            Metric::Compile => "compile",
        }
    }

    /// A heading.
    pub const fn title(self) -> &'static str {
        match self {
            Metric::Cpu => "CPU time",
            Metric::OffCpu => "Time off the CPU",
            Metric::Wall => "Time on and off the CPU",
            Metric::Crossings => "Calls between JavaScript and C++",
            Metric::CrossingTime => "Time in calls between JavaScript and C++",
            Metric::Serialization => "Time to make and read JavaScript values in C++",
            Metric::Files => "System calls on files",
            Metric::FileTime => "Time in system calls on files",
            Metric::PackageJson => "Lookups of package.json",
            Metric::Compile => "Time to compile JavaScript",
        }
    }

    /// Unit of the values.
    pub const fn unit(self) -> Unit {
        match self {
            Metric::Crossings => Unit::Count("calls"),
            Metric::Files => Unit::Count("system calls"),
            Metric::PackageJson => Unit::Count("lookups"),
            Metric::Cpu
            | Metric::OffCpu
            | Metric::Wall
            | Metric::CrossingTime
            | Metric::Serialization
            | Metric::FileTime
            | Metric::Compile => Unit::Time,
        }
    }

    /// Whether a run has events of it.
    pub(crate) fn has_events(self, drawn: &Drawn<'_>, run: RunId) -> bool {
        self.any(drawn, run, |_| true)
    }

    /// Whether events of it in a run have stacks.
    pub(super) fn has_stacks(self, drawn: &Drawn<'_>, run: RunId) -> bool {
        self.any(drawn, run, |stack| stack.is_some())
    }

    /// Whether an event or sum of it in a run has a stack as is asked for.
    fn any(self, drawn: &Drawn<'_>, run: RunId, fits: impl Fn(Option<StackId>) -> bool) -> bool {
        macro_rules! any {
            ($($family:ident),*) => {
                $(drawn.$family(run).any(|of| fits(of.stack)))||*
            };
        }
        match self {
            Metric::Cpu => any!(samples),
            Metric::OffCpu => any!(waits),
            Metric::Wall => any!(samples, waits),
            Metric::Crossings | Metric::CrossingTime => any!(crossings, crossing_sums),
            Metric::Serialization => any!(serializations, serialization_sums),
            Metric::Files | Metric::FileTime => any!(files),
            Metric::PackageJson => any!(lookups),
            Metric::Compile => any!(compilations),
        }
    }

    /// The families that record it.
    pub(super) const fn families(self) -> &'static [&'static str] {
        match self {
            Metric::Cpu => &["cpu"],
            Metric::OffCpu => &["off-cpu"],
            Metric::Wall => &["cpu", "off-cpu"],
            Metric::Crossings | Metric::CrossingTime => &["crossings"],
            Metric::Serialization => &["serialization"],
            Metric::Files | Metric::FileTime => &["files"],
            Metric::PackageJson => &["package-json"],
            Metric::Compile => &["compile"],
        }
    }

    /// Whether it is a time that count mode does not measure.
    pub(super) const fn is_timed_in_full_mode(self) -> bool {
        matches!(
            self,
            Metric::CrossingTime | Metric::Serialization | Metric::FileTime
        )
    }

    /// What is missing when there is nothing.
    pub(super) const fn things(self) -> &'static str {
        match self {
            Metric::Cpu => "CPU samples",
            Metric::OffCpu => "spans off the CPU",
            Metric::Wall => "CPU samples or spans off the CPU",
            Metric::Crossings => "crossings",
            Metric::CrossingTime => "crossings with a measured time",
            Metric::Serialization => "serializations with a measured time",
            Metric::Files => "file operations",
            Metric::FileTime => "file operations with a measured time",
            Metric::PackageJson => "package.json lookups",
            Metric::Compile => "compilations with a measured time",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A metric that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found: no metric {found:?}; needed: one of {}", Metric::NAMES.join(", "))]
pub struct UnknownMetric {
    /// What was asked for.
    pub found: String,
}

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Metric::ALL.into_iter().find(|metric| metric.name() == name);
        found.ok_or_else(|| UnknownMetric {
            found: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_found_by_its_name() {
        for metric in Metric::ALL {
            assert_eq!(metric.name().parse(), Ok(metric));
        }
        let error = "gpu".parse::<Metric>().unwrap_err().to_string();
        assert!(
            error.contains("\"gpu\"") && error.contains("package-json"),
            "{error}"
        );
    }
}
