//! Grace periods of the kernel, made short while probes come and go.
//!
//! The first uprobe after a pause waits for a grace period of RCU: 10 to 25 ms, in which the traced program waits, too. With
//! `/sys/kernel/rcu_expedited` set the kernel asks all processors at once instead: 1 to 2 ms for all probes of a node binary (measured, Linux 6.18).

use std::{
    fs, io,
    sync::{Mutex, PoisonError},
};

const SETTING: &str = "/sys/kernel/rcu_expedited";

/// How many in this process want it, and whether it was us who set it.
static WANTED: Mutex<(usize, bool)> = Mutex::new((0, false));

/// Sets it for as long as this lives, if it was not set and may be. A process that is killed meanwhile leaves it set, which does no harm
/// but that grace periods cost interrupts on all processors.
#[derive(Debug)]
pub(crate) struct Expedited(());

impl Expedited {
    pub(crate) fn new() -> Expedited {
        let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.0 == 0 {
            wanted.1 =
                fs::read(SETTING).is_ok_and(|set| set.starts_with(b"0")) && set(b"1").is_ok();
        }
        wanted.0 += 1;
        Expedited(())
    }
}

impl Drop for Expedited {
    fn drop(&mut self) {
        let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.0 -= 1;
        if wanted.0 == 0 && wanted.1 {
            // It could be set, so it can be taken back.
            let _ = set(b"0");
        }
    }
}

fn set(value: &[u8]) -> io::Result<()> {
    fs::write(SETTING, value)
}
