//! Applications that are one file with node (`node --experimental-sea-config`, `node --build-sea`): node's binary under another name, in another
//! place, with its headers moved.

use std::{fs, path::Path, process::Command};

use nodeprof_profile::{Recording, recording::FrameKind};

use crate::support::{Node, Trace, copy_program, folder, list, plain, project, text, write};

/// It has no folder of packages of its own: it loads those of the folder that it is told.
const APPLICATION: &str = "\
const load = require('node:module').createRequire(process.argv[2]);
load('one');
let up = 0;
for (let i = 0; i < 300; i++) up += process.uptime() > 0;
console.log(JSON.stringify([up, ...Object.keys(load.cache)]));
";

macro_rules! on_nodes {
    ($($test:ident $how:ident $version:literal)*) => {$(
        #[test]
        #[ignore = "needs root"]
        fn $test() {
            if let Some(node) = Node::find($version) {
                is_traced_as_node(&node, $how);
            }
        }
    )*};
}

on_nodes!(
    one_that_postject_made_is_traced_as_node_20 with_postject "20.20.2"
    one_that_postject_made_is_traced_as_node_22 with_postject "22.23.3"
    one_that_postject_made_is_traced_as_node_24 with_postject "24.21.0"
    one_that_postject_made_is_traced_as_node_26 with_postject "26.10.0"
    one_that_node_made_is_traced_as_node_26 by_itself "26.10.0"
);

/// Writes what a tool is told of the application, `output` among it.
fn configure(folder: &Path, output: &str) -> String {
    let options = serde_json::json!({
        "main": "application.js",
        "output": output,
        "disableExperimentalSEAWarning": true,
    });
    write(folder, "sea.json", &options.to_string())
}

fn run(folder: &Path, command: &mut Command) {
    let made = plain(command).current_dir(folder).output().expect("runs");
    assert!(made.status.success(), "{made:?}");
}

/// As Node's documentation says since 19.7: a copy of node into which postject puts the application. False if that is not there.
fn with_postject(node: &Node, folder: &Path) -> bool {
    let postject = project("bench/subjects/node_modules/postject/dist/cli.js");
    if !Path::new(&postject).is_file() {
        println!("skipped: bench/subjects has no postject; run make test");
        return false;
    }
    let config = configure(folder, "application.blob");
    run(
        folder,
        Command::new(&node.path).args(["--experimental-sea-config", &config]),
    );
    copy_program(&node.path, folder.join("application"));
    run(
        folder,
        Command::new(&node.path)
            .args([&postject, "application", "NODE_SEA_BLOB"])
            .args(["application.blob", "--sentinel-fuse"])
            .arg("NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2"),
    );
    true
}

/// From 25.5 on.
fn by_itself(node: &Node, folder: &Path) -> bool {
    let config = configure(folder, "application");
    run(
        folder,
        Command::new(&node.path).args(["--build-sea", &config]),
    );
    true
}

fn is_traced_as_node(node: &Node, make: fn(&Node, &Path) -> bool) {
    let folder = folder();
    let top = fs::canonicalize(folder.path()).expect("a folder");
    write(&top, "application.js", APPLICATION);
    write(&top, "node_modules/one/index.js", "require('./other.js');");
    write(&top, "node_modules/one/other.js", "");
    if !make(node, &top) {
        return;
    }
    let program = top.join("application").display().to_string();
    let told = format!("{}/", top.display());
    let traced = Trace::new::<&str, _>([], [program, told]).run();
    traced.succeeded();
    traced.lost_nothing();
    assert_eq!(
        traced.run["node"]["version"],
        format!("v{}", node.version).as_str()
    );

    let printed: Vec<serde_json::Value> = serde_json::from_str(&traced.stdout()).expect("JSON");
    let (up, loaded) = printed.split_first().expect("what it counted");
    assert_eq!(traced.calls(&["Uptime", "FastUptime"]), 300);
    assert_eq!(*up, 300);
    let names: Vec<String> = ["index.js", "other.js"]
        .map(|name| format!("{}/node_modules/one/{name}", top.display()))
        .into();
    assert_eq!(loaded, names);
    let modules = list(&traced.run["modules"]).iter();
    let of_package = modules.filter(|module| module["package"] == "one");
    let found: Vec<&str> = of_package.map(|module| text(&module["path"])).collect();
    assert_eq!(found, names);

    // Node loads the main script from itself.
    let mut modules = list(&traced.run["modules"]).iter();
    let main = modules.find(|module| module["main_script"] == true);
    let main = main.expect("a main script");
    assert_eq!(main["kind"], "cjs", "{main}");
    assert_eq!(main["loads"], 1, "{main}");

    // All of node's own code on the stacks of crossings has its name.
    let recording = Recording::load(&traced.recording).expect("a recording");
    let (mut named, mut all) = (0, 0);
    for stack in recording.crossings.iter().filter_map(|call| call.stack) {
        let mut native = 0;
        for frame in recording.frames_of(stack) {
            if frame.kind == FrameKind::Native {
                let name = recording.name(frame.function);
                assert!(!name.is_empty(), "{frame:?}");
                native += 1;
            }
            assert_ne!(frame.kind, FrameKind::Unknown, "{frame:?}");
        }
        all += 1;
        named += usize::from(native > 0);
    }
    assert!(all > 20 && named == all, "{named} of {all}");
}
