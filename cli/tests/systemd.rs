//! The package under a real systemd: installed, started, reloaded, stopped, killed, hung, upgraded and removed.
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

#[path = "support/copies.rs"]
mod copies;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
    time::{Duration, Instant},
};

use copies::{COPIES_TWICE, assert_shared_again};
use nodeprof_profile::{
    Recording,
    store::database::{Filter, Reader},
};
use support::{
    NODEPROF, Node, folder, list, number, plain, project, report, text, undisturbed, write,
};
use tempfile::TempDir;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Sorts after [`VERSION`].
const NEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "+next");
/// What the package installs.
const UNITS: [&str; 7] = [
    "nodeprofd.service",
    "nodeprofd.socket",
    "nodeprof-holder.service",
    "nodeprof-holder.socket",
    "nodeprof-metrics.service",
    "nodeprof-view.service",
    "nodeprof-expedite.service",
];

/// Packages of the binaries under test, or why there is none.
///
/// A static is never dropped: the folder is one that the next run takes again.
static PACKAGES: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("systemd-packages");
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    for version in [VERSION, NEXT] {
        let binaries = Path::new(NODEPROF).parent().unwrap();
        let mut command = Command::new(project("scripts/deb"));
        command.arg("--binaries").arg(binaries);
        command.args(["--version", version, "--compress", "none", "--output"]);
        let output = command.arg(package(&folder, version)).output();
        let output = output.map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
    }
    Ok(folder)
});

fn package(folder: &Path, version: &str) -> PathBuf {
    folder.join(format!("nodeprof-{version}.deb"))
}

/// A systemd of its own.
struct Machine(TempDir);

impl Machine {
    /// Boots it; says so if that cannot be done here.
    fn boot() -> Option<Machine> {
        let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
        if let Some(missing) = ["dpkg-deb", "objcopy"].into_iter().find(|tool| !has(tool)) {
            println!("skipped: {missing} is not installed");
            return None;
        }
        let machine = Machine(folder());
        let packages = PACKAGES.as_ref().unwrap();
        let builds = Node::find("20.20.2")?.path;
        let output = Command::new(project("systemd/tests/boot"))
            .arg("start")
            .arg(machine.0.path())
            .args([packages.as_path(), builds.ancestors().nth(3).unwrap()])
            .output()
            .unwrap();
        if output.status.code() == Some(77) {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            return None;
        }
        assert!(output.status.success(), "{output:?}");
        Some(machine)
    }

    /// With the package installed, and the service running.
    fn with_service() -> Option<Machine> {
        let machine = Machine::boot()?;
        machine.install(VERSION);
        Some(machine)
    }

    fn install(&self, version: &str) {
        let file = package(PACKAGES.as_ref().unwrap(), version);
        self.does(&["dpkg", "--install", file.to_str().unwrap()]);
    }

    /// Whether a process of this name runs.
    fn runs(&self, name: &str) -> bool {
        let status = self.run(&["pgrep", name]).status;
        // 1: there is none; anything else: it was not looked for.
        assert!(
            matches!(status.code(), Some(0 | 1)),
            "pgrep {name}: {status}"
        );
        status.success()
    }

    fn run(&self, command: &[&str]) -> Output {
        let mut boot = Command::new(project("systemd/tests/boot"));
        plain(&mut boot);
        boot.arg("run").arg(self.0.path()).args(command);
        boot.output().unwrap()
    }

    /// Runs a command that succeeds; what it printed.
    fn does(&self, command: &[&str]) -> String {
        let output = self.run(command);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let log = self.run(&["journalctl", "--no-pager", "--lines=40"]);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            let log = String::from_utf8_lossy(&log.stdout).into_owned();
            panic!("{command:?}: {}\n{text}{error}\n{log}", output.status);
        }
        text
    }

    fn property(&self, unit: &str, name: &str) -> String {
        let output = self.does(&["systemctl", "show", "--value", "--property", name, unit]);
        output.trim().to_owned()
    }

    fn main_pid(&self) -> u32 {
        self.property("nodeprofd", "MainPID").parse().unwrap()
    }

    /// The journal of the service, each line a message.
    fn log(&self) -> Vec<String> {
        let text = self.does(&[
            "journalctl",
            "--no-pager",
            "--output=cat",
            "--unit=nodeprofd",
        ]);
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until something is true.
    fn until(&self, what: &str, mut is: impl FnMut() -> bool) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !is() {
            assert!(Instant::now() < limit, "not {what}: {:#?}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_running(&self) -> bool {
        let state = self.run(&["systemctl", "is-active", "nodeprofd"]);
        state.stdout == b"active\n"
    }

    /// A start of node, by this user, and its process id. It is over.
    fn begin_node(&self, node: &Node, user: &str) -> u32 {
        let is_first = !self.log().iter().any(|l| l.contains("recorded pid="));
        self.run_node(node, user, is_first)
    }

    /// One of a binary that the service does not know lasts long enough for its plan, on a busy machine, too.
    fn run_node(&self, node: &Node, user: &str, is_unknown: bool) -> u32 {
        let path = node.path.to_str().unwrap();
        let script = match is_unknown {
            true => "console.log(process.pid); setTimeout(() => {}, 700)",
            false => "console.log(process.pid)",
        };
        let output = self.does(&[
            // First: setpriv itself may still execute what that user may not look for.
            "env",
            "TEAM=core",
            "setpriv",
            "--reuid",
            user,
            "--clear-groups",
            path,
            "-e",
            script,
        ]);
        output.trim().parse().unwrap()
    }

    /// The same, and it is kept.
    fn start_node(&self, node: &Node, user: &str) -> u32 {
        self.keeps(self.begin_node(node, user))
    }

    /// The first start after the service was started without holding: it knows no binary then, and a short start may have ended
    /// before it has read one.
    fn start_node_unheld(&self, node: &Node, user: &str) -> u32 {
        self.keeps(self.run_node(node, user, true))
    }

    /// Waits until the start of a process is kept.
    fn keeps(&self, pid: u32) -> u32 {
        let line = format!("recorded pid={pid} ");
        self.until(&line, || self.log().iter().any(|l| l.contains(&line)));
        pid
    }

    /// All that is in the store.
    fn recordings(&self) -> Vec<Recording> {
        let copy = self.0.path().join("copy");
        let _ = fs::remove_dir_all(&copy);
        let copy_to = copy.to_str().unwrap();
        self.does(&["cp", "-r", "/var/lib/nodeprof", copy_to]);
        let reader = Reader::open(&copy.join("starts.db")).unwrap();
        let runs = reader.find(&Filter::default()).unwrap();
        (runs.iter().rev())
            .map(|run| reader.load(&[run.id]).unwrap())
            .collect()
    }

    fn recording(&self, pid: u32) -> Recording {
        let all = self.recordings();
        let is = |r: &Recording| r.processes[0].pid == pid;
        all.into_iter().rev().find(is).expect("it is in the store")
    }

    fn settings(&self, text: &str) {
        let file = write(self.0.path(), "settings.toml", text);
        self.does(&["cp", &file, "/etc/nodeprof/nodeprofd.toml"]);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let mut boot = Command::new(project("systemd/tests/boot"));
        let _ = boot.arg("stop").arg(self.0.path()).status();
    }
}

fn node() -> Option<Node> {
    Node::find("20.20.2")
}

#[test]
#[ignore = "needs root"]
fn installed_it_records_every_start_of_every_user_and_needs_no_root() {
    undisturbed(|| {
        let (Some(machine), Some(node)) = (Machine::with_service(), node()) else {
            return;
        };
        assert!(machine.is_running(), "{:#?}", machine.log());
        let status = format!("/proc/{}/status", machine.main_pid());
        let status = machine.does(&["cat", &status]);
        let id = machine.does(&["id", "--user", "nodeprof"]);
        let id = id.trim();
        assert!(
            status.contains(&format!("Uid:\t{id}\t{id}\t{id}\t{id}")),
            "{status}"
        );
        machine.start_node(&node, "0"); // of a binary that nobody knew
        for user in ["0", "65534"] {
            let pid = machine.start_node(&node, user);
            let recording = machine.recording(pid);
            assert_eq!(recording.processes[0].incomplete, None);
            assert_eq!(recording.runs[0].label("user"), Some(user));
            assert_eq!(recording.runs[0].exit_status, Some(0));
            assert!(!recording.crossing_sums.is_empty());
            // The journal has each value as a field.
            let field = format!("NODEPROF_PID={pid}");
            let entry = machine.does(&["journalctl", "--no-pager", "--output=json", &field]);
            let entry: serde_json::Value = serde_json::from_str(entry.trim()).unwrap();
            assert!(
                entry["NODEPROF_CROSSINGS"]
                    .as_str()
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
                    > 10
            );
            assert_eq!(entry["_SYSTEMD_UNIT"], "nodeprofd.service");
            // So has the log in its folder, which nobody else may read.
            let log = machine.does(&["sh", "-c", "cat /var/log/nodeprof/nodeprofd.*.json"]);
            let lines = log
                .lines()
                .map(|line| serde_json::from_str(line).expect(line));
            let mut starts = lines.filter(|line: &serde_json::Value| line["fields"]["pid"] == pid);
            let logged = starts.next().expect("a line of that start");
            let crossings = logged["fields"]["crossings"].to_string();
            assert_eq!(entry["NODEPROF_CROSSINGS"], *crossings);
        }
        let mode = machine.does(&["stat", "--format=%a %U", "/var/log/nodeprof"]);
        assert_eq!(mode, "750 nodeprof\n");
        // A unit of its own, without any right, tells a monitoring system.
        machine.does(&["systemctl", "start", "nodeprof-metrics"]);
        let get = "exec 3<>/dev/tcp/127.0.0.1/9747; printf 'GET /metrics HTTP/1.1\\r\\nHost: localhost:9747\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3";
        machine.until("three starts in the metrics", || {
            let answer = machine.run(&["bash", "-c", get]);
            let text = String::from_utf8_lossy(&answer.stdout).into_owned();
            let starts = |complete: &str| -> u32 {
                let name = format!("nodeprof_starts_total{{node=\"20\",complete=\"{complete}\"}} ");
                let mut lines = text.lines();
                let count = lines.find_map(|line| line.strip_prefix(&name)?.trim().parse().ok());
                count.unwrap_or(0)
            };
            // The first may have been met in time as well.
            text.starts_with("HTTP/1.1 200")
                && starts("true") >= 2
                && starts("true") + starts("false") == 3
        });
        // Its sandbox lets it read the memory of other users' programs, so that these have their code to share again.
        let program = node.path.to_str().unwrap();
        let to_nobody = ["setpriv", "--reuid", "65534", "--clear-groups"];
        let command = [&to_nobody[..], &[program, "-e", COPIES_TWICE]].concat();
        assert_shared_again(&machine.does(&command));
        let pid = machine.property("nodeprof-metrics", "MainPID");
        let status = machine.does(&["cat", &format!("/proc/{pid}/status")]);
        assert!(status.contains("CapPrm:\t0000000000000000\n"), "{status}");
        assert!(!status.contains("Uid:\t0"), "{status}");
        // As the documentation has other machines served.
        let secret = "0123456789abcdef0123456789abcdef";
        let file = write(machine.0.path(), "metrics-token", secret);
        let drop_in = write(
            machine.0.path(),
            "others.conf",
            "[Service]\nEnvironment=NODEPROF_METRICS_LISTEN=0.0.0.0:9747\n\
             Environment=\"NODEPROF_METRICS_OPTIONS=--token-file /etc/nodeprof/metrics-token\"\n",
        );
        let folder = "/etc/systemd/system/nodeprof-metrics.service.d";
        let to = [
            "-m",
            "640",
            "-g",
            "nodeprof",
            &file,
            "/etc/nodeprof/metrics-token",
        ];
        machine.does(&[&["install"][..], &to].concat());
        machine.does(&["install", "-D", &drop_in, &format!("{folder}/others.conf")]);
        machine.does(&["systemctl", "daemon-reload"]);
        machine.does(&["systemctl", "restart", "nodeprof-metrics"]);
        machine.until("no metrics without the secret", || {
            let answer = machine.run(&["bash", "-c", get]);
            answer.stdout.starts_with(b"HTTP/1.1 401")
        });
        let header = format!("Authorization: Bearer {secret}\\r\\nConnection");
        let answer = machine.does(&["bash", "-c", &get.replace("Connection", &header)]);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    });
}

#[test]
#[ignore = "needs root"]
fn full_mode_works_in_its_sandbox() {
    undisturbed(|| {
        let (Some(machine), Some(node)) = (Machine::with_service(), node()) else {
            return;
        };
        machine.start_node(&node, "0"); // nobody knew that binary
        machine.settings("[[rule]]\nmode = 'full'\nuser = 41234\n");
        machine.does(&["systemctl", "reload", "nodeprofd"]);
        let line = "starts are recorded in full mode";
        machine.until(line, || machine.log().iter().any(|l| l.contains(line)));
        let path = "/usr/local/bin/node-of-all";
        machine.does(&["install", "--mode=755", node.path.to_str().unwrap(), path]);
        let node = Node {
            version: node.version,
            path: path.into(),
        };
        machine.start_node(&node, "41234"); // nor that one
        let recording = machine.recording(machine.start_node(&node, "41234"));
        assert_eq!(recording.runs[0].mode, "full");
        assert_eq!(recording.processes[0].incomplete, None);
        assert!(!recording.stacks.is_empty());
        let counted = machine.recording(machine.start_node(&node, "0"));
        assert_eq!(counted.runs[0].mode, "count");
    });
}

#[test]
#[ignore = "needs root"]
fn pages_of_the_store_are_a_unit_without_any_right_for_who_has_its_token() {
    undisturbed(|| {
        let (Some(machine), Some(node)) = (Machine::with_service(), node()) else {
            return;
        };
        machine.start_node(&node, "0");
        machine.does(&["systemctl", "start", "nodeprof-view"]);
        let get = |query: &str, host: &str| {
            let get = format!(
                "exec 3<>/dev/tcp/127.0.0.1/9748; printf 'GET /{query} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
            );
            let answer = machine.run(&["bash", "-c", &get]);
            String::from_utf8_lossy(&answer.stdout).into_owned()
        };
        let mut token = String::new();
        machine.until("a token", || {
            let read = machine.run(&["cat", "/var/lib/nodeprof-view/token"]);
            token = String::from_utf8_lossy(&read.stdout).trim().to_owned();
            token.len() == 32 && !get("", "localhost:9748").is_empty()
        });
        let ours = "localhost:9748";
        assert!(get("", ours).starts_with("HTTP/1.1 403"));
        assert!(get(&format!("?token={}", &token[1..]), ours).starts_with("HTTP/1.1 403"));
        let asked = format!("?token={token}");
        assert!(get(&asked, "evil.test").starts_with("HTTP/1.1 403"));
        // Its secret is not in the journal.
        let journal = machine.does(&[
            "journalctl",
            "--no-pager",
            "--output=cat",
            "--unit=nodeprof-view",
        ]);
        assert!(
            journal.contains("token=…") && !journal.contains(&token),
            "{journal}"
        );
        // It may read nothing, until the configuration says so.
        let shows = || {
            let page = get(&asked, ours);
            assert!(page.starts_with("HTTP/1.1 200"), "{page}");
            // Runs are in the page as compressed data: a report of one is there or not.
            get(&format!("report?run=1&token={token}"), ours)
        };
        assert!(!shows().starts_with("HTTP/1.1 200"));
        machine.settings("[access]\nreaders = 'nodeprof-view'\n");
        machine.does(&["systemctl", "reload", "nodeprofd"]);
        machine.until("readable", || shows().starts_with("HTTP/1.1 200"));
        let pid = machine.property("nodeprof-view", "MainPID");
        let status = machine.does(&["cat", &format!("/proc/{pid}/status")]);
        assert!(status.contains("CapPrm:\t0000000000000000\n"), "{status}");
        assert!(!status.contains("Uid:\t0"), "{status}");
        // A socket for a web server in front.
        machine.does(&["sh", "-c", "echo 'NODEPROF_VIEW_LISTEN=unix:/run/nodeprof-view/view.sock' > /etc/default/nodeprofd"]);
        machine.does(&["systemctl", "restart", "nodeprof-view"]);
        machine.until("a socket", || {
            machine
                .run(&["test", "-S", "/run/nodeprof-view/view.sock"])
                .status
                .success()
        });
    });
}

#[test]
#[ignore = "needs root"]
fn units_are_without_fault_and_little_exposed() {
    undisturbed(|| {
        let Some(machine) = Machine::with_service() else {
            return;
        };
        for unit in UNITS {
            let file = format!("/usr/lib/systemd/system/{unit}");
            let output = machine.run(&["systemd-analyze", "verify", &file]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && said.is_empty(), "{said}");
        }
        for unit in [
            "nodeprofd.service",
            "nodeprof-holder.service",
            "nodeprof-metrics.service",
            "nodeprof-view.service",
        ] {
            machine.does(&["systemd-analyze", "security", "--threshold=20", unit]);
        }
        // The lane's end is not the service's.
        assert_eq!(machine.property("nodeprofd", "OOMPolicy"), "continue");
    });
}

/// What `nodeprofd.service` may.
const RIGHTS: [&str; 4] = [
    "CAP_BPF",
    "CAP_PERFMON",
    "CAP_SYS_PTRACE",
    "CAP_DAC_READ_SEARCH",
];

#[test]
#[ignore = "needs root"]
fn each_of_its_capabilities_is_needed_and_no_other() {
    undisturbed(|| {
        let (Some(machine), Some(node)) = (Machine::with_service(), node()) else {
            return;
        };
        let set = machine.property("nodeprofd", "CapabilityBoundingSet");
        let mut set: Vec<_> = set.split_whitespace().map(str::to_uppercase).collect();
        set.sort();
        let mut rights = RIGHTS.map(str::to_owned);
        rights.sort();
        assert_eq!(set, rights);
        // As version managers do: a binary in a folder that only its owner may read.
        let (user, private) = ("41234", "/home/only-mine");
        let path = format!("{private}/node");
        let binary = node.path.to_str().unwrap();
        machine.does(&["install", "-D", "--mode=755", binary, &path]);
        machine.does(&["chown", "-R", user, private]);
        machine.does(&["chmod", "700", private]);
        machine.does(&["mkdir", "-p", "/etc/systemd/system/nodeprofd.service.d"]);
        let restarted = |without: Option<&str>| {
            let rest = RIGHTS.into_iter().filter(|right| Some(*right) != without);
            let rest = rest.collect::<Vec<_>>().join(" ");
            let drop_in = format!(
                "[Service]\nRestart=no\nCapabilityBoundingSet=\nCapabilityBoundingSet={rest}\nAmbientCapabilities=\nAmbientCapabilities={rest}\n"
            );
            let drop_in = write(machine.0.path(), "c.conf", &drop_in);
            machine.does(&["cp", &drop_in, "/etc/systemd/system/nodeprofd.service.d/"]);
            machine.does(&["systemctl", "daemon-reload"]);
            let output = machine.run(&["systemctl", "restart", "nodeprofd"]);
            output.status.success()
        };
        let own = Node {
            version: node.version,
            path: path.into(),
        };
        // A machine that stalls for as long as a start may be held lets it begin unrecorded: of some, one that is whole says that it may.
        const STARTS: u32 = 3;
        let is_whole = |pid: u32| {
            let is = |r: &Recording| r.processes[0].pid == pid;
            let recording = machine.recordings().into_iter().rev().find(is);
            recording.is_some_and(|r| {
                r.processes[0].incomplete.is_none()
                    && r.runs[0].label("team") == Some("core")
                    && r.runs[0].label("user") == Some(user)
            })
        };
        let may_record = || (0..STARTS).any(|_| is_whole(machine.start_node(&own, user)));
        let times_told = |what: &str| machine.log().iter().filter(|l| l.contains(what)).count();
        machine.settings("[labels]\nteam = 'TEAM'\n");
        // How it is with all of them: what is missing below is missing for want of one.
        assert!(restarted(None));
        let unknown = format!("pid={}", machine.begin_node(&own, user));
        machine.until("told", || {
            machine.log().iter().any(|l| l.contains(&unknown))
        });
        assert!(may_record());
        for right in ["CAP_BPF", "CAP_PERFMON"] {
            let why = "needed: root, or CAP_BPF and CAP_PERFMON";
            let before = times_told(why);
            assert!(!restarted(Some(right)), "{right}");
            // The journal may have it a little after systemctl has returned.
            machine.until(why, || times_told(why) > before);
        }
        // Without the others it runs, tells whom it cannot record and why, and does no harm to them.
        for right in ["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"] {
            assert!(restarted(Some(right)), "{right}");
            let told = (0..STARTS).map(|_| {
                let pid = machine.begin_node(&own, user);
                let why = format!("recorded pid={pid}");
                let is_told = |line: &String| line.contains(&why);
                machine.until(&why, || machine.log().iter().any(is_told));
                assert!(!is_whole(pid), "{right}");
                machine.log().into_iter().find(is_told).unwrap()
            });
            let told: Vec<_> = told.collect();
            let is_denied =
                |line: &String| line.contains("not recorded") && line.contains("Permission denied");
            assert!(told.iter().any(is_denied), "{right}: {told:#?}");
        }
        assert!(restarted(None));
        assert!(may_record());
        println!(
            "{}",
            machine.does(&[
                "journalctl",
                "--no-pager",
                "--output=short-precise",
                "--unit=nodeprofd"
            ])
        );
    });
}

#[test]
#[ignore = "needs root"]
fn grace_periods_are_short_while_the_service_runs_if_that_is_asked_for() {
    undisturbed(|| {
        let Some(machine) = Machine::with_service() else {
            return;
        };
        let setting = || machine.does(&["cat", "/sys/kernel/rcu_expedited"]);
        let before = setting();
        machine.does(&["systemctl", "start", "nodeprof-expedite.service"]);
        if machine.property("nodeprof-expedite.service", "ActiveState") != "active" {
            println!("skipped: /sys is read-only in this machine");
            return;
        }
        assert_eq!(setting().trim(), "1");
        machine.does(&["systemctl", "stop", "nodeprofd.service"]);
        // It stops with the service; systemctl waits for that one only.
        let until = Instant::now() + Duration::from_secs(10);
        while machine.property("nodeprof-expedite.service", "ActiveState") != "inactive" {
            assert!(Instant::now() < until, "it did not stop with the service");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(setting(), before);
    });
}

#[test]
#[ignore = "needs root"]
fn the_one_process_with_administrative_rights_can_be_turned_off() {
    undisturbed(|| {
        /// Bits of linux/capability.h.
        const SYS_ADMIN: u64 = 1 << 21;
        let (Some(machine), Some(node)) = (Machine::with_service(), node()) else {
            return;
        };
        let may = |unit: &str| {
            let pid = machine.property(unit, "MainPID");
            let status = machine.does(&["cat", &format!("/proc/{pid}/status")]);
            let line = status.lines().find_map(|l| l.strip_prefix("CapPrm:\t"));
            u64::from_str_radix(line.unwrap(), 16).unwrap()
        };
        assert_eq!(may("nodeprof-holder.service"), SYS_ADMIN);
        assert_eq!(may("nodeprofd.service") & SYS_ADMIN, 0);
        let said = |what: &str| machine.log().iter().any(|line| line.contains(what));
        assert!(said("every start of node is held"), "{:#?}", machine.log());
        machine.settings("hold = false");
        machine.does(&["systemctl", "reload", "nodeprofd"]);
        machine.until("without it", || {
            machine.property("nodeprof-holder.service", "ActiveState") == "inactive"
        });
        // A reload may replace the holder, and what that one knew.
        machine.start_node_unheld(&node, "0");
        machine.start_node(&node, "0");
        // And without it from the beginning.
        machine.does(&["systemctl", "restart", "nodeprofd"]);
        machine.until("told", || {
            said("starts cannot be held (turned off in the configuration")
        });
        machine.start_node_unheld(&node, "0");
        assert_eq!(
            machine.property("nodeprof-holder.service", "ActiveState"),
            "inactive"
        );
    });
}

#[test]
#[ignore = "needs root"]
fn a_reload_takes_a_good_configuration_and_refuses_one_with_a_fault() {
    undisturbed(|| {
        let (Some(machine), Some(node)) = (Machine::with_service(), node()) else {
            return;
        };
        let pid = machine.main_pid();
        machine.settings("moed = 'off'");
        let output = machine.run(&["systemctl", "reload", "nodeprofd"]);
        assert!(!output.status.success());
        let log = machine.log().join("\n");
        assert!(log.contains("unknown field `moed`"), "{log}");
        machine.start_node(&node, "0");
        machine.settings("[labels]\nteam = 'TEAM'\n");
        machine.does(&["systemctl", "reload", "nodeprofd"]);
        machine.until("read again", || {
            machine
                .log()
                .iter()
                .any(|l| l.contains("the configuration was read again"))
        });
        machine.start_node(&node, "0");
        // Refused by the service alone.
        machine.settings("files = false\n");
        let output = machine.run(&["systemctl", "reload", "nodeprofd"]);
        assert!(!output.status.success());
        let log = machine.log().join("\n");
        assert!(log.contains("`files` is read at the start only"), "{log}");
        assert_eq!(machine.main_pid(), pid);
    });
}

#[test]
#[ignore = "needs root"]
fn who_stops_the_service_does_not_end_its_holder_before_it() {
    undisturbed(|| {
        let (Some(machine), Some(node)) = (Machine::with_service(), node()) else {
            return;
        };
        let path = node.path.to_str().unwrap();
        for _ in 0..3 {
            let before = machine.recordings().len();
            // Its start is never over.
            let script = "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)";
            let command = format!("{path} -e '{script}' > /dev/null 2>&1 & echo $!");
            let server = machine.does(&["sh", "-c", &command]);
            std::thread::sleep(Duration::from_millis(500)); // it has begun
            machine.does(&["systemctl", "stop", "nodeprofd"]);
            assert_eq!(machine.property("nodeprofd", "Result"), "success");
            assert_eq!(machine.recordings().len(), before + 1);
            machine.does(&["kill", server.trim()]);
            machine.does(&["systemctl", "start", "nodeprofd"]);
            machine.until("running", || machine.is_running());
        }
        let log = machine.log();
        let restarted = |line: &String| line.contains("the holder process ended");
        assert!(!log.iter().any(restarted), "{log:#?}");
    });
}

#[test]
#[ignore = "needs root"]
fn stopped_killed_or_hung_it_comes_back_as_it_should() {
    undisturbed(|| {
        let (Some(machine), Some(node)) = (Machine::with_service(), node()) else {
            return;
        };
        machine.start_node(&node, "0");
        machine.does(&[
            "systemctl",
            "kill",
            "--kill-whom=main",
            "--signal=KILL",
            "nodeprofd",
        ]);
        machine.until("back", || {
            machine.property("nodeprofd", "NRestarts") == "1" && machine.is_running()
        });
        machine.start_node(&node, "0");
        // Hung: the watchdog ends it.
        machine.does(&["mkdir", "-p", "/etc/systemd/system/nodeprofd.service.d"]);
        let drop_in = write(machine.0.path(), "w.conf", "[Service]\nWatchdogSec=1\n");
        machine.does(&["cp", &drop_in, "/etc/systemd/system/nodeprofd.service.d/"]);
        machine.does(&["systemctl", "daemon-reload"]);
        machine.does(&["systemctl", "restart", "nodeprofd"]);
        std::thread::sleep(Duration::from_millis(2500)); // it is heard of in time
        let hung = machine.main_pid();
        machine.does(&["kill", "-STOP", &hung.to_string()]);
        machine.until("back", || {
            machine.is_running() && ![0, hung].contains(&machine.main_pid())
        });
        let log = machine.does(&["journalctl", "--no-pager", "--output=cat"]);
        assert!(log.contains("Watchdog timeout"), "{log}");
        let recorded = machine.start_node(&node, "0");
        assert_eq!(machine.recording(recorded).processes[0].incomplete, None);
        // Stopped: nothing of it is left, and programs start as ever.
        machine.does(&["systemctl", "stop", "nodeprofd"]);
        let runs = |name: &str| machine.runs(name);
        assert!(!runs("nodeprofd"));
        machine.until("all over", || !runs("nodeprof")); // nobody needs the guard any more
        let before = machine.recordings().len();
        let path = node.path.to_str().unwrap();
        assert_eq!(machine.does(&[path, "-p", "7"]), "7\n");
        assert_eq!(machine.recordings().len(), before);
        assert_eq!(machine.property("nodeprofd", "Result"), "success");
        // Its socket is there still, for its group: who connects starts it again.
        let connect = "require('net').connect('/run/nodeprof/control.sock')\
        .on('connect', () => process.exit(0)).on('error', (e) => { console.log(e.code); process.exit(1) })";
        let from_group = |group: &str| {
            let group = format!("--regid={group}");
            machine.run(&[
                "setpriv",
                "--reuid=65534",
                &group,
                "--clear-groups",
                path,
                "-e",
                connect,
            ])
        };
        assert_eq!(
            String::from_utf8_lossy(&from_group("65534").stdout),
            "EACCES\n"
        );
        assert!(!machine.is_running());
        assert!(from_group("nodeprof").status.success());
        machine.until("running", || machine.is_running());
    });
}

#[test]
#[ignore = "needs root"]
fn users_of_its_group_trace_their_own_programs_from_inside_its_sandbox() {
    undisturbed(|| {
        let (Some(machine), Some(node)) = (Machine::with_service(), node()) else {
            return;
        };
        const PROGRAM: &str = "for (let i = 0; i < 500; i++) process.uptime();\
            if (!process.env.CHILD) require('child_process').execFileSync(process.execPath, process.execArgv, { env: { CHILD: 1 } });";
        // Where the user may look.
        let path = "/usr/local/bin/node-of-all";
        machine.does(&["install", "--mode=755", node.path.to_str().unwrap(), path]);
        let home = "/tmp/of-user";
        machine.does(&["install", "--directory", "--owner=41234", home]);
        let trace = |group: &str| {
            let group = format!("--regid={group}");
            let user = ["setpriv", "--reuid=41234", &group, "--clear-groups"];
            let home_is = format!("HOME={home}");
            let output = format!("{home}/t.nodeprof");
            let traced = [
                "env", &home_is, "nodeprof", "trace", "--force", "--quiet", "-o", &output, "--",
            ];
            let program = [path, "-e", PROGRAM];
            machine.run(&[&user[..], &traced, &program].concat())
        };
        let refused = trace("65534");
        let why = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(why.contains("may not be used by this user"), "{why}");
        let output = trace("nodeprof");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let copy = machine.0.path().join("t.nodeprof");
        machine.does(&["cp", &format!("{home}/t.nodeprof"), copy.to_str().unwrap()]);
        let run = report(&copy);
        let processes = list(&run["processes"]);
        assert_eq!(processes.len(), 2);
        assert!(
            processes.iter().all(|p| p["incomplete"].is_null()),
            "{processes:?}"
        );
        let callbacks = list(&run["crossings"]["callbacks"]).iter();
        let uptime = callbacks.filter(|c| text(&c["function"]).eq_ignore_ascii_case("uptime"));
        assert_eq!(uptime.map(|c| number(&c["calls"])).sum::<u64>(), 1000);
        assert!(number(&run["samples"]["count"]) > 0);
        // Nothing of it runs on.
        machine.until("all over", || !machine.runs("nodeprof-tracer"));
        assert!(machine.is_running());
    });
}

#[test]
#[ignore = "needs root"]
fn an_upgrade_and_a_removal_keep_what_was_recorded_and_a_purge_removes_it() {
    undisturbed(|| {
        let (Some(machine), Some(node)) = (Machine::with_service(), node()) else {
            return;
        };
        let first = machine.start_node(&node, "0");
        machine.settings("settle = '150ms'\n");
        let before = machine.main_pid();
        machine.install(NEXT);
        assert!(machine.is_running());
        assert_ne!(machine.main_pid(), before);
        machine.recording(first);
        let settings = machine.does(&["cat", "/etc/nodeprof/nodeprofd.toml"]);
        assert_eq!(settings, "settle = '150ms'\n");
        let second = machine.start_node(&node, "0");
        machine.does(&["dpkg", "--remove", "nodeprof"]);
        assert!(!machine.is_running());
        for pid in [first, second] {
            machine.recording(pid);
        }
        // Installed again it runs as before; what the administrator turns off stays off over an upgrade.
        let enabled = || {
            let state = machine.run(&["systemctl", "is-enabled", "nodeprofd"]);
            String::from_utf8_lossy(&state.stdout).trim().to_owned()
        };
        machine.install(VERSION);
        assert!(machine.is_running());
        assert_eq!(enabled(), "enabled");
        machine.start_node(&node, "0");
        machine.does(&["systemctl", "disable", "--now", "nodeprofd"]);
        machine.install(NEXT);
        assert!(!machine.is_running());
        assert_eq!(enabled(), "disabled");
        // Has a token of its own.
        machine.does(&["systemctl", "start", "nodeprof-view"]);
        machine.until("started", || {
            let token = machine.run(&["test", "-e", "/var/lib/nodeprof-view"]);
            token.status.success()
        });
        machine.does(&["dpkg", "--purge", "nodeprof"]);
        for folder in [
            "/var/lib/nodeprof",
            "/var/lib/nodeprof-view",
            "/var/cache/nodeprof",
            "/etc/nodeprof",
            "/run/nodeprof",
        ] {
            assert!(
                !machine.run(&["test", "-e", folder]).status.success(),
                "{folder}"
            );
        }
    });
}
