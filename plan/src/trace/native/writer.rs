//! Writes a `ptrace` file.
//!
//! Records are gathered in blocks. [`TraceWriter::flush`] ends a block early, so that a recorder
//! that is killed loses only the records since then. Records that could not be read back are
//! refused.

use std::io::{self, Write};

use zerocopy::IntoBytes;

use super::super::volumes::VOLUMES_MAX;
use super::super::{Fault, Looks, Record};
use super::layout::{
    BLOCK_RECORDS, BlockHeader, Header, KIND_END, KIND_LOOKS, KIND_RECORDS, KIND_VOLUMES,
    NAME_BYTES_MAX, RawLooks, RawRecord, VERSION, VERSION_LOOKS,
};

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file cannot be written.
    #[error("the trace cannot be written: {0}")]
    Io(#[from] io::Error),
    /// The file could not be written before, so it may end in half a block, and nothing can follow
    /// that.
    #[error("nothing is written behind a block that could not be written whole")]
    Cut,
    /// No reader would take the record.
    #[error("a record cannot be written: {0}")]
    Record(Fault),
    /// The record's volume was not named before.
    #[error("a record of volume {volume} cannot be written: only {volumes} volumes were named")]
    Volume {
        /// The number of the record's volume.
        volume: u32,
        /// How many volumes have names.
        volumes: u32,
    },
    /// The looks have no time between them.
    #[error("a trace made by looks 0 ns apart cannot be written")]
    Looks,
    /// The name of a volume is too long.
    #[error("a volume's name of {bytes} bytes cannot be written: it may have {NAME_BYTES_MAX}")]
    Name {
        /// The bytes that the name has.
        bytes: usize,
    },
    /// The Parquet library fails, with these words.
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
    /// The looks as they are, and as the trace has them so far.
    looks: Option<(Looks, Looks)>,
    block: Vec<RawRecord>,
    is_cut: bool,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace. `to` gets whole blocks, so it needs no buffer.
    pub fn new(to: W) -> Result<TraceWriter<W>, WriteError> {
        TraceWriter::of_version(VERSION, to)
    }

    /// Starts a trace that is made by looks at memory.
    pub fn of_looks(to: W, looks: Looks) -> Result<TraceWriter<W>, WriteError> {
        if looks.every_ns == 0 {
            return Err(WriteError::Looks);
        }
        let mut writer = TraceWriter::of_version(VERSION_LOOKS, to)?;
        writer.put_looks(looks)?;
        Ok(writer)
    }

    fn of_version(version: u32, mut to: W) -> Result<TraceWriter<W>, WriteError> {
        to.write_all(Header::new(version).as_bytes())?;
        Ok(TraceWriter {
            to,
            volumes: 0,
            records: 0,
            last_ns: 0,
            looks: None,
            block: Vec::with_capacity(BLOCK_RECORDS),
            is_cut: false,
        })
    }

    /// Tells the longest time between two looks up to now. The trace says it exactly at its end;
    /// before, for readers of a trace that a killed recorder left, it is right to an eighth.
    pub fn looked(&mut self, longest_ns: u64) -> Result<(), WriteError> {
        let Some((looks, said)) = &mut self.looks else { return Ok(()) };
        looks.longest_ns = looks.longest_ns.max(longest_ns);
        let (looks, said_ns) = (*looks, said.interval_ns());
        if looks.longest_ns > said_ns.saturating_add(said_ns / 8) {
            self.flush()?;
            self.put_looks(looks)?;
        }
        Ok(())
    }

    fn put_looks(&mut self, looks: Looks) -> Result<(), WriteError> {
        self.put(KIND_LOOKS, 1, RawLooks::from(looks).as_bytes())?;
        self.looks = Some((looks, looks));
        Ok(())
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

    /// Writes a record, which must not be before the last one.
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

    /// Hands over all that was written so far; the file can then be read that far, whatever happens
    /// to the writer.
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
        if let Some((looks, said)) = self.looks
            && looks != said
        {
            self.put_looks(looks)?;
        }
        let records = self.records.to_le_bytes();
        self.put(KIND_END, 1, &records)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn put(&mut self, kind: u32, items: usize, payload: &[u8]) -> Result<(), WriteError> {
        if self.is_cut {
            return Err(WriteError::Cut);
        }
        let header = BlockHeader::new(kind, items, payload);
        let written = self.to.write_all(header.as_bytes());
        let written = written.and_then(|()| self.to.write_all(payload));
        self.is_cut = written.is_err();
        Ok(written?)
    }
}
