//! Columns of numbers as bytes: small once compressed, and read by the page without parsing text.

use serde::Serialize;

/// Where a column is, for the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Column {
    /// First byte.
    at: usize,
    /// How many numbers.
    count: usize,
    /// How they are written.
    form: Form,
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    /// Each as a variable-length integer: seven bits a byte, the lowest first, the sign in the lowest bit of all.
    Integers,
    /// The same, each less the one before.
    Differences,
    /// Eight bytes each, IEEE 754, little-endian.
    Floats,
}

/// The bytes of all columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    pub(super) bytes: Vec<u8>,
}

impl Columns {
    /// A column of integers.
    pub(super) fn integers(&mut self, numbers: impl Iterator<Item = i64>) -> Column {
        self.column(Form::Integers, numbers, |bytes, number| {
            write(bytes, number)
        })
    }

    /// A column of integers that are near the one before.
    pub(super) fn differences(&mut self, numbers: impl Iterator<Item = i64>) -> Column {
        let mut last = 0i64;
        self.column(Form::Differences, numbers, |bytes, number| {
            write(bytes, number.wrapping_sub(last));
            last = number;
        })
    }

    /// A column of floats; NaN stands for what is not known.
    pub(super) fn floats(&mut self, numbers: impl Iterator<Item = f64>) -> Column {
        self.column(Form::Floats, numbers, |bytes, number| {
            bytes.extend_from_slice(&number.to_le_bytes());
        })
    }

    fn column<T>(
        &mut self,
        form: Form,
        numbers: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Vec<u8>, T),
    ) -> Column {
        let at = self.bytes.len();
        let mut count = 0;
        for number in numbers {
            write(&mut self.bytes, number);
            count += 1;
        }
        Column { at, count, form }
    }
}

fn write(bytes: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_of_either_sign_take_one_byte() {
        let mut columns = Columns::default();
        let column = columns.integers([0, -1, 1, 63, -64].into_iter());
        assert_eq!(columns.bytes, [0, 1, 2, 126, 127]);
        assert_eq!((column.at, column.count), (0, 5));
    }

    #[test]
    fn a_column_of_differences_begins_anew() {
        let mut columns = Columns::default();
        columns.differences([1_000_000, 1_000_001].into_iter());
        let column = columns.differences([5, 5].into_iter());
        assert_eq!(column.at, 4);
        assert_eq!(columns.bytes[4..], [10, 0]);
    }

    #[test]
    fn the_largest_numbers_are_written_whole() {
        let mut columns = Columns::default();
        columns.integers([i64::MAX, i64::MIN].into_iter());
        assert_eq!(columns.bytes.len(), 20);
    }
}
