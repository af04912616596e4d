//! Counts in sentences, and names that programs chose, made fit to print.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character could move the cursor, hide or reorder what is printed, or is not allowed in XML.
pub fn is_unprintable(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Marks that change the direction of text, or take no room: a path could show as another.
        | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
}

/// The text with every unprintable character as an escape, the ends of lines among them.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_unprintable)
}

/// The same of a text of several lines, which it keeps.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_unprintable(c))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if !is_escaped(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", c as u32);
            }
        }
    }
    Cow::Owned(out)
}

/// `1234567` as `1,234,567`.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The text with the count for `#`, and of each `[one|many]` the form that goes with it: `# [run is|runs are] left out`.
pub fn counted(count: u64, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, choice, after)) = next_choice(rest) {
        out += before;
        out += match count {
            1 => choice.0,
            _ => choice.1,
        };
        rest = after;
    }
    out += rest;
    out.replace('#', &number(count))
}

fn next_choice(text: &str) -> Option<(&str, (&str, &str), &str)> {
    let (before, rest) = text.split_once('[')?;
    let (choice, after) = rest.split_once(']')?;
    Some((before, choice.split_once('|')?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_with_their_count() {
        let text = "# [run is|runs are] left out, and [its|their] times";
        assert_eq!(counted(1, text), "1 run is left out, and its times");
        assert_eq!(counted(0, text), "0 runs are left out, and their times");
        assert_eq!(
            counted(1_234_567, "# file[|s] (an eval)"),
            "1,234,567 files (an eval)"
        );
        assert_eq!(counted(1, "nothing to choose"), "nothing to choose");
    }

    #[test]
    fn what_could_move_the_cursor_is_escaped() {
        assert_eq!(
            printable("a\u{1b}[31mb\nc\u{202e}d\u{9b}2J"),
            "a\\u{1b}[31mb\\nc\\u{202e}d\\u{9b}2J"
        );
        assert_eq!(printable("žluťoučký 🦊"), "žluťoučký 🦊");
        assert_eq!(printable_lines("a\r\n\tb\u{7}"), "a\\r\n\\tb\\u{7}");
    }
}
