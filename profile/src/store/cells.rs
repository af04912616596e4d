//! How each type of a recording lies in a column.

use rusqlite::types::{Null, ValueRef};
use rusqlite::{Row, Statement};

use super::digest::Digest;
use crate::recording::{
    BinaryId, CallbackId, CompilationUnit, CrossingKind, FileOperation, FrameId, FrameKind, NameId,
    Nanoseconds, ProcessId, RunId, StackId, ThreadId, Tier, WaitReason,
};

/// Binds one value after the other to a statement.
pub(super) struct RowWriter<'a, 'database> {
    pub(super) statement: &'a mut Statement<'database>,
    pub(super) digest: &'a mut Digest,
    /// Parameters bound so far.
    pub(super) bound: usize,
}

impl RowWriter<'_, '_> {
    fn bind(&mut self, value: ValueRef<'_>) -> rusqlite::Result<()> {
        self.digest.value(value);
        self.bound += 1;
        let at = self.bound;
        match value {
            ValueRef::Integer(integer) => self.statement.raw_bind_parameter(at, integer),
            ValueRef::Null => self.statement.raw_bind_parameter(at, Null),
            other => {
                let value = rusqlite::types::ToSqlOutput::Borrowed(other);
                self.statement.raw_bind_parameter(at, value)
            }
        }
    }

    pub(super) fn integer(&mut self, integer: Option<i64>) -> rusqlite::Result<()> {
        self.bind(integer.map_or(ValueRef::Null, ValueRef::Integer))
    }
}

/// Takes one value after the other from a row.
pub(super) struct RowReader<'a, 'row> {
    pub(super) row: &'a Row<'row>,
    pub(super) digest: &'a mut Digest,
    /// Columns taken so far.
    pub(super) taken: usize,
}

/// A value that we do not write.
pub(super) struct BadCell {
    pub(super) needed: &'static str,
    /// What it is, where that is not the mere type.
    pub(super) found: Option<String>,
}

impl BadCell {
    fn needs<T>(needed: &'static str) -> Result<T, BadCell> {
        Err(BadCell {
            needed,
            found: None,
        })
    }
}

impl<'a> RowReader<'a, '_> {
    fn take(&mut self) -> Result<ValueRef<'a>, BadCell> {
        let value = self.row.get_ref(self.taken).map_err(|error| BadCell {
            needed: "a value",
            found: Some(error.to_string()),
        })?;
        self.taken += 1;
        self.digest.value(value);
        Ok(value)
    }

    pub(super) fn integer(&mut self) -> Result<Option<i64>, BadCell> {
        match self.take()? {
            ValueRef::Integer(integer) => Ok(Some(integer)),
            ValueRef::Null => Ok(None),
            _ => BadCell::needs("an integer"),
        }
    }
}

/// A type that fills one column.
pub(super) trait Cell: Sized {
    fn write(&self, row: &mut RowWriter<'_, '_>) -> rusqlite::Result<()>;
    fn read(row: &mut RowReader<'_, '_>) -> Result<Self, BadCell>;
}

/// A type that fits into an integer and is never NULL.
trait Integer: Copy {
    const NEEDED: &'static str;
    fn to_integer(self) -> i64;
    fn from_integer(integer: i64) -> Option<Self>;
}

impl<T: Integer> Cell for T {
    fn write(&self, row: &mut RowWriter<'_, '_>) -> rusqlite::Result<()> {
        row.integer(Some(self.to_integer()))
    }
    fn read(row: &mut RowReader<'_, '_>) -> Result<Self, BadCell> {
        match Option::<T>::read(row)? {
            Some(value) => Ok(value),
            None => BadCell::needs(T::NEEDED),
        }
    }
}

impl<T: Integer> Cell for Option<T> {
    fn write(&self, row: &mut RowWriter<'_, '_>) -> rusqlite::Result<()> {
        row.integer(self.map(T::to_integer))
    }
    fn read(row: &mut RowReader<'_, '_>) -> Result<Self, BadCell> {
        let Some(integer) = row.integer()? else {
            return Ok(None);
        };
        match T::from_integer(integer) {
            Some(value) => Ok(Some(value)),
            None => Err(BadCell {
                needed: T::NEEDED,
                found: Some(integer.to_string()),
            }),
        }
    }
}

macro_rules! fits {
    ($($type:ty: $needed:literal),*) => {$(
        impl Integer for $type {
            const NEEDED: &'static str = $needed;
            fn to_integer(self) -> i64 {
                self.into()
            }
            fn from_integer(integer: i64) -> Option<Self> {
                integer.try_into().ok()
            }
        }
    )*};
}
fits!(u8: "0 to 255", u16: "0 to 65535", u32: "0 to 2^32 - 1", i32: "a 32-bit integer", i64: "an integer");

impl Integer for bool {
    const NEEDED: &'static str = "0 or 1";
    fn to_integer(self) -> i64 {
        self.into()
    }
    fn from_integer(integer: i64) -> Option<Self> {
        match integer {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// The upper half of u64 appears as negative integers: SQLite has no others, and a round trip must not lose them.
impl Integer for u64 {
    const NEEDED: &'static str = "an integer";
    fn to_integer(self) -> i64 {
        self as i64
    }
    fn from_integer(integer: i64) -> Option<Self> {
        Some(integer as u64)
    }
}

impl Integer for Nanoseconds {
    const NEEDED: &'static str = "nanoseconds";
    fn to_integer(self) -> i64 {
        self.0.to_integer()
    }
    fn from_integer(integer: i64) -> Option<Self> {
        u64::from_integer(integer).map(Nanoseconds)
    }
}

macro_rules! index {
    ($($type:ident),*) => {$(
        impl Integer for $type {
            const NEEDED: &'static str = "an id, 0 to 2^32 - 1";
            fn to_integer(self) -> i64 {
                self.0.into()
            }
            fn from_integer(integer: i64) -> Option<Self> {
                integer.try_into().ok().map($type)
            }
        }
    )*};
}
index!(
    RunId, ProcessId, BinaryId, CallbackId, NameId, FrameId, StackId, ThreadId
);

macro_rules! choice {
    ($type:ident: $needed:literal, $($variant:ident),*) => {
        impl Integer for $type {
            const NEEDED: &'static str = $needed;
            fn to_integer(self) -> i64 {
                // A match, so that a new variant cannot be written and then not be read.
                match self {
                    $($type::$variant => $type::$variant as i64,)*
                }
            }
            fn from_integer(integer: i64) -> Option<Self> {
                $(if integer == $type::$variant as i64 {
                    return Some($type::$variant);
                })*
                None
            }
        }
    };
}
choice!(CrossingKind: "an id of crossing_kind", Slow, Fast, Getter, Construct, ToJs);
choice!(FileOperation: "an id of file_operation", Stat, Open, Read, Readlink, Close, Access);
choice!(CompilationUnit: "an id of compilation_unit", Builtin, Function, Module, Script);
choice!(FrameKind: "an id of frame_kind", JavaScript, Builtin, Native, Library, AddOn, Kernel, Unknown, WebAssembly);
choice!(Tier: "an id of tier", Interpreted, Baseline, Optimized);
choice!(WaitReason: "an id of wait_reason", File, PageFault, Child, Lock, Idle, Preempted, Other);

impl Cell for f64 {
    fn write(&self, row: &mut RowWriter<'_, '_>) -> rusqlite::Result<()> {
        row.bind(ValueRef::Real(*self))
    }
    fn read(row: &mut RowReader<'_, '_>) -> Result<Self, BadCell> {
        match row.take()? {
            ValueRef::Real(real) => Ok(real),
            _ => BadCell::needs("a real number"),
        }
    }
}

impl Cell for String {
    fn write(&self, row: &mut RowWriter<'_, '_>) -> rusqlite::Result<()> {
        row.bind(ValueRef::Text(self.as_bytes()))
    }
    fn read(row: &mut RowReader<'_, '_>) -> Result<Self, BadCell> {
        match Option::read(row)? {
            Some(text) => Ok(text),
            None => BadCell::needs("text"),
        }
    }
}

impl Cell for Option<String> {
    fn write(&self, row: &mut RowWriter<'_, '_>) -> rusqlite::Result<()> {
        match self {
            Some(text) => text.write(row),
            None => row.integer(None),
        }
    }
    fn read(row: &mut RowReader<'_, '_>) -> Result<Self, BadCell> {
        match row.take()? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text.to_owned())),
                Err(_) => BadCell::needs("text in UTF-8"),
            },
            _ => BadCell::needs("text"),
        }
    }
}

/// Bytes: TEXT where they are text, so that one can read and compare them in SQL, else BLOB.
impl Cell for Vec<u8> {
    fn write(&self, row: &mut RowWriter<'_, '_>) -> rusqlite::Result<()> {
        // SQL functions take a NUL for the end of a text.
        let is_text = std::str::from_utf8(self).is_ok() && !self.contains(&0);
        row.bind(if is_text {
            ValueRef::Text(self)
        } else {
            ValueRef::Blob(self)
        })
    }
    fn read(row: &mut RowReader<'_, '_>) -> Result<Self, BadCell> {
        match row.take()? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Ok(bytes.to_vec()),
            _ => BadCell::needs("text or bytes"),
        }
    }
}

/// A list of arguments: a JSON array, or, where one is not UTF-8, a BLOB of each one's length (u32, little-endian) and
/// bytes.
impl Cell for Vec<Vec<u8>> {
    fn write(&self, row: &mut RowWriter<'_, '_>) -> rusqlite::Result<()> {
        let texts: Result<Vec<&str>, _> =
            self.iter().map(|item| std::str::from_utf8(item)).collect();
        if let Ok(texts) = texts
            && let Ok(json) = serde_json::to_string(&texts)
        {
            return row.bind(ValueRef::Text(json.as_bytes()));
        }
        let mut blob = Vec::new();
        for item in self {
            let length = u32::try_from(item.len())
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            blob.extend(length.to_le_bytes());
            blob.extend(item);
        }
        row.bind(ValueRef::Blob(&blob))
    }
    fn read(row: &mut RowReader<'_, '_>) -> Result<Self, BadCell> {
        const NEEDED: &str = "a list: a JSON array of strings, or a BLOB of lengths and bytes";
        match row.take()? {
            ValueRef::Text(json) => match serde_json::from_slice::<Vec<String>>(json) {
                Ok(list) => Ok(list.into_iter().map(String::into_bytes).collect()),
                Err(_) => BadCell::needs(NEEDED),
            },
            ValueRef::Blob(mut blob) => {
                let mut list = Vec::new();
                while let Some((length, rest)) = blob.split_first_chunk() {
                    let length = u32::from_le_bytes(*length) as usize;
                    let Some((item, rest)) = rest.split_at_checked(length) else {
                        return BadCell::needs(NEEDED);
                    };
                    list.push(item.to_vec());
                    blob = rest;
                }
                match blob {
                    [] => Ok(list),
                    _ => BadCell::needs(NEEDED),
                }
            }
            _ => BadCell::needs(NEEDED),
        }
    }
}

/// An instant, stored as its distance from an origin: four bytes instead of eight, and readable.
pub(super) trait InstantCell: Sized {
    fn write_since(&self, origin: Nanoseconds, row: &mut RowWriter<'_, '_>)
    -> rusqlite::Result<()>;
    fn read_since(origin: Nanoseconds, row: &mut RowReader<'_, '_>) -> Result<Self, BadCell>;
}

impl InstantCell for Option<Nanoseconds> {
    fn write_since(
        &self,
        origin: Nanoseconds,
        row: &mut RowWriter<'_, '_>,
    ) -> rusqlite::Result<()> {
        row.integer(self.map(|at| at.0.wrapping_sub(origin.0) as i64))
    }
    fn read_since(origin: Nanoseconds, row: &mut RowReader<'_, '_>) -> Result<Self, BadCell> {
        let distance = row.integer()?;
        Ok(distance.map(|distance| Nanoseconds(origin.0.wrapping_add(distance as u64))))
    }
}

impl InstantCell for Nanoseconds {
    fn write_since(
        &self,
        origin: Nanoseconds,
        row: &mut RowWriter<'_, '_>,
    ) -> rusqlite::Result<()> {
        Some(*self).write_since(origin, row)
    }
    fn read_since(origin: Nanoseconds, row: &mut RowReader<'_, '_>) -> Result<Self, BadCell> {
        match Option::read_since(origin, row)? {
            Some(at) => Ok(at),
            None => BadCell::needs("nanoseconds"),
        }
    }
}
