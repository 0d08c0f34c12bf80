//! Sizes of one region and its image. They are fixed at creation, except that a region may grow up
//! to its reserve.

use crate::error::SetupError;

/// Bytes of a block: the unit that belongs to one lane and has one kind.
pub const BLOCK_BYTES: u64 = 64 * 1024;
/// Smallest budget: below this one operation could not proceed.
pub const BUDGET_MIN_BYTES: u64 = 128 * 1024;
/// Bytes of the smallest region.
pub const REGION_MIN_BYTES: u64 = 4 * BLOCK_BYTES;
/// Bytes of a grain in barrier mode as a power of two: 64 B, a cache line.
pub const GRAIN_SHIFT_BARRIER: u32 = 6;
/// Bytes of a grain in trap mode as a power of two: 4 KiB, a page.
pub const GRAIN_SHIFT_TRAP: u32 = 12;
/// Frames that compaction may have on their way to the device.
pub const COMPACTION_FRAMES: u32 = 4;
/// Reserved bytes for each lane. The reserve is usually four times the bytes in use, so this is 16
/// MiB in use.
const LANE_BYTES: u64 = 64 << 20;
/// Most lanes that are made by default, besides the shared one.
const LANES_MAX: u64 = 64;
/// Bytes of the largest segment.
pub const SEGMENT_MAX_BYTES: u64 = 64 << 20;
/// Smallest limit of a frame's size: sixteen such frames on their way to a device reach its full
/// rate (docs/measuring/flush.md).
const FRAME_LIMIT_LEAST_BYTES: u64 = 1 << 20;
/// Smallest rest of a segment in which a frame is begun.
pub const FRAME_MIN_BYTES: u64 = 16 * 1024;
/// Frame buffers of a region; their number is not part of the format.
pub const BUFFERS: u32 = 20;
/// Grains covered by one bitmap word.
pub const WORD_GRAINS: u64 = 64;

/// The fixed sizes of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Largest size the region may grow to, bytes; a multiple of [`BLOCK_BYTES`].
    pub reserved_bytes: u64,
    /// Log2 of a grain's bytes.
    pub grain_shift: u32,
    /// Bytes of a log segment; a power of two.
    pub segment_bytes: u64,
    /// Most segments the log may have.
    pub segments_max: u32,
    /// Frame buffers in shared memory, each as large as the longest frame.
    pub buffers: u32,
}

impl Geometry {
    /// Geometry for a region of up to `reserved_bytes`.
    ///
    /// With `segment_bytes` of `None` segments have 1 MiB, or more (up to [`SEGMENT_MAX_BYTES`])
    /// where that would make more than 16,384 segments.
    pub fn new(
        reserved_bytes: u64,
        grain_shift: u32,
        segment_bytes: Option<u64>,
        buffers: u32,
    ) -> Result<Self, SetupError> {
        let reserved_bytes = reserved_bytes.next_multiple_of(BLOCK_BYTES);
        if !(GRAIN_SHIFT_BARRIER..=GRAIN_SHIFT_TRAP).contains(&grain_shift) {
            return Err(SetupError::Setting {
                name: "grain",
                value: format!("2^{grain_shift} bytes"),
                expected: "64 B to 4 KiB",
            });
        }
        let log_max_bytes = reserved_bytes.saturating_mul(5).max(64 << 20);
        let segment_bytes = match segment_bytes {
            Some(bytes) => bytes,
            None => (log_max_bytes / 16_384).next_power_of_two().clamp(1 << 20, SEGMENT_MAX_BYTES),
        };
        if !segment_bytes.is_power_of_two()
            || !(64 << 10..=SEGMENT_MAX_BYTES).contains(&segment_bytes)
        {
            return Err(SetupError::Setting {
                name: "segment",
                value: format!("{segment_bytes} bytes"),
                expected: "a power of two from 64 KiB to 64 MiB",
            });
        }
        let segments_max = log_max_bytes.div_ceil(segment_bytes).max(64);
        Ok(Self {
            reserved_bytes,
            grain_shift,
            segment_bytes,
            segments_max: u32::try_from(segments_max).map_err(|_| SetupError::Setting {
                name: "reserve",
                value: format!("{reserved_bytes} bytes"),
                expected: "a log of fewer than 2^32 segments",
            })?,
            buffers,
        })
    }

    /// Whether the sizes are within the limits of [`Geometry::new`] and of an image. Arithmetic
    /// with others may fail.
    pub fn is_possible(&self) -> bool {
        (GRAIN_SHIFT_BARRIER..=GRAIN_SHIFT_TRAP).contains(&self.grain_shift)
            && self.segment_bytes.is_power_of_two()
            && (64 << 10..=SEGMENT_MAX_BYTES).contains(&self.segment_bytes)
            && self.reserved_bytes.is_multiple_of(BLOCK_BYTES)
            && (1..=1 << 44).contains(&self.reserved_bytes)
            && (1..=1 << 24).contains(&self.segments_max)
            && (1..=1 << 10).contains(&self.buffers)
    }

    /// Bytes of one grain.
    pub fn grain_bytes(&self) -> u64 {
        1 << self.grain_shift
    }

    /// Bytes covered by one bitmap word.
    pub fn word_bytes(&self) -> u64 {
        WORD_GRAINS << self.grain_shift
    }

    /// Grains of the reserved range.
    pub fn grains(&self) -> u64 {
        self.reserved_bytes >> self.grain_shift
    }

    /// Bitmap words of the reserved range.
    pub fn words(&self) -> usize {
        self.grains().div_ceil(WORD_GRAINS) as usize
    }

    /// Blocks of the reserved range.
    pub fn blocks(&self) -> usize {
        (self.reserved_bytes / BLOCK_BYTES) as usize
    }

    /// Lanes that suit the size: one for each 64 MiB of the reserve up to 64, and one that all
    /// writers share. Every lane of a heap holds partly used spans of its own, so a small region
    /// must not have many.
    pub fn lanes(&self) -> u16 {
        let wanted = (self.reserved_bytes / LANE_BYTES).clamp(1, LANES_MAX);
        wanted.next_power_of_two() as u16 + 1
    }

    /// Most bytes of a frame, and of its buffer. Larger buffers would take memory from the data and
    /// flush no faster; smaller frames would cost recovery more reads.
    pub fn frame_limit(&self) -> u64 {
        (self.segment_bytes / 4).max(FRAME_LIMIT_LEAST_BYTES).min(self.segment_bytes)
    }

    /// Most bytes on the device for `dirty_bytes` of dirty grains, reached when all are isolated:
    /// every extent costs 8 B of table, every 4 KiB of payload a check of 16 B, and every frame is
    /// rounded up to 4 KiB.
    pub fn flush_bytes(&self, dirty_bytes: u64) -> u64 {
        let table = (dirty_bytes >> self.grain_shift) * 8;
        let sums = dirty_bytes.div_ceil(4096) * 16;
        let body = dirty_bytes + table + sums;
        body + body.div_ceil(self.frame_limit() / 2) * 8192
    }

    /// Most bytes of half-written frames of a killed process that a flush writes again, in addition
    /// to [`Geometry::flush_bytes`]. They are frames of compaction, whose number is limited: grains
    /// in other frames count as dirty until the frames are durable. These frames have their places
    /// in the log already, so they cost time and no space. (A flush or a drill that is itself
    /// killed leaves up to a segment for each buffer; the reserve has room for these.)
    pub fn redo_bytes(&self, budget_bytes: u64) -> u64 {
        // One more frame may be open, and the grains of one bitmap word may go beyond the limit.
        u64::from(COMPACTION_FRAMES + 1) * self.frame_bytes_max(budget_bytes) + self.word_bytes()
    }

    /// Most bytes of a frame under this budget: so few that some frames on their way leave most of
    /// a small budget to writers.
    pub fn frame_bytes_max(&self, budget_bytes: u64) -> u64 {
        (budget_bytes / 8).next_power_of_two().clamp(16 << 10, self.frame_limit())
    }

    /// Bytes that must be written within the warning: [`Geometry::flush_bytes`] and
    /// [`Geometry::redo_bytes`].
    pub fn warned_bytes(&self, budget_bytes: u64) -> u64 {
        self.flush_bytes(budget_bytes) + self.redo_bytes(budget_bytes)
    }

    /// Segments that must stay free so that up to four threads can always flush `dirty_bytes`.
    pub fn reserve_segments(&self, dirty_bytes: u64) -> u32 {
        (self.flush_bytes(dirty_bytes).div_ceil(self.segment_bytes * 7 / 8) + 4) as u32
    }

    /// The most dirty bytes whose flush fits `segments` free ones, exact to 4 KiB.
    pub fn coverable_bytes(&self, segments: u32) -> u64 {
        // A flush writes more than its dirty bytes, so those of all segments are too many.
        let (mut fits, mut beyond) = (0, u64::from(segments) * self.segment_bytes);
        while beyond - fits > 4096 {
            let middle = fits + (beyond - fits) / 2;
            match self.reserve_segments(middle) <= segments {
                true => fits = middle,
                false => beyond = middle,
            }
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_server_has_a_geometry() {
        // The README's 64 GiB were once refused for a segment that nobody had asked for.
        for memory_bytes in [1 << 18, 1 << 30, 50 << 30, 64 << 30, 4 << 40u64] {
            let geometry = Geometry::new(4 * memory_bytes, 6, None, 20).unwrap();
            assert!(geometry.segment_bytes <= SEGMENT_MAX_BYTES);
            let log_max_bytes = u64::from(geometry.segments_max) * geometry.segment_bytes;
            assert!(log_max_bytes >= 20 * memory_bytes);
        }
    }

    #[test]
    fn as_much_may_be_dirty_as_the_free_segments_can_take_in_a_flush() {
        for shift in [GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP] {
            for segment_bytes in [64 << 10, 1 << 20, 64 << 20] {
                let geometry = Geometry::new(1 << 30, shift, Some(segment_bytes), 20).unwrap();
                assert_eq!([0, 3, 4].map(|segments| geometry.coverable_bytes(segments)), [0; 3]);
                for segments in [5, 6, 100, 5000] {
                    let bytes = geometry.coverable_bytes(segments);
                    assert!(geometry.reserve_segments(bytes) <= segments);
                    assert!(geometry.reserve_segments(bytes + 4096) > segments);
                }
            }
        }
    }

    #[test]
    fn lanes_frames_and_what_is_written_again_follow_from_the_sizes() {
        let of = |reserved_bytes| Geometry::new(reserved_bytes, 6, None, 20).unwrap();
        let lanes = [1 << 20, 64 << 20, 192 << 20, 4 << 30, 1 << 40].map(|bytes| of(bytes).lanes());
        assert_eq!(lanes, [2, 2, 5, 65, 65]);
        let geometry = of(1 << 30);
        let mib = 1 << 20;
        for (budget_bytes, frame_bytes) in [
            (128 << 10, 16 << 10),
            (256 << 10, 32 << 10),
            (mib, 128 << 10),
            (mib + 4096, 256 << 10),
            (8 * mib, mib),
            (100 * mib, mib),
        ] {
            assert_eq!(geometry.frame_bytes_max(budget_bytes), frame_bytes);
            // Four frames of compaction, an open one, and a word of grains.
            assert_eq!(geometry.redo_bytes(budget_bytes), 5 * frame_bytes + 64 * 64);
        }
        assert_eq!((geometry.words(), geometry.blocks()), (1 << 18, 1 << 14));
        // A reserve is rounded up to blocks; segments are never fewer than 64.
        let small = Geometry::new(1, 12, Some(4 * mib), 20).unwrap();
        assert_eq!((small.reserved_bytes, small.segments_max), (BLOCK_BYTES, 64));
        assert_eq!((small.grains(), small.words(), small.word_bytes()), (16, 1, 64 * 4096));
    }
}
