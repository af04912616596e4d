//! `nodeprof export`.

use std::process::ExitCode;

use nodeprof_flamegraphs::{
    measurements::{hyperfine_json, node_csv},
    tables::{Rows, View},
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
            ExportFormat::Csv => rows.csv()?,
            ExportFormat::Json => rows.json()?,
        }
    };
    super::print_or_write(args.output.as_deref(), args.force, &text, "view.csv")?;
    Ok(ExitCode::SUCCESS)
}
