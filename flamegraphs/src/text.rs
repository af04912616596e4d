//! The report for a terminal: [`render`] for all runs of a profile, [`render_run`] for one.
//!
//! One line of verdict, then a section per question, the most telling rows first. Sections without data say in one
//! line why, or are left out. No line is wider than [`Style::width`], none ends in spaces, and what the traced program
//! chose (paths, arguments) cannot reach the terminal as a control character.

use std::collections::BTreeMap;

use nodeprof_profile::recording::{CompilationUnit, CrossingKind, FileOperation};
use nodeprof_profile::report::{
    CallbackProfile, Crossings, FileOperationProfile, PackageJsonFile, PathProfile, ProcessProfile,
    Profile, RunProfile, Script,
};

use crate::fold::JAVASCRIPT;
use crate::paths::{columns, cut, printable, seen_from};
use crate::table::{Cell, Column, Paint, Table};
use crate::units::{bytes, counted, number, percent, signed_time, time};

/// How a report is to look; the caller knows the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns; less than [`Style::LEAST_WIDTH`] counts as that.
    pub width: usize,
    /// Whether escape sequences for colours may be used.
    pub color: bool,
}

impl Style {
    /// Narrower than this, tables say nothing any more.
    pub const LEAST_WIDTH: usize = 60;
}

impl Default for Style {
    /// For a pipe: 100 columns, no colours.
    fn default() -> Self {
        Style {
            width: 100,
            color: false,
        }
    }
}

/// Rows of the longest table.
const TOP: usize = 12;
/// Rows of a table that stands beside another on the same subject.
const TOP_SHORT: usize = 6;
/// Columns that a bar takes at most: wider ones are not read more exactly.
const BAR: usize = 60;

/// The report of every run.
pub fn render(profile: &Profile, style: &Style) -> String {
    let mut out = String::new();
    for (index, run) in profile.runs.iter().enumerate() {
        if profile.runs.len() > 1 {
            if index > 0 {
                out.push('\n');
            }
            let title = format!("Run {} of {}", index + 1, profile.runs.len());
            out.push_str(&Paint::Faint.on(&title, style.color));
            out.push('\n');
        }
        out.push_str(&render_run(run, style));
    }
    if profile.runs.is_empty() {
        out.push_str("This recording holds no run.\n");
    }
    out
}

/// The report of one run.
pub fn render_run(run: &RunProfile, style: &Style) -> String {
    let mut report = Report {
        run,
        base: base(run),
        out: String::new(),
        width: style.width.max(Style::LEAST_WIDTH),
        color: style.color,
    };
    report.verdict();
    report.phases();
    report.crossings();
    report.package_json();
    report.serialization();
    report.compile();
    report.files();
    report.processes();
    report.families();
    report.losses();
    report.overhead();
    report.out
}

struct Report<'a> {
    run: &'a RunProfile,
    /// The folder that paths are shown from.
    base: String,
    out: String,
    width: usize,
    color: bool,
}

/// A phrase with its colour, one of several on a line.
type Phrase = (String, Paint);

fn plain(text: impl Into<String>) -> Phrase {
    (text.into(), Paint::Plain)
}

fn faint(text: impl Into<String>) -> Phrase {
    (text.into(), Paint::Faint)
}

fn warning(text: impl Into<String>) -> Phrase {
    (text.into(), Paint::Warning)
}

const SEPARATOR: &str = " · ";

impl Report<'_> {
    /// Phrases with ` · ` between them; breaks between phrases, within one only if it is wider than a line.
    fn phrases(&mut self, lead: &str, phrases: &[Phrase], indent: usize) {
        let mut used = 0;
        if !lead.is_empty() {
            let lead = cut(lead, self.width);
            self.out.push_str(&Paint::Strong.on(&lead, self.color));
            used = columns(&lead);
        }
        let mut first = true;
        for (text, paint) in phrases.iter().filter(|(text, _)| !text.is_empty()) {
            let gap = match (first, used) {
                (true, 0) => "",
                (true, _) if lead.ends_with(':') => " ",
                (true, _) => "  ",
                (false, _) => SEPARATOR,
            };
            first = false;
            if used > 0 && used + columns(gap) + columns(text) <= self.width {
                self.out
                    .push_str(&Paint::Faint.on(gap, self.color && gap == SEPARATOR));
                self.out.push_str(&paint.on(text, self.color));
                used += columns(gap) + columns(text);
                continue;
            }
            if used > 0 {
                self.out.push('\n');
            }
            let indent = if used == 0 && lead.is_empty() {
                0
            } else {
                indent
            };
            used = self.words(text, *paint, indent);
        }
        self.out.push('\n');
    }

    /// A sentence from the beginning of a line; gives the columns used of its last line.
    fn words(&mut self, text: &str, paint: Paint, indent: usize) -> usize {
        let room = self.width.saturating_sub(indent).max(1);
        let mut line = String::new();
        let mut lines = Vec::new();
        for word in text.split(' ') {
            let mut word = word.to_owned();
            let gap = usize::from(!line.is_empty());
            if columns(&line) + gap + columns(&word) > room {
                if !line.is_empty() {
                    lines.push(std::mem::take(&mut line));
                }
                while columns(&word) > room {
                    let head = cut(&word, room + 1);
                    let head = head.trim_end_matches('…').to_owned();
                    // Nothing of it fits: a wide character in one column.
                    if head.is_empty() || head.len() >= word.len() {
                        break;
                    }
                    word = word[head.len()..].to_owned();
                    lines.push(head);
                }
            } else if gap > 0 {
                line.push(' ');
            }
            line.push_str(&word);
        }
        lines.push(line);
        let last = lines.last().map_or(0, |line| indent + columns(line));
        let text: Vec<String> = lines
            .iter()
            .map(|line| {
                format!(
                    "{}{}",
                    " ".repeat(indent),
                    paint.on(line.trim_end(), self.color)
                )
            })
            .collect();
        self.out.push_str(&text.join("\n"));
        last
    }

    fn section(&mut self, title: &str, phrases: &[Phrase]) {
        self.out.push('\n');
        self.phrases(title, phrases, 2);
    }

    fn note(&mut self, text: &str) {
        self.out.push_str("  ");
        let start = self.out.len();
        self.words(text, Paint::Faint, 2);
        // The first line's indent is there already.
        self.out.replace_range(start..start + 2, "");
        self.out.push('\n');
    }

    fn table(&mut self, table: &Table) {
        table.write(&mut self.out, self.width, self.color);
    }

    fn more(&mut self, shown: usize, all: usize, what: &str) {
        if all > shown {
            self.note(&format!(
                "… and {} more {what}",
                number((all - shown) as u64)
            ));
        }
    }

    fn path(&self, path: &str) -> String {
        seen_from(path, &self.base)
    }

    /// State of a family, if it is not simply on.
    fn off(&self, name: &str) -> Option<String> {
        let family = self
            .run
            .families
            .iter()
            .find(|family| family.name == name && family.state != "on")?;
        let reason = family.reason.as_deref().map(printable);
        Some(match (family.state.as_str(), reason) {
            ("off", None) => "not recorded: the family was not asked for".to_owned(),
            ("off", Some(reason)) => format!("not recorded: {reason}"),
            (state, Some(reason)) => format!("{}: {reason}", printable(state)),
            (state, None) => format!("recorded as {}", printable(state)),
        })
    }

    /// Says why a section is empty; nothing if the family was on and there simply was nothing.
    fn empty(&mut self, title: &str, family: &str) {
        if let Some(reason) = self.off(family) {
            self.section(title, &[faint(reason)]);
        }
    }

    fn verdict(&mut self) {
        let run = self.run;
        let who = self.who();
        let mut phrases = Vec::new();

        let wall = time(run.time.wall_ns);
        let end = match (run.signal, run.exit_status, run.ended_by.as_str()) {
            (Some(signal), ..) => (
                format!("killed by {} after {wall}", signal_name(signal)),
                Paint::Error,
            ),
            (None, Some(0), _) => plain(format!("{wall} to exit")),
            (None, Some(status), _) => (format!("exit status {status} after {wall}"), Paint::Error),
            (None, None, "loop-start") => {
                plain(format!("traced for {wall}, until the event loop began"))
            }
            (None, None, "idle") => plain(format!("traced for {wall}, until it was idle")),
            (None, None, "interrupt") => {
                plain(format!("traced for {wall}, until it was interrupted"))
            }
            (None, None, _) => plain(format!("traced for {wall}, still running")),
        };
        phrases.push(end);
        match run.milestones.loop_start {
            Some(loop_start) => {
                // As seen by the user, who waits for what comes before node as well.
                let waited = run.start_to_exec_ns.unwrap_or_default() as i64;
                phrases.push(plain(format!(
                    "loop reached after {}",
                    signed_time(loop_start.saturating_add(waited))
                )));
            }
            None if run.node.is_some() && run.milestones.bootstrap_complete.is_some() => {
                phrases.push(plain("event loop never reached"));
            }
            None => {}
        }
        if run.crossings.total > 0 {
            phrases.push(plain(counted(run.crossings.total, "crossing")));
        }
        let package_json = &run.package_json;
        if package_json.lookups > 0 {
            phrases.push(plain(format!(
                "{}{}",
                counted(package_json.lookups, "package.json lookup"),
                repeated(package_json.repeated_lookups)
            )));
        } else if package_json.opens > 0 {
            phrases.push(plain(format!(
                "{}{}",
                counted(package_json.opens, "package.json open"),
                repeated(package_json.repeated_opens)
            )));
        }
        if run.files.stat.calls > 0 {
            phrases.push(plain(counted(run.files.stat.calls, "stat")));
        }
        self.phrases(&format!("{who}:"), &phrases, 2);

        let mut details = Vec::new();
        let clock = &run.time;
        if let (Some(user), Some(system)) = (clock.user_ns, clock.system_ns) {
            details.push(faint(format!(
                "CPU {} user + {} system",
                time(user),
                time(system)
            )));
        }
        if let Some(rss) = clock.max_rss_bytes {
            details.push(faint(format!("peak memory {}", bytes(rss))));
        }
        if let Some(uss) = clock.uss_bytes {
            details.push(faint(format!("{} of its own (USS)", bytes(uss))));
        }
        if run.processes.len() > 1 {
            details.push(faint(
                counted(run.processes.len() as u64, "process").replace("processs", "processes"),
            ));
        }
        if run.mode == "count" {
            details.push(faint("count mode: calls are counted, only sums are timed"));
        }
        if let Some(version) = run.node.as_ref().and_then(|node| node.v8.as_deref()) {
            details.push(faint(format!("V8 {}", printable(version))));
        }
        if !self.base.is_empty() && all_paths(run).any(|path| is_inside(path, &self.base)) {
            details.push(faint(format!("paths from {}", printable(&self.base))));
        }
        if !details.is_empty() {
            self.phrases("", &details, 0);
        }
    }

    /// `node v20.20.2 app.js`, or `npm --version (node v20.20.2)`.
    fn who(&self) -> String {
        let run = self.run;
        let version = run
            .node
            .as_ref()
            .map(|node| node.version.as_deref().unwrap_or("of unknown version"));
        let program = run
            .command
            .first()
            .map(|path| basename(path))
            .unwrap_or("(unknown)");
        let arguments = run.command.iter().skip(1).map(|argument| argument.as_str());
        let arguments = arguments.map(|argument| {
            if argument.starts_with('/') {
                self.path(argument)
            } else {
                printable(argument).into_owned()
            }
        });
        let mut words: Vec<String> = vec![printable(program).into_owned()];
        if let Some(version) = version.filter(|_| program == "node") {
            words.push(printable(version).into_owned());
        }
        words.extend(arguments);
        // A command line of 10,000 characters must not hide the figures.
        let mut who = cut(&words.join(" "), self.width * 3 / 4).into_owned();
        if program != "node" {
            match version {
                Some(version) => who.push_str(&format!(" (node {})", printable(version))),
                None => who.push_str(" (no node)"),
            }
        }
        who
    }

    fn phases(&mut self) {
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
        self.section("Phases", &phrases);
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
        let some = |count: u64| {
            Cell::text(if count == 0 {
                String::new()
            } else {
                number(count)
            })
        };
        let some_time = |ns: u64| Cell::text(if ns == 0 { String::new() } else { time(ns) });
        for phase in &run.phases {
            let spent = phase.end_ns.saturating_sub(phase.start_ns).max(0) as u64;
            table.row([
                Cell::text(phase_name(&phase.name)),
                Cell::bar(fraction(phase.start_ns), fraction(phase.end_ns)),
                Cell::text(signed_time(phase.start_ns)).paint(Paint::Faint),
                Cell::text(time(spent)),
                Cell::text(percent(spent, whole)),
                some(phase.crossings),
                some(phase.lookups),
                some(phase.stats),
                some(phase.opens),
                some(phase.compilations),
                some_time(phase.files_ns),
                some_time(phase.compile_ns),
            ]);
        }
        self.table(&table);
    }

    fn crossings(&mut self) {
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
        self.section("Crossings", &phrases);

        let mut table = Table::new([
            Column::right("calls"),
            Column::right("total"),
            Column::right("self"),
            Column::right("per call").drop(2),
            Column::right("self share").drop(4),
            Column::left("kind").drop(3),
            Column::left("callback").flexible(16, 80),
        ]);
        let whole = crossings.self_ns;
        let row = |callback: &CallbackProfile, share: bool| {
            let timed = callback.timed_calls.max(1);
            vec![
                Cell::text(number(callback.calls)),
                Cell::text(
                    callback
                        .total_ns
                        .map(time)
                        .unwrap_or_else(|| "–".to_owned()),
                ),
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
        self.table(&table);
        self.more(TOP, crossings.callbacks.len(), "callbacks");

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
            self.note("Called often, though each call is short or not timed:");
            table.rows = busiest
                .iter()
                .take(TOP_SHORT)
                .map(|callback| row(callback, true))
                .collect();
            self.table(&table);
        }
    }

    fn package_json(&mut self) {
        let package_json = &self.run.package_json;
        if package_json.files.is_empty() {
            return self.empty("package.json", "package-json");
        }
        let mut phrases = vec![plain(format!(
            "{}{}",
            counted(package_json.lookups, "lookup"),
            repeated(package_json.repeated_lookups)
        ))];
        let asked = |lookups: bool| match (
            lookups,
            package_json.opens_failed,
            package_json.repeated_opens,
        ) {
            (_, 0, 0) => String::new(),
            (_, failed, 0) => format!(" ({} failed)", number(failed)),
            (_, 0, again) => format!(" ({} repeated)", number(again)),
            (_, failed, again) => {
                format!(" ({} failed, {} repeated)", number(failed), number(again))
            }
        };
        phrases.push(plain(format!(
            "{}{}",
            counted(package_json.opens, "open"),
            asked(true)
        )));
        if package_json.stats > 0 {
            let failed = match package_json.stats_failed {
                0 => String::new(),
                failed => format!(" ({} failed)", number(failed)),
            };
            phrases.push(plain(counted(package_json.stats, "stat") + &failed));
        }
        if package_json.bytes > 0 {
            phrases.push(plain(format!("{} read", bytes(package_json.bytes))));
        }
        if package_json.total_ns > 0 {
            phrases.push(plain(format!(
                "{} in the kernel",
                time(package_json.total_ns)
            )));
        }
        let missing = package_json
            .files
            .iter()
            .filter(|file| file.found == Some(false))
            .count() as u64;
        if missing > 0 {
            let files = counted(package_json.files.len() as u64, "path");
            phrases.push(warning(format!(
                "{} of {files} do not exist",
                number(missing)
            )));
        }
        if let Some(reason) = self.off("package-json") {
            phrases.push(warning(reason));
        }
        self.section("package.json", &phrases);

        let mut table = Table::new([
            Column::right("lookups"),
            Column::right("opens"),
            Column::right("stats"),
            Column::right("bytes").drop(2),
            Column::right("time").drop(1),
            Column::left("found"),
            Column::left("path").flexible(20, 120),
        ]);
        let row = |file: &PackageJsonFile| {
            let count = |count: u64| {
                Cell::text(if count == 0 {
                    String::new()
                } else {
                    number(count)
                })
            };
            let lookups = count(file.lookups);
            let found = match file.found {
                Some(true) => Cell::text("yes").paint(Paint::Faint),
                Some(false) => Cell::text("no").paint(Paint::Warning),
                None => Cell::text("?").paint(Paint::Faint),
            };
            vec![
                if file.lookups > 1 {
                    lookups.paint(Paint::Warning)
                } else {
                    lookups
                },
                count(file.opens),
                count(file.stats),
                Cell::text(if file.bytes == 0 {
                    String::new()
                } else {
                    bytes(file.bytes)
                }),
                Cell::text(if file.total_ns == 0 {
                    String::new()
                } else {
                    time(file.total_ns)
                }),
                found,
                Cell::path(self.path(&file.path)),
            ]
        };
        let (top, rest) = package_json
            .files
            .split_at(package_json.files.len().min(TOP));
        for file in top {
            table.row(row(file));
        }
        let mut slowest: Vec<&PackageJsonFile> =
            rest.iter().filter(|file| file.total_ns > 0).collect();
        slowest.sort_by_key(|file| std::cmp::Reverse(file.total_ns));
        slowest.truncate(TOP_SHORT / 2);
        let rows: Vec<Vec<Cell>> = slowest.into_iter().map(row).collect();
        self.table(&table);
        self.more(TOP, package_json.files.len(), "paths");
        if !rows.is_empty() {
            self.note("Slowest of the others:");
            table.rows = rows;
            self.table(&table);
        }
    }

    fn serialization(&mut self) {
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
        self.section("Serialization", &phrases);
        let columns = |title| {
            [
                Column::right("calls"),
                Column::right("bytes").drop(1),
                Column::right("total"),
                Column::right("self").drop(2),
                Column::right("share").drop(3),
                Column::left(title).flexible(16, 80),
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
        self.table(&table);
        self.more(TOP_SHORT, serialization.functions.len(), "functions");
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
        self.table(&table);
        self.more(TOP_SHORT, serialization.callbacks.len(), "callbacks");
    }

    fn compile(&mut self) {
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
        self.section("Compilation", &phrases);
        let mut table = Table::new([
            Column::right("time"),
            Column::right("self").drop(3),
            Column::right("share").drop(2),
            Column::right("times").drop(4),
            Column::left("cached"),
            Column::left("unit").drop(5),
            Column::left("path").flexible(20, 120),
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
        self.table(&table);
        self.more(TOP, compile.scripts.len(), "scripts");
    }

    fn files(&mut self) {
        let files = &self.run.files;
        let operations = [
            ("stat", &files.stat),
            ("open", &files.open),
            ("read", &files.read),
            ("readlink", &files.readlink),
            ("access", &files.access),
            ("close", &files.close),
        ];
        let calls: u64 = operations
            .iter()
            .map(|(_, operation)| operation.calls)
            .fold(0, u64::saturating_add);
        if calls == 0 {
            return self.empty("Files", "files");
        }
        let spent: u64 = operations
            .iter()
            .map(|(_, operation)| operation.total_ns)
            .fold(0, u64::saturating_add);
        let mut phrases = vec![
            plain(counted(calls, "system call") + &format!(" on {}", counted(files.paths, "path"))),
            plain(format!("{} in the kernel", time(spent))),
        ];
        if files.bytes_read > 0 {
            phrases.push(plain(format!("{} read", bytes(files.bytes_read))));
        }
        if let Some(reason) = self.off("files") {
            phrases.push(warning(reason));
        }
        self.section("Files", &phrases);
        let mut table = Table::new([
            Column::right("calls"),
            Column::right("failed"),
            Column::right("time"),
            Column::right("per call"),
            Column::left("operation"),
        ]);
        for (name, operation) in operations {
            let FileOperationProfile {
                calls,
                failed,
                total_ns,
            } = *operation;
            if calls > 0 {
                table.row([
                    Cell::text(number(calls)),
                    Cell::text(if failed == 0 {
                        String::new()
                    } else {
                        number(failed)
                    })
                    .paint(Paint::Warning),
                    Cell::text(time(total_ns)),
                    Cell::text(time(total_ns / calls)).paint(Paint::Faint),
                    Cell::text(name),
                ]);
            }
        }
        self.table(&table);
        self.paths("Slowest:", &files.slowest);
        self.paths("Most repeated:", &files.most_repeated);
    }

    fn paths(&mut self, title: &str, paths: &[PathProfile]) {
        if paths.is_empty() {
            return;
        }
        self.note(title);
        let mut table = Table::new([
            Column::right("calls"),
            Column::right("failed").drop(2),
            Column::right("time"),
            Column::right("bytes").drop(3),
            Column::left("operation"),
            Column::left("path").flexible(20, 120),
        ]);
        for path in paths.iter().take(TOP_SHORT) {
            table.row([
                Cell::text(number(path.calls)),
                Cell::text(if path.failed == 0 {
                    String::new()
                } else {
                    number(path.failed)
                })
                .paint(Paint::Warning),
                Cell::text(time(path.total_ns)),
                Cell::text(if path.bytes == 0 {
                    String::new()
                } else {
                    bytes(path.bytes)
                }),
                Cell::text(operation_name(path.operation)).paint(Paint::Faint),
                Cell::path(self.path(&path.path)),
            ]);
        }
        self.table(&table);
    }

    fn shows_processes(&self) -> bool {
        let processes = &self.run.processes;
        processes.len() > 1 || processes.iter().any(|process| process.incomplete.is_some())
    }

    fn processes(&mut self) {
        let processes = &self.run.processes;
        if !self.shows_processes() {
            return;
        }
        let partial: Vec<Phrase> = self.off("processes").into_iter().map(warning).collect();
        self.section("Processes", &partial);
        let mut table = Table::new([
            Column::right("pid").drop(5),
            Column::right("start").drop(4),
            Column::right("time"),
            Column::right("user").drop(6),
            Column::right("system").drop(7),
            Column::right("memory").drop(8),
            Column::right("crossings").drop(1),
            Column::right("files").drop(3),
            Column::left("end"),
            Column::left("process").flexible(40, 100),
        ]);
        let rows = tree(processes);
        for (prefix, process) in rows.iter().take(PROCESSES) {
            let spent = process
                .end_ns
                .map(|end| end.saturating_sub(process.start_ns).max(0) as u64);
            let count = |count: u64| {
                Cell::text(if count == 0 {
                    String::new()
                } else {
                    number(count)
                })
            };
            let end = match (process.signal, process.exit_status, process.end_ns) {
                (Some(signal), ..) => Cell::text(signal_name(signal)).paint(Paint::Error),
                (None, Some(0), _) => Cell::text("0").paint(Paint::Faint),
                (None, Some(status), _) => Cell::text(status.to_string()).paint(Paint::Error),
                (None, None, Some(_)) => Cell::text("?").paint(Paint::Faint),
                (None, None, None) => Cell::text("running").paint(Paint::Faint),
            };
            table.row([
                Cell::text(process.pid.to_string()).paint(Paint::Faint),
                Cell::text(signed_time(process.start_ns)).paint(Paint::Faint),
                Cell::text(spent.map(time).unwrap_or_default()),
                Cell::text(process.user_ns.map(time).unwrap_or_default()),
                Cell::text(process.system_ns.map(time).unwrap_or_default()),
                Cell::text(process.max_rss_bytes.map(bytes).unwrap_or_default()),
                count(process.crossings),
                count(process.file_operations),
                end,
                Cell::text(format!("{prefix}{}", self.process_name(process))),
            ]);
        }
        self.table(&table);
        self.more(PROCESSES, rows.len(), "processes");
        for process in processes {
            if let Some(reason) = &process.incomplete {
                self.note(&format!(
                    "Process {} is not complete: {}",
                    process.pid,
                    printable(reason)
                ));
            }
        }
    }

    fn process_name(&self, process: &ProcessProfile) -> String {
        let path = process.path.as_deref().map(basename);
        let mut words: Vec<String> = process
            .command
            .iter()
            .map(|word| {
                if word.starts_with('/') {
                    self.path(word)
                } else {
                    printable(word).into_owned()
                }
            })
            .collect();
        match words.first_mut() {
            Some(first) => {
                *first = printable(basename(
                    process
                        .command
                        .first()
                        .map(String::as_str)
                        .unwrap_or_default(),
                ))
                .into_owned();
            }
            None => words.push(
                path.map(|path| printable(path).into_owned())
                    .unwrap_or_else(|| "(forked, no exec)".to_owned()),
            ),
        }
        if let Some(version) = &process.node {
            words.push(format!(
                "({}{})",
                if words[0] == "node" { "" } else { "node " },
                printable(version)
            ));
        }
        words.join(" ")
    }

    fn families(&mut self) {
        // The others have said it in their sections, where the figures are.
        const SECTIONS: [&str; 6] = [
            "phases",
            "crossings",
            "package-json",
            "files",
            "serialization",
            "compile",
        ];
        let run = self.run;
        let untold: Vec<String> = run
            .families
            .iter()
            .map(|family| family.name.clone())
            .filter(|name| {
                !SECTIONS.contains(&name.as_str())
                    && (name != "processes" || !self.shows_processes())
            })
            .collect();
        for name in untold {
            if let Some(reason) = self.off(&name) {
                let title = capitalised(&printable(&name).replace('-', " "));
                self.section(&title, &[warning(reason)]);
            }
        }
    }

    fn losses(&mut self) {
        let run = self.run;
        let lost: Vec<(&String, u64)> = run
            .losses
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(kind, count)| (kind, *count))
            .collect();
        if lost.is_empty() {
            return;
        }
        self.section("Missing", &[faint("what the figures above do not contain")]);
        for (kind, count) in lost {
            let sentence = loss(kind, count);
            self.out.push_str("  ");
            let start = self.out.len();
            self.words(&sentence, Paint::Warning, 2);
            self.out.replace_range(start..start + 2, "");
            self.out.push('\n');
        }
    }

    fn overhead(&mut self) {
        let run = self.run;
        let overhead = &run.overhead;
        if overhead.probe_hits == 0 && overhead.setup_ns == 0 {
            return;
        }
        let mut phrases = vec![plain(format!("{} probe hits", number(overhead.probe_hits)))];
        if overhead.ns_per_hit > 0.0 {
            phrases[0].0 += &format!(" at {:.0} ns", overhead.ns_per_hit);
            let share = percent(overhead.estimated_ns, run.time.wall_ns);
            phrases.push(plain(format!(
                "about {} in all threads ({share} of the run), contained in the times above",
                time(overhead.estimated_ns)
            )));
        }
        if overhead.setup_ns > 0 {
            phrases.push(faint(format!(
                "{} to set up, {} of it to attach",
                time(overhead.setup_ns),
                time(overhead.attach_ns)
            )));
        }
        self.section("Cost of tracing", &phrases);
        let mut families: Vec<(&String, u64)> = overhead
            .by_family
            .iter()
            .map(|(name, hits)| (name, *hits))
            .filter(|(_, hits)| *hits > 0)
            .collect();
        families.sort_by_key(|&(name, hits)| (std::cmp::Reverse(hits), name));
        if !families.is_empty() {
            let list: Vec<String> = families
                .iter()
                .map(|(name, hits)| format!("{} {}", printable(name), number(*hits)))
                .collect();
            self.note(&format!("hits: {}", list.join(", ")));
        }
    }
}

fn all_paths(run: &RunProfile) -> impl Iterator<Item = &str> {
    let package_json = run.package_json.files.iter().map(|file| file.path.as_str());
    let files = run
        .files
        .slowest
        .iter()
        .chain(&run.files.most_repeated)
        .map(|path| path.path.as_str());
    let scripts = run
        .compile
        .scripts
        .iter()
        .map(|script| script.path.as_str());
    package_json
        .chain(files)
        .chain(scripts)
        .map(|path| path.strip_prefix("file://").unwrap_or(path))
}

fn is_inside(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder.trim_end_matches('/'))
        .is_some_and(|rest| rest.starts_with('/'))
}

/// The folder most paths lie in: the working directory, or the home of the node_modules of a program elsewhere.
fn base(run: &RunProfile) -> String {
    let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut inside = 0;
    for path in all_paths(run) {
        if !run.directory.is_empty() && is_inside(path, &run.directory) {
            inside += 1;
        } else if let Some((home, _)) = path.split_once("/node_modules/") {
            *homes.entry(home).or_default() += 1;
        }
    }
    match homes
        .into_iter()
        .max_by_key(|&(home, count)| (count, std::cmp::Reverse(home)))
    {
        Some((home, count)) if count > inside && !home.is_empty() => home.to_owned(),
        _ => run.directory.clone(),
    }
}

/// Rows of the process tree.
const PROCESSES: usize = 24;

fn repeated(count: u64) -> String {
    match count {
        0 => String::new(),
        count => format!(" ({} repeated)", number(count)),
    }
}

fn basename(path: &str) -> &str {
    path.rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or(path)
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// Names of phases as in the JSON, in words.
fn phase_name(name: &str) -> String {
    let words: Vec<String> = name
        .split('+')
        .map(|part| match part {
            "process" => "exec".to_owned(),
            "v8" => "V8".to_owned(),
            "loop" => "event loop".to_owned(),
            other => printable(other).replace('_', " "),
        })
        .collect();
    words.join(" + ")
}

fn kind_name(kind: CrossingKind) -> &'static str {
    match kind {
        CrossingKind::Slow => "",
        CrossingKind::Fast => "fast",
        CrossingKind::Getter => "getter",
        CrossingKind::Construct => "construct",
        CrossingKind::ToJs => "to JS",
    }
}

fn unit_name(unit: CompilationUnit) -> &'static str {
    match unit {
        CompilationUnit::Builtin => "built-in",
        CompilationUnit::Function => "CommonJS",
        CompilationUnit::Module => "ES module",
        CompilationUnit::Script => "script",
    }
}

fn operation_name(operation: FileOperation) -> &'static str {
    match operation {
        FileOperation::Stat => "stat",
        FileOperation::Open => "open",
        FileOperation::Read => "read",
        FileOperation::Readlink => "readlink",
        FileOperation::Close => "close",
        FileOperation::Access => "access",
    }
}

fn kinds(crossings: &Crossings) -> Vec<Phrase> {
    let kinds = &crossings.by_kind;
    let list: Vec<String> = [
        ("slow", kinds.slow),
        ("fast", kinds.fast),
        ("getter", kinds.getter),
        ("construct", kinds.construct),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(name, count)| format!("{} {name}", number(count)))
    .collect();
    let back = match kinds.to_js {
        0 => String::new(),
        calls => format!("{} back to JavaScript", number(calls)),
    };
    vec![faint(list.join(", ")), faint(back)]
}

/// x86-64 numbers; the only architecture so far.
fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
        "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(signal)
        .ok()
        .and_then(|n| NAMES.get(n.checked_sub(1)?))
    {
        Some(name) => format!("SIG{name}"),
        None => format!("signal {signal}"),
    }
}

/// What a loss means for the figures.
fn loss(kind: &str, count: u64) -> String {
    let n = number(count);
    match kind {
        "records" => format!(
            "{n} records were dropped because the buffer was full: counts and times of all sections are too low by these"
        ),
        "undecodable_records" => format!(
            "{n} records could not be read: counts and times of all sections are too low by these"
        ),
        "unmatched_exits" => format!("{n} returns without a call: the calls are not timed"),
        "abandoned_frames" => {
            format!("{n} calls were left by an exception or a jump: they are counted, not timed")
        }
        "frames_too_deep" => format!(
            "{n} calls were nested too deep to be timed: they are missing in total and self times"
        ),
        "sums_full" => format!(
            "{n} calls found no room in the tables of sums: they are missing in Crossings and Serialization"
        ),
        "threads_not_followed" => format!(
            "{n} times a thread could not be followed: what it did is missing in all sections"
        ),
        "memory_unreadable" => format!(
            "{n} names could not be read from the program's memory: they appear as (unreadable) or (unnamed)"
        ),
        "paths_unreadable" => format!(
            "{n} paths could not be read from the program's memory: they appear as (unreadable)"
        ),
        "paths_truncated" => {
            format!("{n} paths were cut: files with a common beginning may be shown as one")
        }
        "beginnings_missed" => format!(
            "{n} processes were seen only after their start: their first phases are too short or missing"
        ),
        "compilations_unmatched" => {
            format!("{n} compilations ended without a beginning: they are missing in Compilation")
        }
        "io_uring_setups" => format!(
            "{n} uses of io_uring: file operations made through it are missing in Files and package.json"
        ),
        other => format!("{n} × {}", printable(other).replace('_', " ")),
    }
}

/// The processes, each behind its parent, with the lines of the tree before its name.
fn tree(processes: &[ProcessProfile]) -> Vec<(String, &ProcessProfile)> {
    // Pids come again in long traces: the parent is the last process with that pid that began before.
    let parent_of = |index: usize| {
        let process = &processes[index];
        let pid = process.parent_pid?;
        (0..processes.len())
            .filter(|&other| {
                other != index
                    && processes[other].pid == pid
                    && processes[other].start_ns <= process.start_ns
            })
            .max_by_key(|&other| processes[other].start_ns)
    };
    let parents: Vec<Option<usize>> = (0..processes.len()).map(parent_of).collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); processes.len()];
    for (index, parent) in parents.iter().enumerate() {
        if let Some(parent) = *parent {
            children[parent].push(index);
        }
    }
    let mut rows = Vec::new();
    let mut seen = vec![false; processes.len()];
    // A cycle among processes with equal starts has no root: whoever is left over becomes one.
    let roots = (0..processes.len())
        .filter(|&index| parents[index].is_none())
        .chain(0..processes.len());
    for root in roots.collect::<Vec<_>>() {
        let mut stack = vec![(root, String::new(), String::new())];
        while let Some((index, prefix, below)) = stack.pop() {
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            rows.push((prefix, &processes[index]));
            for (position, &child) in children[index].iter().enumerate().rev() {
                let last = position + 1 == children[index].len();
                let (branch, line) = if last {
                    ("└─ ", "   ")
                } else {
                    ("├─ ", "│  ")
                };
                stack.push((child, format!("{below}{branch}"), format!("{below}{line}")));
            }
        }
    }
    rows
}
