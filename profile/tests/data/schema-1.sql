PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE binary (
  id INTEGER PRIMARY KEY,
  path NOT NULL,
  build_id TEXT,
  node_version TEXT,
  v8_version TEXT,
  arch TEXT NOT NULL
);
INSERT INTO "binary" VALUES(0,'/opt/node/bin/node','abcdef','v24.1.0','13.6.233.8-node.20','x86_64');
CREATE TABLE callback (
  id INTEGER PRIMARY KEY,
  binding TEXT NOT NULL,
  function TEXT NOT NULL
);
INSERT INTO "callback" VALUES(0,'fs','InternalModuleStat');
INSERT INTO "callback" VALUES(1,'fs','Read');
INSERT INTO "callback" VALUES(2,'spawn_sync','Spawn');
INSERT INTO "callback" VALUES(3,'(to js)','emit');
CREATE TABLE compilation (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER,
  self_ns INTEGER,                       -- duration less nested compilations
  path INTEGER NOT NULL REFERENCES name,
  unit INTEGER NOT NULL REFERENCES compilation_unit,
  cached INTEGER NOT NULL                -- 1: from a code cache or the snapshot
);
INSERT INTO "compilation" VALUES(1,101,25000,2000,1500,2,1,0);
INSERT INTO "compilation" VALUES(1,101,25500,500,500,4,0,1);
CREATE TABLE compilation_unit (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO "compilation_unit" VALUES(0,'builtin');
INSERT INTO "compilation_unit" VALUES(1,'function');
INSERT INTO "compilation_unit" VALUES(2,'module');
INSERT INTO "compilation_unit" VALUES(3,'script');
CREATE TABLE crossing (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER,
  self_ns INTEGER,                       -- duration less nested crossings
  callback INTEGER NOT NULL REFERENCES callback,
  kind INTEGER NOT NULL REFERENCES crossing_kind,
  parent INTEGER REFERENCES callback,    -- crossing around it, directly
  unfinished INTEGER NOT NULL            -- 1: entered, never returned
);
INSERT INTO "crossing" VALUES(1,101,14100,500,500,0,0,1,0);
INSERT INTO "crossing" VALUES(1,101,14000,1000,500,1,0,NULL,0);
INSERT INTO "crossing" VALUES(1,101,30000,700,700,0,0,NULL,0);
INSERT INTO "crossing" VALUES(1,101,31000,NULL,NULL,0,1,NULL,0);
INSERT INTO "crossing" VALUES(1,101,32000,NULL,NULL,0,1,NULL,0);
INSERT INTO "crossing" VALUES(1,101,33000,80,80,1,2,NULL,0);
INSERT INTO "crossing" VALUES(1,101,34000,90,90,1,3,NULL,0);
INSERT INTO "crossing" VALUES(1,101,65000,4000,4000,3,4,NULL,0);
INSERT INTO "crossing" VALUES(1,101,66000,NULL,NULL,2,0,NULL,1);
CREATE TABLE crossing_kind (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO "crossing_kind" VALUES(0,'slow');
INSERT INTO "crossing_kind" VALUES(1,'fast');
INSERT INTO "crossing_kind" VALUES(2,'getter');
INSERT INTO "crossing_kind" VALUES(3,'construct');
INSERT INTO "crossing_kind" VALUES(4,'to_js');
CREATE TABLE crossing_sum (
  process INTEGER NOT NULL REFERENCES process,
  callback INTEGER NOT NULL REFERENCES callback,
  kind INTEGER NOT NULL REFERENCES crossing_kind,
  phase INTEGER NOT NULL,                -- milestones passed
  calls INTEGER NOT NULL,
  total_ns INTEGER NOT NULL,
  self_ns INTEGER NOT NULL,
  timed_calls INTEGER NOT NULL
);
INSERT INTO "crossing_sum" VALUES(1,0,0,4,1000,600000,500000,1000);
CREATE TABLE exec (
  process INTEGER NOT NULL REFERENCES process,
  at_ns INTEGER NOT NULL,
  path NOT NULL,
  arguments NOT NULL                     -- JSON array
);
INSERT INTO "exec" VALUES(0,0,'/bin/sh',X'020000007368020000002D63090000006E6F646520FF2E6A73');
INSERT INTO "exec" VALUES(1,2000,'/opt/node/bin/node',X'040000006E6F646504000000FF2E6A73');
CREATE TABLE family (
  run INTEGER NOT NULL REFERENCES run,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT
);
INSERT INTO "family" VALUES(0,'crossings','on',NULL);
INSERT INTO "family" VALUES(0,'compile','partial','a symbol is missing');
CREATE TABLE file_access (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER NOT NULL,
  operation INTEGER NOT NULL REFERENCES file_operation,
  syscall INTEGER NOT NULL,              -- x86-64 number
  path INTEGER NOT NULL REFERENCES name,
  result INTEGER NOT NULL                -- bytes, descriptor or negative errno
);
INSERT INTO "file_access" VALUES(1,101,15100,10,0,332,0,0);
INSERT INTO "file_access" VALUES(1,101,15200,20,1,332,0,17);
INSERT INTO "file_access" VALUES(1,101,15300,30,2,332,0,400);
INSERT INTO "file_access" VALUES(1,101,15400,40,2,332,0,0);
INSERT INTO "file_access" VALUES(1,101,15500,5,4,332,0,0);
INSERT INTO "file_access" VALUES(1,101,35100,25,1,332,0,17);
INSERT INTO "file_access" VALUES(1,101,36100,15,1,332,1,-2);
INSERT INTO "file_access" VALUES(1,101,40000,50,0,332,2,0);
INSERT INTO "file_access" VALUES(1,101,40100,60,3,332,2,-22);
INSERT INTO "file_access" VALUES(1,101,40200,70,5,332,2,0);
CREATE TABLE file_operation (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO "file_operation" VALUES(0,'stat');
INSERT INTO "file_operation" VALUES(1,'open');
INSERT INTO "file_operation" VALUES(2,'read');
INSERT INTO "file_operation" VALUES(3,'readlink');
INSERT INTO "file_operation" VALUES(4,'close');
INSERT INTO "file_operation" VALUES(5,'access');
CREATE TABLE label (
  run INTEGER NOT NULL REFERENCES run,
  key TEXT NOT NULL,
  value TEXT NOT NULL
);
INSERT INTO "label" VALUES(0,'side','base');
CREATE TABLE lookup (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  path INTEGER NOT NULL REFERENCES name
);
INSERT INTO "lookup" VALUES(1,101,15000,0);
INSERT INTO "lookup" VALUES(1,101,35000,0);
INSERT INTO "lookup" VALUES(1,101,36000,1);
CREATE TABLE loss (
  run INTEGER NOT NULL REFERENCES run,
  kind TEXT NOT NULL,
  count INTEGER NOT NULL
);
INSERT INTO "loss" VALUES(0,'paths_truncated',2);
CREATE TABLE meta (key TEXT NOT NULL, value TEXT NOT NULL);
INSERT INTO "meta" VALUES('format','nodeprof recording; see docs/recording.md of nodeprof');
INSERT INTO "meta" VALUES('nodeprof','0.1.0');
INSERT INTO "meta" VALUES('checksum','94ead4a477519e77');
CREATE TABLE milestone (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  name TEXT NOT NULL,
  at_ns INTEGER NOT NULL
);
INSERT INTO "milestone" VALUES(1,101,'environment',12000);
INSERT INTO "milestone" VALUES(1,101,'node_start',4000);
INSERT INTO "milestone" VALUES(1,101,'v8_start',6000);
INSERT INTO "milestone" VALUES(1,101,'bootstrap_complete',22000);
INSERT INTO "milestone" VALUES(1,105,'environment',30000);
INSERT INTO "milestone" VALUES(1,101,'loop_start',62000);
INSERT INTO "milestone" VALUES(1,101,'loop_exit',90000);
CREATE TABLE name (
  id INTEGER PRIMARY KEY,
  text NOT NULL                          -- path, C++ function or span; BLOB if it is not UTF-8
);
INSERT INTO "name" VALUES(0,'/srv/app/package.json');
INSERT INTO "name" VALUES(1,X'2F7372762FFF6F64642F7061636B6167652E6A736F6E');
INSERT INTO "name" VALUES(2,'/srv/app/index.js');
INSERT INTO "name" VALUES(3,'String::NewFromUtf8');
INSERT INTO "name" VALUES(4,'snapshot');
INSERT INTO "name" VALUES(5,'JSON::Stringify');
CREATE TABLE overhead (
  run INTEGER NOT NULL REFERENCES run,
  probe_hits INTEGER NOT NULL,
  ns_per_hit REAL NOT NULL,
  setup_ns INTEGER NOT NULL,
  attach_ns INTEGER NOT NULL
);
INSERT INTO "overhead" VALUES(0,40,12.5,30000000,11000000);
CREATE TABLE probe_hits (
  run INTEGER NOT NULL REFERENCES run,
  family TEXT NOT NULL,
  hits INTEGER NOT NULL
);
INSERT INTO "probe_hits" VALUES(0,'crossings',17);
CREATE TABLE process (
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
);
INSERT INTO "process" VALUES(0,0,100,NULL,-500,100000,3,NULL,100,50,1048576,NULL,NULL,NULL,NULL);
INSERT INTO "process" VALUES(1,0,101,0,1000,92000,3,NULL,40000,9000,41943040,20971520,22020096,0,NULL);
INSERT INTO "process" VALUES(2,0,102,1,70000,80000,NULL,9,NULL,NULL,NULL,NULL,NULL,NULL,'killed while it was being attached to');
CREATE TABLE run (
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
);
INSERT INTO "run" VALUES(0,X'020000007368020000002D63090000006E6F646520FF2E6A73','/srv/app',1700000000000000000,1000000000,100000,'exit','full',3,NULL);
CREATE TABLE serialization (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER,
  self_ns INTEGER,                       -- duration less nested serializations
  function INTEGER NOT NULL REFERENCES name,
  bytes INTEGER,
  callback INTEGER REFERENCES callback,  -- crossing around it, directly
  nested INTEGER NOT NULL                -- 1: inside another serialization
);
INSERT INTO "serialization" VALUES(1,101,14200,100,60,5,64,1,0);
INSERT INTO "serialization" VALUES(1,101,14220,40,40,3,32,1,1);
INSERT INTO "serialization" VALUES(1,101,50000,10,10,3,NULL,NULL,0);
CREATE TABLE serialization_sum (
  process INTEGER NOT NULL REFERENCES process,
  function INTEGER NOT NULL REFERENCES name,
  callback INTEGER REFERENCES callback,
  phase INTEGER NOT NULL,                -- milestones passed
  calls INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  total_ns INTEGER NOT NULL,             -- of calls not nested in another
  self_ns INTEGER NOT NULL
);
INSERT INTO "serialization_sum" VALUES(1,3,0,4,20,2000,900,900);
CREATE TABLE span (
  process INTEGER NOT NULL REFERENCES process,
  thread INTEGER NOT NULL,
  name INTEGER NOT NULL REFERENCES name,
  start_ns INTEGER NOT NULL,
  duration_ns INTEGER
);
INSERT INTO "span" VALUES(1,101,4,7000,3000);
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
CREATE VIEW milestones AS
  SELECT p.run, p.pid, m.thread, m.thread = p.pid AS main_thread, m.name, m.at_ns
  FROM milestone m JOIN process p ON p.id = m.process;
COMMIT;
PRAGMA application_id=1313886790;
PRAGMA user_version=1;
