//! A heap held still while its process forks.
//!
//! A fork copies locks as they are. The thread that forks must hold all locks, or the child may
//! find one held by a thread that it does not have. Slots in the caches of other threads are lost
//! to the child.

use std::ops::Range;
use std::path::Path;

use rustix::io::Errno;

use crate::engine::classes::SPAN_BYTES;
use crate::engine::{Halted, Kind};
use crate::heap::Heap;
use crate::sys::{Mapping, threads};

/// A heap whose capacity memory no thread can allocate or free, except slots in threads' caches.
/// Drop this in the parent and in the child.
pub struct Still<'h> {
    heap: &'h Heap,
    // The order counts: an engine's locks are taken after the list of heaps.
    engine: Halted<'h>,
    _threads: threads::Held,
}

impl Heap {
    /// Holds the heap still for a fork. This is for heaps of which only capacity memory is used,
    /// because two processes cannot have the same persistent memory. The call makes no `malloc`.
    pub fn hold_still(&self) -> Still<'_> {
        let threads = threads::hold();
        Still { heap: self, engine: self.core.engine.halt(), _threads: threads }
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        // The child has the heap for itself now, as a copy by the kernel or by `part_from_parent`.
        self.heap.core.adopt();
    }
}

impl Still<'_> {
    /// Gives the child memory of its own, in another file in `dir`, if the heap lies in a file
    /// without a name. The parent must wait for that. The call makes no `malloc`.
    ///
    /// # Errors
    /// The medium has no room, or the system refuses, or the heap is in a file with a name or in a
    /// region, which the child would share: the child must not go on.
    pub fn part_from_parent(&self, dir: &Path) -> Result<(), Errno> {
        self.heap.core.memory.part_from_parent(dir, self.used(), self.bound())
    }

    /// Makes, in the parent before it forks, a private copy of a heap in a file without a name, for
    /// a child that cannot have another file because no descriptor is left. The child does not see
    /// later stores of the parent. The call makes no `malloc`.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn private_copy(&self) -> Result<PrivateCopy, Errno> {
        Ok(PrivateCopy(self.heap.core.memory.private_copy(self.used(), self.bound())?))
    }

    /// Lets the child go on with the private copy.
    ///
    /// # Errors
    /// The system refuses: the child must not go on.
    pub fn part_with(&self, copy: PrivateCopy) -> Result<(), Errno> {
        match copy.0 {
            Some(copy) => self.heap.core.memory.part_with(copy),
            None => Ok(()),
        }
    }

    /// The ranges of bytes that hold anything.
    fn used(&self) -> impl Iterator<Item = Range<u64>> {
        let tables = std::iter::once(0..self.heap.core.layout.first_span() * SPAN_BYTES);
        tables.chain(self.capacity())
    }

    /// The ranges that must lie on a NUMA node, and the node.
    fn bound(&self) -> Option<(u32, impl Iterator<Item = Range<u64>>)> {
        self.heap.core.config.numa_node.map(|node| (node, self.capacity()))
    }

    fn capacity(&self) -> impl Iterator<Item = Range<u64>> {
        let owned = self.engine.owned(Kind::Capacity);
        owned.map(|spans| spans.start * SPAN_BYTES..spans.end * SPAN_BYTES)
    }
}

/// The contents of a heap in a file without a name, in private memory; nothing for a heap that is
/// private itself.
pub struct PrivateCopy(Option<Mapping>);
