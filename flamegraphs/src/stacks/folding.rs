//! From stacks of threads to one tree of frames, merged or in order of time.

use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::recording::Nanoseconds;

use super::{Entry, StackNode, Stacks, Thread};
use crate::drawn::Drawn;
use crate::fold::{Folded, Folder, Frame, FrameKind, Order, ThreadClass, Tree};
use crate::select::Selected;

impl Stacks {
    /// The tree of these stacks below their processes and threads.
    pub(crate) fn fold(mut self, drawn: &Drawn<'_>, selected: &Selected, order: Order) -> Folded {
        let mut folder = Folder::new(drawn, selected);
        let ids: Vec<u32> = (self.frames.drain(..))
            .map(|frame| folder.tree.adopt(frame))
            .collect();
        match order {
            Order::Merged => {
                let mut merger = Merger::new(&self.nodes, &ids);
                for thread in &self.threads {
                    if let Some(base) = folder.thread_node(thread.process, thread.class) {
                        merger.merge(&mut folder.tree, thread, base);
                    }
                }
            }
            Order::Time => {
                self.in_order_of_time();
                lay_out(&mut folder, drawn.timeline, &self, &ids);
            }
        }
        let (frames, nodes) = folder.tree.in_order();
        Folded {
            about: self.about,
            order,
            frames,
            nodes,
        }
    }

    /// Folded stacks as those of one thread, one after the other: for formats that want threads.
    pub(crate) fn from_folded(
        folded: Folded,
        recording: &Recording,
        selected: &Selected,
    ) -> Stacks {
        let mut nodes: Vec<StackNode> = Vec::with_capacity(folded.nodes.len());
        let mut path: Vec<u32> = Vec::new();
        let mut entries = Vec::new();
        let mut at = 0u64;
        for node in &folded.nodes {
            path.truncate(node.depth as usize);
            let index = nodes.len() as u32;
            nodes.push(StackNode {
                parent: path.last().copied(),
                frame: node.frame,
                line: None,
                column: None,
            });
            path.push(index);
            if node.own > 0 {
                entries.push(Entry {
                    at: Nanoseconds(at),
                    duration: Nanoseconds(node.own),
                    value: node.own,
                    node: index,
                });
                at = at.saturating_add(node.own);
            }
        }
        let main = recording
            .processes
            .iter()
            .position(|process| process.run == selected.run)
            .unwrap_or_default();
        let pid = recording.processes.get(main).map(|process| process.pid);
        let thread = Thread {
            process: nodeprof_profile::recording::ProcessId(main as u32),
            class: ThreadClass::Main,
            pid: pid.unwrap_or_default(),
            tid: nodeprof_profile::recording::ThreadId(pid.unwrap_or_default()),
            command: folded.about.command.clone(),
            entries,
            sums: Vec::new(),
        };
        Stacks {
            about: folded.about,
            frames: folded.frames,
            nodes,
            threads: vec![thread],
            main: None,
            timeless: true,
        }
    }
}

/// Adds threads to the tree, each of their stacks once: a million events have some thousand stacks.
struct Merger<'a> {
    nodes: &'a [StackNode],
    /// The tree's frames by those of the stacks.
    ids: &'a [u32],
    /// By stack: the node of the tree, and the sum of the thread's values.
    of: Vec<(u32, u64)>,
}

const UNKNOWN: (u32, u64) = (u32::MAX, 0);

impl<'a> Merger<'a> {
    fn new(nodes: &'a [StackNode], ids: &'a [u32]) -> Merger<'a> {
        Merger {
            nodes,
            ids,
            of: vec![UNKNOWN; nodes.len()],
        }
    }

    fn merge(&mut self, tree: &mut Tree, thread: &Thread, base: u32) {
        let entries = thread.entries.iter().map(|entry| (entry.node, entry.value));
        let summed = thread.sums.iter().map(|sum| (sum.node, sum.value));
        let mut stacks = Vec::new();
        for (stack, value) in entries.chain(summed) {
            let sum = &mut self.of[stack as usize].1;
            if *sum == 0 {
                stacks.push(stack);
            }
            *sum = sum.saturating_add(value);
        }
        let mut touched = Vec::new();
        for &stack in &stacks {
            let node = self.node(tree, base, stack, &mut touched);
            tree.add(node, self.of[stack as usize].1);
        }
        for stack in touched {
            self.of[stack as usize] = UNKNOWN;
        }
    }

    fn node(&mut self, tree: &mut Tree, base: u32, stack: u32, touched: &mut Vec<u32>) -> u32 {
        let begin = touched.len();
        let mut at = Some(stack);
        let mut above = base;
        while let Some(index) = at {
            let (known, _) = self.of[index as usize];
            if known != UNKNOWN.0 {
                above = known;
                break;
            }
            touched.push(index);
            at = self.nodes[index as usize].parent;
        }
        for &index in touched[begin..].iter().rev() {
            let frame = self.nodes[index as usize].frame;
            above = tree.child(above, self.ids[frame as usize]);
            self.of[index as usize].0 = above;
        }
        above
    }
}

/// Every thread's stacks in order of time, phase by phase.
fn lay_out(folder: &mut Folder<'_>, timeline: &Timeline, stacks: &Stacks, ids: &[u32]) {
    let between = folder
        .tree
        .adopt(Frame::named(FrameKind::Between, "between"));
    for thread in &stacks.threads {
        let mut base = None;
        let mut open: Vec<Open> = Vec::new();
        for entry in &thread.entries {
            let phase = timeline.phase_of(thread.process, entry.at);
            let Some(phase) = folder.phase_node(thread.process, phase, thread.class) else {
                continue;
            };
            if base != Some(phase) {
                base = Some(phase);
                open.clear();
            }
            let path = path(&stacks.nodes, ids, entry.node);
            let same = (open.iter().zip(&path))
                .take_while(|(open, frame)| open.frame == **frame)
                .count();
            open.truncate(same);
            for &frame in &path[same..] {
                let above = match open.last_mut() {
                    Some(caller) => {
                        caller.between = None;
                        caller.node
                    }
                    None => phase,
                };
                open.push(Open {
                    frame,
                    node: folder.tree.append(above, frame),
                    between: None,
                });
            }
            // Its own time stands between what it called before and what it calls next.
            if let Some(innermost) = open.last_mut() {
                let own = *innermost
                    .between
                    .get_or_insert_with(|| folder.tree.append(innermost.node, between));
                folder.tree.add(own, entry.value);
            }
        }
    }
}

/// A frame of the stack at some instant.
struct Open {
    frame: u32,
    node: u32,
    /// Where its own time is added while it calls nothing else.
    between: Option<u32>,
}

/// The frames of a stack, outermost first, as the tree knows them.
fn path(nodes: &[StackNode], ids: &[u32], stack: u32) -> Vec<u32> {
    let frame = |index: u32| &nodes[index as usize];
    let mut path: Vec<u32> = std::iter::successors(Some(stack), |&index| frame(index).parent)
        .map(|index| ids[frame(index).frame as usize])
        .collect();
    path.reverse();
    path
}
