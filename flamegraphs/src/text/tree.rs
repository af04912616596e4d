//! Processes as a tree.

use nodeprof_profile::report::ProcessProfile;

/// The processes, each behind its parent, with the lines of the tree before its name.
pub(super) fn tree(processes: &[ProcessProfile]) -> Vec<(String, &ProcessProfile)> {
    // Pids come again in long traces: the parent is the last process with that pid that began before.
    let parent_of = |index: usize| {
        let process = &processes[index];
        let pid = process.parent_pid?;
        (0..processes.len())
            .filter(|&other| {
                other != index
                    && processes[other].pid == pid
                    && processes[other].start_ns <= process.start_ns
            })
            .max_by_key(|&other| processes[other].start_ns)
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
