//! Options inside of one argument, whose value is the next word: `sh -c 'deploy --password X'`.

use std::ops::Range;

use regex::bytes::Regex;

use super::assignments::{closing, opener};
use super::names::{self, Meaning};

/// An option, the space behind it (a line may go on behind a backslash), and a byte that begins no option.
pub(super) const OPTION: &str =
    r#"(?-u)(?:^|[\s"'`(;&|])(--?[A-Za-z][A-Za-z0-9_.-]*)((?:[ \t]|\\\r?\n){1,16})[^\s-]"#;

/// Where the values are. `option` is [`OPTION`].
pub(super) fn secrets(option: &Regex, text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(groups) = option.captures_at(text, at) {
        let (Some(name), Some(space)) = (groups.get(1), groups.get(2)) else {
            break;
        };
        let start = space.end();
        at = start;
        let meaning = names::meaning_of_option(name.as_bytes());
        if meaning == Meaning::Plain {
            continue;
        }
        let value = match opener(&text[start..]) {
            Some(opener) => {
                let start = start + opener.len();
                start..closing(text, start, opener)
            }
            None => start..end_of_word(text, start),
        };
        at = value.end.max(start);
        if !value.is_empty() && meaning.hides(&text[value.clone()]) {
            found.push(value);
        }
    }
    found
}

/// Behind the word that begins here, with the quoted parts and escaped characters in it, without what ends a command of a shell there.
fn end_of_word(text: &[u8], start: usize) -> usize {
    let ends = |at: usize| {
        text.get(at).is_none_or(|b| {
            b.is_ascii_whitespace() || matches!(b, b';' | b'&' | b'|' | b')' | b',' | b'}' | b']')
        })
    };
    let is_quote = |at: usize| matches!(text.get(at), Some(b'"' | b'\'' | b'`'));
    let mut end = start;
    while end < text.len() && !text[end].is_ascii_whitespace() {
        // A quote at the end of the word is that of a string around it, as is an escaped one.
        let quote = end + usize::from(text[end] == b'\\');
        if is_quote(quote) && ends(quote + 1) {
            break;
        }
        end = match text[end] {
            b'\\' => end + 2,
            _ if is_quote(end) => closing(text, end + 1, &text[end..=end]) + 1,
            _ => end + 1,
        };
    }
    end = end.min(text.len());
    while end > start && matches!(text[end - 1], b';' | b'&' | b'|' | b')' | b',') {
        end -= 1;
    }
    end
}
