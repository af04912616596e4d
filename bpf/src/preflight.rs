//! What this kernel and this user can do: asked, not guessed.

use std::{fs, io, io::Read as _, path::Path};

use nodeprof_probes::plan::{AttachPlan, Family};

use crate::{AttachPoints, Options, Programs, attach, attach::runs_in_all_threads};

/// How a check came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All that is needed.
    Ok,
    /// `trace` works, but something is missing: what to do.
    Limited(String),
    /// `trace` cannot work: what to do.
    Failed(String),
}

/// One line of `nodeprof doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// Whether it will do.
    pub outcome: Outcome,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check {
            name,
            found: found.into(),
            outcome: Outcome::Ok,
        }
    }

    fn failed(name: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Check {
        Check {
            name,
            found: found.into(),
            outcome: Outcome::Failed(todo.into()),
        }
    }

    fn limited(name: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Check {
        Check {
            name,
            found: found.into(),
            outcome: Outcome::Limited(todo.into()),
        }
    }
}

/// Whether this user may load programs into the kernel.
pub fn is_permitted() -> bool {
    capabilities().outcome == Outcome::Ok
}

/// What a trace by a service needs here: the rest is the service's.
pub fn checks_beside_a_service() -> Vec<Check> {
    let mut all = vec![architecture(), kernel()];
    all.extend(filters());
    all
}

/// Asks the kernel for everything that a trace needs. `plan`: of the node binary to try an attach on.
pub fn checks(plan: Option<&AttachPlan>) -> Vec<Check> {
    let mut all = vec![architecture(), kernel()];
    all.extend(filters());
    all.extend([type_information(), capabilities()]);
    let programs = Programs::load(&Options {
        ring_bytes: 4096,
        sample_hz: TRIED_HZ,
        waits: true,
        mappings: true,
        ..Options::default()
    });
    all.push(match &programs {
        Ok(_) => Check::ok("BPF programs", "load and pass the verifier"),
        Err(e) => Check::failed("BPF programs", "refused", e.to_string()),
    });
    if let Ok(programs) = &programs {
        all.push(match programs.attach_tree(true) {
            Ok(()) => Check::ok(
                "tracepoints",
                "fork, exec, exit and syscalls attach (BTF and raw tracepoints)",
            ),
            Err(e) => Check::failed("tracepoints", "refused", e.to_string()),
        });
        all.push(scheduler(programs));
        all.push(samples(programs));
        programs.detach_tree();
        all.push(uprobes(programs, plan));
    }
    all.push(hold());
    all.push(tracefs());
    all.push(kernel_names());
    all
}

fn architecture() -> Check {
    match std::env::consts::ARCH {
        "x86_64" => Check::ok("machine", "x86_64"),
        other => Check::failed(
            "machine",
            other,
            "nodeprof knows V8's call sites on x86_64 only; use such a machine",
        ),
    }
}

/// As uname(1) has it.
fn release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// The first two numbers of a release.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|n| n.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether the return of a probed function is a system call that seccomp filters may refuse: `uretprobe` came with Linux 6.11, and passes all filters since 6.14.
/// Later 6.12 and 6.13 have that change, too, which their releases do not tell for sure: there it is tried.
fn filters_see_returns(release: &str) -> bool {
    ((6, 11)..=(6, 13)).contains(&version(release))
}

/// The system call by which a probed function returns, from arch/x86/entry/syscalls/syscall_64.tbl of Linux 6.11.
const SYS_URETPROBE: libc::c_long = 335;

/// Whether a seccomp filter sees this system call, tried by a process that ends; `None` where that cannot be tried.
fn filter_sees(number: libc::c_long) -> Option<bool> {
    /// What the filter makes of the call.
    const REFUSED: libc::c_int = libc::EBADMSG;
    let statement = |code: u32, k: u32, jump_false: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_false,
        k,
    };
    let mut filter = [
        // The number is the first word of struct seccomp_data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            number as u32,
            1,
        ),
        statement(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | REFUSED as u32, 0),
        statement(libc::BPF_RET, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the child makes system calls only, as it must beside other threads, and ends by them; `program` is in its copy of the memory.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            // Called from elsewhere than a return the system call can end it: without a core.
            let set = libc::prctl(libc::PR_SET_DUMPABLE, 0) == 0
                && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0;
            if !set {
                libc::_exit(2);
            }
            let seen = libc::syscall(number) == -1 && *libc::__errno_location() == REFUSED;
            libc::_exit(libc::c_int::from(seen));
        }
        let mut status = 0;
        if child < 0 || libc::waitpid(child, &raw mut status, 0) != child {
            return None;
        }
        // A filter around this one may end the process for the call; that it is called from elsewhere than a return ends it otherwise.
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            (true, 2) => None,
            (true, seen) => Some(seen == 1),
            (false, _) => match libc::WTERMSIG(status) {
                libc::SIGSYS => Some(true),
                libc::SIGILL => Some(false),
                _ => None,
            },
        }
    }
}

/// What this kernel may do to programs under a seccomp filter, if it is one of those.
pub fn filters_warning() -> Option<String> {
    let release = release();
    let may_end = filters_see_returns(&release) && filter_sees(SYS_URETPROBE) != Some(false);
    may_end.then(|| format!(
        "Linux {release} may end a program under a seccomp filter (a container, SystemCallFilter=) at the first return of a probed function, in either mode; needed: Linux 6.14, or a later 6.12 or 6.13; or leave such programs out"
    ))
}

fn filters() -> Option<Check> {
    let warning = filters_warning()?;
    Some(Check::limited(
        "seccomp",
        "filters see the returns of probed functions",
        warning,
    ))
}

fn kernel() -> Check {
    let release = release();
    let version = version(&release);
    // uprobe_multi came with Linux 6.6.
    if version >= (6, 6) {
        Check::ok("kernel", format!("Linux {release}"))
    } else {
        Check::failed(
            "kernel",
            format!("Linux {release}"),
            "Linux 6.6 or later is needed (uprobe_multi links); install a newer kernel",
        )
    }
}

fn type_information() -> Check {
    match fs::metadata("/sys/kernel/btf/vmlinux") {
        Ok(m) => Check::ok(
            "BTF",
            format!("/sys/kernel/btf/vmlinux, {} kB", m.len() / 1000),
        ),
        Err(e)
            if Path::new("/sys/kernel")
                .read_dir()
                .is_ok_and(|mut d| d.next().is_none()) =>
        {
            Check::failed("BTF", e.to_string(), "type: mount -t sysfs sysfs /sys")
        }
        Err(e) => Check::failed(
            "BTF",
            e.to_string(),
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y (every current distribution's is)",
        ),
    }
}

/// Bits of the effective capability set; numbers of linux/capability.h.
const NEEDED: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];

fn capabilities() -> Check {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = line
        .and_then(|l| u64::from_str_radix(l.trim(), 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| set & 1 << bit != 0;
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(bit, _)| !has(*bit))
        .map(|n| n.1)
        .collect();
    if missing.is_empty() {
        Check::ok("capabilities", "CAP_BPF, CAP_PERFMON")
    } else {
        Check::failed(
            "capabilities",
            format!("without {}", missing.join(", ")),
            "type: sudo nodeprof …",
        )
    }
}

fn uprobes(programs: &Programs, plan: Option<&AttachPlan>) -> Check {
    const NAME: &str = "uprobe_multi";
    let Some(plan) = plan else {
        return Check::limited(
            NAME,
            "not tried",
            "there is no node binary to try it on; type: nodeprof doctor --node PATH",
        );
    };
    let points = AttachPoints::new(plan, 0, |f| f != Family::Verify);
    // On this very process: it does not map node, so not one breakpoint is written anywhere.
    match attach(
        programs.entry(),
        programs.exit(),
        &plan.binary.path,
        std::process::id(),
        &points,
    ) {
        Ok(_link) if !runs_in_all_threads(programs.entry()) => Check::limited(
            NAME,
            format!(
                "{} probes in one link, which this kernel runs in main threads only",
                points.len()
            ),
            "calls, lookups, serialization and compilation of worker threads are missing, and nothing else tells; Linux 6.10 or later is needed, or an older one with its fix of uprobe_multi's PID filter; install a newer kernel",
        ),
        Ok(_link) => Check::ok(NAME, format!("{} probes in one link", points.len())),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Check::failed(
            NAME,
            e.to_string(),
            "Linux 6.6 or later with CONFIG_UPROBES=y is needed; install a newer kernel",
        ),
        Err(e) => Check::failed(NAME, e.to_string(), "type: sudo nodeprof …"),
    }
}

fn hold() -> Check {
    const NAME: &str = "fanotify";
    // SAFETY: takes two integers; the descriptor is closed at once.
    let fd = unsafe {
        libc::fanotify_init(
            libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC,
            libc::O_RDONLY as u32,
        )
    };
    if fd >= 0 {
        // SAFETY: our own descriptor.
        unsafe { libc::close(fd) };
        Check::ok(
            NAME,
            "execs of child processes can be held until their probes exist",
        )
    } else {
        let error = io::Error::last_os_error();
        Check::limited(
            NAME,
            error.to_string(),
            "the first milliseconds of child processes may be missed; needed: CAP_SYS_ADMIN and CONFIG_FANOTIFY_ACCESS_PERMISSIONS; type: sudo nodeprof …",
        )
    }
}

fn tracefs() -> Check {
    let mounted = Path::new("/sys/kernel/tracing/events").exists();
    let found = if mounted {
        "mounted"
    } else {
        "not mounted; not needed: nodeprof uses raw and BTF tracepoints"
    };
    Check::ok("tracefs", found)
}

/// CPU samples per second of the check.
const TRIED_HZ: u32 = 100;

fn samples(programs: &Programs) -> Check {
    const NAME: &str = "CPU samples";
    match programs.attach_samples(TRIED_HZ) {
        Ok(()) => Check::ok(NAME, "a clock on each CPU runs nodeprof's program"),
        Err(e) => Check::limited(
            NAME,
            e.to_string(),
            "a trace has none; type: sudo nodeprof …, or leave them out: --freq 0",
        ),
    }
}

fn scheduler(programs: &Programs) -> Check {
    const NAME: &str = "waits";
    match programs.attach_waits() {
        Ok(()) => Check::ok(NAME, "switches and wake-ups attach (BTF tracepoints)"),
        Err(e) => Check::failed(NAME, "refused", e.to_string()),
    }
}

fn kernel_names() -> Check {
    const NAME: &str = "kernel names";
    let head = fs::File::open("/proc/kallsyms").and_then(|file| {
        let mut head = String::new();
        io::BufReader::new(file.take(64 << 10)).read_to_string(&mut head)?;
        Ok(head)
    });
    let shown = |text: &str| {
        // Symbols of per-CPU data, which come first, lie near 0.
        let addresses = text.lines().filter_map(|l| l.get(..16));
        addresses
            .clone()
            .any(|a| a.trim_start_matches('0').len() > 8)
    };
    match head {
        Ok(text) if shown(&text) => Check::ok(NAME, "/proc/kallsyms shows addresses"),
        Ok(_) => Check::limited(
            NAME,
            "/proc/kallsyms hides addresses",
            "the kernel's functions have no names in CPU samples; type: sysctl kernel.kptr_restrict=0",
        ),
        Err(e) => Check::limited(
            NAME,
            e.to_string(),
            "the kernel's functions have no names in CPU samples; needed: CONFIG_KALLSYMS",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_filters_see_a_system_call_is_tried() {
        assert_eq!(filter_sees(libc::SYS_getppid), Some(true));
        if version(&release()) >= (6, 14) {
            assert_eq!(filter_sees(SYS_URETPROBE), Some(false));
            assert_eq!(filters_warning(), None);
        }
    }

    #[test]
    fn filters_see_the_returns_of_some_kernels() {
        for (release, see) in [
            ("6.10.14", false),
            ("6.11.0-29-generic", true),
            ("6.12", true),
            ("6.12.41+deb13-amd64", true),
            ("6.13.0-rc1", true),
            ("6.14.0", false),
            ("6.1.12", false),
            ("5.11.0", false),
            ("7.12.1", false),
            ("", false),
        ] {
            assert_eq!(filters_see_returns(release), see, "{release}");
        }
    }
}
