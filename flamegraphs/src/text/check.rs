//! What became of budgets: for a terminal, a pull request, and CI systems.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nodeprof_profile::budget::{Checked, Outcome, Row, Status};
use nodeprof_profile::diff::words;

use super::Style;
use super::diff_markdown::{code, text as markdown_text};
use super::page::{Page, faint};
use crate::paths::printable;
use crate::table::{Cell, Column, Paint, Table};

/// Rows that are shown of each status but those over their limit.
const ROWS: usize = 12;

/// For people.
pub fn check(checked: &Checked, style: &Style) -> String {
    let mut page = Page {
        out: String::new(),
        width: style.width.max(Style::LEAST_WIDTH),
        color: style.color,
    };
    let (sentence, headline) = match checked.outcome {
        Outcome::Over => (summary(checked), Paint::Error),
        Outcome::Within => (summary(checked), Paint::Good),
        Outcome::CannotTell => (summary(checked), Paint::Warning),
    };
    page.sentence(&sentence, headline);
    for statement in &checked.statements {
        page.sentence(&printable(&statement.text), Paint::Warning);
    }
    for (status, title, paint) in [
        (Status::Over, "Over", Paint::Error),
        (Status::CannotTell, "Not known", Paint::Warning),
        (
            Status::Unsure,
            "Over, but chance explains it",
            Paint::Warning,
        ),
        (Status::Within, "Within", Paint::Plain),
    ] {
        let rows: Vec<&Row> = checked
            .rows
            .iter()
            .filter(|row| row.status == status)
            .collect();
        if rows.is_empty() {
            continue;
        }
        page.section(title, &[faint(words::count(rows.len() as f64))]);
        let shown = if status == Status::Over {
            rows.len()
        } else {
            ROWS
        };
        let rows_shown = &rows[..shown.min(rows.len())];
        let mut table = Table::new([Column::left(""), Column::left("")]);
        for row in rows_shown {
            table.row([
                Cell::name(&row.figure),
                Cell::text(printable(&row.sentence)).paint(paint),
            ]);
        }
        // Nothing is cut: what is wider than a line is told in lines.
        if status != Status::CannotTell && table.fits(page.width) {
            page.table(&table);
        } else {
            for row in rows_shown {
                let text = match row.sentence.starts_with(&row.figure) {
                    true => row.sentence.clone(),
                    false => format!("{}: {}", row.figure, row.sentence),
                };
                page.sentence(&printable(&text), paint);
            }
        }
        page.more(shown, rows.len(), "in --format json");
    }
    page.out
}

fn count(checked: &Checked, status: Status) -> usize {
    checked
        .rows
        .iter()
        .filter(|row| row.status == status)
        .count()
}

/// In a sentence.
fn summary(checked: &Checked) -> String {
    let over = count(checked, Status::Over) as f64;
    let unknown = count(checked, Status::CannotTell) as f64;
    let all = words::things(checked.rows.len() as f64, "limit", "limits");
    match checked.outcome {
        Outcome::Over => format!("{} of {all} over", words::count(over)),
        Outcome::Within => format!("{all} kept"),
        Outcome::CannotTell => format!("{} of {all} could not be checked", words::count(unknown)),
    }
}

/// For a comment on a pull request.
pub fn check_markdown(checked: &Checked) -> String {
    let mark = match checked.outcome {
        Outcome::Over => "🔴",
        Outcome::Within => "🟢",
        Outcome::CannotTell => "⚠️",
    };
    let mut out = format!("### {mark} nodeprof: {}\n\n", summary(checked));
    for statement in &checked.statements {
        let _ = writeln!(out, "> {}", markdown_text(&statement.text));
    }
    if !checked.statements.is_empty() {
        out.push('\n');
    }
    let (kept, others): (Vec<&Row>, Vec<&Row>) = checked
        .rows
        .iter()
        .partition(|row| row.status == Status::Within);
    table(&mut out, &others);
    if !kept.is_empty() {
        let _ = write!(out, "<details><summary>{} kept</summary>\n\n", kept.len());
        table(&mut out, &kept);
        out += "</details>\n";
    }
    out
}

fn table(out: &mut String, rows: &[&Row]) {
    if rows.is_empty() {
        return;
    }
    *out += "| | figure | |\n|---|---|---|\n";
    for row in rows {
        let mark = match row.status {
            Status::Over => "🔴",
            Status::CannotTell => "⚠️",
            Status::Unsure => "⚪",
            Status::Within => "🟢",
        };
        let _ = writeln!(
            out,
            "| {mark} | {} | {} |",
            code(&row.figure),
            markdown_text(&row.sentence)
        );
    }
    out.push('\n');
}

/// Annotations of GitHub Actions: one line each.
pub fn check_github(checked: &Checked) -> String {
    let mut out = String::new();
    for row in &checked.rows {
        let command = match row.status {
            Status::Over => "error",
            Status::CannotTell => "error",
            Status::Unsure => "warning",
            Status::Within => continue,
        };
        let _ = writeln!(
            out,
            "::{command} title={}::{}",
            property(&format!("nodeprof: {}", row.figure)),
            data(&row.sentence)
        );
    }
    for statement in &checked.statements {
        let _ = writeln!(out, "::notice title=nodeprof::{}", data(&statement.text));
    }
    let _ = writeln!(out, "nodeprof: {}", data(&summary(checked)));
    out
}

/// Text of a workflow command.
fn data(text: &str) -> String {
    let text = text
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A");
    printable(&text).into_owned()
}

/// A property of one.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// JUnit's XML: a suite a budget, a case a figure.
pub fn check_junit(checked: &Checked) -> String {
    let mut suites: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &checked.rows {
        suites.entry(&row.budget).or_default().push(row);
    }
    let of = |rows: &[&Row], status: Status| rows.iter().filter(|row| row.status == status).count();
    let all: Vec<&Row> = checked.rows.iter().collect();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"nodeprof\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n",
        all.len(),
        of(&all, Status::Over),
        of(&all, Status::CannotTell)
    );
    for (budget, rows) in suites {
        let _ = writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">",
            xml(budget),
            rows.len(),
            of(&rows, Status::Over),
            of(&rows, Status::CannotTell)
        );
        for row in rows {
            let _ = write!(
                out,
                "    <testcase classname=\"nodeprof\" name=\"{} {}\">",
                xml(&row.figure),
                row.limit
            );
            let sentence = xml(&row.sentence);
            let _ = match row.status {
                Status::Over => write!(out, "<failure message=\"{sentence}\"/>"),
                Status::CannotTell => write!(out, "<error message=\"{sentence}\"/>"),
                Status::Unsure | Status::Within => {
                    write!(out, "<system-out>{sentence}</system-out>")
                }
            };
            out += "</testcase>\n";
        }
        if !checked.statements.is_empty() {
            let statements = checked.statements.iter().map(|of| xml(&of.text));
            let statements = statements.collect::<Vec<_>>().join("\n");
            let _ = writeln!(out, "    <system-out>{statements}</system-out>");
        }
        out += "  </testsuite>\n";
    }
    out + "</testsuites>\n"
}

/// Text for XML, in and outside of attributes.
fn xml(text: &str) -> String {
    (printable(text).replace('&', "&amp;"))
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use nodeprof_profile::diff::Statement;
    use nodeprof_profile::diff::figures::Unit;

    use super::*;

    #[test]
    fn junit_has_what_the_other_formats_say_of_the_runs() {
        let checked = Checked {
            schema: 1,
            outcome: Outcome::Within,
            statements: vec![Statement {
                kind: "failed_runs",
                text: "5 of 16 runs of <head> are left out.".into(),
            }],
            rows: vec![Row {
                budget: "a.toml".into(),
                figure: "crossings.total".into(),
                unit: Unit::Count,
                limit: "max",
                most: 2.0,
                base: None,
                head: Some(1.0),
                status: Status::Within,
                sentence: "1 of 2".into(),
            }],
        };
        let junit = check_junit(&checked);
        let expected = "    <system-out>5 of 16 runs of &lt;head&gt; are left out.</system-out>\n  </testsuite>";
        assert!(junit.contains(expected), "{junit}");
    }
}
