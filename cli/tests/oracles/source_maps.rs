//! Positions by source maps, against those that Node prints with `--enable-source-maps`.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use nodeprof_profile::{Recording, recording::FrameKind};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    NODEPROF, Node, Trace, copy_program, folder, has_tool, list, on_each_node, plain, project,
    text, trace, write,
};

on_each_node!(originals_are_those_that_node_prints);

const DATA: &str = "daemon/tests/data/source-maps";

/// Makes `console.assert(true, MARKER)` print where Node thinks its callers are, and stat a path that no other
/// call does.
const PRELOAD: &str = r"
const { statSync } = require('fs');
console.assert = (_, marker) => {
  const at = new Error().stack.split('\n').map((line) => /([^( ]*source-maps\/src\/[^ ]*:\d+:\d+)\)?$/.exec(line)?.[1]);
  statSync(`/no/such/marker/${marker}`, { throwIfNoEntry: false });
  console.log(JSON.stringify({ marker, at: at.filter(Boolean).map((place) => place.replace('file://', '')) }));
};
";

/// Original positions of the frames that called stat on this path, innermost first.
fn callers(recording: &Recording, path: &str) -> Vec<String> {
    let access = recording
        .files
        .iter()
        .find(|access| recording.name(access.path) == path.as_bytes())
        .unwrap_or_else(|| panic!("no stat of {path}"));
    let stack = access.stack.expect("a stack");
    recording
        .frames_of(stack)
        .filter_map(|frame| {
            let original = frame.original?;
            let file = String::from_utf8_lossy(recording.name(original.file));
            Some(format!("{file}:{}:{}", original.line, original.column))
        })
        .collect()
}

fn originals_are_those_that_node_prints(node: &Node) {
    let folder = folder();
    let preload = write(folder.path(), "preload.js", PRELOAD);
    for script in [
        "tsc/main.js",
        "tsc-inline/main.js",
        "esbuild/main.js",
        "esbuild-minified/main.js",
        "vite/main.mjs",
    ] {
        let script = project(&format!("{DATA}/out/{script}"));
        let command = node.command(["--enable-source-maps", "--no-opt", "-r", &preload, &script]);
        let traced = trace(&[], command);
        let recording = Recording::load(&traced.recording).expect("a recording");
        let mut compared = 0;
        for line in traced.stdout().lines() {
            let printed: Value = serde_json::from_str(line).expect("JSON");
            let marker = text(&printed["marker"]);
            let expected: Vec<&str> = list(&printed["at"]).iter().map(text).collect();
            let found = callers(&recording, &format!("/no/such/marker/{marker}"));
            assert_eq!(found, expected, "{marker} of {script} on {}", node.version);
            compared += expected.len();
        }
        // main; area and main; check, area and main …: each also from map's callback.
        assert!(compared >= 10, "{compared} positions of {script}");
    }
}

fn originals(recording: &Path) -> usize {
    let recording = Recording::load(recording).expect("a recording");
    let frames = recording.frames.iter();
    frames.filter(|frame| frame.original.is_some()).count()
}

#[test]
#[ignore = "needs root"]
fn without_source_maps_positions_are_those_of_the_scripts() {
    let Some(node) = Node::find("22.23.3") else {
        return;
    };
    let script = project(&format!("{DATA}/out/tsc/main.js"));
    let with = trace(&[], node.command([&script]));
    let without = trace(&["--no-source-maps"], node.command([&script]));
    assert!(
        originals(&with.recording) > 5,
        "{}",
        originals(&with.recording)
    );
    assert_eq!(originals(&without.recording), 0);
    let recording = Recording::load(&without.recording).expect("a recording");
    let placed = recording.frames.iter().filter(|frame| {
        let file = frame.file.map(|file| recording.name(file));
        frame.kind == FrameKind::JavaScript
            && file == Some(script.as_bytes())
            && frame.line.is_some()
    });
    assert!(placed.count() > 2);
}

/// A copy of node, a script and its maps where every user can read them, until the maps are closed to all but root.
struct Readable {
    folder: TempDir,
    maps: Vec<String>,
}

impl Readable {
    fn new(node: &Node) -> Self {
        let folder = folder();
        copy_program(&node.path, folder.path().join("node"));
        let maps = ["main.js", "lib/shapes.js"].map(|name| {
            let from = project(&format!("{DATA}/out/tsc/{name}"));
            let read = |path: &str| fs::read_to_string(path).expect("a file");
            write(folder.path(), name, &read(&from));
            write(
                folder.path(),
                &format!("{name}.map"),
                &read(&format!("{from}.map")),
            )
        });
        Self {
            folder,
            maps: maps.into(),
        }
    }

    fn command(&self) -> [PathBuf; 2] {
        ["node", "main.js"].map(|name| self.folder.path().join(name))
    }

    fn close(&self) {
        for map in &self.maps {
            fs::set_permissions(map, fs::Permissions::from_mode(0o600)).expect("permissions");
        }
    }
}

const NOBODY: &str = "65534";

/// The tracer is root; the user who typed sudo is not, and neither is what the recording tells.
#[test]
#[ignore = "needs root"]
fn a_map_that_the_user_behind_sudo_cannot_read_is_not_read() {
    let Some(node) = Node::find("22.23.3") else {
        return;
    };
    let files = Readable::new(&node);
    let run = || {
        let mut trace = Trace::new::<&str, _>([], files.command());
        trace.command().envs([
            ("SUDO_UID", NOBODY),
            ("SUDO_GID", NOBODY),
            ("SUDO_USER", "nobody"),
        ]);
        let traced = trace.run();
        traced.succeeded();
        originals(&traced.recording)
    };
    assert!(run() > 5, "anyone may read the maps");
    files.close();
    assert_eq!(run(), 0, "only root may read the maps");
}

/// One who traces with capabilities instead of root could read every file by one of them.
#[test]
#[ignore = "needs root"]
fn a_map_that_only_a_capability_opens_is_not_read() {
    const NEEDED: &str = "+bpf,+perfmon,+dac_read_search,+sys_ptrace";
    let Some(node) = Node::find("22.23.3") else {
        return;
    };
    if !has_tool("setpriv") {
        return;
    }
    let files = Readable::new(&node);
    let nodeprof = files.folder.path().join("nodeprof");
    copy_program(NODEPROF, &nodeprof);
    let own = files.folder.path().join("own");
    fs::create_dir(&own).expect("a folder");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).expect("permissions");
    let run = |name: &str| {
        let recording = own.join(name);
        let output = plain(&mut Command::new("setpriv"))
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
            .args(["--inh-caps", NEEDED, "--ambient-caps", NEEDED])
            .arg(&nodeprof)
            .args(["trace", "--quiet", "-o"])
            .arg(&recording)
            .arg("--")
            .args(files.command())
            .env("HOME", &own)
            .output()
            .expect("setpriv starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        originals(&recording)
    };
    assert!(run("open.nodeprof") > 5, "anyone may read the maps");
    files.close();
    assert_eq!(run("closed.nodeprof"), 0, "only root may read the maps");
}
