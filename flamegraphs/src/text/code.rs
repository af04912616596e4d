//! What ran: phases, calls, values, compilations.

use nodeprof_profile::recording::CompilationUnit;
use nodeprof_profile::report::{CallbackProfile, Script};

use super::names::module_name;
use super::page::{faint, plain, warning};
use super::words::{kind_name, kinds, phase_name, unit_name};
use super::{BAR, Report, TOP, TOP_SHORT};
use crate::fold::JAVASCRIPT;
use crate::table::{Cell, Column, Paint, Table};
use crate::units::{bytes, counted, number, percent, signed_time, time};

/// Preloaded modules that are named below the phases.
const PRELOADED: usize = 3;

impl Report<'_> {
    /// A figure of a phase or a process: nothing if it is 0, a dash if it went with the single events of its family.
    pub(super) fn part(&self, family: &str, figure: u64, words: impl Fn(u64) -> String) -> Cell {
        let mut families = self.run.families.iter();
        let is_gone = families.any(|of| of.name == family && of.state == "thinned");
        Cell::text(match figure {
            0 if is_gone => "–".to_owned(),
            0 => String::new(),
            figure => words(figure),
        })
    }

    pub(super) fn phases(&mut self) {
        let run = self.run;
        let (Some(begin), Some(end)) = (
            run.phases.iter().map(|phase| phase.start_ns).min(),
            run.phases.iter().map(|phase| phase.end_ns).max(),
        ) else {
            return self.empty("Phases", "phases");
        };
        let whole = end.saturating_sub(begin).max(0) as u64;
        let mut phrases = vec![faint(match run.start_to_exec_ns {
            Some(waited) if waited > 0 => format!(
                "of the main node process, executed {} after the command's start",
                time(waited)
            ),
            _ => "of the main node process".to_owned(),
        })];
        if let Some(reason) = self.off("phases") {
            phrases.push(warning(reason));
        }
        self.page.section("Phases", &phrases);
        let mut table = Table::new([
            Column::left(""),
            Column::left("").flexible(12, BAR),
            Column::right("start").drop(3),
            Column::right("time"),
            Column::right("share").drop(1),
            Column::right("crossings").drop(2),
            Column::right("lookups").drop(6),
            Column::right("stats").drop(5),
            Column::right("opens").drop(7),
            Column::right("compiled").drop(4),
            Column::right("in files").drop(9),
            Column::right("in compiler").drop(10),
        ]);
        let fraction = |at: i64| at.saturating_sub(begin).max(0) as f64 / whole.max(1) as f64;
        for phase in &run.phases {
            let spent = phase.end_ns.saturating_sub(phase.start_ns).max(0) as u64;
            table.row([
                Cell::text(phase_name(&phase.name)),
                Cell::bar(fraction(phase.start_ns), fraction(phase.end_ns)),
                Cell::text(signed_time(phase.start_ns)).paint(Paint::Faint),
                Cell::text(time(spent)),
                Cell::text(percent(spent, whole)),
                self.part("crossings", phase.crossings, number),
                self.part("package-json", phase.lookups, number),
                self.part("files", phase.stats, number),
                self.part("files", phase.opens, number),
                self.part("compile", phase.compilations, number),
                self.part("files", phase.files_ns, time),
                self.part("compile", phase.compile_ns, time),
            ]);
        }
        self.page.table(&table);
        if let Some(note) = self.preloaded() {
            self.page.note(&note);
        }
    }

    /// How much of the bootstrap of the main process was modules of the program, which Node loads before the main script: those of
    /// `--require`.
    fn preloaded(&self) -> Option<String> {
        let run = self.run;
        let main = run.processes.iter().find(|process| process.main)?;
        let bootstrap = run.phases.iter().find(|phase| phase.name == "bootstrap")?;
        let (begin, end) = (bootstrap.start_ns, bootstrap.end_ns);
        let mut names = Vec::new();
        let mut times = Vec::new();
        for module in self.program_modules() {
            let is_of_main = module.pid == main.pid && module.thread == main.pid;
            let is_preloaded = module.requirer_id.is_none() && !module.main_script;
            let Some(start) = module
                .start_ns
                .filter(|&start| start >= begin && start < end)
            else {
                continue;
            };
            if !is_of_main || !is_preloaded {
                continue;
            }
            // Halfway between the last that was seen of its body and the first without it.
            let ended = (module.end_earliest_ns.zip(module.end_latest_ns))
                .map_or(end, |(earliest, latest)| {
                    earliest.saturating_add(latest.saturating_sub(earliest) / 2)
                });
            names.push(module_name(module, &self.base));
            times.push((start, ended.clamp(start, end)));
        }
        times.sort_unstable();
        let (mut spent, mut until) = (0u64, begin);
        for (start, ended) in times {
            let start = start.max(until);
            spent = spent.saturating_add(ended.saturating_sub(start).max(0) as u64);
            until = until.max(ended);
        }
        if spent == 0 {
            return None;
        }
        let others = names.len().saturating_sub(PRELOADED);
        names.truncate(PRELOADED);
        let mut list = names.join(", ");
        if others > 0 {
            list.push_str(&format!(" and {}", counted(others as u64, "other")));
        }
        Some(format!(
            "{}: {} of it to load and run modules preloaded by -r: {list}",
            phase_name(&bootstrap.name),
            time(spent)
        ))
    }

    pub(super) fn crossings(&mut self) {
        let crossings = &self.run.crossings;
        if crossings.total == 0 && crossings.by_kind.to_js == 0 {
            return self.empty("Crossings", "crossings");
        }
        let mut phrases = vec![plain(
            counted(crossings.total, "call") + " from JavaScript to C++",
        )];
        if crossings.timed_calls > 0 {
            phrases.push(plain(format!("{} in C++ itself", time(crossings.self_ns))));
        }
        phrases.extend(kinds(crossings));
        if crossings.unfinished > 0 {
            phrases.push(warning(format!(
                "{} never returned",
                number(crossings.unfinished)
            )));
        }
        if let Some(reason) = self.off("crossings") {
            phrases.push(warning(reason));
        }
        self.page.section("Crossings", &phrases);

        let mut table = Table::new([
            Column::right("calls"),
            Column::right("total"),
            Column::right("self"),
            Column::right("per call").drop(2),
            Column::right("self share").drop(4),
            Column::left("kind").drop(3),
            Column::left("callback").flexible(36, 80),
        ]);
        let whole = crossings.self_ns;
        let is_timed = crossings
            .callbacks
            .iter()
            .any(|callback| callback.total_ns.is_some());
        let row = |callback: &CallbackProfile, share: bool| {
            let timed = callback.timed_calls.max(1);
            vec![
                Cell::text(number(callback.calls)),
                Cell::text(match callback.total_ns {
                    Some(total) => time(total),
                    None if is_timed => "–".to_owned(),
                    // Nothing but dashes is no column.
                    None => String::new(),
                }),
                Cell::text(callback.self_ns.map(time).unwrap_or_default()),
                Cell::text(
                    callback
                        .total_ns
                        .map(|total| time(total / timed))
                        .unwrap_or_default(),
                )
                .paint(Paint::Faint),
                Cell::text(
                    callback
                        .self_ns
                        .filter(|_| share)
                        .map(|own| percent(own, whole))
                        .unwrap_or_default(),
                ),
                Cell::text(kind_name(callback.kind)).paint(Paint::Faint),
                Cell::name(&format!("{}.{}", callback.binding, callback.function)),
            ]
        };
        for callback in crossings.callbacks.iter().take(TOP) {
            table.row(row(callback, true));
        }
        self.page.table(&table);
        self.page
            .more(TOP, crossings.callbacks.len(), "callback[|s]");

        // What is called most is not what takes longest: show it if the table above does not.
        let mut busiest: Vec<&CallbackProfile> = crossings.callbacks.iter().skip(TOP).collect();
        busiest.sort_by_key(|callback| std::cmp::Reverse(callback.calls));
        let least = crossings
            .callbacks
            .iter()
            .take(TOP)
            .map(|callback| callback.calls)
            .min()
            .unwrap_or(0);
        busiest.retain(|callback| callback.calls > least && callback.calls * 50 >= crossings.total);
        if !busiest.is_empty() {
            self.page
                .note("Called often, though each call is short or not timed:");
            table.rows = busiest
                .iter()
                .take(TOP_SHORT)
                .map(|callback| row(callback, true))
                .collect();
            self.page.table(&table);
        }
    }

    pub(super) fn serialization(&mut self) {
        let run = self.run;
        let serialization = &run.serialization;
        if serialization.calls == 0 {
            return self.empty("Serialization", "serialization");
        }
        let mut phrases = vec![plain(counted(serialization.calls, "call"))];
        if serialization.bytes > 0 {
            phrases.push(plain(bytes(serialization.bytes)));
        }
        if serialization.total_ns > 0 {
            phrases.push(plain(format!(
                "{} ({} of the run)",
                time(serialization.total_ns),
                percent(serialization.total_ns, run.time.wall_ns)
            )));
        }
        if let Some(reason) = self.off("serialization") {
            phrases.push(warning(reason));
        }
        self.page.section("Serialization", &phrases);
        let columns = |title| {
            [
                Column::right("calls"),
                Column::right("bytes").drop(1),
                Column::right("total"),
                Column::right("self").drop(2),
                Column::right("share").drop(3),
                Column::left(title).flexible(30, 80),
            ]
        };
        let row = |calls, size, total, own, name: &str| {
            [
                Cell::text(number(calls)),
                Cell::text(if size == 0 {
                    String::new()
                } else {
                    bytes(size)
                }),
                Cell::text(time(total)),
                Cell::text(time(own)),
                Cell::text(percent(total, serialization.total_ns)),
                Cell::name(name),
            ]
        };
        let mut table = Table::new(columns("C++ function"));
        for function in serialization.functions.iter().take(TOP_SHORT) {
            table.row(row(
                function.calls,
                function.bytes,
                function.total_ns,
                function.self_ns,
                &function.function,
            ));
        }
        self.page.table(&table);
        self.page
            .more(TOP_SHORT, serialization.functions.len(), "function[|s]");
        let mut table = Table::new(columns("inside callback"));
        for callback in serialization.callbacks.iter().take(TOP_SHORT) {
            let name = match (&callback.binding, &callback.function) {
                (Some(binding), Some(_)) if binding == JAVASCRIPT => {
                    "(JavaScript called by C++)".to_owned()
                }
                (Some(binding), Some(function)) => format!("{binding}.{function}"),
                _ => "(outside of any callback)".to_owned(),
            };
            table.row(row(
                callback.calls,
                callback.bytes,
                callback.total_ns,
                callback.self_ns,
                &name,
            ));
        }
        self.page.table(&table);
        self.page
            .more(TOP_SHORT, serialization.callbacks.len(), "callback[|s]");
    }

    pub(super) fn compile(&mut self) {
        let run = self.run;
        let compile = &run.compile;
        if compile.compilations == 0 {
            return self.empty("Compilation", "compile");
        }
        let side = |builtin: bool| {
            let scripts = compile
                .scripts
                .iter()
                .filter(|script| (script.unit == CompilationUnit::Builtin) == builtin);
            let mut sum = (0u64, 0u64, 0u64);
            for script in scripts {
                sum.0 = sum.0.saturating_add(script.compilations);
                sum.1 = sum.1.saturating_add(if script.cached {
                    script.compilations
                } else {
                    0
                });
                sum.2 = sum.2.saturating_add(script.self_ns.unwrap_or_default());
            }
            sum
        };
        let mut phrases = vec![plain(format!(
            "{} ({} of the run)",
            time(compile.total_ns),
            percent(compile.total_ns, run.time.wall_ns)
        ))];
        for (name, (compilations, cached, spent)) in [
            ("the program's code", side(false)),
            ("Node's own modules", side(true)),
        ] {
            if compilations > 0 {
                let cached = match cached {
                    0 => "none cached".to_owned(),
                    cached if cached == compilations => "all cached".to_owned(),
                    cached => format!("{} cached", number(cached)),
                };
                phrases.push(plain(format!(
                    "{name}: {} compiled, {cached}, {}",
                    number(compilations),
                    time(spent)
                )));
            }
        }
        if let Some(reason) = self.off("compile") {
            phrases.push(warning(reason));
        }
        self.page.section("Compilation", &phrases);
        let mut table = Table::new([
            Column::right("time"),
            Column::right("self").drop(3),
            Column::right("share").drop(2),
            Column::right("times").drop(4),
            Column::left("cached"),
            Column::left("unit").drop(5),
            Column::left("path").flexible(28, 120),
        ]);
        let same = compile
            .scripts
            .iter()
            .take(TOP)
            .all(|script| script.self_ns == script.total_ns);
        let row = |script: &Script| {
            [
                Cell::text(script.total_ns.map(time).unwrap_or_else(|| "–".to_owned())),
                Cell::text(
                    script
                        .self_ns
                        .filter(|_| !same)
                        .map(time)
                        .unwrap_or_default(),
                ),
                Cell::text(
                    script
                        .self_ns
                        .map(|own| percent(own, compile.total_ns))
                        .unwrap_or_default(),
                ),
                Cell::text(if script.compilations > 1 {
                    format!("{}×", number(script.compilations))
                } else {
                    String::new()
                })
                .paint(Paint::Warning),
                if script.cached {
                    Cell::text("yes").paint(Paint::Faint)
                } else {
                    Cell::text("no")
                },
                Cell::text(unit_name(script.unit)).paint(Paint::Faint),
                Cell::path(self.path(&script.path)),
            ]
        };
        for script in compile.scripts.iter().take(TOP) {
            table.row(row(script));
        }
        self.page.table(&table);
        self.page.more(TOP, compile.scripts.len(), "script[|s]");
    }
}

#[cfg(test)]
mod tests {
    use nodeprof_profile::report::{Family, Phase, RunProfile};

    use super::super::{Style, render_run};

    #[test]
    fn figures_of_phases_that_are_not_kept_are_dashes() {
        for (state, dashes) in [("on", 0), ("thinned", 3)] {
            let run = RunProfile {
                phases: vec![Phase {
                    name: "exec".into(),
                    end_ns: 1_000_000,
                    crossings: 5,
                    ..Phase::default()
                }],
                families: vec![Family {
                    name: "files".into(),
                    state: state.into(),
                    reason: None,
                }],
                ..RunProfile::default()
            };
            let style = Style {
                width: 160,
                color: false,
            };
            let text = render_run(&run, &style);
            let row = text.lines().find(|line| line.starts_with("  exec"));
            // Stats, opens and the time in files.
            let found = row.map(|row| row.matches('–').count());
            assert_eq!(found, Some(dashes), "{state}: {text}");
        }
    }
}
