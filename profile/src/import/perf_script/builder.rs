//! From lines to a recording.

use std::collections::{HashMap, HashSet};

use super::jit::{self, Code};
use super::line::{self, number, split_last};
use super::{ImportError, Options};
use crate::Recording;
use crate::recording::{
    Binary, BinaryId, Exec, FamilyState, Frame, FrameId, FrameKind, Loss, NameId, Nanoseconds,
    Process, ProcessId, Run, RunId, Sample, Stack, StackId, ThreadId, Tier,
};

/// What only nodeprof's own probes see.
const UNKNOWN_TO_PERF: [&str; 7] = [
    "phases",
    "crossings",
    "package-json",
    "files",
    "serialization",
    "compile",
    "off-cpu",
];

/// Their reason.
const HAS_SAMPLES_ONLY: &str =
    "imported from perf script, which has samples only; type: nodeprof trace -- COMMAND";

/// Weight of a sample of which neither period nor frequency is known.
const ASSUMED_WEIGHT: u64 = 1_000_000;

/// perf walks this many frames and no more (`kernel.perf_event_max_stack`).
const DEEPEST_STACK: usize = 127;

/// The kernel's half of the addresses (x86-64, arm64).
const KERNEL_ADDRESS: u64 = 1 << 63;

/// A thread that perf does not know (`-1`).
const NO_THREAD: u32 = u32::MAX;

type TooMany = &'static str;

/// Numbers things in the order in which they come.
struct Interner<T> {
    ids: HashMap<T, u32>,
    things: Vec<T>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            ids: HashMap::new(),
            things: Vec::new(),
        }
    }
}

impl<T: std::hash::Hash + Eq + Clone> Interner<T> {
    fn id<Q>(&mut self, thing: &Q, what: TooMany) -> Result<u32, TooMany>
    where
        T: std::borrow::Borrow<Q>,
        Q: std::hash::Hash + Eq + ToOwned<Owned = T> + ?Sized,
    {
        if let Some(id) = self.ids.get(thing) {
            return Ok(*id);
        }
        let id = u32::try_from(self.things.len())
            .ok()
            .filter(|id| *id < u32::MAX)
            .ok_or(what)?;
        self.ids.insert(thing.to_owned(), id);
        self.things.push(thing.to_owned());
        Ok(id)
    }
}

/// A frame before its object is known to be node or not: ids of texts.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RawFrame {
    symbol: Option<u32>,
    object: Option<u32>,
    kernel: bool,
    inlined: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RawStack {
    caller: Option<u32>,
    frame: u32,
    truncated: bool,
}

struct RawSample {
    thread: u32,
    event: u32,
    at: Option<Nanoseconds>,
    period: Option<u64>,
    stack: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Thread {
    pid: Option<u32>,
    tid: u32,
}

/// What perf's other records tell of a process.
#[derive(Default)]
struct ProcessNotes {
    parent: Option<u32>,
    forked: Option<Nanoseconds>,
    exited: Option<Nanoseconds>,
    execs: Vec<(Nanoseconds, Vec<u8>)>,
    /// The last exec has the name of its thread still, not yet its file's.
    unnamed_exec: bool,
}

/// A sample whose frames are still to come.
struct Open {
    sample: RawSample,
    /// Innermost first.
    frames: Vec<RawFrame>,
}

/// A recording as it grows.
#[derive(Default)]
pub(super) struct Builder {
    texts: Interner<Vec<u8>>,
    frames: Interner<RawFrame>,
    stacks: Interner<RawStack>,
    threads: Interner<Thread>,
    events: Interner<Vec<u8>>,
    /// Name that a thread had first, by its id.
    comms: HashMap<u32, Vec<u8>>,
    samples: Vec<RawSample>,
    open: Option<Open>,
    /// The record above was no sample: frames may follow, and mean nothing.
    skipping: bool,
    notes: HashMap<u32, ProcessNotes>,
    /// Processes of threads, by the records of their creation.
    forked_threads: HashMap<u32, u32>,
    command: Vec<Vec<u8>>,
    arch: String,
    hz: Option<u32>,
    lost: u64,
    cut: u64,
}

impl Builder {
    /// Whether frames may come.
    pub(super) fn in_sample(&self) -> bool {
        self.open.is_some() || self.skipping
    }

    /// The text ends within a line.
    pub(super) fn cut(&mut self) {
        self.open = None;
        self.cut = 1;
    }

    /// `cmdline : perf record …` and the like, of `perf script --header`.
    pub(super) fn header(&mut self, text: &[u8]) {
        let Some(place) = text.windows(3).position(|three| three == b" : ") else {
            return;
        };
        let value = text[place + 3..].trim_ascii();
        match text[..place].trim_ascii() {
            b"cmdline" => {
                self.command = value
                    .split(u8::is_ascii_whitespace)
                    .filter(|word| !word.is_empty())
                    .map(<[u8]>::to_vec)
                    .collect();
            }
            b"arch" => self.arch = String::from_utf8_lossy(value).into_owned(),
            b"event" => {
                let text = String::from_utf8_lossy(value);
                let field = |name: &str| {
                    let behind = text.split_once(name)?.1;
                    let digits = behind.split(|c: char| !c.is_ascii_digit()).next()?;
                    digits.parse::<u32>().ok()
                };
                // With a fixed period the same field is that period.
                if field(", freq = ") == Some(1) {
                    let hz = field("sample_freq } = ").filter(|hz| *hz > 0);
                    self.hz = self.hz.or(hz);
                }
            }
            _ => {}
        }
    }

    pub(super) fn event(&mut self, event: &line::Event<'_>) -> Result<(), TooMany> {
        if let Some(kind) = event.name.strip_prefix(b"PERF_RECORD_") {
            self.skipping = true;
            self.record(kind, event);
            return Ok(());
        }
        let thread = Thread {
            pid: event.pid.filter(|pid| *pid != NO_THREAD),
            tid: event.tid,
        };
        let thread = self.threads.id(&thread, "threads")?;
        self.comms
            .entry(thread)
            .or_insert_with(|| event.comm.to_vec());
        let sample = RawSample {
            thread,
            event: self.events.id(event.name, "events")?,
            at: event.at,
            period: event.period,
            stack: None,
        };
        self.open = Some(Open {
            sample,
            frames: Vec::new(),
        });
        // Without a call chain the frame follows; a tracepoint's fields are no frame.
        match line::parse_frame(event.rest) {
            Some(frame) if frame.symbol.is_some() || frame.object.is_some() => self.frame(&frame),
            _ => Ok(()),
        }
    }

    pub(super) fn frame(&mut self, frame: &line::Frame<'_>) -> Result<(), TooMany> {
        if self.open.is_none() {
            return Ok(());
        }
        let mut text =
            |bytes: Option<&[u8]>| bytes.map(|bytes| self.texts.id(bytes, "names")).transpose();
        let raw = RawFrame {
            symbol: text(frame.symbol)?,
            object: text(frame.object)?,
            // An address that nothing is known of is more often a lost chain than the kernel.
            kernel: match frame.object {
                Some(object) if object.starts_with(b"[kernel") => true,
                Some(object) if object.starts_with(b"[guest.kernel") => true,
                None if frame.symbol.is_none() => false,
                _ => frame.address >= KERNEL_ADDRESS,
            },
            inlined: frame.inlined,
        };
        if let Some(open) = &mut self.open {
            open.frames.push(raw);
        }
        Ok(())
    }

    pub(super) fn end_of_sample(&mut self) -> Result<(), TooMany> {
        self.skipping = false;
        let Some(Open { mut sample, frames }) = self.open.take() else {
            return Ok(());
        };
        // Inlined functions perf adds after the walk.
        let walked = frames.iter().filter(|frame| !frame.inlined).count();
        let mut caller = None;
        let mut object = None;
        for (depth, mut frame) in frames.iter().copied().rev().enumerate() {
            // An inlined function lies in the object of the one that it was inlined into.
            if frame.inlined {
                frame.object = object;
            }
            object = frame.object;
            let stack = RawStack {
                caller,
                frame: self.frames.id(&frame, "frames")?,
                truncated: depth == 0 && walked >= DEEPEST_STACK,
            };
            caller = Some(self.stacks.id(&stack, "stacks")?);
        }
        sample.stack = caller;
        if self.samples.len() >= u32::MAX as usize {
            return Err("samples");
        }
        self.samples.push(sample);
        Ok(())
    }

    /// Records of perf other than samples (`--show-task-events`, `--show-mmap-events`, `--show-lost-events`).
    fn record(&mut self, kind: &[u8], event: &line::Event<'_>) {
        let at = event.at.unwrap_or_default();
        // `FORK(CHILD:TID):(PARENT:TID)`
        let ids = |text: &[u8]| -> Option<[u32; 3]> {
            let (children, parents) = split_last(text.strip_suffix(b")")?, b'(')?;
            let child = children.strip_prefix(b"(")?.strip_suffix(b"):")?;
            let (pid, tid) = split_last(child, b':')?;
            let parent = split_last(parents, b':')?.0;
            Some([number(pid)?, number(tid)?, number(parent)?])
        };
        if let Some([pid, tid, parent]) = kind.strip_prefix(b"FORK").and_then(ids) {
            if pid != tid {
                self.forked_threads.insert(tid, pid);
                return;
            }
            let note = self.notes.entry(pid).or_default();
            note.forked = Some(at);
            note.parent = Some(parent).filter(|parent| *parent != pid);
        } else if let Some([pid, tid, _]) = kind.strip_prefix(b"EXIT").and_then(ids) {
            if pid == tid {
                self.notes.entry(pid).or_default().exited = Some(at);
            }
        } else if kind == b"COMM" {
            // `exec: node:28277/28277`
            let ids = event.rest.strip_prefix(b"exec: ");
            let named = ids.and_then(|text| split_last(text, b':'));
            if let Some((comm, ids)) = named
                && let Some(pid) = split_last(ids, b'/').and_then(|(pid, _)| number(pid))
            {
                let note = self.notes.entry(pid).or_default();
                note.execs.push((at, comm.to_vec()));
                note.unnamed_exec = true;
            }
        } else if kind.starts_with(b"MMAP") {
            self.mapping(event.rest);
        } else if kind.starts_with(b"LOST") {
            let digits = event
                .rest
                .rsplit(|b| !b.is_ascii_digit())
                .find(|d| !d.is_empty());
            let lost = digits.and_then(number::<u64>).unwrap_or(1);
            self.lost = self.lost.saturating_add(lost);
        }
    }

    /// `PID/TID: [START(LENGTH) @ …]: r-xp PATH`: the first code mapped after an exec is the program's own.
    fn mapping(&mut self, text: &[u8]) {
        const CODE: &[u8] = b"]: r-xp /";
        let Some(place) = text.windows(CODE.len()).position(|part| part == CODE) else {
            return;
        };
        let path = &text[place + CODE.len() - 1..];
        let Some(pid) = text.split(|b| *b == b'/').next().and_then(number::<u32>) else {
            return;
        };
        if let Some(note) = self.notes.get_mut(&pid)
            && note.unnamed_exec
            && let Some((_, name)) = note.execs.last_mut()
        {
            *name = path.to_vec();
            note.unnamed_exec = false;
        }
    }

    pub(super) fn finish(mut self, options: &Options) -> Result<Recording, ImportError> {
        let all = self.samples.len();
        if self.are_differences() {
            return Err(ImportError::Differences);
        }
        let taken = self.events_taken(options)?;
        self.samples.retain(|sample| taken.contains(&sample.event));
        let other_events = (all - self.samples.len()) as u64;
        // perf prints in the order of time, but buffers of several CPUs can be out of step.
        self.samples.sort_by_key(|sample| sample.at);

        let mut recording = Recording::default();
        let pids = self.pids();
        let event = taken
            .first()
            .map(|event| self.events.things[*event as usize].clone())
            .unwrap_or_default();
        let weights = Weights::of(&event, self.hz, &self.samples);
        let begun = self.begun(&pids, &weights);
        let started = self.earliest(&begun);
        let ended = self.samples.iter().filter_map(|s| s.at).max();
        let objects = self.node_objects();
        let mut names = Names::default();
        let processes = self.processes(&pids, &begun, started, &mut recording);
        self.binaries(&objects, &pids, &processes, &mut recording);
        let stacks = self.code(&objects, &mut names, &mut recording);

        for sample in &self.samples {
            let thread = self.threads.things[sample.thread as usize];
            recording.samples.push(Sample {
                process: processes[&pids[&sample.thread]],
                thread: ThreadId(thread.tid),
                at: sample.at.unwrap_or(started),
                weight: Nanoseconds(weights.weight(sample.period)),
                stack: sample.stack.and_then(|stack| stacks[stack as usize]),
            });
        }
        recording.names = names.finish();
        recording.runs.push(Run {
            command: self.command(&recording),
            started,
            ended: ended.unwrap_or(started),
            ended_by: "import".into(),
            mode: "full".into(),
            sample_hz: self.hz,
            ..Run::default()
        });
        recording.families = self.families(&weights, &event);
        let untimed = self.samples.iter().filter(|s| s.at.is_none()).count() as u64;
        for (kind, count) in [
            ("samples", self.lost),
            ("samples_cut", self.cut),
            ("samples_of_other_events", other_events),
            ("samples_without_time", untimed),
        ] {
            if count > 0 {
                recording.losses.push(Loss {
                    run: RunId(0),
                    kind: kind.into(),
                    count,
                });
            }
        }
        Ok(recording)
    }

    /// The event whose samples become the recording's; several where a CPU has two kinds of cores.
    fn events_taken(&self, options: &Options) -> Result<Vec<u32>, ImportError> {
        let mut counts = vec![0u64; self.events.things.len()];
        for sample in &self.samples {
            counts[sample.event as usize] += 1;
        }
        let there = || (0..counts.len() as u32).filter(|event| counts[*event as usize] > 0);
        let name = |event: u32| self.events.things[event as usize].as_slice();
        if there().next().is_none() {
            return Err(ImportError::Empty);
        }
        if let Some(asked) = &options.event {
            let asked_for = |event: &u32| {
                name(*event) == asked.as_bytes() || base(name(*event)) == asked.as_bytes()
            };
            let found: Vec<u32> = there().filter(asked_for).collect();
            if found.is_empty() {
                let text = |event| String::from_utf8_lossy(name(event)).into_owned();
                return Err(ImportError::NoSuchEvent {
                    asked: asked.clone(),
                    found: there().map(text).collect(),
                });
            }
            return Ok(found);
        }
        let most = |events: &mut dyn Iterator<Item = u32>| {
            // The earlier of several with as many.
            events.max_by_key(|event| (counts[*event as usize], std::cmp::Reverse(*event)))
        };
        if let Some(clock) = most(&mut there().filter(|event| is_clock(name(*event)))) {
            return Ok(vec![clock]);
        }
        let cycles: Vec<u32> = there().filter(|event| is_cycles(name(*event))).collect();
        if cycles.iter().all(|event| name(*event).starts_with(b"cpu_")) && !cycles.is_empty() {
            return Ok(cycles);
        }
        let best = most(&mut cycles.into_iter()).or_else(|| most(&mut there()));
        Ok(best.into_iter().collect())
    }

    /// The process of each thread. Where the text has only thread ids, the record of its creation tells, or a perf map that the
    /// thread ran code of.
    fn pids(&self) -> HashMap<u32, u32> {
        let mut pids = HashMap::new();
        for (id, thread) in (0..).zip(&self.threads.things) {
            let told = thread
                .pid
                .or_else(|| self.forked_threads.get(&thread.tid).copied());
            if let Some(pid) = told {
                pids.insert(id, pid);
            }
        }
        for sample in &self.samples {
            if pids.contains_key(&sample.thread) {
                continue;
            }
            let mut at = sample.stack;
            while let Some(stack) = at {
                let stack = self.stacks.things[stack as usize];
                let object = self.frames.things[stack.frame as usize].object;
                let map = object.and_then(|object| map_of(&self.texts.things[object as usize]));
                if let Some(pid) = map {
                    pids.insert(sample.thread, pid);
                    break;
                }
                at = stack.caller;
            }
        }
        for (id, thread) in (0..).zip(&self.threads.things) {
            pids.entry(id).or_insert(thread.tid);
        }
        pids
    }

    /// When each process's first sample begins, by pid: a sample stands for the time before it, which begins with its process at the earliest.
    fn begun(&self, pids: &HashMap<u32, u32>, weights: &Weights) -> HashMap<u32, Nanoseconds> {
        let mut begun: HashMap<u32, Nanoseconds> = HashMap::new();
        for sample in &self.samples {
            let Some(at) = sample.at else { continue };
            let pid = pids[&sample.thread];
            let note = self.notes.get(&pid);
            let exec = note.and_then(|note| note.execs.first()).map(|exec| exec.0);
            let forked = note.and_then(|note| note.forked);
            let known = exec.into_iter().chain(forked).filter(|known| *known <= at);
            let weight = weights.weight(sample.period);
            let begins = known.fold(Nanoseconds(at.0.saturating_sub(weight)), Ord::max);
            let first = begun.entry(pid).or_insert(begins);
            *first = begins.min(*first);
        }
        begun
    }

    fn earliest(&self, begun: &HashMap<u32, Nanoseconds>) -> Nanoseconds {
        let notes = self.notes.values();
        let execs = notes.flat_map(|note| note.execs.first().map(|exec| exec.0));
        let samples = begun.values().copied();
        execs.chain(samples).min().unwrap_or_default()
    }

    /// Every process with a sample, and its ancestors, by pid.
    fn processes(
        &self,
        pids: &HashMap<u32, u32>,
        begun: &HashMap<u32, Nanoseconds>,
        started: Nanoseconds,
        recording: &mut Recording,
    ) -> HashMap<u32, ProcessId> {
        let mut ids: HashMap<u32, ProcessId> = HashMap::new();
        let comms = self.comms_of(pids);
        for sample in &self.samples {
            let pid = pids[&sample.thread];
            if ids.contains_key(&pid) {
                continue;
            }
            let first_seen = begun.get(&pid).copied().unwrap_or(started);
            // The outermost ancestor first; a loop of parents ends at the first that is seen again.
            let mut line = vec![pid];
            let mut known = HashSet::from([pid]);
            while let Some(last) = line.last()
                && !ids.contains_key(last)
                && let Some(parent) = self.notes.get(last).and_then(|note| note.parent)
                && known.insert(parent)
            {
                line.push(parent);
            }
            for pid in line.into_iter().rev() {
                if ids.contains_key(&pid) {
                    continue;
                }
                let id = ProcessId(recording.processes.len() as u32);
                let note = self.notes.get(&pid);
                let parent = note.and_then(|note| note.parent);
                let comm = comms.get(&pid).copied();
                let first_exec = note.and_then(|note| note.execs.first()).map(|exec| exec.0);
                let forked = note
                    .and_then(|note| note.forked)
                    .unwrap_or(first_exec.map_or(first_seen, |exec| exec.min(first_seen)));
                let mut execs: Vec<Exec> = note
                    .map(|note| note.execs.as_slice())
                    .unwrap_or_default()
                    .iter()
                    .map(|(at, path)| exec(*at, path))
                    .collect();
                if execs.is_empty() {
                    execs.extend(comm.map(|comm| exec(forked, comm)));
                }
                recording.processes.push(Process {
                    run: RunId(0),
                    pid,
                    parent: parent.and_then(|parent| ids.get(&parent).copied()),
                    forked: forked.min(first_seen),
                    execs,
                    exited: note.and_then(|note| note.exited),
                    ..Process::default()
                });
                ids.insert(pid, id);
            }
        }
        ids
    }

    /// The names of processes: of their main threads, else of the threads seen first.
    fn comms_of(&self, pids: &HashMap<u32, u32>) -> HashMap<u32, &[u8]> {
        let mut chosen: HashMap<u32, u32> = HashMap::new();
        for (thread, of) in (0u32..).zip(&self.threads.things) {
            let Some(pid) = pids.get(&thread) else {
                continue;
            };
            let first = *chosen.entry(*pid).or_insert(thread);
            let is_main = |thread: u32| self.threads.things[thread as usize].tid == *pid;
            if of.tid == *pid && !is_main(first) {
                chosen.insert(*pid, thread);
            }
        }
        (chosen.into_iter())
            .filter_map(|(pid, thread)| Some((pid, self.comms.get(&thread)?.as_slice())))
            .collect()
    }

    /// Objects that are node: by name, or by V8's builtins in them.
    fn node_objects(&self) -> Vec<bool> {
        let text = |id: u32| self.texts.things[id as usize].as_slice();
        let mut node: Vec<bool> = self
            .texts
            .things
            .iter()
            .map(|path| {
                let name = base_name(path);
                path.starts_with(b"/") && matches!(name, b"node" | b"nodejs")
                    || name.starts_with(b"libnode.so")
            })
            .collect();
        for frame in &self.frames.things {
            if let (Some(object), Some(symbol)) = (frame.object, frame.symbol)
                && text(symbol).starts_with(BUILTIN)
                && !frame.kernel
            {
                node[object as usize] = true;
            }
        }
        node
    }

    /// The node binary that each process ran.
    fn binaries(
        &self,
        node: &[bool],
        pids: &HashMap<u32, u32>,
        processes: &HashMap<u32, ProcessId>,
        recording: &mut Recording,
    ) {
        // Which node object a stack passes through, told once a stack.
        let mut through: Vec<Option<u32>> = Vec::with_capacity(self.stacks.things.len());
        for stack in &self.stacks.things {
            let object = self.frames.things[stack.frame as usize].object;
            let own = object.filter(|object| node[*object as usize]);
            let outer = stack.caller.and_then(|caller| through[caller as usize]);
            through.push(own.or(outer));
        }
        let mut binaries: HashMap<u32, BinaryId> = HashMap::new();
        for sample in &self.samples {
            let Some(object) = sample.stack.and_then(|stack| through[stack as usize]) else {
                continue;
            };
            let process = &mut recording.processes[processes[&pids[&sample.thread]].0 as usize];
            if process.node.is_some() {
                continue;
            }
            let id = *binaries.entry(object).or_insert_with(|| {
                recording.binaries.push(Binary {
                    path: self.texts.things[object as usize].clone(),
                    arch: self.arch.clone(),
                    ..Binary::default()
                });
                BinaryId(recording.binaries.len() as u32 - 1)
            });
            process.node = Some(id);
        }
    }

    /// Frames and stacks of the samples that were taken; gives the new id of each old stack.
    fn code(
        &self,
        node: &[bool],
        names: &mut Names,
        recording: &mut Recording,
    ) -> Vec<Option<StackId>> {
        let mut used = vec![false; self.stacks.things.len()];
        for sample in &self.samples {
            if let Some(stack) = sample.stack {
                used[stack as usize] = true;
            }
        }
        // A caller has a lower number than its callees.
        for index in (0..used.len()).rev() {
            if let (true, Some(caller)) = (used[index], self.stacks.things[index].caller) {
                used[caller as usize] = true;
            }
        }
        let mut frames: HashMap<Frame, FrameId> = HashMap::new();
        let mut known: Vec<Option<FrameId>> = vec![None; self.frames.things.len()];
        let mut ids: Vec<Option<StackId>> = vec![None; used.len()];
        for (index, stack) in self.stacks.things.iter().enumerate() {
            if !used[index] {
                continue;
            }
            let frame = *known[stack.frame as usize].get_or_insert_with(|| {
                let frame = self.frame_of(self.frames.things[stack.frame as usize], node, names);
                *frames.entry(frame).or_insert_with(|| {
                    recording.frames.push(frame);
                    FrameId(recording.frames.len() as u32 - 1)
                })
            });
            recording.stacks.push(Stack {
                caller: stack.caller.and_then(|caller| ids[caller as usize]),
                frame,
                truncated: stack.truncated,
            });
            ids[index] = Some(StackId(recording.stacks.len() as u32 - 1));
        }
        ids
    }

    fn frame_of(&self, raw: RawFrame, node: &[bool], names: &mut Names) -> Frame {
        let text = |id: u32| self.texts.things[id as usize].as_slice();
        let symbol = raw.symbol.map(text).unwrap_or_default();
        let object = raw.object.map(text);
        let is_node = raw.object.is_some_and(|object| node[object as usize]);
        let mut frame = Frame::new(FrameKind::Unknown, NameId(0), None);
        frame.inlined = raw.inlined;
        let code = if object.is_none_or(is_run_time_code) && !raw.kernel {
            jit::parse(symbol)
        } else {
            None
        };
        match code {
            Some(Code::JavaScript(function)) => {
                frame.kind = FrameKind::JavaScript;
                frame.function = names.id(function.name);
                frame.file = function.script.map(|script| names.id(script));
                frame.function_line = function.line;
                frame.function_column = function.column;
                frame.tier = Some(function.tier);
                frame.top_level = function.top_level;
                frame.inlining_possible = function.tier == Tier::Optimized;
                return frame;
            }
            Some(Code::Builtin(name)) => {
                frame.kind = FrameKind::Builtin;
                frame.function = names.id(name);
                return frame;
            }
            None => {}
        }
        let builtin = symbol.strip_prefix(BUILTIN).filter(|_| is_node);
        frame.kind = if raw.kernel {
            FrameKind::Kernel
        } else if builtin.is_some() {
            FrameKind::Builtin
        } else if is_node {
            FrameKind::Native
        } else {
            object.map_or(FrameKind::Unknown, kind_of)
        };
        frame.function = names.id(builtin.unwrap_or_else(|| without_parameters(symbol)));
        let of_kernel = |object: &&[u8]| raw.kernel && object.starts_with(b"[");
        frame.file = object
            .filter(|object| !of_kernel(object) && !is_run_time_code(object))
            .map(|object| names.id(object));
        frame
    }

    /// `--deltatime` prints the time since the line before: the first is 0, and there is no order.
    fn are_differences(&self) -> bool {
        let known: Vec<Nanoseconds> = self.samples.iter().filter_map(|s| s.at).collect();
        let back = known.windows(2).filter(|two| two[1] < two[0]).count();
        known.first() == Some(&Nanoseconds(0)) && back * 10 > known.len()
    }

    fn command(&self, recording: &Recording) -> Vec<Vec<u8>> {
        if !self.command.is_empty() {
            return recorded(&self.command).to_vec();
        }
        let first = recording.processes.first();
        let exec = first.and_then(|process| process.execs.last());
        exec.map(|exec| exec.arguments.clone()).unwrap_or_default()
    }

    fn families(&self, weights: &Weights, event: &[u8]) -> Vec<FamilyState> {
        let of = |name: &str, state: &str, reason: Option<String>| FamilyState {
            run: RunId(0),
            name: name.into(),
            state: state.into(),
            reason,
        };
        let mut families: Vec<FamilyState> = UNKNOWN_TO_PERF
            .into_iter()
            .map(|name| of(name, "off", Some(HAS_SAMPLES_ONLY.into())))
            .collect();
        let mut reasons = Vec::new();
        reasons.extend(weights.reason(event));
        if self.samples.iter().any(|sample| sample.at.is_none()) {
            reasons.push("instants were not printed; type: perf script -F +time".to_owned());
        }
        families.push(partly("cpu", reasons, &of));
        let untold = |thread: &Thread| {
            thread.pid.is_none() && !self.forked_threads.contains_key(&thread.tid)
        };
        let mut reasons = Vec::new();
        // A text with task events has one for every thread but the first.
        if self.notes.is_empty() && self.threads.things.iter().any(untold) {
            reasons.push(
                "process ids were not printed: a thread that ran no JavaScript is shown as a process; \
                 type: perf script -F +pid"
                    .to_owned(),
            );
        }
        if self.notes.is_empty() {
            reasons.push(
                "forks and execs were not printed; type: perf script --show-task-events".to_owned(),
            );
        }
        families.push(partly("processes", reasons, &of));
        families
    }
}

fn partly(
    name: &str,
    reasons: Vec<String>,
    of: &dyn Fn(&str, &str, Option<String>) -> FamilyState,
) -> FamilyState {
    if reasons.is_empty() {
        of(name, "on", None)
    } else {
        of(name, "partial", Some(reasons.join("; ")))
    }
}

fn exec(at: Nanoseconds, name: &[u8]) -> Exec {
    Exec {
        at,
        path: name.to_vec(),
        arguments: vec![base_name(name).to_vec()],
    }
}

/// Names of the recording, as they are used.
#[derive(Default)]
struct Names {
    ids: HashMap<Vec<u8>, NameId>,
    names: Vec<Vec<u8>>,
}

impl Names {
    fn id(&mut self, name: &[u8]) -> NameId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        // Every name is a part of an interned text: there are not more of them than u32 holds.
        let id = NameId(self.names.len() as u32);
        self.ids.insert(name.to_vec(), id);
        self.names.push(name.to_vec());
        id
    }

    fn finish(self) -> Vec<Vec<u8>> {
        self.names
    }
}

/// How much time a sample stands for.
enum Weights {
    /// The period is nanoseconds.
    Clock,
    /// The period counts something else.
    Counts,
    /// No periods: each sample the same.
    Equal { weight: u64, known: bool },
}

impl Weights {
    fn of(event: &[u8], hz: Option<u32>, samples: &[RawSample]) -> Self {
        let periods = samples.iter().all(|sample| sample.period.is_some());
        match (periods, is_clock(event), hz) {
            (true, true, _) => Self::Clock,
            (true, false, _) => Self::Counts,
            (false, _, Some(hz)) => Self::Equal {
                weight: 1_000_000_000 / u64::from(hz),
                known: true,
            },
            (false, _, None) => Self::Equal {
                weight: ASSUMED_WEIGHT,
                known: false,
            },
        }
    }

    fn weight(&self, period: Option<u64>) -> u64 {
        match self {
            Self::Clock | Self::Counts => period.unwrap_or_default(),
            Self::Equal { weight, .. } => *weight,
        }
    }

    fn reason(&self, event: &[u8]) -> Option<String> {
        match self {
            Self::Clock | Self::Equal { known: true, .. } => None,
            Self::Counts => Some(format!(
                "times are counts of {}, not nanoseconds; type: perf record -e cpu-clock",
                String::from_utf8_lossy(event)
            )),
            Self::Equal { .. } => Some(
                "no period was printed with its event: each sample counts as 1 ms; type: perf script -F +period,+event"
                    .to_owned(),
            ),
        }
    }
}

/// As the linker names V8's builtins.
const BUILTIN: &[u8] = b"Builtins_";

/// `cpu-clock` of `cpu-clock:u`; the name of a tracepoint is whole.
fn base(event: &[u8]) -> &[u8] {
    let Some(colon) = event.iter().position(|b| *b == b':') else {
        return event;
    };
    // Modifiers are letters such as u, k, h, H, G, p, P, S, D, W, e, b.
    let modifiers = &event[colon + 1..];
    if modifiers.iter().all(|b| b"ukhHGpPSDWIebR".contains(b)) {
        &event[..colon]
    } else {
        event
    }
}

fn is_clock(event: &[u8]) -> bool {
    matches!(base(event), b"cpu-clock" | b"task-clock")
}

fn is_cycles(event: &[u8]) -> bool {
    let name = base(event);
    matches!(name, b"cycles" | b"cpu-cycles")
        || name.starts_with(b"cpu")
            && name
                .windows(8)
                .any(|part| part == b"/cycles/" || part == b"/cpu-cyc")
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or(path)
}

/// The process of `/tmp/perf-PID.map` or `jitted-PID-N.so`.
fn map_of(object: &[u8]) -> Option<u32> {
    let name = base_name(object);
    let map = || number(name.strip_prefix(b"perf-")?.strip_suffix(b".map")?);
    let dump = || {
        let rest = name.strip_prefix(b"jitted-")?.strip_suffix(b".so")?;
        number(rest.split(|b| *b == b'-').next()?)
    };
    map().or_else(dump)
}

/// Whether the object is code that was made at run time.
fn is_run_time_code(object: &[u8]) -> bool {
    map_of(object).is_some()
        || [
            b"//anon".as_slice(),
            b"[anon",
            b"[JIT]",
            b"[heap]",
            b"[stack",
        ]
        .iter()
        .any(|start| object.starts_with(start))
}

fn kind_of(object: &[u8]) -> FrameKind {
    let object = object.strip_suffix(b" (deleted)").unwrap_or(object);
    let name = base_name(object);
    if name.ends_with(b".node") {
        FrameKind::AddOn
    } else if matches!(object, b"[vdso]" | b"[vsyscall]") || name.windows(3).any(|w| w == b".so") {
        FrameKind::Library
    } else {
        // Another program.
        FrameKind::Unknown
    }
}

/// A C++ function without its parameters: `a::(anonymous namespace)::f(int) const` → `a::(anonymous namespace)::f`.
fn without_parameters(symbol: &[u8]) -> &[u8] {
    let text = symbol.strip_suffix(b" const").unwrap_or(symbol);
    let Some(inner) = text.strip_suffix(b")") else {
        return symbol;
    };
    let mut depth = 1;
    for place in (0..inner.len()).rev() {
        match inner[place] {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            let name = &inner[..place];
            let part_of_name = name.is_empty()
                || name.ends_with(b"operator")
                || &inner[place + 1..] == b"anonymous namespace";
            return if part_of_name { symbol } else { name };
        }
    }
    symbol
}

/// Options of `perf record` whose value is the next word; any other option stands alone.
const WITH_VALUE: [&[u8]; 26] = [
    b"--affinity",
    b"--branch-filter",
    b"--call-graph",
    b"--cgroup",
    b"--clang-opt",
    b"--clang-path",
    b"--clockid",
    b"--control",
    b"--count",
    b"--cpu",
    b"--delay",
    b"--event",
    b"--filter",
    b"--freq",
    b"--max-size",
    b"--mmap-flush",
    b"--mmap-pages",
    b"--num-thread-synthesize",
    b"--output",
    b"--pid",
    b"--proc-map-timeout",
    b"--realtime",
    b"--switch-max-files",
    b"--switch-output-event",
    b"--tid",
    b"--uid",
];
/// The same in one letter, of which several may stand in a word: `-gF 997`, `-F997`.
const LETTERS_WITH_VALUE: &[u8] = b"cCDeFGjkmoprtu";

/// The program of `perf record OPTIONS PROGRAM`; the whole line if it has none (`-a`, `--pid`), or is another.
fn recorded(line: &[Vec<u8>]) -> &[Vec<u8>] {
    if line.get(1).is_none_or(|word| word != b"record") {
        return line;
    }
    let mut at = 2;
    while let Some(word) = line.get(at) {
        at += 1;
        if word == b"--" {
            break;
        }
        match word.strip_prefix(b"-") {
            None => {
                at -= 1;
                break;
            }
            Some(long) if long.starts_with(b"-") => {
                at += usize::from(WITH_VALUE.contains(&word.as_slice()));
            }
            Some(letters) => {
                let taking = |letter: &u8| LETTERS_WITH_VALUE.contains(letter);
                let place = letters.iter().position(taking);
                at += usize::from(place.is_some_and(|place| place + 1 == letters.len()));
            }
        }
    }
    match line.get(at..) {
        Some(program) if !program.is_empty() => program,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_perf_record_is_what_was_recorded() {
        let words = |text: &str| -> Vec<Vec<u8>> {
            let words = text.split(' ').map(|word| word.as_bytes().to_vec());
            words.collect()
        };
        for (line, program) in [
            ("perf record -F 997 -g -- node app.js", "node app.js"),
            (
                "/usr/bin/perf record -gF 997 -o q.data node -e 0",
                "node -e 0",
            ),
            (
                "perf record -F997 -q --call-graph fp --freq=9 npm ci",
                "npm ci",
            ),
            ("perf record -ag -- sleep 1", "sleep 1"),
            ("perf record -a -F 9", "perf record -a -F 9"),
            ("perf record -p 17", "perf record -p 17"),
            ("perf trace node", "perf trace node"),
        ] {
            assert_eq!(recorded(&words(line)), words(program), "{line}");
        }
    }

    #[test]
    fn modifiers_of_an_event_are_told_from_the_name_of_a_tracepoint() {
        for (event, name) in [
            ("cpu-clock", "cpu-clock"),
            ("cpu-clock:pppH", "cpu-clock"),
            ("sched:sched_switch", "sched:sched_switch"),
            ("cycles:u", "cycles"),
        ] {
            assert_eq!(base(event.as_bytes()), name.as_bytes(), "{event}");
        }
        assert!(is_cycles(b"cpu_core/cycles/P"));
        assert!(!is_cycles(b"cpu_core/instructions/"));
    }

    #[test]
    fn objects_tell_what_code_is() {
        for (object, kind) in [
            ("/app/build/Release/sharp.node", FrameKind::AddOn),
            ("/app/a.node (deleted)", FrameKind::AddOn),
            ("/usr/lib/libc.so.6", FrameKind::Library),
            ("[vdso]", FrameKind::Library),
            ("/usr/bin/bash", FrameKind::Unknown),
        ] {
            assert_eq!(kind_of(object.as_bytes()), kind, "{object}");
        }
        assert_eq!(map_of(b"/tmp/perf-123.map"), Some(123));
        assert_eq!(map_of(b"/home/u/.debug/jit/x/jitted-77-12.so"), Some(77));
        assert_eq!(map_of(b"/tmp/perf-x.map"), None);
    }

    #[test]
    fn parameters_are_no_part_of_a_name() {
        for (symbol, name) in [
            ("v8::f(int, (x)) const", "v8::f"),
            (
                "v8::(anonymous namespace)::f(a)",
                "v8::(anonymous namespace)::f",
            ),
            ("v8::(anonymous namespace)", "v8::(anonymous namespace)"),
            ("a::operator()", "a::operator()"),
            ("a::operator()(int)", "a::operator()"),
            ("(x)", "(x)"),
            ("main", "main"),
        ] {
            assert_eq!(
                without_parameters(symbol.as_bytes()),
                name.as_bytes(),
                "{symbol}"
            );
        }
    }
}
