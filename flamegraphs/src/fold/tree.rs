//! The tree that events are folded into: ids instead of strings, so that a million of them take a third of a second.

use super::folded::{Frame, FrameKind, Node};
use crate::hash::IdMap;
use crate::paths::printable;

/// A name that cannot be taken for two frames, or for a frame and a number.
pub(crate) fn frame_name(text: &str) -> String {
    let name = printable(text).replace(';', ":");
    // inferno and flamegraph.pl trim names.
    let mut name = name.trim().to_owned();
    // `file 2 17` would be read as the stack `file` with the counts 2 and 17: a space that is none for parsers.
    if let Some(space) = name.rfind(' ')
        && name[space + 1..].parse::<f64>().is_ok()
    {
        name.replace_range(space..=space, "\u{a0}");
    }
    // They skip lines that look like comments.
    match name.as_str() {
        "" => "(empty)".to_owned(),
        _ if name.starts_with("# ") => name.replacen("# ", "#\u{a0}", 1),
        _ => name,
    }
}

/// The node above all.
pub(super) const ROOT: u32 = 0;

/// A tree of frames under construction. Node 0 is above all.
pub(crate) struct Tree {
    frames: Vec<Frame>,
    frame_ids: IdMap<(FrameKind, String), u32>,
    /// Frame and parent of each node.
    nodes: Vec<(u32, u32)>,
    own: Vec<u64>,
    /// Nodes that stand where they were made, before their siblings.
    placed: Vec<bool>,
    /// By parent and frame.
    children: IdMap<(u32, u32), u32>,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree {
            frames: Vec::new(),
            frame_ids: IdMap::default(),
            nodes: vec![(u32::MAX, ROOT)],
            own: vec![0],
            placed: vec![false],
            children: IdMap::default(),
        }
    }

    pub(super) fn frame(&mut self, kind: FrameKind, text: &str, rank: u32) -> u32 {
        let key = (kind, frame_name(text));
        if let Some(&id) = self.frame_ids.get(&key) {
            return id;
        }
        let id = self.frames.len() as u32;
        self.frames.push(Frame {
            name: key.1.clone(),
            kind,
            source: None,
            rank,
        });
        self.frame_ids.insert(key, id);
        id
    }

    /// Takes a frame that is known to be none of those that it has.
    pub(crate) fn adopt(&mut self, frame: Frame) -> u32 {
        self.frames.push(frame);
        self.frames.len() as u32 - 1
    }

    pub(crate) fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let next = self.nodes.len() as u32;
        let node = *self.children.entry((parent, frame)).or_insert(next);
        if node == next {
            self.push(parent, frame, false);
        }
        node
    }

    /// A new node after all others that were made so, before all that were not.
    pub(crate) fn append(&mut self, parent: u32, frame: u32) -> u32 {
        self.push(parent, frame, true)
    }

    fn push(&mut self, parent: u32, frame: u32, placed: bool) -> u32 {
        self.nodes.push((frame, parent));
        self.own.push(0);
        self.placed.push(placed);
        self.nodes.len() as u32 - 1
    }

    pub(super) fn named(&mut self, parent: u32, kind: FrameKind, text: &str, rank: u32) -> u32 {
        let frame = self.frame(kind, text, rank);
        self.child(parent, frame)
    }

    pub(crate) fn add(&mut self, node: u32, value: u64) {
        let own = &mut self.own[node as usize];
        *own = own.saturating_add(value);
    }

    /// Parents before children, siblings in order, without those that stand for nothing.
    pub(crate) fn in_order(self) -> (Vec<Frame>, Vec<Node>) {
        let Tree {
            frames,
            nodes,
            own,
            placed,
            ..
        } = self;
        // A child is made after its parent: from the end, every child has been seen before its parent.
        let mut alive: Vec<bool> = own.iter().map(|own| *own > 0).collect();
        // Children of one parent in one piece of one list; a list each would be a million allocations.
        let mut starts = vec![0u32; nodes.len() + 1];
        for (index, &(_, parent)) in nodes.iter().enumerate().skip(1).rev() {
            if alive[index] {
                alive[parent as usize] = true;
                starts[parent as usize + 1] += 1;
            }
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut children = vec![0u32; starts.last().copied().unwrap_or_default() as usize];
        let mut ends: Vec<u32> = starts.clone();
        for (index, &(_, parent)) in nodes.iter().enumerate().skip(1) {
            if alive[index] {
                let end = &mut ends[parent as usize];
                children[*end as usize] = index as u32;
                *end += 1;
            }
        }
        let mut position: Vec<u32> = (0..frames.len() as u32).collect();
        position.sort_by(|&a, &b| {
            let (a, b) = (&frames[a as usize], &frames[b as usize]);
            (a.rank, &a.name, a.kind).cmp(&(b.rank, &b.name, b.kind))
        });
        let mut order = vec![0u32; frames.len()];
        for (place, &frame) in position.iter().enumerate() {
            order[frame as usize] = place as u32;
        }
        let mut result = Vec::with_capacity(children.len());
        let mut stack: Vec<(u32, u32)> = Vec::new();
        let mut next = Some((ROOT, 0));
        while let Some((node, depth)) = next {
            if node != ROOT {
                result.push(Node {
                    frame: nodes[node as usize].0,
                    depth: depth - 1,
                    own: own[node as usize],
                });
            }
            let span = starts[node as usize] as usize..starts[node as usize + 1] as usize;
            let siblings = &mut children[span];
            // The last is the first to be taken from the stack.
            siblings.sort_unstable_by_key(|&child| {
                let by = match placed[child as usize] {
                    true => (0, child, child),
                    false => (1, order[nodes[child as usize].0 as usize], child),
                };
                std::cmp::Reverse(by)
            });
            stack.extend(siblings.iter().map(|&child| (child, depth + 1)));
            next = stack.pop();
        }
        (frames, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_cannot_pass_for_something_else() {
        assert_eq!(frame_name("a;b\nc"), "a:b\\nc");
        assert_eq!(frame_name("file 2"), "file\u{a0}2");
        assert_eq!(frame_name("file 2 "), "file\u{a0}2");
        assert_eq!(frame_name("  "), "(empty)");
        assert_eq!(frame_name("# a"), "#\u{a0}a");
    }
}
