//! The traced command: finding it, guessing which node will run, and starting it held and unprivileged.

use std::{
    collections::BTreeSet,
    env,
    ffi::{CString, OsStr, OsString},
    fs,
    io::{self, Read},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use nodeprof_bpf::hold::first_line_asks_for_large_pages;
use nodeprof_probes::is_node_binary;
use object::Endianness;
use object::elf::FileHeader64;
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

use super::child::restore_signals;

/// Why a command cannot be executed; the numbers are those of `timeout(1)` and the shells.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Exit status 127.
    #[error("{name}: not found in {}; needed: a program; type its path, or check PATH", place(.name))]
    NotFound {
        /// As typed.
        name: String,
    },
    /// Exit status 126.
    #[error(
        "{path}: cannot be executed ({reason}); needed: an executable file; {} type: node {path}",
        match reason.as_str() {
            A_DIRECTORY => "for the package in it",
            _ => "for a script without the executable bit",
        }
    )]
    NotExecutable {
        /// What was found.
        path: String,
        /// The kernel's words.
        reason: String,
    },
    /// What it names to run it cannot. Exit status 126.
    #[error(
        "{path}: cannot be executed ({interpreter}, {}, {fault}); needed: {}",
        match of_script {
            true => "the interpreter that its first line names",
            false => "the loader that it was linked for",
        },
        match (of_script, interpreter.ends_with("/node")) {
            (true, true) => format!("a first line with one that is installed; type: node {path}"),
            (true, false) => "a first line with one that is installed".to_owned(),
            (false, _) => "a program built for this system".to_owned(),
        }
    )]
    NoInterpreter {
        /// What was found.
        path: String,
        /// As it is named.
        interpreter: String,
        /// By the first line of a script; else by a binary.
        of_script: bool,
        /// What is wrong with it.
        fault: &'static str,
    },
}

impl CommandError {
    /// Why a program that was found could not be executed.
    pub(crate) fn of_exec(program: &Path, error: &io::Error) -> CommandError {
        let path = program.to_string_lossy().into_owned();
        let of_interpreter = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EACCES));
        match wrong_interpreter(program).filter(|_| of_interpreter) {
            Some((interpreter, of_script, fault)) => CommandError::NoInterpreter {
                path,
                // A line that ends as on Windows has a character more.
                interpreter: interpreter.to_string_lossy().escape_debug().to_string(),
                of_script,
                fault,
            },
            None => CommandError::NotExecutable {
                path,
                reason: error.to_string(),
            },
        }
    }
}

/// The interpreter of a script, or the loader of a binary, that is missing or cannot be executed; whether it is a script's; and what is
/// wrong with it.
fn wrong_interpreter(program: &Path) -> Option<(PathBuf, bool, &'static str)> {
    let mut current = program.to_path_buf();
    for _ in 0..INTERPRETERS {
        let line = first_line(&current);
        let of_script = line.is_some();
        current = match &line {
            Some(line) => {
                // As the kernel splits it.
                let mut words = line.split(|byte| matches!(byte, b' ' | b'\t'));
                PathBuf::from(OsStr::from_bytes(words.find(|word| !word.is_empty())?))
            }
            None => loader(&current)?,
        };
        match fs::metadata(&current) {
            Err(_) => return Some((current, of_script, "is missing")),
            Ok(meta) if !meta.is_file() || !may_execute(&current) => {
                return Some((current, of_script, "is no executable file"));
            }
            Ok(_) => {}
        }
    }
    None
}

/// The dynamic loader that a binary was linked for.
fn loader(program: &Path) -> Option<PathBuf> {
    let data = ReadCache::new(fs::File::open(program).ok()?);
    let header = FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let mut segments = header.program_headers(endian, &data).ok()?.iter();
    let path = segments.find_map(|segment| segment.interpreter(endian, &data).ok()?)?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// What follows the `#!` of a script.
fn first_line(program: &Path) -> Option<Vec<u8>> {
    let mut head = [0u8; 256];
    let mut file = fs::File::open(program).ok()?;
    let count = file.read(&mut head).ok()?;
    let line = head[..count].strip_prefix(b"#!")?;
    let end = line.iter().position(|&byte| byte == b'\n');
    Some(line[..end.unwrap_or(line.len())].to_vec())
}

fn may_execute(path: &Path) -> bool {
    CString::new(path.as_os_str().as_bytes()).is_ok_and(|path| {
        // SAFETY: the path is NUL-terminated.
        unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
    })
}

/// Linux itself follows at most so many interpreters (BINPRM_MAX_RECURSION).
const INTERPRETERS: usize = 4;

const A_DIRECTORY: &str = "it is a directory";

fn place(name: &str) -> &'static str {
    if name.contains('/') {
        "the file system"
    } else {
        "PATH"
    }
}

/// Where a program of this name may lie, the first one first.
pub(crate) fn on_path(name: &OsStr) -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&path).map(|dir| dir.join(name)).collect()
}

/// Finds a program as `execvp` does.
///
/// # Errors
/// [`CommandError`].
pub fn find_program(name: &OsStr) -> Result<PathBuf, CommandError> {
    let shown = || name.to_string_lossy().into_owned();
    if name.is_empty() {
        // Joined with a folder of PATH it would name that folder.
        return Err(CommandError::NotFound {
            name: "an empty name".into(),
        });
    }
    let mut denied = None;
    // Of all folders of PATH those two name a folder; who types them means the one that they are in.
    let is_folder = name == "." || name == "..";
    let candidates: Vec<PathBuf> = if is_folder || name.as_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        on_path(name)
    };
    for candidate in candidates {
        let Ok(meta) = fs::metadata(&candidate) else {
            continue;
        };
        if meta.is_file() && may_execute(&candidate) {
            return Ok(candidate);
        }
        denied.get_or_insert((candidate, meta.is_dir()));
    }
    match denied {
        Some((path, is_dir)) => Err(CommandError::NotExecutable {
            path: path.to_string_lossy().into_owned(),
            reason: if is_dir {
                A_DIRECTORY
            } else {
                "permission denied"
            }
            .into(),
        }),
        None => Err(CommandError::NotFound { name: shown() }),
    }
}

/// The node binary that executing `program` will lead to, through `#!` lines and `env`, if it can be told.
pub fn guess_node(program: &Path) -> Option<PathBuf> {
    let mut current = program.to_path_buf();
    for _ in 0..INTERPRETERS {
        let Some(line) = first_line(&current) else {
            return is_node_binary(&current).then_some(current);
        };
        // Such a node must have no probes: its exec, which tells of that, is waited for.
        if first_line_asks_for_large_pages(&line) {
            return None;
        }
        let mut words = line
            .split(|b| b.is_ascii_whitespace())
            .filter(|w| !w.is_empty());
        let interpreter = words.next()?;
        current = if interpreter.ends_with(b"/env") {
            let name = words.find(|w| !w.starts_with(b"-") && !w.contains(&b'='))?;
            find_program(OsStr::from_bytes(name)).ok()?
        } else {
            PathBuf::from(OsStr::from_bytes(interpreter))
        };
    }
    None
}

/// Node binaries that processes of the tree may execute: those on PATH, those installed beside the guessed
/// one (version managers lay versions out as `<versions>/<version>/…/bin/node`), and those named on the
/// command line.
pub fn candidates(guess: Option<&Path>, arguments: &[OsString]) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut add = |path: PathBuf| {
        if let Ok(real) = fs::canonicalize(&path)
            && is_node_binary(&real)
        {
            found.insert(real);
        }
    };
    for dir in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
        add(dir.join("node"));
        add(dir.join("nodejs"));
    }
    arguments
        .iter()
        .filter(|a| a.as_bytes().contains(&b'/'))
        .for_each(|a| add(PathBuf::from(a)));
    if let Some(guess) = guess.and_then(|g| fs::canonicalize(g).ok()) {
        // …/<version>/bin/node and …/<version>/installation/bin/node
        for up in [2, 3] {
            let Some(versions) = guess.ancestors().nth(up + 1) else {
                continue;
            };
            let Some(tail) = guess
                .ancestors()
                .nth(up)
                .and_then(|v| guess.strip_prefix(v).ok())
            else {
                continue;
            };
            // The root of the file system is no folder of versions.
            if versions.parent().is_none() || tail.components().count() < 2 {
                continue;
            }
            for entry in fs::read_dir(versions)
                .into_iter()
                .flatten()
                .flatten()
                .take(64)
            {
                add(entry.path().join(tail));
            }
        }
        add(guess);
    }
    found.into_iter().collect()
}

/// Who the traced program runs as: the user that typed `sudo`, or nobody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoker {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    name: CString,
    home: Option<OsString>,
}

impl Invoker {
    /// The user behind sudo, if there is one.
    pub fn behind_sudo() -> Option<Invoker> {
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return None;
        }
        let number = |key: &str| env::var(key).ok()?.parse::<u32>().ok();
        let (uid, gid) = (number("SUDO_UID")?, number("SUDO_GID")?);
        if uid == 0 {
            return None;
        }
        let name = CString::new(env::var_os("SUDO_USER")?.as_bytes()).ok()?;
        // SAFETY: the name is NUL-terminated; the result is copied before any other call.
        let home = unsafe {
            let entry = libc::getpwnam(name.as_ptr());
            (!entry.is_null()).then(|| {
                OsString::from_vec(
                    std::ffi::CStr::from_ptr((*entry).pw_dir)
                        .to_bytes()
                        .to_vec(),
                )
            })
        };
        Some(Invoker {
            uid,
            gid,
            name,
            home,
        })
    }

    /// Gives this thread, and no other, the user's rights for good.
    ///
    /// # Errors
    /// The system's; the thread must then do nothing on the user's behalf.
    pub fn become_thread(&self) -> io::Result<()> {
        let mut groups = vec![0 as libc::gid_t; 64];
        let mut count = groups.len() as libc::c_int;
        // SAFETY: room for `count` groups; the name is NUL-terminated. It may need more room, and says so.
        if unsafe {
            libc::getgrouplist(
                self.name.as_ptr(),
                self.gid,
                groups.as_mut_ptr(),
                &mut count,
            )
        } < 0
        {
            groups.resize(count.max(0) as usize, 0);
            // SAFETY: as above.
            unsafe {
                libc::getgrouplist(
                    self.name.as_ptr(),
                    self.gid,
                    groups.as_mut_ptr(),
                    &mut count,
                )
            };
        }
        groups.truncate(count.max(0) as usize);
        let checked = |outcome: libc::c_long| match outcome {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // The system calls themselves: libc's functions change all threads of the process.
        // SAFETY: integers, and a list with its length.
        unsafe {
            checked(libc::syscall(
                libc::SYS_setgroups,
                groups.len(),
                groups.as_ptr(),
            ))?;
            checked(libc::syscall(
                libc::SYS_setresgid,
                self.gid,
                self.gid,
                self.gid,
            ))?;
            checked(libc::syscall(
                libc::SYS_setresuid,
                self.uid,
                self.uid,
                self.uid,
            ))
        }
    }

    #[cfg(test)]
    pub(super) fn for_test(uid: u32, gid: u32) -> Invoker {
        Invoker {
            uid,
            gid,
            name: c"nobody".into(),
            home: None,
        }
    }

    /// Gives a file to the user.
    pub fn own(&self, path: &Path) {
        let _ = std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid));
    }
}

/// Standard streams of a program; `None`: nodeprof's own.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    /// Standard input.
    pub input: Option<Arc<fs::File>>,
    /// Standard output.
    pub output: Option<Arc<fs::File>>,
    /// Standard error.
    pub error: Option<Arc<fs::File>>,
}

/// A child that waits before its exec.
pub struct HeldChild {
    /// Process id.
    pub pid: u32,
    go: OwnedFd,
    failed: OwnedFd,
}

/// Forks a child that executes `program` when told to.
///
/// The child has the signal mask `mask`, default SIGPIPE (Rust ignores it), the identity of `invoker`, and `streams`.
///
/// # Errors
/// If pipe or process cannot be made.
pub fn fork_held(
    program: &Path,
    arguments: &[OsString],
    invoker: Option<&Invoker>,
    mask: &libc::sigset_t,
    streams: &Streams,
) -> io::Result<HeldChild> {
    let streams = [&streams.input, &streams.output, &streams.error]
        .map(|stream| stream.as_ref().map(|file| file.as_raw_fd()));
    let path = CString::new(program.as_os_str().as_bytes())?;
    let argv: Vec<CString> = arguments
        .iter()
        .map(|a| CString::new(a.as_bytes()))
        .collect::<Result<_, _>>()?;
    let mut argv_pointers: Vec<*const libc::c_char> = argv.iter().map(|a| a.as_ptr()).collect();
    argv_pointers.push(std::ptr::null());
    let environment = environment(invoker)?;
    let mut environment_pointers: Vec<*const libc::c_char> =
        environment.iter().map(|e| e.as_ptr()).collect();
    environment_pointers.push(std::ptr::null());
    let (go_read, go) = pipe()?;
    let (failed, failed_write) = pipe()?;
    // SAFETY: until exec the child only makes async-signal-safe calls (initgroups reads files; the parent is
    // single-threaded here, so the allocator is not locked).
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: all pointers are NUL-terminated and live; the child leaves by exec or _exit.
            unsafe {
                libc::close(go.as_raw_fd());
                let mut byte = 0u8;
                if libc::read(go_read.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
                    libc::_exit(125); // the tracer is gone before the start
                }
                if let Some(user) = invoker
                    && (libc::initgroups(user.name.as_ptr(), user.gid) != 0
                        || libc::setgid(user.gid) != 0
                        || libc::setuid(user.uid) != 0)
                {
                    report_failure(&failed_write);
                }
                for (number, stream) in (0..).zip(streams) {
                    if let Some(descriptor) = stream
                        && libc::dup2(descriptor, number) < 0
                    {
                        report_failure(&failed_write);
                    }
                }
                restore_signals(mask);
                libc::execve(
                    path.as_ptr(),
                    argv_pointers.as_ptr(),
                    environment_pointers.as_ptr(),
                );
                if io::Error::last_os_error().raw_os_error() == Some(libc::ENOEXEC) {
                    // A script without a `#!` line: as execvp does.
                    let mut shell = vec![c"/bin/sh".as_ptr(), path.as_ptr()];
                    shell.extend_from_slice(argv_pointers.get(1..).unwrap_or_default());
                    libc::execve(
                        c"/bin/sh".as_ptr(),
                        shell.as_ptr(),
                        environment_pointers.as_ptr(),
                    );
                }
                report_failure(&failed_write);
            }
        }
        pid => Ok(HeldChild {
            pid: pid as u32,
            go,
            failed,
        }),
    }
}

/// Tells the parent why exec failed, and leaves.
fn report_failure(to: &OwnedFd) -> ! {
    let errno = io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EINVAL)
        .to_ne_bytes();
    // SAFETY: four bytes; then the process ends.
    unsafe {
        libc::write(to.as_raw_fd(), errno.as_ptr().cast(), errno.len());
        libc::_exit(126)
    }
}

impl HeldChild {
    /// Lets it execute; waits until it has.
    ///
    /// # Errors
    /// The error of its exec.
    pub fn go(self) -> io::Result<()> {
        // SAFETY: one byte from a live buffer.
        unsafe { libc::write(self.go.as_raw_fd(), b"g".as_ptr().cast(), 1) };
        let mut errno = [0u8; 4];
        // The write end closes on exec: then nothing comes.
        // SAFETY: four bytes into a live buffer.
        let got = unsafe { libc::read(self.failed.as_raw_fd(), errno.as_mut_ptr().cast(), 4) };
        if got == 4 {
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
        } else {
            Ok(())
        }
    }
}

fn environment(invoker: Option<&Invoker>) -> io::Result<Vec<CString>> {
    let mut variables: Vec<(OsString, OsString)> = env::vars_os().collect();
    if let Some(user) = invoker {
        let name = OsString::from_vec(user.name.to_bytes().to_vec());
        let mut set = vec![("USER", name.clone()), ("LOGNAME", name)];
        if let Some(home) = &user.home {
            set.push(("HOME", home.clone()));
        }
        for (key, value) in set {
            variables.retain(|(k, _)| k != key);
            variables.push((key.into(), value));
        }
    }
    let join = |(mut key, value): (OsString, OsString)| {
        key.push("=");
        key.push(value);
        CString::new(key.into_vec()).map_err(io::Error::from)
    };
    variables.into_iter().map(join).collect()
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0 as RawFd; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: two new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn folders_are_named_as_they_are_typed() {
        for name in [".", "..", "./", "/"] {
            let error = find_program(name.as_ref()).unwrap_err();
            let start = format!("{name}: cannot be executed ({A_DIRECTORY});");
            assert!(error.to_string().starts_with(&start), "{error}");
        }
        let error = find_program("".as_ref()).unwrap_err().to_string();
        assert!(error.starts_with("an empty name: not found"), "{error}");
    }

    #[test]
    fn an_interpreter_that_cannot_run_a_script_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let told = |line: &str, errno| {
            fs::write(&script, line).unwrap();
            let error = io::Error::from_raw_os_error(errno);
            CommandError::of_exec(&script, &error).to_string()
        };
        let missing = told("#! /no/such/interpreter -x\nscript", libc::ENOENT);
        assert!(missing.contains("(/no/such/interpreter, "), "{missing}");
        assert!(missing.contains("is missing"), "{missing}");
        assert!(!missing.contains("type: node"), "{missing}");
        // Where it is node that lies elsewhere, that is what to type.
        let node = told("#!/no/such/node\n", libc::ENOENT);
        assert!(node.contains("type: node /"), "{node}");
        let windows = told("#!/bin/sh\r\n", libc::ENOENT);
        assert!(windows.contains("(/bin/sh\\r, "), "{windows}");
        let no_program = told("#!/dev/null\n", libc::EACCES);
        assert!(no_program.contains("is no executable file"), "{no_program}");
        // An interpreter that is a script has one, too.
        let outer = folder.path().join("outer");
        fs::write(&outer, format!("#!{}\n", script.display())).unwrap();
        fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, permissions).unwrap();
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        let error = CommandError::of_exec(&outer, &error).to_string();
        assert!(error.contains("/no/such/interpreter"), "{error}");
        // A binary of another C library.
        let binary = fs::read("/proc/self/exe").unwrap();
        let loader = loader(Path::new("/proc/self/exe")).unwrap();
        let loader = loader.to_string_lossy().into_owned();
        let at = memchr::memmem::find(&binary, loader.as_bytes()).unwrap();
        let mut foreign = binary.clone();
        foreign[at + 1] = b'~';
        fs::write(&script, foreign).unwrap();
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        let error = CommandError::of_exec(&script, &error).to_string();
        assert!(
            error.contains("the loader that it was linked for, is missing"),
            "{error}"
        );
        // Whatever else it was.
        for (line, errno) in [("#!/bin/sh\n", libc::ENOENT), ("#!/no\n", libc::E2BIG)] {
            let other = told(line, errno);
            assert!(other.contains("cannot be executed ("), "{other}");
            assert!(!other.contains("interpreter"), "{other}");
        }
    }
}
