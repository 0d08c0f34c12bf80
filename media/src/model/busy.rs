//! What is busy until when.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::energy::{Meter, PowerOf};

/// One thing at a time, in the order in which it is claimed.
#[derive(Default)]
pub(super) struct Busy {
    until_ps: AtomicU64,
}

impl Busy {
    /// Takes it for `length_ps` as soon as it is free, not before `from_ps`; returns the start.
    pub(super) fn claim(&self, from_ps: u64, length_ps: u64) -> u64 {
        if length_ps == 0 {
            return from_ps;
        }
        let mut seen_ps = self.until_ps.load(Relaxed);
        loop {
            let start_ps = seen_ps.max(from_ps);
            let end_ps = start_ps.saturating_add(length_ps);
            match self.until_ps.compare_exchange_weak(seen_ps, end_ps, Relaxed, Relaxed) {
                Ok(_) => return start_ps,
                Err(now_ps) => seen_ps = now_ps,
            }
        }
    }

    pub(super) fn until_ps(&self) -> u64 {
        self.until_ps.load(Relaxed)
    }
}

/// A bank, a die, a spindle, a module: on a cache line of its own, for threads book different ones.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Unit {
    pub(super) busy: Busy,
    /// Where the last request ended, in the unit's own addresses.
    pub(super) end_bytes: AtomicU64,
    pub(super) meter: Meter,
}

impl Unit {
    pub(super) fn meter(&self, power: &PowerOf, start_ps: u64, length_ps: u64) {
        self.meter.count(power, start_ps, length_ps);
    }
}
