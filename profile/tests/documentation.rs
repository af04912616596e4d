//! That the documents say what is so.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;

use nodeprof_profile::{Profile, Recording, SaveOptions};
use rusqlite::Connection;
use serde_json::Value;

fn document(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn every_query_of_the_document_runs_and_finds_something() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    Recording::synthetic(20_000)
        .save(&path, SaveOptions::default())
        .unwrap();
    let database = Connection::open(&path).unwrap();
    let text = document("recording.md");
    let blocks: Vec<&str> = text
        .split("```sql\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(sql, _)| sql)
        .collect();
    assert!(blocks.len() >= 5, "only {} queries", blocks.len());
    for sql in blocks {
        let mut statement = database
            .prepare(sql)
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
        let mut rows = statement.query([]).unwrap();
        assert!(rows.next().unwrap().is_some(), "{sql} finds nothing");
    }
}

#[test]
fn every_table_column_and_view_is_in_the_document() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    common::small().save(&path, SaveOptions::default()).unwrap();
    let database = Connection::open(&path).unwrap();
    let text = document("recording.md");
    let mut columns = database
        .prepare("SELECT s.name, c.name FROM sqlite_schema s, pragma_table_info(s.name) c WHERE s.type = 'table'")
        .unwrap();
    let columns: Vec<(String, String)> = columns
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let section = |table: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("| `{table}` |")));
        line.unwrap_or_else(|| panic!("no line for table {table}"))
    };
    for (table, column) in columns {
        let line = section(&table);
        assert!(
            line.contains(&format!("`{column}`")),
            "{table}.{column} is not in: {line}"
        );
    }
    let mut views = database
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'view'")
        .unwrap();
    for view in views.query_map([], |row| row.get::<_, String>(0)).unwrap() {
        section(&view.unwrap());
    }
}

/// Field names by path, with `[]` for the items of a list.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = match path {
                    "" => name.clone(),
                    _ => format!("{path}.{name}"),
                };
                // Names that depend on the recording.
                if !["labels", "losses", "overhead.by_family"]
                    .iter()
                    .any(|open| path.ends_with(&format!("{open}.{name}")))
                {
                    found.insert(path.clone());
                }
                fields(value, &path, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                fields(item, &format!("{path}[]"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_of_the_json_is_in_the_document_and_no_other() {
    let text = document("json.md");
    // What other commands print has sections of its own.
    let (text, _) = text.split_once("\n## nodeprof ").unwrap_or((&text, ""));
    let documented: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split_once("` |"))
        .map(|(field, _)| field.to_owned())
        .collect();
    let mut there = BTreeSet::new();
    let json = serde_json::to_value(Profile::from_recording(&common::small())).unwrap();
    fields(&json, "", &mut there);
    let missing: Vec<_> = there.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/json.md lacks {missing:#?}");
    // A path of the sample that is UTF-8 has no path_bytes.
    let invented: Vec<_> = documented
        .difference(&there)
        .filter(|field| !field.ends_with("path_bytes"))
        .collect();
    assert!(
        invented.is_empty(),
        "docs/json.md has {invented:#?}, which the JSON lacks"
    );
}
