//! `nodeprof blame`, `critical-chain` and `tree`.

use std::{io, process::ExitCode};

use anyhow::bail;
use nodeprof_flamegraphs::text::{
    self, BlameOptions, Blamed, By, ChainOptions, Role, Style, TreeOptions,
};
use nodeprof_profile::{
    Profile, RunProfile,
    diff::figures::List,
    groups::{BARE, numbered_run},
    modules::ModuleKind,
    report::{self, SCHEMA},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::hints;
use crate::{
    args::{
        Color, Format,
        modules::{self as args, Source},
    },
    terminal,
};

/// Prints modules or packages, the most expensive first.
pub fn blame(args: &args::Blame, color: Color) -> anyhow::Result<ExitCode> {
    let runs = runs(&args.source)?;
    let options = BlameOptions {
        by: match args.by {
            args::By::Module => By::Module,
            args::By::Package => By::Package,
        },
        role: match args.role {
            args::Role::Requirer => Role::Requirer,
            args::Role::Loaded => Role::Loaded,
        },
        sort: args.sort,
        limit: args.limit,
    };
    match args.format {
        Format::Text => print(&args.source, &runs, color, |run, style| {
            text::blame(run, &options, style)
        })?,
        Format::Json => {
            let mut rows_of_runs = Vec::new();
            for (number, run) in &runs {
                let rows = Blamed::of_run(run, &options).into_iter();
                let rows = rows.take(options.limit.unwrap_or(usize::MAX));
                let rows: serde_json::Result<Vec<Value>> = rows
                    .map(|row| match row {
                        Blamed::Module(module) => report::row(run, List::Modules, module),
                        Blamed::Package(package) => report::row(run, List::Packages, package),
                    })
                    .collect();
                rows_of_runs.push(match options.by {
                    By::Module => json!({
                        "run": number, "modules": rows?, "sources": of_bundles(run, text::sources(run, &options), &options)?,
                    }),
                    By::Package => json!({
                        "run": number, "packages": rows?,
                        "bundled_packages": of_bundles(run, text::bundled_packages(run, &options), &options)?,
                    }),
                });
            }
            let document = json!({ "schema": SCHEMA, "runs": rows_of_runs });
            terminal::print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// As many parts of bundles as are asked for. They have no figures of loading.
fn of_bundles(
    run: &RunProfile,
    parts: Vec<impl Serialize>,
    options: &BlameOptions,
) -> serde_json::Result<Vec<Value>> {
    let shown = match options.role {
        Role::Requirer => options.limit.unwrap_or(usize::MAX),
        Role::Loaded => 0,
    };
    let parts = parts.into_iter().take(shown);
    parts
        .map(|part| report::row(run, List::BundledPackages, &part))
        .collect()
}

/// Prints the chain of modules that the start waited for.
pub fn critical_chain(args: &args::CriticalChain, color: Color) -> anyhow::Result<ExitCode> {
    let options = ChainOptions {
        fuzz_ns: args.fuzz.unwrap_or_default(),
    };
    print(&args.source, &runs(&args.source)?, color, |run, style| {
        text::critical_chain(run, &options, style)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints modules below their requirers.
pub fn tree(args: &args::Tree, color: Color) -> anyhow::Result<ExitCode> {
    let options = TreeOptions {
        depth: args.depth,
        least_ns: args.min.unwrap_or_default(),
        package: args.package.clone(),
        builtins: args.builtins,
    };
    let runs = runs(&args.source)?;
    let narrowed = options.package.is_some() || options.least_ns > 0;
    if narrowed
        && !runs.iter().any(|(_, run)| shows(run, &options))
        && let Some((_, run)) = runs.first()
    {
        // In one line, however long.
        let style = Style {
            width: usize::MAX,
            color: false,
        };
        let reason = text::tree(run, &options, &style);
        bail!(
            "{}: {}",
            args.source.file.display(),
            hints::naming(reason.trim(), &named(&args.source))
        );
    }
    print(&args.source, &runs, color, |run, style| {
        text::tree(run, &options, style)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a tree with these options has a row: a module that they mean, which keeps those that required it.
fn shows(run: &RunProfile, options: &TreeOptions) -> bool {
    run.modules.iter().any(|module| {
        (options.builtins || module.kind != ModuleKind::Builtin)
            && module.total_ns >= options.least_ns
            && (options.package.is_none() || module.package == options.package)
    })
}

/// The recording in hints.
fn named(source: &Source) -> String {
    hints::source(&source.file, &source.store)
}

/// The runs asked for, with their numbers from 1.
fn runs(source: &Source) -> anyhow::Result<Vec<(usize, RunProfile)>> {
    let recording = super::source::load(&source.file, &source.store)?;
    let (shown, named) = (source.file.display(), named(source));
    if let Some(number) = source.run {
        numbered_run(&recording, number, &shown.to_string())?;
    }
    let profile = Profile::from_recording(&recording);
    let there = profile.runs.len();
    let numbered = profile.runs.into_iter().enumerate();
    let mut runs: Vec<(usize, RunProfile)> = numbered
        .map(|(index, run)| (index + 1, run))
        .filter(|(number, run)| match source.run {
            Some(wanted) => wanted as usize == *number,
            // Without probes no modules are seen.
            None => run.mode != BARE || there == 1,
        })
        .collect();
    let is_bare = |(_, run): &(usize, RunProfile)| run.mode == BARE;
    if let (Some(number), true) = (source.run, runs.iter().any(is_bare)) {
        bail!(
            "{shown}: found: run {number}, which had no probes, so that no module was seen; needed: another run, or one with probes; type: nodeprof report {named}, which lists the runs"
        );
    }
    // Those without probes are left out of several.
    if there > 0 && runs.iter().all(is_bare) {
        bail!(
            "{shown}: found: only runs without probes, in which no module is seen; needed: a run with probes; type: nodeprof bench --probed-runs 1 -- COMMAND, or nodeprof trace -- COMMAND"
        );
    }
    if let Some(pid) = source.process {
        let mut known = Vec::new();
        for (_, run) in &mut runs {
            known.extend(run.modules.iter().map(|module| module.pid));
            run.keep_modules_of(pid);
        }
        known.sort_unstable();
        known.dedup();
        if !known.contains(&pid) {
            let known: Vec<String> = known.iter().map(u32::to_string).collect();
            bail!(
                "{shown} has no modules of process {pid}; needed: {}; type: nodeprof report {named}, which lists the processes",
                match known.is_empty() {
                    true => "a recording with stacks".to_owned(),
                    false => format!("one of {}", known.join(", ")),
                }
            );
        }
    }
    let mut reasons = runs.iter().map(|(_, run)| text::not_blamed(run));
    if let Some(Some(reason)) = reasons.next()
        && reasons.all(|reason| reason.is_some())
    {
        bail!("{shown}: {}", hints::naming(&reason, &named));
    }
    Ok(runs)
}

fn print(
    source: &Source,
    runs: &[(usize, RunProfile)],
    color: Color,
    view: impl Fn(&RunProfile, &Style) -> String,
) -> anyhow::Result<()> {
    let out = io::stdout();
    let style = Style {
        width: terminal::width(&out),
        color: terminal::colored(color, &out),
    };
    let views: Vec<String> = runs
        .iter()
        .map(|(number, run)| match runs.len() {
            1 => view(run, &style),
            _ => format!("Run {number}\n{}", view(run, &style)),
        })
        .collect();
    terminal::print(&hints::naming(&views.join("\n"), &named(source)))
}
