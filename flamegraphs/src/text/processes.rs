//! The tree of processes.

use nodeprof_profile::report::ProcessProfile;

use super::Report;
use super::page::{Phrase, warning};
use super::tree::tree;
use super::words::{basename, signal_name};
use crate::paths::printable;
use crate::table::{Cell, Column, Paint, Table};
use crate::units::{bytes, number, signed_time, time};

/// Rows of the process tree.
const PROCESSES: usize = 24;

impl Report<'_> {
    pub(super) fn shows_processes(&self) -> bool {
        let processes = &self.run.processes;
        processes.len() > 1 || processes.iter().any(|process| process.incomplete.is_some())
    }

    pub(super) fn processes(&mut self) {
        let processes = &self.run.processes;
        if !self.shows_processes() {
            return;
        }
        let partial: Vec<Phrase> = self.off("processes").into_iter().map(warning).collect();
        self.page.section("Processes", &partial);
        let mut table = Table::new([
            // What `--process` takes: the command is cut before it is left out.
            Column::right("pid"),
            Column::right("start").drop(4),
            Column::right("time"),
            Column::right("user").drop(6),
            Column::right("system").drop(7),
            Column::right("memory").drop(8),
            Column::right("crossings").drop(1),
            Column::right("files").drop(3),
            Column::left("end"),
            Column::left("process").flexible(32, 100),
        ]);
        let rows = tree(processes);
        for (prefix, process) in rows.iter().take(PROCESSES) {
            let spent = process
                .end_ns
                .map(|end| end.saturating_sub(process.start_ns).max(0) as u64);
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
                self.part("crossings", process.crossings, number),
                self.part("files", process.file_operations, number),
                end,
                self.process_cell(prefix, process),
            ]);
        }
        self.page.table(&table);
        self.page.more(PROCESSES, rows.len(), "process[|es]");
        for process in processes {
            if let Some(reason) = &process.incomplete {
                self.page.note(&format!(
                    "Process {} is not complete: {}",
                    process.pid,
                    printable(reason)
                ));
            }
        }
    }

    /// A process as a line of the tree. Of the first path in its command (of node, mostly its script) the folders in the middle go first, not its name.
    fn process_cell(&self, prefix: &str, process: &ProcessProfile) -> Cell {
        let words = self.process_words(process);
        let path = (words.iter().skip(1)).position(|(_, is_path)| *is_path);
        let join = |words: &[(String, bool)]| {
            let words: Vec<&str> = words.iter().map(|(word, _)| word.as_str()).collect();
            words.join(" ")
        };
        match path.map(|index| index + 1) {
            Some(at) => {
                let rest = match words.get(at + 1..) {
                    Some(rest) if !rest.is_empty() => format!(" {}", join(rest)),
                    _ => String::new(),
                };
                let lines = format!("{prefix}{} ", join(&words[..at]));
                Cell::branch(lines, words[at].0.clone(), rest)
            }
            None => Cell::text(format!("{prefix}{}", join(&words))),
        }
    }

    /// The words of its command, and whether each is a path.
    fn process_words(&self, process: &ProcessProfile) -> Vec<(String, bool)> {
        let path = process.path.as_deref().map(basename);
        let mut words: Vec<(String, bool)> = without_options(&process.command)
            .into_iter()
            .map(|word| match word.starts_with('/') {
                true => (self.path(word), true),
                false => (printable(word).into_owned(), false),
            })
            .collect();
        let first = process.command.first().map(|first| basename(first));
        match (words.first_mut(), first) {
            (Some(word), first) => {
                *word = (printable(first.unwrap_or_default()).into_owned(), false);
            }
            (None, _) => words.push((
                path.map(|path| printable(path).into_owned())
                    .unwrap_or_else(|| "(forked, no exec)".to_owned()),
                false,
            )),
        }
        if let Some(version) = &process.node {
            let is_node = words.first().is_some_and(|(word, _)| word == "node");
            let node = if is_node { "" } else { "node " };
            words.push((format!("({node}{})", printable(version)), false));
        }
        words
    }
}

/// Of a command line in short: where options of node stand before its script, it has room for that instead.
const SHORT_COMMAND: usize = 60;

/// A command line; of a long one without the options between node and its script.
fn without_options(command: &[String]) -> Vec<&str> {
    let all: Vec<&str> = command.iter().map(String::as_str).collect();
    if all.iter().map(|word| word.len() + 1).sum::<usize>() <= SHORT_COMMAND {
        return all;
    }
    let bytes: Vec<Vec<u8>> = all.iter().map(|word| word.as_bytes().to_vec()).collect();
    let is_node = all.first().is_some_and(|word| basename(word) == "node");
    let script = nodeprof_profile::script(&bytes).filter(|_| is_node);
    let at = script.and_then(|script| all.iter().skip(1).position(|word| *word == script));
    match at {
        Some(options) if options > 1 => [&all[..1], &["…"], &all[options + 1..]].concat(),
        _ => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_seen_behind_many_options() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            without_options(&words).join(" ")
        };
        let many = "--experimental-something-that-is-long=on";
        assert_eq!(
            of(&[
                "/bin/node",
                many,
                "--test-concurrency=0",
                "t/a.test.js",
                "x"
            ]),
            "/bin/node … t/a.test.js x"
        );
        for whole in [
            &["node", "-r", "a", "b.js"][..],
            &["node", many, "t/a-script-with-a-name-that-is-long.js"],
            &["node", many, many, "-e", "0"],
            &["sh", many, many, "t/a.js"],
            &[],
        ] {
            assert_eq!(of(whole), whole.join(" "));
        }
    }
}
