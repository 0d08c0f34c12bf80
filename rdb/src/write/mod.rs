//! Writing dumps.

mod encoder;
mod stream;

use std::io::{self, Write};

use crate::VERSION_WRITTEN;
use crate::crc64::crc64;

pub use encoder::Encoder;

/// Writes a dump file.
pub struct Writer<W> {
    writer: W,
    /// What is to be written next.
    buffer: Vec<u8>,
    sum: u64,
    db: Option<u64>,
    written: u64,
}

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

impl<W: Write> Writer<W> {
    /// Writes the beginning of a dump, with what is said about it.
    ///
    /// # Errors
    /// The writer failed.
    pub fn new(writer: W, said: &[(&str, String)]) -> io::Result<Self> {
        let buffer = format!("REDIS{VERSION_WRITTEN:04}").into_bytes();
        let mut new = Self { writer, buffer, sum: 0, db: None, written: 0 };
        for (name, value) in said {
            new.buffer.push(250);
            let mut out = Encoder::new(&mut new.buffer, false);
            out.string(name.as_bytes());
            out.string(value.as_bytes());
        }
        new.flush_above(BUFFER_BYTES)?;
        Ok(new)
    }

    /// Writes a library of functions: its source text.
    ///
    /// # Errors
    /// The writer failed.
    pub fn function(&mut self, text: &[u8]) -> io::Result<()> {
        self.buffer.push(245);
        Encoder::new(&mut self.buffer, false).string(text);
        self.flush_above(BUFFER_BYTES)
    }

    /// Writes a key with a value that an [`Encoder`] has written.
    ///
    /// # Errors
    /// The writer failed.
    pub fn key(
        &mut self,
        db: u64,
        key: &[u8],
        expire_at_ms: Option<u64>,
        value: &[u8],
    ) -> io::Result<()> {
        if self.db != Some(db) {
            self.db = Some(db);
            self.buffer.push(254);
            Encoder::new(&mut self.buffer, false).number(db);
        }
        if let Some(at_ms) = expire_at_ms {
            self.buffer.push(252);
            self.buffer.extend_from_slice(&at_ms.to_le_bytes());
        }
        let Some((kind, value)) = value.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a key without a value"));
        };
        self.buffer.push(*kind);
        Encoder::new(&mut self.buffer, false).string(key);
        self.buffer.extend_from_slice(value);
        self.flush_above(BUFFER_BYTES)
    }

    /// Writes the end of the dump, and returns what was written to and the bytes of the dump.
    ///
    /// # Errors
    /// The writer failed.
    pub fn end(mut self) -> io::Result<(W, u64)> {
        self.buffer.push(255);
        self.flush_above(0)?;
        let sum = self.sum.to_le_bytes();
        self.writer.write_all(&sum)?;
        self.writer.flush()?;
        Ok((self.writer, self.written + sum.len() as u64))
    }

    fn flush_above(&mut self, bytes: usize) -> io::Result<()> {
        if self.buffer.len() <= bytes {
            return Ok(());
        }
        self.sum = crc64(self.sum, &self.buffer);
        self.writer.write_all(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.buffer.shrink_to(2 * BUFFER_BYTES);
        Ok(())
    }
}
