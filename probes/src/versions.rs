//! The versions that a node binary was built as, from its own strings.

use memchr::memmem;

use crate::elf::Binary;

/// Versions as the binary has them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) node: Option<String>,
    pub(crate) v8: Option<String>,
}

/// `process.release.sourceUrl` begins so; the version follows.
const RELEASE_URL: &[u8] = b"https://nodejs.org/download/release/v";

/// Node's own patches to V8 are numbered so: `11.3.244.8-node.38`.
const V8_SUFFIX: &[u8] = b"-node.";

pub(crate) fn find(binary: &Binary<'_>) -> Versions {
    let mut versions = Versions::default();
    for data in binary.outline.read_only_data() {
        if versions.node.is_some() && versions.v8.is_some() {
            break;
        }
        if versions.node.is_none() {
            versions.node = memmem::find_iter(data, RELEASE_URL)
                .find_map(|at| version_after(data.get(at + RELEASE_URL.len()..)?));
        }
        if versions.v8.is_none() {
            versions.v8 = memmem::find_iter(data, V8_SUFFIX).find_map(|at| v8_around(data, at));
        }
    }
    versions
}

/// `20.20.2/…` → `v20.20.2`. Of a version only what all versions are made of: it is printed to terminals and is a label of metrics.
fn version_after(text: &[u8]) -> Option<String> {
    let text = text.get(..text.len().min(64))?;
    let end = text.iter().position(|byte| *byte == b'/' || *byte == 0)?;
    let version = text.get(..end)?;
    let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || b".+-".contains(byte);
    let version = std::str::from_utf8(version)
        .ok()
        .filter(|version| version.as_bytes().iter().all(is_usual))?;
    let mut numbers = version.split(['.', '-']);
    let three = (0..3).all(|_| numbers.next().is_some_and(|n| n.parse::<u32>().is_ok()));
    three.then(|| format!("v{version}"))
}

/// The whole NUL-terminated string, if it is `a.b.c.d-node.n`.
fn v8_around(data: &[u8], at: usize) -> Option<String> {
    let before = data.get(at.saturating_sub(32)..at)?;
    let start = at - before.iter().rev().position(|byte| *byte == 0)?;
    let after = data.get(at..data.len().min(at + 32))?;
    let end = at + after.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(data.get(start..end)?).ok()?;
    let (version, patch) = text.split_once("-node.")?;
    let dotted = version.split('.').count() >= 3
        && version.split('.').all(|part| part.parse::<u32>().is_ok());
    (dotted && patch.parse::<u32>().is_ok()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_nothing_but_what_versions_have() {
        for (text, version) in [
            ("20.20.2/node-v20.20.2.tar.gz", Some("v20.20.2")),
            (
                "22.0.0-nightly20240101abcdef+b.1\0",
                Some("v22.0.0-nightly20240101abcdef+b.1"),
            ),
            ("20.20.2-\x1b[2J/", None),
            ("20.20.2-\u{9b}2J/", None),
            ("20.20.2-a b/", None),
            ("20.20.2-a\n/", None),
            ("20.20/", None),
        ] {
            assert_eq!(
                version_after(text.as_bytes()).as_deref(),
                version,
                "{text:?}"
            );
        }
    }
}
