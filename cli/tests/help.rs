//! What `nodeprof` tells of itself: helps, and lists of what can be probed.

#![allow(clippy::expect_used, reason = "a test that fails says where")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const NODEPROF: &str = env!("CARGO_BIN_EXE_nodeprof");
const TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn nodeprof(arguments: &[&str], columns: Option<&str>) -> Output {
    let mut command = Command::new(NODEPROF);
    command.args(arguments).env_remove("COLUMNS");
    if let Some(columns) = columns {
        command.env("COLUMNS", columns);
    }
    command.output().expect("nodeprof starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The names that a text has of files in `docs/`.
fn documents(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| c.is_whitespace() || ",;:()".contains(c));
    let names = words.filter_map(|word| word.strip_prefix("docs/"));
    names
        .map(|name| name.trim_end_matches('.'))
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn files_that_helps_name_are_there_and_where_they_are_is_told() {
    let told = "https://github.com/nodeprof/nodeprof";
    let whole = stdout(&nodeprof(&["--help"], None));
    assert!(whole.contains(told), "{whole}");
    let commands = whole.lines().skip_while(|line| *line != "Commands:");
    let commands = commands.skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"service"), "{whole}");
    for command in commands.iter().filter(|command| **command != "help") {
        let help = stdout(&nodeprof(&[command, "--help"], None));
        for name in documents(&help) {
            assert!(
                Path::new(TREE).join("docs").join(name).exists(),
                "{command}: docs/{name}"
            );
        }
    }
    let service = stdout(&nodeprof(&["service", "--help"], None));
    assert!(service.contains(told), "{service}");
    assert!(documents(&service).contains("service.md"), "{service}");
}

/// The node of PATH.
fn node() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut there = std::env::split_paths(&path).map(|folder| folder.join("node"));
    let node = there.find(|node| node.exists());
    if node.is_none() {
        println!("skipped: there is no node on PATH");
    }
    node
}

#[test]
fn every_role_of_a_probe_is_documented() {
    if node().is_none() {
        return;
    }
    let list = nodeprof(&["probes", "--format", "json"], None);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    let documented = std::fs::read_to_string(format!("{TREE}/docs/json.md")).expect("docs/json.md");
    let probes = list["probes"].as_array().expect("a list");
    assert!(probes.len() > 100, "{}", probes.len());
    for probe in probes {
        let role = &probe["role"];
        let keys = role.as_object().and_then(|role| role.keys().next());
        let name = role.as_str().or(keys.map(String::as_str)).expect("a name");
        assert!(documented.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn lists_are_as_wide_as_they_are_asked_to_be_and_whole_in_a_pipe() {
    if node().is_none() {
        return;
    }
    let widest = |command: &str, columns: Option<&str>| {
        let text = stdout(&nodeprof(&[command], columns));
        let widths = text.lines().map(|line| line.chars().count());
        widths.max().unwrap_or_default()
    };
    for command in ["probes", "doctor"] {
        let narrow = widest(command, Some("70"));
        assert!((1..=70).contains(&narrow), "{command}: {narrow}");
    }
    assert!(widest("probes", None) > 200);
}
