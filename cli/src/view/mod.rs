//! The server of `nodeprof view`: recordings, or the store of the service, as pages, on this machine only.
//!
//! It listens on 127.0.0.1. Every request needs the token of the address that was printed, the right `Host` (so that no name that a
//! foreign site has pointed at this machine works) and, where the browser tells an `Origin`, our own. Files are served by their place in
//! the list, never by a path that a request names.

mod folder;
mod server;
mod starts;
mod turns;

pub use folder::Folder;
pub use server::{Served, Serves, serve, without_default_port};
pub use starts::check;
