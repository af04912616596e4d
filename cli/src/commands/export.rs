//! `nodeprof export`.

use std::process::ExitCode;

use anyhow::bail;
use nodeprof_flamegraphs::{
    measurements::{hyperfine_json, node_csv, untimed},
    tables::{Rows, View},
    text,
};
use nodeprof_profile::{Profile, groups::numbered_run};

use crate::args::{Export, ExportFormat, TIMES};

/// Writes the data of a view.
pub fn run(args: &Export) -> anyhow::Result<ExitCode> {
    let recording = super::source::load(&args.file, &args.store)?;
    if let Some(number) = args.run {
        numbered_run(&recording, number, &args.file.to_string_lossy())?;
    }
    let text = if args.of == TIMES {
        if args.run.is_some() {
            bail!(
                "found: --run with --of times, which has all runs without probes; needed: one of both; type: --of times, or --of runs --run N"
            );
        }
        let without: Vec<String> = untimed(&recording);
        if recording.runs.iter().all(|run| !run.is_bare()) {
            bail!(
                "{}: found: no run without probes, and times with probes include their cost; needed: a recording of nodeprof bench or compare; for times with probes type: --of runs",
                args.file.display()
            );
        }
        if !without.is_empty() {
            say!(
                "Left out, for want of a run without probes: {}.",
                without.join(", ")
            );
        }
        match args.format {
            ExportFormat::Csv => node_csv(&recording)?,
            ExportFormat::Json => hyperfine_json(&recording)?,
        }
    } else {
        let view = View::ALL.iter().find(|(name, _)| *name == args.of);
        let view = view.map_or(View::Runs, |(_, view)| *view);
        let profile = Profile::from_recording(&recording);
        let run = args.run.map(|n| n as usize);
        let rows = Rows::of(&recording, &profile, view, run)?;
        match args.format {
            ExportFormat::Csv if rows.is_empty() => bail!(
                "{}: {}",
                args.file.display(),
                no_rows(&profile, view, args.run, &args.of)
            ),
            ExportFormat::Csv => rows.csv()?,
            ExportFormat::Json => rows.json()?,
        }
    };
    super::print_or_write(
        args.output.as_deref(),
        args.force,
        &text,
        super::Example::output("view.csv"),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Why a table has no row, of which nothing would be left without a header.
fn no_rows(profile: &Profile, view: View, run: Option<u32>, name: &str) -> String {
    let run = run.map_or(0, |number| number.saturating_sub(1) as usize);
    let of_modules = matches!(
        view,
        View::Modules | View::Packages | View::BundledPackages | View::Sources | View::Outside
    );
    let reason = (profile.runs.get(run)).and_then(text::not_blamed);
    (reason.filter(|_| of_modules)).unwrap_or_else(|| {
        format!(
            "found: no row of {name}; needed: another view, or, for an empty list: --format json"
        )
    })
}
