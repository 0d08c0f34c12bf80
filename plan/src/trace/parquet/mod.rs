//! Parquet files with a column for each part of a record, read and written with the low-level
//! interface of the `parquet` crate.
//!
//! Columns are read a few thousand rows at a time, one row group after another, so only one page of
//! each chosen column is held. Other programs use many types for the same thing: the column's
//! physical type decides how a value is read, and its logical type gives the unit of times where
//! the user gives none.

mod guarded;
mod leaf;
mod reader;
mod source;
mod writer;

pub(crate) use reader::Rows;
pub(crate) use source::Stored;
pub use writer::ParquetWriter;
