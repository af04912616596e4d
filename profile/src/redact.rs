//! Secrets that must not be kept: tokens, passwords, credentials in URLs, and the names of home folders.
//!
//! What is taken out is replaced by `[redacted]`; the rest of a text stays, so that a path is still a path. Rules look at one
//! argument, path or label at a time; an option whose value is the next argument (`--token X`) is known, too.

use std::borrow::Cow;

use regex::bytes::{Regex, RegexSet};

use crate::Recording;

/// What stands for a secret.
pub const REDACTED: &str = "[redacted]";

/// Rules of redaction.
#[derive(Clone, Debug)]
pub struct Redaction {
    /// All patterns at once: most texts fit none.
    any: RegexSet,
    rules: Vec<Rule>,
    /// An option whose value is the next argument.
    option: Regex,
}

#[derive(Clone, Debug)]
struct Rule {
    pattern: Regex,
    replacement: &'static str,
}

/// A pattern of the user that is no regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRule {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub why: String,
}

/// Words in the name of an option, a variable or a parameter whose value is a secret.
macro_rules! secret_word {
    () => {
        "(?:token|secret|passwd|password|passphrase|pwd|(?:api|access|private|secret|encryption|signing|master|account)[-_]?key|auth|credentials?|signature|sig|session[-_]?id|cookie)"
    };
}

/// Pattern and what it becomes. The first group, where there is one, stays.
const BUILT_IN: &[(&str, &str)] = &[
    // scheme://user:password@host, also without a password: many services take a token as the user.
    (
        // Up to the last @ before the host: a password may have one, too.
        r"(?i)([a-z][a-z0-9+.-]*://)[^/\s]+@",
        "${1}[redacted]@",
    ),
    // pass=X, SMTP_PASS=X, but neither bypass=X nor passed: 3.
    (
        r#"(?i)((?:^|[^a-z0-9])(?:[a-z0-9]+[_.-])*pass["']?\s*[=:]\s*["']?)[^\s&"';,#\[/][^\s&"';,#]*"#,
        "${1}[redacted]",
    ),
    // --token=X, API_KEY=X, ?access_token=X, password: X. Not the path in `secret-sauce/index.js`: a name ends before = or :.
    (
        concat!(
            r#"(?i)((?:^|[^a-z0-9])[a-z0-9_.-]*"#,
            secret_word!(),
            r#"[a-z0-9_-]{0,12}["']?\s*[=:]\s*["']?(?:(?:bearer|basic)\s+)?)[^\s&"';,#\[/][^\s&"';,#]*"#
        ),
        "${1}[redacted]",
    ),
    // Authorization: SCHEME X, Cookie: a=b; c=d: all that follows is secret, whatever the scheme. After the rule above, which leaves what follows its first word.
    (
        r#"(?i)(\b(?:authorization|cookie)["']?\s*:\s*["']?(?:(?:bearer|basic)\s+)?)[^"'\r\n]+"#,
        "${1}[redacted]",
    ),
    // Bearer X
    (
        r"(?i)\b((?:bearer|basic)\s+)[a-z0-9+/_.~=-]{8,}",
        "${1}[redacted]",
    ),
    // Tokens that are known by their form. GitHub, GitLab, npm, PyPI, AWS, Slack, Stripe, Google, OpenAI and its like, SendGrid, JWT.
    (
        r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
        REDACTED,
    ),
    (
        r"\bgl(?:pat|ptt|dt|rt|soat|cbt)-[A-Za-z0-9_-]{16,}",
        REDACTED,
    ),
    (r"\bnpm_[A-Za-z0-9]{30,}", REDACTED),
    (r"\bpypi-[A-Za-z0-9_-]{30,}", REDACTED),
    (r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", REDACTED),
    (r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}", REDACTED),
    (r"\b[rsp]k_(?:live|test)_[A-Za-z0-9]{10,}", REDACTED),
    (r"\bAIza[0-9A-Za-z_-]{35,}", REDACTED),
    (r"\bsk-[A-Za-z0-9_-]{20,}", REDACTED),
    (r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", REDACTED),
    (
        r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
        REDACTED,
    ),
    (
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
        REDACTED,
    ),
];

/// The name of a user in the path of a home folder.
const HOME: (&str, &str) = (
    r"((?:^|[^A-Za-z0-9_.-])/(?:home|Users)/)[^/\s:]+",
    "${1}[redacted]",
);

impl Redaction {
    /// The built-in rules, further patterns whose every match is taken out, and whether to take out the names of home folders.
    ///
    /// # Errors
    /// [`BadRule`]: a pattern is no regular expression.
    pub fn new<'a>(
        patterns: impl IntoIterator<Item = &'a str>,
        home_folders: bool,
    ) -> Result<Redaction, BadRule> {
        let own = patterns.into_iter().map(|pattern| (pattern, REDACTED));
        let home = home_folders.then_some(HOME);
        let all: Vec<(&str, &'static str)> =
            BUILT_IN.iter().copied().chain(home).chain(own).collect();
        let rules: Result<Vec<Rule>, BadRule> = all
            .iter()
            .map(|&(pattern, replacement)| {
                let bad = |error: regex::Error| BadRule {
                    pattern: pattern.to_owned(),
                    why: error.to_string(),
                };
                let text = pattern;
                let pattern = Regex::new(text).map_err(bad)?;
                if pattern.is_match(b"") {
                    return Err(BadRule {
                        pattern: text.to_owned(),
                        why: "it fits the empty text, so every place of each text; needed: a pattern of at least one character".into(),
                    });
                }
                Ok(Rule {
                    pattern,
                    replacement,
                })
            })
            .collect();
        let rules = rules?;
        let bad = |error: regex::Error| BadRule {
            pattern: String::new(),
            why: error.to_string(),
        };
        Ok(Redaction {
            any: RegexSet::new(all.iter().map(|(pattern, _)| pattern)).map_err(bad)?,
            rules,
            option: Regex::new(concat!(
                r"(?i)^(?:--?|//)(?:[a-z0-9_.:/-]*",
                secret_word!(),
                r"(?:[_-]?(?:key|value|token|string))?|(?:[a-z0-9]+[_.-])*pass|authorization)$"
            ))
            .map_err(bad)?,
        })
    }

    /// A text without its secrets.
    pub fn text<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let mut clean = Cow::Borrowed(text);
        for index in &self.any.matches(text) {
            let rule = &self.rules[index];
            if let Cow::Owned(replaced) = rule
                .pattern
                .replace_all(&clean, rule.replacement.as_bytes())
            {
                clean = Cow::Owned(replaced);
            }
        }
        clean
    }

    /// Words for a log, without the secrets of what they name, and in one line whatever that is called.
    pub fn words(&self, words: &str) -> String {
        let clean = self.text(words.as_bytes());
        String::from_utf8_lossy(&clean).replace(char::is_control, "·")
    }

    /// Takes the secrets out of a command line.
    pub fn arguments(&self, arguments: &mut [Vec<u8>]) {
        let mut hidden = false;
        for argument in arguments {
            let is_option = self.option.is_match(argument);
            if hidden && !argument.starts_with(b"-") {
                *argument = REDACTED.into();
            } else {
                self.clean(argument);
            }
            hidden = is_option;
        }
    }

    fn clean(&self, text: &mut Vec<u8>) {
        if let Cow::Owned(clean) = self.text(text) {
            *text = clean;
        }
    }

    /// Takes the secrets out of a recording: arguments, paths, labels.
    pub fn apply(&self, recording: &mut Recording) {
        for run in &mut recording.runs {
            self.arguments(&mut run.command);
            self.clean(&mut run.directory);
            for (_, value) in &mut run.labels {
                if let Cow::Owned(clean) = self.text(value.as_bytes()) {
                    *value = String::from_utf8_lossy(&clean).into_owned();
                }
            }
        }
        for exec in recording.processes.iter_mut().flat_map(|p| &mut p.execs) {
            self.clean(&mut exec.path);
            self.arguments(&mut exec.arguments);
        }
        for binary in &mut recording.binaries {
            self.clean(&mut binary.path);
        }
        // Two that have become the same stay two: ids point at each.
        for name in &mut recording.names {
            self.clean(name);
        }
    }
}

impl Default for Redaction {
    /// The built-in rules and home folders.
    #[allow(
        clippy::expect_used,
        reason = "the built-in patterns are valid; a test says so"
    )]
    fn default() -> Redaction {
        Redaction::new([], true).expect("the built-in patterns")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        String::from_utf8(Redaction::default().text(text.as_bytes()).into_owned()).unwrap()
    }

    fn arguments(line: &str) -> String {
        let argument = |text: &str| text.replace('·', " ").into_bytes();
        let mut arguments: Vec<Vec<u8>> = line.split(' ').map(argument).collect();
        Redaction::default().arguments(&mut arguments);
        String::from_utf8(arguments.join(&b' ')).unwrap()
    }

    /// A secret is what stands between ‹ and ›; it must be gone, and all around it must stay. `·` is a space inside an argument.
    #[test]
    fn no_secret_of_the_corpus_is_kept_and_nothing_else_is_lost() {
        for line in include_str!("../tests/data/secrets.txt").lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let secret = line.replace(['‹', '›'], "");
            let mut expected = String::new();
            let mut rest = line;
            while let Some((before, after)) = rest.split_once('‹') {
                let (_, behind) = after.split_once('›').unwrap();
                expected += before;
                expected += REDACTED;
                rest = behind;
            }
            expected += rest;
            assert_eq!(arguments(&secret), expected.replace('·', " "), "{line}");
        }
    }

    #[test]
    fn words_for_a_log_have_one_line_and_no_secrets() {
        let redaction = Redaction::default();
        assert_eq!(
            redaction.words("/home/ada/token=abcdef/x\ny\u{1b}[2J: no node"),
            "/home/[redacted]/token=[redacted]·y·[2J: no node"
        );
    }

    #[test]
    fn home_folders_lose_their_owner_and_own_patterns_are_taken_out() {
        assert_eq!(
            text("/home/ada/app/index.js"),
            "/home/[redacted]/app/index.js"
        );
        assert_eq!(
            text("--require=/Users/ada/x.js"),
            "--require=/Users/[redacted]/x.js"
        );
        assert_eq!(text("/srv/home/ada/x.js"), "/srv/home/ada/x.js");
        let own = Redaction::new(["ACME-[0-9]+"], false).unwrap();
        assert_eq!(
            own.text(b"/home/ada/ACME-12/x").as_ref(),
            b"/home/ada/[redacted]/x"
        );
        assert_eq!(Redaction::new(["("], true).unwrap_err().pattern, "(");
    }

    #[test]
    fn a_recording_is_clean_everywhere() {
        use crate::recording::{Binary, Exec, Process, Run};
        let secret = b"https://ada:hunter2@host/".to_vec();
        let mut recording = Recording {
            runs: vec![Run {
                command: vec![
                    b"node".to_vec(),
                    b"--password".to_vec(),
                    b"hunter2".to_vec(),
                    secret.clone(),
                ],
                directory: b"/x?token=hunter2".to_vec(),
                labels: vec![("url".into(), "https://ada:hunter2@host/".into())],
                ..Run::default()
            }],
            processes: vec![Process {
                execs: vec![Exec {
                    path: b"/bin/node?password=hunter2".to_vec(),
                    arguments: vec![b"node".to_vec(), secret.clone()],
                    ..Exec::default()
                }],
                ..Process::default()
            }],
            binaries: vec![Binary {
                path: b"/x/password=hunter2".to_vec(),
                ..Binary::default()
            }],
            names: vec![secret],
            ..Recording::default()
        };
        Redaction::default().apply(&mut recording);
        assert!(!format!("{recording:?}").contains("hunter2"));
        let all: Vec<u8> = recording.names.concat();
        assert_eq!(all, b"https://[redacted]@host/");
    }
}
