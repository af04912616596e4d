//! The one who writes.

use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};
use siphasher::sip128::{Hasher128, SipHasher13};

use super::super::Malformed;
use super::super::digest::Digest;
use super::super::schema::VERSION;
use super::super::tables::{self, First, shared::Shared};
use super::read::{Gaps, Needed};
use super::{DatabaseError, RunNumber, schema};
use crate::Recording;
use crate::random::Random;
use crate::recording::{Binary, Callback, Frame, Stack};
use crate::relocate::{Places, Relocate as _, Table};

/// A row's last use is noted once in so many runs: a write for each row of each run would cost more than the run itself.
const GRAIN: i64 = 256;
/// Runs that are thinned or removed in one transaction.
const AT_ONCE: usize = 32;
/// Where the file is too large, what only removed runs needed is looked for when at least this part of the runs is gone: that takes longer than
/// to remove them.
const PART: usize = 16;
/// Pages of 4 KiB.
const PAGE: u64 = 4096;
/// By so much a clock may be set back for a while without what was kept before it counting as of the future.
const SET_BACK: Duration = Duration::from_secs(86_400);

/// With others who use the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// How much is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Older runs are removed.
    pub age: Duration,
    /// Of more than this, the oldest are removed.
    pub count: usize,
    /// Of a larger file, the oldest are removed.
    pub bytes: u64,
    /// Older runs are thinned to their counts.
    pub thin: Duration,
}

/// What was done for the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Runs that are gone.
    pub removed: usize,
    /// Runs of which only the counts are left.
    pub thinned: usize,
    /// Runs that cannot be thinned, for they cannot be read: they were found now, and stay until they are to be removed.
    pub unreadable: usize,
    /// There is more to do.
    pub more: bool,
}

/// A database of runs that is written to. One at a time has it.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
    path: PathBuf,
    ids: Ids,
    runs: usize,
    /// Runs that cannot be read.
    unreadable: BTreeSet<RunNumber>,
    /// Rows that nobody needs are removed when this run is the oldest.
    swept: (i64, i64),
    /// Runs that were removed or thinned since all of these rows were looked for.
    unswept: usize,
    /// It is under way.
    sweep: Option<Sweep>,
    /// Changes when somebody else has written, as SQLite tells it.
    data_version: i64,
    _lock: Lock,
}

/// Ids that come next, and what is known of rows that are there.
#[derive(Debug)]
struct Ids {
    next: Next,
    /// Of the hashes of shared rows.
    key: [u8; 16],
    /// Shared rows that were looked up or written: starts of one program share nearly all of theirs. Nobody else writes.
    seen: HashMap<u128, Seen>,
    /// A shared row was written anew.
    mended: bool,
    /// Rows that are needed, while these are looked for.
    needed: Option<Needed>,
}

/// A search for the shared rows that no run needs, a few runs at a time.
#[derive(Debug)]
struct Sweep {
    /// The oldest runs that were whole and thinned when it began: what such runs were noted to need is needed.
    oldest: (i64, i64),
    /// Runs to look at: those that can need more than what was noted.
    runs: Vec<RunNumber>,
}

/// Shared rows that are remembered: 3 MB.
const MOST_SEEN: usize = 1 << 15;

#[derive(Clone, Copy, Debug)]
struct Next {
    first: First,
    /// Of shared rows.
    shared: [u32; KINDS.len()],
}

/// A shared row.
#[derive(Clone, Copy, Debug)]
struct Seen {
    id: u32,
    /// The runs that were noted last as needing it: one that is whole, one that is thinned.
    whole: i64,
    thinned: i64,
}

/// Tables that runs share, in the order of `shared.kind`.
const KINDS: [Table; 5] = [
    Table::Name,
    Table::Callback,
    Table::Binary,
    Table::Frame,
    Table::Stack,
];
const KIND_NAMES: [&str; 5] = ["name", "callback", "binary", "frame", "stack"];

/// What was kept after a younger run is no older than that one: the clock had been set back for a while. What was kept far in the future tells nothing: the clock
/// was ahead then. The younger ones that are asked for begin with `which`: the first one of these is found at once, as a rule, and both queries end there.
fn old(which: &str) -> String {
    let youngest = i64::MAX;
    format!(
        "kept_unix_ns < ?1 AND run < coalesce((SELECT min(run) FROM kept WHERE {which}kept_unix_ns BETWEEN ?1 AND ?3), {youngest})"
    )
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as i64
}

impl Database {
    /// Opens a database, or makes it; one of an older schema is brought up to date.
    ///
    /// # Errors
    /// [`DatabaseError`]; the file is as it was.
    pub fn open(path: &Path) -> Result<Database, DatabaseError> {
        let unusable = |error| DatabaseError::Open {
            path: path.to_owned(),
            error,
        };
        let lock = lock(path)?;
        // SQLite makes its other two files with the rights of this one.
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
        match options.open(path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                super::may(path, rustix::fs::Access::WRITE_OK).map_err(unusable)?;
            }
            Err(error) => return Err(unusable(error)),
        }
        let failed = |error| DatabaseError::of(path, error);
        let mut connection = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
        .map_err(failed)?;
        set_up(&connection).map_err(failed)?;
        begin(&mut connection, path)?;
        let key = key(&connection).map_err(failed)?;
        let next = First {
            run: next(&connection, "run").map_err(failed)?,
            process: next(&connection, "process").map_err(failed)?,
        };
        let mut shared = [0; KINDS.len()];
        for (slot, table) in shared.iter_mut().zip(KIND_NAMES) {
            *slot = next_of(&connection, table).map_err(failed)?;
        }
        let runs: i64 = connection
            .query_row("SELECT count(*) FROM run", [], |row| row.get(0))
            .map_err(failed)?;
        Ok(Database {
            connection,
            path: path.to_owned(),
            ids: Ids {
                next: Next {
                    first: next,
                    shared,
                },
                key,
                seen: HashMap::new(),
                mended: false,
                needed: None,
            },
            runs: runs as usize,
            unreadable: BTreeSet::new(),
            swept: (0, 0),
            unswept: 0,
            sweep: None,
            data_version: 0,
            _lock: lock,
        })
    }

    /// Reads every page and compares the indexes with the tables: a second for each GB, about.
    ///
    /// # Errors
    /// [`DatabaseError::Damaged`], or SQLite's.
    pub fn check(&self) -> Result<(), DatabaseError> {
        let failed = |error| DatabaseError::of(&self.path, error);
        let said: String = self
            .connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(failed)?;
        match said.as_str() {
            "ok" => Ok(()),
            what => Err(DatabaseError::Damaged {
                path: self.path.clone(),
                what: what.to_owned(),
            }),
        }
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in use; the file is no larger by more than what the next [`retain`](Database::retain) gives back.
    ///
    /// # Errors
    /// SQLite's.
    pub fn bytes(&self) -> Result<u64, DatabaseError> {
        let pragma = |name: &str| -> rusqlite::Result<i64> {
            (self.connection).query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
        };
        let used = (|| Ok(pragma("page_count")? - pragma("freelist_count")?))();
        let used = used.map_err(|error| DatabaseError::of(&self.path, error))?;
        Ok(used.max(0) as u64 * PAGE)
    }

    /// Bytes of the log beside the file. What was written is taken from it into the file by and by, but it begins anew only in a moment without readers.
    pub fn log_bytes(&self) -> u64 {
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        std::fs::metadata(log).map_or(0, |meta| meta.len())
    }

    /// Keeps the runs of a recording, of a user; returns the number of the first. One transaction: all of it is there, or nothing.
    ///
    /// # Errors
    /// [`DatabaseError`]; then nothing was written.
    pub fn keep(
        &mut self,
        recording: Recording,
        owner: Option<u32>,
    ) -> Result<RunNumber, DatabaseError> {
        recording.check_references()?;
        self.heed_others()?;
        let runs = recording.runs.len();
        let first = self.ids.next.first;
        self.transaction(|ids, connection| {
            ids.write(connection, first, recording, Use::Whole)?;
            let mut kept = connection
                .prepare_cached("INSERT INTO kept (run, owner, kept_unix_ns) VALUES (?, ?, ?)")?;
            for run in 0..runs as u32 {
                kept.execute((first.run + run, owner, now_ns()))?;
            }
            note_next(connection, "run", ids.next.first.run)?;
            note_next(connection, "process", ids.next.first.process)
        })?;
        self.runs += runs;
        if std::mem::take(&mut self.ids.mended) {
            self.unreadable.clear();
        }
        Ok(first.run)
    }

    /// If somebody else has written, rows may not be what they were.
    fn heed_others(&mut self) -> Result<(), DatabaseError> {
        let version = (self.connection).query_row("PRAGMA data_version", [], |row| row.get(0));
        let version = version.map_err(|error| DatabaseError::of(&self.path, error))?;
        if std::mem::replace(&mut self.data_version, version) != version {
            self.ids.seen.clear();
        }
        Ok(())
    }

    /// Removes and thins what is beyond the limits, a few runs at a time; `more` says that there is more to do.
    ///
    /// # Errors
    /// [`DatabaseError`]; what was done before it stays done.
    pub fn retain(&mut self, limits: &Limits) -> Result<Retained, DatabaseError> {
        let mut retained = Retained::default();
        // A clock that was set back makes nothing old.
        let before =
            |age: Duration| now_ns().saturating_sub(age.as_nanos().min(i64::MAX as u128) as i64);
        let mut gone = self.oldest(&old(""), before(limits.age), AT_ONCE)?;
        if gone.len() < AT_ONCE {
            let above = self.runs.saturating_sub(limits.count);
            if above > gone.len() {
                gone = self.oldest("kept_unix_ns < ?1", i64::MAX, above.min(AT_ONCE))?;
            }
        }
        let bytes = self.bytes()?;
        if bytes > limits.bytes && self.runs > 0 {
            // About as many as lie above the limit.
            let each = (bytes / self.runs as u64).max(1);
            let above = ((bytes - limits.bytes) / each + 1) as usize;
            let part = self.runs.div_ceil(PART).max(above);
            if self.unswept >= part {
                // What only these needed goes before more runs do.
                self.sweep_exactly()?;
                retained.more = true;
            } else if gone.is_empty() {
                let most = above.min(AT_ONCE).min(part - self.unswept);
                gone = self.oldest("kept_unix_ns < ?1", i64::MAX, most)?;
            }
        } else {
            self.sweep = None;
            self.ids.needed = None;
        }
        if !gone.is_empty() {
            self.transaction(|_, connection| {
                gone.iter().try_for_each(|run| remove(connection, *run))
            })?;
            self.runs = self.runs.saturating_sub(gone.len());
            retained.removed = gone.len();
        }
        self.unswept += gone.len();
        self.unreadable.retain(|run| !gone.contains(run));
        let thin = self.oldest(&self.to_thin(), before(limits.thin), AT_ONCE)?;
        for run in &thin {
            match self.thin(*run, limits.thin) {
                Err(DatabaseError::Unreadable { .. }) => {
                    self.unreadable.insert(*run);
                    retained.unreadable += 1;
                    self.ids.seen.clear(); // perhaps a shared row
                }
                thinned => {
                    thinned?;
                    retained.thinned += 1;
                    self.unswept += 1;
                }
            }
        }
        let is_part = retained.removed == AT_ONCE || thin.len() == AT_ONCE;
        let is_swept = retained.more && self.sweep.is_none();
        retained.more |= is_part;
        if retained.removed + retained.thinned > 0 || is_swept {
            if !is_part {
                self.sweep()?;
            }
            self.shrink()?;
            retained.more |= self.bytes()? > limits.bytes && self.runs > 0;
        }
        Ok(retained)
    }

    /// Takes what was written from the log into the file itself, and empties the log.
    ///
    /// # Errors
    /// SQLite's.
    pub fn checkpoint(&self) -> Result<(), DatabaseError> {
        let done = (self.connection).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        done.map_err(|error| DatabaseError::of(&self.path, error))
    }

    /// The same, with so much patience with readers; whether the log is empty now.
    ///
    /// # Errors
    /// SQLite's.
    pub fn empty_log(&self, patience: Duration) -> Result<bool, DatabaseError> {
        let empty = || -> rusqlite::Result<bool> {
            self.connection.busy_timeout(patience)?;
            let is_busy =
                (self.connection).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                    row.get::<_, i64>(0)
                });
            self.connection.busy_timeout(PATIENCE)?;
            Ok(is_busy? == 0)
        };
        empty().map_err(|error| DatabaseError::of(&self.path, error))
    }

    /// Lets go of all pages that are not used.
    fn shrink(&self) -> Result<(), DatabaseError> {
        let failed = |error| DatabaseError::of(&self.path, error);
        let mut statement = (self.connection)
            .prepare("PRAGMA incremental_vacuum")
            .map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        // Each step frees a page.
        while rows.next().map_err(failed)?.is_some() {}
        Ok(())
    }

    /// Which runs have all their events and are old.
    fn to_thin(&self) -> String {
        let unreadable: Vec<String> = self.unreadable.iter().map(u32::to_string).collect();
        let unreadable = unreadable.join(",");
        let old = old("thinned_unix_ns IS NULL AND ");
        format!("thinned_unix_ns IS NULL AND run NOT IN ({unreadable}) AND {old}")
    }

    /// The runs that were kept first. `which` may ask for `?1`, `before`, and for `?3`, the last instant that a clock may have told.
    fn oldest(
        &self,
        which: &str,
        before: i64,
        most: usize,
    ) -> Result<Vec<RunNumber>, DatabaseError> {
        let failed = |error| DatabaseError::of(&self.path, error);
        let query = format!("SELECT run FROM kept WHERE {which} ORDER BY run LIMIT ?2");
        let mut statement = self.connection.prepare_cached(&query).map_err(failed)?;
        let now = now_ns().saturating_add(SET_BACK.as_nanos() as i64);
        let asked = statement.parameter_count();
        let parameters = [before, most as i64, now].into_iter().take(asked);
        let runs = statement.query_map(rusqlite::params_from_iter(parameters), |row| row.get(0));
        runs.and_then(|rows| rows.collect()).map_err(failed)
    }

    fn thin(&mut self, run: RunNumber, after: Duration) -> Result<(), DatabaseError> {
        let loaded = super::read::load_one(&self.connection, run, Gaps::Refused);
        let loaded = loaded.map_err(|malformed| DatabaseError::malformed(&self.path, malformed))?;
        let Some((recording, first)) = loaded else {
            return Ok(());
        };
        let days = after.as_secs() / 86_400;
        let after = match days {
            0 => format!("{} s", after.as_secs()),
            1 => "a day".to_owned(),
            _ => format!("{days} days"),
        };
        let recording = recording.thin(&format!(
            "its single events were removed after {after} (store.thin in the configuration of nodeprofd); the counts of the run are what they were"
        ));
        self.transaction(|ids, connection| {
            let kept = connection
                .prepare_cached("SELECT owner, kept_unix_ns FROM kept WHERE run = ?")?
                .query_row([run], |row| {
                    Ok((row.get::<_, Option<u32>>(0)?, row.get::<_, i64>(1)?))
                })?;
            remove(connection, run)?;
            ids.write(connection, first, recording, Use::Thinned)?;
            connection
                .prepare_cached(
                    "INSERT INTO kept (run, owner, kept_unix_ns, thinned_unix_ns) VALUES (?, ?, ?, ?)",
                )?
                .execute((run, kept.0, kept.1, now_ns()))?;
            Ok(())
        })
    }

    /// The oldest run that is whole, and the oldest that is thinned.
    fn oldest_of_each(&self) -> Result<(i64, i64), DatabaseError> {
        let oldest = |which: &str| -> Result<i64, DatabaseError> {
            let query = format!("SELECT min(run) FROM kept WHERE {which}");
            let found = (self.connection).query_row(&query, [], |row| row.get::<_, Option<i64>>(0));
            let found = found.map_err(|error| DatabaseError::of(&self.path, error))?;
            Ok(found.unwrap_or(i64::MAX))
        };
        let whole = oldest("thinned_unix_ns IS NULL")?;
        Ok((whole, oldest("thinned_unix_ns IS NOT NULL")?))
    }

    /// Removes shared rows that no run needs, as far as that is known by what was noted.
    fn sweep(&mut self) -> Result<(), DatabaseError> {
        let (whole, thinned) = self.oldest_of_each()?;
        let grain = GRAIN as u64;
        if whole.abs_diff(self.swept.0) < grain && thinned.abs_diff(self.swept.1) < grain {
            return Ok(());
        }
        self.swept = (whole, thinned);
        self.ids.seen.clear();
        self.transaction(|_, connection| {
            for (kind, table) in KIND_NAMES.iter().enumerate() {
                // A use that was not noted lies less than a grain after the noted one.
                let unused = "kind = ?1 AND last_whole + ?2 < ?3 AND last_thinned + ?2 < ?4";
                let parameters = (kind as i64, GRAIN, whole, thinned);
                connection.execute(
                    &format!(
                        "DELETE FROM {table} WHERE id IN (SELECT id FROM shared WHERE {unused})"
                    ),
                    parameters,
                )?;
                connection.execute(&format!("DELETE FROM shared WHERE {unused}"), parameters)?;
            }
            Ok(())
        })
    }

    /// Looks for all shared rows that no run needs, by what the runs need that can need more than what was noted, and then removes them.
    fn sweep_exactly(&mut self) -> Result<(), DatabaseError> {
        let mut sweep = match self.sweep.take() {
            Some(sweep) => sweep,
            None => {
                let oldest = self.oldest_of_each()?;
                let near = |oldest: i64, which: &str| {
                    let end = oldest.saturating_add(GRAIN);
                    let which = format!("thinned_unix_ns {which} AND run < ?1");
                    self.oldest(&which, end, usize::MAX >> 1)
                };
                let runs = [near(oldest.0, "IS NULL")?, near(oldest.1, "IS NOT NULL")?].concat();
                self.ids.needed = Some(Needed::default());
                Sweep { oldest, runs }
            }
        };
        for run in sweep
            .runs
            .split_off(sweep.runs.len().saturating_sub(AT_ONCE))
        {
            let needed = self.ids.needed.get_or_insert_default();
            let added = needed.add_run(&self.connection, run);
            added.map_err(|malformed| DatabaseError::malformed(&self.path, malformed))?;
        }
        if !sweep.runs.is_empty() {
            self.sweep = Some(sweep);
            return Ok(());
        }
        let needed = self.ids.needed.take().unwrap_or_default();
        self.unswept = 0;
        self.ids.seen.clear();
        self.transaction(|_, connection| {
            for (kind, table) in KIND_NAMES.iter().enumerate() {
                let mut unused = connection.prepare(
                    "SELECT rowid, id FROM shared WHERE kind = ? AND last_whole < ? AND last_thinned < ?",
                )?;
                let (whole, thinned) = sweep.oldest;
                let rows = unused.query_map((kind as i64, whole, thinned), |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, u32>(1)?))
                })?;
                let rows: Vec<(i64, u32)> = rows.collect::<rusqlite::Result<_>>()?;
                let mut remove = connection.prepare(&format!("DELETE FROM {table} WHERE id = ?"))?;
                let mut forget = connection.prepare("DELETE FROM shared WHERE rowid = ?")?;
                let is_needed = |id: u32| needed.contains(KINDS[kind], id);
                for (place, id) in rows.iter().filter(|(_, id)| !is_needed(*id)) {
                    remove.execute([id])?;
                    forget.execute([place])?;
                }
            }
            Ok(())
        })
    }

    /// Does it all or nothing.
    fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Ids, &Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        let before = self.ids.next;
        let done = (self.connection)
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                let result = work(&mut self.ids, &transaction)?;
                transaction.commit()?;
                Ok(result)
            });
        done.map_err(|error| {
            // Its rows are not there.
            self.ids.next = before;
            self.ids.seen.clear();
            DatabaseError::of(&self.path, error)
        })
    }
}

impl Ids {
    /// Writes rows, from these ids on.
    fn write(
        &mut self,
        connection: &Connection,
        first: First,
        mut recording: Recording,
        used: Use,
    ) -> rusqlite::Result<()> {
        let mut placed = Placed {
            first,
            shared: Default::default(),
        };
        let last_run = first.run + (recording.runs.len() as u32).saturating_sub(1);
        let names = std::mem::take(&mut recording.names);
        placed.shared[0] = self.share(connection, 0, names.iter(), last_run, used)?;
        let callbacks = std::mem::take(&mut recording.callbacks);
        placed.shared[1] =
            self.share::<Callback>(connection, 1, callbacks.iter(), last_run, used)?;
        let binaries = std::mem::take(&mut recording.binaries);
        placed.shared[2] = self.share::<Binary>(connection, 2, binaries.iter(), last_run, used)?;
        let mut frames = std::mem::take(&mut recording.frames);
        for frame in &mut frames {
            frame.relocate(&mut placed);
        }
        placed.shared[3] = self.share::<Frame>(connection, 3, frames.iter(), last_run, used)?;
        // A caller comes before its callees: where it is is known when they come.
        for mut stack in std::mem::take(&mut recording.stacks) {
            stack.relocate(&mut placed);
            let place =
                self.share::<Stack>(connection, 4, std::iter::once(&stack), last_run, used)?;
            placed.shared[4].extend(place);
        }
        recording.relocate(&mut placed);
        tables::write_from(first, &recording, connection, &mut Digest::new())?;
        let next = &mut self.next.first;
        next.run = next.run.max(last_run + 1);
        let processes = first.process + recording.processes.len() as u32;
        next.process = next.process.max(processes);
        Ok(())
    }

    /// The id of a row that says this, where `shared` says that there is one. What cannot be read, or says something else, is written anew in its place, for
    /// its hash tells what it was: so runs that use it can be read again. If the place is that of another row, too, the id was wrong.
    fn sound<T: Shared + PartialEq>(
        &mut self,
        connection: &Connection,
        (kind, high, low): (usize, i64, i64),
        id: u32,
        row: &T,
    ) -> rusqlite::Result<u32> {
        match T::find(connection, id) {
            Ok(Some(there)) if there == *row => return Ok(id),
            Err(Malformed::Sqlite(error)) => return Err(error),
            _ => {}
        }
        self.mended = true;
        let uses: i64 = connection.query_row(
            "SELECT count(*) FROM shared WHERE kind = ? AND id = ?",
            (kind as i64, id),
            |row| row.get(0),
        )?;
        let id = if uses > 1 {
            let new = self.next.shared[kind];
            self.next.shared[kind] += 1;
            connection.execute(
                "UPDATE shared SET id = ? WHERE kind = ? AND hash_high = ? AND hash_low = ?",
                (new, kind as i64, high, low),
            )?;
            new
        } else {
            connection.execute(&format!("DELETE FROM {} WHERE id = ?", T::TABLE), [id])?;
            id
        };
        row.insert(connection, id)?;
        Ok(id)
    }

    /// Finds rows that runs share, or writes them; returns their ids.
    fn share<'r, T: Shared + Hash + PartialEq + 'r>(
        &mut self,
        connection: &Connection,
        kind: usize,
        rows: impl Iterator<Item = &'r T>,
        run: u32,
        used: Use,
    ) -> rusqlite::Result<Vec<u32>> {
        debug_assert_eq!(T::TABLE, KIND_NAMES[kind]);
        let mut find = connection.prepare_cached(
            "SELECT id, last_whole, last_thinned FROM shared WHERE kind = ? AND hash_high = ? AND hash_low = ?",
        )?;
        let mut insert = connection.prepare_cached(
            "INSERT INTO shared (kind, hash_high, hash_low, id, last_whole, last_thinned) VALUES (?, ?, ?, ?, ?, ?)",
        )?;
        let column = match used {
            Use::Whole => "last_whole",
            Use::Thinned => "last_thinned",
        };
        let mut note = connection.prepare_cached(&format!(
            "UPDATE shared SET {column} = ? WHERE kind = ? AND hash_high = ? AND hash_low = ?"
        ))?;
        let run = i64::from(run);
        let mut ids = Vec::new();
        for row in rows {
            let mut hasher = SipHasher13::new_with_key(&self.key);
            row.hash(&mut hasher);
            hasher.write_u8(kind as u8);
            let hash = hasher.finish128();
            let (high, low) = (hash.h1 as i64, hash.h2 as i64);
            let known = match self.seen.get(&hash.as_u128()) {
                Some(seen) => Some(*seen),
                None => {
                    let found = find.query_row((kind as i64, high, low), |row| {
                        Ok(Seen {
                            id: row.get(0)?,
                            whole: row.get(1)?,
                            thinned: row.get(2)?,
                        })
                    });
                    match found.optional()? {
                        Some(mut seen) => {
                            seen.id = self.sound(connection, (kind, high, low), seen.id, row)?;
                            Some(seen)
                        }
                        None => None,
                    }
                }
            };
            let seen = match known {
                Some(mut seen) => {
                    let last = match used {
                        Use::Whole => &mut seen.whole,
                        Use::Thinned => &mut seen.thinned,
                    };
                    if *last < 0 || run >= *last + GRAIN {
                        note.execute((run, kind as i64, high, low))?;
                        *last = run;
                    }
                    seen
                }
                None => {
                    let id = self.next.shared[kind];
                    self.next.shared[kind] += 1;
                    row.insert(connection, id)?;
                    let (whole, thinned) = match used {
                        Use::Whole => (run, -GRAIN - 1),
                        Use::Thinned => (-GRAIN - 1, run),
                    };
                    insert.execute((kind as i64, high, low, id, whole, thinned))?;
                    Seen { id, whole, thinned }
                }
            };
            if self.seen.len() >= MOST_SEEN {
                self.seen.clear();
            }
            self.seen.insert(hash.as_u128(), seen);
            if let Some(needed) = &mut self.needed {
                needed.add(KINDS[kind], seen.id);
            }
            ids.push(seen.id);
        }
        Ok(ids)
    }
}

/// Who needs a shared row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Whole,
    Thinned,
}

/// Where the rows of a recording are in the database.
struct Placed {
    first: First,
    /// By kind.
    shared: [Vec<u32>; KINDS.len()],
}

impl Places for Placed {
    fn place(&mut self, table: Table, id: u32) -> u32 {
        match table {
            Table::Run => id + self.first.run,
            Table::Process => id + self.first.process,
            shared => {
                let kind = KINDS.iter().position(|kind| *kind == shared);
                let of = kind.and_then(|kind| self.shared[kind].get(id as usize));
                of.copied().unwrap_or(id)
            }
        }
    }
}

/// A writer that was killed while it started a program has left a child that holds the lock until its exec.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// A lock that ends with this, also where a process that was forked meanwhile has the descriptor, too.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// One writer at a time.
fn lock(path: &Path) -> Result<Lock, DatabaseError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let unusable = |error| DatabaseError::Open {
        path: path.to_owned(),
        error,
    };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(name).map_err(unusable)?;
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(std::fs::TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(DatabaseError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(unusable(error)),
        }
    }
}

/// Settings of a connection; the file may be damaged or made by somebody else.
fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Plans need no values: else some statements are prepared again for each of them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(128);
    // Pages that are free are given back by `retain`. A transaction survives a crash of the service at once, and one of the machine
    // from the next checkpoint on: forcing each to the disk would cost more than recording it.
    connection.execute_batch(
        "PRAGMA page_size=4096; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; \
         PRAGMA foreign_keys=OFF; PRAGMA cell_size_check=ON; PRAGMA journal_size_limit=8388608; PRAGMA cache_size=-4000;",
    )
}

/// Makes the tables of a new database, or checks that they are there.
fn begin(connection: &mut Connection, path: &Path) -> Result<(), DatabaseError> {
    let failed = |error| DatabaseError::of(path, error);
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    let pragma = |name: &str| -> Result<u32, DatabaseError> {
        let value =
            transaction.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
        Ok(value.map_err(failed)? as u32)
    };
    let tables: i64 = transaction
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    let application = pragma("application_id")?;
    let version = pragma("user_version")?;
    match (tables, application, version) {
        (0, 0, 0) => schema::create(&transaction).map_err(failed)?,
        (_, application, _) if application != schema::APPLICATION_ID => {
            return Err(DatabaseError::Foreign {
                path: path.to_owned(),
                found: format!("an SQLite database with application_id {application:#010x}"),
            });
        }
        (_, _, VERSION) => {}
        (_, _, found) if found > VERSION => {
            return Err(DatabaseError::Newer {
                path: path.to_owned(),
                found,
                needed: VERSION,
            });
        }
        (_, _, found) if found >= schema::OLDEST => {
            schema::migrate(&transaction, found).map_err(failed)?;
        }
        (_, _, found) => {
            return Err(DatabaseError::Foreign {
                path: path.to_owned(),
                found: format!("schema {found}, which no nodeprofd wrote"),
            });
        }
    }
    transaction.commit().map_err(failed)
}

/// The key of the hashes: nobody who is recorded can make two names with one hash.
fn key(connection: &Connection) -> rusqlite::Result<[u8; 16]> {
    let found: Option<String> = meta(connection, "hash_key")?;
    let parsed = found.and_then(|text| u128::from_str_radix(&text, 16).ok());
    let key = match parsed {
        Some(key) => key,
        None => {
            let mut random = Random::new(seed());
            let key = (u128::from(random.bits()) << 64) | u128::from(random.bits());
            connection.execute(
                "INSERT INTO meta (key, value) VALUES ('hash_key', ?)",
                [format!("{key:032x}")],
            )?;
            key
        }
    };
    Ok(key.to_le_bytes())
}

/// From the system: the standard library seeds its maps so.
fn seed() -> u64 {
    use std::hash::BuildHasher as _;
    std::collections::hash_map::RandomState::new().hash_one(now_ns())
}

fn meta(connection: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    connection
        .query_row("SELECT value FROM meta WHERE key = ?", [key], |row| {
            row.get(0)
        })
        .optional()
}

fn next_of(connection: &Connection, table: &str) -> rusqlite::Result<u32> {
    let last: Option<u32> =
        connection.query_row(&format!("SELECT max(id) FROM {table}"), [], |row| {
            row.get(0)
        })?;
    Ok(last.map_or(0, |last| last + 1))
}

/// The next id of a run or process: never one that was given before, also if its run is gone.
fn next(connection: &Connection, table: &str) -> rusqlite::Result<u32> {
    let noted = meta(connection, &format!("next_{table}"))?.and_then(|text| text.parse().ok());
    // Numbers are for people: they count from 1.
    let least = u32::from(table == "run");
    Ok(next_of(connection, table)?
        .max(noted.unwrap_or(0))
        .max(least))
}

fn note_next(connection: &Connection, table: &str, next: u32) -> rusqlite::Result<()> {
    let key = format!("next_{table}");
    let mut update = connection.prepare_cached("UPDATE meta SET value = ?2 WHERE key = ?1")?;
    if update.execute((&key, next.to_string()))? == 0 {
        connection
            .prepare_cached("INSERT INTO meta (key, value) VALUES (?1, ?2)")?
            .execute((&key, next.to_string()))?;
    }
    Ok(())
}

/// Removes a run; shared rows stay.
fn remove(connection: &Connection, run: RunNumber) -> rusqlite::Result<()> {
    let range: (Option<u32>, Option<u32>) = connection
        .prepare_cached("SELECT min(id), max(id) FROM process WHERE run = ?")?
        .query_row([run], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for (table, column) in tables::tables_of_runs() {
        if column == "run" {
            connection
                .prepare_cached(&format!("DELETE FROM {table} WHERE run = ?"))?
                .execute([run])?;
        } else if let (Some(first), Some(last)) = range {
            connection
                .prepare_cached(&format!(
                    "DELETE FROM {table} WHERE process BETWEEN ? AND ?"
                ))?
                .execute([first, last])?;
        }
    }
    connection
        .prepare_cached("DELETE FROM kept WHERE run = ?")?
        .execute([run])?;
    connection
        .prepare_cached("DELETE FROM run WHERE id = ?")?
        .execute([run])?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_database_that_is_closed_can_be_opened_though_a_forked_process_has_its_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs.db");
        let database = Database::open(&file).unwrap();
        // As the kernel shares it with a child.
        let _of_child = database._lock.0.try_clone().unwrap();
        let error = Database::open(&file).unwrap_err();
        assert!(matches!(error, DatabaseError::InUse { .. }), "{error}");
        drop(database);
        Database::open(&file).unwrap();
    }

    /// It is asked after each start.
    #[test]
    fn what_is_old_is_found_without_a_look_at_all_runs() {
        const DAY: u64 = 86_400;
        let folder = tempfile::tempdir().unwrap();
        let mut database = Database::open(&folder.path().join("runs.db")).unwrap();
        let day = Duration::from_secs(DAY).as_nanos() as i64;
        let fill = format!(
            "PRAGMA foreign_keys=OFF;
             WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 3000)
             INSERT INTO kept SELECT n, 1000, {} + n, iif(n < 2000, {}, NULL) FROM number;
             UPDATE kept SET kept_unix_ns = kept_unix_ns + {} WHERE thinned_unix_ns IS NULL;",
            now_ns() - 10 * day,
            now_ns() - 3 * day,
            9 * day,
        );
        database.connection.execute_batch(&fill).unwrap();
        let limits = Limits {
            age: Duration::from_secs(30 * DAY),
            count: usize::MAX,
            bytes: u64::MAX,
            thin: Duration::from_secs(7 * DAY),
        };
        assert_eq!(database.retain(&limits).unwrap(), Retained::default());
        for which in [old(""), database.to_thin()] {
            let query = format!("SELECT run FROM kept WHERE {which} ORDER BY run LIMIT ?2");
            let statement = database.connection.prepare_cached(&query).unwrap();
            let steps = statement.get_status(StatementStatus::VmStep);
            // None: it was not kept from one time to the next.
            assert!((1..500).contains(&steps), "{which}: {steps}");
        }
    }
}
