//! Files of the log: one a day, a JSON object a line, none of them larger than so much.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use tracing_appender::rolling::{InitError, RollingFileAppender, Rotation};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes of the file of a day, and a line or two: a start is a line of 230 bytes, and 100 starts a second would make 2 GB.
const LARGEST: u64 = 100_000_000;
const PREFIX: &str = "nodeprofd";
const SUFFIX: &str = "json";

/// Where lines go, each by one call of `write`.
pub struct LogFiles {
    folder: PathBuf,
    files: RollingFileAppender,
    largest: u64,
}

impl LogFiles {
    /// In this folder, the files of today and of up to so many days before.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn new(folder: &Path, days: usize) -> Result<LogFiles, InitError> {
        let files = RollingFileAppender::builder()
            .rotation(Rotation::DAILY)
            .filename_prefix(PREFIX)
            .filename_suffix(SUFFIX)
            // It takes away all but one less before it begins a file, today's own too where there is one already.
            .max_log_files(days.saturating_add(1));
        Ok(LogFiles {
            folder: folder.to_owned(),
            files: files.build(folder)?,
            largest: LARGEST,
        })
    }

    /// That of today, by the clock of the appender, UTC. All processes of the service write to it.
    fn file(&self, time: &str) -> PathBuf {
        let day = time.split('T').next().unwrap_or(time);
        self.folder.join(format!("{PREFIX}.{day}.{SUFFIX}"))
    }
}

impl<'a> MakeWriter<'a> for LogFiles {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        let time = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        Line {
            before: fs::metadata(self.file(&time)).map_or(0, |meta| meta.len()),
            time,
            files: self,
        }
    }
}

/// Where a line goes.
pub struct Line<'a> {
    files: &'a LogFiles,
    /// Bytes of the file that it goes to.
    before: u64,
    time: String,
}

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let largest = self.files.largest;
        if self.before > largest {
            return Ok(line.len()); // which was said
        }
        let mut file = self.files.files.make_writer();
        let after = self.before + line.len() as u64;
        if after <= largest {
            return file.write_all(line).map(|()| line.len());
        }
        // Whoever makes it too large says so, once a file, whatever process it is and however often it is started.
        let message = format!(
            "this file has {} MB, and nothing more is written to it: the next one is begun at midnight (UTC); the journal has all",
            largest / 1_000_000
        );
        let last = serde_json::json!({
            "timestamp": self.time,
            "level": "WARN",
            "fields": { "message": message },
            "target": "nodeprofd",
        });
        let both = [line, format!("{last}\n").as_bytes()].concat();
        file.write_all(&both).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.files.files.make_writer().flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_large_enough_says_so_once_and_gets_nothing_more() {
        let folder = tempfile::tempdir().unwrap();
        // Two processes, one of them started twice.
        for _ in 0..3 {
            let mut files = LogFiles::new(folder.path(), 7).unwrap();
            files.largest = 1_000;
            for n in 0..50 {
                let line = format!("{{\"n\":{n},\"text\":\"{}\"}}\n", "x".repeat(80));
                files.make_writer().write_all(line.as_bytes()).unwrap();
            }
        }
        let mut written = fs::read_dir(folder.path()).unwrap();
        let file = written.next().unwrap().unwrap().path();
        assert!(written.next().is_none());
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(text.len() < 1_500, "{} bytes", text.len());
        let (last, before) = lines.split_last().unwrap();
        assert!(before.iter().enumerate().all(|(n, line)| line["n"] == n));
        assert!(before.len() > 5);
        let said = last["fields"]["message"].as_str().unwrap();
        assert!(said.contains("nothing more is written"), "{said}");
    }
}
