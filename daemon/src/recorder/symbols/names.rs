//! Names of functions as people read them.

use std::fmt::Write;

/// Template arguments that are longer are left out: `WasmFullDecoder<…>`.
const LONGEST_ARGUMENTS: usize = 40;

/// Longer names are no names.
const LONGEST_MANGLED: usize = 8 << 10;

/// Few bytes of a lying name can demangle to gigabytes.
const LONGEST_DEMANGLED: usize = 64 << 10;

/// The name of a function without its parameters: `node::fs::InternalModuleStat`.
///
/// The compiler's copies of a function (`.cold`, `.part.0`) have its name. What is no mangled name stays as it is.
pub fn readable(symbol: &str) -> String {
    // A copy's suffix; a name of assembly code may begin with a dot.
    let base = match symbol.find('.') {
        Some(dot) if dot > 0 && symbol.starts_with("_Z") => &symbol[..dot],
        _ => symbol,
    };
    if base.len() > LONGEST_MANGLED {
        return symbol.to_owned();
    }
    // Rust's older form is a C++ name with a hash as its last component.
    if let Ok(name) = rustc_demangle::try_demangle(base) {
        return bounded(|out| write!(out, "{name:#}")).map_or_else(|| symbol.to_owned(), shorten);
    }
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type();
    nodeprof_probes::demangle_with(base.as_bytes(), options)
        .map_or_else(|| symbol.to_owned(), shorten)
}

/// What is written, unless it is too much.
fn bounded(write: impl FnOnce(&mut Bounded) -> std::fmt::Result) -> Option<String> {
    let mut out = Bounded(String::new());
    write(&mut out).ok()?;
    Some(out.0)
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        if self.0.len() + piece.len() > LONGEST_DEMANGLED {
            return Err(std::fmt::Error);
        }
        self.0.push_str(piece);
        Ok(())
    }
}

/// Leaves long template arguments out, and says `std::string`.
fn shorten(name: String) -> String {
    const STRING: &str =
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";
    let name = match name.contains("std::__cxx11::") {
        true => name
            .replace(STRING, "std::string")
            .replace("std::__cxx11::", "std::"),
        false => name,
    };
    if name.len() <= LONGEST_ARGUMENTS || !name.contains('<') {
        return name;
    }
    let mut out = String::with_capacity(name.len());
    // Where the arguments that are being read began, in `out`.
    let mut open: Vec<usize> = Vec::new();
    let mut rest = name.as_str();
    while let Some(c) = rest.chars().next() {
        // `operator<`, `operator>`, `->` and the like are no brackets.
        if rest.starts_with("operator") && !out.ends_with(|c: char| c.is_alphanumeric() || c == '_')
        {
            let symbols = rest["operator".len()..]
                .find(|c: char| !"<>=-".contains(c))
                .unwrap_or(rest.len() - "operator".len());
            // `operator<< <int>`: the brackets that follow a space are arguments.
            let (operator, tail) = rest.split_at("operator".len() + symbols);
            out.push_str(operator);
            rest = tail;
            continue;
        }
        rest = &rest[c.len_utf8()..];
        out.push(c);
        match c {
            '<' => open.push(out.len()),
            '>' if out.ends_with("->") => {}
            '>' => {
                if let Some(began) = open.pop()
                    && out.len() - 1 - began > LONGEST_ARGUMENTS
                {
                    out.truncate(began);
                    out.push_str("…>");
                }
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_parameters_and_short_template_arguments() {
        for (symbol, expected) in [
            (
                "_ZN4node2fsL18InternalModuleStatERKN2v820FunctionCallbackInfoINS1_5ValueEEE",
                "node::fs::InternalModuleStat",
            ),
            ("_ZN4node5StartEiPPc", "node::Start"),
            ("_ZN4node5StartEiPPc.cold", "node::Start"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            ("_ZN12_GLOBAL__N_11fEv", "(anonymous namespace)::f"),
            ("_ZlsRSoRKi", "operator<<"),
            ("_ZN1AcvbEv", "A::operator bool"),
            ("uv__io_poll", "uv__io_poll"),
            ("Builtins_ArrayMap", "Builtins_ArrayMap"),
            ("main", "main"),
            ("_ZNonsense", "_ZNonsense"),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
            ),
            ("", ""),
        ] {
            assert_eq!(readable(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn long_template_arguments_are_left_out() {
        let long = "a::B<some::very::long::type, with::another, and::a_third_one>";
        for (name, expected) in [
            (format!("{long}::f"), "a::B<…>::f".to_owned()),
            (
                format!("{long}::operator<<"),
                "a::B<…>::operator<<".to_owned(),
            ),
            (
                format!("{long}::operator->"),
                "a::B<…>::operator->".to_owned(),
            ),
            (format!("f<{long}>"), "f<a::B<…> >".replace(" >", ">")),
            (
                "v8::internal::ParserBase<v8::internal::PreParser>::ParseBlock".to_owned(),
                "v8::internal::ParserBase<v8::internal::PreParser>::ParseBlock".to_owned(),
            ),
        ] {
            assert_eq!(shorten(name.clone()), expected, "{name}");
        }
    }

    #[test]
    fn a_name_that_was_made_to_take_long_stays_as_it_is() {
        let name = format!("_Zcv{}iE{}iE", "T_I".repeat(55), "IEE".repeat(54));
        assert_eq!(readable(&name), name);
    }

    #[test]
    fn any_bytes_are_survived() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..20_000 {
            let mut name = String::from(if round % 2 == 0 { "_ZN" } else { "_R" });
            for _ in 0..round % 60 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let pick = b"IES0_NKLT1234abcvz9<>-. "[state as usize % 24];
                name.push(char::from(pick));
            }
            let _ = readable(&name);
            let _ = shorten(name.repeat(3));
        }
    }
}
