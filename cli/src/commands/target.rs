//! The recording that a command writes.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use nodeprof_profile::{Recording, SaveOptions, StoreError};
use nodeprofd::recorder::Invoker;

/// Where the recording goes.
pub struct Target {
    path: PathBuf,
    given: bool,
    force: bool,
}

impl Target {
    /// Checks before the program runs whether the recording can be written. Without an `output` it is named after the program.
    pub fn new(output: Option<&Path>, force: bool, program: &[OsString]) -> anyhow::Result<Target> {
        let Some(path) = output.map(Path::to_path_buf) else {
            return Ok(Target {
                path: default_name(program),
                given: false,
                force: false,
            });
        };
        let shown = path.display();
        if path.as_os_str() == "-" {
            anyhow::bail!(
                "found: standard output for a recording, which is a database; needed: the name of a file; type: -o trace.nodeprof"
            );
        }
        super::check_name(&path, force, super::Example::output("trace.nodeprof"))?;
        let kind = path.metadata().ok().map(|meta| meta.file_type());
        if kind.is_some_and(|kind| !kind.is_file()) {
            anyhow::bail!(
                "{shown} is a device, pipe or socket; needed: the name of a file, for a recording is a database; type: -o trace.nodeprof"
            );
        }
        Ok(Target {
            path,
            given: true,
            force,
        })
    }

    /// Checks before the program runs whether a recording with a default name can be written, for whom it is all that there will be.
    pub fn check_folder(&self) -> anyhow::Result<()> {
        match self.given {
            true => Ok(()),
            false => super::check_name(&self.path, true, super::Example::output("trace.nodeprof")),
        }
    }

    /// Where it goes, unless a file with a default name is there.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what there is of a recording that was not finished, beside the one that it would have been: a file that is there stays, and the name free.
    pub fn save_part(&self, recording: &Recording) -> Option<PathBuf> {
        let beside = Target {
            path: self.path.with_extension("partial.nodeprof"),
            given: false,
            force: false,
        };
        beside.save(recording).ok().flatten()
    }

    /// Writes the recording. A default name gives way to a file that is there; a failure is an error only
    /// where the user asked for the file.
    pub fn save(&self, recording: &Recording) -> anyhow::Result<Option<PathBuf>> {
        let mut path = self.path.clone();
        for attempt in 2.. {
            match recording.save(
                &path,
                SaveOptions {
                    overwrite: self.force,
                },
            ) {
                Ok(()) => {
                    if let Some(user) = Invoker::behind_sudo() {
                        user.own(&path);
                    }
                    return Ok(Some(path));
                }
                Err(StoreError::Exists { .. }) if !self.given && attempt < 100 => {
                    path = self.path.with_extension(format!("{attempt}.nodeprof"));
                }
                Err(error) if !self.given => {
                    say!("nodeprof: no recording was written: {error}");
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

/// `app-20261121-101530.nodeprof` for `node app.js`.
fn default_name(program: &[OsString]) -> PathBuf {
    let stem = |word: &OsStr| {
        Path::new(word)
            .file_stem()
            .unwrap_or(word)
            .to_string_lossy()
            .into_owned()
    };
    let first = program.first().map(|w| stem(w)).unwrap_or_default();
    let script = program
        .get(1..)
        .unwrap_or_default()
        .iter()
        .find(|w| !w.as_encoded_bytes().starts_with(b"-"));
    // Behind all options that take the next argument.
    let words: Vec<Vec<u8>> = { program.iter() }
        .map(|word| word.as_bytes().to_vec())
        .collect();
    let known = nodeprof_profile::script(&words).filter(|_| first == "node");
    let name = match (known, script) {
        (Some(script), _) => stem(script.as_ref()),
        // Code is no name.
        _ if first == "node" && is_code(program) => "eval".to_owned(),
        (None, Some(script)) if first == "node" => stem(script),
        _ => first,
    };
    let safe: String = name
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || "._@+".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(60)
        .collect();
    // A name that begins with a dash would be taken for an option.
    let safe = match safe.trim_matches('-') {
        "" => "trace",
        name => name,
    };
    PathBuf::from(format!("{safe}-{}.nodeprof", local_time()))
}

/// Whether the program is code on the command line of node, which names no script.
fn is_code(program: &[OsString]) -> bool {
    let words = program.iter().map(|word| word.as_encoded_bytes());
    let mut words = words.take_while(|word| *word != b"--");
    words.any(|word| {
        let name = word.split(|byte| *byte == b'=').next();
        name.is_some_and(|name| [&b"-e"[..], b"--eval", b"-p", b"--print", b"-pe"].contains(&name))
    })
}

/// `YYYYMMDD-HHMMSS`, local.
fn local_time() -> String {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs() as libc::time_t);
    // SAFETY: live structs; localtime_r writes only to its argument.
    let t = unsafe {
        let mut t: libc::tm = std::mem::zeroed();
        libc::localtime_r(&seconds, &mut t);
        t
    };
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        t.tm_year + 1900,
        t.tm_mon + 1,
        t.tm_mday,
        t.tm_hour,
        t.tm_min,
        t.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_named_after_the_script() {
        let name = |words: &[&str]| {
            default_name(&words.iter().map(Into::into).collect::<Vec<_>>())
                .display()
                .to_string()
        };
        assert!(name(&["node", "--no-warnings", "/a/b/app.js"]).starts_with("app-2"));
        assert!(
            name(&["node", "--env-file", ".env", "-r", "./x.js", "app.js"]).starts_with("app-2")
        );
        assert!(name(&["npm", "--version"]).starts_with("npm-2"));
        assert!(name(&["node", "a b\n/c*d.js"]).starts_with("c-d-2"));
        assert!(name(&["node"]).starts_with("node-2"));
        assert!(name(&["-'-"]).starts_with("trace-2"));
        for code in [
            &["node", "-p", "'ran'"][..],
            &["node", "-r", "./x.js", "-e", "require('./app.js')", "a"],
            &["node", "--eval=0"],
            &["/usr/bin/node", "-pe", "-1"],
        ] {
            assert!(name(code).starts_with("eval-2"), "{code:?}");
        }
        assert!(name(&["node", "app.js", "-e", "x"]).starts_with("app-2"));
        assert!(name(&["tool", "-e", "x"]).starts_with("tool-2"));
        assert!(name(&["node", "--run", "build", "--", "-e"]).starts_with("build-2"));
    }
}
