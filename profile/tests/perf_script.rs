//! What `perf script` prints, as a recording.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nodeprof_profile::Recording;
use nodeprof_profile::import::perf_script::{ImportError, Options, read};
use nodeprof_profile::recording::{Frame, FrameKind, Nanoseconds, Tier};
use proptest::prelude::*;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

fn import(text: &[u8]) -> Result<Recording, ImportError> {
    read(text, &Options::default())
}

fn data(name: &str) -> Vec<u8> {
    std::fs::read(format!("{DATA}/{name}.perf.script")).unwrap()
}

fn text(recording: &Recording, id: nodeprof_profile::recording::NameId) -> String {
    String::from_utf8_lossy(recording.name(id)).into_owned()
}

/// A frame in one line.
fn shown(recording: &Recording, frame: &Frame) -> String {
    let mut line = format!("{:?}", frame.kind).to_lowercase();
    let _ = write!(line, " {:?}", text(recording, frame.function));
    if let Some(file) = frame.file {
        let _ = write!(line, " in {}", text(recording, file));
    }
    if let Some(at) = frame.function_line {
        let _ = write!(line, ":{at}:{}", frame.function_column.unwrap_or(0));
    }
    if let Some(tier) = frame.tier {
        let _ = write!(line, " {}", format!("{tier:?}").to_lowercase());
    }
    for (set, word) in [
        (frame.top_level, "top-level"),
        (frame.inlined, "inlined"),
        (frame.inlining_possible, "inlining-possible"),
    ] {
        if set {
            let _ = write!(line, " {word}");
        }
    }
    line
}

/// A recording as text, to be reviewed.
fn dump(recording: &Recording) -> String {
    let mut out = String::new();
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let words = |words: &[Vec<u8>]| words.iter().map(|w| lossy(w)).collect::<Vec<_>>().join(" ");
    let run = &recording.runs[0];
    let at = |instant: Nanoseconds| (instant.0 - run.started.0) / 1000;
    let _ = writeln!(
        out,
        "run {:?}, {} µs, {:?} Hz, ended by {}",
        words(&run.command),
        at(run.ended),
        run.sample_hz,
        run.ended_by
    );
    for binary in &recording.binaries {
        let _ = writeln!(out, "binary {} {:?}", lossy(&binary.path), binary.arch);
    }
    for process in &recording.processes {
        let _ = writeln!(
            out,
            "process {} parent {:?} node {:?} from {} to {:?}",
            process.pid,
            process
                .parent
                .map(|id| recording.processes[id.0 as usize].pid),
            process.node.map(|id| id.0),
            at(process.forked),
            process.exited.map(at)
        );
        for exec in &process.execs {
            let _ = writeln!(
                out,
                "  exec at {} {} {:?}",
                at(exec.at),
                lossy(&exec.path),
                words(&exec.arguments)
            );
        }
    }
    for family in &recording.families {
        let reason = family.reason.as_deref().unwrap_or("-");
        let _ = writeln!(out, "family {} {}: {reason}", family.name, family.state);
    }
    for loss in &recording.losses {
        let _ = writeln!(out, "loss {} {}", loss.kind, loss.count);
    }
    for sample in &recording.samples {
        let _ = writeln!(
            out,
            "sample {}/{} at {} weighs {}",
            recording.processes[sample.process.0 as usize].pid,
            sample.thread.0,
            at(sample.at),
            sample.weight.0
        );
        for frame in sample.stack.iter().flat_map(|id| recording.frames_of(*id)) {
            let _ = writeln!(out, "  {}", shown(recording, frame));
        }
    }
    out
}

fn is_as_reviewed(name: &str) {
    let recording = import(&data(name)).unwrap();
    recording.check_references().unwrap();
    let now = dump(&recording);
    let path = format!("{GOLDEN}/{name}.perf.txt");
    if std::env::var_os("NODEPROF_BLESS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        now == golden,
        "the recording differs from {path}; if that is meant, run \
         NODEPROF_BLESS=1 cargo test -p nodeprof-profile --test perf_script, then review the difference. Now:\n{now}"
    );
}

/// `perf script --header -F +pid --show-task-events --show-mmap-events` of node 24 with `--perf-basic-prof
/// --interpreted-frames-native-stack`, a worker and a child: some of its samples.
#[test]
fn node_24_with_interpreted_frames_is_as_reviewed() {
    is_as_reviewed("node-24-interpreted-frames");
}

/// `perf script` of node 20 with `--perf-basic-prof`: threads, no processes.
#[test]
fn node_20_in_the_default_format_is_as_reviewed() {
    is_as_reviewed("node-20-default");
}

/// `perf script` of node 24 with `--perf-prof`, after `perf inject --jit`.
#[test]
fn node_24_with_a_jitdump_is_as_reviewed() {
    is_as_reviewed("node-24-jitdump");
}

/// By hand: what the others do not have.
#[test]
fn rare_forms_are_as_reviewed() {
    is_as_reviewed("forms");
}

#[test]
fn an_imported_recording_is_a_file_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.nodeprof");
    let recording = import(&data("forms")).unwrap();
    recording
        .save(&path, nodeprof_profile::SaveOptions::default())
        .unwrap();
    assert_eq!(Recording::load(&path).unwrap(), recording);
}

/// perf tells the name of a program alone, and no folder.
#[test]
fn the_main_script_of_an_import_is_that_of_the_command() {
    use nodeprof_profile::{breakdown::Timeline, diff::sides::origin, recording::RunId};
    let text = String::from_utf8(data("node-24-interpreted-frames")).unwrap();
    for folder in ["/srv/app", "/srv/other"] {
        let recording = import(text.replace("/srv/app/", &format!("{folder}/")).as_bytes());
        let recording = recording.unwrap();
        let of = origin(&recording, &Timeline::new(&recording), RunId(0));
        assert_eq!(of.main, Some(format!("{folder}/app.js")));
    }
}

fn with(event: &str, text: &str) -> Result<Recording, ImportError> {
    let event = Some(event.to_owned());
    read(text.as_bytes(), &Options { event })
}

fn weights(recording: &Recording) -> Vec<u64> {
    recording
        .samples
        .iter()
        .map(|sample| sample.weight.0)
        .collect()
}

const TWO_EVENTS: &str = "a 1/1 1.0: 5 page-faults: \n\t10 f (/x.so)\n\n\
                          a 1/1 1.1: 6 cycles:u: \n\t10 f (/x.so)\n\n\
                          a 1/1 1.2: 7 page-faults: \n\n";

#[test]
fn one_event_is_taken_and_the_others_are_counted_as_missing() {
    let cycles = import(TWO_EVENTS.as_bytes()).unwrap();
    assert_eq!(weights(&cycles), [6]);
    let lost: Vec<_> = cycles
        .losses
        .iter()
        .map(|l| (l.kind.as_str(), l.count))
        .collect();
    assert_eq!(lost, [("samples_of_other_events", 2)]);
    let cpu = cycles
        .families
        .iter()
        .find(|family| family.name == "cpu")
        .unwrap();
    assert!(
        cpu.reason
            .as_deref()
            .unwrap()
            .contains("counts of cycles:u")
    );

    assert_eq!(weights(&with("page-faults", TWO_EVENTS).unwrap()), [5, 7]);
    assert_eq!(weights(&with("cycles", TWO_EVENTS).unwrap()), [6]);
    let error = with("cpu-clock", TWO_EVENTS).unwrap_err().to_string();
    assert!(
        error.contains("--event page-faults or --event cycles:u"),
        "{error}"
    );
}

#[test]
fn both_kinds_of_cores_are_taken() {
    let text = "a 1/1 1.0: 5 cpu_core/cycles/P: \n\na 1/1 1.1: 6 cpu_atom/cycles/P: \n\n";
    assert_eq!(weights(&import(text.as_bytes()).unwrap()), [5, 6]);
}

#[test]
fn without_periods_the_frequency_tells_the_weight() {
    let sample = "a 1/1 1.0: cpu-clock: \n\n";
    let header = "# event : name = cpu-clock, { sample_period, sample_freq } = 500, freq = 1,\n";
    let told = import(format!("{header}{sample}").as_bytes()).unwrap();
    assert_eq!(
        (weights(&told), told.runs[0].sample_hz),
        (vec![2_000_000], Some(500))
    );
    let untold = import(sample.as_bytes()).unwrap();
    assert_eq!(weights(&untold), [1_000_000]);
    let cpu = untold
        .families
        .iter()
        .find(|family| family.name == "cpu")
        .unwrap();
    assert!(
        cpu.reason
            .as_deref()
            .unwrap()
            .contains("each sample counts as 1 ms")
    );
    // With a fixed period the same field is no frequency.
    let period = "# event : name = cpu-clock, { sample_period, sample_freq } = 500,\n";
    let fixed = import(format!("{period}{sample}").as_bytes()).unwrap();
    assert_eq!(fixed.runs[0].sample_hz, None);
}

/// A sample stands for the time before it: of a text without execs the run begins where that of the first one does.
#[test]
fn the_run_begins_with_the_time_of_the_first_sample() {
    let samples = "a 1/1 10.003: 2000000 cpu-clock: \n\nb 2/2 10.004: 2500000 cpu-clock: \n\n";
    let begins = |records: &str| {
        let recording = import(format!("{records}{samples}").as_bytes()).unwrap();
        let forked = |process: usize| recording.processes[process].forked.0 / 1000;
        let run = recording.runs[0].started.0 / 1000;
        (run, forked(0), forked(1))
    };
    assert_eq!(begins(""), (10_001_000, 10_001_000, 10_001_500));
    // No process has a sample of the time before it.
    let exec = "a 1/1 10.0015: PERF_RECORD_COMM exec: a:1/1\n";
    let fork = "a 1/1 10.002: PERF_RECORD_FORK(2:2):(1:1)\n";
    let all = begins(&format!("{exec}{fork}"));
    assert_eq!(all, (10_001_500, 10_001_500, 10_002_000));
}

#[test]
fn a_deep_stack_is_marked_as_cut() {
    let frames =
        |n: usize| -> String { (0..n).map(|i| format!("\t{i:x} f{i} (/x.so)\n")).collect() };
    for (depth, truncated) in [(126, false), (127, true)] {
        let text = format!("a 1/1 1.0: 1 cpu-clock: \n{}\n", frames(depth));
        let recording = import(text.as_bytes()).unwrap();
        let cut: Vec<bool> = recording
            .stacks
            .iter()
            .map(|stack| stack.truncated)
            .collect();
        // The outermost frame is the first stack.
        assert_eq!((cut[0], cut[1..].contains(&true)), (truncated, false));
        // Those that were inlined are none that perf walked.
        let inlined = frames(3).replace("(/x.so)", "(inlined)");
        let text = format!("a 1/1 1.0: 1 cpu-clock: \n{inlined}{}\n", frames(depth));
        let recording = import(text.as_bytes()).unwrap();
        assert!(recording.frames.iter().any(|frame| frame.inlined));
        assert_eq!(recording.stacks.len(), depth + 3);
        assert_eq!(recording.stacks[0].truncated, truncated);
    }
}

#[test]
fn what_is_no_text_of_perf_is_refused_with_its_line() {
    let fails = |text: &[u8]| import(text).unwrap_err().to_string();
    let error = fails(b"node 1 1.0: 1 cpu-clock: \n\t10 f (/x.so)\nhello\n");
    assert!(error.contains("line 3: found \"hello\""), "{error}");
    assert!(error.contains("type: perf script -F"), "{error}");
    for event in ["-1 cpu-clock:", "1.5 cpu-clock:", "some words"] {
        let error = fails(format!("a 1 1.0: 1 cpu-clock: \n\na 1 1.1: {event} \n\n").as_bytes());
        assert!(error.contains("line 3: found \"a 1 1.1: "), "{error}");
        assert!(error.contains("the period, a whole number"), "{error}");
    }
    let error = fails(b"\n\n\t10 f (/x.so)\n");
    assert!(error.contains("line 3"), "{error}");
    assert!(error.contains("a sample before its frames"), "{error}");
    let error = fails(b"PERFILE2\0\0\0");
    assert!(error.contains("perf script"), "{error}");
    let error = fails(b"\xff\x1b[31m evil\n");
    assert!(
        error.contains("\\u{1b}"),
        "no control character reaches the terminal: {error}"
    );
    assert!(matches!(import(b""), Err(ImportError::Empty)));
    // A line's end in the header is none.
    let mut database = b"SQLite format 3\0\n".to_vec();
    database.resize(4_096, 0);
    assert!(matches!(import(&database), Err(ImportError::Database)));
    database[68..72].copy_from_slice(&nodeprof_profile::store::APPLICATION_ID.to_be_bytes());
    assert!(matches!(import(&database), Err(ImportError::Recording)));
    assert!(matches!(
        import(&database[..60]),
        Err(ImportError::Database)
    ));
    assert!(matches!(
        import(b"# arch : x86_64\n"),
        Err(ImportError::Empty)
    ));
    let mut long = vec![b'a'; 2 << 20];
    long.push(b'\n');
    assert!(matches!(
        import(&long),
        Err(ImportError::TooLong { number: 1 })
    ));
}

#[test]
fn a_text_that_was_cut_anywhere_has_all_but_its_last_sample() {
    for name in ["forms", "node-24-jitdump"] {
        let whole = data(name);
        let all = import(&whole).unwrap();
        let mut before = 0;
        for end in 0..whole.len() {
            match import(&whole[..end]) {
                Ok(recording) => {
                    recording.check_references().unwrap();
                    let n = recording.samples.len();
                    assert!(
                        n == before || n == before + 1 || n + 1 == before,
                        "{name} {end}: {n}, {before}"
                    );
                    before = n;
                    let cut = recording
                        .losses
                        .iter()
                        .any(|loss| loss.kind == "samples_cut");
                    assert_eq!(cut, whole[end - 1] != b'\n', "{name} {end}");
                }
                // The first sample's frames are being cut.
                Err(ImportError::Empty) => {
                    assert!(before <= 1, "{name} {end}");
                    before = 0;
                }
                Err(error) => panic!("{name} {end}: {error}"),
            }
        }
        assert!(before + 1 >= all.samples.len());
    }
}

/// A frame as perf prints it, and what it must become.
#[derive(Clone, Debug)]
struct Known {
    line: String,
    kind: FrameKind,
    function: String,
    tier: Option<Tier>,
}

/// What C++ and JavaScript names, and paths, can hold.
const NAME: &str = "[A-Za-z_$][A-Za-z0-9_$~<>]{0,8}( [a-z]{1,4}){0,2}";
const FOLDER: &str = "(/[a-z @()+.-]{0,6}[a-z]){1,3}";

fn frames() -> impl Strategy<Value = Known> {
    let address = any::<u32>();
    let offset = any::<u16>();
    prop_oneof![
        (address, NAME, offset).prop_map(|(address, name, offset)| Known {
            line: format!("ffffffff{address:08x} {name}+{offset:#x} ([kernel.kallsyms])"),
            kind: FrameKind::Kernel,
            function: name,
            tier: None,
        }),
        (address, NAME, FOLDER).prop_map(|(address, name, folder)| Known {
            line: format!("{address:x} {name}+0x1 ({folder}/bin/node)"),
            kind: FrameKind::Native,
            function: name,
            tier: None,
        }),
        (address, NAME, FOLDER).prop_map(|(address, name, folder)| Known {
            line: format!("{address:x} ns::{name}(int, char*)+0x1 ({folder}/a.node)"),
            kind: FrameKind::AddOn,
            function: format!("ns::{name}"),
            tier: None,
        }),
        (address, FOLDER).prop_map(|(address, folder)| Known {
            line: format!("{address:x} [unknown] ({folder}/libx.so.6)"),
            kind: FrameKind::Library,
            function: String::new(),
            tier: None,
        }),
        (address, NAME, FOLDER, 1..9999u32, 1..99u32, 0..3usize).prop_map(
            |(address, name, folder, line, column, tier)| {
                let (mark, tier) = [
                    ("~", Tier::Interpreted),
                    ("^", Tier::Baseline),
                    ("*", Tier::Optimized),
                ][tier];
                Known {
                    line: format!(
                        "{address:x} JS:{mark}{name} {folder}/a.js:{line}:{column}+0x3 (/tmp/perf-9.map)"
                    ),
                    kind: FrameKind::JavaScript,
                    function: name,
                    tier: Some(tier),
                }
            }
        ),
    ]
}

#[derive(Clone, Debug)]
struct KnownSample {
    comm: String,
    pid: u32,
    tid: u32,
    micros: u64,
    period: u64,
    frames: Vec<Known>,
}

fn samples() -> impl Strategy<Value = Vec<KnownSample>> {
    let sample = (
        "[A-Za-z:/-][A-Za-z0-9 .:/-]{0,13}",
        1..9u32,
        1..99u32,
        any::<u32>(),
        1..u64::from(u32::MAX),
        prop::collection::vec(frames(), 0..12),
    );
    let sample = sample.prop_map(|(comm, pid, tid, micros, period, frames)| KnownSample {
        comm,
        pid,
        tid,
        micros: micros.into(),
        period,
        frames,
    });
    prop::collection::vec(sample, 1..12)
}

fn printed(samples: &[KnownSample], processor: bool) -> String {
    let mut out = String::new();
    for s in samples {
        let processor = if processor { "[003] " } else { "" };
        let (seconds, micros) = (s.micros / 1_000_000, s.micros % 1_000_000);
        let _ = writeln!(
            out,
            "{} {}/{} {processor}{seconds}.{micros:06}: {:>10} cpu-clock:u: ",
            s.comm, s.pid, s.tid, s.period
        );
        for frame in &s.frames {
            let _ = writeln!(out, "\t{:>16}", frame.line);
        }
        out.push('\n');
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn what_perf_prints_is_what_is_recorded(mut samples in samples(), processor in any::<bool>()) {
        let recording = import(printed(&samples, processor).as_bytes()).unwrap();
        recording.check_references().unwrap();
        samples.sort_by_key(|s| s.micros);
        prop_assert_eq!(recording.samples.len(), samples.len());
        let mut pids: Vec<u32> = samples.iter().map(|s| s.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut found: Vec<u32> = recording.processes.iter().map(|p| p.pid).collect();
        found.sort_unstable();
        prop_assert_eq!(found, pids);
        for (sample, known) in recording.samples.iter().zip(&samples) {
            prop_assert_eq!(sample.at, Nanoseconds(known.micros * 1000));
            prop_assert_eq!(sample.weight, Nanoseconds(known.period));
            prop_assert_eq!(sample.thread.0, known.tid);
            prop_assert_eq!(recording.processes[sample.process.0 as usize].pid, known.pid);
            let frames: Vec<&Frame> = sample.stack.iter().flat_map(|id| recording.frames_of(*id)).collect();
            prop_assert_eq!(frames.len(), known.frames.len());
            for (frame, known) in frames.into_iter().zip(&known.frames) {
                prop_assert_eq!(text(&recording, frame.function), known.function.as_str(), "{}", known.line);
                prop_assert_eq!((frame.kind, frame.tier), (known.kind, known.tier), "{}", known.line);
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = import(&bytes);
    }

    #[test]
    fn a_damaged_text_gives_a_sound_recording_or_an_error(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        file in 0..4usize,
    ) {
        let name = ["forms", "node-20-default", "node-24-jitdump", "node-24-interpreted-frames"][file];
        let mut bytes = data(name);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(recording) = import(&bytes) {
            recording.check_references().unwrap();
            let frames = recording.samples.iter().filter_map(|sample| sample.stack);
            let depths: BTreeMap<u32, usize> = frames.map(|id| (id.0, recording.frames_of(id).count())).collect();
            prop_assert!(depths.values().all(|depth| *depth > 0));
        }
    }
}

/// Differences between lines would be taken for instants, and a recording for one of some milliseconds.
#[test]
fn times_between_samples_are_no_instants() {
    let text = |times: &[&str]| {
        let line = |time: &&str| format!("node 7/7 {time}: 1001001 cpu-clock:\n\t55 f (node)\n\n");
        times.iter().map(line).collect::<String>()
    };
    let differences = ["0.000000", "0.001003", "0.000002", "0.001001", "0.000990"];
    let error = import(text(&differences).as_bytes()).unwrap_err();
    assert!(error.to_string().contains("--deltatime"), "{error}");
    let since_the_first = ["0.000000", "0.001003", "0.002006", "0.003009"];
    let recording = import(text(&since_the_first).as_bytes()).unwrap();
    assert_eq!(recording.samples.len(), 4);
}

/// All threads were looked through for the name of each process: 57 s for so many.
#[test]
fn many_processes_are_imported_in_time() {
    const PROCESSES: u32 = 40_000;
    let mut text = String::new();
    for pid in 1..=PROCESSES {
        // A thread that is seen before the first one of its process.
        for tid in [pid + PROCESSES, pid] {
            let name = if tid == pid { "main" } else { "other" };
            let at = pid * 2 + u32::from(tid == pid);
            let _ = writeln!(
                text,
                "{name} {pid}/{tid} [000] {}.{:06}: 1000000 cpu-clock: \n\t55d0 f+0x1 (/usr/bin/x)\n",
                at / 1_000_000,
                at % 1_000_000
            );
        }
    }
    let begun = std::time::Instant::now();
    let recording = import(text.as_bytes()).unwrap();
    let took = begun.elapsed();
    assert_eq!(recording.processes.len(), PROCESSES as usize);
    for process in &recording.processes {
        assert_eq!(process.execs[0].path, b"main");
    }
    assert!(took.as_secs() < 15, "{took:?}");
}
