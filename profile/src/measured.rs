//! What the runs of a group measured: times and memory, run by run, and pairs of them.

use std::collections::HashMap;

use crate::Recording;
use crate::groups::{Group, KERNEL, MACHINE, PAIR};
use crate::recording::{Process, Run, RunId};

/// Label with the number of pairs after which `compare` would have stopped at the latest: the rule by which it looked.
pub const MOST_PAIRS: &str = "most-pairs";
/// Label with the number of pairs after which `compare` looked once.
pub const EXACT_PAIRS: &str = "exact-pairs";
/// Label with the chance of a false alarm that this rule permits, such as `0.002`.
pub const CHANCE: &str = "chance";
/// Label with the relative difference that does not matter, such as `0.01`.
pub const MARGIN: &str = "margin";

/// Figures of runs that ended, in order of the runs. Times are seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// From the command's exec to its end.
    pub wall: Vec<f64>,
    /// CPU time in user mode, of all processes; as many as runs, or fewer where it is not known.
    pub user: Vec<f64>,
    /// CPU time in the kernel, likewise.
    pub system: Vec<f64>,
    /// Peak resident set of the largest process, bytes.
    pub max_rss: Vec<f64>,
    /// Private dirty memory of the command's process at its exit, bytes.
    pub uss: Vec<f64>,
    /// Exit status of each run; `None`: a signal.
    pub exit_statuses: Vec<Option<i32>>,
}

/// Seconds from the exec of the command to its end.
pub fn wall(run: &Run) -> f64 {
    run.ended.0.saturating_sub(run.started.0) as f64 / 1e9
}

/// Labels that say what a run was for and where it was made, not what ran.
pub const OF_COMPARISONS: [&str; 7] = [
    PAIR,
    MOST_PAIRS,
    EXACT_PAIRS,
    CHANCE,
    MARGIN,
    KERNEL,
    MACHINE,
];

impl Measured {
    /// Of the group's runs; the caller chooses bare or probed ones.
    pub fn of(recording: &Recording, group: &Group) -> Measured {
        let mut measured = Measured::default();
        let mut processes: HashMap<RunId, Vec<&Process>> = HashMap::new();
        for process in &recording.processes {
            processes.entry(process.run).or_default().push(process);
        }
        for id in &group.runs {
            let Some(run) = recording.runs.get(id.0 as usize) else {
                continue;
            };
            measured.wall.push(wall(run));
            measured.exit_statuses.push(run.exit_status);
            let processes = processes.get(id).map_or(&[][..], Vec::as_slice);
            let seconds = |time: fn(&Process) -> Option<u64>| {
                let times: Option<Vec<u64>> = processes.iter().map(|p| time(p)).collect();
                let times = times.filter(|times| !times.is_empty());
                let sum = |times: Vec<u64>| times.into_iter().fold(0, u64::saturating_add);
                times.map(|times| sum(times) as f64 / 1e9)
            };
            measured.user.extend(seconds(|p| p.user.map(|t| t.0)));
            measured.system.extend(seconds(|p| p.system.map(|t| t.0)));
            let largest = processes.iter().filter_map(|p| p.max_rss_bytes).max();
            measured.max_rss.extend(largest.map(|bytes| bytes as f64));
            let uss = processes.first().and_then(|p| p.uss_exit_bytes);
            measured.uss.extend(uss.map(|bytes| bytes as f64));
        }
        measured
    }
}

/// Wall times (base, head) in seconds of runs that carry the same number of a pair, in order of these numbers. A pair with one run
/// only, or with more than one of a side, is left out. Bare runs count, and probed ones only if a side has no others.
pub fn pairs(recording: &Recording, base: &Group, head: &Group) -> Vec<(f64, f64)> {
    let (bare_base, bare_head) = (base.bare(recording), head.bare(recording));
    let are_bare = !bare_base.runs.is_empty() && !bare_head.runs.is_empty();
    let (base, head) = match are_bare {
        true => (&bare_base, &bare_head),
        false => (base, head),
    };
    let numbered = |group: &Group| {
        let mut runs: Vec<(u64, f64)> = Vec::new();
        for id in &group.runs {
            let run = recording.runs.get(id.0 as usize);
            let number = run.and_then(|run| run.label(PAIR)?.parse().ok());
            runs.extend(number.zip(run.map(wall)));
        }
        runs.sort_by_key(|(number, _)| *number);
        let alone = runs
            .chunk_by(|a, b| a.0 == b.0)
            .filter(|same| same.len() == 1);
        alone.flatten().copied().collect::<Vec<_>>()
    };
    let head = numbered(head);
    let of = |number: u64| head.binary_search_by_key(&number, |(n, _)| *n).ok();
    numbered(base)
        .into_iter()
        .filter_map(|(number, base)| Some((base, head.get(of(number)?)?.1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::BARE;
    use crate::recording::{Nanoseconds, ProcessId};

    fn run(milliseconds: u64, pair: Option<&str>) -> Run {
        Run {
            started: Nanoseconds(5_000_000),
            ended: Nanoseconds(5_000_000 + milliseconds * 1_000_000),
            exit_status: Some(0),
            labels: pair.map(|p| (PAIR.into(), p.into())).into_iter().collect(),
            ..Run::default()
        }
    }

    fn group(runs: &[u32]) -> Group {
        Group {
            name: String::new(),
            runs: runs.iter().copied().map(RunId).collect(),
        }
    }

    #[test]
    fn pairs_are_matched_by_their_number() {
        let recording = Recording {
            runs: vec![
                run(10, Some("0")),
                run(20, Some("0")),
                run(40, Some("10")),
                run(30, Some("10")),
                run(50, Some("9")),
                run(60, Some("9")),
                run(70, Some("9")),
                run(80, Some("11")),
                run(90, None),
            ],
            ..Recording::default()
        };
        let (base, head) = (group(&[0, 3, 4, 7, 8]), group(&[1, 2, 5, 6]));
        let expected = [(0.01, 0.02), (0.03, 0.04)];
        assert_eq!(pairs(&recording, &base, &head), expected);
        // A probed run in a pair of bare ones is not one of the pair.
        let mut recording = recording;
        for run in &mut recording.runs {
            run.mode = BARE.into();
        }
        recording.runs.push(run(100, Some("0")));
        let base = group(&[0, 3, 4, 7, 8, 9]);
        assert_eq!(pairs(&recording, &base, &head), expected);
    }

    #[test]
    fn times_of_all_processes_are_added_and_the_largest_counts() {
        let process = |user: Option<u64>, rss, uss| Process {
            run: RunId(0),
            user: user.map(Nanoseconds),
            system: Some(Nanoseconds(1_000_000)),
            max_rss_bytes: Some(rss),
            uss_exit_bytes: uss,
            ..Process::default()
        };
        let mut recording = Recording {
            runs: vec![run(10, None), run(20, None)],
            processes: vec![
                process(Some(2_000_000), 10, Some(7)),
                process(Some(3_000_000), 30, Some(8)),
            ],
            ..Recording::default()
        };
        recording.processes[1].parent = Some(ProcessId(0));
        let measured = Measured::of(&recording, &group(&[0, 1]));
        assert_eq!(measured.wall, [0.01, 0.02]);
        assert_eq!(measured.user, [0.005]);
        assert_eq!(measured.system, [0.002]);
        assert_eq!(measured.max_rss, [30.0]);
        assert_eq!(measured.uss, [7.0]);
        // A recording may say anything.
        recording.processes[0].user = Some(Nanoseconds(u64::MAX));
        let most = Measured::of(&recording, &group(&[0])).user;
        assert_eq!(most, [u64::MAX as f64 / 1e9]);
        // One process whose time is not known: the sum is not known.
        recording.processes[0].user = None;
        assert!(Measured::of(&recording, &group(&[0])).user.is_empty());
    }
}
