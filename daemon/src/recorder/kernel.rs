//! The privileged half of a trace: programs in the kernel, and what they wrote. A user who may load them has them here; another one
//! borrows them of the service (see [`crate::service`]), which follows that user's own programs and hands the ring buffer over.

use std::cell::Cell;
use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::Duration,
};

use nodeprof_bpf::{
    Code, Counters, LoadError, Options, Owner, Programs, Reader, Sum, Unended, Warmth,
    hold::{Execs, Holder, HolderOptions, Obeys},
};
use nodeprof_probes::plan::{AttachPlan, Family};
use serde::{Deserialize, Serialize};

use super::{HIGHEST_HZ, TraceError, calibrate, load_plan, now, system};
use crate::control::{Answer, AskError, Client, Step};

/// What the kernel side is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Counts only.
    pub count: bool,
    /// Count the entries of callbacks apart.
    pub verify: bool,
    /// Trace syscalls.
    pub files: bool,
    /// Walk stacks.
    pub stacks: bool,
    /// Times off the CPU.
    pub waits: bool,
    /// Where code is mapped.
    pub mappings: bool,
    /// CPU samples a second; 0: none.
    pub sample_hz: u32,
    /// Families to attach.
    pub families: Vec<Family>,
}

impl Wanted {
    /// As options of the programs. `owner`: see [`Options::owner`].
    pub(crate) fn options(&self, cache: Option<&Path>, owner: Option<Owner>) -> Options {
        Options {
            count_only: self.count,
            verify: self.verify,
            files: self.files,
            stacks: self.stacks,
            sample_hz: self.sample_hz.min(HIGHEST_HZ),
            waits: self.waits,
            mappings: self.mappings,
            cache: cache.map(Path::to_owned),
            owner,
            ..Options::default()
        }
    }

    /// Attaches what is not a probe.
    ///
    /// # Errors
    /// The kernel's words.
    pub(crate) fn attach(&self, programs: &Programs) -> Result<(), LoadError> {
        programs.attach_tree(self.files || self.mappings)?;
        if self.waits {
            programs.attach_waits()?;
        }
        Ok(())
    }
}

/// What the programs have counted when a trace ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    pub(crate) counters: Counters,
    pub(crate) sums: Vec<Sum>,
    /// Of programs that go on.
    #[serde(default)]
    pub(crate) unended: Unended,
    /// Of one hit of a probe, if known.
    pub(crate) ns_per_hit: Option<f64>,
}

impl Counted {
    /// Reads all out.
    pub(crate) fn of(programs: &Programs, cache: Option<&Path>) -> Counted {
        Counted {
            unended: programs.unended(now),
            // Whether they can be read is counted.
            sums: programs.sums(),
            counters: programs.counters(),
            ns_per_hit: calibrate::ns_per_hit(cache, programs),
        }
    }
}

/// See the module.
pub(super) enum Kernel {
    Own(Box<Programs>),
    Lent(Lent),
}

/// What the service has handed over.
pub(super) struct Lent {
    connection: UnixStream,
    ring: OwnedFd,
    /// What it last told of hits, and whether it may be asked again: an answer that came too late is still on its way.
    hits: Cell<u64>,
    asks_hits: Cell<bool>,
}

/// Both halves of the privileged half, and the plan of the first program's binary, if it was made already.
pub(super) struct Begun {
    pub(super) kernel: Kernel,
    pub(super) holder: Holder,
    pub(super) plan: Option<Result<AttachPlan, String>>,
}

/// The first process of a trace.
pub(super) struct First<'a> {
    pub(super) pid: u32,
    pub(super) descriptor: &'a OwnedFd,
    /// The node binary that it will execute, as far as can be told.
    pub(super) guess: Option<&'a Path>,
}

impl Kernel {
    /// Loads the programs, and starts the holder.
    pub(super) fn own(
        wanted: &Wanted,
        first: &First<'_>,
        candidates: Vec<std::path::PathBuf>,
        cache: Option<&Path>,
    ) -> Result<Begun, TraceError> {
        let count = wanted.count;
        let warmth = Warmth::start(calibrate::idle_address());
        let plan = first.guess.map(|path| {
            let (path, cache) = (path.to_owned(), cache.map(Path::to_owned));
            std::thread::spawn(move || load_plan(&path, None, cache.as_deref(), count))
        });
        let programs = Programs::load(&wanted.options(cache, None));
        // Joined before the fork of the holder: it must not be forked while another thread allocates.
        let plan = plan.and_then(|thread| thread.join().ok());
        let programs = programs?;
        programs
            .follow(first.pid)
            .map_err(system("following the new process"))?;
        let registration = warmth.stop();
        let known = first
            .guess
            .map(Path::to_owned)
            .zip(plan.clone().and_then(Result::ok));
        let of_holder = cache.map(Path::to_owned);
        let plans = move |path: &Path, open: &Path| match &known {
            Some((known, plan)) if known == path && is_same_file(known, open) => Ok(plan.clone()),
            _ => load_plan(open, None, of_holder.as_deref(), count),
        };
        let holder = Holder::start(
            &programs,
            HolderOptions {
                families: wanted.families.clone(),
                plans: Box::new(plans),
                candidates,
                // The holder has a copy and closes it last; ours goes at once.
                spare: registration,
                admission: None,
                description: None,
                execs: Execs::Alone,
                syscalls: false,
                obeys: Obeys::Socket,
            },
        )
        .map_err(system("starting the holder process"))?;
        wanted.attach(&programs)?;
        if let Some(path) = first.guess {
            match holder.attach(first.pid, path) {
                // It has ended, which whoever records finds, says, and goes on without probes.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                asked => asked.map_err(system("asking the holder process"))?,
            }
        }
        Ok(Begun {
            kernel: Kernel::Own(Box::new(programs)),
            holder,
            plan,
        })
    }

    /// Asks the service that listens at `socket` to do the same.
    pub(super) fn lent(
        socket: &Path,
        wanted: &Wanted,
        first: &First<'_>,
    ) -> Result<Begun, AskError> {
        // Whether it may be read is this user's business, so it is opened here.
        let binary = first.guess.and_then(|path| File::open(path).ok());
        let process = first.descriptor.as_fd();
        let files: Vec<_> = std::iter::once(process)
            .chain(binary.as_ref().map(|file| file.as_fd()))
            .collect();
        let (connection, ring, holder) = Client::new(socket).trace(wanted.clone(), &files)?;
        Ok(Begun {
            kernel: Kernel::Lent(Lent {
                connection,
                ring,
                hits: Cell::new(0),
                asks_hits: Cell::new(true),
            }),
            holder: Holder::lent(holder),
            plan: None,
        })
    }

    /// Starts the clocks of the CPU samples; returns why there are none.
    pub(super) fn sample(&self, hz: u32) -> Option<String> {
        match self {
            _ if hz == 0 => None,
            Kernel::Own(programs) => programs.attach_samples(hz).err().map(|e| e.to_string()),
            Kernel::Lent(lent) => match lent.ask(Step::Start) {
                Ok(Answer::Started { no_samples }) => no_samples,
                Ok(_) => Some(AskError::Unexpected.to_string()),
                Err(error) => Some(error.to_string()),
            },
        }
    }

    /// A reader of the ring buffer.
    pub(super) fn reader<F: FnMut(&[u8])>(&self, each: F) -> io::Result<Reader<F>> {
        match self {
            Kernel::Own(programs) => programs.reader(each),
            Kernel::Lent(lent) => Reader::new(lent.ring.as_fd(), each),
        }
    }

    /// Hits of probes so far, as [`Programs::hits`] tells them; those of before where the service does not answer any more.
    pub(super) fn hits(&self) -> u64 {
        match self {
            Kernel::Own(programs) => programs.hits(),
            Kernel::Lent(lent) => {
                if lent.asks_hits.get() {
                    match lent.ask(Step::Hits) {
                        Ok(Answer::Hits(hits)) => lent.hits.set(hits),
                        Ok(_) | Err(_) => lent.asks_hits.set(false),
                    }
                }
                lent.hits.get()
            }
        }
    }

    /// Ends what is not a probe, and tells what was counted; not the cost of a hit, which takes time to measure. `goes_on`: some program of the trace.
    pub(super) fn end(&self, goes_on: bool) -> Result<Counted, String> {
        match self {
            Kernel::Own(programs) => {
                let unended = goes_on.then(|| programs.unended(now));
                programs.detach_tree();
                Ok(Counted {
                    unended: unended.unwrap_or_default(),
                    sums: programs.sums(),
                    counters: programs.counters(),
                    ns_per_hit: None,
                })
            }
            Kernel::Lent(lent) => match lent.ask(Step::End) {
                Ok(Answer::Counted(counted)) => Ok(*counted),
                Ok(_) => Err(AskError::Unexpected.to_string()),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    /// Nanoseconds of one hit, where [`Kernel::end`] has not told.
    pub(super) fn ns_per_hit(&self, cache: Option<&Path>) -> Option<f64> {
        match self {
            Kernel::Own(programs) => calibrate::ns_per_hit(cache, programs),
            Kernel::Lent(_) => None,
        }
    }

    /// Where the kernel has put the programs' code: for who may know.
    pub(super) fn code(&self) -> Vec<Code> {
        match self {
            Kernel::Own(programs) => programs.code(),
            Kernel::Lent(_) => Vec::new(),
        }
    }

    /// The connection to the service, which closes when the probes are gone.
    pub(super) fn into_connection(self) -> Option<UnixStream> {
        match self {
            Kernel::Own(_) => None,
            Kernel::Lent(lent) => Some(lent.connection),
        }
    }
}

impl Lent {
    fn ask(&self, step: Step) -> io::Result<Answer> {
        // Measuring the cost of a hit takes a moment, once for each kernel.
        self.connection
            .set_read_timeout(Some(Duration::from_secs(10)))?;
        crate::control::step(&self.connection, step)
    }
}

fn is_same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let id = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    id(a).is_some() && id(a) == id(b)
}
