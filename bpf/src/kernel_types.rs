//! The kernel's own description of its types (BTF), reduced to the few that nodeprof's programs read.
//!
//! libbpf looks through all 150,000 types of a kernel for each type of a program: 11 ms of a start. A file with some hundred
//! of them, kept in the cache folder, does the same in no time. It belongs to one build of a kernel, by its build-id.

use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    fs,
    io::{self, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _},
    },
    path::Path,
};

use crate::wire::KERNEL_TYPES;

/// All types of the running kernel.
const ALL: &str = "/sys/kernel/btf/vmlinux";
/// ELF notes of the running kernel, its build-id among them.
const NOTES: &str = "/sys/kernel/notes";
/// Changes with what is kept.
const FORMAT: u32 = 1;

// What a type is: uapi/linux/btf.h.
const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FORWARD: u32 = 7;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNCTION: u32 = 12;
const PROTOTYPE: u32 = 13;
const VARIABLE: u32 = 14;
const SECTION: u32 = 15;
const FLOAT: u32 = 16;
const DECLARATION_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;

/// Path of the reduced description of the running kernel's types, which is made if it is not there yet. `None` if that cannot
/// be: then all types serve.
pub(crate) fn reduced(cache: &Path) -> Option<CString> {
    let notes = fs::read(NOTES).ok()?;
    let id = build_id(&notes)?;
    let names: String = KERNEL_TYPES.join(",");
    let name = format!(
        "kernel-types-{FORMAT}-{id}-{:08x}.btf",
        crc32fast::hash(names.as_bytes())
    );
    let path = cache.join(name);
    // The file decides where programs of the kernel read: nobody else may have written it.
    // SAFETY: it only tells a number.
    let me = unsafe { libc::geteuid() };
    let kept = fs::symlink_metadata(&path).is_ok_and(|m| {
        m.is_file() && (m.uid() == me || m.uid() == 0) && m.mode() & 0o022 == 0 && m.len() > 0
    });
    if !kept {
        let all = fs::read(ALL).ok()?;
        write(&path, &reduce(&all, KERNEL_TYPES)?).ok()?;
    }
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Removes a file that libbpf could not use: the next start makes a new one.
pub(crate) fn forget(path: &CString) {
    let path = Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()));
    let _ = fs::remove_file(path);
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    // For its owner alone, whoever looks at it before it has its name.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

/// The GNU build-id among ELF notes, in hexadecimal digits.
fn build_id(mut notes: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"GNU\0";
    const BUILD_ID: u32 = 3;
    loop {
        let (name, description, kind) = (word(notes, 0)?, word(notes, 4)?, word(notes, 8)?);
        let at = 12usize.checked_add((name as usize).checked_next_multiple_of(4)?)?;
        let end = at.checked_add(description as usize)?;
        let id = notes.get(at..end)?;
        if kind == BUILD_ID && notes.get(12..12 + name as usize)? == NAME && !id.is_empty() {
            return Some(id.iter().map(|b| format!("{b:02x}")).collect());
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// A type as it lies in the file: words of the head, then those of its members.
#[derive(Clone, Copy)]
struct Type<'b> {
    name: u32,
    info: u32,
    /// Size in bytes, or the type it is made of.
    last: u32,
    rest: &'b [u8],
}

impl Type<'_> {
    fn kind(&self) -> u32 {
        self.info >> 24 & 31
    }

    fn members(&self) -> usize {
        (self.info & 0xffff) as usize
    }

    /// Bytes behind the head; `None` for a kind that is not known.
    fn rest_of(kind: u32, members: usize) -> Option<usize> {
        Some(match kind {
            INT | VARIABLE | DECLARATION_TAG => 4,
            ARRAY => 12,
            STRUCT | UNION | SECTION | ENUM64 => 12 * members,
            ENUM | PROTOTYPE => 8 * members,
            POINTER | FORWARD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNCTION | FLOAT
            | TYPE_TAG => 0,
            _ => return None,
        })
    }

    /// Whether `last` is a type.
    fn is_made_of_another(&self) -> bool {
        matches!(
            self.kind(),
            TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG
        )
    }

    /// Places in `rest` of the types that it needs to be laid out. What a pointer points to is none of them.
    fn needed(&self) -> Vec<usize> {
        match self.kind() {
            ARRAY => vec![0, 4],
            STRUCT | UNION => (0..self.members()).map(|m| 12 * m + 4).collect(),
            _ => Vec::new(),
        }
    }

    /// Places in `rest` of names.
    fn named(&self) -> Vec<usize> {
        match self.kind() {
            STRUCT | UNION | ENUM64 => (0..self.members()).map(|m| 12 * m).collect(),
            ENUM => (0..self.members()).map(|m| 8 * m).collect(),
            _ => Vec::new(),
        }
    }
}

/// BTF with the structures of these names, and what they are laid out of; `None` if it is not BTF as it is known here.
fn reduce(btf: &[u8], names: &[&str]) -> Option<Vec<u8>> {
    if btf.get(..2)? != MAGIC.to_ne_bytes() || btf.get(2)? != &1 {
        return None;
    }
    let start = word(btf, 4)? as usize;
    let part = |offset: usize, length: usize| {
        let begin = start.checked_add(word(btf, offset)? as usize)?;
        btf.get(begin..begin.checked_add(word(btf, length)? as usize)?)
    };
    let (types, strings) = (part(8, 12)?, part(16, 20)?);
    let text = |offset: u32| -> Option<&[u8]> {
        let rest = strings.get(offset as usize..)?;
        rest.get(..rest.iter().position(|b| *b == 0)?)
    };

    // Type 0 is void.
    let mut all = vec![None];
    let mut at = 0;
    while at < types.len() {
        let (name, info, last) = (word(types, at)?, word(types, at + 4)?, word(types, at + 8)?);
        let bytes = Type::rest_of(info >> 24 & 31, (info & 0xffff) as usize)?;
        let rest = types.get(at + 12..at + 12 + bytes)?;
        all.push(Some(Type {
            name,
            info,
            last,
            rest,
        }));
        at += 12 + bytes;
    }

    let wanted: HashSet<&[u8]> = names.iter().map(|n| n.as_bytes()).collect();
    let mut new_ids: HashMap<u32, u32> = HashMap::from([(0, 0)]);
    let mut order = Vec::new();
    let mut todo: Vec<u32> = Vec::new();
    for (id, kind) in all.iter().enumerate() {
        if let Some(kind) = kind
            && kind.kind() == STRUCT
            && wanted.contains(text(kind.name)?)
        {
            todo.push(id as u32);
        }
    }
    while let Some(id) = todo.pop() {
        if new_ids.contains_key(&id) {
            continue;
        }
        let kind = (*all.get(id as usize)?)?;
        order.push(kind);
        new_ids.insert(id, order.len() as u32);
        if kind.is_made_of_another() {
            todo.push(kind.last);
        }
        for place in kind.needed() {
            todo.push(word(kind.rest, place)?);
        }
    }

    let mut out_types = Vec::new();
    let mut out_strings = vec![0u8];
    let mut known: HashMap<u32, u32> = HashMap::from([(0, 0)]);
    let mut string = |offset: u32| -> Option<u32> {
        if let Some(known) = known.get(&offset) {
            return Some(*known);
        }
        let new = out_strings.len() as u32;
        out_strings.extend_from_slice(text(offset)?);
        out_strings.push(0);
        known.insert(offset, new);
        Some(new)
    };
    let put = |rest: &mut [u8], place: usize, value: u32| {
        rest[place..place + 4].copy_from_slice(&value.to_ne_bytes());
    };
    for kind in &order {
        let last = match kind.kind() {
            POINTER => 0, // to anything
            _ if kind.is_made_of_another() => *new_ids.get(&kind.last)?,
            // Functions and variables have no place in a structure.
            FUNCTION | PROTOTYPE | VARIABLE | SECTION | DECLARATION_TAG => return None,
            _ => kind.last,
        };
        let mut rest = kind.rest.to_vec();
        for place in kind.needed() {
            put(&mut rest, place, *new_ids.get(&word(kind.rest, place)?)?);
        }
        for place in kind.named() {
            put(&mut rest, place, string(word(kind.rest, place)?)?);
        }
        for value in [string(kind.name)?, kind.info, last] {
            out_types.extend_from_slice(&value.to_ne_bytes());
        }
        out_types.extend_from_slice(&rest);
    }

    let mut out = Vec::with_capacity(HEADER + out_types.len() + out_strings.len());
    out.extend_from_slice(&MAGIC.to_ne_bytes());
    out.extend_from_slice(&[1, 0]);
    let types = u32::try_from(out_types.len()).ok()?;
    let strings = u32::try_from(out_strings.len()).ok()?;
    for value in [HEADER as u32, 0, types, types, strings] {
        out.extend_from_slice(&value.to_ne_bytes());
    }
    out.extend_from_slice(&out_types);
    out.extend_from_slice(&out_strings);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types by name, with the names of their members and where these lie, in bits.
    fn layouts(btf: &[u8], names: &[&str]) -> HashMap<String, Vec<(String, u32)>> {
        let start = word(btf, 4).expect("a header") as usize;
        let at = |offset| start + word(btf, offset).expect("a header") as usize;
        let types = &btf[at(8)..at(8) + word(btf, 12).expect("a length") as usize];
        let text = |offset: u32| {
            let rest = &btf[at(16) + offset as usize..];
            let end = rest.iter().position(|b| *b == 0).expect("an end");
            String::from_utf8_lossy(&rest[..end]).into_owned()
        };
        let mut found = HashMap::new();
        let mut next = 0;
        while next < types.len() {
            let w = |i: usize| word(types, next + 4 * i).expect("a word");
            let (kind, members) = (w(1) >> 24 & 31, (w(1) & 0xffff) as usize);
            if kind == STRUCT && names.contains(&text(w(0)).as_str()) {
                let member = |m: usize| (text(w(3 + 3 * m)), w(5 + 3 * m));
                found.insert(text(w(0)), (0..members).map(member).collect());
            }
            next += 12 + Type::rest_of(kind, members).expect("a kind");
        }
        found
    }

    #[test]
    fn the_layouts_are_those_of_the_kernel() {
        let Ok(all) = fs::read(ALL) else {
            println!("skipped: this kernel has no {ALL}");
            return;
        };
        let reduced = reduce(&all, KERNEL_TYPES).expect("BTF");
        let (before, after) = (layouts(&all, KERNEL_TYPES), layouts(&reduced, KERNEL_TYPES));
        assert!(after["task_struct"].iter().any(|m| m.0 == "tgid"));
        assert_eq!(before, after);
        assert!(
            reduced.len() < all.len() / 10,
            "{} of {} bytes",
            reduced.len(),
            all.len()
        );
    }

    #[test]
    fn what_is_no_btf_is_refused() {
        let Ok(all) = fs::read(ALL) else {
            println!("skipped: this kernel has no {ALL}");
            return;
        };
        assert!(reduce(b"", KERNEL_TYPES).is_none());
        assert!(reduce(&[0; 64], KERNEL_TYPES).is_none());
        for length in [1, 23, 24, 100, 5_000, all.len() / 2, all.len() - 1] {
            assert!(reduce(&all[..length], KERNEL_TYPES).is_none(), "{length}");
        }
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let note = |name: &[u8], kind: u32, description: &[u8]| {
            let mut note = Vec::new();
            for value in [name.len() as u32, description.len() as u32, kind] {
                note.extend_from_slice(&value.to_ne_bytes());
            }
            for part in [name, description] {
                note.extend_from_slice(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let notes = [
            note(b"Linux\0", 0x101, b"\x01"),
            note(b"GNU\0", 3, b"\xab\xcd\x01"),
        ]
        .concat();
        assert_eq!(build_id(&notes).as_deref(), Some("abcd01"));
        assert_eq!(build_id(&notes[..20]), None);
        assert_eq!(build_id(&[0xff; 40]), None);
    }
}
