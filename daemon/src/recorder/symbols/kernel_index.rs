//! Names of the kernel's functions by their distance from the beginning of its code, and of each module's, as a file.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs, io,
    io::{Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::kernel::Part;

/// All symbols of the running kernel: address, type, name and, in brackets, the module.
pub const SYMBOLS: &str = "/proc/kallsyms";

/// A line of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'l> {
    /// 0 if the kernel hides it.
    pub address: u64,
    /// `t` and `T`: code; `w` and `W`: code that may be replaced; others are data.
    pub kind: u8,
    /// Its name.
    pub name: &'l [u8],
    /// The module it is of; empty for the kernel itself.
    pub module: &'l [u8],
}

/// Reads a line of [`SYMBOLS`].
pub fn symbol(line: &[u8]) -> Option<Symbol<'_>> {
    let mut words = line
        .split(|b| b.is_ascii_whitespace())
        .filter(|w| !w.is_empty());
    let address = std::str::from_utf8(words.next()?).ok()?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let &[kind] = words.next()? else { return None };
    let name = words.next()?;
    let module = words.next().unwrap_or_default();
    let module = module.strip_prefix(b"[").unwrap_or(module);
    let module = module.strip_suffix(b"]").unwrap_or(module);
    Some(Symbol {
        address,
        kind,
        name,
        module,
    })
}

/// Where the kernel's own code ends.
const CODE_ENDS: &[u8] = b"_etext";

/// Names by part and distance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    parts: BTreeMap<String, Functions>,
}

/// Functions of a part, by their distance from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Functions {
    /// Where each begins; the last one is where the part ends.
    starts: Vec<u32>,
    /// Where the name of each ends in `names`.
    name_ends: Vec<u32>,
    names: String,
}

/// Of several names for a place: code that is not replaceable, known to other files, without underscores before it.
fn rank(symbol: &Symbol<'_>) -> impl Ord {
    let underscores = symbol.name.iter().take_while(|&&b| b == b'_').count();
    let sort = match symbol.kind {
        b'T' => 0,
        b't' => 1,
        _ => 2,
    };
    (sort, underscores, Reverse(symbol.name.len()))
}

impl Functions {
    fn new(mut symbols: Vec<(u32, Symbol<'_>)>, end: Option<u32>) -> Functions {
        symbols.sort_by(|a, b| (a.0, rank(&a.1)).cmp(&(b.0, rank(&b.1))));
        symbols.dedup_by_key(|s| s.0);
        let mut functions = Functions::default();
        for (start, symbol) in symbols {
            if end.is_some_and(|end| start >= end) {
                break;
            }
            functions.starts.push(start);
            functions.names += &String::from_utf8_lossy(symbol.name);
            functions.name_ends.push(functions.names.len() as u32);
        }
        functions.starts.push(end.unwrap_or(u32::MAX));
        functions
    }

    fn name(&self, offset: u64) -> Option<&str> {
        let offset = u32::try_from(offset).ok()?;
        let index = self
            .starts
            .partition_point(|&s| s <= offset)
            .checked_sub(1)?;
        let end = *self.name_ends.get(index)? as usize;
        let start = match index {
            0 => 0,
            _ => *self.name_ends.get(index - 1)? as usize,
        };
        self.names.get(start..end)
    }
}

/// What an index file begins with; the last byte is the format's version.
const MAGIC: &[u8; 8] = b"npkern\0\x01";
/// Magic and checksum.
const HEAD: usize = MAGIC.len() + 4;
/// A kernel with all its modules has some 10 MB of names.
const LARGEST: u64 = 64 << 20;

impl Index {
    /// Of the text of [`SYMBOLS`]. `parts`: the kernel's own code (its name is empty) and modules.
    pub fn new(symbols: &[u8], parts: &[Part]) -> Index {
        let starts: BTreeMap<&[u8], u64> =
            parts.iter().map(|p| (p.name.as_bytes(), p.start)).collect();
        let mut of_parts: BTreeMap<&[u8], Vec<(u32, Symbol<'_>)>> = BTreeMap::new();
        let mut end = None;
        for symbol in symbols.split(|&b| b == b'\n').filter_map(symbol) {
            let Some(offset) = starts
                .get(symbol.module)
                .and_then(|start| u32::try_from(symbol.address.checked_sub(*start)?).ok())
            else {
                continue;
            };
            if symbol.name == CODE_ENDS && symbol.module.is_empty() {
                end = Some(offset);
            } else if matches!(symbol.kind, b't' | b'T' | b'w' | b'W') {
                of_parts
                    .entry(symbol.module)
                    .or_default()
                    .push((offset, symbol));
            }
        }
        let parts = starts.keys().map(|&name| {
            let end = end.filter(|_| name.is_empty());
            let symbols = of_parts.remove(name).unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            (name, Functions::new(symbols, end))
        });
        Index {
            parts: parts.collect(),
        }
    }

    /// Whether it knows a part.
    pub fn has(&self, part: &str) -> bool {
        self.parts.contains_key(part)
    }

    /// The function of a part that lies at this distance from the part's beginning.
    pub fn name(&self, part: &str, offset: u64) -> Option<&str> {
        self.parts.get(part)?.name(offset)
    }

    /// Reads a file of [`Index::write`]; `None` if there is none that can be used.
    pub fn read(file: &Path) -> Option<Index> {
        let mut opened = fs::File::open(file).ok()?;
        let meta = opened.metadata().ok()?;
        // It tells names only; but nobody shall choose what root reads.
        if !meta.is_file() || meta.len() > LARGEST || meta.mode() & 0o022 != 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(meta.len() as usize);
        opened.read_to_end(&mut bytes).ok()?;
        let (head, body) = bytes.split_at_checked(HEAD)?;
        (head == head_of(body)).then(|| postcard::from_bytes(body).ok())?
    }

    /// Keeps it, whole or not at all.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let folder = file.parent().unwrap_or(Path::new("."));
        let body = postcard::to_stdvec(self).map_err(io::Error::other)?;
        let mut temporary = tempfile::Builder::new()
            .prefix(".kernel")
            .permissions(fs::Permissions::from_mode(0o644))
            .tempfile_in(folder)?;
        temporary.write_all(&head_of(&body))?;
        temporary.write_all(&body)?;
        temporary.persist(file).map_err(|e| e.error)?;
        Ok(())
    }
}

fn head_of(body: &[u8]) -> Vec<u8> {
    let sum = crc32fast::hash(body).to_le_bytes();
    [MAGIC.as_slice(), &sum].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000010 t __pfx_vfs_read
ffffffff81000020 W __weak_read
ffffffff81000020 T vfs_read
ffffffff81000020 T __vfs_read
ffffffff81000080 T vfs_write
ffffffff81000100 T _etext
ffffffff82000000 D some_data
ffffffff83000000 t init_function
ffffffffc0001000 t virtnet_poll\t[virtio_net]
ffffffffc0001040 t virtnet_open\t[virtio_net]
ffffffffc0009000 t bpf_prog_1234_x\t[bpf]
";

    fn index(module_at: u64) -> Index {
        let part = |start, name: &str| Part {
            start,
            size: 0x1000,
            name: name.into(),
        };
        let parts = [
            part(0xffff_ffff_8100_0000, ""),
            part(module_at, "virtio_net"),
        ];
        Index::new(TEXT, &parts)
    }

    #[test]
    fn functions_are_found_by_their_distance() {
        let index = index(0xffff_ffff_c000_1000);
        for (part, offset, expected) in [
            ("", 0x10, Some("__pfx_vfs_read")),
            ("", 0x20, Some("vfs_read")),
            ("", 0x7f, Some("vfs_read")),
            ("", 0x80, Some("vfs_write")),
            ("", 0xff, Some("vfs_write")),
            ("", 0x100, None),
            ("", 0x200_0000, None),
            ("", 0x4000_1000, None),
            ("virtio_net", 0, Some("virtnet_poll")),
            ("virtio_net", 0x44, Some("virtnet_open")),
            ("bpf", 0, None),
        ] {
            assert_eq!(index.name(part, offset), expected, "{part} {offset:#x}");
        }
        assert!(index.has("virtio_net") && !index.has("bpf"));
    }

    #[test]
    fn what_was_kept_is_read_again_and_what_was_damaged_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("kernel.names");
        let index = index(0xffff_ffff_c000_1000);
        index.write(&file).expect("written");
        assert_eq!(Index::read(&file), Some(index));
        let whole = fs::read(&file).expect("a file");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            fs::write(&file, &damaged).expect("a file");
            assert_eq!(Index::read(&file), None, "byte {at}");
        }
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).expect("a file");
            assert_eq!(Index::read(&file), None, "{length} bytes");
        }
        assert_eq!(Index::read(&folder.path().join("none")), None);
    }

    #[test]
    fn lines_of_any_content_are_survived() {
        for line in [
            "",
            "x",
            "12",
            "12 t",
            "12 tt x",
            "zz t x",
            "12 t x\t[",
            "12 t \t[m]",
        ] {
            let _ = symbol(line.as_bytes());
        }
        assert_eq!(
            symbol(b"00000000000000ff t f\t[m]\n"),
            Some(Symbol {
                address: 255,
                kind: b't',
                name: b"f",
                module: b"m"
            })
        );
    }
}
