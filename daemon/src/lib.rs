//! The recorder.
