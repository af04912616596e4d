//! Faults around a trace: nodeprof is killed or stopped, files are bad, disks are full, rights are missing. The
//! program runs unharmed or does not run, the error says what was found, what is needed and what to type.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test that fails says where"
)]

mod faults_support;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use faults_support::{
    Folder, Outcome, adopt_orphans, allow_all, build, children, code, command,
    copy_program::copy_program, load, no_probe_of, nodeprof, probe_links, reap, run, signal, soon,
    trace, undisturbed::undisturbed, wait,
};

const NODE: &str = "20.20.2";

/// An error of nodeprof's own: this status, one message with all of `words`, and the program did not run.
#[track_caller]
fn refused(outcome: &Outcome, status: i32, words: &[&str]) {
    let said = outcome.stderr();
    assert_eq!(outcome.code(), status, "{said}");
    assert_eq!(outcome.stdout(), "");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    assert!(!said.contains("os error 0"), "{said}");
}

/// Works for a while with many crossings and children, and writes as it goes.
const BUSY: &str = "
    const fs = require('fs'); const { spawnSync } = require('child_process');
    fs.writeSync(1, 'begin\\n'); const until = Date.now() + 120; let n = 0;
    while (Date.now() < until) { fs.statSync('/'); process.uptime(); new Error().stack; n++ }
    fs.writeSync(1, 'child ' + spawnSync(process.execPath, ['-p', '6*7']).stdout);
    fs.writeSync(2, 'end\\n'); process.exit(7);
";

/// Kills nodeprof after `delay`; tells whether its program ran.
fn kill_after(delay: Duration, words: &[&OsStr], folder: &Folder) -> bool {
    let out = folder.path("out");
    let err = folder.path("err");
    let links = probe_links();
    let mut tracer = trace(&folder.path("killed.nodeprof"))
        .arg("--")
        .args(words)
        .stdout(fs::File::create(&out).unwrap())
        .stderr(fs::File::create(&err).unwrap())
        .spawn()
        .unwrap();
    thread::sleep(delay);
    signal(tracer.id(), libc::SIGKILL);
    wait(&mut tracer).unwrap();
    // Its orphans are ours now: the program (held or not) and the holder.
    let me = std::process::id();
    let orphans = children(me);
    let pids: Vec<u32> = orphans.iter().map(|o| o.0).collect();
    let mut status = None;
    for (pid, name) in &orphans {
        let limit = match name.as_str() {
            "nodeprof-holder" => Duration::from_secs(1),
            _ => Duration::from_secs(15),
        };
        let ended = reap(*pid, limit);
        if ended.is_none() {
            signal(*pid, libc::SIGKILL);
            panic!("after {delay:?}: {name} hangs around");
        }
        if name != "nodeprof-holder" {
            status = ended;
        }
    }
    no_probe_of(&pids, &links).unwrap_or_else(|e| panic!("after {delay:?}: {e}"));
    let said = (
        fs::read_to_string(&out).unwrap(),
        fs::read_to_string(&err).unwrap(),
    );
    let ran = !said.0.is_empty();
    if ran {
        assert_eq!(said.0, "begin\nchild 42\n", "after {delay:?}");
        assert_eq!(said.1, "end\n", "after {delay:?}");
        // A program that was over before the kill has been reaped by nodeprof.
        assert!(
            status.is_none_or(|s| code(s) == 7),
            "after {delay:?}: {status:?}"
        );
    } else {
        assert_eq!(said.1, "", "after {delay:?}");
        assert!(
            status.is_none_or(|s| code(s) != 7),
            "after {delay:?}: {status:?}"
        );
    }
    ran
}

/// Whether the host's grace periods are expedited when no probes come or go. A trace makes them so for a moment, and puts back what one that
/// was killed left.
fn expedited_at_rest(node: &Path) -> bool {
    let folder = Folder::new();
    let words: [&OsStr; 4] = ["--".as_ref(), node.as_os_str(), "-e".as_ref(), "0".as_ref()];
    assert_eq!(
        run(trace(&folder.path("rest.nodeprof")).args(words)).code(),
        0
    );
    let is_set = !soon(Duration::from_secs(5), || {
        fs::read("/sys/kernel/rcu_expedited")
            .unwrap()
            .starts_with(b"0")
    });
    let ours = fs::read("/run/nodeprof-expedited").unwrap() == b"set";
    assert!(!(is_set && ours), "nobody has put back what was set");
    is_set
}

#[test]
#[ignore = "needs root"]
fn nodeprof_may_be_killed_at_any_moment() {
    adopt_orphans();
    for version in ["18.20.8", "24.21.0"] {
        let Some(node) = build(version) else { continue };
        let folder = Folder::new();
        let script = folder.file("busy.js", BUSY);
        let direct: Vec<&OsStr> = vec![node.as_os_str(), script.as_os_str()];
        let mut shell: Vec<&OsStr> = vec!["sh".as_ref(), "-c".as_ref(), "\"$@\"; exit $?".as_ref()];
        shell.push("sh".as_ref());
        shell.extend(&direct);
        let before = expedited_at_rest(&node);
        // How long a start of nodeprof takes until its program has ended: the moments lie before and after the program's exec.
        let begun = Instant::now();
        let mut whole = trace(&folder.path("whole.nodeprof"));
        let whole = whole.arg("--").arg(&node).args(["-e", "0"]);
        assert_eq!(run(whole).code(), 0);
        let step_ns = u64::try_from(begun.elapsed().as_nanos())
            .unwrap()
            .max(150_000_000)
            / 16;
        let mut seen = (0, 0);
        for step in 0..17u64 {
            let jitter = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap()
                .subsec_nanos();
            let delay = Duration::from_nanos(step * step_ns + u64::from(jitter) % step_ns);
            let words = if step % 2 == 0 { &direct } else { &shell };
            match kill_after(delay, words, &folder) {
                true => seen.0 += 1,
                false => seen.1 += 1,
            }
        }
        println!(
            "node {version}: {} ran on, {} never started",
            seen.0, seen.1
        );
        assert!(seen.0 > 0 && seen.1 > 0, "{seen:?}");
        // Nothing holds an exec of node any more.
        let begun = Instant::now();
        assert_eq!(run(command(&node).args(["-e", "0"])).code(), 0);
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(expedited_at_rest(&node), before);
    }
}

#[test]
#[ignore = "needs root"]
fn nodeprof_may_be_stopped_while_hundreds_of_children_start() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    // More messages than a socket has room for.
    let script = folder.file(
        "storm.js",
        "const { spawnSync } = require('child_process'); const fs = require('fs'); let n = 0;
         fs.writeFileSync('begun', '');
         for (let i = 0; i < 450; i++) n += spawnSync(process.execPath, ['--version']).status === 0;
         fs.writeFileSync('ended', ''); console.log(n); process.exit(3)",
    );
    let file = folder.path("stopped.nodeprof");
    let mut tracer = trace(&file)
        .arg("--")
        .args([&node, &script])
        .current_dir(&folder.0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(soon(Duration::from_secs(10), || folder
        .path("begun")
        .exists()));
    signal(tracer.id(), libc::SIGSTOP);
    let ended = soon(Duration::from_secs(30), || folder.path("ended").exists());
    // Who has nothing to do with it does not wait either.
    let stranger = ended && run(command(&node).args(["-e", "0"])).code() == 0;
    signal(tracer.id(), libc::SIGCONT);
    if !ended {
        signal(tracer.id(), libc::SIGKILL);
    }
    let status = wait(&mut tracer).unwrap();
    assert!(ended, "the program waits for a stopped nodeprof");
    assert!(stranger);
    assert_eq!(code(status), 3);
    let recording = load(&file);
    let lost: u64 = recording.losses.iter().map(|l| l.count).sum();
    assert!(
        recording.processes.len() == 451 || lost > 0,
        "{:?}",
        recording.losses
    );
}

/// A trace that goes on meanwhile; nobody reads its output.
fn begin_trace(file: &Path, node: &Path, script: &Path) -> Child {
    trace(file)
        .arg("--")
        .args([node, script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "needs root"]
fn a_stop_of_two_seconds_changes_nothing() {
    let Some(node) = build("24.21.0") else { return };
    let folder = Folder::new();
    let script = folder.file("busy.js", BUSY.replace("+ 120", "+ 700"));
    let file = folder.path("stopped.nodeprof");
    let mut tracer = begin_trace(&file, &node, &script);
    thread::sleep(Duration::from_millis(200));
    signal(tracer.id(), libc::SIGSTOP);
    thread::sleep(Duration::from_secs(2));
    signal(tracer.id(), libc::SIGCONT);
    assert_eq!(code(wait(&mut tracer).unwrap()), 7);
    // What the ring buffer had no room for is told; the rest is there.
    let recording = load(&file);
    let lost: u64 = recording.losses.iter().map(|l| l.count).sum();
    let whole =
        recording.processes.len() == 2 && recording.processes.iter().all(|p| p.exited.is_some());
    assert!(whole || lost > 0, "{:?}", recording.processes);
    println!("{lost} records lost, whole: {whole}");
}

#[test]
#[ignore = "needs root"]
fn the_holder_may_be_killed_and_the_recording_says_so() {
    let Some(node) = build("24.21.0") else { return };
    undisturbed(|| {
        kill_the_holder(&node);
        let grace_periods = || fs::read_to_string("/sys/kernel/rcu_expedited").unwrap();
        let before = grace_periods();
        for milliseconds in [0, 2, 5, 8, 12, 20, 40] {
            kill_a_new_holder(&node, Duration::from_millis(milliseconds));
            assert_eq!(
                grace_periods(),
                before,
                "set still, after {milliseconds} ms"
            );
        }
    });
}

fn kill_the_holder(node: &Path) {
    let folder = Folder::new();
    let script = folder.file("busy.js", BUSY.replace("+ 120", "+ 1000"));
    let file = folder.path("holder.nodeprof");
    let mut tracer = begin_trace(&file, node, &script);
    let holder = holder_of(&tracer);
    thread::sleep(Duration::from_millis(300));
    signal(holder, libc::SIGKILL);
    thread::sleep(Duration::from_millis(100));
    let ticks = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let tail = stat.rsplit_once(')').map_or("", |(_, t)| t).to_string();
        let mut fields = tail.split_whitespace().skip(11);
        let mut next = || {
            fields
                .next()
                .and_then(|f| f.parse::<u64>().ok())
                .unwrap_or(0)
        };
        next() + next()
    };
    let before = ticks(tracer.id());
    thread::sleep(Duration::from_millis(500));
    let used = ticks(tracer.id()).saturating_sub(before);
    assert_eq!(code(wait(&mut tracer).unwrap()), 7, "the program goes on");
    println!("{used} of 50 ticks used, {:?}", load(&file).losses);
    assert!(used < 25, "nodeprof spins: {used} of 50 ticks");
    tells_that_its_end_is_missing(&file);
}

#[test]
#[ignore = "needs root"]
fn who_kills_the_holder_of_a_program_that_never_rests_stops_nobody() {
    let Some(node) = build("24.21.0") else { return };
    undisturbed(|| {
        let folder = Folder::new();
        let script = folder.file("busy.js", BUSY.replace("+ 120", "+ 4000"));
        let file = folder.path("holder.nodeprof");
        let mut tracer = begin_trace(&file, &node, &script);
        let holder = holder_of(&tracer);
        thread::sleep(Duration::from_millis(500));
        signal(holder, libc::SIGKILL);
        let began = Instant::now();
        assert_eq!(run(command(&node).arg("--version")).code(), 0);
        let other = began.elapsed();
        // The kernel lets nobody end who takes probes of returns away while a thread hits such again and again.
        let status =
            |pid: u32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let is_gone = || {
            let threads = status(holder);
            threads.is_empty() || threads.contains("Threads:\t1\n") && threads.contains("zombie")
        };
        let gone = soon(Duration::from_secs(2), is_gone).then(|| began.elapsed());
        println!("another node: {other:?}, the holder: {gone:?}");
        assert!(
            other < Duration::from_millis(500),
            "another node waited {other:?}"
        );
        assert!(gone.is_some(), "the holder is still there");
        assert!(!status(tracer.id()).is_empty(), "the program ended before");
        assert_eq!(code(wait(&mut tracer).unwrap()), 7);
        tells_that_its_end_is_missing(&file);
    });
}

#[test]
#[ignore = "needs root"]
fn a_trace_beside_a_program_that_never_rests_leaves_nobody_behind() {
    let Some(node) = build("24.21.0") else { return };
    adopt_orphans();
    undisturbed(|| {
        let folder = Folder::new();
        let over = folder.path("over");
        let script = format!(
            "const until = Date.now() + 5000; while (Date.now() < until) require('fs').existsSync('/');
            require('fs').writeFileSync({over:?}, '');"
        );
        let script = folder.file("busy.js", script);
        let mut other = begin_trace(&folder.path("busy.nodeprof"), &node, &script);
        holder_of(&other);
        thread::sleep(Duration::from_millis(500));
        let links = probe_links();
        let words: [&OsStr; 4] = ["--".as_ref(), node.as_os_str(), "-e".as_ref(), "0".as_ref()];
        let mut tracer = trace(&folder.path("own.nodeprof"));
        let mut tracer = tracer.args(words).spawn().unwrap();
        let holder = holder_of(&tracer);
        assert_eq!(code(wait(&mut tracer).unwrap()), 0);
        // If it is there still it is ours now. Who waits for the end of its probes would wait for the other program.
        if children(std::process::id()).iter().any(|c| c.0 == holder) {
            reap(holder, Duration::from_secs(1)).expect("the holder waits");
        }
        no_probe_of(&[0], &links).unwrap();
        assert!(!over.exists(), "the other program ended before");
        assert_eq!(code(wait(&mut other).unwrap()), 0);
    });
}

/// While it attaches the first probes, or before.
fn kill_a_new_holder(node: &Path, age: Duration) {
    let folder = Folder::new();
    let script = folder.file("busy.js", BUSY);
    let file = folder.path("holder.nodeprof");
    let mut tracer = begin_trace(&file, node, &script);
    let holder = holder_of(&tracer);
    thread::sleep(age);
    signal(holder, libc::SIGKILL);
    let ended = code(wait(&mut tracer).unwrap());
    assert_eq!(ended, 7, "after {age:?}: the program runs all the same");
    tells_that_its_end_is_missing(&file);
}

fn holder_of(tracer: &Child) -> u32 {
    let mut holder = None;
    assert!(soon(Duration::from_secs(10), || {
        holder = children(tracer.id())
            .into_iter()
            .find(|c| c.1 == "nodeprof-holder");
        holder.is_some()
    }));
    holder.unwrap().0
}

fn tells_that_its_end_is_missing(file: &Path) {
    let recording = load(file);
    let told = recording.families.iter().any(|f| f.state != "on")
        || recording.losses.iter().any(|l| l.count > 0)
        || recording.processes.iter().any(|p| p.incomplete.is_some());
    assert!(told, "the recording does not say that its end is missing");
}

#[test]
#[ignore = "needs root"]
fn what_is_no_node_runs_as_it_does_untraced() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    let whole = fs::read(&node).unwrap();
    let mut lying = whole.clone();
    lying[40..48].copy_from_slice(&0xffff_ffff_ffff_0000u64.to_le_bytes()); // e_shoff
    let mut odd = whole.clone();
    odd[60..62].copy_from_slice(&u16::MAX.to_le_bytes()); // e_shnum
    for (name, content) in [
        ("text", b"echo ran; exit 4\n".to_vec()),
        ("empty", Vec::new()),
        ("truncated", whole[..100_000].to_vec()),
        ("half", whole[..whole.len() / 2].to_vec()),
        ("header", whole[..64].to_vec()),
        ("lying", lying),
        ("odd", odd),
    ] {
        let file = folder.file(name, &content);
        allow_all(&file, 0o755);
        let arguments = ["-p", "'ran'"];
        // env(1) executes as execvp does: a file of an unknown kind is a shell script.
        let bare = run(command("env").arg(&file).args(arguments));
        let traced = run(trace(&folder.path("x.nodeprof"))
            .env("XDG_CACHE_HOME", folder.path(name.to_string() + "-cache"))
            .arg("--")
            .arg(&file)
            .args(arguments));
        // What the kernel refuses to execute is refused by nodeprof, with the words of its own.
        assert_eq!(traced.code(), bare.code(), "{name}: {}", traced.stderr());
        assert_eq!(traced.stdout(), bare.stdout(), "{name}");
        let probes = run(nodeprof()
            .env("XDG_CACHE_HOME", folder.path(name.to_string() + "-cache-2"))
            .args(["probes", "--node"])
            .arg(&file));
        if !["lying", "odd"].contains(&name) {
            refused(&probes, 125, &["found", "needed", "to do"]);
        }
    }
}

#[test]
fn a_recording_that_could_go_nowhere_is_not_begun() {
    let folder = Folder::new();
    let gone = folder.path("gone");
    fs::create_dir(&gone).unwrap();
    let mut shell = Command::new("sh");
    let script = "cd \"$1\" && rmdir \"$1\" && exec \"$2\" trace -q -- sh -c 'echo ran'";
    shell.args(["-c", script, "sh"]).arg(&gone);
    shell.arg(nodeprof().get_program());
    let words = [
        "the current folder is gone",
        "needed: a folder",
        "type: -o FILE",
    ];
    refused(&run(&mut shell), 125, &words);
}

#[test]
fn what_can_be_probed_is_listed_once() {
    let Some(node) = build("24.21.0") else { return };
    let listed = run(nodeprof().args(["probes", "--node"]).arg(&node)).stdout();
    // The title of each family, at the left edge, behind the line about the binary.
    let titles: Vec<&str> = (listed.lines().skip(1))
        .filter(|line| !line.is_empty() && !line.starts_with(' '))
        .filter_map(|line| line.split_once(':').map(|(name, _)| name))
        .collect();
    let once: BTreeSet<&str> = titles.iter().copied().collect();
    assert!(once.len() > 5, "{titles:?}");
    assert_eq!(titles.len(), once.len(), "{titles:?}");
    assert_eq!(listed.matches("node::Start(int, char**)").count(), 1);
}

#[test]
#[ignore = "needs root"]
fn a_stripped_node_runs_and_the_recording_says_what_is_missing() {
    let Some(node) = build("24.21.0") else { return };
    let folder = Folder::new();
    let stripped = folder.path("node");
    let strip = Command::new("strip")
        .arg("-o")
        .args([&stripped, &node])
        .status();
    if !strip.is_ok_and(|s| s.success()) {
        println!("skipped: strip is not installed");
        return;
    }
    // An empty cache: the build-id is that of the whole node.
    let file = folder.path("stripped.nodeprof");
    let traced = run(trace(&file)
        .env("XDG_CACHE_HOME", folder.path("cache"))
        .arg("--")
        .arg(&stripped)
        .args(["-p", "'ran'"]));
    assert_eq!(
        (traced.code(), traced.stdout().as_str()),
        (0, "ran\n"),
        "{}",
        traced.stderr()
    );
    let crossings = load(&file);
    let crossings = crossings
        .families
        .iter()
        .find(|f| f.name == "crossings")
        .unwrap();
    assert_ne!(crossings.state, "on");
    assert!(crossings.reason.is_some());
    // Afterwards the whole node is not taken for a stripped one.
    let traced = run(trace(&file)
        .env("XDG_CACHE_HOME", folder.path("cache"))
        .arg("--")
        .arg(&node)
        .args(["-p", "'ran'"]));
    assert_eq!(traced.code(), 0);
    let recording = load(&file);
    assert!(
        recording.families.iter().all(|f| f.state == "on"),
        "{:?}",
        recording.families
    );
}

#[test]
#[ignore = "needs root"]
fn what_is_missing_is_named() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    let x = folder.path("x.nodeprof");
    let absent = folder.path("absent.js");
    let bare = run(command(&node).arg(&absent));
    let traced = run(trace(&x).arg("--").args([&node, &absent]));
    assert_eq!(traced.code(), 1);
    assert_eq!(traced.stderr(), bare.stderr());
    assert_eq!(load(&x).runs[0].exit_status, Some(1));
    let missing = folder.path("folder/x.nodeprof");
    let o = run(trace(&missing).arg("--").arg(&node).args(["-p", "1"]));
    refused(&o, 125, &["cannot be written", "needed", "-o FILE"]);
    let o = run(trace(&x.join("y")).arg("--").arg(&node).args(["-p", "1"]));
    refused(&o, 125, &["is a file", "needed", "-o FILE"]);
    let o = run(trace(&folder.0).arg("--").arg(&node).args(["-p", "1"]));
    refused(&o, 125, &["is a folder", "needed", "type: -o"]);
    let o = run(nodeprof()
        .args(["trace", "-o"])
        .arg(&x)
        .arg("--")
        .arg(&node)
        .args(["-p", "1"]));
    refused(&o, 125, &["exists already", "--force"]);
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_costs_the_recording_not_the_program() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    let inside = "mount -t tmpfs -o size=64k none full && cd full && dd if=/dev/zero of=fill bs=1k count=60 2>/dev/null && exec \"$@\"";
    fs::create_dir(folder.path("full")).unwrap();
    let in_full = |words: &[&str]| {
        run(command("unshare")
            .args(["-m", "sh", "-c", inside, "sh"])
            .arg(env!("CARGO_BIN_EXE_nodeprof"))
            .args(["trace", "--quiet"])
            .args(words)
            .arg("--")
            .arg(&node)
            .args(["-e", "console.log('ran'); process.exitCode = 3"])
            .current_dir(&folder.0))
    };
    let asked = in_full(&["-o", "x.nodeprof"]);
    assert_eq!((asked.code(), asked.stdout().as_str()), (125, "ran\n"));
    assert!(
        asked.stderr().contains("no space left for x.nodeprof"),
        "{}",
        asked.stderr()
    );
    let unasked = in_full(&[]);
    assert_eq!((unasked.code(), unasked.stdout().as_str()), (3, "ran\n"));
    assert!(
        unasked.stderr().contains("no recording was written"),
        "{}",
        unasked.stderr()
    );
}

/// A shell's `ulimit -f` holds for nodeprof and for the program: of who writes beyond it the kernel makes an end, unless the signal is taken.
#[test]
#[ignore = "needs root"]
fn a_limit_of_file_sizes_costs_the_recording_not_the_program() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    let limited = |before: &str, words: &[&str]| {
        run(command("sh")
            .args(["-c", &format!("{before}ulimit -f 8 && exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_nodeprof"))
            .args(["trace", "--quiet"])
            .args(words)
            .current_dir(&folder.0))
    };
    let left = || -> Vec<_> {
        let all = fs::read_dir(&folder.0).unwrap();
        all.map(|entry| entry.unwrap().file_name()).collect()
    };
    let script = "console.log('ran'); process.exitCode = 3";
    let program = ["--", node.to_str().unwrap(), "-e", script];
    for before in ["", "trap '' XFSZ; "] {
        let asked = limited(before, &[&["-o", "x.nodeprof"], &program[..]].concat());
        assert_eq!((asked.code(), asked.stdout().as_str()), (125, "ran\n"));
        for word in [
            "x.nodeprof cannot be written: ",
            " bytes are needed, and a file may have 4096 here (ulimit -f); type: ulimit -f unlimited",
        ] {
            assert!(asked.stderr().contains(word), "{}", asked.stderr());
        }
        let unasked = limited(before, &program);
        assert_eq!((unasked.code(), unasked.stdout().as_str()), (3, "ran\n"));
        let words = "no recording was written";
        assert!(unasked.stderr().contains(words), "{}", unasked.stderr());
        assert!(left().is_empty(), "{:?}", left());
    }
    // The program has the signal as nodeprof had it: is killed by it, or ignores it. Node itself ignores it always.
    let writes = "dd if=/dev/zero of=large bs=8192 count=1 2>/dev/null; echo $?";
    for (before, ended) in [("", "153\n"), ("trap '' XFSZ; ", "1\n")] {
        let traced = limited(before, &["sh", "-c", writes]);
        assert_eq!(traced.stdout(), ended, "{}", traced.stderr());
        fs::remove_file(folder.path("large")).unwrap();
    }
}

#[test]
#[ignore = "needs root"]
fn without_rights_the_message_says_what_to_type() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    // Where everybody may read them: the folders of root may be closed to others.
    let (mine, copy) = (folder.path("nodeprof"), folder.path("node"));
    copy_program(env!("CARGO_BIN_EXE_nodeprof"), &mine);
    copy_program(&node, &copy);
    let nobody = |output: &Path| {
        run(command("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&mine)
            .args(["trace", "-o"])
            .arg(output)
            .arg("--")
            .arg(&copy)
            .args(["-p", "'ran'"])
            .env("XDG_CACHE_HOME", folder.path("cache")))
    };
    refused(
        &nobody(&folder.path("x.nodeprof")),
        125,
        &["needed: root", "type: sudo"],
    );
    let closed = folder.path("closed");
    fs::create_dir(&closed).unwrap();
    allow_all(&closed, 0o555);
    refused(
        &nobody(&closed.join("x")),
        125,
        &["cannot be written", "needed", "type: -o"],
    );
    assert!(!folder.path("x.nodeprof").exists());
}

/// As the README says.
#[test]
#[ignore = "needs root"]
fn two_capabilities_are_all_that_a_trace_needs() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    let (mine, copy) = (folder.path("nodeprof"), folder.path("node"));
    copy_program(env!("CARGO_BIN_EXE_nodeprof"), &mine);
    copy_program(&node, &copy);
    let own = folder.path("own");
    fs::create_dir(&own).unwrap();
    allow_all(&own, 0o777);
    let traced = |rights: &[&str], output: &Path| {
        let mut all = vec!["-all"];
        all.extend(rights);
        let (all, rights) = (all.join(","), rights.join(","));
        run(command("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["--bounding-set", &all])
            .args(["--inh-caps", &rights, "--ambient-caps", &rights])
            .arg(&mine)
            .args(["trace", "-o"])
            .arg(output)
            .arg("--")
            .arg(&copy)
            .args(["-p", "require('fs').existsSync('/none')"])
            .env("XDG_CACHE_HOME", own.join("cache"))
            .env("HOME", &own))
    };
    let (needed, recording) = (["+bpf", "+perfmon"], own.join("x.nodeprof"));
    let whole = traced(&needed, &recording);
    assert_eq!(
        (whole.code(), whole.stdout().as_str()),
        (0, "false\n"),
        "{}",
        whole.stderr()
    );
    let recording = nodeprof_profile::Recording::load(&recording).unwrap();
    assert!(recording.crossings.len() > 100);
    for missing in needed {
        let output = own.join("less.nodeprof");
        refused(
            &traced(&[missing], &output),
            125,
            &["needed: root, or CAP_BPF and CAP_PERFMON"],
        );
        assert!(!output.exists());
    }
}

#[test]
#[ignore = "needs root"]
fn a_kernel_without_type_information_is_named_and_tracefs_is_not_needed() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    let hidden = |what: &str, words: &[&str]| {
        run(command("unshare")
            .args([
                "-m",
                "sh",
                "-c",
                &format!("mount -t tmpfs none {what} && exec \"$@\""),
                "sh",
            ])
            .arg(env!("CARGO_BIN_EXE_nodeprof"))
            .args(words)
            .current_dir(&folder.0))
    };
    let node = node.to_str().unwrap();
    let words = [
        "trace",
        "-q",
        "-f",
        "-o",
        "x.nodeprof",
        "--",
        node,
        "-p",
        "'ran'",
    ];
    for what in ["/sys/kernel/btf", "/sys"] {
        refused(
            &hidden(what, &words),
            125,
            &["/sys/kernel/btf/vmlinux", "needed", "nodeprof doctor"],
        );
    }
    let doctor = hidden("/sys/kernel/btf", &["doctor", "--node", node]);
    assert_eq!(doctor.code(), 1);
    assert!(
        doctor.stdout().contains("CONFIG_DEBUG_INFO_BTF"),
        "{}",
        doctor.stdout()
    );
    if Path::new("/sys/kernel/tracing").exists() {
        let o = hidden("/sys/kernel/tracing", &words);
        assert_eq!(
            (o.code(), o.stdout().as_str()),
            (0, "ran\n"),
            "{}",
            o.stderr()
        );
        let recording = load(&folder.path("x.nodeprof"));
        assert!(recording.families.iter().all(|f| f.state == "on"));
    }
}

#[test]
#[ignore = "needs root"]
fn names_may_hold_anything_but_nul() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    let odd = folder.path(OsStr::from_bytes(b"a b\n'\"\xff$c"));
    fs::create_dir(&odd).unwrap();
    fs::write(
        odd.join("s p\n.js"),
        "console.log(process.argv.length); require('fs').readFileSync(process.argv[2])",
    )
    .unwrap();
    fs::write(odd.join("read me\n"), "x").unwrap();
    let output = PathBuf::from(OsStr::from_bytes(b"o \n\xfe.nodeprof"));
    let o = run(trace(&output)
        .arg("--")
        .args([&node, Path::new("-e")])
        .arg("const fs = require('fs'); for (const f of fs.readdirSync('.')) fs.statSync(f); console.log(process.argv.length)")
        .arg(OsStr::from_bytes(b"arg\xff"))
        .current_dir(&odd));
    assert_eq!(
        (o.code(), o.stdout().as_str()),
        (0, "2\n"),
        "{}",
        o.stderr()
    );
    let recording = load(&odd.join(&output));
    assert_eq!(recording.runs[0].command.last().unwrap(), b"arg\xff");
    assert_eq!(recording.runs[0].directory, odd.as_os_str().as_bytes());
    assert!(recording.names.iter().any(|n| n.ends_with(b"read me\n")));
    for words in [
        &["report"][..],
        &["report", "--format", "json"],
        &["flame", "--of", "files"],
    ] {
        let o = run(nodeprof().args(words).arg(&output).current_dir(&odd));
        assert_eq!(o.code(), 0, "{words:?}: {}", o.stderr());
    }
    // A script by such a name: node itself cannot load it from a folder that is not UTF-8.
    let readable = folder.path("a b\n'\"$c");
    fs::create_dir(&readable).unwrap();
    let script = readable.join("s p\n.js");
    fs::copy(odd.join("s p\n.js"), &script).unwrap();
    let o = run(trace(&folder.path("x.nodeprof"))
        .arg("--")
        .args([&node, &script, &script]));
    assert_eq!(
        (o.code(), o.stdout().as_str()),
        (0, "3\n"),
        "{}",
        o.stderr()
    );
    let recording = load(&folder.path("x.nodeprof"));
    assert!(
        recording
            .names
            .iter()
            .any(|n| n == script.as_os_str().as_bytes())
    );
}

#[test]
#[ignore = "needs root"]
fn arguments_may_be_long_and_many() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    let file = folder.path("x.nodeprof");
    let long = "x".repeat(10_000);
    let many: Vec<String> = (0..2000).map(|i| i.to_string()).collect();
    for (words, said) in [(vec![long], "1 10000\n"), (many, "2000 1\n")] {
        let program = "console.log(process.argv.length - 1, process.argv[1].length)";
        let o = run(trace(&file)
            .arg("--")
            .arg(&node)
            .args(["-e", program])
            .args(&words));
        assert_eq!((o.code(), o.stdout().as_str()), (0, said), "{}", o.stderr());
        assert_eq!(load(&file).runs[0].command.len(), words.len() + 3);
        let report = run(nodeprof().arg("report").arg(&file));
        let widest = report.stdout().lines().map(|l| l.chars().count()).max();
        assert!(widest.is_some_and(|w| w <= 400), "{widest:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_recording_that_is_damaged_foreign_or_newer_is_refused() {
    let Some(node) = build(NODE) else { return };
    let folder = Folder::new();
    let good = folder.path("good.nodeprof");
    assert_eq!(
        run(trace(&good).arg("--").arg(&node).args(["-e", "0"])).code(),
        0
    );
    let whole = fs::read(&good).unwrap();
    let mut newer = whole.clone();
    newer[60..64].copy_from_slice(&999u32.to_be_bytes()); // SQLite's user_version
    let mut foreign = whole.clone();
    foreign[68..72].copy_from_slice(&7u32.to_be_bytes()); // SQLite's application_id
    for (name, content, words) in [
        ("short", whole[..5000].to_vec(), "truncated"),
        ("cut", whole[..whole.len() - 1].to_vec(), "truncated"),
        ("text", b"hello\n".to_vec(), "not a recording"),
        ("nothing", Vec::new(), "an empty file"),
        ("newer", newer, "update nodeprof"),
        ("foreign", foreign, "not a recording"),
    ] {
        let file = folder.file(format!("{name}.x"), &content);
        let report = run(nodeprof().arg("report").arg(&file));
        refused(&report, 125, &[name, words]);
        let flame = run(nodeprof().args(["flame", "--of", "crossings"]).arg(&file));
        refused(&flame, 125, &[name, words]);
        assert_eq!(
            report.stderr().matches(words).count(),
            1,
            "{}",
            report.stderr()
        );
    }
    // Wherever a byte is wrong: an error or a report, never a panic.
    for at in (0..whole.len()).step_by((whole.len() / 60).max(1)) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        let file = folder.file("damaged", &damaged);
        let report = run(nodeprof().arg("report").arg(&file));
        assert!(
            [0, 125].contains(&report.code()),
            "byte {at}: {}",
            report.stderr()
        );
    }
}

#[test]
fn commands_that_cannot_be_run_have_the_numbers_of_the_shells() {
    let folder = Folder::new();
    let x = folder.path("x.nodeprof");
    let go = |words: &[&OsStr]| run(trace(&x).arg("--").args(words));
    refused(&go(&["".as_ref()]), 127, &["not found", "needed", "type"]);
    refused(
        &go(&["/no/such/node".as_ref()]),
        127,
        &["/no/such/node", "not found", "needed"],
    );
    refused(&go(&[folder.0.as_os_str()]), 126, &["directory", "needed"]);
    let plain = folder.file("plain.js", "");
    refused(
        &go(&[plain.as_os_str()]),
        126,
        &["permission denied", "type: node"],
    );
    // The kernel says of the script what is true of its interpreter.
    let script = folder.file("script", "#!/no/such/interpreter\n");
    allow_all(&script, 0o755);
    let o = run(nodeprof()
        .args(["bench", "-n", "1", "--probed-runs", "0", "--"])
        .arg(&script));
    refused(&o, 126, &["/no/such/interpreter", "first line", "missing"]);
    assert!(!o.stderr().contains("type: node"), "{}", o.stderr());
    let o = run(trace(&x).env("PATH", "").args(["--", "node", "-e", "0"]));
    refused(&o, 127, &["node: not found in PATH", "needed", "type"]);
    assert!(!x.exists());
}

#[test]
#[ignore = "needs root"]
fn a_script_without_its_interpreter_is_not_traced() {
    let folder = Folder::new();
    let x = folder.path("x.nodeprof");
    let script = folder.file("script", "#!/no/such/interpreter\n");
    allow_all(&script, 0o755);
    let o = run(trace(&x).arg("--").arg(&script));
    refused(&o, 126, &["/no/such/interpreter", "first line", "missing"]);
    assert!(!x.exists());
}

#[test]
#[ignore = "needs root"]
fn too_few_open_files_are_no_old_kernel() {
    let folder = Folder::new();
    let x = folder.path("x.nodeprof");
    let script = r#"ulimit -n 32; exec "$0" trace --quiet -o "$1" -- node -e 0"#;
    let o = run(command("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_nodeprof")])
        .arg(&x));
    refused(&o, 125, &["32 files", "needed", "type: ulimit -n"]);
    assert!(!o.stderr().contains("Linux"), "{}", o.stderr());
    assert!(!x.exists());
}

#[test]
fn a_wrong_command_line_is_told_and_nothing_runs() {
    for (words, said) in [
        (&["trace"][..], "COMMAND"),
        (&["trace", "--"], "COMMAND"),
        (&[], "Usage"),
        (&["trace", "--until", "5", "--", "true"], "--until 1.5s"),
        (&["trace", "--until", "-1s", "--", "true"], "time"),
        (&["trace", "--mode", "half", "--", "true"], "full, count"),
        (&["trace", "--families", "nope", "--", "true"], "crossings"),
        (&["trace", "--families", "", "--", "true"], "crossings"),
        (
            &["trace", "--until", "exit", "--until", "idle", "--", "true"],
            "multiple times",
        ),
        (&["trace", "--format", "xml", "--", "true"], "json"),
        (&["trace", "--color", "blue", "true"], "always"),
        // An option that is not known is not the program.
        (&["trace", "--mod", "count", "--", "true"], "'--mode'"),
        (&["trace", "--mod", "count", "true"], "'--mode'"),
        (&["bench", "--warmpu", "1", "true"], "'--warmup'"),
        (
            &[
                "compare",
                "--base-node",
                "a",
                "--head-node",
                "b",
                "--quite",
                "x",
            ],
            "'--quiet'",
        ),
        (
            &["trace", "--node", "/dev/null", "true"],
            "--node /dev/null",
        ),
        (
            &["trace", "--node", "/bin/sh", "true"],
            "needed: a node binary",
        ),
        (&["trace", "--node", "/no/node", "true"], "no such file"),
        (
            &["bench", "--node", "/bin/sh", "true"],
            "needed: a node binary",
        ),
        (&["trace", "--label", "x", "true"], "--label commit="),
        (&["trace", "--label", "kernel=6", "true"], "my-kernel=6"),
        (&["flame", "x"], "--of"),
        (&["flame", "--of", "nothing", "x"], "crossing-time"),
        (&["flame", "x", "--of", "cpu", "--by", "line"], "module"),
        (&["flame", "x", "--of", "cpu", "--from", "12"], "12ms"),
        (
            &["flame", "x", "--of", "cpu", "--thread", "some"],
            "main, all",
        ),
        (
            &[
                "flame", "x", "--of", "cpu", "--order", "time", "--format", "pprof",
            ],
            "--format svg or folded",
        ),
        (
            &["flame", "x", "--by", "stack", "--format", "chrome"],
            "no --by",
        ),
        (&["report"], "FILE"),
        (&["report", "/no/such/file"], "/no/such/file"),
        (&["report", "/"], "folder"),
        (&["flame", "--of", "files", "/dev/null"], "regular file"),
        (&["fly"], "fly"),
        (&["probes", "--node", "/no/such/node"], "/no/such/node"),
        (&["probes", "--node", "/dev/null"], "/dev/null"),
    ] {
        let o = run(nodeprof().args(words));
        refused(&o, 125, &[said]);
    }
}
