//! Workers, children, and children that are not node.

use std::process::Command;

use crate::support::{
    EXECUTES_FROM_A_THREAD, NODEPROF, Node, Trace, has_tool, list, npm_script, number,
    on_each_node, plain, project, report, text, trace, write,
};

on_each_node!(
    calls_of_workers_are_counted,
    a_tree_of_processes_is_recorded,
    what_another_thread_than_the_main_one_executes_is_recorded_whole,
    a_child_that_comes_to_its_loop_first_ends_no_trace,
    calls_of_a_child_of_another_version_have_their_names_when_the_trace_ends_before_it,
);

mod calls_before_another_version_is_executed_have_their_names {
    // Whose process.execve() there is.
    crate::support::on_each_node! { @versions super::calls_before_another_version_is_executed_have_their_names,
        node_24 "24.21.0", node_26 "26.10.0"
    }
}

mod a_program_in_place_of_node_is_not_its_main_script {
    // Whose process.execve() there is.
    crate::support::on_each_node! { @versions super::a_program_in_place_of_node_is_not_its_main_script,
        node_22 "22.23.3", node_24 "24.21.0", node_26 "26.10.0"
    }
}

const CALLS: &str = "let sum = 0; for (let i = 0; i < N; i++) sum += process.uptime() > 0;";

pub(crate) fn calls_of_workers_are_counted(node: &Node) {
    let folder = crate::support::folder();
    let script = write(
        folder.path(),
        "main.js",
        &format!(
            "const {{ Worker, isMainThread, workerData }} = require('worker_threads');
             const N = isMainThread ? 7 : workerData;
             {CALLS}
             const [, , workers, n] = process.argv;
             if (isMainThread) for (let i = 0; i < Number(workers); i++) new Worker(__filename, {{ workerData: Number(n) }});"
        ),
    );
    let calls = |workers: u64, n: u64| {
        let traced = trace(
            &[],
            node.command([&script, &workers.to_string(), &n.to_string()]),
        );
        assert_eq!(list(&traced.run["processes"]).len(), 1);
        traced.calls(&["Uptime", "FastUptime"])
    };
    let base = calls(0, 0);
    assert!(base >= 7, "{base}");
    assert_eq!(calls(1, 1_000), base + 1_000);
    assert_eq!(calls(4, 1_000), base + 4 * 1_000);
    assert_eq!(calls(2, 30_000), base + 2 * 30_000);
}

/// A node of another version, if it is there.
pub(crate) fn of_another_version(node: &Node) -> Option<Node> {
    Node::find(match node.major() {
        24 => "20.20.2",
        _ => "24.21.0",
    })
}

fn a_tree_of_processes_is_recorded(node: &Node) {
    let Some(other) = of_another_version(node) else {
        return;
    };
    let folder = crate::support::folder();
    let child = write(
        folder.path(),
        "child.js",
        &format!("const N = Number(process.argv[2]); {CALLS} process.exitCode = 5;"),
    );
    let script = write(
        folder.path(),
        "main.js",
        &format!(
            "const {{ spawnSync }} = require('child_process');
             const N = 100;
             {CALLS}
             for (const [file, ...args] of [
               [process.execPath, {child:?}, '200'],
               [{other:?}, {child:?}, '400'],
               ['uname', '-s'],
               ['sh', '-c', 'exit 7'],
               ['sh', '-c', 'kill -9 $$'],
             ]) spawnSync(file, args);
             process.exitCode = 3;",
            other = other.path
        ),
    );
    let traced = Trace::new::<&str, _>([], node.command([&script])).run();
    assert_eq!(traced.output.status.code(), Some(3), "{}", traced.stderr());
    assert_eq!(traced.run["exit_status"], 3);
    traced.lost_nothing();
    assert_eq!(
        list(&traced.run["processes"]).len(),
        6,
        "{:#}",
        traced.run["processes"]
    );

    let command =
        |words: Vec<String>| move |p: &serde_json::Value| p["command"] == serde_json::json!(words);
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let main = traced.process("main", command(node.command([&script])));
    let same = traced.process("the same node", |p| p["command"][2] == "200");
    let another = traced.process("another node", |p| p["command"][2] == "400");
    let uname = traced.process("uname", command(words(&["uname", "-s"])));
    let exits = traced.process("exit 7", command(words(&["sh", "-c", "exit 7"])));
    let killed = traced.process("kill -9", command(words(&["sh", "-c", "kill -9 $$"])));

    assert_eq!(main["main"], true);
    assert!(main["parent_pid"].is_null());
    assert_eq!(main["exit_status"], 3);
    let version = |node: &Node| format!("v{}", node.version);
    assert_eq!(main["node"], version(node));
    assert_eq!(same["node"], version(node));
    assert_eq!(another["node"], version(&other));
    for one in [same, another, uname, exits, killed] {
        assert_eq!(one["parent_pid"], main["pid"]);
        assert_eq!(one["main"], false);
        let (start, end) = (number(&one["start_ns"]), number(&one["end_ns"]));
        assert!(start < end && end <= number(&main["end_ns"]), "{one}");
        assert!(number(&one["file_operations"]) > 0, "{one}");
    }
    for (one, status, signal) in [
        (same, Some(5), None),
        (another, Some(5), None),
        (uname, Some(0), None),
        (exits, Some(7), None),
        (killed, None, Some(9)),
    ] {
        assert_eq!(one["exit_status"].as_u64(), status, "{one}");
        assert_eq!(one["signal"].as_u64(), signal, "{one}");
    }
    for one in [uname, exits, killed] {
        assert!(one["node"].is_null(), "{one}");
        assert_eq!(one["crossings"], 0, "{one}");
    }
    // Bases: one run of each program alone, with other numbers of calls.
    let alone = |node: &Node, program: Vec<String>| {
        let traced = Trace::new::<&str, _>([], program).run();
        assert_eq!(traced.run["node"]["version"], version(node));
        traced.calls(&["Uptime", "FastUptime"])
    };
    let base_same = alone(node, node.command([&child, "0"]));
    let base_other = alone(&other, other.command([&child, "0"]));
    assert_eq!(
        traced.calls(&["Uptime", "FastUptime"]),
        base_same * 2 + 100 + 200 + base_other + 400,
        "bases {base_same} {base_other}"
    );
    let sum: u64 = list(&traced.run["processes"])
        .iter()
        .map(|p| number(&p["crossings"]))
        .sum();
    assert_eq!(sum, number(&traced.run["crossings"]["total"]));
}

#[test]
#[ignore = "needs root"]
fn npm_scripts_and_npx_are_followed_into_their_node() {
    let (Some(node), Some(npm), Some(npx)) =
        (Node::find("24.21.0"), npm_script("npm"), npm_script("npx"))
    else {
        return;
    };
    let folder = crate::support::folder();
    write(
        folder.path(),
        "x.js",
        "console.log('ran', process.argv[2]); process.exitCode = 4;",
    );
    write(
        folder.path(),
        "package.json",
        r#"{ "name": "x", "version": "1.0.0", "scripts": { "x": "node x.js one" } }"#,
    );
    write(
        folder.path(),
        "node_modules/.bin/hello",
        "#!/usr/bin/env node\nconsole.log('hello', process.argv[2]); process.exitCode = 6;\n",
    );
    let bin = node.path.parent().expect("a folder");
    for (program, printed, status, script) in [
        (
            node.command([&npm, "run", "--silent", "x"]),
            "ran one\n",
            4,
            "x.js",
        ),
        (
            node.command([&npx, "--no-install", "hello", "two"]),
            "hello two\n",
            6,
            "hello",
        ),
    ] {
        let mut trace = Trace::new::<&str, _>([], &program)
            .in_folder(folder.path())
            .first_on_path(bin);
        trace
            .command()
            .env("npm_config_cache", folder.path().join("cache"));
        let traced = trace.run();
        assert_eq!(traced.stdout(), printed, "{}", traced.stderr());
        assert_eq!(
            traced.output.status.code(),
            Some(status),
            "{}",
            traced.stderr()
        );
        traced.lost_nothing();
        let ran = traced.process(script, |p| {
            !p["node"].is_null()
                && p["command"][1]
                    .as_str()
                    .is_some_and(|w| w.ends_with(script))
        });
        assert_eq!(
            ran["exit_status"].as_i64(),
            Some(i64::from(status)),
            "{ran}"
        );
        assert!(number(&ran["crossings"]) > 100, "{ran}");
        assert_eq!(ran["node"], "v24.21.0");
        assert_eq!(traced.run["exit_status"].as_i64(), Some(i64::from(status)));
    }
}

#[test]
#[ignore = "needs root"]
fn a_script_with_a_shebang_line_is_traced() {
    let Some(node) = Node::find("22.23.3") else {
        return;
    };
    let folder = crate::support::folder();
    let script = write(
        folder.path(),
        "with space.js",
        "#!/usr/bin/env node\nconsole.log(process.argv.slice(2).join());\n",
    );
    let traced = Trace::new::<&str, _>([], [script.as_str(), "a", "", "ü"])
        .first_on_path(node.path.parent().expect("a folder"))
        .run();
    traced.succeeded();
    traced.lost_nothing();
    assert_eq!(traced.stdout(), "a,,ü\n");
    assert_eq!(traced.run["node"]["version"], "v22.23.3");
    assert!(number(&traced.run["crossings"]["total"]) > 50);
    assert_eq!(list(&traced.run["processes"]).len(), 1);
    assert_eq!(traced.run["milestones"]["exec"], 0);
}

/// More sums than are asked for at once.
#[test]
#[ignore = "needs root"]
fn two_hundred_processes_make_two_hundred_times_the_crossings_of_one() {
    const TIMES: u64 = 200;
    let Some(node) = Node::find("22.23.3") else {
        return;
    };
    let crossings = |times: u64| {
        let loads = "require('fs');require('crypto');require('http')";
        let node = node.path.display();
        let script =
            format!("i=0; while [ $i -lt {times} ]; do '{node}' -e \"{loads}\"; i=$((i+1)); done");
        let program = ["sh", "-c", &script].map(String::from);
        let traced = trace(&["--mode", "count"], program);
        traced.succeeded();
        traced.lost_nothing();
        let processes = list(&traced.run["processes"]).iter();
        let incomplete: Vec<_> = processes.filter(|p| !p["incomplete"].is_null()).collect();
        assert!(incomplete.is_empty(), "{incomplete:?}");
        traced.calls_by_callback()
    };
    let one = crossings(1);
    assert!(TIMES * one.len() as u64 > 4096, "{} callbacks", one.len());
    let expected = one
        .into_iter()
        .map(|(callback, calls)| (callback, TIMES * calls));
    assert_eq!(crossings(TIMES), expected.collect());
}

#[test]
#[ignore = "needs root"]
fn the_examples_tree_has_four_processes() {
    let Some(node) = Node::find("20.20.2") else {
        return;
    };
    // More than once: which of exec and fork is heard of first is a race.
    for _ in 0..5 {
        let traced = trace(&[], node.command([project("examples/children/main.js")]));
        assert_eq!(
            list(&traced.run["processes"]).len(),
            4,
            "{:#}",
            traced.run["processes"]
        );
        assert_eq!(traced.run["processes"][0]["main"], true);
    }
}

/// A process that executes another version of node: what an index or an address means is told by the binary that it ran just then. The call
/// that executes never returns, and counts.
fn calls_before_another_version_is_executed_have_their_names(node: &Node) {
    let Some(other) = Node::find("20.20.2") else {
        return;
    };
    let folder = crate::support::folder();
    let second = write(
        folder.path(),
        "second.js",
        "for (let i = 0; i < 300; i++) require('fs').statSync('/');",
    );
    let first = write(
        folder.path(),
        "first.js",
        "const fs = require('fs');
         for (let i = 0; i < 5000; i++) fs.statSync('/');
         for (let i = 0; i < 700; i++) fs.existsSync('/');
         process.execve(process.argv[2], ['node', process.argv[3]], process.env);",
    );
    let mut all = Vec::new();
    for mode in ["count", "full"] {
        let program = node.command([
            first.as_str(),
            &other.path.display().to_string(),
            second.as_str(),
        ]);
        let traced = trace(&["--mode", mode], program);
        traced.succeeded();
        let place = format!("{mode}: {:?}", traced.calls_by_callback());
        assert_eq!(traced.calls(&["Stat", "FastStat"]), 5_300, "{place}");
        assert_eq!(
            traced.calls(&["ExistsSync", "FastExistsSync"]),
            700,
            "{place}"
        );
        assert_eq!(traced.calls(&["Execve"]), 1, "{place}");
        // The start is the first one's.
        let version = text(&traced.run["node"]["version"]);
        assert_eq!(version, format!("v{}", node.version), "{mode}");
        let phases = list(&traced.run["phases"]).iter();
        let crossings = phases.map(|p| (text(&p["name"]), number(&p["crossings"])));
        let crossings: Vec<_> = crossings.collect();
        let [.., ("main_script", first), ("after_exec", second)] = crossings[..] else {
            panic!("{mode}: {crossings:?}");
        };
        assert!(
            first > 5_700 && (300..700).contains(&second),
            "{mode}: {crossings:?}"
        );
        all.push(
            crossings
                .iter()
                .map(|c| (c.0.to_string(), c.1))
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(all[0], all[1]);
}

/// As `tsc` of TypeScript 7 does: from the exec on nothing is node's, nor anybody's who is to blame for node's time.
fn a_program_in_place_of_node_is_not_its_main_script(node: &Node) {
    let folder = crate::support::folder();
    let script = write(
        folder.path(),
        "first.js",
        "for (let i = 0; i < 50; i++) require('fs').statSync('/');
         const shell = 'i=0; while [ $i -lt 200 ]; do : < /dev/null; i=$((i + 1)); done; echo $i; exec sleep 0.4';
         process.execve('/bin/sh', ['sh', '-c', shell], process.env);",
    );
    for mode in ["count", "full"] {
        let traced = trace(&["--mode", mode], node.command([script.as_str()]));
        traced.succeeded();
        traced.lost_nothing();
        assert_eq!(traced.stdout(), "200\n");
        let phases = list(&traced.run["phases"]);
        let names: Vec<_> = phases.iter().map(|p| text(&p["name"])).collect();
        let [.., main, after] = phases else {
            panic!("{names:?}");
        };
        assert_eq!(text(&main["name"]), "main_script", "{names:?}");
        assert_eq!(text(&after["name"]), "after_exec", "{names:?}");
        let opens = |of: &serde_json::Value| number(&of["opens"]);
        // Libraries, too; not as many as there are files.
        assert!((200..300).contains(&opens(after)), "{after}");
        assert!(opens(main) < 100 && number(&main["stats"]) >= 50, "{main}");
        let duration = number(&after["end_ns"]) - number(&after["start_ns"]);
        assert!(duration > 400_000_000, "{after}");
        assert_eq!(number(&after["crossings"]), 0, "{after}");
        if mode == "full" {
            let outside = list(&traced.run["outside"]);
            let bucket = |name| {
                let found = outside.iter().find(|o| o["bucket"] == name);
                found.unwrap_or_else(|| panic!("{name} in {outside:?}"))
            };
            let other = bucket("other_programs");
            assert_eq!(opens(other), opens(after), "{other}");
            assert_eq!(number(&other["time_ns"]), duration, "{other}");
            let idle = outside.iter().find(|o| o["bucket"] == "event_loop");
            let idle = idle.map_or(0, |o| number(&o["blocked_ns"]));
            assert!(idle < 200_000_000, "{outside:?}");
        }
    }
}

/// What a main thread has counted and not added to the sums yet: what an index or an address means there is told by its own binary, not by the first one of
/// the trace.
fn calls_of_a_child_of_another_version_have_their_names_when_the_trace_ends_before_it(node: &Node) {
    let Some(other) = of_another_version(node) else {
        return;
    };
    let folder = crate::support::folder();
    let child = write(
        folder.path(),
        "child.js",
        "const fs = require('fs');
         for (let i = 0; i < 300; i++) fs.statSync('/');
         for (let i = 0; i < 700; i++) fs.existsSync('/');
         Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4000);",
    );
    let script = write(
        folder.path(),
        "main.js",
        "require('child_process').execFileSync(process.argv[2], [process.argv[3]]);",
    );
    let program = node.command([
        script.as_str(),
        &other.path.display().to_string(),
        child.as_str(),
    ]);
    let traced = Trace::new(["--mode", "count", "--until", "2s"], program).run();
    assert!(traced.output.status.success(), "{}", traced.stderr());
    assert_eq!(text(&traced.run["ended_by"]), "duration");
    let alone = |node: &Node| trace(&["--mode", "count"], node.command(["-e", "0"]));
    let (of_parent, of_child) = (alone(node), alone(&other));
    for (functions, calls) in [
        (["Stat", "FastStat"], 300),
        (["ExistsSync", "FastExistsSync"], 700),
    ] {
        let functions = &functions;
        let base = of_parent.calls(functions) + of_child.calls(functions);
        let counted = traced.calls(functions);
        // Some more to find the scripts.
        assert!(
            (calls + base..calls + base + 50).contains(&counted),
            "{functions:?}: {counted} of {calls} + {base}; {:?}",
            traced.calls_by_callback()
        );
    }
}

/// As launchers that are written in Go do. The kernel ends the main thread then, and would take what was attached to it.
fn what_another_thread_than_the_main_one_executes_is_recorded_whole(node: &Node) {
    if !has_tool("python3") {
        return;
    }
    let folder = crate::support::folder();
    let script = write(
        folder.path(),
        "main.js",
        "for (let i = 0; i < 300; i++) require('fs').statSync('/'); console.log('ran');",
    );
    let path = node.path.display().to_string();
    let launcher = ["python3", "-c", EXECUTES_FROM_A_THREAD, &path, &script];
    for mode in ["count", "full"] {
        let alone = trace(&["--mode", mode], node.command([&script]));
        let traced = trace(&["--mode", mode], launcher.map(str::to_owned));
        assert_eq!(traced.stdout(), "ran\n", "{mode}: {}", traced.stderr());
        traced.lost_nothing();
        let process = traced.process(mode, |p| !p["node"].is_null());
        assert!(process["incomplete"].is_null(), "{mode}: {process}");
        assert_eq!(
            traced.calls(&["Stat", "FastStat"]),
            alone.calls(&["Stat", "FastStat"]),
            "{mode}"
        );
        let calls = number(&traced.run["crossings"]["total"]);
        assert_eq!(calls, number(&alone.run["crossings"]["total"]), "{mode}");
    }
}

/// While the main process waits for it, which then has its own loop yet to come.
fn a_child_that_comes_to_its_loop_first_ends_no_trace(node: &Node) {
    let folder = crate::support::folder();
    let child = write(folder.path(), "child.js", "setTimeout(() => {}, 600);");
    let script = write(
        folder.path(),
        "main.js",
        &format!(
            "require('child_process').execFileSync(process.execPath, [{child:?}]);
             for (let i = 0; i < 300; i++) require('fs').statSync('/');
             setTimeout(() => {{}}, 1000);"
        ),
    );
    for until in ["loop-start", "idle"] {
        for mode in ["count", "full"] {
            let options = ["--mode", mode, "--until", until];
            let traced = Trace::new(options, node.command([&script])).run();
            let place = format!("{until}, {mode}");
            assert_eq!(text(&traced.run["ended_by"]), until, "{place}");
            assert!(traced.calls(&["Stat", "FastStat"]) >= 300, "{place}");
            let loop_start = &traced.run["milestones"]["loop_start"];
            assert!(loop_start.is_u64(), "{place}: {}", traced.run["milestones"]);
        }
    }
}

/// As it does on a host that has begun to count anew.
#[test]
#[ignore = "needs root"]
fn processes_that_had_one_number_have_their_own_counts() {
    let Some(node) = Node::find("20.20.2") else {
        return;
    };
    if !has_tool("unshare") {
        return;
    }
    let folder = crate::support::folder();
    let script = write(
        folder.path(),
        "main.js",
        "const fs = require('fs'), { spawnSync } = require('child_process');
         const child = (calls) => spawnSync(process.execPath, ['-e', `for (let i = 0; i < ${calls}; i++) process.uptime()`]).pid;
         const first = child(300);
         let second;
         for (let i = 0; i < 20 && second !== first; i++) {
           fs.writeFileSync('/proc/sys/kernel/ns_last_pid', `${first - 1}`);
           second = child(700);
         }
         if (second !== first) throw second;
         console.log(first);",
    );
    let file = folder.path().join("t.nodeprof");
    // Numbers of its own: nobody else takes one of them.
    let traced = "\"$0\" trace --quiet --mode count -o \"$@\"; exit $?";
    let output = plain(&mut Command::new("unshare"))
        .args(["--pid", "--fork", "--mount-proc", "sh", "-c", traced])
        .arg(NODEPROF)
        .args([file.as_os_str(), "--".as_ref()])
        .args([node.path.as_os_str(), script.as_ref()])
        .output()
        .expect("unshare");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let number_of_both = String::from_utf8_lossy(&output.stdout);
    let number_of_both: u64 = number_of_both.trim().parse().expect("a number");
    let run = report(&file);
    let processes = list(&run["processes"]).iter();
    let both = processes.filter(|process| number(&process["pid"]) == number_of_both);
    let calls: Vec<u64> = both.map(|process| number(&process["crossings"])).collect();
    let &[first, second] = calls.as_slice() else {
        panic!("{calls:?} of {}", run["processes"]);
    };
    assert!(first > 300, "{calls:?}");
    assert_eq!(second - first, 400, "{calls:?}");
}

/// A build may start any number of them, and a link of each takes descriptors: without one for the next exec the kernel would refuse that.
#[test]
#[ignore = "needs root"]
fn children_that_have_ended_take_no_descriptors() {
    const CHILDREN: usize = 150;
    let Some(node) = Node::find("20.20.2") else {
        return;
    };
    let folder = crate::support::folder();
    let script = write(
        folder.path(),
        "main.js",
        &format!(
            "const {{ spawnSync }} = require('child_process');
             for (let i = 0; i < {CHILDREN}; i++)
               if (spawnSync(process.execPath, ['-e', '0']).status !== 0) throw i;"
        ),
    );
    let file = folder.path().join("t.nodeprof");
    // Of 200 descriptors some 80 are nodeprof's own.
    let limited =
        "ulimit -n 200 && exec \"$0\" trace --quiet --mode count -o \"$1\" -- \"$2\" \"$3\"";
    let status = plain(&mut Command::new("sh"))
        .args(["-c", limited, NODEPROF])
        .args([file.as_os_str(), node.path.as_os_str(), script.as_ref()])
        .status()
        .expect("a shell");
    assert_eq!(status.code(), Some(0));
    let run = report(&file);
    let recorded = list(&run["processes"]).iter();
    let recorded = recorded.filter(|p| p["crossings"].as_u64().is_some_and(|calls| calls > 10));
    assert_eq!(recorded.count(), CHILDREN + 1);
    let losses = run["losses"].as_object().expect("an object");
    assert!(losses.values().all(|lost| lost == 0), "{losses:?}");
}
