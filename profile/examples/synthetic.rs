//! Writes a synthetic recording, for benchmarks: `synthetic FILE CROSSINGS [RUNS]`.

use nodeprof_profile::{Recording, SaveOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let usage = "type: synthetic FILE CROSSINGS [RUNS]";
    let file = arguments.next().ok_or(usage)?;
    let crossings: usize = arguments
        .next()
        .and_then(|n| n.to_str()?.parse().ok())
        .ok_or(usage)?;
    let runs: usize = match arguments.next() {
        Some(runs) => runs.to_str().and_then(|n| n.parse().ok()).ok_or(usage)?,
        None => 1,
    };
    let mut recording = Recording::synthetic(crossings);
    for _ in 1..runs {
        recording.append(Recording::synthetic(crossings));
    }
    // Half of the runs are base, the others head; a run alone has no side.
    for (index, run) in recording.runs.iter_mut().enumerate().filter(|_| runs > 1) {
        let side = if index % 2 == 0 { "base" } else { "head" };
        run.labels.push(("name".into(), side.into()));
    }
    recording.save(file, SaveOptions { overwrite: true })?;
    Ok(())
}
