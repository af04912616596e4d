//! Runs without probes: what is measured of them, and what is said when they fail. No root needed.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;

use nodeprof_profile::{Recording, SaveOptions, groups::Group, measured::Measured};
use nodeprofd::{
    measure::{MeasureError, Runner, Settings, Subject},
    recorder::{CommandError, TraceError, TraceOptions},
};

fn runner(commands: &[&[&str]], prepare: Option<&str>) -> Result<Runner, TraceError> {
    let subject = |words: &&[&str]| Subject {
        command: words.iter().map(OsString::from).collect(),
        prepare: prepare.map(Into::into),
        labels: vec![("name".into(), words.last().unwrap().to_string())],
    };
    Runner::start(Settings {
        subjects: commands.iter().map(subject).collect(),
        show_output: false,
        trace: TraceOptions::new(Vec::new()),
    })
}

fn sh(script: &str) -> [&str; 3] {
    ["sh", "-c", script]
}

#[test]
fn time_and_memory_are_those_of_the_program_and_its_children() {
    // Half a second of work in a child that is waited for, and 60 MB in another.
    let work = "import time; e = time.process_time() + 0.5\nwhile time.process_time() < e: pass";
    let script = format!("python3 -c '{work}'; python3 -c 'x = bytearray(60_000_000)'; sleep 0.2");
    if std::process::Command::new("python3")
        .arg("-V")
        .output()
        .is_err()
    {
        println!("skipped: python3 is not installed");
        return;
    }
    let mut runner = runner(&[&sh(&script)], None).unwrap();
    let run = runner.bare(0, &[("pair".into(), "3".into())]).unwrap();
    assert!(run.status.success());
    let figures = Measured::of(&run.recording, &Group::all(&run.recording, ""));
    let (wall, rss) = (figures.wall[0], figures.max_rss[0]);
    let cpu = figures.user[0] + figures.system[0];
    assert!((0.7..5.0).contains(&wall), "{wall} s");
    assert!((0.5..1.5).contains(&cpu), "{cpu} s");
    assert!(figures.user[0] > 0.05 && cpu < wall);
    assert!((60e6..120e6).contains(&rss), "{rss} bytes");
    assert_eq!(run.recording.runs[0].label("pair"), Some("3"));
    assert_eq!(run.recording.runs[0].label("name"), Some(script.as_str()));
    assert!(run.recording.runs[0].is_bare());
    // No warm-up, so nobody stopped it to read this.
    assert!(figures.uss.is_empty());
}

#[test]
fn the_unique_set_size_is_read_at_the_exit_of_a_warm_up_run() {
    let allocate =
        |megabytes: u32| format!("import os; x = os.urandom({megabytes}_000_000); os._exit(0)");
    let (small, large) = (allocate(5), allocate(205));
    let commands: [&[&str]; 2] = [&["python3", "-c", &small], &["python3", "-c", &large]];
    let Ok(mut runner) = runner(&commands, None) else {
        println!("skipped: python3 is not installed");
        return;
    };
    let mut bytes = Vec::new();
    for subject in 0..2 {
        assert!(runner.warm_up(subject).unwrap().success());
        let run = runner.bare(subject, &[]).unwrap();
        let again = runner.bare(subject, &[]).unwrap();
        assert_eq!(again.recording.processes[0].uss_exit_bytes, None);
        bytes.push(run.recording.processes[0].uss_exit_bytes.unwrap() as f64);
    }
    let more = bytes[1] - bytes[0];
    // What is mapped of python's own files is in, too, and the kernel may have reclaimed some of that: up to 10 MB.
    assert!((195e6..205e6).contains(&more), "{bytes:?}");
}

#[test]
fn a_stopped_program_is_as_much_waited_for_as_one_that_gets_signals() {
    // A debugger that keeps signals to itself, or continues what was stopped, would change both.
    let script = "trap 'exit 7' USR1; kill -USR1 $$; exit 1";
    let stop = "(sleep 0.3; kill -CONT $$) & kill -STOP $$; wait; exit 5";
    let mut runner = runner(&[&sh(script), &sh(stop), &sh("kill -KILL $$")], None).unwrap();
    let began = std::time::Instant::now();
    assert_eq!(runner.warm_up(0).unwrap().code(), Some(7));
    assert_eq!(runner.bare(0, &[]).unwrap().status.code(), Some(7));
    assert_eq!(runner.warm_up(1).unwrap().code(), Some(5));
    assert_eq!(runner.bare(1, &[]).unwrap().status.code(), Some(5));
    assert!(began.elapsed().as_millis() >= 600);
    let killed = runner.bare(2, &[]).unwrap();
    assert_eq!(killed.recording.runs[0].exit_status, None);
    assert_eq!(killed.recording.runs[0].signal, Some(9));
}

#[test]
fn what_a_program_says_is_kept_for_the_case_of_a_failure() {
    let loud = "echo no >&2; echo nothing of this; exit 3";
    let mut runner = runner(&[&sh(loud), &sh("exit 4")], None).unwrap();
    assert_eq!(runner.bare(0, &[]).unwrap().status.code(), Some(3));
    assert_eq!(runner.said(), "no");
    assert_eq!(runner.bare(1, &[]).unwrap().status.code(), Some(4));
    assert_eq!(runner.said(), "");
}

#[test]
fn prepare_runs_before_each_run_and_its_failure_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let prepare = format!("echo prepared >> {}", log.display());
    let mut ok = runner(
        &[&sh(&format!("echo ran >> {}", log.display()))],
        Some(&prepare),
    )
    .unwrap();
    ok.warm_up(0).unwrap();
    ok.bare(0, &[]).unwrap();
    let lines = std::fs::read_to_string(&log).unwrap();
    assert_eq!(lines, "prepared\nran\nprepared\nran\n");

    let mut bad = runner(&[&sh("true")], Some("echo why >&2; exit 9")).unwrap();
    let error = bad.bare(0, &[]).unwrap_err();
    assert!(matches!(error, MeasureError::Prepare { .. }));
    let text = error.to_string();
    assert!(
        text.contains("exit status: 9") && text.ends_with("\nwhy"),
        "{text}"
    );
}

#[test]
fn a_program_that_is_not_there_is_named_before_anything_runs() {
    let error = runner(&[&sh("true"), &["no-such-program"]], None)
        .err()
        .unwrap();
    assert!(matches!(
        error,
        TraceError::Command(CommandError::NotFound { .. })
    ));
    // Executable, but not a program: found when it is run.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad");
    // By another process: what another test forks here would keep the file open for writing, and so busy.
    let written = std::process::Command::new("sh")
        .args([
            "-c",
            "echo '#!/no/such/interpreter' > \"$0\" && chmod 755 \"$0\"",
        ])
        .arg(&path)
        .status();
    assert!(written.unwrap().success());
    let mut runner = runner(&[&[path.to_str().unwrap()]], None).unwrap();
    let error = runner.bare(0, &[]).unwrap_err().to_string();
    assert!(
        error.contains("bad: cannot be executed (/no/such/interpreter, "),
        "{error}"
    );
    // And the process that starts programs is still there.
    assert!(runner.warm_up(0).is_err());
}

#[test]
fn many_runs_come_into_one_recording_that_can_be_saved() {
    let mut runner = runner(&[&sh("exit 0"), &sh("exit 1")], None).unwrap();
    let mut all = Recording::default();
    for subject in [0, 1, 1] {
        all.append(runner.bare(subject, &[]).unwrap().recording);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.nodeprof");
    all.save(&path, SaveOptions { overwrite: false }).unwrap();
    let loaded = Recording::load(&path).unwrap();
    let statuses: Vec<_> = loaded.runs.iter().map(|run| run.exit_status).collect();
    assert_eq!(statuses, [Some(0), Some(1), Some(1)]);
    let figures = Measured::of(&loaded, &Group::all(&loaded, ""));
    assert_eq!(figures.user.len(), 3);
    assert!(figures.wall.iter().all(|s| (1e-4..5.0).contains(s)));
}
