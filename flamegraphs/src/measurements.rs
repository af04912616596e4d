//! Repeated runs: what each command took and did, and the files in which other programs expect that.

mod hyperfine;
mod node_csv;

use std::collections::BTreeMap;

use nodeprof_profile::{
    Recording,
    groups::{BASE, Group, HEAD, NAME},
    measured::{Measured, OF_COMPARISONS},
    recording::{Run, RunId},
};

pub use hyperfine::hyperfine_json;
pub use node_csv::node_csv;

/// A command with its parameters, and its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variant {
    /// Its name, or the command line with the program's file name, and the parameters.
    pub name: String,
    /// Whether the name was given to its runs.
    pub named: bool,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Labels of its runs but the name and those of comparisons.
    pub parameters: BTreeMap<String, String>,
    /// All its runs.
    pub runs: Group,
    /// Figures of its bare runs.
    pub measured: Measured,
}

/// Runs with the same command and labels belong together; base, head, then the others in order of their first run.
pub fn variants(recording: &Recording) -> Vec<Variant> {
    let mut variants: Vec<Variant> = Vec::new();
    for (id, run) in (0..).map(RunId).zip(&recording.runs) {
        let command: Vec<String> = run
            .command
            .iter()
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let parameters = parameters(run);
        let name = name(run, &command, &parameters);
        let same = variants
            .iter_mut()
            .find(|v| v.name == name && v.command == command && v.parameters == parameters);
        match same {
            Some(variant) => variant.runs.runs.push(id),
            None => variants.push(Variant {
                runs: Group {
                    name: name.clone(),
                    runs: vec![id],
                },
                named: run.label(NAME).is_some(),
                name,
                command,
                parameters,
                measured: Measured::default(),
            }),
        }
    }
    // Whichever ran first: people read from base to head.
    variants.sort_by_key(|variant| match variant.name.as_str() {
        BASE => 0,
        HEAD => 1,
        _ => 2,
    });
    for variant in &mut variants {
        variant.measured = Measured::of(recording, &variant.runs.bare(recording));
    }
    variants
}

/// Names of those that have no run without probes, and so no times in the files for other programs.
pub fn untimed(recording: &Recording) -> Vec<String> {
    let variants = variants(recording).into_iter();
    let untimed = variants.filter(|variant| variant.measured.wall.is_empty());
    untimed.map(|variant| variant.name).collect()
}

fn parameters(run: &Run) -> BTreeMap<String, String> {
    let own = |key: &str| key != NAME && !OF_COMPARISONS.contains(&key);
    let labels = run.labels.iter().filter(|(key, _)| own(key));
    labels.cloned().collect()
}

fn name(run: &Run, command: &[String], parameters: &BTreeMap<String, String>) -> String {
    if let Some(name) = run.label(NAME) {
        return name.to_owned();
    }
    let mut words: Vec<&str> = command.iter().map(String::as_str).collect();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or(program);
    }
    let line = command_line(&words);
    if parameters.is_empty() {
        return line;
    }
    let values: Vec<String> = parameters.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{line} ({})", values.join(", "))
}

/// Words as a shell would read them.
pub fn command_line<T: AsRef<str>>(words: &[T]) -> String {
    let quoted = |word: &str| {
        let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,~".contains(c);
        match word {
            "" => "''".to_owned(),
            word if word.chars().all(plain) => word.to_owned(),
            word => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    let words: Vec<String> = words.iter().map(|word| quoted(word.as_ref())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again() {
        let words = ["node", "-e", "console.log('a b')", "", "x=1"];
        assert_eq!(
            command_line(&words),
            r"node -e 'console.log('\''a b'\'')' '' x=1"
        );
    }

    #[test]
    fn runs_with_the_same_command_and_labels_belong_together() {
        let run = |command: &str, labels: &[(&str, &str)], mode: &str| Run {
            command: vec![command.into()],
            labels: labels
                .iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            mode: mode.into(),
            ..Run::default()
        };
        let recording = Recording {
            runs: vec![
                run("b", &[("name", "head"), ("pair", "0")], "bare"),
                run("a", &[("name", "base"), ("pair", "0")], "bare"),
                run("b", &[("name", "head"), ("pair", "1")], "bare"),
                run("a", &[("name", "base"), ("pair", "1")], "full"),
                run("c", &[("size", "2")], "bare"),
                run("c", &[("size", "3")], "bare"),
                run("/usr/bin/c", &[], "bare"),
            ],
            ..Recording::default()
        };
        let found: Vec<_> = variants(&recording)
            .into_iter()
            .map(|v| (v.name, v.runs.runs.len(), v.measured.wall.len()))
            .collect();
        let expected = [
            ("base", 2, 1),
            ("head", 2, 2),
            ("c (size=2)", 1, 1),
            ("c (size=3)", 1, 1),
            ("c", 1, 1),
        ];
        assert_eq!(found, expected.map(|(n, a, b)| (n.to_owned(), a, b)));
    }
}
