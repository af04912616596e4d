//! What was asked of the file system.

use nodeprof_profile::recording::UNREADABLE;
use nodeprof_profile::report::{FileOperationProfile, PackageJsonFile, PathProfile};

use super::page::{plain, warning};
use super::words::repeated;
use super::{Report, TOP, TOP_SHORT};
use crate::table::{Cell, Column, Paint, Table};
use crate::units::{bytes, counted, number, time};
use nodeprof_profile::wording;

impl Report<'_> {
    pub(super) fn package_json(&mut self) {
        let package_json = &self.run.package_json;
        if package_json.files.is_empty() {
            return self.empty("package.json", "package-json");
        }
        let mut phrases = Vec::new();
        let lookups = match self.off("package-json") {
            Some(reason) if package_json.lookups == 0 => {
                phrases.push(warning(format!("lookups {reason}")));
                None
            }
            reason => {
                phrases.push(plain(format!(
                    "{}{}",
                    counted(package_json.lookups, "lookup"),
                    repeated(package_json.repeated_lookups)
                )));
                reason
            }
        };
        let asked = |lookups: bool| match (
            lookups,
            package_json.opens_failed,
            package_json.repeated_opens,
        ) {
            (_, 0, 0) => String::new(),
            (_, failed, 0) => format!(" ({} failed)", number(failed)),
            (_, 0, again) => format!(" ({} repeated)", number(again)),
            (_, failed, again) => {
                format!(" ({} failed, {} repeated)", number(failed), number(again))
            }
        };
        phrases.push(plain(format!(
            "{}{}",
            counted(package_json.opens, "open"),
            asked(true)
        )));
        if package_json.stats > 0 {
            let failed = match package_json.stats_failed {
                0 => String::new(),
                failed => format!(" ({} failed)", number(failed)),
            };
            phrases.push(plain(counted(package_json.stats, "stat") + &failed));
        }
        if package_json.bytes > 0 {
            phrases.push(plain(format!("{} read", bytes(package_json.bytes))));
        }
        if package_json.total_ns > 0 {
            phrases.push(plain(format!(
                "{} in the kernel",
                time(package_json.total_ns)
            )));
        }
        let missing = package_json
            .files
            .iter()
            .filter(|file| file.found == Some(false))
            .count() as u64;
        if missing > 0 {
            let unreadable = String::from_utf8_lossy(UNREADABLE);
            let named = package_json
                .files
                .iter()
                .filter(|file| file.path != unreadable);
            let files = counted(named.count() as u64, "path");
            phrases.push(warning(wording::counted(
                missing,
                &format!("# of {files} [does|do] not exist"),
            )));
        }
        phrases.extend(lookups.map(warning));
        self.page.section("package.json", &phrases);

        let mut table = Table::new([
            Column::right("lookups"),
            Column::right("opens"),
            Column::right("stats").drop(3),
            Column::right("bytes").drop(2),
            Column::right("time").drop(1),
            Column::left("found"),
            Column::left("path").flexible(32, 120),
        ]);
        let row = |file: &PackageJsonFile| {
            let count = |count: u64| {
                Cell::text(if count == 0 {
                    String::new()
                } else {
                    number(count)
                })
            };
            let lookups = count(file.lookups);
            let found = match file.found {
                Some(true) => Cell::text("yes").paint(Paint::Faint),
                Some(false) => Cell::text("no").paint(Paint::Warning),
                None => Cell::text("?").paint(Paint::Faint),
            };
            vec![
                if file.lookups > 1 {
                    lookups.paint(Paint::Warning)
                } else {
                    lookups
                },
                count(file.opens),
                count(file.stats),
                Cell::text(if file.bytes == 0 {
                    String::new()
                } else {
                    bytes(file.bytes)
                }),
                Cell::text(if file.total_ns == 0 {
                    String::new()
                } else {
                    time(file.total_ns)
                }),
                found,
                Cell::path(self.path(&file.path)),
            ]
        };
        // Alike in counts, as most are: the slowest first.
        let mut files: Vec<&PackageJsonFile> = package_json.files.iter().collect();
        files.sort_by_key(|file| {
            let counts = [file.lookups, file.opens, file.stats];
            let sum = counts.into_iter().fold(0, u64::saturating_add);
            std::cmp::Reverse((sum, file.total_ns))
        });
        let (top, rest) = files.split_at(files.len().min(TOP));
        for file in top {
            table.row(row(file));
        }
        let mut slowest: Vec<&PackageJsonFile> = rest.to_vec();
        slowest.retain(|file| file.total_ns > 0);
        slowest.sort_by_key(|file| std::cmp::Reverse(file.total_ns));
        slowest.truncate(TOP_SHORT / 2);
        let rows: Vec<Vec<Cell>> = slowest.into_iter().map(row).collect();
        self.page.table(&table);
        self.page.more(TOP, package_json.files.len(), "path[|s]");
        if !rows.is_empty() {
            self.page.note("Slowest of the others:");
            table.rows = rows;
            self.page.table(&table);
        }
    }

    pub(super) fn files(&mut self) {
        let files = &self.run.files;
        let operations = [
            ("stat", &files.stat),
            ("open", &files.open),
            ("read", &files.read),
            ("readlink", &files.readlink),
            ("access", &files.access),
            ("close", &files.close),
        ];
        let calls: u64 = operations
            .iter()
            .map(|(_, operation)| operation.calls)
            .fold(0, u64::saturating_add);
        if calls == 0 {
            return self.empty("Files", "files");
        }
        let spent: u64 = operations
            .iter()
            .map(|(_, operation)| operation.total_ns)
            .fold(0, u64::saturating_add);
        let mut phrases = vec![plain(
            counted(calls, "system call") + &format!(" on {}", counted(files.paths, "path")),
        )];
        // Count mode takes no times.
        if spent > 0 {
            phrases.push(plain(format!("{} in the kernel", time(spent))));
        }
        if files.bytes_read > 0 {
            phrases.push(plain(format!("{} read", bytes(files.bytes_read))));
        }
        if let Some(reason) = self.off("files") {
            phrases.push(warning(reason));
        }
        self.page.section("Files", &phrases);
        let mut table = Table::new([
            Column::right("calls"),
            Column::right("failed"),
            Column::right("time"),
            Column::right("per call"),
            Column::left("operation"),
        ]);
        for (name, operation) in operations {
            let FileOperationProfile {
                calls,
                failed,
                total_ns,
            } = *operation;
            if calls > 0 {
                table.row([
                    Cell::text(number(calls)),
                    Cell::text(if failed == 0 {
                        String::new()
                    } else {
                        number(failed)
                    })
                    .paint(Paint::Warning),
                    Cell::text(time_taken(total_ns)),
                    Cell::text(time_taken(total_ns / calls)).paint(Paint::Faint),
                    Cell::text(name),
                ]);
            }
        }
        self.page.table(&table);
        if spent > 0 {
            self.paths("Slowest:", &files.slowest);
        }
        self.paths("Most repeated:", &files.most_repeated);
    }

    fn paths(&mut self, title: &str, paths: &[PathProfile]) {
        if paths.is_empty() {
            return;
        }
        self.page.note(title);
        let mut table = Table::new([
            Column::right("calls"),
            Column::right("failed").drop(2),
            Column::right("time"),
            Column::right("bytes").drop(3),
            Column::left("operation"),
            Column::left("path").flexible(28, 120),
        ]);
        for path in paths.iter().take(TOP_SHORT) {
            table.row([
                Cell::text(number(path.calls)),
                Cell::text(if path.failed == 0 {
                    String::new()
                } else {
                    number(path.failed)
                })
                .paint(Paint::Warning),
                Cell::text(time_taken(path.total_ns)),
                Cell::text(if path.bytes == 0 {
                    String::new()
                } else {
                    bytes(path.bytes)
                }),
                Cell::text(path.operation.name()).paint(Paint::Faint),
                Cell::path(self.path(&path.path)),
            ]);
        }
        self.page.table(&table);
    }
}

/// A time, or nothing where none was taken.
fn time_taken(ns: u64) -> String {
    if ns == 0 { String::new() } else { time(ns) }
}
