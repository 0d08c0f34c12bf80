//! Programs that fork: the child has the heap as it was at the fork, and goes on with it.
//!
//! Private memory is copied by the kernel. A file would be shared by both processes, so the child
//! copies the used parts to a file of its own, and the parent waits meanwhile. A parent that has no
//! descriptors left makes the copy itself, and the child's heap lies in private memory. A child by
//! `vfork` or `posix_spawn` only executes another program; a heap in a file does not work in a
//! child by a bare `clone` without `CLONE_VM`.
//!
//! While the heap is held nobody may need it, not even the fork handlers of other libraries.
//! Handlers that are registered later run before the heap is held and after it is released, so this
//! library registers its handlers first of all (`build.rs`).

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem;
use std::sync::MutexGuard;

use perdura_heap::{PrivateCopy, Still};
use rustix::io::Errno;

use crate::malloc::{elsewhere, heap};
use crate::{kernel, say};

/// Locks that are held from before a fork until after it.
struct Held {
    /// Dropped first, because a thread that frees memory has the heap before the table.
    heap: Option<Still<'static>>,
    _table: Option<MutexGuard<'static, elsewhere::Table>>,
    parting: Parting,
}

/// The way in which the child gets memory of its own.
enum Parting {
    /// The kernel copies the memory.
    None,
    /// The child copies, and the parent waits at the first of these ends of a pipe.
    Pipe([c_int; 2]),
    /// The child takes the copy of its parent, which has no descriptors left; or there was no
    /// memory for a copy.
    Copied(Result<PrivateCopy, Errno>),
}

struct Slot(UnsafeCell<Held>);

// SAFETY: only a thread that holds all locks of `before` uses the slot, and it empties the slot
// before it releases any of them, also if several threads fork at once.
unsafe impl Sync for Slot {}

const NOTHING: Held = Held { heap: None, _table: None, parting: Parting::None };

static HELD: Slot = Slot(UnsafeCell::new(NOTHING));

/// Registers the handlers of forks.
pub fn watch() {
    // SAFETY: three functions that live as long as the process: this library is never unloaded.
    let refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    if refused != 0 {
        say::refuse(format_args!("pthread_atfork: error {refused}"));
    }
}

unsafe extern "C" fn before() {
    let Some(heap) = heap::heap() else { return };
    let still = heap.hold_still();
    let table = elsewhere::lock();
    let mut ends = [-1; 2];
    let parting = match heap::dir() {
        None => Parting::None,
        // SAFETY: two descriptors are written to this stack.
        Some(_) if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == 0 => {
            Parting::Pipe(ends)
        }
        Some(_) => Parting::Copied(still.private_copy()),
    };
    // SAFETY: see `Slot`; all locks are held now, and the thread that had them before has emptied
    // the slot.
    unsafe { *HELD.0.get() = Held { heap: Some(still), _table: Some(table), parting } };
}

/// Takes the locks that `before` has left for this thread; in a child for the thread that the child
/// is a copy of.
fn take() -> Held {
    // SAFETY: see `Slot`; the locks that `before` took are held until the caller drops this.
    unsafe { mem::replace(&mut *HELD.0.get(), NOTHING) }
}

unsafe extern "C" fn in_parent() {
    if heap::heap().is_none() {
        return;
    }
    let held = take();
    if let Parting::Pipe([read, write]) = held.parting {
        kernel::close(write);
        kernel::await_byte(read);
        kernel::close(read);
    }
}

unsafe extern "C" fn in_child() {
    if heap::heap().is_none() {
        return;
    }
    let held = take();
    let (Some(dir), Some(heap)) = (heap::dir(), &held.heap) else { return };
    let parted = match held.parting {
        Parting::None => Ok(()),
        Parting::Pipe([read, write]) => {
            // Closed at once, because no other descriptor may be left.
            kernel::close(read);
            let parted = heap.part_from_parent(dir);
            kernel::write(write, b"1");
            kernel::close(write);
            parted
        }
        Parting::Copied(copy) => copy.and_then(|copy| heap.part_with(copy)),
    };
    if let Err(errno) = parted {
        let dir = dir.display();
        say::refuse(format_args!("{dir}: no capacity memory for a forked child: {errno}"));
    }
}
