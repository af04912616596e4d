//! Secrets that who asks a server must know.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use anyhow::{Context as _, bail};

use crate::commands::hints;

/// Shorter ones can be guessed.
const SHORTEST: usize = 16;

/// 128 random bits.
pub fn random() -> anyhow::Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What a file holds.
pub fn read(file: &Path) -> anyhow::Result<String> {
    let shown = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("reading the token in {shown}"))?;
    let token = text.trim();
    if token.is_empty() {
        bail!(
            "{shown} is empty; needed: a token of at least {SHORTEST} letters, digits and - . _ ~ + / =; type: head -c 24 /dev/urandom | base64 > {}",
            hints::path(file)
        );
    }
    // So that it can be part of an address as it is.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.len() < SHORTEST || !token.bytes().all(is_plain) {
        bail!(
            "found in {shown}: {} characters; needed: at least {SHORTEST}, letters, digits and - . _ ~ + / =; type: head -c 24 /dev/urandom | base64 > {}",
            token.len(),
            hints::path(file)
        );
    }
    Ok(token.to_owned())
}

/// The same; a file that is not there, or empty, gets a token, for its owner only.
pub fn read_or_make(file: &Path) -> anyhow::Result<String> {
    let shown = file.display();
    match fs::read_to_string(file) {
        // Nobody's token: it was being made when the disk was full, say.
        Ok(text) if text.trim().is_empty() => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        _ => return read(file),
    }
    let token = random()?;
    // It takes its name when it is whole.
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let _ = fs::remove_file(&new); // of one that had our number
    let made = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new);
    let written = made.and_then(|mut to| to.write_all(format!("{token}\n").as_bytes()));
    written
        .and_then(|()| fs::rename(&new, file))
        .inspect_err(|_| drop(fs::remove_file(&new)))
        .with_context(|| format!("writing a token to {shown}"))?;
    Ok(token)
}

/// Compares in a time that does not tell where two differ.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    a.len() == b.len() && differences == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails says where")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for (text, fits) in [
            ("0123456789abcdef\n", true),
            ("MTIzNDU2Nzg5MGFiY2RlZg+/==", true),
            ("short\n", false),
            ("0123456789 abcdefgh", false),
            ("0123456789abcdef&x", false),
            ("", false),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(read(&file).is_ok(), fits, "{text:?}");
        }
        assert!(read(&folder.path().join("none")).is_err());
    }

    /// As one that was being made when the disk was full, or the machine lost its power.
    #[test]
    fn an_empty_file_gets_a_token_where_one_is_made_and_is_named_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for text in ["", "\n"] {
            fs::write(&file, text).unwrap();
            let why = read(&file).unwrap_err().to_string();
            assert!(why.contains("is empty; needed: a token"), "{why}");
            let made = read_or_make(&file).unwrap();
            assert_eq!(made.len(), 32);
            assert_eq!(read_or_make(&file).unwrap(), made);
            assert_eq!(
                fs::metadata(&file).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        // What somebody has written is theirs.
        fs::write(&file, "short").unwrap();
        assert!(read_or_make(&file).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "short");
    }

    #[test]
    fn one_that_is_made_stays_and_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let made = read_or_make(&file).unwrap();
        assert_eq!(made.len(), 32);
        assert_eq!(read_or_make(&file).unwrap(), made);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(same(b"ab", b"ab") && !same(b"ab", b"ac") && !same(b"ab", b"abc"));
    }
}
