//! Which package a file belongs to.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::recording::{Recording, RunId};

/// Where a package lies, as its kind.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PackageKind {
    /// Below a `node_modules`.
    Installed,
    /// Elsewhere, with a package.json of its own that has a name: a workspace, a linked package.
    Workspace,
    /// The package of the main script, if it is not installed; and files that belong to no package.
    #[default]
    Application,
    /// Node itself.
    Node,
}

/// A package, by its folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackageKey {
    /// Kind.
    pub kind: PackageKind,
    /// Absolute path without a slash at its end; empty for Node and for files that belong to no package.
    pub directory: Vec<u8>,
}

/// What a package.json said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Name.
    pub name: Option<String>,
    /// Version.
    pub version: Option<String>,
}

/// The package folder of a path by its form alone: behind the last `node_modules`, `name` or `@scope/name`.
pub fn installed_directory(path: &[u8]) -> Option<&[u8]> {
    const MARK: &[u8] = b"/node_modules/";
    // The last mark with a whole package name behind it: `…/node_modules/.bin/x` is no package.
    let mut end = path.len();
    loop {
        let at = path[..end]
            .windows(MARK.len())
            .rposition(|part| part == MARK)?;
        let inside = &path[at + MARK.len()..];
        if let Some(length) = package_name(inside) {
            return Some(&path[..at + MARK.len() + length]);
        }
        // Marks may share a slash.
        end = at + MARK.len() - 1;
    }
}

/// Length of the package name that a path below `node_modules` begins with, if a file of it follows.
fn package_name(inside: &[u8]) -> Option<usize> {
    let part = |from: usize| {
        let length = inside[from..].iter().position(|&byte| byte == b'/')?;
        (length > 0).then_some(from + length)
    };
    let first = part(0)?;
    match inside[0] {
        b'@' => part(first + 1),
        // `.bin`, `.pnpm`, `.cache`: no package may begin with a dot.
        b'.' => None,
        _ => Some(first),
    }
}

/// The name that a folder below `node_modules` tells.
pub fn name_of_directory(directory: &[u8]) -> String {
    let mut parts = directory.rsplit(|&byte| byte == b'/');
    let last = parts.next().unwrap_or_default();
    let text = String::from_utf8_lossy(last);
    match parts.next() {
        Some(scope) if scope.starts_with(b"@") => {
            format!("{}/{text}", String::from_utf8_lossy(scope))
        }
        _ => text.into_owned(),
    }
}

/// The version of a package in one of Yarn's archives, by the archive's name, which is `NAME-npm-VERSION-HASH-CHECKSUM.zip`, a slash in
/// the name a hyphen (`slugifyLocator` and `getLocatorPath` of Yarn 2 and later). The package.json inside is read by Yarn alone.
fn version_in_archive(directory: &[u8]) -> Option<String> {
    let name = name_of_directory(directory);
    let inside = format!(".zip/node_modules/{name}");
    let archive = directory.strip_suffix(inside.as_bytes())?;
    let archive = archive.rsplit(|&byte| byte == b'/').next()?;
    let slug = format!("{}-npm-", name.replace('/', "-"));
    let rest = std::str::from_utf8(archive.strip_prefix(slug.as_bytes())?).ok()?;
    // A version may have hyphens of its own.
    let mut parts = rest.rsplitn(3, '-');
    let (_checksum, _hash) = (parts.next()?, parts.next()?);
    parts.next().map(str::to_owned)
}

/// The packages of one run, by folder.
#[derive(Debug, Default)]
pub struct Folders<'a> {
    of: HashMap<&'a [u8], Identity>,
}

impl<'a> Folders<'a> {
    /// Those that the recording tells of a run.
    pub fn new(recording: &'a Recording, run: RunId) -> Folders<'a> {
        let of_run = recording.packages.iter().filter(|p| p.run == run);
        let of = of_run.map(|package| {
            let directory = recording.name(package.directory);
            let identity = Identity {
                name: package.name.clone(),
                version: package.version.clone(),
            };
            (directory, identity)
        });
        Folders { of: of.collect() }
    }

    /// The package of a file: the nearest folder that is installed or told by the recording.
    pub fn package_of(&self, path: &[u8]) -> PackageKey {
        let installed = installed_directory(path);
        let least = installed.map_or(0, <[u8]>::len);
        let mut end = path.len();
        // A folder outside of node_modules, or a package in a package.
        while let Some(slash) = path[..end].iter().rposition(|&byte| byte == b'/') {
            if slash <= least {
                break;
            }
            if installed.is_none() && self.of.contains_key(&path[..slash]) {
                return PackageKey {
                    kind: PackageKind::Workspace,
                    directory: path[..slash].to_vec(),
                };
            }
            end = slash;
        }
        // That of the root has no slash at its end to be parted at.
        if installed.is_none() && path.starts_with(b"/") && self.of.contains_key(&b"/"[..]) {
            return PackageKey {
                kind: PackageKind::Workspace,
                directory: b"/".to_vec(),
            };
        }
        match installed {
            Some(directory) => PackageKey {
                kind: PackageKind::Installed,
                directory: directory.to_vec(),
            },
            None => PackageKey::default(),
        }
    }

    /// Name and version of a package.
    pub fn identity(&self, package: &PackageKey) -> Identity {
        let told = self.of.get(package.directory.as_slice());
        let mut identity = told.cloned().unwrap_or_default();
        if package.kind == PackageKind::Installed {
            if identity.name.is_none() {
                identity.name = Some(name_of_directory(&package.directory));
            }
            if told.is_none() {
                identity.version = version_in_archive(&package.directory);
            }
        }
        identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_the_innermost_folder_of_node_modules() {
        for (path, directory, name) in [
            ("/a/node_modules/b/c/d.js", "/a/node_modules/b", "b"),
            ("/a/node_modules/@s/b/c.js", "/a/node_modules/@s/b", "@s/b"),
            (
                "/a/node_modules/b/node_modules/@s/c/d.js",
                "/a/node_modules/b/node_modules/@s/c",
                "@s/c",
            ),
            (
                "/a/node_modules/.pnpm/e@4.1.0_x@1/node_modules/e/lib/e.js",
                "/a/node_modules/.pnpm/e@4.1.0_x@1/node_modules/e",
                "e",
            ),
            (
                "/a/node_modules/node_modules/b.js",
                "/a/node_modules/node_modules",
                "node_modules",
            ),
            (
                "/a/node_modules/b/lib/node_modules/.cache/x.js",
                "/a/node_modules/b",
                "b",
            ),
        ] {
            let found = installed_directory(path.as_bytes()).unwrap_or_default();
            assert_eq!(String::from_utf8_lossy(found), directory);
            assert_eq!(name_of_directory(found), name);
        }
    }

    #[test]
    fn a_package_may_be_the_root_of_the_file_system() {
        let mut folders = Folders::default();
        let of = |folders: &Folders<'_>, path: &str| folders.package_of(path.as_bytes());
        assert_eq!(of(&folders, "/index.js"), PackageKey::default());
        folders.of.insert(b"/", Identity::default());
        for path in ["/index.js", "/lib/a.js"] {
            let found = of(&folders, path);
            assert_eq!(found.kind, PackageKind::Workspace, "{path}");
            assert_eq!(found.directory, b"/", "{path}");
        }
        let installed = of(&folders, "/node_modules/a/b.js");
        assert_eq!(installed.directory, b"/node_modules/a");
        assert_eq!(
            of(&folders, "evalmachine.<anonymous>"),
            PackageKey::default()
        );
    }

    #[test]
    fn the_version_of_a_package_in_an_archive_of_yarn_is_in_its_name() {
        for (directory, version) in [
            (
                "/a/.yarn/cache/qs-npm-6.5.0-2d84c63b8c-a9947d98ad.zip/node_modules/qs",
                Some("6.5.0"),
            ),
            (
                "/h/cache/@s-b-npm-1.0.0-beta.2-x-0123456789-10c0.zip/node_modules/@s/b",
                Some("1.0.0-beta.2-x"),
            ),
            // A patch, a repository, another archive, a name that is not the archive's.
            (
                "/c/typescript-patch-6fda4d02cf-10c0.zip/node_modules/typescript",
                None,
            ),
            ("/c/qs-npm-6.5.0-10c0.zip/node_modules/qs", None),
            ("/c/bundle.zip/node_modules/qs", None),
            ("/c/qs-npm-6.5.0-2d84c63b8c-a994.zip/node_modules/q", None),
            ("/a/node_modules/qs", None),
        ] {
            assert_eq!(
                version_in_archive(directory.as_bytes()).as_deref(),
                version,
                "{directory}"
            );
        }
    }

    #[test]
    fn what_is_not_in_a_package_folder_is_in_none() {
        for path in [
            "/a/b.js",
            "/a/node_modules/b.js",
            "/a/node_modules/.bin/b",
            "/a/node_modules/@s/b.js",
            "/a/my_node_modules/b/c.js",
            "",
            "[eval]",
        ] {
            assert_eq!(installed_directory(path.as_bytes()), None, "{path}");
        }
    }
}
