//! A traced program does what it does untraced: same output, same status, whatever happens inside of it.
//! The recording is complete up to the program's end, however it ends.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that fails says where"
)]

mod faults_support;

use std::{fs, path::Path, time::Duration};

use faults_support::{
    Folder, VERSIONS, build, children, code, command, load, nodeprof, run, signal, soon, trace,
};
use nodeprof_profile::{Recording, recording::CrossingKind};

/// Every program does this last: the recording must have it.
const LAST_ACT: &str = "/no/such/file/nodeprof-last-act";

/// Runs a program untraced, in full mode and in count mode, on every build, and compares.
struct Case {
    flags: &'static [&'static str],
    /// Name of the script: `.mjs` for a module.
    file: &'static str,
    source: &'static str,
    arguments: &'static [&'static str],
    /// What differs from run to run even untraced.
    volatile: fn(&str) -> String,
}

const CASE: Case = Case {
    flags: &[],
    file: "program.js",
    source: "",
    arguments: &[],
    volatile: |text| text.to_string(),
};

/// What every program may use; on one line, so that lines are counted as written.
const PRELUDE: &str = "const fs = require('fs'); const lastAct = () => { try { fs.statSync('/no/such/file/nodeprof-last-act') } catch {} }; ";

impl Case {
    fn survives(&self) {
        self.survives_and(|_, _| ());
    }

    fn survives_and(&self, check: impl Fn(&str, &Recording)) {
        for version in VERSIONS {
            let Some(node) = build(version) else { continue };
            let folder = Folder::new();
            let module = self.file.ends_with(".mjs");
            let prelude = match module {
                true => {
                    "import { createRequire } from 'module'; const require = createRequire(import.meta.url); "
                }
                false => "",
            };
            let script = folder.file(self.file, format!("{prelude}{PRELUDE}{}", self.source));
            let words = |node: &Path| {
                let mut all = vec![node.as_os_str().to_owned()];
                all.extend(self.flags.iter().map(Into::into));
                all.push(script.clone().into_os_string());
                all.extend(self.arguments.iter().map(Into::into));
                all
            };
            let bare = run(command(&node)
                .args(&words(&node)[1..])
                .current_dir(&folder.0));
            for mode in ["full", "count"] {
                let file = folder.path(format!("{mode}.nodeprof"));
                let traced = run(trace(&file)
                    .args(["--mode", mode, "--"])
                    .args(words(&node))
                    .current_dir(&folder.0));
                let place = format!("node {version}, {mode}");
                let shown = |o: &faults_support::Outcome| {
                    (
                        o.code(),
                        (self.volatile)(&o.stdout()),
                        (self.volatile)(&o.stderr()),
                    )
                };
                assert_eq!(shown(&traced), shown(&bare), "{place}");
                let recording = load(&file);
                complete(&recording, code(bare.status), mode, &place);
                check(&place, &recording);
            }
        }
    }
}

/// Families that count mode leaves out unless asked.
const NOT_COUNTED: [&str; 4] = ["serialization", "stacks", "cpu", "off-cpu"];

/// The recording goes up to the program's end.
fn complete(recording: &Recording, expected: i32, mode: &str, place: &str) {
    let [recorded] = recording.runs.as_slice() else {
        panic!("{place}: {} runs", recording.runs.len());
    };
    let main = &recording.processes[0];
    let status = recorded
        .exit_status
        .unwrap_or_else(|| 128 + recorded.signal.unwrap_or(-1));
    assert_eq!(status, expected, "{place}");
    assert_eq!(recorded.ended_by, "exit", "{place}");
    assert!(main.exited.is_some(), "{place}: the exit is missing");
    assert_eq!(
        main.exit_status.or(main.signal.map(|s| 128 + s)),
        Some(expected),
        "{place}"
    );
    assert_eq!(main.incomplete, None, "{place}");
    // The V8 of Node 18 copies its builtins, so they are not probed: calls from optimised code have no times.
    let copies_builtins = recording.binaries.iter().any(|b| {
        b.node_version
            .as_deref()
            .is_some_and(|v| v.starts_with("v18."))
    });
    for family in &recording.families {
        let expected = if copies_builtins && family.name == "crossings" {
            "partial"
        } else if mode == "count" && NOT_COUNTED.contains(&family.name.as_str()) {
            "off"
        } else {
            "on"
        };
        assert_eq!(family.state, expected, "{place}: {family:?}");
    }
    for loss in &recording.losses {
        if loss.kind == "records" {
            assert_eq!(loss.count, 0, "{place}: {loss:?}");
        }
    }
    if mode == "full" {
        let path = recording
            .names
            .iter()
            .position(|n| n == LAST_ACT.as_bytes());
        let path = path.unwrap_or_else(|| panic!("{place}: the last act is missing"));
        assert!(
            recording.files.iter().any(|f| f.path.0 as usize == path),
            "{place}: the last act is missing"
        );
    }
    assert!(calls(recording, "") > 0, "{place}: no crossing");
}

/// Calls of the callbacks whose name contains `function`.
fn calls(recording: &Recording, function: &str) -> u64 {
    let named = |id: nodeprof_profile::recording::CallbackId| {
        recording.callbacks[id.0 as usize]
            .function
            .contains(function)
    };
    let single = recording.crossings.iter();
    let single = single.filter(|c| c.kind != CrossingKind::ToJs && named(c.callback));
    let sums = recording.crossing_sums.iter();
    let sums = sums.filter(|c| c.kind != CrossingKind::ToJs && named(c.callback));
    single.count() as u64 + sums.map(|c| c.calls).sum::<u64>()
}

/// Addresses and process ids.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' | 'a'..='f' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}

#[test]
#[ignore = "needs root"]
fn garbage_collection_moves_everything_and_finds_every_frame() {
    Case {
        flags: &["--gc-interval=100", "--stress-compaction"],
        source: "
            const path = require('path'); require('util'); require('url'); require('zlib');
            let sum = 0;
            for (let i = 0; i < 150; i++) {
              const text = JSON.stringify({ i, list: Array.from({ length: 20 }, (_, k) => 'item ' + k) });
              sum += JSON.parse(text).list.length + Buffer.from(text).toString('hex').length;
              sum += fs.statSync(__filename).size + fs.readFileSync(__filename, 'utf8').length;
              sum += path.resolve('a', String(i)).length > 0 ? 1 : 0;
              try { fs.readFileSync('/no/such/file') } catch (e) { sum += e.stack.length > 0 ? 1 : 0 }
              process.uptime(); process.hrtime();
            }
            console.log(sum); lastAct();
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn collections_are_asked_for_inside_of_callbacks() {
    Case {
        flags: &["--expose-gc"],
        source: "
            const vm = require('vm'); const v8 = require('v8');
            let n = 0;
            const collect = () => { gc(); n++; return 1 };
            for (let i = 0; i < 20; i++) {
              vm.runInNewContext('f()', { f: collect });
              fs.statSync(__filename);
              JSON.parse('[1,2]', (k, v) => { collect(); return v });
              Buffer.from({ valueOf() { collect(); return 'x' } });
              v8.serialize({ get a() { collect(); return 1 } });
            }
            for (let i = 0; i < 60000; i++) { process.uptime(); if (i % 6000 == 0) collect() }
            console.log(n); lastAct();
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn errors_are_made_thrown_and_caught_in_and_around_callbacks() {
    Case {
        source: "
            const vm = require('vm');
            let n = 0;
            const attempt = (f) => { try { f() } catch (e) { n += String(e.stack).split('\\n').length > 0 ? 1 : 0 } };
            Error.prepareStackTrace = (e, frames) => { fs.statSync(__filename); return frames.map(String).join('|') };
            for (let i = 0; i < 200; i++) {
              attempt(() => fs.statSync({ get length() { throw new Error('getter') } }));
              attempt(() => fs.readFileSync('/no/such/file'));
              attempt(() => process.chdir('/no/such/folder'));
              attempt(() => vm.runInThisContext('throw new Error(1)'));
              attempt(() => vm.runInNewContext('f()', { f() { throw new Error('in') } }));
              attempt(() => require('v8').serialize({ get a() { throw new Error('while it is written') } }));
              attempt(() => new vm.Script('}'));
              attempt(() => Buffer.alloc(-1));
            }
            Error.prepareStackTrace = undefined;
            for (let i = 0; i < 3000; i++) { const o = {}; Error.captureStackTrace(o); n += o.stack.length > 0 ? 1 : 0; process.uptime() }
            process.on('uncaughtException', (e) => { n++ });
            fs.stat(__filename, () => { throw new Error('in a callback of fs') });
            fs.readFile('/no/such/file', () => { new Error().stack; throw new Error('in another') });
            setTimeout(() => { throw new Error('in a timer') }, 1);
            Promise.resolve().then(() => fs.statSync('/no/such/file')).catch(() => { n++ });
            process.on('exit', () => { console.log(n); lastAct() });
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn the_cpu_profiler_walks_the_stack_at_the_same_time() {
    Case {
        flags: &["--cpu-prof", "--cpu-prof-interval=100"],
        source: "
            const until = Date.now() + 150; let n = 0;
            while (Date.now() < until) { fs.statSync(__filename); process.uptime(); n++ }
            console.log(n > 10); lastAct();
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn three_million_hot_calls_are_survived_and_counted() {
    let calls_js = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/known-calls/calls.js");
    for version in VERSIONS {
        let Some(node) = build(version) else { continue };
        let folder = Folder::new();
        // Full mode records the first ones singly, then sums: both ways are gone through.
        for (mode, n) in [("full", 3_000_000u64), ("count", 300_000)] {
            let file = folder.path(format!("{mode}.nodeprof"));
            let traced = run(trace(&file)
                .args(["--mode", mode, "--"])
                .args([&node, Path::new("--expose-internals"), &calls_js])
                .args([&n.to_string(), "uptime"]));
            assert_eq!(traced.stdout(), format!("{n} uptime: {n}\n"), "{version}");
            // Old versions warn of --expose-internals.
            let said = traced.stderr();
            assert_eq!(traced.code(), 0, "{version}: {said}");
            assert!(
                said.is_empty() || said.contains("internal testing only"),
                "{said}"
            );
            assert!(calls(&load(&file), "ptime") >= n, "{version}, {mode}");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn workers_start_end_throw_and_are_terminated_in_the_middle() {
    Case {
        source: "
            const { Worker } = require('worker_threads');
            const code = `
              const { workerData: i, parentPort } = require('worker_threads'); const fs = require('fs');
              parentPort.postMessage('ready');
              for (let k = 0; k < 50; k++) fs.statSync('/');
              if (i % 4 == 1) { for (;;) { fs.statSync('/'); process.uptime() } }
              if (i % 4 == 2) process.exit(5);
              if (i % 4 == 3) throw new Error('in a worker');
            `;
            const seen = []; let at = 0;
            function next() {
              if (at == 20) { console.log(seen.sort().join(' ')); lastAct(); return }
              const i = at++; let left = 1;
              const w = new Worker(code, { eval: true, workerData: i });
              w.on('error', (e) => seen.push('error:' + e.message));
              w.on('message', () => { if (i % 4 == 1) setTimeout(() => w.terminate(), i) });
              w.on('exit', (status) => { seen.push(i % 4 + ':' + status); next() });
            }
            for (let k = 0; k < 4; k++) if (at < 20) next();
        ",
        volatile: |text| {
            // Four chains end, each with its line.
            text.lines().last().unwrap_or_default().to_string()
        },
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn a_program_that_aborts_is_recorded_up_to_its_abort() {
    Case {
        source: "fs.readFileSync(__filename); console.log('before'); lastAct(); process.abort()",
        // Beyond the first frames, which have no unwind information, libc's walk finds other ones from run to run.
        volatile: |text| {
            let text = without_numbers(text);
            let is_native = |line: &&str| line.trim_start().starts_with("#: #x#");
            let (natives, others): (Vec<&str>, Vec<&str>) = text.lines().partition(is_native);
            format!("{} {}", !natives.is_empty(), others.join("\n"))
        },
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn a_program_without_memory_left_is_recorded_up_to_its_abort() {
    Case {
        flags: &["--max-old-space-size=16"],
        source: "console.log('before'); lastAct(); const all = []; for (;;) all.push(new Array(1000).fill('x' + all.length))",
        // Where the heap ends is told with times and sizes.
        volatile: |text| {
            let fatal = text.lines().find(|l| l.contains("heap out of memory"));
            let fatal = fatal.and_then(|l| l.split_once("JavaScript")).map(|l| l.1);
            format!("{} {fatal:?}", text.starts_with("before"))
        },
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn a_program_may_be_killed_by_itself_or_by_its_child() {
    for source in [
        "lastAct(); process.kill(process.pid, 'SIGKILL'); for (;;) ;",
        "lastAct(); require('child_process').spawn('/bin/sh', ['-c', 'kill -9 $PPID']); setInterval(() => {}, 1000)",
        "lastAct(); process.kill(process.pid, 'SIGSEGV'); for (;;) ;",
    ] {
        Case { source, ..CASE }.survives();
    }
}

#[test]
#[ignore = "needs root"]
fn a_program_may_be_killed_by_a_stranger() {
    for version in VERSIONS {
        let Some(node) = build(version) else { continue };
        let folder = Folder::new();
        let script = folder.file(
            "program.js",
            format!("{PRELUDE} lastAct(); fs.writeFileSync('ready', ''); for (;;) {{ fs.statSync('/'); process.uptime() }}"),
        );
        let file = folder.path("killed.nodeprof");
        let mut tracer = trace(&file)
            .arg("--")
            .args([&node, &script])
            .current_dir(&folder.0)
            .spawn()
            .unwrap();
        assert!(soon(Duration::from_secs(10), || folder
            .path("ready")
            .exists()));
        let program = children(tracer.id())
            .into_iter()
            .find(|(_, name)| name != "nodeprof-holder");
        let (pid, _) = program.expect("the program runs");
        signal(pid, libc::SIGKILL);
        let status = faults_support::wait(&mut tracer).expect("nodeprof ends with its program");
        assert_eq!(code(status), 137, "{version}");
        complete(&load(&file), 137, "full", version);
    }
}

#[test]
#[ignore = "needs root"]
fn an_exception_that_nobody_catches_ends_the_program_as_ever() {
    Case {
        source: "process.on('exit', lastAct); setTimeout(() => { fs.readFileSync('/no/such/file') }, 2)",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn process_exit_leaves_many_callbacks_unfinished() {
    Case {
        source: "
            const vm = require('vm');
            const down = (n) => { if (n == 0) { console.log('out'); lastAct(); process.exit(9) } vm.runInNewContext('f()', { f: () => down(n - 1) }) };
            fs.stat('/', () => down(20));
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn fifty_short_children_come_and_go() {
    Case {
        source: "
            const { spawn, spawnSync } = require('child_process');
            let left = 40; const seen = {};
            const count = (what) => seen[what] = (seen[what] || 0) + 1;
            for (let i = 0; i < 10; i++) count('sync ' + spawnSync('/bin/sh', ['-c', 'exit ' + i % 3]).status);
            const start = (i) => {
              const [file, words] = i % 4 == 0 ? [process.execPath, ['-e', 'process.exit(' + i % 3 + ')']] : ['/bin/sh', ['-c', i % 4 == 1 ? 'kill -9 $$' : 'exit 4']];
              spawn(file, words).on('exit', (status, signal) => {
                count(i % 4 + ' ' + status + ' ' + signal);
                if (i + 10 < 40) start(i + 10);
                if (--left == 0) { console.log(JSON.stringify(Object.entries(seen).sort())); lastAct() }
              });
            };
            for (let i = 0; i < 10; i++) start(i);
        ",
        ..CASE
    }
    .survives_and(|place, recording| {
        assert_eq!(recording.processes.len(), 51, "{place}");
        let nodes = recording.processes.iter().filter(|p| p.node.is_some());
        assert_eq!(nodes.count(), 11, "{place}");
        for process in &recording.processes {
            assert!(process.exited.is_some(), "{place}: {process:?}");
            assert_eq!(process.incomplete, None, "{place}");
        }
    });
}

#[test]
#[ignore = "needs root"]
fn contexts_with_interceptors_come_and_go() {
    Case {
        source: "
            const vm = require('vm'); let sum = 0;
            for (let i = 0; i < 60; i++) {
              const context = vm.createContext({ i, fs, get g() { return fs.statSync('/').isDirectory() ? 1 : 0 } });
              sum += vm.runInContext('globalThis.z = i; y = z + g; delete globalThis.z; Object.keys(globalThis).length + y + (typeof nothing).length', context);
              if (i % 5 == 0) sum += vm.runInContext('try { null.x } catch (e) { e.stack.length > 0 ? 1 : 0 }', context);
            }
            console.log(sum); lastAct();
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn a_module_may_await_at_its_top() {
    Case {
        file: "program.mjs",
        source: "
            const { readFile } = await import('fs/promises');
            const text = await readFile(new URL(import.meta.url), 'utf8');
            await new Promise((done) => setTimeout(done, 5));
            try { await import('./no-such-module.mjs') } catch (e) { console.log(e.code) }
            try { await import('data:text/javascript,throw new Error(%22inside%22)') } catch (e) { console.log(e.message) }
            const { twice } = await import('data:text/javascript,export const twice = (n) => 2 * n');
            console.log(twice(text.length) > 0); lastAct();
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn webassembly_calls_javascript_that_calls_c() {
    Case {
        // (module (import "m" "f" (func)) (func (export "run") (param i32)
        //   (loop (call 0) (br_if 0 (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))))
        source: "
            let n = 0;
            const make = () => new WebAssembly.Instance(new WebAssembly.Module(code()), { m: { f() { n++; fs.statSync('/'); process.uptime(); if (n == 1500) throw new Error('through wasm') } } });
            function code() {
              const body = [0, 3, 64, 16, 0, 32, 0, 65, 1, 107, 34, 0, 13, 0, 11, 11];
              return new Uint8Array([0,97,115,109,1,0,0,0, 1,8,2,96,0,0,96,1,127,0, 2,7,1,1,109,1,102,0,0, 3,2,1,1,
                7,7,1,3,114,117,110,0,1, 10, body.length + 2, 1, body.length, ...body]);
            }
            make().exports.run(1000);
            try { make().exports.run(1000) } catch (e) { console.log(e.message, e.stack.includes('wasm')) }
            console.log(n); lastAct();
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn the_stack_overflows_through_callbacks() {
    Case {
        source: "
            const vm = require('vm'); let caught = 0;
            const ways = [
              (f) => [1, 2].sort(f), (f) => JSON.parse('[1]', f), (f) => vm.runInThisContext('(f) => f()')(f),
              (f) => Reflect.construct(function () { f() }, []), (f) => { fs.statSync('/'); f() },
              (f) => { process.uptime(); f() }, (f) => require('v8').serialize({ get a() { f() } }),
              (f) => 'x'.replace(/x/, f), (f) => { Buffer.byteLength('x'); new URL('http://a'); f() },
              (f) => vm.runInNewContext('f()', { f }),
            ];
            for (const way of ways) for (let round = 0; round < 3; round++) {
              const down = () => way(down);
              try { down() } catch (e) { if (e instanceof RangeError || e.name == 'RangeError' || e.name == 'DataCloneError') caught++; else throw e }
              for (let i = 0; i < 300; i++) { fs.statSync('/'); process.uptime() }
            }
            console.log(caught); lastAct();
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn callbacks_lie_deep_within_callbacks() {
    Case {
        source: "
            const vm = require('vm'); const script = new vm.Script('next()'); let n = 0;
            globalThis.next = () => { fs.statSync('/'); if (++n < 120) script.runInThisContext(); else console.log(new Error().stack.length > 0) };
            next(); n = 0; next(); console.log(n);
            const down = (k) => k == 0 ? 0 : 1 + down(k - 1); console.log(down(5000)); lastAct();
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn signals_reach_the_program_and_its_handlers() {
    Case {
        source: "
            let n = 0; process.on('SIGUSR2', () => { n++; if (n == 5) { console.log('five'); lastAct(); process.kill(process.pid, 'SIGTERM') } else process.kill(process.pid, 'SIGUSR2') });
            process.kill(process.pid, 'SIGUSR2'); setInterval(() => fs.statSync('/'), 1);
        ",
        ..CASE
    }
    .survives();
}

#[test]
#[ignore = "needs root"]
fn a_profile_written_by_node_itself_is_whole() {
    for version in VERSIONS {
        let Some(node) = build(version) else { continue };
        let folder = Folder::new();
        let script = folder.file(
            "program.js",
            "for (let i = 0; i < 3000; i++) require('fs').statSync('/')",
        );
        let traced = run(trace(&folder.path("x.nodeprof"))
            .arg("--")
            .args([&node, Path::new("--cpu-prof"), &script])
            .current_dir(&folder.0));
        assert_eq!(traced.code(), 0, "{version}: {}", traced.stderr());
        let profile = fs::read_dir(&folder.0)
            .unwrap()
            .flatten()
            .find(|e| e.path().extension().is_some_and(|x| x == "cpuprofile"));
        let text = fs::read(profile.expect("node writes a profile").path()).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(
            json["nodes"].as_array().is_some_and(|n| n.len() > 5),
            "{version}"
        );
    }
}

/// Node then copies its code, breakpoints included, to memory in which nobody knows of them.
#[test]
#[ignore = "needs root"]
fn node_that_moves_its_code_to_large_pages_is_left_alone() {
    const FLAG: &str = "--use-largepages=silent";
    const PRINTS: [&str; 2] = ["-p", "1 + 1"];
    for version in VERSIONS {
        let Some(node) = build(version) else { continue };
        let folder = Folder::new();
        let words = |words: &[&str]| -> Vec<std::ffi::OsString> {
            let mut all: Vec<std::ffi::OsString> = words.iter().map(Into::into).collect();
            let own = all
                .iter()
                .position(|word| word == "NODE")
                .expect("it is run");
            all[own] = node.clone().into();
            all.extend(PRINTS.map(Into::into));
            all
        };
        for (way, options, program) in [
            ("itself", "", words(&["NODE", FLAG])),
            (
                "executed",
                "",
                words(&["sh", "-c", "exec \"$@\"", "sh", "NODE", FLAG]),
            ),
            (
                "a child",
                "",
                words(&["sh", "-c", "\"$@\"; exit $?", "sh", "NODE", FLAG]),
            ),
            (
                "by a variable",
                FLAG,
                words(&["sh", "-c", "\"$@\"; exit $?", "sh", "NODE"]),
            ),
        ] {
            for mode in ["full", "count"] {
                let file = folder.path(format!("{mode}.nodeprof"));
                let traced = run(trace(&file)
                    .args(["--mode", mode, "--"])
                    .args(&program)
                    .env("NODE_OPTIONS", options));
                let place = format!("node {version}, {way}, {mode}");
                let said = (traced.code(), traced.stdout());
                assert_eq!(said, (0, "2\n".to_owned()), "{place}: {}", traced.stderr());
                // It is told, unless there is no such thing any more.
                let report = run(nodeprof().arg("report").arg(&file)).stdout();
                let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
                let is_told = report.contains("--use-largepages, for which");
                assert_eq!(is_told, version != "26.10.0", "{place}: {report}");
            }
        }
    }
}

/// Taken away when the test ends, however it ends.
struct Mounted(Vec<std::path::PathBuf>);

impl Mounted {
    fn mount(&mut self, kind: &str, options: &str, at: &Path) -> bool {
        let status = std::process::Command::new("mount")
            .args(["-t", kind, "-o", options, "nodeprof-test"])
            .arg(at)
            .status();
        let done = status.is_ok_and(|status| status.success());
        if done {
            self.0.push(at.to_owned());
        }
        done
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for at in self.0.iter().rev() {
            let _ = std::process::Command::new("umount")
                .arg("-l")
                .arg(at)
                .status();
        }
    }
}

/// V8 maps its builtins a second time, for workers and large heaps, and finds the file by the device in /proc/self/maps; in an overlay of two file systems
/// stat(2) has another one. Then it copies them, as Node 18 does everywhere.
#[test]
#[ignore = "needs root"]
fn v8_that_cannot_map_its_file_again_is_not_harmed() {
    const CALLS: u64 = 20_000;
    for version in VERSIONS {
        let Some(node) = build(version) else { continue };
        let folder = Folder::new();
        let script = folder.file(
            "program.js",
            format!(
                "const {{ Worker, isMainThread }} = require('worker_threads');
                 for (let i = 0; i < {CALLS}; i++) process.uptime();
                 if (isMainThread) new Worker(__filename).on('exit', (code) => console.log('worker', code));"
            ),
        );
        let (other, seen) = (folder.path("other"), folder.path("seen"));
        let mut mounted = Mounted(Vec::new());
        fs::create_dir(&other).unwrap();
        fs::create_dir(&seen).unwrap();
        let is_mounted = mounted.mount("tmpfs", "size=1m", &other) && {
            let (upper, work) = (other.join("upper"), other.join("work"));
            fs::create_dir(&upper).unwrap();
            fs::create_dir(&work).unwrap();
            let lower = node.parent().expect("a folder");
            let options = format!(
                "lowerdir={},upperdir={},workdir={},xino=off",
                lower.display(),
                upper.display(),
                work.display()
            );
            mounted.mount("overlay", &options, &seen)
        };
        if !is_mounted {
            println!("skipped: this system mounts no overlay");
            return;
        }
        let mut counted = Vec::new();
        for node in [&node, &seen.join("node")] {
            for mode in ["full", "count"] {
                let file = folder.path("t.nodeprof");
                let traced = run(trace(&file)
                    .args(["--mode", mode, "--"])
                    .args([node, Path::new("--max-old-space-size=4096"), &script])
                    .current_dir(&folder.0));
                let place = format!("{}, {mode}", node.display());
                let said = (traced.code(), traced.stdout());
                assert_eq!(
                    said,
                    (0, "worker 0\n".to_owned()),
                    "{place}: {}",
                    traced.stderr()
                );
                let recording = load(&file);
                let calls = recording.crossings.iter().map(|c| (c.callback, c.kind, 1));
                let sums = &recording.crossing_sums;
                let calls = calls.chain(sums.iter().map(|s| (s.callback, s.kind, s.calls)));
                let of_it = |callback: nodeprof_profile::recording::CallbackId| {
                    let function = &recording.callbacks[callback.0 as usize].function;
                    function.ends_with("Uptime")
                };
                let calls: u64 = calls
                    .filter(|(callback, kind, _)| *kind != CrossingKind::ToJs && of_it(*callback))
                    .map(|(_, _, calls)| calls)
                    .sum();
                // Of both threads.
                assert!(
                    (2 * CALLS..2 * CALLS + 50).contains(&calls),
                    "{place}: {calls}"
                );
                assert!(
                    recording.losses.iter().all(|loss| loss.count == 0),
                    "{place}"
                );
                counted.push(calls);
            }
        }
        assert!(
            counted.iter().all(|calls| *calls == counted[0]),
            "{version}: {counted:?}"
        );
    }
}
