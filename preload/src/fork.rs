//! Programs that fork: the child has the heap as it was, and works on.
//!
//! Private memory the kernel copies. A file both would share: the child copies what is used of it,
//! to a file of its own, and the parent waits for that (as for a page table that is copied, only
//! longer). A parent without descriptors left copies itself, and the child has its heap in private
//! memory. A child by `vfork` or `posix_spawn` only executes another program; one by a bare `clone`
//! without `CLONE_VM` must not be used with a file.
//!
//! While the heap is held nobody may need it, the other libraries' handlers included. Those that
//! asked later are done before the heap is held and after it is let go of, so this library asks
//! first of all (`build.rs`).

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem;
use std::sync::MutexGuard;

use perdura_heap::{PrivateCopy, Still};
use rustix::io::Errno;

use crate::{elsewhere, open, say};

/// What is held from before a fork until after it.
struct Held {
    /// Dropped first: whoever frees has the heap before the table.
    heap: Option<Still<'static>>,
    _table: Option<MutexGuard<'static, elsewhere::Table>>,
    parting: Parting,
}

/// How a child comes to memory of its own.
enum Parting {
    /// It has its own.
    None,
    /// It copies, and the parent waits at the other end: the parent's and the child's.
    Pipe([c_int; 2]),
    /// It takes what its parent has copied, which has no descriptors left; or there was no memory
    /// for that.
    Copied(Result<PrivateCopy, Errno>),
}

struct Slot(UnsafeCell<Held>);

// SAFETY: reached only by a thread that holds all that `before` locks, and several threads may fork
// at once: from the last lock taken until what is here has been taken out, before any of it is let
// go of.
unsafe impl Sync for Slot {}

const NOTHING: Held = Held { heap: None, _table: None, parting: Parting::None };

static HELD: Slot = Slot(UnsafeCell::new(NOTHING));

/// From now on forks are seen.
pub fn watch() {
    // SAFETY: three functions that live as long as the process: this library is never unloaded.
    let refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    if refused != 0 {
        say::refuse(format_args!("pthread_atfork: error {refused}"));
    }
}

unsafe extern "C" fn before() {
    let Some(heap) = open::heap() else { return };
    let still = heap.hold_still();
    let table = elsewhere::lock();
    let mut ends = [-1; 2];
    let parting = match open::dir() {
        None => Parting::None,
        // SAFETY: two descriptors are written to this stack.
        Some(_) if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } == 0 => {
            Parting::Pipe(ends)
        }
        Some(_) => Parting::Copied(still.private_copy()),
    };
    // SAFETY: see `Slot`; all locks are held now, and whoever had them before has left nothing
    // here.
    unsafe { *HELD.0.get() = Held { heap: Some(still), _table: Some(table), parting } };
}

/// Takes what `before` has left for this thread, or, in a child, for the one that it is a copy of.
fn take() -> Held {
    // SAFETY: see `Slot`; the locks that `before` took are held until the caller drops this.
    unsafe { mem::replace(&mut *HELD.0.get(), NOTHING) }
}

unsafe extern "C" fn in_parent() {
    if open::heap().is_none() {
        return;
    }
    let held = take();
    if let Parting::Pipe([read, write]) = held.parting {
        let mut byte = 0_u8;
        // SAFETY: this stack's byte, and descriptors that `before` opened. It ends with a byte, or
        // because the child has.
        unsafe {
            libc::close(write);
            while libc::read(read, (&raw mut byte).cast(), 1) < 0
                && *libc::__errno_location() == libc::EINTR
            {}
            libc::close(read);
        }
    }
}

unsafe extern "C" fn in_child() {
    if open::heap().is_none() {
        return;
    }
    let held = take();
    let (Some(dir), Some(heap)) = (open::dir(), &held.heap) else { return };
    let parted = match held.parting {
        Parting::None => Ok(()),
        Parting::Pipe([read, write]) => {
            // SAFETY: descriptors that `before` opened, and one byte of a constant. The first may
            // be the last there are.
            unsafe {
                libc::close(read);
                let parted = heap.part_from_parent(dir);
                libc::write(write, b"1".as_ptr().cast(), 1);
                libc::close(write);
                parted
            }
        }
        Parting::Copied(copy) => copy.and_then(|copy| heap.part_with(copy)),
    };
    if let Err(errno) = parted {
        let dir = dir.display();
        say::refuse(format_args!("{dir}: no capacity memory for a forked child: {errno}"));
    }
}
