//! Modules as a tree of requirers, and the chain in it that took longest.

use nodeprof_profile::modules::ModuleKind;
use nodeprof_profile::recording::LOOP_START;
use nodeprof_profile::report::{ModuleProfile, ProcessProfile, RunProfile};

use super::Report;
use super::names::{kind_name, module_name, of_several_processes, thread_name, version_of};
use super::page::{faint, plain};
use crate::paths::{columns, seen_from};
use crate::table::{Cell, Column, Paint, Table};
use crate::units::{counted, number, percent, signed_time, time};

/// Which modules of the tree to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// Levels below the first; `None`: all.
    pub depth: Option<usize>,
    /// Only modules with at least this total, ns, and what leads to them.
    pub least_ns: u64,
    /// Only modules of this package (its name), and what leads to them.
    pub package: Option<String>,
    /// Node's own modules, too.
    pub builtins: bool,
}

/// Which modules of the chain to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChainOptions {
    /// Also modules that took at most this much less than the slowest beside them, ns.
    pub fuzz_ns: u64,
}

/// The modules of one thread by requirer.
struct Tree<'a> {
    modules: &'a [ModuleProfile],
    /// By `id`.
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
}

impl<'a> Tree<'a> {
    fn new(modules: &'a [ModuleProfile]) -> Tree<'a> {
        let mut tree = Tree {
            modules,
            children: vec![Vec::new(); modules.len()],
            roots: Vec::new(),
        };
        for (index, module) in modules.iter().enumerate() {
            match module.requirer_id {
                // A requirer comes before what it required: no way leads in a circle.
                Some(requirer) if (requirer as usize) < index => {
                    tree.children[requirer as usize].push(index);
                }
                _ => tree.roots.push(index),
            }
        }
        // Their order is that of the first sight of their code; that of an ES module is found long before it is compiled.
        let start = |index: &usize| modules[*index].start_ns.unwrap_or(i64::MAX);
        for children in &mut tree.children {
            children.sort_by_key(start);
        }
        // Those of a thread stay together.
        for roots in tree.roots.chunk_by_mut(|&a, &b| {
            (modules[a].pid, modules[a].thread) == (modules[b].pid, modules[b].thread)
        }) {
            roots.sort_by_key(start);
        }
        tree
    }

    /// Takes out of the tree what was loaded when the body of its requirer had run, and those of all above it: by a callback, for which
    /// nobody waited. Returns how many modules of the program below `root` are not there any more.
    fn leave_out_later(&mut self, root: usize) -> u64 {
        let modules = self.modules;
        // When the last of it and those above it had run; `None`: they ran until the end, as far as is known.
        let mut ends: Vec<Option<i64>> = modules.iter().map(|m| m.end_latest_ns).collect();
        let mut is_later = vec![false; modules.len()];
        let mut is_below = vec![false; modules.len()];
        let mut later = 0;
        is_below[root] = true;
        for requirer in 0..modules.len() {
            self.children[requirer].retain(|&child| {
                let had_run = modules[child].start_ns.zip(ends[requirer]);
                let had_run = had_run.is_some_and(|(start, end)| start >= end);
                // One whose end was not seen has run before whoever waited for it.
                ends[child] = match (ends[requirer], ends[child]) {
                    (Some(end), None) if !had_run => Some(end),
                    // Whoever waited for it waited for the first of its loads; it ran again later.
                    (Some(end), Some(_)) if !had_run && modules[child].loads > 1 => Some(end),
                    (Some(end), Some(own)) => Some(end.max(own)),
                    _ => None,
                };
                is_below[child] = is_below[requirer];
                is_later[child] = is_later[requirer] || had_run;
                let of_program = modules[child].kind != ModuleKind::Builtin;
                later += u64::from(is_below[child] && is_later[child] && of_program);
                !had_run
            });
        }
        later
    }
}

/// Columns that a name should have, with the lines of the tree before it: other columns give way.
const NAME: usize = 40;

/// A row to write: a module, and the lines of the tree before its name.
struct Line {
    module: usize,
    lines: String,
    /// Modules below it that are not shown.
    hidden: usize,
}

impl Report<'_> {
    /// The table of [`super::tree`].
    pub(super) fn module_tree(&mut self, options: &TreeOptions) {
        if self.run.modules.is_empty() {
            return self.no_modules();
        }
        let tree = Tree::new(&self.run.modules);
        let wanted = self.wanted(&tree, options);
        let mut rows = Vec::new();
        let roots: Vec<usize> = (tree.roots.iter().copied())
            .filter(|&root| wanted[root])
            .collect();
        let mut open: Vec<(usize, usize, String, String)> = roots
            .iter()
            .rev()
            .map(|&root| (root, 0, String::new(), String::new()))
            .collect();
        while let Some((module, depth, lines, below)) = open.pop() {
            let mut children: Vec<usize> = tree.children[module]
                .iter()
                .copied()
                .filter(|&child| wanted[child])
                .collect();
            let mut hidden = 0;
            if options.depth.is_some_and(|most| depth >= most) {
                hidden = count_below(&tree, &wanted, module);
                children.clear();
            }
            rows.push(Line {
                module,
                lines,
                hidden,
            });
            for (position, &child) in children.iter().enumerate().rev() {
                let (branch, line) = match position + 1 == children.len() {
                    true => ("└─ ", "   "),
                    false => ("├─ ", "│  "),
                };
                open.push((
                    child,
                    depth + 1,
                    format!("{below}{branch}"),
                    format!("{below}{line}"),
                ));
            }
        }
        if rows.is_empty() {
            let of_package = |module: &&ModuleProfile| module.package == options.package;
            let mut there = self.run.modules.iter().filter(of_package).peekable();
            let sentence = match &options.package {
                Some(package) if there.peek().is_some() => {
                    match there.all(|module| module.kind == ModuleKind::Builtin) {
                        true if !options.builtins => format!(
                            "All modules of the package {package:?} are Node's own; type --builtins"
                        ),
                        _ => format!(
                            "No module of the package {package:?} is as slow as that; type a smaller --min"
                        ),
                    }
                }
                Some(package) if let Some(bundle) = self.bundle_with(package) => format!(
                    "The package {package:?} is in {}, which is one module; for what it did type: nodeprof blame FILE",
                    seen_from(bundle, &self.base)
                ),
                Some(package) => format!(
                    "No module of a package {package:?} was loaded; for the names of all packages type: nodeprof blame FILE"
                ),
                None if options.least_ns > 0 => {
                    "No module is as slow as that; type a smaller --min".to_owned()
                }
                None => self.no_program(),
            };
            return self.page.phrases("", &[plain(sentence)], 0);
        }
        let shown = rows.len();
        let phrases = [
            plain(format!(
                "{} of {}",
                number(shown as u64),
                counted(self.run.modules.len() as u64, "module")
            )),
            faint(self.left_out(options, shown)),
            faint("each below the one that required it first, in order of loading"),
            faint("counts: what its functions did, and Node because they asked (as requirer)"),
        ];
        self.page.phrases("", &phrases, 0);
        let several = self.has_several_threads();
        let processes = of_several_processes(self.run.modules.iter().map(|module| module.pid));
        let mut table = Table::new([
            Column::right("total"),
            Column::right("self"),
            Column::right("±").drop(7),
            Column::right("start").drop(6),
            Column::right("crossings").drop(3),
            Column::right("lookups").drop(5),
            Column::right("stats").drop(4),
            Column::left("").drop(8),
            Column::left("module").flexible(NAME, 140),
            Column::left("version").drop(2),
        ]);
        for Line {
            module,
            lines,
            hidden,
        } in rows
        {
            let of = &self.run.modules[module];
            let some = |count: u64| match count {
                0 => String::new(),
                count => number(count),
            };
            let mut remark = String::new();
            if lines.is_empty() && several {
                remark.push_str(&thread_name(of, processes));
            }
            if hidden > 0 {
                remark.push_str(&format!(" … {} below", number(hidden as u64)));
            }
            let name = Cell::branch(lines, module_name(of, &self.base), remark);
            table.row([
                Cell::text(time(of.total_ns)),
                Cell::text(time(of.self_ns)),
                Cell::text(time(of.uncertain_ns)).paint(Paint::Faint),
                Cell::text(of.start_ns.map(signed_time).unwrap_or_default()).paint(Paint::Faint),
                Cell::text(some(of.caused.crossings)),
                Cell::text(some(of.caused.lookups)),
                Cell::text(some(of.caused.stats)),
                Cell::text(kind_name(of.kind)).paint(Paint::Faint),
                match of.kind {
                    ModuleKind::Builtin => name.paint(Paint::Faint),
                    _ => name,
                },
                Cell::text(version_of(of)).paint(Paint::Faint),
            ]);
        }
        self.page.table(&table);
        self.unattributed();
    }

    /// By module: whether it or one below it is to be shown.
    fn wanted(&self, tree: &Tree<'_>, options: &TreeOptions) -> Vec<bool> {
        let mut wanted: Vec<bool> = tree
            .modules
            .iter()
            .map(|module| {
                let package = options.package.as_deref();
                (options.builtins || module.kind != ModuleKind::Builtin)
                    && module.total_ns >= options.least_ns
                    && package.is_none_or(|name| module.package.as_deref() == Some(name))
            })
            .collect();
        for index in (0..wanted.len()).rev() {
            if let Some(requirer) = tree.modules[index].requirer_id
                && wanted[index]
                && let Some(slot) = wanted.get_mut(requirer as usize)
            {
                *slot = true;
            }
        }
        wanted
    }

    fn has_several_threads(&self) -> bool {
        let mut threads = self.run.modules.iter().map(|m| (m.pid, m.thread));
        let first = threads.next();
        threads.any(|thread| Some(thread) != first)
    }

    /// The table of [`super::critical_chain`].
    pub(super) fn critical_chain(&mut self, options: &ChainOptions) {
        if self.run.modules.is_empty() {
            return self.no_modules();
        }
        let root = match self.main_script() {
            Ok(root) => root,
            Err(sentence) => return self.page.phrases("", &[plain(sentence)], 0),
        };
        let mut tree = Tree::new(&self.run.modules);
        let later = tree.leave_out_later(root);
        let waited = waited(&tree);
        let main = &self.run.modules[root];
        let had_run = had_run_at_the_end(self.run, main);
        let passed = (main.start_ns)
            .zip(self.end_of(main, had_run))
            .map_or(0, |(start, end)| end.saturating_sub(start).max(0) as u64);
        let whole = passed.max(waited[root]);
        let afterwards = match had_run {
            true => afterwards(main, waited[root]),
            false => 0,
        };
        let may_await = (self.run.modules.iter()).any(|module| module.kind == ModuleKind::EsModule);
        let pid = self.run.modules[root].pid;
        let of_process = match self.run.processes.iter().any(|p| p.main && p.pid != pid) {
            true => format!(" of process {pid}"),
            false => String::new(),
        };
        let until = match had_run {
            true => format!("the main module{of_process} had run"),
            false => self.why_it_had_not_run(main),
        };
        let phrases = [
            plain(format!(
                "{} until {until}",
                time(if afterwards > 0 { passed } else { whole })
            )),
            plain(match afterwards {
                0 => String::new(),
                _ => format!(
                    "{} of the chain after that, in what import() loads and it did not wait for",
                    time(afterwards)
                ),
            }),
            plain(self.besides(root, whole, waited[root])),
            faint("at each step the module that its requirer waited longest for"),
            faint("@ when its loading began, + time of it and of all that it required"),
            faint(if may_await {
                "+ is without what a top-level await waited for"
            } else {
                ""
            }),
            faint(match later {
                0 => String::new(),
                later => format!(
                    "without {} that {} loaded after it had run",
                    counted(later, "module"),
                    if later == 1 { "was" } else { "were" }
                ),
            }),
        ];
        self.page.phrases("", &phrases, 0);
        const OTHERS: &str = "others";
        let mut rows = Vec::new();
        // Other columns give way before the name of a file does.
        let mut least = NAME;
        let mut open = vec![(root, String::new(), String::new())];
        while let Some((module, lines, below)) = open.pop() {
            let of = &self.run.modules[module];
            let mut children: Vec<usize> = tree.children[module].clone();
            let required: u64 = children
                .iter()
                .map(|&child| waited[child])
                .fold(0, u64::saturating_add);
            // Stable: of equal ones the first that was loaded.
            children.sort_by_key(|&child| std::cmp::Reverse(waited[child]));
            let slowest = children.first().map_or(0, |&child| waited[child]);
            // What took less than a thousandth of the whole explains nothing.
            children.retain(|&child| {
                waited[child] > whole / 1_000 && slowest - waited[child] <= options.fuzz_ns
            });
            if options.fuzz_ns == 0 {
                children.truncate(1);
            }
            let followed: u64 = children.iter().map(|&child| waited[child]).sum();
            let others = required - followed;
            let name = module_name(of, &self.base);
            let file = name
                .rfind('/')
                .map_or(0, |at| columns("…/") + columns(&name[at + 1..]));
            least = least.max(columns(&lines) + file);
            let name = Cell::branch(lines, name, String::new());
            rows.push([
                Cell::text(
                    of.start_ns
                        .map_or(String::new(), |at| format!("@{}", signed_time(at))),
                )
                .paint(Paint::Faint),
                Cell::text(format!("+{}", time(waited[module]))).paint(match module == root {
                    true => Paint::Strong,
                    false => Paint::Plain,
                }),
                Cell::text(percent(waited[module], whole)),
                Cell::text(time(of.self_ns.saturating_sub(of.callback_ns))),
                Cell::text(match others {
                    0 => String::new(),
                    others => time(others),
                })
                .paint(Paint::Faint),
                match of.kind {
                    ModuleKind::Builtin => name.paint(Paint::Faint),
                    _ => name,
                },
                Cell::text(version_of(of)).paint(Paint::Faint),
            ]);
            for (position, &child) in children.iter().enumerate().rev() {
                let (branch, line) = match position + 1 == children.len() {
                    true => ("└─ ", "   "),
                    false => ("├─ ", "│  "),
                };
                open.push((child, format!("{below}{branch}"), format!("{below}{line}")));
            }
        }
        let mut table = Table::new([
            Column::right(""),
            Column::right(""),
            Column::right("share").drop(1),
            Column::right("self"),
            Column::right(OTHERS).drop(3),
            Column::left("module").flexible(least, 140),
            Column::left("version").drop(2),
        ]);
        rows.into_iter().for_each(|row| table.row(row));
        let begin = self.page.out.len();
        self.page.table(&table);
        let titles = self.page.out[begin..].lines().next().unwrap_or_default();
        if titles.contains(OTHERS) {
            self.page.note(&format!(
                "{OTHERS}: what the same module required besides, not followed here"
            ));
        }
    }

    /// When the body of a main module ended, halfway between the last that was seen of it and the first without it; or the trace of its
    /// process did.
    fn end_of(&self, main: &ModuleProfile, had_run: bool) -> Option<i64> {
        let body = main.end_earliest_ns.filter(|_| had_run).map(|earliest| {
            // It ran until the process ended.
            let latest = main.end_latest_ns.unwrap_or(earliest);
            earliest.saturating_add(latest.saturating_sub(earliest) / 2)
        });
        body.or_else(|| process_of(self.run, main)?.end_ns)
            .or_else(|| i64::try_from(self.run.time.wall_ns).ok())
    }

    /// Until when the time of the chain is, where the main module had not run.
    fn why_it_had_not_run(&self, main: &ModuleProfile) -> String {
        match process_of(self.run, main).filter(|process| process.end_ns.is_some()) {
            None => "the trace ended".to_owned(),
            Some(process) if is_unsettled(main, process) => format!(
                "the process ended with exit status {UNSETTLED}, as where a top-level await never settles"
            ),
            Some(_) => "the process ended; the main module did not run".to_owned(),
        }
    }

    /// What took the rest of the time `whole`, of which the main module `root` and all that it required took `waited`: modules that
    /// they did not require, as those of hooks and preloaded ones, with the time that they had then at least.
    fn besides(&self, root: usize, whole: u64, waited: u64) -> String {
        let rest = whole.saturating_sub(waited);
        // Less is what is uncertain.
        if rest <= whole / 50 {
            return String::new();
        }
        let modules = &self.run.modules;
        let main = &modules[root];
        let Some(start) = main.start_ns else {
            return String::new();
        };
        let end = start.saturating_add_unsigned(whole);
        let mut is_below = vec![false; modules.len()];
        let mut others: Vec<(&ModuleProfile, u64)> = Vec::new();
        for (index, module) in modules.iter().enumerate() {
            // A requirer comes before what it required.
            let requirer = module.requirer_id.map(|requirer| requirer as usize);
            is_below[index] = index == root
                || requirer.is_some_and(|requirer| requirer < index && is_below[requirer]);
            let is_of_thread = (module.pid, module.thread) == (main.pid, main.thread);
            if is_below[index] || !is_of_thread {
                continue;
            }
            // Of Node's own modules that is their loading alone. Others may have gone on in callbacks when the main module had run.
            let own = match module.kind {
                ModuleKind::Builtin => module.self_ns,
                _ => module.self_ns.saturating_sub(module.callback_ns),
            };
            let then = match (module.start_ns, module.end_latest_ns) {
                (Some(began), _) if began >= start && began < end => own,
                // What it took when it had been loaded itself.
                (Some(began), Some(ended)) if began < start && ended < end => {
                    own.saturating_sub(ended.saturating_sub(began).max(0) as u64)
                }
                _ => 0,
            };
            others.push((module, then.min(rest)));
        }
        others.retain(|(_, then)| *then > whole / 50);
        // Stable: of equal ones the first that was loaded.
        others.sort_by_key(|(_, then)| std::cmp::Reverse(*then));
        let names: Vec<String> = (others.iter().take(3))
            .map(|(module, then)| format!("{} in {}", time(*then), module_name(module, &self.base)))
            .collect();
        let known = match names.is_empty() {
            true => String::new(),
            false => format!(" (at least {})", names.join(", ")),
        };
        format!(
            "{} of it in no module of the chain or what these required{known}",
            time(rest)
        )
    }

    /// The bundle that a package is in.
    fn bundle_with(&self, package: &str) -> Option<&str> {
        let mut bundled = self.run.bundled_packages.iter();
        let of_name = bundled.find(|bundled| bundled.name.as_deref() == Some(package));
        of_name.map(|bundled| bundled.bundle.as_str())
    }

    /// What hides the modules that a tree does not show, of which there are so many.
    fn left_out(&self, options: &TreeOptions, shown: usize) -> String {
        let modules = &self.run.modules;
        let is_hidden = |module: &&ModuleProfile| module.kind == ModuleKind::Builtin;
        let builtins = match options.builtins {
            true => 0,
            false => modules.iter().filter(is_hidden).count(),
        };
        let others = modules.len().saturating_sub(shown + builtins);
        let filters: Vec<&str> = [
            ("--depth", options.depth.is_some()),
            ("--min", options.least_ns > 0),
            ("--package", options.package.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_given)| is_given.then_some(name))
        .collect();
        let mut left_out = Vec::new();
        if others > 0 && !filters.is_empty() {
            left_out.push(format!(
                "{} by {}",
                number(others as u64),
                filters.join(" and ")
            ));
        }
        if builtins > 0 {
            left_out.push(format!(
                "{} of Node's own (--builtins)",
                number(builtins as u64)
            ));
        }
        match left_out.is_empty() {
            true => String::new(),
            false => format!("left out: {}", left_out.join(", ")),
        }
    }

    /// The main script that the chain begins with: the main process's, or that of the only process that has one; or why there is none.
    fn main_script(&self) -> Result<usize, String> {
        let modules = &self.run.modules;
        let scripts: Vec<usize> = (0..modules.len())
            .filter(|&index| modules[index].main_script)
            .collect();
        let main = self.run.processes.iter().find(|process| process.main);
        let is_main = |&&index: &&usize| main.is_some_and(|main| modules[index].pid == main.pid);
        let root = match (scripts.iter().find(is_main), scripts.as_slice()) {
            (Some(&root), _) => root,
            (None, &[root]) => root,
            (None, []) => return Err(self.no_program()),
            (None, several) => {
                let pids = several.iter().map(|&index| modules[index].pid.to_string());
                return Err(format!(
                    "The main node process loaded no module of a program; type: --process PID, one of {}",
                    pids.collect::<Vec<_>>().join(", ")
                ));
            }
        };
        let thread = |module: &ModuleProfile| (module.pid, module.thread);
        let mut of_thread =
            (self.program_modules()).filter(|module| thread(module) == thread(&modules[root]));
        match of_thread.all(|module| module.kind == ModuleKind::Unknown) {
            true => Err(
                "Which modules ran is known, but not that they were loaded and by whom: there is no chain; for their times type: nodeprof blame FILE"
                    .to_owned(),
            ),
            false => Ok(root),
        }
    }

    /// That there are only modules of Node's own, or that none is the main script.
    fn no_program(&self) -> String {
        if self.program_modules().next().is_some() {
            return "No main script was loaded, with which the chain would begin: all modules of the program were loaded before it or without one; for what they took type: nodeprof blame FILE"
                .to_owned();
        }
        let mut pids = self.run.modules.iter().map(|module| module.pid);
        let first = pids.next();
        match first.filter(|&first| pids.all(|pid| pid == first)) {
            Some(pid) if self.run.processes.iter().any(|p| p.pid != pid) => {
                format!("Node loaded no module of a program in process {pid}.")
            }
            _ => "Node loaded no module of a program in this run.".to_owned(),
        }
    }
}

fn process_of<'r>(run: &'r RunProfile, module: &ModuleProfile) -> Option<&'r ProcessProfile> {
    let mut processes = run.processes.iter();
    processes.find(|process| process.pid == module.pid)
}

/// Exit status of a node whose main module waits at a top-level `await` for what cannot come any more.
const UNSETTLED: i32 = 13;

fn is_unsettled(main: &ModuleProfile, process: &ProcessProfile) -> bool {
    main.kind == ModuleKind::EsModule && process.exit_status == Some(UNSETTLED)
}

/// Whether node only looks for errors of syntax.
fn only_checks(process: &ProcessProfile) -> bool {
    let mut options = (process.command.iter().skip(1)).take_while(|word| word.starts_with('-'));
    options.any(|option| option == "--check" || option == "-c")
}

/// Whether a main module had run when the trace ended, as far as that is known: one whose process had ended had, unless that failed
/// before any of it was seen to run. Of an ES module it is not known where the trace ended as the event loop began: it may wait for an
/// `await` then, or for its imports.
pub(super) fn had_run_at_the_end(run: &RunProfile, main: &ModuleProfile) -> bool {
    let process = process_of(run, main);
    let goes_on = process.is_some_and(|process| process.end_ns.is_none());
    let is_es = main.kind == ModuleKind::EsModule;
    let never_will = process.is_some_and(|process| {
        let failed = process.exit_status != Some(0);
        (main.end_earliest_ns.is_none() && failed)
            || is_unsettled(main, process)
            || only_checks(process)
    });
    (!goes_on && !never_will)
        || (goes_on && main.end_latest_ns.is_some() && !(is_es && run.ended_by == LOOP_START))
}

/// How much of the time of a main module that had run, and of all that it required, is later than its end: of what an `import()` loads without an
/// `await` for it. Less than a fiftieth is what is uncertain.
fn afterwards(main: &ModuleProfile, waited: u64) -> u64 {
    let ran = (main.start_ns.zip(main.end_latest_ns)).filter(|_| main.end_earliest_ns.is_some());
    let ran = ran.map(|(start, end)| end.saturating_sub(start).max(0) as u64);
    let afterwards = ran.map_or(0, |ran| waited.saturating_sub(ran));
    match afterwards > waited / 50 {
        true => afterwards,
        false => 0,
    }
}

/// By module: its own time and that of all below it, but for callbacks, which nobody waited for.
fn waited(tree: &Tree<'_>) -> Vec<u64> {
    let mut waited: Vec<u64> = tree
        .modules
        .iter()
        .map(|module| module.self_ns.saturating_sub(module.callback_ns))
        .collect();
    for index in (0..waited.len()).rev() {
        for &child in &tree.children[index] {
            waited[index] = waited[index].saturating_add(waited[child]);
        }
    }
    waited
}

fn count_below(tree: &Tree<'_>, wanted: &[bool], module: usize) -> usize {
    let mut count = 0;
    let mut open = vec![module];
    while let Some(module) = open.pop() {
        let children = tree.children[module].iter().filter(|&&child| wanted[child]);
        for &child in children {
            count += 1;
            open.push(child);
        }
    }
    count
}
