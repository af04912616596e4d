//! Keeping uprobe registration warm.
//!
//! The first registration after a pause waits 8 to 16 ms for an RCU grace period (the kernel's
//! `dup_mmap_sem` is a per-CPU semaphore that a writer must first switch over); for some milliseconds
//! afterwards registrations take 0.05 ms. So a registration that nobody needs, made while the BPF programs
//! load, takes that wait off the path of the one that counts.
//!
//! Not by perf events: on Linux 6.18 opening several of them in a row took up to 57 s.

use std::{
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    thread::JoinHandle,
};

use libbpf_rs::libbpf_sys;

use crate::{AttachPoints, Link, attach, selfprobe::file_offset};

/// A probe on an address of this program that nothing executes, being registered by a thread.
pub struct Warmth(JoinHandle<Option<Link>>);

impl Warmth {
    /// Starts. `address`: of an instruction of this program that is not executed meanwhile.
    pub fn start(address: u64) -> Warmth {
        Warmth(std::thread::spawn(move || {
            let program = empty_program().ok()?;
            let (path, offset) =
                file_offset(&fs::read_to_string("/proc/self/maps").ok()?, address)?;
            let points = AttachPoints::entries(std::iter::once((offset, 0)));
            attach(program.as_raw_fd(), -1, &path, std::process::id(), &points).ok()
        }))
    }

    /// Waits for the registration. It comes back to be dropped where nobody waits: that takes tens of
    /// milliseconds for the last copy. `None` where it could not be made; attaching then just takes its time.
    pub fn stop(self) -> Option<Link> {
        self.0.join().ok().flatten()
    }
}

/// `return 0` as a program for [`attach`](crate::attach).
///
/// # Errors
/// The kernel's: `EPERM` without CAP_BPF and CAP_PERFMON.
pub fn empty_program() -> io::Result<OwnedFd> {
    // mov64 r0, 0; exit
    let instructions = [
        libbpf_sys::bpf_insn {
            code: 0xb7,
            ..Default::default()
        },
        libbpf_sys::bpf_insn {
            code: 0x95,
            ..Default::default()
        },
    ];
    let options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
        expected_attach_type: libbpf_sys::BPF_TRACE_UPROBE_MULTI,
        ..Default::default()
    };
    // SAFETY: two live instructions, live options, NUL-terminated strings.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_KPROBE,
            c"np_warm".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as _,
            (&raw const options).cast_mut(),
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
