//! `nodeprof compare`.

use std::{ffi::OsString, path::Path, process::ExitCode};

use nodeprof_flamegraphs::text;
use nodeprof_profile::{
    Profile, Recording,
    diff::{Diff, Side, figures::Unit, words::signed},
    groups::{BASE, Group, HEAD, NAME, PAIR},
    measured::{CHANCE, EXACT_PAIRS, MARGIN, MOST_PAIRS},
    sequential::{Answer, FALSE_ALARMS, Sequential, Verdict},
    statistics::Summary,
};
use nodeprofd::measure::Subject;

use super::super::hints::quoted;
use super::{GoOn, Session, is_probed, label, style, words};
use crate::{
    args::{Color, measure::Compare},
    terminal,
};

/// How it is decided.
struct Rule {
    sequential: Sequential,
    margin: f64,
}

impl Rule {
    fn verdict(&self, pairs: &[(f64, f64)]) -> Option<Verdict> {
        self.sequential.verdict(pairs, self.margin)
    }

    fn is_answered(&self, pairs: &[(f64, f64)]) -> bool {
        let verdict = self.verdict(pairs);
        verdict.is_some_and(|v| matches!(v.answer, Answer::Differ | Answer::Alike))
    }
}

/// Runs two commands in turn and tells whether one is faster.
pub fn run(args: Compare, color: Color) -> anyhow::Result<ExitCode> {
    let rule = Rule {
        sequential: match args.pairs {
            Some(pairs) => Sequential::fixed(pairs as usize, FALSE_ALARMS),
            None => Sequential::new(args.max_pairs as usize, FALSE_ALARMS),
        },
        margin: args.margin / 100.0,
    };
    super::check_labels(&args.measuring.labels, [NAME])?;
    let [base, head] = commands(&args)?;
    let subjects = [(BASE, base), (HEAD, head)].map(|(name, command)| {
        let mut labels = vec![
            label(NAME, name),
            match args.pairs {
                Some(pairs) => label(EXACT_PAIRS, pairs),
                None => label(MOST_PAIRS, args.max_pairs),
            },
            label(CHANCE, FALSE_ALARMS),
            label(MARGIN, rule.margin),
        ];
        labels.extend(args.measuring.labels.iter().cloned());
        Subject {
            command,
            prepare: args.measuring.prepare.clone(),
            labels,
        }
    });
    let mut session = Session::start(&args.measuring, subjects.into())?;
    let mut pairs = Vec::new();
    let outcome = measure(&mut session, &rule, &mut pairs);
    session.progress.done();
    let go_on = outcome.map_err(|error| session.keep_after(error))?;
    let printed = match args.measuring.quiet {
        true => Ok(()),
        false => print(&session.all, session.target.path(), color),
    };
    if !go_on {
        session.say_interrupted();
    }
    session.save()?;
    terminal::printed(printed)?;
    Ok(session.leave(go_on))
}

/// The difference of both sides; `file`: where their recording will be.
fn print(recording: &Recording, file: &Path, color: Color) -> anyhow::Result<()> {
    // Interrupted before either side had run.
    let Ok((base, head)) = Group::sides(recording) else {
        return Ok(());
    };
    let profile = Profile::from_recording(recording);
    let side = |group| Side {
        recording,
        profile: &profile,
        group,
    };
    let diff = Diff::new(&side(base), &side(head));
    let typed = |name: &str| quoted(&format!("{}@{name}", file.display()));
    let style = style(color);
    let mut out = text::diff(&diff, &typed(BASE), &typed(HEAD), &style);
    let doubts = text::doubts(recording, &style);
    if !doubts.is_empty() {
        out.push('\n');
        out.push_str(&doubts);
    }
    terminal::print(&out)
}

/// Base and head.
fn commands(args: &Compare) -> anyhow::Result<[Vec<OsString>; 2]> {
    if let (Some(base), Some(head)) = (&args.base_node, &args.head_node) {
        return Ok([base, head].map(|node| {
            let mut command = vec![node.clone()];
            command.extend(args.program.iter().cloned());
            command
        }));
    }
    let given =
        |command: &Option<String>, option| words(command.as_deref().unwrap_or_default(), option);
    Ok([given(&args.base, "--base")?, given(&args.head, "--head")?])
}

fn measure(
    session: &mut Session,
    rule: &Rule,
    pairs: &mut Vec<(f64, f64)>,
) -> anyhow::Result<GoOn> {
    if !session.warm_up()? {
        return Ok(false);
    }
    let most = rule.sequential.most();
    // All runs with probes come before it can stop.
    let first_look = rule
        .sequential
        .looks()
        .first()
        .map_or(most, |look| look.pairs);
    while pairs.len() < most {
        let pair = label(PAIR, pairs.len());
        let pair = std::slice::from_ref(&pair);
        for _ in 0..is_probed(pairs.len(), first_look, session.measuring.probed_runs) {
            session.progress.say("runs with probes");
            if !session.probed(pair)? {
                return Ok(false);
            }
        }
        let mut times = [0.0; 2];
        for subject in session.order() {
            let Some(time) = session.bare(subject, pair)? else {
                return Ok(false);
            };
            times[subject] = time;
        }
        pairs.push((times[0], times[1]));
        session.progress.at(pairs.len(), most, &estimate(pairs));
        // Between them there is nothing new to be seen, and what all saw takes a while to reckon.
        let mut looks = rule.sequential.looks().iter();
        if looks.any(|look| look.pairs == pairs.len()) && rule.is_answered(pairs) {
            break;
        }
    }
    Ok(true)
}

/// The ratio so far. No interval: one is drawn only at the looks.
fn estimate(pairs: &[(f64, f64)]) -> String {
    let median = |values: Vec<f64>| Summary::of(&values).map_or(f64::NAN, |s| s.median);
    let base = median(pairs.iter().map(|p| p.0).collect());
    let ratio = median(pairs.iter().map(|p| p.1 / p.0).collect());
    format!(
        "base {:.1} ms, head {}",
        base * 1e3,
        signed((ratio - 1.0) * 100.0, Unit::Percent)
    )
}
