//! Parquet files with a column for each part of a record, read and written by the low-level
//! interface of the `parquet` crate.
//!
//! Columns are read a few thousand rows at a time, one row group after another: what is held is a
//! page of each chosen column. Files of others have many types for one thing; what a value is goes
//! by the column's physical type, and the unit of a time by its logical one where none was given.

mod guarded;
mod leaf;
mod reader;
mod source;
mod writer;

pub(crate) use reader::Rows;
pub(crate) use source::Stored;
pub use writer::ParquetWriter;
