//! Runs a node program with nodeprof's probes on it and BPF programs that do nothing: what the kernel takes for the probes
//! themselves, to compare nodeprof's own cost with (`bench/run`). Needs root.
//!
//!     cargo run --release -p nodeprof-bpf --example bare_probes -- count|full NODE [ARGUMENT…]

use std::{
    error::Error,
    ffi::CString,
    io::{Read, Write},
    os::{fd::AsRawFd, unix::ffi::OsStringExt},
    path::PathBuf,
};

use nodeprof_bpf::{AttachPoints, attach, empty_program};
use nodeprof_probes::plan::{AttachPlan, Family};

const USAGE: &str = "type: bare_probes count|full NODE [ARGUMENT…]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let counts = match words.next().as_ref().and_then(|w| w.to_str()) {
        Some("count") => true,
        Some("full") => false,
        _ => return Err(USAGE.into()),
    };
    let words: Vec<_> = words.collect();
    let node = PathBuf::from(words.first().ok_or(USAGE)?).canonicalize()?;
    let command = words.into_iter().map(|w| CString::new(w.into_vec()));
    let command = command.collect::<Result<Vec<CString>, _>>()?;

    let cache = nodeprof_probes::default_cache_folder();
    let (mut plan, _) = AttachPlan::load_or_build(&node, cache.as_deref())?;
    if counts {
        plan.keep_counts_only();
    }
    let points = AttachPoints::new(&plan, 0, |family| match family {
        Family::Verify => false,
        Family::Serialization | Family::Stacks => !counts,
        _ => true,
    });
    let program = empty_program()?;
    let (mut waits, mut goes) = std::io::pipe()?;
    let mut pointers: Vec<_> = command.iter().map(|w| w.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: there is one thread; the child only reads and executes.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(goes);
        let _ = waits.read(&mut [0]);
        // SAFETY: strings and array end with NUL, and live through the call.
        unsafe {
            libc::execvp(pointers[0], pointers.as_ptr());
            libc::_exit(127);
        }
    }
    let (entry, exit) = (program.as_raw_fd(), program.as_raw_fd());
    let link = attach(entry, exit, &node, child.cast_unsigned(), &points);
    goes.write_all(b"!")?;
    let mut status = 0;
    // SAFETY: our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    link?;
    match libc::WIFEXITED(status) {
        true => std::process::exit(libc::WEXITSTATUS(status)),
        false => Err(format!("{} was killed", node.display()).into()),
    }
}
