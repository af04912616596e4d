//! `nodeprof service`.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _},
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::bail;
use nodeprof_flamegraphs::text::{self, Style, render};
use nodeprof_profile::{
    Profile,
    diff::Diff,
    store::database::{COMMIT, Filter, Summary},
    wording::{self, printable_lines},
};
use nodeprofd::control::{Ask, Client, Find, Status};

use super::{
    diff::{Loaded, derived},
    hints::{self, quoted},
    report,
    source::{Runs, filter, of, tell_missing},
};
use crate::{
    args::{
        Color, Format,
        service::{self as args, ServiceCommand},
    },
    terminal,
};

/// Asks the service.
pub fn run(args: &args::Service, color: Color) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.socket);
    let json = args.format == Format::Json;
    let out = io::stdout();
    let style = Style {
        width: terminal::width(&out),
        color: terminal::colored(color, &out),
    };
    let text = match &args.command {
        ServiceCommand::Status => {
            let status = client.status()?;
            match json {
                true => serde_json::to_string_pretty(&status)? + "\n",
                false => status_text(&status),
            }
        }
        ServiceCommand::Runs(wanted) => {
            let found = client.find(find(wanted)?)?;
            let (more, unreadable) = (found.more, found.unreadable);
            let runs = tell_missing(found, Some(wanted.number));
            match json {
                true => {
                    let document = serde_json::json!({
                        "schema": 1, "runs": runs, "more": more, "unreadable": unreadable
                    });
                    serde_json::to_string_pretty(&document)? + "\n"
                }
                // A pipe has no columns.
                false => runs_text(&runs, out.is_terminal().then_some(style.width)),
            }
        }
        ServiceCommand::Show { run } => {
            let profile = Profile::from_recording(&client.fetch(&[*run])?);
            match json {
                true => report::json(&profile)?,
                // It can be read there, too: by who may, or as nodeprofd hands it over.
                false => hints::naming(&render(&profile, &style), &format!("--store {run}")),
            }
        }
        ServiceCommand::Diff { base, head } => {
            let groups = of(
                &Runs::Service(client),
                &[base, head],
                &Filter::default(),
                u64::MAX,
            )?;
            let loaded = Loaded::of_groups(groups, base.clone(), head.clone(), derived);
            let diff = Diff::new(&loaded.base_side(), &loaded.head_side());
            match json {
                true => serde_json::to_string_pretty(&diff)? + "\n",
                false => {
                    let head = format!("{} --store", quoted(head));
                    text::diff(&diff, &quoted(base), &head, &style)
                }
            }
        }
        ServiceCommand::Metrics(_) if json => anyhow::bail!(
            "found: --format json for metrics, which have a format of their own (OpenMetrics); needed: type: nodeprof service metrics"
        ),
        ServiceCommand::Metrics(metrics) => match metrics.listen {
            Some(address) => {
                super::metrics::serve(client, address, metrics.token_file.as_deref())?;
                return Ok(ExitCode::SUCCESS);
            }
            None => client.metrics()?,
        },
        ServiceCommand::Reload => done(
            &client,
            Ask::Reload,
            "the configuration was read again",
            json,
        )?,
        ServiceCommand::Pause => done(
            &client,
            Ask::Pause,
            "nothing is recorded until: nodeprof service resume",
            json,
        )?,
        ServiceCommand::Resume => done(&client, Ask::Resume, "starts are recorded", json)?,
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn done(client: &Client, ask: Ask, said: &str, json: bool) -> anyhow::Result<String> {
    client.order(ask)?;
    Ok(match json {
        true => "{ \"done\": true }\n".to_owned(),
        false => format!("{said}\n"),
    })
}

fn find(args: &args::Runs) -> anyhow::Result<Find> {
    let mut labels = Vec::new();
    let (mut command, mut package) = (args.command.clone(), args.package.clone());
    for text in &args.labels {
        let of = filter(text)?;
        if of.runs.is_some() {
            bail!(
                "found {text:?}; needed: KEY=VALUE; for one run, type: nodeprof service show {text}"
            );
        }
        labels.extend(of.labels);
        command = command.or(of.command);
        package = package.or(of.package);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(Find {
        labels,
        command,
        package,
        failed: args.failed,
        since_unix_ns: (args.since).map(|ago| now.saturating_sub(ago).as_nanos() as u64),
        user: args.user,
        most: Some(args.number),
        ..Find::default()
    })
}

/// `3 min`, since an instant.
fn ago(unix_ns: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_nanos(unix_ns);
    let seconds = SystemTime::now()
        .duration_since(then)
        .unwrap_or_default()
        .as_secs();
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5_999 => format!("{} min", seconds / 60),
        6_000..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn status_text(status: &Status) -> String {
    let mut text = String::new();
    let state = match status.state.as_str() {
        "paused" => "paused: nothing is recorded; to go on, type: nodeprof service resume",
        "full" => "stopped: the disk of the store is full; needed: 16 MB",
        _ => "recording",
    };
    let holding = match &status.not_holding_because {
        None => "each start is held until its probes exist".to_owned(),
        Some(why) => format!("starts cannot be held ({why}): beginnings may be missing"),
    };
    let megabytes = status.store_bytes as f64 / 1e6;
    let reads = match status.may_read.as_str() {
        "all" => "all runs",
        _ => "your own runs",
    };
    let administers = match status.may_administer {
        true => "; reload, pause, resume",
        false => "",
    };
    // Writing to a string does not fail.
    let _ = writeln!(text, "nodeprofd {}  {state}", status.version);
    let _ = writeln!(
        text,
        "  process   {}, for {}",
        status.pid,
        ago(status.started_unix_ns)
    );
    let _ = writeln!(
        text,
        "  starts    {} recorded, {} lost, {} now; {holding}",
        status.recorded, status.lost, status.running
    );
    let costs = format!(
        "{:.1} s of CPU time, {:.1} MB",
        status.cpu_ns as f64 / 1e9,
        status.memory_bytes as f64 / 1e6
    );
    let ceiling = match status.one_in {
        1 => String::new(),
        0 => "; above its ceiling: no start is recorded".to_owned(),
        n => format!("; above its ceiling: one start in {n} is recorded"),
    };
    let passed_over = match status.passed_over {
        0 => String::new(),
        n => wording::counted(n, "; # [start was|starts were] passed over for that"),
    };
    let _ = writeln!(text, "  costs     {costs}{ceiling}{passed_over}");
    if status.not_answering > 0 {
        let files = status.not_answering as u64;
        let silent = wording::counted(
            files,
            "# file[|s] that may be node, as [its file system does|their file systems do] not answer; needed: [one that does|ones that do]",
        );
        let _ = writeln!(text, "  missing   starts of {silent}");
    }
    for file in &status.not_answering_files {
        let _ = writeln!(text, "            {file}");
    }
    for (kind, &count) in &status.losses_by_kind {
        let _ = writeln!(text, "  missing   {kind}: {}", text::loss(kind, count));
    }
    let _ = writeln!(
        text,
        "  store     {}, {megabytes:.1} MB, {} to be written: {}",
        wording::counted(status.runs as u64, "# run[|s]"),
        status.queued,
        status.store.display()
    );
    if let Some(at) = &status.set_aside {
        let _ = writeln!(text, "  damaged   a store was set aside: {}", at.display());
    }
    let _ = writeln!(text, "  you may   read {reads}{administers}");
    printable_lines(&text).into_owned()
}

/// Labels that come first in a list.
const FIRST: [&str; 4] = [COMMIT, "job", "branch", "pipeline"];
/// Those that come last, behind the configuration's own.
const LAST: [&str; 4] = ["ci", "user", "unit", "container"];
/// Those that tell no run from its neighbours: the report of a run has them.
const OF_THE_MACHINE: [&str; 4] = ["kernel", "machine", "cgroup", "parent"];

/// Characters of a label's value there.
const LONGEST_VALUE: usize = 20;
/// Digits of a commit there, which can be typed as they are.
const COMMIT_DIGITS: usize = 12;
/// Characters of a command where nobody has columns; the JSON has all.
const LONGEST_COMMAND: usize = 160;

/// A text in so many columns; what is cut ends with an ellipsis.
fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => {
            text.chars()
                .take(most.saturating_sub(1))
                .collect::<String>()
                + "…"
        }
        false => text.to_owned(),
    }
}

/// The labels of a run that a list has, those that are asked for most first.
fn labels_of(run: &Summary) -> Vec<String> {
    let place = |key: &str| match FIRST.iter().position(|first| *first == key) {
        Some(at) => at,
        None => {
            FIRST.len()
                + LAST
                    .iter()
                    .position(|last| *last == key)
                    .map_or(0, |at| at + 1)
        }
    };
    let mut labels: Vec<(&String, &String)> = (run.labels.iter())
        .filter(|(key, _)| !OF_THE_MACHINE.contains(&key.as_str()))
        .collect();
    labels.sort_by_key(|(key, _)| place(key));
    let shown = |(key, value): (&String, &String)| match key == COMMIT
        && value.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        true => format!("{key}={}", &value[..value.len().min(COMMIT_DIGITS)]),
        false => format!("{key}={}", cut(value, LONGEST_VALUE)),
    };
    labels.into_iter().map(shown).collect()
}

/// How a run ended; nothing of what there is to expect.
pub fn outcome(run: &Summary) -> String {
    match (run.signal, run.exit_status, run.ended_by.as_str()) {
        (Some(signal), ..) => text::signal_name(signal),
        (None, Some(0), _) => String::new(),
        (None, Some(status), _) => format!("exit {status}"),
        // It went on without being recorded.
        (None, None, "loop-start") => "settled".to_owned(),
        (None, None, "duration") => "limit".to_owned(),
        // Nobody told of its end.
        (None, None, "exit") => "exit ?".to_owned(),
        (None, None, other) => other.to_owned(),
    }
}

/// A command and notes on it in so many columns: the command gives way first. Where nobody has columns all of the notes, and
/// [`LONGEST_COMMAND`].
fn beside(command: &str, notes: &str, width: Option<usize>) -> String {
    const LEAST_COMMAND: usize = 16;
    let gap = if notes.is_empty() { "" } else { "  " };
    let Some(width) = width else {
        return format!("{}{gap}{notes}", cut(command, LONGEST_COMMAND));
    };
    let beside_it = notes.chars().count() + gap.len();
    let command = cut(command, width.saturating_sub(beside_it).max(LEAST_COMMAND));
    cut(&format!("{command}{gap}{notes}"), width)
}

fn runs_text(runs: &[Summary], width: Option<usize>) -> String {
    if runs.is_empty() {
        return "No run that you may read fits.\n".to_owned();
    }
    let mut text = format!(
        "{:>8}  {:>8}  {:>8}  {:<9}  {:>9}  {:>7}  {:<9}  command\n",
        "run", "ago", "time", "ended", "crossings", "lookups", "node"
    );
    for run in runs {
        let mut notes = labels_of(run);
        notes.extend(run.incomplete.as_ref().map(|_| "incomplete".to_owned()));
        notes.extend(run.thinned.then(|| "thinned".to_owned()));
        let command: Vec<String> = run.command.iter().map(|word| quoted(word)).collect();
        // A command may hold anything, and so may a binary: nothing of it reaches the terminal as a command to it.
        let clean = |text: String| text.replace(char::is_control, "·");
        let (command, notes) = (clean(command.join(" ")), clean(notes.join(" ")));
        let version = run.node_version.as_deref().unwrap_or("–");
        let head = format!(
            "{:>8}  {:>8}  {:>5.0} ms  {:<9}  {:>9}  {:>7}  {:<9}  ",
            run.id,
            ago(run.started_unix_ns),
            run.time_ns() as f64 / 1e6,
            clean(outcome(run)),
            run.crossings,
            run.lookups,
            clean(version.to_owned()),
        );
        text.push_str(&head);
        text.push_str(&beside(
            &command,
            &notes,
            width.map(|width| width.saturating_sub(head.chars().count())),
        ));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_is_cut_says_so() {
        let run = |job: &str| runs_text(&[labelled(&[("job", job)])], None);
        assert!(run("0123456789abcdef0123").ends_with("job=0123456789abcdef0123\n"));
        assert!(run("0123456789abcdef01234").ends_with("job=0123456789abcdef012…\n"));
    }

    fn labelled(labels: &[(&str, &str)]) -> Summary {
        let text = r#"{"id": 1, "command": ["node"], "directory": "/", "started_unix_ns": 0, "duration_ns": 0, "ended_by": "exit", "mode": "count",
            "exit_status": 0, "thinned": false, "crossings": 0, "lookups": 0, "labels": {}}"#;
        let mut run: Summary = serde_json::from_str(text).expect("a run");
        let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        run.labels = labels.collect();
        run
    }

    #[test]
    fn all_labels_of_a_run_are_listed_and_its_commit_can_be_typed() {
        let run = labelled(&[
            ("branch", "main"),
            ("cgroup", "/system.slice/x.service"),
            ("ci", "github"),
            (COMMIT, "e5e5e5e500001111222233334444555566667777"),
            ("job", "test"),
            ("team", "core"),
        ]);
        let labels = "commit=e5e5e5e50000 job=test branch=main team=core ci=github";
        let text = runs_text(&[run], None);
        assert!(text.ends_with(&format!("  node  {labels}\n")), "{text}");
        // What is no digits is not what one types the beginning of.
        let other = runs_text(&[labelled(&[(COMMIT, "éééééééééééééé")])], None);
        assert!(other.ends_with("commit=éééééééééééééé\n"), "{other}");
    }

    #[test]
    fn a_list_says_which_runs_failed_and_which_go_on() {
        for (status, signal, ended_by, said) in [
            (Some(0), None, "exit", ""),
            (Some(1), None, "exit", "exit 1"),
            (None, Some(9), "exit", "SIGKILL"),
            (None, None, "loop-start", "settled"),
            (None, None, "duration", "limit"),
            (None, None, "interrupt", "interrupt"),
        ] {
            let mut run = labelled(&[]);
            (run.exit_status, run.signal, run.ended_by) = (status, signal, ended_by.into());
            let text = runs_text(&[run], None);
            let row = text.lines().nth(1).unwrap_or_default();
            assert!(row.contains(&format!(" ms  {said:<9}  ")), "{row}");
        }
    }

    #[test]
    fn losses_are_told_by_kind() {
        let by_kind = [("records", 7), ("abandoned_frames", 1)];
        let status = Status {
            losses_by_kind: by_kind.map(|(kind, n)| (kind.to_owned(), n)).into(),
            ..Status::default()
        };
        let text = status_text(&status);
        assert!(
            text.contains("\n  missing   records: 7 records were dropped"),
            "{text}"
        );
        assert!(
            text.contains("\n  missing   abandoned_frames: 1 call was left"),
            "{text}"
        );
        assert!(!status_text(&Status::default()).contains("missing"));
        let status = Status {
            set_aside: Some("/a\u{1b}[2J".into()),
            ..Status::default()
        };
        let text = status_text(&status);
        assert!(text.contains("was set aside: /a\\u{1b}[2J\n"), "{text:?}");
    }

    #[test]
    fn nothing_of_a_run_is_a_command_to_the_terminal() {
        let text = r#"{"id": 1, "command": ["node\u001b[2J"], "directory": "/", "started_unix_ns": 0, "duration_ns": 0, "ended_by": "exit",
            "mode": "count", "thinned": false, "crossings": 0, "lookups": 0, "labels": {"job": "\u009b2J"}, "node_version": "v20.20.2-\u001b[2J"}"#;
        let run: Summary = serde_json::from_str(text).expect("a run");
        let text = runs_text(&[run], None);
        assert!(text.contains("v20.20.2-·[2J"), "{text}");
        let is_command = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(is_command), "{text:?}");
    }

    #[test]
    fn a_pipe_gets_all_but_the_rest_of_a_long_command_and_a_terminal_its_columns() {
        let command = "node ".to_owned() + &"x".repeat(155);
        assert_eq!(
            beside(&command, "commit=a", None),
            format!("{command}  commit=a")
        );
        let command = command + "x";
        let cut = format!("node {}…  commit=a", "x".repeat(154));
        assert_eq!(beside(&command, "commit=a", None), cut);
        assert_eq!(beside("node", "", None), "node");
        let narrow = beside(&command, "commit=a", Some(40));
        assert_eq!(narrow.chars().count(), 40);
        assert!(narrow.ends_with("…  commit=a"), "{narrow}");
        // So little room that the notes give way as well.
        let least = beside(&command, "commit=a", Some(20));
        assert_eq!(least.chars().count(), 20);
        assert!(least.starts_with("node xxxxxxxxxx…"), "{least}");
        assert_eq!(beside("node a", "b", Some(40)), "node a  b");
    }
}
