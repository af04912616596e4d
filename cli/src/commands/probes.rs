//! `nodeprof probes`.

use std::{fmt::Write as _, io, process::ExitCode};

use nodeprof_probes::{
    AttachPlan, Probe, ProbeState,
    bpftrace::{self, Group},
};
use serde_json::json;

use crate::{
    args::{Color, Format, Probes},
    terminal,
};

/// Lists what can be probed in a node binary.
pub fn run(args: &Probes, color: Color) -> anyhow::Result<ExitCode> {
    let plan = super::plan(args.node.as_ref())?;
    let text = match args.format {
        _ if args.bpftrace => bpftrace::program(&plan, &groups(&args.families))?,
        Format::Json => serde_json::to_string_pretty(&as_json(&plan))? + "\n",
        Format::Text => as_text(&plan, terminal::colored(color, &io::stdout())),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The groups of these names, or those with few probes.
fn groups(names: &[String]) -> Vec<Group> {
    if names.is_empty() {
        return Group::DEFAULT.to_vec();
    }
    let named = |name: &String| Group::by_name(name);
    names.iter().filter_map(named).collect()
}

fn state(probe: &Probe) -> &'static str {
    match probe.state {
        ProbeState::Resolved => "resolved",
        ProbeState::SlowInstruction => "slow instruction",
        ProbeState::Absent => "absent",
        ProbeState::Unsafe => "unsafe",
    }
}

fn family(probe: &Probe) -> String {
    // The JSON name of the enum: one spelling everywhere.
    serde_json::to_value(probe.family)
        .ok()
        .and_then(|v| v.as_str().map(String::from))
        .unwrap_or_default()
}

fn as_json(plan: &AttachPlan) -> serde_json::Value {
    let probes: Vec<_> = plan
        .probes
        .iter()
        .map(|p| {
            json!({
                "symbol": p.symbol, "family": family(p), "role": p.role, "state": state(p), "reason": p.reason,
                "address": p.address, "file_offset": p.offset, "return_probe": p.with_return,
            })
        })
        .collect();
    json!({
        "schema": 1,
        "node": {
            "path": plan.binary.path.to_string_lossy(), "version": plan.binary.node_version,
            "v8": plan.binary.v8_version, "build_id": plan.binary.build_id, "arch": plan.binary.arch,
        },
        "callbacks": plan.callbacks.len(),
        "probes": probes,
    })
}

fn as_text(plan: &AttachPlan, color: bool) -> String {
    let paint = |code: &str, text: String| {
        if color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text
        }
    };
    let mut out = String::new();
    let b = &plan.binary;
    let _ = writeln!(
        out,
        "{}  node {}  V8 {}  {}  build-id {}\n",
        b.path.display(),
        b.node_version.as_deref().unwrap_or("of unknown version"),
        b.v8_version.as_deref().unwrap_or("of unknown version"),
        b.arch,
        b.build_id.as_ref().map_or("none", |i| &i.0),
    );
    let mut families: Vec<String> = Vec::new();
    for name in plan.probes.iter().map(family) {
        if !families.contains(&name) {
            families.push(name);
        }
    }
    for name in families {
        let members: Vec<&Probe> = plan.probes.iter().filter(|p| family(p) == name).collect();
        let counts: Vec<String> = [
            ProbeState::Resolved,
            ProbeState::SlowInstruction,
            ProbeState::Absent,
            ProbeState::Unsafe,
        ]
        .into_iter()
        .filter_map(|s| {
            let of_state: Vec<_> = members.iter().filter(|p| p.state == s).collect();
            of_state
                .first()
                .map(|p| format!("{} {}", of_state.len(), state(p)))
        })
        .collect();
        let _ = writeln!(
            out,
            "{}",
            paint("1", format!("{name}: {}", counts.join(", ")))
        );
        for p in members {
            let shown = match p.state {
                ProbeState::Resolved => paint("32", format!("{:<16}", state(p))),
                ProbeState::SlowInstruction => paint("33", format!("{:<16}", state(p))),
                ProbeState::Absent => paint("2", format!("{:<16}", state(p))),
                ProbeState::Unsafe => paint("31", format!("{:<16}", state(p))),
            };
            let kind = if p.with_return {
                "enter+return"
            } else {
                "enter"
            };
            let address = p
                .address
                .map_or_else(|| format!("{:>12}", "–"), |a| format!("{:>#12x}", a.0));
            let reason = p
                .reason
                .as_deref()
                .map(|r| format!("  ({r})"))
                .unwrap_or_default();
            let _ = writeln!(out, "  {shown} {address}  {kind:<12}  {}{reason}", p.symbol);
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "{} C++ functions that JavaScript can call are known by name",
        plan.callbacks.len()
    );
    out
}
