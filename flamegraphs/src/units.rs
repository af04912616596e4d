//! Figures as people read them: three digits and a unit.

use nodeprof_profile::wording;
pub(crate) use nodeprof_profile::wording::number;

/// A count with its noun: `1 stat`, `2 stats`.
pub(crate) fn counted(value: u64, one: &str) -> String {
    wording::counted(value, &format!("# {one}[|s]"))
}

/// The same of a noun in the plural.
pub(crate) fn things(value: u64, things: &str) -> String {
    counted(value, things.strip_suffix('s').unwrap_or(things))
}

/// Nanoseconds with the unit that leaves one to three digits before the point.
pub(crate) fn time(ns: u64) -> String {
    let value = ns as f64;
    // The limits lie where rounding to three digits would show four.
    if ns == 0 {
        "0".to_owned()
    } else if ns < 1_000 {
        format!("{ns} ns")
    } else if value < 999.5e3 {
        format!("{} µs", three_digits(value / 1e3))
    } else if value < 999.5e6 {
        format!("{} ms", three_digits(value / 1e6))
    } else if value < 120e9 {
        format!("{} s", three_digits(value / 1e9))
    } else {
        let seconds = ns / 1_000_000_000;
        format!("{} min {} s", number(seconds / 60), seconds % 60)
    }
}

/// As [`time`], with a sign.
pub(crate) fn signed_time(ns: i64) -> String {
    let sign = if ns < 0 { "−" } else { "" };
    format!("{sign}{}", time(ns.unsigned_abs()))
}

/// Bytes in decimal units.
pub(crate) fn bytes(bytes: u64) -> String {
    let value = bytes as f64;
    if bytes < 1_000 {
        format!("{bytes} B")
    } else if value < 999.5e3 {
        format!("{} kB", three_digits(value / 1e3))
    } else if value < 999.5e6 {
        format!("{} MB", three_digits(value / 1e6))
    } else {
        format!("{} GB", three_digits(value / 1e9))
    }
}

/// `part` of `whole`, empty if there is no whole.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    let share = part as f64 * 100.0 / whole as f64;
    if part == 0 {
        "0%".to_owned()
    } else if share < 0.1 {
        "<0.1%".to_owned()
    } else {
        format!("{share:.1}%")
    }
}

fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        let whole = value.round() as u64;
        number(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let shown = [
            0,
            7,
            999,
            1_000,
            9_994,
            9_996,
            78_400,
            999_499,
            999_500,
            78_400_000,
            61_234_567_890,
            3_723_000_000_000,
        ];
        let expected = [
            "0",
            "7 ns",
            "999 ns",
            "1.00 µs",
            "9.99 µs",
            "10.0 µs",
            "78.4 µs",
            "999 µs",
            "1.00 ms",
            "78.4 ms",
            "61.2 s",
            "62 min 3 s",
        ];
        assert_eq!(shown.map(time), expected.map(str::to_owned));
    }

    /// The sign of a change.
    #[test]
    fn times_before_the_start_have_the_sign_of_a_change() {
        assert_eq!(
            [-1_500_000, 0, 7].map(signed_time),
            ["−1.50 ms", "0", "7 ns"].map(str::to_owned)
        );
    }

    #[test]
    fn numbers_have_separators() {
        assert_eq!(
            [0, 12, 999, 1_000, 1_234_567].map(number),
            ["0", "12", "999", "1,000", "1,234,567"].map(str::to_owned)
        );
    }

    #[test]
    fn sizes_and_shares() {
        assert_eq!(
            [0, 999, 1_000, 34_100, 48_200_000].map(bytes),
            ["0 B", "999 B", "1.00 kB", "34.1 kB", "48.2 MB"].map(str::to_owned)
        );
        assert_eq!(percent(1, 3), "33.3%");
        assert_eq!(percent(1, 100_000), "<0.1%");
        assert_eq!(percent(0, 3), "0%");
        assert_eq!(percent(1, 0), "");
    }
}
