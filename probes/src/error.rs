//! Why no plan can be had, each said as: found, needed, what to do.

use std::path::PathBuf;

/// Why there is no plan for a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file cannot be opened or mapped.
    #[error(
        "found: {path} cannot be read ({source}); needed: a node binary; \
         to do: check the path and its permissions, for example with `command -v node`"
    )]
    NotFound {
        /// Asked for.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another file lies there than the one that was asked for, by device and inode.
    #[error(
        "found: another file at {path} than the one that is executed; needed: that one; \
         to do: run it again"
    )]
    Replaced {
        /// Asked for.
        path: PathBuf,
    },
    /// The file is no ELF program: a script, a shim, a program of another system.
    #[error(
        "found: {path} is {found}; needed: node's own ELF binary; \
         to do: give the path that `node -p process.execPath` prints"
    )]
    NotElf {
        /// Asked for.
        path: PathBuf,
        /// What its first bytes say.
        found: String,
    },
    /// The ELF file is cut off or contradicts itself.
    #[error(
        "found: {path} is damaged: {what}; needed: a complete ELF file; \
         to do: install this node again and compare its checksum with nodejs.org"
    )]
    Malformed {
        /// Asked for.
        path: PathBuf,
        /// Which part.
        what: String,
    },
    /// The program is for another processor.
    #[error(
        "found: {path} is {found}; needed: a 64-bit x86 (x86-64) binary; \
         to do: use an x64 build of node, other processors are not supported yet"
    )]
    WrongArchitecture {
        /// Asked for.
        path: PathBuf,
        /// What its header says.
        found: String,
    },
    /// The program is not node.
    #[error(
        "found: {path} is a program without `node::Start`; needed: a node binary; \
         to do: give the path that `node -p process.execPath` prints"
    )]
    NotNode {
        /// Asked for.
        path: PathBuf,
    },
    /// The program only loads libnode.so.
    #[error(
        "found: {path} takes `node::Start` from a shared library (libnode.so); needed: a node binary that \
         contains node; to do: use a build from nodejs.org, as `ldd {path}` shows this one has none of node's code"
    )]
    SharedLibrary {
        /// Asked for.
        path: PathBuf,
    },
    /// It is node, but its symbol table was removed, or the local symbols from it.
    #[error(
        "found: {path} is node, but stripped: it has no .symtab, or one without local symbols, and V8's builtins are \
         named nowhere else; needed: a node binary with its symbol table; to do: use a build from nodejs.org (nvm, fnm, \
         volta and the official images ship them), or rebuild the package without `strip`"
    )]
    Stripped {
        /// Asked for.
        path: PathBuf,
    },
    /// A catalogue of this crate does not parse: a mistake of ours, found by the tests.
    #[error(
        "found: the built-in catalogue {file} is wrong: {what}; needed: a valid one; to do: report this as a bug"
    )]
    Catalogue {
        /// Which one.
        file: &'static str,
        /// What is wrong.
        what: String,
    },
}
