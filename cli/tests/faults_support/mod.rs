//! Running nodeprof and node side by side, with a limit in time; what is left behind afterwards.
#![allow(dead_code)]

use std::{
    env,
    ffi::OsStr,
    fs,
    io::Read,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nodeprof_profile::Recording;

#[path = "../../../probes/tests/common/mod.rs"]
mod builds;
#[path = "../support/copy_program.rs"]
pub mod copy_program;
#[path = "../support/undisturbed.rs"]
pub mod undisturbed;

/// One build of each line of Node.js.
pub const VERSIONS: [&str; 6] = [
    "16.20.0", "18.20.8", "20.20.2", "22.23.3", "24.21.0", "26.10.0",
];

/// Nothing here takes this long, unless it hangs.
pub const LIMIT: Duration = Duration::from_secs(60);

/// An official build, or a line that says that it is not here.
pub fn build(version: &str) -> Option<PathBuf> {
    builds::node_build(version)
}

/// A folder that goes with its owner; everybody may write to it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "nodeprof-faults-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        allow_all(&path, 0o777);
        Folder(path)
    }

    pub fn file(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn allow_all(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// What a command did.
#[derive(Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Outcome {
    /// Exit status as a shell and nodeprof have it.
    pub fn code(&self) -> i32 {
        code(self.status)
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

pub fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// A node program's command, without what changes its start from outside.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("NODE_EXTRA_CA_CERTS")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("NODE_OPTIONS")
        .env_remove("SUDO_UID")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
}

pub fn nodeprof() -> Command {
    command(env!("CARGO_BIN_EXE_nodeprof"))
}

/// `nodeprof trace --quiet -o OUTPUT`: standard error is the program's alone.
pub fn trace(output: &Path) -> Command {
    let mut command = nodeprof();
    command.args(["trace", "--quiet", "-f", "-o"]).arg(output);
    command
}

/// Runs it to its end; a command that hangs is killed, and the test fails.
pub fn run(command: &mut Command) -> Outcome {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let read = move |from: &mut dyn Read| {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    };
    let out = thread::spawn(move || read(&mut stdout));
    let err = thread::spawn(move || read(&mut stderr));
    let status = wait(&mut child).unwrap_or_else(|| panic!("it hangs: {command:?}"));
    let outcome = Outcome {
        status,
        stdout: out.join().unwrap(),
        stderr: err.join().unwrap(),
    };
    assert!(
        !outcome.stderr().contains("panicked"),
        "{command:?}\n{}",
        outcome.stderr()
    );
    outcome
}

/// Waits for it, but not for ever.
pub fn wait(child: &mut Child) -> Option<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(3));
    }
    let _ = child.kill();
    None
}

/// Waits until it holds; returns whether it came to hold.
pub fn soon(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if begun.elapsed() > limit {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn load(path: &Path) -> Recording {
    Recording::load(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Sends a signal to a process that this test has started, directly or not.
pub fn signal(pid: u32, number: i32) {
    // SAFETY: takes two integers.
    unsafe { libc::kill(pid as i32, number) };
}

/// Children of a process, with their names.
pub fn children(of: u32) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((head, tail)) = stat.rsplit_once(')') else {
            continue;
        };
        if tail.split_whitespace().nth(1) == Some(&of.to_string()) {
            let name = head.split_once('(').map_or("", |(_, n)| n).to_string();
            found.push((pid, name));
        }
    }
    found
}

/// From now on, orphans of this process's descendants become its children.
pub fn adopt_orphans() {
    // SAFETY: takes integers.
    let outcome = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    assert_eq!(outcome, 0);
}

/// Waits for an adopted process.
pub fn reap(pid: u32, limit: Duration) -> Option<ExitStatus> {
    let mut status = 0;
    soon(limit, || {
        // SAFETY: a live integer.
        unsafe { libc::waitpid(pid as i32, &mut status, libc::WNOHANG) == pid as i32 }
    })
    .then(|| ExitStatus::from_raw(status))
}

/// Links of kind uprobe_multi: id and process. 0: the process is gone.
pub fn probe_links() -> Vec<(u32, u32)> {
    // Numbers and layouts of linux/bpf.h.
    const BPF_LINK_GET_FD_BY_ID: i64 = 30;
    const BPF_LINK_GET_NEXT_ID: i64 = 31;
    const BPF_OBJ_GET_INFO_BY_FD: i64 = 15;
    const BPF_LINK_TYPE_UPROBE_MULTI: u32 = 12;
    let bpf = |what: i64, attributes: &mut [u32; 32]| {
        // SAFETY: 128 bytes of attributes; pointers in them are to live buffers.
        unsafe { libc::syscall(libc::SYS_bpf, what, attributes.as_mut_ptr(), 128) }
    };
    let mut links = Vec::new();
    let mut id = 0;
    loop {
        let mut next = [0u32; 32];
        next[0] = id;
        if bpf(BPF_LINK_GET_NEXT_ID, &mut next) < 0 {
            return links;
        }
        id = next[1];
        let mut get = [0u32; 32];
        get[0] = id;
        let fd = bpf(BPF_LINK_GET_FD_BY_ID, &mut get);
        if fd < 0 {
            continue; // gone in the meantime
        }
        let mut info = [0u32; 64];
        let address = info.as_mut_ptr() as u64;
        let mut ask = [0u32; 32];
        ask[0] = fd as u32;
        ask[1] = size_of_val(&info) as u32;
        ask[2] = address as u32;
        ask[3] = (address >> 32) as u32;
        if bpf(BPF_OBJ_GET_INFO_BY_FD, &mut ask) >= 0 && info[0] == BPF_LINK_TYPE_UPROBE_MULTI {
            // type, id, prog_id, padding; path, offsets, ref_ctr_offsets, cookies (u64); path_size, count, flags, pid
            links.push((id, info[15]));
        }
        // SAFETY: our own descriptor.
        unsafe { libc::close(fd as i32) };
    }
}

/// Ids of the links that living processes hold.
fn held_links() -> Vec<u32> {
    let mut ids = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        for file in fs::read_dir(process.path().join("fdinfo"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            let line = text.lines().find_map(|l| l.strip_prefix("link_id:"));
            ids.extend(line.and_then(|l| l.trim().parse::<u32>().ok()));
        }
    }
    ids
}

/// Waits until no probe is left of what was begun after `before`: of the processes `pids`, or of ended ones. All
/// our own processes must have ended: what another process holds belongs to the trace of a stranger.
pub fn no_probe_of(pids: &[u32], before: &[(u32, u32)]) -> Result<(), String> {
    let mut left = Vec::new();
    let gone = soon(Duration::from_secs(2), || {
        left = probe_links();
        left.retain(|l| !before.contains(l) && (l.1 == 0 || pids.contains(&l.1)));
        if !left.is_empty() {
            let held = held_links();
            left.retain(|l| !held.contains(&l.0));
        }
        left.is_empty()
    });
    gone.then_some(())
        .ok_or_else(|| format!("links (id, pid) left behind: {left:?}"))
}
