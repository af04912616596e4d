//! A differential flame graph: width of one side, colour by change.

use std::fmt::Write as _;
use std::io::Write;

use super::{
    CHARACTER, Decimal, Escaped, FRAME, LEGEND_CHARACTER, Legend, MARGIN, NARROWEST, Page,
    SvgError, SvgOptions, USUAL_WIDTH, WIDEST, beginning,
};
use crate::differential::{Differential, Direction, Known, Node};
use crate::fold::Unit;
use crate::paths::{columns, printable};
use crate::units::{number, time};
use nodeprof_profile::statistics::stars;

/// What nothing is known of, or did not change.
const GREY: &str = "#c9cacd";
/// What only the other side has, by chance.
const FAINT: &str = "#e4e5e8";

/// Draws the graph. Frames that only the other side has are kept in view, as wide as they were there, with a dashed edge.
pub fn write(
    differential: &Differential,
    direction: Direction,
    options: &SvgOptions,
    mut to: impl Write,
) -> Result<(), SvgError> {
    let least = f64::from(options.least.unwrap_or(NARROWEST)) / 1e6;
    let layout = Layout::new(differential, direction, least);
    if layout.total <= 0.0 {
        return Err(SvgError::Empty);
    }
    let (base, head) = differential.totals();
    let unit = differential.about.metric.unit();
    let [base_name, head_name] = &differential.names;
    let title = options
        .title
        .clone()
        .unwrap_or_else(|| format!("{}: {base_name} → {head_name}", differential.title()));
    let runs = match differential.runs {
        [1, 1] => "one run a side".to_owned(),
        [base, head] if base == head => format!("means of {base} runs a side"),
        [base, head] => format!("means of {base} and {head} runs"),
    };
    let subtitle = format!(
        "{} → {}, {} · {} · {runs}",
        amount(base, unit),
        amount(head, unit),
        change(head - base, base, unit),
        differential.about.part,
    );
    let hint = match direction {
        Direction::Head => format!(
            "Width: {head_name}. Dashed: only {base_name} has it, as wide as it was there. Left to right: by name."
        ),
        Direction::Base => format!(
            "Width: {base_name}. Dashed: only {head_name} has it, as wide as it is there. Left to right: by name."
        ),
    };
    let mut out = String::with_capacity(layout.shapes.len() * 300 + (1 << 14));
    let page = Page {
        title: &title,
        subtitle: &subtitle,
        hint: &hint,
        legend: legend(
            differential,
            direction,
            options.width.unwrap_or(USUAL_WIDTH),
        ),
        rows: layout.rows,
        total: layout.total.round() as u64,
        unit: unit.name(),
        width: options.width,
    };
    page.write(&mut out, |out| {
        for shape in &layout.shapes {
            frame(out, differential, &layout, shape);
        }
    });
    to.write_all(out.as_bytes())?;
    to.flush()?;
    Ok(())
}

struct Shape {
    /// `None`: the frame around all.
    node: Option<usize>,
    depth: usize,
    start: f64,
    width: f64,
}

struct Layout {
    shapes: Vec<Shape>,
    rows: usize,
    total: f64,
    /// Of base and head.
    totals: (f64, f64),
    direction: Direction,
}

impl Layout {
    fn new(differential: &Differential, direction: Direction, least: f64) -> Layout {
        let nodes = &differential.nodes;
        let of_side = |node: &Node| match direction {
            Direction::Head => (node.head, node.base, node.is_elided()),
            Direction::Base => (node.base, node.head, node.is_new()),
        };
        // What the side does not have is as wide as in the other.
        let own = |node: &Node| match of_side(node) {
            (_, other, true) => other.own,
            (side, _, false) => side.own,
        };
        let mut widths: Vec<f64> = nodes.iter().map(own).collect();
        let mut parents: Vec<Option<usize>> = Vec::with_capacity(nodes.len());
        let mut path: Vec<usize> = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            path.truncate(node.depth as usize);
            parents.push(path.last().copied());
            path.push(index);
        }
        let mut total = 0.0;
        for index in (0..nodes.len()).rev() {
            match parents[index] {
                Some(parent) => widths[parent] += widths[index],
                None => total += widths[index],
            }
        }
        let mut layout = Layout {
            shapes: vec![Shape {
                node: None,
                depth: 0,
                start: 0.0,
                width: total,
            }],
            rows: 1,
            total,
            totals: differential.totals(),
            direction,
        };
        let mut cursors = vec![0.0; nodes.len()];
        let mut cursor = 0.0;
        for (index, node) in nodes.iter().enumerate() {
            let next: &mut f64 = match parents[index] {
                Some(parent) => &mut cursors[parent],
                None => &mut cursor,
            };
            let start = *next;
            *next += widths[index];
            cursors[index] = start;
            if widths[index] >= total * least {
                let depth = node.depth as usize + 1;
                layout.rows = layout.rows.max(depth + 1);
                layout.shapes.push(Shape {
                    node: Some(index),
                    depth,
                    start,
                    width: widths[index],
                });
            }
        }
        layout
    }
}

fn frame(out: &mut String, differential: &Differential, layout: &Layout, shape: &Shape) {
    let unit = differential.about.metric.unit();
    let (base, head) = layout.totals;
    let node = shape.node.map(|index| &differential.nodes[index]);
    let (name, class, fill) = match node {
        None => ("all", "same", "var(--all)".to_owned()),
        Some(node) => {
            let ghost = matches!(
                (node.is_elided(), node.is_new(), layout.direction),
                (true, _, Direction::Head) | (_, true, Direction::Base)
            );
            let (class, fill) = match (node.change() > 0.0, is_known(node)) {
                (_, false) if ghost => ("same", FAINT.to_owned()),
                (more, true) if ghost => ("ghost", blend(more, 0.0)),
                (true, true) if node.is_new() => ("new", fill(node)),
                (true, true) => ("more", fill(node)),
                (false, true) if node.is_elided() => ("gone", fill(node)),
                (false, true) if node.change() < 0.0 => ("less", fill(node)),
                _ => ("same", GREY.to_owned()),
            };
            (differential.frame(node).name.as_str(), class, fill)
        }
    };
    let x = shape.start * 100.0 / layout.total;
    let width = shape.width * 100.0 / layout.total;
    let _ = writeln!(
        out,
        "<svg class=\"f k{class}\" x=\"{}%\" y=\"{}\" width=\"{}%\" height=\"{}\"><title>{}",
        Decimal(x),
        shape.depth * FRAME,
        Decimal(width),
        FRAME - 1,
        Escaped(name)
    );
    if let Some(node) = node {
        place(out, differential, node);
    }
    let (of_base, of_head) = node.map_or((base, head), |node| (node.base.sum, node.head.sum));
    let _ = write!(
        out,
        "{} → {}, {}",
        amount(of_base, unit),
        amount(of_head, unit),
        change(of_head - of_base, of_base, unit)
    );
    if let Some(node) = node {
        out.push_str(&Escaped(&certainty(node)).to_string());
    }
    let _ = write!(
        out,
        "</title><rect width=\"100%\" height=\"100%\" rx=\"1\" fill=\"{fill}\"/>"
    );
    let fits = (width / 100.0 * WIDEST / CHARACTER) as usize;
    if fits > 2 {
        let _ = write!(
            out,
            "<text x=\"3\" y=\"12\">{}</text>",
            Escaped(beginning(name, fits))
        );
    }
    out.push_str("</svg>\n");
}

/// Where the function is, if the label does not tell it all.
fn place(out: &mut String, differential: &Differential, node: &Node) {
    let frame = differential.frame(node);
    let Some(source) = &frame.source else { return };
    if let Some(file) = &source.file {
        let mut file = file.clone();
        if let Some(line) = source.line {
            let _ = write!(file, ":{line}");
        }
        if !frame.name.ends_with(file.as_str()) {
            let _ = writeln!(out, "{}", Escaped(&printable(&file)));
        }
    }
}

/// Whether the change may have a colour.
fn is_known(node: &Node) -> bool {
    node.known != Known::Noise
}

/// How sure the change is, in words.
fn certainty(node: &Node) -> String {
    let what = match node {
        node if node.is_new() => "; new",
        node if node.is_elided() => "; gone",
        _ => "",
    };
    let known = match (node.known, node.adjusted_p) {
        (Known::Exact, _) => "; the same in all runs of a side".to_owned(),
        (Known::Significant, Some(p)) => match p < 0.001 {
            true => "; p < 0.001 ***".to_owned(),
            false => format!("; p = {p:.3} {}", stars(p)),
        },
        (Known::Noise, Some(p)) => format!("; p = {p:.2}: chance explains it"),
        _ => String::new(),
    };
    format!("{what}{known}")
}

/// Red for more, blue for less, the stronger the more of itself a frame changed; grey for what chance explains.
fn fill(node: &Node) -> String {
    if !is_known(node) || node.change() == 0.0 {
        return GREY.to_owned();
    }
    let most = node.base.sum.max(node.head.sum);
    // The root shows that a small part of it changed, and which.
    let strength = (node.change().abs() / most).clamp(0.0, 1.0).powf(0.4);
    blend(node.change() > 0.0, strength)
}

fn blend(more: bool, strength: f64) -> String {
    let (pale, full) = match more {
        true => ([246.0, 226.0, 222.0], [229.0, 77.0, 60.0]),
        false => ([222.0, 232.0, 246.0], [70.0, 130.0, 214.0]),
    };
    let channel = |index: usize| {
        let (from, to): (f64, f64) = (pale[index], full[index]);
        (from + (to - from) * strength).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0), channel(1), channel(2))
}

fn amount(value: f64, unit: Unit) -> String {
    let whole = value.abs().round() as u64;
    match unit {
        Unit::Time => time(whole),
        Unit::Count(things) => crate::units::things(whole, things),
    }
}

/// `+5.04 ms (+7.1 %)`.
fn change(change: f64, of: f64, unit: Unit) -> String {
    let whole = change.abs().round() as u64;
    let sign = match change {
        _ if whole == 0 => return "no change".to_owned(),
        change if change > 0.0 => '+',
        _ => '−',
    };
    let value = match unit {
        Unit::Time => time(whole),
        Unit::Count(_) => number(whole),
    };
    match of > 0.0 && change > -of {
        true => {
            let percent = change.abs() / of * 100.0;
            format!("{sign}{value} ({sign}{percent:.1} %)")
        }
        false => format!("{sign}{value}"),
    }
}

/// The meaning of the colours; a click marks the frames.
fn legend(differential: &Differential, direction: Direction, width: usize) -> Legend {
    let [base, head] = &differential.names;
    let more = ("kmore", format!("more in {head}"), blend(true, 0.7));
    let less = ("kless", format!("less in {head}"), blend(false, 0.7));
    let same = (
        "ksame",
        "no change, or chance explains it".to_owned(),
        GREY.to_owned(),
    );
    let entries = match direction {
        Direction::Head => [
            more,
            ("knew", format!("new in {head}"), blend(true, 1.0)),
            less,
            ("kghost", format!("only in {base}"), blend(false, 0.0)),
            same,
        ],
        Direction::Base => [
            more,
            ("kghost", format!("only in {head}"), blend(true, 0.0)),
            less,
            ("kgone", format!("not in {head}"), blend(false, 1.0)),
            same,
        ],
    };
    let mut svg = String::from("<g id=\"legend\">\n");
    let (mut x, mut row) = (MARGIN, 0);
    for (kind, name, fill) in entries {
        let room = 16 + columns(&name) * LEGEND_CHARACTER + 20;
        if x > MARGIN && x + room > width {
            (x, row) = (MARGIN, row + 1);
        }
        let y = 74 + row * 18;
        let _ = writeln!(
            svg,
            "<g class=\"entry\" data-kind=\"{kind}\"><title>click to see which frames these are</title><rect class=\"{kind}\" x=\"{x}\" y=\"{y}\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{fill}\"/><text x=\"{}\" y=\"{}\">{}</text></g>",
            x + 16,
            y + 10,
            Escaped(&name)
        );
        x += room;
    }
    svg.push_str("</g>\n");
    Legend { svg, rows: row + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decrease_has_one_sign() {
        assert_eq!(change(-2e6, 8e6, Unit::Time), "−2.00 ms (−25.0 %)");
        assert_eq!(change(2e6, 8e6, Unit::Time), "+2.00 ms (+25.0 %)");
    }
}
