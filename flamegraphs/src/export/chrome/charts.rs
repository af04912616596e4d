//! A thread's samples and waits as slices.

use super::slices::{Slice, Told, nested};
use crate::export::timeline::steps;
use crate::fold::FrameKind;
use crate::stacks::{Stacks, Thread};
use crate::svg::legend_name;

/// Samples as a flame chart: a frame lasts as long as it is on consecutive samples.
pub(super) fn samples(stacks: &Stacks, thread: &Thread) -> Vec<Slice> {
    let (steps, end) = steps(stacks, &thread.entries);
    let mut slices: Vec<Slice> = Vec::new();
    let mut open: Vec<(u32, usize)> = Vec::new();
    for step in &steps {
        let path = path(stacks, step.node);
        let same = (open.iter().zip(&path))
            .take_while(|((open, _), frame)| open == *frame)
            .count();
        for (_, slice) in open.drain(same..) {
            slices[slice].end = Some(step.at);
        }
        for &frame in &path[same..] {
            open.push((frame, slices.len()));
            let frame = &stacks.frames[frame as usize];
            let source = frame.source.as_deref();
            let told = Told::new(frame.name.as_str(), legend_name(frame.kind))
                .set("file", source.and_then(|source| source.file.clone()))
                .set("line", source.and_then(|source| source.line));
            slices.push(Slice::new(step.at, step.at, told));
        }
    }
    for (_, slice) in open {
        slices[slice].end = Some(end);
    }
    slices
}

/// Spans in which every sample collected garbage.
pub(super) fn collections(stacks: &Stacks, thread: &Thread) -> Vec<Slice> {
    let (steps, end) = steps(stacks, &thread.entries);
    let mut slices: Vec<Slice> = Vec::new();
    let mut open = false;
    for step in &steps {
        let collects = path(stacks, step.node)
            .iter()
            .any(|&frame| stacks.frames[frame as usize].kind == FrameKind::GarbageCollection);
        if collects && !open {
            let name = legend_name(FrameKind::GarbageCollection);
            slices.push(Slice::new(step.at, end, Told::new(name, name)));
        } else if open
            && !collects
            && let Some(last) = slices.last_mut()
        {
            last.end = Some(step.at);
        }
        open = collects;
    }
    slices
}

/// Waits, each with its reason and its stack.
pub(super) fn waits(stacks: &Stacks, thread: &Thread) -> Vec<Slice> {
    let slices = thread.entries.iter().map(|entry| {
        let node = stacks.nodes[entry.node as usize];
        let reason = &stacks.frames[node.frame as usize].name;
        let mut path = path(stacks, node.parent);
        path.reverse();
        let lines: Vec<&str> = path
            .iter()
            .map(|&frame| stacks.frames[frame as usize].name.as_str())
            .collect();
        let stack = (!lines.is_empty()).then(|| lines.join("\n"));
        let told = Told::new(
            reason.trim_matches(['[', ']']),
            legend_name(FrameKind::Wait),
        );
        let end = entry.at.0.saturating_add(entry.duration.0);
        Slice::new(entry.at.0, end, told.set("stack", stack))
    });
    nested(slices.collect())
}

/// The frames of a stack, outermost first.
fn path(stacks: &Stacks, node: Option<u32>) -> Vec<u32> {
    let nodes = std::iter::successors(node, |&node| stacks.nodes[node as usize].parent);
    let mut path: Vec<u32> = nodes
        .map(|node| stacks.nodes[node as usize].frame)
        .collect();
    path.reverse();
    path
}
