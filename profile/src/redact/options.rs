//! Options inside of one argument, whose value is the next word: `sh -c 'deploy --password X'`, `["--password", "X"]`.

use std::ops::Range;

use regex::bytes::Regex;

use super::assignments::Kind;
use super::names::{self, Meaning};
use super::strings::Strings;
use super::words;

/// An option, the space behind it (a line may go on behind a backslash) or what parts the strings of a list, and a byte that begins no option.
pub(super) const OPTION: &str = r#"(?-u)(?:^|[\s"'`(;&|])(--?[A-Za-z][A-Za-z0-9_.-]*)((?:[ \t]|\\\r?\n){1,16}|\\{0,8}["'`]\s{0,16},\s{0,16}\\{0,8}["'`])[^\s-]"#;

/// Where the values are. `option` is [`OPTION`].
pub(super) fn secrets(option: &Regex, text: &[u8], kind: Kind) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut strings = Strings::default();
    let mut at = 0;
    while let Some(groups) = option.captures_at(text, at) {
        let (Some(name), Some(space)) = (groups.get(1), groups.get(2)) else {
            break;
        };
        let start = space.end();
        at = start;
        if names::meaning_of_option(name.as_bytes()) == Meaning::Plain {
            continue;
        }
        // What stands in a program without quotes is no option.
        let string = match kind {
            Kind::Text => None,
            Kind::Code => match strings.around(text, name.start()) {
                Some(quote) => Some(quote),
                None => continue,
            },
        };
        let is_of_list = matches!(space.as_bytes(), [.., b'"' | b'\'' | b'`']);
        let value = match (is_of_list, string) {
            (true, _) => match words::opener_before(&text[..start]) {
                // The option is a string of the list, too.
                Some(opener) if text[..name.start()].ends_with(opener) => {
                    start..words::closing(text, start, opener)
                }
                _ => continue,
            },
            (false, None) => words::value(text, start),
            (false, Some(quote)) => {
                let end = strings.end(text, start, quote);
                // `--token ${token}`
                if text[start..end].starts_with(b"${") && quote == b'`' {
                    continue;
                }
                words::value(&text[..end], start)
            }
        };
        at = value.end.max(start);
        let meaning = names::meaning_of_option(name.as_bytes());
        if !value.is_empty() && meaning.hides(&text[value.clone()]) {
            found.push(value);
        }
    }
    found
}
