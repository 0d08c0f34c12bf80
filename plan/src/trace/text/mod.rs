//! The formats of lines of text. A format is a [`Parse`], which makes records of one line or says
//! why the line is wrong.

pub(crate) mod blkparse;
pub(crate) mod cloud;
pub(crate) mod disksim;
pub(crate) mod fields;
pub(crate) mod fio;
pub(crate) mod memory;
pub(crate) mod msr;
pub(crate) mod spc;
pub(crate) mod table;
pub(crate) mod ycsb;

use super::input::Input;
use super::lines::{LINE_BYTES_MAX, Line, Lines};
use super::sink::{Seen, Sink};
use super::source::Source;
use super::{Fault, Format, Place, TraceError};

/// Bytes of the sectors that block traces count in, unless the user says otherwise. Linux counts in
/// these whatever the device has; the collections of the other formats say it in their
/// descriptions.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// A format of lines.
pub(crate) trait Parse: Send {
    /// Makes records of a line, which is not blank.
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen;
}

/// The source of records for a trace of lines.
pub(crate) struct Text<P> {
    lines: Lines,
    parser: P,
    format_of: FormatOf,
}

/// Tells which format a line has by itself, if it looks like one.
pub(crate) type FormatOf = fn(&[u8]) -> Option<Format>;

impl<P: Parse> Text<P> {
    /// `format_of` is for lines that `parser` refuses: what they are is part of the message.
    pub(crate) fn new(input: Input, parser: P, format_of: FormatOf) -> Text<P> {
        Text { lines: Lines::new(input), parser, format_of }
    }
}

impl<P: Parse> Source for Text<P> {
    fn fill(&mut self, sink: &mut Sink) -> Result<bool, TraceError> {
        while !sink.is_full() {
            let Some(line) = self.lines.next()? else { return Ok(false) };
            let seen = match line {
                Line::Whole(line) | Line::Unended(line) if is_nothing(line) => Ok(()),
                Line::Whole(whole) => self
                    .parser
                    .line(whole, sink)
                    .map_err(|fault| sharpened(line, fault, sink.format(), self.format_of)),
                Line::Unended(cut) => self
                    .parser
                    .line(cut, sink)
                    .map_err(|fault| sharpened(line, fault, sink.format(), self.format_of)),
                Line::TooLong => Err(Box::new(Fault::LineTooLong { limit_bytes: LINE_BYTES_MAX })),
            };
            if let Err(fault) = seen {
                sink.bad(Place::Line(self.lines.number()), fault)?;
            }
        }
        Ok(true)
    }
}

/// Blank lines and remarks: they are in traces of many formats, and never records.
#[inline]
pub(crate) fn is_nothing(line: &[u8]) -> bool {
    match line.first() {
        None | Some(b'#') => true,
        Some(b' ' | b'\t') => line.trim_ascii().is_empty(),
        Some(_) => false,
    }
}

/// Says of a line that is no record of its format whether it is one of another, or was cut off.
#[cold]
fn sharpened(
    line: Line<'_>,
    fault: Box<Fault>,
    expected: Format,
    format_of: FormatOf,
) -> Box<Fault> {
    if !matches!(*fault, Fault::Columns { .. } | Fault::Value { .. }) {
        return fault;
    }
    match line {
        Line::Unended(_) => Box::new(Fault::Truncated { fault }),
        Line::Whole(line) => match format_of(line).filter(|&found| found != expected) {
            Some(found) => Box::new(Fault::Mixed { expected, found, value: fields::shown(line) }),
            None => fault,
        },
        Line::TooLong => fault,
    }
}
