//! The accesses of a recorded trace, ready for replay: at most [`ACCESSES_MAX`] of them, read
//! before anything is timed.

use std::path::{Path, PathBuf};

use perdura_plan::trace::{Op, ReadOptions, Record, TraceError, TraceReader};

use super::workload::LINE_BYTES;

/// Most accesses that are kept, of 16 B each: the rest of a longer trace is left out, and the
/// result says so.
pub const ACCESSES_MAX: usize = 4 << 20;

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Offset in the trace, bytes; volumes lie far apart.
    offset_bytes: u64,
    /// Length in lines.
    lines: u32,
    /// Whether the access writes.
    pub is_write: bool,
}

/// The accesses of a trace.
#[derive(Debug)]
pub struct Replay {
    accesses: Vec<Access>,
    /// Whether the trace has more accesses.
    pub is_cut: bool,
}

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error("trace_file: {source}")]
    Trace {
        /// Place and reason of the fault.
        #[from]
        source: TraceError,
    },
    /// The trace has no accesses.
    #[error("trace_file: {0}: the trace has no accesses")]
    Empty(PathBuf),
}

impl Access {
    /// Offset of the access in `range_bytes`, and its length: both in whole lines, all of it
    /// inside.
    pub fn within(&self, range_bytes: u64) -> (u64, u64) {
        let bytes = (u64::from(self.lines) * LINE_BYTES).min(range_bytes / LINE_BYTES * LINE_BYTES);
        let offset = self.offset_bytes % range_bytes / LINE_BYTES * LINE_BYTES;
        (offset.min(range_bytes / LINE_BYTES * LINE_BYTES - bytes), bytes)
    }
}

impl Replay {
    /// Reads a trace of any format that `perdura plan trace` reads.
    ///
    /// # Errors
    /// The trace cannot be read, or has no accesses.
    pub fn load(path: &Path) -> Result<Self, ReplayError> {
        let mut reader = TraceReader::open(path, &ReadOptions::default())?;
        let (mut batch, mut accesses) = (Vec::new(), Vec::new());
        let mut is_cut = false;
        while !is_cut && reader.next_batch(&mut batch)? {
            let room = ACCESSES_MAX - accesses.len();
            is_cut = batch.len() > room;
            accesses.extend(batch.iter().take(room).map(|record| Access {
                offset_bytes: placed(record),
                lines: u32::try_from(record.len_bytes.div_ceil(LINE_BYTES)).unwrap_or(u32::MAX),
                is_write: record.op == Op::Write,
            }));
        }
        if accesses.is_empty() {
            return Err(ReplayError::Empty(path.to_owned()));
        }
        Ok(Self { accesses, is_cut })
    }

    /// Checks that a trace can be opened.
    ///
    /// # Errors
    /// The trace cannot be opened, or its format is unknown.
    pub fn check(path: &Path) -> Result<(), ReplayError> {
        TraceReader::open(path, &ReadOptions::default())?;
        Ok(())
    }

    /// All accesses in the trace's order.
    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }
}

/// Offset of a record: volumes are a little more than 1 TiB apart, so that their beginnings do not
/// coincide in a small range.
fn placed(record: &Record) -> u64 {
    const STRIDE_BYTES: u64 = (1 << 40) + 1_000_003 * LINE_BYTES;
    record.offset_bytes.wrapping_add(u64::from(record.volume).wrapping_mul(STRIDE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_lie_inside_whatever_range_there_is() {
        for (offset_bytes, lines) in [(0, 1), (100, 3), (1 << 40, 64), (u64::MAX - 5, 1000)] {
            for range_bytes in [64, 4096, 100_000, 1 << 30] {
                let access = Access { offset_bytes, lines, is_write: false };
                let (offset, bytes) = access.within(range_bytes);
                assert!(offset + bytes <= range_bytes, "{access:?} in {range_bytes}");
                assert!(offset % 64 == 0 && bytes % 64 == 0 && bytes > 0);
            }
        }
    }

    #[test]
    fn a_trace_is_what_it_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        std::fs::write(
            &path,
            "128166372000000000,h,0,Write,4096,512,9\n128166372000000010,h,0,Read,128,64,9\n",
        )
        .unwrap();
        let replay = Replay::load(&path).unwrap();
        let all: Vec<_> =
            replay.accesses().iter().map(|a| (a.within(1 << 20), a.is_write)).collect();
        assert_eq!(all, [((4096, 512), true), ((128, 64), false)]);
        assert!(!replay.is_cut);
        assert!(Replay::load(&dir.path().join("none")).is_err());
    }
}
