//! Modules and packages, the most expensive first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::str::FromStr;

use nodeprof_profile::modules::{Costs, ModuleKind};
use nodeprof_profile::report::{ModuleProfile, PackageProfile, RunProfile};

use super::Report;
use super::names::{
    kind_name, module_name, of_several_processes, package_name, thread_name, version_of,
};
use super::page::{faint, plain};
use crate::paths::{printable, seen_from};
use crate::table::{Cell, Column, Paint, Table};
use crate::units::{bytes, counted, number, time};

/// What a row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A module.
    Module,
    /// A package.
    #[default]
    Package,
}

/// Whose counts are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Of what their functions did, and Node because they asked for it.
    #[default]
    Requirer,
    /// Of what was done to load them.
    Loaded,
}

/// A figure that rows can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Figure {
    /// Time to find, read, compile and run it.
    #[default]
    Own,
    /// With all below it in the tree of requirers.
    Total,
    /// Time to find its file.
    Resolve,
    /// Time to read it.
    Read,
    /// Time to compile it.
    Compile,
    /// Time in its own code.
    Execute,
    /// JavaScript → C++ calls.
    Crossings,
    /// Their self time.
    CrossingTime,
    /// package.json lookups.
    Lookups,
    /// stat-type system calls.
    Stats,
    /// open-type system calls.
    Opens,
    /// read-type system calls.
    Reads,
    /// Bytes read.
    Bytes,
    /// Time in file operations.
    FileTime,
    /// Serializations.
    Serializations,
    /// Time in them.
    SerializationTime,
    /// CPU samples.
    Samples,
    /// Time off the CPU with something to do.
    Blocked,
}

impl Figure {
    /// Each with its name on a command line and at the head of its column.
    const ALL: [(Figure, &'static str, &'static str); 18] = [
        (Figure::Own, "self", "self"),
        (Figure::Total, "total", "total"),
        (Figure::Resolve, "resolve", "resolve"),
        (Figure::Read, "read", "read"),
        (Figure::Compile, "compile", "compile"),
        (Figure::Execute, "execute", "execute"),
        (Figure::Crossings, "crossings", "crossings"),
        (Figure::CrossingTime, "crossing-time", "in C++"),
        (Figure::Lookups, "lookups", "lookups"),
        (Figure::Stats, "stats", "stats"),
        (Figure::Opens, "opens", "opens"),
        (Figure::Reads, "reads", "reads"),
        (Figure::Bytes, "bytes", "bytes"),
        (Figure::FileTime, "file-time", "in files"),
        (Figure::Serializations, "serializations", "values"),
        (
            Figure::SerializationTime,
            "serialization-time",
            "for values",
        ),
        (Figure::Samples, "samples", "samples"),
        (Figure::Blocked, "blocked", "blocked"),
    ];

    /// Names on a command line.
    pub const NAMES: [&'static str; 18] = {
        let mut names = [""; 18];
        let mut at = 0;
        while at < names.len() {
            names[at] = Figure::ALL[at].1;
            at += 1;
        }
        names
    };

    pub(super) fn title(self) -> &'static str {
        let entry = Figure::ALL.iter().find(|(figure, _, _)| *figure == self);
        entry.map_or("", |(_, _, title)| title)
    }

    fn is_time(self) -> bool {
        matches!(
            self,
            Figure::Own
                | Figure::Total
                | Figure::Resolve
                | Figure::Read
                | Figure::Compile
                | Figure::Execute
                | Figure::CrossingTime
                | Figure::FileTime
                | Figure::SerializationTime
                | Figure::Blocked
        )
    }

    /// A step of loading.
    fn is_step(self) -> bool {
        matches!(
            self,
            Figure::Resolve | Figure::Read | Figure::Compile | Figure::Execute
        )
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(name: &str) -> Result<Figure, String> {
        let entry = Figure::ALL.iter().find(|(_, known, _)| *known == name);
        entry.map(|(figure, _, _)| *figure).ok_or_else(|| {
            format!(
                "found {name:?}; needed: one of {}",
                Figure::NAMES.join(", ")
            )
        })
    }
}

/// What to show, and in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlameOptions {
    /// Modules or packages.
    pub by: By,
    /// Whose counts.
    pub role: Role,
    /// Highest first.
    pub sort: Figure,
    /// Rows; `None`: all.
    pub limit: Option<usize>,
}

/// A module or a package.
#[derive(Clone, Copy, Debug)]
pub enum Blamed<'a> {
    /// A module.
    Module(&'a ModuleProfile),
    /// A package.
    Package(&'a PackageProfile),
}

impl<'a> Blamed<'a> {
    /// Those of a run, the highest in the figure of the options first. Equal ones stay in the order of the profile.
    pub fn of_run(run: &'a RunProfile, options: &BlameOptions) -> Vec<Blamed<'a>> {
        let mut all: Vec<Blamed<'a>> = match options.by {
            By::Module => run.modules.iter().map(Blamed::Module).collect(),
            By::Package => run.packages.iter().map(Blamed::Package).collect(),
        };
        all.sort_by_key(|row| {
            let own = row.value(Figure::Own, options.role);
            Reverse((row.value(options.sort, options.role), own))
        });
        all
    }

    fn costs(&self, role: Role) -> &'a Costs {
        match (self, role) {
            (Blamed::Module(module), Role::Requirer) => &module.caused,
            (Blamed::Module(module), Role::Loaded) => &module.loading,
            (Blamed::Package(package), Role::Requirer) => &package.caused,
            (Blamed::Package(package), Role::Loaded) => &package.loading,
        }
    }

    fn uncertain(&self) -> u64 {
        match self {
            Blamed::Module(module) => module.uncertain_ns,
            Blamed::Package(package) => package.uncertain_ns,
        }
    }

    /// A figure.
    pub fn value(&self, figure: Figure, role: Role) -> u64 {
        /// The field of that name, of either.
        macro_rules! field {
            ($name:ident) => {
                match self {
                    Blamed::Module(module) => module.$name,
                    Blamed::Package(package) => package.$name,
                }
            };
        }
        let costs = self.costs(role);
        match figure {
            Figure::Own => field!(self_ns),
            Figure::Total => field!(total_ns),
            Figure::Resolve => field!(resolve_ns),
            Figure::Read => field!(read_ns),
            Figure::Compile => field!(compile_ns),
            Figure::Execute => field!(execute_ns),
            figure => of_costs(costs, figure),
        }
    }

    fn figure_cell(&self, figure: Figure, role: Role) -> Cell {
        Cell::text(figure_text(figure, self.value(figure, role)))
    }

    fn name(&self, base: &str) -> String {
        match self {
            Blamed::Module(module) => module_name(module, base),
            Blamed::Package(package) => package_name(package, base),
        }
    }

    /// Where it lies.
    fn place(&self) -> &'a str {
        match self {
            Blamed::Module(module) => &module.path,
            Blamed::Package(package) => package.directory.as_deref().unwrap_or_default(),
        }
    }

    /// Process and thread of a module.
    fn thread(&self) -> Option<(u32, u32)> {
        match self {
            Blamed::Module(module) => Some((module.pid, module.thread)),
            Blamed::Package(_) => None,
        }
    }

    /// Its name, and where it lies if others have the same; of a module that several threads loaded, which of them this one is of.
    fn name_cell(&self, base: &str, places: &Places<'_>) -> Cell {
        let name = self.name(base);
        let place = places.of.get(&name);
        let is_one_of_several = place.is_some_and(|place| place.others);
        match self {
            Blamed::Module(module) => {
                let query = printable(module.query.as_deref().unwrap_or_default());
                let of_threads = place.is_some_and(|place| place.threads);
                let name = match is_one_of_several {
                    true => seen_from(&module.path, base) + &query,
                    false => name,
                };
                let name = match of_threads {
                    true => {
                        Cell::branch(String::new(), name, thread_name(module, places.processes))
                    }
                    false => Cell::path(name),
                };
                match module.kind {
                    ModuleKind::Builtin => name.paint(Paint::Faint),
                    _ => name,
                }
            }
            Blamed::Package(_) if is_one_of_several && !self.place().is_empty() => {
                let place = seen_from(self.place(), base);
                Cell::branch(format!("{name}  "), place, String::new())
            }
            Blamed::Package(_) => Cell::text(name),
        }
    }
}

/// A figure of costs. What belongs to none of them alone (times of loading) is the CPU time.
pub(super) fn of_costs(costs: &Costs, figure: Figure) -> u64 {
    match figure {
        Figure::Crossings => costs.crossings,
        Figure::CrossingTime => costs.crossings_self_ns,
        Figure::Lookups => costs.lookups,
        Figure::Stats => costs.stats,
        Figure::Opens => costs.opens,
        Figure::Reads => costs.reads,
        Figure::Bytes => costs.bytes_read,
        Figure::FileTime => costs.files_ns,
        Figure::Serializations => costs.serializations,
        Figure::SerializationTime => costs.serialization_ns,
        Figure::Samples => costs.samples,
        Figure::Blocked => costs.blocked_ns,
        Figure::Own
        | Figure::Total
        | Figure::Resolve
        | Figure::Read
        | Figure::Compile
        | Figure::Execute => costs.cpu_ns,
    }
}

/// The share that a figure has of the largest; nothing for 0.
pub(super) fn bar(value: u64, most: u64) -> Cell {
    match value {
        0 => Cell::text(""),
        _ => Cell::bar(0.0, value as f64 / most.max(1) as f64),
    }
}

/// A figure as it stands in a table; nothing for 0.
pub(super) fn figure_text(figure: Figure, value: u64) -> String {
    match (value, figure) {
        (0, _) => String::new(),
        (_, Figure::Bytes) => bytes(value),
        _ if figure.is_time() => time(value),
        _ => number(value),
    }
}

/// What has a name.
struct Place<'a> {
    /// Where the first lies.
    first: &'a str,
    /// Others lie elsewhere.
    others: bool,
    /// Process and thread of the first.
    thread: Option<(u32, u32)>,
    /// Others are of another thread.
    threads: bool,
}

/// What the rows of a table are called.
struct Places<'a> {
    /// By name.
    of: HashMap<String, Place<'a>>,
    /// There are modules of several processes.
    processes: bool,
}

/// Of two versions of a package, or the same twice, both are called alike.
fn places<'a>(rows: &[Blamed<'a>], base: &str) -> Places<'a> {
    let mut of = HashMap::new();
    for row in rows {
        let place = of.entry(row.name(base)).or_insert(Place {
            first: row.place(),
            others: false,
            thread: row.thread(),
            threads: false,
        });
        place.others |= place.first != row.place();
        place.threads |= place.thread != row.thread();
    }
    let threads = rows.iter().filter_map(Blamed::thread);
    Places {
        of,
        processes: of_several_processes(threads.map(|(pid, _)| pid)),
    }
}

impl<'a> Report<'a> {
    /// The table of [`super::blame`].
    pub(super) fn blame(&mut self, options: &BlameOptions) {
        if self.run.modules.is_empty() {
            return self.no_modules();
        }
        let rows = Blamed::of_run(self.run, options);
        let what = match options.by {
            By::Module => counted(rows.len() as u64, "module"),
            By::Package => counted(rows.len() as u64, "package"),
        };
        let spent = rows
            .iter()
            .map(|row| row.value(Figure::Own, options.role))
            .fold(0, u64::saturating_add);
        let phrases = [
            plain(what),
            plain(format!("{} in all", time(spent))),
            faint(
                "times: to find, read, compile and run each itself; total: with all that it required",
            ),
            faint(match options.role {
                Role::Requirer => {
                    "counts: what its functions did, and Node because they asked (as requirer)"
                }
                Role::Loaded => "counts: what it took to load it, whoever asked (as loaded)",
            }),
        ];
        self.page.phrases("", &phrases, 0);
        let shown = options.limit.unwrap_or(rows.len());
        let all = rows.len();
        self.blame_table(rows, options, shown);
        self.page.more(
            shown,
            all,
            match options.by {
                By::Module => "module[|s]",
                By::Package => "package[|s]",
            },
        );
        self.bundles(options, options.limit, "");
        self.unattributed();
    }

    /// The first `shown` rows. The figure that they are sorted by comes first.
    pub(super) fn blame_table(
        &mut self,
        rows: Vec<Blamed<'_>>,
        options: &BlameOptions,
        shown: usize,
    ) {
        let mut figures = vec![options.sort];
        for figure in [
            Figure::Own,
            Figure::Total,
            Figure::Crossings,
            Figure::Lookups,
            Figure::Stats,
        ] {
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        }
        if options.sort.is_step() {
            figures
                .retain(|figure| figure.is_step() || matches!(figure, Figure::Own | Figure::Total));
            for figure in [
                Figure::Resolve,
                Figure::Read,
                Figure::Compile,
                Figure::Execute,
            ] {
                if !figures.contains(&figure) {
                    figures.push(figure);
                }
            }
        }
        let most = rows
            .first()
            .map_or(0, |row| row.value(figures[0], options.role));
        let mut columns = Vec::new();
        for (position, figure) in figures.iter().enumerate() {
            let column = Column::right(figure.title());
            columns.push(match position {
                0 => column,
                _ => column.drop(2 + position as u8),
            });
            if position == 0 {
                columns.push(Column::left("").flexible(6, 12).drop(12));
            }
            if *figure == Figure::Own {
                columns.push(Column::right("±").drop(11));
            }
        }
        columns.push(
            Column::right(match options.by {
                By::Module => "",
                By::Package => "modules",
            })
            .drop(9),
        );
        columns.push(Column::left("").drop(10));
        columns.push(
            Column::left(match options.by {
                By::Module => "module",
                By::Package => "package",
            })
            .flexible(28, 100),
        );
        columns.push(Column::left("version").drop(8));
        let mut table = Table::new(columns);
        let places = places(&rows, &self.base);
        for row in rows.iter().take(shown) {
            let mut cells = Vec::new();
            for (position, figure) in figures.iter().enumerate() {
                cells.push(row.figure_cell(*figure, options.role));
                if position == 0 {
                    cells.push(bar(row.value(*figure, options.role), most));
                }
                if *figure == Figure::Own {
                    cells.push(
                        Cell::text(match row.uncertain() {
                            0 => String::new(),
                            uncertain => time(uncertain),
                        })
                        .paint(Paint::Faint),
                    );
                }
            }
            let (modules, kind, version) = match row {
                Blamed::Module(module) => {
                    (String::new(), kind_name(module.kind), version_of(module))
                }
                Blamed::Package(package) => (number(package.modules), "", String::new()),
            };
            cells.push(Cell::text(modules));
            cells.push(Cell::text(kind).paint(Paint::Faint));
            cells.push(row.name_cell(&self.base, &places));
            cells.push(Cell::text(version).paint(Paint::Faint));
            table.row(cells);
        }
        self.page.table(&table);
    }
}

#[cfg(test)]
mod tests {
    use nodeprof_profile::modules::package::PackageKind;

    use super::*;
    use crate::table::Content;

    #[test]
    fn modules_and_packages_that_are_called_alike_say_where_they_lie() {
        let module = |directory: &str| ModuleProfile {
            path: format!("{directory}/index.js"),
            package_directory: Some(directory.to_owned()),
            ..ModuleProfile::default()
        };
        let package = |directory: &str| PackageProfile {
            name: Some("debug".to_owned()),
            kind: PackageKind::Installed,
            directory: Some(directory.to_owned()),
            ..PackageProfile::default()
        };
        let directories = [
            "/app/node_modules/a/node_modules/debug",
            "/app/node_modules/debug",
        ];
        let modules = directories.map(module);
        let packages = directories.map(package);
        let names = |rows: &[Blamed<'_>]| -> Vec<String> {
            let places = places(rows, "/app");
            let cells = rows
                .iter()
                .map(|row| row.name_cell("/app", &places).content);
            let shown = cells.map(|content| match content {
                Content::Text(text) | Content::Path(text) => text,
                Content::Branch(lines, name, remark) => lines + &name + &remark,
                Content::Bar(..) => String::new(),
            });
            shown.collect()
        };
        let [one, other] = [0, 1].map(|at| Blamed::Module(&modules[at]));
        assert_eq!(names(&[one, one]), ["debug/index.js", "debug/index.js"]);
        assert_eq!(
            names(&[one, other]),
            [
                "node_modules/a/node_modules/debug/index.js",
                "node_modules/debug/index.js"
            ]
        );
        let in_process = |pid: u32, thread: u32| ModuleProfile {
            pid,
            thread,
            ..module(directories[1])
        };
        let threads = [(7, 7), (7, 9), (8, 8)].map(|(pid, thread)| in_process(pid, thread));
        let [a, b, c] = [0, 1, 2].map(|at| Blamed::Module(&threads[at]));
        assert_eq!(names(&[a, a]), ["debug/index.js", "debug/index.js"]);
        assert_eq!(
            names(&[a, b, c]),
            [
                "debug/index.js  (process 7)",
                "debug/index.js  (thread 9 of process 7)",
                "debug/index.js  (process 8)"
            ]
        );
        // Of one process its number tells nothing.
        assert_eq!(
            names(&[a, b]),
            [
                "debug/index.js  (main thread)",
                "debug/index.js  (thread 9)"
            ]
        );
        let [one, other] = [0, 1].map(|at| Blamed::Package(&packages[at]));
        assert_eq!(names(&[one]), ["debug"]);
        assert_eq!(
            names(&[one, other]),
            [
                "debug  node_modules/a/node_modules/debug",
                "debug  node_modules/debug"
            ]
        );
    }
}
