//! Causes that only counts tell: chance could explain their time, but not how often something was done.

use super::{
    CACHED, COMPILATIONS, Candidate, Cause, CauseKind, DONE_WITH_PACKAGE_JSON, Done,
    FOUND_BY_STATS, MOST_OF_COUNTS, PACKAGE_JSON, PACKAGE_JSON_STATS, SCATTER, STEPS_OF_COUNTS,
    Search, Series,
};
use crate::diff::{
    Key,
    compare::{Certainty, Change},
    figures::{List, Part},
};

/// What differs for certain, and which causes were found before.
struct Counts<'s> {
    search: &'s Search<'s>,
    certain: Vec<(&'s Change, &'s Key)>,
    before: &'s [Cause],
}

/// A step of loading that happens more or less often.
struct Step<'s> {
    /// The change of it that is the least by chance.
    surest: &'s Change,
    /// How much more or less often, to sort by.
    events: f64,
    /// In words.
    evidence: Vec<String>,
}

impl Search<'_> {
    /// Causes whose time chance could explain, but whose counts differ for certain, and that no cause before explains.
    pub(super) fn of_counts(
        &self,
        changes: &[Change],
        keys: &[Key],
        before: &[Cause],
    ) -> Vec<Cause> {
        let counts = Counts::new(self, changes, keys, before);
        let steps = STEPS_OF_COUNTS.into_iter();
        let mut steps: Vec<(f64, Cause)> = steps.filter_map(|kind| counts.step(kind)).collect();
        // What happens so and so often more or less, most first.
        steps.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut causes: Vec<Cause> = steps.into_iter().map(|(_, cause)| cause).collect();
        let lookups = causes.iter().any(|cause| cause.kind == PACKAGE_JSON);
        causes.extend(counts.modules(lookups));
        causes.truncate(MOST_OF_COUNTS);
        if self.of_phases {
            causes.extend(self.of_scripts(&counts.certain));
            let callbacks = self.of_callbacks(&counts.certain, before, &causes);
            causes.extend(callbacks);
        }
        causes
    }
}

impl<'s> Counts<'s> {
    fn new(
        search: &'s Search<'s>,
        changes: &'s [Change],
        keys: &'s [Key],
        before: &'s [Cause],
    ) -> Counts<'s> {
        let certain = (changes.iter().zip(keys)).filter(|(change, _)| {
            matches!(
                change.certainty,
                Certainty::Exact | Certainty::Significant | Certainty::TooFewRuns
            )
        });
        Counts {
            search,
            certain: certain.collect(),
            before,
        }
    }

    /// Whether something is a cause already; an empty name: anything of that kind.
    fn is_told(&self, kind: CauseKind, name: &str) -> bool {
        (self.before.iter())
            .any(|cause| cause.kind == kind && (name.is_empty() || cause.name == name))
    }

    fn is_told_package_of(&self, module: &str) -> bool {
        let package = self.search.sides.figures.package_of.get(module);
        package.is_some_and(|package| self.is_told(CauseKind::Package, package))
    }

    fn is_told_module(&self, row: usize) -> bool {
        let name = self.name(List::Modules, row);
        self.is_told(CauseKind::Module, name) || self.is_told_package_of(name)
    }

    /// What modules and packages that came or went did, or that are causes already, is explained.
    fn is_explained(&self, list: List, row: usize) -> bool {
        let name = self.name(list, row);
        let kind = match list {
            List::Packages => CauseKind::Package,
            _ => CauseKind::Module,
        };
        let candidate = self.search.candidate(kind, row);
        candidate.is_some_and(|candidate| candidate.presence.is_some())
            || self.is_told(kind, name)
            || list == List::Modules && self.is_told_package_of(name)
    }

    fn is_explained_module(&self, row: usize) -> bool {
        self.is_explained(List::Modules, row)
    }

    fn name(&self, list: List, row: usize) -> &'s str {
        let names = &self.search.sides.figures.table(list).names;
        names.get(row).map_or("", String::as_str)
    }

    /// How much of a change of all modules those hold of which something is so.
    fn held(&self, is_of: impl Fn(usize) -> bool, change: impl Fn(usize) -> f64) -> f64 {
        let rows = 0..self.search.sides.figures.table(List::Modules).names.len();
        rows.filter(|row| is_of(*row)).map(change).sum()
    }

    /// How much more or less of something a module did.
    fn done(&self, done: Done, row: usize) -> f64 {
        difference(match done {
            Done::Field(field) => self.search.medians(List::Modules, row, field),
            Done::Part(part) => self.search.part(row, part).medians(),
        })
    }

    /// Of these changes the one that is the least by chance.
    fn surest(&self, of: impl Fn(&Change, &Key) -> bool) -> Option<&'s Change> {
        let of_these = self.certain.iter().filter(|(change, key)| of(change, key));
        of_these.map(|(change, _)| *change).min_by(|a, b| {
            let order = |change: &Change| match change.certainty {
                Certainty::Exact => (0, 0.0),
                Certainty::Significant => (1, change.adjusted_p.unwrap_or(1.0)),
                _ => (2, 0.0),
            };
            let (a, b) = (order(a), order(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        })
    }

    fn surest_of(&self, figures: &[&str]) -> Option<&'s Change> {
        self.surest(|change, key| key.list == List::Run && figures.contains(&change.name.as_str()))
    }

    /// Stats that the program asks for itself find no module. The function that looks can have looked for package.json files.
    fn surest_to_find(&self, by_calls: bool) -> Option<&'s Change> {
        let search = self.search;
        let looks_for_others =
            (search.run(PACKAGE_JSON_STATS)).is_none_or(|(base, head)| base == head);
        self.surest(|_, key| {
            let field = key.list.fields().get(key.field);
            match key.list {
                List::Modules if !by_calls && field == Some(&FOUND_BY_STATS) => {
                    search.stats_of_others(key.row).change() != 0.0
                }
                List::Callbacks => (by_calls || looks_for_others) && search.is_search(key.row),
                _ => false,
            }
        })
    }

    /// The cause that a step of loading is, and how much more or less often it happens.
    fn step(&self, kind: CauseKind) -> Option<(f64, Cause)> {
        if self.is_told(kind, "") {
            return None;
        }
        let step = match kind {
            CauseKind::Compilation => self.compilations(),
            CauseKind::Resolution => self.searches(),
            _ => self.package_json(),
        };
        let step = step.filter(|step| !step.evidence.is_empty())?;
        let none = Series::default();
        let time = match kind {
            PACKAGE_JSON => (&self.search.readers, " in the functions that read them"),
            _ => (self.search.candidate(kind, 0)).map_or((&none, ""), Candidate::time_left),
        };
        let mut cause = self.search.of_count(kind, "", time, &step.evidence);
        (cause.certainty, cause.adjusted_p) = (step.surest.certainty, step.surest.adjusted_p);
        Some((step.events, cause))
    }

    /// What is compiled, or comes from a code cache.
    fn compilations(&self) -> Option<Step<'s>> {
        let whole = difference(self.search.run(CACHED));
        let of_told = || (self.search).of_told_scripts("cached", self.before, |_| true);
        if whole != 0.0 && whole == of_told() {
            return None;
        }
        Some(Step {
            surest: self.surest_of(&[CACHED])?,
            events: whole.abs(),
            evidence: self.search.of_run(&COMPILATIONS),
        })
    }

    /// What is looked at to find modules.
    fn searches(&self) -> Option<Step<'s>> {
        let searches = self.search.other_stats_to_find();
        let whole = searches.as_ref().map_or(0.0, |searches| searches.change);
        let by_calls = searches.is_some_and(|searches| searches.by_calls);
        let surest = self.surest_to_find(by_calls)?;
        let held = self.held(
            |row| self.is_explained_module(row),
            |row| self.search.stats_of_others(row).change(),
        );
        // What modules that are told look for in vain is told with them, as their stats.
        let caused = self.held(
            |row| self.is_told_module(row),
            |row| {
                let stats = self.done(Done::Field("stats"), row);
                stats - self.done(Done::Part(Part::CausedStats), row)
            },
        );
        let is_all = |held| is_all(whole, held, surest.certainty);
        (!is_all(held) && !is_all(caused)).then(|| Step {
            surest,
            events: whole.abs(),
            evidence: self.search.searches(),
        })
    }

    /// What is done with package.json files, as far as others do not explain it: who asked for these files, or opened or looked at them.
    fn package_json(&self) -> Option<Step<'s>> {
        let search = self.search;
        let is_left = |figure: &str, as_loaded: Done, as_requirer: Done| {
            let whole = difference(search.run(figure));
            whole != 0.0
                && self.surest_of(&[figure]).is_some_and(|of| {
                    let loaded = self.held(
                        |row| self.is_explained_module(row),
                        |row| self.done(as_loaded, row),
                    );
                    let caused = self.held(
                        |row| self.is_told_module(row),
                        |row| self.done(as_requirer, row),
                    );
                    let is_all = |held| is_all(whole, held, of.certainty);
                    !is_all(loaded) && !is_all(caused)
                })
        };
        let left: Vec<&str> = (DONE_WITH_PACKAGE_JSON.iter())
            .filter(|(figure, _, _, as_loaded, as_requirer)| {
                is_left(figure, *as_loaded, *as_requirer)
            })
            .map(|(figure, ..)| *figure)
            .collect();
        let changes = left
            .iter()
            .map(|figure| difference(search.run(figure)).abs());
        Some(Step {
            surest: self.surest_of(&left)?,
            events: changes.sum(),
            evidence: search.package_json(|figure| left.contains(&figure)),
        })
    }

    /// Modules that make more or fewer crossings, those with most first; `lookups`: of package.json files it is said that there are more or fewer.
    fn modules(&self, lookups: bool) -> Vec<Cause> {
        let search = self.search;
        let searched = |row: usize| {
            let medians = search.medians(List::Modules, row, "package_json_lookups");
            medians.is_some_and(|(base, head)| base != head)
        };
        let mut modules: Vec<(f64, usize, &Change)> = (self.certain.iter())
            .filter(|(_, key)| {
                key.list == List::Modules
                    && key.list.fields()[key.field] == "crossings"
                    && !self.is_explained(key.list, key.row)
                    // A lookup is a crossing: that was said of all modules.
                    && !(lookups && searched(key.row))
            })
            .map(|(change, key)| (change.difference.abs(), key.row, *change))
            .collect();
        modules.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let causes = modules.into_iter().filter_map(|(_, row, change)| {
            let candidate = search.candidate(CauseKind::Module, row)?;
            let evidence = search.of_row_counts(List::Modules, row, None);
            if evidence.is_empty() {
                return None;
            }
            let (kind, name) = (CauseKind::Module, &candidate.name);
            let mut cause = search.of_count(kind, name, candidate.time_left(), &evidence);
            (cause.certainty, cause.adjusted_p) = (change.certainty, change.adjusted_p);
            Some(cause)
        });
        causes.collect()
    }
}

/// Of medians, if they are known.
fn difference(medians: Option<(f64, f64)>) -> f64 {
    medians.map_or(0.0, |(base, head)| head - base)
}

/// Whether some hold all of a change; of one that scatters, nearly all.
fn is_all(whole: f64, held: f64, certainty: Certainty) -> bool {
    match certainty {
        Certainty::Significant => (whole - held).abs() < SCATTER * whole.abs(),
        _ => whole == held,
    }
}
