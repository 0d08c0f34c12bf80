//! Writes a `ptrace` file.
//!
//! Records are gathered in blocks; [`TraceWriter::flush`] ends a block early, so that a recorder that is killed loses no more
//! than what came since. What could not be read back is refused here.

use std::io::{self, Write};

use zerocopy::IntoBytes;

use super::super::volumes::VOLUMES_MAX;
use super::super::{Fault, Record};
use super::layout::{
    BLOCK_RECORDS, BlockHeader, Header, KIND_END, KIND_RECORDS, KIND_VOLUMES, NAME_BYTES_MAX,
    RawRecord,
};

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file cannot be written.
    #[error("the trace cannot be written: {0}")]
    Io(#[from] io::Error),
    /// A record that no reader would take.
    #[error("a record cannot be written: {0}")]
    Record(Fault),
    /// A volume that was not named before.
    #[error("a record of volume {volume} cannot be written: only {volumes} volumes were named")]
    Volume {
        /// The record's volume.
        volume: u32,
        /// How many have names.
        volumes: u32,
    },
    /// A name that is too long.
    #[error("a volume's name of {bytes} bytes cannot be written: it may have {NAME_BYTES_MAX}")]
    Name {
        /// How long it is.
        bytes: usize,
    },
    /// The writer of tables.
    #[error("the Parquet file cannot be written: {0}")]
    Parquet(String),
}

/// Writes records, in order of time, as a `ptrace` file.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    to: W,
    volumes: u32,
    records: u64,
    last_ns: u64,
    block: Vec<RawRecord>,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace. `to` gets whole blocks: it needs no buffer of its own.
    pub fn new(mut to: W) -> Result<TraceWriter<W>, WriteError> {
        to.write_all(Header::new().as_bytes())?;
        Ok(TraceWriter {
            to,
            volumes: 0,
            records: 0,
            last_ns: 0,
            block: Vec::with_capacity(BLOCK_RECORDS),
        })
    }

    /// Names the next volume, and gives its index for records.
    pub fn volume(&mut self, name: &str) -> Result<u32, WriteError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(WriteError::Name { bytes: name.len() });
        }
        if self.volumes as usize == VOLUMES_MAX {
            return Err(WriteError::Record(Fault::TooManyVolumes {
                name: name.to_owned(),
                limit: VOLUMES_MAX,
            }));
        }
        let payload = [&(name.len() as u16).to_le_bytes(), name.as_bytes()].concat();
        self.put(KIND_VOLUMES, 1, &payload)?;
        self.volumes += 1;
        Ok(self.volumes - 1)
    }

    /// Writes a record.
    pub fn write(&mut self, record: &Record) -> Result<(), WriteError> {
        record.check(self.last_ns).map_err(WriteError::Record)?;
        if record.volume >= self.volumes {
            return Err(WriteError::Volume { volume: record.volume, volumes: self.volumes });
        }
        self.last_ns = record.time_ns;
        self.block.push(RawRecord::from(record));
        if self.block.len() == BLOCK_RECORDS {
            self.flush()?;
        }
        Ok(())
    }

    /// Hands over all that was written so far; the file can then be read that far, whatever happens to the writer.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if !self.block.is_empty() {
            let block = std::mem::take(&mut self.block);
            self.put(KIND_RECORDS, block.len(), block.as_bytes())?;
            self.records += block.len() as u64;
            self.block = block;
            self.block.clear();
        }
        Ok(self.to.flush()?)
    }

    /// Ends the trace. A file without this end is one that was cut, and its readers say so.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.flush()?;
        let records = self.records.to_le_bytes();
        self.put(KIND_END, 1, &records)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn put(&mut self, kind: u32, items: usize, payload: &[u8]) -> Result<(), WriteError> {
        self.to.write_all(BlockHeader::new(kind, items, payload).as_bytes())?;
        Ok(self.to.write_all(payload)?)
    }
}
