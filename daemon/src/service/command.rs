//! The command line of a process whose exec is held. It is in the memory of who executes, and not the process's own yet: the rules would have to wait for it
//! until the exec is over, and a start that one of them may mean would have the probes of both modes until then.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

/// The loop of a holder waits for a command line no longer: without one the rules are asked again after the exec.
const PATIENCE: Duration = Duration::from_millis(4);
/// So much of its time the loop spends on that; in such times, of which the guard lets go what is not read in one.
const MOST_OF_A_WINDOW: Duration = Duration::from_millis(8);
const WINDOW: Duration = Duration::from_millis(40);
/// A reader that has not answered for so long hangs, and another one takes its place: so many times.
const HANGS: Duration = Duration::from_secs(1);
const MOST_THAT_HANG: u32 = 8;
/// Until the process, which has just asked for its file, waits for that: only then the kernel tells of its system call.
const PAUSE: Duration = Duration::from_micros(30);
/// Bytes of a command line with a NUL behind each argument, and how many arguments: as much as the exec's record keeps (half of `TEXT_LARGE` of
/// records.h, less one), by which the rules are asked again. Of a longer one the exec tells.
const LONGEST: usize = 2047;
const MOST: usize = 1024;
/// Memory is read up to the end of such a piece, behind which there may be none.
const PIECE: u64 = 4096;

/// Reads command lines for a holder.
///
/// A thread does: what a process says of its memory may be a file of a file system that never answers, and the loop of a holder must not wait for that.
#[derive(Default)]
pub(super) struct Commands {
    reader: Option<Reader>,
    /// Readers that hang.
    hang: u32,
    /// When the window began, and what was spent in it.
    window: Option<(Instant, Duration)>,
    /// What any process executes.
    #[cfg(test)]
    pub(super) of_all: Option<String>,
}

struct Reader {
    asks: Sender<u32>,
    answers: Receiver<(u32, Option<Executed>)>,
    /// So many questions have no answer yet.
    open: usize,
    /// When it was asked last.
    asked: Instant,
}

/// What a process asks the kernel to execute.
#[derive(Debug, PartialEq)]
struct Executed {
    file: Vec<u8>,
    arguments: Vec<Vec<u8>>,
}

impl Commands {
    /// Program and arguments, separated by spaces, of a process that waits to execute this program; `None` if that is not known in time.
    pub(super) fn of(&mut self, pid: u32, program: &Path) -> Option<String> {
        #[cfg(test)]
        if self.of_all.is_some() {
            return self.of_all.clone();
        }
        let now = Instant::now();
        let spent = match self.window {
            Some((begun, spent)) if now < begun + WINDOW => spent,
            _ => {
                self.window = Some((now, Duration::ZERO));
                Duration::ZERO
            }
        };
        if spent >= MOST_OF_A_WINDOW {
            return None;
        }
        let executed = self.ask(pid, now);
        if let Some((_, spent)) = &mut self.window {
            *spent += now.elapsed();
        }
        executed?.command_of(program)
    }

    fn ask(&mut self, pid: u32, now: Instant) -> Option<Executed> {
        let hangs = |reader: &mut Reader| reader.is_open() && now > reader.asked + HANGS;
        if self.hang < MOST_THAT_HANG && self.reader.as_mut().is_some_and(hangs) {
            self.reader = None;
            self.hang += 1;
        }
        if self.reader.is_none() {
            self.reader = Reader::start(now);
        }
        let reader = self.reader.as_mut()?;
        // One that hangs is not waited for again.
        if reader.is_open() {
            return None;
        }
        reader.asks.send(pid).ok()?;
        reader.open += 1;
        reader.asked = now;
        let left = (now + PATIENCE).saturating_duration_since(Instant::now());
        let (_, executed) = reader.answers.recv_timeout(left).ok()?;
        reader.open -= 1;
        executed
    }
}

impl Reader {
    /// Whether a question has no answer yet. Answers that came too late are nobody's.
    fn is_open(&mut self) -> bool {
        while self.open > 0 && self.answers.try_recv().is_ok() {
            self.open -= 1;
        }
        self.open > 0
    }

    fn start(now: Instant) -> Option<Reader> {
        let (asks, asked) = channel();
        let (answer, answers) = channel();
        let read = move || {
            while let Ok(pid) = asked.recv() {
                if answer.send((pid, executed_by(pid))).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("commands".into());
        thread.spawn(read).ok()?;
        Some(Reader {
            asks,
            answers,
            open: 0,
            asked: now,
        })
    }
}

impl Executed {
    /// As the rules look at it. Of a script the kernel executes another file, with arguments of its own: that one is known after the exec.
    fn command_of(&self, program: &Path) -> Option<String> {
        let name = self.file.rsplit(|b| *b == b'/').next()?;
        let is_program = program.file_name()?.as_encoded_bytes() == name;
        (is_program && !self.arguments.is_empty())
            .then(|| String::from_utf8_lossy(&self.arguments.join(&b' ')).into_owned())
    }
}

/// What a process executes that waits for it.
fn executed_by(pid: u32) -> Option<Executed> {
    let until = Instant::now() + PATIENCE;
    let [file, arguments] = loop {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
        if call.trim() != "running" {
            break exec_of(&call)?;
        }
        if Instant::now() > until {
            return None;
        }
        thread::sleep(PAUSE);
    };
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    Some(Executed {
        file: string_at(&memory, file, LONGEST)?,
        arguments: strings_at(&memory, arguments)?,
    })
}

/// Where an `execve` of this system call, as the kernel writes it, has its file and its arguments.
fn exec_of(call: &str) -> Option<[u64; 2]> {
    let mut words = call.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let mut address = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let addresses = [address()?, address()?];
    (number == libc::SYS_execve).then_some(addresses)
}

/// The strings that a list of addresses names, up to one that is 0.
fn strings_at(memory: &File, list: u64) -> Option<Vec<Vec<u8>>> {
    let (mut strings, mut left) = (Vec::new(), LONGEST);
    for n in 0..MOST as u64 {
        let mut address = [0; size_of::<u64>()];
        let at = list.checked_add(n * size_of::<u64>() as u64)?;
        memory.read_exact_at(&mut address, at).ok()?;
        match u64::from_ne_bytes(address) {
            0 => return Some(strings),
            address => {
                let string = string_at(memory, address, left)?;
                left = left.checked_sub(string.len() + 1)?;
                strings.push(string);
            }
        }
    }
    None
}

/// A string without its NUL; `None` if it is longer.
fn string_at(memory: &File, mut at: u64, most: usize) -> Option<Vec<u8>> {
    let mut string = Vec::new();
    let mut piece = [0; PIECE as usize];
    while string.len() <= most {
        let length = (PIECE - at % PIECE) as usize;
        let read = memory.read_at(piece.get_mut(..length)?, at).ok()?;
        let read = piece.get(..read).filter(|read| !read.is_empty())?;
        if let Some(end) = read.iter().position(|b| *b == 0) {
            string.extend(read.get(..end)?);
            return Some(string).filter(|string| string.len() <= most);
        }
        string.extend(read);
        at = at.checked_add(read.len() as u64)?;
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    fn own_memory() -> File {
        File::open("/proc/self/mem").unwrap()
    }

    #[test]
    fn only_an_exec_has_a_command_line() {
        let call =
            |number: i64| format!("{number} 0x7ffe10 0x55aa08 0x0 0x0 0x0 0x0 0x7ffd 0x7f1\n");
        let exec = exec_of(&call(libc::SYS_execve));
        assert_eq!(exec, Some([0x7f_fe10, 0x55_aa08]));
        assert_eq!(exec_of(&call(libc::SYS_execve + 1)), None);
        assert_eq!(exec_of("running\n"), None);
        assert_eq!(exec_of("-1 0x7ffd 0x7f1\n"), None);
    }

    #[test]
    fn arguments_are_read_whole_or_not_at_all() {
        let long = "x".repeat(1_000);
        let strings = ["node\0", "\0", "-e\0", &format!("{long}\0")].map(str::to_owned);
        let list = |strings: &[&String]| {
            let list = strings.iter().map(|string| string.as_ptr() as u64);
            list.chain([0]).collect::<Vec<u64>>()
        };
        let [node, nothing, e, long] = &strings;
        let read = |list: &[u64]| strings_at(&own_memory(), list.as_ptr() as u64);
        let expected = ["node", "-e", long.trim_end_matches('\0')];
        assert_eq!(
            read(&list(&[node, e, long])).unwrap(),
            expected.map(|s| s.as_bytes().to_vec())
        );
        assert_eq!(read(&list(&[node, long, long, long])), None, "too long");
        assert_eq!(
            read(&list(&vec![nothing; MOST - 1])).unwrap().len(),
            MOST - 1
        );
        assert_eq!(read(&list(&vec![nothing; MOST + 1])), None, "too many");
        let pieces = "y".repeat(3 * PIECE as usize) + "\0";
        let begin = pieces.as_ptr() as u64;
        let across = begin.next_multiple_of(PIECE) + 2 * PIECE - 10;
        let left = (begin + pieces.len() as u64 - 1 - across) as usize;
        let string = string_at(&own_memory(), across, 3 * PIECE as usize);
        assert_eq!(string.unwrap().len(), left, "in more than one piece");
        assert_eq!(read(&[node.as_ptr() as u64, 8, 0]), None, "no memory");
    }

    #[test]
    fn a_window_has_room_for_few_that_answer_late_and_one_that_hangs_is_replaced() {
        let mut commands = Commands::default();
        let me = std::process::id();
        // This process waits in no exec: the reader looks until its patience is over, or answers at once.
        let begun = Instant::now();
        // However slow this test is, the window is not over.
        commands.window = Some((begun + Duration::from_secs(60), MOST_OF_A_WINDOW));
        assert_eq!(commands.of(me, Path::new("/bin/node")), None);
        assert!(commands.reader.is_none(), "nobody was asked");
        let (asks, asked) = channel();
        let (answer, answers) = channel();
        commands.reader = Some(Reader {
            asks,
            answers,
            open: 1,
            asked: begun,
        });
        let later = begun + HANGS / 2;
        assert_eq!(commands.ask(me, later), None);
        assert_eq!(commands.hang, 0);
        assert!(
            asked.try_recv().is_err(),
            "it is not asked while it is busy"
        );
        commands.ask(me, begun + 2 * HANGS);
        assert_eq!(commands.hang, 1);
        assert!(answer.send((me, None)).is_err(), "nobody listens to it");
    }

    #[test]
    fn the_command_of_a_script_is_not_known_before_its_exec() {
        let executed = Executed {
            file: b"/usr/local/bin/node".into(),
            arguments: vec![b"node".into(), b"a b".into()],
        };
        let command = |program: &str| executed.command_of(Path::new(program));
        assert_eq!(command("/opt/node-20/bin/node").unwrap(), "node a b");
        assert_eq!(command("/opt/node-20/bin/node20"), None);
    }

    #[test]
    fn who_executes_nothing_has_no_command_line() {
        let mut commands = Commands::default();
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        assert_eq!(commands.of(child.id(), Path::new("/bin/sleep")), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(commands.of(child.id(), Path::new("/bin/sleep")), None);
        assert_eq!(
            commands.reader.unwrap().open,
            0,
            "it has answered both times"
        );
    }

    #[test]
    #[ignore = "needs root"]
    fn the_command_of_who_waits_to_execute_is_known() {
        use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("node");
        fs::copy("/bin/true", &program).unwrap();
        let path = std::ffi::CString::new(program.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a path with its NUL; the descriptor is new.
        let group = unsafe {
            let group = libc::fanotify_init(libc::FAN_CLASS_CONTENT, libc::O_RDONLY as u32);
            let mark = (libc::FAN_MARK_ADD, libc::FAN_OPEN_EXEC_PERM);
            let marked = libc::fanotify_mark(group, mark.0, mark.1, libc::AT_FDCWD, path.as_ptr());
            assert_eq!(marked, 0, "{}", std::io::Error::last_os_error());
            OwnedFd::from_raw_fd(group)
        };
        let long = "x".repeat(1_900);
        let arguments = ["-e", "0", long.as_str()].map(str::to_owned);
        let started = (program.clone(), arguments.clone());
        let waits = thread::spawn(move || {
            let (program, arguments) = started;
            let mut command = std::process::Command::new(program);
            command.args(arguments).status().unwrap()
        });
        let mut event = [0u8; 24];
        // SAFETY: room for one event without anything after it.
        let read = unsafe { libc::read(group.as_raw_fd(), event.as_mut_ptr().cast(), event.len()) };
        assert_eq!(read, 24);
        let word = |at: usize| i32::from_ne_bytes(event[at..at + 4].try_into().unwrap());
        let known = Commands::default().of(word(20) as u32, &program);
        let answer = [word(16), libc::FAN_ALLOW as i32];
        // SAFETY: eight bytes.
        let written = unsafe { libc::write(group.as_raw_fd(), answer.as_ptr().cast(), 8) };
        assert_eq!(written, 8);
        assert!(waits.join().unwrap().success());
        let expected = format!("{} {}", program.display(), arguments.join(" "));
        assert_eq!(known, Some(expected));
    }
}
