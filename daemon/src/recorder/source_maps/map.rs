//! A source map, plain or indexed, as a table to look positions up in.

use oxc_sourcemap::SourceMap;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Mappings with more bytes than this, of all sections together, are not decoded: each position takes two bytes or more there, and 20 here.
const LARGEST_MAPPINGS: usize = 8 << 20;

/// A position from 1, in one of a map's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// See [`Map::source`].
    pub source: u32,
    pub line: u32,
    pub column: u32,
}

/// A source as the map names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<'m> {
    /// `sourceRoot`; empty if there is none.
    pub root: &'m str,
    pub name: &'m str,
}

/// From generated to original positions.
#[derive(Debug, Default)]
pub struct Map {
    /// By generated line and column.
    points: Vec<Point>,
    /// `sourceRoot` and source.
    sources: Vec<(String, String)>,
}

/// From here on to the next point the code stems from that place. Numbers from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    line: u32,
    column: u32,
    /// Source, line and column; `None`: from no source.
    original: Option<[u32; 3]>,
}

/// What tells an indexed map from a plain one.
#[derive(Deserialize)]
struct Outline<'j> {
    #[serde(borrow)]
    sections: Option<Vec<Section<'j>>>,
}

#[derive(Deserialize)]
struct Section<'j> {
    offset: Offset,
    /// A section of another file (`url`, gone from the standard) has none.
    #[serde(borrow)]
    map: Option<&'j RawValue>,
}

#[derive(Clone, Copy, Deserialize)]
struct Offset {
    line: u32,
    column: u32,
}

/// A map as the decoder wants it: the standard allows `null` among the sources, for code that has none to name, and node takes a version in
/// quotes, and `null` for the names. `unnamed`: which are `null`.
fn with_names(json: &str, unnamed: &mut Vec<u32>) -> Option<String> {
    let mut map: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json).ok()?;
    for (source, index) in map.get_mut("sources")?.as_array_mut()?.iter_mut().zip(0..) {
        if source.is_null() {
            *source = "".into();
            unnamed.push(index);
        }
    }
    if map.get("names").is_some_and(serde_json::Value::is_null) {
        map.remove("names");
    }
    let version = map.get("version").and_then(|version| version.as_str());
    if let Some(version) = version.and_then(|version| version.parse::<u32>().ok()) {
        map.insert("version".into(), version.into());
    }
    serde_json::to_string(&map).ok()
}

impl Map {
    /// Reads the JSON of a map; `None` if it is none, or too large.
    pub fn parse(json: &[u8]) -> Option<Map> {
        let text = std::str::from_utf8(without_guard(json)).ok()?;
        if mappings_bytes(text) > LARGEST_MAPPINGS {
            return None;
        }
        let mut map = Map::default();
        let outline: Outline = serde_json::from_str(text).ok()?;
        match outline.sections {
            None => map.add(text, Offset { line: 0, column: 0 })?,
            Some(sections) => {
                // One that cannot be read says nothing of the others.
                for section in sections {
                    if let Some(json) = section.map {
                        let (points, sources) = (map.points.len(), map.sources.len());
                        if map.add(json.get(), section.offset).is_none() {
                            map.points.truncate(points);
                            map.sources.truncate(sources);
                        }
                    }
                }
                if map.points.is_empty() {
                    return None;
                }
            }
        }
        // As the standard has it they are; a map that is not is still told by its nearest point.
        if !map.points.is_sorted() {
            map.points.sort_unstable();
        }
        Some(map)
    }

    /// A plain map whose generated text begins at `offset`.
    fn add(&mut self, json: &str, offset: Offset) -> Option<()> {
        let mut unnamed = Vec::new();
        let mended;
        let map = match SourceMap::from_json_string(json) {
            Ok(map) => map,
            Err(_) => {
                mended = with_names(json, &mut unnamed)?;
                SourceMap::from_json_string(&mended).ok()?
            }
        };
        let root = map.get_source_root().unwrap_or_default();
        let first = u32::try_from(self.sources.len()).ok()?;
        let sources = map.get_sources();
        self.sources
            .extend(sources.map(|name| (root.to_owned(), name.to_owned())));
        self.points.reserve(map.get_tokens().len());
        for token in map.get_tokens() {
            let line = token.get_dst_line();
            let column = token.get_dst_col();
            let original = token.get_source_id().and_then(|source| {
                if unnamed.contains(&source) {
                    return None;
                }
                let source = first.checked_add(source)?;
                Some([source, token.get_src_line(), token.get_src_col()])
            });
            self.points.push(Point {
                line: line.checked_add(offset.line)?,
                column: match line {
                    0 => column.checked_add(offset.column)?,
                    _ => column,
                },
                original,
            });
        }
        Some(())
    }

    /// Where a generated position, from 1, stems from: what the last point at or before it in its line says.
    pub fn find(&self, line: u32, column: u32) -> Option<Found> {
        let (line, column) = (line.checked_sub(1)?, column.checked_sub(1)?);
        let behind = self
            .points
            .partition_point(|point| (point.line, point.column) <= (line, column));
        let point = self.points.get(behind.checked_sub(1)?)?;
        let [source, original_line, original_column] = point.original?;
        (point.line == line).then_some(Found {
            source,
            line: original_line.checked_add(1)?,
            column: original_column.checked_add(1)?,
        })
    }

    /// A source by its number.
    pub fn source(&self, number: u32) -> Option<Source<'_>> {
        let (root, name) = self.sources.get(number as usize)?;
        Some(Source { root, name })
    }
}

/// Servers put `)]}'` and a line's end before JSON so that no browser runs it; the standard has it skipped.
fn without_guard(json: &[u8]) -> &[u8] {
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    if !json.starts_with(b")]}") {
        return json;
    }
    let end = memchr::memchr(b'\n', json).unwrap_or(json.len());
    json.get(end..).unwrap_or_default()
}

/// How long all mappings are together, told without parsing: they are texts without quotes or escapes. (A map within the
/// text of a source has its quotes escaped.)
fn mappings_bytes(json: &str) -> usize {
    let bytes = json.as_bytes();
    let key = b"\"mappings\"";
    memchr::memmem::find_iter(bytes, key)
        .filter_map(|at| {
            let rest = bytes.get(at + key.len()..)?;
            let open = rest.iter().position(|b| *b == b'"')?;
            memchr::memchr(b'"', rest.get(open + 1..)?)
        })
        .fold(0, usize::saturating_add)
}
