//! `nodeprof report`.

use std::{io, process::ExitCode};

use nodeprof_flamegraphs::text::{Style, measurements, render, render_run};
use nodeprof_profile::{Profile, Recording};

use crate::{
    args::{Color, Format, Report},
    terminal,
};

/// Prints the report of a recording.
pub fn run(args: &Report, color: Color) -> anyhow::Result<ExitCode> {
    let recording = Recording::load(&args.file)?;
    let mut profile = Profile::from_recording(&recording);
    if let Some(number) = args.run {
        let there = profile.runs.len();
        let run = match there >= number as usize {
            true => profile.runs.swap_remove(number as usize - 1),
            false => anyhow::bail!(
                "{} has no run {number}; needed: a number from 1 to {there}",
                args.file.display()
            ),
        };
        profile.runs = vec![run];
    }
    let text = match args.format {
        Format::Json => json(&profile)?,
        Format::Text => {
            let out = io::stdout();
            let style = Style {
                width: terminal::width(&out),
                color: terminal::colored(color, &out),
            };
            match (args.run, profile.runs.as_slice()) {
                (Some(_), [run]) => render_run(run, &style),
                _ if recording.runs.iter().any(|run| run.is_bare()) => {
                    let mut text = measurements(&recording, &profile, &style);
                    if let Some(probed) = recording.runs.iter().position(|run| !run.is_bare()) {
                        text.push_str(&format!(
                            "\nThe report of a run with probes: nodeprof report {} --run {}\n",
                            args.file.display(),
                            probed + 1
                        ));
                    }
                    text
                }
                _ => render(&profile, &style),
            }
        }
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The documented JSON.
pub fn json(profile: &Profile) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(profile)? + "\n")
}
