//! Recordings made of what other tools saw.
//!
//! **Input.** The text that another profiler prints. **Output.** A [`Recording`](crate::Recording) that holds what the text
//! tells; families that it cannot know are `off`, with the reason.

pub mod perf_script;

/// The lead of a text for a message: printable, at most 60 characters.
fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(bytes);
    let mut shown: String = text
        .chars()
        .take(MOST)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}
