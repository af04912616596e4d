//! The script that a node command line names, and which of the files that Node loaded it is.

/// Options of node with their value in the next argument.
const WITH_VALUE: [&str; 14] = [
    "-r",
    "--require",
    "--import",
    "--loader",
    "--experimental-loader",
    "-C",
    "--conditions",
    "--env-file",
    "--env-file-if-exists",
    "--input-type",
    "--title",
    "--icu-data-dir",
    "--openssl-config",
    "--diagnostic-dir",
];

/// Those of them that load a module before the script.
const PRELOADS: [&str; 5] = [
    "-r",
    "--require",
    "--import",
    "--loader",
    "--experimental-loader",
];

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
                "-e" | "--eval" | "-p" | "--print" | "-pe" | "-" | "-i" | "--test" => break,
                option if WITH_VALUE.contains(&option) => {
                    let value = arguments.next();
                    if PRELOADS.contains(&option) {
                        asked.preloads.extend(value);
                    }
                }
                option if option.starts_with('-') => {
                    if let Some((option, value)) = option.split_once('=')
                        && PRELOADS.contains(&option)
                    {
                        asked.preloads.push(value.to_owned());
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
            .or_else(|| others.first().copied())
            .or((!loaded.is_empty()).then_some(0))
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

/// The script that a node command line names, absolute.
pub(crate) fn main_script(arguments: &[Vec<u8>], directory: &str) -> Option<String> {
    let script = Asked::of(arguments).script?;
    Some(absolute(&script, directory))
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
            // Preloaded and the script.
            (&["node", "-r", "./a.js", "a.js"], &["/w/a.js"], Some(0)),
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
