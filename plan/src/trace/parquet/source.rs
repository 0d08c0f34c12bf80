//! Where a Parquet file lies: its end is read first, so it must be a file, or fit in memory.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::reader::{ChunkReader, Length};

use super::super::TraceError;
use super::super::input::{Input, Progress};

/// The largest Parquet file that is read from a stream: it has to be held whole.
const HELD_BYTES_MAX: u64 = 256 << 20;

/// Read at once, where the library reads little by little.
const BUFFER_BYTES: usize = 64 << 10;

/// A Parquet file, in a file or in memory.
#[derive(Clone)]
pub(crate) enum Stored {
    File(Arc<File>, u64, Progress),
    Memory(Arc<Vec<u8>>),
}

impl Stored {
    pub(crate) fn file(file: File, progress: Progress) -> io::Result<Stored> {
        let bytes = file.metadata()?.len();
        Ok(Stored::File(Arc::new(file), bytes, progress))
    }

    /// Reads a stream to its end.
    pub(crate) fn stream(mut input: Input, file: &str) -> std::result::Result<Stored, TraceError> {
        let mut held = Vec::new();
        let mut part = vec![0; BUFFER_BYTES];
        loop {
            match input.read(&mut part)? {
                0 => return Ok(Stored::Memory(Arc::new(held))),
                bytes if held.len() as u64 + bytes as u64 > HELD_BYTES_MAX => {
                    return Err(TraceError::Stream {
                        file: file.to_owned(),
                        limit_bytes: HELD_BYTES_MAX,
                    });
                }
                bytes => held.extend_from_slice(&part[..bytes]),
            }
        }
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Stored::File(file, _, progress) => {
                let bytes = file.read_at(into, at)?;
                progress.add(bytes as u64);
                Ok(bytes)
            }
            Stored::Memory(held) => {
                let mut from = Cursor::new(held.as_slice());
                from.set_position(at);
                from.read(into)
            }
        }
    }
}

impl Length for Stored {
    fn len(&self) -> u64 {
        match self {
            Stored::File(_, bytes, _) => *bytes,
            Stored::Memory(held) => held.len() as u64,
        }
    }
}

/// A stored file from some byte on.
pub(crate) struct From {
    stored: Stored,
    at: u64,
}

impl Read for From {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.stored.read_at(into, self.at)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}

impl ChunkReader for Stored {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> Result<BufReader<From>> {
        Ok(BufReader::with_capacity(BUFFER_BYTES, From { stored: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        // What a damaged file asks for may be more than there is, and is not set aside.
        let ends = start.checked_add(length as u64).filter(|&end| end <= self.len());
        let Some(_) = ends else {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at byte {start} of {}",
                self.len()
            )));
        };
        let mut held = vec![0; length];
        From { stored: self.clone(), at: start }.read_exact(&mut held)?;
        Ok(held.into())
    }
}
