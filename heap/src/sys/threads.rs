//! Each thread's part of each heap, found without a lock.
//!
//! The [`Local`]s of a thread form a list that only this thread touches. They are mapped and not
//! allocated, because `malloc` may call this heap. When the thread ends, its slots go back to the
//! heaps that still live. The [`Local`]s of heaps that are gone are freed when the thread begins to
//! use another heap.

use std::cell::{Cell, OnceCell, RefCell};
use std::mem::size_of;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::io::Errno;

use super::mapping::Mapping;
use crate::core::{Core, Local};
use crate::log::logger::Logger;

struct Node {
    heap: u64,
    next: Cell<*const Node>,
    mapping: Mapping,
    local: Local,
}

thread_local! {
    static FIRST: Cell<*const Node> = const { Cell::new(ptr::null()) };
    static AT_END: AtEnd = const { AtEnd };
    static HAS_ENDED: Cell<bool> = const { Cell::new(false) };
}

/// The nodes that ended threads share, because other destructors of a thread may run after this
/// one's.
static LATE: Mutex<Late> = Mutex::new(Late(ptr::null()));

struct Late(*const Node);

// SAFETY: the list is reached under the lock only.
unsafe impl Send for Late {}

/// The heaps that live, by number.
static HEAPS: Mutex<Vec<(u64, Weak<Core>)>> = Mutex::new(Vec::new());

/// Enters a heap, so that threads that end find it.
pub fn enter(id: u64, core: Weak<Core>) {
    let mut heaps = HEAPS.lock().unwrap_or_else(PoisonError::into_inner);
    heaps.push((id, core));
}

/// Takes a heap out that is about to be dropped. When this returns, no thread that ends uses it.
pub fn forget(id: u64) {
    let mut heaps = HEAPS.lock().unwrap_or_else(PoisonError::into_inner);
    heaps.retain(|(other, _)| *other != id);
    drop(heaps);
    while let Some(node) = unlink_late(id) {
        // SAFETY: in no list any more.
        drop(unsafe { end(node) });
    }
}

/// A hold on the list of heaps: no thread begins or ends to use a heap while this lives.
pub struct Held {
    _late: MutexGuard<'static, Late>,
    _heaps: MutexGuard<'static, Vec<(u64, Weak<Core>)>>,
}

/// Holds the lists that threads share, for a fork.
pub fn hold() -> Held {
    let heaps = HEAPS.lock().unwrap_or_else(PoisonError::into_inner);
    Held { _late: LATE.lock().unwrap_or_else(PoisonError::into_inner), _heaps: heaps }
}

/// Runs `f` with the calling thread's part of the heap `id`.
///
/// # Errors
/// The thread uses the heap for the first time, and the system has no memory for its part.
#[inline]
pub fn with<R>(id: u64, f: impl FnOnce(&Local) -> R) -> Result<R, Errno> {
    let mut node = FIRST.with(Cell::get);
    while !node.is_null() {
        // SAFETY: nodes of this thread's list live until its end, which runs no more of our
        // callers.
        let found = unsafe { &*node };
        if found.heap == id {
            return Ok(f(&found.local));
        }
        node = found.next.get();
    }
    if HAS_ENDED.with(Cell::get) {
        return with_late(id, f);
    }
    // SAFETY: `make` returns a node of this thread's list.
    Ok(f(unsafe { &(*make(id)?).local }))
}

/// Runs `f` for a thread that has left all heaps already, in a destructor that runs late.
#[cold]
fn with_late<R>(id: u64, f: impl FnOnce(&Local) -> R) -> Result<R, Errno> {
    /// Puts the node back, also if `f` panics.
    struct Lent(*const Node);
    impl Drop for Lent {
        fn drop(&mut self) {
            // SAFETY: it is the first of this thread's list: whoever came after it has left.
            let node = unsafe { &*self.0 };
            FIRST.with(|first| first.set(node.next.get()));
            let heaps = HEAPS.lock().unwrap_or_else(PoisonError::into_inner);
            let core =
                heaps.iter().find(|(id, _)| *id == node.heap).and_then(|(_, core)| core.upgrade());
            drop(heaps);
            if let (Some(core), Some(logger)) = (core, node.local.logger.get()) {
                // The next thread's fences do not cover what this one wrote back.
                logger.drain(&core);
            }
            let mut late = LATE.lock().unwrap_or_else(PoisonError::into_inner);
            node.next.set(late.0);
            late.0 = self.0;
        }
    }
    // No lock is held while `f` has it, which may come back here and finds it as a living thread
    // does.
    let before = FIRST.with(Cell::get);
    let node = match unlink_late(id) {
        Some(node) => node,
        None => new_node(id, before)?,
    };
    // SAFETY: nobody else finds a node that is in no list.
    unsafe { (*node).next.set(before) };
    FIRST.with(|first| first.set(node));
    let lent = Lent(node);
    // SAFETY: the node is this thread's until it is put back.
    Ok(f(unsafe { &(*lent.0).local }))
}

/// Takes a node of a heap out of the list that ended threads share.
fn unlink_late(id: u64) -> Option<*const Node> {
    let mut late = LATE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut before: *const Node = ptr::null();
    let mut node = late.0;
    // SAFETY: the list is this lock's.
    unsafe {
        while !node.is_null() {
            let next = (*node).next.get();
            if (*node).heap == id {
                match before.as_ref() {
                    None => late.0 = next,
                    Some(before) => before.next.set(next),
                }
                return Some(node);
            }
            (before, node) = (node, next);
        }
    }
    None
}

#[cold]
#[inline(never)]
fn make(id: u64) -> Result<*const Node, Errno> {
    free_gone();
    let node = new_node(id, FIRST.with(Cell::get))?;
    // Before anything below can allocate, for that may come back here.
    FIRST.with(|first| first.set(node));
    // Registers the guard.
    let _ = AT_END.try_with(|_| ());
    Ok(node)
}

/// Frees this thread's parts of heaps that are gone. No other thread could, and this one may never
/// end.
fn free_gone() {
    if FIRST.with(Cell::get).is_null() {
        return;
    }
    let mut gone: *const Node = ptr::null();
    let heaps = HEAPS.lock().unwrap_or_else(PoisonError::into_inner);
    FIRST.with(|first| {
        let mut before: *const Node = ptr::null();
        let mut node = first.get();
        // SAFETY: the list is this thread's alone, and what `next` holds is changed here only. A
        // node that somebody further up uses is not of these: they have its heap, which is entered
        // as long as it lives.
        unsafe {
            while !node.is_null() {
                let next = (*node).next.get();
                if heaps.iter().any(|(id, _)| *id == (*node).heap) {
                    before = node;
                } else {
                    match before.as_ref() {
                        None => first.set(next),
                        Some(before) => before.next.set(next),
                    }
                    (*node).next.set(gone);
                    gone = node;
                }
                node = next;
            }
        }
    });
    drop(heaps);
    while !gone.is_null() {
        // SAFETY: in no list any more; each is taken apart once, its mapping dropped last.
        unsafe {
            let next = (*gone).next.get();
            drop(end(gone));
            gone = next;
        }
    }
}

fn new_node(id: u64, next: *const Node) -> Result<*const Node, Errno> {
    let mapping = Mapping::anonymous(size_of::<Node>() as u64)?;
    let node = mapping.base().cast::<Node>();
    // SAFETY: the mapping is large enough, aligned to a page, and nobody else has it. The cache is
    // left as it is: all zeros is an empty one.
    unsafe {
        ptr::addr_of_mut!((*node).heap).write(id);
        ptr::addr_of_mut!((*node).next).write(Cell::new(next));
        ptr::addr_of_mut!((*node).local.logger).write(OnceCell::new());
        ptr::addr_of_mut!((*node).local.writes).write(RefCell::default());
        ptr::addr_of_mut!((*node).mapping).write(mapping);
    }
    Ok(node)
}

/// Takes a node apart. Its logger is given to the caller, and its memory goes with the mapping.
///
/// # Safety
/// The node is in no list any more, and no thread refers to it.
unsafe fn end(node: *const Node) -> (Option<Arc<Logger>>, Mapping) {
    // SAFETY: the caller's promise; each field is read once, and the mapping outlives the reading.
    unsafe {
        drop((*node).local.writes.take());
        let logger = ptr::addr_of!((*node).local.logger).read();
        (logger.into_inner(), ptr::read(&(*node).mapping))
    }
}

struct AtEnd;

impl Drop for AtEnd {
    fn drop(&mut self) {
        HAS_ENDED.with(|ended| ended.set(true));
        let mut node = FIRST.with(|first| first.replace(ptr::null()));
        while !node.is_null() {
            // SAFETY: the list is this thread's alone; what is skipped here is never taken apart.
            let found = unsafe { &*node };
            if found.local.in_tx.get() {
                // `exit` was called in a transaction, which will not go on: as if the process had
                // been killed there.
                node = found.next.get();
                continue;
            }
            // SAFETY: the list was just taken from where callers would find it; each node is taken
            // apart once, and its mapping is dropped last.
            let (heap, next, cache, (logger, mapping)) = unsafe {
                let found = &*node;
                (found.heap, found.next.get(), &found.local.cache, end(node))
            };
            // Held until the heap was left: who drops it waits here for us.
            let heaps = HEAPS.lock().unwrap_or_else(PoisonError::into_inner);
            let core =
                heaps.iter().find(|(id, _)| *id == heap).and_then(|(_, core)| core.upgrade());
            if let Some(core) = core {
                core.leave(cache, logger);
            }
            drop(heaps);
            drop(mapping);
            node = next;
        }
    }
}
