//! What a database of many runs has besides the tables of a recording.

use rusqlite::Connection;

use super::super::{migrate, schema};

/// `PRAGMA application_id` of a database of runs: "NPRS". Not a recording's, so that an old nodeprof does not take it for a damaged one.
pub const APPLICATION_ID: u32 = 0x4e50_5253;

/// Tables of the database alone.
const TABLES: &str = "
CREATE TABLE kept (
  run INTEGER PRIMARY KEY REFERENCES run,
  owner INTEGER,                         -- user id of the process; NULL if not known
  kept_unix_ns INTEGER NOT NULL,
  thinned_unix_ns INTEGER                -- since when only its counts are left
);
CREATE TABLE shared (
  kind INTEGER NOT NULL,                 -- 0 name, 1 callback, 2 binary, 3 frame, 4 stack
  hash_high INTEGER NOT NULL,            -- of the row: one that is there already is found by it
  hash_low INTEGER NOT NULL,
  id INTEGER NOT NULL,
  last_whole INTEGER NOT NULL,           -- about the last run with all its events that needs the row; -1: none
  last_thinned INTEGER NOT NULL,         -- about the last thinned run
  PRIMARY KEY (kind, hash_high, hash_low)
);
";

/// By what runs are found, and their rows.
fn indexes() -> String {
    let mut text = String::from(
        "CREATE INDEX IF NOT EXISTS run_by_time ON run (started_unix_ns);
CREATE INDEX IF NOT EXISTS run_by_label ON label (key, value, run);
CREATE INDEX IF NOT EXISTS kept_whole ON kept (thinned_unix_ns, run);
",
    );
    for (table, column) in super::super::tables::tables_of_runs() {
        text.push_str(&format!(
            "CREATE INDEX IF NOT EXISTS {table}_by_{column} ON {table} ({column});\n"
        ));
    }
    text
}

/// Makes all tables of an empty database.
pub(super) fn create(database: &Connection) -> rusqlite::Result<()> {
    for (_, statement) in schema::TABLES {
        database.execute_batch(statement)?;
    }
    database.execute_batch(schema::EXTRAS)?;
    database.execute_batch(TABLES)?;
    database.execute_batch(&indexes())?;
    let version = schema::VERSION;
    database.execute_batch(&format!(
        "PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={version};"
    ))
}

/// Our views with their statements.
fn views() -> impl Iterator<Item = (&'static str, &'static str)> {
    schema::EXTRAS
        .split_inclusive(";\n")
        .filter_map(|statement| {
            let statement = statement.trim_start();
            let (name, _) = statement.strip_prefix("CREATE VIEW ")?.split_once(' ')?;
            Some((name, statement))
        })
}

/// Brings a database of an older schema to that of today, in the caller's transaction.
pub(super) fn migrate(database: &Connection, version: u32) -> rusqlite::Result<()> {
    // Those of its schema: some may be missing, others show less than today's. Views that somebody else made stay.
    for (name, _) in views() {
        database.execute_batch(&format!("DROP VIEW IF EXISTS {name}"))?;
    }
    migrate::steps(database, version)?;
    for (_, statement) in views() {
        database.execute_batch(statement)?;
    }
    database.execute_batch(&indexes())?;
    database.execute_batch(&format!("PRAGMA user_version={}", schema::VERSION))
}

/// The oldest schema that there was a database of.
pub(super) const OLDEST: u32 = 2;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::super::{Database, Filter, Reader};
    use super::*;
    use crate::Recording;

    #[test]
    fn a_database_of_an_older_schema_is_brought_up_to_date_with_its_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        let database = Connection::open(&path).unwrap();
        for (_, statement) in migrate::tables(OLDEST) {
            database.execute_batch(statement).unwrap();
        }
        database.execute_batch(schema::EXTRAS).unwrap();
        database.execute_batch(TABLES).unwrap();
        database
            .execute_batch(&format!(
                "DROP VIEW continuations;
                 DROP VIEW samples;
                 DELETE FROM frame_kind WHERE id = 7;
                 CREATE VIEW samples AS SELECT at_ns FROM sample;
                 CREATE VIEW mine AS SELECT run FROM processes;
                 PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={OLDEST};
                 INSERT INTO run VALUES (7, '[\"node\"]', '/', 5, 6, 7, 'exit', 'count', 0, NULL, NULL);
                 INSERT INTO label VALUES (7, 'commit', 'abc');
                 INSERT INTO process (id, run, pid, forked_ns) VALUES (3, 7, 12, 0);
                 INSERT INTO kept VALUES (7, 1000, 5, NULL);"
            ))
            .unwrap();
        drop(database);
        let mut database = Database::open(&path).unwrap();
        let next = database.keep(Recording::synthetic(20), None).unwrap();
        assert_eq!(next, 8);
        let reader = Reader::open(&path).unwrap();
        let found = reader.find(&Filter::default()).unwrap();
        let ids: Vec<u32> = found.iter().map(|run| run.id).collect();
        assert_eq!(ids.len(), 2);
        let old = reader.load(&[7]).unwrap();
        assert_eq!(old.runs[0].label("commit"), Some("abc"));
        assert_eq!(old.processes[0].pid, 12);
        database.check().unwrap();
        drop((reader, database));
        // What is documented for queries by hand is all there, and what somebody added too.
        let database = Connection::open(&path).unwrap();
        assert_eq!(
            views().count(),
            schema::EXTRAS.matches("CREATE VIEW").count()
        );
        for view in views().map(|(name, _)| name).chain(["mine"]) {
            let query = format!("SELECT run FROM {view}");
            let query = if view.starts_with("frames") || view.starts_with("stack_frames") {
                query.replace("run", "function")
            } else {
                query
            };
            database.prepare(&query).unwrap();
        }
        let kinds = "SELECT count(*) FROM frame_kind";
        let kinds: u32 = database.query_row(kinds, [], |row| row.get(0)).unwrap();
        assert_eq!(kinds, 8);
    }
}
