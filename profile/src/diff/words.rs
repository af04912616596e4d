//! Figures in sentences: three digits and a unit.

use super::figures::Unit;
use crate::wording;

/// A time, with a unit that leaves one to three digits before the point.
pub fn time(ns: f64) -> String {
    let size = ns.abs();
    let (value, unit) = match size {
        _ if size < 1.0 => return "0".to_owned(),
        _ if size < 999.5 => return format!("{ns:.0} ns"),
        _ if size < 999.5e3 => (ns / 1e3, "µs"),
        _ if size < 999.5e6 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// Bytes in decimal units.
pub fn bytes(bytes: f64) -> String {
    let size = bytes.abs();
    let (value, unit) = match size {
        _ if size < 1e3 => return format!("{bytes:.0} B"),
        _ if size < 999.5e3 => (bytes / 1e3, "kB"),
        _ if size < 999.5e6 => (bytes / 1e6, "MB"),
        _ => (bytes / 1e9, "GB"),
    };
    format!("{} {unit}", digits(value))
}

fn digits(value: f64) -> String {
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => count(value),
    }
}

/// A number with separators; medians of counts can end in a half.
pub fn count(value: f64) -> String {
    let whole = value.abs().round() as u64;
    if value.fract() != 0.0 && value.abs() < 100.0 && (value.fract().abs() - 0.5).abs() < 0.01 {
        return format!("{value:.1}");
    }
    let sign = if value < 0.0 && whole > 0 { "-" } else { "" };
    format!("{sign}{}", wording::number(whole))
}

/// A figure by its unit.
pub fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ns => time(value),
        Unit::Bytes => bytes(value),
        Unit::Percent if value.abs() >= 9_999.5 => format!("{} %", count(value.round())),
        Unit::Percent => format!("{value:.1} %"),
        Unit::Count => count(value),
    }
}

/// The same with its sign.
pub fn signed(value: f64, unit: Unit) -> String {
    let text = figure(value.abs(), unit);
    match value {
        value if value > 0.0 => format!("+{text}"),
        value if value < 0.0 => format!("−{text}"),
        _ => text,
    }
}

/// `1 module`, `12 modules`.
pub fn things(value: f64, one: &str, many: &str) -> String {
    match value {
        1.0 => format!("1 {one}"),
        value => format!("{} {many}", count(value)),
    }
}

/// A share, as whole percent where that says enough.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        size if size < 9.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// Items with commas and an `and` before the last.
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!(
            [0.0, 7.0, 999.0, 1234.0, 78_400.0, 4_100_000.0, 61.2e9].map(time),
            [
                "0", "7 ns", "999 ns", "1.23 µs", "78.4 µs", "4.10 ms", "61.2 s"
            ]
        );
        assert_eq!(
            [0.0, 31.0, 1234567.0, -1234.0, 2.5].map(count),
            ["0", "31", "1,234,567", "-1,234", "2.5"]
        );
        assert_eq!([800.0, 2_100_000.0].map(bytes), ["800 B", "2.10 MB"]);
        assert_eq!(signed(-4.1e6, Unit::Ns), "−4.10 ms");
        assert_eq!([0.412, 0.0523].map(percent), ["41 %", "5.2 %"]);
        assert_eq!(list(&["a".into(), "b".into(), "c".into()]), "a, b and c");
    }
}
