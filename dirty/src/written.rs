//! The pages of a process that were written since the last query, as the kernel records them (Linux
//! 6.7).
//!
//! A range is registered with a userfaultfd that opens protected pages by itself when they are
//! stored to, and the process's page map says which pages are open. Nothing traps in user mode and
//! nobody waits: a first store to a page costs one fault in the kernel.
//!
//! A region's own tracking must know *before* a page is written, so it does not use this. Two users
//! want to know afterwards: checkpoints of an application's memory (`heap`), and recordings of a
//! live program (`plan`).
//!
//! Soft-dirty bits would do the same on older kernels. But they are reset for a whole process at
//! once (`clear_refs`), so two users would lose each other's writes.

use rustix::io::Errno;

use crate::sys::Uffd;
pub use crate::sys::{Kept, PageMap, Run};

/// Ranges of a process in which the kernel records stores. When its last descriptor is closed, here
/// and in the process, all protection is gone.
#[derive(Debug)]
pub struct Watch(Uffd);

impl Watch {
    /// Makes a watch of this process.
    ///
    /// # Errors
    /// `INVAL`: the kernel is too old. `PERM`, `NOSYS`: the kernel does not permit it.
    pub fn own() -> Result<Self, Errno> {
        let uffd = Uffd::open_unagreed()?;
        uffd.agree_to_open()?;
        Ok(Self(uffd))
    }

    /// Makes a watch of another process, which made a userfaultfd and has it open as descriptor
    /// `number`. [`Watch::agree`] must follow.
    ///
    /// # Errors
    /// The errors of `pidfd_open` and `pidfd_getfd`.
    pub fn of_process(pid: i32, number: i32) -> Result<Self, Errno> {
        Uffd::of_process(pid, number).map(Self)
    }

    /// Agrees with the kernel that it records stores.
    ///
    /// # Errors
    /// `INVAL`: the kernel is too old.
    pub fn agree(&self) -> Result<(), Errno> {
        self.0.agree_to_open()
    }

    /// Registers the whole pages of a range; none is protected yet. Ranges that are registered
    /// already stay as they are.
    ///
    /// # Errors
    /// `BUSY`: another userfaultfd has registered the range. `INVAL`: there is no such mapping, or
    /// it is of a kind that cannot be registered.
    pub fn register(&self, start: u64, end: u64) -> Result<(), Errno> {
        self.0.register(start as usize, (end - start) as usize)
    }
}
