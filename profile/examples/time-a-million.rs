//! Times saving, loading and deriving: `cargo run --release -p nodeprof-profile --example time-a-million [CROSSINGS]`.

use std::time::Instant;

use nodeprof_profile::{Profile, Recording, SaveOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let crossings = match std::env::args().nth(1) {
        Some(number) => number.parse()?,
        None => 1_000_000,
    };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("synthetic.nodeprof");

    let (recording, _) = timed("make", || Ok(Recording::synthetic(crossings)))?;
    timed(
        "save",
        || Ok(recording.save(&path, SaveOptions::default())?),
    )?;
    println!("{:>10} bytes", std::fs::metadata(&path)?.len());
    drop(recording);
    let (loaded, load) = timed("load", || Ok(Recording::load(&path)?))?;
    let (profile, derive) = timed("derive", || Ok(Profile::from_recording(&loaded)))?;
    let (json, _) = timed("to JSON", || Ok(serde_json::to_string(&profile)?))?;
    println!("{:>10} bytes", json.len());
    println!("load + derive: {:.1} ms", load + derive);
    Ok(())
}

type Failure = Box<dyn std::error::Error>;

fn timed<T>(what: &str, run: impl FnOnce() -> Result<T, Failure>) -> Result<(T, f64), Failure> {
    let start = Instant::now();
    let result = run()?;
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    println!("{milliseconds:10.1} ms  {what}");
    Ok((result, milliseconds))
}
