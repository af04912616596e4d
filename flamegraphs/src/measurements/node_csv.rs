//! The CSV of Node's own `benchmark/compare.js`, which `benchmark/compare.R` and node-benchmark-compare read.

use std::path::Path;

use csv::{QuoteStyle, WriterBuilder};
use nodeprof_profile::{
    Recording,
    groups::{BASE, HEAD},
};

use super::{Variant, command_line, variants};

/// A line a bare run: `binary` is `old` for base, `new` for head, else the name; `rate` is starts per second, `time` seconds.
///
/// # Errors
/// None that a recording can cause.
pub fn node_csv(recording: &Recording) -> Result<String, csv::Error> {
    let variants = variants(recording);
    let file = file_name(&variants);
    let mut writer = WriterBuilder::new()
        .quote_style(QuoteStyle::NonNumeric)
        .from_writer(Vec::new());
    writer.write_record(["binary", "filename", "configuration", "rate", "time"])?;
    for variant in &variants {
        let binary = match variant.name.as_str() {
            BASE => "old",
            HEAD => "new",
            name => name,
        };
        let parameters: Vec<String> = variant
            .parameters
            .iter()
            .map(|(key, value)| format!("{key}='{value}'"))
            .collect();
        for seconds in variant.measured.wall.iter().filter(|s| **s > 0.0) {
            let (rate, seconds) = ((1.0 / seconds).to_string(), seconds.to_string());
            let configuration = parameters.join(" ");
            writer.write_record([binary, &file, &configuration, &rate, &seconds])?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| e.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What both sides have in common: the arguments if they are the same, else the name of the first script. Readers compare lines with the
/// same name only.
fn file_name(variants: &[Variant]) -> String {
    let Some(first) = variants.first() else {
        return String::new();
    };
    let arguments = |variant: &Variant| variant.command.get(1..).unwrap_or_default().to_vec();
    if variants.iter().all(|v| arguments(v) == arguments(first)) {
        // One line a run: some readers split at line breaks first.
        return command_line(&arguments(first)).replace('\n', " ");
    }
    let mut words = first.command.iter();
    let script = words.find(|word| Path::new(word).extension().is_some());
    let named = script.or(first.command.first()).map(|word| {
        let name = Path::new(word).file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    });
    named.unwrap_or_default()
}
