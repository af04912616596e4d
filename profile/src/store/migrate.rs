//! Older recordings, brought to the tables of today.
//!
//! A file of an older schema is checked as strictly as one of today's: its statements must be those of its schema, and its
//! checksum must be right. Then the copy in memory is changed by SQL. The file itself stays as it is.

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::Malformed;
use super::digest::Digest;
use super::schema::TABLES;

/// From one schema to the next.
struct Step {
    /// The schema that it leads to.
    to: u32,
    /// Tables that it creates, as they are today.
    added: &'static [&'static str],
    /// Tables that it changes, with their statements before it.
    changed: &'static [(&'static str, &'static str)],
    /// How it changes them.
    sql: &'static str,
}

/// In order; one for each schema after the first.
const STEPS: &[Step] = &[
Step {
    to: 2,
    added: &[
        "package", "frame", "stack", "sample", "wait", "import",
    ],
    changed: &[
        (
            "run",
            "CREATE TABLE run (
  id INTEGER PRIMARY KEY,
  command NOT NULL,                      -- JSON array of program and arguments
  directory NOT NULL,
  started_unix_ns INTEGER NOT NULL,      -- wall clock
  started_monotonic_ns INTEGER NOT NULL, -- CLOCK_MONOTONIC; all other instants of the run count from here
  ended_ns INTEGER NOT NULL,
  ended_by TEXT NOT NULL,
  mode TEXT NOT NULL,
  exit_status INTEGER,
  signal INTEGER
)",
        ),
        (
            "crossing",
            "CREATE TABLE crossing (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER,
  self_ns INTEGER,                       -- duration less nested crossings
  callback INTEGER NOT NULL REFERENCES callback,
  kind INTEGER NOT NULL REFERENCES crossing_kind,
  parent INTEGER REFERENCES callback,    -- crossing around it, directly
  unfinished INTEGER NOT NULL            -- 1: entered, never returned
)",
        ),
        (
            "crossing_sum",
            "CREATE TABLE crossing_sum (
  process INTEGER NOT NULL REFERENCES process,
  callback INTEGER NOT NULL REFERENCES callback,
  kind INTEGER NOT NULL REFERENCES crossing_kind,
  phase INTEGER NOT NULL,                -- milestones passed
  calls INTEGER NOT NULL,
  total_ns INTEGER NOT NULL,
  self_ns INTEGER NOT NULL,
  timed_calls INTEGER NOT NULL
)",
        ),
        (
            "lookup",
            "CREATE TABLE lookup (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  path INTEGER NOT NULL REFERENCES name
)",
        ),
        (
            "file_access",
            "CREATE TABLE file_access (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  operation INTEGER NOT NULL REFERENCES file_operation,
  syscall INTEGER NOT NULL,              -- x86-64 number
  path INTEGER NOT NULL REFERENCES name,
  result INTEGER NOT NULL                -- bytes, descriptor or negative errno
)",
        ),
        (
            "serialization",
            "CREATE TABLE serialization (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER,
  self_ns INTEGER,                       -- duration less nested serializations
  function INTEGER NOT NULL REFERENCES name,
  bytes INTEGER,
  callback INTEGER REFERENCES callback,  -- crossing around it, directly
  nested INTEGER NOT NULL                -- 1: inside another serialization
)",
        ),
        (
            "serialization_sum",
            "CREATE TABLE serialization_sum (
  process INTEGER NOT NULL REFERENCES process,
  function INTEGER NOT NULL REFERENCES name,
  callback INTEGER REFERENCES callback,
  phase INTEGER NOT NULL,                -- milestones passed
  calls INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  total_ns INTEGER NOT NULL,             -- of calls not nested in another
  self_ns INTEGER NOT NULL
)",
        ),
        (
            "compilation",
            "CREATE TABLE compilation (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER,
  self_ns INTEGER,                       -- duration less nested compilations
  path INTEGER NOT NULL REFERENCES name,
  unit INTEGER NOT NULL REFERENCES compilation_unit,
  cached INTEGER NOT NULL                -- 1: from a code cache or the snapshot
)",
        ),
    ],
    sql: "
ALTER TABLE run ADD COLUMN sample_hz INTEGER;
ALTER TABLE crossing ADD COLUMN stack INTEGER;
ALTER TABLE crossing_sum ADD COLUMN stack INTEGER;
ALTER TABLE lookup ADD COLUMN stack INTEGER;
ALTER TABLE file_access ADD COLUMN stack INTEGER;
ALTER TABLE serialization ADD COLUMN stack INTEGER;
ALTER TABLE serialization_sum ADD COLUMN stack INTEGER;
ALTER TABLE compilation ADD COLUMN stack INTEGER;
",
},
Step {
    to: 3,
    added: &["figure"],
    changed: &[],
    sql: "",
},
Step {
    to: 4,
    added: &["continuation"],
    changed: &[],
    sql: "",
},
// Frames of WebAssembly. The kinds are for people who query by hand: not all files have that table.
Step {
    to: 5,
    added: &[],
    changed: &[],
    sql: "
CREATE TABLE IF NOT EXISTS frame_kind (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT OR IGNORE INTO frame_kind VALUES (7, 'webassembly');
",
},
];

/// The oldest schema that is read.
pub(super) const OLDEST: u32 = 1;

/// The tables of a schema: names and statements, in the order of its checksum.
pub(super) fn tables(version: u32) -> Vec<(&'static str, &'static str)> {
    let mut tables = TABLES.to_vec();
    for step in STEPS.iter().rev().filter(|step| step.to > version) {
        tables.retain(|(name, _)| !step.added.contains(name));
        for (name, before) in step.changed {
            if let Some(table) = tables.iter_mut().find(|(table, _)| table == name) {
                table.1 = before;
            }
        }
    }
    tables
}

/// The checksum of a file of an older schema.
pub(super) fn checksum(database: &Connection, version: u32) -> rusqlite::Result<String> {
    let mut digest = Digest::new();
    for (table, _) in tables(version) {
        // The checksum itself lies there.
        if table == "meta" {
            continue;
        }
        digest.table(table);
        let mut query = database.prepare(&format!("SELECT * FROM {table} ORDER BY rowid"))?;
        let columns = query.column_count();
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                let value: ValueRef<'_> = row.get_ref(column)?;
                digest.value(value);
            }
        }
    }
    Ok(digest.to_string())
}

/// Brings a database in memory from an older schema to that of today.
pub(super) fn migrate(database: &Connection, version: u32) -> Result<(), Malformed> {
    Ok(steps(database, version)?)
}

/// Takes the steps from an older schema to that of today.
pub(super) fn steps(database: &Connection, version: u32) -> rusqlite::Result<()> {
    for step in STEPS.iter().filter(|step| step.to > version) {
        database.execute_batch(step.sql)?;
        for (_, statement) in TABLES.iter().filter(|(name, _)| step.added.contains(name)) {
            database.execute_batch(statement)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::schema::VERSION;
    use super::*;

    #[test]
    fn steps_lead_from_the_oldest_schema_to_that_of_today() {
        let to: Vec<u32> = STEPS.iter().map(|step| step.to).collect();
        let all: Vec<u32> = (OLDEST + 1..=VERSION).collect();
        assert_eq!(to, all);
        assert_eq!(tables(VERSION), TABLES);
    }

    #[test]
    fn every_table_that_a_step_names_is_there() {
        for step in STEPS {
            let changed = step.changed.iter().map(|(name, _)| name);
            for name in step.added.iter().chain(changed) {
                assert!(TABLES.iter().any(|(table, _)| table == name), "{name}");
            }
        }
    }
}
