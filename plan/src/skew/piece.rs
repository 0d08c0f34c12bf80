//! A piece of a record, and the limits of the numbers that can be counted.

use super::SkewError;
use crate::trace::Op;

/// Pages of a request; more than 64 GiB at once is not an access but a damaged line.
pub const REQUEST_PAGES_MAX: u64 = 1 << 24;
/// The most volumes that a trace may have.
pub const VOLUMES_MAX: u32 = 1 << 20;
/// Volumes with figures of their own in a trace that is sampled: their counters are part of the
/// fixed memory.
pub const SAMPLED_VOLUMES_MAX: usize = 6144;
/// The last time since the start of the trace: with the length of a window, or with that of one
/// beyond which nothing is, it fits 64 bits.
pub(super) const TIME_MAX_NS: u64 = (1 << 63) - 1;
/// The first page that cannot be numbered, for offsets lie below 2^63.
pub(super) const PAGES_MAX: u64 = 1 << 51;

/// A record, or those of its pages that lie in one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The time; pieces come in the order of time, nanoseconds.
    pub time_ns: u64,
    /// The number of the volume.
    pub volume: u32,
    /// Whether it reads or writes.
    pub op: Op,
    /// The first page.
    pub first_page: u64,
    /// The number of pages.
    pub pages: u64,
    /// Whether the record is counted with this piece: of a record in several pieces, with one.
    pub counts_as_record: bool,
}

impl Piece {
    #[inline]
    pub(super) fn check(&self) -> Result<(), SkewError> {
        let end = self.first_page.saturating_add(self.pages);
        if self.pages.wrapping_sub(1) < REQUEST_PAGES_MAX && end <= PAGES_MAX {
            return Ok(());
        }
        let Self { volume, first_page, pages, .. } = *self;
        Err(SkewError::Request { volume, first_page, pages, max: REQUEST_PAGES_MAX })
    }
}
