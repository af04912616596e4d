//! `nodeprof check` and `nodeprof budget`.

use std::{fs, io, path::Path, process::ExitCode};

use anyhow::{Context as _, bail};
use nodeprof_flamegraphs::text::{self, Style};
use nodeprof_profile::{
    Profile,
    budget::{self, Budgets, Drift, Outcome},
    diff::{Side, Sides},
    groups::{Group, Selector},
};

use super::{
    diff::{Loaded, have_one_name},
    hints::{self, quoted},
};
use crate::{
    args::{
        Color,
        diff::{self as args, BudgetCommand, CheckFormat},
        store::Store,
    },
    terminal,
};

/// Exit status of a limit that is not kept.
const OVER: u8 = 1;
/// Exit status where it could not be told.
const CANNOT_TELL: u8 = 125;

/// Checks budgets.
pub fn run(args: &args::Check, color: Color) -> anyhow::Result<ExitCode> {
    let budgets = read(&args.budget)?;
    if let Some(budget) = (budgets.list.iter())
        .find(|budget| budget.max_increase.is_some())
        .filter(|_| args.against.is_none())
    {
        bail!(
            "{}: budget {}: found max-increase, and nothing to compare with, so that nothing was judged; needed: a base; type: nodeprof check {} --against BASE",
            args.budget.display(),
            budget.figure,
            quoted(&args.head.to_string())
        );
    }
    let shown = args.budget.display();
    let drift = match args.allow_drift {
        true => Drift::Allowed,
        false => Drift::Forbidden,
    };
    let report = format!(
        "nodeprof report {}",
        hints::selected(&args.head, &args.store)
    );
    let checked = match &args.against {
        Some(base) => {
            let loaded = Loaded::load(base, Some(&args.head), &args.store)?;
            let sides = Sides::new(&loaded.base_side(), &loaded.head_side());
            budget::check(&sides, &budgets, drift, &report)
        }
        None => with_one(&args.head, &args.store, |sides| {
            budget::check(sides, &budgets, drift, &report)
        })?,
    };
    let checked = checked.with_context(|| format!("{shown}"))?;
    let text = match args.format {
        CheckFormat::Json => serde_json::to_string_pretty(&checked)? + "\n",
        CheckFormat::Junit => text::check_junit(&checked),
        CheckFormat::Markdown => text::check_markdown(&checked),
        CheckFormat::Github => text::check_github(&checked),
        CheckFormat::Text => {
            let out = io::stdout();
            let style = Style {
                width: terminal::width(&out),
                color: args.output.as_deref().is_none_or(super::is_standard_output)
                    && terminal::colored(color, &out),
            };
            text::check(&checked, &style)
        }
    };
    let written = super::print_or_write(
        args.output.as_deref(),
        args.force,
        &text,
        super::Example::output("check.txt"),
    );
    terminal::printed(written)?;
    Ok(match checked.outcome {
        Outcome::Within => ExitCode::SUCCESS,
        Outcome::Over => ExitCode::from(OVER),
        Outcome::CannotTell => ExitCode::from(CANNOT_TELL),
    })
}

fn read(path: &Path) -> anyhow::Result<Budgets> {
    let shown = path.display();
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "there is no {shown}; needed: a file of budgets; to write one from a baseline, type: nodeprof budget init BASE -o {}",
            hints::path(path)
        ),
        other => other.with_context(|| format!("{shown} cannot be read"))?,
    };
    Budgets::parse(&text).with_context(|| format!("{shown}"))
}

/// Runs of one side, with nothing to compare them with.
fn with_one<T>(
    selector: &Selector,
    store: &Store,
    then: impl FnOnce(&Sides<'_>) -> T,
) -> anyhow::Result<T> {
    let (recording, group) = super::source::load_selected(selector, store)?;
    have_one_name(&recording, &group, selector)?;
    let profile = Profile::from_recording(&recording);
    let side = |group| Side {
        recording: &recording,
        profile: &profile,
        group,
    };
    let nothing = Group {
        name: "nothing".into(),
        runs: Vec::new(),
    };
    Ok(then(&Sides::new(&side(nothing), &side(group))))
}

/// Writes budgets.
pub fn budget(args: &args::Budget) -> anyhow::Result<ExitCode> {
    let BudgetCommand::Init(args) = &args.command;
    let name = args
        .base
        .file
        .file_name()
        .unwrap_or(args.base.file.as_os_str());
    let source = name.to_string_lossy();
    let text = with_one(&args.base, &args.store, |sides| {
        budget::init(sides, &source)
    })?;
    // What is written must be readable.
    Budgets::parse(&text).context("the recording has no figures to write budgets for")?;
    super::print_or_write(
        Some(&args.output),
        args.force,
        &text,
        super::Example::output("nodeprof.toml"),
    )?;
    if !super::is_standard_output(&args.output) {
        say!("wrote {}", args.output.display());
    }
    Ok(ExitCode::SUCCESS)
}
