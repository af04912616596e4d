//! A file system (FUSE) with one file, `node`, which answers or does not.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::{ffi::OsStrExt as _, fs::FileExt as _},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::support::folder;

/// Of linux/fuse.h: what is asked.
mod asked {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const RELEASE: u32 = 18;
    pub const INIT: u32 = 26;
    pub const INTERRUPT: u32 = 36;
    pub const BATCH_FORGET: u32 = 42;
}
/// Bytes before what is asked, and of what is read or asked at once.
const HEADER: usize = 40;
const MOST: u32 = 128 << 10;
/// The numbers of its folder and of its file.
const ROOT: u64 = 1;
const FILE: u64 = 2;
/// A test that hangs with it ends then.
const LONGEST: Duration = Duration::from_secs(150);

/// See the head of this file. Who waits for it goes on when this is dropped.
pub struct FileSystem {
    answers: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    at: TempDir,
}

impl FileSystem {
    /// Mounts one that does not answer, with the content of this file. `reads`: it hears what is asked of it, so who asks cannot be killed. `None`: it says that a test was skipped.
    pub fn mount(content: &Path, reads: bool) -> Option<FileSystem> {
        let at = folder();
        let mounted = mount_at(at.path());
        let device = match mounted {
            Ok(device) => device,
            Err(error) => {
                println!("skipped: there is no FUSE here ({error})");
                return None;
            }
        };
        let (answers, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let server = Server {
            device,
            content: fs::File::open(content).unwrap(),
            answers: answers.clone(),
            is_over: is_over.clone(),
            unanswered: Vec::new(),
        };
        let thread = std::thread::spawn(move || server.serve(reads));
        Some(FileSystem {
            answers,
            is_over,
            thread: Some(thread),
            at,
        })
    }

    /// Its file.
    pub fn file(&self) -> PathBuf {
        self.at.path().join("node")
    }

    /// It answers from now on, also what was asked before; or no longer.
    pub fn answers(&self, does: bool) {
        self.answers.store(does, Ordering::Release);
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // With its device all that is asked fails.
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        unmount(self.at.path());
    }
}

fn c_path(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn mount_at(at: &Path) -> io::Result<fs::File> {
    let device = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        device.as_raw_fd()
    );
    let options = std::ffi::CString::new(options).unwrap();
    // SAFETY: strings with their NULs.
    let mounted = unsafe {
        libc::mount(
            c"nodeprof-test".as_ptr(),
            c_path(at).as_ptr(),
            c"fuse".as_ptr(),
            libc::MS_NODEV,
            options.as_ptr().cast(),
        )
    };
    match mounted {
        0 => Ok(device),
        _ => Err(io::Error::last_os_error()),
    }
}

fn unmount(at: &Path) {
    // SAFETY: a string with its NUL.
    unsafe { libc::umount2(c_path(at).as_ptr(), libc::MNT_DETACH) };
}

struct Server {
    device: fs::File,
    content: fs::File,
    answers: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    unanswered: Vec<Vec<u8>>,
}

impl Server {
    fn serve(mut self, reads: bool) {
        let since = Instant::now();
        let mut buffer = vec![0; MOST as usize + 8192];
        while !self.is_over.load(Ordering::Acquire) && since.elapsed() < LONGEST {
            if !reads {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            if self.answers.load(Ordering::Acquire) {
                for asked in std::mem::take(&mut self.unanswered) {
                    self.answer(&asked);
                }
            }
            if !is_readable(self.device.as_raw_fd()) {
                continue;
            }
            let Ok(length) = self.device.read(&mut buffer) else {
                continue; // who has asked was killed
            };
            let asked = buffer[..length].to_vec();
            match self.answers.load(Ordering::Acquire) || number(&asked, 4) == asked::INIT {
                true => self.answer(&asked),
                false => self.unanswered.push(asked),
            }
        }
    }

    fn answer(&self, asked: &[u8]) {
        let node = u64::from_le_bytes(asked[16..24].try_into().unwrap());
        let answer = match number(asked, 4) {
            asked::FORGET | asked::BATCH_FORGET | asked::INTERRUPT => return,
            asked::INIT => Ok(init()),
            asked::LOOKUP if asked[HEADER..].starts_with(b"node\0") => {
                // Valid for no time.
                let entry = [FILE, 0, 0, 0, 0].map(u64::to_le_bytes).concat();
                Ok([entry, self.attributes(FILE)].concat())
            }
            asked::LOOKUP => Err(libc::ENOENT),
            asked::GETATTR => Ok([vec![0; 16], self.attributes(node)].concat()),
            asked::OPEN if node == FILE => Ok(vec![0; 16]),
            asked::READ => Ok(self.read(&asked[HEADER..])),
            asked::RELEASE => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(error) => (-error, Vec::new()),
        };
        let mut bytes = (16 + body.len() as u32).to_le_bytes().to_vec();
        bytes.extend(error.to_le_bytes());
        bytes.extend(&asked[8..16]);
        bytes.extend(body);
        // Who has asked may have been killed.
        let _ = (&self.device).write(&bytes);
    }

    /// `struct fuse_attr`.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (size, mode) = match node {
            ROOT => (0, libc::S_IFDIR | 0o755),
            _ => (
                self.content.metadata().unwrap().len(),
                libc::S_IFREG | 0o755,
            ),
        };
        let long = [node, size, size.div_ceil(512), 1, 1, 1].map(u64::to_le_bytes);
        let short = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_le_bytes);
        [long.concat(), short.concat()].concat()
    }

    fn read(&self, wanted: &[u8]) -> Vec<u8> {
        let offset = u64::from_le_bytes(wanted[8..16].try_into().unwrap());
        let mut bytes = vec![0; number(wanted, 16).min(MOST) as usize];
        let mut length = 0;
        while length < bytes.len() {
            match self
                .content
                .read_at(&mut bytes[length..], offset + length as u64)
            {
                Ok(0) | Err(_) => break,
                Ok(more) => length += more,
            }
        }
        bytes.truncate(length);
        bytes
    }
}

/// `struct fuse_init_out`: version 7.31, which all kernels that nodeprof runs on know.
fn init() -> Vec<u8> {
    let first = [7, 31, MOST, 0, 0, MOST, 1].map(u32::to_le_bytes);
    let mut bytes = first.concat();
    bytes.resize(64, 0);
    bytes
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn is_readable(device: RawFd) -> bool {
    let mut asked = libc::pollfd {
        fd: device,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd.
    unsafe { libc::poll(&mut asked, 1, 20) > 0 && asked.revents & libc::POLLIN != 0 }
}
