//! Whether a program is started with `--use-largepages`: node then moves its code to large pages (`MoveTextRegionToLargePages` of
//! src/large_pages/node_large_page.cc, up to Node.js 25). It copies the code with all breakpoints to memory that is no file's, where nobody knows of them, and the
//! first that is hit ends the program.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{FileExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

/// Arguments, or variables, that are looked at.
const MOST: u64 = 4096;
/// Bytes of an argument, or of a variable, that are looked at: as many as tell the option, and which variable it is.
const HEAD: usize = 32;
/// Bytes of `NODE_OPTIONS`.
const LONGEST: usize = 4096;
/// Bytes that are read at once, and how often: a start waits for it, and anybody may have arguments that lie anywhere. What lies beyond is not looked at.
const BLOCK: u64 = 4096;
const MOST_BLOCKS: usize = 256;
/// Bytes of a running program's arguments, and of its environment.
const LONGEST_TEXT: u64 = 1 << 20;
/// How often it is looked whether a program has its arguments, each ms. One that has ended has none.
const MOST_LOOKS: u32 = 10;

/// How long a start waits for what may lie on a file system of its user, who answers when he likes: half as long as an exec may be held.
const PATIENCE: Duration = Duration::from_millis(20);
/// Threads that wait for such ones at most.
const MOST_READERS: usize = 16;
static READERS: AtomicUsize = AtomicUsize::new(0);
/// As far does the kernel read a script's first line (`BINPRM_BUF_SIZE`), and so often may an interpreter be a script itself.
const FIRST_LINE: u64 = 256;
const INTERPRETERS: u32 = 5;

/// What is known of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Yes,
    No,
    /// Its arguments, or its script, lie where nobody can read them soon.
    Unknown,
}

impl From<bool> for Asked {
    fn from(asked: bool) -> Asked {
        if asked { Asked::Yes } else { Asked::No }
    }
}

/// Why a process with such a binary gets no probes, if it must not have any.
pub(super) fn refusal(pid: u32, binary: &Path, after_exec: bool) -> Option<&'static str> {
    match are_asked_for(pid, binary, after_exec) {
        Asked::No => None,
        Asked::Yes => Some(
            "it is started with --use-largepages, for which node moves its code, and a breakpoint in that would end it; needed: a start without that option",
        ),
        Asked::Unknown => Some(
            "its arguments, or its script, are in a file that could not be read in 20 ms: they may have --use-largepages, for which node moves its code, and a breakpoint in that would end it",
        ),
    }
}

/// Whether a process was started so, or is about to be, with a binary: also if only one of its arguments says so that is its script's, and where the kernel's
/// setting for large pages makes it have no effect. `after_exec`: it is no longer in its exec.
fn are_asked_for(pid: u32, binary: &Path, after_exec: bool) -> Asked {
    let exec = if after_exec { None } else { Exec::of(pid) };
    let Some(exec) = exec else {
        return of_running(pid).into();
    };
    if let Ok(mut memory) = Memory::plain(pid) {
        let asked = exec.asks(&mut memory);
        if asked == Some(true) {
            return Asked::Yes;
        }
        if asked == Some(false) && exec.names(binary, &mut memory) && !memory.is_doubtful {
            return Asked::No;
        }
    }
    // Who has mapped his arguments from a file system of his own would let us wait for as long as he likes. So would a script there, whose first line may have
    // the option, and of whose words the kernel tells nobody.
    soon(move || {
        let mut memory = Memory::any(pid).ok()?;
        Some(match exec.asks(&mut memory) {
            Some(true) => true,
            Some(false) => exec.script_asks(pid, &mut memory),
            // Behind an exec the kernel tells of it still, but not with what.
            None => of_running(pid),
        })
    })
}

/// Asks in a thread of its own, and waits a little.
fn soon(ask: impl FnOnce() -> Option<bool> + Send + 'static) -> Asked {
    struct Reader;
    impl Drop for Reader {
        fn drop(&mut self) {
            READERS.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let (tell, told) = mpsc::channel();
    let is_room = READERS.fetch_add(1, Ordering::Relaxed) < MOST_READERS;
    let reader = Reader;
    let read = move || {
        let asked = ask();
        drop(reader);
        let _ = tell.send(asked);
    };
    if !is_room || std::thread::Builder::new().spawn(read).is_err() {
        return Asked::Unknown;
    }
    match told.recv_timeout(PATIENCE) {
        Ok(Some(asked)) => asked.into(),
        // It has ended.
        Ok(None) => Asked::No,
        Err(_) => Asked::Unknown,
    }
}

/// Of a process that runs, or is to execute something else: what it was executed with. The kernel reads no file for these.
fn of_running(pid: u32) -> bool {
    let text = |name: &str| -> Vec<u8> {
        let mut text = Vec::new();
        let file = File::open(format!("/proc/{pid}/{name}"));
        // What cannot be read has ended.
        let _ = file.map(|file| file.take(LONGEST_TEXT).read_to_end(&mut text));
        text
    };
    let mut arguments = text("cmdline");
    // In the midst of its exec a program has its new memory and no arguments in it yet.
    for _ in 0..MOST_LOOKS {
        if !arguments.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        arguments = text("cmdline");
    }
    arguments.split(|b| *b == 0).any(is_option)
        || text("environ").split(|b| *b == 0).any(is_variable)
}

/// `--use-largepages=on` or `silent`, with the value behind it or in the next argument; node takes `_` for `-`.
fn is_option(argument: &[u8]) -> bool {
    let dashes = |byte: &u8| if *byte == b'_' { b'-' } else { *byte };
    let argument: Vec<u8> = argument.iter().map(dashes).collect();
    match argument.strip_prefix(b"--use-largepages") {
        Some(value) => value.is_empty() || value.first() == Some(&b'=') && value != b"=off",
        None => false,
    }
}

const NODE_OPTIONS: &[u8] = b"NODE_OPTIONS=";

/// `NODE_OPTIONS` with that in it.
fn is_variable(variable: &[u8]) -> bool {
    variable.strip_prefix(NODE_OPTIONS).is_some_and(|options| {
        let quotes = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'"';
        options.split(quotes).any(is_option)
    })
}

/// Whether the first line of a script gives node the option.
pub fn first_line_asks(line: &[u8]) -> bool {
    line.split(u8::is_ascii_whitespace).any(is_option)
}

/// The first line of a script behind its `#!`; `None` of what is none.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path);
    let file = file
        .ok()
        .filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    let mut head = Vec::new();
    file.take(FIRST_LINE).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|b| *b == b'\n').next();
    line.map(<[u8]>::to_vec)
}

/// An exec under way, by the operands of the system call.
#[derive(Clone, Copy)]
struct Exec {
    /// The descriptor of the folder that the name is relative to.
    folder: libc::c_int,
    /// Where the name of the program lies, and the arrays.
    name: u64,
    arguments: u64,
    variables: u64,
}

impl Exec {
    fn of(pid: u32) -> Option<Exec> {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
        let mut words = call.split_ascii_whitespace();
        let number: i64 = words.next()?.parse().ok()?;
        let mut operands = words
            .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or_default());
        let folder = match number {
            libc::SYS_execve => libc::AT_FDCWD,
            libc::SYS_execveat => operands.next()? as libc::c_int,
            _ => return None,
        };
        Some(Exec {
            folder,
            name: operands.next()?,
            arguments: operands.next()?,
            variables: operands.next()?,
        })
    }

    /// Whether the arguments or `NODE_OPTIONS` have it; `None` if there are no arguments.
    fn asks(&self, memory: &mut Memory) -> Option<bool> {
        let mut some = false;
        let asked = memory.has(self.arguments, |_, _, head| {
            some = true;
            is_option(head)
        });
        some.then(|| {
            memory.blocks.clear();
            asked
                || memory.has(self.variables, |memory, at, head| {
                    head.starts_with(NODE_OPTIONS) && is_variable(&memory.text(at, LONGEST))
                })
        })
    }

    /// Whether it names this program, and not a script that the program is to run.
    fn names(&self, binary: &Path, memory: &mut Memory) -> bool {
        memory.text(self.name, LONGEST) == binary.as_os_str().as_bytes()
    }

    /// Whether it names a script whose first line, or that of its interpreter, has the option.
    fn script_asks(&self, pid: u32, memory: &mut Memory) -> bool {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let absolute = |name: &[u8]| -> Option<PathBuf> {
            let name = name.strip_prefix(b"/")?;
            Some(process.join("root").join(OsString::from_vec(name.to_vec())))
        };
        let name = memory.text(self.name, LONGEST);
        let mut path = absolute(&name).unwrap_or_else(|| {
            let folder = match self.folder {
                libc::AT_FDCWD => process.join("cwd"),
                open => process.join(format!("fd/{open}")),
            };
            match name.is_empty() {
                true => folder,
                false => folder.join(OsString::from_vec(name)),
            }
        });
        for _ in 0..INTERPRETERS {
            let Some(line) = first_line(&path) else {
                break;
            };
            if first_line_asks(&line) {
                return true;
            }
            let mut words = line.split(u8::is_ascii_whitespace);
            let Some(interpreter) = words.find(|word| !word.is_empty()).and_then(absolute) else {
                break;
            };
            path = interpreter;
        }
        false
    }
}

/// Memory of a process, of which neighbouring texts are read.
struct Memory {
    file: File,
    /// Where only what is no file's is read.
    pages: Option<File>,
    /// Something was not read for that.
    is_doubtful: bool,
    blocks: HashMap<u64, Vec<u8>>,
}

impl Memory {
    fn any(pid: u32) -> io::Result<Memory> {
        Ok(Memory {
            file: File::open(format!("/proc/{pid}/mem"))?,
            pages: None,
            is_doubtful: false,
            blocks: HashMap::new(),
        })
    }

    /// Without pages of files: nobody is asked for what is there.
    fn plain(pid: u32) -> io::Result<Memory> {
        let pages = File::open(format!("/proc/{pid}/pagemap"))?;
        let all = Memory::any(pid)?;
        Ok(Memory {
            pages: Some(pages),
            ..all
        })
    }

    /// Whether a page is there, or swapped out, and no file's. (proc_pid_pagemap(5))
    fn is_plain(pages: &File, number: u64) -> bool {
        const THERE: u64 = 1 << 63 | 1 << 62;
        const OF_A_FILE: u64 = 1 << 61;
        let mut entry = [0; 8];
        let read = pages.read_exact_at(&mut entry, number.saturating_mul(8));
        let entry = u64::from_le_bytes(entry);
        read.is_ok() && entry & THERE != 0 && entry & OF_A_FILE == 0
    }

    /// Whether one of the texts is what is asked for, by where it lies and how it begins, to which an array points that ends with 0; of those that can be read.
    fn has(&mut self, array: u64, mut is: impl FnMut(&mut Memory, u64, &[u8]) -> bool) -> bool {
        if array == 0 {
            return false; // as the kernel takes it
        }
        for index in 0..MOST {
            let word = self.bytes(array.wrapping_add(8 * index), 8);
            let Ok(word) = <[u8; 8]>::try_from(word) else {
                return false;
            };
            let at = u64::from_le_bytes(word);
            if at == 0 {
                return false;
            }
            let head = self.text(at, HEAD);
            if is(self, at, &head) {
                return true;
            }
        }
        false
    }

    fn text(&mut self, at: u64, most: usize) -> Vec<u8> {
        let mut text = self.bytes(at, most);
        let end = text.iter().position(|byte| *byte == 0);
        text.truncate(end.unwrap_or(text.len()));
        text
    }

    /// So many bytes, or as many as can be read.
    fn bytes(&mut self, at: u64, most: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(most);
        while bytes.len() < most {
            let next = at.wrapping_add(bytes.len() as u64);
            let block = self.block(next / BLOCK);
            let rest = block.get((next % BLOCK) as usize..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            bytes.extend(&rest[..rest.len().min(most - bytes.len())]);
        }
        bytes
    }

    fn block(&mut self, number: u64) -> &[u8] {
        let is_room = self.blocks.len() < MOST_BLOCKS;
        let Memory {
            file,
            pages,
            is_doubtful,
            blocks,
        } = self;
        blocks.entry(number).or_insert_with(|| {
            let is_read = pages.as_ref().is_none_or(|p| Memory::is_plain(p, number));
            *is_doubtful |= !is_read;
            let mut bytes = vec![
                0;
                if is_room && is_read {
                    BLOCK as usize
                } else {
                    0
                }
            ];
            let length = file.read_at(&mut bytes, number * BLOCK).unwrap_or_default();
            bytes.truncate(length);
            bytes
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::{
        os::fd::AsRawFd as _,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn the_option_is_known_however_it_is_written() {
        for option in [
            "--use-largepages=on",
            "--use-largepages=silent",
            "--use_largepages=on",
            "--use-largepages",
        ] {
            assert!(is_option(option.as_bytes()), "{option}");
            for variable in [
                format!("NODE_OPTIONS={option}"),
                format!("NODE_OPTIONS=--no-warnings \"{option}\" --title=x"),
            ] {
                assert!(is_variable(variable.as_bytes()), "{variable}");
            }
        }
        for other in [
            "--use-largepages=off",
            "--use-largepages-of",
            "use-largepages=on",
            "",
        ] {
            assert!(!is_option(other.as_bytes()), "{other}");
        }
        assert!(!is_variable(b"OTHER=--use-largepages=on"));
    }

    #[test]
    fn of_a_running_program_it_is_known_by_its_arguments_and_its_environment() {
        let asked = |command: &mut Command| {
            let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
            let asked = are_asked_for(child.id(), Path::new("node"), true);
            child.kill().unwrap();
            child.wait().unwrap();
            asked
        };
        let cat = || {
            let mut command = Command::new("sh");
            command.args(["-c", "read line"]).env_remove("NODE_OPTIONS");
            command
        };
        assert_eq!(asked(&mut cat()), Asked::No);
        assert_eq!(asked(cat().arg("--use-largepages=on")), Asked::Yes);
        let option = ("NODE_OPTIONS", "--use-largepages=silent");
        assert_eq!(asked(cat().env(option.0, option.1)), Asked::Yes);
    }

    #[test]
    fn texts_are_read_from_memory() {
        let texts = [c"node", c"--use-largepages=on"];
        let long = std::ffi::CString::new(vec![b'a'; 10_000]).unwrap();
        let array = [
            texts[0].as_ptr(),
            texts[1].as_ptr(),
            long.as_ptr(),
            std::ptr::null(),
            texts[0].as_ptr(),
        ];
        let memory = || Memory::any(std::process::id()).unwrap();
        let mut read = Vec::new();
        memory().has(array.as_ptr() as u64, |memory, at, head| {
            read.push((head.to_owned(), memory.text(at, LONGEST).len()));
            false
        });
        let lengths: Vec<_> = read.iter().map(|(head, all)| (head.len(), *all)).collect();
        assert_eq!(lengths, [(4, 4), (19, 19), (HEAD, LONGEST)]);
        assert_eq!(read[1].0, texts[1].to_bytes());
        assert!(!memory().has(8, |_, _, _| true));
        // An array that points everywhere ends, too.
        let everywhere: Vec<u64> = (0..2 * MOST).map(|i| 4096 * i + 1).collect();
        let (mut memory, mut looked) = (memory(), 0);
        memory.has(everywhere.as_ptr() as u64, |_, _, _| {
            looked += 1;
            false
        });
        assert!((1..=MOST).contains(&looked), "{looked}");
        let kept: usize = memory.blocks.values().map(Vec::len).sum();
        assert!(kept <= MOST_BLOCKS * BLOCK as usize);
    }

    #[test]
    fn of_an_exec_under_way_it_is_known_by_its_operands_and_its_script() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, line: &str| {
            let path = folder.path().join(name);
            fs::write(&path, line).unwrap();
            std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap()
        };
        let asking = script("a", "#!/opt/node --use-largepages=on\nexit");
        let of_a_script = script("b", &format!("#!{}\n", asking.to_str().unwrap()));
        let other = script("c", "#!/opt/node --title=x\n");
        let none = script("d", "\x7fELF --use-largepages=on\n");
        let relative = c"no such file";
        // The kernel reads literals of a program from its file: those are not looked at but in a thread of their own.
        let (plain, option) = (c"node".to_owned(), c"--use-largepages=on".to_owned());
        let asks = |name: &std::ffi::CStr, argument: &std::ffi::CStr| {
            let arguments = Box::new([argument.as_ptr(), std::ptr::null()]);
            let exec = Exec {
                folder: libc::AT_FDCWD,
                name: name.as_ptr() as u64,
                arguments: arguments.as_ptr() as u64,
                variables: 0,
            };
            let pid = std::process::id();
            let mut memory = Memory::plain(pid).unwrap();
            let given = exec.asks(&mut memory);
            assert!(!memory.is_doubtful);
            assert!(exec.names(Path::new(name.to_str().unwrap()), &mut memory));
            (given, exec.script_asks(pid, &mut memory))
        };
        assert_eq!(asks(&none, &option), (Some(true), false));
        for (name, is_asked) in [
            (&*asking, true),
            (&*of_a_script, true),
            (&*other, false),
            (&*none, false),
            (&*relative.to_owned(), false),
        ] {
            assert_eq!(asks(name, &plain), (Some(false), is_asked), "{name:?}");
        }
    }

    #[test]
    fn pages_of_files_are_read_elsewhere_and_nobody_waits_long_for_them() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"--use-largepages=on\0").unwrap();
        // SAFETY: a new mapping of a file that stays.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BLOCK as usize,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        let array = Box::new([mapped as u64, 0]);
        let exec = Exec {
            folder: libc::AT_FDCWD,
            name: 0,
            arguments: array.as_ptr() as u64,
            variables: 0,
        };
        let pid = std::process::id();
        let mut memory = Memory::plain(pid).unwrap();
        assert_eq!(exec.asks(&mut memory), Some(false));
        assert!(memory.is_doubtful);
        assert_eq!(exec.asks(&mut Memory::any(pid).unwrap()), Some(true));
        let (go, gone) = mpsc::channel::<()>();
        let waits = move || {
            let _ = gone.recv();
            Some(false)
        };
        assert_eq!(soon(waits), Asked::Unknown);
        drop(go);
        assert_eq!(soon(|| Some(true)), Asked::Yes);
        assert_eq!(soon(|| None), Asked::No);
    }
}
