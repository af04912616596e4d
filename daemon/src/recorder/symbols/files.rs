//! The files whose code was mapped: held open from the first sight, so that their names can be read when path and
//! process are gone.

use std::{
    collections::{HashMap, hash_map},
    ffi::{CString, OsStr},
    fs, io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
};

use object::{
    Endianness,
    elf::{self, FileHeader64},
    read::{
        ReadCache,
        elf::{FileHeader, ProgramHeader},
    },
};

/// Index of a file that was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// What the kernel said of a file when it was mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// From the root of the process's mount namespace.
    pub path: Rc<[u8]>,
    /// Inode number and size in bytes; `None` where they are not known.
    pub inode_and_size: Option<(u64, u64)>,
}

/// A file that is open.
struct Held {
    descriptor: OwnedFd,
    /// mtime in seconds and nanoseconds, size.
    state: (i64, i64, i64),
}

struct Entry {
    path: Rc<[u8]>,
    /// `None`: it was gone or another one when it was looked at, or there were too many.
    held: Option<Held>,
    /// How often it was looked for, and last for which process.
    looks: (u32, u32),
}

/// So many times a file is looked for that is not found: for a process that has ended meanwhile, it cannot be.
const MOST_LOOKS: u32 = 16;

/// So many files are held: a process may have 1,024 open, and each is open twice more while its symbols are known. Of a trace of node and its
/// add-ons that is all; a tool that runs a thousand programs that it has built would leave nothing for the binaries that come later.
const MOST_HELD: usize = 200;

/// All files of a trace.
#[derive(Default)]
pub struct Files {
    entries: Vec<Entry>,
    /// By hashes that a program cannot foresee.
    ids: HashMap<Identity, FileId>,
    held: usize,
    /// One that is held only now, although it was met before.
    found_late: Option<FileId>,
}

impl Files {
    /// The file of this identity; opened when it is met first, or later if it was not found then. `pid`: a process that has it mapped, whose root
    /// is tried where the path leads elsewhere in nodeprof's own.
    pub fn meet(&mut self, identity: Identity, pid: u32) -> FileId {
        let id = FileId(self.entries.len() as u32);
        let place = match self.ids.entry(identity) {
            hash_map::Entry::Occupied(known) => {
                let id = *known.get();
                if self.held < MOST_HELD
                    && let Some(entry) = self.entries.get_mut(id.0 as usize)
                    && entry.held.is_none()
                    && entry.looks.0 < MOST_LOOKS
                    && entry.looks.1 != pid
                {
                    entry.looks = (entry.looks.0 + 1, pid);
                    entry.held = hold(known.key(), pid);
                    if entry.held.is_some() {
                        self.held += 1;
                        self.found_late = Some(id);
                    }
                }
                return id;
            }
            hash_map::Entry::Vacant(place) => place,
        };
        // Those beyond are known by path only.
        let held = match self.held < MOST_HELD {
            true => hold(place.key(), pid),
            false => None,
        };
        self.held += usize::from(held.is_some());
        let path = place.key().path.clone();
        place.insert(id);
        let looks = (1, pid);
        self.entries.push(Entry { path, held, looks });
        id
    }

    /// A file that was found only when it was met last: what was told of it before is void. Told once.
    pub fn take_found_late(&mut self) -> Option<FileId> {
        self.found_late.take()
    }

    /// Its path.
    pub fn path(&self, file: FileId) -> Option<&Rc<[u8]>> {
        Some(&self.entries.get(file.0 as usize)?.path)
    }

    /// A path by which its content can be read; `None` if it is gone, another one, or was changed since it was mapped.
    pub fn readable(&self, file: FileId) -> Option<PathBuf> {
        let held = self.entries.get(file.0 as usize)?.held.as_ref()?;
        (state(&held.descriptor).ok()? == held.state)
            .then(|| format!("/proc/self/fd/{}", held.descriptor.as_raw_fd()).into())
    }

    /// The descriptor by which it is held.
    #[cfg(test)]
    pub fn descriptor(&self, file: FileId) -> i32 {
        let held = self.entries[file.0 as usize].held.as_ref();
        held.map_or(-1, |held| held.descriptor.as_raw_fd())
    }

    /// Whether it is named as shared libraries are: `libc.so.6`, `ld-linux-x86-64.so.2`.
    pub fn is_library(&self, file: FileId) -> bool {
        let path = self.path(file).map(|p| &**p).unwrap_or_default();
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        name.ends_with(b".so") || name.windows(4).any(|w| w == b".so.")
    }

    /// Its code's places and its interpreter, by its program headers.
    pub fn layout(&self, file: FileId) -> Option<Layout> {
        Layout::read(&self.readable(file)?)
    }
}

fn hold(identity: &Identity, pid: u32) -> Option<Held> {
    let path = Path::new(OsStr::from_bytes(&identity.path));
    let in_its_root = Path::new("/proc")
        .join(pid.to_string())
        .join("root")
        .join(path.strip_prefix("/").unwrap_or(path));
    [path.to_owned(), in_its_root]
        .iter()
        .find_map(|path| hold_at(path, identity))
}

fn hold_at(path: &Path, identity: &Identity) -> Option<Held> {
    let c = CString::new(path.as_os_str().as_bytes()).ok()?;
    // O_PATH opens nothing: what lies there may be a device or a pipe by now.
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { libc::open(c.as_ptr(), flags) };
    if fd < 0 {
        return None;
    }
    // SAFETY: a new descriptor that nobody else owns.
    let descriptor = unsafe { OwnedFd::from_raw_fd(fd) };
    let meta = stat(&descriptor).ok()?;
    let found = (meta.st_ino, meta.st_size as u64);
    let regular = meta.st_mode & libc::S_IFMT == libc::S_IFREG;
    let same = identity.inode_and_size.is_none_or(|known| known == found);
    (regular && same).then(|| Held {
        state: state_of(&meta),
        descriptor,
    })
}

fn stat(of: &OwnedFd) -> io::Result<libc::stat> {
    // SAFETY: a struct of integers; the descriptor is open.
    unsafe {
        let mut meta: libc::stat = std::mem::zeroed();
        match libc::fstat(of.as_raw_fd(), &mut meta) {
            0 => Ok(meta),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn state_of(meta: &libc::stat) -> (i64, i64, i64) {
    (meta.st_mtime, meta.st_mtime_nsec, meta.st_size)
}

fn state(of: &OwnedFd) -> io::Result<(i64, i64, i64)> {
    stat(of).map(|meta| state_of(&meta))
}

/// A piece of an ELF file that is mapped for execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address, before a bias.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
}

/// What the program headers say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Executable segments.
    pub segments: Vec<Segment>,
    /// Path of the dynamic linker.
    pub interpreter: Option<Vec<u8>>,
}

/// Bytes of program headers of which the kernel executes a program.
pub(super) const LARGEST_HEADERS: u64 = 65_536;
/// Bytes of an interpreter's path with its NUL, as the kernel takes it (`PATH_MAX`).
const LONGEST_INTERPRETER: u64 = 4_096;

impl Layout {
    pub(super) fn read(path: &Path) -> Option<Layout> {
        let file = ReadCache::new(fs::File::open(path).ok()?);
        let header = FileHeader64::<Endianness>::parse(&file).ok()?;
        let endian = header.endian().ok()?;
        // Anybody writes programs, and as much memory is taken as they say.
        let size = u64::from(header.e_phnum(endian)) * u64::from(header.e_phentsize(endian));
        if size > LARGEST_HEADERS {
            return None;
        }
        let mut layout = Layout::default();
        let mut has_interpreter = false;
        for program in header.program_headers(endian, &file).ok()? {
            let executable = program.p_type(endian) == elf::PT_LOAD
                && program.p_flags(endian).contains(elf::PF_X);
            if executable {
                layout.segments.push(Segment {
                    address: program.p_vaddr(endian),
                    offset: program.p_offset(endian),
                    size: program.p_filesz(endian),
                });
            }
            // The kernel goes by the first one.
            if program.p_type(endian) == elf::PT_INTERP && !has_interpreter {
                has_interpreter = true;
                if program.p_filesz(endian) <= LONGEST_INTERPRETER
                    && let Ok(Some(path)) = program.interpreter(endian, &file)
                {
                    layout.interpreter = Some(path.to_vec());
                }
            }
        }
        Some(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn identity(path: &Path) -> Identity {
        let meta = fs::metadata(path).expect("a file");
        Identity {
            path: path.as_os_str().as_bytes().into(),
            inode_and_size: Some((meta.ino(), meta.len())),
        }
    }

    #[test]
    fn a_file_that_is_removed_after_it_was_met_can_still_be_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.node");
        fs::write(&path, "the old one").expect("a file");
        let mut files = Files::default();
        let id = files.meet(identity(&path), 0);
        fs::remove_file(&path).expect("removed");
        fs::write(&path, "another one").expect("a file");
        let read = files.readable(id).and_then(|p| fs::read(p).ok());
        assert_eq!(read.as_deref(), Some(&b"the old one"[..]));
    }

    #[test]
    fn a_file_that_was_not_found_is_looked_for_again_for_another_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, elsewhere) = (folder.path().join("a.node"), folder.path().join("b"));
        fs::write(&path, "a test").expect("a file");
        let met = identity(&path);
        fs::rename(&path, &elsewhere).expect("renamed");
        let mut files = Files::default();
        let id = files.meet(met.clone(), 1);
        assert_eq!(files.readable(id), None);
        fs::rename(&elsewhere, &path).expect("renamed");
        assert_eq!(files.meet(met.clone(), 1), id);
        assert_eq!(files.readable(id), None, "the same process");
        assert_eq!(files.take_found_late(), None);
        assert_eq!(files.meet(met, 2), id);
        assert!(files.readable(id).is_some());
        assert_eq!(files.take_found_late(), Some(id));
        assert_eq!(files.take_found_late(), None);
    }

    #[test]
    fn so_many_files_are_held_and_others_are_known_by_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut files = Files::default();
        let met: Vec<(Identity, FileId)> = (0..MOST_HELD + 50)
            .map(|number| {
                let path = folder.path().join(number.to_string());
                fs::write(&path, "a test").expect("a file");
                (identity(&path), files.meet(identity(&path), 0))
            })
            .collect();
        let readable = |id: &FileId| files.readable(*id).is_some();
        assert_eq!(met.iter().filter(|(_, id)| readable(id)).count(), MOST_HELD);
        assert!(readable(&met[0].1), "the first ones");
        for (identity, id) in met {
            assert_eq!(files.path(id), Some(&identity.path));
            assert_eq!(files.meet(identity, 0), id, "once");
        }
    }

    #[test]
    fn a_file_that_is_another_one_or_has_changed_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.node");
        fs::write(&path, "one").expect("a file");
        let met = identity(&path);
        fs::rename(&path, folder.path().join("kept")).expect("renamed");
        fs::write(&path, "two").expect("a file");
        let mut files = Files::default();
        let id = files.meet(met, 0);
        assert_eq!(files.readable(id), None);

        let id = files.meet(identity(&path), 0);
        assert!(files.readable(id).is_some());
        fs::write(&path, "changed").expect("a file");
        assert_eq!(files.readable(id), None);
    }

    #[test]
    fn the_code_of_this_program_lies_where_its_headers_say() {
        let exe = std::env::current_exe().expect("a path");
        let mut files = Files::default();
        let id = files.meet(identity(&exe), 0);
        let layout = files.layout(id).expect("an ELF file");
        assert!(layout.segments.iter().any(|s| s.size > 100_000));
        let interpreter = layout.interpreter.expect("dynamically linked");
        assert!(interpreter.starts_with(b"/lib"), "{interpreter:?}");
    }

    /// An ELF file with these program headers, type, place and size each, and as many bytes behind.
    fn program(headers: &[(u32, u64, u64)], length: u64) -> tempfile::NamedTempFile {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16] = 2;
        bytes[18] = 62;
        bytes[20] = 1;
        bytes[32] = 64;
        bytes[52] = 64;
        bytes[54] = 56;
        bytes[56..58].copy_from_slice(&(headers.len() as u16).to_le_bytes());
        for (kind, offset, size) in headers {
            bytes.extend(kind.to_le_bytes());
            bytes.extend(4u32.to_le_bytes());
            for field in [*offset, 0, 0, *size, *size, 1] {
                bytes.extend(field.to_le_bytes());
            }
        }
        bytes.resize(1024, 0);
        bytes.extend(b"/lib/first\0/lib/second\0");
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), bytes).expect("written");
        // No blocks on the disk.
        file.as_file().set_len(length).expect("long");
        file
    }

    #[test]
    fn the_first_interpreter_counts_and_none_that_is_longer_than_a_path() {
        const INTERPRETER: u32 = 3;
        let of = |headers: &[(u32, u64, u64)]| {
            let file = program(headers, 1 << 20);
            Layout::read(file.path()).expect("an ELF file").interpreter
        };
        let (first, second) = ((INTERPRETER, 1024, 11), (INTERPRETER, 1035, 12));
        assert_eq!(of(&[first]).as_deref(), Some(&b"/lib/first"[..]));
        assert_eq!(of(&[first, second]).as_deref(), Some(&b"/lib/first"[..]));
        let long = (INTERPRETER, 1024, 4_097);
        assert_eq!(of(&[long]), None);
        assert_eq!(of(&[long, second]), None, "nor the second then");
        // A terabyte, which nobody has.
        let huge = program(&[first, (INTERPRETER, 1024, 1 << 40)], 2 << 40);
        let layout = Layout::read(huge.path()).expect("an ELF file");
        assert_eq!(layout.interpreter.as_deref(), Some(&b"/lib/first"[..]));
        // More headers than the kernel takes.
        let many = vec![(0, 0, 0); 2_000];
        assert_eq!(Layout::read(program(&many, 1 << 20).path()), None);
    }
}
