//! Differential flame graphs as columns.

use nodeprof_profile::groups::Group;
use serde::Serialize;

use super::Side;
use super::columns::{Column, Columns};
use super::events::key;
use crate::differential::{self, Differential, Known};
use crate::fold::{By, Metric, Request};
use crate::svg::legend_name;

/// Stacks of both sides by one metric.
#[derive(Debug, Serialize)]
pub(super) struct Of {
    metric: &'static str,
    title: String,
    unit: &'static str,
    runs: [usize; 2],
    notes: Vec<String>,
    kinds: Vec<(&'static str, &'static str)>,
    names: Vec<String>,
    files: Vec<Option<String>>,
    lines: Vec<Option<u32>>,
    frame_kinds: Vec<usize>,
    frame: Column,
    depth: Column,
    base_own: Column,
    head_own: Column,
    known: Column,
    adjusted_p: Column,
}

/// What is compared: not the sum of two others, nor what differs from run to run in every frame.
const METRICS: [Metric; 9] = [
    Metric::Cpu,
    Metric::OffCpu,
    Metric::Crossings,
    Metric::CrossingTime,
    Metric::Serialization,
    Metric::Files,
    Metric::FileTime,
    Metric::PackageJson,
    Metric::Compile,
];

/// Of all metrics that both sides have; says why others are missing.
pub(super) fn all(
    base: (&Side<'_>, Group),
    head: (&Side<'_>, Group),
    varying: usize,
    columns: &mut Columns,
) -> (Vec<Of>, Vec<String>) {
    let [base, head] = [base, head].map(|(side, group)| differential::Side {
        recording: side.recording,
        group,
    });
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for metric in METRICS {
        // Where a run has none by stack, all are by phase: one tree holds either.
        let by = |form| {
            let request = Request {
                by: Some(form),
                ..Request::new(metric)
            };
            Differential::new(&base, &head, &request, varying)
        };
        let differential = by(By::Stack).or_else(|_| by(By::Phase));
        match differential {
            Ok(differential) => found.push(of(&differential, metric, columns)),
            Err(error) => missing.push(format!("{}: {error}", metric.title())),
        }
    }
    (found, missing)
}

fn of(differential: &Differential, metric: Metric, columns: &mut Columns) -> Of {
    let mut kinds = Vec::new();
    let frames = &differential.frames;
    let source = |index: usize| frames[index].source.as_deref();
    let frame_kinds = frames.iter().map(|frame| {
        let known = kinds.iter().position(|kind| *kind == frame.kind);
        known.unwrap_or_else(|| {
            kinds.push(frame.kind);
            kinds.len() - 1
        })
    });
    let frame_kinds = frame_kinds.collect();
    let nodes = differential.nodes();
    Of {
        metric: metric.name(),
        title: differential.titled(metric.title()),
        unit: metric.unit().name(),
        runs: differential.runs,
        notes: differential.notes(),
        kinds: kinds
            .iter()
            .map(|kind| (key(*kind), legend_name(*kind)))
            .collect(),
        names: frames.iter().map(|frame| frame.name.clone()).collect(),
        files: (0..frames.len())
            .map(|at| source(at)?.file.clone())
            .collect(),
        lines: (0..frames.len()).map(|at| source(at)?.line).collect(),
        frame_kinds,
        frame: columns.integers(nodes.iter().map(|node| node.frame.into())),
        depth: columns.differences(nodes.iter().map(|node| node.depth.into())),
        base_own: columns.floats(nodes.iter().map(|node| node.base.own)),
        head_own: columns.floats(nodes.iter().map(|node| node.head.own)),
        known: columns.integers(nodes.iter().map(|node| match node.known {
            Known::Exact => 0,
            Known::Significant => 1,
            Known::Noise => 2,
            Known::TooFewRuns => 3,
        })),
        adjusted_p: columns.floats(nodes.iter().map(|node| node.adjusted_p.unwrap_or(f64::NAN))),
    }
}
