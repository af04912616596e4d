//! Keeping uprobe registration warm.
//!
//! The first registration after a pause waits 8 to 16 ms for an RCU grace period (the kernel's
//! `dup_mmap_sem` is a per-CPU semaphore that a writer must first switch over); for some milliseconds
//! afterwards registrations take 0.05 ms. So a registration that nobody needs, made while the BPF programs
//! load, takes that wait off the path of the one that counts. It is made again and again until then: loading takes longer
//! than the kernel stays ready (made once, registering all probes of node took 13 ms after it, with repetitions 2 ms).
//!
//! Not by perf events: on Linux 6.18 opening several of them in a row took up to 57 s.

use std::{
    fs,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::mpsc::{self, RecvTimeoutError},
    thread::JoinHandle,
    time::Duration,
};

use libbpf_rs::libbpf_sys;

use crate::{AttachPoints, Link, attach, selfprobe::file_offset};

/// The kernel stays ready for one grace period after a registration, which takes some ticks of its clock: at least 3 ms.
const REPEAT: Duration = Duration::from_millis(2);
/// Each has to be removed again: what loads longer than a tenth of a second waits at the end.
const MOST: usize = 32;

/// A probe on an address of this program that nothing executes, being registered by a thread until it is stopped.
pub struct Warmth {
    thread: JoinHandle<Option<Link>>,
    stop: mpsc::Sender<()>,
}

impl Warmth {
    /// Starts. `address`: of an instruction of this program that is not executed meanwhile.
    pub fn start(address: u64) -> Warmth {
        let (stop, stopped) = mpsc::channel();
        let register = move || {
            let program = empty_program()?;
            let (path, offset) =
                file_offset(&fs::read_to_string("/proc/self/maps").ok()?, address)?;
            let points = AttachPoints::entries(std::iter::once((offset, 0)));
            let mut registrations = Link::default();
            for _ in 0..MOST {
                let Ok(link) = attach(program.as_raw_fd(), -1, &path, std::process::id(), &points)
                else {
                    break;
                };
                registrations.add(link);
                if stopped.recv_timeout(REPEAT) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            Some(registrations)
        };
        Warmth {
            thread: std::thread::spawn(register),
            stop,
        }
    }

    /// Waits for a registration under way. All of them come back to be dropped where nobody waits: that takes tens of
    /// milliseconds for the last copy. `None` where none could be made; attaching then just takes its time.
    pub fn stop(self) -> Option<Link> {
        // If it has ended by itself, nobody hears it.
        let _ = self.stop.send(());
        self.thread.join().ok().flatten()
    }
}

/// `return 0` as a program for uprobe_multi links.
fn empty_program() -> Option<OwnedFd> {
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
    // SAFETY: a new descriptor that nobody else owns.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
