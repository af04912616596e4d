//! Against the scripts of `tests/data/source-maps`, which other tools made, and against maps that are wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use nodeprof_profile::recording::{Frame, FrameKind};

use super::reader::SourceFile;
use super::*;

/// Files in memory, and which of them were asked for.
#[derive(Default)]
struct Memory {
    files: HashMap<PathBuf, Vec<u8>>,
    opened: RefCell<Vec<PathBuf>>,
}

impl SourceReader for Memory {
    fn open(&self, path: &Path) -> Option<SourceFile> {
        self.opened.borrow_mut().push(path.to_owned());
        self.files.get(path).cloned().map(SourceFile::of)
    }
}

impl Memory {
    fn of(files: &[(&str, &[u8])]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| (path.into(), text.to_vec()));
        Self {
            files: files.collect(),
            opened: RefCell::default(),
        }
    }
}

/// A recording with a JavaScript frame at each of these places.
fn recording(frames: &[(&str, u32, u32)]) -> Recording {
    let mut recording = Recording {
        names: vec![b"".to_vec()],
        ..Recording::default()
    };
    for (file, line, column) in frames {
        recording.names.push(file.as_bytes().to_vec());
        let file = NameId(recording.names.len() as u32 - 1);
        let mut frame = Frame::new(FrameKind::JavaScript, NameId(0), Some(file));
        (frame.line, frame.column) = (Some(*line), Some(*column));
        (frame.function_line, frame.function_column) = (Some(1), Some(1));
        recording.frames.push(frame);
    }
    recording
}

/// `file:line:column` of each frame's original.
fn originals(recording: &Recording) -> Vec<Option<String>> {
    let shown = |original: OriginalPosition| {
        let file = String::from_utf8_lossy(recording.name(original.file));
        format!("{file}:{}:{}", original.line, original.column)
    };
    recording
        .frames
        .iter()
        .map(|f| f.original.map(shown))
        .collect()
}

fn losses(recording: &Recording) -> Vec<(&str, u64)> {
    let losses = recording.losses.iter();
    losses
        .map(|loss| (loss.kind.as_str(), loss.count))
        .collect()
}

fn annotated(frames: &[(&str, u32, u32)], reader: &dyn SourceReader) -> Recording {
    let mut recording = recording(frames);
    annotate_now(&mut recording, reader);
    recording
}

/// As if all scripts named a map.
fn all_named(recording: &Recording) -> Known {
    let files = recording.names.iter().filter_map(|name| path_of(name));
    Known {
        files: files.map(|path| (path, true)).collect(),
        ..Known::default()
    }
}

fn annotate_now(recording: &mut Recording, reader: &dyn SourceReader) {
    annotate_known(recording, &all_named(recording), reader);
}

fn annotate_known(recording: &mut Recording, known: &Known, reader: &dyn SourceReader) {
    let scripts = scripts(recording, known);
    let findings = look_up(&scripts, reader, Instant::now() + LONGEST);
    apply(recording, RunId(0), findings);
}

/// Line and column, from 1 and in UTF-16 units, of `assert` in the call with this text.
fn place(text: &str, marker: &str) -> Option<(u32, u32)> {
    let quoted = ["'", "\"", "`"].map(|quote| format!("{quote}{marker}{quote})"));
    let at = quoted.iter().find_map(|quoted| {
        let calls = text.match_indices("assert(").map(|(at, _)| at);
        calls
            .filter(|at| text[*at..].find(quoted).is_some_and(|d| d < 60))
            .last()
    })?;
    let line = text[..at].matches('\n').count() as u32 + 1;
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    Some((line, text[start..at].encode_utf16().count() as u32 + 1))
}

const MARKERS: [(&str, &str); 4] = [
    ("main", "src/main.ts"),
    ("check", "src/lib/shapes.ts"),
    ("circle", "src/lib/shapes.ts"),
    ("square", "src/lib/shapes.ts"),
];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/source-maps")
}

/// Checks the markers of one script: where the map says they are, they are. Returns how many it has.
fn check(script: &str, source: impl Fn(&str) -> String, columns: bool) -> usize {
    let folder = data();
    let path = folder.join(script);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut found = 0;
    for (marker, file) in MARKERS {
        let Some((line, column)) = place(&text, marker) else {
            continue;
        };
        let recording = annotated(&[(path.to_str().unwrap(), line, column)], &Disk);
        let original = std::fs::read_to_string(folder.join(file)).unwrap();
        let (line, mut column) = place(&original, marker).unwrap();
        if !columns {
            column = 1;
        }
        let expected = format!("{}:{line}:{column}", source(file));
        assert_eq!(
            originals(&recording),
            [Some(expected)],
            "{script}: {marker}"
        );
        assert_eq!(losses(&recording), []);
        found += 1;
    }
    found
}

/// A source by its path.
fn here(file: &str) -> String {
    data().join(file).to_str().unwrap().to_owned()
}

#[test]
fn scripts_of_typescript_are_told_by_their_sources() {
    assert_eq!(check("out/tsc/main.js", here, true), 1);
    assert_eq!(check("out/tsc/lib/shapes.js", here, true), 3);
    assert_eq!(check("out/tsc-inline/main.js", here, true), 1);
    assert_eq!(check("out/tsc-inline/lib/shapes.js", here, true), 3);
    let elsewhere = |file: &str| file.replace("src/", "/srv/elsewhere/");
    assert_eq!(check("out/tsc-source-root/main.js", elsewhere, true), 1);
    assert_eq!(
        check("out/tsc-source-root/lib/shapes.js", elsewhere, true),
        3
    );
}

#[test]
fn bundles_are_told_by_their_sources() {
    assert_eq!(check("out/esbuild/main.js", here, true), 4);
    assert_eq!(check("out/esbuild-minified/main.js", here, true), 4);
    assert_eq!(check("out/vite/main.mjs", here, true), 4);
    let webpack = |file: &str| format!("webpack://source-maps/{file}");
    assert_eq!(check("out/webpack/main.js", webpack, true), 3);
    assert_eq!(check("out/webpack-cheap/main.js", webpack, false), 4);
}

#[test]
fn a_module_by_its_url_is_found() {
    let path = data().join("out/vite/main.mjs");
    let text = std::fs::read_to_string(&path).unwrap();
    let (line, column) = place(&text, "square").unwrap();
    let url = format!("file://{}", path.display());
    let recording = annotated(&[(&url, line, column)], &Disk);
    assert!(
        originals(&recording)[0]
            .as_ref()
            .unwrap()
            .contains("/src/lib/shapes.ts:")
    );
}

/// One source, whose line 10 is line 1 of the script, and so on.
const MAP: &str = r#"{"version":3,"sources":["a.ts"],"names":[],"mappings":"AASA,IAAK;AACA"}"#;

fn with_map(map: &[u8]) -> Memory {
    Memory::of(&[
        ("/a/a.js", b"x\n//# sourceMappingURL=a.js.map"),
        ("/a/a.js.map", map),
    ])
}

#[test]
fn positions_are_those_of_the_nearest_point_before() {
    let recording = annotated(
        &[
            ("/a/a.js", 1, 1),
            ("/a/a.js", 1, 4),
            ("/a/a.js", 1, 5),
            ("/a/a.js", 2, 90),
            ("/a/a.js", 3, 1),
        ],
        &with_map(MAP.as_bytes()),
    );
    let expected = [
        "/a/a.ts:10:1",
        "/a/a.ts:10:1",
        "/a/a.ts:10:6",
        "/a/a.ts:11:6",
    ];
    let found = originals(&recording);
    assert_eq!(found[..4], expected.map(|e| Some(e.to_owned())));
    // A line that the map does not have stems from nowhere.
    assert_eq!(found[4], None);
    recording.check_references().unwrap();
}

#[test]
fn a_frame_without_a_call_is_placed_where_its_function_begins() {
    let mut recording = recording(&[("/a/a.js", 0, 0)]);
    recording.frames[0].line = None;
    recording.frames[0].column = None;
    (
        recording.frames[0].function_line,
        recording.frames[0].function_column,
    ) = (Some(2), Some(1));
    annotate_now(&mut recording, &with_map(MAP.as_bytes()));
    assert_eq!(originals(&recording), [Some("/a/a.ts:11:6".into())]);
    recording.frames[0].original = None;
    recording.frames[0].function_line = None;
    annotate_now(&mut recording, &with_map(MAP.as_bytes()));
    assert_eq!(originals(&recording), [None]);
}

#[test]
fn a_source_without_a_name_takes_nothing_from_the_others() {
    let mut map: serde_json::Value = serde_json::from_str(MAP).unwrap();
    map["sources"]
        .as_array_mut()
        .unwrap()
        .push(serde_json::Value::Null);
    map["version"] = "3".into();
    let frames = [("/a/a.js", 1, 5)];
    let recording = annotated(&frames, &with_map(map.to_string().as_bytes()));
    assert_eq!(originals(&recording), [Some("/a/a.ts:10:6".into())]);
    map["sources"] = serde_json::json!([null]);
    let recording = annotated(&frames, &with_map(map.to_string().as_bytes()));
    assert_eq!(originals(&recording), [None]);
}

#[test]
fn an_indexed_map_is_that_of_its_sections() {
    let section = |line: u32, column: u32, source: &str| {
        let map = MAP.replace("a.ts", source);
        format!(r#"{{"offset":{{"line":{line},"column":{column}}},"map":{map}}}"#)
    };
    let map = format!(
        r#")]}}'
{{"version":3,"sections":[{},{}]}}"#,
        section(0, 0, "one.ts"),
        section(1, 10, "two.ts")
    );
    let frames = [
        ("/a/a.js", 1, 5),
        ("/a/a.js", 2, 5),
        ("/a/a.js", 2, 11),
        ("/a/a.js", 2, 15),
        ("/a/a.js", 3, 1),
    ];
    let recording = annotated(&frames, &with_map(map.as_bytes()));
    let expected = [
        "/a/one.ts:10:6",
        "/a/one.ts:11:6",
        "/a/two.ts:10:1",
        "/a/two.ts:10:6",
        "/a/two.ts:11:6",
    ];
    assert_eq!(originals(&recording), expected.map(|e| Some(e.to_owned())));
    assert_eq!(losses(&recording), []);
}

#[test]
fn wrong_maps_change_nothing_and_are_counted() {
    let huge = format!(
        r#"{{"version":3,"sources":["a"],"names":[],"mappings":"{}"}}"#,
        "A;".repeat(5 << 20)
    );
    let escaped = huge.replace("mappings", r"m\u0061ppings");
    let many_names = format!(
        r#"{{"version":3,"sources":["a",null],"names":[{}""],"mappings":"AAAA"}}"#,
        r#""","#.repeat(2 << 20)
    );
    let nested = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let section_of_sections =
        r#"{"sections":[{"offset":{"line":0,"column":0},"map":{"sections":[]}}]}"#;
    let far = format!(
        r#"{{"sections":[{{"offset":{{"line":4294967295,"column":0}},"map":{}}}]}}"#,
        MAP.replace("AASA", ";AASA")
    );
    for map in [
        "",
        "null",
        "{",
        "[1]",
        "\u{1}",
        r#"{"version":2,"sources":[],"names":[],"mappings":""}"#,
        r#"{"version":3,"sources":[],"names":[],"mappings":"AAAA"}"#,
        r#"{"version":3,"sources":["a"],"names":[],"mappings":"AAAA!gggggggggggggggggg"}"#,
        r#"{"version":3,"sources":["a"],"names":[],"mappings":"DAAA"}"#,
        r#"{"version":3,"sources":["a"],"mappings":17}"#,
        r#"{"version":3,"sections":[{"offset":{"line":0,"column":0},"url":"b.map"}]}"#,
        section_of_sections,
        &huge,
        &escaped,
        &many_names,
        &nested,
        &far,
    ] {
        let recording = annotated(&[("/a/a.js", 1, 1)], &with_map(map.as_bytes()));
        let shown = &map[..map.len().min(80)];
        assert_eq!(originals(&recording), [None], "{shown}");
        assert_eq!(losses(&recording), [("source_maps_broken", 1)], "{shown}");
    }
    let invalid_utf8 = annotated(
        &[("/a/a.js", 1, 1)],
        &with_map(b"{\"version\":3,\"x\":\"\xff\"}"),
    );
    assert_eq!(losses(&invalid_utf8), [("source_maps_broken", 1)]);
}

#[test]
fn a_map_that_its_script_does_not_name_lies_beside_it() {
    let frames = [("/a/a.js", 1, 5)];
    let with = |map: &[u8], names_one: bool| {
        let reader = Memory::of(&[("/a/a.js", b"x"), ("/a/a.js.map", map)]);
        let mut recording = recording(&frames);
        let files = HashMap::from([("/a/a.js".into(), names_one)]);
        let texts = HashMap::new();
        annotate_known(&mut recording, &Known { files, texts }, &reader);
        assert_eq!(losses(&recording), []);
        originals(&recording)
    };
    let found = [Some("/a/a.ts:10:6".to_owned())];
    assert_eq!(with(MAP.as_bytes(), false), found);
    let of_file = |file: &str| MAP.replacen('{', &format!(r#"{{"file":"{file}","#), 1);
    assert_eq!(with(of_file("a.js").as_bytes(), false), found);
    assert_eq!(with(of_file("dist/a.js").as_bytes(), false), found);
    assert_eq!(with(of_file("").as_bytes(), false), found);
    // Of another script, or none at all: that is no loss, for nobody said that there is one.
    assert_eq!(with(of_file("b.js").as_bytes(), false), [None]);
    assert_eq!(with(b"[1]", false), [None]);
    // What seemed to name one, and names none, is not looked for.
    assert_eq!(with(MAP.as_bytes(), true), [None]);
}

#[test]
fn what_came_with_the_records_has_the_map_in_its_text() {
    let mut recording = recording(&[("/a/a.ts", 1, 5), ("file:///a/b.ts?v=1", 1, 5)]);
    let inline = Reference::Inline(Some(MAP.as_bytes().to_vec()));
    let known = Known {
        files: HashMap::from([("/a/a.ts".into(), true)]),
        texts: HashMap::from([
            (b"/a/a.ts".to_vec(), inline.clone()),
            (b"file:///a/b.ts?v=1".to_vec(), inline),
        ]),
    };
    let reader = Memory::default();
    annotate_known(&mut recording, &known, &reader);
    let expected = Some("/a/a.ts:10:6".to_owned());
    assert_eq!(originals(&recording), [expected.clone(), expected]);
    assert!(reader.opened.borrow().is_empty());
}

#[test]
fn evaluated_code_is_of_the_only_source_of_its_map_also_where_that_knows_nothing() {
    let name = "webpack-internal:///a.ts";
    let mut recording = recording(&[("/a/main.js", 1, 1), ("/a/main.js", 1, 1)]);
    recording.names.push(name.as_bytes().to_vec());
    let file = NameId(recording.names.len() as u32 - 1);
    for (frame, (line, column)) in recording.frames.iter_mut().zip([(1, 5), (3, 1)]) {
        (frame.line, frame.column) = (None, None);
        (frame.function_line, frame.function_column) = (None, None);
        frame.original = Some(OriginalPosition { file, line, column });
        assert!(frame.is_evaluated());
    }
    let map = MAP.replace("a.ts", "webpack://app/./src/a.ts?33ea");
    let inline = Reference::Inline(Some(map.into_bytes()));
    let known = Known {
        texts: HashMap::from([(name.as_bytes().to_vec(), inline)]),
        ..all_named(&recording)
    };
    annotate_known(&mut recording, &known, &Memory::default());
    let expected = ["10:6", "1:1"].map(|at| Some(format!("webpack://app/src/a.ts:{at}")));
    assert_eq!(originals(&recording), expected);
}

#[test]
fn a_map_that_is_not_there_is_no_loss() {
    for url in ["a.js.map", "https://cdn.test/a.js.map", "//x/y", "a%zz"] {
        let script = format!("//# sourceMappingURL={url}");
        let reader = Memory::of(&[("/a/a.js", script.as_bytes())]);
        let recording = annotated(&[("/a/a.js", 1, 1)], &reader);
        assert_eq!(originals(&recording), [None], "{url}");
        assert_eq!(losses(&recording), [], "{url}");
    }
}

/// What a map says is text. Only the script and the one map that it names are ever opened.
#[test]
fn sources_are_never_opened() {
    let map = MAP.replace("a.ts", "../../../../etc/shadow");
    let reader = with_map(map.as_bytes());
    let recording = annotated(&[("/a/a.js", 1, 1)], &reader);
    assert_eq!(originals(&recording), [Some("/etc/shadow:10:1".into())]);
    assert_eq!(
        *reader.opened.borrow(),
        [PathBuf::from("/a/a.js"), "/a/a.js.map".into()]
    );
    // A script that names itself, and one whose map names the script, end.
    let cyclic = Memory::of(&[("/a/a.js", b"//# sourceMappingURL=a.js")]);
    let recording = annotated(&[("/a/a.js", 1, 1)], &cyclic);
    assert_eq!(losses(&recording), [("source_maps_broken", 1)]);
    assert_eq!(cyclic.opened.borrow().len(), 2);
}

#[test]
fn scripts_of_node_and_of_no_file_are_not_looked_for() {
    let reader = Memory::default();
    let frames = [
        "node:fs",
        "evalmachine.<anonymous>",
        "[eval]",
        "https://x.test/a.js",
    ];
    annotated(&frames.map(|file| (file, 1, 1)), &reader);
    assert!(reader.opened.borrow().is_empty());
}

#[test]
fn nothing_is_read_when_the_time_is_over() {
    let mut recording = recording(&[("/a/a.js", 1, 1), ("/b/b.js", 1, 1)]);
    let reader = with_map(MAP.as_bytes());
    let scripts = scripts(&recording, &all_named(&recording));
    let findings = look_up(&scripts, &reader, Instant::now());
    apply(&mut recording, RunId(0), findings);
    assert!(reader.opened.borrow().is_empty());
    assert_eq!(losses(&recording), [("source_maps_skipped", 2)]);
}

#[test]
fn a_pipe_by_the_name_of_a_script_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("a.js");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: the name is NUL-terminated.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(open_regular(&pipe).is_none());
    assert!(open_regular(folder.path()).is_none());
    assert!(open_regular(Path::new("/dev/null")).is_none());
}

/// Bytes that look like a map, more or less.
#[test]
fn maps_of_any_bytes_do_no_harm() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut parsed = 0;
    for round in 0..4_000 {
        let mut text = format!(
            r#"{{"version":3,"sources":["a","b"],"names":["n"],"mappings":"{}"}}"#,
            (0..next() % 40)
                .map(|_| b"ACDEIgq,,;;"[(next() % 11) as usize] as char)
                .collect::<String>()
        )
        .into_bytes();
        if round % 2 == 0 {
            for _ in 0..next() % 4 {
                let place = (next() as usize) % text.len();
                text[place] = next() as u8;
            }
        }
        if let Some(map) = Map::parse(&text) {
            parsed += 1;
            for line in 0..4 {
                for column in [0, 1, 17, u32::MAX] {
                    if let Some(found) = map.find(line, column) {
                        assert!(found.line > 0 && found.column > 0);
                        assert!(map.source(found.source).is_some());
                    }
                }
            }
        }
    }
    assert!(parsed > 200, "{parsed}");
}
