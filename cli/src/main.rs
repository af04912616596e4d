//! `nodeprof`: parses, calls a library, prints.

mod args;
mod commands;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

/// nodeprof's own failure, as `timeout(1)` has it.
const OWN_FAILURE: u8 = 125;

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // Help and version are no failure.
            return ExitCode::from(if error.use_stderr() { OWN_FAILURE } else { 0 });
        }
    };
    let color = cli.color;
    let outcome = match cli.command {
        args::Command::Trace(a) => commands::trace::run(a, color),
        args::Command::Report(a) => commands::report::run(&a, color),
        args::Command::Flame(a) => commands::flame::run(&a),
        args::Command::Probes(a) => commands::probes::run(&a, color),
        args::Command::Doctor(a) => commands::doctor::run(&a, color),
    };
    match outcome {
        Ok(code) => code,
        Err(error) if terminal::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nodeprof: {}", terminal::told_once(&error));
            ExitCode::from(commands::trace::exit_code(&error).unwrap_or(OWN_FAILURE))
        }
    }
}
