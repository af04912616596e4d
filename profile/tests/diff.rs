//! Two groups of runs side by side: what is exact, what is noise, and what is never said.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::cmp::Ordering;

use nodeprof_profile::diff::causes::CauseKind;
use nodeprof_profile::diff::figures::{Figures, List, Naming, Unit};
use nodeprof_profile::diff::verdict::Rule;
use nodeprof_profile::diff::{Answer, Certainty, Diff, Side};
use nodeprof_profile::groups::Group;
use nodeprof_profile::modules::package::PackageKind;
use nodeprof_profile::recording::{
    Compilation, CompilationUnit, Crossing, Loss, NameId, Nanoseconds, ProcessId, RunId, ThreadId,
    Wait, WaitReason,
};
use nodeprof_profile::synthetic::program::Program;
use nodeprof_profile::{Profile, Recording, RunProfile};

/// Runs of a synthetic program that end after these times, in µs beyond a second; `change` makes the side what it is.
fn side(name: &str, micros: &[u64], change: impl Fn(&mut Recording, usize)) -> Recording {
    let mut all = Recording::default();
    for (index, micros) in micros.iter().enumerate() {
        let mut one = Recording::synthetic(400);
        // In turn with those of the other side.
        one.runs[0].started_unix_ns +=
            index as u64 * 10_000_000_000 + u64::from(name == "head") * 5_000_000_000;
        one.runs[0].ended = Nanoseconds(one.runs[0].started.0 + 1_000_000_000 + micros * 1000);
        one.runs[0].labels.push(("name".into(), name.into()));
        change(&mut one, index);
        all.append(one);
    }
    all
}

fn same(_: &mut Recording, _: usize) {}

fn compare(base: Recording, head: Recording) -> Diff {
    let mut both = base;
    both.append(head);
    let profile = Profile::from_recording(&both);
    let (base, head) = Group::sides(&both).expect("two sides");
    let side = |group| Side {
        recording: &both,
        profile: &profile,
        group,
    };
    Diff::new(&side(base), &side(head))
}

const NOISE: [u64; 8] = [10, 250, 90, 400, 170, 320, 60, 230];

fn kinds(diff: &Diff) -> Vec<&str> {
    diff.statements
        .iter()
        .map(|statement| statement.kind)
        .collect()
}

#[test]
fn equal_sides_differ_in_nothing() {
    let mut shuffled = NOISE;
    shuffled.reverse();
    let diff = compare(side("base", &NOISE, same), side("head", &shuffled, same));
    assert_eq!(diff.verdict.answer, Answer::NoDifference);
    assert_eq!(diff.verdict.rule, Rule::Groups);
    assert_eq!(
        (diff.counts.len(), diff.durations.len(), diff.causes.len()),
        (0, 0, 0)
    );
    assert!(diff.tests.constant_counts > 300, "{:?}", diff.tests);
}

/// Half of base's runs take 1.1 s and half 1.2 s, and head's 10 % more: that is 115 ms of the median, 1.15 s, not 120 ms.
#[test]
fn what_pairs_differ_by_is_a_share_of_the_median_also_of_an_even_number() {
    let pairs = |name: &str, factor: f64| {
        let base = (0..10).map(|index| if index < 5 { 1.1 } else { 1.2 });
        let micros: Vec<u64> = base
            .map(|s: f64| ((s * factor - 1.0) * 1e6).round() as u64)
            .collect();
        side(name, &micros, |recording, index| {
            let pair = (nodeprof_profile::groups::PAIR.into(), index.to_string());
            recording.runs[0].labels.push(pair);
        })
    };
    let diff = compare(pairs("base", 1.0), pairs("head", 1.1));
    assert_eq!(diff.verdict.rule, Rule::Pairs);
    let sentence = &diff.verdict.sentence;
    assert!(
        sentence.starts_with("head is slower by 115 ms, 10.0 %"),
        "{sentence}"
    );
}

#[test]
fn one_more_crossing_is_exact_and_named() {
    let diff = compare(
        side("base", &NOISE[..5], same),
        side("head", &NOISE[..5], |recording, _| {
            let mut last: Crossing = *recording.crossings.last().expect("crossings");
            last.stack = None;
            recording.crossings.push(last);
        }),
    );
    let callback = diff
        .counts
        .iter()
        .find(|change| change.list == "crossings.callbacks");
    let callback = callback.expect("a callback");
    assert_eq!(
        (callback.difference, callback.certainty),
        (1.0, Certainty::Exact)
    );
    let total = diff
        .counts
        .iter()
        .find(|change| change.figure == "crossings.total");
    assert_eq!(total.expect("the total").difference, 1.0);
    // Every other count is the same: each figure that differs has that call in it.
    let others = diff
        .counts
        .iter()
        .filter(|change| change.difference != 1.0)
        .count();
    assert_eq!(others, 0, "{:#?}", diff.counts);
}

#[test]
fn a_repeated_lookup_is_listed() {
    let diff = compare(
        side("base", &NOISE[..5], same),
        side("head", &NOISE[..5], |recording, _| {
            let again = recording.lookups[0];
            recording.lookups.push(again);
        }),
    );
    assert_eq!(diff.lookups.len(), 1);
    assert_eq!(diff.lookups[0].head - diff.lookups[0].base, 1.0);
    assert!(
        diff.causes
            .iter()
            .any(|cause| cause.sentence.contains("package.json lookup")
                || cause.sentence.contains("1 lookup more")),
        "{:#?}",
        diff.causes
    );
}

/// The same program by a command line that was typed in a folder; the run may have begun in another.
fn started(recording: &mut Recording, directory: &str, script: &str) {
    let main = NameId(recording.names.len() as u32);
    recording.names.push(b"/home/user/project/app.js".to_vec());
    recording.compilations.push(Compilation {
        process: ProcessId(0),
        thread: ThreadId(recording.processes[0].pid),
        start: recording.runs[0].started,
        duration: None,
        self_time: None,
        path: main,
        unit: CompilationUnit::Function,
        cached: false,
        stack: None,
    });
    let arguments = [b"node".to_vec(), script.into()];
    recording.processes[0].execs[0].arguments = arguments.to_vec();
    recording.runs[0].directory = directory.into();
}

#[test]
fn a_program_is_the_same_from_whatever_folder_it_is_started() {
    for (directory, script) in [
        ("/home/user/project", "app.js"),
        ("/home/user", "project/app.js"),
        ("/tmp", "../home/user/project/app.js"),
        // The shell that the run began with went there.
        ("/home/user", "app.js"),
        ("/home/user", "app"),
    ] {
        let diff = compare(
            side("base", &NOISE, |one, _| {
                started(one, "/home/user/project", "app.js");
            }),
            side("head", &NOISE, |one, _| started(one, directory, script)),
        );
        let added = (diff.causes.iter()).filter(|cause| cause.presence.is_some());
        assert_eq!(added.count(), 0, "{directory} {script}");
        assert_eq!(
            diff.counts.len(),
            0,
            "{directory} {script}: {:?}",
            diff.counts
        );
    }
}

/// Of a bare run only what was typed is known; its own paths are nobody's.
#[test]
fn what_was_typed_for_bare_runs_does_not_move_the_program() {
    let moved = |name: &str, typed: &dyn Fn(&str) -> String| {
        let script = format!("{name}/app.js");
        let command: Vec<Vec<u8>> = (typed(&script).split(' '))
            .map(|word| word.as_bytes().to_vec())
            .collect();
        let run = |index: u64, micros: u64| {
            let main = format!("/w/{script}");
            let mut program = Program::new(&main, false);
            program.require(&main, &[], 50_000, |main| {
                main.busy(1_000_000 + micros * 100);
                let path = format!("/w/{name}/lib/part.js");
                main.require(&path, &[], 50_000, |module| module.busy(2_000_000));
            });
            let (mut one, _) = program.end();
            let run = &mut one.runs[0];
            run.started_unix_ns +=
                index * 10_000_000_000 + u64::from(name == "head") * 5_000_000_000;
            run.directory = b"/w".to_vec();
            run.command = command.clone();
            run.labels.push(("name".into(), name.into()));
            let arguments = [b"node".to_vec(), script.clone().into_bytes()];
            one.processes[0].execs[0].arguments = arguments.to_vec();
            one
        };
        let mut all = Recording::default();
        for (index, micros) in (0..).zip(NOISE) {
            all.append(run(index, micros));
        }
        let mut bare = run(0, 0);
        bare = Recording {
            runs: bare.runs,
            processes: bare.processes,
            ..Recording::default()
        };
        bare.runs[0].mode = "bare".into();
        bare.processes[0].node = None;
        bare.processes[0].execs[0].arguments = command.clone();
        all.append(bare);
        all
    };
    for typed in [
        &(|script: &str| format!("node {script}")) as &dyn Fn(&str) -> String,
        // By its first line.
        &|script| script.to_owned(),
        &|script| format!("env NODE_ENV=production node {script}"),
        &|script| format!("node --unhandled-rejections warn {script}"),
    ] {
        let diff = compare(moved("base", typed), moved("head", typed));
        let command = typed("app.js");
        assert_eq!((diff.base.bare_runs, diff.head.bare_runs), (1, 1));
        assert_eq!(diff.counts.len(), 0, "{command}: {:?}", diff.counts);
        let added = (diff.causes.iter()).filter(|cause| cause.presence.is_some());
        assert_eq!(added.count(), 0, "{command}: {:?}", diff.causes);
    }
}

/// Two sides that take as long; head looks a package.json file up three times more.
fn compare_with_more_lookups() -> Diff {
    let noise = [NOISE, NOISE].concat();
    compare(
        side("base", &noise, same),
        side("head", &noise, |recording, _| {
            let again = recording.lookups[0];
            recording.lookups.extend([again; 3]);
        }),
    )
}

#[test]
fn where_the_whole_takes_as_long_what_node_does_more_often_comes_first() {
    let diff = compare_with_more_lookups();
    assert_eq!(diff.verdict.answer, Answer::NoDifference);
    let kinds: Vec<CauseKind> = diff.causes.iter().map(|cause| cause.kind).collect();
    assert_eq!(
        kinds.first(),
        Some(&CauseKind::PackageJson),
        "{:#?}",
        diff.causes
    );
    // The lookups of a module are not told a second time.
    let twice = (diff.causes.iter().skip(1))
        .any(|cause| cause.sentence.contains("package.json lookups more"));
    assert!(!twice, "{:#?}", diff.causes);
}

/// Base and head of a cause are what its change is the difference of, also where causes before it hold some of its time.
#[test]
fn the_change_of_a_cause_is_that_of_its_times() {
    let run = |name: &str, late: bool| {
        noisy(name, |micros| {
            let mut program = Program::new("/app/main.js", false);
            program.require("/app/main.js", &[], 50_000, |main| {
                for module in 0..8u64 {
                    let path = format!("/app/lib/{module}.js");
                    // One module compiles and runs longer by more than all others compile less.
                    let compile = match (late, module) {
                        (true, 0) => 30_000_000,
                        (true, _) => 500_000,
                        (false, _) => 3_000_000,
                    };
                    main.require(&path, &[], compile + micros * 100, |module| {
                        module.busy(1_000_000)
                    });
                }
            });
            program.end().0
        })
    };
    let diff = compare(run("base", false), run("head", true));
    let kinds: Vec<CauseKind> = diff.causes.iter().map(|cause| cause.kind).collect();
    assert_eq!(kinds, [CauseKind::Module, CauseKind::Package]);
    for cause in &diff.causes {
        let difference = cause.head_ns - cause.base_ns;
        assert_eq!(cause.change_ns, difference, "{}", cause.sentence);
    }
    let rest = &diff.causes[1].sentence;
    assert!(rest.contains("less besides other causes ("), "{rest}");
}

/// No time of a step that takes as long is no time below nothing, and a step whose time and counts changed has both.
#[test]
fn what_counts_tell_of_a_step_has_its_time() {
    let diff = compare_with_more_lookups();
    let first = diff.causes.first().expect("a cause");
    assert_eq!(first.kind, CauseKind::PackageJson);
    assert_eq!(first.change_ns, first.head_ns - first.base_ns);
    assert!(first.change_ns.is_sign_positive(), "{}", first.change_ns);
}

/// Modules that are built into node have no file to find, however long it takes until they are compiled.
#[test]
fn what_is_built_into_node_is_not_looked_for() {
    const BUILTIN: &str = "node:zlib";
    let run = |name: &str, late: u64| {
        let package = |main: &mut Program| main.require(BUILTIN, &[], 50_000, |_| {});
        with_package(name, package, &[(BUILTIN, late)])
    };
    let diff = compare(run("base", 0), run("head", 1_500_000));
    let first = diff.causes.first().expect("a cause");
    assert_eq!((first.kind, &*first.name), (CauseKind::Module, BUILTIN));
    let says = "1.50 ms of it before it is compiled";
    assert!(first.sentence.contains(says), "{}", first.sentence);
    let finding = |cause: &nodeprof_profile::diff::Cause| cause.kind == CauseKind::Resolution;
    assert!(!diff.causes.iter().any(finding), "{:#?}", diff.causes);
}

/// A module takes longer to be found because another program has the CPU.
#[test]
fn a_module_that_waits_to_be_loaded_does_not_only_take_longer() {
    const WAIT: u64 = 4_000_000;
    const MODULE: &str = "/app/lib/a.js";
    let run = |name: &str, wait: u64| {
        let package = |main: &mut Program| main.require(MODULE, &[], 50_000, |_| {});
        let mut all = with_package(name, package, &[(MODULE, wait)]);
        let stats: Vec<_> = (all.files.iter())
            .filter(|file| all.name(file.path) == MODULE.as_bytes())
            .filter(|file| wait > 0 && file.duration.0 >= wait)
            .map(|file| Wait {
                process: file.process,
                thread: file.thread,
                start: file.start,
                duration: Nanoseconds(wait),
                runnable: Nanoseconds(wait),
                reason: WaitReason::Preempted,
                syscall: None,
                stack: file.stack,
            })
            .collect();
        all.waits = stats;
        all
    };
    let diff = compare(run("base", 0), run("head", WAIT));
    let first = diff.causes.first().expect("a cause");
    assert!(
        first.name.ends_with("a.js") && first.sentence.contains("4.00 ms of it off the CPU"),
        "{}",
        first.sentence
    );
}

/// Runs of a program whose main module looks at these files before it finds another one.
fn asking(name: &str, asked: &[&str]) -> Recording {
    noisy(name, |micros| {
        let mut program = Program::new("/app/main.js", false);
        program.require("/app/main.js", &[], 50_000, |main| {
            main.busy(10_000_000 + micros * 100);
            main.require("/app/lib/a.js", asked, 50_000, |_| {});
        });
        program.end().0
    })
}

/// Stats of package.json files are told with what else is done with these, and all that once.
#[test]
fn what_is_done_with_package_json_files_is_told_once() {
    let diff = compare(
        asking("base", &[]),
        asking("head", &["/app/lib/package.json", "/app/package.json"]),
    );
    let told: Vec<(CauseKind, &str)> = (diff.causes.iter())
        .filter(|cause| cause.sentence.contains("2 stats more"))
        .map(|cause| (cause.kind, cause.sentence.as_str()))
        .collect();
    assert!(
        matches!(told[..], [(CauseKind::PackageJson, _)]),
        "{:#?}",
        diff.causes
    );
}

/// Besides those, the others are told as finding files.
#[test]
fn stats_of_package_json_files_are_not_told_as_finding_files() {
    let asked = [
        "/app/lib/package.json",
        "/app/package.json",
        "/app/lib/a",
        "/app/lib/a.mjs",
        "/app/lib/a.cjs",
    ];
    let steps = |diff: &Diff| -> Vec<(CauseKind, String)> {
        let of = |cause: &nodeprof_profile::diff::Cause| (cause.kind, cause.sentence.clone());
        diff.causes.iter().map(of).collect()
    };
    let diff = compare(asking("base", &[]), asking("head", &asked));
    let told = steps(&diff);
    let says = |kind: CauseKind, words: &str| {
        let mut all = told.iter();
        all.any(|(of, sentence)| *of == kind && sentence.contains(words))
    };
    assert!(
        says(CauseKind::Resolution, ": 3 stats more (2 → 5)"),
        "{told:#?}"
    );
    assert!(
        says(CauseKind::PackageJson, ": 2 stats more (0 → 2)"),
        "{told:#?}"
    );
    // Where modules are not known, the function that looks is called for both.
    let calls = |name: &str, asked: &[&str]| {
        let package = |main: &mut Program| {
            for path in ["/app/x"].iter().chain(asked) {
                main.cross_into("fs", "InternalModuleStat", |main| {
                    main.file(
                        nodeprof_profile::recording::FileOperation::Stat,
                        path,
                        -2,
                        3_000,
                    );
                });
            }
        };
        counted(with_package(name, package, &[]))
    };
    let told = steps(&compare(calls("base", &[]), calls("head", &asked)));
    let says = |kind: CauseKind, words: &str| {
        let mut all = told.iter();
        all.any(|(of, sentence)| *of == kind && sentence.contains(words))
    };
    let finding = "3 calls of InternalModuleStat more for other files than package.json";
    assert!(says(CauseKind::Resolution, finding), "{told:#?}");
    assert!(
        says(CauseKind::PackageJson, ": 2 stats more (0 → 2)"),
        "{told:#?}"
    );
}

/// What a module looks for in vain, and takes longer for, is told with it: no module was found by it.
#[test]
fn what_is_looked_for_in_vain_is_told_once() {
    let run = |name: &str, asked: usize| {
        noisy(name, |micros| {
            let mut program = Program::new("/app/main.js", false);
            program.require("/app/main.js", &[], 50_000, |main| {
                runs(main, 1_000_000 + micros * 100);
                for _ in 0..asked {
                    main.cross_into("fs", "InternalModuleStat", |main| {
                        main.require_in_vain(&["/app/none.js"]);
                    });
                    runs(main, 50_000);
                }
            });
            program.end().0
        })
    };
    let diff = compare(run("base", 1), run("head", 101));
    let kinds: Vec<CauseKind> = diff.causes.iter().map(|cause| cause.kind).collect();
    assert_eq!(kinds, [CauseKind::Module], "{:#?}", diff.causes);
    let sentence = sentence_of(&diff, "main.js");
    assert!(sentence.contains("100 stats more (1 → 101)"), "{sentence}");
}

/// A bundle is one module; which package in it calls C++ more often is said all the same.
#[test]
fn what_changed_in_a_bundle_is_said_of_its_package() {
    let run = |name: &str, [of_a, of_b]: [usize; 2]| {
        noisy(name, |micros| {
            let mut program = Program::new("/app/main.js", false);
            program.require("/app/main.js", &[], 50_000, |main| {
                for (path, calls) in [
                    ("/app/node_modules/a/index.js", of_a),
                    ("/app/node_modules/b/index.js", of_b),
                ] {
                    main.require(path, &[], 50_000, |package| {
                        package.busy(1_000_000 + micros * 100);
                        for _ in 0..calls {
                            package.cross("fs", "fstat", 1_000);
                        }
                    });
                }
                runs(main, 20_000);
            });
            let mut recording = program.end().0;
            common::bundled(&mut recording, "/app/out.js", |_| true);
            recording
        })
    };
    let base = || run("base", [100, 100]);
    let diff = compare(base(), run("head", [150, 100]));
    let found: Vec<(&str, f64)> = (diff.counts.iter())
        .filter(|change| change.list == "bundled_packages")
        .map(|change| (change.name.as_str(), change.difference))
        .collect();
    assert_eq!(found, [("a", 50.0)]);
    let sentence = |diff: &Diff| sentence_of(diff, "out.js").to_owned();
    let told = sentence(&diff);
    assert!(told.contains("50 crossings more"), "{told}");
    assert!(told.contains(") in a"), "{told}");
    let both = sentence(&compare(base(), run("head", [130, 110])));
    assert!(both.contains("): 30 more in a and 10 more in b"), "{both}");
    let apart = sentence(&compare(base(), run("head", [150, 80])));
    assert!(apart.contains("30 crossings more"), "{apart}");
    assert!(
        apart.contains("): 50 more in a and 20 fewer in b"),
        "{apart}"
    );
}

/// What a package that came explains of package.json files is told with it, and only that.
#[test]
fn what_is_left_of_package_json_files_is_told() {
    use nodeprof_profile::recording::{FileOperation, Lookup};
    const ADDED: &str = "/app/node_modules/delta/index.js";
    let run = |name: &str, added: bool, asked: &[&str], opens: usize| {
        let package = |main: &mut Program| {
            runs(main, 0);
            if added {
                main.require(ADDED, &[], 50_000, |_| {});
            }
            main.require("/app/lib/a.js", asked, 50_000, |_| {});
            for _ in 0..opens {
                main.file(FileOperation::Open, "/app/package.json", 5, 3_000);
            }
        };
        let mut all = with_package(name, package, &[]);
        let path = NameId(all.names.len() as u32);
        all.names
            .push(b"/app/node_modules/delta/package.json".to_vec());
        let lookups: Vec<Lookup> = (all.files.iter())
            .filter(|file| all.name(file.path) == ADDED.as_bytes())
            .filter(|file| file.operation == FileOperation::Stat)
            .map(|file| Lookup {
                process: file.process,
                thread: file.thread,
                at: file.start,
                path,
                stack: file.stack,
            })
            .collect();
        all.lookups.extend(lookups);
        all
    };
    let told = |added, asked: &[&str], opens| -> Vec<String> {
        let diff = compare(run("base", false, &[], 0), run("head", added, asked, opens));
        (diff.causes.into_iter())
            .filter(|cause| cause.kind == CauseKind::PackageJson)
            .map(|cause| cause.sentence)
            .collect()
    };
    assert_eq!(told(true, &[], 0), [""; 0]);
    let what = "reading package.json files:";
    assert_eq!(
        told(true, &["/app/lib/package.json"], 0),
        [format!("{what} 1 stat more (0 → 1).")]
    );
    assert_eq!(
        told(false, &[], 3),
        [format!("{what} 3 opens more (0 → 3).")]
    );
}

/// Runs for so long, as its events show.
fn runs(module: &mut Program, busy: u64) {
    module.busy(busy);
    module.cross("fs", "fstat", 1_000);
}

/// A package takes longer for certain because of one module; of the others that is chance.
#[test]
fn what_causes_leave_is_tested_again() {
    let run = |name: &str, busy: u64, others: u64| {
        noisy(name, |micros| {
            let mut program = Program::new("/app/main.js", false);
            program.require("/app/main.js", &[], 50_000, |main| {
                main.require("/app/lib/a.js", &[], 50_000, |module| {
                    runs(module, busy + micros * 100);
                });
                main.require("/app/lib/b.js", &[], 50_000, |module| {
                    runs(module, 1_000_000 + micros * 20_000 + others);
                });
            });
            program.end().0
        })
    };
    let diff = compare(
        run("base", 1_000_000, 0),
        run("head", 31_000_000, 2_500_000),
    );
    let names: Vec<&str> = diff.causes.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["./lib/a.js"], "{:#?}", diff.causes);
}

/// One package holds all that compiling takes longer, whatever its first module has of it.
#[test]
fn a_package_that_holds_most_of_a_step_is_the_cause_of_it() {
    let run = |name: &str, compile: u64, execute: u64| {
        noisy(name, |micros| {
            let mut program = Program::new("/app/main.js", false);
            program.require("/app/main.js", &[], 50_000, |main| {
                main.busy(1_000_000 + micros * 100);
                for module in 0..8 {
                    let path = format!("/app/node_modules/delta/{module}.js");
                    main.require(&path, &[], compile + micros * 10, |module| {
                        runs(module, execute)
                    });
                }
            });
            program.end().0
        })
    };
    let diff = compare(
        run("base", 500_000, 1_000_000),
        run("head", 2_500_000, 800_000),
    );
    let first = diff.causes.first().expect("a cause");
    assert_eq!(
        (first.kind, first.name.as_str()),
        (CauseKind::Package, "delta"),
        "{:#?}",
        diff.causes
    );
    // Of which it does not hold the time itself it is not.
    let diff = compare(
        run("base", 500_000, 2_000_000),
        run("head", 2_500_000, 300_000),
    );
    let first = diff.causes.first().expect("a cause");
    assert_eq!(first.kind, CauseKind::Compilation, "{:#?}", diff.causes);
}

/// Another version of node may have a built-in module in its snapshot: that it is not compiled does not say that it is not loaded.
#[test]
fn built_in_modules_of_another_version_are_not_said_to_be_added_or_removed() {
    let run = |name: &str, builtin: &str, version: &str| {
        let package = |main: &mut Program| main.require(builtin, &[], 900_000, |_| {});
        let mut all = with_package(name, package, &[]);
        for binary in &mut all.binaries {
            binary.node_version = Some(version.into());
        }
        all
    };
    let of = |head_version: &str| {
        compare(
            run("base", "node:zlib", "v22.1.0"),
            run("head", "node:module", head_version),
        )
    };
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(|of| (*of).into()).collect() };
    let presences = |diff: &Diff| -> Vec<(String, Option<&str>)> {
        let mut of: Vec<_> = (diff.causes.iter())
            .map(|cause| (cause.name.clone(), cause.presence))
            .collect();
        of.sort();
        of
    };
    let same = of("v22.1.0");
    assert_eq!(same.modules.added, names(&["node:module"]));
    assert_eq!(same.modules.removed, names(&["node:zlib"]));
    assert_eq!(same.builtins, Default::default());
    assert_eq!(
        presences(&same),
        [
            ("node:module".to_owned(), Some("added")),
            ("node:zlib".to_owned(), Some("removed"))
        ]
    );
    let other = of("v24.1.0");
    assert_eq!(other.modules, Default::default());
    assert_eq!(other.builtins.now_compiled, names(&["node:module"]));
    assert_eq!(other.builtins.no_longer_compiled, names(&["node:zlib"]));
    assert_eq!(
        presences(&other),
        [
            ("node:module".to_owned(), Some("now_compiled")),
            ("node:zlib".to_owned(), Some("no_longer_compiled"))
        ]
    );
}

/// Of two modules that run for as long, these collect garbage, for so long; and so does the main script, always.
fn collecting(name: &str, collects: [bool; 2]) -> Recording {
    noisy(name, |micros| {
        let mut program = Program::new("/app/main.js", true);
        program.require("/app/main.js", &[], 50_000, |main| {
            for (module, collects) in ["a", "b"].into_iter().zip(collects) {
                let path = format!("/app/lib/{module}.js");
                main.require(&path, &[], 50_000, |module| {
                    module.busy(2_000_000 + micros * 100);
                    if collects {
                        let collection = "v8::internal::Heap::PerformGarbageCollection";
                        module.native(collection, |module| module.busy(9_000_000));
                    }
                });
            }
            let collection = "v8::internal::Heap::Scavenge";
            main.native(collection, |main| main.busy(15_000_000));
        });
        program.end().0
    })
}

fn sentence_of<'a>(diff: &'a Diff, module: &str) -> &'a str {
    let of = |cause: &&nodeprof_profile::diff::Cause| cause.name.ends_with(module);
    let cause = diff.causes.iter().find(of);
    cause.map_or("", |cause| cause.sentence.as_str())
}

/// A collection that runs in another module now is told with both modules.
#[test]
fn what_moved_to_another_module_is_said_of_it() {
    let diff = compare(
        collecting("base", [true, false]),
        collecting("head", [false, true]),
    );
    for (module, says) in [
        (
            "a.js",
            "9.00 ms of it garbage collections that run in others now.",
        ),
        (
            "b.js",
            "9.00 ms of it garbage collections that ran in others before.",
        ),
    ] {
        let sentence = sentence_of(&diff, module);
        assert!(sentence.ends_with(says), "{sentence}: {:#?}", diff.causes);
    }
    // More of them did not move.
    let diff = compare(
        collecting("base", [false, false]),
        collecting("head", [false, true]),
    );
    let sentence = sentence_of(&diff, "b.js");
    let says = "9.00 ms of it garbage collections.";
    assert!(sentence.ends_with(says), "{sentence}");
}

/// What the collector takes of a run is in modules that are known: one that takes longer without it does not have it.
#[test]
fn what_did_not_move_is_not_said_to() {
    let side = |name: &str, busy: u64| {
        noisy(name, |micros| {
            let mut program = Program::new("/app/main.js", true);
            program.require("/app/main.js", &[], 50_000, |main| {
                main.require("/app/lib/a.js", &[], 50_000, |module| {
                    runs(module, busy + micros * 100);
                });
                let collection = "v8::internal::Heap::Scavenge";
                main.native(collection, |main| main.busy(15_000_000));
            });
            program.end().0
        })
    };
    let diff = compare(side("base", 2_000_000), side("head", 11_000_000));
    let sentence = sentence_of(&diff, "a.js");
    assert!(
        sentence.contains("9.00 ms of it executing"),
        "{:#?}",
        diff.causes
    );
    assert!(!sentence.contains("garbage"), "{sentence}");
}

/// A module's own code waits for the CPU while it loads nothing.
#[test]
fn a_module_that_waits_while_it_runs_is_off_the_cpu() {
    let run = |name: &str, wait: u64| {
        noisy(name, |micros| {
            let mut program = Program::new("/app/main.js", false);
            program.require("/app/main.js", &[], 50_000, |main| {
                main.require("/app/lib/a.js", &[], 50_000, |module| {
                    module.busy(2_000_000 + micros * 100);
                    module.cross_into("fs", "fstat", |module| module.preempted(1_000 + wait));
                });
            });
            program.end().0
        })
    };
    let diff = compare(run("base", 0), run("head", 4_000_000));
    let sentence = sentence_of(&diff, "a.js");
    assert!(sentence.contains("4.00 ms of it off the CPU"), "{sentence}");
}

/// So many runs of a side as there is noise, each made of its own, thousandths of a ms.
fn noisy(name: &str, run: impl Fn(u64) -> Recording) -> Recording {
    let mut all = Recording::default();
    for (index, micros) in NOISE.iter().enumerate() {
        let mut one = run(*micros);
        one.runs[0].started_unix_ns +=
            index as u64 * 10_000_000_000 + u64::from(name == "head") * 5_000_000_000;
        one.runs[0].labels.push(("name".into(), name.into()));
        all.append(one);
    }
    all
}

/// Runs of a program of eight modules that compile and run for so long each, ns.
fn modules(name: &str, cached: bool, compile_ns: u64, execute_ns: u64) -> Recording {
    noisy(name, |micros| {
        let mut program = Program::new("/app/main.js", false);
        program.require("/app/main.js", &[], 50_000, |main| {
            for module in 0..8 {
                let path = format!("/app/lib/{module}.js");
                main.require(&path, &[], compile_ns + micros * 100, |module| {
                    module.busy(execute_ns)
                });
            }
        });
        let (mut one, _) = program.end();
        for compilation in &mut one.compilations {
            compilation.cached = cached;
        }
        one
    })
}

/// All that is compiled belongs to one package, whose modules also run a little longer or shorter: it is not to blame for that.
#[test]
fn a_code_cache_that_was_lost_or_came_is_the_cause_whoever_has_the_modules() {
    const SLOW: u64 = 10_000_000;
    const FAST: u64 = 500_000;
    let first = |base: (bool, u64), head: (bool, u64), execute_ns| {
        let diff = compare(
            modules("base", base.0, base.1, 1_000_000),
            modules("head", head.0, head.1, execute_ns),
        );
        diff.causes.first().expect("a cause").clone()
    };
    for execute_ns in [900_000, 1_000_000, 1_100_000] {
        for (base, head) in [((true, FAST), (false, SLOW)), ((false, SLOW), (true, FAST))] {
            let cause = first(base, head, execute_ns);
            assert_eq!(cause.kind, CauseKind::Compilation, "{}", cause.sentence);
            assert!(cause.sentence.contains("from a code cache"));
        }
    }
    // Where the cache is not what changed, the package that takes longer is.
    let cause = first((false, FAST), (false, SLOW), 1_100_000);
    assert_eq!(cause.kind, CauseKind::Package, "{}", cause.sentence);
}

/// The first stat of a path takes so much longer, and all comes later.
fn delay_stat(run: &mut Recording, path: &str, by: u64) {
    let of_path = run
        .files
        .iter()
        .filter(|f| run.name(f.path) == path.as_bytes());
    let first = of_path.map(|file| file.start).min().expect("one");
    for file in &mut run.files {
        match file.start.cmp(&first) {
            Ordering::Less => {}
            Ordering::Equal => file.duration.0 += by,
            Ordering::Greater => file.start.0 += by,
        }
    }
    for compilation in &mut run.compilations {
        if compilation.start > first {
            compilation.start.0 += by;
        }
    }
    for crossing in &mut run.crossings {
        let end = crossing.start.0 + crossing.duration.map_or(0, |duration| duration.0);
        match (
            crossing.start > first,
            end > first.0,
            &mut crossing.duration,
        ) {
            (true, _, _) => crossing.start.0 += by,
            (false, true, Some(duration)) => duration.0 += by,
            _ => {}
        }
    }
    for milestone in run.milestones.iter_mut().filter(|m| m.at > first) {
        milestone.at.0 += by;
    }
    for process in &mut run.processes {
        process.exited.iter_mut().for_each(|at| at.0 += by);
    }
    run.runs[0].ended.0 += by;
}

/// Runs of a program that does this after a while, and in which the first stats of these paths take so much longer, ns.
fn with_package(name: &str, package: impl Fn(&mut Program), later: &[(&str, u64)]) -> Recording {
    noisy(name, |micros| {
        let mut program = Program::new("/app/main.js", false);
        program.require("/app/main.js", &[], 50_000, |main| {
            main.busy(10_000_000 + micros * 100);
            package(main);
        });
        let (mut one, _) = program.end();
        for (path, by) in later {
            delay_stat(&mut one, path, *by);
        }
        one
    })
}

/// As count mode records it: no stacks, so no modules.
fn counted(mut all: Recording) -> Recording {
    for run in &mut all.runs {
        run.mode = "count".into();
    }
    all.crossings.iter_mut().for_each(|of| of.stack = None);
    all.lookups.iter_mut().for_each(|of| of.stack = None);
    all.files.iter_mut().for_each(|of| of.stack = None);
    all.serializations.iter_mut().for_each(|of| of.stack = None);
    all.compilations.iter_mut().for_each(|of| of.stack = None);
    all.samples.clear();
    all
}

/// Of runs that were only counted compilations have times, and callbacks counts.
#[test]
fn causes_of_runs_that_were_counted_are_scripts_phases_and_callbacks() {
    let of = |compile_ns: Option<u64>, calls: usize, busy: u64| {
        move |main: &mut Program| {
            main.require("/app/lib/other.js", &[], 2_000_000, |_| {});
            if let Some(ns) = compile_ns {
                main.require("/app/node_modules/heavy/index.js", &[], ns, |_| {});
            }
            main.busy(busy);
            for _ in 0..calls {
                main.cross("fs", "Stat", 1_000);
            }
        }
    };
    let diff = |head: (Option<u64>, usize, u64)| {
        compare(
            counted(with_package("base", of(None, 3, 1_000_000), &[])),
            counted(with_package("head", of(head.0, head.1, head.2), &[])),
        )
    };
    let told = |diff: &Diff| {
        let of = |cause: &nodeprof_profile::diff::Cause| (cause.kind, cause.presence);
        diff.causes.iter().map(of).collect::<Vec<_>>()
    };
    // The script holds its time, and the phase around it only the rest.
    let added = diff((Some(40_000_000), 503, 9_000_000));
    assert!(added.modules.added.is_empty(), "{:?}", added.modules);
    let first = &added.causes[0];
    assert_eq!(
        (first.kind, first.presence),
        (CauseKind::Script, Some("added"))
    );
    assert!(first.name.contains("heavy/index.js"), "{}", first.sentence);
    assert!(
        (first.change_ns - 40_000_000.0).abs() < 1_000_000.0,
        "{}",
        first.sentence
    );
    let phase = &added.causes[1];
    assert_eq!(phase.kind, CauseKind::Phase, "{}", phase.sentence);
    assert!(
        phase.sentence.contains("without its compilations")
            && phase.sentence.contains("500 crossings more"),
        "{}",
        phase.sentence
    );
    assert!(phase.change_ns < 15_000_000.0, "{}", phase.sentence);
    let callback = added
        .causes
        .iter()
        .find(|of| of.kind == CauseKind::Callback);
    let callback = callback.expect("a callback");
    assert!(
        callback
            .sentence
            .contains("fs.Stat: 500 calls more (3 → 503)"),
        "{}",
        callback.sentence
    );
    assert_eq!(callback.certainty, Certainty::Exact);
    // Nothing but the compilations differs: no phase is to blame for them.
    let compiled = diff((Some(40_000_000), 3, 1_000_000));
    assert!(
        !told(&compiled)
            .iter()
            .any(|(kind, _)| matches!(kind, CauseKind::Phase | CauseKind::Callback)),
        "{:#?}",
        compiled.causes
    );
    assert_eq!(told(&diff((None, 3, 1_000_000))), []);
    // What compiles beside the main thread is no part of its time: a second node, or a worker.
    let second = |all: &mut Recording| {
        for run in 0..all.runs.len() {
            let first = all.processes.iter().find(|of| of.run.0 as usize == run);
            let child = nodeprof_profile::recording::Process {
                pid: 4_000_000 + run as u32,
                ..first.expect("a process").clone()
            };
            assert!(child.node.is_some());
            all.processes.push(child);
        }
    };
    let worker = |all: &mut Recording| {
        let id = nodeprof_profile::recording::CallbackId(all.callbacks.len() as u32);
        all.callbacks.push(nodeprof_profile::recording::Callback {
            binding: "worker".into(),
            function: "Worker::StartThread".into(),
        });
        let first = |process: ProcessId| {
            let of_process = |of: &&Crossing| of.process == process;
            *all.crossings.iter().find(of_process).expect("a crossing")
        };
        let starts: Vec<Crossing> = (0..all.processes.len() as u32)
            .map(|process| Crossing {
                callback: id,
                ..first(ProcessId(process))
            })
            .collect();
        all.crossings.extend(starts);
    };
    for beside in [&second as &dyn Fn(&mut Recording), &worker] {
        let side = |name: &str, compile_ns| {
            let mut all = counted(with_package(name, of(compile_ns, 3, 1_000_000), &[]));
            beside(&mut all);
            all
        };
        let causes = compare(side("base", None), side("head", Some(40_000_000))).causes;
        let of_script = causes.iter().find(|of| of.kind == CauseKind::Script);
        let sentence = &of_script.expect("a script").sentence;
        assert!(
            sentence.ends_with("in all threads and processes."),
            "{sentence}"
        );
        assert!(
            !causes
                .iter()
                .any(|of| of.sentence.contains("without its compilations")),
            "{causes:#?}"
        );
    }
}

/// What compiles a script that was added is no cause besides it; what is called by more than that is.
#[test]
fn the_compilation_of_an_added_script_is_told_once() {
    let of = |heavy: bool, others: usize| {
        move |main: &mut Program| {
            let compile = |main: &mut Program| {
                main.cross("contextify", "CompileFunctionForCJSLoader", 1_000);
            };
            compile(main);
            main.require("/app/lib/other.js", &[], 2_000_000, |_| {});
            if heavy {
                compile(main);
                main.require("/app/node_modules/heavy/index.js", &[], 40_000_000, |_| {});
            }
            (0..others).for_each(|_| compile(main));
        }
    };
    let causes = |others| {
        let side = |name, heavy, others| counted(with_package(name, of(heavy, others), &[]));
        compare(side("base", false, 0), side("head", true, others)).causes
    };
    let is_compiler = |of: &&nodeprof_profile::diff::Cause| of.kind == CauseKind::Callback;
    let told = causes(0);
    assert_eq!(told[0].kind, CauseKind::Script, "{told:#?}");
    assert_eq!(told.iter().find(is_compiler), None);
    let told = causes(1);
    let compiler = told.iter().find(is_compiler).expect("a callback");
    assert!(
        compiler.sentence.contains("2 calls more (1 → 3)"),
        "{}",
        compiler.sentence
    );
}

/// Beside a busy machine the search for files took longer than the package that was added, for which most of it was done.
#[test]
fn an_added_package_is_the_cause_of_the_search_for_it() {
    let package = |main: &mut Program| {
        for module in 0..12 {
            let path = format!("/app/node_modules/delta/{module}.js");
            main.require(&path, &[], 50_000, |module| module.busy(20_000));
        }
    };
    let diff = compare(
        with_package("base", |_| {}, &[]),
        with_package("head", package, &[("/app/main.js", 3_000_000)]),
    );
    // What took longer besides is another cause.
    assert!(diff.causes.len() > 1, "{:#?}", diff.causes);
    let first = diff.causes.first().expect("a cause");
    let named = (first.kind, first.name.as_str(), first.presence);
    assert_eq!(
        named,
        (CauseKind::Package, "delta", Some("added")),
        "{}",
        first.sentence
    );
}

/// What was added takes no time that matters: the search for it does.
#[test]
fn a_package_that_costs_next_to_nothing_hides_no_other_cause() {
    let package = |added: bool| {
        move |main: &mut Program| {
            main.require("/app/node_modules/other/index.js", &[], 50_000, |_| {});
            main.cross("fs", "fstat", 1_000);
            if added {
                main.require("/app/node_modules/delta/index.js", &[], 1_000, |_| {});
            }
            main.cross("fs", "fstat", 1_000);
        }
    };
    let diff = compare(
        with_package("base", package(false), &[]),
        with_package(
            "head",
            package(true),
            &[
                ("/app/main.js", 1_500_000),
                ("/app/node_modules/other/index.js", 1_500_000),
            ],
        ),
    );
    let first = diff.causes.first().expect("a cause");
    assert_eq!(first.kind, CauseKind::Resolution, "{}", first.sentence);
    assert!(first.change_ns > 2_000_000.0, "{}", first.sentence);
}

#[test]
fn a_slower_side_is_slower_with_stars() {
    let slower: Vec<u64> = NOISE.iter().map(|micros| micros + 100_000).collect();
    let diff = compare(side("base", &NOISE, same), side("head", &slower, same));
    assert_eq!(diff.verdict.answer, Answer::Slower);
    assert!(
        diff.verdict
            .sentence
            .contains("head is slower by 100 ms, 10.0 %"),
        "{}",
        diff.verdict.sentence
    );
    let wall = &diff.times[0];
    assert_eq!((wall.figure.as_str(), wall.stars), ("time.wall_ns", "***"));
    let [half, wider, widest] = wall.plus_minus_percent.expect("a test");
    assert!(half < wider && wider < widest);
}

#[test]
fn sides_that_were_not_run_in_turn_are_not_controlled_for_drift() {
    let slower: Vec<u64> = NOISE.iter().map(|micros| micros + 100_000).collect();
    let later = |hours: u64| {
        move |one: &mut Recording, _| one.runs[0].started_unix_ns += hours * 3_600_000_000_000
    };
    let diff = compare(side("base", &NOISE, same), side("head", &slower, later(1)));
    assert!(!diff.verdict.in_turn);
    assert_eq!(kinds(&diff), ["probed_times", "not_interleaved"]);
    let says = "head was slower by 100 ms, 10.0 %";
    assert!(diff.verdict.sentence.contains(says));
    let says = "***, not controlled for drift: the sides were run at different times, and the machine can have changed.";
    assert!(diff.verdict.sentence.ends_with(says));
    // Three of eight at another time: they still change sides often enough.
    let some = |one: &mut Recording, index: usize| later(u64::from(index > 4))(one, index);
    let diff = compare(side("base", &NOISE, same), side("head", &slower, some));
    assert!(diff.verdict.in_turn);
    assert!(diff.verdict.sentence.contains("head is slower by 100 ms"));
}

#[test]
fn counts_that_vary_are_no_exact_ones() {
    let vary = |recording: &mut Recording, index: usize| {
        for _ in 0..index % 3 {
            let again = recording.lookups[0];
            recording.lookups.push(again);
        }
    };
    let diff = compare(
        side("base", &NOISE, vary),
        side("head", &NOISE, |r, i| vary(r, i + 1)),
    );
    assert!(diff.counts.is_empty(), "{:#?}", diff.counts);
    assert!(diff.tests.varying_counts > 0);
}

#[test]
fn one_run_carries_no_verdict() {
    let diff = compare(
        side("base", &[10], same),
        side("head", &[900_000], |recording, _| {
            recording.lookups.pop();
        }),
    );
    assert_eq!(diff.verdict.answer, Answer::CannotTell);
    assert!(diff.verdict.sentence.contains("one run a side only"));
    assert!(
        diff.counts
            .iter()
            .all(|change| change.certainty == Certainty::TooFewRuns)
    );
    assert!(!diff.counts.is_empty());
}

#[test]
fn what_one_run_has_in_common_with_the_others_is_no_difference() {
    let diff = compare(
        side("base", &NOISE[..1], same),
        side("head", &NOISE[..4], |recording, index| {
            if index == 3 {
                let last: Crossing = *recording.crossings.last().expect("crossings");
                recording.crossings.push(last);
            }
        }),
    );
    assert_eq!(diff.counts, []);
    assert!(diff.causes.is_empty(), "{:?}", diff.causes);
}

#[test]
fn times_that_never_vary_carry_no_verdict() {
    let diff = compare(side("base", &[10; 5], same), side("head", &[20; 5], same));
    assert_eq!(diff.verdict.answer, Answer::CannotTell);
    assert!(diff.verdict.sentence.contains("nothing measures chance"));
}

#[test]
fn runs_that_failed_are_left_out() {
    let diff = compare(
        side("base", &NOISE, same),
        side("head", &NOISE, |recording, index| {
            if index < 2 {
                recording.runs[0].exit_status = Some(1);
                recording.crossings.truncate(10);
                recording.runs[0].ended.0 -= 900_000_000;
            }
        }),
    );
    assert_eq!((diff.head.failed_runs, diff.head.probed_runs), (2, 6));
    assert!(kinds(&diff).contains(&"failed_runs"));
    assert!(diff.counts.is_empty(), "{:#?}", diff.counts);
}

#[test]
fn sides_that_end_differently_are_not_compared_in_time() {
    let slower: Vec<u64> = NOISE.iter().map(|micros| micros + 100_000).collect();
    let diff = compare(
        side("base", &NOISE, same),
        side("head", &slower, |recording, _| {
            recording.runs[0].exit_status = Some(2)
        }),
    );
    assert_eq!(diff.verdict.answer, Answer::CannotTell);
    assert!(kinds(&diff).contains(&"different_endings"));
    assert!(
        diff.verdict.sentence.contains("end differently"),
        "{}",
        diff.verdict.sentence
    );
}

#[test]
fn sides_that_fail_alike_are_compared() {
    let slower: Vec<u64> = NOISE.iter().map(|micros| micros + 100_000).collect();
    let failed = |recording: &mut Recording, _| recording.runs[0].exit_status = Some(2);
    let diff = compare(
        side("base", &NOISE, failed),
        side("head", &slower, |recording, index| {
            failed(recording, index);
            let again = recording.lookups[0];
            recording.lookups.push(again);
        }),
    );
    assert_eq!(kinds(&diff), ["failed", "probed_times"]);
    assert_eq!(diff.verdict.answer, Answer::Slower);
    assert_eq!(diff.lookups.len(), 1);
}

#[test]
fn times_with_the_probes_of_another_mode_tell_no_cause() {
    let of = |mode: &str| {
        let mut head = modules("head", false, 500_000, 3_000_000);
        for run in &mut head.runs {
            run.mode = mode.into();
        }
        compare(modules("base", false, 500_000, 1_000_000), head)
    };
    let told = |diff: &Diff| {
        let mut statements = diff.statements.iter();
        statements.any(|of| of.text.contains("tell no cause"))
    };
    let alike = of("full");
    assert!(!alike.causes.is_empty() && !told(&alike));
    let diff = of("count");
    assert_eq!(diff.causes, []);
    assert!(told(&diff), "{:#?}", diff.statements);
}

#[test]
fn other_probes_and_other_kernels_are_said() {
    let slower: Vec<u64> = NOISE.iter().map(|micros| micros + 100_000).collect();
    let diff = compare(
        side("base", &NOISE, same),
        side("head", &slower, |recording, _| {
            recording.serializations.clear();
            for family in &mut recording.families {
                if family.name == "serialization" {
                    family.state = "off".into();
                }
            }
        }),
    );
    assert!(kinds(&diff).contains(&"different_probes"));
    assert_eq!(diff.verdict.answer, Answer::CannotTell);
    assert!(
        diff.counts.is_empty(),
        "what a side lacks is no difference: {:#?}",
        diff.counts
    );

    let sampled =
        |hz: u32| move |recording: &mut Recording, _: usize| recording.runs[0].sample_hz = Some(hz);
    let diff = compare(
        side("base", &NOISE, sampled(100)),
        side("head", &slower, sampled(5_000)),
    );
    let text = &(diff.statements.iter())
        .find(|statement| statement.kind == "different_probes")
        .unwrap()
        .text;
    assert!(text.contains("(5,000 samples a second)"), "{text}");

    let kernel = |release: &'static str| {
        move |recording: &mut Recording, _: usize| {
            recording.runs[0]
                .labels
                .push(("kernel".into(), release.into()));
        }
    };
    let diff = compare(
        side("base", &NOISE, kernel("6.1")),
        side("head", &slower, kernel("6.18")),
    );
    assert!(kinds(&diff).contains(&"different_kernels"));
    assert_eq!(diff.verdict.answer, Answer::CannotTell);
}

/// What differs may be one of the programs.
#[test]
fn several_programs_have_no_causes_of_a_difference() {
    let causes = |programs: usize| {
        let several = |mut all: Recording| {
            for (index, run) in all.runs.iter_mut().enumerate() {
                let script = format!("{}.js", index % programs);
                run.command = vec![b"node".to_vec(), script.into_bytes()];
            }
            all
        };
        let base = several(modules("base", false, 500_000, 1_000_000));
        compare(base, several(modules("head", false, 500_000, 3_000_000))).causes
    };
    assert!(!causes(1).is_empty());
    assert_eq!(causes(2), []);
}

#[test]
fn several_kernels_on_both_sides_do_not_differ() {
    let kernels = |recording: &mut Recording, index: usize| {
        let release = ["6.12.1", "6.18.4"][index % 2];
        recording.runs[0]
            .labels
            .push(("kernel".into(), release.into()));
    };
    let diff = compare(side("base", &NOISE, kernels), side("head", &NOISE, kernels));
    let said = (diff.statements.iter()).find(|of| of.kind == "different_kernels");
    assert_eq!(
        said.expect("a statement").text,
        "Both sides have runs of several kernels: 6.12.1 and 6.18.4."
    );
}

#[test]
fn another_program_is_said() {
    let diff = compare(
        side("base", &NOISE, same),
        side("head", &NOISE, |recording, _| {
            recording.runs[0].command = vec![b"tsc".to_vec()];
        }),
    );
    assert!(kinds(&diff).contains(&"different_commands"));
}

#[test]
fn several_programs_on_a_side_are_said() {
    let several = |recording: &mut Recording, index: usize| {
        let script: &[u8] = [b"a.js".as_slice(), b"b.js"][index % 2];
        recording.runs[0].command = vec![b"node".to_vec(), script.to_vec()];
    };
    let slower: Vec<u64> = NOISE.iter().map(|micros| micros + 100_000).collect();
    let diff = compare(
        side("base", &NOISE, several),
        side("head", &slower, several),
    );
    let said = diff
        .statements
        .iter()
        .find(|s| s.kind == "several_programs");
    let text = &said.expect("a statement").text;
    assert!(text.contains("are of 2 programs: base has"), "{text}");
    assert!(
        text.contains("× `a.js`") && text.contains("× `b.js`"),
        "{text}"
    );
    assert_eq!(diff.verdict.answer, Answer::CannotTell);
    assert!(!kinds(&diff).contains(&"different_commands"));
}

#[test]
fn times_are_of_bare_runs_and_counts_of_probed_ones() {
    let with_bare = |name: &str, more: u64| {
        let mut side = side(name, &NOISE, same);
        // The fewest pairs that can tell.
        for (index, micros) in NOISE.iter().cycle().take(10).enumerate() {
            let mut one = Recording::synthetic(1);
            let only = Recording {
                runs: one.runs.drain(..1).collect(),
                ..Recording::default()
            };
            let mut only = only;
            let run = &mut only.runs[0];
            run.mode = "bare".into();
            run.ended = Nanoseconds(run.started.0 + 500_000_000 + (micros + more) * 1000);
            run.labels = vec![
                ("name".into(), name.into()),
                ("pair".into(), index.to_string()),
            ];
            side.append(only);
        }
        side
    };
    let diff = compare(with_bare("base", 0), with_bare("head", 50_000));
    assert!(diff.verdict.bare);
    assert_eq!((diff.base.bare_runs, diff.base.probed_runs), (10, 8));
    assert_eq!(diff.verdict.rule, Rule::Pairs);
    assert_eq!(diff.verdict.answer, Answer::Slower);
    let wall = diff.times[0].base.expect("base");
    assert!((wall.mean - 500e6).abs() < 1e6, "{wall:?}");
    assert!(diff.counts.is_empty());
}

struct Plain;

impl Naming for Plain {
    fn path(&self, _: usize, path: &str) -> String {
        path.to_owned()
    }
    fn package(
        &self,
        _: usize,
        name: Option<&str>,
        folder: Option<&str>,
        _: PackageKind,
    ) -> String {
        name.or(folder).unwrap_or("none").to_owned()
    }
}

/// Every number of the JSON, without the index of lists: `modules[].self_ns`.
fn numbers(value: &serde_json::Value, at: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Number(_) => found.push(at.to_owned()),
        serde_json::Value::Array(list) => list
            .iter()
            .for_each(|v| numbers(v, &format!("{at}[]"), found)),
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if at.is_empty() { "" } else { "." };
                numbers(value, &format!("{at}{dot}{name}"), found);
            }
        }
        _ => {}
    }
}

/// Identities, settings and parts of other figures: nothing to compare.
const NO_FIGURES: [&str; 26] = [
    "started_unix_ns",
    "exit_status",
    "signal",
    "milestones.exec",
    "phases[].start_ns",
    "phases[].end_ns",
    "modules[].id",
    "modules[].pid",
    "modules[].thread",
    "modules[].requirer_id",
    "modules[].start_ns",
    "modules[].end_earliest_ns",
    "modules[].end_latest_ns",
    "overhead.ns_per_hit",
    "processes[]",
    "files.slowest[]",
    "files.most_repeated[]",
    "overhead.by_family",
    "losses",
    "outside[].uncertain_ns",
    "samples.frequency_hz",
    "crossings.callbacks[].kind",
    "labels",
    "serialization.callbacks[]",
    "families",
    "schema",
];

#[test]
fn every_number_of_the_json_is_a_figure() {
    let recording = Recording::synthetic(4000);
    let profile = Profile::from_recording(&recording);
    let run: &RunProfile = &profile.runs[0];
    let figures = Figures::of(&[run], &Plain);
    let mut known: Vec<String> = Vec::new();
    for table in &figures.tables {
        match table.list {
            List::Run => known.extend(table.names.iter().cloned()),
            list => known.extend(
                list.fields()
                    .iter()
                    .map(|field| format!("{}[].{field}", list.name())),
            ),
        }
    }
    let mut found = Vec::new();
    numbers(&serde_json::to_value(run).expect("JSON"), "", &mut found);
    found.sort();
    found.dedup();
    assert!(found.len() > 100, "{}", found.len());
    for number in found {
        let skipped = NO_FIGURES
            .iter()
            .any(|name| number == *name || number.starts_with(name));
        assert!(skipped || known.contains(&number), "{number} is no figure");
    }
    assert_eq!(Unit::of("self_ns"), Unit::Ns);
}

#[test]
fn figures_are_those_of_the_profile() {
    let recording = Recording::synthetic(4000);
    let profile = Profile::from_recording(&recording);
    let run = &profile.runs[RunId(0).0 as usize];
    let figures = Figures::of(&[run], &Plain);
    assert_eq!(
        figures.scalar("crossings.total", &[0]),
        [run.crossings.total as f64]
    );
    let modules = figures.table(List::Modules);
    let field = List::Modules.field("self_ns").expect("a field");
    let sum: f64 = (0..modules.names.len())
        .map(|row| modules.value(row, 0, field))
        .sum();
    let expected: u64 = run.modules.iter().map(|module| module.self_ns).sum();
    assert_eq!(sum, expected as f64);
    assert!(figures.scalar("no.such", &[0])[0].is_nan());
}

/// Names of all fields of a value, at any depth.
fn fields(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Array(list) => list.iter().for_each(|value| fields(value, found)),
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                found.push(name.clone());
                fields(value, found);
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_of_the_json_is_documented() {
    let slower: Vec<u64> = NOISE.iter().map(|micros| micros + 100_000).collect();
    let paired = |recording: &mut Recording, index: usize| {
        let label = ("pair".to_owned(), index.to_string());
        recording.runs[0].labels.push(label);
    };
    let diff = compare(
        side("base", &NOISE, paired),
        side("head", &slower, |recording, index| {
            paired(recording, index);
            let again = recording.lookups[0];
            recording.lookups.push(again);
        }),
    );
    let text = std::fs::read_to_string(format!("{}/../docs/json.md", env!("CARGO_MANIFEST_DIR")));
    let text = text.expect("the document");
    let (_, section) = text.split_once("## nodeprof diff").expect("a section");
    let mut found = Vec::new();
    fields(&serde_json::to_value(&diff).expect("JSON"), &mut found);
    found.sort();
    found.dedup();
    assert!(found.len() > 60, "{}", found.len());
    for field in found {
        let named = section.contains(&format!("`{field}`"))
            || section.contains(&format!(".{field}`"))
            || section.contains(&format!("`{field}[]`"))
            || section.contains(&format!("`{field}."));
        assert!(named, "{field} is not documented");
    }
}

/// Runs in which not all was seen have fewer of everything.
#[test]
fn counts_of_runs_with_gaps_are_not_exact() {
    let lose = |recording: &mut Recording, kind: &str| {
        recording.losses.push(Loss {
            run: RunId(0),
            kind: kind.into(),
            count: 1,
        });
    };
    let fewer = |recording: &mut Recording| {
        recording.crossings.pop();
    };
    let total = |diff: &Diff| {
        let total = (diff.counts.iter()).find(|change| change.figure == "crossings.total");
        total.map(|total| (total.difference, total.certainty, total.head.unwrap().runs))
    };
    let whole = || side("base", &NOISE, same);
    let exact = compare(whole(), side("head", &NOISE, |one, _| fewer(one)));
    assert_eq!(total(&exact), Some((-1.0, Certainty::Exact, 8)));
    for gap in ["records", "sums_full", "beginnings_missed", "incomplete"] {
        let with_gap = |one: &mut Recording| {
            fewer(one);
            match gap {
                "incomplete" => one.processes[0].incomplete = Some("late".into()),
                kind => lose(one, kind),
            }
        };
        // In none of head's runs all was seen.
        let diff = compare(whole(), side("head", &NOISE, |one, _| with_gap(one)));
        assert_eq!(
            total(&diff),
            Some((-1.0, Certainty::TooFewRuns, 8)),
            "{gap}"
        );
        assert!(diff.counts.iter().all(|of| !of.certainty.is_known()));
        let kind = if gap == "records" {
            "lost_records"
        } else {
            "gaps"
        };
        assert!(kinds(&diff).contains(&kind), "{gap}: {:?}", diff.statements);
        // In some of them, which tell nothing of the others.
        let some = |one: &mut Recording, index: usize| {
            if index < 3 {
                with_gap(one);
            }
        };
        let diff = compare(whole(), side("head", &NOISE, some));
        assert!(diff.counts.is_empty(), "{gap}: {:?}", diff.counts);
        assert_eq!(diff.tests.varying_counts, 0, "{gap}");
    }
    // A module is gone if it was not seen where all was.
    let program = |name: &str, needs: bool, gap: bool| {
        noisy(name, |_| {
            let mut program = Program::new("/app/main.js", false);
            program.require("/app/main.js", &[], 50_000, |main| {
                main.busy(1_000_000);
                if needs {
                    main.require("/app/lib.js", &[], 50_000, |lib| lib.busy(2_000_000));
                }
            });
            let (mut one, _) = program.end();
            if gap {
                lose(&mut one, "records");
            }
            one
        })
    };
    for (gaps, removed) in [([false, false], 1), ([true, false], 1), ([false, true], 0)] {
        let diff = compare(
            program("base", true, gaps[0]),
            program("head", false, gaps[1]),
        );
        assert_eq!(diff.modules.removed.len(), removed, "{gaps:?}");
        let told = (diff.causes.iter()).any(|cause| cause.presence == Some("removed"));
        assert_eq!(told, removed == 1, "{gaps:?}: {:?}", diff.causes);
    }
}

#[test]
fn of_servers_that_were_recorded_until_after_their_loop_began_the_time_until_then_is_told() {
    let settled = |one: &mut Recording, _: usize| one.runs[0].ended_by = "loop-start".into();
    let diff = compare(side("base", &NOISE, settled), side("head", &NOISE, settled));
    let profile = Profile::from_recording(&Recording::synthetic(400));
    let loop_start = profile.runs[0].milestones.loop_start.unwrap() as f64;
    let first = &diff.times[0];
    assert_eq!(first.figure, "milestones.loop_start");
    assert_eq!(first.unit, Unit::Ns);
    assert_eq!(first.head.unwrap().median, loop_start);
    assert_eq!(diff.times[1].figure, "time.wall_ns");
    // Of programs that ended, the whole time is what counts.
    let diff = compare(side("base", &NOISE, same), side("head", &NOISE, settled));
    assert_eq!(diff.times[0].figure, "time.wall_ns");
}
