//! Accesses as lines of 64 B.

/// Consecutive lines on one module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lines {
    pub first: u64,
    pub count: u64,
}

/// Size of a line, bytes.
pub(super) const LINE_BYTES: u64 = 64;
/// Lines that are asked for at a time: as many as a loop of the measured programs reads at once.
pub(super) const PIECE_LINES: u64 = 8;

impl Lines {
    /// The lines that contain a range of bytes.
    pub fn under(place: u64, bytes: u64) -> Self {
        let first = place / LINE_BYTES;
        let last = (place + bytes.max(1) - 1) / LINE_BYTES;
        Self { first, count: last - first + 1 }
    }

    pub fn end(self) -> u64 {
        self.first + self.count
    }

    /// Whether another range lies in this one.
    pub fn has(self, other: Self) -> bool {
        self.first <= other.first && other.end() <= self.end()
    }

    /// Removes the next piece from the beginning; it ends at a multiple of [`PIECE_LINES`] at the
    /// latest.
    pub fn take_piece(&mut self) -> Self {
        let count = (PIECE_LINES - self.first % PIECE_LINES).min(self.count);
        let piece = Self { first: self.first, count };
        self.first += count;
        self.count -= count;
        piece
    }
}
