//! A nodeprofd of a test's own.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use nodeprof_profile::{
    Recording,
    store::database::{Filter, Reader},
};
use tempfile::TempDir;

use crate::support::{NODEPROF, Node, folder, plain};

/// A service that records what starts in one folder only, so that tests leave others on this machine alone.
pub struct Service {
    /// nodeprofd.
    pub child: Child,
    /// Of its log.
    pub lines: Receiver<String>,
    /// Its files, and `work`, where starts are recorded.
    pub folder: TempDir,
    /// Its own, besides what it inherits.
    pub environment: Vec<(String, String)>,
}

impl Service {
    /// One that knows this node binary.
    pub fn knowing(node: &Node, settings: &str) -> Service {
        Service::start(&format!("nodes = [{:?}]\n{settings}", node.path))
    }

    pub fn start(settings: &str) -> Service {
        Service::start_with(settings, |_| Vec::new())
    }

    /// With variables that may name files of its folder.
    pub fn start_with(
        settings: &str,
        environment: impl Fn(&Path) -> Vec<(String, String)>,
    ) -> Service {
        let folder = folder();
        fs::create_dir(folder.path().join("work")).unwrap();
        let mut service = Service {
            child: Command::new("true").spawn().unwrap(),
            lines: channel().1,
            environment: environment(folder.path()),
            folder,
        };
        service.child.wait().unwrap();
        service.configure(settings);
        service.begin();
        service
    }

    /// `{top}` in the settings is its folder.
    pub fn configure(&self, settings: &str) {
        let top = self.folder.path().display().to_string();
        let settings = settings.replace("{top}", &top);
        // Unoptimised, on a machine that does other things.
        let ceiling = match settings.contains("ceiling") {
            true => "",
            false => "ceiling = { cpu-percent = 0, events = 0 }\n",
        };
        let config = format!(
            "mode = 'off'\ncache = '{top}/cache'\n{ceiling}{settings}\n[store]\ndirectory = '{top}/starts'\n\
             [access]\nsocket = '{top}/control.sock'\ngroup = 'nogroup'\n\
             [[rule]]\nmode = 'count'\ndirectory = '{top}/work'\n"
        );
        fs::write(self.folder.path().join("c.toml"), config).unwrap();
    }

    /// Starts it, and waits until it is ready.
    pub fn begin(&mut self) {
        let mut command = Command::new(program());
        command
            .args(["-c", "c.toml"])
            .current_dir(self.folder.path());
        self.begin_by(command);
    }

    /// The same where it may write to nothing but its folder, as under systemd.
    pub fn begin_in_sandbox(&mut self) {
        // The last folder that SQLite would try is the one it is in.
        const SCRIPT: &str = r#"
            set -e
            mount --make-rprivate /
            for folder in / /tmp /var/tmp "${TMPDIR:-/tmp}"; do
                mount --bind "$folder" "$folder"
                mount -o remount,bind,ro "$folder"
            done
            mount --bind "$1" "$1"
            mount -o remount,bind,rw "$1"
            cd /
            exec "$0" -c "$1/c.toml"
        "#;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", SCRIPT])
            .arg(program())
            .arg(self.folder.path());
        self.begin_by(command);
    }

    fn begin_by(&mut self, mut command: Command) {
        let mut child = command
            .env("NO_COLOR", "1")
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        self.child = child;
        self.lines = lines;
        let config = fs::read_to_string(self.folder.path().join("c.toml")).unwrap();
        self.says(match config.contains("hold = false") {
            true => "starts cannot be held",
            false => "every start of node is held",
        });
    }

    /// Waits for a line of its log.
    pub fn says(&self, what: &str) -> String {
        let mut before = Vec::new();
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(what) => return line,
                Ok(line) => before.push(line),
                Err(_) => panic!("no line with {what:?} in {before:#?}"),
            }
        }
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Ends it, and waits for its end.
    pub fn end(&mut self) {
        self.signal(libc::SIGTERM);
        assert!(self.child.wait().unwrap().success());
    }

    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Node with these arguments, in the folder whose starts are recorded.
    pub fn node(&self, node: &Node, arguments: &[&str]) -> Command {
        let mut command = Command::new(&node.path);
        plain(&mut command)
            .env("UV_USE_IO_URING", "0") // file operations on a ring are no system calls
            .args(arguments)
            .current_dir(self.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    /// Runs node with these arguments, to its good end.
    pub fn succeeds(&self, node: &Node, arguments: &[&str]) {
        assert!(self.node(node, arguments).status().unwrap().success());
    }

    /// What a trace of the same command records. With the same streams: what node makes of a pipe and a device differs.
    pub fn traced(&self, node: &Node, script: &str) -> Recording {
        let file = self.folder.path().join("t.nodeprof");
        let mut command = Command::new(NODEPROF);
        plain(&mut command)
            .env("UV_USE_IO_URING", "0")
            .args(["trace", "--quiet", "--force", "--mode", "count", "-o"])
            .arg(&file)
            .arg("--")
            .arg(&node.path)
            .arg(script)
            .current_dir(self.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success());
        Recording::load(file).unwrap()
    }

    /// All that was recorded so far.
    pub fn recordings(&self) -> Vec<Recording> {
        let reader = Reader::open(&self.folder.path().join("starts/starts.db")).unwrap();
        let runs = reader.find(&Filter::default()).unwrap();
        (runs.iter().rev())
            .map(|run| reader.load(&[run.id]).unwrap())
            .collect()
    }

    /// The holder process.
    pub fn holder(&self) -> u32 {
        self.process("nodeprof-holder")
    }

    /// Its process of this name.
    pub fn process(&self, name: &str) -> u32 {
        self.find_process(name).expect("it runs")
    }

    /// The same, if there is one.
    pub fn find_process(&self, name: &str) -> Option<u32> {
        let of = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.child.id()));
        let of = of.unwrap();
        let is = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
        };
        of.split_whitespace().find(is)?.parse().ok()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// nodeprofd's file.
fn program() -> PathBuf {
    let program = Path::new(NODEPROF).with_file_name("nodeprofd");
    assert!(
        program.is_file(),
        "no {}; type: cargo build -p nodeprofd",
        program.display()
    );
    program
}
