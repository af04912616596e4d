//! Hints: commands to type, that name what the user's own command was given.

use std::{fmt::Write as _, path::Path};

use nodeprof_profile::{groups::Selector, wording::is_unprintable};

use crate::{args::store::Store, terminal};

/// How another command is given the same recording, or run of the store, by a shell.
pub fn source(file: &Path, store: &Store) -> String {
    of(&file.to_string_lossy(), file, store)
}

/// The same of runs of a recording, of which commands that take no runs get the whole.
pub fn selected(selector: &Selector, store: &Store) -> String {
    of(&selector.to_string(), &selector.file, store)
}

fn of(run: &str, file: &Path, store: &Store) -> String {
    match (store.store, &store.store_path) {
        (false, _) => path(file),
        (true, None) => format!("--store {}", quoted(run)),
        (true, Some(at)) => format!("--store --store-path {} {}", path(at), quoted(run)),
    }
}

/// A word for a shell, as a terminal can show it.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "@%+=:,./-_".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.contains(is_unprintable) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut word = "$'".to_owned();
    for c in text.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            c if is_unprintable(c) => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    // Three digits always: what follows is none of them. Writing to a string does not fail.
                    let _ = write!(word, "\\{byte:03o}");
                }
            }
            c => word.push(c),
        }
    }
    word + "'"
}

/// A path as a shell takes it.
pub fn path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// A text in which hints name `source`: what makes reports and errors knows of no file, and has the word FILE there.
pub fn naming(text: &str, source: &str) -> String {
    const FILE: &str = "FILE";
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(FILE) {
        let (before, after) = (&rest[..at], &rest[at + FILE.len()..]);
        named.push_str(before);
        // Behind a command, which may be at the end of a line, and no part of a longer word.
        let mut words = named.split_whitespace().rev();
        let last = words.next();
        let of_command = words.next().is_some_and(|word| word.ends_with("nodeprof"))
            || last.is_some_and(|word| ["sqlite3", "-i", "-dc"].contains(&word));
        let is_word = named.ends_with(char::is_whitespace)
            && !after.starts_with(|c: char| c.is_alphanumeric() || "@_-".contains(c));
        named.push_str(match of_command && is_word {
            true => source,
            false => FILE,
        });
        rest = after;
    }
    named + rest
}

/// An error in which hints name `source`.
pub fn naming_in(error: &anyhow::Error, source: &str) -> anyhow::Error {
    anyhow::anyhow!(naming(&terminal::told_once(error), source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_for_a_shell_is_no_command_to_the_terminal() {
        for (text, word) in [
            ("a.nodeprof@base", "a.nodeprof@base"),
            ("", "''"),
            ("it's", r"'it'\''s'"),
            ("a\u{1b}[2J\n1'\\", r"$'a\033[2J\0121\'\\'"),
            ("a\u{9b}2J\u{202e}", r"$'a\302\2332J\342\200\256'"),
        ] {
            assert_eq!(quoted(text), word);
            assert!(!quoted(text).contains(is_unprintable));
        }
    }

    #[test]
    fn hints_name_what_was_given() {
        let store = Store {
            store: true,
            store_path: None,
        };
        let elsewhere = Store {
            store_path: Some("my starts.db".into()),
            ..store.clone()
        };
        for (file, from, named) in [
            ("a.nodeprof", Store::default(), "a.nodeprof"),
            ("it's.nodeprof", Store::default(), r"'it'\''s.nodeprof'"),
            ("4711", store, "--store 4711"),
            (
                "4711",
                elsewhere,
                "--store --store-path 'my starts.db' 4711",
            ),
        ] {
            assert_eq!(source(Path::new(file), &from), named);
        }
    }

    #[test]
    fn only_the_file_of_a_command_is_named() {
        for (text, named) in [
            (
                "to see: nodeprof flame FILE --of cpu",
                "to see: nodeprof flame a --of cpu --of cpu",
            ),
            (
                "type: nodeprof\n  blame FILE",
                "type: nodeprof\n  blame a --of cpu",
            ),
            ("sqlite3 FILE 'x'", "sqlite3 a --of cpu 'x'"),
            (
                "nodeprof report FILE@NAME, FILE and nodeprof diff BASE",
                "nodeprof report FILE@NAME, FILE and nodeprof diff BASE",
            ),
            ("/app/nodeprof blame FILES", "/app/nodeprof blame FILES"),
            ("MY_FILE", "MY_FILE"),
        ] {
            assert_eq!(naming(text, "a --of cpu"), named);
        }
    }
}
