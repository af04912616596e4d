//! Lines of at most a width: phrases, sentences, tables.

use nodeprof_profile::wording;

use crate::paths::{columns, cut, printable};
use crate::table::{Paint, Table};

/// What is written so far, and how wide it may be. Nothing of a text that it is given is a command to the terminal, whoever chose the names in it.
pub(super) struct Page {
    pub(super) out: String,
    pub(super) width: usize,
    pub(super) color: bool,
}

/// A phrase with its colour, one of several on a line.
pub(super) type Phrase = (String, Paint);

pub(super) fn plain(text: impl Into<String>) -> Phrase {
    (text.into(), Paint::Plain)
}

pub(super) fn faint(text: impl Into<String>) -> Phrase {
    (text.into(), Paint::Faint)
}

pub(super) fn warning(text: impl Into<String>) -> Phrase {
    (text.into(), Paint::Warning)
}

const SEPARATOR: &str = " · ";

impl Page {
    /// Phrases with ` · ` between them; breaks between phrases, within one only if it is wider than a line.
    pub(super) fn phrases(&mut self, lead: &str, phrases: &[Phrase], indent: usize) {
        let mut used = 0;
        let lead = printable(lead);
        if !lead.is_empty() {
            let lead = cut(&lead, self.width);
            self.out.push_str(&Paint::Strong.on(&lead, self.color));
            used = columns(&lead);
        }
        let mut first = true;
        for (text, paint) in phrases.iter().filter(|(text, _)| !text.is_empty()) {
            let text = &printable(text);
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
        let text = printable(text);
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

    pub(super) fn section(&mut self, title: &str, phrases: &[Phrase]) {
        self.out.push('\n');
        self.phrases(title, phrases, 2);
    }

    pub(super) fn note(&mut self, text: &str) {
        self.sentence(text, Paint::Faint);
    }

    /// Whole lines below a heading.
    pub(super) fn sentence(&mut self, text: &str, paint: Paint) {
        self.words(text, paint, 2);
        self.out.push('\n');
    }

    pub(super) fn table(&mut self, table: &Table) {
        table.write(&mut self.out, self.width, self.color);
    }

    /// `what`, of which there are more, has forms as [`wording::counted`] takes them.
    pub(super) fn more(&mut self, shown: usize, all: usize, what: &str) {
        if all > shown {
            let more = (all - shown) as u64;
            self.note(&wording::counted(more, &format!("… and # more {what}")));
        }
    }
}
