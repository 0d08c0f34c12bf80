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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_runs_have_each_grain_once_and_in_order() {
        for (from, to) in [(0, 1), (0, 64), (63, 65), (64, 64), (5, 200), (128, 256), (191, 192)] {
            let mut by_words = Vec::new();
            let mut enter = |word: usize, bits: u64| {
                assert_ne!(bits, 0);
                let grains = (0..64).filter(|grain| bits >> grain & 1 == 1);
                by_words.extend(grains.map(|grain| word as u64 * 64 + grain));
                for run in runs(word, bits) {
                    assert_eq!(mask(run.grain % 64, run.len) & !bits, 0);
                }
            };
            for_words(from, to, |word, bits| {
                enter(word, bits);
                Ok::<(), ()>(())
            })
            .unwrap();
            let run = Extent { grain: from, len: to - from };
            words(run).for_each(|(word, bits)| enter(word, bits));
            let expected = Vec::from_iter((from..to).chain(from..to));
            assert_eq!(by_words, expected, "{from}..{to}");
            if from < to {
                assert_eq!(Extent::unpack(run.pack()), run);
            }
        }
        let mut words_seen = 0;
        let ended = for_words(0, 640, |word, _| {
            words_seen += 1;
            if word == 2 { Err(word) } else { Ok(()) }
        });
        assert_eq!((ended, words_seen), (Err(2), 3));
        let of = |bits| runs(3, bits).map(|run| (run.grain - 192, run.len)).collect::<Vec<_>>();
        assert_eq!(of(0), []);
        assert_eq!(of(u64::MAX), [(0, 64)]);
        assert_eq!(of(0x8000_0000_0000_00f1), [(0, 1), (4, 4), (63, 1)]);
        let far = Extent { grain: (1 << 40) - 1, len: Extent::LEN_MAX };
        assert_eq!(Extent::unpack(far.pack()), far);
    }
}
