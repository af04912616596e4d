//! Credentials in addresses: `scheme://user:password@host`, also without a password, for many services take a token as the user.

use std::ops::Range;

use regex::bytes::Regex;

use super::REDACTED;

/// Where the credentials in a text are. `scheme` finds `https://`.
pub(super) fn credentials(scheme: &Regex, text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = scheme.find_at(text, at) {
        at = begin.end();
        let length = length(&text[at..]);
        if let Some(end) = end_of_user(&text[at..at + length]) {
            found.push(at..at + end);
            at += end;
        }
    }
    found
}

/// Up to what no address holds, or to the next address: so each byte is looked at for one of them only.
fn length(rest: &[u8]) -> usize {
    let is_over = |at: usize| {
        matches!(rest[at], b'"' | b'\'' | b'`' | b'<' | b'>')
            || rest[at].is_ascii_whitespace()
            || rest[at..].starts_with(b"://")
    };
    (0..rest.len())
        .find(|at| is_over(*at))
        .unwrap_or(rest.len())
}

/// Where the `@` before the host is.
fn end_of_user(address: &[u8]) -> Option<usize> {
    let last_at = |text: &[u8]| text.iter().rposition(|b| *b == b'@').filter(|at| *at > 0);
    let host_end = address.iter().position(|b| b"/?#\\".contains(b));
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
    let colon = from + authority[from..].iter().position(|b| *b == b':')?;
    let after = &authority[colon + 1..];
    let is_port = after.iter().all(u8::is_ascii_digit);
    let is_filled_in = after.starts_with(b"$") || after.starts_with(b"{");
    match is_port || is_filled_in {
        true => None,
        false => last_at(address),
    }
}
