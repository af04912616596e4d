//! `nodeprof completions`, and the manual pages that an installation has: both are made of the command line's own description.

use std::{fs, process::ExitCode};

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::{
    args::{Cli, Completions, Manual},
    terminal,
};

/// Prints the completions for a shell.
pub fn completions(args: &Completions) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "nodeprof", &mut script);
    terminal::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the manual pages.
pub fn run(args: &Manual) -> anyhow::Result<ExitCode> {
    let folder = &args.folder;
    fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
        .with_context(|| format!("{}: manual pages cannot be written", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}
