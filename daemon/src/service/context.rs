//! What the system tells of a process besides its events: folder, user, control group, container, and the few variables of
//! its environment that may be read.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
};

use nodeprof_bpf::stat_field;
use serde::{Deserialize, Serialize};

use super::{
    admission::Known,
    config::{Labels, Start},
};

/// Bytes of a command line that are kept. The kernel lets it be some megabytes.
const LONGEST_COMMAND: usize = 64 << 10;

/// Arguments that are told apart: more have no room in what is kept. One that is all but empty takes tens of bytes in memory, and a process may say that it has three million.
const MOST_ARGUMENTS: usize = LONGEST_COMMAND;

/// Bytes of arguments and environment that are read of a process: the kernel lets an exec have three quarters of 8 MiB (`bprm_stack_limits` of fs/exec.c),
/// but a process may say afterwards that its own are gigabytes (`PR_SET_MM_MAP` of prctl(2)).
const LONGEST_STRINGS: u64 = 6 << 20;

/// Of one start.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Context {
    pub(super) pid: u32,
    pub(super) directory: PathBuf,
    user: Option<u32>,
    cgroup: Option<String>,
    parent: Option<u32>,
    /// When its exec was held the rules may have wanted it in full mode, and nobody recorded in that.
    #[serde(default)]
    pub(super) lacks_full: bool,
    /// It is one in so many of those that the rules want, which were asked with its command before its exec.
    #[serde(default)]
    pub(super) one_in: Option<u32>,
    /// What it executes, where the process itself cannot be asked any more.
    #[serde(skip)]
    pub(super) executable: PathBuf,
    /// Arguments, as the kernel side or the process itself tells them.
    #[serde(skip)]
    pub(super) command: Vec<Vec<u8>>,
    #[serde(skip)]
    of_environment: Vec<(String, String)>,
}

impl Context {
    /// Of a process that is about to execute, or has just done so: what stays as it is through an exec. To be asked by who let it go: a short
    /// program has ended before the service comes to it.
    pub(super) fn of(pid: u32) -> Context {
        Context {
            pid,
            directory: fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default(),
            user: user(pid),
            cgroup: cgroup(pid),
            parent: parent(pid),
            ..Context::default()
        }
    }

    /// What was known before its exec: of one that has ended meanwhile nothing else is.
    pub(super) fn complete(&mut self, known: Known) {
        if let Some(directory) = known.start.directory {
            self.directory = directory;
        }
        self.user = self.user.or(known.start.user);
        self.cgroup = known.start.cgroup.or(self.cgroup.take());
        self.lacks_full = known.lacks_full;
        self.one_in = known.one_in;
    }

    /// For who is another process.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // A folder whose name is no text cannot be told, nor one that is very long: then the process is asked again.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What [`Context::to_bytes`] made, as far as it was told.
    pub(super) fn from_bytes(pid: u32, bytes: &[u8]) -> Context {
        let told = serde_json::from_slice(bytes).ok();
        told.filter(|told: &Context| told.pid == pid)
            .unwrap_or_else(|| Context::of(pid))
    }

    /// The user that it runs as, if known.
    pub(super) fn owner(&self) -> Option<u32> {
        self.user
    }

    /// Whether another user's program runs as this one, as far as that is known.
    pub(super) fn is_of_another(&self, user: Option<u32>) -> bool {
        self.user.zip(user).is_some_and(|(own, user)| own != user)
    }

    /// The kernel side has told as whom it runs since its exec: who asked before may have been told of the user before.
    pub(super) fn take_user(&mut self, user: u32) {
        self.user = Some(user);
    }

    /// Of what it executes now.
    ///
    /// # Errors
    /// It has ended: such a process has no environment any more.
    pub(super) fn read_program(&mut self, pid: u32, labels: &Labels) -> io::Result<()> {
        let environment = read_strings(pid, "environ")?;
        let line = read_strings(pid, "cmdline")?;
        if environment.is_empty() && line.is_empty() {
            return Err(io::Error::other("it had ended"));
        }
        self.of_environment = labels.of(&environment);
        if self.command.is_empty() {
            self.command = arguments(&line);
        }
        Ok(())
    }

    /// The arguments of its exec, as the kernel side has told them; the process is asked for what is missing of long ones, in whose place there is one more.
    pub(super) fn take_command(&mut self, told: Vec<Vec<u8>>, is_whole: bool) {
        let line = match is_whole {
            true => Vec::new(),
            false => read_strings(self.pid, "cmdline").unwrap_or_default(),
        };
        let read = arguments(&line);
        // It may have given itself a title, or execute something else by now.
        let known = told.split_last().map_or(&[][..], |(_, known)| known);
        self.command = match line.is_empty() || !read.starts_with(known) {
            true => told,
            false => read,
        };
    }

    /// Its command as it is kept: not more than so many bytes, and no part of an argument.
    pub(super) fn kept_command(&self) -> Vec<Vec<u8>> {
        let mut bytes = 0;
        let fits = |argument: &&Vec<u8>| {
            bytes += argument.len() + 1;
            bytes <= LONGEST_COMMAND
        };
        let mut kept: Vec<Vec<u8>> = self.command.iter().take_while(fits).cloned().collect();
        if kept.len() < self.command.len() {
            kept.push("…".into());
        }
        kept
    }

    /// The environment, as the kernel side has told it.
    pub(super) fn take_environment(&mut self, environment: &[u8], labels: &Labels) {
        self.of_environment = labels.of(environment);
    }

    /// For the rules.
    pub(super) fn start(&self) -> Start {
        let executable = fs::read_link(format!("/proc/{}/exe", self.pid));
        Start {
            executable: executable.unwrap_or_else(|_| self.executable.clone()),
            user: self.user,
            cgroup: self.cgroup.clone(),
            directory: Some(self.directory.clone()),
            // None of a process that had ended before anybody asked it: then it may be any.
            command: (!self.command.is_empty())
                .then(|| String::from_utf8_lossy(&self.command.join(&b' ')).into_owned()),
        }
    }

    /// As labels of a run.
    pub(super) fn labels(&self) -> Vec<(String, String)> {
        let mut labels = self.of_environment.clone();
        let mut add = |key: &str, value: Option<String>| {
            labels.extend(value.map(|value| (key.to_owned(), value)));
        };
        add("user", self.user.map(|uid| uid.to_string()));
        add("parent", self.parent.map(|pid| pid.to_string()));
        add("cgroup", self.cgroup.clone());
        let cgroup = self.cgroup.as_deref().unwrap_or_default();
        add("unit", unit(cgroup).map(str::to_owned));
        add("container", container(cgroup).map(str::to_owned));
        labels
    }
}

/// Arguments or environment of a process.
fn read_strings(pid: u32, name: &str) -> io::Result<Vec<u8>> {
    let mut strings = Vec::new();
    File::open(format!("/proc/{pid}/{name}"))?
        .take(LONGEST_STRINGS)
        .read_to_end(&mut strings)?;
    Ok(strings)
}

/// Of more than [`MOST_ARGUMENTS`] the others are one, in which they are apart by a space, as they are for the rules.
fn arguments(line: &[u8]) -> Vec<Vec<u8>> {
    let line = line.strip_suffix(b"\0").unwrap_or(line);
    let parts = line.splitn(MOST_ARGUMENTS + 1, |b| *b == 0);
    let mut arguments: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
    if let Some(others) = arguments.get_mut(MOST_ARGUMENTS) {
        others
            .iter_mut()
            .filter(|b| **b == 0)
            .for_each(|b| *b = b' ');
    }
    arguments
}

/// User that a process runs as; `None` if it has ended.
pub(super) fn user(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid())
}

/// Control group of a process.
pub(super) fn cgroup(pid: u32) -> Option<String> {
    cgroup_of(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// Where there are groups of both versions: the one that systemd keeps. That of version 2 may be of the program that made the containers, whose own are then
/// of version 1.
fn cgroup_of(text: &str) -> Option<String> {
    let of = |controllers: &str| {
        text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            (fields.next()? == controllers).then(|| fields.next().map(str::to_owned))?
        })
    };
    let real = |group: &String| group != "/";
    { of("name=systemd").filter(real) }
        .or_else(|| of("").filter(real))
        .or_else(|| of("name=systemd"))
        .or_else(|| of(""))
}

fn parent(pid: u32) -> Option<u32> {
    const FIELD: usize = 4;
    stat_field(pid, FIELD)?.parse().ok()
}

/// The innermost unit of systemd in the path of a control group.
fn unit(cgroup: &str) -> Option<&str> {
    cgroup
        .rsplit('/')
        .find(|part| part.ends_with(".service") || part.ends_with(".scope"))
}

/// The id of the innermost container: 64 hexadecimal digits somewhere in the path of a control group, as docker, podman, containerd and
/// Kubernetes name them.
fn container(cgroup: &str) -> Option<&str> {
    const DIGITS: usize = 64;
    cgroup
        .rsplit(|c: char| !c.is_ascii_hexdigit())
        .find(|part| part.len() == DIGITS)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn the_group_and_container_of_a_process_are_the_innermost() {
        let (one, two) = ("1f".repeat(32), "2e".repeat(32));
        let hybrid = format!(
            "12:pids:/docker/{one}\n1:name=systemd:/docker/{one}\n0::/system.slice/containerd.service\n"
        );
        assert_eq!(cgroup_of(&hybrid), Some(format!("/docker/{one}")));
        let of_user = "1:name=systemd:/user.slice/a.scope\n0::/user.slice/a.scope\n";
        assert_eq!(cgroup_of(of_user).as_deref(), Some("/user.slice/a.scope"));
        assert_eq!(
            cgroup_of("0::/a.slice/b.service\n").as_deref(),
            Some("/a.slice/b.service")
        );
        assert_eq!(
            cgroup_of("1:name=systemd:/\n0::/a\n").as_deref(),
            Some("/a")
        );
        assert_eq!(cgroup_of("0::/\n").as_deref(), Some("/"));
        let nested = format!("/docker/{one}/kubelet.slice/cri-containerd-{two}.scope");
        assert_eq!(container(&nested), Some(two.as_str()));
    }

    #[test]
    fn of_a_long_command_the_process_is_asked_if_it_is_still_that() {
        let mut child = std::process::Command::new("sleep")
            .args(["100", "0", "0.0"])
            .spawn()
            .unwrap();
        let mut context = Context::of(child.id());
        // Who started it goes on a little sooner than that its arguments can be read.
        let line = format!("/proc/{}/cmdline", child.id());
        while fs::read(&line).unwrap().is_empty() {
            std::thread::yield_now();
        }
        let words =
            |words: &[&str]| -> Vec<Vec<u8>> { words.iter().map(|w| (*w).into()).collect() };
        let whole = words(&["sleep", "100", "0", "0.0"]);
        for told in [&["sleep", "100", "…"][..], &["…"]] {
            context.take_command(words(told), false);
            assert_eq!(context.command, whole);
        }
        let other = words(&["node", "a.js", "…"]);
        context.take_command(other.clone(), false);
        assert_eq!(context.command, other);
        child.kill().unwrap();
        child.wait().unwrap();
        context.take_command(words(&["sleep", "…"]), false);
        assert_eq!(context.command, words(&["sleep", "…"]));
    }

    #[test]
    fn who_has_ended_before_anybody_asks_is_what_it_was_when_it_was_admitted() {
        let mut short = std::process::Command::new("true").spawn().unwrap();
        let pid = short.id();
        short.wait().unwrap();
        let mut context = Context::of(pid);
        assert_eq!(context.start().directory, Some(PathBuf::new()));
        let start = Start {
            directory: Some("/srv".into()),
            user: Some(12),
            cgroup: Some("/ci".into()),
            ..Start::default()
        };
        context.complete(Known {
            start,
            lacks_full: true,
            one_in: Some(20),
        });
        let told = Context::from_bytes(pid, &context.to_bytes());
        assert_eq!((told.lacks_full, told.one_in), (true, Some(20)));
        let start = told.start();
        assert_eq!(start.directory, Some("/srv".into()));
        assert_eq!((start.user, start.cgroup), (Some(12), Some("/ci".into())));
    }

    #[test]
    fn of_a_command_whole_arguments_are_kept() {
        let mut context = Context {
            command: vec![vec![b'x'; LONGEST_COMMAND / 2 - 1]; 2],
            ..Context::default()
        };
        assert_eq!(context.kept_command(), context.command);
        context.command.push(b"y".to_vec());
        let kept = context.kept_command();
        assert_eq!(kept[..2], context.command[..2]);
        assert_eq!(kept[2..], [Vec::from("…")]);
    }

    #[test]
    fn so_many_arguments_are_told_apart_and_the_rules_see_all() {
        let line = "x\0".repeat(4 * MOST_ARGUMENTS);
        let mut context = Context {
            command: arguments(line.as_bytes()),
            ..Context::default()
        };
        assert_eq!(context.command.len(), MOST_ARGUMENTS + 1);
        let whole = line.replace('\0', " ");
        assert_eq!(context.start().command.as_deref(), Some(whole.trim_end()));
        let kept = context.kept_command();
        assert_eq!(kept.len(), LONGEST_COMMAND / 2 + 1);
        // Empty ones, as many as are told apart.
        context.command = arguments(&[0; 2 * MOST_ARGUMENTS]);
        let kept = context.kept_command();
        assert_eq!(kept.len(), MOST_ARGUMENTS + 1);
        assert_eq!(kept.last(), Some(&Vec::from("…")));
    }

    #[test]
    fn units_and_containers_are_read_from_the_control_group() {
        let id = "3f".repeat(32);
        let docker = format!("/system.slice/docker-{id}.scope");
        assert_eq!(container(&docker), Some(id.as_str()));
        assert_eq!(unit(&docker), Some(format!("docker-{id}.scope").as_str()));
        let kubernetes = format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope");
        assert_eq!(container(&kubernetes), Some(id.as_str()));
        let plain = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-u12.service";
        assert_eq!(unit(plain), Some("run-u12.service"));
        assert_eq!(container(plain), None);
        assert_eq!((unit("/"), container("/")), (None, None));
    }

    #[test]
    fn what_one_process_knows_another_one_reads() {
        let own = Context::of(std::process::id());
        assert_eq!(Context::from_bytes(own.pid, &own.to_bytes()), own);
        // Of another process, or nothing: asked again.
        for bytes in [Context::of(1).to_bytes(), Vec::new(), b"{}".to_vec()] {
            assert_eq!(Context::from_bytes(own.pid, &bytes), own);
        }
    }

    #[test]
    fn this_process_has_a_user_and_a_parent() {
        let pid = std::process::id();
        let context = Context::of(pid);
        assert_eq!(context.parent, Some(std::os::unix::process::parent_id()));
        assert_eq!(Some(context.directory), std::env::current_dir().ok());
        assert!(user(pid).is_some());
    }
}
