//! The same for a comment on a pull request.

use nodeprof_profile::diff::{Answer, Certainty, Change, Diff, words};
use nodeprof_profile::wording;

use super::diff::{
    builtins, doubt, false_positives, is_telling, next_commands, percent_of, probability, time_name,
};
use super::words::capitalised;
use crate::paths::printable;

/// Rows of a table of counts.
const ROWS: usize = 20;
/// Causes above the fold.
const CAUSES: usize = 5;

/// The difference as Markdown. `base`, `head`: what to type for them.
pub fn markdown(diff: &Diff, base: &str, head: &str) -> String {
    let mut out = String::new();
    let mark = match diff.verdict.answer {
        Answer::Slower | Answer::Faster if !diff.verdict.in_turn => "⚠️ ",
        Answer::Slower => "🔴 ",
        Answer::Faster => "🟢 ",
        Answer::NoDifference | Answer::Alike => "⚪ ",
        Answer::CannotTell => "⚠️ ",
    };
    out += &format!("### {mark}{}\n\n", text(&diff.verdict.sentence));
    for statement in &diff.statements {
        out += &format!("> {}\n", text(&statement.text));
    }
    if !diff.statements.is_empty() {
        out.push('\n');
    }
    if !diff.times.is_empty() {
        let of = if diff.verdict.bare {
            "without probes"
        } else {
            "with probes"
        };
        out += &format!(
            "| mean of runs {of} | {} | {} | change | | ± 95 % | rank p | median ratio [95 %] |\n|---|--:|--:|--:|---|--:|--:|---|\n",
            text(&diff.base.name),
            text(&diff.head.name)
        );
        for time in &diff.times {
            let value = |summary: Option<nodeprof_profile::statistics::Summary>| {
                summary.map_or(String::new(), |s| words::figure(s.mean, time.unit))
            };
            out += &format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
                time_name(&time.figure),
                value(time.base),
                value(time.head),
                time.percent.map_or(String::new(), percent_of),
                time.stars.replace('*', "\\*"),
                time.plus_minus_percent
                    .map_or(String::new(), |of| format!("{:.1} %", of[0])),
                time.rank.map_or(String::new(), |rank| probability(rank.p)),
                time.median_ratio.map_or(String::new(), |r| format!(
                    "{:.3} [{:.3}, {:.3}]",
                    r.ratio, r.low, r.high
                )),
            );
        }
        let tested = diff
            .times
            .iter()
            .filter(|time| time.welch.is_some())
            .count();
        if tested > 0 {
            out += &format!("\n<sub>{}</sub>\n", text(&false_positives(tested)));
        }
        out.push('\n');
    }
    if !diff.causes.is_empty() {
        out += "**Why**\n\n";
        for (index, cause) in diff.causes.iter().take(CAUSES).enumerate() {
            let sentence = capitalised(&cause.sentence);
            out += &format!("{}. {}{}\n", index + 1, text(&sentence), doubt(cause));
        }
        out.push('\n');
    }
    for (title, certainty) in [
        ("# count[ differs|s differ] in every run", Certainty::Exact),
        (
            "# count[ varies|s vary] from run to run, and differ[s|]",
            Certainty::Significant,
        ),
        (
            "# count[ differs|s differ] in the runs that there are (too few to be certain)",
            Certainty::TooFewRuns,
        ),
    ] {
        let rows: Vec<&Change> = (diff.counts.iter())
            .filter(|change| change.certainty == certainty && is_telling(change, diff))
            .collect();
        counts(&mut out, title, &rows);
    }
    let lists = [
        ("# package[|s] added", &diff.packages.added),
        ("# package[|s] removed", &diff.packages.removed),
        ("# module[|s] added", &diff.modules.added),
        ("# module[|s] removed", &diff.modules.removed),
    ];
    for (title, names) in lists.into_iter().chain(builtins(diff)) {
        if !names.is_empty() {
            let shown: Vec<String> = names.iter().take(ROWS).map(|name| code(name)).collect();
            let more = match names.len() > ROWS {
                true => format!(" … and {} more", words::count((names.len() - ROWS) as f64)),
                false => String::new(),
            };
            out += &format!(
                "<details><summary>{}</summary>\n\n{}{more}\n\n</details>\n\n",
                wording::counted(names.len() as u64, title),
                shown.join(", ")
            );
        }
    }
    let next: Vec<String> = next_commands(diff, base, head);
    if !next.is_empty() {
        let next: Vec<_> = next.iter().map(|line| printable(line)).collect();
        out += &format!("```\n{}\n```\n", next.join("\n"));
    }
    out
}

fn counts(out: &mut String, title: &str, rows: &[&Change]) {
    if rows.is_empty() {
        return;
    }
    *out += &format!(
        "<details><summary>{}</summary>\n\n| figure | base | head | change |\n|---|--:|--:|--:|\n",
        wording::counted(rows.len() as u64, title)
    );
    let mut rows = rows.to_vec();
    rows.sort_by_key(|change| !change.list.is_empty());
    for change in rows.iter().take(ROWS) {
        let median = |spread: Option<nodeprof_profile::diff::compare::Spread>| {
            spread.map_or("–".to_owned(), |s| words::figure(s.median, change.unit))
        };
        *out += &format!(
            "| {} | {} | {} | {} |\n",
            code(&change.figure),
            median(change.base),
            median(change.head),
            words::signed(change.difference, change.unit)
        );
    }
    if rows.len() > ROWS {
        *out += &format!(
            "\n… and {} more\n",
            words::count((rows.len() - ROWS) as f64)
        );
    }
    *out += "\n</details>\n\n";
}

/// Text that a program chose, without meaning for Markdown or HTML.
pub(super) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                out.push('\\');
                out.push(c);
            }
            // Nobody is to be called by a path.
            '@' => out.push_str("&#64;"),
            c => out.push(c),
        }
    }
    out
}

/// The same as code: between more backticks in a row than it has itself, so that nothing in it ends it.
pub(super) fn code(text: &str) -> String {
    let text = printable(text).replace('|', "\\|");
    let longest = text.split(|c| c != '`').map(str::len).max();
    let fence = "`".repeat(longest.unwrap_or_default() + 1);
    // A backtick at an end would be one of the fence. Of a space on both sides CommonMark shows none.
    let space = match text.contains('`') || text.is_empty() {
        true => " ",
        false => "",
    };
    format!("{fence}{space}{text}{space}{fence}")
}

#[cfg(test)]
mod tests {
    use nodeprof_profile::diff::figures::Unit;

    use super::*;

    #[test]
    fn one_row_is_named_as_one() {
        let change = Change::new("crossings.total".into(), Unit::Count, &[], &[]);
        let mut out = String::new();
        counts(
            &mut out,
            "# count[ varies|s vary], and differ[s|]",
            &[&change],
        );
        assert!(
            out.contains("<summary>1 count varies, and differs</summary>"),
            "{out}"
        );
    }

    #[test]
    fn no_name_leaves_its_code_span() {
        for (name, expected) in [
            ("crossings.total", "`crossings.total`"),
            ("a`b", "`` a`b ``"),
            ("a`` @everyone ``b", "``` a`` @everyone ``b ```"),
            ("@everyone`", "`` @everyone` ``"),
            ("`@everyone", "`` `@everyone ``"),
            ("```", "```` ``` ````"),
            ("a|b`", "`` a\\|b` ``"),
            ("", "`  `"),
        ] {
            assert_eq!(code(name), expected, "{name}");
        }
    }
}
