//! Paths of maps and of sources, relative to where they are named. Text: nothing is looked up.

use nodeprof_profile::absolute;

use super::super::sources::{path_of, percent_decoded};

/// The path of the file that a URL in the script at `base` names; `None` for one that is no file.
pub fn file(base: &str, url: &str) -> Option<String> {
    if url.starts_with("file:") {
        return String::from_utf8(
            path_of(url.as_bytes())?
                .into_os_string()
                .into_encoded_bytes(),
        )
        .ok();
    }
    if has_scheme(url) || url.starts_with("//") {
        return None;
    }
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let path = String::from_utf8(percent_decoded(&url.as_bytes()[..end])?).ok()?;
    Some(absolute(&path, folder(base)))
}

/// A source as it is shown: an absolute path, or a URL that is no file's (`webpack://app/src/a.ts`).
pub fn source(map: &str, root: &str, name: &str) -> String {
    let name = match root {
        "" => name.to_owned(),
        _ if has_scheme(name) || name.starts_with('/') => name.to_owned(),
        root if root.ends_with('/') => format!("{root}{name}"),
        root => format!("{root}/{name}"),
    };
    if let Some(path) = name.strip_prefix("file:").and_then(|_| file(map, &name)) {
        return absolute(&path, "");
    }
    if has_scheme(&name) {
        return shown(&name);
    }
    // It is the path of a URL, as that of the map is.
    let decoded = percent_decoded(name.as_bytes()).and_then(|path| String::from_utf8(path).ok());
    absolute(decoded.as_ref().unwrap_or(&name), folder(map))
}

/// A URL, or a name that a script gives itself, as it is shown: without `.` and `..`. webpack adds a number to what is made of one file in several ways
/// (`webpack://app/src/a.js?33ea`); those of other files than scripts tell what is made of parts of them (`a.vue?1f2c`).
pub fn shown(name: &str) -> String {
    const SCRIPTS: [&str; 8] = [".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"];
    let is_added = |hash: &str| hash.chars().all(|c| c.is_ascii_hexdigit());
    let is_script = |file: &str| SCRIPTS.iter().any(|end| file.ends_with(end));
    match name.rsplit_once('?') {
        Some((file, hash)) if name.starts_with("webpack") && is_added(hash) && is_script(file) => {
            normal_url(file)
        }
        _ => normal_url(name),
    }
}

/// `https:`, `webpack:`; not `C:`, which no Linux program means.
fn has_scheme(url: &str) -> bool {
    url.split_once(':').is_some_and(|(scheme, _)| {
        scheme.len() > 1
            && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Without `.` and `..` in its path, as browsers resolve it: `webpack://app/./src/a.ts` is `webpack://app/src/a.ts`.
fn normal_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (place, more) = rest.split_at(end);
    match place.split_once('/') {
        Some((host, path)) if path.split('/').any(|part| matches!(part, "." | "..")) => {
            format!("{scheme}://{host}{}{more}", absolute(path, ""))
        }
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_webpack_adds_are_not_shown() {
        assert_eq!(
            shown("webpack://app/./src/a.js?33ea"),
            "webpack://app/src/a.js"
        );
        assert_eq!(
            shown("webpack-internal:///./a.js?"),
            "webpack-internal:///a.js"
        );
        let typed = "webpack://app/src/a.vue?vue&type=script";
        assert_eq!(shown(typed), typed);
        assert_eq!(
            shown("https://x.test/a.js?33ea"),
            "https://x.test/a.js?33ea"
        );
        assert_eq!(shown("/srv/../a"), "/srv/../a");
    }

    #[test]
    fn maps_are_found_beside_their_scripts() {
        let base = "/srv/app/dist/a.js";
        for (url, path) in [
            ("a.js.map", Some("/srv/app/dist/a.js.map")),
            ("maps/a.js.map?v=1", Some("/srv/app/dist/maps/a.js.map")),
            ("../maps/a%20b.map", Some("/srv/app/maps/a b.map")),
            ("/etc/a.map", Some("/etc/a.map")),
            ("file:///srv/a.map", Some("/srv/a.map")),
            ("https://cdn.test/a.map", None),
            ("//cdn.test/a.map", None),
            ("a%zz.map", None),
        ] {
            assert_eq!(file(base, url).as_deref(), path, "{url}");
        }
    }

    #[test]
    fn sources_are_relative_to_root_and_map() {
        let map = "/srv/app/dist/a.js.map";
        for (root, name, shown) in [
            ("", "../src/a.ts", "/srv/app/src/a.ts"),
            ("../src", "a.ts", "/srv/app/src/a.ts"),
            ("../src/", "./b/../a.ts", "/srv/app/src/a.ts"),
            ("/srv/other", "a.ts", "/srv/other/a.ts"),
            ("", "/srv/app/src/a.ts", "/srv/app/src/a.ts"),
            ("", "../../../../../../etc/passwd", "/etc/passwd"),
            ("", "file:///srv/my%20app/a.ts", "/srv/my app/a.ts"),
            ("", "webpack://app/./src/a.ts", "webpack://app/src/a.ts"),
            ("webpack:///", "./src/a.ts", "webpack:///src/a.ts"),
            (
                "",
                "webpack://app/src/a.vue?1f2c",
                "webpack://app/src/a.vue?1f2c",
            ),
            (
                "",
                "webpack://app/a/../../b.ts?x=../c",
                "webpack://app/b.ts?x=../c",
            ),
            ("", "node:fs", "node:fs"),
            ("", "../src/my%20app/a.ts", "/srv/app/src/my app/a.ts"),
            ("../my%20app", "100%/a.ts", "/srv/app/my%20app/100%/a.ts"),
            ("https://x.test", "a.ts", "https://x.test/a.ts"),
        ] {
            assert_eq!(source(map, root, name), shown, "{root} {name}");
        }
    }
}
