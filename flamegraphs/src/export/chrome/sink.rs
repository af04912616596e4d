//! Events as JSON, one after the other: a million of them are not held in memory.

use std::io::Write;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::slices::Told;
use crate::export::{EXPORTER, ExportError};

/// An event of the format.
#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'a str,
    ph: &'static str,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    /// Of instants: whose they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    args: &'a Map<String, Value>,
}

/// Process and thread, as the format numbers tracks.
pub(super) type Track = (u32, u32);

/// A file that is being written.
pub(super) struct Sink<W> {
    to: W,
    first: bool,
}

impl<W: Write> Sink<W> {
    /// Begins a file that shows this part of a run.
    pub(super) fn new(mut to: W, shown: &str) -> Result<Sink<W>, ExportError> {
        let about = json!({"exporter": EXPORTER, "shown": shown});
        write!(
            to,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":["
        )?;
        Ok(Sink { to, first: true })
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), ExportError> {
        self.to.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut self.to, event)?;
        Ok(())
    }

    /// Names or orders a process or thread: `process_name`, `thread_sort_index` ….
    pub(super) fn describe(
        &mut self,
        what: &str,
        track: Track,
        key: &str,
        value: Value,
    ) -> Result<(), ExportError> {
        self.event(&Event {
            name: what,
            cat: "",
            ph: "M",
            ts: None,
            dur: None,
            pid: track.0,
            tid: track.1,
            s: None,
            args: &Map::from_iter([(key.to_owned(), value)]),
        })
    }

    /// A slice from `ts` on, of `dur` microseconds; an instant without.
    pub(super) fn slice(
        &mut self,
        track: Track,
        ts: f64,
        dur: Option<f64>,
        told: &Told,
    ) -> Result<(), ExportError> {
        self.event(&Event {
            name: &told.name,
            cat: told.cat,
            ph: if dur.is_some() { "X" } else { "i" },
            ts: Some(ts),
            dur,
            pid: track.0,
            tid: track.1,
            s: dur.is_none().then_some("t"),
            args: &told.args,
        })
    }

    pub(super) fn finish(mut self) -> Result<(), ExportError> {
        writeln!(self.to, "\n]}}")?;
        self.to.flush()?;
        Ok(())
    }
}
