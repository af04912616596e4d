//! Which field lies in which column, and the writing and reading of whole tables.

use rusqlite::Connection;

use super::Malformed;
use super::cells::{BadCell, Cell, InstantCell, RowReader, RowWriter};
use super::digest::Digest;
use crate::recording::{
    Binary, Callback, Compilation, Continuation, Crossing, CrossingSum, Exec, FamilyState,
    FileAccess, Frame, FrameKind, Import, KeptFigure, Lookup, Loss, Milestone, NameId, Nanoseconds,
    OriginalPosition, Overhead, Package, ProbeHits, Process, ProcessId, Recording, Run, RunId,
    Sample, Serialization, SerializationSum, Span, Stack, Tier, Wait,
};

/// A row of a table.
trait Stored: Sized {
    const TABLE: &'static str;
    const COLUMNS: &'static [&'static str];
    /// The first column is `id`, the row's index.
    const INDEXED: bool;
    /// Id of the first row.
    fn first(origins: &Origins) -> usize {
        match Self::TABLE {
            "run" => origins.first_run as usize,
            "process" => origins.first_process as usize,
            _ => 0,
        }
    }
    fn write(&self, origins: &Origins, row: &mut RowWriter<'_, '_>) -> rusqlite::Result<()>;
    fn read(origins: &Origins, row: &mut RowReader<'_, '_>) -> Result<Self, BadCell>;
}

/// Start of each run and of the run of each process: what stored instants count from.
#[derive(Default)]
struct Origins {
    /// Id of the first run: 0 in a recording.
    first_run: u32,
    runs: Vec<Nanoseconds>,
    /// Id of the first process.
    first_process: u32,
    processes: Vec<Nanoseconds>,
}

/// The one at an id, where the first has another id than 0.
fn at(list: &[Nanoseconds], first: u32, id: u32) -> Option<Nanoseconds> {
    list.get(id.checked_sub(first)? as usize).copied()
}

impl Origins {
    fn learn_runs(&mut self, runs: &[Run]) {
        self.runs = runs.iter().map(|run| run.started).collect();
    }

    fn learn_processes(&mut self, processes: &[Process]) {
        let origin = |process: &Process| process.run.origin(self).unwrap_or_default();
        self.processes = processes.iter().map(origin).collect();
    }
}

/// Something that tells the origin of instants in its row.
trait HasOrigin {
    fn origin(&self, origins: &Origins) -> Option<Nanoseconds>;
}

impl HasOrigin for Nanoseconds {
    fn origin(&self, _: &Origins) -> Option<Nanoseconds> {
        Some(*self)
    }
}

impl HasOrigin for RunId {
    fn origin(&self, origins: &Origins) -> Option<Nanoseconds> {
        at(&origins.runs, origins.first_run, self.0)
    }
}

impl HasOrigin for ProcessId {
    fn origin(&self, origins: &Origins) -> Option<Nanoseconds> {
        at(&origins.processes, origins.first_process, self.0)
    }
}

fn needed_origin(of: &impl HasOrigin, origins: &Origins) -> Result<Nanoseconds, BadCell> {
    of.origin(origins).ok_or(BadCell {
        needed: "an instant of a process and run that are there",
        found: Some("neither".to_owned()),
    })
}

macro_rules! write_cell {
    ($value:expr, $origins:ident, $row:ident) => {
        Cell::write($value, $row)
    };
    ($value:expr, $origins:ident, $row:ident, $of:expr) => {
        $value.write_since($of.origin($origins).unwrap_or_default(), $row)
    };
}

macro_rules! read_cell {
    ($origins:ident, $row:ident) => {
        Cell::read($row)
    };
    ($origins:ident, $row:ident, $of:expr) => {
        InstantCell::read_since(needed_origin($of, $origins)?, $row)
    };
}

/// Fields and their columns, in order; `since x` for an instant that counts from the start of x's run, `without x` for a
/// list that has a table of its own.
macro_rules! stored {
    ($type:ident in $table:literal $(indexed by $id:literal)? $(without $elsewhere:ident)? {
        $($field:ident: $column:literal $(since $of:ident)?,)*
    }) => {
        impl Stored for $type {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [&'static str] = &[$($id,)? $($column),*];
            const INDEXED: bool = [$($id,)? ""].len() > 1;
            #[allow(unused_variables)]
            fn write(&self, origins: &Origins, row: &mut RowWriter<'_, '_>) -> rusqlite::Result<()> {
                $(write_cell!(&self.$field, origins, row $(, self.$of)?)?;)*
                Ok(())
            }
            #[allow(unused_variables)]
            fn read(origins: &Origins, row: &mut RowReader<'_, '_>) -> Result<Self, BadCell> {
                $(let $field = read_cell!(origins, row $(, &$of)?)?;)*
                Ok($type { $($field,)* $($elsewhere: Vec::new(),)? })
            }
        }
    };
}

stored!(Run in "run" indexed by "id" without labels {
    command: "command",
    directory: "directory",
    started_unix_ns: "started_unix_ns",
    started: "started_monotonic_ns",
    ended: "ended_ns" since started,
    ended_by: "ended_by",
    mode: "mode",
    exit_status: "exit_status",
    signal: "signal",
    sample_hz: "sample_hz",
});
stored!(Binary in "binary" indexed by "id" {
    path: "path",
    build_id: "build_id",
    node_version: "node_version",
    v8_version: "v8_version",
    arch: "arch",
});
stored!(Process in "process" indexed by "id" without execs {
    run: "run",
    pid: "pid",
    parent: "parent",
    forked: "forked_ns" since run,
    exited: "exited_ns" since run,
    exit_status: "exit_status",
    signal: "signal",
    user: "user_ns",
    system: "system_ns",
    max_rss_bytes: "max_rss_bytes",
    uss_loop_start_bytes: "uss_loop_start_bytes",
    uss_exit_bytes: "uss_exit_bytes",
    node: "binary",
    incomplete: "incomplete",
});
stored!(Callback in "callback" indexed by "id" {
    binding: "binding",
    function: "function",
});
stored!(Milestone in "milestone" {
    process: "process",
    thread: "thread",
    name: "name",
    at: "at_ns" since process,
});
stored!(Span in "span" {
    process: "process",
    thread: "thread",
    name: "name",
    start: "start_ns" since process,
    duration: "duration_ns",
});
stored!(Crossing in "crossing" {
    process: "process",
    thread: "thread",
    start: "start_ns" since process,
    duration: "duration_ns",
    self_time: "self_ns",
    callback: "callback",
    kind: "kind",
    parent: "parent",
    unfinished: "unfinished",
    stack: "stack",
});
stored!(CrossingSum in "crossing_sum" {
    process: "process",
    callback: "callback",
    kind: "kind",
    phase: "phase",
    calls: "calls",
    total: "total_ns",
    self_time: "self_ns",
    timed: "timed_calls",
    stack: "stack",
});
stored!(Lookup in "lookup" {
    process: "process",
    thread: "thread",
    at: "at_ns" since process,
    path: "path",
    stack: "stack",
});
stored!(FileAccess in "file_access" {
    process: "process",
    thread: "thread",
    start: "start_ns" since process,
    duration: "duration_ns",
    operation: "operation",
    syscall: "syscall",
    path: "path",
    result: "result",
    stack: "stack",
});
stored!(Serialization in "serialization" {
    process: "process",
    thread: "thread",
    start: "start_ns" since process,
    duration: "duration_ns",
    self_time: "self_ns",
    function: "function",
    bytes: "bytes",
    callback: "callback",
    nested: "nested",
    stack: "stack",
});
stored!(SerializationSum in "serialization_sum" {
    process: "process",
    function: "function",
    callback: "callback",
    phase: "phase",
    calls: "calls",
    bytes: "bytes",
    total: "total_ns",
    self_time: "self_ns",
    stack: "stack",
});
stored!(Compilation in "compilation" {
    process: "process",
    thread: "thread",
    start: "start_ns" since process,
    duration: "duration_ns",
    self_time: "self_ns",
    path: "path",
    unit: "unit",
    cached: "cached",
    stack: "stack",
});
stored!(Package in "package" {
    run: "run",
    directory: "directory",
    name: "name",
    version: "version",
});
stored!(Stack in "stack" indexed by "id" {
    caller: "caller",
    frame: "frame",
    truncated: "truncated",
});
stored!(Sample in "sample" {
    process: "process",
    thread: "thread",
    at: "at_ns" since process,
    weight: "weight_ns",
    stack: "stack",
});
stored!(Wait in "wait" {
    process: "process",
    thread: "thread",
    start: "start_ns" since process,
    duration: "duration_ns",
    runnable: "runnable_ns",
    reason: "reason",
    syscall: "syscall",
    stack: "stack",
});
stored!(Import in "import" {
    process: "process",
    thread: "thread",
    at: "at_ns" since process,
    requirer: "requirer",
    loaded: "loaded",
});
stored!(Continuation in "continuation" {
    process: "process",
    thread: "thread",
    start: "start_ns" since process,
    duration: "duration_ns",
    requested: "requested_ns" since process,
    stack: "stack",
});
stored!(FamilyState in "family" {
    run: "run",
    name: "name",
    state: "state",
    reason: "reason",
});
stored!(Loss in "loss" {
    run: "run",
    kind: "kind",
    count: "count",
});
stored!(ProbeHits in "probe_hits" {
    run: "run",
    family: "family",
    hits: "hits",
});
stored!(Overhead in "overhead" {
    run: "run",
    probe_hits: "probe_hits",
    ns_per_hit: "ns_per_hit",
    setup_ns: "setup_ns",
    attach_ns: "attach_ns",
});
stored!(KeptFigure in "figure" {
    run: "run",
    name: "name",
    value: "value",
});

/// A label of a run.
struct LabelRow {
    run: RunId,
    key: String,
    value: String,
}
stored!(LabelRow in "label" {
    run: "run",
    key: "key",
    value: "value",
});

/// An exec of a process.
struct ExecRow {
    process: ProcessId,
    at: Nanoseconds,
    path: Vec<u8>,
    arguments: Vec<Vec<u8>>,
}
stored!(ExecRow in "exec" {
    process: "process",
    at: "at_ns" since process,
    path: "path",
    arguments: "arguments",
});

/// A path or name.
struct NameRow {
    text: Vec<u8>,
}
stored!(NameRow in "name" indexed by "id" {
    text: "text",
});

/// A frame, with its original position in columns of its own.
struct FrameRow {
    kind: FrameKind,
    function: NameId,
    file: Option<NameId>,
    line: Option<u32>,
    column: Option<u32>,
    function_line: Option<u32>,
    function_column: Option<u32>,
    original_file: Option<NameId>,
    original_line: Option<u32>,
    original_column: Option<u32>,
    tier: Option<Tier>,
    top_level: bool,
    inlined: bool,
    inlining_possible: bool,
}
stored!(FrameRow in "frame" indexed by "id" {
    kind: "kind",
    function: "function",
    file: "file",
    line: "line",
    column: "column",
    function_line: "function_line",
    function_column: "function_column",
    original_file: "original_file",
    original_line: "original_line",
    original_column: "original_column",
    tier: "tier",
    top_level: "top_level",
    inlined: "inlined",
    inlining_possible: "inlining_possible",
});

impl From<&Frame> for FrameRow {
    fn from(frame: &Frame) -> FrameRow {
        FrameRow {
            kind: frame.kind,
            function: frame.function,
            file: frame.file,
            line: frame.line,
            column: frame.column,
            function_line: frame.function_line,
            function_column: frame.function_column,
            original_file: frame.original.map(|original| original.file),
            original_line: frame.original.map(|original| original.line),
            original_column: frame.original.map(|original| original.column),
            tier: frame.tier,
            top_level: frame.top_level,
            inlined: frame.inlined,
            inlining_possible: frame.inlining_possible,
        }
    }
}

impl FrameRow {
    /// The frame, unless its original position is there in part only.
    fn into_frame(self) -> Option<Frame> {
        let original = match (self.original_file, self.original_line, self.original_column) {
            (Some(file), Some(line), Some(column)) => Some(OriginalPosition { file, line, column }),
            (None, None, None) => None,
            _ => return None,
        };
        Some(Frame {
            kind: self.kind,
            function: self.function,
            file: self.file,
            line: self.line,
            column: self.column,
            function_line: self.function_line,
            function_column: self.function_column,
            original,
            tier: self.tier,
            top_level: self.top_level,
            inlined: self.inlined,
            inlining_possible: self.inlining_possible,
        })
    }
}

/// The ids of the first rows of a recording that is written; its rows refer to each other by these.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct First {
    pub(super) run: u32,
    pub(super) process: u32,
}

pub(super) fn write(
    recording: &Recording,
    database: &Connection,
    digest: &mut Digest,
) -> rusqlite::Result<()> {
    write_from(First::default(), recording, database, digest)
}

/// Writes rows whose ids begin elsewhere than at 0. Rows that runs share are written where the recording has some.
pub(super) fn write_from(
    first: First,
    recording: &Recording,
    database: &Connection,
    digest: &mut Digest,
) -> rusqlite::Result<()> {
    let mut origins = Origins {
        first_run: first.run,
        first_process: first.process,
        ..Origins::default()
    };
    origins.learn_runs(&recording.runs);
    origins.learn_processes(&recording.processes);
    macro_rules! write_tables {
        ($($type:ty: $rows:expr,)*) => {$(
            write_table::<$type>($rows, &origins, database, digest)?;
        )*};
    }
    let runs = recording.runs.iter().enumerate();
    let labels = runs.flat_map(|(run, of_run)| {
        of_run.labels.iter().map(move |(key, value)| LabelRow {
            run: RunId(first.run + run as u32),
            key: key.clone(),
            value: value.clone(),
        })
    });
    let processes = recording.processes.iter().enumerate();
    let execs = processes.flat_map(|(process, of_process)| {
        of_process.execs.iter().map(move |exec| ExecRow {
            process: ProcessId(first.process + process as u32),
            at: exec.at,
            path: exec.path.clone(),
            arguments: exec.arguments.clone(),
        })
    });
    let names = recording
        .names
        .iter()
        .map(|name| NameRow { text: name.clone() });
    write_tables![
        Run: recording.runs.iter(),
        LabelRow: labels,
        Binary: recording.binaries.iter(),
        Process: recording.processes.iter(),
        ExecRow: execs,
        Callback: recording.callbacks.iter(),
        NameRow: names,
        Milestone: recording.milestones.iter(),
        Span: recording.spans.iter(),
        Crossing: recording.crossings.iter(),
        CrossingSum: recording.crossing_sums.iter(),
        Lookup: recording.lookups.iter(),
        FileAccess: recording.files.iter(),
        Serialization: recording.serializations.iter(),
        SerializationSum: recording.serialization_sums.iter(),
        Compilation: recording.compilations.iter(),
        Package: recording.packages.iter(),
        FrameRow: recording.frames.iter().map(FrameRow::from),
        Stack: recording.stacks.iter(),
        Sample: recording.samples.iter(),
        Wait: recording.waits.iter(),
        Import: recording.imports.iter(),
        Continuation: recording.continuations.iter(),
        FamilyState: recording.families.iter(),
        Loss: recording.losses.iter(),
        ProbeHits: recording.probe_hits.iter(),
        Overhead: recording.overheads.iter(),
        KeptFigure: recording.figures.iter(),
    ];
    Ok(())
}

pub(super) fn read(database: &Connection, digest: &mut Digest) -> Result<Recording, Malformed> {
    let mut origins = Origins::default();
    macro_rules! rows {
        () => {
            read_table(&origins, database, digest)?
        };
    }
    let mut runs: Vec<Run> = rows!();
    origins.learn_runs(&runs);
    let labels: Vec<LabelRow> = rows!();
    for label in labels {
        let run = runs.get_mut(label.run.0 as usize);
        let run = run.ok_or_else(|| nowhere("label", "run", label.run.0))?;
        run.labels.push((label.key, label.value));
    }
    let binaries = rows!();
    let mut processes: Vec<Process> = rows!();
    origins.learn_processes(&processes);
    let execs: Vec<ExecRow> = rows!();
    for exec in execs {
        let process = processes.get_mut(exec.process.0 as usize);
        let process = process.ok_or_else(|| nowhere("exec", "process", exec.process.0))?;
        process.execs.push(Exec {
            at: exec.at,
            path: exec.path,
            arguments: exec.arguments,
        });
    }
    let callbacks = rows!();
    let names: Vec<NameRow> = rows!();
    Ok(Recording {
        runs,
        binaries,
        processes,
        callbacks,
        names: names.into_iter().map(|name| name.text).collect(),
        // Read in this order, the order of writing: the checksum depends on it.
        milestones: rows!(),
        spans: rows!(),
        crossings: rows!(),
        crossing_sums: rows!(),
        lookups: rows!(),
        files: rows!(),
        serializations: rows!(),
        serialization_sums: rows!(),
        compilations: rows!(),
        packages: rows!(),
        frames: {
            let rows: Vec<FrameRow> = rows!();
            let frames = rows.into_iter().map(FrameRow::into_frame);
            frames.collect::<Option<_>>().ok_or(Malformed::Corrupt {
                what: "table frame: an original position is there in part".to_owned(),
            })?
        },
        stacks: rows!(),
        samples: rows!(),
        waits: rows!(),
        imports: rows!(),
        continuations: rows!(),
        families: rows!(),
        losses: rows!(),
        probe_hits: rows!(),
        overheads: rows!(),
        figures: rows!(),
    })
}

fn nowhere(table: &str, column: &str, id: u32) -> Malformed {
    Malformed::Corrupt {
        what: format!("table {table}: {column} {id} is not there"),
    }
}

/// Rows per statement. A million crossings: 0.35 s with one, 0.24 s with ten, 0.23 s from thirty on.
const ROWS_AT_ONCE: usize = 32;

fn write_table<T: Stored>(
    rows: impl Iterator<Item = impl std::borrow::Borrow<T>>,
    origins: &Origins,
    database: &Connection,
    digest: &mut Digest,
) -> rusqlite::Result<()> {
    digest.table(T::TABLE);
    let mut rows = rows.enumerate().peekable();
    let mut statement = None;
    let mut chunk = Vec::with_capacity(ROWS_AT_ONCE);
    while rows.peek().is_some() {
        chunk.clear();
        chunk.extend(rows.by_ref().take(ROWS_AT_ONCE));
        if chunk.len() < ROWS_AT_ONCE {
            statement = None;
        }
        let statement: &mut rusqlite::CachedStatement<'_> = match &mut statement {
            Some(statement) => statement,
            none => none.insert(database.prepare_cached(&insert::<T>(chunk.len()))?),
        };
        let mut row = RowWriter {
            statement,
            digest,
            bound: 0,
        };
        for (id, item) in &chunk {
            if T::INDEXED {
                row.integer(Some((*id + T::first(origins)) as i64))?;
            }
            item.borrow().write(origins, &mut row)?;
        }
        row.statement.raw_execute()?;
    }
    Ok(())
}

fn insert<T: Stored>(rows: usize) -> String {
    let row = format!("({})", vec!["?"; T::COLUMNS.len()].join(","));
    let columns = T::COLUMNS.join(",");
    let values = vec![row; rows].join(",");
    format!("INSERT INTO {} ({columns}) VALUES {values}", T::TABLE)
}

fn read_table<T: Stored>(
    origins: &Origins,
    database: &Connection,
    digest: &mut Digest,
) -> Result<Vec<T>, Malformed> {
    digest.table(T::TABLE);
    let columns = T::COLUMNS.join(",");
    let query = format!("SELECT {columns} FROM {} ORDER BY rowid", T::TABLE);
    let mut statement = database.prepare(&query)?;
    read_rows(origins, &mut statement, [], digest)
}

fn read_rows<T: Stored>(
    origins: &Origins,
    statement: &mut rusqlite::Statement<'_>,
    parameters: impl rusqlite::Params,
    digest: &mut Digest,
) -> Result<Vec<T>, Malformed> {
    let mut cursor = statement.query(parameters)?;
    let mut rows = Vec::new();
    while let Some(row) = cursor.next()? {
        let mut reader = RowReader {
            row,
            digest,
            taken: 0,
        };
        let item = read_row(origins, rows.len(), &mut reader).map_err(|bad| {
            let column = T::COLUMNS.get(reader.taken.saturating_sub(1));
            let found = bad.found.map(|found| format!(", found {found}"));
            Malformed::Corrupt {
                what: format!(
                    "table {}, row {}, column {}: needs {}{}",
                    T::TABLE,
                    rows.len() + 1,
                    column.unwrap_or(&"?"),
                    bad.needed,
                    found.unwrap_or_default(),
                ),
            }
        })?;
        rows.push(item);
    }
    Ok(rows)
}

fn read_row<T: Stored>(
    origins: &Origins,
    index: usize,
    row: &mut RowReader<'_, '_>,
) -> Result<T, BadCell> {
    if T::INDEXED {
        let id = row.integer()?;
        let needed = index + T::first(origins);
        if id != Some(needed as i64) {
            return Err(BadCell {
                needed: match T::first(origins) {
                    0 => "ids from 0 without gaps",
                    _ => "ids without gaps",
                },
                found: Some(format!("{id:?} in place of {needed}")),
            });
        }
    }
    T::read(origins, row)
}

/// Reads one run of a database that holds many, with its rows' ids as they are there; rows that runs share are not read.
/// `None`: there is no such run.
pub(super) fn read_run(
    database: &Connection,
    run: u32,
) -> Result<Option<(Recording, First)>, Malformed> {
    let digest = &mut Digest::new();
    let mut origins = Origins {
        first_run: run,
        ..Origins::default()
    };
    let first_process: Option<u32> = database
        .prepare_cached("SELECT min(id) FROM process WHERE run = ?")?
        .query_row([run], |row| row.get(0))?;
    let first = First {
        run,
        process: first_process.unwrap_or_default(),
    };
    origins.first_process = first.process;
    macro_rules! of_run {
        ($column:literal) => {{ read_where(&origins, database, concat!($column, " = ?1"), [run], digest)? }};
    }
    let mut runs: Vec<Run> = of_run!("id");
    if runs.is_empty() {
        return Ok(None);
    }
    origins.learn_runs(&runs);
    let labels: Vec<LabelRow> = of_run!("run");
    runs[0].labels = labels
        .into_iter()
        .map(|label| (label.key, label.value))
        .collect();
    let mut processes: Vec<Process> = of_run!("run");
    origins.learn_processes(&processes);
    let last = first.process + (processes.len() as u32).saturating_sub(1);
    macro_rules! of_processes {
        () => {{
            let range = [first.process, last];
            read_where(
                &origins,
                database,
                "process BETWEEN ?1 AND ?2",
                range,
                digest,
            )?
        }};
    }
    if processes.is_empty() {
        let recording = Recording {
            runs,
            families: of_run!("run"),
            losses: of_run!("run"),
            probe_hits: of_run!("run"),
            overheads: of_run!("run"),
            figures: of_run!("run"),
            packages: of_run!("run"),
            ..Recording::default()
        };
        return Ok(Some((recording, first)));
    }
    let execs: Vec<ExecRow> = of_processes!();
    for exec in execs {
        let index = exec.process.0.checked_sub(first.process);
        let process = index.and_then(|index| processes.get_mut(index as usize));
        let process = process.ok_or_else(|| nowhere("exec", "process", exec.process.0))?;
        process.execs.push(Exec {
            at: exec.at,
            path: exec.path,
            arguments: exec.arguments,
        });
    }
    let recording = Recording {
        runs,
        processes,
        milestones: of_processes!(),
        spans: of_processes!(),
        crossings: of_processes!(),
        crossing_sums: of_processes!(),
        lookups: of_processes!(),
        files: of_processes!(),
        serializations: of_processes!(),
        serialization_sums: of_processes!(),
        compilations: of_processes!(),
        packages: of_run!("run"),
        samples: of_processes!(),
        waits: of_processes!(),
        imports: of_processes!(),
        continuations: of_processes!(),
        families: of_run!("run"),
        losses: of_run!("run"),
        probe_hits: of_run!("run"),
        overheads: of_run!("run"),
        figures: of_run!("run"),
        ..Recording::default()
    };
    Ok(Some((recording, first)))
}

/// A run with its labels, and its first process.
pub(super) fn read_head(
    database: &Connection,
    run: u32,
) -> Result<Option<(Run, Option<Process>)>, Malformed> {
    let digest = &mut Digest::new();
    let mut origins = Origins {
        first_run: run,
        ..Origins::default()
    };
    let runs: Vec<Run> = read_where(&origins, database, "id = ?1", [run], digest)?;
    let Some(mut run_row) = runs.into_iter().next() else {
        return Ok(None);
    };
    origins.learn_runs(std::slice::from_ref(&run_row));
    let labels: Vec<LabelRow> = read_where(&origins, database, "run = ?1", [run], digest)?;
    run_row.labels = labels
        .into_iter()
        .map(|label| (label.key, label.value))
        .collect();
    let first: Option<u32> = database
        .prepare_cached("SELECT min(id) FROM process WHERE run = ?")?
        .query_row([run], |row| row.get(0))?;
    let Some(first) = first else {
        return Ok(Some((run_row, None)));
    };
    origins.first_process = first;
    let process: Vec<Process> = read_where(&origins, database, "id = ?1", [first], digest)?;
    Ok(Some((run_row, process.into_iter().next())))
}

/// Rows for which a condition holds, by an index, in the order of writing.
fn read_where<T: Stored>(
    origins: &Origins,
    database: &Connection,
    condition: &str,
    parameters: impl rusqlite::Params,
    digest: &mut Digest,
) -> Result<Vec<T>, Malformed> {
    let columns = T::COLUMNS.join(",");
    // `+rowid`: or else the whole table may be read in its order, instead of the few rows by their index.
    let query = format!(
        "SELECT {columns} FROM {} WHERE {condition} ORDER BY +rowid",
        T::TABLE
    );
    let mut statement = database.prepare_cached(&query)?;
    read_rows(origins, &mut statement, parameters, digest)
}

/// Tables with rows of one run, and the column that says so: `run`, or `process`.
pub(super) fn tables_of_runs() -> impl Iterator<Item = (&'static str, &'static str)> {
    macro_rules! scopes {
        ($($type:ty)*) => {[$((<$type>::TABLE, <$type>::COLUMNS)),*]};
    }
    let all = scopes![
        LabelRow ExecRow Milestone Span Crossing CrossingSum Lookup FileAccess Serialization SerializationSum Compilation
        Package Sample Wait Import Continuation FamilyState Loss ProbeHits Overhead KeptFigure Process
    ];
    all.into_iter().map(|(table, columns)| {
        let of_run = columns.contains(&"run");
        (table, if of_run { "run" } else { "process" })
    })
}

/// Rows that runs share, one by one, by their ids.
pub(super) mod shared {
    use super::*;
    use rusqlite::OptionalExtension as _;

    /// A row that runs share.
    pub(in super::super) trait Shared: Sized {
        const TABLE: &'static str;
        fn insert(&self, database: &Connection, id: u32) -> rusqlite::Result<()>;
        fn find(database: &Connection, id: u32) -> Result<Option<Self>, Malformed>;
    }

    fn insert_row<T: Stored>(row: &T, database: &Connection, id: u32) -> rusqlite::Result<()> {
        let mut statement = database.prepare_cached(&insert::<T>(1))?;
        let mut writer = RowWriter {
            statement: &mut statement,
            digest: &mut Digest::new(),
            bound: 0,
        };
        writer.integer(Some(id.into()))?;
        row.write(&Origins::default(), &mut writer)?;
        statement.raw_execute()?;
        Ok(())
    }

    fn find_row<T: Stored>(database: &Connection, id: u32) -> Result<Option<T>, Malformed> {
        let columns = T::COLUMNS.join(",");
        let query = format!("SELECT {columns} FROM {} WHERE id = ?1", T::TABLE);
        let mut statement = database.prepare_cached(&query)?;
        let found = statement.query_row([id], |row| {
            let mut reader = RowReader {
                row,
                digest: &mut Digest::new(),
                taken: 1,
            };
            Ok(T::read(&Origins::default(), &mut reader).map_err(|bad| bad.needed))
        });
        match found.optional()? {
            None => Ok(None),
            Some(Ok(row)) => Ok(Some(row)),
            Some(Err(needed)) => Err(Malformed::Corrupt {
                what: format!("table {}, row {id}: needs {needed}", T::TABLE),
            }),
        }
    }

    macro_rules! as_it_is {
        ($($type:ty)*) => {$(
            impl Shared for $type {
                const TABLE: &'static str = <$type as Stored>::TABLE;
                fn insert(&self, database: &Connection, id: u32) -> rusqlite::Result<()> {
                    insert_row(self, database, id)
                }
                fn find(database: &Connection, id: u32) -> Result<Option<Self>, Malformed> {
                    find_row(database, id)
                }
            }
        )*};
    }
    as_it_is!(Binary Callback Stack);

    impl Shared for Vec<u8> {
        const TABLE: &'static str = NameRow::TABLE;
        fn insert(&self, database: &Connection, id: u32) -> rusqlite::Result<()> {
            insert_row(&NameRow { text: self.clone() }, database, id)
        }
        fn find(database: &Connection, id: u32) -> Result<Option<Self>, Malformed> {
            Ok(find_row::<NameRow>(database, id)?.map(|row| row.text))
        }
    }

    impl Shared for Frame {
        const TABLE: &'static str = FrameRow::TABLE;
        fn insert(&self, database: &Connection, id: u32) -> rusqlite::Result<()> {
            insert_row(&FrameRow::from(self), database, id)
        }
        fn find(database: &Connection, id: u32) -> Result<Option<Self>, Malformed> {
            let row: Option<FrameRow> = find_row(database, id)?;
            row.map(|row| {
                row.into_frame().ok_or(Malformed::Corrupt {
                    what: format!("table frame, row {id}: an original position is there in part"),
                })
            })
            .transpose()
        }
    }
}
