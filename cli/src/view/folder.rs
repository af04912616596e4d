//! Which recordings there are.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

use nodeprof_flamegraphs::measurements::command_line;
use nodeprof_profile::Recording;
use serde::Serialize;

/// Extension of recordings.
const EXTENSION: &str = "nodeprof";

/// The recordings of a folder, and others that were named.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    named: Vec<PathBuf>,
    /// What is known of files that have not changed since.
    known: Mutex<HashMap<(PathBuf, u64, u64), Summary>>,
}

/// A recording in short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Summary {
    command: String,
    node: Option<String>,
    runs: usize,
    wall_ns: Option<u64>,
    error: Option<String>,
}

/// A recording in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// By which it is asked for.
    pub name: String,
    command: String,
    node: Option<String>,
    runs: usize,
    bytes: u64,
    changed_unix_ms: u64,
    wall_ns: Option<u64>,
    error: Option<String>,
}

impl Folder {
    /// A folder, and files in it or elsewhere.
    pub fn new(path: PathBuf, named: Vec<PathBuf>) -> Folder {
        Folder {
            path,
            named,
            known: Mutex::default(),
        }
    }

    /// The folder that is watched.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Recordings by their names in the list.
    pub fn files(&self) -> io::Result<BTreeMap<String, PathBuf>> {
        let mut paths = self.named.clone();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            // One that is being written has another name until it is whole.
            if path.extension() == Some(OsStr::new(EXTENSION)) && path.is_file() {
                paths.push(path);
            }
        }
        let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
        for path in paths {
            let short = path.file_name().unwrap_or(path.as_os_str());
            let short = short.to_string_lossy().into_owned();
            match files.get(&short) {
                None => files.insert(short, path),
                Some(same) if same.canonicalize().ok() == path.canonicalize().ok() => None,
                // Another file of that name: by its whole path.
                Some(_) => files.insert(path.to_string_lossy().into_owned(), path),
            };
        }
        Ok(files)
    }

    /// All recordings with what is in them.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        let files = self.files()?;
        let mut there = HashSet::new();
        let listed = files.into_iter().filter_map(|(name, path)| {
            let about = fs::metadata(&path).ok()?;
            let changed = about.modified().unwrap_or(UNIX_EPOCH);
            let changed = milliseconds(changed);
            let key = (path, about.len(), changed);
            let known = self.known.lock().ok()?.get(&key).cloned();
            let summary = known.unwrap_or_else(|| {
                let summary = Summary::of(&key.0);
                if let Ok(mut known) = self.known.lock() {
                    known.insert(key.clone(), summary.clone());
                }
                summary
            });
            there.insert(key.clone());
            Some(Listed {
                name,
                command: summary.command,
                node: summary.node,
                runs: summary.runs,
                bytes: key.1,
                changed_unix_ms: changed,
                wall_ns: summary.wall_ns,
                error: summary.error,
            })
        });
        let listed = listed.collect();
        // What was there before, or was another content, comes no more.
        if let Ok(mut known) = self.known.lock() {
            known.retain(|key, _| there.contains(key));
        }
        Ok(listed)
    }
}

fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Summary {
    fn of(path: &Path) -> Summary {
        let recording = match Recording::load(path) {
            Ok(recording) => recording,
            Err(error) => {
                return Summary {
                    error: Some(error.to_string()),
                    ..Summary::default()
                };
            }
        };
        let first = recording.runs.first();
        let words = first.map(|run| run.command.iter().map(|word| String::from_utf8_lossy(word)));
        let words: Vec<_> = words.into_iter().flatten().collect();
        let versions = recording.binaries.iter();
        Summary {
            command: command_line(&words),
            node: { versions }.find_map(|binary| binary.node_version.clone()),
            runs: recording.runs.len(),
            wall_ns: first.map(|run| run.ended.0.saturating_sub(run.started.0)),
            error: None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn of_files_that_changed_or_went_nothing_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let recordings = Folder::new(folder.path().to_owned(), Vec::new());
        let path = folder.path().join("a.nodeprof");
        for bytes in 1..5 {
            fs::write(&path, vec![b'x'; bytes]).unwrap();
            let listed = recordings.list().unwrap();
            assert_eq!(
                listed.iter().map(|one| one.bytes).sum::<u64>(),
                bytes as u64
            );
        }
        assert_eq!(recordings.known.lock().unwrap().len(), 1);
        fs::remove_file(&path).unwrap();
        assert!(recordings.list().unwrap().is_empty());
        assert!(recordings.known.lock().unwrap().is_empty());
    }
}
