//! What runs of one program differ by all the same: the version of node, the way of recording, the kernel, the machine.

use std::collections::BTreeSet;

use super::statements::recording_words;
use crate::RunProfile;
use crate::groups::{KERNEL, MACHINE};

/// Node's version, way of recording, kernel, machine; empty: not known, or not asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Setting([String; 4]);

/// Before a value, and what stands for one that is not known.
const WORDS: [(&str, &str); 4] = [
    ("node ", "a node of unknown version"),
    ("", "an unknown way of recording"),
    ("kernel ", "an unknown kernel"),
    ("machine ", "an unknown machine"),
];

impl Setting {
    /// Of a run. `node`: with the version of node; `machine`: with what times depend on besides.
    pub(crate) fn of(run: &RunProfile, node: bool, machine: bool) -> Setting {
        let label = |key| run.labels.get(key).cloned().unwrap_or_default();
        let version = || run.node.as_ref()?.version.clone();
        let of_node = node.then(version).flatten().unwrap_or_default();
        Setting(match machine {
            true => [of_node, recording_words(run), label(KERNEL), label(MACHINE)],
            false => [of_node, String::new(), String::new(), String::new()],
        })
    }

    /// Of runs of one side: what is not known of some is that of the others, where these are all alike.
    pub(crate) fn fill<'a>(settings: impl Iterator<Item = &'a mut Setting>) {
        let mut settings: Vec<&mut Setting> = settings.collect();
        for at in 0..WORDS.len() {
            let values = settings.iter().map(|of| &of.0[at]);
            let known: BTreeSet<&String> = values.filter(|value| !value.is_empty()).collect();
            if known.len() != 1 {
                continue;
            }
            let Some(one) = known.first().map(|one| (*one).clone()) else {
                continue;
            };
            for of in &mut settings {
                of.0[at].clone_from(&one);
            }
        }
    }

    /// Names of settings: what they differ by.
    pub(crate) fn names(settings: &BTreeSet<Setting>) -> Vec<String> {
        let varies = |at: usize| {
            let values: BTreeSet<&String> = settings.iter().map(|of| &of.0[at]).collect();
            values.len() > 1
        };
        let varying: Vec<usize> = (0..WORDS.len()).filter(|at| varies(*at)).collect();
        let name = |of: &Setting| {
            let parts = varying
                .iter()
                .map(|at| match (of.0[*at].as_str(), WORDS[*at]) {
                    ("", (_, unknown)) => unknown.to_owned(),
                    (value, (before, _)) => format!("{before}{value}"),
                });
            parts.collect::<Vec<_>>().join(", ")
        };
        settings.iter().map(name).collect()
    }
}
