//! What bundles are made of, by their source maps.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use nodeprof_profile::modules::Costs;
use nodeprof_profile::report::{BundledPackageProfile, RunProfile, SourceProfile};

use super::Report;
use super::blame::{BlameOptions, By, Figure, Role, bar, figure_text, of_costs};
use super::page::{faint, plain};
use crate::paths::{printable, seen_from};
use crate::table::{Cell, Column, Paint, Table};
use crate::units::counted;

/// What the files of a package did, or those of one file, in all processes of the run.
struct Row {
    name: String,
    /// Where it lies, which tells those apart that have one name.
    place: String,
    /// It is the row of what is of no file.
    is_rest: bool,
    caused: Costs,
    cpu_total_ns: u64,
}

/// What the bundle's module has and none of its files: what its own body asks for where the map tells no file, and what it does to load other chunks.
const REST: &str = "(of no file)";
/// What the program's own files are called together.
const OWN: &str = "(the program's own)";
/// Bundles of a report; `blame` has all.
const MOST_IN_A_REPORT: usize = 2;

impl Row {
    fn of_package(package: &BundledPackageProfile) -> Row {
        let name = package.name.as_deref().map(printable);
        Row {
            name: name.map_or(OWN.to_owned(), |name| name.into_owned()),
            place: package.directory.clone().unwrap_or_default(),
            is_rest: false,
            caused: package.caused,
            cpu_total_ns: package.cpu_total_ns,
        }
    }

    fn of_source(source: &SourceProfile, base: &str) -> Row {
        let directory = source.package_directory.as_deref();
        let inside = directory.and_then(|directory| source.path.strip_prefix(directory));
        let name = match (&source.package, inside) {
            (Some(package), Some(inside)) => printable(&format!("{package}{inside}")).into_owned(),
            _ => seen_from(without_scheme(&source.path), base),
        };
        Row {
            name,
            place: source.path.clone(),
            is_rest: false,
            caused: source.caused,
            cpu_total_ns: source.cpu_total_ns,
        }
    }

    fn value(&self, figure: Figure) -> u64 {
        part_value(figure, &self.caused, self.cpu_total_ns)
    }
}

/// A figure of a part of a bundle.
fn part_value(figure: Figure, caused: &Costs, cpu_total_ns: u64) -> u64 {
    match figure {
        Figure::Total => cpu_total_ns,
        _ => of_costs(caused, figure),
    }
}

/// Packages in the bundles of a run, the highest in the figure of the options first.
pub fn bundled_packages<'a>(
    run: &'a RunProfile,
    options: &BlameOptions,
) -> Vec<&'a BundledPackageProfile> {
    in_order(run, options, &run.bundled_packages, |part| {
        (&part.caused, part.cpu_total_ns)
    })
}

/// Files in the bundles of a run, in that order.
pub fn sources<'a>(run: &'a RunProfile, options: &BlameOptions) -> Vec<&'a SourceProfile> {
    in_order(run, options, &run.sources, |part| {
        (&part.caused, part.cpu_total_ns)
    })
}

fn in_order<'a, T>(
    run: &RunProfile,
    options: &BlameOptions,
    parts: &'a [T],
    figures: impl Fn(&T) -> (&Costs, u64),
) -> Vec<&'a T> {
    let sort = sorted_by(options.sort, run.samples.count > 0);
    let mut parts: Vec<&T> = parts.iter().collect();
    parts.sort_by_key(|part| {
        let (caused, cpu_total_ns) = figures(part);
        Reverse((part_value(sort, caused, cpu_total_ns), caused.crossings))
    });
    parts
}

/// A bundle: its path, and what is in it.
type Bundle = (String, Vec<Row>);

impl Report<'_> {
    /// A section for each bundle, with `shown` rows of packages or files. Nothing where there is none, or whose counts are asked for that it took to load a
    /// module: a bundle is loaded as a whole.
    pub(super) fn bundles(&mut self, options: &BlameOptions, limit: Option<usize>, more: &str) {
        if options.role == Role::Loaded {
            return;
        }
        let (one, forms) = match options.by {
            By::Package => ("package", "package[|s]"),
            By::Module => ("file", "file[|s]"),
        };
        let sort = sorted_by(options.sort, self.run.samples.count > 0);
        let mut bundles = self.rows_of_bundles(options.by);
        // What a package ships as one file, or the program itself, is told with that.
        bundles.retain(|(bundle, rows)| {
            let is_its_own =
                |row: &Row| row.place.is_empty() || bundle.starts_with(&format!("{}/", row.place));
            rows.len() > 1 || !rows.iter().all(is_its_own)
        });
        let most = |(_, rows): &Bundle| {
            let values = rows.iter().map(|row| row.value(sort));
            values.fold(0, u64::saturating_add)
        };
        bundles.sort_by_key(|bundle| Reverse(most(bundle)));
        let all = bundles.len();
        let in_a_report = !more.is_empty();
        if in_a_report {
            bundles.truncate(MOST_IN_A_REPORT);
        }
        for (position, (bundle, rows)) in bundles.iter_mut().enumerate() {
            let named = rows.iter().filter(|row| row.name != OWN).count();
            let title = format!("In {}", seen_from(bundle, &self.base));
            let mut phrases = vec![plain(format!(
                "{} seen, by its source map",
                counted(named as u64, one)
            ))];
            if position == 0 {
                phrases.push(faint("CPU: by samples, also of loading others"));
                phrases.push(faint("total: with what they called"));
                phrases.push(faint("counts: what their functions did"));
            }
            self.page.section(&title, &phrases);
            rows.extend(self.rest_of(bundle, rows));
            rows.sort_by_key(|row| Reverse((row.value(sort), row.caused.crossings)));
            let count = rows.len();
            let shown = limit.unwrap_or(count);
            self.bundle_table(rows, options.by, sort, shown);
            self.page.more(shown, count, &format!("{forms}{more}"));
        }
        if all > bundles.len() {
            let left = (all - bundles.len()) as u64;
            self.page
                .note(&format!("… and {} more{more}", counted(left, "bundle")));
        }
    }

    /// What the modules of a bundle caused and none of its parts did; nothing if that is nothing.
    fn rest_of(&self, bundle: &str, rows: &[Row]) -> Option<Row> {
        let mut rest = Costs::default();
        let modules = { self.run.modules.iter() }.filter(|module| module.path == bundle);
        modules.for_each(|module| rest.add(&module.caused));
        rows.iter().for_each(|row| rest.take_off(&row.caused));
        (rest.crossings > 0 || rest.cpu_ns > 0 || rest.stats > 0 || rest.lookups > 0).then(|| Row {
            name: REST.to_owned(),
            place: String::new(),
            is_rest: true,
            caused: rest,
            cpu_total_ns: 0,
        })
    }

    /// Rows of several processes are one.
    fn rows_of_bundles(&self, by: By) -> Vec<Bundle> {
        let rows: Vec<(&str, Row)> = match by {
            By::Package => { self.run.bundled_packages.iter() }
                .map(|package| (package.bundle.as_str(), Row::of_package(package)))
                .collect(),
            By::Module => { self.run.sources.iter() }
                .map(|source| (source.bundle.as_str(), Row::of_source(source, &self.base)))
                .collect(),
        };
        let mut bundles: BTreeMap<&str, BTreeMap<String, Row>> = BTreeMap::new();
        for (bundle, row) in rows {
            match bundles.entry(bundle).or_default().entry(row.place.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(row);
                }
                Entry::Occupied(mut entry) => {
                    let same = entry.get_mut();
                    same.caused.add(&row.caused);
                    same.cpu_total_ns = same.cpu_total_ns.saturating_add(row.cpu_total_ns);
                }
            }
        }
        let bundles = bundles.into_iter();
        bundles
            .map(|(bundle, rows)| (bundle.to_owned(), rows.into_values().collect()))
            .collect()
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
                    cells.push(bar(value, most));
                }
            }
            let is_one_of_several = names.get(row.name.as_str()).is_some_and(|count| *count > 1);
            cells.push(match (by, is_one_of_several) {
                _ if row.is_rest => Cell::text(&row.name).paint(Paint::Faint),
                (By::Package, true) => Cell::text(format!("{}{}", row.name, inside(&row.place))),
                (By::Package, false) => Cell::text(&row.name),
                (By::Module, true) => Cell::path(seen_from(&row.place, &self.base)),
                (By::Module, false) => Cell::path(row.name.clone()),
            });
            table.row(cells);
        }
        self.page.table(&table);
    }
}

/// In which package's `node_modules` a package lies, or where in pnpm's store, if several have its name.
fn inside(directory: &str) -> String {
    let mut parts = directory.rsplit("/node_modules/").skip(1);
    match parts
        .next()
        .filter(|_| directory.matches("/node_modules/").count() > 1)
    {
        Some(around) => format!(" in {}", around.trim_start_matches(".pnpm/")),
        None => String::new(),
    }
}

/// A name of webpack's without what all have in common: `src/index.js` of `webpack://app/./src/index.js`.
fn without_scheme(path: &str) -> &str {
    let Some(rest) = path.strip_prefix("webpack://") else {
        return path;
    };
    let inside = rest.split_once('/').map_or(rest, |(_, inside)| inside);
    inside.strip_prefix("./").unwrap_or(inside)
}

/// What the rows of a bundle are sorted by: files in it have no steps of loading, and CPU time where samples were taken.
fn sorted_by(figure: Figure, sampled: bool) -> Figure {
    match figure {
        Figure::Own | Figure::Total | Figure::Samples if !sampled => Figure::Crossings,
        Figure::Resolve | Figure::Read | Figure::Compile | Figure::Execute => {
            sorted_by(Figure::Own, sampled)
        }
        figure => figure,
    }
}
