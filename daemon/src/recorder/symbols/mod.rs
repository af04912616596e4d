//! Names for machine addresses of the traced processes: which file was mapped there, and which function of it.
//!
//! Mappings come as records while the processes run; names are looked up when they are asked for, which may
//! be after the process has ended. Files are held open meanwhile, and one that is not the mapped one gives no names.

mod files;
mod history;
mod kernel;
mod kernel_index;
mod names;
mod programs;
mod readable;
mod spaces;
mod vdso;

use rustc_hash::{FxHashMap as HashMap, FxHashSet as HashSet};
use std::{borrow::Cow, fs::File, os::unix::fs::FileExt, path::Path, rc::Rc};

use blazesym::symbolize::{
    Input, Symbolizer,
    source::{Elf, Source},
};
use nodeprof_bpf::{Code, MappingKind, MappingRecord, Record};
use nodeprof_profile::recording::FrameKind;

use files::{FileId, Files, Identity, Layout};
pub use history::History;
use kernel::Kernel;
pub use programs::{ProgramSymbols, SymbolsOfPrograms};
use readable::Readables;
use spaces::{Mapping, Spaces};
use vdso::Vdso;

/// What is known of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// What code it is. Never [`FrameKind::JavaScript`]: machine code that V8 made at run time is
    /// [`FrameKind::Unknown`] here.
    pub kind: FrameKind,
    /// Demangled name of the function, without parameters; empty if it is not known. A builtin's is without
    /// its prefix `Builtins_`.
    pub function: String,
    /// Path of the file that was mapped there; `None` for the kernel and for memory that is no file's.
    pub file: Option<Rc<[u8]>>,
}

/// Bytes of a name that is one. The longest of node has 483; what templates make has some thousands.
const LONGEST_NAME: usize = 64 << 10;
/// V8's builtins, as its assembler names them.
const BUILTIN: &str = "Builtins_";

/// Names addresses of one trace.
pub struct Symbols {
    spaces: Spaces,
    files: Files,
    /// Those that the traced processes execute, as far as they are known already.
    programs: Vec<Rc<ProgramSymbols>>,
    /// Which files these are.
    shared: HashMap<FileId, Rc<ProgramSymbols>>,
    symbolizer: Symbolizer,
    readables: Readables,
    kernel: Kernel,
    vdso: &'static Vdso,
    known: HashMap<(FileId, u64), Rc<Symbol>>,
    kernel_known: HashMap<u64, Rc<Symbol>>,
    kinds: HashMap<FileId, FrameKind>,
    /// Whether calls are of functions of their own file.
    calls: HashMap<(FileId, u64), bool>,
    /// Programs and libraries that were met, whose symbols are not sorted yet.
    unprepared: Vec<(FileId, u64)>,
    met: HashSet<FileId>,
    /// A sample fell into the kernel.
    in_kernel: bool,
    nowhere: Rc<Symbol>,
}

impl Default for Symbols {
    fn default() -> Symbols {
        Symbols {
            spaces: Spaces::default(),
            files: Files::default(),
            programs: Vec::new(),
            shared: HashMap::default(),
            symbolizer: symbolizer(),
            readables: Readables::default(),
            kernel: Kernel::default(),
            vdso: Vdso::of_this_process(),
            known: HashMap::default(),
            kernel_known: HashMap::default(),
            kinds: HashMap::default(),
            calls: HashMap::default(),
            unprepared: Vec::new(),
            met: HashSet::default(),
            in_kernel: false,
            nowhere: Rc::new(Symbol {
                kind: FrameKind::Unknown,
                function: String::new(),
                file: None,
            }),
        }
    }
}

impl Symbols {
    /// Keeps names of the kernel's functions in this folder.
    pub fn keep_in(&mut self, folder: Option<&Path>) {
        self.kernel.keep_in(folder);
    }

    /// Says what is known of a program that the traced process executes: of this inode and size it has no other one.
    pub fn share(&mut self, program: Rc<ProgramSymbols>) {
        self.programs.push(program);
    }

    /// Says where nodeprof's own programs lie in the kernel.
    pub fn know(&mut self, own: Vec<Code>) {
        self.kernel.know(own);
    }

    /// Learns from a record what is mapped where; other records are none of its business.
    pub fn learn(&mut self, record: &Record) {
        match record {
            Record::Fork {
                header, child_pid, ..
            } if *child_pid != header.pid => self.spaces.fork(header.pid, *child_pid, header.time),
            Record::Mapping { header, mapping } => self.map(header.pid, mapping, header.time),
            Record::Unmap { header, range, to } => {
                let end = |(start, size): (u64, u64)| (start, start.saturating_add(size));
                self.spaces
                    .unmap(header.pid, end(*range), end(*to), header.time);
            }
            Record::Sample { kernel, .. } => self.in_kernel |= !kernel.is_empty(),
            _ => {}
        }
    }

    fn map(&mut self, pid: u32, record: &MappingRecord, at: u64) {
        let path: Rc<[u8]> = record.path.clone().unwrap_or_default().into();
        let identity = Identity {
            path,
            inode_and_size: Some((record.inode, record.file_size)),
        };
        let file = self.file(identity, pid);
        match record.kind {
            MappingKind::Mmap { offset } => {
                let mapping = Mapping {
                    start: record.start,
                    end: record.start.saturating_add(record.size),
                    offset,
                    file,
                };
                self.spaces.map(pid, mapping, at);
                // Also libraries: sorting the symbols of libstdc++ takes a millisecond, too.
                self.meet(file, offset);
            }
            MappingKind::Exec { interpreter, vdso } => {
                self.spaces.exec(pid, at);
                self.map_program(pid, file, record.start, at);
                if interpreter != 0 {
                    self.map_interpreter(pid, file, interpreter, at);
                }
                self.map_vdso(pid, vdso, at);
            }
        }
    }

    /// The file of this identity, which the process has mapped.
    fn file(&mut self, identity: Identity, pid: u32) -> FileId {
        let mut programs = self.programs.iter();
        let program = programs.find(|program| program.is(identity.inode_and_size));
        let program = program.cloned();
        let file = self.files.meet(identity, pid);
        if let Some(program) = program {
            self.shared.insert(file, program);
        }
        if let Some(late) = self.files.take_found_late() {
            self.kinds.remove(&late);
            self.known.retain(|(file, _), _| *file != late);
            self.calls.retain(|(file, _), _| *file != late);
        }
        file
    }

    fn layout(&self, file: FileId) -> Option<Layout> {
        match self.shared.get(&file) {
            Some(program) => Some(program.layout().clone()),
            None => self.files.layout(file),
        }
    }

    fn meet(&mut self, file: FileId, offset: u64) {
        if self.met.insert(file) {
            self.unprepared.push((file, offset));
        }
    }

    /// `start`: where the first byte of its code lies.
    fn map_program(&mut self, pid: u32, file: FileId, start: u64, at: u64) {
        let Some(layout) = self.layout(file) else {
            return;
        };
        if let Some(first) = layout.segments.first() {
            self.meet(file, first.offset);
        }
        if let Some(lowest) = layout.segments.iter().map(|s| s.address).min() {
            self.map_segments(pid, file, &layout, start.wrapping_sub(lowest), at);
        }
    }

    fn map_interpreter(&mut self, pid: u32, program: FileId, base: u64, at: u64) {
        let interpreter = self.layout(program).and_then(|l| l.interpreter);
        let Some(path) = interpreter else { return };
        let identity = Identity {
            path: path.into(),
            inode_and_size: None,
        };
        let file = self.file(identity, pid);
        if let Some(layout) = self.layout(file) {
            self.map_segments(pid, file, &layout, base, at);
        }
    }

    fn map_segments(&mut self, pid: u32, file: FileId, layout: &Layout, bias: u64, at: u64) {
        for segment in &layout.segments {
            let start = bias.wrapping_add(segment.address);
            let mapping = Mapping {
                start,
                end: start.saturating_add(segment.size),
                offset: segment.offset,
                file,
            };
            self.spaces.map(pid, mapping, at);
        }
    }

    fn map_vdso(&mut self, pid: u32, base: u64, at: u64) {
        let Some(size) = self.vdso.size().filter(|_| base != 0) else {
            return;
        };
        let identity = Identity {
            path: vdso::NAME.into(),
            inode_and_size: None,
        };
        let mapping = Mapping {
            start: base,
            end: base.saturating_add(size),
            offset: 0,
            file: self.file(identity, pid),
        };
        self.spaces.map(pid, mapping, at);
    }

    /// What lay at `address` in process `pid` at the instant `at` (CLOCK_MONOTONIC, ns).
    ///
    /// `address` is that of an instruction. A return address belongs to the instruction behind the call,
    /// which may be another function's: ask for the return address less 1.
    pub fn frame(&mut self, pid: u32, address: u64, at: u64) -> Rc<Symbol> {
        let Some((file, offset)) = self.spaces.find(pid, address, at) else {
            return self.nowhere.clone();
        };
        if let Some(known) = self.known.get(&(file, offset)) {
            return known.clone();
        }
        let symbol = Rc::new(self.look_up(file, offset));
        self.known.insert((file, offset), symbol.clone());
        symbol
    }

    /// Whether the call that `address` lies in (its return address less 1) names the function that it calls, and that is one of the same file: what
    /// it called is none of another file's, but where that function has left its place to one. False where that cannot be told.
    pub fn calls_its_own(&mut self, pid: u32, address: u64, at: u64) -> bool {
        let Some((file, last)) = self.spaces.find(pid, address, at) else {
            return false;
        };
        if let Some(&known) = self.calls.get(&(file, last)) {
            return known;
        }
        let called = self.called(file, last);
        let its_own = called.is_some_and(|called| {
            let symbol = self.look_up(file, called);
            symbol.kind == FrameKind::Native && !symbol.function.is_empty()
        });
        self.calls.insert((file, last), its_own);
        its_own
    }

    /// The place in the file that a call names which ends with this byte: `call rel32` of x86-64.
    fn called(&self, file: FileId, last: u64) -> Option<u64> {
        const CALL: u8 = 0xe8;
        let code = File::open(self.files.readable(file)?).ok()?;
        let mut call = [0; 5];
        code.read_exact_at(&mut call, last.checked_sub(4)?).ok()?;
        let [CALL, distance @ ..] = call else {
            return None;
        };
        // The code of a file is mapped as a whole.
        (last + 1).checked_add_signed(i32::from_le_bytes(distance).into())
    }

    /// Does work that later look-ups would do, if there is any: sorting a program's symbols takes some 5 ms for node, reading
    /// the kernel's some 3 ms. While the program under trace runs nobody waits for it.
    pub fn prepare(&mut self) {
        if !self.unprepared.is_empty() {
            for (file, offset) in std::mem::take(&mut self.unprepared) {
                self.look_up(file, offset);
            }
        } else if self.in_kernel {
            self.kernel.prepare();
        }
    }

    /// Whether functions of the kernel were asked for and the kernel hides its addresses.
    pub fn kernel_hidden(&self) -> bool {
        self.kernel.hidden()
    }

    /// What lies at an address in the kernel.
    pub fn kernel_frame(&mut self, address: u64) -> Rc<Symbol> {
        if let Some(known) = self.kernel_known.get(&address) {
            return known.clone();
        }
        let symbol = Rc::new(Symbol {
            kind: FrameKind::Kernel,
            function: self.kernel.name(address).unwrap_or_default(),
            file: None,
        });
        self.kernel_known.insert(address, symbol.clone());
        symbol
    }

    fn look_up(&mut self, file: FileId, offset: u64) -> Symbol {
        let path = self.files.path(file).cloned();
        if path.as_deref() == Some(vdso::NAME) {
            return Symbol {
                kind: FrameKind::Library,
                function: self.vdso.name(offset).unwrap_or_default().to_owned(),
                file: path,
            };
        }
        let kind = self.kind(file);
        let name: Option<Rc<str>> = match self.shared.get(&file) {
            Some(program) => program.name(offset),
            None => {
                let held = self.files.readable(file);
                let name = held.and_then(|held| self.name(&held, offset));
                name.map(Rc::from)
            }
        };
        let (kind, function) = match name {
            Some(name) if kind == FrameKind::Native && name.starts_with(BUILTIN) => {
                (FrameKind::Builtin, name[BUILTIN.len()..].to_owned())
            }
            Some(name) => (kind, names::readable(&name)),
            None => (kind, String::new()),
        };
        Symbol {
            kind,
            function,
            file: path,
        }
    }

    /// `held`: where the file is held, as long as there are symbols.
    fn name(&mut self, held: &Path, offset: u64) -> Option<String> {
        let found = symbolize(&self.symbolizer, self.readables.path(held)?, offset);
        found.unwrap_or_else(|_| {
            self.readables.give_up(held);
            None
        })
    }

    /// What all code of a file is.
    fn kind(&mut self, file: FileId) -> FrameKind {
        if let Some(&kind) = self.kinds.get(&file) {
            return kind;
        }
        let path = self.files.path(file).cloned().unwrap_or_default();
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        let kind = if name.ends_with(b".node") {
            FrameKind::AddOn
        } else if name.starts_with(b"libnode.so") || self.is_node(file) {
            FrameKind::Native
        } else if self.files.is_library(file) {
            FrameKind::Library
        } else {
            // Another program.
            FrameKind::Unknown
        };
        self.kinds.insert(file, kind);
        kind
    }

    fn is_node(&self, file: FileId) -> bool {
        if let Some(program) = self.shared.get(&file) {
            return program.is_node();
        }
        self.files
            .readable(file)
            .is_some_and(|f| nodeprof_probes::is_node_binary(&f))
    }
}

fn symbolizer() -> Symbolizer {
    Symbolizer::builder()
        // The files are held open and checked here.
        .enable_auto_reload(false)
        .enable_code_info(false)
        .enable_inlined_fns(false)
        .enable_demangling(false)
        .build()
}

/// The name of the function at this offset in a file, as it is written there. An error: its symbols cannot be read.
fn symbolize(
    symbolizer: &Symbolizer,
    path: &Path,
    offset: u64,
) -> Result<Option<String>, blazesym::Error> {
    let mut source = Elf::new(path);
    source.debug_syms = false;
    let found = symbolizer.symbolize_single(&Source::Elf(source), Input::FileOffset(offset))?;
    let symbol = found.into_sym();
    let symbol = symbol.filter(|symbol| symbol.name.len() <= LONGEST_NAME);
    Ok(symbol.map(|symbol| match symbol.name {
        Cow::Borrowed(name) => name.to_owned(),
        Cow::Owned(name) => name,
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::{
        readable::tests::{FUNCTION, library, misaligned, open_to_all},
        *,
    };
    use nodeprof_bpf::Header;
    use std::os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _};

    /// All that is known of a trace that has mapped a file at 0.
    fn with(file: &tempfile::NamedTempFile) -> Symbols {
        let meta = file.as_file().metadata().unwrap();
        let header = Header {
            pid: 1,
            tid: 1,
            phase: 0,
            time: 1,
            stack: 0,
        };
        let mapping = MappingRecord {
            start: 0x10_0000,
            size: 0x1000,
            path: Some(file.path().as_os_str().as_bytes().to_vec()),
            inode: meta.ino(),
            file_size: meta.len(),
            kind: MappingKind::Mmap { offset: 0 },
        };
        let mut symbols = Symbols::default();
        symbols.learn(&Record::Mapping { header, mapping });
        symbols
    }

    fn function(symbols: &mut Symbols) -> String {
        let symbol = symbols.frame(1, 0x10_0000 + FUNCTION, 2);
        symbol.function.clone()
    }

    #[test]
    fn functions_have_names_also_of_a_file_that_is_cut_off_meanwhile() {
        assert_eq!(function(&mut with(&library(0x3000, 48))), "main");
        let file = library(0x3000, 48);
        open_to_all(&file);
        let mut symbols = with(&file);
        assert_eq!(function(&mut symbols), "main");
        // What was mapped of it would be gone.
        file.as_file().set_len(0).unwrap();
        let held = format!("/proc/self/fd/{}", symbols.files.descriptor(FileId(0)));
        let name = symbols.name(Path::new(&held), FUNCTION + 1);
        assert_eq!(name.as_deref(), Some("main"));
    }

    #[test]
    fn functions_have_names_where_headers_and_symbols_lie_at_odd_places() {
        let file = misaligned();
        assert_eq!(function(&mut with(&file)), "main");
        open_to_all(&file);
        assert_eq!(function(&mut with(&file)), "main");
    }

    #[test]
    fn a_table_of_symbols_as_large_as_none_is_not_read() {
        let file = library(4 << 30, 3 << 30);
        assert_eq!(function(&mut with(&file)), "");
    }
}
