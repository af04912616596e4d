//! Names of the kernel's functions.
//!
//! To write all symbols of /proc/kallsyms takes the kernel 20 to 80 ms. What stays until the kernel is another one is kept
//! in the cache folder: names by their distance from the beginning of the kernel's code, or of a module's. Where
//! these begin differs from boot to boot and is a secret: it is asked anew each time, and not kept.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
};

use nodeprof_bpf::Code;

use super::kernel_index::{Index, SYMBOLS, symbol};

/// Modules: name, size, users, who, state, address.
const MODULES: &str = "/proc/modules";
/// Notes of the running kernel, its build-id among them.
const NOTES: &str = "/sys/kernel/notes";
/// The symbol at the beginning of the kernel's code.
const CODE: &[u8] = b"_stext";

/// Names the kernel's functions.
#[derive(Default)]
pub struct Kernel {
    folder: Option<PathBuf>,
    /// Of the programs that this trace has loaded.
    own: Vec<Code>,
    /// Where each part lies now; by address. `None`: not asked yet.
    parts: Option<Vec<Part>>,
    index: Index,
    /// The index was made in this trace.
    fresh: bool,
    hidden: bool,
}

/// The kernel's own code, or a module's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins.
    pub start: u64,
    /// How many bytes it has, of code and data. Behind a module may lie code of nobody: of programs that the kernel compiled, and trampolines.
    pub size: u64,
    /// Its name; empty for the kernel's own.
    pub name: String,
}

impl Kernel {
    /// Keeps names in this folder.
    pub fn keep_in(&mut self, folder: Option<&Path>) {
        self.folder = folder.map(Path::to_owned);
    }

    /// Says where nodeprof's own programs lie.
    pub fn know(&mut self, own: Vec<Code>) {
        self.own = own;
    }

    /// Whether names were asked for and the kernel hides its addresses.
    pub fn hidden(&self) -> bool {
        self.hidden
    }

    /// Reads what is kept of the names, once; the first look-up does it else. Some 3 ms.
    pub fn prepare(&mut self) {
        if self.parts.is_none() {
            let found = parts();
            self.hidden = found.is_none();
            self.parts = Some(found.unwrap_or_default());
            let kept = self.file().and_then(|file| Index::read(&file));
            self.index = kept.unwrap_or_default();
        }
    }

    /// The function at an address; `None` if there is none, or the kernel hides its addresses.
    pub fn name(&mut self, address: u64) -> Option<String> {
        if let Some(code) = self.own.iter().find(|c| c.range.contains(&address)) {
            return Some(format!("{} (nodeprof)", code.program));
        }
        if self.parts.is_none() {
            let found = parts();
            self.hidden = found.is_none();
            self.parts = Some(found.unwrap_or_default());
            self.index = self
                .file()
                .and_then(|f| Index::read(&f))
                .unwrap_or_default();
        }
        let parts = self.parts.as_ref()?;
        let part = part_at(parts, address)?;
        let (name, offset) = (part.name.clone(), address - part.start);
        if !self.index.has(&name) && !self.fresh {
            // The first trace on this kernel, or a module that was not loaded then.
            self.index = Index::new(&fs::read(SYMBOLS).unwrap_or_default(), parts);
            self.fresh = true;
            if let Some(file) = self.file() {
                // Where it cannot be kept it is made again.
                let _ = self.index.write(&file);
            }
        }
        self.index.name(&name, offset).map(str::to_owned)
    }

    fn file(&self) -> Option<PathBuf> {
        let id = fs::read(NOTES)
            .or_else(|_| fs::read("/proc/version"))
            .ok()?;
        let name = format!("kernel-{:08x}.names", crc32fast::hash(&id));
        Some(self.folder.as_ref()?.join(name))
    }
}

/// The kernel's code and its modules', by address; `None` if the kernel hides addresses.
fn parts() -> Option<Vec<Part>> {
    let mut symbols = BufReader::new(fs::File::open(SYMBOLS).ok()?);
    let mut line = Vec::new();
    // Symbols of per-CPU data come first on some kernels: some hundred.
    let start = loop {
        line.clear();
        if symbols.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let symbol = symbol(&line)?;
        if symbol.name == CODE {
            break symbol.address;
        }
    };
    if start == 0 {
        return None;
    }
    let name = String::new();
    // Where the kernel's own code ends the symbols tell.
    let size = u64::MAX;
    let mut parts = vec![Part { start, size, name }];
    let modules = fs::read_to_string(MODULES).unwrap_or_default();
    parts.extend(modules.lines().filter_map(module));
    parts.sort_by_key(|p| p.start);
    Some(parts)
}

/// The part that an address lies in, of parts by address.
fn part_at(parts: &[Part], address: u64) -> Option<&Part> {
    let behind = parts.partition_point(|p| p.start <= address);
    let part = parts.get(behind.checked_sub(1)?)?;
    (address - part.start < part.size).then_some(part)
}

/// A line of /proc/modules.
fn module(line: &str) -> Option<Part> {
    let mut words = line.split_whitespace();
    let name = words.next()?.to_owned();
    let size = words.next()?.parse().ok()?;
    let start = words.nth(3)?.strip_prefix("0x")?;
    let start = u64::from_str_radix(start, 16).ok().filter(|&s| s != 0)?;
    Some(Part { start, size, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address of a function, if the kernel shows it.
    fn address(of: &str) -> Option<u64> {
        let symbols = fs::read_to_string(SYMBOLS).unwrap_or_default();
        let found = symbols.lines().find_map(|line| {
            let symbol = symbol(line.as_bytes())?;
            (symbol.name == of.as_bytes()).then_some(symbol.address)
        });
        found.filter(|&a| a != 0)
    }

    #[test]
    fn a_function_is_found_by_an_address_within_it_also_by_what_was_kept() {
        let Some(address) = address("vfs_read") else {
            println!("skipped: /proc/kallsyms shows no addresses");
            return;
        };
        let folder = tempfile::tempdir().expect("a folder");
        for kept in [false, true] {
            let mut kernel = Kernel::default();
            kernel.keep_in(Some(folder.path()));
            assert_eq!(kernel.name(address).as_deref(), Some("vfs_read"));
            assert_eq!(kernel.name(address + 4).as_deref(), Some("vfs_read"));
            assert_ne!(kernel.name(address - 1).as_deref(), Some("vfs_read"));
            assert_eq!(kernel.name(u64::MAX), None);
            assert_eq!(kernel.fresh, !kept);
            assert!(!kernel.hidden());
        }
    }

    #[test]
    fn code_of_our_own_programs_is_told_apart() {
        let mut kernel = Kernel::default();
        kernel.know(vec![Code {
            range: 0xffff_ffff_c000_0000..0xffff_ffff_c000_0100,
            program: "on_entry",
        }]);
        let name = kernel.name(0xffff_ffff_c000_0010);
        assert_eq!(name.as_deref(), Some("on_entry (nodeprof)"));
    }

    #[test]
    fn modules_are_read_with_their_places() {
        let line = "virtio_net 86016 0 - Live 0xffffffffc0123000";
        let part = module(line).expect("a module");
        assert_eq!(
            (part.start, part.size, part.name.as_str()),
            (0xffff_ffff_c012_3000, 86_016, "virtio_net")
        );
        let end = part.start + part.size;
        let parts = [part];
        assert_eq!(part_at(&parts, end - 1), parts.first());
        assert_eq!(part_at(&parts, end), None, "behind it");
        assert_eq!(part_at(&parts, parts[0].start - 1), None);
        assert_eq!(module("virtio_net 86016 0 - Live 0x0000000000000000"), None);
        assert_eq!(module(""), None);
    }
}
