//! The report for a terminal: [`render`] for all runs of a profile, [`render_run`] for one.
//!
//! One line of verdict, then a section per question, the most telling rows first. Sections without data say in one
//! line why, or are left out. No line is wider than [`Style::width`], none ends in spaces, and what the traced program
//! chose (paths, arguments) cannot reach the terminal as a control character.

mod blame;
mod bundles;
mod check;
mod code;
mod diff;
mod diff_markdown;
mod files;
mod measurements;
mod module_tree;
mod modules;
mod names;
mod page;
mod processes;
mod trace;
mod tree;
mod verdict;
pub(crate) mod words;

use std::collections::BTreeMap;

use nodeprof_profile::report::{Profile, RunProfile};

use crate::paths::{printable, seen_from};
use crate::table::Paint;
use page::{Page, faint};
pub use words::{loss, signal_name};

pub use blame::{BlameOptions, Blamed, By, Figure, Role};
pub use bundles::{bundled_packages, sources};
pub use check::{check, check_github, check_junit, check_markdown};
pub use diff::diff;
pub use diff_markdown::markdown as diff_markdown;
pub use measurements::{doubts, measurements};
pub use module_tree::{ChainOptions, TreeOptions};

/// How a report is to look; the caller knows the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns; less than [`Style::LEAST_WIDTH`] counts as that.
    pub width: usize,
    /// Whether escape sequences for colours may be used.
    pub color: bool,
}

impl Style {
    /// Narrower than this, tables say nothing any more.
    pub const LEAST_WIDTH: usize = 60;
}

impl Default for Style {
    /// For a pipe: 100 columns, no colours.
    fn default() -> Self {
        Style {
            width: 100,
            color: false,
        }
    }
}

/// Rows of the longest table.
const TOP: usize = 12;
/// Rows of a table that stands beside another on the same subject.
const TOP_SHORT: usize = 6;
/// Reasons of more characters are told once.
const LONG_REASON: usize = 80;
/// Columns that a bar takes at most: wider ones are not read more exactly.
const BAR: usize = 60;

/// The report of every run.
pub fn render(profile: &Profile, style: &Style) -> String {
    let mut out = String::new();
    for (index, run) in profile.runs.iter().enumerate() {
        if profile.runs.len() > 1 {
            if index > 0 {
                out.push('\n');
            }
            let title = format!("Run {} of {}", index + 1, profile.runs.len());
            out.push_str(&Paint::Faint.on(&title, style.color));
            out.push('\n');
        }
        out.push_str(&render_run(run, style));
    }
    if profile.runs.is_empty() {
        out.push_str("This recording holds no run.\n");
    }
    out
}

/// Modules or packages of one run, the most expensive first.
pub fn blame(run: &RunProfile, options: &BlameOptions, style: &Style) -> String {
    let mut report = Report::new(run, style);
    report.blame(options);
    report.page.out
}

/// Why [`blame`], [`tree`] and [`critical_chain`] of a run have nothing to show, and what to type; `None` if what they show is so.
pub fn not_blamed(run: &RunProfile) -> Option<String> {
    Report::new(run, &Style::default()).not_blamed()
}

/// The modules of one run as a tree of requirers.
pub fn tree(run: &RunProfile, options: &TreeOptions, style: &Style) -> String {
    let mut report = Report::new(run, style);
    report.module_tree(options);
    report.page.out
}

/// The chain of modules that the start of one run waited for.
pub fn critical_chain(run: &RunProfile, options: &ChainOptions, style: &Style) -> String {
    let mut report = Report::new(run, style);
    report.critical_chain(options);
    report.page.out
}

/// The report of one run.
pub fn render_run(run: &RunProfile, style: &Style) -> String {
    let mut report = Report::new(run, style);
    report.verdict();
    report.phases();
    report.crossings();
    report.package_json();
    report.serialization();
    report.compile();
    report.modules();
    report.samples();
    report.files();
    report.processes();
    report.families();
    report.losses();
    report.overhead();
    report.page.out
}

struct Report<'a> {
    run: &'a RunProfile,
    /// The folder that paths are shown from.
    base: String,
    /// Long reasons why a section is empty, with the title of the first such section.
    told: Vec<(String, String)>,
    page: Page,
}

impl<'a> Report<'a> {
    fn new(run: &'a RunProfile, style: &Style) -> Report<'a> {
        Report {
            run,
            base: base(run),
            told: Vec::new(),
            page: Page {
                out: String::new(),
                width: style.width.max(Style::LEAST_WIDTH),
                color: style.color,
            },
        }
    }

    fn path(&self, path: &str) -> String {
        seen_from(path, &self.base)
    }

    /// State of a family, if it is not simply on.
    fn off(&self, name: &str) -> Option<String> {
        let family = self
            .run
            .families
            .iter()
            .find(|family| family.name == name && family.state != "on")?;
        let reason = family.reason.as_deref().map(printable);
        Some(match (family.state.as_str(), reason) {
            ("off", None) => "not recorded: the family was not asked for".to_owned(),
            ("off", Some(reason)) => format!("not recorded: {reason}"),
            (state, Some(reason)) => format!("{}: {reason}", printable(state)),
            (state, None) => format!("recorded as {}", printable(state)),
        })
    }

    /// Says why a section is empty; nothing if the family was on and there simply was nothing.
    fn empty(&mut self, title: &str, family: &str) {
        let Some(reason) = self.off(family) else {
            return;
        };
        // One binary that cannot be probed fails all families in the same words.
        match self.told.iter().find(|(told, _)| *told == reason) {
            Some((_, first)) => {
                let state = reason.split(':').next().unwrap_or_default();
                let as_before = format!("{state}, as {first}");
                self.page.section(title, &[faint(as_before)]);
            }
            None => {
                self.page.section(title, &[faint(reason.clone())]);
                if reason.len() > LONG_REASON {
                    self.told.push((reason, title.to_owned()));
                }
            }
        }
    }
}

fn all_paths(run: &RunProfile) -> impl Iterator<Item = &str> {
    let package_json = run.package_json.files.iter().map(|file| file.path.as_str());
    let files = run
        .files
        .slowest
        .iter()
        .chain(&run.files.most_repeated)
        .map(|path| path.path.as_str());
    let scripts = run
        .compile
        .scripts
        .iter()
        .map(|script| script.path.as_str());
    package_json
        .chain(files)
        .chain(scripts)
        .map(|path| path.strip_prefix("file://").unwrap_or(path))
}

fn is_inside(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/'))
        .is_some_and(|rest| rest.starts_with('/'))
}

/// The folder to show paths from: the home of the node_modules that most paths lie in, else the working directory.
fn base(run: &RunProfile) -> String {
    let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut paths = 0;
    for path in all_paths(run).filter(|path| path.starts_with('/')) {
        paths += 1;
        if let Some((home, _)) = path.split_once("/node_modules/") {
            *homes.entry(home).or_default() += 1;
        }
    }
    match homes
        .into_iter()
        .max_by_key(|&(home, count)| (count, std::cmp::Reverse(home)))
    {
        Some((home, count)) if count * 2 > paths && !home.is_empty() => home.to_owned(),
        _ => run.directory.clone(),
    }
}
