//! Names that programs chose, made fit to print.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

pub(crate) use nodeprof_profile::wording::{is_unprintable, printable};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

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

/// Paths, each in at most so many columns, so that different ones look different where there is room: of those that would look alike, the
/// folders stay by which they differ.
pub(crate) fn shorten_all(paths: &[(&str, usize)]) -> Vec<String> {
    let mut out: Vec<String> = (paths.iter())
        .map(|(path, width)| shorten(path, *width))
        .collect();
    let mut alike: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, text) in out.iter().enumerate() {
        alike.entry(text).or_default().push(index);
    }
    let mut changes = Vec::new();
    for of in alike.values() {
        let (first, _) = paths[of[0]];
        if of.iter().any(|&index| paths[index].0 != first) {
            let of_these: Vec<(&str, usize)> = of.iter().map(|&index| paths[index]).collect();
            changes.extend(of.iter().copied().zip(apart(&of_these)));
        }
    }
    for (index, text) in changes {
        out[index] = text;
    }
    out
}

/// Paths that look alike if they are shortened one by one, so that they differ.
fn apart(paths: &[(&str, usize)]) -> Vec<String> {
    // By the end of a path: the folder before it, and whether others stand there, too.
    let mut before: HashMap<&str, (&str, bool)> = HashMap::new();
    for (path, _) in paths {
        for (folder, end) in ends(path).chain([("", *path)]) {
            let (seen, others) = before.entry(end).or_insert((folder, false));
            *others |= *seen != folder;
        }
    }
    let name = |path: &str| path.rfind('/').map_or(0, |at| at + 1);
    let names: Vec<&str> = paths.iter().map(|(path, _)| &path[name(path)..]).collect();
    let same = common_beginning(&names);
    let one = |(&(path, width), name): (&(&str, usize), &str)| {
        let rest = &name[same..];
        if columns(path) > width && columns(name) + 2 > width && same > 0 && !rest.is_empty() {
            let rest = cut_middle(rest, width.saturating_sub(1));
            return cut(&format!("…{rest}"), width).into_owned();
        }
        let telling: Vec<bool> = ends(path)
            .map(|(_, end)| before.get(end).is_some_and(|(_, others)| *others))
            .collect();
        with_folders(path, &telling, width).unwrap_or_else(|| shorten(path, width))
    };
    paths.iter().zip(names).map(one).collect()
}

/// The folders of a path, the last first, each with what is behind it.
fn ends(path: &str) -> impl Iterator<Item = (&str, &str)> {
    path.rmatch_indices('/').map(|(at, _)| {
        let before = &path[..at];
        let folder = before.rfind('/').map_or(0, |at| at + 1);
        (&before[folder..], &path[at + 1..])
    })
}

/// How many bytes at their beginning all have in common.
fn common_beginning(names: &[&str]) -> usize {
    let Some((first, others)) = names.split_first() else {
        return 0;
    };
    let of = |other: &&str| {
        let same = |((_, a), b): &((usize, char), char)| a == b;
        let mut pairs = first.char_indices().zip(other.chars());
        let alike = pairs.by_ref().take_while(same).last();
        alike.map_or(0, |((at, c), _)| at + c.len_utf8())
    };
    others.iter().map(of).min().unwrap_or(first.len())
}

/// A path with some of its folders, and the last ones as far as there is room. `telling`: whether a folder has to stay, the last first.
fn with_folders(path: &str, telling: &[bool], width: usize) -> Option<String> {
    if columns(path) <= width {
        return Some(path.to_owned());
    }
    let mut parts: Vec<Cow<'_, str>> = path.split('/').map(Cow::Borrowed).collect();
    let mut kept: Vec<bool> = telling.iter().rev().copied().chain([true]).collect();
    let count = telling.iter().filter(|telling| **telling).count();
    if count == 0 {
        return None;
    }
    let shown = |parts: &[Cow<'_, str>], kept: &[bool]| {
        let mut out = String::new();
        let mut left_out = false;
        for (index, (part, kept)) in parts.iter().zip(kept).enumerate() {
            if !kept && left_out {
                continue;
            }
            left_out = !kept;
            if index > 0 {
                out.push('/');
            }
            out.push_str(if *kept { part } else { "…" });
        }
        out
    };
    let least = columns(&shown(&parts, &kept));
    if least > width {
        let names = kept.len() - 1;
        let folders = (parts[..names].iter().zip(&kept)).filter(|(_, kept)| **kept);
        let of_folders: usize = folders.map(|(part, _)| columns(part)).sum();
        let each = width.checked_sub(least - of_folders)? / count;
        if each < 2 {
            return None;
        }
        for (part, _) in (parts[..names].iter_mut().zip(&kept)).filter(|(_, kept)| **kept) {
            *part = Cow::Owned(cut_middle(part, each).into_owned());
        }
    }
    let mut text = shown(&parts, &kept);
    while let Some(folder) = kept.iter().rposition(|kept| !kept) {
        kept[folder] = true;
        let longer = shown(&parts, &kept);
        if columns(&longer) > width {
            break;
        }
        text = longer;
    }
    Some(text)
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

    #[test]
    fn paths_that_would_look_alike_keep_the_folders_by_which_they_differ() {
        let of = |paths: &[&str], width: usize| {
            let paths: Vec<(&str, usize)> = paths.iter().map(|path| (*path, width)).collect();
            shorten_all(&paths)
        };
        let paths = [
            "./node_modules/alpha/node_modules/debug/src/node.js",
            "./node_modules/beta/node_modules/debug/src/node.js",
            "./node_modules/debug/src/node.js",
            "./node_modules/beta/node_modules/debug/src/index.js",
        ];
        assert_eq!(
            of(&paths, 28),
            [
                "…/alpha/…/debug/src/node.js",
                "…/beta/…/debug/src/node.js",
                "./…/debug/src/node.js",
                "./…/debug/src/index.js"
            ]
        );
        for width in 20..60 {
            let shown = of(&paths, width);
            let distinct: std::collections::BTreeSet<&String> = shown.iter().collect();
            assert_eq!(distinct.len(), paths.len(), "{width}: {shown:?}");
        }
        for width in 0..60 {
            assert!(of(&paths, width).iter().all(|path| columns(path) <= width));
        }
        // By two folders, of which there is room for a part only; and the same path twice is the same.
        let paths = [
            "/home/first-of-them/lib/wide-folder/index.js",
            "/home/first-of-them/lib/other-folder/index.js",
            "/home/second-of-all/lib/other-folder/index.js",
            "/home/second-of-all/lib/other-folder/index.js",
        ];
        let shown = of(&paths, 24);
        let folders = [
            "…/wide-folder",
            "…/firs…f-them/…",
            "…/seco…of-all/…",
            "…/seco…of-all/…",
        ];
        assert_eq!(shown, folders.map(|folder| format!("{folder}/index.js")));
        assert_eq!(
            of(&["callbacks.first.name", "callbacks.other.name"], 9),
            ["…fir…name", "…oth…name"]
        );
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
}
