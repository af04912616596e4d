//! Which runs of a recording belong together: all, or those with given labels.
//!
//! On the command line a group is `FILE`, `FILE@key=value[,key=value]` or `FILE@value`, which means `FILE@name=value`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::Recording;
use crate::measured::OF_COMPARISONS;
use crate::recording::{Run, RunId};
use crate::wording;

/// Label that tells a run's side or variant.
pub const NAME: &str = "name";
/// Label that tells in which pair a run was made, from 0.
pub const PAIR: &str = "pair";
/// Name of the side that is compared with.
pub const BASE: &str = "base";
/// Name of the side that is compared.
pub const HEAD: &str = "head";
/// Label with the release of the kernel that a run was made on.
pub const KERNEL: &str = "kernel";
/// Label with the processor that it was made on, and how many of them.
pub const MACHINE: &str = "machine";
/// Label of the commit that a run is of.
pub const COMMIT: &str = "commit";
/// Digits of a commit that are enough to name it, as git has it.
const SHORTEST_COMMIT: usize = 4;
/// [`Run::mode`] of a run that was not probed.
pub const BARE: &str = "bare";
/// [`Run::mode`] of a run whose calls and system calls were counted, not timed.
pub const COUNT_MODE: &str = "count";

impl Run {
    /// The value of a label; the last wins where a run repeats one.
    pub fn label(&self, key: &str) -> Option<&str> {
        let found = self.labels.iter().rev().find(|(k, _)| k == key);
        found.map(|(_, value)| value.as_str())
    }

    /// It was not probed: it has times, and no events.
    pub fn is_bare(&self) -> bool {
        self.mode == BARE
    }
}

/// Which runs of which file, as typed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The recording.
    pub file: PathBuf,
    /// Labels that a run must have; all runs without any.
    pub labels: Vec<(String, String)>,
}

/// Why a text is no selector, or a selector selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The text is not `FILE` or `FILE@…`.
    #[error(
        "found {found:?}; needed: FILE, FILE@NAME or FILE@KEY=VALUE,KEY=VALUE; type for example: bench.nodeprof@head"
    )]
    Syntax {
        /// The text.
        found: String,
    },
    /// No run has these labels.
    #[error(
        "{selector} selects no run; the recording has {there}; type for example: {file}{example}"
    )]
    Nothing {
        /// As typed.
        selector: String,
        /// Labels that there are, in words.
        there: String,
        /// The file.
        file: String,
        /// A selection that is not empty, from its `@` on.
        example: String,
    },
    /// More than one commit begins like this.
    #[error(
        "{selector}: commit={commit} is the beginning of {commits}; needed: more of its digits"
    )]
    Ambiguous {
        /// As typed.
        selector: String,
        /// What was asked for.
        commit: String,
        /// Those that it may be, in words.
        commits: String,
    },
    /// There are not two sides to compare.
    #[error(
        "found {there}; needed: two sides to compare; type two recordings, or two of FILE@NAME, FILE@KEY=VALUE"
    )]
    Sides {
        /// Names that there are, in words.
        there: String,
    },
    /// There is no run of that number.
    #[error("{found} has no run {number}; needed: {needed}")]
    NoRun {
        /// As typed.
        found: String,
        /// The number, from 1.
        number: u32,
        /// Numbers that there are, in words.
        needed: String,
    },
}

/// The run of a number from 1; `found` is what the user calls the recording.
pub fn numbered_run(recording: &Recording, number: u32, found: &str) -> Result<RunId, SelectError> {
    Group::all(recording, "").one(recording, Some(number), found)
}

impl Selector {
    /// All runs of a file.
    pub fn all(file: impl Into<PathBuf>) -> Selector {
        Selector {
            file: file.into(),
            labels: Vec::new(),
        }
    }

    /// Reads `FILE`, `FILE@value`, `FILE@key=value,…` ([`conditions`]). What follows the first `@` selects that comes after the name of a file
    /// that there is, or, without such a file, what follows the last `@` of the name; unless there is a file with the whole name.
    pub fn parse(text: &OsStr) -> Result<Selector, SelectError> {
        let syntax = || SelectError::Syntax {
            found: text.to_string_lossy().into_owned(),
        };
        if text.is_empty() {
            return Err(syntax());
        }
        let bytes = text.as_bytes();
        let name = bytes
            .iter()
            .rposition(|b| *b == b'/')
            .map_or(0, |at| at + 1);
        let file = |at: usize| PathBuf::from(OsString::from_vec(bytes[..at].to_vec()));
        let mut ats = (0..bytes.len()).filter(|at| bytes[*at] == b'@');
        // A branch in a value has slashes, a package an `@`.
        let begun = ats.find(|at| file(*at).is_file());
        let last = bytes.iter().rposition(|b| *b == b'@');
        let at = begun.or(last.filter(|at| *at >= name));
        let Some(at) = at.filter(|_| !Path::new(text).exists()) else {
            return Ok(Selector::all(text));
        };
        let wanted = std::str::from_utf8(&bytes[at + 1..]).map_err(|_| syntax())?;
        match conditions(wanted, Some(NAME)) {
            Some(labels) if begun.is_some() || at > name => Ok(Selector {
                file: file(at),
                labels,
            }),
            _ => Err(syntax()),
        }
    }

    /// The runs of its recording that it selects, in order. Of a [`COMMIT`] its first digits are enough.
    pub fn group(&self, recording: &Recording) -> Result<Group, SelectError> {
        let labels: Result<Vec<(&str, &str)>, SelectError> = (self.labels.iter())
            .map(|(key, value)| Ok((key.as_str(), self.whole(key, value, recording)?)))
            .collect();
        let labels = labels?;
        let selected = |run: &Run| {
            let mut labels = labels.iter();
            labels.all(|(key, value)| run.label(key) == Some(value))
        };
        let runs: Vec<RunId> = numbered(recording)
            .filter(|(_, run)| selected(run))
            .map(|(id, _)| id)
            .collect();
        if runs.is_empty() {
            let file = self.file.display().to_string();
            let mut there: Vec<(&str, &str)> = Vec::new();
            let mut known = HashSet::new();
            for (_, run) in numbered(recording) {
                // A recording may have any number of them: the last of a key is not looked for again for each.
                let last: HashMap<&str, &str> = (run.labels.iter())
                    .map(|(key, value)| (key.as_str(), value.as_str()))
                    .collect();
                for (key, _) in &run.labels {
                    let value = last.get(key.as_str()).copied().unwrap_or_default();
                    // A pair each, the rule by which it looked, and what a machine says of itself select no side.
                    let selects = !OF_COMPARISONS.contains(&key.as_str());
                    if selects && known.insert((key.as_str(), value)) {
                        there.push((key.as_str(), value));
                    }
                }
            }
            return Err(SelectError::Nothing {
                selector: self.to_string(),
                example: there.first().map_or(String::new(), |(key, value)| {
                    wording::printable(&format!("@{key}={}", escaped(value))).into_owned()
                }),
                there: match (recording.runs.len(), there.len()) {
                    (0, _) => "no runs".to_owned(),
                    (_, 0) => "no labels that tell runs apart".to_owned(),
                    _ => words(there.iter().map(|(key, value)| format!("{key}={value}"))),
                },
                file,
            });
        }
        Ok(Group {
            name: self.name(),
            runs,
        })
    }

    /// The whole commit where a value is the beginning of one that a run has; any other value as it is.
    fn whole<'a>(
        &self,
        key: &str,
        value: &'a str,
        recording: &'a Recording,
    ) -> Result<&'a str, SelectError> {
        let Some(begin) = beginning_of_commit(key, value) else {
            return Ok(value);
        };
        let commits: BTreeSet<&str> = (recording.runs.iter())
            .filter_map(|run| run.label(COMMIT))
            .filter(|commit| *commit == value || commit.starts_with(&begin) && is_commit(commit))
            .collect();
        match (commits.contains(value), commits.len()) {
            (false, 1) => Ok(commits.first().copied().unwrap_or(value)),
            (true, _) | (_, 0) => Ok(value),
            (false, _) => Err(SelectError::Ambiguous {
                selector: self.to_string(),
                commit: value.to_owned(),
                commits: words(commits.into_iter().map(str::to_owned)),
            }),
        }
    }

    /// What to call the group: its values, or the file's name.
    fn name(&self) -> String {
        if let [(key, value)] = self.labels.as_slice()
            && key == NAME
        {
            return value.clone();
        }
        if self.labels.is_empty() {
            let stem = self.file.file_stem().unwrap_or(self.file.as_os_str());
            return stem.to_string_lossy().into_owned();
        }
        labels_text(&self.labels)
    }
}

/// What a whole commit begins with, if a label's value may be the beginning of one.
pub(crate) fn beginning_of_commit(key: &str, value: &str) -> Option<String> {
    let is_hex = value.bytes().all(|byte| byte.is_ascii_hexdigit());
    (key == COMMIT && is_hex && value.len() >= SHORTEST_COMMIT).then(|| value.to_ascii_lowercase())
}

/// Nothing but digits as git writes them.
fn is_commit(value: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    value.bytes().all(is_digit)
}

/// The pairs of `key=value,key=value`; a first one without a key has `unnamed`. A comma within a value is one that no `key=` follows, or `\,`.
/// `None` if there is no pair, or one has no key or no value.
pub fn conditions(text: &str, unnamed: Option<&str>) -> Option<Vec<(String, String)>> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut escaped = false;
    for part in text.split(',') {
        let (part, escapes) = match part.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (part, false),
        };
        // Of what follows a comma, a value may be the beginning: `job=test: [20, x="y z"]`.
        let is_key = |key: &&str| {
            !key.is_empty() && (pairs.is_empty() || !key.contains([' ', '[', ']', '"', '\'']))
        };
        let begun = part.split_once('=').filter(|(key, _)| is_key(key));
        match (begun.filter(|_| !escaped), pairs.last_mut(), unnamed) {
            (Some((key, value)), ..) => pairs.push((key.to_owned(), value.to_owned())),
            (None, Some((_, value)), _) if escaped || !part.is_empty() => {
                value.push(',');
                value.push_str(part);
            }
            (None, None, Some(key)) if !part.starts_with('=') => {
                pairs.push((key.to_owned(), part.to_owned()));
            }
            _ => return None,
        }
        escaped = escapes;
    }
    let whole = |(_, value): &(String, String)| !value.is_empty();
    (!escaped && pairs.iter().all(whole)).then_some(pairs)
}

/// A value as [`conditions`] reads it.
fn escaped(value: &str) -> String {
    value.replace(',', "\\,")
}

fn labels_text(labels: &[(String, String)]) -> String {
    let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    labels.join(",")
}

/// At most this many labels are named in an error.
const NAMED: usize = 8;

fn words(items: impl Iterator<Item = String>) -> String {
    let mut items = items;
    // Who made the recording chose them.
    let named: Vec<String> = (items.by_ref().take(NAMED))
        .map(|item| wording::printable(&item).into_owned())
        .collect();
    let named = named.join(", ");
    match items.count() {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.labels.as_slice() {
            [] => Ok(()),
            [(key, value)] if key == NAME && !value.contains('=') => {
                write!(f, "@{}", escaped(value))
            }
            labels => {
                let labels = labels.iter().map(|(k, v)| (k.clone(), escaped(v)));
                write!(f, "@{}", labels_text(&labels.collect::<Vec<_>>()))
            }
        }
    }
}

fn numbered(recording: &Recording) -> impl Iterator<Item = (RunId, &Run)> {
    let ids = (0..).map(RunId);
    ids.zip(&recording.runs)
}

/// Runs that are looked at together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// What to call them.
    pub name: String,
    /// Which, ascending.
    pub runs: Vec<RunId>,
}

impl Group {
    /// All runs of a recording.
    pub fn all(recording: &Recording, name: &str) -> Group {
        Group {
            name: name.to_owned(),
            runs: numbered(recording).map(|(id, _)| id).collect(),
        }
    }

    /// Groups by [`NAME`], in order of their first run; runs without a name belong to none.
    pub fn by_name(recording: &Recording) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (id, run) in numbered(recording) {
            let Some(name) = run.label(NAME) else {
                continue;
            };
            let place = *places.entry(name).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(group) => group.runs.push(id),
                None => groups.push(Group {
                    name: name.to_owned(),
                    runs: vec![id],
                }),
            }
        }
        groups
    }

    /// Base and head of a recording that holds both: the runs called [`BASE`] and [`HEAD`], or else the two names that there
    /// are, the one that ran first as base.
    pub fn sides(recording: &Recording) -> Result<(Group, Group), SelectError> {
        let mut groups = Group::by_name(recording);
        let at = |name| groups.iter().position(|group: &Group| group.name == name);
        let (base, head) = match (at(BASE), at(HEAD), groups.len()) {
            (Some(base), Some(head), _) => (base, head),
            (_, _, 2) => (0, 1),
            _ => {
                let names = words(groups.iter().map(|group| group.name.clone()));
                return Err(SelectError::Sides {
                    there: match groups.len() {
                        0 => wording::counted(
                            recording.runs.len() as u64,
                            "# run[|s] without a name",
                        ),
                        1 => format!("one name ({names})"),
                        n => format!("{n} names ({names})"),
                    },
                });
            }
        };
        let head = std::mem::take(&mut groups[head]);
        let base = std::mem::take(&mut groups[base]);
        Ok((base, head))
    }

    /// Those of its runs for which `keep` holds.
    pub fn filter(&self, recording: &Recording, keep: impl Fn(&Run) -> bool) -> Group {
        let run = |id: &RunId| recording.runs.get(id.0 as usize);
        Group {
            name: self.name.clone(),
            runs: (self.runs.iter().copied())
                .filter(|id| run(id).is_some_and(&keep))
                .collect(),
        }
    }

    /// Runs that were probed: they have events.
    pub fn probed(&self, recording: &Recording) -> Group {
        self.filter(recording, |run| !run.is_bare())
    }

    /// The run to look at alone: that of a number from 1 in the recording, or else the first with probes. `found` is what the user calls them.
    pub fn one(
        &self,
        recording: &Recording,
        number: Option<u32>,
        found: &str,
    ) -> Result<RunId, SelectError> {
        let Some(number) = number else {
            let first = self.probed(recording).runs.first().copied();
            return Ok(first.or(self.runs.first().copied()).unwrap_or(RunId(0)));
        };
        let there = self.runs.iter().map(|run| run.0 + 1);
        match there.clone().find(|there| *there == number) {
            Some(number) => Ok(RunId(number - 1)),
            None => Err(SelectError::NoRun {
                found: found.to_owned(),
                number,
                needed: match self.runs.len() {
                    0 => "a recording with runs".to_owned(),
                    1 if recording.runs.len() == 1 => "1, its only run".to_owned(),
                    all if all == recording.runs.len() => format!("a number from 1 to {all}"),
                    _ => format!("one of {}", words(there.map(|run| run.to_string()))),
                },
            }),
        }
    }

    /// Runs that were not probed: their times hold no cost of tracing.
    pub fn bare(&self, recording: &Recording) -> Group {
        self.filter(recording, Run::is_bare)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Selector, SelectError> {
        Selector::parse(text.as_ref())
    }

    fn labels(list: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = list.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        owned.collect()
    }

    fn recording(runs: &[&[(&str, &str)]]) -> Recording {
        let runs = runs.iter().map(|list| Run {
            labels: labels(list),
            ..Run::default()
        });
        Recording {
            runs: runs.collect(),
            ..Recording::default()
        }
    }

    #[test]
    fn a_selector_is_a_file_and_labels() {
        for (text, file, wanted, shown) in [
            ("a.nodeprof", "a.nodeprof", &[][..], "a.nodeprof"),
            ("a@head", "a", &[("name", "head")], "a@head"),
            ("a@name=head", "a", &[("name", "head")], "a@head"),
            (
                "x@1/a@n=5,name=b",
                "x@1/a",
                &[("n", "5"), ("name", "b")],
                "x@1/a@n=5,name=b",
            ),
            ("x@1/a", "x@1/a", &[], "x@1/a"),
            ("a@b@k=v=w", "a@b", &[("k", "v=w")], "a@b@k=v=w"),
            (
                "a@job=test: [20, linux],os=x",
                "a",
                &[("job", "test: [20, linux]"), ("os", "x")],
                r"a@job=test: [20\, linux],os=x",
            ),
            (r"a@b\,c", "a", &[("name", "b,c")], r"a@b\,c"),
        ] {
            let selector = parse(text).unwrap();
            assert_eq!(selector.file, Path::new(file), "{text}");
            assert_eq!(selector.labels, labels(wanted), "{text}");
            assert_eq!(selector.to_string(), shown);
            assert_eq!(parse(&selector.to_string()).unwrap(), selector);
        }
        for bad in ["", "@head", "a@", "a@=v", "a@k=", "a@k=v,", "x/@b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_with_the_whole_name_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app@1.2.3.nodeprof");
        std::fs::write(&path, "").unwrap();
        let text = path.to_str().unwrap();
        assert_eq!(parse(text).unwrap(), Selector::all(&path));
        let selector = parse(&format!("{text}@base")).unwrap();
        assert_eq!(selector.file, path);
        assert_eq!(selector.labels, labels(&[("name", "base")]));
        // Slashes and an `@` in a value.
        let selector = parse(&format!("{text}@branch=feature/x,scope=@a/b")).unwrap();
        assert_eq!(selector.file, path);
        let wanted = [("branch", "feature/x"), ("scope", "@a/b")];
        assert_eq!(selector.labels, labels(&wanted));
        assert!(parse(&format!("{text}@")).is_err());
    }

    #[test]
    fn all_labels_must_match_and_the_last_of_a_key_counts() {
        let recording = recording(&[
            &[("name", "a"), ("n", "1")],
            &[("name", "a"), ("n", "2"), ("n", "1")],
            &[("name", "a"), ("n", "1"), ("n", "2")],
            &[("n", "1")],
        ]);
        let group = parse("f@a,n=1").unwrap().group(&recording).unwrap();
        assert_eq!(group.runs, [RunId(0), RunId(1)]);
        assert_eq!(group.name, "name=a,n=1");
        let all = parse("x/f.nodeprof").unwrap().group(&recording).unwrap();
        assert_eq!((all.runs.len(), all.name.as_str()), (4, "f"));
        let error = parse("f@b").unwrap().group(&recording).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("name=a, n=1, n=2"), "{text}");
        assert!(text.contains("type for example: f@name=a"), "{text}");
    }

    /// Each was looked for among all others, which took a minute for so many.
    #[test]
    fn of_a_run_of_many_labels_it_is_told_in_time_what_there_is() {
        let label = |index: usize| (format!("k{index}"), "v".to_owned());
        let mut recording = recording(&[&[], &[]]);
        for run in &mut recording.runs {
            run.labels = (0..100_000).map(label).collect();
            run.labels
                .push(("k0".to_owned(), "last\n\u{1b}[2J".to_owned()));
        }
        let begun = std::time::Instant::now();
        let error = parse("f@b").unwrap().group(&recording).unwrap_err();
        let took = begun.elapsed();
        let text = error.to_string();
        let there = r"the recording has k0=last\n\u{1b}[2J, k1=v, ";
        assert!(text.contains(there), "{text:?}");
        assert!(
            text.contains(" and 99992 more; type for example: f@k0=last\\n"),
            "{text}"
        );
        assert!(took.as_secs() < 10, "{took:?}");
        let names = (0..50_000).map(|index| Run {
            labels: vec![(NAME.to_owned(), index.to_string())],
            ..Run::default()
        });
        let many = Recording {
            runs: names.collect(),
            ..Recording::default()
        };
        assert_eq!(Group::by_name(&many).len(), 50_000);
    }

    #[test]
    fn the_first_digits_of_a_commit_are_enough() {
        let [one, other] = ["3f1c2a".repeat(6) + "aaaa", "3f1c9b".repeat(6) + "bbbb"];
        let recording = recording(&[
            &[("commit", &one), ("node", "3f1c2a")],
            &[("commit", &other)],
            &[("commit", &one)],
            &[("commit", "9b40")],
            &[("commit", "9b40de")],
        ]);
        let group = |text: &str| parse(text).unwrap().group(&recording);
        for (text, runs) in [
            ("f@commit=3f1c2a", &[0, 2][..]),
            ("f@commit=3F1C9b3", &[1]),
            ("f@commit=9b40", &[3]),
            ("f@commit=9b40d", &[4]),
        ] {
            let runs: Vec<RunId> = runs.iter().copied().map(RunId).collect();
            assert_eq!(group(text).unwrap().runs, runs, "{text}");
        }
        // Other labels have no beginnings, and three digits name no commit.
        for text in ["f@node=3f1c", "f@commit=3f1", "f@commit=3f1c2b"] {
            let error = group(text).unwrap_err();
            assert!(matches!(error, SelectError::Nothing { .. }), "{error}");
        }
        let error = group("f@commit=3f1c").unwrap_err().to_string();
        let both = format!("{one}, {other}; needed: more of its digits");
        assert!(error.contains(&both), "{error}");
    }

    #[test]
    fn sides_are_base_and_head_or_the_two_that_there_are() {
        let named = |names: &[&str]| {
            let mut all = Recording::default();
            for name in names {
                all.runs.extend(recording(&[&[("name", name)]]).runs);
            }
            Group::sides(&all)
        };
        let (base, head) = named(&["head", "x", "base", "head"]).unwrap();
        assert_eq!(
            (base.runs, head.runs),
            (vec![RunId(2)], vec![RunId(0), RunId(3)])
        );
        let (base, head) = named(&["new", "old", "new"]).unwrap();
        assert_eq!((base.name.as_str(), head.name.as_str()), ("new", "old"));
        for (names, says) in [
            (&[][..], "0 runs without a name"),
            (&["base"], "one name (base)"),
            (&["a", "b", "c"], "3 names (a, b, c)"),
        ] {
            let error = named(names).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn bare_runs_are_told_apart() {
        let mut recording = recording(&[&[], &[], &[]]);
        recording.runs[1].mode = "bare".into();
        let all = Group::all(&recording, "all");
        assert_eq!(all.bare(&recording).runs, [RunId(1)]);
        assert_eq!(all.probed(&recording).runs, [RunId(0), RunId(2)]);
    }
}
