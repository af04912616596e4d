//! What the holder's process does: one loop that never waits for anything but news.
//!
//! It owns the socket, the held execs, the stopped processes and the links; workers do what takes time. So a new
//! process is stopped within 0.1 ms of its exec, on a busy machine and while a plan is made, too.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet, VecDeque},
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use libbpf_rs::libbpf_sys;
use nodeprof_probes::is_node_binary;

use super::{
    Execs, HolderOptions, Met, NOT_OPEN, Obeys, Request, act_first, aside,
    fanotify::{Fanotify, Held, node_binaries, node_binaries_that_answer},
    host::Host,
    is_dropping, is_followed, is_main_thread, message,
    mounts::Mounts,
    now, receive,
    tracee::{self, Change, Changes},
    transmit,
    turn::{LONGEST_TURN, Turn},
    worker::{
        Done, FileId, Job, Outcome, Source, StartTime, Workers, file_id, run_with, start_time,
    },
};
use crate::{
    Link, Programs,
    attach::{detach_all, leave_all, leave_in_turn},
    closing::{HIGHEST, as_high},
    copies::let_copies_go,
    expedite::{self, Expedited},
    loader::Execution,
};

/// Interval in ms in which the loop looks for what nobody tells it.
const LOOK_IN: i32 = 500;
/// No exec of the host waits longer for a service, whatever happens.
const LONGEST_HOLD: Duration = Duration::from_millis(40);
/// A program is not kept stopped longer than this. A plan takes 0.2 s, some seconds if the file has to be read from a slow disk.
const LONGEST_STOP: Duration = Duration::from_secs(10);

/// A process that is asked to stop does so within this time.
const SHORT_STOP: Duration = Duration::from_millis(50);

/// Who waits for a job.
enum Waiting {
    /// Nobody but the tracer.
    Tracer,
    /// An exec, since this instant; dropping lets it go.
    Exec(Held, Instant),
    /// A process that was, or could not be, stopped after its exec.
    Process(Stop),
}

impl Waiting {
    /// If it is this process: what is known of it since its exec.
    fn late(&mut self, process: u32) -> Option<&mut Stop> {
        match self {
            Waiting::Process(stop) if stop.pid == process => Some(stop),
            _ => None,
        }
    }

    /// Which process it is.
    fn process(&self) -> Option<u32> {
        match self {
            Waiting::Tracer => None,
            Waiting::Exec(held, _) => Some(held.pid),
            Waiting::Process(stop) => Some(stop.pid),
        }
    }

    /// Whether it is this process, and it is stopped or asked to.
    fn stops(&self, process: u32) -> bool {
        matches!(self, Waiting::Process(Stop { pid, state, .. })
            if *pid == process && !matches!(state, StopState::Refused))
    }
}

struct Stop {
    pid: u32,
    execution: Execution,
    since: Instant,
    state: StopState,
    /// The job's outcome, if it came before the stop.
    done: Option<Box<Done>>,
    /// It executes another node binary by now, or is about to, which has a job of its own.
    is_replaced: bool,
}

/// So many links of a trace are more than those of processes that run.
const MOST_ENDED: usize = 16;

/// So long a holder of a service waits at its end for probes that are being taken away; the service gives it 2 s.
const LONGEST_DETACH: Duration = Duration::from_millis(1500);

/// How long the kernel takes for the end of a link that was left to it, on a busy machine, too.
const LEAVING: Duration = Duration::from_millis(100);

/// Takes a link away while a program begins, which would wait for that: grace periods stay short meanwhile, but nobody waits here that could not be killed.
fn leave_soon(link: Link) {
    match leave_in_turn([link]) {
        None => thread::sleep(LEAVING),
        Some(link) => link.detach(),
    }
}

/// Messages for which a socket had no room.
#[derive(Default)]
struct Unsent {
    messages: VecDeque<Vec<u8>>,
    /// That they take.
    bytes: usize,
}

impl Unsent {
    /// More than of tens of thousands of processes, which a stopped tracer reads when it goes on.
    const MOST: usize = 16 << 20;

    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether there are so many that nobody will read them.
    fn is_too_much(&self) -> bool {
        self.bytes > Self::MOST
    }

    fn add(&mut self, message: Vec<u8>) {
        self.bytes += Self::weight(&message);
        self.messages.push_back(message);
    }

    fn weight(message: &Vec<u8>) -> usize {
        message.capacity() + size_of_val(message)
    }

    /// Sends what there is room for.
    fn flush(&mut self, socket: &OwnedFd) {
        while let Some(first) = self.messages.front() {
            match transmit(socket, first, libc::MSG_DONTWAIT) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                _ => {
                    self.bytes -= Self::weight(first);
                    self.messages.pop_front();
                }
            }
        }
    }
}

enum StopState {
    Asked,
    /// Since this instant, at this signal.
    Stopped(u64, libc::c_int),
    /// It runs.
    Refused,
}

pub(super) struct Keeper {
    socket: OwnedFd,
    threads: RawFd,
    not_node: RawFd,
    workers: Workers,
    fanotify: io::Result<Fanotify>,
    changes: Changes,
    /// Messages for which the socket had no room: the tracer may be stopped, and must not stop us.
    unsent: Unsent,
    waiting: HashMap<u64, Waiting>,
    /// Processes of a service for which a job is under way that they wait for no longer.
    gone_on: HashMap<u64, (u32, Instant)>,
    /// Jobs that were given up.
    given_up: HashSet<u64>,
    /// Number of the last job.
    jobs: u64,
    /// Which process has the probes of which binary. A link follows its process through further execs: a second one would count
    /// everything twice.
    probed: HashMap<(u32, FileId), StartTime>,
    /// Of a trace: whose they are.
    links: Vec<(u32, StartTime, Link)>,
    /// With so many links it is looked for those of processes that have ended.
    links_to_sweep: usize,
    mounts: Mounts,
    /// Binaries of a trace, open, by index.
    opened: HashMap<u8, Arc<File>>,
    /// Processes of a service that execute another node binary before the first one had its probes.
    missed: HashSet<u32>,
    /// Of a service.
    host: Option<Host>,
    /// Only to be detached, once something else is attached.
    spare: Option<Link>,
    obeys: Obeys,
}

impl Keeper {
    /// `is_next`: another one was there before.
    pub(super) fn new(
        programs: &Programs,
        options: HolderOptions,
        socket: OwnedFd,
        is_next: bool,
    ) -> io::Result<Keeper> {
        let changes = Changes::open()?; // before any thread
        let fanotify = match options.execs {
            Execs::Alone => Fanotify::open(),
            Execs::Guarded(guarded) => Fanotify::guarded(&guarded),
            Execs::Not(why) => Err(io::Error::other(why)),
        };
        // A trace has looked at its files itself, a moment ago; what a service is told of by others may hang by now.
        let is_own = options.admission.is_none() && matches!(options.obeys, Obeys::Socket);
        let nodes = match (fanotify.is_ok() || is_next, is_own) {
            (false, _) => Vec::new(),
            (true, true) => node_binaries(&options.candidates),
            (true, false) => node_binaries_that_answer(&options.candidates),
        };
        if let Ok(f) = &fanotify {
            for (file, path) in &nodes {
                f.watch_file(file, path);
            }
        }
        // Of who was executed before there was a holder nothing is told.
        let known = match is_next {
            true => &nodes[..],
            false => &[],
        };
        let host = options
            .admission
            .map(|admission| Host::new(admission, options.syscalls, known));
        Ok(Keeper {
            socket: as_high(socket, HIGHEST + 1),
            threads: programs.threads(),
            not_node: programs.not_node(),
            workers: Workers::start(
                programs,
                options.families,
                options.plans,
                options.description,
                host.is_some(),
            )?,
            fanotify,
            changes,
            unsent: Unsent::default(),
            waiting: HashMap::new(),
            gone_on: HashMap::new(),
            given_up: HashSet::new(),
            jobs: 0,
            probed: HashMap::new(),
            links: Vec::new(),
            links_to_sweep: MOST_ENDED,
            mounts: Mounts::default(),
            opened: HashMap::new(),
            missed: HashSet::new(),
            host,
            spare: options.spare,
            obeys: options.obeys,
        })
    }

    /// Works until the tracer is gone; then lets all go, and detaches.
    pub(super) fn run(mut self, programs: &Programs) {
        self.serve(programs);
        if self.host.is_some() {
            self.leave_to_the_next(programs);
        }
        self.let_all_go(programs); // before detaching, which takes a while
        let since = Instant::now();
        while !self.unsent.is_empty() && since.elapsed() < SHORT_STOP {
            thread::sleep(SHORT_STOP / 50);
            self.flush();
        }
        let links = self.links.into_iter().map(|(_, _, link)| link);
        let links = links.chain(self.spare);
        match self.host {
            // Who has stopped the service finds no probe of it.
            Some(host) => {
                let since = Instant::now();
                detach_all(links.chain(host.into_links()));
                // Of starts that were just released: those that wait for their turn would be closed one after another when this process ends.
                while is_dropping() && since.elapsed() < LONGEST_DETACH {
                    thread::sleep(SHORT_STOP / 50);
                }
            }
            None => {
                for &(pid, _) in self.probed.keys() {
                    let _ = let_copies_go(pid);
                }
                if let Some(link) = leave_all(links) {
                    detach_all([link]);
                }
            }
        }
        expedite::give_up();
    }

    /// The service may start another holder: who waits for probes is met by that, or told as not recorded.
    fn leave_to_the_next(&mut self, programs: &Programs) {
        for done in self.workers.take_done() {
            self.finish(done, programs);
        }
        let why = "the holder process ended before its probes came";
        for (_, (pid, _)) in std::mem::take(&mut self.gone_on) {
            programs.unfollow(pid);
            self.tell_missed(pid, why);
        }
        let mut late = Vec::new();
        for waiting in self.waiting.values() {
            match waiting {
                Waiting::Exec(held, _) => {
                    programs.unfollow(held.pid);
                    // Of one that waits, and is not followed when it goes on, the kernel tells.
                    late.extend((!held.waits()).then_some(held.pid));
                }
                Waiting::Process(stop) => {
                    programs.unfollow(stop.pid);
                    let is_known = |host: &Host| host.knows(stop.execution.inode);
                    let is_node = self.host.as_ref().is_some_and(is_known)
                        || is_node_binary(Path::new(&format!("/proc/{}/exe", stop.pid)));
                    late.extend(is_node.then_some(stop.pid));
                }
                Waiting::Tracer => {}
            }
        }
        for pid in late {
            self.tell_missed(pid, why);
        }
    }

    fn serve(&mut self, programs: &Programs) {
        let executed = RefCell::new(Vec::new());
        let executions = programs
            .executions(|execution| executed.borrow_mut().push(execution))
            .ok();
        let longest = match &self.host {
            Some(_) => LONGEST_HOLD,
            None => LONGEST_TURN,
        };
        let held = self.fanotify.as_ref().ok().map(Fanotify::held);
        let Ok(turn) = Turn::watched(longest, held) else {
            return;
        };
        act_first();
        if self.host.is_none() {
            // Without it some begin before they are stopped, which is told.
            let _ = run_with(programs.set_stopper(), &[self.fanotify.is_ok().into()]);
        }
        let reason = self.fanotify.as_ref().err().map(ToString::to_string);
        self.tell(b'h', 0, reason.unwrap_or_default().as_bytes());
        if let Obeys::Nobody(first) = &mut self.obeys
            && let Some((pid, file)) = first.take()
        {
            let file = Source::File(Arc::new(file), PathBuf::new());
            self.give(pid, file, false, Waiting::Tracer);
        }
        loop {
            let wants = if self.unsent.is_empty() {
                0
            } else {
                libc::POLLOUT
            };
            let input = |fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            let mut fds = [
                input(self.socket.as_raw_fd()),
                input(self.fanotify.as_ref().map_or(-1, Fanotify::descriptor)),
                input(executions.as_ref().map_or(-1, |r| r.descriptor())),
                input(self.workers.descriptor()),
                input(self.changes.descriptor()),
            ];
            fds[0].events |= wants;
            turn.ends();
            let look_in = self.look_in();
            // SAFETY: as many pollfds as given.
            if unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, look_in) } < 0 {
                continue;
            }
            turn.begins();
            // What is done comes first: who has probes already need not be stopped. Then who runs, then who is held.
            for done in self.workers.take_done() {
                self.finish(done, programs);
            }
            if let Some(executions) = &executions {
                let _ = executions.consume();
                for execution in executed.take() {
                    self.executed(execution, programs);
                }
            }
            self.changes.clear();
            while let Some((pid, change)) = tracee::next_change() {
                self.changed(pid, &change, programs);
            }
            let held = self.fanotify.as_ref().map(Fanotify::read);
            let held = held.unwrap_or_default();
            let is_alone = held.len() == 1 && self.waiting.is_empty();
            for held in held {
                self.hold(held, is_alone, programs);
            }
            self.give_up_waiting(programs);
            self.sweep();
            if let Some(host) = &mut self.host {
                host.rest();
            }
            if fds[0].revents & libc::POLLOUT != 0 {
                self.flush();
            }
            if matches!(self.obeys, Obeys::Nobody(_)) && self.unsent.is_too_much() {
                return; // the memory is the service's, and the tracer somebody else
            }
            if fds[0].revents & libc::POLLIN != 0 {
                match receive(&self.socket).and_then(Request::parse) {
                    // Who asks and does not read is not told again and again.
                    Some(Request::Ping) if self.unsent.is_empty() => self.tell(b'p', 0, b""),
                    Some(Request::Ping) => {}
                    Some(_) if matches!(self.obeys, Obeys::Nobody(_)) => {}
                    Some(Request::Attach { pid, path }) => {
                        self.give(pid, Source::Path(path), false, Waiting::Tracer);
                    }
                    Some(Request::Release { pid }) => self.release(pid, programs),
                    None => return,
                }
            } else if fds[0].revents & (libc::POLLHUP | libc::POLLERR) != 0 {
                return; // the tracer is gone: so are its probes
            }
        }
    }

    /// Sends to the tracer, at once or as soon as it reads.
    fn tell(&mut self, kind: u8, pid: u32, body: &[u8]) {
        self.unsent.add(message(kind, pid, body));
        self.flush();
    }

    fn flush(&mut self) {
        self.unsent.flush(&self.socket);
    }

    /// Whether system calls are traced, if that is another than before.
    fn tell_tracing(&mut self) {
        if let Some(tracing) = self.host.as_mut().and_then(Host::untold_tracing) {
            self.tell(b'y', 0, tracing.err().unwrap_or_default().as_bytes());
        }
    }

    fn give(&mut self, pid: u32, binary: Source, after_exec: bool, waiting: Waiting) {
        let job = self.job(pid, binary, after_exec, waiting);
        self.workers.give(job);
    }

    /// A new job, for which somebody waits from now on.
    fn job(&mut self, pid: u32, binary: Source, after_exec: bool, waiting: Waiting) -> Job {
        self.jobs += 1;
        // What the loop does besides takes as long as the attaching. Only of a service's process that has none: who has probes already has records of
        // other binaries, which come after what is told of this one.
        let answer = match &waiting {
            Waiting::Exec(held, _) if self.host.is_some() && !self.is_probed(pid) => {
                Some(held.answer())
            }
            _ => None,
        };
        self.waiting.insert(self.jobs, waiting);
        Job {
            number: self.jobs,
            pid,
            binary,
            after_exec,
            since: Instant::now(),
            answer,
        }
    }

    /// Whether it has probes, of whatever binary.
    fn is_probed(&self, pid: u32) -> bool {
        self.probed.keys().any(|(owner, _)| *owner == pid)
    }

    fn has_probes(&self, pid: u32, file: io::Result<fs::Metadata>) -> bool {
        let Ok(file) = file.map(|f| file_id(&f)) else {
            return false;
        };
        self.probed
            .get(&(pid, file))
            .is_some_and(|&started| started == start_time(pid))
    }

    /// How long to wait for news, ms.
    fn look_in(&self) -> libc::c_int {
        let is_held = |w: &Waiting| matches!(w, Waiting::Exec(..));
        match &self.host {
            // So that none waits longer than it may.
            Some(_) if self.waiting.values().any(is_held) => LONGEST_HOLD.as_millis() as i32 / 10,
            Some(host) if !host.is_busy() => -1,
            _ => LOOK_IN,
        }
    }

    /// An exec is held: if it is of the tree and has no probes yet, until it has. `is_alone`: nobody else waits for anything.
    fn hold(&mut self, held: Held, is_alone: bool, programs: &Programs) {
        // Dropping it lets it go.
        if self.has_probes(held.pid, held.file.metadata()) {
            if self.host.is_some() && !is_followed(self.threads, held.pid) {
                let why = "its process executed this binary before, and another program since";
                self.tell_missed(held.pid, why);
            }
            return;
        }
        let mut path = PathBuf::new();
        if !is_main_thread(held.pid) {
            // The kernel would take its probes with the main thread, which an exec of another one ends. It tells of the exec when there is
            // but this thread left.
            return;
        }
        if !self.mounts.have(&held.file, held.pid) {
            return;
        }
        if let Some(host) = &mut self.host {
            path = held.path();
            if !host.admits(held.pid, &path, Met::Held, programs) {
                host.refuse(held.pid);
                return;
            }
            self.tell_tracing();
            if programs.follow(held.pid).is_err() {
                // It has ended while it was held.
                self.forget(held.pid, programs);
                return;
            }
        } else if !is_followed(self.threads, held.pid) {
            return;
        }
        let pid = held.pid;
        if self.host.is_some() {
            for stop in self.waiting.values_mut().filter_map(|w| w.late(pid)) {
                stop.is_replaced = true;
                self.missed.insert(pid);
            }
        }
        // To wake a worker takes longer than to attach (0.25 and 0.2 ms, on a virtual machine with an idle processor). But an attach waits for its turn
        // beside others, and in the kernel for the memory locks of all who execute the same file: 12 ms and more in one start of eleven, of twenty at a time. Then
        // nobody would read the next execs, and the guard would let them all go. (Should it make us wait here nevertheless, the watch over this turn does.)
        let here = is_alone
            && self.workers.knows(&held.file)
            && self.host.as_ref().is_some_and(|host| host.is_calm(pid));
        let file = Source::File(Arc::clone(&held.file), path);
        let job = self.job(pid, file, false, Waiting::Exec(held, Instant::now()));
        if here {
            let done = self.workers.work(job);
            self.finish(done, programs);
        } else {
            self.workers.give(job);
        }
    }

    /// Takes the probes of a process of the host away.
    fn release(&mut self, pid: u32, programs: &Programs) {
        if let Some(host) = &mut self.host {
            host.release(pid, programs);
        }
        self.probed.retain(|(owner, _), _| *owner != pid);
        self.missed.remove(&pid);
    }

    /// Nothing came of the last that was done for a process of the host: it is recorded no longer, unless it has probes or will have.
    fn forget(&mut self, pid: u32, programs: &Programs) {
        let is_awaited = self.waiting.values().any(|w| w.process() == Some(pid))
            || self.gone_on.values().any(|(other, _)| *other == pid);
        if self.host.is_some() && !is_awaited && !self.is_probed(pid) {
            self.release(pid, programs);
        }
    }

    /// A process of the tree executes a program that may be node. If its exec was not held, because nobody knew of this
    /// binary, it is stopped now, before its main.
    fn executed(&mut self, execution: Execution, programs: &Programs) {
        let pid = execution.pid;
        if let Some(host) = &mut self.host {
            let path = fs::read_link(format!("/proc/{pid}/exe"));
            if host.is_decided(pid) {
                return;
            }
            let Ok(path) = path else {
                // Nobody held it, for we were late, or it was started before we were.
                if host.knows(execution.inode) {
                    self.tell(b'u', pid, &[]);
                }
                return;
            };
            let met = match host.knows(execution.inode) {
                true => Met::Running,
                false => Met::Unknown,
            };
            if host.admits(pid, &path, met, programs) {
                self.tell_tracing();
                let stop = Stop {
                    pid,
                    execution,
                    since: Instant::now(),
                    state: StopState::Refused,
                    done: None,
                    is_replaced: false,
                };
                self.give(pid, Source::Executable, true, Waiting::Process(stop));
            }
            return;
        }
        let under_way = self.waiting.values().any(|w| w.stops(pid));
        if under_way || self.has_probes(pid, fs::metadata(format!("/proc/{pid}/exe"))) {
            return;
        }
        let state = match tracee::stop(pid) {
            Ok(()) => StopState::Asked,
            Err(why) => {
                let executable = format!("/proc/{pid}/exe");
                let looked_at = fs::metadata(&executable);
                if looked_at.is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
                    // Unless it had its probes before its exec.
                    if !self.is_probed(pid) {
                        let program = format!("a program of {} MB", execution.size / 1_000_000);
                        let why = "it had ended before anybody could look whether it is node";
                        self.tell_of_missed(pid, program.into(), why);
                    }
                    return;
                }
                if !is_node_binary(Path::new(&executable)) {
                    return;
                }
                // Told at once: it may have ended before its plan is made.
                self.tell(b'l', pid, why.to_string().as_bytes());
                StopState::Refused
            }
        };
        let stop = Stop {
            pid,
            execution,
            since: Instant::now(),
            state,
            done: None,
            is_replaced: false,
        };
        self.give(pid, Source::Executable, true, Waiting::Process(stop));
    }

    /// A process that is stopped, or was to be, has changed its state.
    fn changed(&mut self, pid: u32, change: &Change, programs: &Programs) {
        let Some(&number) = self.waiting.iter().find(|w| w.1.stops(pid)).map(|w| w.0) else {
            return; // it was let go, and killed before it could
        };
        match (change, self.waiting.get_mut(&number)) {
            (Change::Stopped(signal), Some(Waiting::Process(stop))) => {
                stop.state = StopState::Stopped(now(), *signal);
                if let Some(done) = stop.done.take() {
                    self.finish(*done, programs);
                }
            }
            _ => {
                if let Some(Waiting::Process(stop)) = self.waiting.remove(&number)
                    && let Some(mut done) = stop.done
                {
                    detach_needless(&mut done);
                }
            }
        }
    }

    /// A job is done: says so, then lets go who waited for it.
    fn finish(&mut self, mut done: Done, programs: &Programs) {
        let number = done.number;
        let has_gone_on = self.gone_on.remove(&number).is_some();
        if self.given_up.remove(&number) {
            // Told already, as one that was not recorded.
            return detach_needless(&mut done);
        }
        if let Some(Waiting::Process(stop)) = self.waiting.get_mut(&number)
            && matches!(stop.state, StopState::Asked)
        {
            stop.done = Some(Box::new(done));
            return;
        }
        let waiting = self.waiting.remove(&number);
        if let (Some(_), Some(Waiting::Process(stop))) = (&self.host, &waiting)
            && executes_another(&done).unwrap_or(stop.is_replaced)
        {
            let goes_on = stop.is_replaced || self.is_probed(done.pid);
            return self.finish_replaced(done, goes_on, programs);
        }
        if let Some(Waiting::Exec(held, _)) = &waiting {
            // Let go because we were late: it may have begun without its probes.
            done.after_exec |= !done.answered.unwrap_or_else(|| held.waits());
        }
        if let Outcome::Attached { link, image, .. } = &mut done.outcome {
            let started = done.started;
            let is_new = done
                .file
                .is_none_or(|f| self.probed.insert((done.pid, f), started) != Some(started));
            let attached = link.take();
            // Two jobs for one process: possible only where it could not be stopped. Detaching takes a while.
            let needless = if is_new {
                match &mut self.host {
                    Some(host) => {
                        if done.after_exec {
                            // Hits from here on count; whether any was missed before, the mark at its main will tell.
                            programs.follow_threads(done.pid);
                        }
                        host.keep(done.pid, done.file, attached, Some(image.used.clone()));
                        if let (Ok(f), Some(file), true) =
                            (&self.fanotify, &done.opened, done.after_exec)
                        {
                            f.watch_file(file, Path::new(&format!("/proc/{}/exe", done.pid)));
                        }
                    }
                    None => {
                        self.links
                            .extend(attached.map(|link| (done.pid, started, link)));
                        if let Some(file) = &done.opened {
                            // The first one stays: who was told of its descriptor may come to it later.
                            let first = self.opened.entry(image.index);
                            first.or_insert_with(|| Arc::clone(file));
                        }
                        // Before it goes on: it may soon have a child that executes the same.
                        if let (Ok(f), Some(file)) = (&self.fanotify, &done.opened) {
                            f.watch_file(file, &done.path);
                        }
                    }
                }
                // It has done its work: gone before the end, when only what must be detached shall be.
                self.spare.take()
            } else {
                attached
            };
            if let Some(needless) = needless {
                let is_host = self.host.is_some();
                aside(move || match is_host {
                    true => needless.detach(),
                    false => leave_soon(needless),
                });
            }
        }
        if self.host.is_some() && matches!(done.outcome, Outcome::Failed(_)) {
            self.release(done.pid, programs);
            let was_held = has_gone_on || matches!(waiting, Some(Waiting::Exec(..)));
            if let (Some(host), true) = (&mut self.host, was_held) {
                host.refuse(done.pid); // it is told now, and need not be when it has been executed
            }
            // It had ended before its probes came: the next start of it is held.
            if let (Ok(f), Some(file), true) = (&self.fanotify, &done.opened, done.is_planned) {
                f.watch_file(file, &done.path);
            }
        }
        if matches!(done.outcome, Outcome::NotNode) {
            self.forget(done.pid, programs);
        }
        let Some(waiting) = waiting else {
            if self.host.is_some() {
                // It was held as long as it may be, and has begun without its probes.
                done.after_exec = true;
                self.report(&done);
                self.tell_of_first_binary(done.pid);
            }
            return; // it has ended meanwhile
        };
        self.report(&done);
        if matches!(waiting, Waiting::Exec(..)) {
            self.tell_of_first_binary(done.pid);
        }
        if let Waiting::Process(stop) = waiting {
            // By inode: what it executes now may be something else.
            let same = done.file.is_some_and(|f| f.1 == stop.execution.inode);
            if same && matches!(done.outcome, Outcome::NotNode) {
                self.remember_other(&stop.execution);
            }
            self.let_go(&stop, &done);
        }
    }

    /// A process of a service has executed something else before its probes came: they are of no use, and must not take the place of those
    /// that it may have by now.
    /// If that is node, too, the start goes on.
    fn finish_replaced(&mut self, mut done: Done, goes_on: bool, programs: &Programs) {
        detach_needless(&mut done);
        if goes_on {
            return;
        }
        if matches!(done.outcome, Outcome::NotNode) {
            self.forget(done.pid, programs);
        } else {
            self.release(done.pid, programs);
            done.outcome = Outcome::Failed(
                "it executed another program, or ended, before its probes came".into(),
            );
            self.report(&done);
        }
    }

    /// Tells the tracer, once, that a start began with a binary of which nothing was recorded.
    fn tell_of_first_binary(&mut self, pid: u32) {
        if self.missed.remove(&pid) {
            let why = "before this it executed another node binary, which nobody knew: that one is not recorded";
            self.tell(b'l', pid, why.as_bytes());
        }
    }

    /// Tells the tracer of a process that nothing can be known of any more.
    fn tell_missed(&mut self, pid: u32, why: &str) {
        self.tell_of_missed(pid, PathBuf::from("node"), why);
    }

    /// `program`: its path, or what is known of it.
    fn tell_of_missed(&mut self, pid: u32, program: PathBuf, why: &str) {
        self.report(&Done {
            number: 0,
            pid,
            path: program,
            file: None,
            opened: None,
            after_exec: true,
            since: Instant::now(),
            is_planned: false,
            answered: None,
            started: 0,
            description: Vec::new(),
            outcome: Outcome::Failed(why.into()),
        });
    }

    /// Tells the tracer what came of a job.
    fn report(&mut self, done: &Done) {
        let mut body;
        let kind = match &done.outcome {
            Outcome::NotNode => return,
            Outcome::Attached {
                image,
                points,
                took,
                ..
            } => {
                body = (took.as_nanos() as u64).to_le_bytes().to_vec();
                body.extend((*points as u32).to_le_bytes());
                body.extend([image.index, u8::from(done.after_exec)]);
                body.extend((done.since.elapsed().as_nanos() as u64).to_le_bytes());
                let (device, inode) = done.file.unwrap_or_default();
                body.extend([device, inode].map(u64::to_le_bytes).concat());
                body.extend(image.serial.to_le_bytes());
                let opened = self.opened.get(&image.index);
                let descriptor = opened.map(|file| file.as_raw_fd() as u32);
                body.extend(descriptor.unwrap_or(NOT_OPEN).to_le_bytes());
                body.extend((done.description.len() as u32).to_le_bytes());
                body.extend(&done.description);
                b'a'
            }
            Outcome::Failed(reason) => {
                body = (reason.len() as u32).to_le_bytes().to_vec();
                body.extend(reason.as_bytes());
                b'f'
            }
        };
        body.extend(done.path.as_os_str().as_bytes());
        self.tell(kind, done.pid, &body);
    }

    fn let_go(&mut self, stop: &Stop, done: &Done) {
        let is_node = !matches!(done.outcome, Outcome::NotNode);
        match &stop.state {
            StopState::Stopped(from, signal) => {
                let _ = tracee::release(stop.pid, *signal);
                if is_node {
                    let mut body = from.to_le_bytes().to_vec();
                    body.extend(now().to_le_bytes());
                    self.tell(b's', stop.pid, &body);
                }
            }
            StopState::Asked | StopState::Refused => {}
        }
    }

    /// Takes links of ended processes away: a build may start a thousand, each link has descriptors, and each hit of a probe passes by all links.
    fn sweep(&mut self) {
        if self.links.len() < self.links_to_sweep {
            return;
        }
        let is_there = |pid: u32, started: StartTime| start_time(pid) == started;
        let all = std::mem::take(&mut self.links);
        let (left, ended): (Vec<_>, Vec<_>) =
            (all.into_iter()).partition(|(pid, started, _)| is_there(*pid, *started));
        self.links = left;
        self.links_to_sweep = self.links.len() + MOST_ENDED;
        self.probed
            .retain(|(pid, _), started| is_there(*pid, *started));
        if !ended.is_empty() {
            aside(move || {
                if let Some(link) = leave_in_turn(ended.into_iter().map(|(_, _, link)| link)) {
                    link.detach();
                }
                thread::sleep(LEAVING);
            });
        }
    }

    /// Gives up the starts of a service whose jobs hang, and has others do the work of those threads.
    fn give_up_jobs(&mut self, programs: &Programs) {
        let is_late = |since: &Instant| since.elapsed() > LONGEST_STOP;
        let held = self.gone_on.iter();
        let held =
            held.filter_map(|(number, (pid, since))| is_late(since).then_some((*number, *pid)));
        let stopped = self.waiting.iter().filter_map(|(number, w)| match w {
            Waiting::Process(stop) if is_late(&stop.since) => Some((*number, stop.pid)),
            _ => None,
        });
        let late: Vec<_> = held.chain(stopped).collect();
        for (number, pid) in late {
            self.gone_on.remove(&number);
            let waiting = self.waiting.remove(&number);
            if !self.workers.take_back(number) {
                self.given_up.insert(number);
                self.workers.do_without_one();
            }
            let is_node = match &waiting {
                Some(Waiting::Process(stop)) => {
                    (self.host.as_ref()).is_some_and(|host| host.knows(stop.execution.inode))
                }
                _ => true,
            };
            self.forget(pid, programs);
            if is_node {
                let limit = LONGEST_STOP.as_secs();
                self.tell_missed(
                    pid,
                    &format!("reading its binary takes more than {limit} s"),
                );
            }
        }
    }

    /// Lets go who waits too long: a file on a disk that does not answer, for example.
    fn give_up_waiting(&mut self, programs: &Programs) {
        if self.host.is_some() {
            // The job goes on: the process gets its probes later.
            self.waiting.retain(|number, w| match w {
                Waiting::Exec(held, since) if since.elapsed() > LONGEST_HOLD => {
                    self.gone_on.insert(*number, (held.pid, *since));
                    false
                }
                _ => true,
            });
            return self.give_up_jobs(programs);
        }
        let late = self.waiting.iter().filter(|(_, w)| match w {
            // Who was asked to stop may still do, and waits from then on; who was not does not wait.
            Waiting::Process(stop) => {
                matches!(stop.state, StopState::Stopped(..)) && stop.since.elapsed() > LONGEST_STOP
            }
            Waiting::Exec(_, since) => since.elapsed() > LONGEST_STOP,
            Waiting::Tracer => false,
        });
        let late: Vec<u64> = late.map(|w| *w.0).collect();
        let limit = LONGEST_STOP.as_secs();
        let why = format!("reading its binary takes more than {limit} s");
        for number in late {
            match self.waiting.remove(&number) {
                // When the job is done, it has probes after all, and the tracer is told.
                Some(Waiting::Process(mut stop)) => {
                    if let StopState::Stopped(_, signal) = stop.state {
                        let _ = tracee::release(stop.pid, signal);
                        self.tell(b'l', stop.pid, why.as_bytes());
                    }
                    stop.state = StopState::Refused;
                    self.waiting.insert(number, Waiting::Process(stop));
                }
                // Dropping it lets it go; then it is stopped as any other that nobody held, and has probes of that job.
                Some(Waiting::Exec(..)) if !self.workers.take_back(number) => {
                    self.given_up.insert(number);
                    self.workers.do_without_one();
                }
                _ => {}
            }
        }
    }

    /// Whoever waits need not any more.
    fn let_all_go(&mut self, programs: &Programs) {
        let since = Instant::now();
        loop {
            // Dropping a held exec lets it go.
            self.waiting.retain(|_, waiting| match waiting {
                Waiting::Process(Stop {
                    pid,
                    state: StopState::Stopped(_, signal),
                    ..
                }) => {
                    let _ = tracee::release(*pid, *signal);
                    false
                }
                Waiting::Process(Stop {
                    state: StopState::Asked,
                    ..
                }) => true,
                _ => false,
            });
            // If one cannot be stopped, it reads from a disk that does not answer: the kernel lets it go when we end.
            if self.waiting.is_empty() || since.elapsed() > SHORT_STOP {
                break;
            }
            std::thread::sleep(SHORT_STOP / 50);
            while let Some((pid, change)) = tracee::next_change() {
                self.changed(pid, &change, programs);
            }
        }
        let closed = Err(io::Error::other("closed"));
        if let Ok(fanotify) = std::mem::replace(&mut self.fanotify, closed) {
            // A grace period that is short: this process cannot end before.
            let _expedited = Expedited::new();
            fanotify.close();
        }
    }

    /// Later executions of this program are not told any more.
    fn remember_other(&self, execution: &Execution) {
        let present = 1u8;
        // SAFETY: key and value are what the map was made for.
        unsafe {
            libbpf_sys::bpf_map_update_elem(
                self.not_node,
                execution.program.as_ptr().cast(),
                (&raw const present).cast(),
                0,
            );
        }
    }
}

/// Takes the probes away that a job has attached and nobody needs; the loop does not wait for that.
fn detach_needless(done: &mut Done) {
    if let Outcome::Attached { link, .. } = &mut done.outcome
        && let Some(link) = link.take()
    {
        aside(move || link.detach());
    }
}

/// Whether a process executes another program by now than the one that probes were made for; `None` if it has ended.
fn executes_another(done: &Done) -> Option<bool> {
    let now = fs::metadata(format!("/proc/{}/exe", done.pid)).ok()?;
    Some(done.file.is_some_and(|file| file != file_id(&now)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn what_nobody_reads_is_too_much_at_some_time_and_what_is_read_is_not() {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let mut unsent = Unsent::default();
        let mut count = 0;
        while !unsent.is_too_much() {
            unsent.add(message(b'a', 1, &[7; 1000]));
            unsent.flush(&ours);
            count += 1;
        }
        assert!(
            (Unsent::MOST / 1100..2 * Unsent::MOST / 1000).contains(&count),
            "{count}"
        );
        for _ in 0..count {
            let (kind, pid, body) = receive(&theirs).unwrap();
            assert_eq!((kind, pid, body.len()), (b'a', 1, 1000));
            unsent.flush(&ours);
        }
        assert!(unsent.is_empty() && unsent.bytes == 0);
    }
}
