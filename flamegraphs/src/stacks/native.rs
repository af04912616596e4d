//! Names of C++ functions, as far as they tell functions apart at a glance.

/// A demangled name without arguments, template arguments and return type:
/// `v8::internal::(anonymous namespace)::Invoke(v8::internal::Isolate*, …)` is `v8::internal::Invoke`.
pub(super) fn short(name: &str) -> String {
    let mut out = String::with_capacity(name.len().min(80));
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("(anonymous namespace)::") {
            rest = after;
            continue;
        }
        // Brackets that are the name of an operator.
        if let Some(after) = rest.strip_prefix("operator")
            && !out.ends_with(|c: char| c.is_alphanumeric() || c == '_')
            && let Some(symbol) = operator(after)
        {
            out.push_str("operator");
            out.push_str(symbol);
            rest = &after[symbol.len()..];
            continue;
        }
        match c {
            '(' | '<' => match group(rest) {
                Some(end) => rest = &rest[end..],
                // No name of C++: better whole than wrong.
                None => return name.to_owned(),
            },
            c => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    // What is left of `… const`, `… [clone .cold]`, and a return type, which only templates have.
    let mut out = out.trim_end();
    while let Some(shorter) = ["const", "&", "volatile"]
        .iter()
        .find_map(|word| Some(out.strip_suffix(word)?.trim_end()))
        .filter(|shorter| !shorter.is_empty() && name.contains('('))
    {
        out = shorter;
    }
    if let Some(at) = out.find(" [") {
        out = out[..at].trim_end();
    }
    let is_operator = out.contains("operator ");
    match out.rsplit_once(' ') {
        Some((_, last)) if !is_operator && name.contains('(') => {
            last.trim_start_matches(['*', '&']).to_owned()
        }
        _ => out.to_owned(),
    }
}

/// The symbol after the word `operator`, if it has brackets.
fn operator(after: &str) -> Option<&'static str> {
    [
        "()", "<<=", "<<", "<=>", "<=", "<", ">>=", ">>", ">=", ">", "->*", "->",
    ]
    .into_iter()
    .find(|symbol| after.starts_with(symbol))
}

/// Where the group of brackets with which `text` begins is over.
fn group(text: &str) -> Option<usize> {
    let mut open = Vec::new();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '(' | '<' | '{' | '[' => open.push(c),
            // Of `->` and of `operator>`, which cannot be told from a bracket here, only the first is likely.
            '>' if before == '-' => {}
            ')' | '>' | '}' | ']' => {
                let begin = open.pop()?;
                if !matches!(
                    (begin, c),
                    ('(', ')') | ('<', '>') | ('{', '}') | ('[', ']')
                ) {
                    return None;
                }
                if open.is_empty() {
                    return Some(at + c.len_utf8());
                }
            }
            _ => {}
        }
        before = c;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn what_tells_functions_apart_is_kept() {
        for (name, expected) in [
            (
                "v8::internal::(anonymous namespace)::Invoke(v8::internal::Isolate*, v8::internal::(anonymous namespace)::InvokeParams const&)",
                "v8::internal::Invoke",
            ),
            ("node::Start(int, char**)", "node::Start"),
            (
                "v8::internal::MaybeHandle<v8::internal::Object> v8::internal::(anonymous namespace)::HandleApiCallHelper<false>(v8::internal::Isolate*, unsigned long*, int)",
                "v8::internal::HandleApiCallHelper",
            ),
            (
                "std::vector<int, std::allocator<int> >::operator[](unsigned long) const",
                "std::vector::operator[]",
            ),
            (
                "node::Run()::{lambda(int)#1}::operator()(int) const",
                "node::Run::{lambda#1}::operator()",
            ),
            ("operator new(unsigned long)", "operator new"),
            ("a::operator<(a::B const&, a::B const&)", "a::operator<"),
            ("v8::Local::operator->() const", "v8::Local::operator->"),
            ("node::Foo::Bar(int) [clone .cold]", "node::Foo::Bar"),
            ("char const* node::name<int>(int)", "node::name"),
            ("Builtins_ArrayMap", "Builtins_ArrayMap"),
            ("__libc_start_main", "__libc_start_main"),
            ("main", "main"),
            ("a(b", "a(b"),
            ("", ""),
        ] {
            assert_eq!(short(name), expected, "{name}");
        }
    }
}
