//! Traces of reads and writes: readers of the formats in which traces are published, and writers of
//! two formats.
//!
//! A [`TraceReader`] gives batches of [`Record`]s in the order of time, from packed or plain files,
//! text or binary. The format is detected from the file's contents unless it is given. Records are
//! checked where they are made (`sink`). An access of no bytes, one that ends beyond 2^63, or one
//! that goes back in time is an error that names file, line and value; up to `skip_bad` of them are
//! counted instead. Memory is bounded by the longest line, the names of volumes, and the records
//! that are held to put them in order.

mod binary;
mod columns;
mod detect;
mod error;
mod format;
pub mod generate;
mod input;
mod lines;
mod looks;
mod native;
mod options;
mod order;
mod packing;
#[cfg(feature = "formats")]
mod parquet;
mod reader;
mod record;
mod sink;
mod source;
mod text;
mod together;
mod unit;
mod volumes;

pub use columns::{Column, Columns, ColumnsError, Ops, Sizes};
pub use error::{Damage, Fault, Place, TraceError};
pub use format::Format;
pub use looks::Looks;
pub use native::{TraceWriter, WriteError};
pub use options::ReadOptions;
pub use packing::Packing;
#[cfg(feature = "formats")]
pub use parquet::ParquetWriter;
pub use reader::TraceReader;
pub use record::{ACCESS_BYTES_MAX, Op, PAGE_BYTES, Record};
pub use sink::Skipped;
pub use together::Together;
pub use unit::TimeUnit;
