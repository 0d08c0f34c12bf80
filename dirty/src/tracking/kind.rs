//! The ways in which writes can be noticed, by the names that settings have for them.

use crate::geometry::{GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP};

/// How a region notices which bytes change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrackingKind {
    /// Writers announce ranges under a lane. Grains are of 64 B, and nothing traps.
    #[default]
    Barrier,
    /// Writers just store. Grains are of 4 KiB, and the first store to a clean page traps.
    Trap(TrapKind),
}

/// The mechanism by which a store traps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrapKind {
    /// [`TrapKind::UffdSigbus`] where the system grants it, else [`TrapKind::Mprotect`].
    #[default]
    Auto,
    /// userfaultfd write-protection, handled in the faulting thread by SIGBUS. A system call that
    /// writes into a closed page fails with `EFAULT` and loses nothing, unless the write was
    /// prepared.
    UffdSigbus,
    /// userfaultfd write-protection, handled by a thread. Only in this mode can system calls write
    /// into closed pages, and each trap costs a hand-over between threads. It needs privilege
    /// (`vm.unprivileged_userfaultfd` or `CAP_SYS_PTRACE`).
    UffdThread,
    /// `mprotect` and SIGSEGV, for systems that refuse userfaultfd. Each open page that stands
    /// alone splits the mapping, so the open pages are kept below a quarter of `vm.max_map_count`;
    /// dirty pages beyond that stay dirty but are closed again. Writers in several threads wait for
    /// each other in the kernel.
    Mprotect,
    /// userfaultfd write-protection in other processes ([`crate::Guest`]), handled by a thread for
    /// each. This process stores nothing through its own mapping without preparing it.
    Guests,
}

impl TrackingKind {
    /// Log2 of a grain's bytes, which an image records.
    pub fn grain_shift(self) -> u32 {
        match self {
            Self::Barrier => GRAIN_SHIFT_BARRIER,
            Self::Trap(_) => GRAIN_SHIFT_TRAP,
        }
    }
}
