//! What the kernel saw, against strace.

use std::{collections::BTreeMap, path::Path};

use nodeprof_profile::{
    Recording,
    recording::{FileAccess, FileOperation},
};

use crate::support::{
    FileOperations, Node, Traced, has_packages, has_tool, list, npm_script, number, on_each_node,
    project, strace, text, trace,
};

on_each_node!(
    files_of_npm_are_those_of_strace,
    files_of_an_application_are_those_of_strace,
    files_of_es_modules_are_those_of_strace,
    files_of_workers_and_children_are_those_of_strace,
    a_descriptor_has_the_path_of_what_it_is,
);

fn files_of_npm_are_those_of_strace(node: &Node) {
    if let Some(npm) = npm_script("npm") {
        compare(node, &[&npm, "--version"]);
    }
}

pub(crate) fn files_of_an_application_are_those_of_strace(node: &Node) {
    if has_packages("examples/express") {
        let traced = compare(node, &[&project("examples/express/app.js")]);
        if let Some(traced) = traced {
            assert!(number(&traced.run["package_json"]["opens"]) > 100);
            assert!(number(&traced.run["package_json"]["lookups"]) > 100);
        }
    }
}

pub(crate) fn files_of_es_modules_are_those_of_strace(node: &Node) {
    if has_packages("examples/esm") {
        compare(node, &[&project("examples/esm/main.js")]);
    }
}

fn files_of_workers_and_children_are_those_of_strace(node: &Node) {
    compare(node, &[&project("examples/workers/main.js"), "3"]);
    compare(node, &[&project("examples/children/main.js")]);
}

/// Descriptors that a child inherits, or whose numbers are given again at once by other threads.
fn a_descriptor_has_the_path_of_what_it_is(node: &Node) {
    let folder = crate::support::folder();
    let place = |name: &str| folder.path().join(name).display().to_string();
    for i in 0..40 {
        std::fs::write(place(&format!("f{i}")), "x".repeat(i + 1)).expect("a file");
    }
    let child = crate::support::write(
        folder.path(),
        "child.js",
        "const fs = require('fs');
         const bytes = Buffer.alloc(100);
         for (let i = 0; i < 3; i++) fs.readSync(0, bytes, 0, 100, 0);
         fs.readSync(4, bytes, 0, 100, 0);
         try { fs.readSync(5, bytes, 0, 100, 0); } catch {}",
    );
    let script = crate::support::write(
        folder.path(),
        "main.js",
        "const fs = require('fs');
         const file = (n) => `${process.argv[2]}/f${n}`;
         const { spawnSync } = require('child_process');
         const given = fs.openSync(file(7)), other = fs.openSync(file(9));
         spawnSync(process.execPath, [process.argv[3]], { stdio: [given, 1, 2, 'ignore', other] });
         // By four threads of the pool and the main one.
         let left = 2000;
         const one = () => { if (left-- > 0) fs.readFile(file(left % 20), one); };
         for (let i = 0; i < 8; i++) one();
         let n = 0;
         (function here() {
           for (let i = 0; i < 20; i++) fs.readFileSync(file(20 + n++ % 20));
           if (left > 0) setImmediate(here);
         })();",
    );
    let here = folder.path().display().to_string();
    let traced = trace(
        &["--families", "files"],
        node.command([&script, &here, &child]),
    );
    let recording = Recording::load(&traced.recording).expect("a recording");
    let path = |file: &FileAccess| String::from_utf8_lossy(recording.name(file.path)).into_owned();
    let of = |root: bool| {
        let files = recording.files.iter();
        files.filter(move |file| (file.process.0 == 0) == root)
    };
    // A file has one byte more than its number: what was read tells which it was.
    let mut reads = BTreeMap::new();
    for file in of(true).filter(|file| file.operation == FileOperation::Read) {
        let path = path(file);
        if let Some(number) = path
            .strip_prefix(&place("f"))
            .and_then(|n| n.parse::<i64>().ok())
        {
            assert!(
                [0, number + 1].contains(&file.result),
                "{path}: {} bytes",
                file.result
            );
            *reads.entry(number).or_insert(0u64) += u64::from(file.result > 0);
        }
    }
    assert_eq!(reads.len(), 40, "{reads:?}");
    assert_eq!(reads.range(..20).map(|(_, n)| n).sum::<u64>(), 2_000);
    // What no open has made: standard streams, pipes, descriptors of the event loop.
    let without = of(true).filter(|file| file.operation == FileOperation::Close);
    let without: Vec<String> = without.map(path).filter(|p| p.starts_with("fd:")).collect();
    assert!(without.len() < 60, "{}: {without:?}", without.len());
    let inherited = |number: u64| {
        let name = place(&format!("f{number}"));
        let reads = of(false).filter(|file| file.operation == FileOperation::Read);
        reads.filter(|file| path(file) == name).count()
    };
    assert_eq!((inherited(7), inherited(9)), (3, 1));
}

fn compare(node: &Node, arguments: &[&str]) -> Option<Traced> {
    if !has_tool("strace") {
        return None;
    }
    let program = node.command(arguments);
    let traced = trace(&[], &program);
    let (mut ours, mut theirs) = (traced.file_operations(), strace(&program));
    // The report adds up what the recording holds.
    for operation in ["stat", "open", "read", "readlink", "access", "close"] {
        let reported = number(&traced.run["files"][operation]["calls"]);
        assert_eq!(reported, total(&ours, operation), "{operation}");
    }
    // V8 maps its own code from the executable again, if it lies too far from where the heap came to be.
    let executable = std::fs::canonicalize(&node.path).expect("the build");
    for operations in [&mut ours, &mut theirs] {
        operations.retain(|(_, path), _| Path::new(path) != executable);
    }

    let differences: Vec<String> = repeatable(&ours)
        .keys()
        .chain(repeatable(&theirs).keys())
        .filter(|key| ours.get(key) != theirs.get(key))
        .map(|key| {
            format!(
                "{} {}: {:?} and strace's {:?}",
                key.0,
                key.1,
                ours.get(key),
                theirs.get(key)
            )
        })
        .collect();
    assert!(differences.is_empty(), "{program:?}: {differences:#?}");

    let package_json = &traced.run["package_json"];
    for (figure, operation) in [("opens", "open"), ("stats", "stat"), ("reads", "read")] {
        let by_path: BTreeMap<&str, u64> = list(&package_json["files"])
            .iter()
            .map(|file| (text(&file["path"]), number(&file[figure])))
            .filter(|(_, count)| *count > 0)
            .collect();
        let expected: BTreeMap<&str, u64> = theirs
            .iter()
            .filter(|((o, path), _)| *o == operation && path.ends_with("/package.json"))
            .map(|((_, path), count)| (path.as_str(), *count))
            .collect();
        assert_eq!(by_path, expected, "{program:?}: {figure}");
        assert_eq!(
            number(&package_json[figure]),
            expected.values().sum::<u64>(),
            "{figure}"
        );
    }
    Some(traced)
}

/// Operations that are the same in every run: not those of the allocator and the threads (/proc, /sys, eventfd), and those on
/// descriptors that have no path.
fn repeatable(operations: &FileOperations) -> FileOperations {
    operations
        .iter()
        .filter(|((_, path), _)| {
            path.starts_with('/')
                && !["/proc/", "/sys/", "/dev/"]
                    .iter()
                    .any(|p| path.starts_with(p))
        })
        .map(|(key, count)| (key.clone(), *count))
        .collect()
}

fn total(operations: &FileOperations, operation: &str) -> u64 {
    operations
        .iter()
        .filter(|((o, _), _)| *o == operation)
        .map(|(_, count)| count)
        .sum()
}
