//! What a run says of the machine that it was made on, so that two machines are not compared as if they were one.

use std::{collections::BTreeSet, fs, sync::OnceLock};

use nodeprof_profile::groups::{KERNEL, MACHINE};

/// Labels for a run: release of the kernel, model and number of processors. What cannot be read is left out.
pub fn labels() -> Vec<(String, String)> {
    // On machines with many processors this file takes the kernel milliseconds to write.
    static LABELS: OnceLock<Vec<(String, String)>> = OnceLock::new();
    let labels = LABELS.get_or_init(|| {
        let mut labels = Vec::new();
        if let Ok(release) = fs::read_to_string("/proc/sys/kernel/osrelease") {
            labels.push((KERNEL.to_owned(), release.trim().to_owned()));
        }
        if let Ok(text) = fs::read_to_string("/proc/cpuinfo") {
            labels.extend(processors(&text).map(|text| (MACHINE.to_owned(), text)));
        }
        labels
    });
    labels.clone()
}

/// Number of a user, by its name or its number.
pub(crate) fn user_id(text: &str) -> Option<u32> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let name = std::ffi::CString::new(text).ok()?;
    let mut buffer = vec![0; 64 << 10];
    // SAFETY: a struct of pointers and integers.
    let mut user: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: a name with its NUL, a live struct and a buffer of the length that is told.
    let done = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &mut user,
            buffer.as_mut_ptr(),
            buffer.len(),
            &mut found,
        )
    };
    (done == 0 && !found.is_null()).then_some(user.pw_uid)
}

/// `2 × Intel(R) Xeon(R) Processor` of /proc/cpuinfo.
fn processors(cpuinfo: &str) -> Option<String> {
    let values = |key: &'static str| {
        cpuinfo.lines().filter_map(move |line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim())
        })
    };
    let models: BTreeSet<&str> = values("model name").collect();
    let models: Vec<&str> = models.into_iter().collect();
    let count = values("processor").count();
    (count > 0 && !models.is_empty()).then(|| format!("{count} × {}", models.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_by_model() {
        let text = "processor\t: 0\nmodel name\t: A: b\n\nprocessor\t: 1\nmodel name\t: A: b\n";
        assert_eq!(processors(text).as_deref(), Some("2 × A: b"));
        assert_eq!(processors(""), None);
    }
}
