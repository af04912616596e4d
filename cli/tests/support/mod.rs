//! What tests of the command share: node builds, traces, strace.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use nodeprof_profile::Recording;
use serde_json::Value;
use tempfile::TempDir;

#[path = "../../../probes/tests/common/mod.rs"]
mod builds;
mod copy_program;
mod undisturbed;

pub use copy_program::copy_program;
pub use undisturbed::{stolen, undisturbed};

/// The command under test.
pub const NODEPROF: &str = env!("CARGO_BIN_EXE_nodeprof");

/// An official build of Node.
pub struct Node {
    /// For example `20.20.2`.
    pub version: &'static str,
    /// The executable.
    pub path: PathBuf,
}

impl Node {
    /// The official build, if `make node-builds` has fetched it; else says that a test was skipped.
    pub fn find(version: &'static str) -> Option<Node> {
        let path = builds::node_build(version)?;
        Some(Node { version, path })
    }

    /// The build made on Alpine Linux, if it was fetched and starts here; else says that a test was skipped.
    pub fn find_alpine() -> Option<Node> {
        let path = builds::alpine_build()?;
        let starts = Command::new(&path).arg("--version").output();
        if !starts.is_ok_and(|output| output.status.success()) {
            println!(
                "skipped: {} does not start here: it needs musl 1.2.4 or newer (package musl)",
                path.display()
            );
            return None;
        }
        Some(Node {
            version: builds::ALPINE,
            path,
        })
    }

    /// 20 for 20.20.2.
    pub fn major(&self) -> u32 {
        let major = self.version.split('.').next().unwrap_or_default();
        major.parse().expect("a version")
    }

    /// The command line `node ARGUMENTS…`.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Vec<String> {
        let text = |s: &OsStr| s.to_str().expect("UTF-8").to_owned();
        std::iter::once(text(self.path.as_os_str()))
            .chain(arguments.into_iter().map(|a| text(a.as_ref())))
            .collect()
    }
}

/// Runs a test on each official build, as `TEST::node_20` and so on.
macro_rules! on_each_node {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            $crate::on_each_node! { @versions super::$test,
                node_16 "16.20.0", node_18 "18.20.8", node_20 "20.20.2",
                node_22 "22.23.3", node_24 "24.21.0", node_26 "26.10.0"
            }
        }
    )*};
    // Tests of times: see `undisturbed`.
    (undisturbed: $($test:ident),* $(,)?) => {$(
        mod $test {
            $crate::on_each_node! { @versions |node| $crate::support::undisturbed(|| super::$test(node)),
                node_16 "16.20.0", node_18 "18.20.8", node_20 "20.20.2",
                node_22 "22.23.3", node_24 "24.21.0", node_26 "26.10.0"
            }
        }
    )*};
    (@versions $run:expr, $($name:ident $version:literal),*) => {$(
        #[test]
        #[ignore = "needs root"]
        fn $name() {
            if let Some(node) = $crate::support::Node::find($version) {
                let run: fn(&$crate::support::Node) = $run;
                run(&node);
            }
        }
    )*};
}
pub(crate) use on_each_node;

/// A file or folder of the project, by its path from the top.
pub fn project(path: &str) -> String {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate is in the workspace");
    top.join(path).to_str().expect("UTF-8").to_owned()
}

/// Whether an example's npm packages are there; else says that a test was skipped.
pub fn has_packages(example: &str) -> bool {
    let there = Path::new(&project(example)).join("node_modules").is_dir();
    if !there {
        println!("skipped: {example} has no node_modules; run make test");
    }
    there
}

/// The script that `npm` or `npx` of PATH runs; else says that a test was skipped.
pub fn npm_script(name: &str) -> Option<String> {
    let found = std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .and_then(|path| fs::canonicalize(path).ok())
        .filter(|path| path.extension().is_some_and(|e| e == "js"));
    match found {
        Some(path) => Some(path.to_str().expect("UTF-8").to_owned()),
        None => {
            println!("skipped: {name} is not a script on PATH");
            None
        }
    }
}

/// For python3: executes its arguments in another thread than its main one.
pub const EXECUTES_FROM_A_THREAD: &str = "import os, sys, threading
threading.Thread(target=os.execv, args=(sys.argv[1], sys.argv[1:])).start()
threading.Event().wait()";

/// Whether a tool is on PATH; else says that a test was skipped.
pub fn has_tool(name: &str) -> bool {
    let there = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()));
    if !there {
        println!("skipped: {name} is not installed");
    }
    there
}

/// A new folder, open to every user.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    folder
}

/// Writes a file, executable if it begins with `#!`, and returns its path.
pub fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(&path, text).expect("a file");
    let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("permissions");
    path.to_str().expect("UTF-8").to_owned()
}

/// Lets a command see nothing of the environment that would change what Node does.
pub fn plain(command: &mut Command) -> &mut Command {
    for name in [
        "NODE_EXTRA_CA_CERTS",
        "NODE_OPTIONS",
        "NODE_PATH",
        "NODE_V8_COVERAGE",
        "NODE_COMPILE_CACHE",
        "SUDO_UID",
        "SUDO_GID",
        "SUDO_USER",
        // cargo's: programs would search its folders, and find other libraries there.
        "LD_LIBRARY_PATH",
    ] {
        command.env_remove(name);
    }
    // npm turns it on: the second run would do other things than the first.
    command
        .env("NODE_DISABLE_COMPILE_CACHE", "1")
        .env("npm_config_update_notifier", "false")
        .env("npm_config_logs_max", "0")
}

/// A finished `nodeprof trace`.
pub struct Traced {
    /// What it printed, and its exit status.
    pub output: Output,
    /// The run, as `nodeprof report --format json` shows it.
    pub run: Value,
    /// The recording.
    pub recording: PathBuf,
    _folder: TempDir,
}

/// A trace to run.
pub struct Trace {
    command: Command,
    recording: PathBuf,
    folder: TempDir,
    input: Vec<u8>,
}

impl Trace {
    /// `nodeprof trace OPTIONS -- PROGRAM`, quiet, into a folder of its own.
    pub fn new<O: AsRef<OsStr>, P: AsRef<OsStr>>(
        options: impl IntoIterator<Item = O>,
        program: impl IntoIterator<Item = P>,
    ) -> Trace {
        let folder = folder();
        let recording = folder.path().join("t.nodeprof");
        let mut command = Command::new(NODEPROF);
        plain(&mut command)
            .args(["trace", "--quiet", "-o"])
            .arg(&recording)
            .args(options)
            .arg("--")
            .args(program);
        Trace {
            command,
            recording,
            folder,
            input: Vec::new(),
        }
    }

    /// The command, to set more.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Where the recording will be.
    pub fn recording(&self) -> &Path {
        &self.recording
    }

    /// Runs the program in this folder.
    pub fn in_folder(mut self, folder: impl AsRef<Path>) -> Trace {
        self.command.current_dir(folder);
        self
    }

    /// Puts a folder before all others of PATH.
    pub fn first_on_path(mut self, folder: &Path) -> Trace {
        self.command.env("PATH", path_with(folder));
        self
    }

    /// What the program reads.
    pub fn input(mut self, input: &[u8]) -> Trace {
        self.input = input.to_vec();
        self
    }

    /// Runs it to its end; there must be a recording.
    pub fn run(mut self) -> Traced {
        let output = self.output();
        assert!(
            self.recording.is_file(),
            "no recording; {:?}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Traced {
            run: report(&self.recording),
            output,
            recording: self.recording,
            _folder: self.folder,
        }
    }

    /// Runs it to its end.
    pub fn output(&mut self) -> Output {
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nodeprof starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = std::mem::take(&mut self.input);
        let feeder = std::thread::spawn(move || {
            // A program that does not read its input is no error.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("nodeprof ends");
        feeder.join().expect("the input was written");
        output
    }
}

/// Traces a program that must succeed, with nothing lost.
pub fn trace<P: AsRef<OsStr>>(options: &[&str], program: impl IntoIterator<Item = P>) -> Traced {
    let traced = Trace::new(options, program).run();
    traced.succeeded();
    traced.lost_nothing();
    traced
}

/// What another tool saw of a program, and a trace of it. On Node 20 one getter of the express example is a miss of an inline cache or not,
/// from run to run, traced or not: C++ calls into JavaScript once more. So both run until they fell the same way, up to 8
/// times; the last two are returned as they are.
pub fn seen_and_traced<P: AsRef<OsStr>, S>(
    program: &[P],
    see: impl Fn() -> Option<S>,
    fell_the_same_way: impl Fn(&S, &Traced) -> bool,
) -> Option<(S, Traced)> {
    for _ in 1..8 {
        let (seen, traced) = (see()?, trace(&[], program));
        if fell_the_same_way(&seen, &traced) {
            return Some((seen, traced));
        }
    }
    Some((see()?, trace(&[], program)))
}

/// PATH with a folder before all others.
pub fn path_with(folder: &Path) -> std::ffi::OsString {
    let mut folders = vec![folder.to_owned()];
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    std::env::join_paths(folders).expect("a PATH")
}

/// `runs[0]` of `nodeprof report --format json`.
pub fn report(recording: &Path) -> Value {
    let output = Command::new(NODEPROF)
        .args(["report", "--format", "json"])
        .arg(recording)
        .output()
        .expect("nodeprof starts");
    assert!(
        output.status.success(),
        "report: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["runs"][0].take()
}

/// A number of the report.
pub fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

/// An array of the report.
pub fn list(value: &Value) -> &[Value] {
    value
        .as_array()
        .unwrap_or_else(|| panic!("{value} is no array"))
}

/// A text of the report.
pub fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
}

impl Traced {
    /// What the program printed.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// What the program and nodeprof printed to standard error.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// The program ended with 0.
    pub fn succeeded(&self) {
        assert!(
            self.output.status.success(),
            "{:?}: {}",
            self.output.status,
            self.stderr()
        );
        assert_eq!(self.run["exit_status"], 0);
    }

    /// No kind of loss, and no process whose record is not complete.
    pub fn lost_nothing(&self) {
        self.lost_nothing_but(&[]);
    }

    /// As `lost_nothing`, but for some kinds of loss.
    pub fn lost_nothing_but(&self, kinds: &[&str]) {
        // First, as it says why.
        for process in list(&self.run["processes"]) {
            assert!(process["incomplete"].is_null(), "{process}");
        }
        let losses = self.run["losses"].as_object().expect("losses");
        for (kind, count) in losses
            .iter()
            .filter(|(kind, _)| !kinds.contains(&kind.as_str()))
        {
            assert_eq!(number(count), 0, "losses.{kind}: {}", self.run["losses"]);
        }
        for family in list(&self.run["families"]) {
            assert!(family["state"] != "failed", "{family}");
        }
    }

    /// Calls of a callback by each of these names, of any binding and kind.
    pub fn calls(&self, functions: &[&str]) -> u64 {
        self.calls_of_kind(functions, None)
    }

    /// Calls of a callback of one kind.
    pub fn calls_of_kind(&self, functions: &[&str], kind: Option<&str>) -> u64 {
        let crossings = &self.run["crossings"];
        list(&crossings["callbacks"])
            .iter()
            .chain(list(&crossings["to_js"]))
            .filter(|c| functions.contains(&text(&c["function"])))
            .filter(|c| kind.is_none_or(|kind| c["kind"] == kind))
            .map(|c| number(&c["calls"]))
            .sum()
    }

    /// Calls by binding and function. Fast and slow form of one function are one: which of the two is called depends on when the
    /// optimiser's thread is done.
    pub fn calls_by_callback(&self) -> BTreeMap<String, u64> {
        let mut calls = BTreeMap::new();
        let crossings = &self.run["crossings"];
        for c in list(&crossings["callbacks"])
            .iter()
            .chain(list(&crossings["to_js"]))
        {
            let (kind, function) = (text(&c["kind"]), text(&c["function"]));
            let name = match kind {
                "slow" | "fast" => function.replace("Fast", "").replace("Slow", ""),
                _ => format!("{function} ({kind})"),
            };
            let name = format!("{}.{name}", text(&c["binding"]));
            *calls.entry(name).or_default() += number(&c["calls"]);
        }
        calls
    }

    /// Calls, bytes of a serialization function.
    pub fn serialized(&self, function: &str) -> (u64, u64) {
        list(&self.run["serialization"]["functions"])
            .iter()
            .filter(|f| f["function"] == function)
            .map(|f| (number(&f["calls"]), number(&f["bytes"])))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// File operations by path.
    pub fn file_operations(&self) -> FileOperations {
        let recording = Recording::load(&self.recording).expect("a recording");
        let mut operations = FileOperations::new();
        for access in &recording.files {
            let operation = access.operation.name();
            let path = String::from_utf8_lossy(&recording.names[access.path.0 as usize]);
            count(&mut operations, operation, &path);
        }
        operations
    }

    /// The one process of which this holds.
    pub fn process(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> &Value {
        let found: Vec<&Value> = list(&self.run["processes"])
            .iter()
            .filter(|p| is_it(p))
            .collect();
        assert_eq!(found.len(), 1, "{what}: {:#}", self.run["processes"]);
        found[0]
    }
}

/// How often: by operation and path.
pub type FileOperations = BTreeMap<(&'static str, String), u64>;

fn count(operations: &mut FileOperations, operation: &'static str, path: &str) {
    // A descriptor is shown by the path it was opened with, or by the path behind it: symbolic links differ.
    let path = match fs::canonicalize(path) {
        Ok(real) if path.starts_with('/') => real.to_string_lossy().into_owned(),
        _ => path.to_owned(),
    };
    *operations.entry((operation, path)).or_default() += 1;
}

/// What strace sees of a program and all its descendants.
pub fn strace(program: &[String]) -> FileOperations {
    let folder = folder();
    let log = folder.path().join("strace");
    let calls: Vec<&str> = SYSCALLS.iter().map(|&(name, _)| name).collect();
    let output = plain(&mut Command::new("strace"))
        .args(["-f", "-qq", "-y", "-s", "4096", "-e", "signal=none", "-e"])
        .arg(format!("trace={}", calls.join(",")))
        .arg("-o")
        .arg(&log)
        .arg("--")
        .args(program)
        // As `Trace::run` does: Node asks what its standard streams are.
        .stdin(Stdio::piped())
        .output()
        .expect("strace starts");
    assert!(
        output.status.success(),
        "strace: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let log = fs::read(&log).expect("strace's log");
    let mut operations = FileOperations::new();
    for line in String::from_utf8_lossy(&log).lines() {
        if let Some((operation, path)) = parse_strace(line) {
            count(&mut operations, operation, &path);
        }
    }
    operations
}

const SYSCALLS: [(&str, &str); 20] = [
    ("stat", "stat"),
    ("lstat", "stat"),
    ("fstat", "stat"),
    ("newfstatat", "stat"),
    ("statx", "stat"),
    ("open", "open"),
    ("openat", "open"),
    ("openat2", "open"),
    ("creat", "open"),
    ("read", "read"),
    ("pread64", "read"),
    ("readv", "read"),
    ("preadv", "read"),
    ("readlink", "readlink"),
    ("readlinkat", "readlink"),
    ("close", "close"),
    ("access", "access"),
    ("faccessat", "access"),
    ("faccessat2", "access"),
    ("preadv2", "read"),
];

/// Operation and path of one line: `PID  openat(AT_FDCWD</folder>, "name", …`, also of a call that is finished on a later line.
fn parse_strace(line: &str) -> Option<(&'static str, String)> {
    let (_, call) = line.split_once(char::is_whitespace)?;
    let (name, arguments) = call.trim_start().split_once('(')?;
    let operation = SYSCALLS.iter().find(|&&(n, _)| n == name)?.1;
    // `3</path>`: a descriptor, or the folder that a relative path begins in.
    let behind = arguments
        .split_once('<')
        .filter(|(before, _)| {
            !before.is_empty() && before.chars().all(|c| c.is_alphanumeric() || c == '_')
        })
        .and_then(|(_, rest)| rest.split_once('>'))
        .map(|(path, _)| path);
    let given = arguments
        .split_once('"')
        .filter(|_| name != "read" && name != "pread64")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(path, _)| path);
    let path = match (behind, given) {
        (Some(folder), Some("")) => folder.to_owned(),
        (Some(folder), Some(path)) if !path.starts_with('/') => format!("{folder}/{path}"),
        (_, Some(path)) => path.to_owned(),
        (Some(path), None) => path.to_owned(),
        (None, None) => String::new(),
    };
    Some((operation, path))
}

#[test]
fn lines_of_strace_are_understood() {
    let of = |line| parse_strace(line).map(|(operation, path)| format!("{operation} {path}"));
    for (line, expected) in [
        (
            r#"12 openat(AT_FDCWD</a>, "b.js", O_RDONLY) = 3</a/b.js>"#,
            "open /a/b.js",
        ),
        (
            r#"12 openat(AT_FDCWD</a>, "/c/b.js", O_RDONLY|O_CLOEXEC <unfinished ...>"#,
            "open /c/b.js",
        ),
        (
            r#"12  statx(17</a/b.js>, "", AT_STATX_SYNC_AS_STAT|AT_EMPTY_PATH, STATX_ALL, {…}) = 0"#,
            "stat /a/b.js",
        ),
        (
            r#"12 read(17</a/b.js>, "x\"<y>\"", 8192) = 5"#,
            "read /a/b.js",
        ),
        (r#"12 close(9<socket:[77]>) = 0"#, "close socket:[77]"),
        (r#"12 close(9) = -1 EBADF"#, "close "),
        (
            r#"12 readlink("/proc/self/exe", "/n", 9) = 2"#,
            "readlink /proc/self/exe",
        ),
    ] {
        assert_eq!(of(line).as_deref(), Some(expected), "{line}");
    }
    assert_eq!(of("12 <... read resumed>\"\", 8) = 0"), None);
    assert_eq!(of("12 +++ exited with 0 +++"), None);
}
