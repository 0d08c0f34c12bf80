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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{GRAIN_SHIFT_BARRIER, SEGMENT_MAX_BYTES};

    #[test]
    fn locations_have_two_bytes_as_long_as_these_can_number_every_segment() {
        let geometry = Geometry::new(1 << 30, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
        let bytes = |segments_max| location_bytes(&Geometry { segments_max, ..geometry });
        assert_eq!([64, 65_534, 65_535, 65_536, 1 << 24].map(bytes), [2, 2, 4, 4, 4]);
        let largest = Geometry::new(1 << 44, 12, Some(SEGMENT_MAX_BYTES), 4).unwrap();
        assert_eq!(location_bytes(&largest), 4);
    }

    #[test]
    fn each_grain_has_the_location_that_was_set_last_and_runs_of_one_are_as_long_as_they_are() {
        let narrow: Vec<AtomicU16> = (0..64).map(|_| AtomicU16::new(0)).collect();
        let wide: Vec<AtomicU32> = (0..64).map(|_| AtomicU32::new(0)).collect();
        for (locations, most) in
            [(Locations::Narrow(&narrow), 0xffff), (Locations::Wide(&wide), 0x12_ffff)]
        {
            let mut expected = [NO_LOCATION; 64];
            for (grain, len, location) in
                [(3, 20, 1), (10, 1, 2), (22, 9, most), (0, 1, most), (60, 4, 7), (31, 2, most)]
            {
                locations.set(Extent { grain, len }, location);
                expected[grain as usize..(grain + len) as usize].fill(location);
            }
            assert_eq!(Vec::from_iter((0..64).map(|grain| locations.of(grain))), expected);
            for grain in 0..64 {
                let first = expected[grain];
                let same = expected[grain..].iter().take_while(|other| **other == first).count();
                for len in 1..=64 - grain {
                    let run = Extent { grain: grain as u64, len: len as u64 };
                    assert_eq!(locations.alike(run), len.min(same) as u64);
                }
            }
            let (size, bytes): (_, Vec<u8>) = match locations {
                Locations::Narrow(all) => {
                    (2, all.iter().flat_map(|at| at.load(Relaxed).to_le_bytes()).collect())
                }
                Locations::Wide(all) => {
                    (4, all.iter().flat_map(|at| at.load(Relaxed).to_le_bytes()).collect())
                }
            };
            let (mut found, mut last) = (Vec::new(), None);
            for_runs(size, &bytes, |location, len| {
                assert_ne!(last.replace(location), Some(location));
                found.extend((0..len).map(|_| location));
            });
            assert_eq!(found, expected);
        }
    }
}
