//! Huge pages for memory that is about to be used, piece by piece as it is handed out.
//!
//! A store touches its memory at random, so with 4 KiB pages each access misses the TLB as well as
//! the cache. A piece of 2 MiB gets its memory in one system call when the first block in it is
//! handed out. The call is cheaper than the 512 page faults that it replaces, and no memory is
//! taken that is not about to be used. Where huge pages are refused, small ones serve, and after a
//! few refusals nothing more is asked for.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::sys::{HUGE_PAGE_BYTES, Mapping};

/// Refusals after which nothing more is asked for: each may have made the kernel search long for
/// free memory.
const REFUSALS_MAX: u32 = 8;

/// The pieces of one mapping for which huge pages have been asked for.
pub(crate) struct Gathered {
    asked: Box<[AtomicU64]>,
    refused: AtomicU32,
}

impl Gathered {
    /// For a mapping of `len_bytes`. The bytes beyond its last whole piece stay in small pages.
    pub(crate) fn new(len_bytes: u64) -> Self {
        let words = (len_bytes / PIECE).div_ceil(64);
        let asked = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { asked, refused: AtomicU32::new(0) }
    }

    /// Gives huge pages to the pieces that hold these bytes. The bytes stay as they are.
    #[inline]
    pub(crate) fn cover(&self, map: &Mapping, offset: u64, len: u64) {
        for piece in offset / PIECE..=(offset + len.max(1) - 1) / PIECE {
            let (word, bit) = ((piece / 64) as usize, 1 << (piece % 64));
            if self.asked.get(word).is_some_and(|asked| asked.load(Relaxed) & bit == 0) {
                self.ask(map, piece);
            }
        }
    }

    #[cold]
    fn ask(&self, map: &Mapping, piece: u64) {
        let bit = 1 << (piece % 64);
        let others = self.asked[(piece / 64) as usize].fetch_or(bit, Relaxed);
        let is_whole = (piece + 1) * PIECE <= map.len_bytes();
        if others & bit == 0 && is_whole && self.refused.load(Relaxed) < REFUSALS_MAX {
            let outcome = map.gather(piece * PIECE, HUGE_PAGE_BYTES);
            self.refused.fetch_add(u32::from(outcome.is_err()), Relaxed);
        }
    }
}

const PIECE: u64 = HUGE_PAGE_BYTES as u64;
