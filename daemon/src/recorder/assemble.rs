//! From kernel records to a recording: who is who, what is where.

use rustc_hash::FxHashMap as HashMap;
use std::{
    collections::{BTreeMap, hash_map::Entry},
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::Arc,
};

use nodeprof_bpf::{Callee, Header, MappingKind, Origin, Record, Sum, SumFamily, Unended};
use nodeprof_probes::plan::{Address, AttachPlan, CompileUnit, Role};
use nodeprof_profile::{
    breakdown::main_processes,
    recording::{
        Binary, BinaryId, Callback, CallbackId, Compilation, CompilationUnit, Crossing,
        CrossingKind, CrossingSum, EVENTS_BEYOND_LIMIT, Exec, FileAccess, FileOperation, Import,
        Lookup, Loss, Milestone, NameId, Nanoseconds, Process, ProcessId, Recording, RunId, Sample,
        Serialization, SerializationSum, Span, StackId, ThreadId, UNREADABLE, Wait,
    },
};

use super::{
    Verification,
    continuations::Continuations,
    late::Late,
    leaves::Leaves,
    outside::Outside,
    room::{EVENT, Room},
    source_maps,
    sources::Sources,
    stacks::Stacks,
    symbols::Symbols,
    waits,
};

/// A node binary whose probes are attached.
struct Image {
    plan: Arc<AttachPlan>,
    binary: BinaryId,
}

/// Events that the recorder acts on while records come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A process passed a milestone of its main environment.
    Milestone {
        /// Process.
        pid: u32,
        /// `loop_start` …
        name: String,
        /// When.
        at: u64,
    },
    /// A process executed something.
    Exec {
        /// Process.
        pid: u32,
        /// All of its arguments are told.
        is_whole: bool,
    },
    /// The environment that it got.
    Environment {
        /// Each variable with its NUL.
        text: Vec<u8>,
    },
}

/// Builds one run of a recording.
pub struct Assembler {
    /// What was assembled so far.
    pub recording: Recording,
    run: RunId,
    root: u32,
    processes: HashMap<u32, ProcessId>,
    images: HashMap<u8, Image>,
    image_of: HashMap<u32, u8>,
    /// When each process passed its first one.
    first_milestones: HashMap<ProcessId, u64>,
    names: HashMap<Vec<u8>, NameId>,
    callbacks: HashMap<Callback, CallbackId>,
    callees: HashMap<(u8, Callee), CallbackId>,
    /// By process and address, and what another process had there.
    callees_outside: BTreeMap<(u32, u64, u8), CallbackId>,
    callees_of_others: HashMap<(u8, u64), CallbackId>,
    outside: Outside,
    /// Path of each open descriptor, where it is known.
    descriptors: HashMap<(ProcessId, i32), Opened>,
    /// Path of each open file, as the kernel tells them apart.
    open_files: HashMap<u32, NameId>,
    directories: HashMap<ProcessId, Directory>,
    /// Compilations under way: (thread, start) → path and origin.
    compiling: HashMap<(u32, u64), Compiling>,
    stacks: Stacks,
    sources: Sources,
    late: Late,
    continuations: Continuations,
    /// What Node makes modules of, and which add-ons it asks for: these have names already, those of links do not.
    loads: Vec<Import>,
    cpu: HashMap<ProcessId, Cpu>,
    /// Where code lies in each process.
    pub symbols: Symbols,
    leaves: Leaves,
    notices: Vec<Notice>,
    losses: HashMap<&'static str, u64>,
    last: u64,
    /// By number and round: of several that had one number.
    rounds: HashMap<(u32, u8), ProcessId>,
    /// How much may be kept, where that has a limit.
    room: Option<Room>,
}

/// A working directory.
#[derive(Clone)]
struct Directory {
    path: Vec<u8>,
    /// As the kernel tells it, without links. What `chdir` names may be one.
    is_real: bool,
}

/// A descriptor, by what it was opened.
#[derive(Clone, Copy)]
struct Opened {
    path: NameId,
    /// When, ns.
    at: Nanoseconds,
    /// What the number was before, if that was not closed.
    before: Option<NameId>,
}

/// A compilation that began.
struct Compiling {
    path: NameId,
    origin: Origin,
    pid: u32,
    stack: u32,
}

/// A stack by the kernel's number; [`Assembler::finish_stacks`] puts the recording's in its place.
fn numbered(stack: u32) -> Option<StackId> {
    (stack != 0).then_some(StackId(stack))
}

/// CPU time of the threads of a process that have ended, ns.
#[derive(Clone, Copy, Default)]
struct Cpu {
    user: u64,
    system: u64,
    runtime: u64,
}

/// Compilations of other threads that may end between two of one thread.
const COMPILING_AT_ONCE: usize = 1024;
/// AT_FDCWD of fcntl.h.
const CURRENT_DIRECTORY: i32 = -100;
/// Binary index of processes that run no known node.
const NO_IMAGE: u8 = u8::MAX;

impl Assembler {
    /// For a run whose first process is `root` and that starts in `directory`.
    pub fn new(recording: Recording, run: RunId, root: u32, directory: &Path) -> Assembler {
        let mut this = Assembler {
            names: recording
                .names
                .iter()
                .enumerate()
                .map(|(i, n)| (n.clone(), NameId(i as u32)))
                .collect(),
            callbacks: recording
                .callbacks
                .iter()
                .enumerate()
                .map(|(i, c)| (c.clone(), CallbackId(i as u32)))
                .collect(),
            recording,
            run,
            root,
            processes: HashMap::default(),
            images: HashMap::default(),
            image_of: HashMap::default(),
            first_milestones: HashMap::default(),
            callees: HashMap::default(),
            callees_outside: BTreeMap::default(),
            callees_of_others: HashMap::default(),
            outside: Outside::default(),
            descriptors: HashMap::default(),
            open_files: HashMap::default(),
            directories: HashMap::default(),
            compiling: HashMap::default(),
            stacks: Stacks::default(),
            sources: Sources::default(),
            late: Late::default(),
            continuations: Continuations::default(),
            loads: Vec::new(),
            cpu: HashMap::default(),
            symbols: Symbols::default(),
            leaves: Leaves::default(),
            notices: Vec::new(),
            losses: HashMap::default(),
            last: 0,
            rounds: HashMap::default(),
            room: None,
        };
        let process = this.process(root, 0);
        // Those of its children begin with 1.
        this.rounds.insert((root, 0), process);
        let path = directory.as_os_str().as_bytes().to_vec();
        let is_real = true;
        this.directories
            .insert(process, Directory { path, is_real });
        this
    }

    /// Keeps no more than there is room for: of what comes then, how many events it was, and what tells how the process goes on. To be called for a run of
    /// one process: others that it starts are recorded by themselves.
    pub fn keep_within(&mut self, room: Room) {
        self.sources.keep_within(&room);
        self.room = Some(room);
    }

    /// Registers the binary behind an index of the records.
    pub fn add_image(&mut self, index: u8, plan: Arc<AttachPlan>) {
        let binary = Binary {
            path: plan.binary.path.as_os_str().as_bytes().to_vec(),
            build_id: plan.binary.build_id.as_ref().map(|b| b.0.clone()),
            node_version: plan.binary.node_version.clone(),
            v8_version: plan.binary.v8_version.clone(),
            arch: plan.binary.arch.clone(),
        };
        let known = self.recording.binaries.iter().position(|b| *b == binary);
        let binary = known.unwrap_or_else(|| {
            self.recording.binaries.push(binary);
            self.recording.binaries.len() - 1
        });
        self.images.insert(
            index,
            Image {
                plan,
                binary: BinaryId(binary as u32),
            },
        );
    }

    /// Whether the binary behind an index is registered.
    pub fn has_image(&self, index: u8) -> bool {
        self.images.contains_key(&index)
    }

    /// The plans of all binaries that were attached.
    pub fn plans(&self) -> impl Iterator<Item = &Arc<AttachPlan>> {
        self.images.values().map(|image| &image.plan)
    }

    /// Notes that probes of a binary are attached to a process.
    pub fn attached(&mut self, pid: u32, index: u8) {
        if self.find_process(pid).is_some_and(|p| p.exited.is_some()) {
            self.forget(pid);
        }
        self.image_of.insert(pid, index);
        let process = self.process(pid, 0);
        if let Some(image) = self.images.get(&index)
            && !self.first_milestones.contains_key(&process)
        {
            self.recording.processes[process.0 as usize].node = Some(image.binary);
        }
    }

    /// Notes that a process's probes came after its exec: it is complete only if its main begins from now on.
    pub fn attached_after_exec(&mut self, pid: u32) {
        let process = self.process(pid, 0);
        self.late.expect_main(process);
    }

    /// Notes that a process was not stopped for its probes, and why.
    pub fn not_stopped(&mut self, pid: u32, why: String) {
        let process = self.process(pid, 0);
        self.late.not_stopped(process, why);
    }

    /// The same of a process whose calls alone are asked for.
    pub fn held_too_short(&mut self, pid: u32, why: String) {
        let process = self.process(pid, 0);
        self.late.held_too_short(process, why);
    }

    /// Notes that a process was kept stopped from one instant of CLOCK_MONOTONIC to another, ns.
    pub fn stopped(&mut self, pid: u32, from: u64, to: u64) {
        let process = self.process(pid, 0);
        self.late.stopped(process, from, to);
    }

    /// Notes that a process's record has a hole.
    pub fn incomplete(&mut self, pid: u32, reason: String) {
        let process = self.process(pid, 0);
        self.has_hole(process, reason);
    }

    fn has_hole(&mut self, process: ProcessId, reason: String) {
        let incomplete = &mut self.recording.processes[process.0 as usize].incomplete;
        if incomplete.is_none() {
            *incomplete = Some(reason);
            self.lose("beginnings_missed", 1);
        }
    }

    /// Counts a loss.
    pub fn lose(&mut self, kind: &'static str, count: u64) {
        *self.losses.entry(kind).or_default() += count;
    }

    /// Instant of the newest record, ns; 0 before the first.
    pub fn last_record(&self) -> u64 {
        self.last
    }

    /// Counts what the kernel side lost, as far as it did; lost records are told in any case. Returns all losses so far, by kind.
    pub fn losses_with(&mut self, others: &[(&'static str, u64)]) -> Vec<Loss> {
        for &(kind, count) in others {
            if count > 0 || kind == "records" {
                self.lose(kind, count);
            }
        }
        let of_run = |(&kind, &count): (&&'static str, &u64)| Loss {
            run: self.run,
            kind: kind.into(),
            count,
        };
        let mut losses: Vec<Loss> = self.losses.iter().map(of_run).collect();
        losses.sort_by(|a, b| a.kind.cmp(&b.kind));
        losses
    }

    /// What happened since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Process of a pid, if it was seen.
    pub fn find_process(&mut self, pid: u32) -> Option<&mut Process> {
        let id = *self.processes.get(&pid)?;
        self.recording.processes.get_mut(id.0 as usize)
    }

    /// Whether a run is about this process, by what is known so far.
    pub fn is_main_process(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|id| {
            main_processes(&self.recording)
                .iter()
                .any(|main| main == &Some(*id))
        })
    }

    /// Whether a process is known only because probes were attached to it.
    fn is_announced(&self, pid: u32) -> bool {
        let entry = self
            .processes
            .get(&pid)
            .and_then(|id| self.recording.processes.get(id.0 as usize));
        entry.is_some_and(|p| p.forked.0 == 0 && p.execs.is_empty() && p.exited.is_none())
    }

    /// A pid that comes again is a new process.
    fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.image_of.remove(&pid);
        self.outside.forget(pid);
        self.forget_callees(pid);
    }

    fn process(&mut self, pid: u32, at: u64) -> ProcessId {
        if let Some(&id) = self.processes.get(&pid) {
            return id;
        }
        let id = ProcessId(self.recording.processes.len() as u32);
        self.recording.processes.push(Process {
            run: self.run,
            pid,
            forked: Nanoseconds(at),
            ..Process::default()
        });
        self.processes.insert(pid, id);
        id
    }

    fn name(&mut self, bytes: &[u8]) -> NameId {
        if let Some(&id) = self.names.get(bytes) {
            return id;
        }
        let id = NameId(self.recording.names.len() as u32);
        self.recording.names.push(bytes.to_vec());
        self.names.insert(bytes.to_vec(), id);
        if let Some(room) = &mut self.room {
            room.take_name(bytes);
        }
        id
    }

    /// The callback that a record of a process names, which ran the node binary with this index: it may have executed another one since.
    pub fn callback(
        &mut self,
        pid: u32,
        binary: u8,
        kind: CrossingKind,
        callee: Option<Callee>,
    ) -> CallbackId {
        if kind == CrossingKind::ToJs {
            return self.intern_callback("(javascript)".into(), "Execution::Invoke".into());
        }
        let index = match self.images.contains_key(&binary) {
            true => binary,
            false => self.image_of.get(&pid).copied().unwrap_or(NO_IMAGE),
        };
        let Some(callee) = callee else {
            return self.intern_callback("(unknown)".into(), "(none)".into());
        };
        if let Some(&id) = self.callees.get(&(index, callee)) {
            return id;
        }
        let plan = self.images.get(&index).map(|i| &i.plan);
        let known = plan.and_then(|plan| match callee {
            Callee::Index(i) => plan.callbacks.get(i as usize),
            Callee::Address(a) => plan.callback_at(Address(a)),
        });
        let (binding, function) = match (callee, known) {
            (_, Some(c)) => (c.binding.clone(), c.function.clone()),
            (Callee::Index(i), None) => ("(unknown)".into(), format!("#{i}")),
            (Callee::Address(a), None) => return self.callback_outside(pid, (index, a)),
        };
        let id = self.intern_callback(binding, function);
        self.callees.insert((index, callee), id);
        id
    }

    /// One that is not of the binary: another process may have another add-on there. Of one that has ended before it was asked for, such as a child by `fork`,
    /// it is what another had there.
    fn callback_outside(&mut self, pid: u32, (index, address): (u8, u64)) -> CallbackId {
        let key = (pid, address, index);
        if let Some(&id) = self.callees_outside.get(&key) {
            return id;
        }
        let of_others = (index, address);
        let id = match self.outside.callback(pid, address) {
            Some((binding, function)) => {
                let id = self.intern_callback(binding, function);
                self.callees_of_others.insert(of_others, id);
                id
            }
            None => match self.callees_of_others.get(&of_others) {
                Some(id) => *id,
                None => self.intern_callback("(unknown)".into(), format!("{address:#x}")),
            },
        };
        self.callees_outside.insert(key, id);
        id
    }

    /// The process has ended, or executes something else.
    fn forget_callees(&mut self, pid: u32) {
        self.forget_callees_in(pid, &(0..u64::MAX));
    }

    /// The process has something else there from now on.
    fn forget_callees_in(&mut self, pid: u32, range: &Range<u64>) {
        let all = (pid, range.start, 0)..(pid, range.end.max(range.start), 0);
        let gone: Vec<_> = self
            .callees_outside
            .range(all)
            .map(|(key, _)| *key)
            .collect();
        for key in gone {
            self.callees_outside.remove(&key);
        }
    }

    fn parent(&mut self, pid: u32, binary: u8, callee: Option<Callee>) -> Option<CallbackId> {
        let callee = callee?;
        // The pseudo-callback of C++ → JavaScript has the index 0 of no plan's callbacks in this position.
        let kind = if callee == Callee::Index(0) {
            CrossingKind::ToJs
        } else {
            CrossingKind::Slow
        };
        Some(self.callback(pid, binary, kind, Some(callee)))
    }

    fn intern_callback(&mut self, binding: String, function: String) -> CallbackId {
        let callback = Callback { binding, function };
        if let Some(&id) = self.callbacks.get(&callback) {
            return id;
        }
        let id = CallbackId(self.recording.callbacks.len() as u32);
        self.recording.callbacks.push(callback.clone());
        self.callbacks.insert(callback, id);
        id
    }

    fn role(&self, origin: Origin) -> Option<&Role> {
        let plan = &self.images.get(&origin.binary)?.plan;
        plan.probes.get(origin.probe as usize).map(|p| &p.role)
    }

    /// Takes the bytes of one record.
    pub fn take(&mut self, bytes: &[u8]) {
        match Record::decode(bytes) {
            Ok(record) => self.take_record(record, bytes.len()),
            Err(_) => self.lose("undecodable_records", 1),
        }
    }

    fn take_record(&mut self, record: Record, bytes: usize) {
        if self.has_room(&record, bytes) {
            self.symbols.learn(&record);
            self.sort_in(record);
        }
    }

    fn sort_in(&mut self, record: Record) {
        if let Some(record) = self.stacks.take(record) {
            self.add(record);
        }
    }

    /// Whether a record of so many bytes is to be taken. Takes room for it, and counts it if there is none.
    fn has_room(&mut self, record: &Record, bytes: usize) -> bool {
        let Some(room) = &mut self.room else {
            return true;
        };
        let (is_event, bytes) = match record {
            // The end of a compilation is in the place of its beginning.
            Record::Compile { header, .. } => {
                return !room.is_full() || self.compiling.contains_key(&(header.tid, header.time));
            }
            Record::Environment { .. } | Record::Exit { .. } => return true,
            // What runs now, and how far it has come.
            Record::Exec { .. } => {
                room.take_if_there(EVENT + bytes as u64);
                return true;
            }
            Record::Milestone { header, .. } if header.pid == header.tid => {
                room.take_if_there(EVENT);
                return true;
            }
            // They have a room of their own, with the lines of all scripts.
            Record::Source { script, text, .. } => {
                let bytes = text.bytes.len() as u64;
                let is_taken = !room.is_full() && self.sources.take_text(bytes);
                if !is_taken {
                    self.stacks.cut_text(*script);
                }
                return is_taken;
            }
            // What is told of stacks and code.
            Record::Walk { .. }
            | Record::Function { .. }
            | Record::FunctionName { .. }
            | Record::Script { .. }
            | Record::Positions { .. }
            | Record::Code { .. }
            | Record::Inlined { .. }
            | Record::CodePositions { .. }
            | Record::CodeTranslations { .. }
            | Record::Baseline { .. }
            | Record::BaselineOffsets { .. }
            | Record::CodeMoved { .. }
            | Record::Wasm { .. }
            | Record::Mapping { .. }
            | Record::Unmap { .. } => (false, 2 * bytes as u64),
            Record::Fork { .. } => (true, 3 * EVENT),
            _ => (true, EVENT),
        };
        let is_taken = room.take_if_there(bytes);
        if is_event && !is_taken {
            self.lose(EVENTS_BEYOND_LIMIT, 1);
        }
        is_taken
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Call {
                header,
                kind,
                duration,
                inner,
                callee,
                binary,
                parent,
                unfinished,
            } => {
                let (process, thread, start) = self.at(header);
                let kind = crossing_kind(kind);
                let callback = self.callback(header.pid, binary, kind, callee);
                let parent = self.parent(header.pid, binary, parent);
                self.recording.crossings.push(Crossing {
                    process,
                    thread,
                    start,
                    duration: duration.map(Nanoseconds),
                    self_time: duration.map(|d| Nanoseconds(d.saturating_sub(inner))),
                    callback,
                    kind,
                    parent,
                    unfinished,
                    stack: numbered(header.stack),
                });
            }
            Record::Serialization {
                header,
                origin,
                duration,
                inner,
                bytes,
                parent,
                nested,
            } => {
                let (process, thread, start) = self.at(header);
                let function = self.function(origin);
                let callback = self.parent(header.pid, origin.binary, parent);
                self.recording.serializations.push(Serialization {
                    process,
                    thread,
                    start,
                    duration: duration.map(Nanoseconds),
                    self_time: duration.map(|d| Nanoseconds(d.saturating_sub(inner))),
                    function,
                    bytes,
                    callback,
                    nested,
                    stack: numbered(header.stack),
                });
            }
            Record::Milestone {
                header,
                origin,
                number,
                timestamp,
            } => {
                let (process, thread, _) = self.at(header);
                let image = self.images.get(&origin.binary);
                // A process that executes another node is told by the first one's start.
                if let Some(image) = image {
                    let first = self.first_milestones.entry(process).or_insert(u64::MAX);
                    if timestamp < *first {
                        *first = timestamp;
                        self.recording.processes[process.0 as usize].node = Some(image.binary);
                    }
                }
                let plan = image.map(|i| &i.plan);
                let name = plan
                    .and_then(|p| p.milestones.iter().find(|m| m.0 == number))
                    .map(|m| snake_case(&m.1));
                let name = name.unwrap_or_else(|| format!("milestone_{number}"));
                if header.pid == header.tid {
                    self.notices.push(Notice::Milestone {
                        pid: header.pid,
                        name: name.clone(),
                        at: timestamp,
                    });
                }
                if self.room.as_ref().is_some_and(Room::is_full) {
                    return self.lose(EVENTS_BEYOND_LIMIT, 1);
                }
                self.recording.milestones.push(Milestone {
                    process,
                    thread,
                    name,
                    at: Nanoseconds(timestamp),
                });
            }
            Record::Span {
                header,
                origin,
                duration,
            } => {
                let (process, thread, start) = self.at(header);
                let name = match self.role(origin) {
                    Some(Role::Span { name }) => name.clone(),
                    _ => "(unknown)".into(),
                };
                if name == "node" && self.late.main_begins(process) {
                    return;
                }
                if name == "main environment" {
                    self.late.environment_begins(process);
                }
                let name = self.name(name.as_bytes());
                self.recording.spans.push(Span {
                    process,
                    thread,
                    name,
                    start,
                    duration: duration.map(Nanoseconds),
                });
            }
            Record::Lookup {
                header,
                is_load,
                path,
                ..
            } => {
                let (process, thread, at) = self.at(header);
                if is_load {
                    if let Some(name) = path {
                        let (requirer, loaded) = (self.name(b""), self.name(&name));
                        self.loads.push(Import {
                            process,
                            thread,
                            at,
                            requirer,
                            loaded,
                        });
                    }
                    return;
                }
                let path = self.text_or_unreadable(path);
                self.recording.lookups.push(Lookup {
                    process,
                    thread,
                    at,
                    path,
                    stack: numbered(header.stack),
                });
            }
            Record::CompileEnter {
                header,
                origin,
                path,
            } => {
                let _ = self.at(header);
                let (unit, returns) = self.compile_probe(origin);
                let mut path = path.unwrap_or_else(|| b"(unnamed)".to_vec());
                if unit == CompilationUnit::Builtin && !path.starts_with(b"node:") {
                    path.splice(..0, *b"node:");
                }
                let path = self.name(&path);
                let begun = Compiling {
                    path,
                    origin,
                    pid: header.pid,
                    stack: header.stack,
                };
                self.compiling.insert((header.tid, header.time), begun);
                if !returns {
                    self.end_compilation(header, None, 0, false);
                }
            }
            Record::Compile {
                header,
                duration,
                inner,
                cached,
                ..
            } => self.end_compilation(header, duration, inner, cached),
            Record::File {
                header,
                syscall,
                duration,
                result,
                descriptor,
                file,
                path,
            } => {
                self.file(header, syscall, duration, result, (descriptor, file), path);
            }
            Record::Fork {
                header,
                child_pid,
                child_tid: _,
                round,
            } if child_pid != header.pid => {
                let (parent, _, at) = self.at(header);
                // The holder may have announced the child before this record was read.
                if !self.is_announced(child_pid) {
                    self.forget(child_pid);
                }
                let child = self.process(child_pid, at.0);
                let entry = &mut self.recording.processes[child.0 as usize];
                entry.parent = Some(parent);
                entry.forked = at;
                if self.room.is_some() {
                    return; // its records are not for us
                }
                self.rounds.insert((child_pid, round), child);
                let inherited: Vec<_> = self
                    .descriptors
                    .iter()
                    .filter(|(k, _)| k.0 == parent)
                    .map(|(k, v)| (k.1, *v))
                    .collect();
                self.descriptors
                    .extend(inherited.into_iter().map(|(fd, path)| ((child, fd), path)));
                if let Some(directory) = self.directories.get(&parent).cloned() {
                    self.directories.insert(child, directory);
                }
            }
            Record::Fork { header, .. } => {
                let _ = self.at(header);
            }
            Record::Exec {
                header,
                path,
                mut arguments,
                truncated,
                ..
            } => {
                let (process, _, at) = self.at(header);
                if truncated {
                    cut(&mut arguments);
                }
                let absolute = self.absolute(process, (CURRENT_DIRECTORY, 0), &path);
                // Most are closed by it. Of those that are not the kernel tells what they are when they are used.
                self.descriptors.retain(|key, _| key.0 != process);
                self.outside.executes(header.pid);
                self.forget_callees(header.pid);
                self.notices.push(Notice::Exec {
                    pid: header.pid,
                    is_whole: !truncated,
                });
                let is_full = self.room.as_ref().is_some_and(Room::is_full);
                let entry = &mut self.recording.processes[process.0 as usize];
                if entry.forked.0 == 0 {
                    entry.forked = at;
                }
                if is_full && entry.execs.len() > 1 {
                    entry.execs.pop();
                    self.lose(EVENTS_BEYOND_LIMIT, 1);
                }
                let entry = &mut self.recording.processes[process.0 as usize];
                entry.execs.push(Exec {
                    at,
                    path: absolute,
                    arguments,
                });
            }
            Record::Environment { text, .. } => {
                (self.notices).extend(text.map(|text| Notice::Environment { text }));
            }
            Record::Exit { header, exit } => {
                let (process, _, at) = self.at(header);
                let cpu = self.cpu.entry(process).or_default();
                cpu.user = cpu.user.saturating_add(exit.user);
                cpu.system = cpu.system.saturating_add(exit.system);
                cpu.runtime = cpu.runtime.saturating_add(exit.runtime);
                let (user, system) = split_runtime(*cpu);
                if exit.last {
                    let entry = &mut self.recording.processes[process.0 as usize];
                    entry.exited = Some(at);
                    entry.user = Some(Nanoseconds(user));
                    entry.system = Some(Nanoseconds(system));
                    entry.max_rss_bytes = Some(exit.max_rss_pages.saturating_mul(page_size()));
                    let signal = exit.exit_code & 0x7f;
                    entry.signal = (signal != 0).then_some(signal);
                    entry.exit_status = (signal == 0).then_some((exit.exit_code >> 8) & 0xff);
                }
            }
            Record::IoUring { header } => {
                let _ = self.at(header);
                self.lose("io_uring_setups", 1);
            }
            Record::Import {
                header,
                requirer,
                loaded,
            } => {
                let (process, thread, at) = self.at(header);
                // Scripts have names when their records came: see finish_stacks.
                self.recording.imports.push(Import {
                    process,
                    thread,
                    at,
                    requirer: NameId(requirer),
                    loaded: NameId(loaded),
                });
            }
            Record::Continuation { header, event } => {
                let place = self.at(header);
                let stack = numbered(header.stack);
                self.continuations
                    .take(&mut self.recording, header, place, stack, event);
            }
            Record::Walk { .. }
            | Record::Function { .. }
            | Record::FunctionName { .. }
            | Record::Script { .. }
            | Record::Positions { .. }
            | Record::Code { .. }
            | Record::Inlined { .. }
            | Record::CodePositions { .. }
            | Record::CodeTranslations { .. }
            | Record::Baseline { .. }
            | Record::BaselineOffsets { .. }
            | Record::CodeMoved { .. }
            | Record::Wasm { .. }
            | Record::Source { .. } => {} // taken before
            Record::Sample {
                header,
                weight,
                ip,
                kernel,
            } => {
                let (process, thread, at) = self.at(header);
                self.leaves.sample(self.recording.samples.len(), ip, kernel);
                self.recording.samples.push(Sample {
                    process,
                    thread,
                    at,
                    weight: Nanoseconds(weight),
                    stack: numbered(header.stack),
                });
            }
            Record::Wait { header, wait } => {
                let (process, thread, start) = self.at(header);
                self.leaves.wait(self.recording.waits.len(), wait.ip);
                self.recording.waits.push(Wait {
                    process,
                    thread,
                    start,
                    duration: Nanoseconds(wait.duration),
                    runnable: Nanoseconds(wait.runnable.min(wait.duration)),
                    reason: waits::reason(&wait),
                    syscall: wait.syscall,
                    stack: numbered(header.stack),
                });
            }
            Record::Mapping { header, mapping } => {
                let _ = self.at(header);
                // The other kind is a program's, of which nothing lies outside.
                if let MappingKind::Mmap { .. } = mapping.kind {
                    let range = range_of((mapping.start, mapping.size));
                    self.forget_callees_in(header.pid, &range);
                    self.outside.map(header.pid, range, mapping.path.as_deref());
                }
            }
            Record::Unmap { header, range, to } => {
                let _ = self.at(header);
                for range in [range, to].map(range_of) {
                    if self.outside.unmap(header.pid, &range) {
                        self.forget_callees_in(header.pid, &range);
                    }
                }
            }
        }
    }

    fn at(&mut self, header: Header) -> (ProcessId, ThreadId, Nanoseconds) {
        self.last = self.last.max(header.time);
        (
            self.process(header.pid, header.time),
            ThreadId(header.tid),
            Nanoseconds(header.time),
        )
    }

    fn function(&mut self, origin: Origin) -> NameId {
        let name = match self.role(origin) {
            Some(Role::Serialization { function, .. }) => function.clone(),
            _ => "(unknown)".into(),
        };
        self.name(name.as_bytes())
    }

    fn text_or_unreadable(&mut self, path: Option<Vec<u8>>) -> NameId {
        match path {
            Some(path) => self.name(&path),
            None => {
                self.lose("paths_unreadable", 1);
                self.name(UNREADABLE)
            }
        }
    }

    fn compile_probe(&self, origin: Origin) -> (CompilationUnit, bool) {
        let probe = self
            .images
            .get(&origin.binary)
            .and_then(|i| i.plan.probes.get(origin.probe as usize));
        let unit = match probe.map(|p| &p.role) {
            Some(Role::Compile {
                unit: CompileUnit::Builtin,
                ..
            }) => CompilationUnit::Builtin,
            Some(Role::Compile {
                unit: CompileUnit::Function,
                ..
            }) => CompilationUnit::Function,
            Some(Role::Compile {
                unit: CompileUnit::Module,
                ..
            }) => CompilationUnit::Module,
            _ => CompilationUnit::Script,
        };
        (unit, probe.is_some_and(|p| p.with_return))
    }

    fn end_compilation(
        &mut self,
        header: Header,
        duration: Option<u64>,
        inner: u64,
        mut cached: bool,
    ) {
        let (process, thread, start) = self.at(header);
        let Some(begun) = self.compiling.remove(&(header.tid, header.time)) else {
            self.lose("compilations_unmatched", 1);
            return;
        };
        let Compiling {
            path,
            origin,
            stack,
            ..
        } = begun;
        let (unit, _) = self.compile_probe(origin);
        let mut inner = inner;
        // Node's loader of built-in modules calls V8's compiler for the same module: one compilation, not two.
        // It is this thread's last one; others may have compiled since.
        let latest = (self.recording.compilations.iter().rev())
            .take(COMPILING_AT_ONCE)
            .position(|last| (last.process, last.thread) == (process, thread));
        let latest = latest.map(|back| self.recording.compilations.len() - 1 - back);
        if let Some(at) = latest
            && unit == CompilationUnit::Builtin
            && self.recording.compilations[at].path == path
            && self.recording.compilations[at].start >= start
        {
            let last = self.recording.compilations.remove(at);
            cached |= last.cached;
            inner = inner.saturating_sub(last.duration.unwrap_or_default().0);
        }
        // From Node 24 on some built-in modules reach V8's compiler without the loader's function.
        let unit = match self.recording.name(path).starts_with(b"node:") {
            true => CompilationUnit::Builtin,
            false => unit,
        };
        self.recording.compilations.push(Compilation {
            process,
            thread,
            start,
            duration: duration.map(Nanoseconds),
            self_time: duration.map(|d| Nanoseconds(d.saturating_sub(inner))),
            path,
            unit,
            cached,
            stack: numbered(stack),
        });
    }

    fn file(
        &mut self,
        header: Header,
        syscall: u32,
        duration: u64,
        result: i64,
        (descriptor, file): (i32, u32),
        path: Option<Vec<u8>>,
    ) {
        let (process, thread, start) = self.at(header);
        let path = match path.filter(|p| !p.is_empty()) {
            Some(path) => {
                let path = self.absolute(process, (descriptor, file), &path);
                self.name(&path)
            }
            None => match self.path_of(process, (descriptor, file), start) {
                Some(known) => {
                    // A duplicate, or inherited: so that its close has a path, too.
                    if file != 0 {
                        let unknown = Opened {
                            path: known,
                            at: Nanoseconds(0),
                            before: None,
                        };
                        let key = (process, descriptor);
                        self.descriptors.entry(key).or_insert(unknown).path = known;
                    }
                    known
                }
                None => {
                    if file != 0 {
                        self.descriptors.remove(&(process, descriptor));
                    }
                    self.name(format!("fd:{descriptor}").as_bytes())
                }
            },
        };
        let operation = match syscall {
            0 | 17 | 19 | 295 => FileOperation::Read,
            2 | 85 | 257 | 437 => FileOperation::Open,
            3 => FileOperation::Close,
            4 | 5 | 6 | 262 | 332 => FileOperation::Stat,
            21 | 269 | 439 => FileOperation::Access,
            89 | 267 => FileOperation::Readlink,
            _ => {
                // chdir, fchdir: no file operation, but paths depend on it.
                if result == 0 {
                    let path = self.recording.name(path).to_vec();
                    let is_real = false;
                    self.directories
                        .insert(process, Directory { path, is_real });
                }
                return;
            }
        };
        match operation {
            FileOperation::Open if result >= 0 => {
                let key = (process, result as i32);
                // Not closed yet, as far as is known: the record of that comes later.
                let before = self.descriptors.get(&key).map(|opened| opened.path);
                let at = Nanoseconds(start.0 + duration);
                self.descriptors.insert(key, Opened { path, at, before });
                if file != 0 {
                    self.open_files.insert(file, path);
                }
            }
            FileOperation::Close if result == 0 => {
                if let Entry::Occupied(mut opened) = self.descriptors.entry((process, descriptor)) {
                    match opened.get().at > start {
                        true => opened.get_mut().before = None,
                        false => drop(opened.remove()),
                    }
                }
            }
            _ => {}
        }
        self.recording.files.push(FileAccess {
            process,
            thread,
            start,
            duration: Nanoseconds(duration),
            operation,
            syscall: syscall as u16,
            path,
            result,
            stack: numbered(header.stack),
        });
    }

    /// The path that a descriptor was opened by: by what the kernel says it is, and of one that is closed by its number.
    fn path_of(
        &self,
        process: ProcessId,
        (descriptor, file): (i32, u32),
        at: Nanoseconds,
    ) -> Option<NameId> {
        if file != 0 {
            return self.open_files.get(&file).copied();
        }
        let opened = self.descriptors.get(&(process, descriptor))?;
        // Another thread has opened a file with the same number by the time that the close was told.
        match opened.at > at {
            true => opened.before,
            false => Some(opened.path),
        }
    }

    /// The path as an absolute one, where the directory it starts from is known.
    fn absolute(&self, process: ProcessId, directory: (i32, u32), path: &[u8]) -> Vec<u8> {
        if path.starts_with(b"/") {
            return path.to_vec();
        }
        let base = match directory.0 {
            CURRENT_DIRECTORY => {
                let directory = self.directories.get(&process);
                directory.map(|directory| (directory.path.as_slice(), directory.is_real))
            }
            _ => self
                .path_of(process, directory, Nanoseconds(u64::MAX))
                .map(|name| (self.recording.name(name), false)),
        };
        let Some((base, is_real)) = base else {
            return path.to_vec();
        };
        let (mut whole, mut rest) = (base.to_vec(), path);
        loop {
            if let Some(tail) = rest.strip_prefix(b"./") {
                rest = tail;
            } else if is_real && (rest == b".." || rest.starts_with(b"../")) {
                let parent = whole.iter().rposition(|b| *b == b'/').unwrap_or(0);
                whole.truncate(parent.max(1));
                rest = rest.get(3..).unwrap_or_default();
            } else {
                break;
            }
            while let Some(tail) = rest.strip_prefix(b"/") {
                rest = tail;
            }
        }
        if rest.is_empty() {
            return whole;
        }
        if !whole.ends_with(b"/") {
            whole.push(b'/');
        }
        whole.extend_from_slice(rest);
        whole
    }

    /// Whether some process has not ended, as far as its records tell.
    pub fn goes_on(&self) -> bool {
        let mut processes = self.recording.processes.iter();
        processes.any(|p| p.run == self.run && p.exited.is_none())
    }

    /// Takes what had not ended when the trace did.
    pub fn add_unended(&mut self, unended: &Unended) {
        for w in &unended.waits {
            let (header, wait) = (w.header, w.wait);
            self.sort_in(Record::Wait { header, wait });
        }
        let calls = unended.calls.iter().map(|call| Record::Call {
            header: call.header,
            kind: call.kind,
            duration: Some(call.duration),
            inner: call.inner,
            callee: call.callee,
            binary: call.binary,
            parent: call.parent,
            unfinished: true,
        });
        calls.for_each(|record| self.sort_in(record));
    }

    /// Takes the sums of calls that were not written one by one.
    pub fn add_sums(&mut self, sums: &[Sum]) {
        for sum in sums {
            let of_round = self.rounds.get(&(sum.pid, sum.round)).copied();
            let process = of_round.unwrap_or_else(|| self.process(sum.pid, 0));
            match sum.family {
                SumFamily::Crossings => {
                    let kind = crossing_kind(sum.kind);
                    let callback = self.callback(sum.pid, sum.origin.binary, kind, sum.callee);
                    self.recording.crossing_sums.push(CrossingSum {
                        process,
                        callback,
                        kind,
                        phase: sum.phase,
                        calls: sum.calls,
                        total: Nanoseconds(sum.total),
                        self_time: Nanoseconds(sum.own),
                        timed: sum.timed,
                        stack: numbered(sum.stack),
                    });
                }
                SumFamily::Serialization => {
                    let function = self.function(sum.origin);
                    let callback = self.parent(sum.pid, sum.origin.binary, sum.callee);
                    self.recording.serialization_sums.push(SerializationSum {
                        process,
                        function,
                        callback,
                        phase: sum.phase,
                        calls: sum.calls,
                        bytes: sum.bytes,
                        total: Nanoseconds(sum.total),
                        self_time: Nanoseconds(sum.own),
                        stack: numbered(sum.stack),
                    });
                }
                SumFamily::CallbackEntries => {}
            }
        }
    }

    /// Compares the entries of callbacks with the crossings into them, callback by callback.
    pub fn verify(&mut self, sums: &[Sum]) -> Verification {
        let mut counts: BTreeMap<CallbackId, (u64, u64)> = BTreeMap::new();
        for sum in sums
            .iter()
            .filter(|s| s.family == SumFamily::CallbackEntries)
        {
            let id = self.callback(sum.pid, sum.origin.binary, CrossingKind::Slow, sum.callee);
            counts.entry(id).or_default().0 += sum.calls;
        }
        let recording = &self.recording;
        counts.retain(|id, _| {
            let callback = recording.callbacks.get(id.0 as usize);
            callback.is_none_or(|callback| {
                let name = (callback.binding.as_str(), callback.function.as_str());
                !CALLED_BY_CALLBACKS.contains(&name)
            })
        });
        let counted = |kind| matches!(kind, CrossingKind::Slow | CrossingKind::Construct);
        for crossing in recording.crossings.iter().filter(|c| counted(c.kind)) {
            counts.entry(crossing.callback).or_default().1 += 1;
        }
        for sum in recording.crossing_sums.iter().filter(|c| counted(c.kind)) {
            counts.entry(sum.callback).or_default().1 += sum.calls;
        }
        let names = &recording.callbacks;
        let differences = counts
            .iter()
            .filter(|(_, (entries, crossings))| entries != crossings)
            .filter_map(|(id, n)| {
                let callback = names.get(id.0 as usize)?;
                Some((
                    callback.binding.clone(),
                    callback.function.clone(),
                    n.0,
                    n.1,
                ))
            });
        Verification {
            entries: counts.values().map(|n| n.0).sum(),
            crossings: counts.values().map(|n| n.1).sum(),
            differences: differences.collect(),
        }
    }

    /// Ends what is still under way when the trace ends.
    pub fn finish(&mut self) {
        for (process, why) in self.late.finish(&mut self.recording) {
            self.has_hole(process, why);
        }
        waits::tell_children(&mut self.recording, self.run);
        let open: Vec<_> = self.compiling.keys().copied().collect();
        for (tid, time) in open {
            let pid = self
                .compiling
                .get(&(tid, time))
                .map_or(self.root, |c| c.pid);
            self.end_compilation(
                Header {
                    pid,
                    tid,
                    phase: 0,
                    time,
                    stack: 0,
                },
                None,
                0,
                false,
            );
        }
    }
}

impl Assembler {
    /// Folder for what is worth keeping of symbols.
    pub fn keep_names_in(&mut self, folder: &Path) {
        self.symbols.keep_in(Some(folder));
    }

    /// Looks up names that the end will ask for, while the program runs.
    pub fn prepare(&mut self) {
        self.symbols.prepare();
        self.tell_sources();
        self.stacks.prepare(&mut self.symbols, &mut self.sources);
    }

    fn tell_sources(&mut self) {
        for (pid, index) in &self.image_of {
            if let Some(image) = self.images.get(index) {
                self.sources.runs(*pid, &image.plan);
            }
        }
    }

    /// Puts the recording's stacks in place of the kernel's numbers, when all records are there. Returns what looks up what is known of
    /// where the scripts' source maps are.
    pub fn finish_stacks(&mut self) -> impl FnOnce() -> source_maps::Known + use<> {
        self.tell_sources();
        let mut sources = std::mem::take(&mut self.sources);
        let stacks = std::mem::take(&mut self.stacks);
        let leaves = std::mem::take(&mut self.leaves);
        let lost = stacks.finish(
            &mut self.recording,
            self.run,
            &mut self.symbols,
            &mut sources,
            leaves,
        );
        self.recording.imports.append(&mut self.loads);
        if lost > 0 {
            self.lose("stacks", lost);
        }
        let sources_lost = stacks.sources_lost(sources.beyond());
        if sources_lost > 0 {
            self.lose("sources", sources_lost);
        }
        move || source_maps::Known {
            files: sources.files(),
            texts: stacks.references(),
        }
    }
}

/// Methods with the signature of a callback that callbacks call (`StreamBase::JSMethod<…>` those of streams): V8 calls none of them, so no crossing leads to their entries. A crossing
/// into one would still be told.
const CALLED_BY_CALLBACKS: [(&str, &str); 9] = [
    ("stream_base", "ReadStartJS"),
    ("stream_base", "ReadStopJS"),
    ("stream_base", "Shutdown"),
    ("stream_base", "UseUserBuffer"),
    ("stream_base", "WriteBuffer"),
    ("stream_base", "Writev"),
    ("sqlite", "StatementSync::BindParams"),
    ("sqlite", "Statement::BindParams"),
    ("v8", "NoExtension"),
];

/// Of arguments that were longer than is told. The last one goes as a whole: of a secret that was cut, nobody can tell that it is one.
fn cut(arguments: &mut Vec<Vec<u8>>) {
    arguments.pop();
    arguments.push("…".into());
}

fn range_of((start, size): (u64, u64)) -> Range<u64> {
    start..start.saturating_add(size)
}

fn crossing_kind(kind: u8) -> CrossingKind {
    match kind {
        1 => CrossingKind::Fast,
        2 => CrossingKind::Getter,
        3 => CrossingKind::Construct,
        4 => CrossingKind::ToJs,
        _ => CrossingKind::Slow,
    }
}

/// User and system time: the kernel counts them by ticks, and their sum by its clock; scaled as `getrusage` does.
fn split_runtime(cpu: Cpu) -> (u64, u64) {
    let ticks = cpu.user.saturating_add(cpu.system);
    if ticks == 0 {
        return (cpu.runtime, 0);
    }
    let system = (u128::from(cpu.runtime) * u128::from(cpu.system) / u128::from(ticks)) as u64;
    (cpu.runtime - system.min(cpu.runtime), system)
}

fn page_size() -> u64 {
    // SAFETY: no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Rooms;
    use nodeprof_bpf::MappingRecord;

    #[test]
    fn user_and_system_time_add_up_to_the_exact_run_time() {
        let (user, system) = split_runtime(Cpu {
            user: 3,
            system: 1,
            runtime: 1001,
        });
        assert_eq!(user + system, 1001);
        assert_eq!(system, 250);
        assert_eq!(
            split_runtime(Cpu {
                user: 0,
                system: 0,
                runtime: 7
            }),
            (7, 0)
        );
    }

    #[test]
    fn callbacks_outside_the_binary_are_each_processs_own() {
        // No process has these numbers.
        let [one, other, ended, unknown] = [0, 1, 2, 3].map(|n| u32::MAX - n);
        let mut a = Assembler::new(Recording::default(), RunId(0), 1, Path::new("/app"));
        a.outside.map(one, 0x1000..0x2000, Some(b"/a/one.node"));
        a.outside.map(other, 0x1000..0x2000, Some(b"/a/other.node"));
        let at = Some(Callee::Address(0x1010));
        let mut name = |pid| {
            let id = a.callback(pid, NO_IMAGE, CrossingKind::Slow, at);
            a.recording.callbacks[id.0 as usize].binding.clone()
        };
        assert_eq!(name(unknown), "(unknown)");
        assert_eq!(name(one), "(add-on) one.node");
        assert_eq!(name(other), "(add-on) other.node");
        assert_eq!(name(one), "(add-on) one.node");
        // The best that is known.
        assert_eq!(name(ended), "(add-on) other.node");
        // It executes something else, and has another one there.
        a.outside.executes(one);
        a.outside.map(one, 0x1000..0x2000, Some(b"/a/third.node"));
        a.forget_callees(one);
        let third = a.callback(one, NO_IMAGE, CrossingKind::Slow, at);
        assert_eq!(
            a.recording.callbacks[third.0 as usize].binding,
            "(add-on) third.node"
        );
        // It closes that, and opens another one that lies in its place.
        let header = Header {
            pid: one,
            tid: one,
            phase: 0,
            time: 1,
            stack: 0,
        };
        let unmap = Record::Unmap {
            header,
            range: (0x800, 0x1000),
            to: (0, 0),
        };
        let map = |start, name: &str| Record::Mapping {
            header,
            mapping: MappingRecord {
                kind: MappingKind::Mmap { offset: 0 },
                start,
                size: 0x1000,
                inode: 1,
                file_size: 0x1000,
                path: Some(format!("/a/{name}.node").into_bytes()),
            },
        };
        for (record, expected) in [
            (map(0x1000, "fourth"), "fourth"),
            (unmap, "fourth"), // the best that is known of what is gone
            (map(0x800, "fifth"), "fifth"),
            (map(0x2000, "beside"), "fifth"),
        ] {
            a.take_record(record, 100);
            let id = a.callback(one, NO_IMAGE, CrossingKind::Slow, at);
            let binding = &a.recording.callbacks[id.0 as usize].binding;
            assert_eq!(*binding, format!("(add-on) {expected}.node"));
        }
    }

    /// Calls of process 1.
    fn sum_of(family: SumFamily, kind: u8, address: u64, calls: u64) -> Sum {
        Sum {
            family,
            pid: 1,
            round: 0,
            stack: 0,
            kind,
            phase: 0,
            callee: Some(Callee::Address(address)),
            origin: Origin {
                binary: NO_IMAGE,
                probe: 0,
            },
            calls,
            timed: 0,
            total: 0,
            own: 0,
            bytes: 0,
        }
    }

    #[test]
    fn sums_are_those_of_the_process_that_had_the_number_then() {
        let mut a = Assembler::new(Recording::default(), RunId(0), 1, Path::new("/app"));
        // The last one, a grandchild, has the number of the first process, which has ended.
        a.recording.processes[0].exited = Some(Nanoseconds(25));
        for (time, parent, child, round) in [(10, 1, 7, 3), (20, 1, 7, 4), (30, 7, 1, 5)] {
            let fork = Record::Fork {
                header: Header {
                    pid: parent,
                    tid: parent,
                    time,
                    phase: 0,
                    stack: 0,
                },
                child_pid: child,
                child_tid: child,
                round,
            };
            a.take_record(fork, 100);
        }
        let sum = |pid, round, calls| Sum {
            pid,
            round,
            ..sum_of(SumFamily::Crossings, 0, 0x1000, calls)
        };
        // Of the fork of the last one no record is there.
        a.add_sums(&[
            sum(7, 4, 2),
            sum(7, 3, 1),
            sum(1, 0, 5),
            sum(1, 5, 6),
            sum(7, 9, 4),
        ]);
        let of = |sum: &CrossingSum| (sum.process.0, sum.calls);
        let sums: Vec<_> = a.recording.crossing_sums.iter().map(of).collect();
        assert_eq!(sums, [(2, 2), (1, 1), (0, 5), (3, 6), (2, 4)]);
    }

    #[test]
    fn callbacks_that_are_entered_otherwise_than_by_crossings_are_told() {
        let mut a = Assembler::new(Recording::default(), RunId(0), 1, Path::new("/app"));
        for (start, name) in [(0x1000, "equal"), (0x2000, "direct"), (0x3000, "unseen")] {
            let path = format!("/a/{name}.node");
            a.outside
                .map(1, start..start + 0x1000, Some(path.as_bytes()));
        }
        let construct = CrossingKind::Construct as u8;
        let getter = CrossingKind::Getter as u8;
        let sums = [
            sum_of(SumFamily::CallbackEntries, 0, 0x1010, 5),
            sum_of(SumFamily::Crossings, 0, 0x1010, 3),
            sum_of(SumFamily::Crossings, construct, 0x1010, 2),
            // C++ called it twice itself. Getters have no entry that is counted.
            sum_of(SumFamily::CallbackEntries, 0, 0x2010, 3),
            sum_of(SumFamily::Crossings, 0, 0x2010, 1),
            sum_of(SumFamily::Crossings, getter, 0x2010, 2),
            sum_of(SumFamily::Crossings, 0, 0x3010, 4),
        ];
        a.add_sums(&sums);
        let verification = a.verify(&sums);
        assert_eq!(verification.entries, 8);
        assert_eq!(verification.crossings, 10);
        let differing = |name: &str, entries, crossings| {
            let binding = format!("(add-on) {name}.node");
            (binding, "0x10".to_owned(), entries, crossings)
        };
        assert_eq!(
            verification.differences,
            [differing("direct", 3, 1), differing("unseen", 0, 4)]
        );
    }

    #[test]
    fn lost_reordered_and_nonsensical_records_never_panic_and_can_be_shown() {
        // Reproducible without a dependency.
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut a = Assembler::new(Recording::default(), RunId(0), 1, Path::new("/app"));
        a.recording
            .runs
            .push(nodeprof_profile::recording::Run::default());
        for _ in 0..30_000 {
            let mut bytes: Vec<u8> = (0..64 + next() % 200).map(|_| next() as u8).collect();
            // Types and process ids in a range where records meet each other; everything else at random.
            bytes[0] = (next() % 25) as u8;
            bytes[4..8].copy_from_slice(&((next() % 5) as u32 + 1).to_le_bytes());
            bytes[8..12].copy_from_slice(&((next() % 7) as u32 + 1).to_le_bytes());
            if next() % 2 == 0 {
                bytes[44..48].copy_from_slice(&((next() % 200) as u32).to_le_bytes());
            }
            a.take(&bytes);
            if next() % 64 == 0 {
                a.attached((next() % 5) as u32 + 1, (next() % 3) as u8);
            }
        }
        a.finish();
        drop(a.finish_stacks());
        assert!(a.recording.check_references().is_ok());
        assert!(a.recording.crossings.len() > 100 && a.recording.processes.len() > 4);
        let profile = nodeprof_profile::Profile::from_recording(&a.recording);
        assert_eq!(profile.runs.len(), 1);
    }

    #[test]
    fn a_start_that_does_something_without_end_is_kept_up_to_a_limit_and_the_rest_is_counted() {
        let one = Recording {
            runs: vec![nodeprof_profile::recording::Run::default()],
            ..Recording::default()
        };
        let mut a = Assembler::new(one, RunId(0), 1, Path::new("/app"));
        let rooms = Rooms::new(4 << 20, 1 << 40);
        a.keep_within(rooms.enter());
        let header = |time| Header {
            pid: 1,
            tid: 1,
            phase: 0,
            time,
            stack: 0,
        };
        let exec = |time| Record::Exec {
            header: header(time),
            user: 0,
            path: b"/bin/node".to_vec(),
            arguments: vec![time.to_string().into_bytes()],
            truncated: false,
        };
        let stat = |time: u64| Record::File {
            header: header(time),
            syscall: 4,
            duration: 1,
            result: -2,
            descriptor: CURRENT_DIRECTORY,
            file: 0,
            path: Some(format!("missing/{time}").into_bytes()),
        };
        a.take_record(exec(1), 100);
        for time in 2..100_002 {
            a.take_record(stat(time), 100);
        }
        let kept = a.recording.files.len();
        assert!((5_000..20_000).contains(&kept), "{kept}");
        assert!(a.recording.names.len() <= kept + 1);
        assert_eq!(a.losses[EVENTS_BEYOND_LIMIT], 100_000 - kept as u64);
        // Children, other programs in its place, folders that it goes to.
        for time in 0..1_000 {
            a.take_record(exec(200_000 + time), 100);
            let fork = Record::Fork {
                header: header(300_000 + time),
                child_pid: 1_000 + time as u32,
                child_tid: 1_000 + time as u32,
                round: 0,
            };
            a.take_record(fork, 100);
            let Record::File { header, .. } = stat(time) else {
                continue;
            };
            let chdir = Record::File {
                header,
                syscall: 80,
                duration: 1,
                result: 0,
                descriptor: CURRENT_DIRECTORY,
                file: 0,
                path: Some(b"a/..".to_vec()),
            };
            a.take_record(chdir, 100);
        }
        assert_eq!(a.recording.processes.len(), 1);
        let execs = &a.recording.processes[0].execs;
        let arguments: Vec<_> = execs.iter().map(|exec| exec.arguments[0].clone()).collect();
        assert_eq!(arguments, [b"1".to_vec(), b"200999".to_vec()]);
        // Who looks after it hears of each, and of the end.
        assert_eq!(a.take_notices().len(), 1_001);
        assert_eq!(a.recording.names.len(), kept);
        // A compilation that was under way ends.
        let Assembler { compiling, .. } = &mut a;
        let begun = Compiling {
            path: NameId(0),
            origin: Origin {
                binary: 0,
                probe: 0,
            },
            pid: 1,
            stack: 0,
        };
        compiling.insert((1, 7), begun);
        for time in [7, 8] {
            let end = Record::Compile {
                header: header(time),
                origin: Origin {
                    binary: 0,
                    probe: 0,
                },
                duration: Some(1),
                inner: 0,
                cached: false,
            };
            a.take_record(end, 100);
        }
        assert_eq!(a.recording.compilations.len(), 1);
        assert!(!a.losses.contains_key("compilations_unmatched"));
        a.finish();
        drop(a.finish_stacks());
        assert_eq!(a.recording.check_references().err(), None);
    }

    #[test]
    fn an_argument_that_was_cut_is_left_out() {
        let mut arguments: Vec<Vec<u8>> = ["node", "a.js", "--registry=https://ada:hunter2"]
            .map(Into::into)
            .to_vec();
        cut(&mut arguments);
        assert_eq!(arguments, ["node", "a.js", "…"].map(Vec::from));
        // None could be read.
        let mut none = Vec::new();
        cut(&mut none);
        assert_eq!(none, [Vec::from("…")]);
    }

    #[test]
    fn milestone_names_are_those_of_the_report() {
        assert_eq!(snake_case("bootstrapComplete"), "bootstrap_complete");
        assert_eq!(snake_case("node_start"), "node_start");
    }

    #[test]
    fn a_relative_path_is_taken_from_its_directory() {
        let mut a = Assembler::new(Recording::default(), RunId(0), 1, Path::new("/app"));
        let root = ProcessId(0);
        let here = (CURRENT_DIRECTORY, 0);
        assert_eq!(a.absolute(root, here, b"./x.js"), b"/app/x.js");
        let path = a.name(b"/lib");
        let opened = Opened {
            path,
            at: Nanoseconds(5),
            before: None,
        };
        a.descriptors.insert((root, 5), opened);
        assert_eq!(a.absolute(root, (5, 0), b"y"), b"/lib/y");
        assert_eq!(a.absolute(root, (6, 0), b"y"), b"y");
        assert_eq!(a.absolute(root, (5, 0), b"/z"), b"/z");
        a.open_files.insert(77, path);
        assert_eq!(a.absolute(root, (6, 77), b"y"), b"/lib/y");
        assert_eq!(a.absolute(root, (5, 78), b"y"), b"y");
    }

    #[test]
    fn texts_of_scripts_have_a_limit_and_the_rest_is_counted() {
        let mut a = Assembler::new(Recording::default(), RunId(0), 1, Path::new("/app"));
        a.keep_within(Rooms::new(1 << 40, 3 << 20).enter());
        for script in 0..5 {
            let source = Record::Source {
                header: Header {
                    pid: 1,
                    tid: 1,
                    phase: 0,
                    time: 1,
                    stack: 0,
                },
                script,
                two_byte: false,
                text: nodeprof_bpf::Piece {
                    offset: 0,
                    whole: 1 << 20,
                    bytes: vec![b' '; 1 << 20],
                },
            };
            a.take_record(source, 1 << 20);
        }
        drop(a.finish_stacks());
        assert_eq!(a.losses["sources"], 2);
    }

    #[test]
    fn a_path_that_leads_upwards_leads_to_the_folder_around() {
        let from = |directory: &str, is_real, path: &str| {
            let mut a = Assembler::new(Recording::default(), RunId(0), 1, Path::new(directory));
            a.directories.insert(
                ProcessId(0),
                Directory {
                    path: directory.into(),
                    is_real,
                },
            );
            let path = a.absolute(ProcessId(0), (CURRENT_DIRECTORY, 0), path.as_bytes());
            String::from_utf8(path).expect("text")
        };
        assert_eq!(from("/a/b", true, "../x"), "/a/x");
        assert_eq!(from("/a/b", true, ".././..//x"), "/x");
        assert_eq!(from("/a/b", true, "../../.."), "/");
        assert_eq!(from("/a/b", true, ".."), "/a");
        assert_eq!(from("/", true, "../x"), "/x");
        // What lies between may be a link.
        assert_eq!(from("/a", true, "link/../x"), "/a/link/../x");
        // So may the folder that a program went to by its name: the kernel goes up from what the link leads to.
        assert_eq!(from("/link", false, "./../x"), "/link/../x");
    }
}
