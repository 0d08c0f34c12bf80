//! The ways in which writes can be noticed, as settings name them.

use crate::geometry::{GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP};

/// How a region learns which bytes change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrackingKind {
    /// Writers announce ranges under a lane: 64 B grains, nothing traps.
    #[default]
    Barrier,
    /// Writers just store: 4 KiB grains, the first store to a clean page traps.
    Trap(TrapKind),
}

/// What traps a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrapKind {
    /// [`TrapKind::UffdSigbus`] where the system grants it, else [`TrapKind::Mprotect`].
    #[default]
    Auto,
    /// userfaultfd write-protection, handled in the faulting thread by SIGBUS. A system call that
    /// writes into a closed page fails with `EFAULT` and loses nothing, unless the write was
    /// prepared.
    UffdSigbus,
    /// userfaultfd write-protection, handled by a thread. The only one in which system calls write
    /// into closed pages; each trap costs a hand-over between threads. Needs privilege
    /// (`vm.unprivileged_userfaultfd` or `CAP_SYS_PTRACE`).
    UffdThread,
    /// `mprotect` and SIGSEGV, for systems that refuse userfaultfd. Each open page that stands
    /// alone splits the mapping, so the open pages are kept below a quarter of `vm.max_map_count`;
    /// dirty pages beyond that stay dirty but are closed again. Writers in several threads wait for
    /// each other in the kernel.
    Mprotect,
}

impl TrackingKind {
    /// Log2 of the bytes of a grain: part of an image.
    pub fn grain_shift(self) -> u32 {
        match self {
            Self::Barrier => GRAIN_SHIFT_BARRIER,
            Self::Trap(_) => GRAIN_SHIFT_TRAP,
        }
    }
}
