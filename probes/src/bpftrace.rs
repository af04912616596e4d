//! The plan as a program for bpftrace: for machines where nodeprof is not, and as a second opinion on its counts.
//!
//! bpftrace places probes inside functions only if it was built with a disassembler (Debian's is not), makes one perf event per
//! probe (0.1 s each to take away), and cannot name functions of a process that has ended. So the program has
//! probes at entries of functions alone: few by default; the callback's address is taken on the way that the code itself
//! takes ([`callsites::value_at_entry`]); and a table in its comments gives addresses their names.

mod clauses;
mod text;

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::elf::{self, Binary};
use crate::error::PlanError;
use crate::plan::AttachPlan;

/// What the program counts: families of the plan, the crossings in four parts because of what they cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Milestones, and spans of the start.
    Phases,
    /// Calls where V8 makes them: a handful of functions, with the callback's address.
    Crossings,
    /// Fast API functions, which optimised code calls directly: 20 to 130 probes.
    FastCalls,
    /// Accessors and interceptors: some 120 probes.
    Accessors,
    /// Entry of every binding callback: some 1,000 probes, minutes to detach. Counts what `Crossings` counts, at its other end.
    Callbacks,
    /// package.json lookups.
    PackageJson,
    /// Values made or read by C++.
    Serialization,
    /// Compilations.
    Compile,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Phases,
        Self::Crossings,
        Self::FastCalls,
        Self::Accessors,
        Self::Callbacks,
        Self::PackageJson,
        Self::Serialization,
        Self::Compile,
    ];

    /// Those with few probes.
    pub const DEFAULT: [Self; 3] = [Self::Phases, Self::Crossings, Self::PackageJson];

    /// For the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Phases => "phases",
            Self::Crossings => "crossings",
            Self::FastCalls => "fast-calls",
            Self::Accessors => "accessors",
            Self::Callbacks => "callbacks",
            Self::PackageJson => "package-json",
            Self::Serialization => "serialization",
            Self::Compile => "compile",
        }
    }

    /// The group of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }
}

/// Why there is no program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BpftraceError {
    /// The binary cannot be read again.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// bpftrace reads the path in a probe up to the next colon, expands wildcards and knows no quoting.
    #[error(
        "found: {path:?}, a path with {character:?}; needed: one that bpftrace can read (letters, digits and . _ - / + = ~ @ %); \
         type: ln -s {path:?} /tmp/node && nodeprof probes --bpftrace --node /tmp/node"
    )]
    Path {
        /// Of the node binary.
        path: PathBuf,
        /// The first that it cannot read.
        character: char,
    },
    /// The file changed after it was planned for.
    #[error(
        "found: {path} is not the file that the plan was made for; needed: the same build; to do: try again"
    )]
    Changed {
        /// Of the node binary.
        path: PathBuf,
    },
}

/// The program that counts `groups` in the binary of `plan`.
///
/// # Errors
/// If the binary cannot be read, or its path cannot be written in bpftrace's language.
pub fn program(plan: &AttachPlan, groups: &[Group]) -> Result<String, BpftraceError> {
    let path = readable_path(plan)?;
    let data = elf::map(&plan.binary.path)?;
    let binary = Binary::parse(&plan.binary.path, &data)?;
    if binary.outline.build_id() != plan.binary.build_id {
        return Err(BpftraceError::Changed {
            path: plan.binary.path.clone(),
        });
    }
    let mut clauses = clauses::Clauses::new(plan, &binary, path);
    for group in Group::ALL
        .into_iter()
        .filter(|group| groups.contains(group))
    {
        clauses.add(group, groups);
    }
    let mut out = text::header(plan, path, groups, clauses.probes, &clauses.left_out);
    out.push_str(&clauses.finished());
    if groups.iter().any(|group| group.names_callbacks()) {
        text::names(plan, &mut out);
    }
    let _ = writeln!(out);
    Ok(out)
}

impl Group {
    fn names_callbacks(self) -> bool {
        matches!(
            self,
            Self::Crossings | Self::FastCalls | Self::Accessors | Self::Callbacks
        )
    }
}

/// The path, if bpftrace can read it.
fn readable_path(plan: &AttachPlan) -> Result<&str, BpftraceError> {
    let path = &plan.binary.path;
    let refused = |character| BpftraceError::Path {
        path: path.clone(),
        character,
    };
    let text = path
        .to_str()
        .ok_or_else(|| refused(char::REPLACEMENT_CHARACTER))?;
    let readable = |c: char| c.is_ascii_alphanumeric() || "._-/+=~@%".contains(c);
    match text.chars().find(|c| !readable(*c)) {
        Some(character) => Err(refused(character)),
        None => Ok(text),
    }
}
