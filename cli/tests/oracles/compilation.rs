//! What was compiled, against what the process says it has loaded.

use std::collections::{BTreeMap, BTreeSet};

use nodeprof_profile::{Recording, recording::CompilationUnit};
use serde_json::Value;

use crate::support::{
    Node, Traced, has_packages, list, number, on_each_node, project, text, trace, write,
};

on_each_node!(
    each_required_file_is_compiled_once,
    each_builtin_loaded_is_compiled_once,
    threads_that_compile_at_once_compile_each_builtin_once,
    a_code_cache_that_v8_rejects_is_none,
    a_name_in_pieces_is_read_whatever_each_is_part_of,
);

/// Compilations by path.
fn compiled(traced: &Traced, unit: &str) -> BTreeMap<String, u64> {
    let mut paths = BTreeMap::new();
    for script in list(&traced.run["compile"]["scripts"]) {
        if script["unit"] == unit {
            *paths.entry(text(&script["path"]).to_owned()).or_default() +=
                number(&script["compilations"]);
        }
    }
    paths
}

fn each_required_file_is_compiled_once(node: &Node) {
    if !has_packages("examples/express") {
        return;
    }
    let folder = crate::support::folder();
    let loaded = folder.path().join("loaded.json");
    let script = write(
        folder.path(),
        "main.js",
        &format!(
            "process.on('exit', () => require('fs').writeFileSync({loaded:?}, JSON.stringify(Object.keys(require.cache))));\n\
             require({:?});\n",
            project("examples/express/app.js")
        ),
    );
    let traced = trace(&[], node.command([&script]));
    let loaded: Vec<String> =
        serde_json::from_str(&std::fs::read_to_string(loaded).expect("the list")).expect("JSON");
    let compiled_functions = compiled(&traced, "function");
    let compiled_modules = compiled(&traced, "module");
    let [mut files, mut modules] = [BTreeMap::new(), BTreeMap::new()];
    for path in loaded.iter().filter(|path| !path.ends_with(".json")) {
        if path.ends_with(".mjs") {
            modules.insert(format!("file://{path}"), 1);
            continue;
        }
        // Node compiles a CommonJS file that an ES module imports once more, to see whether it has the syntax of a module.
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let imported =
            path.ends_with("/index.js") && loaded.contains(&format!("{folder}/require.mjs"));
        files.insert(path.clone(), if imported { 2 } else { 1 });
    }
    assert!(files.len() > 200, "{}", files.len());
    same(&files, &compiled_functions);
    same(&modules, &compiled_modules);

    // Each compilation is a call of one of these.
    let calls = traced.calls(&[
        "ContextifyContext::CompileFunction",
        "CompileFunctionForCJSLoader",
        "ContainsModuleSyntax",
    ]);
    assert_eq!(calls, compiled_functions.values().sum::<u64>());
}

fn same(expected: &BTreeMap<String, u64>, compiled: &BTreeMap<String, u64>) {
    let differences: Vec<_> = expected
        .keys()
        .chain(compiled.keys())
        .filter(|path| expected.get(*path) != compiled.get(*path))
        .map(|path| (path, expected.get(path), compiled.get(path)))
        .collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

pub(crate) fn each_builtin_loaded_is_compiled_once(node: &Node) {
    let script = "const before = process.moduleLoadList.slice(); \
        require('zlib'); require('http2'); require('readline'); require('dgram'); \
        console.log(JSON.stringify({ before, after: process.moduleLoadList }))";
    let traced = trace(&[], node.command(["-e", script]));
    let lists: Value = serde_json::from_str(&traced.stdout()).expect("JSON");
    let modules = |name: &str| -> BTreeSet<String> {
        list(&lists[name])
            .iter()
            .filter_map(|one| text(one).strip_prefix("NativeModule "))
            .map(|name| format!("node:{name}"))
            .collect()
    };
    let (before, after) = (modules("before"), modules("after"));
    let compiled = compiled(&traced, "builtin");
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.len() > 10, "{new:?}");
    for module in new {
        assert_eq!(
            compiled.get(module),
            Some(&1),
            "{module} on {}",
            node.version
        );
    }
    // Node's own entry points are compiled, too, and are no modules.
    for (path, count) in &compiled {
        let entry_point = ["bootstrap", "main", "per_context"]
            .iter()
            .any(|kind| path.starts_with(&format!("node:internal/{kind}/")));
        assert!(
            entry_point || after.contains(path),
            "{path} is not in moduleLoadList"
        );
        assert_eq!(*count, 1, "{path}");
    }
}

fn threads_that_compile_at_once_compile_each_builtin_once(node: &Node) {
    let script = "const { Worker } = require('worker_threads');
        for (let i = 0; i < 6; i++) new Worker(`require('http'); require('crypto')`, { eval: true });";
    let traced = trace(&[], node.command(["-e", script]));
    let recording = Recording::load(&traced.recording).expect("a recording");
    let mut compiled: BTreeMap<_, u64> = BTreeMap::new();
    for compilation in &recording.compilations {
        if compilation.unit == CompilationUnit::Builtin {
            let path = String::from_utf8_lossy(recording.name(compilation.path)).into_owned();
            *compiled.entry((compilation.thread, path)).or_default() += 1;
        }
    }
    let threads: BTreeSet<_> = compiled.keys().map(|(thread, _)| *thread).collect();
    assert_eq!(threads.len(), 7, "{threads:?}");
    // In a worker Node 16 sets up its context twice, as bpftrace sees it call InitializePrimordials.
    let expected = |path: &str| match path.contains("/per_context/") && node.major() == 16 {
        true => 2,
        false => 1,
    };
    let more: Vec<_> = (compiled.iter())
        .filter(|((_, path), times)| **times > expected(path))
        .collect();
    assert!(more.is_empty(), "{more:?}");
}

fn a_code_cache_that_v8_rejects_is_none(node: &Node) {
    // A cache is checked against the length of the source and V8's flags.
    let script = "const { Script } = require('vm');
        const source = 'globalThis.f = function() { return ' + '1+'.repeat(3000) + '1 }';
        const cachedData = new Script(source, { filename: 'first' }).createCachedData();
        const good = new Script(source, { filename: 'good', cachedData });
        const bad = new Script(source + '  ', { filename: 'bad', cachedData });
        console.log(good.cachedDataRejected, bad.cachedDataRejected);";
    // A context of its own has no compilation of the same source.
    let traced = trace(&[], node.command(["-e", script]));
    assert_eq!(traced.stdout().trim(), "false true");
    let scripts = list(&traced.run["compile"]["scripts"]);
    let cached = |name: &str| {
        let script = scripts.iter().find(|script| script["path"] == name);
        script.map(|script| script["cached"].clone())
    };
    assert_eq!(cached("bad"), Some(Value::from(false)), "{scripts:?}");
    assert_eq!(cached("first"), Some(Value::from(false)), "{scripts:?}");
    assert_eq!(cached("good"), Some(Value::from(true)), "{scripts:?}");
}

fn a_name_in_pieces_is_read_whatever_each_is_part_of(node: &Node) {
    // A part of a string that stands for another one, since it was the name of a property.
    let script =
        "const of = () => Buffer.from('0123456789 a part of a string, and more of it').toString();
        const whole = of(), part = whole.substring(11, 29), names = {};
        names[of()] = 1;
        names[whole] = 2;
        const filename = part + '/and what follows it ' + process.argv.length;
        new (require('vm').Script)('0', { filename });";
    let traced = trace(&[], node.command(["-e", script]));
    let names = compiled(&traced, "script");
    let expected = "a part of a string/and what follows it 1";
    assert_eq!(names.get(expected), Some(&1), "{names:?}");
}
