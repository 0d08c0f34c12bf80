//! Which pages of a process were written since it was last asked, as the kernel keeps account of it
//! (Linux 6.7): a range is registered with a userfaultfd that opens protected pages by itself when
//! they are stored to, and its page map tells which are open. Nothing traps in user mode, and
//! nobody waits: a first store to a page costs one fault in the kernel.
//!
//! A region's own tracking is not this one: it must know *before* a page is written (`tracking`).
//! These are for who wants to know afterwards: checkpoints of an application's memory (`heap`),
//! recordings of a live program (`plan`).
//!
//! Soft-dirty bits would do the same on older kernels, but are reset for a whole process at once
//! (`clear_refs`): two users of them lose each other's writes, so they are not used.

use rustix::io::Errno;

use crate::sys::Uffd;
pub use crate::sys::{Kept, PageMap, Run};

/// Ranges of a process in which the kernel keeps account of stores. When its last descriptor is
/// closed, here and in the process, all protection is gone.
#[derive(Debug)]
pub struct Watch(Uffd);

impl Watch {
    /// Of this process.
    ///
    /// # Errors
    /// `INVAL`: the kernel is too old. `PERM`, `NOSYS`: it does not let us.
    pub fn own() -> Result<Self, Errno> {
        let uffd = Uffd::open_unagreed()?;
        uffd.agree_to_open()?;
        Ok(Self(uffd))
    }

    /// Of another process, which made a userfaultfd and has it open as descriptor `number`;
    /// [`Watch::agree`] must follow.
    ///
    /// # Errors
    /// Those of `pidfd_open` and `pidfd_getfd`.
    pub fn of_process(pid: i32, number: i32) -> Result<Self, Errno> {
        Uffd::of_process(pid, number).map(Self)
    }

    /// Agrees with the kernel on what it is for.
    ///
    /// # Errors
    /// `INVAL`: the kernel is too old.
    pub fn agree(&self) -> Result<(), Errno> {
        self.0.agree_to_open()
    }

    /// Makes whole pages of a range protectable; none is protected yet. What is registered already
    /// stays as it is.
    ///
    /// # Errors
    /// `BUSY`: somebody else has registered it. `INVAL`: no such mapping, or of a kind that cannot
    /// be.
    pub fn register(&self, start: u64, end: u64) -> Result<(), Errno> {
        self.0.register(start as usize, (end - start) as usize)
    }
}
