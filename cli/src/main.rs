//! `nodeprof`: parses, calls a library, prints.

/// Tells the user something. Where nobody reads it (a closed pipe, a full disk) it is not told: that must change neither what is done nor the
/// exit status, which may be a program's own. Names in it are those of programs, of their users and of who made a recording: nothing of it is
/// a command to the terminal.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let text = format!($($text)*);
        let text = nodeprof_profile::wording::printable_lines(&text);
        let _ = writeln!(std::io::stderr(), "{text}");
    }};
}

mod args;
mod commands;
mod http;
mod terminal;
mod token;
mod view;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

/// nodeprof's own failure, as `timeout(1)` has it.
const OWN_FAILURE: u8 = 125;

fn main() -> ExitCode {
    // Without it nodeprof runs as it would: it is killed if it comes to that.
    let _ = nodeprofd::file_limit::make_it_an_error();
    let outcome = match args::Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(error) => {
            let printed = print_usage(&error, args::color(std::env::args_os()));
            if error.use_stderr() {
                return ExitCode::from(OWN_FAILURE);
            }
            // Help and version are no failure, if they were written.
            printed.map(|()| ExitCode::SUCCESS)
        }
    };
    match outcome {
        Ok(code) => code,
        Err(error) if terminal::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say!("nodeprof: {}", terminal::told_once(&error));
            ExitCode::from(commands::trace::exit_code(&error).unwrap_or(OWN_FAILURE))
        }
    }
}

fn run(cli: args::Cli) -> anyhow::Result<ExitCode> {
    let color = cli.color;
    match cli.command {
        args::Command::Trace(a) => commands::trace::run(a, color),
        args::Command::Report(a) => commands::report::run(&a, color),
        args::Command::Blame(a) => commands::modules::blame(&a, color),
        args::Command::CriticalChain(a) => commands::modules::critical_chain(&a, color),
        args::Command::Tree(a) => commands::modules::tree(&a, color),
        args::Command::Diff(a) => commands::diff::run(&a, color),
        args::Command::Check(a) => commands::check::run(&a, color),
        args::Command::Budget(a) => commands::check::budget(&a),
        args::Command::Flame(a) => commands::flame::run(&a),
        args::Command::View(a) => commands::view::run(&a),
        args::Command::Bench(a) => commands::measure::bench::run(a, color),
        args::Command::Compare(a) => commands::measure::compare::run(a, color),
        args::Command::Export(a) => commands::export::run(&a),
        args::Command::Import(a) => commands::import::run(&a),
        args::Command::Probes(a) => commands::probes::run(&a, color),
        args::Command::Service(a) => commands::service::run(&a, color),
        args::Command::Doctor(a) => commands::doctor::run(&a, color),
        args::Command::Completions(a) => commands::manual::completions(&a),
        args::Command::Manual(a) => commands::manual::run(&a),
    }
}

/// What clap says about the command line, in colour as that says.
fn print_usage(error: &clap::Error, color: args::Color) -> anyhow::Result<()> {
    let text = match color {
        args::Color::Auto => {
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            let bytes = error.render().to_string().len();
            return printed.map_err(|error| terminal::not_printed(error, bytes));
        }
        args::Color::Always => error.render().ansi().to_string(),
        args::Color::Never => error.render().to_string(),
    };
    match error.use_stderr() {
        true => Ok(std::io::stderr().write_all(text.as_bytes())?),
        // All of it is ours: the styles of clap's headings need not be looked at.
        false => {
            let mut out = std::io::stdout().lock();
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            written.map_err(|error| terminal::not_printed(error, text.len()))
        }
    }
}
