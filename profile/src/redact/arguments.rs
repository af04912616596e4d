//! Command lines: what an argument is, by those before it.

use std::ops::Range;

use super::assignments::{Kind, scheme};
use super::names::{self, Meaning};
use super::strings::Strings;
use super::words;
use crate::main_script::takes_next;

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing that is known.
    Any,
    /// The value of an option or of a setting.
    Value(Meaning),
    /// `user:password`, as curl takes it.
    Login,
    /// A password, as `-p` has it of some programs.
    Password,
    /// The name of a setting, whose value comes next.
    Setting,
    /// A program for node.
    Code,
    /// A line for a shell.
    Script,
}

/// Programs that take a password behind `-p` as if it were part of it.
const PASSWORD_IN_OPTION: &[&str] = &["mysql", "mariadb", "7z", "sshpass", "vsce", "ovsx"];
/// Programs that take a password or token as the argument behind `-p`.
const PASSWORD_BEHIND_OPTION: &[&str] = &["sshpass", "vsce", "ovsx"];
/// Programs that another one may start, whose options tell of a password; and some that `sshpass` starts, of which `-p` is a port.
const STARTED: &[&str] = &[
    "7z",
    "7za",
    "7zz",
    "curl",
    "mariadb",
    "mariadb-admin",
    "mariadb-dump",
    "mysql",
    "mysqladmin",
    "mysqldump",
    "mysqlimport",
    "mysqlsh",
    "ovsx",
    "redis-cli",
    "rsync",
    "scp",
    "sftp",
    "ssh",
    "sshpass",
    "vsce",
];
/// A word that may tell of a login, in a text.
pub(super) const LOGIN: &str = r#"(?-u)(?:^|[\s"'`])(?:-[uUpa]|--user|--proxy-user)"#;
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ash", "ksh", "busybox"];
/// More assignments inside of one argument (`--env=NAME=value`) are not looked at.
const MOST_NESTED: usize = 4;

/// What is known of a command line so far.
#[derive(Debug)]
pub(super) struct Line {
    program: String,
    /// What the next argument is.
    next: Role,
    /// An option stands before it.
    after_option: bool,
    /// A program for node was named: what follows is for that.
    has_script: bool,
    signs_in: bool,
}

impl Line {
    pub(super) fn new(program: Option<&Vec<u8>>) -> Line {
        let path = program.map_or(&[][..], Vec::as_slice);
        Line {
            program: String::from_utf8_lossy(setting(path)).into_owned(),
            next: Role::Any,
            // The program itself is no script of node's.
            after_option: true,
            has_script: false,
            signs_in: false,
        }
    }

    /// A line of which the program is not known yet.
    fn in_text() -> Line {
        Line {
            after_option: false,
            ..Line::new(None)
        }
    }

    /// What this argument is. Arguments are asked for in their order.
    pub(super) fn role(&mut self, argument: &[u8]) -> Role {
        let mut role = self.next;
        let is_option = argument.starts_with(b"-");
        if is_option
            && matches!(
                role,
                Role::Value(_) | Role::Login | Role::Password | Role::Setting
            )
        {
            role = Role::Any;
        }
        // `npx mysql`: that program's options come next.
        let is_started = role == Role::Any && (self.has_script || !self.after_option);
        let name = setting(argument);
        if let (true, Some(program)) = (is_started, STARTED.iter().find(|p| p.as_bytes() == name)) {
            (*program).clone_into(&mut self.program);
        }
        self.next = match role {
            Role::Any => self.role_after(argument),
            Role::Setting => match names::meaning(setting(argument)) {
                Meaning::Plain => Role::Any,
                meaning => Role::Value(meaning),
            },
            _ => Role::Any,
        };
        self.has_script |= !is_option && !self.after_option;
        self.after_option = std::str::from_utf8(argument).is_ok_and(takes_next);
        self.signs_in |= argument == b"login";
        role
    }

    /// What this argument says of the next one.
    fn role_after(&self, argument: &[u8]) -> Role {
        let takes_code = [&b"-e"[..], b"--eval", b"-p", b"--print", b"-pe"];
        let is_node = self.program.starts_with("node") && !self.has_script;
        let is_shell = SHELLS.contains(&self.program.as_str());
        match argument {
            option if is_node && takes_code.contains(&option) => Role::Code,
            b"-p" if self.signs_in || PASSWORD_BEHIND_OPTION.contains(&self.program.as_str()) => {
                Role::Password
            }
            b"-a" if self.program == "redis-cli" => Role::Password,
            b"-u" | b"-U" | b"--user" | b"--proxy-user" => Role::Login,
            b"set" => Role::Setting,
            option if is_shell && option.starts_with(b"-") && option.ends_with(b"c") => {
                Role::Script
            }
            option if is_option_name(option) => match names::meaning_of_option(option) {
                Meaning::Plain => Role::Any,
                meaning => Role::Value(meaning),
            },
            _ => Role::Any,
        }
    }

    /// Where the secret in this argument begins, if it is a whole assignment, header or login, or an option with its value.
    pub(super) fn secret(&self, argument: &[u8]) -> Option<usize> {
        assigned(argument)
            .or_else(|| header(argument))
            .or_else(|| self.password_in_option(argument))
    }

    fn password_in_option(&self, argument: &[u8]) -> Option<usize> {
        let (length, role) = self.login_option(argument)?;
        Some(length + password_of(role, &argument[length..])?)
    }

    /// How long the option is that this argument begins with, and what may follow it at once.
    fn login_option(&self, argument: &[u8]) -> Option<(usize, Role)> {
        let is_of = |program: &&str| self.program.starts_with(*program);
        let takes_password = self.signs_in || PASSWORD_IN_OPTION.iter().any(is_of);
        if takes_password && argument.starts_with(b"-p") {
            return Some((2, Role::Password));
        }
        let options: &[&[u8]] = match self.program.as_str() {
            "curl" => &[b"--user=", b"--proxy-user=", b"-u", b"-U"],
            _ => &[b"--user=", b"--proxy-user="],
        };
        let option = options.iter().find(|o| argument.starts_with(o))?;
        Some((option.len(), Role::Login))
    }
}

/// Where the password in what an option holds begins.
fn password_of(role: Role, value: &[u8]) -> Option<usize> {
    // `docker run --name mysql -p3306:3306`
    let is_of_ports = |b: &u8| b.is_ascii_digit() || b".:".contains(b);
    let is_ports = value.contains(&b':') && value.iter().all(is_of_ports);
    match role {
        Role::Login => password(value),
        Role::Password if !value.is_empty() && !is_ports => Some(0),
        _ => None,
    }
}

/// Where the passwords of logins are in a text with command lines in it: `curl -u ada:X`, `["mysql", "-pX"]`.
pub(super) fn logins(text: &[u8], kind: Kind) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut strings = Strings::default();
    let mut line = Line::in_text();
    let mut at = 0;
    loop {
        let begins_word = |b: &u8| b.is_ascii_whitespace() || b"\\\"'`".contains(b);
        let is_value = matches!(line.next, Role::Login | Role::Password)
            && text.get(at).is_some_and(begins_word);
        if !is_value {
            // `-u[` is no option by itself; other values are looked for elsewhere.
            line.next = Role::Any;
        }
        let parts = |b: &&u8| match is_value {
            true => b.is_ascii_whitespace() || b"\\\"'`,".contains(b),
            false => is_between(b),
        };
        let gap = at;
        at += text[at..].iter().take_while(parts).count();
        if at == text.len() {
            return found;
        }
        if ends_command(&text[gap..at]) {
            line = Line::in_text();
        }
        // A program has command lines in its strings only.
        let string = match kind {
            Kind::Text => None,
            Kind::Code => strings.around(text, at),
        };
        let text = &text[..string.map_or(text.len(), |quote| strings.end(text, at, quote))];
        let word = at + text[at..].iter().take_while(|b| !is_between(b)).count();
        let (place, role) = if is_value && text.get(at) != Some(&b'-') {
            let place = match words::opener_before(&text[gap..at]) {
                Some(opener) => words::value(text, at - opener.len()),
                None => at..words::end_of_word(text, at),
            };
            let role = line.role(&text[place.clone()]);
            (place, role)
        } else {
            line.role(&text[at..word]);
            match line.login_option(&text[at..word]) {
                // A quote behind the option may be that of a string around it.
                Some((length, role)) if words::part(text, at + length).is_some() => {
                    (words::value(text, at + length), role)
                }
                _ => (at..word, Role::Any),
            }
        };
        let is_of_program = kind == Kind::Code && string.is_none();
        if let (false, Some(from)) = (is_of_program, password_of(role, &text[place.clone()])) {
            found.push(place.start + from..place.end);
        }
        at = place.end.max(at + 1);
    }
}

/// Whether this stands between the words of a command line, or between the strings of a list.
fn is_between(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || b"\\\"'`()[]{},;&|".contains(byte)
}

/// Whether a command ends between two words: `x; y`, `x && y`, `"x" "y"`, a line.
fn ends_command(gap: &[u8]) -> bool {
    let has_space = gap.iter().any(u8::is_ascii_whitespace);
    let parts = |b: &u8| b";&|".contains(b);
    let is_quote = |b: Option<&u8>| b.is_some_and(|b| b"\"'`".contains(b));
    let is_space = |rest: &[u8]| rest.iter().all(|b| b.is_ascii_whitespace() || *b == b'\\');
    let ends_line = gap.contains(&b'\n') && !gap.contains(&b'\\') && !gap.contains(&b',');
    let is_two_strings = gap.len() > 2
        && has_space
        && is_quote(gap.first())
        && is_quote(gap.last())
        && is_space(&gap[1..gap.len() - 1]);
    (has_space && gap.iter().any(parts)) || ends_line || is_two_strings
}

/// Where the password in `user:password` begins. A number of a user with that of a group has none, and an address neither.
pub(super) fn password(login: &[u8]) -> Option<usize> {
    let colon = login.iter().position(|b| *b == b':')?;
    let (user, password) = (&login[..colon], &login[colon + 1..]);
    let is_user = !user.is_empty()
        && !user.iter().all(u8::is_ascii_digit)
        && !user.iter().any(|b| *b == b'/' || b.is_ascii_whitespace());
    (is_user && !password.is_empty() && !password.starts_with(b"//")).then_some(colon + 1)
}

/// Where the secret begins in `NAME=value`: all of the rest is its value, whatever it holds.
fn assigned(argument: &[u8]) -> Option<usize> {
    let mut from = 0;
    for _ in 0..MOST_NESTED {
        let equals = from + argument[from..].iter().position(|b| *b == b'=')?;
        let (name, value) = (&argument[from..equals], &argument[equals + 1..]);
        if !name.iter().all(is_of_name) || name.windows(3).any(|w| w == b"://") {
            return None;
        }
        let is_path = name.contains(&b'/') && names::is_bare_key(setting(name));
        if !value.is_empty() && !is_path && names::meaning(setting(name)).hides(value) {
            return Some(equals + 1);
        }
        from = equals + 1;
    }
    None
}

/// Where the value of a header that is a whole argument begins, if it is secret: `X-Api-Key: value`.
fn header(argument: &[u8]) -> Option<usize> {
    let colon = argument.iter().position(|b| *b == b':')?;
    let (name, value) = (&argument[..colon], &argument[colon + 1..]);
    let name = name.strip_prefix(b"-H").unwrap_or(name);
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-';
    let spaces = value.iter().take_while(|b| **b == b' ').count();
    let is_header = name.iter().all(is_name)
        && (name.contains(&b'-') || names::is_header_to_its_end(name))
        && spaces < value.len()
        && (spaces > 0 || names::is_header_to_its_end(name));
    let scheme = scheme(&value[spaces..]);
    (is_header && names::meaning(name) != Meaning::Plain).then_some(colon + 1 + spaces + scheme)
}

/// The last part of a name that has folders or an address in it: `//registry.example/:_authToken`.
fn setting(name: &[u8]) -> &[u8] {
    name.rsplit(|b| *b == b'/').next().unwrap_or(name)
}

fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_./:@[]$+-".contains(byte)
}

fn is_option_name(argument: &[u8]) -> bool {
    let is_path = !argument.starts_with(b"--") && argument.contains(&b'/');
    argument.starts_with(b"-") && !is_path && argument.iter().all(is_of_name)
}
