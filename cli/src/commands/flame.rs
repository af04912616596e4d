//! `nodeprof flame`.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use nodeprof_flamegraphs::{
    fold::{Metric, fold},
    svg,
};
use nodeprof_profile::Recording;

use crate::args::{Flame, FlameFormat};

/// Draws a flame graph.
pub fn run(args: &Flame) -> anyhow::Result<ExitCode> {
    let recording = Recording::load(&args.file)?;
    let metric: Metric = args.of.parse()?;
    let folded = fold(&recording, 0, metric)?;
    let mut picture = Vec::new();
    match args.format {
        FlameFormat::Folded => folded.write_to(&mut picture)?,
        FlameFormat::Svg => svg::write(&folded, &svg::SvgOptions::default(), &mut picture)?,
    }
    match &args.output {
        Some(path) => write_file(path, args.force, &picture)?,
        None => BufWriter::new(io::stdout().lock()).write_all(&picture)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write_file(path: &Path, force: bool, content: &[u8]) -> anyhow::Result<()> {
    if path.is_dir() {
        anyhow::bail!(
            "{} is a folder; needed: the name of a file; type: -o {}",
            path.display(),
            path.join("flame.svg").display()
        );
    }
    let mut options = OpenOptions::new();
    options.write(true);
    // A pipe or a device (`/dev/stdout`) is written to, not replaced.
    let replaceable = path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir());
    if force || replaceable {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let shown = path.display();
    let mut file = match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            anyhow::bail!(
                "{shown} exists already; needed: a new name; to overwrite it, type: --force"
            )
        }
        other => other.with_context(|| {
            format!("{shown} cannot be written; needed: a folder to write to; type: -o FILE")
        })?,
    };
    file.write_all(content)
        .with_context(|| format!("writing {shown}"))
}
