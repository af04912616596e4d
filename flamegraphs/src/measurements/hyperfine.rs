//! The JSON of `hyperfine --export-json` (1.18 and newer; `memory_usage_byte` since 1.19).

use std::collections::BTreeMap;

use nodeprof_profile::{Recording, statistics::Summary};
use serde::Serialize;

use super::{command_line, variants};

#[derive(Serialize)]
struct Export {
    results: Vec<Exported>,
}

/// One command. Times are seconds.
#[derive(Serialize)]
struct Exported {
    command: String,
    mean: f64,
    stddev: Option<f64>,
    median: f64,
    user: f64,
    system: f64,
    min: f64,
    max: f64,
    times: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    memory_usage_byte: Vec<u64>,
    exit_codes: Vec<Option<i32>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<String, String>,
}

/// Times of the bare runs, command by command; a command without any is left out.
///
/// # Errors
/// None that a recording can cause.
pub fn hyperfine_json(recording: &Recording) -> serde_json::Result<String> {
    let mean = |values: &[f64]| Summary::of(values).map_or(0.0, |s| s.mean);
    let results = variants(recording)
        .into_iter()
        .filter_map(|variant| {
            let measured = variant.measured;
            let wall = Summary::of(&measured.wall)?;
            // A name stands for the command, as with hyperfine's --command-name.
            let command = match variant.named && variant.parameters.is_empty() {
                true => variant.name,
                false => command_line(&variant.command),
            };
            Some(Exported {
                command,
                mean: wall.mean,
                stddev: (wall.count > 1).then_some(wall.standard_deviation),
                median: wall.median,
                user: mean(&measured.user),
                system: mean(&measured.system),
                min: wall.minimum,
                max: wall.maximum,
                memory_usage_byte: measured.max_rss.iter().map(|b| *b as u64).collect(),
                times: measured.wall,
                exit_codes: measured.exit_statuses,
                parameters: variant.parameters,
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&Export { results })? + "\n")
}
