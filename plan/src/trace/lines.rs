//! Cuts a trace into lines in one buffer: no line is allocated, and none may be longer than
//! [`LINE_BYTES_MAX`].

use super::TraceError;
use super::input::Input;

/// The most bytes of a line that is parsed.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;

/// How many bytes of a longer line are passed over in search of its end.
const PASSED_BYTES_MAX: u64 = 64 << 20;

/// How many bytes are read at once: four of the longest lines, which fit a core's cache.
const BUFFER_BYTES: usize = 4 * LINE_BYTES_MAX;

/// A line of a trace, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// The line has an end.
    Whole(&'a [u8]),
    /// The last line, where nothing ends it: it may be whole or cut.
    Unended(&'a [u8]),
    /// The line is too long and was passed over.
    TooLong,
}

pub(crate) struct Lines {
    input: Input,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    number: u64,
    at_end: bool,
}

impl Lines {
    pub(crate) fn new(input: Input) -> Lines {
        Lines { input, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, number: 0, at_end: false }
    }

    /// The number of the line that was given last, counted from 1.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Gives the next line; `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>, TraceError> {
        match memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
            Some(len) if len <= LINE_BYTES_MAX => Ok(Some(Line::Whole(self.take(len)))),
            _ => self.next_beyond(),
        }
    }

    #[inline]
    fn take(&mut self, len: usize) -> &[u8] {
        let line = self.start..self.start + len;
        self.start += len + 1;
        self.number += 1;
        match &self.buffer[line] {
            [line @ .., b'\r'] => line,
            line => line,
        }
    }

    /// Gives the next line where it does not end in the buffer or is too long.
    #[cold]
    fn next_beyond(&mut self) -> Result<Option<Line<'_>>, TraceError> {
        loop {
            let held = self.end - self.start;
            match memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
                Some(len) if len <= LINE_BYTES_MAX => return Ok(Some(Line::Whole(self.take(len)))),
                _ if held > LINE_BYTES_MAX => return self.pass_over().map(Some),
                _ if self.at_end && held == 0 => return Ok(None),
                _ if self.at_end => {
                    let line = self.start..self.end;
                    self.start = self.end;
                    self.number += 1;
                    return Ok(Some(Line::Unended(&self.buffer[line])));
                }
                _ => self.refill()?,
            }
        }
    }

    fn refill(&mut self) -> Result<(), TraceError> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let bytes = self.input.read(&mut self.buffer[self.end..])?;
        self.end += bytes;
        self.at_end = bytes == 0;
        Ok(())
    }

    /// Passes over the rest of a line that is too long.
    fn pass_over(&mut self) -> Result<Line<'_>, TraceError> {
        self.number += 1;
        let mut passed = 0;
        loop {
            if let Some(len) = memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
                self.start += len + 1;
                return Ok(Line::TooLong);
            }
            passed += (self.end - self.start) as u64;
            if passed > PASSED_BYTES_MAX {
                return Err(TraceError::NoLines {
                    file: self.input.file().to_owned(),
                    line: self.number,
                    limit_bytes: PASSED_BYTES_MAX,
                });
            }
            self.start = self.end;
            self.refill()?;
            if self.at_end {
                return Ok(Line::TooLong);
            }
        }
    }
}
