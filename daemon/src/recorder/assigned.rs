//! Names of functions that V8 has none for any more, from what their source assigns them to.
//!
//! V8 infers a name for `Module._load = function(request) {…}` while it parses. From V8 12 on the built-in functions in Node's snapshot and code cache have lost
//! it (Node 22 to 26, a few before; `new Error().stack` looks the method up in the receiver instead): Node's loader would be a row of `(anonymous)`.

/// Characters before a function that are looked at: the longest target of an assignment in Node's own modules has some 60.
pub const LOOKED_AT: usize = 256;

/// What V8 calls a property whose name is computed.
const COMPUTED: &str = "<computed>";

/// The name that V8 would infer of a function that begins (at its parameters) behind `before`: that of the variable and the properties it is assigned
/// to, without `this` and `prototype`. `None` if it is not assigned to any there. Of what V8 looks at further out (another assignment before
/// it, the class or function around it) nothing is told.
pub fn assigned_name(before: &str) -> Option<String> {
    let rest = before.trim_end();
    let rest = rest.strip_suffix('*').unwrap_or(rest);
    let rest = without_word(rest, "function");
    let rest = without_word(rest, "async").strip_suffix('=')?;
    // `==`, `+=` and others end in something else.
    if !rest.ends_with(|c: char| c.is_whitespace() || c == ']' || is_part_of_name(c)) {
        return None;
    }
    let mut parts = target(rest)?;
    parts.retain(|part| !matches!(*part, "this" | "prototype"));
    (!parts.is_empty()).then(|| parts.join("."))
}

fn is_part_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '#')
}

/// What precedes a word, if it ends with it.
fn without_word<'a>(text: &'a str, word: &str) -> &'a str {
    let trimmed = text.trim_end();
    match trimmed.strip_suffix(word) {
        Some(rest) if !rest.ends_with(is_part_of_name) => rest.trim_end(),
        _ => trimmed,
    }
}

/// The parts of the expression that a text ends with, outermost first: `Module`, `prototype` and `load` of `Module.prototype.load`.
fn target(text: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    loop {
        if let Some(index) = rest.strip_suffix(']') {
            let (before, part) = indexed(index)?;
            parts.push(part);
            rest = before;
            continue;
        }
        let before = rest.trim_end_matches(is_part_of_name);
        parts.push(rest.get(before.len()..).filter(|name| !name.is_empty())?);
        match before.trim_end().strip_suffix('.') {
            // `f().x = …` begins with a value that has no name: nor is it `x` alone.
            Some(object) => rest = object.trim_end(),
            None => break,
        }
    }
    parts.reverse();
    Some(parts)
}

/// The part in brackets that a text without the last bracket ends with, and what precedes it: a string, or what a variable holds.
fn indexed(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_end();
    let quote = text.chars().next_back().filter(|c| matches!(c, '\'' | '"'));
    let (before, inner) = match quote {
        Some(quote) => text.strip_suffix(quote)?.rsplit_once(quote)?,
        None => {
            let before = text.trim_end_matches(is_part_of_name);
            (before, text.get(before.len()..)?)
        }
    };
    let object = before.trim_end().strip_suffix('[')?.trim_end();
    let part = if quote.is_some() { inner } else { COMPUTED };
    (!inner.is_empty()).then_some((object, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_v8_infers() {
        for (before, name) in [
            ("};\n\nModule._load = function", Some("Module._load")),
            ("Module.prototype.load = function", Some("Module.load")),
            (
                "Module._extensions['.js'] = function",
                Some("Module._extensions..js"),
            ),
            ("exports.a = async function", Some("exports.a")),
            ("exports.a =\n  function*", Some("exports.a")),
            ("exports.a = async ", Some("exports.a")),
            ("exports.b = ", Some("exports.b")),
            (
                "Stream.prototype[kOpen] = function",
                Some("Stream.<computed>"),
            ),
            ("this.close = function", Some("close")),
            ("  a . b [ \"c d\" ] = ", Some("a.b.c d")),
            ("this.#x = ", Some("#x")),
            ("exports.a = exports.b = function", Some("exports.b")),
        ] {
            assert_eq!(assigned_name(before).as_deref(), name, "{before}");
        }
    }

    #[test]
    fn functions_that_are_not_assigned_have_none() {
        for before in [
            "",
            "function",
            "call(function",
            "a.b = call(function",
            "a.b == ",
            "a.b += ",
            "x => ",
            "a.b = (function",
            "return function",
            "x: function",
            "= function",
            "f().x = function",
            "a[i + 1] = function",
            "a[1]['] = function",
            "] = function",
            "'] = function",
            "a.b = dysfunction",
            "this = function",
        ] {
            assert_eq!(assigned_name(before), None, "{before}");
        }
    }
}
