//! Processes as a tree.

use std::collections::HashMap;

use nodeprof_profile::report::ProcessProfile;

/// The processes, each behind its parent, with the lines of the tree before its name.
pub(super) fn tree(processes: &[ProcessProfile]) -> Vec<(String, &ProcessProfile)> {
    // Pids come again in long traces: the parent is the last process with that pid that began before.
    let mut of_pid: HashMap<u32, Vec<usize>> = HashMap::new();
    for (index, process) in processes.iter().enumerate() {
        of_pid.entry(process.pid).or_default().push(index);
    }
    for all in of_pid.values_mut() {
        all.sort_by_key(|&index| processes[index].start_ns);
    }
    let parent_of = |index: usize| {
        let process = &processes[index];
        let all = of_pid.get(&process.parent_pid?)?;
        let before = all.partition_point(|&other| processes[other].start_ns <= process.start_ns);
        all[..before]
            .iter()
            .rev()
            .copied()
            .find(|&other| other != index)
    };
    let parents: Vec<Option<usize>> = (0..processes.len()).map(parent_of).collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); processes.len()];
    for (index, parent) in parents.iter().enumerate() {
        if let Some(parent) = *parent {
            children[parent].push(index);
        }
    }
    let mut rows = Vec::new();
    let mut seen = vec![false; processes.len()];
    // A cycle among processes with equal starts has no root: whoever is left over becomes one.
    let roots = (0..processes.len())
        .filter(|&index| parents[index].is_none())
        .chain(0..processes.len());
    for root in roots.collect::<Vec<_>>() {
        let mut stack = vec![(root, String::new(), String::new())];
        while let Some((index, prefix, below)) = stack.pop() {
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            rows.push((prefix, &processes[index]));
            for (position, &child) in children[index].iter().enumerate().rev() {
                let last = position + 1 == children[index].len();
                let (branch, line) = if last {
                    ("└─ ", "   ")
                } else {
                    ("├─ ", "│  ")
                };
                stack.push((child, format!("{below}{branch}"), format!("{below}{line}")));
            }
        }
    }
    rows
}
