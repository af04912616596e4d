//! A page for the browser: one self-contained HTML file with all views of a recording, or of two groups of runs.
//!
//! The page itself is made of TypeScript in `flamegraphs/page/` and embedded by the build ([`is_built`]); here its data are
//! put together. They stand in the file as `base64(gzip(length, JSON, columns))`: the length of the JSON as four bytes,
//! little-endian; the JSON, which has the figures of `nodeprof report --format json` or `nodeprof diff --format json` as
//! they are; then columns of numbers, to which the JSON points, for events and stacks. Nothing of it is HTML, so nothing that a
//! traced program is called can become markup or a script.

mod columns;
mod differentials;
mod events;

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::diff::Diff;
use nodeprof_profile::diff::sides::{ending, usual_ending};
use nodeprof_profile::groups::Group;
use nodeprof_profile::measured::Measured;
use nodeprof_profile::recording::{Run, RunId};
use nodeprof_profile::report::Document;
use nodeprof_profile::{Profile, Recording};
use serde::Serialize;

use crate::measurements::{command_line, variants};
use columns::Columns;

/// Version of the data; the page refuses others.
pub const FORMAT: u32 = 1;

/// The page without data; empty if it was not built.
const TEMPLATE: &str = include_str!(concat!(env!("OUT_DIR"), "/page.html"));
/// Where its data go.
const DATA: &str = "@@nodeprof-data@@";
/// What it may connect to.
const CONNECT: &str = "@@nodeprof-connect@@";

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// This nodeprof was compiled without.
    #[error(
        "found: a nodeprof that was built without its HTML page; needed: Node.js with npm when it is built; install them, then type: make build (everything but HTML works without)"
    )]
    NotBuilt,
    /// It could not be put together.
    #[error("writing the page's data")]
    Json(#[from] serde_json::Error),
    /// Its data have more bytes than a page can tell.
    #[error(
        "found: more than 4 GiB of data; needed: fewer runs in a page; for one of them, type: --run N"
    )]
    TooLarge,
    /// It could not be compressed.
    #[error("compressing the page's data")]
    Io(#[from] std::io::Error),
}

/// Whether there is a page in this binary.
pub fn is_built() -> bool {
    !TEMPLATE.is_empty()
}

/// Runs of one recording, to be shown.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// What they are called; empty if there is no other side.
    pub name: &'a str,
    /// The file, as it is to be typed in commands.
    pub file: &'a str,
    /// The observations.
    pub recording: &'a Recording,
    /// The figures of all its runs, in the recording's order.
    pub profile: &'a Profile,
    /// Which runs.
    pub group: Group,
    /// The run whose events are shown. `None`: [`Side::typical`].
    pub shown: Option<RunId>,
}

impl Side<'_> {
    /// Of the runs with probes that ended as most did, the one with the middle wall time; or else the first run.
    pub fn typical(&self) -> Option<RunId> {
        let recording = self.recording;
        let usual = usual_ending(recording, &self.group);
        let probed = self.group.probed(recording);
        let mut runs = probed
            .filter(recording, |run| usual.as_ref() == Some(&ending(run)))
            .runs;
        let wall = |id: &RunId| {
            let run = &recording.runs[id.0 as usize];
            run.ended.0.saturating_sub(run.started.0)
        };
        runs.retain(|id| (id.0 as usize) < recording.runs.len());
        runs.sort_by_key(wall);
        let middle = runs.get(runs.len().saturating_sub(1) / 2);
        middle.or(self.group.runs.first()).copied()
    }

    /// Runs with probes that ended as most.
    fn comparable(&self) -> Group {
        let usual = usual_ending(self.recording, &self.group);
        let probed = self.group.probed(self.recording);
        probed.filter(self.recording, |run| usual.as_ref() == Some(&ending(run)))
    }
}

/// Where a page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In a file: it may connect to nothing at all.
    #[default]
    File,
    /// On nodeprof's own server, to which alone it may connect.
    Server,
}

/// What the page reads.
#[derive(Serialize)]
struct Data<'a> {
    format: u32,
    generator: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sides: Vec<SideData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<&'a Diff>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differentials: Vec<differentials::Of>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<&'a serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    starts: Option<&'a serde_json::Value>,
}

#[derive(Serialize)]
struct SideData {
    name: String,
    file: String,
    /// As `nodeprof report --format json` has it: all runs of a report; of a diff's side, the shown one.
    profile: Document<'static>,
    /// Index of the shown run in that profile.
    shown: usize,
    /// Its number in the recording, from 1.
    number: u32,
    /// How many runs there are in the recording.
    runs: usize,
    /// What the shown run lacks, in whole sentences.
    losses: Vec<String>,
    measured: Vec<MeasuredRuns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<events::Events>,
}

/// Times and memory of runs of one command, for box plots. Times are seconds.
#[derive(Serialize)]
struct MeasuredRuns {
    name: String,
    command: String,
    /// Without probes.
    bare: bool,
    wall: Vec<f64>,
    user: Vec<f64>,
    system: Vec<f64>,
    max_rss: Vec<f64>,
    uss: Vec<f64>,
}

impl MeasuredRuns {
    /// The runs without probes, if there are some.
    fn of(recording: &Recording, group: &Group, command: String) -> Option<MeasuredRuns> {
        let is_bare = !group.bare(recording).runs.is_empty();
        MeasuredRuns::of_kind(recording, group, command, is_bare)
    }

    fn of_kind(
        recording: &Recording,
        group: &Group,
        command: String,
        is_bare: bool,
    ) -> Option<MeasuredRuns> {
        let runs = match is_bare {
            true => group.bare(recording),
            false => group.probed(recording),
        };
        let measured = Measured::of(recording, &runs);
        (!measured.wall.is_empty()).then(|| MeasuredRuns {
            name: group.name.clone(),
            command,
            bare: is_bare,
            wall: measured.wall,
            user: measured.user,
            system: measured.system,
            max_rss: measured.max_rss,
            uss: measured.uss,
        })
    }
}

/// The page of a recording.
pub fn report(side: &Side<'_>, place: Place) -> Result<String, PageError> {
    let mut columns = Columns::default();
    let data = side_data(side, None, &mut columns)?;
    page(
        &Data {
            kind: "report",
            sides: vec![data],
            ..empty()
        },
        &columns,
        place,
    )
}

/// The page of a comparison.
pub fn comparison(
    base: &Side<'_>,
    head: &Side<'_>,
    diff: &Diff,
    place: Place,
) -> Result<String, PageError> {
    let mut columns = Columns::default();
    let sides = vec![
        side_data(base, Some(diff.verdict.bare), &mut columns)?,
        side_data(head, Some(diff.verdict.bare), &mut columns)?,
    ];
    let (differentials, missing) = differentials::all(
        (base, base.comparable()),
        (head, head.comparable()),
        diff.tests.varying_events,
        &mut columns,
    );
    page(
        &Data {
            kind: "diff",
            sides,
            diff: Some(diff),
            differentials,
            missing,
            ..empty()
        },
        &columns,
        place,
    )
}

/// The page that lists recordings; what it shows of them is the server's.
pub fn list(recordings: &serde_json::Value) -> Result<String, PageError> {
    let data = Data {
        kind: "list",
        list: Some(recordings),
        ..empty()
    };
    page(&data, &Columns::default(), Place::Server)
}

/// The page of a store of runs; what it shows of them is the server's.
pub fn starts(starts: &serde_json::Value) -> Result<String, PageError> {
    let data = Data {
        kind: "starts",
        starts: Some(starts),
        ..empty()
    };
    page(&data, &Columns::default(), Place::Server)
}

fn empty<'a>() -> Data<'a> {
    Data {
        format: FORMAT,
        generator: format!("nodeprof {}", env!("CARGO_PKG_VERSION")),
        kind: "",
        sides: Vec::new(),
        diff: None,
        differentials: Vec::new(),
        missing: Vec::new(),
        list: None,
        starts: None,
    }
}

/// `compared`: the shown run only, and the times of those that are compared: runs without probes, or with.
fn side_data(
    side: &Side<'_>,
    compared: Option<bool>,
    columns: &mut Columns,
) -> serde_json::Result<SideData> {
    let all_runs = compared.is_none();
    let recording = side.recording;
    let shown = side.shown.or_else(|| side.typical()).unwrap_or_default();
    let of = |id: RunId| side.profile.runs.get(id.0 as usize).cloned();
    let (runs, index) = match all_runs {
        true => {
            let index = side.group.runs.iter().position(|run| *run == shown);
            let runs = side.group.runs.iter().filter_map(|run| of(*run));
            (runs.collect(), index.unwrap_or_default())
        }
        false => (of(shown).into_iter().collect(), 0),
    };
    let timeline = Timeline::new(recording);
    let there = (shown.0 as usize) < recording.runs.len();
    let measured = match compared {
        None => (variants(recording).into_iter())
            .filter_map(|variant| {
                let command = command_line(&variant.command);
                MeasuredRuns::of(recording, &variant.runs, command)
            })
            .collect(),
        Some(is_bare) => {
            let first = of(shown).map(|run| command_line(&run.command));
            let usual = usual_ending(recording, &side.group);
            let as_most = |run: &Run| usual.as_ref() == Some(&ending(run));
            let kept = side.group.filter(recording, as_most);
            let measured =
                MeasuredRuns::of_kind(recording, &kept, first.unwrap_or_default(), is_bare);
            let named = measured.map(|measured| MeasuredRuns {
                name: side.name.to_owned(),
                ..measured
            });
            named.into_iter().collect()
        }
    };
    let profile = Profile {
        schema: side.profile.schema,
        runs,
    };
    Ok(SideData {
        name: side.name.to_owned(),
        file: side.file.to_owned(),
        profile: profile.into(),
        shown: index,
        number: shown.0 + 1,
        runs: recording.runs.len(),
        losses: of(shown)
            .map(|run| sentences(&run.losses))
            .unwrap_or_default(),
        measured,
        events: there.then(|| events::collect(recording, &timeline, shown, columns)),
    })
}

fn sentences(losses: &BTreeMap<String, u64>) -> Vec<String> {
    let lost = losses.iter().filter(|(_, count)| **count > 0);
    lost.map(|(kind, count)| crate::text::loss(kind, *count) + ".")
        .collect()
}

fn page(data: &Data<'_>, columns: &Columns, place: Place) -> Result<String, PageError> {
    if !is_built() {
        return Err(PageError::NotBuilt);
    }
    let encoded = encode(data, columns)?;
    let connect = match place {
        Place::File => "'none'",
        Place::Server => "'self'",
    };
    // The data come last: nothing in them is taken for a place to fill.
    let (before, after) = TEMPLATE.split_once(DATA).ok_or(PageError::NotBuilt)?;
    let before = before.replace(CONNECT, connect);
    Ok([&before, encoded.as_str(), after].concat())
}

fn encode(data: &Data<'_>, columns: &Columns) -> Result<String, PageError> {
    let json = serde_json::to_vec(data)?;
    let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
    let length = u32::try_from(json.len()).map_err(|_| PageError::TooLarge)?;
    compressed.write_all(&length.to_le_bytes())?;
    compressed.write_all(&json)?;
    compressed.write_all(&columns.bytes)?;
    Ok(base64(&compressed.finish()?))
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
