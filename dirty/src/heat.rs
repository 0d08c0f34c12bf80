//! Heat: how often dirty data were written again, in two bits a grain. The policy `clock-pro` uses
//! it.
//!
//! There are two hands, as in CLOCK-Pro (Jiang, Chen and Zhang, USENIX ATC 2005). The cleaner's
//! hand takes grains of heat 0, which are *cold*, and passes over hot ones. Every write to a dirty
//! grain adds one, up to 3. The cooling hand, an eighth as fast, takes one from each dirty grain
//! and sets the heat of clean grains to 0. A cleaned grain is left with heat 1, so that data
//! written again before the cooling hand comes are hot at once. docs/measuring/cleaning.md compares
//! this with second chance. Both hands read bitmaps, 64 grains at a time.
//!
//! Heat is a hint: a thread that holds a grain's lane, its page's lock or the cleaner may change
//! it, and a lost change does no harm.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;

use crate::sys::{Mapping, prefetch};

/// The heat of data, from 0 (cold) to 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Heat(u8);

impl Heat {
    /// The heat of data that replace nothing.
    pub const COLD: Self = Self(0);
    const MAX: u8 = 3;

    /// The heat of data that replace data of this heat.
    fn successor(self, was_dirty: bool) -> Self {
        Self((self.0 + u8::from(was_dirty)).min(Self::MAX))
    }
}

/// The heat of the 64 grains of a bitmap word, as a word of low bits and a word of high bits. Pure
/// arithmetic, which the region's table and the replay of a trace share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Planes(u64, u64);

impl Planes {
    /// The grains of heat 0.
    pub fn cold(self) -> u64 {
        !(self.0 | self.1)
    }

    /// The heat after the dirty grains `bits` are written again.
    pub fn warmed(self, bits: u64) -> Self {
        let Self(low, high) = self;
        self.with(bits, Self(!low | high, low | high))
    }

    /// The heat after the grains `bits` were cleaned.
    pub fn cleaned(self, bits: u64) -> Self {
        self.set(bits, Heat(1))
    }

    /// The heat after the cooling hand has passed, given the dirty grains.
    pub fn cooled(self, dirty: u64) -> Self {
        let Self(low, high) = self;
        Self(high & !low & dirty, low & high & dirty)
    }

    fn set(self, bits: u64, heat: Heat) -> Self {
        let plane = |bit: u8| if heat.0 >> bit & 1 == 1 { u64::MAX } else { 0 };
        self.with(bits, Self(plane(0), plane(1)))
    }

    fn with(self, bits: u64, other: Self) -> Self {
        Self(self.0 & !bits | other.0 & bits, self.1 & !bits | other.1 & bits)
    }
}

/// The heat of all grains of a region, private to a process.
pub struct HeatTable(Mapping);

impl HeatTable {
    /// Makes a table for `words` bitmap words, all of heat 0.
    pub fn new(words: usize) -> Result<Self, Errno> {
        let mapping = Mapping::anonymous(words as u64 * 16)?;
        mapping.prefer_huge_pages();
        Ok(Self(mapping))
    }

    fn places(&self, word: usize) -> &[AtomicU64] {
        self.0.words(word as u64 * 16, 2)
    }

    fn load(&self, word: usize) -> Planes {
        let places = self.places(word);
        Planes(places[0].load(Relaxed), places[1].load(Relaxed))
    }

    fn change(&self, word: usize, change: impl FnOnce(Planes) -> Planes) {
        let before = self.load(word);
        let after = change(before);
        if after != before {
            let places = self.places(word);
            places[0].store(after.0, Relaxed);
            places[1].store(after.1, Relaxed);
        }
    }

    /// Prefetches the heat of a bitmap word's grains.
    #[inline]
    pub fn prefetch(&self, word: usize) {
        prefetch(self.0.base().wrapping_add(word * 16));
    }

    /// The grains of a bitmap word that are cold.
    pub fn cold(&self, word: usize) -> u64 {
        self.load(word).cold()
    }

    /// The heat of data that replace those of a grain but are stored elsewhere.
    pub(crate) fn successor_of(&self, word: usize, bit: u64, is_dirty: bool) -> Heat {
        let Planes(low, high) = self.load(word);
        Heat(u8::from(low & bit != 0) + 2 * u8::from(high & bit != 0)).successor(is_dirty)
    }

    /// Notes that the grains `bits` are written, of which `dirty` were dirty. `heat` is given for
    /// new data that do not replace those at the same place.
    #[inline(always)]
    pub fn written(&self, word: usize, bits: u64, dirty: u64, heat: Option<Heat>) {
        self.change(word, |planes| match heat {
            None => planes.warmed(bits & dirty),
            Some(heat) => planes.set(bits, heat),
        });
    }

    /// Notes that one dirty grain is written, like [`HeatTable::written`], where other threads may
    /// write its neighbours at the same moment.
    pub(crate) fn written_among_others(&self, word: usize, bit: u64) {
        let Planes(low, high) = self.load(word).warmed(bit);
        for (place, plane) in self.places(word).iter().zip([low, high]) {
            match plane & bit {
                0 => place.fetch_and(!bit, Relaxed),
                bit => place.fetch_or(bit, Relaxed),
            };
        }
    }

    /// Notes that the grains `bits` were cleaned.
    pub fn cleaned(&self, word: usize, bits: u64) {
        self.change(word, |planes| planes.cleaned(bits));
    }

    /// Lets the cooling hand pass over a bitmap word, of which `dirty` are dirty.
    pub fn cool(&self, word: usize, dirty: u64) {
        self.change(word, |planes| planes.cooled(dirty));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_count_to_three_and_back_each_grain_for_itself() {
        let table = HeatTable::new(4).unwrap();
        let heat = |bit: u64| table.successor_of(2, bit, false).0;
        let (one, other) = (1 << 9, 1 << 40);
        for writes in 0..6u8 {
            assert_eq!((heat(one), heat(other)), (writes.min(3), 0));
            assert_eq!(table.successor_of(2, one, true).0, (writes + 1).min(3));
            match writes % 2 {
                0 => table.written(2, one, one, None),
                _ => table.written_among_others(2, one),
            }
        }
        table.written(2, other, 0, None);
        assert_eq!(heat(other), 0, "first writes warm nothing");
        for left in [2, 1, 0, 0] {
            table.cool(2, one);
            assert_eq!((heat(one), table.cold(2) & one != 0), (left, left == 0));
        }
        assert_eq!((table.cold(1), table.cold(3)), (u64::MAX, u64::MAX));
    }

    #[test]
    fn what_was_cleaned_is_hot_at_once_until_it_is_forgotten() {
        let table = HeatTable::new(1).unwrap();
        table.cleaned(0, 0b11);
        table.written(0, 0b01, 0, None);
        assert_eq!(table.cold(0) & 0b11, 0);
        // One is dirty now, the other clean.
        table.cool(0, 0b01);
        assert_eq!(table.cold(0) & 0b11, 0b11);
        assert_eq!(table.successor_of(0, 0b10, false), Heat::COLD);
    }

    #[test]
    fn new_data_have_the_heat_they_bring() {
        let table = HeatTable::new(1).unwrap();
        table.written(0, 0b1, 0b1, None);
        table.written(0, 0b1, 0b1, Some(Heat::COLD));
        assert_eq!(table.successor_of(0, 0b1, false), Heat::COLD);
        table.written(0, 0b110, 0, Some(Heat(2)));
        assert_eq!(table.successor_of(0, 0b100, true), Heat(3));
    }
}
