//! Slots that a thread keeps to itself, by kind and class, so that allocating and freeing them
//! takes no lock.

use std::cell::Cell;

use super::Kind;
use super::classes::{CACHED_MAX, CLASSES};

/// The slots of one thread. A cache of zero bytes is empty.
pub(crate) struct ThreadCache {
    bins: [[Bin; CLASSES]; 2],
}

impl ThreadCache {
    #[inline]
    pub fn bin(&self, kind: Kind, class: usize) -> &Bin {
        &self.bins[kind as usize][class]
    }
}

/// A stack of slots of one class.
pub(crate) struct Bin {
    len: Cell<u32>,
    slots: [Cell<u64>; CACHED_MAX + 1],
}

impl Bin {
    #[inline]
    pub fn pop(&self) -> Option<u64> {
        let len = self.len.get().checked_sub(1)?;
        self.len.set(len);
        Some(self.slots[len as usize].get())
    }

    /// Puts a slot on top. Returns false if there are `max` already.
    #[inline]
    pub fn push(&self, offset: u64, max: u32) -> bool {
        let len = self.len.get();
        if len >= max {
            return false;
        }
        self.slots[len as usize].set(offset);
        self.len.set(len + 1);
        true
    }

    /// Takes the `count` oldest slots out.
    pub fn drop_oldest(&self, count: u32, mut each: impl FnMut(u64)) {
        let (len, count) = (self.len.get(), count.min(self.len.get()));
        for slot in &self.slots[..count as usize] {
            each(slot.get());
        }
        for at in count..len {
            self.slots[(at - count) as usize].set(self.slots[at as usize].get());
        }
        self.len.set(len - count);
    }
}
