//! Credentials in addresses: `scheme://user:password@host`, also without a password, for many services take a token as the user.

use std::ops::Range;

use regex::bytes::Regex;

use super::REDACTED;
use super::assignments::Kind;
use super::strings::Strings;
use super::words;

/// Where the credentials in a text are. `scheme` finds `https://` and `https%3A%2F%2F`.
pub(super) fn credentials(scheme: &Regex, text: &[u8], kind: Kind) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut strings = Strings::default();
    let mut at = 0;
    while let Some(begin) = scheme.find_at(text, at) {
        at = begin.end();
        let is_encoded = begin.as_bytes().contains(&b'%');
        let address = &text[at..at + length(&text[at..], is_encoded)];
        let length = match kind {
            Kind::Text => end_in_text(&text[..begin.start()], address),
            Kind::Code => match strings.around(text, begin.start()) {
                Some(quote) => words::closing(address, 0, &[quote]),
                None => first_quote(address, |_| true),
            },
        };
        if let Some(end) = end_of_user(&address[..length], is_encoded) {
            found.push(at..at + end);
            at += end;
        }
    }
    found
}

/// Up to what no address holds but perhaps in quotes, or to the next address: so each byte is looked at for one of them only.
fn length(rest: &[u8], is_encoded: bool) -> usize {
    let is_over = |at: usize| {
        matches!(rest[at], b'<' | b'>')
            || rest[at].is_ascii_whitespace()
            || rest[at..].starts_with(b"://")
            || (is_encoded && (b"&#".contains(&rest[at]) || begins_encoded(&rest[at..])))
    };
    (0..rest.len())
        .find(|at| is_over(*at))
        .unwrap_or(rest.len())
}

/// Whether this is what stands behind a scheme, written as in a parameter of another address.
fn begins_encoded(rest: &[u8]) -> bool {
    [&b"%3A%2F%2F"[..], b":%2F%2F", b"%3A//"]
        .iter()
        .any(|sign| starts(rest, sign))
}

/// Where an address ends before a quote: with the string that begins with it, or with one around it. A password may hold other quotes.
fn end_in_text(before: &[u8], address: &[u8]) -> usize {
    let ends_string = |behind: usize| {
        let rest = &address[behind..];
        words::is_end(rest, 0) || rest[0] == b':' || rest.starts_with(REDACTED.as_bytes())
    };
    let Some(opener) = words::opener_before(before) else {
        return first_quote(address, ends_string);
    };
    let end = words::closing(address, 0, opener);
    match address.get(end + opener.len()) {
        // 'it'\''s'
        Some(b'\\' | b'\'' | b'"') if opener.len() == 1 => {
            words::end_of_word(address, end + opener.len()).max(end)
        }
        _ => end,
    }
}

/// Where the first quote is behind which this is so.
fn first_quote(address: &[u8], is_last: impl Fn(usize) -> bool) -> usize {
    (0..address.len())
        .find(|at| words::is_quote(address, *at) && is_last(at + 1))
        .unwrap_or(address.len())
}

/// Where the `@` before the host is.
fn end_of_user(address: &[u8], is_encoded: bool) -> Option<usize> {
    let is_one_of = |rest: &[u8], plain: &[u8], encoded: &[&[u8]]| {
        plain.contains(&rest[0]) || (is_encoded && encoded.iter().any(|e| starts(rest, e)))
    };
    let last_at = |text: &[u8]| {
        let is_at = |at: &usize| is_one_of(&text[*at..], b"@", &[b"%40"]);
        (1..text.len()).rev().find(is_at)
    };
    let first = |text: &[u8], plain: &[u8], encoded: &[&[u8]]| {
        (0..text.len()).find(|at| is_one_of(&text[*at..], plain, encoded))
    };
    let host_end = first(address, b"/?#\\", &[b"%2F", b"%3F", b"%23", b"%5C"]);
    let authority = &address[..host_end.unwrap_or(address.len())];
    if let Some(at) = last_at(authority) {
        return Some(at);
    }
    // A password may hold a slash. What follows the colon of a host is its port.
    let is_ipv6 = authority.starts_with(b"[") && !authority.starts_with(REDACTED.as_bytes());
    let from = match is_ipv6 {
        true => authority.iter().position(|b| *b == b']')?,
        false => 0,
    };
    let colon = from + first(&authority[from..], b":", &[b"%3A"])?;
    let after = &authority[colon + if authority[colon] == b':' { 1 } else { 3 }..];
    let is_port = after.iter().all(u8::is_ascii_digit);
    let is_filled_in = after.starts_with(b"$") || after.starts_with(b"{");
    match is_port || is_filled_in {
        true => None,
        false => last_at(address),
    }
}

fn starts(rest: &[u8], with: &[u8]) -> bool {
    (rest.get(..with.len())).is_some_and(|begin| begin.eq_ignore_ascii_case(with))
}
