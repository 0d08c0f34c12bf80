//! Reads one column, a few thousand values at a time, whatever type it is stored as.

use ::parquet::column::reader::ColumnReader;
use ::parquet::data_type::{ByteArray, FixedLenByteArray, Int96};
use ::parquet::errors::Result;

use super::super::Fault;
use super::super::TimeUnit;
use super::super::text::fields::{self, shown};

/// The values of the rows that were read, as the column stores them.
enum Values {
    Bool(Vec<bool>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Int96(Vec<Int96>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Vec<ByteArray>),
    Fixed(Vec<FixedLenByteArray>),
}

/// A value of a column.
pub(crate) enum Value<'a> {
    /// A whole number that is not negative.
    Whole(u64),
    /// A whole number below 0.
    Negative(i64),
    /// A number with decimals.
    Decimal(f64),
    /// Text, or other bytes.
    Bytes(&'a [u8]),
    /// Nanoseconds since 1970, as files of old Spark versions have them.
    Nanos(i64),
}

pub(crate) struct Leaf {
    reader: ColumnReader,
    values: Values,
    is_signed: bool,
    is_optional: bool,
    levels: Vec<i16>,
    /// The place of each row's value, where some rows have none.
    places: Vec<u32>,
}

/// Marks a row without a value.
const NULL: u32 = u32::MAX;

impl Leaf {
    pub(crate) fn new(reader: ColumnReader, is_signed: bool, is_optional: bool) -> Leaf {
        let values = match &reader {
            ColumnReader::BoolColumnReader(_) => Values::Bool(Vec::new()),
            ColumnReader::Int32ColumnReader(_) => Values::Int32(Vec::new()),
            ColumnReader::Int64ColumnReader(_) => Values::Int64(Vec::new()),
            ColumnReader::Int96ColumnReader(_) => Values::Int96(Vec::new()),
            ColumnReader::FloatColumnReader(_) => Values::Float(Vec::new()),
            ColumnReader::DoubleColumnReader(_) => Values::Double(Vec::new()),
            ColumnReader::ByteArrayColumnReader(_) => Values::Bytes(Vec::new()),
            ColumnReader::FixedLenByteArrayColumnReader(_) => Values::Fixed(Vec::new()),
        };
        Leaf { reader, values, is_signed, is_optional, levels: Vec::new(), places: Vec::new() }
    }

    /// Reads the values of the next rows, at most that many; how many rows those were.
    pub(crate) fn read(&mut self, rows: usize) -> Result<usize> {
        self.levels.clear();
        self.places.clear();
        let levels = &mut self.levels;
        let is_optional = self.is_optional;
        macro_rules! read {
            ($reader:expr, $values:expr) => {{
                $values.clear();
                let mut read = 0;
                while read < rows {
                    let levels = is_optional.then_some(&mut *levels);
                    match $reader.read_records(rows - read, levels, None, $values)?.0 {
                        0 => break,
                        some => read += some,
                    }
                }
                (read, $values.len())
            }};
        }
        let (read, values) = match (&mut self.reader, &mut self.values) {
            (ColumnReader::BoolColumnReader(reader), Values::Bool(values)) => read!(reader, values),
            (ColumnReader::Int32ColumnReader(reader), Values::Int32(values)) => {
                read!(reader, values)
            }
            (ColumnReader::Int64ColumnReader(reader), Values::Int64(values)) => {
                read!(reader, values)
            }
            (ColumnReader::Int96ColumnReader(reader), Values::Int96(values)) => {
                read!(reader, values)
            }
            (ColumnReader::FloatColumnReader(reader), Values::Float(values)) => {
                read!(reader, values)
            }
            (ColumnReader::DoubleColumnReader(reader), Values::Double(values)) => {
                read!(reader, values)
            }
            (ColumnReader::ByteArrayColumnReader(reader), Values::Bytes(values)) => {
                read!(reader, values)
            }
            (ColumnReader::FixedLenByteArrayColumnReader(reader), Values::Fixed(values)) => {
                read!(reader, values)
            }
            // Both are made of one reader.
            _ => (0, 0),
        };
        if values < read {
            let mut next = 0;
            self.places.extend(self.levels.iter().map(|&level| {
                let place = if level == 0 { NULL } else { next };
                next += u32::from(level != 0);
                place
            }));
        }
        Ok(read)
    }

    /// The value of one of the rows that were read; `None` where the row has none.
    #[inline(always)]
    pub(crate) fn value(&self, row: usize) -> Option<Value<'_>> {
        let place = match self.places.is_empty() {
            true => row,
            false => self.places.get(row).copied().filter(|&place| place != NULL)? as usize,
        };
        Some(match &self.values {
            Values::Int64(values) => match *values.get(place)? {
                value if value < 0 && self.is_signed => Value::Negative(value),
                value => Value::Whole(value as u64),
            },
            Values::Int32(values) => match *values.get(place)? {
                value if value < 0 && self.is_signed => Value::Negative(value.into()),
                value => Value::Whole((value as u32).into()),
            },
            Values::Bytes(values) => Value::Bytes(values.get(place)?.data()),
            Values::Fixed(values) => Value::Bytes(values.get(place)?.data()),
            Values::Bool(values) => Value::Whole((*values.get(place)?).into()),
            Values::Int96(values) => Value::Nanos(values.get(place)?.to_nanos()),
            Values::Float(values) => Value::Decimal((*values.get(place)?).into()),
            Values::Double(values) => Value::Decimal(*values.get(place)?),
        })
    }

    /// The value of a row as a whole number.
    #[inline]
    pub(crate) fn number(
        &self,
        column: &'static str,
        row: usize,
    ) -> std::result::Result<u64, Box<Fault>> {
        // Nearly all columns of numbers are such words.
        if let (Values::Int64(values), true) = (&self.values, self.places.is_empty())
            && let Some(&value) = values.get(row)
            && value >= 0
        {
            return Ok(value as u64);
        }
        match self.value(row) {
            Some(Value::Whole(number)) => Ok(number),
            Some(Value::Bytes(text)) => fields::number(column, text),
            Some(Value::Decimal(number))
                if number >= 0.0 && number.fract() == 0.0 && number < WORD =>
            {
                Ok(number as u64)
            }
            value => Err(odd(column, value, "a whole number")),
        }
    }

    /// The value of a row as a time, nanoseconds.
    #[inline]
    pub(crate) fn time_ns(
        &self,
        row: usize,
        unit: TimeUnit,
    ) -> std::result::Result<u64, Box<Fault>> {
        let too_large =
            |value: String| Box::new(Fault::TooLarge { column: "time", value, unit: "ns" });
        match self.value(row) {
            Some(Value::Whole(time)) => {
                time.checked_mul(unit.ns()).ok_or_else(|| too_large(time.to_string()))
            }
            Some(Value::Nanos(ns)) if ns >= 0 => Ok(ns as u64),
            Some(Value::Bytes(text)) => fields::time_ns("time", text, unit),
            // As in a table of text.
            Some(Value::Decimal(time)) if unit == TimeUnit::Nanos && time.fract() > 0.0 => {
                Err(Box::new(Fault::PartOfNano { column: "time", value: time.to_string() }))
            }
            Some(Value::Decimal(time)) if time >= 0.0 && time.is_finite() => {
                match (time * unit.ns() as f64).floor() {
                    ns if ns < WORD => Ok(ns as u64),
                    _ => Err(too_large(time.to_string())),
                }
            }
            value => Err(odd("time", value, "a time")),
        }
    }
}

/// The smallest number that 64 bits do not hold.
const WORD: f64 = 18_446_744_073_709_551_616.0;

/// The fault of a value that its column cannot have.
#[cold]
pub(crate) fn odd(
    column: &'static str,
    value: Option<Value<'_>>,
    expected: &'static str,
) -> Box<Fault> {
    Box::new(match value {
        None => Fault::Value { column, value: "null".to_owned(), expected },
        Some(Value::Negative(number) | Value::Nanos(number)) => {
            Fault::Negative { column, value: number.to_string() }
        }
        Some(Value::Decimal(number)) if number < 0.0 => {
            Fault::Negative { column, value: number.to_string() }
        }
        Some(Value::Decimal(number)) => {
            Fault::Value { column, value: number.to_string(), expected }
        }
        Some(Value::Whole(number)) => Fault::Value { column, value: number.to_string(), expected },
        Some(Value::Bytes(bytes)) => Fault::Value { column, value: shown(bytes), expected },
    })
}
