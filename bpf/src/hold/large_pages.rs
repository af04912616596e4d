//! Whether a program is started with `--use-largepages`: node then moves its code to large pages (`MoveTextRegionToLargePages` of
//! src/large_pages/node_large_page.cc, up to Node.js 25). It copies the code with all breakpoints to memory that is no file's, where nobody knows of them, and the
//! first that is hit ends the program.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Read as _,
    os::unix::fs::FileExt as _,
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

/// Whether a process was started so, or is about to be: also if only one of its arguments says so that is its script's, and where the kernel's setting for large
/// pages makes it have no effect.
pub(super) fn are_asked_for(pid: u32) -> bool {
    of_exec(pid).unwrap_or_else(|| {
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
            std::thread::sleep(std::time::Duration::from_millis(1));
            arguments = text("cmdline");
        }
        arguments.split(|b| *b == 0).any(is_option)
            || text("environ").split(|b| *b == 0).any(is_variable)
    })
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

/// The same of an exec under way; `None` if there is none, or only its end.
fn of_exec(pid: u32) -> Option<bool> {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let mut words = call.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let mut operands = words
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or_default());
    let first = match number {
        libc::SYS_execve => 1,
        libc::SYS_execveat => 2,
        _ => return None,
    };
    let arguments = operands.nth(first)?;
    let variables = operands.next()?;
    let mut memory = Memory::of(File::open(format!("/proc/{pid}/mem")).ok()?);
    // Behind an exec the kernel tells of it still, but not with what.
    let mut some = false;
    let asked = memory.any(arguments, |_, _, head| {
        some = true;
        is_option(head)
    });
    some.then(|| {
        memory.blocks.clear();
        asked
            || memory.any(variables, |memory, at, head| {
                head.starts_with(NODE_OPTIONS) && is_variable(&memory.text(at, LONGEST))
            })
    })
}

/// Memory of a process, of which neighbouring texts are read.
struct Memory {
    file: File,
    blocks: HashMap<u64, Vec<u8>>,
}

impl Memory {
    fn of(file: File) -> Memory {
        Memory {
            file,
            blocks: HashMap::new(),
        }
    }

    /// Whether one of the texts is what is asked for, by where it lies and how it begins, to which an array points that ends with 0; of those that can be read.
    fn any(&mut self, array: u64, mut is: impl FnMut(&mut Memory, u64, &[u8]) -> bool) -> bool {
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
        let file = &self.file;
        self.blocks.entry(number).or_insert_with(|| {
            let mut bytes = vec![0; if is_room { BLOCK as usize } else { 0 }];
            let length = file.read_at(&mut bytes, number * BLOCK).unwrap_or_default();
            bytes.truncate(length);
            bytes
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use std::process::{Command, Stdio};

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
            let asked = are_asked_for(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            asked
        };
        let cat = || {
            let mut command = Command::new("sh");
            command.args(["-c", "read line"]).env_remove("NODE_OPTIONS");
            command
        };
        assert!(!asked(&mut cat()));
        assert!(asked(cat().arg("--use-largepages=on")));
        assert!(asked(cat().env("NODE_OPTIONS", "--use-largepages=silent")));
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
        let memory = || Memory::of(File::open("/proc/self/mem").unwrap());
        let mut read = Vec::new();
        memory().any(array.as_ptr() as u64, |memory, at, head| {
            read.push((head.to_owned(), memory.text(at, LONGEST).len()));
            false
        });
        let lengths: Vec<_> = read.iter().map(|(head, all)| (head.len(), *all)).collect();
        assert_eq!(lengths, [(4, 4), (19, 19), (HEAD, LONGEST)]);
        assert_eq!(read[1].0, texts[1].to_bytes());
        assert!(!memory().any(8, |_, _, _| true));
        // An array that points everywhere ends, too.
        let everywhere: Vec<u64> = (0..2 * MOST).map(|i| 4096 * i + 1).collect();
        let (mut memory, mut looked) = (memory(), 0);
        memory.any(everywhere.as_ptr() as u64, |_, _, _| {
            looked += 1;
            false
        });
        assert!((1..=MOST).contains(&looked), "{looked}");
        let kept: usize = memory.blocks.values().map(Vec::len).sum();
        assert!(kept <= MOST_BLOCKS * BLOCK as usize);
    }
}
