//! The code that the kernel puts into every process.

use std::sync::LazyLock;

use object::{Object, ObjectSymbol, read::elf::ElfFile64};

/// How it is called where paths of files are shown.
pub const NAME: &[u8] = b"[vdso]";

/// Larger than any; the real size is in its own headers.
const LARGEST: usize = 64 << 10;

/// Its functions. It is the same in all processes of 64 bits.
#[derive(Default)]
pub struct Vdso {
    size: Option<u64>,
    /// Start, end, name; by start.
    functions: Vec<(u64, u64, String)>,
}

impl Vdso {
    /// Read from this process's own memory, once.
    pub fn of_this_process() -> &'static Vdso {
        static VDSO: LazyLock<Vdso> = LazyLock::new(Vdso::read);
        &VDSO
    }

    fn read() -> Vdso {
        // SAFETY: no preconditions.
        let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        let mapped = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let size = mapped.lines().find_map(|line| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let start = u64::from_str_radix(start, 16).ok()?;
            (start == base).then_some(u64::from_str_radix(end, 16).ok()? - start)
        });
        let Some(size) = size.filter(|&s| base != 0 && s as usize <= LARGEST) else {
            return Vdso::default();
        };
        // SAFETY: the kernel mapped this range for the life of the process, and it is never written.
        let image = unsafe { std::slice::from_raw_parts(base as *const u8, size as usize) };
        Vdso {
            size: Some(size),
            functions: functions(image),
        }
    }

    /// Bytes of it in memory.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The function at an offset from its beginning.
    pub fn name(&self, offset: u64) -> Option<&str> {
        let behind = self.functions.partition_point(|f| f.0 <= offset);
        let (_, end, name) = self.functions.get(behind.checked_sub(1)?)?;
        (offset < *end).then_some(name)
    }
}

fn functions(image: &[u8]) -> Vec<(u64, u64, String)> {
    let Ok(file) = ElfFile64::<object::Endianness>::parse(image) else {
        return Vec::new();
    };
    let symbols = file.dynamic_symbols().filter_map(|s| {
        let name = s.name().ok().filter(|n| !n.is_empty())?;
        let defined = s.is_definition() && s.size() > 0;
        defined.then(|| {
            (
                s.address(),
                s.address().saturating_add(s.size()),
                name.to_owned(),
            )
        })
    });
    let mut functions: Vec<_> = symbols.collect();
    // `clock_gettime` is `__vdso_clock_gettime`, too: the longer name tells where it lies.
    functions.sort_by(|a, b| (a.0, b.2.len()).cmp(&(b.0, a.2.len())));
    functions.dedup_by_key(|f| f.0);
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_found_in_the_vdso() {
        let vdso = Vdso::of_this_process();
        let Some(size) = vdso.size() else {
            println!("skipped: this process has no vdso");
            return;
        };
        let names: Vec<&str> = (0..size).filter_map(|at| vdso.name(at)).collect();
        assert!(names.contains(&"__vdso_clock_gettime"), "{names:?}");
        assert_eq!(vdso.name(0), None);
    }
}
