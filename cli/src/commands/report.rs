//! `nodeprof report`.

use std::{io, process::ExitCode};

use nodeprof_flamegraphs::text::{Style, render};
use nodeprof_profile::{Profile, Recording};

use crate::{
    args::{Color, Format, Report},
    terminal,
};

/// Prints the report of a recording.
pub fn run(args: &Report, color: Color) -> anyhow::Result<ExitCode> {
    let recording = Recording::load(&args.file)?;
    let profile = Profile::from_recording(&recording);
    let text = match args.format {
        Format::Json => json(&profile)?,
        Format::Text => {
            let out = io::stdout();
            render(
                &profile,
                &Style {
                    width: terminal::width(&out),
                    color: terminal::colored(color, &out),
                },
            )
        }
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The documented JSON.
pub fn json(profile: &Profile) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(profile)? + "\n")
}
