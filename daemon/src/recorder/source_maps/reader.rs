//! Reading files as the user who typed the command could.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstatfs, openat2};

use super::super::command::Invoker;

/// Opens files by path.
pub trait SourceReader {
    /// A regular file that may be read; `None` for anything else.
    fn open(&self, path: &Path) -> Option<SourceFile>;
}

/// A file of which parts are read.
pub struct SourceFile {
    /// In bytes.
    pub size: u64,
    content: Box<dyn Content>,
    read: u64,
}

trait Content: Read + Seek {}
impl<C: Read + Seek> Content for C {}

impl SourceFile {
    /// One that is in memory.
    #[cfg(test)]
    pub fn of(bytes: Vec<u8>) -> Self {
        Self {
            size: bytes.len() as u64,
            content: Box::new(io::Cursor::new(bytes)),
            read: 0,
        }
    }

    /// The last `length` bytes.
    pub fn tail(&mut self, length: u64) -> Option<Vec<u8>> {
        let from = self.size.checked_sub(length)?;
        self.content.seek(SeekFrom::Start(from)).ok()?;
        self.take(length)
    }

    /// All of it, if that is no more than `most` bytes.
    pub fn all(&mut self, most: u64) -> Option<Vec<u8>> {
        if self.size > most {
            return None;
        }
        self.content.seek(SeekFrom::Start(0)).ok()?;
        self.take(self.size)
    }

    fn take(&mut self, length: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        // A file that grows meanwhile is not followed.
        (&mut self.content)
            .take(length)
            .read_to_end(&mut bytes)
            .ok()?;
        self.read += bytes.len() as u64;
        Some(bytes)
    }

    /// How much was read of it.
    #[cfg(test)]
    pub fn bytes_read(&self) -> u64 {
        self.read
    }
}

/// The file system, with the rights of the thread.
pub struct Disk;

impl SourceReader for Disk {
    fn open(&self, path: &Path) -> Option<SourceFile> {
        let file = open_regular(path)?;
        let size = file.metadata().ok()?.len();
        Some(SourceFile {
            size,
            content: Box::new(file),
            read: 0,
        })
    }
}

/// Opens a regular file that a program names. A pipe or a device by that name is neither waited for nor touched. Nothing of /proc is opened, nor what its links lead to
/// (`/proc/PID/cwd`, `root`, `fd`): with CAP_SYS_PTRACE they lead past the folders that a user may not enter.
pub fn open_regular(path: &Path) -> Option<File> {
    let open = |flags| {
        let flags = flags | OFlags::CLOEXEC;
        let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
        let file = File::from(opened.ok()?);
        let is_regular = file.metadata().ok()?.is_file();
        (is_regular && fstatfs(&file).ok()?.f_type != PROC_SUPER_MAGIC).then_some(file)
    };
    open(OFlags::PATH)?;
    // It may be another one by now: then opening it must not block either.
    open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
}

/// Lets the calling thread, and no other, read what the user may who typed the command: the one behind sudo, or the one
/// who runs a nodeprof with capabilities.
///
/// # Errors
/// If the kernel does not take the other rights away.
pub fn take_rights_of_user(invoker: Option<&Invoker>) -> io::Result<()> {
    if let Some(user) = invoker {
        return user.become_thread();
    }
    // SAFETY: no preconditions.
    match unsafe { libc::getuid() } {
        0 => Ok(()),
        _ => drop_capabilities(),
    }
}

/// Capabilities that read other users' files (`linux/capability.h`): DAC_OVERRIDE, DAC_READ_SEARCH, and SYS_PTRACE by way of /proc.
const READS_ALL: u32 = 1 << 1 | 1 << 2 | 1 << 19;

fn drop_capabilities() -> io::Result<()> {
    /// `struct __user_cap_header_struct`.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    /// `struct __user_cap_data_struct`.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let checked = |result: libc::c_long| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // _LINUX_CAPABILITY_VERSION_3, of the calling thread.
    let mut header = Header {
        version: 0x2008_0522,
        pid: 0,
    };
    let mut data = [Data::default(); 2];
    // SAFETY: live structs of the layout that the version tells.
    checked(unsafe { libc::syscall(libc::SYS_capget, &mut header, data.as_mut_ptr()) })?;
    data[0].effective &= !READS_ALL;
    // SAFETY: as above.
    checked(unsafe { libc::syscall(libc::SYS_capset, &mut header, data.as_ptr()) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn no_file_is_opened_by_way_of_a_process() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.js");
        std::fs::write(&file, "1").unwrap();
        let at = File::open(folder.path()).unwrap();
        let by_descriptor = format!("/proc/self/fd/{}", at.as_raw_fd());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&by_descriptor, &link).unwrap();
        let by_root = format!("/proc/self/root{}", file.display());
        for (path, is_opened) in [
            (file.clone(), true),
            (folder.path().join("../").join(&file), true),
            (Path::new(&by_descriptor).join("a.js"), false),
            (link.join("a.js"), false),
            (by_root.into(), false),
            ("/proc/self/environ".into(), false),
            (folder.path().to_owned(), false),
        ] {
            assert!(path.exists(), "{}", path.display());
            assert_eq!(open_regular(&path).is_some(), is_opened, "{path:?}");
        }
    }
}
