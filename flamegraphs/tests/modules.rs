//! Blame, tree and critical chain: what they say, and that they fit.

#![allow(clippy::unwrap_used)]

mod common;

use nodeprof_flamegraphs::text::{
    BlameOptions, Blamed, By, ChainOptions, Figure, Role, Style, TreeOptions, blame,
    critical_chain, not_blamed, render, tree,
};
use nodeprof_profile::modules::ModuleKind;
use nodeprof_profile::recording::{
    FamilyState, FileOperation, FrameKind, LOOP_START, NameId, OriginalPosition, RunId,
};
use nodeprof_profile::report::RunProfile;
use nodeprof_profile::synthetic::program::Program;
use nodeprof_profile::{Profile, Recording};
use unicode_width::UnicodeWidthStr;

/// An application with a package that loads another one late, JSON and one of Node's own modules.
fn program() -> Recording {
    let work = |p: &mut Program, times: u64| {
        for _ in 0..times {
            p.busy(30_000);
            p.cross("util", "IsInsideNodeModules", 4_000);
        }
    };
    let server = "/srv/app/node_modules/server/index.js";
    let parser = "/srv/app/node_modules/@web/parser/lib/parser.js";
    let mut p = Program::new("/srv/app/main.js", true);
    p.require("/srv/app/main.js", &[], 90_000, |p| {
        work(p, 4);
        p.require(server, &["/srv/app/server", "/srv/server"], 400_000, |p| {
            work(p, 30);
            p.require_builtin("http", 700_000, |p| p.cross("http_parser", "New", 20_000));
            p.require(
                "/srv/app/node_modules/server/lib/router.js",
                &[],
                150_000,
                |p| {
                    work(p, 11);
                },
            );
            p.lookup("/srv/app/node_modules/server/package.json");
        });
        p.require("/srv/app/lib/settings.js", &[], 20_000, |p| {
            p.require_json("/srv/app/settings.json");
            work(p, 2);
        });
        p.function("listen", server, 20, |p| {
            p.require(
                parser,
                &["/srv/app/node_modules/parser.js"],
                1_900_000,
                |p| {
                    work(p, 25);
                    p.file(FileOperation::Stat, "/etc/mime.types", -2, 9_000);
                },
            );
        });
        work(p, 3);
    });
    p.package("/srv/app", Some("app"), Some("1.0.0"));
    p.package(
        "/srv/app/node_modules/server",
        Some("server"),
        Some("4.18.2"),
    );
    p.package(
        "/srv/app/node_modules/@web/parser",
        Some("@web/parser"),
        Some("0.3.0-beta.1"),
    );
    p.end().0
}

fn run(recording: &Recording) -> RunProfile {
    let mut profile = Profile::from_recording(recording);
    profile.runs.remove(0)
}

fn plain(width: usize) -> Style {
    Style {
        width,
        color: false,
    }
}

/// Every view with every option that changes its shape.
fn views(run: &RunProfile, style: &Style) -> Vec<String> {
    let mut views = Vec::new();
    for by in [By::Module, By::Package] {
        for role in [Role::Requirer, Role::Loaded] {
            for name in Figure::NAMES {
                let options = BlameOptions {
                    by,
                    role,
                    sort: name.parse().unwrap(),
                    limit: Some(15),
                };
                views.push(blame(run, &options, style));
            }
        }
    }
    for depth in [None, Some(0), Some(2)] {
        for builtins in [false, true] {
            let options = TreeOptions {
                depth,
                builtins,
                ..TreeOptions::default()
            };
            views.push(tree(run, &options, style));
        }
    }
    for fuzz_ns in [0, 2_000_000, u64::MAX] {
        views.push(critical_chain(run, &ChainOptions { fuzz_ns }, style));
    }
    views
}

#[test]
fn the_views_of_a_program_are_the_reviewed_ones() {
    let run = run(&program());
    for width in [100, 64] {
        let style = plain(width);
        let text = [
            blame(&run, &BlameOptions::default(), &style),
            blame(
                &run,
                &BlameOptions {
                    by: By::Module,
                    role: Role::Loaded,
                    sort: Figure::Compile,
                    limit: Some(4),
                },
                &style,
            ),
            tree(
                &run,
                &TreeOptions {
                    builtins: true,
                    ..TreeOptions::default()
                },
                &style,
            ),
            tree(
                &run,
                &TreeOptions {
                    depth: Some(1),
                    ..TreeOptions::default()
                },
                &style,
            ),
            tree(
                &run,
                &TreeOptions {
                    package: Some("@web/parser".into()),
                    ..TreeOptions::default()
                },
                &style,
            ),
            critical_chain(&run, &ChainOptions::default(), &style),
            critical_chain(&run, &ChainOptions { fuzz_ns: 1_500_000 }, &style),
        ];
        common::golden(&format!("modules.{width}.txt"), &text.join("\n"));
    }
}

#[test]
fn no_line_is_wider_than_the_terminal_nor_ends_in_spaces() {
    let mut awkward = program();
    for name in &mut awkward.names {
        if name.starts_with(b"/srv/app/node_modules/server") {
            let rest = name.split_off("/srv/app/node_modules/server".len());
            name.extend("/很长的目录\u{1b}[31m".repeat(9).into_bytes());
            name.extend(rest);
        }
    }
    for recording in [program(), bundled(), awkward, Recording::synthetic(6_000)] {
        let run = run(&recording);
        for width in [60, 61, 80, 100, 132, 200] {
            for text in views(&run, &plain(width)) {
                assert!(!text.is_empty());
                for line in text.lines() {
                    let columns = line.width();
                    assert!(columns <= width, "{columns} columns for {width}: {line}");
                    assert_eq!(line, line.trim_end(), "{width}");
                    assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
                }
            }
        }
    }
}

#[test]
fn colours_change_nothing_but_colours() {
    let run = run(&program());
    let colored = Style {
        width: 100,
        color: true,
    };
    let mut painted = 0;
    for (plain, colored) in views(&run, &plain(100))
        .into_iter()
        .zip(views(&run, &colored))
    {
        assert!(!plain.contains('\x1b'));
        painted += usize::from(colored.contains('\x1b'));
        assert_eq!(common::without_escapes(&colored), plain);
    }
    assert!(painted > 40, "{painted}");
}

#[test]
fn rows_stand_in_the_order_of_the_figure() {
    let run = run(&Recording::synthetic(20_000));
    for by in [By::Module, By::Package] {
        for role in [Role::Requirer, Role::Loaded] {
            for name in Figure::NAMES {
                let sort: Figure = name.parse().unwrap();
                let options = BlameOptions {
                    by,
                    role,
                    sort,
                    limit: None,
                };
                let rows = Blamed::of_run(&run, &options);
                let values: Vec<u64> = rows.iter().map(|row| row.value(sort, role)).collect();
                assert!(values.is_sorted_by(|a, b| a >= b), "{name}");
            }
        }
    }
    assert!(
        "speed"
            .parse::<Figure>()
            .unwrap_err()
            .contains("needed: one of self, total")
    );
}

/// The same program as a bundler would have made one script of it, by a source map.
fn bundled() -> Recording {
    let mut recording = program();
    recording.names.push(b"/srv/app/dist/out.js".to_vec());
    let script = NameId(recording.names.len() as u32 - 1);
    for index in 0..recording.frames.len() {
        let frame = &recording.frames[index];
        let Some(file) = frame.file.filter(|_| frame.kind == FrameKind::JavaScript) else {
            continue;
        };
        if recording.name(file).starts_with(b"/srv/app/") {
            let frame = &mut recording.frames[index];
            frame.file = Some(script);
            frame.original = Some(OriginalPosition {
                file,
                line: 1,
                column: 1,
            });
        }
    }
    recording
}

#[test]
fn what_a_bundle_is_made_of_stands_below_the_modules() {
    let apart = run(&program());
    let mut run = run(&bundled());
    let show = |run: &RunProfile, by, role, sort: &str, limit| {
        let options = BlameOptions {
            by,
            role,
            sort: sort.parse().unwrap(),
            limit,
        };
        let text = blame(run, &options, &plain(100));
        let (_, bundle) = text.split_once("\nIn dist/out.js  ").unwrap_or_default();
        bundle.to_owned()
    };
    let crossings = |text: &str, name: &str| -> String {
        let line = text.lines().find(|line| line.ends_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line.split_whitespace().next().unwrap().to_owned()
    };
    let of_module = |name: &str| {
        let mut modules = apart.modules.iter();
        let module = modules.find(|module| module.path.ends_with(name)).unwrap();
        module.caused.crossings.to_string()
    };
    let files = show(&run, By::Module, Role::Requirer, "crossings", None);
    for (file, name) in [
        ("main.js", "  main.js"),
        ("server/index.js", "  server/index.js"),
        ("server/lib/router.js", "  server/lib/router.js"),
        ("@web/parser/lib/parser.js", "  @web/parser/lib/parser.js"),
    ] {
        assert_eq!(crossings(&files, name), of_module(file), "{name}");
    }
    let packages = show(&run, By::Package, Role::Requirer, "self", None);
    assert!(packages.starts_with("2 packages seen"), "{packages}");
    for name in ["  server", "  @web/parser", "  (the program's own)"] {
        crossings(&packages, name);
    }
    // The first few, and how many more.
    let first = show(&run, By::Package, Role::Requirer, "self", Some(1));
    assert!(first.ends_with("… and 2 more packages\n"), "{first}");
    // A bundle is loaded as one.
    assert_eq!(show(&run, By::Package, Role::Loaded, "self", None), "");
    // A chunk of one package is shown, but for what that package ships itself.
    let mut chunk = run.clone();
    chunk
        .bundled_packages
        .retain(|part| part.name.as_deref() == Some("server"));
    let one = show(&chunk, By::Package, Role::Requirer, "self", None);
    assert!(one.starts_with("1 package seen"), "{one}");
    chunk.bundled_packages[0].directory = Some("/srv/app/dist".to_owned());
    assert_eq!(show(&chunk, By::Package, Role::Requirer, "self", None), "");
    // Several processes that run it have rows in common.
    let mut others = run.bundled_packages.clone();
    others.iter_mut().for_each(|part| part.pid += 1);
    let twice = |of: &str| (2 * of.parse::<u64>().unwrap()).to_string();
    let once = show(&run, By::Package, Role::Requirer, "crossings", None);
    run.bundled_packages.extend(others);
    let both = show(&run, By::Package, Role::Requirer, "crossings", None);
    for name in ["  server", "  @web/parser"] {
        assert_eq!(crossings(&both, name), twice(&crossings(&once, name)));
    }
    // Of one process those of that one.
    let pid = run.bundled_packages[0].pid;
    run.keep_modules_of(pid);
    assert_eq!(
        show(&run, By::Package, Role::Requirer, "crossings", None),
        once
    );
    let report = render(
        &Profile {
            schema: 2,
            runs: vec![run],
        },
        &plain(100),
    );
    assert!(
        report.contains("\nIn dist/out.js  2 packages seen, by its source map"),
        "{report}"
    );
}

#[test]
fn every_module_stands_once_in_the_tree_below_its_requirer() {
    let run = run(&program());
    let text = tree(
        &run,
        &TreeOptions {
            builtins: true,
            ..TreeOptions::default()
        },
        &plain(200),
    );
    let rows = text
        .lines()
        .filter(|line| line.contains(" ms  ") || line.contains(" µs  "));
    assert_eq!(rows.count(), run.modules.len(), "{text}");
    let column = |name: &str| {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        line[..line.find(name).unwrap()].width()
    };
    let server = column("server/index.js");
    assert_eq!(column("node:http"), server + 3);
    // Required by a function of the server, while the main module's body ran.
    assert_eq!(column("@web/parser"), server + 3);
    assert_eq!(column("settings.json"), column("lib/settings.js") + 3);
}

#[test]
fn what_one_required_stands_in_order_of_the_start_of_loading() {
    let mut run = run(&program());
    let text = |run: &RunProfile| tree(run, &TreeOptions::default(), &plain(100));
    let is_first = |run: &RunProfile, first: &str, second: &str| {
        let text = text(run);
        text.find(first).unwrap() < text.find(second).unwrap()
    };
    assert!(is_first(&run, "server/index.js", "lib/settings.js"));
    // As an ES module whose code came late, but which was asked for early.
    let settings = (run.modules.iter_mut()).find(|module| module.path.ends_with("lib/settings.js"));
    settings.unwrap().start_ns = Some(0);
    assert!(is_first(&run, "lib/settings.js", "server/index.js"));
    assert!(is_first(&run, "main.js", "lib/settings.js"));
}

#[test]
fn the_chain_follows_the_slowest() {
    let run = run(&program());
    let text = critical_chain(&run, &ChainOptions::default(), &plain(120));
    let names: Vec<&str> = text
        .lines()
        .filter(|line| line.contains('@') && line.contains("  +"))
        .filter_map(|line| line.rsplit("  ").find(|part| part.contains(".js")))
        .map(|name| name.trim_start_matches(['└', '├', '─', ' ']).trim_end())
        .collect();
    assert_eq!(
        names,
        ["main.js", "server/index.js", "@web/parser/lib/parser.js"],
        "{text}"
    );
}

/// Names of the chain's modules.
fn chain(run: &RunProfile) -> (String, Vec<String>) {
    let text = critical_chain(run, &ChainOptions::default(), &plain(120));
    let rows = text.lines().filter(|line| line.contains("  +"));
    let names = rows.filter_map(|line| line.rsplit("  ").find(|part| part.contains(".js")));
    let names = names.map(|name| name.trim_start_matches(['└', '├', '─', ' ']).trim_end());
    let names = names.map(str::to_owned).collect();
    (text.replace('\n', " "), names)
}

#[test]
fn the_chain_begins_with_the_main_script_however_slow_a_preload_is() {
    let mut p = Program::new("/srv/app/main.js", true);
    p.require("/srv/tools/preload.js", &[], 900_000, |p| {
        p.busy(50_000_000);
        p.cross("util", "X", 4_000);
    });
    p.require("/srv/app/main.js", &[], 90_000, |p| {
        p.require("/srv/app/lib.js", &[], 90_000, |p| p.busy(5_000_000));
    });
    let (text, names) = chain(&run(&p.end().0));
    assert_eq!(names, ["/srv/app/main.js", "/srv/app/lib.js"], "{text}");
}

#[test]
fn the_bootstrap_says_what_preloaded_modules_took_of_it() {
    let mut p = Program::new("/srv/app/main.js", true);
    p.require("/srv/tools/preload.js", &[], 900_000, |p| {
        p.require("/srv/tools/agent.js", &[], 900_000, |p| p.busy(3_000_000));
        p.cross("util", "X", 4_000);
    });
    p.require("/srv/app/main.js", &[], 90_000, |p| {
        p.cross("util", "X", 4_000)
    });
    let mut profile = Profile::from_recording(&p.end().0);
    let text = |profile: &Profile| render(profile, &plain(160)).replace('\n', " ");
    assert!(
        !text(&profile).contains("preloaded by -r"),
        "after the bootstrap"
    );
    let run = &mut profile.runs[0];
    let bootstrap = run
        .phases
        .iter_mut()
        .find(|phase| phase.name == "bootstrap");
    let bootstrap = bootstrap.unwrap();
    bootstrap.end_ns += 100_000_000;
    let end = bootstrap.end_ns;
    let main = run.modules.iter_mut().find(|module| module.main_script);
    main.unwrap().start_ns = Some(end);
    let preload = run.modules.iter().find(|m| m.path.ends_with("preload.js"));
    let preload = preload.unwrap();
    let ended = preload
        .end_earliest_ns
        .unwrap()
        .midpoint(preload.end_latest_ns.unwrap());
    let spent = (ended - preload.start_ns.unwrap()) as f64 / 1e6;
    let text = text(&profile);
    let (before, after) = text
        .split_once(" ms of it to load and run modules preloaded by -r: ")
        .unwrap_or_else(|| panic!("{text}"));
    assert!(after.starts_with("/srv/tools/preload.js "), "{text}");
    let said: f64 = before.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((said - spent).abs() < 0.01, "{spent} ms: {text}");
    assert!(!text.contains("preload.js, "), "{text}");
}

#[test]
fn the_chain_leaves_out_what_callbacks_load() {
    let main = "/srv/app/main.js";
    let helper = "/srv/app/helper.js";
    let mut p = Program::new(main, true);
    p.native("node::LoadEnvironment", |p| {
        p.call_javascript(|p| {
            p.require(main, &[], 90_000, |p| {
                p.require(helper, &[], 90_000, |p| p.cross("util", "X", 4_000));
                // The helper's body has run, but the main module waits.
                p.function("load", helper, 7, |p| {
                    p.require("/srv/app/waited.js", &[], 90_000, |p| {
                        p.busy(3_000_000);
                        p.cross("util", "X", 4_000);
                    });
                });
                p.cross("util", "X", 4_000);
            });
        });
    });
    p.native("uv_run", |p| {
        p.busy(20_000_000);
        p.call_javascript(|p| {
            p.function("onTimeout", main, 9, |p| {
                p.require("/srv/app/late.js", &[], 90_000, |p| {
                    p.busy(60_000_000);
                    p.require("/srv/app/later.js", &[], 90_000, |p| p.busy(9_000_000));
                });
            });
        });
    });
    let mut run = run(&p.end().0);
    let (text, names) = chain(&run);
    assert_eq!(names, [main, helper, "/srv/app/waited.js"], "{text}");
    assert!(
        text.contains("without 2 modules that were loaded after it had run"),
        "{text}"
    );
    // What the helper loads between two loads of its own.
    let late = run
        .modules
        .iter()
        .position(|m| m.path == "/srv/app/late.js");
    let at = run.modules.iter().position(|m| m.path == helper).unwrap();
    run.modules[late.unwrap()].requirer_id = Some(run.modules[at].id);
    run.modules[at].loads = 2;
    run.modules[at].end_latest_ns = Some(i64::MAX);
    assert_eq!(chain(&run), (text, names));
}

#[test]
fn a_main_module_that_had_not_run_is_not_said_to_have_run() {
    let mut run = run(&program());
    let had_run = |run: &RunProfile| match chain(run).0 {
        text if text.contains(" until the main module had run") => true,
        text if text.contains(" until the trace ended") => false,
        text => panic!("{text}"),
    };
    let main = run.modules.iter().position(|m| m.main_script).unwrap();
    assert!(had_run(&run));
    // The program goes on after the trace.
    let pid = run.modules[main].pid;
    let process = run.processes.iter_mut().find(|p| p.pid == pid).unwrap();
    process.end_ns = None;
    run.ended_by = LOOP_START.into();
    run.modules[main].end_latest_ns = Some(i64::MAX);
    assert!(had_run(&run));
    // An ES module may wait for what it imports, or at an `await`.
    run.modules[main].kind = ModuleKind::EsModule;
    assert!(!had_run(&run));
    run.ended_by = "idle".into();
    assert!(had_run(&run));
    run.modules[main].end_latest_ns = None;
    assert!(!had_run(&run));
}

#[test]
fn a_main_module_that_never_runs_is_not_said_to_have_run() {
    let mut run = run(&program());
    let main = run.modules.iter().position(|m| m.main_script).unwrap();
    let text = |run: &RunProfile| chain(run).0;
    let had_run = " until the main module had run";
    run.modules[main].kind = ModuleKind::EsModule;
    assert!(text(&run).contains(had_run));
    // It waits for what cannot come.
    run.processes[0].exit_status = Some(13);
    assert!(text(&run).contains(" until the process ended with exit status 13"));
    // An error after it had run, or while it ran.
    run.processes[0].exit_status = Some(1);
    assert!(text(&run).contains(had_run));
    // What it imports is not there.
    run.modules[main].end_earliest_ns = None;
    run.modules[main].end_latest_ns = None;
    let not_run = " until the process ended; the main module did not run";
    assert!(text(&run).contains(not_run));
    // One that does nothing is not seen to run.
    run.processes[0].exit_status = Some(0);
    assert!(text(&run).contains(had_run));
    run.processes[0].command = ["node", "--check", "main.js"].map(str::to_owned).into();
    assert!(text(&run).contains(not_run));
}

#[test]
fn the_time_of_the_chain_is_the_time_that_passed() {
    let (main, hook) = ("/srv/app/main.js", "/srv/tools/hook.js");
    let mut p = Program::new(main, true);
    p.require(hook, &[], 900_000, |p| {
        p.busy(2_000_000);
        p.cross("util", "X", 4_000);
    });
    p.native("node::LoadEnvironment", |p| {
        p.call_javascript(|p| {
            p.require(main, &[], 90_000, |p| {
                p.require("/srv/app/lib.js", &[], 90_000, |p| {
                    p.busy(5_000_000);
                    p.cross("util", "X", 4_000);
                });
                p.function("compile", hook, 7, |p| {
                    p.cross("util", "X", 4_000);
                    p.busy(40_000_000);
                    p.cross("util", "X", 4_000);
                });
                p.cross("util", "X", 4_000);
            });
        });
    });
    let mut run = run(&p.end().0);
    let passed = "45.2 ms until the main module had run";
    let (text, names) = chain(&run);
    assert!(text.contains(passed), "{text}");
    let besides = "40.0 ms of it in no module of the chain or what these required (at least 40.0 ms in /srv/tools/hook.js)";
    assert!(text.contains(besides), "{text}");
    assert_eq!(names, [main, "/srv/app/lib.js"], "{text}");
    // Of whom it was is not known.
    run.modules
        .iter_mut()
        .find(|m| m.path == hook)
        .unwrap()
        .end_latest_ns = None;
    let (text, _) = chain(&run);
    assert!(text.contains("40.0 ms of it in no module"), "{text}");
    assert!(!text.contains("at least"), "{text}");
    // What it imports without waiting for it begins before its end, and runs later.
    let lib = run.modules.iter_mut().find(|m| m.path.ends_with("lib.js"));
    let lib = lib.unwrap();
    lib.self_ns += 400_000_000;
    let after = "of the chain after that, in what import() loads";
    assert!(!text.contains(after), "{text}");
    let (text, _) = chain(&run);
    assert!(text.contains(passed), "{text}");
    assert!(text.contains(&format!("360 ms {after}")), "{text}");
}

#[test]
fn a_trace_that_ended_before_es_modules_had_run_says_how_to_see_them() {
    let profile = Profile::from_recording(&program());
    let hint = |run: &RunProfile| {
        let profile = Profile {
            runs: vec![run.clone()],
            ..profile.clone()
        };
        let text = render(&profile, &plain(100)).replace('\n', " ");
        text.contains("--until idle")
    };
    let mut run = profile.runs[0].clone();
    run.processes[0].end_ns = None;
    run.ended_by = LOOP_START.into();
    let main = run.modules.iter().position(|m| m.main_script).unwrap();
    run.modules[main].end_latest_ns = Some(i64::MAX);
    assert!(!hint(&run));
    run.modules[main].kind = ModuleKind::EsModule;
    assert!(hint(&run));
    // Only Node's own modules were loaded by then.
    run.modules
        .retain(|module| module.kind == ModuleKind::Builtin);
    assert!(!run.modules.is_empty() && hint(&run));
    run.ended_by = "idle".into();
    assert!(!hint(&run));
}

#[test]
fn where_it_is_not_known_how_modules_were_loaded_there_is_no_chain() {
    let mut run = run(&program());
    for module in &mut run.modules {
        if module.kind != ModuleKind::Builtin {
            module.kind = ModuleKind::Unknown;
        }
    }
    let (text, names) = chain(&run);
    assert!(text.contains("there is no chain"), "{text}");
    assert!(!text.contains("had run"), "{text}");
    assert!(names.is_empty());
}

#[test]
fn the_chain_of_another_process_is_shown_if_it_is_asked_for_or_the_only_one() {
    // The main process is a launcher that loads only modules of Node's own.
    let mut of_child = run(&program());
    let child = of_child.modules[0].pid;
    let mut launcher = of_child.processes[0].clone();
    of_child.processes[0].main = false;
    launcher.pid = child + 1;
    of_child.processes.push(launcher);
    let (text, names) = chain(&of_child);
    assert_eq!(names.first().map(String::as_str), Some("main.js"), "{text}");
    assert!(
        text.contains(&format!("until the main module of process {child} had run")),
        "{text}"
    );
    let mut both = of_child.clone();
    let ids = both.modules.len() as u32;
    both.modules.extend(of_child.modules.iter().map(|module| {
        let mut module = module.clone();
        module.id += ids;
        module.requirer_id = module.requirer_id.map(|id| id + ids);
        (module.pid, module.thread) = (child + 2, child + 2);
        module
    }));
    let (text, _) = chain(&both);
    let needed = format!("--process PID, one of {child}, {}", child + 2);
    assert!(text.contains(&needed), "{text}");
    both.keep_modules_of(child + 2);
    let (text, names) = chain(&both);
    assert_eq!(names.first().map(String::as_str), Some("main.js"), "{text}");
    // Only what is loaded before it.
    let mut preloads = both.clone();
    preloads
        .modules
        .iter_mut()
        .for_each(|m| m.main_script = false);
    let (text, _) = chain(&preloads);
    assert!(text.contains("No main script was loaded"), "{text}");
    both.modules.retain(|m| m.kind == ModuleKind::Builtin);
    let (text, _) = chain(&both);
    let none = format!("no module of a program in process {}.", child + 2);
    assert!(text.contains(&none), "{text}");
}

#[test]
fn what_is_nobodys_in_the_run_is_not_told_of_a_process() {
    let mut run = run(&program());
    run.attribution.unattributed_crossings_percent = Some(56.0);
    let pid = run.modules[0].pid;
    let both = |run: &RunProfile| {
        let options = TreeOptions::default();
        let text = [
            tree(run, &options, &plain(120)),
            blame(run, &BlameOptions::default(), &plain(120)),
        ];
        text.map(|text| text.contains("56.0% of the crossings are nobody's"))
    };
    // The only process is the run.
    run.keep_modules_of(pid);
    assert_eq!(both(&run), [true, true]);
    let mut other = run.processes[0].clone();
    other.pid += 1;
    run.processes.push(other);
    assert_eq!(both(&run), [true, true]);
    run.keep_modules_of(pid);
    assert_eq!(both(&run), [false, false]);
}

/// The program, of which no event was recorded.
fn without_events() -> Recording {
    let mut recording = program();
    recording.stacks.clear();
    recording.crossings.clear();
    recording.files.clear();
    recording.compilations.clear();
    recording.samples.clear();
    recording.lookups.clear();
    recording
}

#[test]
fn without_stacks_the_views_say_what_to_type() {
    let mut recording = without_events();
    let run_without = run(&recording);
    for text in views(&run_without, &plain(100)) {
        let text = text.replace('\n', " ");
        assert!(text.contains("This recording holds no stacks"), "{text}");
        assert!(
            text.contains("record again: nodeprof trace -- COMMAND"),
            "{text}"
        );
    }
    assert!(!render(&Profile::from_recording(&recording), &plain(100)).contains("Modules"));
    recording.runs[0].mode = "count".into();
    let text = blame(&run(&recording), &BlameOptions::default(), &plain(100));
    assert!(text.contains("Count mode records no stacks"), "{text}");
}

#[test]
fn a_package_that_was_loaded_and_is_not_shown_is_told() {
    let of = |package: &str, least_ns| {
        let options = TreeOptions {
            package: Some(package.into()),
            least_ns,
            ..TreeOptions::default()
        };
        tree(&run(&program()), &options, &plain(100))
    };
    let slow = of("server", 60_000_000_000);
    assert!(
        slow.contains("as slow as that; type a smaller --min"),
        "{slow}"
    );
    let builtin = of("node", 0);
    assert!(builtin.contains("Node's own; type --builtins"), "{builtin}");
}

#[test]
fn a_package_that_was_not_loaded_is_told() {
    let text = tree(
        &run(&program()),
        &TreeOptions {
            package: Some("express".into()),
            ..TreeOptions::default()
        },
        &plain(100),
    );
    assert!(
        text.contains("No module of a package \"express\" was loaded"),
        "{text}"
    );
}

#[test]
fn a_tree_without_modules_blames_no_option_that_nobody_typed() {
    let mut without = run(&program());
    without
        .modules
        .retain(|module| module.kind == ModuleKind::Builtin);
    assert!(!without.modules.is_empty());
    let text = |least_ns| {
        let options = TreeOptions {
            least_ns,
            ..TreeOptions::default()
        };
        tree(&without, &options, &plain(100)).replace('\n', " ")
    };
    assert!(text(0).contains("Node loaded no module"), "{}", text(0));
    let slow = tree(
        &run(&program()),
        &TreeOptions {
            least_ns: u64::MAX,
            ..TreeOptions::default()
        },
        &plain(100),
    );
    assert!(slow.contains("type a smaller --min"), "{slow}");
}

#[test]
fn stacks_without_javascript_are_stacks() {
    let mut run = run(&without_events());
    run.samples.cpu_ns = 10;
    run.samples.by_kind.native_ns = 4;
    run.samples.by_kind.unknown_ns = 6;
    let told = not_blamed(&run).unwrap();
    assert!(
        told.starts_with("No JavaScript frame is on any stack"),
        "{told}"
    );
    run.ended_by = "import".into();
    let told = not_blamed(&run).unwrap();
    assert!(
        told.contains("--perf-basic-prof --interpreted-frames-native-stack"),
        "{told}"
    );
    // Of all samples the stacks are unknown.
    run.samples.by_kind.unknown_ns = 10;
    let told = not_blamed(&run).unwrap();
    assert!(told.contains("holds no stacks"), "{told}");
}

#[test]
fn whether_javascript_ran_is_not_told_by_families_that_were_not_recorded() {
    for family in ["phases", "crossings"] {
        let mut recording = without_events();
        recording.milestones.clear();
        recording.families.retain(|state| state.name != family);
        recording.families.push(FamilyState {
            run: RunId(0),
            name: family.into(),
            state: "off".into(),
            reason: None,
        });
        let run = run(&recording);
        for text in views(&run, &plain(100)) {
            assert!(text.contains("This recording holds no stacks"), "{text}");
        }
        // What makes the command fail.
        assert!(not_blamed(&run).is_some(), "{family}");
    }
}

#[test]
fn where_no_javascript_ran_nobody_is_blamed_and_nothing_asked_for() {
    let mut recording = without_events();
    recording.milestones.clear();
    let text = blame(&run(&recording), &BlameOptions::default(), &plain(100));
    assert!(text.contains("No JavaScript ran in this run"), "{text}");
}
