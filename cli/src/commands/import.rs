//! `nodeprof import`.

use std::{
    fs::File,
    io::{self, BufReader},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use nodeprof_profile::{
    Recording, SaveOptions, StoreError,
    import::perf_script::{self, ImportError},
    wording::counted,
};

use super::hints;
use crate::args::Import;

/// Makes a recording of what `perf script` printed.
pub fn run(args: &Import) -> anyhow::Result<ExitCode> {
    let options = perf_script::Options {
        event: args.event.clone(),
    };
    let recording = read(&args.file, &options)?;
    let output = args.output.clone().unwrap_or_else(|| name_for(&args.file));
    let overwrite = args.force;
    if output.as_os_str() == "-" {
        anyhow::bail!(
            "found: standard output for a recording, which is a database; needed: the name of a file; type: -o {}",
            hints::path(&name_for(&args.file))
        );
    }
    if is_one_file(&args.file, &output) {
        anyhow::bail!(
            "{} is what is imported; needed: another name for the recording; type: -o {}",
            output.display(),
            hints::path(&name_for(&args.file))
        );
    }
    match recording.save(&output, SaveOptions { overwrite }) {
        Err(StoreError::Exists { path }) => anyhow::bail!(
            "{} exists already; needed: a new name (-o RECORDING); to overwrite it, type: --force",
            path.display()
        ),
        saved => saved?,
    }
    let cut = recording
        .losses
        .iter()
        .any(|loss| loss.kind == "samples_cut");
    say!(
        "imported {} of {}{}; recording: {}",
        counted(recording.samples.len() as u64, "# sample[|s]"),
        counted(recording.processes.len() as u64, "# process[|es]"),
        match cut {
            true => " (the text was cut off: the sample at its end is left out)",
            false => "",
        },
        output.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Two names of a file that there is.
fn is_one_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|of| (of.dev(), of.ino()));
    identity(a).is_some_and(|of| Some(of) == identity(b))
}

fn read(path: &Path, options: &perf_script::Options) -> anyhow::Result<Recording> {
    let (shown, imported) = if path == Path::new("-") {
        let input = io::stdin().lock();
        (
            "standard input".to_owned(),
            perf_script::read(input, options),
        )
    } else {
        let shown = path.display().to_string();
        let file = File::open(path).with_context(|| {
            format!("{shown} cannot be read; needed: what `perf script` printed, or - for standard input")
        })?;
        (shown, perf_script::read(BufReader::new(file), options))
    };
    imported.map_err(|error| match error {
        // `is a folder` comes when it is read, not when it is opened.
        ImportError::Read(error) => anyhow::Error::new(error).context(format!(
            "{shown} cannot be read; needed: what `perf script` printed, or - for standard input"
        )),
        error if path == Path::new("-") => anyhow::anyhow!("{shown}: {error}"),
        error => anyhow::anyhow!(hints::naming(
            &format!("{shown}: {error}"),
            &hints::path(path)
        )),
    })
}

/// `app.nodeprof` in this folder for `/data/app.perf.script`.
fn name_for(input: &Path) -> PathBuf {
    let name = input.file_name().filter(|_| input != Path::new("-"));
    let name = name.map_or("perf".into(), |name| name.to_string_lossy().into_owned());
    let mut stem = name.as_str();
    for ending in [".gz", ".txt", ".script", ".perf", ".data"] {
        stem = stem.strip_suffix(ending).unwrap_or(stem);
    }
    let stem = if stem.is_empty() { "perf" } else { stem };
    PathBuf::from(format!("{stem}.nodeprof"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_named_for_its_text() {
        for (input, output) in [
            ("/data/app.perf.script", "app.nodeprof"),
            ("perf.script", "perf.nodeprof"),
            ("out.txt", "out.nodeprof"),
            ("-", "perf.nodeprof"),
            ("..", "perf.nodeprof"),
        ] {
            assert_eq!(name_for(Path::new(input)), Path::new(output), "{input}");
        }
    }
}
