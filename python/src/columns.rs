//! The columns of a batch by type, with one value for each row.

use crate::sys::{ArrowError, Batch, Column};

/// A column of 64-bit integers, none below 0.
pub struct Longs<'b> {
    name: &'static str,
    values: &'b [i64],
}

impl<'b> Longs<'b> {
    pub fn of(batch: &'b Batch<'_>, name: &'static str) -> Result<Self, ArrowError> {
        match batch.column(name)? {
            Column::Long(values) => Ok(Self { name, values }),
            other => Err(unlike(name, other, "64-bit integers")),
        }
    }

    pub fn get(&self, row: usize) -> Result<u64, RowError> {
        let value = self.values[row];
        u64::try_from(value).map_err(|_| RowError { column: self.name, value })
    }
}

/// A column of 32-bit integers, none below 0.
pub struct Ints<'b> {
    name: &'static str,
    values: &'b [i32],
}

impl<'b> Ints<'b> {
    pub fn of(batch: &'b Batch<'_>, name: &'static str) -> Result<Self, ArrowError> {
        match batch.column(name)? {
            Column::Int(values) => Ok(Self { name, values }),
            other => Err(unlike(name, other, "32-bit integers")),
        }
    }

    pub fn get(&self, row: usize) -> Result<u32, RowError> {
        let value = self.values[row];
        u32::try_from(value).map_err(|_| RowError { column: self.name, value: value.into() })
    }
}

/// A column of booleans.
pub struct Flags<'b> {
    bits: &'b [u8],
    /// The number of the bit that belongs to row 0.
    from: usize,
}

impl<'b> Flags<'b> {
    pub fn of(batch: &'b Batch<'_>, name: &'static str) -> Result<Self, ArrowError> {
        match batch.column(name)? {
            Column::Bits(bits, from) => Ok(Self { bits, from }),
            other => Err(unlike(name, other, "booleans")),
        }
    }

    pub fn get(&self, row: usize) -> bool {
        let at = self.from + row;
        self.bits[at / 8] >> (at % 8) & 1 == 1
    }
}

/// A column of texts.
pub struct Texts<'b> {
    name: &'static str,
    column: Column<'b>,
}

impl<'b> Texts<'b> {
    pub fn of(batch: &'b Batch<'_>, name: &'static str) -> Result<Self, ArrowError> {
        match batch.column(name)? {
            column @ (Column::Text(..) | Column::LargeText(..)) => Ok(Self { name, column }),
            other => Err(unlike(name, other, "text")),
        }
    }

    pub fn get(&self, row: usize) -> Result<&'b str, ArrowError> {
        let (from, to, bytes) = match self.column {
            Column::Text(ends, bytes) => (ends[row] as usize, ends[row + 1] as usize, bytes),
            Column::LargeText(ends, bytes) => (ends[row] as usize, ends[row + 1] as usize, bytes),
            _ => (0, 0, &[][..]),
        };
        let text = bytes.get(from..to).and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.ok_or(ArrowError::Malformed { column: self.name })
    }
}

/// A number below 0 in a column of sizes, times or numbers.
#[derive(Debug, thiserror::Error)]
#[error("column {column}: {value} is below 0")]
pub struct RowError {
    column: &'static str,
    value: i64,
}

fn unlike(column: &'static str, found: Column<'_>, expected: &'static str) -> ArrowError {
    let format = match found {
        Column::Long(_) => "l",
        Column::Int(_) => "i",
        Column::Bits(..) => "b",
        Column::Text(..) => "u",
        Column::LargeText(..) => "U",
    };
    ArrowError::Type { column, format: format.to_owned(), expected }
}
