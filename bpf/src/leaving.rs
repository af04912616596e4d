//! Links that nobody waits for any more.
//!
//! Who closes the last descriptor of a link waits until the kernel has taken its probes away: 40 ms, or as long as a program that never rests (see
//! [`closing`](crate::closing)). But the last reference to a link that was pinned in a BPF file system is dropped by a thread of the kernel
//! (`bpf_link_put`, `bpf_link_put_deferred` of kernel/bpf/syscall.c), and such a file system need be mounted nowhere: it goes with its descriptor.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use libbpf_rs::libbpf_sys;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Closes links, without waiting for the end of their probes, which comes at once.
///
/// # Errors
/// Those that could not be left, with the kernel's reason: `EPERM` without CAP_SYS_ADMIN.
pub(crate) fn leave(links: Vec<OwnedFd>) -> Result<(), (Vec<OwnedFd>, io::Error)> {
    let (_folder, mut refused) = pin_all(links)?;
    match refused.pop() {
        None => Ok(()),
        Some((link, why)) => {
            let others = refused.into_iter().map(|(link, _why)| link);
            Err((others.chain([link]).collect(), why))
        }
    }
}

/// Closes links that stay in the folder that this returns, and go when it does. With it come those that do not, and why.
///
/// # Errors
/// All of them, if there can be no such folder: `EPERM` without CAP_SYS_ADMIN.
pub(crate) fn pin_all(links: Vec<OwnedFd>) -> Result<Pinned, (Vec<OwnedFd>, io::Error)> {
    let folder = match private_folder() {
        Ok(folder) => folder,
        Err(why) => return Err((links, why)),
    };
    let mut refused = Vec::new();
    for (index, link) in links.into_iter().enumerate() {
        if let Err(why) = pin(&folder, index, &link) {
            refused.push((link, why));
        }
    }
    Ok((folder, refused))
}

/// A folder, and links that are not in it.
type Pinned = (OwnedFd, Vec<(OwnedFd, io::Error)>);

/// A BPF file system of one's own.
fn private_folder() -> io::Result<OwnedFd> {
    let context = fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(fsmount(context.as_fd(), flags, MountAttrFlags::empty())?)
}

fn pin(folder: &OwnedFd, index: usize, link: &OwnedFd) -> io::Result<()> {
    let name = CString::new(format!("link-{index}"))?;
    let options = libbpf_sys::bpf_obj_pin_opts {
        sz: size_of::<libbpf_sys::bpf_obj_pin_opts>() as _,
        file_flags: libbpf_sys::BPF_F_PATH_FD,
        path_fd: folder.as_raw_fd(),
    };
    // SAFETY: a name and options that live until the call returns.
    let error = unsafe {
        libbpf_sys::bpf_obj_pin_opts(link.as_raw_fd(), name.as_ptr(), &raw const options)
    };
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
