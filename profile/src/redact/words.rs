//! Words of a line for a shell, with the quotes and escaped characters in them, and the quotes of strings.

use std::ops::Range;

/// The value that begins here: a quoted one without its quotes, unless more is joined to it (`'it'\''s'`).
pub(super) fn value(text: &[u8], start: usize) -> Range<usize> {
    let Some(opener) = opener(&text[start..]) else {
        return start..end_of_word(text, start);
    };
    let begin = start + opener.len();
    let end = closing(text, begin, opener);
    let after = end + opener.len();
    if opener.len() == 1 && !is_end(text, after) {
        let joined = end_of_word(text, after);
        if joined > after {
            return start..joined;
        }
    }
    begin..end
}

/// Behind the word that begins here, with the quoted parts and escaped characters in it, without what ends a command of a shell there.
pub(super) fn end_of_word(text: &[u8], start: usize) -> usize {
    let mut end = start;
    while end < text.len() && !text[end].is_ascii_whitespace() {
        let Some(next) = part(text, end) else {
            break;
        };
        end = next;
    }
    end = end.min(text.len());
    while end > start && matches!(text[end - 1], b';' | b'&' | b'|' | b')' | b',') {
        end -= 1;
    }
    end
}

/// Behind the part of a word that begins here: a quoted one, an escaped character, or one byte. `None`: a quote at the end of the word is
/// that of a string around it, as is an escaped one.
pub(super) fn part(text: &[u8], at: usize) -> Option<usize> {
    let first = *text.get(at)?;
    let quote = at + usize::from(first == b'\\');
    if is_quote(text, quote) && is_end(text, quote + 1) {
        return None;
    }
    Some(match first {
        // A line that goes on in the next one.
        b'\\' if matches!(text.get(at + 1), Some(b'\r' | b'\n')) => at + 1,
        b'\\' => at + 2,
        // A quote that nothing closes is a character.
        _ if is_quote(text, at) => match closing(text, at + 1, &[first]) {
            end if end < text.len() => end + 1,
            _ => at + 1,
        },
        _ => at + 1,
    })
}

pub(super) fn is_quote(text: &[u8], at: usize) -> bool {
    matches!(text.get(at), Some(b'"' | b'\'' | b'`'))
}

/// Whether a word, a command, a list or an object ends here.
pub(super) fn is_end(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(|b| {
        b.is_ascii_whitespace() || matches!(b, b';' | b'&' | b'|' | b')' | b',' | b'}' | b']')
    })
}

/// The quote that a value begins with, with the backslashes before it.
pub(super) fn opener(rest: &[u8]) -> Option<&[u8]> {
    for quote in [&b"%22"[..], b"%27"] {
        if rest.starts_with(quote) {
            return Some(quote);
        }
    }
    let escapes = escapes(rest);
    is_quote(rest, escapes).then(|| &rest[..=escapes])
}

/// The quote that this text ends with, with the backslashes before it.
pub(super) fn opener_before(text: &[u8]) -> Option<&[u8]> {
    let quote = text.len().checked_sub(1)?;
    let escapes = text[..quote].iter().rev().take_while(|b| **b == b'\\');
    is_quote(text, quote).then(|| &text[quote - escapes.count()..])
}

fn escapes(rest: &[u8]) -> usize {
    rest.iter().take_while(|b| **b == b'\\').count()
}

/// Where the text ends that this quote has opened.
pub(super) fn closing(text: &[u8], start: usize, opener: &[u8]) -> usize {
    let mut at = start;
    while at < text.len() {
        if text[at..].starts_with(opener) {
            return at;
        }
        // An escaped character, of this level or of a deeper one.
        at += match (text[at], opener.len()) {
            (b'\\', 1) => 2,
            (b'\\', _) => escapes(&text[at..]) + 1,
            _ => 1,
        };
    }
    text.len()
}
