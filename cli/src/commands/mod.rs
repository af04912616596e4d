//! One module a command.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, IsTerminal as _, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use nodeprof_probes::{AttachPlan, default_cache_folder};
use nodeprofd::recorder::{find_program, guess_node};

use crate::terminal;

pub mod check;
pub mod diff;
pub mod doctor;
pub mod export;
pub mod flame;
pub mod hints;
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

/// Refuses files that are given as node binaries and are none, before anything runs.
fn check_nodes(nodes: &[PathBuf]) -> anyhow::Result<()> {
    for path in nodes {
        if !path.exists() {
            anyhow::bail!(
                "--node {}: found: no such file; needed: a node binary; type: --node \"$(node -p process.execPath)\"",
                path.display()
            );
        }
        plan(Some(path)).with_context(|| format!("--node {}", path.display()))?;
    }
    Ok(())
}

/// Refuses to print a page or picture where a person would see its source; `what` it is for.
fn not_on_a_terminal(path: Option<&PathBuf>, what: &str, example: &str) -> anyhow::Result<()> {
    if path.is_none_or(|path| is_standard_output(path)) && io::stdout().is_terminal() {
        anyhow::bail!("{what}, not for a terminal; needed: a file or a pipe; type: -o {example}");
    }
    Ok(())
}

/// `-o -`, as everywhere else, and `-o /dev/stdout`, which may lead to a file that must not be replaced.
fn is_standard_output(path: &Path) -> bool {
    let names = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    names.iter().any(|name| path.as_os_str() == *name)
}

/// What to type for a file that can be written.
#[derive(Clone, Copy)]
struct Example {
    option: &'static str,
    name: &'static str,
}

impl Example {
    /// Of an output.
    const fn output(name: &'static str) -> Example {
        Example { option: "-o", name }
    }

    /// In a folder.
    fn within(self, folder: &Path) -> String {
        format!("{} {}", self.option, hints::path(&folder.join(self.name)))
    }

    /// Wherever it is.
    fn anywhere(self) -> String {
        format!("{} FILE", self.option)
    }
}

/// Writes to a file, or to standard output.
fn output(
    path: Option<&PathBuf>,
    force: bool,
    content: &[u8],
    example: Example,
) -> anyhow::Result<()> {
    match path {
        Some(path) if !is_standard_output(path) => write_file(path, force, content, example),
        _ => terminal::print_bytes(content),
    }
}

/// Writes text to a file, or prints it as a terminal can show it.
fn print_or_write(
    path: Option<&Path>,
    force: bool,
    text: &str,
    example: Example,
) -> anyhow::Result<()> {
    match path {
        Some(path) if !is_standard_output(path) => {
            write_file(path, force, text.as_bytes(), example)
        }
        _ => terminal::print(text),
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

/// Writes a file, whole or not at all; `example`: of one.
fn write_file(path: &Path, force: bool, content: &[u8], example: Example) -> anyhow::Result<()> {
    if path.is_dir() {
        anyhow::bail!(
            "{} is a folder; needed: the name of a file; type: {}",
            path.display(),
            example.within(path)
        );
    }
    if force && is_recording(path) {
        anyhow::bail!(
            "{} holds a recording; needed: another name, for this would end it; type: {} {}",
            path.display(),
            example.option,
            example.name
        );
    }
    let shown = path.display();
    let unwritable = || {
        let type_it = example.anywhere();
        format!("{shown} cannot be written; needed: a folder to write to; type: {type_it}")
    };
    let not_written = |error| {
        let error = terminal::not_written(error, content.len());
        error.context(format!("writing {shown}"))
    };
    let metadata = path.metadata().ok();
    if metadata.as_ref().is_some_and(|meta| !meta.is_file()) || is_descriptor(path) {
        // A pipe or a device is written to, not replaced.
        // Of a file that is open already, whose name is that of a descriptor, what is in it stays.
        let mut file = OpenOptions::new();
        let mut file = (file.append(true).open(path)).with_context(unwritable)?;
        return (file.write_all(content)).map_err(not_written);
    }
    let exists = || {
        anyhow::anyhow!(
            "{shown} exists already; needed: a new name; to overwrite it, type: --force"
        )
    };
    if !force && path.symlink_metadata().is_ok() {
        return Err(exists());
    }
    // What is replaced is the file that a link leads to.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let folder = target.parent().filter(|folder| *folder != Path::new(""));
    let mut file = tempfile::Builder::new()
        .prefix(".nodeprof-")
        .suffix(".tmp")
        // As the umask says.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .with_context(unwritable)?;
    if let Some(earlier) = metadata {
        // Root writes in the place of a user's file: it stays the user's, if the file system knows users.
        let _ = fchown(file.as_file(), Some(earlier.uid()), Some(earlier.gid()));
        let _ = file.as_file().set_permissions(earlier.permissions());
    }
    // Not by the name of the temporary file, which an error would tell.
    (file.as_file_mut().write_all(content))
        // A name for data that never reached the disk would be an empty file after a crash.
        .and_then(|()| file.as_file().sync_all())
        .map_err(not_written)?;
    let named = match force {
        true => file.persist(&target),
        false => file.persist_noclobber(&target),
    };
    match named {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(exists()),
        Err(error) => Err(error.error).with_context(unwritable),
    }
}

/// Before something long: whether a file of this name could be written. What is there and no file (a pipe, a device) is for others to judge. `example`: of
/// one.
fn check_name(path: &Path, force: bool, example: Example) -> anyhow::Result<()> {
    let shown = path.display();
    if path.is_dir() {
        anyhow::bail!(
            "{shown} is a folder; needed: the name of a file; type: {}",
            example.within(path)
        );
    }
    let type_it = example.anywhere();
    let is_there = path.symlink_metadata().is_ok();
    if is_there && !path.exists() {
        anyhow::bail!("{shown} is a link to nothing; needed: the name of a file; type: {type_it}");
    }
    let is_file = path.is_file();
    if is_file && !force {
        anyhow::bail!("{shown} exists already; needed: a new name; to overwrite it, type: --force");
    }
    if is_there && !is_file {
        return Ok(());
    }
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if folder.exists() && !folder.is_dir() {
        anyhow::bail!(
            "{} is a file; needed: a folder to write to; type: {type_it}",
            folder.display()
        );
    }
    if path.is_relative()
        && std::env::current_dir().is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    {
        anyhow::bail!(
            "{shown} cannot be written (the current folder is gone); needed: a folder to write to; type: {type_it}"
        );
    }
    let c = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes())?;
    // SAFETY: the path is NUL-terminated.
    if unsafe { libc::access(c.as_ptr(), libc::W_OK | libc::X_OK) } != 0 {
        let error = io::Error::last_os_error();
        anyhow::bail!(
            "{shown} cannot be written ({error}); needed: a folder to write to; type: {type_it}"
        );
    }
    Ok(())
}

/// A file that this process has open already, by whatever name: `/dev/stderr`, `/dev/fd/3`.
fn is_descriptor(path: &Path) -> bool {
    let of_devices = ["/dev/stderr", "/dev/fd", "/proc"];
    of_devices.iter().any(|name| path.starts_with(name))
}
