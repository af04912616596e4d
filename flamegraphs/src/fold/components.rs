//! A path as frames.

use super::folded::FrameKind;

/// Folders with a slash at their end, then the file; a package with its node_modules folder is one frame, and so is
/// the working directory, `./`: where it lies differs from machine to machine.
pub(super) fn components(path: &str, directory: &str) -> Vec<(FrameKind, String)> {
    if let Some(module) = path.strip_prefix("node:") {
        let mut parts = vec![(FrameKind::Builtin, "built-in modules".to_owned())];
        parts.extend(
            folders(module)
                .into_iter()
                .map(|(_, name)| (FrameKind::Builtin, name)),
        );
        return parts;
    }
    // Numbers of descriptors say nothing, and differ from run to run.
    if path
        .strip_prefix("fd:")
        .is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
    {
        return vec![(FrameKind::File, "(descriptor of unknown origin)".to_owned())];
    }
    let path = path
        .strip_prefix("file://")
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(path);
    if !directory.is_empty()
        && let Some(inside) = path.strip_prefix(directory)
    {
        if inside.is_empty() {
            return vec![(FrameKind::File, ".".to_owned())];
        }
        if let Some(inside) = inside.strip_prefix('/') {
            let mut parts = vec![(FrameKind::Folder, "./".to_owned())];
            parts.extend(folders(inside));
            return parts;
        }
    }
    folders(path)
}

fn folders(path: &str) -> Vec<(FrameKind, String)> {
    let (root, rest) = match path.strip_prefix('/') {
        Some(rest) => ("/", rest),
        None => ("", path),
    };
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    let mut result: Vec<(FrameKind, String)> = Vec::with_capacity(parts.len());
    let mut index = 0;
    while index < parts.len() {
        let package = match (parts[index], parts.get(index + 1), parts.get(index + 2)) {
            ("node_modules", Some(scope), Some(_)) if scope.starts_with('@') => 3,
            ("node_modules", Some(_), _) => 2,
            _ => 1,
        };
        let end = index + package;
        let mut name = parts[index..end].join("/");
        if index == 0 {
            name.insert_str(0, root);
        }
        let kind = match (package > 1, end == parts.len()) {
            // What lies in node_modules itself may be a file, such as .package-lock.json.
            (true, true) => FrameKind::File,
            (true, false) => FrameKind::Package,
            (false, true) => FrameKind::File,
            (false, false) => FrameKind::Folder,
        };
        if end < parts.len() {
            name.push('/');
        }
        result.push((kind, name));
        index = end;
    }
    if result.is_empty() {
        result.push((
            FrameKind::File,
            if root.is_empty() {
                "(no path)".to_owned()
            } else {
                root.to_owned()
            },
        ));
    }
    result
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_one_frame() {
        let names = |path: &str| {
            components(path, "/home/me")
                .into_iter()
                .map(|(_, name)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names("/site/node_modules/@scope/name/lib/a.js"),
            ["/site/", "node_modules/@scope/name/", "lib/", "a.js"]
        );
        assert_eq!(
            names("/node_modules/x/package.json"),
            ["/node_modules/x/", "package.json"]
        );
        assert_eq!(names("/site/node_modules"), ["/site/", "node_modules"]);
        assert_eq!(
            names("node:internal/util"),
            ["built-in modules", "internal/", "util"]
        );
        assert_eq!(names("fd:7"), ["(descriptor of unknown origin)"]);
        assert_eq!(
            names("/home/me/node_modules/x/a.js"),
            ["./", "node_modules/x/", "a.js"]
        );
        assert_eq!(names("/home/me"), ["."]);
        assert_eq!(names("/home/meals/a"), ["/home/", "meals/", "a"]);
        assert_eq!(names("/"), ["/"]);
        assert_eq!(names(""), ["(no path)"]);
    }
}
