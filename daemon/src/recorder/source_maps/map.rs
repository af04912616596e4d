//! A source map, plain or indexed, as a table to look positions up in.

use std::borrow::Cow;

use oxc_sourcemap::{JSONSourceMap, SourceMap};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Mappings with more bytes than this, of all sections together, are not decoded: each position takes two bytes or more there, and 20 here.
const LARGEST_MAPPINGS: usize = 8 << 20;
/// Nor are more sources and names, of a map or a section: each takes three bytes or more there, and 24 here.
const MOST_NAMES: usize = 1 << 20;

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
    file: Option<String>,
}

/// From here on to the next point the code stems from that place. Numbers from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    line: u32,
    column: u32,
    /// Source, line and column; `None`: from no source.
    original: Option<[u32; 3]>,
}

/// What tells an indexed map from a plain one, and which script it says it is of.
#[derive(Deserialize)]
struct Outline<'j> {
    #[serde(borrow)]
    file: Option<Cow<'j, str>>,
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

/// How much there is of a plain map.
#[derive(Deserialize)]
struct Size<'j> {
    #[serde(borrow)]
    mappings: Cow<'j, str>,
    #[serde(default)]
    sources: Count,
    #[serde(default)]
    names: Option<Count>,
    #[serde(default, rename = "sourcesContent")]
    contents: Option<Count>,
}

impl Size<'_> {
    fn names(&self) -> usize {
        let others = [&self.names, &self.contents];
        let others = others.into_iter().flatten().map(|count| count.0);
        others.fold(self.sources.0, usize::saturating_add)
    }
}

/// How many elements an array has.
#[derive(Default)]
struct Count(usize);

impl<'j> Deserialize<'j> for Count {
    fn deserialize<D: Deserializer<'j>>(from: D) -> Result<Count, D::Error> {
        struct Counter;
        impl<'j> Visitor<'j> for Counter {
            type Value = Count;

            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'j>>(self, mut all: A) -> Result<Count, A::Error> {
                let mut count = 0;
                while all.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Count(count))
            }
        }
        from.deserialize_seq(Counter)
    }
}

/// A map as the decoder does not want it: the standard allows `null` among the sources, for code that has none to name, and node takes a version in
/// quotes, and `null` for the names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lenient<'j> {
    #[serde(borrow)]
    version: &'j RawValue,
    mappings: String,
    source_root: Option<String>,
    sources: Vec<Option<String>>,
    names: Option<Vec<String>>,
}

/// Reads such a map. `unnamed`: which of its sources are `null`, ascending.
fn lenient(json: &str, unnamed: &mut Vec<u32>) -> Option<SourceMap<'static>> {
    let map: Lenient<'_> = serde_json::from_str(json).ok()?;
    let version = map.version.get();
    let version = version.strip_prefix('"').unwrap_or(version);
    let version = version.strip_suffix('"').unwrap_or(version);
    if version.parse() != Ok(3) {
        return None;
    }
    let nulls = (0..).zip(&map.sources).filter(|(_, name)| name.is_none());
    unnamed.extend(nulls.map(|(index, _)| index));
    let sources = map.sources.into_iter().map(Option::unwrap_or_default);
    let map = JSONSourceMap {
        version: 3,
        file: None,
        mappings: map.mappings,
        source_root: map.source_root,
        sources: sources.collect(),
        sources_content: None,
        names: map.names.unwrap_or_default(),
        debug_id: None,
        x_google_ignore_list: None,
    };
    SourceMap::from_json(map).ok()
}

/// The bytes of the mappings of a plain map; `None` if it is none, or has too many names.
fn mappings_bytes(json: &str) -> Option<usize> {
    let size: Size<'_> = serde_json::from_str(json).ok()?;
    (size.names() <= MOST_NAMES).then_some(size.mappings.len())
}

impl Map {
    /// Reads the JSON of a map; `None` if it is none, or too large.
    pub fn parse(json: &[u8]) -> Option<Map> {
        let text = std::str::from_utf8(without_guard(json)).ok()?;
        let outline: Outline = serde_json::from_str(text).ok()?;
        let mut map = Map {
            file: outline.file.map(Cow::into_owned),
            ..Map::default()
        };
        match outline.sections {
            None => {
                if mappings_bytes(text)? > LARGEST_MAPPINGS {
                    return None;
                }
                map.add(text, Offset { line: 0, column: 0 })?;
            }
            Some(sections) => {
                // One that cannot be read says nothing of the others.
                let mut left = LARGEST_MAPPINGS;
                for section in sections {
                    let json = section.map.map(RawValue::get);
                    let Some((json, bytes)) = json.and_then(|j| Some((j, mappings_bytes(j)?)))
                    else {
                        continue;
                    };
                    left = left.checked_sub(bytes)?;
                    let (points, sources) = (map.points.len(), map.sources.len());
                    if map.add(json, section.offset).is_none() {
                        map.points.truncate(points);
                        map.sources.truncate(sources);
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
        let map = match SourceMap::from_json_string(json) {
            Ok(map) => map,
            Err(_) => lenient(json, &mut unnamed)?,
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
                if unnamed.binary_search(&source).is_ok() {
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

    /// The script that it says it is of.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref().filter(|file| !file.is_empty())
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
