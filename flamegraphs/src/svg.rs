//! An interactive flame graph: search, zoom, and a frame's value when the pointer is on it.
//!
//! One file with everything in it, for any browser; a viewer that runs no scripts shows the same picture. The root is
//! on top. A hue for each [`FrameKind`], a shade within it by the frame's name, so that a frame looks the same in every
//! graph; a legend with the share of each kind. Colours follow the viewer's light or dark scheme.

mod colors;
mod difference;
mod layout;

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::fold::{Folded, Frame, FrameKind, Order, Unit};
use crate::paths::{columns, is_unprintable, printable};
use crate::units::{percent, time};
pub(crate) use colors::legend_name;
use colors::{fill, legend_fill};
pub use difference::write as write_difference;
use layout::{Layout, layout};

/// How a flame graph is to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SvgOptions {
    /// Above the graph; what is counted, if none.
    pub title: Option<String>,
    /// Width in pixels; as wide as the window, if none.
    pub width: Option<usize>,
    /// Frames narrower than this part of the whole, in millionths, are not drawn; [`NARROWEST`], if none.
    pub least: Option<u32>,
}

/// Frames narrower than this part of the whole, in millionths, are not drawn: a tenth of a pixel.
pub const NARROWEST: u32 = 100;

/// Why a graph was not written.
#[derive(Debug, thiserror::Error)]
pub enum SvgError {
    /// No values: [`crate::fold::fold`] says why before it comes to this.
    #[error("found: folded stacks without values; needed: at least one")]
    Empty,
    /// The graph could not be written.
    #[error("the flame graph could not be written")]
    Write(#[from] io::Error),
}

/// Height of a frame with the gap below it, in pixels.
const FRAME: usize = 17;
/// Where frames and texts begin from the left, and end from the right.
const MARGIN: usize = 10;
/// Width of a character of the legend, about.
const LEGEND_CHARACTER: usize = 6;
/// Width that the legend is laid out for, if the window decides.
const USUAL_WIDTH: usize = 1200;
/// Width for which texts are cut when no script does it: wide enough for any screen.
const WIDEST: f64 = 4000.0;
/// Width of a frame's character, in pixels; a script measures the real one.
const CHARACTER: f64 = 6.6;

/// Draws the graph.
pub fn write(folded: &Folded, options: &SvgOptions, mut to: impl Write) -> Result<(), SvgError> {
    if folded.total() == 0 {
        return Err(SvgError::Empty);
    }
    let folded = folded.for_picture();
    let layout = layout(&folded, options.least.unwrap_or(NARROWEST));
    let mut out = String::with_capacity(layout.boxes.len() * 256 + (1 << 14));
    Picture {
        folded: &folded,
        layout: &layout,
        out: &mut out,
    }
    .draw(options);
    to.write_all(out.as_bytes())?;
    to.flush()?;
    Ok(())
}

struct Picture<'a> {
    folded: &'a Folded,
    layout: &'a Layout,
    out: &'a mut String,
}

/// What is around the frames.
struct Page<'a> {
    title: &'a str,
    subtitle: &'a str,
    hint: &'a str,
    legend: Legend,
    /// Height, in frames.
    rows: usize,
    total: u64,
    unit: &'a str,
    width: Option<usize>,
}

impl Page<'_> {
    /// Draws it, and the frames with `frames`.
    fn write(&self, out: &mut String, frames: impl FnOnce(&mut String)) {
        let top = 74 + self.legend.rows * 18;
        let height = top + self.rows * FRAME + MARGIN;
        let width = self.width;
        let whole = width.map_or("100%".to_owned(), |width| width.to_string());
        let (total, unit) = (self.total, self.unit);
        // Percentages are of the inner element: its width is the window's less both margins.
        let inner = match width {
            Some(width) => format!("width=\"{}\"", width.saturating_sub(2 * MARGIN)),
            None => format!(
                "style=\"width:calc(100% - {}px)\" width=\"98%\"",
                2 * MARGIN
            ),
        };
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"{whole}\" height=\"{height}\">
<title>{title}</title>
<style>{style}</style>
<rect id=\"paper\" width=\"100%\" height=\"100%\"/>
<text id=\"title\" x=\"{MARGIN}\" y=\"24\">{title}</text>
<text id=\"subtitle\" class=\"faint\" x=\"{MARGIN}\" y=\"42\">{subtitle}</text>
<text id=\"details\" x=\"{MARGIN}\" y=\"62\">{hint}</text>
<g id=\"tools\" class=\"hidden\"><text id=\"search\" class=\"button\" x=\"100%\" dx=\"-10\" y=\"24\">Search</text><text id=\"reset\" class=\"button hidden\" x=\"100%\" dx=\"-70\" y=\"24\">Reset zoom</text><text id=\"matched\" class=\"faint\" x=\"100%\" dx=\"-10\" y=\"42\"></text></g>
{legend}<svg id=\"frames\" x=\"{MARGIN}\" y=\"{top}\" data-total=\"{total}\" data-unit=\"{unit}\">
<svg {inner} class=\"inner\">
",
            title = Escaped(self.title),
            style = include_str!("svg/style.css").trim(),
            subtitle = Escaped(self.subtitle),
            hint = Escaped(self.hint),
            legend = self.legend.svg,
        );
        frames(out);
        let _ = write!(
            out,
            "</svg></svg>\n<script><![CDATA[\n{}\n]]></script>\n</svg>\n",
            include_str!("svg/behaviour.js").trim()
        );
    }
}

impl Picture<'_> {
    fn draw(&mut self, options: &SvgOptions) {
        let about = self.folded.about();
        let title = options.title.clone().unwrap_or_else(|| about.title());
        let hint = match self.folded.order() {
            Order::Merged => "Width: share of the whole. Left to right: by name, not by time.",
            Order::Time => "Width: share of the whole. Left to right: in order of time.",
        };
        let page = Page {
            title: &title,
            subtitle: &about.subtitle(self.layout.total),
            hint,
            legend: self.legend(options.width.unwrap_or(USUAL_WIDTH)),
            rows: self.layout.rows,
            total: self.layout.total,
            unit: about.metric.unit().name(),
            width: options.width,
        };
        let mut out = std::mem::take(self.out);
        page.write(&mut out, |out| {
            std::mem::swap(self.out, out);
            self.frames();
            std::mem::swap(self.out, out);
        });
        *self.out = out;
    }

    /// Writing to a String cannot fail.
    fn add(&mut self, what: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(what);
    }

    fn frames(&mut self) {
        let layout = self.layout;
        let total = layout.total as f64;
        let all = Frame {
            name: "all".to_owned(),
            kind: FrameKind::Process,
            source: None,
            rank: 0,
        };
        for shape in &layout.boxes {
            let frame = match shape.frame {
                Some(frame) => &self.folded.frames()[frame as usize],
                None => &all,
            };
            let x = shape.start as f64 * 100.0 / total;
            let width = shape.sum as f64 * 100.0 / total;
            let fits = (width / 100.0 * WIDEST / CHARACTER) as usize;
            let color = match shape.frame {
                Some(_) => fill(frame.kind, &frame.name),
                None => "var(--all)".to_owned(),
            };
            self.add(format_args!(
                "<svg class=\"f k{}\" x=\"{}%\" y=\"{}\" width=\"{}%\" height=\"{}\"><title>{}\n",
                frame.kind as u8,
                Decimal(x),
                shape.depth as usize * FRAME,
                Decimal(width),
                FRAME - 1,
                Escaped(&frame.name)
            ));
            self.detail(frame);
            let (sum, own) = (shape.sum, shape.own);
            let unit = self.folded.metric().unit();
            let share = percent(sum, layout.total).replace('<', "under ");
            match own {
                own if own == sum => self.add(format_args!("{}, {share}", Amount(sum, unit))),
                0 => self.add(format_args!(
                    "{}, {share}, all in callees",
                    Amount(sum, unit)
                )),
                own => self.add(format_args!(
                    "{}, {share}; without callees {}, {}",
                    Amount(sum, unit),
                    Amount(own, unit),
                    percent(own, layout.total).replace('<', "under ")
                )),
            }
            self.add(format_args!(
                "</title><rect width=\"100%\" height=\"100%\" rx=\"1\" fill=\"{color}\"/>"
            ));
            if fits > 2 {
                self.add(format_args!(
                    "<text x=\"3\" y=\"12\">{}</text>",
                    Escaped(beginning(&frame.name, fits))
                ));
            }
            self.out.push_str("</svg>\n");
        }
    }

    /// What the label leaves out.
    fn detail(&mut self, frame: &Frame) {
        let Some(source) = &frame.source else { return };
        let mut place = String::new();
        if !source.function.is_empty() && !frame.name.starts_with(source.function.as_str()) {
            place.push_str(&source.function);
        }
        if let Some(file) = &source.file {
            let mut file = file.clone();
            for part in [source.line, source.column]
                .into_iter()
                .map_while(|part| part)
            {
                let _ = write!(file, ":{part}");
            }
            if !frame.name.ends_with(file.as_str()) {
                if !place.is_empty() {
                    place.push('\n');
                }
                place.push_str(&file);
            }
        }
        for line in place.lines() {
            self.add(format_args!("{}\n", Escaped(&printable(line))));
        }
        if source.inlining_possible {
            self.out
                .push_str("optimised: functions inlined into it are not told apart\n");
        }
    }

    fn legend(&self, width: usize) -> Legend {
        let mut svg = String::from("<g id=\"legend\">\n");
        let (mut x, mut row) = (MARGIN, 0);
        for &(kind, own) in &self.layout.kinds {
            let name = legend_name(kind);
            let share = match own {
                0 => String::new(),
                own => format!(" {}", percent(own, self.layout.total).replace('<', "&lt;")),
            };
            let room =
                16 + (columns(name) + columns(&share.replace("&lt;", "<"))) * LEGEND_CHARACTER + 20;
            if x > MARGIN && x + room > width {
                (x, row) = (MARGIN, row + 1);
            }
            let y = 74 + row * 18;
            let _ = writeln!(
                svg,
                "<g class=\"entry\" data-kind=\"k{}\"><title>without callees; click to see which frames these are</title><rect x=\"{x}\" y=\"{y}\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{name}<tspan class=\"faint\">{share}</tspan></text></g>",
                kind as u8,
                legend_fill(kind),
                x + 16,
                y + 10,
            );
            x += room;
        }
        svg.push_str("</g>\n");
        Legend { svg, rows: row + 1 }
    }
}

struct Legend {
    svg: String,
    rows: usize,
}

/// At most so many characters.
fn beginning(text: &str, most: usize) -> &str {
    match text.char_indices().nth(most) {
        Some((at, _)) => &text[..at],
        None => text,
    }
}

/// A value with its unit.
struct Amount(u64, Unit);

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0, self.1) {
            (value, Unit::Time) => f.write_str(&time(value)),
            (value, Unit::Count(things)) => f.write_str(&crate::units::things(value, things)),
        }
    }
}

/// Four digits after the point, and no zeros at the end.
struct Decimal(f64);

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{:.4}", self.0);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Text for XML.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // XML has no place for control characters, nor for U+FFFE and U+FFFF.
        let lines: String;
        let mut rest = self.0;
        if rest.contains(|c| c != '\n' && is_unprintable(c)) {
            let clean: Vec<_> = rest.split('\n').map(printable).collect();
            lines = clean.join("\n");
            rest = &lines;
        }
        while let Some(at) = rest.find(['&', '<', '>']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                _ => "&gt;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_in_xml_whatever_it_holds() {
        let escaped = |text| Escaped(text).to_string();
        assert_eq!(escaped("a<b>&c\nd"), "a&lt;b&gt;&amp;c\nd");
        assert_eq!(escaped("a\u{1b}[2J\n\u{fffe}"), "a\\u{1b}[2J\n\\u{fffe}");
    }
}
