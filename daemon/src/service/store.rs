//! Where recorded starts are kept: a folder of recordings, one a start, by the time at which it began.
//!
//! Each is written whole or not at all, so a crash loses at most the starts in flight, and nothing that was kept before can be
//! damaged by it. The oldest go when there are too many, too old or too large ones.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nodeprof_profile::{Recording, SaveOptions};

use super::config::StoreLimits;

/// Why something could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder cannot be used.
    #[error("the folder {} cannot be used ({error}); needed: one that nodeprofd may write to", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The recording could not be written.
    #[error(transparent)]
    Save(#[from] nodeprof_profile::StoreError),
}

/// A kept recording.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    name: String,
    bytes: u64,
    started: SystemTime,
}

/// The folder.
#[derive(Debug)]
pub struct Store {
    limits: StoreLimits,
    /// Oldest first.
    kept: VecDeque<Kept>,
    bytes: u64,
}

const ENDING: &str = ".nodeprof";

impl Store {
    /// Opens the folder, or makes it, and removes what is beyond the limits.
    ///
    /// # Errors
    /// [`StoreError::Folder`].
    pub fn open(limits: &StoreLimits) -> Result<Store, StoreError> {
        let folder = &limits.directory;
        let unusable = |error| StoreError::Folder {
            folder: folder.clone(),
            error,
        };
        fs::create_dir_all(folder).map_err(unusable)?;
        let mut kept = Vec::new();
        for entry in fs::read_dir(folder).map_err(unusable)? {
            let entry = entry.map_err(unusable)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let metadata = entry.metadata().map_err(unusable)?;
            // Half-written ones of a service that was killed.
            if name.starts_with(".nodeprof-") && name.ends_with(".tmp") {
                let _ = fs::remove_file(entry.path());
            } else if let Some(started) = begun(&name).filter(|_| metadata.is_file()) {
                kept.push(Kept {
                    name,
                    bytes: metadata.len(),
                    started,
                });
            }
        }
        kept.sort_by(|a, b| (a.started, &a.name).cmp(&(b.started, &b.name)));
        let bytes = kept.iter().map(|k| k.bytes).sum();
        let mut store = Store {
            limits: limits.clone(),
            kept: kept.into(),
            bytes,
        };
        store.thin();
        Ok(store)
    }

    /// Other limits from now on.
    pub fn limits(&mut self, limits: &StoreLimits) {
        self.limits = limits.clone();
        self.thin();
    }

    /// Keeps a recording of one start; returns its file.
    ///
    /// # Errors
    /// [`StoreError::Save`]; then nothing was written.
    pub fn keep(&mut self, recording: &Recording) -> Result<PathBuf, StoreError> {
        let started_ns = recording.runs.first().map_or(0, |run| run.started_unix_ns);
        let pid = recording.processes.first().map_or(0, |process| process.pid);
        let name = format!("{started_ns:020}-{pid}{ENDING}");
        let path = self.limits.directory.join(&name);
        recording.save(&path, SaveOptions { overwrite: true })?;
        let bytes = fs::metadata(&path).map_or(0, |m| m.len());
        self.bytes += bytes;
        self.kept.push_back(Kept {
            name,
            bytes,
            started: UNIX_EPOCH + Duration::from_nanos(started_ns),
        });
        self.thin();
        Ok(path)
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The folder.
    pub fn directory(&self) -> &Path {
        &self.limits.directory
    }

    fn thin(&mut self) {
        // A clock that was set back makes nothing old.
        let oldest = SystemTime::now().checked_sub(self.limits.age);
        while let Some(first) = self.kept.front() {
            let is_old = oldest.is_some_and(|oldest| first.started < oldest);
            if !is_old && self.kept.len() <= self.limits.count && self.bytes <= self.limits.bytes {
                return;
            }
            let _ = fs::remove_file(self.limits.directory.join(&first.name));
            self.bytes = self.bytes.saturating_sub(first.bytes);
            self.kept.pop_front();
        }
    }
}

/// When a start of this file name began; `None`: the file is none of ours.
fn begun(name: &str) -> Option<SystemTime> {
    let (nanoseconds, pid) = name.strip_suffix(ENDING)?.split_once('-')?;
    pid.parse::<u32>().ok()?;
    Some(UNIX_EPOCH + Duration::from_nanos(nanoseconds.parse().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;
    use nodeprof_profile::recording::{Process, Run};

    fn limits(directory: &Path) -> StoreLimits {
        StoreLimits {
            directory: directory.join("starts"),
            age: Duration::from_secs(3600),
            count: 3,
            bytes: 1 << 30,
        }
    }

    fn start(seconds_ago: u64, pid: u32) -> Recording {
        let at = SystemTime::now() - Duration::from_secs(seconds_ago);
        Recording {
            runs: vec![Run {
                started_unix_ns: at.duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64,
                ..Run::default()
            }],
            processes: vec![Process {
                pid,
                ..Process::default()
            }],
            ..Recording::default()
        }
    }

    fn pids(store: &Store) -> Vec<u32> {
        let mut names: Vec<_> = fs::read_dir(store.directory())
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        names.sort();
        let pid = |path: &PathBuf| Recording::load(path).unwrap().processes[0].pid;
        names.iter().map(pid).collect()
    }

    #[test]
    fn the_oldest_go_first_by_number_age_and_size() {
        let folder = tempfile::tempdir().unwrap();
        let limits = limits(folder.path());
        let mut store = Store::open(&limits).unwrap();
        for pid in 1..=5 {
            store.keep(&start(100 - u64::from(pid), pid)).unwrap();
        }
        assert_eq!(pids(&store), [3, 4, 5]);
        store.keep(&start(7200, 6)).unwrap(); // too old from the beginning, but the newest to come
        let store = Store::open(&limits).unwrap();
        assert_eq!(pids(&store), [4, 5]);
        let each = store.bytes() / 2;
        let store = Store::open(&StoreLimits {
            bytes: each + each / 2,
            ..limits
        })
        .unwrap();
        assert_eq!(pids(&store), [5]);
        assert_eq!((store.len(), store.bytes()), (1, each));
    }

    #[test]
    fn what_a_killed_service_left_half_written_goes_and_other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let limits = limits(folder.path());
        fs::create_dir(&limits.directory).unwrap();
        for name in [".nodeprof-abc.tmp", "notes.txt", "12-x.nodeprof"] {
            fs::write(limits.directory.join(name), "x").unwrap();
        }
        let store = Store::open(&limits).unwrap();
        assert!(store.is_empty());
        let mut left: Vec<_> = fs::read_dir(store.directory())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["12-x.nodeprof", "notes.txt"]);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("starts"), "a file").unwrap();
        let error = Store::open(&limits(folder.path())).unwrap_err().to_string();
        assert!(error.contains("starts cannot be used"), "{error}");
    }
}
