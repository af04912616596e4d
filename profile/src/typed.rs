//! Times as people type them: `800ms`, `1.5 s`, `2h`.

/// What [`time`] takes, in a sentence.
pub const TIME: &str = "a time, which is a number and its unit (ns, us, ms, s, min, h or d)";

/// A text that is no time, in a sentence: `found …; needed: a time`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotATime {
    /// Nothing but letters, or nothing.
    #[error("{text:?}, which has no number")]
    NoNumber {
        /// As typed.
        text: String,
    },
    /// A number alone: of what, is anybody's guess.
    #[error("{text:?}, which has no unit")]
    NoUnit {
        /// As typed.
        text: String,
    },
    /// A unit of something else.
    #[error("{text:?}, of which {unit:?} is no unit of time")]
    Unit {
        /// As typed.
        text: String,
        /// The letters at its end.
        unit: String,
    },
    /// No number that a time can have.
    #[error("{text:?}, of which {number:?} is no number, or one below 0")]
    Number {
        /// As typed.
        text: String,
        /// What is before the unit.
        number: String,
    },
}

/// A time in nanoseconds, which need not be whole ones.
///
/// ```
/// # use nodeprof_profile::typed::time;
/// assert_eq!(time("1.5ms"), Ok(1.5e6));
/// assert_eq!(time("1_000 s"), time("1e3s"));
/// let found = time("5").unwrap_err();
/// assert_eq!(found.to_string(), "\"5\", which has no unit");
/// ```
///
/// # Errors
/// [`NotATime`].
pub fn time(text: &str) -> Result<f64, NotATime> {
    let typed = || text.to_owned();
    let (digits, unit) = split(text);
    if digits.is_empty() {
        return Err(NotATime::NoNumber { text: typed() });
    }
    let number = number(digits).ok_or_else(|| NotATime::Number {
        text: typed(),
        number: digits.to_owned(),
    })?;
    if unit.is_empty() {
        return Err(NotATime::NoUnit { text: typed() });
    }
    let nanoseconds = nanoseconds(unit).ok_or_else(|| NotATime::Unit {
        text: typed(),
        unit: unit.to_owned(),
    })?;
    Ok(number * nanoseconds)
}

/// What is before the letters at the end, and these.
pub(crate) fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let digits = text.trim_end_matches(char::is_alphabetic);
    (digits.trim(), &text[digits.len()..])
}

/// A finite number that is not negative.
pub(crate) fn number(text: &str) -> Option<f64> {
    let number: f64 = text.trim().replace('_', "").parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// How long a unit of time is.
pub(crate) fn nanoseconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1.0,
        // The micro sign and the letter: keyboards have either.
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3_600e9,
        "d" => 86_400e9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_in_all_units() {
        for (text, nanoseconds) in [
            ("5ns", 5.0),
            ("20us", 20e3),
            ("20µs", 20e3),
            ("20μs", 20e3),
            ("1.5ms", 1.5e6),
            (".5s", 5e8),
            (" 2 min ", 120e9),
            ("1_000 s", 1e12),
            ("1e3s", 1e12),
            ("2h", 7_200e9),
            ("7d", 604_800e9),
            ("0s", 0.0),
        ] {
            assert_eq!(time(text), Ok(nanoseconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_told_in_its_parts() {
        for (text, found) in [
            ("", "\"\", which has no number"),
            ("soon", "\"soon\", which has no number"),
            ("infs", "\"infs\", which has no number"),
            ("5", "\"5\", which has no unit"),
            ("5MB", "\"5MB\", of which \"MB\" is no unit of time"),
            ("-1ms", "of which \"-1\" is no number, or one below 0"),
            ("2h30min", "of which \"2h30\" is no number"),
            ("1e400s", "of which \"1e400\" is no number"),
        ] {
            let error = time(text).err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            assert!(error.contains(found), "{text}: {error}");
        }
    }
}
