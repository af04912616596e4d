//! Those who read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSql, Value, ValueRef};
use rusqlite::{Connection, OpenFlags};

use super::super::schema::VERSION;
use super::super::tables::{self, First, shared::Shared};
use super::super::{HEADER_BYTES, Malformed};
use super::{DatabaseError, RunNumber, schema};
use crate::Recording;
use crate::groups::{COMMIT, beginning_of_commit};
use crate::modules::package::{installed_directory, name_of_directory};
use crate::recording::{
    Binary, Callback, Frame, FrameId, FrameKind, LOOP_START, Loss, NameId, ROWS_UNREADABLE, RunId,
    Stack, UNREADABLE,
};
use crate::relocate::{Places, Relocate as _, Table};

/// A database of runs that is read; it may be written to at the same time.
#[derive(Debug)]
pub struct Reader {
    connection: Connection,
    path: PathBuf,
}

/// Which runs; each condition must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// These numbers only.
    pub runs: Option<Vec<RunNumber>>,
    /// Labels that a run must have. Of a [`COMMIT`] its first digits are enough, as for git.
    pub labels: Vec<(String, String)>,
    /// A part of the command, its arguments separated by spaces.
    pub command: Option<String>,
    /// Name of a package that it loaded modules of: by its package.json, of count mode by the paths of compiled modules.
    pub package: Option<String>,
    /// Only those that ended with another exit status than 0, or by a signal.
    pub failed: bool,
    /// Started at this instant or later, ns since the Unix epoch.
    pub since_unix_ns: Option<u64>,
    /// Started before it.
    pub until_unix_ns: Option<u64>,
    /// Of these users only.
    pub owners: Option<Vec<u32>>,
    /// At most so many, the newest; `None`: all.
    pub most: Option<usize>,
}

/// A run in few words.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Summary {
    /// Its number.
    pub id: RunNumber,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Working directory.
    pub directory: String,
    /// Wall clock at the start, ns since the Unix epoch.
    pub started_unix_ns: u64,
    /// From the exec to the end of recording.
    pub duration_ns: u64,
    /// From the exec to the start of the event loop, if that ended the recording, some time later.
    #[serde(default)]
    pub loop_start_ns: Option<u64>,
    /// Why recording ended.
    pub ended_by: String,
    /// `full` or `count`.
    pub mode: String,
    /// Exit status, if it exited meanwhile.
    pub exit_status: Option<i32>,
    /// Signal that killed it.
    pub signal: Option<i32>,
    /// User id, if known.
    pub owner: Option<u32>,
    /// Process.
    pub pid: Option<u32>,
    /// For example `v20.20.2`.
    pub node_version: Option<String>,
    /// Why it is not complete.
    pub incomplete: Option<String>,
    /// Only its counts are left.
    pub thinned: bool,
    /// Calls from JavaScript to C++.
    pub crossings: u64,
    /// package.json lookups.
    pub lookups: u64,
    /// Labels; the last of a key counts.
    pub labels: BTreeMap<String, String>,
}

/// Runs that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Found {
    /// The newest first.
    pub runs: Vec<Summary>,
    /// There are more.
    pub more: bool,
    /// So many were passed over, for what is in the file of them is nothing that we write.
    pub unreadable: usize,
}

/// Labels that runs have.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Labels {
    /// Key, value and number of runs, the most frequent first.
    pub labels: Vec<(String, String, u64)>,
    /// So many less frequent ones are left out.
    pub left_out: u64,
}

/// Bytes of a command in a summary that is shortened.
const LONG_COMMAND: usize = 4096;
/// Bytes of any other text there.
const LONG_TEXT: usize = 1024;

/// Cuts a text that is longer, and marks it.
fn shorten(text: &mut String, longest: usize) {
    if text.len() > longest {
        let end = (0..=longest).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
}

impl Summary {
    /// How long the start took, as far as is known: of a server until its event loop began, not with what was recorded after that.
    pub fn time_ns(&self) -> u64 {
        self.loop_start_ns.unwrap_or(self.duration_ns)
    }

    /// Cuts what programs make as long as they like: the command, the folder, labels. What is cut ends with an ellipsis.
    fn shorten(&mut self) {
        let mut left = LONG_COMMAND;
        for at in 0..self.command.len() {
            if left == 0 {
                self.command.truncate(at);
                self.command.push("…".into());
                break;
            }
            let word = &mut self.command[at];
            shorten(word, left);
            left = left.saturating_sub(word.len().max(1));
        }
        shorten(&mut self.directory, LONG_TEXT);
        if let Some(incomplete) = &mut self.incomplete {
            shorten(incomplete, LONG_TEXT);
        }
        for value in self.labels.values_mut() {
            shorten(value, LONG_TEXT);
        }
    }
}

impl Reader {
    /// Whether a file begins as a database of runs does. Not for one that this process has open: see [`super::may`].
    pub fn recognises(path: &Path) -> bool {
        use std::io::Read as _;
        let mut head = [0; HEADER_BYTES];
        let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        is_file
            && std::fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok())
            && head[68..72] == schema::APPLICATION_ID.to_be_bytes()
    }

    /// Opens a database.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub fn open(path: &Path) -> Result<Reader, DatabaseError> {
        // Asked here first, for an error that tells what SQLite does not.
        if let Err(error) = super::may(path, rustix::fs::Access::READ_OK) {
            let path = path.to_owned();
            return Err(match error.kind() {
                std::io::ErrorKind::NotFound => DatabaseError::NotFound { path },
                _ => DatabaseError::Open { path, error },
            });
        }
        let failed = |error| DatabaseError::of(path, error);
        let connection = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
        .map_err(failed)?;
        connection
            .busy_timeout(Duration::from_secs(5))
            .map_err(failed)?;
        let trusted = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false);
        trusted.map_err(failed)?;
        connection
            .pragma_update(None, "cell_size_check", true)
            .map_err(failed)?;
        connection
            .pragma_update(None, "cache_size", -4000)
            .map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(64);
        let pragma = |name: &str| -> Result<u32, DatabaseError> {
            let value =
                connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
            Ok(value.map_err(failed)? as u32)
        };
        let application = pragma("application_id")?;
        if application != schema::APPLICATION_ID {
            return Err(DatabaseError::Foreign {
                path: path.to_owned(),
                found: format!("application_id {application:#010x}"),
            });
        }
        let found = pragma("user_version")?;
        let (path, needed) = (path.to_owned(), VERSION);
        match found {
            VERSION => Ok(Reader { connection, path }),
            _ if found > VERSION => Err(DatabaseError::Newer {
                path,
                found,
                needed,
            }),
            _ => Err(DatabaseError::Older {
                path,
                found,
                needed,
            }),
        }
    }

    /// What is asked for is given up after this time, reckoned from now.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub fn give_up_after(&mut self, limit: Duration) -> Result<(), DatabaseError> {
        /// Of SQLite's machine, between two looks at the clock: some microseconds.
        const STEPS: std::ffi::c_int = 1_000;
        let until = Instant::now() + limit;
        let is_late = move || Instant::now() >= until;
        let set = self.connection.progress_handler(STEPS, Some(is_late));
        set.map_err(|error| DatabaseError::of(&self.path, error))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs, the newest first.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub fn find(&self, filter: &Filter) -> Result<Vec<Summary>, DatabaseError> {
        Ok(self.find_within(filter, None)?.runs)
    }

    /// The same, and what is missing in it. `bytes`: only the newest that take no more than so many as JSON, with long texts cut.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub fn find_within(
        &self,
        filter: &Filter,
        bytes: Option<usize>,
    ) -> Result<Found, DatabaseError> {
        let labels = (filter.labels.iter())
            .map(|label| self.whole_commit(label, filter.owners.as_deref()))
            .collect::<Result<_, _>>()?;
        let filter = Filter {
            labels,
            ..filter.clone()
        };
        let found = find(&self.connection, &filter, bytes);
        found.map_err(|malformed| self.failed(malformed))
    }

    /// A label with the whole commit where its value is the beginning of one that runs of these owners have; any other as it is.
    fn whole_commit(
        &self,
        (key, value): &(String, String),
        owners: Option<&[u32]>,
    ) -> Result<(String, String), DatabaseError> {
        let as_it_is = || (key.clone(), value.clone());
        if beginning_of_commit(key, value).is_none() {
            return Ok(as_it_is());
        }
        let (sql, query) = commits(value, owners);
        let read = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self.connection.prepare(&sql)?;
            let rows = statement.query_map(query.parameters().as_slice(), |row| row.get(0))?;
            rows.collect()
        };
        let mut commits = read().map_err(|error| DatabaseError::of(&self.path, error))?;
        if commits.contains(value) {
            return Ok(as_it_is());
        }
        if commits.len() > 1 {
            return Err(DatabaseError::Ambiguous {
                commit: value.clone(),
                commits,
            });
        }
        Ok(commits.pop().map_or_else(as_it_is, |is| (key.clone(), is)))
    }

    /// Labels that there are: at most `most`, and none after so many `bytes` of text. `owners` as in [`Filter`].
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub fn labels(
        &self,
        owners: Option<&[u32]>,
        most: usize,
        bytes: usize,
    ) -> Result<Labels, DatabaseError> {
        let mut query = Query::default();
        query.owners(owners);
        let sql = format!(
            "SELECT label.key, label.value, count(*) FROM label JOIN kept ON kept.run = label.run{} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2",
            query.conditions()
        );
        let read = || -> rusqlite::Result<Labels> {
            let mut statement = self.connection.prepare(&sql)?;
            let mut rows = statement.query(query.parameters().as_slice())?;
            let (mut found, mut left) = (Labels::default(), bytes);
            while let Some(row) = rows.next()? {
                let (key, value): (String, String) = (row.get(0)?, row.get(1)?);
                let rest = left.checked_sub(key.len() + value.len());
                match rest.filter(|_| found.labels.len() < most && found.left_out == 0) {
                    Some(rest) => {
                        left = rest;
                        let runs: i64 = row.get(2)?;
                        found.labels.push((key, value, runs as u64));
                    }
                    None => found.left_out += 1,
                }
            }
            Ok(found)
        };
        read().map_err(|error| DatabaseError::of(&self.path, error))
    }

    /// How many runs there are.
    ///
    /// # Errors
    /// [`DatabaseError`].
    pub fn count(&self) -> Result<usize, DatabaseError> {
        let count = (self.connection)
            .query_row("SELECT count(*) FROM kept", [], |row| row.get::<_, i64>(0));
        Ok(count.map_err(|error| DatabaseError::of(&self.path, error))? as usize)
    }

    /// Runs as a recording, in the order asked for; their numbers become labels called `run`. What is not asked for is not read.
    ///
    /// # Errors
    /// [`DatabaseError`]. A run that is not there (any more) is left out.
    pub fn load(&self, runs: &[RunNumber]) -> Result<Recording, DatabaseError> {
        let loaded = load(&self.connection, runs, u64::MAX);
        loaded.map_err(|malformed| self.failed(malformed))
    }

    /// The same of runs that take no more than so many bytes of memory, about, until they are handed over as a file: that is known before they are read.
    ///
    /// # Errors
    /// [`DatabaseError`]; [`DatabaseError::TooMuch`] if they take more.
    pub fn load_within(&self, runs: &[RunNumber], most: u64) -> Result<Recording, DatabaseError> {
        load(&self.connection, runs, most).map_err(|malformed| match malformed {
            Malformed::TooMuch => DatabaseError::TooMuch {
                path: self.path.clone(),
                most,
            },
            other => self.failed(other),
        })
    }

    fn failed(&self, malformed: Malformed) -> DatabaseError {
        DatabaseError::malformed(&self.path, malformed)
    }
}

/// Label of a loaded run that tells its number.
pub const RUN: &str = "run";

/// Conditions and their values.
#[derive(Default)]
struct Query {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Query {
    fn add<V: Into<Value>>(&mut self, condition: &str, values: impl IntoIterator<Item = V>) {
        self.conditions.push(condition.to_owned());
        self.values.extend(values.into_iter().map(Into::into));
    }

    fn one_of(&mut self, column: &str, ids: &[u32]) {
        // Numbers only: no text of anybody's gets into the statement.
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        self.conditions
            .push(format!("{column} IN ({})", ids.join(",")));
    }

    fn owners(&mut self, owners: Option<&[u32]>) {
        if let Some(owners) = owners {
            self.one_of("kept.owner", owners);
        }
    }

    fn conditions(&self) -> String {
        match self.conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", self.conditions.join(" AND ")),
        }
    }

    fn parameters(&self) -> Vec<&dyn ToSql> {
        self.values
            .iter()
            .map(|value| value as &dyn ToSql)
            .collect()
    }
}

/// The commits of these owners' runs that are this one, or begin with it. Two questions: for one with both conditions all labels of the key would be gone through.
fn commits(value: &str, owners: Option<&[u32]>) -> (String, Query) {
    let mut query = Query::default();
    let mut selects = Vec::new();
    let begin = value.to_ascii_lowercase();
    // `g` comes after all digits.
    for (condition, values) in [
        ("label.value = ?", vec![value.to_owned()]),
        (
            "label.value >= ? AND label.value < ? AND label.value NOT GLOB '*[^0-9a-f]*'",
            vec![begin.clone(), begin + "g"],
        ),
    ] {
        let mut one = Query::default();
        one.owners(owners);
        one.add("label.key = ?", [COMMIT.to_owned()]);
        one.add(condition, values);
        selects.push(format!(
            "SELECT label.value FROM label JOIN kept ON kept.run = label.run{}",
            one.conditions()
        ));
        query.values.extend(one.values);
    }
    (format!("{} ORDER BY 1", selects.join(" UNION ")), query)
}

/// No start is as late as the latest instant of the database.
fn instant(unix_ns: u64) -> i64 {
    i64::try_from(unix_ns).unwrap_or(i64::MAX)
}

fn find(connection: &Connection, filter: &Filter, room: Option<usize>) -> Result<Found, Malformed> {
    let mut query = Query::default();
    if let Some(runs) = &filter.runs {
        query.one_of("kept.run", runs);
    }
    query.owners(filter.owners.as_deref());
    for (key, value) in &filter.labels {
        query.add(
            "kept.run IN (SELECT run FROM label WHERE key = ? AND value = ?)",
            [key.clone(), value.clone()],
        );
    }
    if filter.failed {
        (query.conditions).push("(run.exit_status <> 0 OR run.signal IS NOT NULL)".to_owned());
    }
    if let Some(since) = filter.since_unix_ns {
        query.add("run.started_unix_ns >= ?", [instant(since)]);
    }
    if let Some(until) = filter.until_unix_ns {
        query.add("run.started_unix_ns < ?", [instant(until)]);
    }
    if let Some(package) = &filter.package {
        // Count mode reads no package.json: there the paths of what was compiled tell it.
        query.add(
            "(kept.run IN (SELECT run FROM package WHERE name = ?) OR run.mode = 'count' AND EXISTS (SELECT 1 FROM process p JOIN compilation c ON c.process = p.id WHERE p.run = kept.run AND c.path IN (SELECT value FROM json_each(?))))",
            [package.clone(), files_of(connection, package)?],
        );
    }
    let sql = format!(
        "SELECT kept.run, kept.owner, kept.thinned_unix_ns FROM kept JOIN run ON run.id = kept.run{} ORDER BY run.started_unix_ns DESC, kept.run DESC",
        query.conditions()
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(query.parameters().as_slice())?;
    let mut found = Found::default();
    let mut left = room;
    while let Some(row) = rows.next()? {
        if filter.most.is_some_and(|most| found.runs.len() >= most) {
            found.more = true;
            break;
        }
        let read = (|| {
            let (id, owner): (RunNumber, Option<u32>) = (row.get(0)?, row.get(1)?);
            let thinned: Option<i64> = row.get(2)?;
            summary(connection, id, owner, thinned.is_some(), filter)
        })();
        let mut summary = match read {
            Ok(Some(summary)) => summary,
            Ok(None) => continue,
            Err(failed @ Malformed::Sqlite(_)) => return Err(failed),
            Err(_) => {
                found.unreadable += 1;
                continue;
            }
        };
        if let Some(left) = &mut left {
            summary.shorten();
            let bytes = serde_json::to_vec(&summary).map_or(usize::MAX, |json| json.len() + 1);
            let Some(rest) = left.checked_sub(bytes) else {
                found.more = true;
                break;
            };
            *left = rest;
        }
        found.runs.push(summary);
    }
    Ok(found)
}

/// The names that are paths of files of an installed package, as a JSON array of their ids.
fn files_of(connection: &Connection, package: &str) -> Result<String, Malformed> {
    let mut statement =
        connection.prepare_cached("SELECT id, text FROM name WHERE instr(text, ?) > 0")?;
    let mut rows = statement.query([format!("/node_modules/{package}/")])?;
    let mut files: Vec<u32> = Vec::new();
    while let Some(row) = rows.next()? {
        let path = match row.get_ref(1)? {
            ValueRef::Text(path) | ValueRef::Blob(path) => path,
            _ => continue,
        };
        // Of a package in it the file is that one's.
        if installed_directory(path).is_some_and(|is| name_of_directory(is) == package) {
            files.push(row.get(0)?);
        }
    }
    Ok(serde_json::Value::from(files).to_string())
}

/// One run, if it fits; the conditions that SQL cannot tell are looked at first.
fn summary(
    connection: &Connection,
    id: RunNumber,
    owner: Option<u32>,
    thinned: bool,
    filter: &Filter,
) -> Result<Option<Summary>, Malformed> {
    let Some((run, process)) = tables::read_head(connection, id)? else {
        return Ok(None);
    };
    let fits = (filter.labels.iter()).all(|(key, value)| run.label(key) == Some(value));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let command: Vec<String> = run.command.iter().map(|word| text(word)).collect();
    let part = filter.command.as_deref();
    if !fits || part.is_some_and(|part| !command.join(" ").contains(part)) {
        return Ok(None);
    }
    let number = |sql: &str| -> rusqlite::Result<u64> {
        let value: Option<f64> = connection
            .prepare_cached(sql)?
            .query_row([id], |row| row.get(0))?;
        Ok(value.unwrap_or_default() as u64)
    };
    let (crossings, lookups) = match thinned {
        true => (
            number(
                "SELECT value FROM (SELECT 0.0 AS value, 1 AS last UNION ALL SELECT value, 0 FROM figure WHERE run = ?1 AND name = 'crossings.total') ORDER BY last LIMIT 1",
            )?,
            number(
                "SELECT value FROM (SELECT 0.0 AS value, 1 AS last UNION ALL SELECT value, 0 FROM figure WHERE run = ?1 AND name = 'package_json.lookups') ORDER BY last LIMIT 1",
            )?,
        ),
        false => (
            number(
                "SELECT (SELECT coalesce(sum(calls), 0) FROM crossing_sum s JOIN process p ON p.id = s.process WHERE p.run = ?1 AND kind <> 4) + (SELECT count(*) FROM crossing c JOIN process p ON p.id = c.process WHERE p.run = ?1 AND kind <> 4) + 0.0",
            )?,
            number(
                "SELECT count(*) + 0.0 FROM lookup l JOIN process p ON p.id = l.process WHERE p.run = ?1",
            )?,
        ),
    };
    let loop_start_ns = match run.ended_by == LOOP_START {
        true => Some(number(
            "SELECT max(m.at_ns) + 0.0 FROM milestone m JOIN process p ON p.id = m.process WHERE p.id = (SELECT min(id) FROM process WHERE run = ?1) AND m.thread = p.pid AND m.name = 'loop_start'",
        )?),
        false => None,
    };
    let node_version = match process.as_ref().and_then(|process| process.node) {
        Some(binary) => match Binary::find(connection, binary.0) {
            Err(failed @ Malformed::Sqlite(_)) => return Err(failed),
            Ok(Some(binary)) => binary.node_version,
            Ok(None) | Err(_) => Some(text(UNREADABLE)),
        },
        None => None,
    };
    Ok(Some(Summary {
        id,
        command,
        directory: text(&run.directory),
        started_unix_ns: run.started_unix_ns,
        duration_ns: run.ended.0.saturating_sub(run.started.0),
        loop_start_ns: loop_start_ns.filter(|ns| *ns > 0),
        ended_by: run.ended_by,
        mode: run.mode,
        exit_status: run.exit_status,
        signal: run.signal,
        owner,
        pid: process.as_ref().map(|process| process.pid),
        node_version,
        incomplete: process.and_then(|process| process.incomplete),
        thinned,
        crossings,
        lookups,
        labels: run.labels.into_iter().collect(),
    }))
}

/// What becomes of a run that uses a shared row which cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Gaps {
    /// It cannot be read, either.
    #[default]
    Refused,
    /// That one value is [`UNREADABLE`], and the loss [`ROWS_UNREADABLE`] tells of it.
    Told,
}

/// Bytes of a row, about, from its reading to its being handed over in a file, which is built in memory: 10 million took 1.07 GB.
const ROW: u64 = 100;
/// Bytes of a name besides its text, which is there up to four times: as it was read, in the file's database, in the file, and in what is handed over.
const NAME: u64 = 100;
const TEXTS: u64 = 4;

/// What is left of so many bytes when the rows of a run are read.
fn left_after(connection: &Connection, run: RunNumber, left: u64) -> Result<u64, Malformed> {
    if left == u64::MAX {
        return Ok(left);
    }
    let mut rows = left / ROW;
    let range: (Option<u32>, Option<u32>) = connection
        .prepare_cached("SELECT min(id), max(id) FROM process WHERE run = ?")?
        .query_row([run], |row| Ok((row.get(0)?, row.get(1)?)))?;
    for (table, column) in tables::tables_of_runs() {
        let (first, last) = match (column, range) {
            ("run", _) => (run, run),
            (_, (Some(first), Some(last))) => (first, last),
            _ => continue,
        };
        // No more are counted than are of interest.
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {column} BETWEEN ?1 AND ?2 LIMIT ?3)"
        );
        let limit = i64::try_from(rows).unwrap_or(i64::MAX).saturating_add(1);
        let found: i64 = connection
            .prepare_cached(&sql)?
            .query_row((first, last, limit), |row| row.get(0))?;
        rows = rows.checked_sub(found as u64).ok_or(Malformed::TooMuch)?;
    }
    Ok(rows * ROW)
}

/// One run with ids of its own, and where it lies in the database.
pub(super) fn load_one(
    connection: &Connection,
    run: RunNumber,
    gaps: Gaps,
) -> Result<Option<(Recording, First)>, Malformed> {
    load_one_within(connection, run, gaps, &mut { u64::MAX })
}

/// The same, if its texts take no more than is left, which they are taken off.
fn load_one_within(
    connection: &Connection,
    run: RunNumber,
    gaps: Gaps,
    left: &mut u64,
) -> Result<Option<(Recording, First)>, Malformed> {
    let Some((mut recording, first)) = tables::read_run(connection, run)? else {
        return Ok(None);
    };
    let mut loading = Loading {
        first,
        gaps,
        ..Loading::default()
    };
    recording.relocate(&mut loading);
    let count = loading.take_shared(connection, &mut recording, left)?;
    if count > 0 {
        recording.losses.push(Loss {
            run: RunId(0),
            kind: ROWS_UNREADABLE.into(),
            count,
        });
    }
    Ok(Some((recording, first)))
}

/// Shared rows that runs need, by table.
#[derive(Debug, Default)]
pub(super) struct Needed {
    ids: HashMap<Table, HashSet<u32>>,
    /// Those that may refer to others, which were not looked at yet.
    open: Vec<(Table, u32)>,
}

impl Places for Needed {
    fn place(&mut self, table: Table, id: u32) -> u32 {
        let is_new = self.add(table, id);
        if is_new && matches!(table, Table::Stack | Table::Frame) {
            self.open.push((table, id));
        }
        id
    }
}

impl Needed {
    /// Adds a row by itself; tells whether it is new.
    pub(super) fn add(&mut self, table: Table, id: u32) -> bool {
        self.ids.entry(table).or_default().insert(id)
    }

    pub(super) fn contains(&self, table: Table, id: u32) -> bool {
        (self.ids.get(&table)).is_some_and(|ids| ids.contains(&id))
    }

    /// Adds what a run needs. One that cannot be read needs nothing, and what cannot be read refers to nothing.
    pub(super) fn add_run(
        &mut self,
        connection: &Connection,
        run: RunNumber,
    ) -> Result<(), Malformed> {
        fn readable<T>(read: Result<Option<T>, Malformed>) -> Result<Option<T>, Malformed> {
            match read {
                Err(failed @ Malformed::Sqlite(_)) => Err(failed),
                read => Ok(read.ok().flatten()),
            }
        }
        if let Some((mut recording, _)) = readable(tables::read_run(connection, run))? {
            recording.relocate(self);
        }
        while let Some((table, id)) = self.open.pop() {
            if table == Table::Stack {
                readable(Stack::find(connection, id))?.relocate(self);
            } else {
                readable(Frame::find(connection, id))?.relocate(self);
            }
        }
        Ok(())
    }
}

fn load(connection: &Connection, runs: &[RunNumber], most: u64) -> Result<Recording, Malformed> {
    // What is read is of one moment, also while another writes.
    let transaction = connection.unchecked_transaction()?;
    let mut left = most;
    for run in runs {
        left = left_after(&transaction, *run, left)?;
    }
    match load_whole(&transaction, runs, left) {
        Err(failed @ (Malformed::Sqlite(_) | Malformed::TooMuch)) => Err(failed),
        Err(_) => load_with_gaps(&transaction, runs, left),
        whole => whole,
    }
}

/// One by one, so that it is known which of them miss something.
fn load_with_gaps(
    connection: &Connection,
    runs: &[RunNumber],
    mut left: u64,
) -> Result<Recording, Malformed> {
    let mut all = Recording::default();
    for run in runs {
        let loaded = load_one_within(connection, *run, Gaps::Told, &mut left)?;
        if let Some((mut recording, _)) = loaded {
            recording.runs[0].labels.push((RUN.into(), run.to_string()));
            all.append(recording);
        }
    }
    all.check_references()?;
    Ok(all)
}

fn load_whole(
    connection: &Connection,
    runs: &[RunNumber],
    mut left: u64,
) -> Result<Recording, Malformed> {
    let mut all = Recording::default();
    let mut loading = Loading::default();
    for run in runs {
        let Some((mut recording, first)) = tables::read_run(connection, *run)? else {
            continue;
        };
        recording.runs[0].labels.push((RUN.into(), run.to_string()));
        loading.first = First {
            run: first.run.wrapping_sub(all.runs.len() as u32),
            process: first.process.wrapping_sub(all.processes.len() as u32),
        };
        recording.relocate(&mut loading);
        all.join(recording);
    }
    loading.take_shared(connection, &mut all, &mut left)?;
    all.check_references()?;
    Ok(all)
}

/// New ids for what is read.
#[derive(Default)]
struct Loading {
    /// What to take off the ids of runs and processes.
    first: First,
    /// By table: new ids, given in the order of use, by those in the database.
    shared: HashMap<Table, HashMap<u32, u32>>,
    gaps: Gaps,
    /// Shared rows that cannot be read.
    unreadable: u64,
}

/// Id of no row: what a row refers to that takes the place of one that cannot be read.
const NO_ROW: u32 = u32::MAX;

impl Places for Loading {
    fn place(&mut self, table: Table, id: u32) -> u32 {
        match table {
            Table::Run => id.wrapping_sub(self.first.run),
            Table::Process => id.wrapping_sub(self.first.process),
            // Stacks keep their order: a caller comes before its callees. They get new ids when all are known.
            Table::Stack => {
                self.shared.entry(table).or_default().entry(id).or_insert(0);
                id
            }
            _ => {
                let of = self.shared.entry(table).or_default();
                let next = of.len() as u32;
                *of.entry(id).or_insert(next)
            }
        }
    }
}

/// Stacks in the place of those in the database.
struct Stacks<'a>(&'a BTreeMap<u32, u32>);

impl Places for Stacks<'_> {
    fn place(&mut self, table: Table, id: u32) -> u32 {
        match table {
            Table::Stack => self.0.get(&id).copied().unwrap_or(id),
            _ => id,
        }
    }
}

impl Loading {
    /// Reads the shared rows that events refer to; returns how many cannot be read. `left`: bytes that they may take.
    fn take_shared(
        mut self,
        connection: &Connection,
        recording: &mut Recording,
        left: &mut u64,
    ) -> Result<u64, Malformed> {
        let wanted = self.shared.remove(&Table::Stack).unwrap_or_default();
        let mut open: Vec<u32> = wanted.into_keys().collect();
        let mut stacks: BTreeMap<u32, Stack> = BTreeMap::new();
        let mut asked: BTreeSet<u32> = open.iter().copied().collect();
        while let Some(id) = open.pop() {
            let found = Stack::find(connection, id).and_then(|stack| match stack {
                Some(Stack {
                    caller: Some(caller),
                    ..
                }) if caller.0 >= id => Err(Malformed::Corrupt {
                    what: format!(
                        "table stack, row {id}: its caller {} is not below",
                        caller.0
                    ),
                }),
                stack => Ok(stack),
            });
            let stack = self.needed(id, found)?;
            take_off(left, ROW)?;
            if let Some(caller) = stack.caller
                && asked.insert(caller.0)
            {
                open.push(caller.0);
            }
            stacks.insert(id, stack);
        }
        let ids: BTreeMap<u32, u32> = stacks.keys().copied().zip(0..).collect();
        recording.relocate(&mut Stacks(&ids));
        for (_, mut stack) in stacks {
            stack.caller = stack.caller.map(|caller| {
                crate::recording::StackId(ids.get(&caller.0).copied().unwrap_or(caller.0))
            });
            stack.frame.relocate(&mut self);
            recording.stacks.push(stack);
        }
        // Frames refer to names: those come last.
        recording.frames = self.rows::<Frame>(connection, Table::Frame, left)?;
        for frame in &mut recording.frames {
            frame.relocate(&mut self);
        }
        recording.binaries = self.rows::<Binary>(connection, Table::Binary, left)?;
        recording.callbacks = self.rows::<Callback>(connection, Table::Callback, left)?;
        recording.names = self.rows::<Vec<u8>>(connection, Table::Name, left)?;
        Ok(self.unreadable)
    }

    fn rows<T: Shared + Gap>(
        &mut self,
        connection: &Connection,
        table: Table,
        left: &mut u64,
    ) -> Result<Vec<T>, Malformed> {
        let ids = self.shared.entry(table).or_default();
        let mut order: Vec<(u32, u32)> = ids.iter().map(|(old, new)| (*new, *old)).collect();
        order.sort_unstable();
        let rows = order.into_iter();
        let find = |(_, old)| {
            let row = self.needed(old, T::find(connection, old))?;
            take_off(left, row.bytes())?;
            Ok(row)
        };
        rows.map(find).collect()
    }

    /// A row, or what takes its place.
    fn needed<T: Shared + Gap>(
        &mut self,
        id: u32,
        found: Result<Option<T>, Malformed>,
    ) -> Result<T, Malformed> {
        match (found, self.gaps) {
            (Ok(Some(row)), _) => Ok(row),
            (Err(failed @ Malformed::Sqlite(_)), _) | (Err(failed), Gaps::Refused) => Err(failed),
            (Ok(None), Gaps::Refused) => Err(Malformed::Corrupt {
                what: format!("table {}: row {id} is not there", T::TABLE),
            }),
            (_, Gaps::Told) => {
                self.unreadable += u64::from(id != NO_ROW);
                Ok(T::gap())
            }
        }
    }
}

/// Takes bytes off what is left.
fn take_off(left: &mut u64, bytes: u64) -> Result<(), Malformed> {
    if *left != u64::MAX {
        *left = left.checked_sub(bytes).ok_or(Malformed::TooMuch)?;
    }
    Ok(())
}

/// What takes the place of a shared row that cannot be read.
trait Gap {
    fn gap() -> Self;

    /// Bytes that it takes, about.
    fn bytes(&self) -> u64 {
        ROW
    }
}

impl Gap for Vec<u8> {
    fn bytes(&self) -> u64 {
        NAME + TEXTS * self.len() as u64
    }

    fn gap() -> Vec<u8> {
        UNREADABLE.to_vec()
    }
}

impl Gap for Callback {
    fn gap() -> Callback {
        let name = String::from_utf8_lossy(UNREADABLE);
        Callback {
            binding: name.clone().into_owned(),
            function: name.into_owned(),
        }
    }
}

impl Gap for Binary {
    fn gap() -> Binary {
        Binary {
            path: UNREADABLE.to_vec(),
            node_version: Some(String::from_utf8_lossy(UNREADABLE).into_owned()),
            ..Binary::default()
        }
    }
}

impl Gap for Frame {
    fn gap() -> Frame {
        Frame::new(FrameKind::Unknown, NameId(NO_ROW), None)
    }
}

impl Gap for Stack {
    fn gap() -> Stack {
        Stack {
            caller: None,
            frame: FrameId(NO_ROW),
            truncated: true,
        }
    }
}

impl Recording {
    /// The number in its database of a run that was loaded from one.
    pub fn number(&self, run: RunId) -> Option<RunNumber> {
        self.runs.get(run.0 as usize)?.label(RUN)?.parse().ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_commit_is_found_without_a_look_at_all_commits() {
        let database = Connection::open_in_memory().unwrap();
        schema::create(&database).unwrap();
        let (sql, query) = commits("3f1c2a", Some(&[1000]));
        let plan = format!("EXPLAIN QUERY PLAN {sql}");
        let mut plan = database.prepare(&plan).unwrap();
        let steps = plan.query_map(query.parameters().as_slice(), |row| row.get(3));
        let steps: Vec<String> = steps.unwrap().map(Result::unwrap).collect();
        let of_labels = steps.iter().filter(|step| step.contains(" label "));
        let of_labels: Vec<&String> = of_labels.collect();
        assert_eq!(of_labels.len(), 2, "{steps:?}");
        let by_value = |step: &&String| step.contains("(key=? AND value");
        assert!(of_labels.iter().all(by_value), "{steps:?}");
    }
}
