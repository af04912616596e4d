//! Options inside of one argument, whose value is the next word: `sh -c 'deploy --password X'`.

use std::ops::Range;

use regex::bytes::Regex;

use super::assignments::{closing, opener};
use super::names::{self, Meaning};

/// An option, and the space before a word that is no option.
pub(super) const OPTION: &str =
    r#"(?:^|[\s"'`(;&|])(--?[A-Za-z][A-Za-z0-9_.-]*)[ \t\n]{1,16}[^\s-]"#;

/// Where the values are. `option` is [`OPTION`].
pub(super) fn secrets(option: &Regex, text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(groups) = option.captures_at(text, at) {
        let (Some(all), Some(name)) = (groups.get(0), groups.get(1)) else {
            break;
        };
        let start = all.end() - 1;
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

/// Behind the word that begins here, without what ends a command of a shell there.
fn end_of_word(text: &[u8], start: usize) -> usize {
    let ends = |b: &u8| b.is_ascii_whitespace() || matches!(b, b'"' | b'\'' | b'`' | b'\\');
    let length = text[start..].iter().position(ends);
    let mut end = length.map_or(text.len(), |length| start + length);
    while end > start && matches!(text[end - 1], b';' | b'&' | b'|' | b')' | b',') {
        end -= 1;
    }
    end
}
