//! `nodeprof diff`.

use std::{collections::BTreeSet, io, path::Path, process::ExitCode};

use nodeprof_flamegraphs::{
    differential, printable,
    text::{self, Style},
    web,
};
use nodeprof_profile::{
    Profile, Recording,
    diff::sides::{ending, usual_ending},
    diff::{self, Side},
    groups::{BASE, Group, HEAD, NAME, Selector},
};

use super::hints::{self, quoted};
use crate::{
    args::{Color, diff as args, diff::DiffFormat, store::Store},
    terminal,
};

/// Compares two groups of runs.
pub fn run(args: &args::Diff, color: Color) -> anyhow::Result<ExitCode> {
    if args.format == DiffFormat::Html {
        super::not_on_a_terminal(
            args.output.as_ref(),
            "an HTML page is for a browser",
            "diff.html",
        )?;
    }
    let loaded = Loaded::load(&args.base, args.head.as_ref(), &args.store)?;
    let diff = diff::Diff::new(&loaded.base_side(), &loaded.head_side());
    let (base, head) = (quoted(&loaded.base_text), quoted(&loaded.head_text));
    // What to type next is about the same runs.
    let head = match (args.store.store, &args.store.store_path) {
        (false, _) => head,
        (true, None) => format!("{head} --store"),
        (true, Some(path)) => {
            format!("{head} --store --store-path {}", hints::path(path))
        }
    };
    let text = match args.format {
        DiffFormat::Json => serde_json::to_string_pretty(&diff)? + "\n",
        DiffFormat::Markdown => text::diff_markdown(&diff, &base, &head),
        DiffFormat::Text => {
            let out = io::stdout();
            let style = Style {
                width: terminal::width(&out),
                color: args.output.as_deref().is_none_or(super::is_standard_output)
                    && terminal::colored(color, &out),
            };
            text::diff(&diff, &base, &head, &style)
        }
        DiffFormat::Html => {
            let (base, head) = loaded.pages();
            web::comparison(&base, &head, &diff, web::Place::File)?
        }
    };
    let example = match args.format {
        DiffFormat::Html => "diff.html",
        _ => "diff.txt",
    };
    super::output(
        args.output.as_ref(),
        args.force,
        text.as_bytes(),
        super::Example::output(example),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Two groups of runs and the recordings that they are in: one, if both are in the same file.
pub struct Loaded<T> {
    base: T,
    head: Option<T>,
    base_group: Group,
    head_group: Group,
    /// What to type for base.
    pub base_text: String,
    /// What to type for head.
    pub head_text: String,
}

/// A recording and its figures.
pub type Derived = (Recording, Profile);

impl Loaded<Derived> {
    /// Loads both sides with their figures; with one selector, the two that its runs belong to.
    pub fn load(
        base: &Selector,
        head: Option<&Selector>,
        store: &Store,
    ) -> anyhow::Result<Loaded<Derived>> {
        Loaded::with(base, head, store, derived, |(recording, _)| recording)
    }

    /// Base.
    pub fn base_side(&self) -> Side<'_> {
        Side {
            recording: &self.base.0,
            profile: &self.base.1,
            group: self.base_group.clone(),
        }
    }

    /// Head.
    pub fn head_side(&self) -> Side<'_> {
        let (recording, profile) = self.head.as_ref().unwrap_or(&self.base);
        Side {
            recording,
            profile,
            group: self.head_group.clone(),
        }
    }
}

impl Loaded<Derived> {
    /// Both sides for a page.
    pub fn pages(&self) -> (web::Side<'_>, web::Side<'_>) {
        fn side<'a>(derived: &'a Derived, group: &'a Group, file: &'a str) -> web::Side<'a> {
            web::Side {
                name: &group.name,
                file,
                recording: &derived.0,
                profile: &derived.1,
                group: group.clone(),
                shown: None,
            }
        }
        let head = self.head.as_ref().unwrap_or(&self.base);
        (
            side(&self.base, &self.base_group, &self.base_text),
            side(head, &self.head_group, &self.head_text),
        )
    }
}

/// A recording with its figures.
pub fn derived(recording: Recording) -> Derived {
    let profile = Profile::from_recording(&recording);
    (recording, profile)
}

impl Loaded<Derived> {
    /// Runs with probes that ended as most of their side, for flame graphs.
    pub fn comparable(&self) -> (differential::Side<'_>, differential::Side<'_>) {
        let side = |recording, group: &Group| {
            let usual = usual_ending(recording, group);
            let group = group.probed(recording);
            let group = group.filter(recording, |run| usual.as_ref() == Some(&ending(run)));
            differential::Side { recording, group }
        };
        (
            side(&self.base.0, &self.base_group),
            side(
                &self.head.as_ref().unwrap_or(&self.base).0,
                &self.head_group,
            ),
        )
    }
}

impl<T> Loaded<T> {
    fn with(
        base: &Selector,
        head: Option<&Selector>,
        store: &Store,
        derive: fn(Recording) -> T,
        recording: fn(&T) -> &Recording,
    ) -> anyhow::Result<Loaded<T>> {
        if store.store {
            return Loaded::of_store(base, head, store, derive);
        }
        let load = |file: &Path| super::source::load(file, store).map(derive);
        let first = load(&base.file)?;
        let Some(head) = head else {
            let selected = base.group(recording(&first))?;
            let (base_group, head_group) = Group::sides(recording(&first))?;
            let within = |group: Group| Group {
                runs: (group.runs.into_iter())
                    .filter(|run| selected.runs.contains(run))
                    .collect(),
                name: group.name,
            };
            let (base_group, head_group) = (within(base_group), within(head_group));
            if base_group.runs.is_empty() || head_group.runs.is_empty() {
                anyhow::bail!(
                    "{base} selects no run of one side; needed: runs of both; type for example: nodeprof diff {}",
                    hints::path(&base.file)
                );
            }
            let text = |name: &str| {
                let mut selector = base.clone();
                selector.labels.push((NAME.into(), name.into()));
                selector.to_string()
            };
            return Ok(Loaded {
                base_text: text(&base_group.name),
                head_text: text(&head_group.name),
                base_group,
                head_group,
                base: first,
                head: None,
            });
        };
        let second = match same_file(&base.file, &head.file) {
            true => None,
            false => Some(load(&head.file)?),
        };
        let mut base_group = base.group(recording(&first))?;
        let mut head_group = head.group(recording(second.as_ref().unwrap_or(&first)))?;
        have_one_name(recording(&first), &base_group, base)?;
        have_one_name(
            recording(second.as_ref().unwrap_or(&first)),
            &head_group,
            head,
        )?;
        if base_group.name == head_group.name {
            base_group.name = base.to_string();
            head_group.name = head.to_string();
        }
        if base_group.name == head_group.name {
            (base_group.name, head_group.name) = (BASE.into(), HEAD.into());
        }
        Ok(Loaded {
            base_text: base.to_string(),
            head_text: head.to_string(),
            base_group,
            head_group,
            base: first,
            head: second,
        })
    }
}

/// Refuses runs of several names as one side: a figure of all of them is of none.
pub fn have_one_name(
    recording: &Recording,
    group: &Group,
    selector: &Selector,
) -> anyhow::Result<()> {
    let runs = { group.runs.iter() }.filter_map(|run| recording.runs.get(run.0 as usize));
    let names: BTreeSet<&str> = runs.filter_map(|run| run.label(NAME)).collect();
    match names.last() {
        Some(last) if names.len() > 1 => {
            let all: Vec<&str> = names.iter().copied().collect();
            let mut one = selector.clone();
            one.labels.push((NAME.into(), (*last).into()));
            anyhow::bail!(
                "{selector} has runs called {}, and a figure of all of them is of none; needed: one of these names; type for example: {}",
                printable(&all.join(", ")),
                printable(&one.to_string())
            )
        }
        _ => Ok(()),
    }
}

impl<T> Loaded<T> {
    /// Both sides of the store: one recording has them.
    fn of_store(
        base: &Selector,
        head: Option<&Selector>,
        store: &Store,
        derive: fn(Recording) -> T,
    ) -> anyhow::Result<Loaded<T>> {
        let Some(head) = head else {
            anyhow::bail!(
                "found one side; needed: two, BASE and HEAD; type for example: --store commit=3f1c2a commit=9b40de"
            );
        };
        let (base, head) = (base.to_string(), head.to_string());
        let loaded = super::source::of_store(store, &[&base, &head])?;
        Ok(Loaded::of_groups(loaded, base, head, derive))
    }

    /// Of two groups of one recording.
    pub fn of_groups(
        (mut groups, recording): (Vec<Group>, Recording),
        base: String,
        head: String,
        derive: fn(Recording) -> T,
    ) -> Loaded<T> {
        let mut head_group = groups.pop().unwrap_or_default();
        let mut base_group = groups.pop().unwrap_or_default();
        if base_group.name == head_group.name {
            (base_group.name, head_group.name) = (BASE.into(), HEAD.into());
        }
        Loaded {
            base: derive(recording),
            head: None,
            base_group,
            head_group,
            base_text: base,
            head_text: head,
        }
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}
