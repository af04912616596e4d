//! What the trace itself lacks and costs.

use super::Report;
use super::page::{faint, plain, warning};
use super::words::{capitalised, loss};
use crate::paths::printable;
use crate::table::Paint;
use crate::units::{counted, number, percent, time};

impl Report<'_> {
    pub(super) fn families(&mut self) {
        // The others have said it in their sections, where the figures are.
        const SECTIONS: [&str; 6] = [
            "phases",
            "crossings",
            "package-json",
            "files",
            "serialization",
            "compile",
        ];
        let run = self.run;
        let untold: Vec<String> = run
            .families
            .iter()
            .map(|family| family.name.clone())
            .filter(|name| {
                !SECTIONS.contains(&name.as_str())
                    && (name != "processes" || !self.shows_processes())
                    && (name != "cpu" || run.samples.count > 0)
            })
            .collect();
        for name in untold {
            if let Some(reason) = self.off(&name) {
                let title = match name.as_str() {
                    "cpu" => "CPU samples".to_owned(),
                    "off-cpu" => "Times off the CPU".to_owned(),
                    name => capitalised(&printable(name).replace('-', " ")),
                };
                self.page.section(&title, &[warning(reason)]);
            }
        }
    }

    pub(super) fn losses(&mut self) {
        let run = self.run;
        let lost: Vec<(&String, u64)> = run
            .losses
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(kind, count)| (kind, *count))
            .collect();
        if lost.is_empty() {
            return;
        }
        self.page
            .section("Missing", &[faint("what the figures above do not contain")]);
        for (kind, count) in lost {
            let sentence = loss(kind, count);
            self.page.sentence(&sentence, Paint::Warning);
        }
    }

    pub(super) fn overhead(&mut self) {
        let run = self.run;
        let overhead = &run.overhead;
        if overhead.probe_hits == 0 && overhead.setup_ns == 0 {
            return;
        }
        let mut phrases = vec![plain(counted(overhead.probe_hits, "probe hit"))];
        if overhead.ns_per_hit > 0.0 {
            phrases[0].0 += &format!(" at {:.0} ns", overhead.ns_per_hit);
            let share = percent(overhead.estimated_ns, run.time.wall_ns);
            phrases.push(plain(format!(
                "about {} of the probes alone in all threads ({share} of the run), contained in the times above",
                time(overhead.estimated_ns)
            )));
        }
        if overhead.setup_ns > 0 {
            phrases.push(faint(format!(
                "{} to set up, {} of it to attach",
                time(overhead.setup_ns),
                time(overhead.attach_ns)
            )));
        }
        self.page.section("Cost of tracing", &phrases);
        let mut families: Vec<(&String, u64)> = overhead
            .by_family
            .iter()
            .map(|(name, hits)| (name, *hits))
            .filter(|(_, hits)| *hits > 0)
            .collect();
        families.sort_by_key(|&(name, hits)| (std::cmp::Reverse(hits), name));
        if !families.is_empty() {
            let list: Vec<String> = families
                .iter()
                .map(|(name, hits)| format!("{} {}", printable(name), number(*hits)))
                .collect();
            self.page.note(&format!("hits: {}", list.join(", ")));
        }
    }
}
