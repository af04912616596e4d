//! Files that programs can execute, told from those that only the kernel opens: an overlay opens the file in its layer, too, in a mount of its own that
//! nobody has. Such a file may be known by itself, has another device, and is no second program.
//!
//! Nothing is looked up by path: what lies there may be a file system of the user's, which need not answer.

use std::{
    collections::HashSet,
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    os::fd::AsFd,
};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, statx};

/// `STATX_MNT_ID_UNIQUE` of linux/stat.h, since Linux 6.8: a number that no other mount gets later.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// Bytes of a list of mounts that are read: some thousand of them.
const LONGEST_LIST: u64 = 1 << 20;
/// Mounts that are remembered.
const MOST: usize = 4096;

/// Mounts that programs have, as far as they were met.
#[derive(Default)]
pub(super) struct Mounts {
    known: HashSet<u64>,
}

impl Mounts {
    /// Whether the mount of a file is one of those that a process has, or that we have; also if that cannot be told.
    pub(super) fn have(&mut self, file: &File, pid: u32) -> bool {
        let unique = mount_of(file, UNIQUE);
        if unique.is_some_and(|unique| self.known.contains(&unique)) {
            return true;
        }
        let Some(mount) = mount_of(file, StatxFlags::MNT_ID) else {
            return true;
        };
        let has = is_root_of(pid, mount) || lists(&pid.to_string(), mount) || lists("self", mount);
        if let Some(unique) = unique.filter(|_| has) {
            if self.known.len() >= MOST {
                self.known.clear();
            }
            self.known.insert(unique);
        }
        has
    }
}

fn mount_of(file: impl AsFd, number: StatxFlags) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let about = statx(file, c"", flags, number).ok()?;
    let is_told = about.stx_mask & number.bits() != 0;
    is_told.then_some(about.stx_mnt_id)
}

/// Whether the root folder of a process lies in this mount: in one that was changed into a folder (chroot) no list has it.
fn is_root_of(pid: u32, mount: u64) -> bool {
    let options = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(format!("/proc/{pid}/root"), options, Mode::empty());
    root.is_ok_and(|root| mount_of(&root, StatxFlags::MNT_ID) == Some(mount))
}

/// Whether a process has this mount; also if its list cannot be read, or is too long.
fn lists(process: &str, mount: u64) -> bool {
    let Ok(list) = File::open(format!("/proc/{process}/mountinfo")) else {
        return true;
    };
    let mut list = BufReader::new(list.take(LONGEST_LIST));
    let mut line = Vec::new();
    loop {
        line.clear();
        match list.read_until(b'\n', &mut line) {
            Ok(0) => return list.get_ref().limit() == 0,
            Err(_) => return true,
            Ok(_) => {}
        }
        let number = line.split(|byte| *byte == b' ').next();
        let number = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
        if number == Some(mount) {
            return true;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use rustix::{
        fs::{CWD, openat},
        mount::{OpenTreeFlags, open_tree},
    };

    use super::*;

    #[test]
    #[ignore = "needs root"]
    fn a_file_in_a_mount_that_nobody_has_is_told_from_others() {
        let mut mounts = Mounts::default();
        let (me, path) = (std::process::id(), std::env::current_exe().unwrap());
        let file = File::open(&path).unwrap();
        assert!(mounts.have(&file, me) && mounts.have(&file, me));
        // As an overlay has its layers.
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let own = open_tree(CWD, path.parent().unwrap(), flags).unwrap();
        let (name, mode) = (path.file_name().unwrap(), Mode::empty());
        let other = File::from(openat(&own, name, OFlags::RDONLY, mode).unwrap());
        assert!(!mounts.have(&other, me));
        assert!(mounts.have(&file, me));
    }

    /// Changed into a folder, a process has an empty list; a service's own may have other numbers.
    #[test]
    #[ignore = "needs root"]
    fn a_file_below_the_root_of_a_process_is_one_that_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "").unwrap();
        let mount = mount_of(File::open(&path).unwrap(), StatxFlags::MNT_ID).unwrap();
        let script = "import os, sys; os.chroot(sys.argv[1]); print(flush=True); sys.stdin.read()";
        let started = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(folder.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            println!("skipped: there is no python3");
            return;
        };
        let mut changed = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut changed)
            .unwrap();
        let found = (
            is_root_of(child.id(), mount),
            is_root_of(child.id(), mount + 1),
        );
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(found, (true, false));
    }
}
