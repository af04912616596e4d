//! Counts in sentences.

/// `1234567` as `1,234,567`.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The text with the count for `#`, and of each `[one|many]` the form that goes with it: `# [run is|runs are] left out`.
pub fn counted(count: u64, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, choice, after)) = next_choice(rest) {
        out += before;
        out += match count {
            1 => choice.0,
            _ => choice.1,
        };
        rest = after;
    }
    out += rest;
    out.replace('#', &number(count))
}

fn next_choice(text: &str) -> Option<(&str, (&str, &str), &str)> {
    let (before, rest) = text.split_once('[')?;
    let (choice, after) = rest.split_once(']')?;
    Some((before, choice.split_once('|')?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_with_their_count() {
        let text = "# [run is|runs are] left out, and [its|their] times";
        assert_eq!(counted(1, text), "1 run is left out, and its times");
        assert_eq!(counted(0, text), "0 runs are left out, and their times");
        assert_eq!(
            counted(1_234_567, "# file[|s] (an eval)"),
            "1,234,567 files (an eval)"
        );
        assert_eq!(counted(1, "nothing to choose"), "nothing to choose");
    }
}
