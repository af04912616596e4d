//! Prints what a plan holds and how long it takes: `cargo run --release -p nodeprof-probes --example plan_ms -- NODE…`
//! (with `PLAN_JSON=1` the whole plan as well).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nodeprof_probes::{AttachPlan, PlanError, ProbeState, is_node_binary};

fn main() {
    for path in std::env::args_os().skip(1).map(PathBuf::from) {
        if let Err(error) = report(&path) {
            eprintln!("{error}");
        }
    }
}

fn report(path: &Path) -> Result<(), PlanError> {
    let milliseconds = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let is_node = is_node_binary(path);
    let look = milliseconds(start);
    let start = Instant::now();
    let plan = AttachPlan::for_binary(path)?;
    let cold = milliseconds(start);
    AttachPlan::load_or_build(path, None)?;
    let start = Instant::now();
    let (_, outcome) = AttachPlan::load_or_build(path, None)?;
    let warm = milliseconds(start);
    println!(
        "{} V8 {}: is node: {is_node} in {look:.3} ms, plan in {cold:.0} ms, again in {warm:.2} ms ({outcome:?})",
        plan.binary.node_version.as_deref().unwrap_or("?"),
        plan.binary.v8_version.as_deref().unwrap_or("?"),
    );
    let mut counts: BTreeMap<_, [usize; 5]> = BTreeMap::new();
    for probe in &plan.probes {
        let row = counts.entry(probe.family).or_default();
        let column = match probe.state {
            ProbeState::Resolved => 0,
            ProbeState::SlowInstruction => 1,
            ProbeState::Absent => 2,
            ProbeState::Unsafe => 3,
        };
        row[column] += 1;
        row[4] += usize::from(probe.with_return);
    }
    for (family, [resolved, slow, absent, unsafe_, returns]) in counts {
        println!(
            "  {family:?}: {resolved} resolved, {slow} slow, {absent} absent, {unsafe_} unsafe; {returns} with return"
        );
    }
    println!("  milestones {:?}", plan.milestones);
    if std::env::var_os("PLAN_JSON").is_some() {
        match serde_json::to_string_pretty(&plan) {
            Ok(json) => println!("{json}"),
            Err(error) => eprintln!("{error}"),
        }
    }
    Ok(())
}
