//! From C++ symbols to the names a user knows: `node::fs::InternalModuleStat(…)` → binding `fs`, function `InternalModuleStat`.

use std::borrow::Cow;

use crate::plan::CallbackSort;

/// A mangled name without the suffixes GCC adds to clones (`.part.0`, `.constprop.0`, `.cold`).
pub(crate) fn split_clone(mangled: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'.', mangled) {
        Some(dot) if dot > 0 => mangled.split_at(dot),
        _ => (mangled, &[]),
    }
}

/// Bytes of a file as a text that people read. They may be anything: none of them reaches a terminal as a command to it.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(char::is_control, "·")
}

/// The longest name of node 26 has 2,300 bytes.
const LONGEST_MANGLED: usize = 8 << 10;

/// Few bytes of a lying name can demangle to gigabytes.
const LONGEST_DEMANGLED: usize = 64 << 10;

/// Demangled as `c++filt` writes it; `None` if it is no C++ name, for which one with control characters does not pass either.
///
/// Two forms differ, in names that the catalogue does not have: an empty parameter pack leaves `, &&` behind, and a function
/// as a template argument is written with its own arguments.
pub(crate) fn demangle(mangled: &[u8]) -> Option<String> {
    demangle_counted(mangled, &mut 0)
}

/// The same; adds to `read` what the parser may have read for it (see [`how_to_parse`]), whether or not it is a name.
pub(crate) fn demangle_counted(mangled: &[u8], read: &mut u64) -> Option<String> {
    let name = demangle_reading(mangled, cpp_demangle::DemangleOptions::new(), read)?;
    (!name.contains(char::is_control)).then_some(name)
}

/// The C++ name that a mangled one means, written with these options, but for the depth; `None` if it is none, or one that was made to take long.
pub fn demangle_with(mangled: &[u8], options: cpp_demangle::DemangleOptions) -> Option<String> {
    demangle_reading(mangled, options, &mut 0)
}

fn demangle_reading(
    mangled: &[u8],
    options: cpp_demangle::DemangleOptions,
    read: &mut u64,
) -> Option<String> {
    if mangled.len() > LONGEST_MANGLED {
        return None;
    }
    let mangled = &*without_declarations(mangled);
    let (depth, reads) = how_to_parse(mangled)?;
    // What is written has an end of its own.
    let options = options.recursion_limit(RECURSION);
    let (veiled, veils) = veiled(mangled);
    if veils > 0
        && let Some(veiled) = veiled
        && let Some(name) = {
            *read += reads;
            parse(&veiled, depth, options)
        }
        // Behind a `.` that stands for a parameter the parser may see what the compiler calls a copy of a function.
        && (!name.contains("[clone ") || mangled.contains(&b'.'))
    {
        return Some(unveiled(&name));
    }
    // Those functions themselves: `operator new`.
    if veils > MOST_VEILS {
        return None;
    }
    let reads = reads * READ_AGAIN_BY_VEILS.pow(veils);
    if reads > MOST_READ {
        return None;
    }
    *read += reads;
    parse(mangled, depth, options)
}

/// The name without the `Tn` that clang 18 and newer (Node 26) put before the type of a template's parameter that is no type, where that type depends on others: the parser does
/// not know it. The type stays, as an argument of its own, for what is substituted later counts it.
fn without_declarations(mangled: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memmem::find(mangled, b"Tn").is_none() {
        return Cow::Borrowed(mangled);
    }
    let mut out = Vec::with_capacity(mangled.len());
    let mut rest = mangled;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = match digits {
            0 if rest.starts_with(b"Tn") => {
                rest = rest.get(2..).unwrap_or_default();
                continue;
            }
            0 => 0,
            // Of a substitution, a parameter or an array (`S1_`), or a literal (`Li5E`): no identifier follows.
            _ if rest.get(digits) == Some(&b'_')
                || matches!(out.as_slice(), [.., b'L', kind] if kind.is_ascii_lowercase()) =>
            {
                digits
            }
            _ => {
                let number = std::str::from_utf8(rest.get(..digits).unwrap_or_default());
                let length = number.ok().and_then(|number| number.parse().ok());
                digits.saturating_add(length.unwrap_or(usize::MAX))
            }
        };
        if length == 0 {
            out.push(first);
            rest = behind;
            continue;
        }
        let (identifier, behind) = rest.split_at(length.min(rest.len()));
        out.extend_from_slice(identifier);
        rest = behind;
    }
    Cow::Owned(out)
}

fn parse(name: &[u8], depth: u32, options: cpp_demangle::DemangleOptions) -> Option<String> {
    let parsing = cpp_demangle::ParseOptions::default().recursion_limit(depth);
    let symbol = cpp_demangle::Symbol::new_with_options(name, &parsing).ok()?;
    let mut out = Bounded(String::new());
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(out.0)
}

/// How deep templates nest at most, in calls of the parser. The reducers of V8's turboshaft nest 163 deep.
const RECURSION: u32 = 192;
/// As deep as this it is parsed with any number of ambiguous pieces: most names nest some 20 deep.
const SHALLOW: u32 = 64;
/// Ambiguous pieces (see [`ambiguous`]) of a deep name. Those of node have 8.
const MOST_AMBIGUOUS: usize = 10;
/// The same of one that is not deep. One of node has 42, others have 21.
const MOST_AMBIGUOUS_IF_SHALLOW: usize = 48;

/// Bytes that the parser reads of a name at most, those that it reads again counted each time. Of node's own names the highest is 311,205. A
/// million takes 0.8 s and 90 MB.
const MOST_READ: u64 = 512 << 10;

/// How deep to parse a name, and how many bytes the parser may read of it; `None`: not at all.
///
/// The parser goes back: where it has found no way to read a piece of a name it tries another way, from the same place on. If there are several ways that
/// each read the rest again, a name of some hundred bytes takes longer than anybody lives. It cannot be told to give up, so the pieces where there are
/// several ways are counted beforehand: wherever they stand, even within the names of functions, for only the parser knows which bytes these are.
///
/// Each of them doubles how often what is behind it is read. More of them than a deep name may have do not fit into each other where it may not be deep.
fn how_to_parse(mangled: &[u8]) -> Option<(u32, u64)> {
    let (mut pieces, mut reads) = (0, 0);
    for at in 0..mangled.len() {
        pieces += ambiguous(mangled.get(at..).unwrap_or_default());
        reads += 1 << pieces.min(MOST_AMBIGUOUS);
    }
    if reads > MOST_READ {
        return None;
    }
    let converts = memchr::memmem::find(mangled, b"cv").is_some();
    let has_parameter = converts && has_arguments_of_a_parameter(mangled);
    match pieces {
        0..=MOST_AMBIGUOUS => Some((RECURSION, reads)),
        // Arguments of a template that is converted to are read twice at each level, which costs the least levels of all.
        ..=MOST_AMBIGUOUS_IF_SHALLOW if !has_parameter => Some((SHALLOW, reads)),
        _ => None,
    }
}

/// Whether a parameter of a template may have arguments itself: `T_I`, `T12_I`, `TL0__I`.
fn has_arguments_of_a_parameter(mangled: &[u8]) -> bool {
    memchr::memmem::find_iter(mangled, b"_I").any(|at| {
        let before = mangled.get(..at).unwrap_or_default();
        let mut before = before.iter().rev().skip_while(|byte| **byte == b'_');
        before.find(|byte| matches!(byte, b'T') || !matches!(byte, b'0'..=b'9' | b'A'..=b'Z'))
            == Some(&b'T')
    })
}

/// How many times a name that begins so may have to be read twice (in powers of two). Found by reading the parser, and by searching for rows of two and
/// three of all pieces of the language that take it long.
fn ambiguous(name: &[u8]) -> usize {
    match *name {
        // Conversions, members of dependent types, closures, elaborated types.
        [b'c', b'v', ..]
        | [b's', b'r', ..]
        | [b'U', b'l' | b't', ..]
        | [b'T', b's' | b'u' | b'e', ..] => 1,
        // Constructors that are inherited.
        [b'C' | b'D', b'I', ..] => 2,
        // `decltype` and other types of expressions, parameters in expressions, folds.
        [
            b'D',
            b't' | b'T' | b'O' | b'B' | b'U' | b'v' | b'w' | b'o',
            ..,
        ]
        | [b'f', b'l' | b'r' | b'L' | b'R' | b'p', ..] => 1,
        // Literals of a type that is no simple one: else a name may follow.
        [b'L', _, _, b'I', ..] => 1,
        [b'L', next, ..] => usize::from(!(next.is_ascii_lowercase() || next == b'_')),
        // What lies in `std`, where that is not the beginning of a word. Without its name it is a type, too.
        [b'S', b't', b'c', ..] | [b'S', b't', b'o', b'n', ..] | [b'S', b't', _, _, b'I', ..] => 1,
        [b'S', b't', next, ..] => usize::from(!next.is_ascii_lowercase()),
        // Arguments of a template that is named by a substitution or a parameter, or seems to be.
        [b'C' | b'D', b'0'..=b'9', b'I' | b'B', ..]
        | [b'S', b'a' | b'b' | b's' | b'i' | b'o' | b'd', b'I', ..]
        | [b'_', b'I', ..] => 1,
        _ => 0,
    }
}

/// `new` and `delete` in an expression, each for one and for many: the parser reads what follows each of them twice. No signature has any, but many
/// identifiers have these letters. In their place: letters that identifiers may have, and hardly do.
const VEILS: [([u8; 2], [u8; 2]); 4] = [
    (*b"nw", *b"n."),
    (*b"na", *b"n$"),
    (*b"dl", *b"d."),
    (*b"da", *b"d$"),
];

/// So many of them a name has at most that is parsed with them.
const MOST_VEILS: u32 = 4;
/// How often what follows each of them may be read.
const READ_AGAIN_BY_VEILS: u64 = 3;

/// The name with all of [`VEILS`], and how many these are; `None` if it has what stands for one.
fn veiled(mangled: &[u8]) -> (Option<Vec<u8>>, u32) {
    let mut veiled = mangled.to_vec();
    let mut count = 0;
    let mut is_ambiguous = false;
    for (pair, byte) in mangled.windows(2).zip(veiled.iter_mut().skip(1)) {
        is_ambiguous |= VEILS.iter().any(|(_, veil)| veil == pair);
        if let Some((_, veil)) = VEILS.iter().find(|(letters, _)| letters == pair) {
            *byte = veil[1];
            count += 1;
        }
    }
    ((!is_ambiguous).then_some(veiled), count)
}

/// Takes the veils off what a name was demangled to.
fn unveiled(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut previous = '\0';
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        let shown = match (previous, letter) {
            // An ellipsis is none.
            ('n', '.') if letters.peek() != Some(&'.') => 'w',
            ('d', '.') if letters.peek() != Some(&'.') => 'l',
            ('n' | 'd', '$') => 'a',
            _ => letter,
        };
        out.push(shown);
        previous = letter;
    }
    out
}

/// A string that refuses to grow without end.
struct Bounded(String);

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        if self.0.len() + piece.len() > LONGEST_DEMANGLED {
            return Err(std::fmt::Error);
        }
        self.0.push_str(piece);
        Ok(())
    }
}

/// The signature of a binding callback.
const FUNCTION_ARGUMENTS: &str = "(v8::FunctionCallbackInfo<v8::Value> const&)";

/// Functions that take a callback's argument but that V8 never calls: helpers of callbacks and of V8.
const HELPERS: [&str; 8] = [
    // A virtual function of requests that C++ calls itself.
    "::SetReturnValue(",
    "::GetCurrent(",
    "ConsoleCallArguments",
    "CheckTypes",
    "InvokeFunctionCallback",
    "InvokeAccessorGetterCallback",
    "error_and_abort_args",
    "::Validate",
];

/// Whether the demangled function is one that JavaScript calls, by its signature.
pub(crate) fn sort_of(demangled: &str) -> Option<CallbackSort> {
    if HELPERS.iter().any(|helper| demangled.contains(helper)) {
        return None;
    }
    if let Some(head) = demangled.strip_suffix(FUNCTION_ARGUMENTS) {
        // Only templates have a return type in their name; `int StreamBase::WriteString<…>` is called by a callback.
        let (returns, _) = split_return_type(head);
        return matches!(returns, "" | "void").then_some(CallbackSort::Function);
    }
    let (head, arguments) = split_arguments(demangled)?;
    let last = arguments.rsplit(", ").next().unwrap_or_default();
    let (returns, path) = split_return_type(head);
    if last.starts_with("v8::PropertyCallbackInfo<") && last.ends_with("> const&") {
        // `bool ShouldIntercept<…>` is called by callbacks.
        let is_callback = matches!(returns, "" | "void" | "v8::Intercepted");
        return is_callback.then_some(CallbackSort::Property);
    }
    let name = components(path).last().copied().unwrap_or_default();
    if name.starts_with("SetFast") || path.contains("CFunction") {
        return None;
    }
    let after_fast = name
        .strip_prefix("Fast")
        .and_then(|rest| rest.chars().next());
    let fast = path.starts_with("node::") && after_fast.is_some_and(|c| c.is_ascii_uppercase())
        || name.starts_with("Is") && name.ends_with("FastApi")
        || arguments.ends_with("v8::FastApiCallbackOptions&");
    fast.then_some(CallbackSort::Fast)
}

/// Binding and function of a demangled callback.
pub(crate) fn binding_and_function(demangled: &str) -> (String, String) {
    let head = split_arguments(demangled).map_or(demangled, |(head, _)| head);
    let (_, path) = split_return_type(head);
    let parts: Vec<&str> = components(path)
        .into_iter()
        .filter(|part| *part != "(anonymous namespace)")
        .collect();
    let shown = |parts: &[&str]| {
        let names: Vec<String> = parts.iter().map(|part| shorten(part)).collect();
        names.join("::")
    };
    match parts.as_slice() {
        ["node", function] => ("node".to_owned(), shorten(function)),
        // A namespace of node is a binding; so is `Buffer`, a namespace with a capital letter.
        ["node", first, rest @ ..] => (snake_case(first), shown(rest)),
        ["v8impl", rest @ ..] if !rest.is_empty() => ("napi".to_owned(), shown(rest)),
        ["v8", "internal", rest @ ..] | ["v8", rest @ ..] if !rest.is_empty() => {
            ("v8".to_owned(), shown(rest))
        }
        [first, rest @ ..] if !rest.is_empty() => (snake_case(first), shown(rest)),
        other => ("node".to_owned(), shown(other)),
    }
}

/// Splits `name(arguments)` (a `const` behind it is dropped) at the parenthesis that belongs to the arguments.
pub(crate) fn split_arguments(demangled: &str) -> Option<(&str, &str)> {
    let end = demangled.rfind(')')?;
    let mut depth = 0u32;
    for (index, byte) in demangled.as_bytes().iter().enumerate().take(end + 1).rev() {
        match byte {
            b')' => depth += 1,
            b'(' => {
                depth -= 1;
                if depth == 0 {
                    return Some((demangled.get(..index)?, demangled.get(index + 1..end)?));
                }
            }
            _ => {}
        }
    }
    None
}

/// Splits `void node::f<int>` at the last space outside brackets.
fn split_return_type(head: &str) -> (&str, &str) {
    let mut depth = 0i32;
    let mut split = None;
    for (index, byte) in head.bytes().enumerate() {
        match byte {
            b'<' | b'(' => depth += 1,
            b'>' | b')' => depth -= 1,
            b' ' if depth == 0 => split = Some(index),
            _ => {}
        }
    }
    match split {
        Some(space) => (
            head.get(..space).unwrap_or_default(),
            head.get(space + 1..).unwrap_or_default(),
        ),
        None => ("", head),
    }
}

/// Splits at the `::` outside brackets.
fn components(path: &str) -> Vec<&str> {
    split_outside_brackets(path, "::")
}

fn split_outside_brackets<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut depth = 0i32;
    let mut from = 0;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'(' => depth += 1,
            b'>' | b')' => depth -= 1,
            _ => {}
        }
        let here = text.get(index..).unwrap_or_default();
        if depth == 0 && index >= from && here.starts_with(separator) {
            parts.push(text.get(from..index).unwrap_or_default());
            from = index + separator.len();
        }
    }
    parts.push(text.get(from..).unwrap_or_default());
    parts
}

/// The last part of a template's arguments that says what it is: `WasiFunction<…, &node::wasi::WASI::FdRead, …>` → `WasiFunction<FdRead>`.
fn shorten(part: &str) -> String {
    let Some((name, arguments)) = part
        .split_once('<')
        .and_then(|(name, rest)| Some((name, rest.trim_end().strip_suffix('>')?)))
    else {
        return part.to_owned();
    };
    let arguments = split_outside_brackets(arguments, ", ");
    let functions: Vec<&str> = arguments
        .iter()
        .copied()
        .filter(|argument| argument.starts_with('&'))
        .collect();
    let kept = if functions.is_empty() {
        &arguments
    } else {
        &functions
    };
    let kept: Vec<String> = kept
        .iter()
        .map(|argument| short_argument(argument))
        .collect();
    format!("{name}<{}>", kept.join(", "))
}

/// `enum encoding` of node.h.
const ENCODINGS: [&str; 8] = [
    "ascii",
    "utf8",
    "base64",
    "ucs2",
    "latin1",
    "hex",
    "buffer",
    "base64url",
];

fn short_argument(argument: &str) -> String {
    if let Some(number) = argument.strip_prefix("(node::encoding)") {
        let encoding = number.parse().ok().and_then(|n: usize| ENCODINGS.get(n));
        return encoding.map_or_else(|| number.to_owned(), |name| (*name).to_owned());
    }
    // `&node::A::f`, which cpp_demangle writes as `&(node::A::f(int))`.
    let argument = argument.trim_start_matches('&');
    let argument = argument
        .strip_prefix('(')
        .and_then(|inner| inner.strip_suffix(')'))
        .unwrap_or(argument);
    let path = match split_arguments(argument) {
        Some((head, _)) if !head.is_empty() && !head.ends_with("::") => head,
        _ => argument,
    };
    let (_, path) = split_return_type(path);
    shorten(components(path).last().copied().unwrap_or(path))
}

/// `TCPWrap` → `tcp_wrap`, `ContextifyScript` → `contextify_script`, `fs` → `fs`.
fn snake_case(name: &str) -> String {
    let name = name.split('<').next().unwrap_or(name);
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::with_capacity(name.len() + 4);
    for (index, letter) in letters.iter().enumerate() {
        if letter.is_ascii_uppercase() {
            let before = index.checked_sub(1).and_then(|i| letters.get(i));
            let after = letters.get(index + 1);
            let word_starts = before.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
                || before.is_some_and(|b| b.is_ascii_uppercase())
                    && after.is_some_and(|a| a.is_ascii_lowercase());
            if word_starts {
                out.push('_');
            }
            out.push(letter.to_ascii_lowercase());
        } else {
            out.push(*letter);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_template_parameters_that_depend_on_others_are_read() {
        let mangled = b"_ZN4node17GetSockOrPeerNameINS_7TCPWrapETnPFiPKNT_10HandleTypeEP8sockaddrPiEXadL_Z18uv_tcp_getsocknameEEEEvRKN2v820FunctionCallbackInfoINSB_5ValueEEE";
        let before = b"_ZN4node17GetSockOrPeerNameINS_7TCPWrapEXadL_Z18uv_tcp_getsocknameEEEEvRKN2v820FunctionCallbackInfoINS2_5ValueEEE";
        let [new, old] = [&mangled[..], before].map(|name| {
            let name = demangle(name).unwrap();
            assert_eq!(sort_of(&name), Some(CallbackSort::Function), "{name}");
            binding_and_function(&name)
        });
        assert_eq!(new, old);
        // Not within identifiers, whatever number stands before.
        for name in [
            "_ZN4node5GetTnEv",
            "_ZN4node3TnTILi3EEEvv",
            "_ZN4node2TnIS1_EEvv",
        ] {
            assert_eq!(without_declarations(name.as_bytes()), name.as_bytes());
        }
        assert_eq!(
            *without_declarations(b"_ZN99999999999999999999999Tn"),
            *b"_ZN99999999999999999999999Tn"
        );
    }

    fn named(demangled: &str) -> (String, String) {
        binding_and_function(demangled)
    }

    fn is(demangled: &str, binding: &str, function: &str) {
        assert_eq!(named(demangled), (binding.to_owned(), function.to_owned()));
    }

    #[test]
    fn a_callback_is_named_by_its_namespace_or_class() {
        const INFO: &str = "(v8::FunctionCallbackInfo<v8::Value> const&)";
        is(
            &format!("node::fs::InternalModuleStat{INFO}"),
            "fs",
            "InternalModuleStat",
        );
        is(&format!("node::TCPWrap::New{INFO}"), "tcp_wrap", "New");
        is(
            &format!("node::contextify::ContextifyScript::New{INFO}"),
            "contextify",
            "ContextifyScript::New",
        );
        is(
            &format!("v8impl::(anonymous namespace)::FunctionCallbackWrapper::Invoke{INFO}"),
            "napi",
            "FunctionCallbackWrapper::Invoke",
        );
        is(
            &format!("v8::internal::GCExtension::GC{INFO}"),
            "v8",
            "GCExtension::GC",
        );
        is(
            &format!("node::GetParentProcessId{INFO}"),
            "node",
            "GetParentProcessId",
        );
        is(
            &format!(
                "void node::Buffer::(anonymous namespace)::StringSlice<(node::encoding)7>{INFO}"
            ),
            "buffer",
            "StringSlice<base64url>",
        );
    }

    #[test]
    fn templates_are_named_by_the_function_they_wrap() {
        is(
            "node::wasi::WASI::WasiFunction<unsigned int (*)(node::wasi::WASI&, node::wasi::WasmMemory), \
             &node::wasi::WASI::SchedYield, unsigned int>::FastCallback(v8::Local<v8::Object>, v8::FastApiCallbackOptions&)",
            "wasi",
            "WASI::WasiFunction<SchedYield>::FastCallback",
        );
        is(
            "void node::StreamBase::JSMethod<&(node::StreamBase::ReadStartJS(v8::FunctionCallbackInfo<v8::Value> const&))>\
             (v8::FunctionCallbackInfo<v8::Value> const&)",
            "stream_base",
            "JSMethod<ReadStartJS>",
        );
    }

    /// A name that takes no time, and its like that took longer than anybody waits.
    #[test]
    fn names_that_were_made_to_take_long_take_no_time() {
        let row = |head: &str, piece: &str, count| format!("{head}{}", piece.repeat(count));
        let conversion = format!("_Zcv{}iE{}iE", "T_I".repeat(55), "IEE".repeat(54));
        let mut all = vec![conversion, row("_ZcvT_I", "T_I", 30)];
        for (head, piece) in [
            ("_Z", "cvTs"),
            ("_Z", "Ul"),
            ("_Z", "UlZ"),
            ("_Z", "CI1"),
            ("_Z1AIX", "dl"),
            ("_Z1AIX", "nw"),
            ("_Z1AIX", "tedl"),
            ("_Z1AI1BE", "S0_I"),
            ("_Z1AI", "IS_"),
            ("_Z1AI", "fLplI"),
            ("_Z1A", "StI"),
            ("_Z1AI1BEv", "St1AI"),
            ("_Z", "StcvF"),
            ("_Z", "L1AI"),
            ("_Z1A", "ILpt"),
            ("_Z1A", "IC1B1A"),
            ("_Z1A", "AL"),
            ("_Z1A", "DtL"),
        ] {
            all.extend([8, 12, 24, 31, 60].map(|count| row(head, piece, count)));
        }
        let begin = std::time::Instant::now();
        for name in all {
            let _ = demangle(name.as_bytes());
        }
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    }

    #[test]
    fn a_long_name_with_ambiguous_pieces_is_not_read_a_thousand_times() {
        let read = |pieces: &str, rest| {
            let name = format!("_Z1Av{pieces}7FastApi{}", "iP".repeat(rest));
            let mut read = 0;
            assert_eq!(demangle_counted(name.as_bytes(), &mut read), None, "{name}");
            (read, name.len() as u64)
        };
        // It would take 7 s and 730 MB.
        assert_eq!(read(&"SaI".repeat(10), 4_000).0, 0);
        let (once, length) = read("", 4_000);
        assert_eq!(once, length);
        let (doubled, length) = read("SaI", 1_000);
        assert!(
            (2 * length - 10..2 * length).contains(&doubled),
            "{doubled}"
        );
        // Up to three times for each `new`, in the second of two attempts.
        let (twice, length) = read("nwnw", 100);
        assert_eq!(twice, length + 9 * length);
        let (once, length) = read("nwnwnwnw", 3_500);
        assert_eq!(once, length);
    }

    #[test]
    fn letters_that_mean_expressions_are_kept_within_identifiers() {
        for (mangled, name) in [
            ("_Z6HandleIiEvz", Some("void Handle<int>(...)")),
            ("_ZN4data7unwrapsEi", Some("data::unwraps(int)")),
            ("_ZN4data8dladanwnEz", Some("data::dladanwn(...)")),
            (
                "_Z5finalIJidEEvDpT_",
                Some("void final<int, double>(int, double)"),
            ),
            // Beside what stands for them.
            ("_ZN4data3n$xEv", Some("data::n$x()")),
            ("_Znwm", Some("operator new(unsigned long)")),
            // A double, a long.
            ("_ZN4node3fooEdli", Some("node::foo(double, long, int)")),
            ("_ZN6HandledaEPv", Some("Handle::operator delete[](void*)")),
            ("_Z3n$xv", Some("n$x()")),
        ] {
            let found = demangle(mangled.as_bytes());
            assert_eq!(found.as_deref(), name, "{mangled}");
        }
    }

    #[test]
    fn callbacks_are_told_from_their_helpers() {
        const INFO: &str = "(v8::FunctionCallbackInfo<v8::Value> const&)";
        assert_eq!(
            sort_of(&format!("node::fs::Open{INFO}")),
            Some(CallbackSort::Function)
        );
        assert_eq!(
            sort_of(&format!("node::Environment::GetCurrent{INFO}")),
            None
        );
        assert_eq!(
            sort_of(&format!(
                "int node::StreamBase::WriteString<(node::encoding)0>{INFO}"
            )),
            None
        );
        assert_eq!(
            sort_of("node::process::BindingData::FastHrtime(v8::Local<v8::Value>)"),
            Some(CallbackSort::Fast)
        );
        assert_eq!(sort_of("node::SetFastMethod(v8::Local<v8::Context>)"), None);
        assert_eq!(
            sort_of(
                "node::EnvGetter(v8::Local<v8::Name>, v8::PropertyCallbackInfo<v8::Value> const&)"
            ),
            Some(CallbackSort::Property)
        );
        let intercepts = "node::webstorage::ShouldIntercept<v8::Value>(v8::Local<v8::Name>, v8::PropertyCallbackInfo<v8::Value> const&)";
        assert_eq!(sort_of(&format!("bool {intercepts}")), None);
        let property = Some(CallbackSort::Property);
        assert_eq!(sort_of(&format!("void {intercepts}")), property);
        assert_eq!(sort_of(&format!("v8::Intercepted {intercepts}")), property);
    }
}
