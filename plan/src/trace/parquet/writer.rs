//! Writes Parquet files with the columns `time_ns`, `volume` (its name), `op` (0 reads, 1 writes),
//! `offset_bytes` and `len_bytes`.
//!
//! Numbers are signed 64-bit words, which every reader of Parquet supports. So times are written
//! relative to a start that the writer is given, because some sources count from 1601. A row group
//! is held in memory until it is full.

use std::io::Write;
use std::sync::Arc;

use ::parquet::basic::{Compression, Encoding};
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;
use ::parquet::schema::types::ColumnPath;

use super::super::native::WriteError;
use super::super::volumes::VOLUMES_MAX;
use super::super::{Fault, Op, Record};

const SCHEMA: &str = "message trace {
    required int64 time_ns;
    required binary volume (utf8);
    required int32 op;
    required int64 offset_bytes;
    required int64 len_bytes;
}";

/// The rows of a row group: some 20 MB of columns.
const GROUP_ROWS: usize = 1 << 19;

/// The rows of the group that is being written, by column.
#[derive(Default)]
struct Group {
    time: Vec<i64>,
    volume: Vec<ByteArray>,
    op: Vec<i32>,
    offset: Vec<i64>,
    len: Vec<i64>,
}

/// Writes records, in order of time, as a Parquet file.
pub struct ParquetWriter<W: Write + Send> {
    to: SerializedFileWriter<W>,
    start_ns: u64,
    volumes: Vec<ByteArray>,
    last_ns: u64,
    group: Group,
}

impl From<ParquetError> for WriteError {
    fn from(error: ParquetError) -> WriteError {
        WriteError::Parquet(error.to_string())
    }
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Starts a file whose times count from `start_ns` on.
    pub fn new(to: W, start_ns: u64) -> Result<ParquetWriter<W>, WriteError> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_dictionary_enabled(true);
        // Times hardly repeat, but their differences are small.
        let time = ColumnPath::from("time_ns");
        properties = properties
            .set_column_dictionary_enabled(time.clone(), false)
            .set_column_encoding(time, Encoding::DELTA_BINARY_PACKED);
        let to = SerializedFileWriter::new(to, schema, Arc::new(properties.build()))?;
        Ok(ParquetWriter { to, start_ns, volumes: Vec::new(), last_ns: 0, group: Group::default() })
    }

    /// Names the next volume, and gives its index for records.
    pub fn volume(&mut self, name: &str) -> Result<u32, WriteError> {
        if self.volumes.len() == VOLUMES_MAX {
            return Err(WriteError::Record(Fault::TooManyVolumes {
                name: name.to_owned(),
                limit: VOLUMES_MAX,
            }));
        }
        self.volumes.push(ByteArray::from(name));
        Ok(self.volumes.len() as u32 - 1)
    }

    /// Writes a record, which must not be before the last one.
    pub fn write(&mut self, record: &Record) -> Result<(), WriteError> {
        record.check(self.last_ns.max(self.start_ns)).map_err(WriteError::Record)?;
        let volumes = self.volumes.len() as u32;
        let name = self.volumes.get(record.volume as usize);
        let name = name.ok_or(WriteError::Volume { volume: record.volume, volumes })?;
        let time = i64::try_from(record.time_ns - self.start_ns).map_err(|_| {
            let value = record.time_ns.to_string();
            WriteError::Record(Fault::TooLarge {
                column: "time",
                value,
                unit: "ns after the start, with a sign",
            })
        })?;
        let group = &mut self.group;
        group.time.push(time);
        group.volume.push(name.clone());
        group.op.push(i32::from(record.op == Op::Write));
        // Both are below 2^63, or just that: an access of all that can be addressed.
        group.offset.push(record.offset_bytes as i64);
        group.len.push(i64::try_from(record.len_bytes).unwrap_or(i64::MAX));
        self.last_ns = record.time_ns;
        if group.time.len() == GROUP_ROWS {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the last group and the end of the file.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.flush()?;
        Ok(self.to.into_inner()?)
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        if self.group.time.is_empty() {
            return Ok(());
        }
        let mut rows = self.to.next_row_group()?;
        let group = &mut self.group;
        column::<Int64Type, _>(&mut rows, &mut group.time)?;
        column::<ByteArrayType, _>(&mut rows, &mut group.volume)?;
        column::<Int32Type, _>(&mut rows, &mut group.op)?;
        column::<Int64Type, _>(&mut rows, &mut group.offset)?;
        column::<Int64Type, _>(&mut rows, &mut group.len)?;
        rows.close()?;
        Ok(())
    }
}

fn column<T: DataType, W: Write + Send>(
    rows: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<T::T>,
) -> Result<(), WriteError> {
    if let Some(mut column) = rows.next_column()? {
        column.typed::<T>().write_batch(values, None, None)?;
        column.close()?;
    }
    values.clear();
    Ok(())
}
