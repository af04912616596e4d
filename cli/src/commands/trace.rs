//! `nodeprof trace`.

use std::{
    io::{self, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitCode, ExitStatus},
};

use anyhow::Context as _;
use nodeprof_flamegraphs::text::{Style, render};
use nodeprof_profile::{Profile, Recording, wording::counted};
use nodeprofd::{
    measure::MeasureError,
    recorder::{
        CommandError, DEFAULT_HZ, Leaving, TraceError, TraceOptions, Traced, Verification, trace,
    },
};

use super::{hints, measure::check_labels, report, target::Target};
use crate::{
    args::{Color, Format, Trace},
    terminal,
};

/// Exit status for a failure that has a number of its own.
pub fn exit_code(error: &anyhow::Error) -> Option<u8> {
    let traced = match error.downcast_ref::<MeasureError>() {
        Some(MeasureError::Trace(error)) => Some(error),
        _ => error.downcast_ref::<TraceError>(),
    };
    match traced? {
        TraceError::Command(CommandError::NotFound { .. }) => Some(127),
        TraceError::Command(
            CommandError::NotExecutable { .. } | CommandError::NoInterpreter { .. },
        ) => Some(126),
        _ => None,
    }
}

/// Runs and records a program.
pub fn run(args: Trace, color: Color) -> anyhow::Result<ExitCode> {
    if args.freq == Some(0) && args.families.iter().any(|f| f == "cpu") {
        anyhow::bail!(
            "--freq 0 turns CPU samples off and --families names them; needed: one of both; type for example: --freq {DEFAULT_HZ}"
        );
    }
    check_labels(&args.labels, [])?;
    super::check_nodes(&args.nodes)?;
    let target = Target::new(args.output.as_deref(), args.force, &args.program)?;
    if args.quiet {
        target.check_folder()?;
    }
    let options = TraceOptions {
        mode: args.mode.into(),
        until: args.until,
        families: args.families.clone(),
        sample_hz: args.freq,
        verify: args.verify,
        nodes: args.nodes.clone(),
        source_maps: !args.no_source_maps,
        service: Some(args.tracer.service.clone()),
        ..TraceOptions::new(args.program.clone())
    };
    let Traced {
        mut recording,
        child,
        verification,
        leaving,
    } = trace(&options)?;
    for run in &mut recording.runs {
        // Before those of the machine: of a key that is given twice the last counts.
        run.labels.splice(0..0, args.labels.iter().cloned());
    }
    // Saving and reading the figures out take a core each.
    let (saved, text) = std::thread::scope(|scope| {
        let saving = scope.spawn(|| target.save(&recording));
        let text = text(&args, color, &recording);
        (
            saving
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("saving the recording failed"))),
            text,
        )
    });
    // Its name is known when it is written: a default one gives way to a file that is there.
    let printed =
        text.and_then(|text| print(&args, &text, saved.as_ref().ok().and_then(Option::as_deref)));
    match &saved {
        Ok(Some(path)) if !args.quiet => say!("recording: {}", path.display()),
        _ => {}
    }
    if let Some(verification) = verification {
        tell(verification);
    }
    let status = child.wait().context("waiting for the program");
    if let Leaving::Child(_) = leaving
        && !orphans_are_reaped()
    {
        // In a container nobody else may. Without CAP_SYS_ADMIN it takes the kernel some 40 ms to take the probes away.
        leaving.wait();
    }
    let status = status?;
    saved?;
    terminal::printed(printed)?;
    leave(status)
}

/// Whether all calls were seen.
fn tell(v: Verification) {
    say!(
        "verified: {} {} of binding callbacks, {} {} by call and construction: {}",
        v.entries,
        counted(v.entries, "entr[y|ies]"),
        v.crossings,
        counted(v.crossings, "crossing[|s]"),
        if v.differences.is_empty() {
            "equal for every callback"
        } else {
            "different for these callbacks"
        }
    );
    for (binding, function, entries, crossings) in v.differences {
        say!(
            "  {binding}.{function}: {}, {}",
            counted(entries, "# entr[y|ies]"),
            counted(crossings, "# crossing[|s]")
        );
    }
}

/// The report in the format asked for.
fn text(args: &Trace, color: Color, recording: &Recording) -> anyhow::Result<String> {
    // JSON that was asked for is no chatter.
    if args.quiet && args.format == Format::Text {
        return Ok(String::new());
    }
    let profile = Profile::from_recording(recording);
    match args.format {
        Format::Json => report::json(&profile),
        Format::Text => {
            let err = io::stderr();
            let style = Style {
                width: terminal::width(&err),
                color: terminal::colored(color, &err),
            };
            Ok(render(&profile, &style))
        }
    }
}

/// Prints it; hints name the recording, if it was written.
fn print(args: &Trace, text: &str, recording: Option<&Path>) -> anyhow::Result<()> {
    match (args.format, recording) {
        (Format::Json, _) => return terminal::print(text),
        // If nobody can read it, there is the recording still.
        (Format::Text, Some(path)) => {
            let named = hints::naming(text, &hints::path(path));
            let _ = io::stderr().lock().write_all(named.as_bytes());
        }
        (Format::Text, None) => {
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
    }
    Ok(())
}

/// Processes that, as the first one, reap who comes to them: init systems, those that containers have, and shells.
const REAPERS: &[&str] = &[
    "systemd",
    "init",
    "runit",
    "runsvdir",
    "s6-svscan",
    "openrc-init",
    "tini",
    "docker-init",
    "podman-init",
    "dumb-init",
    "catatonit",
    "bash",
    "sh",
    "dash",
    "busybox",
];

/// Whether the first process of this PID namespace is known to reap who is left to it. Node is not: it waits for its own children only.
fn orphans_are_reaped() -> bool {
    let name = std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
    REAPERS.contains(&name.trim_end())
}

/// Ends with the program's status. The kernel frees nodeprof's memory and maps.
fn leave(status: ExitStatus) -> anyhow::Result<ExitCode> {
    let _ = io::stdout().flush();
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(code as u8))
}
