//! What the terminal can show.

use std::{
    env,
    io::{self, IsTerminal, Write},
    os::fd::AsRawFd,
};

use nodeprof_profile::store::{file_limit, too_large_a_file};
use nodeprof_profile::wording::{is_unprintable, printable_lines};

use crate::args::Color;

/// Columns where there is no terminal to ask.
const DEFAULT_WIDTH: usize = 100;

/// Whether to colour what goes to `stream`.
pub fn colored(color: Color, stream: &impl IsTerminal) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        // https://no-color.org: present and not empty.
        Color::Auto => {
            stream.is_terminal()
                && env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                && env::var_os("TERM").is_none_or(|t| t != "dumb")
        }
    }
}

/// Columns that the environment asks for, on a terminal and in a pipe.
fn asked_for() -> Option<usize> {
    let columns = env::var("COLUMNS").ok()?.parse().ok()?;
    (columns > 0).then_some(columns)
}

/// Columns of `stream`: COLUMNS, or what the terminal says, or [`DEFAULT_WIDTH`].
pub fn width(stream: &(impl IsTerminal + AsRawFd)) -> usize {
    if let Some(columns) = asked_for() {
        return columns.clamp(60, 400);
    }
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: a live struct; an error leaves it zero.
    let asked = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
    if asked == 0 && size.ws_col > 0 {
        usize::from(size.ws_col).clamp(60, 400)
    } else {
        DEFAULT_WIDTH
    }
}

/// Columns for lines that are broken or cut on a terminal only: whoever reads a pipe or file gets them whole, unless COLUMNS says otherwise.
pub fn room() -> Option<usize> {
    let out = io::stdout();
    (out.is_terminal() || asked_for().is_some()).then(|| width(&out))
}

/// Text that begins in the column `begin`, as do the lines that it is broken into where it is wider than `room`; between words only.
pub fn broken(text: &str, begin: usize, room: Option<usize>) -> String {
    // Paths among it are as somebody chose them.
    let text = printable_lines(text);
    let Some(room) = room else {
        return text.into_owned();
    };
    let mut lines = String::new();
    let mut used = begin;
    for (index, word) in text.split(' ').enumerate() {
        let more = word.chars().count();
        match index {
            0 => {}
            _ if used + 1 + more > room => {
                lines.truncate(lines.trim_end().len());
                lines.push('\n');
                lines.push_str(&" ".repeat(begin));
                used = begin;
            }
            // No space begins a line.
            _ if used == begin => {}
            _ => {
                lines.push(' ');
                used += 1;
            }
        }
        lines.push_str(word);
        used += more;
    }
    lines
}

/// Writes all to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes all to standard output. It need not be a text; whoever reads a pipe or file gets it as it is.
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = match out.is_terminal() {
        true => out.write_all(harmless(&String::from_utf8_lossy(bytes)).as_bytes()),
        false => out.write_all(bytes),
    };
    written
        .and_then(|()| out.flush())
        .map_err(|error| not_printed(error, bytes.len()))
}

/// Why so many bytes did not all come to standard output.
pub fn not_printed(error: io::Error, bytes: usize) -> anyhow::Error {
    not_written(error, bytes).context("writing to standard output")
}

/// Why so many bytes were not all written: with what to do, where the system's own words do not say.
pub fn not_written(error: io::Error, bytes: usize) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            anyhow::anyhow!(
                "no space left ({bytes} bytes are needed); free some or name a file on another disk"
            )
        }
        io::ErrorKind::FileTooLarge => {
            anyhow::anyhow!(too_large_a_file(bytes as u64, file_limit()))
        }
        _ => error.into(),
    }
}

/// Data as a terminal may show it: of all that are commands to it only our colours. In a table or JSON any name may stand as somebody chose it.
fn harmless(text: &str) -> String {
    const COLORS: [&str; 7] = ["0", "1", "2", "31", "32", "33", "36"];
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| !matches!(c, '\n' | '\t') && is_unprintable(c)) {
        shown.push_str(&rest[..at]);
        rest = &rest[at..];
        let color = (rest.strip_prefix("\x1b[")).and_then(|after| {
            let is_it = |code: &&&str| {
                after
                    .strip_prefix(**code)
                    .is_some_and(|r| r.starts_with('m'))
            };
            COLORS.iter().find(is_it).copied()
        });
        let end = match color {
            Some(code) => "\x1b[m".len() + code.len(),
            None => rest.chars().next().map_or(rest.len(), char::len_utf8),
        };
        match color {
            Some(_) => shown.push_str(&rest[..end]),
            None => shown.push_str(&printable_lines(&rest[..end])),
        }
        rest = &rest[end..];
    }
    shown + rest
}

/// What came of printing, where it is not all that is to be done: a reader that went away has had enough.
pub fn printed(outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    match outcome {
        Err(error) if is_closed_pipe(&error) => Ok(()),
        other => other,
    }
}

/// Whether the reader of our output went away (`| head`): no failure of ours. A pipe to another process (the launcher, the service) that broke is
/// the cause of an error of its own kind, and a failure.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let of_output = error.downcast_ref::<io::Error>();
    of_output.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// An error with its causes, each told once: some already name their cause. A name of a file may have in it what a terminal takes for a
/// command: that is told, not done.
pub fn told_once(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for part in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = part;
        } else if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
    }
    printable_lines(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_for_a_terminal_only() {
        let text = "load and pass  the verifier";
        assert_eq!(broken(text, 2, None), text);
        assert_eq!(broken(text, 2, Some(40)), text);
        assert_eq!(broken(text, 2, Some(15)), "load and pass\n  the verifier");
        assert_eq!(
            broken("unbreakable word", 4, Some(8)),
            "unbreakable\n    word"
        );
    }

    #[test]
    fn a_terminal_gets_no_commands_but_our_colours() {
        let colored = "\x1b[31mslower\x1b[0m\ta\n";
        assert_eq!(harmless(colored), colored);
        assert_eq!(
            harmless("a\x1b[2Jb\x1b[8mc\u{9b}2J\r\x1b]0;x\x07\x1b[31"),
            "a\\u{1b}[2Jb\\u{1b}[8mc\\u{9b}2J\\r\\u{1b}]0;x\\u{7}\\u{1b}[31"
        );
        assert_eq!(broken("a\x1b[2J", 0, None), "a\\u{1b}[2J");
        assert_eq!(broken("a\x1b[2J", 0, Some(80)), "a\\u{1b}[2J");
    }

    #[test]
    fn only_our_own_output_has_a_reader_that_had_enough() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_closed_pipe(&broken().into()));
        assert!(is_closed_pipe(
            &anyhow::Error::new(broken()).context("printing")
        ));
        let launcher = nodeprofd::measure::MeasureError::from(broken());
        assert!(!is_closed_pipe(&launcher.into()));
        assert!(!is_closed_pipe(&anyhow::Error::new(io::Error::other(
            "full"
        ))));
    }

    #[test]
    fn a_cause_that_is_named_already_is_not_named_again() {
        let error = anyhow::anyhow!("the disk is full").context("writing a: the disk is full");
        assert_eq!(told_once(&error), "writing a: the disk is full");
        let error = anyhow::anyhow!("the disk is full").context("writing a");
        assert_eq!(told_once(&error), "writing a: the disk is full");
        let error = anyhow::anyhow!("no\u{1b}[2Jé\u{9b}x\n  y");
        assert_eq!(told_once(&error), "no\\u{1b}[2Jé\\u{9b}x\n  y");
    }
}
