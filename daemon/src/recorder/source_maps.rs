//! Positions in transpiled scripts, as positions in the sources that they were made from.
//!
//! After a run, for each script of a JavaScript frame: the last `//# sourceMappingURL=` of its file tells where its map is,
//! in the file itself (`data:`) or in another one. The map is parsed and [`Frame::original`] set. A run whose scripts have
//! none costs nothing: that is seen when their lines are counted ([`names_a_map`]).
//!
//! The tracer is often root, and the traced program names its scripts as it likes: files are read with the rights of the
//! user who typed the command, regular ones only. What a map says is text: its `sources` are never opened.

mod map;
mod reader;
mod reference;
mod resolve;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use nodeprof_profile::recording::{FrameKind, Loss, NameId, OriginalPosition, Recording, RunId};

use super::command::Invoker;
use super::sources::path_of;
use map::Map;
pub use reader::open_regular;
use reader::{Disk, SourceReader, take_rights_of_user};
use reference::Reference;
pub use reference::names_a_map;

/// All maps of a run together take no longer: the user waits for the report. Scripts with most frames come first.
const LONGEST: Duration = Duration::from_millis(500);

/// A larger map is not read. The largest of a published package, of a bundle of all of VS Code, has some 30 MB.
const LARGEST_MAP: u64 = 32 << 20;

/// Sets [`Frame::original`](nodeprof_profile::recording::Frame) of each JavaScript frame whose script has a source map, read
/// with the rights of the user who typed the command: `invoker`, or who we run as. `mapped` are the scripts that seem to
/// name one: without any, nothing is read.
///
/// Maps that are broken or too large, and scripts for which the time did not suffice, are losses; a map that is not there
/// is none: packages often leave theirs out.
pub fn annotate(
    recording: &mut Recording,
    run: RunId,
    mapped: &HashSet<PathBuf>,
    invoker: Option<Invoker>,
) {
    let scripts = scripts(recording, |path| mapped.contains(path));
    let count = scripts.len() as u64;
    if count == 0 {
        return;
    }
    let (sender, found) = mpsc::channel();
    let reading = std::thread::Builder::new().name("source-maps".into());
    let reading = reading.spawn(move || {
        if take_rights_of_user(invoker.as_ref()).is_ok() {
            let _ = sender.send(look_up(&scripts, &Disk, Instant::now() + LONGEST));
        }
    });
    // A thread that hangs in a file system is left behind.
    let found = reading
        .ok()
        .and_then(|_| found.recv_timeout(LONGEST * 3).ok());
    match found {
        Some(found) => apply(recording, run, found),
        None => lose(recording, run, "source_maps_skipped", count),
    }
}

/// What the maps told.
#[derive(Default)]
struct Findings {
    /// Frame, and its original file, line and column.
    places: Vec<(usize, Arc<str>, u32, u32)>,
    /// Maps that are of no use.
    broken: u64,
    /// Scripts for which the time did not suffice.
    skipped: u64,
}

fn look_up(scripts: &[Script], reader: &dyn SourceReader, deadline: Instant) -> Findings {
    let mut findings = Findings::default();
    for script in scripts {
        if Instant::now() >= deadline {
            findings.skipped += 1;
            continue;
        }
        match map_of(&script.path, reader) {
            Found::Map(map, base) => place(&script.places, &map, &base, &mut findings),
            Found::Broken => findings.broken += 1,
            Found::Nothing => {}
        }
    }
    findings
}

fn apply(recording: &mut Recording, run: RunId, findings: Findings) {
    // Filled when it is first needed: most maps are not there.
    let mut names: HashMap<Vec<u8>, NameId> = HashMap::new();
    for (frame, file, line, column) in findings.places {
        if names.is_empty() {
            names.extend(recording.names.iter().cloned().zip((0..).map(NameId)));
        }
        let file = *names
            .entry(file.as_bytes().to_vec())
            .or_insert_with_key(|name| {
                recording.names.push(name.clone());
                NameId(recording.names.len() as u32 - 1)
            });
        if let Some(frame) = recording.frames.get_mut(frame) {
            frame.original = Some(OriginalPosition { file, line, column });
        }
    }
    lose(recording, run, "source_maps_broken", findings.broken);
    lose(recording, run, "source_maps_skipped", findings.skipped);
}

fn lose(recording: &mut Recording, run: RunId, kind: &str, count: u64) {
    if count > 0 {
        recording.losses.push(Loss {
            run,
            kind: kind.into(),
            count,
        });
    }
}

/// A script that can have a map.
struct Script {
    path: PathBuf,
    /// Frames by index, with line and column.
    places: Vec<(usize, u32, u32)>,
}

/// Scripts of frames, those with most frames first. None are Node's own, nor what eval made.
fn scripts(recording: &Recording, is_wanted: impl Fn(&Path) -> bool) -> Vec<Script> {
    let mut scripts: BTreeMap<NameId, Vec<(usize, u32, u32)>> = BTreeMap::new();
    for (index, frame) in recording.frames.iter().enumerate() {
        // Optimised code tells no call: the beginning of the function is as near as one gets.
        let (line, column) = match frame.line {
            Some(_) => (frame.line, frame.column),
            None => (frame.function_line, frame.function_column),
        };
        if let (FrameKind::JavaScript, Some(file), Some(line)) = (frame.kind, frame.file, line) {
            let place = (index, line, column.unwrap_or(1));
            scripts.entry(file).or_default().push(place);
        }
    }
    let mut scripts: Vec<Script> = scripts
        .into_iter()
        .filter_map(|(file, places)| {
            let path = path_of(recording.name(file)).filter(|path| is_wanted(path))?;
            Some(Script { path, places })
        })
        .collect();
    scripts.sort_by_key(|script| std::cmp::Reverse(script.places.len()));
    scripts
}

enum Found {
    /// With the path or URL that its sources are relative to.
    Map(Map, String),
    /// There is one, and it is of no use.
    Broken,
    Nothing,
}

fn map_of(path: &Path, reader: &dyn SourceReader) -> Found {
    let Some((mut file, base)) = reader.open(path).zip(path.to_str()) else {
        return Found::Nothing;
    };
    let json = match reference::find(&mut file) {
        None => return Found::Nothing,
        Some(Reference::Inline(json)) => json.map(|json| (json, base.to_owned())),
        Some(Reference::TooLarge) => None,
        Some(Reference::File(url)) => {
            let Some(path) = resolve::file(base, &url) else {
                // On the network, say: nothing that was there to be read.
                return Found::Nothing;
            };
            let Some(mut file) = reader.open(path.as_ref()) else {
                return Found::Nothing;
            };
            file.all(LARGEST_MAP).map(|json| (json, path))
        }
    };
    let parsed = json.and_then(|(json, base)| Some((Map::parse(&json)?, base)));
    match parsed {
        Some((map, base)) => Found::Map(map, base),
        None => Found::Broken,
    }
}

fn place(places: &[(usize, u32, u32)], map: &Map, base: &str, findings: &mut Findings) {
    let mut files: HashMap<u32, Arc<str>> = HashMap::new();
    for &(frame, line, column) in places {
        let Some((found, source)) = map
            .find(line, column)
            .and_then(|found| Some((found, map.source(found.source)?)))
        else {
            continue;
        };
        let file = files
            .entry(found.source)
            .or_insert_with(|| resolve::source(base, source.root, source.name).into());
        let place = (frame, file.clone(), found.line, found.column);
        findings.places.push(place);
    }
}

#[cfg(test)]
mod tests;
