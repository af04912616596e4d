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
use nodeprof_profile::{Recording, breakdown::Timeline, recording::RunId};
use serde::Serialize;

/// Extension of recordings.
const EXTENSION: &str = "nodeprof";

/// The recordings of a folder, and others that were named.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    named: Vec<PathBuf>,
    /// Bytes of the files that a request opens.
    most_loaded: u64,
    /// What is known of files that have not changed since.
    known: Mutex<HashMap<(PathBuf, u64, u64), Summary>>,
}

/// A recording in short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Summary {
    command: String,
    node: Option<String>,
    runs: usize,
    time_ns: Option<u64>,
    error: Option<String>,
}

/// Bytes of the files of a page's recordings: their figures and the page itself take six times as much memory, measured with a recording of 120 starts of express, and the unit allows
/// 1 GB (`MemoryMax`).
const MOST_READ: u64 = 128 << 20;

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
    time_ns: Option<u64>,
    error: Option<String>,
}

impl Folder {
    /// A folder, and files in it or elsewhere.
    pub fn new(path: PathBuf, named: Vec<PathBuf>) -> Folder {
        Folder {
            path,
            named,
            most_loaded: MOST_READ,
            known: Mutex::default(),
        }
    }

    /// The folder that is watched.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether these recordings together are no larger than what a request may open: what is read of them takes several times as much memory.
    ///
    /// # Errors
    /// How large they are, in words.
    pub fn may_open<'p>(&self, paths: impl IntoIterator<Item = &'p Path>) -> anyhow::Result<()> {
        // What is not there is told by who opens it.
        let sizes = { paths.into_iter() }.filter_map(|path| Some(fs::metadata(path).ok()?.len()));
        let bytes = sizes.fold(0, u64::saturating_add);
        anyhow::ensure!(
            bytes <= self.most_loaded,
            "found {} MB of recordings; needed: {} MB at most at a time, as of fewer or shorter runs (nodeprof report FILE and nodeprof diff BASE HEAD have no such limit)",
            bytes.div_ceil(1 << 20),
            self.most_loaded >> 20
        );
        Ok(())
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
                let summary = match self.may_open([key.0.as_path()]) {
                    Ok(()) => Summary::of(&key.0),
                    Err(error) => Summary::unread(&error),
                };
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
                time_ns: summary.time_ns,
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
    fn unread(why: &impl ToString) -> Summary {
        Summary {
            error: Some(why.to_string()),
            ..Summary::default()
        }
    }

    fn of(path: &Path) -> Summary {
        let recording = match Recording::load(path) {
            Ok(recording) => recording,
            Err(error) => return Summary::unread(&error),
        };
        let first = recording.runs.first();
        let words = first.map(|run| run.command.iter().map(|word| String::from_utf8_lossy(word)));
        let words: Vec<_> = words.into_iter().flatten().collect();
        let versions = recording.binaries.iter();
        Summary {
            command: command_line(&words),
            node: { versions }.find_map(|binary| binary.node_version.clone()),
            runs: recording.runs.len(),
            time_ns: start_time(&recording),
            error: None,
        }
    }
}

/// How long the start of the first run took, ns: of a program that went on when its recording ended until its event loop began, as in the list of a store.
fn start_time(recording: &Recording) -> Option<u64> {
    let run = recording.runs.first()?;
    let goes_on = run.exit_status.is_none() && run.signal.is_none();
    let loop_start = || {
        let timeline = Timeline::new(recording);
        timeline.milestone(timeline.main_process(RunId(0))?, "loop_start")
    };
    let ended = goes_on.then(loop_start).flatten().unwrap_or(run.ended);
    Some(ended.0.saturating_sub(run.started.0))
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

    #[test]
    fn the_time_of_a_server_is_that_until_its_event_loop_began() {
        let mut recording = Recording::synthetic(100);
        let timeline = Timeline::new(&recording);
        let main = timeline.main_process(RunId(0)).unwrap();
        let loop_start = timeline.milestone(main, "loop_start").unwrap();
        let started = recording.runs[0].started.0;
        let to_end = recording.runs[0].ended.0 - started;
        assert!(loop_start.0 - started < to_end);
        assert_eq!(start_time(&recording), Some(to_end));
        recording.runs[0].exit_status = None;
        assert_eq!(start_time(&recording), Some(loop_start.0 - started));
        // It was killed.
        recording.runs[0].signal = Some(9);
        assert_eq!(start_time(&recording), Some(to_end));
        recording.runs[0].signal = None;
        recording.milestones.clear();
        assert_eq!(start_time(&recording), Some(to_end));
    }

    #[test]
    fn what_is_larger_than_a_request_may_open_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut recordings = Folder::new(folder.path().to_owned(), Vec::new());
        recordings.most_loaded = 2 << 20;
        let paths = ["a.nodeprof", "b.nodeprof"].map(|name| folder.path().join(name));
        for (path, bytes) in paths.iter().zip([2 << 20, 1]) {
            fs::File::create(path).unwrap().set_len(bytes).unwrap();
            assert!(recordings.may_open([path.as_path()]).is_ok());
        }
        let both = recordings.may_open(paths.iter().map(PathBuf::as_path));
        let why = both.unwrap_err().to_string();
        assert!(
            why.starts_with("found 3 MB of recordings; needed: 2 MB at most"),
            "{why}"
        );
        let large = fs::File::options().write(true).open(&paths[0]).unwrap();
        large.set_len((2 << 20) + 1).unwrap();
        let errors = recordings.list().unwrap().into_iter().map(|one| one.error);
        let errors: Vec<String> = errors.map(Option::unwrap).collect();
        assert_eq!(errors[0], why);
        assert!(errors[1].contains("not a recording"), "{errors:?}");
    }
}
