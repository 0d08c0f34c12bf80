//! Bytes of a dump, with their sum, read in pieces.

use std::io::{ErrorKind, Read};

use crate::crc64::crc64;
use crate::error::RdbError;

/// Bytes of a long dump that are asked for at a time.
const PIECE_BYTES_MAX: u64 = 64 << 10;

/// The bytes of a dump.
pub(super) struct Source<R> {
    reader: R,
    /// Bytes that are asked for at a time.
    piece_bytes: usize,
    piece: Vec<u8>,
    /// How far the piece is used.
    at: usize,
    /// How far the piece is summed.
    summed: usize,
    /// The checksum of all bytes before `summed`.
    sum: u64,
    /// Bytes of the pieces before this one.
    before: u64,
}

impl<R: Read> Source<R> {
    /// The bytes of `reader`, of which there are `len` at most: no more memory is taken, nor
    /// filled, for the few bytes of a small value.
    pub fn new(reader: R, len: u64) -> Self {
        let piece_bytes = len.clamp(1, PIECE_BYTES_MAX) as usize;
        Self { reader, piece_bytes, piece: Vec::new(), at: 0, summed: 0, sum: 0, before: 0 }
    }

    /// Bytes that were used.
    pub fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// The checksum of the bytes that were used.
    pub fn sum(&mut self) -> u64 {
        self.sum = crc64(self.sum, &self.piece[self.summed..self.at]);
        self.summed = self.at;
        self.sum
    }

    /// What was read and not used, and the reader.
    pub fn into_rest(self) -> (Vec<u8>, R) {
        (self.piece[self.at..].to_vec(), self.reader)
    }

    /// Makes the next bytes known; false at the end.
    fn refill(&mut self) -> Result<bool, RdbError> {
        self.sum();
        self.before += self.piece.len() as u64;
        self.piece.resize(self.piece_bytes, 0);
        (self.at, self.summed) = (0, 0);
        let read = loop {
            match self.reader.read(&mut self.piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.piece.truncate(*read.as_ref().unwrap_or(&0));
        match read {
            Ok(len) => Ok(len > 0),
            Err(source) => Err(RdbError::Io { at: self.before, source }),
        }
    }

    /// Whether there is no further byte.
    pub fn is_at_end(&mut self) -> Result<bool, RdbError> {
        Ok(self.at == self.piece.len() && !self.refill()?)
    }

    pub fn byte(&mut self, what: &'static str) -> Result<u8, RdbError> {
        if self.is_at_end()? {
            return Err(RdbError::Truncated { at: self.offset(), what });
        }
        self.at += 1;
        Ok(self.piece[self.at - 1])
    }

    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        match self.piece.get(self.at..self.at + N) {
            Some(near) => {
                bytes.copy_from_slice(near);
                self.at += N;
            }
            None => {
                for byte in &mut bytes {
                    *byte = self.byte(what)?;
                }
            }
        }
        Ok(bytes)
    }

    /// Puts the next `len` bytes behind `out`. Memory is taken as bytes come.
    pub fn bytes(
        &mut self,
        len: u64,
        what: &'static str,
        out: &mut Vec<u8>,
    ) -> Result<(), RdbError> {
        let mut left = len;
        while left > 0 {
            if self.is_at_end()? {
                return Err(RdbError::Truncated { at: self.offset(), what });
            }
            let near = &self.piece[self.at..];
            let taken = near.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            out.extend_from_slice(&near[..taken]);
            self.at += taken;
            left -= taken as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_memory_is_taken_than_there_are_bytes() {
        let all: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        for len in [0, 1, 80, 65_535, 65_536, 65_537, 200_000] {
            let bytes = &all[..len];
            let mut source = Source::new(bytes, len as u64);
            let mut out = Vec::new();
            source.bytes(len as u64, "bytes", &mut out).unwrap();
            assert!(out == bytes && source.is_at_end().unwrap(), "{len} bytes");
            assert_eq!(source.sum(), crc64(0, bytes), "{len} bytes");
            assert!(source.piece.capacity() <= len.clamp(8, PIECE_BYTES_MAX as usize), "{len}");
        }
        // A dump of which the length is not known.
        let mut source = Source::new(&all[..], u64::MAX);
        let mut out = Vec::new();
        source.bytes(200_000, "bytes", &mut out).unwrap();
        assert!(out == all && source.is_at_end().unwrap());
    }
}
