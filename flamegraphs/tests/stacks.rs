//! Flame graphs of recordings with stacks.
// clippy knows only test functions as tests, not their helpers.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::stacked::{MAIN, Stacked, at, stacked};
use nodeprof_flamegraphs::fold::{By, FoldError, Folded, FrameKind, Metric, Order, Request, fold};
use nodeprof_flamegraphs::select::{Point, SelectError, Selection, Threads};
use nodeprof_profile::Recording;
use nodeprof_profile::recording::{
    Exec, FrameKind as Recorded, Nanoseconds, OriginalPosition, Package, RunId, ThreadId,
};

fn by(metric: Metric, by: By) -> Request {
    Request {
        by: Some(by),
        ..Request::new(metric)
    }
}

fn part(metric: Metric, form: By, from: Option<&str>, until: Option<&str>) -> Request {
    let point = |text: Option<&str>| text.map(|text| text.parse::<Point>().unwrap());
    Request {
        selection: Selection {
            threads: Some(Threads::All),
            from: point(from),
            until: point(until),
            ..Selection::default()
        },
        ..by(metric, form)
    }
}

fn lines(folded: &Folded) -> BTreeMap<String, u64> {
    let text = folded.to_string();
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        *found.entry(stack.to_owned()).or_default() += value.parse::<u64>().unwrap();
    }
    found
}

#[test]
fn the_stacks_of_a_recording_are_the_reviewed_ones() {
    let recording = stacked();
    for form in [By::Stack, By::Module, By::Package] {
        for metric in Metric::ALL {
            let text = fold(&recording, &by(metric, form)).unwrap().to_string();
            common::golden(&format!("stacked.{metric}.{form}.folded"), &text);
        }
    }
    for metric in [Metric::Wall, Metric::Crossings] {
        let request = Request {
            order: Order::Time,
            ..Request::new(metric)
        };
        let text = fold(&recording, &request).unwrap().to_string();
        common::golden(&format!("stacked.{metric}.time.folded"), &text);
    }
}

#[test]
fn every_form_and_order_has_the_same_sum() {
    let recording = stacked();
    for metric in Metric::ALL {
        let total = |request: &Request| fold(&recording, request).unwrap().total();
        let expected = match metric {
            // All but the one to JavaScript; the sum has 100.
            Metric::Crossings => 7 + 100,
            Metric::CrossingTime => 30_000 + 20_000 + 900_000 + 5_000 + 7_000 + 4_000 + 200_000,
            Metric::Cpu => 14_000_000,
            Metric::OffCpu => 4_500_000,
            Metric::Wall => 12_000_000 + 4_500_000,
            _ => total(&by(metric, By::Phase)),
        };
        for form in [By::Stack, By::Module, By::Package] {
            assert_eq!(total(&by(metric, form)), expected, "{metric} by {form}");
            let request = Request {
                order: Order::Time,
                ..by(metric, form)
            };
            let folded = fold(&recording, &request).unwrap();
            // What was only summed has no instant: it is left out, and that is said.
            let summed = match metric {
                Metric::Crossings => 100,
                Metric::CrossingTime => 200_000,
                _ => 0,
            };
            assert_eq!(folded.total(), expected - summed, "{metric} by {form}");
            assert_eq!(folded.about().notes.len(), usize::from(summed > 0));
        }
    }
}

#[test]
fn a_span_and_what_is_around_it_add_up_to_the_whole() {
    let recording = stacked();
    let forms = [By::Stack, By::Module, By::Package, By::Phase];
    for metric in Metric::ALL {
        for form in forms {
            let total = |from, until| match fold(&recording, &part(metric, form, from, until)) {
                Ok(folded) => {
                    assert_eq!(
                        folded.about().notes,
                        [""; 0],
                        "{metric} {form} {from:?} {until:?}"
                    );
                    folded.total()
                }
                Err(FoldError::NothingToShow { .. }) => 0,
                Err(error) => panic!("{error}"),
            };
            let whole = total(None, None);
            for milestone in ["environment", "bootstrap_complete", "loop_start", "exit"] {
                let (before, after) = (total(None, Some(milestone)), total(Some(milestone), None));
                assert_eq!(before + after, whole, "{metric} by {form} at {milestone}");
            }
            let phase = total(Some("main_script"), Some("main_script"));
            let same = total(Some("bootstrap_complete"), Some("loop_start"));
            assert_eq!(phase, same, "{metric} by {form}");
            assert!(whole > 0 && phase <= whole, "{metric} by {form}");
        }
    }
}

#[test]
fn a_span_within_a_phase_leaves_out_what_was_only_summed_and_says_so() {
    let recording = stacked();
    for form in [By::Stack, By::Phase] {
        let request = part(Metric::Crossings, form, Some("11.5ms"), Some("13ms"));
        let folded = fold(&recording, &request).unwrap();
        assert_eq!(folded.total(), 3, "by {form}");
        assert!(folded.about().notes[0].contains("100 calls"), "by {form}");
    }
}

#[test]
fn the_title_tells_what_is_shown() {
    let recording = stacked();
    for (from, until, expected) in [
        (None, None, "all threads"),
        (
            Some("main_script"),
            Some("main_script"),
            "all threads · main_script",
        ),
        (Some("12ms"), None, "all threads · from 12.0 ms on"),
        (None, Some("loop_start"), "all threads · until loop_start"),
        (
            Some("environment"),
            Some("1s"),
            "all threads · from environment until 1.00 s",
        ),
    ] {
        let folded = fold(&recording, &part(Metric::Cpu, By::Package, from, until)).unwrap();
        let about = folded.about();
        assert_eq!(about.title(), "CPU time, by package");
        let subtitle = format!("node app.js · node v20.20.2 · {expected} · 1.00 ms");
        assert_eq!(about.subtitle(1_000_000), subtitle);
    }
}

#[test]
fn a_sample_belongs_to_the_moment_at_which_its_time_began() {
    let mut recording = stacked();
    // From 9.5 to 10.5 ms: the main script begins between.
    recording
        .samples
        .retain(|sample| sample.at == at(12_000) && sample.weight.0 == 1_000_000);
    recording.samples[0].at = at(10_500);
    for form in [By::Stack, By::Module, By::Package, By::Phase] {
        let total = |from, until| {
            let folded = fold(&recording, &part(Metric::Cpu, form, from, until));
            folded.map_or(0, |folded| folded.total())
        };
        let script = Some("main_script");
        assert_eq!(total(script, script), 0, "by {form}");
        assert_eq!(total(None, script), 1_000_000, "by {form}");
        assert_eq!(total(Some("bootstrap"), Some("bootstrap")), 1_000_000);
        assert_eq!(total(Some("9.6ms"), None), 0, "by {form}");
        assert_eq!(total(None, Some("9.6ms")), 1_000_000, "by {form}");
        let order = match form {
            By::Phase => Order::Merged,
            _ => Order::Time,
        };
        let request = Request {
            order,
            ..by(Metric::Cpu, form)
        };
        let text = fold(&recording, &request).unwrap().to_string();
        assert!(text.contains(";bootstrap"), "by {form}: {text}");
    }
}

#[test]
fn waits_are_cut_at_the_ends_of_a_span() {
    let recording = stacked();
    let off = |from, until| {
        let folded = fold(&recording, &part(Metric::OffCpu, By::Stack, from, until)).unwrap();
        let main = lines(&folded)
            .into_iter()
            .filter(|(stack, _)| !stack.contains("thread pool"));
        main.map(|(_, value)| value).sum::<u64>()
    };
    assert_eq!(off(Some("39.5ms"), Some("40ms")), 500_000);
    // 1.5 ms until it was woken, 0.5 ms until it had a CPU.
    assert_eq!(off(Some("21ms"), Some("21.75ms")), 750_000);
    let folded = fold(
        &recording,
        &part(Metric::OffCpu, By::Stack, Some("21ms"), Some("21.75ms")),
    )
    .unwrap();
    let text = folded.to_string();
    assert!(text.contains("[waits for a file] 500000"), "{text}");
    assert!(text.contains("[waits for a CPU] 250000"), "{text}");
}

#[test]
fn threads_of_a_program_in_place_of_node_are_no_pool_of_nodes() {
    let text = |recording: &Recording| {
        let folded = fold(recording, &by(Metric::Cpu, By::Stack)).unwrap();
        folded.to_string()
    };
    let mut recording = stacked();
    let of_pool = recording.samples.iter().find(|sample| {
        let process = &recording.processes[sample.process.0 as usize];
        sample.thread.0 != process.pid
    });
    let (of_pool, at) = of_pool.map(|sample| (sample.process, sample.at)).unwrap();
    assert!(text(&recording).contains("thread pool;start_thread"));
    let exec = Nanoseconds(at.0 - 1);
    recording.milestones.retain(|milestone| milestone.at < exec);
    recording.processes[of_pool.0 as usize].execs.push(Exec {
        at: exec,
        path: b"/usr/bin/tsc".to_vec(),
        ..Exec::default()
    });
    let text = text(&recording);
    assert!(!text.contains("thread pool"), "{text}");
    assert!(text.contains("\ntsc;start_thread"), "{text}");
}

#[test]
fn threads_and_processes_are_chosen() {
    let recording = stacked();
    let total = |selection: Selection| {
        let request = Request {
            selection,
            ..Request::new(Metric::Cpu)
        };
        fold(&recording, &request).map(|folded| folded.total() / 1_000_000)
    };
    let threads = |threads| Selection {
        threads: Some(threads),
        ..Selection::default()
    };
    assert_eq!(total(Selection::default()), Ok(14));
    assert_eq!(total(threads(Threads::All)), Ok(14));
    assert_eq!(total(threads(Threads::Main)), Ok(12));
    assert_eq!(total(threads(Threads::One(ThreadId(105)))), Ok(1));
    let process = |pid| Selection {
        process: Some(pid),
        ..Selection::default()
    };
    assert_eq!(total(process(110)), Ok(1));
    assert_eq!(total(process(100)), Ok(13));
    let error = total(process(111)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "found: no process 111 in this run; needed: one of 100, 110"
    );
    let error = total(threads(Threads::One(ThreadId(1)))).unwrap_err();
    assert!(error.to_string().contains("without --thread"), "{error}");
    // Times of a process are told from its own exec.
    let child = Selection {
        process: Some(110),
        until: Some("4ms".parse().unwrap()),
        ..Selection::default()
    };
    assert!(total(child.clone()).is_err());
    let until = Some("6ms".parse().unwrap());
    assert_eq!(total(Selection { until, ..child }), Ok(1));
}

#[test]
fn spans_that_are_none_are_errors_with_a_way_out() {
    let recording = stacked();
    let error =
        |from, until| fold(&recording, &part(Metric::Cpu, By::Stack, from, until)).unwrap_err();
    let text = error(Some("loop_begin"), None).to_string();
    assert!(
        text.contains("loop_start, loop_exit, exit, process,"),
        "{text}"
    );
    assert!(matches!(
        error(Some("loop_start"), Some("environment")),
        FoldError::Select(SelectError::Empty { .. })
    ));
}

#[test]
fn recordings_without_stacks_are_folded_by_phase_and_say_so_if_asked_for_more() {
    let mut recording = stacked();
    for crossing in &mut recording.crossings {
        crossing.stack = None;
    }
    for sum in &mut recording.crossing_sums {
        sum.stack = None;
    }
    let folded = fold(&recording, &Request::new(Metric::Crossings)).unwrap();
    assert_eq!(folded.about().by, By::Phase);
    let error = fold(&recording, &by(Metric::Crossings, By::Module)).unwrap_err();
    assert!(error.to_string().contains("--by phase"), "{error}");
    let time = Request {
        order: Order::Time,
        ..Request::new(Metric::Crossings)
    };
    assert_eq!(fold(&recording, &time), Err(FoldError::NoOrder));
    recording.samples.clear();
    recording.runs[0].sample_hz = None;
    let error = fold(&recording, &by(Metric::Cpu, By::Stack)).unwrap_err();
    assert!(error.to_string().contains("none were taken"), "{error}");
}

fn frame_named(folded: &Folded, name: &str) -> FrameKind {
    let frames = folded.frames().iter().filter(|frame| frame.name == name);
    let kinds: Vec<FrameKind> = frames.map(|frame| frame.kind).collect();
    assert_eq!(kinds.len(), 1, "{name}: {kinds:?}");
    kinds[0]
}

#[test]
fn kinds_of_frames_are_told_apart() {
    let folded = fold(&stacked(), &Request::new(Metric::Wall)).unwrap();
    for (name, kind) in [
        ("app.js", FrameKind::JavaScript),
        ("next express/lib/router/index.js:46", FrameKind::JavaScript),
        ("debug/src/index.js", FrameKind::JavaScript),
        (
            "Module._load node:internal/modules/cjs/loader:950",
            FrameKind::NodeJavaScript,
        ),
        ("ArrayMap", FrameKind::V8Builtin),
        ("node::Start", FrameKind::Native),
        ("read [libc.so.6]", FrameKind::Library),
        ("vfs_read [kernel]", FrameKind::Kernel),
        (
            "v8::internal::Compiler::GetFunctionFromEval",
            FrameKind::Compilation,
        ),
        // What a collection or a compilation calls is part of it, the kernel is the kernel.
        (
            "v8::internal::Heap::CollectGarbage",
            FrameKind::GarbageCollection,
        ),
        (
            "v8::internal::ScavengerCollector::CollectGarbage",
            FrameKind::GarbageCollection,
        ),
        ("page_fault [kernel]", FrameKind::Kernel),
        ("[waits for a file]", FrameKind::Wait),
        ("(no stack)", FrameKind::Unknown),
    ] {
        assert_eq!(frame_named(&folded, name), kind, "{name}");
    }
    let folded = fold(&stacked(), &Request::new(Metric::Cpu)).unwrap();
    let kinds = |name: &str| {
        let frames = folded.frames().iter().filter(|frame| frame.name == name);
        frames.map(|frame| frame.kind).collect::<Vec<_>>()
    };
    assert!(kinds("memcpy [libc.so.6]").contains(&FrameKind::GarbageCollection));
    assert!(kinds("v8::internal::Factory::New").contains(&FrameKind::Compilation));
}

/// A recording with samples of the given frames, each on a stack of its own.
fn of_frames(
    make: impl FnOnce(&mut Stacked) -> Vec<nodeprof_profile::recording::FrameId>,
) -> Recording {
    let like = stacked();
    let mut stacked = Stacked::default();
    stacked.recording.runs = like.runs;
    stacked.recording.processes = like.processes;
    stacked.recording.milestones = like.milestones;
    for frame in make(&mut stacked) {
        let stack = stacked.on(None, frame);
        stacked.sample(MAIN, 20_000, Some(stack));
    }
    stacked.recording
}

#[test]
fn what_the_kernel_does_for_probes_is_told_apart() {
    let mut recording = stacked();
    let last = recording.stacks.len() as u32 - 1;
    let kernel = recording
        .frames
        .iter()
        .find(|frame| frame.kind == Recorded::Kernel)
        .copied()
        .unwrap();
    let app = recording.samples[2].stack;
    for (index, name) in ["asm_exc_int3", "handler_chain"].into_iter().enumerate() {
        recording.names.push(name.into());
        recording.frames.push(nodeprof_profile::recording::Frame {
            function: nodeprof_profile::recording::NameId(recording.names.len() as u32 - 1),
            ..kernel
        });
        let caller = match index {
            0 => app,
            _ => Some(nodeprof_profile::recording::StackId(last + 1)),
        };
        recording.stacks.push(nodeprof_profile::recording::Stack {
            caller,
            frame: nodeprof_profile::recording::FrameId(recording.frames.len() as u32 - 1),
            truncated: false,
        });
    }
    recording.samples[2].stack = Some(nodeprof_profile::recording::StackId(last + 2));
    let folded = fold(&recording, &Request::new(Metric::Cpu)).unwrap();
    for name in ["asm_exc_int3 [kernel]", "handler_chain [kernel]"] {
        let kinds = folded.frames().iter().filter(|frame| frame.name == name);
        let kinds: Vec<FrameKind> = kinds.map(|frame| frame.kind).collect();
        assert!(kinds.contains(&FrameKind::Tracing), "{name}");
    }
    let found = lines(&fold(&recording, &by(Metric::Cpu, By::Module)).unwrap());
    assert_eq!(found["node app.js;app.js;(tracing)"], 1_000_000);
}

#[test]
fn code_without_a_file_is_of_the_module_or_package_that_called_it() {
    let mut recording = of_frames(|_| Vec::new());
    let mut s = Stacked::default();
    std::mem::swap(&mut s.recording, &mut recording);
    let eval = s.code(Recorded::JavaScript, "anonymous", None);
    let unnamed = s.code(Recorded::JavaScript, "", Some(""));
    let wasm = s.code(Recorded::JavaScript, "add", Some("wasm://wasm/5d01c3ae"));
    let script = s.code(Recorded::JavaScript, "run", Some("evalmachine.<anonymous>"));
    let page = s.code(Recorded::JavaScript, "page", Some("pages/a.html"));
    let codes = [eval, unnamed, wasm, script, page].map(|frame| s.frame(frame));
    let package = [
        "top /srv/site/app.js@1",
        "top /srv/site/node_modules/a/i.js@1",
    ];
    for callers in [&package[..], &package[..1], &[]] {
        for code in codes {
            let caller = s.stack(callers);
            // By way of Node's own code, and with some on top of it.
            let vm = s.parse("js runInThisContext node:vm:9@9");
            let caller = caller.map(|caller| s.on(Some(caller), vm));
            let stack = s.on(caller, code);
            s.sample(MAIN, 20_000, Some(stack));
            let fs = s.parse("js existsSync node:fs:9@9");
            let stack = s.on(Some(stack), fs);
            s.sample(MAIN, 20_000, Some(stack));
        }
    }
    let found = |form| {
        let found = lines(&fold(&s.recording, &by(Metric::Cpu, form)).unwrap());
        let found = found.into_iter();
        let found = found.map(|(stack, ns)| (stack.replace("node app.js;", ""), ns / 1_000_000));
        found.collect::<BTreeMap<String, u64>>()
    };
    let expected = |of: &[(&str, u64)]| -> BTreeMap<String, u64> {
        of.iter()
            .map(|&(stack, count)| (stack.to_owned(), count))
            .collect()
    };
    assert_eq!(
        found(By::Package),
        expected(&[
            ("(program)", 10),
            ("(program);a", 5),
            ("(program);a;node", 5),
            ("(program);node", 10),
        ])
    );
    // Modules are what has a name.
    assert_eq!(
        found(By::Module),
        expected(&[
            ("(no file)", 2),
            ("(no file);node:fs", 2),
            ("app.js", 3),
            ("app.js;a/i.js", 3),
            ("app.js;a/i.js;evalmachine.<anonymous>", 1),
            ("app.js;a/i.js;evalmachine.<anonymous>;node:fs", 1),
            ("app.js;a/i.js;node:fs", 3),
            ("app.js;a/i.js;pages/a.html", 1),
            ("app.js;a/i.js;pages/a.html;node:fs", 1),
            ("app.js;evalmachine.<anonymous>", 1),
            ("app.js;evalmachine.<anonymous>;node:fs", 1),
            ("app.js;node:fs", 3),
            ("app.js;pages/a.html", 1),
            ("app.js;pages/a.html;node:fs", 1),
            ("evalmachine.<anonymous>", 1),
            ("evalmachine.<anonymous>;node:fs", 1),
            ("pages/a.html", 1),
            ("pages/a.html;node:fs", 1),
            ("wasm://wasm/5d01c3ae", 1),
            ("wasm://wasm/5d01c3ae;node:fs", 1),
        ])
    );
}

#[test]
fn functions_that_would_look_the_same_say_more() {
    let recording = of_frames(|s| {
        vec![
            s.parse("js get /srv/site/node_modules/a/i.js:7@9"),
            // Another line of the same function is the same frame.
            s.parse("js get /srv/site/node_modules/a/i.js:7@8"),
            s.parse("js get /srv/site/node_modules/b/node_modules/a/i.js:7@9"),
            s.parse("js only /srv/site/node_modules/a/i.js:7@9"),
            s.parse("c node::F<int>(int)"),
            s.parse("c node::F<long>(long)"),
        ]
    });
    let found = lines(&fold(&recording, &Request::new(Metric::Cpu)).unwrap());
    let expected = [
        ("get /srv/site/node_modules/a/i.js:7:10", 2_000_000),
        (
            "get /srv/site/node_modules/b/node_modules/a/i.js:7:10",
            1_000_000,
        ),
        ("node::F<int>(int)", 1_000_000),
        ("node::F<long>(long)", 1_000_000),
        ("only a/i.js:7", 1_000_000),
    ];
    let expected = expected.map(|(frame, value)| (format!("node app.js;{frame}"), value));
    assert_eq!(found, BTreeMap::from(expected));
}

#[test]
fn inlined_functions_and_original_sources_are_shown() {
    let recording = of_frames(|s| {
        let plain = s.parse("js f /srv/site/dist/bundle.js:1@1");
        let source = s.name("/srv/site/src/f.ts");
        let mapped = |line| {
            move |mut frame: nodeprof_profile::recording::Frame| {
                frame.original = Some(OriginalPosition {
                    file: source,
                    line,
                    column: 3,
                });
                frame.column = Some(line);
                frame
            }
        };
        let frame = s.recording.frames[plain.0 as usize];
        let first = s.frame(mapped(40)(frame));
        let second = s.frame(mapped(30)(frame));
        let mut inlined = mapped(30)(frame);
        inlined.inlined = true;
        let inlined = s.frame(inlined);
        vec![first, second, inlined]
    });
    let found = lines(&fold(&recording, &Request::new(Metric::Cpu)).unwrap());
    let expected = [
        ("f src/f.ts:30", 2_000_000),
        ("f src/f.ts:30 [inlined]", 1_000_000),
    ];
    let expected = expected.map(|(frame, value)| (format!("node app.js;{frame}"), value));
    assert_eq!(found, BTreeMap::from(expected));
    let request = Request {
        source_maps: false,
        ..Request::new(Metric::Cpu)
    };
    let found = lines(&fold(&recording, &request).unwrap());
    assert_eq!(found["node app.js;f dist/bundle.js:1"], 2_000_000);
    let found = lines(&fold(&recording, &by(Metric::Cpu, By::Module)).unwrap());
    assert_eq!(found["node app.js;dist/bundle.js"], 3_000_000);
}

#[test]
fn a_bundle_is_shown_as_the_files_and_packages_that_it_was_made_of() {
    let mut s = Stacked::default();
    s.recording = of_frames(|_| Vec::new());
    const BUNDLE: &str = "/srv/site/dist/out.js";
    const LIBRARY: &str = "/srv/site/node_modules/@s/lib/i.js";
    const WEBPACK: &str = "webpack://app/./node_modules/w/i.js";
    let body = s.parse(&format!("top {BUNDLE}@1"));
    let added = s.parse(&format!("js __require {BUNDLE}:1@1"));
    let mut of = |file: &str| {
        let file = s.name(file);
        let mut frame = s.recording.frames[added.0 as usize];
        frame.original = Some(OriginalPosition {
            file,
            line: 2,
            column: 3,
        });
        s.frame(frame)
    };
    let [own, library, webpack, own_of_webpack] = [
        "/srv/site/src/a.ts",
        LIBRARY,
        WEBPACK,
        "webpack://app/./src/b.ts",
    ]
    .map(&mut of);
    // The bundler's own function stands between; the innermost one is of whoever calls it.
    for stack in [
        &[body, own, added, library][..],
        &[body, own, added, library, added],
        &[body, own, webpack, own_of_webpack],
        &[body],
    ] {
        let mut at = None;
        for &frame in stack {
            at = Some(s.on(at, frame));
        }
        s.sample(MAIN, 20_000, at);
    }
    let found = |form, source_maps| {
        let request = Request {
            source_maps,
            ..by(Metric::Cpu, form)
        };
        let found = lines(&fold(&s.recording, &request).unwrap()).into_iter();
        let found = found.map(|(stack, ns)| (stack.replace("node app.js;", ""), ns / 1_000_000));
        found.collect::<Vec<(String, u64)>>()
    };
    let expected = |of: &[(&str, u64)]| -> Vec<(String, u64)> {
        let of = of.iter().map(|&(stack, count)| (stack.to_owned(), count));
        of.collect()
    };
    assert_eq!(
        found(By::Package, true),
        expected(&[
            ("(program)", 1),
            ("(program);@s/lib", 2),
            ("(program);w;(program)", 1),
        ])
    );
    assert_eq!(
        found(By::Module, true),
        expected(&[
            ("dist/out.js", 1),
            ("dist/out.js;src/a.ts;@s/lib/i.js", 2),
            ("dist/out.js;src/a.ts;w/i.js;webpack://app/./src/b.ts", 1),
        ])
    );
    assert_eq!(found(By::Module, false), expected(&[("dist/out.js", 4)]));
    assert_eq!(found(By::Package, false), expected(&[("(program)", 4)]));
}

#[test]
fn stacks_without_their_outer_frames_say_so() {
    let mut recording = stacked();
    let stack = recording.samples[2].stack.unwrap();
    recording.stacks[stack.0 as usize].caller = None;
    recording.stacks[stack.0 as usize].truncated = true;
    let found = lines(&fold(&recording, &Request::new(Metric::Cpu)).unwrap());
    assert!(found.contains_key("node app.js;(outer frames are missing);app.js"));
    let found = lines(&fold(&recording, &by(Metric::Cpu, By::Module)).unwrap());
    assert_eq!(found["node app.js;app.js"], 1_000_000);
}

#[test]
fn packages_have_the_names_that_their_manifests_give() {
    let mut recording = stacked();
    let directory = recording.names.len() as u32;
    recording.names.push(b"/srv/site".to_vec());
    recording.packages.push(Package {
        run: RunId(0),
        directory: nodeprof_profile::recording::NameId(directory),
        name: Some("my-app".into()),
        version: None,
    });
    let found = lines(&fold(&recording, &by(Metric::Cpu, By::Package)).unwrap());
    assert!(
        found.contains_key("node app.js;my-app;express;debug"),
        "{found:?}"
    );
}

#[test]
fn in_order_of_time_a_stack_comes_as_often_as_it_was_there() {
    let request = Request {
        order: Order::Time,
        selection: Selection {
            threads: Some(Threads::Main),
            process: Some(100),
            // The first of these samples was taken at 12 ms, and stands for the millisecond before.
            from: Some(Point::After(Nanoseconds(10_500_000))),
            until: Some(Point::After(Nanoseconds(15_500_000))),
        },
        ..by(Metric::Cpu, By::Module)
    };
    let recording = stacked();
    let text = fold(&recording, &request).unwrap().to_string();
    let stacks: Vec<&str> = text
        .lines()
        .map(|line| line.split_once(";main_script;").unwrap().1)
        .collect();
    assert_eq!(
        stacks,
        [
            "app.js 1000000",
            "app.js;express/lib/express.js 1000000",
            "app.js;express/lib/express.js;node:internal/modules/cjs/loader 1000000",
            "app.js;express/lib/express.js;debug/src/index.js 1000000",
            "app.js;express/lib/express.js 1000000",
        ]
    );
    assert_eq!(at(0).0, recording.runs[0].started.0);
}

#[test]
fn ids_of_nothing_and_stacks_in_a_circle_are_no_reason_to_panic() {
    use nodeprof_profile::recording::{FrameId, NameId, ProcessId, StackId};
    let mut recording = stacked();
    recording.samples[0].stack = Some(StackId(u32::MAX));
    recording.samples[1].process = ProcessId(7);
    recording.samples[2].weight = Nanoseconds(u64::MAX);
    recording.stacks[1].caller = Some(StackId(5));
    recording.stacks[2].frame = FrameId(u32::MAX);
    recording.frames[0].function = NameId(u32::MAX);
    recording.waits[0].runnable = Nanoseconds(u64::MAX);
    recording.waits[1].duration = Nanoseconds(u64::MAX);
    assert_eq!(recording.frames[1].kind, Recorded::Native);
    for form in [By::Stack, By::Module, By::Package, By::Phase] {
        for metric in Metric::ALL {
            for order in [Order::Merged, Order::Time] {
                let folded = fold(
                    &recording,
                    &Request {
                        order,
                        ..by(metric, form)
                    },
                );
                if let Ok(folded) = folded {
                    let mut picture = Vec::new();
                    nodeprof_flamegraphs::svg::write(&folded, &Default::default(), &mut picture)
                        .unwrap();
                }
            }
        }
    }
}
