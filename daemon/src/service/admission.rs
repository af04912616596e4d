//! Who is recorded. Asked by the holder while an exec waits.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nodeprof_bpf::{hold::Met, stat_field};
use nodeprof_profile::random::Random;

use crate::recorder::Mode;

use super::{
    ceiling::Shared,
    command::Commands,
    config::{Config, Rules, Start},
    context::{cgroup, user},
    gate::{Closed, Gate},
};

/// The rules of a configuration, and what else decides.
pub(super) struct Admission {
    rules: Rules,
    /// The same without full mode, if they name that.
    in_count_mode: Option<Rules>,
    mode: Mode,
    gate: Gate,
    /// Of the rules.
    edition: u32,
    ceiling: Arc<Shared>,
    admitted: Admitted,
    commands: Commands,
}

/// What was known of processes when they were admitted, where rules are asked again after the exec: until somebody asks. A short program has ended by then, and cannot be
/// asked for its folder.
#[derive(Clone, Default)]
pub(super) struct Admitted(Arc<Mutex<HashMap<u32, Known>>>);

/// See [`Admitted`].
pub(super) struct Known {
    pub(super) start: Start,
    /// Nobody recorded in full mode, and it is recorded in count mode for that, if a rule wants it in full.
    pub(super) lacks_full: bool,
    /// It is one in so many, where its command was known before its exec.
    pub(super) one_in: Option<u32>,
}

impl Admitted {
    /// Of one whose exec came to nothing nobody asks.
    const MOST: usize = 4096;

    fn all(&self) -> MutexGuard<'_, HashMap<u32, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, pid: u32, known: Known) {
        let mut all = self.all();
        if all.len() >= Self::MOST {
            all.clear();
        }
        all.insert(pid, known);
    }

    /// What was known; no longer.
    pub(super) fn take(&self, pid: u32) -> Option<Known> {
        self.all().remove(&pid)
    }
}

/// What chance decides for a process: whether it is one of those that a rule takes, and of those that the ceiling leaves, each between 0 and 1. The same whoever asks, and
/// whatever it executes: the holders of both modes, which share no memory, come to the same.
#[derive(Clone, Copy)]
struct Lots {
    of_rule: f64,
    of_ceiling: f64,
}

impl Lots {
    /// Where one in so many is drawn.
    fn within(pid: u32, of_rules: u32, of_ceiling: u32) -> Lots {
        match (of_rules, of_ceiling) {
            (0 | 1, 0 | 1) => Lots {
                of_rule: 0.0,
                of_ceiling: 0.0,
            },
            _ => Lots::of(pid),
        }
    }

    fn of(pid: u32) -> Lots {
        /// When it was started, in ticks since boot: a process number comes again.
        const START: usize = 22;
        let started = stat_field(pid, START).and_then(|ticks| ticks.parse().ok());
        let mut random = Random::new(u64::from(pid) << 40 ^ started.unwrap_or(0));
        Lots {
            of_rule: random.fraction(),
            of_ceiling: random.fraction(),
        }
    }
}

/// Whether a lot is one of those that one in so many draws; 0: none does.
fn wins(lot: f64, one_in: u32) -> bool {
    one_in > 0 && lot * f64::from(one_in) < 1.0
}

impl Admission {
    /// `mode`: of who asks.
    pub(super) fn new(config: &Config, mode: Mode, gate: &Gate, ceiling: Arc<Shared>) -> Admission {
        let mut admission = Admission {
            rules: config.rules.clone(),
            in_count_mode: None,
            mode,
            ceiling,
            gate: gate.clone(),
            edition: gate.edition(),
            admitted: Admitted::default(),
            commands: Commands::default(),
        };
        admission.derive();
        admission
    }

    /// Whom it admits.
    pub(super) fn admitted(&self) -> Admitted {
        self.admitted.clone()
    }

    fn derive(&mut self) {
        let names_full = self.mode == Mode::Count && self.rules.ask_mode(Mode::Full);
        self.in_count_mode = names_full.then(|| self.rules.in_count_mode());
    }

    /// Takes over the rules that the service has now.
    fn renew(&mut self) {
        if let Some((edition, text)) = self.gate.posted(self.edition) {
            self.edition = edition;
            if let Ok(rules) = Rules::parse(&text) {
                self.rules = rules;
                self.derive();
            }
        }
    }

    /// Whether a process that executes this program is recorded.
    pub(super) fn admits(&mut self, pid: u32, program: &Path, met: Met) -> bool {
        if self.gate.is_closed_for(Closed::Paused) {
            return false;
        }
        self.renew();
        let directory = self
            .rules
            .ask_directory()
            .then(|| fs::read_link(format!("/proc/{pid}/cwd")));
        let mut start = Start {
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
        let (is_full, lacks_full) = (
            self.gate.is_closed_for(Closed::Full),
            self.gate.lacks_full(),
        );
        // On a full disk the other mode admits nobody, and does not count whom.
        let stands_in = self
            .in_count_mode
            .as_ref()
            .filter(|_| lacks_full || is_full);
        let rules = stands_in.unwrap_or(&self.rules);
        // Without it such a start has the probes of both modes until its exec.
        if met == Met::Held && rules.asks_command_of(&start) && rules.one_in(&start, self.mode) > 0
        {
            start.command = self.commands.of(pid, program);
        }
        let of_rules = rules.one_in(&start, self.mode);
        let of_ceiling = self.ceiling.one_in();
        // Of others nobody needs to tell.
        let is_node = met != Met::Unknown;
        if of_rules == 0 {
            let is_the_other_modes = is_node && stands_in.is_none() && self.in_count_mode.is_some();
            if is_the_other_modes {
                let of_full = rules.one_in(&start, Mode::Full);
                let lots = Lots::within(pid, of_full, of_ceiling);
                if wins(lots.of_rule, of_full) && wins(lots.of_ceiling, of_ceiling) {
                    self.gate.leave_to_full(pid);
                }
            }
            return false;
        }
        let lots = Lots::within(pid, of_rules, of_ceiling);
        if !wins(lots.of_rule, of_rules) {
            return false;
        }
        if is_full {
            self.gate.turn_away();
            return false;
        }
        if !wins(lots.of_ceiling, of_ceiling) {
            // What both modes would have admitted, for its command is not known yet, count mode counts.
            let is_counted = self.mode == Mode::Full
                && wins(lots.of_rule, self.rules.one_in(&start, Mode::Count));
            if !is_counted {
                self.ceiling.pass_over();
            }
            return false;
        }
        let lacks_full = stands_in.is_some();
        if lacks_full || self.rules.ask_command() {
            let known = Known {
                one_in: start.command.take().map(|_| of_rules),
                start,
                lacks_full,
            };
            self.admitted.add(pid, known);
        }
        if is_node {
            self.gate.admit(pid);
        }
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;
    use crate::service::{ceiling::Ceiling, config::CeilingLimits};

    /// What both modes have in a service: rules, and memory of their own.
    struct Both {
        gate: Gate,
        ceilings: [Ceiling; 2],
        count: Admission,
        full: Admission,
    }

    fn both(rules: &str) -> Both {
        let config = Config::parse(rules, Path::new("rules")).unwrap();
        let gate = Gate::new().unwrap();
        let ceilings = [(); 2].map(|()| Ceiling::new(CeilingLimits::default(), 0).unwrap());
        let of_lane = Gate::new().unwrap();
        let count = Admission::new(&config, Mode::Count, &gate, ceilings[0].shared());
        let full = Admission::new(&config, Mode::Full, &of_lane, ceilings[1].shared());
        Both {
            gate,
            ceilings,
            count,
            full,
        }
    }

    const FULL: &str = "mode = 'off'\n[[rule]]\nmode = 'full'\nexecutable = '/f'\n";
    const BY_COMMAND: &str = "[[rule]]\nmode = 'full'\ncommand = '*x*'\n";

    #[test]
    fn what_is_not_recorded_for_a_full_disk_is_counted_once_and_what_is_paused_is_not() {
        let mut both = both(FULL);
        let mut ask = |gate: &Gate, path: &str| {
            let admitted = both.count.admits(1, Path::new(path), Met::Held);
            (admitted, gate.turned_away())
        };
        assert_eq!(ask(&both.gate, "/f"), (false, 0), "the other mode's");
        both.gate.close(Closed::Full);
        assert_eq!(ask(&both.gate, "/f"), (false, 1), "nobody's");
        assert_eq!(ask(&both.gate, "/other"), (false, 1), "not wanted");
        both.gate.close(Closed::Paused);
        assert_eq!(ask(&both.gate, "/f"), (false, 1), "not wanted now");
        both.gate.open(Closed::Paused);
        both.gate.open(Closed::Full);
        assert_eq!(ask(&both.gate, "/f"), (false, 1));
    }

    #[test]
    fn what_count_mode_leaves_to_full_mode_is_remembered() {
        let mut both = both(
            "mode = 'off'\n[[rule]]\nmode = 'full'\nexecutable = '/f'\n[[rule]]\nmode = 'count'\nexecutable = '/c'\n",
        );
        let mut read = 0;
        let mut left_of = |both: &mut Both, pid: u32, path: &str| {
            both.count.admits(pid, Path::new(path), Met::Held);
            both.gate.left_to_full(&mut read).collect::<Vec<_>>()
        };
        assert_eq!(left_of(&mut both, 1, "/f"), [1]);
        assert_eq!(left_of(&mut both, 2, "/c"), [] as [u32; 0], "its own");
        assert_eq!(left_of(&mut both, 3, "/other"), [] as [u32; 0], "nobody's");
        both.gate.set_lacks_full(true);
        assert_eq!(left_of(&mut both, 4, "/f"), [] as [u32; 0], "it stands in");
        both.gate.set_lacks_full(false);
        both.gate.close(Closed::Full);
        assert_eq!(left_of(&mut both, 5, "/f"), [] as [u32; 0], "counted so");
        both.gate.open(Closed::Full);
        both.ceilings[0].set_one_in(0);
        assert_eq!(left_of(&mut both, 6, "/f"), [] as [u32; 0], "passed over");
        both.ceilings[0].set_one_in(1);
        both.count.admits(7, Path::new("/f"), Met::Unknown);
        both.count.admits(8, Path::new("/c"), Met::Unknown);
        assert_eq!(left_of(&mut both, 9, "/f"), [9], "that may not be node");
        // That was not held, for there was no holder.
        both.count.admits(10, Path::new("/f"), Met::Running);
        both.count.admits(11, Path::new("/c"), Met::Running);
        assert_eq!(left_of(&mut both, 12, "/f"), [10, 12]);
        assert_eq!(both.gate.admitted(&mut 0).collect::<Vec<_>>(), [2, 4, 11]);
    }

    #[test]
    fn without_anybody_in_full_mode_count_mode_takes_its_starts() {
        let mut both = both(FULL);
        let admitted = both.count.admitted();
        let mut lacks_full = |pid| admitted.take(pid).is_some_and(|known| known.lacks_full);
        assert!(both.full.admits(1, Path::new("/f"), Met::Held));
        assert!(!both.count.admits(1, Path::new("/f"), Met::Held));
        both.gate.set_lacks_full(true);
        assert!(both.count.admits(1, Path::new("/f"), Met::Held));
        assert!(!both.count.admits(2, Path::new("/other"), Met::Held));
        assert_eq!([1, 2].map(&mut lacks_full), [true, false]);
        assert!(!lacks_full(1), "it was asked for");
        both.gate.set_lacks_full(false);
        assert!(!both.count.admits(1, Path::new("/f"), Met::Held));
    }

    #[test]
    fn a_start_whose_command_is_known_is_admitted_by_one_mode() {
        let mut both = both("[[rule]]\nmode = 'full'\ncommand = '*x*'\n");
        let mut ask = |command: Option<&str>| {
            let path = Path::new("/node");
            both.count.commands.of_all = command.map(str::to_owned);
            both.full.commands.of_all = command.map(str::to_owned);
            (
                both.count.admits(1, path, Met::Held),
                both.full.admits(1, path, Met::Held),
            )
        };
        assert_eq!(ask(Some("node x")), (false, true));
        assert_eq!(ask(Some("node y")), (true, false));
        assert_eq!(ask(None), (true, true), "it is decided after the exec");
        // Of who waits for nothing no command is looked for.
        both.full.commands.of_all = Some("node y".into());
        assert!(both.full.admits(1, Path::new("/node"), Met::Unknown));
        let known = [&both.count, &both.full].map(|by| by.admitted().take(1).unwrap().one_in);
        assert_eq!(known, [None, None]);
    }

    #[test]
    fn a_start_that_both_modes_may_mean_is_passed_over_once() {
        for (rules, by_count, by_full) in [(BY_COMMAND, true, true), (FULL, false, true)] {
            let mut both = both(rules);
            for ceiling in &both.ceilings {
                ceiling.set_one_in(10);
            }
            // Of processes that are not there the numbers are all that is known.
            let path = Path::new("/f");
            let pids = 4_300_000..4_304_000;
            let admitted = pids.clone().map(|pid| {
                (
                    both.count.admits(pid, path, Met::Held),
                    both.full.admits(pid, path, Met::Held),
                )
            });
            let admitted: Vec<(bool, bool)> = admitted.collect();
            let of = |which: &dyn Fn(&(bool, bool)) -> bool| {
                admitted.iter().filter(|one| which(one)).count()
            };
            let (counted, full) = (of(&|one| one.0), of(&|one| one.1));
            let is_tenth = |n: usize| (300..500).contains(&n);
            assert_eq!(is_tenth(counted), by_count, "{counted}");
            assert_eq!(is_tenth(full), by_full, "{full}");
            let either = of(&|one| one.0 || one.1);
            assert_eq!(either, counted.max(full), "the same ones");
            let passed: u64 = both.ceilings.iter().map(Ceiling::passed_over).sum();
            assert_eq!(passed as usize, pids.len() - either);
        }
    }
}
