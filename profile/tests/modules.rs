//! Modules found in programs of which every step and cost is known.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;

use common::bundled;
use nodeprof_profile::Recording;
use nodeprof_profile::breakdown::Timeline;
use nodeprof_profile::modules::package::PackageKind;
use nodeprof_profile::modules::{Bucket, Costs, Module, ModuleKind, Modules};
use nodeprof_profile::recording::{
    FileOperation, FrameId, FrameKind, Import, NameId, Nanoseconds, Sample, Stack, StackId, Tier,
};
use nodeprof_profile::synthetic::program::{Program, START, Told};

/// What was found, by path.
struct Found {
    modules: Modules,
    by_path: BTreeMap<String, usize>,
}

impl Found {
    fn new(recording: &Recording) -> Found {
        recording.check_references().unwrap();
        let modules = Modules::new(recording, &Timeline::new(recording));
        let path = |module: &Module| {
            let script = modules.script(module);
            let key = [script.path.as_slice(), &script.suffix].concat();
            String::from_utf8(key).unwrap()
        };
        let by_path = modules.list.iter().enumerate();
        let by_path = by_path.map(|(index, m)| (path(m), index)).collect();
        Found { modules, by_path }
    }

    fn module(&self, path: &str) -> &Module {
        let index = self.by_path.get(path);
        let index = index.unwrap_or_else(|| panic!("no {path} in {:?}", self.by_path.keys()));
        &self.modules.list[*index]
    }

    fn requirer(&self, path: &str) -> Option<&str> {
        let requirer = self.module(path).requirer?.0 as usize;
        let found = self.by_path.iter().find(|(_, index)| **index == requirer);
        found.map(|(path, _)| path.as_str())
    }

    fn package(&self, path: &str) -> (Option<&str>, Option<&str>, &str, PackageKind) {
        let package = &self.modules.packages[self.module(path).package];
        (
            package.identity.name.as_deref(),
            package.identity.version.as_deref(),
            std::str::from_utf8(&package.key.directory).unwrap(),
            package.key.kind,
        )
    }
}

/// Checks what was found against what was done: all modules and no other, their requirers, every count, and the times
/// within the bounds that are stated.
fn check(program: Program) -> (Recording, Found) {
    let requirers = program.requirers.clone();
    let (recording, ledger) = program.end();
    let found = Found::new(&recording);
    let paths: Vec<&String> = found.by_path.keys().collect();
    assert_eq!(paths, requirers.keys().collect::<Vec<_>>(), "modules");
    for (path, requirer) in &requirers {
        assert_eq!(
            found.requirer(path),
            requirer.as_deref(),
            "requirer of {path}"
        );
        let told = ledger.get(path).copied().unwrap_or_default();
        let module = found.module(path);
        assert_eq!(module.caused, told.caused, "{path} as requirer");
        assert_eq!(module.loading, told.loading, "{path} as loaded");
        let Told {
            resolve_ns,
            read_ns,
            compile_ns,
            execute_ns,
            ..
        } = told;
        let own = resolve_ns + read_ns + compile_ns + execute_ns;
        let bound = module.uncertain_ns;
        assert!(
            own.abs_diff(module.self_ns()) <= bound,
            "{path} took {own} ns, found {}, uncertain {bound}",
            module.self_ns()
        );
        // Where a step ends within one load is not seen either: a few gaps between events.
        for (step, told, found) in [
            ("resolve", resolve_ns, module.resolve_ns),
            ("read", read_ns, module.read_ns),
            ("compile", compile_ns, module.compile_ns),
            ("execute", execute_ns, module.execute_ns),
        ] {
            assert!(
                told.abs_diff(found) <= bound + 300,
                "{path}: {step} took {told} ns, found {found}, uncertain {bound}"
            );
        }
    }
    // Every moment belongs to one module or to a named bucket.
    let own: u64 = found.modules.list.iter().map(Module::self_ns).sum();
    let outside: u64 = found.modules.outside[0].time_ns.values().sum();
    let (first, last) = points(&recording);
    let teardown =
        (recording.processes[0].exited.unwrap().0).saturating_sub(last.max(loop_exit(&recording)));
    assert_eq!(own + outside, last - first + teardown, "times add up");
    // Every event is counted once.
    let all = found.modules.all[0];
    assert_eq!(
        all.crossings,
        count(&recording.crossings, |c| c.kind as u8 != 4)
    );
    assert_eq!(all.lookups, recording.lookups.len() as u64);
    assert_eq!(
        all.stats,
        count(&recording.files, |f| f.operation == FileOperation::Stat)
    );
    assert_eq!(all.samples, recording.samples.len() as u64);
    (recording, found)
}

fn count<T>(list: &[T], which: impl Fn(&T) -> bool) -> u64 {
    list.iter().filter(|item| which(item)).count() as u64
}

fn loop_exit(recording: &Recording) -> u64 {
    let exits = recording.milestones.iter().rev();
    let mut exits = exits.filter(|milestone| milestone.name == "loop_exit");
    exits.next().unwrap().at.0
}

/// First and last instant of the main thread at which its stack is known.
fn points(recording: &Recording) -> (u64, u64) {
    let mut points: Vec<u64> = Vec::new();
    let mut add = |at: Nanoseconds, duration: Option<Nanoseconds>, stack: Option<StackId>| {
        if stack.is_some() {
            points.push(at.0);
            points.extend(duration.map(|duration| at.0 + duration.0));
        }
    };
    for c in &recording.crossings {
        add(c.start, c.duration.filter(|d| d.0 >= 2_000), c.stack);
    }
    for f in &recording.files {
        add(f.start, Some(f.duration), f.stack);
    }
    for c in &recording.compilations {
        add(c.start, c.duration, c.stack);
    }
    for l in &recording.lookups {
        add(l.at, None, l.stack);
    }
    for s in &recording.samples {
        add(s.at, None, s.stack);
    }
    for s in &recording.serializations {
        add(s.start, None, s.stack);
    }
    (*points.iter().min().unwrap(), *points.iter().max().unwrap())
}

/// Work with events all along, as real code has.
fn work(program: &mut Program, times: usize) {
    for _ in 0..times {
        program.busy(20_000);
        program.cross("util", "GetOwnNonIndexProperties", 3_000);
        program.serialize(120, 700);
        program.cross("buffer", "ByteLengthUtf8", 9_000);
    }
}

const MAIN: &str = "/app/main.js";

#[test]
fn costs_are_those_of_whoever_required_and_of_what_was_loaded() {
    for sampled in [false, true] {
        let mut p = Program::new(MAIN, sampled);
        p.require(MAIN, &[], 90_000, |p| {
            work(p, 3);
            p.require(
                "/app/node_modules/a/index.js",
                &["/app/node_modules/a", "/app/a"],
                200_000,
                |p| {
                    work(p, 5);
                    p.require("/app/node_modules/a/lib/deep.js", &[], 50_000, |p| {
                        work(p, 20)
                    });
                    p.file(FileOperation::Stat, "/etc/hosts", 0, 8_000);
                    p.lookup("/app/node_modules/a/package.json");
                },
            );
            work(p, 2);
            p.require("/app/node_modules/@s/b/b.js", &[], 30_000, |p| {
                p.require(
                    "/app/node_modules/@s/b/node_modules/a/index.js",
                    &[],
                    10_000,
                    |p| {
                        work(p, 1);
                    },
                );
                work(p, 4);
            });
            work(p, 1);
        });
        let (_, found) = check(p);
        assert_eq!(found.module(MAIN).kind, ModuleKind::CommonJs);
        assert_eq!(found.module(MAIN).loads, 1);
        let a = found.module("/app/node_modules/a/index.js");
        assert_eq!((a.caused.lookups, a.caused.stats), (1, 2));
        assert_eq!(a.loading.stats, 3, "two in vain, one found");
        let package = |path| found.package(path);
        assert_eq!(
            package("/app/node_modules/@s/b/b.js"),
            (
                Some("@s/b"),
                None,
                "/app/node_modules/@s/b",
                PackageKind::Installed
            )
        );
        assert_eq!(
            package("/app/node_modules/@s/b/node_modules/a/index.js").2,
            "/app/node_modules/@s/b/node_modules/a"
        );
        assert_eq!(package(MAIN), (None, None, "", PackageKind::Application));
    }
}

#[test]
fn totals_are_sums_over_what_was_required() {
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| {
        p.require("/app/a.js", &[], 10_000, |p| {
            p.require("/app/b.js", &[], 10_000, |p| work(p, 9));
            work(p, 1);
        });
        p.require("/app/c.js", &[], 10_000, |p| work(p, 1));
    });
    let (_, found) = check(p);
    let own = |path: &str| found.module(path).self_ns();
    let (a, b, c) = (own("/app/a.js"), own("/app/b.js"), own("/app/c.js"));
    assert_eq!(found.module("/app/a.js").total_ns, a + b);
    assert_eq!(found.module(MAIN).total_ns, own(MAIN) + a + b + c);
}

#[test]
fn a_body_ends_between_the_last_event_with_it_and_the_next_without() {
    let mut p = Program::new(MAIN, false);
    let mut ends = (0, 0, 0);
    p.require(MAIN, &[], 50_000, |p| {
        p.require("/app/a.js", &[], 10_000, |p| {
            p.cross("fs", "X", 7_000);
            ends.0 = p.now();
            p.busy(40_000);
            ends.1 = p.now();
        });
        p.busy(30_000);
        p.cross("fs", "Y", 6_000);
        ends.2 = p.now();
    });
    let (_, found) = check(p);
    let a = found.module("/app/a.js");
    let (earliest, latest) = (a.end_earliest.unwrap().0, a.end_latest.unwrap().0);
    assert!(earliest <= ends.0 && ends.0 - earliest <= 200);
    assert!(earliest <= ends.1 && ends.1 <= latest);
    assert!(latest <= ends.2 && latest - ends.1 >= 30_000);
    // The main module ran until its end: nothing tells when that was.
    assert_eq!(found.module(MAIN).end_latest, None);
}

#[test]
fn a_module_without_any_event_is_found_and_its_end_is_bounded() {
    let mut p = Program::new(MAIN, false);
    p.require(MAIN, &[], 50_000, |p| {
        p.require("/app/constant.js", &[], 10_000, |p| p.busy(3_000));
        work(p, 1);
    });
    let (_, found) = check(p);
    let module = found.module("/app/constant.js");
    let ran = module.end_latest.unwrap().0 - module.end_earliest.unwrap().0;
    assert!((3_000..40_000).contains(&ran), "{ran}");
}

#[test]
fn a_module_that_a_function_requires_later_is_that_functions() {
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| {
        p.require("/app/node_modules/a/index.js", &[], 10_000, |p| work(p, 1));
        p.require("/app/node_modules/b/index.js", &[], 10_000, |p| {
            work(p, 1);
            // b calls a function of a, which loads its parser only now.
            p.function("parse", "/app/node_modules/a/index.js", 30, |p| {
                work(p, 1);
                p.require("/app/node_modules/a/parser.js", &[], 80_000, |p| work(p, 3));
                work(p, 2);
            });
            work(p, 1);
        });
    });
    let (_, found) = check(p);
    let b = found.module("/app/node_modules/b/index.js");
    // Although it ran inside of b's body, it is not among what b pulled in.
    assert_eq!(b.total_ns, b.self_ns());
}

#[test]
fn cycles_do_no_harm() {
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| {
        p.require("/app/a.js", &[], 10_000, |p| {
            work(p, 1);
            p.require("/app/b.js", &[], 10_000, |p| {
                work(p, 1);
                // a is there already, half done.
                p.require_again("/app/a.js");
                work(p, 1);
            });
            work(p, 1);
        });
        p.require_again("/app/b.js");
        work(p, 1);
    });
    check(p);
}

#[test]
fn looking_for_what_is_not_there_is_the_requirers_own_doing() {
    let mut p = Program::new(MAIN, false);
    let asked = ["/app/node_modules/optional", "/node_modules/optional"];
    p.require(MAIN, &[], 50_000, |p| {
        work(p, 1);
        p.require_in_vain(&asked);
        p.cross("util", "X", 3_000);
        p.require("/app/a.js", &[], 10_000, |p| work(p, 1));
        p.cross("util", "X", 3_000);
    });
    let (_, found) = check(p);
    assert_eq!(found.module("/app/a.js").loading.stats, 1);
    let vain = found.module(MAIN).vain_ns;
    assert!((6_000..8_000).contains(&vain), "{vain}");
}

#[test]
fn who_asks_for_what_is_there_is_in_no_doubt() {
    let mut p = Program::new(MAIN, false);
    let main = |p: &mut Program| {
        work(p, 1);
        for _ in 0..3 {
            p.busy(1_000_000);
            p.require_in_vain(&["/app/node_modules/optional"]);
        }
        p.busy(1_000_000);
        work(p, 1);
    };
    p.native("node::LoadEnvironment", |p| {
        p.call_javascript(|p| p.require(MAIN, &[], 50_000, main));
    });
    let (_, found) = check(p);
    let main = found.module(MAIN);
    assert!(main.execute_ns >= 4_000_000, "{}", main.execute_ns);
    assert!(main.uncertain_ns < 100_000, "{}", main.uncertain_ns);
}

#[test]
fn json_add_ons_and_nodes_own_modules_are_modules() {
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| {
        p.cross("util", "X", 3_000);
        p.require_json("/app/data.json");
        p.cross("util", "X", 3_000);
        p.require_add_on("/app/node_modules/native/build/Release/a.node", 700_000);
        p.cross("util", "X", 3_000);
        p.require_builtin("http", 60_000, |p| {
            p.cross("http_parser", "X", 5_000);
            p.require_builtin("internal/http", 20_000, |p| p.cross("util", "X", 900));
            p.cross("http_parser", "Y", 5_000);
        });
        p.cross("util", "X", 3_000);
        // Reading data is not loading a module.
        p.read_file("/app/other.json");
        p.read_file("/app/data.json");
    });
    let (_, found) = check(p);
    let kind = |path| found.module(path).kind;
    assert_eq!(kind("/app/data.json"), ModuleKind::Json);
    assert_eq!(
        kind("/app/node_modules/native/build/Release/a.node"),
        ModuleKind::AddOn
    );
    assert_eq!(kind("node:http"), ModuleKind::Builtin);
    assert!(
        found
            .modules
            .script(found.module("node:internal/http"))
            .is_internal()
    );
    assert!(
        !found
            .modules
            .script(found.module("node:http"))
            .is_internal()
    );
    assert_eq!(
        found.package("node:http"),
        (Some("node"), Some("20.20.2"), "", PackageKind::Node)
    );
}

#[test]
fn a_package_json_that_is_required_is_not_what_is_looked_at_for_each_module() {
    let json = "/app/node_modules/a/package.json";
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| {
        work(p, 1);
        p.look_at(json);
        p.require("/app/node_modules/a/index.js", &[], 30_000, |p| {
            work(p, 1);
            for name in ["b", "c", "d"] {
                let path = format!("/app/node_modules/a/{name}.js");
                p.require(&path, &[], 10_000, |p| work(p, 1));
            }
        });
        p.require_json(json);
        work(p, 1);
    });
    let (_, found) = check(p);
    let json = found.module(json);
    assert_eq!((json.kind, json.loading.stats), (ModuleKind::Json, 1));
    let [requirer, json] =
        [MAIN, "/app/node_modules/a/package.json"].map(|path| found.module(path));
    assert!(json.start.unwrap() > requirer.execute_start.unwrap());
    let [last, json] = [
        "/app/node_modules/a/d.js",
        "/app/node_modules/a/package.json",
    ]
    .map(|path| found.module(path).start.unwrap());
    assert!(json > last, "it begins when it is required");
}

#[test]
fn es_modules_belong_to_who_imports_them() {
    let url = |path: &str| format!("file:///app/{path}");
    let mut p = Program::new("/app/main.mjs", true);
    p.load_esm(&url("main.mjs"), None, 60_000);
    p.load_esm(&url("a%20b.mjs"), Some(&url("main.mjs")), 20_000);
    p.load_esm(&url("x.mjs?v=1"), Some(&url("main.mjs")), 20_000);
    p.load_esm(&url("x.mjs?v=2"), Some(&url("a%20b.mjs")), 20_000);
    for path in ["x.mjs?v=2", "a%20b.mjs", "x.mjs?v=1", "main.mjs"] {
        p.evaluate(&url(path), |p| work(p, 2));
    }
    // The ledger knows modules by their path as it is written.
    let rename = |path: &str| path.replace("%20", " ");
    p.requirers = (p.requirers.iter())
        .map(|(path, requirer)| (rename(path), requirer.as_deref().map(rename)))
        .collect();
    let (recording, ledger) = p.end();
    let found = Found::new(&recording);
    assert_eq!(found.by_path.len(), 4);
    assert_eq!(found.requirer("/app/a b.mjs"), Some("/app/main.mjs"));
    assert_eq!(found.requirer("/app/x.mjs?v=2"), Some("/app/a b.mjs"));
    assert_eq!(found.requirer("/app/x.mjs?v=1"), Some("/app/main.mjs"));
    assert_eq!(found.requirer("/app/main.mjs"), None);
    for module in &found.modules.list {
        assert_eq!(module.kind, ModuleKind::EsModule);
    }
    let main = found.module("/app/main.mjs");
    let told = ledger["/app/main.mjs"];
    assert_eq!(
        main.caused, told.caused,
        "loading of what it imports, and its own"
    );
    assert_eq!(main.loading, told.loading);
    assert!(main.execute_ns.abs_diff(told.execute_ns) <= main.uncertain_ns);
    // What nobody imports is asked for by Node.
    assert_eq!(found.modules.outside[0].costs[&Bucket::Loader].lookups, 1);
}

/// It is not only looked at, as where Node compiles a file to see whether it is CommonJS.
#[test]
fn a_main_script_that_node_has_in_itself_is_loaded() {
    for by in [
        ("embedderRunCjs", "node:internal/main/embedding"),
        ("embedderRunCjs", "node:internal/util/embedding"),
        ("minimalRunCjs", "node:internal/main/mksnapshot"),
    ] {
        let mut p = Program::new(MAIN, true);
        p.native("node::LoadEnvironment", |p| {
            p.call_javascript(|p| p.run_embedded(MAIN, by, 700_000, |p| work(p, 2)));
        });
        let found = Found::new(&p.end().0);
        let main = found.module(MAIN);
        assert_eq!((main.kind, main.loads), (ModuleKind::CommonJs, 1), "{by:?}");
        assert!(main.compile_ns >= 700_000, "{}, {by:?}", main.compile_ns);
        assert!(main.main_script, "{by:?}");
    }
}

/// A runner of tests runs files by `vm`, and Node loads some of them for another module.
#[test]
fn a_file_that_node_loads_is_a_module_whoever_ran_it_before() {
    let (ran, both) = ("/app/ran.js", "/app/both.js");
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| {
        p.run_script(ran, 20_000, |p| work(p, 1));
        p.run_script(both, 20_000, |p| work(p, 1));
        p.require(both, &[], 20_000, |p| work(p, 1));
    });
    let found = Found::new(&p.end().0);
    let kind = |path: &str| (found.module(path).kind, found.module(path).loads);
    assert_eq!(kind(ran), (ModuleKind::Script, 1));
    assert_eq!(kind(both), (ModuleKind::CommonJs, 2));
}

#[test]
fn an_es_module_that_only_imports_has_run_when_what_it_imports_has() {
    let url = |path: &str| format!("file:///app/{path}");
    let uncaught = "node::errors::TriggerUncaughtException(v8::Isolate*, v8::Local<v8::Value>)";
    for fails in [false, true] {
        let mut p = Program::new("/app/main.mjs", true);
        // A circle, and a module that does nothing at all.
        p.load_esm(&url("main.mjs"), None, 60_000);
        p.load_esm(&url("index.mjs"), Some(&url("main.mjs")), 20_000);
        p.load_esm(&url("types.mjs"), Some(&url("index.mjs")), 20_000);
        p.load_esm(&url("main.mjs"), Some(&url("index.mjs")), 60_000);
        p.load_esm(&url("first.mjs"), Some(&url("index.mjs")), 20_000);
        p.load_esm(&url("last.mjs"), Some(&url("index.mjs")), 20_000);
        for path in ["first.mjs", "last.mjs"] {
            p.evaluate(&url(path), |p| work(p, 2));
        }
        match fails {
            true => p.native(uncaught, |p| p.busy(3_000_000)),
            // Long after the start.
            false => p.native("uv_run", |p| {
                p.busy(50_000_000);
                p.call_javascript(|p| {
                    p.function("later", "/app/last.mjs", 9, |p| work(p, 1));
                });
            }),
        }
        let (recording, _) = p.end();
        let found = Found::new(&recording);
        let ends = |path: &str| {
            let module = found.module(path);
            (module.end_earliest, module.end_latest)
        };
        let last = ends("/app/last.mjs");
        assert!(last.0.is_some() && last.1.is_some());
        let expected = if fails { (None, None) } else { last };
        for path in ["/app/main.mjs", "/app/index.mjs"] {
            assert_eq!(ends(path), expected, "{path}, fails: {fails}");
            assert_eq!(found.module(path).execute_start, None);
        }
        assert_eq!(ends("/app/types.mjs"), (None, None));
    }
}

/// Its loader looks for one file after the other, by promises; what it looked for before is another module's.
#[test]
fn json_that_is_parsed_by_a_promise_is_parsed_for_its_module() {
    let url = |path: &str| format!("file:///app/{path}");
    let main = url("main.mjs");
    let mut p = Program::new("/app/main.mjs", true);
    p.load_esm(&main, None, 10_000);
    p.load_esm(&url("a.mjs"), Some(&main), 5_000);
    p.import_json(&url("big.json"), &main, 8_000_000);
    p.load_esm(&url("b.mjs"), Some(&main), 5_000);
    p.evaluate(&url("a.mjs"), |p| work(p, 1));
    p.evaluate(&url("b.mjs"), |p| work(p, 1));
    p.evaluate(&main, |p| work(p, 1));
    let (recording, ledger) = p.end();
    let found = Found::new(&recording);
    let json = found.module("/app/big.json");
    assert_eq!(json.kind, ModuleKind::Json);
    let told = ledger["/app/big.json"].execute_ns;
    let bound = json.uncertain_ns;
    assert!(
        told.abs_diff(json.execute_ns) <= bound + 300,
        "parsing took {told} ns, found {}, uncertain {bound}",
        json.execute_ns
    );
    assert!(bound < 10_000, "uncertain: {bound} ns");
    assert_eq!(json.loading.crossings, 2, "to decode, and to make a module");
    for path in ["/app/a.mjs", "/app/b.mjs", "/app/main.mjs"] {
        let module = found.module(path);
        assert!(module.self_ns() < 1_000_000, "{path}");
    }
    assert_eq!(
        found.module("/app/main.mjs").caused,
        ledger["/app/main.mjs"].caused
    );
}

#[test]
fn what_takes_the_types_out_of_a_module_is_done_for_that_module() {
    let url = |path: &str| format!("file:///app/{path}");
    let [a, b, c] = ["a.mts", "b.mts", "c.mts"].map(url);
    let mut p = Program::new("/app/a.mts", true);
    p.load_typescript(&a, None, 9_000_000);
    p.load_typescript(&b, Some(&a), 300_000);
    p.load_typescript(&c, Some(&b), 200_000);
    p.evaluate(&c, |p| work(p, 1));
    p.evaluate(&b, |p| work(p, 1));
    p.evaluate(&a, |p| work(p, 1));
    let (recording, ledger) = p.end();
    let found = Found::new(&recording);
    for path in ["/app/a.mts", "/app/b.mts", "/app/c.mts"] {
        let (module, told) = (found.module(path), ledger[path]);
        let bound = module.uncertain_ns + 300;
        assert!(bound < 50_000, "uncertain: {bound} ns");
        for (step, told, found) in [
            ("resolve", told.resolve_ns, module.resolve_ns),
            ("read", told.read_ns, module.read_ns),
            ("compile", told.compile_ns, module.compile_ns),
        ] {
            assert!(
                told.abs_diff(found) <= bound,
                "{path}: {step} took {told} ns, found {found}, uncertain {bound}"
            );
        }
    }
}

#[test]
fn an_es_module_does_not_start_before_its_loader_looks_for_it() {
    let url = |name: &str| format!("file:///app/{name}");
    let modules = [
        ("main.mjs", None),
        ("two.mjs", Some("main.mjs")),
        ("three.mjs", Some("two.mjs")),
        ("four.mjs", Some("two.mjs")),
    ];
    let mut p = Program::new("/app/main.mjs", false);
    let mut begun = Vec::new();
    for (name, importer) in modules {
        begun.push(p.now());
        p.load_esm(&url(name), importer.map(url).as_deref(), 20_000);
        p.native("uv_run", |p| p.busy(300_000_000));
    }
    begun.push(p.now());
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    for ((name, _), begun) in modules.iter().zip(begun.windows(2)) {
        let start = found.module(&format!("/app/{name}")).start.unwrap().0;
        assert!(
            (begun[0]..begun[1]).contains(&start),
            "{name} starts at {start}, was looked for from {begun:?} on"
        );
    }
}

#[test]
fn the_start_of_a_node_in_nodes_place_is_no_event_loop() {
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| {
        work(p, 3);
        p.busy(5_000_000);
    });
    p.execute_node(4_000_000, 9_000_000);
    p.require(MAIN, &[], 50_000, |p| {
        work(p, 3);
        p.busy(7_000_000);
    });
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    let outside = &found.modules.outside[0];
    let time = |bucket| outside.time_ns.get(&bucket).copied().unwrap_or_default();
    assert!(time(Bucket::EventLoop) < 100_000, "{outside:?}");
    // Of the first one nothing was seen then.
    for (bucket, took) in [
        (Bucket::BeforeMain, 4_000_000),
        (Bucket::Bootstrap, 9_000_000),
    ] {
        assert!(
            time(bucket).abs_diff(took) < 200_000,
            "{bucket:?}: {outside:?}"
        );
        assert_eq!(outside.costs[&bucket].opens, 1, "{bucket:?}: {outside:?}");
    }
    let main = found.module(MAIN);
    assert!(main.loads == 2 && main.callback_ns == 0);
    assert!(main.self_ns().abs_diff(12_200_000) < 1_100_000, "{main:?}");
}

#[test]
fn loads_of_add_ons_are_not_opens() {
    let mut p = Program::new(MAIN, false);
    p.require(MAIN, &[], 50_000, |p| {
        work(p, 1);
        p.load_add_on("/app/a.node", 700_000, 2);
        work(p, 1);
        p.load_add_on("/app/b.node", 20_000, 1);
        work(p, 1);
        p.load_add_on("/app/a.node", 700_000, 0);
        work(p, 1);
    });
    p.on_thread(2, |p| {
        p.require("/app/worker.js", &[], 50_000, |p| {
            work(p, 1);
            p.load_add_on("/app/b.node", 300_000, 0);
            work(p, 1);
        });
    });
    let (recording, _) = p.end();
    let modules = Modules::new(&recording, &Timeline::new(&recording));
    let add_ons = modules.list.iter().filter(|m| m.kind == ModuleKind::AddOn);
    let found: Vec<(&[u8], u32, u64)> = add_ons
        .map(|m| (modules.script(m).path.as_slice(), m.loads, m.execute_ns))
        .collect();
    assert!(
        matches!(
            found[..],
            [
                (b"/app/a.node", 2, 1_400_000..1_420_000),
                (b"/app/b.node", 1, 20_000..30_000),
                (b"/app/b.node", 1, 300_000..310_000),
            ]
        ),
        "{found:?}"
    );
}

/// Notes what Node made modules of, or which add-ons it asked for: in the calls of a function, in order.
fn tell(recording: &mut Recording, function: &str, told: &[&str]) {
    let callbacks = recording.callbacks.iter();
    let callbacks: Vec<bool> = callbacks.map(|c| c.function == function).collect();
    let calls = recording.crossings.iter();
    let calls = calls.filter(|crossing| callbacks[crossing.callback.0 as usize]);
    let mut calls: Vec<_> = calls.map(|c| (c.start, c.process, c.thread)).collect();
    calls.sort_by_key(|(start, ..)| *start);
    assert_eq!(calls.len(), told.len(), "calls of {function}");
    for ((start, process, thread), told) in calls.into_iter().zip(told) {
        let mut name = |text: &str| {
            recording.names.push(text.into());
            NameId((recording.names.len() - 1) as u32)
        };
        let (requirer, loaded) = (name(""), name(told));
        recording.imports.push(Import {
            process,
            thread,
            at: Nanoseconds(start.0 + 50),
            requirer,
            loaded,
        });
    }
}

#[test]
fn which_add_on_is_loaded_without_a_look_at_its_file_its_call_tells() {
    let names = ["/app/a.node", "/app/b.node"];
    let [a, b] = names;
    // As `process.dlopen` does, or `require` of a module that was taken out of its cache.
    let again = |p: &mut Program| {
        work(p, 1);
        p.inside("again", MAIN, 7, false, |p| {
            p.cross("process", "DLOpen", 300_000)
        });
        work(p, 1);
    };
    let mut p = Program::new(MAIN, false);
    p.require(MAIN, &[], 50_000, |p| {
        work(p, 1);
        p.load_add_on(a, 700_000, 1);
        again(p);
        work(p, 1);
        p.load_add_on(b, 700_000, 1);
        for _ in 0..3 {
            again(p);
        }
    });
    let (mut recording, _) = p.end();
    let loads = |recording: &Recording| {
        let found = Found::new(recording);
        names.map(|name| found.module(name).loads)
    };
    // As long as there is one alone, it is that one.
    assert_eq!(loads(&recording), [2, 1]);
    tell(&mut recording, "DLOpen", &[a, a, b, a, b, "b.node"]);
    assert_eq!(loads(&recording), [3, 2]);
}

/// Each call once looked through all files.
#[test]
fn thousands_of_loads_of_an_add_on_take_no_longer_than_other_calls() {
    const COUNT: usize = 12_000;
    let took = |function: &str| {
        let mut p = Program::new(MAIN, false);
        p.require(MAIN, &[], 50_000, |p| {
            p.load_add_on("/app/a.node", 700_000, 1);
            for _ in 0..COUNT {
                p.file(FileOperation::Open, "/app/data", 3, 1_000);
                p.cross("process", function, 300);
            }
        });
        let (recording, _) = p.end();
        let begun = std::time::Instant::now();
        let found = Found::new(&recording);
        let took = begun.elapsed();
        (took, found.module("/app/a.node").loads as usize)
    };
    let (of_others, once) = took("Other");
    let (of_loads, often) = took("DLOpen");
    println!("{of_loads:?}, of other calls {of_others:?}");
    assert_eq!((once, often), (1, COUNT + 1));
    assert!(of_loads < 6 * of_others, "{of_loads:?}, {of_others:?}");
}

#[test]
fn json_that_is_imported_is_what_node_made_modules_of() {
    let main = "file:///app/main.mjs";
    let loader = "node:internal/modules/esm/load";
    let made = |p: &mut Program| {
        p.inside("jsonStrategy", loader, 9, false, |p| {
            p.cross("module_wrap", "ModuleWrap::New", 3_000);
        });
    };
    // By itself, or with a function of both loaders in between, as newer versions do.
    let read = |p: &mut Program, path: &str| {
        let read = |p: &mut Program| {
            p.inside("readFileSync", "node:fs", 400, false, |p| {
                p.file(FileOperation::Open, path, 19, 5_000);
                p.file(FileOperation::Read, path, 300, 5_000);
                p.file(FileOperation::Close, path, 0, 1_000);
            });
        };
        p.inside("load", "node:internal/modules/esm/loader", 70, false, |p| {
            p.inside("getSource", loader, 40, false, |p| match path {
                "/app/asked.json" => read(p),
                _ => p.inside(
                    "readFileSync",
                    "node:internal/modules/helpers",
                    7,
                    false,
                    read,
                ),
            });
        });
        made(p);
    };
    let mut p = Program::new("/app/main.mjs", false);
    read(&mut p, "/app/twice.json");
    read(&mut p, "/app/twice.json");
    read(&mut p, "/app/asked.json");
    p.load_esm(main, None, 20_000);
    p.evaluate(main, |p| p.find_esm("/app/late.json", None));
    // A thread of the pool has read it; and one that is no file.
    made(&mut p);
    p.evaluate(main, made);
    // A program makes modules, too.
    p.evaluate(main, |p| p.cross("module_wrap", "ModuleWrap::New", 3_000));
    let (mut recording, _) = p.end();
    let urls = [
        "file:///app/twice.json",
        "file:///app/twice.json?x",
        "file:///app/asked.json?y=1",
        "file:///app/late.json",
        "data:application/json,{}",
        "/app/own.json",
    ];
    tell(&mut recording, "ModuleWrap::New", &urls);
    let found = Found::new(&recording);
    let json = { found.by_path.iter() }
        .map(|(path, index)| (path.as_str(), &found.modules.list[*index]))
        .filter(|(_, module)| module.kind == ModuleKind::Json);
    let json: Vec<_> = json
        .map(|(path, module)| (path, module.loads, found.requirer(path)))
        .collect();
    let main = Some("/app/main.mjs");
    assert_eq!(
        json,
        [
            ("/app/asked.json?y=1", 1, None),
            ("/app/late.json", 1, main),
            ("/app/twice.json", 1, None),
            ("/app/twice.json?x", 1, None),
            ("data:application/json,{}", 1, main),
        ]
    );
    for name in [
        "/app/twice.json",
        "/app/twice.json?x",
        "/app/asked.json?y=1",
    ] {
        let loading = found.module(name).loading;
        assert_eq!((loading.opens, loading.reads), (1, 1), "{name}");
    }
}

#[test]
fn who_asks_for_a_module_that_is_in_its_url_requires_it() {
    let url = |name: &str| format!("file:///app/{name}");
    let [main, first, second] = ["main.mjs", "first.mjs", "second.mjs"].map(url);
    // As the loader does for `import()` of what is no file.
    let ask = |p: &mut Program| {
        p.inside(
            "resolve",
            "node:internal/modules/esm/loader",
            600,
            false,
            |p| {
                p.inside(
                    "defaultResolve",
                    "node:internal/modules/esm/resolve",
                    300,
                    false,
                    |p| {
                        p.cross("url", "Parse", 3_000);
                        p.cross("url", "Parse", 3_000);
                    },
                );
            },
        );
    };
    let mut p = Program::new("/app/main.mjs", false);
    p.load_esm(&main, None, 20_000);
    for importer in [&first, &second] {
        p.load_esm(importer, Some(&main), 20_000);
    }
    // One of Node's own modules, which nothing tells.
    p.evaluate(&main, ask);
    // Two at once, the second one from one place twice.
    p.evaluate(&first, ask);
    p.evaluate(&second, |p| {
        ask(p);
        ask(p);
    });
    // Whoever asks for a file asks for no such module.
    p.evaluate(&main, |p| p.find_esm("/app/x.mjs", None));
    for module in 1..=3 {
        p.load_esm(&format!("data:text/javascript,{module}"), None, 20_000);
    }
    p.load_esm("data:text/javascript,4", Some(&first), 20_000);
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    let requirer = |module: u32| found.requirer(&format!("data:text/javascript,{module}"));
    let [first, second] = [Some("/app/first.mjs"), Some("/app/second.mjs")];
    assert_eq!([1, 2, 3, 4].map(requirer), [first, second, second, first]);
}

#[test]
fn what_is_compiled_as_a_module_only_to_see_whether_it_is_one_is_none() {
    let mut p = Program::new(MAIN, false);
    p.require(MAIN, &[], 50_000, |p| {
        work(p, 1);
        p.require_broken("/app/broken.js");
        work(p, 1);
        p.check_syntax("/app/es.js", 10_000);
        p.load_esm("file:///app/es.js", None, 10_000);
    });
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    for (path, kind) in [
        ("/app/broken.js", ModuleKind::CommonJs),
        ("/app/es.js", ModuleKind::EsModule),
    ] {
        let module = found.module(path);
        assert_eq!((module.kind, module.loads), (kind, 1), "{path}");
    }
}

#[test]
fn loads_are_not_compilations() {
    let mut p = Program::new("/app/main.mjs", false);
    p.load_esm("file:///app/main.mjs", None, 20_000);
    p.check_syntax("/app/checked.js", 10_000);
    p.load_esm("file:///app/add.wasm", Some("file:///app/main.mjs"), 5_000);
    p.evaluate("file:///app/main.mjs", |p| {
        work(p, 1);
        p.require("/app/checked.js", &[], 10_000, |p| work(p, 1));
        // Taken out of the cache, one without anything to do is loaded anew.
        for _ in 0..2 {
            p.require("/app/constant.js", &[], 10_000, |_| {});
        }
    });
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    for (path, kind, loads) in [
        ("/app/checked.js", ModuleKind::CommonJs, 1),
        ("/app/constant.js", ModuleKind::CommonJs, 2),
        ("/app/add.wasm", ModuleKind::Wasm, 1),
    ] {
        let module = found.module(path);
        assert_eq!((module.kind, module.loads), (kind, loads), "{path}");
    }
    assert_eq!(found.requirer("/app/add.wasm"), Some("/app/main.mjs"));
    // It began to run only when it was required.
    let [main, checked] = ["/app/main.mjs", "/app/checked.js"].map(|path| found.module(path));
    assert!(checked.execute_start > main.execute_start);
}

#[test]
fn what_is_imported_along_with_what_is_required_is_its_importers() {
    let [inner, a, b] = ["i", "a", "b"].map(|name| format!("file:///app/{name}.mjs"));
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| {
        work(p, 1);
        // Who asks only where it is does so for itself.
        let meta = "node:internal/modules/esm/initialize_import_meta";
        p.inside("resolve", meta, 30, false, |p| {
            p.find_esm("/app/a.mjs", None);
        });
        p.load_esm_at_once(&inner, None, 20_000);
        p.load_esm_at_once(&a, Some(&inner), 20_000);
        p.load_esm_at_once(&b, Some(&a), 20_000);
        work(p, 1);
        // One that is there already, and one that is not.
        p.find_esm("/app/b.mjs", None);
        p.require_in_vain(&["/app/none.mjs"]);
        work(p, 1);
    });
    let (recording, ledger) = p.end();
    let found = Found::new(&recording);
    for (path, requirer) in [
        (MAIN, None),
        ("/app/i.mjs", Some(MAIN)),
        ("/app/a.mjs", Some("/app/i.mjs")),
        ("/app/b.mjs", Some("/app/a.mjs")),
    ] {
        assert_eq!(found.requirer(path), requirer, "requirer of {path}");
        let told = ledger[path];
        assert_eq!(found.module(path).caused, told.caused, "{path} as requirer");
    }
}

#[test]
fn a_hook_between_is_not_the_requirer() {
    let hook = "/app/node_modules/hook/index.js";
    let mut p = Program::new(MAIN, false);
    p.require(MAIN, &[], 50_000, |p| {
        p.require(hook, &[], 10_000, |p| work(p, 1));
        p.cross("util", "X", 3_000);
        p.require_through(hook, "/app/a.js", 40_000, |p| work(p, 1));
        p.cross("util", "X", 3_000);
    });
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    assert_eq!(found.requirer("/app/a.js"), Some(MAIN));
    assert_eq!(found.module("/app/a.js").kind, ModuleKind::CommonJs);
    // What the hook itself requires is its.
    let mut p = Program::new(MAIN, false);
    p.require(MAIN, &[], 50_000, |p| {
        p.require(hook, &[], 10_000, |p| work(p, 1));
        p.called_by_loader(|p| {
            p.function("compile", hook, 7, |p| {
                p.require("/app/node_modules/hook/lazy.js", &[], 10_000, |_| {});
            });
        });
    });
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    assert_eq!(found.requirer("/app/node_modules/hook/lazy.js"), Some(hook));
}

#[test]
fn a_hook_between_an_import_and_its_module_is_not_the_requirer() {
    let hook = "/app/node_modules/hook/index.js";
    let mut p = Program::new("/app/main.mjs", false);
    p.require(hook, &[], 10_000, |p| work(p, 1));
    p.find_esm("/app/main.mjs", Some(hook));
    p.load_esm("file:///app/main.mjs", None, 20_000);
    p.evaluate("file:///app/main.mjs", |p| {
        work(p, 1);
        p.find_esm("/app/late.mjs", Some(hook));
    });
    p.load_esm("file:///app/late.mjs", None, 20_000);
    p.evaluate("file:///app/late.mjs", |p| work(p, 1));
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    assert_eq!(found.requirer("/app/main.mjs"), None);
    assert_eq!(found.requirer("/app/late.mjs"), Some("/app/main.mjs"));
    assert_eq!(found.module(hook).total_ns, found.module(hook).self_ns());
}

#[test]
fn of_several_imports_of_a_module_the_first_one_is_its_requirer() {
    let url = |name: &str| format!("file:///app/{name}");
    let names = ["main.mjs", "resolve.mjs", "first.mjs", "second.mjs"];
    let [main, resolve, first, second] = names.map(url);
    let mut p = Program::new("/app/main.mjs", false);
    p.load_esm(&main, None, 20_000);
    for importer in [&resolve, &first, &second] {
        p.load_esm(importer, Some(&main), 20_000);
    }
    p.evaluate(&resolve, |p| {
        // Asks where they are, and loads nothing.
        p.require_again("/app/x.mjs");
        let meta = "node:internal/modules/esm/initialize_import_meta";
        p.inside("resolve", meta, 30, false, |p| {
            p.find_esm("/app/x.mjs", None);
        });
    });
    for importer in [&first, &second] {
        p.evaluate(importer, |p| p.find_esm("/app/x.mjs", None));
    }
    p.load_esm(&url("x.mjs"), None, 20_000);
    p.evaluate(&url("x.mjs"), |p| work(p, 1));
    // Two modules of one file, one after the other.
    for (importer, query) in [(&first, "?1"), (&second, "?2")] {
        p.evaluate(importer, |p| p.find_esm("/app/y.mjs", None));
        p.load_esm(&url(&format!("y.mjs{query}")), None, 20_000);
    }
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    assert_eq!(found.requirer("/app/x.mjs"), Some("/app/first.mjs"));
    assert_eq!(found.requirer("/app/y.mjs?1"), Some("/app/first.mjs"));
    assert_eq!(found.requirer("/app/y.mjs?2"), Some("/app/second.mjs"));
}

/// `import("./x.mjs?v=" + i)`, thousands of times: each file event once looked through all of them.
#[test]
fn thousands_of_modules_of_one_file_take_no_longer_than_of_many_files() {
    const COUNT: usize = 15_000;
    let main = "file:///app/main.mjs";
    let found = |path: &dyn Fn(usize) -> String| {
        let mut p = Program::new("/app/main.mjs", true);
        p.load_esm(main, None, 60_000);
        for index in 0..COUNT {
            p.load_esm(&format!("file://{}", path(index)), Some(main), 2_000);
        }
        let (recording, _) = p.end();
        let begun = std::time::Instant::now();
        let found = Found::new(&recording);
        let took = begun.elapsed();
        assert_eq!(found.by_path.len(), COUNT + 1);
        let loading = |index: usize| found.module(&path(index)).loading;
        assert!(loading(0).opens > 0);
        for index in [1, COUNT / 2, COUNT - 1] {
            assert_eq!(loading(index).opens, loading(0).opens, "{}", path(index));
        }
        took
    };
    let of_many = found(&|index| format!("/app/x{index}.mjs"));
    let of_one = found(&|index| format!("/app/x.mjs?v={index}"));
    println!("{of_many:?}, {of_one:?}");
    assert!(
        of_one < 6 * of_many,
        "{of_one:?}, of many files {of_many:?}"
    );
}

#[test]
fn code_compiled_without_a_loader_is_a_script_of_its_requirers_package() {
    let owner = "/app/node_modules/template/index.js";
    let mut p = Program::new(MAIN, false);
    p.require(MAIN, &[], 50_000, |p| {
        p.require(owner, &[], 10_000, |p| {
            p.run_script("evalmachine.<anonymous>", 20_000, |p| work(p, 2));
            work(p, 1);
        });
    });
    let (_, found) = check(p);
    assert_eq!(
        found.module("evalmachine.<anonymous>").kind,
        ModuleKind::Script
    );
    assert_eq!(
        found.package("evalmachine.<anonymous>"),
        found.package(owner)
    );
}

#[test]
fn code_under_a_name_that_several_gave_is_of_who_calls_it() {
    let name = "evalmachine.<anonymous>";
    let [a, b] = ["a", "b"].map(|name| format!("/app/node_modules/{name}/index.js"));
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| {
        for (owner, times) in [(&a, 20), (&b, 30)] {
            p.require(owner, &[], 10_000, |p| {
                work(p, 1);
                p.run_script(name, 20_000, |p| work(p, times));
                work(p, 1);
            });
        }
    });
    let (recording, ledger) = p.end();
    let found = Found::new(&recording);
    assert!(!found.by_path.contains_key(name), "nobody's own");
    for (owner, times) in [(&a, 20), (&b, 30)] {
        let module = found.module(owner);
        // Two in each step of the work.
        assert_eq!(module.caused.crossings, 2 * (times + 2), "{owner}");
        let told = times * (ledger[name].execute_ns / 50);
        assert!(module.execute_ns >= told, "{owner}: {told} ns of the code");
        assert!(module.execute_ns < told + told / 2, "{owner}: {told} ns");
        assert_eq!(found.requirer(owner), Some(MAIN));
    }
}

#[test]
fn packages_outside_of_node_modules_are_told_by_the_recording() {
    let mut p = Program::new("/srv/app/main.js", false);
    p.require("/srv/app/main.js", &[], 50_000, |p| {
        p.require("/srv/packages/lib/src/deep/index.js", &[], 10_000, |p| {
            work(p, 1)
        });
        p.require("/srv/stray.js", &[], 10_000, |p| work(p, 1));
        let pnpm = "/srv/node_modules/.pnpm/e@4.1.0/node_modules/e";
        p.require(&format!("{pnpm}/index.js"), &[], 10_000, |p| work(p, 1));
    });
    p.package("/srv/app", Some("app"), Some("0.1.0"));
    p.package("/srv/packages/lib", Some("@work/lib"), Some("2.0.0"));
    p.package(
        "/srv/node_modules/.pnpm/e@4.1.0/node_modules/e",
        Some("e"),
        Some("4.1.0"),
    );
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    assert_eq!(
        found.package("/srv/app/main.js"),
        (
            Some("app"),
            Some("0.1.0"),
            "/srv/app",
            PackageKind::Application
        )
    );
    assert_eq!(
        found.package("/srv/packages/lib/src/deep/index.js"),
        (
            Some("@work/lib"),
            Some("2.0.0"),
            "/srv/packages/lib",
            PackageKind::Workspace
        )
    );
    assert_eq!(found.package("/srv/stray.js").3, PackageKind::Application);
    assert_eq!(found.package("/srv/stray.js").2, "");
    let pnpm = "/srv/node_modules/.pnpm/e@4.1.0/node_modules/e";
    assert_eq!(
        found.package(&format!("{pnpm}/index.js")),
        (Some("e"), Some("4.1.0"), pnpm, PackageKind::Installed)
    );
}

/// `main` with a preload of another package that Node loads before it.
fn preloaded(main: &str, preload: &str) -> Recording {
    let mut p = Program::new(main, false);
    p.require(preload, &[], 50_000, |p| work(p, 9));
    p.require(main, &[], 50_000, |p| {
        work(p, 1);
        p.require("/srv/app/lib.js", &[], 10_000, |p| work(p, 1));
    });
    p.package("/srv/tools", Some("tools"), Some("9.9.9"));
    p.package("/srv/app", Some("app"), Some("0.1.0"));
    p.end().0
}

#[test]
fn the_application_is_the_main_scripts_package_and_no_preloads() {
    let preload = "/srv/tools/preload.js";
    let main = "/srv/app/main.js";
    let mut recording = preloaded(main, preload);
    // Typed in its folder, without the extension; the preload stands in NODE_OPTIONS, or before it.
    for arguments in [
        &["node", "app/main"][..],
        &["node", "--require", "./tools/preload.js", "app/main.js"],
    ] {
        recording.runs[0].directory = b"/srv".to_vec();
        let arguments = arguments.iter().map(|a| a.as_bytes().to_vec()).collect();
        recording.processes[0].execs[0].arguments = arguments;
        let found = Found::new(&recording);
        let kind = |path| found.package(path).3;
        assert_eq!(kind(main), PackageKind::Application);
        assert_eq!(kind("/srv/app/lib.js"), PackageKind::Application);
        assert_eq!(kind(preload), PackageKind::Workspace);
        let scripts = found.modules.list.iter().filter(|m| m.main_script);
        let scripts: Vec<_> = scripts.map(|m| &found.modules.script(m).path).collect();
        assert_eq!(scripts, [main.as_bytes()]);
    }
    // Of no package: nobody else's is the application.
    let recording = preloaded("/srv/main.js", preload);
    let found = Found::new(&recording);
    assert_eq!(found.package("/srv/main.js").3, PackageKind::Application);
    assert_eq!(found.package(preload).3, PackageKind::Workspace);
}

#[test]
fn between_javascript_nobody_works() {
    let mut p = Program::new(MAIN, false);
    p.native("node::LoadEnvironment", |p| {
        p.call_javascript(|p| p.require(MAIN, &[], 50_000, |p| work(p, 1)));
    });
    // The program waits for five seconds.
    p.native("uv_run", |p| {
        p.busy(5_000_000_000);
        // Of what is off the CPU outside of all calls no stack is known, and no JavaScript is on it.
        p.preempted(7_000_000);
        p.call_javascript(|p| {
            p.function("onTimeout", MAIN, 9, |p| {
                p.busy(400_000);
                p.cross("util", "X", 3_000);
            });
        });
    });
    let (_, found) = check(p);
    let outside = &found.modules.outside[0].time_ns;
    assert!(outside[&Bucket::EventLoop] >= 5_007_000_000, "{outside:?}");
    let costs = &found.modules.outside[0].costs;
    assert_eq!(costs[&Bucket::EventLoop].blocked_ns, 7_000_000);
    assert!(!costs.contains_key(&Bucket::NoStack), "{costs:?}");
    let main = found.module(MAIN);
    assert!(main.execute_ns < 1_000_000);
    assert!(
        (400_000..410_000).contains(&main.callback_ns),
        "{}",
        main.callback_ns
    );
}

#[test]
fn garbage_that_is_collected_between_javascript_is_nobodys() {
    let collect = "v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace)";
    let mut p = Program::new(MAIN, true);
    p.native("node::LoadEnvironment", |p| {
        p.native(collect, |p| p.busy(20_000_000));
        p.call_javascript(|p| {
            p.require(MAIN, &[], 50_000, |p| {
                work(p, 1);
                p.native(collect, |p| p.busy(30_000_000));
            })
        });
    });
    p.native("uv_run", |p| {
        p.busy(40_000_000);
        p.native(collect, |p| p.busy(100_000_000));
        p.busy(40_000_000);
    });
    let (_, found) = check(p);
    let outside = &found.modules.outside[0];
    let near = |bucket, expected: u64| {
        let (time, cpu) = (outside.time_ns[&bucket], outside.costs[&bucket].cpu_ns);
        let range = expected - 3_000_000..expected + 3_000_000;
        assert!(range.contains(&time), "{bucket:?}: {outside:?}");
        assert!(range.contains(&cpu), "{bucket:?}: {outside:?}");
    };
    near(Bucket::Gc, 120_000_000);
    near(Bucket::EventLoop, 80_000_000);
    // Within JavaScript it is of whoever runs.
    assert!(found.module(MAIN).execute_ns >= 29_000_000);
}

#[test]
fn what_node_does_about_uncaught_exceptions_is_told_from_what_a_handler_does() {
    let uncaught = "node::errors::TriggerUncaughtException(v8::Isolate*, v8::Local<v8::Value>)";
    let mut p = Program::new(MAIN, true);
    p.native("node::LoadEnvironment", |p| {
        p.call_javascript(|p| p.require(MAIN, &[], 50_000, |p| work(p, 1)));
        p.native(uncaught, |p| p.busy(30_000_000));
    });
    p.native("uv_run", |p| {
        p.native(uncaught, |p| {
            p.busy(20_000_000);
            p.call_javascript(|p| {
                p.function("onUncaught", MAIN, 9, |p| p.busy(40_000_000));
            });
        });
    });
    let (_, found) = check(p);
    let outside = &found.modules.outside[0];
    let spent = outside.time_ns[&Bucket::UncaughtException];
    assert!((47_000_000..53_000_000).contains(&spent), "{outside:?}");
    let handled = found.module(MAIN).callback_ns;
    assert!((37_000_000..43_000_000).contains(&handled), "{handled}");
}

#[test]
fn who_waits_for_a_cpu_waits_where_it_is() {
    for sampled in [false, true] {
        let mut p = Program::new(MAIN, sampled);
        p.require(MAIN, &[], 50_000, |p| {
            work(p, 1);
            p.call_javascript(|p| {
                work(p, 1);
                p.require("/app/node_modules/slow/index.js", &[], 90_000, |p| {
                    p.cross("util", "X", 3_000);
                    // All of its life without a crossing, and twice without the CPU.
                    p.busy(20_000_000);
                    p.preempted(60_000_000);
                    p.busy(20_000_000);
                    p.preempted(60_000_000);
                    p.busy(20_000_000);
                    // In C++ the crossing tells where.
                    p.cross_into("fs", "readSync", |p| p.preempted(5_000_000));
                });
                work(p, 1);
            });
            work(p, 1);
        });
        let (_, found) = check(p);
        let slow = found.module("/app/node_modules/slow/index.js");
        assert_eq!(slow.caused.blocked_ns, 125_000_000);
        assert!(slow.execute_ns >= 185_000_000, "{}", slow.execute_ns);
        assert!(slow.uncertain_ns <= 1_000_000, "{}", slow.uncertain_ns);
        let main = found.module(MAIN);
        assert_eq!(main.caused.blocked_ns, 0);
        assert!(main.self_ns() <= 1_000_000, "{}", main.self_ns());
    }
}

#[test]
fn what_is_called_back_without_a_trace_is_its_callers_but_uncertain() {
    let mut p = Program::new(MAIN, false);
    p.require(MAIN, &[], 50_000, |p| {
        p.cross("util", "X", 3_000);
        p.call_javascript(|p| p.busy(8_000_000));
        p.cross("util", "X", 3_000);
    });
    let (_, found) = check(p);
    let main = found.module(MAIN);
    assert!(main.execute_ns >= 8_000_000 && main.uncertain_ns >= 8_000_000);
    assert!(
        !found.modules.outside[0]
            .time_ns
            .contains_key(&Bucket::Unseen)
    );
}

#[test]
fn each_thread_has_modules_of_its_own() {
    let mut p = Program::new(MAIN, false);
    p.require(MAIN, &[], 50_000, |p| {
        work(p, 1);
        p.require("/app/a.js", &[], 10_000, |p| work(p, 1));
    });
    p.on_thread(501, |p| {
        p.require("/app/worker.js", &[], 10_000, |p| {
            p.require("/app/a.js", &[], 10_000, |p| work(p, 2));
        });
    });
    let (recording, _) = p.end();
    let modules = Modules::new(&recording, &Timeline::new(&recording));
    let of = |thread: u32| -> Vec<(&[u8], u64)> {
        let list = modules.list.iter();
        let list = list.filter(|m| modules.threads[m.unit].1.0 == thread);
        list.map(|m| (modules.script(m).path.as_slice(), m.caused.crossings))
            .collect()
    };
    assert_eq!(of(500), [(&b"/app/main.js"[..], 2), (b"/app/a.js", 2)]);
    assert_eq!(of(501), [(&b"/app/worker.js"[..], 0), (b"/app/a.js", 4)]);
}

/// A program that calls `process.exit()` has no end of its event loop: the kernel takes down its memory on its last stack, which libc has
/// cut by then.
#[test]
fn what_the_pool_reads_is_a_modules_only_until_it_is_compiled() {
    let required = "/app/node_modules/victim/index.js";
    let read = |p: &mut Program, path: &str| {
        p.on_thread(900, |p| p.file(FileOperation::Open, path, 17, 5_000));
    };
    let mut p = Program::new("/app/main.mjs", false);
    p.load_esm("file:///app/main.mjs", None, 20_000);
    for query in ["?1", "?2"] {
        read(&mut p, "/app/a.mjs");
        let url = format!("file:///app/a.mjs{query}");
        p.load_esm(&url, Some("file:///app/main.mjs"), 20_000);
    }
    p.evaluate("file:///app/main.mjs", |p| {
        // Who requires waits for what its own thread reads.
        read(p, required);
        p.require(required, &[], 10_000, |p| work(p, 1));
        work(p, 1);
    });
    for path in [required, "/app/a.mjs", "/app/main.mjs"] {
        read(&mut p, path);
    }
    let (recording, _) = p.end();
    let found = Found::new(&recording);
    for query in ["?1", "?2"] {
        let opens = found.module(&format!("/app/a.mjs{query}")).loading.opens;
        assert_eq!(opens, 2, "the pool's and its own thread's of {query}");
    }
    assert_eq!(found.module(required).loading.opens, 1);
    assert_eq!(found.module("/app/main.mjs").loading.opens, 1);
    assert_eq!(found.module("/app/main.mjs").caused.opens, 2 * 2 + 1);
    let helpers = &found.modules.outside[0].costs[&Bucket::HelperThreads];
    assert_eq!(helpers.opens, 4);
}

#[test]
fn what_the_kernel_does_after_the_exit_is_teardown() {
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| work(p, 3));
    let (mut recording, _) = p.end();
    recording.milestones.retain(|m| m.name != "loop_exit");
    let of_nobody = |recording: &Recording, bucket| {
        let found = Found::new(recording);
        let costs = &found.modules.outside[0].costs;
        costs.get(&bucket).map_or(0, |costs| costs.samples)
    };
    let spent = |recording: &Recording, bucket| {
        let found = Found::new(recording);
        let time = &found.modules.outside[0].time_ns;
        time.get(&bucket).copied().unwrap_or_default()
    };
    let time = |recording: &Recording| -> u64 {
        let found = Found::new(recording);
        let modules = found.modules.list.iter();
        let own: u64 = modules.map(|module| module.self_ns()).sum();
        own + found.modules.outside[0].time_ns.values().sum::<u64>()
    };
    // What is left of its life after its last event; and, before the first, what was before `node::Start`.
    let (first, last_event) = points(&recording);
    let process = recording.processes[0].clone();
    let left = process.exited.unwrap().0 - last_event;
    assert!(left > 0);
    assert_eq!(spent(&recording, Bucket::Teardown), left);
    recording.processes[0].exit_status = None;
    recording.processes[0].signal = Some(9);
    // Of a killed one it is of whoever ran last.
    assert_eq!(spent(&recording, Bucket::Teardown), 0);
    let killed = time(&recording);
    recording.processes[0] = process;
    assert_eq!(time(&recording), killed);
    let mut late = recording.clone();
    late.milestones.retain(|m| m.name != "node_start");
    let unknown = spent(&late, Bucket::BeforeMain);
    late.milestones
        .push(nodeprof_profile::recording::Milestone {
            name: "node_start".into(),
            at: Nanoseconds(first),
            ..recording.milestones[0].clone()
        });
    late.processes[0].forked = Nanoseconds(first - 3_000_000);
    assert_eq!(spent(&late, Bucket::BeforeMain), unknown + 3_000_000);
    let (cut, lost) = (Bucket::Teardown, Bucket::NoStack);
    let before = (of_nobody(&recording, cut), of_nobody(&recording, lost));
    let exited = recording.processes[0].exited.unwrap();
    let last = *recording.samples.last().unwrap();
    let at = |at| Sample {
        at: Nanoseconds(at),
        stack: None,
        ..last
    };
    recording.samples.extend([at(exited.0 - 1), at(exited.0)]);
    assert_eq!(of_nobody(&recording, cut), before.0 + 1);
    assert_eq!(of_nobody(&recording, lost), before.1 + 1);
    // The life is over: whatever the kernel still does on a stack that can be read takes no time of it.
    let known = last.stack.or(recording.crossings[0].stack);
    let on = |nanoseconds| Sample {
        stack: known,
        ..at(nanoseconds)
    };
    recording.samples.push(on(exited.0));
    let until_exit = time(&recording);
    recording.samples.push(on(exited.0 + 7_000_000));
    assert_eq!(time(&recording), until_exit);
}

#[test]
fn without_stacks_nothing_is_claimed() {
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 50_000, |p| work(p, 3));
    let (mut recording, _) = p.end();
    recording.crossings.iter_mut().for_each(|c| c.stack = None);
    recording.files.iter_mut().for_each(|f| f.stack = None);
    recording.samples.iter_mut().for_each(|s| s.stack = None);
    recording
        .serializations
        .iter_mut()
        .for_each(|s| s.stack = None);
    let found = Found::new(&recording);
    assert_eq!(found.module(MAIN).caused, Costs::default());
    assert_eq!(
        found.modules.outside[0].costs[&Bucket::NoStack].crossings,
        6
    );
    recording.stacks.clear();
    recording.compilations[0].stack = None;
    assert!(Found::new(&recording).modules.list.is_empty());
    let _ = START;
}

/// The same program, of which V8 gives up optimised code at an instant: from then on the places of its JavaScript are not known.
fn given_up_at(recording: &Recording, at: u64) -> Recording {
    let mut given_up = recording.clone();
    let frames = given_up.frames.len() as u32;
    let stacks = given_up.stacks.len() as u32;
    for frame in &recording.frames {
        let mut frame = *frame;
        if frame.kind == FrameKind::JavaScript {
            (frame.line, frame.column) = (None, None);
            (frame.tier, frame.inlining_possible) = (Some(Tier::Optimized), true);
        }
        given_up.frames.push(frame);
    }
    for stack in &recording.stacks {
        given_up.stacks.push(Stack {
            caller: stack.caller.map(|caller| StackId(caller.0 + stacks)),
            frame: FrameId(stack.frame.0 + frames),
            truncated: stack.truncated,
        });
    }
    let after = |time: Nanoseconds, stack: &mut Option<StackId>| {
        if let Some(stack) = stack
            && time.0 >= at
        {
            stack.0 += stacks;
        }
    };
    for event in &mut given_up.crossings {
        after(event.start, &mut event.stack);
    }
    for event in &mut given_up.files {
        after(event.start, &mut event.stack);
    }
    for event in &mut given_up.lookups {
        after(event.at, &mut event.stack);
    }
    for event in &mut given_up.compilations {
        after(event.start, &mut event.stack);
    }
    given_up
}

#[test]
fn a_call_that_is_known_less_well_later_is_the_same_call() {
    let mut p = Program::new(MAIN, false);
    p.native("node::LoadEnvironment", |p| {
        p.call_javascript(|p| {
            p.require(MAIN, &[], 50_000, |p| {
                work(p, 1);
                p.require("/app/a.js", &["/app/a", "/app/a.mjs"], 40_000, |p| {
                    work(p, 1);
                    p.require("/app/b.js", &["/app/b"], 40_000, |p| work(p, 2));
                    work(p, 1);
                });
                work(p, 1);
                p.require_in_vain(&["/app/c", "/app/c.js"]);
                work(p, 1);
            });
        });
    });
    let (recording, expected) = check(p);
    let instants = recording.files.iter().map(|file| file.start.0);
    let instants: Vec<u64> = instants.collect();
    assert!(instants.len() > 15, "{instants:?}");
    for at in instants {
        let found = Found::new(&given_up_at(&recording, at));
        for path in [MAIN, "/app/a.js", "/app/b.js"] {
            let (found, expected) = (found.module(path), expected.module(path));
            assert_eq!(found.caused, expected.caused, "{path} as requirer, {at}");
            assert_eq!(found.loading, expected.loading, "{path} as loaded, {at}");
        }
    }
}

const BUNDLE: &str = "/app/out.js";
const A: &str = "/app/node_modules/a/index.js";
const DEEP: &str = "/app/node_modules/a/lib/deep.js";
const B: &str = "/app/node_modules/@s/b/b.js";
const INNER: &str = "/app/node_modules/@s/b/node_modules/a/index.js";

fn program_of_packages() -> Recording {
    let mut p = Program::new(MAIN, true);
    p.require(MAIN, &[], 90_000, |p| {
        work(p, 300);
        p.require(A, &[], 200_000, |p| {
            work(p, 500);
            p.require(DEEP, &[], 50_000, |p| work(p, 200));
            p.file(FileOperation::Stat, "/etc/hosts", 0, 8_000);
            p.lookup("/app/node_modules/a/package.json");
        });
        p.require(B, &[], 30_000, |p| {
            p.require(INNER, &[], 10_000, |p| work(p, 100));
            work(p, 40);
        });
    });
    p.end().0
}

#[test]
fn what_files_of_a_bundle_did_is_what_they_did_as_modules() {
    let apart = program_of_packages();
    let as_modules = Found::new(&apart);
    let mut recording = apart.clone();
    bundled(&mut recording, BUNDLE, |_| true);
    let found = Found::new(&recording);
    let sources = &found.modules.sources[0];
    let mut expected: BTreeMap<&str, Costs> = BTreeMap::new();
    for path in [MAIN, A, DEEP, B, INNER] {
        expected.insert(path, as_modules.module(path).caused);
    }
    let files: BTreeMap<&str, Costs> = (sources.files.iter())
        .map(|part| {
            let path = std::str::from_utf8(recording.name(part.part)).unwrap();
            (path, part.caused)
        })
        .collect();
    assert!(expected[MAIN].crossings >= 600 && expected[DEEP].samples > 3);
    assert!(expected[A].lookups == 1 && expected[A].stats > 1);
    assert_eq!(files, expected);
    // By package: two copies of `a` are two, the program's own files are of none.
    let sum = |paths: &[&str]| {
        let mut sum = Costs::default();
        paths.iter().for_each(|path| sum.add(&expected[path]));
        sum
    };
    let packages: BTreeMap<Option<&str>, (u64, Costs)> = (sources.packages.iter())
        .map(|part| {
            let directory = part
                .part
                .as_deref()
                .map(|d| std::str::from_utf8(d).unwrap());
            (directory, (part.files, part.caused))
        })
        .collect();
    let told = [
        (None, (1, sum(&[MAIN]))),
        (Some("/app/node_modules/@s/b"), (1, sum(&[B]))),
        (
            Some("/app/node_modules/@s/b/node_modules/a"),
            (1, sum(&[INNER])),
        ),
        (Some("/app/node_modules/a"), (2, sum(&[A, DEEP]))),
    ];
    assert_eq!(packages, BTreeMap::from(told));
    // With what they called: each sample once for each file that is on its stack.
    for part in &sources.files {
        let is_of_file = |sample: &&Sample| {
            let stack = sample.stack.unwrap();
            let mut frames = recording.frames_of(stack);
            frames.any(|frame| frame.original.is_some_and(|o| o.file == part.part))
        };
        let with = recording.samples.iter().filter(is_of_file);
        let total: u64 = with.map(|sample| sample.weight.0).sum();
        assert_eq!(part.cpu_total_ns, total, "{part:?}");
        assert!(part.cpu_total_ns >= part.caused.cpu_ns);
    }
    // What took most CPU time comes first.
    let cpu: Vec<u64> = sources
        .files
        .iter()
        .map(|part| part.caused.cpu_ns)
        .collect();
    assert!(cpu.is_sorted_by(|a, b| a >= b), "{cpu:?}");
}

#[test]
fn what_a_bundler_added_is_of_who_calls_it() {
    let mut recording = program_of_packages();
    let as_modules = Found::new(&recording);
    bundled(&mut recording, BUNDLE, |path| path != DEEP);
    let found = Found::new(&recording);
    let of_a = (found.modules.sources[0].files.iter())
        .find(|part| recording.name(part.part) == A.as_bytes())
        .unwrap();
    let mut expected = as_modules.module(A).caused;
    expected.add(&as_modules.module(DEEP).caused);
    assert_eq!(of_a.caused, expected);
}

#[test]
fn a_script_that_was_made_of_one_file_is_no_bundle_unless_it_is_another_packages() {
    let files = |is_mapped: fn(&str) -> bool| {
        let mut recording = program_of_packages();
        bundled(&mut recording, BUNDLE, is_mapped);
        let found = Found::new(&recording);
        found.modules.sources[0].files.len()
    };
    assert_eq!(files(|path| path == MAIN), 0, "as of TypeScript");
    assert_eq!(files(|path| path == A), 1, "split off of a bundle");
    assert_eq!(
        Found::new(&program_of_packages()).modules.sources[0].files,
        []
    );
}

#[test]
fn own_files_of_a_bundle_in_a_package_are_that_packages() {
    let mut recording = program_of_packages();
    bundled(&mut recording, "/app/node_modules/tool/dist/cli.js", |_| {
        true
    });
    let packages = &Found::new(&recording).modules.sources[0].packages;
    let of_main = packages.iter().map(|part| part.part.as_deref());
    assert!(
        of_main
            .clone()
            .any(|d| d == Some(b"/app/node_modules/tool"))
    );
    assert!(of_main.clone().all(|directory| directory.is_some()));
}

#[test]
fn what_one_chunk_of_a_bundle_added_is_not_of_a_file_in_another() {
    let mut recording = program_of_packages();
    bundled(&mut recording, BUNDLE, |_| true);
    // DEEP's functions are what the bundler added to another chunk, which has two files of its own.
    recording.names.push(b"/app/chunk.js".to_vec());
    let chunk = NameId(recording.names.len() as u32 - 1);
    let is_of = |recording: &Recording, index: usize, path: &str| {
        let original = recording.frames[index].original;
        original.is_some_and(|o| recording.name(o.file) == path.as_bytes())
    };
    let mut spare = Vec::new();
    for index in 0..recording.frames.len() {
        if is_of(&recording, index, DEEP) {
            spare.push(recording.frames[index]);
            recording.frames[index].file = Some(chunk);
            recording.frames[index].original = None;
        }
    }
    for file in [0, 1] {
        let mut frame = spare[0];
        frame.file = Some(chunk);
        frame.original.as_mut().unwrap().file = NameId(file);
        recording.frames.push(frame);
    }
    let found = Found::new(&recording);
    let files = &found.modules.sources[0].files;
    let sum: u64 = files.iter().map(|part| part.caused.crossings).sum();
    let bundle = found.module(BUNDLE).caused.crossings;
    assert_eq!(sum, bundle, "never more than the bundle's own");
}
