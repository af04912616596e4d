//! What `/proc` tells of a process.

use std::fs;

/// A field of `/proc/PID/stat` by its number in proc(5), from 3 on; `None` if the process is gone.
pub fn stat_field(pid: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, field 2, may hold anything: count from its closing parenthesis.
    let (_, after) = stat.rsplit_once(')')?;
    let field = after.split_whitespace().nth(number.checked_sub(3)?)?;
    Some(field.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_manual() {
        let me = std::process::id();
        let parent = std::os::unix::process::parent_id().to_string();
        assert_eq!(stat_field(me, 4), Some(parent));
        assert_eq!(stat_field(me, 2), None);
        assert_eq!(stat_field(u32::MAX, 4), None);
    }
}
