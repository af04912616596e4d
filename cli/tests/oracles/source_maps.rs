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
    NODEPROF, Node, Trace, Traced, copy_program, folder, has_packages, has_tool, list, number,
    on_each_node, plain, project, text, trace, write,
};

on_each_node!(
    originals_are_those_that_node_prints,
    originals_of_code_made_in_memory_are_those_that_node_prints,
    what_packages_of_a_bundle_did_is_counted,
);

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
        are_those_that_node_prints(node, &["-r", &preload, &script], &[]);
    }
}

fn are_those_that_node_prints(node: &Node, arguments: &[&str], variables: &[(&str, &str)]) {
    let options = ["--enable-source-maps", "--no-opt"];
    let command = node.command(options.iter().chain(arguments));
    let mut trace = Trace::new::<&str, _>([], command);
    trace.command().envs(variables.iter().copied());
    let traced = trace.run();
    traced.succeeded();
    let recording = Recording::load(&traced.recording).expect("a recording");
    let mut compared = 0;
    for line in traced.stdout().lines() {
        let printed: Value = serde_json::from_str(line).expect("JSON");
        let marker = text(&printed["marker"]);
        let expected: Vec<&str> = list(&printed["at"]).iter().map(text).collect();
        let found = callers(&recording, &format!("/no/such/marker/{marker}"));
        let what = format!("{marker} of {arguments:?} on {}", node.version);
        assert_eq!(found, expected, "{what}");
        compared += expected.len();
    }
    // main; area and main; check, area and main …: each also from map's callback.
    assert!(compared >= 10, "{compared} positions of {arguments:?}");
}

/// Loads files of the test as loaders do that transpile in memory. `LOADER_EXTENSION`: of which files; `LOADER_EVALUATES`: not as modules of Node's, but by `eval`, with a
/// name of their own.
const LOADER: &str = r"
const { readFileSync } = require('fs');
const { extname } = require('path');
const ts = require(process.env.LOADER_TYPESCRIPT);
const extension = process.env.LOADER_EXTENSION;
const usual = require.extensions[extension];
require.extensions[extension] = (module, file) => {
  if (!file.includes('/source-maps/src/')) return usual(module, file);
  const compilerOptions = { module: 'commonjs', target: 'es2020', inlineSourceMap: true };
  let { outputText } = ts.transpileModule(readFileSync(file, 'utf8'), { compilerOptions, fileName: file });
  if (!process.env.LOADER_EVALUATES) return module._compile(outputText, file);
  const body = (0, eval)(`(function (exports, require) {${outputText}\n})\n//# sourceURL=${file}\n`);
  body(module.exports, (name) => require(name.replace('./lib', file.replace('main.ts', 'lib'))));
};
";

/// tsx, ts-node and Babel's register run what is in no file, with its map in it.
fn originals_of_code_made_in_memory_are_those_that_node_prints(node: &Node) {
    if !has_packages("bench/subjects") {
        return;
    }
    let folder = folder();
    let top = fs::canonicalize(folder.path()).expect("a folder");
    let preload = write(&top, "preload.js", PRELOAD);
    let loader = write(&top, "loader.js", LOADER);
    for (extension, evaluates) in [("ts", false), ("js", false), ("ts", true)] {
        // Node 16 does not read the maps of evaluated code.
        if evaluates && node.major() < 18 {
            continue;
        }
        let source = top.join(extension).join("source-maps/src");
        for file in ["main", "lib/shapes"] {
            let text = fs::read_to_string(project(&format!("{DATA}/src/{file}.ts")));
            write(
                &source,
                &format!("{file}.{extension}"),
                &text.expect("a source"),
            );
        }
        let main = source.join(format!("main.{extension}"));
        let extension = format!(".{extension}");
        let typescript = project("bench/subjects/node_modules/typescript");
        let mut variables = vec![
            ("LOADER_TYPESCRIPT", typescript.as_str()),
            ("LOADER_EXTENSION", &extension),
        ];
        variables.extend(evaluates.then_some(("LOADER_EVALUATES", "1")));
        let main = main.to_str().expect("UTF-8");
        are_those_that_node_prints(node, &["-r", &preload, "-r", &loader, main], &variables);
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

/// A package of the test, bundled with others: its folder, what its module's name in that of a requirer is, and what it does.
struct Bundled {
    folder: &'static str,
    requires: &'static [&'static str],
    crossings: u64,
    stats: u64,
}

/// Calls of `fs.promises` that the program's own file waits for, one after the other.
const AWAITED: u64 = 50;

/// The program's own files, nested and scoped packages, two of one name.
const BUNDLED: &[Bundled] = &[
    Bundled {
        folder: "",
        requires: &["plain", "@scope/inner"],
        crossings: 40,
        stats: 0,
    },
    Bundled {
        folder: "node_modules/plain",
        requires: &["dup"],
        crossings: 700,
        stats: 3,
    },
    Bundled {
        folder: "node_modules/plain/node_modules/dup",
        requires: &[],
        crossings: 220,
        stats: 0,
    },
    Bundled {
        folder: "node_modules/@scope/inner",
        requires: &["dup"],
        crossings: 0,
        stats: 300,
    },
    Bundled {
        folder: "node_modules/dup",
        requires: &[],
        crossings: 110,
        stats: 20,
    },
];

/// Writes the packages, as ES modules or for `require`; gives the main script. What a module does is done by its body and by a function of it.
fn write_bundled(top: &Path, es_modules: bool) -> String {
    for package in BUNDLED {
        let at = top.join(package.folder);
        let name = package.folder.rsplit("node_modules/").next();
        let name = name.filter(|name| !name.is_empty()).unwrap_or("app");
        let kind = if es_modules { "module" } else { "commonjs" };
        let manifest = format!(r#"{{"name":{name:?},"type":"{kind}","main":"index.js"}}"#);
        write(&at, "package.json", &manifest);
        let fetch = |name: &str| match es_modules {
            true => format!("import {name:?};\n"),
            false => format!("require({name:?});\n"),
        };
        let needs: String = package.requires.iter().map(|name| fetch(name)).collect();
        let fs = match es_modules {
            true => "import { promises, statSync } from 'fs';\n",
            false => "const { promises, statSync } = require('fs');\n",
        };
        let Bundled {
            crossings, stats, ..
        } = package;
        // What Node does for it after each `await` has no function of it on the stack.
        let asks = match package.folder {
            "" => format!(
                "(async () => {{ for (let i = 0; i < {AWAITED}; i++) await promises.stat(process.execPath); }})();\n"
            ),
            _ => String::new(),
        };
        let body = format!(
            "{fs}{needs}\
             function call(times) {{ for (let i = 0; i < times; i++) process.uptime(); }}\n\
             if (process.env.WORK) {{\n\
               call({crossings} / 2);\n\
               for (let i = 0; i < {crossings} / 2; i++) process.uptime();\n\
               for (let i = 0; i < {stats}; i++) statSync(process.execPath);\n\
               {asks}\
             }}\n"
        );
        write(&at, "index.js", &body);
    }
    top.join("index.js").to_str().expect("UTF-8").to_owned()
}

/// Makes one script of the packages; gives it.
fn bundle(top: &Path, main: &str, bundler: &str) -> PathBuf {
    let folder = top.join("out").join(bundler);
    fs::create_dir_all(&folder).expect("a folder");
    let to = folder.join("out.js");
    let (tool, how) = bundler.split_once(", ").unwrap_or((bundler, ""));
    let mut command = Command::new(project(&format!("bench/subjects/node_modules/.bin/{tool}")));
    let command = plain(&mut command);
    match tool {
        "esbuild" => {
            command.args([main, "--bundle", "--platform=node"]);
            command.arg(format!("--outfile={}", to.display()));
            command.arg(match how {
                "minified" => "--sourcemap=inline",
                "" => "--sourcemap",
                // The script does not name it.
                how => how,
            });
            command.args((how == "minified").then_some("--minify"));
        }
        "webpack" => {
            let mode = if how.starts_with("eval") {
                "development"
            } else {
                "production"
            };
            let devtool = if how.is_empty() { "source-map" } else { how };
            let configuration = format!(
                "module.exports = {{ mode: '{mode}', target: 'node', devtool: '{devtool}', entry: {main:?},\n\
                 output: {{ path: {folder:?}, filename: 'out.js' }} }};\n"
            );
            let configuration = write(&folder, "webpack.config.cjs", &configuration);
            command.args(["--config", &configuration]);
        }
        _ => {
            // Rollup itself does not look into node_modules.
            let configuration = format!(
                "const {{ existsSync }} = require('fs');\n\
                 const {{ dirname, join }} = require('path');\n\
                 const find = (name, from) => {{\n\
                   for (let at = dirname(from); ; at = dirname(at)) {{\n\
                     const file = join(at, 'node_modules', name, 'index.js');\n\
                     if (existsSync(file)) return file;\n\
                     if (at === '/') return null;\n\
                   }}\n\
                 }};\n\
                 module.exports = {{ input: {main:?}, external: ['fs'],\n\
                   plugins: [{{ resolveId: (name, from) => (from && name !== 'fs' ? find(name, from) : null) }}],\n\
                   output: {{ file: {to:?}, format: 'es', sourcemap: true }} }};\n"
            );
            let configuration = write(&folder, "rollup.config.cjs", &configuration);
            command.args(["--silent", "-c", &configuration]);
        }
    }
    let output = command
        .current_dir(&folder)
        .output()
        .expect("a bundler starts");
    assert!(output.status.success(), "{bundler}: {output:?}");
    to
}

fn what_packages_of_a_bundle_did_is_counted(node: &Node) {
    if !has_packages("bench/subjects") {
        return;
    }
    for (bundler, es_modules) in [
        ("esbuild", false),
        ("esbuild, minified", false),
        ("esbuild, --sourcemap=external", false),
        ("webpack", false),
        ("webpack, hidden-source-map", false),
        ("webpack, eval", false),
        ("webpack, eval-source-map", false),
        ("rollup", true),
    ] {
        let folder = folder();
        let top = fs::canonicalize(folder.path()).expect("a folder");
        let main = write_bundled(&top, es_modules);
        let script = bundle(&top, &main, bundler);
        let of = |work: bool| {
            let mut trace = Trace::new::<&str, _>([], node.command([&script]));
            if work {
                trace.command().env("WORK", "1");
            }
            let traced = trace.run();
            traced.succeeded();
            traced.lost_nothing();
            traced
        };
        let (idle, traced) = (of(false), of(true));
        // By folder below the program's.
        let field = |traced: &Traced, folder: &str, field: &str| {
            let rows = list(&traced.run["bundled_packages"]).iter();
            let mut of_folder = rows.filter(|row| match row["directory"].as_str() {
                None => folder.is_empty(),
                Some(directory) => {
                    let inside = directory.strip_suffix(folder);
                    !folder.is_empty()
                        && inside.is_some_and(|rest| !rest.contains("/node_modules/"))
                }
            });
            let found = of_folder.next().map(|row| number(&row[field]));
            assert!(of_folder.next().is_none(), "two are {folder}");
            found
        };
        let more = |folder: &str, name: &str| {
            let with = field(&traced, folder, name);
            let with = with.unwrap_or_else(|| panic!("{bundler} on {}: no {folder}", node.version));
            with - field(&idle, folder, name).unwrap_or_default()
        };
        // Crossings of one stat: as many as Node makes.
        let inner = &BUNDLED[3];
        let per_stat = more(inner.folder, "crossings") / inner.stats;
        assert!((1..=3).contains(&per_stat), "{per_stat} crossings a stat");
        for package in BUNDLED {
            let what = format!("{:?} by {bundler} on {}", package.folder, node.version);
            assert_eq!(
                more(package.folder, "stats"),
                package.stats,
                "stats: {what}"
            );
            let crossings = package.crossings + per_stat * package.stats;
            let found = more(package.folder, "crossings");
            match package.folder {
                "" => assert!(found >= crossings + AWAITED, "{found} crossings: {what}"),
                _ => assert_eq!(found, crossings, "crossings: {what}"),
            }
        }
        // All that the bundle's functions did is some package's, none is told twice.
        let modules = list(&traced.run["modules"]).iter();
        let bundle: Vec<&Value> = modules
            .filter(|module| Path::new(text(&module["path"])) == script)
            .collect();
        let sum = |list_of: &str, field: &str| -> u64 {
            let rows = list(&traced.run[list_of]).iter();
            rows.map(|row| number(&row[field])).sum()
        };
        for field in ["crossings", "stats", "serializations"] {
            let all = number(&bundle[0][field]);
            let by_package = sum("bundled_packages", field);
            assert_eq!(sum("sources", field), by_package, "{field} by {bundler}");
            assert!(
                by_package <= all && all - by_package <= all / 50,
                "{field} by {bundler} on {}: {by_package} of {all}",
                node.version
            );
        }
    }
}
