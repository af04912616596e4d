//! Calls between JavaScript and C++.

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use nodeprof_profile::{
    Recording,
    recording::{Frame, FrameKind},
};

use crate::support::{
    Node, Trace, Traced, folder, has_packages, has_tool, list, npm_script, number, on_each_node,
    plain, project, seen_and_traced, trace, write,
};

on_each_node!(
    n_calls_are_n_crossings,
    entries_of_callbacks_equal_crossings,
    two_runs_give_the_same_counts,
    counting_gives_the_counts_of_a_full_trace,
    calls_are_counted_whoever_ends_first,
    calls_count_where_there_is_no_room_for_their_stacks,
    calls_count_however_deep_they_nest,
    callbacks_that_go_on_in_another_count_once,
    calls_that_never_return_take_their_time_from_those_around_them,
    calls_that_cpp_makes_itself_have_its_stack,
    bpftrace_counts_the_same,
    other_processes_of_the_same_binary_are_not_counted,
);

mod constructions_are_told_from_calls {
    // Versions whose V8 constructs in a way of its own: on 19 the callback lies on the stack only, 25 has its own form of CallOrConstruct.
    crate::support::on_each_node! { @versions super::constructions_are_told_from_calls, node_19 "19.8.1", node_25 "25.9.0" }
}

const STAT: &[&str] = &["InternalModuleStat", "FastInternalModuleStat"];
const BYTE_LENGTH: &[&str] = &["ByteLengthUtf8", "SlowByteLengthUtf8", "FastByteLengthUtf8"];

/// KIND of calls.js, the C++ functions behind it, how the calls are seen (`None`: slow and fast), and how many to make.
type Known = (
    &'static str,
    &'static [&'static str],
    Option<&'static str>,
    &'static [u64],
);
const KNOWN: &[Known] = &[
    ("stat", STAT, Some("slow"), &[1, 1_000, 300_000]),
    ("byte-length", BYTE_LENGTH, None, &[1, 1_000, 300_000]),
    (
        "getter",
        &["Accessors::FunctionLengthGetter"],
        Some("getter"),
        &[1, 1_000, 300_000],
    ),
    (
        "construct",
        &["New"],
        Some("construct"),
        &[1, 1_000, 300_000],
    ),
    (
        "to-js",
        &["Execution::Invoke"],
        Some("to_js"),
        &[1, 1_000, 300_000],
    ),
    ("uptime", &["Uptime", "FastUptime"], None, &[1_000]),
    (
        "getter-runtime",
        &["DebugPortGetter"],
        Some("getter"),
        &[1_000],
    ),
    ("throw", &["Chdir"], Some("slow"), &[1_000]),
];

fn known_calls(node: &Node, n: u64, kind: &str) -> Vec<String> {
    node.command([
        "--no-warnings",
        "--expose-internals",
        &project("examples/known-calls/calls.js"),
        &n.to_string(),
        kind,
    ])
}

/// total = slow + fast + getter + construct = sum of the callbacks; nothing entered without leaving, or left without entering.
fn sums_agree(traced: &Traced) {
    let crossings = &traced.run["crossings"];
    let total = number(&crossings["total"]);
    let by_kind = |kind: &str| number(&crossings["by_kind"][kind]);
    let sum = |list_of: &str, kind: &str| -> u64 {
        list(&crossings[list_of])
            .iter()
            .filter(|c| c["kind"] == kind)
            .map(|c| number(&c["calls"]))
            .sum()
    };
    let kinds = ["slow", "fast", "getter", "construct"];
    assert_eq!(total, kinds.iter().map(|kind| by_kind(kind)).sum::<u64>());
    for kind in kinds {
        assert_eq!(sum("callbacks", kind), by_kind(kind), "{kind}");
    }
    assert_eq!(sum("to_js", "to_js"), by_kind("to_js"));
    assert!(total > 0);
    // What never returned is a call of process.exit's C++, one a process.
    let unfinished: Vec<_> = list(&crossings["callbacks"])
        .iter()
        .filter(|c| number(&c["unfinished"]) > 0)
        .map(|c| c["function"].as_str().unwrap_or_default())
        .collect();
    assert!(
        number(&crossings["unfinished"]) <= list(&traced.run["processes"]).len() as u64,
        "{unfinished:?}"
    );
    assert!(
        unfinished.iter().all(|name| *name == "ReallyExit"),
        "{unfinished:?}"
    );
    // Every finished call that is not fast has its time.
    let timed = number(&crossings["timed_calls"]);
    assert!(timed <= total - by_kind("fast"), "{timed} of {total}");
    // Getters can be too many to be timed, and on Node 18 no builtin is probed that optimised code calls through.
    let version = traced.run["node"]["version"].as_str().unwrap_or_default();
    let version = version.trim_start_matches('v');
    if traced.run["mode"] == "full" && !version.starts_with("18.") {
        let least = by_kind("slow") + by_kind("construct") - number(&crossings["unfinished"]);
        assert!(timed >= least, "{timed} of {least}");
    }
}

pub(crate) fn n_calls_are_n_crossings(node: &Node) {
    let base = trace(&[], known_calls(node, 0, "none"));
    sums_agree(&base);
    let total = |traced: &Traced| number(&traced.run["crossings"]["total"]);
    for &(kind, functions, seen_as, counts) in KNOWN {
        for &n in counts {
            let traced = trace(&[], known_calls(node, n, kind));
            let what = format!("{n} × {kind} on {}", node.version);
            sums_agree(&traced);
            let (before, after) = (
                base.calls_of_kind(functions, seen_as),
                traced.calls_of_kind(functions, seen_as),
            );
            assert_eq!(after, before + n, "{what}, base {before}");
            // Nothing else was called; a crossing to JavaScript comes with one to C++ around it.
            assert_eq!(total(&traced), total(&base) + n, "{what}: all crossings");

            let fast = traced.calls_of_kind(functions, Some("fast"));
            match (kind, node.major()) {
                ("byte-length", 20..) if n == 300_000 => {
                    assert!(fast > n / 2, "{what}: {fast} fast calls");
                    let slow = traced.calls_of_kind(functions, Some("slow"));
                    assert_eq!(slow + fast, before + n, "{what}");
                }
                ("uptime" | "byte-length", 20..) => {}
                _ => assert_eq!(fast, 0, "{what}"),
            }
        }
    }
}

/// A recursion through C++, deeper than calls are timed: they count nevertheless, and what is told to be missing is their times.
fn calls_count_however_deep_they_nest(node: &Node) {
    const DEPTH: u64 = 200;
    let script = format!(
        "const fs = require('fs');
        function nest(depth) {{
          fs.existsSync('/');
          if (depth > 1) 'x'.replace(/x/, () => {{ nest(depth - 1); return ''; }});
          fs.existsSync('/');
        }}
        nest({DEPTH});"
    );
    for mode in ["count", "full"] {
        let traced = Trace::new(["--mode", mode], node.command(["-e", &script])).run();
        traced.succeeded();
        traced.lost_nothing_but(&["frames_too_deep"]);
        assert_eq!(
            traced.calls(&["ExistsSync", "Access"]),
            2 * DEPTH,
            "{mode} on {}: {:?}",
            node.version,
            traced.calls_by_callback()
        );
        let deep = &traced.run["losses"]["frames_too_deep"];
        assert_eq!(deep.as_u64().is_some_and(|n| n > 0), mode == "full");
    }
}

fn constructions_are_told_from_calls(node: &Node) {
    let calls = |n| {
        let traced = trace(&[], known_calls(node, n, "construct"));
        sums_agree(&traced);
        traced.calls_of_kind(&["New"], Some("construct"))
    };
    let base = calls(0);
    assert_eq!(calls(1_000), base + 1_000, "on {}", node.version);
}

/// What `--verify` prints: entries of all binding callbacks, and the crossings that lead to them.
fn verified(traced: &Traced) -> (u64, u64) {
    let stderr = traced.stderr();
    let line = stderr
        .lines()
        .find_map(|line| line.strip_prefix("verified: "))
        .unwrap_or_else(|| panic!("no verification: {stderr}"));
    let mut figures = line
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok());
    let mut next = || figures.next().expect("two figures");
    (next(), next())
}

/// Callbacks that call methods with the signature of one (`StreamBase::Writev`), and those whose names have types of template parameters on 26.
const WRITES: &str = "
const net = require('net');
const server = net.createServer((socket) => {
  socket.write(Buffer.from('1'));
  socket.cork();
  socket.write('2');
  socket.write(Buffer.from('3'));
  socket.uncork();
  socket.end();
}).listen(0, '127.0.0.1', () => {
  const client = net.connect(server.address().port, '127.0.0.1');
  client.resume().on('close', () => server.close());
});
";

pub(crate) fn entries_of_callbacks_equal_crossings(node: &Node) {
    let mut programs: Vec<Vec<String>> = KNOWN
        .iter()
        .map(|&(kind, ..)| known_calls(node, 1_000, kind))
        .collect();
    programs.push(node.command([project("examples/workers/main.js")]));
    programs.push(node.command([project("examples/children/main.js")]));
    programs.push(node.command(["-e", WRITES]));
    for (example, script) in [("express", "app.js"), ("esm", "main.js")] {
        if has_packages(&format!("examples/{example}")) {
            programs.push(node.command([project(&format!("examples/{example}/{script}"))]));
        }
    }
    if let Some(npm) = npm_script("npm") {
        programs.push(node.command([&npm, "--version"]));
    }
    for program in programs {
        let traced = trace(&["--verify"], &program);
        let (entries, crossings) = verified(&traced);
        let by_kind = &traced.run["crossings"]["by_kind"];
        assert_eq!(
            crossings,
            number(&by_kind["slow"]) + number(&by_kind["construct"]),
            "{program:?}"
        );
        assert_eq!(entries, crossings, "{program:?}: {}", traced.stderr());
        sums_agree(&traced);
    }
}

/// Programs that do the same every time.
fn deterministic_programs(node: &Node) -> Vec<Vec<String>> {
    let mut programs = vec![
        node.command(["-e", "require('zlib'); new URL('https://a.test/b?c')"]),
        known_calls(node, 1_000, "byte-length"),
    ];
    if has_packages("examples/express") {
        programs.push(node.command([project("examples/express/app.js")]));
    }
    programs
}

/// Without C++ → JavaScript: how often a program's event loop comes to JavaScript depends on time.
fn calls_from_javascript(traced: &Traced) -> BTreeMap<String, u64> {
    let mut calls = traced.calls_by_callback();
    calls.retain(|name, _| !name.ends_with("(to_js)"));
    assert!(calls.len() > 10, "{calls:?}");
    calls
}

fn two_runs_give_the_same_counts(node: &Node) {
    let executable = std::fs::canonicalize(&node.path).expect("the build");
    for program in deterministic_programs(node) {
        let [one, two] = [trace(&[], &program), trace(&[], &program)];
        assert_eq!(
            calls_from_javascript(&one),
            calls_from_javascript(&two),
            "{program:?}"
        );
        for figure in ["lookups", "opens", "opens_failed", "stats", "bytes"] {
            let [one, two] = [&one, &two].map(|t| &t.run["package_json"][figure]);
            assert_eq!(one, two, "{program:?}: {figure}");
        }
        let opens = |traced: &Traced| {
            let mut operations = traced.file_operations();
            // The allocator's and the clock's, whenever some thread comes to them; and V8's of the executable,
            // which depends on where the heap came to lie.
            operations.retain(|(operation, path), _| {
                *operation == "open"
                    && !path.starts_with("/proc")
                    && !path.starts_with("/sys")
                    && std::path::Path::new(path) != executable
            });
            operations
        };
        assert_eq!(opens(&one), opens(&two), "{program:?}");
    }
}

/// How often each script and module was compiled, by path, unit and whether it came from a cache.
fn compiled(traced: &Traced) -> BTreeMap<String, u64> {
    let scripts = list(&traced.run["compile"]["scripts"]).iter();
    let compiled: BTreeMap<String, u64> = scripts
        .map(|s| {
            let what = format!("{} {} {}", s["path"], s["unit"], s["cached"]);
            (what, number(&s["compilations"]))
        })
        .collect();
    assert!(compiled.len() > 10, "{compiled:?}");
    compiled
}

pub(crate) fn counting_gives_the_counts_of_a_full_trace(node: &Node) {
    for program in deterministic_programs(node) {
        let full = trace(&[], &program);
        let count = trace(&["--mode", "count"], &program);
        assert_eq!(count.run["mode"], "count");
        assert_eq!(
            calls_from_javascript(&full),
            calls_from_javascript(&count),
            "{program:?}"
        );
        for figure in ["lookups", "opens", "stats"] {
            let [full, count] = [&full, &count].map(|t| &t.run["package_json"][figure]);
            assert_eq!(full, count, "{program:?}: {figure}");
        }
        sums_agree(&count);
        assert_eq!(compiled(&full), compiled(&count), "{program:?}");
        let asked = trace(
            &["--mode", "count", "--families", "serialization"],
            &program,
        );
        let functions = |traced: &Traced| -> Vec<(String, u64)> {
            let all = traced.run["serialization"]["functions"].as_array();
            let mut all: Vec<_> = all
                .expect("a list")
                .iter()
                .map(|f| (f["function"].to_string(), number(&f["calls"])))
                .collect();
            all.sort();
            all
        };
        assert!(!functions(&full).is_empty());
        assert_eq!(functions(&full), functions(&asked), "{program:?}");
    }
}

/// Before its event loop has started, a main thread keeps its latest counts to itself: whether the process ends then, executes something or is killed, or the
/// trace ends while it waits, they must be there.
pub(crate) fn calls_are_counted_whoever_ends_first(node: &Node) {
    const CALLS: u64 = 5_000;
    let proxies = |options: &[&str], n: u64, end: &str| -> u64 {
        let script = format!(
            "const {{ isProxy, isDate }} = require('util').types; for (let i = 0; i < {n}; i++) {{ isProxy(i); isDate(i) }} {end}"
        );
        let options = [&["--mode", "count"], options].concat();
        let traced = Trace::new(&options, node.command(["-e", &script])).run();
        traced.lost_nothing();
        sums_agree(&traced);
        let dates = traced.calls_of_kind(&["IsDate", "IsDateFastApi"], None);
        assert!(dates >= n, "{dates} of {n}, {end}");
        traced.calls_of_kind(&["IsProxy", "IsProxyFastApi"], None)
    };
    let wait = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2500)";
    let child = "require('child_process').execFileSync(process.execPath, ['-e', 'require(\"util\").types.isProxy(1)'])";
    for (options, end) in [
        (&[][..], "process.exit()"),
        (&[], "process.kill(process.pid, 'SIGKILL')"),
        (&[], child),
        (&["--until", "loop-start"], ""),
        (&["--until", "1500ms"], wait),
    ] {
        let base = proxies(options, 0, end);
        let counted = proxies(options, CALLS, end);
        assert_eq!(counted - base, CALLS, "{end:?} on {}", node.version);
    }
}

/// `process.exit()` below two calls into JavaScript and, in a module, one out of it: each moment is one call's own.
fn calls_that_never_return_take_their_time_from_those_around_them(node: &Node) {
    const BUSY: u64 = 300_000_000;
    let folder = folder();
    let busy = "const begun = Date.now(); while (Date.now() - begun < 301); process.exit(0);";
    let script = write(folder.path(), "busy.mjs", busy);
    let traced = Trace::new::<&str, _>([], node.command([script])).run();
    traced.succeeded();
    let crossings = &traced.run["crossings"];
    assert_eq!(
        number(&crossings["unfinished"]),
        2,
        "of C++: that evaluates, and that exits"
    );
    let own = |rows: &str| -> u64 {
        let rows = list(&crossings[rows]).iter();
        // Those without times are null.
        rows.filter_map(|row| row["self_ns"].as_u64()).sum()
    };
    let (to_js, to_cpp) = (own("to_js"), own("callbacks"));
    let life = number(&traced.run["time"]["wall_ns"]);
    assert!(to_js >= BUSY, "{to_js} ns in JavaScript");
    assert!(to_js + to_cpp <= life, "{to_js} + {to_cpp} of {life} ns");
}

/// Beyond the 200,000 calls that are written one by one there is a sum for each stack, and room for 131,072.
pub(crate) fn calls_count_where_there_is_no_room_for_their_stacks(node: &Node) {
    const DEPTH: u32 = 19;
    let calls = |depth: u32| {
        // Each call has a stack of its own: which way it came down.
        let script = format!(
            "const {{ isProxy }} = require('util').types; const down = (n) => {{ if (!n) return isProxy(n); down(n - 1); down(n - 1) }}; down({depth})"
        );
        let traced = Trace::new(["--freq", "0"], node.command(["-e", &script])).run();
        sums_agree(&traced);
        let calls = traced.calls_of_kind(&["IsProxy", "IsProxyFastApi"], None);
        (calls, traced.run["losses"].clone())
    };
    let (base, _) = calls(0);
    let (counted, losses) = calls(DEPTH);
    assert_eq!(counted - base, (1 << DEPTH) - 1, "on {}", node.version);
    println!("node {}: {losses}", node.version);
    assert!(number(&losses["stacks"]) > 100_000, "{losses}");
    let others = losses.as_object().expect("losses").iter();
    let others = others.filter(|(kind, count)| *kind != "stacks" && number(count) > 0);
    assert_eq!(others.count(), 0, "{losses}");
}

/// Functions that bpftrace counts: name in C++ without arguments, callbacks of the report.
const SEEN_BY_BOTH: [(&str, &[&str]); 5] = [
    ("node::fs::InternalModuleStat", &["InternalModuleStat"]),
    ("node::fs::LStat", &["LStat"]),
    (
        "node::contextify::ContextifyScript::New",
        &["ContextifyScript::New"],
    ),
    (
        "node::Buffer::(anonymous namespace)::CreateFromString",
        &["CreateFromString"],
    ),
    (
        "v8::internal::(anonymous namespace)::Invoke",
        &["Execution::Invoke"],
    ),
];

/// `EnvDefiner` jumps to `EnvSetter`, and what a context's global object does for numbers to what it does for names.
fn callbacks_that_go_on_in_another_count_once(node: &Node) {
    let folder = folder();
    let script = write(
        folder.path(),
        "properties.js",
        "const [define, set, read] = process.argv.slice(2).map(Number);
const descriptor = { value: '1', configurable: true, writable: true, enumerable: true };
for (let i = 0; i < define; i++) Object.defineProperty(process.env, 'X', descriptor);
for (let i = 0; i < set; i++) process.env.X = 'a';
const vm = require('vm');
vm.runInContext(`for (let i = 0; i < ${read}; i++) globalThis[7];`, vm.createContext({}));
",
    );
    for mode in ["full", "count"] {
        let calls = |numbers: [&str; 3]| {
            let program = node.command(std::iter::once(script.as_str()).chain(numbers));
            let traced = trace(&["--mode", mode], program);
            [
                "EnvDefiner",
                "EnvSetter",
                "ContextifyContext::IndexedPropertyGetterCallback",
                "ContextifyContext::PropertyGetterCallback",
            ]
            .map(|function| traced.calls(&[function]))
        };
        let (none, all) = (calls(["0", "0", "0"]), calls(["300", "200", "100"]));
        let more: Vec<u64> = all.iter().zip(none).map(|(all, none)| all - none).collect();
        // Node 16 has no definer: V8 asks whether there is a property, and sets it where there is none.
        let (definer, setter) = match node.version.starts_with("16.") {
            true => (0, 201),
            false => (300, 200),
        };
        // The name `globalThis` is read each time, too.
        assert_eq!(more, [definer, setter, 100, 100], "{mode}");
    }
}

fn bpftrace_counts_the_same(node: &Node) {
    if !has_packages("examples/express") {
        return;
    }
    let program = node.command([project("examples/express/app.js")]);
    let names = SEEN_BY_BOTH.map(|(name, _)| name);
    let count = || {
        count_with_bpftrace(node, &program, &names, |name, symbol| {
            symbol
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('('))
        })
    };
    // A function that this version does not have is not called either.
    let hits_of = |hits: &BTreeMap<&str, u64>, name: &str| hits.get(name).copied().unwrap_or(0);
    let both = seen_and_traced(&program, count, |hits, traced| {
        let mut all = SEEN_BY_BOTH.iter();
        all.all(|(name, functions)| traced.calls(functions) == hits_of(hits, name))
    });
    let Some((hits, traced)) = both else {
        return;
    };
    for (name, functions) in SEEN_BY_BOTH {
        let (hits, calls) = (hits_of(&hits, name), traced.calls(functions));
        assert_eq!(hits, calls, "{name} on {}", node.version);
    }
    assert!(hits.len() >= 4, "{hits:?}");
}

/// How often functions were entered, by name; only those that the binary has. `is_named` tells whether a demangled symbol is
/// meant by a name.
fn count_with_bpftrace<'a>(
    node: &Node,
    program: &[String],
    names: &[&'a str],
    is_named: impl Fn(&str, &str) -> bool,
) -> Option<BTreeMap<&'a str, u64>> {
    if !["bpftrace", "nm", "c++filt"].into_iter().all(has_tool) {
        return None;
    }
    let path = std::fs::canonicalize(&node.path).expect("the build");
    let path = path.to_str().expect("UTF-8");
    if program.iter().any(|word| word.contains([' ', ':'])) || path.contains([' ', ':']) {
        println!("skipped: bpftrace cannot take a path with a space or a colon: {program:?}");
        return None;
    }
    let symbols = symbols(path, names, is_named);
    let script: String = symbols
        .iter()
        .map(|(index, address)| format!("uprobe:{path}:0x{address} {{ @[{index}] = count(); }} "))
        .collect();
    let output = plain(&mut Command::new("bpftrace"))
        .args(["-f", "json", "-e", &script, "-c", &program.join(" ")])
        .stdin(Stdio::piped())
        .output()
        .expect("bpftrace starts");
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        println!(
            "skipped: bpftrace failed ({}): {}",
            output.status,
            why.trim()
        );
        return None;
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let counted: serde_json::Value = stdout
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|line| line["type"] == "map")
        .expect("counts");
    let mut hits = BTreeMap::new();
    for (index, _) in &symbols {
        let count = &counted["data"]["@"][index.to_string()];
        hits.insert(names[*index], count.as_u64().unwrap_or(0));
    }
    Some(hits)
}

/// Addresses of functions of these names, with the name's index. By symbol bpftrace 0.17 would take 0.6 s for each.
fn symbols(
    binary: &str,
    names: &[&str],
    is_named: impl Fn(&str, &str) -> bool,
) -> Vec<(usize, String)> {
    let run = |program: &str, arguments: &[&str], input: Stdio| {
        let output = Command::new(program)
            .args(arguments)
            .stdin(input)
            .output()
            .expect("the tool starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let listing = run("nm", &["--defined-only", binary], Stdio::null());
    // Clones that the compiler split off (`.cold`, `.part.0`) are no entries; `_ZZ` are a function's own statics.
    let (addresses, mangled): (Vec<&str>, Vec<&str>) = listing
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            Some((fields.next()?, fields.nth(1)?))
        })
        .filter(|(_, name)| !name.contains('.') && !name.starts_with("_ZZ"))
        .unzip();
    let folder = crate::support::folder();
    let file = crate::support::write(folder.path(), "symbols", &(mangled.join("\n") + "\n"));
    let file = std::fs::File::open(file).expect("the symbols");
    let demangled = run("c++filt", &[], file.into());
    let mut found: Vec<(usize, String)> = addresses
        .iter()
        .zip(demangled.lines())
        .filter_map(|(address, demangled)| {
            let index = names.iter().position(|name| is_named(name, demangled))?;
            Some((index, (*address).to_owned()))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// A server that is connected to five times.
const SERVER: &str = "
const net = require('net');
const server = net.createServer((socket) => socket.end());
server.listen(0, '127.0.0.1', () => {
  let left = 5;
  const next = () => {
    if (!left--) return server.close();
    net.connect(server.address().port, '127.0.0.1').resume().on('close', next);
  };
  next();
});
";

/// The event loop has a socket made of each connection, by a function that V8 calls at once: no JavaScript lies between.
fn calls_that_cpp_makes_itself_have_its_stack(node: &Node) {
    let folder = folder();
    let script = write(folder.path(), "server.js", SERVER);
    let traced = trace(&[], node.command([&script]));
    traced.lost_nothing();
    let recording = Recording::load(&traced.recording).expect("a recording");
    let mut of_the_loop = 0;
    for crossing in &recording.crossings {
        let called = &recording.callbacks[crossing.callback.0 as usize];
        if (&*called.binding, &*called.function) != ("tcp_wrap", "New") {
            continue;
        }
        let frames: Vec<_> = recording
            .frames_of(crossing.stack.expect("a stack"))
            .collect();
        let has = |name: &str| {
            let is_it = |frame: &&Frame| recording.name(frame.function) == name.as_bytes();
            frames.iter().any(is_it)
        };
        assert!(has("node::Start"));
        if !frames.iter().any(|f| f.kind == FrameKind::JavaScript) {
            assert!(has("node::TCPWrap::Instantiate") && has("uv_run"));
            of_the_loop += 1;
        }
    }
    assert_eq!(of_the_loop, 5);
}

/// Ended with its owner.
struct Endless(Child);

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn other_processes_of_the_same_binary_are_not_counted(node: &Node) {
    let program = known_calls(node, 1_000, "stat");
    let alone = trace(&[], &program);
    let start = |program: &[String]| {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).stdout(Stdio::null());
        command.spawn().expect("node")
    };
    // One that ran before and calls all the while, and others that start meanwhile.
    let endless = Endless(start(&known_calls(node, 1 << 50, "stat")));
    let is_over = AtomicBool::new(false);
    let (beside, started) = std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut started = 0;
            while !is_over.load(Ordering::Relaxed) {
                let status = start(&known_calls(node, 700, "stat")).wait();
                assert!(status.expect("an exit").success());
                started += 1;
            }
            started
        });
        let beside = std::panic::catch_unwind(|| trace(&[], &program));
        is_over.store(true, Ordering::Relaxed);
        (beside, others.join().expect("the others"))
    });
    let beside = beside.expect("a trace");
    assert!(started > 0);
    assert_eq!(
        calls_from_javascript(&beside),
        calls_from_javascript(&alone)
    );
    assert_eq!(list(&beside.run["processes"]).len(), 1);
    // Whoever comes upon a return probe, or a breakpoint in place of an instruction that is not emulated, has such a mapping.
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", endless.0.id()));
    assert!(!maps.expect("its mappings").contains("[uprobes]"));
}
