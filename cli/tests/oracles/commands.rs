//! The command as its user meets it: streams, statuses, signals, until, sudo.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    os::fd::{AsRawFd as _, FromRawFd as _},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use nodeprof_profile::Recording;

use crate::support::{
    NODEPROF, Node, Trace, Traced, copy_program, folder, has_packages, has_tool, list, number,
    plain, project, report, text, write,
};

fn node() -> Option<Node> {
    Node::find("20.20.2")
}

#[test]
#[ignore = "needs root"]
fn standard_input_and_output_are_the_programs_own() {
    let Some(node) = node() else { return };
    let input: Vec<u8> = (0..1_000_000u64).map(|i| ((i * i) >> 7) as u8).collect();
    let script = "process.stdin.pipe(process.stdout); process.stderr.write('to stderr\\n')";
    let traced = Trace::new::<&str, _>([], node.command(["-e", script]))
        .input(&input)
        .run();
    traced.succeeded();
    assert!(
        traced.output.stdout == input,
        "{} bytes",
        traced.output.stdout.len()
    );
    assert_eq!(traced.stderr(), "to stderr\n");
}

#[test]
#[ignore = "needs root"]
fn the_report_as_json_follows_the_programs_output() {
    let Some(node) = node() else { return };
    let folder = crate::support::folder();
    for (quiet, file) in [(&[][..], "t.nodeprof"), (&["--quiet"], "q.nodeprof")] {
        let output = plain(&mut Command::new(crate::support::NODEPROF))
            .args(["trace", "--format", "json", "-o", file])
            .args(quiet)
            .arg("--")
            .args(node.command(["-e", "console.log('mine')"]))
            .current_dir(folder.path())
            .output()
            .expect("nodeprof starts");
        assert!(output.status.success());
        assert_eq!(output.stderr.is_empty(), !quiet.is_empty());
        let stdout = String::from_utf8(output.stdout).expect("UTF-8");
        let json = stdout
            .strip_prefix("mine\n")
            .expect("the program's output first");
        let shown: serde_json::Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(shown["schema"], 2);
        let saved = report(&folder.path().join(file));
        assert_eq!(shown["runs"][0], saved);
    }
}

#[test]
#[ignore = "needs root"]
fn the_exit_status_is_the_programs_own() {
    let Some(node) = node() else { return };
    for (script, status, signal) in [
        ("process.exit(7)", 7, None),
        ("process.exitCode = 255", 255, None),
        ("throw new Error('x')", 1, None),
        (
            "process.kill(process.pid, 'SIGKILL'); for (;;);",
            137,
            Some(9),
        ),
        (
            "process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 9e5)",
            143,
            Some(15),
        ),
        ("process.abort()", 134, Some(6)),
    ] {
        let traced = Trace::new::<&str, _>([], node.command(["-e", script])).run();
        assert_eq!(traced.output.status.code(), Some(status), "{script}");
        assert_eq!(traced.run["signal"].as_i64(), signal, "{script}");
        let own = signal.is_none().then_some(i64::from(status));
        assert_eq!(traced.run["exit_status"].as_i64(), own, "{script}");
        assert!(number(&traced.run["crossings"]["total"]) > 10, "{script}");
    }
}

#[test]
#[ignore = "needs root"]
fn the_exit_status_is_the_programs_own_whoever_reads_what_is_told() {
    let Some(node) = node() else { return };
    let folder = crate::support::folder();
    let slow = "setTimeout(() => process.exit(4), 1500)";
    for (format, until, script, status) in [
        ("text", "10s", "process.exit(3)", 3),
        ("json", "10s", "process.exit(3)", 3),
        ("text", "loop-start", slow, 4),
        ("json", "loop-start", slow, 4),
    ] {
        for to in ["/dev/full", "|"] {
            let mut command = Command::new(NODEPROF);
            plain(&mut command)
                .args(["trace", "--force", "-o", "t.nodeprof", "--format", format])
                .args(["--until", until, "--"])
                .args(node.command(["-e", script]));
            let closed = || -> std::process::Stdio {
                if to == "/dev/full" {
                    return std::fs::File::options()
                        .write(true)
                        .open(to)
                        .unwrap()
                        .into();
                }
                // A pipe that nobody reads.
                let (reader, writer) = std::io::pipe().unwrap();
                drop(reader);
                writer.into()
            };
            command.current_dir(folder.path()).stderr(closed());
            // JSON that was asked for and cannot be written is a failure of nodeprof's own, but to a pipe that is closed.
            command.stdout(std::process::Stdio::null());
            if format == "json" && to == "|" {
                command.stdout(closed());
            }
            let ended = command.status().unwrap();
            assert_eq!(ended.code(), Some(status), "{format} {until} {to}");
        }
    }
}

/// As a supervisor may leave it: of such a process the kernel reaps the children, and it never learns how they ended.
#[test]
#[ignore = "needs root"]
fn who_ignores_the_ends_of_children_has_the_recording_and_the_status() {
    use std::os::unix::process::CommandExt as _;

    let Some(node) = node() else { return };
    let folder = crate::support::folder();
    let ignoring = |program: &[&str]| {
        let mut command = Command::new(program[0]);
        plain(&mut command)
            .args(&program[1..])
            .current_dir(folder.path());
        // SAFETY: a system call on constants, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
                Ok(())
            });
        }
        command.output().unwrap()
    };
    let path = node.path.to_str().unwrap();
    let fails = [path, "-e", "process.exit(3)"];
    let trace = [NODEPROF, "trace", "-qfo", "t.nodeprof", "--"];
    let bench = [NODEPROF, "bench", "-if", "-n2", "-o", "b.nodeprof", "--"];
    for (nodeprof, status) in [(&trace[..], 3), (&bench, 0)] {
        let ended = ignoring(&[nodeprof, &fails].concat());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{said}");
    }
    for file in ["t.nodeprof", "b.nodeprof"] {
        let run = crate::support::report(&folder.path().join(file));
        assert_eq!(run["exit_status"], 3, "{file}");
    }
    // And the program has it as it would have without nodeprof.
    let shows = ["grep", "SigIgn", "/proc/self/status"];
    let traced = ignoring(&[&trace[..], &shows].concat());
    assert_eq!(traced.stdout, ignoring(&shows).stdout);
}

#[test]
#[ignore = "needs root"]
fn nodeprofs_own_failures_have_statuses_of_their_own() {
    let Some(node) = node() else { return };
    let folder = crate::support::folder();
    let not_executable = write(folder.path(), "plain.txt", "text");
    let status = |program: &[String]| {
        let mut trace = Trace::new::<&str, _>([], program);
        let output = trace.output();
        assert!(!trace.recording().exists(), "{program:?}");
        assert!(!output.stderr.is_empty(), "{program:?}");
        output.status.code()
    };
    assert_eq!(status(&["no-such-program-anywhere".into()]), Some(127));
    assert_eq!(status(&["/no/such/program".into()]), Some(127));
    assert_eq!(status(&[not_executable]), Some(126));
    assert_eq!(status(&["/".into()]), Some(126));

    let ran = folder.path().join("ran");
    let touch = format!("require('fs').writeFileSync({ran:?}, '')");
    let mut trace = Trace::new::<&str, _>([], node.command(["-e", &touch]));
    fs::write(trace.recording(), "mine").expect("a file");
    let output = trace.output();
    assert_eq!(output.status.code(), Some(125), "an existing file");
    assert_eq!(fs::read(trace.recording()).expect("the file"), b"mine");
    assert!(
        !ran.exists(),
        "the program ran though its recording could not be written"
    );
}

/// A trace of a program that goes on.
struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    trace: Trace,
}

impl Running {
    fn start(options: &[&str], program: Vec<String>) -> Running {
        let mut trace = Trace::new(options, program);
        let mut child = trace
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nodeprof starts");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Running {
            child,
            stdout,
            trace,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line
    }

    fn signal(&self, signal: i32) {
        // SAFETY: plain system call; our own child, not yet reaped.
        let outcome = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(outcome, 0);
    }

    /// Waits for the recording, which is there at once when the trace ends.
    fn recorded(&self) -> serde_json::Value {
        let patience = Instant::now() + Duration::from_secs(10);
        while !self.trace.recording().exists() {
            assert!(
                Instant::now() < patience,
                "no recording while the program runs"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        report(self.trace.recording())
    }

    fn end(mut self) -> (Output, Trace) {
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).expect("output");
        let mut output = self.child.wait_with_output().expect("nodeprof ends");
        output.stdout = rest;
        (output, self.trace)
    }
}

#[test]
#[ignore = "needs root"]
fn a_count_reads_the_memory_of_a_program_that_sleeps() {
    let Some(node) = node() else { return };
    let of = |options: &[&str], script: &str| {
        let traced = Trace::new(options, node.command(["-e", script])).run();
        traced.run["time"]["private_dirty_loop_start_bytes"].clone()
    };
    let goes_on = "setTimeout(() => {}, 500)";
    let slept = number(&of(&["--mode", "count"], goes_on));
    let over = number(&of(&["--mode", "count", "--until", "loop-start"], goes_on));
    for bytes in [slept, over] {
        assert!((4 << 20..1 << 30).contains(&bytes), "{bytes}");
    }
    // A binary that was installed just now is not written to the disk yet: what the kernel has of it is nothing that the program has written.
    let folder = folder();
    let installed = folder.path().join("node");
    copy_program(&node.path, &installed);
    let installed = Node {
        path: installed,
        ..node
    };
    let command = installed.command(["-e", goes_on]);
    let traced = Trace::new(["--mode", "count"], command).run();
    let fresh = number(&traced.run["time"]["private_dirty_loop_start_bytes"]);
    assert!(
        fresh.abs_diff(slept) < 1 << 20,
        "{fresh} of a new file, {slept} of an old one"
    );
}

#[test]
#[ignore = "needs root"]
fn a_server_goes_on_after_until() {
    let Some(node) = node() else { return };
    if !has_packages("examples/express") {
        return;
    }
    for (until, ended_by) in [
        ("loop-start", "loop-start"),
        ("idle", "idle"),
        ("500ms", "duration"),
    ] {
        let program = node.command([&project("examples/express/app.js"), "--serve"]);
        let mut running = Running::start(&["--until", until], program);
        let ready = running.line();
        let address = ready
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .unwrap_or_else(|| panic!("{ready}"))
            .to_owned();
        let run = running.recorded();
        assert_eq!(run["ended_by"], ended_by);
        assert!(
            run["exit_status"].is_null() && run["signal"].is_null(),
            "{until}"
        );
        let milestones = &run["milestones"];
        if until != "500ms" {
            // On a busy machine 500 ms can be too short for it.
            assert!(milestones["loop_start"].is_u64(), "{until}: {milestones}");
            assert!(number(&run["crossings"]["total"]) > 1_000, "{until}");
        }
        assert!(milestones["exit"].is_null(), "{until}");
        if until == "500ms" {
            let wall = number(&run["time"]["wall_ns"]);
            assert!((500_000_000..700_000_000).contains(&wall), "{wall}");
        }
        // The server answers, and nothing of it is recorded any more.
        let mut connection = TcpStream::connect(&address).expect("the server listens");
        connection
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("a request");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

        running.signal(libc::SIGTERM);
        let (output, trace) = running.end();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{until}: the server closes itself"
        );
        assert_eq!(
            report(trace.recording()),
            run,
            "{until}: it was written once"
        );
    }
}

/// In this build both are counted in the same place, which changes hands at each call, and then there are no two looks at it between which it did not.
#[test]
#[ignore = "needs root"]
fn callbacks_that_are_called_in_turn_are_counted_when_a_trace_ends_meanwhile() {
    let Some(node) = node() else { return };
    if !has_tool("chrt") {
        return;
    }
    let script = "
        const { types: { isMap } } = require('util'), { uptime } = process;
        for (const end = Date.now() + 1500; Date.now() < end;)
          for (let i = 0; i < 1000; i++) { isMap(1); uptime(); }";
    for _ in 0..5 {
        // It would wait for a processor now and then, and could be looked at.
        let mut program = ["chrt", "-f", "1"].map(str::to_owned).to_vec();
        program.extend(node.command(["-e", script]));
        let traced = Trace::new(["--mode", "count", "--until", "700ms"], program).run();
        assert_eq!(text(&traced.run["ended_by"]), "duration");
        let losses = traced.run["losses"].as_object().expect("an object");
        assert!(losses.values().all(|lost| lost == 0), "{losses:?}");
        let calls = ["IsMap", "Uptime"].map(|function| traced.calls(&[function]));
        assert!(calls[0] > 10_000, "{calls:?}");
        // It went on while the one and the other were read.
        assert!(calls[0].abs_diff(calls[1]) < calls[0] / 100, "{calls:?}");
    }
}

/// A call now and then that is only summed: it leaves no record, and too few others beside it for the counters to be told of 16 at once.
const TRICKLE: &str = "
const { getPriority } = require('os');
setTimeout(() => {}, 20000);
let left = 20;
const timer = setInterval(() => { getPriority(); if (!--left) clearInterval(timer); }, 80);
";

#[test]
#[ignore = "needs root"]
fn a_program_that_does_little_is_not_idle() {
    let Some(node) = node() else { return };
    let options = ["--mode", "count", "--until", "idle"];
    let running = Running::start(&options, node.command(["-e", TRICKLE]));
    let run = running.recorded();
    running.signal(libc::SIGTERM);
    running.end();
    assert_eq!(text(&run["ended_by"]), "idle");
    let callbacks = list(&run["crossings"]["callbacks"]).iter();
    let called = callbacks.filter(|c| text(&c["function"]) == "GetPriority");
    assert_eq!(called.map(|c| number(&c["calls"])).sum::<u64>(), 20);
}

/// What a start hangs in: whoever ends the trace of one wants to know just that.
#[test]
#[ignore = "needs root"]
fn what_is_under_way_when_a_trace_ends_is_in_it() {
    let Some(node) = node() else { return };
    let folder = folder();
    let script = write(
        folder.path(),
        "hangs.mjs",
        "import { execFileSync } from 'child_process'; execFileSync('sleep', ['3']);",
    );
    let of = |mode| {
        let options = ["--mode", mode, "--until", "1s"];
        Trace::new(options, node.command([&script])).run()
    };
    let (full, count) = (of("full"), of("count"));
    assert_eq!(full.run["ended_by"], "duration");
    let total = |traced: &Traced| number(&traced.run["crossings"]["total"]);
    assert_eq!(total(&full), total(&count));
    let crossings = &full.run["crossings"];
    let callbacks = list(&crossings["callbacks"]);
    let of = |function: &str| {
        let found = callbacks.iter().find(|c| text(&c["function"]) == function);
        found.unwrap_or_else(|| panic!("no call of {function}: {crossings}"))
    };
    let spawn = of("Spawn");
    assert_eq!(
        (number(&spawn["calls"]), number(&spawn["unfinished"])),
        (1, 1)
    );
    // The start takes some 50 ms of the second.
    let hung = number(&spawn["self_ns"]);
    assert!((500_000_000..1_500_000_000).contains(&hung), "{hung}");
    // It is the call around it that takes its time from it.
    let around = of("ModuleWrap::Evaluate");
    assert_eq!(number(&around["unfinished"]), 1);
    assert!(number(&around["self_ns"]) < 50_000_000, "{around}");
    let module = list(&full.run["modules"]).iter();
    let module = module
        .clone()
        .find(|m| text(&m["path"]) == script)
        .expect("the script");
    assert!(number(&module["self_ns"]) >= hung, "{module}");
    let recording = Recording::load(&full.recording).expect("a recording");
    let main = number(&full.process("the main one", |p| p["main"] == true)["pid"]);
    let waits = recording.waits.iter();
    let waited = waits
        .filter(|wait| u64::from(wait.thread.0) == main)
        .map(|wait| wait.duration.0)
        .max();
    assert!(
        waited.is_some_and(|longest| longest > 500_000_000),
        "{waited:?}"
    );
}

/// Prints how often it was interrupted, some time after the first.
const COUNTS_INTERRUPTS: &str = "let n = 0; process.on('SIGINT', () => { n++; \
     if (n === 1) setTimeout(() => { console.log('interrupted ' + n); process.exit(9); }, 300); }); \
     setInterval(() => {}, 1e6); console.log('ready');";

#[test]
#[ignore = "needs root"]
fn an_interrupt_sent_to_nodeprof_reaches_the_program_once() {
    let Some(node) = node() else { return };
    let mut running = Running::start(&[], node.command(["-e", COUNTS_INTERRUPTS]));
    assert_eq!(running.line(), "ready\n");
    running.signal(libc::SIGINT);
    let (output, trace) = running.end();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "interrupted 1\n");
    assert_eq!(output.status.code(), Some(9));
    is_complete(&report(trace.recording()));
}

/// The trace went on to the program's end, or stopped at the interrupt and says so.
fn is_complete(run: &serde_json::Value) {
    assert!(number(&run["crossings"]["total"]) > 20);
    let ended_by = run["ended_by"].as_str().unwrap_or_default();
    assert!(["exit", "interrupt"].contains(&ended_by), "{ended_by}");
}

#[test]
#[ignore = "needs root"]
fn ctrl_c_on_the_terminal_reaches_the_program_once() {
    let Some(node) = node() else { return };
    let mut terminal = Terminal::open();
    let mut trace = Trace::new::<&str, _>([], node.command(["-e", COUNTS_INTERRUPTS]));
    let mut child = terminal.spawn(trace.command());
    terminal.wait_for("ready");
    terminal.write(b"\x03");
    terminal.wait_for("interrupted 1");
    let status = child.wait().expect("nodeprof ends");
    assert_eq!(status.code(), Some(9), "{}", terminal.printed);
    is_complete(&report(trace.recording()));
}

#[test]
#[ignore = "needs root"]
fn the_terminal_is_the_programs() {
    let Some(node) = node() else { return };
    let mut terminal = Terminal::open();
    let script = "console.log(['terminals', process.stdin.isTTY, process.stdout.isTTY, process.stderr.isTTY].join(' '));
        process.stdin.once('data', (data) => { console.log('typed ' + JSON.stringify(String(data))); process.exit(0); });";
    let mut trace = Trace::new::<&str, _>([], node.command(["-e", script]));
    let mut child = terminal.spawn(trace.command());
    terminal.wait_for("terminals true true true");
    terminal.write(b"abc\n");
    terminal.wait_for(r#"typed "abc\n""#);
    assert_eq!(child.wait().expect("nodeprof ends").code(), Some(0));
}

/// A pseudo-terminal, seen from the side of who types.
struct Terminal {
    ours: fs::File,
    theirs: fs::File,
    printed: String,
}

impl Terminal {
    fn open() -> Terminal {
        let (mut ours, mut theirs) = (-1, -1);
        // SAFETY: two live integers; name, settings and size are not asked for or given.
        let outcome = unsafe {
            libc::openpty(
                &mut ours,
                &mut theirs,
                std::ptr::null_mut(),
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        assert_eq!(outcome, 0, "a pseudo-terminal");
        // SAFETY: two new descriptors that nobody else owns.
        let [ours, theirs] =
            unsafe { [fs::File::from_raw_fd(ours), fs::File::from_raw_fd(theirs)] };
        // SAFETY: our own descriptor. The children get theirs as streams; without this they would keep the terminal open.
        unsafe {
            for file in [&ours, &theirs] {
                libc::fcntl(file.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
        Terminal {
            ours,
            theirs,
            printed: String::new(),
        }
    }

    /// Starts a command as the leader of a session with this terminal.
    fn spawn(&self, command: &mut Command) -> Child {
        let stream = || Stdio::from(self.theirs.try_clone().expect("a descriptor"));
        command.stdin(stream()).stdout(stream()).stderr(stream());
        // SAFETY: two system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        command.spawn().expect("nodeprof starts")
    }

    fn write(&mut self, typed: &[u8]) {
        self.ours.write_all(typed).expect("the terminal is open");
    }

    fn wait_for(&mut self, text: &str) {
        let patience = Instant::now() + Duration::from_secs(20);
        while !self.printed.contains(text) {
            assert!(Instant::now() < patience, "{text} in {}", self.printed);
            let mut poll = libc::pollfd {
                fd: self.ours.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one live pollfd.
            if unsafe { libc::poll(&mut poll, 1, 100) } <= 0 {
                continue;
            }
            let mut buffer = [0; 4096];
            let got = self.ours.read(&mut buffer).expect("the terminal is open");
            self.printed
                .push_str(&String::from_utf8_lossy(&buffer[..got]));
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_program_that_does_not_handle_an_interrupt_ends_by_it() {
    let Some(node) = node() else { return };
    for (signal, status) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let script = "setInterval(() => {}, 1e6); setTimeout(() => console.log('ready'))";
        let mut running = Running::start(&[], node.command(["-e", script]));
        assert_eq!(running.line(), "ready\n");
        running.signal(signal);
        let (output, trace) = running.end();
        assert_eq!(output.status.code(), Some(status));
        let run = report(trace.recording());
        assert!(number(&run["milestones"]["loop_start"]) > 0);
    }
}

#[test]
#[ignore = "needs root"]
fn under_sudo_the_program_is_the_users() {
    let Some(node) = node() else { return };
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let Some((uid, gid)) = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.first() == Some(&"nobody")).then(|| {
            Some((
                fields.get(2)?.parse::<u32>().ok()?,
                fields.get(3)?.parse::<u32>().ok()?,
            ))
        })?
    }) else {
        println!("skipped: there is no user nobody");
        return;
    };
    // The builds can be where only root may look.
    let folder = crate::support::folder();
    let path = folder.path().join("node");
    copy_program(&node.path, &path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    let script = "const p = process; console.log(JSON.stringify([p.getuid(), p.geteuid(), p.getgid(), p.getegid(), p.getgroups()]))";
    let mut trace = Trace::new::<&str, _>([], [path.to_str().expect("UTF-8"), "-e", script])
        .in_folder(folder.path());
    trace
        .command()
        .env("SUDO_UID", uid.to_string())
        .env("SUDO_GID", gid.to_string())
        .env("SUDO_USER", "nobody");
    let traced = trace.run();
    traced.succeeded();
    traced.lost_nothing();
    let ids: serde_json::Value = serde_json::from_str(&traced.stdout()).expect("JSON");
    assert_eq!(ids, serde_json::json!([uid, uid, gid, gid, [gid]]));
    let owner = fs::metadata(&traced.recording).expect("the recording");
    assert_eq!((owner.uid(), owner.gid()), (uid, gid));
    assert!(number(&traced.run["crossings"]["total"]) > 20);
}

#[test]
#[ignore = "needs root"]
fn the_holder_keeps_no_folder_busy_and_is_reaped_and_the_run_has_its_labels() {
    let Some(node) = node() else { return };
    let folder = crate::support::folder();
    let program = ["-e", "setTimeout(() => {}, 1500)"];
    let mut trace = plain(&mut Command::new(crate::support::NODEPROF))
        .args(["trace", "-q", "-o", "t.nodeprof", "--label", "name=before"])
        .args(["--label", "commit=1a2b3c", "--"])
        .args(node.command(program))
        .current_dir(folder.path())
        .spawn()
        .expect("nodeprof starts");
    // `PID (NAME) STATE PARENT …`
    let holder = || {
        let processes = fs::read_dir("/proc").expect("/proc").flatten();
        let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.find(|pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let (name, rest) = stat.rsplit_once(") ").unwrap_or_default();
            let parent = rest.split(' ').nth(1).unwrap_or_default();
            name.ends_with("(nodeprof-holder") && parent == trace.id().to_string()
        })
    };
    let until = Instant::now() + Duration::from_secs(10);
    let holder = loop {
        match holder() {
            Some(pid) => break pid,
            None if Instant::now() > until => panic!("there is no holder"),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    // It has its name some system calls before it leaves the folder.
    std::thread::sleep(Duration::from_millis(50));
    let its_folder = fs::read_link(format!("/proc/{holder}/cwd")).expect("a folder");
    assert_eq!(its_folder, std::path::Path::new("/"));
    assert!(trace.wait().expect("nodeprof ends").success());
    let stat = fs::read_to_string(format!("/proc/{holder}/stat"));
    assert!(stat.is_err(), "{stat:?}");
    let report = report(&folder.path().join("t.nodeprof"));
    let labels = &report["labels"];
    assert_eq!(
        (&labels["name"], &labels["commit"]),
        (&"before".into(), &"1a2b3c".into())
    );
    assert!(labels["kernel"].is_string());
}
