//! The options of a reader.

use super::{Columns, Format, TimeUnit};

/// How a trace is read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The format; where the user gives none the trace's first bytes and lines tell.
    pub format: Option<Format>,
    /// The unit of times, for formats that leave it open (`disksim`), and for files that keep to
    /// another than their format's.
    pub time_unit: Option<TimeUnit>,
    /// The bytes of a sector, for formats that count in sectors and leave their size open (`srt`
    /// without a header that says it), and for files with others than their format's 512 B.
    pub sector_bytes: Option<u64>,
    /// How many bad records are passed over before one is an error.
    pub skip_bad: u64,
    /// How far back in time a record may come and still be put in its place, nanoseconds.
    pub reorder_ns: u64,
    /// Which columns of a table (`csv`, `parquet`) are what; without it they have the names that
    /// this project writes.
    pub columns: Option<Columns>,
    /// Bytes of a record in a trace of key operations (`ycsb`): keys get slots of that size, in
    /// order of first sight.
    pub record_bytes: u64,
    /// How many instructions are a second, in memory traces: these have no other clock.
    pub instructions_per_s: u64,
    /// How many operations are a second, in traces of key operations, which have no clock at all.
    pub operations_per_s: u64,
    /// Which of an access's steps counts in `blkparse` text: `Q`, queued, `D`, issued to the
    /// driver, `C`, completed...
    pub block_action: char,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            format: None,
            time_unit: None,
            sector_bytes: None,
            skip_bad: 0,
            reorder_ns: 0,
            columns: None,
            record_bytes: 1024,
            instructions_per_s: 1_000_000_000,
            operations_per_s: 100_000,
            block_action: 'Q',
        }
    }
}
