//! Names that programs chose, made fit to print.

use std::borrow::Cow;
use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Whether a character could move the cursor, hide or reorder what is printed, or is not allowed in XML.
pub(crate) fn is_unprintable(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Marks that change the direction of text, or take no room: a path could show as another.
        | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
}

/// The text with every unprintable character as an escape.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_unprintable(c) => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", c as u32);
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Columns that the text takes on a terminal.
pub(crate) fn columns(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// The longest beginning that takes at most `width` columns.
fn beginning(text: &str, width: usize) -> &str {
    let mut used = 0;
    let mut cut = text;
    for (at, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > width {
            cut = &text[..at];
            break;
        }
    }
    // Two characters may take more together than each alone: emoji of several.
    while columns(cut) > width {
        cut = cut
            .char_indices()
            .next_back()
            .map_or("", |(at, _)| &cut[..at]);
    }
    cut
}

/// The longest end that takes at most `width` columns.
fn end(text: &str, width: usize) -> &str {
    let mut used = 0;
    let mut cut = text;
    for (at, c) in text.char_indices().rev() {
        used += c.width().unwrap_or(0);
        if used > width {
            cut = &text[at + c.len_utf8()..];
            break;
        }
    }
    while columns(cut) > width {
        cut = cut.char_indices().nth(1).map_or("", |(at, _)| &cut[at..]);
    }
    cut
}

/// At most `width` columns, cut at the end.
pub(crate) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return Cow::Borrowed(text);
    }
    match width {
        0 => Cow::Borrowed(""),
        _ => Cow::Owned(format!("{}…", beginning(text, width - 1))),
    }
}

/// At most `width` columns, cut in the middle.
fn cut_middle(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return Cow::Borrowed(text);
    }
    if width < 3 {
        return cut(text, width);
    }
    let tail = end(text, (width - 1) * 2 / 3);
    let head = beginning(text, width - 1 - columns(tail));
    Cow::Owned(format!("{head}…{tail}"))
}

/// A path as seen from `directory`, without the `file://` of ES modules, printable.
pub(crate) fn seen_from(path: &str, directory: &str) -> String {
    let path = path
        .strip_prefix("file://")
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(path);
    let inside = path
        .strip_prefix(directory.trim_end_matches('/'))
        .and_then(|rest| rest.strip_prefix('/'));
    let path = match inside {
        Some(rest) if !rest.is_empty() && !directory.is_empty() => rest,
        _ => path,
    };
    printable(path).into_owned()
}

/// A path in at most `width` columns: folders in the middle go first, the file name last.
pub(crate) fn shorten(path: &str, width: usize) -> String {
    if columns(path) <= width {
        return path.to_owned();
    }
    // Where in the file system a node_modules lies says less than what is in it.
    if let Some(at) = path.find("/node_modules/") {
        let inside = format!("…{}", &path[at..]);
        if columns(&inside) <= width {
            return inside;
        }
    }
    let parts: Vec<&str> = path.split('/').collect();
    let Some((&name, folders)) = parts.split_last() else {
        return String::new();
    };
    // As many of the last folders as fit, behind the first one if that fits too.
    let head = match folders {
        ["", first, ..] => format!("/{first}/…"),
        [first, ..] => format!("{first}/…"),
        [] => String::new(),
    };
    for (head, least) in [(head.as_str(), 1), ("…", 0)] {
        let mut tail = format!("/{name}");
        let mut kept = 0;
        if columns(head) + columns(&tail) > width {
            continue;
        }
        for folder in folders.iter().rev() {
            let longer = format!("/{folder}{tail}");
            if columns(head) + columns(&longer) > width {
                break;
            }
            tail = longer;
            kept += 1;
        }
        // The folder that a file lies in tells more than the first of the path.
        if kept < least {
            continue;
        }
        if kept == 0
            && let Some(folder) = folders.last()
        {
            // Every package.json is called so: a part of its folder's name is better than none.
            let folder = end(folder, width - columns(head) - columns(&tail));
            return format!("{head}{folder}{tail}");
        }
        return format!("{head}{tail}");
    }
    cut_middle(name, width).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_stays_when_a_path_is_shortened() {
        let path = "/home/user/code/a-long-project-name/node_modules/express/node_modules/debug/src/index.js";
        assert_eq!(shorten(path, 100), path);
        assert_eq!(
            shorten(path, 60),
            "…/node_modules/express/node_modules/debug/src/index.js"
        );
        assert_eq!(shorten(path, 40), "/home/…/node_modules/debug/src/index.js");
        assert_eq!(shorten(path, 16), "…/src/index.js");
        assert_eq!(shorten(path, 12), "…rc/index.js");
        assert_eq!(shorten(path, 6), "in….js");
        let scoped = "node_modules/@scope/a-rather-long-package-name/package.json";
        assert_eq!(shorten(scoped, 28), "…g-package-name/package.json");
        for width in 0..100 {
            assert!(columns(&shorten(path, width)) <= width, "{width}");
        }
    }

    /// Together they take more columns than their characters do.
    #[test]
    fn texts_of_emoji_fit_where_they_are_cut() {
        let text = "a/⚠️❤️✔️⚠️❤️✔️⚠️❤️✔️⚠️❤️✔️/⚠️❤️✔️⚠️❤️✔️⚠️❤️✔️⚠️❤️✔️⚠️❤️✔️.js";
        for width in 0..80 {
            for cut in [cut(text, width).into_owned(), shorten(text, width)] {
                assert!(columns(&cut) <= width, "{width}: {cut}");
            }
        }
    }

    #[test]
    fn paths_are_seen_from_the_working_directory() {
        assert_eq!(seen_from("/srv/site/lib/a.js", "/srv/site"), "lib/a.js");
        assert_eq!(
            seen_from("/srv/siteplanning/a.js", "/srv/site"),
            "/srv/siteplanning/a.js"
        );
        assert_eq!(seen_from("file:///srv/site/a.mjs", "/srv/site/"), "a.mjs");
        assert_eq!(seen_from("/srv/site", "/srv/site"), "/srv/site");
        assert_eq!(seen_from("node:fs", "/"), "node:fs");
        assert_eq!(seen_from("/etc/x", ""), "/etc/x");
    }

    #[test]
    fn what_could_move_the_cursor_is_escaped() {
        assert_eq!(
            printable("a\u{1b}[31mb\nc\u{202e}d"),
            "a\\u{1b}[31mb\\nc\\u{202e}d"
        );
        assert_eq!(printable("žluťoučký 🦊"), "žluťoučký 🦊");
    }
}
