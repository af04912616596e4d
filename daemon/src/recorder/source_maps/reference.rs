//! Where a script says that its map is: the last `//# sourceMappingURL=…`, in its last lines. And what it says that it is: `//# sourceURL=…`.

use super::super::stacks::Source;
use super::reader::SourceFile;

/// Enough for the comment, and a licence or two behind it.
const TAIL: u64 = 4096;

/// What a script says of its map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A URL, as written.
    File(String),
    /// The map itself; `None` if its encoding is damaged.
    Inline(Option<Vec<u8>>),
    /// The map itself, but larger than any that is read.
    TooLarge,
}

/// Looks at the end of a script.
pub fn find(script: &mut SourceFile) -> Option<Reference> {
    let mut length = TAIL.min(script.size);
    let mut tail = script.tail(length)?;
    loop {
        match last_url(&tail) {
            Some(url) => return Some(reference(url)),
            None if length == script.size || !may_be_within_a_map(&tail) => return None,
            None if length >= super::LARGEST_MAP * 2 => return Some(Reference::TooLarge),
            None => {}
        }
        length = (length * 16).min(script.size).min(super::LARGEST_MAP * 2);
        tail = script.tail(length)?;
    }
}

/// What a script says whose text came with the records.
pub fn in_text(text: &Source) -> Option<Reference> {
    // Behind its map, which may be long, it may name itself.
    let tail = text.tail(usize::MAX);
    match last_url(tail.as_bytes()) {
        Some(url) => Some(reference(url)),
        None if text.is_whole() || !may_be_within_a_map(tail.as_bytes()) => None,
        None => Some(Reference::TooLarge),
    }
}

/// The name that a script gives itself, as code that is evaluated does (`//# sourceURL=webpack-internal:///./src/a.js`).
pub fn own_name(text: &Source) -> Option<String> {
    let url = |tail: String| {
        let url = String::from_utf8_lossy(last(tail.as_bytes(), b"sourceURL=")?).into_owned();
        (!url.contains(char::is_control)).then_some(url)
    };
    // Behind it there may be a map.
    url(text.tail(TAIL as usize)).or_else(|| url(text.tail(usize::MAX)))
}

/// Whether the text of a script may say that it has a map. Reads its end only.
pub fn names_a_map(script: &[u8]) -> bool {
    let tail = script.len().saturating_sub(TAIL as usize);
    let tail = script.get(tail..).unwrap_or_default();
    last_url(tail).is_some() || tail.len() < script.len() && may_be_within_a_map(tail)
}

/// The URL of the last comment, with either sign of the old and new form (`//@`, `/*# … */`).
fn last_url(text: &[u8]) -> Option<&[u8]> {
    last(text, b"sourceMappingURL=")
}

/// What the last comment of this name says.
fn last<'t>(text: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
    memchr::memmem::rfind_iter(text, name).find_map(|at| {
        let before = text.get(..at)?.trim_ascii_end();
        let block = before.ends_with(b"/*#") || before.ends_with(b"/*@");
        if !(block || before.ends_with(b"//#") || before.ends_with(b"//@")) {
            return None;
        }
        let url = text.get(at + name.len()..)?;
        let end = url
            .iter()
            .position(|b| b.is_ascii_whitespace() || matches!(b, b'"' | b'\'' | b'`' | b'\\'));
        if end.is_some_and(|end| !url[end].is_ascii_whitespace()) {
            // It stands in a string: of code that is evaluated later, if it is a comment at all.
            return None;
        }
        let url = url.get(..end.unwrap_or(url.len()))?;
        let url = match block {
            true => url.strip_suffix(b"*/").unwrap_or(url),
            false => url,
        };
        (!url.is_empty()).then_some(url)
    })
}

/// Whether the last line of the text may be the end of a `data:` URL that began before it. Code has brackets.
fn may_be_within_a_map(tail: &[u8]) -> bool {
    let line = tail.trim_ascii_end();
    let line = line.strip_suffix(b"*/").unwrap_or(line);
    !line.is_empty()
        && line
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"+/=%_.~!*-".contains(b))
}

fn reference(url: &[u8]) -> Reference {
    let Some(data) = url.strip_prefix(b"data:") else {
        return Reference::File(String::from_utf8_lossy(url).into_owned());
    };
    if data.len() as u64 > super::LARGEST_MAP * 2 {
        return Reference::TooLarge;
    }
    let Some(comma) = memchr::memchr(b',', data) else {
        return Reference::Inline(None);
    };
    let (kind, content) = (&data[..comma], &data[comma + 1..]);
    let decoded = super::super::sources::percent_decoded(content);
    Reference::Inline(match kind.ends_with(b";base64") {
        true => decoded.and_then(|text| base64_simd::forgiving_decode_to_vec(&text).ok()),
        false => decoded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_its_map_and_itself() {
        let map = format!(
            "//# sourceMappingURL=data:application/json;base64,{}",
            "e30g".repeat(4096)
        );
        let evaluated = format!(
            "f()\n//# sourceURL=[module]\n{map}\n//# sourceURL=webpack-internal:///é.js\n\n}}"
        );
        let units: Vec<u8> = evaluated
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        let latin1: Vec<u8> = evaluated.chars().map(|c| c as u8).collect();
        for (bytes, two_byte) in [(units, true), (latin1, false)] {
            let text = Source::of(bytes, two_byte);
            let own = own_name(&text);
            assert_eq!(own.as_deref(), Some("webpack-internal:///é.js"));
            let found = in_text(&text);
            let expected = "{} ".repeat(4096).into_bytes();
            assert_eq!(found, Some(Reference::Inline(Some(expected))));
        }
        // The name before its map.
        let other = format!("f()\n//# sourceURL=a.js\n{map}\n");
        assert_eq!(
            own_name(&Source::of(other.into_bytes(), false)).as_deref(),
            Some("a.js")
        );
        let none = Source::of(b"f('//# sourceURL=a.js')".to_vec(), false);
        assert_eq!((own_name(&none), in_text(&none)), (None, None));
        let control = Source::of(b"f()\n//# sourceURL=a\x1b[2J".to_vec(), false);
        assert_eq!(own_name(&control), None);
    }

    fn found(script: &str) -> Option<Reference> {
        let found = find(&mut SourceFile::of(script.as_bytes().to_vec()));
        assert!(names_a_map(script.as_bytes()) || found.is_none());
        found
    }

    fn file(url: &str) -> Option<Reference> {
        Some(Reference::File(url.into()))
    }

    #[test]
    fn the_last_comment_counts() {
        assert_eq!(
            found("a()\n//# sourceMappingURL=a.js.map\n"),
            file("a.js.map")
        );
        assert_eq!(
            found("a()\n//@ sourceMappingURL=a.js.map"),
            file("a.js.map")
        );
        assert_eq!(found("/*# sourceMappingURL=a%20b.map*/"), file("a%20b.map"));
        assert_eq!(
            found("/*# sourceMappingURL=a.map */\n/* MIT */"),
            file("a.map")
        );
        let two = "//# sourceMappingURL=one.map\nb()\n//# sourceMappingURL=two.map\n";
        assert_eq!(found(two), file("two.map"));
        // A string of a bundler's own code is no comment, nor what is in one.
        let evaluated = r#"eval("a()\n//# sourceMappingURL=data:application/json;base64,e30=\n//# sourceURL=x\n")"#;
        assert_eq!(found(evaluated), None);
        let after = "//# sourceMappingURL=one.map\n; \"//# sourceMappingURL=two.map\";\n";
        assert_eq!(found(after), file("one.map"));
        assert_eq!(found("x = 'sourceMappingURL=' + y"), None);
        assert_eq!(found("//# sourceMappingURL=\n"), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn a_map_in_the_script_itself_is_decoded() {
        let inline = |text: &str| Some(Reference::Inline(Some(text.into())));
        assert_eq!(
            found("//# sourceMappingURL=data:application/json;charset=utf-8;base64,e30="),
            inline("{}")
        );
        assert_eq!(
            found("//# sourceMappingURL=data:application/json,%7B%7D"),
            inline("{}")
        );
        for damaged in [
            "data:application/json;base64",
            "data:x;base64,!!!",
            "data:,%zz",
        ] {
            let script = format!("//# sourceMappingURL={damaged}");
            assert_eq!(found(&script), Some(Reference::Inline(None)), "{damaged}");
        }
    }

    #[test]
    fn a_map_that_begins_before_the_tail_is_found() {
        let map = "x".repeat(200_000);
        let encoded = base64_simd::STANDARD.encode_to_string(&map);
        let script = format!("a()\n//# sourceMappingURL=data:application/json;base64,{encoded}\n");
        assert_eq!(
            found(&script),
            Some(Reference::Inline(Some(map.into_bytes())))
        );
        // One long line of code is not read to its beginning.
        let code = format!("{}\n", "f();".repeat(100_000));
        let code_again = code.clone();
        let mut file = SourceFile::of(code.into_bytes());
        assert_eq!(find(&mut file), None);
        assert!(!names_a_map(code_again.as_bytes()));
        assert_eq!(file.bytes_read(), TAIL);
    }
}
