//! What was seen while a Node.js program started, and what follows from it.
#![warn(missing_docs)]
pub mod recording;
