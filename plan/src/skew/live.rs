//! How many pages were last written at each instant of the longest window: a ring with 4 B for each
//! instant.
//!
//! A page that is written again moves from its old instant to the new one, which is a random
//! access. A ring that is too large for memory lies in a mapped temporary file.

use std::path::PathBuf;

use super::SkewError;
use super::sys::{self, MappedCounts, Zeroed};

/// The place of the ring: in memory or in a file.
enum Counts {
    Memory(Zeroed<u32>),
    Mapped(MappedCounts),
}

/// The ring of the longest window's instants. Others have no place in it.
pub struct Live {
    counts: Counts,
    mask: u64,
    memory_max: u64,
    dir: PathBuf,
}

impl Live {
    pub fn new(memory_max: u64, dir: PathBuf) -> Self {
        const INSTANTS: usize = 1024;
        let mask = INSTANTS as u64 - 1;
        Self { counts: Counts::Memory(Zeroed::new(INSTANTS)), mask, memory_max, dir }
    }

    #[inline]
    pub fn counts(&mut self) -> &mut [u32] {
        match &mut self.counts {
            Counts::Memory(counts) => counts,
            Counts::Mapped(counts) => counts,
        }
    }

    /// The bits of a number that are its place in the ring.
    #[inline]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        (number & self.mask) as usize
    }

    #[inline]
    pub fn prefetch(&self, number: u64) {
        let counts = match &self.counts {
            Counts::Memory(counts) => &counts[..],
            Counts::Mapped(counts) => &counts[..],
        };
        sys::prefetch(counts, self.slot(number));
    }

    /// Makes room for `number` beside all from `oldest` on.
    #[inline]
    pub fn make_room(&mut self, oldest: u64, number: u64) -> Result<(), SkewError> {
        if number - oldest > self.mask { self.grow(oldest, number) } else { Ok(()) }
    }

    /// The bytes of the temporary file.
    pub fn spilled_bytes(&self) -> u64 {
        match &self.counts {
            Counts::Memory(_) => 0,
            Counts::Mapped(counts) => size_of_val(&counts[..]) as u64,
        }
    }

    fn grow(&mut self, oldest: u64, number: u64) -> Result<(), SkewError> {
        let len = (number - oldest + 1).next_power_of_two().max(2 * (self.mask + 1));
        let mut larger = if len * size_of::<u32>() as u64 <= self.memory_max {
            Counts::Memory(Zeroed::new(len as usize))
        } else {
            let mapped = MappedCounts::new(len as usize, &self.dir)
                .map_err(|error| SkewError::spill(&self.dir, error))?;
            Counts::Mapped(mapped)
        };
        let into: &mut [u32] = match &mut larger {
            Counts::Memory(counts) => counts,
            Counts::Mapped(counts) => counts,
        };
        let mask = self.mask;
        let from = self.counts();
        for known in oldest..number {
            into[(known & (len - 1)) as usize] = from[(known & mask) as usize];
        }
        (self.counts, self.mask) = (larger, len - 1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_with_their_instants_while_the_ring_grows_into_a_file() {
        let mut live = Live::new(16 << 10, std::env::temp_dir());
        let (mut oldest, mut number) = (2u64, 2u64);
        while number < 100_000 {
            live.make_room(oldest, number).unwrap();
            let slot = live.slot(number);
            assert_eq!(live.counts()[slot], 0, "{number}");
            live.counts()[slot] = number as u32;
            number += 1;
            // The window grows, and what leaves it is set to 0.
            if number % 4 == 0 {
                let slot = live.slot(oldest);
                assert_eq!(std::mem::take(&mut live.counts()[slot]), oldest as u32);
                oldest += 1;
            }
        }
        assert!(matches!(live.counts, Counts::Mapped(_)));
    }
}
