//! What can be probed in one node binary.
pub mod plan;
