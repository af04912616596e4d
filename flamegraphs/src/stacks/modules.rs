//! Which module and package a script is of, and what they are called.

use std::collections::{BTreeMap, BTreeSet};

use nodeprof_profile::Recording;
use nodeprof_profile::modules::package::{
    Folders, Identity, PackageKey, PackageKind, installed_directory, name_of_directory,
};
use nodeprof_profile::modules::script::Script;
use nodeprof_profile::recording::RunId;

/// The versions of packages, by name: a name that has several says which.
#[derive(Debug, Default)]
pub(crate) struct Versions(BTreeMap<String, BTreeSet<Option<String>>>);

impl Versions {
    /// Adds the packages of scripts of a run, whose folders these are.
    pub(crate) fn add<'s>(
        &mut self,
        folders: &Folders<'_>,
        scripts: impl Iterator<Item = &'s [u8]>,
    ) {
        let keys: BTreeSet<PackageKey> = scripts
            .map(Script::of)
            .filter(|script| !script.is_builtin())
            .map(|script| folders.package_of(&script.path))
            .collect();
        for key in keys {
            let Identity { name, version } = folders.identity(&key);
            if let Some(name) = name {
                self.0.entry(name).or_default().insert(version);
            }
        }
    }
}

/// The packages of a run.
pub(super) struct Packages<'a> {
    folders: Folders<'a>,
    versions: &'a Versions,
}

/// Of which package a script is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PackageOf {
    /// Node's own JavaScript.
    Node,
    /// A package of this name.
    Named(String),
    /// None that is known: the program itself.
    Program,
}

impl<'a> Packages<'a> {
    /// Those of a run, which may be drawn with others.
    pub(super) fn new(
        recording: &'a Recording,
        run: RunId,
        versions: &'a Versions,
    ) -> Packages<'a> {
        let folders = Folders::new(recording, run);
        Packages { folders, versions }
    }

    pub(super) fn of(&self, script: &str) -> PackageOf {
        let script = Script::of(script.as_bytes());
        if script.is_builtin() {
            return PackageOf::Node;
        }
        let key = self.folders.package_of(&script.path);
        if key.kind == PackageKind::Node {
            return PackageOf::Node;
        }
        let Identity { name, version } = self.folders.identity(&key);
        let Some(name) = name else {
            return PackageOf::Program;
        };
        let known = self.versions.0.get(&name);
        let several = known.is_some_and(|versions| versions.len() > 1);
        PackageOf::Named(match version.filter(|_| several) {
            Some(version) => format!("{name}@{version}"),
            None => name,
        })
    }
}

/// Whether a script is part of the node binary.
pub(super) fn is_built_in(script: &str) -> bool {
    Script::of(script.as_bytes()).is_builtin()
}

/// Whether a script's name says where its file lies.
pub(super) fn is_path(script: &str) -> bool {
    Script::of(script.as_bytes()).path.starts_with(b"/")
}

/// A script's path as short as it tells scripts apart: from the innermost node_modules on, or from the working directory.
pub(super) fn short(script: &str, directory: &str) -> String {
    let script = Script::of(script.as_bytes());
    let path = String::from_utf8_lossy(&script.path);
    let suffix = String::from_utf8_lossy(&script.suffix);
    if let Some(folder) = installed_directory(&script.path) {
        let rest = String::from_utf8_lossy(&script.path[folder.len()..]);
        return format!("{}{rest}{suffix}", name_of_directory(folder));
    }
    let inside = path
        .strip_prefix(directory)
        .and_then(|rest| rest.strip_prefix('/'));
    let path = match inside {
        Some(rest) if !rest.is_empty() && !directory.is_empty() => rest,
        _ if script.is_builtin() || path.len() <= LONG => &path,
        _ => match path.rmatch_indices('/').nth(KEPT - 1) {
            Some((at, _)) if at > 0 => return format!("…{}{suffix}", &path[at..]),
            _ => &path,
        },
    };
    format!("{path}{suffix}")
}

/// Paths longer than this, in bytes, lose their first folders.
const LONG: usize = 40;
/// Parts of such a path that are kept.
const KEPT: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use nodeprof_profile::recording::{NameId, Package};

    #[test]
    fn paths_are_short_and_tell_scripts_apart() {
        for (path, expected) in [
            (
                "/app/node_modules/express/lib/router/index.js",
                "express/lib/router/index.js",
            ),
            (
                "/app/node_modules/.pnpm/express@4.18.2/node_modules/express/index.js",
                "express/index.js",
            ),
            ("/app/node_modules/a/node_modules/@s/b/c.js", "@s/b/c.js"),
            ("file:///app/lib/a%20b.mjs?x=1", "lib/a b.mjs?x=1"),
            ("/app/main.js", "main.js"),
            ("/apple/main.js", "/apple/main.js"),
            (
                "node:internal/modules/cjs/loader",
                "node:internal/modules/cjs/loader",
            ),
            ("internal/util", "node:internal/util"),
            (
                "/a/very/long/path/that/is/of/another/program.js",
                "…/of/another/program.js",
            ),
            ("evalmachine.<anonymous>", "evalmachine.<anonymous>"),
            ("/app/node_modules/file.js", "node_modules/file.js"),
        ] {
            assert_eq!(short(path, "/app"), expected);
        }
    }

    #[test]
    fn packages_have_the_names_of_their_manifests_and_versions_where_there_are_several() {
        let mut recording = Recording::default();
        for (directory, name, version) in [
            ("/app", Some("my-app"), Some("1.0.0")),
            ("/app/node_modules/debug", Some("debug"), Some("4.0.0")),
            (
                "/app/node_modules/x/node_modules/debug",
                Some("debug"),
                Some("2.0.0"),
            ),
            ("/app/node_modules/y", Some("y-by-another-name"), None),
        ] {
            recording.names.push(directory.into());
            recording.packages.push(Package {
                run: RunId(0),
                directory: NameId(recording.names.len() as u32 - 1),
                name: name.map(Into::into),
                version: version.map(Into::into),
            });
        }
        let named = |name: &str| PackageOf::Named(name.to_owned());
        let scripts = [
            ("/app/lib/a.js", named("my-app")),
            ("file:///app/lib/a.js", named("my-app")),
            ("/app/node_modules/debug/a.js", named("debug@4.0.0")),
            (
                "/app/node_modules/x/node_modules/debug/a.js",
                named("debug@2.0.0"),
            ),
            ("/app/node_modules/x/a.js", named("x")),
            ("/app/node_modules/y/a.js", named("y-by-another-name")),
            (
                "/app/node_modules/.pnpm/@s+b@1/node_modules/@s/b/i.js",
                named("@s/b"),
            ),
            ("node:fs", PackageOf::Node),
            ("/other/a.js", PackageOf::Program),
            ("evalmachine.<anonymous>", PackageOf::Program),
        ];
        let mut versions = Versions::default();
        versions.add(
            &Folders::new(&recording, RunId(0)),
            scripts.iter().map(|(script, _)| script.as_bytes()),
        );
        let packages = Packages::new(&recording, RunId(0), &versions);
        for (script, expected) in &scripts {
            assert_eq!(packages.of(script), *expected, "{script}");
        }
    }
}
