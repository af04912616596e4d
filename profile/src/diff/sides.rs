//! Two groups of runs, with their figures: what every comparison begins with.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::figures::{Figures, List, Naming};
use super::names::{Matching, Origin, Roots};
use crate::breakdown::Timeline;
use crate::groups::Group;
use crate::main_script::{Asked, absolute, main_script};
use crate::measured;
use crate::modules::package::PackageKind;
use crate::modules::script::Script;
use crate::recording::{FrameKind, NameId, Nanoseconds, ProcessId, Run, RunId};
use crate::sequential::PAIRS_LIMIT;
use crate::statistics::median;
use crate::{Profile, Recording, RunProfile};

/// A group of runs and the recording that they are in.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// Its figures.
    pub profile: &'a Profile,
    /// Which runs.
    pub group: Group,
}

/// Runs of one side among those of [`Sides::runs`].
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// What the group is called.
    pub name: String,
    /// Runs with probes.
    pub probed: Vec<usize>,
    /// Runs without.
    pub bare: Vec<usize>,
    /// Runs that ended otherwise than most of the side: not compared.
    pub failed: Vec<usize>,
}

impl Member {
    /// All that are compared.
    pub fn all(&self) -> Vec<usize> {
        [self.probed.as_slice(), &self.bare].concat()
    }

    /// The programs that these ran, by name, with the number of runs of each.
    pub fn programs(&self, runs: &[&RunProfile]) -> BTreeMap<String, usize> {
        let mut programs = BTreeMap::new();
        for run in self.all() {
            *programs.entry(program(runs[run])).or_default() += 1;
        }
        programs
    }
}

/// Values of a figure on one side, as a limit is to take them.
pub struct Judged {
    /// The values.
    pub values: Vec<f64>,
    /// Runs whose values are not among them.
    pub left_out: usize,
    /// One of them is a count that is too low.
    pub low: bool,
    /// The median of all runs if those that are left out have what was seen, and if they have any more.
    pub bounds: [f64; 2],
}

/// Two sides and their figures.
pub struct Sides<'a> {
    /// Runs of base, then of head.
    pub runs: Vec<&'a RunProfile>,
    /// Base.
    pub base: Member,
    /// Head.
    pub head: Member,
    /// All figures of all runs, under names that both sides know.
    pub figures: Figures,
    /// (base, head) wall times in seconds of runs made in pairs: bare ones, if both sides have such.
    pub pairs: Vec<(f64, f64)>,
    /// Pairs behind the first [`PAIRS_LIMIT`], which are not among these.
    pub pairs_left_out: usize,
    names: Names,
}

impl<'a> Sides<'a> {
    /// Puts both sides together.
    pub fn new(base: &Side<'a>, head: &Side<'a>) -> Sides<'a> {
        let mut runs: Vec<&RunProfile> = Vec::new();
        let mut origins: Vec<Origin> = Vec::new();
        let mut members = [base, head].map(|side| {
            let timeline = Timeline::new(side.recording);
            let first = runs.len();
            for id in &side.group.runs {
                if let Some(run) = side.profile.runs.get(id.0 as usize) {
                    runs.push(run);
                    origins.push(origin(side.recording, &timeline, *id));
                }
            }
            member(&side.group.name, &runs, first)
        });
        let base_runs = base.group.runs.len();
        let names = Names::new(&runs, base_runs, &origins);
        let figures = Figures::of(&runs, &names);
        let both_bare = members.iter().all(|member| !member.bare.is_empty());
        let mut pairs = match std::ptr::eq(base.recording, head.recording) {
            // What failed has no partner.
            true => {
                let mut first = 0;
                let mut members = members.iter();
                let groups = [base, head].map(|side| {
                    let Some(of) = members.next() else {
                        return Group::default();
                    };
                    let kept = if both_bare { &of.bare } else { &of.probed };
                    let kept: HashSet<usize> = kept.iter().copied().collect();
                    let ids = side.group.runs.iter().enumerate();
                    let runs = ids
                        .filter(|(index, _)| kept.contains(&(first + index)))
                        .map(|(_, id)| *id)
                        .collect();
                    first += side.group.runs.len();
                    Group {
                        name: side.group.name.clone(),
                        runs,
                    }
                });
                measured::pairs(base.recording, &groups[0], &groups[1])
            }
            false => Vec::new(),
        };
        // What is made of them grows with their square.
        let pairs_left_out = pairs.len().saturating_sub(PAIRS_LIMIT);
        pairs.truncate(PAIRS_LIMIT);
        let head = std::mem::take(&mut members[1]);
        let base = std::mem::take(&mut members[0]);
        Sides {
            runs,
            base,
            head,
            figures,
            pairs,
            pairs_left_out,
            names,
        }
    }

    /// Whether times of bare runs are compared: both sides have some, or the only one.
    pub fn bare(&self) -> bool {
        let has = |member: &Member| !member.bare.is_empty() || member.all().is_empty();
        has(&self.base) && has(&self.head) && !self.head.bare.is_empty()
    }

    /// Whether the times of a figure of runs without or with probes are of runs that were made in turn, so that what the machine did at the
    /// time is in both sides: pairs, or, sorted by their start, the side changes at least half as often as the smaller side has runs, and
    /// twice. (Rounds change sides at least once each; one side after the other does once in all.)
    pub fn in_turn(&self, probed: bool) -> bool {
        if !probed && !self.pairs.is_empty() {
            return true;
        }
        let (base, head) = match probed {
            true => (self.base.probed.as_slice(), self.head.probed.as_slice()),
            false => self.timed(),
        };
        let side = |runs: &[usize], side| {
            let starts = runs.iter().map(|run| self.runs[*run].started_unix_ns);
            starts.map(|start| (start, side)).collect::<Vec<_>>()
        };
        let mut starts = [side(base, false), side(head, true)].concat();
        starts.sort_unstable();
        let changes = starts.windows(2).filter(|two| two[0].1 != two[1].1).count();
        changes >= base.len().min(head.len()).div_ceil(2).max(2)
    }

    /// The runs whose times are compared.
    pub fn timed(&self) -> (&[usize], &[usize]) {
        match self.bare() {
            true => (&self.base.bare, &self.head.bare),
            false => (&self.base.probed, &self.head.probed),
        }
    }

    /// Whether a figure is one of [`Sides::timed`], not of runs with probes.
    pub fn is_of_timed(&self, list: List, row: usize) -> bool {
        let names = &self.figures.table(list).names;
        let name = names.get(row).map_or("", String::as_str);
        list == List::Run && name.starts_with("time.") && !name.contains("private_dirty_loop")
    }

    /// The runs of both sides that tell a figure best.
    pub(crate) fn runs_of(&self, list: List, row: usize) -> [&[usize]; 2] {
        match self.is_of_timed(list, row) {
            true => self.timed().into(),
            false => [self.base.probed.as_slice(), &self.head.probed],
        }
    }

    /// Values of a figure on both sides: of the runs that tell it best.
    pub fn values(&self, list: List, row: usize, field: usize) -> (Vec<f64>, Vec<f64>) {
        let table = self.figures.table(list);
        self.runs_of(list, row)
            .map(|runs| table.values(row, field, runs))
            .into()
    }

    /// Of base and head: values without those of a few runs in which something was not seen. Such a count is at least what was seen, so it says nothing
    /// against the others while it is no larger than all of them and most runs were seen whole; else all values, and that one is too low. `keep`: of which runs.
    pub(crate) fn judged_values_of(
        &self,
        list: List,
        row: usize,
        field: usize,
        keep: &dyn Fn(usize) -> bool,
    ) -> [Judged; 2] {
        let table = self.figures.table(list);
        self.runs_of(list, row).map(|runs| {
            let runs: Vec<usize> = runs.iter().copied().filter(|run| keep(*run)).collect();
            let (low, whole): (Vec<usize>, Vec<usize>) =
                (runs.iter()).partition(|run| table.is_low(row, **run, field));
            let (seen, values) = (
                table.values(row, field, &low),
                table.values(row, field, &whole),
            );
            let most = values.iter().copied().fold(f64::NAN, f64::max);
            let unknown = vec![f64::INFINITY; low.len()];
            let bounds = [seen.clone(), unknown]
                .map(|others| median(&[&values[..], &others].concat()).unwrap_or(f64::NAN));
            match whole.len() > low.len() && seen.iter().all(|value| *value <= most) {
                true => Judged {
                    values,
                    left_out: low.len(),
                    low: false,
                    bounds,
                },
                false => Judged {
                    values: table.values(row, field, &runs),
                    left_out: 0,
                    low: !low.is_empty(),
                    bounds,
                },
            }
        })
    }

    /// The same of base and head without the runs in which a count is too low; of a side that has no other runs, these, and true.
    pub fn whole_values(&self, list: List, row: usize, field: usize) -> [(Vec<f64>, bool); 2] {
        let table = self.figures.table(list);
        self.runs_of(list, row).map(|runs| {
            let whole = runs.iter().filter(|run| !table.is_low(row, **run, field));
            let whole: Vec<usize> = whole.copied().collect();
            match whole.is_empty() {
                true => (table.values(row, field, runs), !runs.is_empty()),
                false => (table.values(row, field, &whole), false),
            }
        })
    }

    /// A name of packages without the folder, and its versions in base and head.
    pub fn versions(&self, package: &str) -> (BTreeSet<String>, BTreeSet<String>) {
        let versions = |of: usize| {
            let known = self.names.versions[of].get(package);
            known.cloned().unwrap_or_default()
        };
        (versions(0), versions(1))
    }
}

/// How a run ended, as far as it decides whether it did what the others did.
pub type Ending = (Option<i32>, Option<i32>, String);

/// How a run ended.
pub fn ending(run: &Run) -> Ending {
    (run.exit_status, run.signal, run.ended_by.clone())
}

/// How most runs of a group ended.
pub fn usual_ending(recording: &Recording, group: &Group) -> Option<Ending> {
    let runs = group.runs.iter();
    usual(
        runs.filter_map(|run| recording.runs.get(run.0 as usize))
            .map(ending),
    )
}

pub(crate) fn usual(endings: impl Iterator<Item = Ending>) -> Option<Ending> {
    let mut counts: BTreeMap<Ending, usize> = BTreeMap::new();
    for ending in endings {
        *counts.entry(ending).or_default() += 1;
    }
    // Of two that are as frequent, the one without a failure.
    (counts.into_iter())
        .max_by_key(|(ending, count)| (*count, ending.1.is_none() && ending.0 == Some(0)))
        .map(|(ending, _)| ending)
}

/// The same of a profile.
pub(crate) fn ending_of(run: &RunProfile) -> Ending {
    (run.exit_status, run.signal, run.ended_by.clone())
}

/// Sorts the runs from `first` on: bare, probed, and those that ended otherwise than most.
fn member(name: &str, runs: &[&RunProfile], first: usize) -> Member {
    let usual = usual(runs[first..].iter().map(|run| ending_of(run)));
    let mut member = Member {
        name: name.to_owned(),
        ..Member::default()
    };
    for (index, run) in runs.iter().enumerate().skip(first) {
        let list = match run.mode == crate::groups::BARE {
            _ if Some(ending_of(run)) != usual => &mut member.failed,
            true => &mut member.bare,
            false => &mut member.probed,
        };
        list.push(index);
    }
    member
}

/// Where the program of a run lies.
pub fn origin(recording: &Recording, timeline: &Timeline, run: RunId) -> Origin {
    let of = recording.runs.get(run.0 as usize);
    let directory = of.map(|run| String::from_utf8_lossy(&run.directory).into_owned());
    let directory = directory.unwrap_or_default();
    let main = timeline.main_or_first_process(run);
    let process = main.and_then(|main| Some((main, recording.processes.get(main.0 as usize)?)));
    let told = process.and_then(|(id, process)| timeline.node_arguments(of, process, id));
    let arguments = match (told, of) {
        (Some(arguments), _) => arguments,
        (None, Some(run)) => run.command.as_slice(),
        (None, None) => &[],
    };
    let main = Asked::of(arguments).script.map(|script| {
        let used = process.and_then(|(id, _)| used_script(recording, id, &script, &directory));
        used.unwrap_or_else(|| absolute(&script, &directory))
    });
    Origin { main, directory }
}

/// The main script of a process: that of the run's folder if it was used, else the first whose path ends as the command line says, which was
/// then typed in another folder (`sh -c 'cd app && node main.js'`).
fn used_script(
    recording: &Recording,
    process: ProcessId,
    script: &str,
    directory: &str,
) -> Option<String> {
    let end = absolute(script, "");
    if script.starts_with('/') || end == "/" {
        return None;
    }
    let here = absolute(script, directory);
    let first = |mut list: Vec<(Nanoseconds, NameId)>| {
        list.sort_unstable();
        let mut found = None;
        for (_, name) in list {
            let path = Script::of(recording.name(name)).path;
            let Ok(path) = std::str::from_utf8(&path) else {
                continue;
            };
            // Node adds the ending of a file and the main file of a folder.
            if let Some(rest) = path.strip_prefix(&here)
                && (rest.is_empty() || rest.starts_with(['.', '/']))
            {
                return Some(here.clone());
            }
            let file = path.rfind('/').map_or(0, |at| at + 1);
            let ending = path[file..].rfind('.').map_or(path.len(), |at| file + at);
            let mut of = [path, &path[..ending]].into_iter();
            found = found.or_else(|| of.find(|path| path.ends_with(&end)).map(str::to_owned));
        }
        found
    };
    let compiled = recording.compilations.iter();
    let compiled = compiled.filter(|of| of.process == process);
    let used = recording.files.iter();
    let used = used.filter(|of| of.process == process && of.result >= 0);
    first(compiled.map(|of| (of.start, of.path)).collect())
        .or_else(|| first(used.map(|of| (of.start, of.path)).collect()))
        // perf sees neither.
        .or_else(|| {
            let samples = recording.samples.iter();
            let samples = samples.filter(|of| of.process == process);
            let scripts = samples.filter_map(|of| Some((of.at, of.stack?)));
            let scripts = scripts.flat_map(|(at, stack)| {
                let frames = recording.frames_of(stack);
                let frames = frames.filter(|frame| frame.kind == FrameKind::JavaScript);
                frames.filter_map(move |frame| Some((at, frame.file?)))
            });
            first(scripts.collect())
        })
}

/// Which program a run is of: its script, by name without versions, and the words after it (`npm ci` is not `npm run build`); what else it
/// is given (paths, seeds, numbers) may differ from start to start.
pub(crate) fn program(run: &RunProfile) -> String {
    let name = |path: &str| {
        let generic = super::names::generic(path);
        let last = generic.rsplit('/').next().unwrap_or_default();
        last.to_owned()
    };
    let is_word = |argument: &&String| {
        let mut letters = argument.chars();
        letters.next().is_some_and(char::is_alphabetic)
            && letters.all(|c| c.is_alphabetic() || "-_:".contains(c))
    };
    let with_words = |program: String, rest: &[String]| {
        let words = rest.iter().take_while(is_word);
        words.fold(program, |name, word| format!("{name} {word}"))
    };
    let Some((executable, rest)) = run.command.split_first() else {
        return String::new();
    };
    // `npm ci`, traced by the name of its script.
    let executable = name(executable);
    if !executable.starts_with("node") {
        return with_words(executable, rest);
    }
    let arguments: Vec<Vec<u8>> = run.command.iter().map(|a| a.clone().into_bytes()).collect();
    let script = main_script(&arguments, "");
    let at = script.as_ref().and_then(|script| {
        let mut rest = rest.iter();
        rest.position(|argument| absolute(argument, "") == *script)
    });
    match (script, at) {
        (Some(script), Some(at)) => with_words(name(&script), &rest[at + 1..]),
        // `node -e`: no script tells them apart.
        _ => (rest.iter().take(1)).fold(executable, |name, option| format!("{name} {option}")),
    }
}

/// What the paths of each run are seen from. Bare runs have no paths, and of them nothing is known but what was typed, which may be a script
/// without node or a program that executes it: they count only where no run of their side is probed.
fn roots(runs: &[&RunProfile], base_runs: usize, origins: &[Origin]) -> Vec<Roots> {
    let is_probed = |run: &&RunProfile| run.mode != crate::groups::BARE;
    let (base, head) = runs.split_at(base_runs.min(runs.len()));
    let side_is_probed = [base, head].map(|side| side.iter().any(is_probed));
    let counts: Vec<bool> = (runs.iter().enumerate())
        .map(|(index, run)| is_probed(run) || !side_is_probed[usize::from(index >= base_runs)])
        .collect();
    let counted: Vec<Origin> = (origins.iter().zip(&counts))
        .filter(|(_, counts)| **counts)
        .map(|(origin, _)| origin.clone())
        .collect();
    let mut of_counted = Roots::of(&counted).into_iter();
    (counts.into_iter())
        .map(|counts| counts.then(|| of_counted.next()).flatten())
        .map(Option::unwrap_or_default)
        .collect()
}

/// Names that both sides know.
struct Names {
    roots: Vec<Roots>,
    paths: Matching,
    folders: Matching,
    /// Names of packages that more than one folder of one run has.
    ambiguous: BTreeSet<String>,
    ambiguous_in_bundles: BTreeSet<String>,
    /// Runs whose main script is in a package.
    applications: Vec<bool>,
    /// By side and name: versions.
    versions: [BTreeMap<String, BTreeSet<String>>; 2],
}

impl Names {
    fn new(runs: &[&RunProfile], base_runs: usize, origins: &[Origin]) -> Names {
        let roots = roots(runs, base_runs, origins);
        let mut paths: [BTreeSet<String>; 2] = Default::default();
        let mut folders: [BTreeSet<String>; 2] = Default::default();
        let mut ambiguous = BTreeSet::new();
        let mut ambiguous_in_bundles = BTreeSet::new();
        let is_application = |package: &crate::report::PackageProfile| {
            package.kind == PackageKind::Application && package.directory.is_some()
        };
        let applications = runs
            .iter()
            .map(|run| run.packages.iter().any(is_application));
        let applications = applications.collect();
        for (index, (run, roots)) in runs.iter().zip(&roots).enumerate() {
            let side = usize::from(index >= base_runs);
            let modules = run.modules.iter().map(|module| &module.path);
            let files = run.package_json.files.iter().map(|file| &file.path);
            let scripts = run.compile.scripts.iter().map(|script| &script.path);
            for path in modules.chain(files).chain(scripts) {
                paths[side].insert(roots.rooted(path));
            }
            let loaded = { run.packages.iter() }.map(|p| (&p.name, &p.directory));
            let bundled = { run.bundled_packages.iter() }.map(|p| (&p.name, &p.directory));
            // A package that is loaded and in a bundle, too, is no second one of its name.
            ambiguous.extend(of_several(loaded, &mut |folder| {
                folders[side].insert(roots.rooted(folder));
            }));
            ambiguous_in_bundles.extend(of_several(bundled, &mut |folder| {
                folders[side].insert(roots.rooted(folder));
            }));
        }
        let matching = |sides: &[BTreeSet<String>; 2]| {
            let side = |index: usize| sides[index].iter().map(String::as_str);
            Matching::new(side(0), side(1))
        };
        let mut names = Names {
            paths: matching(&paths),
            folders: matching(&folders),
            roots,
            ambiguous,
            ambiguous_in_bundles,
            applications,
            versions: Default::default(),
        };
        for (index, run) in runs.iter().enumerate() {
            for package in &run.packages {
                let (name, folder) = (package.name.as_deref(), package.directory.as_deref());
                let name = names.package(index, name, folder, package.kind);
                if let Some(version) = &package.version {
                    let of = &mut names.versions[usize::from(index >= base_runs)];
                    of.entry(name).or_default().insert(version.clone());
                }
            }
        }
        names
    }
}

impl Naming for Names {
    fn path(&self, run: usize, path: &str) -> String {
        let Some(roots) = self.roots.get(run) else {
            return path.to_owned();
        };
        self.paths.name(&roots.rooted(path)).to_owned()
    }

    fn package(
        &self,
        run: usize,
        name: Option<&str>,
        folder: Option<&str>,
        kind: PackageKind,
    ) -> String {
        let has_folder = folder.is_some();
        let folder = || {
            let rooted = self.roots.get(run)?.rooted(folder?);
            Some(self.folders.name(&rooted).to_owned())
        };
        match (name, kind) {
            (_, PackageKind::Node) => "node".to_owned(),
            // Files of no package, beside an application that is one.
            (_, PackageKind::Application)
                if !has_folder && self.applications.get(run) == Some(&true) =>
            {
                "(no package)".to_owned()
            }
            (_, PackageKind::Application) => "(application)".to_owned(),
            (Some(name), _) if !self.ambiguous.contains(name) => name.to_owned(),
            (Some(name), _) => match folder() {
                Some(folder) => format!("{name} ({folder})"),
                None => name.to_owned(),
            },
            (None, _) => folder().unwrap_or_else(|| "(no package)".to_owned()),
        }
    }

    fn bundled(&self, run: usize, name: Option<&str>, folder: Option<&str>) -> String {
        let name = name.unwrap_or_default();
        let place = folder.zip(self.roots.get(run));
        match place.filter(|_| self.ambiguous_in_bundles.contains(name)) {
            Some((folder, roots)) => {
                format!("{name} ({})", self.folders.name(&roots.rooted(folder)))
            }
            None => name.to_owned(),
        }
    }
}

/// Names that packages in several folders have; each folder is also told.
fn of_several<'a>(
    packages: impl Iterator<Item = (&'a Option<String>, &'a Option<String>)>,
    tell: &mut dyn FnMut(&'a str),
) -> Vec<String> {
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, folder) in packages {
        if let Some(folder) = folder {
            tell(folder);
            let name = name.as_deref().unwrap_or_default();
            seen.entry(name).or_default().insert(folder);
        }
    }
    let several = seen.into_iter().filter(|(_, folders)| folders.len() > 1);
    several.map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_its_script_and_the_words_after_it() {
        for (command, expected) in [
            (
                &["/usr/bin/node", "/a/npm-cli.js", "ci"][..],
                "npm-cli.js ci",
            ),
            (&["node", "-r", "x", "app.js", "/tmp/x"], "app.js"),
            (&["node", "jest.js", "--seed=7"], "jest.js"),
            (
                &["node", "run.js", "run", "build:all", "7"],
                "run.js run build:all",
            ),
            (&["npm", "run", "build"], "npm run build"),
            (&["node", "-e", "0"], "node -e"),
            (&["node"], "node"),
            (&[], ""),
        ] {
            let run = RunProfile {
                command: command.iter().map(|text| text.to_string()).collect(),
                ..RunProfile::default()
            };
            assert_eq!(program(&run), expected);
        }
    }

    /// A recording may hold pairs without end.
    #[test]
    fn pairs_behind_the_most_are_left_out_and_that_is_said() {
        let run = |side: &str, pair: usize| Run {
            mode: crate::groups::BARE.into(),
            ended: Nanoseconds(1_000_000 + pair as u64),
            exit_status: Some(0),
            labels: vec![
                ("name".into(), side.into()),
                (crate::groups::PAIR.into(), pair.to_string()),
            ],
            ..Run::default()
        };
        for (count, left_out) in [(PAIRS_LIMIT, 0), (PAIRS_LIMIT + 3, 3)] {
            let of = |side: &'static str| (0..count).map(move |pair| run(side, pair));
            let recording = Recording {
                runs: of("base").chain(of("head")).collect(),
                ..Recording::default()
            };
            let profile = Profile::from_recording(&recording);
            let side = |name: &str, first: usize| Side {
                recording: &recording,
                profile: &profile,
                group: Group {
                    name: name.into(),
                    runs: (first..first + count)
                        .map(|run| RunId(run as u32))
                        .collect(),
                },
            };
            let sides = Sides::new(&side("base", 0), &side("head", count));
            assert_eq!(sides.pairs.len(), PAIRS_LIMIT);
            assert_eq!(sides.pairs_left_out, left_out);
            let statements = super::super::statements::Statements::of(&sides, None).list;
            let said = statements.iter().find(|of| of.kind == "pairs_left_out");
            let text = said.map(|of| of.text.as_str());
            let expected = "The verdict is of the first 10,000 pairs: 3 more are left out.";
            assert_eq!(text, (left_out > 0).then_some(expected));
        }
    }
}
