//! What can be wrong with a trace, in words for whoever has to put it right: where, which value,
//! what to do.
//!
//! A [`Fault`] is one record's; it may be skipped. A [`TraceError`] ends the reading: a fault with
//! its place, or something that leaves no next record to go on with.

use std::fmt;
use std::io;

use super::{Format, Packing, TimeUnit};

/// Where in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A line, from 1.
    Line(u64),
    /// A byte of the unpacked trace, from 0.
    Byte(u64),
    /// A row of a table, from 0.
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

/// What is wrong with one record. Values are escaped already, and cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Too few columns, or too many.
    #[error("{found} columns where there should be {expected}: \"{value}\"")]
    Columns {
        /// What the columns are.
        expected: &'static str,
        /// How many there are.
        found: usize,
        /// The line, or its start.
        value: String,
    },
    /// A chosen column that the table lacks.
    #[error(
        "the table has no column {column}; its first line is \"{value}\": give --columns (as in time=ts:us,offset=lba:512,size=bytes,op=rw)"
    )]
    NoColumn {
        /// Which.
        column: String,
        /// The first line.
        value: String,
    },
    /// A value that is not what its column holds.
    #[error("{column} is \"{value}\", which is not {expected}")]
    Value {
        /// Which column.
        column: &'static str,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// A number below 0.
    #[error("{column} is \"{value}\": it cannot be negative")]
    Negative {
        /// Which column.
        column: &'static str,
        /// What it holds.
        value: String,
    },
    /// An access of no bytes.
    #[error("the access at byte {offset_bytes} has a size of 0 bytes; an access has at least one")]
    NoBytes {
        /// Where it would be.
        offset_bytes: u64,
    },
    /// An access that ends beyond 2^63.
    #[error(
        "an access of {len_bytes} bytes at byte {offset_bytes} ends beyond 2^63, which no volume holds"
    )]
    Beyond {
        /// Where it starts.
        offset_bytes: u64,
        /// How long it is.
        len_bytes: u64,
    },
    /// An access of more bytes than are moved at once.
    #[error(
        "an access of {len_bytes} bytes is larger than {limit_bytes}, the largest there can be; is the size in other units?"
    )]
    TooLong {
        /// How long it is.
        len_bytes: u64,
        /// How long it may be.
        limit_bytes: u64,
    },
    /// Less than the smallest time there is, where that is the unit.
    #[error(
        "{column} is \"{value}\", which has a part of a nanosecond, so the unit is hardly ns: give another by --time-unit, or in --columns \
         as in time=NAME:us (one of {}); if it is ns, round the times",
        TimeUnit::names()
    )]
    PartOfNano {
        /// Which column.
        column: &'static str,
        /// What it holds.
        value: String,
    },
    /// A number that does not fit once it is in bytes or nanoseconds.
    #[error("{column} is \"{value}\": that is more than 64 bits of {unit}")]
    TooLarge {
        /// Which column.
        column: &'static str,
        /// What it holds.
        value: String,
        /// What it would have been counted in.
        unit: &'static str,
    },
    /// Time that goes back.
    #[error(
        "time goes back: {time_ns} ns comes after {last_ns} ns, which is {} ns later; give --reorder {} or more, \
         or sort the trace by time",
        last_ns - time_ns, Seconds(last_ns - time_ns)
    )]
    Backwards {
        /// The record's time.
        time_ns: u64,
        /// The time that was reached before it.
        last_ns: u64,
    },
    /// A line without an end.
    #[error("the line is longer than {limit_bytes} bytes; this is no text, or not a trace")]
    LineTooLong {
        /// How long a line may be.
        limit_bytes: usize,
    },
    /// The trace stops in the middle of a record.
    #[error(
        "the trace ends in the middle of a record ({fault}): fetch it again, or go on without this record"
    )]
    Truncated {
        /// What is wrong with what is there.
        fault: Box<Fault>,
    },
    /// A binary record that is cut.
    #[error(
        "the trace ends in the middle of a record: {found} of {expected} bytes; fetch it again, or go on without it"
    )]
    Cut {
        /// Bytes that are there.
        found: usize,
        /// Bytes that should be.
        expected: usize,
    },
    /// Bytes that are no record, after which no other can be found.
    #[error(
        "this is no record of the trace, and where the next one starts is not known: the file is damaged here"
    )]
    NoRecord,
    /// A recording without an end.
    #[error(
        "the recording was not finished: it ends after {records} whole records (--skip-bad 1 takes it as far as it goes)"
    )]
    Unfinished {
        /// How many records there are.
        records: u64,
    },
    /// A line of another format.
    #[error(
        "this is a line of format {found}, in a trace of format {expected}: \"{value}\"; split the file by format"
    )]
    Mixed {
        /// The trace's format.
        expected: Format,
        /// The line's.
        found: Format,
        /// The line, or its start.
        value: String,
    },
    /// More volumes than a trace may have.
    #[error(
        "volume \"{name}\" is one more than the {limit} that a trace may have; is this column the volume?"
    )]
    TooManyVolumes {
        /// The one too many.
        name: String,
        /// How many there may be.
        limit: usize,
    },
}

/// What is wrong with a binary trace, so that nothing behind it can be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It does not start as its format does.
    #[error(
        "it starts with \"{found}\", which this format does not; give another --format, or none"
    )]
    Magic {
        /// The start.
        found: String,
    },
    /// A version that is not known.
    #[error(
        "it is of version {found}, and this program knows versions up to {known}; read it with the program that wrote it, or a newer one"
    )]
    Version {
        /// The file's.
        found: u32,
        /// The newest that the program knows.
        known: u32,
    },
    /// Bytes that changed.
    #[error(
        "its checksum is {found:016x} and should be {expected:016x}: the file is damaged here; fetch or record it again"
    )]
    Checksum {
        /// Of the bytes as they are.
        found: u64,
        /// Of the bytes as they were written.
        expected: u64,
    },
    /// A block that cannot be one.
    #[error("this is no block of such a file; fetch or record it again")]
    Block,
    /// An end that does not fit.
    #[error("its end does not fit the {records} records before it; fetch or record it again")]
    End {
        /// How many there were.
        records: u64,
    },
    /// No more, where there should be.
    #[error("it is cut off after {records} records; fetch or record it again")]
    Cut {
        /// How many there were.
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
    /// The file cannot be opened.
    #[error("{file}: cannot be opened: {source}")]
    Open {
        /// Which file.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// A directory.
    #[error("{file}: is a directory; give the trace files in it, one by one")]
    Directory {
        /// Which.
        file: String,
    },
    /// Nothing in it.
    #[error("{file}: holds no records: it is empty")]
    Empty {
        /// Which file.
        file: String,
    },
    /// The device or the pipe fails.
    #[error("{file}: cannot be read after byte {at_bytes}: {source}")]
    Read {
        /// Which file.
        file: String,
        /// How much was read before.
        at_bytes: u64,
        /// What the system says.
        source: io::Error,
    },
    /// Bytes without end, and without a line's end.
    #[error(
        "{file}: line {line} has no end within {limit_bytes} bytes: this is no text; give another --format"
    )]
    NoLines {
        /// Which file.
        file: String,
        /// Which line.
        line: u64,
        /// How much was passed over.
        limit_bytes: u64,
    },
    /// Packed data that are cut or damaged.
    #[error(
        "{file}: the {packing} data are cut off or damaged near byte {at_bytes} of the file ({source}); fetch it again"
    )]
    Packed {
        /// Which file.
        file: String,
        /// How it is packed.
        packing: Packing,
        /// How much of the file was read.
        at_bytes: u64,
        /// What the unpacker says.
        source: io::Error,
    },
    /// A binary trace that cannot be believed.
    #[error("{file}: {place}: {damage}")]
    Damaged {
        /// Which file.
        file: String,
        /// Where in it.
        place: Place,
        /// What is wrong.
        damage: Damage,
    },
    /// A trace whose format this build leaves out.
    #[error(
        "{file}: a trace in {format}, which this build cannot read: build perdura with \
         `cargo build --release --features formats`, or give the trace as text, unpacked"
    )]
    NotBuilt {
        /// Which file.
        file: String,
        /// The format, or how the file is packed.
        format: String,
    },
    /// A Parquet file that its library cannot read.
    #[cfg(feature = "formats")]
    #[error("{file}: this Parquet file cannot be read: {source}; write or fetch it again")]
    Parquet {
        /// Which file.
        file: String,
        /// What the library says.
        source: Box<::parquet::errors::ParquetError>,
    },
    /// A column that a Parquet file lacks.
    #[error(
        "{file}: no plain column {column}; it has {columns}: give --columns \
         (as in time=ts:us,offset=lba:512,size=bytes,op=rw)"
    )]
    NoColumn {
        /// Which file.
        file: String,
        /// The column.
        column: String,
        /// Those that it has.
        columns: String,
    },
    /// A column of times without a unit.
    #[error(
        "{file}: column {column} is {kind}, which does not say what unit its times are in: give it, as in \
         --columns time=NAME:us, or by --time-unit"
    )]
    ColumnUnit {
        /// Which file.
        file: String,
        /// The column.
        column: String,
        /// How it is stored.
        kind: String,
    },
    /// A column of another type than its role needs.
    #[error(
        "{file}: column {column:?} holds {kind}; expected whole numbers (or timestamps for times, text for volumes): convert it, or choose \
         another with --columns"
    )]
    ColumnType {
        /// Which file.
        file: String,
        /// The column.
        column: String,
        /// What it holds.
        kind: &'static str,
    },
    /// A stream where a file is needed.
    #[error(
        "{file}: a Parquet file that comes as a stream may have {limit_bytes} bytes; give it as a file, unpacked"
    )]
    Stream {
        /// Which.
        file: String,
        /// What a stream may have.
        limit_bytes: u64,
    },
    /// Nothing that is known.
    #[error(
        "{file}: the format is not recognised; the trace starts with \"{start}\"; give --format (one of {})",
        Format::names()
    )]
    Unknown {
        /// Which file.
        file: String,
        /// Its first bytes.
        start: String,
    },
    /// A table whose header is not this project's own.
    #[error(
        "{file}: the format is not recognised; the first line looks like the header of a table, \"{start}\": say which columns are what \
         by --columns (as in time=ts:us,offset=lba:512,size=bytes,op=rw), or give --format (one of {})",
        Format::names()
    )]
    Header {
        /// Which file.
        file: String,
        /// Its first line.
        start: String,
    },
    /// Times whose unit the format does not say.
    #[error(
        "{file}: format {format} does not say what unit its times are in, and the first {records} records run from {first} \
         to {last}: give --time-unit (one of {})",
        TimeUnit::names()
    )]
    Unit {
        /// Which file.
        file: String,
        /// Its format.
        format: Format,
        /// How many records were looked at.
        records: usize,
        /// The first one's time.
        first: String,
        /// The last one's time.
        last: String,
    },
    /// A bad record.
    #[error(
        "{file}: {place}: {fault} (format {format}; --skip-bad N passes over up to N such records)"
    )]
    Record {
        /// Which file.
        file: String,
        /// Where in it.
        place: Place,
        /// Its format.
        format: Format,
        /// What is wrong.
        fault: Box<Fault>,
    },
    /// A bad record after as many as were to be skipped.
    #[error(
        "{file}: {place}: {fault} (format {format}); this is the bad record after {skipped} that were skipped, the first at \
         {first_place}: {first}"
    )]
    TooManyBad {
        /// Which file.
        file: String,
        /// Where in it.
        place: Place,
        /// Its format.
        format: Format,
        /// What is wrong.
        fault: Box<Fault>,
        /// How many were skipped.
        skipped: u64,
        /// Where the first of them was.
        first_place: Place,
        /// What was wrong with it.
        first: Box<Fault>,
    },
}
