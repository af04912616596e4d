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
    store::database::{Filter, Summary},
    wording,
};
use nodeprofd::control::{Ask, Client, Find, Status};

use super::{
    diff::{Loaded, derived, quoted},
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
            let runs = tell_missing(found, None);
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
                false => render(&profile, &style),
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
    text
}

/// Labels that a list has room for.
const SHOWN: [&str; 4] = ["commit", "branch", "job", "pipeline"];

/// Characters of a label's value there.
const LONGEST_VALUE: usize = 20;

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

/// A command and notes on it in so many columns: the command gives way first. All of both where nobody has columns.
fn beside(command: &str, notes: &str, width: Option<usize>) -> String {
    const LEAST_COMMAND: usize = 16;
    let gap = if notes.is_empty() { "" } else { "  " };
    let Some(width) = width else {
        return format!("{command}{gap}{notes}");
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
        "{:>8}  {:>8}  {:>8}  {:>9}  {:>7}  {:<9}  command\n",
        "run", "ago", "time", "crossings", "lookups", "node"
    );
    for run in runs {
        let mut notes: Vec<String> = SHOWN
            .iter()
            .filter_map(|key| {
                Some(format!(
                    "{key}={}",
                    cut(run.labels.get(*key)?, LONGEST_VALUE)
                ))
            })
            .collect();
        notes.extend(run.incomplete.as_ref().map(|_| "incomplete".to_owned()));
        notes.extend(run.thinned.then(|| "thinned".to_owned()));
        let command: Vec<String> = run.command.iter().map(|word| quoted(word)).collect();
        // A command may hold anything, and so may a binary: nothing of it reaches the terminal as a command to it.
        let clean = |text: String| text.replace(char::is_control, "·");
        let (command, notes) = (clean(command.join(" ")), clean(notes.join(" ")));
        let version = run.node_version.as_deref().unwrap_or("–");
        let head = format!(
            "{:>8}  {:>8}  {:>5.0} ms  {:>9}  {:>7}  {:<9}  ",
            run.id,
            ago(run.started_unix_ns),
            run.time_ns() as f64 / 1e6,
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
        let run = |commit: &str| {
            let text = format!(
                r#"{{"id": 1, "command": ["node"], "directory": "/", "started_unix_ns": 0, "duration_ns": 0, "ended_by": "exit", "mode": "count",
                "thinned": false, "crossings": 0, "lookups": 0, "labels": {{"commit": "{commit}"}}}}"#
            );
            let run: Summary = serde_json::from_str(&text).expect("a run");
            runs_text(&[run], None)
        };
        assert!(run("0123456789abcdef0123").ends_with("commit=0123456789abcdef0123\n"));
        assert!(run("0123456789abcdef01234").ends_with("commit=0123456789abcdef012…\n"));
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
    fn a_pipe_gets_the_whole_command_and_a_terminal_its_columns() {
        let command = "node ".to_owned() + &"x".repeat(200);
        assert_eq!(
            beside(&command, "commit=a", None),
            format!("{command}  commit=a")
        );
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
