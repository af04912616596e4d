//! Lists of parameters: all combinations, and `{VAR}` in texts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use nodeprof_profile::measured::OF_COMPARISONS;

/// Values of variables, in the order of the lists.
pub type Values = Vec<(String, String)>;

/// All combinations of the lists `[VAR, VALUES, VAR, VALUES, …]`; one without values if there are no lists.
pub fn combinations(lists: &[String]) -> anyhow::Result<Vec<Values>> {
    let mut all: Vec<Values> = vec![Vec::new()];
    for list in lists.chunks(2) {
        let [name, values] = list else {
            break;
        };
        if name.is_empty() || name.contains(['=', ',', '{', '}']) {
            anyhow::bail!(
                "found the variable {name:?}; needed: a name without = , {{ }}; type for example: -L size 1,10,100"
            );
        }
        if OF_COMPARISONS.contains(&name.as_str()) {
            anyhow::bail!(
                "found the variable {name:?}, whose label tells something else of all runs; needed: another name; type for example: -L my-{name} A,B,C"
            );
        }
        if all
            .iter()
            .any(|values| values.iter().any(|(n, _)| n == name))
        {
            anyhow::bail!("found two lists for {name}; needed: one; type: -L {name} A,B,C");
        }
        let values: Vec<&str> = values.split(',').collect();
        if values.iter().any(|v| v.is_empty()) {
            anyhow::bail!("found an empty value for {name}; type for example: -L {name} A,B,C");
        }
        all = all
            .iter()
            .flat_map(|before| {
                values.iter().map(|value| {
                    let mut combination = before.clone();
                    combination.push((name.clone(), (*value).to_owned()));
                    combination
                })
            })
            .collect();
    }
    Ok(all)
}

/// Puts values in the place of `{VAR}`.
pub fn substitute(text: &OsStr, values: &Values) -> OsString {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    // From left to right, so that a value that looks like a variable stays what it is.
    while let Some((&first, tail)) = rest.split_first() {
        let found = values.iter().find_map(|(name, value)| {
            let after = tail.strip_prefix(name.as_bytes())?.strip_prefix(b"}")?;
            (first == b'{').then_some((value, after))
        });
        match found {
            Some((value, after)) => {
                out.extend_from_slice(value.as_bytes());
                rest = after;
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(words: &[&str]) -> anyhow::Result<Vec<Values>> {
        combinations(&words.iter().map(|w| w.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn lists_are_combined() {
        assert_eq!(lists(&[]).unwrap(), [vec![]]);
        let all = lists(&["a", "1,2", "b", "x"]).unwrap();
        let pair = |a: &str| vec![("a".into(), a.into()), ("b".into(), "x".into())];
        assert_eq!(all, [pair("1"), pair("2")]);
        for bad in [
            ["a", "1,,2"],
            ["", "1"],
            ["a=b", "1"],
            ["kernel", "1"],
            ["pair", "1"],
        ] {
            assert!(lists(&bad).is_err(), "{bad:?}");
        }
        assert!(lists(&["a", "1", "a", "2"]).is_err());
    }

    #[test]
    fn variables_are_replaced_and_values_are_not() {
        let values = vec![("a".into(), "{b}".into()), ("b".into(), "2".into())];
        let of = |text: &str| substitute(text.as_ref(), &values).into_string().unwrap();
        assert_eq!(of("x{a}y{b}{c}{a"), "x{b}y2{c}{a");
        assert_eq!(of("{}"), "{}");
        assert_eq!(of("{{a}}"), "{{b}}");
    }
}
