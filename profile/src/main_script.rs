//! The script that a node command line names, and which of the files that Node loaded it is.

use std::borrow::Cow;

/// Options of node with their value in the next argument, if no `=` follows: those that `node --help` of Node 16 to 26 shows with `=...`, and their
/// other names (src/node_options.cc); all but V8's, of which none takes the next argument.
const WITH_VALUE: [&str; 90] = [
    "-C",
    "-r",
    "--allow-fs-read",
    "--allow-fs-write",
    "--bench-isolation",
    "--bench-name-pattern",
    "--bench-reporter",
    "--bench-reporter-destination",
    "--bench-samples",
    "--bench-warmup",
    "--build-sea",
    "--build-snapshot-config",
    "--conditions",
    "--cpu-prof-dir",
    "--cpu-prof-interval",
    "--cpu-prof-name",
    "--debug-port",
    "--diagnostic-dir",
    "--disable-proto",
    "--disable-warning",
    "--dns-result-order",
    "--env-file",
    "--env-file-if-exists",
    "--es-module-specifier-resolution",
    "--experimental-config-file",
    "--experimental-default-type",
    "--experimental-loader",
    "--experimental-package-map",
    "--experimental-policy",
    "--experimental-sea-config",
    "--experimental-specifier-resolution",
    "--experimental-test-isolation",
    "--experimental-test-tag-filter",
    "--heap-prof-dir",
    "--heap-prof-interval",
    "--heap-prof-name",
    "--heapsnapshot-near-heap-limit",
    "--heapsnapshot-signal",
    "--icu-data-dir",
    "--import",
    "--input-type",
    "--inspect-port",
    "--inspect-publish-uid",
    "--loader",
    "--localstorage-file",
    "--max-http-header-size",
    "--max-old-space-size-percentage",
    "--network-family-autoselection-attempt-timeout",
    "--openssl-config",
    "--policy-integrity",
    "--redirect-warnings",
    "--report-dir",
    "--report-directory",
    "--report-filename",
    "--report-signal",
    "--require",
    "--secure-heap",
    "--secure-heap-min",
    "--security-revert",
    "--security-reverts",
    "--snapshot-blob",
    "--test-concurrency",
    "--test-coverage-branches",
    "--test-coverage-exclude",
    "--test-coverage-functions",
    "--test-coverage-include",
    "--test-coverage-lines",
    "--test-global-setup",
    "--test-isolation",
    "--test-name-pattern",
    "--test-random-seed",
    "--test-reporter",
    "--test-reporter-destination",
    "--test-rerun-failures",
    "--test-shard",
    "--test-skip-pattern",
    "--test-timeout",
    "--title",
    "--tls-cipher-list",
    "--tls-keylog",
    "--trace-event-categories",
    "--trace-event-file-pattern",
    "--trace-require-module",
    "--unhandled-rejections",
    "--use-largepages",
    "--v8-pool-size",
    "--vfs-load",
    "--vfs-mount",
    "--watch-kill-signal",
    "--watch-path",
];

/// Those of them that load a module before the script.
const PRELOADS: [&str; 5] = [
    "-r",
    "--require",
    "--import",
    "--loader",
    "--experimental-loader",
];

/// An option as Node knows it: it takes `_` for `-`.
fn named(option: &str) -> Cow<'_, str> {
    match option.strip_prefix("--") {
        Some(rest) if rest.contains('_') => Cow::Owned(format!("--{}", rest.replace('_', "-"))),
        _ => Cow::Borrowed(option),
    }
}

/// Whether the argument behind this one is its value, not the script.
pub(crate) fn takes_next(option: &str) -> bool {
    WITH_VALUE.contains(&&*named(option))
}

/// What a node command line asks Node to load.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The script as it is typed; `None` for `-e`, standard input and the like.
    pub(crate) script: Option<String>,
    /// Modules to load before it.
    preloads: Vec<String>,
}

impl Asked {
    /// What these arguments, the program's name first, ask for.
    pub(crate) fn of(arguments: &[Vec<u8>]) -> Asked {
        let mut asked = Asked::default();
        let text = |argument: &Vec<u8>| String::from_utf8_lossy(argument).into_owned();
        let mut arguments = arguments.iter().skip(1).map(text);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--" => {
                    asked.script = arguments.next();
                    break;
                }
                "-e" | "--eval" | "-p" | "--print" | "-pe" | "-" | "-i" | "--test" | "--bench"
                | "--run" => break,
                option if takes_next(option) => {
                    let value = arguments.next();
                    if PRELOADS.contains(&&*named(option)) {
                        asked.preloads.extend(value);
                    }
                }
                option if option.starts_with('-') => {
                    let (option, value) = option.split_once('=').unwrap_or((option, ""));
                    match &*named(option) {
                        // What follows are its arguments.
                        "--eval" | "--run" => break,
                        option if PRELOADS.contains(&option) => {
                            asked.preloads.push(value.to_owned());
                        }
                        _ => {}
                    }
                }
                _ => {
                    asked.script = Some(argument);
                    break;
                }
            }
        }
        asked
    }

    /// Which of the files that Node loaded by itself, in order of loading, is the script. `directory`: where it was typed, as far as is known.
    pub(crate) fn find(&self, loaded: &[&[u8]], directory: &str) -> Option<usize> {
        let loaded: Vec<_> = loaded
            .iter()
            .map(|path| String::from_utf8_lossy(path))
            .collect();
        let likest = |asked: &str, least: Likeness| {
            let alike = loaded.iter().enumerate().filter_map(|(index, path)| {
                let likeness = Likeness::of(path, asked, directory)?;
                (likeness <= least).then_some((likeness, index))
            });
            alike.min()
        };
        let script = self.script.as_deref();
        if let Some((_, index)) = script.and_then(|script| likest(script, Likeness::End)) {
            return Some(index);
        }
        let is_preload = |path: &str| {
            let mut preloads = self.preloads.iter();
            preloads.any(|asked| {
                Likeness::of(path, asked, directory).is_some_and(|like| like <= Likeness::End)
            })
        };
        let others: Vec<usize> = (0..loaded.len())
            .filter(|&index| !is_preload(&loaded[index]))
            .collect();
        let alike = script.and_then(|script| {
            let likeness = |&index: &usize| Likeness::of(&loaded[index], script, directory);
            let alike = others
                .iter()
                .filter_map(|index| Some((likeness(index)?, *index)));
            alike.min().map(|(_, index)| index)
        });
        // `node -e`: what it loads has no file.
        let code = || {
            let mut others = others.iter().copied();
            others.find(|&index| script.is_none() && !loaded[index].starts_with('/'))
        };
        let own = || {
            let mut others = others.iter().copied();
            others.find(|&index| !loaded[index].contains("/node_modules/"))
        };
        alike
            .or_else(code)
            .or_else(own)
            // Where there are only preloads, the script was not loaded.
            .or_else(|| others.first().copied())
    }
}

/// How a file may be meant by what was typed, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    /// It is its path, with or without what Node adds.
    Path,
    /// It ends like this: typed in another directory, or a name in `node_modules`.
    End,
    /// The same name elsewhere: a symbolic link.
    Name,
    /// A file in that folder.
    Folder,
}

impl Likeness {
    fn of(path: &str, asked: &str, directory: &str) -> Option<Likeness> {
        let whole = absolute(asked, directory);
        if path.strip_prefix(whole.as_str()).is_some_and(is_added) {
            return Some(Likeness::Path);
        }
        let relative = absolute(asked, "");
        let ends = || {
            let at = path.rfind(relative.as_str())?;
            Some(is_added(&path[at + relative.len()..]))
        };
        if !asked.starts_with('/') && relative != "/" && ends() == Some(true) {
            return Some(Likeness::End);
        }
        let name = |path: &str| {
            let last = path.rsplit('/').next().unwrap_or_default();
            let stem = last.rsplit_once('.').map_or(last, |(stem, _)| stem);
            stem.to_owned()
        };
        if relative != "/" && name(path) == name(&whole) {
            return Some(Likeness::Name);
        }
        let inside = path.strip_prefix(whole.as_str())?;
        inside.starts_with('/').then_some(Likeness::Folder)
    }
}

/// Whether Node adds this to a path that it looks for.
fn is_added(rest: &str) -> bool {
    let rest = rest.strip_prefix("/index").unwrap_or(rest);
    matches!(
        rest,
        "" | ".js" | ".json" | ".node" | ".mjs" | ".cjs" | ".ts" | ".mts" | ".cts"
    )
}

/// A path from the root, without `.`, `..` and empty parts; `..` at the root stays there.
pub fn absolute(path: &str, directory: &str) -> String {
    let whole = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("{directory}/{path}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The script that a node command line names, as it names it; `None` without one (`-e`, `-p`, nothing).
pub fn script(arguments: &[Vec<u8>]) -> Option<String> {
    Asked::of(arguments).script
}

/// The script that a node command line names, absolute.
pub(crate) fn main_script(arguments: &[Vec<u8>], directory: &str) -> Option<String> {
    Some(absolute(&script(arguments)?, directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(arguments: &[&str]) -> Vec<Vec<u8>> {
        arguments.iter().map(|a| a.as_bytes().to_vec()).collect()
    }

    #[test]
    fn the_main_script_is_the_first_argument_that_is_no_option() {
        for (typed, expected) in [
            (&["node", "app.js", "x"][..], Some("/w/app.js")),
            (
                &["node", "--cpu-prof", "-r", "./h.js", "../a/./b.js"],
                Some("/a/b.js"),
            ),
            (&["node", "--import=x", "/s/a.mjs"], Some("/s/a.mjs")),
            (&["node", "--", "-a.js"], Some("/w/-a.js")),
            (&["node", "."], Some("/w")),
            (
                &["node", "--unhandled-rejections", "warn", "app.js"],
                Some("/w/app.js"),
            ),
            (
                &[
                    "node",
                    "--cpu-prof-dir",
                    "out",
                    "--trace-event-categories",
                    "v8",
                    "a.js",
                ],
                Some("/w/a.js"),
            ),
            (
                &[
                    "node",
                    "--unhandled_rejections",
                    "warn",
                    "--cpu_prof",
                    "a.js",
                ],
                Some("/w/a.js"),
            ),
            (&["node", "--inspect-port", "0", "a.js"], Some("/w/a.js")),
            (&["node", "--test_only", "my_app.js"], Some("/w/my_app.js")),
            // V8's.
            (&["node", "--stack-trace-limit=9", "a.js"], Some("/w/a.js")),
            (&["node", "--eval=0", "x"], None),
            (&["node", "--run", "build", "--", "x"], None),
            (&["node", "-e", "0"], None),
            (&["node", "--version"], None),
            (&["node"], None),
            (&[], None),
        ] {
            assert_eq!(main_script(&arguments(typed), "/w").as_deref(), expected);
        }
    }

    #[test]
    fn the_main_script_is_found_among_what_node_loaded() {
        let preload = "/w/tools/preload.js";
        for (typed, loaded, expected) in [
            // Preloads come first.
            (
                &["node", "-r", "./tools/preload.js", "app/main.js"][..],
                &[preload, "/w/app/main.js"][..],
                Some(1),
            ),
            // One that NODE_OPTIONS names.
            (&["node", "app/main"], &[preload, "/w/app/main.js"], Some(1)),
            (&["node", "app"], &[preload, "/w/app/index.js"], Some(1)),
            // In another working directory.
            (&["node", "../main.js"], &[preload, "/x/main.js"], Some(1)),
            // A symbolic link.
            (
                &["node", "node_modules/.bin/tsc"],
                &[preload, "/w/node_modules/typescript/bin/tsc"],
                Some(1),
            ),
            // By `main` of a package.json.
            (
                &["node", "--require=./tools/preload", "."],
                &[preload, "/w/lib/start.js"],
                Some(1),
            ),
            (
                &["node", "--import", "hook/register", "-e", "0"],
                &["/w/node_modules/hook/register.mjs", "[eval]"],
                Some(1),
            ),
            (
                &[
                    "node",
                    "--env_file",
                    ".env",
                    "--experimental_loader",
                    "./l.mjs",
                    ".",
                ],
                &["/w/l.mjs", "/w/lib/start.js"],
                Some(1),
            ),
            // Preloaded and the script.
            (&["node", "-r", "./a.js", "a.js"], &["/w/a.js"], Some(0)),
            // One that was not found.
            (
                &["node", "-r", "./tools/preload.js", "nonexistent.js"],
                &[preload],
                None,
            ),
            (
                &["node", "--import", "./tools/preload.js", "-e", "0"],
                &[preload],
                None,
            ),
            // Nothing tells: the first that is nobody else's.
            (
                &["node", "x.js"],
                &["/w/node_modules/hook/index.js", "/w/y.js", "/w/z.js"],
                Some(1),
            ),
            (&[], &["/w/node_modules/hook/index.js"], Some(0)),
            (&["node", "x.js"], &[], None),
        ] {
            let loaded: Vec<&[u8]> = loaded.iter().map(|path| path.as_bytes()).collect();
            let asked = Asked::of(&arguments(typed));
            assert_eq!(asked.find(&loaded, "/w"), expected, "{typed:?}");
        }
    }
}
