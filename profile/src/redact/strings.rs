//! The strings of a program in JavaScript.

use std::ops::Range;

use super::words::closing;

/// The strings of a program, without the quotes in comments and regular expressions.
#[derive(Default)]
pub(super) struct Strings {
    at: usize,
    quote: Option<u8>,
    /// No regular expression that begins before this place ends in its line.
    no_regex: usize,
    /// The last string whose end was looked for, from where on.
    known: Range<usize>,
}

impl Strings {
    /// The quote of the string that this place is in. Places are asked for in their order.
    pub(super) fn around(&mut self, text: &[u8], place: usize) -> Option<u8> {
        while self.at < place {
            match (text[self.at], self.quote) {
                (b'\\', Some(_)) => self.at += 1,
                (b'\n', Some(b'"' | b'\'')) => self.quote = None,
                (byte, Some(quote)) if byte == quote => self.quote = None,
                (byte @ (b'"' | b'\'' | b'`'), None) => self.quote = Some(byte),
                (b'/', None) => {
                    self.at = self.behind_slash(text);
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        self.quote
    }

    /// Where the string with this quote ends, which this place is in.
    pub(super) fn end(&mut self, text: &[u8], place: usize, quote: u8) -> usize {
        if !(self.known.start..=self.known.end).contains(&place) || self.known.is_empty() {
            self.known = place..closing(text, place, &[quote]);
        }
        self.known.end
    }

    /// Behind the comment, the regular expression or the sign of a division that begins here.
    fn behind_slash(&mut self, text: &[u8]) -> usize {
        let start = self.at;
        let behind = |end: &[u8]| {
            let length = text[start..]
                .windows(end.len())
                .skip(2)
                .position(|w| w == end);
            length.map_or(text.len(), |length| start + 2 + length + end.len())
        };
        match text.get(start + 1) {
            Some(b'/') => behind(b"\n"),
            Some(b'*') => behind(b"*/"),
            _ if start < self.no_regex || !begins_expression(&text[..start]) => start + 1,
            _ => end_of_regex(text, start).unwrap_or_else(|end| {
                self.no_regex = end;
                start + 1
            }),
        }
    }
}

/// Whether what follows is an operand, so that a slash there divides nothing.
fn begins_expression(before: &[u8]) -> bool {
    let before = before.trim_ascii_end();
    let words = [&b"return"[..], b"typeof", b"case"];
    before.is_empty()
        || before.ends_with(b"=>")
        || before.last().is_some_and(|b| b"(,=:;!&|?{[".contains(b))
        || words.iter().any(|word| before.ends_with(word))
}

/// Behind a regular expression, or, as the error, where the line ends that none ends in.
fn end_of_regex(text: &[u8], start: usize) -> Result<usize, usize> {
    let mut in_class = false;
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'\n' => return Err(at),
            b'\\' => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'/' if !in_class => return Ok(at + 1),
            _ => {}
        }
        at += 1;
    }
    Err(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_comments_and_regular_expressions_begin_no_string() {
        for (program, quote) in [
            ("f('X", Some(b'\'')),
            ("f('a\\'X", Some(b'\'')),
            ("f('a',X", None),
            ("f('//',X", None),
            ("f(/'/,X", None),
            ("f(/[/']/,X", None),
            ("f(/\\/'/,'X", Some(b'\'')),
            ("return /'/;X", None),
            ("a=>/'/;X", None),
            ("a/b+'/X", Some(b'\'')),
            ("(a)/'X", Some(b'\'')),
            // None that ends in its line.
            ("a=(/'X\n", Some(b'\'')),
            ("// don't\nX", None),
            ("/* don't */'X", Some(b'\'')),
            ("/*'*/X", None),
            ("/*/'*/X", None),
            ("/* don't X", None),
            ("// X", None),
            ("/X", None),
        ] {
            let place = program.find('X').unwrap_or_default();
            let found = Strings::default().around(program.as_bytes(), place);
            assert_eq!(found, quote, "{program}");
        }
    }
}
