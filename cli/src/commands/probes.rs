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
        Format::Text => as_text(
            &plan,
            terminal::colored(color, &io::stdout()),
            terminal::room(),
        ),
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

/// The column of what is probed: the entry, or the return, too.
const KIND: usize = 33;
/// The column of the function.
const SYMBOL: usize = 47;
/// Where a line of its own begins that does not fit into the columns.
const INDENT: usize = 4;

/// `room`: columns of the terminal that it is for.
fn as_text(plan: &AttachPlan, color: bool, room: Option<usize>) -> String {
    let mut out = String::new();
    let b = &plan.binary;
    let binary = format!(
        "{}  node {}  V8 {}  {}  build-id {}",
        b.path.display(),
        b.node_version.as_deref().unwrap_or("of unknown version"),
        b.v8_version.as_deref().unwrap_or("of unknown version"),
        b.arch,
        b.build_id.as_ref().map_or("none", |i| &i.0),
    );
    let _ = writeln!(out, "{}\n", terminal::broken(&binary, 0, room));
    let mut families: Vec<String> = Vec::new();
    for name in plan.probes.iter().map(family) {
        if !families.contains(&name) {
            families.push(name);
        }
    }
    for name in families {
        let members: Vec<&Probe> = plan.probes.iter().filter(|p| family(p) == name).collect();
        let heading = format!("{name}: {}", by_state(&members));
        let _ = writeln!(out, "{}", painted(color, "1", heading));
        for probe in members {
            let _ = writeln!(out, "{}", line(probe, color, room));
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

fn painted(color: bool, code: &str, text: String) -> String {
    match color {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text,
    }
}

/// How many probes of a family are in which state.
fn by_state(members: &[&Probe]) -> String {
    let states = [
        ProbeState::Resolved,
        ProbeState::SlowInstruction,
        ProbeState::Absent,
        ProbeState::Unsafe,
    ];
    let counts = states.into_iter().filter_map(|s| {
        let mut of_state = members.iter().filter(|p| p.state == s);
        let first = of_state.next()?;
        Some(format!("{} {}", 1 + of_state.count(), state(first)))
    });
    counts.collect::<Vec<_>>().join(", ")
}

/// A probe; the reason for its state is on a line of its own where it does not fit.
fn line(probe: &Probe, color: bool, room: Option<usize>) -> String {
    let code = match probe.state {
        ProbeState::Resolved => "32",
        ProbeState::SlowInstruction => "33",
        ProbeState::Absent => "2",
        ProbeState::Unsafe => "31",
    };
    let shown = painted(color, code, format!("{:<16}", state(probe)));
    let kind = match probe.with_return {
        true => "enter+return",
        false => "enter",
    };
    let address = probe
        .address
        .map_or_else(|| format!("{:>12}", "–"), |a| format!("{:>#12x}", a.0));
    let symbol = shortened(&probe.symbol, room.map(|room| room.saturating_sub(SYMBOL)));
    let mut line = format!("  {shown} {address}  {kind:<12}  {symbol}");
    if let Some(reason) = &probe.reason {
        let reason = format!("({reason})");
        let wide = SYMBOL + symbol.chars().count() + 2 + reason.chars().count();
        match room.filter(|room| wide > *room) {
            None => line.push_str(&format!("  {reason}")),
            Some(room) => {
                let words = reason.split(' ').map(|word| word.chars().count());
                let fits = words.max().is_some_and(|longest| KIND + longest <= room);
                let begin = if fits { KIND } else { INDENT };
                let broken = terminal::broken(&reason, begin, Some(room));
                line.push_str(&format!("\n{:begin$}{broken}", ""));
            }
        }
    }
    line
}

/// A function without its parameters where there is no room for them, and without the beginning of its name where there is none for that.
fn shortened(symbol: &str, room: Option<usize>) -> String {
    let Some(room) = room.filter(|room| symbol.chars().count() > *room) else {
        return symbol.to_owned();
    };
    let name = match parameters(symbol) {
        Some(at) if !symbol[at..].starts_with("()") => format!("{}(…)", &symbol[..at]),
        _ => symbol.to_owned(),
    };
    let more = name.chars().count().saturating_sub(room);
    match more {
        0 => name,
        more => format!("…{}", name.chars().skip(more + 1).collect::<String>()),
    }
}

/// Where the parameters of a function begin.
fn parameters(symbol: &str) -> Option<usize> {
    let mut depth = 0;
    let mut brackets = symbol.rmatch_indices(['(', ')']);
    let opening = brackets.find(|(_, bracket)| {
        depth += if *bracket == ")" { 1 } else { -1 };
        depth == 0
    });
    opening.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_function_loses_its_parameters_first() {
        let symbol = "v8::(anonymous namespace)::Get(v8::Info<v8::Value, f(int)> const&) const";
        assert_eq!(shortened(symbol, None), symbol);
        assert_eq!(shortened(symbol, Some(80)), symbol);
        let name = "v8::(anonymous namespace)::Get(…)";
        assert_eq!(shortened(symbol, Some(71)), name);
        assert_eq!(shortened(symbol, Some(33)), name);
        assert_eq!(shortened(symbol, Some(9)), "…::Get(…)");
        assert_eq!(shortened("Builtins_Call", Some(6)), "…_Call");
        assert_eq!(shortened("node::Run()", Some(6)), "…Run()");
    }
}
