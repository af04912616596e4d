//! One module a command.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal as _, Read as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use nodeprof_probes::{AttachPlan, default_cache_folder};
use nodeprofd::recorder::{find_program, guess_node};

pub mod check;
pub mod diff;
pub mod doctor;
pub mod export;
pub mod flame;
pub mod import;
pub mod manual;
pub mod measure;
pub mod metrics;
pub mod modules;
pub mod probes;
pub mod report;
pub mod service;
pub mod source;
pub mod target;
pub mod trace;
pub mod view;

/// The node binary to look at: the given one, or that of PATH.
fn node_binary(given: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.clone());
    }
    let found = find_program("node".as_ref())
        .context("found no node on PATH; needed: a node binary; type: nodeprof … --node PATH")?;
    Ok(guess_node(&found).unwrap_or(found))
}

/// Its plan, from the cache where that is right.
fn plan(given: Option<&PathBuf>) -> anyhow::Result<AttachPlan> {
    let path = node_binary(given)?;
    Ok(AttachPlan::load_or_build(&path, default_cache_folder().as_deref())?.0)
}

/// Refuses to print a page where a person would see its source.
fn not_on_a_terminal(path: Option<&PathBuf>, example: &str) -> anyhow::Result<()> {
    if path.is_none_or(|path| is_standard_output(path)) && io::stdout().is_terminal() {
        anyhow::bail!(
            "an HTML page is for a browser, not for a terminal; needed: a file or a pipe; type: -o {example}"
        );
    }
    Ok(())
}

/// `-o -`, as everywhere else.
fn is_standard_output(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes to a file, or to standard output.
fn output(
    path: Option<&PathBuf>,
    force: bool,
    content: &[u8],
    example: &str,
) -> anyhow::Result<()> {
    match path {
        Some(path) if !is_standard_output(path) => write_file(path, force, content, example),
        _ => {
            let mut out = io::stdout().lock();
            out.write_all(content)?;
            Ok(out.flush()?)
        }
    }
}

/// Writes text to a file, or prints it as a terminal can show it.
fn print_or_write(
    path: Option<&Path>,
    force: bool,
    text: &str,
    example: &str,
) -> anyhow::Result<()> {
    match path {
        Some(path) if !is_standard_output(path) => {
            write_file(path, force, text.as_bytes(), example)
        }
        _ => Ok(crate::terminal::print(text)?),
    }
}

/// Whether a file is a recording, or a store of them: no other file of nodeprof's is a database.
fn is_recording(path: &Path) -> bool {
    const DATABASE: &[u8; 16] = b"SQLite format 3\0";
    let mut head = [0; DATABASE.len()];
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    is_file
        && File::open(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok())
        && head == *DATABASE
}

/// Writes a file; `example`: a name for one, where the path is a folder.
fn write_file(path: &Path, force: bool, content: &[u8], example: &str) -> anyhow::Result<()> {
    if path.is_dir() {
        anyhow::bail!(
            "{} is a folder; needed: the name of a file; type: -o {}",
            path.display(),
            path.join(example).display()
        );
    }
    if force && is_recording(path) {
        anyhow::bail!(
            "{} holds a recording; needed: another name, for this would end it; type: -o {example}",
            path.display()
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
