//! The tables of schema 5, and views that join them for people who query by hand.
//!
//! `docs/recording.md` explains them. Hot tables hold integers only. Nothing is indexed but the ids: a recording is read
//! whole, and an index would cost more at the end of each trace than it saves in a query.

use rusqlite::Connection;

use super::{Malformed, migrate};

/// `PRAGMA application_id` of a recording: "NPRF".
pub const APPLICATION_ID: u32 = 0x4e50_5246;

/// `PRAGMA user_version`: raised with every change of a table; older files are then migrated or refused by name.
pub const VERSION: u32 = 5;

/// Names and statements. A file is read only if its statements are these: then its tables are what they seem.
pub(super) const TABLES: &[(&str, &str)] = &[
    (
        "meta",
        "CREATE TABLE meta (key TEXT NOT NULL, value TEXT NOT NULL)",
    ),
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
  signal INTEGER,
  sample_hz INTEGER                      -- CPU samples a second asked for
)",
    ),
    (
        "label",
        "CREATE TABLE label (
  run INTEGER NOT NULL REFERENCES run,
  key TEXT NOT NULL,
  value TEXT NOT NULL
)",
    ),
    (
        "binary",
        "CREATE TABLE binary (
  id INTEGER PRIMARY KEY,
  path NOT NULL,
  build_id TEXT,
  node_version TEXT,
  v8_version TEXT,
  arch TEXT NOT NULL
)",
    ),
    (
        "process",
        "CREATE TABLE process (
  id INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES run,
  pid INTEGER NOT NULL,
  parent INTEGER REFERENCES process,
  forked_ns INTEGER NOT NULL,
  exited_ns INTEGER,
  exit_status INTEGER,
  signal INTEGER,
  user_ns INTEGER,
  system_ns INTEGER,
  max_rss_bytes INTEGER,
  uss_loop_start_bytes INTEGER,
  uss_exit_bytes INTEGER,
  binary INTEGER REFERENCES binary,      -- node, if it was probed
  incomplete TEXT                        -- why the record of it is not complete
)",
    ),
    (
        "exec",
        "CREATE TABLE exec (
  process INTEGER NOT NULL REFERENCES process,
  at_ns INTEGER NOT NULL,
  path NOT NULL,
  arguments NOT NULL                     -- JSON array
)",
    ),
    (
        "callback",
        "CREATE TABLE callback (
  id INTEGER PRIMARY KEY,
  binding TEXT NOT NULL,
  function TEXT NOT NULL
)",
    ),
    (
        "name",
        "CREATE TABLE name (
  id INTEGER PRIMARY KEY,
  text NOT NULL                          -- path, C++ function or span; BLOB if it is not UTF-8
)",
    ),
    (
        "milestone",
        "CREATE TABLE milestone (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  name TEXT NOT NULL,
  at_ns INTEGER NOT NULL
)",
    ),
    (
        "span",
        "CREATE TABLE span (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  name INTEGER NOT NULL REFERENCES name,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER
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
  unfinished INTEGER NOT NULL,           -- 1: entered, never returned
  stack INTEGER REFERENCES stack
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
  timed_calls INTEGER NOT NULL,
  stack INTEGER REFERENCES stack
)",
    ),
    (
        "lookup",
        "CREATE TABLE lookup (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  path INTEGER NOT NULL REFERENCES name,
  stack INTEGER REFERENCES stack
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
  result INTEGER NOT NULL,               -- bytes, descriptor or negative errno
  stack INTEGER REFERENCES stack
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
  nested INTEGER NOT NULL,               -- 1: inside another serialization
  stack INTEGER REFERENCES stack
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
  self_ns INTEGER NOT NULL,
  stack INTEGER REFERENCES stack
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
  cached INTEGER NOT NULL,               -- 1: from a code cache or the snapshot
  stack INTEGER REFERENCES stack
)",
    ),
    (
        "package",
        "CREATE TABLE package (
  run INTEGER NOT NULL REFERENCES run,
  directory INTEGER NOT NULL REFERENCES name,
  name TEXT,                             -- by its package.json, as is the version
  version TEXT
)",
    ),
    (
        "frame",
        "CREATE TABLE frame (
  id INTEGER PRIMARY KEY,
  kind INTEGER NOT NULL REFERENCES frame_kind,
  function INTEGER NOT NULL REFERENCES name,
  file INTEGER REFERENCES name,          -- script or binary
  line INTEGER,                          -- where it stood; lines and columns count from 1
  column INTEGER,
  function_line INTEGER,                 -- where the function begins
  function_column INTEGER,
  original_file INTEGER REFERENCES name, -- by the script's source map
  original_line INTEGER,
  original_column INTEGER,
  tier INTEGER REFERENCES tier,
  top_level INTEGER NOT NULL,            -- 1: the body of a script or module
  inlined INTEGER NOT NULL,              -- 1: had been inlined into its caller
  inlining_possible INTEGER NOT NULL     -- 1: inlined callers or callees are missing
)",
    ),
    (
        "stack",
        "CREATE TABLE stack (
  id INTEGER PRIMARY KEY,
  caller INTEGER REFERENCES stack,       -- lower than the id
  frame INTEGER NOT NULL REFERENCES frame,
  truncated INTEGER NOT NULL             -- 1: outer frames are missing
)",
    ),
    (
        "sample",
        "CREATE TABLE sample (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  weight_ns INTEGER NOT NULL,            -- CPU time that it stands for
  stack INTEGER REFERENCES stack
)",
    ),
    (
        "wait",
        "CREATE TABLE wait (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  runnable_ns INTEGER NOT NULL,          -- of it: from wake-up until it ran
  reason INTEGER NOT NULL REFERENCES wait_reason,
  syscall INTEGER,                       -- x86-64 number
  stack INTEGER REFERENCES stack
)",
    ),
    (
        "import",
        "CREATE TABLE import (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  requirer INTEGER NOT NULL REFERENCES name,
  loaded INTEGER NOT NULL REFERENCES name
)",
    ),
    (
        "continuation",
        "CREATE TABLE continuation (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER,                   -- NULL: until the process ended
  requested_ns INTEGER NOT NULL,         -- when the request was made that it goes on from
  stack INTEGER REFERENCES stack         -- and where
)",
    ),
    (
        "family",
        "CREATE TABLE family (
  run INTEGER NOT NULL REFERENCES run,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT
)",
    ),
    (
        "loss",
        "CREATE TABLE loss (
  run INTEGER NOT NULL REFERENCES run,
  kind TEXT NOT NULL,
  count INTEGER NOT NULL
)",
    ),
    (
        "probe_hits",
        "CREATE TABLE probe_hits (
  run INTEGER NOT NULL REFERENCES run,
  family TEXT NOT NULL,
  hits INTEGER NOT NULL
)",
    ),
    (
        "overhead",
        "CREATE TABLE overhead (
  run INTEGER NOT NULL REFERENCES run,
  probe_hits INTEGER NOT NULL,
  ns_per_hit REAL NOT NULL,
  setup_ns INTEGER NOT NULL,
  attach_ns INTEGER NOT NULL
)",
    ),
    (
        "figure",
        "CREATE TABLE figure (
  run INTEGER NOT NULL REFERENCES run,
  name TEXT NOT NULL,                    -- as in the JSON
  value REAL NOT NULL
)",
    ),
];

/// What queries by hand need and we do not read: names of the numbers, and views.
pub(super) const EXTRAS: &str = "
CREATE TABLE crossing_kind (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO crossing_kind VALUES (0, 'slow'), (1, 'fast'), (2, 'getter'), (3, 'construct'), (4, 'to_js');
CREATE TABLE file_operation (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO file_operation VALUES (0, 'stat'), (1, 'open'), (2, 'read'), (3, 'readlink'), (4, 'close'), (5, 'access');
CREATE TABLE compilation_unit (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO compilation_unit VALUES (0, 'builtin'), (1, 'function'), (2, 'module'), (3, 'script');
CREATE TABLE frame_kind (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO frame_kind VALUES (0, 'javascript'), (1, 'builtin'), (2, 'native'), (3, 'library'), (4, 'add_on'), (5, 'kernel'), (6, 'unknown'), (7, 'webassembly');
CREATE TABLE tier (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO tier VALUES (0, 'interpreted'), (1, 'baseline'), (2, 'optimized');
CREATE TABLE wait_reason (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO wait_reason VALUES (0, 'file'), (1, 'page_fault'), (2, 'child'), (3, 'lock'), (4, 'idle'), (5, 'preempted'), (6, 'other');

CREATE VIEW processes AS
  SELECT p.id AS process, p.run, p.pid, parent.pid AS parent_pid, b.node_version,
    (SELECT arguments FROM exec WHERE exec.process = p.id ORDER BY at_ns DESC LIMIT 1) AS command,
    p.forked_ns, p.exited_ns, p.exit_status, p.signal, p.user_ns, p.system_ns, p.max_rss_bytes
  FROM process p LEFT JOIN process parent ON parent.id = p.parent LEFT JOIN binary b ON b.id = p.binary;

CREATE VIEW crossings AS
  SELECT p.run, p.pid, c.thread, c.start_ns, c.duration_ns, c.self_ns, cb.binding, cb.function, k.name AS kind,
    parent.binding AS parent_binding, parent.function AS parent_function, c.unfinished
  FROM crossing c JOIN process p ON p.id = c.process JOIN callback cb ON cb.id = c.callback
    JOIN crossing_kind k ON k.id = c.kind LEFT JOIN callback parent ON parent.id = c.parent;

CREATE VIEW crossings_by_callback AS
  SELECT p.run, cb.binding, cb.function, k.name AS kind, sum(calls) AS calls, sum(timed_calls) AS timed_calls,
    sum(total_ns) AS total_ns, sum(self_ns) AS self_ns
  FROM (
    SELECT process, callback, kind, count(*) AS calls, count(duration_ns) AS timed_calls,
      sum(duration_ns) AS total_ns, sum(self_ns) AS self_ns
    FROM crossing GROUP BY process, callback, kind
    UNION ALL
    SELECT process, callback, kind, calls, timed_calls, iif(timed_calls, total_ns, NULL), iif(timed_calls, self_ns, NULL)
    FROM crossing_sum
  ) c JOIN process p ON p.id = c.process JOIN callback cb ON cb.id = c.callback JOIN crossing_kind k ON k.id = c.kind
  GROUP BY p.run, c.callback, c.kind;

CREATE VIEW package_json_lookups AS
  SELECT p.run, p.pid, n.text AS path, count(*) AS lookups, min(l.at_ns) AS first_ns
  FROM lookup l JOIN process p ON p.id = l.process JOIN name n ON n.id = l.path
  GROUP BY p.run, l.process, l.path;

CREATE VIEW file_accesses AS
  SELECT p.run, p.pid, f.thread, f.start_ns, f.duration_ns, o.name AS operation, f.syscall, n.text AS path, f.result
  FROM file_access f JOIN process p ON p.id = f.process JOIN file_operation o ON o.id = f.operation
    JOIN name n ON n.id = f.path;

CREATE VIEW file_accesses_by_path AS
  SELECT p.run, o.name AS operation, n.text AS path, count(*) AS calls, sum(f.result < 0) AS failed,
    sum(iif(f.operation = 2 AND f.result > 0, f.result, 0)) AS bytes_read, sum(f.duration_ns) AS total_ns
  FROM file_access f JOIN process p ON p.id = f.process JOIN file_operation o ON o.id = f.operation
    JOIN name n ON n.id = f.path
  GROUP BY p.run, f.operation, f.path;

CREATE VIEW serializations_by_function AS
  SELECT p.run, n.text AS function, cb.binding, cb.function AS callback, sum(calls) AS calls, sum(bytes) AS bytes,
    sum(total_ns) AS total_ns, sum(self_ns) AS self_ns
  FROM (
    SELECT process, function, callback, count(*) AS calls, sum(bytes) AS bytes,
      sum(iif(nested, 0, duration_ns)) AS total_ns, sum(self_ns) AS self_ns
    FROM serialization GROUP BY process, function, callback
    UNION ALL
    SELECT process, function, callback, calls, bytes, total_ns, self_ns FROM serialization_sum
  ) s JOIN process p ON p.id = s.process JOIN name n ON n.id = s.function LEFT JOIN callback cb ON cb.id = s.callback
  GROUP BY p.run, s.function, s.callback;

CREATE VIEW compilations AS
  SELECT p.run, p.pid, c.thread, c.start_ns, c.duration_ns, c.self_ns, n.text AS path, u.name AS unit, c.cached
  FROM compilation c JOIN process p ON p.id = c.process JOIN name n ON n.id = c.path
    JOIN compilation_unit u ON u.id = c.unit;

CREATE VIEW frames AS
  SELECT f.id AS frame, k.name AS kind, fn.text AS function, file.text AS file, f.line, f.column, f.function_line,
    original.text AS original_file, f.original_line, f.original_column, t.name AS tier, f.top_level, f.inlined,
    f.inlining_possible
  FROM frame f JOIN frame_kind k ON k.id = f.kind JOIN name fn ON fn.id = f.function
    LEFT JOIN name file ON file.id = f.file LEFT JOIN name original ON original.id = f.original_file
    LEFT JOIN tier t ON t.id = f.tier;

CREATE VIEW stack_frames AS
  WITH RECURSIVE walk (stack, depth, at) AS (
    SELECT id, 0, id FROM stack
    UNION ALL
    SELECT walk.stack, walk.depth + 1, s.caller FROM walk JOIN stack s ON s.id = walk.at WHERE s.caller IS NOT NULL
  )
  SELECT walk.stack, walk.depth, frames.* FROM walk JOIN stack s ON s.id = walk.at JOIN frames ON frames.frame = s.frame;

CREATE VIEW samples AS
  SELECT p.run, p.pid, s.thread, s.thread = p.pid AS main_thread, s.at_ns, s.weight_ns, s.stack
  FROM sample s JOIN process p ON p.id = s.process;

CREATE VIEW waits AS
  SELECT p.run, p.pid, w.thread, w.start_ns, w.duration_ns, w.runnable_ns, r.name AS reason, w.syscall, w.stack
  FROM wait w JOIN process p ON p.id = w.process JOIN wait_reason r ON r.id = w.reason;

CREATE VIEW imports AS
  SELECT p.run, p.pid, i.thread, i.at_ns, a.text AS requirer, b.text AS loaded
  FROM import i JOIN process p ON p.id = i.process JOIN name a ON a.id = i.requirer JOIN name b ON b.id = i.loaded;

CREATE VIEW continuations AS
  SELECT p.run, p.pid, c.thread, c.start_ns, c.duration_ns, c.requested_ns, c.stack
  FROM continuation c JOIN process p ON p.id = c.process;

CREATE VIEW packages AS
  SELECT p.run, p.name, p.version, n.text AS directory
  FROM package p JOIN name n ON n.id = p.directory;

CREATE VIEW milestones AS
  SELECT p.run, p.pid, m.thread, m.thread = p.pid AS main_thread, m.name, m.at_ns
  FROM milestone m JOIN process p ON p.id = m.process;
";

/// Checks that the tables are those of a schema.
pub(super) fn check(database: &Connection, version: u32) -> Result<(), Malformed> {
    let mut query =
        database.prepare("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?")?;
    for (name, expected) in migrate::tables(version) {
        let mut rows = query.query([name])?;
        let found: Option<String> = match rows.next()? {
            Some(row) => row.get(0)?,
            None => None,
        };
        let problem = match found.as_deref() {
            Some(found) if found == expected => continue,
            Some(_) => format!("is another than schema {version} has"),
            None => "is missing".to_owned(),
        };
        return Err(Malformed::Corrupt {
            what: format!("table {name} {problem}"),
        });
    }
    Ok(())
}
