//! Where each frame stands.

use crate::fold::{Folded, FrameKind};

/// A frame to draw. Horizontal positions are in the metric's unit.
pub(super) struct Shape {
    /// Index into the frames; `None` for the one around all.
    pub(super) frame: Option<u32>,
    pub(super) depth: u32,
    pub(super) start: u64,
    pub(super) sum: u64,
    /// Without callees.
    pub(super) own: u64,
}

pub(super) struct Layout {
    /// Callers before callees, from left to right.
    pub(super) boxes: Vec<Shape>,
    /// Height, in frames.
    pub(super) rows: usize,
    pub(super) total: u64,
    /// The kinds that are drawn, in order, with the sum of their frames without callees.
    pub(super) kinds: Vec<(FrameKind, u64)>,
}

/// `least`: frames narrower than this part of the whole, in millionths, are left out.
pub(super) fn layout(folded: &Folded, least: u32) -> Layout {
    let nodes = &folded.nodes;
    let kind = |index: usize| folded.frames()[nodes[index].frame as usize].kind;
    let mut sums: Vec<u64> = nodes.iter().map(|node| node.own).collect();
    let mut owns = sums.clone();
    let mut parents: Vec<Option<usize>> = Vec::with_capacity(nodes.len());
    let mut path: Vec<usize> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        path.truncate(node.depth as usize);
        parents.push(path.last().copied());
        path.push(index);
    }
    for index in (0..nodes.len()).rev() {
        if let Some(parent) = parents[index] {
            sums[parent] = sums[parent].saturating_add(sums[index]);
            if kind(index) == FrameKind::Between {
                owns[parent] = owns[parent].saturating_add(owns[index]);
            }
        }
    }
    let total = folded.total();
    let mut layout = Layout {
        boxes: vec![Shape {
            frame: None,
            depth: 0,
            start: 0,
            sum: total,
            own: 0,
        }],
        rows: 1,
        total,
        kinds: Vec::new(),
    };
    // Where the next callee of each node begins; and of all.
    let mut cursors = vec![0u64; nodes.len()];
    let mut cursor = 0;
    for (index, node) in nodes.iter().enumerate() {
        let next = match parents[index] {
            Some(parent) => &mut cursors[parent],
            None => &mut cursor,
        };
        let start = *next;
        *next = next.saturating_add(sums[index]);
        cursors[index] = start;
        let kind = kind(index);
        if kind == FrameKind::Between {
            continue;
        }
        match layout.kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, own)) => *own = own.saturating_add(owns[index]),
            None => layout.kinds.push((kind, owns[index])),
        }
        if u128::from(sums[index]) * 1_000_000 >= u128::from(total) * u128::from(least) {
            let depth = node.depth + 1;
            layout.rows = layout.rows.max(depth as usize + 1);
            layout.boxes.push(Shape {
                frame: Some(node.frame),
                depth,
                start,
                sum: sums[index],
                own: owns[index],
            });
        }
    }
    layout.kinds.sort();
    layout
}
