//! The location of each grain: the number of the log segment that holds its newest copy, plus one.
//! Zero, which is untouched memory, means that no segment holds the grain.
//!
//! Locations are most of the memory beside the data. They have two bytes each, unless the log may
//! have more segments than two bytes can count.

use crate::extent::Extent;
use crate::geometry::Geometry;
use crate::sync::{AtomicU16, AtomicU32, Ordering::Relaxed};

/// The location of a grain that no segment holds.
pub const NO_LOCATION: u32 = 0;

/// Bytes of a location under this geometry.
pub(crate) fn location_bytes(geometry: &Geometry) -> u64 {
    if geometry.segments_max < u32::from(u16::MAX) { 2 } else { 4 }
}

/// The locations of all grains.
#[derive(Clone, Copy)]
pub enum Locations<'l> {
    /// Locations of two bytes each.
    Narrow(&'l [AtomicU16]),
    /// Locations of four bytes each.
    Wide(&'l [AtomicU32]),
}

impl Locations<'_> {
    /// The location of a grain.
    #[inline]
    pub fn of(&self, grain: u64) -> u32 {
        match self {
            Self::Narrow(locations) => u32::from(locations[grain as usize].load(Relaxed)),
            Self::Wide(locations) => locations[grain as usize].load(Relaxed),
        }
    }

    /// Sets the location of a run of grains.
    #[inline]
    pub fn set(&self, run: Extent, location: u32) {
        let grains = run.grain as usize..(run.grain + run.len) as usize;
        match self {
            Self::Narrow(locations) => {
                let narrow = location as u16;
                assert_eq!(u32::from(narrow), location, "a location of two bytes");
                locations[grains].iter().for_each(|location| location.store(narrow, Relaxed));
            }
            Self::Wide(locations) => {
                locations[grains].iter().for_each(|at| at.store(location, Relaxed))
            }
        }
    }

    /// The number of grains at the beginning of a run that share the location of the first.
    #[inline]
    pub fn alike(&self, run: Extent) -> u64 {
        let first = self.of(run.grain);
        (run.grain..run.grain + run.len).take_while(|grain| self.of(*grain) == first).count() as u64
    }
}

/// Calls `f` with each run of equal locations and its length. The bytes are as [`crate::Ledger`]
/// holds them.
pub(crate) fn for_runs(location_bytes: u64, bytes: &[u8], mut f: impl FnMut(u32, u64)) {
    if location_bytes == 2 {
        for run in bytes.as_chunks::<2>().0.chunk_by(|a, b| a == b) {
            f(u32::from(u16::from_le_bytes(run[0])), run.len() as u64);
        }
    } else {
        for run in bytes.as_chunks::<4>().0.chunk_by(|a, b| a == b) {
            f(u32::from_le_bytes(run[0]), run.len() as u64);
        }
    }
}
