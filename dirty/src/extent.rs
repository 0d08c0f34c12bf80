//! Runs of grains, and their bits in the words of a bitmap.

use crate::geometry::WORD_GRAINS;

/// A run of grains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Number of the first grain.
    pub grain: u64,
    /// Number of grains.
    pub len: u64,
}

impl Extent {
    /// Most grains that one extent can hold.
    pub const LEN_MAX: u64 = (1 << 24) - 1;

    /// Packs the extent into a word: 40 bits of grain number, 24 bits of length.
    pub fn pack(self) -> u64 {
        debug_assert!(self.grain < 1 << 40 && self.len <= Self::LEN_MAX);
        self.grain << 24 | self.len
    }

    /// Unpacks a word that [`Extent::pack`] made.
    pub fn unpack(word: u64) -> Self {
        Self { grain: word >> 24, len: word & Self::LEN_MAX }
    }
}

/// A mask of `len` bits from bit `from` on.
pub fn mask(from: u64, len: u64) -> u64 {
    debug_assert!(from + len <= 64 && len > 0);
    (u64::MAX >> (64 - len)) << from
}

/// Calls `f` with each bitmap word of the grains `from..to` and their bits in it, until `f` fails.
#[inline]
pub fn for_words<E>(
    from: u64,
    to: u64,
    mut f: impl FnMut(usize, u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut grain = from;
    while grain < to {
        let end = to.min((grain | (WORD_GRAINS - 1)) + 1);
        f((grain / WORD_GRAINS) as usize, mask(grain % WORD_GRAINS, end - grain))?;
        grain = end;
    }
    Ok(())
}

/// The runs of set bits in a bitmap word.
pub fn runs(word: usize, mut bits: u64) -> impl Iterator<Item = Extent> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let from = bits.trailing_zeros();
        let len = (bits >> from).trailing_ones();
        bits &= !mask(u64::from(from), u64::from(len));
        Some(Extent { grain: word as u64 * WORD_GRAINS + u64::from(from), len: u64::from(len) })
    })
}

/// The bitmap words of a run, each with the run's bits in it.
pub fn words(run: Extent) -> impl Iterator<Item = (usize, u64)> {
    let (mut grain, end) = (run.grain, run.grain + run.len);
    std::iter::from_fn(move || {
        if grain >= end {
            return None;
        }
        let stop = end.min((grain / WORD_GRAINS + 1) * WORD_GRAINS);
        let mask = mask(grain % WORD_GRAINS, stop - grain);
        let word = (grain / WORD_GRAINS) as usize;
        grain = stop;
        Some((word, mask))
    })
}
