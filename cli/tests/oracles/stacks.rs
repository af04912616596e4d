//! JavaScript stacks against `new Error().stack` at the same call: of each call site of `examples/known-stacks`, whose
//! witness makes a system call at the very place where it takes the error.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
};

use nodeprof_profile::{
    Recording,
    recording::{CallbackId, Crossing, Frame, FrameKind, StackId},
};
use serde::Deserialize;

use crate::support::{Node, Trace, folder, on_each_node, project};

on_each_node!(
    functions_of_the_loader_have_the_names_of_their_assignments,
    stacks_are_those_of_errors,
    stacks_are_those_of_errors_while_the_collector_moves_everything,
    innermost_functions_are_those_of_errors_in_a_start_that_is_optimised,
    innermost_functions_are_those_of_errors_in_hot_code,
    innermost_functions_are_those_of_errors_in_hot_code_under_pressure,
    innermost_functions_are_those_of_errors_in_hot_code_that_moves,
    callers_in_code_that_is_given_up_are_those_of_errors,
);

mod callers_in_code_that_is_given_up_are_those_of_errors_between {
    crate::support::on_each_node! { @versions super::callers_in_code_that_is_given_up_are_those_of_errors,
        node_23 "23.11.1", node_24 "24.15.0", node_25 "25.9.0"
    }
}

mod innermost_functions_are_those_of_errors_in_hot_code_between {
    // V8 10.8 describes code by constants of its own, Maglev of 12.9 and 13.6 writes no table of positions.
    crate::support::on_each_node! { @versions super::innermost_functions_are_those_of_errors_in_hot_code,
        node_19 "19.8.1", node_23 "23.11.1", node_24 "24.15.0"
    }
}

mod functions_have_names_after_those_of_many_processes {
    crate::support::on_each_node! { @versions super::functions_have_names_after_those_of_many_processes, node_20 "20.20.2" }
}

mod functions_have_names_again_after_records_were_lost {
    crate::support::on_each_node! { @versions super::functions_have_names_again_after_records_were_lost, node_20 "20.20.2", node_24 "24.21.0" }
}

/// A frame as V8 itself tells it.
#[derive(Debug, Deserialize)]
struct Told {
    function: Option<String>,
    method: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    /// The caller of an `await`, which is not on the machine's stack.
    #[serde(rename = "async")]
    awaits: bool,
    builtin: bool,
}

/// A call of the witness.
#[derive(Deserialize)]
struct Site {
    path: String,
    frames: Vec<Told>,
}

/// What is compared.
#[derive(Debug)]
struct Place {
    function: String,
    /// Of Node's own functions, as V8 tells them: the property of the receiver that has it; empty if V8 finds none.
    method: Option<String>,
    file: Option<String>,
    /// `None` of a builtin, and where nodeprof does not know it.
    line: Option<(u32, u32)>,
    builtin: bool,
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.has_name_of(other)
            && self.file == other.file
            && self.line == other.line
            && self.builtin == other.builtin
    }
}

impl Place {
    /// V8 has forgotten the names that it inferred for Node's own functions: nodeprof tells what their source assigns them to, whose last part must be
    /// the property that has the function, if V8 finds it.
    fn has_name_of(&self, other: &Place) -> bool {
        let is_method = |nameless: &Place, named: &Place| {
            let method = nameless.method.as_ref();
            let is_it = |method: &String| {
                method.is_empty() || named.function.ends_with(&format!(".{method}"))
            };
            nameless.function.is_empty() && method.is_some_and(is_it)
        };
        self.function == other.function || is_method(self, other) || is_method(other, self)
    }

    /// Whether both are in the same function: by its name, or because the call is the very same one. Where V8 inlines one function for
    /// several closures, each with a computed name of its own, the code does not tell which of them is called.
    fn is_in_function_of(&self, other: &Place) -> bool {
        let same_call = self.line.is_some() && self.line == other.line;
        self.file == other.file && (self.has_name_of(other) || same_call)
    }
}

/// V8 names a builtin by its receiver, too: `Array.map`.
fn last_part(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).to_owned()
}

impl Told {
    fn place(&self) -> Place {
        let function = self.function.clone().unwrap_or_default();
        if self.builtin {
            return Place {
                function: last_part(&function),
                method: None,
                file: None,
                line: None,
                builtin: true,
            };
        }
        let of_node = self
            .file
            .as_deref()
            .is_some_and(|file| file.starts_with("node:"));
        Place {
            function,
            method: of_node.then(|| self.method.clone().unwrap_or_default()),
            file: self.file.clone(),
            line: self.line.zip(self.column),
            builtin: false,
        }
    }
}

/// A program of call sites that ran under a trace.
struct Sites {
    recording: Recording,
    sites: Vec<Site>,
    stacks: HashMap<String, StackId>,
    witness: String,
}

impl Sites {
    /// Generates the program and traces it.
    fn run(node: &Node, flags: &[&str], script: &str, arguments: &[&str]) -> Sites {
        let folder = folder();
        let top = fs::canonicalize(folder.path()).expect("a folder");
        let generator = project("examples/known-stacks/generate.js");
        let generated = std::process::Command::new(&node.path)
            .arg(generator)
            .arg(&top)
            .status()
            .expect("node starts");
        assert!(generated.success());
        let result = top.join("result.json");
        let at = |name: &str| top.join(name).to_str().expect("UTF-8").to_owned();
        let mut command = node.command(flags);
        command.extend([at(script), at("result.json")]);
        command.extend(arguments.iter().map(|&argument| argument.to_owned()));
        // Nothing of these tests needs samples, and each has a stack to be kept.
        let traced = Trace::new(["--freq", "0"], command).run();
        traced.succeeded();
        // A collector that always works can come to more short waits of a thread than are recorded: no stack of these is.
        match flags.contains(&"--stress-compaction") {
            true => traced.lost_nothing_but(&["waits"]),
            false => traced.lost_nothing(),
        }
        let recording = Recording::load(&traced.recording).expect("a recording");
        let text = fs::read_to_string(result).expect("the program's own stacks");
        let sites: Vec<Site> = serde_json::from_str(&text).expect("JSON");
        let mut stacks = HashMap::new();
        for access in &recording.files {
            let path = String::from_utf8_lossy(recording.name(access.path)).into_owned();
            if path.starts_with("/nowhere/site-") {
                let again = stacks.insert(path, access.stack.expect("a stack"));
                assert!(again.is_none(), "each call has a path of its own");
            }
        }
        Sites {
            recording,
            sites,
            stacks,
            witness: at("node_modules/witness/index.js"),
        }
    }

    /// Different places of calls.
    fn places(&self) -> usize {
        let innermost = self.sites.iter().filter_map(|site| site.frames.first());
        let places: BTreeSet<_> = innermost.map(|f| (&f.file, f.line, f.column)).collect();
        places.len()
    }

    fn name(&self, id: nodeprof_profile::recording::NameId) -> String {
        String::from_utf8_lossy(self.recording.name(id)).into_owned()
    }

    fn place(&self, frame: &Frame) -> Place {
        let builtin = frame.kind == FrameKind::Builtin;
        let function = self.name(frame.function);
        Place {
            function: match builtin {
                true => last_part(&function),
                false => function,
            },
            method: None,
            file: frame
                .file
                .filter(|_| !builtin)
                .map(|f| self.name(f))
                .filter(|f| !f.is_empty()),
            line: frame.line.zip(frame.column).filter(|_| !builtin),
            builtin,
        }
    }

    /// The JavaScript frames of a call, the innermost first, without those of the witness and of what it calls.
    fn found(&self, site: &Site) -> Vec<&Frame> {
        let stack = *self.stacks.get(&site.path).expect("the call was seen");
        let frames = self.recording.frames_of(stack);
        let frames: Vec<&Frame> = frames
            .filter(|f| matches!(f.kind, FrameKind::JavaScript | FrameKind::Builtin))
            .collect();
        // Of code that is inlined, any of these may be missing.
        let ours = frames.iter().position(|frame| {
            let file = frame.file.map(|f| self.name(f)).unwrap_or_default();
            let of_node = file.starts_with("node:fs") || file.starts_with("node:internal/fs/");
            let of_16 = file == "fs" || file.starts_with("internal/fs/");
            file != self.witness && !of_node && !of_16
        });
        frames[ours.unwrap_or(frames.len())..].to_vec()
    }

    fn told(&self, site: &Site) -> Vec<Place> {
        let frames = site.frames.iter().filter(|frame| !frame.awaits);
        frames.map(Told::place).collect()
    }
}

/// No optimised and no baseline code. Maglev came with 20.
fn interpreted(node: &Node) -> Vec<&'static str> {
    let mut flags = vec!["--no-warnings", "--no-opt", "--no-sparkplug"];
    if node.major() >= 20 {
        flags.push("--no-maglev");
    }
    flags
}

/// Every frame of every stack is the same.
fn assert_equal(sites: &Sites) {
    for site in &sites.sites {
        let found: Vec<Place> = sites
            .found(site)
            .into_iter()
            .map(|f| sites.place(f))
            .collect();
        let told = sites.told(site);
        if found != told {
            let differs = (0..)
                .find(|&i| found.get(i) != told.get(i))
                .expect("it differs");
            panic!(
                "{}: frame {differs} of {}\n found {:?}\n  told {:?}",
                site.path,
                told.len(),
                found.get(differs),
                told.get(differs)
            );
        }
    }
}

pub(crate) fn stacks_are_those_of_errors(node: &Node) {
    // Two threads run it all, at the same time.
    let sites = Sites::run(node, &interpreted(node), "main.js", &["1"]);
    assert!(sites.places() >= 4_000, "only {} places", sites.places());
    assert_equal(&sites);
    println!(
        "node {}: {} stacks of {} call sites are equal",
        node.version,
        sites.sites.len(),
        sites.places()
    );
}

fn stacks_are_those_of_errors_while_the_collector_moves_everything(node: &Node) {
    let mut flags = interpreted(node);
    flags.extend([
        "--gc-interval=2000",
        "--stress-compaction",
        "--max-semi-space-size=1",
    ]);
    let sites = Sites::run(node, &flags, "main.js", &[]);
    assert_equal(&sites);
}

/// V8 forgets the names that it inferred for the functions of Node's snapshot, from 22 on.
fn functions_of_the_loader_have_the_names_of_their_assignments(node: &Node) {
    let folder = folder();
    let main = folder.path().join("main.js");
    fs::write(&main, "process.umask();\n").expect("a file");
    let command = node.command([main.to_str().expect("UTF-8")]);
    let traced = Trace::new(["--freq", "0"], command).run();
    traced.succeeded();
    let recording = Recording::load(&traced.recording).expect("a recording");
    let name = |id| String::from_utf8_lossy(recording.name(id)).into_owned();
    let own = |crossing: &&Crossing| {
        let frames = crossing.stack.map(|stack| recording.frames_of(stack));
        let mut frames = frames.into_iter().flatten();
        frames.any(|f| {
            f.file
                .is_some_and(|file| name(file) == main.to_string_lossy())
        })
    };
    let crossing = recording.crossings.iter().find(own).expect("a crossing");
    let frames = recording.frames_of(crossing.stack.expect("a stack"));
    let of_loader: Vec<String> = frames
        .filter(|f| {
            f.file
                .is_some_and(|file| name(file).ends_with("internal/modules/cjs/loader"))
        })
        .map(|f| name(f.function))
        .collect();
    let expected = [
        "Module._compile",
        "Module._extensions..js",
        "Module.load",
        "Module._load",
    ];
    assert!(
        of_loader.starts_with(&expected.map(str::to_owned)),
        "{of_loader:?}"
    );
}

/// How many of the calls have the innermost function, script and whole stack right.
#[derive(Debug, Default)]
struct Shares {
    calls: usize,
    function: usize,
    script: usize,
    functions: usize,
    /// Functions with lines and columns.
    places: usize,
    /// With all builtins, too.
    whole: usize,
    /// A stack whose places are not right.
    misplaced: Option<String>,
    /// Of the calls whose functions are not all there: those of which no frame says so.
    silent: Vec<String>,
    tiers: BTreeMap<String, usize>,
}

impl Shares {
    fn of(sites: &Sites) -> Shares {
        let mut shares = Shares::default();
        for site in &sites.sites {
            let frames = sites.found(site);
            let found: Vec<Place> = frames.iter().map(|f| sites.place(f)).collect();
            let told = sites.told(site);
            // A builtin that optimised code does itself is no frame.
            let found_users: Vec<_> = found.iter().filter(|place| !place.builtin).collect();
            let told_users: Vec<_> = told.iter().filter(|place| !place.builtin).collect();
            let (first, expected) = (found_users.first(), told_users.first());
            let is_innermost = (first.zip(expected)).is_some_and(|(a, b)| a.is_in_function_of(b));
            let are_all = found_users.len() == told_users.len()
                && (found_users.iter().zip(&told_users)).all(|(a, b)| a.is_in_function_of(b));
            shares.calls += 1;
            shares.function += usize::from(is_innermost);
            shares.script += usize::from(first.map(|f| &f.file) == expected.map(|f| &f.file));
            shares.functions += usize::from(are_all);
            // (Which of several closures it is their one code does not tell.)
            let mut both = found_users.iter().zip(&told_users);
            let misplaced = both.find(|(found, told)| found.line != told.line);
            shares.places += usize::from(are_all && misplaced.is_none());
            shares.whole += usize::from(found == told);
            if let Some((found, told)) = misplaced {
                shares.misplaced = Some(format!("{}: found {found:?}, told {told:?}", site.path));
            }
            if !are_all && !frames.iter().any(|f| f.inlining_possible) {
                shares
                    .silent
                    .push(format!("{}: found {found:?}, told {told:?}", site.path));
            }
            for frame in frames {
                let tier = frame
                    .tier
                    .map_or("builtin".to_owned(), |tier| format!("{tier:?}"));
                *shares.tiers.entry(tier).or_default() += 1;
            }
        }
        shares
    }

    fn percent(&self, count: usize) -> f64 {
        100.0 * count as f64 / self.calls as f64
    }

    fn print(&self, node: &Node, what: &str) {
        println!(
            "node {}, {what}: of {} stacks {:.2}% have the innermost function, {:.2}% its script, {:.2}% all functions, \
             {:.2}% all lines and columns, {:.2}% all builtins, too; frames: {:?}; {}",
            node.version,
            self.calls,
            self.percent(self.function),
            self.percent(self.script),
            self.percent(self.functions),
            self.percent(self.places),
            self.percent(self.whole),
            self.tiers,
            self.misplaced.as_deref().unwrap_or("all are right")
        );
    }
}

fn innermost_functions_are_those_of_errors_in_a_start_that_is_optimised(node: &Node) {
    let sites = Sites::run(node, &["--no-warnings"], "main.js", &["1"]);
    assert!(sites.places() >= 4_000, "only {} places", sites.places());
    let shares = Shares::of(&sites);
    shares.print(node, "as it starts");
    assert!(shares.percent(shares.function) >= 99.0);
    // Baseline code has no table of positions; where it calls is told by its offsets.
    assert!(shares.percent(shares.places) >= 99.5);
    let baseline = shares.tiers.get("Baseline");
    assert!(
        baseline.is_some_and(|frames| *frames > 1_000),
        "{baseline:?}"
    );
    assert_not_silent(&shares);
}

/// A crossing is a call from JavaScript: nothing that nobody knows lies between, whatever the registers hold that are saved where it begins.
fn assert_innermost_is_known(sites: &Sites) {
    let innermost = |crossing: &Crossing| sites.recording.frames_of(crossing.stack?).next();
    let kinds = sites.recording.crossings.iter().filter_map(innermost);
    let unknown = kinds.filter(|frame| frame.kind == FrameKind::Unknown);
    assert_eq!(unknown.count(), 0, "of {}", sites.recording.crossings.len());
}

/// Of a hundred stacks.
struct Least {
    /// Frames of optimised code: else it is not that which is looked at.
    optimized: usize,
    /// That have the right functions.
    functions: f64,
    /// And the right lines and columns.
    places: f64,
    /// Milliseconds of CPU time that each module is warmed up: so much that V8 has optimised it on a slow machine, too.
    warm: &'static str,
}

const OF_HOT_CODE: Least = Least {
    optimized: 25,
    functions: 99.0,
    places: 99.5,
    warm: "400",
};

fn assert_hot(node: &Node, flags: &[&'static str], what: &str, least: Least) -> Shares {
    let sites = Sites::run(node, flags, "hot.js", &[least.warm]);
    assert!(sites.places() >= 1_000, "only {} places", sites.places());
    assert_innermost_is_known(&sites);
    let shares = Shares::of(&sites);
    shares.print(node, what);
    assert!(
        shares
            .tiers
            .get("Optimized")
            .is_some_and(|frames| *frames * 100 > shares.calls * least.optimized),
        "{:?}",
        shares.tiers
    );
    assert!(shares.percent(shares.function) >= least.functions);
    assert!(shares.percent(shares.script) >= least.functions);
    assert!(shares.percent(shares.functions) >= least.functions);
    assert!(shares.percent(shares.places) >= least.places);
    shares
}

/// What is not right is said to be uncertain.
fn assert_not_silent(shares: &Shares) {
    assert!(shares.silent.is_empty(), "{:?}", shares.silent.first());
}

pub(crate) fn innermost_functions_are_those_of_errors_in_hot_code(node: &Node) {
    assert_not_silent(&assert_hot(node, &["--no-warnings"], "hot", OF_HOT_CODE));
}

fn innermost_functions_are_those_of_errors_in_hot_code_under_pressure(node: &Node) {
    let flags = [
        "--no-warnings",
        "--gc-interval=20000",
        "--max-semi-space-size=1",
    ];
    assert_not_silent(&assert_hot(
        node,
        &flags,
        "hot, with much garbage",
        OF_HOT_CODE,
    ));
}

fn innermost_functions_are_those_of_errors_in_hot_code_that_moves(node: &Node) {
    let flags = [
        "--no-warnings",
        "--gc-interval=20000",
        "--stress-compaction",
        "--max-semi-space-size=1",
    ];
    // V8 throws much of its code away, too, also while it runs: docs/limits.md.
    let what = "hot, while the collector moves everything";
    let least = Least {
        optimized: 10,
        functions: 99.0,
        places: 95.0,
        // Most of it is the collector's.
        warm: "1600",
    };
    assert_not_silent(&assert_hot(node, &flags, what, least));
}

/// Of Maglev's code the exits tell the calls, since it is known how V8 describes them; of other code it is said that they are not known.
pub(crate) fn callers_in_code_that_is_given_up_are_those_of_errors(node: &Node) {
    for compiler in ["maglev", "turbofan"] {
        let is_maglev = compiler == "maglev";
        if is_maglev && node.major() < 23 {
            continue; // there it is not on by itself
        }
        let flags = ["--no-warnings", "--allow-natives-syntax"];
        let sites = Sites::run(node, &flags, "given-up.js", &[compiler]);
        let shares = Shares::of(&sites);
        shares.print(node, &format!("given up, {compiler}"));
        assert_eq!(shares.calls, 660);
        let optimized = shares.tiers.get("Optimized");
        assert!(
            optimized.is_some_and(|frames| *frames >= 300),
            "{:?}",
            shares.tiers
        );
        assert_not_silent(&shares);
        // Of TurboFan's all but the 300 calls during which the code was given up, and of these those without an inlined function.
        let (functions, places) = if is_maglev { (660, 660) } else { (420, 360) };
        assert!(shares.functions >= functions, "{}", shares.functions);
        assert!(shares.places >= places, "{}", shares.places);
    }
}

/// Processes of one trace that have more functions together than the kernel's table has room for: those of the last are known like those of the first.
fn functions_have_names_after_those_of_many_processes(node: &Node) {
    const FUNCTIONS: usize = 2_000;
    const PROCESSES: usize = 40;
    let folder = folder();
    let script = folder.path().join("many.js");
    let mut text = String::from("const fs = require('fs');\n");
    for i in 0..FUNCTIONS {
        text.push_str(&format!(
            "function f{i}() {{ fs.existsSync('/'); }} f{i}();\n"
        ));
    }
    fs::write(&script, text).expect("a script");
    let run = format!("for i in $(seq {PROCESSES}); do \"$0\" \"$1\"; done");
    let mut command = vec!["sh".to_owned(), "-c".to_owned(), run];
    command.extend(node.command([&script]));
    let traced = Trace::new(["--freq", "0"], command).run();
    traced.succeeded();
    traced.lost_nothing();
    let recording = Recording::load(&traced.recording).expect("a recording");
    let is_own = |frame: &Frame| {
        frame.kind == FrameKind::JavaScript
            && String::from_utf8_lossy(recording.name(frame.function))
                .strip_prefix('f')
                .is_some_and(|number| number.parse::<usize>().is_ok())
    };
    let of_exists =
        |callback: CallbackId| recording.callbacks[callback.0 as usize].function == "ExistsSync";
    let has_own =
        |stack: Option<StackId>| stack.is_some_and(|stack| recording.frames_of(stack).any(is_own));
    let single = recording.crossings.iter();
    let single = single.map(|crossing| (crossing.callback, crossing.stack, 1));
    let sums = recording.crossing_sums.iter();
    let sums = sums.map(|sum| (sum.callback, sum.stack, sum.calls as usize));
    let (mut calls, mut named) = (0, 0);
    for (_, stack, n) in single.chain(sums).filter(|call| of_exists(call.0)) {
        calls += n;
        named += if has_own(stack) { n } else { 0 };
    }
    assert_eq!(
        (calls, named),
        (FUNCTIONS * PROCESSES, FUNCTIONS * PROCESSES)
    );
}

/// The tracer is stopped until its buffer is full, and functions are called for the first time meanwhile: what they are and which stacks they have is
/// lost. When all is calm again they are called again.
fn functions_have_names_again_after_records_were_lost(node: &Node) {
    const FUNCTIONS: usize = 400;
    const ROUNDS: usize = 10;
    let folder = folder();
    let script = folder.path().join("lost.js");
    let text = format!(
        "const fs = require('fs');
        globalThis.fs = fs;
        const all = [...Array({FUNCTIONS})].map((_, i) =>
          eval(`(function f${{i}}() {{ fs.existsSync('/'); }})`));
        setTimeout(() => {{
          process.kill(process.ppid, 'SIGSTOP');
          try {{
            for (let i = 0; i < 40000; i++) fs.statSync('/');
            for (const f of all) f();
          }} finally {{
            process.kill(process.ppid, 'SIGCONT');
          }}
          setTimeout(() => {{
            for (let i = 0; i < {ROUNDS}; i++) for (const f of all) f();
          }}, 2000);
        }}, 300);"
    );
    fs::write(&script, text).expect("a script");
    let traced = Trace::new(["--freq", "0"], node.command([&script])).run();
    traced.succeeded();
    let recording = Recording::load(&traced.recording).expect("a recording");
    let lost = recording.losses.iter().find(|loss| loss.kind == "records");
    assert!(
        lost.is_some_and(|loss| loss.count > 0),
        "nothing was lost: the test shows nothing"
    );
    let is_own = |frame: &Frame| {
        String::from_utf8_lossy(recording.name(frame.function))
            .strip_prefix('f')
            .is_some_and(|number| number.parse::<usize>().is_ok())
    };
    let mut calls: Vec<&Crossing> = (recording.crossings.iter())
        .filter(|call| {
            recording.callbacks[call.callback.0 as usize]
                .function
                .contains("ExistsSync")
                || recording.callbacks[call.callback.0 as usize]
                    .function
                    .contains("Access")
        })
        .collect();
    calls.sort_by_key(|call| call.start);
    let last = calls.len().saturating_sub(FUNCTIONS * ROUNDS);
    let named = calls[last..].iter().filter(|call| {
        call.stack
            .is_some_and(|stack| recording.frames_of(stack).any(is_own))
    });
    assert_eq!(
        (calls.len() - last, named.count()),
        (FUNCTIONS * ROUNDS, FUNCTIONS * ROUNDS)
    );
}
