//! Names with their values inside a text: `token=X`, `"password": "X"`, `?key=X`, `Authorization: Bearer X`.

use std::ops::Range;

use regex::bytes::{Match, Regex};

use super::REDACTED;
use super::names::{self, Meaning};
use super::strings::Strings;
use super::words::{self, closing, opener};

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A path, a label, an argument, a line for a shell.
    Text,
    /// JavaScript: what stands there without quotes is no secret but the name of a variable.
    Code,
}

/// A name, perhaps quoted (also escaped, as JSON inside of JSON is, or as in an address) or in brackets, and what stands between it and its value.
pub(super) const NAME: &str =
    r#"(?i)([a-z0-9_.$-]+)(?:\\*["'`]|%22)?(?:\]|%5D)?([ \t]{0,4})(:=|[=:]|%3D|%3A)"#;

/// What a text has that holds such a name.
pub(super) const ANY_NAME: &str = r"(?is)(?:token|secret|pass|pwd|pw|psk|key|auth|cred|sig|sess|jwt|otp|bearer|cookie|code|pat\b).*?(?:[=:]|%3[ad])";

/// Where the values are. `name` is [`NAME`].
pub(super) fn secrets(name: &Regex, text: &[u8], kind: Kind) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut strings = Strings::default();
    let mut ends = Ends::default();
    let mut at = 0;
    while let Some(groups) = name.captures_at(text, at) {
        let (Some(all), Some(name), Some(space), Some(sign)) =
            (groups.get(0), groups.get(1), groups.get(2), groups.get(3))
        else {
            break;
        };
        let string = match kind {
            Kind::Text => None,
            Kind::Code => strings
                .around(text, name.start())
                // "name": the string ends with the name.
                .filter(|quote| text.get(name.end()) != Some(quote)),
        };
        let place = Place {
            text,
            kind,
            string,
            name,
            has_space: !space.is_empty(),
            sign: sign.as_bytes(),
        };
        let values = place.values(all.end(), &mut ends);
        at = values.last().map_or(all.end(), |last| last.end);
        found.extend(values);
    }
    found
}

/// Ends that were looked for: those of names that stand in what is no secret are not looked for again, so that each byte is looked at a few
/// times only.
#[derive(Default)]
struct Ends {
    /// Of a word that may be the value of a parameter, or stand in an encoded address.
    words: [Option<Word>; 4],
    /// Of the last line: where it was looked for from, and where it is.
    line: Option<Range<usize>>,
}

/// A value without quotes.
#[derive(Clone, Copy)]
struct Word {
    /// It was looked at from here on.
    start: usize,
    /// Before what closes around it.
    end: usize,
    /// Behind that.
    closed: usize,
}

/// A name in a text.
struct Place<'t> {
    text: &'t [u8],
    kind: Kind,
    /// The quote of the string of a program that it is in.
    string: Option<u8>,
    name: Match<'t>,
    /// Before the sign.
    has_space: bool,
    /// What stands between name and value.
    sign: &'t [u8],
}

impl Place<'_> {
    /// The secrets that the name has, from this place on.
    fn values(&self, after: usize, ends: &mut Ends) -> Vec<Range<usize>> {
        let none = Vec::new();
        let text = self.text;
        let meaning = self.meaning();
        if meaning == Meaning::Plain || self.is_no_assignment(&text[after..]) {
            return none;
        }
        let start = after + spaces(&text[after..]);
        if let Some(opener) = opener(&text[start..]) {
            // The end of the string that the name stands in: "token: " + token.
            if self.string.is_some_and(|quote| opener == [quote]) {
                return none;
            }
            let value = match self.is_of_shell() && self.sign == b"=" {
                true => words::value(text, start),
                false => {
                    let start = start + opener.len();
                    start..closing(text, start, opener)
                }
            };
            return vec_of(value, text, meaning);
        }
        let is_list = text.get(start) == Some(&b'[') && opener_in_list(&text[start..]).is_some();
        if is_list {
            return strings_of_list(text, start);
        }
        let is_bare_in_code = self.kind == Kind::Code && self.string.is_none();
        let opens = matches!(text.get(start), Some(b'{' | b'[')) && self.is_colon();
        let is_redacted = text[start..].starts_with(REDACTED.as_bytes());
        if is_bare_in_code || (opens && !is_redacted) {
            return none;
        }
        if self.is_colon() && names::is_header_to_its_end(self.name.as_bytes()) {
            let end = self.end_of_header(start, ends);
            return vec_of(start + scheme(&text[start..end])..end, text, meaning);
        }
        // Prose: "auth: ok". A header has a name of several words.
        let is_prose = self.string.is_some() && start > after && self.is_colon();
        if is_prose && !self.name.as_bytes().contains(&b'-') {
            return none;
        }
        let mut end = self.end_of_word(start, ends);
        if is_scheme(&text[start..end]) {
            let next = end + spaces(&text[end..]);
            end = self.end_of_word(next, ends).max(end);
        }
        vec_of(start..end, text, meaning)
    }

    fn meaning(&self) -> Meaning {
        let name = self.name.as_bytes();
        if self.is_parameter() && names::is_code(name) {
            return Meaning::Secret;
        }
        if names::is_bare_key(name) && !self.is_parameter() {
            return Meaning::Plain;
        }
        // `auth.example:443` is a host, `process.env.TOKEN=` is not.
        let last = name.rsplit(|b| *b == b'.').next().unwrap_or(name);
        names::meaning(last)
    }

    fn is_colon(&self) -> bool {
        matches!(self.sign, b":" | b"%3A" | b"%3a")
    }

    /// Of an address: ?name=value.
    fn is_parameter(&self) -> bool {
        let before = &self.text[..self.name.start()];
        let begins = ["?", "&", "%3F", "%3f", "%26"];
        !self.is_colon()
            && (begins.iter().any(|b| before.ends_with(b.as_bytes())) || self.is_encoded())
    }

    /// Perhaps in a line for a shell, where a value may be made of quoted parts and others.
    fn is_of_shell(&self) -> bool {
        self.kind == Kind::Text && !self.is_parameter()
    }

    fn is_encoded(&self) -> bool {
        self.sign.starts_with(b"%")
    }

    fn is_no_assignment(&self, rest: &[u8]) -> bool {
        let next = rest.first();
        match self.sign {
            // a == b, a => b
            b"=" => matches!(next, Some(b'=' | b'>')),
            b":" => {
                let before = &self.text[..self.name.start()];
                let is_host = before.ends_with(b"//") || before.ends_with(b"@");
                // a ? "token" : "cookie"
                let is_choice = self.kind == Kind::Code && self.has_space;
                // C++'s a::b, secret://, /x/auth:/y/bin
                matches!(next, Some(b':' | b'/')) || is_host || is_choice
            }
            _ => false,
        }
    }

    /// A header ends with the string that it is in, or with the line.
    fn end_of_header(&self, start: usize, ends: &mut Ends) -> usize {
        let before = &self.text[..self.name.start()];
        let opener = words::opener_before(before);
        let known = (ends.line.as_ref()).filter(|line| (line.start..=line.end).contains(&start));
        let line = known.map_or_else(
            || {
                let length = self.text[start..].iter().position(|b| b"\r\n".contains(b));
                length.map_or(self.text.len(), |length| start + length)
            },
            |line| line.end,
        );
        ends.line = Some(start..line);
        let text = &self.text[..line];
        match (opener, self.string) {
            (Some(opener), _) => closing(text, start, opener),
            (None, Some(quote)) => closing(text, start, &[quote]),
            (None, None) => line,
        }
    }

    /// Where a value without quotes ends.
    fn end_of_word(&self, start: usize, ends: &mut Ends) -> usize {
        let kind = usize::from(self.is_parameter()) + 2 * usize::from(self.is_encoded());
        let known = &mut ends.words[kind];
        let word = match *known {
            // What ends a word does not depend on where it begins.
            Some(word) if (word.start..=word.closed).contains(&start) => word,
            _ => self.word(start),
        };
        *known = Some(word);
        word.end.max(start)
    }

    fn word(&self, start: usize) -> Word {
        let text = self.text;
        let is_parameter = self.is_parameter();
        let is_of_shell = self.is_of_shell();
        let mut at = start;
        while at < text.len() {
            let rest = &text[at..];
            let is_end = match rest[0] {
                b'"' | b'\'' | b'`' | b'\\' if is_of_shell => match words::part(text, at) {
                    Some(next) => {
                        at = next;
                        continue;
                    }
                    None => true,
                },
                b'"' | b'\'' | b'`' | b'<' | b'>' => true,
                b'&' | b'#' if is_parameter => true,
                b'%' if self.is_encoded() => [b"%26", b"%23", b"%22"]
                    .iter()
                    .any(|e| rest.starts_with(*e)),
                b',' | b';' | b'&' | b'|' => begins_something_else(&rest[1..]),
                byte => byte.is_ascii_whitespace(),
            };
            if is_end {
                break;
            }
            at += 1;
        }
        at = at.min(text.len());
        let closed = at;
        // What closes around it is not its own.
        let before_quote = matches!(text.get(at), Some(b'"' | b'\'' | b'`'));
        let closes = |at: usize| match text[at - 1] {
            b')' | b'}' | b']' => !text[start..at].ends_with(REDACTED.as_bytes()),
            byte => byte == b'\\' && before_quote,
        };
        while at > start && closes(at) {
            at -= 1;
        }
        Word {
            start,
            end: at,
            closed,
        }
    }
}

/// The place, if there is something to hide in it.
fn vec_of(place: Range<usize>, text: &[u8], meaning: Meaning) -> Vec<Range<usize>> {
    let is_secret = !place.is_empty() && meaning.hides(&text[place.clone()]);
    if is_secret { vec![place] } else { Vec::new() }
}

fn spaces(rest: &[u8]) -> usize {
    let spaces = rest.iter().take_while(|b| b.is_ascii_whitespace());
    spaces.count()
}

/// Bytes of a scheme that everybody has, with the spaces behind it, before what it is the scheme of.
pub(super) fn scheme(value: &[u8]) -> usize {
    let word = value.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let spaces = spaces(&value[word..]);
    let is_common = |scheme: &&[u8]| value[..word].eq_ignore_ascii_case(scheme);
    match [&b"bearer"[..], b"basic"].iter().any(is_common) && spaces > 0 {
        true => word + spaces,
        false => 0,
    }
}

/// Says how the secret behind it is to be understood.
fn is_scheme(word: &[u8]) -> bool {
    ["bearer", "basic", "token", "apikey", "digest", "negotiate"]
        .iter()
        .any(|scheme| word.eq_ignore_ascii_case(scheme.as_bytes()))
}

/// After a sign that parts values, but may be part of one, too: the next name or value, or nothing.
fn begins_something_else(rest: &[u8]) -> bool {
    let Some(first) = rest.first() else {
        return true;
    };
    if rest.starts_with(REDACTED.as_bytes()) {
        return false;
    }
    let is_of_name = |b: &u8| b.is_ascii_alphanumeric() || b"_.-".contains(b);
    let name = rest.iter().take(64).take_while(|b| is_of_name(b)).count();
    first.is_ascii_whitespace()
        || b"\"'`\\{[&|;,".contains(first)
        || (name > 0 && matches!(rest.get(name), Some(b'=' | b':')))
}

fn opener_in_list(rest: &[u8]) -> Option<&[u8]> {
    opener(&rest[1 + spaces(&rest[1..])..])
}

/// The strings in `["a", "b"]`.
fn strings_of_list(text: &[u8], start: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = start + 1;
    loop {
        at += spaces(&text[at..]);
        let Some(quote) = opener(&text[at..]) else {
            return found;
        };
        let begin = at + quote.len();
        let end = closing(text, begin, quote);
        found.extend(vec_of(begin..end, text, Meaning::Secret));
        at = (end + quote.len()).min(text.len());
        at += spaces(&text[at..]);
        if text.get(at) != Some(&b',') {
            return found;
        }
        at += 1;
    }
}
