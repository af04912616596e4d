//! The binary: segments, functions, build-id. Every figure in the file may lie, so every sum is checked.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use object::Endianness;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};

use crate::error::PlanError;
use crate::mapping::Mapping;
use crate::names;
use crate::plan::{Address, AddressRange, BuildId, FileOffset, Segment};
use crate::v8::Constants;

/// Mangled `node::Start(int, char**)`: every build of node has it, nothing else does.
pub(crate) const NODE_START: &[u8] = b"_ZN4node5StartEiPPc";

/// In front of the names of V8's builtins.
pub(crate) const BUILTIN: &[u8] = b"Builtins_";

/// The largest function of a node binary is an interpreter of regular expressions, about 60 KiB; a symbol
/// that claims more than this is not believed.
const LARGEST_FUNCTION: u64 = 1 << 20;

// Anybody writes such a file, and a service reads it ahead of all ordinary programs. What has more of anything than these is no node.

/// Program headers; official builds have 14. Linux executes none with more than 64 KiB of them.
const MOST_PROGRAMS: usize = 256;
/// Sections; official builds have 42.
const MOST_SECTIONS: usize = 4096;
/// Symbols; official builds have 170,000.
const MOST_SYMBOLS: usize = 2 << 20;
/// Bytes of symbols and their names; official builds have 23 MB.
const MOST_SYMBOL_BYTES: usize = 256 << 20;
/// A symbol with a longer name is one without. Of longer ones no names are made either (`names`).
const LONGEST_NAME: usize = 8 << 10;
/// V8's notes for debuggers; official builds have 400.
const MOST_CONSTANTS: usize = 64 << 10;
/// Bytes of notes in a segment; official builds have 68.
const MOST_NOTES: u64 = 64 << 10;
/// Bytes of a build-id; 20 is usual.
const LONGEST_BUILD_ID: usize = 64;
/// Entries of a dynamic section; official builds have 40.
const MOST_DYNAMIC: usize = 4096;
/// Bytes of all that is not writable; official builds have 120 MB.
const MOST_READ_ONLY: usize = 512 << 20;

type Header = FileHeader64<Endianness>;

/// A file mapped into memory.
pub(crate) fn map(path: &Path) -> Result<Mapping, PlanError> {
    let unreadable = |source| PlanError::NotFound {
        path: path.to_owned(),
        source,
    };
    // First without opening it: that of a pipe waits, and that of a device may have an effect.
    let found = File::options()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)
        .map_err(unreadable)?;
    // An empty file cannot be mapped, and mapping a folder or a device makes no sense.
    let metadata = found.metadata().map_err(unreadable)?;
    if !metadata.is_file() || metadata.len() < 4 {
        return Err(PlanError::NotElf {
            path: path.to_owned(),
            found: if metadata.is_file() {
                format!("a file of {} bytes", metadata.len())
            } else {
                "something that is not a regular file".to_owned()
            },
        });
    }
    // Who has a lease on it is not waited for.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(format!("/proc/self/fd/{}", found.as_raw_fd()))
        .map_err(unreadable)?;
    Mapping::new(&file).map_err(unreadable)
}

/// ELF header and program headers: all that a cached plan needs.
pub(crate) struct Outline<'d> {
    data: &'d [u8],
    header: &'d Header,
    endian: Endianness,
    programs: &'d [ProgramHeader64<Endianness>],
}

impl<'d> Outline<'d> {
    /// Reads the headers; refuses what is not a 64-bit x86 ELF program.
    pub(crate) fn parse(path: &Path, data: &'d [u8]) -> Result<Self, PlanError> {
        if !data.starts_with(b"\x7fELF") {
            return Err(PlanError::NotElf {
                path: path.to_owned(),
                found: describe_magic(data),
            });
        }
        let wrong_class = data.get(4) != Some(&elf::ELFCLASS64.0);
        let wrong_order = data.get(5) != Some(&elf::ELFDATA2LSB.0);
        if wrong_class || wrong_order {
            return Err(PlanError::WrongArchitecture {
                path: path.to_owned(),
                found: if wrong_class {
                    "a 32-bit ELF file".to_owned()
                } else {
                    "a big-endian ELF file".to_owned()
                },
            });
        }
        let malformed = |what: &str| PlanError::Malformed {
            path: path.to_owned(),
            what: what.to_owned(),
        };
        let header = Header::parse(data).map_err(|_| malformed("its ELF header is cut off"))?;
        let endian = header
            .endian()
            .map_err(|_| malformed("its ELF header contradicts itself"))?;
        let machine = header.e_machine(endian);
        if machine != elf::EM_X86_64 {
            return Err(PlanError::WrongArchitecture {
                path: path.to_owned(),
                found: format!("a binary for {}", machine_name(machine)),
            });
        }
        let programs = header
            .program_headers(endian, data)
            .map_err(|_| malformed("its program headers lie outside the file"))?;
        if programs.len() > MOST_PROGRAMS {
            return Err(malformed(&format!(
                "it has {} program headers, more than any program",
                programs.len()
            )));
        }
        Ok(Self {
            data,
            header,
            endian,
            programs,
        })
    }

    /// Position-independent: the kernel or the loader adds a bias to every address.
    pub(crate) fn pie(&self) -> bool {
        self.header.e_type(self.endian) == elf::ET_DYN
    }

    /// The GNU build-id note, if the linker wrote one.
    pub(crate) fn build_id(&self) -> Option<BuildId> {
        let programs = self.programs.iter();
        let mut programs = programs.filter(|p| p.p_filesz(self.endian) <= MOST_NOTES);
        programs.find_map(|program| {
            let mut notes = program.notes(self.endian, self.data).ok()??;
            while let Ok(Some(note)) = notes.next() {
                if note.name() == elf::ELF_NOTE_GNU
                    && note.n_type(self.endian) == elf::NT_GNU_BUILD_ID
                    && (1..=LONGEST_BUILD_ID).contains(&note.desc().len())
                {
                    let hex = note.desc().iter().map(|b| format!("{b:02x}")).collect();
                    return Some(BuildId(hex));
                }
            }
            None
        })
    }

    /// Tells apart two files of the same build-id whose segments lie elsewhere (patched, packed anew), or that have other symbols (stripped,
    /// of which a plan may lack what it has with them).
    pub(crate) fn layout(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(object::bytes_of(self.header).get(..40).unwrap_or_default());
        hasher.update(object::bytes_of_slice(self.programs));
        if let Ok(symbols) = self.symbols(elf::SHT_SYMTAB) {
            hasher.update(&symbols.names.len().to_le_bytes());
            hasher.update(object::bytes_of_slice(symbols.table));
        }
        hasher.finalize()
    }

    /// The executable PT_LOADs, ascending.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        let mut segments: Vec<Segment> = self
            .programs
            .iter()
            .filter(|p| {
                p.p_type(self.endian) == elf::PT_LOAD && p.p_flags(self.endian).0 & elf::PF_X.0 != 0
            })
            .filter_map(|p| {
                let offset = p.p_offset(self.endian);
                let left = (self.data.len() as u64).checked_sub(offset)?;
                let size = p.p_filesz(self.endian).min(left);
                let address = p.p_vaddr(self.endian);
                address.checked_add(size)?;
                (size > 0).then_some(Segment {
                    address: Address(address),
                    offset: FileOffset(offset),
                    size,
                })
            })
            .collect();
        segments.sort_by_key(|segment| segment.address);
        segments
    }

    /// The file bytes of all that is not writable, first what is not code: where strings are. Builds up to 18 keep their
    /// strings in one segment with the code.
    pub(crate) fn read_only_data(&self) -> impl Iterator<Item = &'d [u8]> {
        let of = |code: bool| {
            let (data, endian) = (self.data, self.endian);
            self.programs
                .iter()
                .filter(move |p| {
                    let flags = p.p_flags(endian).0;
                    p.p_type(endian) == elf::PT_LOAD
                        && flags & elf::PF_W.0 == 0
                        && (flags & elf::PF_X.0 != 0) == code
                })
                .filter_map(move |p| p.data(endian, data).ok())
        };
        let mut left = MOST_READ_ONLY;
        of(false).chain(of(true)).map_while(move |bytes| {
            left = left.checked_sub(bytes.len())?;
            Some(bytes)
        })
    }

    /// Whether the dynamic symbol table *defines* `name`: a look-up in `.gnu.hash`, which reads a few cache lines.
    pub(crate) fn exports(&self, name: &[u8]) -> bool {
        self.lookup_exported(name).unwrap_or(false)
    }

    fn lookup_exported(&self, name: &[u8]) -> Option<bool> {
        let (mut hash, mut symbols, mut strings) = (None, None, None);
        for program in self.programs {
            if let Ok(Some(entries)) = program.dynamic(self.endian, self.data) {
                for entry in entries.iter().take(MOST_DYNAMIC) {
                    use object::read::elf::Dyn;
                    let value = entry.d_val(self.endian);
                    match entry.d_tag(self.endian) {
                        elf::DT_GNU_HASH => hash = Some(value),
                        elf::DT_SYMTAB => symbols = Some(value),
                        elf::DT_STRTAB => strings = Some(value),
                        _ => {}
                    }
                }
            }
        }
        let (hash, symbols, strings) = (hash?, symbols?, strings?);
        let u32_at = |address: u64| -> Option<u32> {
            Some(u32::from_le_bytes(
                self.bytes_at(address, 4)?.try_into().ok()?,
            ))
        };
        let u64_at = |address: u64| -> Option<u64> {
            Some(u64::from_le_bytes(
                self.bytes_at(address, 8)?.try_into().ok()?,
            ))
        };
        let wanted = elf::gnu_hash(name);
        let bucket_count = u32_at(hash)?;
        let symbol_base = u32_at(hash.checked_add(4)?)?;
        let bloom_count = u32_at(hash.checked_add(8)?)?;
        let bloom_shift = u32_at(hash.checked_add(12)?)?;
        if bucket_count == 0 || bloom_count == 0 {
            return Some(false);
        }
        let blooms = hash.checked_add(16)?;
        let bloom_index = u64::from(wanted / 64 % bloom_count);
        let word = u64_at(blooms.checked_add(bloom_index.checked_mul(8)?)?)?;
        let bits = (1u64 << (wanted % 64)) | (1u64 << (wanted.checked_shr(bloom_shift)? % 64));
        if word & bits != bits {
            return Some(false);
        }
        let buckets = blooms.checked_add(u64::from(bloom_count).checked_mul(8)?)?;
        let chains = buckets.checked_add(u64::from(bucket_count).checked_mul(4)?)?;
        let bucket = u64::from(wanted % bucket_count);
        let mut index = u32_at(buckets.checked_add(bucket * 4)?)?;
        if index < symbol_base {
            return Some(false);
        }
        // A chain ends at an odd hash; a lying table could go on for ever.
        for _ in 0..4096 {
            let link = u32_at(chains.checked_add(u64::from(index - symbol_base) * 4)?)?;
            if link | 1 == wanted | 1 {
                let symbol = symbols.checked_add(u64::from(index).checked_mul(24)?)?;
                let text = strings.checked_add(u64::from(u32_at(symbol)?))?;
                let found = self.bytes_at(text, name.len() as u64 + 1)?;
                if found.split_last() == Some((&0, name)) {
                    return Some(true);
                }
            }
            if link & 1 == 1 {
                break;
            }
            index = index.checked_add(1)?;
        }
        Some(false)
    }

    /// The first symbol table of a kind, with its names; empty if there is none. The reason if it cannot be read, or has more than any node.
    fn symbols(&self, kind: elf::SectionType) -> Result<Symbols<'d>, String> {
        let sections = self.header.section_headers(self.endian, self.data);
        let sections =
            sections.map_err(|_| "its section headers lie outside the file".to_owned())?;
        if sections.len() > MOST_SECTIONS {
            let found = sections.len();
            return Err(format!("it has {found} sections, more than any program"));
        }
        let is_table = |section: &&SectionHeader64<_>| section.sh_type(self.endian) == kind;
        let Some(section) = sections.iter().find(is_table) else {
            return Ok(Symbols::none(self.endian));
        };
        let outside = |_| "its symbol table lies outside the file".to_owned();
        let table = section.data_as_array::<Sym64<_>, _>(self.endian, self.data);
        let table = table.map_err(outside)?;
        let names = match section.sh_link(self.endian) {
            0 => &[],
            link => {
                let names = sections.get(link as usize);
                let names = names.filter(|names| names.sh_type(self.endian) == elf::SHT_STRTAB);
                let names = names
                    .ok_or_else(|| "the names of its symbols are in no string table".to_owned())?;
                names.data(self.endian, self.data).map_err(outside)?
            }
        };
        if table.len() > MOST_SYMBOLS {
            let found = table.len();
            return Err(format!("it has {found} symbols, more than any node"));
        }
        if size_of_val(table) + names.len() > MOST_SYMBOL_BYTES {
            let found = names.len() >> 20;
            return Err(format!(
                "the names of its symbols take {found} MiB, more than of any node"
            ));
        }
        Ok(Symbols {
            table,
            names,
            endian: self.endian,
        })
    }

    /// Whether the dynamic symbol table *imports* node::Start: a launcher in front of libnode.
    fn imports_node_start(&self) -> bool {
        let Ok(symbols) = self.symbols(elf::SHT_DYNSYM) else {
            return false;
        };
        symbols
            .table
            .iter()
            .any(|symbol| symbol.is_undefined(self.endian) && symbols.is_named(symbol, NODE_START))
    }

    /// Whether the names of symbols have node::Start among them; only for binaries whose dynamic symbols do not tell.
    /// `None`: there are more bytes of names than these.
    pub(crate) fn names_have_node_start(&self, most: usize) -> Option<bool> {
        let names = |kind| self.symbols(kind).map_or(&[][..], |symbols| symbols.names);
        let (dynamic, mut all) = (names(elf::SHT_DYNSYM), names(elf::SHT_SYMTAB));
        if std::ptr::eq(all, dynamic) {
            all = &[];
        }
        if dynamic.len() + all.len() > most {
            return None;
        }
        let mut tables = [dynamic, all].into_iter();
        Some(tables.any(|names| memchr::memmem::find(names, NODE_START).is_some()))
    }

    /// Address and size of a variable by its symbol. Looks through the whole table: some milliseconds.
    pub(crate) fn object(&self, name: &[u8]) -> Option<(u64, u64)> {
        let symbols = self.symbols(elf::SHT_SYMTAB).ok()?;
        symbols.table.iter().find_map(|symbol| {
            (symbol.st_type() == elf::STT_OBJECT && symbols.is_named(symbol, name))
                .then(|| (symbol.st_value(self.endian), symbol.st_size(self.endian)))
        })
    }

    /// `length` bytes of the file that will be mapped at `address`.
    pub(crate) fn bytes_at(&self, address: u64, length: u64) -> Option<&'d [u8]> {
        self.programs
            .iter()
            .filter(|p| p.p_type(self.endian) == elf::PT_LOAD)
            .find_map(|p| {
                let inside = address.checked_sub(p.p_vaddr(self.endian))?;
                let end = inside.checked_add(length)?;
                if end > p.p_filesz(self.endian) {
                    return None;
                }
                let start = p.p_offset(self.endian).checked_add(inside)?;
                let stop = start.checked_add(length)?;
                self.data
                    .get(usize::try_from(start).ok()?..usize::try_from(stop).ok()?)
            })
    }
}

/// A symbol table and the names in it.
struct Symbols<'d> {
    table: &'d [Sym64<Endianness>],
    names: &'d [u8],
    endian: Endianness,
}

impl<'d> Symbols<'d> {
    fn none(endian: Endianness) -> Self {
        Self {
            table: &[],
            names: &[],
            endian,
        }
    }

    /// From where its name begins to the end of all names.
    fn name_onwards(&self, symbol: &Sym64<Endianness>) -> &'d [u8] {
        let at = usize::try_from(symbol.st_name(self.endian)).ok();
        at.and_then(|at| self.names.get(at..)).unwrap_or_default()
    }

    /// The name of a symbol, if it is no longer than any.
    fn name(&self, symbol: &Sym64<Endianness>) -> Option<&'d [u8]> {
        let from = self.name_onwards(symbol);
        let from = from.get(..from.len().min(LONGEST_NAME + 1))?;
        from.get(..memchr::memchr(0, from)?)
    }

    /// Whether it is this; the name is not looked for its end.
    fn is_named(&self, symbol: &Sym64<Endianness>, name: &[u8]) -> bool {
        let rest = self.name_onwards(symbol).strip_prefix(name);
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// A function by its symbol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function<'d> {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Mangled.
    pub(crate) name: &'d [u8],
}

/// A node binary with its functions.
pub(crate) struct Binary<'d> {
    pub(crate) outline: Outline<'d>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) text: AddressRange,
    /// By ascending address; several symbols may share one.
    pub(crate) functions: Vec<Function<'d>>,
    /// V8's own notes for debuggers: `v8dbg_` and this name → value.
    pub(crate) v8_constants: Constants<'d>,
    /// V8's own table of how many operands its translation opcodes have; empty if there is none.
    pub(crate) translation_operands: Vec<u8>,
    /// V8's own table of how long its bytecodes are; empty if there is none.
    pub(crate) bytecode_sizes: Vec<u8>,
}

/// Names of V8's notes for debuggers begin so.
const V8_CONSTANT: &[u8] = b"v8dbg_";
/// `counts` in `TranslationOpcodeOperandCount(TranslationOpcode)`, 32 bits each.
const TRANSLATION_OPERANDS: &[u8] =
    b"_ZZN2v88internal29TranslationOpcodeOperandCountENS0_17TranslationOpcodeEE6counts";
/// More bytes than it has.
const LARGEST_TRANSLATION_OPERANDS: u64 = 4 * 256;
/// `Bytecodes::kBytecodeSizes`: a byte for each opcode, for each of three sizes of operands.
const BYTECODE_SIZES: &[u8] = b"_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE";
/// More bytes than it has.
const LARGEST_BYTECODE_SIZES: u64 = 3 * 256;

impl<'d> Binary<'d> {
    /// Reads the symbol table.
    pub(crate) fn parse(path: &Path, data: &'d [u8]) -> Result<Self, PlanError> {
        let outline = Outline::parse(path, data)?;
        let endian = outline.endian;
        let malformed = |what: &str| PlanError::Malformed {
            path: path.to_owned(),
            what: what.to_owned(),
        };
        let segments = outline.segments();
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            return Err(malformed("it has no executable segment"));
        };
        let text = AddressRange {
            start: first.address,
            end: Address(last.address.0.saturating_add(last.size)),
        };
        let symbols = outline
            .symbols(elf::SHT_SYMTAB)
            .map_err(|what| malformed(&what))?;
        if symbols.table.is_empty() {
            return Err(if outline.exports(NODE_START) {
                PlanError::Stripped {
                    path: path.to_owned(),
                }
            } else if outline.imports_node_start() {
                PlanError::SharedLibrary {
                    path: path.to_owned(),
                }
            } else {
                PlanError::NotNode {
                    path: path.to_owned(),
                }
            });
        }
        let mut functions = Vec::with_capacity(symbols.table.len() / 2);
        // Symbols may share one long name.
        let mut names_left = MOST_SYMBOL_BYTES;
        let mut name_of = |symbol| {
            let Some(name) = symbols.name(symbol) else {
                return Ok(None);
            };
            names_left = names_left.checked_sub(name.len()).ok_or_else(|| {
                malformed("its symbols have longer names than those of any node, taken together")
            })?;
            Ok(Some(name))
        };
        let mut has_start = false;
        let mut v8_constants = Constants::new();
        let mut translation_operands = Vec::new();
        let mut bytecode_sizes = Vec::new();
        for symbol in symbols.table {
            if symbol.st_type() == elf::STT_OBJECT
                && symbols.name_onwards(symbol).starts_with(V8_CONSTANT)
                && v8_constants.len() < MOST_CONSTANTS
                && let Some(name) = name_of(symbol)?
                && let Some(constant) = name.strip_prefix(V8_CONSTANT)
                && let Ok(constant) = std::str::from_utf8(constant)
                && let Some(bytes) = outline.bytes_at(symbol.st_value(endian), 4)
                && let Ok(bytes) = bytes.try_into()
            {
                v8_constants.insert(constant, i32::from_le_bytes(bytes));
            }
            if symbol.st_type() == elf::STT_OBJECT
                && symbol.st_size(endian) <= LARGEST_TRANSLATION_OPERANDS
                && symbols.is_named(symbol, TRANSLATION_OPERANDS)
                && let Some(counts) =
                    outline.bytes_at(symbol.st_value(endian), symbol.st_size(endian))
            {
                // A count that is none of a byte is one that nobody knows.
                translation_operands = counts
                    .chunks_exact(4)
                    .map(|count| match count {
                        [low, 0, 0, 0] => *low,
                        _ => u8::MAX,
                    })
                    .collect();
            }
            if symbol.st_type() == elf::STT_OBJECT
                && symbol.st_size(endian) <= LARGEST_BYTECODE_SIZES
                && symbol.st_size(endian) % 3 == 0
                && symbols.is_named(symbol, BYTECODE_SIZES)
                && let Some(sizes) =
                    outline.bytes_at(symbol.st_value(endian), symbol.st_size(endian))
            {
                bytecode_sizes = sizes.to_vec();
            }
            if symbol.st_type() != elf::STT_FUNC || symbol.is_undefined(endian) {
                continue;
            }
            let address = symbol.st_value(endian);
            if !segments
                .iter()
                .any(|s| address >= s.address.0 && address - s.address.0 < s.size)
            {
                continue;
            }
            let Some(name) = name_of(symbol)? else {
                continue;
            };
            has_start |= name == NODE_START;
            functions.push(Function {
                address,
                size: symbol.st_size(endian),
                name,
            });
        }
        if !has_start {
            return Err(if outline.imports_node_start() {
                PlanError::SharedLibrary {
                    path: path.to_owned(),
                }
            } else {
                PlanError::NotNode {
                    path: path.to_owned(),
                }
            });
        }
        // They are local: `strip -x` leaves the rest.
        if !functions.iter().any(|f| f.name.starts_with(BUILTIN)) {
            return Err(PlanError::Stripped {
                path: path.to_owned(),
            });
        }
        functions.sort_unstable_by(|a, b| {
            (a.address, std::cmp::Reverse(a.size), a.name).cmp(&(
                b.address,
                std::cmp::Reverse(b.size),
                b.name,
            ))
        });
        Ok(Self {
            outline,
            segments,
            text,
            functions,
            v8_constants,
            translation_operands,
            bytecode_sizes,
        })
    }

    /// Where in the file the byte at `address` is.
    pub(crate) fn offset_of(&self, address: u64) -> Option<FileOffset> {
        self.segments.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.address.0)?;
            (inside < segment.size)
                .then(|| segment.offset.0.checked_add(inside).map(FileOffset))
                .flatten()
        })
    }

    /// The code of the function that starts at `address`; empty if the file does not hold it.
    pub(crate) fn code(&self, address: u64) -> &'d [u8] {
        let from = self.functions.partition_point(|f| f.address < address);
        let size = match self.functions.get(from) {
            Some(function) if function.address == address && function.size > 0 => function.size,
            _ => {
                let next = self.functions.partition_point(|f| f.address <= address);
                self.functions
                    .get(next)
                    .map_or(LARGEST_FUNCTION, |f| f.address - address)
            }
        };
        self.bytes(address, size.min(LARGEST_FUNCTION))
    }

    /// Up to `size` bytes of code from `address` on.
    pub(crate) fn bytes(&self, address: u64, size: u64) -> &'d [u8] {
        self.segments
            .iter()
            .find_map(|segment| {
                let inside = address.checked_sub(segment.address.0)?;
                let left = segment.size.checked_sub(inside).filter(|left| *left > 0)?;
                let start = usize::try_from(segment.offset.0.checked_add(inside)?).ok()?;
                let stop = start.checked_add(usize::try_from(size.min(left)).ok()?)?;
                self.outline.data.get(start..stop)
            })
            .unwrap_or_default()
    }

    /// The function symbol that starts at `address`, the largest if several do.
    pub(crate) fn function_at(&self, address: u64) -> Option<&Function<'d>> {
        let index = self.functions.partition_point(|f| f.address < address);
        self.functions.get(index).filter(|f| f.address == address)
    }

    /// The function whose code `address` lies in.
    pub(crate) fn function_around(&self, address: u64) -> Option<&Function<'d>> {
        let after = self.functions.partition_point(|f| f.address <= address);
        let start = self.functions.get(after.checked_sub(1)?)?.address;
        let function = self.function_at(start)?;
        (address - start < function.size.max(1)).then_some(function)
    }
}

fn describe_magic(data: &[u8]) -> String {
    if data.starts_with(b"#!") {
        let line = data.split(|b| *b == b'\n').next().unwrap_or_default();
        let line = names::shown(line.get(..line.len().min(60)).unwrap_or_default());
        return format!("a script (`{line}`)");
    }
    match data {
        [0xcf, 0xfa, 0xed, 0xfe, ..] => "a macOS program".to_owned(),
        [b'M', b'Z', ..] => "a Windows program".to_owned(),
        [b'P', b'K', ..] => "a zip archive".to_owned(),
        [0x1f, 0x8b, ..] => "a gzip archive".to_owned(),
        _ => "a file of another kind".to_owned(),
    }
}

fn machine_name(machine: elf::Machine) -> String {
    match machine {
        elf::EM_AARCH64 => "arm64 (aarch64)".to_owned(),
        elf::EM_PPC64 => "ppc64".to_owned(),
        elf::EM_S390 => "s390x".to_owned(),
        elf::EM_RISCV => "riscv64".to_owned(),
        elf::EM_386 => "32-bit x86".to_owned(),
        other => format!("ELF machine {}", other.0),
    }
}
