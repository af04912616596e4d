//! Modules, requirers and their costs, against what the programs themselves know.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use nodeprof_profile::Recording;
use serde_json::Value;

use crate::support::{
    Node, Trace, Traced, folder, has_packages, list, number, on_each_node, plain, project, text,
    trace, write,
};

on_each_node!(
    commonjs_modules_are_those_of_the_require_cache,
    es_modules_are_those_that_ran,
    es_modules_are_those_of_a_loader_hook,
    costs_of_packages_are_those_that_they_had,
    what_promises_go_on_with_is_of_the_package_that_asked,
    workers_have_modules_of_their_own,
);
on_each_node!(
    a_module_that_cannot_be_compiled_is_what_its_name_says,
    what_node_does_about_uncaught_exceptions_is_told_apart,
);
on_each_node!(
    hooks_require_nothing_of_what_they_pass_on,
    what_hooks_on_a_thread_find_is_of_who_asked_them,
    of_two_imports_at_once_the_first_one_is_the_requirer,
    a_module_does_not_start_before_its_requirer_or_its_file_is_looked_for,
    code_of_one_name_is_of_the_package_that_runs_it,
    who_reads_a_modules_file_later_does_not_load_it,
    loads_are_how_often_a_module_was_loaded,
    what_was_looked_for_in_vain_is_no_part_of_what_is_loaded_next,
    what_an_es_module_imports_is_its_however_it_is_loaded,
    json_that_is_imported_is_a_module_by_its_url,
    parsing_json_that_is_imported_is_of_its_module,
    taking_the_types_out_of_a_module_is_of_that_module,
    a_package_json_that_is_required_is_not_what_is_looked_at_for_each_module,
    who_asks_for_a_module_in_a_url_requires_it,
    add_ons_are_loaded_as_often_as_they_are_asked_for,
);

/// Traces a program of the files in a folder; gives the folder, too.
fn trace_files(node: &Node, files: &[(&str, &str)], arguments: &[&str]) -> (Traced, String) {
    let folder = folder();
    let top = fs::canonicalize(folder.path()).expect("a folder");
    for (name, text) in files {
        write(&top, name, text);
    }
    let trace = Trace::new::<&str, _>([], node.command(arguments)).in_folder(&top);
    let traced = trace.run();
    traced.succeeded();
    traced.lost_nothing();
    (traced, top.to_str().expect("UTF-8").to_owned())
}

/// That modules of a folder have these requirers.
fn check_requirers(traced: &Traced, top: &str, expected: &[(&str, Option<&str>)]) {
    let found = modules(traced);
    for (name, requirer) in expected {
        let expected = requirer.map(|requirer| format!("{top}/{requirer}"));
        let found = found.get(&format!("{top}/{name}"));
        assert_eq!(found, Some(&expected), "requirer of {name}");
    }
}

fn of_two_imports_at_once_the_first_one_is_the_requirer(node: &Node) {
    let files = [
        (
            "main.mjs",
            "import './asks.mjs';\nimport './first.mjs';\nimport './second.mjs';",
        ),
        (
            // Loads nothing. The second is not there in all versions.
            "asks.mjs",
            "import { createRequire } from 'node:module';\n\
             createRequire(import.meta.url).resolve('./x.mjs');\n\
             import.meta.resolve?.('./x.mjs');",
        ),
        ("first.mjs", "import('./x.mjs');"),
        ("second.mjs", "import('./x.mjs');"),
        ("x.mjs", ""),
    ];
    let (traced, top) = trace_files(node, &files, &["main.mjs"]);
    let expected = [
        ("first.mjs", Some("main.mjs")),
        ("second.mjs", Some("main.mjs")),
        ("x.mjs", Some("first.mjs")),
    ];
    check_requirers(&traced, &top, &expected);
}

fn code_of_one_name_is_of_the_package_that_runs_it(node: &Node) {
    let package = |times: u32| {
        format!(
            "const run = require('vm').runInThisContext(\n\
               '(fs) => {{ for (let i = 0; i < {times}; i++) fs.existsSync(\"/nowhere\"); }}');\n\
             run(require('fs'));"
        )
    };
    let [one, two] = [3000, 2000].map(package);
    let files = [
        (
            "main.cjs",
            "require('vm');\nrequire('one');\nrequire('two');",
        ),
        ("node_modules/one/index.js", one.as_str()),
        ("node_modules/two/index.js", two.as_str()),
    ];
    let (traced, _) = trace_files(node, &files, &["main.cjs"]);
    for (name, times) in [("one", 3000), ("two", 2000)] {
        let packages = list(&traced.run["packages"]).iter();
        let package = packages.filter(|package| package["name"] == name);
        let crossings: Vec<u64> = package.map(|p| number(&p["crossings"])).collect();
        // Besides the calls of the code: what compiles it, and looks for modules.
        assert!(
            matches!(crossings[..], [found] if (times..times + 500).contains(&found)),
            "{crossings:?} crossings of {name}"
        );
    }
}

fn who_reads_a_modules_file_later_does_not_load_it(node: &Node) {
    let files = [
        (
            "main.mjs",
            "import './read.mjs';\nimport './read.cjs';\nimport fs from 'node:fs';\n\
             let left = 60;\n\
             (function next() {\n\
               if (left-- > 0) fs.readFile(left % 2 ? './read.mjs' : './read.cjs', next);\n\
             })();",
        ),
        ("read.mjs", ""),
        ("read.cjs", ""),
    ];
    let (traced, top) = trace_files(node, &files, &["main.mjs"]);
    for name in ["read.mjs", "read.cjs"] {
        let path = format!("{top}/{name}");
        let module = list(&traced.run["modules"])
            .iter()
            .find(|module| module["path"] == path.as_str());
        let module = module.unwrap_or_else(|| panic!("no {path}"));
        let opens = number(&module["loading"]["opens"]);
        // Some versions read a CommonJS module that is imported twice.
        assert!((1..=2).contains(&opens), "{opens} opens of {name}");
    }
    let outside = list(&traced.run["outside"]).iter();
    let helpers = outside.filter(|o| o["bucket"] == "helper_threads");
    let opens: u64 = helpers.map(|o| number(&o["opens"])).sum();
    assert!(opens >= 60, "{opens} opens by helper threads");
}

/// What is imported long after something else, too.
fn a_module_does_not_start_before_its_requirer_or_its_file_is_looked_for(node: &Node) {
    let files = [
        (
            "main.mjs",
            "await new Promise((go) => setTimeout(go, 100));\nawait import('./two.mjs');",
        ),
        ("two.mjs", "import './three.mjs';\nimport './four.mjs';"),
        ("three.mjs", "export {};"),
        ("four.mjs", "import './five.mjs';"),
        ("five.mjs", "export {};"),
    ];
    let (traced, top) = trace_files(node, &files, &["main.mjs"]);
    let recording = Recording::load(&traced.recording).expect("a recording");
    let exec = recording.processes[0].execs.last().expect("an exec").at.0;
    let start = |name: &str| {
        let path = format!("{top}/{name}");
        let mut modules = program_modules(&traced);
        let module = modules.find(|module| text(&module["path"]) == path);
        let start = module.and_then(|module| module["start_ns"].as_u64());
        exec + start.unwrap_or_else(|| panic!("no start of {name}"))
    };
    // What is done with the files of the modules, in the order of time.
    let mut accesses: Vec<(u64, &str)> = { recording.files.iter() }
        .filter_map(|access| {
            let path = std::str::from_utf8(recording.name(access.path)).ok()?;
            let name = path.strip_prefix(&top)?.strip_prefix('/')?;
            let is_module = files.iter().any(|(module, _)| *module == name);
            is_module.then_some((access.start.0, name))
        })
        .collect();
    accesses.sort_unstable();
    let requirers = ["main.mjs", "two.mjs", "two.mjs", "four.mjs"];
    for ((name, _), requirer) in files[1..].iter().zip(requirers) {
        let (at, before) = (start(name), start(requirer));
        assert!(at >= before, "{name} at {at}, {requirer} at {before}");
        // Its own file comes next, whatever was done before.
        let next = accesses.iter().find(|(access, _)| *access >= at);
        assert_eq!(next.map(|(_, of)| *of), Some(*name), "{at}: {accesses:?}");
    }
}

/// A loop that asks another module's function for files that are not there, and then for one that is, by one and the same call.
fn what_was_looked_for_in_vain_is_no_part_of_what_is_loaded_next(node: &Node) {
    let files = [
        (
            "main.js",
            "const fs = require('fs');
             const { load } = require('./load.js');
             for (let i = 0; i < 200; i++) {
               load(i === 199 ? './found.js' : `./none${i}.js`);
               fs.existsSync('/');
             }",
        ),
        (
            "load.js",
            "exports.load = (name) => { try { return require(name); } catch { return 0; } };",
        ),
        ("found.js", "exports.found = true;"),
    ];
    let (traced, top) = trace_files(node, &files, &["main.js"]);
    let module = |name: &str| {
        let path = format!("{top}/{name}");
        let mut modules = program_modules(&traced);
        let module = modules.find(|module| text(&module["path"]) == path);
        module.unwrap_or_else(|| panic!("no {name}"))
    };
    let (load, found) = (module("load.js"), module("found.js"));
    // Each takes two system calls at least, and some of the compiler's time.
    assert!(number(&found["loading"]["crossings"]) < 60, "{found}");
    assert!(number(&load["crossings"]) > 199, "{load}");
    let (vain, resolve) = (number(&load["vain_ns"]), number(&found["resolve_ns"]));
    assert!(vain > 5 * resolve, "vain {vain}, resolve {resolve}");
}

fn loads_are_how_often_a_module_was_loaded(node: &Node) {
    let loaded = |traced: &Traced, name: &str| {
        let mut modules = program_modules(traced);
        let module = modules.find(|module| text(&module["path"]).ends_with(name));
        let module = module.unwrap_or_else(|| panic!("no {name}"));
        let kind = text(&module["kind"]).to_owned();
        (kind, number(&module["loads"]))
    };
    let files = [
        // What it is its syntax tells.
        ("main.mjs", "import './plain.js';\nimport './twice.cjs';"),
        ("plain.js", "exports.answer = 42;"),
        (
            "twice.cjs",
            "require('./again.cjs');\n\
             delete require.cache[require.resolve('./again.cjs')];\n\
             require('./again.cjs');",
        ),
        ("again.cjs", ""),
    ];
    let (traced, _) = trace_files(node, &files, &["main.mjs"]);
    assert_eq!(loaded(&traced, "/plain.js"), ("cjs".to_owned(), 1));
    assert_eq!(loaded(&traced, "/again.cjs"), ("cjs".to_owned(), 2));
    let (traced, _) = trace_files(node, &[], &["-e", "1 + 1"]);
    assert_eq!(loaded(&traced, "[eval]"), ("script".to_owned(), 1));
    // Nothing of what Node puts around it.
    assert_eq!(modules(&traced).into_keys().collect::<Vec<_>>(), ["[eval]"]);
    if node.major() < 18 {
        return;
    }
    let folder = folder();
    // The empty module: its magic number and version.
    fs::write(folder.path().join("empty.wasm"), b"\0asm\x01\0\0\0").expect("a file");
    write(folder.path(), "main.mjs", "import './empty.wasm';");
    let arguments: &[&str] = match node.major() {
        ..24 => &["--experimental-wasm-modules", "main.mjs"],
        _ => &["main.mjs"],
    };
    let trace = Trace::new::<&str, _>([], node.command(arguments)).in_folder(folder.path());
    let traced = trace.run();
    traced.succeeded();
    assert_eq!(loaded(&traced, "/empty.wasm"), ("wasm".to_owned(), 1));
}

fn what_an_es_module_imports_is_its_however_it_is_loaded(node: &Node) {
    let imported = 10;
    let names: Vec<String> = (0..imported)
        .map(|index| format!("node_modules/package/f{index}.mjs"))
        .collect();
    let imports = (0..imported).map(|index| format!("import './f{index}.mjs';\n"));
    let index: String = imports.collect();
    let manifest = r#"{"name":"package","exports":"./index.mjs"}"#;
    let mut files = vec![
        ("node_modules/package/package.json", manifest),
        ("node_modules/package/index.mjs", index.as_str()),
        ("static.mjs", "import 'package';"),
        ("dynamic.mjs", "await import('package');"),
        ("require.cjs", "require('package');"),
    ];
    files.extend(names.iter().map(|name| (name.as_str(), "")));
    let mut ways = vec!["static.mjs", "dynamic.mjs"];
    if node.major() >= 22 {
        ways.push("require.cjs");
    }
    for way in ways {
        let (traced, top) = trace_files(node, &files, &[way]);
        let path = format!("{top}/node_modules/package/index.mjs");
        let modules = list(&traced.run["modules"]);
        let module = modules.iter().find(|m| m["path"] == path.as_str());
        let module = module.unwrap_or_else(|| panic!("no {path}"));
        let required = modules.iter().filter(|m| m["requirer"] == path.as_str());
        assert_eq!(required.count(), imported, "{way}");
        let count = |what: &str| number(&module[what]) as usize;
        let operations = traced.file_operations();
        let opened = |path: &str| {
            let opens = operations.get(&("open", path.to_owned()));
            opens.copied().unwrap_or_default() as usize
        };
        for name in &names {
            assert_eq!(opened(&format!("{top}/{name}")), 1, "{name}, {way}");
        }
        // What libraries open at moments of their own, here or elsewhere: Abseil when two threads first want one of
        // its locks (Node 24 and newer), and the allocator when it gives memory back.
        let unasked = operations.iter().filter(|((operation, path), _)| {
            let by_abseil = path.starts_with("/sys/devices/system/cpu/");
            *operation == "open" && (by_abseil || path == "/proc/sys/vm/overcommit_memory")
        });
        let most = imported + unasked.map(|(_, count)| *count as usize).sum::<usize>();
        let opens = count("opens");
        assert!((imported..=most).contains(&opens), "{opens} opens, {way}");
        assert!(count("stats") >= 2 * imported, "stats, {way}");
        assert_eq!(text(&module["requirer"]), format!("{top}/{way}"));
    }
}

/// With and without queries, by statements and by `import()`: who reads the file, and when, differs between versions.
fn json_that_is_imported_is_a_module_by_its_url(node: &Node) {
    if node.major() < 18 {
        println!("skipped: no JSON modules without an option");
        return;
    }
    let files = [
        (
            "main.mjs",
            "import './a.json' with { type: 'json' };\n\
             import './a.json?x' with { type: 'json' };\n\
             import './b.json?y=1' with { type: 'json' };\n\
             import './other.mjs';\n\
             await import('./late.json', { with: { type: 'json' } });\n\
             await import('./late.json?1', { with: { type: 'json' } });\n\
             await import('data:application/json,{}', { with: { type: 'json' } });\n\
             await import('./late.json', { with: { type: 'json' } });",
        ),
        (
            "other.mjs",
            "import { createRequire } from 'node:module';\n\
             import { promises as fs } from 'node:fs';\n\
             createRequire(import.meta.url)('./required.json');\n\
             await fs.readFile('read.json');\n\
             await import('./none.json').catch(() => {});\n\
             await import('./others.json', { with: { type: 'json' } });",
        ),
        ("a.json", "{}"),
        ("b.json", "{}"),
        ("late.json", "{}"),
        ("none.json", "{}"),
        ("read.json", "{}"),
        ("others.json", "{}"),
        ("required.json", "{}"),
    ];
    let (traced, top) = trace_files(node, &files, &["--no-warnings", "main.mjs"]);
    let modules = program_modules(&traced).filter(|module| module["kind"] == "json");
    let found: BTreeSet<(String, u64, &str)> = modules
        .map(|module| {
            let query = module["query"].as_str().unwrap_or_default();
            let name = format!("{}{query}", text(&module["path"]));
            let name = name.trim_start_matches(&format!("{top}/")).to_owned();
            let requirer = module["requirer"].as_str().unwrap_or_default();
            (name, number(&module["loads"]), requirer)
        })
        .collect();
    let [main, other] = ["main.mjs", "other.mjs"].map(|name| format!("{top}/{name}"));
    let expected = [
        ("a.json", &main),
        ("a.json?x", &main),
        ("b.json?y=1", &main),
        ("data:application/json,{}", &main),
        ("late.json", &main),
        ("late.json?1", &main),
        ("others.json", &other),
        ("required.json", &other),
    ];
    let expected = expected.map(|(name, requirer)| (name.to_owned(), 1, requirer.as_str()));
    let mut expected = BTreeSet::from(expected);
    // Since 22 Node's main thread reads the file before it finds that the attribute is missing.
    if node.major() >= 22 {
        expected.insert(("none.json".to_owned(), 1, other.as_str()));
    }
    assert_eq!(found, expected);
}

fn parsing_json_that_is_imported_is_of_its_module(node: &Node) {
    if node.major() < 18 {
        println!("skipped: no JSON modules without an option");
        return;
    }
    let rows: Vec<String> = (0..100_000)
        .map(|i| format!(r#"{{"id":{i},"name":"name{i}","list":[{i},1,2,3]}}"#))
        .collect();
    let json = format!("[{}]", rows.join(","));
    let files = [
        (
            "main.mjs",
            "import './before.mjs';\n\
             import './big.json' with { type: 'json' };\n\
             import './after.mjs';",
        ),
        ("before.mjs", ""),
        ("after.mjs", ""),
        ("big.json", json.as_str()),
    ];
    let (traced, top) = trace_files(node, &files, &["--no-warnings", "main.mjs"]);
    let time = |name: &str, step: &str| -> u64 {
        let path = format!("{top}/{name}");
        let mut all = program_modules(&traced);
        let module = all.find(|module| module["path"] == path.as_str());
        number(&module.unwrap_or_else(|| panic!("no {name}"))[step])
    };
    let parsed = time("big.json", "execute_ns");
    let loader = list(&traced.run["outside"]).iter();
    let loader = loader.filter(|outside| outside["bucket"] == "loader");
    let loader: u64 = loader.map(|outside| number(&outside["time_ns"])).sum();
    assert!(parsed > 10_000_000, "{parsed} ns to parse");
    assert!(
        parsed > 3 * loader,
        "{parsed} ns to parse, {loader} nobody's"
    );
    for name in ["before.mjs", "after.mjs"] {
        let own = time(name, "self_ns");
        assert!(own < parsed, "{name} has {own} ns, parsing {parsed}");
    }
}

fn taking_the_types_out_of_a_module_is_of_that_module(node: &Node) {
    if node.major() < 22 {
        println!("skipped: no TypeScript without a loader");
        return;
    }
    // What takes the types out is loaded for the first one, and that has the most of them.
    let types = |count: usize| -> String {
        let types = (0..count).map(|i| format!("type T{i} = {{ a: number, b: T{i}[] }};\n"));
        types.collect()
    };
    let first = format!("import './b.mts';\n{}", types(20_000));
    let files = [
        ("a.mts", first.as_str()),
        ("b.mts", "import './c.mts';\nconst b: number = 1;"),
        ("c.mts", "const c: number = 1;"),
    ];
    let arguments = ["--no-warnings", "--experimental-strip-types", "a.mts"];
    let (traced, top) = trace_files(node, &files, &arguments);
    let [a, b, c] = ["a.mts", "b.mts", "c.mts"].map(|name| {
        let path = format!("{top}/{name}");
        let mut all = program_modules(&traced);
        let module = all.find(|module| module["path"] == path.as_str());
        let module = module.unwrap_or_else(|| panic!("no {name}"));
        number(&module["resolve_ns"]) + number(&module["read_ns"])
    });
    assert!(a > 2 * (b + c), "{a} ns before a.mts, {b} b.mts, {c} c.mts");
}

fn a_package_json_that_is_required_is_not_what_is_looked_at_for_each_module(node: &Node) {
    const MODULES: usize = 100;
    let requires = |from: usize| -> String {
        let numbers = from..from + MODULES / 2;
        numbers.map(|i| format!("require('./m{i}');\n")).collect()
    };
    let (first, second) = (requires(0), requires(MODULES / 2));
    let index = format!("{first}require('./more/');");
    let second = second.replace("./m", "../m");
    let main = "require('pkg');\nrequire('pkg/package.json');\nrequire('fs').statSync('.');";
    let mut files = vec![
        ("main.cjs".to_owned(), main.to_owned()),
        (
            "main.mjs".to_owned(),
            "import { createRequire } from 'node:module';\n\
             import 'pkg';\n\
             createRequire(import.meta.url)('pkg/package.json');"
                .to_owned(),
        ),
        (
            "node_modules/pkg/package.json".to_owned(),
            r#"{"name":"pkg","version":"1.2.3"}"#.to_owned(),
        ),
        ("node_modules/pkg/index.js".to_owned(), index),
        ("node_modules/pkg/more/index.js".to_owned(), second),
    ];
    files.extend((0..MODULES).map(|i| {
        let name = format!("node_modules/pkg/m{i}.js");
        (name, "module.exports = 1;".to_owned())
    }));
    let files: Vec<(&str, &str)> = { files.iter() }
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    for main in ["main.cjs", "main.mjs"] {
        let (traced, top) = trace_files(node, &files, &[main]);
        let of = |name: &str| -> &Value {
            let path = format!("{top}/{name}");
            let mut all = program_modules(&traced);
            let module = all.find(|module| module["path"] == path.as_str());
            module.unwrap_or_else(|| panic!("no {name}"))
        };
        let json = of("node_modules/pkg/package.json");
        assert_eq!(json["kind"], "json");
        // As its requirer's: from where it stands up to the root, and some that all versions do.
        let stats = number(&json["loading"]["stats"]);
        assert!(stats < 12, "{stats} stats to load package.json in {main}");
        let start = |module: &Value| module["start_ns"].as_i64().expect("it was loaded");
        let last = of(&format!("node_modules/pkg/m{}.js", MODULES - 1));
        assert!(start(json) > start(last), "package.json in {main}");
    }
}

fn who_asks_for_a_module_in_a_url_requires_it(node: &Node) {
    let files = [
        (
            "main.mjs",
            "import './first.mjs';\nimport './second.mjs';\nawait import('node:os');",
        ),
        ("first.mjs", "await import('data:text/javascript,1');"),
        (
            "second.mjs",
            "import('data:text/javascript,2');\n\
             import('data:text/javascript,3');\n\
             setTimeout(() => import('data:text/javascript,import \"data:text/javascript,5\"//4'), 2);",
        ),
    ];
    let (traced, top) = trace_files(node, &files, &["main.mjs"]);
    let found = modules(&traced);
    let [first, second] = ["first.mjs", "second.mjs"].map(|name| format!("{top}/{name}"));
    let fourth = "data:text/javascript,import \"data:text/javascript,5\"//4".to_owned();
    for (name, requirer) in [
        ("data:text/javascript,1", &first),
        ("data:text/javascript,2", &second),
        ("data:text/javascript,3", &second),
        (fourth.as_str(), &second),
        ("data:text/javascript,5", &fourth),
    ] {
        assert_eq!(found.get(name), Some(&Some(requirer.clone())), "{name}");
    }
}

/// Whether or not the process has them already, and looks for their files.
fn add_ons_are_loaded_as_often_as_they_are_asked_for(node: &Node) {
    let folder = folder();
    let top = fs::canonicalize(folder.path()).expect("a folder");
    write(
        &top,
        "empty.c",
        "void *napi_register_module_v1(void *env, void *exports) { return exports; }",
    );
    for name in ["a.node", "b.node", "c.node"] {
        let mut cc = std::process::Command::new("cc");
        cc.args(["-shared", "-fPIC", "empty.c", "-o", name])
            .current_dir(&top);
        assert!(cc.status().expect("cc").success());
    }
    write(
        &top,
        "main.js",
        "const { Worker, isMainThread } = require('worker_threads');\n\
         const again = (name) => { delete require.cache[require.resolve(name)]; require(name); };\n\
         const open = (name) => process.dlopen({ exports: {} }, `${__dirname}/${name}`);\n\
         require('./a.node');\n\
         if (isMainThread) {\n\
           require('./b.node');\n\
           for (let i = 0; i < 3; i++) again('./a.node');\n\
           again('./b.node');\n\
           for (const name of ['b.node', 'a.node', 'b.node']) open(name);\n\
           const start = (left) => left && new Worker(__filename).on('exit', () => start(left - 1));\n\
           start(3);\n\
         } else {\n\
           open('b.node');\n\
           require('./c.node');\n\
           again('./c.node');\n\
         }",
    );
    let traced = Trace::new::<&str, _>([], node.command(["main.js"])).in_folder(&top);
    let traced = traced.run();
    traced.succeeded();
    traced.lost_nothing();
    let mut loads: BTreeMap<u64, BTreeMap<&str, u64>> = BTreeMap::new();
    for module in program_modules(&traced).filter(|module| module["kind"] == "addon") {
        let name = text(&module["path"]).rsplit('/').next().expect("a name");
        let of_thread = loads.entry(number(&module["thread"])).or_default();
        of_thread.insert(name, number(&module["loads"]));
        let main = format!("{}/main.js", top.display());
        assert_eq!(module["requirer"], main.as_str(), "{name}");
    }
    let all: Vec<_> = loads.into_values().collect();
    let main = BTreeMap::from([("a.node", 5), ("b.node", 4)]);
    let worker = BTreeMap::from([("a.node", 1), ("b.node", 1), ("c.node", 2)]);
    // The main thread has the lowest number.
    assert_eq!(all, [main, worker.clone(), worker.clone(), worker]);
}

fn hooks_require_nothing_of_what_they_pass_on(node: &Node) {
    let files = [
        (
            // Versions without these hooks load it, too.
            "hook.cjs",
            "require('module').registerHooks?.({\n\
               resolve: (specifier, context, next) => next(specifier, context),\n\
               load: (url, context, next) => next(url, context),\n\
             });",
        ),
        (
            "main.mjs",
            "import './a.mjs';\nimport './b.cjs';\nawait import('./late.mjs');",
        ),
        ("a.mjs", ""),
        ("b.cjs", "require('./c.cjs');"),
        ("c.cjs", ""),
        ("late.mjs", ""),
    ];
    let arguments = ["--require", "./hook.cjs", "main.mjs"];
    let (traced, top) = trace_files(node, &files, &arguments);
    let expected = [
        ("hook.cjs", None),
        ("main.mjs", None),
        ("a.mjs", Some("main.mjs")),
        ("b.cjs", Some("main.mjs")),
        ("c.cjs", Some("b.cjs")),
        ("late.mjs", Some("main.mjs")),
    ];
    check_requirers(&traced, &top, &expected);
}

/// By what the hook is told, however long it waits: the first that asks for a file is its requirer. What the hooks' thread compiles to tell
/// what kind of module it is it does not load.
fn what_hooks_on_a_thread_find_is_of_who_asked_them(node: &Node) {
    if node.major() < 18 {
        println!("skipped: no module.register");
        return;
    }
    for waits in ["", "await 1;"] {
        let hook = HOOK.replace("const found", &format!("{waits} const found"));
        let files = [
            ("hook.mjs", hook.as_str()),
            (
                "main.mjs",
                "import { register } from 'module';\n\
                 register('./hook.mjs', import.meta.url);\n\
                 await import('./all.mjs');",
            ),
            (
                "all.mjs",
                "import './a.mjs';\nimport './b.cjs';\nimport './plain.js';\n\
                 import './data.json' with { type: 'json' };\n\
                 import './first.mjs';\nimport './second.mjs';\n\
                 await import('./late.mjs');\nawait import('./late.cjs');\n\
                 await import('./late.js');",
            ),
            ("a.mjs", ""),
            ("b.cjs", ""),
            ("plain.js", "exports.answer = 42;"),
            ("data.json", "{}"),
            ("first.mjs", "import('./x.cjs');"),
            ("second.mjs", "import('./x.cjs');\nimport('./y.cjs');"),
            ("x.cjs", ""),
            ("y.cjs", ""),
            ("late.mjs", "import './deep.mjs';\nimport './deep.cjs';"),
            ("deep.mjs", "import('./deeper.cjs');"),
            ("deep.cjs", ""),
            ("deeper.cjs", ""),
            ("late.cjs", ""),
            ("late.js", "exports.answer = 42;"),
        ];
        for arguments in [&["main.mjs"][..], &["--loader", "./hook.mjs", "all.mjs"]] {
            let folder = folder();
            let top = fs::canonicalize(folder.path()).expect("a folder");
            for (name, text) in files {
                write(&top, name, text);
            }
            let log = top.join("log");
            let mut trace = Trace::new::<&str, _>([], node.command(arguments)).in_folder(&top);
            trace.command().env("ORACLE_HOOK", &log);
            let traced = trace.run();
            traced.succeeded();
            traced.lost_nothing();
            let found = modules(&traced);
            let told = fs::read_to_string(&log).expect("the hook's list");
            let mut expected = Requirers::new();
            for line in told.lines() {
                let line: Value = serde_json::from_str(line).expect("JSON");
                let path =
                    |value: &Value| value.as_str()?.strip_prefix("file://").map(str::to_owned);
                if let Some(url) = path(&line["url"]) {
                    expected.entry(url).or_insert_with(|| path(&line["by"]));
                }
            }
            // `--loader` tells its own hook of itself in some versions, but not the main thread.
            expected.remove(&format!("{}/hook.mjs", top.display()));
            assert!(expected.len() >= 15, "{expected:?}");
            for (module, requirer) in &expected {
                assert_eq!(
                    found.get(module),
                    Some(requirer),
                    "{module}, {arguments:?}, {waits}"
                );
            }
            // The other thread has the hook alone: what it reads is a module where it was asked for.
            let pids = program_modules(&traced).filter(|m| m["thread"] != m["pid"]);
            let others: BTreeSet<&str> = pids.map(|module| text(&module["path"])).collect();
            let hook = format!("{}/hook.mjs", top.display());
            assert_eq!(others, BTreeSet::from([hook.as_str()]), "{arguments:?}");
        }
    }
}

fn a_module_that_cannot_be_compiled_is_what_its_name_says(node: &Node) {
    let folder = folder();
    write(folder.path(), "broken.cjs", "let x = ;");
    write(folder.path(), "broken.js", "let x = ;");
    let main = write(
        folder.path(),
        "main.cjs",
        "try { require('./broken.cjs') } catch {}\n\
         try { require('./broken.js') } catch {}",
    );
    let traced = trace(&[], node.command([&main]));
    for name in ["broken.cjs", "broken.js"] {
        let broken = list(&traced.run["modules"])
            .iter()
            .find(|module| text(&module["path"]).ends_with(name))
            .unwrap_or_else(|| panic!("{}", traced.run["modules"]));
        assert_eq!(broken["kind"], "cjs", "{name}");
        assert_eq!(number(&broken["loads"]), 1, "{name}");
    }
}

/// However the exception came about. Node loads half a dozen of its own modules to print one, more calls than a small
/// program makes. What a handler of the program's does is the program's.
fn what_node_does_about_uncaught_exceptions_is_told_apart(node: &Node) {
    let spent = |script: &str, fails: bool| {
        let folder = folder();
        let main = write(folder.path(), "main.cjs", script);
        let traced = Trace::new::<&str, _>([], node.command([&main])).run();
        traced.lost_nothing();
        assert_eq!(traced.run["exit_status"], i64::from(fails), "{script}");
        // Of the 40 crossings of a program that does not fail, one more is 2.5 percent.
        crossings_attributed(&traced, if fails { 2.0 } else { 5.0 });
        let outside = list(&traced.run["outside"]).iter();
        let mut of_it = outside.filter(|row| row["bucket"] == "uncaught_exception");
        let crossings = of_it.next().map_or(0, |row| number(&row["crossings"]));
        let stats = program_modules(&traced).map(|module| number(&module["stats"]));
        (crossings, stats.sum::<u64>())
    };
    const THROWN: [&str; 4] = [
        "throw new Error('sync')",
        "setTimeout(() => { throw new Error('timer') }, 1)",
        "Promise.reject(new Error('rejected'))",
        "require('fs').readFile(__filename, () => { null.property })",
    ];
    for script in THROWN {
        let (crossings, stats) = spent(script, true);
        assert!(
            crossings >= 5 && stats == 0,
            "{script}: {crossings}, {stats}"
        );
    }
    let handler = "process.on('uncaughtException', () => require('fs').statSync('.'));";
    let (crossings, stats) = spent(&format!("{handler} {}", THROWN[1]), false);
    assert!((1..5).contains(&crossings), "{crossings}");
    assert_eq!(stats, 1);
    assert_eq!(spent("0", false), (0, 0));
}

on_each_node!(undisturbed:
    own_times_are_the_time_from_first_to_last,
    times_of_packages_are_those_of_their_own_clocks,
    who_waits_for_a_cpu_waits_as_itself,
);

/// Writes, when the program ends, what `require.cache` holds: files by who required each first.
const PRELOAD: &str = "
const cache = module.constructor._cache;
process.on('exit', () => {
  const parents = {};
  for (const [file, { parent }] of Object.entries(cache)) parents[file] = parent?.filename ?? null;
  require('fs').writeFileSync(process.env.ORACLE, JSON.stringify(parents));
});
";

type Requirers = BTreeMap<String, Option<String>>;

/// The program's modules of the main process's main thread, without Node's own: path and query by requirer.
fn modules(traced: &Traced) -> Requirers {
    let main = list(&traced.run["processes"])
        .iter()
        .find(|p| p["main"] == true);
    let pid = number(&main.expect("a node process")["pid"]);
    program_modules(traced)
        .filter(|module| module["pid"] == pid && module["thread"] == pid)
        .map(|module| {
            let query = module["query"].as_str().unwrap_or_default();
            let name = format!("{}{query}", text(&module["path"]));
            (name, module["requirer"].as_str().map(str::to_owned))
        })
        .collect()
}

fn program_modules(traced: &Traced) -> impl Iterator<Item = &Value> {
    let modules = list(&traced.run["modules"]).iter();
    modules.filter(|module| module["kind"] != "builtin")
}

fn read(path: &Path) -> Requirers {
    let text = fs::read_to_string(path).expect("the program's own list");
    serde_json::from_str(&text).expect("JSON")
}

/// A share of what is nobody's, in percent. Null: there is nothing of the kind.
fn unattributed(traced: &Traced, what: &str) -> f64 {
    let share = &traced.run["attribution"][format!("unattributed_{what}_percent")];
    share.as_f64().unwrap_or_else(|| {
        let all = match what {
            "samples" => "count",
            _ => "total",
        };
        assert_eq!(number(&traced.run[what][all]), 0, "{what} of nobody known");
        0.0
    })
}

/// That at most these parts of the crossings and of the CPU samples are nobody's, and that each crossing has a bucket.
fn attributed(traced: &Traced, most_percent: f64) {
    crossings_attributed(traced, most_percent);
    let percent = unattributed(traced, "samples");
    assert!(percent <= most_percent, "samples: {percent}");
}

/// The same of crossings alone: of the 50 samples of a short program, one more or less is 2 percent.
fn crossings_attributed(traced: &Traced, most_percent: f64) {
    let percent = unattributed(traced, "crossings");
    assert!(percent <= most_percent, "crossings: {percent}");
    let sum = |rows: &str| -> u64 {
        let rows = list(&traced.run[rows]).iter();
        rows.map(|row| number(&row["crossings"])).sum()
    };
    let total = number(&traced.run["crossings"]["total"]);
    assert_eq!(sum("modules") + sum("outside"), total, "crossings");
}

/// Traces a program with [`PRELOAD`] and compares.
fn compare_with_the_cache(node: &Node, program: &[&str], least: usize) {
    let folder = folder();
    let preload = write(folder.path(), "preload.js", PRELOAD);
    let source = write(folder.path(), "source.js", "var answer = 42;\n");
    let oracle = folder.path().join("oracle.json");
    let arguments = ["-r", &preload].into_iter().chain(program.iter().copied());
    let arguments = arguments.map(|argument| match argument {
        "SOURCE" => source.as_str(),
        argument => argument,
    });
    let mut trace = Trace::new::<&str, _>([], node.command(arguments)).in_folder(folder.path());
    trace.command().env("ORACLE", &oracle);
    let traced = trace.run();
    traced.succeeded();
    traced.lost_nothing();
    let told = read(&oracle);
    assert!(told.len() >= least, "only {} modules", told.len());
    let found = modules(&traced);
    let names = |modules: &Requirers| -> BTreeSet<String> { modules.keys().cloned().collect() };
    assert_eq!(names(&found), names(&told), "{program:?}");
    for (path, requirer) in &found {
        // What an ES module imports has no parent there.
        let imported =
            told[path].is_none() && requirer.as_deref().is_some_and(|r| r.ends_with(".mjs"));
        if !imported {
            assert_eq!(*requirer, told[path], "requirer of {path}");
        }
    }
    attributed(&traced, 2.0);
}

/// Programs that load many modules, in a folder with what they read: arguments of node, and whether the time of the main module's body
/// is to be made up by what began in it (TypeScript's takes long to begin, in Node's own module that began before).
fn programs(node: &Node, folder: &Path) -> Vec<(Vec<String>, bool)> {
    let mut programs = Vec::new();
    if has_packages("examples/express") {
        programs.push((vec![project("examples/express/app.js")], true));
    }
    if has_packages("bench/subjects") {
        let source = write(folder, "source.js", "export const answer = 42;\n");
        write(
            folder,
            "index.html",
            "<script type=module src=./source.js></script>\n",
        );
        let subject = |script: &str, arguments: &[&str]| {
            let script = project(&format!("bench/subjects/node_modules/{script}"));
            let arguments = arguments.iter().map(|argument| argument.to_string());
            [script].into_iter().chain(arguments).collect()
        };
        let webpack = ["build", "--entry", source.as_str(), "--mode", "development"];
        let script = write(folder, "script.js", "var answer = 42;\n");
        let eslint = ["--no-eslintrc", script.as_str()];
        programs.push((subject("typescript/bin/tsc", &["--version"]), false));
        programs.push((subject("eslint/bin/eslint.js", &eslint), false));
        programs.push((subject("webpack/bin/webpack.js", &webpack), false));
        if node.major() >= 18 {
            programs.push((subject("vite/bin/vite.js", &["build"]), false));
        }
    }
    programs
}

/// No moment of a process that runs one thread of JavaScript is lost, and none counts twice: the own times of its modules and what is
/// outside of all modules are its life. And where all is loaded by the main module's body, they are the time from its start to its end,
/// but for what the trace says was nobody's, within the stated bounds.
fn own_times_are_the_time_from_first_to_last(node: &Node) {
    let folder = folder();
    for (program, is_whole_body) in programs(node, folder.path()) {
        let mut trace = Trace::new::<&str, _>([], node.command(&program));
        trace = trace.in_folder(folder.path());
        let traced = trace.run();
        traced.succeeded();
        traced.lost_nothing();
        own_times_are_the_life(&traced);
        if is_whole_body {
            own_times_are_the_body(&traced);
        }
    }
}

fn own_times_are_the_life(traced: &Traced) {
    let processes = list(&traced.run["processes"]).iter();
    let main = processes.clone().find(|p| p["main"] == true);
    let main = main.expect("a node process");
    let life = number(&main["end_ns"]) - number(&main["start_ns"]);
    let modules = list(&traced.run["modules"]);
    let one = modules.iter().all(|m| m["thread"] == main["pid"]);
    assert!(one, "one thread of JavaScript");
    let sum = |rows: &str, field: &str| -> u64 {
        let rows = list(&traced.run[rows]).iter();
        rows.map(|row| number(&row[field])).sum()
    };
    let own = sum("modules", "self_ns") + sum("outside", "time_ns");
    // Each moment is somebody's: from the fork to the first event, and from the last to the end of the process, too.
    let slack = life / 1000;
    assert!(
        life.abs_diff(own) <= slack,
        "{own} ns in and outside of modules, {life} ns of life, {slack} ns at most between them"
    );
}

fn own_times_are_the_body(traced: &Traced) {
    let modules: Vec<&Value> = list(&traced.run["modules"]).iter().collect();
    let is_main = |m: &&&Value| m["requirer"].is_null() && m["kind"] != "builtin";
    let main = modules.iter().find(is_main).expect("a main module");
    let at = |value: &Value| value.as_i64().expect("an instant");
    let (start, end) = (at(&main["start_ns"]), at(&main["end_latest_ns"]));
    let sum = |field: &str| -> u64 {
        // Not Node's own modules that were there before, such as the one that loads the main module.
        let of = modules
            .iter()
            .filter(|m| m["start_ns"].as_i64().is_some_and(|at| at >= start));
        of.map(|module| number(&module[field])).sum()
    };
    let own = sum("self_ns") - sum("callback_ns");
    let outside = list(&traced.run["outside"]).iter();
    let inside_of_it = ["async", "loader", "unseen", "no_stack"];
    let outside = outside.filter(|o| inside_of_it.contains(&text(&o["bucket"])));
    let outside: u64 = outside.map(|o| number(&o["time_ns"])).sum();
    let slack = sum("uncertain_ns") + outside;
    let window = (end - start) as u64;
    assert!(
        window.abs_diff(own) <= slack,
        "{own} ns in modules, {window} ns from the first to the last, {slack} ns uncertain or nobody's"
    );
    // The bounds say something.
    assert!(slack < window / 3, "{slack} of {window} ns are uncertain");
}

pub(crate) fn commonjs_modules_are_those_of_the_require_cache(node: &Node) {
    if has_packages("examples/express") {
        let app = project("examples/express/app.js");
        compare_with_the_cache(node, &[&app], 300);
    }
    if has_packages("bench/subjects") {
        let eslint = project("bench/subjects/node_modules/eslint/bin/eslint.js");
        let program = [eslint.as_str(), "--no-eslintrc", "SOURCE"];
        compare_with_the_cache(node, &program, 200);
        let tsc = project("bench/subjects/node_modules/typescript/bin/tsc");
        compare_with_the_cache(node, &[&tsc, "--version"], 3);
        let webpack = project("bench/subjects/node_modules/webpack/bin/webpack.js");
        let build = ["build", "--entry", "SOURCE", "--mode", "development"];
        let program: Vec<&str> = [webpack.as_str()].into_iter().chain(build).collect();
        compare_with_the_cache(node, &program, 300);
    }
}

fn es_modules_are_those_that_ran(node: &Node) {
    let folder = folder();
    let at = folder.path();
    let top = at.to_str().expect("UTF-8");
    // Each ES module says that it ran: no loader is asked.
    let module = |name: &str, text: &str| {
        let run = "(globalThis.ran ??= []).push(import.meta.url);\n";
        write(at, name, &format!("{text}\n{run}"))
    };
    let main = module(
        "main.mjs",
        "import './a.mjs';\n\
         import common from './common.cjs';\n\
         import fs from 'node:fs';\n\
         import { createRequire } from 'node:module';\n\
         createRequire(import.meta.url)('./created.cjs');\n\
         createRequire(import.meta.url)('./data.json');\n\
         await import('./with%20space.mjs');\n\
         await import('./late.mjs?x=1');\n\
         await import('./late.mjs?x=2');\n\
         setTimeout(() => fs.writeFileSync(process.env.ORACLE, JSON.stringify(globalThis.ran)), 50);",
    );
    // It asks for all before any other is read: of two that are read at once, whose file comes first would be the first to ask.
    module(
        "a.mjs",
        "import './with%20space.mjs';\nimport './shared.mjs';\nimport 'node:http';",
    );
    // A circle.
    module(
        "with space.mjs",
        "import './shared.mjs';\nimport './a.mjs';",
    );
    module("shared.mjs", "");
    module("late.mjs", "import './below.mjs';");
    module("below.mjs", "");
    module("dynamic.mjs", "");
    write(
        at,
        "common.cjs",
        "module.exports = require('./deep.cjs');\n",
    );
    write(at, "deep.cjs", "exports.answer = 42;\n");
    write(
        at,
        "created.cjs",
        "import('./dynamic.mjs');\nrequire('./deep.cjs');\n",
    );
    write(at, "data.json", "{}\n");
    let oracle = at.join("oracle.json");
    let mut trace = Trace::new::<&str, _>([], node.command([&main]));
    trace.command().env("ORACLE", &oracle);
    let traced = trace.run();
    traced.succeeded();
    traced.lost_nothing();

    let found = modules(&traced);
    let ran = fs::read_to_string(&oracle).expect("the program's own list");
    let ran: BTreeSet<String> = serde_json::from_str(&ran).expect("JSON");
    let paths = ran
        .iter()
        .map(|url| url.replace("file://", "").replace("%20", " "));
    let mut all: BTreeSet<String> = paths.collect();
    let others = ["common.cjs", "deep.cjs", "created.cjs", "data.json"];
    all.extend(others.map(|name| format!("{top}/{name}")));
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), all);
    for (name, requirer) in [
        ("main.mjs", None),
        ("a.mjs", Some("main.mjs")),
        ("with space.mjs", Some("a.mjs")),
        ("shared.mjs", Some("a.mjs")),
        ("common.cjs", Some("main.mjs")),
        ("deep.cjs", Some("common.cjs")),
        ("created.cjs", Some("main.mjs")),
        ("data.json", Some("main.mjs")),
        ("late.mjs?x=1", Some("main.mjs")),
        ("late.mjs?x=2", Some("main.mjs")),
        ("below.mjs", Some("late.mjs")),
        ("dynamic.mjs", Some("created.cjs")),
    ] {
        let expected = requirer.map(|requirer| format!("{top}/{requirer}"));
        assert_eq!(
            found[&format!("{top}/{name}")],
            expected,
            "requirer of {name}"
        );
    }
    // Node's own module, by who imports it.
    let http = list(&traced.run["modules"])
        .iter()
        .find(|m| m["path"] == "node:http");
    let http = http.expect("node:http was loaded");
    assert_eq!(text(&http["requirer"]), format!("{top}/a.mjs"));
    let kinds: BTreeMap<&str, &str> = program_modules(&traced)
        .map(|module| (text(&module["path"]), text(&module["kind"])))
        .collect();
    for (path, kind) in kinds {
        let expected = match path.rsplit('.').next() {
            Some("mjs") => "esm",
            Some("json") => "json",
            _ => "cjs",
        };
        assert_eq!(kind, expected, "{path}");
    }
}

/// Tells, a line each, what was resolved for whom and what was loaded.
const HOOK: &str = "
import { appendFileSync } from 'fs';
const tell = (what) => appendFileSync(process.env.ORACLE_HOOK, JSON.stringify(what) + '\\n');
export async function resolve(specifier, context, next) {
  const found = await next(specifier, context, next);
  tell({ url: found.url, by: context.parentURL ?? null });
  return found;
}
export async function load(url, context, next) {
  tell({ loaded: url });
  return next(url, context, next);
}
";

/// The same for versions with hooks that `require` passes, too.
const HOOK_FROM_22: &str = "
const { appendFileSync } = require('fs');
const tell = (what) => appendFileSync(process.env.ORACLE_HOOK, JSON.stringify(what) + '\\n');
require('module').registerHooks({
  resolve(specifier, context, next) {
    const found = next(specifier, context);
    tell({ url: found.url, by: context.parentURL ?? null });
    return found;
  },
  load(url, context, next) {
    tell({ loaded: url });
    return next(url, context);
  },
});
";

/// Path and query of a file's URL; `None` of another URL.
fn path_of(url: &str) -> Option<String> {
    let path = url.strip_prefix("file://")?;
    assert!(
        !path.contains('%'),
        "{path} has no characters to be decoded"
    );
    Some(path.to_owned())
}

/// Vite builds: some ES modules, many modules of CommonJS, and add-ons.
fn es_modules_are_those_of_a_loader_hook(node: &Node) {
    if !has_packages("bench/subjects") {
        return;
    }
    if node.major() < 18 {
        println!("skipped: vite needs Node 18");
        return;
    }
    let folder = folder();
    let top = fs::canonicalize(folder.path()).expect("a folder");
    let preload = write(&top, "preload.js", PRELOAD);
    let hook = match node.major() {
        ..22 => write(&top, "hook.mjs", HOOK),
        _ => write(&top, "hook.cjs", HOOK_FROM_22),
    };
    write(
        &top,
        "index.html",
        "<script type=module src=./source.js></script>\n",
    );
    write(&top, "source.js", "export const answer = 42;\n");
    let (oracle, hooked) = (top.join("oracle.json"), top.join("hook.jsonl"));
    let way = match node.major() {
        ..22 => "--experimental-loader",
        _ => "--require",
    };
    let vite = project("bench/subjects/node_modules/vite/bin/vite.js");
    // Hooks change how modules are loaded, so they tell of a run of their own.
    let with_hook = ["--no-warnings", "-r", &preload, way, &hook, &vite, "build"];
    let output = plain(std::process::Command::new(&node.path).args(with_hook))
        .current_dir(&top)
        .env("ORACLE", &oracle)
        .env("ORACLE_HOOK", &hooked)
        .output()
        .expect("node starts");
    assert!(output.status.success(), "{output:?}");
    let mut trace = Trace::new::<&str, _>([], node.command(["-r", &preload, &vite, "build"]));
    trace = trace.in_folder(&top);
    trace.command().env("ORACLE", top.join("unused.json"));
    let traced = trace.run();
    traced.succeeded();
    traced.lost_nothing();

    let mut told: Requirers = read(&oracle);
    let mut imported: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    let lines = fs::read_to_string(&hooked).expect("the hook's list");
    for line in lines.lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        if let Some(path) = event["loaded"].as_str().and_then(path_of) {
            told.entry(path).or_default();
        } else if let Some(path) = event["url"].as_str().and_then(path_of) {
            let by = event["by"].as_str().and_then(path_of);
            imported.entry(path).or_default().push(by);
        }
    }
    let found = modules(&traced);
    told.remove(&hook);
    let names = |modules: &Requirers| -> BTreeSet<String> { modules.keys().cloned().collect() };
    assert_eq!(names(&found), names(&told));
    let kinds: BTreeMap<&str, &str> = program_modules(&traced)
        .map(|module| (text(&module["path"]), text(&module["kind"])))
        .collect();
    let es_modules = kinds.values().filter(|kind| **kind == "esm").count();
    assert!(es_modules >= 5, "{es_modules} ES modules");
    for (path, requirer) in &found {
        match &told[path] {
            // Of node itself, such as the preloaded one.
            None if !imported.contains_key(path) => assert_eq!(*requirer, None, "{path}"),
            // Of several that import it, the first is told, in the order in which V8 links: not always that of the hook.
            None => {
                let by = &imported[path];
                assert!(
                    by.contains(requirer),
                    "{requirer:?} imports {path}, told: {by:?}"
                );
            }
            Some(required) => assert_eq!(requirer.as_ref(), Some(required), "requirer of {path}"),
        }
    }
    // Vite reads files by promises: that node's own functions go on with them is its doing.
    attributed(&traced, 2.0);
    let stackless = list(&traced.run["outside"])
        .iter()
        .find(|o| o["bucket"] == "no_stack");
    let stackless = stackless.map_or(0, |bucket| number(&bucket["crossings"]));
    assert_eq!(stackless, 0);
    println!(
        "node {}: {} modules, {es_modules} of them ES modules",
        node.version,
        found.len()
    );
}

/// A package of the test: its folder below the application's, what it requires, and what it does.
struct Package {
    folder: &'static str,
    name: &'static str,
    /// Folder of a link to it.
    link: Option<&'static str>,
    requires: &'static [&'static str],
    crossings: u64,
    stats: u64,
    busy_ms: u64,
}

const PACKAGES: &[Package] = &[
    Package {
        folder: "node_modules/plain",
        name: "plain",
        link: None,
        requires: &["dup", "@scope/inner"],
        crossings: 700,
        stats: 0,
        busy_ms: 30,
    },
    Package {
        folder: "node_modules/@scope/inner",
        name: "@scope/inner",
        link: None,
        requires: &[],
        crossings: 0,
        stats: 300,
        busy_ms: 10,
    },
    // Two of one name.
    Package {
        folder: "node_modules/dup",
        name: "dup",
        link: None,
        requires: &[],
        crossings: 110,
        stats: 0,
        busy_ms: 0,
    },
    Package {
        folder: "node_modules/plain/node_modules/dup",
        name: "dup",
        link: None,
        requires: &[],
        crossings: 220,
        stats: 0,
        busy_ms: 15,
    },
    // As pnpm lays packages out: the folder of that name is a link.
    Package {
        folder: "node_modules/.pnpm/linked@1.0.0/node_modules/linked",
        name: "linked",
        link: Some("node_modules/linked"),
        requires: &["below"],
        crossings: 330,
        stats: 40,
        busy_ms: 0,
    },
    Package {
        folder: "node_modules/.pnpm/below@1.0.0/node_modules/below",
        name: "below",
        link: Some("node_modules/.pnpm/linked@1.0.0/node_modules/below"),
        requires: &[],
        crossings: 440,
        stats: 0,
        busy_ms: 20,
    },
    // Bundled with another one.
    Package {
        folder: "node_modules/bundler",
        name: "bundler",
        link: None,
        requires: &["bundled"],
        crossings: 50,
        stats: 5,
        busy_ms: 0,
    },
    Package {
        folder: "node_modules/bundler/node_modules/bundled",
        name: "bundled",
        link: None,
        requires: &[],
        crossings: 550,
        stats: 0,
        busy_ms: 5,
    },
    // A workspace.
    Package {
        folder: "packages/work",
        name: "@app/work",
        link: Some("node_modules/@app/work"),
        requires: &[],
        crossings: 60,
        stats: 70,
        busy_ms: 8,
    },
];

/// What a module does, and tells how long it took: itself, without what it required.
fn body(package: &Package) -> String {
    let Package {
        requires,
        crossings,
        stats,
        busy_ms,
        ..
    } = package;
    format!(
        "const {{ statSync }} = require('fs'); // Node's own modules that it loads are not the package's\n\
         const begin = process.hrtime.bigint();\n\
         let inside = 0n;\n\
         const need = (name) => {{ const from = process.hrtime.bigint(); require(name); inside += process.hrtime.bigint() - from; }};\n\
         for (const name of {requires:?}) need(name);\n\
         if (process.env.WORK) {{\n\
           for (let i = 0; i < {crossings}; i++) process.uptime();\n\
           for (let i = 0; i < {stats}; i++) statSync(__filename);\n\
           const end = Date.now() + {busy_ms};\n\
           while (Date.now() < end);\n\
         }}\n\
         globalThis.told[__filename] = Number(process.hrtime.bigint() - begin - inside);\n"
    )
}

/// Writes the packages and a main script that requires the outer ones; returns the script.
fn write_packages(top: &Path) -> String {
    for package in PACKAGES {
        let at = top.join(package.folder);
        let manifest = format!(r#"{{"name":{:?},"version":"1.2.3"}}"#, package.name);
        write(&at, "package.json", &manifest);
        write(&at, "index.js", &body(package));
        if let Some(link) = package.link {
            let link = top.join(link);
            fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
            std::os::unix::fs::symlink(&at, link).expect("a link");
        }
    }
    write(top, "package.json", r#"{"name":"app","version":"0.1.0"}"#);
    write(
        top,
        "main.js",
        "globalThis.told = {};\n\
         for (const name of ['plain', 'dup', 'linked', 'bundler', '@app/work']) require(name);\n\
         require('fs').writeFileSync(process.env.ORACLE, JSON.stringify(globalThis.told));\n",
    )
}

/// Traces the packages' program, doing its work or loading only.
fn trace_packages(node: &Node, main: &str, oracle: &Path, work: bool) -> Traced {
    let mut trace = Trace::new::<&str, _>([], node.command([main]));
    trace.command().env("ORACLE", oracle);
    if work {
        trace.command().env("WORK", "1");
    }
    let traced = trace.run();
    traced.succeeded();
    traced.lost_nothing();
    crossings_attributed(&traced, 2.0);
    traced
}

fn costs_of_packages_are_those_that_they_had(node: &Node) {
    let folder = folder();
    let top = folder.path().join("app");
    let main = write_packages(&top);
    let oracle = folder.path().join("oracle.json");
    // What all these modules have in common, such as the crossings of `require` and `hrtime`.
    let idle = trace_packages(node, &main, &oracle, false);
    let traced = trace_packages(node, &main, &oracle, true);
    check_counts(&traced, &idle, &top);
}

fn times_of_packages_are_those_of_their_own_clocks(node: &Node) {
    let folder = folder();
    let top = folder.path().join("app");
    let main = write_packages(&top);
    let oracle = folder.path().join("oracle.json");
    // A module that has to wait for the CPU between its look at the clock and the event of that look is measured
    // otherwise by itself than by the trace: times must be right once. Samples are few, and counted over all.
    const RUNS: usize = 4;
    let mut untrue = Vec::new();
    let (mut samples, mut nobodys) = (0.0, 0.0);
    for _ in 0..RUNS {
        let traced = trace_packages(node, &main, &oracle, true);
        untrue.extend(check_times(&traced, &oracle, &top).err());
        let count = number(&traced.run["samples"]["count"]) as f64;
        samples += count;
        nobodys += unattributed(&traced, "samples") / 100.0 * count;
    }
    assert!(untrue.len() < RUNS, "{untrue:#?}");
    assert!(nobodys <= 0.02 * samples, "{nobodys} of {samples} samples");
}

/// Reads files by promises, as often as told, some of them one after the other; the program's own functions wait for nothing but the end.
fn reader(times: usize, chained: bool) -> String {
    let one = "fs.promises.readFile(__filename)";
    match chained {
        true => format!(
            "const fs = require('fs');\n\
             module.exports = (async () => {{ for (let i = 0; i < {times}; i++) await {one}; }})();\n"
        ),
        false => format!(
            "const fs = require('fs');\n\
             module.exports = Promise.all(Array.from({{ length: {times} }}, () => {one}));\n"
        ),
    }
}

fn what_promises_go_on_with_is_of_the_package_that_asked(node: &Node) {
    let folder = folder();
    let top = folder.path();
    let readers = [
        ("ten", 10, false),
        ("thirty", 30, false),
        ("chain", 30, true),
    ];
    for (name, times, chained) in readers {
        let at = top.join("node_modules").join(name);
        write(&at, "package.json", &format!(r#"{{"name":"{name}"}}"#));
        write(&at, "index.js", &reader(times, chained));
    }
    // At the same time: only who asked tells them apart. What node needs for it is loaded before.
    let main = write(
        top,
        "main.js",
        "require('fs').promises.readFile(__filename).then(() => {\n\
           for (const name of ['ten', 'thirty', 'chain']) require(name);\n\
         });\n",
    );
    let traced = Trace::new::<&str, _>([], node.command([&main])).run();
    traced.succeeded();
    traced.lost_nothing();
    crossings_attributed(&traced, 2.0);
    let crossings = |name: &str| {
        let packages = list(&traced.run["packages"]).iter();
        let found: Vec<&Value> = packages.filter(|p| p["name"] == name).collect();
        assert_eq!(found.len(), 1, "packages called {name}");
        number(&found[0]["crossings"])
    };
    let [ten, thirty, chain] = ["ten", "thirty", "chain"].map(crossings);
    // Each read makes the same crossings, most of them after an `await` of node's own: to open the file, to look at it, to read and to
    // close it. Whoever comes first makes one more.
    let more = thirty.saturating_sub(ten);
    let each = (more + 10) / 20;
    println!(
        "node {}: {each} crossings a read: {ten} for 10, {thirty} for 30, {chain} for 30, one after the other",
        node.version
    );
    assert!(each >= 2, "{each} crossings a read");
    assert!(more.abs_diff(20 * each) <= 1, "{ten}, {thirty}");
    assert!(chain.abs_diff(thirty) <= 1, "{chain}, {thirty}");
}

fn check_counts(traced: &Traced, idle: &Traced, top: &Path) {
    let find = |traced: &Traced, package: &Package| -> Value {
        let directory = top.join(package.folder);
        let directory = directory.to_str().expect("UTF-8");
        let packages = list(&traced.run["packages"]).iter();
        let found: Vec<&Value> = packages.filter(|p| p["directory"] == directory).collect();
        assert_eq!(found.len(), 1, "packages in {directory}");
        found[0].clone()
    };
    let more = |package: &Package, field: &str| {
        number(&find(traced, package)[field]) - number(&find(idle, package)[field])
    };
    // Crossings of one stat: as many as Node makes, the same for all.
    let inner = &PACKAGES[1];
    let per_stat = more(inner, "crossings") / inner.stats;
    assert!((1..=3).contains(&per_stat), "{per_stat} crossings a stat");
    for package in PACKAGES {
        let Package {
            folder,
            crossings,
            stats,
            ..
        } = package;
        let found = find(traced, package);
        assert_eq!(found["name"], package.name);
        assert_eq!(found["version"], "1.2.3");
        assert_eq!(found["modules"], 1);
        let kind = match folder.starts_with("packages") {
            true => "workspace",
            false => "installed",
        };
        assert_eq!(found["kind"], kind, "{folder}");
        assert_eq!(more(package, "stats"), *stats, "stats of {folder}");
        let expected = crossings + per_stat * stats;
        assert_eq!(
            more(package, "crossings"),
            expected,
            "crossings of {folder}"
        );
    }
    let application = list(&traced.run["packages"]).iter();
    let application = application.filter(|p| p["kind"] == "application");
    let names: Vec<&str> = application.map(|p| text(&p["name"])).collect();
    assert_eq!(names, ["app"]);
}

/// Compares with the modules' own clocks.
fn check_times(traced: &Traced, oracle: &Path, top: &Path) -> Result<(), String> {
    let told = fs::read_to_string(oracle).expect("the program's own times");
    let told: BTreeMap<String, u64> = serde_json::from_str(&told).expect("JSON");
    for package in PACKAGES {
        let file = format!("{}/{}/index.js", top.display(), package.folder);
        let module = program_modules(traced).find(|m| m["path"] == *file);
        let module = module.unwrap_or_else(|| panic!("no module {file}"));
        // Its `require('fs')` comes before it looks at the clock.
        let execute = number(&module["execute_ns"]) - number(&module["vain_ns"]);
        let uncertain = number(&module["uncertain_ns"]);
        // Before its first and after its last look at the clock it runs a little, too; and so does `need`.
        let slack = uncertain + 1_000_000;
        let told = told[&file];
        // Whoever is uncertain of everything is never wrong.
        if uncertain > told / 10 + 1_000_000 {
            return Err(format!("{uncertain} ns of {told} are uncertain of {file}"));
        }
        if execute.abs_diff(told) > slack || execute + slack < package.busy_ms * 1_000_000 {
            return Err(format!(
                "{file} ran for {told} ns by its own clock, {execute} ns found, {uncertain} ns uncertain"
            ));
        }
    }
    Ok(())
}

/// The body of the main module lasts when the recorder begins to sum up calls: who runs it waits as it.
#[test]
#[ignore = "needs root"]
fn who_waits_after_very_many_calls_waits_as_itself() {
    const WAITED_MS: u64 = 400;
    let main = format!(
        "const fs = require('fs');\n\
         for (let i = 0; i < 200_000; i++) fs.existsSync('/nowhere');\n\
         Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, {WAITED_MS});"
    );
    for version in ["20.20.2", "24.21.0"] {
        let Some(node) = Node::find(version) else {
            continue;
        };
        let (traced, top) = trace_files(&node, &[("main.cjs", &main)], &["main.cjs"]);
        let path = format!("{top}/main.cjs");
        let mut modules = program_modules(&traced);
        let module = modules.find(|module| text(&module["path"]) == path);
        let module = module.unwrap_or_else(|| panic!("no {path}"));
        let blocked = number(&module["blocked_ns"]);
        assert!(blocked >= WAITED_MS * 1_000_000, "{version}: {module}");
    }
}

/// Right each time, and certain where nobody else came in between.
fn who_waits_for_a_cpu_waits_as_itself(node: &Node) {
    /// On a slow machine one of the others has its turn in most of the moments in between.
    const ATTEMPTS: u32 = 12;
    let is_certain = |_| {
        let waited = one_that_waits_for_a_cpu(node);
        waited.was_told_whole && waited.uncertain <= waited.told / 20
    };
    assert!((0..ATTEMPTS).any(is_certain));
}

/// A module that waited for its turn, ns.
struct Waited {
    /// Its time by its own clock.
    told: u64,
    /// How much of what was found is uncertain.
    uncertain: u64,
    /// It had its turn before its first and after its last look at the clock: else others ran within it that its clock does not tell.
    was_told_whole: bool,
}

/// A program on one CPU with others that never rest: most of the time of its one busy module is waiting for its turn.
fn one_that_waits_for_a_cpu(node: &Node) -> Waited {
    /// A round of the three others takes longer (3 ms each), what is done between two looks at the clock does not (2 ms at most).
    const TURN: u64 = 5_000_000;
    let folder = folder();
    write(
        folder.path(),
        "busy.js",
        "const begin = process.hrtime.bigint(), end = Date.now() + 200;\n\
         while (Date.now() < end);\n\
         globalThis.told = Number(process.hrtime.bigint() - begin);\n",
    );
    let main = write(
        folder.path(),
        "main.js",
        "const begin = process.hrtime.bigint();\nrequire('./busy.js');\n\
         console.log(globalThis.told, Number(process.hrtime.bigint() - begin));\n",
    );
    let busy = ["timeout", "30", "sh", "-c", "while :; do :; done"];
    let pinned = |program: &[&str]| {
        let mut pinned = std::process::Command::new("taskset");
        pinned.args(["-c", "0"]).args(program);
        pinned
    };
    let mut others: Vec<_> = (0..3)
        .map(|_| pinned(&busy).spawn().expect("taskset of util-linux"))
        .collect();
    let program = [
        ["taskset", "-c", "0"].map(String::from).to_vec(),
        node.command([&main]),
    ]
    .concat();
    let traced = Trace::new::<&str, _>([], program).run();
    for other in &mut others {
        // `timeout` passes it on.
        let pid = i32::try_from(other.id()).expect("a process id");
        // SAFETY: takes two integers.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        other.wait().expect("it ends");
    }
    traced.succeeded();
    traced.lost_nothing();
    let stdout = traced.stdout();
    let mut clocks = stdout.split_whitespace();
    let mut clock = || -> u64 {
        clocks
            .next()
            .and_then(|ns| ns.parse().ok())
            .expect("nanoseconds")
    };
    let (told, around) = (clock(), clock());
    let was_told_whole = around - told < TURN;
    let module = program_modules(&traced).find(|m| text(&m["path"]).ends_with("/busy.js"));
    let module = module.expect("the module");
    let [execute, uncertain, blocked] =
        ["execute_ns", "uncertain_ns", "blocked_ns"].map(|field| number(&module[field]));
    println!(
        "node {}: {told} ns by its own clock, {around} ns by that of its requirer, {execute} ns found, {uncertain} ns uncertain, {blocked} ns off the CPU",
        node.version
    );
    assert!(
        blocked > told / 4,
        "it hardly had to wait: {blocked} of {told} ns"
    );
    let slack = uncertain + 1_000_000;
    assert!(
        execute + slack >= told && execute <= around + slack,
        "{execute} ns"
    );
    assert!(
        !was_told_whole || execute.abs_diff(told) <= slack,
        "{execute} ns"
    );
    Waited {
        told,
        uncertain,
        was_told_whole,
    }
}

fn workers_have_modules_of_their_own(node: &Node) {
    let folder = folder();
    write(
        folder.path(),
        "shared.js",
        "exports.up = process.uptime();\n",
    );
    let main = write(
        folder.path(),
        "main.js",
        "const { Worker, isMainThread } = require('worker_threads');\n\
         require('./shared.js');\n\
         if (isMainThread) for (let i = 0; i < 3; i++) new Worker(__filename);\n",
    );
    let traced = Trace::new::<&str, _>([], node.command([&main])).run();
    traced.succeeded();
    traced.lost_nothing();
    let mut threads: BTreeMap<u64, Requirers> = BTreeMap::new();
    for module in program_modules(&traced) {
        let modules = threads.entry(number(&module["thread"])).or_default();
        let requirer = module["requirer"].as_str().map(str::to_owned);
        modules.insert(text(&module["path"]).to_owned(), requirer);
        assert_eq!(module["loads"], 1);
    }
    assert_eq!(threads.len(), 4, "{threads:?}");
    let shared = format!("{}/shared.js", folder.path().display());
    let expected = BTreeMap::from([(main.clone(), None), (shared, Some(main))]);
    for modules in threads.values() {
        assert_eq!(*modules, expected);
    }
}
