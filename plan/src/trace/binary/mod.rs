//! The binary formats of other programs: records one after another, without checksums.

pub(crate) mod srt;
pub(crate) mod vscsi;

use super::TraceError;
use super::input::Input;

/// How many bytes are read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// The bytes of a trace, which can be looked at before they are taken.
pub(crate) struct Bytes {
    input: Input,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The place in the trace of the byte at `start`.
    at_bytes: u64,
}

impl Bytes {
    pub(crate) fn new(input: Input) -> Bytes {
        Bytes { input, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, at_bytes: 0 }
    }

    /// The place in the trace of the next byte.
    pub(crate) fn at_bytes(&self) -> u64 {
        self.at_bytes
    }

    /// The next bytes, `count` of them (at most a few hundred), or as many as there are.
    #[inline]
    pub(crate) fn look(&mut self, count: usize) -> Result<&[u8], TraceError> {
        if self.end - self.start < count {
            self.refill()?;
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + count)])
    }

    /// Takes bytes that were looked at.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) {
        self.start += count;
        self.at_bytes += count as u64;
    }

    /// Takes all up to and with the next such byte; false where there is none.
    pub(crate) fn take_through(&mut self, byte: u8) -> Result<bool, TraceError> {
        loop {
            if let Some(found) = memchr::memchr(byte, &self.buffer[self.start..self.end]) {
                self.take(found + 1);
                return Ok(true);
            }
            self.take(self.end - self.start);
            self.refill()?;
            if self.start == self.end {
                return Ok(false);
            }
        }
    }

    fn refill(&mut self) -> Result<(), TraceError> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        self.end += self.input.read_full(&mut self.buffer[self.end..])?;
        Ok(())
    }
}
