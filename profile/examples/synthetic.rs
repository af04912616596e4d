//! Writes a synthetic recording, for benchmarks: `synthetic FILE CROSSINGS`.

use nodeprof_profile::{Recording, SaveOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let usage = "type: synthetic FILE CROSSINGS";
    let file = arguments.next().ok_or(usage)?;
    let crossings: usize = arguments
        .next()
        .and_then(|n| n.to_str()?.parse().ok())
        .ok_or(usage)?;
    Recording::synthetic(crossings).save(file, SaveOptions { overwrite: true })?;
    Ok(())
}
