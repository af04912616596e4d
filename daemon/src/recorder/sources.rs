//! Sources of scripts, to tell lines and columns: Node's own from the binary, the others from their files.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    rc::Rc,
};

use nodeprof_bpf::ScriptRecord;
use nodeprof_probes::{AttachPlan, BinaryFile, BuildId};

use super::{
    assigned::{LOOKED_AT, assigned_name},
    room::Room,
    source_maps::{names_a_map, open_regular},
    stacks::Source,
};

/// No script that is larger is read.
const LARGEST_SCRIPT: u64 = 64 << 20;
/// Where there is a limit to what is kept: bytes of texts that are in no file, and of tables of lines. A script of 10 MB has a table of 1 MB; one that is
/// all newlines has one of four times its size.
const MOST_KEPT: u64 = 64 << 20;
/// There, bytes of files that are read. A program may name one file often, with another length each time. All of a large application has 100 MB.
const MOST_READ: u64 = 1 << 30;
/// Bytes of a table besides its lines, with what finds it again.
const TABLE: u64 = 256;

/// More than is kept or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beyond;

/// The lines of a script, if its source is there.
type Found = Result<Option<Rc<Lines>>, Beyond>;

/// Where the lines of a script begin, in characters (UTF-16 units, as V8 counts).
pub struct Lines {
    starts: Vec<u32>,
    /// Characters in all.
    length: u32,
}

impl Lines {
    /// `None` if there are more than `most`; so also of the others.
    fn of(units: impl Iterator<Item = u16>, most: usize) -> Option<Lines> {
        let mut starts = vec![0];
        let (mut at, mut previous) = (0u32, 0u16);
        for unit in units {
            at = at.saturating_add(1);
            // As ECMAScript ends lines; \r\n is one end.
            match unit {
                0x0a if previous == 0x0d => {
                    if let Some(last) = starts.last_mut() {
                        *last = at;
                    }
                }
                0x0a | 0x0d | 0x2028 | 0x2029 => {
                    if starts.len() >= most {
                        return None;
                    }
                    starts.push(at);
                }
                _ => {}
            }
            previous = unit;
        }
        starts.shrink_to_fit();
        Some(Lines { starts, length: at })
    }

    /// The same for characters of one byte each: the ends of lines are found many at a time.
    fn of_bytes(bytes: &[u8], most: usize) -> Option<Lines> {
        let mut starts = vec![0];
        for end in memchr::memchr2_iter(b'\n', b'\r', bytes) {
            let next = end as u32 + 1;
            match (
                bytes.get(end),
                end.checked_sub(1).and_then(|i| bytes.get(i)),
            ) {
                (Some(b'\n'), Some(b'\r')) => {
                    if let Some(last) = starts.last_mut() {
                        *last = next;
                    }
                }
                _ if starts.len() >= most => return None,
                _ => starts.push(next),
            }
        }
        starts.shrink_to_fit();
        Some(Lines {
            starts,
            length: bytes.len() as u32,
        })
    }

    /// The same for characters as V8 keeps them: little-endian UTF-16, or Latin-1, of which no character but these two ends a line.
    fn of_v8(bytes: &[u8], two_byte: bool, most: usize) -> Option<Lines> {
        if !two_byte {
            return Lines::of_bytes(bytes, most);
        }
        let units = bytes.chunks_exact(2);
        Lines::of(units.map(|c| u16::from_le_bytes([c[0], c[1]])), most)
    }

    /// The same for a file's text. What is no UTF-8 in it are characters, too, as Node reads it.
    fn of_file(bytes: &[u8], most: usize) -> Option<Lines> {
        if bytes.is_ascii() {
            return Lines::of_bytes(bytes, most);
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Lines::of(text.encode_utf16(), most),
            // Without a copy, which may be three times as large.
            Err(_) => {
                let units = bytes.utf8_chunks().flat_map(|chunk| {
                    let broken = (!chunk.invalid().is_empty()).then_some(0xfffd);
                    chunk.valid().encode_utf16().chain(broken)
                });
                Lines::of(units, most)
            }
        }
    }

    /// Bytes that it takes.
    fn bytes(&self) -> u64 {
        TABLE + size_of_val(self.starts.as_slice()) as u64
    }

    /// Line and column, from 1, of a character, from 0; `None` behind the end.
    pub fn place(&self, position: u32) -> Option<(u32, u32)> {
        if position > self.length {
            return None;
        }
        let line = self.starts.partition_point(|start| *start <= position);
        let start = self.starts.get(line.checked_sub(1)?)?;
        Some((line as u32, position - start + 1))
    }
}

/// Major and minor version of V8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct V8Version(pub u32, pub u32);

impl V8Version {
    fn parse(text: &str) -> Option<V8Version> {
        let mut numbers = text.split('.');
        Some(V8Version(
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
        ))
    }
}

/// What a process runs.
struct Binary {
    path: PathBuf,
    build_id: Option<BuildId>,
    v8: Option<V8Version>,
    /// Of V8's bytecodes, as a plan has them.
    bytecode_sizes: Rc<[u8]>,
}

/// Finds sources.
#[derive(Default)]
pub struct Sources {
    binaries: HashMap<u32, Binary>,
    open: HashMap<PathBuf, Option<BinaryFile>>,
    by_file: HashMap<(PathBuf, u64), Found>,
    /// Scripts whose lines were asked for, and whether they seem to name a source map.
    files: HashMap<PathBuf, bool>,
    /// How much may be kept, where that has a limit.
    room: Option<Room>,
    /// Bytes of files that were read.
    read: u64,
    /// Scripts that have no lines because there were too many.
    beyond: HashSet<u32>,
}

impl Sources {
    /// Keeps no more than so much, beside what a start has room for.
    pub fn keep_within(&mut self, room: &Room) {
        self.room = Some(room.beside(MOST_KEPT));
    }

    /// Takes room for a text that came with the records; returns whether there is any.
    pub fn take_text(&mut self, bytes: u64) -> bool {
        let room = self.room.as_mut();
        room.is_none_or(|room| room.take_within(bytes))
    }

    /// Scripts that have no lines because there were too many.
    pub fn beyond(&self) -> &HashSet<u32> {
        &self.beyond
    }

    /// Says which binary a process runs.
    pub fn runs(&mut self, pid: u32, plan: &AttachPlan) {
        let binary = Binary {
            path: plan.binary.path.clone(),
            build_id: plan.binary.build_id.clone(),
            v8: (plan.binary.v8_version.as_deref()).and_then(V8Version::parse),
            bytecode_sizes: match self.binaries.get(&pid) {
                Some(known) if *known.bytecode_sizes == *plan.bytecode_sizes => {
                    known.bytecode_sizes.clone()
                }
                _ => plan.bytecode_sizes.as_slice().into(),
            },
        };
        self.binaries.insert(pid, binary);
    }

    /// Whether it is known which binary a process runs.
    pub fn knows(&self, pid: u32) -> bool {
        self.binaries.contains_key(&pid)
    }

    /// Files of scripts whose lines were asked for, and whether they seem to name a source map.
    pub fn files(self) -> HashMap<PathBuf, bool> {
        self.files
    }

    /// The version of V8 in a process.
    pub fn v8(&self, pid: u32) -> Option<V8Version> {
        self.binaries.get(&pid)?.v8
    }

    /// How long V8's bytecodes are in a process.
    pub fn bytecode_sizes(&self, pid: u32) -> Option<Rc<[u8]>> {
        Some(self.binaries.get(&pid)?.bytecode_sizes.clone())
    }

    /// The lines of a script; `None` if its source is neither in the binary nor in its file any more. `text`: what of
    /// its source came with the records.
    pub fn lines(
        &mut self,
        script: &ScriptRecord,
        text: Option<&Source>,
        pid: u32,
    ) -> Option<Rc<Lines>> {
        match self.find(script, text, pid) {
            Ok(lines) => {
                self.beyond.remove(&script.number);
                lines
            }
            Err(Beyond) => {
                self.beyond.insert(script.number);
                None
            }
        }
    }

    fn find(&mut self, script: &ScriptRecord, text: Option<&Source>, pid: u32) -> Found {
        if let Some(text) = text.filter(|text| text.is_whole()) {
            return self.of_text(text);
        }
        if let Some(found) = self.in_binary(script, pid)? {
            return Ok(Some(found));
        }
        let on_disk = match script.name.as_deref().and_then(path_of) {
            Some(path) => self.on_disk(path, script.length)?,
            None => None,
        };
        match (on_disk, text) {
            // What is there of it.
            (None, Some(text)) => self.of_text(text),
            (found, _) => Ok(found),
        }
    }

    fn of_text(&mut self, text: &Source) -> Found {
        let lines = Lines::of_v8(&text.bytes, text.two_byte, self.most_lines());
        self.keep(lines).map(Some)
    }

    /// So many lines of one more script may be kept.
    fn most_lines(&self) -> usize {
        let left = self.room.as_ref().map(Room::left);
        left.map_or(usize::MAX, |left| {
            left.saturating_sub(TABLE) as usize / size_of::<u32>()
        })
    }

    /// Takes room for lines; `None`: there were more than may be kept.
    fn keep(&mut self, lines: Option<Lines>) -> Result<Rc<Lines>, Beyond> {
        let lines = lines.ok_or(Beyond)?;
        if let Some(room) = &mut self.room
            && !room.take_within(lines.bytes())
        {
            return Err(Beyond);
        }
        Ok(Rc::new(lines))
    }

    /// Node's own modules lie in the binary's data, and V8 reads them there.
    fn in_binary(&mut self, script: &ScriptRecord, pid: u32) -> Found {
        let most = self.most_lines();
        let Some(bytes) = self.bytes_in_binary(script, pid) else {
            return Ok(None);
        };
        let lines = Lines::of_v8(bytes, script.two_byte, most);
        self.keep(lines).map(Some)
    }

    fn bytes_in_binary(&mut self, script: &ScriptRecord, pid: u32) -> Option<&[u8]> {
        let binary = self.binaries.get(&pid)?;
        let file = self
            .open
            .entry(binary.path.clone())
            .or_insert_with_key(|path| BinaryFile::open(path).ok())
            .as_ref()?;
        // In another mount namespace, a container's say, another node lies at that path.
        if file.build_id() != binary.build_id {
            return None;
        }
        let width = if script.two_byte { 2 } else { 1 };
        let length = script.length.checked_mul(width)?;
        let in_snapshot = || {
            file.builtin_source(script.name.as_deref()?)
                .filter(|s| s.len() as u64 == length)
        };
        file.bytes(script.source, length).or_else(in_snapshot)
    }

    /// What one of Node's own functions is assigned to in its source, if it begins at this character.
    pub fn assigned_name(
        &mut self,
        script: &ScriptRecord,
        pid: u32,
        position: u32,
    ) -> Option<String> {
        let position = position as usize;
        let from = position.saturating_sub(LOOKED_AT);
        let bytes = self.bytes_in_binary(script, pid)?;
        let before = match script.two_byte {
            true => {
                let units = bytes.get(from * 2..position * 2)?.chunks_exact(2);
                let units: Vec<u16> = units.map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
                String::from_utf16_lossy(&units)
            }
            // Latin-1.
            false => bytes
                .get(from..position)?
                .iter()
                .map(|&b| b as char)
                .collect(),
        };
        assigned_name(&before)
    }

    /// A file is the script's source only if it has as many characters.
    fn on_disk(&mut self, path: PathBuf, length: u64) -> Found {
        let key = (path, length);
        if let Some(known) = self.by_file.get(&key) {
            return known.clone();
        }
        let lines = self.in_file(&key.0, length);
        self.by_file.insert(key, lines.clone());
        lines
    }

    fn in_file(&mut self, path: &Path, length: u64) -> Found {
        let most = self.most_lines();
        if most == 0 {
            return Err(Beyond);
        }
        let Some((file, size)) = open(path) else {
            return Ok(None);
        };
        self.read = self.read.saturating_add(size);
        if self.room.is_some() && self.read > MOST_READ {
            return Err(Beyond);
        }
        let Some(bytes) = read(file, size) else {
            return Ok(None);
        };
        let mut lines = Lines::of_file(&bytes, most).ok_or(Beyond)?;
        // Node takes a byte order mark off ES modules, and leaves it to V8 in CommonJS.
        if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf")
            && u64::from(lines.length) != length
        {
            lines = Lines::of_file(rest, most).ok_or(Beyond)?;
        }
        if u64::from(lines.length) != length {
            return Ok(None);
        }
        self.files.insert(path.to_owned(), names_a_map(&bytes));
        self.keep(Some(lines)).map(Some)
    }
}

/// The file that a script's name means: an absolute path, or a `file:` URL.
pub fn path_of(name: &[u8]) -> Option<PathBuf> {
    if name.starts_with(b"/") {
        return Some(Path::new(std::ffi::OsStr::from_bytes(name)).to_owned());
    }
    let rest = name.strip_prefix(b"file://")?;
    let end = rest.iter().position(|b| matches!(b, b'?' | b'#'));
    let path = percent_decoded(rest.get(..end.unwrap_or(rest.len()))?)?;
    path.starts_with(b"/")
        .then(|| Path::new(std::ffi::OsStr::from_bytes(&path)).to_owned())
}

/// The bytes that a part of a URL means; `None` if a `%` is not followed by two hexadecimal digits.
pub fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = text.iter();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(&byte) = bytes.next() {
        let mut digit = || (*bytes.next()? as char).to_digit(16);
        decoded.push(match byte {
            b'%' => (digit()? * 16 + digit()?) as u8,
            byte => byte,
        });
    }
    Some(decoded)
}

/// A regular file, and how many bytes it has.
fn open(path: &Path) -> Option<(File, u64)> {
    let file = open_regular(path)?;
    let size = file.metadata().ok()?.len();
    (size <= LARGEST_SCRIPT).then_some((file, size))
}

/// Its text. Nothing of it goes into the recording but line numbers.
fn read(file: File, size: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size as usize);
    // One that grows meanwhile is not followed.
    file.take(size).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{super::room::Rooms, *};

    fn script(number: u32, path: &Path, length: u64) -> ScriptRecord {
        ScriptRecord {
            number,
            name: Some(path.as_os_str().as_bytes().to_vec()),
            wrapped: true,
            source: 0,
            length,
            two_byte: false,
            line_offset: 0,
            column_offset: 0,
        }
    }

    #[test]
    fn scripts_beyond_what_is_kept_have_no_lines_and_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let newlines = |name: &str, count: usize| {
            let path = folder.path().join(name);
            std::fs::write(&path, "\n".repeat(count)).expect("a file");
            script(name.parse().expect("a number"), &path, count as u64)
        };
        let all = [
            newlines("1", 700_000),
            newlines("2", 700_000),
            newlines("3", 10),
        ];
        let has_lines = |sources: &mut Sources| {
            let lines = all.each_ref().map(|script| sources.lines(script, None, 1));
            lines.map(|lines| lines.is_some())
        };
        // Three million bytes of the first table, and not as many left for the second.
        let rooms = Rooms::new(1 << 40, 4 << 20);
        let mut sources = Sources::default();
        sources.keep_within(&rooms.enter());
        assert_eq!(has_lines(&mut sources), [true, false, true]);
        assert_eq!(has_lines(&mut sources), [true, false, true], "kept");
        assert_eq!(sources.beyond(), &HashSet::from([2]));
        let text = Source::of(vec![b'\n'; 700_000], false);
        assert!(sources.lines(&all[0], Some(&text), 1).is_none());
        assert!(!sources.take_text(2 << 20) && sources.take_text(1 << 10));
        drop(sources);
        assert_eq!(rooms.enter().left(), 4 << 20, "given back");
        // By hand.
        let mut sources = Sources::default();
        assert_eq!(has_lines(&mut sources), [true; 3]);
        assert!(sources.beyond().is_empty());
    }

    #[test]
    fn a_binary_that_is_not_the_one_that_runs_has_no_sources() {
        let path = std::env::current_exe().expect("a path");
        let own = BinaryFile::open(&path).expect("an ELF file").build_id();
        let other = Some(BuildId("00".to_owned()));
        for (build_id, is_read) in [(own, true), (other, false)] {
            let binary = Binary {
                path: path.clone(),
                build_id,
                v8: None,
                bytecode_sizes: Rc::default(),
            };
            let mut sources = Sources::default();
            sources.binaries.insert(1, binary);
            let script = script(1, Path::new("node:fs"), 4);
            assert_eq!(sources.bytes_in_binary(&script, 1).is_some(), is_read);
        }
    }

    #[test]
    fn a_file_is_not_read_again_without_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("large.js");
        // No blocks on the disk.
        let file = File::create(&path).expect("a file");
        file.set_len(LARGEST_SCRIPT / 2).expect("long");
        let mut sources = Sources::default();
        sources.keep_within(&Rooms::new(1 << 40, 1 << 40).enter());
        // As if nearly all had been read.
        sources.read = MOST_READ - LARGEST_SCRIPT;
        for length in 0..4 {
            let script = script(length, &path, length.into());
            assert!(sources.lines(&script, None, 1).is_none());
        }
        assert_eq!(sources.beyond(), &HashSet::from([2, 3]));
    }

    #[test]
    fn what_is_no_utf_8_counts_as_the_characters_that_node_makes_of_it() {
        for bytes in [
            &b"a\xff\n\xf0\x9f\x98b\n\xe2\x80"[..],
            "\u{feff}\u{1f600}\nx\u{2028}y".as_bytes(),
            b"x\r\ny\rz\n",
        ] {
            let text = String::from_utf8_lossy(bytes);
            let expected = Lines::of(text.encode_utf16(), usize::MAX).expect("few");
            let lines = Lines::of_file(bytes, usize::MAX).expect("few");
            assert_eq!(lines.starts, expected.starts);
            assert_eq!(lines.length, expected.length);
            let count = expected.starts.len();
            assert!(Lines::of_file(bytes, count).is_some());
            assert!(Lines::of_file(bytes, count - 1).is_none());
        }
    }
}
