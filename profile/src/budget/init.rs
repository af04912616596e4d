//! A first file of budgets, from a baseline.

use std::fmt::Write as _;

use crate::diff::compare::Spread;
use crate::diff::figures::{List, Unit};
use crate::diff::{Sides, words};
use crate::wording;

/// Counts that tell most of a start.
const COUNTS: [&str; 7] = [
    "crossings.total",
    "package_json.lookups",
    "package_json.repeated_lookups",
    "files.stat.calls",
    "files.open.calls",
    "compile.compilations",
    "modules.count",
];

/// Budgets that the baseline keeps. Counts: what they are, with a tenth more where they vary. Times and sizes: what none of the runs
/// reached by far. Packages: more than the largest takes.
pub fn init(sides: &Sides<'_>, source: &str) -> String {
    // TOML knows no control characters in a comment.
    let source = wording::printable(source);
    let mut out = format!(
        "# What nodeprof check allows. Written by nodeprof budget init from {source}; change it as you like.\n\
         # Names are those of nodeprof diff --format json; * stands for any text. max: at most; max-increase: at most so much more than --against BASE.\n\
         # A time or a size that varies is over its limit only if chance does not explain it.\n"
    );
    let table = sides.figures.table(List::Run);
    let spread = |name: &str| {
        let row = table.find(name)?;
        let (_, head) = sides.values(List::Run, row, 0);
        Spread::of(&head)
    };
    for (name, increase) in [("time.wall_ns", "5%"), ("time.max_rss_bytes", "5%")] {
        if let Some(of) = spread(name) {
            let unit = Unit::of(name);
            let most = limit(of.maximum * 1.5, unit);
            let now = words::figure(of.median, unit);
            let _ = write!(
                out,
                "\n[[budget]] # {now} now\nfigure = \"{name}\"\nmax = \"{most}\"\nmax-increase = \"{increase}\"\n"
            );
        }
    }
    for name in COUNTS {
        if let Some(of) = spread(name) {
            let (most, varies) = match of.minimum == of.maximum {
                true => (of.maximum, ""),
                false => ((of.maximum * 1.1).ceil(), ", varies"),
            };
            let now = words::count(of.median);
            let _ = write!(
                out,
                "\n[[budget]] # {now} now{varies}\nfigure = \"{name}\"\nmax = {most}\n"
            );
        }
    }
    let packages = sides.figures.table(List::Packages);
    let field = List::Packages.field("self_ns").unwrap_or_default();
    let largest = (0..packages.names.len())
        .filter_map(|row| {
            let (_, head) = sides.values(List::Packages, row, field);
            Some((Spread::of(&head)?.maximum, row))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((most, row)) = largest {
        let _ = write!(
            out,
            "\n[[budget]] # the largest is {}\nfigure = \"packages[*].self_ns\"\nmax = \"{}\"\n",
            wording::printable(&packages.names[row]),
            limit(most * 1.5, Unit::Ns)
        );
    }
    out
}

/// A limit as a person would write it: two digits, rounded up.
fn limit(value: f64, unit: Unit) -> String {
    let (factor, name) = match unit {
        Unit::Ns if value >= 1e9 => (1e9, "s"),
        Unit::Ns => (1e6, "ms"),
        _ => (1e6, "MB"),
    };
    let value = value / factor;
    let digit = 10f64.powf(value.max(1e-6).log10().floor() - 1.0);
    let rounded = (value / digit).ceil() * digit;
    let decimals = (-digit.log10()).ceil().max(0.0) as usize;
    format!("{rounded:.decimals$}{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_two_digits() {
        assert_eq!(limit(123.4e6, Unit::Ns), "130ms");
        assert_eq!(limit(1.51e9, Unit::Ns), "1.6s");
        assert_eq!(limit(0.123e6, Unit::Ns), "0.13ms");
        assert_eq!(limit(64.2e6, Unit::Bytes), "65MB");
    }
}
