//! A word that another thread reads while its owner waits.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// A word, and its value when the wait began.
#[derive(Debug)]
pub(crate) struct Watched {
    word: *const AtomicU32,
    seen: u32,
}

// SAFETY: the word is atomic, and lives as long as this by the promise of `new`.
unsafe impl Send for Watched {}

impl Watched {
    /// # Safety
    /// The word must outlive every call of [`Watched::has_changed`].
    pub unsafe fn new(word: &AtomicU32, seen: u32) -> Self {
        Self { word, seen }
    }

    pub fn has_changed(&self) -> bool {
        // SAFETY: the promise of `new`.
        unsafe { (*self.word).load(SeqCst) != self.seen }
    }
}
