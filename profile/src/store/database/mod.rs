//! Many runs in one database, the store of the service: written by one, read by many at the same time.
//!
//! The tables are those of a recording (`docs/recording.md`), and indexes, by which one run among many is found without reading the
//! others. Names, callbacks, binaries, frames and stacks are shared: a row that is there already is not written again; the table
//! `shared` finds it by its hash and tells which runs need it. Each run is written in one transaction, so a crash at any instant leaves
//! all runs that were written before, whole. Old runs are thinned to their counts ([`Recording::thin`]) or removed, and the file shrinks.
//!
//! ```
//! use nodeprof_profile::{Recording, recording::Run, store::database::{Database, Filter, Reader}};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("runs.db");
//! let labels = vec![("commit".to_owned(), "abc".to_owned())];
//! let recording = Recording { runs: vec![Run { labels, ..Run::default() }], ..Recording::default() };
//! let mut database = Database::open(&path)?;
//! let run = database.keep(recording, None)?;
//! let reader = Reader::open(&path)?;
//! let filter = Filter { labels: vec![("commit".into(), "abc".into())], ..Filter::default() };
//! assert_eq!(reader.find(&filter)?[0].id, run);
//! assert_eq!(reader.load(&[run])?.runs.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod read;
mod schema;
mod write;

use std::io;
use std::path::PathBuf;

use super::Malformed;
use crate::wording::counted;

/// Asks whether this process may read or write a file, without opening it: who closes a descriptor of a database that the process has
/// open elsewhere drops the locks of all its connections (fcntl(2)), and the next program that closes the database removes the log
/// that these write to.
fn may(path: &std::path::Path, what: rustix::fs::Access) -> io::Result<()> {
    let effective = rustix::fs::AtFlags::EACCESS;
    Ok(rustix::fs::accessat(
        rustix::fs::CWD,
        path,
        what,
        effective,
    )?)
}

pub use crate::groups::COMMIT;
pub use read::{Filter, Found, Labels, Reader, Summary};
pub use schema::APPLICATION_ID;
pub use write::{Database, Limits, Retained};

/// Id of a run in a database; it is never given to another one.
pub type RunNumber = u32;

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// There is none.
    #[error("there is no database {}; needed: the store of a service that has recorded a start, or another file; type: systemctl status nodeprofd", path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// It may not be read, or not be written.
    #[error("{} cannot be opened ({error}); needed: a file that this user may use", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another program writes to it.
    #[error("{} is in use by another nodeprofd; needed: a store of its own for each; type: systemctl status nodeprofd", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Written by a later version.
    #[error("{} has schema {found}, this nodeprof reads up to {needed}; needed: a newer nodeprof, or another file", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The schema of this nodeprof.
        needed: u32,
    },
    /// Written by an earlier version, and not migrated yet.
    #[error("{} has schema {found}, this nodeprof reads {needed}; needed: a nodeprofd of this version, which brings it up to date when it starts; type: sudo systemctl restart nodeprofd", path.display())]
    Older {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The schema of this nodeprof.
        needed: u32,
    },
    /// No database of runs.
    #[error("{} is no store of runs ({found}); needed: one that nodeprofd wrote", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// SQLite found it damaged.
    #[error("{} is damaged ({what}); needed: another file, or a restart of nodeprofd, which sets it aside and begins a new one", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        what: String,
    },
    /// More than one commit begins like this.
    #[error(
        "commit={commit} is the beginning of {}; needed: more of its digits",
        named(commits)
    )]
    Ambiguous {
        /// What was asked for.
        commit: String,
        /// Those that it may be.
        commits: Vec<String>,
    },
    /// The file is sound, but what is in it of a run is nothing that we write.
    #[error("a run in {} cannot be read ({what}); needed: another run; this one goes when it is old", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It took longer than [`Reader::give_up_after`] lets it.
    #[error("looking through {} took too long; needed: a narrower choice of runs", path.display())]
    TooSlow {
        /// The file.
        path: PathBuf,
    },
    /// More than [`Reader::load_within`] may take.
    #[error("found runs of {} that take more than {} MB of memory; needed: fewer or smaller ones at a time", path.display(), most >> 20)]
    TooMuch {
        /// The file.
        path: PathBuf,
        /// Bytes that they may take.
        most: u64,
    },
    /// The file system is full.
    #[error("no space left for {}; needed: some space on its disk, or a lower store.megabytes", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The recording refers to what is not there: a fault of the recorder.
    #[error("the recording is not consistent and was not kept: {0}; please report this")]
    Inconsistent(#[from] super::Inconsistency),
    /// Anything else that SQLite says.
    #[error("{}: {error}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        error: rusqlite::Error,
    },
}

/// The first of several commits, and how many others there are.
fn named(commits: &[String]) -> String {
    const NAMED: usize = 8;
    let (first, others) = commits.split_at(commits.len().min(NAMED));
    let first = first.join(", ");
    match others.len() {
        0 => first,
        others => format!("{first} and {}", counted(others as u64, "# other[|s]")),
    }
}

impl DatabaseError {
    /// Whether the file is beyond use as it is.
    pub fn is_damage(&self) -> bool {
        matches!(self, DatabaseError::Damaged { .. })
    }

    fn of(path: &std::path::Path, error: rusqlite::Error) -> DatabaseError {
        use rusqlite::ErrorCode;
        let path = path.to_path_buf();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => DatabaseError::Damaged {
                path,
                what: error.to_string(),
            },
            Some(ErrorCode::OperationInterrupted) => DatabaseError::TooSlow { path },
            Some(ErrorCode::DiskFull) => DatabaseError::Full { path },
            _ => DatabaseError::Sqlite { path, error },
        }
    }

    fn malformed(path: &std::path::Path, malformed: Malformed) -> DatabaseError {
        let what = match malformed {
            Malformed::Sqlite(error) => return DatabaseError::of(path, error),
            Malformed::Corrupt { what } => what,
            Malformed::Inconsistent(inconsistency) => inconsistency.to_string(),
            other => other.to_string(),
        };
        DatabaseError::Unreadable {
            path: path.to_path_buf(),
            what,
        }
    }
}
