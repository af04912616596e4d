//! Budgets: what a figure may be at most, or grow by at most, in a file that a CI job checks.
//!
//! ```
//! use nodeprof_profile::budget::Budgets;
//! let budgets = Budgets::parse(r#"
//!     [[budget]]
//!     figure = "packages[*].self_ns"
//!     max = "20ms"
//! "#)?;
//! assert_eq!(budgets.list[0].max, Some(20e6));
//! # Ok::<(), nodeprof_profile::budget::BudgetError>(())
//! ```

pub mod check;
pub mod init;

use serde::Deserialize;

use crate::diff::figures::Unit;
use crate::typed;

pub use check::{Checked, Drift, Outcome, Row, Status, check};
pub use init::init;

/// A file of budgets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budgets {
    /// In the order of the file.
    pub list: Vec<Budget>,
}

/// What a figure may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Name of a figure of the JSON; `*` stands for any text.
    pub figure: String,
    /// Most that it may be, in its unit.
    pub max: Option<f64>,
    /// Most that it may grow by, compared with base.
    pub max_increase: Option<Increase>,
    /// Unit of these, which figures must have that it names; none if they are 0 or shares, as any figure can be.
    pub unit: Option<Unit>,
    /// It is no error if there is no such figure.
    pub optional: bool,
}

/// Most that a figure may grow by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Increase {
    /// In its unit.
    By(f64),
    /// Share of base: 0.05 for 5 %.
    Share(f64),
}

/// Why a file of budgets cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// It is not TOML, or not of this form.
    #[error("the budget cannot be read: {0}")]
    Syntax(String),
    /// It has no budget.
    #[error(
        "found: a file without a [[budget]]; needed: one at least; to write some from a baseline, type: nodeprof budget init BASE"
    )]
    Empty,
    /// A budget limits nothing.
    #[error("budget {figure}: found neither max nor max-increase; needed: one of them at least")]
    NoLimit {
        /// Of which figure.
        figure: String,
    },
    /// A limit is no number that makes sense.
    #[error("budget {figure}: found {key} = {found}; needed: {needed}")]
    Value {
        /// Of which figure.
        figure: String,
        /// Which limit.
        key: &'static str,
        /// What it says.
        found: String,
        /// What it should say.
        needed: &'static str,
    },
    /// A pattern names a figure that its limit says nothing of.
    #[error(
        "budget {pattern}: found {figure}, which is {}, and a limit that is {}; needed: a name that figures of one unit have, such as {narrower}, with a limit in it: {}",
        kind(*unit), kind(*limit), example(*narrower_unit)
    )]
    Unit {
        /// As typed.
        pattern: String,
        /// A figure that it names.
        figure: String,
        /// The unit of that.
        unit: Unit,
        /// The unit of the limit.
        limit: Unit,
        /// A name that fits fewer figures.
        narrower: String,
        /// Their unit.
        narrower_unit: Unit,
    },
    /// Names are missing in a run: calls of one may be counted as those of nobody.
    #[error(
        "found: a run of which {0} values cannot be read from the store; needed: others, for what it called is not known"
    )]
    Unreadable(u64),
    /// A figure that does not exist in any recording.
    #[error(
        "budget {figure}: there is no such figure; needed: a name as in nodeprof diff --format json, such as {example}"
    )]
    Unknown {
        /// As typed.
        figure: String,
        /// A name that exists.
        example: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    budget: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    figure: String,
    max: Option<toml::Value>,
    max_increase: Option<toml::Value>,
    #[serde(default)]
    optional: bool,
}

const NUMBER: &str = "a number that is not negative, with a unit if it is a time or a size: 120, \"20ms\", \"1.5MB\"";
const INCREASE: &str = "a number that is not negative, with a unit if it is a time or a size, or a share: 0, \"5ms\", \"10%\"";

impl Budgets {
    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Budgets, BudgetError> {
        let file: File =
            toml::from_str(text).map_err(|error| BudgetError::Syntax(error.to_string()))?;
        if file.budget.is_empty() {
            return Err(BudgetError::Empty);
        }
        let list: Result<Vec<Budget>, BudgetError> = file.budget.into_iter().map(budget).collect();
        Ok(Budgets { list: list? })
    }
}

fn budget(entry: Entry) -> Result<Budget, BudgetError> {
    let Entry {
        figure,
        max,
        max_increase,
        optional,
    } = entry;
    if max.is_none() && max_increase.is_none() {
        return Err(BudgetError::NoLimit { figure });
    }
    let named = unit_of(&figure);
    // Where the name does not tell, the limits do: both the same.
    let mut unit = None;
    let wrong = |key, value: &toml::Value, needed| BudgetError::Value {
        figure: figure.clone(),
        key,
        found: value.to_string(),
        needed,
    };
    let max = match &max {
        Some(value) => {
            let (limit, of) = amount(value, named).ok_or_else(|| wrong("max", value, NUMBER))?;
            unit = of;
            Some(limit)
        }
        None => None,
    };
    let max_increase = match &max_increase {
        Some(value) => {
            let share = value
                .as_str()
                .and_then(|text| text.trim().strip_suffix('%'));
            let limit = match share {
                Some(share) => typed::number(share).map(|percent| Increase::Share(percent / 100.0)),
                None => amount(value, named.or(unit)).map(|(limit, of)| {
                    unit = unit.or(of);
                    Increase::By(limit)
                }),
            };
            Some(limit.ok_or_else(|| wrong("max-increase", value, INCREASE))?)
        }
        None => None,
    };
    Ok(Budget {
        max,
        max_increase,
        unit,
        optional,
        figure,
    })
}

/// What figures count that have this name; `None` if the `*` in it leaves that open.
fn unit_of(figure: &str) -> Option<Unit> {
    let field = match figure.rsplit_once("].") {
        Some((_, field)) => field,
        // A list of numbers, as losses are.
        None if figure.ends_with(']') => return Some(Unit::Count),
        // Its field is in the `*`.
        None if figure.contains('[') => return None,
        None => figure,
    };
    match Unit::of(field) {
        Unit::Count if field.contains('*') => None,
        unit => Some(unit),
    }
}

/// A unit in a sentence.
fn kind(unit: Unit) -> &'static str {
    match unit {
        Unit::Ns => "a time",
        Unit::Bytes => "a size",
        Unit::Percent => "a percentage",
        Unit::Count => "a number",
    }
}

/// A limit in this unit.
fn example(unit: Unit) -> &'static str {
    match unit {
        Unit::Ns => "\"20ms\"",
        Unit::Bytes => "\"1.5MB\"",
        Unit::Percent | Unit::Count => "20",
    }
}

/// A limit in the unit of its figure, or in its own if that is not known; and this unit, unless it is 0, which is the same in all. A time
/// without a unit would be nanoseconds, which nobody means.
fn amount(value: &toml::Value, unit: Option<Unit>) -> Option<(f64, Option<Unit>)> {
    let text = match value {
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::String(text) => text.trim().to_owned(),
        _ => return None,
    };
    let (digits, letters) = typed::split(&text);
    let number = typed::number(digits)?;
    let is_zero = number == 0.0;
    let (factor, of) = match letters {
        "" => (1.0, unit.unwrap_or(Unit::Count)),
        "B" => (1.0, Unit::Bytes),
        "kB" => (1e3, Unit::Bytes),
        "MB" => (1e6, Unit::Bytes),
        "GB" => (1e9, Unit::Bytes),
        "KiB" => (1024.0, Unit::Bytes),
        "MiB" => (1_048_576.0, Unit::Bytes),
        time => (typed::nanoseconds(time)?, Unit::Ns),
    };
    let is_bare = letters.is_empty();
    let needs_unit = matches!(of, Unit::Ns | Unit::Bytes);
    // 0 needs no unit.
    if unit.is_some_and(|unit| unit != of) || is_bare && needs_unit && !is_zero {
        return None;
    }
    Some((number * factor, (!is_zero).then_some(of)))
}

/// Whether a name fits a pattern, in which `*` stands for any text, the empty one too.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn one(body: &str) -> Result<Budget, BudgetError> {
        let budgets = Budgets::parse(&format!("[[budget]]\n{body}"))?;
        Ok(budgets.list[0].clone())
    }

    #[test]
    fn limits_have_units() {
        for (figure, max, expected) in [
            ("time.wall_ns", "\"120ms\"", 120e6),
            ("time.wall_ns", "\"1.5 s\"", 1.5e9),
            ("milestones.loop_start", "\"80µs\"", 80e3),
            ("packages[*].self_ns", "\"20ms\"", 20e6),
            ("time.max_rss_bytes", "\"64MB\"", 64e6),
            ("modules[./a.js].bytes_read", "\"1KiB\"", 1024.0),
            ("crossings.total", "1790", 1790.0),
            ("crossings.total", "\"1_790\"", 1790.0),
            ("time.wall_ns", "0", 0.0),
        ] {
            let budget = one(&format!("figure = {figure:?}\nmax = {max}")).unwrap();
            assert_eq!(budget.max, Some(expected), "{figure} {max}");
        }
        let budget = one("figure = \"time.wall_ns\"\nmax-increase = \"5%\"").unwrap();
        assert_eq!(budget.max_increase, Some(Increase::Share(0.05)));
        let budget = one("figure = \"crossings.total\"\nmax-increase = 0").unwrap();
        assert_eq!(budget.max_increase, Some(Increase::By(0.0)));
    }

    #[test]
    fn a_field_that_is_open_takes_the_unit_of_its_limit() {
        let of = |figure: &str, limits: &str| {
            let budget = one(&format!("figure = {figure:?}\n{limits}")).unwrap();
            (budget.max, budget.unit)
        };
        for (figure, limits, max, unit) in [
            ("time.*", "max = \"400ms\"", 400e6, Some(Unit::Ns)),
            ("modules[*].*", "max = \"1KiB\"", 1024.0, Some(Unit::Bytes)),
            ("modules[*].*", "max = 50", 50.0, Some(Unit::Count)),
            ("modules[./bytes*", "max = 50", 50.0, Some(Unit::Count)),
            ("modules[*].*", "max = 0", 0.0, None),
            (
                "time.*",
                "max = 0\nmax-increase = \"4ms\"",
                0.0,
                Some(Unit::Ns),
            ),
            ("*_ns", "max = \"1ms\"", 1e6, Some(Unit::Ns)),
            ("losses[*]", "max = 1", 1.0, Some(Unit::Count)),
            ("losses[some_bytes]", "max = 1", 1.0, Some(Unit::Count)),
        ] {
            assert_eq!(of(figure, limits), (Some(max), unit), "{figure} {limits}");
        }
        for limits in [
            "max = \"4ms\"\nmax-increase = \"4MB\"",
            "max = \"4ms\"\nmax-increase = 4",
            "max = 4\nmax-increase = \"4ms\"",
            "max = \"4 parsecs\"",
        ] {
            let error = one(&format!("figure = \"time.*\"\n{limits}")).unwrap_err();
            assert!(matches!(error, BudgetError::Value { .. }), "{error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (figure, limit) in [
            ("crossings.total", "max = nan"),
            ("crossings.total", "max = inf"),
            ("crossings.total", "max = -1"),
            ("crossings.total", "max = \"NaN\""),
            ("crossings.total", "max = \"5ms\""),
            ("crossings.total", "max = true"),
            ("time.wall_ns", "max = 120"),
            ("time.wall_ns", "max = \"5MB\""),
            ("time.wall_ns", "max-increase = \"nan%\""),
            ("time.wall_ns", "max-increase = \"-5%\""),
        ] {
            let error = one(&format!("figure = {figure:?}\n{limit}")).unwrap_err();
            assert!(
                matches!(error, BudgetError::Value { .. }),
                "{limit}: {error}"
            );
            assert!(error.to_string().contains(figure), "{error}");
        }
        assert!(matches!(Budgets::parse(""), Err(BudgetError::Empty)));
        assert!(matches!(
            one("figure = \"x\""),
            Err(BudgetError::NoLimit { .. })
        ));
        assert!(matches!(
            one("figure = \"x\"\nmaximum = 1"),
            Err(BudgetError::Syntax(_))
        ));
        assert!(matches!(
            Budgets::parse("[[budget"),
            Err(BudgetError::Syntax(_))
        ));
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("packages[*].self_ns", "packages[express].self_ns", true),
            ("packages[*].self_ns", "packages[@a/b].total_ns", false),
            (
                "modules[./lib/*].stats",
                "modules[./lib/a/b.js].stats",
                true,
            ),
            ("modules[./lib/*].stats", "modules[./src/a.js].stats", false),
            ("*", "anything", true),
            ("a*a", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a", "ab", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
