//! The JSON of a profile: as its fields are, with null for figures of families that a run did not record. 0 would read as a count.

use std::borrow::Cow;

use serde::ser::{Error as _, SerializeSeq as _, SerializeStruct as _};
use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

use super::{Profile, RunProfile};
use crate::diff::figures::{List, Recorded};

/// A profile as JSON. One run after the other: all at once would take several times the room of the profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Document<'a>(Cow<'a, Profile>);

impl<'a> From<&'a Profile> for Document<'a> {
    fn from(profile: &'a Profile) -> Self {
        Document(Cow::Borrowed(profile))
    }
}

impl From<Profile> for Document<'_> {
    fn from(profile: Profile) -> Self {
        Document(Cow::Owned(profile))
    }
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Profile { schema, runs } = &*self.0;
        let mut fields = serializer.serialize_struct("Profile", 2)?;
        fields.serialize_field("schema", schema)?;
        fields.serialize_field("runs", &Runs(runs))?;
        fields.end()
    }
}

struct Runs<'a>(&'a [RunProfile]);

impl Serialize for Runs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut runs = serializer.serialize_seq(Some(self.0.len()))?;
        for run in self.0 {
            let row = row(run, List::Run, run).map_err(S::Error::custom)?;
            runs.serialize_element(&row)?;
        }
        runs.end()
    }
}

/// A row of a list of a run, of [`List::Run`] one with figures of the run: its fields in the order in which they are documented.
///
/// # Errors
/// None that a row can cause.
pub fn row(run: &RunProfile, list: List, row: &impl Serialize) -> serde_json::Result<Value> {
    let mut document = serde_json::to_value(row)?;
    forget(&mut document, &Recorded::of(run), list, "", false);
    Ok(document)
}

/// Makes figures that are not known null. What is not 0 was recorded, whatever became of its family later. `of_process`: they are of one
/// process of a run.
fn forget(value: &mut Value, recorded: &Recorded, list: List, name: &str, of_process: bool) {
    match value {
        Value::Number(number) if is_zero(number) && !recorded.knows(list, name, of_process) => {
            *value = Value::Null;
        }
        Value::Object(fields) => {
            // Processes have no list of figures of their own, and the run has fields of the same names.
            let of_process = of_process || list == List::Run && fields.contains_key("pid");
            for (field, value) in fields {
                let name = match name {
                    "" => field.clone(),
                    of => format!("{of}.{field}"),
                };
                forget(value, recorded, list, &name, of_process);
            }
        }
        Value::Array(rows) => {
            let of_rows = match name {
                // They have the figures of their packages.
                "sources" => Some(List::BundledPackages),
                _ => List::ALL.into_iter().find(|list| list.name() == name),
            };
            for row in rows {
                forget(row, recorded, of_rows.unwrap_or(list), "", of_process);
            }
        }
        _ => {}
    }
}

fn is_zero(number: &Number) -> bool {
    number.as_f64() == Some(0.0)
}
