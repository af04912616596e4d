//! The JSON of a profile: as its fields are, with null for figures of families that a run did not record. 0 would read as a count.

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Number, Value};

use super::{Profile, RunProfile};
use crate::diff::figures::{List, Recorded};

/// A value of JSON whose objects keep their fields in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// Not known, or not there.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A figure.
    Number(Number),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Document>),
    /// Fields by name.
    Fields(Vec<(String, Document)>),
}

impl Document {
    /// All runs.
    ///
    /// # Errors
    /// None that a profile can cause.
    pub fn of(profile: &Profile) -> serde_json::Result<Document> {
        let mut document = Document::exact(profile)?;
        let Document::Fields(fields) = &mut document else {
            return Ok(document);
        };
        for (name, value) in fields {
            if let (true, Document::List(runs)) = (name == "runs", value) {
                for (run, profile) in runs.iter_mut().zip(&profile.runs) {
                    run.forget(&Recorded::of(profile), List::Run, "", false);
                }
            }
        }
        Ok(document)
    }

    /// A row of a list of a run; of [`List::Run`]: a row with figures of the run.
    ///
    /// # Errors
    /// None that a row can cause.
    pub fn of_row(
        run: &RunProfile,
        list: List,
        row: &impl Serialize,
    ) -> serde_json::Result<Document> {
        let mut document = Document::exact(row)?;
        document.forget(&Recorded::of(run), list, "", false);
        Ok(document)
    }

    /// As it serializes.
    fn exact(value: &impl Serialize) -> serde_json::Result<Document> {
        // By way of text, because that keeps the order of the fields; numbers come without, which would change the last digit of some.
        let mut document: Document = serde_json::from_str(&serde_json::to_string(value)?)?;
        document.take_numbers(&serde_json::to_value(value)?);
        Ok(document)
    }

    fn take_numbers(&mut self, of: &Value) {
        match (self, of) {
            (Document::Number(number), Value::Number(exact)) => number.clone_from(exact),
            (Document::List(rows), Value::Array(of)) => {
                rows.iter_mut()
                    .zip(of)
                    .for_each(|(row, of)| row.take_numbers(of));
            }
            (Document::Fields(fields), of) => {
                for (name, value) in fields {
                    value.take_numbers(of.get(name.as_str()).unwrap_or(&Value::Null));
                }
            }
            _ => {}
        }
    }

    /// Makes figures that are not known null. What is not 0 was recorded, whatever became of its family later. `of_process`: they are of one
    /// process of a run.
    fn forget(&mut self, recorded: &Recorded, list: List, name: &str, of_process: bool) {
        match self {
            Document::Number(number)
                if is_zero(number) && !recorded.knows(list, name, of_process) =>
            {
                *self = Document::Null;
            }
            Document::Fields(fields) => {
                // Processes have no list of figures of their own, and the run has fields of the same names.
                let has_pid = fields.iter().any(|(field, _)| field == "pid");
                let of_process = of_process || list == List::Run && has_pid;
                for (field, value) in fields {
                    let name = match name {
                        "" => field.clone(),
                        of => format!("{of}.{field}"),
                    };
                    value.forget(recorded, list, &name, of_process);
                }
            }
            Document::List(rows) => {
                let of_rows = match name {
                    // They have the figures of their packages.
                    "sources" => Some(List::BundledPackages),
                    _ => List::ALL.into_iter().find(|list| list.name() == name),
                };
                for row in rows {
                    row.forget(recorded, of_rows.unwrap_or(list), "", of_process);
                }
            }
            _ => {}
        }
    }
}

fn is_zero(number: &Number) -> bool {
    number.as_f64() == Some(0.0)
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Document::Null => serializer.serialize_unit(),
            Document::Bool(value) => serializer.serialize_bool(*value),
            Document::Number(number) => number.serialize(serializer),
            Document::Text(text) => serializer.serialize_str(text),
            Document::List(rows) => {
                let mut list = serializer.serialize_seq(Some(rows.len()))?;
                for row in rows {
                    list.serialize_element(row)?;
                }
                list.end()
            }
            Document::Fields(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Document, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Document;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Document, E> {
                Ok(Document::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
                Ok(Document::Bool(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
                Ok(Document::Number(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
                Ok(Document::Number(value.into()))
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Document, E> {
                let number = Number::from_f64(value);
                number
                    .map(Document::Number)
                    .ok_or_else(|| E::custom("no number"))
            }

            fn visit_str<E>(self, text: &str) -> Result<Document, E> {
                Ok(Document::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Document, A::Error> {
                let mut rows = Vec::new();
                while let Some(row) = list.next_element()? {
                    rows.push(row);
                }
                Ok(Document::List(rows))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Document::Fields(fields))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
