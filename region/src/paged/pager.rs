//! The state that faults of one paged memory share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use perdura_dirty::EventCount;
use perdura_dirty::sys::{FaultLock, Mapping, SharedMemory, Uffd};
use perdura_media::Clock;
use perdura_media::emulator::Emulator;

use super::recording::Recording;
use super::residents::Residents;

/// A paged memory, as the fault handler uses it.
pub(super) struct Pager {
    pub file: SharedMemory,
    pub map: Mapping,
    pub uffd: Uffd,
    pub medium: Arc<Emulator>,
    pub clock: Arc<dyn Clock>,
    pub unit_bytes: u64,
    pub len_bytes: u64,
    pub resident_cap_bytes: u64,
    pub state: FaultLock<State>,
    /// Notified when a unit has arrived or left.
    pub unblocked: EventCount,
    pub counts: Counts,
}

/// The state that the lock protects.
pub(super) struct State {
    pub residents: Residents,
    pub recording: Recording,
}

#[derive(Default)]
pub(super) struct Counts {
    pub misses: AtomicU64,
    pub page_ins: AtomicU64,
    pub page_outs: AtomicU64,
    pub reactivations: AtomicU64,
    pub write_traps: AtomicU64,
    pub resident_units_max: AtomicU64,
    pub handler_ns: AtomicU64,
    pub waited_ns: AtomicU64,
}
