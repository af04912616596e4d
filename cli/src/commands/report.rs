//! `nodeprof report`.

use std::{io, process::ExitCode};

use nodeprof_flamegraphs::{
    text::{Style, measurements, render, render_run},
    web,
};
use nodeprof_profile::{
    Profile, Recording,
    groups::{Group, numbered_run},
    recording::RunId,
    report::Document,
};

use super::hints;
use crate::{
    args::{Color, Report, ReportFormat},
    terminal,
};

/// Prints the report of a recording.
pub fn run(args: &Report, color: Color) -> anyhow::Result<ExitCode> {
    let recording = super::source::load(&args.file, &args.store)?;
    let mut profile = Profile::from_recording(&recording);
    if let Some(number) = args.run {
        numbered_run(&recording, number, &args.file.to_string_lossy())?;
    }
    if args.format == ReportFormat::Html {
        super::not_on_a_terminal(
            args.output.as_ref(),
            "an HTML page is for a browser",
            "report.html",
        )?;
        let file = args.file.display().to_string();
        let run = args.run.map(|number| RunId(number - 1));
        let page = html(&file, &recording, &profile, run, web::Place::File)?;
        super::output(
            args.output.as_ref(),
            args.force,
            page.as_bytes(),
            super::Example::output("report.html"),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(number) = args.run {
        profile.runs = vec![profile.runs.swap_remove(number as usize - 1)];
    }
    let text = match args.format {
        ReportFormat::Json | ReportFormat::Html => json(&profile)?,
        ReportFormat::Text => {
            let out = io::stdout();
            let style = Style {
                width: terminal::width(&out),
                color: args.output.as_deref().is_none_or(super::is_standard_output)
                    && terminal::colored(color, &out),
            };
            match (args.run, profile.runs.as_slice()) {
                (Some(_), [run]) => render_run(run, &style),
                _ if recording.runs.iter().any(|run| run.is_bare()) => {
                    let mut text = measurements(&recording, &profile, &style);
                    if let Some(probed) = recording.runs.iter().position(|run| !run.is_bare()) {
                        text.push_str(&format!(
                            "\nThe report of a run with probes: nodeprof report {} --run {}\n",
                            hints::source(&args.file, &args.store),
                            probed + 1
                        ));
                    }
                    text
                }
                _ => render(&profile, &style),
            }
        }
    };
    let text = match args.format {
        ReportFormat::Text => hints::naming(&text, &hints::source(&args.file, &args.store)),
        ReportFormat::Json | ReportFormat::Html => text,
    };
    super::output(
        args.output.as_ref(),
        args.force,
        text.as_bytes(),
        super::Example::output("report.txt"),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The page of a recording, or of one run of it.
pub fn html(
    file: &str,
    recording: &Recording,
    profile: &Profile,
    run: Option<RunId>,
    place: web::Place,
) -> anyhow::Result<String> {
    let group = match run {
        Some(run) => Group {
            name: String::new(),
            runs: vec![run],
        },
        None => Group::all(recording, ""),
    };
    let side = web::Side {
        name: "",
        file,
        recording,
        profile,
        group,
        shown: run,
    };
    Ok(web::report(&side, place)?)
}

/// The documented JSON.
pub fn json(profile: &Profile) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&Document::from(profile))? + "\n")
}
