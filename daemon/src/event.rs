//! Descriptors by which one thread wakes another that polls.

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

/// One that nobody has signalled yet.
///
/// # Errors
/// Where there are too many descriptors.
pub(crate) fn new() -> io::Result<OwnedFd> {
    // SAFETY: a plain system call; its result is checked.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: just made, and nobody else's.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// Makes it readable.
pub(crate) fn signal(event: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes, and an open descriptor. It can only fail where the counter is full: then it is readable anyway.
    unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Makes it unreadable, until it is signalled again.
pub(crate) fn clear(event: &OwnedFd) {
    let mut count = [0u8; 8];
    // SAFETY: eight bytes of ours; a descriptor that is not set says so at once.
    unsafe { libc::read(event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}
