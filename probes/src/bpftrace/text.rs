//! What people read in the program: how to run it, what it cannot see, names of addresses.

use std::fmt::Write as _;

use super::Group;
use crate::plan::AttachPlan;

/// What bpftrace attaches if it is not told otherwise: 512 up to 0.18, later 1,024.
const DEFAULT_MOST_PROBES: usize = 512;

/// Begins a line of the table of names.
const NAME_MARK: &str = "//=";

/// The comments above the program.
pub(super) fn header(
    plan: &AttachPlan,
    path: &str,
    groups: &[Group],
    probes: usize,
    left_out: &[String],
) -> String {
    let binary = &plan.binary;
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    let build_id = binary.build_id.as_ref().map_or("none", |id| &id.0);
    let names: Vec<&str> = groups.iter().map(|group| group.name()).collect();
    let mut most = String::new();
    if probes > DEFAULT_MOST_PROBES {
        most = format!("BPFTRACE_MAX_PROBES={} ", probes.next_multiple_of(100));
    }
    let mut out = String::new();
    let mut line = |text: &str| {
        let _ = match text {
            "" => writeln!(out, "//"),
            text => writeln!(out, "// {text}"),
        };
    };
    line(&format!(
        "nodeprof {}: what a Node.js program does in C++, counted by bpftrace (0.17 or newer). As root:",
        env!("CARGO_PKG_VERSION")
    ));
    line("");
    line(&format!(
        "  {most}BPFTRACE_STRLEN=200 bpftrace THIS-FILE -c '{path} app.js'"
    ));
    line("");
    line("or without -c, and Ctrl-C. Every process that executes the binary meanwhile is counted.");
    line(&format!(
        "{probes} probes ({}): about {} s more at the end, for bpftrace takes them away one by one.",
        names.join(", "),
        probes.div_ceil(10)
    ));
    line("");
    line(&format!(
        "Only for node {} (V8 {}), build-id {build_id},",
        known(&binary.node_version),
        known(&binary.v8_version)
    ));
    line(&format!(
        "{path}: addresses, registers and offsets are those of this file. readelf -n shows a file's build-id."
    ));
    if groups.iter().any(|group| group.names_callbacks()) {
        line("");
        line(
            "bpftrace cannot name functions of a process that has ended and prints their addresses. To have the names:",
        );
        line("");
        line("  bpftrace THIS-FILE -c … | awk '");
        line(&format!(
            "    NR == FNR {{ if ($1 == \"{NAME_MARK}\") name[$2] = $3; next }}"
        ));
        line(
            "    match($0, /\\[0x[0-9a-f]+\\]/) { a = substr($0, RSTART + 1, RLENGTH - 2); if (a in name) sub(a, name[a]) }",
        );
        line("    1' THIS-FILE -");
    }
    if groups.contains(&Group::Crossings) {
        line("");
        line(
            "Calls are counted where V8's functions that make them are entered. A call that V8 refuses there (a receiver of the",
        );
        line(
            "wrong type) is counted, too. Neither fast API calls nor accessors that C++ runs come there: fast-calls, accessors.",
        );
    }
    if binary.pie && groups.iter().any(|group| group.names_callbacks()) {
        line("");
        line(
            "The binary is position-independent: the table of names holds addresses before it was loaded. Fast API functions",
        );
        line("that C++ calls itself are counted as crossings.");
    }
    if !left_out.is_empty() {
        line("");
        line("Not probed:");
        for reason in left_out {
            line(&format!("  {reason}"));
        }
    }
    out
}

/// The table of names, for the awk program of the header.
pub(super) fn names(plan: &AttachPlan, out: &mut String) {
    let _ = writeln!(out, "\n// Names of addresses.");
    for callback in &plan.callbacks {
        // One word: a template's arguments have spaces.
        let name: String = callback.function.split_whitespace().collect();
        let _ = writeln!(
            out,
            "{NAME_MARK} {:#x} {}.{name}",
            callback.address.0, callback.binding
        );
    }
}
