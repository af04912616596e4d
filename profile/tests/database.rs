//! Many runs in one database: each is read as it was written, alone; old ones go; a crash leaves what was there.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::small;
use nodeprof_profile::recording::*;
use nodeprof_profile::store::database::{
    Database, DatabaseError, Filter, Limits, Reader, Retained,
};
use nodeprof_profile::{Profile, Recording};
use rusqlite::Connection;

const NO_LIMITS: Limits = Limits {
    age: Duration::from_secs(1 << 30),
    count: usize::MAX,
    bytes: u64::MAX,
    thin: Duration::from_secs(1 << 30),
};

fn labelled(mut recording: Recording, labels: &[(&str, &str)]) -> Recording {
    for run in &mut recording.runs {
        let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        run.labels.extend(labels);
    }
    recording
}

/// What a recording says, without the numbers that a database gives.
fn said(recording: &Recording) -> (serde_json::Value, Vec<Vec<String>>) {
    let mut plain = recording.clone();
    for run in &mut plain.runs {
        run.labels.retain(|(key, _)| key != "run");
    }
    let text = |id: NameId| String::from_utf8_lossy(plain.name(id)).into_owned();
    let stack = |stack: &Option<StackId>| {
        let frames = stack.iter().flat_map(|stack| plain.frames_of(*stack));
        frames
            .map(|frame| format!("{}:{:?}", text(frame.function), frame.line))
            .collect::<Vec<_>>()
    };
    let mut stacks: Vec<Vec<String>> = plain.crossings.iter().map(|c| stack(&c.stack)).collect();
    stacks.extend(plain.files.iter().map(|f| {
        let mut all = stack(&f.stack);
        all.push(text(f.path));
        all
    }));
    stacks.extend(plain.samples.iter().map(|s| stack(&s.stack)));
    let profile = Profile::from_recording(&plain);
    (serde_json::to_value(&profile).unwrap(), stacks)
}

#[test]
fn each_run_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    let written: Vec<Recording> = (0..6)
        .map(|n| match n % 2 {
            0 => Recording::synthetic(200 * (n + 1)),
            _ => small(),
        })
        .collect();
    let mut numbers = Vec::new();
    for recording in &written {
        let first = database.keep(recording.clone(), Some(1000)).unwrap();
        numbers.push(first..first + recording.runs.len() as u32);
    }
    assert_eq!(numbers[0].start, 1);
    let reader = Reader::open(&path).unwrap();
    for (recording, numbers) in written.iter().zip(&numbers) {
        let numbers: Vec<u32> = numbers.clone().collect();
        let loaded = reader.load(&numbers).unwrap();
        assert_eq!(loaded.check_references(), Ok(()));
        assert_eq!(said(&loaded), said(recording));
        assert_eq!(loaded.number(RunId(0)), Some(numbers[0]));
    }
    // All together are what they are when they are put together one by one.
    let all: Vec<u32> = numbers.iter().cloned().flatten().collect();
    let mut appended = Recording::default();
    written.iter().for_each(|r| appended.append(r.clone()));
    assert_eq!(said(&reader.load(&all).unwrap()), said(&appended));
    // What is not there is left out.
    assert_eq!(reader.load(&[999]).unwrap(), Recording::default());
    // Rows that runs share are there once.
    let sqlite = Connection::open(&path).unwrap();
    let twice: i64 = sqlite
        .query_row(
            "SELECT count(*) FROM (SELECT text FROM name GROUP BY text HAVING count(*) > 1)",
            [],
            |r| r.get(0),
        )
        .unwrap();
    assert_eq!(twice, 0);
}

#[test]
fn shared_rows_that_are_gone_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    let recording = Recording::synthetic(200);
    let keep_and_read = |database: &mut Database| {
        let run = database.keep(recording.clone(), None).unwrap();
        let loaded = Reader::open(&path).unwrap().load(&[run]).unwrap();
        assert_eq!(said(&loaded), said(&recording));
    };
    // A transaction that fails at its end takes them back.
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON kept BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        .unwrap();
    let error = database.keep(recording.clone(), None).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    other.execute_batch("DROP TRIGGER refuse").unwrap();
    keep_and_read(&mut database);
    keep_and_read(&mut database);
    // And so do limits, with the last run that needs them.
    let none = Limits {
        count: 0,
        ..NO_LIMITS
    };
    assert_eq!(database.retain(&none).unwrap().removed, 2);
    let names = |database: &Connection| -> i64 {
        let count = database.query_row("SELECT count(*) FROM name", [], |row| row.get(0));
        count.unwrap()
    };
    assert_eq!(names(&other), 0);
    keep_and_read(&mut database);
}

#[test]
fn runs_are_found_by_label_command_package_time_and_user() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    for n in 0..10u32 {
        let mut recording = labelled(
            Recording::synthetic(50),
            &[("commit", if n < 5 { "a" } else { "b" })],
        );
        let run = &mut recording.runs[0];
        (run.exit_status, run.signal) = match n {
            2 => (Some(1), None),
            3 => (None, Some(9)),
            4 => (None, None),
            _ => (Some(0), None),
        };
        recording.runs[0].command = vec![b"node".to_vec(), format!("app{n}.js").into_bytes()];
        recording.runs[0].started_unix_ns = 1_000 * u64::from(n);
        database.keep(recording, Some(n % 3)).unwrap();
    }
    let reader = Reader::open(&path).unwrap();
    let found = |filter: Filter| -> Vec<u32> {
        reader
            .find(&filter)
            .unwrap()
            .iter()
            .map(|run| run.id)
            .collect()
    };
    let none = Filter::default;
    assert_eq!(found(none()), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(
        found(Filter {
            most: Some(2),
            ..none()
        }),
        [10, 9]
    );
    let labels = vec![("commit".to_owned(), "a".to_owned())];
    assert_eq!(
        found(Filter {
            labels: labels.clone(),
            ..none()
        }),
        [5, 4, 3, 2, 1]
    );
    assert_eq!(
        found(Filter {
            labels,
            owners: Some(vec![0]),
            ..none()
        }),
        [4, 1]
    );
    assert_eq!(
        found(Filter {
            owners: Some(vec![]),
            ..none()
        }),
        Vec::<u32>::new()
    );
    assert_eq!(
        found(Filter {
            command: Some("e app7".into()),
            ..none()
        }),
        [8]
    );
    assert_eq!(
        found(Filter {
            failed: true,
            ..none()
        }),
        [4, 3]
    );
    let since = Filter {
        since_unix_ns: Some(3_000),
        until_unix_ns: Some(5_000),
        ..none()
    };
    assert_eq!(found(since), [5, 4]);
    assert_eq!(
        found(Filter {
            runs: Some(vec![3, 77]),
            ..none()
        }),
        [3]
    );
    // Text of a user is never part of a statement.
    let odd = vec![("x' OR 1=1 --".to_owned(), "\0".to_owned())];
    assert_eq!(
        found(Filter {
            labels: odd,
            ..none()
        }),
        Vec::<u32>::new()
    );
    assert_eq!(
        found(Filter {
            package: Some("' OR '1".into()),
            ..none()
        }),
        Vec::<u32>::new()
    );
    let summary = &reader
        .find(&Filter {
            runs: Some(vec![1]),
            ..none()
        })
        .unwrap()[0];
    let profile = Profile::from_recording(&Recording::synthetic(50));
    assert_eq!(summary.crossings, profile.runs[0].crossings.total);
    assert_eq!(summary.lookups, profile.runs[0].package_json.lookups);
    let labels = reader.labels(None, 100, usize::MAX).unwrap();
    assert_eq!(labels.left_out, 0);
    let all = labels.labels;
    assert!(all.contains(&("commit".into(), "b".into(), 5)), "{all:?}");
    // What is left out is counted, by whichever limit.
    let few = reader.labels(None, 1, usize::MAX).unwrap();
    assert_eq!(few.labels, all[..1]);
    assert_eq!(few.left_out, all.len() as u64 - 1);
    let bytes = all[0].0.len() + all[0].1.len();
    assert_eq!(reader.labels(None, 100, bytes).unwrap(), few);
}

#[test]
fn a_commit_is_named_by_its_first_digits_among_those_that_may_be_read() {
    const ONE: &str = "e5e5e5e500001111222233334444555566667777";
    const OTHER: &str = "e5e5e5e599990000111122223333444455556666";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    for (commit, owner) in [(ONE, 1), (ONE, 1), (OTHER, 2), ("abcd", 1), ("abcde", 1)] {
        let recording = labelled(Recording::synthetic(20), &[("commit", commit)]);
        database.keep(recording, Some(owner)).unwrap();
    }
    let odd = labelled(
        Recording::synthetic(20),
        &[("commit", "e5e5e5e50000z"), ("branch", ONE)],
    );
    database.keep(odd, Some(1)).unwrap();
    let reader = Reader::open(&path).unwrap();
    let found = |key: &str, value: &str, owner: Option<u32>| {
        let filter = Filter {
            labels: vec![(key.into(), value.into())],
            owners: owner.map(|owner| vec![owner]),
            ..Filter::default()
        };
        let found = reader.find(&filter);
        found.map(|runs| runs.iter().map(|run| run.id).collect::<Vec<_>>())
    };
    for (value, owner, runs) in [
        (ONE, None, &[2, 1][..]),
        ("e5e5e5e5000", None, &[2, 1]),
        ("E5E5E5E50000", None, &[2, 1]),
        ("e5e5", Some(1), &[2, 1]),
        ("e5e5e5e5", Some(2), &[3]),
        ("e5e5e5e50", Some(2), &[]),
        // Too few digits, and what is no commit's beginning.
        ("e5e", Some(1), &[]),
        ("e5e5e5e50000z", None, &[6]),
        // A whole one is meant where there is one.
        ("abcd", None, &[4]),
    ] {
        assert_eq!(found("commit", value, owner).unwrap(), runs, "{value}");
    }
    assert_eq!(found("branch", &ONE[..12], None).unwrap(), [0; 0]);
    let refused = found("commit", "e5e5e5e5", None).unwrap_err();
    assert!(matches!(refused, DatabaseError::Ambiguous { .. }));
    let said = refused.to_string();
    assert!(said.contains(ONE) && said.contains(OTHER), "{said}");
}

#[test]
fn packages_of_count_mode_are_told_by_the_paths_of_what_was_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    for (mode, files) in [
        ("count", &["/w/node_modules/lodash/index.js"][..]),
        (
            "count",
            &["/w/node_modules/@s/lodash/a.js", "/w/lodash/b.js"],
        ),
        ("count", &["/w/node_modules/lodash/node_modules/in/a.js"]),
        // This one knows what its package.json says.
        ("full", &["/w/node_modules/lodash/index.js"]),
    ] {
        let mut recording = small();
        recording.runs[0].mode = mode.into();
        for file in files {
            let path = NameId(recording.names.len() as u32);
            recording.names.push(file.as_bytes().to_vec());
            recording.compilations.push(Compilation {
                path,
                ..recording.compilations[0]
            });
        }
        database.keep(recording, None).unwrap();
    }
    let reader = Reader::open(&path).unwrap();
    for (package, runs) in [
        ("lodash", &[1][..]),
        ("@s/lodash", &[2]),
        ("in", &[3]),
        ("w", &[]),
        ("lodash/node_modules/in", &[]),
    ] {
        let filter = Filter {
            package: Some(package.into()),
            ..Filter::default()
        };
        let found = reader.find(&filter).unwrap();
        let found: Vec<u32> = found.iter().map(|run| run.id).collect();
        assert_eq!(found, runs, "{package}");
    }
}

#[test]
fn a_run_that_cannot_be_read_takes_no_other_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    for _ in 0..5 {
        database.keep(Recording::synthetic(50), None).unwrap();
    }
    let change = |sql: &str| {
        let other = Connection::open(&path).unwrap();
        other.pragma_update(None, "foreign_keys", false).unwrap();
        other.execute_batch(sql).unwrap();
    };
    // One in what its summary is made of, one besides.
    change("UPDATE run SET command = 'no list' WHERE id = 2");
    change(
        "UPDATE crossing_sum SET kind = 99 WHERE process IN (SELECT id FROM process WHERE run = 4)",
    );
    change("UPDATE crossing SET kind = 99 WHERE process IN (SELECT id FROM process WHERE run = 4)");
    let reader = Reader::open(&path).unwrap();
    let found = reader.find_within(&Filter::default(), None).unwrap();
    let ids: Vec<u32> = found.runs.iter().map(|run| run.id).collect();
    assert_eq!((ids, found.unreadable), (vec![5, 4, 3, 1], 1));
    for run in [2, 4] {
        let error = reader.load(&[run]).unwrap_err();
        assert!(!error.is_damage(), "{error}");
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }
    assert_eq!(reader.load(&[1, 3, 5]).unwrap().runs.len(), 3);
    let limits = Limits {
        thin: Duration::ZERO,
        ..NO_LIMITS
    };
    let retained = database.retain(&limits).unwrap();
    assert_eq!((retained.thinned, retained.unreadable), (3, 2));
    assert_eq!(database.retain(&limits).unwrap(), Retained::default());
    let removed = database
        .retain(&Limits { count: 1, ..limits })
        .unwrap()
        .removed;
    assert_eq!((removed, database.runs()), (4, 1));
    assert_eq!(reader.find(&Filter::default()).unwrap()[0].id, 5);
}

#[test]
fn a_shared_row_that_cannot_be_read_is_told_and_mended_by_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    let recording = Recording::synthetic(200);
    for _ in 0..2 {
        database.keep(recording.clone(), None).unwrap();
    }
    let reader = Reader::open(&path).unwrap();
    let all = |which: &[u32]| -> Vec<_> {
        let load = |run: &u32| reader.load(&[*run]).unwrap();
        which.iter().map(|run| said(&load(run))).collect()
    };
    let before = all(&[1, 2]);
    let rows = |connection: &Connection| {
        ["name", "callback", "binary", "frame", "stack", "shared"].map(|table| {
            let query = format!("SELECT count(*) FROM {table}");
            let count: i64 = connection.query_row(&query, [], |row| row.get(0)).unwrap();
            count
        })
    };
    let other = Connection::open(&path).unwrap();
    other.pragma_update(None, "foreign_keys", false).unwrap();
    let number = |query: &str| -> i64 { other.query_row(query, [], |row| row.get(0)).unwrap() };
    let intact = rows(&other);
    let damages = [
        (
            "name",
            "UPDATE name SET text = 5 WHERE id = (SELECT path FROM file_access LIMIT 1)",
        ),
        (
            "callback",
            "UPDATE callback SET binding = x'ff' WHERE id = (SELECT callback FROM crossing LIMIT 1)",
        ),
        (
            "binary",
            "DELETE FROM binary WHERE id = (SELECT binary FROM process WHERE binary IS NOT NULL LIMIT 1)",
        ),
        (
            "frame",
            "UPDATE frame SET kind = 99 WHERE id = (SELECT frame FROM stack WHERE id = (SELECT max(stack) FROM crossing))",
        ),
        (
            "stack",
            "UPDATE stack SET caller = 4000000000 WHERE id = (SELECT max(stack) FROM crossing)",
        ),
        (
            "frame",
            "DELETE FROM frame WHERE id = (SELECT frame FROM stack WHERE id = (SELECT max(stack) FROM crossing))",
        ),
    ];
    for (round, (table, damage)) in damages.into_iter().enumerate() {
        assert_eq!(other.execute(damage, []).unwrap(), 1, "{damage}");
        // That one value is missing, nothing else is; alone and among others.
        let loaded = reader.load(&[2, 1]).unwrap();
        let profile = Profile::from_recording(&loaded);
        let whole = Profile::from_recording(&recording);
        for run in &profile.runs {
            assert_eq!(run.losses.get(ROWS_UNREADABLE), Some(&1), "{damage}");
            assert_eq!(run.crossings.total, whole.runs[0].crossings.total);
            assert_eq!(run.files.stat, whole.runs[0].files.stat);
        }
        assert_eq!(loaded.number(RunId(0)), Some(2));
        let found = reader.find_within(&Filter::default(), None).unwrap();
        assert_eq!(
            (found.runs.len(), found.unreadable),
            (2 + round, 0),
            "{damage}"
        );
        let is_unreadable = found.runs[0].node_version.as_deref() == Some("(unreadable)");
        assert_eq!(is_unreadable, table == "binary");
        // The next run that uses it writes it anew, for all.
        let run = database.keep(recording.clone(), None).unwrap();
        assert!(all(&[1, 2]) == before, "{damage}");
        assert!(all(&[run]) == before[..1], "{damage}");
        assert_eq!(rows(&other), intact, "{damage}");
    }
    // One that says something else than what was written is not taken for it, nor is one of another's place.
    for changed in [
        "UPDATE name SET text = 'another' WHERE id = (SELECT path FROM file_access LIMIT 1)",
        "UPDATE shared SET id = (SELECT max(id) FROM name) WHERE kind = 0 AND id = (SELECT path FROM file_access LIMIT 1)",
    ] {
        assert_eq!(other.execute(changed, []).unwrap(), 1);
        let run = database.keep(recording.clone(), None).unwrap();
        assert!(
            all(&[run, 1, 2]) == [&before[..1], &before].concat(),
            "{changed}"
        );
    }
    // What is sound is not written again by who opens the database anew.
    let names = number("SELECT count(*) FROM name");
    drop(database);
    let mut database = Database::open(&path).unwrap();
    database.keep(recording, None).unwrap();
    assert_eq!(number("SELECT count(*) FROM name"), names);
}

#[test]
fn a_run_with_a_row_that_cannot_be_read_is_thinned_when_that_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    database.keep(Recording::synthetic(50), None).unwrap();
    let other = Connection::open(&path).unwrap();
    other.pragma_update(None, "foreign_keys", false).unwrap();
    other.execute("DELETE FROM callback", []).unwrap();
    let limits = Limits {
        thin: Duration::ZERO,
        ..NO_LIMITS
    };
    let retained = database.retain(&limits).unwrap();
    assert_eq!((retained.thinned, retained.unreadable), (0, 1));
    assert_eq!(database.retain(&limits).unwrap(), Retained::default());
    database.keep(Recording::synthetic(50), None).unwrap();
    let retained = database.retain(&limits).unwrap();
    assert_eq!((retained.thinned, retained.unreadable), (2, 0));
}

#[test]
fn who_reads_gives_up_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    for _ in 0..20 {
        database.keep(Recording::synthetic(2_000), None).unwrap();
    }
    let mut reader = Reader::open(&path).unwrap();
    reader.give_up_after(Duration::from_secs(60)).unwrap();
    assert_eq!(reader.find(&Filter::default()).unwrap().len(), 20);
    reader.give_up_after(Duration::ZERO).unwrap();
    for failed in [
        reader.find(&Filter::default()).map(drop),
        reader.load(&[1, 2, 3]).map(drop),
    ] {
        let error = failed.unwrap_err();
        assert!(!error.is_damage(), "{error}");
        assert!(error.to_string().contains("took too long"), "{error}");
    }
    assert_eq!(database.keep(Recording::synthetic(50), None).unwrap(), 21);
}

#[test]
fn the_oldest_go_by_number_age_and_size_and_the_file_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    let size = || std::fs::metadata(&path).unwrap().len();
    let keep = |database: &mut Database, n: u32| {
        for _ in 0..n {
            database.keep(Recording::synthetic(500), None).unwrap();
        }
    };
    let retain = |database: &mut Database, limits: &Limits| {
        let mut removed = 0;
        loop {
            let retained = database.retain(limits).unwrap();
            removed += retained.removed;
            if !retained.more {
                return removed;
            }
        }
    };
    keep(&mut database, 100);
    assert_eq!(retain(&mut database, &NO_LIMITS), 0);
    let limits = Limits {
        count: 10,
        ..NO_LIMITS
    };
    assert_eq!(retain(&mut database, &limits), 90);
    database.checkpoint().unwrap();
    let (ten, used) = (size(), database.bytes().unwrap());
    assert_eq!(ten, used, "no page is left unused");
    let reader = Reader::open(&path).unwrap();
    let numbers: Vec<u32> = reader
        .find(&Filter::default())
        .unwrap()
        .iter()
        .map(|r| r.id)
        .collect();
    assert_eq!(numbers.len(), 10);
    assert!(numbers.iter().all(|n| *n > 90));
    keep(&mut database, 300);
    let limits = Limits {
        bytes: ten * 3,
        ..NO_LIMITS
    };
    retain(&mut database, &limits);
    database.checkpoint().unwrap();
    assert!(size() <= ten * 3, "{} of {}", size(), ten * 3);
    assert!(database.runs() > 15, "{} are left", database.runs());
    let limits = Limits {
        age: Duration::ZERO,
        ..NO_LIMITS
    };
    retain(&mut database, &limits);
    assert_eq!((database.runs(), reader.count().unwrap()), (0, 0));
    // Rows that they shared go, too, and numbers are not given again, not even by the next service.
    let sqlite = Connection::open(&path).unwrap();
    let names: i64 = sqlite
        .query_row(
            "SELECT (SELECT count(*) FROM name) + (SELECT count(*) FROM shared)",
            [],
            |r| r.get(0),
        )
        .unwrap();
    assert_eq!(names, 0);
    drop(database);
    let mut database = Database::open(&path).unwrap();
    let next = database.keep(small(), None).unwrap();
    assert_eq!(next, 401);
    assert_eq!(said(&reader.load(&[next, next + 1]).unwrap()).0, {
        let mut both = Recording::default();
        both.append(small());
        both.runs.truncate(2);
        said(&both).0
    });
    database.check().unwrap();
}

/// Most of what a run takes can be paths that no other has: these go with it, else all runs would go before the file is small enough.
#[test]
fn where_the_file_is_too_large_no_more_runs_go_than_needed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    let of = |number: usize| {
        let mut one = Recording::synthetic(400);
        // Of each run, of it and the next ones, and of all.
        let first = one.names.len() as u32;
        for (of, count) in [
            (format!("run {number}"), 300),
            (format!("twenty {}", number / 20), 50),
            ("all".to_owned(), 50),
        ] {
            for name in 0..count {
                let text = format!("/{of}/{name}/{}", "folder/".repeat(20));
                one.names.push(text.into_bytes());
            }
        }
        let lookup = one.lookups[0];
        for name in first..one.names.len() as u32 {
            let mut lookup = lookup;
            lookup.path = NameId(name);
            one.lookups.push(lookup);
        }
        one
    };
    for number in 0..60 {
        database.keep(of(number), None).unwrap();
    }
    let bytes = database.bytes().unwrap() / 2;
    let limits = Limits { bytes, ..NO_LIMITS };
    // What comes meanwhile, too: some of it needs again what is about to go.
    let again = |number: usize| if number < 65 { number - 55 } else { number };
    let mut next = 60;
    while database.retain(&limits).unwrap().more {
        if next < 66 {
            database.keep(of(again(next)), None).unwrap();
            next += 1;
        }
    }
    assert!(database.bytes().unwrap() <= bytes);
    // Half of them, less what is left unused in pages, and a part that goes at once.
    assert!(database.runs() >= 22, "{} are left", database.runs());
    assert_eq!(next, 66);
    database.check().unwrap();
    let reader = Reader::open(&path).unwrap();
    for run in reader.find(&Filter::default()).unwrap() {
        let number = run.id as usize - 1;
        let number = if number < 60 { number } else { again(number) };
        assert_eq!(said(&reader.load(&[run.id]).unwrap()), said(&of(number)));
    }
    // So it is from then on, start by start.
    for number in next..85 {
        database.keep(of(number), None).unwrap();
        while database.retain(&limits).unwrap().more {}
        assert!(database.bytes().unwrap() <= bytes);
        assert!(database.runs() >= 22, "{} are left", database.runs());
    }
}

#[test]
fn old_runs_are_thinned_to_their_counts_and_stay_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    let mut whole = Recording::synthetic(2_000);
    for name in ["files", "package-json", "crossings"] {
        whole.families.push(FamilyState {
            run: RunId(0),
            name: name.into(),
            state: "on".into(),
            reason: None,
        });
    }
    for _ in 0..3 {
        database.keep(whole.clone(), Some(7)).unwrap();
    }
    let before = database.bytes().unwrap();
    let limits = Limits {
        thin: Duration::ZERO,
        ..NO_LIMITS
    };
    assert_eq!(database.retain(&limits).unwrap().thinned, 3);
    assert_eq!(database.retain(&limits).unwrap().thinned, 0);
    assert!(database.bytes().unwrap() < before / 2);
    let reader = Reader::open(&path).unwrap();
    let thin = reader.load(&[2]).unwrap();
    assert!(thin.is_thinned(RunId(0)) && thin.files.is_empty());
    let (a, b) = (
        Profile::from_recording(&thin),
        Profile::from_recording(&whole),
    );
    let (a, b) = (&a.runs[0], &b.runs[0]);
    assert_eq!(a.crossings.total, b.crossings.total);
    assert_eq!(a.package_json.lookups, b.package_json.lookups);
    assert_eq!(a.files.open, b.files.open);
    assert_eq!(a.compile.compilations, b.compile.compilations);
    let summary = &reader.find(&Filter::default()).unwrap()[0];
    assert!(summary.thinned);
    assert_eq!(
        (summary.owner, summary.crossings),
        (Some(7), b.crossings.total)
    );
    assert_eq!(summary.lookups, b.package_json.lookups);
    // A new run shares rows with thinned ones.
    database.keep(whole.clone(), None).unwrap();
    assert_eq!(said(&reader.load(&[4]).unwrap()), said(&whole));
}

#[test]
fn one_run_of_many_is_read_without_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    for _ in 0..300 {
        database.keep(Recording::synthetic(300), None).unwrap();
    }
    database.checkpoint().unwrap();
    let sqlite = Connection::open(&path).unwrap();
    // No statement that loads a run goes through a whole table.
    let mut tables = sqlite
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('meta', 'shared', 'kept') AND name NOT LIKE '%\\_kind' ESCAPE '\\'")
        .unwrap();
    let tables: Vec<String> = tables
        .query_map([], |r| r.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut looked_at = 0;
    for table in tables {
        let columns: Vec<String> = sqlite
            .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))
            .unwrap()
            .query_map([], |r| r.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let condition = match columns
            .iter()
            .find(|c| ["run", "process"].contains(&c.as_str()))
        {
            Some(column) if column == "run" => "run = 5",
            Some(_) => "process BETWEEN 5 AND 6",
            None => continue,
        };
        let plan: String = sqlite
            .query_row(
                &format!(
                    "EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE {condition} ORDER BY +rowid"
                ),
                [],
                |r| r.get(3),
            )
            .unwrap();
        assert!(plan.contains("USING INDEX"), "{table}: {plan}");
        looked_at += 1;
    }
    assert!(looked_at > 18, "{looked_at} tables");
}

#[test]
fn a_database_of_another_version_or_program_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let error = Reader::open(&path).unwrap_err();
    assert!(matches!(error, DatabaseError::NotFound { .. }), "{error}");
    drop(Database::open(&path).unwrap());
    let set = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    set("PRAGMA user_version=99");
    for error in [Reader::open(&path).err(), Database::open(&path).err()] {
        let error = error.unwrap();
        assert!(
            matches!(error, DatabaseError::Newer { found: 99, .. }),
            "{error}"
        );
    }
    set("PRAGMA user_version=1");
    assert!(matches!(
        Reader::open(&path),
        Err(DatabaseError::Older { .. })
    ));
    assert!(matches!(
        Database::open(&path),
        Err(DatabaseError::Foreign { .. })
    ));
    set("PRAGMA application_id=1");
    assert!(matches!(
        Reader::open(&path),
        Err(DatabaseError::Foreign { .. })
    ));
    assert!(matches!(
        Database::open(&path),
        Err(DatabaseError::Foreign { .. })
    ));
    std::fs::write(&path, vec![7; 8192]).unwrap();
    assert!(Database::open(&path).unwrap_err().is_damage());
    assert!(Reader::open(&path).unwrap_err().is_damage());
    assert!(!Reader::recognises(&path));
}

#[test]
fn only_one_writes_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let first = Database::open(&path).unwrap();
    assert!(matches!(
        Database::open(&path),
        Err(DatabaseError::InUse { .. })
    ));
    drop(first);
    Database::open(&path).unwrap();
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    for _ in 0..20 {
        database.keep(Recording::synthetic(300), None).unwrap();
    }
    database.checkpoint().unwrap();
    drop(database);
    let whole = std::fs::read(&path).unwrap();
    let mut random = nodeprof_profile::random::Random::new(1);
    let mut noticed = 0;
    for _ in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..200 {
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
        std::fs::write(&path, &bytes).unwrap();
        let _ = std::fs::remove_file(path.with_extension("db-wal"));
        let tried = (|| {
            let reader = Reader::open(&path)?;
            let runs: Vec<u32> = reader
                .find(&Filter::default())?
                .iter()
                .map(|r| r.id)
                .collect();
            reader.load(&runs)?;
            drop(reader);
            let mut database = Database::open(&path)?;
            database.keep(small(), None)?;
            database.retain(&Limits {
                count: 3,
                thin: Duration::ZERO,
                ..NO_LIMITS
            })?;
            Ok::<_, DatabaseError>(())
        })();
        noticed += usize::from(tried.is_err());
    }
    assert!(noticed > 20, "{noticed} of 60");
}

/// Writes until it is killed; run by the test below.
#[test]
#[ignore = "another test starts it"]
fn write_until_killed() {
    let Some(path) = std::env::var_os("NODEPROF_TEST_DATABASE") else {
        return;
    };
    let mut database = Database::open(Path::new(&path)).unwrap();
    let limits = Limits {
        count: 40,
        thin: Duration::from_millis(200),
        ..NO_LIMITS
    };
    for n in 0.. {
        let recording = labelled(
            Recording::synthetic(100 + 50 * (n % 5)),
            &[("n", &n.to_string())],
        );
        database.keep(recording, None).unwrap();
        println!("kept {n}");
        while database.retain(&limits).unwrap().more {}
    }
}

#[test]
fn a_writer_killed_at_any_moment_leaves_whole_runs() {
    use std::io::Read as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut random = nodeprof_profile::random::Random::new(7);
    let mut last = 0;
    for _ in 0..25 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "write_until_killed", "--nocapture"])
            .env("NODEPROF_TEST_DATABASE", &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(20_000 + random.below(400_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut said = String::new();
        child.stdout.unwrap().read_to_string(&mut said).unwrap();
        let kept = said
            .lines()
            .filter(|line| line.starts_with("kept "))
            .count();
        let database = Database::open(&path).unwrap();
        let whole = Connection::open(&path).unwrap();
        let said: String = whole
            .query_row("PRAGMA integrity_check", [], |r| r.get(0))
            .unwrap();
        assert_eq!(said, "ok");
        drop((database, whole));
        let reader = Reader::open(&path).unwrap();
        let runs: Vec<u32> = reader
            .find(&Filter::default())
            .unwrap()
            .iter()
            .map(|r| r.id)
            .collect();
        let newest = runs.iter().copied().max().unwrap_or(0);
        // What it said it had kept is there.
        assert!(
            newest >= last + kept as u32,
            "{newest}, before {last}, said {kept}"
        );
        last = newest;
        let all = reader.load(&runs).unwrap();
        assert_eq!(all.runs.len(), runs.len());
        assert!(all.crossing_sums.len() + all.crossings.len() >= runs.len());
    }
    assert!(last > 25, "{last} runs in all");
}

/// Locks of this process on a file, by what the kernel says of its descriptors.
fn locks_on(path: &Path) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let of_it = descriptors
        .map(|entry| entry.unwrap().path())
        .filter(|fd| std::fs::read_link(fd).is_ok_and(|to| to == *path));
    of_it
        .map(|fd| {
            let number = fd.file_name().unwrap().to_str().unwrap();
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
            info.lines().filter(|line| line.contains("POSIX")).count()
        })
        .sum()
}

/// The service writes and answers in one process. Without its locks, the next `sqlite3` that ends removes the log it writes to.
#[test]
fn who_reads_in_the_writers_process_leaves_it_its_locks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("starts.db");
    let mut database = Database::open(&path).unwrap();
    database.keep(small(), None).unwrap();
    let before = locks_on(&path);
    assert!(before > 0);
    let reader = Reader::open(&path).unwrap();
    assert!(locks_on(&path) >= before);
    drop(reader);
    assert!(locks_on(&path) >= before);
    assert!(matches!(
        Database::open(&path),
        Err(DatabaseError::InUse { .. })
    ));
    assert!(locks_on(&path) >= before);
    // Another program looks in and goes.
    let wal = path.with_extension("db-wal");
    let look = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); print(c.execute('select count(*) from run').fetchone()[0]); c.close()";
    let other = Command::new("python3")
        .args(["-c", look])
        .arg(&path)
        .output();
    if let Ok(other) = other {
        assert_eq!(String::from_utf8_lossy(&other.stdout).trim(), "1");
    }
    assert!(wal.exists());
    database.keep(small(), None).unwrap();
    assert_eq!(
        Reader::open(&path)
            .unwrap()
            .find(&Filter::default())
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn a_run_that_was_kept_while_the_clock_was_ahead_keeps_no_later_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    for _ in 0..4 {
        database.keep(Recording::synthetic(500), None).unwrap();
    }
    // The first in ten years, two an hour ago, the last one now.
    let sqlite = Connection::open(&path).unwrap();
    let set = |run: u32, seconds: i64| {
        let shift = seconds * 1_000_000_000;
        sqlite
            .execute(
                "UPDATE kept SET kept_unix_ns = kept_unix_ns + ?2 WHERE run = ?1",
                (run, shift),
            )
            .unwrap();
    };
    for (run, seconds) in [(1, 10 * 365 * 86_400), (2, -3_600), (3, -3_600)] {
        set(run, seconds);
    }
    let limits = Limits {
        age: Duration::from_secs(60),
        ..NO_LIMITS
    };
    assert_eq!(database.retain(&limits).unwrap().removed, 2);
    assert_eq!(database.runs(), 2);
}

#[test]
fn runs_that_take_more_than_they_may_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    let mut recording = Recording::synthetic(2_000);
    let run = database.keep(recording.clone(), None).unwrap();
    let texts = |recording: &Recording| recording.names.iter().map(Vec::len).sum::<usize>() as u64;
    recording.names[0] = vec![b'x'; 1 << 20];
    let long = database.keep(recording.clone(), None).unwrap();
    drop(database);
    let reader = Reader::open(&path).unwrap();
    let least = |runs: &[u32]| -> u64 {
        let fits = |most: &u64| match reader.load_within(runs, *most) {
            Ok(loaded) => {
                assert_eq!(loaded, reader.load(runs).unwrap());
                true
            }
            Err(DatabaseError::TooMuch { most: told, .. }) if told == *most => false,
            Err(other) => panic!("{other}"),
        };
        let (mut below, mut above) = (0, 1 << 30);
        while below + 1 < above {
            let middle = (below + above) / 2;
            match fits(&middle) {
                true => above = middle,
                false => below = middle,
            }
        }
        above
    };
    let (one, twice, other) = (least(&[run]), least(&[run, run]), least(&[long]));
    // By rows, which count as often as they are read, and texts.
    assert!(one > 2_000 * 100 && one > texts(&recording) - (1 << 20));
    assert!(twice > one + 2_000 * 100 && twice < 2 * one);
    assert!(other > 1 << 22 && other < one + (5 << 20), "{other}");
    assert!(matches!(reader.load_within(&[999], 0), Ok(none) if none.runs.is_empty()));
}

#[test]
fn a_start_that_was_recorded_until_after_its_loop_began_took_the_time_until_then() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let mut database = Database::open(&path).unwrap();
    let exited = Recording::synthetic(100);
    let mut settled = exited.clone();
    settled.runs[0].ended_by = "loop-start".into();
    for recording in [&exited, &settled] {
        database.keep(recording.clone(), None).unwrap();
    }
    let profile = Profile::from_recording(&settled);
    let loop_start = profile.runs[0].milestones.loop_start.unwrap() as u64;
    let times = || {
        let runs = Reader::open(&path).unwrap().find(&Filter::default());
        let runs = runs.unwrap().into_iter();
        runs.map(|run| (run.loop_start_ns, run.time_ns(), run.duration_ns))
            .collect::<Vec<_>>()
    };
    let [settled, exited] = times()[..] else {
        panic!("two runs");
    };
    assert_eq!((settled.0, settled.1), (Some(loop_start), loop_start));
    assert!(settled.1 < settled.2);
    assert_eq!((exited.0, exited.1), (None, exited.2));
    let before = times();
    let limits = Limits {
        thin: Duration::ZERO,
        ..NO_LIMITS
    };
    assert_eq!(database.retain(&limits).unwrap().thinned, 2);
    assert_eq!(times(), before, "of thinned runs, too");
}
