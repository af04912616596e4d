//! Files whose symbols may be read. Anybody writes the files that a program maps: what names their functions is looked at first, and read from a copy
//! where others may change or cut off the file meanwhile (reading behind the new end of a mapping is a bus error, which ends the process), or where its
//! tables do not lie at multiples of 8, which blazesym does not read: postject, which makes single executable applications, moves the program headers
//! to wherever there is room.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::File,
    io,
    ops::Range,
    os::{
        fd::{AsRawFd as _, FromRawFd as _},
        unix::fs::{FileExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
    rc::{Rc, Weak},
};

use super::files::LARGEST_HEADERS;

/// Symbols of larger files are not read. The largest debug builds have some GB.
const LARGEST_FILE: u64 = 8 << 30;
/// Bytes of a file's symbols and their names. Node's are 17 MB.
const MOST_SYMBOLS: u64 = 256 << 20;
/// Bytes of the copies of one trace: a node of a user's own, and add-ons.
const MOST_COPIED: u64 = 64 << 20;
/// Of all traces of this thread. The service has 512 MB in all.
const MOST_COPIED_OF_ALL: u64 = 128 << 20;
/// Bytes of the names of sections, times sections: all of the names may be read for each section. A library has 40 sections, with 400 bytes of names.
const MOST_SECTION_NAMES: u64 = 64 << 20;

/// Sections of symbols and of their names.
const TABLES: [&[u8]; 4] = [b".symtab", b".strtab", b".dynsym", b".dynstr"];
/// `SHT_SYMTAB`, `SHT_DYNSYM`: those of symbols.
const SYMBOLS: [u32; 2] = [2, 11];
/// `SHT_NOBITS`: the kind of a section that takes no place in the file.
const NOTHING_IN_THE_FILE: u32 = 8;
/// Where headers and symbols are read, their offsets are multiples of it.
const ALIGNMENT: u64 = 8;
/// Bytes of the header of a file, of a program header, of a section's header; of 64 bits.
const HEADER: usize = 64;
const PROGRAM: usize = 56;
const SECTION: usize = 64;

/// All of one trace, by the path at which a file is held.
#[derive(Default)]
pub struct Readables {
    known: HashMap<PathBuf, Option<Readable>>,
    copied: u64,
}

/// A file whose symbols may be read.
struct Readable {
    path: PathBuf,
    /// Its symbols could not be read.
    is_given_up: bool,
    /// What lies there, if it is a copy. It stays also of one that is given up: who reads symbols goes by the path, and the next copy would have the same.
    _copy: Option<Rc<Copy>>,
}

impl Readables {
    /// The path at which to read the symbols of the file at this one; `None`: they are not to be read.
    pub fn path(&mut self, held: &Path) -> Option<&Path> {
        if !self.known.contains_key(held) {
            let readable = self.look_at(held);
            self.known.insert(held.to_owned(), readable);
        }
        let readable = self.known.get(held)?.as_ref()?;
        (!readable.is_given_up).then_some(&readable.path)
    }

    /// Its symbols cannot be read. Else they would be looked for again at each address.
    pub fn give_up(&mut self, held: &Path) {
        if let Some(Some(readable)) = self.known.get_mut(held) {
            readable.is_given_up = true;
        }
    }

    fn look_at(&mut self, held: &Path) -> Option<Readable> {
        let file = File::open(held).ok()?;
        let state = State::of(&file)?;
        let pieces = Pieces::of(&file, state)?;
        if !pieces.needs_copy {
            let path = held.to_owned();
            return Some(Readable {
                path,
                is_given_up: false,
                _copy: None,
            });
        }
        let left = MOST_COPIED.saturating_sub(self.copied);
        let copy = copy(&file, state, &pieces, left)?;
        self.copied += copy.bytes;
        Some(Readable {
            path: copy.path(),
            is_given_up: false,
            _copy: Some(copy),
        })
    }
}

/// A file as it is at a moment. Nobody can set the time of its last change.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
    others_may_write: bool,
}

impl State {
    fn of(file: &File) -> Option<State> {
        let meta = file.metadata().ok()?;
        // SAFETY: no preconditions.
        let user = unsafe { libc::geteuid() };
        let is_ours = meta.uid() == 0 || meta.uid() == user;
        Some(State {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.len(),
            changed: (meta.ctime(), meta.ctime_nsec()),
            others_may_write: !is_ours || meta.mode() & 0o022 != 0,
        })
    }
}

/// The pieces of a file that are read for its symbols, each with its offset in a copy.
struct Pieces {
    header: Vec<u8>,
    programs: (u64, Vec<u8>),
    sections: (u64, Vec<u8>),
    /// Names of sections.
    names: (u64, Vec<u8>),
    /// Symbols and their names.
    tables: Vec<Table>,
    /// Bytes of a copy.
    length: u64,
    /// Whether they are to be read from one.
    needs_copy: bool,
}

struct Table {
    /// Where it lies in the file.
    range: Range<u64>,
    /// Its offset in a copy.
    to: u64,
    /// Index of its section.
    section: usize,
    /// Of symbols; else of their names.
    has_symbols: bool,
}

impl Pieces {
    /// `None`: it is no ELF file of 64 bits with sections, or one that takes more than any has.
    fn of(file: &File, state: State) -> Option<Pieces> {
        let size = state.size;
        if size > LARGEST_FILE {
            return None;
        }
        let header = read(file, 0, HEADER)?;
        // 64 bits, little-endian.
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let programs = usize::from(u16_at(&header, 56)?) * PROGRAM;
        // None, or so many that their number is told elsewhere: no linker makes these.
        let count = usize::from(u16_at(&header, 60)?);
        if programs as u64 > LARGEST_HEADERS || count == 0 {
            return None;
        }
        let sections_at = u64_at(&header, 40)?;
        let sections = read(file, sections_at, count * SECTION)?;
        let names_index = usize::from(u16_at(&header, 62)?);
        let names = sections.get(names_index * SECTION..(names_index + 1) * SECTION)?;
        let names = range(names)?;
        let length = names.end - names.start;
        if length.checked_mul(count as u64)? > MOST_SECTION_NAMES {
            return None;
        }
        let names_at = names.start;
        let names = read(file, names_at, usize::try_from(length).ok()?)?;
        let mut tables = Vec::new();
        let mut left = MOST_SYMBOLS;
        for (index, header) in sections.chunks_exact(SECTION).enumerate() {
            let name = names.get(usize::try_from(u32_at(header, 0)?).ok()?..);
            let name = name.and_then(|name| name.split(|byte| *byte == 0).next());
            if !name.is_some_and(|name| TABLES.contains(&name)) {
                continue;
            }
            let kind = u32_at(header, 4)?;
            if kind == NOTHING_IN_THE_FILE {
                continue;
            }
            let range = range(header)?;
            left = left.checked_sub(range.end - range.start)?;
            if range.end > size {
                return None;
            }
            tables.push(Table {
                to: range.start,
                range,
                section: index,
                has_symbols: SYMBOLS.contains(&kind),
            });
        }
        let programs_at = u64_at(&header, 32)?;
        let programs = read(file, programs_at, programs)?;
        let is_odd = |at: u64| !at.is_multiple_of(ALIGNMENT);
        let is_misaligned = |table: &Table| table.has_symbols && is_odd(table.range.start);
        let needs_copy = state.others_may_write
            || is_odd(programs_at)
            || is_odd(sections_at)
            || tables.iter().any(is_misaligned);
        let mut pieces = Pieces {
            header,
            programs: (programs_at, programs),
            sections: (sections_at, sections),
            names: (names_at, names),
            tables,
            length: size,
            needs_copy,
        };
        if needs_copy {
            pieces.place(names_index);
        }
        Some(pieces)
    }

    /// Puts all of them behind each other. None lies in another, as they may in the file: what is told of one, or has changed between two looks, is then no
    /// change of another, such as of a name that was looked at. And there is nothing else in a copy.
    fn place(&mut self, names_index: usize) {
        let mut end = HEADER as u64;
        let mut place = |length: u64| {
            let at = end.next_multiple_of(ALIGNMENT);
            end = at + length;
            at
        };
        let (sections_at, sections) = &mut self.sections;
        let mut tell = |index: usize, at: u64| put(sections, index * SECTION + 24, at);
        for table in &mut self.tables {
            table.to = place(table.range.end - table.range.start);
            tell(table.section, table.to);
        }
        self.names.0 = place(self.names.1.len() as u64);
        // Last: whatever else that section is.
        tell(names_index, self.names.0);
        self.programs.0 = place(self.programs.1.len() as u64);
        put(&mut self.header, 32, self.programs.0);
        *sections_at = place(sections.len() as u64);
        put(&mut self.header, 40, *sections_at);
        self.length = end;
    }

    /// Headers and names of sections, each with its offset in a copy: as they were when they were looked at.
    fn heads(&self) -> [(u64, &[u8]); 4] {
        [
            (self.programs.0, &self.programs.1),
            (self.names.0, &self.names.1),
            (self.sections.0, &self.sections.1),
            (0, &self.header),
        ]
    }

    /// Bytes of all.
    fn bytes(&self) -> u64 {
        let heads = self.heads().map(|(_, bytes)| bytes.len() as u64);
        let tables = self.tables.iter().map(|t| t.range.end - t.range.start);
        heads.into_iter().chain(tables).sum()
    }
}

fn read(file: &File, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Writes a number of 64 bits.
fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Where in the file a section lies, by its header.
fn range(section: &[u8]) -> Option<Range<u64>> {
    let start = u64_at(section, 24)?;
    Some(start..start.checked_add(u64_at(section, 32)?)?)
}

/// A copy in memory of what is read of a file, and of nothing else.
pub struct Copy {
    file: File,
    bytes: u64,
}

impl Copy {
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

/// A copy of a file of which no more than so many bytes are read for its symbols, whoever may write it.
pub fn copy_of(file: &File, most: u64) -> Option<Copy> {
    let state = State {
        others_may_write: true,
        ..State::of(file)?
    };
    let pieces = Pieces::of(file, state)?;
    let bytes = pieces.bytes();
    let file = (bytes <= most).then(|| copied(file, &pieces).ok())??;
    Some(Copy { file, bytes })
}

thread_local! {
    /// Those that traces have: many may run the same node.
    static COPIES: RefCell<HashMap<State, Weak<Copy>>> = RefCell::default();
}

/// A copy of no more than so many bytes, and while there is room for it.
fn copy(file: &File, state: State, pieces: &Pieces, most: u64) -> Option<Rc<Copy>> {
    let bytes = pieces.bytes();
    if bytes > most {
        return None;
    }
    COPIES.with_borrow_mut(|copies| {
        if let Some(known) = copies.get(&state).and_then(Weak::upgrade) {
            return Some(known);
        }
        copies.retain(|_, copy| copy.strong_count() > 0);
        let others = copies.values().filter_map(Weak::upgrade);
        if others.map(|copy| copy.bytes).sum::<u64>() + bytes > MOST_COPIED_OF_ALL {
            return None;
        }
        let file = copied(file, pieces).ok()?;
        let copy = Rc::new(Copy { file, bytes });
        copies.insert(state, Rc::downgrade(&copy));
        Some(copy)
    })
}

fn copied(file: &File, pieces: &Pieces) -> io::Result<File> {
    // SAFETY: a name with its NUL.
    let fd = unsafe { libc::memfd_create(c"symbols".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    let copy = unsafe { File::from_raw_fd(fd) };
    copy.set_len(pieces.length)?;
    let mut buffer = vec![0; 1 << 18];
    for Table { range, to, .. } in &pieces.tables {
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(buffer.len() as u64);
            let part = &mut buffer[..length as usize];
            file.read_exact_at(part, at)?;
            copy.write_all_at(part, to + (at - range.start))?;
            at += length;
        }
    }
    for (at, bytes) in pieces.heads() {
        copy.write_all_at(bytes, at)?;
    }
    Ok(copy)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
pub mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// Where its function `main` lies in the file.
    pub const FUNCTION: u64 = 0x800;

    /// An ELF file of so many bytes with a function `main`, whose table of symbols says that it has so many bytes.
    pub fn library(length: u64, symbols: u64) -> tempfile::NamedTempFile {
        const NAMES: &[u8] = b"\0.symtab\0.strtab\0.shstrtab\0";
        let mut bytes = vec![0u8; 0x1000];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, b"\x7fELF\x02\x01\x01");
        put(16, &[3, 0, 62, 0, 1]);
        put(32, &64u64.to_le_bytes());
        put(40, &0x200u64.to_le_bytes());
        put(52, &[64, 0, 56, 0, 1, 0, 64, 0, 4, 0, 3, 0]);
        // One segment, all of it, executable.
        put(64, &[1, 0, 0, 0, 5]);
        put(64 + 32, &0x1000u64.to_le_bytes());
        put(64 + 40, &0x1000u64.to_le_bytes());
        for (index, name, kind, at, size, link, entry) in [
            (1, 1u32, 2u32, 0x2000u64, symbols, 2u32, 24u64),
            (2, 9, 3, 0x400, 6, 0, 0),
            (3, 17, 3, 0x500, NAMES.len() as u64, 0, 0),
        ] {
            let section = 0x200 + index * SECTION;
            put(section, &name.to_le_bytes());
            put(section + 4, &kind.to_le_bytes());
            put(section + 24, &at.to_le_bytes());
            put(section + 32, &size.to_le_bytes());
            put(section + 40, &link.to_le_bytes());
            put(section + 48, &8u64.to_le_bytes());
            put(section + 56, &entry.to_le_bytes());
        }
        put(0x400, b"\0main\0");
        put(0x500, NAMES);
        bytes.resize(0x2000 + 24, 0);
        // A global function in a section, behind the symbol that is none.
        bytes.extend(1u32.to_le_bytes());
        bytes.extend([0x12, 0, 1, 0]);
        bytes.extend(FUNCTION.to_le_bytes());
        bytes.extend(16u64.to_le_bytes());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        // The rest has no blocks on the disk.
        file.as_file().set_len(length).unwrap();
        file
    }

    /// Such a file whose program headers, section headers and symbols all lie at odd offsets.
    pub fn misaligned() -> tempfile::NamedTempFile {
        let file = library(0x3003, 48);
        let bytes = std::fs::read(file.path()).unwrap();
        let mut moved = bytes.clone();
        let mut put = |at: usize, value: &[u8]| moved[at..at + value.len()].copy_from_slice(value);
        for (field, from, to, length) in
            [(32, 64, 0x701, PROGRAM), (0x240 + 24, 0x2000, 0x2805, 48)]
        {
            put(from, &vec![0xff; length]);
            put(to, &bytes[from..from + length]);
            put(field, &(to as u64).to_le_bytes());
        }
        let sections = moved[0x200..0x300].to_vec();
        moved[0x200..0x300].fill(0xff);
        moved[0x903..0xa03].copy_from_slice(&sections);
        moved[40..48].copy_from_slice(&0x903u64.to_le_bytes());
        std::fs::write(file.path(), moved).unwrap();
        file
    }

    /// Makes it one that others may change.
    pub fn open_to_all(file: &tempfile::NamedTempFile) {
        let all = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(file.path(), all).unwrap();
    }

    #[test]
    fn a_file_that_others_may_change_is_copied_and_kept_once() {
        let ours = library(0x3000, 48);
        let mut first = Readables::default();
        assert_eq!(first.path(ours.path()), Some(ours.path()));
        let others = library(1 << 30, 48);
        open_to_all(&others);
        let mut second = Readables::default();
        let copy = first.path(others.path()).unwrap().to_owned();
        assert_ne!(copy, others.path());
        assert_eq!(second.path(others.path()), Some(&*copy), "the same");
        assert!(first.copied < 4096, "{}", first.copied);
        let expected = std::fs::read(ours.path()).unwrap();
        let copy = File::open(&copy).unwrap();
        let pieces = looked_at(&copy);
        let at = pieces.tables[0].range.start;
        assert_eq!(read(&copy, at, 48).unwrap(), expected[0x2000..0x2030]);
        assert!(copy.metadata().unwrap().len() < 4096, "nothing else");
    }

    #[test]
    fn where_a_copy_was_that_is_given_up_no_other_comes() {
        let files = [library(0x3000, 48), library(0x4000, 48)];
        files.iter().for_each(open_to_all);
        let mut readables = Readables::default();
        let [given_up, other] = files.each_ref().map(|file| file.path());
        let path = readables.path(given_up).unwrap().to_owned();
        readables.give_up(given_up);
        assert_eq!(readables.path(given_up), None);
        assert_ne!(readables.path(other).unwrap(), path);
    }

    #[test]
    fn copies_have_a_limit() {
        let most = MOST_COPIED / 24 * 24 - 4800;
        let all: Vec<_> = (0..3)
            .map(|_| {
                let file = library(1 << 30, most);
                open_to_all(&file);
                file
            })
            .collect();
        let mut traces: [Readables; 3] = Default::default();
        assert!(traces[0].path(all[0].path()).is_some());
        assert!(traces[0].path(all[1].path()).is_none(), "of one trace");
        assert!(traces[1].path(all[1].path()).is_some());
        assert!(traces[2].path(all[2].path()).is_none(), "of all");
        traces[0] = Readables::default();
        traces[2] = Readables::default();
        assert!(traces[2].path(all[2].path()).is_some(), "given back");
    }

    #[test]
    fn what_takes_more_than_any_file_is_not_read() {
        let is_read = |length, symbols| {
            let file = library(length, symbols);
            Readables::default().path(file.path()).is_some()
        };
        assert!(is_read(0x3000, 48));
        assert!(is_read(1 << 30, MOST_SYMBOLS - 6));
        assert!(!is_read(1 << 30, MOST_SYMBOLS - 5), "with the names");
        assert!(!is_read(0x3000, 0x1001), "behind its end");
        assert!(!is_read(0x3000, u64::MAX));
        assert!(!is_read(100 << 30, 48));
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "no ELF file".repeat(100)).unwrap();
        assert_eq!(Readables::default().path(&text), None);
    }

    fn looked_at(file: &File) -> Pieces {
        Pieces::of(file, State::of(file).unwrap()).unwrap()
    }

    /// Of a section that is none by its name, until the offset of the program headers is another: that lies in the name.
    #[test]
    fn a_name_that_was_looked_at_is_the_name_that_is_read() {
        let file = library(1 << 30, 48);
        let mut bytes = read(file.as_file(), 0, 0x2100).unwrap();
        // The names are those in the header; the program headers lie at an odd offset that ends the name.
        bytes[25..32].copy_from_slice(b".symtab");
        bytes.copy_within(64..64 + PROGRAM, 0x1041);
        put(&mut bytes, 32, 0x1041);
        let names = 0x200 + 3 * SECTION;
        put(&mut bytes, names + 24, 0);
        put(&mut bytes, names + 32, 64);
        let section = 0x200 + SECTION;
        bytes[section..section + 4].copy_from_slice(&25u32.to_le_bytes());
        put(&mut bytes, section + 24, 0);
        put(&mut bytes, section + 32, (1 << 30) / 24 * 24);
        file.as_file().write_all_at(&bytes, 0).unwrap();
        let pieces = looked_at(file.as_file());
        assert!(pieces.needs_copy && pieces.tables.is_empty());
        let copy = copied(file.as_file(), &pieces).unwrap();
        let read_back = looked_at(&copy);
        assert_eq!(read_back.names.1, pieces.names.1, "the names are the same");
        assert!(read_back.tables.is_empty());
    }

    /// The section of the names is a table of symbols as well.
    #[test]
    fn names_are_those_that_were_looked_at_whatever_else_they_are() {
        let file = misaligned();
        let mut bytes = std::fs::read(file.path()).unwrap();
        let names = 0x903 + 3 * SECTION;
        let at = 0x3001 - 27;
        bytes.copy_within(0x500..0x500 + 27, at);
        bytes[names..names + 8].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
        put(&mut bytes, names + 24, at as u64);
        std::fs::write(file.path(), &bytes).unwrap();
        let pieces = looked_at(file.as_file());
        assert!(pieces.needs_copy && pieces.tables.len() == 3);
        // Others change them before they are copied.
        bytes[at..at + 27].fill(b'x');
        std::fs::write(file.path(), &bytes).unwrap();
        let copy = copied(file.as_file(), &pieces).unwrap();
        assert_eq!(looked_at(&copy).names.1, pieces.names.1);
    }

    /// Those of a file may lie in each other, and change between two looks.
    #[test]
    fn pieces_of_a_copy_do_not_lie_in_each_other() {
        let file = library(0x3000, 48);
        open_to_all(&file);
        let mut bytes = std::fs::read(file.path()).unwrap();
        // The names of the sections lie in the section headers, where an address is of no use; the program headers in the header.
        let names = 0x200 + 2 * SECTION + 16;
        bytes[names..names + 8].copy_from_slice(b".symtab\0");
        put(&mut bytes, 0x200 + 3 * SECTION + 24, names as u64);
        put(&mut bytes, 0x200 + 3 * SECTION + 32, 8);
        bytes[0x200 + SECTION..0x200 + SECTION + 4].fill(0);
        bytes[0x200 + 3 * SECTION..0x200 + 3 * SECTION + 4].fill(0);
        put(&mut bytes, 32, 8);
        std::fs::write(file.path(), &bytes).unwrap();
        let pieces = looked_at(file.as_file());
        let tables = pieces.tables.iter();
        let tables = tables.map(|table| table.to..table.to + (table.range.end - table.range.start));
        let heads = pieces
            .heads()
            .map(|(at, bytes)| at..at + bytes.len() as u64);
        let mut all: Vec<_> = heads.into_iter().chain(tables).collect();
        all.sort_by_key(|piece| (piece.start, piece.end));
        assert!(all.len() > 4, "with tables: {all:?}");
        assert!(
            all.windows(2).all(|two| two[0].end <= two[1].start),
            "{all:?}"
        );
        assert_eq!(pieces.length, all.last().unwrap().end);
    }

    /// Of many tables of one byte, each in a page of its own.
    #[test]
    fn a_copy_takes_as_much_memory_as_its_pieces_have_bytes() {
        const COUNT: usize = 2_000;
        const SECTIONS_AT: u64 = 0x10_0000;
        let file = library(1 << 30, 48);
        open_to_all(&file);
        let mut header = read(file.as_file(), 0, HEADER).unwrap();
        let mut sections = read(file.as_file(), 0x200, 4 * SECTION).unwrap();
        let one = sections[SECTION..2 * SECTION].to_vec();
        for index in 0..COUNT as u64 {
            let at = sections.len();
            sections.extend(&one);
            put(&mut sections, at + 24, 0x20_0000 + index * 4096);
            put(&mut sections, at + 32, 1);
        }
        put(&mut header, 40, SECTIONS_AT);
        header[60..62].copy_from_slice(&(4 + COUNT as u16).to_le_bytes());
        file.as_file().write_all_at(&header, 0).unwrap();
        let written = file.as_file().write_all_at(&sections, SECTIONS_AT);
        written.unwrap();
        let pieces = looked_at(file.as_file());
        assert_eq!(pieces.tables.len(), 2 + COUNT);
        let copy = copied(file.as_file(), &pieces).unwrap();
        let taken = copy.metadata().unwrap().blocks() * 512;
        assert!(taken < pieces.bytes() * 2, "{taken} for {}", pieces.bytes());
    }
}
