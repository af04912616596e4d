//! Who is recorded. Asked by the holder while an exec waits.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use nodeprof_probes::is_node_binary;
use nodeprof_profile::random::Random;

use crate::recorder::Mode;

use super::{
    ceiling::Shared,
    config::{Config, Rules, Start},
    context::{cgroup, user},
    gate::Gate,
};

/// The rules of a configuration, and the dice for those that take one start in many.
pub(super) struct Admission {
    rules: Rules,
    mode: Mode,
    dice: Random,
    gate: Gate,
    /// Of the rules.
    edition: u32,
    ceiling: Arc<Shared>,
}

impl Admission {
    /// `mode`: of who asks.
    pub(super) fn new(config: &Config, mode: Mode, gate: &Gate, ceiling: Arc<Shared>) -> Admission {
        Admission {
            rules: config.rules.clone(),
            mode,
            ceiling,
            dice: Random::new(super::now()),
            gate: gate.clone(),
            edition: gate.edition(),
        }
    }

    /// Takes over the rules that the service has now.
    fn renew(&mut self) {
        if let Some((edition, text)) = self.gate.posted(self.edition) {
            self.edition = edition;
            if let Ok(rules) = Rules::parse(&text) {
                self.rules = rules;
            }
        }
    }

    /// Whether a process that executes this program is recorded.
    pub(super) fn admits(&mut self, pid: u32, program: &Path) -> bool {
        if self.gate.is_closed() {
            return false;
        }
        self.renew();
        let directory = self
            .rules
            .ask_directory()
            .then(|| fs::read_link(format!("/proc/{pid}/cwd")));
        let start = Start {
            executable: program.to_owned(),
            user: if self.rules.ask_user() {
                user(pid)
            } else {
                None
            },
            cgroup: self.rules.ask_cgroup().then(|| cgroup(pid)).flatten(),
            directory: directory.and_then(Result::ok),
            command: None,
        };
        if !self.takes_one_in(self.rules.one_in(&start, self.mode)) {
            return false;
        }
        let admitted = self.takes_one_in(self.ceiling.one_in());
        if !admitted {
            self.ceiling.pass_over();
        }
        admitted
    }

    fn takes_one_in(&mut self, n: u32) -> bool {
        match n {
            0 => false,
            1 => true,
            n => self.dice.below(n as usize) == 0,
        }
    }
}

/// Node binaries that run now: the next start of each is held.
pub(super) fn running_nodes() -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut seen = HashSet::new();
    processes
        .filter(|entry| {
            entry
                .file_name()
                .as_encoded_bytes()
                .iter()
                .all(u8::is_ascii_digit)
        })
        .map(|entry| entry.path().join("exe"))
        .filter(|exe| {
            // A link that leads into other mount namespaces, too.
            let file = fs::metadata(exe).map(|m| (m.dev(), m.ino()));
            file.is_ok_and(|file| seen.insert(file)) && is_node_binary(exe)
        })
        .collect()
}
