//! A heap held still while its process forks.
//!
//! A fork copies locks as they are. Whoever forks must hold them all, or the child may find one held by a thread it
//! does not have. What other threads had cached is lost to the child.

use std::path::Path;

use rustix::io::Errno;

use crate::engine::classes::SPAN_BYTES;
use crate::engine::{Halted, Kind};
use crate::heap::Heap;
use crate::sys::threads;

/// A heap whose capacity memory nobody can allocate or free anew, except what threads have in their caches. Let go of
/// it in the parent and in the child.
pub struct Still<'h> {
    heap: &'h Heap,
    // In this order: an engine's locks are taken after the list of heaps.
    engine: Halted<'h>,
    _threads: threads::Held,
}

impl Heap {
    /// Holds the heap still for a fork. It is for heaps of which only capacity memory is used: persistent memory
    /// cannot be had twice. Calls no `malloc`.
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
    /// In the child: gives it memory of its own if the heap lies in a file, in a file without a name in `dir`. The
    /// parent must wait for that. Calls no `malloc`.
    ///
    /// # Errors
    /// The medium has no room for it, or the system refuses: the child must not go on.
    pub fn part_from_parent(&self, dir: &Path) -> Result<(), Errno> {
        let core = &self.heap.core;
        let bytes_of =
            |spans: std::ops::Range<u64>| spans.start * SPAN_BYTES..spans.end * SPAN_BYTES;
        let capacity = || self.engine.owned(Kind::Capacity).map(bytes_of);
        let tables = std::iter::once(0..core.layout.first_span() * SPAN_BYTES);
        let bound = core.config.numa_node.map(|node| (node, capacity()));
        core.memory.part_from_parent(dir, tables.chain(capacity()), bound)
    }
}
