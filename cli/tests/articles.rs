//! `make articles`: its pages are whole, and a quick run of it makes whole pages again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that fails says where"
)]

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "not every test file uses all of it"
)]
mod support;

use std::{fs, path::Path, process::Command};

use serde_json::Value;
use support::{NODEPROF, Node, folder, has_tool, plain, project};

/// The articles that `make articles` replays.
const ARTICLES: [&str; 5] = ["loader", "startup", "serialization", "state", "beyond"];

/// The text between the markers of each block, by its name.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    page.split("<!-- articles:")
        .skip(1)
        .filter_map(|part| {
            let (name, rest) = part.split_once(":begin -->")?;
            let end = rest.find("<!-- articles:").unwrap_or(rest.len());
            Some((name, rest[..end].trim()))
        })
        .collect::<Vec<_>>()
}

/// Links of a Markdown page to files.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](").skip(1).filter_map(|part| {
        let target = part.split(')').next()?.split('#').next()?;
        (!target.is_empty() && !target.contains("://")).then_some(target)
    })
}

fn is_whole(folder: &Path, article: &str) {
    let page = fs::read_to_string(folder.join(format!("{article}.md"))).unwrap();
    let blocks = blocks(&page);
    assert!(blocks.len() > 3, "{article}: {} blocks", blocks.len());
    for (name, text) in &blocks {
        assert!(!text.is_empty(), "{article}: {name} is empty");
        assert_eq!(
            page.matches(&format!("<!-- articles:{name}:end -->"))
                .count(),
            1
        );
        for missing in ["nan", "NaN", "None", "null", "inf", "Infinity"] {
            let found = text.split(['|', ' ', '\n']).any(|word| word == missing);
            assert!(!found, "{article}: {name}: a figure is missing: {text}");
        }
        for line in text.lines().filter(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            // No stars is an answer.
            let empty = cells.iter().enumerate().find(|(index, cell)| {
                cell.is_empty() && !(*index == 1 && cells[0].contains(['=', '\'']))
            });
            assert_eq!(empty, None, "{article}: {name}: {line}");
        }
        let columns: Vec<usize> = (text.lines())
            .filter(|line| line.starts_with('|'))
            .map(|line| line.replace("\\|", "").matches('|').count())
            .collect();
        let same = columns.windows(2).all(|two| two[0] == two[1]);
        assert!(same, "{article}: {name}: rows differ: {text}");
    }
    for link in links(&page) {
        assert!(
            folder.join(link).exists() || !link.starts_with("pictures/"),
            "{article}: no {link}"
        );
        if link.ends_with(".svg") {
            let picture = fs::read_to_string(folder.join(link)).unwrap();
            assert!(
                picture.contains("<svg") && picture.trim_end().ends_with("</svg>"),
                "{link}"
            );
            assert!(!picture.contains("NaN"), "{link}");
        }
    }
}

#[test]
fn the_pages_of_the_articles_are_whole() {
    let folder = project("docs/articles");
    let index = fs::read_to_string(project("docs/articles/README.md")).unwrap();
    for article in ARTICLES {
        is_whole(Path::new(&folder), article);
        assert!(
            index.contains(&format!("({article}.md)")),
            "{article} is not in the index"
        );
    }
}

/// Two versions, few runs, pages in a folder of its own.
fn replayed(article: &str, versions: [&'static str; 2]) {
    if versions.iter().any(|version| Node::find(version).is_none()) {
        return;
    }
    if !has_tool("python3") {
        return;
    }
    for packages in ["bench/articles", "bench/subjects", "examples/express"] {
        if !Path::new(&project(packages)).join("node_modules").exists() {
            println!("skipped: the npm packages of {packages} are not installed (make test does)");
            return;
        }
    }
    let folder = folder();
    let mut command = Command::new(project("bench/articles/run"));
    plain(&mut command)
        .args(["--runs", "2", "--probed-runs", "2", "--seed", "1", "--only"])
        .arg(versions.join(","))
        .args(["--nodeprof", NODEPROF, "--docs"])
        .arg(folder.path())
        .arg(article);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    is_whole(folder.path(), article);
}

#[test]
#[ignore = "needs root"]
fn the_loader_is_replayed() {
    replayed("loader", ["20.20.2", "22.23.3"]);
}

#[test]
#[ignore = "needs root"]
fn startup_is_replayed() {
    replayed("startup", ["18.20.8", "20.20.2"]);
}

#[test]
#[ignore = "needs root"]
fn string_serialization_is_replayed() {
    replayed("serialization", ["20.0.0", "22.23.3"]);
}

#[test]
#[ignore = "needs root"]
fn the_state_of_performance_is_replayed() {
    replayed("state", ["16.20.0", "20.0.0"]);
}

#[test]
#[ignore = "needs root"]
fn beyond_the_articles_is_replayed() {
    replayed("beyond", ["20.20.2", "22.23.3"]);
}

/// The packages with which node-benchmark-compare reckons, given the exported CSV, print what the diff has as `rate`.
#[test]
fn confidence_columns_are_those_of_node_benchmark_compare() {
    let (Some(base), Some(head)) = (Node::find("16.20.0"), Node::find("20.0.0")) else {
        return;
    };
    let packages = project("flamegraphs/tests/consumers");
    if !Path::new(&packages).join("node_modules/ttest").exists() {
        println!(
            "skipped: the npm packages of flamegraphs/tests/consumers are not installed (make test does)"
        );
        return;
    }
    let folder = folder();
    let ran = |command: &mut Command| {
        let output = plain(command).current_dir(folder.path()).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    ran(Command::new(NODEPROF)
        .args([
            "compare",
            "-n",
            "6",
            "--probed-runs",
            "0",
            "-q",
            "-o",
            "c.nodeprof",
            "--export-csv",
            "c.csv",
        ])
        .arg("--base-node")
        .arg(&base.path)
        .arg("--head-node")
        .arg(&head.path)
        .args(["--", &project("bench/articles/programs/empty.js")]));
    let diff = ran(Command::new(NODEPROF).args(["diff", "c.nodeprof", "--format", "json"]));
    let diff: Value = serde_json::from_slice(&diff).unwrap();
    let theirs = ran(Command::new(&head.path)
        .arg(Path::new(&packages).join("read-comparison.js"))
        .arg("c.csv"));
    let theirs: Value = serde_json::from_slice(&theirs).unwrap();
    let rate = &diff["rate"];
    let near = |ours: &Value, theirs: &Value| {
        let (ours, theirs) = (ours.as_f64().unwrap(), theirs.as_f64().unwrap());
        assert!(
            (ours - theirs).abs() <= 1e-6 * theirs.abs().max(1e-6),
            "{ours}, not {theirs}"
        );
    };
    near(&rate["welch"]["p"], &theirs["p"]);
    near(&rate["percent"], &theirs["improvement"]);
    for index in 0..3 {
        near(
            &rate["plus_minus_percent"][index],
            &theirs["accuracy"][index],
        );
    }
    let p = theirs["p"].as_f64().unwrap();
    let stars = [0.05, 0.01, 0.001]
        .iter()
        .filter(|level| p < **level)
        .count();
    assert_eq!(rate["stars"], "*".repeat(stars));
}
