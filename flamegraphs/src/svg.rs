//! An interactive flame graph: search, zoom, and a frame's value when the pointer is on it.
//!
//! Drawn by inferno from the folded stacks; colours and legend are ours: a hue for each [`FrameKind`], a shade within
//! it by the frame's name, so that a frame looks the same in every graph.

use std::collections::HashMap;
use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Direction, Options, TextTruncateDirection, from_lines};
use rgb::RGB8;

use crate::fold::{Folded, FrameKind, Unit};
use crate::units::{number, time};

/// How a flame graph is to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SvgOptions {
    /// Above the graph; what is counted, if none.
    pub title: Option<String>,
    /// Width in pixels; as wide as the window, if none.
    pub width: Option<usize>,
}

/// Why a graph was not written.
#[derive(Debug, thiserror::Error)]
pub enum SvgError {
    /// No values: [`crate::fold::fold`] says why before it comes to this.
    #[error("found: folded stacks without values; needed: at least one")]
    Empty,
    /// The graph could not be drawn or written.
    #[error("the flame graph could not be written")]
    Write(#[from] io::Error),
}

/// A kind's name in the legend, its hue in degrees and saturation in percent.
fn look(kind: FrameKind) -> (&'static str, u16, u8) {
    match kind {
        FrameKind::Process => ("process", 215, 14),
        FrameKind::Phase => ("phase", 40, 30),
        FrameKind::Thread => ("thread", 180, 16),
        FrameKind::JavaScript => ("JavaScript", 50, 88),
        FrameKind::Binding => ("binding", 210, 62),
        FrameKind::Callback => ("C++ callback", 198, 70),
        FrameKind::FastCallback => ("Fast API call", 140, 55),
        FrameKind::Getter => ("getter", 265, 58),
        FrameKind::Constructor => ("constructor", 320, 55),
        FrameKind::Serialization => ("serialization", 18, 82),
        FrameKind::Operation => ("operation", 205, 60),
        FrameKind::Folder => ("folder", 90, 22),
        FrameKind::Package => ("npm package", 275, 48),
        FrameKind::File => ("file", 130, 45),
        FrameKind::Builtin => ("built into node", 100, 55),
    }
}

fn color(kind: FrameKind, name: &str) -> Color {
    let (_, hue, saturation) = look(kind);
    // FNV-1a: the shade must not change from one version of Rust to the next.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hue = f64::from(hue) + f64::from((hash >> 16) as u8) / 255.0 * 14.0 - 7.0;
    // What groups is darker than what it groups, so that rows can be told apart.
    let darkest = match kind {
        FrameKind::Binding | FrameKind::Operation => 0.60,
        _ => 0.68,
    };
    let lightness = darkest + f64::from((hash >> 32) as u8) / 255.0 * 0.14;
    from_hsl(hue, f64::from(saturation) / 100.0, lightness)
}

fn from_hsl(hue: f64, saturation: f64, lightness: f64) -> Color {
    let chroma = (1.0 - (2.0 * lightness - 1.0).abs()) * saturation;
    let channel = |offset: f64| {
        let k = (offset + hue.rem_euclid(360.0) / 30.0) % 12.0;
        let value = lightness - chroma / 2.0 * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value.clamp(0.0, 1.0) * 255.0).round() as u8
    };
    RGB8 {
        r: channel(0.0),
        g: channel(8.0),
        b: channel(4.0),
    }
}

/// Font size of frames and legend.
const FONT: usize = 12;
/// Height of a frame.
const FRAME: usize = 17;
/// Frames narrower than this part of the whole are a tenth of a pixel: inferno's own limit.
const INVISIBLE: u64 = 10_000;
/// Time from which on microseconds are shown instead of nanoseconds.
const MICROSECONDS: u64 = 10_000_000;

/// Draws the graph: root on top, phases in order of time, other frames by name.
pub fn write(folded: &Folded, options: &SvgOptions, mut to: impl Write) -> Result<(), SvgError> {
    let total = folded.total();
    if total == 0 {
        return Err(SvgError::Empty);
    }
    // Of a million crossings, most stacks are too narrow to be drawn: not to write them halves the time.
    let folded = folded.without_less_than(total / INVISIBLE).for_picture();
    let mut kinds: Vec<FrameKind> = folded
        .used_frames()
        .map(|index| folded.frames()[index].kind)
        .collect();
    kinds.sort();
    kinds.dedup();
    let mut palette = PaletteMap::default();
    palette.insert("", from_hsl(215.0, 0.10, 0.86));
    let names = names_by_color(&folded);
    for (frame, name) in folded.frames().iter().zip(&names) {
        palette.insert(name, color(frame.kind, &frame.name));
    }

    let metric = folded.metric();
    let mut drawing = Options::default();
    let sum = match metric.unit() {
        Unit::Count(things) => {
            drawing.count_name = things.to_owned();
            format!("{} {things}", number(total))
        }
        Unit::Time => {
            (drawing.count_name, drawing.factor) = if total >= MICROSECONDS {
                ("µs".to_owned(), 1e-3)
            } else {
                ("ns".to_owned(), 1.0)
            };
            time(total)
        }
    };
    let node = folded
        .node_version()
        .map(|version| format!(" · node {version}"))
        .unwrap_or_default();
    drawing.title = options
        .title
        .clone()
        .unwrap_or_else(|| metric.title().to_owned());
    drawing.subtitle = Some(format!("{}{node} · {sum}", folded.command()));
    drawing.palette_map = Some(&mut palette);
    drawing.bgcolors = Some(BackgroundColor::Flat(RGB8 {
        r: 252,
        g: 252,
        b: 250,
    }));
    drawing.direction = Direction::Inverted;
    drawing.text_truncate_direction = TextTruncateDirection::Right;
    drawing.font_size = FONT;
    drawing.frame_height = FRAME;
    drawing.image_width = options.width;
    drawing.name_type = "Frame:".to_owned();
    // Only a flame chart keeps the order of its lines, which it takes from the last to the first; what is alike and
    // adjacent it merges as a flame graph does, and our stacks come so that all that is alike is adjacent.
    drawing.flame_chart = true;

    let lines = folded.text_with(&names);
    let mut picture = Vec::with_capacity(lines.len() * 4 + (1 << 16));
    from_lines(&mut drawing, lines.lines().rev(), &mut picture)?;
    // The frames are the last element in the picture: the legend goes before it.
    let at = picture
        .windows(FRAMES.len())
        .position(|window| window == FRAMES)
        .unwrap_or(picture.len());
    let (head, frames) = picture.split_at(at);
    to.write_all(head)?;
    if let Some(height) = height(head) {
        to.write_all(legend(&kinds, height).as_bytes())?;
    }
    to.write_all(frames)?;
    to.flush()?;
    Ok(())
}

/// Names for the drawing, from which inferno knows a frame's colour: where two kinds of frames share a name, all but one
/// get a mark that inferno takes for perf's and does not show.
fn names_by_color(folded: &Folded) -> Vec<String> {
    const MARKS: [&str; 4] = ["_[k]", "_[w]", "_[i]", "_[j]"];
    let mut taken: HashMap<&str, Vec<FrameKind>> = HashMap::new();
    let mut names = Vec::with_capacity(folded.frames().len());
    for frame in folded.frames() {
        let name = frame.name.as_str();
        let kinds = taken.entry(name).or_default();
        let place = kinds
            .iter()
            .position(|kind| *kind == frame.kind)
            .unwrap_or_else(|| {
                kinds.push(frame.kind);
                kinds.len() - 1
            });
        // A name that ends like a mark needs one to be shown whole.
        let marked = MARKS.iter().any(|mark| name.ends_with(mark));
        let mark = match place + usize::from(marked) {
            0 => "",
            place => MARKS[(place - 1) % MARKS.len()],
        };
        names.push(format!("{name}{mark}"));
    }
    names
}

/// The picture's height in pixels: the first element says it.
fn height(head: &[u8]) -> Option<usize> {
    let head = std::str::from_utf8(head).ok()?;
    let (_, rest) = head.split_once("<svg ")?.1.split_once("height=\"")?;
    rest.split_once('"')?.0.parse().ok()
}

/// How inferno begins the element with the frames.
const FRAMES: &[u8] = b"<svg id=\"frames\"";

/// A square and a name for each kind of frame in the graph, in the lower left corner.
fn legend(kinds: &[FrameKind], height: usize) -> String {
    // inferno shows its search field only to the pointer that happens to be on it.
    let mut out = String::from(
        "<style type=\"text/css\">#search { opacity:0.5; } #legend text { fill:rgb(90,90,90); font-size:11px; }</style><g id=\"legend\">",
    );
    let mut x = 10.0;
    let y = height.saturating_sub(16);
    for &kind in kinds {
        let (name, hue, saturation) = look(kind);
        let Color { r, g, b } = from_hsl(f64::from(hue), f64::from(saturation) / 100.0, 0.70);
        out.push_str(&format!("<rect x=\"{x:.1}\" y=\"{y}\" width=\"10\" height=\"10\" rx=\"2\" fill=\"rgb({r},{g},{b})\"/>"));
        out.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{}\">{name}</text>",
            x + 14.0,
            y + 9
        ));
        x += 14.0 + name.chars().count() as f64 * 6.8 + 14.0;
    }
    out.push_str("</g>");
    out
}
