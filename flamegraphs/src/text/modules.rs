//! The report's sections on modules and packages.

use nodeprof_profile::modules::{Bucket, ModuleKind};
use nodeprof_profile::report::ModuleProfile;

use super::blame::{BlameOptions, Blamed, By, Figure, Role};
use super::names::kinds;
use super::page::{faint, plain, warning};
use super::{Report, TOP_SHORT};
use crate::table::{Cell, Column, Table};
use crate::units::{counted, number, percent, time};

impl<'a> Report<'a> {
    /// Says why there is nothing to blame, and what to type.
    pub(super) fn no_modules(&mut self) {
        let reason = match (self.not_blamed(), self.run.node.is_some()) {
            (Some(reason), _) => reason,
            (None, false) => "No process of this run ran node.".to_owned(),
            (None, true) => {
                "No JavaScript ran in this run, so nothing can be blamed on anyone.".to_owned()
            }
        };
        self.page.phrases("", &[warning(reason)], 0);
    }

    /// Why it is not known which modules a run loaded; nothing where there were none.
    pub(super) fn not_blamed(&self) -> Option<String> {
        let run = self.run;
        if !run.modules.is_empty() {
            return None;
        }
        if let Some(reason) = self.off("stacks") {
            return Some(format!("Stacks are {reason}"));
        }
        // Without node there are none.
        run.node.as_ref()?;
        if run.mode == nodeprof_profile::groups::COUNT_MODE {
            return Some("Count mode records no stacks, so nothing can be blamed on anyone; record again without it: nodeprof trace -- COMMAND".to_owned());
        }
        // Where neither was to be recorded, nothing tells that it did not.
        let ran = run.milestones.bootstrap_complete.is_some()
            || run.crossings.total > 0
            || run.ended_by == "import"
            || self.off("phases").is_some()
            || self.off("crossings").is_some();
        if !ran {
            return None;
        }
        // Of a sample without a stack it is not known what was done.
        let samples = &run.samples;
        if samples.cpu_ns > samples.by_kind.unknown_ns {
            let again = match run.ended_by.as_str() {
                "import" => {
                    "record again with names for JavaScript: perf record -F 997 -g -- node --perf-basic-prof --interpreted-frames-native-stack app.js"
                }
                _ => "record again: nodeprof trace -- COMMAND",
            };
            return Some(format!(
                "No JavaScript frame is on any stack of this recording, so nothing can be blamed on anyone; {again}"
            ));
        }
        Some("This recording holds no stacks, so nothing can be blamed on anyone; record again: nodeprof trace -- COMMAND".to_owned())
    }

    /// Packages, then modules: a few of each.
    pub(super) fn modules(&mut self) {
        if self.run.modules.is_empty() {
            return;
        }
        let own: Vec<&ModuleProfile> = self.program_modules().collect();
        let options = BlameOptions {
            by: By::Package,
            role: Role::Requirer,
            sort: Figure::Own,
            limit: None,
        };
        let packages = self.run.packages.len();
        if packages > 1 {
            let phrases = [
                plain(format!(
                    "{} with {}",
                    counted(packages as u64, "package"),
                    counted(self.run.modules.len() as u64, "module")
                )),
                faint("time of their modules; calls that their functions caused"),
            ];
            self.page.section("Packages", &phrases);
            let rows = Blamed::of_run(self.run, &options);
            self.blame_table(rows, &options, super::TOP);
            self.page
                .more(super::TOP, packages, "package[|s]: nodeprof blame FILE");
        }
        self.bundles(&options, Some(TOP_SHORT), ": nodeprof blame FILE");
        let builtin = self.run.modules.len() - own.len();
        let spent = self.run.modules.iter().map(|module| module.self_ns);
        let mut phrases = vec![
            plain(format!("{} loaded", counted(own.len() as u64, "module"))),
            plain(kinds(own.iter().copied())),
            plain(format!("and {} of Node's own", number(builtin as u64))),
            plain(format!(
                "{} in all",
                time(spent.fold(0, u64::saturating_add))
            )),
        ];
        if builtin == 0 {
            phrases.remove(2);
        }
        self.page.section("Modules", &phrases);
        let options = BlameOptions {
            by: By::Module,
            ..options
        };
        let rows = Blamed::of_run(self.run, &options);
        let all = rows.len();
        self.blame_table(rows, &options, TOP_SHORT);
        self.page.more(
            TOP_SHORT,
            all,
            "module[|s]: nodeprof tree FILE, nodeprof blame FILE --by module",
        );
        self.unattributed();
    }

    /// CPU samples and waits, which flame graphs show.
    pub(super) fn samples(&mut self) {
        let samples = &self.run.samples;
        if samples.count == 0 {
            return self.empty("CPU samples", "cpu");
        }
        let of_modules = self.run.modules.iter().map(|module| &module.caused);
        // Threads of the pool and of V8 wait for each other most of their time, a shell for what it has started.
        let outside = self.run.outside.iter();
        let outside = outside.filter(|outside| {
            !matches!(
                outside.bucket,
                Bucket::HelperThreads | Bucket::OtherPrograms
            )
        });
        let waits = of_modules.chain(outside.map(|outside| &outside.costs));
        let blocked = waits
            .map(|costs| costs.blocked_ns)
            .fold(0, u64::saturating_add);
        let mut phrases = vec![
            plain(counted(samples.count, "sample")),
            plain(format!("{} on a CPU", time(samples.cpu_ns))),
        ];
        if blocked > 0 {
            phrases.push(plain(format!(
                "{} of JavaScript threads off it with something to do",
                time(blocked)
            )));
        }
        let metric = match self.off("off-cpu") {
            Some(_) => "cpu",
            None => "wall",
        };
        let see = format!("to see where: nodeprof flame FILE --of {metric}");
        phrases.push(faint(see));
        self.page.section("CPU samples", &phrases);
        let kinds = samples.by_kind;
        let mut kinds = [
            ("JavaScript of the program", kinds.javascript_ns),
            ("JavaScript of Node", kinds.node_javascript_ns),
            ("V8's builtins", kinds.builtins_ns),
            ("WebAssembly", kinds.webassembly_ns),
            ("misses of inline caches", kinds.inline_cache_misses_ns),
            ("compiling scripts", kinds.eager_compilation_ns),
            (
                "compiling functions at their first call",
                kinds.lazy_compilation_ns,
            ),
            ("compiling to baseline code", kinds.baseline_compilation_ns),
            ("optimizing", kinds.optimizing_compilation_ns),
            (
                "compiling WebAssembly, with reading and instantiating",
                kinds.webassembly_compilation_ns,
            ),
            (
                "deserializing snapshots and code caches",
                kinds.deserialization_ns,
            ),
            ("collecting garbage", kinds.garbage_collection_ns),
            ("other C++", kinds.native_ns),
            ("kernel", kinds.kernel_ns),
            ("kernel, for the probes of this trace", kinds.tracing_ns),
            ("not known", kinds.unknown_ns),
        ];
        kinds.sort_by_key(|&(_, spent)| std::cmp::Reverse(spent));
        let mut table = Table::new([
            Column::right("time"),
            Column::right("share"),
            Column::left("on the CPU with"),
        ]);
        for (kind, spent) in kinds.into_iter().filter(|&(_, spent)| spent > 0) {
            table.row([
                Cell::text(time(spent)),
                Cell::text(percent(spent, samples.cpu_ns)),
                Cell::text(kind),
            ]);
        }
        self.page.table(&table);
    }

    /// Modules other than Node's own.
    pub(super) fn program_modules(&self) -> impl Iterator<Item = &'a ModuleProfile> + use<'a> {
        let modules = self.run.modules.iter();
        modules.filter(|module| module.kind != ModuleKind::Builtin)
    }

    /// How much is nobody's, if it is worth a word.
    pub(super) fn unattributed(&mut self) {
        let attribution = &self.run.attribution;
        let lost = self.run.outside.iter();
        let lost = lost.filter(|o| o.bucket == Bucket::NoStack);
        let (crossings, samples) = lost.fold((0, 0), |(crossings, samples), o| {
            (crossings + o.costs.crossings, samples + o.costs.samples)
        });
        for (share, what, lost) in [
            (
                attribution.unattributed_crossings_percent,
                "crossings",
                crossings,
            ),
            (
                attribution.unattributed_samples_percent,
                "CPU samples",
                samples,
            ),
        ] {
            if let Some(share) = share.filter(|share| *share > 2.0) {
                let why = match lost {
                    0 => "no function of the program is on their stacks",
                    _ => "their stacks are not known, or no function of the program is on them",
                };
                self.page.sentence(
                    &format!("{share:.1}% of the {what} are nobody's: {why}."),
                    crate::table::Paint::Warning,
                );
            }
        }
    }
}
