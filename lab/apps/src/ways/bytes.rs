//! Reading of bytes that are in memory already, without a copy.

use crate::access::{Input, Tally};
use crate::error::Result;

/// A reader of bytes in memory.
pub struct InMemory<'t, B> {
    bytes: B,
    read_bytes: usize,
    tally: &'t Tally,
}

impl<'t, B: AsRef<[u8]>> InMemory<'t, B> {
    /// Begins at the first byte.
    pub fn new(bytes: B, tally: &'t Tally) -> Self {
        Self { bytes, read_bytes: 0, tally }
    }
}

impl<B: AsRef<[u8]>> Input for InMemory<'_, B> {
    fn len_bytes(&self) -> usize {
        self.bytes.as_ref().len()
    }

    fn next(&mut self, bytes: usize) -> Result<&[u8]> {
        let rest = &self.bytes.as_ref()[self.read_bytes..];
        let piece = &rest[..bytes.min(rest.len())];
        if !piece.is_empty() {
            self.tally.read(piece.len());
        }
        self.read_bytes += piece.len();
        Ok(piece)
    }

    fn whole(&mut self, call_bytes: usize) -> Result<&[u8]> {
        let all = self.bytes.as_ref();
        let rest = &all[self.read_bytes..];
        self.tally.read_in_calls(rest.len(), call_bytes);
        self.read_bytes = all.len();
        Ok(rest)
    }
}
