//! The catalogue: what one wishes to probe, per family, in `probes/catalogue/*.toml`.
//!
//! It is a part of this crate (embedded, parsed once) and not configuration: a wrong entry can crash the traced program.

use serde::Deserialize;

use crate::error::PlanError;
use crate::plan::{CallKind, Family, Role};

const FILES: [(&str, &str); 6] = [
    ("phases.toml", include_str!("../catalogue/phases.toml")),
    (
        "crossings.toml",
        include_str!("../catalogue/crossings.toml"),
    ),
    (
        "package-json.toml",
        include_str!("../catalogue/package-json.toml"),
    ),
    (
        "serialization.toml",
        include_str!("../catalogue/serialization.toml"),
    ),
    ("compile.toml", include_str!("../catalogue/compile.toml")),
    ("stacks.toml", include_str!("../catalogue/stacks.toml")),
];

/// Stands for any text in a [`Pattern`]; `*` is taken: it means a pointer in C++.
const ANYTHING: &str = "…";

/// One file of the catalogue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct FamilyCatalogue {
    /// Which family.
    pub(crate) family: Family,
    /// What it is for, in a sentence; for the reader.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "read by people and by the tests")
    )]
    pub(crate) about: String,
    /// Functions to probe.
    #[serde(default)]
    pub(crate) probe: Vec<ProbeEntry>,
    /// Functions that call a callback.
    #[serde(default)]
    pub(crate) call_site: Vec<CallSiteEntry>,
}

/// A function to probe at its entry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ProbeEntry {
    /// Demangled name.
    pub(crate) symbol: Pattern,
    /// Not wanted where this function exists.
    pub(crate) unless: Option<Pattern>,
    /// Not wanted where its own code calls or jumps to this function, which is probed as well.
    pub(crate) unless_it_calls: Option<Pattern>,
    /// What a hit means.
    pub(crate) role: Role,
    /// Whether a return probe is wished.
    #[serde(default, rename = "return")]
    pub(crate) return_probe: ReturnWish,
    /// Which versions have it; for the reader.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "read by people and by the tests")
    )]
    pub(crate) versions: String,
    /// What it costs and why it is safe; for the reader.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "read by people and by the tests")
    )]
    pub(crate) cost: String,
    /// Other suffixes than none that still are this function (`.part`, `.constprop`).
    #[serde(default)]
    pub(crate) clones: Vec<String>,
}

/// A function in which V8 calls a callback.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct CallSiteEntry {
    /// Demangled name.
    pub(crate) symbol: Pattern,
    /// What is called there.
    pub(crate) kind: CallKind,
    /// With [`CallKind::ByCaller`]: a call of `symbol` from this function is a construction.
    pub(crate) constructs_in: Option<Pattern>,
    /// Machine code written by V8's own assembler, or C++.
    pub(crate) code: CodeKind,
    /// Which versions have it; for the reader.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "read by people and by the tests")
    )]
    pub(crate) versions: String,
    /// As in [`ProbeEntry`].
    #[serde(default)]
    pub(crate) clones: Vec<String>,
    /// Absence of an own call is normal: the compiler can have left it in the function it calls.
    #[serde(default)]
    pub(crate) optional: bool,
}

/// Who wrote the code of a call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CodeKind {
    /// A builtin.
    Builtin,
    /// A C++ compiler.
    Cpp,
}

/// Whether a return probe is wished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReturnWish {
    /// The entry is enough, or a return would cost more than it tells.
    #[default]
    No,
    /// C++ calls it; to be attached unless this binary jumps to it from a callback.
    CalledByCpp,
}

/// A demangled name in which `…` stands for any text.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "String")]
pub(crate) struct Pattern(pub(crate) String);

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Pattern {
    /// Whether the whole name fits.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let Some((first, others)) = self.0.split_once(ANYTHING) else {
            return self.0 == name;
        };
        let (between, last) = others.rsplit_once(ANYTHING).unwrap_or(("", others));
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        for piece in between.split(ANYTHING) {
            let Some(found) = rest.find(piece) else {
                return false;
            };
            rest = rest.get(found + piece.len()..).unwrap_or_default();
        }
        rest.ends_with(last)
    }

    /// What every mangled name that fits contains: the function's own identifier with its length before it.
    /// Names of builtins are not mangled and are their own needle.
    pub(crate) fn needle(&self) -> String {
        let head = self.0.replace("(anonymous namespace)", "");
        if head.starts_with("Builtins_") {
            return head;
        }
        let name = head.split('(').next().unwrap_or_default();
        // The last component, without template arguments.
        let name = name.rsplit("::").next().unwrap_or(name);
        let name = name.split('<').next().unwrap_or(name);
        format!("{}{name}", name.len())
    }
}

/// Parses the embedded catalogue.
pub(crate) fn load() -> Result<Vec<FamilyCatalogue>, PlanError> {
    FILES
        .into_iter()
        .map(|(file, text)| {
            toml::from_str(text).map_err(|error| PlanError::Catalogue {
                file,
                what: error.to_string(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_valid_and_says_why() {
        let families = load().unwrap();
        assert_eq!(families.len(), FILES.len());
        for family in &families {
            assert!(!family.about.is_empty());
            assert!(!family.probe.is_empty() || !family.call_site.is_empty());
            for probe in &family.probe {
                assert!(!probe.versions.is_empty(), "{probe:?}");
                assert!(!probe.cost.is_empty(), "{probe:?}");
                assert!(probe.symbol.needle().len() > 3, "{probe:?}");
            }
            for site in &family.call_site {
                assert!(!site.versions.is_empty(), "{site:?}");
                assert!(site.symbol.needle().len() > 3, "{site:?}");
            }
        }
    }

    #[test]
    fn no_callback_is_wished_a_return_probe() {
        for family in load().unwrap() {
            for probe in family.probe {
                if probe.symbol.0.contains("CallbackInfo") {
                    assert_eq!(probe.return_probe, ReturnWish::No, "{}", probe.symbol.0);
                }
            }
        }
    }

    #[test]
    fn a_pattern_fits_whole_names() {
        let pattern = Pattern(
            "node::StringBytes::Encode(v8::Isolate*, char const*, unsigned long…".to_owned(),
        );
        assert!(pattern.matches(
            "node::StringBytes::Encode(v8::Isolate*, char const*, unsigned long, node::encoding)"
        ));
        assert!(
            !pattern
                .matches("node::StringBytes::Encode(v8::Isolate*, char const*, node::encoding)")
        );
        assert!(Pattern("a…b…c".to_owned()).matches("a12b3c"));
        assert!(!Pattern("a…b…c".to_owned()).matches("a12b3cd"));
        assert!(
            !Pattern("node::Start(int, char**)".to_owned()).matches("node::Start(int, char**)::x")
        );
    }

    #[test]
    fn a_needle_is_the_length_prefixed_identifier() {
        let needle = |text: &str| Pattern(text.to_owned()).needle();
        assert_eq!(needle("v8::String::NewFromUtf8(…"), "11NewFromUtf8");
        assert_eq!(
            needle("…v8::internal::(anonymous namespace)::HandleApiCallHelper<true>(…"),
            "19HandleApiCallHelper"
        );
        assert_eq!(needle("Builtins_CallApiGetter"), "Builtins_CallApiGetter");
    }
}
