//! Why head takes longer, or less: the parts of a run whose time changed, the largest first.
//!
//! Every moment of a thread that runs JavaScript belongs to one module and one step (find, read, compile, execute), or to a
//! bucket outside of all modules ([`crate::modules`]). So the changes of these cells add up to the change of the whole. A change is
//! explained by what holds most of it: one module, one package, or one step in all modules (a lost compile cache, deeper folders). The
//! cells of what was chosen are taken out, and what holds most of the rest comes next: no moment counts twice.

mod counts;

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::compare::{self, Certainty, Change};
use super::figures::{List, Part, Unit};
use super::sides::Sides;
use super::statements::modes_alike;
use super::verdict::{Answer, Verdict};
use super::{ADDED, Key, NO_LONGER_COMPILED, NOW_COMPILED, known_presence, words};
use crate::RunProfile;
use crate::report::CallbackProfile;

/// What is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// A package.
    Package,
    /// A module.
    Module,
    /// Finding the files of modules.
    Resolution,
    /// Reading package.json files.
    PackageJson,
    /// Reading the files of modules.
    Reading,
    /// Compiling modules.
    Compilation,
    /// What no module is to blame for: a bucket of `outside`.
    Outside,
    /// A phase, where modules are not known; without compilations where those have times.
    Phase,
    /// Compiling one script, where modules are not known.
    Script,
    /// A C++ function that is called more or less often, where modules are not known.
    Callback,
}

/// A part of the run whose time changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cause {
    /// What is to blame.
    pub kind: CauseKind,
    /// Its name: a package, module, bucket or phase.
    pub name: String,
    /// It is in head only, or in base only; of built-in modules, that it is compiled there only.
    pub presence: Option<&'static str>,
    /// Time of it in base, without what causes that were found before it hold: median, ns.
    pub base_ns: f64,
    /// In head.
    pub head_ns: f64,
    /// What it adds to the time of head, ns: `head_ns` less `base_ns`.
    pub change_ns: f64,
    /// Share of the change of the probed runs' wall time, where that is significant.
    pub share: Option<f64>,
    /// What is known of the change, or, of what came or went, of that.
    pub certainty: Certainty,
    /// Probability by chance, adjusted for the number of parts that were looked at.
    pub adjusted_p: Option<f64>,
    /// All that in a sentence.
    pub sentence: String,
}

/// Of the change of a bundle's count, from which share on a package in it has all of it,
const NEARLY_ALL: f64 = 0.95;
/// and from which on it is named at all,
const WORTH_A_WORD: f64 = 0.1;
/// but no more than so many.
const MOST_PACKAGES: usize = 3;

/// Steps of loading, in the order of the cells.
const STEPS: [(&str, Option<CauseKind>); 4] = [
    ("resolve_ns", Some(CauseKind::Resolution)),
    ("read_ns", Some(CauseKind::Reading)),
    ("compile_ns", Some(CauseKind::Compilation)),
    // Of one module or package, never of all.
    ("execute_ns", None),
];
const RESOLVE: usize = 0;
const COMPILE: usize = 2;

/// C++ functions that read package.json files: the first up to Node 21.4, the others from then on.
const READERS: [&str; 6] = [
    "InternalModuleReadJSON",
    "ReadPackageJSON",
    "GetNearestParentPackageJSON",
    "GetNearestParentPackageJSONType",
    "GetPackageScopeConfig",
    "GetPackageType",
];

/// Changes below this say nothing, ns.
const LEAST_NS: f64 = 50_000.0;
/// Nor do those below this share of the wall time of base,
const LEAST_OF_WALL: f64 = 0.002;
/// nor those below this share of the largest.
const LEAST_SHARE: f64 = 0.05;
/// More than these nobody reads.
const MOST: usize = 12;
/// One module that holds this much of its package's change, or of a step's, is to blame, not the whole.
const ONE_OF_MANY: f64 = 0.75;
/// Of the change of a count that scatters, what the medians of its parts may leave over.
const SCATTER: f64 = 0.1;
/// The same for package.json files within the search for files,
const READER_SHARE: f64 = 0.5;
/// or a file that grew by so many bytes: most of their cost can be in JavaScript, which parses them.
const GROWN_BYTES: f64 = 32_768.0;
/// With fewer runs a side, that no difference of time was found says nothing: none could be.
const FEWEST_RUNS: usize = 10;
/// Causes that only counts tell.
const MOST_OF_COUNTS: usize = 5;
/// Collections moved where all modules together have changed by no more than this share of what one did.
const MOVED: f64 = 0.25;
/// C++ functions besides.
const MOST_OF_CALLBACKS: usize = 3;
/// Scripts besides, where their times are no part of the main thread's.
const MOST_OF_SCRIPTS: usize = 3;

/// A time by run on both sides.
#[derive(Clone, Debug, Default)]
struct Series {
    base: Vec<f64>,
    head: Vec<f64>,
}

impl Series {
    fn of(sides: &Sides<'_>, list: List, row: usize, field: usize) -> Series {
        let (base, head) = sides.values(list, row, field);
        Series { base, head }
    }

    fn add(&mut self, other: &Series) {
        for (sums, values) in [(&mut self.base, &other.base), (&mut self.head, &other.head)] {
            if sums.is_empty() {
                sums.clone_from(values);
            } else {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += value;
                }
            }
        }
    }

    fn subtract(&mut self, other: &Series) {
        for (rests, values) in [(&mut self.base, &other.base), (&mut self.head, &other.head)] {
            for (rest, value) in rests.iter_mut().zip(values) {
                *rest -= value;
            }
        }
    }

    fn change(&self) -> f64 {
        median(&self.head) - median(&self.base)
    }

    /// Of base and head; `None` if one of them is not known.
    fn medians(&self) -> Option<(f64, f64)> {
        let [base, head] = [&self.base, &self.head].map(|of| compare::Spread::of(of));
        Some((base?.median, head?.median))
    }
}

/// What is looked at to find modules: on both sides, and how much of the difference is not of package.json files.
struct Searches {
    base: f64,
    head: f64,
    change: f64,
    /// They are calls of the C++ function that looks, not stats.
    by_calls: bool,
}

fn median(values: &[f64]) -> f64 {
    compare::Spread::of(values).map_or(0.0, |spread| spread.median)
}

/// Whether all that was compiled was compiled by the main thread: one node, without workers.
fn compiles_alone(run: &RunProfile) -> bool {
    let nodes = run
        .processes
        .iter()
        .filter(|process| process.node.is_some());
    let known = ["on", "partial"];
    let crossings = (run.families.iter())
        .any(|of| of.name == "crossings" && known.contains(&of.state.as_str()));
    let works = |callback: &CallbackProfile| callback.function.ends_with("Worker::StartThread");
    crossings && nodes.count() <= 1 && !run.crossings.callbacks.iter().any(works)
}

/// Something that can be to blame.
struct Candidate {
    kind: CauseKind,
    name: String,
    /// Row of its list; of no meaning for steps.
    row: usize,
    series: Series,
    /// Indices of the cells that it consists of.
    cells: Vec<usize>,
    /// Sum of those that no cause holds yet.
    left: Series,
    /// A cause holds some of them.
    partly: bool,
    certainty: Certainty,
    adjusted_p: Option<f64>,
    presence: Option<&'static str>,
}

impl Candidate {
    /// With too few runs to measure chance, what came or went is the only cause that can be told.
    fn is_sure(&self) -> bool {
        self.certainty.is_known() || self.presence.is_some()
    }

    /// Its time that no cause holds, and words of what time that is.
    fn time_left(&self) -> (&Series, &'static str) {
        (&self.left, if self.partly { BESIDES } else { "" })
    }
}

/// Causes that were found before hold some of its time.
const BESIDES: &str = " besides other causes";

/// One moment's owner: a module and step, a bucket, or a phase.
struct Cell {
    series: Series,
    /// A cause holds it.
    taken: bool,
    /// Index into [`STEPS`], of modules.
    step: Option<usize>,
}

struct Search<'a> {
    sides: &'a Sides<'a>,
    cells: Vec<Cell>,
    candidates: Vec<Candidate>,
    /// Index of the candidate of a kind and row.
    of_row: HashMap<(CauseKind, usize), usize>,
    /// Time in the functions that read package.json files: a part of the search for files.
    readers: Series,
    /// Modules are not known: phases and scripts are looked at in their place.
    of_phases: bool,
    /// Phases are without the compilations in them.
    scripts_apart: bool,
    /// Changes that are too small to matter, ns.
    least: f64,
}

/// The causes of a change, the largest first.
pub fn causes(
    sides: &Sides<'_>,
    changes: &[Change],
    keys: &[Key],
    verdict: &Verdict,
) -> Vec<Cause> {
    let mut search = Search {
        sides,
        cells: Vec::new(),
        candidates: Vec::new(),
        of_row: HashMap::new(),
        readers: Series::default(),
        of_phases: false,
        scripts_apart: false,
        least: LEAST_NS,
    };
    let of_side = |runs: &[usize]| median(&sides.figures.scalar("time.wall_ns", runs));
    let base_wall = of_side(&sides.base.probed);
    let wall = of_side(&sides.head.probed) - base_wall;
    search.least = LEAST_NS.max(base_wall * LEAST_OF_WALL);
    // Probes that cost other times would be the cause of most.
    if modes_alike(sides) {
        search.collect();
    }
    search.judge(changes, keys);
    let told = matches!(verdict.answer, Answer::Faster | Answer::Slower);
    let mut causes = Vec::new();
    let mut largest = 0.0f64;
    while causes.len() < MOST {
        let least = search.least.max(largest * LEAST_SHARE);
        let Some(mut choice) = search.next(least) else {
            break;
        };
        choice.package_json &= !causes.iter().any(|cause| is_step(cause, PACKAGE_JSON));
        let change = choice.change;
        if change.abs() < least {
            break;
        }
        largest = largest.max(change.abs());
        let share = (told && wall != 0.0 && (wall > 0.0) == (change > 0.0)).then(|| change / wall);
        causes.push(search.cause(&choice, share));
        search.take(choice.index);
    }
    let runs = match verdict.bare {
        true => sides.base.bare.len().min(sides.head.bare.len()),
        false => sides.base.probed.len().min(sides.head.probed.len()),
    };
    if !matches!(verdict.answer, Answer::Alike | Answer::NoDifference) || runs < FEWEST_RUNS {
        let of_counts = search.of_counts(changes, keys, &causes);
        causes.extend(of_counts);
        return causes;
    }
    // The whole takes as long as before. Parts whose time changed make up for one another, as when the garbage collector runs in another
    // module; what Node does more or less often in all modules is the change.
    let (steps, mut parts): (Vec<Cause>, Vec<Cause>) =
        (causes.into_iter()).partition(|cause| STEPS_OF_COUNTS.contains(&cause.kind));
    let (mut causes, modules): (Vec<Cause>, Vec<Cause>) =
        (search.of_counts(changes, keys, &parts).into_iter())
            .partition(|cause| STEPS_OF_COUNTS.contains(&cause.kind));
    // Of those whose time changed, too, that is told.
    for step in steps {
        match causes.iter_mut().find(|cause| is_step(cause, step.kind)) {
            Some(cause) => *cause = step,
            None => parts.push(step),
        }
    }
    parts.sort_by(|a, b| b.change_ns.abs().total_cmp(&a.change_ns.abs()));
    // What came or went comes before all.
    let (mut ordered, parts): (Vec<Cause>, Vec<Cause>) =
        (parts.into_iter()).partition(|part| part.presence.is_some());
    ordered.append(&mut causes);
    ordered.extend(parts);
    ordered.extend(modules);
    ordered
}

const PACKAGE_JSON: CauseKind = CauseKind::PackageJson;
/// Steps of which counts can tell by themselves that they changed.
const STEPS_OF_COUNTS: [CauseKind; 3] =
    [CauseKind::Compilation, CauseKind::Resolution, PACKAGE_JSON];

/// It is this step.
fn is_step(cause: &Cause, kind: CauseKind) -> bool {
    cause.kind == kind && STEPS_OF_COUNTS.contains(&kind)
}

/// What explains most of what is left.
struct Choice {
    /// Index of the candidate.
    index: usize,
    /// What is left of it.
    change: f64,
    /// It is package.json files that took the time.
    package_json: bool,
}

impl Search<'_> {
    fn collect(&mut self) {
        let sides = self.sides;
        let modules = sides.figures.table(List::Modules);
        let (base, head) = (&sides.base.probed, &sides.head.probed);
        let both =
            |list| sides.figures.recorded(list, "", base) && sides.figures.recorded(list, "", head);
        if !both(List::Modules) || base.is_empty() || head.is_empty() {
            self.phases();
            return;
        }
        let fields = STEPS.map(|(name, _)| List::Modules.field(name).unwrap_or_default());
        let mut steps: Vec<(Series, Vec<usize>)> = vec![Default::default(); STEPS.len()];
        let packages = sides.figures.table(List::Packages);
        let mut of_package: Vec<Vec<usize>> = vec![Vec::new(); packages.names.len()];
        let self_ns = List::Modules.field("self_ns").unwrap_or_default();
        for (row, name) in modules.names.iter().enumerate() {
            let first = self.cells.len();
            for (step, field) in fields.iter().enumerate() {
                let series = Series::of(sides, List::Modules, row, *field);
                // Modules that are built into node have no file to find: until they are compiled, node does other things.
                let has_step = step != RESOLVE || !is_builtin(name);
                if has_step {
                    steps[step].0.add(&series);
                    steps[step].1.push(first + step);
                }
                self.cells.push(Cell {
                    series,
                    taken: false,
                    step: has_step.then_some(step),
                });
            }
            let cells: Vec<usize> = (first..self.cells.len()).collect();
            let package = sides.figures.package_of.get(name);
            if let Some(package) = package.and_then(|package| packages.find(package)) {
                of_package[package].extend(&cells);
            }
            let series = Series::of(sides, List::Modules, row, self_ns);
            self.add(CauseKind::Module, name, row, series, cells);
        }
        let self_ns = List::Packages.field("self_ns").unwrap_or_default();
        for (row, cells) in of_package.into_iter().enumerate() {
            let series = Series::of(sides, List::Packages, row, self_ns);
            self.add(CauseKind::Package, &packages.names[row], row, series, cells);
        }
        for ((_, kind), (series, cells)) in STEPS.into_iter().zip(steps) {
            if let Some(kind) = kind {
                self.add(kind, "", 0, series, cells);
            }
        }
        let outside = sides.figures.table(List::Outside);
        for (row, name) in outside.names.iter().enumerate() {
            // Time of other threads: nobody waits for it.
            if name != "helper_threads" && name != "other_programs" {
                self.whole(List::Outside, row, CauseKind::Outside, name, 0);
            }
        }
        self.readers();
    }

    fn phases(&mut self) {
        self.of_phases = true;
        self.scripts();
        let phases = self.sides.figures.table(List::Phases);
        let field = |name| List::Phases.field(name).unwrap_or_default();
        let (duration, compile) = (field("duration_ns"), field("compile_ns"));
        for (row, name) in phases.names.iter().enumerate() {
            let mut series = Series::of(self.sides, List::Phases, row, duration);
            if self.scripts_apart {
                series.subtract(&Series::of(self.sides, List::Phases, row, compile));
            }
            self.alone(CauseKind::Phase, name, row, series);
        }
    }

    /// Compilations, which have their times also where calls are only counted.
    fn scripts(&mut self) {
        let scripts = self.sides.figures.table(List::Scripts);
        let sides = [&self.sides.base.probed, &self.sides.head.probed];
        let timed = |runs: &[usize]| {
            let figures = &self.sides.figures;
            figures.recorded(List::Scripts, "self_ns", runs)
                && figures.recorded(List::Phases, "compile_ns", runs)
        };
        let alone = |runs: &[usize]| runs.iter().all(|run| compiles_alone(self.sides.runs[*run]));
        if scripts.names.is_empty() || !sides.into_iter().all(|runs| timed(runs) && alone(runs)) {
            return;
        }
        self.scripts_apart = true;
        let field = List::Scripts.field("self_ns").unwrap_or_default();
        let mut all = (Series::default(), Vec::new());
        for (row, name) in scripts.names.iter().enumerate() {
            let series = Series::of(self.sides, List::Scripts, row, field);
            all.0.add(&series);
            all.1.push(self.cells.len());
            self.alone(CauseKind::Script, name, row, series);
        }
        for cell in &all.1 {
            self.cells[*cell].step = Some(COMPILE);
        }
        self.add(CauseKind::Compilation, "", 0, all.0, all.1);
    }

    /// A candidate with one cell of its own.
    fn whole(&mut self, list: List, row: usize, kind: CauseKind, name: &str, field: usize) {
        let series = Series::of(self.sides, list, row, field);
        self.alone(kind, name, row, series);
    }

    /// The same with these times.
    fn alone(&mut self, kind: CauseKind, name: &str, row: usize, series: Series) {
        self.cells.push(Cell {
            series: series.clone(),
            taken: false,
            step: None,
        });
        let cell = self.cells.len() - 1;
        self.add(kind, name, row, series, vec![cell]);
    }

    fn add(&mut self, kind: CauseKind, name: &str, row: usize, series: Series, cells: Vec<usize>) {
        let mut left = Series::default();
        for cell in &cells {
            left.add(&self.cells[*cell].series);
        }
        self.of_row.insert((kind, row), self.candidates.len());
        self.candidates.push(Candidate {
            kind,
            name: name.to_owned(),
            row,
            series,
            cells,
            left,
            partly: false,
            certainty: Certainty::Noise,
            adjusted_p: None,
            presence: None,
        });
    }

    fn candidate(&self, kind: CauseKind, row: usize) -> Option<&Candidate> {
        let index = self.of_row.get(&(kind, row))?;
        self.candidates.get(*index)
    }

    /// The time in the functions that read package.json: a part of the search for files.
    fn readers(&mut self) {
        let table = self.sides.figures.table(List::Callbacks);
        let field = List::Callbacks.field("self_ns").unwrap_or_default();
        let mut series = Series::default();
        for (row, name) in table.names.iter().enumerate() {
            if READERS.contains(&function_of(name)) {
                series.add(&Series::of(self.sides, List::Callbacks, row, field));
            }
        }
        self.readers = series;
    }

    /// Which changes are more than chance: of those that are large enough to matter at all.
    fn judge(&mut self, changes: &[Change], keys: &[Key]) {
        for (change, key) in changes.iter().zip(keys) {
            let kind = match key.list {
                List::Modules => CauseKind::Module,
                List::Packages => CauseKind::Package,
                List::Scripts if self.of_phases => CauseKind::Script,
                _ => continue,
            };
            let field = key.list.fields()[key.field];
            let present = match kind {
                CauseKind::Script => field == "compilations",
                _ => field == "modules",
            };
            let Some(presence) = change.presence().filter(|_| present) else {
                continue;
            };
            let index = self.of_row.get(&(kind, key.row)).copied();
            if let Some(candidate) = index.and_then(|index| self.candidates.get_mut(index)) {
                candidate.presence = Some(known_presence(self.sides, &candidate.name, presence));
                candidate.certainty = change.certainty;
            }
        }
        self.test(false);
    }

    /// Tests the times of all candidates, of some of which causes hold a part; `rests`: tells what that says of these alone.
    fn test(&mut self, rests: bool) {
        let least = self.least;
        let mut tested: Vec<(&mut Candidate, Change)> = (self.candidates.iter_mut())
            .filter_map(|candidate| {
                let time = match rests {
                    true => &candidate.left,
                    false => &candidate.series,
                };
                if time.change().abs() < least {
                    return None;
                }
                let change = Change::new(String::new(), Unit::Ns, &time.base, &time.head);
                Some((candidate, change))
            })
            .collect();
        compare::adjust(tested.iter_mut().filter_map(|(_, change)| {
            let p = change.p?;
            Some((p, &mut change.adjusted_p))
        }));
        for (candidate, change) in tested {
            if rests && !candidate.partly {
                continue;
            }
            candidate.adjusted_p = change.adjusted_p;
            if candidate.presence.is_some() {
                continue; // added or removed: exact
            }
            candidate.certainty = match change.adjusted_p {
                Some(p) if p < compare::LEVEL => Certainty::Significant,
                Some(_) => Certainty::Noise,
                // Nothing measures chance.
                None => Certainty::TooFewRuns,
            };
        }
    }

    /// What is left of a candidate in one step.
    fn left_in(&self, candidate: &Candidate, step: usize) -> f64 {
        let cells = candidate.cells.iter().map(|cell| &self.cells[*cell]);
        let mut left = Series::default();
        for cell in cells.filter(|cell| cell.step == Some(step) && !cell.taken) {
            left.add(&cell.series);
        }
        left.change()
    }

    /// What explains most of what is left, and how much.
    fn largest(&self) -> Option<(usize, f64)> {
        let mut best: Option<(usize, f64)> = None;
        for (index, candidate) in self.candidates.iter().enumerate() {
            let left = candidate.left.change();
            if candidate.is_sure() && best.is_none_or(|(_, most)| left.abs() > most.abs()) {
                best = Some((index, left));
            }
        }
        best
    }

    /// One of many that holds most of a candidate's change, of this step if there is one: it says more than the whole.
    fn finer(
        &self,
        (index, change): (usize, f64),
        kind: CauseKind,
        step: Option<usize>,
        least: f64,
    ) -> Option<(usize, f64)> {
        let own: HashSet<usize> = self.candidates[index].cells.iter().copied().collect();
        (self.candidates.iter().enumerate())
            // A package has cells of other steps, too, and its first one can be of none.
            .filter(|(_, c)| {
                c.kind == kind && c.is_sure() && c.cells.iter().any(|cell| own.contains(cell))
            })
            .map(|(finer, c)| {
                let left = || c.left.change();
                (finer, step.map_or_else(left, |step| self.left_in(c, step)))
            })
            // What it does besides must not hide that.
            .filter(|(finer, part)| {
                let all = self.candidates[*finer].left.change();
                part / change >= ONE_OF_MANY && all / change >= ONE_OF_MANY && all.abs() >= least
            })
            .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
            .map(|(finer, _)| (finer, self.candidates[finer].left.change()))
    }

    /// What explains most of what is left, and how much. What says more than that takes its place only where so much is left of it, too: else
    /// nothing would be told of either.
    fn next(&self, least: f64) -> Option<Choice> {
        let mut best = self.largest()?;
        let left = |index: usize| (index, self.candidates[index].left.change());
        let is_enough = |index: &usize| left(*index).1.abs() >= least;
        let kind = |(index, _): (usize, f64)| self.candidates[index].kind;
        let step = STEPS.iter().position(|(_, of)| *of == Some(kind(best)));
        if step.is_some()
            && let Some(package) = self.finer(best, CauseKind::Package, step, least)
        {
            best = package;
        }
        if kind(best) == CauseKind::Compilation
            && let Some(script) = self.finer(best, CauseKind::Script, None, least)
        {
            best = script;
        }
        // What is looked for because of a package that came or went is that package's doing, however long the search takes otherwise.
        if kind(best) == CauseKind::Resolution
            && let Some(package) = self.sought_for(best.1).filter(is_enough)
        {
            best = left(package);
        }
        if kind(best) == CauseKind::Package
            && self.candidates[best.0].presence.is_none()
            && let Some(module) = self.finer(best, CauseKind::Module, None, least)
        {
            best = module;
        }
        // Where what compiles comes from a code cache no more, or does now, that is the cause, whoever's modules hold most of the time.
        let (chosen, change) = (&self.candidates[best.0], best.1);
        let compiles = self.left_in(chosen, COMPILE) / change >= ONE_OF_MANY;
        if chosen.presence.is_none() && compiles && self.is_of_code_cache(change) {
            let compilation = self.of_row.get(&(CauseKind::Compilation, 0)).copied();
            let is_sure = |index: &usize| self.candidates[*index].is_sure();
            if let Some(compilation) = compilation.filter(is_sure).filter(is_enough) {
                best = left(compilation);
            }
        }
        let (index, change) = best;
        Some(Choice {
            index,
            change,
            package_json: self.is_package_json(index, change),
        })
    }

    /// Whether it is package.json files, where files are searched for.
    fn is_package_json(&self, index: usize, change: f64) -> bool {
        let chosen = &self.candidates[index];
        let searched = match chosen.kind {
            CauseKind::Resolution => change,
            // Node's own main module does nothing but look for the program's; what it reads of package.json files it also parses.
            CauseKind::Module if chosen.name.starts_with("node:internal/main/") => change,
            CauseKind::Package | CauseKind::Module if chosen.presence.is_none() => {
                self.left_in(chosen, RESOLVE)
            }
            CauseKind::Outside if chosen.name == "loader" || chosen.name == "bootstrap" => change,
            _ => 0.0,
        };
        let by_readers = self.readers.change() / change >= READER_SHARE;
        let grown = self.grown().is_some_and(|grown| {
            (grown.1 - grown.0).abs() >= GROWN_BYTES && (grown.1 > grown.0) == (change > 0.0)
        });
        searched / change >= ONE_OF_MANY && (by_readers || grown)
    }

    /// Fewer compilations have their code from a code cache, and it takes longer; or more have, and it takes less.
    fn is_of_code_cache(&self, change: f64) -> bool {
        self.run(CACHED)
            .is_some_and(|(base, head)| match change > 0.0 {
                true => head < base,
                false => head > base,
            })
    }

    /// The package that came or went for which most of the stats were made that there are more or fewer of, if the search for files
    /// takes longer or less by so much.
    fn sought_for(&self, change: f64) -> Option<usize> {
        let (base, head) = self.stats_to_find()?;
        let all = head - base;
        if all == 0.0 || (all > 0.0) != (change > 0.0) {
            return None;
        }
        let packages = self.candidates.iter().enumerate();
        packages
            .filter(|(_, c)| c.kind == CauseKind::Package && c.presence.is_some())
            .filter_map(|(index, c)| {
                // What was done to find its modules, or what those asked for: some is both.
                let part = |field: &str| {
                    let medians = self.medians(List::Packages, c.row, field);
                    medians.map_or(0.0, |(base, head)| (head - base) / all)
                };
                let share = part("loading.stats").max(part("stats"));
                // It has time of its own that is not explained yet.
                let left = c.left.change() / change > 0.0;
                (left && share >= ONE_OF_MANY).then_some((index, share))
            })
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(index, _)| index)
    }

    /// Takes out what a cause explains, and tests what it leaves of others: chance can explain the rest where it does not explain the whole.
    fn take(&mut self, index: usize) {
        let cells = std::mem::take(&mut self.candidates[index].cells);
        self.candidates[index].left = Series::default();
        let mut taken = vec![false; self.cells.len()];
        for cell in cells {
            taken[cell] = !std::mem::replace(&mut self.cells[cell].taken, true);
        }
        for candidate in &mut self.candidates {
            for cell in candidate.cells.iter().filter(|cell| taken[**cell]) {
                candidate.left.subtract(&self.cells[*cell].series);
                candidate.partly = true;
            }
        }
        self.test(true);
    }

    fn cause(&self, choice: &Choice, share: Option<f64>) -> Cause {
        let candidate = &self.candidates[choice.index];
        let kind = match choice.package_json {
            true => CauseKind::PackageJson,
            false => candidate.kind,
        };
        let mut cause = Cause {
            kind,
            name: candidate.name.clone(),
            presence: candidate.presence,
            base_ns: median(&candidate.left.base),
            head_ns: median(&candidate.left.head),
            change_ns: choice.change,
            share,
            certainty: candidate.certainty,
            adjusted_p: candidate.adjusted_p,
            sentence: String::new(),
        };
        cause.sentence = self.sentence(&cause, candidate);
        cause
    }

    /// The change of a figure of scripts that came or went, as far as they are told: as causes themselves, or as modules.
    fn of_told_scripts(&self, field: &str, told: &[Cause], is_of: impl Fn(&str) -> bool) -> f64 {
        let modules = self.sides.figures.table(List::Modules);
        let is_told = |name: &str| {
            let is_script = |cause: &Cause| {
                cause.kind == CauseKind::Script && cause.presence.is_some() && cause.name == name
            };
            let module = modules.find(name);
            told.iter().any(is_script)
                || module
                    .and_then(|row| self.candidate(CauseKind::Module, row))
                    .is_some_and(|module| module.presence.is_some())
        };
        let names = &self.sides.figures.table(List::Scripts).names;
        (names.iter().enumerate())
            .filter(|(_, name)| is_of(name) && is_told(name))
            .filter_map(|(row, _)| self.medians(List::Scripts, row, field))
            .map(|(base, head)| head - base)
            .sum()
    }

    /// Scripts that came or went, the longest compilations first: where others may compile while the main thread goes on, their times are no part of its own.
    fn of_scripts(&self, exact: &[(&Change, &Key)]) -> Vec<Cause> {
        if self.scripts_apart {
            return Vec::new();
        }
        let names = &self.sides.figures.table(List::Scripts).names;
        let mut scripts: Vec<(f64, f64, &str, &Change)> = (exact.iter())
            .filter(|(change, key)| {
                key.list == List::Scripts
                    && key.list.fields()[key.field] == "compilations"
                    && change.presence().is_some()
            })
            .filter_map(|(change, key)| {
                let (base, head) = self.medians(List::Scripts, key.row, "self_ns")?;
                Some((base, head, names.get(key.row)?.as_str(), *change))
            })
            .filter(|(base, head, ..)| (head - base).abs() >= self.least)
            .collect();
        scripts.sort_by(|a, b| {
            let time = |of: &(f64, f64, &str, &Change)| (of.1 - of.0).abs();
            time(b).total_cmp(&time(a)).then(a.2.cmp(b.2))
        });
        scripts.truncate(MOST_OF_SCRIPTS);
        let cause = |(base_ns, head_ns, name, change): (f64, f64, &str, &Change)| {
            let presence = change.presence();
            let presence = presence.map(|of| known_presence(self.sides, name, of));
            let kind = CauseKind::Script;
            let sentence = format!(
                "{} ({}): {} in all threads and processes.",
                subject(kind, name),
                presence.map_or("", presence_words),
                words::time((head_ns - base_ns).abs())
            );
            Cause {
                presence,
                base_ns,
                head_ns,
                change_ns: head_ns - base_ns,
                certainty: change.certainty,
                sentence,
                ..self.of_count(kind, name, (&Series::default(), ""), &[])
            }
        };
        scripts.into_iter().map(cause).collect()
    }

    /// The C++ functions whose numbers of calls differ most: where no module tells who called. Those of the loaders are steps.
    fn of_callbacks(
        &self,
        exact: &[(&Change, &Key)],
        before: &[Cause],
        scripts: &[Cause],
    ) -> Vec<Cause> {
        let names = &self.sides.figures.table(List::Callbacks).names;
        // A script that came or went is compiled by one of them: that was told with it.
        let told: Vec<Cause> = before.iter().chain(scripts).cloned().collect();
        let is_told = |compiler: Compiler| {
            let calls = self.sum(List::Callbacks, "calls", |row| {
                names.get(row).and_then(|name| compiler_of(name)) == Some(compiler)
            });
            let is_own = |name: &str| name.starts_with("node:") == (compiler == Compiler::OfNode);
            let scripts = self.of_told_scripts("compilations", &told, is_own);
            calls.is_some_and(|(base, head)| head - base == scripts)
        };
        let (of_node, of_program) = (is_told(Compiler::OfNode), is_told(Compiler::OfProgram));
        let mut callbacks: Vec<(&str, &Change, usize)> = (exact.iter())
            .filter(|(_, key)| {
                key.list == List::Callbacks && key.list.fields()[key.field] == "calls"
            })
            .filter_map(|(change, key)| Some((names.get(key.row)?.as_str(), *change, key.row)))
            .filter(|(name, _, row)| !self.is_search(*row) && !READERS.contains(&function_of(name)))
            .filter(|(name, ..)| match compiler_of(name) {
                Some(Compiler::OfNode) => !of_node,
                Some(Compiler::OfProgram) => !of_program,
                None => true,
            })
            .collect();
        callbacks.sort_by(|a, b| {
            let order = b.1.difference.abs().total_cmp(&a.1.difference.abs());
            order.then(a.0.cmp(b.0))
        });
        callbacks.truncate(MOST_OF_CALLBACKS);
        let cause = |(name, change, row): (&str, &Change, usize)| {
            let (base, head) = self.medians(List::Callbacks, row, "calls")?;
            let evidence = difference(None, base, head, "call", "calls")?;
            let kind = CauseKind::Callback;
            let mut cause = self.of_count(kind, name, (&Series::default(), ""), &[evidence]);
            (cause.certainty, cause.adjusted_p) = (change.certainty, change.adjusted_p);
            Some(cause)
        };
        callbacks.into_iter().filter_map(cause).collect()
    }

    /// `time`: its own, and words of what time that is.
    fn of_count(
        &self,
        kind: CauseKind,
        name: &str,
        time: (&Series, &str),
        evidence: &[String],
    ) -> Cause {
        let (series, of) = time;
        let change = series.change();
        let about = match change.abs() >= self.least {
            true => format!(
                " ({} of time{of}, which can be chance)",
                words::signed(change, Unit::Ns)
            ),
            false => String::new(),
        };
        Cause {
            kind,
            name: name.to_owned(),
            presence: None,
            base_ns: median(&series.base),
            head_ns: median(&series.head),
            change_ns: change,
            share: None,
            certainty: Certainty::Exact,
            adjusted_p: None,
            sentence: format!("{}: {}{about}.", subject(kind, name), evidence.join(", ")),
        }
    }

    fn sentence(&self, cause: &Cause, candidate: &Candidate) -> String {
        let evidence = match cause.kind {
            CauseKind::Package => self.of_row(List::Packages, candidate, cause),
            CauseKind::Module => self.of_row(List::Modules, candidate, cause),
            CauseKind::Resolution => self.searches(),
            CauseKind::PackageJson => self.package_json(|_| true),
            CauseKind::Reading => self.of_run(&[
                ("files.read.calls", "read", "reads"),
                ("files.bytes_read", "", ""),
            ]),
            CauseKind::Compilation => self.of_run(&COMPILATIONS),
            CauseKind::Phase => self.of_phase(candidate.row),
            CauseKind::Outside | CauseKind::Script | CauseKind::Callback => Vec::new(),
        };
        let mut what = subject(cause.kind, &cause.name);
        if cause.kind == CauseKind::Phase && self.scripts_apart {
            what += " without its compilations";
        }
        let amount = words::time(cause.change_ns.abs());
        let mut sentence = match (cause.presence, cause.change_ns > 0.0) {
            (Some(presence), longer) => {
                let verb = if longer { "costs" } else { "saves" };
                format!("{what} ({}) {verb} {amount}", presence_words(presence))
            }
            (None, longer) => {
                let longer = if longer { "longer" } else { "less" };
                let (base, head) = (words::time(cause.base_ns), words::time(cause.head_ns));
                let besides = if candidate.partly { BESIDES } else { "" };
                format!("{what} takes {amount} {longer}{besides} ({base} → {head})")
            }
        };
        if let Some(share) = cause.share {
            sentence += &format!(", {} of the change", words::percent(share));
        }
        if !evidence.is_empty() {
            sentence += &format!(": {}", evidence.join(", "));
        }
        if let Some(collections) = self.may_have_moved(cause, candidate) {
            let whither = match cause.change_ns > 0.0 {
                true => "may have come to run in it",
                false => "may run in others now",
            };
            let collections = words::time(collections);
            sentence += &format!("; garbage collections, {collections} of a run, {whither}");
        }
        sentence + "."
    }

    /// Which share of the change of a module one part of its time has, by what is left of the change without it. None where others may hold
    /// that part: causes before it hold some of its time.
    fn share_of_part(&self, cause: &Cause, candidate: &Candidate, part: Part) -> Option<f64> {
        if cause.kind != CauseKind::Module || cause.presence.is_some() || candidate.partly {
            return None;
        }
        let part = self.part(candidate.row, part);
        part.medians()?;
        let mut rest = candidate.left.clone();
        rest.subtract(&part);
        let (base, head) = rest.medians()?;
        Some(1.0 - (head - base) / cause.change_ns)
    }

    /// How much of the change of a module is one part of its time, where that is most of it.
    fn most_of(&self, cause: &Cause, candidate: &Candidate, part: Part) -> Option<f64> {
        let share = self.share_of_part(cause, candidate, part)?;
        (share >= ONE_OF_MANY).then(|| share.min(1.0) * cause.change_ns.abs())
    }

    /// Whether the collector takes as long in all modules together, of a change that it has most of: what it did in one it does in another.
    fn collections_moved(&self, cause: &Cause) -> bool {
        let rows = 0..self.sides.figures.table(List::Modules).names.len();
        let mut all = Series::default();
        for row in rows {
            all.add(&self.part(row, Part::Collections));
        }
        (all.medians())
            .is_some_and(|(base, head)| (head - base).abs() <= MOVED * cause.change_ns.abs())
    }

    /// What the garbage collector takes of a run, by CPU samples, where that can be all that changed of a module, and its own samples are too few to tell: it runs in whichever module
    /// allocates then, and this one does nothing more or less often.
    fn may_have_moved(&self, cause: &Cause, candidate: &Candidate) -> Option<f64> {
        let share = self.share_of_part(cause, candidate, Part::Collections)?;
        let is_alone = (1.0 - ONE_OF_MANY..ONE_OF_MANY).contains(&share)
            && self.most_of(cause, candidate, Part::Blocked).is_none()
            && (self.medians(List::Modules, candidate.row, "crossings")).is_some()
            && (self.of_row_counts(List::Modules, candidate.row, None)).is_empty();
        let (base, head) = self.run("samples.by_kind.garbage_collection_ns")?;
        let collections = base.max(head);
        (is_alone && collections >= cause.change_ns.abs()).then_some(collections)
    }

    fn medians(&self, list: List, row: usize, field: &str) -> Option<(f64, f64)> {
        let (base, head) = self.sides.values(list, row, list.field(field)?);
        let (base, head) = (median(&base), median(&head));
        (base.is_finite() && head.is_finite()).then_some((base, head))
    }

    /// What a module or package did that it did not before.
    fn of_row(&self, list: List, candidate: &Candidate, cause: &Cause) -> Vec<String> {
        let mut evidence = Vec::new();
        let row = candidate.row;
        // Which step changed, if it is one of them.
        if cause.presence.is_none() && list == List::Modules {
            let mut does = ["to be found", "to be read", "to be compiled", "executing"];
            if is_builtin(&candidate.name) {
                does[RESOLVE] = "before it is compiled";
            }
            // A module's cells are its steps.
            for (cell, does) in candidate.cells.iter().zip(does) {
                let cell = &self.cells[*cell];
                let part = if cell.taken {
                    0.0
                } else {
                    cell.series.change()
                };
                if part / cause.change_ns >= ONE_OF_MANY {
                    evidence.push(format!("{} of it {does}", words::time(part.abs())));
                }
            }
        }
        if let Some(waits) = self.most_of(cause, candidate, Part::Blocked) {
            evidence.push(format!("{} of it off the CPU", words::time(waits)));
        }
        if let Some(collections) = self.most_of(cause, candidate, Part::Collections) {
            let mut said = format!("{} of it garbage collections", words::time(collections));
            if self.collections_moved(cause) {
                said += match cause.change_ns > 0.0 {
                    true => " that ran in others before",
                    false => " that run in others now",
                };
            }
            evidence.push(said);
        }
        evidence.extend(self.of_row_counts(list, row, cause.presence));
        evidence
    }

    /// How the counts of a module or package changed.
    fn of_row_counts(&self, list: List, row: usize, presence: Option<&str>) -> Vec<String> {
        let mut evidence = Vec::new();
        const COUNTS: [(&str, &str, &str); 6] = [
            ("modules", "module", "modules"),
            ("crossings", "crossing", "crossings"),
            (
                "package_json_lookups",
                "package.json lookup",
                "package.json lookups",
            ),
            ("stats", "stat", "stats"),
            ("opens", "open", "opens"),
            ("loading.bytes_read", "", ""),
        ];
        for (field, one, many) in COUNTS {
            if field == "modules" && list == List::Modules {
                continue;
            }
            if let Some((base, head)) = self.medians(list, row, field) {
                let told = difference(presence, base, head, one, many);
                let within = match presence {
                    None if list == List::Modules => self.in_bundle(row, field, head - base),
                    _ => None,
                };
                evidence.extend(told.map(|told| told + &within.unwrap_or_default()));
            }
        }
        evidence
    }

    /// Which packages in a module that is a bundle have the change of one of its counts. Of several bundles of the program it is not known whose packages
    /// changed; those in packages are not the program's.
    fn in_bundle(&self, row: usize, field: &str, change: f64) -> Option<String> {
        let figures = &self.sides.figures;
        let module = &figures.table(List::Modules).names[row];
        let mut bundles = { figures.bundles.iter() }.filter(|name| !name.contains("node_modules/"));
        if bundles.next() != Some(module) || bundles.next().is_some() || change == 0.0 {
            return None;
        }
        let names = &figures.table(List::BundledPackages).names;
        let mut changes: Vec<(f64, &str)> = { names.iter().enumerate() }
            .filter_map(|(row, name)| {
                let (base, head) = self.medians(List::BundledPackages, row, field)?;
                Some((head - base, name.as_str()))
            })
            .filter(|(of, _)| (of / change).abs() >= WORTH_A_WORD)
            .collect();
        changes.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()).then_with(|| a.1.cmp(b.1)));
        match changes.as_slice() {
            [] => None,
            [(of, name)] if (of / change - 1.0).abs() < 1.0 - NEARLY_ALL => {
                Some(format!(" in {name}"))
            }
            several => {
                let words = several.iter().take(MOST_PACKAGES).map(|(of, name)| {
                    let count = words::count(of.abs());
                    let more = if *of > 0.0 { "more" } else { "fewer" };
                    format!("{count} {more} in {name}")
                });
                Some(format!(": {}", words::list(&words.collect::<Vec<_>>())))
            }
        }
    }

    /// What happened in a phase that did not before.
    fn of_phase(&self, row: usize) -> Vec<String> {
        const COUNTS: [(&str, &str, &str); 5] = [
            ("crossings", "crossing", "crossings"),
            ("lookups", "package.json lookup", "package.json lookups"),
            ("stats", "stat", "stats"),
            ("opens", "open", "opens"),
            ("compilations", "compilation", "compilations"),
        ];
        let mut evidence = Vec::new();
        for (field, one, many) in COUNTS {
            if field == "compilations" && self.scripts_apart {
                continue;
            }
            if let Some((base, head)) = self.medians(List::Phases, row, field) {
                evidence.extend(difference(None, base, head, one, many));
            }
        }
        evidence
    }

    /// Medians of a figure of the run itself.
    fn run(&self, name: &str) -> Option<(f64, f64)> {
        let row = self.sides.figures.table(List::Run).find(name)?;
        self.medians(List::Run, row, "")
    }

    /// How figures of the run itself changed.
    fn of_run(&self, figures: &[(&str, &str, &str)]) -> Vec<String> {
        let mut evidence = Vec::new();
        for (name, one, many) in figures {
            if let Some((base, head)) = self.run(name) {
                evidence.extend(difference(None, base, head, one, many));
            }
        }
        evidence
    }

    /// Stats that were made to find modules, on both sides. Where modules are not told, or as many were made for those that were found,
    /// calls of the C++ function that makes them: also for what was not found.
    fn stats_to_find(&self) -> Option<(f64, f64)> {
        let of_modules = self.sum(List::Modules, FOUND_BY_STATS, |_| true);
        of_modules
            .filter(|(base, head)| base != head)
            .or_else(|| self.calls_to_find())
    }

    fn calls_to_find(&self) -> Option<(f64, f64)> {
        self.sum(List::Callbacks, "calls", |row| self.is_search(row))
    }

    /// The same without stats of package.json files, which are told with these.
    fn other_stats_to_find(&self) -> Option<Searches> {
        let rows = 0..self.sides.figures.table(List::Modules).names.len();
        let all = (rows.map(|row| self.stats_of_others(row))).reduce(|mut all, one| {
            all.add(&one);
            all
        });
        let of_modules = all.as_ref().and_then(Series::medians);
        if let Some((base, head)) = of_modules.filter(|(base, head)| base != head) {
            return Some(Searches {
                base,
                head,
                change: head - base,
                by_calls: false,
            });
        }
        let (base, head) = self.calls_to_find()?;
        let calls = head - base;
        // Whose stats they make is not known, only how many stats there are of package.json files, whoever makes these, and of others.
        let change_of_run = |name: &str| (self.run(name)).map_or(0.0, |(base, head)| head - base);
        let of_package_json = change_of_run(PACKAGE_JSON_STATS);
        let of_others = change_of_run("files.stat.calls") - of_package_json;
        let change = match calls * of_package_json > 0.0 {
            true => {
                let least = calls - of_package_json;
                of_others.clamp(least.min(calls), least.max(calls))
            }
            false => calls,
        };
        // All of them, or nearly.
        let is_theirs = calls * of_package_json > 0.0
            && (change * calls <= 0.0 || change.abs() < SCATTER * of_package_json.abs());
        (!is_theirs).then_some(Searches {
            base,
            head,
            change,
            by_calls: true,
        })
    }

    /// Stats that were made to find a module, without those of package.json files.
    fn stats_of_others(&self, row: usize) -> Series {
        let field = List::Modules.field(FOUND_BY_STATS).unwrap_or_default();
        let mut stats = Series::of(self.sides, List::Modules, row, field);
        stats.subtract(&self.part(row, Part::LoadingStats));
        stats
    }

    /// A part of a module's figures.
    fn part(&self, row: usize, part: Part) -> Series {
        let of = |runs: &[usize]| self.sides.figures.part(part, row, runs);
        Series {
            base: of(&self.sides.base.probed),
            head: of(&self.sides.head.probed),
        }
    }

    /// Medians of a figure's sum over some rows.
    fn sum(&self, list: List, field: &str, is_of: impl Fn(usize) -> bool) -> Option<(f64, f64)> {
        let field = list.field(field)?;
        let mut all = Series::default();
        let rows = 0..self.sides.figures.table(list).names.len();
        for row in rows.filter(|row| is_of(*row)) {
            all.add(&Series::of(self.sides, list, row, field));
        }
        all.medians()
    }

    /// Whether a callback is the one by which Node's loaders ask what is at a path.
    fn is_search(&self, row: usize) -> bool {
        let names = &self.sides.figures.table(List::Callbacks).names;
        names
            .get(row)
            .is_some_and(|name| function_of(name) == "InternalModuleStat")
    }

    /// How much more, or less, is looked for to find modules.
    fn searches(&self) -> Vec<String> {
        let Some(searches) = self.other_stats_to_find() else {
            return Vec::new();
        };
        let (one, many) = match searches.by_calls {
            true => ("call of InternalModuleStat", "calls of InternalModuleStat"),
            false => ("stat", "stats"),
        };
        let Searches {
            base, head, change, ..
        } = searches;
        let said = match head - base == change {
            true => difference(None, base, head, one, many),
            false => {
                let direction = if change > 0.0 { "more" } else { "fewer" };
                let calls = words::things(change.abs(), one, many);
                Some(format!(
                    "{calls} {direction} for other files than package.json"
                ))
            }
        };
        said.into_iter().collect()
    }

    /// The package.json file of which most bytes more, or fewer, are read: before, now, and its name.
    fn grown(&self) -> Option<(f64, f64, &str)> {
        let table = self.sides.figures.table(List::PackageJson);
        let rows = table.names.iter().enumerate();
        rows.filter_map(|(row, name)| {
            let (base, head) = self.medians(List::PackageJson, row, "bytes")?;
            Some((base, head, name.as_str()))
        })
        .max_by(|a, b| (a.1 - a.0).abs().total_cmp(&(b.1 - b.0).abs()))
    }

    /// Which package.json files are larger, or read more often: of these figures.
    fn package_json(&self, is_told: impl Fn(&str) -> bool) -> Vec<String> {
        let mut evidence = Vec::new();
        if let Some((base, head, name)) = self
            .grown()
            .filter(|(base, head, _)| (head - base).abs() >= 1024.0)
        {
            evidence.push(format!(
                "{} read of {name}, before {}",
                words::bytes(head),
                words::bytes(base)
            ));
        }
        let figures = DONE_WITH_PACKAGE_JSON.iter();
        let figures: Vec<_> = figures
            .filter(|(figure, ..)| is_told(figure))
            .map(|(figure, one, many, ..)| (*figure, *one, *many))
            .collect();
        evidence.extend(self.of_run(&figures));
        evidence
    }
}

/// What is known of what came or went.
fn presence_words(presence: &str) -> &str {
    match presence {
        NOW_COMPILED => "now compiled at start; it may have been in the snapshot",
        NO_LONGER_COMPILED => "no longer compiled at start; it may be in the snapshot",
        presence => presence,
    }
}

/// Whether a module is built into node.
pub(super) fn is_builtin(module: &str) -> bool {
    module.starts_with("node:")
}

/// `GetPackageScopeConfig` of `modules.BindingData::GetPackageScopeConfig<false> (slow)`.
fn function_of(callback: &str) -> &str {
    let name = callback.split(['<', ' ']).next().unwrap_or_default();
    name.rsplit(['.', ':']).next().unwrap_or_default()
}

/// Whose code a C++ function compiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compiler {
    OfNode,
    OfProgram,
}

/// Whose code a callback compiles, if that is what it does.
fn compiler_of(callback: &str) -> Option<Compiler> {
    match function_of(callback) {
        "CompileFunction" if callback.contains("BuiltinLoader") => Some(Compiler::OfNode),
        "CompileFunction" | "CompileFunctionForCJSLoader" => Some(Compiler::OfProgram),
        "New" if callback.contains("ModuleWrap") || callback.contains("ContextifyScript") => {
            Some(Compiler::OfProgram)
        }
        _ => None,
    }
}

/// What is compiled.
const COMPILATIONS: [(&str, &str, &str); 2] = [
    ("compile.compilations", "compilation", "compilations"),
    (CACHED, "from a code cache", "from a code cache"),
];
/// Compilations whose code V8 takes from a code cache.
const CACHED: &str = "compile.cached";
/// Stats that were made to find a module.
const FOUND_BY_STATS: &str = "loading.stats";
/// Stats of package.json files.
const PACKAGE_JSON_STATS: &str = "package_json.stats";
/// What is done with package.json files: the figure of the run, its words, and by whom it is done as loaded and as requirer.
const DONE_WITH_PACKAGE_JSON: [(&str, &str, &str, Done, Done); 3] = [
    (
        "package_json.lookups",
        "lookup",
        "lookups",
        Done::Field("loading.package_json_lookups"),
        Done::Field("package_json_lookups"),
    ),
    (
        "package_json.opens",
        "open",
        "opens",
        Done::Part(Part::LoadingOpens),
        Done::Part(Part::CausedOpens),
    ),
    (
        PACKAGE_JSON_STATS,
        "stat",
        "stats",
        Done::Part(Part::LoadingStats),
        Done::Part(Part::CausedStats),
    ),
];

/// A count of a module.
#[derive(Clone, Copy)]
enum Done {
    Field(&'static str),
    Part(Part),
}

/// What is to blame, at the beginning of a sentence.
fn subject(kind: CauseKind, name: &str) -> String {
    match kind {
        CauseKind::Package => format!("package {name}"),
        CauseKind::Module => format!("module {name}"),
        CauseKind::Resolution => "finding the files of modules".to_owned(),
        CauseKind::PackageJson => "reading package.json files".to_owned(),
        CauseKind::Reading => "reading the files of modules".to_owned(),
        CauseKind::Compilation => "compiling modules".to_owned(),
        CauseKind::Outside => bucket_words(name).to_owned(),
        CauseKind::Phase => format!("phase {}", name.replace('_', " ")),
        CauseKind::Script => format!("compiling {name}"),
        CauseKind::Callback => format!("C++ function {name}"),
    }
}

/// `12 modules` of what was added or removed, else `3 stats more (10 → 13)`; nothing where nothing changed.
fn difference(
    presence: Option<&str>,
    base: f64,
    head: f64,
    one: &str,
    many: &str,
) -> Option<String> {
    let bytes = one.is_empty();
    let amount = |value: f64| match bytes {
        true => words::bytes(value),
        false => words::things(value, one, many),
    };
    match presence {
        Some(presence) => {
            let is_of_head = [ADDED, NOW_COMPILED].contains(&presence);
            let value = if is_of_head { head } else { base };
            let read = if bytes { " read" } else { "" };
            (value > 0.0).then(|| format!("{}{read}", amount(value)))
        }
        None if base == head || bytes && (head - base).abs() < 1024.0 => None,
        None => {
            let direction = if head > base { "more" } else { "fewer" };
            let (from, to) = match bytes {
                true => (words::bytes(base), words::bytes(head)),
                false => (words::count(base), words::count(head)),
            };
            let what = if bytes { " read" } else { "" };
            Some(format!(
                "{} {direction}{what} ({from} → {to})",
                amount((head - base).abs())
            ))
        }
    }
}

/// Buckets in words.
fn bucket_words(bucket: &str) -> &str {
    match bucket {
        "before_main" => "the start of the process, before node's main function,",
        "bootstrap" => "node's own start",
        "loader" => "node's loader, for the main script and nobody else,",
        "async" => "node's own code that the event loop calls",
        "uncaught_exception" => "what node does about an exception that nobody caught",
        "event_loop" => "the event loop, in C++,",
        "gc" => "garbage collection",
        "teardown" => "the end, after the event loop,",
        "unseen" => "JavaScript in which nothing was recorded",
        "no_stack" => "what has no known stack",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_package_json_are_known_by_any_spelling_of_their_binding() {
        for name in [
            "fs.InternalModuleReadJSON",
            "modules.BindingData::ReadPackageJSON (slow)",
            "modules.BindingData::GetPackageScopeConfig<false>",
        ] {
            assert!(READERS.contains(&function_of(name)), "{name}");
        }
        assert!(!READERS.contains(&function_of("fs.InternalModuleStat")));
    }
}
