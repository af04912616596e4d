//! Where runs come from: a recording, or the store of the service.

use std::path::PathBuf;

use clap::Args;

/// The store of nodeprofd instead of a recording.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    /// Take runs of the store of nodeprofd: in the place of a recording stands the number of a run, or KEY=VALUE,KEY=VALUE for the runs with these labels (of a commit, its first digits; command=TEXT: whose command contains it; package=NAME: that load it)
    #[arg(long)]
    pub store: bool,
    /// With --store: another store [default: /var/lib/nodeprof/starts.db, and where this user may not read it, what nodeprofd hands over of it]
    #[arg(long, value_name = "FILE", requires = "store")]
    pub store_path: Option<PathBuf>,
}
