//! Secrets that must not be kept: tokens, passwords, credentials in URLs, and the names of home folders.
//!
//! What is taken out is replaced by `[redacted]`; the rest of a text stays, so that a path is still a path. A secret is known by its form,
//! or by the name that it has: `NAME=value` as a whole argument is one to its end; inside a text it ends where the next thing begins. In command
//! lines an option whose value is the next argument (`--token X`) is known, too. Of programs (`node -e`) only strings are looked at.
//!
//! To take the secrets out of a text that has none any more changes nothing.

use std::borrow::Cow;
use std::ops::Range;

use regex::bytes::{Captures, Regex, RegexSet};

use crate::Recording;

mod arguments;
mod assignments;
mod names;
mod options;
mod strings;
mod urls;
mod words;

use arguments::{Line, Role};
use assignments::Kind;

/// What stands for a secret.
pub const REDACTED: &str = "[redacted]";

/// Rules of redaction.
#[derive(Clone, Debug)]
pub struct Redaction {
    /// All patterns at once: most texts fit none.
    any: RegexSet,
    rules: Vec<Rule>,
    /// So many rules, the last ones, are the user's own.
    own: usize,
    /// A name and what stands between it and its value.
    name: Regex,
    /// The beginning of an address.
    scheme: Regex,
}

#[derive(Clone, Debug)]
struct Rule {
    pattern: Regex,
    action: Action,
}

/// What becomes of a text that a pattern fits.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// Each match becomes this. The first group, where there is one, stays.
    Replace(&'static str),
    /// What follows the first group is taken out of each match, if it is not made of words.
    NoWords,
    /// Credentials in addresses are looked for.
    Credentials,
    /// Names with values are looked for.
    Assignments,
    /// Options whose value is the next word are looked for.
    Options,
    /// Passwords that only the program tells of are looked for.
    Logins,
}

/// A pattern of the user that is no regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRule {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub why: String,
}

/// The beginning of an address, also of one that is a parameter of another.
const SCHEME: &str = r"(?i-u)[a-z][a-z0-9+.-]*(?::|%3A)(?://|%2F%2F)";

/// Before a token of a known form: no letter nor digit, but those of an escape in an address.
macro_rules! token {
    ($form:literal) => {
        (
            concat!("(?-u)(^|[^A-Za-z0-9]|%[0-9A-Fa-f]{2})(?:", $form, ")"),
            Action::Replace(REST),
        )
    };
}

/// The same, of a form that words joined by dashes have, too: `sk-a-package-of-many-words`.
macro_rules! token_of_no_words {
    ($form:literal) => {
        (
            concat!("(?-u)(^|[^A-Za-z0-9]|%[0-9A-Fa-f]{2})(?:", $form, ")"),
            Action::NoWords,
        )
    };
}

/// What a built-in pattern leaves of its match: its first group.
const REST: &str = "${1}[redacted]";

/// Pattern and what is done where it fits, in this order: what has a form of its own goes before a name can cut it.
const BUILT_IN: &[(&str, Action)] = &[
    (
        r"(?-u)-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|$)",
        Action::Replace(REDACTED),
    ),
    // GitHub, GitLab, npm, PyPI, AWS, Slack, Stripe, Google, OpenAI and its like, SendGrid, JWT.
    token!("gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"),
    token!("gl(?:pat|ptt|dt|rt|soat|oas|cbt|ft|imt|agent|ffct)-[A-Za-z0-9_-]{16,}"),
    token!("npm_[A-Za-z0-9]{30,}"),
    token!("pypi-[A-Za-z0-9_-]{30,}"),
    token!(r"(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    token!("(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,}"),
    token!("[rsp]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{16,}"),
    token!("AIza[0-9A-Za-z_-]{35,}|GOCSPX-[A-Za-z0-9_-]{16,}|ya29\\.[A-Za-z0-9_-]{16,}"),
    token_of_no_words!("sk-[A-Za-z0-9_-]{20,}"),
    token!("gsk_[A-Za-z0-9]{30,}|r8_[A-Za-z0-9]{30,}|xai-[A-Za-z0-9]{30,}|pplx-[A-Za-z0-9]{30,}"),
    token!(r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    token!(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    // Hugging Face, Docker, Vault, Shopify, DigitalOcean, Atlassian, Linear.
    token!("hf_[A-Za-z0-9]{20,}|dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,}"),
    token!(r"hv[bs]\.[A-Za-z0-9_-]{16,}"),
    token!("shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{16,}|do[opr]_v1_[A-Fa-f0-9]{16,}"),
    token!("AT(?:ATT|CTT|BB)[A-Za-z0-9_=-]{16,}|lin_api_[A-Za-z0-9]{16,}"),
    // Netlify, Sentry, Postman, Brevo, age, Databricks, Grafana, New Relic, Pulumi, Terraform, Tailscale, SonarQube, CircleCI, Buildkite, RubyGems.
    token!(
        "nf[pc]_[A-Za-z0-9]{24,}|sntry[su]_[A-Za-z0-9+/=_-]{24,}|PMAK-[a-f0-9]{16,}-[a-f0-9]{16,}"
    ),
    token!("x(?:key|smtp)sib-[a-f0-9]{32,}(?:-[A-Za-z0-9]+)?|AGE-SECRET-KEY-1[0-9A-Z]{24,}"),
    token!("dapi[a-f0-9]{24,}(?:-[0-9])?|gl(?:sa|c)_[A-Za-z0-9+/=_]{24,}|NRAK-[A-Z0-9]{20,}"),
    token!(
        r"pul-[a-f0-9]{32,}|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{40,}|tskey-[a-z]+-[A-Za-z0-9-]{16,}"
    ),
    token!(
        "sq[pua]_[a-f0-9]{32,}|CCIPAT_[A-Za-z0-9_]{20,}|bkua_[a-f0-9]{32,}|rubygems_[a-f0-9]{32,}"
    ),
    // Figma, Notion, Supabase, Doppler, PlanetScale, Contentful, Square; bots of Telegram.
    token!(
        "figd_[A-Za-z0-9_-]{24,}|ntn_[A-Za-z0-9]{30,}|sbp_[a-f0-9]{32,}|sb_secret_[A-Za-z0-9_-]{20,}"
    ),
    token!(
        r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{30,}|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{20,}"
    ),
    token!("CFPAT-[A-Za-z0-9_-]{30,}|sq0[a-z]{3}-[A-Za-z0-9_-]{20,}"),
    (
        r"(?-u)((?:^|[^A-Za-z0-9]|\bbot)[0-9]{8,10}:)AA[A-Za-z0-9_-]{32,34}\b",
        Action::Replace(REST),
    ),
    // Addresses that let who knows them write: Slack, Discord, Teams, Zapier.
    (
        r"(hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/)[A-Za-z0-9/_-]+",
        Action::Replace("${1}[redacted]"),
    ),
    (
        r"(discord(?:app)?\.com/api/webhooks/[0-9]+/)[A-Za-z0-9_-]+",
        Action::Replace("${1}[redacted]"),
    ),
    (
        r"(webhook\.office\.com/webhookb2/|hooks\.zapier\.com/hooks/catch/)[A-Za-z0-9@/_-]+",
        Action::Replace("${1}[redacted]"),
    ),
    (r"(?i-u)(?://|%2F%2F)[^\s]*(?:@|%40)", Action::Credentials),
    (assignments::ANY_NAME, Action::Assignments),
    (options::OPTION, Action::Options),
    (arguments::LOGIN, Action::Logins),
    // Authorization: Bearer X
    // Not `basic authentication`.
    (
        r"(?i)\b((?:bearer|basic)\s+)[a-z0-9+/_.~=-]{8,}",
        Action::NoWords,
    ),
];

/// The name of a user in the path of a home folder, which may follow an option at once (`-I/home/ada`) or stand in quotes (`'/home/'+user` has none).
const HOME: (&str, Action) = (
    r#"(?-u)((?:^|[^A-Za-z0-9_.-]|(?:^|\s)-[A-Za-z]+)(?:/var|/export)?/(?:home|Users)/[\\"'`]*)[^/\s:\\"'`)\]},;+][^/\s:\\"'`]*"#,
    Action::Replace("${1}[redacted]"),
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
        let patterns = patterns.into_iter();
        let own: Vec<_> = patterns
            .map(|pattern| (pattern, Action::Replace(REDACTED)))
            .collect();
        let count = own.len();
        let home = home_folders.then_some(HOME);
        let all: Vec<(&str, Action)> = BUILT_IN.iter().copied().chain(home).chain(own).collect();
        let rules: Result<Vec<Rule>, BadRule> = all
            .iter()
            .map(|&(pattern, action)| {
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
                Ok(Rule { pattern, action })
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
            own: count,
            name: Regex::new(assignments::NAME).map_err(bad)?,
            scheme: Regex::new(SCHEME).map_err(bad)?,
        })
    }

    /// A text without its secrets.
    pub fn text<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        self.of_kind(text, Kind::Text)
    }

    fn of_kind<'t>(&self, text: &'t [u8], kind: Kind) -> Cow<'t, [u8]> {
        let mut fits = self.any.matches(text);
        let mut clean = Cow::Borrowed(text);
        // What the user's own patterns are meant for is the text as it is, not what the other rules leave of it, nor the other way round.
        if fits
            .iter()
            .any(|index| index >= self.rules.len() - self.own)
        {
            let places = self.rules.iter().enumerate();
            let places = places.filter(|(index, _)| fits.matched(*index));
            let places = places.flat_map(|(index, rule)| self.places(index, rule, text, kind));
            clean = Cow::Owned(without(text, &merged(places.collect())));
            fits = self.any.matches(&clean);
        }
        for (index, rule) in self.rules.iter().enumerate() {
            // Where something was taken out, a rule may fit that did not before.
            if !fits.matched(index) && matches!(clean, Cow::Borrowed(_)) {
                continue;
            }
            let places = self.places(index, rule, &clean, kind);
            if !places.is_empty() {
                clean = Cow::Owned(without(&clean, &places));
            }
        }
        clean
    }

    /// Where a rule finds secrets in a text, in order.
    fn places(&self, index: usize, rule: &Rule, text: &[u8], kind: Kind) -> Vec<Range<usize>> {
        match rule.action {
            // What stands for a secret is none, whatever the pattern.
            Action::Replace(_) if index >= self.rules.len() - self.own => {
                let places = rule.pattern.find_iter(text).map(|found| found.range());
                places.filter(|place| !is_redacted(text, place)).collect()
            }
            Action::Replace(_) | Action::NoWords => {
                let of_match = |groups: Captures<'_>| {
                    let all = groups.get(0)?;
                    let rest = groups
                        .get(1)
                        .filter(|_| !matches!(rule.action, Action::Replace(REDACTED)));
                    Some(rest.map_or(all.start(), |rest| rest.end())..all.end())
                };
                let is_secret = |place: &Range<usize>| {
                    !matches!(rule.action, Action::NoWords) || !is_words(&text[place.clone()])
                };
                rule.pattern
                    .captures_iter(text)
                    .filter_map(of_match)
                    .filter(is_secret)
                    .collect()
            }
            Action::Credentials => urls::credentials(&self.scheme, text, kind),
            Action::Assignments => assignments::secrets(&self.name, text, kind),
            Action::Logins => arguments::logins(text, kind),
            Action::Options => options::secrets(&rule.pattern, text, kind),
        }
    }

    /// Words for a log, without the secrets of what they name, and in one line whatever that is called.
    pub fn words(&self, words: &str) -> String {
        let clean = self.text(words.as_bytes());
        String::from_utf8_lossy(&clean).replace(char::is_control, "·")
    }

    /// Takes the secrets out of a command line.
    pub fn arguments(&self, arguments: &mut [Vec<u8>]) {
        let mut line = Line::new(arguments.first());
        for argument in arguments {
            let role = line.role(argument);
            self.argument(argument, role, &line);
        }
    }

    fn argument(&self, argument: &mut Vec<u8>, role: Role, line: &Line) {
        let secret = match role {
            Role::Value(meaning) => meaning.hides(argument).then_some(0),
            Role::Login => arguments::password(argument),
            Role::Password => (!argument.is_empty()).then_some(0),
            Role::Code | Role::Script => None,
            Role::Any | Role::Setting => line.secret(argument),
        };
        if let Some(from) = secret {
            // What stands before it may have an address in it.
            let mut clean = self.text(&argument[..from]).into_owned();
            clean.extend_from_slice(REDACTED.as_bytes());
            // Of the next cookie, or of a line for a shell.
            let ends_cookie = argument[..from].to_ascii_lowercase().ends_with(b"cookie=");
            if ends_cookie && argument.ends_with(b";") {
                clean.push(b';');
            }
            *argument = clean;
            return;
        }
        let kind = match role {
            Role::Code => Kind::Code,
            _ => Kind::Text,
        };
        if let Cow::Owned(clean) = self.of_kind(argument, kind) {
            *argument = clean;
        }
    }

    fn clean(&self, text: &mut Vec<u8>) {
        if let Cow::Owned(clean) = self.text(text) {
            *text = clean;
        }
    }

    fn clean_words(&self, words: &mut String) {
        if let Cow::Owned(clean) = self.text(words.as_bytes()) {
            *words = String::from_utf8_lossy(&clean).into_owned();
        }
    }

    /// Takes the secrets out of a recording: arguments, paths, labels.
    pub fn apply(&self, recording: &mut Recording) {
        for run in &mut recording.runs {
            self.arguments(&mut run.command);
            self.clean(&mut run.directory);
            for (_, value) in &mut run.labels {
                self.clean_words(value);
            }
        }
        for exec in recording.processes.iter_mut().flat_map(|p| &mut p.execs) {
            self.clean(&mut exec.path);
            self.arguments(&mut exec.arguments);
        }
        for binary in &mut recording.binaries {
            self.clean(&mut binary.path);
        }
        for package in &mut recording.packages {
            let words = package.name.iter_mut().chain(&mut package.version);
            words.for_each(|words| self.clean_words(words));
        }
        // Those of an add-on have the name of its file.
        for callback in &mut recording.callbacks {
            self.clean_words(&mut callback.binding);
            self.clean_words(&mut callback.function);
        }
        // Two that have become the same stay two: ids point at each.
        for name in &mut recording.names {
            self.clean(name);
        }
    }
}

/// Whether a place lies within what stands for a secret.
fn is_redacted(text: &[u8], place: &Range<usize>) -> bool {
    let length = REDACTED.len();
    let first = (place.end).saturating_sub(length);
    (first..=place.start).any(|at| text.get(at..at + length) == Some(REDACTED.as_bytes()))
}

/// Letters of the longest word that is taken for one; tokens have 24 and more.
const LONGEST_WORD: usize = 20;

/// Whether a text is made of words, and of no letters and digits at random: `Authentication`, `auth/index.js`, `sk-a-package`.
fn is_words(text: &[u8]) -> bool {
    let is_random = |pair: &[u8]| {
        pair[1].is_ascii_digit()
            || b"=+~".contains(&pair[1])
            || (pair[0].is_ascii_alphanumeric() && pair[1].is_ascii_uppercase())
    };
    // No word of a language, and no name of a program, is as long as a token.
    let is_long = |word: &[u8]| word.len() > LONGEST_WORD;
    !text.windows(2).any(is_random) && !text.split(|b| !b.is_ascii_alphabetic()).any(is_long)
}

/// Places in order; those that overlap or adjoin are one.
fn merged(mut places: Vec<Range<usize>>) -> Vec<Range<usize>> {
    places.sort_by_key(|place| (place.start, place.end));
    let mut all: Vec<Range<usize>> = Vec::new();
    for place in places {
        match all.last_mut() {
            Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
            _ => all.push(place),
        }
    }
    all
}

/// A text with `[redacted]` in these places, which are in order and do not overlap.
fn without(text: &[u8], places: &[Range<usize>]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(text.len());
    let mut from = 0;
    for place in places {
        clean.extend_from_slice(&text[from..place.start]);
        clean.extend_from_slice(REDACTED.as_bytes());
        from = place.end;
    }
    clean.extend_from_slice(&text[from..]);
    clean
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

    /// Made once: that takes longer than to use it on a line.
    static REDACTION: std::sync::LazyLock<Redaction> = std::sync::LazyLock::new(Redaction::default);

    fn text(text: &str) -> String {
        String::from_utf8(REDACTION.text(text.as_bytes()).into_owned()).unwrap()
    }

    fn arguments(line: &str) -> String {
        let argument = |text: &str| text.replace('·', " ").into_bytes();
        let mut arguments: Vec<Vec<u8>> = line.split(' ').map(argument).collect();
        REDACTION.arguments(&mut arguments);
        String::from_utf8(arguments.join(&b' ')).unwrap()
    }

    fn corpus() -> impl Iterator<Item = &'static str> {
        include_str!("../tests/data/secrets.txt")
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
    }

    /// A secret is what stands between ‹ and ›; it must be gone, and all around it must stay. `·` is a space inside an argument.
    #[test]
    fn no_secret_of_the_corpus_is_kept_and_nothing_else_is_lost() {
        let mut wrong = Vec::new();
        for line in corpus() {
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
            let found = arguments(&secret);
            if found != expected.replace('·', " ") {
                wrong.push(format!("{line}\n    {found}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn what_is_clean_stays_as_it_is() {
        let redaction = Redaction::default();
        let argument = |text: &str| text.replace('·', " ").into_bytes();
        for line in corpus() {
            let line = line.replace(['‹', '›'], "");
            let mut once: Vec<Vec<u8>> = line.split(' ').map(argument).collect();
            redaction.arguments(&mut once);
            let mut twice = once.clone();
            redaction.arguments(&mut twice);
            assert_eq!(twice, once, "{line}");
        }
        // Whatever stands beside whatever.
        let pieces = [
            "token",
            "key",
            "=",
            ":",
            " ",
            "\"",
            "\\\"",
            "'",
            "[",
            "]",
            "{",
            "}",
            ",",
            ";",
            "&",
            "?",
            "#",
            "@",
            "/",
            "https://",
            "https%3A%2F%2F",
            "%40",
            "Authorization",
            "Bearer",
            "x",
            "[redacted]",
            "%3D",
            "%22",
            "/home/",
            "ghp_0123456789abcdefghijABCD",
            "password",
            "\n",
            "-p",
            "--token",
            "|",
            "\",\"",
            "curl ",
            "mysql",
            "-u",
            "(/",
            "/*",
            "*/",
            "\\",
        ];
        let mut random = crate::random::Random::new(7);
        for _ in 0..20_000 {
            let length = 1 + random.below(12);
            let text: String = (0..length)
                .map(|_| pieces[random.below(pieces.len())])
                .collect();
            for kind in [Kind::Text, Kind::Code] {
                let once = redaction.of_kind(text.as_bytes(), kind).into_owned();
                let twice = redaction.of_kind(&once, kind).into_owned();
                assert_eq!(
                    String::from_utf8_lossy(&twice),
                    String::from_utf8_lossy(&once),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn a_long_text_takes_as_long_as_its_length_says() {
        let redaction = Redaction::default();
        let time = |before: &str, piece: &str, after: &str, bytes: usize| {
            let repeated = |piece: &str| piece.repeat(bytes / piece.len().max(1));
            let text = format!("{before}{}{}", repeated(piece), repeated(after));
            // Of this thread alone: others may have the processor meanwhile.
            let cpu = || {
                let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                std::time::Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
            };
            let begun = cpu();
            for kind in [Kind::Text, Kind::Code] {
                redaction.of_kind(text.as_bytes(), kind);
            }
            let mut line = vec![text.into_bytes()];
            redaction.arguments(&mut line);
            cpu() - begun
        };
        let least_of = |before: &str, piece: &str, after: &str| {
            // The least of some: the machine may do something else.
            let least = |bytes| {
                let times = (0..3).map(|_| time(before, piece, after, bytes));
                times.min().unwrap()
            };
            let (short, long) = (least(20_000), least(200_000));
            let most = short * 40 + std::time::Duration::from_millis(20);
            assert!(
                long < most,
                "{before}{piece}{after}: {short:?}, ten times: {long:?}"
            );
        };
        for piece in [
            "token=",
            "token=\"",
            "token=\\",
            "key",
            "a://u:x",
            "a://u:x@",
            "a%3A%2F%2Fu%3Ax",
            "a:%2F%2Fu%3Ax",
            "a%3A//u%3Ax",
            "'a://u:x",
            "a://u\"x'",
            "a://\\\"",
            "token=,",
            "token=[\"a\",",
            "=",
            "token:",
            "Authorization: '",
            "\"Authorization:",
            "token=)",
            "token=\\\"x",
            "%22token%3D",
            "-----BEGIN PRIVATE KEY-----",
            "/home/",
            "token = ",
            "a@b:",
            "\\",
            "token",
            "basic ",
            "eyJ",
            "password=a;b,c&d|",
            "{\"password\":{",
            "[redacted]",
            "token=[redacted]",
            "--token x ",
            "'--token x ",
            "\"--token\",\"x\",",
            "(/'",
            "(/[",
            "/*",
            "/ ",
            "token=a\"b' ",
            "curl -u ",
            "mysql -p\"x ",
            "login -p'\\",
            "-u\",",
            " -u a:x",
            "token=a\\ b",
            "--token \\",
            "--token \"",
        ] {
            least_of("", piece, "");
        }
        // A beginning, and what is repeated behind it and at the end.
        for (before, piece, after) in [
            ("", "?key=./", ""),
            ("", "&api_key=../", ")"),
            ("", "%3Fkey%3D./", "]"),
            ("", "api_key%3A./", "\\"),
            ("", "api_key=token ~/", "}"),
            ("", "?key=./[redacted]", "]"),
            ("token=\"", "\\", ""),
            ("api_key='./", "\\", "api_key=\"./"),
            // Headers, whose strings end before the line, and the other way round.
            ("", "\"Authorization: x\", ", ""),
            ("`", "Authorization: x\n", ""),
            ("", "\"Cookie: null\" ", ""),
        ] {
            least_of(before, piece, after);
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
        assert_eq!(
            text("cc -I/home/ada/include"),
            "cc -I/home/[redacted]/include"
        );
        let own = Redaction::new(["ACME-[0-9]+"], false).unwrap();
        assert_eq!(
            own.text(b"/home/ada/ACME-12/x").as_ref(),
            b"/home/ada/[redacted]/x"
        );
        assert_eq!(Redaction::new(["("], true).unwrap_err().pattern, "(");
        // They are looked for in the text as it is, and do not hide from other rules what is beside their match.
        let of = |patterns: &[&str], text: &str| {
            let own = Redaction::new(patterns.iter().copied(), true).unwrap();
            let clean = own.text(text.as_bytes()).into_owned();
            let twice = own.text(&clean).into_owned();
            assert_eq!(twice, clean, "{text}");
            String::from_utf8(clean).unwrap()
        };
        let folder = r"/home/ada/clients/[a-z]+";
        assert_eq!(
            of(&[folder], "x /home/ada/clients/acme/y"),
            "x [redacted]/y"
        );
        let address = r"https://ada:[^@]+@corp\.internal/\S*";
        assert_eq!(
            of(&[address], "https://ada:hunter2@corp.internal/plans"),
            "[redacted]"
        );
        let token = "ghp_0123456789abcdefghijABCD";
        assert_eq!(of(&["defghi"], token), REDACTED);
        assert_eq!(of(&["ghp_0123"], &format!("{token} x")), "[redacted] x");
        assert_eq!(of(&["[a-z]{8,}"], "x abcdefgh y"), "x [redacted] y");
        assert_eq!(of(&["[a-z]{8,}"], "token=x"), "token=[redacted]");
    }

    #[test]
    fn what_is_no_utf_8_hides_nothing() {
        let redaction = Redaction::default();
        for (text, clean) in [
            (
                &b"https://ada:p\xe9ss@host/x"[..],
                &b"https://[redacted]@host/x"[..],
            ),
            (b"/home/ad\xe9/x", b"/home/[redacted]/x"),
            (b"/home/\xe9da/x", b"/home/[redacted]/x"),
            (b"\xe9ghp_0123456789abcdefghijABCD", b"\xe9[redacted]"),
            (
                b"-----BEGIN PRIVATE KEY-----\xe9-----END PRIVATE KEY----- x",
                b"[redacted] x",
            ),
            (b"/srv/ad\xe9/x@\xe9", b"/srv/ad\xe9/x@\xe9"),
        ] {
            let found = redaction.text(text);
            assert_eq!(found.as_ref(), clean, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_recording_is_clean_everywhere() {
        use crate::recording::{Binary, Callback, Exec, Package, Process, Run};
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
            packages: vec![Package {
                name: Some("@hunter2/core".into()),
                version: Some("1.0.0-hunter2".into()),
                ..Package::default()
            }],
            callbacks: vec![Callback {
                binding: "(add-on) hunter2_native.node".into(),
                function: "hunter2".into(),
            }],
            ..Recording::default()
        };
        Redaction::new(["hunter2(_native|/core)?$|hunter2[_/]"], true)
            .unwrap()
            .apply(&mut recording);
        let bytes = recording.to_bytes().unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("hunter2"));
        let all: Vec<u8> = recording.names.concat();
        assert_eq!(all, b"https://[redacted]@host/");
    }
}
