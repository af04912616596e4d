//! Whether a program is started with `--use-largepages`: node then moves its code to large pages (`MoveTextRegionToLargePages` of
//! src/large_pages/node_large_page.cc, up to Node.js 25). It copies the code with all breakpoints to memory that is no file's, where nobody knows of them, and the
//! first that is hit ends the program.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::FileExt as _,
};

/// Arguments, or variables, that are looked at.
const MOST: u64 = 4096;
/// Bytes of one: an argument that matters is shorter, and of a long list of options the beginning.
const LONGEST: u64 = 4096;
/// How often it is looked whether a program has its arguments, each ms. One that has ended has none.
const MOST_LOOKS: u32 = 10;
/// Bytes that are read at once.
const BLOCK: u64 = 4096;

/// Whether a process was started so, or is about to be: also if only one of its arguments says so that is its script's, and where the kernel's setting for large
/// pages makes it have no effect.
pub(super) fn are_asked_for(pid: u32) -> bool {
    match of_exec(pid) {
        // Behind an exec the kernel tells of it still, but not with what.
        Some((arguments, variables)) if !arguments.is_empty() => {
            arguments.iter().any(|text| is_option(text)) || variables.iter().any(|v| is_variable(v))
        }
        _ => {
            let strings = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let mut arguments = strings("cmdline");
            // In the midst of its exec a program has its new memory and no arguments in it yet.
            for _ in 0..MOST_LOOKS {
                if !arguments.is_empty() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
                arguments = strings("cmdline");
            }
            arguments.split(|b| *b == 0).any(is_option)
                || strings("environ").split(|b| *b == 0).any(is_variable)
        }
    }
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

/// `NODE_OPTIONS` with that in it.
fn is_variable(variable: &[u8]) -> bool {
    variable
        .strip_prefix(b"NODE_OPTIONS=")
        .is_some_and(|options| {
            let quotes = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'"';
            options.split(quotes).any(is_option)
        })
}

type Texts = Vec<Vec<u8>>;

/// Arguments and environment of an exec under way; `None` if there is none.
fn of_exec(pid: u32) -> Option<(Texts, Texts)> {
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
    let mut memory = Memory {
        file: File::open(format!("/proc/{pid}/mem")).ok()?,
        blocks: HashMap::new(),
    };
    Some((memory.strings(arguments), memory.strings(variables)))
}

/// Memory of a process, of which neighbouring texts are read.
struct Memory {
    file: File,
    blocks: HashMap<u64, Vec<u8>>,
}

impl Memory {
    /// The texts to which an array points that ends with 0; those that can be read.
    fn strings(&mut self, array: u64) -> Texts {
        let mut strings = Vec::new();
        for index in 0..MOST {
            let at = array.wrapping_add(8 * index);
            let mut word = [0; 8];
            for (offset, byte) in (0..).zip(&mut word) {
                match self.byte(at.wrapping_add(offset)) {
                    Some(read) => *byte = read,
                    None => return strings,
                }
            }
            match u64::from_le_bytes(word) {
                0 => break,
                text => strings.push(self.string(text)),
            }
        }
        strings
    }

    fn string(&mut self, at: u64) -> Vec<u8> {
        let bytes = (0..LONGEST).map_while(|offset| self.byte(at.wrapping_add(offset)));
        bytes.take_while(|byte| *byte != 0).collect()
    }

    fn byte(&mut self, at: u64) -> Option<u8> {
        let (block, file) = (at / BLOCK, &self.file);
        let read = self.blocks.entry(block).or_insert_with(|| {
            let mut bytes = vec![0; BLOCK as usize];
            let length = file.read_at(&mut bytes, block * BLOCK).unwrap_or_default();
            bytes.truncate(length);
            bytes
        });
        read.get((at % BLOCK) as usize).copied()
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
        let mut memory = Memory {
            file: File::open("/proc/self/mem").unwrap(),
            blocks: HashMap::new(),
        };
        let read = memory.strings(array.as_ptr() as u64);
        let lengths: Vec<usize> = read.iter().map(Vec::len).collect();
        assert_eq!(lengths, [4, 19, LONGEST as usize]);
        assert_eq!(read[1], texts[1].to_bytes());
        assert!(memory.strings(8).is_empty());
    }
}
