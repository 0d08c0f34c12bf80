//! Directs an application's allocations: to malloc, or to the capacity memory of a heap.
//!
//! The allocator of this program looks at each allocation at the direction that the thread entered
//! last. Applications are ordinary code with `Vec` and `HashMap`, and so are the libraries under
//! them: all their memory is capacity memory then.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::sys::alloc::{self, Source};

/// A place for allocations. Each thread of an application enters it by itself.
#[derive(Clone, Default)]
pub struct Scratch {
    source: Option<Arc<dyn Source>>,
}

impl Scratch {
    /// Allocations go to capacity memory.
    pub fn of(source: Arc<dyn Source>) -> Self {
        Self { source: Some(source) }
    }

    /// Allocations of this thread go to this place until the guard is dropped.
    pub fn enter(&self) -> Entered<'_> {
        let source = self.source.as_deref();
        Entered { before: alloc::direct(source), _scratch: PhantomData }
    }
}

/// Allocations of this thread go to malloc until the guard is dropped.
pub fn by_malloc() -> Entered<'static> {
    Entered { before: alloc::direct(None), _scratch: PhantomData }
}

/// Guard of a thread's direction.
#[must_use = "the scratch is left at once"]
pub struct Entered<'a> {
    before: alloc::Direction,
    // The guard must not be sent: it restores its own thread's direction.
    _scratch: PhantomData<(&'a Scratch, *const ())>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        alloc::restore(self.before);
    }
}
