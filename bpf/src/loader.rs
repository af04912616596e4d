//! Loading the programs, following a process tree, reading the ring buffer and the sums.
//! All use of libbpf's loader is in this file, so that it can be exchanged here alone.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::CString,
    io,
    mem::{MaybeUninit, offset_of},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd},
        unix::fs::MetadataExt as _,
    },
    path::PathBuf,
    thread,
    time::Duration,
};

use libbpf_rs::{
    Link, MapCore, MapFlags,
    skel::{OpenSkel, SkelBuilder},
};

use serde::{Deserialize, Serialize};

use crate::{
    Callee, Code, Header, Origin, Reader, SampleError, WaitRecord, code, kernel_types, samples,
    skeleton::{self, maps, probes, samples as ticks, tree},
    stat_field, wire,
};

/// What to load.
#[derive(Clone, Debug)]
pub struct Options {
    /// Calls of one thread that are written one by one; later ones are summed.
    pub event_limit: u64,
    /// No times, no nesting: every call only adds to a sum.
    pub count_only: bool,
    /// Count the entries of callbacks apart.
    pub verify: bool,
    /// Record file operations by syscall tracepoints.
    pub files: bool,
    /// Walk the stacks of events: of calls in full mode only.
    pub stacks: bool,
    /// Record where executable code is mapped, so that addresses can be named.
    pub mappings: bool,
    /// CPU samples per second; 0: none.
    pub sample_hz: u32,
    /// Record times off the CPU.
    pub waits: bool,
    /// Folder for what is worth keeping from start to start; without one each start takes 10 ms more.
    pub cache: Option<PathBuf>,
    /// Size of the ring buffer in bytes: a power of two, at least a page.
    pub ring_bytes: u32,
    /// Follow each process by itself, not the tree below it, and tell the holder of all large programs that anybody on
    /// the host executes.
    pub host: bool,
    /// Who reads looks in again and again as long as something runs, and is woken only if much waits: a wake-up costs the program two interrupts.
    pub looks_in: bool,
    /// On behalf of this user, who may not trace everybody's programs: processes are followed as long as they are the user's own,
    /// and no address of the kernel is told.
    pub owner: Option<Owner>,
}

/// Whose processes may be followed: those all of whose user and group ids are these, as the kernel asks of who attaches a debugger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Options {
    /// Calls of a thread that are written one by one.
    fn single_events(&self) -> u64 {
        match self.count_only {
            true => 0,
            false => self.event_limit,
        }
    }

    /// Who reads a larger ring buffer has more processes to watch, each with some hundred sums. With stacks each stack has sums of its own, and whenever V8
    /// has moved or thrown away code, frames of optimised code are others: of hot code with much garbage 32,768 sums were not enough on a fast
    /// machine (131,072 were, on 16 to 26). A service has full mode for starts only, and reads its sums for each of them.
    fn ring_bytes_per_sum(&self) -> u32 {
        match self.stacks && !self.host {
            true => 64,
            false => 256,
        }
    }

    /// Bytes in the ring buffer that wake its reader.
    fn wake_at(&self) -> u64 {
        u64::from(self.ring_bytes / 4)
    }

    fn at_hit(&self) -> &'static str {
        match (self.count_only, self.stacks) {
            (true, _) => "count",
            (false, false) => "record",
            (false, true) => "walk",
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        // 200,000 calls are ten times the start-up of a large application; a hot loop of millions would only
        // make the recording large. 8 MiB last 100 ms at a million records a second.
        Options {
            event_limit: 200_000,
            count_only: false,
            verify: false,
            files: true,
            stacks: true,
            mappings: false,
            sample_hz: 0,
            waits: false,
            cache: None,
            ring_bytes: 8 << 20,
            host: false,
            looks_in: false,
            owner: None,
        }
    }
}

/// Why the programs could not be loaded: found, needed, what to do.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel refused for want of privilege.
    #[error(
        "this user may not load BPF programs; needed: root, or CAP_BPF and CAP_PERFMON; type: sudo nodeprof …"
    )]
    NotPermitted,
    /// The kernel has no type information.
    #[error(
        "this kernel has no /sys/kernel/btf/vmlinux; needed: a kernel built with CONFIG_DEBUG_INFO_BTF (every current distribution's is); see: nodeprof doctor"
    )]
    NoBtf,
    /// This process may not open as many files as there are programs and maps.
    #[error(
        "only {0} files may be open at once (ulimit -n), and nodeprof's BPF programs and maps are more; needed: some hundred; type: ulimit -n 1024"
    )]
    OpenFiles(u64),
    /// Anything else libbpf says.
    #[error(
        "the kernel refused nodeprof's BPF programs ({0}); needed: Linux 6.6 or later; see: nodeprof doctor"
    )]
    Refused(String),
}

impl LoadError {
    fn new(error: &libbpf_rs::Error) -> Self {
        let errno = io::Error::last_os_error().raw_os_error();
        if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
            return LoadError::NoBtf;
        }
        let text = error.to_string();
        let too_many = io::Error::from_raw_os_error(libc::EMFILE);
        // With its causes.
        if format!("{error:#}").contains(&too_many.to_string()) {
            return LoadError::OpenFiles(open_files());
        }
        match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied if !effective_root() => LoadError::NotPermitted,
            _ if errno == Some(libc::EPERM) && !effective_root() => LoadError::NotPermitted,
            _ => LoadError::Refused(text),
        }
    }
}

/// How many files this process may have open.
fn open_files() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a live struct; an error leaves it zero.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_cur
}

fn effective_root() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Which figures a [`Sum`] belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SumFamily {
    /// Crossings beyond the event limit.
    Crossings,
    /// Serializations beyond the event limit.
    Serialization,
    /// Entries of binding callbacks (verification).
    CallbackEntries,
}

/// Calls that were not written one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// What was counted.
    pub family: SumFamily,
    /// In which process.
    pub pid: u32,
    /// As in [`Record::Fork`](crate::Record::Fork): of several processes that had this number, which.
    pub round: u8,
    /// Number of the stack; 0: none.
    pub stack: u32,
    /// As in [`Record`](crate::Record).
    pub kind: u8,
    /// Milestones passed, as in [`Header`](crate::Header).
    pub phase: u8,
    /// The callback (for serialization: around it).
    pub callee: Option<Callee>,
    /// The probe, for serialization; of a call its binary alone.
    pub origin: Origin,
    /// Calls.
    pub calls: u64,
    /// Of these: with a measured time.
    pub timed: u64,
    /// Sum of durations, ns.
    pub total: u64,
    /// Sum of self times, ns.
    pub own: u64,
    /// Bytes.
    pub bytes: u64,
}

/// The sums of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Those that were found.
    pub sums: Vec<Sum>,
    /// They could not be read, or not as they were at one moment: calls are missing there, or count twice.
    pub is_unread: bool,
}

impl Sum {
    /// From an entry of the map.
    fn read(key: &[u8], value: &[u8]) -> Option<Sum> {
        let k = plain::<skeleton::types::sum_key>(key)?;
        let v = plain::<skeleton::types::sum>(value)?;
        Some(Sum {
            family: match k.family {
                0 => SumFamily::Crossings,
                1 => SumFamily::Serialization,
                _ => SumFamily::CallbackEntries,
            },
            pid: k.pid,
            round: k.round,
            stack: k.stack,
            kind: k.kind,
            phase: k.phase,
            callee: callee(k.callback),
            origin: Origin {
                binary: k.id as u8,
                probe: k.id >> 8,
            },
            calls: v.calls,
            timed: v.timed,
            total: v.total,
            own: v.own,
            bytes: v.bytes,
        })
    }
}

/// What the programs counted about themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Counters {
    pub hits: u64,
    pub syscalls: u64,
    pub ring_full: u64,
    pub unmatched_exits: u64,
    pub abandoned: u64,
    pub too_deep: u64,
    pub sums_full: u64,
    pub no_state: u64,
    pub direct_calls: u64,
    pub unreadable: u64,
    pub stacks_lost: u64,
    pub samples: u64,
    pub switches: u64,
    pub waits_beyond_limit: u64,
    pub foreign: u64,
    pub sources_lost: u64,
    /// Times that the sums of a trace, or of a process of a service, could not be read, or only while they changed.
    #[serde(default)]
    pub sums_unread: u64,
}

/// The loaded programs and their maps.
pub struct Programs {
    maps: maps::MapsSkel<'static>,
    probes: probes::ProbesSkel<'static>,
    tree: tree::TreeSkel<'static>,
    /// Where CPU samples are wanted.
    ticks: Option<ticks::SamplesSkel<'static>>,
    links: RefCell<Vec<Link>>,
    at_hit: &'static str,
    times_files: bool,
    /// Whether a holder was started for them.
    had_holder: Cell<bool>,
    /// See [`Counters`].
    sums_unread: Cell<u64>,
}

impl Programs {
    /// Whether this holder takes the place of another one.
    pub(crate) fn has_next_holder(&self) -> bool {
        self.had_holder.replace(true)
    }

    /// What a hit does, in a word: hits that do the same cost the same.
    pub fn at_hit(&self) -> &'static str {
        self.at_hit
    }

    /// Loads and verifies the programs (some 15 ms); nothing is attached yet.
    ///
    /// # Errors
    /// [`LoadError`], by privilege, missing type information or the kernel's own words.
    pub fn load(options: &Options) -> Result<Programs, LoadError> {
        Programs::load_for(options, names_threads())
    }

    /// `names_threads`: as the kernel's answer to [`names_threads`] is.
    fn load_for(options: &Options, names_threads: bool) -> Result<Programs, LoadError> {
        // libbpf prints its own words on stderr; the program under trace owns that. For who works on the
        // programs, NODEPROF_BPF_LOG=1 shows them, the verifier's included.
        if std::env::var_os("NODEPROF_BPF_LOG").is_none() {
            libbpf_rs::set_print(None);
        }
        let mut open = maps::MapsSkelBuilder::default()
            .open(storage())
            .map_err(|e| LoadError::new(&e))?;
        open.maps
            .records
            .set_max_entries(options.ring_bytes)
            .map_err(|e| LoadError::new(&e))?;
        open.maps
            .sums
            .set_max_entries(options.ring_bytes / options.ring_bytes_per_sum())
            .map_err(|e| LoadError::new(&e))?;
        if options.host {
            // Loaded once, for many starts: none of them need pay for the interrupts that bring memory.
            open.maps
                .sums
                .set_map_flags(0)
                .map_err(|e| LoadError::new(&e))?;
        }
        if !options.stacks {
            // 4 MB that nobody would use. (One call for which there is no room in the sums has it among those without stacks still.)
            for map in [
                &mut open.maps.walks,
                &mut open.maps.stacks,
                &mut open.maps.functions,
                &mut open.maps.stackless_sums,
            ] {
                map.set_max_entries(1).map_err(|e| LoadError::new(&e))?;
            }
        }
        let maps = open.load().map_err(|e| LoadError::new(&e))?;
        let types = options.cache.as_deref().and_then(kernel_types::reduced);
        let types = types.as_ref();
        // Each takes about as long: parsing the kernel's types here, verifying programs there.
        let (probes, others) = std::thread::scope(|scope| {
            // These two take as long together as the other.
            let others = scope.spawn(|| {
                let tree = with_types(types, |opening| {
                    load_tree(&maps, options, names_threads, opening)
                })?;
                let ticks = (options.sample_hz > 0).then(|| load_ticks(&maps, options));
                Ok((tree, ticks.transpose()?))
            });
            let probes = with_types(types, |opening| load_probes(&maps, options, opening));
            (probes, joined(others))
        });
        let (tree, ticks) = others?;
        Ok(Programs {
            probes: probes?,
            tree,
            ticks,
            maps,
            links: Default::default(),
            at_hit: options.at_hit(),
            times_files: !options.count_only,
            had_holder: Default::default(),
            sums_unread: Default::default(),
        })
    }

    /// Attaches the tracepoints: fork, exec, exit and, if wished, the syscalls.
    ///
    /// # Errors
    /// The kernel's words.
    pub fn attach_tree(&self, syscalls: bool) -> Result<(), LoadError> {
        let progs = &self.tree.progs;
        let mut links = self.links.borrow_mut();
        for program in [&progs.on_fork, &progs.on_exec, &progs.on_exit] {
            links.push(program.attach().map_err(|e| LoadError::new(&e))?);
        }
        if syscalls {
            links.extend(self.syscall_links()?);
        }
        Ok(())
    }

    /// Attaches the tracepoints of the syscalls, for as long as these links live.
    pub(crate) fn syscall_links(&self) -> Result<Vec<Link>, LoadError> {
        let progs = &self.tree.progs;
        let enter = self.times_files.then_some(&progs.on_syscall_enter);
        (enter.into_iter())
            .chain([&progs.on_syscall_exit])
            .map(|program| program.attach().map_err(|e| LoadError::new(&e)))
            .collect()
    }

    /// Attaches the tracepoints of the scheduler: times off the CPU. The programs must be loaded with
    /// [`Options::waits`].
    ///
    /// # Errors
    /// The kernel's words.
    pub fn attach_waits(&self) -> Result<(), LoadError> {
        let progs = &self.tree.progs;
        let mut links = self.links.borrow_mut();
        for program in [&progs.on_switch, &progs.on_wakeup] {
            links.push(program.attach().map_err(|e| LoadError::new(&e))?);
        }
        Ok(())
    }

    /// Starts a clock on each CPU, `hz` ticks a second. The programs must be loaded with the same [`Options::sample_hz`].
    ///
    /// # Errors
    /// [`SampleError`]; then no clock runs.
    pub fn attach_samples(&self, hz: u32) -> Result<(), SampleError> {
        let Some(ticks) = &self.ticks else {
            return Ok(());
        };
        let mut links = Vec::new();
        for clock in samples::clocks(hz)? {
            let link = ticks.progs.on_tick.attach_perf_event(clock.as_raw_fd());
            links.push(link.map_err(|e| SampleError::Attach(e.to_string()))?);
            let _ = clock.into_raw_fd(); // the link closes it
        }
        self.links.borrow_mut().extend(links);
        Ok(())
    }

    /// Detaches the tracepoints and stops the clocks.
    pub fn detach_tree(&self) {
        self.links.borrow_mut().clear();
    }

    /// Descriptor of the program for entry probes.
    pub fn entry(&self) -> RawFd {
        self.probes.progs.on_entry.as_fd().as_raw_fd()
    }

    /// Descriptor of the program for return probes.
    pub fn exit(&self) -> RawFd {
        self.probes.progs.on_return.as_fd().as_raw_fd()
    }

    /// Follows a process (its main thread) and everything it will start. Recording begins at its next exec.
    ///
    /// # Errors
    /// The kernel's, for example `ENOENT` if the process is gone.
    pub fn follow(&self, pid: u32) -> io::Result<()> {
        self.follow_from(pid, pid, None)
    }

    /// As [`follow`](Programs::follow), without waiting for an exec.
    #[cfg(test)]
    pub(crate) fn follow_at_once(&self, pid: u32) -> io::Result<()> {
        self.follow_from(pid, pid, Some(Memory::of(pid)))
    }

    /// Follows the main thread of this program; its walks end at a frame that begins where the stack is said to.
    pub(crate) fn follow_self(&self, stack_start: u64) -> io::Result<()> {
        let pid = std::process::id();
        let memory = Memory {
            stack_start,
            ..Memory::of(pid)
        };
        self.follow_from(pid, pid, Some(memory))
    }

    /// Follows all threads of a process that runs already.
    pub(crate) fn follow_threads(&self, pid: u32) {
        for thread in threads_of(pid) {
            let _ = self.follow_from(pid, thread, Some(Memory::of(pid))); // one that has ended
        }
    }

    /// `memory`: of a process that is recorded at once; else its next exec tells.
    fn follow_from(&self, pid: u32, thread: u32, memory: Option<Memory>) -> io::Result<()> {
        let fd = thread_descriptor(pid, thread)?;
        let mut value = vec![0u8; size_of::<skeleton::types::thread>()];
        value[offset_of!(skeleton::types::thread, traced)] = u8::from(memory.is_some());
        let top = offset_of!(skeleton::types::thread, top);
        value[top..top + 4].fill(0xff); // no open frame in any family
        for (offset, word) in [
            (offset_of!(skeleton::types::thread, pid), pid),
            (offset_of!(skeleton::types::thread, tid), thread),
        ] {
            value[offset..offset + 4].copy_from_slice(&word.to_ne_bytes());
        }
        if let Some(memory) = memory {
            for (offset, address) in [
                (
                    offset_of!(skeleton::types::thread, code_start),
                    memory.code_start,
                ),
                (
                    offset_of!(skeleton::types::thread, stack_start),
                    memory.stack_start,
                ),
            ] {
                value[offset..offset + 8].copy_from_slice(&address.to_ne_bytes());
            }
        }
        let key = fd.as_raw_fd().to_ne_bytes();
        let made = self
            .maps
            .maps
            .threads
            .update(&key, &value, MapFlags::NO_EXIST);
        match made {
            // What is known of it, its open calls and what it has counted, is not to be lost; its next exec begins anew.
            Err(e) if e.kind() == libbpf_rs::ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(|e| io::Error::other(e.to_string())),
        }
    }

    /// Follows a process no longer. What it still does leaves no records, as soon as all of its threads are known of. Where other threads than main ones cannot
    /// be named they see for themselves that they are left.
    pub(crate) fn unfollow(&self, pid: u32) {
        for fd in threads_of(pid).filter_map(|thread| thread_descriptor(pid, thread).ok()) {
            let key = fd.as_raw_fd().to_ne_bytes();
            let _ = self.maps.maps.threads.delete(&key);
        }
        let _ = self.maps.maps.tallying.delete(&pid.to_ne_bytes());
    }

    /// Descriptor of the map of followed threads, for [`is_followed`](crate::hold::is_followed).
    pub fn threads(&self) -> RawFd {
        self.maps.maps.threads.as_fd().as_raw_fd()
    }

    /// Descriptor of the map of programs that are not node.
    pub(crate) fn not_node(&self) -> RawFd {
        self.tree.maps.not_node.as_fd().as_raw_fd()
    }

    /// A reader of what the tree executes.
    ///
    /// # Errors
    /// If the buffer cannot be mapped.
    pub(crate) fn executions(
        &self,
        mut each: impl FnMut(Execution),
    ) -> io::Result<Reader<impl FnMut(&[u8])>> {
        Reader::new(self.tree.maps.executions.as_fd(), move |bytes: &[u8]| {
            if let Some(e) = plain::<tree::types::execution>(bytes) {
                let program = bytes[..size_of::<tree::types::program>()].to_vec();
                each(Execution {
                    pid: e.pid,
                    inode: e.program.inode,
                    size: e.program.size,
                    program,
                });
            }
        })
    }

    /// Descriptor of the map of address ranges by binary.
    pub fn images(&self) -> RawFd {
        self.maps.maps.images.as_fd().as_raw_fd()
    }

    /// Descriptor of the map from a node binary's file to its image.
    pub fn image_files(&self) -> RawFd {
        self.maps.maps.image_files.as_fd().as_raw_fd()
    }

    /// Descriptor of the program that tells the map from a file to its image about an open file.
    pub(crate) fn set_image_file(&self) -> RawFd {
        self.tree.progs.set_image_file.as_fd().as_raw_fd()
    }

    /// Descriptor of the program by which a thread says that it stops programs that nobody knew of.
    pub(crate) fn set_stopper(&self) -> RawFd {
        self.tree.progs.set_stopper.as_fd().as_raw_fd()
    }

    /// Descriptor to poll: readable when much waits, or when a process has executed something or passed a milestone.
    pub fn ring(&self) -> BorrowedFd<'_> {
        self.maps.maps.records.as_fd()
    }

    /// Where the kernel has put the code of the programs: what a sample in it costs is nodeprof's.
    pub fn code(&self) -> Vec<Code> {
        let (probes, tree) = (&self.probes.progs, &self.tree.progs);
        let mut programs = vec![
            (probes.on_entry.as_fd(), "on_entry"),
            (probes.on_return.as_fd(), "on_return"),
            (tree.on_fork.as_fd(), "on_fork"),
            (tree.on_exec.as_fd(), "on_exec"),
            (tree.on_exit.as_fd(), "on_exit"),
            (tree.on_syscall_enter.as_fd(), "on_syscall_enter"),
            (tree.on_syscall_exit.as_fd(), "on_syscall_exit"),
            (tree.on_switch.as_fd(), "on_switch"),
            (tree.on_wakeup.as_fd(), "on_wakeup"),
        ];
        if let Some(ticks) = &self.ticks {
            programs.push((ticks.progs.on_tick.as_fd(), "on_tick"));
        }
        programs
            .into_iter()
            .filter(|(descriptor, _)| descriptor.as_raw_fd() >= 0)
            .flat_map(|(descriptor, name)| code::of_program(descriptor.as_raw_fd(), name))
            .collect()
    }

    /// A reader of the ring buffer that hands each record's bytes to `each`.
    ///
    /// # Errors
    /// If the buffer cannot be mapped.
    pub fn reader<F: FnMut(&[u8])>(&self, each: F) -> io::Result<Reader<F>> {
        Reader::new(self.ring(), each)
    }

    /// The sums so far.
    pub fn sums(&self) -> Vec<Sum> {
        let counts = self.all_counts(|_| true);
        self.miss_sums(u64::from(!counts.unread.is_nobody()));
        let sums = counts.sums.iter().flatten();
        let sums = sums.filter_map(|(key, value)| Sum::read(key, value));
        let all = sums.chain(counts.tallies);
        all.filter(|sum| sum.calls > 0).collect()
    }

    /// The sums of processes that are over, which are forgotten; so are those that a process that `is_over` without being asked for has
    /// left behind. One pass over all that there are, however many processes are asked for: in a crowd of starts that is what keeps up.
    /// What a process that still runs has counted since is not forgotten: that is the next one's to clear away.
    pub fn take_sums(&self, pids: &[u32], is_over: impl Fn(u32) -> bool) -> HashMap<u32, Taken> {
        let mut taken: HashMap<u32, Taken> =
            (pids.iter().map(|pid| (*pid, Taken::default()))).collect();
        let mut left = HashMap::new();
        let mut keys = [Vec::new(), Vec::new()];
        let counts = self.all_counts(|pid| taken.contains_key(&pid));
        for (sums, keys) in counts.sums.into_iter().zip(&mut keys) {
            for (key, value) in sums {
                let Some(sum) = Sum::read(&key, &value) else {
                    continue;
                };
                if let Some(taken) = taken.get_mut(&sum.pid) {
                    taken.sums.push(sum);
                } else if !*left.entry(sum.pid).or_insert_with(|| is_over(sum.pid)) {
                    continue;
                }
                keys.extend(key);
            }
        }
        for sum in counts.tallies {
            taken.entry(sum.pid).or_default().sums.push(sum);
        }
        for (map, keys) in self.maps_of_sums().into_iter().zip(&keys) {
            let count = keys.len() as u32 / map.key_size();
            if count > 0 {
                // A key that is gone already (`ENOENT`) ends it early: nothing else deletes any.
                let _ = map.delete_batch(keys, count, MapFlags::ANY, MapFlags::ANY);
            }
        }
        for (pid, taken) in &mut taken {
            taken.sums.retain(|sum| sum.calls > 0);
            taken.is_unread = counts.unread.has(*pid);
        }
        let unread = taken.values().filter(|taken| taken.is_unread);
        self.miss_sums(unread.count() as u64);
        taken
    }

    /// The sums of a process that are of these binaries, which are forgotten. It executes another one by now: what its main thread had not added to its sums it
    /// added then.
    pub fn take_sums_of(&self, pid: u32, is_of: impl Fn(u8) -> bool) -> Taken {
        let read = self.all_sums();
        let mut taken = Taken {
            sums: Vec::new(),
            is_unread: read.is_err(),
        };
        self.miss_sums(u64::from(taken.is_unread));
        for (map, sums) in (self.maps_of_sums().into_iter()).zip(read.unwrap_or_default()) {
            for (key, value) in sums {
                let sum = Sum::read(&key, &value);
                if let Some(sum) = sum.filter(|sum| sum.pid == pid && is_of(sum.origin.binary)) {
                    let _ = map.delete(&key);
                    taken.sums.push(sum);
                }
            }
        }
        taken.sums.retain(|sum| sum.calls > 0);
        taken
    }

    /// Keys and values of the sums, and what main threads of these processes have not added to them yet. A thread adds to the sums what it has in tallies while
    /// they are read: then all is read again, so that nothing counts twice or not at all, and one that may do it again does without tallies from then on. Of whom
    /// that was never right is told.
    fn all_counts(&self, is_wanted: impl Fn(u32) -> bool) -> Counts {
        /// A thread adds a callback's calls to the sums at each milestone, too, and one at a time is asked to do without.
        const TIMES: usize = 8;
        /// One that was kept from its processor while it added some may need the one that this thread has.
        const PAUSE: Duration = Duration::from_micros(500);
        let asked = Cell::new(None);
        let read = || {
            if asked.get().is_some() {
                thread::sleep(PAUSE);
            }
            let before = flushes(&self.tallies(&is_wanted));
            let sums = self.all_sums();
            let tallies = self.tallies(&is_wanted);
            // A thread that adds one while its state is copied is seen by the state after that.
            let looks = [
                before,
                flushes(&tallies),
                flushes(&self.tallies(&is_wanted)),
            ];
            let unread = match &sums {
                Ok(_) => Unread::Of(changed(&looks)),
                Err(_) => Unread::All,
            };
            if let Some(pid) = unread.next_to(asked.get()) {
                self.do_without_tallies(pid);
                asked.set(Some(pid));
            }
            let counts = Counts {
                sums: sums.unwrap_or_default(),
                tallies: tallies.into_iter().flat_map(|t| t.sums).collect(),
                unread,
            };
            (counts.unread.is_nobody(), counts)
        };
        let (_, counts) = tried(TIMES, read);
        if asked.get().is_some() {
            self.do_without_tallies(0);
        }
        counts
    }

    /// Asks the main thread of a process to do without tallies from its next change of them on; 0: none.
    fn do_without_tallies(&self, pid: u32) {
        let untallied = &self.maps.maps.untallied;
        // If it cannot be asked, it is told of as one whose sums are unread.
        let _ = untallied.update(&0u32.to_ne_bytes(), &pid.to_ne_bytes(), MapFlags::ANY);
    }

    fn miss_sums(&self, times: u64) {
        self.sums_unread.update(|before| before + times);
    }

    /// What main threads have counted and not added to the sums, by process.
    fn tallies(&self, is_wanted: impl Fn(u32) -> bool) -> Vec<Tallies> {
        let pids = (self.maps.maps.tallying.keys()).filter_map(|key| plain::<u32>(&key));
        let mut all: Vec<Tallies> = pids
            .filter(|pid| is_wanted(*pid))
            .filter_map(|pid| {
                let fd = thread_descriptor(pid, pid).ok()?;
                let key = fd.as_raw_fd().to_ne_bytes();
                let thread = self.maps.maps.threads.lookup(&key, MapFlags::ANY);
                Tallies::read(pid, &thread.ok().flatten()?)
            })
            .collect();
        all.sort_unstable_by_key(|tallies| tallies.pid);
        all
    }

    /// The sums, and those of calls for which there was no room there.
    fn maps_of_sums(&self) -> [&dyn MapCore; 2] {
        [&self.maps.maps.sums, &self.maps.maps.stackless_sums]
    }

    fn all_sums(&self) -> io::Result<[Vec<Entry>; 2]> {
        let [sums, stackless] = self.maps_of_sums();
        Ok([entries(sums)?, entries(stackless)?])
    }

    /// Crossings that have not returned, and times off the CPU: what the buffer does not tell of a program that goes on. To be asked for when all in it has been read:
    /// what ends meanwhile is in neither.
    pub fn unended(&self, now: impl Fn() -> u64) -> Unended {
        self.unended_of(&running("/proc"), now)
    }

    /// The same of some processes.
    pub fn unended_of(&self, pids: &[u32], now: impl Fn() -> u64) -> Unended {
        let threads = pids.iter().flat_map(|&pid| {
            running(&format!("/proc/{pid}/task"))
                .into_iter()
                .map(move |tid| (pid, tid))
        });
        let states = threads.filter_map(|(pid, tid)| {
            let fd = thread_descriptor(pid, tid).ok()?;
            let key = fd.as_raw_fd().to_ne_bytes();
            self.maps.maps.threads.lookup(&key, MapFlags::ANY).ok()?
        });
        let mut unended = Unended::default();
        for state in states {
            let Some(thread) = plain::<skeleton::types::thread>(&state) else {
                continue;
            };
            let (frames, now) = (&state[offset_of!(skeleton::types::thread, frames)..], now());
            unended.calls.extend(OpenCall::read(&thread, frames, now));
            unended.waits.extend(OpenWait::read(&thread, now));
        }
        unended
    }

    fn counter(&self, which: u32) -> u64 {
        let counters = &self.maps.maps.counters;
        let values = counters.lookup_percpu(&which.to_ne_bytes(), MapFlags::ANY);
        let values = values.ok().flatten().unwrap_or_default();
        values.iter().filter_map(|v| plain::<u64>(v)).sum()
    }

    /// Hits of probes so far. Of a thread's last ones up to 15 may be missing, all of the same tick of the kernel's clock (1 to 10 ms) as one that is not.
    pub fn hits(&self) -> u64 {
        self.counter(wire::COUNTER_HITS)
    }

    /// What the programs counted about themselves.
    pub fn counters(&self) -> Counters {
        let get = |which| self.counter(which);
        Counters {
            hits: get(wire::COUNTER_HITS),
            syscalls: get(wire::COUNTER_SYSCALLS),
            ring_full: get(wire::COUNTER_RING_FULL),
            unmatched_exits: get(wire::COUNTER_UNMATCHED_EXIT),
            abandoned: get(wire::COUNTER_ABANDONED),
            too_deep: get(wire::COUNTER_DEPTH),
            sums_full: get(wire::COUNTER_SUMS_FULL),
            no_state: get(wire::COUNTER_NO_STATE),
            direct_calls: get(wire::COUNTER_DIRECT_CALLS),
            unreadable: get(wire::COUNTER_UNREADABLE),
            stacks_lost: get(wire::COUNTER_STACKS_LOST),
            samples: get(wire::COUNTER_SAMPLES),
            switches: get(wire::COUNTER_SWITCHES),
            waits_beyond_limit: get(wire::COUNTER_WAITS_LIMIT),
            foreign: get(wire::COUNTER_FOREIGN),
            sources_lost: get(wire::COUNTER_SOURCES_LOST),
            sums_unread: self.sums_unread.get(),
        }
    }
}

/// Key and value in a map.
type Entry = (Vec<u8>, Vec<u8>);

/// The first answer that is right, or the last one.
fn tried<T>(times: usize, ask: impl Fn() -> (bool, T)) -> (bool, T) {
    let again = (1..times).map(|_| ask());
    let right = again.into_iter().find(|(is_right, _)| *is_right);
    right.unwrap_or_else(ask)
}

/// Keys and values. From key to key the kernel would begin anew where one was deleted meanwhile, so all are asked for at once. Room for a
/// whole table takes a while to clear, so first for that of some starts.
fn entries(map: &dyn MapCore) -> io::Result<Vec<Entry>> {
    const SOME: u32 = 4096;
    // Processors that add one at the same moment may add more than there is room for.
    let all = map.max_entries().saturating_add(SOME);
    match entries_within(map, SOME)? {
        Some(entries) => Ok(entries),
        None => entries_within(map, all)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC)),
    }
}

/// All of a table, if there is so much room. (libbpf-rs's iterator takes any error for the end of the table.)
fn entries_within(map: &dyn MapCore, room: u32) -> io::Result<Option<Vec<Entry>>> {
    let (key, value) = (map.key_size() as usize, map.value_size() as usize);
    let mut keys = vec![0; key * room as usize];
    let mut values = vec![0; value * room as usize];
    let mut next = vec![0; key.max(size_of::<u32>())];
    let mut count = room;
    // SAFETY: room for as many keys and values as `count` says, and for where the next batch would begin; no options.
    let result = unsafe {
        libbpf_rs::libbpf_sys::bpf_map_lookup_batch(
            map.as_fd().as_raw_fd(),
            std::ptr::null_mut(),
            next.as_mut_ptr().cast(),
            keys.as_mut_ptr().cast(),
            values.as_mut_ptr().cast(),
            &mut count,
            std::ptr::null(),
        )
    };
    match -result {
        // There are more, or more share a hash than there is room for.
        0 | libc::ENOSPC => Ok(None),
        // Nothing more.
        libc::ENOENT => {
            let keys = keys.chunks_exact(key).map(<[u8]>::to_vec);
            let values = values.chunks_exact(value).map(<[u8]>::to_vec);
            Ok(Some(keys.zip(values).take(count as usize).collect()))
        }
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// What a main thread has counted and not added to the sums yet.
struct Tallies {
    pid: u32,
    /// Another number whenever it has added some to the sums or begun one; odd: it is about to.
    flushes: u32,
    sums: Vec<Sum>,
}

/// What was read of sums and tallies.
struct Counts {
    sums: [Vec<Entry>; 2],
    tallies: Vec<Sum>,
    unread: Unread,
}

/// Of which processes sums and tallies are not those of one moment.
enum Unread {
    Of(BTreeSet<u32>),
    /// The sums could not be read at all.
    All,
}

impl Unread {
    fn has(&self, pid: u32) -> bool {
        match self {
            Unread::Of(pids) => pids.contains(&pid),
            Unread::All => true,
        }
    }

    fn is_nobody(&self) -> bool {
        matches!(self, Unread::Of(pids) if pids.is_empty())
    }

    /// One of those that changed, each in turn: one that has ended, or that does not run, may change for ever.
    fn next_to(&self, asked: Option<u32>) -> Option<u32> {
        match self {
            Unread::Of(pids) => {
                let next = asked.and_then(|asked| pids.iter().find(|pid| **pid > asked));
                next.or(pids.first()).copied()
            }
            Unread::All => None,
        }
    }
}

/// By process, at one look.
type Flushes = BTreeMap<u32, u32>;

fn flushes(tallies: &[Tallies]) -> Flushes {
    (tallies.iter().map(|tallies| (tallies.pid, tallies.flushes))).collect()
}

/// Processes whose tallies went to the sums, or began or ceased to be, between the first and the last look, or may have.
fn changed(looks: &[Flushes]) -> BTreeSet<u32> {
    let pids = looks.iter().flat_map(|look| look.keys().copied());
    let is_calm = |pid: &u32| {
        let mut flushes = looks.iter().map(|look| look.get(pid));
        let first = flushes.next().flatten();
        flushes.all(|other| other == first) && first.is_none_or(|flushes| flushes % 2 == 0)
    };
    pids.filter(|pid| !is_calm(pid)).collect()
}

impl Tallies {
    /// Of the state of a thread.
    fn read(pid: u32, thread: &[u8]) -> Option<Tallies> {
        use skeleton::types;
        let at = |offset: usize| thread.get(offset..);
        let flushes = plain::<u32>(at(offset_of!(types::thread, flushes))?)?;
        let phase = *thread.get(offset_of!(types::thread, phase))?;
        let round = *thread.get(offset_of!(types::thread, round))?;
        let image = plain::<u32>(at(offset_of!(types::thread, image))?)?;
        // They have the room of the later frames.
        let counting = plain::<types::counting>(at(offset_of!(types::thread, frames))?)?;
        let sums = counting.tallies.iter().map(|tally| Sum {
            family: SumFamily::Crossings,
            pid,
            round,
            stack: 0,
            kind: tally.kind,
            phase,
            callee: callee(tally.callback),
            origin: Origin {
                binary: image.wrapping_sub(1) as u8,
                probe: 0,
            },
            calls: tally.calls.into(),
            timed: 0,
            total: 0,
            own: 0,
            bytes: 0,
        });
        Some(Tallies {
            pid,
            flushes,
            sums: sums.collect(),
        })
    }
}

/// What was under way in the threads of programs that go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unended {
    /// Crossings that have not returned.
    pub calls: Vec<OpenCall>,
    /// Times off the CPU.
    pub waits: Vec<OpenWait>,
}

/// A thread that is off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWait {
    /// Whose, and since when.
    pub header: Header,
    /// Until it was looked at.
    pub wait: WaitRecord,
}

impl OpenWait {
    /// That of a thread, by its state at this instant.
    fn read(t: &skeleton::types::thread, now: u64) -> Option<OpenWait> {
        let has = |flag: u32| t.wait_flags & flag as u8 != 0;
        let duration = now.checked_sub(t.left_cpu)?;
        let preempted = has(wire::WAIT_PREEMPTED);
        let runnable = match (preempted, t.woken) {
            (true, _) => duration,
            (false, 0) => 0,
            (false, woken) => now.saturating_sub(woken),
        };
        (t.left_cpu != 0).then_some(OpenWait {
            header: header(t, t.left_cpu, t.wait_stack),
            wait: WaitRecord {
                duration,
                runnable,
                syscall: u16::try_from(t.wait_syscall).ok(),
                preempted,
                fault: has(wire::WAIT_FAULT),
                disk: has(wire::WAIT_DISK),
                ip: t.wait_ip,
            },
        })
    }
}

/// A crossing that had not returned when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// Whose, and when it began.
    pub header: Header,
    /// Until it was looked at, ns.
    pub duration: u64,
    /// Of the duration: in nested crossings.
    pub inner: u64,
    /// As in [`Record`](crate::Record).
    pub kind: u8,
    /// What is called.
    pub callee: Option<Callee>,
    /// The crossing around it.
    pub parent: Option<Callee>,
    /// Index of the node binary that the thread runs.
    pub binary: u8,
}

impl OpenCall {
    /// Those of a thread, by its state at this instant; the innermost first, as they would return.
    fn read(t: &skeleton::types::thread, frames: &[u8], now: u64) -> Vec<OpenCall> {
        /// `FRAME_CROSSING` of thread.bpf.h.
        const CROSSING: u8 = 0;
        use skeleton::types::frame;
        let open = frames.chunks_exact(size_of::<frame>());
        let open = open.take(t.depth.into()).map_while(plain::<frame>);
        let mut open: Vec<frame> = open.collect();
        let mut calls = Vec::new();
        while let Some(frame) = open.pop() {
            let duration = now.saturating_sub(frame.start);
            let outer = open.get_mut(usize::from(frame.outer));
            let parent = outer.as_ref().and_then(|outer| callee(outer.callback));
            if let Some(outer) = outer {
                outer.inner += duration;
            }
            if frame.family == CROSSING {
                calls.push(OpenCall {
                    header: header(t, frame.start, frame.id),
                    duration,
                    inner: frame.inner,
                    kind: frame.kind,
                    callee: callee(frame.callback),
                    parent,
                    binary: t.image.wrapping_sub(1) as u8,
                });
            }
        }
        calls
    }
}

/// What a record of a thread would begin with.
fn header(t: &skeleton::types::thread, time: u64, stack: u32) -> Header {
    Header {
        pid: t.pid,
        tid: t.tid,
        phase: t.phase,
        time,
        stack,
    }
}

/// Numbers of what runs, by a folder of proc(5): processes, or threads of one.
fn running(folder: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// A callback, as the programs note it.
fn callee(callback: u64) -> Option<Callee> {
    match callback {
        0 => None,
        c if c & wire::CALLBACK_BY_INDEX != 0 => Some(Callee::Index(c as u32)),
        c => Some(Callee::Address(c)),
    }
}

/// `startcode` in proc(5): where the code of the program lies.
const CODE_START: usize = 26;
/// `startstack`: where the stack of its main thread begins.
const STACK_START: usize = 28;

/// Where things lie in the memory of a process, 0 where that is not known.
struct Memory {
    code_start: u64,
    stack_start: u64,
}

impl Memory {
    fn of(pid: u32) -> Memory {
        let address = |field| stat_field(pid, field)?.parse().ok();
        Memory {
            code_start: address(CODE_START).unwrap_or_default(),
            stack_start: address(STACK_START).unwrap_or_default(),
        }
    }
}

/// Threads of a process; none if it has ended.
fn threads_of(pid: u32) -> impl Iterator<Item = u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok())
}

/// `PIDFD_THREAD` of linux/pidfd.h, since Linux 6.9. Before, only main threads can be named.
const PIDFD_THREAD: libc::c_int = libc::O_EXCL;

/// Whether this kernel has descriptors of other threads than main ones.
fn names_threads() -> bool {
    let of_main = opened_descriptor(std::process::id(), PIDFD_THREAD);
    !of_main.is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
}

/// A descriptor of a thread.
fn thread_descriptor(pid: u32, thread: u32) -> io::Result<OwnedFd> {
    let flags = if thread == pid { 0 } else { PIDFD_THREAD };
    opened_descriptor(thread, flags)
}

fn opened_descriptor(thread: u32, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, thread, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Where a skeleton lives. It borrows this; a process loads once or a few times: a leak of some 100 bytes.
fn storage() -> &'static mut MaybeUninit<libbpf_rs::OpenObject> {
    Box::leak(Box::new(MaybeUninit::uninit()))
}

/// What a thread that loads programs has to say.
fn joined<T>(
    thread: std::thread::ScopedJoinHandle<'_, Result<T, LoadError>>,
) -> Result<T, LoadError> {
    let panicked = |_| Err(LoadError::Refused("a panic".into()));
    thread.join().unwrap_or_else(panicked)
}

type OpenOptions = libbpf_rs::libbpf_sys::bpf_object_open_opts;

/// How an object is opened unless something else is asked.
fn default_options() -> OpenOptions {
    OpenOptions {
        sz: size_of::<OpenOptions>() as libbpf_rs::libbpf_sys::size_t,
        ..Default::default()
    }
}

/// Opens one of the program objects, gives it the settings and the shared maps that it uses, and loads it.
macro_rules! load_sharing {
    ($builder:expr, $options:expr, $maps:expr, $set:expr, share [$($map:ident),*], size [$($sized:ident = $entries:expr),*],
     without [$($program:ident if $unneeded:expr),*]) => {{
        let mut open = $builder.open_opts($options, storage()).map_err(|e| LoadError::new(&e))?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            $set(rodata);
        }
        $(open.maps.$map.reuse_fd($maps.maps.$map.as_fd()).map_err(|e| LoadError::new(&e))?;)*
        $(open.maps.$sized.set_max_entries($entries).map_err(|e| LoadError::new(&e))?;)*
        // The kernel need not verify what these settings do not use.
        $(if $unneeded {
            open.progs.$program.set_autoload(false);
        })*
        open.load().map_err(|e| LoadError::new(&e))
    }};
}

/// Loads programs that read the kernel's structures. `types`: a file with the few types that they need, if there is one; all serve if it is of no use.
fn with_types<T>(
    types: Option<&CString>,
    load: impl Fn(OpenOptions) -> Result<T, LoadError>,
) -> Result<T, LoadError> {
    if let Some(types) = types {
        let mut options = default_options();
        // libbpf copies it.
        options.btf_custom_path = types.as_ptr();
        let loaded = load(options);
        if loaded.is_ok() {
            return loaded;
        }
        kernel_types::forget(types);
    }
    load(default_options())
}

fn load_probes(
    maps: &maps::MapsSkel<'_>,
    options: &Options,
    opening: OpenOptions,
) -> Result<probes::ProbesSkel<'static>, LoadError> {
    let set = |rodata: &mut probes::types::rodata| {
        rodata.event_limit = options.single_events();
        rodata.count_only = options.count_only;
        rodata.verify = options.verify;
        rodata.record_stacks = options.stacks;
        rodata.take_samples = options.sample_hz > 0;
        rodata.looks_in = options.looks_in;
        rodata.wake_at = options.wake_at();
    };
    load_sharing!(
        probes::ProbesSkelBuilder::default(), opening, maps, set,
        share [threads, records, sums, stackless_sums, tallying, untallied, counters, images, walks, stacks, functions, numbers],
        size [],
        without []
    )
}

/// Inode of the PID namespace that this process runs in; 0 for the initial one, whose numbers the kernel reckons in.
fn pid_namespace() -> u32 {
    /// `PROC_PID_INIT_INO` of linux/proc_ns.h: constant, part of the kernel's interface.
    const INITIAL: u64 = 0xEFFF_FFFC;
    let inode = std::fs::metadata("/proc/self/ns/pid").map_or(INITIAL, |of| of.ino());
    match inode {
        INITIAL => 0,
        inner => inner as u32,
    }
}

fn load_tree(
    maps: &maps::MapsSkel<'_>,
    options: &Options,
    names_threads: bool,
    opening: OpenOptions,
) -> Result<tree::TreeSkel<'static>, LoadError> {
    let set = |rodata: &mut tree::types::rodata| {
        rodata.event_limit = options.single_events();
        rodata.count_only = options.count_only;
        rodata.record_files = options.files;
        rodata.record_mappings = options.mappings;
        rodata.host = options.host;
        rodata.names_leaders_only = options.host && !names_threads;
        rodata.looks_in = options.looks_in;
        rodata.wake_at = options.wake_at();
        rodata.time_files = !options.count_only;
        rodata.owned = options.owner.is_some();
        rodata.owner = options.owner.map_or(0, |owner| owner.uid);
        rodata.owner_group = options.owner.map_or(0, |owner| owner.gid);
        rodata.pid_namespace = pid_namespace();
    };
    load_sharing!(
        tree::TreeSkelBuilder::default(), opening, maps, set,
        share [threads, records, sums, stackless_sums, tallying, untallied, counters, image_files],
        size [],
        without [on_syscall_enter if options.count_only, on_switch if !options.waits, on_wakeup if !options.waits]
    )
}

fn load_ticks(
    maps: &maps::MapsSkel<'_>,
    options: &Options,
) -> Result<ticks::SamplesSkel<'static>, LoadError> {
    let set = |rodata: &mut ticks::types::rodata| {
        rodata.sample_period = samples::period_ns(options.sample_hz);
        rodata.record_stacks = options.stacks;
        rodata.kernel_frames = options.owner.is_none();
        rodata.wake_at = options.wake_at();
    };
    let cpus = libbpf_rs::num_possible_cpus().map_err(|e| LoadError::new(&e))?;
    let cpus = u32::try_from(cpus)
        .unwrap_or(u32::MAX)
        .clamp(1, wire::WALK_SLOTS);
    load_sharing!(
        ticks::SamplesSkelBuilder::default(), default_options(), maps, set,
        share [threads, records, counters, images, walks, stacks, functions, numbers],
        size [tick_walks = cpus],
        without []
    )
}

/// A program that a process of the tree executed, large enough to be node.
pub(crate) struct Execution {
    pub(crate) pid: u32,
    pub(crate) inode: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// Key of the map [`Programs::not_node`].
    pub(crate) program: Vec<u8>,
}

fn plain<T: Copy>(bytes: &[u8]) -> Option<T> {
    // SAFETY: the length is checked; only called with structs of integers.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::{
        cell::Cell,
        io::{BufRead as _, Write as _},
        process::{Command, Stdio},
    };

    use super::*;
    use crate::Record;

    /// Whether an exec is written, and wakes who reads.
    fn exec_is_written_and_wakes(looks_in: bool) -> (bool, bool) {
        let programs = Programs::load(&Options {
            count_only: true,
            files: false,
            looks_in,
            ring_bytes: 1 << 20,
            ..Options::default()
        })
        .unwrap();
        programs.attach_tree(false).unwrap();
        let is_written = Cell::new(false);
        let reader = programs
            .reader(|bytes| {
                if let Ok(Record::Exec { .. }) = Record::decode(bytes) {
                    is_written.set(true);
                }
            })
            .unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "read line; exec true"]);
        let mut child = shell.stdin(Stdio::piped()).spawn().unwrap();
        programs.follow(child.id()).unwrap();
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(child.wait().unwrap().success());
        let mut awaited = libc::pollfd {
            fd: reader.descriptor(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd.
        let ready = unsafe { libc::poll(&mut awaited, 1, 200) };
        reader.consume().unwrap();
        (is_written.get(), ready == 1)
    }

    /// Before Linux 6.9 a process is followed no longer by way of its main thread alone.
    #[test]
    #[ignore = "needs root"]
    fn other_threads_see_that_their_process_is_followed_no_longer() {
        let options = Options {
            host: true,
            ring_bytes: 1 << 20,
            stacks: false,
            ..Options::default()
        };
        let programs = Programs::load_for(&options, false).unwrap();
        programs.attach_tree(true).unwrap();
        let mut python = Command::new("python3");
        let script = "import os, sys, threading
def check():
    for line in sys.stdin:
        os.path.exists('/a-' + line.strip())
        print(flush=True)
print(flush=True)
input()
thread = threading.Thread(target=check)
thread.start()
thread.join()";
        python.args(["-c", script]);
        let started = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = started else {
            println!("skipped: there is no python3");
            return;
        };
        let pid = child.id();
        let mut input = child.stdin.take().unwrap();
        let output = io::BufReader::new(child.stdout.take().unwrap());
        let mut answers = output.lines();
        // Its exec would end that it is followed.
        answers.next().unwrap().unwrap();
        programs.follow_at_once(pid).unwrap();
        let checked = std::cell::RefCell::new(Vec::new());
        let reader = programs
            .reader(|bytes| {
                if let Ok(Record::File { header, path, .. }) = Record::decode(bytes)
                    && header.tid != pid
                {
                    let path = String::from_utf8(path.unwrap_or_default());
                    checked.borrow_mut().push(path.unwrap());
                }
            })
            .unwrap();
        input.write_all(b"\nfollowed\n").unwrap();
        answers.next().unwrap().unwrap();
        let main = thread_descriptor(pid, pid).unwrap();
        let key = main.as_raw_fd().to_ne_bytes();
        programs.maps.maps.threads.delete(&key).unwrap();
        input.write_all(b"left\n").unwrap();
        answers.next().unwrap().unwrap();
        drop(input);
        assert!(child.wait().unwrap().success());
        reader.consume().unwrap();
        let checked = checked.borrow();
        let has = |name: &str| checked.iter().any(|path| path.contains(name));
        assert!(has("a-followed"), "{checked:?}");
        assert!(!has("a-left"), "{checked:?}");
    }

    /// Modes without stacks have room for one there.
    #[test]
    #[ignore = "needs root"]
    fn what_found_no_room_in_the_sums_counts_without_stacks_too() {
        use skeleton::types::{sum, sum_key};
        let bytes = |value: &dyn std::any::Any| -> Vec<u8> {
            let (at, size) = match value.downcast_ref::<sum_key>() {
                Some(key) => (std::ptr::from_ref(key).cast::<u8>(), size_of::<sum_key>()),
                None => {
                    let sum = value.downcast_ref::<sum>().unwrap();
                    (std::ptr::from_ref(sum).cast::<u8>(), size_of::<sum>())
                }
            };
            // SAFETY: structs of integers, without gaps.
            unsafe { std::slice::from_raw_parts(at, size) }.to_vec()
        };
        for (count_only, stacks) in [(true, false), (true, true), (false, false), (false, true)] {
            let options = Options {
                count_only,
                stacks,
                ring_bytes: 1 << 20,
                ..Options::default()
            };
            let programs = Programs::load(&options).unwrap();
            let key = sum_key {
                callback: 1,
                pid: 7,
                ..Default::default()
            };
            let value = sum {
                calls: 3,
                ..Default::default()
            };
            for map in programs.maps_of_sums() {
                map.update(&bytes(&key), &bytes(&value), MapFlags::NO_EXIST)
                    .unwrap();
            }
            let calls = |sums: &[Sum]| sums.iter().map(|sum| sum.calls).sum::<u64>();
            assert_eq!(calls(&programs.sums()), 6, "{options:?}");
            let taken = programs.take_sums(&[7], |_| false);
            assert_eq!(calls(&taken[&7].sums), 6, "{options:?}");
            assert!(!taken[&7].is_unread);
            assert_eq!(programs.sums(), [], "{options:?}");
        }
    }

    #[test]
    fn sums_are_those_of_one_moment_unless_a_thread_has_tallies_that_changed() {
        let look = |flushes: &[(u32, u32)]| flushes.iter().copied().collect::<Flushes>();
        let of =
            |looks: [&[(u32, u32)]; 3]| changed(&looks.map(look)).into_iter().collect::<Vec<_>>();
        assert!(of([&[], &[], &[]]).is_empty());
        assert!(of([&[(1, 2), (2, 4)], &[(1, 2), (2, 4)], &[(1, 2), (2, 4)]]).is_empty());
        // The others are what they were.
        assert_eq!(
            of([&[(1, 2), (2, 4)], &[(1, 2), (2, 6)], &[(1, 2), (2, 6)]]),
            [2]
        );
        assert_eq!(of([&[(1, 2)], &[(1, 2)], &[(1, 4)]]), [1]);
        // It began to have some, or gave them up.
        assert_eq!(of([&[], &[(1, 2)], &[(1, 2)]]), [1]);
        assert_eq!(of([&[(1, 2), (3, 2)], &[(1, 2)], &[(1, 2)]]), [3]);
        // It is about to change them.
        assert_eq!(of([&[(1, 3)], &[(1, 3)], &[(1, 3)]]), [1]);
        let unread = Unread::Of(BTreeSet::from([3, 2]));
        assert_eq!(unread.next_to(None), Some(2));
        let others = Unread::Of([2, 5, 7].into());
        assert_eq!(
            [None, Some(2), Some(5), Some(7)].map(|pid| others.next_to(pid)),
            [2, 5, 7, 2].map(Some)
        );
        assert!(unread.has(3) && !unread.has(1) && !unread.is_nobody());
        assert!(
            Unread::All.has(1) && Unread::All.next_to(None).is_none() && !Unread::All.is_nobody()
        );
        assert!(Unread::Of(BTreeSet::new()).is_nobody());
    }

    #[test]
    fn what_never_is_right_is_told() {
        let asked = Cell::new(0);
        let ask = |right: u32| {
            asked.set(0);
            tried(3, || {
                asked.set(asked.get() + 1);
                (asked.get() == right, asked.get())
            })
        };
        assert_eq!(ask(1), (true, 1));
        assert_eq!(ask(3), (true, 3));
        assert_eq!(ask(4), (false, 3));
    }

    #[test]
    #[ignore = "needs root"]
    fn a_table_that_cannot_be_read_is_not_an_empty_one() {
        let options = Options {
            count_only: true,
            ring_bytes: 4 << 20,
            ..Options::default()
        };
        let programs = Programs::load(&options).unwrap();
        let sums = &programs.maps.maps.sums;
        // More than are asked for first.
        for pid in 0..5_000u32 {
            let mut key = vec![0; sums.key_size() as usize];
            key[..4].copy_from_slice(&pid.to_ne_bytes());
            let value = vec![0; sums.value_size() as usize];
            sums.update(&key, &value, MapFlags::NO_EXIST).unwrap();
        }
        assert_eq!(entries(sums).unwrap().len(), 5_000);
        assert!(entries_within(sums, 100).unwrap().is_none());
        // A buffer has no keys and values.
        assert!(entries(&programs.maps.maps.records).is_err());
        assert_eq!(programs.counters().sums_unread, 0);
    }

    #[test]
    #[ignore = "needs root"]
    fn who_looks_in_is_not_woken_by_an_exec() {
        assert_eq!(exec_is_written_and_wakes(false), (true, true));
        assert_eq!(exec_is_written_and_wakes(true), (true, false));
    }
}
