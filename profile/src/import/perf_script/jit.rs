//! Names that V8 gives its code in perf maps and jitdumps (`--perf-basic-prof`, `--perf-prof`).
//!
//! `TAG:MARK NAME SCRIPT:LINE:COLUMN`, written by `CodeEventLogger` in V8's `src/logging/log.cc`; the position is where the
//! function begins. The mark is `CodeKindToMarker`'s: `~` interpreted, `^` baseline, `+` Maglev (Turboprop in 9.x), `*`
//! TurboFan, the last two with a quote behind if the code is for one context; nothing for an interpreted function that is not to
//! be optimised.

use super::line::{number, split_last};
use crate::recording::Tier;

/// Code made at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code<'n> {
    /// A JavaScript function.
    JavaScript(Function<'n>),
    /// A builtin, a bytecode handler, a stub, a regular expression: by its name.
    Builtin(&'n [u8]),
}

/// A JavaScript function as its name tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'n> {
    /// Empty if it is anonymous.
    pub name: &'n [u8],
    /// Path, URL or `[eval]`.
    pub script: Option<&'n [u8]>,
    /// Where the function begins, from 1.
    pub line: Option<u32>,
    /// Where the function begins, from 1.
    pub column: Option<u32>,
    /// Which compiler made the code.
    pub tier: Tier,
    /// The body of a script itself.
    pub top_level: bool,
}

/// Tags of JavaScript functions, up to V8 10 by how they were compiled.
const FUNCTION_TAGS: [&[u8]; 9] = [
    b"JS",
    b"LazyCompile",
    b"Function",
    b"Eval",
    b"Script",
    b"InterpretedFunction",
    b"NativeFunction",
    b"NativeLazyCompile",
    b"NativeScript",
];

/// Tags of V8's own code.
const BUILTIN_TAGS: [&[u8]; 6] = [
    b"Builtin",
    b"BytecodeHandler",
    b"Handler",
    b"Stub",
    b"RegExp",
    b"Callback",
];

/// What a symbol of run-time code tells; `None` if V8 did not write it.
pub fn parse(symbol: &[u8]) -> Option<Code<'_>> {
    let colon = symbol.iter().position(|b| *b == b':')?;
    let (tag, rest) = (&symbol[..colon], &symbol[colon + 1..]);
    if BUILTIN_TAGS.contains(&tag) {
        let name = rest.trim_ascii();
        // A handler's name alone is that of a bytecode; a regular expression would be no name at all.
        return Some(Code::Builtin(if tag == b"Builtin" { name } else { symbol }));
    }
    if !FUNCTION_TAGS.contains(&tag) {
        return None;
    }
    let (tier, rest) = tier(rest);
    let (place, line, column) = position(rest);
    let (name, script) = name_and_script(place);
    let first = line == Some(1) && column.is_none_or(|column| column == 1);
    Some(Code::JavaScript(Function {
        name,
        script,
        line,
        column,
        tier,
        top_level: tag.ends_with(b"Script") || name.is_empty() && first,
    }))
}

fn tier(text: &[u8]) -> (Tier, &[u8]) {
    match text {
        [b'~', rest @ ..] => (Tier::Interpreted, rest),
        [b'^', rest @ ..] => (Tier::Baseline, rest),
        [b'*' | b'+', rest @ ..] => (Tier::Optimized, rest.strip_prefix(b"'").unwrap_or(rest)),
        _ => (Tier::Interpreted, text),
    }
}

/// What stands before `:LINE:COLUMN` (or `:LINE` alone), and those.
fn position(text: &[u8]) -> (&[u8], Option<u32>, Option<u32>) {
    let last = |text| split_last(text, b':').and_then(|(rest, n)| Some((rest, number::<u32>(n)?)));
    let Some((rest, second)) = last(text) else {
        return (text, None, None);
    };
    let counted = |n: u32| (n > 0).then_some(n);
    match last(rest) {
        Some((rest, first)) => (rest, counted(first), counted(second)),
        None => (rest, counted(second), None),
    }
}

/// Both can hold spaces: `get v /a b/c.js`, `GET /users /a.js`. A script begins with `/`, a scheme or `[`; without such a place the name
/// is the first word.
fn name_and_script(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let behind = |place: usize| &text[place + 1..];
    let slash = text.iter().rposition(|b| *b == b'/');
    let is_brackets = |place: usize| {
        slash < Some(place) && behind(place).starts_with(b"[") && text.ends_with(b"]")
    };
    let is_path = |rest: &[u8]| rest.starts_with(b"/") || has_scheme(rest);
    let is_evaluated = |rest: &[u8]| rest.starts_with(b"[") || rest.starts_with(b"evalmachine.");
    let spaces = || (0..text.len()).filter(|&place| text[place] == b' ');
    let is_anonymous = text.first() == Some(&b' ') && {
        let rest = behind(0);
        is_path(rest) || is_evaluated(rest)
    };
    // A folder's name ends in a blank less often than a function is called `GET /users`: the last place is the script's.
    let split = { is_anonymous.then_some(0) }
        // The text of a program can hold anything.
        .or_else(|| spaces().find(|&place| behind(place).starts_with(b"data:")))
        // `GET /users [eval]`
        .or_else(|| spaces().rfind(|&place| is_brackets(place)))
        .or_else(|| spaces().rfind(|&place| is_path(behind(place))))
        .or_else(|| spaces().rfind(|&place| is_evaluated(behind(place))))
        .or_else(|| spaces().next());
    match split {
        Some(place) => {
            let script = behind(place).trim_ascii();
            (&text[..place], Some(script).filter(|s| !s.is_empty()))
        }
        None => (text, None),
    }
}

/// Schemes that need no `//`; any other word before a colon may be of a path.
const SCHEMES: [&[u8]; 5] = [b"node", b"file", b"data", b"blob", b"webpack-internal"];

/// Whether it begins as a URL.
fn has_scheme(text: &[u8]) -> bool {
    let end = { text.iter() }.position(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(b)));
    end.is_some_and(|end| {
        let (scheme, rest) = text.split_at(end);
        rest.starts_with(b"://") || rest.starts_with(b":") && SCHEMES.contains(&scheme)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_their_names() {
        type Expected<'e> = (&'e str, &'e str, Option<u32>, Option<u32>, Tier, bool);
        use Tier::{Baseline, Interpreted, Optimized};
        let cases: &[(&str, Expected)] = &[
            (
                "JS:^compileForInternalLoader node:internal/bootstrap/realm:383:27",
                (
                    "compileForInternalLoader",
                    "node:internal/bootstrap/realm",
                    Some(383),
                    Some(27),
                    Baseline,
                    false,
                ),
            ),
            (
                "LazyCompile:~foo /path/file.js:1:2",
                ("foo", "/path/file.js", Some(1), Some(2), Interpreted, false),
            ),
            (
                "JS:*foo file:///a/b.mjs:3:4",
                ("foo", "file:///a/b.mjs", Some(3), Some(4), Optimized, false),
            ),
            (
                "JS:+'fib /a/my lib.js:1:27",
                ("fib", "/a/my lib.js", Some(1), Some(27), Optimized, false),
            ),
            (
                "JS:*'fib /a.js:1:27",
                ("fib", "/a.js", Some(1), Some(27), Optimized, false),
            ),
            (
                "JS:^get v /a b/c.js:2:67",
                ("get v", "/a b/c.js", Some(2), Some(67), Baseline, false),
            ),
            (
                "JS:~ /a/c.js:1:1",
                ("", "/a/c.js", Some(1), Some(1), Interpreted, true),
            ),
            (
                "JS:~ node:internal/main/worker_thread:90:20",
                (
                    "",
                    "node:internal/main/worker_thread",
                    Some(90),
                    Some(20),
                    Interpreted,
                    false,
                ),
            ),
            (
                "JS:~ /a /c [d].js:1:1",
                ("", "/a /c [d].js", Some(1), Some(1), Interpreted, true),
            ),
            // Functions with any text as their key.
            (
                "JS:^GET /api/users /app/a.js:2:40",
                (
                    "GET /api/users",
                    "/app/a.js",
                    Some(2),
                    Some(40),
                    Baseline,
                    false,
                ),
            ),
            (
                "JS:^get /x /app/a b.js:3:68",
                ("get /x", "/app/a b.js", Some(3), Some(68), Baseline, false),
            ),
            (
                "JS:~get [a] file:///app/[b] c.mjs:3:68",
                (
                    "get [a]",
                    "file:///app/[b] c.mjs",
                    Some(3),
                    Some(68),
                    Interpreted,
                    false,
                ),
            ),
            (
                "JS:~get [Symbol.toStringTag] node:internal/url:9:8",
                (
                    "get [Symbol.toStringTag]",
                    "node:internal/url",
                    Some(9),
                    Some(8),
                    Interpreted,
                    false,
                ),
            ),
            (
                "JS:~GET /users [eval]:1:9",
                ("GET /users", "[eval]", Some(1), Some(9), Interpreted, false),
            ),
            (
                "JS:~get [a] [worker eval]:1:9",
                (
                    "get [a]",
                    "[worker eval]",
                    Some(1),
                    Some(9),
                    Interpreted,
                    false,
                ),
            ),
            (
                "JS:~f /srv/b: c/[d] e.js:1:9",
                (
                    "f",
                    "/srv/b: c/[d] e.js",
                    Some(1),
                    Some(9),
                    Interpreted,
                    false,
                ),
            ),
            (
                "JS:~f /srv/my proj:v2/a.js:1:1",
                (
                    "f",
                    "/srv/my proj:v2/a.js",
                    Some(1),
                    Some(1),
                    Interpreted,
                    false,
                ),
            ),
            (
                "JS:~f data:text/javascript,f() /* a [b] */ /c:1:9",
                (
                    "f",
                    "data:text/javascript,f() /* a [b] */ /c",
                    Some(1),
                    Some(9),
                    Interpreted,
                    false,
                ),
            ),
            (
                "Script:~ [worker eval]:1:1",
                ("", "[worker eval]", Some(1), Some(1), Interpreted, true),
            ),
            (
                "Eval:~ evalmachine.<anonymous>:1:1",
                (
                    "",
                    "evalmachine.<anonymous>",
                    Some(1),
                    Some(1),
                    Interpreted,
                    true,
                ),
            ),
            (
                "Function:^foo bar.js:12",
                ("foo", "bar.js", Some(12), None, Baseline, false),
            ),
            (
                "JS:foo /a.js:1:2",
                ("foo", "/a.js", Some(1), Some(2), Interpreted, false),
            ),
            ("JS:*foo", ("foo", "-", None, None, Optimized, false)),
        ];
        for (symbol, expected) in cases {
            let Some(Code::JavaScript(f)) = parse(symbol.as_bytes()) else {
                panic!("{symbol}");
            };
            let text = |bytes| std::str::from_utf8(bytes).unwrap();
            let script = f.script.map_or("-", text);
            assert_eq!(
                (text(f.name), script, f.line, f.column, f.tier, f.top_level),
                *expected,
                "{symbol}"
            );
        }
    }

    #[test]
    fn code_of_v8_itself_keeps_its_name() {
        assert_eq!(parse(b"Builtin:ArrayMap"), Some(Code::Builtin(b"ArrayMap")));
        let handler = b"BytecodeHandler:Ldar";
        assert_eq!(parse(handler), Some(Code::Builtin(handler)));
        let expression = b"RegExp:a:1:2 b";
        assert_eq!(parse(expression), Some(Code::Builtin(expression)));
        for other in ["main", "wasm-function[1]", "std::map<int>::at", "LLVM:x"] {
            assert_eq!(parse(other.as_bytes()), None, "{other}");
        }
    }
}
