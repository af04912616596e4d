//! `nodeprof bench`.

use std::process::ExitCode;

use nodeprof_flamegraphs::text::measurements;
use nodeprof_profile::{Profile, groups::NAME, statistics::Summary};
use nodeprofd::measure::Subject;

use super::{
    GoOn, Label, Session, is_probed, label,
    parameters::{Values, combinations, substitute},
    style,
};
use crate::{
    args::{Color, measure::Bench},
    terminal,
};

/// Without -n, each command runs for about this long, seconds …
const LEAST_TIME: f64 = 3.0;
/// … and at least so many times (hyperfine's habits).
const LEAST_RUNS: usize = 10;

/// Runs a program many times and tells what it took.
pub fn run(args: Bench, color: Color) -> anyhow::Result<ExitCode> {
    if let Some(name) = args
        .name
        .as_ref()
        .filter(|n| n.is_empty() || n.contains(','))
    {
        anyhow::bail!(
            "found the name {name:?}; needed: a name without a comma; type for example: --name before"
        );
    }
    let variants = combinations(&args.parameters)?;
    check_use(&args, variants.first())?;
    let values = variants.iter().flatten();
    super::check_labels(&args.measuring.labels, values.map(|(key, _)| key.as_str()))?;
    let subjects = variants.iter().map(|values| subject(&args, values));
    let mut session = Session::start(&args.measuring, subjects.collect())?;
    let outcome = measure(&mut session, args.runs.map(|n| n as usize), variants.len());
    session.progress.done();
    let go_on = outcome.map_err(|error| session.keep_after(error))?;
    let printed = match args.measuring.quiet {
        true => Ok(()),
        false => {
            let profile = Profile::from_recording(&session.all);
            terminal::print(&measurements(&session.all, &profile, &style(color)))
        }
    };
    if !go_on {
        session.say_interrupted();
    }
    session.save()?;
    terminal::printed(printed)?;
    Ok(session.leave(go_on))
}

/// Without `{VAR}` all values would run the same.
fn check_use(args: &Bench, values: Option<&Values>) -> anyhow::Result<()> {
    let texts = || args.program.iter().chain(&args.measuring.prepare);
    for value in values.into_iter().flatten() {
        let name = &value.0;
        let alone = vec![(name.clone(), String::new())];
        if texts().all(|text| substitute(text, &alone) == *text) {
            anyhow::bail!(
                "found a list for {name}, and no {{{name}}} in the command or in --prepare; needed: its place; type for example: -- node app.js {{{name}}}"
            );
        }
    }
    Ok(())
}

/// The command with these values; they are labels of its runs, too.
fn subject(args: &Bench, values: &Values) -> Subject {
    let name = match &args.name {
        Some(name) => Some(
            substitute(name.as_ref(), values)
                .to_string_lossy()
                .into_owned(),
        ),
        // So that two values can be compared by name.
        None if values.is_empty() => None,
        None => Some(
            values
                .iter()
                .map(|v| v.1.as_str())
                .collect::<Vec<_>>()
                .join("/"),
        ),
    };
    let mut labels: Vec<Label> = name.map(|n| label(NAME, n)).into_iter().collect();
    labels.extend(values.iter().cloned());
    labels.extend(args.measuring.labels.iter().cloned());
    Subject {
        command: args
            .program
            .iter()
            .map(|word| substitute(word, values))
            .collect(),
        prepare: args
            .measuring
            .prepare
            .as_ref()
            .map(|p| substitute(p, values)),
        labels,
    }
}

fn measure(session: &mut Session, runs: Option<usize>, variants: usize) -> anyhow::Result<GoOn> {
    if !session.warm_up()? {
        return Ok(false);
    }
    let mut times = vec![Vec::new(); variants];
    let mut rounds = runs.unwrap_or(LEAST_RUNS);
    let mut round = 0;
    let mut probed = 0;
    while round < rounds {
        let wanted = session.measuring.probed_runs;
        // The number of rounds is another one after the first.
        for _ in 0..is_probed(round, rounds, wanted).min(wanted - probed) {
            session.progress.say("a run with probes");
            if !session.probed(&[])? {
                return Ok(false);
            }
            probed += 1;
        }
        for subject in session.order_as_shown() {
            let Some(time) = session.bare(subject, &[])? else {
                return Ok(false);
            };
            times[subject].push(time);
        }
        round += 1;
        if round == 1 && runs.is_none() {
            let all: f64 = times.iter().flatten().sum();
            let each = all / variants as f64;
            rounds = ((LEAST_TIME / each.max(1e-4)).ceil() as usize).max(LEAST_RUNS);
        }
        session.progress.at(round, rounds, &estimate(&times));
    }
    // The number of rounds was not known when the first were planned.
    for _ in probed..session.measuring.probed_runs {
        if !session.probed(&[])? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Median and spread of each so far.
fn estimate(times: &[Vec<f64>]) -> String {
    let each = times.iter().filter_map(|times| {
        let summary = Summary::of(times)?;
        let (median, spread) = (summary.median * 1e3, summary.standard_deviation * 1e3);
        Some(format!("{median:.1} ms ± {spread:.1}"))
    });
    each.collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn a_list_needs_its_place() {
        let check = |typed: &[&str]| {
            let typed = ["nodeprof", "bench"].iter().chain(typed);
            let Command::Bench(args) = Cli::parse_from(typed).command else {
                panic!("no bench");
            };
            check_use(&args, combinations(&args.parameters).unwrap().first())
        };
        check(&["--", "node", "a.js"]).unwrap();
        check(&["-L", "v", "1,2", "--", "node-{v}", "a.js"]).unwrap();
        check(&["-L", "v", "1,2", "--prepare", "use {v}", "--", "node"]).unwrap();
        let typed = ["-L", "a", "1,2", "-L", "v", "1,2", "--", "node", "{a}"];
        let error = check(&typed).unwrap_err().to_string();
        assert!(error.contains("no {v} in the command"), "{error}");
    }
}
