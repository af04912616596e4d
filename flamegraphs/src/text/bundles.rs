//! What bundles are made of, by their source maps.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use nodeprof_profile::modules::Costs;
use nodeprof_profile::report::{BundledPackageProfile, SourceProfile};

use super::Report;
use super::blame::{BlameOptions, By, Figure, Role, figure_text, of_costs};
use super::page::{faint, plain};
use crate::paths::{printable, seen_from};
use crate::table::{Cell, Column, Table};
use crate::units::{counted, number};

/// What the files of a package did, or those of one file, in all processes of the run.
struct Row {
    name: String,
    /// Where it lies, which tells those apart that have one name.
    place: String,
    files: u64,
    caused: Costs,
    cpu_total_ns: u64,
}

impl Row {
    fn of_package(package: &BundledPackageProfile) -> Row {
        let name = package.name.as_deref().map(printable);
        Row {
            name: name.map_or("(the program's own)".to_owned(), |name| name.into_owned()),
            place: package.directory.clone().unwrap_or_default(),
            files: package.files,
            caused: package.caused,
            cpu_total_ns: package.cpu_total_ns,
        }
    }

    fn of_source(source: &SourceProfile, base: &str) -> Row {
        let directory = source.package_directory.as_deref();
        let inside = directory.and_then(|directory| source.path.strip_prefix(directory));
        let name = match (&source.package, inside) {
            (Some(package), Some(inside)) => printable(&format!("{package}{inside}")).into_owned(),
            _ => seen_from(&source.path, base),
        };
        Row {
            name,
            place: source.path.clone(),
            files: 1,
            caused: source.caused,
            cpu_total_ns: source.cpu_total_ns,
        }
    }

    fn value(&self, figure: Figure) -> u64 {
        match figure {
            Figure::Total => self.cpu_total_ns,
            _ => of_costs(&self.caused, figure),
        }
    }
}

/// A bundle: its path, and what is in it.
type Bundle = (String, Vec<Row>);

impl Report<'_> {
    /// A section for each bundle, with `shown` rows of packages or files. Nothing where there is none, or whose counts are asked for that it took to load a
    /// module: a bundle is loaded as a whole.
    pub(super) fn bundles(&mut self, options: &BlameOptions, shown: usize, more: &str) {
        if options.role == Role::Loaded {
            return;
        }
        let what = match options.by {
            By::Package => "package[|s]",
            By::Module => "file[|s]",
        };
        let sort = sorted_by(options.sort, self.run.samples.count > 0);
        for (bundle, mut rows) in self.rows_of_bundles(options.by) {
            rows.sort_by_key(|row| Reverse((row.value(sort), row.caused.crossings)));
            let parts = match options.by {
                By::Package => "package",
                By::Module => "file",
            };
            let title = format!("In {}", seen_from(&bundle, &self.base));
            let phrases = [
                plain(format!(
                    "{}, as its source map tells",
                    counted(rows.len() as u64, parts)
                )),
                faint(
                    "CPU: by samples; total: with what they called; counts: what their functions did",
                ),
            ];
            self.page.section(&title, &phrases);
            let all = rows.len();
            self.bundle_table(&rows, options.by, sort, shown);
            self.page.more(shown, all, &format!("{what}{more}"));
        }
    }

    /// Rows of several processes are one. Bundles that took most CPU time first.
    fn rows_of_bundles(&self, by: By) -> Vec<Bundle> {
        let rows: Vec<(&str, Row)> = match by {
            By::Package => { self.run.bundled_packages.iter() }
                .map(|package| (package.bundle.as_str(), Row::of_package(package)))
                .collect(),
            By::Module => { self.run.sources.iter() }
                .map(|source| (source.bundle.as_str(), Row::of_source(source, &self.base)))
                .collect(),
        };
        let mut bundles: Vec<Bundle> = Vec::new();
        let mut known: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
        for (bundle, row) in rows {
            let key = (bundle.to_owned(), row.place.clone());
            if let Some((bundle, at)) = known.get(&key) {
                let same = &mut bundles[*bundle].1[*at];
                same.files = same.files.max(row.files);
                same.caused.add(&row.caused);
                same.cpu_total_ns = same.cpu_total_ns.saturating_add(row.cpu_total_ns);
                continue;
            }
            let at = bundles.iter().position(|(path, _)| path == bundle);
            let at = at.unwrap_or_else(|| {
                bundles.push((bundle.to_owned(), Vec::new()));
                bundles.len() - 1
            });
            known.insert(key, (at, bundles[at].1.len()));
            bundles[at].1.push(row);
        }
        bundles
    }

    fn bundle_table(&mut self, rows: &[Row], by: By, sort: Figure, shown: usize) {
        let mut figures = vec![sort];
        for figure in [
            Figure::Own,
            Figure::Total,
            Figure::Crossings,
            Figure::Lookups,
            Figure::Stats,
            Figure::Serializations,
        ] {
            // A column in which nothing stands says nothing.
            if !figures.contains(&figure) && rows.iter().any(|row| row.value(figure) > 0) {
                figures.push(figure);
            }
        }
        let mut columns = Vec::new();
        for (position, figure) in figures.iter().enumerate() {
            let column = Column::right(match figure {
                Figure::Own => "CPU",
                figure => figure.title(),
            });
            columns.push(match position {
                0 => column,
                _ => column.drop(2 + position as u8),
            });
            if position == 0 {
                columns.push(Column::left("").flexible(6, 12).drop(12));
            }
        }
        columns.push(match by {
            By::Package => Column::right("files").drop(9),
            By::Module => Column::right("").drop(13),
        });
        columns.push(
            Column::left(match by {
                By::Package => "package",
                By::Module => "file",
            })
            .flexible(28, 100),
        );
        let mut table = Table::new(columns);
        let most = rows.first().map_or(0, |row| row.value(sort));
        let mut names: BTreeMap<&str, u32> = BTreeMap::new();
        for row in rows {
            *names.entry(&row.name).or_default() += 1;
        }
        for row in rows.iter().take(shown) {
            let mut cells = Vec::new();
            for (position, figure) in figures.iter().enumerate() {
                let value = row.value(*figure);
                cells.push(Cell::text(figure_text(*figure, value)));
                if position == 0 {
                    cells.push(match value {
                        0 => Cell::text(""),
                        _ => Cell::bar(0.0, value as f64 / most.max(1) as f64),
                    });
                }
            }
            cells.push(Cell::text(match by {
                By::Package => number(row.files),
                By::Module => String::new(),
            }));
            let is_one_of_several = names.get(row.name.as_str()).is_some_and(|count| *count > 1);
            cells.push(match (by, is_one_of_several) {
                (By::Package, true) => {
                    let place = seen_from(&row.place, &self.base);
                    Cell::branch(format!("{}  ", row.name), place, String::new())
                }
                (By::Package, false) => Cell::text(&row.name),
                (By::Module, true) => Cell::path(seen_from(&row.place, &self.base)),
                (By::Module, false) => Cell::path(row.name.clone()),
            });
            table.row(cells);
        }
        self.page.table(&table);
    }
}

/// What the rows of a bundle are sorted by: of its steps of loading each file has none, and CPU time where samples were taken.
fn sorted_by(figure: Figure, sampled: bool) -> Figure {
    match figure {
        Figure::Own | Figure::Total | Figure::Samples if !sampled => Figure::Crossings,
        Figure::Resolve | Figure::Read | Figure::Compile | Figure::Execute => {
            sorted_by(Figure::Own, sampled)
        }
        figure => figure,
    }
}
