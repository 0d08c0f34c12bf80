//! What each thread has of each heap, found without a lock.
//!
//! A thread's [`Local`]s form a list that only this thread touches. They are mapped, not allocated: this heap may be
//! what `malloc` calls. At the thread's end its slots go back to the heaps that still live.

use std::cell::{Cell, OnceCell, RefCell};
use std::mem::size_of;
use std::ptr;
use std::sync::{Mutex, PoisonError, Weak};

use rustix::io::Errno;

use super::mapping::Mapping;
use crate::core::{Core, Local};

struct Node {
    heap: u64,
    next: *const Node,
    mapping: Mapping,
    local: Local,
}

thread_local! {
    static FIRST: Cell<*const Node> = const { Cell::new(ptr::null()) };
    static AT_END: AtEnd = const { AtEnd };
}

/// Heaps that live.
static HEAPS: Mutex<Vec<(u64, Weak<Core>)>> = Mutex::new(Vec::new());

/// Enters a heap, so that threads that end find it.
pub fn enter(id: u64, core: Weak<Core>) {
    let mut heaps = HEAPS.lock().unwrap_or_else(PoisonError::into_inner);
    heaps.push((id, core));
}

/// Takes a heap out, which is about to be dropped: when this returns no thread that ends uses it.
pub fn forget(id: u64) {
    let mut heaps = HEAPS.lock().unwrap_or_else(PoisonError::into_inner);
    heaps.retain(|(other, _)| *other != id);
}

/// What the calling thread has of the heap `id`.
///
/// # Errors
/// It is the first time, and there is no memory for it.
#[inline]
pub fn with<R>(id: u64, f: impl FnOnce(&Local) -> R) -> Result<R, Errno> {
    let mut node = FIRST.with(Cell::get);
    while !node.is_null() {
        // SAFETY: nodes of this thread's list live until its end, which runs no more of our callers.
        let found = unsafe { &*node };
        if found.heap == id {
            return Ok(f(&found.local));
        }
        node = found.next;
    }
    // SAFETY: `make` returns a node of this thread's list.
    Ok(f(unsafe { &(*make(id)?).local }))
}

#[cold]
#[inline(never)]
fn make(id: u64) -> Result<*const Node, Errno> {
    let mapping = Mapping::anonymous(size_of::<Node>() as u64)?;
    let node = mapping.base().cast::<Node>();
    // SAFETY: the mapping is large enough, aligned to a page, and nobody else has it. The cache is left as it is: all
    // zeros is an empty one.
    unsafe {
        ptr::addr_of_mut!((*node).heap).write(id);
        ptr::addr_of_mut!((*node).next).write(FIRST.with(Cell::get));
        ptr::addr_of_mut!((*node).local.logger).write(OnceCell::new());
        ptr::addr_of_mut!((*node).local.writes).write(RefCell::default());
        ptr::addr_of_mut!((*node).mapping).write(mapping);
    }
    // Before anything below can allocate, for that may come back here.
    FIRST.with(|first| first.set(node));
    // At the very end of a thread there is no guard any more: what is made then stays.
    let _ = AT_END.try_with(|_| ());
    Ok(node)
}

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        let mut node = FIRST.with(|first| first.replace(ptr::null()));
        while !node.is_null() {
            // SAFETY: the list is this thread's alone and was just taken from where callers would find it; each node
            // is read once, and its mapping is dropped last.
            let (heap, next, local, mapping) = unsafe {
                let found = &*node;
                let logger = ptr::addr_of!(found.local.logger).read();
                drop(found.local.writes.take());
                (found.heap, found.next, (&found.local.cache, logger), ptr::read(&found.mapping))
            };
            let (cache, logger) = local;
            // Held until the heap was left: who drops it waits here for us.
            let heaps = HEAPS.lock().unwrap_or_else(PoisonError::into_inner);
            let core =
                heaps.iter().find(|(id, _)| *id == heap).and_then(|(_, core)| core.upgrade());
            if let Some(core) = core {
                core.leave(cache, logger.into_inner());
            }
            drop(heaps);
            drop(mapping);
            node = next;
        }
    }
}
