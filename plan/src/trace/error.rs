//! The errors in traces, in words for the user who has to correct them: place, value, and remedy.
//!
//! A [`Fault`] concerns one record, which may be skipped. A [`TraceError`] ends the reading: it is
//! a fault with its place, or an error after which no next record can be found.

use std::fmt;
use std::io;

use super::{Format, Packing, TimeUnit};

/// A place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A line, counted from 1.
    Line(u64),
    /// A byte of the unpacked trace, counted from 0.
    Byte(u64),
    /// A row of a table, counted from 0.
    Row(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(to, "line {line}"),
            Place::Byte(byte) => write!(to, "byte {byte}"),
            Place::Row(row) => write!(to, "row {row}"),
        }
    }
}

/// A mistake in one record. Values are already escaped and shortened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The line has too few columns, or too many.
    #[error("{found} columns where there should be {expected}: \"{value}\"")]
    Columns {
        /// The columns that the format has.
        expected: &'static str,
        /// The number of columns in the line.
        found: usize,
        /// The line, or its first bytes.
        value: String,
    },
    /// The table lacks a column that was chosen.
    #[error(
        "the table has no column {column}; its first line is \"{value}\": give --columns (as in \
         time=ts:us,offset=lba:512,size=bytes,op=rw)"
    )]
    NoColumn {
        /// The column that was chosen.
        column: String,
        /// The first line of the table.
        value: String,
    },
    /// A value is not what its column holds.
    #[error("{column} is \"{value}\", which is not {expected}")]
    Value {
        /// The column's name, or the part of the record.
        column: &'static str,
        /// The value in the trace.
        value: String,
        /// The kind of value that the column should have.
        expected: &'static str,
    },
    /// A number is below 0.
    #[error("{column} is \"{value}\": it cannot be negative")]
    Negative {
        /// The column's name, or the part of the record.
        column: &'static str,
        /// The value in the trace.
        value: String,
    },
    /// An access has no bytes.
    #[error("the access at byte {offset_bytes} has a size of 0 bytes; an access has at least one")]
    NoBytes {
        /// The access's first byte in its volume.
        offset_bytes: u64,
    },
    /// An access ends beyond 2^63.
    #[error(
        "an access of {len_bytes} bytes at byte {offset_bytes} ends beyond 2^63, which no volume \
         holds"
    )]
    Beyond {
        /// The access's first byte in its volume.
        offset_bytes: u64,
        /// The bytes that the access has.
        len_bytes: u64,
    },
    /// An access has more bytes than any device moves at once.
    #[error(
        "an access of {len_bytes} bytes is larger than {limit_bytes}, the largest there can be; is \
         the size in other units?"
    )]
    TooLong {
        /// The bytes that the access has.
        len_bytes: u64,
        /// The most bytes that an access may have.
        limit_bytes: u64,
    },
    /// A time has decimals below a nanosecond where its unit is the nanosecond.
    #[error(
        "{column} is \"{value}\", which has a part of a nanosecond, so the unit is hardly ns: give \
         another by --time-unit, or in --columns as in time=NAME:us (one of {}); if it is ns, \
         round the times",
        TimeUnit::names()
    )]
    PartOfNano {
        /// The column's name, or the part of the record.
        column: &'static str,
        /// The value in the trace.
        value: String,
    },
    /// A number does not fit 64 bits once it is in bytes or nanoseconds.
    #[error("{column} is \"{value}\": that is more than 64 bits of {unit}")]
    TooLarge {
        /// The column's name, or the part of the record.
        column: &'static str,
        /// The value in the trace.
        value: String,
        /// The unit in which it does not fit.
        unit: &'static str,
    },
    /// A record's time is before that of the record before it.
    #[error(
        "time goes back: {time_ns} ns comes after {last_ns} ns, which is {} ns later; give \
         --reorder {} or more, or sort the trace by time",
        last_ns - time_ns, Seconds(last_ns - time_ns)
    )]
    Backwards {
        /// The record's time, nanoseconds.
        time_ns: u64,
        /// The time that was reached before the record, nanoseconds.
        last_ns: u64,
    },
    /// A line has no end within the longest that a line may be.
    #[error("the line is longer than {limit_bytes} bytes; this is no text, or not a trace")]
    LineTooLong {
        /// The most bytes that a line may have.
        limit_bytes: usize,
    },
    /// The trace stops in the middle of a line.
    #[error(
        "the trace ends in the middle of a record ({fault}): fetch it again, or go on without this \
         record"
    )]
    Truncated {
        /// The mistake in the part of the record that is there.
        fault: Box<Fault>,
    },
    /// The trace stops in the middle of a binary record.
    #[error(
        "the trace ends in the middle of a record: {found} of {expected} bytes; fetch it again, or \
         go on without it"
    )]
    Cut {
        /// The bytes of the record that are there.
        found: usize,
        /// The bytes that the record should have.
        expected: usize,
    },
    /// A recording has no end: its program or its disk ended first.
    #[error(
        "the recording was not finished: it ends after {records} whole records (--skip-bad 1 takes \
         it as far as it goes)"
    )]
    Unfinished {
        /// The number of whole records in it.
        records: u64,
    },
    /// A line has another format than the trace.
    #[error(
        "this is a line of format {found}, in a trace of format {expected}: \"{value}\"; split the \
         file by format"
    )]
    Mixed {
        /// The format of the trace.
        expected: Format,
        /// The format that the line has.
        found: Format,
        /// The line, or its first bytes.
        value: String,
    },
    /// The trace has more volumes than a trace may have.
    #[error(
        "volume \"{name}\" is one more than the {limit} that a trace may have; is this column the \
         volume?"
    )]
    TooManyVolumes {
        /// The name of the first volume too many.
        name: String,
        /// The most volumes that a trace may have.
        limit: usize,
    },
}

/// Damage of a binary trace, after which nothing can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file does not start as its format does.
    #[error(
        "it starts with \"{found}\", which this format does not; give another --format, or none"
    )]
    Magic {
        /// The first bytes of the file.
        found: String,
    },
    /// The file has a version that this program does not know.
    #[error(
        "it is of version {found}, and this program knows versions up to {known}; read it with the \
         program that wrote it, or a newer one"
    )]
    Version {
        /// The version in the file.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// A field of the header that holds what the format does not have.
    #[error("its {field} is \"{found}\", which is not {expected}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// The value in the file.
        found: String,
        /// The value that the format has there.
        expected: &'static str,
    },
    /// The bytes are not those that were written.
    #[error(
        "its checksum is {found:016x} and should be {expected:016x}: the file is damaged here; \
         fetch or record it again"
    )]
    Checksum {
        /// The checksum of the bytes as they are.
        found: u64,
        /// The checksum that was written beside them.
        expected: u64,
    },
    /// A block's parts contradict each other.
    #[error("this is no block of such a file; fetch or record it again")]
    Block,
    /// The end of the file does not agree with what comes before it.
    #[error("its end does not fit the {records} records before it; fetch or record it again")]
    End {
        /// The number of records before the end.
        records: u64,
    },
    /// The file ends where more has to follow.
    #[error("it is cut off after {records} records; fetch or record it again")]
    Cut {
        /// The number of records before that.
        records: u64,
    },
}

/// A duration as it is given on a command line, in whole seconds, rounded up.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1_000 => write!(to, "{ns}ns"),
            ns if ns < 1_000_000 => write!(to, "{}us", ns.div_ceil(1_000)),
            ns if ns < 1_000_000_000 => write!(to, "{}ms", ns.div_ceil(1_000_000)),
            ns => write!(to, "{}s", ns.div_ceil(1_000_000_000)),
        }
    }
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The system does not open the file.
    #[error("{file}: cannot be opened: {source}")]
    Open {
        /// The file's path.
        file: String,
        /// The error that the system gives.
        source: io::Error,
    },
    /// The path is that of a directory.
    #[error("{file}: is a directory; give the trace files in it, one by one")]
    Directory {
        /// The file's path.
        file: String,
    },
    /// The file holds nothing.
    #[error("{file}: holds no records: it is empty")]
    Empty {
        /// The file's path.
        file: String,
    },
    /// The device or the pipe fails while it is read.
    #[error("{file}: cannot be read after byte {at_bytes}: {source}")]
    Read {
        /// The file's path.
        file: String,
        /// How many bytes were read before that.
        at_bytes: u64,
        /// The error that the system gives.
        source: io::Error,
    },
    /// No line ends within as many bytes as are passed over in search of an end.
    #[error(
        "{file}: line {line} has no end within {limit_bytes} bytes: this is no text; give another \
         --format"
    )]
    NoLines {
        /// The file's path.
        file: String,
        /// The line's number, counted from 1.
        line: u64,
        /// How many bytes were passed over.
        limit_bytes: u64,
    },
    /// Packed data end early or are damaged.
    #[error(
        "{file}: the {packing} data are cut off or damaged near byte {at_bytes} of the file \
         ({source}); fetch it again"
    )]
    Packed {
        /// The file's path.
        file: String,
        /// How the file is packed.
        packing: Packing,
        /// How many bytes of the file, as it is stored, were read.
        at_bytes: u64,
        /// The message of the decompression library.
        source: io::Error,
    },
    /// A binary trace is damaged, so that nothing after the damage can be believed.
    #[error("{file}: {place}: {damage}")]
    Damaged {
        /// The file's path.
        file: String,
        /// The place in the file.
        place: Place,
        /// The damage.
        damage: Damage,
    },
    /// This build leaves the format of the trace out.
    #[error(
        "{file}: a trace in {format}, which this build cannot read: use a released program, build \
         one with `cargo xtask release`, or give the trace as text, unpacked"
    )]
    NotBuilt {
        /// The file's path.
        file: String,
        /// The format, or how the file is packed.
        format: String,
    },
    /// The Parquet library cannot read the file.
    #[cfg(feature = "formats")]
    #[error("{file}: this Parquet file cannot be read: {source}; write or fetch it again")]
    Parquet {
        /// The file's path.
        file: String,
        /// The message of the library.
        source: Box<::parquet::errors::ParquetError>,
    },
    /// A Parquet file lacks a column that was chosen.
    #[error(
        "{file}: no plain column {column}; it has {columns}: give --columns \
         (as in time=ts:us,offset=lba:512,size=bytes,op=rw)"
    )]
    NoColumn {
        /// The file's path.
        file: String,
        /// The column that was chosen.
        column: String,
        /// The columns that the file has.
        columns: String,
    },
    /// A column holds times, and nothing says their unit.
    #[error(
        "{file}: column {column} is {kind}, which does not say what unit its times are in: give \
         it, as in --columns time=NAME:us, or by --time-unit"
    )]
    ColumnUnit {
        /// The file's path.
        file: String,
        /// The column that was chosen.
        column: String,
        /// The type that the column is stored as.
        kind: String,
    },
    /// A column has a type that its role cannot have.
    #[error(
        "{file}: column {column:?} holds {kind}; expected whole numbers (or timestamps for times, \
         text for volumes): convert it, or choose another with --columns"
    )]
    ColumnType {
        /// The file's path.
        file: String,
        /// The column that was chosen.
        column: String,
        /// The type of the column.
        kind: &'static str,
    },
    /// A Parquet file comes as a stream, and is too large to be held.
    #[error(
        "{file}: a Parquet file that comes as a stream may have {limit_bytes} bytes; give it as a \
         file, unpacked"
    )]
    Stream {
        /// The file's path.
        file: String,
        /// The most bytes that such a stream may have.
        limit_bytes: u64,
    },
    /// The file has no format that is known.
    #[error(
        "{file}: the format is not recognised; the trace starts with \"{start}\"; give --format \
         (one of {})",
        Format::names()
    )]
    Unknown {
        /// The file's path.
        file: String,
        /// The first bytes of the file.
        start: String,
    },
    /// The file looks like a table, but its header is not the one that this project writes.
    #[error(
        "{file}: the format is not recognised; the first line looks like the header of a table, \
         \"{start}\": say which columns are what by --columns (as in \
         time=ts:us,offset=lba:512,size=bytes,op=rw), or give --format (one of {})",
        Format::names()
    )]
    Header {
        /// The file's path.
        file: String,
        /// The first line of the file.
        start: String,
    },
    /// The format does not say the unit of its times, and neither does the user.
    #[error(
        "{file}: format {format} does not say what unit its times are in, and the first {records} \
         records run from {first} to {last}: give --time-unit (one of {})",
        TimeUnit::names()
    )]
    Unit {
        /// The file's path.
        file: String,
        /// The file's format.
        format: Format,
        /// The number of records that were looked at.
        records: usize,
        /// The time of the first of them, as it stands in the file.
        first: String,
        /// The time of the last of them, as it stands in the file.
        last: String,
    },
    /// A trace whose places are sectors, and that does not say how many bytes a sector has.
    #[error(
        "{file}: format {format} counts in sectors, and this file does not say how many bytes a \
         sector has: give --sector-size (256 or 512 for disks of its time)"
    )]
    NoSectorSize {
        /// The file's path.
        file: String,
        /// The file's format.
        format: Format,
    },
    /// A record is bad, and none may be skipped.
    #[error(
        "{file}: {place}: {fault} (format {format}; --skip-bad N passes over up to N such records)"
    )]
    Record {
        /// The file's path.
        file: String,
        /// The place in the file.
        place: Place,
        /// The file's format.
        format: Format,
        /// The mistake in the record.
        fault: Box<Fault>,
    },
    /// A record is bad, and as many as may be skipped were skipped.
    #[error(
        "{file}: {place}: {fault} (format {format}); this is the bad record after {skipped} that \
         were skipped, the first at {first_place}: {first}"
    )]
    TooManyBad {
        /// The file's path.
        file: String,
        /// The place in the file.
        place: Place,
        /// The file's format.
        format: Format,
        /// The mistake in the record.
        fault: Box<Fault>,
        /// How many bad records were skipped.
        skipped: u64,
        /// Where the first of the skipped records is.
        first_place: Place,
        /// The mistake in the first skipped record.
        first: Box<Fault>,
    },
}
