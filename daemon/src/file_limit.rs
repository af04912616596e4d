//! A limit on the size of files (`ulimit -f`, `RLIMIT_FSIZE`).
//!
//! Who writes beyond it is killed by SIGXFSZ before the write can fail: nothing is said, and a temporary file stays. Who takes the signal gets
//! the error `EFBIG`, as on a disk that is full.

use std::{io, mem, ptr};

/// From now on a write beyond the limit is an error of that write. A program that is executed has the signal as this process had it:
/// an exec sets those back that have a handler. One that is ignored already stays so.
///
/// # Errors
/// What the system said.
pub fn make_it_an_error() -> io::Result<()> {
    // SAFETY: all zeros is a valid sigaction; the handler has the signature that is asked for, and does nothing.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGXFSZ, ptr::null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        if before.sa_sigaction != libc::SIG_DFL {
            return Ok(());
        }
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGXFSZ, &raw const action, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_signal(_: libc::c_int) {}
