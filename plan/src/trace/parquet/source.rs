//! The file or stream of a Parquet trace. Its end is read first, so a stream must fit in memory.

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

/// The largest page, unpacked: a damaged header may ask for eight times as much, which the library
/// would set aside and clear.
const PAGE_BYTES_MAX: u64 = 256 << 20;

/// How many bytes are read at once where the library asks for a few.
const BUFFER_BYTES: usize = 64 << 10;

/// The bytes of a Parquet file, in a file or in memory.
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

/// The bytes of a Parquet file from some byte on.
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

/// The decompressed size of a page, from its header, which begins with these bytes; `None` if they
/// are no header.
fn unpacked_bytes(header: &[u8]) -> Option<u64> {
    // Thrift's compact protocol: field 1, a 32-bit number, is the kind; field 2, another, the
    // bytes.
    const NEXT_I32: u8 = 0x15;
    let number = |from: &[u8]| -> Option<(u64, usize)> {
        let mut number = 0;
        for (at, byte) in from.iter().take(5).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Some((number, at + 1));
            }
        }
        None
    };
    let (_, kind_len) = number(header.strip_prefix(&[NEXT_I32])?)?;
    let (zigzag, _) = number(header.get(1 + kind_len..)?.strip_prefix(&[NEXT_I32])?)?;
    // Negative ones the library refuses.
    (zigzag & 1 == 0).then_some(zigzag / 2)
}

impl ChunkReader for Stored {
    type T = BufReader<From>;

    /// Gives the bytes from a page's header on; the library reads nothing else by this.
    fn get_read(&self, start: u64) -> Result<BufReader<From>> {
        let mut header = [0; 16];
        let len = self.read_at(&mut header, start)?;
        if let Some(bytes) = unpacked_bytes(&header[..len])
            && bytes > PAGE_BYTES_MAX
        {
            let large =
                format!("a page of {bytes} bytes at byte {start}: {PAGE_BYTES_MAX} are the most");
            return Err(ParquetError::General(large));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_claims_to_be_huge_is_not_read() {
        // Kind 0, 2^31 - 1 bytes, then whatever follows.
        let huge = [0x15, 0, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x15, 4];
        assert_eq!(unpacked_bytes(&huge), Some(i32::MAX as u64));
        let error = Stored::Memory(Arc::new(huge.to_vec())).get_read(0).err().unwrap();
        assert!(error.to_string().contains("2147483647 bytes at byte 0"), "{error}");
        let usual = [0x15, 4, 0x15, 0x80, 0x40, 0x15];
        assert_eq!(unpacked_bytes(&usual), Some(4096));
        assert!(Stored::Memory(Arc::new(usual.to_vec())).get_read(0).is_ok());
        for other in [&b""[..], b"PAR1", &[0x15], &[0x15, 0, 0x15, 0x80], &[0x15, 0, 0x15, 1]] {
            assert_eq!(unpacked_bytes(other), None, "{other:?}");
        }
    }
}
