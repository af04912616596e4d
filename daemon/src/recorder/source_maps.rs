//! Positions in transpiled scripts, as positions in the sources that they were made from.
//!
//! After a run, for each script of a JavaScript frame: the last `//# sourceMappingURL=` of its text tells where its map is,
//! in the text itself (`data:`) or in a file. The text is that of the script's file, unless it came with the records: loaders that transpile
//! (tsx, ts-node) run what is in no file. A file that names none may have one beside it all the same (`hidden-source-map`), `a.js.map` for `a.js`. The map is
//! parsed and [`Frame::original`] set. Which files name one is seen when their lines are counted ([`names_a_map`]).
//!
//! The tracer is often root, and the traced program names its scripts as it likes: files are read with the rights of the
//! user who typed the command, regular ones only. What a map says is text: its `sources` are never opened.

mod map;
mod reader;
mod reference;
mod resolve;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use nodeprof_profile::recording::{FrameKind, Loss, NameId, OriginalPosition, Recording, RunId};

use super::command::Invoker;
use super::sources::path_of;
use map::{Found, Map};
pub use reader::open_regular;
use reader::{Disk, SourceReader, take_rights_of_user};
pub use reference::{Reference, in_text, names_a_map, own_name};
pub use resolve::shown;

/// All maps of a run together take no longer: the user waits for the report. Scripts with most frames come first.
const LONGEST: Duration = Duration::from_millis(500);

/// A larger map is not read. The largest of a published package, of a bundle of all of VS Code, has some 30 MB.
const LARGEST_MAP: u64 = 32 << 20;

/// What is known of the scripts of a run before their maps are read.
#[derive(Default)]
pub struct Known {
    /// Files, and whether they seem to name a map.
    pub files: HashMap<PathBuf, bool>,
    /// By the name of a script whose text came with the records: what that says.
    pub texts: HashMap<Vec<u8>, Reference>,
}

/// Sets [`Frame::original`](nodeprof_profile::recording::Frame) of each JavaScript frame whose script has a source map, read
/// with the rights of the user who typed the command: `invoker`, or who we run as.
///
/// Maps that are broken or too large, and scripts for which the time did not suffice, are losses; a map that is not there
/// is none: packages often leave theirs out.
pub fn annotate(recording: &mut Recording, run: RunId, known: Known, invoker: Option<Invoker>) {
    let scripts = scripts(recording, &known);
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
        match map_of(script, reader) {
            Lookup::Map(map, base) => place(script, &map, &base, &mut findings),
            Lookup::Broken => findings.broken += 1,
            Lookup::Nothing => {}
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

/// A frame by its index, with line and column.
type Place = (usize, u32, u32);

/// A script that can have a map.
struct Script {
    /// Absolute, or a URL that is no file's.
    path: String,
    says: Says,
    /// It was evaluated, and only names itself.
    is_evaluated: bool,
    places: Vec<Place>,
}

/// What a script says of its map.
enum Says {
    /// To be looked for in its file.
    InFile,
    /// Its file says nothing.
    Nothing,
    /// Its text has been looked at.
    Text(Reference),
}

/// Scripts of frames, those with most frames first. None are Node's own.
fn scripts(recording: &Recording, known: &Known) -> Vec<Script> {
    let mut scripts: BTreeMap<(NameId, bool), Vec<Place>> = BTreeMap::new();
    for (index, frame) in recording.frames.iter().enumerate() {
        // Optimised code tells no call: the beginning of the function is as near as one gets.
        let (file, line, column) = match (frame.original, frame.line) {
            // Evaluated: where it stood in what it says that it is.
            (Some(place), _) => (Some(place.file), Some(place.line), Some(place.column)),
            (None, Some(_)) => (frame.file, frame.line, frame.column),
            (None, None) => (frame.file, frame.function_line, frame.function_column),
        };
        if let (FrameKind::JavaScript, Some(file), Some(line)) = (frame.kind, file, line) {
            let place = (index, line, column.unwrap_or(1));
            let key = (file, frame.is_evaluated());
            scripts.entry(key).or_default().push(place);
        }
    }
    let mut scripts: Vec<Script> = scripts
        .into_iter()
        .filter_map(|((file, is_evaluated), places)| {
            let name = recording.name(file);
            let path = path_of(name);
            let says = match known.texts.get(name) {
                Some(reference) => Says::Text(reference.clone()),
                None if is_evaluated => return None,
                None => match known.files.get(path.as_ref()?)? {
                    true => Says::InFile,
                    false => Says::Nothing,
                },
            };
            let path = match path {
                Some(path) => path.into_os_string().into_string().ok()?,
                None => String::from_utf8_lossy(name).into_owned(),
            };
            Some(Script {
                path,
                says,
                is_evaluated,
                places,
            })
        })
        .collect();
    scripts.sort_by_key(|script| std::cmp::Reverse(script.places.len()));
    scripts
}

enum Lookup {
    /// With the path or URL that its sources are relative to.
    Map(Map, String),
    /// There is one, and it is of no use.
    Broken,
    Nothing,
}

fn map_of(script: &Script, reader: &dyn SourceReader) -> Lookup {
    let base = script.path.as_str();
    let found = match &script.says {
        Says::Nothing => return beside(base, reader),
        Says::Text(reference) => Some(reference.clone()),
        Says::InFile => {
            let file = reader.open(base.as_ref());
            file.and_then(|mut file| reference::find(&mut file))
        }
    };
    let json = match found {
        None => return Lookup::Nothing,
        Some(Reference::Inline(json)) => json.map(|json| (json, base.to_owned())),
        Some(Reference::TooLarge) => None,
        Some(Reference::File(url)) => {
            let Some(path) = resolve::file(base, &url).filter(|path| path.starts_with('/')) else {
                // On the network, say: nothing that was there to be read.
                return Lookup::Nothing;
            };
            let Some(mut file) = reader.open(path.as_ref()) else {
                return Lookup::Nothing;
            };
            file.all(LARGEST_MAP).map(|json| (json, path))
        }
    };
    let parsed = json.and_then(|(json, base)| Some((Map::parse(&json)?, base)));
    match parsed {
        Some((map, base)) => Lookup::Map(map, base),
        None => Lookup::Broken,
    }
}

/// The map of a script that does not name it. What lies there and is none is no loss.
fn beside(script: &str, reader: &dyn SourceReader) -> Lookup {
    let path = format!("{script}.map");
    let json = reader.open(path.as_ref());
    let json = json.and_then(|mut file| file.all(LARGEST_MAP));
    let is_of_script = |map: &Map| {
        let name = script.rsplit('/').next();
        map.file()
            .is_none_or(|file| file.rsplit('/').next() == name)
    };
    match json.and_then(|json| Map::parse(&json)).filter(is_of_script) {
        Some(map) => Lookup::Map(map, path),
        None => Lookup::Nothing,
    }
}

fn place(script: &Script, map: &Map, base: &str, findings: &mut Findings) {
    // What comes before all that the map knows of, in code that was evaluated for one file, is of that file, too.
    let unknown = script.is_evaluated.then_some(Found {
        source: 0,
        line: 1,
        column: 1,
    });
    let mut files: HashMap<u32, Arc<str>> = HashMap::new();
    for &(frame, line, column) in &script.places {
        let Some((found, source)) = map
            .find(line, column)
            .or(unknown)
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
