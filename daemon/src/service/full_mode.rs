//! Starts that are recorded in full. A process of its own does that, the [`lane`]: here is what it does, and what the service
//! says to it and hears from it.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsFd as _, AsRawFd as _, RawFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use nodeprof_bpf::{Options, Programs, Reader};

use super::{
    CeilingLimits, Config, Guard, Happening, LOOK_IN, Service, ServiceError, Sink, events,
    for_host,
    gate::Closed,
    lane::{self, HANDOVER, LONGEST_FAREWELL, Lane},
    nodes::Nodes,
    read_into,
    running::{Running, losses_of_host},
    system,
    untold::Why,
};
use crate::recorder::{Mode, wait_readable};

impl Service<'_> {
    /// Records starts in full mode, for the service at the other end of `link`, until that wants an end of it.
    pub(super) fn serve_lane(
        config: Config,
        link: lane::Link,
        guard: Option<PathBuf>,
        nodes: Nodes,
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
        let mode = Mode::Full;
        let mut service = Service::new(config, mode, &programs, guard, limits, sink, nodes)?;
        let holding = service.await_holder();
        lane::read_as_anybody(true).map_err(system("giving up rights"))?;
        // Until the service hears that we are here count mode stands in for us.
        service.gate.open(Closed::Paused);
        service.say(&lane::Said::Ready {
            holder: service.holder.pid(),
            not_holding_because: holding.err(),
        })?;
        let mut said = lane::Figures::default();
        let mut farewell = None;
        let ended = loop {
            let mut unsaid = Vec::new();
            let mut hear = |happening: Happening<'_>| match happening {
                Happening::Lost { pid, why } => unsaid.push((pid, why)),
                other => tell(other),
            };
            let turned = service.turn_of_lane(&reader, &buffer, &mut farewell, &mut hear);
            let is_over = !matches!(turned, Ok(true));
            if is_over {
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
        for pid in service.end_holder() {
            let why = "full mode ended when it began".into();
            service.say(&lane::Said::Lost { pid, why })?;
        }
        ended.map(drop)
    }

    /// One turn of the lane; false: it is the last one.
    fn turn_of_lane(
        &mut self,
        reader: &Reader<impl FnMut(&[u8])>,
        buffer: &RefCell<Vec<u8>>,
        farewell: &mut Option<Farewell>,
        hear: &mut dyn FnMut(Happening<'_>),
    ) -> Result<bool, ServiceError> {
        let mut descriptors = vec![
            self.programs.ring().as_fd().as_raw_fd(),
            self.holder.descriptor(),
        ];
        let patience = match farewell {
            // The service says no more.
            Some(_) => LOOK_IN,
            None => {
                descriptors.push(self.store.as_raw_fd());
                self.look_in()
            }
        };
        descriptors.extend(self.guard.descriptor());
        wait_readable(&descriptors, Some(patience)).map_err(system("waiting for records"))?;
        reader.consume().map_err(system("reading records"))?;
        let heard = self.hear_guard(hear).and_then(|()| self.hear_holder(hear));
        let taken = buffer.take();
        self.take(&taken, hear);
        for run in self.running.values_mut() {
            run.assembler.prepare();
        }
        self.look_after(hear);
        heard?;
        let talking = || system("talking with the service");
        let Some(farewell) = farewell else {
            if !self.hear_service().map_err(talking())? {
                *farewell = Some(Farewell::begin());
            }
            return Ok(true);
        };
        let is_gone = match &self.store {
            Sink::Service(link) => has_hung_up(link.descriptor()).map_err(talking())?,
            Sink::Store(_) => true,
        };
        let more = is_readable(self.holder.descriptor()).map_err(system("hearing the holder"))?;
        let step = farewell.step(Instant::now(), taken.is_empty() && !more);
        if step != Step::Records {
            self.gate.close(Closed::Paused);
        }
        Ok(!is_gone && step != Step::Ends)
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

    /// Says to the service, if this is full mode, what has become of a start. Who is gone does not hear it.
    pub(super) fn say_of_full(&self, said: &lane::Said) {
        let _ = self.say(said);
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
        self.lane = wanted.then(|| {
            let listens_at = self.guard.listens_at();
            Lane::start(&self.config, listens_at, self.nodes.found())
        });
    }

    pub(super) fn hear_lane(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        let (closed, one_in) = (self.gate.is_closed(), self.ceiling.one_in());
        self.see_those_left();
        self.lose_those_overdue(tell);
        while let Some(news) = self.lane.as_mut().and_then(Lane::next) {
            self.on_lane(news, tell);
        }
        if let Some(handover) =
            (self.handover).take_if(|handover| handover.since.elapsed() >= HANDOVER)
        {
            self.gate.set_lacks_full(false);
            self.handed_over = Some(Instant::now());
            if let Some(told) = &handover.told {
                tell(Happening::FullMode(told));
            }
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
                self.of_lanes.begin();
                self.count_from_here();
                // Unless it is to end already.
                if self.lane.as_ref().is_some_and(|lane| !lane.is_ending()) {
                    self.hand_over(Some(not_holding_because.map_or(Ok(()), Err)));
                }
            }
            lane::News::Begun => {}
            lane::News::Recorded {
                pid,
                owner,
                recording,
            } => {
                self.untold.take(pid);
                let now = Instant::now();
                if self.kept.is_known(pid, Mode::Full, now) {
                    return; // count mode has stood in for it
                }
                // Nobody could read its command: then it may be count mode's.
                let is_unsure = recording.runs.iter().any(|run| run.command.is_empty());
                if is_unsure && (self.counted.has(pid, now) || self.running.contains_key(&pid)) {
                    return;
                }
                if let Err(why) = self.store.keep(pid, owner, *recording) {
                    tell(Happening::Lost { pid, why });
                }
            }
            lane::News::Lost { pid, why } => {
                self.untold.take(pid);
                self.lose_in_full(pid, why, tell);
            }
            lane::News::Nothing { pid } => drop(self.untold.take(pid)),
            lane::News::Unwanted { pid } => match self.untold.take(pid) {
                Some(Why::LeftToFull) => {
                    let why =
                        "count mode has left it to full mode, which could not read its command";
                    self.lose_in_full(pid, why.into(), tell);
                }
                Some(why) => self.lose_in_full(pid, why.words().into(), tell),
                None => {}
            },
            lane::News::Unasked { pid } => {
                if !self.running.contains_key(&pid) {
                    self.await_word_of(pid, Why::Unasked);
                }
            }
            lane::News::Counted {
                losses,
                passed_over,
            } => self.of_lanes.see(losses, passed_over),
            lane::News::Fails => self.stand_in(),
            lane::News::Gone => {
                self.stand_in();
                self.lose_those_left(tell);
                tell(Happening::NoFullMode);
            }
            lane::News::Ended => {
                self.lose_those_left(tell);
                self.lane.take_if(|lane| lane.is_retired());
            }
            lane::News::NotStarted { why } => tell(Happening::NotInFullMode(&why)),
        }
    }

    /// Ends the lane, and keeps what it had. Count mode stands in for it from now on.
    pub(super) fn end_lane(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        self.stand_in();
        for news in self.lane.take().into_iter().flat_map(Lane::end) {
            self.on_lane(news, tell);
        }
        self.lose_those_left(tell);
    }

    /// Begins the lane anew by the configuration that holds now, or ends it, if the rules do not name full mode any more. Waits for neither.
    pub(super) fn renew_lane(&mut self) {
        self.stand_in();
        let wanted = self.config.rules.ask_mode(Mode::Full);
        match &mut self.lane {
            None => self.start_lane(),
            Some(lane) if wanted => {
                let listens_at = self.guard.listens_at();
                lane.renew(&self.config, listens_at, self.nodes.found());
            }
            Some(lane) => lane.retire(),
        }
    }

    /// From now on count mode has the starts that the rules want in full.
    fn stand_in(&mut self) {
        self.gate.set_lacks_full(true);
        self.handover = None;
    }

    /// The lane has begun: soon its starts are its own. What of that is told then.
    fn hand_over(&mut self, told: Option<Result<(), String>>) {
        self.stand_in();
        self.handover = Some(Handover {
            since: Instant::now(),
            told,
        });
    }

    /// Why nothing is recorded is none any more. The lane hears of that later than count mode, which would leave starts to it meanwhile.
    pub(super) fn reopen(&mut self, why: Closed) {
        if self.gate.is_closed_for(why) && !self.gate.lacks_full() {
            self.hand_over(None);
        }
        self.gate.open(why);
    }

    /// Count mode has left starts to full mode. It must tell of each.
    fn see_those_left(&mut self) {
        let left: Vec<u32> = self.gate.left_to_full(&mut self.left_read).collect();
        for pid in left {
            self.await_word_of(pid, Why::LeftToFull);
        }
    }

    /// Whether both modes may record a start that began a moment ago: one of them takes over from the other, or nobody has read its command before its exec.
    pub(super) fn may_both_record(&self) -> bool {
        /// Longer than it takes to hear of an exec.
        const MOMENT: Duration = Duration::from_secs(1);
        let depends_on_command = self.config.rules.ask_command();
        let has_just_begun = (self.handed_over).is_some_and(|at| at.elapsed() < MOMENT);
        self.handover.is_some()
            || has_just_begun
            || (self.lane.as_ref())
                .is_some_and(|lane| lane.is_beginning() || lane.is_ending() || depends_on_command)
    }

    /// Somebody must tell of it, unless somebody has.
    pub(super) fn await_word_of(&mut self, pid: u32, why: Why) {
        let now = Instant::now();
        let told = [&self.kept, &self.counted, &self.told_lost];
        if told.iter().all(|told| !told.has(pid, now)) {
            self.untold.add(pid, why, now);
        }
    }

    /// Nobody has told of these in time.
    fn lose_those_overdue(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        for (pid, why) in self.untold.overdue(Instant::now()) {
            let is_recorded = self.running.contains_key(&pid)
                || self.lane.as_ref().is_some_and(|lane| lane.records(pid));
            if !is_recorded {
                self.lose(pid, self.mode, why.words().into(), tell);
            }
        }
    }

    /// The lane has ended, and of these it has said nothing. An exec may have failed since the holders were asked; that is not known.
    fn lose_those_left(&mut self, tell: &mut dyn FnMut(Happening<'_>)) {
        self.see_those_left();
        for pid in self.untold.of_full() {
            let why = "full mode ended before it told of it".into();
            self.lose_in_full(pid, why, tell);
        }
    }

    /// Full mode has not recorded it.
    fn lose_in_full(&mut self, pid: u32, why: String, tell: &mut dyn FnMut(Happening<'_>)) {
        // Count mode has it, if it stands in for full mode.
        let runs = self.running.get(&pid).is_some_and(Running::is_start);
        if !runs && !self.kept.is_known(pid, Mode::Full, Instant::now()) {
            self.lose(pid, Mode::Full, why, tell);
        }
    }
}

/// Full mode has begun: until its starts are left to it.
pub(super) struct Handover {
    since: Instant,
    /// What is told then: whether starts are held.
    told: Option<Result<(), String>>,
}

/// The end of a lane, which loses nothing: it records on while it may be asked about an exec that count mode has left to it, and then goes on until nothing is
/// heard any more of what it has begun with.
struct Farewell {
    since: Instant,
    closed: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Records,
    /// What it has begun with.
    Listens,
    Ends,
}

impl Farewell {
    /// Longer than an exec is held.
    const QUIET: Duration = Duration::from_millis(60);

    fn begin() -> Farewell {
        Farewell {
            since: Instant::now(),
            closed: None,
        }
    }

    /// After a turn; `is_calm`: it has heard nothing, and nothing waits.
    fn step(&mut self, now: Instant, is_calm: bool) -> Step {
        if now.duration_since(self.since) < HANDOVER {
            return Step::Records;
        }
        let closed = *self.closed.get_or_insert(now);
        let is_quiet = is_calm && now.duration_since(closed) > Farewell::QUIET;
        match is_quiet || now.duration_since(self.since) > LONGEST_FAREWELL {
            true => Step::Ends,
            false => Step::Listens,
        }
    }
}

/// Whether something waits to be read, or the other side is gone.
fn is_readable(descriptor: RawFd) -> io::Result<bool> {
    Ok(polled(descriptor)? != 0)
}

/// Whether the other side is gone; it may have said its last word before.
fn has_hung_up(descriptor: RawFd) -> io::Result<bool> {
    Ok(polled(descriptor)? & libc::POLLHUP != 0)
}

fn polled(descriptor: RawFd) -> io::Result<libc::c_short> {
    let mut asked = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd.
    match unsafe { libc::poll(&mut asked, 1, 0) } {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(asked.revents),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_ends_records_on_then_listens_until_it_hears_nothing() {
        let begun = Farewell::begin();
        let steps = |at: &[(Duration, bool)]| -> Vec<Step> {
            let (since, mut farewell) = (begun.since, Farewell::begin());
            farewell.since = since;
            let step =
                |(after, is_calm): &(Duration, bool)| farewell.step(since + *after, *is_calm);
            at.iter().map(step).collect()
        };
        let (open, quiet) = (HANDOVER / 2, HANDOVER + Farewell::QUIET * 2);
        use Step::{Ends, Listens, Records};
        // An exec that was held when it closed may go on a moment later.
        let calm = [
            (open, true),
            (HANDOVER, true),
            (HANDOVER + Farewell::QUIET / 2, true),
            (quiet, true),
        ];
        assert_eq!(steps(&calm), [Records, Listens, Listens, Ends]);
        let busy = [
            (open, false),
            (HANDOVER, false),
            (quiet, false),
            (LONGEST_FAREWELL * 2, false),
        ];
        assert_eq!(steps(&busy), [Records, Listens, Listens, Ends]);
    }
}
