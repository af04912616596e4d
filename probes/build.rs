//! A fingerprint of all that decides a plan: a plan kept by another version of this crate is not used.

use std::fs;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=catalogue");
    let mut files = Vec::new();
    for folder in ["src", "catalogue"] {
        list(Path::new(folder), &mut files)?;
    }
    files.sort();
    println!(
        "cargo::rustc-env=NODEPROF_PLAN_FINGERPRINT={:016x}",
        fingerprint(&files)?
    );
    Ok(())
}

/// All files below a folder.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// FNV-1a over names and contents: not for secrecy, only to differ.
fn fingerprint(files: &[PathBuf]) -> std::io::Result<u64> {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for file in files {
        let name = file.to_string_lossy().into_owned().into_bytes();
        for byte in name.into_iter().chain(fs::read(file)?) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(hash)
}
