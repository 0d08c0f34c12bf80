//! Leaks: objects that are allocated and to which no reference leads.
//!
//! References lead from named roots, from the words of persistent compartments, and from the
//! objects that they lead to. [`Heap::leaks`] knows no types, so it is conservative: every aligned
//! word of such an object that is the offset of an object's byte, or an address in the heap's
//! memory, counts as a reference. So a leak may be taken for an object in use, but never the other
//! way, as long as references are stored whole and aligned. [`Heap::leaks_traced`] asks the
//! application instead.
//!
//! Both calls look at a heap that stands still: other threads must have ended their operations.

mod mark;

use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::engine::Kind;
use crate::engine::classes::UNIT_BYTES;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::ptr::Offset;
use mark::{Conservative, Marks, Traced, Tracer};

pub use mark::{Reached, Visitor};

/// Most leaks that are listed one by one.
pub const LEAKS_LISTED_MAX: usize = 1000;

/// An object to which no reference leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leak {
    /// Offset of the object.
    pub object: Offset,
    /// Bytes of the object's slot.
    pub len_bytes: u64,
}

/// The findings of [`Heap::leaks`].
#[derive(Debug)]
pub struct Leaks {
    heap: u64,
    /// Objects that are allocated, leaks included.
    pub objects: u64,
    /// Bytes of the slots of all objects.
    pub object_bytes: u64,
    /// Objects to which no reference leads.
    pub leaks: u64,
    /// Bytes of the slots of leaks.
    pub leaked_bytes: u64,
    /// The first [`LEAKS_LISTED_MAX`] leaks, by offset.
    pub listed: Vec<Leak>,
    /// A mark at the first unit of every leak.
    unreached: Marks,
}

/// The result of [`Heap::reclaim`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Leaks that were freed.
    pub objects: u64,
    /// Bytes of the slots of these leaks.
    pub bytes: u64,
    /// Objects that were leaks before, and to which a reference leads now.
    pub kept: u64,
}

impl Heap {
    /// Finds the objects to which no reference leads; see [`Leaks`] and [`Heap::reclaim`]. Other
    /// threads must have ended their operations: objects that they hold and have not linked yet
    /// would be among the leaks. So would be objects that only references in DRAM or capacity
    /// memory lead to.
    ///
    /// # Errors
    /// This thread is in a transaction, a root is damaged, or there is no memory for the marks.
    pub fn leaks(&self) -> Result<Leaks, HeapError> {
        self.find_leaks(&Conservative::new(&self.core))
    }

    /// Finds leaks as [`Heap::leaks`] does, but `trace` names the references of an object: it is
    /// called once for every object that a reference leads to, by several threads, and hands the
    /// object's pointers to the visitor. Persistent compartments are handed to `trace` as well.
    ///
    /// # Errors
    /// The errors of [`Heap::leaks`].
    pub fn leaks_traced(
        &self,
        trace: impl Fn(&Reached, &mut Visitor<'_>) + Sync,
    ) -> Result<Leaks, HeapError> {
        self.find_leaks(&Traced::new(&self.core, &trace))
    }

    /// Frees leaks, durably when this returns. References are followed again first, and an object
    /// that one leads to by now is kept.
    ///
    /// # Errors
    /// The errors of [`Heap::leaks`]; or the leaks are another heap's ([`HeapError::OtherHeap`]);
    /// or the log has no room, and only some leaks are freed.
    pub fn reclaim(&self, leaks: &Leaks) -> Result<Reclaimed, HeapError> {
        self.reclaim_as(leaks, &Conservative::new(&self.core))
    }

    /// Frees leaks as [`Heap::reclaim`] does, for [`Heap::leaks_traced`].
    ///
    /// # Errors
    /// The errors of [`Heap::reclaim`].
    pub fn reclaim_traced(
        &self,
        leaks: &Leaks,
        trace: impl Fn(&Reached, &mut Visitor<'_>) + Sync,
    ) -> Result<Reclaimed, HeapError> {
        self.reclaim_as(leaks, &Traced::new(&self.core, &trace))
    }

    fn find_leaks(&self, tracer: &impl Tracer) -> Result<Leaks, HeapError> {
        self.refuse_in_transaction("end it first")?;
        let marks = self.mark(tracer)?;
        let mut leaks = Leaks {
            heap: self.core.id,
            objects: 0,
            object_bytes: 0,
            leaks: 0,
            leaked_bytes: 0,
            listed: Vec::new(),
            unreached: new_marks(&self.core)?,
        };
        self.core.engine.for_objects(|offset, len_bytes| {
            leaks.objects += 1;
            leaks.object_bytes += len_bytes;
            if marks.has(offset) {
                return;
            }
            leaks.leaks += 1;
            leaks.leaked_bytes += len_bytes;
            leaks.unreached.set(offset);
            if leaks.listed.len() < LEAKS_LISTED_MAX {
                leaks.listed.push(Leak { object: Offset::of(offset), len_bytes });
            }
        });
        Ok(leaks)
    }

    fn reclaim_as(&self, leaks: &Leaks, tracer: &impl Tracer) -> Result<Reclaimed, HeapError> {
        if leaks.heap != self.core.id {
            return Err(HeapError::OtherHeap);
        }
        let now = self.find_leaks(tracer)?;
        let mut doomed = Vec::new();
        let mut done = Reclaimed::default();
        self.core.engine.for_objects(|offset, len_bytes| {
            match (leaks.unreached.has(offset), now.unreached.has(offset)) {
                (true, true) => doomed.push((offset, len_bytes)),
                (true, false) => done.kept += 1,
                _ => {}
            }
        });
        done.kept += leaks.leaks.saturating_sub(done.kept + doomed.len() as u64);
        for (offset, len_bytes) in doomed {
            self.persist_free(Offset::of(offset))?;
            done.objects += 1;
            done.bytes += len_bytes;
        }
        self.fence();
        Ok(done)
    }

    /// Marks all objects that references lead to.
    fn mark(&self, tracer: &impl Tracer) -> Result<Marks, HeapError> {
        let marks = new_marks(&self.core)?;
        let roots = self.roots()?;
        let mut first = Vec::new();
        for root in roots {
            if let Some(object) = root.object
                && let Some(reached) = tracer.find(object.get(), root.type_id)
                && marks.set(reached.object.get())
            {
                first.push(reached);
            }
        }
        for compartment in self.compartments() {
            if compartment.kind == Kind::Persistent {
                first.push(Reached {
                    object: compartment.offset,
                    len_bytes: compartment.len_bytes,
                    type_id: 0,
                    is_compartment: true,
                });
            }
        }
        mark::run(&self.core, tracer, &marks, first);
        Ok(marks)
    }
}

fn new_marks(core: &Core) -> Result<Marks, HeapError> {
    Marks::new(core.layout.spans)
        .map_err(|errno| HeapError::Refused { kind: "the leak search's own", source: errno.into() })
}

impl Marks {
    /// Marks the object at `offset`. Returns false if it was marked before.
    fn set(&self, offset: u64) -> bool {
        let (word, bit) = Self::place(offset);
        self.words[word].fetch_or(bit, Relaxed) & bit == 0
    }

    fn has(&self, offset: u64) -> bool {
        let (word, bit) = Self::place(offset);
        self.words[word].load(Relaxed) & bit != 0
    }

    fn place(offset: u64) -> (usize, u64) {
        let unit = offset / UNIT_BYTES;
        ((unit / 64) as usize, 1 << (unit % 64))
    }
}
