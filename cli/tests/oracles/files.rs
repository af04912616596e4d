//! What the kernel saw, against strace.

use std::{collections::BTreeMap, path::Path};

use crate::support::{
    FileOperations, Node, Traced, has_packages, has_tool, list, npm_script, number, on_each_node,
    project, strace, text, trace,
};

on_each_node!(
    files_of_npm_are_those_of_strace,
    files_of_an_application_are_those_of_strace,
    files_of_es_modules_are_those_of_strace,
    files_of_workers_and_children_are_those_of_strace,
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
