//! How far it is, and the estimate so far, on standard error if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nodeprof_profile::wording::printable;

pub struct Progress(ProgressBar);

impl Progress {
    /// Drawn only when something is said: a thread that draws would take processor time from the program that is measured.
    pub fn new(hidden: bool) -> Progress {
        let target = match hidden {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr(),
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        // The template is a constant of ours; without it the bar has its default form.
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg} {eta:>4}")
        {
            bar.set_style(style);
        }
        Progress(bar)
    }

    pub fn say(&self, message: &str) {
        self.0.set_message(printable(message).into_owned());
        self.0.tick();
    }

    /// So many of so many are done.
    pub fn at(&self, done: usize, of: usize, message: &str) {
        self.0.set_length(of as u64);
        self.0.set_position(done as u64);
        self.say(message);
    }

    pub fn done(&self) {
        self.0.finish_and_clear();
    }
}
