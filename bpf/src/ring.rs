//! Reading a ring buffer, by its descriptor alone: it may be one that another process has made.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, RawFd},
    ptr::{self, NonNull},
    time::Duration,
};

use libbpf_rs::libbpf_sys;

/// A ring buffer, mapped.
pub struct Reader<F: FnMut(&[u8])> {
    buffer: NonNull<libbpf_sys::ring_buffer>,
    /// What each record is handed to. The buffer has its address.
    each: *mut F,
}

// SAFETY: the buffer is of nobody else, and libbpf keeps nothing of a thread in it.
unsafe impl<F: FnMut(&[u8]) + Send> Send for Reader<F> {}

impl<F: FnMut(&[u8])> Reader<F> {
    /// Maps the ring buffer of this map; records will be handed to `each`. For a map of one's own or one that was handed over no
    /// privilege is needed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(map: BorrowedFd<'_>, each: F) -> io::Result<Reader<F>> {
        let each = Box::into_raw(Box::new(each));
        // SAFETY: a live descriptor, a function of the type that is asked for, and what it gets as its context.
        let buffer = unsafe {
            libbpf_sys::ring_buffer__new(
                map.as_raw_fd(),
                Some(sample::<F>),
                each.cast(),
                ptr::null(),
            )
        };
        let Some(buffer) = NonNull::new(buffer) else {
            let error = io::Error::last_os_error();
            // SAFETY: made above; nobody has it.
            drop(unsafe { Box::from_raw(each) });
            return Err(error);
        };
        Ok(Reader { buffer, each })
    }

    /// Descriptor to poll: readable when much waits, or when a process has executed something, or its loop has started or ended.
    pub fn descriptor(&self) -> RawFd {
        // SAFETY: lives as long as we do.
        unsafe { libbpf_sys::ring_buffer__epoll_fd(self.buffer.as_ptr()) }
    }

    /// Hands over all that waits now.
    ///
    /// # Errors
    /// libbpf's.
    pub fn consume(&self) -> io::Result<()> {
        // SAFETY: lives as long as we do, and is of one thread: `Reader` is not `Sync`.
        checked(unsafe { libbpf_sys::ring_buffer__consume(self.buffer.as_ptr()) })
    }

    /// Waits up to `timeout` for a wake-up, then hands over what waits.
    ///
    /// # Errors
    /// libbpf's; an interrupting signal is none.
    pub fn poll(&self, timeout: Duration) -> io::Result<()> {
        let limit = timeout.as_millis().min(i32::MAX as u128) as i32;
        // SAFETY: as above.
        match checked(unsafe { libbpf_sys::ring_buffer__poll(self.buffer.as_ptr(), limit) }) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => self.consume(),
        }
    }
}

fn checked(outcome: i32) -> io::Result<()> {
    match outcome {
        0.. => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

impl<F: FnMut(&[u8])> Drop for Reader<F> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and used no more; the buffer first, which has the other's address.
        unsafe {
            libbpf_sys::ring_buffer__free(self.buffer.as_ptr());
            drop(Box::from_raw(self.each));
        }
    }
}

/// Called by libbpf for each record.
unsafe extern "C" fn sample<F: FnMut(&[u8])>(
    context: *mut std::ffi::c_void,
    data: *mut std::ffi::c_void,
    size: u64,
) -> i32 {
    // SAFETY: the context is what `new` gave, which nobody else uses while records are read; the data are a record of that size.
    let (each, record) = unsafe {
        (
            &mut *context.cast::<F>(),
            std::slice::from_raw_parts(data.cast::<u8>(), size as usize),
        )
    };
    each(record);
    0
}
