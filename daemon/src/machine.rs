//! What a run says of the machine that it was made on, so that two machines are not compared as if they were one.

use std::{
    collections::BTreeSet,
    ffi::{CString, c_char, c_int},
    fs,
    mem::MaybeUninit,
    ptr,
    sync::OnceLock,
};

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
    let name = CString::new(text).ok()?;
    let ask = |user: *mut libc::passwd, buffer: &mut [c_char], found: *mut *mut libc::passwd| {
        // SAFETY: a name with its NUL, live places, and a buffer of the length that is told.
        unsafe {
            let (at, length) = (buffer.as_mut_ptr(), buffer.len());
            libc::getpwnam_r(name.as_ptr(), user, at, length, found)
        }
    };
    look_up(ask, |user| user.pw_uid)
}

/// Number of a group, by its name.
pub(crate) fn group_id(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let ask = |group: *mut libc::group, buffer: &mut [c_char], found: *mut *mut libc::group| {
        // SAFETY: as above.
        unsafe {
            let (at, length) = (buffer.as_mut_ptr(), buffer.len());
            libc::getgrnam_r(name.as_ptr(), group, at, length, found)
        }
    };
    look_up(ask, |group| group.gr_gid)
}

/// Bytes of an entry of a group or user, with the names of all members. The first is enough for most.
const BYTES: usize = 64 << 10;
const MOST_BYTES: usize = 64 << 20;

/// What one of libc's functions finds that take a place for the entry and a buffer for its texts, and point to the entry if there is one.
fn look_up<E>(
    ask: impl Fn(*mut E, &mut [c_char], *mut *mut E) -> c_int,
    number: impl FnOnce(&E) -> u32,
) -> Option<u32> {
    let mut entry = MaybeUninit::<E>::zeroed();
    let mut buffer = vec![0; BYTES];
    loop {
        let mut found = ptr::null_mut();
        match ask(entry.as_mut_ptr(), &mut buffer, &mut found) {
            // SAFETY: points to the entry, which was filled in.
            0 => return unsafe { found.as_ref() }.map(number),
            // A group of thousands of users.
            libc::ERANGE if buffer.len() < MOST_BYTES => buffer.resize(2 * buffer.len(), 0),
            _ => return None,
        }
    }
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
    fn users_and_groups_have_their_numbers() {
        assert_eq!((user_id("root"), user_id("12")), (Some(0), Some(12)));
        assert_eq!(group_id("root"), Some(0));
        assert_eq!((user_id("no such"), group_id("no such")), (None, None));
    }

    #[test]
    fn an_entry_that_is_larger_than_the_buffer_is_asked_for_again() {
        let of = |bytes: usize| {
            let ask = |entry: *mut u32, buffer: &mut [c_char], found: *mut *mut u32| {
                if buffer.len() < bytes {
                    return libc::ERANGE;
                }
                // SAFETY: live places.
                unsafe {
                    *entry = 7;
                    *found = entry;
                }
                0
            };
            look_up(ask, |number| *number)
        };
        assert_eq!(of(BYTES), Some(7));
        assert_eq!(of(5 * BYTES), Some(7));
        assert_eq!(of(MOST_BYTES + 1), None);
    }

    #[test]
    fn processors_are_counted_by_model() {
        let text = "processor\t: 0\nmodel name\t: A: b\n\nprocessor\t: 1\nmodel name\t: A: b\n";
        assert_eq!(processors(text).as_deref(), Some("2 × A: b"));
        assert_eq!(processors(""), None);
    }
}
