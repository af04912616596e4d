//! What was seen while a Node.js program started, and what follows from it.
#![warn(missing_docs)]
pub mod breakdown;
mod fast;
mod probe_cost;
pub mod profile;
pub mod recording;
pub mod report;
pub mod store;
#[doc(hidden)]
pub mod synthetic;

pub use recording::Recording;
pub use report::{Profile, RunProfile};
pub use store::{Malformed, SaveOptions, StoreError};
