//! Files: whole or not there, and each kind of bad file by name.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{saved, small, without_stacks};
use nodeprof_profile::recording::*;
use nodeprof_profile::{Malformed, Profile, Recording, SaveOptions, StoreError};
use rusqlite::Connection;

const KEEP: SaveOptions = SaveOptions { overwrite: false };
const REPLACE: SaveOptions = SaveOptions { overwrite: true };

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    /// Every name in it, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn other() -> Recording {
    Recording::synthetic(100)
}

#[test]
fn every_table_survives_the_file() {
    let folder = Folder::new();
    let path = folder.path("a b\n\u{e9}.nodeprof");
    small().save(&path, KEEP).unwrap();
    assert_eq!(Recording::load(&path).unwrap(), small());
    assert_eq!(folder.names().len(), 1, "nothing but the recording is left");
    let large = Recording::synthetic(50_000);
    large.save(folder.path("large"), KEEP).unwrap();
    assert_eq!(Recording::load(folder.path("large")).unwrap(), large);
}

#[test]
fn a_path_that_is_not_utf8_is_a_path() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let path = folder
        .0
        .path()
        .join(std::ffi::OsStr::from_bytes(b"\xff.nodeprof"));
    small().save(&path, KEEP).unwrap();
    assert_eq!(Recording::load(&path).unwrap(), small());
}

#[test]
fn a_new_file_has_the_permissions_of_any_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    let (path, plain) = (folder.path("recording"), folder.path("plain"));
    small().save(&path, KEEP).unwrap();
    fs::write(&plain, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&plain));
}

#[test]
fn an_existing_file_is_replaced_only_if_asked() {
    let folder = Folder::new();
    let path = folder.path("recording");
    fs::write(&path, "precious").unwrap();
    let error = small().save(&path, KEEP).unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    small().save(&path, REPLACE).unwrap();
    assert_eq!(Recording::load(&path).unwrap(), small());
    assert_eq!(folder.names(), ["recording"]);
}

#[test]
fn of_several_at_once_one_gets_the_name_and_keeps_it() {
    let folder = Folder::new();
    let path = &folder.path("recording");
    let recordings: Vec<Recording> = (1..9).map(|size| Recording::synthetic(size * 50)).collect();
    let saved: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> = recordings
            .iter()
            .map(|recording| scope.spawn(|| recording.save(path, KEEP).is_ok()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let winners: Vec<usize> = (0..8).filter(|&index| saved[index]).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(Recording::load(path).unwrap(), recordings[winners[0]]);
    assert_eq!(folder.names(), ["recording"]);
}

#[test]
fn a_link_is_followed_when_replacing_and_kept_otherwise() {
    let folder = Folder::new();
    let (link, target) = (folder.path("link"), folder.path("target"));
    std::os::unix::fs::symlink("target", &link).unwrap();
    let error = small().save(&link, KEEP).unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    let error = small().save(&link, REPLACE).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::NotAFile {
                found: "a link to nothing",
                ..
            }
        ),
        "{error}"
    );
    fs::write(&target, "").unwrap();
    small().save(&link, REPLACE).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(Recording::load(&target).unwrap(), small());
}

#[test]
fn folders_and_devices_are_not_replaced() {
    let folder = Folder::new();
    for path in [folder.0.path(), Path::new("/dev/null")] {
        for options in [KEEP, REPLACE] {
            let error = small().save(path, options).unwrap_err();
            assert!(matches!(error, StoreError::NotAFile { .. }), "{error}");
        }
        let error = Recording::load(path).unwrap_err();
        assert!(matches!(error, StoreError::NotAFile { .. }), "{error}");
    }
    assert!(Path::new("/dev/null").exists());
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = Folder::new();
    fs::write(folder.path("file"), "").unwrap();
    for path in [
        folder.path("missing/recording"),
        folder.path("file/recording"),
        PathBuf::new(),
    ] {
        let error = small().save(&path, KEEP).unwrap_err();
        assert!(matches!(error, StoreError::NoFolder { .. }), "{error}");
    }
}

#[test]
fn a_recording_with_loose_ends_is_not_saved() {
    let folder = Folder::new();
    let mut recording = small();
    recording.crossings[3].callback = CallbackId(4);
    let error = recording.save(folder.path("recording"), KEEP).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("crossing 3: callback 4 is not there (4 are)"),
        "{error}"
    );
    let mut recording = small();
    recording.processes[0].parent = Some(ProcessId(2));
    let error = recording.save(folder.path("recording"), KEEP).unwrap_err();
    assert!(error.to_string().contains("its own ancestor"), "{error}");
    let mut recording = small();
    recording.overheads[0].ns_per_hit = f64::NAN;
    assert!(recording.save(folder.path("recording"), KEEP).is_err());
    assert!(folder.names().is_empty());
}

fn malformed(bytes: &[u8]) -> Malformed {
    Recording::from_bytes(bytes).expect_err("the file is bad")
}

#[test]
fn a_file_of_another_kind_is_told_by_what_it_begins_with() {
    let error = malformed(b"");
    assert!(error.to_string().contains("an empty file"), "{error}");
    let error = malformed(b"\x7fELF\x02\x01\x01");
    assert!(
        error.to_string().contains(r#"begins with "\x7fELF"#),
        "{error}"
    );
    let folder = Folder::new();
    let error = Recording::load(folder.path("missing")).unwrap_err();
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
}

#[test]
fn a_database_of_another_program_is_foreign() {
    let folder = Folder::new();
    let path = folder.path("other.db");
    let database = Connection::open(&path).unwrap();
    database
        .execute_batch("CREATE TABLE run (id INTEGER)")
        .unwrap();
    drop(database);
    let error = Recording::load(&path).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Malformed {
                source: Malformed::Foreign { found: 0 },
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("other.db"), "{error}");
}

/// A saved recording, changed by SQL.
fn edited(sql: &str) -> Vec<u8> {
    let folder = Folder::new();
    let path = folder.path("recording");
    small().save(&path, KEEP).unwrap();
    let database = Connection::open(&path).unwrap();
    database
        .execute_batch(&format!("PRAGMA foreign_keys=OFF; {sql}"))
        .unwrap();
    drop(database);
    fs::read(path).unwrap()
}

#[test]
fn a_newer_schema_is_refused_with_its_number_and_what_to_do() {
    let error = malformed(&edited("PRAGMA user_version=6"));
    assert!(matches!(error, Malformed::Newer { found: 6 }));
    assert_eq!(
        error.to_string(),
        "the recording has schema 6, this nodeprof reads up to 5; update nodeprof"
    );
    let error = malformed(&edited("PRAGMA user_version=0"));
    assert!(
        matches!(error, Malformed::UnknownSchema { found: 0 }),
        "{error}"
    );
}

/// A file that nodeprof wrote before there were stacks, of what [`small`] was then.
fn of_schema_1() -> Connection {
    let database = Connection::open_in_memory().unwrap();
    database
        .execute_batch(include_str!("data/schema-1.sql"))
        .unwrap();
    database
}

#[test]
fn a_recording_of_schema_1_is_read_without_stacks() {
    let mut database = of_schema_1();
    let bytes = database.serialize("main").unwrap().to_vec();
    let mut expected = without_stacks(small());
    // Names that only the stacks need came later.
    expected.names.truncate(6);
    assert_eq!(Recording::from_bytes(&bytes).unwrap(), expected);
    // And it is written with the schema of today.
    assert_eq!(Recording::from_bytes(&saved(&expected)).unwrap(), expected);
}

#[test]
fn a_recording_of_schema_1_is_checked_as_one_of_today() {
    let changed = |sql: &str| {
        let mut database = of_schema_1();
        database.execute_batch(sql).unwrap();
        malformed(&database.serialize("main").unwrap())
    };
    let error = changed("UPDATE crossing SET duration_ns = 1 WHERE duration_ns = 700");
    assert!(matches!(error, Malformed::Changed), "{error}");
    let error = changed("ALTER TABLE crossing ADD COLUMN stack INTEGER REFERENCES stack");
    assert!(
        (error.to_string()).contains("table crossing is another than schema 1 has"),
        "{error}"
    );
    let error = changed("DROP TABLE lookup");
    assert!(
        error.to_string().contains("table lookup is missing"),
        "{error}"
    );
    // A view where the migration makes a table.
    let error = changed("CREATE VIEW sample AS SELECT 1");
    assert!(matches!(error, Malformed::Corrupt { .. }), "{error}");
    let error = changed(
        "UPDATE crossing SET callback = 9 WHERE rowid = 2; DELETE FROM meta WHERE key='checksum'",
    );
    assert!(matches!(error, Malformed::Inconsistent(_)), "{error}");
}

#[test]
fn a_truncated_file_is_told_with_both_sizes() {
    let bytes = saved(&small());
    let error = malformed(&bytes[..bytes.len() - 1]);
    let Malformed::Truncated { found, needed } = error else {
        panic!("{error}")
    };
    assert_eq!(
        (found, needed),
        (bytes.len() as u64 - 1, bytes.len() as u64)
    );
    let error = malformed(&bytes[..50]);
    assert!(
        matches!(error, Malformed::Truncated { found: 50, .. }),
        "{error}"
    );
}

#[test]
fn a_changed_value_is_noticed() {
    let error = malformed(&edited(
        "UPDATE crossing SET duration_ns = 1 WHERE duration_ns = 700",
    ));
    assert!(matches!(error, Malformed::Changed), "{error}");
    let error = malformed(&edited("DELETE FROM lookup WHERE rowid = 3"));
    assert!(matches!(error, Malformed::Changed), "{error}");
}

/// Edits a recording and accepts the edit, as the message of [`Malformed::Changed`] says.
fn accepted(sql: &str) -> Result<Recording, Malformed> {
    Recording::from_bytes(&edited(&format!(
        "{sql}; DELETE FROM meta WHERE key='checksum'"
    )))
}

#[test]
fn a_change_is_accepted_without_the_checksum() {
    let recording =
        accepted("UPDATE crossing SET duration_ns = 1 WHERE duration_ns = 700").unwrap();
    assert_eq!(recording.crossings[2].duration, Some(Nanoseconds(1)));
}

#[test]
fn ids_that_point_nowhere_are_named() {
    for (sql, part) in [
        (
            "UPDATE crossing SET callback = 4 WHERE rowid = 2",
            "crossing 1: callback 4 is not there (4 are)",
        ),
        (
            "UPDATE crossing SET process = 9",
            "an instant of a process and run",
        ),
        (
            "UPDATE crossing SET callback = -1",
            "column callback: needs an id, 0 to 2^32 - 1, found -1",
        ),
        (
            "UPDATE crossing SET callback = 4294967296",
            "found 4294967296",
        ),
        ("UPDATE lookup SET path = 99", "lookup 0: name 99"),
        (
            "UPDATE process SET run = 1",
            "an instant of a process and run",
        ),
        ("UPDATE process SET binary = 1", "process 0: binary 1"),
        (
            "UPDATE process SET parent = 2 WHERE id = 0",
            "its own ancestor",
        ),
        ("UPDATE family SET run = 7", "family 0: run 7"),
        ("UPDATE sample SET stack = 4", "sample 0: stack 4"),
        (
            "UPDATE wait SET process = 9",
            "an instant of a process and run",
        ),
        ("UPDATE import SET loaded = 99", "import 0: name 99"),
        ("UPDATE package SET run = 1", "package 0: run 1"),
        ("UPDATE package SET directory = 99", "package 0: name 99"),
        ("UPDATE stack SET frame = 4", "stack 0: frame 4"),
        (
            "UPDATE stack SET caller = 2 WHERE id = 1",
            "stack 1: its caller 2 does not come before it",
        ),
        (
            "UPDATE stack SET caller = 1 WHERE id = 1",
            "stack 1: its caller 1 does not come before it",
        ),
        (
            "UPDATE frame SET original_file = 99 WHERE id = 1",
            "frame 1: name 99",
        ),
        ("UPDATE frame SET function = 99", "frame 0: name 99"),
        (
            "UPDATE crossing SET stack = 4 WHERE rowid = 2",
            "crossing 1: stack 4 is not there (4 are)",
        ),
        ("UPDATE label SET run = 7", "table label: run 7"),
        (
            "UPDATE exec SET process = 7",
            "an instant of a process and run",
        ),
        (
            "UPDATE callback SET id = 9 WHERE id = 3",
            "ids from 0 without gaps",
        ),
    ] {
        let error = accepted(sql).expect_err(sql).to_string();
        assert!(error.contains(part), "{sql}: {error}");
    }
}

#[test]
fn values_that_we_do_not_write_are_named() {
    for (sql, part) in [
        (
            "UPDATE crossing SET kind = 5",
            "needs an id of crossing_kind, found 5",
        ),
        (
            "UPDATE crossing SET start_ns = 'soon'",
            "table crossing, row 1, column start_ns: needs an integer",
        ),
        (
            "UPDATE crossing SET unfinished = 2",
            "needs 0 or 1, found 2",
        ),
        (
            "UPDATE crossing_sum SET phase = 256",
            "needs 0 to 255, found 256",
        ),
        ("UPDATE file_access SET syscall = 65536", "needs 0 to 65535"),
        ("UPDATE run SET command = 'node'", "needs a list"),
        ("UPDATE run SET command = x'05000000aa'", "needs a list"),
        ("UPDATE run SET command = x'aa'", "needs a list"),
        (
            "UPDATE run SET exit_status = 4294967296",
            "needs a 32-bit integer",
        ),
        (
            "UPDATE callback SET binding = x'ff'",
            "column binding: needs text",
        ),
        (
            "UPDATE callback SET binding = CAST(x'ff' AS TEXT)",
            "needs text in UTF-8",
        ),
        (
            "UPDATE frame SET kind = 8",
            "needs an id of frame_kind, found 8",
        ),
        ("UPDATE frame SET tier = 3", "needs an id of tier, found 3"),
        (
            "UPDATE wait SET reason = 7",
            "needs an id of wait_reason, found 7",
        ),
        (
            "UPDATE frame SET original_line = NULL WHERE id = 1",
            "an original position is there in part",
        ),
        ("UPDATE overhead SET ns_per_hit = 9e999", "a cost of inf ns"),
        ("UPDATE overhead SET ns_per_hit = -1.5", "a cost of -1.5 ns"),
    ] {
        let error = accepted(sql).expect_err(sql).to_string();
        assert!(error.contains(part), "{sql}: {error}");
    }
}

#[test]
fn a_table_that_is_not_ours_is_refused_before_it_is_read() {
    let endless = "DROP TABLE lookup; CREATE VIEW lookup AS
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
        SELECT 1 AS process, 1 AS thread, i AS at_ns, 0 AS path FROM n";
    for (sql, part) in [
        ("DROP TABLE lookup", "table lookup is missing"),
        (
            "ALTER TABLE lookup ADD COLUMN more",
            "table lookup is another",
        ),
        (endless, "table lookup is missing"),
    ] {
        let error = accepted(sql).expect_err(sql).to_string();
        assert!(error.contains(part), "{sql}: {error}");
    }
}

#[test]
fn write_ahead_logging_by_another_program_is_told() {
    let error = malformed(&edited(
        "PRAGMA journal_mode=WAL; UPDATE meta SET value = value",
    ));
    assert!(matches!(error, Malformed::WriteAheadLog), "{error}");
}

#[test]
fn what_is_not_utf8_is_a_blob_and_everything_else_text() {
    let folder = Folder::new();
    let path = folder.path("recording");
    small().save(&path, KEEP).unwrap();
    let database = Connection::open(&path).unwrap();
    let text = |sql: &str| -> String { database.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(
        text("SELECT text FROM name WHERE id = 0"),
        "/srv/app/package.json"
    );
    assert_eq!(text("SELECT typeof(text) FROM name WHERE id = 1"), "blob");
    assert_eq!(text("SELECT typeof(command) FROM run"), "blob");
    let integrity = text("PRAGMA integrity_check");
    assert_eq!(integrity, "ok");
    let orphans: i64 = database
        .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(orphans, 0);
}

#[test]
fn arguments_of_ten_thousand_characters_are_kept() {
    let mut recording = small();
    recording.runs[0].command = vec![vec![b'x'; 10_000], b"a b\n\"\\\0".to_vec(), Vec::new()];
    assert_eq!(
        Recording::from_bytes(&saved(&recording)).unwrap(),
        recording
    );
}

#[test]
fn the_views_give_the_figures_of_the_report() {
    for recording in [small(), other()] {
        let folder = Folder::new();
        let path = folder.path("recording");
        recording.save(&path, KEEP).unwrap();
        let database = Connection::open(&path).unwrap();
        let number = |sql: &str| {
            let number: f64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
            number as u64
        };
        let run = &Profile::from_recording(&recording).runs[0];
        assert_eq!(
            number("SELECT sum(calls) FROM crossings_by_callback WHERE kind <> 'to_js'"),
            run.crossings.total
        );
        assert_eq!(
            number("SELECT sum(self_ns) FROM crossings_by_callback WHERE kind <> 'to_js'"),
            run.crossings.self_ns
        );
        assert_eq!(
            number("SELECT total(lookups) FROM package_json_lookups"),
            run.package_json.lookups
        );
        assert_eq!(
            number("SELECT total(calls) FROM file_accesses_by_path WHERE operation = 'stat'"),
            run.files.stat.calls
        );
        assert_eq!(
            number("SELECT total(bytes_read) FROM file_accesses_by_path"),
            run.files.bytes_read
        );
        assert_eq!(
            number("SELECT total(total_ns) FROM serializations_by_function"),
            run.serialization.total_ns
        );
        assert_eq!(
            number("SELECT total(self_ns) FROM compilations"),
            run.compile.total_ns
        );
        assert_eq!(
            number("SELECT count(*) FROM processes"),
            run.processes.len() as u64
        );
        assert_eq!(
            number("SELECT count(*) FROM milestones"),
            recording.milestones.len() as u64
        );
        assert_eq!(
            number("SELECT count(*) FROM crossings"),
            recording.crossings.len() as u64
        );
        assert_eq!(
            number("SELECT count(*) FROM file_accesses"),
            recording.files.len() as u64
        );
    }
}

#[test]
fn numbers_are_named_as_in_the_json() {
    let folder = Folder::new();
    let path = folder.path("recording");
    small().save(&path, KEEP).unwrap();
    let database = Connection::open(&path).unwrap();
    let names = |table: &str| -> Vec<String> {
        let list = format!("SELECT json_group_array(name ORDER BY id) FROM {table}");
        let list: String = database.query_row(&list, [], |row| row.get(0)).unwrap();
        serde_json::from_str(&list).unwrap()
    };
    fn json(values: impl serde::Serialize) -> Vec<String> {
        serde_json::from_value(serde_json::to_value(values).unwrap()).unwrap()
    }
    use {CompilationUnit as Unit, CrossingKind as Kind, FileOperation as File};
    assert_eq!(
        names("crossing_kind"),
        json([
            Kind::Slow,
            Kind::Fast,
            Kind::Getter,
            Kind::Construct,
            Kind::ToJs
        ])
    );
    assert_eq!(
        names("file_operation"),
        json([
            File::Stat,
            File::Open,
            File::Read,
            File::Readlink,
            File::Close,
            File::Access
        ])
    );
    assert_eq!(
        names("compilation_unit"),
        json([Unit::Builtin, Unit::Function, Unit::Module, Unit::Script])
    );
    let frame_kinds = json([
        FrameKind::JavaScript,
        FrameKind::Builtin,
        FrameKind::Native,
        FrameKind::Library,
        FrameKind::AddOn,
        FrameKind::Kernel,
        FrameKind::Unknown,
        FrameKind::WebAssembly,
    ]);
    assert_eq!(names("frame_kind"), frame_kinds);
    assert_eq!(
        names("tier"),
        json([Tier::Interpreted, Tier::Baseline, Tier::Optimized])
    );
    use WaitReason as Wait;
    assert_eq!(
        names("wait_reason"),
        json([
            Wait::File,
            Wait::PageFault,
            Wait::Child,
            Wait::Lock,
            Wait::Idle,
            Wait::Preempted,
            Wait::Other
        ])
    );
}

/// Runs one test of this file again, in a mount namespace of its own where `mount` made `$FOLDER` something special.
/// Says so and passes where namespaces are not allowed.
fn within_mount(test: &str, mount: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("NODEPROF_TEST_FOLDER") {
        return Some(folder.into());
    }
    let folder = Folder::new();
    let script = format!("{mount} || exit 77; exec \"$TEST\" --exact {test} --nocapture");
    let as_root = fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    let output = std::process::Command::new("unshare")
        .args(if as_root { &["-m"][..] } else { &["-r", "-m"] })
        .args(["sh", "-c", &script])
        .env("FOLDER", folder.0.path())
        .env("NODEPROF_TEST_FOLDER", folder.0.path())
        .env("TEST", std::env::current_exe().unwrap())
        .output();
    match output {
        Ok(output)
            if output.status.code() == Some(77) || output.stderr.starts_with(b"unshare:") =>
        {
            eprintln!(
                "skipped: mounting is not allowed here: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Err(error) => eprintln!("skipped: no unshare: {error}"),
        Ok(output) => assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
    None
}

#[test]
fn a_full_disk_is_told_with_the_size_needed_and_leaves_nothing() {
    let test = "a_full_disk_is_told_with_the_size_needed_and_leaves_nothing";
    let Some(folder) = within_mount(test, "mount -t tmpfs -o size=64k none \"$FOLDER\"") else {
        return;
    };
    let error = small().save(folder.join("recording"), KEEP).unwrap_err();
    let StoreError::NoSpace { needed, .. } = error else {
        panic!("{error}")
    };
    assert!(needed > 65_536);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn a_read_only_folder_is_told() {
    let test = "a_read_only_folder_is_told";
    let Some(folder) = within_mount(test, "mount -t tmpfs -o ro none \"$FOLDER\"") else {
        return;
    };
    let error = small().save(folder.join("recording"), KEEP).unwrap_err();
    assert!(
        matches!(error, StoreError::FolderNotWritable { .. }),
        "{error}"
    );
}
