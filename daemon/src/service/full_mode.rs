//! Starts that are recorded in full. A process of its own does that, the [`lane`]: here is what it does, and what the service
//! says to it and hears from it.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd as _, AsRawFd as _, RawFd},
    path::PathBuf,
    time::Instant,
};

use nodeprof_bpf::{Options, Programs, Reader, hold::Event};

use super::{
    CeilingLimits, Config, Guard, Happening, SILENCE, Service, ServiceError, Sink, events,
    for_host,
    gate::Closed,
    lane::{self, Lane},
    read_into,
    running::{Running, losses_of_host},
    system,
};
use crate::recorder::{Mode, wait_readable};

impl Service<'_> {
    /// Records starts in full mode, for the service at the other end of `link`, until that wants an end of it.
    pub(super) fn serve_lane(
        config: Config,
        link: lane::Link,
        guard: Option<PathBuf>,
        tell: &mut dyn FnMut(Happening<'_>),
    ) -> Result<(), ServiceError> {
        // Before there are threads.
        let guard = Guard::start(config.hold, guard);
        let programs = Programs::load(&Options {
            stacks: true,
            mappings: true,
            ..for_host(&config)
        })?;
        programs.attach_tree(false)?;
        let buffer = RefCell::new(Vec::new());
        let reader = read_into(&buffer, &programs)?;
        // What the service tells holds.
        let limits = CeilingLimits::default();
        let sink = Sink::Service(link);
        let mut service = Service::new(config, Mode::Full, &programs, guard, limits, sink)?;
        let holding = service.await_holder();
        lane::read_as_anybody(true).map_err(system("giving up rights"))?;
        // Until the service hears that we are here count mode stands in for us.
        service.gate.open(Closed::Paused);
        service.say(&lane::Said::Ready {
            holder: service.holder.pid(),
            not_holding_because: holding.err(),
        })?;
        let mut said = lane::Figures::default();
        let ended = loop {
            let mut unsaid = Vec::new();
            let mut hear = |happening: Happening<'_>| match happening {
                Happening::Lost { pid, why } => unsaid.push((pid, why)),
                other => tell(other),
            };
            let turned = service.turn_of_lane(&reader, &buffer, &mut hear);
            let is_over = !matches!(turned, Ok(true));
            if is_over {
                // From now on count mode stands in for us.
                service.gate.close(Closed::Paused);
                // What is under way, and what this turn has said so far, goes to the service in any case.
                service.finish_all(&mut hear);
            }
            for (pid, why) in unsaid {
                service.say(&lane::Said::Lost { pid, why })?;
            }
            // Who is begun or ended is told at once: of a lane that is gone, the service knows by that what is lost.
            let figures = service.figures();
            if is_over || figures.running != said.running {
                service.say(&lane::Said::Alive(figures.clone()))?;
                said = figures;
            }
            if is_over {
                break turned;
            }
        };
        let mut unheard = Vec::new();
        service.holder.end_and_hear(SILENCE, |event| match event {
            Event::Attached { pid, .. } | Event::Failed { pid, .. } => unheard.push(pid),
            _ => {}
        });
        for pid in unheard {
            let why = "full mode ended when it began".into();
            service.say(&lane::Said::Lost { pid, why })?;
        }
        ended.map(drop)
    }

    /// One turn of the lane; false: the service wants an end of it.
    fn turn_of_lane(
        &mut self,
        reader: &Reader<impl FnMut(&[u8])>,
        buffer: &RefCell<Vec<u8>>,
        hear: &mut dyn FnMut(Happening<'_>),
    ) -> Result<bool, ServiceError> {
        let mut descriptors = vec![
            self.programs.ring().as_fd().as_raw_fd(),
            self.holder.descriptor(),
            self.store.as_raw_fd(),
        ];
        descriptors.extend(self.guard.descriptor());
        wait_readable(&descriptors, Some(self.look_in())).map_err(system("waiting for records"))?;
        reader.consume().map_err(system("reading records"))?;
        let heard = self.hear_guard(hear).and_then(|()| self.hear_holder(hear));
        let taken = buffer.take();
        self.take(&taken, hear);
        for run in self.running.values_mut() {
            run.assembler.prepare();
        }
        self.look_after(hear);
        heard?;
        self.hear_service()
            .map_err(system("talking with the service"))
    }

    /// How the lane is.
    fn figures(&self) -> lane::Figures {
        /// Of more the service does not hear: a message has its limit.
        const MOST_TOLD: usize = 4_000;
        let counters = self.programs.counters();
        let executed = self.running.iter().filter(|(_, run)| run.is_start());
        let mut running: Vec<u32> = executed.map(|(pid, _)| *pid).take(MOST_TOLD).collect();
        running.sort_unstable();
        lane::Figures {
            events: events(&counters),
            losses: losses_of_host(&counters),
            passed_over: self.ceiling.passed_over(),
            running,
        }
    }

    pub(super) fn say(&self, said: &lane::Said) -> Result<(), ServiceError> {
        match &self.store {
            Sink::Service(link) => link.say(said).map_err(system("talking with the service")),
            Sink::Store(_) => Ok(()),
        }
    }

    /// Does what the service says, if it says anything; false: it wants an end of it.
    fn hear_service(&mut self) -> io::Result<bool> {
        let Sink::Service(link) = &self.store else {
            return Ok(true);
        };
        while is_readable(link.descriptor())? {
            match link.hear() {
                None => return Ok(false),
                Some(lane::Told::Ping) => {
                    link.say(&lane::Said::Alive(self.figures()))?;
                }
                Some(lane::Told::Record { closed, one_in }) => {
                    self.ceiling.set_one_in(one_in);
                    match closed {
                        true => self.gate.close(Closed::Paused),
                        false => self.gate.open(Closed::Paused),
                    }
                }
            }
        }
        Ok(true)
    }

    /// Starts the lane of full mode, if the rules name it.
    pub(super) fn start_lane(&mut self) {
        let wanted = self.config.rules.ask_mode(Mode::Full);
        self.lane = wanted.then(|| Lane::start(&self.config, self.guard.listens_at()));
    }

    pub(super) fn hear_lane(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        let (closed, one_in) = (self.gate.is_closed(), self.ceiling.one_in());
        while let Some(news) = self.lane.as_mut().and_then(Lane::next) {
            self.on_lane(news, tell);
        }
        if let Some(lane) = &mut self.lane {
            lane.tell(closed, one_in);
        }
    }

    fn on_lane(&mut self, news: lane::News, tell: &mut dyn FnMut(Happening<'_>)) {
        match news {
            lane::News::Ready {
                not_holding_because,
            } => {
                // Unless it is to end already.
                if self.lane.is_some() {
                    self.gate.set_lacks_full(false);
                }
                self.of_lanes.begin();
                self.count_from_here();
                tell(Happening::FullMode(
                    &not_holding_because.map_or(Ok(()), Err),
                ));
            }
            lane::News::Recorded {
                pid,
                owner,
                recording,
            } => {
                if self.kept.is_known(pid, Mode::Full, Instant::now()) {
                    return; // count mode has stood in for it
                }
                if let Err(why) = self.store.keep(pid, owner, *recording) {
                    tell(Happening::Lost { pid, why });
                }
            }
            lane::News::Lost { pid, why } => {
                // Count mode has it, if it stands in for full mode.
                let runs = self.running.get(&pid).is_some_and(Running::is_start);
                if !runs && !self.kept.is_known(pid, Mode::Full, Instant::now()) {
                    self.lose(pid, Mode::Full, why, tell);
                }
            }
            lane::News::Counted {
                losses,
                passed_over,
            } => self.of_lanes.see(losses, passed_over),
            lane::News::Gone => {
                self.gate.set_lacks_full(true);
                tell(Happening::NoFullMode);
            }
            lane::News::NotStarted { why } => tell(Happening::NotInFullMode(&why)),
        }
    }

    /// Ends the lane, and keeps what it had. Count mode stands in for it from now on.
    pub(super) fn end_lane(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        self.gate.set_lacks_full(true);
        for news in self.lane.take().into_iter().flat_map(Lane::end) {
            self.on_lane(news, tell);
        }
    }
}

/// Whether something waits to be read, or the other side is gone.
fn is_readable(descriptor: RawFd) -> io::Result<bool> {
    let mut asked = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd.
    match unsafe { libc::poll(&mut asked, 1, 0) } {
        ..0 => Err(io::Error::last_os_error()),
        n => Ok(n > 0),
    }
}
