//! The configuration of the service, a TOML file. `systemd/nodeprofd.toml` is one with all settings and their meaning.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use globset::{GlobBuilder, GlobMatcher};
use nodeprof_profile::redact::{BadRule, Redaction};
use serde::{Deserialize, Serialize};

use crate::{machine::group_id, recorder::Mode};

/// Some 200 starts whose records nobody has read yet: a busy host lets the service wait for its turn.
const BUFFER_KILOBYTES: u32 = 16 << 10;
/// The kernel wants whole pages; below this one start would fill it.
const SMALLEST_BUFFER: u32 = 64 << 10;
const LARGEST_BUFFER: u32 = 1 << 30;

/// Patterns of rules that a holder can take over while an exec waits: each takes 0.1 ms (400 took 48 ms).
const MOST_PATTERNS_AT_ONCE: usize = 50;

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who is recorded.
    pub rules: Rules,
    /// Count file operations, too: tracepoints of the syscalls while a start is recorded.
    pub files: bool,
    /// Hold the exec of each start until its probes exist.
    pub hold: bool,
    /// Recording goes on for this long after the event loop has started.
    pub settle: Duration,
    /// And never longer than this after the exec.
    pub limit: Duration,
    /// Node binaries to be ready for, besides those that run or ran.
    pub nodes: Vec<PathBuf>,
    /// Folder for attach plans.
    pub cache: PathBuf,
    /// Size of the buffer between the probes and the service, bytes.
    pub buffer_bytes: u32,
    /// What the service may cost.
    pub ceiling: CeilingLimits,
    /// Where recordings are kept.
    pub store: StoreLimits,
    /// What is read from the environment of a recorded process.
    pub labels: Labels,
    /// What is not kept.
    pub redaction: Redaction,
    /// Who may ask the service what.
    pub access: Access,
    /// What it was read from.
    pub(super) text: String,
}

/// Who may ask the service what. Root may all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The socket, where no supervisor opens one.
    pub socket: PathBuf,
    /// Members of this group may connect to it; only root where there is no such group.
    pub group: Option<u32>,
    /// Whose runs may be read.
    pub read: Read,
    /// Members of this group read all runs.
    pub readers: Option<u32>,
    /// Members of this group read all, and may reload, pause and resume.
    pub administrators: Option<u32>,
    /// Whoever may connect may have the user's own programs traced.
    pub trace: bool,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            socket: crate::control::DEFAULT_SOCKET.into(),
            group: None,
            read: Read::Own,
            readers: None,
            administrators: None,
            trace: true,
        }
    }
}

/// Whose runs a user may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Read {
    /// The user's own.
    #[default]
    Own,
    /// Everybody's.
    All,
}

/// What the service itself may cost; above that it records less.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CeilingLimits {
    /// CPU time, percent of one core.
    pub cpu_percent: Option<u64>,
    /// Probe hits and traced system calls per second.
    pub events: Option<u64>,
    /// Below half of both for this long, it records more again.
    pub recovery: Duration,
}

/// Where recordings are kept, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// The folder.
    pub directory: PathBuf,
    /// Older ones are removed.
    pub age: Duration,
    /// Of more than this, the oldest are removed.
    pub count: usize,
    /// Of more bytes than this, the oldest are removed.
    pub bytes: u64,
    /// Of older ones only the counts are kept.
    pub thin: Duration,
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is no TOML, or a setting is unknown or of the wrong kind.
    #[error("{}, line {line}: {what}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What was found and expected.
        what: String,
    },
    /// A value means nothing.
    #[error("{}: {what}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Which setting, what was found, what is needed.
        what: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct File {
    mode: ModeText,
    one_in: u32,
    files: bool,
    hold: bool,
    settle: String,
    limit: String,
    nodes: Vec<PathBuf>,
    cache: PathBuf,
    buffer_kilobytes: u32,
    ceiling: CeilingFile,
    store: StoreFile,
    labels: std::collections::BTreeMap<String, String>,
    redact: RedactFile,
    access: AccessFile,
    rule: Vec<RuleFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct AccessFile {
    socket: PathBuf,
    group: String,
    read: Read,
    readers: Option<String>,
    administrators: Option<String>,
    trace: bool,
}

impl Default for AccessFile {
    fn default() -> AccessFile {
        AccessFile {
            socket: crate::control::DEFAULT_SOCKET.into(),
            group: "nodeprof".into(),
            read: Read::Own,
            readers: None,
            administrators: None,
            trace: true,
        }
    }
}

impl AccessFile {
    fn check(self) -> Result<Access, String> {
        let named = |setting: &str, name: Option<String>| match name {
            None => Ok(None),
            Some(name) => match group_id(&name) {
                Some(id) => Ok(Some(id)),
                None => Err(format!(
                    "access.{setting}: there is no group {name:?}; needed: one of /etc/group; type: sudo groupadd {name}"
                )),
            },
        };
        if !self.socket.is_absolute() {
            return Err(format!(
                "access.socket: found {}; needed: an absolute path",
                self.socket.display()
            ));
        }
        let is_default = self.group == AccessFile::default().group;
        Ok(Access {
            // Made with the package; without it only root connects.
            group: match is_default {
                true => group_id(&self.group),
                false => named("group", Some(self.group))?,
            },
            read: self.read,
            readers: named("readers", self.readers)?,
            administrators: named("administrators", self.administrators)?,
            trace: self.trace,
            socket: self.socket,
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ModeText {
    Off,
    #[default]
    Count,
    Full,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct CeilingFile {
    cpu_percent: u64,
    events: u64,
    recovery: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct StoreFile {
    directory: PathBuf,
    age: String,
    count: usize,
    megabytes: u64,
    thin: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct RedactFile {
    keep_home_folders: bool,
    patterns: Vec<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RuleFile {
    mode: ModeText,
    #[serde(default = "one")]
    one_in: u32,
    executable: Option<String>,
    user: Option<UserText>,
    cgroup: Option<String>,
    directory: Option<String>,
    command: Option<String>,
}

/// Rules as the holder is told them: nothing in them has to be looked up.
#[derive(Deserialize, Serialize)]
struct RulesText {
    rules: Vec<RuleFile>,
    mode: ModeText,
    one_in: u32,
}

/// A user, as one writes it.
#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "needed: the name or the number of a user")]
enum UserText {
    Number(u32),
    Name(String),
}

fn one() -> u32 {
    1
}

impl Default for File {
    fn default() -> File {
        File {
            mode: ModeText::Count,
            one_in: 1,
            files: true,
            hold: true,
            settle: "200ms".into(),
            limit: "30s".into(),
            nodes: Vec::new(),
            cache: "/var/cache/nodeprof/plans".into(),
            buffer_kilobytes: BUFFER_KILOBYTES,
            ceiling: CeilingFile::default(),
            store: StoreFile::default(),
            labels: Default::default(),
            redact: RedactFile::default(),
            access: AccessFile::default(),
            rule: Vec::new(),
        }
    }
}

impl Default for CeilingFile {
    fn default() -> CeilingFile {
        CeilingFile {
            cpu_percent: 50,
            events: 1_000_000,
            recovery: "30s".into(),
        }
    }
}

impl Default for StoreFile {
    fn default() -> StoreFile {
        StoreFile {
            directory: "/var/lib/nodeprof".into(),
            age: "30d".into(),
            count: 100_000,
            megabytes: 2_000,
            thin: "7d".into(),
        }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`], with the file's name and what is wrong in it.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = fs::read_to_string(path).map_err(|error| ConfigError::Read {
            path: path.to_owned(),
            error,
        })?;
        Config::parse(&text, path)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            line: error
                .span()
                .and_then(|span| text.get(..span.start))
                .map_or(1, |before| before.matches('\n').count() + 1),
            what: error.message().to_owned(),
        })?;
        let mut config = Config::check(file).map_err(|what| ConfigError::Value {
            path: path.to_owned(),
            what,
        })?;
        text.clone_into(&mut config.text);
        Ok(config)
    }

    fn check(file: File) -> Result<Config, String> {
        let rules = file.rule.into_iter().enumerate();
        let rules: Result<Vec<Rule>, String> = rules
            .map(|(index, rule)| Rule::check(rule).map_err(|e| format!("rule {}: {e}", index + 1)))
            .collect();
        let redaction = Redaction::new(
            file.redact.patterns.iter().map(String::as_str),
            !file.redact.keep_home_folders,
        )
        .map_err(|BadRule { pattern, why }| format!("redact.patterns: {pattern:?}: {why}"))?;
        let nodes = file.nodes.iter().map(|node| ("nodes", node));
        let folders = [
            ("cache", &file.cache),
            ("store.directory", &file.store.directory),
        ];
        if let Some((setting, path)) = nodes.chain(folders).find(|(_, path)| !path.is_absolute()) {
            return Err(format!(
                "{setting}: found {:?}; needed: an absolute path",
                path.display().to_string()
            ));
        }
        for (setting, number) in [
            ("store.count", file.store.count as u64),
            ("store.megabytes", file.store.megabytes),
        ] {
            if number == 0 {
                return Err(format!(
                    "{setting}: found 0, which keeps nothing; needed: 1 or more; to record nothing, write: mode = \"off\""
                ));
            }
        }
        if duration("store.age", &file.store.age)?.is_zero() {
            return Err(format!(
                "store.age: found {:?}, which keeps nothing; needed: a longer time, such as \"30d\"; to record nothing, write: mode = \"off\"",
                file.store.age
            ));
        }
        Ok(Config {
            rules: Rules {
                rules: rules?,
                otherwise: share(file.mode, file.one_in)?,
            },
            files: file.files,
            hold: file.hold,
            settle: duration("settle", &file.settle)?,
            limit: match duration("limit", &file.limit)? {
                Duration::ZERO => {
                    return Err("limit: found 0, which records nothing of a start; needed: more; to record none, write: mode = \"off\"".into());
                }
                limit => limit,
            },
            nodes: file.nodes,
            cache: file.cache,
            buffer_bytes: (file.buffer_kilobytes)
                .is_power_of_two()
                .then(|| file.buffer_kilobytes.checked_mul(1024))
                .flatten()
                .filter(|bytes| (SMALLEST_BUFFER..=LARGEST_BUFFER).contains(bytes))
                .ok_or_else(|| {
                    format!(
                        "buffer-kilobytes = {}; needed: a power of two from 64 to 1048576",
                        file.buffer_kilobytes
                    )
                })?,
            ceiling: CeilingLimits {
                cpu_percent: (file.ceiling.cpu_percent > 0).then_some(file.ceiling.cpu_percent),
                events: (file.ceiling.events > 0).then_some(file.ceiling.events),
                recovery: duration("ceiling.recovery", &file.ceiling.recovery)?,
            },
            store: StoreLimits {
                directory: file.store.directory,
                age: duration("store.age", &file.store.age)?,
                count: file.store.count,
                bytes: file.store.megabytes.saturating_mul(1_000_000),
                thin: duration("store.thin", &file.store.thin)?,
            },
            labels: Labels::check(file.labels, redaction.clone())?,
            redaction,
            access: file.access.check()?,
            text: String::new(),
        })
    }
}

impl Config {
    /// A setting that is read at the start only, and is not what it was then.
    pub(super) fn differs_for_good(&self, then: &Config) -> Option<&'static str> {
        [
            ("files", self.files != then.files),
            ("buffer-kilobytes", self.buffer_bytes != then.buffer_bytes),
            (
                "store.directory",
                self.store.directory != then.store.directory,
            ),
            ("access.socket", self.access.socket != then.access.socket),
            ("access.group", self.access.group != then.access.group),
        ]
        .into_iter()
        .find_map(|(setting, differs)| differs.then_some(setting))
    }
}

impl Config {
    /// Whether a holder that was started with the settings of `then` can go on with these: it is told of other rules, not of more.
    pub(super) fn suits_holder_of(&self, then: &Config) -> bool {
        self.hold == then.hold && self.cache == then.cache && self.nodes == then.nodes
    }
}

impl Default for Config {
    /// What an empty file means.
    #[allow(clippy::expect_used, reason = "the defaults are valid; a test says so")]
    fn default() -> Config {
        Config::check(File::default()).expect("the defaults")
    }
}

/// What is recorded of starts, and of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    mode: Mode,
    /// One in so many; 0: none.
    one_in: u32,
}

impl Share {
    /// One start in so many is recorded in this mode; 0: none.
    fn of(self, mode: Mode) -> u32 {
        if self.mode == mode { self.one_in } else { 0 }
    }

    /// As it is written in a file.
    fn to_file(self) -> (ModeText, u32) {
        match (self.mode, self.one_in) {
            (_, 0) => (ModeText::Off, 1),
            (Mode::Count, n) => (ModeText::Count, n),
            (Mode::Full, n) => (ModeText::Full, n),
        }
    }
}

fn share(mode: ModeText, one_in: u32) -> Result<Share, String> {
    let (mode, one_in) = match (mode, one_in) {
        (_, 0) => return Err("found one-in = 0; needed: 1 (each start) or more".into()),
        (ModeText::Off, 1) => (Mode::Count, 0),
        (ModeText::Off, n) => {
            return Err(format!(
                "found one-in = {n} beside mode = \"off\", which records none; needed: mode = \"count\" or \"full\", or no one-in"
            ));
        }
        (ModeText::Count, n) => (Mode::Count, n),
        (ModeText::Full, n) => (Mode::Full, n),
    };
    Ok(Share { mode, one_in })
}

fn duration(name: &str, text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|e| {
        format!("{name}: found {text:?} ({e}); needed: a time such as \"200ms\", \"30s\" or \"7d\"")
    })
}

/// What the rules look at.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// What is executed.
    pub executable: PathBuf,
    /// User.
    pub user: Option<u32>,
    /// Control group.
    pub cgroup: Option<String>,
    /// Working directory.
    pub directory: Option<PathBuf>,
    /// Program and arguments, separated by spaces; `None` before the exec.
    pub command: Option<String>,
}

/// Which starts are recorded: the first rule that fits decides.
#[derive(Clone, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    otherwise: Share,
}

#[derive(Clone, Debug)]
struct Rule {
    share: Share,
    executable: Option<GlobMatcher>,
    user: Option<u32>,
    cgroup: Option<GlobMatcher>,
    directory: Option<GlobMatcher>,
    command: Option<GlobMatcher>,
}

impl Rule {
    fn check(rule: RuleFile) -> Result<Rule, String> {
        let glob = |name: &str, text: Option<String>, whole: bool| {
            text.map(|text| {
                // systemd writes `\\x2d` for a dash in the name of a group.
                let mut builder = GlobBuilder::new(&text);
                builder.literal_separator(whole);
                builder.backslash_escape(name != "cgroup");
                let built = builder.build();
                let built = built
                    .map_err(|e| format!("{name}: {e}; needed: a pattern such as \"/srv/**\""));
                built.map(|g| g.compile_matcher())
            })
            .transpose()
        };
        for (name, text) in [
            ("executable", &rule.executable),
            ("directory", &rule.directory),
        ] {
            // Neither * nor ? is a slash.
            let may_begin = ["/", "**/", "*/", "{", "["];
            if let Some(text) = text
                && text != "**"
                && !may_begin.iter().any(|begin| text.starts_with(begin))
            {
                return Err(format!(
                    "{name}: found {text:?}, which fits no path, for all begin with a slash; needed: a pattern such as \"/srv/**\" or \"**/{text}\""
                ));
            }
        }
        let user = match rule.user {
            None => None,
            Some(UserText::Number(number)) => Some(number),
            Some(UserText::Name(name)) => {
                Some(crate::machine::user_id(&name).ok_or_else(|| {
                    format!(
                        "user: there is no user {name:?}; needed: the name or the number of a user"
                    )
                })?)
            }
        };
        let checked = Rule {
            share: share(rule.mode, rule.one_in)?,
            executable: glob("executable", rule.executable, true)?,
            user,
            cgroup: glob("cgroup", rule.cgroup, false)?,
            directory: glob("directory", rule.directory, true)?,
            command: glob("command", rule.command, false)?,
        };
        match checked.user.is_some() || checked.patterns() > 0 {
            true => Ok(checked),
            false => Err("it fits every start; needed: executable, user, cgroup, directory or command (or the setting `mode` for all)".into()),
        }
    }

    fn globs(&self) -> [&Option<GlobMatcher>; 4] {
        [
            &self.executable,
            &self.cgroup,
            &self.directory,
            &self.command,
        ]
    }

    fn patterns(&self) -> usize {
        self.globs().into_iter().flatten().count()
    }

    /// As it could be written in a file.
    fn to_file(&self) -> RuleFile {
        let glob = |glob: &Option<GlobMatcher>| Some(glob.as_ref()?.glob().glob().to_owned());
        let (mode, one_in) = self.share.to_file();
        RuleFile {
            mode,
            one_in,
            executable: glob(&self.executable),
            user: self.user.map(UserText::Number),
            cgroup: glob(&self.cgroup),
            directory: glob(&self.directory),
            command: glob(&self.command),
        }
    }

    fn without_command(&self) -> Rule {
        Rule {
            command: None,
            ..self.clone()
        }
    }

    fn fits(&self, start: &Start) -> bool {
        let text = |glob: &Option<GlobMatcher>, value: Option<&Path>| {
            glob.as_ref()
                .is_none_or(|glob| value.is_some_and(|value| glob.is_match(value)))
        };
        text(&self.executable, Some(&start.executable))
            && self.user.is_none_or(|user| start.user == Some(user))
            && text(&self.cgroup, start.cgroup.as_deref().map(Path::new))
            && (text(&self.directory, start.directory.as_deref())
                || self.is_below(start.directory.as_deref()))
            && text(&self.command, start.command.as_deref().map(Path::new))
    }
}

impl Rule {
    /// Whether the folder is the one that a pattern ends with `/**` behind: any number of folders are none, too.
    fn is_below(&self, directory: Option<&Path>) -> bool {
        let (Some(glob), Some(directory)) = (&self.directory, directory) else {
            return false;
        };
        glob.glob().glob().ends_with("/**") && glob.is_match(directory.join("_"))
    }
}

/// Of shares of one in so many, the largest: none (0) only if all are.
fn densest(shares: &[u32]) -> u32 {
    let some = shares.iter().copied().filter(|n| *n > 0);
    some.min().unwrap_or(0)
}

impl Rules {
    /// As text, with the numbers of users in place of their names, for which one may have to wait. `None`: there are so many that it takes long to
    /// [`parse`](Rules::parse) them.
    pub(super) fn to_text(&self) -> Option<String> {
        if self.rules.iter().map(Rule::patterns).sum::<usize>() > MOST_PATTERNS_AT_ONCE {
            return None;
        }
        let (mode, one_in) = self.otherwise.to_file();
        let rules = self.rules.iter().map(Rule::to_file).collect();
        serde_json::to_string(&RulesText {
            rules,
            mode,
            one_in,
        })
        .ok()
    }

    /// What [`to_text`](Rules::to_text) made.
    pub(super) fn parse(text: &str) -> Result<Rules, String> {
        let text: RulesText = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let rules: Result<Vec<Rule>, String> = text.rules.into_iter().map(Rule::check).collect();
        Ok(Rules {
            rules: rules?,
            otherwise: share(text.mode, text.one_in)?,
        })
    }

    /// The same starts, all of them in count mode.
    pub(super) fn in_count_mode(&self) -> Rules {
        let counted = |share: Share| Share {
            mode: Mode::Count,
            ..share
        };
        let rules = self.rules.iter().map(|rule| Rule {
            share: counted(rule.share),
            ..rule.clone()
        });
        Rules {
            rules: rules.collect(),
            otherwise: counted(self.otherwise),
        }
    }

    /// One start in so many of this kind is recorded in this mode; 0: none.
    ///
    /// Before the exec nobody knows the command: a rule that asks for one may fit or not. So it is one in as many as the densest of the rules has that
    /// may be the first one to fit, and [`wants`](Rules::wants) decides after the exec.
    pub fn one_in(&self, start: &Start, mode: Mode) -> u32 {
        let mut possible = Vec::new();
        for rule in &self.rules {
            let is_open = rule.command.is_some() && start.command.is_none();
            let fits = match is_open {
                true => rule.without_command().fits(start),
                false => rule.fits(start),
            };
            if fits {
                possible.push(rule.share.of(mode));
                if !is_open {
                    return densest(&possible);
                }
            }
        }
        possible.push(self.otherwise.of(mode));
        densest(&possible)
    }

    /// Whether a start whose command is known now is recorded in this mode: [`one_in`](Rules::one_in) had admitted it as one in so many, with what its exec was held with, or,
    /// if `admitted` does not say so, without its command. `lot` is between 0 and 1, the same for all that one start executes.
    pub fn wants(&self, start: &Start, mode: Mode, lot: f64, admitted: Option<u32>) -> bool {
        let wanted = self.one_in(start, mode);
        let without_command = || {
            let early = Start {
                command: None,
                ..start.clone()
            };
            self.one_in(&early, mode)
        };
        wanted > 0 && lot * f64::from(wanted) < f64::from(admitted.unwrap_or_else(without_command))
    }

    /// Whether it depends on the command how a start is recorded of which the rest is known.
    pub(super) fn asks_command_of(&self, start: &Start) -> bool {
        let first = (self.rules.iter()).find(|rule| rule.without_command().fits(start));
        first.is_some_and(|rule| rule.command.is_some())
    }

    /// Whether any start is recorded in this mode.
    pub fn ask_mode(&self, mode: Mode) -> bool {
        let all = self.rules.iter().map(|rule| rule.share);
        all.chain([self.otherwise]).any(|share| share.of(mode) > 0)
    }

    /// Whether a rule asks for the command.
    pub fn ask_command(&self) -> bool {
        self.rules.iter().any(|rule| rule.command.is_some())
    }

    pub(super) fn ask_user(&self) -> bool {
        self.rules.iter().any(|rule| rule.user.is_some())
    }

    pub(super) fn ask_cgroup(&self) -> bool {
        self.rules.iter().any(|rule| rule.cgroup.is_some())
    }

    pub(super) fn ask_directory(&self) -> bool {
        self.rules.iter().any(|rule| rule.directory.is_some())
    }
}

/// Variables of the environment that are read, and the labels that they become. No other variable is looked at.
#[derive(Clone, Debug)]
pub struct Labels {
    own: Vec<(String, String)>,
    redaction: Redaction,
}

/// Variables that together tell of a system of continuous integration, by each way of telling; its name; label by variable.
type System = (
    &'static [&'static [&'static str]],
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// What the systems of continuous integration set: the variables that tell which one it is, and label by variable; of
/// several for a label the first that is set counts. Sources: their documentation of predefined variables.
const SYSTEMS: &[System] = &[
    (
        &[&["GITHUB_ACTIONS"]],
        "github",
        &[
            ("commit", "GITHUB_SHA"),
            ("branch", "GITHUB_HEAD_REF"),
            ("branch", "GITHUB_REF_NAME"),
            ("job", "GITHUB_JOB"),
            ("pipeline", "GITHUB_RUN_ID"),
        ],
    ),
    (
        &[&["GITLAB_CI"]],
        "gitlab",
        &[
            ("commit", "CI_COMMIT_SHA"),
            ("branch", "CI_COMMIT_REF_NAME"),
            ("job", "CI_JOB_NAME"),
            ("pipeline", "CI_PIPELINE_ID"),
        ],
    ),
    (
        // One that was not told its root URL does not set that.
        &[
            &["JENKINS_URL", "BUILD_NUMBER"],
            &["JENKINS_HOME", "BUILD_NUMBER"],
        ],
        "jenkins",
        &[
            ("commit", "GIT_COMMIT"),
            // Of a pull request; its BRANCH_NAME is `PR-24`.
            ("branch", "CHANGE_BRANCH"),
            ("branch", "BRANCH_NAME"),
            ("branch", "GIT_LOCAL_BRANCH"),
            ("branch", "GIT_BRANCH"),
            ("job", "JOB_NAME"),
            // Its number is that of other jobs' builds, too.
            ("pipeline", "BUILD_TAG"),
            ("pipeline", "BUILD_NUMBER"),
        ],
    ),
    (
        &[&["BUILDKITE"]],
        "buildkite",
        &[
            ("commit", "BUILDKITE_COMMIT"),
            ("branch", "BUILDKITE_BRANCH"),
            ("job", "BUILDKITE_LABEL"),
            ("job", "BUILDKITE_STEP_KEY"),
            ("pipeline", "BUILDKITE_BUILD_ID"),
            ("pipeline", "BUILDKITE_BUILD_NUMBER"),
        ],
    ),
];

/// Labels that a run gets anyway, what selects runs by something else, and what tells the sides of a comparison and whether they were run in turn.
const TAKEN: &[&str] = &[
    "command",
    "package",
    "user",
    "parent",
    "cgroup",
    "unit",
    "container",
    "kernel",
    "machine",
    "one-in",
    "run",
    "name",
    "pair",
];

/// Longer values are cut.
const LONGEST_LABEL: usize = 256;

impl Labels {
    fn check(
        own: std::collections::BTreeMap<String, String>,
        redaction: Redaction,
    ) -> Result<Labels, String> {
        let is_name = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        };
        if let Some(label) = own.keys().find(|label| TAKEN.contains(&label.as_str())) {
            return Err(format!(
                "labels: found {label}, which says something else of a run; needed: another name; type for example: my-{label} = {:?}",
                own[label]
            ));
        }
        match own
            .iter()
            .find(|(label, variable)| !is_name(label) || !is_name(variable))
        {
            Some((label, variable)) => Err(format!(
                "labels: found {label} = {variable:?}; needed: LABEL = \"VARIABLE\", letters, digits and _"
            )),
            None => Ok(Labels {
                own: own.into_iter().collect(),
                redaction,
            }),
        }
    }

    /// Labels from an environment as `/proc/PID/environ` has it.
    pub fn of(&self, environment: &[u8]) -> Vec<(String, String)> {
        let value = |name: &str| {
            let mut all = environment.split(|b| *b == 0);
            let found = all.find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
            // Before it is cut: of a secret that was cut, nobody can tell that it is one.
            let clean = self.redaction.text(found?);
            let text = String::from_utf8_lossy(&clean);
            (!text.is_empty()).then(|| text.chars().take(LONGEST_LABEL).collect::<String>())
        };
        // Buildkite has that word in place of a commit that it was not told: it would be the same one in all builds.
        let of_label = |label: &str, variable: &str| {
            let value = value(variable).filter(|value| label != "commit" || value != "HEAD")?;
            // Jenkins has it as seen from the repository that it was fetched into.
            Some(match (variable, value.strip_prefix("origin/")) {
                ("GIT_BRANCH", Some(branch)) => branch.to_owned(),
                _ => value,
            })
        };
        let mut labels: Vec<(String, String)> = Vec::new();
        for (marks, system, variables) in SYSTEMS {
            let mut ways = marks.iter();
            let is_it = ways.any(|way| way.iter().all(|mark| value(mark).is_some()));
            if !is_it || labels.iter().any(|(label, _)| label == "ci") {
                continue;
            }
            labels.push(("ci".into(), (*system).into()));
            for (label, variable) in *variables {
                if !labels.iter().any(|(known, _)| known == label) {
                    labels.extend(
                        of_label(label, variable).map(|value| ((*label).to_owned(), value)),
                    );
                }
            }
        }
        for (label, variable) in &self.own {
            if let Some(value) = of_label(label, variable) {
                labels.retain(|(known, _)| known != label);
                labels.push((label.clone(), value));
            }
        }
        labels
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("c.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn each_start_is_recorded_in_one_mode() {
        let config = parse(
            "[[rule]]\nmode = 'full'\ncommand = '*app.js*'\ndirectory = '/srv/**'\n\
             [[rule]]\nmode = 'off'\ncommand = '*--version*'\n[[rule]]\nmode = 'full'\none-in = 7\nuser = 5\n",
        )
        .unwrap();
        let start = |directory: &str, user: u32, command: Option<&str>| Start {
            user: Some(user),
            directory: Some(directory.into()),
            command: command.map(str::to_owned),
            ..Start::default()
        };
        let shares =
            |start: &Start| [Mode::Full, Mode::Count].map(|mode| config.rules.one_in(start, mode));
        // Before the exec it may be either; after it, it is one.
        assert_eq!(shares(&start("/srv/a", 1, None)), [1, 1]);
        assert_eq!(shares(&start("/srv/a", 1, Some("node app.js"))), [1, 0]);
        assert_eq!(shares(&start("/srv/a", 1, Some("node b.js"))), [0, 1]);
        assert_eq!(shares(&start("/srv/a", 1, Some("node --version"))), [0, 0]);
        assert_eq!(shares(&start("/home/a", 1, None)), [0, 1]);
        assert_eq!(shares(&start("/home/a", 5, None)), [7, 0]);
        assert!(config.rules.ask_mode(Mode::Full));
        assert!(!parse("").unwrap().rules.ask_mode(Mode::Full));
        assert!(!parse("mode = 'full'").unwrap().rules.ask_mode(Mode::Count));
    }

    #[test]
    fn patterns_fit_what_they_seem_to() {
        let fits = |pattern: &str, start: &Start| {
            let text = format!("mode = 'off'\n[[rule]]\nmode = 'count'\n{pattern}");
            parse(&text).unwrap().rules.one_in(start, Mode::Count) == 1
        };
        let of = |directory: &str| Start {
            directory: Some(directory.into()),
            cgroup: Some("/system-actions\\x2drunner.slice/a.service".into()),
            ..Start::default()
        };
        for (pattern, directory, expected) in [
            ("directory = '/srv/app/**'", "/srv/app", true),
            ("directory = '/srv/app/**'", "/srv/app/a/b", true),
            ("directory = '/srv/app/**'", "/srv/apple", false),
            ("directory = '/srv/app/**'", "/srv", false),
            ("directory = '/srv/app/*'", "/srv/app", false),
            ("directory = '/*/app/**'", "/srv/app", true),
            ("directory = '**'", "/", true),
            ("cgroup = '*actions\\x2drunner.slice*'", "/", true),
            ("cgroup = '*other*'", "/", false),
        ] {
            assert_eq!(
                fits(pattern, &of(directory)),
                expected,
                "{pattern} {directory}"
            );
        }
        for pattern in ["*node", "?/node", "**node", "node"] {
            let text = format!("[[rule]]\nmode = 'off'\nexecutable = '{pattern}'");
            let error = parse(&text).unwrap_err();
            assert!(error.contains("fits no path"), "{pattern}: {error}");
        }
    }

    #[test]
    fn a_user_has_a_name_or_a_number() {
        for user in ["0", "'0'", "'root'"] {
            let config = parse(&format!(
                "mode = 'off'\n[[rule]]\nmode = 'count'\nuser = {user}"
            ));
            let start = Start {
                user: Some(0),
                ..Start::default()
            };
            assert_eq!(
                config.unwrap().rules.one_in(&start, Mode::Count),
                1,
                "{user}"
            );
        }
    }

    #[test]
    fn rules_that_the_holder_is_told_are_the_same() {
        let text = "mode = 'full'\none-in = 3\n[[rule]]\nmode = 'off'\nuser = 'root'\n\
            [[rule]]\nmode = 'count'\none-in = 2\nexecutable = '/opt/*/node'\ncgroup = '*.service'\n\
            [[rule]]\nmode = 'full'\ndirectory = '/srv/**'\ncommand = '*a\"b*'\n";
        let rules = parse(text).unwrap().rules;
        let told = Rules::parse(&rules.to_text().unwrap()).unwrap();
        assert!(!rules.to_text().unwrap().contains("root"));
        let some = |text: &str| Some(text.to_owned());
        for executable in ["/opt/a/node", "/opt/a/b/node"] {
            for user in [0, 1] {
                for cgroup in [some("/a/b.service"), None] {
                    for directory in ["/srv/a/b", "/home"] {
                        for command in [some("node a\"b"), some("node c"), None] {
                            let start = Start {
                                executable: executable.into(),
                                user: Some(user),
                                cgroup: cgroup.clone(),
                                directory: Some(directory.into()),
                                command,
                            };
                            for mode in [Mode::Count, Mode::Full] {
                                let of = |rules: &Rules| rules.one_in(&start, mode);
                                assert_eq!(of(&told), of(&rules), "{start:?} {mode:?}");
                            }
                        }
                    }
                }
            }
        }
        let many = "[[rule]]\nmode = 'off'\ncgroup = '/a'\n".repeat(MOST_PATTERNS_AT_ONCE + 1);
        assert_eq!(parse(&many).unwrap().rules.to_text(), None);
    }

    #[test]
    fn what_is_read_at_the_start_only_is_named() {
        let then = parse("").unwrap();
        for (text, setting) in [
            ("files = false", "files"),
            ("buffer-kilobytes = 512", "buffer-kilobytes"),
            ("store = { directory = '/srv/starts' }", "store.directory"),
            ("access = { socket = '/run/other.sock' }", "access.socket"),
            ("access = { group = 'root' }", "access.group"),
        ] {
            let now = parse(text).unwrap();
            assert_eq!(now.differs_for_good(&then), Some(setting));
        }
        let now = parse("mode = 'off'\nstore = { count = 5 }\naccess = { read = 'all' }").unwrap();
        assert_eq!(now.differs_for_good(&then), None);
    }

    #[test]
    fn an_empty_file_has_the_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.store, Config::default().store);
        assert_eq!(config.rules.one_in(&Start::default(), Mode::Count), 1);
        assert_eq!(config.settle, Duration::from_millis(200));
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let config = parse(
            "mode = 'off'\n\
             [[rule]]\nmode = 'off'\ndirectory = '/srv/quiet/**'\n\
             [[rule]]\nmode = 'count'\none-in = 10\nuser = 1000\n\
             [[rule]]\nmode = 'count'\nexecutable = '/opt/*/bin/node'\n\
             [[rule]]\nmode = 'count'\ncgroup = '*docker-*'\n",
        )
        .unwrap();
        let start = |executable: &str, user, directory: &str, cgroup: &str| Start {
            executable: executable.into(),
            user: Some(user),
            directory: Some(directory.into()),
            cgroup: Some(cgroup.into()),
            command: None,
        };
        let one_in = |start| config.rules.one_in(&start, Mode::Count);
        assert_eq!(one_in(start("/usr/bin/node", 1, "/", "/")), 0);
        assert_eq!(one_in(start("/usr/bin/node", 1000, "/srv/quiet/a", "/")), 0);
        assert_eq!(one_in(start("/usr/bin/node", 1000, "/srv/other", "/")), 10);
        assert_eq!(one_in(start("/opt/v20/bin/node", 1, "/", "/")), 1);
        assert_eq!(one_in(start("/opt/a/b/bin/node", 1, "/", "/")), 0);
        assert_eq!(
            one_in(start(
                "/usr/bin/node",
                1,
                "/",
                "/system.slice/docker-12.scope"
            )),
            1
        );
    }

    #[test]
    fn a_rule_on_the_command_is_decided_after_the_exec() {
        let config = parse("[[rule]]\nmode = 'off'\ncommand = '*--version*'\n").unwrap();
        let start = |command: Option<&str>| Start {
            command: command.map(str::to_owned),
            ..Start::default()
        };
        assert!(config.rules.ask_command());
        assert_eq!(config.rules.one_in(&start(None), Mode::Count), 1);
        let rules = &config.rules;
        let wants = |command, lot| rules.wants(&start(Some(command)), Mode::Count, lot, None);
        assert!(!wants("node --version", 0.0));
        assert!(wants("node app.js", 0.999));
    }

    #[test]
    fn whose_command_was_known_before_the_exec_is_not_drawn_a_second_time() {
        let config = parse(
            "[[rule]]\nmode = 'full'\none-in = 20\ncommand = '*x*'\n\
             [[rule]]\nmode = 'full'\ncommand = '*y*'\n",
        )
        .unwrap();
        let start = Start {
            command: Some("node x".into()),
            ..Start::default()
        };
        let wants = |admitted| config.rules.wants(&start, Mode::Full, 0.999, admitted);
        assert!(!wants(None) && wants(Some(20)));
    }

    #[test]
    fn the_command_is_asked_for_where_a_rule_on_it_may_be_the_first_to_fit() {
        let config = parse(
            "[[rule]]\nmode = 'off'\nexecutable = '/off'\n\
             [[rule]]\nmode = 'full'\ndirectory = '/srv/**'\ncommand = '*x*'\n",
        )
        .unwrap();
        let asks = |executable: &str, directory: &str| {
            config.rules.asks_command_of(&Start {
                executable: executable.into(),
                directory: Some(directory.into()),
                ..Start::default()
            })
        };
        assert!(asks("/node", "/srv/a"));
        assert!(!asks("/node", "/home") && !asks("/off", "/srv/a"));
    }

    #[test]
    fn a_rule_on_the_command_takes_its_share_of_what_it_fits_and_of_nothing_else() {
        let config = parse(
            "one-in = 2\n\
             [[rule]]\nmode = 'count'\none-in = 10\ncommand = '*rare*'\n\
             [[rule]]\nmode = 'count'\none-in = 4\ncommand = '*some*'\n\
             [[rule]]\nmode = 'count'\ncommand = '*all*'\ndirectory = '/srv/**'\n\
             [[rule]]\nmode = 'off'\ncommand = '*none*'\n",
        )
        .unwrap();
        let mut random = nodeprof_profile::random::Random::new(1);
        let mut share = |directory: &str, command: &str| {
            let before = Start {
                directory: Some(directory.into()),
                ..Start::default()
            };
            let after = Start {
                command: Some(command.into()),
                ..before.clone()
            };
            let recorded = (0..10_000).filter(|_| {
                let admitted = config.rules.one_in(&before, Mode::Count) as usize;
                random.below(admitted) == 0
                    && config
                        .rules
                        .wants(&after, Mode::Count, random.fraction(), None)
            });
            recorded.count() as f64 / 10_000.0
        };
        for directory in ["/srv/a", "/home/a"] {
            for (command, wanted) in [("rare", 0.1), ("some", 0.25), ("none", 0.0), ("other", 0.5)]
            {
                let found = share(directory, command);
                assert!(
                    (found - wanted).abs() < 0.03,
                    "{directory} {command}: {found}"
                );
            }
        }
        assert_eq!(share("/srv/a", "all"), 1.0);
    }

    #[test]
    fn faults_are_named() {
        for (text, needed) in [
            (
                "mode = 'loud'",
                "unknown variant `loud`, expected one of `off`, `count`, `full`",
            ),
            ("moed = 'off'", "unknown field `moed`"),
            ("settle = 'soon'", "settle: found \"soon\""),
            ("one-in = 0", "one-in = 0; needed: 1"),
            (
                "mode = 'off'\none-in = 10",
                "found one-in = 10 beside mode = \"off\"",
            ),
            (
                "[[rule]]\nmode = 'off'\none-in = 10\nuser = 5",
                "rule 1: found one-in = 10 beside mode = \"off\"",
            ),
            ("limit = '0s'", "limit: found 0, which records nothing"),
            (
                "nodes = ['node']",
                "nodes: found \"node\"; needed: an absolute path",
            ),
            (
                "store = { count = 0 }",
                "store.count: found 0, which keeps nothing",
            ),
            ("store = { megabytes = 0 }", "store.megabytes: found 0"),
            (
                "redact = { patterns = ['x*'] }",
                "\"x*\": it fits the empty text",
            ),
            (
                "access = { group = 'nobody-s' }",
                "access.group: there is no group",
            ),
            (
                "[[rule]]\nmode = 'off'\nexecutable = 'node'",
                "rule 1: executable: found \"node\", which fits no path",
            ),
            (
                "[[rule]]\nmode = 'off'\nuser = 'nobody-s'",
                "rule 1: user: there is no user \"nobody-s\"",
            ),
            (
                "[[rule]]\nmode = 'off'\nuser = true",
                "needed: the name or the number of a user",
            ),
            (
                "buffer-kilobytes = 100",
                "buffer-kilobytes = 100; needed: a power of two",
            ),
            ("buffer-kilobytes = 32", "from 64 to 1048576"),
            ("buffer-kilobytes = 4194304", "from 64 to 1048576"),
            ("[[rule]]\nmode = 'off'", "rule 1: it fits every start"),
            (
                "[[rule]]\nmode = 'off'\nexecutable = '['",
                "rule 1: executable: error parsing glob",
            ),
            ("cache = 'here'", "needed: an absolute path"),
            ("[labels]\n\"a b\" = 'X'", "needed: LABEL"),
            ("[labels]\nuser = 'X'", "type for example: my-user = \"X\""),
            ("[labels]\ncommand = 'X'", "needed: another name"),
            ("[labels]\nrun = 'X'", "labels: found run, which says"),
            ("[labels]\nname = 'X'", "labels: found name, which says"),
            ("[labels]\npair = 'X'", "labels: found pair, which says"),
            ("[redact]\npatterns = ['(']", "redact.patterns: \"(\""),
            (
                "[access]\nreaders = 'no such group'",
                "access.readers: there is no group",
            ),
            ("[access]\nread = 'some'", "unknown variant `some`"),
            ("[access]\nsocket = 'x'", "access.socket: found x"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.contains(needed) && error.starts_with("c.toml"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn labels_come_from_the_variables_of_each_system_and_own_ones() {
        let config = parse("[labels]\nteam = 'TEAM'\njob = 'MY_JOB'").unwrap();
        let of = |variables: &[&str]| config.labels.of(variables.join("\0").as_bytes());
        let github = of(&[
            "GITHUB_ACTIONS=true",
            "GITHUB_SHA=abc",
            "GITHUB_REF_NAME=main",
            "GITHUB_HEAD_REF=fix",
            "GITHUB_JOB=build",
            "GITHUB_RUN_ID=7",
            "GITHUB_TOKEN=secret",
            "TEAM=a",
            "MY_JOB=mine",
        ]);
        let expected = [
            ("ci", "github"),
            ("commit", "abc"),
            ("branch", "fix"),
            ("pipeline", "7"),
            ("job", "mine"),
            ("team", "a"),
        ];
        assert_eq!(github, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
        for (marks, system, variables) in SYSTEMS {
            for way in *marks {
                let variables = variables.iter();
                let mut environment: Vec<String> = variables
                    .map(|(label, variable)| format!("{variable}={label}"))
                    .collect();
                environment.extend(way.iter().map(|mark| format!("{mark}=1")));
                let labels = Config::default()
                    .labels
                    .of(environment.join("\0").as_bytes());
                assert_eq!(labels.len(), 5, "{system}: {labels:?}");
                assert!(
                    labels
                        .iter()
                        .all(|(k, v)| k == v || (k == "ci" && v == system))
                );
            }
        }
        assert!(of(&["HOME=/root", "AWS_SECRET_ACCESS_KEY=x"]).is_empty());
        // Who only talks with a Jenkins is not run by it; and its branch has a remote's name before it.
        let [step, job] = [
            &["BUILDKITE=true", "JENKINS_URL=x", "BUILDKITE_BRANCH=a"][..],
            &["JENKINS_URL=x", "BUILD_NUMBER=7", "GIT_BRANCH=origin/a"],
        ]
        .map(of);
        let branch = ("branch".to_owned(), "a".to_owned());
        assert!(
            step[0].1 == "buildkite" && step.contains(&branch),
            "{step:?}"
        );
        assert!(job[0].1 == "jenkins" && job.contains(&branch), "{job:?}");
        // A secret that is cut is none any more: it is taken out before.
        let long = format!("TEAM={}https://ada:hunter2@host/", "x ".repeat(118));
        let (_, team) = of(&[&long]).remove(0);
        assert_eq!(team.chars().count(), LONGEST_LABEL);
        assert!(team.ends_with("https://[redacted]@h"), "{team}");
    }

    /// Value of each of these labels.
    fn labels_of<const N: usize>(
        config: &Config,
        variables: &[&str],
        asked: [&str; N],
    ) -> [Option<String>; N] {
        let labels = config.labels.of(variables.join("\0").as_bytes());
        asked.map(|asked| {
            let mut all = labels.iter();
            all.find(|(label, _)| label == asked)
                .map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn a_commit_that_is_the_word_head_is_none() {
        let of = |commit| {
            let variables = ["BUILDKITE=true", "BUILDKITE_BRANCH=main", commit];
            labels_of(&Config::default(), &variables, ["ci", "branch", "commit"])
        };
        let some = |text: &str| Some(text.to_owned());
        let known = [some("buildkite"), some("main")];
        let [ci, branch, commit] = of("BUILDKITE_COMMIT=HEAD");
        assert_eq!(([ci, branch], commit), (known.clone(), None));
        let [ci, branch, commit] = of("BUILDKITE_COMMIT=abc");
        assert_eq!(([ci, branch], commit), (known, some("abc")));
    }

    #[test]
    fn jenkins_has_a_branch_of_a_pull_request_and_need_not_have_a_url() {
        let of = |variables: &[&str]| {
            labels_of(&Config::default(), variables, ["ci", "branch", "pipeline"])
        };
        let some = |text: &str| Some(text.to_owned());
        let home = "JENKINS_HOME=/var/jenkins_home";
        let found = of(&[home, "BUILD_NUMBER=7", "BRANCH_NAME=main"]);
        assert_eq!(found, [some("jenkins"), some("main"), some("7")]);
        let request = ["BRANCH_NAME=PR-24", "CHANGE_BRANCH=fix"];
        let found = of(&[home, "BUILD_NUMBER=7", request[0], request[1]]);
        assert_eq!(found, [some("jenkins"), some("fix"), some("7")]);
        // A user's setting on a machine, and a build of something else.
        assert_eq!(of(&[home, request[0]]), [None, None, None]);
        assert_eq!(of(&["BUILD_NUMBER=7", request[0]]), [None, None, None]);
    }

    #[test]
    fn an_own_variable_that_is_not_set_leaves_what_the_system_has() {
        let config = parse("[labels]\ncommit = 'MY_SHA'").unwrap();
        let github = ["GITHUB_ACTIONS=true", "GITHUB_SHA=abc"];
        let of = |more: &[&str]| labels_of(&config, &[&github, more].concat(), ["commit"]);
        assert_eq!(of(&[]), [Some("abc".into())]);
        assert_eq!(of(&["MY_SHA="]), [Some("abc".into())]);
        assert_eq!(of(&["MY_SHA=own"]), [Some("own".into())]);
    }
}
