//! The first lines: how it ended, and what stands out.

use nodeprof_profile::modules::ModuleKind;
use nodeprof_profile::recording::LOOP_START;

use super::module_tree::had_run_at_the_end;
use super::page::{faint, plain};
use super::words::{basename, repeated, signal_name};
use super::{Report, all_paths, is_inside};
use crate::paths::{columns, cut, printable, shorten};
use crate::table::Paint;
use crate::units::{bytes, counted, signed_time, time};

impl Report<'_> {
    pub(super) fn verdict(&mut self) {
        let run = self.run;
        let who = self.who();
        let mut phrases = Vec::new();

        let wall = time(run.time.wall_ns);
        // As seen by the user, who waits for what comes before node as well.
        let waited = run.start_to_exec_ns.unwrap_or_default() as i64;
        let loop_start = (run.milestones.loop_start).map(|start| start.saturating_add(waited));
        let end = match (run.signal, run.exit_status, run.ended_by.as_str()) {
            (Some(signal), ..) => (
                format!("killed by {} after {wall}", signal_name(signal)),
                Paint::Error,
            ),
            (None, Some(0), _) => plain(format!("{wall} to exit")),
            (None, Some(status), _) => (format!("exit status {status} after {wall}"), Paint::Error),
            // The service goes on for a while then (`settle`).
            (None, None, LOOP_START) => plain(match loop_start {
                Some(loop_start) => format!(
                    "traced for {wall}, until {} after the event loop began",
                    signed_time((run.time.wall_ns as i64).saturating_sub(loop_start))
                ),
                None => format!("traced for {wall}, until the event loop began"),
            }),
            (None, None, "idle") => plain(format!("traced for {wall}, until it was idle")),
            (None, None, "interrupt") => {
                plain(format!("traced for {wall}, until it was interrupted"))
            }
            (None, None, "import") => plain(format!("sampled for {wall}, imported")),
            (None, None, _) => plain(format!("traced for {wall}, still running")),
        };
        phrases.push(end);
        match loop_start {
            Some(loop_start) => {
                phrases.push(plain(format!(
                    "loop reached after {}",
                    signed_time(loop_start)
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
        self.page.phrases(&format!("{who}:"), &phrases, 2);

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
        if let Some(uss) = clock.private_dirty_bytes {
            details.push(faint(format!("{} private dirty", bytes(uss))));
        }
        if run.processes.len() > 1 {
            details.push(faint(
                counted(run.processes.len() as u64, "process").replace("processs", "processes"),
            ));
        }
        if run.mode == nodeprof_profile::groups::COUNT_MODE {
            details.push(faint(
                "count mode: calls and system calls are counted, not timed",
            ));
        }
        if let Some(version) = run.node.as_ref().and_then(|node| node.v8.as_deref()) {
            details.push(faint(format!("V8 {}", printable(version))));
        }
        details.extend(self.es_modules_to_come().map(faint));
        if !self.base.is_empty() && all_paths(run).any(|path| is_inside(path, &self.base)) {
            details.push(faint(format!("paths from {}", printable(&self.base))));
        }
        if !details.is_empty() {
            self.page.phrases("", &details, 0);
        }
    }

    /// Where a trace ended as the event loop began: that ES modules may be loaded and run in it, and how to see that.
    fn es_modules_to_come(&self) -> Option<&'static str> {
        let run = self.run;
        let main = run.processes.iter().find(|process| process.main)?;
        // Without stacks it is not known which modules there are.
        if run.ended_by != LOOP_START || run.modules.is_empty() {
            return None;
        }
        let mut of_program = (run.modules.iter())
            .filter(|module| module.pid == main.pid && module.kind != ModuleKind::Builtin)
            .peekable();
        if of_program.peek().is_none() {
            return Some(
                "no module of the program had been loaded, as ES modules are in the event loop: --until idle traces that",
            );
        }
        let script = of_program.find(|module| module.main_script)?;
        (script.kind == ModuleKind::EsModule && !had_run_at_the_end(run, script))
            .then_some("the main ES module may go on in the event loop: --until idle traces that")
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
        let width = self.page.width * 3 / 4;
        let takes = |words: &[String]| words.iter().map(|word| columns(word) + 1).sum::<usize>();
        if takes(&words) > width {
            // Of a long path the last parts tell most: which script it is.
            let paths = words.iter_mut().filter(|word| word.contains('/'));
            for path in paths.filter(|path| columns(path) > width / 2) {
                *path = shorten(path, width / 2);
            }
        }
        // A command line of 10,000 characters must not hide the figures.
        let mut who = cut(&words.join(" "), width).into_owned();
        if program != "node" {
            match version {
                Some(version) => who.push_str(&format!(" (node {})", printable(version))),
                None => who.push_str(" (no node)"),
            }
        }
        who
    }
}
