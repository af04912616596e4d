//! One module a command.

use std::path::PathBuf;

use anyhow::Context as _;
use nodeprof_probes::{AttachPlan, default_cache_folder};
use nodeprofd::recorder::{find_program, guess_node};

pub mod doctor;
pub mod flame;
pub mod probes;
pub mod report;
pub mod trace;

/// The node binary to look at: the given one, or that of PATH.
fn node_binary(given: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.clone());
    }
    let found = find_program("node".as_ref())
        .context("found no node on PATH; needed: a node binary; type: nodeprof … --node PATH")?;
    Ok(guess_node(&found).unwrap_or(found))
}

/// Its plan, from the cache where that is right.
fn plan(given: Option<&PathBuf>) -> anyhow::Result<AttachPlan> {
    let path = node_binary(given)?;
    Ok(AttachPlan::load_or_build(&path, default_cache_folder().as_deref())?.0)
}
