//! `nodeprof trace` of users who are not root, through `nodeprofd`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that fails says where"
)]

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "not every test file uses all of it"
)]
mod support;

#[allow(dead_code, reason = "not every test file uses all of it")]
#[path = "support/service.rs"]
mod own_service;

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use own_service::Service;
use serde_json::Value;
use support::{NODEPROF, Node, copy_program, folder, list, number, plain, report, text, write};
use tempfile::TempDir;

/// Nobody's user; the group is that of the socket of a test's service.
const USER: u32 = 41_234;
const GROUP: u32 = 65_534;

/// A service that this user may ask, and a folder with nodeprof, node, and the user's own programs.
struct Host {
    service: Service,
    top: TempDir,
    home: PathBuf,
    node: Node,
}

impl Host {
    fn new(version: &'static str) -> Option<Host> {
        let node = Node::find(version)?;
        let top = folder();
        let open = || fs::Permissions::from_mode(0o755);
        fs::set_permissions(top.path(), open()).unwrap();
        let copy = |from: &Path, name: &str| {
            let to = top.path().join(name);
            copy_program(from, &to);
            fs::set_permissions(&to, open()).unwrap();
            to
        };
        copy(Path::new(NODEPROF), "nodeprof");
        // Those that tests share lie where this user may not look.
        let node = Node {
            version,
            path: copy(&node.path, "node"),
        };
        let home = top.path().join("home");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(USER), Some(GROUP)).unwrap();
        let service = Service::knowing(&node, "");
        fs::set_permissions(service.folder.path(), open()).unwrap();
        Some(Host {
            service,
            top,
            home,
            node,
        })
    }

    fn node(&self) -> &str {
        self.node.path.to_str().unwrap()
    }

    /// `nodeprof OPTIONS`, as the user.
    fn nodeprof(&self) -> Command {
        let mut command = Command::new(self.top.path().join("nodeprof"));
        plain(&mut command)
            .uid(USER)
            .gid(GROUP)
            .current_dir(&self.home)
            .env("HOME", &self.home)
            .env("UV_USE_IO_URING", "0")
            .stdin(Stdio::null());
        command
    }

    fn trace(&self, options: &[&str], program: &[&str]) -> (Output, Option<Value>) {
        let file = self.home.join("t.nodeprof");
        let _ = fs::remove_file(&file);
        let mut command = self.nodeprof();
        let output = command
            .args(["trace", "--quiet", "-o", "t.nodeprof", "--service"])
            .arg(self.service.folder.path().join("control.sock"))
            .args(options)
            .arg("--")
            .args(program)
            .output()
            .unwrap();
        let run = file.is_file().then(|| {
            assert_eq!(fs::metadata(&file).unwrap().uid(), USER);
            report(&file)
        });
        (output, run)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const PROGRAM: &str = "
const { spawnSync } = require('child_process');
require('./dependency');
for (let i = 0; i < 1000; i++) process.uptime();
if (!process.env.CHILD) spawnSync(process.execPath, [__filename], { env: { CHILD: 1 }, stdio: 'inherit' });
";

fn of_callback(run: &Value, name: &str) -> u64 {
    let all = list(&run["crossings"]["callbacks"]).iter();
    all.filter(|row| text(&row["function"]).eq_ignore_ascii_case(name))
        .map(|row| number(&row["calls"]))
        .sum()
}

fn all_counts(run: &Value) -> Vec<(String, u64)> {
    let all = list(&run["crossings"]["callbacks"]).iter();
    let mut counts: Vec<(String, u64)> = all
        .map(|row| {
            let name = format!("{}.{}", text(&row["binding"]), text(&row["function"]));
            (name, number(&row["calls"]))
        })
        .collect();
    counts.sort();
    counts
}

fn a_user_traces_what_root_would_trace(version: &'static str) {
    let Some(host) = Host::new(version) else {
        return;
    };
    write(&host.home, "dependency.js", "module.exports = 1;\n");
    let program = write(&host.home, "program.js", PROGRAM);
    let command = [host.node(), program.as_str()];
    for mode in ["full", "count"] {
        let (output, run) = host.trace(&["--mode", mode], &command);
        assert!(output.status.success(), "{}", stderr(&output));
        let run = run.unwrap();
        let losses = run["losses"].as_object().unwrap();
        assert!(losses.values().all(|n| number(n) == 0), "{losses:?}");
        let processes = list(&run["processes"]);
        assert_eq!(processes.len(), 2, "{processes:?}");
        assert!(
            processes.iter().all(|p| p["incomplete"].is_null()),
            "{processes:?}"
        );
        assert_eq!(of_callback(&run, "uptime"), 2000, "{mode}");
        // The same program by the same user, traced by root.
        let root = support::Trace::new(["--mode", mode], command);
        let mut root = root.in_folder(&host.home);
        root.command()
            .env("HOME", &host.home)
            .env("UV_USE_IO_URING", "0");
        let root = root.run();
        assert_eq!(all_counts(&run), all_counts(&root.run), "{mode}");
        assert_eq!(
            run["package_json"]["lookups"],
            root.run["package_json"]["lookups"]
        );
        if mode == "full" {
            let modules = list(&run["modules"]).iter();
            let of_program = modules.filter(|m| m["kind"] == "cjs").count();
            assert_eq!(of_program, 4, "two of each process");
            assert!(number(&run["samples"]["count"]) > 0);
            let cpu = list(&run["families"]).iter().find(|f| f["name"] == "cpu");
            let cpu = cpu.map(|family| text(&family["reason"]).to_owned());
            assert!(cpu.is_some_and(|why| why.contains("tells no addresses of the kernel")));
        }
    }
}

/// Other commands that trace, and the one that says whether they may, know a service by its socket, too.
#[test]
#[ignore = "needs root"]
fn repeated_runs_and_the_doctor_ask_the_service_that_is_named() {
    let Some(host) = Host::new("20.20.2") else {
        return;
    };
    let script = "for (let i = 0; i < 1000; i++) process.uptime()";
    let program = write(&host.home, "app.js", script);
    let socket = host.service.folder.path().join("control.sock");
    let asks = |words: &[&str], rest: &[&str]| {
        let mut command = host.nodeprof();
        let output = command.args(words).arg("--service").arg(&socket).args(rest);
        let output = output.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        output
    };
    let few = [
        "-q",
        "-o",
        "t.nodeprof",
        "-f",
        "-w",
        "0",
        "-n",
        "1",
        "--probed-runs",
        "1",
    ];
    let base = format!("{} {program}", host.node());
    for (command, rest) in [
        ("bench", &["--", host.node(), &program][..]),
        ("compare", &["--base", &base, "--head", &base]),
    ] {
        asks(&[&[command], &few[..]].concat(), rest);
        let mut report = Command::new(NODEPROF);
        report.args(["report", "--format", "json"]);
        let report = report.arg(host.home.join("t.nodeprof")).output().unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let is_probed = |run: &Value| of_callback(run, "uptime") >= 1000;
        assert!(list(&report["runs"]).iter().any(is_probed), "{command}");
    }
    let told = asks(&["doctor"], &["--node", host.node()]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("traces your own programs for you"), "{told}");
}

#[test]
#[ignore = "needs root"]
fn a_user_traces_what_root_would_trace_16() {
    a_user_traces_what_root_would_trace("16.20.0");
}

#[test]
#[ignore = "needs root"]
fn a_user_traces_what_root_would_trace_20() {
    a_user_traces_what_root_would_trace("20.20.2");
}

#[test]
#[ignore = "needs root"]
fn a_user_traces_what_root_would_trace_26() {
    a_user_traces_what_root_would_trace("26.10.0");
}

#[test]
#[ignore = "needs root"]
fn a_program_that_takes_over_others_rights_is_not_followed() {
    let Some(host) = Host::new("20.20.2") else {
        return;
    };
    // Root's, by the set-user-ID bit; one that may be executed and not read.
    let copy = |name: &str, mode: u32| {
        let path = host.top.path().join(name);
        copy_program(&host.node.path, &path);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let others = [copy("roots", 0o4755), copy("hidden", 0o711)];
    write(
        &host.home,
        "secret.js",
        "process.uptime(); console.log(process.geteuid());\n",
    );
    let script = format!(
        "const {{ spawnSync }} = require('child_process');\n\
         for (const path of {others:?}) spawnSync(path, ['secret.js', 'a-secret'], {{ stdio: 'inherit' }});\n\
         process.uptime();\n"
    );
    let program = write(&host.home, "program.js", &script);
    let (output, run) = host.trace(&[], &[host.node(), &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(output.stdout, format!("0\n{USER}\n").into_bytes());
    let run = run.unwrap();
    assert_eq!(of_callback(&run, "uptime"), 1);
    assert_eq!(run["losses"]["processes_of_others"], 2, "{}", run["losses"]);
    let text = run.to_string();
    assert!(
        !text.contains("a-secret") && !text.contains("secret.js"),
        "{text}"
    );

    // The program itself.
    let (output, run) = host.trace(&[], &[others[0].to_str().unwrap(), "secret.js"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(output.stdout, b"0\n");
    let run = run.unwrap();
    assert_eq!(run["crossings"]["total"], 0);
    assert_eq!(run["losses"]["processes_of_others"], 1);
}

#[test]
#[ignore = "needs root"]
fn who_may_not_is_told_why_and_the_program_has_not_run() {
    let Some(mut host) = Host::new("20.20.2") else {
        return;
    };
    let program = write(
        &host.home,
        "program.js",
        "require('fs').writeFileSync('ran', '');\n",
    );
    let node = host.node().to_owned();
    let command = [node.as_str(), program.as_str()];
    let refused = |host: &Host, why: &str| {
        let (output, run) = host.trace(&[], &command);
        assert!(!output.status.success() && run.is_none());
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
        assert!(!host.home.join("ran").exists());
    };
    // By the configuration, the rights of the socket, and where there is no service.
    let file = host.service.folder.path().join("c.toml");
    let config = fs::read_to_string(&file).unwrap();
    let without = config.replace("[access]\n", "[access]\ntrace = false\n");
    assert_ne!(config, without);
    fs::write(&file, without).unwrap();
    host.service.signal(libc::SIGHUP);
    host.service.says("the configuration was read again");
    refused(&host, "access.trace = false");
    let socket = host.service.folder.path().join("control.sock");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).unwrap();
    refused(&host, "may not be used by this user");
    host.service.end();
    refused(&host, "nodeprofd does not run");
}

#[test]
#[ignore = "needs root"]
fn nothing_is_left_of_a_trace_whoever_is_killed() {
    let Some(mut host) = Host::new("20.20.2") else {
        return;
    };
    let program = write(
        &host.home,
        "program.js",
        "console.log('up'); setInterval(() => {}, 1000);\n",
    );
    // Tracers, whose comm they give themselves, and whose parent is the service.
    let tracers = |host: &Host| -> Vec<i32> {
        let parent = host.service.child.id().to_string();
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (before, after) = stat.rsplit_once(") ")?;
            let (pid, name) = before.split_once(" (")?;
            let is_one = name == "nodeprof-tracer" && after.split(' ').nth(1)? == parent;
            is_one.then(|| pid.parse().ok())?
        })
        .collect()
    };
    for whose in ["nodeprof", "tracer", "nodeprofd"] {
        let mut command = host.nodeprof();
        let mut traced = command
            .args([
                "trace",
                "--quiet",
                "-o",
                "k.nodeprof",
                "--force",
                "--service",
            ])
            .arg(host.service.folder.path().join("control.sock"))
            .arg("--")
            .arg(&host.node.path)
            .arg(&program)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut up = [0; 3];
        std::io::Read::read_exact(traced.stdout.as_mut().unwrap(), &mut up).unwrap();
        assert_eq!(tracers(&host).len(), 1);
        let children = format!("/proc/{0}/task/{0}/children", traced.id());
        let child: i32 = fs::read_to_string(children)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let victim = match whose {
            "nodeprof" => traced.id() as i32,
            "tracer" => tracers(&host)[0],
            _ => host.service.child.id() as i32,
        };
        // SAFETY: processes of this test.
        unsafe { libc::kill(victim, libc::SIGKILL) };
        let until = Instant::now() + Duration::from_secs(10);
        while !tracers(&host).is_empty() {
            assert!(Instant::now() < until, "a tracer is left");
            std::thread::sleep(Duration::from_millis(50));
        }
        // The program goes on, whoever is gone.
        assert!(fs::metadata(format!("/proc/{child}")).is_ok());
        // SAFETY: as above.
        unsafe { libc::kill(child, libc::SIGTERM) };
        let since = Instant::now();
        let output = traced.wait_with_output().unwrap();
        if whose != "nodeprof" {
            // Nobody waits for who is gone.
            assert!(
                since.elapsed() < Duration::from_secs(5),
                "{whose}: {:?}",
                since.elapsed()
            );
            assert!(
                fs::metadata(host.home.join("k.nodeprof")).is_ok(),
                "{}",
                stderr(&output)
            );
            let run = report(&host.home.join("k.nodeprof"));
            assert_eq!(run["losses"]["counts_unknown"], 1, "{}", run["losses"]);
        }
        if whose == "nodeprofd" {
            host.service.child.wait().unwrap();
            host.service.begin();
        }
    }
    // And the next one is traced as if nothing had been.
    let (output, run) = host.trace(&[], &[host.node(), "-p", "1"]);
    assert!(
        output.status.success() && run.is_some(),
        "{}",
        stderr(&output)
    );
}

#[test]
#[ignore = "needs root"]
fn a_tracer_names_no_paths_to_others_and_there_may_be_any_number_of_them() {
    let Some(host) = Host::new("20.20.2") else {
        return;
    };
    // Known binaries whose paths are longer together than an argument of a program may be (128 KB).
    let cache = host.service.folder.path().join("cache");
    let mut deep = host.home.clone();
    deep.extend((0..14).map(|_| "d".repeat(250)));
    fs::create_dir_all(&deep).unwrap();
    let mut links: Vec<PathBuf> = (0..40).map(|n| deep.join(format!("node{n}"))).collect();
    links.push(host.home.join(OsStr::from_bytes(b"no-text-\xff")));
    let mut known = Vec::new();
    for link in &links {
        fs::hard_link(&host.node.path, link).unwrap();
        known.extend(link.as_os_str().as_encoded_bytes());
        known.push(0);
    }
    assert!(known.len() > 128 << 10);
    fs::write(cache.join("known-nodes"), known).unwrap();
    host.service.signal(libc::SIGHUP);
    host.service.says("the configuration was read again");
    // Command lines of what comes of the service, as anybody reads them while the trace runs.
    const SCRIPT: &str = "
        const fs = require('fs');
        const read = (pid, name) => { try { return fs.readFileSync(`/proc/${pid}/${name}`, 'utf8') } catch { return '' } };
        const parent = (pid) => Number(read(pid, 'stat').replace(/.*\\) . /s, '').split(' ')[0]);
        const isOf = (pid) => pid === Number(process.argv[2]) || (pid > 1 && isOf(parent(pid)));
        const all = fs.readdirSync('/proc').map(Number).filter((pid) => pid > 0 && isOf(pid));
        // Who has ended has none.
        const lines = all.map((pid) => read(pid, 'cmdline')).filter((line) => line !== '');
        const options = lines.map((line) => line.split('\\0').slice(1, -1).join(' '));
        console.log([...new Set(options)].sort().join('|'));
    ";
    let program = write(&host.home, "program.js", SCRIPT);
    let service = host.service.child.id().to_string();
    let (output, run) = host.trace(&[], &[host.node(), &program, &service]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "--tracer|-c c.toml\n"
    );
    assert!(list(&run.unwrap()["processes"])[0]["incomplete"].is_null());
}

/// Calls that are only summed leave no record: the service tells of hits of probes.
#[test]
#[ignore = "needs root"]
fn a_users_program_whose_calls_are_only_summed_is_not_idle() {
    let Some(host) = Host::new("20.20.2") else {
        return;
    };
    const SCRIPT: &str = "
        const { getPriority } = require('os');
        let left = 20;
        const timer = setInterval(() => { getPriority(); if (!--left) { clearInterval(timer); setTimeout(() => {}, 2000); } }, 80);
    ";
    let program = write(&host.home, "program.js", SCRIPT);
    let options = ["--mode", "count", "--until", "idle"];
    let (output, run) = host.trace(&options, &[host.node(), &program]);
    assert!(output.status.success(), "{}", stderr(&output));
    let run = run.unwrap();
    assert_eq!(text(&run["ended_by"]), "idle");
    assert_eq!(of_callback(&run, "getPriority"), 20);
}
