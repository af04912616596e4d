//! The tree that events are folded into: ids instead of strings, so that a million of them take a third of a second.

use super::folded::{Frame, FrameKind, Node};
use crate::hash::IdMap;
use crate::paths::printable;

/// A name that cannot be taken for two frames, or for a frame and a number.
pub(super) fn frame_name(text: &str) -> String {
    let mut name = printable(text).replace(';', ":");
    // `file 2 17` would be read as the stack `file` with the counts 2 and 17: a space that is none for parsers.
    if let Some(space) = name.rfind(' ')
        && name[space + 1..].parse::<f64>().is_ok()
    {
        name.replace_range(space..=space, "\u{a0}");
    }
    // inferno and flamegraph.pl skip lines that look like comments, and trim them.
    let trimmed = name.trim();
    match trimmed {
        "" => "(empty)".to_owned(),
        _ if trimmed.starts_with("# ") => trimmed.replacen("# ", "#\u{a0}", 1),
        _ => trimmed.to_owned(),
    }
}

/// The node above all.
pub(super) const ROOT: u32 = 0;

/// A tree of frames under construction. Node 0 is above all.
pub(super) struct Tree {
    frames: Vec<Frame>,
    frame_ids: IdMap<(FrameKind, String), u32>,
    /// Frame and parent of each node.
    nodes: Vec<(u32, u32)>,
    own: Vec<u64>,
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
            rank,
        });
        self.frame_ids.insert(key, id);
        id
    }

    pub(super) fn child(&mut self, parent: u32, frame: u32) -> u32 {
        let next = self.nodes.len() as u32;
        let node = *self.children.entry((parent, frame)).or_insert(next);
        if node == next {
            self.nodes.push((frame, parent));
            self.own.push(0);
        }
        node
    }

    pub(super) fn named(&mut self, parent: u32, kind: FrameKind, text: &str, rank: u32) -> u32 {
        let frame = self.frame(kind, text, rank);
        self.child(parent, frame)
    }

    pub(super) fn add(&mut self, node: u32, value: u64) {
        let own = &mut self.own[node as usize];
        *own = own.saturating_add(value);
    }

    /// Parents before children, siblings in order, without those that stand for nothing.
    pub(super) fn in_order(self) -> (Vec<Frame>, Vec<Node>) {
        let Tree {
            frames, nodes, own, ..
        } = self;
        // A child is made after its parent: from the end, every child has been seen before its parent.
        let mut alive: Vec<bool> = own.iter().map(|own| *own > 0).collect();
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        for (index, &(_, parent)) in nodes.iter().enumerate().skip(1).rev() {
            if alive[index] {
                alive[parent as usize] = true;
                children[parent as usize].push(index as u32);
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
        for list in &mut children {
            list.sort_by_key(|&child| std::cmp::Reverse(order[nodes[child as usize].0 as usize]));
        }
        let mut result = Vec::with_capacity(nodes.len());
        let mut stack: Vec<(u32, u32)> = children[0].iter().map(|&child| (child, 0)).collect();
        while let Some((node, depth)) = stack.pop() {
            result.push(Node {
                frame: nodes[node as usize].0,
                depth,
                own: own[node as usize],
            });
            stack.extend(
                children[node as usize]
                    .iter()
                    .map(|&child| (child, depth + 1)),
            );
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
        assert_eq!(frame_name("  "), "(empty)");
        assert_eq!(frame_name("# a"), "#\u{a0}a");
    }
}
