//! A recording as a file: an SQLite database that anyone can query (`docs/recording.md`).
//!
//! The database is built in memory and written in one go into a temporary file next to its destination, which then
//! takes the destination's name. So a recording is whole or not there, errors of the file system come as such and not
//! as SQLite's, and nothing depends on what locks the file system knows.
//!
//! Instants are stored as nanoseconds since their run's start, durations and sizes as they are; unsigned 64-bit numbers
//! beyond i64 (none of which a clock gives) appear negative. Text that is not UTF-8 is stored as BLOB.

mod cells;
pub mod database;
mod digest;
mod migrate;
mod schema;
mod tables;
mod validate;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags, OptionalExtension};

use crate::Recording;
use digest::Digest;

pub use schema::{APPLICATION_ID, VERSION};
pub use validate::Inconsistency;

/// How to save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaveOptions {
    /// Replace a file that is there. Otherwise its existence is an error, also if it appears while we write.
    pub overwrite: bool,
}

fn no_folder(folder: &Path) -> String {
    match folder.as_os_str().is_empty() || folder == Path::new(".") {
        true => "the current folder is gone, and the recording was to be written into it; go to another one, or name a file elsewhere (-o)".to_owned(),
        false => format!(
            "there is no folder {} to write the recording into; create it (mkdir -p) or name another one",
            folder.display()
        ),
    }
}

/// Bytes that a file which this process writes may have (`ulimit -f`); `None`: as many as the file system takes.
pub fn file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// What to say of a file that became too large (`EFBIG`): bytes that it needs, and [`file_limit`].
pub fn too_large_a_file(needed: u64, limit: Option<u64>) -> String {
    match limit {
        Some(limit) if limit < needed => format!(
            "{needed} bytes are needed, and a file may have {limit} here (ulimit -f); type: ulimit -f unlimited, in a new shell if this one may not, or record less"
        ),
        _ => format!(
            "{needed} bytes are needed, more than a file may have on this file system; name a file on another one"
        ),
    }
}

/// Why a recording could not be saved or loaded: what was found, what is needed, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Saving: something is there and may not be replaced.
    #[error("{} exists already; name another file for the recording, remove that one, or ask for it to be overwritten", path.display())]
    Exists {
        /// Destination.
        path: PathBuf,
    },
    /// A folder, device, pipe or socket, or a link to nothing.
    #[error("{} is {found}, a recording must be a regular file; name another one", path.display())]
    NotAFile {
        /// Destination or source.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Saving: the folder is not there.
    #[error("{}", no_folder(folder))]
    NoFolder {
        /// Folder of the destination.
        folder: PathBuf,
    },
    /// Saving: the file system or quota is full.
    #[error("no space left for {} ({needed} bytes are needed); free some or name a file on another disk", path.display())]
    NoSpace {
        /// Destination.
        path: PathBuf,
        /// Size of the recording.
        needed: u64,
    },
    /// Saving: larger than a file of this process may become (`RLIMIT_FSIZE`), or than the file system takes.
    #[error("{} cannot be written: {}", path.display(), too_large_a_file(*needed, *limit))]
    FileLimit {
        /// Destination.
        path: PathBuf,
        /// Size of the recording in bytes.
        needed: u64,
        /// Bytes that a file may have; `None`: this process has no limit, but the file system has.
        limit: Option<u64>,
    },
    /// Saving: the folder is not writable.
    #[error("the folder {} cannot be written to ({source}); name a file in one that you may write to", folder.display())]
    FolderNotWritable {
        /// Folder of the destination.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Saving: any other failure of the file system.
    #[error("cannot write {}: {source}; name a file on another file system", path.display())]
    Write {
        /// Destination.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Saving: an index of the recording points nowhere. A fault of the recorder, not of the user.
    #[error("the recording is not consistent and was not saved: {source}; please report this")]
    Inconsistent {
        /// What is wrong.
        source: Inconsistency,
    },
    /// Saving: beyond what SQLite holds in memory (1 GiB).
    #[error(
        "the recording does not fit into a file ({source}); record fewer families or runs, or use count mode"
    )]
    TooLarge {
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// Loading: no such file.
    #[error("there is no recording {}; check the path (nodeprof trace prints where it saved)", path.display())]
    NotFound {
        /// Source.
        path: PathBuf,
    },
    /// Loading: the file cannot be read.
    #[error("cannot read {}: {source}; check its permissions (ls -l) or run as its owner", path.display())]
    Read {
        /// Source.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Loading: the file is not a recording of ours, or damaged.
    #[error("{}: {source}", path.display())]
    Malformed {
        /// Source.
        path: PathBuf,
        /// What is wrong with it.
        source: Malformed,
    },
}

/// What is wrong with a file that should be a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// No SQLite database.
    #[error("not a recording: {found}; a recording is an SQLite file that nodeprof wrote")]
    NotSqlite {
        /// What it begins with.
        found: String,
    },
    /// An SQLite database of another program.
    #[error(
        "not a recording: an SQLite database of another program (application_id {found:#010x}, a recording has {APPLICATION_ID:#010x})"
    )]
    Foreign {
        /// Its `application_id`.
        found: u32,
    },
    /// Written by a later version of nodeprof.
    #[error(
        "the recording has schema {found}, this nodeprof reads up to {VERSION}; update nodeprof"
    )]
    Newer {
        /// Its schema.
        found: u32,
    },
    /// No version of nodeprof wrote this schema.
    #[error("the recording has schema {found}, which no nodeprof wrote; record again")]
    UnknownSchema {
        /// Its schema.
        found: u32,
    },
    /// The file ends early.
    #[error(
        "the recording is truncated: {found} of {needed} bytes are there; copy it again or record again"
    )]
    Truncated {
        /// Size in bytes.
        found: u64,
        /// Size that its header tells, in bytes.
        needed: u64,
    },
    /// A program set it to write-ahead logging, so that part of it may lie in a second file.
    #[error(
        "another program set the recording to write-ahead logging; type: sqlite3 FILE 'PRAGMA journal_mode=DELETE'"
    )]
    WriteAheadLog,
    /// SQLite gave up, and says why.
    #[error("the recording is damaged ({0}); copy it again or record again")]
    Sqlite(#[source] rusqlite::Error),
    /// More was asked for than may be taken into memory at a time.
    #[error("more runs than may be read at a time")]
    TooMuch,
    /// A value is none that we write.
    #[error("the recording is damaged ({what}); copy it again or record again")]
    Corrupt {
        /// Where.
        what: String,
    },
    /// An index points nowhere.
    #[error("the recording is damaged ({0}); copy it again or record again")]
    Inconsistent(#[from] Inconsistency),
    /// Readable, but not what was saved.
    #[error(
        "the recording was changed after nodeprof wrote it (its checksum differs); copy it again, or accept the change: sqlite3 FILE \"DELETE FROM meta WHERE key='checksum'\""
    )]
    Changed,
}

impl From<rusqlite::Error> for Malformed {
    fn from(error: rusqlite::Error) -> Malformed {
        match error.sqlite_error_code() {
            Some(_) => Malformed::Sqlite(error),
            None => Malformed::Corrupt {
                what: error.to_string(),
            },
        }
    }
}

impl Recording {
    /// Writes the recording to a file, which appears whole or not at all.
    ///
    /// A crash of the machine itself in the next seconds can still lose it: it is not forced to the disk, which would
    /// take longer than everything else.
    ///
    /// # Errors
    ///
    /// See [`StoreError`]. Nothing is left behind after an error.
    pub fn save(&self, path: impl AsRef<Path>, options: SaveOptions) -> Result<(), StoreError> {
        let asked = path.as_ref();
        let path = &destination(asked, options)?;
        self.check_references()
            .map_err(|source| StoreError::Inconsistent { source })?;
        let too_large = |source| StoreError::TooLarge { source };
        let mut database = build(self).map_err(too_large)?;
        let bytes = database.serialize(MAIN_DB).map_err(too_large)?;
        write(path, &bytes, options)
    }

    /// Reads a recording from a file.
    ///
    /// # Errors
    ///
    /// See [`StoreError`] and [`Malformed`]. What is returned is exactly what was saved.
    pub fn load(path: impl AsRef<Path>) -> Result<Recording, StoreError> {
        let path = path.as_ref();
        let unreadable = |source: io::Error| {
            let path = path.to_path_buf();
            match source.kind() {
                ErrorKind::NotFound => StoreError::NotFound { path },
                _ => StoreError::Read { path, source },
            }
        };
        // A pipe would block the open, a device could be anything.
        let metadata = fs::metadata(path).map_err(unreadable)?;
        if let Some(found) = not_a_file(&metadata) {
            let path = path.to_path_buf();
            return Err(StoreError::NotAFile { path, found });
        }
        let mut file = File::open(path).map_err(unreadable)?;
        let mut head = Vec::with_capacity(HEADER_BYTES);
        Read::by_ref(&mut file)
            .take(HEADER_BYTES as u64)
            .read_to_end(&mut head)
            .map_err(unreadable)?;
        decode(&head, file, metadata.len()).map_err(|source| StoreError::Malformed {
            path: path.to_path_buf(),
            source,
        })
    }

    /// The bytes of a recording's file.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, StoreError> {
        self.check_references()
            .map_err(|source| StoreError::Inconsistent { source })?;
        let too_large = |source| StoreError::TooLarge { source };
        let mut database = build(self).map_err(too_large)?;
        let bytes = database.serialize(MAIN_DB).map_err(too_large)?;
        Ok(bytes.to_vec())
    }

    /// Reads a recording from the bytes of its file.
    ///
    /// # Errors
    ///
    /// See [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Recording, Malformed> {
        let (head, rest) = bytes.split_at(bytes.len().min(HEADER_BYTES));
        decode(head, rest, bytes.len() as u64)
    }
}

/// Where to write: the path, or what it links to.
fn destination(asked: &Path, options: SaveOptions) -> Result<PathBuf, StoreError> {
    let path = asked.to_path_buf();
    let no_folder = || StoreError::NoFolder {
        folder: folder_of(asked).to_path_buf(),
    };
    let Ok(metadata) = fs::symlink_metadata(asked) else {
        // Not there, or its folder is not: that is said by the attempt to write.
        return match asked.file_name() {
            Some(_) => Ok(path),
            None => Err(no_folder()),
        };
    };
    if metadata.is_symlink() && options.overwrite {
        // To replace the link would leave the file that it names as it was.
        let Ok(target) = fs::canonicalize(asked) else {
            let found = "a link to nothing";
            return Err(StoreError::NotAFile { path, found });
        };
        return destination(&target, options);
    }
    match not_a_file(&metadata) {
        Some(found) if !metadata.is_symlink() => Err(StoreError::NotAFile { path, found }),
        _ if options.overwrite => Ok(path),
        _ => Err(StoreError::Exists { path }),
    }
}

fn not_a_file(metadata: &fs::Metadata) -> Option<&'static str> {
    match metadata.file_type() {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        _ => Some("a device, pipe or socket"),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Writes next to the destination, then gives the file its name.
fn write(path: &Path, bytes: &[u8], options: SaveOptions) -> Result<(), StoreError> {
    let folder = folder_of(path);
    let failed = |source: io::Error| match source.kind() {
        ErrorKind::AlreadyExists => StoreError::Exists {
            path: path.to_path_buf(),
        },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::NoSpace {
            path: path.to_path_buf(),
            needed: bytes.len() as u64,
        },
        ErrorKind::FileTooLarge => StoreError::FileLimit {
            path: path.to_path_buf(),
            needed: bytes.len() as u64,
            limit: file_limit(),
        },
        ErrorKind::NotFound | ErrorKind::NotADirectory => StoreError::NoFolder {
            folder: folder.to_path_buf(),
        },
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::FolderNotWritable {
                folder: folder.to_path_buf(),
                source,
            }
        }
        _ => StoreError::Write {
            path: path.to_path_buf(),
            source,
        },
    };
    let mut temporary = new_file(folder).map_err(failed)?;
    // The file itself: an error of the other names what is not there any more.
    (temporary.as_file_mut().write_all(bytes)).map_err(failed)?;
    if options.overwrite && path.exists() {
        // A crash must not leave neither.
        temporary.as_file().sync_all().map_err(failed)?;
    }
    let named = if options.overwrite {
        temporary.persist(path)
    } else {
        // renameat2(RENAME_NOREPLACE), or link where the file system does not know it: never replaces.
        temporary.persist_noclobber(path)
    };
    named.map_err(|error| failed(error.error))?;
    Ok(())
}

/// A temporary file that is removed when dropped, readable as the umask says.
fn new_file(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".nodeprof-").suffix(".tmp");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// The recording as a database in memory.
///
/// The `memdb` file system keeps it in one piece, so that it is written from where it lies: `:memory:` has to be copied
/// first. A million crossings, 30 MB: 0.25 s.
fn build(recording: &Recording) -> rusqlite::Result<Connection> {
    let database = Connection::open_with_flags_and_vfs(
        "recording",
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        c"memdb",
    )?;
    // Small pages: two dozen tables of a page each are most of a small recording. Foreign keys are checked already, and
    // a hundred times faster, by check_references (the bundled SQLite has them on: 0.5 s for a million crossings).
    database.execute_batch(
        "PRAGMA foreign_keys=OFF; PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; \
         PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=-8000;",
    )?;
    database.execute_batch(&format!(
        "BEGIN; PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION};"
    ))?;
    for (_, statement) in schema::TABLES {
        database.execute_batch(statement)?;
    }
    database.execute_batch(schema::EXTRAS)?;
    let mut digest = Digest::new();
    tables::write(recording, &database, &mut digest)?;
    let mut meta = database.prepare("INSERT INTO meta (key, value) VALUES (?, ?)")?;
    meta.execute((
        "format",
        "nodeprof recording; see docs/recording.md of nodeprof",
    ))?;
    meta.execute(("nodeprof", env!("CARGO_PKG_VERSION")))?;
    meta.execute((CHECKSUM, digest.to_string()))?;
    drop(meta);
    database.execute_batch("COMMIT")?;
    Ok(database)
}

const CHECKSUM: &str = "checksum";
/// Size of the header of an SQLite file (<https://www.sqlite.org/fileformat2.html>, 1.3).
const HEADER_BYTES: usize = 100;

/// What the header of an SQLite file tells before SQLite sees it: errors by name, and no foreign file is read whole.
///
/// Gives the schema.
fn check_header(head: &[u8], length: u64) -> Result<u32, Malformed> {
    const MAGIC: &[u8; 16] = b"SQLite format 3\0";
    if head.is_empty() {
        let found = "an empty file".to_owned();
        return Err(Malformed::NotSqlite { found });
    }
    if !head.starts_with(&MAGIC[..head.len().min(MAGIC.len())]) {
        let start = &head[..head.len().min(MAGIC.len())];
        let start = start.escape_ascii().to_string().replace("\\'", "'");
        let found = format!("it begins with \"{start}\"");
        return Err(Malformed::NotSqlite { found });
    }
    let Some(header) = head.first_chunk::<HEADER_BYTES>() else {
        return Err(Malformed::Truncated {
            found: length,
            needed: HEADER_BYTES as u64,
        });
    };
    let big_endian = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let application_id = big_endian(68);
    if application_id != APPLICATION_ID {
        let found = application_id;
        return Err(Malformed::Foreign { found });
    }
    let version = match big_endian(60) {
        version @ migrate::OLDEST..=VERSION => version,
        found if found > VERSION => return Err(Malformed::Newer { found }),
        found => return Err(Malformed::UnknownSchema { found }),
    };
    if header[18] == 2 || header[19] == 2 {
        return Err(Malformed::WriteAheadLog);
    }
    let page_size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65536,
        size => u64::from(size),
    };
    let needed = page_size * u64::from(big_endian(28));
    if length < needed {
        return Err(Malformed::Truncated {
            found: length,
            needed,
        });
    }
    Ok(version)
}

fn decode(head: &[u8], rest: impl Read, length: u64) -> Result<Recording, Malformed> {
    let version = check_header(head, length)?;
    let size = usize::try_from(length).map_err(|_| Malformed::Corrupt {
        what: format!("{length} bytes do not fit into memory"),
    })?;
    let mut database = Connection::open_with_flags(
        ":memory:",
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    let current = version == VERSION;
    database.deserialize_read_exact(MAIN_DB, head.chain(rest), size, current)?;
    // The file may come from anywhere: its schema runs no function of ours, a page is checked before it is used.
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    database.pragma_update(None, "cell_size_check", true)?;

    schema::check(&database, version)?;
    let checksum: Option<String> = database
        .query_row("SELECT value FROM meta WHERE key = ?", [CHECKSUM], |row| {
            row.get(0)
        })
        .optional()?;
    let changed = |found: String| match &checksum {
        Some(checksum) if *checksum != found => Err(Malformed::Changed),
        _ => Ok(()),
    };
    if !current {
        changed(migrate::checksum(&database, version)?)?;
        migrate::migrate(&database, version)?;
    }
    let mut digest = Digest::new();
    let recording = tables::read(&database, &mut digest)?;
    if current {
        changed(digest.to_string())?;
    }
    recording.check_references()?;
    Ok(recording)
}
