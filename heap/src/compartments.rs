//! The compartments of an open heap.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::engine::Kind;
use crate::ptr::Offset;

/// A large area of memory of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compartment {
    /// The kind of the area's memory.
    pub kind: Kind,
    /// Offset of the area's first byte, a multiple of 64 KiB.
    pub offset: Offset,
    /// Bytes of the area, a multiple of 64 KiB.
    pub len_bytes: u64,
}

/// The compartments of a heap, by the offset of their first byte.
#[derive(Debug, Default)]
pub(crate) struct Compartments(Mutex<BTreeMap<u64, Compartment>>);

impl Compartments {
    /// Enters a compartment that was made or found.
    pub fn enter(&self, compartment: Compartment) {
        self.held().insert(compartment.offset.get(), compartment);
    }

    /// Takes a compartment out. Returns whether it was there.
    pub fn remove(&self, compartment: Compartment) -> bool {
        let (mut all, at) = (self.held(), compartment.offset.get());
        all.get(&at) == Some(&compartment) && all.remove(&at).is_some()
    }

    /// All compartments, by offset.
    pub fn all(&self) -> Vec<Compartment> {
        self.held().values().copied().collect()
    }

    /// First byte and length of the persistent compartment that holds a range.
    pub fn around(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let all = self.held();
        let (start, found) = all.range(..=offset).next_back()?;
        let is_inside =
            found.kind == Kind::Persistent && len <= found.len_bytes.saturating_sub(offset - start);
        is_inside.then_some((*start, found.len_bytes))
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u64, Compartment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
