//! What the name of an option, a variable, a header or a parameter says of its value.

use super::REDACTED;

/// What a value is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Nothing to hide.
    Plain,
    /// A secret.
    Secret,
    /// A key, or the file that holds one.
    Key,
}

impl Meaning {
    /// Whether this value is to be taken out.
    pub(super) fn hides(self, value: &[u8]) -> bool {
        let is_word = NO_VALUES
            .iter()
            .any(|word| value.eq_ignore_ascii_case(word.as_bytes()));
        match self {
            Meaning::Plain => false,
            Meaning::Secret => !is_word,
            Meaning::Key => !is_word && !is_key_file(value),
        }
    }
}

/// Values that say whether something is there, and how it is taken: `--rule "no-secrets: error"`.
const NO_VALUES: &[&str] = &[
    "true",
    "false",
    "null",
    "undefined",
    "on",
    "off",
    "yes",
    "no",
    "none",
    "warn",
    "error",
];
/// More of a name is not looked at.
const LONGEST: usize = 128;

/// Parts of a name that tell of a secret, wherever they stand; also at the end of a part (`PGPASSWORD`, `mytoken`).
const WORDS: &[&str] = &[
    "token",
    "tokens",
    "secret",
    "secrets",
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "auth",
    "apikey",
    "apikeys",
    "accesskey",
    "credential",
    "credentials",
    "cookie",
    "cookies",
    "signature",
    "sessionid",
    "sessid",
];
/// The same, as a whole part only.
const WHOLE_WORDS: &[&str] = &[
    "authorization",
    "authentication",
    "bearer",
    "creds",
    "cred",
    "otp",
    "totp",
    "jwt",
    "psk",
];
/// The same, at the beginning of a part (`passwordHash`, `secretkey`).
const BEGINNINGS: &[&str] = &["password", "passwd", "passphrase", "secret"];
/// What begins so, and is none.
const OTHER_BEGINNINGS: &[&str] = &["secretar"];
/// Parts that tell of a secret at the end of a name only: `pass-with-no-tests` has none.
const LAST_WORDS: &[&str] = &["pass", "pat", "pw", "sig"];
/// Parts at the end of a name that tell of several secrets, or of the file that holds them: `--credentials ./key.json`.
const SEVERAL: &[&str] = &["cookies", "credentials", "creds", "secrets", "tokens"];
/// What ends with `pass`, and is none.
const OTHER_PASSES: &[&str] = &[
    "bypass",
    "compass",
    "encompass",
    "overpass",
    "surpass",
    "trespass",
    "underpass",
];
/// One part that names a key.
const KEYS: &[&str] = &[
    "key",
    "accountkey",
    "authkey",
    "cryptkey",
    "encryptionkey",
    "licensekey",
    "masterkey",
    "privatekey",
    "sharedkey",
    "signingkey",
    "sshkey",
];
/// Before `key`: what is looked up, sorted or shown by it.
const PLAIN_KEYS: &[&str] = &[
    "cache",
    "config",
    "foreign",
    "group",
    "hash",
    "hot",
    "index",
    "lookup",
    "object",
    "partition",
    "primary",
    "public",
    "query",
    "range",
    "registry",
    "row",
    "search",
    "sort",
    "translation",
    "unique",
];
/// Before `keys`: several secrets.
const SECRET_KEYS: &[&str] = &["encryption", "private", "signing"];
/// At the end of a name: what is told of a secret, not the secret itself.
const PLAIN_ENDS: &[&str] = &[
    "alg",
    "algorithm",
    "audience",
    "count",
    "dir",
    "directory",
    "domain",
    "endpoint",
    "env",
    "expiration",
    "expires",
    "expiry",
    "file",
    "filename",
    "files",
    "folder",
    "helper",
    "host",
    "issuer",
    "jar",
    "length",
    "limit",
    "mechanism",
    "method",
    "minute",
    "mode",
    "name",
    "path",
    "paths",
    "policy",
    "port",
    "prefix",
    "provider",
    "realm",
    "scheme",
    "server",
    "size",
    "source",
    "stdin",
    "strategy",
    "timeout",
    "ttl",
    "type",
    "uri",
    "url",
    "version",
];
/// Beside `tokens`: how many there are, of text.
const COUNTS: &[&str] = &["max", "min", "num", "number", "per", "total"];
/// At the beginning of an option: it has no value.
const FLAGS: &[&str] = &["no", "without", "skip", "disable", "enable"];

/// What a name says of its value.
pub(super) fn meaning(name: &[u8]) -> Meaning {
    let parts = parts(encoded(name));
    let (Some(last), all) = (parts.last(), parts.concat()) else {
        return Meaning::Plain;
    };
    let before = parts.len().checked_sub(2).map(|at| parts[at].as_str());
    let of = |words: &[&str], part: &str| words.contains(&part);
    let has = |is: &dyn Fn(&str) -> bool| parts.iter().any(|part| is(part));
    let is_count = has(&|part| part == "tokens") && has(&|part| of(COUNTS, part));
    if of(PLAIN_ENDS, last) || is_count {
        return Meaning::Plain;
    }
    let is_last = of(LAST_WORDS, last) || (last.ends_with("pass") && !of(OTHER_PASSES, last));
    let (rest, is_file) = match parts.split_last() {
        Some((last, rest)) => (rest, of(SEVERAL, last)),
        None => (&parts[..], false),
    };
    if is_file && !rest.iter().any(|part| is_secret(part)) {
        return Meaning::Key;
    }
    let is_session = last == "id" && before == Some("session");
    if is_last || is_session || parts.iter().any(|part| is_secret(part)) || ends_with_a_word(&all) {
        return Meaning::Secret;
    }
    let is_key = match last.as_str() {
        "key" => !before.is_some_and(|before| of(PLAIN_KEYS, before)),
        "keys" => before.is_some_and(|before| of(SECRET_KEYS, before)),
        other => of(KEYS, other),
    };
    match is_key {
        true => Meaning::Key,
        false => Meaning::Plain,
    }
}

/// What an option says of the next argument.
pub(super) fn meaning_of_option(option: &[u8]) -> Meaning {
    match parts(option).first() {
        Some(first) if FLAGS.contains(&first.as_str()) => Meaning::Plain,
        _ => meaning(option),
    }
}

/// `key` by itself says nothing, but of a parameter of an address or an option; nor does `code`, but of a parameter.
pub(super) fn is_bare_key(name: &[u8]) -> bool {
    parts(name) == ["key"]
}

/// The parameter by which somebody who signs in comes back.
pub(super) fn is_code(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"code")
}

/// A header whose value has several parts, all of them secret.
pub(super) fn is_header_to_its_end(name: &[u8]) -> bool {
    let parts = parts(name);
    let last = parts.last().map(String::as_str);
    matches!(last, Some("authorization" | "cookie"))
}

/// A name without what says how its value is written: `GPG_KEY_BASE64`.
fn encoded(name: &[u8]) -> &[u8] {
    let cut = ["base64", "b64"].iter().find_map(|end| {
        let at = name.len().checked_sub(end.len())?;
        name[at..]
            .eq_ignore_ascii_case(end.as_bytes())
            .then_some(at)
    });
    &name[..cut.unwrap_or(name.len())]
}

fn is_secret(part: &str) -> bool {
    let begins = |words: &[&str]| words.iter().any(|word| part.starts_with(word));
    WHOLE_WORDS.contains(&part)
        || ends_with_a_word(part)
        || (begins(BEGINNINGS) && !begins(OTHER_BEGINNINGS))
}

fn ends_with_a_word(part: &str) -> bool {
    WORDS.iter().any(|word| part.ends_with(word))
}

/// The words of a name, in small letters: parted at whatever is no letter, and at the humps of camelCase.
fn parts(name: &[u8]) -> Vec<String> {
    let name = &name[name.len().saturating_sub(LONGEST)..];
    let mut parts = vec![String::new()];
    for (at, byte) in name.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| name[before]);
        let ends_capitals = || name.get(at + 1).is_some_and(u8::is_ascii_lowercase);
        let is_hump = byte.is_ascii_uppercase()
            && before.is_some_and(|before| {
                before.is_ascii_lowercase() || (before.is_ascii_uppercase() && ends_capitals())
            });
        if is_hump || !byte.is_ascii_alphabetic() {
            parts.push(String::new());
        }
        if let (true, Some(part)) = (byte.is_ascii_alphabetic(), parts.last_mut()) {
            part.push(byte.to_ascii_lowercase() as char);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The path of a file with a key. Text in base 64 may begin with a slash, but has no such ending.
fn is_key_file(value: &[u8]) -> bool {
    let ends = [
        ".pem", ".key", ".crt", ".cer", ".der", ".p12", ".pfx", ".json", ".txt", ".pub", ".asc",
        ".gpg", ".js", ".ts",
    ];
    let begins = ["./", "../", "~/"];
    value != REDACTED.as_bytes()
        // Several values, or one that is assigned.
        && !value.iter().any(|byte| b" ;,=".contains(byte))
        && (begins.iter().any(|b| value.starts_with(b.as_bytes()))
            || ends.iter().any(|e| value.ends_with(e.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_judged_by_its_words() {
        for (name, is) in [
            ("--db_password", Meaning::Secret),
            ("--db.password", Meaning::Secret),
            ("//registry.example/:_authToken", Meaning::Secret),
            ("PGPASSWORD", Meaning::Secret),
            ("passWord", Meaning::Secret),
            ("SMTP_PASS", Meaning::Secret),
            ("oauth2token", Meaning::Secret),
            ("APIkey", Meaning::Secret),
            ("AWS_SECRET_ACCESS_KEY", Meaning::Secret),
            ("--encryption-key", Meaning::Key),
            ("AccountKey", Meaning::Key),
            ("key", Meaning::Key),
            ("--signing-keys", Meaning::Key),
            ("--keyboard", Meaning::Plain),
            ("--keys-only", Meaning::Plain),
            ("--sort-key", Meaning::Plain),
            ("--passWithNoTests", Meaning::Plain),
            ("--bypass", Meaning::Plain),
            ("--author", Meaning::Plain),
            ("--assignee", Meaning::Plain),
            ("design", Meaning::Plain),
            ("tokenizer", Meaning::Plain),
            ("--secretary", Meaning::Plain),
            ("--max-tokens", Meaning::Plain),
            ("--password-file", Meaning::Plain),
            ("", Meaning::Plain),
            ("--", Meaning::Plain),
        ] {
            assert_eq!(meaning(name.as_bytes()), is, "{name}");
        }
        assert_eq!(meaning_of_option(b"--no-auth"), Meaning::Plain);
    }

    #[test]
    fn the_file_of_a_key_is_no_key() {
        assert!(!Meaning::Key.hides(b"/etc/ssl/server.pem"));
        assert!(!Meaning::Key.hides(b"./server"));
        assert!(Meaning::Key.hides(b"/wJalrXUtnFEMI"));
        assert!(Meaning::Secret.hides(b"./server"));
        assert!(!Meaning::Secret.hides(b"true"));
    }
}
