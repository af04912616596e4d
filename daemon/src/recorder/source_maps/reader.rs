//! Reading files as the user who typed the command could.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

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

/// Opens a regular file. A pipe or a device by that name is neither waited for nor touched.
pub fn open_regular(path: &Path) -> Option<File> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    // It may be another one by now: then opening it must not block either.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
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

/// Capabilities that read other users' files (`linux/capability.h`): DAC_OVERRIDE, DAC_READ_SEARCH.
const READS_ALL: u32 = 1 << 1 | 1 << 2;

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
