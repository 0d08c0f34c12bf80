//! Words that are handed out once and freed together. Thousands of tables, each too small for huge
//! pages of its own, would otherwise cost a page fault for each 4 KiB.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;

use perdura_dirty::sys::{HUGE_PAGE_BYTES, Mapping};

/// Memory from which one thread takes words.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    piece: Option<Arc<Mapping>>,
    used_bytes: u64,
}

/// Words from an [`Arena`], zeroed at first and exclusively owned. They may outlive the arena.
#[derive(Debug)]
pub(crate) struct Words {
    piece: Arc<Mapping>,
    at: u64,
    count: usize,
}

impl Arena {
    /// Takes `count` words.
    pub(crate) fn take(&mut self, count: usize) -> Result<Words, Errno> {
        let bytes = count as u64 * 8;
        let fits = |piece: &&Arc<Mapping>| piece.len_bytes() - self.used_bytes >= bytes;
        let piece = match self.piece.as_ref().filter(fits) {
            Some(piece) => Arc::clone(piece),
            None => {
                // Each piece is larger than the last, so that little is taken where little is
                // needed.
                let last = self.piece.as_ref().map_or(0, |piece| piece.len_bytes());
                let len_bytes = bytes.max((last * 4).clamp(PIECE_MIN, PIECE_MAX));
                let piece = Mapping::anonymous(len_bytes)?;
                if len_bytes >= HUGE_PAGE_BYTES as u64 {
                    piece.prefer_huge_pages();
                }
                self.used_bytes = 0;
                Arc::clone(self.piece.insert(Arc::new(piece)))
            }
        };
        let at = self.used_bytes;
        self.used_bytes += bytes;
        Ok(Words { piece, at, count })
    }
}

/// Words from an [`Arena`] that several threads may change.
#[derive(Debug)]
pub(crate) struct SharedWords(Words);

impl Words {
    /// The words.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u64] {
        let words = self.piece.words(self.at, self.count);
        // SAFETY: an arena hands each word out once, so only this value reaches them, and `&self`
        // excludes writers.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
    }

    /// The words, for changing.
    #[inline]
    pub(crate) fn as_mut(&mut self) -> &mut [u64] {
        let words = self.piece.words(self.at, self.count);
        // SAFETY: as above, with `&mut self`; they are memory that may be changed through a shared
        // mapping.
        unsafe { std::slice::from_raw_parts_mut(words.as_ptr().cast_mut().cast(), words.len()) }
    }

    /// Lets several threads change the words from now on.
    pub(crate) fn shared(self) -> SharedWords {
        SharedWords(self)
    }
}

impl SharedWords {
    /// The words.
    #[inline]
    pub(crate) fn get(&self) -> &[AtomicU64] {
        self.0.piece.words(self.0.at, self.0.count)
    }
}

const PIECE_MIN: u64 = 64 << 10;
const PIECE_MAX: u64 = 16 << 20;
