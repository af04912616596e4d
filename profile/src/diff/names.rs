//! The same file under two names: another root folder, another version, another content hash, another place in a
//! `node_modules`.
//!
//! Names are compared at three levels, the most exact first: as seen from the root of the program ([`Roots`]); without
//! versions, hashes and stores ([`generic`]); only within its package ([`within_package`]). A name that both sides have at a
//! level is matched there; only names without a partner go on to the next ([`Matching`]). So what is exact stays exact: two
//! chunks that differ by their hash are one only if neither has a partner of its own name.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Where the program of one run lies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Its main script, absolute; `None` if there is none, or it is not known.
    pub main: Option<String>,
    /// Its working directory.
    pub directory: String,
}

/// What paths of one run are seen from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    /// Folders without a slash at the end, and what stands for each; longest first.
    folders: Vec<(String, &'static str)>,
    /// Paths in folders above the root are seen from it, too, but for those in the so many folders that have one name for all runs;
    /// `None`: none are, all runs have one root.
    above: Option<usize>,
}

/// Stands for the program's root.
const ROOT: &str = ".";
/// Stands for the working directory, where the program lies elsewhere.
const DIRECTORY: &str = "(working directory)";

impl Roots {
    /// The roots of several runs, so that the same file has the same name in all of them. The root is what is left of the
    /// main scripts' paths without the end that all have in common. Where these are alike it is the working directory: that of each
    /// run, or, if the script lies in one of them, that one for all. A tool is the same in two projects, a program's own script is
    /// the same program, wherever it is started.
    pub fn of(origins: &[Origin]) -> Vec<Roots> {
        let mains: Option<Vec<Vec<&str>>> = origins
            .iter()
            .map(|origin| Some(origin.main.as_deref()?.split('/').collect()))
            .collect();
        let mains_differ = mains.as_ref().is_some_and(|mains| {
            let first = mains.first();
            mains.iter().any(|main| Some(main) != first)
        });
        let directories: Vec<&str> = (origins.iter())
            .map(|origin| origin.directory.trim_end_matches('/'))
            .collect();
        let same_directory = directories.windows(2).all(|pair| pair[0] == pair[1]);
        if !mains_differ
            && !same_directory
            && let Some(root) = directory_of_main(origins, &directories)
        {
            let roots = Roots {
                folders: vec![(root.to_owned(), ROOT)],
                above: None,
            };
            return vec![roots; origins.len()];
        }
        let common = mains.as_ref().map_or(0, |mains| common_end(mains));
        let above = match (mains_differ, same_directory) {
            (true, _) => Some(0),
            (false, true) => None,
            (false, false) => Some(common_folders(&directories)),
        };
        // Of scripts with different names the folder.
        let root_of =
            |main: &Vec<&str>| main[..main.len() - common.max(1).min(main.len())].join("/");
        let roots: Vec<String> = match mains.filter(|_| mains_differ) {
            Some(mains) => mains.iter().map(root_of).collect(),
            None => directories.iter().map(|&text| text.to_owned()).collect(),
        };
        // Where in the program each was started.
        let started: Vec<Option<&str>> = (directories.iter().zip(&roots))
            .map(|(directory, root)| inside(directory, root).filter(|_| !root.is_empty()))
            .collect();
        let started_alike = started.windows(2).all(|pair| pair[0] == pair[1]);
        (roots.iter().zip(&directories).zip(&started))
            .map(|((root, &directory), started)| {
                let mut folders = vec![(root.clone(), ROOT)];
                // A folder of the program that only one was started in is called as those call it that were not.
                let own = started.is_none() || started_alike;
                if !same_directory && directory != root && own {
                    folders.push((directory.to_owned(), DIRECTORY));
                }
                // A root of "/" would make every path a part of the program.
                folders.retain(|(folder, _)| !folder.is_empty());
                folders.sort_by_key(|(folder, _)| std::cmp::Reverse(folder.len()));
                Roots { folders, above }
            })
            .collect()
    }

    /// A path as seen from the root: `./lib/a.js`, `../node_modules/b/c.js`, `.` for the root itself; unchanged where it lies elsewhere.
    pub fn rooted(&self, path: &str) -> String {
        let path = path
            .strip_prefix("file://")
            .filter(|rest| rest.starts_with('/'))
            .unwrap_or(path);
        if !path.starts_with('/') {
            return path.to_owned();
        }
        for (folder, mark) in &self.folders {
            if let Some(rest) = inside(path, folder) {
                return format!("{mark}{rest}");
            }
        }
        let root = self.folders.iter().find(|(_, mark)| *mark == ROOT);
        match (root, self.above) {
            (Some((root, _)), Some(shared)) => {
                from_below(path, root, shared).unwrap_or_else(|| path.to_owned())
            }
            _ => path.to_owned(),
        }
    }
}

/// The first working directory that the main script of all runs lies in.
fn directory_of_main<'a>(origins: &[Origin], directories: &[&'a str]) -> Option<&'a str> {
    let main = origins.first()?.main.as_deref()?;
    let same = |origin: &Origin| origin.main.as_deref() == Some(main);
    let holds = |directory: &&&str| !directory.is_empty() && inside(main, directory).is_some();
    let found = directories.iter().find(holds).copied();
    found.filter(|_| origins.iter().all(same))
}

/// What follows a folder in the path of something in it, from the slash on; empty for the folder itself.
fn inside<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// How many parts at the beginning of their paths folders have in common; 0 if all lie as deep, so that each sees them as the others do.
fn common_folders(folders: &[&str]) -> usize {
    let folders: Vec<Vec<&str>> = (folders.iter())
        .map(|folder| folder.split('/').collect())
        .collect();
    let Some((first, others)) = folders.split_first() else {
        return 0;
    };
    if others.iter().all(|other| other.len() == first.len()) {
        return 0;
    }
    (0..first.len())
        .take_while(|&at| (others.iter()).all(|other| other.get(at) == Some(&first[at])))
        .count()
}

/// How many parts at the end all have in common; the first of a path is not one of them.
fn common_end(paths: &[Vec<&str>]) -> usize {
    let Some((first, others)) = paths.split_first() else {
        return 0;
    };
    let most = paths.iter().map(|path| path.len() - 1).min().unwrap_or(0);
    let part = |path: &[&str], back: usize| path[path.len() - 1 - back].to_owned();
    (0..most)
        .take_while(|&back| (others.iter()).all(|path| part(path, back) == part(first, back)))
        .count()
}

/// A path in a folder above the root, or in its `node_modules`: where Node looks for packages on its way up. What lies in the folders that
/// all roots share has one path in all runs, which is its name.
fn from_below(path: &str, root: &str, shared: usize) -> Option<String> {
    let path: Vec<&str> = path.split('/').collect();
    let root: Vec<&str> = root.split('/').collect();
    let common = (path.iter().zip(&root)).take_while(|(a, b)| a == b).count();
    let rest = &path[common..];
    let on_the_way = rest.len() == 1 || rest.first() == Some(&"node_modules");
    (on_the_way && common > shared)
        .then(|| format!("{}{}", "../".repeat(root.len() - common), rest.join("/")))
}

/// A name without what changes from version to version and from build to build: versions, content hashes, process ids, and the
/// folders that package managers put packages of one version in.
pub fn generic(name: &str) -> String {
    let parts: Vec<&str> = name.split('/').collect();
    let mut out: Vec<String> = Vec::with_capacity(parts.len());
    let mut at = 0;
    while let Some(&part) = parts.get(at) {
        if let Some(end) = store(&parts, at) {
            at = end;
            continue;
        }
        let after_proc = at > 0 && matches!(parts[at - 1], "proc" | "task");
        out.push(match part {
            _ if after_proc && part.bytes().all(|b| b.is_ascii_digit()) => "*".to_owned(),
            _ => generic_part(part, at + 1 == parts.len()),
        });
        at += 1;
    }
    out.join("/")
}

/// Where the name goes on behind a package manager's store that begins at `at`: `.pnpm/express@4.1.0/node_modules` inside of a
/// `node_modules`, `.yarn/cache/express-npm-4.1.0-4ffec2.zip` before one.
fn store(parts: &[&str], at: usize) -> Option<usize> {
    let holds = |at: usize| parts.get(at) == Some(&"node_modules") && at + 1 < parts.len();
    match *parts.get(at)? {
        ".pnpm" | ".store" if at > 0 && parts[at - 1] == "node_modules" => {
            holds(at + 2).then_some(at + 3)
        }
        ".yarn" => match *parts.get(at + 1)? {
            "cache" | "unplugged" => holds(at + 3).then_some(at + 3),
            _ => None,
        },
        _ => None,
    }
}

/// One folder or file name.
fn generic_part(part: &str, is_file: bool) -> String {
    let part = without_versions(part);
    // Letters and digits between separators are looked at one by one; the last ending is no hash.
    let stem = match is_file {
        true => part.rfind('.').filter(|at| *at > 0).unwrap_or(part.len()),
        false => part.len(),
    };
    let (stem, ending) = part.split_at(stem);
    let mut out = String::with_capacity(part.len());
    let is_separator = |c: char| matches!(c, '.' | '-' | '_' | '~' | '+' | '@');
    let mut rest = stem;
    let mut first = true;
    while !rest.is_empty() {
        let end = rest.find(is_separator).unwrap_or(rest.len());
        let (token, tail) = rest.split_at(end);
        let last = tail.is_empty() && is_file && !first;
        out.push_str(if is_hash(token, last) { "*" } else { token });
        let separator = tail.chars().next().map_or(0, char::len_utf8);
        out.push_str(&tail[..separator]);
        rest = &tail[separator..];
        first = false;
    }
    out.push_str(ending);
    out
}

/// `express@4.18.2` as `express@*`, `node-v20.1.0-linux-x64` as `node-v*-linux-x64`.
fn without_versions(part: &str) -> String {
    let bytes = part.as_bytes();
    let mut out = String::with_capacity(part.len());
    let mut at = 0;
    while at < bytes.len() {
        let before = at.checked_sub(1).map(|at| bytes[at]);
        let begins = before.is_none_or(|b| !b.is_ascii_alphanumeric() && b != b'.')
            || before == Some(b'v') && (at < 2 || !bytes[at - 2].is_ascii_alphanumeric());
        match version(&part[at..]).filter(|_| begins && bytes[at].is_ascii_digit()) {
            Some(length) => {
                out.push('*');
                at += length;
            }
            None => {
                let length = part[at..].chars().next().map_or(1, char::len_utf8);
                out.push_str(&part[at..at + length]);
                at += length;
            }
        }
    }
    out
}

/// Length of the version that a text begins with: three numbers, and a pre-release if it is called as such.
fn version(text: &str) -> Option<usize> {
    let mut at = 0;
    for position in 0..3 {
        let digits = (text[at..].bytes()).take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        at += digits;
        if position < 2 {
            at += text[at..].starts_with('.').then_some(1)?;
        }
    }
    const EARLY: [&str; 10] = [
        "alpha",
        "beta",
        "canary",
        "dev",
        "experimental",
        "next",
        "nightly",
        "pre",
        "preview",
        "rc",
    ];
    let rest = text[at..].strip_prefix('-').unwrap_or_default();
    if EARLY.iter().any(|word| rest.starts_with(word)) {
        let word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
        at += 1 + rest.bytes().take_while(word).count();
        // The last point is that of the file's ending.
        if let Some(point) = text[..at].rfind('.')
            && text[point + 1..at].bytes().all(|b| b.is_ascii_alphabetic())
            && at == text.len()
        {
            at = point;
        }
    }
    let ends = text[at..].chars().next();
    ends.is_none_or(|c| !c.is_alphanumeric()).then_some(at)
}

/// Whether a token was made from content, or at random: it mixes letters and digits as no word does. `last`: it stands where bundlers
/// put hashes, at the end of a file's name behind a separator.
fn is_hash(token: &str, last: bool) -> bool {
    if token.len() < 6 || !token.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return false;
    }
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    let upper = token.bytes().filter(u8::is_ascii_uppercase).count();
    let letters = token.len() - digits;
    let class = |b: u8| match b {
        b'0'..=b'9' => 0,
        b'A'..=b'Z' => 1,
        _ => 2,
    };
    let bytes = token.as_bytes();
    let turns = (bytes.windows(2))
        .filter(|pair| class(pair[0]) != class(pair[1]))
        .count();
    let hexadecimal = upper == 0 && token.bytes().all(|b| b.is_ascii_hexdigit());
    match (digits, letters) {
        // A moment or a large number.
        (_, 0) => token.len() >= 8,
        (1.., _) if hexadecimal => true,
        // esbuild: eight of A–Z and 2–7.
        (1.., _) if upper == letters => token.len() >= 8,
        (1.., _) => token.len() >= 8 && turns >= if upper > 0 { 3 } else { 4 },
        _ => last && token.len() == 8 && (upper == 8 || upper > 0 && turns >= 3),
    }
}

/// A generic name from its last package on: a package that moved to another `node_modules` is the same. `None` outside of any.
pub fn within_package(generic: &str) -> Option<&str> {
    let at = generic.rfind("node_modules/")?;
    let inside = at == 0 || generic.as_bytes()[at - 1] == b'/';
    inside.then(|| &generic[at..])
}

/// Which names of two sides mean the same.
#[derive(Clone, Debug, Default)]
pub struct Matching {
    /// By rooted name: the common name, for those that have another.
    common: HashMap<String, Arc<str>>,
}

impl Matching {
    /// Matches the rooted names of two sides.
    pub fn new<'a>(
        base: impl IntoIterator<Item = &'a str>,
        head: impl IntoIterator<Item = &'a str>,
    ) -> Matching {
        // Sorted, so that nothing depends on an order of hashes.
        let base: BTreeSet<&str> = base.into_iter().collect();
        let head: BTreeSet<&str> = head.into_iter().collect();
        let alone = |of: &BTreeSet<&'a str>, other: &BTreeSet<&str>| -> Vec<(&'a str, String)> {
            let alone = of.iter().filter(|name| !other.contains(*name));
            alone.map(|name| (*name, generic(name))).collect()
        };
        let mut base_left = alone(&base, &head);
        let mut head_left = alone(&head, &base);
        let mut common = HashMap::new();
        let levels: [fn(&str) -> Option<&str>; 2] = [|name| Some(name), within_package];
        for level in levels {
            let keys = |side: &[(&str, String)]| -> HashSet<String> {
                let keys = side.iter().filter_map(|(_, generic)| level(generic));
                keys.map(str::to_owned).collect()
            };
            let (of_base, of_head) = (keys(&base_left), keys(&head_left));
            for side in [&mut base_left, &mut head_left] {
                side.retain(|(name, generic)| {
                    let key = level(generic);
                    match key.filter(|key| of_base.contains(*key) && of_head.contains(*key)) {
                        Some(key) => {
                            common.insert((*name).to_owned(), Arc::from(key));
                            false
                        }
                        None => true,
                    }
                });
            }
        }
        Matching { common }
    }

    /// The name that a rooted name has in both sides; itself where it is the same in both, or only in one.
    pub fn name<'a>(&'a self, rooted: &'a str) -> &'a str {
        self.common.get(rooted).map_or(rooted, |common| common)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn origin(main: &str, directory: &str) -> Origin {
        Origin {
            main: (!main.is_empty()).then(|| main.to_owned()),
            directory: directory.to_owned(),
        }
    }

    fn roots(base: (&str, &str), head: (&str, &str)) -> (Roots, Roots) {
        let mut of = Roots::of(&[origin(base.0, base.1), origin(head.0, head.1)]).into_iter();
        (of.next().unwrap(), of.next().unwrap())
    }

    #[test]
    fn the_root_is_what_main_scripts_do_not_have_in_common() {
        let (base, head) = roots(
            ("/builds/v1/src/app.js", "/builds"),
            ("/srv/new/src/app.js", "/builds"),
        );
        assert_eq!(base.rooted("/builds/v1/lib/a.js"), "./lib/a.js");
        assert_eq!(head.rooted("file:///srv/new/lib/a.js"), "./lib/a.js");
        // What lies on the way up from the root.
        assert_eq!(base.rooted("/builds/package.json"), "../package.json");
        assert_eq!(head.rooted("/srv/package.json"), "../package.json");
        assert_eq!(
            base.rooted("/builds/node_modules/x/i.js"),
            "../node_modules/x/i.js"
        );
        // What lies elsewhere is what it is.
        for path in [
            "/usr/lib/libc.so",
            "node:fs",
            "[eval]",
            "fd:3",
            "/builds/v2/a.js",
            "",
        ] {
            assert_eq!(base.rooted(path), path);
        }
        // The name of a folder that only begins like the root's.
        assert_eq!(base.rooted("/builds/v11/a.js"), "/builds/v11/a.js");
    }

    #[test]
    fn with_one_root_paths_are_seen_from_the_working_directory() {
        let (base, head) = roots(("/w/bin/app.js", "/w"), ("/w/bin/app.js", "/w"));
        assert_eq!(base, head);
        assert_eq!(base.rooted("/w/bin/app.js"), "./bin/app.js");
        assert_eq!(base.rooted("/package.json"), "/package.json");
        let (base, head) = roots(("", "/w/1"), ("", "/w/2/"));
        assert_eq!(base.rooted("/w/1/a.js"), head.rooted("/w/2/a.js"));
        let (base, _) = roots(("", "/"), ("", "/"));
        assert_eq!(base.rooted("/a.js"), "/a.js");
    }

    #[test]
    fn a_script_started_from_several_folders_is_seen_from_one() {
        let main = "/w/bin/app.js";
        for (base_directory, head_directory, expected) in [
            ("/w", "/w/bin", "./bin/app.js"),
            ("/w/bin", "/w", "./app.js"),
            // Started from elsewhere, it lies where it lies.
            ("/tmp", "/w/", "./bin/app.js"),
            ("/w", "/", "./bin/app.js"),
        ] {
            let (base, head) = roots((main, base_directory), (main, head_directory));
            assert_eq!(base, head, "{base_directory} {head_directory}");
            assert_eq!(base.rooted(main), expected);
            assert_eq!(base.rooted("/node_modules/x/i.js"), "/node_modules/x/i.js");
            assert_eq!(base.rooted("/tmp/x"), "/tmp/x");
        }
        // As each is called that was recorded from the first folder alone.
        let (alone, _) = roots((main, "/w"), (main, "/w"));
        let (first, _) = roots((main, "/w"), (main, "/w/bin"));
        assert_eq!(alone, first);
    }

    #[test]
    fn a_tool_started_in_several_projects_sees_each_as_the_program() {
        let main = "/usr/bin/tool.js";
        let (base, head) = roots((main, "/w/old"), (main, "/srv/app/new"));
        assert_eq!(base.rooted("/w/old/lib/a.js"), "./lib/a.js");
        assert_eq!(head.rooted("/srv/app/new/lib/a.js"), "./lib/a.js");
        let above = "../node_modules/x/i.js";
        assert_eq!(base.rooted("/w/node_modules/x/i.js"), above);
        assert_eq!(head.rooted("/srv/app/node_modules/x/i.js"), above);
        // What both have in common, however deep each lies.
        for path in [main, "/package.json", "/node_modules/x/i.js"] {
            assert_eq!(base.rooted(path), path);
            assert_eq!(head.rooted(path), path);
        }
    }

    #[test]
    fn a_folder_of_the_program_is_one_wherever_it_is_started() {
        let (base, head) = roots(("/a/src/app.js", "/a"), ("/b/src/app.js", "/b/src"));
        assert_eq!(base.rooted("/a/src/x.js"), "./src/x.js");
        assert_eq!(head.rooted("/b/src/x.js"), "./src/x.js");
    }

    #[test]
    fn scripts_with_different_names_have_their_folders_as_root() {
        let (base, head) = roots(("/w/old/server.js", "/w"), ("/w/new/main.js", "/w"));
        assert_eq!(base.rooted("/w/old/lib/a.js"), "./lib/a.js");
        assert_eq!(head.rooted("/w/new/lib/a.js"), "./lib/a.js");
        assert_eq!(head.rooted("/w/new/main.js"), "./main.js");
        let (base, head) = roots(("/w/a.js", "/w"), ("/w/b.js", "/w"));
        assert_eq!(base.rooted("/w/a.js"), "./a.js");
        assert_eq!(head.rooted("/w/lib/x.js"), "./lib/x.js");
    }

    #[test]
    fn program_and_working_directory_can_both_move() {
        let (base, head) = roots(("/a/app/main.js", "/tmp/1"), ("/b/app/main.js", "/tmp/2"));
        assert_eq!(base.rooted("/a/app/x.js"), "./app/x.js");
        assert_eq!(head.rooted("/b/app/x.js"), "./app/x.js");
        assert_eq!(base.rooted("/tmp/1/.env"), head.rooted("/tmp/2/.env"));
        assert_eq!(head.rooted("/tmp/2/.env"), "(working directory)/.env");
    }

    #[test]
    fn versions_hashes_and_stores_are_no_part_of_a_generic_name() {
        for (name, expected) in [
            (
                "./node_modules/express/lib/a.js",
                "./node_modules/express/lib/a.js",
            ),
            (
                "./node_modules/.pnpm/express@4.18.2/node_modules/express/index.js",
                "./node_modules/express/index.js",
            ),
            (
                "./node_modules/.pnpm/@s+a@1.0.0_react@18.2.0/node_modules/@s/a/i.js",
                "./node_modules/@s/a/i.js",
            ),
            (
                "./.yarn/cache/debug-npm-4.3.4-4513954577-3dbad3f94e.zip/node_modules/debug/src/index.js",
                "./node_modules/debug/src/index.js",
            ),
            (
                "/opt/node-v20.11.1-linux-x64/bin/node",
                "/opt/node-v*-linux-x64/bin/node",
            ),
            (
                "/home/u/.nvm/versions/node/v20.1.0/lib/x.js",
                "/home/u/.nvm/versions/node/v*/lib/x.js",
            ),
            (
                "/s/typescript@5.0.0-beta.1/lib/a.js",
                "/s/typescript@*/lib/a.js",
            ),
            ("./lib-1.2.3-rc.4.js", "./lib-*.js"),
            ("./dist/chunk-ab12cd34.js", "./dist/chunk-*.js"),
            ("./dist/chunk-FCDXI5FC.js", "./dist/chunk-*.js"),
            ("./dist/chunk-LOWERCSD.mjs", "./dist/chunk-*.mjs"),
            ("./assets/index-DiwrgTda.js", "./assets/index-*.js"),
            ("./main.8f3a9c2b1d.chunk.js", "./main.*.chunk.js"),
            ("./8f3a9c2b1d.js", "./*.js"),
            ("/proc/4711/status", "/proc/*/status"),
            ("/tmp/cache-1700000000000/a", "/tmp/cache-*/a"),
            // Words with digits and capitals, and what is short, stay.
            ("./lib/sha256.js", "./lib/sha256.js"),
            ("./es2015/base64url.js", "./es2015/base64url.js"),
            ("./x86_64/utf8.js", "./x86_64/utf8.js"),
            ("./lib/userName.js", "./lib/userName.js"),
            ("./lib/get-userName.js", "./lib/get-userName.js"),
            ("./HomePage.js", "./HomePage.js"),
            ("./lib/oauth2client.js", "./lib/oauth2client.js"),
            ("./lib/facade.js", "./lib/facade.js"),
            (
                "./node_modules/i18next10/a.js",
                "./node_modules/i18next10/a.js",
            ),
            ("./v1.2/a.js", "./v1.2/a.js"),
            ("./größe-ab12cd34.js", "./größe-*.js"),
            (
                "node:internal/modules/cjs/loader",
                "node:internal/modules/cjs/loader",
            ),
            ("", ""),
            ("/", "/"),
        ] {
            assert_eq!(generic(name), expected, "{name}");
        }
    }

    #[test]
    fn a_generic_name_is_its_own() {
        for name in [
            "./node_modules/.pnpm/a@1.0.0/node_modules/a/chunk-ab12cd34.js",
            "/opt/node-v20.11.1-linux-x64/bin/node",
            "./a/1.2.3",
        ] {
            assert_eq!(generic(&generic(name)), generic(name));
        }
    }

    fn names(base: &[&str], head: &[&str]) -> Vec<(String, String)> {
        let matching = Matching::new(base.iter().copied(), head.iter().copied());
        let all = base.iter().chain(head);
        all.map(|name| (name.to_string(), matching.name(name).to_owned()))
            .filter(|(name, common)| name != common)
            .collect()
    }

    #[test]
    fn what_has_a_partner_of_its_own_name_keeps_it() {
        assert_eq!(
            names(
                &["./a.js", "./chunk-ab12cd34.js"],
                &["./a.js", "./chunk-ab12cd34.js"]
            ),
            []
        );
        let found = names(
            &["./chunk-aaaa1111.js", "./chunk-bbbb2222.js"],
            &["./chunk-aaaa1111.js", "./chunk-cccc3333.js"],
        );
        let found: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, ["./chunk-bbbb2222.js", "./chunk-cccc3333.js"]);
    }

    #[test]
    fn a_package_that_moved_is_the_same() {
        let found = names(
            &[
                "./node_modules/debug/src/index.js",
                "./node_modules/ms/index.js",
            ],
            &[
                "./node_modules/express/node_modules/debug/src/index.js",
                "./node_modules/ms/index.js",
            ],
        );
        assert_eq!(found.len(), 2);
        assert!(
            found
                .iter()
                .all(|(_, common)| common == "node_modules/debug/src/index.js")
        );
    }

    #[test]
    fn what_only_one_side_has_keeps_its_name() {
        assert_eq!(names(&["./a.js", "./chunk-ab12cd34.js"], &["./b.js"]), []);
        assert_eq!(names(&[], &["./node_modules/x@1.2.3/a.js"]), []);
    }
}
