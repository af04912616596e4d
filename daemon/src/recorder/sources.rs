//! Sources of scripts, to tell lines and columns: Node's own from the binary, the others from their files.

use std::{
    collections::{HashMap, HashSet},
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    rc::Rc,
};

use nodeprof_bpf::ScriptRecord;
use nodeprof_probes::{AttachPlan, BinaryFile};

use super::stacks::Source;

use super::source_maps::{names_a_map, open_regular};

/// No script that is larger is read.
const LARGEST_SCRIPT: u64 = 64 << 20;

/// Where the lines of a script begin, in characters (UTF-16 units, as V8 counts).
pub struct Lines {
    starts: Vec<u32>,
    /// Characters in all.
    length: u32,
}

impl Lines {
    fn of(units: impl Iterator<Item = u16>) -> Lines {
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
                0x0a | 0x0d | 0x2028 | 0x2029 => starts.push(at),
                _ => {}
            }
            previous = unit;
        }
        Lines { starts, length: at }
    }

    /// The same for characters of one byte each: the ends of lines are found many at a time.
    fn of_bytes(bytes: &[u8]) -> Lines {
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
                _ => starts.push(next),
            }
        }
        Lines {
            starts,
            length: bytes.len() as u32,
        }
    }

    /// The same for characters as V8 keeps them: little-endian UTF-16, or Latin-1, of which no character but these two ends a line.
    fn of_v8(bytes: &[u8], two_byte: bool) -> Lines {
        if !two_byte {
            return Lines::of_bytes(bytes);
        }
        let units = bytes.chunks_exact(2);
        Lines::of(units.map(|c| u16::from_le_bytes([c[0], c[1]])))
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
    v8: Option<V8Version>,
    /// Of V8's bytecodes, as a plan has them.
    bytecode_sizes: Rc<[u8]>,
}

/// Finds sources.
#[derive(Default)]
pub struct Sources {
    binaries: HashMap<u32, Binary>,
    open: HashMap<PathBuf, Option<BinaryFile>>,
    by_file: HashMap<(PathBuf, u64), Option<Rc<Lines>>>,
    /// Scripts that seem to name a source map.
    mapped: HashSet<PathBuf>,
}

impl Sources {
    /// Says which binary a process runs.
    pub fn runs(&mut self, pid: u32, plan: &AttachPlan) {
        let binary = Binary {
            path: plan.binary.path.clone(),
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

    /// Scripts, of those whose lines were asked for, that seem to name a source map.
    pub fn mapped(self) -> HashSet<PathBuf> {
        self.mapped
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
        if let Some(text) = text {
            return Some(Rc::new(Lines::of_v8(&text.bytes, text.two_byte)));
        }
        self.in_binary(script, pid)
            .or_else(|| self.on_disk(script.name.as_deref()?, script.length))
    }

    /// Node's own modules lie in the binary's data, and V8 reads them there.
    fn in_binary(&mut self, script: &ScriptRecord, pid: u32) -> Option<Rc<Lines>> {
        let path = self.binaries.get(&pid)?.path.clone();
        let file = self
            .open
            .entry(path)
            .or_insert_with_key(|path| BinaryFile::open(path).ok())
            .as_ref()?;
        let width = if script.two_byte { 2 } else { 1 };
        let length = script.length.checked_mul(width)?;
        let in_snapshot = || {
            file.builtin_source(script.name.as_deref()?)
                .filter(|s| s.len() as u64 == length)
        };
        let bytes = file.bytes(script.source, length).or_else(in_snapshot)?;
        Some(Rc::new(Lines::of_v8(bytes, script.two_byte)))
    }

    /// A file is the script's source only if it has as many characters.
    fn on_disk(&mut self, name: &[u8], length: u64) -> Option<Rc<Lines>> {
        let path = path_of(name)?;
        let key = (path, length);
        if let Some(known) = self.by_file.get(&key) {
            return known.clone();
        }
        let lines = read(&key.0).and_then(|bytes| {
            let lines = if bytes.is_ascii() {
                Lines::of_bytes(&bytes)
            } else {
                let text = String::from_utf8_lossy(&bytes);
                let lines = Lines::of(text.encode_utf16());
                match text.strip_prefix('\u{feff}') {
                    // Node takes a byte order mark off ES modules, and leaves it to V8 in CommonJS.
                    Some(rest) if u64::from(lines.length) != length => {
                        Lines::of(rest.encode_utf16())
                    }
                    _ => lines,
                }
            };
            let is_source = u64::from(lines.length) == length;
            if is_source && names_a_map(&bytes) {
                self.mapped.insert(key.0.clone());
            }
            is_source.then(|| Rc::new(lines))
        });
        self.by_file.insert(key, lines.clone());
        lines
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

/// A regular file's text. Nothing of it goes into the recording but line numbers.
fn read(path: &Path) -> Option<Vec<u8>> {
    let file = open_regular(path)?;
    if file.metadata().ok()?.len() > LARGEST_SCRIPT {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_SCRIPT).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
