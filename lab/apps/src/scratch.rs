//! Where what an application allocates goes: to malloc, or to the capacity memory of a heap.
//!
//! The allocator of this program asks, at each allocation, what the thread entered last.
//! Applications are ordinary code with `Vec` and `HashMap`, and so are the libraries under them:
//! all of it lands in capacity memory.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::sys::alloc::{self, Source};

/// A place for allocations; threads of an application enter it each by itself.
#[derive(Clone, Default)]
pub struct Scratch {
    source: Option<Arc<dyn Source>>,
}

impl Scratch {
    /// In capacity memory.
    pub fn of(source: Arc<dyn Source>) -> Self {
        Self { source: Some(source) }
    }

    /// Until the guard is dropped, allocations of this thread go here.
    pub fn enter(&self) -> Entered<'_> {
        let source = self.source.as_deref();
        Entered { before: alloc::direct(source), _scratch: PhantomData }
    }
}

/// Until the guard is dropped, allocations of this thread are malloc's.
pub fn by_malloc() -> Entered<'static> {
    Entered { before: alloc::direct(None), _scratch: PhantomData }
}

/// Allocations of this thread go where it was entered.
#[must_use = "the scratch is left at once"]
pub struct Entered<'a> {
    before: alloc::Direction,
    // Not to be sent: what it restores is this thread's.
    _scratch: PhantomData<(&'a Scratch, *const ())>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        alloc::restore(self.before);
    }
}
