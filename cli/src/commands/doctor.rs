//! `nodeprof doctor`.

use std::{fmt::Write as _, io, path::Path, process::ExitCode};

use nodeprof_bpf::preflight::{Check, Outcome, checks, checks_beside_a_service, is_permitted};
use nodeprof_probes::{AttachPlan, Family, ProbeState};
use nodeprofd::control::{AskError, Client, DEFAULT_SOCKET};

use crate::{
    args::{Color, Doctor},
    terminal,
};

/// Checks the machine; exit 0 only if `trace` can work fully.
pub fn run(args: &Doctor, color: Color) -> anyhow::Result<ExitCode> {
    let plan = super::plan(args.node.as_ref());
    let mut all = of_machine(args, plan.as_ref().ok());
    all.push(of_node(&plan));
    let color = terminal::colored(color, &io::stdout());
    terminal::printed(terminal::print(&text(&all, color, terminal::room())))?;
    Ok(if all.iter().all(|c| c.outcome == Outcome::Ok) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What this user may do, or what the service does for them.
fn of_machine(args: &Doctor, plan: Option<&AttachPlan>) -> Vec<Check> {
    let service = Client::new(&args.tracer.service);
    match service.status() {
        Ok(status) if status.may_trace && !is_permitted() => {
            let mut all = checks_beside_a_service();
            all.push(Check {
                name: "nodeprofd",
                found: format!(
                    "{} traces your own programs for you, without kernel frames",
                    status.version
                ),
                outcome: Outcome::Ok,
            });
            all
        }
        // A service that is not there is nothing amiss, unless it was named.
        Err(error)
            if !is_permitted()
                && (args.tracer.service != Path::new(DEFAULT_SOCKET)
                    || !matches!(error, AskError::NotRunning { .. })) =>
        {
            let mut all = checks(plan);
            all.push(Check {
                name: "nodeprofd",
                found: "does not trace for you".to_owned(),
                outcome: Outcome::Limited(error.to_string()),
            });
            all
        }
        _ => checks(plan),
    }
}

/// Whether there is a node, and what of it can be probed.
fn of_node(plan: &anyhow::Result<AttachPlan>) -> Check {
    let plan = match plan {
        Ok(plan) => plan,
        Err(error) => {
            return Check {
                name: "node",
                found: "cannot be probed".into(),
                outcome: Outcome::Failed(format!("{error:#}")),
            };
        }
    };
    let version = (plan.binary.node_version.as_deref()).unwrap_or("of unknown version");
    let probes = plan.probes.iter().filter(|p| p.family != Family::Verify);
    let resolved = probes.clone().filter(|p| p.is_attachable()).count();
    let unsafe_ones = probes.filter(|p| p.state == ProbeState::Unsafe).count();
    Check {
        name: "node",
        found: format!(
            "{} {version}: {resolved} probes, {unsafe_ones} unsafe",
            plan.binary.path.display()
        ),
        outcome: Outcome::Ok,
    }
}

/// A line for each check, and one for what to do.
fn text(all: &[Check], color: bool, room: Option<usize>) -> String {
    let mut text = String::new();
    for check in all {
        let (word, code, todo) = match &check.outcome {
            Outcome::Ok => ("ok", "32", None),
            Outcome::Limited(todo) => ("limited", "33", Some(todo)),
            Outcome::Failed(todo) => ("failed", "31", Some(todo)),
        };
        let word = format!("{word:<7}");
        let word = if color {
            format!("\x1b[{code}m{word}\x1b[0m")
        } else {
            word
        };
        let found = terminal::broken(&check.found, 23, room);
        let _ = writeln!(text, "{word}  {:<13} {found}", check.name);
        if let Some(todo) = todo {
            let todo = terminal::broken(todo, 25, room);
            let _ = writeln!(text, "{:22} → {todo}", "");
        }
    }
    text
}
