//! Differential flame graphs: the stacks of two groups of runs in one tree, with the change of each frame.
//!
//! Frames of both sides are one if they are the same function of the same file, whatever line it begins in, whichever folder, version or
//! content hash its path has ([`mod@unify`]). Values are means per run. A frame's change is that of all that it has called, too; it is
//! tested over the runs.

mod export;
mod unify;

use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::diff::compare::{LEVEL, adjust, constant_change};
use nodeprof_profile::diff::names::Roots;
use nodeprof_profile::groups::Group;
use nodeprof_profile::recording::RunId;
use nodeprof_profile::statistics::{Moments, Welch};
use nodeprof_profile::{Recording, diff::sides};

use crate::drawn::Drawn;
use crate::fold::{self, About, By, Compared, FoldError, Folded, Frame, Metric, Order, Request};
use crate::hash::IdMap;
use unify::Unifier;

/// Why calls are not nested.
const SIDE_BY_SIDE: &str = "Of some runs it is not known how calls nest (count mode, or events that are not kept any more): all calls stand side by side in their phases.";

/// Runs of one recording.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// Which runs: probed ones, that did not fail.
    pub group: Group,
}

/// Whose values are the widths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Head's; what only base had is kept in view with base's.
    #[default]
    Head,
    /// Base's; what only head has is kept in view with head's.
    Base,
}

/// What is known of a frame's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// The same in all runs of each side, and different.
    Exact,
    /// More than chance explains, all frames considered.
    Significant,
    /// As chance can do, or no change.
    Noise,
    /// Too few runs to measure chance.
    TooFewRuns,
}

/// Values of a frame on one side: means per run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Values {
    /// Without callees.
    pub own: f64,
    /// With them.
    pub sum: f64,
    /// Variance of `sum` over the runs.
    variance: f64,
    least: f64,
    most: f64,
}

/// A frame in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Index into the frames.
    pub frame: u32,
    /// Number of frames below it in its stack.
    pub depth: u32,
    /// Base.
    pub base: Values,
    /// Head.
    pub head: Values,
    /// What is known of the change.
    pub known: Known,
    /// Probability of the change by chance, adjusted for the number of frames.
    pub adjusted_p: Option<f64>,
}

impl Node {
    /// Only head has it.
    pub fn is_new(&self) -> bool {
        self.base.sum == 0.0 && self.head.sum > 0.0
    }

    /// Only base has it.
    pub fn is_elided(&self) -> bool {
        self.head.sum == 0.0 && self.base.sum > 0.0
    }

    /// Head less base, with callees.
    pub fn change(&self) -> f64 {
        self.head.sum - self.base.sum
    }
}

/// Stacks of two groups of runs.
#[derive(Clone, Debug)]
pub struct Differential {
    pub(crate) about: About,
    /// Names of the sides.
    pub(crate) names: [String; 2],
    /// Numbers of runs.
    pub(crate) runs: [usize; 2],
    pub(crate) frames: Vec<Frame>,
    /// Each before its children, siblings in order.
    pub(crate) nodes: Vec<Node>,
}

/// Why there is no differential flame graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DifferentialError {
    /// A side cannot be folded.
    #[error("{name}: {error}")]
    Fold {
        /// Of which side.
        name: String,
        /// Why.
        error: FoldError,
    },
    /// A side has no run that can be used.
    #[error(
        "{name} has no run with probes that ended as the others; needed: one at least; type: nodeprof compare, or nodeprof trace"
    )]
    NoRuns {
        /// Which side.
        name: String,
    },
    /// In order of time nothing can be compared.
    #[error("found: --order time with --diff; needed: --order merged, or no --order")]
    Order,
}

impl Differential {
    /// Folds each run of both sides as the request asks, and puts them together. `varying`: how many counts of these runs vary by themselves
    /// ([`nodeprof_profile::diff::Tests::varying_events`]), which tells whether one that does not is exact.
    pub fn new(
        base: &Side<'_>,
        head: &Side<'_>,
        request: &Request,
        varying: usize,
    ) -> Result<Differential, DifferentialError> {
        if request.order == Order::Time {
            return Err(DifferentialError::Order);
        }
        let timelines = [base, head].map(|side| Timeline::new(side.recording));
        let mut origins = Vec::new();
        for (side, timeline) in [base, head].into_iter().zip(&timelines) {
            if side.group.runs.is_empty() {
                return Err(DifferentialError::NoRuns {
                    name: side.group.name.clone(),
                });
            }
            let runs = side.group.runs.iter();
            origins.extend(runs.map(|run| sides::origin(side.recording, timeline, *run)));
        }
        let roots = Roots::of(&origins);
        // What a side is called depends on its own runs, as if it had a recording of its own.
        let is_one = std::ptr::eq(base.recording, head.recording);
        let [of_base, of_head] = [(base, head, &timelines[0]), (head, base, &timelines[1])].map(
            |(side, other, timeline)| {
                let runs = side.group.runs.iter().copied();
                let beside = other.group.runs.iter().copied().filter(|_| is_one);
                Drawn::new(side.recording, timeline, runs).beside(beside)
            },
        );
        // One form for all runs: frames of stacks and phases have nothing in common.
        let runs = [(base, &of_base), (head, &of_head)]
            .into_iter()
            .flat_map(|(side, drawn)| side.group.runs.iter().map(move |run| (drawn, *run)));
        let form = fold::form_of_all(runs, request.metric);
        // Count mode does not see how calls nest, and of sums it is not known any more.
        let mut summed = [base, head].into_iter().flat_map(|side| {
            let is_counted = |run: &RunId| {
                let run = side.recording.runs.get(run.0 as usize);
                run.is_some_and(fold::is_counted)
            };
            let runs = side.group.runs.iter();
            runs.map(move |run| is_counted(run) || side.recording.is_thinned(*run))
        });
        let first = summed.next();
        let is_of_calls = matches!(request.metric, Metric::Crossings | Metric::CrossingTime);
        let side_by_side = is_of_calls && summed.any(|other| Some(other) != first);
        let request = &Request {
            by: request.by.or(Some(form)),
            ..request.clone()
        };
        // Where one side has something, nothing on the other must be known to be nothing. That is known before anything is folded.
        let mut lacking = Vec::new();
        for (side, drawn) in [(base, &of_base), (head, &of_head)] {
            for run in &side.group.runs {
                let request = Request {
                    run: *run,
                    ..request.clone()
                };
                lacking.push((side, drawn, fold::unrecorded(drawn, &request), request));
            }
        }
        // What all lack is nowhere: half of a graph of times on and off the CPU, say.
        let of_all = lacking
            .iter()
            .all(|(.., families, _)| *families == lacking[0].2);
        let unlike = lacking
            .iter()
            .find(|(.., families, _)| !families.is_empty() && !of_all);
        let has_some = || {
            let mut all = lacking.iter();
            all.any(|(_, drawn, _, of)| of.metric.has_events(drawn, of.run))
        };
        if let Some((side, drawn, _, request)) = unlike
            && has_some()
        {
            return Err(DifferentialError::Fold {
                name: side.group.name.clone(),
                error: fold::nothing(drawn, request),
            });
        }
        let fold = |side: &Side<'_>, drawn: &Drawn<'_>, run: RunId, roots: &Roots| {
            let request = Request {
                run,
                ..request.clone()
            };
            let compared = Compared {
                roots,
                side_by_side,
            };
            match fold::fold_drawn(drawn, &request, Some(compared)) {
                // A run in which there was nothing is one with nothing.
                Err(FoldError::NothingToShow { .. }) => Ok(None),
                Err(error) => Err(DifferentialError::Fold {
                    name: side.group.name.clone(),
                    error,
                }),
                Ok(folded) => Ok(Some(folded)),
            }
        };
        let mut folded: [Vec<Option<Folded>>; 2] = Default::default();
        let mut of_runs = roots.iter();
        for (index, (side, drawn)) in [(base, &of_base), (head, &of_head)].into_iter().enumerate() {
            for (run, roots) in side.group.runs.iter().zip(&mut of_runs) {
                folded[index].push(fold(side, drawn, *run, roots)?);
            }
        }
        let first = folded[1].iter().chain(&folded[0]).flatten().next();
        let Some(mut about) = first.map(|folded| folded.about.clone()) else {
            // There is nothing on either side: the error says so.
            let request = Request {
                run: head.group.runs[0],
                ..request.clone()
            };
            let error = fold::fold_drawn(&of_head, &request, None);
            return Err(DifferentialError::Fold {
                name: head.group.name.clone(),
                error: error.err().unwrap_or(FoldError::NoStacks(request.metric)),
            });
        };
        about.notes.clear();
        if side_by_side {
            about.notes.push(SIDE_BY_SIDE.to_owned());
        }
        let unifier = Unifier::new(&folded, &origins, &roots);
        let mut tree = Merged::new();
        let mut run = 0;
        for (side, folded) in folded.iter().enumerate() {
            for one in folded {
                if let Some(one) = one {
                    tree.add(one, side, unifier.of_run(run));
                }
                run += 1;
            }
        }
        let runs = [folded[0].len(), folded[1].len()];
        let frames = unifier.into_frames();
        let mut nodes = tree.in_order(&frames, runs);
        judge(&mut nodes, runs, varying);
        Ok(Differential {
            about,
            names: [base.group.name.clone(), head.group.name.clone()],
            runs,
            frames,
            nodes,
        })
    }

    /// What is shown, and by what.
    pub fn title(&self) -> String {
        self.titled(&self.about.title())
    }

    /// The same for what is called so.
    pub(crate) fn titled(&self, what: &str) -> String {
        match self.about.by {
            By::Phase => format!("{what}, by phase"),
            By::Stack | By::Module | By::Package => what.to_owned(),
        }
    }

    /// Frames in their places, callers first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The frame of a node.
    pub fn frame(&self, node: &Node) -> &Frame {
        &self.frames[node.frame as usize]
    }

    /// Sums of base and head: means per run.
    pub fn totals(&self) -> (f64, f64) {
        let sum = |of: fn(&Node) -> f64| self.nodes.iter().map(of).sum();
        (sum(|node| node.base.own), sum(|node| node.head.own))
    }

    /// What to know before looking at it, in whole sentences.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.about.notes.clone();
        if self.runs.contains(&1) {
            let which = match self.runs {
                [1, 1] => "one run a side".to_owned(),
                [1, _] => format!("one run of {}", self.names[0]),
                _ => format!("one run of {}", self.names[1]),
            };
            notes.push(format!(
                "There is {which} only: it is not known which changes are chance, and none is grey for that."
            ));
        }
        notes
    }
}

/// Frames that are on average narrower than this part of the whole are not tested, unless they never vary: thousands of tests of what
/// nobody sees would leave no frame significant.
const TESTED: f64 = 0.002;

/// Which changes are more than chance.
fn judge(nodes: &mut [Node], runs: [usize; 2], varying: usize) {
    let whole: f64 = nodes.iter().map(|node| node.base.own + node.head.own).sum();
    let moments = |values: &Values, count: usize| Moments {
        count,
        mean: values.sum,
        variance: values.variance,
    };
    let exact = constant_change(varying, runs[0], runs[1]).is_known();
    let mut p: Vec<Option<f64>> = Vec::with_capacity(nodes.len());
    for node in nodes.iter_mut() {
        let constant = |values: &Values| values.least == values.most;
        let test = Welch::of_moments(moments(&node.base, runs[0]), moments(&node.head, runs[1]));
        node.known = match test {
            _ if node.change() == 0.0 => Known::Noise,
            Some(_) => Known::Noise,
            None if constant(&node.base) && constant(&node.head) && exact => Known::Exact,
            None => Known::TooFewRuns,
        };
        let seen = node.base.sum + node.head.sum >= whole * TESTED;
        p.push(
            test.map(|test| test.p)
                .filter(|_| seen && node.change() != 0.0),
        );
    }
    adjust(
        nodes
            .iter_mut()
            .zip(&p)
            .filter_map(|(node, p)| Some(((*p)?, &mut node.adjusted_p))),
    );
    for node in nodes {
        if node.adjusted_p.is_some_and(|p| p < LEVEL) {
            node.known = Known::Significant;
        }
    }
}

/// One tree for all runs.
struct Merged {
    /// Frame and parent.
    nodes: Vec<(u32, u32)>,
    children: IdMap<(u32, u32), u32>,
    /// By node and side: sum of own values, sum and sum of squares of values with callees, least, most, runs.
    sums: Vec<[Sums; 2]>,
    /// Of the run that is being added.
    run: Vec<f64>,
    touched: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Sums {
    own: f64,
    sum: f64,
    squares: f64,
    least: f64,
    most: f64,
    runs: usize,
}

const NO_RUNS: Sums = Sums {
    own: 0.0,
    sum: 0.0,
    squares: 0.0,
    least: f64::INFINITY,
    most: 0.0,
    runs: 0,
};

/// The node above all.
const ROOT: u32 = 0;

impl Merged {
    fn new() -> Merged {
        Merged {
            nodes: vec![(u32::MAX, ROOT)],
            children: IdMap::default(),
            sums: vec![[NO_RUNS; 2]],
            run: vec![0.0],
            touched: Vec::new(),
        }
    }

    fn add(&mut self, folded: &Folded, side: usize, ids: &[u32]) {
        let mut path: Vec<u32> = Vec::new();
        for node in &folded.nodes {
            path.truncate(node.depth as usize);
            let parent = path.last().copied().unwrap_or(ROOT);
            let frame = ids[node.frame as usize];
            let next = self.nodes.len() as u32;
            let index = *self.children.entry((parent, frame)).or_insert(next);
            if index == next {
                self.nodes.push((frame, parent));
                self.sums.push([NO_RUNS; 2]);
                self.run.push(0.0);
            }
            self.sums[index as usize][side].own += node.own as f64;
            if self.run[index as usize] == 0.0 {
                self.touched.push(index);
            }
            // Two siblings of this run can be one frame here: both count.
            self.run[index as usize] += node.own as f64;
            path.push(index);
        }
        // Callees were made after their callers.
        self.touched.sort_unstable();
        self.touched.dedup();
        let mut touched = std::mem::take(&mut self.touched);
        for &index in touched.iter().rev() {
            let value = std::mem::take(&mut self.run[index as usize]);
            let parent = self.nodes[index as usize].1;
            if parent != ROOT {
                self.run[parent as usize] += value;
            }
            let sums = &mut self.sums[index as usize][side];
            sums.sum += value;
            sums.squares += value * value;
            sums.least = sums.least.min(value);
            sums.most = sums.most.max(value);
            sums.runs += 1;
        }
        touched.clear();
        self.touched = touched;
    }

    /// Parents before children, siblings in order of their names.
    fn in_order(self, frames: &[Frame], runs: [usize; 2]) -> Vec<Node> {
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (index, (_, parent)) in self.nodes.iter().enumerate().skip(1) {
            children[*parent as usize].push(index as u32);
        }
        let key = |index: &u32| {
            let frame = self.nodes[*index as usize].0;
            let of = &frames[frame as usize];
            (of.rank, of.name.as_str(), of.kind, frame)
        };
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let mut stack: Vec<(u32, u32)> = Vec::new();
        let mut next = Some((ROOT, 0));
        while let Some((index, depth)) = next {
            if index != ROOT {
                let [base, head] = self.sums[index as usize];
                let node = Node {
                    frame: self.nodes[index as usize].0,
                    depth: depth - 1,
                    base: values(base, runs[0]),
                    head: values(head, runs[1]),
                    known: Known::Noise,
                    adjusted_p: None,
                };
                if node.base.sum > 0.0 || node.head.sum > 0.0 {
                    nodes.push(node);
                }
            }
            let siblings = &mut children[index as usize];
            siblings.sort_unstable_by(|a, b| key(b).cmp(&key(a)));
            stack.extend(siblings.iter().map(|child| (*child, depth + 1)));
            next = stack.pop();
        }
        nodes
    }
}

/// Means per run, of which some may not have had the frame at all.
fn values(sums: Sums, runs: usize) -> Values {
    let count = runs.max(1) as f64;
    let mean = sums.sum / count;
    let variance = match runs {
        0 | 1 => 0.0,
        // Rounding can make it negative.
        _ => ((sums.squares - count * mean * mean) / (count - 1.0)).max(0.0),
    };
    let all = sums.runs >= runs;
    let least = if all { sums.least } else { 0.0 };
    Values {
        own: sums.own / count,
        sum: mean,
        // What never varies has no variance, whatever rounding says.
        variance: if least == sums.most { 0.0 } else { variance },
        least: if least.is_finite() { least } else { 0.0 },
        most: sums.most,
    }
}
