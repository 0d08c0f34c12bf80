//! A heap held still while its process forks.
//!
//! A fork copies locks as they are. Whoever forks must hold them all, or the child may find one
//! held by a thread it does not have. What other threads had cached is lost to the child.

use std::ops::Range;
use std::path::Path;

use rustix::io::Errno;

use crate::engine::classes::SPAN_BYTES;
use crate::engine::{Halted, Kind};
use crate::heap::Heap;
use crate::sys::{Mapping, threads};

/// A heap whose capacity memory nobody can allocate or free anew, except what threads have in their
/// caches. Let go of it in the parent and in the child.
pub struct Still<'h> {
    heap: &'h Heap,
    // In this order: an engine's locks are taken after the list of heaps.
    engine: Halted<'h>,
    _threads: threads::Held,
}

impl Heap {
    /// Holds the heap still for a fork. It is for heaps of which only capacity memory is used:
    /// persistent memory cannot be had twice. Calls no `malloc`.
    pub fn hold_still(&self) -> Still<'_> {
        let threads = threads::hold();
        Still { heap: self, engine: self.core.engine.halt(), _threads: threads }
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        // A child has the heap for itself now: a copy by the kernel, or by `part_from_parent`.
        self.heap.core.adopt();
    }
}

impl Still<'_> {
    /// In the child: gives it memory of its own if the heap lies in a file without a name, in
    /// another in `dir`. The parent must wait for that. Calls no `malloc`.
    ///
    /// # Errors
    /// The medium has no room for it, or the system refuses, or the heap can be shared otherwise (a
    /// file with a name, a region): the child must not go on.
    pub fn part_from_parent(&self, dir: &Path) -> Result<(), Errno> {
        self.heap.core.memory.part_from_parent(dir, self.used(), self.bound())
    }

    /// In the parent, before it forks: a private copy of a heap in a file without a name, for a
    /// child that cannot have another file (no descriptor is left). What the parent stores from now
    /// on the child will not see. Calls no `malloc`.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn private_copy(&self) -> Result<PrivateCopy, Errno> {
        Ok(PrivateCopy(self.heap.core.memory.private_copy(self.used(), self.bound())?))
    }

    /// In the child: goes on with the copy.
    ///
    /// # Errors
    /// The system refuses: the child must not go on.
    pub fn part_with(&self, copy: PrivateCopy) -> Result<(), Errno> {
        match copy.0 {
            Some(copy) => self.heap.core.memory.part_with(copy),
            None => Ok(()),
        }
    }

    /// The bytes that hold anything, as ranges.
    fn used(&self) -> impl Iterator<Item = Range<u64>> {
        let tables = std::iter::once(0..self.heap.core.layout.first_span() * SPAN_BYTES);
        tables.chain(self.capacity())
    }

    /// Those that are to lie on a node.
    fn bound(&self) -> Option<(u32, impl Iterator<Item = Range<u64>>)> {
        self.heap.core.config.numa_node.map(|node| (node, self.capacity()))
    }

    fn capacity(&self) -> impl Iterator<Item = Range<u64>> {
        let owned = self.engine.owned(Kind::Capacity);
        owned.map(|spans| spans.start * SPAN_BYTES..spans.end * SPAN_BYTES)
    }
}

/// What a heap in a file without a name holds, in private memory; nothing of a heap that is private
/// itself.
pub struct PrivateCopy(Option<Mapping>);
