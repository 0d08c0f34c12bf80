//! A batch of columns without nulls, borrowed through Arrow's C data interface while it is counted.
//!
//! The structures are those of <https://arrow.apache.org/docs/format/CDataInterface.html>. Their
//! producer promises that they are well-formed. Formats and the counts of buffers and children are
//! checked here.

use std::ffi::{CStr, c_char, c_void};
use std::slice;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: *mut c_void,
    private_data: *mut c_void,
}

#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: *mut c_void,
    private_data: *mut c_void,
}

const _: () = assert!(size_of::<ArrowSchema>() == 72 && size_of::<ArrowArray>() == 80);

/// Why a batch cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum ArrowError {
    /// The object is not a batch.
    #[error("a table's batch was expected, not an array of format {format:?}")]
    Batch {
        /// The Arrow format of the object.
        format: String,
    },
    /// The batch lacks a column.
    #[error("there is no column {column}; there are: {present}")]
    Column {
        /// The name of the column.
        column: &'static str,
        /// The columns that the batch has.
        present: String,
    },
    /// A column has a type that it cannot have.
    #[error("column {column} is of Arrow format {format:?}, where {expected} is expected")]
    Type {
        /// The name of the column.
        column: &'static str,
        /// The Arrow format of the column.
        format: String,
        /// The type that the column should have.
        expected: &'static str,
    },
    /// A column has rows without a value.
    #[error("column {column} has {count} rows without a value")]
    Nulls {
        /// The name of the column.
        column: &'static str,
        /// The number of rows without a value.
        count: i64,
    },
    /// The structure of a column contradicts itself.
    #[error("column {column} is not as the Arrow C data interface has it")]
    Malformed {
        /// The name of the column.
        column: &'static str,
    },
    /// The object gives no Arrow data, with these words of Python.
    #[error("{0}")]
    Python(String),
}

/// A batch that a Python object lends.
pub struct Batch<'py> {
    schema: Bound<'py, PyCapsule>,
    array: Bound<'py, PyCapsule>,
}

/// The values of a column, which live as long as its batch.
#[derive(Clone, Copy)]
pub enum Column<'b> {
    /// Integers of 64 bits.
    Long(&'b [i64]),
    /// Integers of 32 bits.
    Int(&'b [i32]),
    /// Bits, and the number of the first.
    Bits(&'b [u8], usize),
    /// The ends of texts in 32 bits, one more than there are texts, and their bytes.
    Text(&'b [i32], &'b [u8]),
    /// The ends of texts in 64 bits, one more than there are texts, and their bytes.
    LargeText(&'b [i64], &'b [u8]),
}

impl<'py> Batch<'py> {
    /// Borrows the batch of a `pyarrow.RecordBatch`, or of any object with `__arrow_c_array__`.
    pub fn of(object: &Bound<'py, PyAny>) -> Result<Self, ArrowError> {
        let python = |error: PyErr| ArrowError::Python(error.to_string());
        let lent = object.call_method0("__arrow_c_array__").map_err(python)?;
        let (schema, array): (Bound<'py, PyAny>, Bound<'py, PyAny>) =
            lent.extract().map_err(python)?;
        let capsule = |object: Bound<'py, PyAny>| {
            object.cast_into::<PyCapsule>().map_err(|error| ArrowError::Python(error.to_string()))
        };
        let batch = Self { schema: capsule(schema)?, array: capsule(array)? };
        let format = text(batch.schema()?.format);
        if format == "+s" { Ok(batch) } else { Err(ArrowError::Batch { format }) }
    }

    /// The number of rows.
    pub fn rows(&self) -> Result<usize, ArrowError> {
        usize::try_from(self.array()?.length).map_err(|_| ArrowError::Malformed { column: "batch" })
    }

    /// The values of a column, one for each row.
    pub fn column(&self, column: &'static str) -> Result<Column<'_>, ArrowError> {
        let malformed = || ArrowError::Malformed { column };
        let (schema, array) = (self.schema()?, self.array()?);
        let (count, other) = (number(schema.n_children)?, number(array.n_children)?);
        if count != other {
            return Err(malformed());
        }
        let mut present = Vec::new();
        for at in 0..count {
            // SAFETY: the interface promises `n_children` valid pointers in each; both live as long
            // as the capsules.
            let (schema, child) =
                unsafe { (&**schema.children.add(at), &**array.children.add(at)) };
            if text(schema.name) == column {
                let from = array.offset.checked_add(child.offset).ok_or_else(malformed)?;
                return values(column, schema, child, number(from)?, self.rows()?);
            }
            present.push(text(schema.name));
        }
        Err(ArrowError::Column { column, present: present.join(", ") })
    }

    fn schema(&self) -> Result<&ArrowSchema, ArrowError> {
        let at = self.schema.pointer_checked(Some(c"arrow_schema"));
        let at = at.map_err(|error| ArrowError::Python(error.to_string()))?;
        // SAFETY: a capsule of this name holds an `ArrowSchema`, which nobody moves out while we
        // hold the capsule.
        Ok(unsafe { at.cast::<ArrowSchema>().as_ref() })
    }

    fn array(&self) -> Result<&ArrowArray, ArrowError> {
        let at = self.array.pointer_checked(Some(c"arrow_array"));
        let at = at.map_err(|error| ArrowError::Python(error.to_string()))?;
        // SAFETY: a capsule of this name holds an `ArrowArray`, which nobody moves out while we
        // hold the capsule.
        Ok(unsafe { at.cast::<ArrowArray>().as_ref() })
    }
}

/// The values of rows `from` to `from + rows` of the child `array`.
fn values<'b>(
    column: &'static str,
    schema: &ArrowSchema,
    array: &'b ArrowArray,
    from: usize,
    rows: usize,
) -> Result<Column<'b>, ArrowError> {
    let malformed = || ArrowError::Malformed { column };
    let format = text(schema.format);
    let buffers = if matches!(format.as_str(), "u" | "U") { 3 } else { 2 };
    let end = from.checked_add(rows).ok_or_else(malformed)?;
    if array.n_buffers != buffers || number(array.length)? < rows {
        return Err(malformed());
    }
    // SAFETY: the interface promises `n_buffers` pointers. The first is null, or points to the bits
    // that say which values are present.
    let (present, data) = unsafe { (*array.buffers, *array.buffers.add(1)) };
    if array.null_count != 0 && !present.is_null() {
        // SAFETY: the bitmap has a bit for each row of the child, of which `end` is not more.
        let bits = unsafe { slice::from_raw_parts(present.cast::<u8>(), end.div_ceil(8)) };
        let count = (from..end).filter(|row| bits[row / 8] >> (row % 8) & 1 == 0).count() as i64;
        if count > 0 {
            return Err(ArrowError::Nulls { column, count });
        }
    }
    if rows == 0 {
        return Ok(match format.as_str() {
            "l" => Column::Long(&[]),
            "i" => Column::Int(&[]),
            "b" => Column::Bits(&[], 0),
            "u" => Column::Text(&[0], &[]),
            "U" => Column::LargeText(&[0], &[]),
            _ => return Err(unexpected(column, format)),
        });
    }
    if data.is_null() {
        return Err(malformed());
    }
    Ok(match format.as_str() {
        // SAFETY: the interface promises that a buffer is aligned and as long as format, offset and
        // length say, for this and the formats below. Nobody writes to it while it is lent.
        "l" => Column::Long(unsafe { slice::from_raw_parts(data.cast::<i64>().add(from), rows) }),
        // SAFETY: as above.
        "i" => Column::Int(unsafe { slice::from_raw_parts(data.cast::<i32>().add(from), rows) }),
        "b" => Column::Bits(
            // SAFETY: as above.
            unsafe { slice::from_raw_parts(data.cast::<u8>(), end.div_ceil(8)) },
            from,
        ),
        "u" => {
            // SAFETY: as above, and one end more than there are rows.
            let ends = unsafe { slice::from_raw_parts(data.cast::<i32>().add(from), rows + 1) };
            Column::Text(ends, bytes(column, array, i64::from(ends[rows]))?)
        }
        "U" => {
            // SAFETY: as above.
            let ends = unsafe { slice::from_raw_parts(data.cast::<i64>().add(from), rows + 1) };
            Column::LargeText(ends, bytes(column, array, ends[rows])?)
        }
        _ => return Err(unexpected(column, format)),
    })
}

/// The bytes of all texts of a column; `end` is where the last text ends.
fn bytes<'b>(
    column: &'static str,
    array: &'b ArrowArray,
    end: i64,
) -> Result<&'b [u8], ArrowError> {
    // SAFETY: a text column has three buffers, which `values` has checked.
    let data = unsafe { *array.buffers.add(2) };
    match number(end)? {
        0 => Ok(&[]),
        _ if data.is_null() => Err(ArrowError::Malformed { column }),
        // SAFETY: the last end is within the bytes; nobody writes to them while they are lent.
        end => Ok(unsafe { slice::from_raw_parts(data.cast::<u8>(), end) }),
    }
}

fn unexpected(column: &'static str, format: String) -> ArrowError {
    let expected = "a 32- or 64-bit integer (i, l), a boolean (b) or text (u, U)";
    ArrowError::Type { column, format, expected }
}

fn number(value: i64) -> Result<usize, ArrowError> {
    usize::try_from(value).map_err(|_| ArrowError::Malformed { column: "batch" })
}

fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: the interface promises a text that ends with a zero, for as long as the schema lives.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}
