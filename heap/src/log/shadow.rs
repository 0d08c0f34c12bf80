//! The shadow: the 16 B units at which objects began when the generation did, in DRAM.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

use crate::layout::SHADOW_WORDS;
use crate::sys::Table;

/// The shadow, and the snapshot that says the same durably.
pub(crate) struct Folded {
    /// A bit for each 16 B unit: [`SHADOW_WORDS`] for each span.
    pub shadow: Table<AtomicU64>,
    /// A bit for each span whose part of the shadow may not be all zeros.
    pub touched: Table<AtomicU64>,
    /// Offsets of the chunks of the snapshot that counts.
    pub chunks: Vec<u64>,
}

impl Folded {
    /// The shadow of a heap of `spans` spans, in which nothing is allocated.
    pub fn new(spans: u64) -> Result<Self, Errno> {
        let shadow = Table::new(spans as usize * SHADOW_WORDS)?;
        let touched = Table::new(spans.div_ceil(64) as usize)?;
        Ok(Self { shadow, touched, chunks: Vec::new() })
    }

    /// Notes that the shadow of a span changes.
    #[inline]
    pub fn touch(&self, span: usize) {
        let (word, bit) = (&self.touched[span / 64], 1 << (span % 64));
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// The spans whose shadow may not be all zeros, ascending.
    pub fn touched_spans(&self) -> impl Iterator<Item = usize> + '_ {
        self.touched.iter().enumerate().flat_map(|(index, word)| {
            let bits = word.load(Relaxed);
            (0..64).filter(move |bit| bits & 1 << bit != 0).map(move |bit| index * 64 + bit)
        })
    }

    /// The shadow of a span.
    pub fn of_span(&self, span: usize) -> &[AtomicU64] {
        &self.shadow[span * SHADOW_WORDS..][..SHADOW_WORDS]
    }
}
