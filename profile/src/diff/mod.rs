//! Two groups of runs side by side: what changed, how sure that is, and why.
//!
//! [`Diff::new`] compares all figures of the JSON. Counts that are the same in all runs of a side are exact; what varies is tested
//! ([`compare`]). Times of runs without probes are taken where both sides have them.
//!
//! ```
//! use nodeprof_profile::{Profile, Recording, diff::{Diff, Side}, groups::Group};
//! let recording = Recording::synthetic(1000);
//! let profile = Profile::from_recording(&recording);
//! let side = |name| Side { recording: &recording, profile: &profile, group: Group::all(&recording, name) };
//! let diff = Diff::new(&side("base"), &side("head"));
//! assert!(diff.verdict.sentence.contains("one run a side only"));
//! assert!(diff.counts.is_empty());
//! ```

pub mod causes;
pub mod compare;
pub mod figures;
pub mod names;
pub(crate) mod settings;
pub mod sides;
pub mod statements;
pub mod verdict;
pub mod words;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

pub use causes::Cause;
pub use compare::{Certainty, Change, Tests};
use figures::{List, Unit};
pub use sides::{Side, Sides};
pub use statements::Statement;
use statements::Statements;
pub use verdict::{Answer, TimeChange, Verdict};

/// Version of the JSON of a diff.
pub const SCHEMA: u32 = 1;

/// What is compared with what.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SideSummary {
    /// What the group is called.
    pub name: String,
    /// Program and arguments of its first run.
    pub command: Vec<String>,
    /// Different programs that its runs are of.
    pub programs: usize,
    /// Version of its node.
    pub node: Option<String>,
    /// Runs with probes that are compared.
    pub probed_runs: usize,
    /// Runs without.
    pub bare_runs: usize,
    /// Runs that ended otherwise than most, and are left out.
    pub failed_runs: usize,
    /// Whether CPU samples or times off the CPU of its runs are known.
    #[serde(skip)]
    pub sampled: bool,
}

/// Modules or packages that only one side has.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Presence {
    /// In all runs of head, and in none of base.
    pub added: Vec<String>,
    /// In all runs of base, and in none of head.
    pub removed: Vec<String>,
}

/// Built-in modules that only one side compiles, where the versions of node differ: the other may have them in its start-up snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Builtins {
    /// In all runs of head, and in none of base.
    pub now_compiled: Vec<String>,
    /// In all runs of base, and in none of head.
    pub no_longer_compiled: Vec<String>,
}

/// What is known of a module that came or went: of those of [`Builtins`], not that it is loaded or not.
pub(crate) fn known_presence(
    sides: &Sides<'_>,
    module: &str,
    presence: &'static str,
) -> &'static str {
    let versions = |member: &sides::Member| -> BTreeSet<&str> {
        let all = member.all();
        let nodes = all.iter().filter_map(|run| sides.runs[*run].node.as_ref());
        nodes.filter_map(|node| node.version.as_deref()).collect()
    };
    let (base, head) = (versions(&sides.base), versions(&sides.head));
    let same = !base.is_empty() && base == head;
    match presence {
        _ if same || !causes::is_builtin(module) => presence,
        ADDED => NOW_COMPILED,
        _ => NO_LONGER_COMPILED,
    }
}

pub(crate) const ADDED: &str = "added";
pub(crate) const REMOVED: &str = "removed";
pub(crate) const NOW_COMPILED: &str = "now_compiled";
pub(crate) const NO_LONGER_COMPILED: &str = "no_longer_compiled";

/// A package of both sides with another version.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VersionChange {
    /// Name.
    pub package: String,
    /// Versions in base.
    pub base: Vec<String>,
    /// In head.
    pub head: Vec<String>,
}

/// A package.json that is looked up more or less often.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LookupChange {
    /// Its path, as both sides know it.
    pub path: String,
    /// Lookups in base, median.
    pub base: f64,
    /// In head.
    pub head: f64,
    /// What is known of it.
    pub certainty: Certainty,
}

/// Two groups of runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What is compared with.
    pub base: SideSummary,
    /// What is compared.
    pub head: SideSummary,
    /// What to know before the figures.
    pub statements: Vec<Statement>,
    /// Faster or slower?
    pub verdict: Verdict,
    /// Times and memory of whole runs.
    pub times: Vec<TimeChange>,
    /// Starts per second without probes, as Node's own benchmark tools compare them.
    pub rate: Option<TimeChange>,
    /// What explains the change of time, the largest part first.
    pub causes: Vec<Cause>,
    /// Counts and sizes that differ: exact ones, then significant ones, then those with too few runs to know.
    pub counts: Vec<Change>,
    /// Times within the run that differ significantly; the largest difference first.
    pub durations: Vec<Change>,
    /// Modules that only one side loads.
    pub modules: Presence,
    /// Built-in modules that only one side compiles.
    pub builtins: Builtins,
    /// Packages that only one side loads.
    pub packages: Presence,
    /// Packages with another version.
    pub versions: Vec<VersionChange>,
    /// package.json lookups gained or lost.
    pub lookups: Vec<LookupChange>,
    /// How many figures were compared, and how.
    pub tests: Tests,
}

impl Diff {
    /// Compares two groups of runs.
    pub fn new(base: &Side<'_>, head: &Side<'_>) -> Diff {
        Diff::of(&Sides::new(base, head))
    }

    /// The same of sides that the caller has for other views.
    pub fn of(sides: &Sides<'_>) -> Diff {
        let times = verdict::times(sides);
        let wall = times.iter().find(|time| time.figure == "time.wall_ns");
        let statements = Statements::of(sides, wall);
        let rate = verdict::rate(sides);
        let verdict = Verdict::new(sides, wall, statements.obstacle.clone());
        let (mut changes, keys) = changes(sides);
        let tests = compare::settle(&mut changes);
        // Of a mixture of programs each part is one of which programs there are more.
        let mixed = (statements.list.iter()).any(|of| of.kind == statements::SEVERAL_PROGRAMS);
        let causes = match mixed {
            true => Vec::new(),
            false => causes::causes(sides, &changes, &keys, &verdict),
        };
        let mut builtins = Builtins::default();
        let mut presence = |list: List| {
            let mut presence = Presence::default();
            for (change, key) in changes.iter().zip(&keys) {
                let rows = key.list == list && list.fields()[key.field] == "modules";
                let name = || sides.figures.table(list).names[key.row].clone();
                let Some(of) = change.presence().filter(|_| rows) else {
                    continue;
                };
                let name = name();
                let names = match known_presence(sides, &name, of) {
                    ADDED => &mut presence.added,
                    NOW_COMPILED => &mut builtins.now_compiled,
                    NO_LONGER_COMPILED => &mut builtins.no_longer_compiled,
                    _ => &mut presence.removed,
                };
                names.push(name);
            }
            presence.added.sort();
            presence.removed.sort();
            presence
        };
        let (modules, packages) = (presence(List::Modules), presence(List::Packages));
        builtins.now_compiled.sort();
        builtins.no_longer_compiled.sort();
        let lookups = lookups(sides, &changes, &keys);
        let versions = versions(sides);
        let mut counts: Vec<Change> = Vec::new();
        let mut durations: Vec<Change> = Vec::new();
        for (change, key) in changes.into_iter().zip(&keys) {
            let shown = match (change.unit, change.certainty) {
                (Unit::Ns, Certainty::Significant) => &mut durations,
                (Unit::Ns | Unit::Percent, _) => continue,
                (_, Certainty::Exact | Certainty::Significant | Certainty::TooFewRuns) => {
                    &mut counts
                }
                _ => continue,
            };
            if !key.is_our_own(sides) {
                shown.push(change);
            }
        }
        counts.sort_by(|a, b| {
            a.certainty
                .cmp(&b.certainty)
                .then_with(|| weight(b).total_cmp(&weight(a)))
                .then_with(|| a.figure.cmp(&b.figure))
        });
        durations.sort_by(|a, b| b.difference.abs().total_cmp(&a.difference.abs()));
        Diff {
            schema: SCHEMA,
            base: summary(sides, &sides.base),
            head: summary(sides, &sides.head),
            statements: statements.list,
            verdict,
            times,
            rate,
            causes,
            counts,
            durations,
            modules,
            builtins,
            packages,
            versions,
            lookups,
            tests,
        }
    }
}

/// How much of itself a figure changed; a new one most.
fn weight(change: &Change) -> f64 {
    change.relative().map_or(f64::MAX, f64::abs)
}

/// Where a change is in the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Which list.
    pub list: List,
    /// Which row.
    pub row: usize,
    /// Which field.
    pub field: usize,
}

impl Key {
    /// What tracing costs is no figure of the program, nor what of it was not seen.
    fn is_our_own(&self, sides: &Sides<'_>) -> bool {
        let name = &sides.figures.table(self.list).names[self.row];
        self.list == List::Losses
            || self.list == List::Run
                && (name.starts_with("overhead.") || name.starts_with("attribution."))
            || matches!(
                self.list.fields()[self.field],
                "samples" | "loading.samples" | "uncertain_ns" | "timed_calls"
            )
            || name == "crossings.timed_calls"
    }
}

/// What was tested, and how many counts vary: for who judges figures one by one.
pub fn tests(sides: &Sides<'_>) -> Tests {
    compare::settle(&mut changes(sides).0)
}

/// All figures of both sides that are counts, or times worth a test of their own.
fn changes(sides: &Sides<'_>) -> (Vec<Change>, Vec<Key>) {
    let mut changes = Vec::new();
    let mut keys = Vec::new();
    for table in &sides.figures.tables {
        let fields = table.list.fields();
        for row in 0..table.names.len() {
            for (field, name) in fields.iter().copied().enumerate() {
                let key = Key {
                    list: table.list,
                    row,
                    field,
                };
                // The same moments under other names, CPU samples, and our own: a test each would only raise the bar for all others.
                let again = name.ends_with("_ns")
                    && (name.starts_with("loading.") || table.list == List::BundledPackages)
                    || matches!(
                        name,
                        "total_corrected_ns"
                            | "cpu_ns"
                            | "crossings_self_ns"
                            | "vain_ns"
                            | "callback_ns"
                    );
                if again || key.is_our_own(sides) {
                    continue;
                }
                // Counts of runs in which not all was seen would differ from the others, and say nothing of the program.
                let [(base, base_low), (head, head_low)] =
                    sides.whole_values(table.list, row, field);
                if base.iter().chain(&head).all(|value| *value == 0.0) {
                    continue;
                }
                let unit = table.unit(row, field);
                let mut change = Change::new(table.figure(row, field), unit, &base, &head);
                change.low = [base_low, head_low];
                change.list = table.list.name();
                change.name.clone_from(&table.names[row]);
                change.field = name;
                if change.certainty != Certainty::Unknown {
                    changes.push(change);
                    keys.push(key);
                }
            }
        }
    }
    (changes, keys)
}

fn summary(sides: &Sides<'_>, member: &sides::Member) -> SideSummary {
    let all = member.all();
    let first = all.first().or(member.failed.first());
    let first = first.and_then(|run| sides.runs.get(*run));
    let node = all.iter().find_map(|run| sides.runs[*run].node.as_ref());
    let sampled = member.probed.iter().any(|run| {
        let run = sides.runs[*run];
        let mut families = run.families.iter();
        run.samples.count > 0
            || families.any(|family| family.name == "off-cpu" && family.state != "off")
    });
    SideSummary {
        name: member.name.clone(),
        command: first.map(|run| run.command.clone()).unwrap_or_default(),
        programs: member.programs(&sides.runs).len(),
        node: node.and_then(|node| node.version.clone()),
        probed_runs: member.probed.len(),
        bare_runs: member.bare.len(),
        failed_runs: member.failed.len(),
        sampled,
    }
}

fn lookups(sides: &Sides<'_>, changes: &[Change], keys: &[Key]) -> Vec<LookupChange> {
    let mut lookups: Vec<LookupChange> = (changes.iter().zip(keys))
        .filter(|(_, key)| {
            key.list == List::PackageJson && key.list.fields()[key.field] == "lookups"
        })
        .filter(|(change, _)| {
            change.certainty.is_known() || change.certainty == Certainty::TooFewRuns
        })
        .map(|(change, key)| LookupChange {
            path: sides.figures.table(List::PackageJson).names[key.row].clone(),
            base: change.base.map_or(0.0, |base| base.median),
            head: change.head.map_or(0.0, |head| head.median),
            certainty: change.certainty,
        })
        .collect();
    lookups.sort_by(|a, b| {
        ((b.head - b.base).abs().total_cmp(&(a.head - a.base).abs()))
            .then_with(|| a.path.cmp(&b.path))
    });
    lookups
}

fn versions(sides: &Sides<'_>) -> Vec<VersionChange> {
    let mut names: BTreeMap<&str, ()> = BTreeMap::new();
    for name in &sides.figures.table(List::Packages).names {
        names.insert(name, ());
    }
    names
        .into_keys()
        .filter_map(|name| {
            let (base, head) = sides.versions(name);
            let differ = base != head && !base.is_empty() && !head.is_empty();
            differ.then(|| VersionChange {
                package: name.to_owned(),
                base: base.into_iter().collect(),
                head: head.into_iter().collect(),
            })
        })
        .collect()
}
