//! Aligned columns that give way when the terminal is narrow.

use crate::paths::{columns, cut, printable, shorten_all};

/// Few colours, each with one meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Paint {
    #[default]
    Plain,
    /// Headings.
    Strong,
    /// Labels, units, what can be skipped.
    Faint,
    /// Bars: how much of the whole.
    Bar,
    /// Worth a second look: repeated, missing, partial.
    Warning,
    /// Failed, or got worse.
    Error,
    /// Got better.
    Good,
}

impl Paint {
    /// The text between escape sequences, if `color`.
    pub(crate) fn on(self, text: &str, color: bool) -> String {
        let code = match self {
            Paint::Plain => return text.to_owned(),
            Paint::Strong => "1",
            Paint::Faint => "2",
            Paint::Bar => "36",
            Paint::Warning => "33",
            Paint::Error => "31",
            Paint::Good => "32",
        };
        if !color || text.is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// What a cell holds, before it is known how wide it may be.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Text(String),
    /// Shortened in the middle.
    Path(String),
    /// Lines of a tree, a path that is shortened, and a remark behind it.
    Branch(String, String, String),
    /// From and to, as fractions of the column.
    Bar(f64, f64),
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) content: Content,
    pub(crate) paint: Paint,
}

impl Cell {
    /// Text, of which nothing is a command to the terminal.
    pub(crate) fn text(text: impl AsRef<str>) -> Cell {
        Cell {
            content: Content::Text(printable(text.as_ref()).into_owned()),
            paint: Paint::Plain,
        }
    }

    /// A name that the traced program chose.
    pub(crate) fn name(text: &str) -> Cell {
        Cell::text(text)
    }

    /// A path, of which nothing is a command to the terminal either.
    pub(crate) fn path(path: String) -> Cell {
        Cell {
            content: Content::Path(printable(&path).into_owned()),
            paint: Paint::Plain,
        }
    }

    /// The same in a tree.
    pub(crate) fn branch(lines: String, path: String, remark: String) -> Cell {
        let [path, remark] = [path, remark].map(|text| printable(&text).into_owned());
        Cell {
            content: Content::Branch(lines, path, remark),
            paint: Paint::Plain,
        }
    }

    pub(crate) fn bar(from: f64, to: f64) -> Cell {
        Cell {
            content: Content::Bar(from, to),
            paint: Paint::Bar,
        }
    }

    pub(crate) fn paint(mut self, paint: Paint) -> Cell {
        self.paint = paint;
        self
    }

    fn natural_width(&self) -> usize {
        match &self.content {
            Content::Text(text) | Content::Path(text) => columns(text),
            Content::Branch(lines, path, remark) => {
                columns(lines) + columns(path) + columns(remark)
            }
            Content::Bar(..) => 0,
        }
    }

    /// Its path and the room that it has, if it has one.
    fn path_in(&self, width: usize) -> Option<(&str, usize)> {
        match &self.content {
            Content::Path(path) => Some((path, width)),
            Content::Branch(lines, path, remark) => {
                let room = width.saturating_sub(columns(lines));
                // The name of a file tells more than a remark, which is cut where both have no room.
                let name = path.rfind('/').map_or(path.as_str(), |at| &path[at..]);
                let least = (columns(name) + 1).min(room);
                Some((path, room.saturating_sub(columns(remark)).max(least)))
            }
            Content::Text(_) | Content::Bar(..) => None,
        }
    }

    /// `path`: its path as it fits.
    fn fit(&self, width: usize, path: &str) -> String {
        match &self.content {
            Content::Text(text) => cut(text, width).into_owned(),
            Content::Path(_) => path.to_owned(),
            Content::Branch(lines, _, remark) => {
                cut(&format!("{lines}{path}{remark}"), width).into_owned()
            }
            Content::Bar(from, to) => bar(*from, *to, width),
        }
    }
}

/// A bar from one fraction of the width to another, to an eighth of a column at its end and a half at its beginning.
fn bar(from: f64, to: f64, width: usize) -> String {
    let from = from.clamp(0.0, 1.0) * width as f64;
    let to = to.clamp(0.0, 1.0) * width as f64;
    let first = (from.floor() as usize).min(width.saturating_sub(1));
    let mut out = " ".repeat(first);
    let eighths = ((to - first as f64) * 8.0).round() as usize;
    if from - first as f64 >= 0.5 {
        // Blocks grow from the left only; this one half starts in the middle.
        out.push('▐');
        let rest = eighths.saturating_sub(8);
        push_blocks(&mut out, rest);
    } else {
        push_blocks(&mut out, eighths.max(1));
    }
    cut_blocks(out, width)
}

fn push_blocks(out: &mut String, eighths: usize) {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    out.extend(std::iter::repeat_n('█', eighths / 8));
    if !eighths.is_multiple_of(8) {
        out.push(PARTS[eighths % 8]);
    }
}

fn cut_blocks(out: String, width: usize) -> String {
    out.chars().take(width).collect()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: &'static str,
    right: bool,
    /// Takes the room that is left, between these widths.
    flexible: Option<(usize, usize)>,
    /// Dropped first if high; 0 stays.
    drop: u8,
}

impl Column {
    pub(crate) const fn left(title: &'static str) -> Column {
        Column {
            title,
            right: false,
            flexible: None,
            drop: 0,
        }
    }

    pub(crate) const fn right(title: &'static str) -> Column {
        Column {
            title,
            right: true,
            flexible: None,
            drop: 0,
        }
    }

    pub(crate) const fn flexible(mut self, least: usize, most: usize) -> Column {
        self.flexible = Some((least, most));
        self
    }

    pub(crate) const fn drop(mut self, rank: u8) -> Column {
        self.drop = rank;
        self
    }
}

pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

const INDENT: usize = 2;
const GAP: usize = 2;

impl Table {
    pub(crate) fn new(columns: impl Into<Vec<Column>>) -> Table {
        Table {
            columns: columns.into(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    /// Leaves out columns that are empty in every row.
    fn used(&self) -> Vec<usize> {
        let empty = |cell: Option<&Cell>| {
            cell.is_none_or(|cell| matches!(&cell.content, Content::Text(text) | Content::Path(text) if text.is_empty()))
        };
        (0..self.columns.len())
            .filter(|&index| !self.rows.iter().all(|row| empty(row.get(index))))
            .collect()
    }

    /// Widths of the columns in use; `None` if a flexible one would get less than its least, at most `enough`.
    fn widths(&self, used: &[usize], width: usize, enough: usize) -> Option<Vec<usize>> {
        let natural = |index: usize| {
            let cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(index))
                .map(Cell::natural_width);
            cells
                .max()
                .unwrap_or(0)
                .max(columns(self.columns[index].title))
        };
        let gaps = GAP * used.len().saturating_sub(1);
        let fixed: usize = used
            .iter()
            .filter(|&&i| self.columns[i].flexible.is_none())
            .map(|&i| natural(i))
            .sum();
        let mut room = width.checked_sub(INDENT + gaps + fixed)?;
        let wanted = |index: usize, most: usize| {
            let is_bar = self.rows.iter().any(|row| {
                let content = row.get(index).map(|cell| &cell.content);
                matches!(content, Some(Content::Bar(..)))
            });
            if is_bar {
                most
            } else {
                natural(index).min(most)
            }
        };
        // Each flexible column its least first, then what is left from left to right.
        let mut widths = Vec::with_capacity(used.len());
        for &index in used {
            widths.push(match self.columns[index].flexible {
                None => natural(index),
                Some((least, most)) => {
                    let least = least.min(wanted(index, most));
                    // As much as there is, if that is enough.
                    let granted = least.min(room);
                    if granted < least.min(enough) {
                        return None;
                    }
                    room -= granted;
                    granted
                }
            });
        }
        for (&index, width) in used.iter().zip(&mut widths) {
            if let Some((_, most)) = self.columns[index].flexible {
                let more = wanted(index, most).saturating_sub(*width).min(room);
                *width += more;
                room -= more;
            }
        }
        Some(widths)
    }

    /// Whether no cell is cut and no column left out.
    pub(crate) fn fits(&self, width: usize) -> bool {
        self.widths(&self.used(), width, usize::MAX).is_some()
    }

    /// Appends the table's lines, none wider than `width`, none with spaces at its end.
    pub(crate) fn write(&self, out: &mut String, width: usize, color: bool) {
        let mut used = self.used();
        let widths = loop {
            if let Some(widths) = self.widths(&used, width, usize::MAX) {
                break widths;
            }
            let droppable = used
                .iter()
                .copied()
                .filter(|&index| self.columns[index].drop > 0);
            match droppable.max_by_key(|&index| self.columns[index].drop) {
                Some(worst) => used.retain(|&index| index != worst),
                // Nothing can be left out any more: what is flexible takes what is left, even if it is little.
                None => {
                    let room = width.saturating_sub(INDENT + GAP * used.len().saturating_sub(1));
                    break self
                        .widths(&used, width, 8)
                        .unwrap_or_else(|| vec![room / used.len().max(1); used.len()]);
                }
            }
        };
        if used
            .iter()
            .any(|&index| !self.columns[index].title.is_empty())
        {
            let titles = used
                .iter()
                .map(|&index| Cell::text(self.columns[index].title).paint(Paint::Faint))
                .collect::<Vec<_>>();
            let titles: Vec<(&Cell, String)> = (titles.iter().zip(&widths))
                .map(|(title, &width)| (title, title.fit(width, "")))
                .collect();
            self.write_row(out, &used, &widths, &titles, color);
        }
        let empty = Cell::text("");
        let mut paths: Vec<std::vec::IntoIter<String>> = (used.iter().zip(&widths))
            .map(|(&index, &width)| {
                let cells = self.rows.iter().filter_map(|row| row.get(index));
                let paths: Vec<_> = cells.filter_map(|cell| cell.path_in(width)).collect();
                shorten_all(&paths).into_iter()
            })
            .collect();
        for row in &self.rows {
            let cells: Vec<(&Cell, String)> = (used.iter().zip(&widths).zip(&mut paths))
                .map(|((&index, &width), paths)| {
                    let cell = row.get(index).unwrap_or(&empty);
                    let path = cell.path_in(width).and_then(|_| paths.next());
                    (cell, cell.fit(width, path.as_deref().unwrap_or_default()))
                })
                .collect();
            self.write_row(out, &used, &widths, &cells, color);
        }
    }

    fn write_row(
        &self,
        out: &mut String,
        used: &[usize],
        widths: &[usize],
        cells: &[(&Cell, String)],
        color: bool,
    ) {
        // Spaces are owed, and only paid when something follows.
        let mut owed = INDENT;
        for (position, (&index, &width)) in used.iter().zip(widths).enumerate() {
            let (cell, text) = &cells[position];
            let shown = columns(text);
            let pad = width.saturating_sub(shown);
            if position > 0 {
                owed += GAP;
            }
            if self.columns[index].right {
                owed += pad;
            }
            let trimmed = text.trim_start_matches(' ');
            if !trimmed.is_empty() {
                owed += columns(text) - columns(trimmed);
                let tail = trimmed.trim_end_matches(' ');
                out.extend(std::iter::repeat_n(' ', owed));
                out.push_str(&cell.paint.on(tail, color));
                owed = columns(trimmed) - columns(tail);
            } else {
                owed += shown;
            }
            if !self.columns[index].right {
                owed += pad;
            }
        }
        out.push('\n');
    }
}
