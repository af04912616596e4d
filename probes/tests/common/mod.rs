//! Where the tests find official node builds.

use std::path::PathBuf;

#[allow(dead_code, reason = "not every test file goes through all versions")]
/// Every version the tests know figures of.
pub const VERSIONS: [&str; 8] = [
    "16.20.0", "18.20.8", "20.0.0", "20.20.2", "21.1.0", "22.23.3", "24.21.0", "26.10.0",
];

/// The official linux-x64 build, if `make node-builds` has fetched it; else says that a test was skipped.
pub fn node_build(version: &str) -> Option<PathBuf> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let folder = absolute("NODEPROF_NODE_BUILDS").or_else(|| {
        let cache = absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
        Some(cache.join("nodeprof").join("node-builds"))
    })?;
    let path = folder.join(version).join("bin").join("node");
    if path.is_file() {
        return Some(path);
    }
    // To standard output: what counts skipped tests reads that.
    println!(
        "skipped: node {version} is not in {}; run make node-builds",
        folder.display()
    );
    None
}
