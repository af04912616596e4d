//! What the holder of a service keeps: whose probes are up, and the tracepoints of the syscalls only while there are some.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{Admission, Met, aside, images::Use, is_dropping, worker::FileId};
use crate::{Link, Programs, copies::let_copies_go};

/// The tracepoints of the syscalls stay this long when nobody is recorded any more: a build starts one node after another.
const LINGER: Duration = Duration::from_secs(1);
/// How long a refusal is remembered: until the kernel has told of the exec, too.
const MEMORY: Duration = Duration::from_secs(5);

pub(super) struct Host {
    admission: Admission,
    /// Whether syscalls are to be recorded.
    syscalls: bool,
    /// Their tracepoints, while they are up.
    tracing: Vec<libbpf_rs::Link>,
    /// Why they could not be put up when they were last wanted.
    no_tracing: Option<String>,
    /// Whether the service knows of that, or that they are up again.
    is_tracing_told: bool,
    /// Processes that are recorded.
    recorded: HashMap<u32, Recorded>,
    /// Processes that are not to be recorded, since when.
    refused: HashMap<u32, Instant>,
    /// Inodes of the node binaries that had probes, or are known from before.
    binaries: HashSet<u64>,
    /// When the last process was released.
    idle_since: Instant,
}

/// What a process has that is recorded.
#[derive(Default)]
struct Recorded {
    /// Its probes, once they are up.
    link: Option<Link>,
    /// Of all binaries that it has executed: its recording names by their index what it saw of each. Dropped after the probes, whose records carry
    /// the index.
    images: Vec<Use>,
}

impl Recorded {
    fn detach(self, pid: u32) {
        if let Some(link) = self.link {
            let _ = let_copies_go(pid);
            link.detach();
        }
        drop(self.images);
    }
}

impl Host {
    /// With the binaries that are known: another holder may have ended while one of them was executed.
    pub(super) fn new(admission: Admission, syscalls: bool, known: &[(File, PathBuf)]) -> Host {
        let inodes = known.iter();
        let inodes = inodes.filter_map(|(file, _)| Some(file.metadata().ok()?.ino()));
        Host {
            admission,
            syscalls,
            tracing: Vec::new(),
            no_tracing: None,
            is_tracing_told: true,
            recorded: HashMap::new(),
            refused: HashMap::new(),
            binaries: inodes.collect(),
            idle_since: Instant::now(),
        }
    }

    /// Asks the policy, and makes ready if it agrees.
    pub(super) fn admits(
        &mut self,
        pid: u32,
        program: &Path,
        met: Met,
        programs: &Programs,
    ) -> bool {
        if !(self.admission)(pid, program, met) {
            return false;
        }
        if self.syscalls && self.tracing.is_empty() {
            self.take_tracing(programs.syscall_links().map_err(|e| e.to_string()));
        }
        self.recorded.entry(pid).or_default();
        true
    }

    /// Without them files are not counted; the rest is.
    fn take_tracing(&mut self, links: Result<Vec<libbpf_rs::Link>, String>) {
        let refused = links.as_ref().err().cloned();
        self.is_tracing_told &= self.no_tracing == refused;
        self.no_tracing = refused;
        self.tracing = links.unwrap_or_default();
    }

    /// Why system calls are not traced, or that they are again, if the service does not know: to be told before the probes of who was admitted then are.
    pub(super) fn untold_tracing(&mut self) -> Option<Result<(), String>> {
        let is_told = std::mem::replace(&mut self.is_tracing_told, true);
        (!is_told).then(|| self.no_tracing.clone().map_or(Ok(()), Err))
    }

    /// The exec of a process that was held is not to be recorded. (Of one that the kernel has told of nothing more will be told.)
    pub(super) fn refuse(&mut self, pid: u32) {
        self.refused.insert(pid, Instant::now());
    }

    /// Whether it was asked about this process a moment ago.
    pub(super) fn is_decided(&mut self, pid: u32) -> bool {
        self.recorded.contains_key(&pid) || self.refused.remove(&pid).is_some()
    }

    /// Keeps the probes of a process, which executes this binary.
    pub(super) fn keep(
        &mut self,
        pid: u32,
        binary: Option<FileId>,
        link: Option<Link>,
        image: Option<Use>,
    ) {
        self.binaries.extend(binary.map(|(_, inode)| inode));
        let recorded = self.recorded.entry(pid).or_default();
        recorded.images.extend(image);
        let before = std::mem::replace(&mut recorded.link, link);
        if let Some(before) = before {
            // Of the binary that it executed before: taking probes away may take a while, and others wait for this thread.
            aside(move || before.detach());
        }
    }

    /// Whether it is a node binary that had probes before, or is known from before.
    pub(super) fn knows(&self, inode: u64) -> bool {
        self.binaries.contains(&inode)
    }

    /// Follows a process no longer, and takes its probes away, for which nobody waits.
    pub(super) fn release(&mut self, pid: u32, programs: &Programs) {
        // Also one that only the holder before this one knows: its probes went with that.
        programs.unfollow(pid);
        let Some(recorded) = self.recorded.remove(&pid) else {
            return;
        };
        if recorded.link.is_some() {
            aside(move || recorded.detach(pid));
        }
        self.idle_since = Instant::now();
    }

    /// Whether no other process is recorded that is still there, and nobody's probes are being taken away.
    pub(super) fn is_calm(&self, pid: u32) -> bool {
        let is_there = |pid: u32| {
            // SAFETY: takes integers; signal 0 is none.
            let answer = unsafe { libc::kill(pid as libc::pid_t, 0) };
            answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
        };
        let mut others = self.recorded.keys().filter(|other| **other != pid);
        !is_dropping() && !others.any(|other| is_there(*other))
    }

    /// Whether there is something to be done by and by.
    pub(super) fn is_busy(&self) -> bool {
        !self.recorded.is_empty() || !self.tracing.is_empty() || !self.refused.is_empty()
    }

    /// Takes down what nobody needs any more.
    pub(super) fn rest(&mut self) {
        if self.recorded.is_empty()
            && !self.tracing.is_empty()
            && self.idle_since.elapsed() > LINGER
        {
            // It may wait for a grace period.
            let tracing = std::mem::take(&mut self.tracing);
            aside(move || drop(tracing));
        }
        self.refused.retain(|_, since| since.elapsed() < MEMORY);
    }

    /// The probes of all, ready to be taken away.
    pub(super) fn into_links(self) -> impl Iterator<Item = Link> {
        let links = self.recorded.into_iter();
        links.filter_map(|(pid, recorded)| {
            let _ = let_copies_go(pid);
            recorded.link
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::{Options, hold::is_followed};

    #[test]
    #[ignore = "needs root"]
    fn who_was_followed_for_another_holder_is_no_longer_when_he_is_released() {
        let programs = Programs::load(&Options {
            count_only: true,
            stacks: false,
            host: true,
            ring_bytes: 1 << 20,
            ..Options::default()
        })
        .unwrap();
        let mut server = Command::new("sleep").arg("100").spawn().unwrap();
        programs.follow(server.id()).unwrap();
        let mut host = Host::new(Box::new(|_, _, _| true), false, &[]);
        assert!(is_followed(programs.threads(), server.id()));
        host.release(server.id(), &programs);
        let still = is_followed(programs.threads(), server.id());
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(!still);
    }

    #[test]
    fn that_system_calls_are_not_traced_is_told_once() {
        let mut host = Host::new(Box::new(|_, _, _| true), true, &[]);
        assert_eq!(host.untold_tracing(), None);
        host.take_tracing(Ok(Vec::new()));
        assert_eq!(host.untold_tracing(), None);
        for _ in 0..2 {
            host.take_tracing(Err("no memory".into()));
        }
        assert_eq!(host.untold_tracing(), Some(Err("no memory".into())));
        host.take_tracing(Err("no memory".into()));
        assert_eq!(host.untold_tracing(), None);
        host.take_tracing(Ok(Vec::new()));
        assert_eq!(host.untold_tracing(), Some(Ok(())));
        assert_eq!(host.untold_tracing(), None);
    }

    #[test]
    fn it_is_calm_when_nobody_else_who_is_recorded_is_there() {
        let mut host = Host::new(Box::new(|_, _, _| true), false, &[]);
        let mut other = Command::new("sleep").arg("100").spawn().unwrap();
        host.keep(std::process::id(), None, None, None);
        // Another test may be taking probes away.
        let is_calm = |host: &Host| {
            let begun = Instant::now();
            while is_dropping() && begun.elapsed() < MEMORY {
                std::thread::sleep(Duration::from_millis(1));
            }
            host.is_calm(std::process::id())
        };
        assert!(is_calm(&host));
        host.keep(other.id(), None, None, None);
        assert!(!is_calm(&host));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(is_calm(&host));
    }
}
